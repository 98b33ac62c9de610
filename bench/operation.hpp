// SPDX-License-Identifier: Apache-2.0
// The operations of the benchmark: which shards of a stripe each uses, and how it calls Tandem and a peer.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "bench/case.hpp"
#include "bench/peer.hpp"
#include "bench/stripes.hpp"
#include "tandem/tandem.h"

namespace tandem::bench {

// Makes `calls` calls: the first on stripe `first`, each other on the next stripe, the first stripe after the last.
using StripeLoop = std::function<void(std::size_t first, std::size_t calls)>;

class StripeOperation {
 public:
  virtual ~StripeOperation() = default;

  // Indices into a stripe's shards: 0 .. k+m-1, and k+m for the new bytes of an update.
  const std::vector<unsigned> &reads() const { return reads_; }
  const std::vector<unsigned> &writes() const { return writes_; }
  unsigned data_shard_count() const { return data_shard_count_; }

  virtual StripeLoop tandem(tandem_context *context, StripeView stripes) const = 0;
  virtual StripeLoop peer(const Peer &peer, StripeView stripes) const = 0;

 protected:
  std::vector<unsigned> reads_, writes_;
  unsigned data_shard_count_ = 0;
};

// The codec outlives the operation.
std::unique_ptr<StripeOperation> make_operation(const BenchCase &at, tandem_context *context, const tandem_codec *codec,
                                                std::uint64_t seed);

// k+m flags: 0 for the shards that a decode has lost.
std::vector<std::uint8_t> present_shards(const BenchCase &at, std::uint64_t seed);

// The set-up of a decode as a user of ISA-L writes it: inverts the k x k matrix of the shards that are read, and takes
// or computes the rows of the lost shards. Keeps its memory, so that timing counts no allocation.
class PeerDecode {
 public:
  PeerDecode(const Peer &peer, unsigned k, std::vector<std::uint8_t> parity_rows)
      : peer_(peer), k_(k), parity_rows_(std::move(parity_rows)), matrix_(k * k), inverse_(k * k) {}

  // Throws std::runtime_error when the matrix is singular. The rows, lost.size() x k, last until the next call.
  const std::vector<std::uint8_t> &solve(const std::vector<unsigned> &reads, const std::vector<unsigned> &lost);

 private:
  const Peer &peer_;
  std::size_t k_;
  std::vector<std::uint8_t> parity_rows_, matrix_, inverse_, rows_;
};

}  // namespace tandem::bench
