// SPDX-License-Identifier: Apache-2.0
// Wide Cauchy codes: the forms of an operator that share work between points (docs/internals/TRANSFORM.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/operator.hpp"

namespace tandem::core {

// Whether a transform may be faster than a matrix of this shape on some processor. No measured kernel gained below 12
// data shards or 4 outputs (docs/internals/KERNELS.md), so such operators are matrices. For larger ones the backend
// chooses.
constexpr bool is_wide(std::size_t k, std::size_t output_count) { return k >= 12 && output_count >= 4; }

// Shards below are indices of the stripe, data first. No point of `code` is at infinity.

// A form has its shards in the order of their points.
bool points_ascend(const CauchyForm &code, std::span<const std::uint16_t> shards);

// The parity shards `outputs` of the data shards `inputs`.
CauchyTransform encode_transform(const CauchyForm &code, std::span<const std::uint16_t> inputs,
                                 std::span<const std::uint16_t> outputs);

// `outputs` (lost data, lost parity) of the present data shards and as many `parity` shards as there are `lost` data
// shards. All lists in the order of their points.
SyndromeDecode syndrome_decode(const CauchyForm &code, unsigned k, std::span<const std::uint16_t> lost,
                               std::span<const std::uint16_t> parity, std::span<const std::uint16_t> present_data,
                               std::span<const std::uint16_t> outputs);

}  // namespace tandem::core
