// Whether devices make a call faster, and from which size on: asked before anything is woken or started. The times are
// those of the rule (hybrid/policy/decision.hpp).
#pragma once

#include <cstdint>
#include <span>

namespace tandem::hybrid {

// Lanes of one kind. Bytes are those that are moved, inputs and outputs.
struct Party {
  double bytes_per_second;  // of one lane
  unsigned lanes = 1;
  double latency_seconds = 0;
  double start_up_seconds = 0;  // before its first task of all
};

// When a call of so many bytes would be over.
double finish_seconds(std::span<const Party> parties, double bytes);

// Whether `together` is clearly faster than `alone`: what sharing costs by itself counts against it.
bool is_worth_sharing(std::span<const Party> together, std::span<const Party> alone, double bytes);

// The size from which on it is; UINT64_MAX: no size.
std::uint64_t worth_sharing_from(std::span<const Party> together, std::span<const Party> alone);

}  // namespace tandem::hybrid
