// SPDX-License-Identifier: Apache-2.0
// The sets of tuning values that may be tried for one case.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "core/backend.hpp"
#include "tuning/autotune.hpp"

namespace tandem::tuning {

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

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
  Candidates(core::Backend &backend, const core::Matrix &matrix, core::Mode mode, const Options &options)
      : parameters_(parameters_of(backend, matrix, mode, options)) {
    core::TuningValues own;
    for (const core::TuningParameter &parameter : parameters_) {
      own[parameter.name] = parameter.is_switch_over ? 0 : parameter.value;
      if (parameter.name.starts_with("local_")) local_sizes_.push_back(parameter);
    }
    built_in_ = &candidate(own);
    if (const std::size_t count = combinations(local_sizes_); !is_grid() && count > kMostCombinations) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
                 base::text(count, " combinations of local sizes; at most ", kMostCombinations, " are tried"));
    }
  }

  Candidate &built_in() { return *built_in_; }  // the backend's own values
  const Candidate &built_in() const { return *built_in_; }

  bool is_grid() const { return combinations(parameters_) <= kMostGrid; }
  // Each makes the candidates that do not exist yet. They keep their addresses.
  std::vector<Candidate *> grid() { return product(parameters_, built_in_->values); }
  std::vector<Candidate *> local_sizes() { return product(local_sizes_, built_in_->values); }
  std::vector<Candidate *> along(const core::TuningParameter &one, const core::TuningValues &rest) {
    return product({one}, rest);
  }

  // How many the search tries, if it drops none.
  std::uint64_t planned_count() const {
    if (is_grid()) return combinations(parameters_);
    std::uint64_t count = combinations(local_sizes_);
    for (const core::TuningParameter &parameter : parameters_) count += 2 * parameter.candidates.size();
    return count;
  }

  const std::vector<core::TuningParameter> &parameters() const { return parameters_; }
  std::map<core::TuningValues, Candidate> &all() { return all_; }
  const std::map<core::TuningValues, Candidate> &all() const { return all_; }

  // How many values differ from the backend's own.
  unsigned changes(const Candidate &of) const {
    unsigned count = 0;
    for (const auto &[name, value] : of.values) count += built_in_->values.at(name) != value;
    return count;
  }

  // Of all that may be tried.
  std::string text() const {
    std::string text;
    for (const core::TuningParameter &parameter : parameters_)
      text += base::text("; ", parameter.name, " ", parameter.value, ": ", base::join(parameter.candidates, " "));
    return text;
  }

 private:
  static std::vector<core::TuningParameter> parameters_of(core::Backend &backend, const core::Matrix &matrix,
                                                          core::Mode mode, const Options &options) {
    std::vector<core::TuningParameter> parameters;
    if (const core::Tunable *tunable = backend.tunable())
      parameters = tunable->tuning_parameters(matrix.rows(), matrix.columns(), mode);
    if (parameters.empty())
      base::fail(TANDEM_ERROR_UNAVAILABLE, base::text("backend ", backend.traits().name, " has nothing to tune"));
    for (const NamedValues &range : options.ranges) {
      const auto found =
          std::find_if(parameters.begin(), parameters.end(),
                       [&](const core::TuningParameter &parameter) { return parameter.name == range.name; });
      if (found != parameters.end() && options.on_device && found->is_of_transfers) {
        base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
                   base::text(range.name, " makes no difference to shards in the memory of the device"));
      }
      if (found == parameters.end()) {
        std::string names;
        for (const core::TuningParameter &parameter : parameters) names += (names.empty() ? "" : ", ") + parameter.name;
        base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
                   base::text("backend ", backend.traits().name, " has no ", range.name, " to tune; it has ", names));
      }
      if (range.values.empty()) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, base::text("no values for ", range.name));
      found->candidates = range.values;
      found->is_switch_over = false;  // the user has chosen the values
    }
    if (options.on_device) {
      std::erase_if(parameters,
                    [](const auto &parameter) { return parameter.is_of_transfers && !parameter.is_switch_over; });
    }
    for (core::TuningParameter &parameter : parameters)
      if (parameter.is_switch_over) parameter.candidates = {0};
    return parameters;
  }

  static std::size_t combinations(const std::vector<core::TuningParameter> &parameters) {
    std::size_t count = 1;
    for (const core::TuningParameter &parameter : parameters)
      if (__builtin_mul_overflow(count, parameter.candidates.size(), &count)) return SIZE_MAX;
    return count;
  }

  Candidate &candidate(const core::TuningValues &values) {
    Candidate &found = all_[values];
    found.values = values;
    return found;
  }

  // Every combination of `parameters`.
  std::vector<Candidate *> product(const std::vector<core::TuningParameter> &parameters,
                                   const core::TuningValues &rest) {
    const std::size_t count = combinations(parameters);
    std::vector<Candidate *> list;
    for (std::size_t i = 0; i < count; ++i) {
      core::TuningValues values = rest;
      std::size_t left = i;
      for (const core::TuningParameter &parameter : parameters) {
        values[parameter.name] = parameter.candidates[left % parameter.candidates.size()];
        left /= parameter.candidates.size();
      }
      list.push_back(&candidate(values));
    }
    return list;
  }

  std::vector<core::TuningParameter> parameters_, local_sizes_;
  std::map<core::TuningValues, Candidate> all_;
  Candidate *built_in_;
};

}  // namespace tandem::tuning
