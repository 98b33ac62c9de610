// SPDX-License-Identifier: Apache-2.0
// The plain functions against the slow reference: encode, decode, verify, update, accumulate, allocate.
#include <algorithm>
#include <bit>
#include <set>

#include "tandem/tools.h"
#include "tests/support/api.hpp"
#include "tests/support/guarded.hpp"

namespace tandem::test {
namespace {

constexpr std::uint64_t kSeed = 31337;

class EveryExecutor : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto all = executors();
    if (std::find(all.begin(), all.end(), GetParam()) == all.end()) GTEST_SKIP() << "NOT RUN: this executor is missing";
    context_ = make_context(GetParam());
  }
  Context context_;
};

INSTANTIATE_TEST_SUITE_P(Executors, EveryExecutor, testing::Values("serial", "pthread", "openmp"),
                         [](const auto &test) { return test.param; });

TEST_P(EveryExecutor, EncodeAndDecode) {
  Random random(kSeed);
  const std::pair<unsigned, unsigned> shapes[] = {{1, 0}, {1, 1}, {2, 1},  {3, 2},  {4, 2},    {5, 5},   {10, 4},
                                                  {1, 9}, {7, 0}, {17, 3}, {32, 8}, {200, 56}, {1, 255}, {255, 1}};
  for (const auto &[k, m] : shapes) {
    const Codec codec = make_codec(k, m);
    for (const std::size_t bytes : {1, 63, 1000, 4097, k + m < 40 ? 300'001 : 2000}) {
      Stripe stripe(random, k, m, bytes);
      stripe.lose_parity();
      ASSERT_EQ(tandem_encode(context_.get(), codec.get(), stripe.data(), stripe.parity(), bytes), TANDEM_OK)
          << tandem_last_error_message();
      ASSERT_TRUE(stripe.intact()) << k << "+" << m << ", " << bytes;
      for (unsigned trial = 0; trial < 3; ++trial) {
        stripe.restore();
        stripe.lose_all(random.pick(static_cast<unsigned>(random.between(std::min(1u, m), m)), k + m));
        ASSERT_EQ(tandem_decode(context_.get(), codec.get(), stripe.all(), stripe.present.data(), bytes), TANDEM_OK)
            << tandem_last_error_message();
        ASSERT_TRUE(stripe.intact()) << k << "+" << m << ", " << bytes;
      }
    }
  }
  EXPECT_GT(kernel_calls(context_.get()), 0u);
}

// Every loss of up to m shards of a small code.
TEST_P(EveryExecutor, EveryErasurePattern) {
  Random random(kSeed + 1);
  for (const auto &[k, m] : {std::pair{4u, 3u}, {5u, 2u}, {1u, 4u}, {6u, 1u}}) {
    const Codec codec = make_codec(k, m);
    Stripe stripe(random, k, m, 77);
    for (unsigned lost = 0; lost < 1u << (k + m); ++lost) {
      stripe.restore();
      for (unsigned i = 0; i < k + m; ++i)
        if (lost >> i & 1) stripe.lose(i);
      const Shards before = stripe.shards;
      const tandem_status status =
          tandem_decode(context_.get(), codec.get(), stripe.all(), stripe.present.data(), stripe.shard_bytes());
      if (static_cast<unsigned>(std::popcount(lost)) <= m) {
        ASSERT_EQ(status, TANDEM_OK) << tandem_last_error_message();
        ASSERT_TRUE(stripe.intact()) << k << "+" << m << " lost " << std::hex << lost;
      } else {
        ASSERT_EQ(status, TANDEM_ERROR_NOT_RECOVERABLE);
        ASSERT_EQ(stripe.shards, before) << "something was written";
      }
    }
  }
}

TEST_P(EveryExecutor, LargeStripesUseTheKernelMoreThanOnce) {
  Random random(kSeed + 2);
  const Codec codec = make_codec(6, 3);
  Stripe stripe(random, 6, 3, 2'000'003);
  stripe.lose_parity();
  const uint64_t before = kernel_calls(context_.get());
  ASSERT_EQ(tandem_encode(context_.get(), codec.get(), stripe.data(), stripe.parity(), stripe.shard_bytes()),
            TANDEM_OK);
  EXPECT_TRUE(stripe.intact());
  EXPECT_GE(kernel_calls(context_.get()), before + 2);
  stripe.restore();
  stripe.lose_all(std::vector{0, 5, 7});
  ASSERT_EQ(tandem_decode(context_.get(), codec.get(), stripe.all(), stripe.present.data(), stripe.shard_bytes()),
            TANDEM_OK);
  EXPECT_TRUE(stripe.intact());
}

// Parities with a NULL pointer are not wanted; neither are missing shards with one.
TEST_P(EveryExecutor, WantedSubsets) {
  Random random(kSeed + 3);
  const unsigned k = 5, m = 4;
  const Codec codec = make_codec(k, m);
  for (unsigned wanted = 0; wanted < 1u << m; ++wanted) {
    Stripe stripe(random, k, m, 3001);
    stripe.lose_parity();
    Shards want = stripe.shards;
    for (unsigned r = 0; r < m; ++r) {
      if (wanted >> r & 1) {
        want[k + r] = stripe.truth[k + r];
      } else {
        stripe.pointers[k + r] = nullptr;
      }
    }
    ASSERT_EQ(tandem_encode(context_.get(), codec.get(), stripe.data(), stripe.parity(), 3001), TANDEM_OK);
    ASSERT_EQ(stripe.shards, want);

    stripe.restore();
    const unsigned lost[] = {1, 3, 6, 8};
    stripe.lose_all(lost);
    want = stripe.shards;
    for (unsigned i = 0; i < 4; ++i) {
      if (wanted >> i & 1) {
        want[lost[i]] = stripe.truth[lost[i]];
      } else {
        stripe.pointers[lost[i]] = nullptr;
      }
    }
    ASSERT_EQ(tandem_decode(context_.get(), codec.get(), stripe.all(), stripe.present.data(), 3001), TANDEM_OK);
    ASSERT_EQ(stripe.shards, want);
  }
}

TEST_P(EveryExecutor, UpdateOfOneShard) {
  Random random(kSeed + 4);
  for (const auto &[k, m] : {std::pair{1u, 1u}, {6u, 3u}, {12u, 5u}}) {
    const Codec codec = make_codec(k, m);
    for (const std::size_t bytes : {1, 999, 250'000}) {
      Stripe stripe(random, k, m, bytes);
      for (unsigned index = 0; index < k; index += 5) {
        const Bytes new_data = random.bytes(bytes);
        const bool leave_one = m > 1 && index % 2 == 0;
        if (leave_one) stripe.pointers[k + 1] = nullptr;
        ASSERT_EQ(tandem_update(context_.get(), codec.get(), index, stripe.pointers[index], new_data.data(),
                                stripe.parity(), bytes),
                  TANDEM_OK)
            << tandem_last_error_message();
        const Bytes left_alone = m > 1 ? stripe.truth[k + 1] : Bytes();
        Shards want = stripe.truth;
        want[index] = new_data;
        std::vector<const std::uint8_t *> inputs;
        for (unsigned c = 0; c < k; ++c) inputs.push_back(want[c].data());
        const Shards parity = expected(cauchy_matrix(k, m).data(), m, k, inputs.data(), bytes);
        for (unsigned r = 0; r < m; ++r)
          ASSERT_EQ(stripe.shards[k + r], leave_one && r == 1 ? left_alone : parity[r]) << "parity " << r;
        stripe.restore();
        // The same bytes before and after: nothing changes, from the same address too.
        ASSERT_EQ(tandem_update(context_.get(), codec.get(), index, stripe.pointers[index], stripe.pointers[index],
                                stripe.parity(), bytes),
                  TANDEM_OK);
        ASSERT_TRUE(stripe.intact());
      }
    }
  }
}

TEST_P(EveryExecutor, AccumulateInAnyOrder) {
  Random random(kSeed + 5);
  const unsigned k = 9, m = 4;
  const Codec codec = make_codec(k, m);
  for (const std::size_t bytes : {1, 513, 120'001}) {
    Stripe stripe(random, k, m, bytes);
    for (const bool with_first : {false, true}) {
      stripe.lose_parity();
      if (!with_first)
        for (unsigned r = 0; r < m; ++r) std::memset(stripe.pointers[k + r], 0, bytes);
      bool first = with_first;
      for (const unsigned index : random.pick(k, k)) {
        ASSERT_EQ(tandem_accumulate(context_.get(), codec.get(), index, stripe.pointers[index], stripe.parity(), bytes,
                                    first),
                  TANDEM_OK)
            << tandem_last_error_message();
        first = false;
      }
      ASSERT_TRUE(stripe.intact());
    }
  }
}

TEST_P(EveryExecutor, VerifyFindsTheDamagedShard) {
  Random random(kSeed + 6);
  for (const auto &[k, m] : {std::pair{4u, 2u}, {10u, 4u}, {3u, 3u}}) {
    const Codec codec = make_codec(k, m);
    for (const std::size_t bytes : {100, 200'000}) {
      Stripe stripe(random, k, m, bytes);
      tandem_verify_result result = {};
      result.struct_bytes = sizeof result;
      ASSERT_EQ(tandem_verify(context_.get(), codec.get(), stripe.data(), bytes, &result), TANDEM_OK);
      EXPECT_EQ(result.consistent, 1);
      EXPECT_EQ(result.bad_parity_count, 0u);
      EXPECT_EQ(result.mismatch_byte_count, 0u);
      EXPECT_EQ(result.first_mismatch_bytes, 0u);
      EXPECT_EQ(result.first_bad_shard, TANDEM_SHARD_NONE);
      EXPECT_EQ(result.suspect_shard, TANDEM_SHARD_NONE);
      for (unsigned bad = 0; bad < k + m; ++bad) {  // one shard damaged in several places
        std::set<std::size_t> places;
        for (unsigned i = 0; i < 5; ++i) places.insert(random.below(bytes));
        for (const std::size_t at : places) stripe.shards[bad][at] ^= static_cast<std::uint8_t>(1 + random.below(255));
        const Shards before = stripe.shards;
        ASSERT_EQ(tandem_verify(context_.get(), codec.get(), stripe.data(), bytes, &result), TANDEM_OK);
        EXPECT_EQ(stripe.shards, before) << "verify wrote";
        EXPECT_EQ(result.consistent, 0);
        EXPECT_EQ(result.bad_parity_count, bad < k ? m : 1);
        EXPECT_EQ(result.mismatch_byte_count, places.size() * (bad < k ? m : 1));
        EXPECT_EQ(result.first_mismatch_bytes, *places.begin());
        EXPECT_EQ(result.first_bad_shard, bad < k ? k : bad);
        EXPECT_EQ(result.suspect_shard, bad) << k << "+" << m;
        stripe.restore();
      }
      // Two damaged shards, apart and at the same place: no single one explains it.
      for (unsigned trial = 0; trial < 20; ++trial) {
        const auto bad = random.pick(2, k + m);
        const std::size_t at = random.below(bytes), other = trial % 2 == 0 ? at : random.below(bytes);
        if (m < 3 && at == other) continue;  // with two parities some pair of bytes looks like a single one
        stripe.shards[bad[0]][at] ^= 0x35;
        stripe.shards[bad[1]][other] ^= 0x71;
        ASSERT_EQ(tandem_verify(context_.get(), codec.get(), stripe.data(), bytes, &result), TANDEM_OK);
        EXPECT_EQ(result.consistent, 0);
        EXPECT_EQ(result.suspect_shard, TANDEM_SHARD_NONE) << k << "+" << m << ": " << bad[0] << " and " << bad[1];
        stripe.restore();
      }
    }
  }
}

TEST_P(EveryExecutor, VerifyWithFewParities) {
  Random random(kSeed + 7);
  tandem_verify_result result = {};
  result.struct_bytes = sizeof result;
  Stripe none(random, 3, 0, 50);
  ASSERT_EQ(tandem_verify(context_.get(), make_codec(3, 0).get(), none.data(), 50, &result), TANDEM_OK);
  EXPECT_EQ(result.consistent, 1);
  Stripe one(random, 3, 1, 50);
  one.shards[0][7] ^= 1;
  ASSERT_EQ(tandem_verify(context_.get(), make_codec(3, 1).get(), one.data(), 50, &result), TANDEM_OK);
  EXPECT_EQ(result.consistent, 0);
  EXPECT_EQ(result.first_bad_shard, 3u);
  EXPECT_EQ(result.first_mismatch_bytes, 7u);
  EXPECT_EQ(result.suspect_shard, TANDEM_SHARD_NONE) << "one parity cannot tell";
}

// An older caller's smaller struct gets what fits, and nothing behind it is touched.
TEST_P(EveryExecutor, VerifyResultOfAnotherVersion) {
  Random random(kSeed + 8);
  const Codec codec = make_codec(2, 2);
  Stripe stripe(random, 2, 2, 10);
  tandem_verify_result result;
  std::memset(&result, 0x5a, sizeof result);
  result.struct_bytes = offsetof(tandem_verify_result, mismatch_byte_count);
  ASSERT_EQ(tandem_verify(context_.get(), codec.get(), stripe.data(), 10, &result), TANDEM_OK);
  EXPECT_EQ(result.consistent, 1);
  EXPECT_EQ(result.bad_parity_count, 0u);
  EXPECT_EQ(result.mismatch_byte_count, 0x5a5a5a5a5a5a5a5au);
}

// A newer caller's longer struct is not initialised behind its size: none of that is read or written.
TEST_P(EveryExecutor, VerifyResultOfALaterVersion) {
  struct Later {
    tandem_verify_result known;
    std::uint64_t added[3];
  };
  Random random(kSeed + 29);
  const Codec codec = make_codec(2, 2);
  Stripe stripe(random, 2, 2, 10);
  Later result;
  std::memset(&result, 0x5a, sizeof result);
  result.known.struct_bytes = sizeof result;
  ASSERT_EQ(tandem_verify(context_.get(), codec.get(), stripe.data(), 10, &result.known), TANDEM_OK)
      << tandem_last_error_message();
  EXPECT_EQ(result.known.struct_bytes, sizeof result);
  EXPECT_EQ(result.known.consistent, 1);
  EXPECT_EQ(result.known.mismatch_byte_count, 0u);
  for (const std::uint64_t added : result.added) EXPECT_EQ(added, 0x5a5a5a5a5a5a5a5au);
}

TEST_P(EveryExecutor, VerifyResultWithoutRoomIsRefusedBeforeTheWork) {
  Random random(kSeed + 30);
  const Codec codec = make_codec(2, 2);
  Stripe stripe(random, 2, 2, 10);
  tandem_verify_result result = {};
  for (const std::size_t size : {std::size_t{0}, sizeof result.struct_bytes, std::size_t{65537}}) {
    result.struct_bytes = size;
    const std::string said = "struct_bytes is " + std::to_string(size) + ";";
    const std::uint64_t before = kernel_calls(context_.get());
    const std::string number = "struct_bytes is " + std::to_string(size);
    EXPECT_TRUE(refused(tandem_verify(context_.get(), codec.get(), stripe.data(), 10, &result),
                        TANDEM_ERROR_INVALID_ARGUMENT, {number.c_str()}));
    EXPECT_EQ(kernel_calls(context_.get()), before);
  }
}

TEST_P(EveryExecutor, InputsMayAlias) {
  Random random(kSeed + 9);
  const unsigned k = 4, m = 2;
  for (const std::size_t bytes : {100, 100'000}) {
    const Bytes zero(bytes, 0), other = random.bytes(bytes);
    const void *data[k] = {zero.data(), other.data(), zero.data(), other.data()};
    const std::uint8_t *inputs[k] = {zero.data(), other.data(), zero.data(), other.data()};
    Shards parity(m, Bytes(bytes));
    void *out[m] = {parity[0].data(), parity[1].data()};
    ASSERT_EQ(tandem_encode(context_.get(), make_codec(k, m).get(), data, out, bytes), TANDEM_OK);
    EXPECT_EQ(parity, expected(cauchy_matrix(k, m).data(), m, k, inputs, bytes));
  }
}

// The API reads and writes no byte beyond the shards, and does not write inputs.
TEST_P(EveryExecutor, GuardPages) {
  Random random(kSeed + 10);
  const unsigned k = 5, m = 3;
  const Codec codec = make_codec(k, m);
  for (const auto against : {Guarded::Against::front, Guarded::Against::back}) {
    for (const std::size_t bytes : {1, 33, 64, 100, 4095, 4096, 4097, 100'001}) {
      std::vector<Guarded> memory;
      std::vector<void *> shards;
      for (unsigned i = 0; i < k + m; ++i) {
        memory.emplace_back(bytes, against);
        random.fill(memory.back().data(), bytes);
        shards.push_back(memory.back().data());
        if (i < k) memory.back().make_read_only();
      }
      ASSERT_EQ(tandem_encode(context_.get(), codec.get(), shards.data(), shards.data() + k, bytes), TANDEM_OK);
      tandem_verify_result result = {};
      result.struct_bytes = sizeof result;
      for (unsigned i = k; i < k + m; ++i) memory[i].make_read_only();
      ASSERT_EQ(tandem_verify(context_.get(), codec.get(), shards.data(), bytes, &result), TANDEM_OK);
      EXPECT_EQ(result.consistent, 1);
      Guarded rebuilt(bytes, against);
      const Bytes truth(memory[2].data(), memory[2].data() + bytes);
      shards[2] = rebuilt.data();
      Bytes present(k + m, 1);
      present[2] = 0;
      ASSERT_EQ(tandem_decode(context_.get(), codec.get(), shards.data(), present.data(), bytes), TANDEM_OK);
      EXPECT_EQ(std::memcmp(rebuilt.data(), truth.data(), bytes), 0);
    }
  }
}

// Each kernel forced by name really is the one that runs, and they agree.
TEST(Kernels, ForcedByNameAndProvenToRun) {
  tandem_kernel kernels[32];
  std::size_t count = 0;
  ASSERT_EQ(tandem_kernels(kernels, 32, sizeof kernels[0], &count), TANDEM_OK);
  ASSERT_GE(count, 1u);
  unsigned not_run = 0;
  for (std::size_t i = 0; i < count; ++i) {
    tandem_context_options options = context_options();
    options.kernel = kernels[i].name;
    if (!kernels[i].available) {
      ++not_run;
      std::printf("NOT RUN: kernel %s needs %s\n", kernels[i].name, kernels[i].needs);
      tandem_context *refused_context = nullptr;
      EXPECT_TRUE(refused(tandem_context_create(&options, &refused_context), TANDEM_ERROR_UNAVAILABLE,
                          {kernels[i].name, "scalar"}));
      EXPECT_EQ(refused_context, nullptr);
      continue;
    }
    const Context context = make_context(options);
    tandem_context_info info = {};
    info.struct_bytes = sizeof info;
    ASSERT_EQ(tandem_context_query(context.get(), &info), TANDEM_OK);
    EXPECT_STREQ(info.kernel, kernels[i].name);
    EXPECT_EQ(info.kernel_calls, 0u);
    Random random(kSeed + 11);
    for (const std::size_t bytes : {200, 300'000}) {
      Stripe stripe(random, 10, 4, bytes);
      stripe.lose_parity();
      const uint64_t before = kernel_calls(context.get());
      ASSERT_EQ(tandem_encode(context.get(), make_codec(10, 4).get(), stripe.data(), stripe.parity(), bytes),
                TANDEM_OK);
      EXPECT_TRUE(stripe.intact()) << kernels[i].name;
      EXPECT_GT(kernel_calls(context.get()), before);
    }
  }
  std::printf("kernels: %zu run, %u NOT RUN\n", count - not_run, not_run);
}

TEST(Matrices, EveryPresetAgainstItsOwnCoefficients) {
  Random random(kSeed + 12);
  const Context context = make_context();
  unsigned made = 0;
  for (int32_t matrix = 0; tandem_matrix_name(matrix) != nullptr; ++matrix) {
    for (const auto &[k, m] : {std::pair{1u, 1u}, {2u, 2u}, {4u, 2u}, {10u, 3u}, {20u, 1u}}) {
      tandem_codec_options options = codec_options(k, m, matrix);
      options.allow_non_mds = 1;
      tandem_codec *raw = nullptr;
      if (tandem_codec_create(&options, &raw) != TANDEM_OK) continue;
      const Codec codec(raw);
      ++made;
      Bytes coefficients(std::size_t{k} * m);
      ASSERT_EQ(tandem_codec_coefficients(codec.get(), coefficients.data(), coefficients.size()), TANDEM_OK);
      Stripe stripe(random, k, m, 501, coefficients);
      stripe.lose_parity();
      ASSERT_EQ(tandem_encode(context.get(), codec.get(), stripe.data(), stripe.parity(), 501), TANDEM_OK);
      ASSERT_TRUE(stripe.intact()) << tandem_matrix_name(matrix) << " " << k << "+" << m;
      stripe.restore();
      stripe.lose(static_cast<unsigned>(random.below(k)));
      ASSERT_EQ(tandem_decode(context.get(), codec.get(), stripe.all(), stripe.present.data(), 501), TANDEM_OK);
      ASSERT_TRUE(stripe.intact()) << tandem_matrix_name(matrix) << " " << k << "+" << m;
    }
  }
  EXPECT_GE(made, 14u * 3);
}

TEST(Matrices, DefaultIsTheCauchyFormula) {
  for (const auto &[k, m] : {std::pair{4u, 2u}, {10u, 4u}, {128u, 128u}}) {
    Bytes coefficients(std::size_t{k} * m);
    ASSERT_EQ(tandem_codec_coefficients(make_codec(k, m).get(), coefficients.data(), coefficients.size()), TANDEM_OK);
    EXPECT_EQ(coefficients, cauchy_matrix(k, m));
  }
}

TEST(Matrices, Custom) {
  Random random(kSeed + 13);
  const Context context = make_context();
  const Bytes coefficients = {1, 1, 1, 1, 2, 3};  // every minor is non-zero
  tandem_codec_options options = codec_options(3, 2, TANDEM_MATRIX_CUSTOM);
  Bytes given = coefficients;
  options.coefficients = given.data();
  const Codec codec = make_codec(options);
  std::fill(given.begin(), given.end(), std::uint8_t{0});  // it was copied
  Stripe stripe(random, 3, 2, 100, coefficients);
  stripe.lose_parity();
  ASSERT_EQ(tandem_encode(context.get(), codec.get(), stripe.data(), stripe.parity(), 100), TANDEM_OK);
  EXPECT_TRUE(stripe.intact());
  stripe.restore();
  stripe.lose_all(std::vector{0, 2});
  ASSERT_EQ(tandem_decode(context.get(), codec.get(), stripe.all(), stripe.present.data(), 100), TANDEM_OK);
  EXPECT_TRUE(stripe.intact());
}

// With a matrix that is not MDS what can be recovered is, and what cannot says so.
TEST(Matrices, NotMdsButAllowed) {
  Random random(kSeed + 14);
  const Context context = make_context();
  const Bytes coefficients = {1, 1, 0, 0, 0, 0, 1, 1};
  tandem_codec_options options = codec_options(4, 2, TANDEM_MATRIX_CUSTOM);
  options.coefficients = coefficients.data();
  options.allow_non_mds = 1;
  const Codec codec = make_codec(options);
  Stripe stripe(random, 4, 2, 64, coefficients);
  stripe.lose_all(std::vector{1, 2});
  ASSERT_EQ(tandem_decode(context.get(), codec.get(), stripe.all(), stripe.present.data(), 64), TANDEM_OK);
  EXPECT_TRUE(stripe.intact());
  stripe.restore();
  stripe.lose_all(std::vector{0, 1});
  const Shards before = stripe.shards;
  EXPECT_TRUE(refused(tandem_decode(context.get(), codec.get(), stripe.all(), stripe.present.data(), 64),
                      TANDEM_ERROR_NOT_RECOVERABLE, {"0, 1"}));
  EXPECT_EQ(stripe.shards, before);
}

TEST(Allocate, AlignedStaggeredAndApart) {
  for (const std::size_t count : {1, 2, 14, 256}) {
    for (const std::size_t bytes : {1, 64, 65, 4096, 8192, 65536, 100'003}) {
      std::vector<void *> shards(count);
      ASSERT_EQ(tandem_shards_allocate(count, bytes, shards.data()), TANDEM_OK);
      for (std::size_t i = 0; i < count; ++i) {
        const auto at = reinterpret_cast<std::uintptr_t>(shards[i]);
        EXPECT_EQ(at % 64, 0u);
        std::memset(shards[i], static_cast<int>(i), bytes);
        if (i == 0) continue;
        const std::uintptr_t distance = at - reinterpret_cast<std::uintptr_t>(shards[i - 1]);
        EXPECT_GE(distance, bytes);
        EXPECT_EQ(distance / 64 % 2, 1u) << "neighbours fall on the same cache sets";
      }
      for (std::size_t i = 0; i < count; ++i)
        EXPECT_EQ(static_cast<std::uint8_t *>(shards[i])[bytes - 1], static_cast<std::uint8_t>(i));
      tandem_shards_free(shards[0]);
    }
  }
  tandem_shards_free(nullptr);
}

}  // namespace
}  // namespace tandem::test
