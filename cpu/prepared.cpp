// SPDX-License-Identifier: Apache-2.0
#include "cpu/prepared.hpp"

#include <algorithm>
#include <functional>
#include <type_traits>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "cpu/costs.hpp"
#include "cpu/gf16.hpp"
#include "cpu/packets.hpp"

namespace tandem::cpu {
namespace {

using core::CauchyTransform;
using core::Element;
using core::Matrix;
using core::SyndromeDecode;

// A range of outputs.
std::vector<Element> slice(const std::vector<Element> &list, unsigned first, unsigned count) {
  if (list.empty()) return {};  // scales that are all 1
  return {list.begin() + first, list.begin() + first + count};
}

CauchyTransform slice(const CauchyTransform &form, unsigned first, unsigned count) {
  CauchyTransform part = form;
  part.output_points = slice(form.output_points, first, count);
  part.output_scales = slice(form.output_scales, first, count);
  return part;
}

// Without the syndromes of other lost parity shards.
SyndromeDecode slice(const SyndromeDecode &form, unsigned first, unsigned count) {
  SyndromeDecode part{form.syndromes, slice(form.solve, first, count)};
  part.syndromes.output_points.clear();
  part.syndromes.output_scales.clear();
  for (std::size_t i = 0; i < form.syndromes.output_points.size(); ++i) {
    const Element point = form.syndromes.output_points[i];
    if (!std::ranges::binary_search(part.solve.input_points, point) &&
        !std::ranges::binary_search(part.solve.output_points, point))
      continue;
    part.syndromes.output_points.push_back(point);
    if (!form.syndromes.output_scales.empty()) part.syndromes.output_scales.push_back(form.syndromes.output_scales[i]);
  }
  return part;
}

struct Candidate {
  const char *name;
  Steps steps;
  std::function<Transforms()> make;  // none: the matrix
};

std::vector<Candidate> candidates(const Kernel &kernel, const CauchyTransform &form) {
  return {{"matrix", matrix_steps(kernel.traits, form), {}},
          {"transform", transform_steps(kernel.traits, form), [&] { return Transforms(kernel, form); }}};
}

std::vector<Candidate> candidates(const Kernel &kernel, const SyndromeDecode &form) {
  const std::size_t outputs = form.solve.output_points.size(), syndromes = form.syndromes.output_points.size();
  Steps by_matrix = transform_steps(kernel.traits, form.syndromes);
  by_matrix += syndrome_steps(form);
  Steps by_transform = by_matrix;
  by_matrix += matrix_steps(kernel.traits, outputs, syndromes);
  by_transform += transform_steps(kernel.traits, form.solve);
  const std::size_t inputs = form.syndromes.input_points.size() + form.solve.input_points.size();
  return {{"matrix", matrix_steps(kernel.traits, outputs, inputs), {}},
          {"syndromes, matrix", by_matrix, [&] { return Transforms(kernel, form, false); }},
          {"syndromes, transform", by_transform, [&] { return Transforms(kernel, form, true); }}};
}

// The cheapest candidate; `technique` may exclude the matrix.
template <class Form>
Way way_of(const Kernel &kernel, const Form &form, Technique technique) {
  const std::vector<Candidate> all = candidates(kernel, form);
  std::vector<std::shared_ptr<const Transforms>> made(all.size());
  const auto choose = [&](bool out_of_cache) {
    const auto cost = [&](const Candidate &each) { return cost_of(each.steps, kernel, out_of_cache); };
    const auto best = static_cast<std::size_t>(
        std::ranges::min_element(all.begin() + (technique == Technique::transform), all.end(), {}, cost) - all.begin());
    if (all[best].make && made[best] == nullptr) made[best] = std::make_shared<const Transforms>(all[best].make());
    return best;
  };
  Way way;
  const std::size_t in_cache = choose(false), out_of_cache = choose(true);
  way.in_cache = made[in_cache];
  way.out_of_cache = made[out_of_cache];
  for (std::size_t i = 0; i < all.size(); ++i)
    way.techniques.push_back({all[i].name, all[i].steps.all_products(), cost_of(all[i].steps, kernel, false),
                              cost_of(all[i].steps, kernel, true), i == in_cache, i == out_of_cache});
  return way;
}

}  // namespace

Bands::Bands(const Kernel &kernel, const core::Operator &what, unsigned most_rows, Technique technique)
    : row_count_(what.output_count()),
      band_rows_(std::min(most_rows, kMostRows)),
      count_((row_count_ + band_rows_ - 1) / band_rows_) {
  if (what.field() != core::Field::gf8) {
    count_ = 0;
    return;
  }
  bool needs_matrix = technique == Technique::matrix || std::holds_alternative<core::Dense>(what.form());
  if (!needs_matrix) {
    for (unsigned i = 0; i < count_; ++i) {
      const Band band = (*this)[i];
      const auto choose = [&]<class Form>(const Form &form) -> Way {
        if constexpr (!std::is_same_v<Form, core::CauchyTransform> && !std::is_same_v<Form, core::SyndromeDecode>) {
          return {};
        } else {
          if (count_ == 1) return way_of(kernel, form, technique);
          return way_of(kernel, slice(form, band.first_row, band.row_count), technique);
        }
      };
      const Way &way = ways_.emplace_back(std::visit(choose, what.form()));
      needs_matrix = needs_matrix || way.in_cache == nullptr || way.out_of_cache == nullptr;
    }
  }
  if (!needs_matrix) return;
  const Matrix &matrix = what.dense();
  const std::size_t bytes =
      kernel.tables_bytes(std::min(band_rows_, row_count_), std::min(matrix.columns(), kMostColumns));
  step_bytes_ = rounded_up(bytes);
  band_bytes_ = step_bytes_ * std::max(1u, (matrix.columns() + kMostColumns - 1) / kMostColumns);
  // Not by an aligned operator new, which takes as long as preparing a small matrix.
  memory_ = std::make_unique_for_overwrite<std::byte[]>(count_ * band_bytes_ + kCacheLine - 1);
  tables_ = memory_.get() + (0 - reinterpret_cast<std::uintptr_t>(memory_.get())) % kCacheLine;
  for (unsigned i = 0; i < count_; ++i) prepare(kernel, matrix, (*this)[i]);
}

void Bands::prepare(const Kernel &kernel, const Matrix &matrix, Band band) {
  const unsigned columns = matrix.columns();
  if (columns <= kMostColumns)
    return kernel.prepare(matrix.row(band.first_row).data(), band.row_count, columns, band.tables);
  for (unsigned first = 0; first < columns; first += kMostColumns, band.tables += band.step_bytes) {
    Matrix block(band.row_count, std::min(kMostColumns, columns - first));
    for (unsigned r = 0; r < block.rows(); ++r)
      std::ranges::copy(matrix.row(band.first_row + r).subspan(first, block.columns()), block.row(r).begin());
    kernel.prepare(block.data(), block.rows(), block.columns(), band.tables);
  }
}

CpuPrepared::CpuPrepared(const Kernel &kernel, const core::Operator &what, unsigned part_count, Technique technique,
                         const KnownOfModes &known_of_modes, std::shared_ptr<const Known> tuned)
    : Prepared(what),
      whole(kernel, what, kMostRows, technique),
      is_one_kernel_call(whole.count() == 1 && !whole.has_ways() && columns() <= kMostColumns),
      known_of_modes_(known_of_modes),
      tuned_(std::move(tuned)) {
  if (what.field() == core::Field::gf16) {
    by_scratch = std::make_unique<const Gf16Operator>(*kernel.gf16, what);
    return;
  }
  if (const auto *packets = std::get_if<core::BitMatrix>(&what.form())) {
    by_scratch = std::make_unique<const PacketOperator>(kernel, *packets, technique != Technique::matrix);
    return;
  }
  if (part_count > 1 && rows() != 0) parts.emplace(kernel, what, (rows() + part_count - 1) / part_count, technique);
}

void check_technique(const core::Operator &what, Technique technique) {
  // One shard, or two for an update, is a column: no technique can share work there.
  const bool is_matrix = std::holds_alternative<core::Dense>(what.form());
  if (technique == Technique::transform && std::holds_alternative<core::Dense16>(what.form()) && what.input_count() > 2)
    base::fail(TANDEM_ERROR_UNSUPPORTED, "cpu: technique transform: this matrix over GF(2^16) has none");
  if (technique == Technique::transform && what.field() == core::Field::gf2)
    base::fail(TANDEM_ERROR_UNSUPPORTED, "cpu: technique transform: codes with layout packets have none");
  if (technique == Technique::transform && is_matrix && what.input_count() > 2)
    base::fail(
        TANDEM_ERROR_UNSUPPORTED,
        base::format("cpu: technique transform: there is none from {} shards to {}; encode, verify and decode have "
                     "one from 12 data shards and 4 outputs on, if the points of the matrix lie in runs",
                     what.input_count(), what.output_count()));
  if (technique == Technique::matrix && std::holds_alternative<core::Leopard16>(what.form()))
    base::fail(TANDEM_ERROR_UNSUPPORTED, "cpu: technique matrix: Leopard's codes over GF(2^16) have a transform only");
}

std::vector<core::Technique> CpuPrepared::techniques() const {
  if (by_scratch != nullptr) return by_scratch->techniques();
  const Bands &bands = parts ? *parts : whole;
  if (bands.has_ways()) return bands[0].way->techniques;
  return {{}};
}

// Small runs and compares stay in the cache.
std::uint64_t CpuPrepared::out_of_cache_bytes(core::Mode mode) const {
  if (mode == core::Mode::compare) return UINT64_MAX;
  return std::max(values(mode).out_of_cache_bytes, kInlineBytes - 1);
}

}  // namespace tandem::cpu
