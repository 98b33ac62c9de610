/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - shards in the memory of a device, many stripes in one launch, and host memory that devices read in place.
 *
 * A launch of a kernel takes some microseconds, however small its work is. So a program with thousands of small
 * stripes in the memory of a GPU hands them over together:
 *
 *     tandem_job *job;
 *     tandem_code_batch(context, codec, TANDEM_OPERATION_ENCODE, stripes, count, sizeof stripes[0], stream, &job);
 *     ...                              // work put into the stream now comes after the stripes
 *     tandem_job_wait(job);            // or synchronise the stream
 *     tandem_job_destroy(job);
 *
 * A single stripe, a verify and an update need a plan (tandem.h) for device memory. A program that uses no driver
 * itself gets device memory from tandem_device_memory_create. The rules of tandem.h about errors, threads and
 * forks hold here too. docs/gpus.md explains how batches work, and has a whole example.
 */
#ifndef TANDEM_DEVICE_H
#define TANDEM_DEVICE_H

#include "tandem/tandem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- plans -------------------------------------------------------------------------------------------- */

/* Plans for device memory (`memory` of tandem_plan_options), and the arguments of their runs: queue, offsets and
 * new_data_offset of tandem_plan_arguments. docs/gpus.md has the details.
 *
 * TANDEM_MEMORY_CUDA: shards and new_data are device pointers (CUdeviceptr, managed memory too) of the context's GPU.
 * queue is a stream of its primary context (a cudaStream_t), and the work runs in its order. NULL is the legacy default
 * stream, as everywhere in CUDA. Offsets are added to the pointers. Shards that all begin at multiples of 16 are
 * fastest.
 *
 * A submit starts the kernel, and neither compiles, allocates nor waits. There are four exceptions. The first submit
 * with more jobs in flight than before allocates; a plan keeps what eight jobs need. A verify of longer shards than
 * before allocates too. The first submit with each kernel of a plan allocates what the check needs (see below). If the
 * device has too little memory for the records of a verify (a few bytes for every few thousand of a shard), the verify
 * runs in pieces. Its submit then waits for all pieces but the last.
 *
 * A submit can be captured into a CUDA graph, even the first one. Its job is over at once, and the graph must not
 * outlive plan and context. The graph keeps the kernel that it was captured with. If the plan's kernel is still being
 * compiled, that is the slower one of technique tables; wait_for_kernel avoids this. A verify cannot be captured
 * (UNSUPPORTED). If a verify is waited for while its queue is captured, it names no suspect.
 *
 * The first job with each kernel of a plan is checked: the first 64 KiB of its inputs and outputs together are copied
 * to the host, in the order of the queue, and tandem_job_wait compares them with the CPU. A verify is also tried on
 * shards of the library that do not match. If the device computed wrongly, the wait returns DEVICE, and the context
 * does not use this device any more. Captured work is not checked, and work that reads the outputs before the wait may
 * read wrong ones. So submit and wait once before the capture: with the same kernel, later work needs no check.
 *
 * TANDEM_MEMORY_OPENCL: shards and new_data are cl_mem handles cast to pointers: buffers of the queue's context. One
 * buffer may hold several shards at different offsets. Fastest: one buffer holds all shards that are read, one (the
 * same or another) all that are written, and all offsets are multiples of 64. queue is a cl_command_queue of the
 * context's device. The work runs after earlier commands in it. Put a barrier before and after the work if the queue is
 * out of order. The queue's cl_context is retained until the tandem_context is destroyed, because programs were
 * compiled for it. At most four are retained.
 *
 * Status of a run, besides those of tandem_plan_run: INVALID_ARGUMENT (no queue with OpenCL, or one of another device;
 *   a buffer of another context or device, or too small for its shard). Overlap is found at every size. After DEVICE
 *   the outputs are undefined. */

/* ---- many stripes ------------------------------------------------------------------------------------- */

/* Encodes or decodes stripes in device memory, in the order of a queue. Returns when the work is in the queue.
 *   context        of that device, or a hybrid with it
 *   operation      TANDEM_OPERATION_ENCODE or TANDEM_OPERATION_DECODE
 *   stripes        stripe_count structs, at most 2^24, stride_bytes apart (sizeof(tandem_stripe), or more inside a
 *                  struct of yours; a multiple of the struct's alignment). `memory` is CUDA or OPENCL, the same for all
 *                  stripes. Shards are device pointers of CUDA, or cl_mem handles cast to pointers. 0 stripes: the call
 *                  does nothing
 *   queue          CUDA: a stream of the primary context of the context's GPU; NULL is the legacy default stream.
 *                  OpenCL: a cl_command_queue; put a barrier before and after the work if it is out of order
 *   job_out        the work, for tandem_job_wait and tandem_job_destroy; untouched on failure. tandem_job_cancel has no
 *                  effect
 *
 * The stripes of an encode have one matrix if they want the same parity shards. Those of a decode have one matrix for
 * each pattern of erasures. Stripes of different lengths go together.
 *
 * CUDA: one launch takes all aligned stripes of one matrix (shards begin at multiples of 16), a second one the others.
 *   The driver is asked once for each allocation. A few words for each stripe are copied to the device; they count as
 *   "cuda_mib". A CUDA graph can capture the call, even the first one: it has one kernel for each launch. The job is
 *   then over at once, but keeps what the kernels read. Destroy it after the last launch of the graph is over.
 *   Runs use technique tables until a compile pays for itself and is done (docs/gpus.md). A graph keeps the kernel
 *   that it was captured with. A context with "device_technique=compiled" in `expert` waits for the compiled kernel.
 *   The first stripe of the first launch with each kernel is checked, as with plans. A captured one is not.
 * OpenCL: one launch takes all stripes of one matrix with one buffer for the shards that are read, and one (the same or
 *   another) for those that are written. Aligned stripes (offsets are multiples of 64) and others have separate
 *   launches. A stripe with more buffers has a launch of its own.
 *
 * Alignment: none is needed; aligned stripes are fastest.
 * Overlap: checked within a stripe, at every size. Shards of different stripes must not overlap, except shards that are
 *   only read. This is not checked.
 * Ownership: the arrays are the caller's again when the call returns. The shards belong to the job until it was waited
 *   for, or the queue is done.
 * Status: INVALID_ARGUMENT (NULL; a stride smaller than the struct; shard_bytes 0; a memory kind that no device has,
 *   or that differs between stripes; a shard outside the memory of this device: of the host, freed, of another GPU; a
 *   buffer too small for its shard; a queue of another device), TOO_LARGE (more than 2^24 stripes; sizes that
 *   overflow), OVERLAP, NOT_RECOVERABLE, UNSUPPORTED (a memory kind that no backend of the context reaches; a code
 *   over GF(2^16)), UNAVAILABLE (no kernel for this matrix on this device), OUT_OF_MEMORY, DEVICE (the wait may return
 *   it too; outputs are then undefined).
 * On failure nothing is in the queue, unless the status is DEVICE, or OUT_OF_MEMORY with OpenCL. The message names the
 *   stripe at fault; with UNAVAILABLE and OUT_OF_MEMORY it names none. A decode stores a status in each stripe:
 *   TANDEM_OK if its shape is valid (only the message tells of a bad address), CANCELLED if the call did not check it.
 *   A stripe with nothing to rebuild is skipped.
 * Threads: any. */
TANDEM_API tandem_status tandem_code_batch(tandem_context *context, const tandem_codec *codec, int32_t operation,
                                           tandem_stripe *stripes, size_t stripe_count, size_t stride_bytes,
                                           void *queue, tandem_job **job_out);

/* ---- memory of a device, for programs that use no driver themselves ---- */

/* Made by the library, which may add fields at the end. Its pointers are valid until it is destroyed. */
typedef struct tandem_device_memory {
  void *shards; /* CUDA: the device pointer of its first byte. OpenCL: its cl_mem. A shard in it is this pointer and an
                   offset (`offsets` of a stripe or of tandem_plan_arguments) */
  void *queue;  /* a stream or queue that belongs to this memory */
  uint64_t bytes;
  int32_t memory; /* TANDEM_MEMORY_CUDA or TANDEM_MEMORY_OPENCL */
} tandem_device_memory;

/* Allocates memory on the device of a context, with a queue. Its content is undefined at first.
 *   context      of one device: not of the CPU, not a hybrid
 *   bytes        >= 1, up to the largest buffer of the device; counts as "cuda_mib" or "opencl_mib" until destroyed
 *   memory_out   for tandem_device_memory_destroy; untouched on failure
 * Ownership: the caller's. Destroy it before the context, and after the jobs that use it are over. A child after fork
 *   cannot use it.
 * Status: INVALID_ARGUMENT (NULL, 0 bytes), UNSUPPORTED (the context is not of a single device), OUT_OF_MEMORY,
 *   UNAVAILABLE, DEVICE.
 * On failure nothing is allocated.
 * Threads: any. */
TANDEM_API tandem_status tandem_device_memory_create(tandem_context *context, uint64_t bytes,
                                                     const tandem_device_memory **memory_out);
TANDEM_API void tandem_device_memory_destroy(const tandem_device_memory *memory); /* NULL is allowed */

/* Copies bytes to or from the memory. Waits for earlier work in its queue, and until the copy is done.
 *   offset_bytes   in the memory; the whole range must lie inside
 *   from, to       bytes of the host
 * Ownership: the caller's.
 * Status: INVALID_ARGUMENT (NULL, a range not entirely inside the memory), OUT_OF_MEMORY, DEVICE.
 * On failure the range, or `to`, has undefined bytes.
 * Threads: one at a time for one memory. */
TANDEM_API tandem_status tandem_device_memory_write(const tandem_device_memory *memory, uint64_t offset_bytes,
                                                    const void *from, uint64_t bytes);
TANDEM_API tandem_status tandem_device_memory_read(const tandem_device_memory *memory, uint64_t offset_bytes, void *to,
                                                   uint64_t bytes);

/* ---- host memory that devices use in place ------------------------------------------------------------ */

/* Registers host memory for devices. Devices use registered shards without a copy on the host. The first run that uses
 * the memory on a CUDA device pins it, for all CUDA devices at once. That run is slower. Registration changes no speed
 * on the CPU and on OpenCL devices, so a program may register its memory on every machine. Some memory cannot be pinned
 * (mapped read-only, a page that others have registered). It is copied as before, and log_callback receives the reason.
 *   memory       its first byte, at any alignment. It should share no page with other registered memory
 *   bytes        its length, >= 1. A shard profits if it lies entirely inside
 * Ownership: the caller's. Unregister it before it is freed or unmapped. The registration belongs to the process, so
 *   contexts made before and after use it. A child after fork has no registrations. While any memory is registered, a
 *   call on host memory takes a lock for a moment.
 * Status: INVALID_ARGUMENT (NULL, 0 bytes, exactly this memory is registered already), TOO_LARGE (the end does not fit
 *   the address space), OVERLAP (a part of it is registered: the message has both ranges), OUT_OF_MEMORY.
 * On failure nothing is registered.
 * Threads: any. A run that began earlier may not use the registration.
 *     tandem_memory_register(shards, bytes);  // once, for buffers that many calls use
 *     tandem_encode(context, codec, data, parity, shard_bytes);
 *     tandem_memory_unregister(shards); */
TANDEM_API tandem_status tandem_memory_register(void *memory, size_t bytes);

/* Ends a registration. Memory that drivers pinned is released before this returns.
 *   memory       its first byte, as given to tandem_memory_register
 * Status: INVALID_ARGUMENT (NULL; no registered memory begins there; runs or jobs still use it, and the message has
 *   their number; a child process of the one that registered it).
 * On failure the registration stays.
 * Threads: any. */
TANDEM_API tandem_status tandem_memory_unregister(void *memory);

#ifdef __cplusplus
}
#endif
#endif
