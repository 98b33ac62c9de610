// SPDX-License-Identifier: Apache-2.0
#include "cpu/costs.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <vector>

#include "base/rounding.hpp"

namespace tandem::cpu {
namespace {

using core::CauchyTransform;
using core::Element;

constexpr unsigned kGroup = 8, kLevels = 3;  // cpu/kernels/transform.inc

// In products of the matrix kernel, fitted to measurements (docs/internals/KERNELS.md).
struct Times {
  double move, alone, fused, lane, shard;
  double saved;  // of a product that a decode's symmetric blocks save: 0 = no time, 1 = as much as without them
};
struct KernelTimes {
  std::string_view kernel;
  Times in_cache, out_of_cache;
};
constexpr KernelTimes kTimes[] = {
    {"avx512-gfni", {1.2, 1.9, 0.96, 0.53, 0.89, 0}, {3.84, 0.56, 4.59, 5.46, 0.96, 1}},
    {"avx512", {1.7, 2.03, 1.58, 3.76, 1.23, 1}, {2.76, 0, 4.35, 5.29, 3.9, 1}},
    {"avx2-gfni", {1.36, 1.76, 2.21, 0, 0.6, 0.2}, {4.03, 1.5, 2.98, 1.65, 1.11, 1}},
    {"avx2", {0.44, 1.94, 0, 0, 0, 1}, {0.11, 2.11, 0, 0.02, 0.88, 1}},
    {"ssse3", {1.11, 2.11, 0, 0, 0, 1}, {1.47, 2.32, 0, 0.25, 0, 1}},
    // Not measured: fitted to instructions counted for 63 codes (docs/internals/ARM.md).
    {"neon-eor3", {0.25, 2.3, 0, 0, 0, 1}, {0.25, 2.3, 0, 0, 0, 1}},
    {"neon", {0.22, 2.1, 0, 0, 0, 1}, {0.22, 2.1, 0, 0, 0, 1}},
    {"scalar", {0, 1.35, 0.85, 1, 0, 1}, {0, 1.35, 0.85, 1, 0, 1}},
};

// The table's end, if it has none.
const KernelTimes *times_of(const Kernel &kernel) noexcept {
  return std::ranges::find(kTimes, std::string_view(kernel.name), &KernelTimes::kernel);
}

std::uint32_t number(std::size_t count) { return static_cast<std::uint32_t>(count); }

// Without scales all are equal.
bool are_equal(const std::vector<Element> &scales, std::size_t i, std::size_t j) {
  return scales.empty() || scales[i] == scales[j];
}

std::size_t count_pairs(const std::vector<Element> &points, const std::vector<Element> &scales = {}) {
  std::size_t pairs = 0;
  for (std::size_t i = 0; i + 1 < points.size(); ++i)
    pairs += points[i] % 2 == 0 && points[i + 1] == points[i] + 1 && are_equal(scales, i, i + 1);
  return pairs;
}

// Products of a Cauchy matrix in blocks (cpu/kernels/blocks.inc), if all pairs (x, x + 1) of points with even x fit in
// a block.
std::uint32_t block_products(const KernelTraits &kernel, const std::vector<Element> &rows, std::size_t columns,
                             std::size_t column_pairs) {
  const std::size_t column_singles = columns - 2 * column_pairs;
  std::size_t pairs = count_pairs(rows), products = (rows.size() - 2 * pairs) * columns;
  if (kernel.has_quads) {
    products += pairs / 2 * (column_pairs / 2 * 9 + column_pairs % 2 * 6 + column_singles * 4);
    pairs %= 2;
  }
  return number(products + pairs * (kernel.has_pairs ? column_pairs * 3 + column_singles * 2 : columns * 2));
}

std::uint32_t block_products(const KernelTraits &kernel, const std::vector<Element> &rows,
                             const std::vector<Element> &columns) {
  return block_products(kernel, rows, columns.size(), count_pairs(columns));
}

// Whether each point's partner, the point xor `distance`, is one of them too, with the same scale. Points are
// ascending, so partners are `distance` places apart; for distance 2 all must have partners for distance 1.
bool has_partners(const std::vector<Element> &points, const std::vector<Element> &scales, unsigned distance) {
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::size_t partner = i ^ distance;
    if (partner >= points.size() || points[partner] != (points[i] ^ distance) || !are_equal(scales, i, partner))
      return false;
  }
  return true;
}

std::uint32_t moves_of_matrix(const KernelTraits &kernel, std::size_t rows, std::size_t columns) {
  return number(rows + base::divide_up(rows, kernel.rows_per_pass) * columns);
}

std::vector<Element> groups_of(const std::vector<Element> &points) {
  std::vector<Element> groups;
  groups.reserve(points.size());
  for (const Element point : points)
    if (groups.empty() || groups.back() != point / kGroup) groups.push_back(point / kGroup);
  return groups;
}

}  // namespace

Steps &Steps::operator+=(const Steps &other) noexcept {
  products += other.products;
  moves += other.moves;
  alone += other.alone;
  fused += other.fused;
  lanes += other.lanes;
  shards += other.shards;
  saved += other.saved;
  return *this;
}

Steps matrix_steps(const KernelTraits &kernel, std::size_t rows, std::size_t columns) {
  return {.products = number(rows * columns), .moves = moves_of_matrix(kernel, rows, columns)};
}

Steps matrix_steps(const KernelTraits &kernel, const CauchyTransform &form) {
  Steps steps = matrix_steps(kernel, form.output_points.size(), form.input_points.size());
  if (form.input_scales.empty() && form.output_scales.empty())  // scales make the blocks unsymmetric
    steps.products = block_products(kernel, form.output_points, form.input_points);
  return steps;
}

Steps matrix_steps(const KernelTraits &kernel, const core::SyndromeDecode &form) {
  const std::vector<Element> &lost = form.solve.output_points, &parity = form.solve.input_points;
  const std::size_t columns = form.syndromes.input_points.size() + parity.size();
  Steps steps = matrix_steps(kernel, lost.size(), columns);
  const auto all_have_partners = [&](unsigned distance) {
    return has_partners(lost, form.solve.output_scales, distance) &&
           has_partners(parity, form.solve.input_scales, distance);
  };
  if (!all_have_partners(1)) return steps;
  KernelTraits blocks = kernel;
  blocks.has_quads = kernel.has_quads && all_have_partners(2);
  steps.saved = steps.products;
  steps.products =
      block_products(blocks, lost, columns,
                     count_pairs(form.syndromes.input_points, form.syndromes.input_scales) + count_pairs(parity));
  steps.saved -= steps.products;
  return steps;
}

Steps transform_steps(const KernelTraits &kernel, const CauchyTransform &form) {
  if (form.input_points.empty()) return {};
  const std::vector<Element> inputs = groups_of(form.input_points), outputs = groups_of(form.output_points);
  std::array<std::uint8_t, 256 / kGroup> inputs_of{};  // by group
  for (const Element input : form.input_points) ++inputs_of[input / kGroup];
  std::size_t corners = 0;
  for (const Element output : form.output_points) corners += inputs_of[output / kGroup];
  Steps steps;
  steps.alone = number((inputs.size() + outputs.size()) * kGroup / 2 * kLevels + corners + form.input_scales.size() +
                       form.output_scales.size());
  steps.shards = number(form.input_points.size() + form.output_points.size() + corners);
  if (outputs.size() <= kernel.fused_groups) {
    steps.fused = number(kGroup * inputs.size() * outputs.size());
  } else {
    steps.products = kGroup * block_products(kernel, outputs, inputs);
    steps.moves = kGroup * moves_of_matrix(kernel, outputs.size(), inputs.size());
    steps.lanes = number(kGroup * (inputs.size() + outputs.size()));
  }
  return steps;
}

Steps syndrome_steps(const core::SyndromeDecode &form) {
  return {.moves = number(2 * (form.solve.input_points.size() + form.syndromes.output_points.size()))};
}

bool has_times(const Kernel &kernel) noexcept { return times_of(kernel) != std::end(kTimes); }

double cost_of(const Steps &steps, const Kernel &kernel, bool out_of_cache) {
  const KernelTimes *found = times_of(kernel);
  if (found == std::end(kTimes)) --found;
  const Times &costs = out_of_cache ? found->out_of_cache : found->in_cache;
  return steps.products + costs.saved * steps.saved + costs.move * steps.moves + costs.alone * steps.alone +
         costs.fused * steps.fused + costs.lane * steps.lanes + costs.shard * steps.shards;
}

double cost_of(const PowersSteps &steps, const Kernel &kernel) {
  // In products of the matrix kernel of GF(2^16), fitted as above. Those of kernels without a row are ssse3's.
  constexpr struct {
    std::string_view kernel;
    double butterfly, product, input;
  } kPowersTimes[] = {{"avx512-gfni", 0.55, 1.35, 14},
                      {"avx512", 0.31, 0.35, 3},
                      {"avx2-gfni", 0.55, 0.8, 10},
                      {"avx2", 0.54, 0.87, 5.1},
                      {"ssse3", 0.48, 0.81, 1.5}};
  const auto *times = kPowersTimes;
  while (times != std::end(kPowersTimes) - 1 && times->kernel != kernel.name) ++times;
  const auto number = [](std::size_t count) { return static_cast<double>(count); };
  return times->butterfly * number(steps.butterflies) + times->product * number(steps.products) + number(steps.solved) +
         times->input * number(steps.inputs);
}

}  // namespace tandem::cpu
