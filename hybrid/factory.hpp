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

// One of them.
struct Member {
  std::string name;                     // "cpu", "opencl:0:0"
  std::shared_ptr<const void> keeps{};  // what the backend refers to: it may outlive the hybrid in a driver that hangs
  std::shared_ptr<core::Backend> backend;
  unsigned lanes = 1;  // of its runs at once; each is a thread of the hybrid

  // The CPU, of which there is one at most, and it is the first. It writes where the caller reads: it can neither fail
  // in the middle nor hang. Its tasks hold one "cpu". Others write into staging memory of the library; their tasks hold
  // one "gpu", and the "pinned_mib" of that memory.
  bool is_in_place = false;

  // Its absence is no reason to fail: it was found, it was not asked for.
  bool is_optional = false;

  std::uint64_t staging_bytes = 0;                    // of a device's lane, at most
  std::function<void(unsigned lane)> enter_thread{};  // called by each of its threads before all else
};

struct Options {
  std::vector<Member> members;  // at least one
  // More members, asked for when all runs together have moved discover_bytes. May be empty.
  std::function<std::vector<Member>()> discover;
  std::uint64_t discover_bytes = 0;
  // All of the CPU as one backend, for runs that it does alone; small ones on the calling thread. Null: its member.
  std::shared_ptr<core::Backend> alone;
  std::string name = "hybrid";  // in its traits, until devices were discovered
  Policy policy = Policy::automatic;
  std::uint64_t chunk_bytes = 8 << 20;       // moved by a task; policies free and budget
  std::uint64_t inline_bytes = 256 << 10;    // a run that moves fewer is done by `alone`
  core::Budget *resources = nullptr;         // outlives the backend; holds within one chunk
  std::shared_ptr<base::Timeline> timeline;  // null: none is asked for. A lane that hangs may outlive the backend
  double least_deadline_seconds = 10;        // a device that has not answered for so long is given up
  // The model of the CPU; what earlier processes learned on such a machine; and who is told, when the backend ends,
  // what this one has. May throw.
  std::string machine;
  std::vector<core::SpeedEntry> known;
  std::function<void(std::vector<core::SpeedEntry>)> remember;
};

// What a device brings, by what was remembered of it and of the CPU, in the same kind of work.
struct Worth {
  double gain;  // both together, or the device where it never shares, of what the CPU does alone; 0: not known
  std::uint64_t from_bytes;  // of data in one call, from which on it is faster with the device; UINT64_MAX: none is
};
Worth worth_of(const core::SpeedEntry &cpu, const core::SpeedEntry &device);

std::unique_ptr<core::Backend> make_backend(Options options, const base::Log &log);

}  // namespace tandem::hybrid
