// SPDX-License-Identifier: Apache-2.0
// Codes over GF(2^16): bytes of other programs, wide codes, and threads without memory.
#include <algorithm>
#include <string>

#include "tandem/tools.h"
#include "tests/support/api.hpp"
#include "tests/support/failing_memory.hpp"
#include "tests/support/slice.hpp"

namespace {

using namespace tandem::test;

constexpr std::uint8_t kPaint = 0xa5;

tandem_codec_options options16(const std::string &preset, uint32_t k, uint32_t m) {
  tandem_codec_options options = codec_options(k, m);
  EXPECT_EQ(tandem_matrix_from_name(preset.c_str(), &options.matrix), TANDEM_OK) << preset;
  EXPECT_EQ(tandem_matrix_traits(options.matrix), TANDEM_MATRIX_IS_GF16) << preset;
  options.allow_non_mds = preset == "par2";
  return options;
}

struct Shards16 {
  Shards16(unsigned k_given, unsigned m, std::size_t bytes_given)
      : k(k_given), bytes(bytes_given), shards(k + m, Bytes(bytes, kPaint)), present(k + m, 1) {
    for (Bytes &each : shards) pointers.push_back(each.data());
  }
  std::uint8_t *at(unsigned i) { return shards[i].data(); }
  const Bytes &shard(unsigned i) const { return shards[i]; }
  const void *const *data() const { return pointers.data(); }
  void *const *parity() const { return pointers.data() + k; }
  void lose(unsigned i) {
    present[i] = 0;
    std::fill_n(at(i), bytes, std::uint8_t{0x3c});
  }

  unsigned k;
  std::size_t bytes;
  Shards shards;
  std::vector<void *> pointers{};
  Bytes present;
};

struct Golden {
  const char *preset;
  unsigned k, m;
  std::size_t shard_bytes;
  std::uint64_t hash;  // FNV-1a of all parity
};

// Parity that PyPI's reed-solomon-leopard 0.2.1, Debian's liberasurecode 1.6.2 and Debian's par2 0.8.1 make of shards
// with byte j of shard i = 17 i + 5 j + 3 i j + 7 (i / 256) + 1.
constexpr Golden kGolden[] = {
    {"reed-solomon-simd", 1, 1, 64, 0x91d9fd89265c3d65},
    {"reed-solomon-simd", 2, 3, 64, 0x679c1161881ea0fd},
    {"reed-solomon-simd", 3, 2, 64, 0x0888676e5f282935},
    {"reed-solomon-simd", 3, 5, 2, 0xc0149451d51c057b},
    {"reed-solomon-simd", 5, 3, 66, 0x277a3ecdaf99671d},
    {"reed-solomon-simd", 4, 4, 126, 0xb6d4a85b1adae3ad},
    {"reed-solomon-simd", 10, 4, 200, 0xb06ad8bd9aefbb11},
    {"reed-solomon-simd", 7, 9, 64, 0xae9e50d080b4ec20},
    {"reed-solomon-simd", 13, 11, 62, 0x9de0f2fa423a3f96},
    {"reed-solomon-simd", 33, 20, 130, 0x45acf5973f66f2c8},
    {"reed-solomon-simd", 20, 33, 62, 0x9e0ad7f901472c93},
    {"reed-solomon-simd", 100, 30, 64, 0xfa21c24f5d7e9df6},
    {"reed-solomon-simd", 300, 70, 64, 0x4c723ae31963db65},
    {"reed-solomon-simd", 70, 300, 64, 0xd5e5b6b99c10b8c6},
    {"reed-solomon-simd", 1000, 300, 66, 0x377b04fbdf437acd},
    {"reed-solomon-simd", 3000, 1000, 64, 0xbfdaf39d66c70e11},
    {"reed-solomon-simd", 700, 4000, 2, 0xbfa639816a81375f},
    {"reed-solomon-simd", 32768, 2000, 2, 0x059b0313b104c557},
    {"liberasurecode-rs-vand", 1, 3, 2, 0x7095287a8d6fbc82},
    {"liberasurecode-rs-vand", 3, 2, 64, 0x43839ad850c0a524},
    {"liberasurecode-rs-vand", 10, 4, 130, 0xbc0259e831fd0932},
    {"liberasurecode-rs-vand", 20, 12, 66, 0x90fec0671f88822c},
    {"liberasurecode-rs-vand", 5, 1, 30, 0x0f15c1c63def7aba},
    {"leopard16", 10, 4, 200, 0xb06ad8bd9aefbb11},
    {"leopard16", 33, 20, 130, 0x45acf5973f66f2c8},
    {"leopard16", 1000, 300, 66, 0x377b04fbdf437acd},
    {"leopard16", 32768, 2000, 2, 0x059b0313b104c557},
    {"par2", 1, 1, 4, 0x9bb94e773dae78cd},
    {"par2", 3, 2, 64, 0x191bcd3fa5b2dd96},
    {"par2", 10, 4, 132, 0xb459a7fac8b7ac64},
    {"par2", 40, 9, 68, 0x9a6c75f22e852c8a},
    {"par2", 200, 30, 8, 0xd2dbd7891b504ab0},
};

TEST(Gf16, BytesOfOtherPrograms) {
  const Context context = make_context();
  for (const Golden &golden : kGolden) {
    SCOPED_TRACE(testing::Message() << golden.preset << " " << golden.k << "+" << golden.m);
    const Codec codec = make_codec(options16(golden.preset, golden.k, golden.m));
    Shards16 shards(golden.k, golden.m, golden.shard_bytes);
    for (unsigned i = 0; i < golden.k; ++i)
      for (std::size_t j = 0; j < golden.shard_bytes; ++j)
        shards.at(i)[j] = static_cast<std::uint8_t>(17 * i + 5 * j + 3 * i * j + 7 * (i >> 8) + 1);
    ASSERT_EQ(tandem_encode(context.get(), codec.get(), shards.data(), shards.parity(), golden.shard_bytes), TANDEM_OK)
        << tandem_last_error_message();
    std::uint64_t hash = 0xcbf29ce484222325;
    for (unsigned r = 0; r < golden.m; ++r)
      for (const std::uint8_t byte : shards.shard(golden.k + r)) hash = (hash ^ byte) * 0x100000001b3;
    EXPECT_EQ(hash, golden.hash);
  }
}

// Codes that are wide enough for transforms of many levels, spread over threads, decoded in parts.
TEST(Gf16, WideCodesComeBack) {
  Random random(65536);
  Slice slice(kThinning);
  std::uint64_t number = 0, next = slice.first();
  struct Wide {
    const char *preset;
    unsigned k, m;
    std::size_t shard_bytes;
  };
  for (const std::string &executor : executors()) {
    const Context context = make_context(executor);
    for (const Wide &wide : {Wide{"leopard16", 300, 100, 1000}, Wide{"reed-solomon-simd", 100, 300, 4098},
                             Wide{"leopard16", 5000, 3000, 2}, Wide{"reed-solomon-simd", 3000, 5000, 66},
                             Wide{"leopard16", 32768, 32768, 2}, Wide{"reed-solomon-simd", 32768, 32767, 2}}) {
      if (number++ != next) continue;
      next += slice.step();
      SCOPED_TRACE(testing::Message() << wide.preset << " " << wide.k << "+" << wide.m);
      const unsigned n = wide.k + wide.m;
      const Codec codec = make_codec(options16(wide.preset, wide.k, wide.m));
      Shards16 shards(wide.k, wide.m, wide.shard_bytes);
      for (unsigned c = 0; c < wide.k; ++c) random.fill(shards.at(c), wide.shard_bytes);
      ASSERT_EQ(tandem_encode(context.get(), codec.get(), shards.data(), shards.parity(), wide.shard_bytes), TANDEM_OK)
          << tandem_last_error_message();
      std::vector<Bytes> truth;
      for (unsigned i = 0; i < n; ++i) truth.push_back(shards.shard(i));
      for (const unsigned lost : {wide.m, wide.m / 2, 20u, 2u}) {
        for (const unsigned i : random.pick(lost, n)) shards.lose(i);
        // One lost shard is not wanted.
        std::vector<void *> pointers = shards.pointers;
        const auto unwanted =
            static_cast<unsigned>(std::find(shards.present.begin(), shards.present.end(), 0) - shards.present.begin());
        pointers[unwanted] = nullptr;
        ASSERT_EQ(tandem_decode(context.get(), codec.get(), pointers.data(), shards.present.data(), wide.shard_bytes),
                  TANDEM_OK)
            << tandem_last_error_message();
        EXPECT_EQ(shards.shard(unwanted), Bytes(wide.shard_bytes, 0x3c));
        std::copy(truth[unwanted].begin(), truth[unwanted].end(), shards.at(unwanted));
        for (unsigned i = 0; i < n; ++i) ASSERT_EQ(shards.shard(i), truth[i]) << i << " of " << lost << " lost";
        shards.present.assign(n, 1);
      }
      auto result = sized<tandem_verify_result>();
      shards.at(7)[1] ^= 1;
      ASSERT_EQ(tandem_verify(context.get(), codec.get(), shards.data(), wide.shard_bytes, &result), TANDEM_OK);
      EXPECT_EQ(result.suspect_shard, 7u);
      EXPECT_EQ(result.bad_parity_count, wide.m);
      for (unsigned i = 0; i <= wide.m; ++i) shards.present[i < wide.k ? i : n - 1 - i + wide.k] = 0;
      EXPECT_TRUE(refused(
          tandem_decode(context.get(), codec.get(), shards.pointers.data(), shards.present.data(), wide.shard_bytes),
          TANDEM_ERROR_NOT_RECOVERABLE, {"data shards missing"}));
    }
  }
}

// A thread that has no memory for its part leaves it to the calling thread, which had its own before anything was
// written.
struct Questions {
  std::uint64_t asked, last;
};

TEST(Gf16, ASolveAsksForEachLostShardWhetherItIsCancelled) {
  constexpr unsigned kLost = 1000;
  const Context context = make_context();
  Bytes present(2 * kLost, 1);
  std::fill_n(present.begin(), kLost, std::uint8_t{0});
  // Each time with a new codec, which has nothing solved.
  const auto solve = [&](Questions &questions) {
    const Codec codec = make_codec(options16("par2", kLost, kLost));
    auto options = sized<tandem_plan_options>();
    options.operation = TANDEM_OPERATION_DECODE;
    options.present = present.data();
    options.cancelled = [](void *user) -> std::int32_t {
      auto &each = *static_cast<Questions *>(user);
      return ++each.asked >= each.last;
    };
    options.cancelled_user = &questions;
    tandem_plan *plan = nullptr;
    const tandem_status status = tandem_plan_create(context.get(), codec.get(), &options, &plan);
    tandem_plan_destroy(plan);
    return status;
  };
  Questions all = {0, UINT64_MAX};
  ASSERT_EQ(solve(all), TANDEM_OK) << tandem_last_error_message();
  EXPECT_GE(all.asked, 2 * kLost);
  for (const std::uint64_t last : {std::uint64_t{1}, std::uint64_t{kLost}, all.asked - 1}) {
    Questions some = {0, last};
    EXPECT_EQ(solve(some), TANDEM_ERROR_CANCELLED);
    EXPECT_EQ(some.asked, last);
  }
}

TEST(Gf16, ThreadsWithoutMemoryLeaveTheirPartToTheCaller) {
  constexpr unsigned k = 60, m = 30;
  constexpr std::size_t kBytes = 64 << 10;
  const Codec codec = make_codec(options16("leopard16", k, m));
  Shards16 shards(k, m, kBytes);
  Random random(5);
  for (unsigned c = 0; c < k; ++c) random.fill(shards.at(c), kBytes);
  ASSERT_EQ(tandem_encode(make_context("serial").get(), codec.get(), shards.data(), shards.parity(), kBytes),
            TANDEM_OK);
  std::vector<Bytes> truth;
  for (unsigned i = 0; i < k + m; ++i) truth.push_back(shards.shard(i));
  for (const std::string &executor : executors()) {
    bool has_succeeded = false;
    for (long count = 0; !has_succeeded; ++count) {
      const Context context = make_context(executor);  // its threads have no memory yet
      for (unsigned i = k; i < k + m; ++i) std::fill_n(shards.at(i), kBytes, kPaint);
      allowed_allocations = count;
      const tandem_status status = tandem_encode(context.get(), codec.get(), shards.data(), shards.parity(), kBytes);
      allowed_allocations = -1;
      has_succeeded = status == TANDEM_OK;
      for (unsigned i = k; i < k + m; ++i)
        ASSERT_EQ(shards.shard(i), has_succeeded ? truth[i] : Bytes(kBytes, kPaint)) << i << ", " << count;
      ASSERT_EQ(status, has_succeeded ? TANDEM_OK : TANDEM_ERROR_OUT_OF_MEMORY) << tandem_last_error_message();
      ASSERT_LT(count, 1000);
    }
  }
}

}  // namespace
