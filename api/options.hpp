// SPDX-License-Identifier: Apache-2.0
// The one table of context options: the variable or key of `expert` that each may come from, and which backends read
// it. `tuning_file` is read by tuning::file_path.
#pragma once

#include <string>

#include "tandem/tandem.h"

namespace tandem::api {

// The options as texts; empty: the default.
struct OptionTexts {
  std::string backend, kernel, threads, resources, policy_name, timeline_file;
  std::string check_devices;                               // a variable alone
  std::string executor, pin, technique, device_technique;  // keys of `expert`
};

// What a backend must have for an option to have an effect on it.
enum Reader : unsigned {
  kCpuThreads = 1,
  kPolicy = 2,    // it is a hybrid
  kDevice = 4,    // it is a device alone
  kExecutor = 8,  // an executor spreads a call of it
  kWorkers = 16,  // the executor pthread has several threads; make_cpu knows
};

// Throws Error (INVALID_ARGUMENT) for a malformed `expert`.
OptionTexts read_texts(const tandem_context_options &given, bool with_environment);

// Throws Error (INVALID_ARGUMENT) for a given option that a backend with these readers ignores. Environment variables
// are defaults for all programs of a machine, so `given` is without them.
void check_effects(const OptionTexts &given, const std::string &backend, unsigned readers);

}  // namespace tandem::api
