// SPDX-License-Identifier: Apache-2.0
// Prelude of generated kernels, dialect host C: one call runs one work-group, its items in loops.
#include <stddef.h>
#include <stdint.h>

#define GLOBAL
#define LOCAL
#define CONSTANT static const
#define FUNCTION static inline
#define KERNEL(name) void name

typedef uint8_t uchar;
typedef uint16_t ushort;
typedef uint32_t uint;
typedef uint64_t ulong;
typedef ulong element_index;

#define GROUP (group + FIRST_GROUP)
#define ROW arguments->begin
#define LOCAL_ID(dimension) item[dimension]
#define LOCAL_SIZE(dimension) local[dimension]
#define FOR_EACH_ITEM                                \
  for (item[2] = 0; item[2] < local[2]; ++item[2])   \
    for (item[1] = 0; item[1] < local[1]; ++item[1]) \
      for (item[0] = 0; item[0] < local[0]; ++item[0])
#define BARRIER
#define TAKE_SUMS uint sums[ITEM_COUNT][SUM_COUNT];
#define SUM(i) sums[ITEM][i]

#if ELEMENT_BYTES == 4
typedef uint32_t element __attribute__((may_alias));
#else
typedef uint32_t element __attribute__((vector_size(ELEMENT_BYTES), may_alias));
#endif
#define ZERO ((element){0})

#define ATOMIC_ADD(p, value) __atomic_fetch_add(p, value, __ATOMIC_RELAXED)
#define ATOMIC_MIN(p, value) atomic_min(p, value)
FUNCTION void atomic_min(uint *p, uint value) {
  uint seen = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (value < seen && !__atomic_compare_exchange_n(p, &seen, value, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

struct tandem_arguments {
  uchar *shards[256];
  ulong begin, end, length;
  uint *records;
  const uint *tables;
  uint *space;
  uint columns, rows;
};
