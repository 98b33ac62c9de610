// SPDX-License-Identifier: Apache-2.0
#include "hybrid/policy/rule.hpp"

#include <algorithm>

namespace tandem::hybrid {
namespace {

// A chunk of the CPU takes a quarter of the time that is left, so that all lanes end together. It takes at least a
// hundred times the cost of hand-over and kernel start, and at most as long as a lowered budget may wait.
constexpr double kPartOfRest = 0.25, kLeastChunkSeconds = 5e-6, kMostChunkSeconds = 2e-3;

constexpr double kMostEarly = 0.5;  // of the time that a piece computes

// About the bytes that the two lanes of the fastest device move during its latency (30 GB/s each, 5 ms).
constexpr double kShortRunBytes = 384 << 20;
constexpr double kFirstBytes = 8 << 20, kFirstBytesInSharedMemory = 1 << 20;

}  // namespace

double front_chunk(double bytes_per_second, double finish, double most_seconds) {
  const double seconds = std::min({finish * kPartOfRest, most_seconds, kMostChunkSeconds});
  return bytes_per_second * std::max(seconds, kLeastChunkSeconds);
}

double back_piece(const DeviceLane &device, double finish, double others, double bytes) {
  double time = finish - device.latency_seconds;
  if (!(time > 0)) return 0;
  const double slower = (others - device.bytes_per_second) / (others + device.bytes_per_second);
  if (slower > 0) time -= std::min(device.uncertainty * slower * finish, kMostEarly * time);
  const double share = std::min(device.bytes_per_second * time, bytes);
  const bool is_risky = device.uncertainty * finish * others > 4 * device.latency_seconds * device.bytes_per_second;
  return is_risky ? share / 2 : share;
}

double first_piece_bytes(double work_bytes, bool shares_memory) {
  if (shares_memory) return kFirstBytesInSharedMemory;
  return work_bytes <= kShortRunBytes ? work_bytes : kFirstBytes;
}

}  // namespace tandem::hybrid
