// SPDX-License-Identifier: Apache-2.0
// Frame of technique `transform`, around the phases that are generated from the points.
{
  TAKE_ARGUMENTS
  TAKE_SUMS
  if (GROUP == 0) {
    FOR_EACH_ITEM { CODE_ENDS }
  } else if (FIRST_OF_TILE < ELEMENT_COUNT) {  // the same for all items, so all or none reach the barriers
    //[phases]
  }
}
