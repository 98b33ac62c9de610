// SPDX-License-Identifier: Apache-2.0
// Decides which sums of packets are made in which order. Parts that several outputs share are summed once.
#pragma once

#include <cstdint>
#include <vector>

#include "core/matrix.hpp"

namespace tandem::cpu {

// Slots 0 .. inputs - 1 are the inputs; then the outputs; then sums that are shared.
struct Sum {
  std::uint32_t to;
  std::vector<std::uint32_t> from;  // no slot twice
};

struct Schedule {
  std::vector<Sum> sums;  // shared sums come before their users
  std::uint32_t slot_count = 0;

  // Additions of one packet to another.
  std::uint64_t addition_count() const noexcept;
};

// Schedules are made for matrices of at most kMostScheduledBits bits in a row and in a column.
inline constexpr unsigned kMostScheduledBits = 128;
// The matrix as it is.
Schedule plain_schedule(const core::Matrix &bits);
// The pair of packets that most sums share becomes a packet of its own. This repeats as long as it saves more loads
// than it costs (C. Paar, Optimized arithmetic for Reed-Solomon encoders, ISIT 1997).
Schedule shared_schedule(const core::Matrix &bits);

}  // namespace tandem::cpu
