// SPDX-License-Identifier: Apache-2.0
#include "cpu/gf8.hpp"

#include <algorithm>
#include <functional>
#include <type_traits>

#include "base/rounding.hpp"
#include "cpu/costs.hpp"
#include "cpu/memory.hpp"

namespace tandem::cpu {
namespace {

// A kernel takes at most this many rows and columns. Larger operators are assembled from blocks.
constexpr unsigned kMostRows = 256, kMostColumns = 256;
constexpr std::size_t kLeastRangeBytes = 1 << 10;
// Compare recomputes the outputs of a band tile by tile into a buffer of this many bytes, which stays in the L1 cache.
constexpr std::size_t kCompareBufferBytes = 16 << 10;
constexpr std::size_t kCompareTileBytes = 2048;  // at most

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
  return {{"matrix", matrix_steps(kernel.traits, form), {}},
          {"syndromes, matrix", by_matrix, [&] { return Transforms(kernel, form, false); }},
          {"syndromes, transform", by_transform, [&] { return Transforms(kernel, form, true); }}};
}

}  // namespace

// The cheapest candidate; `technique` may exclude the matrix.
template <class Form>
Gf8Operator::BandWay Gf8Operator::way_of(const Kernel &kernel, const Form &form, RunBy technique) {
  const std::vector<Candidate> all = candidates(kernel, form);
  BandWay way;
  way.techniques.reserve(all.size());
  for (const Candidate &each : all)
    way.techniques.push_back({each.name, each.steps.all_products(), cost_of(each.steps, kernel, false),
                              cost_of(each.steps, kernel, true), false, false});
  const auto cheapest = [&](double core::TechniqueCost::*cost) {
    const auto first = way.techniques.begin();
    return static_cast<std::size_t>(
        std::ranges::min_element(first + (technique == RunBy::transform), way.techniques.end(), {}, cost) - first);
  };
  const auto make = [&](std::size_t i) {
    return all[i].make ? std::make_shared<const Transforms>(all[i].make()) : nullptr;
  };
  const std::size_t in_cache = cheapest(&core::TechniqueCost::cost);
  const std::size_t out_of_cache = cheapest(&core::TechniqueCost::cost_out_of_cache);
  way.techniques[in_cache].is_used = way.techniques[out_of_cache].is_used_out_of_cache = true;
  way.in_cache = make(in_cache);
  way.out_of_cache = out_of_cache == in_cache ? way.in_cache : make(out_of_cache);
  return way;
}

Gf8Operator::Gf8Operator(const Kernel &kernel, std::uint32_t l1_ways, const core::Operator &what, RunBy technique,
                         const KnownOfModes &known, std::shared_ptr<const Known> tuned)
    : CpuPrepared(what, known, std::move(tuned)),
      kernel_(kernel),
      l1_ways_(l1_ways),
      band_count_(base::divide_up(rows(), kMostRows)) {
  const bool is_matrix = technique == RunBy::matrix || std::holds_alternative<core::Dense>(what.form());
  if (!is_matrix) choose_ways(what, technique);
  const auto needs_matrix = [](const BandWay &way) { return way.in_cache == nullptr || way.out_of_cache == nullptr; };
  if (is_matrix || std::ranges::any_of(ways_, needs_matrix)) prepare_matrix(what.dense());
  const bool is_matrix_in_cache = ways_.empty() || ways_.front().in_cache == nullptr;
  if (band_count_ == 1 && columns() <= kMostColumns && is_matrix_in_cache) tables_of_one_call_ = tables_;
}

void Gf8Operator::choose_ways(const core::Operator &what, RunBy technique) {
  for (unsigned i = 0; i < band_count_; ++i) {
    const std::uint32_t first_row = i * kMostRows, row_count = std::min(kMostRows, rows() - first_row);
    const auto choose = [&]<class Form>(const Form &form) -> BandWay {
      if constexpr (!std::is_same_v<Form, core::CauchyTransform> && !std::is_same_v<Form, core::SyndromeDecode>) {
        return {};
      } else {
        if (band_count_ == 1) return way_of(kernel_, form, technique);
        return way_of(kernel_, slice(form, first_row, row_count), technique);
      }
    };
    ways_.push_back(std::visit(choose, what.form()));
  }
}

void Gf8Operator::prepare_matrix(const Matrix &matrix) {
  step_bytes_ = rounded_up(kernel_.tables_bytes(std::min(rows(), kMostRows), std::min(columns(), kMostColumns)));
  band_bytes_ = step_bytes_ * std::max(1u, base::divide_up(columns(), kMostColumns));
  // Not by an aligned operator new, which takes as long as preparing a small matrix.
  memory_ = std::make_unique_for_overwrite<std::byte[]>(band_count_ * band_bytes_ + kCacheLine - 1);
  tables_ = memory_.get() + (0 - reinterpret_cast<std::uintptr_t>(memory_.get())) % kCacheLine;
  for (unsigned i = 0; i < band_count_; ++i) prepare_band(matrix, band(i));
}

void Gf8Operator::prepare_band(const Matrix &matrix, Band band) const {
  if (columns() <= kMostColumns)
    return kernel_.prepare(matrix.row(band.first_row).data(), band.row_count, columns(), band.tables);
  for (unsigned first = 0; first < columns(); first += kMostColumns, band.tables += step_bytes_) {
    Matrix block(band.row_count, std::min(kMostColumns, columns() - first));
    for (unsigned r = 0; r < block.rows(); ++r)
      std::ranges::copy(matrix.row(band.first_row + r).subspan(first, block.columns()), block.row(r).begin());
    kernel_.prepare(block.data(), block.rows(), block.columns(), band.tables);
  }
}

Gf8Operator::Band Gf8Operator::band(unsigned i) const noexcept {
  const std::uint32_t first_row = i * kMostRows;
  return {first_row, std::min(kMostRows, rows() - first_row), tables_ + i * band_bytes_,
          ways_.empty() ? nullptr : &ways_[i]};
}

std::vector<core::TechniqueCost> Gf8Operator::techniques() const {
  if (!ways_.empty()) return ways_.front().techniques;
  return {{}};
}

std::size_t Gf8Operator::least_range_bytes() const noexcept { return kLeastRangeBytes; }

std::size_t Gf8Operator::scratch_bytes(const OperatorCall &call) const noexcept {
  const bool is_compare = call.task->mode == core::Mode::compare;
  const std::size_t length =
      is_compare ? std::min<std::size_t>(call.length_bytes, kCompareTileBytes) : call.length_bytes;
  std::size_t most = 0;
  for (const BandWay &way : ways_)
    if (const Transforms *transforms = way.transforms(call.out_of_cache))
      most = std::max(most, transforms->scratch_bytes(length, call.out_of_cache));
  return most;
}

void Gf8Operator::apply(const OperatorCall &call, std::byte *scratch, core::Mismatch *found) const noexcept {
  if (call.length_bytes == 0) return;
  for (unsigned i = 0; i < band_count_; ++i) {
    const Band band = this->band(i);
    KernelCall of_band = kernel_call(call, band.tables, l1_ways_);
    of_band.outputs += band.first_row;
    of_band.rows = band.row_count;
    if (call.task->mode == core::Mode::compare)
      compare_band(of_band, band, scratch, found + band.first_row);
    else
      apply_band(of_band, band, scratch);
  }
}

void Gf8Operator::apply_band(const KernelCall &call, const Band &band, std::byte *scratch) const noexcept {
  const Transforms *transforms = band.way == nullptr ? nullptr : band.way->transforms(call.out_of_cache);
  transforms == nullptr ? apply_matrix(call) : transforms->apply(call, scratch);
}

// Blocks after the first one add to the outputs of the earlier ones.
void Gf8Operator::apply_matrix(const KernelCall &call) const noexcept {
  if (call.columns <= kMostColumns) return kernel_.apply(call);  // not copied: that costs as much as 200 bytes
  KernelCall block = call;
  for (std::uint32_t first = 0; first < call.columns; first += kMostColumns) {
    block.tables = static_cast<const std::byte *>(call.tables) + first / kMostColumns * step_bytes_;
    block.inputs = call.inputs + first;
    block.columns = std::min(kMostColumns, call.columns - first);
    kernel_.apply(block);
    block.accumulate = true;
  }
}

void Gf8Operator::compare_band(KernelCall &call, const Band &band, std::byte *scratch,
                               core::Mismatch *found) const noexcept {
  alignas(kCacheLine) std::uint8_t computed[kCompareBufferBytes];
  std::uint8_t *outputs[kMostRows];
  const std::size_t tile = std::min(kCompareTileBytes, kCompareBufferBytes / call.rows / kCacheLine * kCacheLine);
  compare_tiles(call, tile, computed, outputs, found, [&](const KernelCall &part) { apply_band(part, band, scratch); });
}

}  // namespace tandem::cpu
