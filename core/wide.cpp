// SPDX-License-Identifier: Apache-2.0
#include "core/wide.hpp"

#include <algorithm>
#include <iterator>
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

// `of` each scale. Empty where all scales are 1: a transform need not multiply by them.
template <class Of>
std::vector<Element> scales_of(const CauchyForm &code, Shards shards, Of of) {
  std::vector<Element> scales;
  if (std::ranges::all_of(shards, [&](std::uint16_t shard) { return code.scales[shard] == 1; })) return scales;
  scales.reserve(shards.size());
  for (const std::uint16_t shard : shards) scales.push_back(of(code.scales[shard]));
  return scales;
}

// The product of all (point + one of `over`) over that of all (point + one of `under`), leaving out that point itself.
std::uint8_t quotient_of_differences(Element point, const std::vector<Element> &over,
                                     const std::vector<Element> &under) {
  multiply_add_count() += over.size() + under.size();
  unsigned log = static_cast<unsigned>(255 * under.size());
  for (const Element other : over) log += gf::kTables.log[point ^ other];
  for (const Element other : under) log -= gf::kTables.log[point ^ other];
  return gf::kTables.exp[log % 255];
}

}  // namespace

bool points_ascend(const CauchyForm &code, Shards shards) {
  return std::ranges::is_sorted(shards, {}, [&](std::uint16_t shard) { return code.points[shard]; });
}

CauchyTransform encode_transform(const CauchyForm &code, Shards inputs, Shards outputs) {
  return {.input_points = points_of(code, inputs),
          .output_points = points_of(code, outputs),
          .input_scales = scales_of(code, inputs, gf::inverse),  // a form multiplies its inputs, CauchyForm divides
          .output_scales = scales_of(code, outputs, [](std::uint8_t scale) { return scale; })};
}

// The scale of a chosen shard is A / its scale in the code, that of an output B * its scale in the code.
SyndromeDecode syndrome_decode(const CauchyForm &code, unsigned k, Shards lost, Shards parity, Shards present_data,
                               Shards outputs) {
  std::vector<std::uint16_t> rows(parity.begin(), parity.end());
  std::ranges::copy_if(outputs, std::back_inserter(rows), [&](std::uint16_t shard) { return shard >= k; });
  std::ranges::sort(rows);
  SyndromeDecode form;
  form.syndromes = encode_transform(code, present_data, rows);

  CauchyTransform &solve = form.solve;
  solve.input_points = points_of(code, parity);
  solve.output_points = points_of(code, outputs);
  const std::vector<Element> lost_points = points_of(code, lost), &chosen_points = solve.input_points;
  solve.input_scales.reserve(parity.size());
  for (const std::uint16_t shard : parity)
    solve.input_scales.push_back(
        gf::divide(quotient_of_differences(code.points[shard], lost_points, chosen_points), code.scales[shard]));
  solve.output_scales.reserve(outputs.size());
  for (const std::uint16_t shard : outputs)
    solve.output_scales.push_back(
        gf::multiply(quotient_of_differences(code.points[shard], chosen_points, lost_points), code.scales[shard]));
  return form;
}

}  // namespace tandem::core
