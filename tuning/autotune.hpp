// SPDX-License-Identifier: Apache-2.0
// The search for tuning values on one backend (docs/tuning.md). Knows no device: a parameter is a name with candidates.
//
// For each case every candidate is prepared, compared with an independent product, and timed round-robin over the
// repeats. A candidate is dropped after kLeastSamples if it is 1.25 times slower than the best. The kFinalists best and
// the backend's own values are then timed once more, in turns. One of them is kept only if it is kLeastGain times
// faster there, and faster in four of five turns. Of several that are as fast, the one with most of the backend's own
// values is kept.
//
// If there are at most kMostGrid combinations, all are tried. Otherwise the search tries all combinations of the local
// sizes with all other parameters at the backend's own values. Then it changes one parameter after the other, with the
// rest at the best so far, until a pass over all of them changes nothing (at most kMostPasses). Each of these races
// measures the backend's own values and the best so far again, and rates are compared only within a race. With
// max_seconds each race has its part of the time.
//
// In device memory a repeat puts its runs into the queue and waits for all of them: a single run is so short that the
// launch would count. Values of transfers are not searched then.
//
// Candidates (candidates.hpp) has what is tried, Check (check.hpp) runs it and compares its bytes, Race (race.hpp)
// times it.
//
// A parameter that is a switch-over is not searched, unless a range is given for it. All candidates are timed with 0.
// At the end the value for the winner is computed from three times: a new matrix' first run, its later runs, and a
// first run without the cost.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/backend.hpp"
#include "tuning/table.hpp"

namespace tandem::tuning {

inline constexpr std::size_t kMostGrid = 512;
inline constexpr std::size_t kMostCombinations = 4096;  // of local sizes
inline constexpr unsigned kMostPasses = 3;
inline constexpr double kDropFactor = 1.25;
inline constexpr unsigned kLeastSamples = 3;  // before a candidate is dropped; unless there are fewer repeats
inline constexpr double kLeastGain = 1.02;    // less counts as noise: the backend's own values stay
inline constexpr std::size_t kFinalists = 3;

struct Case {
  core::TunedOperation operation = core::TunedOperation::encode;
  unsigned k = 0, m = 0;  // as in EntryKey, but k of update may be anything
};

struct NamedValues {
  std::string name;
  std::vector<std::uint64_t> values;
};

enum class Failure { refused, wrong };  // the device cannot run it; its bytes were not the expected ones

struct Options {
  std::vector<Case> cases;
  std::vector<NamedValues> ranges;  // in place of a parameter's own candidates
  bool on_device = false;           // the shards lie in the memory of the device
  std::uint64_t shard_bytes = 0;    // 0: so that a stripe has 32 to 64 MiB; on the device 128 to 256 MiB
  unsigned repeats = 5;
  double max_seconds = 0;        // 0: no limit. The cases share what is left. See Result::entries
  double sample_seconds = 0.02;  // a repeat times as many calls as fill this
  // At least the bytes that the check of a candidate moves. Enough that every backend spreads it over its threads or
  // groups.
  std::uint64_t check_stripe_bytes = 512 << 10;
};

struct Progress {
  std::uint64_t done_count, total_count;  // repeats; the total falls when candidates are dropped
  double seconds_left;
  Case at;
  double best_bytes_per_second, default_bytes_per_second;  // 0: not known yet
  const core::TuningValues *best;                          // null: none yet
};

struct Hooks {
  std::function<double()> seconds;                 // a clock that does not run backwards
  std::function<std::string()> date = date_now;    // of entries
  std::function<bool(const Progress &)> progress;  // false: cancel. May be empty
  // What became of each candidate of a case: `at` has its values and its rate. May be empty.
  std::function<void(const Entry &at, bool is_built_in, std::optional<Failure> failure)> tried;
  std::function<void(const Entry &)> found;  // each case's result, as soon as it is known. May be empty
};

struct Result {
  // One a case, in their order. `searched` is empty if its time was cut short. A case, but for the first, has none if a
  // candidate could not start in time: as long as the slowest one took.
  std::vector<Entry> entries;
  std::uint64_t improved_count = 0;  // entries faster than the backend's own values
  std::uint64_t candidate_count = 0, refused_count = 0, wrong_count = 0, dropped_count = 0;
  std::uint64_t known_count = 0;  // cases that were finished before
  bool complete = true;           // false: max_seconds ended the search early
};

// A case that `known` has, with the same search, is not measured again. Throws Error: INVALID_ARGUMENT (cases, a
// range's name, too many combinations), UNSUPPORTED (on_device, and the backend is no device), UNAVAILABLE (nothing to
// tune, or the device refused every candidate, or every one with the values of a range), CANCELLED, INTERNAL (the
// backend's own values give wrong bytes), and those of hooks. Finished cases then went through hooks.found.
Result autotune(core::Backend &backend, const Options &options, const Table &known, const Hooks &hooks);

}  // namespace tandem::tuning
