/* SPDX-License-Identifier: Apache-2.0 */
/* tools.h - lists devices and CPU kernels, limits what a context uses at once, and tunes a machine.
 *
 *     tandem_device devices[64];
 *     size_t device_count;
 *     tandem_devices(devices, 64, sizeof devices[0], &device_count);
 *
 * Functions that list look at the machine each time and keep nothing. Any thread may call them. Arrays of structs come
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
  char name[32];         /* as `backend` of tandem_context_options takes it: "cpu", "opencl:0:0", "cuda:0" */
  char kind[32];         /* "cpu"; "opencl-gpu", "opencl-accelerator", "opencl-cpu", "opencl-custom"; "cuda-gpu" */
  char description[128]; /* "INTEL(R) XEON(R) PLATINUM 8581C CPU @ 2.30GHz" */
  char kernel[32];       /* the kernel of a context with default options: "avx512-gfni"; devices: "auto" */
  uint32_t thread_count; /* CPU: cores that affinity and cgroup quota allow; OpenCL: compute units; CUDA:
                            multiprocessors */
  uint32_t reserved;
  char missing[256]; /* "" = it is there. Else `name` is a backend without a device, and this says why, in one line for
                        people: "no CUDA device: the NVIDIA driver is not installed (...)" */
} tandem_device;

/* Lists what a context can run on: "cpu", which always exists, then the devices of OpenCL and CUDA. Backends without a
 * device come last, with `missing`. Loads the drivers. A driver that does not answer within 20 seconds is left out.
 * Calls that wait for the same driver share these 20 seconds; later ones wait for 0.1 seconds. If the parent process
 * had used the drivers, a child lists "cpu" alone.
 *   devices_out    `capacity` structs, stride_bytes apart; NULL with capacity 0 only counts
 *   stride_bytes   sizeof(tandem_device); of each element only the bytes that fit are written
 *   count_out      how many there are. If that is more than capacity, the first `capacity` were written
 * Strings are zero-terminated, and cut if too long.
 * Status: INVALID_ARGUMENT (NULL count_out, NULL devices_out with capacity > 0, stride_bytes < sizeof(tandem_device)
 *   of version 0.1), OUT_OF_MEMORY.
 * On failure nothing is written. */
TANDEM_API tandem_status tandem_devices(tandem_device *devices_out, size_t capacity, size_t stride_bytes,
                                        size_t *count_out);

typedef struct tandem_kernel {
  char name[32];     /* as `kernel` of tandem_context_options takes it: "avx2-gfni" */
  char needs[96];    /* the CPU features that it needs, for people: "AVX2; GFNI" */
  int32_t available; /* non-zero: this CPU and operating system have these features */
  uint32_t reserved;
} tandem_kernel;

/* Lists every CPU kernel of this build, the preferred one first. Parameters and status as tandem_devices. */
TANDEM_API tandem_status tandem_kernels(tandem_kernel *kernels_out, size_t capacity, size_t stride_bytes,
                                        size_t *count_out);

/* ---- resources --------------------------------------------------------------------------------------- */

/* Sets how much of a named resource the tasks of this context may hold at once, over all calls and jobs. It works while
 * tasks run: waiting tasks see the new amount at once, others at their next chunk. A resource has no limit, and is not
 * counted, until its amount is set.
 *   name     one of the list below, or one of your own. Your own names have a dot, such as "my.disks": 1 to 63
 *            characters of A-Z a-z 0-9 _ . -
 *   amount   >= 1
 *
 * A task gets all that it needs at once, or waits. Tasks are served in the order of their requests. One exception: a
 * task that fits may pass a waiting task that needs some of the same resources, at most 16 times. A task holds
 *   "cpu"          1: a chunk on the CPU; a whole call that moves less than 256 KiB; a thread that copies shards to or
 *                  from a device's staging memory, or checks what a device computed (docs/gpus.md)
 *   "gpu"          1: a run on a device; a hybrid's task on a device. Jobs on device memory: only during their submit
 *   "pinned_mib"   32 (MiB of staging memory): a hybrid's task on a device
 *   "opencl_mib", "cuda_mib"   MiB of the context's own buffers on its device, from the next call on. Default: half of
 *                  the OpenCL device's memory; half of the memory that is free on the CUDA device at its first use
 *   your own       the amount in `resources` of tandem_plan_options
 * A call fails with INVALID_ARGUMENT if one of its tasks needs more than the whole amount. If the amount was lowered
 * while the call ran, its outputs are undefined.
 *
 * Status: INVALID_ARGUMENT (NULL, a malformed or unknown name, amount 0), OUT_OF_MEMORY.
 * Threads: any, also while calls and jobs run. */
TANDEM_API tandem_status tandem_context_set_resource(tandem_context *context, const char *name, uint64_t amount);

/* ---- matrices ------------------------------------------------------------------------------------------ */

/* Names of matrices as the command spells them ("isal-cauchy"). tandem_matrix_name returns NULL for an unknown value,
 * tandem_matrix_from_name INVALID_ARGUMENT for an unknown name. */
TANDEM_API const char *tandem_matrix_name(int32_t matrix);
TANDEM_API tandem_status tandem_matrix_from_name(const char *name, int32_t *matrix_out);

enum tandem_matrix_trait_value {
  TANDEM_MATRIX_IS_GF16 = 1,         /* it is over GF(2^16) */
  TANDEM_MATRIX_HAS_LOCAL_GROUPS = 2 /* it needs `local_groups` of the options */
};

/* Bits of enum tandem_matrix_trait_value for a preset; else 0. Threads: any. */
TANDEM_API uint32_t tandem_matrix_traits(int32_t matrix);

/* ---- libraries on top of this one ----------------------------------------------------------------------- */

/* Sets the calling thread's message and returns `status`. Libraries on top of this one (volume.h, mpi.h) use it, so
 * that their users find every message in one place. The message is copied, and shortened in the middle if it is too
 * long. NULL: the name of the status. */
TANDEM_API tandem_status tandem_set_last_error(tandem_status status, const char *message);

/* ---- tuning ----------------------------------------------------------------------------------------
 *
 * The way a backend runs an operation has tuning values that depend on the machine: sizes of work-groups, bytes of a
 * work-item, tiles of the CPU. tandem_autotune measures them and keeps the best ones in a file. Contexts read the file
 * when they are created (tandem_context_options.tuning_file). docs/tuning.md describes the file, the search and the
 * rule of look-up. */

typedef struct tandem_autotune_progress {
  size_t struct_bytes;  /* set by the library: sizeof(tandem_autotune_progress) of its version */
  uint64_t done_count;  /* repeats measured */
  uint64_t total_count; /* falls when candidates are dropped */
  double seconds_left;  /* an estimate */
  int32_t operation;    /* enum tandem_operation_value: the operation that is measured now */
  uint32_t k, m;
  uint32_t reserved;
  double bytes_per_second;         /* of data, with the best values so far; 0: none yet */
  double default_bytes_per_second; /* with the backend's own values; 0: unknown so far */
  const char *values;              /* the best so far: "local_x=64, local_y=1"; "" = none. Valid during the call */
} tandem_autotune_progress;

/* Receives the progress of a tuning. The tuning thread calls it before each measurement (some hundredths of a second
 * each). Non-zero: stop. It must not call tandem_autotune. */
typedef int32_t (*tandem_autotune_callback)(void *user, const tandem_autotune_progress *progress);

typedef struct tandem_autotune_options {
  size_t struct_bytes;       /* sizeof(tandem_autotune_options) */
  const char *operations;    /* NULL = "encode,decode"; others: verify, update */
  const char *ks;            /* NULL = "10"; a list or range as below. Every k with every m */
  const char *ms;            /* NULL = "4"; of decode: how many shards are lost */
  const char *const *ranges; /* range_count times "NAME=RANGE", in place of the backend's own candidates for NAME */
  size_t range_count;
  uint64_t shard_bytes; /* 0 = chosen so that a stripe has 32 to 64 MiB */
  uint32_t repeats;     /* of each measurement; 0 = 5 */
  int32_t fresh;        /* non-zero: measures cases again that an earlier run has finished */
  double max_seconds; /* 0 = until all is measured. Each (operation, k, m) gets its part. One that could not end in time
                         is not begun, and has no result; the first always has one. A compile is not interrupted */
  const char *output; /* the file; NULL = the file that a context would read */
  tandem_autotune_callback progress; /* NULL = none */
  void *progress_user;
  int32_t on_device; /* non-zero: the shards lie in device memory, so that the kernel's own speed is measured. Values of
                        transfers stay unchanged; a stripe has 128 to 256 MiB by default. 0: in host memory */
  uint32_t reserved;
} tandem_autotune_options;

typedef struct tandem_autotune_result {
  size_t struct_bytes;      /* set by the caller: sizeof(tandem_autotune_result) */
  uint32_t case_count;      /* (operation, k, m) with a result in the file now */
  uint32_t improved_count;  /* of these, faster than with the backend's own values; the others keep those */
  uint64_t candidate_count; /* sets of values that were tried */
  uint64_t refused_count;   /* candidates that the device could not run */
  uint64_t wrong_count;     /* candidates with other bytes than those of an independent product */
  uint64_t dropped_count;   /* candidates 1.25 times slower than the best */
  uint64_t known_count;     /* cases that an earlier run had finished with the same search; they stay as they are */
  int32_t complete;         /* 0: max_seconds ended the search of a case early */
  uint32_t reserved;
  double seconds;
} tandem_autotune_result;

/* Finds the fastest tuning values of one backend for every (operation, k, m), and stores them in the file.
 *   context      where to run, as for tandem_context_create; its tuning_file is not read. NULL = all defaults
 *   options      NULL = all defaults. A RANGE is a list such as "32,64,96"; "1:4" is 1, 2, 3, 4; "16:1024:x2" and
 *                "1<<v, v=4:10" are 16, 32 ... 1024
 *   result_out   NULL, or struct_bytes set by the caller; the rest is written on TANDEM_OK
 *
 * Every candidate's bytes are checked before it is timed. At the end, the best candidate and the backend's own values
 * are measured in turns. The best one is stored only if it is clearly faster, and then only the values that differ.
 *
 * The result of each (operation, k, m) is stored as soon as it is known. After a cancelled or killed run, the next one
 * goes on with the case that was not finished. log_callback receives what became of each candidate.
 *
 * Memory: k + m shards, and some 100 KiB; with on_device as much on the device, too.
 * Status: INVALID_ARGUMENT (also a malformed or empty RANGE, a NAME that this backend does not have, or resources in
 *   the context's options or environment), UNAVAILABLE (no such backend; nothing to tune; all candidates, or all with
 *   the values of a RANGE, were refused), CANCELLED, IO, DAMAGED and UNSUPPORTED (the
 *   file, with the line; on_device and a backend that is not a single device), OUT_OF_MEMORY, TOO_LARGE, INTERNAL (the
 *   backend computes wrong bytes). */
TANDEM_API tandem_status tandem_autotune(const tandem_context_options *context, const tandem_autotune_options *options,
                                         tandem_autotune_result *result_out);

typedef struct tandem_tuning_entry {
  char backend[32];                                  /* "cpu" */
  char vendor[64];                                   /* "AuthenticAMD" */
  char device[128];                                  /* the model, as its driver names it */
  char driver[128];                                  /* the driver's name and version */
  char kernel_hash[32];                              /* of the measured kernels; new kernels need new measurements */
  char values[512];                                  /* "local_x=64, local_y=1"; "" = the backend's own are best */
  char date[32];                                     /* UTC: "2025-11-21T16:55:20Z" */
  int32_t operation;                                 /* enum tandem_operation_value */
  uint32_t k, m;                                     /* decode: m shards are lost. update: k is 1 */
  uint32_t repeats;                                  /* the figures are medians of these */
  uint64_t shard_bytes;                              /* of the measured shards */
  double bytes_per_second, default_bytes_per_second; /* of data, with these values and with the backend's own */
  int32_t on_device;                                 /* 1: measured with shards in the memory of the device */
  uint32_t reserved;
} tandem_tuning_entry;

/* Reads a tuning file.
 *   file          NULL = the file that a context would read. A file that does not exist has no entries
 *   entries_out   `capacity` structs, stride_bytes apart; NULL with capacity 0 only counts
 *   stride_bytes  sizeof(tandem_tuning_entry)
 *   count_out     how many there are. If that is more than capacity, the first `capacity` were written
 * Strings are zero-terminated, and cut if too long.
 * Status: INVALID_ARGUMENT, IO, DAMAGED (not a tuning file, or cut; the message has the line), UNSUPPORTED (another
 *   version), OUT_OF_MEMORY. */
TANDEM_API tandem_status tandem_tuning_read(const char *file, tandem_tuning_entry *entries_out, size_t capacity,
                                            size_t stride_bytes, size_t *count_out);

/* Merges tuning files, such as those of several machines, and the content of `output` into `output`. If two entries
 * have the same device, driver, kernels, operation, k, m and kind of memory, the newer one stays.
 *   files            file_count paths, all of which must exist
 *   output           NULL = the file that a context would read; replaced as a whole, untouched on failure
 *   entry_count_out  NULL, or how many entries it has now
 * Status: as tandem_tuning_read; IO also for a file that does not exist. */
TANDEM_API tandem_status tandem_tuning_merge(const char *const *files, size_t file_count, const char *output,
                                             size_t *entry_count_out);

/* Tells the path of the tuning file that a context with this tuning_file would read, zero-terminated; "" if none.
 * Status: INVALID_ARGUMENT (NULL path_out, or capacity_bytes too small). */
TANDEM_API tandem_status tandem_tuning_path(const char *tuning_file, char *path_out, size_t capacity_bytes);

#ifdef __cplusplus
}
#endif
#endif
