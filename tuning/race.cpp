// SPDX-License-Identifier: Apache-2.0
#include "tuning/race.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace tandem::tuning {

constexpr std::uint64_t kMostCalls = 1 << 20;  // in one repeat

template <class Body>
bool Race::attempt(Candidate &of, const Body &body) {
  bool right = false;
  try {
    right = body();
  } catch (const base::Error &error) {
    if (error.status() == TANDEM_ERROR_CANCELLED) throw;
    last_refusal_ = error.what();
    give_up(of, Failure::refused);
    return false;
  }
  if (!right) give_up(of, Failure::wrong);
  return right;
}

template <class Rating>
Candidate *Race::simplest(const std::vector<Candidate *> &list, const Rating &rating) const {
  double best = 0;
  for (const Candidate *each : list) best = std::max(best, rating(each));
  Candidate *found = nullptr;
  unsigned least_changes = 0;
  for (Candidate *each : list) {
    if (rating(each) * kLeastGain < best) continue;
    const unsigned changes = candidates_.changes(*each);
    if (found != nullptr && (changes > least_changes || (changes == least_changes && rating(each) <= rating(found))))
      continue;
    found = each;
    least_changes = changes;
  }
  return found;
}

Tally::Tally(const Options &its_options, const Hooks &its_hooks)
    : options(its_options), hooks(its_hooks), started_(its_hooks.seconds()) {}

void Tally::tell(Progress progress, std::uint64_t left) const {
  if (!hooks.progress) return;
  progress.done_count = done_count;
  progress.total_count = done_count + left;
  progress.seconds_left = done_count == 0 ? 0 : elapsed() / static_cast<double>(done_count) * static_cast<double>(left);
  if (options.max_seconds > 0)
    progress.seconds_left = std::min(progress.seconds_left, std::max(0.0, options.max_seconds - elapsed()));
  if (!hooks.progress(progress)) base::fail(TANDEM_ERROR_CANCELLED, "tuning was interrupted");
}

Race::Race(core::Backend &backend, const core::Operator &what, const Case &at, Candidates &candidates, Check &check,
           Tally &tally, double data_bytes, std::uint64_t later_repeats)
    : backend_(backend),
      what_(what),
      at_(at),
      candidates_(candidates),
      check_(check),
      tally_(tally),
      data_bytes_(data_bytes),
      later_repeats_(later_repeats) {}

void Race::run(std::vector<Candidate *> racing, double deadline) {
  if (best_ != nullptr) put_first(racing, best_);
  put_first(racing, &candidates_.built_in());  // the reference for the others, and the result if time is short
  const bool is_new = std::ranges::any_of(racing, [&](const Candidate *each) {
    return each->is_alive() && (each->score == 0 || each->bytes_per_second.size() < tally_.options.repeats);
  });
  if (!is_new) return;
  for (Candidate *each : racing)  // rates of an earlier race were measured under other conditions
    if ((each == best_ || each == &candidates_.built_in()) && each->is_alive() && each->score > 0)
      each->bytes_per_second.clear();
  drop_slow(racing);
  time_all(racing, deadline);
  score(racing);
  tell(racing, comparison_turns());
}

Winner Race::winner(double deadline) {
  for (;;) {
    const std::vector<Candidate *> list = finalists(deadline);
    if (list.empty()) fail_all();
    Rates rates;
    if (!compare_in_turns(list, deadline, rates)) continue;
    tell({}, 0);
    const Candidate *const found = winner_of(list, rates);
    const Candidate &own = candidates_.built_in();
    return {found, median(rates[found]), own.failure ? 0 : median(rates[&own])};
  }
}

void Race::tell(const std::vector<Candidate *> &racing, std::uint64_t comparison_left) const {
  const unsigned repeats = tally_.options.repeats;
  std::uint64_t left = later_repeats_ + comparison_left;
  for (const Candidate *each : racing)
    if (each->is_alive()) left += repeats - std::min<std::size_t>(repeats, each->bytes_per_second.size());
  const Candidate *fastest = nullptr;
  for (const auto &[values, each] : candidates_.all())
    if (each.is_timed() && (fastest == nullptr || each.rate() > fastest->rate())) fastest = &each;
  Progress progress = {};
  progress.at = at_;
  progress.best = fastest != nullptr ? &fastest->values : nullptr;
  progress.best_bytes_per_second = fastest != nullptr ? fastest->rate() : 0;
  const Candidate &built_in = candidates_.built_in();
  progress.default_bytes_per_second = built_in.is_timed() ? built_in.rate() : 0;
  tally_.tell(progress, left);
}

void Race::put_first(std::vector<Candidate *> &list, Candidate *one) {
  std::erase(list, one);
  list.insert(list.begin(), one);
}

void Race::time_all(const std::vector<Candidate *> &racing, double deadline) {
  for (unsigned repeat = 0; repeat < tally_.options.repeats; ++repeat) {
    for (std::size_t turn = 0; turn < racing.size(); ++turn) {
      Candidate &now = *racing[(turn + repeat) % racing.size()];
      if (!now.is_alive() || now.bytes_per_second.size() > repeat) continue;
      const bool any = std::ranges::any_of(racing, [](const Candidate *each) { return each->is_timed(); });
      const double needed = now.prepared == nullptr ? tally_.longest_start_seconds : 0;
      if (any && tally_.elapsed() + needed >= deadline) {
        is_cut_short_ = true;
        continue;
      }
      tell(racing, comparison_turns());
      if (const double rate = measure(now); rate > 0) {
        now.bytes_per_second.push_back(rate);
        ++tally_.done_count;
        drop_slow(racing);
      }
    }
  }
}

double Race::measure(Candidate &of) {
  if (!make_ready(of)) return 0;
  double rate = 0;
  attempt(of, [&] {
    check_.run(*of.prepared, 1);  // brings caches and clocks into the state of a repeat
    const double before = tally_.hooks.seconds();
    check_.run(*of.prepared, of.calls);
    const double seconds = std::max(tally_.hooks.seconds() - before, 1e-9);
    rate = data_bytes_ * static_cast<double>(of.calls) / seconds;
    return true;
  });
  return of.failure ? 0 : rate;
}

bool Race::make_ready(Candidate &of) {
  if (of.prepared != nullptr) return true;
  return attempt(of, [&] {
    const double started = tally_.elapsed();
    of.prepared = backend_.tunable()->prepare_tuned(what_, of.values);
    if (!check_.is_right(*of.prepared)) return false;
    tally_.longest_start_seconds = std::max(tally_.longest_start_seconds, tally_.elapsed() - started);
    const double before = tally_.hooks.seconds();
    check_.run(*of.prepared, 1);
    const double one = std::max(tally_.hooks.seconds() - before, 1e-9);
    of.calls = static_cast<std::uint64_t>(
        std::clamp(std::ceil(tally_.options.sample_seconds / one), 1.0, static_cast<double>(kMostCalls)));
    return true;
  });
}

void Race::give_up(Candidate &of, Failure failure) {
  of.failure = failure;
  of.prepared = nullptr;
  ++(failure == Failure::refused ? tally_.result.refused_count : tally_.result.wrong_count);
  if (failure == Failure::wrong && &of == &candidates_.built_in()) check_.fail_built_in();
}

void Race::drop_slow(const std::vector<Candidate *> &racing) {
  const unsigned least = std::min(kLeastSamples, tally_.options.repeats);
  const auto has_enough = [&](const Candidate *each) {
    return each->is_alive() && each->bytes_per_second.size() >= least;
  };
  double fastest = 0;
  for (const Candidate *each : racing)
    if (has_enough(each)) fastest = std::max(fastest, each->rate());
  for (Candidate *each : racing) {
    if (each == &candidates_.built_in() || each == best_ || !has_enough(each) || each->rate() >= fastest / kDropFactor)
      continue;
    each->dropped = true;
    each->prepared = nullptr;
    ++tally_.result.dropped_count;
  }
}

void Race::score(const std::vector<Candidate *> &racing) {
  const double own = candidates_.built_in().is_timed() ? candidates_.built_in().rate() : 1;
  std::vector<Candidate *> scored;
  for (Candidate *each : racing) {
    if (!each->is_timed()) continue;
    each->score = each->rate() / own;
    if (!each->dropped) scored.push_back(each);
  }
  if (!scored.empty()) best_ = simplest(scored, [](const Candidate *each) { return each->score; });
}

std::vector<Candidate *> Race::finalists(double deadline) {
  Candidate *const built_in = &candidates_.built_in();
  std::vector<Candidate *> list;
  for (auto &[values, each] : candidates_.all())
    if (each.score > 0 && !each.failure && &each != built_in) list.push_back(&each);
  std::ranges::stable_sort(list, [](const Candidate *a, const Candidate *b) { return a->score > b->score; });
  double ready = tally_.elapsed();
  std::erase_if(list, [&](const Candidate *each) {  // those that were dropped start again
    if (each->prepared != nullptr || each == best_) return false;
    return (ready += tally_.longest_start_seconds) >= deadline;
  });
  if (list.size() > kFinalists) list.resize(kFinalists);
  if (best_ != nullptr && !best_->failure && best_ != built_in && std::ranges::find(list, best_) == list.end())
    list.push_back(best_);
  if (!built_in->failure) list.insert(list.begin(), built_in);
  return list;
}

bool Race::compare_in_turns(const std::vector<Candidate *> &list, double deadline, Rates &rates) {
  for (unsigned repeat = 0; repeat < comparison_turns(); ++repeat) {
    if (repeat >= kLeastComparisons && tally_.elapsed() >= deadline) {
      is_cut_short_ = true;
      return true;
    }
    tell({}, comparison_turns() - repeat);
    for (std::size_t turn = 0; turn < list.size(); ++turn) {
      Candidate &now = *list[(turn + repeat) % list.size()];
      const double rate = measure(now);
      if (now.failure) return false;
      rates[&now].push_back(rate);
    }
    ++tally_.done_count;
  }
  return true;
}

const Candidate *Race::winner_of(const std::vector<Candidate *> &list, const Rates &rates) {
  Candidate *const built_in = &candidates_.built_in();
  if (built_in->failure) return simplest(list, [&](const Candidate *each) { return median(rates.at(each)); });
  const std::vector<double> &own = rates.at(built_in);
  std::map<const Candidate *, double> gains;
  std::vector<Candidate *> better;
  for (Candidate *each : list) {
    std::vector<double> ratios;
    for (std::size_t turn = 0; turn < own.size(); ++turn) ratios.push_back(rates.at(each)[turn] / own[turn]);
    const auto wins = static_cast<std::size_t>(std::ranges::count_if(ratios, [](double ratio) { return ratio > 1; }));
    gains[each] = std::min(median(ratios), median(rates.at(each)) / median(own));
    if (gains[each] >= kLeastGain && 5 * wins >= 4 * ratios.size()) better.push_back(each);
  }
  return better.empty() ? built_in : simplest(better, [&](const Candidate *each) { return gains.at(each); });
}

void Race::fail_all() const {
  std::uint64_t refused = 0, wrong = 0;
  for (const auto &[values, each] : candidates_.all()) {
    refused += each.failure == Failure::refused;
    wrong += each.failure == Failure::wrong;
  }
  base::fail(TANDEM_ERROR_UNAVAILABLE, refused, " of ", candidates_.all().size(), " candidates for ",
             core::tuned_operation_name(at_.operation), " (", at_.k, ", ", at_.m, ") were refused by ",
             backend_.traits().name, ", ", wrong, " gave wrong bytes; none is left", last_refusal());
}

unsigned Race::comparison_turns() const { return std::max(kLeastComparisons, tally_.options.repeats); }

}  // namespace tandem::tuning
