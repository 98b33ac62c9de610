// tools.h: what this machine has.
#include "tandem/tools.h"

#include <chrono>
#include <string>
#include <vector>

#include "api/gate.hpp"
#include "api/lists.hpp"
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
  return api::guarded([&] {
    tandem_device cpu = {};
    api::copy_text(cpu.name, "cpu");
    api::copy_text(cpu.kind, "cpu");
    api::copy_text(cpu.description, cpu::describe_cpu());
    for (const cpu::KernelDescription &kernel : cpu::describe_kernels()) {
      if (!kernel.available) continue;
      api::copy_text(cpu.kernel, kernel.name);
      break;
    }
    cpu.thread_count = cpu::allowed_core_count();
    std::vector<tandem_device> list = {cpu};
    for (const opencl::DeviceDescription &found : opencl::describe_devices(kPatience)) {
      tandem_device device = {};
      api::copy_text(device.name, found.name);
      api::copy_text(device.kind, "opencl-" + found.kind);
      api::copy_text(device.description, found.description);
      api::copy_text(device.kernel, "auto");
      device.thread_count = found.compute_unit_count;
      list.push_back(device);
    }
    for (const gpu::DeviceDescription &found : gpu::describe_devices(kPatience).devices) {
      tandem_device device = {};
      api::copy_text(device.name, found.name);
      api::copy_text(device.kind, "cuda-gpu");
      api::copy_text(device.description, found.description);
      api::copy_text(device.kernel, "auto");
      device.thread_count = found.multiprocessor_count;
      list.push_back(device);
    }
    api::write_list(list, devices_out, capacity, stride_bytes, count_out);
  });
}

tandem_status tandem_missing_devices(tandem_missing_device *missing_out, size_t capacity, size_t stride_bytes,
                                     size_t *count_out) {
  return api::guarded([&] {
    std::vector<tandem_missing_device> list;
    const gpu::Listing listing = gpu::describe_devices(kPatience);
    if (listing.devices.empty()) {
      tandem_missing_device missing = {};
      api::copy_text(missing.backend, "cuda");
      api::copy_text(missing.reason, listing.missing);
      list.push_back(missing);
    }
    api::write_list(list, missing_out, capacity, stride_bytes, count_out);
  });
}

tandem_status tandem_kernels(tandem_kernel *kernels_out, size_t capacity, size_t stride_bytes, size_t *count_out) {
  return api::guarded([&] {
    std::vector<tandem_kernel> list;
    for (const cpu::KernelDescription &kernel : cpu::describe_kernels()) {
      tandem_kernel entry = {};
      api::copy_text(entry.name, kernel.name);
      api::copy_text(entry.needs, kernel.needs);
      entry.available = kernel.available;
      list.push_back(entry);
    }
    api::write_list(list, kernels_out, capacity, stride_bytes, count_out);
  });
}

}  // extern "C"
