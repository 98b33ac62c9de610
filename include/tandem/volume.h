/* volume.h - a striped volume over k+m members: files, block devices or NBD servers.
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

#ifdef __cplusplus
}
#endif
#endif
