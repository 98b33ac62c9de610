// SPDX-License-Identifier: Apache-2.0
// Objects of tandem.h with owners, and the buffers of one stripe.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <string_view>
#include <vector>

#include "base/gate.hpp"
#include "base/options.hpp"
#include "base/timeline.hpp"
#include "files/format.hpp"
#include "tandem/tandem.h"

namespace tandem::files {

struct DestroyCodec {
  void operator()(tandem_codec *codec) const noexcept { tandem_codec_destroy(codec); }
};
using OwnedCodec = std::unique_ptr<tandem_codec, DestroyCodec>;

inline OwnedCodec make_codec(const SetHeader &header, bool allow_non_mds) {
  auto options = base::sized<tandem_codec_options>();
  options.k = header.k;
  options.m = header.m;
  options.matrix = header.matrix;
  options.field = static_cast<std::int32_t>(header.field);
  // The library would take the matrix's own field, and lengths here follow that of the header.
  if (header.field != TANDEM_FIELD_GF16 && (tandem_matrix_traits(header.matrix) & TANDEM_MATRIX_IS_GF16) != 0)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "matrix ", tandem_matrix_name(header.matrix),
         " is over GF(2^16), but the set's field is ", header.field);
  options.allow_non_mds = allow_non_mds ? 1 : 0;
  tandem_codec *codec = nullptr;
  check(tandem_codec_create(&options, &codec));
  return OwnedCodec(codec);
}

// Of an existing set: it may be read with any matrix.
inline OwnedCodec make_codec_to_read(const SetHeader &header) { return make_codec(header, true); }

// k+m blocks of block_bytes.
class ShardBuffers {
 public:
  ShardBuffers(std::uint32_t shard_count, std::uint32_t block_bytes) : pointers_(shard_count) {
    check(tandem_shards_allocate(shard_count, block_bytes, 0, pointers_.data()));
  }
  ~ShardBuffers() { tandem_shards_free(pointers_[0]); }
  ShardBuffers(const ShardBuffers &) = delete;
  ShardBuffers &operator=(const ShardBuffers &) = delete;

  std::byte *at(std::uint32_t shard) const { return static_cast<std::byte *>(pointers_[shard]); }
  void *const *pointers() const { return pointers_.data(); }
  const void *const *data() const { return pointers_.data(); }

 private:
  std::vector<void *> pointers_;
};

// Buffers of the stripes that a worker codes in one call.
using BatchBuffers = std::deque<ShardBuffers>;
inline BatchBuffers make_buffers(const SetHeader &header, std::uint64_t batch_stripes) {
  BatchBuffers buffers;
  for (std::uint64_t i = 0; i < batch_stripes; ++i) buffers.emplace_back(header.shard_count(), header.block_bytes);
  return buffers;
}

// Buffers that workers leave for the next call, because new memory costs the kernel as much as writing to it. Any
// thread.
class SpareBuffers {
 public:
  // Buffers for a batch. They return to this object at the end.
  class Loan {
   public:
    Loan(SpareBuffers &from, const SetHeader &header, std::uint64_t batch_stripes) : from_(from) {
      {
        const std::lock_guard lock(from.mutex_);
        if (!from.spare_.empty() && from.spare_.back()->size() == batch_stripes) {
          buffers_ = std::move(from.spare_.back());
          from.spare_.pop_back();
        }
      }
      if (buffers_ == nullptr) buffers_ = std::make_unique<BatchBuffers>(make_buffers(header, batch_stripes));
    }
    ~Loan() {
      const std::lock_guard lock(from_.mutex_);
      try {
        from_.spare_.push_back(std::move(buffers_));
      } catch (const std::bad_alloc &) {  // they are freed then
      }
    }
    Loan(const Loan &) = delete;
    Loan &operator=(const Loan &) = delete;
    const BatchBuffers &operator*() const { return *buffers_; }

   private:
    SpareBuffers &from_;
    std::unique_ptr<BatchBuffers> buffers_;
  };

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<BatchBuffers>> spare_;
};

// A step of a stripe for the timeline, which may be null: "read", "hash", "write". Coding is recorded by the backend.
inline base::TimedStep step_of(base::Timeline *timeline, std::string_view what, const SetHeader &header,
                               std::uint64_t stripe) {
  const std::uint64_t begin = stripe * header.stripe_data_bytes();
  return {timeline, what, begin, begin + header.stripe_data_bytes()};
}

// The places of a stripe's content in the data blocks, in order, without padding.
inline std::vector<iovec> content_pieces(const ShardBuffers &buffers, const SetHeader &header, std::uint64_t stripe) {
  std::vector<iovec> pieces;
  std::uint64_t left = header.content_bytes_of(stripe);
  const std::uint64_t payload = header.payload_bytes_of(stripe);
  for (std::uint32_t i = 0; left != 0; ++i) {
    const std::uint64_t length = std::min(left, payload);
    pieces.push_back({buffers.at(i), length});
    left -= length;
  }
  return pieces;
}

}  // namespace tandem::files
