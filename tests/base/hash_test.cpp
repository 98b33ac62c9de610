// SPDX-License-Identifier: Apache-2.0
// Every compilation of XXH3 gives xxHash's values.
#include "base/hash.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "tests/support/random.hpp"

namespace tandem::base {
extern const HashFunctions hash_portable;
#ifdef __x86_64__
extern const HashFunctions hash_avx2;
#endif
}  // namespace tandem::base

namespace tandem::test {
namespace {

// Values of xxHash's own command line tool: printf 'abc' | xxhsum -H3, -H128.
TEST(Hash, KnownValues) {
  EXPECT_EQ(base::hash64("", 0), 0x2d06800538d394c2u);
  EXPECT_EQ(base::hash64("abc", 3), 0x78af5f94892f3950u);
  EXPECT_EQ(base::hexadecimal(base::printed_order(base::hash128("abc", 3))), "06b05ab6733a618578af5f94892f3950");
}

// Values of xxHash 0.8.1 without vector instructions.
TEST(Hash, SeedsAreXxHashs) {
  std::vector<std::uint8_t> block(4096);
  for (std::size_t i = 0; i < block.size(); ++i) block[i] = static_cast<std::uint8_t>(i);
  EXPECT_EQ(base::hash64("abc", 3, 37), 0x33f2dddcbc65f5dau);
  EXPECT_EQ(base::hash64(block.data(), block.size(), 37), 0x4cddc79824eca58fu);
}

// Lengths around all limits between the methods of XXH3 (16, 128, 240, 1024), and blocks of a volume.
TEST(Hash, InstructionSetsAgree) {
#ifdef __x86_64__
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "NOT RUN: this CPU lacks AVX2";
  Random random(16);
  std::vector<std::size_t> lengths = {1023, 1024, 1025, 4096, 65'520, 65'536};
  for (std::size_t length = 0; length < 260; ++length) lengths.push_back(length);
  for (const std::size_t length : lengths) {
    const std::vector<std::uint8_t> bytes = random.bytes(length);
    for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, random.next(), UINT64_MAX}) {
      const std::uint64_t portable = base::hash_portable.hash64(bytes.data(), length, seed);
      ASSERT_EQ(base::hash_avx2.hash64(bytes.data(), length, seed), portable) << length << " bytes, seed " << seed;
      ASSERT_EQ(base::hash64(bytes.data(), length, seed), portable) << length << " bytes, seed " << seed;
    }
    std::uint64_t portable[2], wide[2];
    base::hash_portable.hash128(bytes.data(), length, portable);
    base::hash_avx2.hash128(bytes.data(), length, wide);
    ASSERT_EQ(wide[0], portable[0]) << length;
    ASSERT_EQ(wide[1], portable[1]) << length;
    for (const base::HashFunctions *each : {&base::hash_portable, &base::hash_avx2}) {  // the same bytes in odd steps
      alignas(64) std::byte state[768];
      each->reset(state);
      for (std::size_t at = 0, step = 1; at < length; at += step, step = step * 3 % 1021)
        each->update(state, bytes.data() + at, step = std::min(step, length - at));
      each->finish(state, wide);
      ASSERT_EQ(wide[0], portable[0]) << length;
      ASSERT_EQ(wide[1], portable[1]) << length;
    }
  }
#else
  GTEST_SKIP() << "NOT RUN: one compilation on this CPU";
#endif
}

TEST(Hash, AStreamIsItsBytes) {
  Random random(17);
  const std::vector<std::uint8_t> bytes = random.bytes(10'000);
  base::StreamHash stream;
  for (std::size_t at = 0, step; at < bytes.size(); at += step) {
    step = std::min<std::size_t>(bytes.size() - at, random.between(0, 700));
    stream.update(bytes.data() + at, step);
  }
  EXPECT_EQ(stream.value(), base::hash128(bytes.data(), bytes.size()));
}

}  // namespace
}  // namespace tandem::test
