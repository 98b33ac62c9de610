// SPDX-License-Identifier: Apache-2.0
// Descriptions of machines as text, for bench/simulate/simulate.hpp: "cpu:4x0.3", "cpu:1x4x0.3:claim=inf",
// "gpu:1x6:latency=2ms".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/simulate/simulate.hpp"

namespace tandem::bench {

inline constexpr unsigned kMostWorkers = 4096;  // in all descriptions together; a group counts as its members

// NAME:COUNTxGBPS or NAME:GROUPSxMEMBERSxGBPS, then any of :latency=TIME, :jitter=PART, :claim=N, :inner=N,
// :spawn=TIME, :slow=FACTOR@TIME, :fails=TIME, :hangs=TIME, :assumed-latency=TIME, :link=NAME (docs/hybrid.md).
struct WorkerDescription {
  SimulatedWorker worker;  // its link and the speed that the scheduler assumes are set by to_workers
  bool is_groups = false;  // the second form: the worker's bytes_per_second is the sum of its members'
  unsigned count = 0;      // of workers; a group is one
  std::string link;        // empty: none
};

// These three throw Error (INVALID_ARGUMENT) with the text and the reason.
std::vector<WorkerDescription> parse_workers(std::span<const std::string_view> texts);
// "cpu=5,gpu=1": amounts of resources, each the name of some worker.
std::vector<std::pair<std::string, std::uint64_t>> parse_resources(std::string_view text,
                                                                   std::span<const WorkerDescription> workers);
// "pcie=25,nvlink=300": bytes per second of links. Each link needs a worker, and each worker's link must be listed.
using Links = std::vector<std::pair<std::string, double>>;
Links parse_links(std::string_view text, std::span<const WorkerDescription> workers);

// The workers, in the order of their descriptions; their links are indices into `links`. With `speeds_known` the
// scheduler knows the speeds in the descriptions.
std::vector<SimulatedWorker> to_workers(std::span<const WorkerDescription> descriptions, const Links &links,
                                        bool speeds_known);

}  // namespace tandem::bench
