/* SPDX-License-Identifier: Apache-2.0 */
/* A program as ISA-L's users write them: compiled with its headers, linked with -lisal. Its standard output
 * must be the same with every libisal; standard error names the library.
 *
 * - client                  every function of erasure code and RAID
 * - client reopen LIBRARY   opens and closes it 100 times
 * - client namespaces LIBRARY  opens it 40 times, each in a namespace of its own
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <isa-l.h>

enum { most_shards = 255 };

static uint64_t random_state = 1;

static unsigned char random_byte(void) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (unsigned char)(random_state >> 56);
}

static uint64_t checksum(uint64_t sum, const void *bytes, size_t count) { /* FNV-1a */
  for (size_t i = 0; i < count; ++i) sum = (sum ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
  return sum;
}

static const uint64_t empty_sum = 14695981039346656037u;

static void *allocate(size_t bytes) {
  void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (memory == NULL) abort();
  memset(memory, 0, bytes);
  return memory;
}

static int in_maps(const char *name) {
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[8192];
  int found = 0;
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) found |= strstr(line, name) != NULL;
  if (maps != NULL) fclose(maps);
  return found;
}

static void say_who_serves(void *function) {
  Dl_info info;
  if (dladdr(function, &info) == 0) abort();
  fprintf(stderr, "served by %s\n", info.dli_fname);
}

static uint64_t sum_of_shards(unsigned char *const *shards, int count, int len) {
  uint64_t sum = empty_sum;
  for (int i = 0; i < count; ++i) sum = checksum(sum, shards[i], (size_t)len);
  return sum;
}

typedef void generator(unsigned char *, int, int);

/* Encodes, loses the first shards and every second one after, as many as there is parity, and gets them back. */
static void erasure_code(const char *name, generator *generate, int k, int m, int len, int misalignment) {
  const int n = k + m;
  unsigned char *shards[most_shards], *out[most_shards], *survivors[most_shards];
  unsigned char *matrix = allocate((size_t)n * k), *square = allocate((size_t)k * k),
                *inverse = allocate((size_t)k * k);
  unsigned char *tables = allocate((size_t)32 * k * n), *rows = allocate((size_t)k * m);
  unsigned char *base_tables = allocate((size_t)32 * k * m);
  for (int i = 0; i < n; ++i) shards[i] = (unsigned char *)allocate((size_t)len + 64) + (misalignment * (i + 1)) % 64;
  for (int i = 0; i < m; ++i) out[i] = allocate((size_t)len);
  for (int i = 0; i < k; ++i)
    for (int b = 0; b < len; ++b) shards[i][b] = random_byte();

  generate(matrix, n, k);
  ec_init_tables(k, m, matrix + k * k, tables);
  ec_encode_data(len, k, m, tables, shards, shards + k);
  printf("%s %d+%d %d: matrix %016llx parity %016llx", name, k, m, len,
         (unsigned long long)checksum(empty_sum, matrix, (size_t)n * k),
         (unsigned long long)sum_of_shards(shards + k, m, len));

  for (int i = 0; i < k; ++i) ec_encode_data_update(len, k, m, i, tables, shards[i], out);
  printf(" updated %016llx", (unsigned long long)sum_of_shards(out, m, len));
  /* the layout that the _base functions want: ec_init_tables of 2.31 and later may write another one */
  for (int i = 0; i < 32 * k * m; ++i)
    base_tables[i] = gf_mul(matrix[k * k + i / 32], (unsigned char)(i % 32 < 16 ? i % 16 : i % 16 << 4));
  ec_encode_data_base(len, k, m, base_tables, shards, out);
  printf(" base %016llx", (unsigned long long)sum_of_shards(out, m, len));
  if (len >= 64) { /* the least that these two accept */
    gf_vect_dot_prod(len, k, tables, shards, out[0]);
    printf(" product %016llx", (unsigned long long)sum_of_shards(out, 1, len));
    for (int i = 0; i < k; ++i) gf_vect_mad(len, k, i, tables, shards[i], out[0]); /* each twice: nothing is left */
    printf(" nothing %016llx", (unsigned long long)sum_of_shards(out, 1, len));
  }

  int lost[most_shards], lost_count = 0, kept = 0;
  for (int i = 0; i < n; ++i) {
    if (lost_count < m && (i == 0 || i % 2 == 1 || n - i <= m - lost_count)) {
      lost[lost_count++] = i;
    } else if (kept < k) {
      memcpy(square + k * kept, matrix + k * i, (size_t)k);
      survivors[kept++] = shards[i];
    }
  }
  const int status = gf_invert_matrix(square, inverse, k);
  printf(" inverted %d", status);
  if (status == 0) {
    int wanted = 0;
    while (wanted < lost_count && lost[wanted] < k) {
      memcpy(rows + k * wanted, inverse + k * lost[wanted], (size_t)k);
      ++wanted;
    }
    ec_init_tables(k, wanted, rows, tables);
    ec_encode_data(len, k, wanted, tables, survivors, out);
    int same = 0;
    for (int i = 0; i < wanted; ++i) same += memcmp(out[i], shards[lost[i]], (size_t)len) == 0;
    printf(" recovered %d of %d", same, wanted);
  }
  printf("\n");
  for (int i = 0; i < n; ++i) free(shards[i] - (misalignment * (i + 1)) % 64);
  for (int i = 0; i < m; ++i) free(out[i]);
  free(matrix), free(square), free(inverse), free(tables), free(rows), free(base_tables);
}

static void raid(int count, int len) {
  void *shards[most_shards];
  for (int i = 0; i < count; ++i) {
    shards[i] = allocate((size_t)len);
    for (int b = 0; b < len; ++b) ((unsigned char *)shards[i])[b] = random_byte();
  }
  printf("raid %d %d: xor %d", count, len, xor_gen(count, len, shards));
  printf(" %016llx check %d", (unsigned long long)checksum(empty_sum, shards[count - 1], (size_t)len),
         xor_check(count, len, shards));
  ((unsigned char *)shards[0])[len / 2] ^= 1;
  printf(" damaged %d", xor_check(count, len, shards) != 0);
  printf(" pq %d", pq_gen(count, len, shards));
  printf(" %016llx %016llx check %d", (unsigned long long)checksum(empty_sum, shards[count - 2], (size_t)len),
         (unsigned long long)checksum(empty_sum, shards[count - 1], (size_t)len), pq_check(count, len, shards));
  ((unsigned char *)shards[count - 1])[len - 1] ^= 1;
  printf(" damaged %d\n", pq_check(count, len, shards) != 0);
  for (int i = 0; i < count; ++i) free(shards[i]);
}

static void arithmetic(void) {
  unsigned char products[256], *from = allocate(1024), *to = allocate(1024), tables[32];
  uint64_t sum = empty_sum;
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) products[b] = gf_mul((unsigned char)a, (unsigned char)b);
    sum = checksum(sum, products, sizeof products);
    products[0] = gf_inv((unsigned char)a);
    sum = checksum(sum, products, 1);
  }
  for (int i = 0; i < 1024; ++i) from[i] = random_byte();
  gf_vect_mul_init(0x8e, tables);
  printf("arithmetic %016llx gf_vect_mul %d", (unsigned long long)sum, gf_vect_mul(1024, tables, from, to));
  printf(" %016llx odd length %d\n", (unsigned long long)checksum(empty_sum, to, 1024),
         gf_vect_mul(33, tables, from, to) != 0);
  free(from), free(to);
}

static void all(void) {
  static const int shapes[][2] = {{1, 1},  {2, 1},   {4, 2},  {6, 3},    {10, 4},
                                  {16, 4}, {20, 10}, {32, 8}, {128, 32}, {200, 55}};
  static const int lengths[] = {1, 31, 64, 1000, 4096, 65537};
  for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; ++shape) {
    for (size_t length = 0; length < sizeof lengths / sizeof *lengths; ++length) {
      const int k = shapes[shape][0], m = shapes[shape][1], len = k > 32 ? lengths[length] % 5000 : lengths[length];
      erasure_code("cauchy", gf_gen_cauchy1_matrix, k, m, len, (int)length % 3);
      erasure_code("vandermonde", gf_gen_rs_matrix, k, m, len, (int)length % 2);
    }
  }
  for (int count = 4; count <= 20; count += 4)
    for (int len = 32; len <= 32768; len *= 32) raid(count, len);
  arithmetic();
}

typedef unsigned char multiply(unsigned char, unsigned char);

static int reopen(const char *library) {
  for (int i = 0; i < 100; ++i) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
    multiply *function = (multiply *)dlsym(handle, "gf_mul");
    if (function == NULL || function(0x80, 2) != 0x1d) return fprintf(stderr, "0x80 * 2 is wrong\n"), 1;
    dlclose(handle);
  }
  char file[PATH_MAX];
  if (realpath(library, file) == NULL) return perror(library), 1;
  puts(in_maps(file) ? "stays" : "unloaded");
  return 0;
}

static int namespaces(const char *library) {
  int opened = 0;
  for (int i = 0; i < 40; ++i) {
    void *handle = dlmopen(LM_ID_NEWLM, library, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) break;
    multiply *function = (multiply *)dlsym(handle, "gf_mul");
    opened += function != NULL && function(0x80, 2) == 0x1d;
    dlclose(handle);
  }
  printf("%d of 40\n", opened);
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "reopen") == 0) return reopen(argv[2]);
  if (argc == 3 && strcmp(argv[1], "namespaces") == 0) return namespaces(argv[2]);
  say_who_serves((void *)ec_encode_data);
  say_who_serves((void *)pq_gen);
  all();
  return fflush(stdout) != 0;
}
