/* SPDX-License-Identifier: Apache-2.0 */
/* Opens libisal.so.2 by its name, as liberasurecode does. Checks which library that is, what it computes, and whether
 * it has a function of ISA-L that Tandem lacks. Usage: isal LIBRARY, the file that must be the one opened. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned char multiply(unsigned char, unsigned char);
typedef void make_tables(int, int, unsigned char *, unsigned char *);
typedef void encode(int, int, int, unsigned char *, unsigned char **, unsigned char **);

static int fail(const char *what) {
  fprintf(stderr, "%s\n", what);
  return 1;
}

int main(int argc, char **argv) {
  enum { k = 2, bytes = 100003 };
  void *library = dlopen("libisal.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL || argc != 2) return fail(library == NULL ? dlerror() : "usage: isal LIBRARY");
  multiply *gf_mul = (multiply *)dlsym(library, "gf_mul");
  make_tables *ec_init_tables = (make_tables *)dlsym(library, "ec_init_tables");
  encode *ec_encode_data = (encode *)dlsym(library, "ec_encode_data");
  Dl_info info;
  if (gf_mul == NULL || ec_init_tables == NULL || ec_encode_data == NULL) return fail("a function is missing");
  if (dladdr((void *)ec_encode_data, &info) == 0 || strcmp(info.dli_fname, argv[1]) != 0) return fail(info.dli_fname);

  unsigned char coefficients[k] = {3, 7}, tables[32 * k], *data[k], *parity = malloc(bytes);
  for (int i = 0; i < k; ++i) {
    data[i] = malloc(bytes);
    if (data[i] == NULL || parity == NULL) return fail("no memory");
    for (int b = 0; b < bytes; ++b) data[i][b] = (unsigned char)(b * 31 + i * 5 + (b >> 8));
  }
  ec_init_tables(k, 1, coefficients, tables);
  ec_encode_data(bytes, k, 1, tables, data, &parity);
  for (int b = 0; b < bytes; ++b)
    if (parity[b] != (gf_mul(3, data[0][b]) ^ gf_mul(7, data[1][b]))) return fail("wrong parity");
  puts(dlsym(library, "isal_deflate") != NULL ? "with deflate" : "without deflate");
  return 0;
}
