// SPDX-License-Identifier: Apache-2.0
#include "tuning/candidates.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"

namespace tandem::tuning {

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Candidates::Candidates(core::Backend &backend, const core::Matrix &matrix, core::Mode mode, const Options &options)
    : parameters_(parameters_of(backend, matrix, mode, options)) {
  core::TuningValues own;
  for (const core::TuningParameter &parameter : parameters_) {
    own[parameter.name] = parameter.is_switch_over ? 0 : parameter.value;
    if (parameter.name.starts_with("local_")) local_sizes_.push_back(parameter);
  }
  built_in_ = &candidate(own);
  if (const std::size_t count = combinations(local_sizes_); !is_grid() && count > kMostCombinations) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, count, " combinations of local sizes; at most ", kMostCombinations,
               " are tried");
  }
}

std::vector<Candidate *> Candidates::along(const core::TuningParameter &one, const core::TuningValues &rest) {
  return product({one}, rest);
}

std::uint64_t Candidates::planned_count() const {
  if (is_grid()) return combinations(parameters_);
  std::uint64_t count = combinations(local_sizes_);
  for (const core::TuningParameter &parameter : parameters_) count += 2 * parameter.candidates.size();
  return count;
}

unsigned Candidates::changes(const Candidate &of) const {
  unsigned count = 0;
  for (const auto &[name, value] : of.values) count += built_in_->values.at(name) != value;
  return count;
}

std::string Candidates::text() const {
  std::string text;
  for (const core::TuningParameter &parameter : parameters_)
    text += base::text("; ", parameter.name, " ", parameter.value, ": ", base::join(parameter.candidates, " "));
  return text;
}

std::vector<core::TuningParameter> Candidates::parameters_of(core::Backend &backend, const core::Matrix &matrix,
                                                             core::Mode mode, const Options &options) {
  std::vector<core::TuningParameter> parameters;
  if (const core::Tunable *tunable = backend.tunable())
    parameters = tunable->tuning_parameters(matrix.rows(), matrix.columns(), mode);
  if (parameters.empty())
    base::fail(TANDEM_ERROR_UNAVAILABLE, "backend ", backend.traits().name, " has nothing to tune");
  for (const NamedValues &range : options.ranges) {
    const auto found = std::ranges::find_if(
        parameters, [&](const core::TuningParameter &parameter) { return parameter.name == range.name; });
    if (found != parameters.end() && options.on_device && found->is_of_transfers) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, range.name,
                 " makes no difference to shards in the memory of the device");
    }
    if (found == parameters.end()) {
      std::string names;
      for (const core::TuningParameter &parameter : parameters) names += (names.empty() ? "" : ", ") + parameter.name;
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "backend ", backend.traits().name, " has no ", range.name,
                 " to tune; it has ", names);
    }
    if (range.values.empty()) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "no values for ", range.name);
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

std::size_t Candidates::combinations(const std::vector<core::TuningParameter> &parameters) {
  std::size_t count = 1;
  for (const core::TuningParameter &parameter : parameters)
    if (__builtin_mul_overflow(count, parameter.candidates.size(), &count)) return SIZE_MAX;
  return count;
}

Candidate &Candidates::candidate(const core::TuningValues &values) {
  Candidate &found = all_[values];
  found.values = values;
  return found;
}

std::vector<Candidate *> Candidates::product(const std::vector<core::TuningParameter> &parameters,
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

}  // namespace tandem::tuning
