// SPDX-License-Identifier: Apache-2.0
// The sets of tuning values that may be tried for one case.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/backend.hpp"
#include "tuning/autotune.hpp"

namespace tandem::tuning {

double median(std::vector<double> values);

// One set of values, and what became of it.
struct Candidate {
  core::TuningValues values;
  std::vector<double> bytes_per_second;  // one a repeat
  double score = 0;                      // in its last race, over the backend's own values; 0: it has not raced
  std::optional<Failure> failure;
  bool dropped = false;
  std::shared_ptr<const core::Prepared> prepared;
  std::uint64_t calls = 0;  // in one repeat

  bool is_alive() const { return !failure && !dropped; }
  bool is_timed() const { return !failure && !bytes_per_second.empty(); }
  double rate() const { return median(bytes_per_second); }
};

class Candidates {
 public:
  // Throws Error: UNAVAILABLE (nothing to tune), INVALID_ARGUMENT (a range's name, too many combinations).
  Candidates(core::Backend &backend, const core::Matrix &matrix, core::Mode mode, const Options &options);

  Candidate &built_in() { return *built_in_; }  // the backend's own values
  const Candidate &built_in() const { return *built_in_; }

  bool is_grid() const { return combinations(parameters_) <= kMostGrid; }
  // Each makes the candidates that do not exist yet. They keep their addresses.
  std::vector<Candidate *> grid() { return product(parameters_, built_in_->values); }
  std::vector<Candidate *> local_sizes() { return product(local_sizes_, built_in_->values); }
  std::vector<Candidate *> along(const core::TuningParameter &one, const core::TuningValues &rest);

  // How many the search tries, if it drops none.
  std::uint64_t planned_count() const;

  const std::vector<core::TuningParameter> &parameters() const { return parameters_; }
  std::map<core::TuningValues, Candidate> &all() { return all_; }
  const std::map<core::TuningValues, Candidate> &all() const { return all_; }

  // How many values differ from the backend's own.
  unsigned changes(const Candidate &of) const;

  // A text of all that may be tried.
  std::string text() const;

 private:
  static std::vector<core::TuningParameter> parameters_of(core::Backend &backend, const core::Matrix &matrix,
                                                          core::Mode mode, const Options &options);
  static std::size_t combinations(const std::vector<core::TuningParameter> &parameters);
  Candidate &candidate(const core::TuningValues &values);
  // Every combination of `parameters`.
  std::vector<Candidate *> product(const std::vector<core::TuningParameter> &parameters,
                                   const core::TuningValues &rest);

  std::vector<core::TuningParameter> parameters_, local_sizes_;
  std::map<core::TuningValues, Candidate> all_;
  Candidate *built_in_;
};

}  // namespace tandem::tuning
