// SPDX-License-Identifier: Apache-2.0
// The search for tuning values, in virtual time on the fake backend.
#include "tuning/autotune.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "tests/base/errors.hpp"
#include "tests/conformance/fake_backend.hpp"
#include "tests/support/random.hpp"
#include "tests/support/slice.hpp"

namespace tandem::test {
namespace {

using core::TunedOperation;
using core::TuningValues;
using tuning::Case;
using tuning::kLeastGain;
using tuning::Options;
using tuning::Progress;
using tuning::Result;
using tuning::Table;

constexpr double kBase = 1e9;
constexpr TunedOperation kOperations[] = {TunedOperation::encode, TunedOperation::decode, TunedOperation::verify,
                                          TunedOperation::update};

// A machine with a clock that only work moves.
class AutotuneTest : public testing::Test {
 protected:
  AutotuneTest() {
    script_.chunk_bytes = 1 << 20;
    script_.pass_time = [this](double seconds) { now_ += seconds; };
    script_.parameters = {{"local_x", 64, {16, 32, 64, 128}}, {"local_y", 1, {1, 2, 4}}, {"bytes", 16, {4, 8, 16}}};
    script_.speed_of = [this](const TuningValues &values) {
      tried_.insert(values);
      return speed(values);
    };
    options_.cases = {{TunedOperation::encode, 3, 2}};
    options_.shard_bytes = 4000;
    options_.repeats = 3;
    options_.sample_seconds = 1e-6;
    options_.check_stripe_bytes = 0;  // the fake is slow
  }

  // The best: (32, 4, 8), twice as fast as the default.
  virtual double speed(const TuningValues &values) {
    const auto is = [&](const char *name, std::uint64_t value) { return values.at(name) == value; };
    return kBase * (is("local_x", 32) ? 1.5 : 1) * (is("local_y", 4) ? 1.2 : 1) * (is("bytes", 8) ? 1.2 : 1);
  }

  Result tune() {
    FakeBackend backend(script_);
    return tune(backend);
  }
  // With what earlier runs have put into the table.
  Result tune(FakeBackend &backend) {
    tuning::Hooks hooks;
    hooks.seconds = [this] { return now_; };
    hooks.date = [] { return std::string("2025-11-21T00:00:00Z"); };
    hooks.progress = [this](const Progress &progress) {
      progress_.push_back(progress);
      progress_.back().best = nullptr;  // lives no longer than the call
      return !cancel_at_ || progress_.size() <= *cancel_at_;
    };
    hooks.tried = [this](const tuning::Entry &at, bool is_built_in, std::optional<tuning::Failure> failure) {
      told_.push_back({at, is_built_in, failure});
    };
    hooks.found = [this](const tuning::Entry &entry) {
      found_.push_back(entry);
      EXPECT_TRUE(!entry.searched.empty() || options_.max_seconds > 0);
      if (keeps_) table_.replace(entry);
    };
    const Result result = tuning::autotune(backend, options_, table_, hooks);
    tasks_ = backend.counts().tasks_started;
    return result;
  }

  std::string refusal(tandem_status status) {
    FakeBackend backend(script_);
    return refusal(status, backend);
  }
  std::string refusal(tandem_status status, FakeBackend &backend) {
    return test::refusal(status, [&] { tune(backend); });
  }

  FakeScript script_;
  Options options_;
  double now_ = 0;
  std::set<TuningValues> tried_;
  std::optional<std::uint64_t> cancel_at_;  // calls of progress
  std::vector<Progress> progress_;
  struct Told {
    tuning::Entry at;
    bool is_built_in;
    std::optional<tuning::Failure> failure;
  };
  std::vector<Told> told_;
  std::vector<tuning::Entry> found_;
  bool keeps_ = false;
  Table table_;
  std::uint64_t tasks_ = 0;
};

TEST_F(AutotuneTest, FindsTheBestOfTheGrid) {
  const Result result = tune();
  EXPECT_EQ(tried_.size(), 4u * 3 * 3);
  ASSERT_EQ(result.entries.size(), 1u);
  const tuning::Entry &entry = result.entries[0];
  EXPECT_EQ(entry.values, (TuningValues{{"local_x", 32}, {"local_y", 4}, {"bytes", 8}}));
  EXPECT_GT(entry.bytes_per_second, kLeastGain * entry.default_bytes_per_second);
  EXPECT_NEAR(entry.bytes_per_second / entry.default_bytes_per_second, 1.5 * 1.2 * 1.2, 1e-6);
  EXPECT_NEAR(entry.default_bytes_per_second, kBase * 3 / 5, 1e3);  // of data: 3 of 5 shards
  EXPECT_EQ(entry.key.identity.device, "fake");
  EXPECT_EQ(entry.key.kernel_hash, "f00d");
  EXPECT_EQ(entry.key.k, 3u);
  EXPECT_EQ(entry.key.m, 2u);
  EXPECT_EQ(entry.shard_bytes, 4000u);
  EXPECT_EQ(entry.repeats, 3u);
  EXPECT_EQ(entry.date, "2025-11-21T00:00:00Z");
  EXPECT_EQ(result.improved_count, 1u);
  EXPECT_EQ(result.candidate_count, 36u);
  EXPECT_TRUE(result.complete);
  EXPECT_EQ(found_.size(), 1u);
}

// The fake ends a run in an error where a range is cut elsewhere: no candidate would be left.
TEST_F(AutotuneTest, ChecksAreCutAtMultiplesOfTheGranularity) {
  for (const std::uint64_t granularity : {96u, 4096u, 20'000u}) {
    script_.granularity_bytes = granularity;
    options_.shard_bytes = 5 * granularity;
    for (const core::TunedOperation operation : {core::TunedOperation::encode, core::TunedOperation::verify}) {
      options_.cases.front().operation = operation;
      const Result result = tune();
      ASSERT_EQ(result.entries.size(), 1u);
      EXPECT_EQ(result.refused_count, 0u) << granularity;
      EXPECT_EQ(result.wrong_count, 0u) << granularity;
    }
    options_.shard_bytes = 5 * granularity + 1;
    const std::string why = refusal(TANDEM_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(why.find(std::to_string(granularity)), std::string::npos) << why;
    EXPECT_NE(why.find(std::to_string(5 * granularity + 1)), std::string::npos) << why;
  }
}

// A compile of 3 ms, after which a run is three times as fast: it pays from where it has saved as much.
TEST_F(AutotuneTest, WorksOutWhereAOneOffCostPays) {
  script_.parameters = {{"local_x", 64, {32, 64}}, {"compile_after", 12345, {12345}, true}};
  const auto is_compiled = [](const TuningValues &values) { return values.at("compile_after") == 0; };
  script_.speed_of = [&](const TuningValues &values) {
    EXPECT_TRUE(is_compiled(values) || values.at("compile_after") == core::kMostTuningValue);
    return (values.at("local_x") == 32 ? 2 : 1) * (is_compiled(values) ? 3 * kBase : kBase);
  };
  script_.first_run_seconds = [&](const TuningValues &values) { return is_compiled(values) ? 3e-3 : 0.0; };
  const Result result = tune();
  const TuningValues &values = result.entries.at(0).values;
  EXPECT_EQ(values.at("local_x"), 32u);
  // Inputs and outputs, 5 shards, pass at 2 or at 6 GB/s; inputs are 3 of 5.
  const double saved_per_byte = (1 / (2 * kBase) - 1 / (6 * kBase)) * 5 / 3;
  EXPECT_NEAR(static_cast<double>(values.at("compile_after")), 3e-3 / saved_per_byte, 20);
  EXPECT_EQ(result.candidate_count, 2u);

  script_.first_run_seconds = nullptr;
  EXPECT_EQ(tune().entries.at(0).values.at("compile_after"), 0u);  // costs nothing: at once
  script_.first_run_seconds = [](const TuningValues &) { return 1.0; };
  script_.speed_of = [](const TuningValues &) { return kBase; };
  EXPECT_EQ(tune().entries.at(0).values.at("compile_after"), core::kMostTuningValue);  // gains nothing: never

  options_.ranges = {{"compile_after", {5, 7}}};  // the user's own: searched as any other
  script_.speed_of = [](const TuningValues &each) { return each.at("compile_after") == 7 ? 2 * kBase : kBase; };
  EXPECT_EQ(tune().entries.at(0).values.at("compile_after"), 7u);
}

TEST_F(AutotuneTest, EveryOperation) {
  options_.cases.clear();
  for (const TunedOperation operation : kOperations)
    for (const unsigned k : {2u, 5u}) options_.cases.push_back({operation, k, 3});
  script_.parameters.resize(2);
  script_.speed_of = [](const TuningValues &values) { return values.at("local_x") == 128 ? 2 * kBase : kBase; };
  const Result result = tune();
  ASSERT_EQ(result.entries.size(), 7u);  // k says nothing about an update
  EXPECT_EQ(result.entries.back().key.k, 1u);
  for (const tuning::Entry &entry : result.entries) {
    EXPECT_EQ(entry.values.at("local_x"), 128u);
    EXPECT_NEAR(entry.bytes_per_second / entry.default_bytes_per_second, 2, 1e-6);
  }
}

TEST_F(AutotuneTest, SlowOnesFallOut) {
  options_.repeats = 5;
  script_.speed_of = [](const TuningValues &values) {
    const double grain = static_cast<double>(values.at("local_x"));  // 16, 32: 4 and 2 times slower than 64
    return values.at("local_x") == 128 ? kBase / 1.2 : kBase * grain / 64;
  };
  const Result result = tune();
  EXPECT_EQ(result.dropped_count, 2u * 3 * 3);
  // All 36 three times, the 18 that are left twice more, and the last comparison.
  EXPECT_EQ(progress_.back().done_count, 3u * 36 + 2 * 18 + 5);
  EXPECT_EQ(result.improved_count, 0u);
  EXPECT_TRUE(result.entries[0].values.empty());
}

// One slow moment, on its first repeat, is no reason to drop the fastest.
TEST_F(AutotuneTest, OneSlowSampleDropsNobody) {
  script_.parameters = {{"local_x", 64, {16, 32, 64}}};
  std::map<double, unsigned> runs;
  script_.speed_of = [](const TuningValues &values) { return values.at("local_x") == 16 ? 1.2 * kBase : kBase; };
  script_.pass_time = [&](double seconds) {
    const bool of_fast_large = std::abs(seconds - 5 * 4000 / (1.2 * kBase)) < 1e-9;
    now_ += of_fast_large && ++runs[seconds] <= 4 ? 3 * seconds : seconds;  // ready, timed, warm, the repeat
  };
  const Result result = tune();
  EXPECT_EQ(result.dropped_count, 0u);
  EXPECT_EQ(result.entries[0].values, (TuningValues{{"local_x", 16}}));
}

// Nothing is faster than anything, but no two runs take the same time: the built-in values stay.
TEST_F(AutotuneTest, NoiseIsNoReason) {
  options_.repeats = 5;
  unsigned improved = 0;
  for (unsigned seed = 0; seed < thinned(40); ++seed) {
    Random random(seed);
    script_.speed_of = [](const TuningValues &) { return kBase; };
    script_.pass_time = [&](double seconds) { now_ += seconds * (0.97 + 0.06 * random.below(1000) / 1000.0); };
    const Result result = tune();
    improved += result.improved_count != 0;
    EXPECT_EQ(result.entries[0].values.empty(), result.improved_count == 0);
  }
  EXPECT_LE(improved, thinned(8)) << "where any larger median wins, it is three of four";

  // What helps is found nevertheless, and what makes no difference keeps its built-in value.
  unsigned found = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    Random random(seed);
    script_.speed_of = [](const TuningValues &values) { return values.at("local_x") == 16 ? 1.2 * kBase : kBase; };
    script_.pass_time = [&](double seconds) { now_ += seconds * (0.98 + 0.04 * random.below(1000) / 1000.0); };
    found += tune().entries[0].values == TuningValues{{"local_x", 16}};
  }
  EXPECT_GE(found, 17u);
}

// The machine becomes faster all the time: rates of an earlier race are no measure.
TEST_F(AutotuneTest, RatesCompareWithinARaceOnly) {
  script_.parameters = {{"local_x", 64, {1, 2, 4, 8, 16, 32, 64, 128, 256}},
                        {"bytes", 16, {4, 8, 16, 32, 64, 128}},
                        {"items", 1, {1, 2, 3, 4, 5, 6, 7, 8}},
                        {"chunk", 3, {1, 2, 3, 4, 5, 6}}};
  std::uint64_t passed = 0;
  constexpr double kFaster = 1.0005;
  script_.speed_of = [](const TuningValues &values) {
    return kBase * (values.at("local_x") == 8 ? 1.2 : 1) * (values.at("chunk") == 5 ? 0.5 : 1);
  };
  script_.pass_time = [&](double seconds) { now_ += seconds / std::pow(kFaster, static_cast<double>(passed++)); };
  EXPECT_EQ(tune().entries[0].values, (TuningValues{{"local_x", 8}}));
}

// Each phase of a long search has its time, so that the last parameter is looked at, too.
TEST_F(AutotuneTest, EveryParameterHasItsTime) {
  script_.parameters = {{"local_x", 64, {1, 2, 4, 8, 16, 32, 64, 128, 256}},
                        {"local_y", 1, {1, 2, 3, 4, 5, 6, 7, 8}},
                        {"items", 1, {1, 2, 3, 4, 5, 6, 7, 8}},
                        {"chunk", 3, {3, 5}}};
  script_.speed_of = [&](const TuningValues &values) {
    tried_.insert(values);
    return kBase / 1e4 * (values.at("chunk") == 5 ? 1.5 : 1);
  };
  options_.max_seconds = 60;
  const Result result = tune();
  EXPECT_FALSE(result.complete);
  EXPECT_LT(tried_.size(), 72u + 10) << "the local sizes alone would have taken it all";
  EXPECT_EQ(result.entries[0].values, (TuningValues{{"chunk", 5}}));
}

TEST_F(AutotuneTest, ARangeThatNothingRunsIsAnError) {
  script_.speed_of = [&](const TuningValues &values) { return values.at("local_x") > 1000 ? 0 : speed(values); };
  options_.ranges = {{"local_x", {2048, 4096}}, {"bytes", {16}}};
  EXPECT_EQ(refusal(TANDEM_ERROR_UNAVAILABLE),
            "fake runs none of the 6 candidates with the range given for local_x (encode 3, 2). The last refusal: "
            "fake: these values are refused by script");
  options_.ranges[0].values.push_back(32);
  EXPECT_EQ(tune().entries[0].values.at("local_x"), 32u);
}

// A device that stumbles once loses this candidate, and the search goes on.
TEST_F(AutotuneTest, WhatBecameOfEachCandidateIsTold) {
  script_.parameters = {{"local_x", 64, {16, 32, 64}}};
  script_.speed_of = [](const TuningValues &values) { return values.at("local_x") == 32 ? 2 * kBase : kBase; };
  script_.is_wrong = [](const TuningValues &values) { return values.at("local_x") == 16; };
  tune();
  ASSERT_EQ(told_.size(), 3u);
  EXPECT_EQ(told_[0].failure, tuning::Failure::wrong);
  EXPECT_FALSE(told_[1].is_built_in);
  EXPECT_TRUE(told_[2].is_built_in);
  EXPECT_NEAR(told_[1].at.bytes_per_second / told_[2].at.bytes_per_second, 2, 1e-6);
  EXPECT_EQ(told_[1].at.values, (TuningValues{{"local_x", 32}}));
  EXPECT_EQ(told_[1].at.shard_bytes, 4000u);
  told_.clear();
  script_.failing_task = 8;  // the first six are those of the built-in values
  EXPECT_EQ(tune().refused_count, 1u);
  EXPECT_EQ(std::count_if(told_.begin(), told_.end(),
                          [](const Told &each) { return each.failure == tuning::Failure::refused; }),
            1);
}

// Also if its bytes are wrong in long runs only, which no small check sees.
TEST_F(AutotuneTest, AWrongOneNeverWins) {
  const auto fastest = [](const TuningValues &values) { return values.at("local_x") == 16; };
  script_.is_wrong = fastest;
  script_.speed_of = [&](const TuningValues &values) { return fastest(values) ? 100 * kBase : speed(values); };
  options_.shard_bytes = 20'000;
  for (const std::uint64_t wrong_from : {0, 15'000}) {
    script_.wrong_from_bytes = wrong_from;
    for (const TunedOperation operation : kOperations) {
      options_.cases = {{operation, 3, 2}};
      const Result result = tune();
      EXPECT_EQ(result.wrong_count, 9u) << static_cast<int>(operation);
      EXPECT_EQ(result.entries[0].values.at("local_x"), 32u) << static_cast<int>(operation);
    }
  }
  script_.wrong_from_bytes = 0;
  script_.is_wrong = [](const TuningValues &values) { return values.at("local_x") == 64; };
  EXPECT_NE(refusal(TANDEM_ERROR_INTERNAL).find("wrong bytes for update (1, 2) with its own values"),
            std::string::npos);
}

TEST_F(AutotuneTest, RefusedOnesAreSkippedAndCounted) {
  script_.speed_of = [&](const TuningValues &values) {
    return values.at("local_x") * values.at("local_y") > 64 ? 0 : speed(values);
  };
  Result result = tune();
  EXPECT_EQ(result.refused_count, 3u * (1 + 2 + 3));
  EXPECT_EQ(result.entries[0].values.at("local_x"), 32u);
  EXPECT_FALSE(result.entries[0].values.contains("local_y")) << "4 is refused, and 2 no faster than the built-in 1";

  // Also the backend's own values may be: then there is nothing to compare with.
  script_.speed_of = [&](const TuningValues &values) { return values.at("local_x") == 64 ? 0 : speed(values); };
  result = tune();
  EXPECT_EQ(result.entries[0].default_bytes_per_second, 0);
  EXPECT_EQ(result.entries[0].values.at("local_x"), 32u);
  script_.speed_of = [](const TuningValues &) { return 0.0; };
  EXPECT_EQ(refusal(TANDEM_ERROR_UNAVAILABLE),
            "36 of 36 candidates for encode (3, 2) were refused by fake, 0 gave wrong bytes; none is left. The last "
            "refusal: fake: these values are refused by script");
}

TEST_F(AutotuneTest, TheDefaultStaysUnlessItIsBeaten) {
  script_.speed_of = [](const TuningValues &) { return kBase; };
  EXPECT_TRUE(tune().entries[0].values.empty());

  // Fast while it races, slow in the last comparison: it has not won.
  script_.parameters = {{"local_x", 64, {16, 64}}};
  unsigned prepared_count = 0, runs_of_fast = 0;
  for (const bool turns : {false, true}) {
    prepared_count = runs_of_fast = 0;
    script_.speed_of = [&](const TuningValues &values) {
      ++prepared_count;
      return values.at("local_x") == 16 ? kBase * 1.1 : kBase;
    };
    // Each task passes time once, as its shards are one chunk; the fast ones pass less.
    double fast_seconds = 0;
    script_.pass_time = [&](double seconds) {
      if (fast_seconds == 0 || seconds < fast_seconds) fast_seconds = seconds;
      const bool fast = seconds < fast_seconds * 1.05;
      const bool racing = progress_.empty() || progress_.back().done_count < 6;
      runs_of_fast += fast;
      now_ += fast && turns && !racing ? seconds * 2 : seconds;
    };
    progress_.clear();
    const Result result = tune();
    EXPECT_EQ(result.entries[0].values, turns ? TuningValues{} : (TuningValues{{"local_x", 16}}));
    EXPECT_EQ(result.improved_count, turns ? 0u : 1u);
    EXPECT_EQ(result.entries[0].bytes_per_second == result.entries[0].default_bytes_per_second, turns);
    EXPECT_GT(runs_of_fast, 6u);
    EXPECT_EQ(prepared_count, 2u);
  }
}

TEST_F(AutotuneTest, LargeSpacesAreDescended) {
  script_.parameters = {{"local_x", 64, {1, 2, 4, 8, 16, 32, 64, 128, 256, 512}},
                        {"local_y", 1, {1, 2, 4, 8, 16, 32}},
                        {"bytes", 16, {4, 8, 16, 32, 64}},
                        {"items", 1, {1, 2, 3, 4, 5, 6, 7, 8}},
                        {"chunk", 3, {1, 2, 3, 4, 5, 6, 7, 8}}};
  script_.speed_of = [&](const TuningValues &values) {
    tried_.insert(values);
    const auto is = [&](const char *name, std::uint64_t value) { return values.at(name) == value; };
    // Only together are 8 and 32 fast: a search along one of them at a time would not find it.
    return kBase * (is("local_x", 8) && is("local_y", 32) ? 2 : 1) * (is("bytes", 32) ? 1.1 : 1) *
           (is("items", 5) ? 1.1 : 1) * (is("chunk", 7) ? 1.1 : 1);
  };
  const Result result = tune();
  EXPECT_EQ(result.entries[0].values,
            (TuningValues{{"local_x", 8}, {"local_y", 32}, {"bytes", 32}, {"items", 5}, {"chunk", 7}}));
  EXPECT_LT(tried_.size(), 150u);

  options_.ranges = {{"local_x", std::vector<std::uint64_t>(100, 1)}, {"local_y", std::vector<std::uint64_t>(100, 1)}};
  EXPECT_EQ(refusal(TANDEM_ERROR_INVALID_ARGUMENT), "10000 combinations of local sizes; at most 4096 are tried");
}

TEST_F(AutotuneTest, RangesReplaceCandidates) {
  options_.ranges = {{"local_x", {32, 48}}, {"local_y", {1}}, {"bytes", {8}}};
  const Result result = tune();
  EXPECT_EQ(tried_, (std::set<TuningValues>{{{"local_x", 32}, {"local_y", 1}, {"bytes", 8}},
                                            {{"local_x", 48}, {"local_y", 1}, {"bytes", 8}},
                                            {{"local_x", 64}, {"local_y", 1}, {"bytes", 16}}}));
  EXPECT_EQ(result.entries[0].values.at("local_x"), 32u);
  options_.ranges = {{"nonsense", {1}}};
  EXPECT_EQ(refusal(TANDEM_ERROR_INVALID_ARGUMENT),
            "backend fake has no nonsense to tune; it has local_x, local_y, bytes");
}

TEST_F(AutotuneTest, WrongCases) {
  for (const Case at : {Case{TunedOperation::encode, 0, 1},
                        {TunedOperation::encode, 1, 0},
                        {TunedOperation::decode, 200, 57},
                        {TunedOperation::decode, UINT32_MAX, 2}}) {
    options_.cases = {{TunedOperation::encode, 3, 2}, at};
    refusal(TANDEM_ERROR_INVALID_ARGUMENT);
    EXPECT_TRUE(tried_.empty()) << "measured before all was checked";
  }
  options_.cases = {};
  refusal(TANDEM_ERROR_INVALID_ARGUMENT);
  options_.cases = {{TunedOperation::encode, 3, 2}};
  options_.shard_bytes = UINT64_MAX / 4;
  refusal(TANDEM_ERROR_TOO_LARGE);
  options_.shard_bytes = 1;
  tune();
  options_.repeats = 0;
  refusal(TANDEM_ERROR_INVALID_ARGUMENT);
  options_.repeats = 1;
  script_.parameters = {};
  EXPECT_EQ(refusal(TANDEM_ERROR_UNAVAILABLE), "backend fake has nothing to tune");
}

TEST_F(AutotuneTest, TimeIsShared) {
  options_.cases = {{TunedOperation::encode, 3, 2}, {TunedOperation::decode, 3, 2}};
  options_.shard_bytes = 100'000;
  script_.speed_of = [&](const TuningValues &values) { return speed(values) / 2000; };  // a run takes about a second
  options_.max_seconds = 100;  // 36 candidates, three repeats, two cases: about 700
  const Result result = tune();
  EXPECT_FALSE(result.complete);
  EXPECT_EQ(result.entries.size(), 2u);
  EXPECT_LT(now_, 160);
  EXPECT_GT(now_, 70);
  for (const Progress &progress : progress_) EXPECT_LE(progress.seconds_left, 100);
  for (const tuning::Entry &entry : result.entries)
    EXPECT_EQ(entry.values.empty(), entry.bytes_per_second == entry.default_bytes_per_second);

  options_.max_seconds = 1e-9;
  EXPECT_EQ(tune().entries.size(), 1u) << "the first case gets a result, the second is not begun";
}

// Each candidate takes 3 s to compile. Nothing is begun that cannot end in time.
TEST_F(AutotuneTest, ACompileThatDoesNotFitIsNotBegun) {
  options_.cases = {{TunedOperation::encode, 3, 2}, {TunedOperation::decode, 3, 2}};
  script_.first_run_seconds = [](const TuningValues &) { return 3.0; };
  for (const double seconds : {1.0, 5.0, 10.0, 40.0}) {
    options_.max_seconds = seconds;
    const double before = now_;
    const Result result = tune();
    EXPECT_FALSE(result.complete);
    EXPECT_LT(now_ - before, std::max(seconds, 3.0) + 1) << seconds;
    EXPECT_EQ(result.entries.size(), seconds < 6 ? 1u : 2u) << seconds;
  }
}

TEST_F(AutotuneTest, ProgressAddsUp) {
  options_.cases = {{TunedOperation::encode, 3, 2}, {TunedOperation::encode, 4, 2}};
  tune();
  ASSERT_GT(progress_.size(), 100u);
  std::uint64_t before = 0;
  for (const Progress &progress : progress_) {
    EXPECT_GE(progress.done_count, before);
    EXPECT_GE(progress.total_count, progress.done_count);
    EXPECT_GE(progress.seconds_left, 0);
    before = progress.done_count;
  }
  EXPECT_EQ(progress_.front().total_count, 2u * (36 + 1) * 3);
  EXPECT_EQ(progress_.back().total_count, progress_.back().done_count);
  EXPECT_NEAR(progress_.back().best_bytes_per_second / progress_.back().default_bytes_per_second, 2.16, 1e-6);
}

TEST_F(AutotuneTest, AnInterruptedRunGoesOnWithTheCaseThatIsNotFinished) {
  options_.cases = {{TunedOperation::encode, 3, 2}, {TunedOperation::encode, 4, 2}, {TunedOperation::encode, 5, 2}};
  keeps_ = true;
  const auto stop_after = [this](std::uint64_t calls) {
    cancel_at_ = calls;
    progress_.clear();
    EXPECT_EQ(refusal(TANDEM_ERROR_CANCELLED), "tuning was interrupted");
    cancel_at_.reset();
  };
  stop_after(20);
  EXPECT_TRUE(found_.empty());
  stop_after(150);  // a case has 112
  ASSERT_EQ(found_.size(), 1u);
  const Result result = tune();
  EXPECT_EQ(result.known_count, 1u);
  EXPECT_EQ(found_.size(), 3u) << "the first was measured again";
  ASSERT_EQ(result.entries.size(), 3u);
  for (unsigned i = 0; i < 3; ++i) EXPECT_EQ(result.entries[i].key.k, 3 + i);
  EXPECT_EQ(result.improved_count, 3u);
  EXPECT_EQ(result.candidate_count, 2u * 36);
  EXPECT_TRUE(result.complete);
  EXPECT_EQ(progress_.back().done_count, progress_.back().total_count);

  // Nothing is left to measure, unless something else is asked for.
  const std::uint64_t cases = options_.cases.size();
  EXPECT_EQ(tune().known_count, cases);
  EXPECT_EQ(tasks_, 0u);
  const auto known = [&](auto &setting, auto other) {
    const auto before = std::exchange(setting, other);
    const Table whole = table_;
    const std::uint64_t count = tune().known_count;
    table_ = whole;
    setting = before;
    return count;
  };
  EXPECT_EQ(known(options_.shard_bytes, std::uint64_t{5000}), 0u);
  EXPECT_EQ(known(options_.repeats, 2u), 0u);
  EXPECT_EQ(known(options_.ranges, std::vector<tuning::NamedValues>{{"bytes", {4, 8, 16, 32}}}), 0u);
  EXPECT_EQ(known(script_.identity.driver, std::string("2")), 0u) << "measured with another driver";
  EXPECT_EQ(known(options_.max_seconds, 1e9), cases);
  table_ = Table();
  EXPECT_EQ(tune().known_count, 0u);
}

// What a short time found is kept, and is no reason not to search.
TEST_F(AutotuneTest, ACaseThatWasCutShortIsMeasuredAgain) {
  keeps_ = true;
  options_.max_seconds = 1e-9;
  EXPECT_FALSE(tune().complete);
  ASSERT_EQ(table_.entries().size(), 1u);
  EXPECT_EQ(table_.entries()[0].searched, "");
  options_.max_seconds = 0;
  const Result result = tune();
  EXPECT_EQ(result.known_count, 0u);
  EXPECT_TRUE(result.complete);
  EXPECT_EQ(tune().known_count, 1u);
}

// The fake as a device: shards in its own memory. The handle is an address that nothing else may use.
class FakeDeviceBackend final : public FakeBackend {
 public:
  using FakeBackend::FakeBackend;

  struct Memory final : core::DeviceMemory {
    explicit Memory(std::uint64_t bytes) : content(bytes) {}
    core::MemoryKind kind() const noexcept override { return core::MemoryKind::opencl; }
    void *shards() const noexcept override { return const_cast<Memory *>(this); }
    void *queue() const noexcept override { return const_cast<Memory *>(this); }
    void write(std::uint64_t at_bytes, const std::byte *from, std::uint64_t bytes) override {
      std::copy_n(from, bytes, content.begin() + static_cast<std::ptrdiff_t>(at_bytes));
    }
    void read(std::uint64_t at_bytes, std::byte *to, std::uint64_t bytes) override {
      std::copy_n(content.begin() + static_cast<std::ptrdiff_t>(at_bytes), bytes, to);
    }
    std::vector<std::byte> content;
  };

  std::shared_ptr<core::DeviceMemory> device_memory(std::uint64_t bytes) override {
    device_bytes += bytes;
    return std::make_shared<Memory>(bytes);
  }
  void run(std::span<const core::Task> tasks, core::Control &control) override {
    for (core::Task task : tasks) {
      if (task.memory == core::MemoryKind::host) ++host_runs;
      std::vector<std::byte *> inputs, outputs;
      const auto place = [](const void *memory, std::uint64_t offset) {
        return static_cast<Memory *>(const_cast<void *>(memory))->content.data() + offset;
      };
      for (unsigned c = 0; c < task.prepared->columns(); ++c)
        inputs.push_back(place(task.inputs[c], task.input_offsets[c]));
      for (unsigned r = 0; r < task.prepared->rows(); ++r)
        outputs.push_back(place(task.outputs[r], task.output_offsets[r]));
      task.memory = core::MemoryKind::host;
      task.inputs = inputs.data();
      task.outputs = outputs.data();
      FakeBackend::run({&task, 1}, control);
    }
  }
  std::unique_ptr<core::Ticket> submit(std::span<const core::Task> tasks, core::Control &control) override {
    struct Counted final : core::Ticket {
      explicit Counted(FakeDeviceBackend &of) : backend(of) { backend.most = std::max(backend.most, ++backend.open); }
      ~Counted() override { --backend.open; }
      void wait() override {}
      FakeDeviceBackend &backend;
    };
    run(tasks, control);
    return std::make_unique<Counted>(*this);
  }
  std::uint64_t device_bytes = 0, host_runs = 0;
  unsigned open = 0, most = 0;
};

TEST_F(AutotuneTest, OnTheMemoryOfADevice) {
  script_.parameters.push_back({"staging_bytes", 16, {4, 16}, false, true});
  script_.parameters.push_back({"compile_after_bytes", 1000, {1000}, true, true});
  options_.on_device = true;
  options_.sample_seconds = 1e-3;
  for (const TunedOperation operation : {TunedOperation::encode, TunedOperation::verify, TunedOperation::update}) {
    SCOPED_TRACE(core::tuned_operation_name(operation));
    options_.cases.front().operation = operation;
    tried_.clear();
    FakeDeviceBackend backend(script_);
    const Result result = tune(backend);
    EXPECT_EQ(tried_.size(), 4u * 3 * 3) << "staging_bytes is tried, or left out more than that";
    for (const TuningValues &each : tried_)
      EXPECT_EQ(each.at("compile_after_bytes"), 0u) << "else tables would be timed";
    ASSERT_EQ(result.entries.size(), 1u);
    EXPECT_EQ(result.entries[0].values, (TuningValues{{"local_x", 32}, {"local_y", 4}, {"bytes", 8}}));
    EXPECT_TRUE(result.entries[0].key.on_device);
    EXPECT_EQ(result.wrong_count, 0u);
    EXPECT_EQ(backend.host_runs, 0u);
    EXPECT_GT(backend.device_bytes, 0u);
    EXPECT_GT(backend.most, 4u) << "runs that wait in the queue";
    EXPECT_LE(backend.most, 32u);
    EXPECT_EQ(backend.open, 0u);
  }
  for (const char *name : {"staging_bytes", "compile_after_bytes"}) {
    options_.ranges = {{name, {4}}};
    FakeDeviceBackend backend(script_);
    const std::string why = refusal(TANDEM_ERROR_INVALID_ARGUMENT, backend);
    EXPECT_NE(why.find(name), std::string::npos) << why;
  }
}

// Wrong bytes are seen there too.
TEST_F(AutotuneTest, OnTheMemoryOfADeviceAWrongOneNeverWins) {
  options_.on_device = true;
  const auto is_wrong = [](const TuningValues &values) { return values.at("bytes") == 8; };
  script_.is_wrong = is_wrong;
  FakeDeviceBackend backend(script_);
  const Result result = tune(backend);
  EXPECT_EQ(result.wrong_count, 12u);
  EXPECT_EQ(result.entries[0].values, (TuningValues{{"local_x", 32}, {"local_y", 4}}));
}

TEST_F(AutotuneTest, OnlyADeviceHasMemoryOfItsOwn) {
  options_.on_device = true;
  EXPECT_NE(refusal(TANDEM_ERROR_UNSUPPORTED).find("fake"), std::string::npos);
  EXPECT_EQ(tasks_, 0u);
}

// A result in one kind of memory says nothing of the other.
TEST_F(AutotuneTest, KindsOfMemoryAreMeasuredApart) {
  keeps_ = true;
  tune();
  options_.on_device = true;
  FakeDeviceBackend backend(script_);
  EXPECT_EQ(tune(backend).known_count, 0u);
  FakeDeviceBackend again(script_);
  EXPECT_EQ(tune(again).known_count, 1u);
}

}  // namespace
}  // namespace tandem::test
