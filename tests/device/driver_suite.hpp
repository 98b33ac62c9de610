// SPDX-License-Identifier: Apache-2.0
// The suite of the layer that all drivers share: one fake driver is as good as another. A driver's own tests have its
// vocabulary, its errors, and what it alone can do. A new driver needs a class and
//
//     INSTANTIATE_TEST_SUITE_P(Name, DeviceFaults, testing::ValuesIn(all_ways), driver_name);
//     INSTANTIATE_TEST_SUITE_P(Name, DeviceLayer, testing::Values(one), driver_name);
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/backend.hpp"
#include "device/options.hpp"
#include "tests/conformance/suite.hpp"
#include "tests/conformance/work.hpp"
#include "tests/device/driver_counts.hpp"

namespace tandem::test {

// What every fake driver can be told.
struct DriverScript {
  std::uint64_t failing_call = UINT64_MAX;        // the n-th call that can fail, from 0, does
  bool kills = false;                             // and so do all later ones, if the driver has such errors
  std::uint64_t failing_command = UINT64_MAX;     // the n-th command is accepted, and fails when it is done
  std::uint64_t cancelling_command = UINT64_MAX;  // the n-th command cancels `control` when it is put into its queue
  core::Control *control = nullptr;
  unsigned device_count = 1;
  int most_group_items = 0;  // of any kernel; 0: as many as the device has
  bool is_another_model = false;
  bool refuses_binaries = false;
  bool is_done_when_asked = false;  // a look at an event brings about what it asks for
};

enum class Call { compile, launch, look };

// A stripe in device memory, on a queue of the caller.
class DeviceStripe {
 public:
  virtual ~DeviceStripe() = default;
  virtual void write() = 0;
  virtual void read() = 0;  // what the device holds when all commands are done
  virtual core::Task task(const core::Prepared &prepared, core::Mode mode) = 0;
};

class AnyDriver {
 public:
  virtual ~AnyDriver() = default;
  virtual const char *label() const = 0;                    // "CUDA"
  virtual const char *resource() const = 0;                 // "cuda_mib"
  virtual void set_script(const DriverScript &script) = 0;  // counters begin again
  virtual device::Options options() const = 0;
  virtual std::string device_name(unsigned index) const = 0;
  virtual std::unique_ptr<core::Backend> make(const device::Options &options, const base::Log &log) = 0;
  virtual std::size_t listed_devices() const = 0;
  virtual std::unique_ptr<DeviceStripe> on_device(Work &work, std::uint64_t skew) = 0;
  // While it lives, shards of the host are what this variant of the driver uses directly.
  virtual std::shared_ptr<void> hold(std::span<const core::Task>) { return nullptr; }

  virtual const DriverCounts &counts() const = 0;
  virtual std::uint64_t calls_of(Call call) const = 0;
  virtual bool is_dead() const { return false; }
  virtual std::vector<std::string> problems() const = 0;  // objects that are left, and what a driver could crash at

  std::unique_ptr<core::Backend> make(const char *technique = "", const base::Log &log = {}, std::uint64_t budget = 0) {
    device::Options options = this->options();
    options.technique = technique;
    options.memory_budget_bytes = budget;
    return make(options, log);
  }
};

struct DriverMaker {
  std::string name;
  std::function<std::unique_ptr<AnyDriver>(const DriverScript &)> make;
};
inline std::string driver_name(const testing::TestParamInfo<DriverMaker> &test) { return test.param.name; }

// For the conformance suite: backends that own one of the first two drivers, by each technique, and one with little
// memory.
std::vector<BackendMaker> conformance_makers(const std::vector<DriverMaker> &drivers);

// Again and again until it is true: what another thread brings about.
void wait_until(const std::function<bool()> &is_so, const char *what);

class DriverTest : public testing::TestWithParam<DriverMaker> {
 protected:
  std::unique_ptr<AnyDriver> driver(const DriverScript &script = {}) { return GetParam().make(script); }
};
class DeviceFaults : public DriverTest {};  // of every way to the device
class DeviceLayer : public DriverTest {};

}  // namespace tandem::test
