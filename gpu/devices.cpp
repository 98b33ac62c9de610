// SPDX-License-Identifier: Apache-2.0
#include "gpu/devices.hpp"

#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "base/fork.hpp"
#include "base/text.hpp"
#include "gpu/factory.hpp"

namespace tandem::gpu {
namespace {

// Device nodes of the driver: of PCs and servers, of Jetson boards, of Windows Subsystem for Linux.
constexpr const char *kNodes[] = {"/dev/nvidiactl", "/dev/nvhost-gpu", "/dev/nvgpu", "/dev/dxg"};

constexpr unsigned kOldestArchitecture = 75;
constexpr int kMostDevices = 1024;  // more are nonsense
// Predicted, not measured: a compile takes 0.15 s, in which 8 GB go through a link of 55 GB/s. The value is twice that.
// If the link is the limit and not the kernel, at most a third of the time is lost, once.
constexpr std::uint64_t kCompileAfterBytes = std::uint64_t{16} << 30;

int attribute(const CudaDevice &device, CUdevice_attribute what) {
  int value = 0;
  CUDA_CALL(*device.driver, cuDeviceGetAttribute, &value, what, device.id);
  return value;
}

void describe(CudaDevice &device) {
  const Driver &driver = *device.driver;
  CUDA_CALL(driver, cuDeviceGet, &device.id, device.ordinal);
  char model[256] = {};
  CUDA_CALL(driver, cuDeviceGetName, model, sizeof model - 1, device.id);
  device.identity.device = model;
  device.architecture = static_cast<unsigned>(10 * attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                                              attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  device.most_loads = device.architecture >= 80 ? device::Loads::async : device::Loads::streaming;
  device.unit_count = static_cast<unsigned>(attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  // A discrete GPU may reach pageable memory too (HMM of Linux), but it moves pages over its link: that does not count.
  device.shares_memory = attribute(device, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS) != 0 &&
                         (attribute(device, CU_DEVICE_ATTRIBUTE_INTEGRATED) != 0 ||
                          attribute(device, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES) != 0);
  device.local_bytes = static_cast<std::uint64_t>(attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK));
  std::size_t bytes = 0;
  CUDA_CALL(driver, cuDeviceTotalMem, &bytes, device.id);
  device.memory_bytes = bytes;
}

// Why the device cannot be used, or "".
std::string unfit(CudaDevice &device) {
  describe(device);
  if (device.architecture < kOldestArchitecture) {
    return base::text("its compute capability is ", capability_text(device), ", ", kOldestArchitecture / 10.0,
                      " or later is needed");
  }
  if (attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE) == CU_COMPUTEMODE_PROHIBITED)
    return "its compute mode is \"prohibited\" (nvidia-smi -c changes that)";
  if (attribute(device, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) == 0)
    return "it has no stream-ordered memory pools";
  if (device.memory_bytes == 0) return "its driver reports 0 bytes of memory";
  if (const auto reason = given_up(*device.driver, device.ordinal)) return "it failed in this process: " + *reason;
  return "";
}

[[noreturn]] void fail_without(std::string why) {
  base::fail(TANDEM_ERROR_UNAVAILABLE, "no CUDA device: " + std::move(why));
}

}  // namespace

std::string version_text(int version) { return base::text(version / 1000, ".", version % 1000 / 10); }

std::string capability_text(const CudaDevice &device) {
  return base::text(device.architecture / 10, ".", device.architecture % 10);
}

std::vector<CudaDevice> find_devices(const Driver &driver, const base::Log &log, std::string *left_out) {
  if (driver.problem != nullptr) fail_without(driver.problem);
  const base::ForkPause pause;  // it may load its other libraries
  int version = 0, count = 0;
  const auto ask = [&](CUresult error, const char *call) {
    if (error != CUDA_SUCCESS) fail_without(base::text(call, " failed with ", error_name(driver, error)));
  };
  ask(driver.cuDriverGetVersion(&version), "cuDriverGetVersion");
  if (version < TANDEM_CUDA_OLDEST) {
    fail_without(base::text("the NVIDIA driver is too old: it is of CUDA ", version_text(version), ", ",
                            version_text(TANDEM_CUDA_OLDEST), " or later is needed"));
  }
  const CUresult started = driver.cuInit(0);
  if (started == CUDA_ERROR_NO_DEVICE) fail_without("the NVIDIA driver finds no GPU");
  ask(started, "cuInit");
  ask(driver.cuDeviceGetCount(&count), "cuDeviceGetCount");
  if (count <= 0) fail_without("the NVIDIA driver finds no GPU");
  std::vector<CudaDevice> usable;
  for (int i = 0; i < count && i < kMostDevices; ++i) {
    CudaDevice device;
    device.label = "CUDA";
    device.name = base::text("cuda:", i);
    device.identity = {"cuda", "NVIDIA", "", "CUDA " + version_text(version)};
    device.vendor = device::Vendor::nvidia;
    device.compile_after_bytes = kCompileAfterBytes;
    device.dialect = device::Dialect::cuda_c;
    device.most_items = {1024, 1024, 64};
    device.most_group_items = 1024;
    device.tried_items = {{{64, 512}, {1, 2}, {0, 0}}};
    device.most_element_bytes = device.most_tried_element_bytes = 16;
    device.allocates_at_once = true;
    device.driver = &driver;
    device.ordinal = i;
    device::add_usable(usable, std::move(device), unfit, log, *left_out);
  }
  return usable;
}

const CudaDevice &select_device(const std::vector<CudaDevice> &devices, const std::string &name,
                                const std::string &left_out) {
  if (devices.empty())
    base::fail(TANDEM_ERROR_UNAVAILABLE, base::text("backend \"", name, "\": no CUDA device can be used: ", left_out));
  return name == "cuda" ? devices.front() : device::device_named(devices, name, left_out);
}

bool may_have_devices(const std::string &root) {
  return std::any_of(std::begin(kNodes), std::end(kNodes),
                     [&](const char *node) { return access((root + node).c_str(), F_OK) == 0; });
}

device::Listing describe_devices(std::chrono::milliseconds patience, const Driver *given) {
  return device::list_devices(kModule, patience, given != nullptr, [given](device::Listing &listing) {
    for (const CudaDevice &device :
         find_devices(given != nullptr ? *given : open_driver(), base::Log(), &listing.missing)) {
      listing.devices.push_back({device.name, "gpu",
                                 base::text(device.model(), " (compute capability ", capability_text(device), ", ",
                                            device.memory_bytes >> 20, " MiB, ", device.driver_text(), ")"),
                                 device.unit_count});
    }
  });
}

}  // namespace tandem::gpu
