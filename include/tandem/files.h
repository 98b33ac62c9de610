/* SPDX-License-Identifier: Apache-2.0 */
/* files.h - shard sets on disk: one file in, k+m self-describing shard files out, any k of them back.
 *
 *     tandem_files_encode_options options = {.struct_bytes = sizeof options, .k = 10, .m = 4};
 *     const char *folder = "shards";
 *     options.source_path = "video.mp4";
 *     options.folders = &folder;
 *     options.folder_count = 1;
 *     tandem_files_encode(context, &options, NULL);                      // shards/video.mp4.000.tandem ...
 *
 *     tandem_files_search *search;
 *     tandem_files_search_create(&folder, 1, &search);                   // which sets lie there?
 *     tandem_files_decode_options back = {.struct_bytes = sizeof back, .output_path = "copy.mp4"};
 *     tandem_files_decode(context, search, &back, NULL);
 *     tandem_files_search_destroy(search);
 *
 * docs/format.md has the format byte for byte. These rules hold for every function:
 *
 *   memory     Below 256 MiB plus 64 MiB for each thread, for any size of the file and any claim of a header. Each
 *              thread holds a stripe, (k+m) * block_bytes.
 *   open files Encode and writers have all shard files open at once, and each folder. Repair opens the
 *              files that it mends or rebuilds. If the process may not open so many, the call fails before it writes
 *              anything, with both numbers in the message. Reading works with fewer open files. The library does not
 *              change the limit (RLIMIT_NOFILE); the command raises its own.
 *   promise    What could be restored before a call can be restored after it, unless `force` allowed the loss or the
 *              status is not TANDEM_OK. A file that cannot be read is neither missing nor damaged: nothing is written
 *              in its place.
 *   outputs    A call writes temporaries beside the final names, syncs them, and renames them when all are complete. A
 *              call that fails removes its temporaries, and a folder that it made. Only `force` replaces an existing
 *              file. One exception: repair replaces the damaged files of its set. A name from a header is plain, and
 *              stays in the folder of its file. If a process dies at any moment, either the old set or the new
 *              set is left, complete.
 *              tandem_files_recover, and every later encode, cleans up. With `no_sync` this does not hold if the
 *              machine dies.
 *   errors     TANDEM_ERROR_IO: the operating system refused; path and errno are in the message.
 *              TANDEM_ERROR_CANCELLED: the progress callback cancelled the call. Results are written on TANDEM_OK only.
 *   threads    Each call starts its own threads, at most the context's caller_count (or its option thread_count). They
 *              end before the call returns, and they block all signals. Callbacks run on the calling thread unless
 *              their comment says otherwise.
 *   structs    struct_bytes as in tandem.h; zero means default.
 */
#ifndef TANDEM_FILES_H
#define TANDEM_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/tandem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The largest number of shards, k + m, of a set on disk. Calls that begin a larger set fail before they write anything.
 * More than 256 shards need a matrix over GF(2^16). */
#define TANDEM_FILES_MAX_SHARDS 4096

/* ---- progress ------------------------------------------------------------------------------------ */

#define TANDEM_FILES_UNKNOWN_BYTES UINT64_MAX

/* Receives the progress of a call, about ten times a second, on the calling thread.
 *   done_bytes    of the content (verify: of the shard files)
 *   total_bytes   the same; TANDEM_FILES_UNKNOWN_BYTES for a stream that has not ended
 * A call of encode or decode with done_bytes equal to total_bytes comes before the call waits for the disk.
 * Returns 0 to continue. Any other value cancels the call, even while it waits for a pipe. */
typedef int32_t (*tandem_files_progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);

/* Receives a sentence for the user that is neither a result nor an error. */
typedef void (*tandem_files_note)(void *user, const char *note);

/* ---- several processes --------------------------------------------------------------------------- */

/* Receives the bytes of one process: byte_count bytes, valid during the call. */
typedef void (*tandem_files_take)(void *taker, uint32_t process, const void *bytes, size_t byte_count);

/* Processes that encode, decode, verify, repair or write a set together. Each makes the same call with the same options
 * (callbacks and thread_count are its own), sees the same files, and takes stripes of its own. The processes meet in
 * the functions below. Every process calls them in the same order, on the thread of the call. Each function returns
 * TANDEM_OK, or sets tandem_last_error_message() as tandem_set_last_error does. When the call ends, all processes have
 * met equally often, unless a function failed. */
typedef struct tandem_files_team {
  size_t struct_bytes;    /* sizeof(tandem_files_team) */
  uint32_t process;       /* index of this one. Process 0 names files, and receives reports and notes */
  uint32_t process_count; /* at least 1 */
  /* Every process gets the status and message of the first process with another status than TANDEM_OK. */
  tandem_status (*agree)(void *user, tandem_status status);
  /* Process 0 calls `take` with the bytes of each process, in the order of processes. */
  tandem_status (*gather)(void *user, const void *bytes, size_t byte_count, tandem_files_take take, void *taker);
  /* Copies the bytes of process 0 to `bytes` of every process. */
  tandem_status (*broadcast)(void *user, void *bytes, size_t byte_count);
  void *user;
} tandem_files_team;

/* ---- encode -------------------------------------------------------------------------------------- */

typedef struct tandem_files_encode_options {
  size_t struct_bytes;       /* sizeof(tandem_files_encode_options) */
  const char *source_path;   /* a regular file; or NULL: source_descriptor is read to its end */
  int32_t source_descriptor; /* a file, pipe or socket; stays open */
  uint32_t k, m;             /* as tandem_codec_options */
  int32_t matrix;            /* enum tandem_matrix_value, not TANDEM_MATRIX_CUSTOM */
  int32_t allow_non_mds;     /* as tandem_codec_options */
  uint32_t block_bytes;      /* of a block in a shard file, with 16 bytes of checksum: a multiple of 64, 64 to 16 MiB,
                                (k+m) * block_bytes <= 256 MiB; 0 = chosen so that a stripe fits the cache */
  const char *const
      *folders;          /* shard i goes to folders[i % folder_count]; they are made if missing, with those above */
  size_t folder_count;   /* 1 .. k+m */
  const char *name;      /* shard files are called "<name>.<index, three digits or more>.tandem", 255 bytes at most; no
                            '/'. NULL = the last component of source_path, or "stdin" */
  int32_t force;         /* non-zero: replace existing files of these names, and the sets of this name that lie in
                            these folders: none is found again where the rest of it comes back later */
  int32_t no_sync;       /* non-zero: the operating system decides when bytes reach the disk */
  uint32_t thread_count; /* 0 = the context's caller_count */
  int32_t dry_run;       /* non-zero: checks names, folders, unfinished sets, space and geometry; writes nothing */
  tandem_files_progress progress; /* NULL = none */
  void *progress_user;
  uint32_t lock_wait_seconds; /* how long to wait for folders that another process has locked (flock), for all folders
                                 together. Used at the start and again at the end; 0 = 60 */
  uint32_t reserved;          /* 0 */
  tandem_files_note note;     /* tells what was cleaned up or given up; NULL = none */
  void *note_user;
  const uint8_t *set_id;         /* 16 bytes that no other set has; NULL = random */
  uint32_t mode;                 /* permission bits of the set, 0777 at most; 0 = those of source_path, or unknown */
  uint32_t reserved2;            /* 0 */
  const tandem_files_team *team; /* NULL = this process alone */
} tandem_files_encode_options;

typedef struct tandem_files_result {
  size_t struct_bytes; /* set by the caller: sizeof(tandem_files_result) */
  uint8_t set_id[16];
  uint8_t digest[16]; /* of the content, as k and block_bytes cut it into blocks: docs/format.md, section 4 */
  uint32_t k, m;
  int32_t matrix;
  uint32_t block_bytes;
  uint64_t content_bytes;
  uint64_t stripe_count;
  uint64_t read_bytes;          /* from all inputs */
  uint64_t written_bytes;       /* to all outputs */
  uint64_t bad_block_count;     /* decode: blocks that were read and found damaged */
  uint64_t rebuilt_block_count; /* decode: data blocks computed from the others */
  uint32_t shards_read;         /* decode: shard files that were read */
  uint32_t thread_count;
  double seconds;        /* the whole call */
  double coding_seconds; /* inside tandem_encode or tandem_decode, summed over the threads */
  int32_t any_k_suffice; /* as in tandem_files_set */
  uint32_t reserved;     /* 0 */
  uint64_t hole_bytes;   /* decode with salvage: bytes of the content that are lost; 0 = the file is whole */
} tandem_files_result;

/* Splits a file, or the bytes of a pipe, into k+m shard files.
 *   result_out   NULL, or a struct with struct_bytes set; written on TANDEM_OK
 * A source file that changes during the call is refused with TANDEM_ERROR_IO. Its length and its times of writing and
 * change must stay the same, for a path and for a descriptor. The set and its shard files get the permission bits
 * (mode & 0777) of source_path, and no other attribute.
 * A team reads a regular file that all processes see. Process 0 makes the files, and commits when all have synced
 * theirs. It draws the set's id, and receives notes. The files are the same for every number of processes. Progress
 * and counts are of this process's part.
 * Status: INVALID_ARGUMENT, UNSUPPORTED (custom matrix), NOT_MDS, TOO_LARGE, OUT_OF_MEMORY, IO, CANCELLED, DEVICE. */
TANDEM_API tandem_status tandem_files_encode(tandem_context *context, const tandem_files_encode_options *options,
                                             tandem_files_result *result_out);

/* ---- search -------------------------------------------------------------------------------------- */

typedef struct tandem_files_search tandem_files_search;

/* Looks at files, and at the regular files directly inside folders, and sorts shard files into sets. Reads the first
 * and last 4 KiB of each file, keeps no file or folder open and changes nothing. Other files are listed as ignored, or
 * as unread.
 * A file that lost both its records is recognised by its length and a block's checksum.
 *   paths        path_count files or folders
 *   search_out   the search, for tandem_files_search_destroy. It never changes, and threads may share it
 * Status: INVALID_ARGUMENT, OUT_OF_MEMORY, IO (a path that does not exist or cannot be listed). */
TANDEM_API tandem_status tandem_files_search_create(const char *const *paths, size_t path_count,
                                                    tandem_files_search **search_out);
TANDEM_API void tandem_files_search_destroy(tandem_files_search *search);

typedef struct tandem_files_set {
  size_t struct_bytes; /* set by the caller: sizeof(tandem_files_set) */
  uint8_t set_id[16];
  uint8_t digest[16];
  uint32_t k, m;
  int32_t matrix;
  uint32_t block_bytes;
  uint64_t content_bytes;
  uint64_t stripe_count;
  uint64_t shard_file_bytes; /* length of each intact shard file */
  uint32_t mode;             /* permission bits of the source, or UINT32_MAX: unknown (a pipe) */
  uint32_t shard_count;      /* different shards found, at most k+m */
  size_t file_count;         /* shard files found, several copies of one shard included */
  int32_t any_k_suffice;     /* non-zero: any k shards are enough. 0: the matrix is not MDS, and some k are not */
  int32_t shards_suffice;    /* non-zero: the shards found are enough, by rank, if their blocks are intact */
  uint8_t replaced_by[16];   /* id of a set that replaced this one, and that enough shards of were found; 0 = none */
  const char *name;          /* most of its files are called so; lives as long as the search or writer. "" = none */
} tandem_files_set;

/* What both ends of a shard file show; bits. */
enum tandem_files_condition_value {
  TANDEM_FILES_START_DAMAGED = 1,
  TANDEM_FILES_END_DAMAGED = 2, /* truncated, extended or overwritten */
  TANDEM_FILES_WRONG_LENGTH = 4,
  TANDEM_FILES_MISSING = 8, /* reports: there is no file */
  TANDEM_FILES_OTHER_M = 16 /* its records have another m than the set: a resize is not finished */
};

typedef struct tandem_files_shard {
  size_t struct_bytes; /* set by the caller: sizeof(tandem_files_shard) */
  const char *path;    /* valid until the search is destroyed */
  uint32_t index;      /* 0 .. k-1 data, k .. k+m-1 parity */
  uint32_t condition;  /* bits of enum tandem_files_condition_value; 0 = both ends are intact */
  uint64_t file_bytes;
} tandem_files_shard;

/* Tells what was found. Sets are ordered by shard_count, largest first; files of a set by index.
 * Status: INVALID_ARGUMENT (NULL; an index that does not exist). */
TANDEM_API size_t tandem_files_search_set_count(const tandem_files_search *search);
TANDEM_API tandem_status tandem_files_search_set(const tandem_files_search *search, size_t set_index,
                                                 tandem_files_set *set_out);
TANDEM_API tandem_status tandem_files_search_shard(const tandem_files_search *search, size_t set_index,
                                                   size_t file_index, tandem_files_shard *shard_out);

/* Why a file is in no set. */
enum tandem_files_left_out_value {
  TANDEM_FILES_IGNORED = 0, /* "PATH: why" */
  TANDEM_FILES_UNREAD = 1   /* "cannot open PATH: why". It may be a shard file, so sets may have more shards than were
                               found, and there may be more sets */
};

/* The sentence for file `index` of those that are in no set for this reason; NULL behind the last one. It is valid
 * until the search is destroyed. */
TANDEM_API const char *tandem_files_search_left_out(const tandem_files_search *search, int32_t reason, size_t index);

/* Checks that the files of a search are still there, and are the same files. If another process has replaced the set or
 * a shard, they are not. A call that failed with TANDEM_ERROR_IO may then succeed with a new search.
 * Status: INVALID_ARGUMENT, IO (a file is gone or another one; the message names it).
 * Threads: any. */
TANDEM_API tandem_status tandem_files_search_check(const tandem_files_search *search);

/* Chooses a set.
 *   set_id_prefix   the first hexadecimal digits of its id, at least one. NULL: the only set that no other one has
 *                   replaced (one of the same name when they were encoded), or the only one of these with k shards
 *   name            what most files of the set are called: the NAME of NAME.003.tandem. NULL: any
 *   set_index_out   its index in the search
 * Status: INVALID_ARGUMENT (none or several match: the message lists them), IO (there is no shard file, or a file could
 *   not be read), UNSUPPORTED (all shard files have another format version), NOT_RECOVERABLE (the only one was replaced
 *   by a set with too few shards; with its id it is chosen). */
TANDEM_API tandem_status tandem_files_search_choose(const tandem_files_search *search, const char *set_id_prefix,
                                                    const char *name, size_t *set_index_out);

/* ---- decode -------------------------------------------------------------------------------------- */

/* Called for each hole: byte_count bytes of the content, from first_byte on, that could not be recovered. */
typedef void (*tandem_files_hole)(void *user, uint64_t first_byte, uint64_t byte_count);

typedef struct tandem_files_decode_options {
  size_t struct_bytes;       /* sizeof(tandem_files_decode_options) */
  const char *set_id_prefix; /* as tandem_files_search_choose */
  const char *output_path;   /* written as a temporary and renamed; a device or named pipe is written in place. NULL:
                                output_descriptor */
  int32_t output_descriptor; /* written in order, from its position; stays open */
  int32_t force, no_sync;    /* as encode */
  uint32_t thread_count;     /* 0 = the context's caller_count */
  tandem_files_progress progress;
  void *progress_user;
  int32_t dry_run;            /* non-zero: decodes and compares the digest, writes nothing */
  uint32_t lock_wait_seconds; /* as encode, for the output's folder */
  int32_t salvage;            /* non-zero: write what can be recovered, with zeros for the rest; see below */
  uint32_t reserved;          /* 0 */
  tandem_files_hole hole;     /* with salvage: called for each hole, in order, on the calling thread, before the call
                                 returns; NULL = none */
  void *hole_user;
  const tandem_files_team *team; /* NULL = this process alone */
} tandem_files_decode_options;

/* Restores the file. Reads the available data shards, and as many parity shards as data shards are missing. A block
 * with a wrong checksum counts as missing in its stripe; other shard files are then read there. The digest of the whole
 * content is checked before the output gets its name. A stream is already written by then. Blocks of zeros become holes
 * of a new regular file.
 *
 * With `salvage`, missing shards and blocks are no error. A stripe with enough intact blocks is decoded. In other
 * stripes, intact data blocks are copied and all other data blocks become zeros. The same holds for a stripe that
 * a non-MDS matrix cannot decode completely. The result has the number of lost bytes (hole_bytes), and `hole`
 * receives their places. Beyond 2^20 holes, neighbouring holes are reported as one, with the intact bytes between them.
 *
 * Without a hole, the call does the same as without `salvage`. With a hole, the output is named "<output_path>.partial"
 * and the digest is not checked, so such a file never replaces a complete one. `force` then replaces an older file of
 * that name. output_path must be given, and must name a regular file or no file: a stream cannot tell where its holes
 * are. If nothing can be recovered, the call fails and writes nothing.
 *
 * A team writes a regular file that all processes see, without `salvage`. Process 0 makes it, and names it when all
 * have synced their part. Progress and result are as with tandem_files_encode.
 *
 * Status: INVALID_ARGUMENT, OUT_OF_MEMORY, CANCELLED, DEVICE, UNSUPPORTED (shard files of another format version),
 *   NOT_RECOVERABLE (says where and how many blocks are missing), DAMAGED (the digest does not match), IO (also if the
 *   missing part may lie in a file that could not be read, or that was replaced since the search).
 * An output that is one of the set's own shard files is INVALID_ARGUMENT, also with `force`. */
TANDEM_API tandem_status tandem_files_decode(tandem_context *context, const tandem_files_search *search,
                                             const tandem_files_decode_options *options,
                                             tandem_files_result *result_out);

/* ---- set writer ---------------------------------------------------------------------------------- */

/* Writes a set stripe by stripe, from memory. A stripe has k * (block_bytes - 16) bytes of content; the last one has
 * the rest. The files are the same, byte for byte, as those of tandem_files_encode with
 * the same content and options. An older set is untouched until the commit. With a team each process has a writer, and
 * writes stripes of its own. */
typedef struct tandem_files_writer tandem_files_writer;

/* Begins a set.
 *   options         as for tandem_files_encode, without source and dry_run, and with a name. progress counts the
 *                   bytes of one call. What a team points to must stay until the writer is destroyed
 *   content_bytes   of the whole set
 *   set_out         NULL, or what the set will be, with struct_bytes set by the caller. Its digest, shard_count and
 *                   file_count are 0
 *   writer_out      the writer, for tandem_files_writer_destroy. The context must outlive it
 * Ownership: strings and arrays of the options are copied. Callbacks and their users must stay until the writer is
 *   destroyed.
 * Status: INVALID_ARGUMENT (also: another code, block_bytes, mode or length than process 0 of the team), UNSUPPORTED
 *   (custom matrix), NOT_MDS,
 *   OUT_OF_MEMORY, CANCELLED, IO.
 * On failure *writer_out is not written, and what was made is removed.
 * Threads: any. A child after fork must not use a writer of its parent, nor destroy it. */
TANDEM_API tandem_status tandem_files_writer_begin(tandem_context *context, const tandem_files_encode_options *options,
                                                   uint64_t content_bytes, tandem_files_set *set_out,
                                                   tandem_files_writer **writer_out);

/* Codes and writes stripes first_stripe .. first_stripe + stripe_count - 1. A process of a team calls it alone.
 *   content   their content, exactly content_bytes bytes, at any alignment. Read until the call returns
 * Memory: 16 bytes for each data block until all stripes before it are known; in a process that does not lead, until
 *   the commit.
 * Status: INVALID_ARGUMENT (stripes that are not of the set, that were written before, or another length of content;
 *   the message has the numbers), OUT_OF_MEMORY, IO, CANCELLED, DEVICE.
 * On failure the stripes count as not written and can be written again; others are as before.
 * Threads: several may write with one writer at once. */
TANDEM_API tandem_status tandem_files_writer_write(tandem_files_writer *writer, uint64_t first_stripe,
                                                   uint64_t stripe_count, const void *content, size_t content_bytes);

/* Completes the files; the set is valid from then on. Nothing can be written afterwards. All processes of a team call
 * it together.
 *   result_out   NULL, or a struct with struct_bytes set. read_bytes and written_bytes are this process's own
 * Status: INVALID_ARGUMENT (stripes are missing: the message says how many and the first; or two processes wrote one),
 *   OUT_OF_MEMORY, IO, CANCELLED.
 * On failure *result_out is not written. After INVALID_ARGUMENT for missing stripes the writer can continue; after any
 *   other failure it can only be destroyed.
 * Threads: no other call with this writer at the same time. */
TANDEM_API tandem_status tandem_files_writer_commit(tandem_files_writer *writer, tandem_files_result *result_out);

/* Destroys a writer. NULL is allowed. One that has not committed removes the files, records and folders that it made.
 * Threads: no other call with this writer at the same time or later. */
TANDEM_API void tandem_files_writer_destroy(tandem_files_writer *writer);

/* ---- range reader -------------------------------------------------------------------------------- */

/* Reads any bytes of a set's content. */
typedef struct tandem_files_reader tandem_files_reader;

/* Chooses a set. Opens no file yet; files stay open from the first read on.
 *   set_id_prefix   as tandem_files_search_choose
 *   reader_out      the reader, for tandem_files_reader_destroy. The context must outlive it, the search need not
 * Status: INVALID_ARGUMENT, IO (there is no shard file), UNSUPPORTED, OUT_OF_MEMORY.
 * On failure *reader_out is not written.
 * Threads: any. */
TANDEM_API tandem_status tandem_files_reader_create(tandem_context *context, const tandem_files_search *search,
                                                    const char *set_id_prefix, tandem_files_reader **reader_out);

/* Reads content_bytes bytes of the content, starting at `offset`. Every block is checked by its checksum. Damaged and
 * missing blocks are computed if their bytes are asked for. The digest of the whole content is not checked.
 *   content_out   content_bytes bytes, at any alignment
 * Status: INVALID_ARGUMENT (a part of the range is outside the content; the message has the numbers),
 *   NOT_RECOVERABLE (says which stripe), OUT_OF_MEMORY, IO, DEVICE.
 * On failure content_out is undefined.
 * Threads: several may read with one reader at once. A call for more than one stripe starts threads. */
TANDEM_API tandem_status tandem_files_reader_read(tandem_files_reader *reader, uint64_t offset, void *content_out,
                                                  size_t content_bytes);

/* Closes the files and destroys the reader. NULL is allowed.
 * Threads: no other call with this reader at the same time or later. */
TANDEM_API void tandem_files_reader_destroy(tandem_files_reader *reader);

/* ---- verify -------------------------------------------------------------------------------------- */

typedef struct tandem_files_range {
  uint64_t first, count;
} tandem_files_range;

/* What repair did to a shard file, or would do. */
enum tandem_files_action_value {
  TANDEM_FILES_NOTHING = 0,
  TANDEM_FILES_MEND = 1,    /* bad blocks and records rewritten in place */
  TANDEM_FILES_REBUILD = 2, /* written again as a temporary, then renamed */
  TANDEM_FILES_GIVE_UP = 3, /* no part of it can be recovered */
  TANDEM_FILES_REMOVE = 4   /* resize: the shard is dropped */
};

typedef struct tandem_files_finding { /* one shard file, or one shard that has none */
  size_t struct_bytes;                /* sizeof(tandem_files_finding) of the library */
  const char *path;                   /* of the file. Of a missing shard: where repair puts it; "" in verify */
  uint32_t index;
  uint32_t condition;                   /* bits of enum tandem_files_condition_value */
  uint64_t file_bytes;                  /* its length; tandem_files_set has the right one */
  uint64_t bad_block_count;             /* checksum wrong, or outside the file */
  uint64_t lost_block_count;            /* of these, in stripes that cannot be recovered */
  const tandem_files_range *bad_ranges; /* in order. More than 65536 ranges (with more than 16 files: 2^20 / files) are
                                           reported as one range that covers them all */
  size_t bad_range_count;
  int32_t action;          /* repair: enum tandem_files_action_value. verify: 0 */
  uint32_t reserved;       /* 0 */
  uint64_t left_bad_count; /* repair: blocks that are bad afterwards */
} tandem_files_finding;

/* Receives each shard of the set by index, missing ones included, when the call knows everything about it. Runs on the
 * calling thread, before the call returns. The strings and arrays of `finding` are valid during the call. */
typedef void (*tandem_files_report)(void *user, const tandem_files_finding *finding);

typedef struct tandem_files_verify_options {
  size_t struct_bytes;        /* sizeof(tandem_files_verify_options) */
  const char *set_id_prefix;  /* as tandem_files_search_choose */
  uint32_t thread_count;      /* 0 = the context's */
  uint32_t reserved;          /* 0 */
  tandem_files_report report; /* NULL = none */
  void *report_user;
  tandem_files_progress progress; /* with a team: of this process's part */
  void *progress_user;
  const tandem_files_team *team;  /* NULL = this process alone */
  uint64_t rate_bytes_per_second; /* of the files, read by this process; 0 = no limit */
  tandem_files_note note;         /* names each crowded folder; NULL = none */
  void *note_user;
} tandem_files_verify_options;

enum tandem_files_state_value { TANDEM_FILES_INTACT = 0, TANDEM_FILES_RECOVERABLE = 1, TANDEM_FILES_LOST = 2 };

typedef struct tandem_files_verify_result {
  size_t struct_bytes;          /* set by the caller: sizeof(tandem_files_verify_result) */
  int32_t state;                /* enum tandem_files_state_value */
  uint32_t missing_shard_count; /* shards without any file */
  uint32_t damaged_file_count;  /* files with a bad block or a damaged end */
  uint32_t worst_bad_count;     /* bad or missing blocks in the worst stripe; more than m is a loss, unless some of
                                   them are padding */
  uint64_t bad_block_count;     /* in the files that exist */
  uint64_t lost_stripe_count;   /* stripes that cannot be recovered */
  uint64_t read_bytes;
  double seconds;
  uint32_t crowded_folder_count; /* each of them loses the set if it is lost, though the set was made to survive that */
  uint32_t reserved;             /* 0 */
} tandem_files_verify_result;

/* Reads every shard file of a set once and checks every block. Damage is a result, not an error. If every data block is
 * intact, the digest is compared too. A team divides the reading, and every process gets the same result.
 *
 * A folder is crowded if its loss alone loses the set, although the set would survive that if its shards were spread
 * evenly over the folders that encode used. `note` gets a sentence for each. A set that was made in one folder, or with
 * more than m shards in each, has none: encode's note says so.
 * Status: INVALID_ARGUMENT, UNSUPPORTED (shard files of another format version), DAMAGED (the blocks are intact, but
 *   their digest is not the set's: no decode can succeed), OUT_OF_MEMORY, CANCELLED, IO (also: there is no shard file;
 *   a file of the set could not be read, or was replaced since the search; or a shard is missing that may lie in
 *   another file that could not be read). */
TANDEM_API tandem_status tandem_files_verify(tandem_context *context, const tandem_files_search *search,
                                             const tandem_files_verify_options *options,
                                             tandem_files_verify_result *result_out);

/* ---- repair -------------------------------------------------------------------------------------- */

typedef struct tandem_files_repair_options {
  size_t struct_bytes;        /* sizeof(tandem_files_repair_options) */
  const char *set_id_prefix;  /* as tandem_files_search_choose */
  const char *const *folders; /* missing shard i goes to folders[i % folder_count], which is made if missing. NULL: it
                                 goes to its former folder, as far as the others tell (see below) */
  size_t folder_count;
  int32_t force;              /* non-zero: the file of a missing shard may replace a file outside the set, but none
                                 of another set that the search shows to be recoverable */
  int32_t no_sync;            /* as encode */
  int32_t dry_run;            /* non-zero: finds out and reports everything, writes nothing */
  uint32_t thread_count;      /* 0 = the context's */
  tandem_files_report report; /* NULL = none */
  void *report_user;
  tandem_files_progress progress; /* of the content; starts again when damage is known, and when it is read back */
  void *progress_user;
  uint32_t lock_wait_seconds; /* as encode, for the folders of all files that are rebuilt */
  uint32_t reserved;          /* 0 */
  tandem_files_note note;     /* NULL = none. Tells if the layout of the encode cannot be restored, which shards move,
                                 which folders are crowded afterwards, and why nothing is written to a set that too
                                 few shards agree on */
  void *note_user;
  const tandem_files_team *team;  /* NULL = this process alone */
  const char *const *new_folders; /* folders that may stand for lost ones, the first ones first. NULL: those of the
                                     search. Not together with `folders` */
  size_t new_folder_count;
} tandem_files_repair_options;

typedef struct tandem_files_repair_result {
  size_t struct_bytes;        /* set by the caller: sizeof(tandem_files_repair_result) */
  int32_t state;              /* of the set afterwards (dry_run: as it is), enum tandem_files_state_value */
  uint32_t mended_file_count; /* dry_run: files that would be mended; so for the counts below */
  uint32_t rebuilt_file_count;
  uint64_t mended_block_count; /* rewritten in place */
  uint64_t left_block_count;   /* bad blocks that remain in files of the set */
  uint64_t lost_stripe_count;  /* stripes that cannot be recovered */
  uint32_t left_shard_count;   /* shards that still have no file */
  uint32_t removed_file_count; /* tandem_files_resize; else 0 */
  uint64_t read_bytes, written_bytes;
  double seconds;
  uint32_t crowded_folder_count; /* as in tandem_files_verify_result, afterwards */
  uint32_t moved_file_count;     /* shards that went to an empty folder, and left a folder with too many */
} tandem_files_repair_result;

/* Repairs a set. Nothing is written if a file of the set cannot be read, or if a shard is missing that may lie in a
 * file that could not be read: the call fails with IO. Bad blocks and damaged records are rewritten in place. A shard
 * file is written again if it is missing, has a wrong length or cannot be written to: as a temporary that is then
 * renamed. Everything written is read back and compared with its checksums. It is read from the disk; with no_sync it
 * may come from memory. The digest of the content is not compared: tandem_files_verify does that.
 *
 * Stripes with too few good blocks stay as they are, also in a rebuilt file. Everything else is mended. Nothing is
 * written if fewer than k shards have a file of at least half the length that the headers claim. A rebuilt file gets
 * mode and owner of the file that it replaces; a missing shard's file gets those of the first file of the set.
 *
 * A kill at any moment loses nothing: good blocks are never overwritten, and a rebuilt file is renamed when it is
 * complete. It replaces only the file that was searched. If another file has that name by then, that file stays, and
 * the call fails with IO.
 *
 * A missing shard's file is named like the others ("NAME.003.tandem"). It is named by the set id if the others have no
 * common name, or if another file has the name. With `force` it replaces that file, unless another set of the search
 * can be recovered and has it. It goes to the folder where encode put it: headers have encode's number of folders, and
 * shard i lies in folder i % that number. The other files of that folder show where it is. If there are none, the shard
 * goes to a folder of the search without files of the set (a new disk). If no such folder is left, it goes to the
 * folder with the fewest shards, and a note says so. Such shards move on later: from a folder that holds more than
 * encode put there to one of the search, or of new_folders, that holds none; of a crowded set, or with `folders`, to
 * one that holds fewer. The old file goes when the new one is on the disk.
 *
 * With a team every process gets the same result. Each process computes and writes stripes of its own. Process 0 makes
 * and names the files and mends their records. A process that dies does no more damage than a kill.
 *
 * Status: INVALID_ARGUMENT, OUT_OF_MEMORY, CANCELLED (mended parts stay mended), DEVICE, IO (there is no shard file; a
 *   part could not be written or read any more, or read back wrong, and the rest was mended; or the process may not
 * open more files). An unrecoverable stripe is a result, not an error: `state` is TANDEM_FILES_LOST. */
TANDEM_API tandem_status tandem_files_repair(tandem_context *context, const tandem_files_search *search,
                                             const tandem_files_repair_options *options,
                                             tandem_files_repair_result *result_out);

/* ---- resize -------------------------------------------------------------------------------------- */

/* Changes the number of parity shards of a set in place. Existing blocks of data and parity stay as they are: k shards
 * are read once, the new shards are computed from them and written, and then the records at both ends of every file
 * are rewritten, one file after the other. With a smaller m, all blocks of the files that stay are checked, the records
 * are rewritten, and the files of the other shards are removed. No row of the matrix may depend on m (docs/matrices.md
 * names such matrices).
 *   m            0 .. TANDEM_FILES_MAX_SHARDS - k, in the range of the matrix. That of the set finishes a resize
 *   options      as for tandem_files_repair, without a team. New shards get their places as missing ones do, and
 *                `folders` is for them; without new shards, folders and force are refused. `note` also tells which
 *                dropped shards were not found. `report` receives every shard of the new set, then the removed ones
 *   result_out   as for tandem_files_repair. Files with new records count as mended, those of new shards as rebuilt.
 *                With a larger m, left_block_count counts the bad blocks that were met; their stripes were decoded.
 *                state is INTACT if no damage was met: with a larger m, only k shards are read
 *
 * A kill or a loss of power at any moment leaves a set that survives as many losses as with the smaller m. Files with
 * another m than the set's are reported with TANDEM_FILES_OTHER_M. A second call finishes it; a call with the former m
 * takes it back; tandem_files_repair leaves m alone. With no_sync this does not hold for a loss of power.
 *
 * Nothing is changed if a folder of the set stays locked, if a file cannot be written to, or if files have changed
 * since the search. dry_run reads no block unless m is smaller.
 *
 * Status: INVALID_ARGUMENT, UNSUPPORTED (rows that depend on m), NOT_MDS (unless the set is not MDS already),
 *   DAMAGED (a shard is missing or has a wrong length, or m is smaller and blocks are damaged: repair the set first),
 *   NOT_RECOVERABLE (also: a stripe has too few intact blocks), OUT_OF_MEMORY, CANCELLED, DEVICE, IO.
 * Threads: two calls for one set exclude each other; the later one fails with IO, because the files have changed. */
TANDEM_API tandem_status tandem_files_resize(tandem_context *context, const tandem_files_search *search, uint32_t m,
                                             const tandem_files_repair_options *options,
                                             tandem_files_repair_result *result_out);

/* ---- recover ------------------------------------------------------------------------------------- */

typedef struct tandem_files_recover_options {
  size_t struct_bytes;        /* sizeof(tandem_files_recover_options) */
  int32_t dry_run;            /* non-zero: finds out, changes nothing */
  uint32_t lock_wait_seconds; /* how long to wait for folders that another process has locked (flock). Then nothing is
                                 cleaned up there and a note says so; 0 = 2 */
  tandem_files_note note;     /* NULL = none */
  void *note_user;
} tandem_files_recover_options;

typedef struct tandem_files_recover_result {
  size_t struct_bytes;         /* set by the caller: sizeof(tandem_files_recover_result) */
  uint32_t finished_set_count; /* complete: their files have their names now */
  uint32_t removed_set_count;  /* not complete: their temporaries are gone */
  uint32_t removed_file_count; /* other temporaries */
  uint32_t left_count;         /* being written, not writable, or undecided: unchanged */
} tandem_files_recover_result;

/* Cleans up after runs that were killed or lost their power, in these folders and in the folders of these files. The
 * files of a complete set get their names, and replace what they were to replace. An incomplete set is removed. Files
 * that another process is writing stay. Name folders that one encode wrote to in one call. A folder that this process
 * may not write to is no error. Only folders with such remains are kept open and locked. encode does this by itself,
 * and so does decode in the folder of its output. A search takes an unfinished set once one of its shards has a name,
 * and lists the files of others as ignored.
 *   options      NULL = defaults
 *   result_out   NULL, or a struct with struct_bytes set
 * Status: INVALID_ARGUMENT, OUT_OF_MEMORY, IO (a path that does not exist or cannot be listed). */
TANDEM_API tandem_status tandem_files_recover(const char *const *paths, size_t path_count,
                                              const tandem_files_recover_options *options,
                                              tandem_files_recover_result *result_out);

#ifdef __cplusplus
}
#endif
#endif
