// SPDX-License-Identifier: Apache-2.0
// lose_two.c with the C++ header: owners free what they made, and failures are exceptions.
//   c++ -std=c++20 lose_two.cpp $(pkg-config --cflags --libs tandem) -o lose_two && ./lose_two
#include <algorithm>
#include <array>
#include <cstdio>
#include <tandem/tandem.hpp>

int main() try {
  const tandem::Codec codec(4, 2);
  const tandem::Context context;
  tandem::Shards shards(codec.shard_count(), 1 << 20);  // data first, then parity
  for (std::uint32_t shard = 0; shard < codec.k(); ++shard)
    std::ranges::fill(shards[shard], static_cast<std::byte>('a' + shard));
  tandem::encode(context, codec, shards);

  const std::array<std::uint8_t, 6> present = {1, 0, 1, 1, 0, 1};  // data shard 1 and parity shard 0 are gone
  for (const std::size_t lost : {1, 4}) std::ranges::fill(shards[lost], std::byte{0});
  tandem::decode(context, codec, shards, present);

  const bool good = tandem::verify(context, codec, shards).consistent == 1 && shards[1][0] == std::byte{'b'};
  std::puts(good ? "both shards are back" : "the shards are wrong");
  return good ? 0 : 1;
} catch (const tandem::Error &error) {
  std::fprintf(stderr, "%s: %s\n", tandem_status_name(error.status()), error.what());
  return 1;
}
