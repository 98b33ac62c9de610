// SPDX-License-Identifier: Apache-2.0
// Operators over GF(2^16) on the CPU: matrices by a kernel, Leopard's code by transforms through scratch memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cpu/kernels/kernel.hpp"
#include "cpu/memory.hpp"
#include "cpu/prepared.hpp"

namespace tandem::cpu {

AlignedMemory gf16_tables(const Gf16Kernel &kernel, const core::gf16::Field &field);

class Gf16Operator final : public CpuPrepared {
 public:
  Gf16Operator(const Gf16Kernel &kernel, const core::Operator &what, const KnownOfModes &known,
               std::shared_ptr<const Known> tuned);

  std::vector<core::TechniqueCost> techniques() const override {
    return {{leopard_ != nullptr ? "transform" : "matrix"}};
  }
  std::size_t least_range_bytes() const noexcept override { return leopard_ != nullptr ? lane_bytes_ : kCacheLine; }
  std::size_t scratch_bytes(const OperatorCall &call) const noexcept override;
  void apply(const OperatorCall &call, std::byte *scratch, core::Mismatch *found) const noexcept override;

 private:
  // Consecutive lists of points in one group.
  struct PointGroup {
    unsigned first_point, begin, end;
  };
  struct Range;  // of one call, and where its scratch lies
  static std::vector<PointGroup> groups_of(const std::vector<core::Element> &points, unsigned log2);

  void apply_dense(const OperatorCall &call, std::byte *scratch, core::Mismatch *found) const noexcept;
  void read_data(const Range &range) const noexcept;
  void solve(const Range &range) const noexcept;
  void write_lost(const Range &range) const noexcept;
  void write_parity(const Range &range) const noexcept;
  void write(const Range &range, std::size_t output, const std::uint8_t *lane) const noexcept;
  Gf16Lanes lanes(const Range &range, std::uint8_t *at, unsigned point) const noexcept;

  const Gf16Kernel &kernel_;
  const core::Dense16 *dense_ = nullptr;
  const core::Leopard16 *leopard_ = nullptr;
  core::Form form_;
  AlignedMemory tables_;
  std::size_t lane_bytes_ = 0;  // at most; a piece that is shorter has shorter lanes
  std::vector<PointGroup> data_, chosen_, lost_, parity_;
};

}  // namespace tandem::cpu
