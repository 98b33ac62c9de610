// SPDX-License-Identifier: Apache-2.0
// The suite of the layer that all drivers share: one fake driver is as good as another. A driver's own tests have its
// vocabulary, its errors, and what it alone can do. A new driver needs a class and
//
//     INSTANTIATE_TEST_SUITE_P(Name, DeviceFaults, testing::ValuesIn(all_ways), driver_name);
//     INSTANTIATE_TEST_SUITE_P(Name, DeviceChecks, testing::ValuesIn(all_ways), driver_name);
//     INSTANTIATE_TEST_SUITE_P(Name, DeviceShards, testing::ValuesIn(all_ways), driver_name);
//     INSTANTIATE_TEST_SUITE_P(Name, DeviceLayer, testing::Values(one), driver_name);
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/backend.hpp"
#include "core/host_copies.hpp"
#include "device/options.hpp"
#include "tests/conformance/suite.hpp"
#include "tests/conformance/work.hpp"
#include "tests/device/fake_kit.hpp"

namespace tandem::test {

inline constexpr core::Mode kModes[] = {core::Mode::assign, core::Mode::accumulate, core::Mode::compare};

enum class Call { compile, launch, look };

// Where a stripe's shards lie in device memory.
enum class Layout { one_buffer, two_buffers, own_buffers };

// A fake driver, and the program that uses it.
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
  virtual std::vector<Failure> failures() const { return {Failure::plain}; }  // that the driver has
  // While it lives, shards of the host are what this variant of the driver uses directly.
  virtual std::shared_ptr<void> hold(std::span<const core::Task>) { return nullptr; }

  // A queue of the program, and memory for it, which the fake has at an address of the host.
  virtual core::MemoryKind memory() const = 0;
  virtual Layout layout() const { return Layout::own_buffers; }
  virtual bool groups_stripes() const { return true; }         // of one matrix in this layout: for one launch
  virtual bool copies_device_shards() const { return false; }  // in pieces of its own
  virtual void *make_queue() = 0;
  virtual void release_queue(void *queue) = 0;
  virtual void finish(void *queue) = 0;
  virtual void *allocate(void *queue, std::uint64_t bytes) = 0;
  virtual void release(void *memory) = 0;
  virtual std::uint8_t *address(void *memory) = 0;

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

// For the conformance suite: a backend that owns its driver, and has no more memory than its budget. The same by one of
// the first two drivers and each technique, and one with little memory.
BackendMaker owned_backend(std::string name, const DriverMaker &driver, const char *technique,
                           std::uint64_t budget_bytes, const core::TuningSource *tuning = nullptr,
                           std::string not_run = "");
std::vector<BackendMaker> conformance_makers(const std::vector<DriverMaker> &drivers);

// Again and again until it is true: what another thread brings about.
void wait_until(const std::function<bool()> &is_so, const char *what);

// A stripe in device memory, on a queue of the caller. With a skew shards begin at different places.
class DeviceStripe {
 public:
  DeviceStripe(AnyDriver &driver, Work &work, std::uint64_t skew = 0);
  ~DeviceStripe();
  DeviceStripe(const DeviceStripe &) = delete;
  DeviceStripe &operator=(const DeviceStripe &) = delete;

  void write();  // when all that is in the queue is done
  void look();   // what the device holds now; nothing is waited for
  core::Task task(const core::Prepared &prepared, core::Mode mode);

  void *const queue;
  std::vector<const std::byte *> in;
  std::vector<std::byte *> out;
  std::vector<std::uint64_t> in_offsets, out_offsets;

 private:
  AnyDriver &driver_;
  Work &work_;
  std::vector<void *> memory_;
};

// Copies on the calling thread, and counts.
class CountingCopier final : public core::HostCopier {
 public:
  void run(std::span<const core::HostCopy> copies) override {
    ++run_count;
    for (const core::HostCopy &each : copies) copied_bytes += each.bytes;
    if (before) before();
    core::copy_here(copies);
  }
  std::function<void()> before;
  std::uint64_t run_count = 0, copied_bytes = 0;
};

// The ways of a task through a backend. many: cut into many stripes.
struct DeviceWay {
  bool on_device = false, is_many = false;
};
inline constexpr DeviceWay kDeviceWays[] = {{false, false}, {true, false}, {false, true}, {true, true}};

// With what a life begins.
template <class Script = DriverScript>
struct With {
  Script script = {};
  const char *technique = "";
  std::uint64_t budget_bytes = 0;
  const core::TuningSource *tuning = nullptr;
  device::GenerateKernel generate = nullptr;  // null: the driver's own
  std::shared_ptr<core::HostCopier> copier = nullptr;
  std::string cache_folder = {};
  bool is_checked = false, checks_all = false;  // by the CPU
};

// A backend on a fake driver, with a stripe of its own. In the end nothing is left, and no call was wrong.
struct Life {
  template <class Script>
  Life(std::unique_ptr<AnyDriver> on, const core::Operator &what, std::size_t shard_bytes, const With<Script> &with)
      : driver(std::move(on)), options(driver->options()), work(what.dense(), shard_bytes) {
    options.technique = with.technique;
    options.memory_budget_bytes = with.budget_bytes;
    options.tuning = with.tuning;
    if (with.generate) options.generate = with.generate;
    options.copier = with.copier;
    options.cache_folder = with.cache_folder;
    if (with.is_checked || with.checks_all) options.reference = cpu_reference();
    options.checks_all = with.checks_all;
    begin(what);
  }
  ~Life();
  Life(const Life &) = delete;
  Life &operator=(const Life &) = delete;

  void begin(const core::Operator &what);  // with the options as they are now
  const DriverCounts &counts() const { return driver->counts(); }
  std::uint64_t calls(const char *function) const { return driver->counts().calls_of(function); }
  std::uint64_t compiles() const { return driver->calls_of(Call::compile); }
  core::Task host_task(core::Mode mode = core::Mode::assign);

  // Runs on fresh outputs, which have to be right.
  void run(core::Mode mode = core::Mode::assign, DeviceWay way = {});
  void run(DeviceStripe &stripe, core::Mode mode = core::Mode::assign);
  // The same, but what ends it is returned.
  std::pair<tandem_status, std::string> status(core::Mode mode = core::Mode::assign);
  std::unique_ptr<core::Ticket> submit(DeviceStripe &stripe, core::Mode mode = core::Mode::assign);
  void reset(DeviceStripe &stripe);  // fresh outputs on both sides
  // What the device holds is right now, or is as it was.
  void expect(DeviceStripe &stripe, core::Mode mode = core::Mode::assign);
  void expect_untouched(DeviceStripe &stripe, const char *why = "");

  std::unique_ptr<AnyDriver> driver;
  Heard heard;
  device::Options options;
  Work work;
  core::Control control;
  bool leaves = false;  // something that could not be finished
  std::unique_ptr<core::Backend> backend;
  std::shared_ptr<const core::Prepared> prepared;
};

class DriverTest : public testing::TestWithParam<DriverMaker> {
 protected:
  static std::unique_ptr<AnyDriver> driver(const DriverScript &script = {}) { return GetParam().make(script); }
};
class DeviceFaults : public DriverTest {};  // of every way to the device
class DeviceShards : public DriverTest {};
class DeviceLayer : public DriverTest {};
class DeviceChecks : public DriverTest {};  // of every way, with the CPU

}  // namespace tandem::test
