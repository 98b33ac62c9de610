// SPDX-License-Identifier: Apache-2.0
// Sums of powers over GF(2^16) on the CPU by transforms (docs/internals/TRANSFORM.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/operator.hpp"
#include "cpu/kernels/kernel.hpp"
#include "cpu/memory.hpp"
#include "cpu/prepared.hpp"

namespace tandem::cpu {

// Whether the transforms, rather than the matrix, run the form.
bool runs_transforms(const Kernel &kernel, const core::Powers16 &form, RunBy technique);

class PowersOperator final : public CpuPrepared {
 public:
  PowersOperator(const Gf16Kernel &kernel, const core::Operator &what, const KnownOfModes &known,
                 std::shared_ptr<const Known> tuned);

  std::vector<core::TechniqueCost> techniques() const override { return {{"transform"}}; }
  std::size_t least_range_bytes() const noexcept override { return kernel_.powers_strip_bytes; }
  std::size_t scratch_bytes(const OperatorCall &call) const noexcept override;
  void apply(const OperatorCall &call, std::byte *scratch, core::Mismatch *found) const noexcept override;

 private:
  // The rows of a tile in scratch: sums that `solve` takes or a compare reads, and outputs of `solve` that it reads.
  struct Tile {
    std::size_t sum_rows, output_rows, bytes;
    std::size_t all_bytes() const noexcept;
  };
  Tile tile_of(const OperatorCall &call) const noexcept;

  const Gf16Kernel &kernel_;
  const core::Powers16 form_;
  AlignedMemory tables_, solve_tables_;
  PowersCall shape_ = {};  // a call without the task's members
  std::vector<std::uint32_t> class_inputs_, sum_outputs_;
  std::vector<std::uint16_t> sums_at_;
  std::vector<std::uint8_t> factors_;
};

}  // namespace tandem::cpu
