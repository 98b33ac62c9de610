// SPDX-License-Identifier: Apache-2.0
// Wide Cauchy codes on the CPU: an operator run by the transforms of a kernel, through scratch memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/operator.hpp"
#include "cpu/kernels/kernel.hpp"
#include "cpu/memory.hpp"

namespace tandem::cpu {

// The points and scales of a form as a kernel takes them.
class ShapeBytes {
 public:
  explicit ShapeBytes(const core::CauchyTransform &form)
      : inputs_(form.input_points.begin(), form.input_points.end()),
        outputs_(form.output_points.begin(), form.output_points.end()),
        input_scales_(form.input_scales.begin(), form.input_scales.end()),
        output_scales_(form.output_scales.begin(), form.output_scales.end()) {}

  // Points into this object.
  TransformShape shape() const noexcept {
    return {inputs_.data(),
            outputs_.data(),
            input_scales_.empty() ? nullptr : input_scales_.data(),
            output_scales_.empty() ? nullptr : output_scales_.data(),
            static_cast<std::uint32_t>(inputs_.size()),
            static_cast<std::uint32_t>(outputs_.size())};
  }

 private:
  std::vector<std::uint8_t> inputs_, outputs_, input_scales_, output_scales_;
};

// A form in the tables of a kernel. Immutable; any number of threads may run it.
class Transforms {
 public:
  Transforms(const Kernel &kernel, const core::CauchyTransform &form);
  // The chosen parity shards' syndromes are solved by a transform, or by a matrix.
  Transforms(const Kernel &kernel, const core::SyndromeDecode &form, bool solve_by_transform);

  // The scratch size of a call, aligned to a cache line. Never less for a longer one.
  std::size_t scratch_bytes(std::size_t length_bytes, bool out_of_cache) const noexcept;
  // `call` is for the whole form; its tables are not used.
  void apply(const KernelCall &call, std::byte *scratch) const noexcept;

 private:
  // A transform, a matrix, or nothing.
  struct Stage {
    void apply(KernelCall call, std::byte *scratch) const noexcept;
    std::size_t scratch_bytes(std::size_t length_bytes, bool out_of_cache) const noexcept;

    const Kernel *kernel = nullptr;
    AlignedMemory tables;
    std::uint32_t rows = 0, columns = 0;
    bool is_transform = false;
  };
  static Stage transform_stage(const Kernel &kernel, const core::CauchyTransform &form);
  static Stage matrix_stage(const Kernel &kernel, const core::Matrix &matrix);

  void decode(const KernelCall &call, std::byte *scratch) const noexcept;

  Stage first_;  // the whole; for a decode the part that computes the syndromes (nothing if no data is present)
  // Members of a decode:
  Stage solve_;
  std::uint32_t syndrome_count_ = 0;
  std::vector<std::uint32_t> chosen_;                                 // the syndrome of each chosen parity shard
  std::vector<std::pair<std::uint32_t, std::uint32_t>> lost_parity_;  // output and syndrome; where solve_ leaves it out
};

}  // namespace tandem::cpu
