// tools.h: what this machine has.
#include "tandem/tools.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "api/gate.hpp"
#include "cpu/factory.hpp"
#include "opencl/factory.hpp"

namespace tandem::api {
namespace {

// How long the drivers of devices may take to say what they have; the first call loads them.
constexpr std::chrono::seconds kPatience{20};

template <std::size_t kBytes>
void copy_text(char (&out)[kBytes], const std::string &text) {
  const std::size_t bytes = std::min(text.size(), kBytes - 1);
  std::memcpy(out, text.data(), bytes);
  out[bytes] = 0;
}

// Writes the first `capacity` structs, stride_bytes apart.
template <class Struct>
void write_list(const std::vector<Struct> &list, Struct *out, std::size_t capacity, std::size_t stride_bytes,
                std::size_t *count_out) {
  if (count_out == nullptr || (out == nullptr && capacity != 0))
    core::fail(TANDEM_ERROR_INVALID_ARGUMENT, "a pointer argument is NULL");
  if (capacity != 0 && stride_bytes < sizeof(Struct)) {
    core::fail(TANDEM_ERROR_INVALID_ARGUMENT, "stride_bytes is " + std::to_string(stride_bytes) +
                                                  ", smaller than the struct: " + std::to_string(sizeof(Struct)));
  }
  for (std::size_t i = 0; i < std::min(capacity, list.size()); ++i)
    std::memcpy(reinterpret_cast<char *>(out) + i * stride_bytes, &list[i], sizeof(Struct));
  *count_out = list.size();
}

}  // namespace
}  // namespace tandem::api

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
    for (const opencl::DeviceDescription &found : opencl::describe_devices(api::kPatience)) {
      tandem_device device = {};
      api::copy_text(device.name, found.name);
      api::copy_text(device.kind, "opencl-" + found.kind);
      api::copy_text(device.description, found.description);
      api::copy_text(device.kernel, "auto");
      device.thread_count = found.compute_unit_count;
      list.push_back(device);
    }
    api::write_list(list, devices_out, capacity, stride_bytes, count_out);
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
