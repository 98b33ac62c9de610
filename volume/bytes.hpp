// SPDX-License-Identifier: Apache-2.0
// Numbers on members, and memory for blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "base/bytes.hpp"
#include "base/hash.hpp"
#include "base/rounding.hpp"
#include "tandem/volume.h"

namespace tandem::volume {

using base::hash64;
using base::load;
using base::round_up;
using base::store;

inline constexpr std::size_t kBlockBytes = TANDEM_VOLUME_BLOCK_BYTES;

// Memory at a multiple of 4096; its content is undefined.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t bytes) {
    if (bytes > SIZE_MAX - kBlockBytes) throw std::bad_alloc();
    at_.reset(static_cast<std::byte *>(std::aligned_alloc(kBlockBytes, round_up(bytes, kBlockBytes))));
    if (at_ == nullptr && bytes != 0) throw std::bad_alloc();
  }
  std::byte *data() const { return at_.get(); }

 private:
  struct Free {
    void operator()(std::byte *at) const { std::free(at); }
  };
  std::unique_ptr<std::byte, Free> at_;
};

}  // namespace tandem::volume
