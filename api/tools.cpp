// tools.h: what this machine has.
#include "tandem/tools.h"

#include <string>
#include <vector>

#include "api/gate.hpp"
#include "api/lists.hpp"
#include "cpu/factory.hpp"

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
    api::write_list<tandem_device>({cpu}, devices_out, capacity, stride_bytes, count_out);
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
