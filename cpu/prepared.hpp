// SPDX-License-Identifier: Apache-2.0
// An operator in the form of CPU kernels. There is one class for each field: Gf8Operator (gf8.hpp), Gf16Operator
// (gf16.hpp), and PacketOperator (packets.hpp) for GF(2).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/backend.hpp"

namespace tandem::cpu {

// A run that moves fewer bytes than this (inputs and outputs together) stays on the calling thread: waking a worker
// takes about as long as coding this many.
inline constexpr std::uint64_t kInlineBytes = 256 << 10;
inline constexpr std::size_t kModeCount = 3;  // of enum class Mode

// How an operator is run: by its matrix, by transforms that share work between shards, or by the cheaper of the two.
enum class RunBy { cost, matrix, transform };

// Throws Error (UNSUPPORTED): the operator lacks the technique.
void check_technique(const core::Operator &what, RunBy technique);

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
// In the order of Mode. They outlive what is prepared with them.
using KnownOfModes = std::array<const Known *, kModeCount>;

// One application to a byte range of a task's shards.
struct OperatorCall {
  const core::Task *task;
  std::uint64_t offset_bytes, length_bytes;
  // From the values of a run that is spread.
  bool out_of_cache = false;
  std::uint32_t tile_bytes = 0, prefetch_bytes = 0;
};

class CpuPrepared : public core::Prepared {
 public:
  // tuned: what `known` points to, if it is of this operator alone.
  CpuPrepared(const core::Operator &what, const KnownOfModes &known, std::shared_ptr<const Known> tuned)
      : Prepared(what), known_(known), tuned_(std::move(tuned)) {}

  const Known &known(core::Mode mode) const noexcept { return *known_[static_cast<std::size_t>(mode)]; }
  std::uint64_t out_of_cache_bytes(core::Mode mode) const override;

  // Not null: in the cache, one call of the kernel with these tables applies the operator. A compare there needs no
  // scratch either.
  const void *tables_of_one_call() const noexcept { return tables_of_one_call_; }

  // Shorter ranges than this cost more for each byte.
  virtual std::size_t least_range_bytes() const noexcept = 0;
  // The scratch size of a call, aligned to a cache line. Never less for a longer range.
  virtual std::size_t scratch_bytes(const OperatorCall &call) const noexcept = 0;
  // found: compare; as many records as there are outputs, merged into.
  virtual void apply(const OperatorCall &call, std::byte *scratch, core::Mismatch *found) const noexcept = 0;

 protected:
  const void *tables_of_one_call_ = nullptr;

 private:
  KnownOfModes known_;
  std::shared_ptr<const Known> tuned_;
};

}  // namespace tandem::cpu
