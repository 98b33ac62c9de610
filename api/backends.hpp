// SPDX-License-Identifier: Apache-2.0
// The one table of backends: their names, their devices on this machine, how each is made, and its cost.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "api/objects.hpp"
#include "api/options.hpp"
#include "hybrid/factory.hpp"
#include "tuning/table.hpp"

namespace tandem::api {

// Settings from a context's options, or else from the environment.
struct Settings : OptionTexts {
  OptionTexts given;  // without the environment
  hybrid::Policy policy = hybrid::Policy::automatic;
  std::uint32_t thread_count = 0;
  bool tuning_is_named = false;  // by an option or the environment
};

struct FoundDevice {
  std::string name, kind, description;  // as tandem_device
  std::string kernel = "auto";
  unsigned thread_count;
};

// One row. A new backend adds one.
struct BackendKind {
  const char *name;
  const char *forms;                      // of its devices' names, for messages
  const char *vendor = nullptr;           // in descriptions of its devices; other kinds may find these devices too
  const char *memory_resource = nullptr;  // MiB of its buffers; null: it counts none
  std::uint64_t staging_bytes = 0;        // as hybrid::Member

  bool (*is_name)(const std::string &);
  bool (*may_have_devices)();  // a quick check that loads no driver
  std::vector<FoundDevice> (*devices)(std::chrono::milliseconds patience);
  std::string (*missing)(std::chrono::milliseconds patience) = nullptr;  // why there are none, or ""

  // Makes the backend of a context, and writes the decisions into the context.
  std::unique_ptr<core::Backend> (*make)(const BackendKind &, tandem_context &, const Settings &,
                                         const std::string &name) = nullptr;
  std::vector<hybrid::Member> (*members)(const BackendKind &, tandem_context &, const Settings &,
                                         const std::string &name) = nullptr;
};

std::span<const BackendKind> backend_kinds();                   // the CPU first, which always exists
const BackendKind *find_backend_kind(const std::string &name);  // null: the name is unknown

// The resources that each task of a plan holds besides the needs of its kind. Throws Error (INVALID_ARGUMENT) for a
// malformed list, for a resource that kinds of tasks hold by themselves, and for more than the whole amount.
std::vector<core::Need> plan_needs(core::Budget &budget, const char *resources);

inline const BackendKind &cpu_kind() { return backend_kinds().front(); }
inline std::span<const BackendKind> device_kinds() { return backend_kinds().subspan(1); }

}  // namespace tandem::api
