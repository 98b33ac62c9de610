// SPDX-License-Identifier: Apache-2.0
// An operator in the form of a CPU kernel: tables for bands of its rows, and how each band runs.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/backend.hpp"
#include "cpu/kernels/kernel.hpp"
#include "cpu/scratch_operator.hpp"
#include "cpu/transforms.hpp"

namespace tandem::cpu {

// A kernel takes at most this many rows and columns. Larger operators are assembled from blocks.
inline constexpr unsigned kMostRows = 256, kMostColumns = 256;
// A run that moves fewer bytes than this (inputs and outputs together) stays on the calling thread: waking a worker
// takes about as long as coding this many.
inline constexpr std::uint64_t kInlineBytes = 256 << 10;
inline constexpr std::size_t kModeCount = 3;  // of enum class Mode

// How an operator is run: by its matrix, by transforms that share work between shards, or by the cheaper one of the
// two.
enum class Technique { by_cost, matrix, transform };

// The tuning values of the running process, as numbers. Only runs that are spread read them: a small run gains nothing
// from them.
struct Values {
  std::uint64_t chunk_bytes = 2 << 20;   // the most that one chunk moves
  std::uint64_t out_of_cache_bytes = 0;  // a task that moves more prefetches, and writes past the cache
  std::uint32_t tile_bytes = 0;          // of each input; 0 = the kernel's own choice
  std::uint32_t prefetch_bytes = 0;      // the same
  unsigned thread_count = 1;
};

// Values for matrices of one shape, and the text that the log gets at their first use.
struct Known {
  Values values;
  std::string news;  // empty: nothing was measured
  mutable std::atomic<bool> told{false};
};
using KnownOfModes = std::array<const Known *, kModeCount>;

// The technique of a band in place of its matrix, and why.
struct Way {
  std::shared_ptr<const Transforms> in_cache, out_of_cache;  // nullptr: the matrix
  std::vector<core::Technique> techniques;
};

// A range of at most kMostRows rows of an operator. Its kernel tables are for the first kMostColumns columns. The
// tables of the next columns lie step_bytes further.
struct Band {
  // nullptr: the matrix.
  const Transforms *transforms(bool out_of_cache) const noexcept {
    return way == nullptr ? nullptr : (out_of_cache ? way->out_of_cache : way->in_cache).get();
  }

  std::uint32_t first_row, row_count;
  std::byte *tables;
  std::size_t step_bytes;
  const Way *way;  // nullptr: the matrix in any case
};

// An operator in the form of a kernel, cut into bands. One piece of memory has all tables of matrices.
class Bands {
 public:
  Bands(const Kernel &kernel, const core::Operator &what, unsigned most_rows, Technique technique);

  unsigned count() const noexcept { return count_; }
  bool has_ways() const noexcept { return !ways_.empty(); }
  Band operator[](unsigned i) const noexcept {
    if (i == 0 && ways_.empty()) return {0, std::min(band_rows_, row_count_), tables_, step_bytes_, nullptr};
    const std::uint32_t first_row = i * band_rows_;
    return {first_row, std::min(band_rows_, row_count_ - first_row), tables_ + i * band_bytes_, step_bytes_,
            ways_.empty() ? nullptr : &ways_[i]};
  }

 private:
  static void prepare(const Kernel &kernel, const core::Matrix &matrix, Band band);

  std::uint32_t row_count_, band_rows_, count_;
  std::size_t step_bytes_ = 0, band_bytes_ = 0;
  std::unique_ptr<std::byte[]> memory_;
  std::byte *tables_ = nullptr;  // in it, at a cache line
  std::vector<Way> ways_;        // empty: matrices
};

// Throws Error (UNSUPPORTED): the operator lacks the technique.
void check_technique(const core::Operator &what, Technique technique);

class CpuPrepared final : public core::Prepared {
 public:
  // known_of_modes: the backend's own, which exist whenever this is run. tuned: values of this operator alone. parts
  // are at most part_count, each some of the rows.
  CpuPrepared(const Kernel &kernel, const core::Operator &what, unsigned part_count, Technique technique,
              const KnownOfModes &known_of_modes, std::shared_ptr<const Known> tuned);

  const Known &known(core::Mode mode) const noexcept { return *known_of_modes_[static_cast<std::size_t>(mode)]; }
  const Values &values(core::Mode mode) const noexcept { return known(mode).values; }
  std::vector<core::Technique> techniques() const override;
  std::uint64_t out_of_cache_bytes(core::Mode mode) const override;

  std::unique_ptr<const ScratchOperator> by_scratch;  // GF(2^16) and packets: instead of the bands
  Bands whole;                                        // none of these
  bool is_one_kernel_call;                            // of the matrix
  std::optional<Bands> parts;  // partition parity: at most one for each thread, up to kMostRows rows each

 private:
  KnownOfModes known_of_modes_;
  std::shared_ptr<const Known> tuned_;
};

}  // namespace tandem::cpu
