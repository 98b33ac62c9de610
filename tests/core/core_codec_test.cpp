// SPDX-License-Identifier: Apache-2.0
// The codec: options, erasure patterns, costs, the cache of solved patterns, locating damage. The generator matrix G
// alone gives the right decode: its coefficients times the rows of G that it reads are the rows of G that it rebuilds.
// A shard is recoverable if and only if its row of G lies in the span of the present rows.
#include "core/codec.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/presets.hpp"
#include "tests/base/errors.hpp"
#include "tests/core/plain_presets.hpp"
#include "tests/core/rows.hpp"
#include "tests/support/slice.hpp"
#include "tests/support/structs.hpp"

namespace tandem::core {

// What the tests do with sets, beyond the codec's needs.
static std::ostream &operator<<(std::ostream &stream, const ShardSet &set) {
  for (std::size_t i = 0; i < set.end(); ++i) stream << set[i];
  return stream;
}

namespace {

using Shapes = std::vector<std::pair<unsigned, unsigned>>;
using reference::Bytes;
using reference::Rows;

tandem_codec_options options_for(std::int32_t matrix, unsigned k, unsigned m, bool allow_non_mds = false) {
  tandem_codec_options options = test::codec_options(k, m, matrix);
  options.allow_non_mds = allow_non_mds;
  return options;
}

std::shared_ptr<const Codec> make_codec(std::int32_t matrix, unsigned k, unsigned m, bool allow_non_mds = false) {
  return core::make_codec(options_for(matrix, k, m, allow_non_mds));
}

std::shared_ptr<const Codec> make_custom(unsigned k, unsigned m, const Bytes &coefficients,
                                         bool allow_non_mds = false) {
  tandem_codec_options options = options_for(TANDEM_MATRIX_CUSTOM, k, m, allow_non_mds);
  options.coefficients = coefficients.data();
  return core::make_codec(options);
}

// A custom codec of random non-zero coefficients: almost never MDS when large.
std::shared_ptr<const Codec> make_random_custom(std::mt19937 &random, unsigned k, unsigned m) {
  Bytes coefficients(std::size_t{k} * m);
  for (std::uint8_t &cell : coefficients) cell = static_cast<std::uint8_t>(1 + random() % 255);
  return make_custom(k, m, coefficients, true);
}

bool exists(const Preset &preset, unsigned k, unsigned m) {
  return test::status_of([&] { preset.make(k, m); }).first == TANDEM_OK;
}

ShardSet all_shards(const Codec &codec) {
  ShardSet set;
  for (unsigned i = 0; i < codec.shard_count(); ++i) set.set(i);
  return set;
}

ShardSet set_of(unsigned long bits) {
  ShardSet set;
  for (unsigned i = 0; i < 64; ++i)
    if (bits >> i & 1) set.set(i);
  return set;
}

std::size_t count_of(const ShardSet &set) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < set.end(); ++i) count += set[i];
  return count;
}

// a without the shards of b.
ShardSet operator-(const ShardSet &a, const ShardSet &b) {
  ShardSet rest;
  for (std::size_t i = 0; i < a.end(); ++i)
    if (a[i] && !b[i]) rest.set(i);
  return rest;
}

ShardSet without(const ShardSet &set, std::size_t shard) {
  ShardSet one;
  one.set(shard);
  return set - one;
}

// The application is well-formed and rebuilds what is wanted.
void check_application(const Rows &generator, const Application &application, const ShardSet &present,
                       const ShardSet &wanted) {
  ASSERT_EQ(application.what.dense().rows(), application.outputs.size());
  ASSERT_EQ(application.what.dense().columns(), application.inputs.size());
  ASSERT_TRUE(std::is_sorted(application.inputs.begin(), application.inputs.end()));
  ASSERT_TRUE(std::is_sorted(application.outputs.begin(), application.outputs.end()));
  ShardSet outputs, inputs;
  for (const auto i : application.outputs) outputs.set(i);
  for (const auto i : application.inputs) inputs.set(i);
  ASSERT_EQ(outputs, wanted);
  ASSERT_EQ(count_of(inputs), application.inputs.size());
  ASSERT_TRUE((inputs - present).none()) << "reads a missing shard";

  Rows rebuilt = reference::multiply(rows_of(application.what.dense()), rows_at(generator, application.inputs));
  if (application.inputs.empty()) rebuilt.assign(application.outputs.size(), Bytes(generator[0].size()));
  ASSERT_EQ(rebuilt, rows_at(generator, application.outputs));
}

// decode succeeds if and only if every wanted shard is determined by the present ones.
void check_decode(const Codec &codec, const Rows &generator, const ShardSet &present, const ShardSet &wanted) {
  Rows present_rows;
  for (unsigned i = 0; i < codec.shard_count(); ++i) {
    if (present[i]) present_rows.push_back(generator[i]);
  }
  bool recoverable;
  if (codec.is_mds()) {
    recoverable = count_of(present) >= codec.k();
  } else {
    Rows with_wanted = present_rows;
    for (unsigned i = 0; i < codec.shard_count(); ++i) {
      if (wanted[i]) with_wanted.push_back(generator[i]);
    }
    recoverable = reference::rank(present_rows) == reference::rank(with_wanted);
  }
  if (wanted.none()) recoverable = true;
  try {
    const auto application = codec.decode(present, wanted);
    ASSERT_TRUE(recoverable) << "rebuilt from too little";
    check_application(generator, *application, present, wanted);
    if (codec.is_mds() && !wanted.none()) {
      ASSERT_EQ(application->inputs.size(), codec.k());
    }
    if (wanted.none()) {
      ASSERT_TRUE(application->inputs.empty());
    }
  } catch (const base::Error &error) {
    ASSERT_FALSE(recoverable) << error.what();
    ASSERT_EQ(error.status(), TANDEM_ERROR_NOT_RECOVERABLE) << error.what();
    ASSERT_LE(std::strlen(error.what()), 511u);
  }
}

ShardSet random_subset(std::mt19937 &random, const ShardSet &of) {
  ShardSet subset;
  for (unsigned i = 0; i < of.end(); ++i)
    if (of[i] && random() % 2) subset.set(i);
  return subset;
}

// `lost_count` random shards are missing.
ShardSet random_present(std::mt19937 &random, const Codec &codec, unsigned lost_count) {
  std::vector<unsigned> order(codec.shard_count());
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), random);
  ShardSet present = all_shards(codec);
  for (unsigned i = 0; i < lost_count; ++i) present = without(present, order[i]);
  return present;
}

template <class Call>
void expect_error(Call call, tandem_status status, const std::vector<std::string> &words) {
  const std::string message = test::refusal(status, call);
  EXPECT_LE(message.size(), 511u);
  for (const std::string &word : words)
    EXPECT_NE(message.find(word), std::string::npos) << "'" << message << "' lacks '" << word << "'";
}

// ---- decode ----

// Every pattern of codes up to ten shards, random ones of others; every wanted subset of codes up to six.
TEST(Decode, RebuildsWhatIsDeterminedAndNothingElse) {
  std::mt19937 random(1);
  test::Slice slice(test::kThinning);
  const std::pair<unsigned, unsigned> shapes[] = {
      {1, 0},   {3, 0},   {1, 1},   {1, 3},   {2, 2},   {4, 1},    {3, 3},    {4, 2},   {2, 4},
      {6, 4},   {7, 3},   {8, 2},   {4, 5},   {10, 4},  {32, 8},   {20, 30},  {251, 3}, {254, 2},
      {250, 6}, {1, 255}, {255, 1}, {256, 0}, {2, 253}, {128, 32}, {128, 128}};
  for (const Preset &preset : test::plain_presets()) {
    for (const auto &[k, m] : shapes) {
      if (!exists(preset, k, m)) continue;
      const auto codec = make_codec(preset.value, k, m, true);
      const Rows generator = generator_of(*codec);
      const auto check = [&](const ShardSet &present, const ShardSet &wanted) {
        check_decode(*codec, generator, present, wanted);
        if (HasFatalFailure()) FAIL() << preset.name << " (" << k << ", " << m << ") " << present << " " << wanted;
      };
      if (k + m <= 10) {
        const unsigned long full = (1ul << (k + m)) - 1;
        for (unsigned long present = 0; present <= full; ++present) {
          if (k + m > 6 && !slice.takes()) continue;
          const unsigned long missing = full & ~present;
          check(set_of(present), set_of(missing));
          check(set_of(present), random_subset(random, set_of(missing)));
          for (unsigned long wanted = missing; k + m <= 6 && wanted != 0; wanted = (wanted - 1) & missing)
            check(set_of(present), set_of(wanted));
        }
      }
      for (unsigned round = 0; k + m > 10 && round < 4; ++round) {
        const unsigned lost_count = round == 0 ? m : static_cast<unsigned>(random() % (m + 2));
        const ShardSet present = random_present(random, *codec, std::min(lost_count, k + m));
        const ShardSet missing = all_shards(*codec) - present;
        check(present, round == 0 && (m < 40 || k == m) ? missing : random_subset(random, missing));
      }
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Decode, UsesTheFirstPresentParitiesOfAnMdsCode) {
  const auto codec = make_codec(TANDEM_MATRIX_ISAL_CAUCHY, 5, 4);
  const ShardSet missing = set_of(0b000100110);  // data 1, 2 and parity 5
  const auto application = codec->decode(all_shards(*codec) - missing, set_of(0b10));
  EXPECT_EQ(application->inputs, (std::vector<std::uint16_t>{0, 3, 4, 6, 7}));
  EXPECT_EQ(application->outputs, (std::vector<std::uint16_t>{1}));
}

template <class Form>
bool is(const Application &application) {
  return std::holds_alternative<Form>(application.what.form());
}

// Wide codes with points in runs give the forms that share work. check_decode holds the map to the generator.
TEST(Wide, DecodesAnyLossBySyndromes) {
  std::mt19937 random(6);
  for (const Preset &preset : test::plain_presets()) {
    if (preset.points == nullptr) continue;
    unsigned by_syndromes = 0;
    for (const auto &[k, m] : {std::pair{12u, 4u}, {13u, 9u}, {20u, 10u}, {64u, 16u}, {100u, 30u}, {16u, 100u}}) {
      const auto codec = make_codec(preset.value, k, m);
      const Rows generator = generator_of(*codec);
      for (unsigned lost = 1; lost <= m; lost += 1 + m / 8) {
        ShardSet present = random_present(random, *codec, lost);
        if (lost % 2 == 0) {  // data alone
          present = all_shards(*codec);
          for (unsigned i = 0; i < std::min(lost, k); ++i) present = without(present, (i * i + lost) % k);
        }
        const ShardSet missing = all_shards(*codec) - present;
        for (const ShardSet &wanted : {missing, random_subset(random, missing)}) {
          check_decode(*codec, generator, present, wanted);
          if (HasFatalFailure()) FAIL() << preset.name << " (" << k << ", " << m << ") present " << present;
          if (!wanted.none()) by_syndromes += is<core::SyndromeDecode>(*codec->decode(present, wanted));
        }
      }
    }
    EXPECT_GT(by_syndromes, 3u) << preset.name;
  }
}

TEST(Wide, FormsAreTheOnesThatShareWork) {
  const auto codec = make_codec(TANDEM_MATRIX_ISAL_CAUCHY, 32, 8);
  ShardSet parity;
  for (unsigned i = 32; i < 40; ++i) parity.set(i);
  EXPECT_TRUE(is<core::CauchyTransform>(codec->encode(parity)));
  EXPECT_TRUE(is<core::CauchyTransform>(codec->encode(without(parity, 35))));
  EXPECT_TRUE(is<core::Dense>(codec->encode(set_of(7ul << 32)))) << "3 outputs";
  EXPECT_TRUE(is<core::Dense>(codec->column(3, parity)));
  const auto decode = [&](unsigned long missing, unsigned long wanted) {
    return codec->decode(all_shards(*codec) - set_of(missing), set_of(wanted));
  };
  EXPECT_TRUE(is<core::SyndromeDecode>(*decode(0xf, 0xf)));
  EXPECT_TRUE(is<core::SyndromeDecode>(*decode(0x700000001, 0x700000001))) << "1 data shard, 3 parity shards";
  EXPECT_TRUE(is<core::CauchyTransform>(*decode(0xf00000000, 0xf00000000))) << "parity alone";
  EXPECT_TRUE(is<core::Dense>(*decode(0xff, 0x7))) << "3 outputs";
  for (const auto &[k, m] : {std::pair{10u, 4u}, {11u, 11u}, {20u, 3u}}) {
    const auto narrow = make_codec(TANDEM_MATRIX_ISAL_CAUCHY, k, m);
    ShardSet all_parity;
    for (unsigned i = k; i < k + m; ++i) all_parity.set(i);
    EXPECT_TRUE(is<core::Dense>(narrow->encode(all_parity))) << k << ", " << m;
    EXPECT_TRUE(is<core::Dense>(*narrow->decode(all_shards(*narrow) - set_of(0x7), set_of(0x7)))) << k << ", " << m;
  }
  EXPECT_TRUE(is<core::Dense>(make_codec(TANDEM_MATRIX_ZFEC, 32, 8)->encode(parity))) << "its points lie in no runs";
}

// Of calls inside the library. Those of the C API: api_bad_input_test.
TEST(Refusals, OfShardsThatAreThereAlreadyOrDoNotExist) {
  const auto codec = make_codec(TANDEM_MATRIX_ISAL_CAUCHY, 4, 2);
  const ShardSet all = all_shards(*codec), none, beyond = set_of(1ul << 6);
  const std::pair<std::function<void()>, std::string> calls[] = {
      {[&] { codec->decode(all, set_of(1)); }, "present and wanted"},
      {[&] { codec->decode(set_of(0b1111), beyond); }, "6"},
      {[&] { codec->decode(set_of(0b1001111), set_of(0b100000)); }, "6"},
      {[&] { codec->encode(set_of(0b1000)); }, "shard 3"},
      {[&] { codec->encode(beyond); }, "2 parity shards"},
      {[&] { codec->column(4, none); }, "4"},
      {[&] { codec->column(0, set_of(1)); }, "shard 0"}};
  for (const auto &[call, words] : calls) expect_error(call, TANDEM_ERROR_INVALID_ARGUMENT, {words});
  EXPECT_TRUE(codec->decode(none, none)->outputs.empty());
}

// ---- codes that are not MDS ----

TEST(NonMds, NamesThePatternThatCannotBeRebuilt) {
  const auto codec = make_codec(TANDEM_MATRIX_PAR1, 3, 4, true);
  expect_error([&] { codec->decode(set_of(0b1011'000), set_of(0b0100'111)); }, TANDEM_ERROR_NOT_RECOVERABLE,
               {"not MDS", "data shards 0, 1, 2", "parity shards 5", "rank 2", "3 needed"});
  const auto wide = make_custom(100, 100, Bytes(10000), true);
  ShardSet parity;
  for (unsigned i = 100; i < 200; ++i) parity.set(i);
  expect_error([&] { wide->decode(parity, all_shards(*wide) - parity); }, TANDEM_ERROR_NOT_RECOVERABLE,
               {"and 84 more", "rank 0"});
}

// Two local parities over three shards each and one over all: a single loss is rebuilt inside its group.
TEST(NonMds, ReadsOnlyTheGroupOfALocallyRepairableCode) {
  const auto codec = make_custom(6, 3, {1, 2, 4, 8, 16, 32, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1}, true);
  const ShardSet all = all_shards(*codec);
  EXPECT_EQ(codec->decode(all - set_of(0b1), set_of(0b1))->inputs, (std::vector<std::uint16_t>{1, 2, 7}));
  EXPECT_EQ(codec->decode(all - set_of(0b10001), set_of(0b10000))->inputs, (std::vector<std::uint16_t>{3, 5, 8}));
  EXPECT_EQ(codec->decode(all - set_of(0b10000000), set_of(0b10000000))->inputs, (std::vector<std::uint16_t>{0, 1, 2}));
  // Two losses in a group and both other parities gone: those two are lost, the other group is not.
  const ShardSet present = all - set_of(0b001'001'011);
  EXPECT_EQ(codec->decode(present, set_of(0b001000))->inputs, (std::vector<std::uint16_t>{4, 5, 8}));
  expect_error([&] { codec->decode(present, set_of(0b1)); }, TANDEM_ERROR_NOT_RECOVERABLE,
               {"3 of 6", "2 parity shards"});
}

// ---- cost ----

// In multiply-adds.
std::uint64_t cost_of(const Codec &codec, const ShardSet &present, const ShardSet &wanted) {
  const std::uint64_t before = multiply_add_count();
  codec.decode(present, wanted);
  return multiply_add_count() - before;
}

// By the closed form of a Cauchy code, and by elimination.
TEST(DecodeCost, OfANewPatternIsBounded) {
  std::mt19937 random(7);
  const auto check = [&](const std::string &name, const Codec &codec, bool is_cauchy) {
    const bool has_closed_form = is_cauchy && codec.k() > 1 && codec.m() > 1;
    ASSERT_TRUE(codec.cauchy_form() || !has_closed_form) << name;
    for (unsigned lost_count = 1; lost_count <= codec.m(); ++lost_count) {
      const ShardSet present = random_present(random, codec, lost_count);
      const std::uint64_t cost = cost_of(codec, present, all_shards(codec) - present);
      const std::uint64_t e = lost_count, of_a_row = codec.k() + e;
      ASSERT_LE(cost, has_closed_form ? std::min(4 * e, 2 * e * e) * of_a_row : 2 * e * e * of_a_row)
          << name << " (" << codec.k() << ", " << codec.m() << ") e = " << e;
    }
  };
  for (const auto &[k, m] :
       Shapes{{1, 1}, {1, 3}, {2, 2}, {10, 2}, {10, 3}, {10, 4}, {21, 4}, {32, 8}, {128, 32}, {16, 100}})
    for (const Preset &preset : test::plain_presets())
      if (exists(preset, k, m) && preset.is_mds(k, m))
        check(preset.name, *make_codec(preset.value, k, m), test::is_cauchy(preset));
  for (const auto &[k, m] : Shapes{{10, 4}, {40, 20}, {128, 32}, {100, 100}})
    check("random", *make_random_custom(random, k, m), false);
}

TEST(DecodeCost, CountsOnlyWantedRows) {
  std::mt19937 random(9);
  for (const std::int32_t matrix : {TANDEM_MATRIX_ZFEC, TANDEM_MATRIX_PAR1}) {
    const auto codec = make_codec(matrix, 100, 20, true);
    ShardSet present = all_shards(*codec);
    for (unsigned i = 0; i < 20; ++i) present = without(present, 5 * i);
    const std::uint64_t one = cost_of(*codec, present, set_of(1)),
                        all = cost_of(*codec, present, all_shards(*codec) - present);
    const std::uint64_t saved = 19ul * 80 * (codec->cauchy_form() ? 1 : 20);
    EXPECT_LE(one + saved, all);
  }
}

// ---- PAR2: rows of powers ----

std::shared_ptr<const Codec> make_par2(unsigned k, unsigned m) {
  tandem_codec_options options = options_for(TANDEM_MATRIX_PAR2, k, m, true);
  options.field = TANDEM_FIELD_GF16;
  return core::make_codec(options);
}

// The same coefficients are then solved by elimination.
std::shared_ptr<const Codec> without_a_name(const Codec &codec) {
  std::vector<std::uint16_t> cells;
  for (unsigned r = 0; r < codec.m(); ++r)
    for (unsigned c = 0; c < codec.k(); ++c) cells.push_back(codec.coefficient(r, c));
  tandem_codec_options options = options_for(TANDEM_MATRIX_CUSTOM, codec.k(), codec.m(), true);
  options.field = TANDEM_FIELD_GF16;
  options.coefficients = cells.data();
  return core::make_codec(options);
}

// Logarithms of constants that differ by a multiple of 3 give the same 21845th power: some equations depend on others.
TEST(Powers, GapsAmongExponentsAreAsForAnyMatrix) {
  constexpr unsigned k = 8, m = 43700, kExponents[] = {0, 1, 2, 3, 5, 300, 21845, 21846, 21847, 43690, 43691, 43699};
  std::mt19937 random(3);
  const auto codec = make_par2(k, m);
  const auto custom = without_a_name(*codec);
  const auto cell = [&](unsigned shard, unsigned c) {
    return shard < k ? std::uint16_t{shard == c} : static_cast<std::uint16_t>(codec->coefficient(shard - k, c));
  };
  unsigned refused = 0;
  const std::uint64_t count = test::rounds(200, 600);
  for (unsigned round = 0; round < count; ++round) {
    const unsigned lost = 1 + random() % 6;
    std::vector<unsigned> data(k), parity(std::begin(kExponents), std::end(kExponents));
    std::iota(data.begin(), data.end(), 0u);
    std::shuffle(data.begin(), data.end(), random);
    std::shuffle(parity.begin(), parity.end(), random);
    ShardSet present, wanted;
    for (unsigned i = 0; i < k; ++i) (i < lost ? wanted : present).set(data[i]);
    for (unsigned i = 0; i < lost + random() % 3 - random() % 2; ++i) present.set(k + parity[i]);
    if (random() % 2 != 0) wanted.set(k + parity.back());
    if (random() % 2 != 0) wanted = without(wanted, data[0]);
    std::shared_ptr<const core::Application> solved;
    const auto text_of = [&](const core::Codec &each) {
      return test::status_of([&] { solved = each.solve(present, wanted); }).second;
    };
    ASSERT_EQ(text_of(*custom), text_of(*codec)) << round;
    refused += !text_of(*codec).empty();
    if (!text_of(*codec).empty() || solved->outputs.empty()) continue;
    ASSERT_TRUE(std::ranges::is_sorted(solved->inputs));
    const Dense16 whole = core::matrix_of(std::get<core::Powers16>(solved->what.form()));
    for (unsigned r = 0; r < solved->outputs.size(); ++r)
      for (unsigned c = 0; c < k; ++c) {
        std::uint16_t sum = 0;
        for (unsigned i = 0; i < solved->inputs.size(); ++i)
          sum ^= codec->multiply(whole.coefficients->at(r, i), cell(solved->inputs[i], c));
        ASSERT_EQ(sum, cell(solved->outputs[r], c)) << round;
      }
  }
  EXPECT_GT(refused, count / 10);
  EXPECT_LT(refused, count / 2);
}

// The 21845th powers of constants with logarithms that are 1 modulo 3 are one number. So sums that are 21845 exponents
// apart say the same. More shards than an elimination takes at a time.
TEST(Powers, DependentSumsAmongManyAreLeftOut) {
  constexpr unsigned k = 300, lost_count = 100, m = 43690 + lost_count;
  const auto codec = make_par2(k, m);
  ShardSet present, wanted;
  unsigned lost = 0;
  for (unsigned c = 0, log = 0; c < k; ++c) {
    for (++log; std::gcd(log, 65535u) != 1;) ++log;
    (log % 3 == 1 && lost++ < lost_count ? wanted : present).set(c);
  }
  for (unsigned i = 0; i < lost_count; i += 2) {
    present.set(k + i);
    present.set(k + 21845 + i);
    present.set(k + 43690 + i + 1);
  }
  wanted.set(k + 1);
  const auto solved = codec->solve(present, wanted);
  ASSERT_EQ(solved->inputs.size(), k);
  for (const std::uint16_t input : solved->inputs) EXPECT_TRUE(input < k + lost_count || input > k + 43690) << input;
  const Dense16 whole = core::matrix_of(std::get<core::Powers16>(solved->what.form()));
  for (unsigned r = 0; r < solved->outputs.size(); r += 10) {
    for (unsigned c = 0; c < k; ++c) {
      std::uint16_t sum = 0;
      for (unsigned i = 0; i < k; ++i) {
        const unsigned shard = solved->inputs[i];
        const auto cell =
            shard < k ? std::uint16_t{shard == c} : static_cast<std::uint16_t>(codec->coefficient(shard - k, c));
        sum ^= codec->multiply(whole.coefficients->at(r, i), cell);
      }
      const unsigned output = solved->outputs[r];
      ASSERT_EQ(sum, output < k ? unsigned{output == c} : codec->coefficient(output - k, c)) << output << ", " << c;
    }
  }
  for (unsigned i = 0; i < 10; i += 2) present = without(present, k + 43690 + i + 1);
  expect_error([&] { codec->solve(present, wanted); }, TANDEM_ERROR_NOT_RECOVERABLE, {"rank 95, 100 needed"});
}

TEST(Powers, CostNoElimination) {
  constexpr unsigned k = 3000, m = 1100, lost = 1000;
  const auto codec = make_par2(k, m);
  ShardSet present, wanted;
  for (unsigned i = 0; i < k + m; ++i)
    if (i < lost) {
      wanted.set(i);
    } else if (i != k + 5) {  // the run begins after it
      present.set(i);
    }
  const std::uint64_t before = multiply_add_count();
  const auto application = codec->solve(present, wanted);
  EXPECT_LE(multiply_add_count() - before, std::uint64_t{2} * lost * (k + lost));
  EXPECT_EQ(application->inputs.size(), k);
  EXPECT_EQ(application->inputs[k - lost], k + 6);
}

// ---- cache ----

TEST(DecodeCache, RepeatsTheSameObjectWithoutSolving) {
  const auto codec = make_codec(TANDEM_MATRIX_ISAL_CAUCHY, 10, 4);
  const ShardSet present = all_shards(*codec) - set_of(0b111);
  const auto first = codec->decode(present, set_of(0b111));
  const std::uint64_t before = multiply_add_count();
  EXPECT_EQ(codec->decode(present, set_of(0b111)), first);
  EXPECT_EQ(multiply_add_count(), before);
  EXPECT_NE(codec->decode(present, set_of(0b011)), first) << "another wanted set is another pattern";
}

TEST(DecodeCache, KeepsTheLatestPatternsAndNoMore) {
  const auto codec = make_codec(TANDEM_MATRIX_ISAL_CAUCHY, 120, 2);
  const auto solve = [&](unsigned lost) {
    ShardSet missing;
    missing.set(lost);
    return codec->decode(all_shards(*codec) - missing, missing);
  };
  std::vector<std::weak_ptr<const Application>> seen;
  for (unsigned i = 0; i < Codec::kCachedPatterns; ++i) seen.push_back(solve(i));
  for (const auto &entry : seen) EXPECT_FALSE(entry.expired());
  EXPECT_EQ(solve(0), seen[0].lock());  // now the latest used
  solve(100);
  EXPECT_FALSE(seen[0].expired());
  EXPECT_TRUE(seen[1].expired());
  for (unsigned i = 0; i < 120; ++i) seen.push_back(solve(i));
  EXPECT_EQ(std::ranges::count_if(seen, [](const auto &entry) { return !entry.expired(); }), Codec::kCachedPatterns);
}

TEST(DecodeCache, OutlivesNeitherResultsNorFailures) {
  auto codec = make_codec(TANDEM_MATRIX_ISAL_CAUCHY, 4, 2);
  const auto application = codec->decode(set_of(0b111110), set_of(1));
  for (unsigned i = 0; i < 3; ++i) {
    expect_error([&] { codec->decode(set_of(0b000111), set_of(0b1000)); }, TANDEM_ERROR_NOT_RECOVERABLE, {"1 of 4"});
  }
  codec.reset();
  EXPECT_EQ(application->inputs, (std::vector<std::uint16_t>{1, 2, 3, 4}));
}

// ---- locate ----

using Elements = std::vector<Element>;

std::uint32_t locate(const Codec &codec, const Elements &syndrome) {
  std::vector<std::uint16_t> rows(codec.m());
  std::iota(rows.begin(), rows.end(), std::uint16_t{0});
  return codec.locate(rows, syndrome);
}

// The shards i for which some damage gives this syndrome, by trying all damages.
std::uint32_t locate_by_trying(const Codec &codec, const Elements &syndrome) {
  std::uint32_t found = TANDEM_SHARD_NONE, count = 0;
  for (unsigned i = 0; i < codec.shard_count(); ++i) {
    for (unsigned damage = 1; damage < 256; ++damage) {
      Elements expected(codec.m());
      for (unsigned r = 0; r < codec.m(); ++r) {
        const auto unit = static_cast<std::uint8_t>(i == codec.k() + r);
        expected[r] =
            reference::multiply(static_cast<std::uint8_t>(damage), i < codec.k() ? codec.parity().at(r, i) : unit);
      }
      if (expected != syndrome) continue;
      found = i;
      ++count;
      break;
    }
  }
  return count == 1 ? found : TANDEM_SHARD_NONE;
}

TEST(Locate, AgreesWithTryingAllDamages) {
  std::mt19937 random(10);
  for (const Preset &preset : test::plain_presets()) {
    for (const auto &[k, m] : {std::pair{3u, 2u}, {5u, 1u}, {6u, 3u}, {1u, 2u}, {4u, 4u}}) {
      if (!exists(preset, k, m)) continue;
      const auto codec = make_codec(preset.value, k, m, true);
      for (unsigned round = 0; round < test::rounds(40, 150); ++round) {
        Elements syndrome(m);
        const auto damage = static_cast<std::uint8_t>(1 + random() % 255);
        const unsigned shard = random() % (k + m);
        for (unsigned r = 0; r < m; ++r) {
          const auto unit = static_cast<std::uint8_t>(shard == k + r);
          syndrome[r] = reference::multiply(damage, shard < k ? codec->parity().at(r, shard) : unit);
        }
        if (round % 3 == 0) syndrome[random() % m] ^= static_cast<std::uint8_t>(random());
        ASSERT_EQ(locate(*codec, syndrome), locate_by_trying(*codec, syndrome))
            << preset.name << " (" << k << ", " << m << ")";
      }
    }
  }
}

// ---- options ----

TEST(CodecOptions, CheckCustomMatrices) {
  const Bytes good{1, 1, 1, 1, 2, 3}, bad{1, 1, 1, 1, 2, 2};
  EXPECT_TRUE(make_custom(3, 2, good)->is_mds());
  EXPECT_EQ(make_custom(3, 2, good)->parity().at(1, 2), 3);
  expect_error([&] { make_custom(3, 2, bad); }, TANDEM_ERROR_NOT_MDS, {"custom", "k = 3", "m = 2", "cannot"});
  EXPECT_FALSE(make_custom(3, 2, bad, true)->is_mds());
  EXPECT_EQ(make_custom(3, 0, {})->m(), 0u);

  // zfs-raidz is MDS without being a Cauchy matrix: (179, 3) has 988 259 minors, (180, 3) has 1 004 730.
  const auto raidz = [](unsigned k) {
    const Matrix matrix = find_preset("zfs-raidz")->make(k, 3);
    return Bytes(matrix.data(), matrix.data() + std::size_t{3} * k);
  };
  EXPECT_TRUE(make_custom(179, 3, raidz(179))->is_mds());
  EXPECT_FALSE(make_custom(179, 3, raidz(179))->cauchy_form());
  expect_error([&] { make_custom(180, 3, raidz(180)); }, TANDEM_ERROR_NOT_MDS, {"too many minors", "k = 180"});
  EXPECT_FALSE(make_custom(180, 3, raidz(180), true)->is_mds());

  // A large one that is recognised as a Cauchy matrix is proven without minors.
  const Matrix cauchy = find_preset("isal-cauchy")->make(100, 50);
  const auto codec = make_custom(100, 50, Bytes(cauchy.data(), cauchy.data() + 5000));
  EXPECT_TRUE(codec->is_mds() && codec->cauchy_form());
}

}  // namespace
}  // namespace tandem::core
