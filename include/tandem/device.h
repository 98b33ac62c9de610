/* device.h - many stripes in the memory of a device, coded by one launch.
 *
 * A launch of a kernel costs some microseconds, however little it does. A program with thousands of small stripes in
 * the memory of a GPU hands them over together:
 *
 *     tandem_job *job;
 *     tandem_encode_batch(context, codec, stripes, stripe_count, sizeof stripes[0], stream, &job);
 *     ...                              // work put into the stream now comes after the stripes
 *     tandem_job_wait(job);            // or synchronise the stream
 *     tandem_job_destroy(job);
 *
 * A stripe by itself, a verify and an update go through a plan (tandem.h). A program that uses no driver itself gets
 * memory of the device from tandem_device_memory_create. What tandem.h says of errors, threads and
 * forks holds here too. How it works, and a whole example: docs/CUDA.md.
 */
#ifndef TANDEM_DEVICE_H
#define TANDEM_DEVICE_H

#include "tandem/tandem.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tandem_device_stripe {
  void *const *shards;     /* k+m shards, data first, as in tandem_plan_arguments: device pointers of CUDA, or cl_mem
                              handles cast to pointers. NULL where tandem_encode and tandem_decode allow it: a parity
                              that is not wanted, a missing shard that is not to be rebuilt */
  const uint64_t *offsets; /* k+m byte offsets of the shards in their buffers; NULL = all 0 */
  const uint8_t *present;  /* decode: k+m bytes, non-zero = present. encode: NULL */
  size_t shard_bytes;      /* of this stripe, >= 1; stripes may differ */
  int32_t memory;          /* TANDEM_MEMORY_CUDA or TANDEM_MEMORY_OPENCL, the same of all stripes */
  tandem_status status;    /* decode: why a call was refused, see there */
} tandem_device_stripe;

/* Encodes, or decodes, stripes in the memory of a device, in the order of a queue. Returns when the work is in it.
 *   context        of that device, or a hybrid with it
 *   stripes        stripe_count structs, at most 2^24, stride_bytes apart (sizeof(tandem_device_stripe), or more
 *                  inside a struct of yours; a multiple of the struct's alignment). 0 stripes: nothing is to be done
 *   queue          CUDA: a stream of the primary context of the context's GPU; NULL is the legacy default stream.
 *                  OpenCL: a cl_command_queue; if it is out of order put a barrier before and after
 *   job_out        the work, for tandem_job_wait and tandem_job_destroy; untouched on failure. A cancel is too late
 * CUDA: one launch for all stripes of one matrix that are aligned (shards begin at multiples of 16), and one for the
 *   others of that matrix. The stripes of an encode have one matrix if they want the same parities; those of a
 *   decode have one for each pattern of erasures. Stripes of different lengths go together. The driver is asked
 *   once for each allocation. A few words for each stripe are copied to the device, and counted as
 *   "cuda_mib".
 *   The call can be captured into a CUDA graph, the first one too: the graph has one kernel for each launch. The job
 *   is over at once then, but keeps what the kernels read: destroy it after the last launch of the graph is over.
 *   Which kernel runs follows the bytes: technique tables until a compile pays and is done (docs/CUDA.md). A graph
 *   keeps the kernel that it was captured with; a context with kernel "compiled" waits for the compiled one.
 * OpenCL: one launch for all stripes of one matrix whose shards that are read lie in one buffer, and those written in
 *   one (it may be the same). Aligned stripes (offsets that are multiples of 64) and others go apart. A stripe with
 *   more buffers has a launch of its own.
 * Alignment: none is needed; see above what is fastest. Overlap: checked within a stripe. Shards of different stripes
 *   must not overlap (only shards that are read may be shared): that is not checked.
 * Ownership: the arrays are the caller's again when the call returns. The shards belong to the job until it was waited
 *   for, or the queue is done.
 * On failure nothing is in the queue, unless the status is DEVICE, or OUT_OF_MEMORY with OpenCL. The message names the
 *   stripe at fault; UNAVAILABLE and OUT_OF_MEMORY name none. A decode then has the status of each stripe in `status`:
 *   TANDEM_OK where nothing is wrong with its shape (a shard's address at fault is in the message alone), CANCELLED
 *   where the call did not look at it. A stripe that has nothing to rebuild is left alone.
 * Status: INVALID_ARGUMENT (NULL; a stride smaller than the struct; shard_bytes 0; a memory kind that is of no device
 *   or differs between stripes; a shard that is no memory of this device: of the host, freed, of another GPU; a
 *   buffer too small for its shard; a queue of another device), TOO_LARGE (more than 2^24 stripes; sizes that
 *   overflow), OVERLAP, NOT_RECOVERABLE, UNSUPPORTED (a memory kind that no backend of the context reaches; a code
 *   over GF(2^16)), UNAVAILABLE (no kernel for this matrix on this device), OUT_OF_MEMORY, DEVICE (also of the wait;
 *   outputs are undefined then).
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
  void *queue;         /* a stream or queue of its own */
  uint64_t bytes;
  int32_t memory; /* TANDEM_MEMORY_CUDA or TANDEM_MEMORY_OPENCL */
  uint32_t reserved;
} tandem_device_memory_info;

/* Allocates memory of the device that a context runs on, with a queue. What it holds at first is undefined.
 *   context      of one device: not of the CPU, not a hybrid
 *   bytes        >= 1, at most what a buffer of the device has; counts as "cuda_mib" or "opencl_mib" until destroyed
 *   memory_out   for tandem_device_memory_destroy; untouched on failure
 * Ownership: the caller's. Destroy it before the context, and after the jobs that use it are over. A child after fork
 *   has no use for it.
 * Status: INVALID_ARGUMENT (NULL, 0 bytes), UNSUPPORTED (the context is of no single device), OUT_OF_MEMORY,
 * UNAVAILABLE, DEVICE. On failure nothing is allocated. Threads: any. */
TANDEM_API tandem_status tandem_device_memory_create(tandem_context *context, uint64_t bytes,
                                                     tandem_device_memory **memory_out);
TANDEM_API void tandem_device_memory_destroy(tandem_device_memory *memory); /* NULL is allowed */

/* What to hand over for shards in it.
 *   info_out   struct_bytes set by the caller; the rest is written on TANDEM_OK
 * Ownership: the pointers live as long as the memory.
 * Status: INVALID_ARGUMENT.
 * On failure nothing is written.
 * Threads: any. */
TANDEM_API tandem_status tandem_device_memory_query(const tandem_device_memory *memory,
                                                    tandem_device_memory_info *info_out);

/* Copies bytes to, or from, the memory. Waits for what was put into its queue before, and until the copy is done.
 *   offset_bytes   in the memory; the range lies in it
 *   from, to       bytes of the host
 * Ownership: the caller's.
 * Status: INVALID_ARGUMENT (NULL, a range that is not all in the memory), OUT_OF_MEMORY, DEVICE.
 * On failure what the range held, or `to`, is undefined.
 * Threads: one at a time for one memory. */
TANDEM_API tandem_status tandem_device_memory_write(tandem_device_memory *memory, uint64_t offset_bytes,
                                                    const void *from, uint64_t bytes);
TANDEM_API tandem_status tandem_device_memory_read(tandem_device_memory *memory, uint64_t offset_bytes, void *to,
                                                   uint64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
