#include "gpu/driver.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <map>
#include <mutex>

#include "core/driver_claim.hpp"
#include "core/fork.hpp"
#include "core/own_folder.hpp"

namespace tandem::gpu {
namespace {

constexpr const char *kModuleFile = "libtandem_cuda.so";
constexpr const char *kWho = "backend \"cuda\"";

core::DriverClaim claim("cuda", "CUDA");

std::string module_path() { return core::own_folder(kWho) + "/" + kModuleFile; }

const Driver &open_module(const std::string &path) {
  // Never closed: drivers have threads.
  void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char *reason = dlerror();
    core::fail(TANDEM_ERROR_UNAVAILABLE,
               fmt::format("{} needs {}: {}", kWho, path, reason != nullptr ? reason : "it cannot be opened"));
  }
  const auto get = reinterpret_cast<tandem_cuda_module_get_function>(dlsym(handle, TANDEM_CUDA_SYMBOL));
  if (get == nullptr)
    core::fail(TANDEM_ERROR_UNAVAILABLE, fmt::format("{}: {} has no symbol {}", kWho, path, TANDEM_CUDA_SYMBOL));
  const Driver *module = get();
  check_module(module, path);
  return *module;
}

struct GivenUp {
  std::mutex mutex;
  std::map<std::pair<const Driver *, int>, std::string> reasons;
};

// A child cannot use the driver at all, so what its parent gave up does not matter there.
GivenUp &all_given_up() {
  static core::ForkLocal<GivenUp> all;
  return all.get();
}

}  // namespace

void check_module(const Driver *module, const std::string &path) {
  constexpr std::uint32_t version = TANDEM_CUDA_VERSION;
  if (module == nullptr) core::fail(TANDEM_ERROR_UNAVAILABLE, fmt::format("{}: {} is empty", kWho, path));
  if (module->version != version) {
    core::fail(TANDEM_ERROR_UNAVAILABLE,
               fmt::format("{}: {} speaks version {}, this library version {}", kWho, path, module->version, version));
  }
  if (module->struct_bytes != sizeof(Driver)) {
    core::fail(TANDEM_ERROR_UNAVAILABLE, fmt::format("{}: {} has a table of {} bytes, this library expects {}", kWho,
                                                     path, module->struct_bytes, sizeof(Driver)));
  }
}

const Driver &open_driver() {
  struct Opened {
    std::mutex mutex;
    const Driver *driver = nullptr;
  };
  static core::ForkLocal<Opened> opened;  // another thread of the parent may have been here when it forked
  Opened &here = opened.get();
  const std::lock_guard lock(here.mutex);
  if (here.driver == nullptr) {
    const core::ForkPause pause;
    here.driver = &open_module(module_path());
  }
  return *here.driver;
}

void check_installed() {
  const std::string path = module_path();
  if (access(path.c_str(), R_OK) != 0) {
    core::fail(TANDEM_ERROR_UNAVAILABLE,
               fmt::format("{} needs {}, which is not there: CUDA is not part of this installation", kWho, path));
  }
}

void claim_driver() { claim.claim(); }
bool in_child() noexcept { return claim.in_child(); }

std::string error_name(const Driver &driver, CUresult error) {
  const char *name = nullptr, *text = nullptr;
  if (driver.cuGetErrorName(error, &name) != CUDA_SUCCESS || name == nullptr) name = "an error without a name";
  if (driver.cuGetErrorString(error, &text) != CUDA_SUCCESS || text == nullptr) return name;
  return std::string(name) + ", " + text;
}

DriverError::DriverError(const Driver &driver, CUresult error, const char *call)
    : Error(error == CUDA_ERROR_OUT_OF_MEMORY ? TANDEM_ERROR_OUT_OF_MEMORY : TANDEM_ERROR_DEVICE,
            fmt::format("CUDA: {} failed with {} ({})", call, error_name(driver, error), static_cast<int>(error))),
      error_(error) {}

bool is_sticky(CUresult error) noexcept {
  // By number: the headers of older toolkits lack the names CUDA_ERROR_CONTAINED, MPS_CLIENT_TERMINATED and
  // EXTERNAL_DEVICE.
  constexpr int kContained = 226, kMpsClientTerminated = 810, kExternalDevice = 911;
  const int number = static_cast<int>(error);
  if (number == kContained || number == kMpsClientTerminated || number == kExternalDevice) return true;
  switch (error) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_UNKNOWN:
      return true;
    default:
      return false;
  }
}

bool is_of_capture(CUresult error) noexcept {
  return error >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && error <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

void give_up(const Driver &driver, int ordinal, const std::string &reason) {
  GivenUp &all = all_given_up();
  const std::lock_guard lock(all.mutex);
  all.reasons.try_emplace({&driver, ordinal}, reason);
}

std::optional<std::string> given_up(const Driver &driver, int ordinal) {
  GivenUp &all = all_given_up();
  const std::lock_guard lock(all.mutex);
  const auto found = all.reasons.find({&driver, ordinal});
  if (found == all.reasons.end()) return {};
  return found->second;
}

void forget_given_up(const Driver &driver) noexcept {
  GivenUp &all = all_given_up();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.reasons, [&](const auto &each) { return each.first.first == &driver; });
}

}  // namespace tandem::gpu
