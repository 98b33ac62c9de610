// SPDX-License-Identifier: Apache-2.0
// Frame of technique `compiled`, around the passes that are generated from the matrix.
{
  TAKE_ARGUMENTS
  FOR_EACH_ITEM {
    if (GROUP != 0) {
      const element_index tile = TILE;
      for (uint i = 0; i < ELEMENTS_PER_ITEM; ++i) {
        const uint at_in_tile = i * LOCAL_SIZE(0) + LOCAL_ID(0);
        element_index at = tile * TILE_ELEMENTS + at_in_tile;
        if (at < ELEMENT_COUNT) {
          for (uint pass = LOCAL_ID(1); pass < PASS_COUNT; pass += LOCAL_SIZE(1)) {
            //[passes]
          }
        }
      }
    } else {
      CODE_ENDS
    }
  }
}
