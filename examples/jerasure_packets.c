/* SPDX-License-Identifier: Apache-2.0 */
/* The parity bytes of Jerasure's cauchy_good with w = 8 and packets of 2048 bytes, as Ceph writes them by default.
 *   cc jerasure_packets.c $(pkg-config --cflags --libs tandem) -o jerasure_packets && ./jerasure_packets */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/tandem.h>

enum { K = 6, M = 3, W = 8, PACKET_BYTES = 2048, SHARD_BYTES = 10 * W * PACKET_BYTES }; /* 10 groups of packets */

static void check(tandem_status status) {
  if (status == TANDEM_OK) return;
  fprintf(stderr, "%s: %s\n", tandem_status_name(status), tandem_last_error_message());
  exit(1);
}

int main(void) {
  tandem_codec_options options = {.struct_bytes = sizeof options, .k = K, .m = M};
  options.matrix = TANDEM_MATRIX_JERASURE_CAUCHY_GOOD;
  options.layout = TANDEM_LAYOUT_PACKETS;
  options.word_bits = W;
  options.packet_bytes = PACKET_BYTES;
  tandem_codec *codec;
  check(tandem_codec_create(&options, &codec));
  tandem_context *context;
  check(tandem_context_create(NULL, &context));

  void *shards[K + M];
  check(tandem_shards_allocate(K + M, SHARD_BYTES, 0, shards));
  for (int shard = 0; shard < K; ++shard)
    for (int i = 0; i < SHARD_BYTES; ++i) ((unsigned char *)shards[shard])[i] = (unsigned char)(shard * 31 + i * 7);
  check(tandem_encode(context, codec, (const void *const *)shards, shards + K, SHARD_BYTES));

  /* Parity row 0 of cauchy_good is ones, so its packets are the XOR of all data packets. */
  int good = 1;
  for (int i = 0; i < SHARD_BYTES; ++i) {
    unsigned char sum = 0;
    for (int shard = 0; shard < K; ++shard) sum ^= ((const unsigned char *)shards[shard])[i];
    good &= sum == ((const unsigned char *)shards[K])[i];
  }

  unsigned char present[K + M] = {1, 0, 1, 1, 0, 1, 0, 1, 1}; /* data shards 1 and 4 and parity shard 0 are lost */
  for (int shard = 0; shard < K + M; ++shard)
    if (!present[shard]) memset(shards[shard], 0, SHARD_BYTES);
  check(tandem_decode(context, codec, shards, present, SHARD_BYTES));
  for (int i = 0; i < SHARD_BYTES; ++i)
    good &= ((const unsigned char *)shards[4])[i] == (unsigned char)(4 * 31 + i * 7);
  puts(good ? "the packets are right" : "the packets are wrong");

  tandem_shards_free(shards[0]);
  tandem_context_destroy(context);
  tandem_codec_destroy(codec);
  return good ? 0 : 1;
}
