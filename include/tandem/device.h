/* device.h - many stripes in the memory of a device, coded by one launch.
 *
 * A launch of a kernel takes some microseconds, however small its work is. So a program with thousands of small
 * stripes in the memory of a GPU hands them over together:
 *
 *     tandem_job *job;
 *     tandem_encode_batch(context, codec, stripes, stripe_count, sizeof stripes[0], stream, &job);
 *     ...                              // work put into the stream now comes after the stripes
 *     tandem_job_wait(job);            // or synchronise the stream
 *     tandem_job_destroy(job);
 *
 * A single stripe, a verify and an update need a plan (tandem.h). A program that uses no driver itself gets device
 * memory from tandem_device_memory_create. The rules of tandem.h about errors, threads and forks hold here too.
 * docs/CUDA.md explains how batches work, and has a whole example.
 */
#ifndef TANDEM_DEVICE_H
#define TANDEM_DEVICE_H

#include "tandem/tandem.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tandem_device_stripe {
  void *const *shards;     /* k+m shards, data first, as in tandem_plan_arguments: device pointers of CUDA, or cl_mem
                              handles cast to pointers. NULL as in tandem_encode and tandem_decode: a parity shard that
                              is not wanted, a missing shard that is not rebuilt */
  const uint64_t *offsets; /* k+m byte offsets of the shards in their buffers; NULL = all 0 */
  const uint8_t *present;  /* decode: k+m bytes, non-zero = present. encode: NULL */
  size_t shard_bytes;      /* of this stripe, >= 1; stripes may differ */
  int32_t memory;          /* TANDEM_MEMORY_CUDA or TANDEM_MEMORY_OPENCL; the same for all stripes */
  tandem_status status;    /* decode: why the call was refused, see there */
} tandem_device_stripe;

/* Encodes or decodes stripes in device memory, in the order of a queue. Returns when the work is in the queue.
 *   context        of that device, or a hybrid with it
 *   stripes        stripe_count structs, at most 2^24, stride_bytes apart (sizeof(tandem_device_stripe), or more
 *                  inside a struct of yours; a multiple of the struct's alignment). 0 stripes: the call does nothing
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
 *   Runs use technique tables until a compile pays for itself and is done (docs/CUDA.md). A graph keeps the kernel
 *   that it was captured with. A context with kernel "compiled" waits for the compiled kernel.
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
TANDEM_API tandem_status tandem_encode_batch(tandem_context *context, const tandem_codec *codec,
                                             const tandem_device_stripe *stripes, size_t stripe_count,
                                             size_t stride_bytes, void *queue, tandem_job **job_out);
TANDEM_API tandem_status tandem_decode_batch(tandem_context *context, const tandem_codec *codec,
                                             tandem_device_stripe *stripes, size_t stripe_count, size_t stride_bytes,
                                             void *queue, tandem_job **job_out);

/* ---- memory of a device, for programs that use no driver themselves ---- */

typedef struct tandem_device_memory tandem_device_memory;

typedef struct tandem_device_memory_info {
  size_t struct_bytes; /* set by the caller: sizeof(tandem_device_memory_info) */
  void *shards;        /* CUDA: the device pointer of its first byte. OpenCL: its cl_mem. A shard in it is this pointer
                          and an offset (`offsets` of a stripe or of tandem_plan_arguments) */
  void *queue;         /* a stream or queue that belongs to this memory */
  uint64_t bytes;
  int32_t memory; /* TANDEM_MEMORY_CUDA or TANDEM_MEMORY_OPENCL */
  uint32_t reserved;
} tandem_device_memory_info;

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
                                                     tandem_device_memory **memory_out);
TANDEM_API void tandem_device_memory_destroy(tandem_device_memory *memory); /* NULL is allowed */

/* Tells the pointer and queue to use for shards in this memory.
 *   info_out   struct_bytes set by the caller; the rest is written on TANDEM_OK
 * Ownership: the pointers are valid until the memory is destroyed.
 * Status: INVALID_ARGUMENT.
 * On failure nothing is written.
 * Threads: any. */
TANDEM_API tandem_status tandem_device_memory_query(const tandem_device_memory *memory,
                                                    tandem_device_memory_info *info_out);

/* Copies bytes to or from the memory. Waits for earlier work in its queue, and until the copy is done.
 *   offset_bytes   in the memory; the whole range must lie inside
 *   from, to       bytes of the host
 * Ownership: the caller's.
 * Status: INVALID_ARGUMENT (NULL, a range not entirely inside the memory), OUT_OF_MEMORY, DEVICE.
 * On failure the range, or `to`, has undefined bytes.
 * Threads: one at a time for one memory. */
TANDEM_API tandem_status tandem_device_memory_write(tandem_device_memory *memory, uint64_t offset_bytes,
                                                    const void *from, uint64_t bytes);
TANDEM_API tandem_status tandem_device_memory_read(tandem_device_memory *memory, uint64_t offset_bytes, void *to,
                                                   uint64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
