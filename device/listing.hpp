// SPDX-License-Identifier: Apache-2.0
// The devices of a driver: which can be used, which one a name means, and their list for people.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "device/device.hpp"
#include "device/module.hpp"

namespace tandem::device {

struct DeviceDescription {
  std::string name;         // "cuda:0", "opencl:0:1"
  std::string kind;         // "gpu", "accelerator", "cpu", "custom"
  std::string description;  // the model, and what it has, for people
  unsigned unit_count;      // compute units, multiprocessors
};

struct Listing {
  std::vector<DeviceDescription> devices;
  std::string missing;  // if there is no device: why
};

// What `ask` lists, after check_installed(), unless the table of functions is `given`, and claim(). Nothing in a forked
// child, and nothing if the driver has not answered within `patience`; a thread then continues to wait for it. The time
// that calls waited in vain is subtracted from the patience of later calls, down to 0.1 s. Throws only bad_alloc.
Listing list_devices(const DeviceModule &module, std::chrono::milliseconds patience, bool given,
                     std::function<void(Listing &)> ask);

// Adds a device, unless why_not(device) gives a reason or its driver fails: then the log hears why, and `left_out` gets
// it.
template <class Found, class WhyNot>
void add_usable(std::vector<Found> &usable, Found device, const WhyNot &why_not, const base::Log &log,
                std::string &left_out) {
  std::string reason;
  try {
    reason = why_not(device);
  } catch (const DriverError &error) {
    reason = error.what();
  }
  if (reason.empty()) return usable.push_back(std::move(device));
  const std::string line = base::text(device.name, " (", device.model(), ") left out: ", reason);
  log.say(TANDEM_LOG_WARNING, base::text(device.identity.backend, ": ", line));
  left_out += (left_out.empty() ? "" : "; ") + line;
}

// The device with this name. Throws Error (UNAVAILABLE) with a list of those that exist.
template <class Found>
const Found &device_named(const std::vector<Found> &devices, const std::string &name, const std::string &left_out) {
  std::string known;
  for (const Found &device : devices) {
    if (device.name == name) return device;
    known += (known.empty() ? "" : ", ") + device.name;
  }
  base::fail(TANDEM_ERROR_UNAVAILABLE, base::text("backend \"", name, "\" does not exist here; known: ", known,
                                                  left_out.empty() ? "" : " (" + left_out + ")"));
}

}  // namespace tandem::device
