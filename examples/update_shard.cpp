// SPDX-License-Identifier: Apache-2.0
// Changes one data shard and its parity without reading the other shards. Then finds a damaged shard without checksums
// and puts it right.
//   c++ -std=c++20 update_shard.cpp $(pkg-config --cflags --libs tandem) -o update_shard && ./update_shard
#include <algorithm>
#include <cstdio>
#include <tandem/tandem.hpp>
#include <vector>
#include "tandem/diagnose.h"

int main() try {
  const tandem::Codec codec(10, 4);
  const tandem::Context context;
  tandem::Shards shards(codec.shard_count(), 64 << 10);  // data first, then parity
  for (std::uint32_t shard = 0; shard < codec.k(); ++shard)
    std::ranges::fill(shards[shard], static_cast<std::byte>('a' + shard));
  tandem::encode(context, codec, shards);

  const std::vector<std::byte> changed(shards.shard_bytes(), std::byte{'Z'});
  tandem::update(context, codec, shards, 7, changed);  // writes the four parity shards
  std::ranges::copy(changed, shards[7].begin());
  const bool is_consistent = tandem::verify(context, codec, shards).consistent == 1;

  shards[3][1000] ^= std::byte{0x40};  // two shards rot
  shards[12][5] ^= std::byte{0x01};
  tandem_locate_options options = {};
  options.struct_bytes = sizeof options;
  options.repair = 1;
  tandem_locate_result result = {};
  result.struct_bytes = sizeof result;
  tandem::check(tandem_locate(context.get(), codec.get(), shards.pointers(), shards.shard_bytes(), &options, &result));
  std::printf("%u damaged shards, %s\n", result.damaged_shard_count,
              result.repaired != 0 ? "repaired" : "not repaired");

  const bool good = is_consistent && result.damaged_shard_count == 2 && shards[3][1000] == std::byte{'d'};
  return good && tandem::verify(context, codec, shards).consistent == 1 ? 0 : 1;
} catch (const tandem::Error &error) {
  std::fprintf(stderr, "%s: %s\n", tandem_status_name(error.status()), error.what());
  return 1;
}
