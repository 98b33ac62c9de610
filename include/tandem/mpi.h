/* SPDX-License-Identifier: Apache-2.0 */
/* mpi.h - shard sets and checkpoints across the ranks of an MPI program.
 *
 *     MPI_Init(&argc, &argv);
 *     tandem_mpi_protect_options options = {.struct_bytes = sizeof options, .k = 6, .m = 2};
 *     options.name = "step-100";
 *     options.files = &my_checkpoint;                    // node-local files of this rank, in /dev/shm say
 *     options.file_count = 1;
 *     options.folder = "/dev/shm/parity";
 *     tandem_mpi_protect(MPI_Comm_c2f(MPI_COMM_WORLD), context, &options, NULL);
 *
 *     (a node is lost; in a new job:)
 *     tandem_mpi_recover_options back = {.struct_bytes = sizeof back, .name = "step-100"};
 *     back.folder = "/dev/shm/parity";
 *     tandem_mpi_recover(MPI_Comm_c2f(MPI_COMM_WORLD), context, &back, NULL);
 *
 * The library is libtandem_mpi (tandem::mpi, tandem-mpi.pc). These rules hold for every function:
 *
 *   communicator   The integer that MPI_Comm_c2f returns; Fortran and mpi4py (py2f) have it too. This header needs no
 *                  mpi.h. Each call works on a duplicate of the communicator.
 *   collective     Every rank of the communicator makes the same calls in the same order. Arguments are the same on
 *                  all ranks, unless a comment says "of this rank". Different arguments are refused on all ranks.
 *   errors         All ranks return the same status and message, "rank 3: ...": that of the lowest rank that failed.
 *                  MPI_Abort is never called. If MPI itself fails, ranks may differ.
 *   threads        Only the calling thread calls MPI: MPI_THREAD_FUNNELED is enough. MPI_THREAD_SINGLE works if MPI
 *                  tolerates other threads that never call it. The context's threads compute in the meantime.
 *   progress       options->progress and note are called on every rank that sets them. If one rank's progress
 *                  callback cancels, the call ends on all ranks.
 */
#ifndef TANDEM_MPI_H
#define TANDEM_MPI_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/files.h"
#include "tandem/tandem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- agreement ----------------------------------------------------------------------------------- */

/* Agrees on a status. For programs that prepare something before a collective call.
 *   communicator   from MPI_Comm_c2f
 *   status         of this rank; unless it is TANDEM_OK, tandem_last_error_message() has the reason
 * Status: TANDEM_OK if every rank passes TANDEM_OK. Otherwise the status and message of the lowest rank that does not;
 *   INVALID_ARGUMENT, IO (MPI failed).
 * Threads: one at a time. */
TANDEM_API tandem_status tandem_mpi_agree(int32_t communicator, tandem_status status);

/* Tells how many threads this rank should use, so that the ranks of a node share its cores. A core that several ranks
 * may use (affinity) counts as a fraction for each of them.
 *   thread_count_out   at least 1; may differ between ranks
 * Status: INVALID_ARGUMENT, IO (MPI failed).
 * On failure *thread_count_out is not written.
 * Threads: one at a time. */
TANDEM_API tandem_status tandem_mpi_thread_count(int32_t communicator, uint32_t *thread_count_out);

/* ---- shard sets ---------------------------------------------------------------------------------- */

/* Runs tandem_files_encode on all ranks. The files are the same, byte for byte, for every number of ranks. Each rank
 * reads stripes of its own, encodes them and writes them to all shard files. Rank 0 leads. If a process dies, whichever
 * rank it is, the guarantees of files.h hold.
 *   context      of this rank
 *   options      as tandem_files_encode, without a team. source_path must name a regular file. thread_count is of this
 *                rank. All ranks must see source and folders. set_id NULL: rank 0 draws a random one
 *   result_out   NULL, or as tandem_files_encode; bytes, coding_seconds and thread_count are sums over the ranks
 * Memory: as tandem_files_encode, plus the hashes of the data blocks in 64 MiB of shard files.
 * Status: as tandem_files_encode; INVALID_ARGUMENT (no source_path; different arguments), IO (also: a folder or the
 *   source that a rank does not see).
 * On failure the new files are removed.
 * Threads: one call at a time with a communicator. */
TANDEM_API tandem_status tandem_mpi_encode(int32_t communicator, tandem_context *context,
                                           const tandem_files_encode_options *options, tandem_files_result *result_out);

/* Runs tandem_files_decode on all ranks. Each rank checks and rebuilds stripes of its own and writes them to the
 * output. The output gets its name when it is complete and the digest is right.
 *   context      of this rank
 *   paths        path_count files or folders, as tandem_files_search_create; all ranks must see them
 *   options      as tandem_files_decode, without a team and salvage. output_path must be given, and name a regular
 *                file or nothing. thread_count is of this rank
 *   result_out   NULL, or as tandem_files_decode; sums as in tandem_mpi_encode. shards_read is the maximum over ranks
 * Memory: as tandem_mpi_encode.
 * Status: as tandem_files_decode; INVALID_ARGUMENT (a stream; different arguments), IO (also: ranks that see different
 *   sets).
 * On failure the new files are removed.
 * Threads: one call at a time with a communicator. */
TANDEM_API tandem_status tandem_mpi_decode(int32_t communicator, tandem_context *context, const char *const *paths,
                                           size_t path_count, const tandem_files_decode_options *options,
                                           tandem_files_result *result_out);

/* Runs tandem_files_verify on all ranks. Each rank reads stripes of its own from all shard files.
 *   context      of this rank
 *   paths        path_count files or folders, as tandem_files_search_create; all ranks must see them
 *   options      as tandem_files_verify, without a team. thread_count, report and progress are of this rank. Rank 0
 *                receives reports, each rank the progress of its part
 *   result_out   NULL, or as tandem_files_verify: totals over all ranks, the same on all
 * Memory: as tandem_files_verify, plus the hashes of the data blocks in 64 MiB of shard files.
 * Status: as tandem_files_verify; INVALID_ARGUMENT (a team; different arguments), IO (also: ranks that see different
 *   shard files).
 * On failure *result_out is not written.
 * Threads: one call at a time with a communicator. */
TANDEM_API tandem_status tandem_mpi_verify(int32_t communicator, tandem_context *context, const char *const *paths,
                                           size_t path_count, const tandem_files_verify_options *options,
                                           tandem_files_verify_result *result_out);

/* Runs tandem_files_repair on all ranks. Each rank computes and writes stripes of its own. Rank 0 makes and names the
 * rebuilt files. If a process dies, whichever rank it is, the guarantees of files.h hold.
 *   context      of this rank
 *   paths        as tandem_mpi_verify
 *   options      as tandem_files_repair, without a team. thread_count, report, progress and note are of this rank. Rank
 *                0 receives reports and notes, each rank the progress of its part
 *   result_out   NULL, or as tandem_files_repair: totals over all ranks, the same on all
 * Memory: as tandem_mpi_verify.
 * Status: as tandem_files_repair; INVALID_ARGUMENT (a team; different arguments), IO (also: ranks that see different
 *   shard files).
 * On failure, as with tandem_files_repair, mended parts stay mended and temporaries are removed.
 * Threads: one call at a time with a communicator. */
TANDEM_API tandem_status tandem_mpi_repair(int32_t communicator, tandem_context *context, const char *const *paths,
                                           size_t path_count, const tandem_files_repair_options *options,
                                           tandem_files_repair_result *result_out);

/* ---- what ranks hold ----------------------------------------------------------------------------- */

typedef struct tandem_mpi_protect_options {
  size_t struct_bytes;      /* sizeof(tandem_mpi_protect_options) */
  uint32_t k, m;            /* a group has k + m ranks, each with data and parity; any m may be lost. k + 2m <= 256 */
  int32_t matrix;           /* enum tandem_matrix_value, over GF(2^8), not TANDEM_MATRIX_CUSTOM */
  int32_t no_sync;          /* non-zero: the operating system decides when bytes reach the disk */
  const char *const *files; /* of this rank: regular files, protected as one sequence of bytes. May be none */
  size_t file_count;
  const char *folder;   /* of this rank: for its parity, made if missing; as safe as the files */
  const char *name;     /* of the protected data, 1 to 128 bytes without '/'. Older parity of this name is replaced */
  uint32_t piece_bytes; /* of one message: a multiple of 64 up to 64 MiB; 0 = 1 MiB */
  uint32_t reserved;    /* 0 */
} tandem_mpi_protect_options;

typedef struct tandem_mpi_protect_result {
  size_t struct_bytes; /* set by the caller: sizeof(tandem_mpi_protect_result) */
  uint8_t set_id[16];
  uint64_t sequence; /* 1, 2, ... of this name */
  uint32_t group_count;
  uint32_t most_on_a_node; /* the largest number of ranks of one group on one node; they are lost with it */
  uint32_t group, member;  /* of this rank */
  uint64_t segment_bytes;  /* of this rank's group: largest data of a rank / k, rounded up */
  uint64_t data_bytes;     /* of this rank */
  uint64_t sent_bytes;     /* by this rank, of data and parity: (k + m - 1) * segment_bytes */
  uint64_t written_bytes;  /* by this rank */
} tandem_mpi_protect_result;

/* Protects the files of all ranks. Any m ranks of a group may be lost later, with their files and parity.
 *   context      of this rank
 *   options      see above; the size of the communicator is a multiple of k + m
 *   result_out   NULL, or see above
 *
 * Ranks of a group lie on different nodes if there are enough nodes. Each rank's data are cut into k segments. Parity
 * rotates over the group: each rank holds m segments of parity, m/k of the data. docs/internals/MPI.md has the layout.
 *
 * The files must not change during the call, nor later while they may have to be recovered. So write each checkpoint to
 * new files. A file that changes during the call is refused if its change time shows it. Writes to a memory map of a
 * file on tmpfs may not update that time.
 *
 * Buffers in memory are protected if they are memory maps of files in /dev/shm. Write out device buffers first. Unless
 * no_sync is set, files and parity are on the disk before the older parity is removed.
 *
 * Memory: (4k + 4m - 2) * piece_bytes.
 * Status: INVALID_ARGUMENT (also: a communicator smaller than k + m or no multiple of it; m = 0; a file that is
 *   listed twice or by two ranks of a node; different arguments), UNSUPPORTED (matrix over GF(2^16); parity of a newer
 *   version), NOT_MDS, TOO_LARGE, OUT_OF_MEMORY, IO (also: a file that changed), DEVICE.
 * On failure the older parity is unchanged. If a rank dies, the older or the new parity is complete.
 * Threads: one call at a time with a communicator; one job at a time with a name and folder. */
TANDEM_API tandem_status tandem_mpi_protect(int32_t communicator, tandem_context *context,
                                            const tandem_mpi_protect_options *options,
                                            tandem_mpi_protect_result *result_out);

/* Receives each restored file, on the rank that wrote it. rank: its rank in the job that protected it. */
typedef void (*tandem_mpi_restored)(void *user, uint32_t rank, const char *path);

typedef struct tandem_mpi_recover_options {
  size_t struct_bytes;          /* sizeof(tandem_mpi_recover_options) */
  const char *folder;           /* of this rank, as with protect; made if missing */
  const char *name;             /* as with protect */
  int32_t force;                /* non-zero: replace files that differ from the protected ones */
  int32_t no_sync;              /* as with protect */
  uint32_t piece_bytes;         /* as with protect */
  uint32_t reserved;            /* 0 */
  tandem_mpi_restored restored; /* NULL = none */
  void *restored_user;
} tandem_mpi_recover_options;

typedef struct tandem_mpi_recover_result {
  size_t struct_bytes; /* set by the caller: sizeof(tandem_mpi_recover_result) */
  uint8_t set_id[16];
  uint64_t sequence;
  uint32_t k, m;
  uint32_t group_count;
  uint32_t lost_count;        /* ranks with rebuilt files, of all groups */
  uint32_t lost_parity_count; /* ranks with rebuilt parity */
  uint32_t reserved;
  uint64_t read_bytes, sent_bytes, written_bytes; /* by this rank */
} tandem_mpi_recover_result;

/* Rebuilds files and parity of lost ranks in a new job. The new job may have fewer or more ranks, and run on other
 * nodes. Files return to their paths, on the rank of the same number. Another rank takes over if the job has fewer
 * ranks, or if that rank sees what is left of them. Every file is compared with its checksum before anything is
 * written. A file that is intact stays, even if others of its rank are lost. Of several generations the newest one
 * that can be recovered is used.
 *   context      of this rank
 *   options      see above; name, force, no_sync and piece_bytes are the same on all ranks
 *   result_out   NULL, or see above
 * Memory: 2 * (k + m) * piece_bytes for each group in which this rank stands for a rank of the old job.
 * Status: INVALID_ARGUMENT, NOT_RECOVERABLE (no parity of this name, or more than m ranks of a group are lost; the
 *   message says which), OUT_OF_MEMORY, IO (also: an existing file differs from the protected one, without force),
 *   DEVICE, DAMAGED (a rebuilt file has another checksum than before), UNSUPPORTED (parity of a newer version).
 * On failure, each file is either unchanged or fully restored.
 * Threads: as tandem_mpi_protect. */
TANDEM_API tandem_status tandem_mpi_recover(int32_t communicator, tandem_context *context,
                                            const tandem_mpi_recover_options *options,
                                            tandem_mpi_recover_result *result_out);

#ifdef __cplusplus
}
#endif
#endif
