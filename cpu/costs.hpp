// SPDX-License-Identifier: Apache-2.0
// The cost of an operator by each technique: steps counted from its points, and the times that each kernel takes for
// them. Products are counted only here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/operator.hpp"
#include "cpu/kernels/kernel.hpp"

namespace tandem::cpu {

// For one vector of every shard.
struct Steps {
  std::uint32_t products = 0;  // by `apply`: of the matrix, and of a transform between groups in its long form
  std::uint32_t moves = 0;     // vectors that `apply` or a copy reads and writes
  std::uint32_t alone = 0;     // products of butterflies and scales, and of inputs by outputs of one group
  std::uint32_t fused = 0;     // products between groups in registers
  std::uint32_t lanes = 0;     // of groups, each through scratch memory and back
  std::uint32_t shards = 0;    // vectors of shards that a transform reads and writes
  std::uint32_t saved = 0;     // products that the symmetric blocks of a decode's matrix save

  std::uint32_t all_products() const noexcept { return products + alone + fused; }
  Steps &operator+=(const Steps &other) noexcept;
};

Steps matrix_steps(const KernelTraits &kernel, std::size_t rows, std::size_t columns);  // without symmetric blocks
Steps matrix_steps(const KernelTraits &kernel, const core::CauchyTransform &form);      // with those of its points
// With symmetric blocks if the lost points and the parity's are whole pairs (x, x xor 1) of equal scales: quads, if
// this holds for x xor 2 too.
Steps matrix_steps(const KernelTraits &kernel, const core::SyndromeDecode &form);
Steps transform_steps(const KernelTraits &kernel, const core::CauchyTransform &form);
// The steps of a decode between its two parts: copies chosen parity to scratch, and reads and writes syndromes there.
Steps syndrome_steps(const core::SyndromeDecode &form);

// Whether its times were measured. Otherwise those of "scalar" are used.
bool has_times(const Kernel &kernel) noexcept;

// In products of the matrix kernel.
double cost_of(const Steps &steps, const Kernel &kernel, bool out_of_cache);

// Steps of sums of powers over GF(2^16) by transforms, for one vector of every shard.
struct PowersSteps {
  std::size_t butterflies, products, solved, inputs;  // solved: products of a decode's matrix
};
// In products of the matrix kernel of GF(2^16).
double cost_of(const PowersSteps &steps, const Kernel &kernel);

}  // namespace tandem::cpu
