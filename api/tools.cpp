// tools.h: what this machine has.
#include "tandem/tools.h"

#include <chrono>
#include <string>
#include <vector>

#include "base/gate.hpp"
#include "base/lists.hpp"
#include "cpu/factory.hpp"
#include "gpu/factory.hpp"
#include "opencl/factory.hpp"

namespace {

// How long the drivers of devices may take to say what they have; the first call loads them.
constexpr std::chrono::seconds kPatience{20};

}  // namespace

using namespace tandem;

extern "C" {

tandem_status tandem_devices(tandem_device *devices_out, size_t capacity, size_t stride_bytes, size_t *count_out) {
  return base::guarded([&] {
    tandem_device cpu = {};
    base::copy_text(cpu.name, "cpu");
    base::copy_text(cpu.kind, "cpu");
    base::copy_text(cpu.description, cpu::describe_cpu());
    for (const cpu::KernelDescription &kernel : cpu::describe_kernels()) {
      if (!kernel.available) continue;
      base::copy_text(cpu.kernel, kernel.name);
      break;
    }
    cpu.thread_count = cpu::allowed_core_count();
    std::vector<tandem_device> list = {cpu};
    for (const opencl::DeviceDescription &found : opencl::describe_devices(kPatience)) {
      tandem_device device = {};
      base::copy_text(device.name, found.name);
      base::copy_text(device.kind, "opencl-" + found.kind);
      base::copy_text(device.description, found.description);
      base::copy_text(device.kernel, "auto");
      device.thread_count = found.compute_unit_count;
      list.push_back(device);
    }
    for (const gpu::DeviceDescription &found : gpu::describe_devices(kPatience).devices) {
      tandem_device device = {};
      base::copy_text(device.name, found.name);
      base::copy_text(device.kind, "cuda-gpu");
      base::copy_text(device.description, found.description);
      base::copy_text(device.kernel, "auto");
      device.thread_count = found.multiprocessor_count;
      list.push_back(device);
    }
    base::write_list(list, devices_out, capacity, stride_bytes, count_out);
  });
}

tandem_status tandem_missing_devices(tandem_missing_device *missing_out, size_t capacity, size_t stride_bytes,
                                     size_t *count_out) {
  return base::guarded([&] {
    std::vector<tandem_missing_device> list;
    const gpu::Listing listing = gpu::describe_devices(kPatience);
    if (listing.devices.empty()) {
      tandem_missing_device missing = {};
      base::copy_text(missing.backend, "cuda");
      base::copy_text(missing.reason, listing.missing);
      list.push_back(missing);
    }
    base::write_list(list, missing_out, capacity, stride_bytes, count_out);
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
