// SPDX-License-Identifier: Apache-2.0
// Computes cells of stripes from others on any ranks. Pieces are sent to the rank that computes a stripe. It codes one
// piece while the next one is sent, and sends the results to their ranks.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "mpi/protection.hpp"
#include "mpi/world.hpp"
#include "tandem/tandem.h"

namespace tandem::mpi {

// A member's cells, on the rank that holds them. Pieces of a cell come in order.
class Held {
 public:
  virtual ~Held() = default;
  virtual void read(std::uint32_t stripe, std::uint64_t offset, std::span<std::byte> bytes) = 0;
  virtual void write(std::uint32_t stripe, std::uint64_t offset, std::span<const std::byte> bytes) = 0;
};

struct StripeTask {
  std::uint32_t group, stripe;
  int root;                                    // the rank that computes the stripe
  std::vector<std::uint32_t> inputs, outputs;  // members: k that have their cell, and those that get theirs
};

struct Exchange {
  Layout layout;
  std::int32_t matrix;
  std::uint64_t piece_bytes;
  std::vector<std::uint64_t> segment_bytes;                        // by group
  std::vector<std::vector<int>> hosts;                             // by group and member: the rank that holds it
  std::vector<StripeTask> tasks;                                   // the same on all ranks
  std::map<std::pair<std::uint32_t, std::uint32_t>, Held *> held;  // by group and member: the cells on this rank
};

// The codec of a matrix for groups of k + m. Throws.
void check_matrix(const Layout &layout, std::int32_t matrix);

// Collective. Returns the number of bytes that this rank sent.
std::uint64_t run(const World &world, tandem_context *context, const Exchange &exchange);

}  // namespace tandem::mpi
