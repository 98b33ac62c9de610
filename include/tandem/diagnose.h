/* SPDX-License-Identifier: Apache-2.0 */
/* diagnose.h - what a codec and a plan do, where parity does not match, and which shards are damaged.
 *
 *     tandem_shard_range ranges[100];
 *     tandem_verify_ranges found = {.struct_bytes = sizeof found, .ranges = ranges, .capacity = 100};
 *     arguments.verify_ranges = &found;                    // of a plan that verifies
 *     tandem_plan_run(plan, &arguments, NULL);                 // found.count ranges do not match
 *
 * The rules of tandem.h hold here too.
 */
#ifndef TANDEM_DIAGNOSE_H
#define TANDEM_DIAGNOSE_H

#include "tandem/tandem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what a codec computes ------------------------------------------------------------------------ */

/* Copies the parity rows of the generator matrix: m x k elements, row-major.
 *   coefficients_out  bytes in GF(2^8), uint16_t in GF(2^16), at any alignment; untouched on failure. leopard16 and
 *                     reed-solomon-simd: coordinates of the Cantor basis, docs/matrices.md
 *   capacity_bytes    its size; at least m * k, in GF(2^16) 2 * m * k
 * Status: INVALID_ARGUMENT (NULL; capacity_bytes too small).
 * Threads: any. */
TANDEM_API tandem_status tandem_codec_coefficients(const tandem_codec *codec, void *coefficients_out,
                                                   size_t capacity_bytes);

/* ---- how a plan runs -------------------------------------------------------------------------------- */

typedef struct tandem_plan_info {
  size_t struct_bytes;                /* set by the caller: sizeof(tandem_plan_info) */
  const char *technique;              /* for shards in the cache: "matrix". Wide codes on the CPU: also "transform", for
                                         a decode "syndromes, matrix" or "syndromes, transform". Packets: also "shared
                                         sums". Devices: of the latest run, "tables", "compiled" or "transform"; before
                                         the first one also "tables, then compiled" or "tables, then transform". The
                                         string is valid for ever */
  const char *technique_out_of_cache; /* the same, for runs that move more than out_of_cache_bytes */
  uint32_t products, matrix_products; /* with the shards in the cache: products of one vector by a coefficient, for one
                                         vector of each shard; and the same by the matrix. Packets: additions, for one
                                         vector of each packet. 0: only one technique was possible */
  uint64_t out_of_cache_bytes; /* bytes of all shards read and written; UINT64_MAX: every run counts as in the cache */
  const uint8_t *shards_read;  /* k+m flags: 1 = a run reads this shard; valid as long as the plan */
} tandem_plan_info;

/* Tells what a plan reads, and how it runs.
 *   plan       any plan; for a hybrid, the answer is about the backend that runs its small calls
 *   info_out   struct_bytes set by the caller; the rest is written on TANDEM_OK
 *
 * A decode reads the fewest shards that suffice; with read_costs, the cheapest set. For MDS codes this is always exact.
 * For codes with local groups it is exact unless coefficients are dependent by accident; a single lost data shard needs
 * only its group. For other codes the decode reads the cheapest of the sets that were tried.
 * Status: INVALID_ARGUMENT (NULL), OUT_OF_MEMORY.
 * On failure nothing is written.
 * Threads: any. */
TANDEM_API tandem_status tandem_plan_query(const tandem_plan *plan, tandem_plan_info *info_out);

/* ---- where parity does not match -------------------------------------------------------------------- */

/* A part of one shard. Verify: of a parity shard that does not match the data.
 * Locate: a damaged part; if `shard` is TANDEM_SHARD_NONE, a part of the stripe with columns that it cannot explain. */
typedef struct tandem_shard_range {
  uint32_t shard;
  uint32_t reserved;    /* 0 */
  uint64_t begin_bytes; /* offset in the shard of its first wrong byte */
  uint64_t end_bytes;   /* offset behind its last wrong byte */
  uint64_t byte_count;  /* its wrong bytes, 1 or more. Locate: up to 4096 right bytes may lie between two of them */
} tandem_shard_range;

/* The ranges of a verify: `verify_ranges` of tandem_plan_arguments. They are sorted by shard and begin_bytes. They are
 * disjoint, and together they hold every parity byte that does not match. A range may contain up to a few thousand
 * matching bytes between mismatches; with packets up to two groups of them, if that is more.
 *
 * CUDA device memory: the same pass finds the ranges. Elsewhere, a mismatch costs one or two more passes, from the
 * first mismatch to the last. The run, or the wait for the job, makes these passes; a cancel does not stop them. */
typedef struct tandem_verify_ranges {
  size_t struct_bytes;        /* sizeof(tandem_verify_ranges) */
  tandem_shard_range *ranges; /* receives the first ranges when the run is done; NULL with capacity 0 only counts */
  uint64_t capacity;
  uint64_t count; /* written: how many ranges there are; may be more than the capacity */
} tandem_verify_ranges;

/* ---- which shards are damaged ------------------------------------------------------------------------ */

typedef struct tandem_locate_options {
  size_t struct_bytes;
  const uint8_t *present;      /* k+m bytes, 0 = the shard is lost: it is not read, and its pointer may be NULL. NULL:
                                  all shards are present */
  int32_t repair;              /* 1: restore the named bytes in place, but only if every column is explained */
  int32_t reserved;            /* 0 */
  uint64_t *damaged_bytes_out; /* NULL, or k+m numbers: damaged bytes of each shard */
  tandem_shard_range *ranges;  /* receives the first ranges, sorted by shard and begin_bytes, TANDEM_SHARD_NONE last;
                                   NULL with capacity 0 */
  uint64_t range_capacity;
} tandem_locate_options;

typedef struct tandem_locate_result {
  size_t struct_bytes;          /* set by the caller: sizeof(tandem_locate_result) */
  int32_t consistent;           /* 1: every parity byte matches the data; all fields but this and the next are then 0 */
  uint32_t most_damaged_shards; /* the guarantee: up to this many damaged shards of a column are named */
  uint32_t damaged_shard_count; /* shards with at least one damaged byte */
  int32_t repaired;             /* 1: all damage is repaired, and the stripe was verified again */
  uint64_t damaged_byte_count;  /* all shards together */
  uint64_t beyond_byte_count;   /* columns beyond the guarantee: damaged, but no shard is named for them */
  uint64_t range_count;         /* how many ranges there are; may be more than the capacity */
} tandem_locate_result;

/* Names the damaged shards of a stripe without checksums. A column is one byte of each shard. If at most
 * most_damaged_shards of a column's present shards are damaged, exactly these are named. That number is spare / 2,
 * rounded down. `spare` is m - lost shards, with local groups m - local_groups + 1 - lost shards.
 *   shards       k+m pointers, data first; read, and written by a repair
 *   options      NULL = all zero
 *   result_out   struct_bytes set by the caller; the rest is written on TANDEM_OK
 *
 * A column with more damage counts in beyond_byte_count, and no shard is named for it. If `spare` is even, one
 * damaged shard too many can imitate other damage, in about one of 256^most_damaged_shards /
 * C(k+m, most_damaged_shards) columns. So as soon as any column is beyond the guarantee, a shard is named only if
 * chance cannot explain its columns. The columns of a shard that is not named then count as beyond the guarantee.
 *
 * A clean stripe costs one verify. A damaged stripe is read once more, from the first mismatch to the end. A repair
 * reads it twice more. Columns are solved one by one if their damaged shards change all the time, or if they are beyond
 * the guarantee. One column takes some microseconds with Reed-Solomon codes. With local groups it takes 0.1
 * milliseconds for k = 20 and 6 global parity shards, but 20 milliseconds for k = 200.
 *
 * Memory: up to 4 MiB; about 2 KiB for each set of shards that are damaged together, and 32 bytes for each range.
 * Ownership: the caller's.
 * Status: INVALID_ARGUMENT (NULL, shard_bytes = 0, an unknown value of repair), TOO_LARGE, OVERLAP (repair; at every
 *   size), NOT_RECOVERABLE (nothing is left to compare with), UNSUPPORTED (a code that is not MDS and has no local
 *   groups, in GF(2^16), in packets, or with more than a million sets of shards to try), DAMAGED (the shards changed
 *   during a repair), OUT_OF_MEMORY, DEVICE.
 * On failure: a repair may have restored some bytes; it writes no wrong ones.
 * Threads: any; no other call may write to the shards meanwhile. */
TANDEM_API tandem_status tandem_locate(tandem_context *context, const tandem_codec *codec, void *const *shards,
                                       size_t shard_bytes, const tandem_locate_options *options,
                                       tandem_locate_result *result_out);

#ifdef __cplusplus
}
#endif
#endif
