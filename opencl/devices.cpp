// SPDX-License-Identifier: Apache-2.0
#include "opencl/devices.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/fork.hpp"
#include "base/text.hpp"
#include "opencl/factory.hpp"

namespace tandem::opencl {
namespace {

constexpr cl_int kPlatformNotFound = -1001;  // CL_PLATFORM_NOT_FOUND_KHR, of the ICD loader: no driver is installed
// Device nodes besides those of the kernel's DRM: AMD's compute driver, ARM's and Qualcomm's GPUs, Windows Subsystem
// for Linux.
constexpr const char *kNodes[] = {"/dev/kfd", "/dev/mali0", "/dev/kgsl-3d0", "/dev/dxg"};
constexpr unsigned kFirstRenderNode = 128;  // of the DRM, which has 128 of them at most
// Vendor ids of PCI: NVIDIA, and screens without a GPU (QEMU and virtio, VMware, VirtualBox, ASPEED, Matrox, Hyper-V).
constexpr const char *kOtherVendors[] = {"0x10de", "0x1234", "0x1af4", "0x15ad",
                                         "0x80ee", "0x1a03", "0x102b", "0x1414"};
constexpr cl_uint kMostListed = 4096;  // a larger number of platforms or devices is nonsense

class Asker {
 public:
  Asker(const Driver &driver, cl_device_id id) : driver_(driver), id_(id) {}

  template <class Value>
  Value number(cl_device_info what) const {
    Value value{};
    OPENCL_CALL(driver_, clGetDeviceInfo, id_, what, sizeof value, &value, nullptr);
    return value;
  }

  std::string text(cl_device_info what) const {
    return text_of([&](std::size_t size, void *out,
                       std::size_t *needed) { return driver_.clGetDeviceInfo(id_, what, size, out, needed); },
                   "clGetDeviceInfo");
  }

 private:
  const Driver &driver_;
  cl_device_id id_;
};

// A PVC has sub-groups of 16 and 32 work-items. Intel's compiler takes 32, and then 32+8 spills 222 registers. With 16
// it spills none (bench/results/compile/ocloc-22.43.json). On devices that have sub-groups of 8, 16 would spill.
void choose_sub_group(OpenclDevice &device, const Asker &ask) {
  constexpr cl_device_info kSizes = 0x4108;  // CL_DEVICE_SUB_GROUP_SIZES_INTEL: in rising order
  device.tells_spills = device.vendor == device::Vendor::intel &&
                        ask.text(CL_DEVICE_EXTENSIONS).find("cl_intel_required_subgroup_size") != std::string::npos;
  std::array<std::size_t, 8> sizes{};
  if (device.tells_spills &&
      device.driver->clGetDeviceInfo(device.id, kSizes, sizeof sizes, sizes.data(), nullptr) == CL_SUCCESS &&
      sizes[0] == 16)
    device.build_options += " -DSUB_GROUP=16";
}

std::string platform_text(const Driver &driver, cl_platform_id platform, cl_platform_info what) {
  return text_of([&](std::size_t size, void *out,
                     std::size_t *needed) { return driver.clGetPlatformInfo(platform, what, size, out, needed); },
                 "clGetPlatformInfo");
}

// By the name in CL_DEVICE_VENDOR: NVIDIA's, AMD's and Intel's own drivers, and Mesa's for their GPUs.
device::Vendor vendor_of(const OpenclDevice &device) {
  const auto is_of = [&](const char *name) { return device.identity.vendor.find(name) != std::string::npos; };
  if (device.is_cpu()) return device::Vendor::cpu;
  if (is_of("NVIDIA")) return device::Vendor::nvidia;
  if (is_of("Advanced Micro Devices") || is_of("AMD")) return device::Vendor::amd;
  return is_of("Intel") ? device::Vendor::intel : device::Vendor::other;
}

void describe(OpenclDevice &device) {
  const Driver &driver = *device.driver;
  const Asker ask(driver, device.id);
  device.type = ask.number<cl_device_type>(CL_DEVICE_TYPE);
  device.identity.device = ask.text(CL_DEVICE_NAME);
  device.identity.vendor = ask.text(CL_DEVICE_VENDOR);
  device.vendor = vendor_of(device);
  device.platform_name = platform_text(driver, device.platform, CL_PLATFORM_NAME);
  device.identity.driver =
      base::text(device.platform_name, " ", platform_text(driver, device.platform, CL_PLATFORM_VERSION), ", driver ",
                 ask.text(CL_DRIVER_VERSION));
  device.byte_lanes = device.is_cpu();
  device.memory_bytes = ask.number<cl_ulong>(CL_DEVICE_GLOBAL_MEM_SIZE);
  device.most_buffer_bytes = ask.number<cl_ulong>(CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  device.local_bytes = ask.number<cl_ulong>(CL_DEVICE_LOCAL_MEM_SIZE);
  device.parameter_bytes = ask.number<std::size_t>(CL_DEVICE_MAX_PARAMETER_SIZE);
  device.most_group_items = ask.number<std::size_t>(CL_DEVICE_MAX_WORK_GROUP_SIZE);
  device.unit_count = ask.number<cl_uint>(CL_DEVICE_MAX_COMPUTE_UNITS);
  device.base_alignment_bytes = ask.number<cl_uint>(CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8;
  choose_sub_group(device, ask);
}

// Why the device cannot be used, or "".
std::string nonsense(OpenclDevice &device) {
  describe(device);
  const Driver &driver = *device.driver;
  const Asker ask(driver, device.id);
  if (ask.number<cl_bool>(CL_DEVICE_AVAILABLE) == CL_FALSE) return "it is not available";
  if (ask.number<cl_bool>(CL_DEVICE_COMPILER_AVAILABLE) == CL_FALSE) return "it has no compiler";
  if (ask.number<cl_bool>(CL_DEVICE_ENDIAN_LITTLE) == CL_FALSE) return "it is big-endian";
  if (device.memory_bytes == 0) return "its driver reports 0 bytes of memory";
  if (device.most_buffer_bytes == 0) return "its driver reports buffers of at most 0 bytes";
  if (device.unit_count == 0) return "its driver reports 0 compute units";
  if (device.most_group_items == 0) return "its driver reports work-groups of at most 0 items";
  const cl_uint dimensions = ask.number<cl_uint>(CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS);
  if (dimensions < 3 || dimensions > 64)
    return base::text("its driver reports ", dimensions, " dimensions of work-items");
  std::vector<std::size_t> sizes(dimensions);
  OPENCL_CALL(driver, clGetDeviceInfo, device.id, CL_DEVICE_MAX_WORK_ITEM_SIZES, dimensions * sizeof(std::size_t),
              sizes.data(), nullptr);
  for (unsigned d = 0; d < 3; ++d) {
    device.most_items[d] = sizes[d];
    if (sizes[d] == 0) return base::text("its driver reports at most 0 work-items in dimension ", d);
  }
  const auto most_of = [&](unsigned dimension, std::size_t cap) {
    return std::min({device.most_items[dimension], device.most_group_items, cap});
  };
  // Few values of y and z, because each set of local sizes costs a compile.
  device.tried_items = {{{16, most_of(0, 1024)}, {1, most_of(1, 4)}, {1, most_of(2, 2)}}};
  device.most_tried_element_bytes = device.is_cpu() ? 64 : 16;
  return "";
}

// Reads a list with the two calls that OpenCL needs for it.
template <class Object, class Get>
std::vector<Object> list_of(Get get, const char *call, cl_int nothing) {
  cl_uint count = 0;
  cl_int error = get(0, nullptr, &count);
  if (error == nothing || (error == CL_SUCCESS && count == 0)) return {};
  check(error, call);
  std::vector<Object> list(std::min(count, kMostListed));
  error = get(static_cast<cl_uint>(list.size()), list.data(), &count);
  check(error, call);
  list.resize(std::min<std::size_t>(count, list.size()));
  return list;
}

}  // namespace

const char *OpenclDevice::kind() const noexcept {
  if ((type & CL_DEVICE_TYPE_GPU) != 0) return "gpu";
  if ((type & CL_DEVICE_TYPE_ACCELERATOR) != 0) return "accelerator";
  return is_cpu() ? "cpu" : "custom";
}

std::vector<OpenclDevice> find_devices(const Driver &driver, const base::Log &log) {
  const base::ForkPause pause;  // it loads the drivers
  const auto platforms = list_of<cl_platform_id>(
      [&](cl_uint room, cl_platform_id *out, cl_uint *count) { return driver.clGetPlatformIDs(room, out, count); },
      "clGetPlatformIDs", kPlatformNotFound);
  std::vector<OpenclDevice> usable;
  std::string left_out;  // the log has it
  for (std::size_t p = 0; p < platforms.size(); ++p) {
    std::vector<cl_device_id> ids;
    try {
      ids = list_of<cl_device_id>(
          [&](cl_uint room, cl_device_id *out, cl_uint *count) {
            return driver.clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, room, out, count);
          },
          "clGetDeviceIDs", CL_DEVICE_NOT_FOUND);
    } catch (const device::DriverError &error) {
      log.say(TANDEM_LOG_WARNING, base::text("opencl: platform ", p, " left out: ", error.what()));
    }
    for (std::size_t d = 0; d < ids.size(); ++d) {
      OpenclDevice device;
      device.label = "OpenCL";
      device.identity.backend = "opencl";
      device.compile_after_bytes = std::uint64_t{1} << 30;
      device.driver = &driver;
      device.id = ids[d];
      device.platform = platforms[p];
      device.name = base::text("opencl:", p, ":", d);
      device::add_usable(usable, std::move(device), nonsense, log, left_out);
    }
  }
  return usable;
}

const OpenclDevice &select_device(const std::vector<OpenclDevice> &devices, const std::string &name) {
  if (devices.empty()) {
    base::fail(TANDEM_ERROR_UNAVAILABLE, base::text("backend \"", name,
                                                    "\": no usable OpenCL device on this machine (no driver is "
                                                    "installed, or the log says why each device was left out)"));
  }
  if (name == "opencl") {
    const auto found =
        std::find_if(devices.begin(), devices.end(), [](const OpenclDevice &device) { return !device.is_cpu(); });
    return found != devices.end() ? *found : devices.front();
  }
  return device::device_named(devices, name, "");
}

bool may_have_gpus(const std::string &root) {
  const auto exists = [&](const char *node) { return access((root + node).c_str(), F_OK) == 0; };
  if (std::any_of(std::begin(kNodes), std::end(kNodes), exists)) return true;
  for (unsigned minor = kFirstRenderNode; minor < kFirstRenderNode + 128; ++minor) {
    const std::string node = base::text("renderD", minor);
    if (!exists(("/dev/dri/" + node).c_str())) continue;
    // "0x1002"; no file: it is not on a PCI bus
    std::ifstream file(root + "/sys/class/drm/" + node + "/device/vendor");
    std::string vendor;
    file >> vendor;
    if (std::find(std::begin(kOtherVendors), std::end(kOtherVendors), vendor) == std::end(kOtherVendors)) return true;
  }
  return false;
}

device::Listing describe_devices(std::chrono::milliseconds patience, const Driver *given) {
  return device::list_devices(kModule, patience, given != nullptr, [given](device::Listing &listing) {
    for (const OpenclDevice &device : find_devices(given != nullptr ? *given : open_driver(), base::Log()))
      listing.devices.push_back(
          {device.name, device.kind(), device.model() + " (" + device.platform_name + ")", device.unit_count});
    if (listing.devices.empty())
      listing.missing = "no usable OpenCL device: no driver is installed, or none of its devices can be used";
  });
}

}  // namespace tandem::opencl
