// SPDX-License-Identifier: Apache-2.0
// Operators over GF(2^8) on the CPU: bands of rows, each run by its matrix or by transforms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cpu/kernels/kernel.hpp"
#include "cpu/prepared.hpp"
#include "cpu/transforms.hpp"

namespace tandem::cpu {

// For all rows of a task's operator.
inline KernelCall kernel_call(const OperatorCall &call, const void *tables, std::uint32_t l1_ways) noexcept {
  const core::Task &task = *call.task;
  return {.tables = tables,
          .inputs = reinterpret_cast<const std::uint8_t *const *>(task.inputs),
          .outputs = reinterpret_cast<std::uint8_t *const *>(task.outputs),
          .offset_bytes = call.offset_bytes,
          .length_bytes = call.length_bytes,
          .rows = task.prepared->rows(),
          .columns = task.prepared->columns(),
          .accumulate = task.mode == core::Mode::accumulate,
          .out_of_cache = call.out_of_cache,
          .tile_bytes = call.tile_bytes,
          .prefetch_bytes = call.prefetch_bytes,
          .small_stack = false,
          .l1_ways = l1_ways};
}

class Gf8Operator final : public CpuPrepared {
 public:
  // l1_ways: as KernelCall.
  Gf8Operator(const Kernel &kernel, std::uint32_t l1_ways, const core::Operator &what, RunBy technique,
              const KnownOfModes &known, std::shared_ptr<const Known> tuned);

  std::vector<core::TechniqueCost> techniques() const override;
  std::size_t least_range_bytes() const noexcept override;
  std::size_t scratch_bytes(const OperatorCall &call) const noexcept override;
  void apply(const OperatorCall &call, std::byte *scratch, core::Mismatch *found) const noexcept override;

 private:
  // The technique of a band in place of its matrix, and why.
  struct BandWay {
    const Transforms *transforms(bool is_out_of_cache) const noexcept {
      return (is_out_of_cache ? out_of_cache : in_cache).get();
    }

    std::shared_ptr<const Transforms> in_cache, out_of_cache;  // nullptr: the matrix
    std::vector<core::TechniqueCost> techniques;
  };

  // A range of rows that a kernel takes at once. Its tables are for as many columns as a kernel takes. The tables of
  // the next columns lie step_bytes_ further.
  struct Band {
    std::uint32_t first_row, row_count;
    std::byte *tables;
    const BandWay *way;  // nullptr: the matrix in any case
  };
  Band band(unsigned i) const noexcept;

  template <class Form>
  static BandWay way_of(const Kernel &kernel, const Form &form, RunBy technique);
  void choose_ways(const core::Operator &what, RunBy technique);
  void prepare_matrix(const core::Matrix &matrix);
  void prepare_band(const core::Matrix &matrix, Band band) const;

  void apply_band(const KernelCall &call, const Band &band, std::byte *scratch) const noexcept;
  void apply_matrix(const KernelCall &call) const noexcept;
  void compare_band(KernelCall &call, const Band &band, std::byte *scratch, core::Mismatch *found) const noexcept;

  const Kernel &kernel_;
  std::uint32_t l1_ways_, band_count_;
  std::size_t step_bytes_ = 0, band_bytes_ = 0;
  std::unique_ptr<std::byte[]> memory_;
  std::byte *tables_ = nullptr;  // in it, at a cache line; all tables of matrices
  std::vector<BandWay> ways_;    // of the bands; empty: matrices
};

}  // namespace tandem::cpu
