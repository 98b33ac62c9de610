// What the operations of the benchmark do to a stripe: which shards they touch, and how Tandem and a peer are called.
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

// Makes `calls` calls, the first on stripe `first`, each on the next one, round and round.
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

// The shards that a decode has lost, k+m flags with zero for those.
std::vector<std::uint8_t> present_shards(const BenchCase &at, std::uint64_t seed);

// The set-up of a decode as a user of ISA-L writes it: invert the k x k matrix of the shards that are read, and take or
// make the rows of the lost ones. Keeps its memory, so that it can be timed.
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
