// SPDX-License-Identifier: Apache-2.0
// Several Backends as one: they share each run (docs/hybrid.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/timeline.hpp"
#include "core/backend.hpp"
#include "core/budget.hpp"
#include "hybrid/policy/policy.hpp"

namespace tandem::hybrid {

// One of these backends.
struct Member {
  std::string name;                     // "cpu", "opencl:0:0"
  std::shared_ptr<const void> keeps{};  // objects that the backend refers to: a thread that hangs in a driver may use
                                        // them longer than the hybrid lives
  std::shared_ptr<core::Backend> backend;
  unsigned lanes = 1;  // of a device: pieces that it does at once, each on a thread of the hybrid. Of the CPU: threads

  // The CPU: all of it, with its own threads, budget and timeline. There is at most one, and it is the first member. It
  // runs without a guard. Devices obey the guard of their runs; a piece holds one "gpu", and "pinned_mib".
  bool is_cpu = false;

  // Found by a search, not asked for: if it is missing, that is no error.
  bool is_optional = false;

  std::uint64_t staging_bytes = 0;  // of a device's lane: its "pinned_mib"
};

struct Options {
  std::vector<Member> members;  // at least one
  // Searches more members when all runs together have moved discover_bytes. May be empty.
  std::function<std::vector<Member>()> discover;
  std::uint64_t discover_bytes = 0;
  std::string name = "hybrid";  // in its traits, until devices were discovered
  Policy policy = Policy::automatic;
  std::uint64_t chunk_bytes = 2 << 20;       // moved by a task; policy budget
  std::uint64_t inline_bytes = 1 << 20;      // the CPU does runs that move fewer bytes
  core::Budget *resources = nullptr;         // outlives the backend; changes take effect within one chunk
  std::shared_ptr<base::Timeline> timeline;  // null: none. A lane that hangs may outlive the backend
  double least_deadline_seconds = 10;        // a device that has not answered for this long is given up
};

std::unique_ptr<core::Backend> make_backend(Options options, const base::Log &log);

}  // namespace tandem::hybrid
