// SPDX-License-Identifier: Apache-2.0
// Times candidates against each other.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tuning/candidates.hpp"
#include "tuning/check.hpp"

namespace tandem::tuning {

inline constexpr unsigned kLeastComparisons = 3;  // even if the time is over: a single one could be chance

// The clock and the figures of the whole tuning.
class Tally {
 public:
  Tally(const Options &its_options, const Hooks &its_hooks);

  double elapsed() const { return hooks.seconds() - started_; }
  // `left`: repeats still to do, over all cases. Throws Error (CANCELLED).
  void tell(Progress progress, std::uint64_t left) const;

  const Options &options;
  const Hooks &hooks;
  Result result;
  std::uint64_t done_count = 0;
  double longest_start_seconds = 0;  // of a candidate: to compile and check it

 private:
  double started_;
};

struct Winner {
  const Candidate *candidate;
  double bytes_per_second, default_bytes_per_second;  // measured in turns; 0: the backend's own values do not run
};

// All races of one case. Deadlines are times of Tally::elapsed.
class Race {
 public:
  // `data_bytes` of one run. `later_repeats`: an estimate for the later cases.
  Race(core::Backend &backend, const core::Operator &what, const Case &at, Candidates &candidates, Check &check,
       Tally &tally, double data_bytes, std::uint64_t later_repeats);

  // Round-robin: one repeat of each candidate; the next round begins one candidate later. The backend's own values and
  // the best so far take part always.
  void run(std::vector<Candidate *> racing, double deadline);

  const Candidate &best() const { return best_ != nullptr ? *best_ : candidates_.built_in(); }  // of the races so far

  // Compares the best ones and the backend's own values once more. If a candidate fails now, the next best takes its
  // place. Throws Error (UNAVAILABLE) if none is left.
  Winner winner(double deadline);

  // Tells the progress; `comparison_left`: repeats of the last comparison still to do.
  void tell(const std::vector<Candidate *> &racing, std::uint64_t comparison_left) const;

  bool is_cut_short() const { return is_cut_short_; }
  void cut_short() { is_cut_short_ = true; }
  // A sentence for a message, or "".
  std::string last_refusal() const { return last_refusal_.empty() ? "" : ". The last refusal: " + last_refusal_; }

 private:
  using Rates = std::map<const Candidate *, std::vector<double>>;

  static void put_first(std::vector<Candidate *> &list, Candidate *one);
  void time_all(const std::vector<Candidate *> &racing, double deadline);

  // One repeat, in bytes of data per second; 0 if the candidate was dropped.
  double measure(Candidate &of);

  // Prepares it, checks it, and times one run. Returns whether it still takes part.
  bool make_ready(Candidate &of);

  // Runs body. An Error of the device drops the candidate. Returns whether it still takes part.
  template <class Body>
  bool attempt(Candidate &of, const Body &body);
  void give_up(Candidate &of, Failure failure);

  // All except the backend's own values and the best so far, which the others are compared with.
  void drop_slow(const std::vector<Candidate *> &racing);

  // Relative to the backend's own values in the same race, so that candidates of different races can be compared.
  void score(const std::vector<Candidate *> &racing);

  // Among the candidates as good as the best, within noise: the one with most of the backend's own values.
  template <class Rating>
  Candidate *simplest(const std::vector<Candidate *> &list, const Rating &rating) const;
  unsigned comparison_turns() const;

  // The backend's own values and the best others that can run.
  std::vector<Candidate *> finalists(double deadline);

  // False: a candidate failed.
  bool compare_in_turns(const std::vector<Candidate *> &list, double deadline, Rates &rates);

  // In turns with the backend's own values: a single fast turn does not decide.
  const Candidate *winner_of(const std::vector<Candidate *> &list, const Rates &rates);
  [[noreturn]] void fail_all() const;

  core::Backend &backend_;
  const core::Operator &what_;
  const Case &at_;
  Candidates &candidates_;
  Check &check_;
  Tally &tally_;
  const double data_bytes_;
  const std::uint64_t later_repeats_;
  Candidate *best_ = nullptr;
  bool is_cut_short_ = false;
  std::string last_refusal_;
};

}  // namespace tandem::tuning
