/* SPDX-License-Identifier: Apache-2.0 */
/* A user's program in C11: encodes, loses as many shards as there is parity, rebuilds them, compares.
 * Argument: "with" if the OpenMP module was installed beside the library, "without" if not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tandem/files.h"
#include "tandem/tandem.h"
#include "tandem/tools.h"

enum { K = 10, M = 4, SHARD_BYTES = 300001 };

static void check(tandem_status status, const char *what) {
  if (status == TANDEM_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, tandem_status_name(status), tandem_last_error_message());
  exit(1);
}

static void encode_and_rebuild(tandem_context *context, const tandem_codec *codec) {
  static const int lost[M] = {0, 7, 10, 13};
  uint8_t present[K + M];
  void *shards[K + M], *originals[K + M];
  check(tandem_shards_allocate(K + M, SHARD_BYTES, 0, shards), "tandem_shards_allocate");
  check(tandem_shards_allocate(K + M, SHARD_BYTES, 0, originals), "tandem_shards_allocate");
  for (int i = 0; i < K; ++i)
    for (size_t at = 0; at < SHARD_BYTES; ++at) ((uint8_t *)shards[i])[at] = (uint8_t)((at * 31 + (size_t)i * 7) % 251);

  check(tandem_encode(context, codec, (const void *const *)shards, shards + K, SHARD_BYTES), "tandem_encode");

  for (int i = 0; i < K + M; ++i) memcpy(originals[i], shards[i], SHARD_BYTES);
  memset(present, 1, sizeof present);
  for (int i = 0; i < M; ++i) {
    present[lost[i]] = 0;
    memset(shards[lost[i]], 0xee, SHARD_BYTES);
  }
  check(tandem_decode(context, codec, shards, present, SHARD_BYTES), "tandem_decode");
  for (int i = 0; i < K + M; ++i) {
    if (memcmp(originals[i], shards[i], SHARD_BYTES) == 0) continue;
    fprintf(stderr, "shard %d came back wrong\n", i);
    exit(1);
  }
  tandem_shards_free(shards[0]);
  tandem_shards_free(originals[0]);
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  const int with_openmp = strcmp(argv[1], "with") == 0;
  char version[40];
  snprintf(version, sizeof version, "%d.%d.%d", TANDEM_VERSION_MAJOR, TANDEM_VERSION_MINOR, TANDEM_VERSION_PATCH);
  if (strcmp(tandem_version_string(), version) != 0) {
    fprintf(stderr, "the library is version %s, the header is %s\n", tandem_version_string(), version);
    return 1;
  }

  tandem_codec *codec;
  tandem_codec_options codec_options = {.struct_bytes = sizeof codec_options, .k = K, .m = M};
  check(tandem_codec_create(&codec_options, &codec), "tandem_codec_create");

  tandem_context *context;
  check(tandem_context_create(NULL, &context), "tandem_context_create");
  encode_and_rebuild(context, codec);
  tandem_context_destroy(context);

  /* Two threads, so that the module really has something to do. */
  tandem_context_options openmp = {.struct_bytes = sizeof openmp, .expert = "executor=openmp", .thread_count = 2};
  const tandem_status status = tandem_context_create(&openmp, &context);
  if (with_openmp) {
    check(status, "tandem_context_create with the executor openmp");
    encode_and_rebuild(context, codec);
    tandem_context_destroy(context);
  } else if (status != TANDEM_ERROR_UNAVAILABLE) {
    fprintf(stderr, "without the OpenMP module: %s\n", tandem_status_name(status));
    return 1;
  }
  tandem_codec_destroy(codec);
  printf("tandem %s: encoded, lost %d shards, rebuilt them\n", tandem_version_string(), M);
  return 0;
}
