// SPDX-License-Identifier: Apache-2.0
// The option `expert` of a context: values that experiments need, in one text such as "executor=openmp,pin=1".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::api {

// Empty: the default.
struct Expert {
  std::string executor;          // "serial", "pthread", "openmp"
  std::string pin;               // "0", "1"
  std::string technique;         // of the CPU: "matrix", "transform"
  std::string device_technique;  // "compiled", "tables", "transform"
};

// Replaces the values that `text` names; `from` names the text in messages. Throws Error (INVALID_ARGUMENT).
void read_expert(std::string_view from, std::string_view text, Expert &expert);

// "executor=openmp", "pin=1": what is not the default, of CPU threads or of devices.
std::vector<std::string> given_values(const Expert &expert, bool of_devices);

}  // namespace tandem::api
