/* SPDX-License-Identifier: Apache-2.0 */
/* Needs libtandem_volume alone; libtandem comes with it. */
#include <tandem/volume.h>

int main(void) { return tandem_volume_open(NULL, NULL, NULL) == TANDEM_ERROR_INVALID_ARGUMENT ? 0 : 1; }
