/* tools.h - what this machine has: devices, and the CPU kernels that can be named.
 *
 *     tandem_device devices[64];
 *     size_t device_count;
 *     tandem_devices(devices, 64, sizeof devices[0], &device_count);
 *
 * Both functions look at the machine afresh, keep nothing, and may be called from any thread. Arrays of structs travel
 * with the size of one element (stride_bytes), so that the structs can grow.
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

#ifdef __cplusplus
}
#endif
#endif
