// SPDX-License-Identifier: Apache-2.0
// The objects behind the opaque handles of tandem.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/timeline.hpp"
#include "core/backend.hpp"
#include "core/budget.hpp"
#include "core/codec.hpp"
#include "core/host_copies.hpp"
#include "core/plan.hpp"
#include "tandem/tandem.h"
#include "tuning/table.hpp"

struct tandem_codec {
  std::shared_ptr<const tandem::core::Codec> codec;
};

struct tandem_context {
  std::uint64_t id;  // unique in the process, never reused: a cache key
  tandem::base::Log log;
  // Shared with threads that may hang in a driver longer than the context lives.
  std::shared_ptr<tandem::core::Budget> budget = std::make_shared<tandem::core::Budget>();
  std::shared_ptr<tandem::base::Timeline> timeline;  // shared for the same reason; null: none
  std::string tuning_path;
  std::shared_ptr<const tandem::tuning::Table> tuning;  // null: nothing was measured
  std::shared_ptr<tandem::core::HostCopier> copier;     // of devices; null: none has been opened
  std::shared_ptr<tandem::core::Backend> reference;     // the same: what they compute is compared with it
  std::unique_ptr<tandem::core::Backend> backend;       // destroyed before the budget and the table that it uses
  std::string resource_names;                           // tandem_context_info
  const char *kernel_name;
  const char *executor_name;
  unsigned thread_count = 0;
  // Threads are pinned to these in turn: of the executor pthread, and of functions on files that code on the CPU alone.
  // Empty: they are not. Read once, because a thread that is pinned sees one core.
  std::vector<unsigned> cores;
  unsigned caller_count = 0;  // for tandem_context_info
};

namespace tandem::api {

// The context that stands for NULL. It has default options, the first call that needs it makes it, and it is never
// destroyed. It has no timeline, because a timeline is written when its context is destroyed. Throws Error.
tandem_context &process_context();

inline tandem_context &context_or_default(tandem_context *given) {
  return given != nullptr ? *given : process_context();
}

}  // namespace tandem::api

struct tandem_plan {
  std::shared_ptr<const tandem::core::Plan> plan;  // its jobs keep it
  tandem::core::MemoryKind memory;                 // of the shards
  std::vector<tandem::core::Need> needs;           // of each task
  std::vector<std::uint8_t> shards_read{};         // a flag for each of the k+m shards
};
