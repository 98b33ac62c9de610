// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "bench/case.hpp"
#include "bench/operation.hpp"

namespace tandem::bench {
namespace {

struct Pattern {
  std::vector<std::uint8_t> present;
  std::vector<unsigned> reads, lost;
};

// Different losses of min(k, m) data shards; parity shards replace them in order. All losses of small codes, kMost of
// large ones.
std::vector<Pattern> patterns_of(const BenchCase &at, std::uint64_t seed) {
  constexpr std::size_t kMost = 200;
  constexpr int kMostRepetitions = 1000;
  std::mt19937_64 random(seed);
  std::vector<unsigned> order(at.k);
  std::iota(order.begin(), order.end(), 0U);
  std::set<std::vector<unsigned>> seen;
  std::vector<Pattern> patterns;
  for (int repetitions = 0; patterns.size() < kMost && repetitions < kMostRepetitions;) {
    std::shuffle(order.begin(), order.end(), random);
    std::vector<unsigned> lost(order.begin(), order.begin() + std::min(at.k, at.m));
    std::sort(lost.begin(), lost.end());
    if (!seen.insert(lost).second) {
      ++repetitions;
      continue;
    }
    Pattern pattern;
    pattern.present.assign(at.k + at.m, 1);
    for (const unsigned i : lost) pattern.present[i] = 0;
    for (unsigned i = 0; i < at.k + at.m && pattern.reads.size() < at.k; ++i) {
      if (pattern.present[i] != 0) pattern.reads.push_back(i);
    }
    pattern.lost = std::move(lost);
    patterns.push_back(std::move(pattern));
  }
  return patterns;
}

// Goes through all patterns, round after round, until `calls` are made. Calls `start` before each round, untimed.
template <class Start, class Call>
double time_rounds(const std::vector<Pattern> &patterns, std::size_t calls, BenchClock clock, Start start, Call call) {
  double seconds = 0;
  while (calls > 0) {
    start();
    const std::size_t count = std::min(calls, patterns.size());
    const double began = seconds_now(clock);
    for (std::size_t i = 0; i < count; ++i) call(patterns[i]);
    seconds += seconds_now(clock) - began;
    calls -= count;
  }
  return seconds;
}

}  // namespace

BenchResult run_decode_setup(const BenchCase &at, const BenchSettings &settings) {
  const std::vector<Pattern> patterns = patterns_of(at, settings.seed);
  const ContextOwner context = make_context(settings.context);
  CodecOwner codec = make_codec(at.k, at.m, at.matrix, at.packets);

  // A codec remembers losses. So each round has a new one.
  std::vector<Contestant> contestants = {
      {"tandem", [&](std::size_t calls) {
         return time_rounds(
             patterns, calls, settings.clock, [&] { codec = make_codec(at.k, at.m, at.matrix, at.packets); },
             [&](const Pattern &pattern) {
               tandem_plan_options options{};
               options.struct_bytes = sizeof options;
               options.operation = TANDEM_OPERATION_DECODE;
               options.present = pattern.present.data();
               tandem_plan *plan = nullptr;
               check(tandem_plan_create(context.get(), codec.get(), &options, &plan));
               tandem_plan_destroy(plan);
             });
       }}};
  std::optional<PeerDecode> solver;
  std::vector<std::uint8_t> tables;
  if (has_peer(at, settings)) {
    solver.emplace(*settings.peer, at.k, parity_rows(codec.get(), at.k, at.m));
    tables.resize(std::size_t{32} * at.k * at.m);
    contestants.push_back({"peer", [&](std::size_t calls) {
                             return time_rounds(
                                 patterns, calls, settings.clock, [] {},
                                 [&](const Pattern &pattern) {
                                   const std::vector<std::uint8_t> &rows = solver->solve(pattern.reads, pattern.lost);
                                   settings.peer->fill_tables(at.k, static_cast<unsigned>(pattern.lost.size()),
                                                              rows.data(), tables.data());
                                 });
                           }});
  }

  std::vector<Samples> samples = alternate(contestants, settings.repeats, settings.seconds / settings.repeats);
  BenchResult result;
  result.at = at;
  result.tandem = std::move(samples[0]);
  if (has_peer(at, settings)) result.peer = std::move(samples[1]);
  return result;
}

}  // namespace tandem::bench
