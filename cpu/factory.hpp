// SPDX-License-Identifier: Apache-2.0
// The CPU as a Backend.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/timeline.hpp"
#include "core/backend.hpp"
#include "core/host_copies.hpp"

namespace tandem::cpu {

struct Options {
  std::string kernel;                          // empty = the best; else its name
  unsigned thread_count = 0;                   // 0 = allowed_core_count()
  std::string executor;                        // "serial", "pthread", "openmp"; empty: pthread, serial with one thread
  std::vector<unsigned> cores;                 // pthread: workers are pinned to these in turn; empty: not pinned
  std::string technique;                       // "matrix", "transform"; empty: the cheaper one
  core::Budget *budget = nullptr;              // outlives the backend
  const core::TuningSource *tuning = nullptr;  // the same; null: built-in values
  base::Timeline *timeline = nullptr;          // the same; null: none is asked for
};

// The decisions of the backend.
struct Decisions {
  const char *kernel;
  const char *executor;
  unsigned thread_count;
};

// Executor and technique are known ones: api/options.cpp refuses the others, for every backend. Throws Error
// (UNAVAILABLE), with a list of those that exist, for an unknown kernel, and for a kernel or executor that this machine
// lacks.
std::unique_ptr<core::Backend> make_backend(const Options &options, const base::Log &log, Decisions *choice_out);

// Copies on up to thread_count threads, including the calling one; 0: allowed_core_count(). They start with the first
// run that can use them. Each holds one "cpu" of the budget, which outlives the copier (null: no cap).
std::shared_ptr<core::HostCopier> make_copier(unsigned thread_count, core::Budget *budget);

struct KernelDescription {
  const char *name, *needs;
  bool available;
};
std::vector<KernelDescription> describe_kernels();  // best first
std::string describe_cpu();                         // model name, for people
unsigned allowed_core_count();

}  // namespace tandem::cpu
