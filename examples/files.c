/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes a file into 4 + 2 shard files in six folders, loses two folders, reads a range and decodes the file.
 *   cc files.c $(pkg-config --cflags --libs tandem) -o files && ./files      in a folder where it may write */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/files.h>

enum { K = 4, M = 2, CONTENT_BYTES = 3000017 };

static void check(tandem_status status) {
  if (status == TANDEM_OK) return;
  fprintf(stderr, "%s: %s\n", tandem_status_name(status), tandem_last_error_message());
  exit(1);
}

static unsigned char byte_at(size_t offset) { return (unsigned char)(offset * 7 + offset / 1000); }

static void write_original(const char *path) {
  FILE *file = fopen(path, "wb");
  if (file == NULL) exit((perror(path), 1));
  for (size_t i = 0; i < CONTENT_BYTES; ++i) fputc(byte_at(i), file);
  if (fclose(file) != 0) exit((perror(path), 1));
}

static int is_original(const char *path) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) exit((perror(path), 1));
  size_t good = 0;
  while (good < CONTENT_BYTES && fgetc(file) == byte_at(good)) ++good;
  const int is_whole = good == CONTENT_BYTES && fgetc(file) == EOF;
  fclose(file);
  return is_whole;
}

int main(void) {
  const char *folders[K + M] = {"disk0", "disk1", "disk2", "disk3", "disk4", "disk5"};
  write_original("original");
  tandem_context *context;
  check(tandem_context_create(NULL, &context));

  tandem_files_encode_options encode = {.struct_bytes = sizeof encode, .source_path = "original", .k = K, .m = M};
  encode.folders = folders; /* shard i goes to disk i */
  encode.folder_count = K + M;
  encode.force = 1; /* a set of an earlier run is replaced */
  check(tandem_files_encode(context, &encode, NULL));

  /* disk1 and disk4 are lost: they are not named any more. */
  const char *left[] = {"disk0", "disk2", "disk3", "disk5"};
  tandem_files_search *search;
  check(tandem_files_search_create(left, 4, &search));

  /* A range: only the blocks that it needs are read or computed. */
  tandem_files_reader *reader;
  check(tandem_files_reader_create(context, search, NULL, &reader));
  unsigned char range[1000];
  check(tandem_files_reader_read(reader, 2000000, range, sizeof range));
  for (size_t i = 0; i < sizeof range; ++i)
    if (range[i] != byte_at(2000000 + i)) exit((fprintf(stderr, "byte %zu of the range is wrong\n", i), 1));
  tandem_files_reader_destroy(reader);

  tandem_files_decode_options decode = {.struct_bytes = sizeof decode, .output_path = "copy", .force = 1};
  tandem_files_result result = {.struct_bytes = sizeof result};
  check(tandem_files_decode(context, search, &decode, &result));
  const int good = is_original("copy");
  printf("%s, %llu blocks rebuilt\n", good ? "the copy is the original" : "the copy is wrong",
         (unsigned long long)result.rebuilt_block_count);

  tandem_files_search_destroy(search);
  tandem_context_destroy(context);
  return good ? 0 : 1;
}
