/* SPDX-License-Identifier: Apache-2.0 */
/* A user of liberasurecode, which opens libisal.so.2 by itself.
 *   erasurecode_client write FOLDER    encodes every case and writes each fragment into a file
 *   erasurecode_client read FOLDER     drops fragments of each case, decodes and rebuilds
 * Runs in the process that made the descriptors. With a third argument, each case runs in a later child, as in the
 * workers of OpenStack Swift. Standard error names the libisal in memory.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <liberasurecode/erasurecode.h>

static const struct {
  ec_backend_id_t id;
  const char *name;
} backends[] = {
    {EC_BACKEND_ISA_L_RS_VAND, "isa_l_rs_vand"},
    {EC_BACKEND_ISA_L_RS_CAUCHY, "isa_l_rs_cauchy"},
#ifdef TANDEM_TEST_WITH_VAND_INV
    {EC_BACKEND_ISA_L_RS_VAND_INV, "isa_l_rs_vand_inv"},
#endif
};
static const int shapes[][2] = {{2, 1}, {4, 2}, {8, 3}, {10, 4}, {15, 3}}; /* 10+4, 15+3: usual with Swift */
static const size_t sizes[] = {1, 1000, 65537, 1048576};

enum { backend_count = sizeof backends / sizeof *backends, shape_count = 5, size_count = 4, most_fragments = 32 };

static int descriptors[backend_count][shape_count];

static int fail(const char *what, const char *where) {
  fprintf(stderr, "%s: %s\n", where, what);
  return 1;
}

static char *content(size_t bytes) {
  char *data = malloc(bytes);
  uint64_t state = bytes;
  for (size_t i = 0; data != NULL && i < bytes; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    data[i] = (char)(state >> 56);
  }
  return data;
}

static void say_which_isal(void) {
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[8192];
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
    if (strstr(line, "libisal") != NULL && strstr(line, " r-xp ") != NULL)
      fprintf(stderr, "served by %s", strchr(line, '/'));
  if (maps != NULL) fclose(maps);
}

static int write_case(const char *folder, int backend, int shape, size_t bytes) {
  const int k = shapes[shape][0], m = shapes[shape][1];
  char where[4096], *data = content(bytes), **data_fragments, **parity;
  uint64_t fragment_bytes;
  if (liberasurecode_encode(descriptors[backend][shape], data, bytes, &data_fragments, &parity, &fragment_bytes) != 0)
    return fail("cannot encode", folder);
  for (int i = 0; i < k + m; ++i) {
    snprintf(where, sizeof where, "%s/%s-%d-%d-%zu.%02d", folder, backends[backend].name, k, m, bytes, i);
    FILE *file = fopen(where, "wb");
    if (file == NULL || fwrite(i < k ? data_fragments[i] : parity[i - k], fragment_bytes, 1, file) != 1 ||
        fclose(file) != 0)
      return fail("cannot write", where);
  }
  liberasurecode_encode_cleanup(descriptors[backend][shape], data_fragments, parity);
  free(data);
  return 0;
}

static int read_case(const char *folder, int backend, int shape, size_t bytes) {
  const int k = shapes[shape][0], m = shapes[shape][1];
  char where[4096], *fragments[most_fragments];
  size_t fragment_bytes = 0;
  for (int i = 0; i < k + m; ++i) {
    snprintf(where, sizeof where, "%s/%s-%d-%d-%zu.%02d", folder, backends[backend].name, k, m, bytes, i);
    FILE *file = fopen(where, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) return fail("cannot read", where);
    fragment_bytes = (size_t)ftell(file);
    rewind(file);
    if (posix_memalign((void **)&fragments[i], 64, fragment_bytes) != 0 ||
        fread(fragments[i], fragment_bytes, 1, file) != 1 || fclose(file) != 0)
      return fail("cannot read", where);
  }
  char *data = content(bytes), *rebuilt = malloc(fragment_bytes);
  for (int first = 0; first < k + m; ++first) { /* m fragments from `first` on, round the end, are lost */
    char *left[most_fragments], *out = NULL;
    int left_count = 0;
    uint64_t out_bytes = 0;
    for (int i = 0; i < k + m; ++i)
      if ((i - first + k + m) % (k + m) >= m) left[left_count++] = fragments[i];
    if (liberasurecode_decode(descriptors[backend][shape], left, left_count, fragment_bytes, 1, &out, &out_bytes) !=
            0 ||
        out_bytes != bytes || memcmp(out, data, bytes) != 0)
      return fail("what was decoded is not what was encoded", where);
    liberasurecode_decode_cleanup(descriptors[backend][shape], out);
    if (liberasurecode_reconstruct_fragment(descriptors[backend][shape], left, left_count, fragment_bytes, first,
                                            rebuilt) != 0 ||
        memcmp(rebuilt, fragments[first], fragment_bytes) != 0)
      return fail("a rebuilt fragment is not what it was", where);
  }
  for (int i = 0; i < k + m; ++i) free(fragments[i]);
  free(data), free(rebuilt);
  return 0;
}

static int in_child(int (*one_case)(const char *, int, int, size_t), const char *folder, int backend, int shape,
                    size_t bytes) {
  const pid_t child = fork();
  if (child == 0) _exit(one_case(folder, backend, shape, bytes));
  int status = 1;
  return child < 0 || waitpid(child, &status, 0) != child || status != 0;
}

int main(int argc, char **argv) {
  if (argc < 3) return fail("usage: write|read FOLDER [fork]", argv[0]);
  int (*one_case)(const char *, int, int, size_t) = strcmp(argv[1], "write") == 0 ? write_case : read_case;
  for (int backend = 0; backend < backend_count; ++backend)
    for (int shape = 0; shape < shape_count; ++shape) {
      struct ec_args arguments = {
          .k = shapes[shape][0], .m = shapes[shape][1], .w = 8, .hd = shapes[shape][1] + 1, .ct = CHKSUM_CRC32};
      descriptors[backend][shape] = liberasurecode_instance_create(backends[backend].id, &arguments);
      if (descriptors[backend][shape] <= 0) return fail("liberasurecode has no such backend", backends[backend].name);
    }
  say_which_isal();
  int cases = 0;
  for (int backend = 0; backend < backend_count; ++backend)
    for (int shape = 0; shape < shape_count; ++shape)
      for (int size = 0; size < size_count; ++size, ++cases)
        if (argc > 3 ? in_child(one_case, argv[2], backend, shape, sizes[size])
                     : one_case(argv[2], backend, shape, sizes[size]))
          return 1;
  for (int backend = 0; backend < backend_count; ++backend)
    for (int shape = 0; shape < shape_count; ++shape) liberasurecode_instance_destroy(descriptors[backend][shape]);
  printf("%d cases\n", cases);
  return 0;
}
