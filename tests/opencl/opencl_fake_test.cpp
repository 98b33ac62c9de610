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
#include <map>
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
#include "tests/support/slice.hpp"

namespace tandem::test {
namespace {

using core::Mode;

// The ways to this driver: device shards in one buffer or in two, in a buffer for each argument of a kernel, or in too
// many for that, which are copied together.
struct OpenclWay {
  const char *name = "staged";
  Layout layout = Layout::two_buffers;
  bool in_order = true;
  std::size_t parameter_bytes = 1024;
};
constexpr std::size_t kFewArguments = 100;  // bytes
constexpr OpenclWay kWays[] = {{"staged"},
                               {"copied", Layout::own_buffers, true, kFewArguments},
                               {"out_of_order", Layout::one_buffer, false},
                               {"by_arguments", Layout::own_buffers},
                               {"copied_out_of_order", Layout::own_buffers, false, kFewArguments}};

// For the suite that all drivers share.
class OpenclDriver final : public AnyDriver {
 public:
  explicit OpenclDriver(const FakeDriverScript &script, const OpenclWay &how = {}) : fake(script), way(how) {}

  const char *label() const override { return "OpenCL"; }
  const char *resource() const override { return opencl::kMemoryResource; }
  void set_script(const DriverScript &script) override { fake.set_script(of(script, way)); }
  device::Options options() const override {
    device::Options options;
    options.device = "opencl";
    options.generate = fake_generate;
    return options;
  }
  std::string device_name(unsigned index) const override { return "opencl:0:" + std::to_string(index); }
  std::unique_ptr<core::Backend> make(const device::Options &options, const base::Log &log) override {
    opencl::Options all;
    static_cast<device::Options &>(all) = options;
    all.driver = fake.table();
    return opencl::make_backend(all, log);
  }
  std::size_t listed_devices() const override {
    return opencl::describe_devices(std::chrono::seconds(20), fake.table()).devices.size();
  }

  core::MemoryKind memory() const override { return core::MemoryKind::opencl; }
  Layout layout() const override { return way.layout; }
  bool groups_stripes() const override { return way.layout != Layout::own_buffers; }
  bool copies_device_shards() const override { return way.parameter_bytes == kFewArguments; }
  void *make_queue() override {  // in a context of its own
    const tandem_opencl_module &cl = *fake.table();
    cl_platform_id platform = nullptr;
    cl_device_id devices[4] = {};
    cl_uint count = 0;
    cl_int error = CL_SUCCESS;
    cl.clGetPlatformIDs(1, &platform, &count);
    cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 4, devices, &count);
    const cl_context context = cl.clCreateContext(nullptr, 1, devices, nullptr, nullptr, &error);
    const cl_command_queue_properties order = way.in_order ? 0 : CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
    const cl_command_queue queue = cl.clCreateCommandQueue(context, devices[0], order, &error);
    contexts_[queue] = context;
    return queue;
  }
  void release_queue(void *queue) override {
    fake.table()->clReleaseCommandQueue(static_cast<cl_command_queue>(queue));
    fake.table()->clReleaseContext(contexts_.at(queue));
  }
  void finish(void *queue) override { fake.finish(static_cast<cl_command_queue>(queue)); }
  void *allocate(void *queue, std::uint64_t bytes) override {
    cl_int error = CL_SUCCESS;
    return fake.table()->clCreateBuffer(contexts_.at(queue), CL_MEM_READ_WRITE, bytes, nullptr, &error);
  }
  void release(void *memory) override { fake.table()->clReleaseMemObject(static_cast<cl_mem>(memory)); }
  std::uint8_t *address(void *memory) override { return fake.address(static_cast<cl_mem>(memory)); }

  const DriverCounts &counts() const override { return fake; }
  std::uint64_t calls_of(Call call) const override {
    return fake.calls_of(call == Call::compile  ? "clCreateProgramWithSource"
                         : call == Call::launch ? "clEnqueueNDRangeKernel"
                                                : "clGetEventInfo");
  }
  std::vector<std::string> problems() const override { return fake.problems(); }

  static FakeDriverScript of(const DriverScript &from, const OpenclWay &way) {
    FakeDriverScript script = {.common = from};
    script.devices.resize(from.device_count);
    script.devices[0].parameter_bytes = way.parameter_bytes;
    if (from.most_group_items != 0)
      script.devices[0].kernel_group_items = static_cast<std::size_t>(from.most_group_items);
    if (from.is_another_model) script.devices[0].name = "Another";
    return script;
  }

  FakeDriver fake;
  OpenclWay way;

 private:
  std::map<void *, cl_context> contexts_;  // of queues
};

std::vector<DriverMaker> drivers(std::size_t count) {
  std::vector<DriverMaker> list;
  for (const OpenclWay &way : std::span(kWays).first(count))
    list.push_back({way.name, [way](const DriverScript &script) {
                      return std::make_unique<OpenclDriver>(OpenclDriver::of(script, way), way);
                    }});
  return list;
}
INSTANTIATE_TEST_SUITE_P(OpenclFake, BackendConformance, testing::ValuesIn(conformance_makers(drivers(1))), maker_name);
INSTANTIATE_TEST_SUITE_P(Opencl, DeviceFaults, testing::ValuesIn(drivers(3)), driver_name);
INSTANTIATE_TEST_SUITE_P(Opencl, DeviceChecks, testing::ValuesIn(drivers(std::size(kWays))), driver_name);
INSTANTIATE_TEST_SUITE_P(Opencl, DeviceShards, testing::ValuesIn(drivers(std::size(kWays))), driver_name);
INSTANTIATE_TEST_SUITE_P(Opencl, DeviceLayer, testing::ValuesIn(drivers(1)), driver_name);

FakeDriverScript with_device(const std::function<void(FakeDevice &)> &change) {
  FakeDriverScript script;
  change(script.devices[0]);
  return script;
}

using OpenclWith = With<FakeDriverScript>;

struct OpenclLife : Life {
  OpenclLife(unsigned rows, unsigned columns, std::size_t shard_bytes, const OpenclWith &with = {},
             const OpenclWay &way = {})
      : Life(std::make_unique<OpenclDriver>(with.script, way), core::Operator(Work::random_matrix(rows, columns)),
             shard_bytes, with) {}
  FakeDriver &fake = static_cast<OpenclDriver &>(*driver).fake;
};

// Staged: a range is committed when its piece is complete. With one piece a failed run has changed nothing, and the XOR
// that is done again is done once.
TEST(OpenclFaults, AFailedPieceLeavesTheOutputsAlone) {
  unsigned failures = 0;
  for (std::uint64_t n = 0; n < 8; ++n) {
    OpenclLife life(2, 3, 1000, {.script = {.common = {.failing_command = n}}});
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
  OpenclLife life(2, 3, 1000, {.script = {.common = {.failing_command = 3}}});
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
  for (const Mode mode : {Mode::assign, Mode::compare}) {
    OpenclLife life(2, 3, 5000);
    life.leaves = true;
    life.run(mode);
    const auto next_run_has_a_context = [&] {
      life.fake.set_script({});
      life.run(mode);
      EXPECT_EQ(life.calls("clCreateContext"), 1u);
    };
    life.fake.set_script({.common = {.failing_command = 0}, .finish_fails = true});
    EXPECT_EQ(life.status(mode).first, TANDEM_ERROR_DEVICE);
    next_run_has_a_context();
    // A cancel is no error of the driver, but ends in the same way.
    core::Control control;
    life.fake.set_script({.common = {.cancelling_command = 0, .control = &control}, .finish_fails = true});
    const auto other = life.backend->prepare(life.work.matrix);  // so that they do not go together
    core::Task tasks[] = {life.host_task(mode), life.host_task(mode)};
    tasks[1].prepared = other.get();
    EXPECT_EQ(status_of([&] { life.backend->run(tasks, control); }).first, TANDEM_ERROR_CANCELLED);
    next_run_has_a_context();
    life.prepared.reset();
    life.backend.reset();
    EXPECT_EQ(life.fake.live()["queue"], 6);
    EXPECT_GE(life.fake.live()["buffer"], 1);
  }
}

// Jobs on device memory that need scratch draw from the same budget.
TEST(OpenclMemory, TheBudgetHoldsOverJobs) {
  constexpr std::uint64_t kBudget = 1 << 20;
  OpenclLife life(3, 20, 60'000,
                  {.script = with_device([](FakeDevice &device) { device.parameter_bytes = kFewArguments; }),
                   .budget_bytes = kBudget},
                  kWays[1]);
  life.run();
  const std::uint64_t before = life.fake.device_bytes();
  DeviceStripe one(*life.driver, life.work), two(*life.driver, life.work);
  const std::uint64_t of_caller = life.fake.device_bytes() - before;
  {
    const auto ticket = life.submit(one), other = life.submit(two);
    ticket->wait();
    other->wait();
    life.run();
  }
  EXPECT_LE(life.fake.most_device_bytes(), kBudget + of_caller);
  for (DeviceStripe *stripe : {&one, &two}) {
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
  OpenclLife life(4, 10, 300'001, {.script = with_device([](FakeDevice &device) { device.memory_bytes = 1 << 20; })});
  for (const Mode mode : kModes) life.run(mode);
  EXPECT_GT(life.calls("clEnqueueNDRangeKernel"), 100u);
  EXPECT_LE(life.fake.most_device_bytes(), std::uint64_t{1} << 20);
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
  OpenclDriver driver(script);
  Heard heard;
  const auto devices = opencl::find_devices(*driver.fake.table(), heard.log());
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].name, "opencl:0:6") << "numbers are the driver's";
  for (const char *part : {"0 bytes of memory", "work-groups of at most 0 items", "no compiler", "0 compute units",
                           "buffers of at most 0 bytes", "not available"})
    EXPECT_TRUE(heard.has(part)) << part;
  script.devices.resize(6);
  driver.fake.set_script(script);
  const auto backend = driver.make(driver.options(), heard.log());
  EXPECT_EQ(status_of([&] { backend->prepare(core::Matrix(1, 1)); }).first, TANDEM_ERROR_UNAVAILABLE);
}

TEST(OpenclDevices, TheFirstThatIsNoCpuIsChosen) {
  FakeDriverScript script;
  script.devices.resize(2);
  script.devices[0].type = CL_DEVICE_TYPE_CPU;
  OpenclDriver driver(script);
  const auto backend = driver.make(driver.options(), {});
  backend->prepare(core::Matrix(1, 1));
  EXPECT_EQ(backend->traits().name, "opencl:0:1");
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

TEST(OpenclDevices, AHangingDriverIsNotWaitedForLong) {
  constexpr std::chrono::milliseconds kPatience(300);
  FakeDriverScript script;
  script.listing_seconds = 3;
  FakeDriver driver(script);
  EXPECT_EQ(opencl::describe_devices(kPatience, driver.table()).missing, "the driver has not answered in 0.3 s");
  // A program that asks twice, for the list and for the reason, does not wait twice.
  EXPECT_EQ(opencl::describe_devices(kPatience, driver.table()).missing, "the driver has not answered in 0.4 s");
  EXPECT_EQ(driver.calls_of("clGetDeviceIDs"), 0u) << "it waited for the driver";
  // One that is only slow is heard.
  while (driver.calls_of("clGetDeviceIDs") < 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  script.listing_seconds = 0.5;
  driver.set_script(script);
  EXPECT_FALSE(opencl::describe_devices(std::chrono::seconds(60), driver.table()).devices.empty());
}

TEST(OpenclPrograms, ABuildFailureCarriesTheLog) {
  OpenclLife life(1, 2, 100, {.script = {.common = {.refuses_text = true}}});
  const auto [status, message] = life.status();
  EXPECT_EQ(status, TANDEM_ERROR_DEVICE);
  EXPECT_NE(message.find("fake: no"), std::string::npos) << message;
  life.fake.set_script({});
  life.run();
}

// A PVC, which has no sub-groups of 8, gets 16 work-items a thread. A kernel that spills is built again with more
// registers.
TEST(OpenclPrograms, IntelsKernelsDoNotSpill) {
  const auto options = [](std::vector<std::size_t> sub_groups, std::uint64_t spilled_bytes) {
    OpenclLife life(1, 2, 100, {.script = with_device([&](FakeDevice &device) {
                                  device.vendor = "Intel(R) Corporation";
                                  device.sub_groups = std::move(sub_groups);
                                  device.spilled_bytes = spilled_bytes;
                                })});
    life.run();
    return life.fake.build_options();
  };
  EXPECT_EQ(options({16, 32}, 0), "-cl-std=CL1.2 -DSUB_GROUP=16;");
  EXPECT_EQ(options({8, 16, 32}, 0), "-cl-std=CL1.2;");
  EXPECT_EQ(options({8, 16, 32}, 64), "-cl-std=CL1.2;-cl-std=CL1.2 -cl-intel-256-GRF-per-thread;");
  EXPECT_EQ(options({}, 64), "-cl-std=CL1.2;") << "an older driver";
}

// Without local memory for the tables a matrix is compiled, unless it is too large for that too.
TEST(OpenclPrograms, LittleLocalMemoryLeavesCompiled) {
  const OpenclWith little{.script =
                              with_device([](FakeDevice &device) { device.local_bytes = 1024; })};  // for 8 columns
  {
    OpenclLife life(2, 9, 500, little);
    life.run();
    EXPECT_TRUE(life.heard.has("tables of 9 columns do not fit 1024 bytes of local memory")) << life.heard.text;
  }
  OpenclLife life(65, 64, 100, little);
  const auto [status, message] = life.status();
  EXPECT_EQ(status, TANDEM_ERROR_UNAVAILABLE);
  EXPECT_NE(message.find("tables of 64 columns need 8192; and 4160 coefficients"), std::string::npos) << message;
  EXPECT_EQ(life.compiles(), 0u);
}

// A parent that has not touched a driver (a server that forks before it works) has children that may.
TEST(OpenclFork, DISABLED_AChildOfAParentWithoutADriver) {
  OpenclDriver driver(FakeDriverScript{});
  base::fork_generation();
  const auto backend = driver.make(driver.options(), {});
  Work work(1, 2, 100);
  const auto run = [&] {
    const auto prepared = backend->prepare(work.matrix);
    work.run(*backend, *prepared, Mode::assign);
  };
  const pid_t child = fork();
  if (child == 0) {
    const bool works = status_of(run).first == TANDEM_OK && work.is_right(Mode::assign);
    const bool listed = driver.listed_devices() != 0;
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

TEST(OpenclDeviceMemory, WrongBuffersAndQueuesAreRefused) {
  OpenclLife life(2, 3, 1000, {.script = {.devices = {FakeDevice(), FakeDevice()}}});
  DeviceStripe stripe(*life.driver, life.work), elsewhere(*life.driver, life.work);  // in two contexts
  device::Options options = life.options;
  options.device = "opencl:0:1";
  const auto other = life.driver->make(options, {});
  const auto refused = [&](core::Backend &backend, const std::function<void(core::Task &)> &change) {
    core::Task task = stripe.task(*life.prepared, Mode::assign);
    change(task);
    const std::uint64_t commands = life.fake.command_count();
    refusal(TANDEM_ERROR_INVALID_ARGUMENT, [&] { backend.run({&task, 1}, life.control); });
    EXPECT_EQ(life.fake.command_count(), commands);
  };
  refused(*life.backend, [](core::Task &task) { task.queue = nullptr; });
  refused(*life.backend, [](core::Task &task) { task.length_bytes = 1'000'000; });
  refused(*life.backend, [&](core::Task &task) { task.inputs = elsewhere.in.data(); });
  refused(*other, [](core::Task &) {});
}

// A driver with buffers at any address gets kernels that do not rely on alignment.
TEST(OpenclDeviceMemory, BuffersMayBeginAnywhere) {
  for (const OpenclWay &way : {kWays[1], kWays[3]}) {
    OpenclLife life(3, 5, 5000, {.script = with_device([&](FakeDevice &device) {
                                   device.parameter_bytes = way.parameter_bytes;
                                   device.base_alignment_bytes = 16;
                                 })},
                    way);
    for (const bool on_device : {true, false}) life.run(Mode::assign, {.on_device = on_device});
  }
}

// The commands of a run are in the queue, and can be neither waited for nor finished.
TEST(OpenclDeviceMemory, WhatCannotBeFinishedIsQuarantined) {
  unsigned flushes = 0;
  std::uint64_t count = 1;
  for (std::uint64_t n = UINT64_MAX; n == UINT64_MAX || n < count; ++n) {
    OpenclLife life(2, 4, 3000, {}, {.layout = Layout::one_buffer});
    {
      DeviceStripe stripe(*life.driver, life.work);
      life.fake.set_script({.common = {.failing_call = n}, .finish_fails = true});
      const tandem_status status = status_of([&] { life.submit(stripe, Mode::compare)->wait(); }).first;
      if (n == UINT64_MAX) count = life.fake.call_count();
      life.leaves = life.fake.failed_call() != "";
      if (life.fake.failed_call() != "clFlush") continue;
      EXPECT_EQ(status, TANDEM_ERROR_DEVICE);
    }
    life.prepared.reset();
    life.backend.reset();
    ++flushes;
    EXPECT_EQ(life.fake.live()["buffer"], 2) << "offsets and records";
  }
  EXPECT_EQ(flushes, 1u);
}

}  // namespace
}  // namespace tandem::test
