// SPDX-License-Identifier: Apache-2.0
#include "core/codec8.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "core/gf.hpp"
#include "core/presets.hpp"
#include "core/wide.hpp"

namespace tandem::core {
namespace {

// Numbers of GF(2^4) become elements of GF(2^8).
void take_subfield(Matrix &matrix) {
  for (unsigned r = 0; r < matrix.rows(); ++r) {
    for (unsigned c = 0; c < matrix.columns(); ++c) {
      if (matrix.at(r, c) >= gf::kSubfield4.element.size())
        base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "codec options: coefficient ", matrix.at(r, c), " of parity row ", r,
                   ", column ", c, " is not in GF(2^4), which word_bits = 4 asks for");
      matrix.at(r, c) = gf::kSubfield4.element[matrix.at(r, c)];
    }
  }
}

void check_local_groups(const Preset &preset, const tandem_codec_options &options) {
  if (options.local_groups == 0 || options.local_groups > std::min(options.k, options.m)) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "codec options: local_groups is ", options.local_groups, ", matrix ",
               preset.name, " with k = ", options.k, ", m = ", options.m, " has 1 to ", std::min(options.k, options.m));
  }
  check_no_coefficients(options, preset.name);
}

Matrix custom_matrix(const tandem_codec_options &options) {
  Matrix matrix(options.m, options.k);
  if (options.m == 0) return matrix;
  if (options.coefficients == nullptr) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "codec options: a custom matrix needs coefficients (", options.m, " x ",
               options.k, " bytes), got NULL");
  }
  std::memcpy(matrix.row(0).data(), options.coefficients, std::size_t{options.m} * options.k);
  return matrix;
}

[[noreturn]] void refuse_preset(const Preset &preset, unsigned k, unsigned m) {
  base::fail(TANDEM_ERROR_NOT_MDS, "matrix ", preset.name, " with k = ", k, ", m = ", m,
             " cannot recover from every loss of ", count_of(m, "shard"), " (it can for ", preset.mds_limit,
             "): use isal-cauchy, or set allow_non_mds to read what exists");
}

// Logarithm of the XOR of two points of a CauchyForm. That of a point with itself and with infinity is 0, so that both
// drop out of a product. In a table of bytes the whole set-up of a decode stays in the L1 cache.
constexpr std::array<std::uint8_t, 512> make_difference_logs() {
  std::array<std::uint8_t, 512> logs{};
  for (unsigned i = 1; i < 256; ++i) logs[i] = gf::kTables.log[i];
  return logs;
}

constexpr auto kDifferenceLogs = make_difference_logs();

}  // namespace

Codec8::Codec8(const tandem_codec_options &options) : Codec(options) {
  const bool allow_non_mds = options.allow_non_mds != 0, is_subfield = packets_ && packets_->word_bits == 4;
  const Preset *const preset = find_preset(options.matrix);
  if (options.matrix == TANDEM_MATRIX_CUSTOM) {
    parity_ = custom_matrix(options);
    if (is_subfield) take_subfield(parity_);
    cauchy_ = find_cauchy_form(parity_);
    is_mds_ = cauchy_.has_value();
    if (!is_mds_ && !allow_non_mds) {  // allow_non_mds makes the proof unnecessary
      check_proof(prove_mds(parity_), options.k, options.m);
      is_mds_ = true;
    }
  } else if (preset == nullptr) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "codec options: unknown matrix ", options.matrix);
  } else if (preset->make_groups != nullptr) {
    check_local_groups(*preset, options);
    groups_ = {k_, options.local_groups, m_ - options.local_groups, preset->are_globals_first};
    name_ = preset->name;
    parity_ = preset->make_groups(*groups_);
    is_mds_ = false;
  } else {
    check_no_coefficients(options, preset->name);
    parity_ = is_subfield ? make_jerasure4(options.matrix, options.k, options.m) : preset->make(options.k, options.m);
    if (preset->points != nullptr && options.m != 0 && !packets_) {
      std::vector<std::uint16_t> points = preset->points(options.k, options.m);
      has_runs_ = !points.empty();
      if (has_runs_) cauchy_ = cauchy_form_at(parity_, std::move(points));
    }
    if (!has_runs_) cauchy_ = find_cauchy_form(parity_);
    name_ = preset->name;
    is_mds_ = preset->is_mds(options.k, options.m);
    if (!is_mds_ && !allow_non_mds) refuse_preset(*preset, options.k, options.m);
  }
}

Operator Codec8::encode_of(std::span<const std::uint16_t> outputs) const {
  if (has_runs_ && is_wide(k_, outputs.size()))
    return Operator(encode_transform(*cauchy_, indices_of(ShardSet(), 0, k_, false), outputs));
  Matrix rows(static_cast<unsigned>(outputs.size()), k_);
  for (unsigned i = 0; i < rows.rows(); ++i) std::ranges::copy(parity_.row(outputs[i] - k_), rows.row(i).begin());
  return operator_of(std::move(rows));
}

Operator Codec8::column_of(unsigned index, std::span<const std::uint16_t> outputs) const {
  Matrix cells(static_cast<unsigned>(outputs.size()), 1);
  for (unsigned i = 0; i < cells.rows(); ++i) cells.at(i, 0) = parity_.at(outputs[i] - k_, index);
  return operator_of(std::move(cells));
}

Operator Codec8::operator_of(Matrix coefficients) const {
  if (!packets_) return Operator(std::move(coefficients));
  return packet_operator(coefficients.rows(), coefficients.columns(), [&](unsigned r, unsigned c, unsigned i) {
    const std::uint8_t cell = coefficients.at(r, c);
    if (packets_->word_bits != 4) return gf::multiply(cell, static_cast<std::uint8_t>(1u << i));
    return gf::kSubfield4.number[gf::multiply(cell, gf::kSubfield4.element[1u << i])];
  });
}

void Codec8::solve_for(const ShardSet &present, std::span<const std::uint32_t> costs, const SetupWork &,
                       Application &application) const {
  if (groups_ || !costs.empty()) return solve_cheapest(present, costs, application);
  Indices &inputs = application.inputs;
  const Indices &outputs = application.outputs;
  // Not in vectors: their allocation would be a tenth of the set-up of a small code.
  std::array<std::uint16_t, kMaxShards> lost_room, parity_room;
  std::size_t lost_count = 0, parity_count = 0;
  inputs.reserve(k_);
  for (std::uint16_t i = 0; i < k_; ++i) {
    if (present[i])
      inputs.push_back(i);
    else
      lost_room[lost_count++] = i;
  }
  for (auto i = static_cast<std::uint16_t>(k_); i < shard_count() && (!is_mds_ || parity_count < lost_count); ++i)
    if (present[i]) parity_room[parity_count++] = i;
  if (is_mds_ && parity_count < lost_count) fail_too_few(lost_count, parity_count);
  const std::span lost_data(lost_room.data(), lost_count), parity(parity_room.data(), parity_count);

  if (has_runs_ && is_wide(k_, outputs.size()) && points_ascend(*cauchy_, outputs)) {
    if (lost_data.empty()) {
      application.what = Operator(encode_transform(*cauchy_, inputs, outputs));
    } else {
      application.what = Operator(syndrome_decode(*cauchy_, k_, lost_data, parity, inputs, outputs));
      inputs.insert(inputs.end(), parity.begin(), parity.end());
    }
  } else if (cauchy_ && lost_data.size() > 1) {  // for one shard the general way is cheaper: a division
    inputs.insert(inputs.end(), parity.begin(), parity.end());
    interpolate(lost_data, parity, application);
  } else {
    eliminate(present, {parity.begin(), parity.end()}, application);
  }
}

// Closed form. The k inputs determine a polynomial, and an output is its value at the output's point: Lagrange's
// formula. For the k data shards it is the CauchyForm of the parity rows. Now replace the lost data shards by as many
// parity shards. The scale of each shard is multiplied by the product of (its point - a new point), and divided by the
// product of (its point - a lost point). The form stays the same:
//     coefficient[output][input] = scale[output] / scale[input] / (point[output] + point[input]).
// Lost parity comes out the same way as lost data. All of it in logarithms. `lost`: data shards; `parity`: as many.
void Codec8::interpolate(std::span<std::uint16_t> lost, std::span<std::uint16_t> parity,
                         Application &application) const {
  const std::size_t lost_count = lost.size();
  const std::size_t input_count = application.inputs.size();
  for (const std::span<std::uint16_t> each : {lost, parity})
    for (std::uint16_t &shard : each) shard = cauchy_->points[shard];  // from here on the points
  const auto log_of_scale = [&](unsigned shard) {
    const unsigned point = cauchy_->points[shard];
    int log = gf::kTables.log[cauchy_->scales[shard]];
    for (std::size_t i = 0; i < lost_count; ++i) {
      log += kDifferenceLogs[point ^ parity[i]] - kDifferenceLogs[point ^ lost[i]];
    }
    log %= 255;
    return static_cast<unsigned>(log < 0 ? log + 255 : log);
  };

  Matrix coefficients(static_cast<unsigned>(application.outputs.size()), static_cast<unsigned>(input_count));
  // The last row holds what all rows need, until it is written itself.
  std::uint8_t *const logs_of_inverse_scales = coefficients.row(coefficients.rows() - 1).data();
  for (std::size_t c = 0; c < input_count; ++c)
    logs_of_inverse_scales[c] = static_cast<std::uint8_t>(255 - log_of_scale(application.inputs[c]));
  for (unsigned r = 0; r < application.outputs.size(); ++r) {
    const unsigned shard = application.outputs[r];
    const unsigned point = cauchy_->points[shard];
    const unsigned log = log_of_scale(shard) + 255;
    std::uint8_t *row = coefficients.row(r).data();
    for (std::size_t c = 0; c < input_count; ++c) {
      const unsigned input_point = cauchy_->points[application.inputs[c]];
      row[c] = gf::kLongExp[log + logs_of_inverse_scales[c] - kDifferenceLogs[point ^ input_point]];
    }
  }
  multiply_add_count() +=
      2 * lost_count * (input_count + application.outputs.size()) + input_count * application.outputs.size();
  application.what = operator_of(std::move(coefficients));
}

// Present data first, then parity. A sparse row may spare reading shards.
void Codec8::eliminate(const ShardSet &present, Indices parity, Application &application) const {
  if (!is_mds_) {
    const auto weight = [&](std::uint16_t shard) { return k_ - std::ranges::count(parity_.row(shard - k_), 0); };
    std::ranges::stable_sort(parity, {}, weight);
  }
  Indices order = std::move(application.inputs);
  order.insert(order.end(), parity.begin(), parity.end());
  const auto [undetermined, rank] = express(order, application);
  if (!undetermined.empty()) fail_undetermined(present, undetermined, rank);
}

// Fills inputs and what, if these shards, in order of preference, determine the outputs.
Codec8::Findings Codec8::express(const Indices &order, Application &application) const {
  const auto coefficient = [this](unsigned row, unsigned column) { return parity_.at(row, column); };
  const Elimination elimination(gf::kField, coefficient, k_, order);
  Sums<std::uint8_t> sums = elimination.express(application.outputs, !is_mds_);
  if (sums.undetermined.empty()) {
    application.inputs = std::move(sums.inputs);
    application.what = operator_of(std::move(sums.cells));
  }
  return {std::move(sums.undetermined), elimination.rank()};
}

// Take a set that suffices and has no shard too many. It lies in a part of the code in which every shard depends on the
// others. In a code with local groups such a part is a group or the whole code, if coefficients have no accidental
// dependencies. In each such part the greedy choice is the cheapest (it is a matroid). So this tries the groups of the
// wanted shards, and else k shards in order of cost. For other codes that are not MDS it also tries the usual
// elimination.
void Codec8::solve_cheapest(const ShardSet &present, std::span<const std::uint32_t> costs,
                            Application &application) const {
  const auto cost_of = [&](std::uint16_t shard) { return costs.empty() ? 1 : costs[shard]; };
  const auto total = [&](const Application &of) {
    std::uint64_t sum = 0;
    for (const std::uint16_t shard : of.inputs) sum += cost_of(shard);
    return sum;
  };
  Indices all = indices_of(present, 0, shard_count());
  std::ranges::stable_sort(all, {}, cost_of);
  const Indices &outputs = application.outputs;

  Application best;
  best.outputs = outputs;
  bool is_found = express(all, best).undetermined.empty();
  const auto consider = [&](Application &&other) {
    if (is_found && total(other) >= total(best)) return;
    best = std::move(other);
    is_found = true;
  };
  Application other;
  other.outputs = outputs;
  if (groups_ && std::ranges::none_of(outputs, [&](std::uint16_t shard) { return groups_->is_global(shard); })) {
    std::vector<bool> is_wanted(groups_->group_count);
    for (const std::uint16_t shard : outputs) is_wanted[groups_->group_of(shard)] = true;
    std::erase_if(
        all, [&](std::uint16_t shard) { return groups_->is_global(shard) || !is_wanted[groups_->group_of(shard)]; });
    if (express(all, other).undetermined.empty()) consider(std::move(other));
  } else if (!groups_ && !is_mds_) {
    other.inputs = indices_of(present, 0, k_);
    eliminate(present, indices_of(present, k_, shard_count()), other);  // says why if it cannot
    consider(std::move(other));
  }
  if (!is_found) {
    if (groups_) fail_groups(present);
    fail_too_few(indices_of(present, 0, k_, false).size(), indices_of(present, k_, shard_count()).size());
  }
  application = std::move(best);
}

void Codec8::fail_groups(const ShardSet &present) const {
  const auto lost_of = [&](unsigned begin, unsigned end) {
    return end - begin - indices_of(present, begin, end).size();
  };
  const unsigned first_global = groups_->global_parity(0), all_globals = groups_->global_count;
  const std::size_t globals = all_globals - lost_of(first_global, first_global + all_globals);
  std::size_t beyond = 0;
  std::string list;
  unsigned named = 0, unnamed = 0;
  for (unsigned group = 0; group < groups_->group_count; ++group) {
    const unsigned begin = groups_->begin(group), end = groups_->end(group), parity = groups_->local_parity(group);
    const std::size_t lost = lost_of(begin, end) + (present[parity] ? 0 : 1);
    if (lost < 2) continue;
    beyond += lost - 1;
    if (++named > 3) {
      ++unnamed;
      continue;
    }
    list += base::text(list.empty() ? "" : ", ", "group ", group, " (data shards ", begin, " to ", end - 1,
                       ", parity shard ", parity, ") misses ", lost, " of ", end - begin + 1);
  }
  if (unnamed != 0) list += base::text(" and ", count_of(unnamed, "group"), " more");
  if (list.empty()) list = "no group misses two shards";
  base::fail(TANDEM_ERROR_NOT_RECOVERABLE, "matrix ", name_, ": ", list, "; beyond one for each group that is ", beyond,
             ", and ", globals, " of ", count_of(all_globals, "global parity shard"), " present",
             beyond > globals ? "" : ": enough for most such losses, but not for this one");
}

}  // namespace tandem::core
