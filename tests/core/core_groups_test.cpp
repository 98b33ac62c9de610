// SPDX-License-Identifier: Apache-2.0
// Codes with local groups: their bytes, the losses that they survive, the shards that they read. The generator matrix
// alone gives the right decode. This test computes the table in docs/matrices.md.
#include "core/local_groups.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/gf.hpp"
#include "core/presets.hpp"
#include "tests/base/errors.hpp"
#include "tests/core/rows.hpp"
#include "tests/support/random.hpp"
#include "tests/support/slice.hpp"
#include "tests/support/structs.hpp"

namespace tandem::core {
namespace {

using reference::Bytes;
using reference::Rows;
using Shards = std::vector<std::uint16_t>;

std::shared_ptr<const Codec> make_codec(std::int32_t matrix, unsigned k, unsigned groups, unsigned globals) {
  tandem_codec_options options = test::codec_options(k, groups + globals, matrix);
  options.local_groups = groups;
  return core::make_codec(options);
}

ShardSet all_but(const Codec &codec, const Shards &lost) {
  ShardSet set;
  for (std::uint16_t i = 0; i < codec.shard_count(); ++i)
    if (std::ranges::find(lost, i) == lost.end()) set.set(i);
  return set;
}

ShardSet set_of(const Shards &shards) {
  ShardSet set;
  for (const std::uint16_t shard : shards) set.set(shard);
  return set;
}

Shards present_of(const Codec &codec, const Shards &lost) {
  Shards present;
  for (std::uint16_t i = 0; i < codec.shard_count(); ++i)
    if (std::ranges::find(lost, i) == lost.end()) present.push_back(i);
  return present;
}

// Whether the present shards determine the wanted ones.
bool determines(const Rows &generator, const Shards &present, const Shards &wanted) {
  Rows rows = rows_at(generator, present);
  const std::size_t rank = reference::rank(rows);
  for (const std::uint16_t shard : wanted) rows.push_back(generator[shard]);
  return reference::rank(rows) == rank;
}

// Calls `body` with each set of `size` of `count` numbers, ascending.
template <class Body>
void for_each_set(unsigned count, unsigned size, Body body) {
  Shards set(size);
  std::iota(set.begin(), set.end(), std::uint16_t{0});
  for (;;) {
    body(std::as_const(set));
    unsigned i = size;
    while (i != 0 && set[i - 1] == count - size + i - 1) --i;
    if (i == 0) return;
    ++set[i - 1];
    for (; i < size; ++i) set[i] = static_cast<std::uint16_t>(set[i - 1] + 1);
  }
}

// Decode does what the generator matrix says, with these costs.
void check_decode(const Codec &codec, const Rows &generator, const Shards &lost, const Shards &wanted,
                  const std::vector<std::uint32_t> &costs = {}) {
  SCOPED_TRACE("lost " + testing::PrintToString(lost) + " wanted " + testing::PrintToString(wanted));
  const Shards present = present_of(codec, lost);
  std::shared_ptr<const Application> application;
  try {
    application = codec.solve(all_but(codec, lost), set_of(wanted), costs);
  } catch (const base::Error &error) {
    ASSERT_EQ(error.status(), TANDEM_ERROR_NOT_RECOVERABLE) << error.what();
    ASSERT_FALSE(determines(generator, present, wanted)) << error.what();
    ASSERT_LE(std::strlen(error.what()), 511u);
    return;
  }
  ASSERT_TRUE(std::ranges::includes(present, application->inputs));
  ASSERT_EQ(application->outputs, wanted);
  ASSERT_EQ(reference::multiply(rows_of(application->what.dense()), rows_at(generator, application->inputs)),
            rows_at(generator, wanted));
}

// ---- bytes ----

// The parity rows of pyeclib 1.8.0 from PyPI (liberasurecode 1.8 and ISA-L inside): ECDriver(k=k, m=l+g,
// ec_type="isa_l_rs_lrc", local_parity=l), of which shard c of k was 1 and the others 0.
TEST(LocalGroups, HaveTheBytesOfLiberasurecode) {
  struct Golden {
    unsigned k, l, g;
    Rows parity;
  };
  const Golden goldens[] = {
      {4, 2, 1, {{64, 120, 54, 15}, {231, 210, 0, 0}, {0, 0, 87, 99}}},
      {7,
       3,
       3,
       {{117, 68, 11, 164, 154, 122, 127},
        {208, 34, 26, 192, 87, 245, 139},
        {8, 187, 142, 70, 69, 229, 218},
        {114, 195, 86, 0, 0, 0, 0},
        {0, 0, 0, 150, 69, 0, 0},
        {0, 0, 0, 0, 0, 149, 160}}},
      {10,
       3,
       2,
       {{193, 157, 113, 95, 94, 199, 111, 159, 194, 216},
        {212, 217, 66, 200, 62, 96, 125, 218, 62, 65},
        {203, 221, 185, 67, 0, 0, 0, 0, 0, 0},
        {0, 0, 0, 0, 136, 110, 205, 0, 0, 0},
        {0, 0, 0, 0, 0, 0, 0, 246, 210, 226}}},
      {11,
       2,
       2,
       {{160, 116, 144, 248, 162, 219, 123, 50, 163, 130, 172},
        {180, 84, 246, 119, 9, 136, 69, 8, 111, 118, 181},
        {175, 160, 71, 65, 175, 95, 0, 0, 0, 0, 0},
        {0, 0, 0, 0, 0, 0, 113, 142, 101, 148, 246}}},
  };
  for (const Golden &golden : goldens)
    EXPECT_EQ(rows_of(make_codec(TANDEM_MATRIX_LIBERASURECODE_ISAL_LRC, golden.k, golden.l, golden.g)->parity()),
              golden.parity)
        << golden.k << ' ' << golden.l << ' ' << golden.g;
}

// lrc-azure by its definition in docs/matrices.md.
TEST(LocalGroups, FollowTheirDefinition) {
  for (unsigned k = 1; k <= 30; ++k) {
    for (unsigned l = 1; l <= std::min(k, 8u); ++l) {
      for (unsigned g = 0; g <= 4; ++g) {
        SCOPED_TRACE(testing::Message() << k << ' ' << l << ' ' << g);
        const unsigned step = l == 1 ? 1 : l <= 3 ? 3 : l <= 5 ? 5 : 15;
        const unsigned longest = (k + l - 1) / l;
        if (g <= 2 && longest * step > 255) {
          EXPECT_THROW(make_codec(TANDEM_MATRIX_LRC_AZURE, k, l, g), base::Error);
          continue;
        }
        const Rows parity = rows_of(make_codec(TANDEM_MATRIX_LRC_AZURE, k, l, g)->parity());
        const Rows whole = reference::parity_rows("liberasurecode-isal-vand-inv", k, g + 1);
        unsigned group = 0, j = 0;
        for (unsigned c = 0; c < k; ++c, ++j) {
          if (j == k / l + (group < k % l ? 1 : 0)) j = 0, ++group;
          for (unsigned r = 0; r < l; ++r) ASSERT_EQ(parity[r][c], r == group);
          const std::uint8_t p = reference::power(2, group + step * j);
          for (unsigned r = 0; r < g; ++r) {
            const std::uint8_t few = r == 0 ? p : reference::inverse(p);
            ASSERT_EQ(parity[l + r][c],
                      g <= 2 ? few : reference::multiply(whole[r][c], reference::inverse(whole[g][c])));
          }
        }
        ASSERT_EQ(group, l - 1);
      }
    }
  }
}

TEST(LocalGroups, KnowWhichShardsBelongTogether) {
  for (const bool are_globals_first : {false, true}) {
    for (unsigned k = 1; k <= 20; ++k) {
      for (unsigned l = 1; l <= k; ++l) {
        const LocalGroups groups{k, l, 3, are_globals_first};
        std::map<unsigned, unsigned> sizes;
        for (unsigned shard = 0; shard < k + l + 3; ++shard) {
          const bool is_global = are_globals_first ? shard >= k && shard < k + 3 : shard >= k + l;
          ASSERT_EQ(groups.is_global(shard), is_global) << k << ' ' << l << ' ' << shard;
          if (is_global) continue;
          const unsigned group = groups.group_of(shard);
          if (shard < k) {
            ASSERT_TRUE(groups.begin(group) <= shard && shard < groups.end(group)) << k << ' ' << l << ' ' << shard;
          } else {
            ASSERT_EQ(groups.local_parity(group), shard);
          }
          ++sizes[group];
        }
        for (unsigned i = 0; i < l; ++i) ASSERT_EQ(sizes[i], k / l + (i < k % l ? 1 : 0) + 1);
      }
    }
  }
}

TEST(LocalGroups, RefuseOptionsWithTheirNumbers) {
  const auto expect_error = [](std::int32_t matrix, unsigned k, unsigned m, unsigned groups, const std::string &text,
                               std::int32_t field = TANDEM_FIELD_GF8) {
    tandem_codec_options options = test::codec_options(k, m, matrix);
    options.local_groups = groups;
    options.field = field;
    const std::string message = test::refusal(TANDEM_ERROR_INVALID_ARGUMENT, [&] { core::make_codec(options); });
    EXPECT_NE(message.find(text), std::string::npos) << message;
  };
  expect_error(TANDEM_MATRIX_LRC_AZURE, 6, 4, 0, "local_groups is 0, matrix lrc-azure with k = 6, m = 4 has 1 to 4");
  expect_error(TANDEM_MATRIX_LRC_AZURE, 6, 4, 5, "local_groups is 5");
  expect_error(TANDEM_MATRIX_LRC_AZURE, 2, 4, 3, "has 1 to 2");
  expect_error(TANDEM_MATRIX_LRC_AZURE, 6, 4, UINT32_MAX, "local_groups is 4294967295");
  expect_error(TANDEM_MATRIX_LRC_AZURE, 180, 4, 2, "groups of 90 data shards; with 2 groups");
  expect_error(TANDEM_MATRIX_LIBERASURECODE_ISAL_LRC, 6, 5, 4, "4 groups of k = 6 data shards");
  expect_error(TANDEM_MATRIX_LIBERASURECODE_ISAL_LRC, 250, 6, 1, "k = 250 and 5 global parity shards");
  expect_error(TANDEM_MATRIX_ISAL_CAUCHY, 6, 4, 2, "local_groups is 2, but matrix 0 has no local groups");
  expect_error(TANDEM_MATRIX_LRC_AZURE, 6, 4, 2, "matrix lrc-azure is over GF(2^8)", TANDEM_FIELD_GF16);
}

// ---- what they survive ----

// Whether all of the lost shards can be rebuilt, by elimination on the lost data shards.
bool is_recoverable(const Codec &codec, const Shards &lost) {
  Shards columns;
  std::vector<bool> is_lost(codec.m());
  for (const std::uint16_t shard : lost) {
    if (shard < codec.k()) {
      columns.push_back(shard);
    } else {
      is_lost[shard - codec.k()] = true;
    }
  }
  std::vector<Bytes> rows;
  for (unsigned r = 0; r < codec.m(); ++r) {
    if (is_lost[r]) continue;
    rows.emplace_back();
    for (const std::uint16_t c : columns) rows.back().push_back(codec.parity().at(r, c));
  }
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const auto pivot = std::find_if(rows.begin() + static_cast<std::ptrdiff_t>(std::min(c, rows.size())), rows.end(),
                                    [&](const Bytes &row) { return row[c] != 0; });
    if (pivot == rows.end()) return false;
    std::swap(*pivot, rows[c]);
    for (std::size_t r = c + 1; r < rows.size(); ++r)
      multiply_add(rows[r], gf::divide(rows[r][c], rows[c][c]), rows[c]);
  }
  return true;
}

// Whether any coefficients could: each group makes up for one loss, and the global parity shards for the rest.
bool is_possible(const Codec &codec, const Shards &lost) {
  const LocalGroups &groups = *codec.local_groups();
  std::vector<unsigned> counts(groups.group_count);
  unsigned beyond = 0;
  for (const std::uint16_t shard : lost)
    if (groups.is_global(shard) || ++counts[groups.group_of(shard)] > 1) ++beyond;
  return beyond <= groups.global_count;
}

struct Survival {
  std::uint64_t all = 0, possible = 0, recoverable = 0;
};

Survival survival_of(const Codec &codec, unsigned lost_count) {
  Survival survival;
  for_each_set(codec.shard_count(), lost_count, [&](const Shards &lost) {
    ++survival.all;
    if (!is_possible(codec, lost)) return;
    ++survival.possible;
    survival.recoverable += is_recoverable(codec, lost);
  });
  return survival;
}

struct Shape {
  std::int32_t matrix;
  unsigned k, l, g;
};
constexpr std::int32_t kAzure = TANDEM_MATRIX_LRC_AZURE, kIsal = TANDEM_MATRIX_LIBERASURECODE_ISAL_LRC;

// As docs/matrices.md has them.
TEST(LocalGroups, SurviveWhatTheDocumentationSays) {
  std::ifstream file(TANDEM_TEST_MATRICES_PAGE);
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  ASSERT_FALSE(page.empty()) << TANDEM_TEST_MATRICES_PAGE;
  for (const auto &[matrix, k, l, g] : {Shape{kAzure, 6, 2, 2},
                                        {kAzure, 12, 2, 2},
                                        {kAzure, 12, 3, 2},
                                        {kAzure, 16, 4, 2},
                                        {kAzure, 8, 2, 3},
                                        {kAzure, 12, 2, 3},
                                        {kAzure, 12, 3, 3},
                                        {kAzure, 10, 2, 4},
                                        {kIsal, 6, 2, 2},
                                        {kIsal, 12, 2, 2},
                                        {kIsal, 11, 2, 2},
                                        {kIsal, 10, 3, 2},
                                        {kIsal, 12, 3, 3},
                                        {kIsal, 10, 2, 4}}) {
    if (test::kThinning != 1 && k > 8) continue;
    const auto codec = make_codec(matrix, k, l, g);
    std::string line = "| `" + std::string(find_preset(matrix)->name) + "` | " + std::to_string(k) + ", " +
                       std::to_string(l) + ", " + std::to_string(g) + " | all of " + std::to_string(g + 1);
    const Survival sure = survival_of(*codec, g + 1);
    ASSERT_EQ(sure.recoverable, sure.all) << line;
    for (unsigned lost = g + 2; lost <= g + l; ++lost) {
      const Survival survival = survival_of(*codec, lost);
      line += "; " + std::to_string(lost) + ": " + std::to_string(survival.recoverable) + " of " +
              std::to_string(survival.all) + " (" + std::to_string(survival.possible) + ")";
      if (matrix == kAzure && g <= 2) {
        EXPECT_EQ(survival.recoverable, survival.possible) << line;
      }
    }
    EXPECT_EQ(survival_of(*codec, g + l + 1).possible, 0u);
    EXPECT_NE(page.find(line + " |\n"), std::string::npos) << "not in docs/matrices.md:\n" << line << " |";
  }
}

// ---- decode ----

TEST(LocalGroups, DecodeEveryLossOfSmallCodes) {
  for (const auto &[matrix, k, l, g] : {Shape{kAzure, 6, 2, 2},
                                        {kAzure, 5, 2, 2},
                                        {kAzure, 4, 2, 3},
                                        {kAzure, 3, 3, 1},
                                        {kAzure, 4, 2, 0},
                                        {kIsal, 6, 2, 2},
                                        {kIsal, 5, 2, 1},
                                        {kIsal, 4, 1, 3}}) {
    const auto codec = make_codec(matrix, k, l, g);
    SCOPED_TRACE(testing::Message() << find_preset(matrix)->name << ' ' << k << ' ' << l << ' ' << g);
    const Rows generator = generator_of(*codec);
    for (unsigned count = 1; count <= codec->m() + 1; ++count) {
      for_each_set(codec->shard_count(), count, [&](const Shards &lost) {
        check_decode(*codec, generator, lost, lost);
        check_decode(*codec, generator, lost, {lost.front()});
      });
    }
    if (HasFailure()) return;
  }
}

TEST(LocalGroups, DecodeRandomLossesOfALargeCode) {
  test::Random random(1);
  for (const auto &[matrix, k, l, g] :
       {Shape{kAzure, 20, 4, 6}, {kAzure, 20, 8, 2}, {kIsal, 20, 4, 6}, {kIsal, 20, 10, 0}}) {
    const auto codec = make_codec(matrix, k, l, g);
    const Rows generator = generator_of(*codec);
    for (int i = 0; i < 150; ++i) {
      const std::vector<unsigned> picked = random.pick(static_cast<unsigned>(random.between(1, 11)), 30);
      Shards lost(picked.begin(), picked.end());
      std::ranges::sort(lost);
      Shards wanted;
      for (const std::uint16_t shard : lost)
        if (random.chance(60)) wanted.push_back(shard);
      check_decode(*codec, generator, lost, wanted);
      std::vector<std::uint32_t> costs(30);
      for (std::uint32_t &cost : costs) cost = static_cast<std::uint32_t>(random.below(5));
      check_decode(*codec, generator, lost, wanted, costs);
      if (HasFailure()) return;
    }
  }
}

TEST(LocalGroups, SayWhichGroupIsBeyondTheCode) {
  const auto expect_message = [](const Codec &codec, const Shards &lost, const std::vector<std::string> &texts) {
    const std::string message =
        test::refusal(TANDEM_ERROR_NOT_RECOVERABLE, [&] { codec.solve(all_but(codec, lost), set_of(lost)); });
    for (const std::string &text : texts)
      EXPECT_NE(message.find(text), std::string::npos) << message << "\nlacks: " << text;
  };
  const auto azure = make_codec(kAzure, 6, 2, 2);
  expect_message(*azure, {0, 1, 2, 6},
                 {"matrix lrc-azure", "group 0 (data shards 0 to 2, parity shard 6) misses 4 of 4",
                  "beyond one for each group that is 3, and 2 of 2 global parity shards present"});
  expect_message(*azure, {3, 4, 5, 9}, {"group 1 (data shards 3 to 5, parity shard 7) misses 3 of 4", "1 of 2 global"});
  const auto isal = make_codec(kIsal, 7, 3, 2);
  expect_message(*isal, {0, 1, 3, 4, 5, 6}, {"group 0", "group 1", "group 2", "that is 3, and 2 of 2"});
  const auto many = make_codec(kAzure, 12, 6, 2);
  expect_message(*many, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {"and 2 groups more"});

  // A loss that the numbers allow and the coefficients do not.
  const auto accidental = make_codec(kAzure, 12, 2, 3);
  unsigned found = 0;
  for_each_set(17, 5, [&](const Shards &lost) {
    if (found != 0 || !is_possible(*accidental, lost) || is_recoverable(*accidental, lost)) return;
    ++found;
    expect_message(*accidental, lost, {"enough for most such losses, but not for this one"});
  });
  EXPECT_EQ(found, 1u);
}

// ---- what they read ----

std::uint64_t cost_of(const Shards &shards, const std::vector<std::uint32_t> &costs) {
  std::uint64_t sum = 0;
  for (const std::uint16_t shard : shards) sum += costs[shard];
  return sum;
}

TEST(ReadCosts, ALostShardReadsItsGroup) {
  const auto codec = make_codec(kAzure, 12, 3, 2);
  for (const std::uint16_t lost : {std::uint16_t{5}, std::uint16_t{13}}) {
    const auto application = codec->decode(all_but(*codec, {lost}), set_of({lost}));
    Shards group = {4, 5, 6, 7, 13};
    std::erase(group, lost);
    EXPECT_EQ(application->inputs, group);
    for (unsigned c = 0; c < application->what.dense().columns(); ++c)
      EXPECT_EQ(application->what.dense().at(0, c), 1) << "no XOR";
  }
  // Two groups with a loss each read both; a third loss there needs all.
  EXPECT_EQ(codec->decode(all_but(*codec, {0, 4}), set_of({0, 4}))->inputs, (Shards{1, 2, 3, 5, 6, 7, 12, 13}));
  EXPECT_EQ(codec->decode(all_but(*codec, {0, 1}), set_of({0, 1}))->inputs.size(), 12u);
  // A dear group is still cheaper than all the rest; a very dear one is not.
  std::vector<std::uint32_t> costs(17, 1);
  costs[6] = 8;
  EXPECT_EQ(codec->solve(all_but(*codec, {5}), set_of({5}), costs)->inputs, (Shards{4, 6, 7, 13}));
  costs[6] = 100;
  const Shards others = codec->solve(all_but(*codec, {5}), set_of({5}), costs)->inputs;
  EXPECT_EQ(others.size(), 12u);
  EXPECT_EQ(std::ranges::find(others, 6), others.end());
}

// No set of shards that suffices is cheaper: all of them are tried.
TEST(ReadCosts, NoSetIsCheaper) {
  test::Random random(2);
  for (const auto &codec :
       {core::make_codec(test::codec_options(5, 4)), make_codec(kAzure, 6, 2, 2), make_codec(kAzure, 5, 2, 1)}) {
    const Rows generator = generator_of(*codec);
    const unsigned n = codec->shard_count();
    for (int i = 0; i < 25; ++i) {
      const std::vector<unsigned> picked = random.pick(static_cast<unsigned>(random.between(1, 3)), n);
      Shards lost(picked.begin(), picked.end());
      std::ranges::sort(lost);
      if (!is_recoverable(*codec, lost)) continue;
      Shards wanted = lost;
      if (random.chance(50)) wanted.resize(1);
      std::vector<std::uint32_t> costs(n);
      for (std::uint32_t &cost : costs) cost = static_cast<std::uint32_t>(random.below(10));
      check_decode(*codec, generator, lost, wanted, costs);
      const Shards present = present_of(*codec, lost);
      const std::uint64_t cost = cost_of(codec->solve(all_but(*codec, lost), set_of(wanted), costs)->inputs, costs);
      std::uint64_t best = UINT64_MAX;
      for (unsigned bits = 0; bits < 1u << present.size(); ++bits) {
        Shards some;
        for (unsigned j = 0; j < present.size(); ++j)
          if (bits >> j & 1) some.push_back(present[j]);
        if (cost_of(some, costs) < best && determines(generator, some, wanted)) best = cost_of(some, costs);
      }
      ASSERT_EQ(cost, best) << testing::PrintToString(lost) << testing::PrintToString(wanted)
                            << testing::PrintToString(costs);
    }
  }
}

// Sums of costs do not wrap round.
TEST(ReadCosts, MayBeAsLargeAsTheyGo) {
  const auto codec = make_codec(kAzure, 4, 2, 2);
  std::vector<std::uint32_t> costs(8, 1);
  costs[1] = costs[4] = std::uint32_t{1} << 31;
  EXPECT_EQ(codec->solve(all_but(*codec, {0}), set_of({0}), costs)->inputs, (Shards{2, 3, 6, 7}));
}

}  // namespace
}  // namespace tandem::core
