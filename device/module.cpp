// SPDX-License-Identifier: Apache-2.0
#include "device/module.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstring>

#include "base/error.hpp"
#include "base/own_folder.hpp"
#include "base/text.hpp"

namespace tandem::device {
namespace {

std::string who(const DeviceModule &module) { return base::text("backend \"", module.backend, "\""); }

}  // namespace

std::string DeviceModule::path() const { return base::module_folder(file, who(*this)) + "/" + file; }

void DeviceModule::check_installed() const {
  const std::string module_path = path();
  if (access(module_path.c_str(), R_OK) == 0) return;
  base::fail(TANDEM_ERROR_UNAVAILABLE, base::text(who(*this), " needs ", module_path, ", which is not there: ", label,
                                                  " is not part of this installation"));
}

void DeviceModule::check(const void *table, const std::string &module_path) const {
  if (table == nullptr) base::fail(TANDEM_ERROR_UNAVAILABLE, base::text(who(*this), ": ", module_path, " is empty"));
  std::uint32_t found[2];
  std::memcpy(found, table, sizeof found);
  if (found[0] != version) {
    base::fail(TANDEM_ERROR_UNAVAILABLE, base::text(who(*this), ": ", module_path, " has version ", found[0],
                                                    ", this library needs version ", version));
  }
  if (found[1] != struct_bytes) {
    base::fail(TANDEM_ERROR_UNAVAILABLE, base::text(who(*this), ": ", module_path, " has a table of ", found[1],
                                                    " bytes, this library expects ", struct_bytes));
  }
}

void *DeviceModule::open() const {
  const std::string module_path = path();
  void *handle = dlopen(module_path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char *reason = dlerror();
    base::fail(TANDEM_ERROR_UNAVAILABLE, base::text(who(*this), " needs ", module_path, ": ",
                                                    reason != nullptr ? reason : "it cannot be opened"));
  }
  void *found = dlsym(handle, symbol);
  if (found == nullptr)
    base::fail(TANDEM_ERROR_UNAVAILABLE, base::text(who(*this), ": ", module_path, " has no symbol ", symbol));
  return found;
}

void DeviceModule::claim() const {
  const std::uint32_t now = base::fork_generation();
  std::uint32_t claimed = 0;
  if (claimed_in.compare_exchange_strong(claimed, now) || claimed == now) return;
  base::fail(TANDEM_ERROR_DEVICE,
             base::text(who(*this), ": this process was forked by one that had used ", label, ", and ", label,
                        " drivers do not survive a fork; use the backend \"cpu\" in children, or start them by exec"));
}

bool DeviceModule::in_child() const noexcept {
  const std::uint32_t generation = claimed_in.load();
  return generation != 0 && generation != base::fork_generation();
}

}  // namespace tandem::device
