/* SPDX-License-Identifier: Apache-2.0 */
/* Like Ceph's plugin, this has its own copy of ISA-L's functions and exports them. The copy is wrong on purpose. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

void ec_init_tables(int k, int rows, unsigned char *a, unsigned char *gftbls) {
  (void)a;
  memset(gftbls, 0, (size_t)32 * (size_t)k * (size_t)rows);
}

void ec_encode_data(int len, int k, int rows, unsigned char *gftbls, unsigned char **data, unsigned char **coding) {
  (void)k, (void)gftbls, (void)data;
  for (int i = 0; i < rows; ++i) memset(coding[i], 0xee, (size_t)len);
}

int plugin_run(void);
int plugin_run(void) {
  unsigned char coefficients[2] = {1, 2}, tables[64], a[40], b[40], c[40], *data[2] = {a, b}, *coding[1] = {c};
  memset(a, 0x11, sizeof a);
  memset(b, 0x80, sizeof b);
  ec_init_tables(2, 1, coefficients, tables);
  ec_encode_data(sizeof a, 2, 1, tables, data, coding);
  Dl_info info;
  if (dladdr((void *)ec_encode_data, &info) == 0) return 1;
  fprintf(stderr, "served by %s\n", info.dli_fname);
  printf("%02x%02x\n", c[0], c[39]);
  return 0;
}
