// SPDX-License-Identifier: Apache-2.0
#include "gpu/driver.hpp"

#include <map>
#include <mutex>

#include "base/fork.hpp"
#include "base/text.hpp"

namespace tandem::gpu {
namespace {

struct GivenUp {
  std::mutex mutex;
  std::map<std::pair<const Driver *, int>, std::string> reasons;
};

// A child cannot use the driver at all, so devices that its parent gave up do not matter.
GivenUp &all_given_up() {
  static base::ForkLocal<GivenUp> all;
  return all.get();
}

}  // namespace

const device::DeviceModule kModule = {
    "cuda", "CUDA", "libtandem_cuda.so", TANDEM_CUDA_SYMBOL, TANDEM_CUDA_VERSION, sizeof(Driver)};

std::string error_name(const Driver &driver, CUresult error) {
  const char *name = nullptr, *text = nullptr;
  if (driver.cuGetErrorName(error, &name) != CUDA_SUCCESS || name == nullptr) name = "an error without a name";
  if (driver.cuGetErrorString(error, &text) != CUDA_SUCCESS || text == nullptr) return name;
  return std::string(name) + ", " + text;
}

void fail_call(const Driver &driver, CUresult error, const char *call) {
  throw device::DriverError(
      error == CUDA_ERROR_OUT_OF_MEMORY ? TANDEM_ERROR_OUT_OF_MEMORY : TANDEM_ERROR_DEVICE,
      base::text("CUDA: ", call, " failed with ", error_name(driver, error), " (", static_cast<int>(error), ")"),
      static_cast<int>(error));
}

bool is_sticky(int number) noexcept {
  // By number: the headers of older toolkits lack the names CUDA_ERROR_CONTAINED, MPS_CLIENT_TERMINATED and
  // EXTERNAL_DEVICE.
  constexpr int kContained = 226, kMpsClientTerminated = 810, kExternalDevice = 911;
  if (number == kContained || number == kMpsClientTerminated || number == kExternalDevice) return true;
  switch (number) {
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

bool is_of_capture(int error) noexcept {
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
