// Several Backends as one: each run is shared between them (docs/HYBRID.md).
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
#include "core/tuning.hpp"
#include "hybrid/policy/policy.hpp"

namespace tandem::hybrid {

// What a member costs before a task's first byte: guesses, until they are measured.
inline constexpr double kCpuLatencySeconds = 5e-6, kDeviceLatencySeconds = 100e-6;

// One of them.
struct Member {
  std::string name;                     // "cpu", "opencl:0:0"
  std::shared_ptr<const void> keeps{};  // what the backend refers to: it may outlive the hybrid in a driver that hangs
  std::shared_ptr<core::Backend> backend;
  unsigned lanes = 1;  // of its runs at once; each is a thread of the hybrid

  // It writes where the caller reads: what can neither fail in the middle nor hang. Others write into staging memory of
  // the library, and the result is copied out when it is complete. Tasks hold one "cpu" here, else one "gpu" and the
  // "pinned_mib" of their staging.
  bool is_in_place = false;

  // Its absence is no reason to fail: somebody looked for what there is, nobody asked for this one.
  bool is_optional = false;

  double latency_seconds = 0;            // of each task, roughly
  double start_up_seconds = 0;           // of the first one, roughly: a driver is loaded
  std::uint64_t knee_bytes = 0;          // moved by a task, below which the latency is most of it
  std::uint64_t staging_bytes = 0;       // of a lane that is not in place: what a task moves at most
  std::function<void()> enter_thread{};  // called by each of its threads before all else: to bind it to cores
};

struct Options {
  std::vector<Member> members;  // at least one
  // More members, asked for when all runs together have moved discover_bytes. May be empty.
  std::function<std::vector<Member>()> discover;
  std::uint64_t discover_bytes = 0;
  // All of the CPU, which runs what is not worth sharing. Null: what is small goes to the first member, on the calling
  // thread, and all else is shared.
  std::shared_ptr<core::Backend> alone;
  std::string name = "hybrid";  // in its traits, until devices were discovered
  Policy policy = Policy::automatic;
  std::uint64_t chunk_bytes = 8 << 20;       // moved by a task; policies free and budget
  std::uint64_t inline_bytes = 256 << 10;    // a run that moves fewer is not shared
  core::Budget *resources = nullptr;         // outlives the backend; holds within one chunk
  std::shared_ptr<base::Timeline> timeline;  // null: none was asked for
  double least_deadline_seconds = 10;        // a device that has not answered for so long is given up
  // The model of the CPU; what earlier processes learned on such a machine; and who is told, when the backend ends,
  // what this one has. May throw.
  std::string machine;
  std::vector<core::SpeedEntry> known;
  std::function<void(std::vector<core::SpeedEntry>)> remember;
};

// What a device brings, by what was remembered of it and of the CPU, in the same kind of work.
struct Worth {
  double gain;  // both together, of what the CPU does alone; 0: not known
  // Bytes of data in one call, from which on it is faster with the device; UINT64_MAX: none is.
  std::uint64_t from_bytes, first_call_from_bytes;  // the latter with the device's start
};
Worth worth_of(const core::SpeedEntry &cpu, const core::SpeedEntry &device);

std::unique_ptr<core::Backend> make_backend(Options options, const base::Log &log);

}  // namespace tandem::hybrid
