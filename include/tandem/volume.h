/* SPDX-License-Identifier: Apache-2.0 */
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
 * A stripe has k data columns and m parity columns. A block of TANDEM_VOLUME_BLOCK_BYTES is the smallest part of a
 * stripe that is read, written and checked. The parity range of a write is the set of block rows that it touches in any
 * column. Parity is computed for these rows.
 *
 * A read returns bytes that were written, or an error. What could be read before a call can be read after it, unless a
 * flag named for it allowed the loss or the status is not TANDEM_OK.
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

/* ---- the volume ---------------------------------------------------------------------------------- */

/* An open volume. Any k of its k+m members hold all data, except in windows of delayed parity.
 *
 *   members     A path (regular file or block device), or an NBD URI (nbd://, nbd+unix://, nbds://) if this library was
 *               built with libnbd. They may be opened in any order: each member holds its index. A file or device is
 *               locked while it is open, by one writer or any number of readers. NBD members are not locked.
 *   lost        A member is lost if it is missing, damaged beyond use, or missed a write. The volume works without it
 *               and records the loss on the others. A lost member that returns is stale: it is not used until
 *               tandem_volume_rebuild. With more than m lost members every call fails.
 *   old copies  A member may be put back as it was at an earlier time. Its old blocks are never read as long as old and
 *               lost members are together at most m: the other members of each row show that they are old. Blocks that
 *               contradict each other are an error, and nothing is written over them.
 *   durability  A flushed byte survives the end of the process and of the machine, and then the loss of any m members.
 *               If written bytes were not flushed, each block of 4096 bytes is old or new as a whole.
 *   offsets     Any offset and length in bytes. Whole blocks of TANDEM_VOLUME_BLOCK_BYTES, at multiples of it, avoid
 *               reads of old data.
 *   threads     Any thread may call any function except close at any time. Calls on different stripes run at the same
 *               time, and the members of a stripe work at the same time.
 *   errors      As in tandem.h: tandem_last_error_message() has the sentence. TANDEM_ERROR_NOT_RECOVERABLE names the
 *               range of bytes that is lost, or unprotected inside a window. Other ranges can still be read.
 */
typedef struct tandem_volume tandem_volume;

/* Receives a sentence for the user that is neither a result nor an error. Any thread may call it, in the middle of a
 * call. It must not call functions of the volume. */
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
  int32_t force;            /* non-zero: members that are not empty are overwritten */
  uint64_t member_bytes;    /* regular files are made, or extended, to this size; 0 = they exist and keep their size. If
                               the sizes of members differ, the smallest counts */
  uint64_t log_bytes;       /* of the log on each member; 0 = as much as fits well, 32 MiB at most unless a stripe needs
                               more */
  const uint8_t *volume_id; /* TANDEM_VOLUME_ID_BYTES bytes; NULL = random */
  uint64_t reserved;        /* 0 */
} tandem_volume_create_options;

/* Makes a volume that holds zeros. Writes the superblocks and the tables of checksums (0.6 % of each member).
 *   options   see above
 * Status: INVALID_ARGUMENT (k, m, unit_bytes, log_bytes or member_count out of range; a member listed twice, too small,
 *   or, without force, not empty), UNSUPPORTED (custom matrix; a URI without libnbd), NOT_MDS, TOO_LARGE,
 *   OUT_OF_MEMORY, UNAVAILABLE (another process has locked a member), IO.
 * On failure new and extended files stay. The content of a member changes only if the status is IO.
 * Threads: any. */
TANDEM_API tandem_status tandem_volume_create(const tandem_volume_create_options *options);

typedef struct tandem_volume_open_options {
  size_t struct_bytes;        /* sizeof(tandem_volume_open_options) */
  const char *const *members; /* in any order; fewer than k+m are enough if k are current */
  size_t member_count;
  int32_t read_only;       /* non-zero: nothing is written or mended; other readers may open it at the same time */
  uint32_t thread_count;   /* threads that work on members; 0 = 2 for each member, 32 at most */
  uint64_t cache_bytes;    /* of memory for clean pages of the tables; 0 = 64 MiB */
  tandem_volume_note note; /* a member was lost, a log replayed; NULL = none */
  void *note_user;
  uint64_t reserved; /* 0 */
} tandem_volume_open_options;

/* Opens a volume. If it was not closed, it returns to its last flush.
 *   context      where parity is computed; it must outlive the volume. NULL = on the CPU, by the calling threads
 *   options      see above
 *   volume_out   the volume, for tandem_volume_close; untouched on failure
 * A member counts as lost if it cannot be found, or if both its superblocks are damaged. Open windows of delayed parity
 * stay open: tandem_volume_query lists them.
 * Status: INVALID_ARGUMENT (NULL; members of two volumes; a member listed twice, or smaller than its superblock says),
 *   UNSUPPORTED (a superblock of another version; a URI without libnbd), UNAVAILABLE (locked by another process),
 *   DAMAGED (members that were written apart from each other), NOT_RECOVERABLE (fewer than k current members: the
 *   message tells what is wrong with each), IO (no permission to write to a member), OUT_OF_MEMORY.
 * Threads: any. A child process after fork must not use a volume of its parent. */
TANDEM_API tandem_status tandem_volume_open(tandem_context *context, const tandem_volume_open_options *options,
                                            tandem_volume **volume_out);

/* Flushes and closes a volume. The volume is closed even if the flush fails. NULL is allowed. No other call may use the
 * volume any more.
 * Status: as tandem_volume_flush; NOT_RECOVERABLE: a bounded window stays open, as an ordinary one. */
TANDEM_API tandem_status tandem_volume_close(tandem_volume *volume);

/* A range with delayed parity. */
typedef struct tandem_volume_window {
  uint64_t begin_bytes, end_bytes; /* multiples of k * unit_bytes */
} tandem_volume_window;

typedef struct tandem_volume_io_count {
  uint64_t reads, writes; /* calls on members, each for a run of bytes without gaps */
  uint64_t read_bytes, write_bytes;
} tandem_volume_io_count;

/* How a write updates the parity of a stripe. */
enum tandem_volume_way_value {
  TANDEM_VOLUME_FULL_STRIPE = 0, /* covers every column: parity from the new data alone */
  TANDEM_VOLUME_RECONSTRUCT = 1, /* reads the rest of the parity range */
  TANDEM_VOLUME_MODIFY = 2,      /* reads old data and old parity, adds the difference */
  TANDEM_VOLUME_AVOID = 3,       /* as MODIFY, but the old data is known to be zero */
  TANDEM_VOLUME_DELAY = 4        /* writes data alone; the parity is computed later */
};

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
  uint64_t sequence;         /* of the transaction that collects writes now */
  uint32_t lost_count;       /* members that are lost or stale */
  uint32_t rebuilding_count; /* members that are current, except for blocks still to be rebuilt */
  uint32_t window_count;
  uint32_t old_count; /* current members known to hold old blocks: a scrub with repair mends them */
  int32_t read_only;
  uint32_t reserved;             /* 0 */
  uint64_t scrub_position_bytes; /* in the volume: where the next scrub continues; 0 = at the beginning */
  tandem_volume_window windows[TANDEM_VOLUME_MAX_WINDOWS]; /* window_count open ones in order, with those that a crash
                                                              left open */
  /* Counters since open. */
  tandem_volume_io_count data;   /* data blocks in the data area */
  tandem_volume_io_count parity; /* parity blocks in the data area */
  tandem_volume_io_count log;
  tandem_volume_io_count checksum; /* pages of the tables */
  tandem_volume_io_count superblock;
  uint64_t syncs;               /* of members */
  uint64_t ways[5];             /* writes to a stripe (or to a part of it), by enum tandem_volume_way_value */
  uint64_t transaction_count;   /* committed transactions */
  uint64_t degraded_read_count; /* blocks computed from others for a read or a write */
  uint64_t mended_block_count;  /* of these, blocks that were written back */
  /* Delayed parity. A loss of a member loses at most unprotected_bytes. After a crash, all of `windows` counts. */
  uint64_t unprotected_bytes;          /* full stripes in windows that were written and have no parity yet */
  tandem_volume_window bounded;        /* from tandem_volume_delay_bounded; its end is 0 if none is open */
  uint64_t bound_bytes, bound_seconds; /* of it: `windows` in it are together at most so large, and end after so long */
  uint64_t avoided_block_count;        /* blocks of slow members that were computed from others */
} tandem_volume_info;

/* Describes a volume.
 * Status: INVALID_ARGUMENT (NULL).
 * Threads: any. */
TANDEM_API tandem_status tandem_volume_query(const tandem_volume *volume, tandem_volume_info *info_out);

enum tandem_volume_member_state_value {
  TANDEM_VOLUME_MEMBER_CURRENT = 0,
  TANDEM_VOLUME_MEMBER_REBUILDING = 1, /* takes writes; blocks not rebuilt yet are computed from the others */
  TANDEM_VOLUME_MEMBER_LOST = 2,       /* missing, too small, or failed while open */
  TANDEM_VOLUME_MEMBER_STALE = 3       /* present, but it missed writes, or is an old copy */
};

typedef struct tandem_volume_member {
  size_t struct_bytes;                        /* set by the caller: sizeof(tandem_volume_member) */
  uint32_t index;                             /* 0 .. k+m-1 */
  int32_t state;                              /* enum tandem_volume_member_state_value */
  uint64_t size_bytes;                        /* 0: unknown */
  uint64_t read_error_count, bad_block_count; /* since open: failed reads; blocks with a wrong checksum */
  char name[256];                             /* the path or URI, cut to fit; "" = not given to open */
  char why[256];     /* why it is lost or stale, or that it holds old blocks; "" = nothing is wrong */
  int32_t is_slow;   /* non-zero: reads avoid it, see tandem_volume_read */
  uint32_t reserved; /* 0 */
} tandem_volume_member;

/* Describes one member.
 * Status: INVALID_ARGUMENT (NULL; index >= k+m).
 * Threads: any. */
TANDEM_API tandem_status tandem_volume_member_query(const tandem_volume *volume, uint32_t index,
                                                    tandem_volume_member *member_out);

/* ---- reading and writing -------------------------------------------------------------------------- */

/* Reads bytes. Lost blocks, and blocks with a wrong checksum, are computed from the others. They are written back
 * unless the volume is read-only. Bytes that were never written are zeros.
 * A member is slow if the median of its last 100 reads (of at most 64 KiB) is longer than 1 ms, and longer than 99 of
 * the last 100 reads of each of k other members. Its blocks are then computed from k others, as long as these extra
 * reads are no more than the reads of the callers; one of 100 is still read, to see whether it is fast again. A slow
 * member is used in every other way, and nothing is written because of it.
 *   offset_bytes, bytes   inside the volume; reading 0 bytes has no effect
 *   data                  untouched beyond `bytes`; undefined on failure
 * Status: INVALID_ARGUMENT (NULL; not inside the volume), NOT_RECOVERABLE, IO (fewer than k members are left),
 *   OUT_OF_MEMORY.
 * Threads: any. */
TANDEM_API tandem_status tandem_volume_read(tandem_volume *volume, uint64_t offset_bytes, void *data, size_t bytes);

/* Writes bytes. They are on stable storage after the next tandem_volume_flush that returns TANDEM_OK.
 *   offset_bytes, bytes   inside the volume; writing 0 bytes has no effect
 *   data                  must not change until the call returns
 * Status: as tandem_volume_read (old data may have to be read); UNAVAILABLE (read-only).
 * On failure each block of the range is old or new.
 * Threads: any; if calls overlap, each block has the bytes of one of them. */
TANDEM_API tandem_status tandem_volume_write(tandem_volume *volume, uint64_t offset_bytes, const void *data,
                                             size_t bytes);

/* Brings all earlier writes to stable storage. Without writes since the last flush it costs nothing.
 * Status: IO (fewer than k members are left; no write since the last flush is safe), OUT_OF_MEMORY.
 * Threads: any. */
TANDEM_API tandem_status tandem_volume_flush(tandem_volume *volume);

/* Discards bytes. Whole blocks in the range count as never written, and read as zeros.
 *   zero_ends   0: parts of blocks at the ends stay unchanged. Non-zero: zeros are written there, so that the whole
 *               range reads as zeros
 * Status, threads: as tandem_volume_write. */
TANDEM_API tandem_status tandem_volume_trim(tandem_volume *volume, uint64_t offset_bytes, uint64_t bytes,
                                            int32_t zero_ends);

typedef struct tandem_volume_extent {
  uint64_t begin_bytes, end_bytes;
  uint32_t written;  /* 0: never written, reads as zeros; 1: holds data, or unknown */
  uint32_t reserved; /* 0 */
} tandem_volume_extent;

/* Tells which parts of a range were written. The extents are in order, without gaps, and neighbours differ.
 *   extents_out   `capacity` >= 1 extents; if there are more, the last one ends before the range does
 *   count_out     how many were written
 * Reads tables, but no data.
 * Status: INVALID_ARGUMENT (NULL, capacity 0, bytes 0, not inside the volume), IO, OUT_OF_MEMORY.
 * Threads: any. */
TANDEM_API tandem_status tandem_volume_extents(tandem_volume *volume, uint64_t offset_bytes, uint64_t bytes,
                                               tandem_volume_extent *extents_out, size_t capacity, size_t *count_out);

/* ---- delayed parity ------------------------------------------------------------------------------- */

/* Opens a window of delayed parity. Until the window ends, writes inside it write data alone. If a member is lost
 * meanwhile, its part of the window is lost too. Reads and writes of that part then fail (NOT_RECOVERABLE,
 * "unprotected"). All other stripes keep their parity. Earlier writes are flushed first.
 *   offset_bytes, bytes   rounded inward to full stripes
 *   window_out            the open range; it is on stable storage when the call returns
 * Status: INVALID_ARGUMENT (NULL; not inside the volume; no full stripe in the range; overlaps an open window),
 *   UNAVAILABLE (read-only; a member is lost or being rebuilt; TANDEM_VOLUME_MAX_WINDOWS are open), IO.
 * Threads: any. */
TANDEM_API tandem_status tandem_volume_delay_begin(tandem_volume *volume, uint64_t offset_bytes, uint64_t bytes,
                                                   tandem_volume_window *window_out);

/* Opens a bounded window: a range in which windows begin and end by themselves. A write where none is open updates its
 * parity, and makes one begin there. At most 8 are open at a time; tandem_volume_info lists them. If another one would
 * pass the bound, the oldest one ends first. A thread of the volume does this, at most once a second. The bounded
 * window ends with tandem_volume_delay_end, with tandem_volume_close, and with the loss of a member: a note tells it.
 * It is not kept on the members: after a crash the windows that were open are ordinary ones.
 *   offset_bytes, bytes   rounded inward to full stripes
 *   bound_bytes           most bytes in windows of the range, at least a stripe; 0 = 1 GiB
 *   bound_seconds         a window ends after this time. Its end takes additional time; 0 = 60
 *   window_out            the range, for tandem_volume_delay_end
 * Status: as tandem_volume_delay_begin; INVALID_ARGUMENT also for a bound below a stripe, UNAVAILABLE also if there is
 *   a bounded window.
 * Threads: any. */
TANDEM_API tandem_status tandem_volume_delay_bounded(tandem_volume *volume, uint64_t offset_bytes, uint64_t bytes,
                                                     uint64_t bound_bytes, uint64_t bound_seconds,
                                                     tandem_volume_window *window_out);

/* Computes the parity of a window from its data and closes the window. Data inside is flushed too. Returns when the
 * parity is on stable storage. Reads and writes continue meanwhile; inside the window they wait for the stripe that is
 * being computed. A member that fails a write or a sync meanwhile is lost, with its data of stripes that have no parity
 * yet, which may be the only copy.
 *   window        from delay_begin, delay_bounded or tandem_volume_query
 *   accept_loss   non-zero: data of a lost member becomes zeros. 0: the call then fails, and the window stays open
 * Status: INVALID_ARGUMENT (NULL; no such window; a part of a bounded one), NOT_RECOVERABLE (data of the window is
 *   lost: the message names the first range), UNAVAILABLE (read-only; another call is ending the window), IO,
 *   OUT_OF_MEMORY.
 * Threads: any. */
TANDEM_API tandem_status tandem_volume_delay_end(tandem_volume *volume, const tandem_volume_window *window,
                                                 int32_t accept_loss);

/* ---- care ------------------------------------------------------------------------------------------ */

/* Receives the progress of scrub or rebuild, after each stripe, on the calling thread.
 *   done_bytes, total_bytes   of the volume; done_bytes is 0 while the tables are looked at, before any data
 * Returns 0 to continue. Any other value ends the call with TANDEM_ERROR_CANCELLED. It may call other functions of the
 * volume. */
typedef int32_t (*tandem_volume_progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);

typedef struct tandem_volume_care_options {
  size_t struct_bytes;             /* sizeof(tandem_volume_care_options) */
  uint64_t rate_bytes_per_second;  /* of the volume, while other calls run; 0 = no limit */
  tandem_volume_progress progress; /* NULL = none */
  void *progress_user;
  int32_t repair;  /* scrub: non-zero: repairs the damage that it finds, and ends windows of delayed parity that a dead
                      process left open; 0: only counts */
  int32_t restart; /* scrub: non-zero: starts at the beginning; 0: continues after the last scrub */
} tandem_volume_care_options;

typedef struct tandem_volume_care_result {
  size_t struct_bytes;               /* set by the caller: sizeof(tandem_volume_care_result) */
  uint64_t stripe_count;             /* stripes that were checked */
  uint64_t block_count;              /* data and parity blocks that were read and checked */
  uint64_t bad_block_count;          /* unreadable, with a wrong checksum, without a table entry, old, or in a row
                                        that contradicts itself */
  uint64_t bad_parity_count;         /* parity blocks with a right checksum that do not match the data. They are not
                                        mended, because nothing tells which block of the row is wrong */
  uint64_t mended_block_count;       /* blocks that were written again */
  uint64_t lost_block_count;         /* blocks that cannot be mended. Too many blocks of their row are bad, or it is not
                                        clear which block of the row is wrong, or they are data of a window and their
                                        member is missing */
  uint64_t unprotected_stripe_count; /* stripes inside windows: their parity is not checked */
  uint64_t left_block_count;         /* bad blocks, and blocks that do not fit to their row, that were not mended */
} tandem_volume_care_result;

/* Reads every written block and compares checksums. Compares parity too, if all data of a row is there.
 *   options      NULL = only count, no limit, continue after the last scrub
 *   result_out   NULL, or a struct with struct_bytes set; written on TANDEM_OK and on CANCELLED
 * The members store the position. After a cancel, or the end of its process, the next scrub continues there. A scrub
 * that reaches the end resets the position to 0. At the beginning, and with repair, all tables are read first (once
 * while the volume is open); if they show old blocks, a repair begins at 0. If a member is missing since the volume was
 * opened, a scrub without repair stores no position, so that the member does not become stale. Damage is a result, not
 * an error.
 * Status: INVALID_ARGUMENT (NULL), UNAVAILABLE (read-only with repair; another scrub, rebuild or replace runs),
 *   CANCELLED, IO, OUT_OF_MEMORY.
 * Threads: any. */
TANDEM_API tandem_status tandem_volume_scrub(tandem_volume *volume, const tandem_volume_care_options *options,
                                             tandem_volume_care_result *result_out);

/* Rebuilds the missing blocks of stale and new members, while other calls run. A stale member that was given to open is
 * used again, but its old content is not trusted. A lost member needs tandem_volume_replace first. After a cancel, or
 * the end of its process, the next rebuild continues with the rest. Old blocks stay as they are (old_count tells).
 *   options      as for scrub; repair and restart are ignored
 *   result_out   as for scrub
 * Status: INVALID_ARGUMENT (NULL), UNAVAILABLE (read-only; a member is lost; a member is stale and a window is open;
 *   another scrub, rebuild or replace runs), NOT_RECOVERABLE (some blocks cannot be rebuilt: more than m are lost in
 *   their row, or they are unprotected; the others were rebuilt), CANCELLED, IO, OUT_OF_MEMORY.
 * Threads: any. */
TANDEM_API tandem_status tandem_volume_rebuild(tandem_volume *volume, const tandem_volume_care_options *options,
                                               tandem_volume_care_result *result_out);

/* Replaces a member by a new one. The old member's content is not used any more. tandem_volume_rebuild fills the new
 * member. Until then the volume is protected as if the member were lost.
 *   index    the member to replace; it need not be lost
 *   member   path or URI of the new member. A regular file is made if it does not exist, and extended if it is too
 *            small
 *   force    non-zero: a new member that is not empty is overwritten
 * Status: INVALID_ARGUMENT (NULL; index; the new member is too small, is a member already, or is not empty),
 *   UNAVAILABLE (read-only; locked; a window is open; another scrub, rebuild or replace runs), NOT_RECOVERABLE (fewer
 *   than k complete members would be left), UNSUPPORTED, IO, OUT_OF_MEMORY.
 * Threads: any. */
TANDEM_API tandem_status tandem_volume_replace(tandem_volume *volume, uint32_t index, const char *member,
                                               int32_t force);

#ifdef __cplusplus
}
#endif
#endif
