// SPDX-License-Identifier: Apache-2.0
// Technique transform: eight words of a shard as eight planes. Plane i has bit i of each byte, so a product by a
// constant is a sum of planes.

// (a & mask) | (b & ~mask)
#ifndef SELECT
#define SELECT(mask, a, b) (((a) & (mask)) | ((b) & ~(mask)))
#endif

// Words to planes, and back: in each byte, bit i of word w and bit w of word i change places.
#define EXCHANGE(w, step, mask)                            \
  UNROLL for (uint i = 0; i < 8; ++i) {                    \
    if ((i & (step)) == 0) {                               \
      const uint low = (w)[i], high = (w)[i + (step)];     \
      (w)[i] = SELECT(mask, low, high << (step));          \
      (w)[i + (step)] = SELECT(mask, low >> (step), high); \
    }                                                      \
  }
FUNCTION void transpose(uint *w) {
  EXCHANGE(w, 1, 0x55555555u)
  EXCHANGE(w, 2, 0x33333333u)
  EXCHANGE(w, 4, 0x0f0f0f0fu)
}

#ifndef XOR3_WORD
#define XOR3_WORD(p, a, b) (p ^= (a) ^ (b))
#endif
#ifndef XOR3_WORDS
#define XOR3_WORDS(p, pa, pb, q, qa, qb, r, ra, rb, s, sa, sb) \
  (p ^= (pa) ^ (pb), q ^= (qa) ^ (qb), r ^= (ra) ^ (rb), s ^= (sa) ^ (sb))
#endif

// A work-item has 32 bytes of each shard, in ELEMENTS_PER_ITEM elements. What lies behind the last element is read as 0
// and not written.
#define WORDS_PER_ELEMENT (ELEMENT_BYTES / 4)
#define FIRST_OF_TILE ((element_index)(GROUP - 1) * TILE_ELEMENTS)
#define FIRST_ELEMENT (FIRST_OF_TILE + LOCAL_ID(0))
// Planes of input c, which is -1 if a point has no shard.
#define LOAD_PLANES(w, c)                                                                               \
  UNROLL for (uint e = 0; e < ELEMENTS_PER_ITEM; ++e) {                                                 \
    const element_index at = FIRST_ELEMENT + e * LOCAL_SIZE(0);                                         \
    union element_words piece;                                                                          \
    piece.whole = ZERO;                                                                                 \
    if ((c) >= 0 && at < ELEMENT_COUNT) piece.whole = LOAD(AT(ANY_INPUT(c)));                           \
    UNROLL for (uint i = 0; i < WORDS_PER_ELEMENT; ++i)(w)[e * WORDS_PER_ELEMENT + i] = piece.words[i]; \
  }                                                                                                     \
  transpose(w);
#define FINISH_PLANES(row, w)                                                                            \
  transpose(w);                                                                                          \
  UNROLL for (uint e = 0; e < ELEMENTS_PER_ITEM; ++e) {                                                  \
    const uint at_in_tile = e * LOCAL_SIZE(0) + LOCAL_ID(0);                                             \
    const element_index at = FIRST_ELEMENT + e * LOCAL_SIZE(0);                                          \
    union element_words piece;                                                                           \
    UNROLL for (uint i = 0; i < WORDS_PER_ELEMENT; ++i) piece.words[i] = (w)[e * WORDS_PER_ELEMENT + i]; \
    if (at < ELEMENT_COUNT) {                                                                            \
      FINISH(row, OUTPUT(row), piece.whole);                                                             \
    }                                                                                                    \
  }

// Planes in local memory, shared by the work-items that have the same bytes.
#define PLANE(i) space[(i)*GROUP_WIDTH + LOCAL_ID(0)]

// The sums of a work-item, which outlive a barrier.
#ifndef TAKE_SUMS
#define TAKE_SUMS uint sums[SUM_COUNT];
#define SUM(i) sums[i]
#endif
