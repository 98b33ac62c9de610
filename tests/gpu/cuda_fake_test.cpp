// SPDX-License-Identifier: Apache-2.0
// The CUDA backend on a fake driver that fails, returns wrong answers, and runs a command only when the program waits.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sstream>
#include <thread>

#include "api/objects.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "core/budget.hpp"
#include "core/host_copies.hpp"
#include "core/mismatch_ranges.hpp"
#include "device/module.hpp"
#include "device/session.hpp"
#include "gpu/devices.hpp"
#include "tandem/device.h"
#include "tests/conformance/cuda_shards.hpp"
#include "tests/conformance/forms.hpp"
#include "tests/conformance/suite.hpp"
#include "tests/conformance/work.hpp"
#include "tests/gpu/cuda_driver.hpp"
#include "tests/support/api.hpp"
#include "tests/support/mismatch_ranges.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/slice.hpp"

namespace tandem::test {
namespace {

using core::Mode;

// Compiles of matrices of seven rows wait at a gate until it is open.
class Gate {
 public:
  device::GenerateKernel generate() {
    return [this](const core::Matrix &matrix, const device::KernelSpec &spec) {
      if (matrix.rows() == 7 && spec.technique == device::Technique::compiled) {
        std::unique_lock lock(mutex_);
        ++come_;
        changed_.notify_all();
        changed_.wait(lock, [&] { return is_open_; });
      }
      return fake_cuda_generate(matrix, spec);
    };
  }
  void await(unsigned come) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return come_ >= come; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  unsigned come_ = 0;
  bool is_open_ = false;
};

std::vector<CudaMaker> cuda_makers() {
  return {
      {"fake", [] { return std::make_unique<FakeProgram>(FakeCudaScript(), kThinning == 1 ? 200'003 : 50'003); }, ""}};
}
INSTANTIATE_TEST_SUITE_P(CudaFake, CudaShards, testing::ValuesIn(cuda_makers()), cuda_maker_name);
INSTANTIATE_TEST_SUITE_P(CudaFake, CudaShardsDeathTest, testing::ValuesIn(cuda_makers()), cuda_maker_name);

using Host = CudaDriver::Host;

CUstream stream_of(const DeviceStripe &stripe) { return static_cast<CUstream>(stripe.queue); }

std::vector<DriverMaker> all_drivers() {
  std::vector<DriverMaker> list;
  for (const auto &[name, host] : {std::pair("staged", Host::pageable), std::pair("pinned", Host::pinned),
                                   std::pair("registered", Host::registered)})
    list.push_back({name, [host = host](const DriverScript &script) {
                      return std::make_unique<CudaDriver>(CudaDriver::of(script), host);
                    }});
  return list;
}
INSTANTIATE_TEST_SUITE_P(CudaFake, BackendConformance, testing::ValuesIn(conformance_makers(all_drivers())),
                         maker_name);
INSTANTIATE_TEST_SUITE_P(Cuda, DeviceFaults, testing::ValuesIn(all_drivers()), driver_name);
INSTANTIATE_TEST_SUITE_P(Cuda, DeviceChecks, testing::ValuesIn(all_drivers()), driver_name);
INSTANTIATE_TEST_SUITE_P(Cuda, DeviceShards, testing::Values(all_drivers().front()), driver_name);
INSTANTIATE_TEST_SUITE_P(Cuda, DeviceLayer, testing::Values(all_drivers().front()), driver_name);

// The ways of a stripe through the backend.
struct Way {
  Host host = Host::pageable;
  bool on_device = false;
};
constexpr Way kStaged = {}, kPinned = {Host::pinned}, kOnDevice = {Host::pageable, true},
              kWays[] = {kStaged, kPinned, {Host::registered}, kOnDevice};

FakeCudaScript with_gpu(const std::function<void(FakeGpu &)> &change) {
  FakeCudaScript script;
  change(script.devices[0]);
  return script;
}

using CudaWith = With<FakeCudaScript>;

struct CudaLife : Life {
  explicit CudaLife(const core::Operator &what, std::size_t shard_bytes, const CudaWith &with = {})
      : Life(std::make_unique<CudaDriver>(with.script), what, shard_bytes, with) {}
  CudaLife(unsigned rows, unsigned columns, std::size_t shard_bytes, const CudaWith &with = {})
      : CudaLife(core::Operator(Work::random_matrix(rows, columns)), shard_bytes, with) {}

  void make_ready(Mode mode, bool waits = true, core::MemoryKind memory = core::MemoryKind::cuda) {
    backend->make_ready(*prepared, mode, memory, waits);
  }
  void run(const Way &way = kStaged, Mode mode = Mode::assign) {
    cuda.host = way.host;
    Life::run(mode, {way.on_device, false});
  }
  void run(DeviceStripe &stripe, Mode mode = Mode::assign) { Life::run(stripe, mode); }
  // The commands of a graph that captured a submit.
  std::size_t capture(DeviceStripe &stripe, Mode mode = Mode::assign) {
    fake.begin_capture(stream_of(stripe));
    submit(stripe, mode)->wait();
    return fake.end_capture(stream_of(stripe));
  }

  CudaDriver &cuda = static_cast<CudaDriver &>(*driver);
  FakeCuda &fake = cuda.fake;
};

TEST(CudaFaults, ADeadDeviceIsDeadForEveryContextAndSaid) {
  CudaLife life(2, 3, 1000);
  const auto other = life.driver->make();
  other->prepare(life.work.matrix);
  life.fake.set_script({.common = {.failing_command = 0}});
  EXPECT_EQ(life.status().first, TANDEM_ERROR_DEVICE);
  EXPECT_TRUE(life.work.is_untouched()) << "pageable outputs are written when their piece is complete";
  EXPECT_TRUE(life.heard.has("is given up for the rest of this process")) << life.heard.text;
  const std::string why = refusal(TANDEM_ERROR_DEVICE, [&] { other->prepare(life.work.matrix); });
  EXPECT_NE(why.find("was given up"), std::string::npos) << why;
  life.leaves = true;
}

// ---- shards in device memory ------------------------------------------------------------------------------

// What a plan is made ready for costs its submits a launch, an event and questions about pointers, and nothing else.
TEST(CudaDeviceMemory, APreparedSubmitOnlyStartsAKernel) {
  for (const char *technique : {"tables", "compiled"}) {
    for (const Mode mode : kModes) {
      CudaLife life(3, 5, 30'000, {.technique = technique});
      life.make_ready(mode);
      // Aligned, unaligned, and once more of each.
      DeviceStripe aligned(*life.driver, life.work), unaligned(*life.driver, life.work, 6);
      for (unsigned round = 0; round < 4; ++round) {
        DeviceStripe &stripe = round % 2 == 0 ? aligned : unaligned;
        life.fake.set_script({});
        life.reset(stripe);
        auto ticket = life.submit(stripe, mode);
        for (const char *function :
             {"nvrtcCompileProgram", "cuModuleLoadData", "cuModuleGetFunction", "cuMemHostAlloc", "cuMemcpyHtoDAsync"})
          EXPECT_EQ(life.calls(function), 0u) << function << ", round " << round;
        if (round > 0) {  // the first one makes an event, and room for records
          for (const char *function : {"cuMemAllocFromPoolAsync", "cuEventCreate", "cuStreamSynchronize",
                                       "cuEventSynchronize", "cuMemcpyHtoDAsync", "cuMemFreeAsync"})
            EXPECT_EQ(life.calls(function), 0u) << function << ", round " << round;
        }
        EXPECT_EQ(life.calls("cuLaunchKernel"), 1u);
        stripe.look();
        if (mode == Mode::assign) {
          EXPECT_FALSE(life.work.is_right(mode)) << "the submit waited for the kernel";
        }
        ticket->wait();
        life.expect(stripe, mode);
      }
    }
  }
}

// What is longer takes several launches, and by itself in a batch. Plain submits: DeviceShards.
TEST(CudaDeviceMemory, MoreThanALaunchTakesGoesInPiecesIntoAGraphAndABatch) {
  CudaLife life(3, 5, 30'000);
  life.options.most_launch_bytes = 4096;
  life.begin(life.work.matrix);
  life.make_ready(Mode::accumulate);
  DeviceStripe stripe(*life.driver, life.work);
  EXPECT_EQ(life.capture(stripe, Mode::accumulate), 8u);
  life.fake.launch_graph();
  life.expect(stripe, Mode::accumulate);
  life.reset(stripe);
  const std::vector<core::Task> tasks = uneven_slices(stripe.task(*life.prepared, Mode::assign), true);
  std::uint64_t launches = life.backend->kernel_calls() + 1;  // of all short ones
  for (const core::Task &each : tasks)
    if (each.length_bytes > 4096) launches += (each.length_bytes + 4095) / 4096;
  life.backend->submit(tasks, life.control)->wait();
  life.expect(stripe);
  EXPECT_EQ(life.backend->kernel_calls(), launches);
}

// A plan's two programs: neither is written before the other one is begun. The threads that compile are left alone by
// signals.
TEST(CudaDeviceMemory, BothProgramsAreMadeAtOnce) {
  std::atomic<unsigned> begun = 0, met = 0, helpers = 0, open_to_signals = 0;
  const auto generate = [&, caller = std::this_thread::get_id()](const core::Matrix &matrix,
                                                                 const device::KernelSpec &spec) {
    if (matrix.rows() == 7) {
      if (std::this_thread::get_id() != caller) {
        ++helpers;
        sigset_t blocked;
        pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
        for (const int each : {SIGTERM, SIGINT, SIGALRM, SIGUSR1}) open_to_signals += !sigismember(&blocked, each);
      }
      ++begun;
      for (unsigned i = 0; i < 2000 && begun < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      met += begun == 2;
    }
    return fake_cuda_generate(matrix, spec);
  };
  CudaLife life(7, 5, 1, {.generate = generate});
  life.make_ready(Mode::assign);
  EXPECT_EQ(met, 2u);
  EXPECT_EQ(helpers, 2u);
  EXPECT_EQ(open_to_signals, 0u);
}

// What goes wrong with either is heard when both are over; what went well with the other one stays.
TEST(CudaDeviceMemory, OneOfTwoProgramsThatFailsIsAnError) {
  for (const device::Access failing : {device::Access::aligned, device::Access::shifted}) {
    std::atomic<bool> fails = true;
    CudaLife life(7, 5, 1, {.generate = [&](const core::Matrix &matrix, const device::KernelSpec &spec) {
                    if (fails && matrix.rows() == 7 && spec.access == failing)
                      base::fail(TANDEM_ERROR_OUT_OF_MEMORY, "by script");
                    return fake_cuda_generate(matrix, spec);
                  }});
    EXPECT_EQ(status_of([&] { life.make_ready(Mode::assign); }).second, "by script");
    EXPECT_EQ(life.compiles(), 1u);
    fails = false;
    EXPECT_EQ(status_of([&] { life.make_ready(Mode::assign); }).first, TANDEM_OK);
    EXPECT_EQ(life.compiles(), 2u);
  }
}

// A plan runs at once, and is captured, with tables; the caller's thread neither compiles nor waits for a compile. The
// graph's tables are there as long as the plan, though the plan has taken another kernel, and the device has the tables
// of many other matrices by then.
TEST(CudaBackground, APlanRunsBeforeItsKernelIsCompiled) {
  Gate gate;
  CudaLife life(7, 4, 3000, {.generate = gate.generate()});
  life.make_ready(Mode::assign, false);
  gate.await(2);  // both programs of the plan at once, and the plan is there
  DeviceStripe stripe(*life.driver, life.work);
  life.run(stripe);
  EXPECT_EQ(life.capture(stripe), 1u);
  EXPECT_EQ(life.compiles(), 0u);
  EXPECT_TRUE(life.heard.has("technique tables: until the compile is done")) << life.heard.text;
  EXPECT_FALSE(life.heard.has("technique compiled")) << life.heard.text;
  gate.open();
  wait_until([&] { return life.run(stripe), life.heard.has("technique compiled"); },
             "the compiled kernel has taken over");
  life.make_ready(Mode::assign);  // the other program is there, too
  EXPECT_EQ(life.compiles(), 2u);
  for (unsigned shape = 0; shape < 40; ++shape) {
    Work other(1 + shape % 8, 1 + shape / 8, 300);
    EXPECT_TRUE(other.runs_right(*life.backend, *life.backend->prepare(other.matrix), Mode::assign));
  }
  life.fake.set_script({});  // the counters begin again
  for (const bool is_compiled : {false, true}) {
    if (is_compiled) {
      life.run(stripe);
      EXPECT_EQ(life.capture(stripe), 1u);
    }
    life.reset(stripe);
    life.fake.launch_graph();
    life.expect(stripe);
  }
  EXPECT_EQ(life.calls("cuModuleLoadData") + life.compiles(), 0u);
  EXPECT_FALSE(life.fake.has_called_nvrtc(std::this_thread::get_id()));
}

// A plan for host memory compiles when its bytes pay for it; one that waits has its kernel before it is run.
TEST(CudaBackground, WaitForKernelWaits) {
  for (const core::MemoryKind memory : {core::MemoryKind::host, core::MemoryKind::cuda}) {
    CudaLife life(3, 4, 3000);
    life.make_ready(Mode::assign, false, core::MemoryKind::host);
    EXPECT_EQ(life.compiles(), 0u) << "host memory: the bytes decide";
    life.make_ready(Mode::assign, true, memory);
    const std::uint64_t compiled = memory == core::MemoryKind::host ? 1 : 2;
    EXPECT_EQ(life.compiles(), compiled);
    life.run(memory == core::MemoryKind::host ? kStaged : kOnDevice);
    EXPECT_EQ(life.compiles(), compiled);
    EXPECT_FALSE(life.heard.has("technique tables")) << life.heard.text;
    EXPECT_FALSE(life.fake.has_called_nvrtc(std::this_thread::get_id()));
  }
}

// Tables go on, and the log has one line, however many plans follow.
TEST(CudaBackground, ACompileThatFailsAfterTheFirstRun) {
  Gate gate;
  CudaLife life(7, 4, 3000, {.script = {.common = {.refuses_text = true}}, .generate = gate.generate()});
  life.make_ready(Mode::assign, false);
  life.run(kOnDevice);
  gate.open();
  wait_until([&] { return life.heard.has(kStoppedCompiling); }, "told");
  const auto next = life.backend->prepare(Work(7, 5, 1).matrix);
  for (const bool waits : {false, true}) life.backend->make_ready(*next, Mode::assign, core::MemoryKind::cuda, waits);
  EXPECT_LE(life.compiles(), 2u) << "of the first plan";
  life.run(kOnDevice);
  const std::lock_guard lock(life.heard.mutex);
  EXPECT_EQ(life.heard.text.find(kStoppedCompiling), life.heard.text.rfind(kStoppedCompiling)) << life.heard.text;
}

// A context that ends finishes what is being compiled, and drops what no thread has begun.
TEST(CudaBackground, AContextEndsDuringCompiles) {
  Gate gate;
  CudaLife life(7, 1, 1, {.generate = gate.generate()});
  life.make_ready(Mode::assign, false);
  for (unsigned columns = 2; columns <= 4; ++columns)
    life.backend->make_ready(*life.backend->prepare(Work(7, columns, 1).matrix), Mode::assign, core::MemoryKind::cuda,
                             false);
  gate.await(4);
  gate.open();
  life.prepared.reset();
  life.backend.reset();
  EXPECT_EQ(life.calls("cuModuleUnload"), life.calls("cuModuleLoadData"));
  EXPECT_GE(life.compiles(), 4u);
}

int exit_status_of(pid_t child) {
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// The child, in which no thread compiles, ends the context without waiting; the parent's goes on.
TEST(CudaBackground, AForkDuringACompile) {
  TANDEM_SKIP_FORK_BESIDE_THREADS();
  Gate gate;
  CudaLife life(7, 4, 3000, {.generate = gate.generate()});
  life.make_ready(Mode::assign, false);
  gate.await(2);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    const auto run = [&] { life.work.run(*life.backend, *life.prepared, Mode::assign); };
    const bool good = status_of(run).first == TANDEM_ERROR_DEVICE;
    life.prepared.reset();
    life.backend.reset();
    _exit(good ? 0 : 1);
  }
  EXPECT_EQ(exit_status_of(child), 0);
  gate.open();
  life.make_ready(Mode::assign);
  EXPECT_EQ(life.compiles(), 2u);
}

// ---- technique transform --------------------------------------------------------------------------------------

// A code of 16 inputs and 16 outputs, at the points 0 to 31.
core::Operator wide_code() { return core::Operator(transform_of(points_from(0, 16), points_from(16, 16))); }

FakeCudaScript with_threads(int most) {
  return with_gpu([&](FakeGpu &gpu) { gpu.most_threads = most; });
}

// Tables first, and the transform when it is compiled. After a failure in the background the matrix is compiled, and
// other kernels are too.
TEST(CudaTransform, IsCompiledInTheBackground) {
  const Values soon({{"compile_after_bytes", 1'000'000}});
  for (const bool fails : {false, true}) {
    const auto generate = [&](const core::Matrix &matrix, const device::KernelSpec &spec) {
      if (fails && matrix.columns() == 16 && spec.technique == device::Technique::transform)
        throw std::runtime_error("too large a kernel");
      return fake_cuda_generate(matrix, spec);
    };
    CudaLife life(wide_code(), 20'000, {.tuning = &soon, .generate = generate});  // 320,000 bytes a run
    EXPECT_STREQ(life.prepared->techniques().front().name, "tables, then transform");
    const char *const then = fails ? "technique compiled:" : "technique transform:";
    wait_until([&] { return life.run(), life.heard.has(then); }, then);
    EXPECT_TRUE(life.heard.has("technique tables: 320000 bytes through this matrix do not pay")) << life.heard.text;
    EXPECT_EQ(life.heard.has("too large a kernel; technique compiled in place of transform from now on"), fails);
    EXPECT_FALSE(life.heard.has("no more kernels are compiled")) << life.heard.text;
  }
}

// Values that ask for it in vain are refused: nine groups of outputs, and a device with too small work-groups.
TEST(CudaTransform, CannotBeForcedWhereItDoesNotRun) {
  const core::Operator wider(transform_of(points_from(0, 16), points_from(16, 80)));
  for (const auto &[what, most_threads, runs] :
       {std::tuple(wider, 1024, false), std::tuple(wide_code(), 64, false), std::tuple(wide_code(), 1024, true)}) {
    CudaLife life(what, 3000, {.script = with_threads(most_threads)});
    core::Tunable &tunable = *life.backend->tunable();
    const bool is_offered =
        tunable.tuning_parameters(what.output_count(), what.input_count(), Mode::assign).front().name == "transform";
    EXPECT_EQ(is_offered, what.output_count() == 16);
    EXPECT_EQ(tunable.tuning_parameters(4, 10, Mode::assign).front().name, "local_x");
    const auto status_with = [&, &operation = what](const core::TuningValues &values) {
      life.work.reset();
      return status_of([&] { life.work.run(*life.backend, *tunable.prepare_tuned(operation, values), Mode::assign); })
          .first;
    };
    EXPECT_EQ(status_with({{"transform", 1}, {"compile_after_bytes", 0}}) == TANDEM_OK, runs);
    if (most_threads == 1024) {  // other values, as autotune tries them
      EXPECT_EQ(status_with({{"rows_per_pass", 4}}), TANDEM_OK);
      EXPECT_TRUE(life.work.is_right(Mode::assign));
    }
    life.run();
  }
}

// ---- captures -------------------------------------------------------------------------------------------------

// A check would wait for the stream, and a verify has a result. What graphs do: CudaShards.
TEST(CudaDeviceMemory, ACapturedSubmitIsItsKernelAlone) {
  unsigned checks = 0;
  CudaLife life(3, 5, 30'000, {.technique = "tables"});
  life.options.reference = cpu_reference([&] { ++checks; });
  life.begin(life.work.matrix);
  life.make_ready(Mode::accumulate);
  DeviceStripe stripe(*life.driver, life.work);
  life.fake.begin_capture(stream_of(stripe));
  {
    // The pointer array is the caller's again when the submit has returned.
    std::vector<const std::byte *> in = stripe.in;
    core::Task copied = stripe.task(*life.prepared, Mode::accumulate);
    copied.inputs = in.data();
    life.backend->submit({&copied, 1}, life.control)->wait();
    std::fill(in.begin(), in.end(), nullptr);
  }
  const std::string why = refusal(TANDEM_ERROR_UNSUPPORTED, [&] { life.submit(stripe, Mode::compare); });
  EXPECT_NE(why.find("a verify cannot be captured"), std::string::npos) << why;
  EXPECT_EQ(life.fake.end_capture(stream_of(stripe)), 1u);
  life.expect_untouched(stripe);
  life.fake.launch_graph();
  life.expect(stripe, Mode::accumulate);
  EXPECT_EQ(checks, 0u);
  life.run(stripe);
  EXPECT_EQ(checks, 1u);
}

// Other batches do not get it.
TEST(CudaBatch, AGraphKeepsItsTable) {
  CudaLife life(3, 5, 30'000);
  DeviceStripe stripe(*life.driver, life.work), another(*life.driver, life.work);
  life.fake.begin_capture(stream_of(stripe));
  const auto ticket =
      life.backend->submit(uneven_slices(stripe.task(*life.prepared, Mode::assign), true), life.control);
  ticket->wait();
  EXPECT_EQ(life.fake.end_capture(stream_of(stripe)), 1u);
  life.backend->submit(slices(another.task(*life.prepared, Mode::assign), 5), life.control)->wait();
  life.reset(stripe);
  life.fake.launch_graph();
  life.expect(stripe);
}

// A table that finds no room in the budget is a status with the numbers.
TEST(CudaBatch, ATableNeedsMemory) {
  CudaLife life(2, 3, 64 * 500, {.technique = "tables", .budget_bytes = 16 << 10});
  DeviceStripe stripe(*life.driver, life.work);
  const core::Task task = stripe.task(*life.prepared, Mode::assign);
  const std::string why =
      refusal(TANDEM_ERROR_OUT_OF_MEMORY, [&] { life.backend->submit(slices(task, 500), life.control); });
  EXPECT_NE(why.find("has no 32000 bytes left"), std::string::npos) << why;
  life.backend->submit(slices(task, 100), life.control)->wait();
  life.expect(stripe);
}

// Through the C API, from an array of the caller's own structs. A NULL queue is the legacy default stream. A job that
// is destroyed without a wait is waited for.
TEST(CudaBatch, ThroughTheApi) {
  constexpr unsigned kK = 5, kM = 3;
  const Bytes coefficients = cauchy_matrix(kK, kM);
  core::Matrix matrix(kM, kK);
  for (unsigned i = 0; i < kK * kM; ++i) matrix.at(i / kK, i % kK) = coefficients[i];
  CudaLife life(matrix, 1000);
  auto made = std::make_unique<tandem_context>();
  made->backend = std::move(life.backend);
  const Context context(made.release());
  const Codec codec = make_codec(kK, kM);
  DeviceStripe stripes[] = {{*life.driver, life.work}, {*life.driver, life.work, 6}};
  const std::uint8_t present[kK + kM] = {1, 1, 1, 1, 1};
  struct Mine {
    tandem_stripe given = {};
    std::vector<void *> shards{};
    std::vector<std::uint64_t> offsets{};
  } mine[2];
  for (unsigned i = 0; i < 2; ++i) {
    const DeviceStripe &stripe = stripes[i];
    for (const std::byte *each : stripe.in) mine[i].shards.push_back(const_cast<std::byte *>(each));
    mine[i].shards.insert(mine[i].shards.end(), stripe.out.begin(), stripe.out.end());
    mine[i].offsets = stripe.in_offsets;
    mine[i].offsets.insert(mine[i].offsets.end(), stripe.out_offsets.begin(), stripe.out_offsets.end());
    mine[i].given.shards = mine[i].shards.data();
    mine[i].given.offsets = mine[i].offsets.data();
    mine[i].given.present = present;
    mine[i].given.shard_bytes = life.work.bytes;
    mine[i].given.memory = TANDEM_MEMORY_CUDA;
    mine[i].given.status = TANDEM_ERROR_INTERNAL;
  }
  const auto run = [&](std::int32_t operation, void *queue) {
    for (DeviceStripe &each : stripes) life.reset(each);
    tandem_job *job = nullptr;
    ASSERT_EQ(tandem_code_batch(context.get(), codec.get(), operation, &mine[0].given, 2, sizeof(Mine), queue, &job),
              TANDEM_OK)
        << tandem_last_error_message();
    tandem_job_destroy(job);
    for (DeviceStripe &each : stripes) life.expect(each);
  };
  std::thread([&] {  // which keeps the plans
    for (void *const queue : {stripes[0].queue, static_cast<void *>(nullptr)}) {
      for (const std::int32_t operation : {TANDEM_OPERATION_ENCODE, TANDEM_OPERATION_DECODE}) run(operation, queue);
    }
  })
      .join();
  for (const Mine &each : mine) EXPECT_EQ(each.given.status, TANDEM_OK);
}

// Another thread's capture neither stops what we do nor is ended by it, from the device's first use to its release.
TEST(CudaDeviceMemory, AnotherThreadsCaptureIsLeftAlone) {
  for (const char *technique : {"tables", "compiled"}) {
    CudaLife life(3, 5, 30'000, {.technique = technique});
    const CUstream captured = life.fake.make_stream();
    // It lives until the end: threads that compile must not get its id.
    std::atomic<bool> is_begun = false, is_over = false;
    std::thread capturer([&] {
      life.fake.begin_capture(captured);
      is_begun = true;
      is_begun.notify_one();
      is_over.wait(false);
    });
    is_begun.wait(false);
    for (const Way way : kWays) {
      for (const Mode mode : kModes) {
        life.begin(life.work.matrix);
        life.run(way, mode);
      }
    }
    life.prepared.reset();
    life.backend.reset();
    is_over = true;
    is_over.notify_one();
    capturer.join();
    EXPECT_FALSE(life.fake.is_capture_invalid(captured));
    EXPECT_EQ(life.fake.end_capture(captured), 0u);
    life.fake.destroy(captured);
  }
}

// The wait for an unwaited job uses the job's own event, because its stream may be captured by then.
TEST(CudaDeviceMemory, AForgottenJobLeavesALaterCaptureAlone) {
  CudaLife life(3, 5, 30'000);
  DeviceStripe stripe(*life.driver, life.work);
  auto ticket = life.submit(stripe);
  std::thread([&] { life.fake.begin_capture(stream_of(stripe)); }).join();
  ticket.reset();
  life.expect(stripe);  // the job was waited for
  EXPECT_FALSE(life.fake.is_capture_invalid(stream_of(stripe)));
  life.fake.end_capture(stream_of(stripe));
  EXPECT_FALSE(life.heard.has("given up")) << life.heard.text;
  life.run(stripe);
}

TEST(CudaDeviceMemory, ANullStreamIsTheLegacyDefaultStream) {
  CudaLife life(2, 3, 5000);
  DeviceStripe stripe(*life.driver, life.work);
  for (void *const queue : {static_cast<void *>(nullptr), static_cast<void *>(CU_STREAM_LEGACY)}) {
    life.reset(stripe);
    core::Task task = stripe.task(*life.prepared, Mode::assign);
    task.queue = queue;
    const auto ticket = life.backend->submit({&task, 1}, life.control);
    life.fake.synchronize(stream_of(stripe));
    stripe.look();
    EXPECT_FALSE(life.work.is_right(Mode::assign)) << "not in the caller's other stream";
    life.fake.synchronize(CU_STREAM_LEGACY);
    life.expect(stripe);
    ticket->wait();
  }
}

TEST(CudaDeviceMemory, WrongPointersAndStreamsAreRefused) {
  CudaLife life(2, 3, 5000, {.script = {.devices = {FakeGpu(), FakeGpu()}}});
  DeviceStripe stripe(*life.driver, life.work);
  const CUdeviceptr elsewhere = life.fake.allocate(5000, 1), small = life.fake.allocate(4999),
                    gone = life.fake.allocate(5000);
  life.fake.free(gone);
  const CUstream foreign = life.fake.make_stream(0, false), second = life.fake.make_stream(1);
  const auto refused = [&](const char *part, const void *input, void *queue) {
    core::Task task = stripe.task(*life.prepared, Mode::assign);
    std::vector<const std::byte *> in = stripe.in;
    task.inputs = in.data();
    if (queue == nullptr) in[1] = static_cast<const std::byte *>(input);
    if (queue != nullptr) task.queue = queue;
    const std::uint64_t commands = life.fake.command_count();
    const auto [status, message] = status_of([&] { life.backend->submit({&task, 1}, life.control); });
    EXPECT_EQ(status, TANDEM_ERROR_INVALID_ARGUMENT) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_EQ(life.fake.command_count(), commands) << part;
  };
  const auto at = [](CUdeviceptr address) { return reinterpret_cast<void *>(address); };
  for (const void *each : {static_cast<const void *>(life.work.inputs[0].data()), static_cast<const void *>(at(gone)),
                           static_cast<const void *>(nullptr)})
    refused("no device memory", each, nullptr);
  refused("lies on cuda:1", at(elsewhere), nullptr);
  refused("its allocation 4999 bytes", at(small), nullptr);
  refused("does not fit the address space", at(UINT64_MAX - 10), nullptr);
  for (const CUstream each : {foreign, second}) refused("not of the primary context", nullptr, each);
  refused("no stream", nullptr, &life.work);
  // Device memory where memory of the host belongs.
  const core::Task host = {life.prepared.get(), stripe.in.data(), life.work.out.data(), 0,
                           life.work.bytes,     Mode::assign};
  EXPECT_EQ(status_of([&] { life.backend->run({&host, 1}, life.control); }).first, TANDEM_ERROR_INVALID_ARGUMENT);
  for (const CUdeviceptr each : {elsewhere, small}) life.fake.free(each);
  for (const CUstream each : {foreign, second}) life.fake.destroy(each);
}

// ---- a verify's records --------------------------------------------------------------------------------------

// Outputs that differ in a few places, of which task.ranges and mismatches have to tell.
struct Damaged : CudaLife {
  Damaged(unsigned rows, unsigned columns, std::uint64_t bytes, const CudaWith &with)
      : CudaLife(rows, columns, bytes, with), differs(rows, std::vector<std::uint8_t>(bytes)) {
    Random random(bytes);
    for (unsigned r = 0; r < rows; ++r) {
      work.before[r] = work.product[r];
      for (unsigned i = 0; i < r * 4; ++i) {
        const std::uint64_t first = random.below(bytes), count = i % 2 == 0 ? 1 : random.below(9000);
        for (std::uint64_t at = first; at < std::min(bytes, first + count); ++at) {
          work.before[r][at] = static_cast<std::uint8_t>(work.product[r][at] ^ 5);
          differs[r][at] = true;
        }
      }
    }
  }

  // Runs a compare; what it says has to be right, or it is a status.
  tandem_status verify(DeviceStripe &stripe, std::uint64_t capacity) {
    work.reset();
    core::MismatchRanges ranges;
    ranges.capacity = capacity;
    core::Task task = stripe.task(*prepared, Mode::compare);
    task.ranges = &ranges;
    const tandem_status status = status_of([&] { backend->run({&task, 1}, control); }).first;
    if (status != TANDEM_OK) return status;
    EXPECT_TRUE(work.is_right(Mode::compare));
    EXPECT_TRUE(ranges.is_filled);
    std::vector<RangeOfRow> list;
    for (const core::MismatchRange &each : ranges.list)
      list.push_back({each.output, each.begin_bytes, each.end_bytes, each.byte_count});
    EXPECT_EQ(list.size(), std::min(capacity, ranges.count));
    EXPECT_TRUE(are_ranges_of(list, ranges.count, differs)) << "capacity " << capacity;
    range_count = ranges.count;
    return status;
  }

  std::vector<std::vector<std::uint8_t>> differs;
  std::uint64_t range_count = 0;
};

// Nothing found is eight bytes from the device. One tile is its records more, wherever it lies.
TEST(CudaVerify, TakesFromTheDeviceWhatItFound) {
  Damaged damaged(1, 1, 5'000'000, {.technique = "tables"});
  DeviceStripe stripe(*damaged.driver, damaged.work);
  for (const std::uint64_t at : {UINT64_MAX, std::uint64_t{0}, std::uint64_t{4'000'000}, damaged.work.bytes - 1}) {
    damaged.work.before[0] = damaged.work.product[0];
    damaged.differs[0].assign(damaged.work.bytes, false);
    if (at != UINT64_MAX) damaged.work.before[0][at] ^= 1, damaged.differs[0][at] = true;
    stripe.write();
    damaged.fake.set_script({});
    EXPECT_EQ(damaged.verify(stripe, 10), TANDEM_OK);
    EXPECT_EQ(damaged.calls("bytes to the host"), at == UINT64_MAX ? 8u : 16u) << at;
  }
}

// With any budget, and any room on the device, a verify is right or has a status: it goes in pieces before it fails.
TEST(CudaVerify, ShortOfMemoryItGoesInPiecesAndThenFails) {
  for (const bool of_budget : {true, false}) {
    unsigned whole = 0, in_pieces = 0, refused = 0;
    Slice slice(4 * kThinning);
    for (std::uint64_t room = 0; room < 12'000; room += room < 1500 ? 24 : 500) {
      if (!slice.takes()) continue;
      FakeCudaScript script;
      if (!of_budget) script.devices[0].available_bytes = room;
      Damaged damaged(6, 3, 60'001,
                      {.script = script,
                       .technique = "compiled",
                       .budget_bytes = of_budget ? std::max<std::uint64_t>(room, 1) : 0});
      DeviceStripe stripe(*damaged.driver, damaged.work, room % 5);
      tandem_status first = TANDEM_OK;
      for (unsigned round = 0; round < 2; ++round) {
        const std::uint64_t calls = damaged.backend->kernel_calls();
        const tandem_status status = damaged.verify(stripe, round == 0 ? 1000 : room % 9);
        if (round == 0) first = status;
        EXPECT_EQ(status, first) << room;
        if (status != TANDEM_OK) {
          EXPECT_EQ(status, TANDEM_ERROR_OUT_OF_MEMORY);
          ++refused;
        } else {
          ++(damaged.backend->kernel_calls() == calls + 1 ? whole : in_pieces);
        }
      }
      EXPECT_LE(damaged.fake.most_device_bytes(), room);
    }
    if (runs_every_case() && kThinning == 1) {
      EXPECT_GE(whole, 10u);
      EXPECT_GE(in_pieces, 30u);
      EXPECT_GE(refused, 10u);
    }
  }
}

// What a plan's jobs left behind is there for another plan.
TEST(CudaVerify, IdleRecordsAreGivenBack) {
  Damaged one(20, 2, 100'000, {.technique = "compiled", .budget_bytes = 40'000});
  Work other(19, 2, 100'000);
  const auto prepared_other = one.backend->prepare(other.matrix);
  DeviceStripe stripe_one(*one.driver, one.work), stripe_other(*one.driver, other);
  for (unsigned round = 0; round < 3; ++round) {
    const std::uint64_t calls = one.backend->kernel_calls();
    EXPECT_EQ(one.verify(stripe_one, 10), TANDEM_OK);
    other.reset();
    const core::Task task = stripe_other.task(*prepared_other, Mode::compare);
    one.backend->run({&task, 1}, one.control);
    EXPECT_TRUE(other.is_right(Mode::compare));
    EXPECT_EQ(one.backend->kernel_calls(), calls + 2) << "in pieces, though one plan's memory lies idle";
  }
  EXPECT_LE(one.fake.most_device_bytes(), 40'000u);
}

// A submit in pieces that is cancelled between them.
TEST(CudaVerify, InPiecesItCanBeCancelled) {
  Damaged damaged(6, 3, 200'000, {.technique = "compiled", .budget_bytes = 1000});
  damaged.make_ready(Mode::compare);
  DeviceStripe stripe(*damaged.driver, damaged.work);
  core::Control control;
  damaged.driver->set_script({.cancelling_command = 4, .control = &control});
  damaged.work.reset();
  const core::Task task = stripe.task(*damaged.prepared, Mode::compare);
  EXPECT_EQ(status_of([&] { damaged.backend->submit({&task, 1}, control); }).first, TANDEM_ERROR_CANCELLED);
  EXPECT_LE(damaged.fake.command_count(), 10u);
  damaged.fake.set_script({});
  EXPECT_EQ(damaged.verify(stripe, 1000), TANDEM_OK);
}

// ---- staging, and memory of the host ---------------------------------------------------------------------------

// A piece is one upload and one download, and one wait. Three pieces are under way before the first wait.
TEST(CudaStaging, KeepsBothEnginesBusy) {
  const Values small({{"staging_bytes", 64 << 10}});
  for (const Mode mode : kModes) {
    const auto copier = std::make_shared<CountingCopier>();
    CudaLife life(2, 3, 200'000, {.technique = "tables", .tuning = &small, .copier = copier});
    life.run(kStaged, mode);  // allocates
    life.fake.set_script({});
    std::uint64_t uploads_before_first_wait = 0;
    copier->before = [&] {
      if (life.calls("cuEventQuery") == 0) uploads_before_first_wait = life.calls("cuMemcpyHtoDAsync");
    };
    life.run(kStaged, mode);
    const std::uint64_t pieces = life.calls("cuLaunchKernel"), up = mode == Mode::compare ? 2 : 1;
    EXPECT_EQ(life.calls("cuMemcpyHtoDAsync"), up * pieces);
    EXPECT_EQ(life.calls("cuMemcpyDtoHAsync"), pieces) << "the outputs, or the records of a compare";
    EXPECT_EQ(life.calls("cuEventSynchronize"), pieces) << "the fake does nothing before";
    EXPECT_EQ(life.calls("cuStreamSynchronize"), 0u);
    EXPECT_EQ(uploads_before_first_wait, up * device::DeviceLane::kSlots - 1)
        << "at the last copy before the first wait all but its own upload are under way";
  }
}

// Pieces grow with the number of shards that are copied one by one: a copy of some KiB costs as much as one of 1 MiB.
TEST(CudaStaging, PinnedShardsOfWideCodesHaveLargeCopies) {
  CudaLife life(1, 40, 1 << 20,
                {.script = with_gpu([](FakeGpu &gpu) {
                   gpu.memory_bytes = gpu.free_bytes = gpu.available_bytes = std::uint64_t{1} << 36;
                 }),
                 .technique = "tables"});
  life.run(kPinned);
  EXPECT_EQ(life.calls("cuMemcpyHtoDAsync"), 1u + 40u) << "tables, and each shard at once";
}

TEST(CudaStaging, AnErrorThatALookFindsIsTheRuns) {
  CudaLife life(2, 3, 50'000, {.technique = "tables"});
  life.fake.set_script({.query_error = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES});
  const std::string why = life.status().second;
  EXPECT_NE(why.find("cuEventQuery"), std::string::npos) << why;
  life.fake.set_script({});
  life.run();
}

// Pinned by the program, or by a device that shares the host's memory: each shard is copied from where it lies.
TEST(CudaMemory, PinnedShardsAreNotStaged) {
  for (const bool shares : {false, true}) {
    const auto copier = std::make_shared<CountingCopier>();
    CudaLife life(2, 3, 50'000,
                  {.script = with_gpu([&](FakeGpu &gpu) { gpu.reads_pageable = gpu.uses_host_page_tables = shares; }),
                   .copier = copier});
    life.run(shares ? kStaged : kPinned);
    EXPECT_EQ(life.calls("cuMemHostAlloc"), 0u);
    EXPECT_EQ(life.calls("cuMemcpyHtoDAsync"), 1u + 3u) << "tables, and each shard from where it lies";
    EXPECT_EQ(life.calls("cuMemcpyDtoHAsync"), 2u);
    EXPECT_EQ(copier->run_count, 0u);
    life.run(shares ? kStaged : kPinned, Mode::accumulate);
    if (shares) continue;
    // All but one, and of that one only a part: it is copied as others are.
    for (const std::byte *shard : {life.work.in[0], life.work.in[2], static_cast<const std::byte *>(life.work.out[0]),
                                   static_cast<const std::byte *>(life.work.out[1])})
      life.fake.register_host(shard, 50'000);
    life.fake.register_host(life.work.in[1], 49'999);
    copier->run_count = copier->copied_bytes = 0;
    life.run();
    EXPECT_EQ(copier->copied_bytes, 50'000u);
    EXPECT_EQ(copier->run_count, 1u);
    for (const std::byte *shard : life.work.in) life.fake.unregister_host(shard);
    for (const std::byte *shard : life.work.out) life.fake.unregister_host(shard);
  }
}

// The first run pins, for all devices and contexts; later ones find it done, until the memory is unregistered.
TEST(CudaMemory, RegisteredShardsArePinnedOnceAndNotStaged) {
  CudaLife life(2, 3, 50'000, {.script = {.devices = {FakeGpu(), FakeGpu()}}});
  device::Options options = life.options;
  options.device = "cuda:1";
  const auto other = life.driver->make(options, {});
  const auto run_other = [&] {
    EXPECT_TRUE(life.work.runs_right(*other, *other->prepare(life.work.matrix), Mode::assign));
  };
  {
    const core::Task task = life.host_task();
    const Registered registered(nullptr, {&task, 1});
    EXPECT_EQ(life.calls("cuMemHostRegister"), 0u) << "no run has used them";
    for (unsigned run = 0; run < 3; ++run) {
      run < 2 ? life.run() : run_other();
      EXPECT_EQ(life.calls("cuMemHostRegister"), 5u);
      EXPECT_EQ(life.calls("cuMemHostAlloc"), 0u);
    }
    life.run(kStaged, Mode::compare);
    life.backend.reset();  // the pins do not need it
    EXPECT_EQ(life.fake.live()["registered memory"], 5);
  }
  EXPECT_EQ(life.fake.live()["registered memory"], 0);
  EXPECT_EQ(life.calls("cuMemHostUnregister"), 5u);
  const std::uint64_t pinned = life.calls("cuMemHostAlloc");
  run_other();
  EXPECT_GT(life.calls("cuMemHostAlloc"), pinned) << "staged again";
}

// Shards in the middle of one registered range; it may be one that the program has pinned by CUDA, so that hybrids do
// not copy it.
TEST(CudaMemory, ARangeIsPinnedAsAWhole) {
  for (const bool by_cuda : {false, true}) {
    CudaLife life(1, 1, 10'000);
    std::vector<std::byte> block(30'000);
    if (by_cuda) life.fake.register_host(block.data(), block.size());
    std::memcpy(block.data() + 77, life.work.inputs[0].data(), 10'000);
    core::register_memory(block.data(), block.size());
    const std::byte *in = block.data() + 77;
    std::byte *out = block.data() + 12'345;
    const core::Task task = {life.prepared.get(), &in, &out, 100, 9000, Mode::assign};
    life.backend->run({&task, 1}, life.control);
    EXPECT_EQ(std::memcmp(out + 100, life.work.product[0].data() + 100, 9000), 0);
    EXPECT_EQ(life.calls("cuMemHostRegister"), 1u);
    EXPECT_EQ(life.calls("cuMemHostAlloc"), 0u) << "not staged";
    EXPECT_FALSE(life.heard.has("cannot be pinned")) << life.heard.text;
    core::unregister_memory(block.data());
    if (by_cuda) life.fake.unregister_host(block.data());
  }
}

// Owns all that it is asked for, and counts the copies of inputs.
struct Owner final : core::Guard {
  bool enter() noexcept override { return ++entered, true; }
  Own commit(std::uint64_t bytes, bool) noexcept override { return {0, bytes}; }
  void leave() noexcept override {}
  unsigned entered = 0;
};

// The call may be over before the device reads: what only CUDA has pinned, or what it shares with the host, is copied.
TEST(CudaMemory, UnderAGuardOnlyRegisteredMemoryIsReadInPlace) {
  for (const bool shares : {false, true}) {
    for (const Mode mode : kModes) {
      CudaLife life(2, 3, 50'000,
                    {.script = with_gpu([&](FakeGpu &gpu) { gpu.is_integrated = gpu.reads_pageable = shares; })});
      const core::Task task = life.host_task(mode);
      const Registered known(&life.fake, {&task, 1});
      for (const bool registered : {false, true}) {
        std::optional<Registered> hold;
        if (registered) hold.emplace(nullptr, std::span(&task, 1));
        life.work.reset();
        Owner owner;
        core::Control control(owner);
        life.backend->run({&task, 1}, control);
        EXPECT_TRUE(life.work.is_right(mode));
        EXPECT_EQ(owner.entered > 0, !registered) << shares << static_cast<int>(mode);
      }
    }
  }
}

// A driver that does not pin is asked once, and the log says so.
TEST(CudaMemory, WhatCannotBePinnedIsStaged) {
  CudaLife life(1, 1, 10'000);
  life.run();  // has staging memory from now on
  life.fake.set_script({.pinned_limit_bytes = 1});
  const core::Task task = life.host_task();
  const Registered registered(nullptr, {&task, 1});
  for (unsigned run = 0; run < 2; ++run) {
    life.run();
    EXPECT_EQ(life.calls("cuMemHostRegister"), 2u) << "an input and an output, once";
  }
  EXPECT_TRUE(life.heard.has("the 10000 registered bytes at 0x")) << life.heard.text;
  EXPECT_TRUE(life.heard.has("CUDA_ERROR_OUT_OF_MEMORY")) << life.heard.text;
}

// Others use the device, and the host's pinned memory, too: pieces become smaller until they fit, or it is a status.
TEST(CudaMemory, LessThanTheBudgetMakesSmallerPieces) {
  for (const bool of_device : {true, false}) {
    for (const std::uint64_t available : {1u << 20, 1u << 17, 1u << 14, 100u}) {
      FakeCudaScript script;
      (of_device ? script.devices[0].available_bytes : script.pinned_limit_bytes) = available;
      CudaLife life(4, 10, 100'001, {.script = script, .technique = "compiled"});
      for (const Mode mode : {Mode::assign, Mode::accumulate}) {
        const auto [status, message] = life.status(mode);
        EXPECT_EQ(status, available >= 1 << 14 ? TANDEM_OK : TANDEM_ERROR_OUT_OF_MEMORY) << available << message;
        EXPECT_TRUE(status == TANDEM_OK ? life.work.is_right(mode) : life.work.is_untouched());
      }
    }
  }
}

// ---- devices --------------------------------------------------------------------------------------------------

TEST(CudaDevices, WhyThereIsNone) {
  const auto reason_of = [](const FakeCudaScript &script) {
    FakeCuda driver(script);
    const auto backend = gpu::make_backend(fake_options(driver), base::Log());
    const std::string message = refusal(TANDEM_ERROR_UNAVAILABLE, [&] { backend->prepare(core::Matrix(1, 1)); });
    const device::Listing listing = gpu::describe_devices(std::chrono::seconds(20), driver.table());
    EXPECT_TRUE(listing.devices.empty());
    EXPECT_EQ(listing.missing.find('\n'), std::string::npos);
    EXPECT_NE(message.find(listing.missing), std::string::npos) << message << " | " << listing.missing;
    return listing.missing;
  };
  const auto has = [](const std::string &text, const char *part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(reason_of({.problem = "libcuda is not here"}), "libcuda is not here");
  has(reason_of({.driver_version = 11060}), "of CUDA 11.6, 11.7 or later");
  has(reason_of({.init_error = CUDA_ERROR_NO_DEVICE}), "finds no GPU");
  has(reason_of({.init_error = CUDA_ERROR_SYSTEM_NOT_READY}), "cuInit failed with");
  has(reason_of({.devices = {}}), "finds no GPU");
  has(reason_of(with_gpu([](FakeGpu &gpu) { gpu.major = 7; })), "compute capability is 7.0, 7.5");
  has(reason_of(with_gpu([](FakeGpu &gpu) { gpu.compute_mode = CU_COMPUTEMODE_PROHIBITED; })), "prohibited");
  has(reason_of(with_gpu([](FakeGpu &gpu) { gpu.has_pools = false; })), "no stream-ordered memory pools");
}

// Another library's module beside this one.
TEST(CudaDevices, AModuleOfAnotherVersionIsRefused) {
  FakeCuda driver;
  const device::DeviceModule module = {
      "cuda", "CUDA", "libtandem_cuda.so", "", TANDEM_CUDA_VERSION, sizeof(tandem_cuda_module)};
  module.check(driver.table(), "/there");
  tandem_cuda_module other = *driver.table();
  other.version = 1;
  const auto [status, message] = status_of([&] { module.check(&other, "/there"); });
  EXPECT_EQ(status, TANDEM_ERROR_UNAVAILABLE);
  EXPECT_EQ(message, base::text("backend \"cuda\": /there has version 1, this library needs version ",
                                int{TANDEM_CUDA_VERSION}));
  other = *driver.table();
  other.struct_bytes = 8;
  EXPECT_NE(status_of([&] { module.check(&other, "/there"); }).second.find("a table of 8 bytes"), std::string::npos);
  EXPECT_EQ(status_of([&] { module.check(nullptr, "/there"); }).first, TANDEM_ERROR_UNAVAILABLE);
}

TEST(CudaDevices, TheFirstThatCanBeUsedIsChosen) {
  FakeCudaScript script;
  script.devices.resize(3);
  script.devices[0].major = 6;
  CudaDriver driver(script);
  const auto chosen = [&](const char *name) {
    device::Options options = driver.options();
    options.device = name;
    const auto backend = driver.make(options, {});
    backend->prepare(core::Matrix(1, 1));
    return backend->traits().name;
  };
  EXPECT_EQ(chosen("cuda"), "cuda:1");
  const std::string why = refusal(TANDEM_ERROR_UNAVAILABLE, [&] { chosen("cuda:0"); });
  EXPECT_NE(why.find("known: cuda:1, cuda:2"), std::string::npos) << why;
  EXPECT_NE(why.find("cuda:0 (Fake GPU) left out"), std::string::npos) << why;
  const device::Listing listing = gpu::describe_devices(std::chrono::seconds(20), driver.fake.table());
  ASSERT_EQ(listing.devices.size(), 2u);
  EXPECT_EQ(listing.devices[0].name, "cuda:1");
  EXPECT_NE(listing.devices[0].description.find("compute capability 9.0"), std::string::npos);
  for (const char *name : {"cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda:99999999999", "cuda:0,cuda:1", "cpu"})
    EXPECT_FALSE(gpu::is_device_name(name)) << name;
}

// Reaching pageable memory is not enough: a discrete GPU does that by moving pages.
TEST(CudaDevices, SaysWhetherItSharesTheHostsMemory) {
  for (unsigned bits = 0; bits < 8; ++bits) {
    const bool is_integrated = (bits & 1) != 0, pageable = (bits & 2) != 0, page_tables = (bits & 4) != 0;
    CudaDriver driver(with_gpu([&](FakeGpu &gpu) {
      gpu.is_integrated = is_integrated;
      gpu.reads_pageable = pageable;
      gpu.uses_host_page_tables = page_tables;
    }));
    std::string left_out;
    const auto found = gpu::find_devices(*driver.fake.table(), base::Log(), &left_out);
    ASSERT_EQ(found.size(), 1u) << left_out;
    EXPECT_EQ(found[0].shares_memory, pageable && (is_integrated || page_tables));
  }
}

// The caller's current context is current again after each call, and no context stays behind without one.
TEST(CudaDevices, TheCurrentContextIsLeftAsItWas) {
  CudaLife life(2, 3, 5000);
  life.fake.table()->cuCtxPushCurrent(life.fake.context(0));
  life.begin(life.work.matrix);
  for (const Way way : kWays) {
    life.run(way);
    EXPECT_EQ(fake_context_depth(), 1u);
  }
  life.prepared.reset();
  life.backend.reset();
  EXPECT_EQ(fake_context_depth(), 1u);
  CUcontext popped = nullptr;
  life.fake.table()->cuCtxPopCurrent(&popped);
  EXPECT_EQ(popped, life.fake.context(0));
}

// ---- the fake itself -----------------------------------------------------------------------------------------

// Memory of a pool belongs to what comes after its allocation and before its release, in the order of streams: the
// backend's tests mean something only if the fake sees the opposite.
TEST(FakeDriver, SeesPoolMemoryUsedOutOfOrder) {
  // Steps in streams 1 and 2. 1>2: what is put into 2 from now on waits for what is in 1.
  const std::pair<const char *, std::string> cases[] = {
      {"make1 1>2 use2 2>1 free1", ""},
      {"make1 sync1 use2 sync2 free1", ""},
      {"make1 use2", "USE: memory that may not be allocated yet"},
      {"make1 1>2 use2 free1", "cuMemFreeAsync: of memory that may still be used"},
      {"make1 free1 use1", "USE: memory that was freed before"},
      {"make1 free2", "cuMemFreeAsync: before the allocation"}};
  using Use = void (*)(const tandem_cuda_module &cuda, CUdeviceptr memory, CUstream stream);
  static std::uint32_t value = 7;
  const std::pair<std::string, Use> uses[] = {
      {"cuMemcpyHtoDAsync",
       [](auto &cuda, auto memory, auto stream) { cuda.cuMemcpyHtoDAsync(memory, &value, 4, stream); }},
      {"cuMemsetD32Async", [](auto &cuda, auto memory, auto stream) { cuda.cuMemsetD32Async(memory, 7, 1, stream); }},
      {"cuMemcpyDtoHAsync",
       [](auto &cuda, auto memory, auto stream) { cuda.cuMemcpyDtoHAsync(&value, memory, 4, stream); }}};
  for (const auto &[name, use] : uses)
    for (const auto &[steps, want] : cases) {
      FakeCuda driver;
      const tandem_cuda_module &cuda = *driver.table();
      cuda.cuCtxPushCurrent(driver.context());
      const CUstream streams[] = {driver.make_stream(), driver.make_stream()};
      CUevent event = nullptr;
      cuda.cuEventCreate(&event, CU_EVENT_BLOCKING_SYNC);
      CUdeviceptr memory = 0;
      std::istringstream in(steps);
      for (std::string step; in >> step;) {
        const CUstream stream = streams[step.back() - '1'];
        if (step.starts_with("make")) cuda.cuMemAllocFromPoolAsync(&memory, 4, nullptr, stream);
        if (step.starts_with("use")) use(cuda, memory, stream);
        if (step.starts_with("free")) cuda.cuMemFreeAsync(memory, stream);
        if (step.starts_with("sync")) cuda.cuStreamSynchronize(stream);
        if (step[1] != '>') continue;
        cuda.cuEventRecord(event, streams[step.front() - '1']);
        cuda.cuStreamWaitEvent(stream, event, 0);
      }
      for (const CUstream each : streams) driver.destroy(each);
      cuda.cuEventDestroy(event);
      CUcontext popped = nullptr;
      cuda.cuCtxPopCurrent(&popped);
      const auto violations = driver.violations();
      EXPECT_EQ(violations.empty() ? "" : violations.front(), want.starts_with("USE") ? name + want.substr(3) : want)
          << name << ": " << steps;
    }
}

// ---- programs ---------------------------------------------------------------------------------------------------

// Technique tables serves without NVRTC, with an NVRTC that does not know the device, and if the driver refuses
// programs.
TEST(CudaPrograms, TablesWorkWithoutACompiler) {
  const struct {
    FakeCudaScript script;
    const char *why;
  } cases[] = {{{.nvrtc_problem = "NVRTC is not installed"}, "NVRTC is not installed"},
               {{.nvrtc_version = 11060}, "NVRTC 11.6 is too old, 11.7 or later is needed"},
               {{.architectures = {100, 120}}, "does not know compute capability 9.0"},
               {{.common = {.refuses_binaries = true}}, "refuses what NVRTC 12.4 compiled"},
               {{.common = {.refuses_binaries = true}, .driver_version = 11080},
                "made by CUDA 12.4, which needs a driver of CUDA 12.0 or later"},
               {{.common = {.refuses_text = true}}, kStoppedCompiling},
               {{.common = {.refuses_text = true}}, "fake: no"}};
  // What a tuning file says about compiled kernels does not switch off the tables that came with the library.
  const Values tuning({{"compile_after_bytes", 30'000}, {"elements_per_item", 4}, {"loads", 1}});
  for (const auto &[script, why] : cases) {
    CudaLife life(2, 4, 30'000, {.script = script, .tuning = &tuning});
    for (const Way way : kWays)
      for (const Mode mode : kModes) life.run(way, mode);
    EXPECT_TRUE(life.heard.has("technique tables")) << life.heard.text;
    wait_until([&, why = why] { return life.heard.has(why); }, why);
    life.options.technique = "compiled";
    life.begin(life.work.matrix);
    EXPECT_EQ(life.status().first, TANDEM_ERROR_UNAVAILABLE);
  }
}

TEST(CudaPrograms, PtxOfTheNewestArchitectureThatNvrtcKnows) {
  CudaLife life(2, 4, 3000, {.script = {.architectures = {75, 80, 86}}, .technique = "compiled"});
  life.run();
  EXPECT_EQ(life.calls("nvrtcGetPTXSize"), 1u);
}

// An image that the driver does not take, or that this build has not: tables by NVRTC; without that a clear error.
TEST(CudaPrograms, TablesWithoutAnImageAreCompiled) {
  for (const bool has_nvrtc : {true, false}) {
    for (const bool refused : {true, false}) {
      CudaLife life(2, 4, 3000,
                    {.script = {.nvrtc_problem = has_nvrtc ? nullptr : "NVRTC is not installed",
                                .has_image = refused,
                                .refuses_image = refused},
                     .technique = "tables"});
      const auto [status, message] = life.status();
      EXPECT_EQ(life.heard.has(kImageRefused), refused) << life.heard.text;
      EXPECT_EQ(status, has_nvrtc ? TANDEM_OK : TANDEM_ERROR_UNAVAILABLE) << message;
      EXPECT_EQ(life.work.is_right(Mode::assign), has_nvrtc);
      EXPECT_EQ(message.find("NVRTC is not installed") != std::string::npos, !has_nvrtc) << message;
    }
  }
}

}  // namespace
}  // namespace tandem::test
