/* volume.h - a striped volume over k+m members: files, block devices or NBD servers.
 *
 *     const char *members[] = {"a", "b", "c", "d", "e", "f"};            // 4 + 2
 *     tandem_volume_create_options create = {.struct_bytes = sizeof create, .members = members, .member_count = 6};
 *     create.k = 4;
 *     create.m = 2;
 *     create.member_bytes = 1 << 30;
 *     tandem_volume_create(&create);
 *
 *     tandem_volume *volume;
 *     tandem_volume_open_options open = {.struct_bytes = sizeof open, .members = members, .member_count = 6};
 *     tandem_volume_open(NULL, &open, &volume);
 *     tandem_volume_write(volume, 0, data, bytes);
 *     tandem_volume_flush(volume);                                       // now any two of the six may be lost
 *     tandem_volume_close(volume);
 *
 * Blocks of TANDEM_VOLUME_BLOCK_BYTES are the smallest part of a stripe that is read, written and checked. A stripe has
 * k data columns and m parity columns. The parity range of a write is the set of block rows that it touches in any
 * column: parity is computed for these rows.
 */
#ifndef TANDEM_VOLUME_H
#define TANDEM_VOLUME_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/tandem.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TANDEM_VOLUME_BLOCK_BYTES 4096

/* How a write brings the parity of a stripe up to date. */
typedef int32_t tandem_volume_way;
#define TANDEM_VOLUME_FULL_STRIPE ((tandem_volume_way)0) /* every column is covered: parity from the new data alone */
#define TANDEM_VOLUME_RECONSTRUCT ((tandem_volume_way)1) /* reads what the write leaves of the parity range */
#define TANDEM_VOLUME_MODIFY ((tandem_volume_way)2)      /* reads old data and old parity, adds the difference */
#define TANDEM_VOLUME_AVOID ((tandem_volume_way)3)       /* as MODIFY, but the old data is known to be zero */
#define TANDEM_VOLUME_DELAY ((tandem_volume_way)4)       /* writes data alone: the parity comes at the end */

/* What one data column has in the parity range of a write. All fields are flags. */
typedef struct tandem_volume_column {
  uint8_t written;       /* the write covers some of the column's blocks */
  uint8_t written_old;   /* some of those hold data from before */
  uint8_t remaining;     /* it leaves some of them as they are */
  uint8_t remaining_old; /* some of those hold data */
} tandem_volume_column;

typedef struct tandem_volume_write_plan {
  tandem_volume_way way;
  uint32_t data_reads, parity_reads, data_writes, parity_writes; /* columns, each one I/O */
} tandem_volume_write_plan;

/* Finds the way of a write to one stripe that takes the fewest reads. Reads no volume: the volume and the simulator of
 * storage systems (tandem simulate storage) both ask it.
 *   k, m      data and parity columns, each >= 1, at most 65,536 together
 *   columns   the k data columns
 *   delayed   non-zero: the stripe is inside a window of delayed parity
 *   reads     k flags, set on success: FULL_STRIPE, AVOID and DELAY read no data; MODIFY reads the written blocks of
 *             the flagged columns, RECONSTRUCT the remaining ones. NULL: not wanted
 *   plan      set on success. Each written column is one write, and each parity column but for DELAY. Parity is read
 *             from all m columns or from none
 * Blocks that hold no data from before are zeros and are not read. To count for a system that does not know them, set
 * both _old flags wherever written and remaining are set. RECONSTRUCT is preferred where both take the same number of
 * reads: its result does not depend on the old parity.
 * Status: INVALID_ARGUMENT (NULL; k or m 0; no column is written; an _old flag without its other one), TOO_LARGE.
 * Threads: any. */
TANDEM_API tandem_status tandem_volume_plan_write(uint32_t k, uint32_t m, const tandem_volume_column *columns,
                                                  int32_t delayed, uint8_t *reads, tandem_volume_write_plan *plan);

/* ---- the volume ---------------------------------------------------------------------------------- */

/* A volume open for use. Any k of its k+m members hold everything, but for windows of delayed parity.
 *
 *   members     A path (regular file or block device), or an NBD URI (nbd://, nbd+unix://, nbds://) where this library
 *               was built with libnbd. To open, their order is of no account: each knows its index. A file or device is
 * locked while it is open: one writer, or any number of readers. NBD members are not locked. lost        A member that
 * is missing, damaged beyond use, or that missed a write is lost; the volume goes on without it and notes it in the
 * others. A lost member that comes back is stale: it is not used until tandem_volume_rebuild. With more than m lost
 * members every call fails. promise     A flushed byte survives the end of the process, of the machine, and the loss of
 * any m members after it. A byte written and not flushed is old or new, for each block of 4096 bytes as a whole.
 *   offsets     Any offset and length in bytes. Whole blocks of TANDEM_VOLUME_BLOCK_BYTES, at multiples of it, save
 *               reads of old data.
 *   threads     Every function but close may be called from any thread at any time. Calls on different stripes run
 *               at the same time, and the members of a stripe work at the same time.
 *   errors      As in tandem.h: tandem_last_error_message() has the sentence. TANDEM_ERROR_NOT_RECOVERABLE names the
 *               range of bytes that is lost, or that is unprotected inside a window; others can still be read.
 */
typedef struct tandem_volume tandem_volume;

/* Hears a sentence that the user should know, and that is neither a result nor an error. From any thread, in
 * the middle of a call: it must not call functions of the volume. */
typedef void (*tandem_volume_note)(void *user, const char *note);

#define TANDEM_VOLUME_MAX_MEMBERS 256
#define TANDEM_VOLUME_MAX_WINDOWS 64
#define TANDEM_VOLUME_ID_BYTES 16

typedef struct tandem_volume_create_options {
  size_t struct_bytes;        /* sizeof(tandem_volume_create_options) */
  const char *const *members; /* k+m members, in the order of their index */
  size_t member_count;
  uint32_t k, m;            /* data and parity members, each >= 1, together at most TANDEM_VOLUME_MAX_MEMBERS */
  int32_t matrix;           /* enum tandem_matrix_value, not TANDEM_MATRIX_CUSTOM */
  int32_t allow_non_mds;    /* as tandem_codec_options */
  uint32_t unit_bytes;      /* of one member in one stripe: a multiple of 4096, at most 16 MiB; 0 = 64 KiB */
  int32_t force;            /* non-zero: members that hold a volume already are overwritten */
  uint64_t member_bytes;    /* regular files are made, or extended, to this size; 0 = they exist and keep their
                               size. Of members of different sizes the smallest counts */
  uint64_t log_bytes;       /* of the log on each member; 0 = as much as fits well, 32 MiB at most unless a stripe needs
                               more */
  const uint8_t *volume_id; /* TANDEM_VOLUME_ID_BYTES bytes; NULL = random */
  uint64_t reserved;        /* 0 */
} tandem_volume_create_options;

/* Makes a volume that holds zeros. Writes the superblocks and the tables of checksums (0.4 % of each member).
 *   options   see above
 * Status: INVALID_ARGUMENT (k, m, unit_bytes, log_bytes or member_count out of range; a member twice, or too small;
 *   one that holds a volume already, without force), UNSUPPORTED (custom matrix; a URI without libnbd), NOT_MDS,
 *   TOO_LARGE, OUT_OF_MEMORY, UNAVAILABLE (a member that is locked by another process), IO.
 * On failure files that were made or extended stay; the content of a member changes only where the status is IO.
 * Threads: any. */
TANDEM_API tandem_status tandem_volume_create(const tandem_volume_create_options *options);

typedef struct tandem_volume_open_options {
  size_t struct_bytes;        /* sizeof(tandem_volume_open_options) */
  const char *const *members; /* in any order; fewer than k+m are enough while k are current */
  size_t member_count;
  int32_t read_only;       /* non-zero: nothing is written, nothing is mended; other readers may have it open too */
  uint32_t thread_count;   /* that work on members; 0 = 2 for each member, 32 at most */
  uint64_t cache_bytes;    /* of memory for clean pages of the tables; 0 = 64 MiB */
  tandem_volume_note note; /* a member was lost, a log replayed; NULL = none */
  void *note_user;
  uint64_t reserved; /* 0 */
} tandem_volume_open_options;

/* Opens a volume, and brings it to its last flush if it was not closed.
 *   context      where parity is computed, and outlives the volume; NULL = on the CPU, by the threads that call
 *   options      see above
 *   volume_out   the volume; tandem_volume_close ends it. Untouched on failure
 * A member that cannot be found, or whose superblocks are both damaged, counts as lost. Open windows of delayed
 * parity stay open: tandem_volume_windows lists them.
 * Status: INVALID_ARGUMENT (NULL; members of two volumes; a member twice; one smaller than its superblock says),
 *   UNSUPPORTED (a superblock of a later version; a URI without libnbd), UNAVAILABLE (locked by another process),
 *   DAMAGED (members that were written apart from each other), NOT_RECOVERABLE (fewer than k current members: the
 *   message lists what is wrong with each), IO (a member that may not be written to), OUT_OF_MEMORY.
 * Threads: any. A child process after fork must not use a volume of its parent. */
TANDEM_API tandem_status tandem_volume_open(tandem_context *context, const tandem_volume_open_options *options,
                                            tandem_volume **volume_out);

/* Flushes, and ends a volume whatever the status. NULL is allowed. No other call may use it any more.
 * Status: as tandem_volume_flush. */
TANDEM_API tandem_status tandem_volume_close(tandem_volume *volume);

typedef struct tandem_volume_info {
  size_t struct_bytes; /* set by the caller: sizeof(tandem_volume_info) */
  uint8_t volume_id[TANDEM_VOLUME_ID_BYTES];
  uint32_t k, m;
  int32_t matrix; /* enum tandem_matrix_value */
  uint32_t unit_bytes;
  uint64_t volume_bytes; /* stripe_count * k * unit_bytes */
  uint64_t stripe_count;
  uint64_t log_bytes;        /* of each member */
  uint64_t epoch;            /* grows with every member that is lost, replaced or rebuilt */
  uint64_t sequence;         /* of the transaction that is being collected */
  uint32_t lost_count;       /* members that are lost or stale */
  uint32_t rebuilding_count; /* members that are current but for blocks still to be rebuilt */
  uint32_t window_count;
  int32_t read_only;
  uint64_t scrub_position_bytes; /* of the volume: where the next scrub goes on; 0 = at the beginning */
} tandem_volume_info;

/* What a volume is. Status: INVALID_ARGUMENT (NULL). Threads: any. */
TANDEM_API tandem_status tandem_volume_query(const tandem_volume *volume, tandem_volume_info *info_out);

enum tandem_volume_member_state {
  TANDEM_VOLUME_MEMBER_CURRENT = 0,
  TANDEM_VOLUME_MEMBER_REBUILDING = 1, /* takes writes; blocks not rebuilt yet are computed from the others */
  TANDEM_VOLUME_MEMBER_LOST = 2,       /* missing, or failed while open */
  TANDEM_VOLUME_MEMBER_STALE = 3       /* there, but it missed writes */
};

typedef struct tandem_volume_member {
  size_t struct_bytes;                        /* set by the caller: sizeof(tandem_volume_member) */
  uint32_t index;                             /* 0 .. k+m-1 */
  int32_t state;                              /* enum tandem_volume_member_state */
  uint64_t size_bytes;                        /* 0: not known */
  uint64_t read_error_count, bad_block_count; /* since open: failed reads; blocks whose checksum was wrong */
  char name[256];                             /* the path or URI, cut to fit; "" = it was not among those given */
  char why[256];                              /* why it is lost or stale; "" = it is not */
} tandem_volume_member;

/* One member. Status: INVALID_ARGUMENT (NULL; index >= k+m). Threads: any. */
TANDEM_API tandem_status tandem_volume_member_query(const tandem_volume *volume, uint32_t index,
                                                    tandem_volume_member *member_out);

/* ---- reading and writing -------------------------------------------------------------------------- */

/* Reads. Blocks that are lost or whose checksum is wrong are computed from the others, and written back unless the
 * volume is read-only. What was never written is zeros.
 *   offset_bytes, bytes   inside the volume; 0 bytes are read without effect
 *   data                  untouched beyond `bytes`; undefined on failure
 * Status: INVALID_ARGUMENT (NULL; not inside the volume), NOT_RECOVERABLE, IO (fewer than k members are left),
 *   OUT_OF_MEMORY. Threads: any. */
TANDEM_API tandem_status tandem_volume_read(tandem_volume *volume, uint64_t offset_bytes, void *data, size_t bytes);

/* Writes. The bytes are on stable storage after the next tandem_volume_flush that returns TANDEM_OK.
 *   offset_bytes, bytes   inside the volume; 0 bytes are written without effect
 *   data                  must not change until the call returns
 * Status: as tandem_volume_read (old data may have to be read); UNAVAILABLE (read-only).
 * On failure each block of the range is old or new.
 * Threads: any; where calls overlap each block has the bytes of one of them. */
TANDEM_API tandem_status tandem_volume_write(tandem_volume *volume, uint64_t offset_bytes, const void *data,
                                             size_t bytes);

/* Makes everything that was written before it was called safe. Without writes since the last flush it costs nothing.
 * Status: IO (fewer than k members are left; nothing since the last flush is promised), OUT_OF_MEMORY.
 * Threads: any. */
TANDEM_API tandem_status tandem_volume_flush(tandem_volume *volume);

/* Says that the bytes are not needed: whole blocks in the range become never written, and read as zeros after that.
 * Parts of blocks at the ends stay as they are. Status, threads: as tandem_volume_write. */
TANDEM_API tandem_status tandem_volume_trim(tandem_volume *volume, uint64_t offset_bytes, uint64_t bytes);

/* Makes the range zeros: as tandem_volume_trim for whole blocks, and writes zeros to parts of blocks at the ends.
 * Status, threads: as tandem_volume_write. */
TANDEM_API tandem_status tandem_volume_zero(tandem_volume *volume, uint64_t offset_bytes, uint64_t bytes);

typedef struct tandem_volume_extent {
  uint64_t begin_bytes, end_bytes;
  uint32_t written;  /* 0: never written, reads as zeros; 1: holds data, or it is not known */
  uint32_t reserved; /* 0 */
} tandem_volume_extent;

/* Which parts of a range were written, in order and without gaps. Neighbours differ.
 *   extents_out   room for `capacity` >= 1 extents; the last one ends before the range does if there are more
 *   count_out     how many were written
 * Reads tables, and no data.
 * Status: INVALID_ARGUMENT (NULL, capacity 0, bytes 0, not inside the volume), IO, OUT_OF_MEMORY.
 * Threads: any. */
TANDEM_API tandem_status tandem_volume_extents(tandem_volume *volume, uint64_t offset_bytes, uint64_t bytes,
                                               tandem_volume_extent *extents_out, size_t capacity, size_t *count_out);

/* ---- delayed parity ------------------------------------------------------------------------------- */

typedef struct tandem_volume_window {
  uint64_t begin_bytes, end_bytes; /* multiples of k * unit_bytes */
} tandem_volume_window;

/* Opens a window: until its end, writes inside it write data alone, and a member that is lost meanwhile takes its
 * part of the window with it. Reads and writes of that part fail (NOT_RECOVERABLE, "unprotected"). All other
 * stripes keep their parity. What was written before is flushed first.
 *   offset_bytes, bytes   rounded inward to full stripes
 *   window_out            the range that is open; it is noted on stable storage when the call returns
 * Status: INVALID_ARGUMENT (NULL; not inside the volume; no full stripe in the range; overlaps an open window),
 *   UNAVAILABLE (read-only; a member is lost or being rebuilt; TANDEM_VOLUME_MAX_WINDOWS are open), IO.
 * Threads: any. */
TANDEM_API tandem_status tandem_volume_delay_begin(tandem_volume *volume, uint64_t offset_bytes, uint64_t bytes,
                                                   tandem_volume_window *window_out);

/* Computes the parity of a window from its data and closes it. Data inside is flushed too. Returns when parity is on
 * stable storage. Reads and writes go on meanwhile; those inside wait for the stripe that is being computed.
 *   window        as delay_begin or tandem_volume_windows gave it
 *   accept_loss   non-zero: data that a lost member took with it becomes zeros; 0: then the call fails, and the
 *                 window stays open
 * Status: INVALID_ARGUMENT (NULL; no such window), NOT_RECOVERABLE (data of the window is lost: the message names
 *   the first range), UNAVAILABLE (read-only; another call is ending the window), IO, OUT_OF_MEMORY.
 * Threads: any. */
TANDEM_API tandem_status tandem_volume_delay_end(tandem_volume *volume, const tandem_volume_window *window,
                                                 int32_t accept_loss);

/* All open windows in order, including those that a crash left open.
 *   windows_out   room for `capacity`; NULL with capacity 0 only counts
 *   count_out     how many are open; may be more than capacity
 * Status: INVALID_ARGUMENT (NULL). Threads: any. */
TANDEM_API tandem_status tandem_volume_windows(const tandem_volume *volume, tandem_volume_window *windows_out,
                                               size_t capacity, size_t *count_out);

/* ---- care ------------------------------------------------------------------------------------------ */

/* Hears, after each stripe and on the calling thread, how far scrub or rebuild is.
 *   done_bytes, total_bytes   of the volume
 * Returns 0 to go on; anything else ends the call with TANDEM_ERROR_CANCELLED. It may call other functions of the
 * volume. */
typedef int32_t (*tandem_volume_progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);

typedef struct tandem_volume_care_options {
  size_t struct_bytes;             /* sizeof(tandem_volume_care_options) */
  uint64_t rate_bytes_per_second;  /* of the volume, while other calls go on; 0 = no limit */
  tandem_volume_progress progress; /* NULL = none */
  void *progress_user;
  int32_t repair;  /* scrub: non-zero: mends what it finds, and ends windows of delayed parity that a process
                      which died left open; 0: only counts */
  int32_t restart; /* scrub: non-zero: from the beginning; 0: from where the last one was ended */
} tandem_volume_care_options;

typedef struct tandem_volume_care_result {
  size_t struct_bytes;         /* set by the caller: sizeof(tandem_volume_care_result) */
  uint64_t stripe_count;       /* that were looked at */
  uint64_t block_count;        /* data and parity blocks that were read and checked */
  uint64_t bad_block_count;    /* that could not be read, or whose checksum was wrong, or whose table entry was lost */
  uint64_t bad_parity_count;   /* parity blocks with a right checksum that do not match the data */
  uint64_t mended_block_count; /* that were written anew */
  uint64_t lost_block_count;   /* blocks that cannot be rebuilt */
  uint64_t unprotected_stripe_count; /* stripes inside windows: their parity is not looked at */
} tandem_volume_care_result;

/* Reads every written block, compares checksums and, where all data of a row is there, parity.
 *   options      NULL = look only, no limit, from where the last scrub ended
 *   result_out   NULL, or a struct whose struct_bytes is set; written on TANDEM_OK and on CANCELLED
 * The position is kept on the members: a scrub that was cancelled, or whose process died, goes on there. A scrub that
 * reaches the end resets the position to 0. Beside a member that is missing since the volume was opened a scrub
 * without repair keeps no position: it does not make the member stale. Damage is a result, not an error.
 * Status: INVALID_ARGUMENT (NULL), UNAVAILABLE (read-only with repair; another scrub, rebuild or replace runs),
 *   CANCELLED, IO, OUT_OF_MEMORY.
 * Threads: any. */
TANDEM_API tandem_status tandem_volume_scrub(tandem_volume *volume, const tandem_volume_care_options *options,
                                             tandem_volume_care_result *result_out);

/* Rebuilds what stale and new members lack, while other calls go on. A stale member that was given to open is taken
 * back: its old content is not trusted. A lost member needs tandem_volume_replace first. A rebuild that was
 * cancelled, or whose process died, goes on with what is left when it is called again.
 *   options      as for scrub; repair and restart are ignored
 *   result_out   as for scrub
 * Status: INVALID_ARGUMENT (NULL), UNAVAILABLE (read-only; a member is lost; a member is stale and a window is
 *   open; another scrub, rebuild or replace runs), NOT_RECOVERABLE (some blocks cannot be rebuilt: more than m are lost
 * in their row, or they are unprotected; the others were), CANCELLED, IO, OUT_OF_MEMORY. Threads: any. */
TANDEM_API tandem_status tandem_volume_rebuild(tandem_volume *volume, const tandem_volume_care_options *options,
                                               tandem_volume_care_result *result_out);

typedef struct tandem_volume_replace_options {
  size_t struct_bytes; /* sizeof(tandem_volume_replace_options) */
  uint32_t index;      /* the member that is replaced; it need not be lost */
  int32_t force;       /* non-zero: a new member that holds a volume already is overwritten */
  const char *member;  /* path or URI of the new one. A regular file that does not exist is made, one that is too small
                          is extended */
} tandem_volume_replace_options;

/* Puts a new member in the place of one, whose content is then not used any more. tandem_volume_rebuild fills it;
 * until then the volume is protected as if it were lost.
 * Status: INVALID_ARGUMENT (NULL; index; the new member is too small, is a member already, or holds a volume),
 *   UNAVAILABLE (read-only; locked; a window is open; another scrub, rebuild or replace runs), NOT_RECOVERABLE
 *   (fewer than k members would be left that are not being rebuilt), UNSUPPORTED, IO, OUT_OF_MEMORY.
 * Threads: any. */
TANDEM_API tandem_status tandem_volume_replace(tandem_volume *volume, const tandem_volume_replace_options *options);

/* ---- statistics ------------------------------------------------------------------------------------ */

typedef struct tandem_volume_io_count {
  uint64_t reads, writes; /* calls on members: each a run of bytes without gaps */
  uint64_t read_bytes, write_bytes;
} tandem_volume_io_count;

typedef struct tandem_volume_statistics {
  size_t struct_bytes;           /* set by the caller: sizeof(tandem_volume_statistics) */
  tandem_volume_io_count data;   /* data blocks in the data area */
  tandem_volume_io_count parity; /* parity blocks in the data area */
  tandem_volume_io_count log;
  tandem_volume_io_count checksum; /* pages of the tables */
  tandem_volume_io_count superblock;
  uint64_t syncs;               /* of members */
  uint64_t ways[5];             /* writes to a stripe (or to a part of it) by tandem_volume_way */
  uint64_t transaction_count;   /* that were committed */
  uint64_t degraded_read_count; /* blocks that were computed from others for a read or a write */
  uint64_t mended_block_count;  /* blocks that were written back after that */
} tandem_volume_statistics;

/* What was counted since open. Status: INVALID_ARGUMENT (NULL). Threads: any. */
TANDEM_API tandem_status tandem_volume_statistics_query(const tandem_volume *volume,
                                                        tandem_volume_statistics *statistics_out);

#ifdef __cplusplus
}
#endif
#endif
