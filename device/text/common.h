// SPDX-License-Identifier: Apache-2.0
// Common part of all dialects: access to elements, doubling in GF(2^8), the treatment of a finished element.

union element_words {
  element whole;
  uint words[ELEMENT_BYTES / 4];
};

#ifndef LOAD_ALIGNED
#define LOAD_ALIGNED(p) (*(const GLOBAL element *)(p))
#define STORE_ALIGNED(p, value) (*(GLOBAL element *)(p) = (value))
#endif
#ifndef LOAD_INPUT_ALIGNED
#define LOAD_INPUT_ALIGNED(p) LOAD_ALIGNED(p)
#endif

// Where the element `at` lies in a shard.
#ifndef OFFSET_BYTES
#define OFFSET_BYTES(at) ((ulong)(at)*ELEMENT_BYTES)
#endif
#if defined(ACCESS_SHIFTED)
#define AT(shard) ((shard) + begin + OFFSET_BYTES(at))
#else
#define AT(shard) ((shard) + OFFSET_BYTES(at))
#endif

#if defined(ACCESS_ALIGNED)

#define LOAD(p) LOAD_INPUT_ALIGNED(p)
#define LOAD_OUTPUT(p) LOAD_ALIGNED(p)
#define STORE(p, value) STORE_ALIGNED(p, value)

#elif defined(ACCESS_DIRECT)

struct __attribute__((packed)) element_anywhere {
  element value;
};
#define LOAD(p) (((const GLOBAL struct element_anywhere *)(p))->value)
#define LOAD_OUTPUT(p) LOAD(p)
#define STORE(p, v) (((GLOBAL struct element_anywhere *)(p))->value = (v))

#elif defined(ACCESS_SHIFTED)

// Aligned words around the element, shifted into place. Reads up to 3 bytes before it and 4 behind it, which are
// inside the shard: elements keep that distance from both ends.
#define LOAD(p) load_shifted(p)
FUNCTION element load_shifted(const GLOBAL uchar *p) {
  const uint skip = (uint)(size_t)p & 3u;
  const GLOBAL uint *words = (const GLOBAL uint *)(p - skip);
  union element_words result;
  ulong pair = (ulong)words[0] << 32;
  for (uint i = 0; i < ELEMENT_BYTES / 4; ++i) {
    pair = pair >> 32 | (ulong)words[i + 1] << 32;
    result.words[i] = (uint)(pair >> skip * 8);
  }
  return result.whole;
}

// Outputs: neighbours' bytes belong to work-items that may be writing them. The widest accesses that fit this shard's
// alignment, and nothing beyond the element.
#define LOAD_OUTPUT(p) load_output(p)
FUNCTION element load_output(const GLOBAL uchar *p) {
  union element_words to;
  const uint low = (uint)(size_t)p;
  if ((low & (ELEMENT_BYTES - 1)) == 0) return LOAD_ALIGNED(p);
  to.whole = ZERO;
  if ((low & 3) == 0) {
    for (uint i = 0; i < ELEMENT_BYTES / 4; ++i) to.words[i] = ((const GLOBAL uint *)p)[i];
  } else if ((low & 1) == 0) {
    for (uint i = 0; i < ELEMENT_BYTES / 2; ++i) to.words[i / 2] |= (uint)((const GLOBAL ushort *)p)[i] << i % 2 * 16;
  } else {
    for (uint i = 0; i < ELEMENT_BYTES; ++i) to.words[i / 4] |= (uint)p[i] << i % 4 * 8;
  }
  return to.whole;
}
#define STORE(p, value) store_output(p, value)
FUNCTION void store_output(GLOBAL uchar *p, element value) {
  union element_words from;
  from.whole = value;
  const uint low = (uint)(size_t)p;
  if ((low & (ELEMENT_BYTES - 1)) == 0) {
    STORE_ALIGNED(p, value);
  } else if ((low & 3) == 0) {
    for (uint i = 0; i < ELEMENT_BYTES / 4; ++i) ((GLOBAL uint *)p)[i] = from.words[i];
  } else if ((low & 1) == 0) {
    for (uint i = 0; i < ELEMENT_BYTES / 2; ++i) ((GLOBAL ushort *)p)[i] = (ushort)(from.words[i / 2] >> i % 2 * 16);
  } else {
    for (uint i = 0; i < ELEMENT_BYTES; ++i) p[i] = (uchar)(from.words[i / 4] >> i % 4 * 8);
  }
}

#endif

// 2 * sum ^ next, in each byte, with polynomial 0x11d: one step of Horner's rule.
#ifndef HORNER
#define HORNER(sum, next) horner(sum, next)
FUNCTION element horner(element sum, element next) {
  const element top = sum & 0x80808080u;
  return next ^ (sum ^ top) << 1 ^ ((top - (top >> 7)) & 0x1d1d1d1du);
}
#endif

#ifndef FORGET
#define FORGET(x)
#endif
#ifndef AFTER
#define AFTER(x, value)
#endif
#ifndef UNROLL
#define UNROLL
#endif

// Technique tables: sums[b] ^= both products of an element's byte b; and what of the sums makes word w of output r.
#ifndef LOOK_UP
#define LOOK_UP(sums, table, x)                                       \
  for (uint b = 0; b < ELEMENT_BYTES; ++b) {                          \
    const uint byte = (x)[b / 4] >> b % 4 * 8;                        \
    (sums)[b] ^= (table)[byte & 15] ^ (table)[16 + (byte >> 4 & 15)]; \
  }
#define SUMS_TO_OUTPUTS(sums)
#define SUM_BYTE(sum, r) ((sum) >> (r)*8 & 0xff)
#define OUTPUT_WORD(sums, w, r)                                                                              \
  (SUM_BYTE((sums)[(w)*4], r) | SUM_BYTE((sums)[(w)*4 + 1], r) << 8 | SUM_BYTE((sums)[(w)*4 + 2], r) << 16 | \
   SUM_BYTE((sums)[(w)*4 + 3], r) << 24)
#endif

// coefficient * x, bit by bit: for the few bytes at the ends.
FUNCTION uint product(uint coefficient, uint x) {
  uint sum = 0;
  for (; coefficient != 0; coefficient >>= 1) {
    if (coefficient & 1) sum ^= x;
    x = x << 1 ^ (x >> 7) * 0x11du;
  }
  return sum;
}

// Compare: KernelRange says what the records hold. first: where the bytes that differ begin in the tile.
#define RECORD(tile, row) (records + 2 + ((ulong)(tile)*ROWS + (row)) * 2)
FUNCTION void note_mismatch(GLOBAL uint *records, uint tile, GLOBAL uint *record, uint count, uint first) {
  if (ATOMIC_ADD(record, count) == 0xffffffffu) {  // the record's first
    ATOMIC_MIN(records, tile);
    ATOMIC_MIN(records + 1, ~(tile + 1));
  }
  ATOMIC_MIN(record + 1, first);
}

// position: where the element lies in its tile.
FUNCTION void compare_element(GLOBAL uint *records, uint tile, GLOBAL uint *record, element difference, uint position) {
  union element_words each;
  each.whole = difference;
  uint any = 0;
  for (uint i = 0; i < ELEMENT_BYTES / 4; ++i) any |= each.words[i];
  if (any == 0) return;
  uint count = 0, first = 0;
  for (uint i = ELEMENT_BYTES; i-- > 0;) {
    if ((each.words[i / 4] >> i % 4 * 8 & 0xff) == 0) continue;
    ++count;
    first = i;
  }
  note_mismatch(records, tile, record, count, position + first);
}

// The treatment of a finished element, and of a finished byte at one of the ends.
#if defined(MODE_ASSIGN)
#define FINISH(row, output, value) STORE(AT(output), value)
#define FINISH_BYTE(row, output, value) ((output)[place] = (uchar)(value))
#elif defined(MODE_ACCUMULATE)
#define FINISH(row, output, value) STORE(AT(output), (value) ^ LOAD_OUTPUT(AT(output)))
#define FINISH_BYTE(row, output, value) ((output)[place] = (uchar)((output)[place] ^ (value)))
#elif defined(MODE_COMPARE)
#define FINISH(row, output, value) \
  compare_element(records, (uint)tile, RECORD(tile, row), (value) ^ LOAD(AT(output)), at_in_tile * ELEMENT_BYTES)
#define FINISH_BYTE(row, output, value)  \
  if ((output)[place] != (uchar)(value)) \
  note_mismatch(records, (uint)END_TILE, RECORD(END_TILE, row), 1, (uint)(place < begin ? place : place - end))
#define END_TILE (tile_count + (place >= end))
#endif

// Work-group 0 does head and tail, which take long: it starts first. The others have a row of tiles each. A row of a
// table with neither begins with group FIRST_GROUP = 1.
#define ELEMENT_COUNT ((element_index)((end - begin) / ELEMENT_BYTES))
#define TILE_ELEMENTS (TILE_WIDTH * ELEMENTS_PER_ITEM)
#define TILE ((element_index)(GROUP - 1) * LOCAL_SIZE(2) + LOCAL_ID(2))
#define TILE_COUNT (((end - begin) / ELEMENT_BYTES + TILE_ELEMENTS - 1) / TILE_ELEMENTS)
#define ITEM ((LOCAL_ID(2) * LOCAL_SIZE(1) + LOCAL_ID(1)) * LOCAL_SIZE(0) + LOCAL_ID(0))
#define ITEM_COUNT (LOCAL_SIZE(0) * LOCAL_SIZE(1) * LOCAL_SIZE(2))

// The bytes of head and tail, by the matrix.
#define CODE_ENDS                                                                                      \
  TAKE_SHARDS                                                                                          \
  const ulong tile_count = TILE_COUNT;                                                                 \
  const uint end_bytes = (uint)(begin + (length - end));                                               \
  for (uint i = ITEM; i < end_bytes * ROWS; i += ITEM_COUNT) {                                         \
    const uint row = i % ROWS, e = i / ROWS;                                                           \
    const ulong place = e < begin ? e : end + (e - begin);                                             \
    uint sum = 0;                                                                                      \
    for (uint c = 0; c < COLUMNS; ++c) sum ^= product(matrix[row * COLUMNS + c], ANY_INPUT(c)[place]); \
    FINISH_BYTE(row, ANY_OUTPUT(row), sum);                                                            \
  }
