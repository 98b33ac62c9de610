// SPDX-License-Identifier: Apache-2.0
#include "core/wide.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include "core/gf.hpp"

namespace tandem::core {
namespace {

using Shards = std::span<const std::uint16_t>;

std::vector<Element> points_of(const CauchyForm &code, Shards shards) {
  std::vector<Element> points;
  points.reserve(shards.size());
  for (const std::uint16_t shard : shards) points.push_back(code.points[shard]);
  return points;
}

// Empty where all are 1: a transform need not multiply by them.
std::vector<Element> without_ones(std::vector<Element> scales) {
  if (std::ranges::all_of(scales, [](Element scale) { return scale == 1; })) scales.clear();
  return scales;
}

std::vector<Element> scales_of(const CauchyForm &code, Shards shards) {
  std::vector<Element> scales;
  for (const std::uint16_t shard : shards) scales.push_back(code.scales[shard]);
  return without_ones(std::move(scales));
}

// The scales by which a form multiplies its inputs; CauchyForm divides by them.
std::vector<Element> inverse_scales_of(const CauchyForm &code, Shards shards) {
  std::vector<Element> scales;
  for (const std::uint16_t shard : shards) scales.push_back(gf::inverse(code.scales[shard]));
  return without_ones(std::move(scales));
}

// The product of all (point + one of points), leaving out that point itself.
std::uint8_t product_of_differences(Element point, const std::vector<Element> &points) {
  multiply_add_count() += points.size();
  unsigned log = 0;
  for (const Element other : points)
    if (other != point) log += gf::kTables.log[point ^ other];
  return gf::kTables.exp[log % 255];
}

}  // namespace

bool points_ascend(const CauchyForm &code, Shards shards) {
  return std::ranges::is_sorted(shards, {}, [&](std::uint16_t shard) { return code.points[shard]; });
}

CauchyTransform encode_transform(const CauchyForm &code, Shards inputs, Shards outputs) {
  return {.input_points = points_of(code, inputs),
          .output_points = points_of(code, outputs),
          .input_scales = inverse_scales_of(code, inputs),
          .output_scales = scales_of(code, outputs)};
}

// The scale of a chosen shard is A / its scale in the code, that of an output B * its scale in the code.
SyndromeDecode syndrome_decode(const CauchyForm &code, unsigned k, Shards lost, Shards parity, Shards present_data,
                               Shards outputs) {
  std::vector<std::uint16_t> rows(parity.begin(), parity.end());
  std::ranges::copy_if(outputs, std::back_inserter(rows), [&](std::uint16_t shard) { return shard >= k; });
  std::ranges::sort(rows);
  SyndromeDecode form;
  form.syndromes = encode_transform(code, present_data, rows);

  const std::vector<Element> lost_points = points_of(code, lost), chosen_points = points_of(code, parity);
  CauchyTransform &solve = form.solve;
  solve.input_points = chosen_points;
  solve.output_points = points_of(code, outputs);
  for (const std::uint16_t shard : parity) {
    const Element point = code.points[shard];
    const std::uint8_t a =
        gf::divide(product_of_differences(point, lost_points), product_of_differences(point, chosen_points));
    solve.input_scales.push_back(gf::divide(a, code.scales[shard]));
  }
  for (const std::uint16_t shard : outputs) {
    const Element point = code.points[shard];
    const std::uint8_t b =
        gf::divide(product_of_differences(point, chosen_points), product_of_differences(point, lost_points));
    solve.output_scales.push_back(gf::multiply(b, code.scales[shard]));
  }
  return form;
}

}  // namespace tandem::core
