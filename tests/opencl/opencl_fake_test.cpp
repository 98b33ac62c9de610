// SPDX-License-Identifier: Apache-2.0
// The OpenCL backend on a fake driver that fails, returns wrong answers, and runs a command only when the program
// waits.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "core/budget.hpp"
#include "device/disk_cache.hpp"
#include "opencl/devices.hpp"
#include "opencl/factory.hpp"
#include "opencl/session.hpp"
#include "tests/conformance/suite.hpp"
#include "tests/conformance/work.hpp"
#include "tests/device/driver_suite.hpp"
#include "tests/device/fake_kernel.hpp"
#include "tests/opencl/fake_driver.hpp"
#include "tests/support/expected.hpp"
#include "tests/support/random.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/thinned.hpp"

namespace tandem::test {
namespace {

using core::Mode;
using opencl::Transfer;

opencl::Options fake_options(const FakeDriver &driver, Transfer transfer = Transfer::staged) {
  opencl::Options options;
  options.driver = driver.table();
  options.generate = fake_generate;
  options.transfer = transfer;
  return options;
}

// A stripe in buffers of the fake, on a queue in a context of its own.
class OnDevice final : public DeviceStripe {
 public:
  enum class Layout { one_buffer, two_buffers, own_buffers };

  OnDevice(const FakeDriver &driver, Work &work, Layout layout, std::uint64_t skew, bool in_order = true)
      : driver_(*driver.table()), work_(work) {
    cl_platform_id platform = nullptr;
    cl_uint count = 0;
    driver_.clGetPlatformIDs(1, &platform, &count);
    cl_device_id devices[4] = {};
    driver_.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 4, devices, &count);
    cl_int error = CL_SUCCESS;
    context = driver_.clCreateContext(nullptr, 1, devices, nullptr, nullptr, &error);
    queue = driver_.clCreateCommandQueue(context, devices[0], in_order ? 0 : CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE,
                                         &error);
    const std::uint64_t pitch = (work.bytes + 127) / 64 * 64 + skew;
    const std::size_t columns = work.inputs.size(), rows = work.outputs.size();
    for (std::size_t i = 0; i < columns + rows; ++i) {
      const bool output = i >= columns;
      const std::size_t slot = layout == Layout::one_buffer    ? i
                               : layout == Layout::own_buffers ? 0
                               : output                        ? i - columns
                                                               : i;
      const bool fresh = layout == Layout::own_buffers || i == 0 || (layout == Layout::two_buffers && i == columns);
      if (fresh) {
        const std::size_t room = layout == Layout::own_buffers ? 1 : columns + rows;
        buffers_.push_back(
            driver_.clCreateBuffer(context, CL_MEM_READ_WRITE, room * pitch + skew + 64, nullptr, &error));
      }
      (output ? out : in).push_back(buffers_.back());
      (output ? out_offsets : in_offsets).push_back(slot * pitch + skew);
    }
    write();
  }
  ~OnDevice() override {
    for (const cl_mem buffer : buffers_) driver_.clReleaseMemObject(buffer);
    driver_.clReleaseCommandQueue(queue);
    driver_.clReleaseContext(context);
  }

  void write() override {
    for (std::size_t c = 0; c < in.size(); ++c)
      driver_.clEnqueueWriteBuffer(queue, in[c], CL_TRUE, in_offsets[c], work_.bytes, work_.inputs[c].data(), 0,
                                   nullptr, nullptr);
    for (std::size_t r = 0; r < out.size(); ++r)
      driver_.clEnqueueWriteBuffer(queue, out[r], CL_TRUE, out_offsets[r], work_.bytes, work_.before[r].data(), 0,
                                   nullptr, nullptr);
  }
  void read() override {
    for (std::size_t r = 0; r < out.size(); ++r)
      driver_.clEnqueueReadBuffer(queue, out[r], CL_TRUE, out_offsets[r], work_.bytes, work_.outputs[r].data(), 0,
                                  nullptr, nullptr);
  }
  core::Task task(const core::Prepared &prepared, Mode mode) override {
    core::Task made = {&prepared,
                       reinterpret_cast<const std::byte *const *>(in.data()),
                       reinterpret_cast<std::byte *const *>(out.data()),
                       0,
                       work_.bytes,
                       mode,
                       work_.mismatches.data()};
    made.memory = core::MemoryKind::opencl;
    made.queue = queue;
    made.input_offsets = in_offsets.data();
    made.output_offsets = out_offsets.data();
    return made;
  }

  cl_context context = nullptr;
  cl_command_queue queue = nullptr;
  std::vector<cl_mem> in, out;
  std::vector<std::uint64_t> in_offsets, out_offsets;

 private:
  const tandem_opencl_module &driver_;
  Work &work_;
  std::vector<cl_mem> buffers_;
};

// The ways to this driver: host shards staged or in place; device shards in two buffers, or in too many for a kernel's
// arguments, which are copied together.
struct OpenclWay {
  const char *name;
  Transfer transfer = Transfer::staged;
  OnDevice::Layout layout = OnDevice::Layout::two_buffers;
  bool in_order = true;
};

// For the suite that all drivers share.
class OpenclDriver final : public AnyDriver {
 public:
  OpenclDriver(const DriverScript &script, const OpenclWay &way) : way_(way), driver_(of(script)) {}

  const char *label() const override { return "OpenCL"; }
  const char *resource() const override { return opencl::kMemoryResource; }
  void set_script(const DriverScript &script) override { driver_.set_script(of(script)); }
  device::Options options() const override { return fake_options(driver_); }
  std::string device_name(unsigned index) const override { return "opencl:0:" + std::to_string(index); }
  std::unique_ptr<core::Backend> make(const device::Options &options, const base::Log &log) override {
    opencl::Options all = fake_options(driver_, way_.transfer);
    static_cast<device::Options &>(all) = options;
    return opencl::make_backend(all, log);
  }
  std::size_t listed_devices() const override {
    return opencl::describe_devices(std::chrono::seconds(20), driver_.table()).devices.size();
  }
  std::unique_ptr<DeviceStripe> on_device(Work &work, std::uint64_t skew) override {
    return std::make_unique<OnDevice>(driver_, work, way_.layout, skew, way_.in_order);
  }
  const DriverCounts &counts() const override { return driver_; }
  std::uint64_t calls_of(Call call) const override {
    return driver_.calls_of(call == Call::compile  ? "clCreateProgramWithSource"
                            : call == Call::launch ? "clEnqueueNDRangeKernel"
                                                   : "clGetEventInfo");
  }
  std::vector<std::string> problems() const override { return driver_.problems(); }

 private:
  FakeDriverScript of(const DriverScript &from) const {
    FakeDriverScript script;
    script.devices.resize(from.device_count);
    script.devices[0].shares_memory = way_.transfer == Transfer::zero_copy;
    if (way_.layout == OnDevice::Layout::own_buffers) script.devices[0].parameter_bytes = 100;
    script.failing_call = from.failing_call;
    script.failing_command = from.failing_command;
    script.cancelling_command = from.cancelling_command;
    script.control = from.control;
    if (from.most_group_items != 0)
      script.devices[0].kernel_group_items = static_cast<std::size_t>(from.most_group_items);
    if (from.is_another_model) script.devices[0].name = "Another";
    script.is_done_when_asked = from.is_done_when_asked;
    script.refuses_binaries = from.refuses_binaries;
    return script;
  }

  const OpenclWay way_;
  FakeDriver driver_;
};

std::vector<DriverMaker> all_drivers() {
  std::vector<DriverMaker> list;
  for (const OpenclWay &way : {OpenclWay{"staged"}, OpenclWay{"in_place", Transfer::zero_copy},
                               OpenclWay{"copied", Transfer::staged, OnDevice::Layout::own_buffers},
                               OpenclWay{"out_of_order", Transfer::staged, OnDevice::Layout::one_buffer, false}})
    list.push_back(
        {way.name, [way](const DriverScript &script) { return std::make_unique<OpenclDriver>(script, way); }});
  return list;
}
INSTANTIATE_TEST_SUITE_P(OpenclFake, BackendConformance, testing::ValuesIn(conformance_makers(all_drivers())),
                         maker_name);
INSTANTIATE_TEST_SUITE_P(Opencl, DeviceFaults, testing::ValuesIn(all_drivers()), driver_name);
INSTANTIATE_TEST_SUITE_P(Opencl, DeviceLayer, testing::Values(all_drivers().front()), driver_name);

constexpr Mode kModes[] = {Mode::assign, Mode::accumulate, Mode::compare};
using Layout = OnDevice::Layout;
constexpr Layout kLayouts[] = {Layout::one_buffer, Layout::two_buffers, Layout::own_buffers};

FakeDriverScript with_device(const std::function<void(FakeDevice &)> &change) {
  FakeDriverScript script;
  change(script.devices[0]);
  return script;
}

struct With {
  FakeDriverScript script = {};
  Transfer transfer = Transfer::staged;
  const char *technique = "";
  std::uint64_t budget_bytes = 0;
  const core::TuningSource *tuning = nullptr;
  std::string cache_folder = {};
};

// A backend on a fake driver, with a stripe of its own. In the end nothing is left, and no call was wrong.
struct Life {
  Life(unsigned rows, unsigned columns, std::size_t shard_bytes, const With &with = {})
      : driver(with.script), options(fake_options(driver, with.transfer)), work(rows, columns, shard_bytes) {
    options.technique = with.technique;
    options.memory_budget_bytes = with.budget_bytes;
    options.tuning = with.tuning;
    options.cache_folder = with.cache_folder;
    backend = opencl::make_backend(options, heard.log());
    prepared = backend->prepare(work.matrix);
    work.reset();
  }
  ~Life() {
    prepared.reset();
    backend.reset();
    for (const std::string &each : driver.problems()) EXPECT_TRUE(leaves) << each;
  }

  std::uint64_t calls(const char *function) const { return driver.calls_of(function); }
  std::uint64_t builds() const { return calls("clCreateProgramWithSource"); }
  void run(Mode mode = Mode::assign) {
    work.reset();
    work.run(*backend, *prepared, mode);
    EXPECT_TRUE(work.is_right(mode)) << static_cast<int>(mode);
  }
  std::pair<tandem_status, std::string> status(Mode mode = Mode::assign) {
    work.reset();
    return status_of([&] { work.run(*backend, *prepared, mode); });
  }
  void expect(OnDevice &stripe, Mode mode = Mode::assign) {
    stripe.read();
    EXPECT_TRUE(work.is_right(mode)) << static_cast<int>(mode);
  }

  FakeDriver driver;
  Heard heard;
  opencl::Options options;
  Work work;
  core::Control control;
  bool leaves = false;  // something that could not be finished
  std::unique_ptr<core::Backend> backend;
  std::shared_ptr<const core::Prepared> prepared;
};

// Staged: a range is committed when its piece is complete. With one piece a failed run has changed nothing, and the XOR
// that is done again is done once.
TEST(OpenclFaults, AFailedPieceLeavesTheOutputsAlone) {
  unsigned failures = 0;
  for (std::uint64_t n = 0; n < 8; ++n) {
    Life life(2, 3, 1000, {.script = {.failing_command = n}});
    if (life.status(Mode::accumulate).first == TANDEM_OK) continue;  // a pinned buffer's mapping, or after the run
    ++failures;
    EXPECT_TRUE(life.work.is_untouched()) << "command " << n;
    life.work.run(*life.backend, *life.prepared, Mode::accumulate);
    EXPECT_TRUE(life.work.is_right(Mode::accumulate)) << "command " << n;
  }
  EXPECT_GE(failures, 4u) << "two uploads, the kernel, the download";
}

// Nothing of an OpenCL context in which a command failed is used again.
TEST(OpenclFaults, AfterAnErrorTheNextRunHasAContextOfItsOwn) {
  Life life(2, 3, 1000, {.script = {.failing_command = 3}});
  EXPECT_NE(life.status().first, TANDEM_OK);
  EXPECT_TRUE(life.heard.has("its context is given up")) << life.heard.text;
  EXPECT_EQ(life.calls("clCreateContext"), 1u);
  for (unsigned run = 0; run < 2; ++run) {
    life.run();
    EXPECT_EQ(life.calls("clCreateContext"), 2u) << "and keeps it";
  }
}

// A queue that does not come to an end may write later: what it writes to is never given back, nor used again.
TEST(OpenclFaults, WhatCannotBeFinishedIsQuarantined) {
  for (const Transfer transfer : {Transfer::staged, Transfer::zero_copy}) {
    for (const Mode mode : {Mode::assign, Mode::compare}) {
      Life life(2, 3, 5000, {.transfer = transfer});
      life.leaves = true;
      life.run(mode);
      const auto next_run_has_a_context = [&] {
        life.driver.set_script({});
        life.run(mode);
        EXPECT_EQ(life.calls("clCreateContext"), 1u);
      };
      FakeDriverScript script;
      script.finish_fails = true;
      script.failing_command = 0;
      life.driver.set_script(script);
      const auto [status, message] = life.status(mode);
      EXPECT_EQ(status, TANDEM_ERROR_DEVICE);
      EXPECT_TRUE(transfer == Transfer::staged || message.find("does not end") != std::string::npos) << message;
      next_run_has_a_context();
      if (transfer == Transfer::staged) {  // a cancel is no error of the driver, but ends in the same way
        core::Control control;
        script.failing_command = UINT64_MAX;
        script.cancelling_command = 0;
        script.control = &control;
        life.driver.set_script(script);
        const auto other = life.backend->prepare(life.work.matrix);  // so that they do not go together
        core::Task tasks[2];
        for (core::Task &task : tasks)
          task = {life.prepared.get(),        life.work.in.data(), life.work.out.data(), 0, life.work.bytes, mode,
                  life.work.mismatches.data()};
        tasks[1].prepared = other.get();
        EXPECT_EQ(status_of([&] { life.backend->run(tasks, control); }).first, TANDEM_ERROR_CANCELLED);
        next_run_has_a_context();
      }
      life.prepared.reset();
      life.backend.reset();
      EXPECT_EQ(life.driver.live()["queue"], transfer == Transfer::staged ? 6 : 3);
      EXPECT_GE(life.driver.live()["buffer"], 1);
    }
  }
}

// Inputs, and all shards of a compare, may be mapped read-only.
TEST(OpenclZeroCopy, NeverAsksToWriteToWhatItOnlyReads) {
  Life life(2, 3, 5000, {.transfer = Transfer::zero_copy});
  FakeDriverScript script;
  for (const Bytes &input : life.work.inputs) script.read_only.insert(input.data());
  for (const Mode mode : kModes) {
    if (mode == Mode::compare)
      for (const Bytes &output : life.work.outputs) script.read_only.insert(output.data());
    life.driver.set_script(script);
    life.run(mode);
  }
}

// Nothing is aligned. No byte of a shard is copied where the device shares the host's memory. Elsewhere all of them
// are.
TEST(OpenclZeroCopy, MemoryIsUsedWhereItLies) {
  constexpr std::uint64_t kBytes = 20'001, kOffset = 1003, kLength = 17'777;
  for (const bool shares : {true, false}) {
    for (const Mode mode : kModes) {
      Life life(2, 3, kBytes,
                {.script = with_device([&](FakeDevice &device) { device.shares_memory = shares; }),
                 .transfer = Transfer::automatic,
                 .technique = "compiled"});
      Work &work = life.work;
      const core::Task task = {life.prepared.get(),   work.in.data(), work.out.data(), kOffset, kLength, mode,
                               work.mismatches.data()};
      life.backend->run({&task, 1}, life.control);
      for (unsigned r = 0; r < 2; ++r) {
        Bytes want = work.before[r];
        std::uint64_t differing = 0;
        for (std::uint64_t i = kOffset; i < kOffset + kLength; ++i) {
          differing += want[i] != work.product[r][i];
          if (mode == Mode::assign) want[i] = work.product[r][i];
          if (mode == Mode::accumulate) want[i] ^= work.product[r][i];
        }
        EXPECT_EQ(std::memcmp(work.out[r], want.data(), kBytes), 0);
        EXPECT_EQ(work.mismatches[r].byte_count, mode == Mode::compare ? differing : 0);
      }
      if (!shares) {
        EXPECT_GE(life.driver.copied_bytes(), 5 * kLength);
      } else if (mode == Mode::compare) {
        EXPECT_LT(life.driver.copied_bytes(), kLength) << "records";
      } else {
        EXPECT_EQ(life.driver.copied_bytes(), 0u);
      }
    }
  }
}

TEST(OpenclZeroCopy, MemoryThatTheDriverDoesNotTakeIsStaged) {
  Life life(2, 3, 5000, {.script = {.refuses_host_memory = true}, .transfer = Transfer::zero_copy});
  for (const Mode mode : kModes) life.run(mode);
  EXPECT_TRUE(life.heard.has("cannot use shards in place; they are staged")) << life.heard.text;
}

// Jobs on device memory that need scratch draw from the same budget.
TEST(OpenclMemory, TheBudgetHoldsOverJobs) {
  Life life(3, 20, 60'000,
            {.script = with_device([](FakeDevice &device) { device.parameter_bytes = 100; }), .budget_bytes = 1 << 20});
  life.run();
  OnDevice one(life.driver, life.work, Layout::own_buffers, 0), two(life.driver, life.work, Layout::own_buffers, 0);
  const std::uint64_t of_caller = 2 * 23 * (60'000 + 192);
  {
    const core::Task first = one.task(*life.prepared, Mode::assign), second = two.task(*life.prepared, Mode::assign);
    const auto ticket = life.backend->submit({&first, 1}, life.control),
               other = life.backend->submit({&second, 1}, life.control);
    ticket->wait();
    other->wait();
    life.run();
  }
  EXPECT_LE(life.driver.most_device_bytes(), life.options.memory_budget_bytes + of_caller);
  for (OnDevice *stripe : {&one, &two}) {
    life.work.reset();
    life.expect(*stripe);
  }
}

std::shared_ptr<opencl::OpenclSession> session_on(const FakeDriver &driver) {
  const auto devices = opencl::find_devices(*driver.table(), base::Log());
  return std::make_shared<opencl::OpenclSession>(std::make_shared<const opencl::OpenclDevice>(devices.at(0)),
                                                 std::make_shared<device::MemoryBudget>(1 << 20),
                                                 std::make_shared<device::DiskCache>("", base::Log()), base::Log());
}

// While other runs have all lanes, a run that waits for one can be cancelled.
TEST(OpenclSession, AWaitForALaneCanBeCancelled) {
  FakeDriver driver;
  const auto session = session_on(driver);
  core::Control control;
  std::thread waiter;
  std::atomic<bool> cancelled{false};
  {
    const auto first = session->take_lane(control), second = session->take_lane(control);
    waiter = std::thread(
        [&] { cancelled = status_of([&] { session->take_lane(control); }).first == TANDEM_ERROR_CANCELLED; });
    control.cancel();
    for (unsigned i = 0; i < 1000 && !cancelled; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  waiter.join();
  EXPECT_TRUE(cancelled);
}

TEST(OpenclMemory, AStripeThatDoesNotFitIsSplit) {
  Life life(4, 10, 300'001, {.script = with_device([](FakeDevice &device) { device.memory_bytes = 1 << 20; })});
  for (const Mode mode : kModes) life.run(mode);
  EXPECT_GT(life.calls("clEnqueueNDRangeKernel"), 100u);
  EXPECT_LE(life.driver.most_device_bytes(), std::uint64_t{1} << 20);
}

TEST(OpenclDevices, NonsenseIsLeftOutWithAWarning) {
  FakeDriverScript script;
  FakeDevice good;
  FakeDevice bad[6];
  bad[0].memory_bytes = 0;
  bad[1].most_group_items = 0;
  bad[2].has_compiler = false;
  bad[3].compute_units = 0;
  bad[4].most_buffer_bytes = 0;
  bad[5].is_available = false;
  script.devices.assign(bad, bad + 6);
  script.devices.push_back(good);
  FakeDriver driver(script);
  Heard heard;
  const auto devices = opencl::find_devices(*driver.table(), heard.log());
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].name, "opencl:0:6") << "numbers are the driver's";
  for (const char *part : {"0 bytes of memory", "work-groups of at most 0 items", "no compiler", "0 compute units",
                           "buffers of at most 0 bytes", "not available"})
    EXPECT_TRUE(heard.has(part)) << part;
  script.devices.resize(6);
  driver.set_script(script);
  const auto backend = opencl::make_backend(fake_options(driver), heard.log());
  EXPECT_EQ(status_of([&] { backend->prepare(core::Matrix(1, 1)); }).first, TANDEM_ERROR_UNAVAILABLE);
}

TEST(OpenclDevices, AreChosenByNameOrKind) {
  FakeDriverScript script;
  script.devices.resize(3);
  script.devices[0].type = CL_DEVICE_TYPE_CPU;
  script.devices[1].name = "Fake 2";
  FakeDriver driver(script);
  const auto chosen = [&](const char *name) {
    opencl::Options options = fake_options(driver);
    options.device = name;
    const auto backend = opencl::make_backend(options, base::Log());
    EXPECT_EQ(backend->traits().name, name) << "nothing is asked before the first call";
    backend->prepare(core::Matrix(1, 1));
    return backend->traits().name;
  };
  EXPECT_EQ(chosen("opencl"), "opencl:0:1") << "the first that is no CPU";
  EXPECT_EQ(chosen("opencl:0:0"), "opencl:0:0");
  EXPECT_EQ(chosen("opencl:0:2"), "opencl:0:2");
  const auto [status, message] = status_of([&] { chosen("opencl:1:0"); });
  EXPECT_EQ(status, TANDEM_ERROR_UNAVAILABLE);
  EXPECT_NE(message.find("known: opencl:0:0, opencl:0:1, opencl:0:2"), std::string::npos) << message;
  for (const char *name :
       {"opencl:", "opencl:0", "opencl:0:", "opencl:0:1x", "opencl:-1:0", "opencl:99999999999:0", "cpu"})
    EXPECT_FALSE(opencl::is_device_name(name)) << name;
}

TEST(OpenclDevices, TheirMakersHaveBuiltInValues) {
  const struct {
    const char *vendor;
    cl_device_type type;
    unsigned element_bytes, rows_per_pass;
  } cases[] = {{"NVIDIA Corporation", CL_DEVICE_TYPE_GPU, 8, 3},
               {"Advanced Micro Devices, Inc.", CL_DEVICE_TYPE_GPU, 8, 3},
               {"Intel(R) Corporation", CL_DEVICE_TYPE_GPU, 4, 3},
               {"ARM", CL_DEVICE_TYPE_GPU, 8, 4},
               {"Intel(R) Corporation", CL_DEVICE_TYPE_CPU, 64, 4}};
  for (const auto &each : cases) {
    SCOPED_TRACE(each.vendor);
    FakeDriverScript script;
    script.devices[0].vendor = each.vendor;
    script.devices[0].type = each.type;
    FakeDriver driver(script);
    const std::vector<opencl::OpenclDevice> found = opencl::find_devices(*driver.table(), base::Log());
    ASSERT_EQ(found.size(), 1u);
    const device::KernelTuning tuning = found[0].settings(3, 10).kernel;
    EXPECT_EQ(tuning.element_bytes, each.element_bytes);
    EXPECT_EQ(tuning.rows_per_pass, each.rows_per_pass);
  }
}

TEST(OpenclDevices, SayWhetherTheyShareTheHostsMemory) {
  for (const bool shares : {false, true}) {
    FakeDriver driver(with_device([&](FakeDevice &device) { device.shares_memory = shares; }));
    const auto backend = opencl::make_backend(fake_options(driver), base::Log());
    EXPECT_FALSE(backend->traits().shares_memory) << "not looked for yet";
    backend->prepare(core::Matrix(1, 1));
    EXPECT_EQ(backend->traits().shares_memory, shares);
  }
}

TEST(OpenclDevices, AHangingDriverIsNotWaitedForLong) {
  FakeDriverScript script;
  script.devices.clear();
  script.listing_seconds = 1;
  FakeDriver driver(script);
  EXPECT_TRUE(opencl::describe_devices(std::chrono::milliseconds(10), driver.table()).devices.empty());
  EXPECT_EQ(driver.calls_of("clGetDeviceIDs"), 0u) << "it waited for the driver";
  while (driver.calls_of("clGetDeviceIDs") == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

TEST(OpenclPrograms, ABuildFailureCarriesTheLog) {
  Life life(1, 2, 100, {.script = {.refuses_text = true}});
  const auto [status, message] = life.status();
  EXPECT_EQ(status, TANDEM_ERROR_DEVICE);
  EXPECT_NE(message.find("fake: no"), std::string::npos) << message;
  life.driver.set_script({});
  life.run();
}

// Where shards can be used in place: tables for each shape would be a compile for each, so they are staged, by one text
// for all, until the bytes pay.
TEST(OpenclPrograms, NewShapesAreNoCompilesWhereMemoryIsShared) {
  const Values tuning({{"compile_after_bytes", 30'000}});
  const FakeDriverScript script = with_device([](FakeDevice &device) { device.shares_memory = true; });
  Life life(2, 4, 10'000, {.script = script, .transfer = Transfer::automatic, .tuning = &tuning});
  for (unsigned columns = 2; columns < 8; ++columns) {
    Work work(2, columns, 1000);
    work.run(*life.backend, *life.backend->prepare(work.matrix), Mode::assign);
    EXPECT_TRUE(work.is_right(Mode::assign));
  }
  EXPECT_EQ(life.builds(), 1u);
  life.driver.set_script(script);
  wait_until([&] { return life.run(), life.heard.has("technique compiled"); }, "compiled");
  const std::uint64_t mapped = life.calls("clEnqueueMapBuffer");
  life.run();
  EXPECT_EQ(life.calls("clEnqueueMapBuffer"), mapped + 2) << "in place: only the outputs are mapped";
  EXPECT_LE(life.builds(), 2u) << "compiled, for shards in place and for staged ones";
}

// Without local memory for the tables a matrix is compiled, unless it is too large for that too.
TEST(OpenclPrograms, LittleLocalMemoryLeavesCompiled) {
  const With little{.script = with_device([](FakeDevice &device) { device.local_bytes = 1024; })};  // for 8 columns
  {
    Life life(2, 9, 500, little);
    life.run();
    EXPECT_TRUE(life.heard.has("tables of 9 columns do not fit 1024 bytes of local memory")) << life.heard.text;
  }
  Life life(65, 64, 100, little);
  const auto [status, message] = life.status();
  EXPECT_EQ(status, TANDEM_ERROR_UNAVAILABLE);
  EXPECT_NE(message.find("tables of 64 columns need 8192; and 4160 coefficients"), std::string::npos) << message;
  EXPECT_EQ(life.builds(), 0u);
}

// A parent that has not touched a driver (a server that forks before it works) has children that may.
TEST(OpenclFork, DISABLED_AChildOfAParentWithoutADriver) {
  FakeDriver driver;
  base::fork_generation();
  const auto backend = opencl::make_backend(fake_options(driver), base::Log());
  Work work(1, 2, 100);
  const auto run = [&] {
    const auto prepared = backend->prepare(work.matrix);
    work.run(*backend, *prepared, Mode::assign);
  };
  const pid_t child = fork();
  if (child == 0) {
    const bool works = status_of(run).first == TANDEM_OK && work.is_right(Mode::assign);
    const bool listed = !opencl::describe_devices(std::chrono::seconds(20), driver.table()).devices.empty();
    const pid_t grandchild = fork();
    if (grandchild == 0) _exit(status_of(run).first == TANDEM_ERROR_DEVICE ? 0 : 1);
    int status = 1;
    waitpid(grandchild, &status, 0);
    _exit(works && listed && status == 0 ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  run();
  EXPECT_TRUE(work.is_right(Mode::assign));
}

// The lock of a program may be held by a thread that a child does not have.
TEST(OpenclFork, AKernelIsLeftAloneInAChild) {
  TANDEM_SKIP_FORK_BESIDE_THREADS();
  base::fork_generation();
  opencl::kModule.claim();
  FakeDriver driver;
  const auto session = session_on(driver);
  const auto program = std::static_pointer_cast<const opencl::OpenclProgram>(
      session->programs().get({1, 2}, {}, core::Matrix(1, 1), fake_generate, device::DevicePrograms::Wait::now));
  std::atomic<bool> is_over{false};
  std::thread busy([&] {
    while (!is_over) program->take_kernel();
  });
  int status = 0;
  for (unsigned round = 0; round < 200 && status == 0; ++round) {
    auto kernel = std::make_unique<const opencl::OpenclKernel>(program->take_kernel());
    const pid_t child = fork();
    if (child == 0) {
      alarm(10);
      kernel.reset();
      _exit(0);
    }
    EXPECT_EQ(waitpid(child, &status, 0), child);
  }
  is_over = true;
  busy.join();
  EXPECT_EQ(status, 0) << "a child waits for a lock that is held for ever";
}

// In a process of its own: here other tests have used drivers.
TEST(OpenclFork, AChildOfAParentWithoutADriverMayUseOne) {
  const pid_t fresh = fork();
  if (fresh == 0) {
    execl("/proc/self/exe", "opencl_fake_test", "--gtest_also_run_disabled_tests",
          "--gtest_filter=OpenclFork.DISABLED_AChildOfAParentWithoutADriver", nullptr);
    _exit(127);
  }
  int status = 1;
  ASSERT_EQ(waitpid(fresh, &status, 0), fresh);
  EXPECT_EQ(status, 0);
}

// ---- shards in device memory ---------------------------------------------------------------------------------

// One task in each mode, and a batch; with few arguments for a kernel it copies in pieces.
TEST(OpenclDeviceMemory, EveryLayoutModeAndAlignment) {
  for (const std::size_t parameter_bytes : {std::size_t{1024}, std::size_t{100}}) {
    for (const Layout layout : kLayouts) {
      for (const std::uint64_t skew : {0, 64, 5}) {
        for (const bool in_order : {true, false}) {
          SCOPED_TRACE(testing::Message() << parameter_bytes << ", layout " << static_cast<int>(layout) << ", skew "
                                          << skew << (in_order ? "" : ", out of order"));
          Life life(3, 5, 20'011,
                    {.script = with_device([&](FakeDevice &device) { device.parameter_bytes = parameter_bytes; }),
                     .budget_bytes = 64 << 10});
          OnDevice stripe(life.driver, life.work, layout, skew, in_order);
          for (const Mode mode : kModes) {
            life.work.reset();
            stripe.write();
            const core::Task task = stripe.task(*life.prepared, mode);
            const auto ticket = life.backend->submit({&task, 1}, life.control);
            ticket->wait();
            ticket->wait();
            life.expect(stripe, mode);
          }
          std::uint8_t column[5], stored[3];
          life.backend->read_column(stripe.task(*life.prepared, Mode::compare), 777, column, stored);
          EXPECT_EQ(column[4], life.work.inputs[4][777]);
          EXPECT_EQ(stored[2], life.work.before[2][777]);
          life.work.reset();
          stripe.write();
          life.driver.set_script({});
          life.backend->submit(uneven_slices(stripe.task(*life.prepared, Mode::assign), skew == 0), life.control)
              ->wait();
          if (layout != Layout::own_buffers) {
            EXPECT_EQ(life.calls("clEnqueueNDRangeKernel"), skew == 64 ? 2u : 1u);
          }
          life.expect(stripe);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(OpenclDeviceMemory, WhatDoesNotFitIsRefusedBeforeAnyCommand) {
  FakeDriverScript script;
  script.devices.resize(2);
  FakeDriver driver(script);
  const auto backend = opencl::make_backend(fake_options(driver), base::Log());
  Work work(2, 3, 1000);
  work.reset();
  const auto prepared = backend->prepare(work.matrix);
  OnDevice stripe(driver, work, Layout::one_buffer, 0);
  const core::Task good = stripe.task(*prepared, Mode::assign);
  const auto refused = [&](core::Task task) {
    const std::uint64_t commands = driver.command_count();
    core::Control control;
    const auto result = status_of([&] { backend->run({&task, 1}, control); });
    EXPECT_EQ(driver.command_count(), commands) << result.second;
    return result.first;
  };
  core::Task task = good;
  task.queue = nullptr;
  EXPECT_EQ(refused(task), TANDEM_ERROR_INVALID_ARGUMENT);
  task = good;
  task.length_bytes = 1'000'000;
  EXPECT_EQ(refused(task), TANDEM_ERROR_INVALID_ARGUMENT);
  OnDevice elsewhere(driver, work, Layout::one_buffer, 0);  // another context
  task = good;
  task.inputs = reinterpret_cast<const std::byte *const *>(elsewhere.in.data());
  EXPECT_EQ(refused(task), TANDEM_ERROR_INVALID_ARGUMENT);
  opencl::Options other = fake_options(driver);
  other.device = "opencl:0:1";
  const auto on_other = opencl::make_backend(other, base::Log());
  core::Control control;
  EXPECT_EQ(status_of([&] { on_other->run({&good, 1}, control); }).first, TANDEM_ERROR_INVALID_ARGUMENT);
}

// A driver with buffers at any address gets kernels that do not rely on alignment.
TEST(OpenclDeviceMemory, BuffersMayBeginAnywhere) {
  for (const std::size_t parameter_bytes : {std::size_t{1024}, std::size_t{100}}) {
    Life life(3, 5, 5000, {.script = with_device([&](FakeDevice &device) {
                             device.parameter_bytes = parameter_bytes;
                             device.base_alignment_bytes = 16;
                           })});
    OnDevice stripe(life.driver, life.work, Layout::own_buffers, 0);
    const core::Task task = stripe.task(*life.prepared, Mode::assign);
    life.backend->run({&task, 1}, life.control);
    life.expect(stripe);
    life.run();
  }
}

// The commands of a run are in the queue, and can be neither waited for nor finished.
TEST(OpenclDeviceMemory, WhatCannotBeFinishedIsQuarantined) {
  unsigned flushes = 0;
  std::uint64_t count = 1;
  for (std::uint64_t n = UINT64_MAX; n == UINT64_MAX || n < count; ++n) {
    Life life(2, 4, 3000);
    {
      OnDevice stripe(life.driver, life.work, Layout::one_buffer, 0);
      const core::Task task = stripe.task(*life.prepared, Mode::compare);
      FakeDriverScript script;
      script.failing_call = n;
      script.finish_fails = true;
      life.driver.set_script(script);
      const tandem_status status = status_of([&] { life.backend->submit({&task, 1}, life.control)->wait(); }).first;
      if (n == UINT64_MAX) count = life.driver.call_count();
      life.leaves = life.driver.failed_call() != "";
      if (life.driver.failed_call() != "clFlush") continue;
      EXPECT_EQ(status, TANDEM_ERROR_DEVICE);
    }
    life.prepared.reset();
    life.backend.reset();
    ++flushes;
    EXPECT_EQ(life.driver.live()["buffer"], 2) << "offsets and records";
  }
  EXPECT_EQ(flushes, 1u);
}

}  // namespace
}  // namespace tandem::test
