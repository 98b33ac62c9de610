// SPDX-License-Identifier: Apache-2.0
// One point of the benchmark's axes, and the measurement at it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/energy.hpp"
#include "bench/library.hpp"
#include "bench/measure.hpp"
#include "bench/peer.hpp"
#include "bench/stripes.hpp"
#include "tandem/diagnose.h"

namespace tandem::bench {

enum class BenchOperation { encode, decode, verify, update, decode_setup };
enum class Loss { first, random };  // which m shards a decode has lost: the first data shards, or any

BenchOperation operation_from_name(const std::string &name);
std::string operation_name(BenchOperation operation);

struct BenchCase {
  BenchOperation operation = BenchOperation::encode;
  unsigned k = 10, m = 4;
  std::int32_t matrix = 0;
  PacketLayout packets;
  std::size_t shard_bytes = 0;
  std::size_t size_bytes = 0;    // the requested working set; 0 if shard_bytes was requested
  std::size_t stripe_count = 1;  // 1: in cache
  MemoryPlacement placement = MemoryPlacement::contiguous;
  bool odd = false;
  Loss loss = Loss::first;
};

// Settings of all cases of a run.
struct BenchSettings {
  tandem_context_options context = {};
  std::optional<Peer> peer;
  BenchClock clock = BenchClock::wall;
  unsigned repeats = 51;
  double seconds = 0.25;  // of each contestant of a case, all repeats together
  std::uint64_t seed = 1;
  std::shared_ptr<EnergyMeters> energy;  // null: is not measured
};

// Rates of n threads divided by rates of one thread, in the same run.
struct Scaling {
  double tandem = 0;
  double registers = 0;  // of a loop that uses no memory: the limit of this machine's cores
};

struct BenchResult {
  BenchCase at;
  bool is_pinned = false;
  std::string executor;  // tandem_context_info, and the next
  unsigned thread_count = 0;
  std::size_t data_bytes = 0;  // a call's k * shard_bytes (update: one shard); 0: not a rate but a time
  std::size_t read_bytes = 0, written_bytes = 0;  // by a call
  std::string technique;                          // of a call, from tandem_plan_info
  Samples tandem;
  std::optional<Samples> peer;
  std::vector<Samples> roofs;
  std::optional<Scaling> scaling;
  std::vector<EnergyOfDomain> energy;  // of Tandem's calls
  std::string energy_is_missing;       // why there is none of the CPU

  const Samples *roof() const;  // the fastest loop; nullptr where there is none
  double over_peer() const;     // ratio of medians, > 1: Tandem is faster; 0 without a peer
  double of_roof() const;       // 1 = at the roof; 0 without one
};

// The peer codes only bytes of GF(2^8).
bool has_peer(const BenchCase &at, const BenchSettings &settings);

// Throws std::runtime_error: the library's message, or a result that differs from the peer's.
BenchResult run_case(const BenchCase &at, const BenchSettings &settings);

// Measures one case: the time to prepare a decode for a new loss.
BenchResult run_decode_setup(const BenchCase &at, const BenchSettings &settings);

}  // namespace tandem::bench
