/* tools.h - what this machine has: devices, and the CPU kernels that can be named; and the text of device kernels.
 *
 *     tandem_device devices[64];
 *     size_t device_count;
 *     tandem_devices(devices, 64, sizeof devices[0], &device_count);
 *
 * The functions that list look at the machine afresh, keep nothing, and may be called from any thread. Arrays of
 * structs travel with the size of one element (stride_bytes), so that the structs can grow.
 */
#ifndef TANDEM_TOOLS_H
#define TANDEM_TOOLS_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/tandem.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tandem_device {
  char name[32];         /* as `backend` of tandem_context_options takes it: "cpu", "opencl:0:0" */
  char kind[32];         /* "cpu"; "opencl-gpu", "opencl-accelerator", "opencl-cpu", "opencl-custom" */
  char description[128]; /* "INTEL(R) XEON(R) PLATINUM 8581C CPU @ 2.30GHz" */
  char kernel[32];       /* what a context with default options would run there: "avx512-gfni"; OpenCL: "auto" */
  uint32_t thread_count; /* CPU: cores that affinity and cgroup quota allow; OpenCL: compute units */
  uint32_t reserved;
} tandem_device;

/* Lists what a context can run on: "cpu", which is always there, then OpenCL's devices. Their drivers are loaded for
 * that, and left out if they have not answered after 20 seconds; a child process after fork hears of "cpu" alone.
 *   devices_out    room for `capacity` structs, stride_bytes apart; NULL with capacity 0 only counts
 *   stride_bytes   sizeof(tandem_device); of each element only the bytes that fit are written
 *   count_out      how many there are; may be more than capacity, then the first `capacity` were written
 * Strings are zero-terminated, cut if too long.
 * Status: INVALID_ARGUMENT (NULL count_out, NULL devices_out with capacity > 0, stride_bytes < sizeof(tandem_device) of
 *   version 0.1), OUT_OF_MEMORY. Nothing is written on failure. */
TANDEM_API tandem_status tandem_devices(tandem_device *devices_out, size_t capacity, size_t stride_bytes,
                                        size_t *count_out);

typedef struct tandem_kernel {
  char name[32];     /* as `kernel` of tandem_context_options takes it: "avx2-gfni" */
  char needs[96];    /* the CPU features, for people: "AVX2; GFNI" */
  int32_t available; /* non-zero: this CPU and operating system have them */
  uint32_t reserved;
} tandem_kernel;

/* Lists every CPU kernel of this build, the one that is preferred first. Parameters and status as tandem_devices. */
TANDEM_API tandem_status tandem_kernels(tandem_kernel *kernels_out, size_t capacity, size_t stride_bytes,
                                        size_t *count_out);

/* ---- kernel text ----------------------------------------------------------------------------------- */

enum tandem_dialect_value { TANDEM_DIALECT_OPENCL_C = 0, TANDEM_DIALECT_CUDA_C = 1, TANDEM_DIALECT_HOST_C = 2 };

enum tandem_technique_value {
  TANDEM_TECHNIQUE_COMPILED = 0, /* straight-line code of the matrix */
  TANDEM_TECHNIQUE_TABLES = 1    /* look-ups in local memory; the matrix is data */
};

typedef struct tandem_kernel_text_options {
  size_t struct_bytes;        /* sizeof(tandem_kernel_text_options) */
  int32_t dialect;            /* enum tandem_dialect_value */
  int32_t technique;          /* enum tandem_technique_value */
  int32_t operation;          /* enum tandem_operation_value: ENCODE, VERIFY or UPDATE (one data shard's old and new
                                 bytes into all parity) */
  uint32_t element_bytes;     /* loaded by a work-item at once: 4, 8, 16, 32, 64 (CUDA C: to 16); 0 = 16 */
  uint32_t elements_per_item; /* 1 to 64; 0 = 1 */
  uint32_t rows_per_pass;     /* outputs computed together; 0 = 4 */
} tandem_kernel_text_options;

/* What the text costs for 4 bytes of every input at one place: divide by data_bytes for operations per data byte. */
typedef struct tandem_kernel_text_info {
  size_t struct_bytes;             /* set by the caller: sizeof(tandem_kernel_text_info) */
  uint64_t text_bytes;             /* with the final zero */
  uint64_t data_bytes;             /* inputs x 4 */
  uint64_t two_input_operations;   /* on 32-bit words, where an instruction has two inputs */
  uint64_t three_input_operations; /* where one instruction XORs three words (LOP3, vpternlog) */
  uint64_t loads, stores;
  uint64_t table_lookups; /* technique tables */
} tandem_kernel_text_info;

/* Writes the text of the kernel that a device would run for this codec, for people and tools: to read, count or
 * compile. options         NULL = all defaults text_out        gets the zero-terminated text; NULL with capacity_bytes
 * 0 only counts info_out        struct_bytes set by the caller; the rest is written on TANDEM_OK Status:
 * INVALID_ARGUMENT (NULL codec or info_out, values that make no kernel, a codec without parity, capacity_bytes not 0
 * and smaller than the text), UNSUPPORTED, OUT_OF_MEMORY. Nothing is written on failure. Any thread. */
TANDEM_API tandem_status tandem_kernel_text(const tandem_codec *codec, const tandem_kernel_text_options *options,
                                            char *text_out, size_t capacity_bytes, tandem_kernel_text_info *info_out);

#ifdef __cplusplus
}
#endif
#endif
