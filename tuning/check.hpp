// SPDX-License-Identifier: Apache-2.0
// The shards of one case, in host memory or on a device: runs candidates on them, and compares their bytes with an
// independent product.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "core/backend.hpp"
#include "tuning/autotune.hpp"

namespace tandem::tuning {

inline constexpr std::size_t kLine = 64;

struct AlignedFree {
  void operator()(std::byte *p) const noexcept { ::operator delete (p, std::align_val_t{kLine}); }
};

// Shards side by side, an odd number of cache lines apart, so that they do not collide in a cache. on_device: with the
// same layout in device memory; two calls copy the host's bytes there and back.
class Shards {
 public:
  Shards(core::Backend &backend, bool on_device, unsigned count, std::uint64_t bytes);
  void send();
  void fetch();
  std::byte *operator[](unsigned i) const noexcept { return pointers_[i]; }

  // A task on the range.
  static core::Task task(const core::Prepared &prepared, const Shards &inputs, const Shards &outputs,
                         std::uint64_t offset_bytes, std::uint64_t length_bytes, core::Mode mode);

 private:
  std::unique_ptr<std::byte, AlignedFree> memory_;
  std::vector<std::byte *> pointers_;
  std::uint64_t bytes_ = 0;  // of all, on the device
  std::shared_ptr<core::DeviceMemory> device_;
  std::vector<std::byte *> places_;  // the pointers of a task's shards there, and
  std::vector<std::uint64_t> offsets_;
};

class Check {
 public:
  // Throws Error: TOO_LARGE (the shards do not fit memory), INTERNAL (as fail_built_in), and those of the backend.
  Check(core::Backend &backend, const core::Operator &what, const Case &at, const Options &options,
        std::uint64_t shard_bytes, std::uint64_t granularity_bytes);

  // Whether its bytes are the expected ones: on small shards, also on a range that is neither all of them nor at their
  // start, then on the whole ones. Throws the errors of the backend.
  bool is_right(const core::Prepared &prepared);

  // So many runs on the whole shards. On a device they wait in its queue, because a single run is too short. False: a
  // compare does not report correct bytes as correct.
  bool run(const core::Prepared &prepared, std::uint64_t calls);

  // One run that assigns, of any case: it overwrites the outputs.
  void assign(const core::Prepared &prepared);

  // The backend's own values give wrong bytes. Throws Error (INTERNAL).
  [[noreturn]] void fail_built_in() const;

 private:
  std::uint64_t whole(std::uint64_t bytes) const { return bytes / granularity_bytes_ * granularity_bytes_; }

  static void fill(std::byte *at, std::size_t count, std::uint64_t seed);
  void make_small_shards(std::uint64_t stripe_bytes);

  // One cell of the product, computed without a kernel, only by core/gf.hpp.
  static std::uint8_t product_at(const core::Matrix &matrix, const Shards &inputs, unsigned row, std::uint64_t at);

  // Some bytes of the large outputs, including the first and the last.
  bool columns_are_right() const;
  bool small_shards_are_right(const core::Prepared &prepared);

  // A compare must find this difference. Without the last byte, a product that is wrong there also shows as an extra
  // difference.
  static std::vector<std::uint64_t> flipped(std::uint64_t offset, std::uint64_t length, bool last_too);
  bool range_is_right(const core::Prepared &prepared, std::uint64_t offset, std::uint64_t length, bool last_too);

  core::Backend &backend_;
  const core::Matrix &matrix_;
  const Case at_;
  const core::Mode mode_;
  const bool on_device_;
  const std::uint64_t granularity_bytes_, shard_bytes_;
  std::uint64_t small_bytes_ = 0;
  std::unique_ptr<Shards> inputs_, outputs_, small_inputs_, small_outputs_;
  std::vector<std::vector<std::byte>> products_;  // of the small shards
};

}  // namespace tandem::tuning
