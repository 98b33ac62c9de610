// SPDX-License-Identifier: Apache-2.0
// What all files of the volume use: errors, numbers on members, memory for blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "base/bytes.hpp"
#include "base/gate.hpp"
#include "base/hash.hpp"
#include "base/options.hpp"
#include "base/rounding.hpp"
#include "base/text.hpp"
#include "tandem/volume.h"

namespace tandem::volume {

using namespace base;

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
