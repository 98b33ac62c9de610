/* SPDX-License-Identifier: Apache-2.0 */
/* Needs libtandem_par2 alone; libtandem comes with it. */
#include <tandem/par2.h>

int main(void) { return tandem_par2_verify(NULL, NULL) == TANDEM_ERROR_INVALID_ARGUMENT ? 0 : 1; }
