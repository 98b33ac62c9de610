/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes 4 data shards into 2 parity shards, loses two of the six, and gets them back.
 *   cc lose_two.c $(pkg-config --cflags --libs tandem) -o lose_two && ./lose_two */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/tandem.h>

enum { K = 4, M = 2, SHARD_BYTES = 1 << 20 };

static void check(tandem_status status) {
  if (status == TANDEM_OK) return;
  fprintf(stderr, "%s: %s\n", tandem_status_name(status), tandem_last_error_message());
  exit(1);
}

int main(void) {
  tandem_codec_options options = {.struct_bytes = sizeof options, .k = K, .m = M};
  tandem_codec *codec;
  check(tandem_codec_create(&options, &codec));
  tandem_context *context; /* all defaults: every core, and a GPU once it pays */
  check(tandem_context_create(NULL, &context));

  void *shards[K + M]; /* data first, then parity */
  check(tandem_shards_allocate(K + M, SHARD_BYTES, 0, shards));
  for (int shard = 0; shard < K; ++shard) memset(shards[shard], 'a' + shard, SHARD_BYTES);
  check(tandem_encode(context, codec, (const void *const *)shards, shards + K, SHARD_BYTES));

  unsigned char present[K + M] = {1, 0, 1, 1, 0, 1}; /* data shard 1 and parity shard 0 are gone */
  memset(shards[1], 0, SHARD_BYTES);
  memset(shards[4], 0, SHARD_BYTES);
  check(tandem_decode(context, codec, shards, present, SHARD_BYTES));

  tandem_verify_result result = {.struct_bytes = sizeof result};
  check(tandem_verify(context, codec, (const void *const *)shards, SHARD_BYTES, &result));
  const int good = result.consistent && *(const char *)shards[1] == 'b';
  puts(good ? "both shards are back" : "the shards are wrong");

  tandem_shards_free(shards[0]);
  tandem_context_destroy(context);
  tandem_codec_destroy(codec);
  return good ? 0 : 1;
}
