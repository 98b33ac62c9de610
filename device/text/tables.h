// SPDX-License-Identifier: Apache-2.0
// Body of technique `tables`: each of a pass' four outputs takes one byte of a word; the work-group fills its tables of
// products by low and by high nibbles, then looks up two words for each data byte. No matrix in the text.
{
  TAKE_ARGUMENTS
  for (uint first_row = 0; first_row < ROWS; first_row += 4) {
    const uint row_count = ROWS - first_row < 4 ? ROWS - first_row : 4;
    FOR_EACH_ITEM {
      const GLOBAL uint *from = tables + (ulong)(first_row / 4) * COLUMNS * 32;
      for (uint i = ITEM; i < COLUMNS * 32; i += ITEM_COUNT) space[i] = from[i];
    }
    BARRIER;
    FOR_EACH_ITEM {
      TAKE_SHARDS
      if (GROUP != 0) {
        const element_index tile = TILE;
        for (uint i = 0; i < ELEMENTS_PER_ITEM; ++i) {
          const uint at_in_tile = (i * LOCAL_SIZE(1) + LOCAL_ID(1)) * LOCAL_SIZE(0) + LOCAL_ID(0);
          const element_index at = tile * TILE_ELEMENTS + at_in_tile;
          if (at < ELEMENT_COUNT) {
            uint sums[ELEMENT_BYTES];
            for (uint b = 0; b < ELEMENT_BYTES; ++b) sums[b] = 0;
            union element_words next;
            next.whole = ZERO;
            if (COLUMNS != 0) next.whole = LOAD(AT(ANY_INPUT(0)));
            for (uint c = 0; c < COLUMNS; ++c) {
              const union element_words x = next;
              if (c + 1 < COLUMNS) next.whole = LOAD(AT(ANY_INPUT(c + 1)));  // on its way meanwhile
              LOOK_UP(sums, space + c * 32, x.words);
            }
            SUMS_TO_OUTPUTS(sums);
            UNROLL for (uint r = 0; r < 4; ++r) {
              if (r < row_count) {
                union element_words y;
                for (uint w = 0; w < ELEMENT_BYTES / 4; ++w) y.words[w] = OUTPUT_WORD(sums, w, r);
                FINISH(first_row + r, ANY_OUTPUT(first_row + r), y.whole);
              }
            }
          }
        }
      } else {
        const ulong tile_count = TILE_COUNT;
        const uint edge_bytes = (uint)(begin + (length - end));
        for (uint e = ITEM; e < edge_bytes; e += ITEM_COUNT) {
          const ulong place = e < begin ? e : end + (e - begin);
          uint sum = 0;
          for (uint c = 0; c < COLUMNS; ++c) {
            const uint byte = ANY_INPUT(c)[place];
            sum ^= space[c * 32 + (byte & 15)] ^ space[c * 32 + 16 + (byte >> 4)];
          }
          for (uint r = 0; r < row_count; ++r) {
            FINISH_BYTE(first_row + r, ANY_OUTPUT(first_row + r), sum >> r * 8);
          }
        }
      }
    }
    BARRIER;
  }
}
