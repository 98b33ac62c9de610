// SPDX-License-Identifier: Apache-2.0
// Operators of all forms except Dense, for tests.
#pragma once

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "core/operator.hpp"
#include "tests/support/random.hpp"

namespace tandem::test {

using Points = std::vector<core::Element>;

inline Points points_from(unsigned first, unsigned count) {
  Points points(count);
  std::iota(points.begin(), points.end(), static_cast<core::Element>(first));
  return points;
}

inline core::CauchyTransform transform_of(Points inputs, Points outputs) {
  return {std::move(inputs), std::move(outputs), {}, {}};
}

inline Points random_scales(Random &random, std::size_t count) {
  Points scales(count);
  for (core::Element &scale : scales) scale = static_cast<core::Element>(random.between(1, 255));
  return scales;
}

// `counts` random points each, none twice, each list ascending.
inline std::vector<Points> random_points(Random &random, const std::vector<unsigned> &counts) {
  const std::vector<unsigned> all = random.pick(std::accumulate(counts.begin(), counts.end(), 0u), 256);
  std::vector<Points> lists;
  auto from = all.begin();
  for (const unsigned count : counts) {
    Points &list = lists.emplace_back(from, from + count);
    std::sort(list.begin(), list.end());
    from += count;
  }
  return lists;
}

inline Points merged(const Points &a, const Points &b) {
  Points both;
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

inline core::CauchyTransform random_transform(Random &random, unsigned inputs, unsigned outputs) {
  const std::vector<Points> points = random_points(random, {inputs, outputs});
  return {points[0], points[1], random_scales(random, inputs), random_scales(random, outputs)};
}

// Present data, chosen parity, lost data, lost parity; with random scales, so it decodes no code.
inline core::SyndromeDecode random_decode(Random &random, unsigned data, unsigned chosen, unsigned lost_data,
                                          unsigned lost_parity) {
  const std::vector<Points> points = random_points(random, {data, chosen, lost_data, lost_parity});
  const auto scaled = [&](Points inputs, Points outputs) -> core::CauchyTransform {
    const Points input_scales = random_scales(random, inputs.size());
    const Points output_scales = random_scales(random, outputs.size());
    return {std::move(inputs), std::move(outputs), input_scales, output_scales};
  };
  return {scaled(points[0], merged(points[1], points[3])), scaled(points[1], merged(points[2], points[3]))};
}

}  // namespace tandem::test
