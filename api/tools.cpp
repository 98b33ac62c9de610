// SPDX-License-Identifier: Apache-2.0
// tools.h: devices and kernels of this machine.
#include "tandem/tools.h"

#include <chrono>
#include <string>
#include <vector>

#include "api/backends.hpp"
#include "base/gate.hpp"
#include "base/lists.hpp"
#include "cpu/factory.hpp"

namespace {

// How long drivers may take to list their devices. The first call loads them.
constexpr std::chrono::seconds kPatience{20};

}  // namespace

using namespace tandem;

extern "C" {

tandem_status tandem_devices(tandem_device *devices_out, size_t capacity, size_t stride_bytes, size_t *count_out) {
  return base::guarded([&] {
    std::vector<tandem_device> list;
    for (const api::BackendKind &kind : api::backend_kinds()) {
      for (const api::FoundDevice &found : kind.devices(kPatience)) {
        tandem_device device = {};
        base::copy_text(device.name, found.name);
        base::copy_text(device.kind, found.kind);
        base::copy_text(device.description, found.description);
        base::copy_text(device.kernel, found.kernel);
        device.thread_count = found.thread_count;
        list.push_back(device);
      }
    }
    for (const api::BackendKind &kind : api::backend_kinds()) {
      const std::string reason = kind.missing != nullptr ? kind.missing(kPatience) : "";
      if (reason.empty()) continue;
      tandem_device missing = {};
      base::copy_text(missing.name, kind.name);
      base::copy_text(missing.missing, reason);
      list.push_back(missing);
    }
    base::write_list(list, devices_out, capacity, stride_bytes, count_out);
  });
}

tandem_status tandem_kernels(tandem_kernel *kernels_out, size_t capacity, size_t stride_bytes, size_t *count_out) {
  return base::guarded([&] {
    std::vector<tandem_kernel> list;
    for (const cpu::KernelDescription &kernel : cpu::describe_kernels()) {
      tandem_kernel entry = {};
      base::copy_text(entry.name, kernel.name);
      base::copy_text(entry.needs, kernel.needs);
      entry.available = kernel.available;
      list.push_back(entry);
    }
    base::write_list(list, kernels_out, capacity, stride_bytes, count_out);
  });
}

}  // extern "C"
