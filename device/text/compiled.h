// Frame of technique `compiled`, around the passes that are generated from the matrix.
{
  TAKE_ARGUMENTS
  const ulong tile_count = (end - begin + TILE_BYTES - 1) / TILE_BYTES;
  FOR_EACH_ITEM {
    if (GROUP != LAST_GROUP) {
      const ulong tile = GROUP * LOCAL_SIZE(2) + LOCAL_ID(2);
      const ulong tile_start = begin + tile * TILE_BYTES;
      for (uint i = 0; i < ELEMENTS_PER_ITEM; ++i) {
        ulong at = tile_start + (ulong)(i * LOCAL_SIZE(0) + LOCAL_ID(0)) * ELEMENT_BYTES;
        if (at < end) {
          for (uint pass = LOCAL_ID(1); pass < PASS_COUNT; pass += LOCAL_SIZE(1)) {
            //[passes]
          }
        }
      }
    } else {
      TAKE_SHARDS
      const uint edge_bytes = (uint)(begin + (length - end));
      for (uint i = ITEM; i < edge_bytes * ROWS; i += ITEM_COUNT) {
        const uint row = i % ROWS, e = i / ROWS;
        const ulong at = e < begin ? e : end + (e - begin);
        uint sum = 0;
        for (uint c = 0; c < COLUMNS; ++c) sum ^= product(matrix[row * COLUMNS + c], ANY_INPUT(c)[at]);
        FINISH_BYTE(row, ANY_OUTPUT(row), sum);
      }
    }
  }
}
