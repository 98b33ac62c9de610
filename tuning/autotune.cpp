// SPDX-License-Identifier: Apache-2.0
#include "tuning/autotune.hpp"

#include <algorithm>
#include <deque>
#include <random>

#include "base/error.hpp"
#include "base/options.hpp"
#include "base/text.hpp"
#include "core/codec.hpp"
#include "core/plan.hpp"
#include "tuning/candidates.hpp"
#include "tuning/check.hpp"
#include "tuning/race.hpp"

namespace tandem::tuning {
namespace {

constexpr double kLocalSizesShare = 0.4;  // of the search's time, if values are searched one after the other
constexpr double kSearchShare = 0.8;      // of a case's time; the rest is for the last comparison

// The operator of an operation.
core::Operator operator_of(const Case &at) {
  auto options = base::sized<tandem_codec_options>();
  options.k = at.operation == core::TunedOperation::update ? 2 : at.k;
  options.m = at.m;
  const std::shared_ptr<const core::Codec> codec = core::make_codec(options);
  core::ShardSet parity;
  for (unsigned r = 0; r < codec->m(); ++r) parity.set(codec->k() + r);
  if (at.operation == core::TunedOperation::update) return update_of(codec->column(1, parity).what);
  if (at.operation != core::TunedOperation::decode) return codec->encode(parity).what;
  core::ShardSet lost, present;  // the first m shards
  for (unsigned i = 0; i < codec->shard_count(); ++i) (i < codec->m() ? lost : present).set(i);
  return codec->decode(present, lost)->what;
}

// Device memory is faster than host memory, so the data is four times as large. Otherwise a run would be too short.
std::uint64_t default_shard_bytes(unsigned shards, bool on_device) {
  constexpr std::uint64_t kStripe = 64 << 20, kLeast = 64 << 10, kMost = 16 << 20;
  const unsigned times = on_device ? 4 : 1;
  std::uint64_t bytes = kLeast;
  while (bytes < times * kMost && 2 * bytes * shards <= times * kStripe) bytes *= 2;
  return bytes;
}

// One case.
class CaseSearch {
 public:
  // Throws Error as Candidates does, and INVALID_ARGUMENT (shard_bytes).
  CaseSearch(core::Backend &backend, const Case &at, Tally &tally)
      : backend_(backend),
        at_(at),
        tally_(tally),
        what_(operator_of(at)),
        granularity_bytes_(backend.prepare(what_)->granularity_bytes()),
        candidates_(backend, matrix_, core::tuned_operation_mode(at.operation), tally.options) {
    const Options &options = tally.options;
    const core::Tunable &tunable = *backend.tunable();
    place_.key = {tunable.tuning_identity(), tunable.tuning_kernel_hash(), at.operation, at.k, at.m, options.on_device};
    place_.shard_bytes = options.shard_bytes;
    if (place_.shard_bytes == 0) {
      const std::uint64_t bytes = default_shard_bytes(matrix_.rows() + matrix_.columns(), options.on_device);
      place_.shard_bytes = std::max(granularity_bytes_, bytes / granularity_bytes_ * granularity_bytes_);
    }
    if (place_.shard_bytes % granularity_bytes_ != 0)
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "shard_bytes = ", place_.shard_bytes,
                 " is not a multiple of this code's ", granularity_bytes_, " bytes");
    place_.repeats = options.repeats;
    searched_ = core::tuning_hash(
        base::text("repeats ", options.repeats, "; shard_bytes ", place_.shard_bytes, candidates_.text()));
  }

  // The result of the same search, if the table has it.
  const Entry *known_in(const Table &table) const {
    for (const Entry &each : table.entries())
      if (each.key == place_.key && each.searched == searched_) return &each;
    return nullptr;
  }

  // Repeats of the whole search, if no candidate is dropped.
  std::uint64_t planned_repeats() const {
    const unsigned repeats = tally_.options.repeats;
    return candidates_.planned_count() * repeats + std::max(kLeastComparisons, repeats);
  }

  Entry find_best(double seconds, std::uint64_t later_repeats) {
    const double started = tally_.elapsed(), deadline = seconds > 0 ? started + seconds : HUGE_VAL;
    place_.date = tally_.hooks.date();
    Check check(backend_, what_, at_, tally_.options, place_.shard_bytes, granularity_bytes_);
    const double data_shards = at_.operation == core::TunedOperation::update ? 1 : matrix_.columns();
    Race race(backend_, what_, at_, candidates_, check, tally_, data_shards * static_cast<double>(place_.shard_bytes),
              later_repeats);
    explore(race, started + kSearchShare * (deadline - started));
    tell_tried();
    refuse_dead_ranges(race);
    const Winner winner = race.winner(deadline);
    Entry entry = place_;
    entry.values = winner.candidate->values;
    entry.bytes_per_second = winner.bytes_per_second;
    entry.default_bytes_per_second = winner.default_bytes_per_second;
    for (const core::TuningParameter &parameter : candidates_.parameters())
      if (parameter.is_switch_over && !tally_.options.on_device)
        entry.values[parameter.name] = switch_over_bytes(parameter, entry.values, check, race, deadline);
    for (const core::TuningParameter &parameter : candidates_.parameters())
      if (entry.values[parameter.name] == parameter.value || (tally_.options.on_device && parameter.is_of_transfers))
        entry.values.erase(parameter.name);  // another machine's own value may be better there
    if (!race.is_cut_short()) entry.searched = searched_;
    return entry;
  }

 private:
  void explore(Race &race, double deadline) {
    if (candidates_.is_grid()) return race.run(candidates_.grid(), deadline);
    const auto part_of_time = [&](double share) { return tally_.elapsed() + share * (deadline - tally_.elapsed()); };
    race.run(candidates_.local_sizes(), part_of_time(kLocalSizesShare));
    const std::vector<core::TuningParameter> &parameters = candidates_.parameters();
    for (unsigned pass = 0; pass < kMostPasses; ++pass) {
      const Candidate *before = &race.best();
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (tally_.elapsed() >= deadline) return race.cut_short();
        race.run(candidates_.along(parameters[i], race.best().values),
                 part_of_time(1.0 / static_cast<double>(parameters.size() - i)));
      }
      if (&race.best() == before) return;
    }
  }

  void tell_tried() {
    tally_.result.candidate_count += candidates_.all().size();
    if (!tally_.hooks.tried) return;
    for (const auto &[values, each] : candidates_.all()) {
      if (!each.failure && each.bytes_per_second.empty()) continue;
      Entry at = place_;
      at.values = values;
      if (each.is_timed()) at.bytes_per_second = each.rate();
      tally_.hooks.tried(at, &each == &candidates_.built_in(), each.failure);
    }
  }

  // The backend's own values are always measured. Values that the user asked for must not be dropped silently.
  void refuse_dead_ranges(const Race &race) const {
    for (const NamedValues &range : tally_.options.ranges) {
      std::size_t count = 0, failed = 0;
      for (const auto &[values, each] : candidates_.all()) {
        if (std::ranges::find(range.values, values.at(range.name)) == range.values.end()) continue;
        ++count;
        failed += each.failure.has_value();
      }
      if (count == 0 || failed < count) continue;
      base::fail(TANDEM_ERROR_UNAVAILABLE, backend_.traits().name, " runs none of the ", count,
                 " candidates with the range given for ", range.name, " (", core::tuned_operation_name(at_.operation),
                 " ", at_.k, ", ", at_.m, ")", race.last_refusal());
    }
  }

  // Another matrix of the same shape, which no cache has.
  core::Operator new_matrix() const {
    std::random_device random;
    if (const auto *form = std::get_if<core::CauchyTransform>(&what_.form())) {  // its program may have the points
      core::CauchyTransform other = *form;
      other.output_scales.resize(other.output_points.size());
      for (core::Element &scale : other.output_scales) scale = static_cast<core::Element>(1 + random() % 255);
      return {std::move(other), what_.granularity_bytes()};
    }
    core::Matrix matrix(matrix_.rows(), matrix_.columns());
    for (unsigned r = 0; r < matrix.rows(); ++r)
      for (unsigned c = 0; c < matrix.columns(); ++c) matrix.at(r, c) = static_cast<std::uint8_t>(1 + random() % 255);
    return {std::move(matrix), what_.granularity_bytes()};
  }

  double seconds_of_run(const core::Prepared &prepared, Check &check) const {
    const double before = tally_.hooks.seconds();
    check.assign(prepared);
    return tally_.hooks.seconds() - before;
  }

  // Overwrites the outputs, so it is the last step of a search. Assign stands for every mode: the cost is that of the
  // matrix, and compare would find differences everywhere.
  std::uint64_t switch_over_bytes(const core::TuningParameter &parameter, core::TuningValues values, Check &check,
                                  Race &race, double deadline) {
    std::vector<double> costs, with, without;
    try {
      values[parameter.name] = core::kMostTuningValue;
      const std::shared_ptr<const core::Prepared> never = backend_.tunable()->prepare_tuned(new_matrix(), values);
      seconds_of_run(*never, check);
      values[parameter.name] = 0;
      for (unsigned repeat = 0; repeat < kLeastComparisons; ++repeat) {
        if (tally_.elapsed() + tally_.longest_start_seconds >= deadline) {
          race.cut_short();
          break;
        }
        race.tell({}, 0);
        const std::shared_ptr<const core::Prepared> at_once = backend_.tunable()->prepare_tuned(new_matrix(), values);
        const double first = seconds_of_run(*at_once, check);
        with.push_back(seconds_of_run(*at_once, check));
        costs.push_back(first - with.back());
        without.push_back(seconds_of_run(*never, check));
      }
    } catch (const base::Error &error) {
      if (error.status() == TANDEM_ERROR_CANCELLED) throw;
      return parameter.value;
    }
    if (costs.empty()) return parameter.value;
    const double cost = median(costs), gain = median(without) - median(with);
    if (cost <= 0) return 0;
    const double bytes_of_run = static_cast<double>(matrix_.columns()) * static_cast<double>(place_.shard_bytes);
    const double bytes = gain <= 0 ? HUGE_VAL : cost / gain * bytes_of_run;
    return bytes < static_cast<double>(core::kMostTuningValue) ? static_cast<std::uint64_t>(bytes)
                                                               : core::kMostTuningValue;
  }

  core::Backend &backend_;
  const Case at_;
  Tally &tally_;
  const core::Operator what_;
  const core::Matrix &matrix_ = what_.dense();
  const std::uint64_t granularity_bytes_;
  Candidates candidates_;
  Entry place_;  // all but values and rates
  std::string searched_;
};

// In the form of the keys of entries, each once.
std::vector<Case> distinct(const std::vector<Case> &cases) {
  std::vector<Case> list;
  for (Case at : cases) {
    if (at.k < 1 || at.m < 1 || at.k > core::kMaxShards || at.m > core::kMaxShards || at.k + at.m > core::kMaxShards) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "(", at.k, ", ", at.m,
                 ") cannot be tuned: k and m are at least 1 and together at most ", core::kMaxShards);
    }
    if (at.operation == core::TunedOperation::update) at.k = 1;
    const bool known = std::ranges::any_of(
        list, [&](const Case &other) { return other.operation == at.operation && other.k == at.k && other.m == at.m; });
    if (!known) list.push_back(at);
  }
  if (list.empty()) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "no operation, k or m to tune");
  return list;
}

}  // namespace

Result autotune(core::Backend &backend, const Options &options, const Table &known, const Hooks &hooks) {
  if (options.repeats == 0) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "at least 1 repeat is needed");
  const std::vector<Case> cases = distinct(options.cases);
  if (options.on_device) backend.device_memory(kLine);  // reports early if there is none
  Tally tally(options, hooks);
  // All cases are made before the first is measured, so that wrong ranges are reported at once.
  std::deque<CaseSearch> searches;
  std::uint64_t later_repeats = 0;
  std::size_t left = 0;
  for (const Case &at : cases) {
    searches.emplace_back(backend, at, tally);
    if (searches.back().known_in(known) != nullptr) continue;
    later_repeats += searches.back().planned_repeats();
    ++left;
  }
  for (; !searches.empty(); searches.pop_front()) {
    CaseSearch &search = searches.front();
    if (const Entry *entry = search.known_in(known)) {
      ++tally.result.known_count;
      tally.result.entries.push_back(*entry);
    } else {
      later_repeats -= search.planned_repeats();
      if (options.max_seconds > 0 && tally.done_count != 0 &&
          tally.elapsed() + tally.longest_start_seconds >= options.max_seconds) {
        tally.result.complete = false;
        continue;
      }
      const double seconds = options.max_seconds > 0
                                 ? std::max(options.max_seconds - tally.elapsed(), 1e-3) / static_cast<double>(left--)
                                 : 0;
      tally.result.entries.push_back(search.find_best(seconds, later_repeats));
      if (hooks.found) hooks.found(tally.result.entries.back());
    }
    const Entry &entry = tally.result.entries.back();
    tally.result.improved_count += entry.bytes_per_second > entry.default_bytes_per_second;
    tally.result.complete = tally.result.complete && !entry.searched.empty();
  }
  return tally.result;
}

}  // namespace tandem::tuning
