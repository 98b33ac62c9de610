// SPDX-License-Identifier: Apache-2.0
// tandem_locate must name the damaged shards of each column exactly, up to its guarantee. Beyond the guarantee it must
// say so and name none. The test makes the damage, so it knows the right answer.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "tandem/diagnose.h"
#include "tandem/tools.h"
#include "tests/support/api.hpp"
#include "tests/support/slice.hpp"

namespace tandem::test {
namespace {

using Set = std::vector<unsigned>;

Bytes matrix_of(const tandem_codec *codec, unsigned k, unsigned m) {
  Bytes matrix(std::size_t{k} * m);
  EXPECT_EQ(tandem_codec_coefficients(codec, matrix.data(), matrix.size()), TANDEM_OK);
  return matrix;
}

// All sets of 1 to `most` of these shards.
std::vector<Set> sets_of(const Set &shards, unsigned most) {
  std::vector<Set> sets;
  const auto grow = [&](auto &&self, const Set &set, std::size_t begin) -> void {
    if (!set.empty()) sets.push_back(set);
    if (set.size() == most) return;
    for (std::size_t i = begin; i < shards.size(); ++i) {
      Set larger = set;
      larger.push_back(shards[i]);
      self(self, larger, i + 1);
    }
  };
  grow(grow, {}, 0);
  return sets;
}

struct Code {
  std::string name;
  tandem_codec_options options;
  unsigned losses;  // any so many can be rebuilt
};

Code code_of(std::int32_t matrix, unsigned k, unsigned m, unsigned local_groups = 0) {
  Code code{tandem_matrix_name(matrix) + std::string(" ") + std::to_string(k) + "+" + std::to_string(m),
            codec_options(k, m, matrix), local_groups == 0 ? m : m - local_groups + 1};
  code.options.local_groups = local_groups;
  return code;
}

// Small codes of every matrix, and those with local groups.
std::vector<Code> small_codes() {
  std::vector<Code> codes;
  for (std::int32_t matrix = TANDEM_MATRIX_ISAL_CAUCHY; matrix <= TANDEM_MATRIX_HDFS_RS_LEGACY; ++matrix) {
    for (const auto &[k, m] :
         {std::pair{1u, 1u}, {1u, 4u}, {2u, 6u}, {4u, 2u}, {3u, 3u}, {5u, 4u}, {7u, 3u}, {4u, 6u}}) {
      const Code code = code_of(matrix, k, m);
      tandem_codec *codec = nullptr;
      if (tandem_codec_create(&code.options, &codec) != TANDEM_OK) continue;  // beyond the preset's limit
      tandem_codec_destroy(codec);
      codes.push_back(code);
    }
  }
  for (const std::int32_t matrix : {TANDEM_MATRIX_LRC_AZURE, TANDEM_MATRIX_LIBERASURECODE_ISAL_LRC})
    for (const auto &[k, l, g] : {std::array{6u, 2u, 2u}, {7u, 3u, 2u}, {4u, 2u, 3u}, {5u, 1u, 4u}, {4u, 2u, 0u}})
      codes.push_back(code_of(matrix, k, l + g, l));
  return codes;
}

struct Found {
  tandem_locate_result result = {};
  std::vector<std::uint64_t> damaged_bytes;
  std::vector<tandem_shard_range> ranges;
};

Found locate(tandem_context *context, const tandem_codec *codec, Stripe &stripe, bool repair = false) {
  Found found;
  found.result.struct_bytes = sizeof found.result;
  found.damaged_bytes.resize(stripe.count());
  found.ranges.resize(100);
  auto options = sized<tandem_locate_options>();
  options.present = stripe.present.data();
  options.repair = repair;
  options.damaged_bytes_out = found.damaged_bytes.data();
  options.ranges = found.ranges.data();
  options.range_capacity = found.ranges.size();
  EXPECT_EQ(tandem_locate(context, codec, stripe.all(), stripe.shard_bytes(), &options, &found.result), TANDEM_OK)
      << tandem_last_error_message();
  found.ranges.resize(std::min<std::size_t>(found.ranges.size(), found.result.range_count));
  return found;
}

std::uint8_t nonzero(Random &random) { return static_cast<std::uint8_t>(1 + random.below(255)); }

// What is in the stripe, byte by byte against the truth.
std::vector<std::uint64_t> damage_in(const Stripe &stripe) {
  std::vector<std::uint64_t> counts(stripe.count());
  for (unsigned i = 0; i < stripe.count(); ++i)
    for (std::size_t j = 0; stripe.present[i] != 0 && j < stripe.shard_bytes(); ++j)
      counts[i] += stripe.shards[i][j] != stripe.truth[i][j];
  return counts;
}

bool is_repaired(const Stripe &stripe) {
  const std::vector<std::uint64_t> left = damage_in(stripe);
  return std::ranges::count(left, 0u) == static_cast<std::ptrdiff_t>(left.size());
}

// The whole content of a result of damage within the guarantee.
void expect_exact(const Found &found, const std::vector<std::uint64_t> &damaged, unsigned most) {
  const std::uint64_t all = std::accumulate(damaged.begin(), damaged.end(), std::uint64_t{0});
  EXPECT_EQ(found.damaged_bytes, damaged);
  EXPECT_EQ(found.result.most_damaged_shards, most);
  EXPECT_EQ(found.result.consistent, all == 0);
  EXPECT_EQ(found.result.damaged_byte_count, all);
  EXPECT_EQ(found.result.beyond_byte_count, 0u);
  EXPECT_EQ(found.result.damaged_shard_count,
            damaged.size() - static_cast<std::size_t>(std::ranges::count(damaged, 0u)));
}

// Every set of damaged shards within the guarantee has a column of its own, for every set of lost shards.
TEST(Locate, NamesEverySetOfDamagedShardsInSmallCodes) {
  const Context context = make_context("serial", 1);
  Random random(1);
  for (const Code &code : small_codes()) {
    SCOPED_TRACE(code.name + ", groups " + std::to_string(code.options.local_groups));
    const unsigned k = code.options.k, m = code.options.m;
    const Codec codec = make_codec(code.options);
    Set all(k + m);
    std::iota(all.begin(), all.end(), 0u);
    std::vector<Set> lost_sets = sets_of(all, std::min(m - 1, 2u));
    lost_sets.push_back({});
    for (const Set &lost : lost_sets) {
      SCOPED_TRACE(testing::PrintToString(lost));
      const unsigned losses = code.losses - std::min<unsigned>(code.losses, static_cast<unsigned>(lost.size()));
      Set present;
      std::ranges::set_difference(all, lost, std::back_inserter(present));
      const std::vector<Set> sets = sets_of(present, losses / 2);
      Stripe stripe(random, k, m, sets.size() + 1, matrix_of(codec.get(), k, m));
      for (const unsigned i : lost) {
        stripe.present[i] = 0;
        stripe.pointers[i] = nullptr;
      }
      for (std::size_t j = 0; j < sets.size(); ++j)
        for (const unsigned i : sets[j]) stripe.shards[i][j] ^= nonzero(random);
      if (m < lost.size() + 1) continue;
      if (lost.size() > code.losses) continue;  // perhaps not recoverable at all
      const std::vector<std::uint64_t> damaged = damage_in(stripe);
      expect_exact(locate(context.get(), codec.get(), stripe), damaged, losses / 2);
      ASSERT_EQ(damage_in(stripe), damaged) << "written without being asked";
      const Found repaired = locate(context.get(), codec.get(), stripe, true);
      expect_exact(repaired, damaged, losses / 2);
      EXPECT_EQ(repaired.result.repaired, !sets.empty());
      ASSERT_TRUE(is_repaired(stripe));
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(Locate, RottenShardsAndRandomColumnsOfALargeCode) {
  const Context context = make_context();
  Random random(2);
  for (const Code &code :
       {code_of(TANDEM_MATRIX_ISAL_CAUCHY, 20, 10), code_of(TANDEM_MATRIX_JERASURE_VANDERMONDE, 20, 10),
        code_of(TANDEM_MATRIX_LRC_AZURE, 20, 10, 4), code_of(TANDEM_MATRIX_LIBERASURECODE_ISAL_LRC, 20, 10, 3)}) {
    SCOPED_TRACE(code.name);
    const Codec codec = make_codec(code.options);
    const Bytes matrix = matrix_of(codec.get(), 20, 10);
    const unsigned most = code.losses / 2;
    const auto some = [&](unsigned count) {
      Set set;
      while (set.size() < count) {
        const auto shard = static_cast<unsigned>(random.below(30));
        if (std::ranges::find(set, shard) == set.end()) set.push_back(shard);
      }
      return set;
    };
    {
      Stripe stripe(random, 20, 10, 300'001, matrix);  // longer than a tile
      for (const unsigned i : some(most)) stripe.shards[i] = random.bytes(stripe.shard_bytes());
      for (unsigned i = 0; i < 30; ++i) stripe.pointers[i] = stripe.shards[i].data();
      const std::vector<std::uint64_t> damaged = damage_in(stripe);
      const Found found = locate(context.get(), codec.get(), stripe, true);
      expect_exact(found, damaged, most);
      EXPECT_EQ(found.ranges.size(), most);
      EXPECT_EQ(found.result.repaired, 1);
      EXPECT_TRUE(is_repaired(stripe));
    }
    Stripe stripe(random, 20, 10, 2'000, matrix);
    for (std::size_t j = 0; j < stripe.shard_bytes(); ++j)
      for (const unsigned i : some(static_cast<unsigned>(random.below(most + 1))))
        stripe.shards[i][j] ^= nonzero(random);
    const std::vector<std::uint64_t> damaged = damage_in(stripe);
    expect_exact(locate(context.get(), codec.get(), stripe, true), damaged, most);
    EXPECT_TRUE(is_repaired(stripe));
  }
}

// The widest code has points in all of the field, and shards lost as well.
TEST(Locate, TheWidestCode) {
  const Context context = make_context();
  Random random(3);
  const Codec codec = make_codec(192, 64);
  Stripe stripe(random, 192, 64, 5'000);
  for (const unsigned i : {0u, 17u, 200u}) stripe.lose(i);
  for (unsigned i = 1; i <= 30; ++i) stripe.shards[i * 8][i * 100] ^= nonzero(random);
  for (unsigned i = 1; i <= 30; ++i) stripe.shards[i * 8][4'999] ^= nonzero(random);
  const std::vector<std::uint64_t> damaged = damage_in(stripe);  // 200 is not looked at
  expect_exact(locate(context.get(), codec.get(), stripe, true), damaged, 30);
  EXPECT_TRUE(is_repaired(stripe));
}

TEST(Locate, RangesBeginAndEndAtDamage) {
  const Context context = make_context();
  Random random(4);
  const Codec codec = make_codec(6, 4);
  Stripe stripe(random, 6, 4, 900'000);
  const auto damage = [&](unsigned shard, std::size_t begin, std::size_t end) {
    for (std::size_t j = begin; j < end; ++j) stripe.shards[shard][j] ^= nonzero(random);
  };
  damage(2, 100, 200);
  damage(2, 4'000, 4'001);      // near enough to be of the same range
  damage(2, 300'000, 310'000);  // over the end of a tile
  damage(7, 304'000, 899'999);
  const Found found = locate(context.get(), codec.get(), stripe);
  ASSERT_EQ(found.ranges.size(), 3u);
  const auto expect_range = [&](const tandem_shard_range &range, unsigned shard, std::size_t begin, std::size_t end,
                                std::size_t count) {
    EXPECT_EQ(range.shard, shard);
    EXPECT_EQ(range.begin_bytes, begin);
    EXPECT_EQ(range.end_bytes, end);
    EXPECT_EQ(range.byte_count, count);
  };
  expect_range(found.ranges[0], 2, 100, 4'001, 101);
  expect_range(found.ranges[1], 2, 300'000, 310'000, 10'000);
  expect_range(found.ranges[2], 7, 304'000, 899'999, 595'999);
}

// One damaged shard more than can be told: no name, and a repair writes nothing.
TEST(Locate, NamesNoneBeyondTheGuarantee) {
  const Context context = make_context();
  Random random(5);
  for (unsigned m = 1; m <= 6; ++m) {
    for (const std::size_t shard_bytes : {std::size_t{20}, std::size_t{70'000}}) {
      SCOPED_TRACE("m = " + std::to_string(m) + ", bytes " + std::to_string(shard_bytes));
      const Codec codec = make_codec(10, m);
      Stripe stripe(random, 10, m, shard_bytes);
      const unsigned bad = m / 2 + 1;
      if (shard_bytes == 20 && m % 2 == 0) continue;  // a column may look like other damage
      for (unsigned i = 0; i < bad; ++i)
        for (std::size_t j = 0; j < shard_bytes; ++j) stripe.shards[3 * i][j] ^= nonzero(random);
      const Found found = locate(context.get(), codec.get(), stripe, true);
      EXPECT_EQ(found.result.consistent, 0);
      EXPECT_EQ(found.result.most_damaged_shards, m / 2);
      EXPECT_EQ(found.result.damaged_shard_count, 0u);
      EXPECT_EQ(found.result.repaired, 0);
      EXPECT_EQ(found.result.beyond_byte_count, shard_bytes);
      ASSERT_EQ(found.ranges.size(), 1u);
      EXPECT_EQ(found.ranges[0].shard, TANDEM_SHARD_NONE);
      EXPECT_EQ(found.ranges[0].end_bytes, shard_bytes);
      const std::vector<std::uint64_t> left = damage_in(stripe);
      for (unsigned i = 0; i < bad; ++i) EXPECT_EQ(left[3 * i], shard_bytes) << "written";
    }
  }
}

// A rotten shard keeps its name beside columns that cannot be told, and they keep a repair from writing.
TEST(Locate, NamesWhatItCanBesideWhatItCannot) {
  const Context context = make_context();
  Random random(6);
  const Codec codec = make_codec(8, 4);
  Stripe stripe(random, 8, 4, 50'000);
  for (std::size_t j = 0; j < 40'000; ++j) stripe.shards[5][j] ^= nonzero(random);
  for (std::size_t j = 45'000; j < 45'010; ++j)
    for (const unsigned i : {1u, 4u, 9u}) stripe.shards[i][j] ^= nonzero(random);
  stripe.shards[0][49'000] ^= 1;  // a single column is named too, while chance explains none
  Found found = locate(context.get(), codec.get(), stripe, true);
  EXPECT_EQ(found.result.beyond_byte_count, 10u);
  EXPECT_EQ(found.result.repaired, 0);
  EXPECT_EQ(found.damaged_bytes[5], 40'000u);
  EXPECT_EQ(found.damaged_bytes[0], 1u);
  EXPECT_EQ(found.result.damaged_shard_count, 2u);
  EXPECT_NE(stripe.shards[5], stripe.truth[5]);
}

// Where three more shards are damaged, the rotten one and one that is not damaged explain some columns by chance.
TEST(Locate, NamesNoInnocentShardBesideARottenOne) {
  const Context context = make_context();
  Random random(9);
  const Codec codec = make_codec(10, 4);
  Stripe stripe(random, 10, 4, 400'000);
  for (std::size_t j = 0; j < stripe.shard_bytes(); ++j) stripe.shards[0][j] ^= nonzero(random);
  for (std::size_t j = 0; j < stripe.shard_bytes(); j += 8)
    for (const unsigned i : {1u, 5u, 12u}) stripe.shards[i][j] ^= nonzero(random);
  const Found found = locate(context.get(), codec.get(), stripe, true);
  EXPECT_EQ(found.result.damaged_shard_count, 1u) << testing::PrintToString(found.damaged_bytes);
  EXPECT_GE(found.damaged_bytes[0], 350'000u);
  EXPECT_GT(found.result.beyond_byte_count, 49'900u);
  EXPECT_LE(found.result.beyond_byte_count, 50'000u);
  EXPECT_EQ(found.result.repaired, 0);
}

// A clean stripe runs what a verify runs, and no more.
TEST(Locate, OfACleanStripeIsAVerify) {
  Random random(7);
  const Codec codec = make_codec(10, 4);
  Stripe stripe(random, 10, 4, 300'000);
  const auto calls = [](const Context &context) {
    auto info = sized<tandem_context_info>();
    EXPECT_EQ(tandem_context_query(context.get(), &info), TANDEM_OK);
    return info.kernel_calls;
  };
  const Context one = make_context(), other = make_context();
  auto verified = sized<tandem_verify_result>();
  ASSERT_EQ(tandem_verify(one.get(), codec.get(), stripe.all(), stripe.shard_bytes(), &verified), TANDEM_OK);
  expect_exact(locate(other.get(), codec.get(), stripe), std::vector<std::uint64_t>(14), 2);
  EXPECT_EQ(calls(other), calls(one));
}

TEST(Locate, RefusesWhatItCannotDo) {
  const Context context = make_context("serial", 1);
  Random random(8);
  const Codec codec = make_codec(4, 3);
  Stripe stripe(random, 4, 3, 100);
  auto result = sized<tandem_locate_result>();
  auto options = sized<tandem_locate_options>();
  const auto expect_refused = [&](tandem_status status, const std::string &text, const tandem_codec *of,
                                  void *const *shards, std::size_t bytes) {
    EXPECT_EQ(tandem_locate(context.get(), of, shards, bytes, &options, &result), status);
    EXPECT_NE(std::string(tandem_last_error_message()).find(text), std::string::npos) << tandem_last_error_message();
  };
  expect_refused(TANDEM_ERROR_INVALID_ARGUMENT, "shards is NULL", codec.get(), nullptr, 100);
  expect_refused(TANDEM_ERROR_INVALID_ARGUMENT, "shard_bytes is 0", codec.get(), stripe.all(), 0);
  options.repair = 2;
  expect_refused(TANDEM_ERROR_INVALID_ARGUMENT, "repair is 2", codec.get(), stripe.all(), 100);
  options.repair = 0;
  options.range_capacity = 1;
  expect_refused(TANDEM_ERROR_INVALID_ARGUMENT, "ranges is NULL", codec.get(), stripe.all(), 100);
  options.range_capacity = 0;
  stripe.pointers[6] = nullptr;
  expect_refused(TANDEM_ERROR_INVALID_ARGUMENT, "shard 6 is NULL", codec.get(), stripe.all(), 100);
  stripe.pointers[6] = stripe.shards[5].data() + 1;
  options.repair = 1;
  expect_refused(TANDEM_ERROR_OVERLAP, "overlaps", codec.get(), stripe.all(), 99);
  options.repair = 0;
  stripe.restore();
  stripe.present = {1, 0, 1, 0, 1, 1, 0};
  options.present = stripe.present.data();
  expect_refused(TANDEM_ERROR_NOT_RECOVERABLE, "3 of 7 shards absent", codec.get(), stripe.all(), 100);
  options.present = nullptr;

  tandem_codec_options par1 = codec_options(3, 4, TANDEM_MATRIX_PAR1);
  par1.allow_non_mds = 1;
  expect_refused(TANDEM_ERROR_UNSUPPORTED, "not MDS", make_codec(par1).get(), stripe.all(), 100);
  tandem_codec_options wide = codec_options(4, 3, TANDEM_MATRIX_LEOPARD16);
  wide.field = TANDEM_FIELD_GF16;
  expect_refused(TANDEM_ERROR_UNSUPPORTED, "GF(2^16)", make_codec(wide).get(), stripe.all(), 100);
  tandem_codec_options packets = codec_options(4, 3, TANDEM_MATRIX_JERASURE_CAUCHY_GOOD);
  packets.layout = TANDEM_LAYOUT_PACKETS;
  packets.packet_bytes = 8;
  expect_refused(TANDEM_ERROR_UNSUPPORTED, "pieces of 64", make_codec(packets).get(), stripe.all(), 64);
  const Codec many = make_codec(code_of(TANDEM_MATRIX_ISAL_VANDERMONDE, 4, 21).options);
  expect_refused(TANDEM_ERROR_UNSUPPORTED, "sets to try", many.get(), stripe.all(), 100);
}

}  // namespace
}  // namespace tandem::test
