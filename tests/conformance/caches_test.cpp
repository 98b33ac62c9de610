// SPDX-License-Identifier: Apache-2.0
// Caches of codecs and threads: solved patterns and plans, up to a number of bytes.
#include <algorithm>
#include <memory>
#include <vector>

#include "api/objects.hpp"
#include "api/plan_cache.hpp"
#include "tests/support/api.hpp"

namespace tandem::test {
namespace {

using core::Application;
using core::ShardSet;

tandem_codec_options options16(std::int32_t matrix, std::uint32_t k, std::uint32_t m) {
  tandem_codec_options options = codec_options(k, m, matrix);
  options.field = TANDEM_FIELD_GF16;
  options.allow_non_mds = matrix == TANDEM_MATRIX_PAR2;
  return options;
}

ShardSet shards(unsigned begin, unsigned end) {
  ShardSet set;
  for (unsigned i = begin; i < end; ++i) set.set(i);
  return set;
}

// Matrices of 8 MiB.
constexpr unsigned kData = 8192, kParity = 512;
constexpr std::size_t kMatrixBytes = std::size_t{kData} * kParity * 2;

template <class Kept>
void expect_the_latest(const std::vector<std::weak_ptr<const Kept>> &made, std::size_t most) {
  for (std::size_t i = 0; i < made.size(); ++i)
    EXPECT_EQ(made[i].expired(), i + most < made.size()) << i << " of " << made.size();
}

TEST(Caches, ACodecKeepsAsManyLargePatternsAsItsBoundHolds) {
  constexpr unsigned kLost = 2048;  // its decode keeps a matrix of kLost x kLost, and logarithms and exponents
  constexpr std::size_t kPatternBytes = 2 * (std::size_t{kLost} * kLost + kData);
  const Codec codec = make_codec(options16(TANDEM_MATRIX_PAR2, kData, kLost));
  constexpr std::size_t kMost = core::Codec::kCachedBytes / kPatternBytes;
  std::vector<std::weak_ptr<const Application>> made;
  const auto decode = [&](unsigned first) {
    ShardSet present = shards(0, first);
    for (unsigned i = first + kLost; i < kData + kLost; ++i) present.set(i);
    return codec->codec->decode(present, shards(first, first + kLost));
  };
  for (unsigned i = 0; i < kMost + 2; ++i) {
    const auto kept = decode(i);
    EXPECT_EQ(kept->what.memory_bytes(), kPatternBytes);
    made.push_back(kept);
  }
  expect_the_latest(made, kMost);
  EXPECT_EQ(decode(2), made[2].lock()) << "solved again";
}

TEST(Caches, AThreadKeepsAsManyLargePlansAsItsBoundHolds) {
  const Context context = make_context("serial");
  tandem_codec_options options = options16(TANDEM_MATRIX_CUSTOM, kData, kParity + 1);
  const std::vector<std::uint16_t> cells(std::size_t{kData} * (kParity + 1), 1);
  options.coefficients = cells.data();
  options.allow_non_mds = 1;
  const Codec codec = make_codec(options);
  std::vector<std::weak_ptr<const core::Plan>> made;
  for (unsigned i = 0; i < 10; ++i) {
    core::Shape shape;  // all parity but one shard
    for (unsigned r = kData; r < kData + kParity + 1; ++r)
      if (r != kData + i) shape.wanted.set(r);
    made.push_back(api::shared_plan(*context, *codec, shape));
    EXPECT_EQ(made.back().lock()->memory_bytes(), kMatrixBytes);
  }
  expect_the_latest(made, (std::size_t{64} << 20) / kMatrixBytes);
}

// Nor does the second pass of a verify, which solves a pattern of its own, put others out.
TEST(Caches, AVerifyKeepsWhatADecodeFound) {
  constexpr unsigned k = 100, m = 20;
  constexpr std::size_t kBytes = 64;
  const Context context = make_context("serial");
  const Codec codec = make_codec(options16(TANDEM_MATRIX_LEOPARD16, k, m));
  std::vector<std::weak_ptr<const Application>> made;
  for (unsigned i = 0; i < core::Codec::kCachedPatterns; ++i) {
    ShardSet present = shards(0, i);
    for (unsigned s = i + 1; s < k + m; ++s) present.set(s);
    made.push_back(codec->codec->decode(present, shards(i, i + 1)));
  }
  std::vector<Bytes> memory(k + m, Bytes(kBytes, 0));
  std::vector<const void *> pointers;
  for (Bytes &each : memory) pointers.push_back(each.data());
  memory[3][5] = 1;
  tandem_verify_result result = {};
  result.struct_bytes = sizeof result;
  ASSERT_EQ(tandem_verify(context.get(), codec.get(), pointers.data(), kBytes, &result), TANDEM_OK);
  EXPECT_EQ(result.suspect_shard, 3u);
  expect_the_latest(made, made.size());
}

}  // namespace
}  // namespace tandem::test
