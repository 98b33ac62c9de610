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
#include <filesystem>
#include <mutex>
#include <sstream>
#include <thread>

#include "base/error.hpp"
#include "core/budget.hpp"
#include "core/host_copies.hpp"
#include "core/mismatch_ranges.hpp"
#include "core/registered_memory.hpp"
#include "device/module.hpp"
#include "device/session.hpp"
#include "gpu/devices.hpp"
#include "gpu/factory.hpp"
#include "tests/conformance/cuda_shards.hpp"
#include "tests/conformance/forms.hpp"
#include "tests/conformance/suite.hpp"
#include "tests/conformance/work.hpp"
#include "tests/device/driver_suite.hpp"
#include "tests/gpu/fake_program.hpp"
#include "tests/support/mismatch_ranges.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/thinned.hpp"

namespace tandem::test {
namespace {

using core::Mode;

constexpr Mode kModes[] = {Mode::assign, Mode::accumulate, Mode::compare};

// Shards of tasks are registered while this lives: with the driver, as a program may do with memory of its own, or with
// Tandem.
class Registered {
 public:
  Registered(FakeCuda *driver, std::span<const core::Task> tasks) : driver_(driver) {
    for (const core::Task &task : tasks) {
      const std::uint64_t end = task.offset_bytes + task.length_bytes;
      for (unsigned c = 0; c < task.prepared->columns(); ++c) note(task.inputs[c], end);
      for (unsigned r = 0; r < task.prepared->rows(); ++r) note(task.outputs[r], end);
    }
    for (const auto &[memory, bytes] : bytes_)
      driver_ != nullptr ? driver_->register_host(memory, bytes) : core::register_memory(memory, bytes);
  }
  ~Registered() {
    for (const auto &[memory, bytes] : bytes_)
      driver_ != nullptr ? driver_->unregister_host(memory) : core::unregister_memory(memory);
  }
  Registered(const Registered &) = delete;
  Registered &operator=(const Registered &) = delete;

 private:
  void note(const std::byte *memory, std::uint64_t end) { bytes_[memory] = std::max(bytes_[memory], end); }
  FakeCuda *driver_;
  std::map<const std::byte *, std::uint64_t> bytes_;
};

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
  const auto with = [](FakeSummarise how) {
    FakeCudaScript script;
    script.summarise = how;
    return [script] { return std::make_unique<FakeProgram>(script, kThinning == 1 ? 200'003 : 50'003); };
  };
  return {{"reduced_on_the_device", with(FakeSummarise::works), ""},
          {"reduced_on_the_host", with(FakeSummarise::absent), ""}};
}
INSTANTIATE_TEST_SUITE_P(CudaFake, CudaShards, testing::ValuesIn(cuda_makers()), cuda_maker_name);
INSTANTIATE_TEST_SUITE_P(CudaFake, CudaShardsDeathTest, testing::ValuesIn(cuda_makers()), cuda_maker_name);

// A stripe in device memory, on a stream of the caller.
class OnDevice final : public DeviceStripe {
 public:
  OnDevice(FakeCuda &driver, Work &work, std::uint64_t skew)
      : stream(driver.make_stream()), driver_(driver), work_(work) {
    const std::uint64_t pitch = (work.bytes + 127) / 64 * 64;
    for (std::size_t i = 0; i < work.inputs.size() + work.outputs.size(); ++i) {
      memory_.push_back(driver.allocate(pitch + skew));
      auto *start = reinterpret_cast<std::byte *>(memory_.back());
      const std::uint64_t offset = skew * (i % 3);
      if (i < work.inputs.size()) {
        in.push_back(start);
        in_offsets.push_back(offset / 2);
      } else {
        out.push_back(start);
        out_offsets.push_back(offset / 2);
      }
    }
    write();
  }
  ~OnDevice() override {
    driver_.destroy(stream);
    for (const CUdeviceptr each : memory_) driver_.free(each);
  }
  OnDevice(const OnDevice &) = delete;
  OnDevice &operator=(const OnDevice &) = delete;

  void write() override {
    driver_.synchronize(stream);
    for (std::size_t c = 0; c < in.size(); ++c)
      std::memcpy(const_cast<std::byte *>(in[c]) + in_offsets[c], work_.inputs[c].data(), work_.bytes);
    for (std::size_t r = 0; r < out.size(); ++r)
      std::memcpy(out[r] + out_offsets[r], work_.before[r].data(), work_.bytes);
  }
  // What the device holds now; nothing is waited for.
  void look() {
    for (std::size_t r = 0; r < out.size(); ++r)
      std::memcpy(work_.outputs[r].data(), out[r] + out_offsets[r], work_.bytes);
  }
  void read() override {
    driver_.synchronize(stream);
    look();
  }
  core::Task task(const core::Prepared &prepared, Mode mode) override {
    core::Task made = {&prepared, in.data(), out.data(), 0, work_.bytes, mode, work_.mismatches.data()};
    made.memory = core::MemoryKind::cuda;
    made.queue = stream;
    made.input_offsets = in_offsets.data();
    made.output_offsets = out_offsets.data();
    return made;
  }

  CUstream stream;
  std::vector<const std::byte *> in;
  std::vector<std::byte *> out;
  std::vector<std::uint64_t> in_offsets, out_offsets;

 private:
  FakeCuda &driver_;
  Work &work_;
  std::vector<CUdeviceptr> memory_;
};

// For the suite that all drivers share. pinned: shards of the host are registered with CUDA; registered: with Tandem.
class CudaDriver final : public AnyDriver {
 public:
  enum class Host { pageable, pinned, registered };
  CudaDriver(const DriverScript &script, Host host) : driver_(of(script)), host_(host) {}

  const char *label() const override { return "CUDA"; }
  const char *resource() const override { return gpu::kMemoryResource; }
  void set_script(const DriverScript &script) override { driver_.set_script(of(script)); }
  device::Options options() const override { return fake_options(driver_); }
  std::string device_name(unsigned index) const override { return "cuda:" + std::to_string(index); }
  std::unique_ptr<core::Backend> make(const device::Options &options, const base::Log &log) override {
    gpu::Options all = fake_options(driver_);
    static_cast<device::Options &>(all) = options;
    return gpu::make_backend(all, log);
  }
  std::size_t listed_devices() const override {
    return gpu::describe_devices(std::chrono::seconds(20), driver_.table()).devices.size();
  }
  std::unique_ptr<DeviceStripe> on_device(Work &work, std::uint64_t skew) override {
    return std::make_unique<OnDevice>(driver_, work, skew);
  }
  std::shared_ptr<void> hold(std::span<const core::Task> tasks) override {
    if (host_ == Host::pageable) return nullptr;
    return std::make_shared<Registered>(host_ == Host::pinned ? &driver_ : nullptr, tasks);
  }
  const DriverCounts &counts() const override { return driver_; }
  std::uint64_t calls_of(Call call) const override {
    return driver_.calls_of(call == Call::compile  ? "nvrtcCompileProgram"
                            : call == Call::launch ? "cuLaunchKernel"
                                                   : "cuEventQuery");
  }
  bool is_dead() const override { return driver_.is_dead(); }
  std::vector<std::string> problems() const override { return problems_of(driver_); }

 private:
  static FakeCudaScript of(const DriverScript &from) {
    FakeCudaScript script;
    script.devices.resize(from.device_count);
    script.failing_call = from.failing_call;
    script.failing_command = from.failing_command;
    if (from.kills) script.failing_error = CUDA_ERROR_ILLEGAL_ADDRESS;
    script.cancelling_command = from.cancelling_command;
    script.control = from.control;
    if (from.most_group_items != 0) script.devices[0].most_threads = from.most_group_items;
    if (from.is_another_model) script.devices[0].major = 8;
    script.is_done_when_asked = from.is_done_when_asked;
    script.refuses_cubins = from.refuses_binaries;
    return script;
  }

  FakeCuda driver_;
  const Host host_;
};

std::vector<DriverMaker> all_drivers() {
  using Host = CudaDriver::Host;
  std::vector<DriverMaker> list;
  for (const auto &[name, host] : {std::pair("staged", Host::pageable), std::pair("pinned", Host::pinned),
                                   std::pair("registered", Host::registered)})
    list.push_back(
        {name, [host = host](const DriverScript &script) { return std::make_unique<CudaDriver>(script, host); }});
  return list;
}
INSTANTIATE_TEST_SUITE_P(CudaFake, BackendConformance, testing::ValuesIn(conformance_makers(all_drivers())),
                         maker_name);
INSTANTIATE_TEST_SUITE_P(Cuda, DeviceFaults, testing::ValuesIn(all_drivers()), driver_name);
INSTANTIATE_TEST_SUITE_P(Cuda, DeviceLayer, testing::Values(all_drivers().front()), driver_name);

// The ways of a task through the backend.
// pinned: by the program, with CUDA; registered: with Tandem.
// many_*: cut into many stripes.
enum class Way { staged, pinned, registered, on_device, many_staged, many_on_device };
constexpr Way kWays[] = {Way::staged, Way::pinned, Way::registered, Way::on_device};

void run_way(FakeCuda &driver, Way way, core::Backend &backend, const core::Prepared &prepared, Work &work, Mode mode) {
  core::Control control;
  if (way == Way::on_device || way == Way::many_on_device) {
    OnDevice stripe(driver, work, 0);
    const core::Task task = stripe.task(prepared, mode);
    backend.run(way == Way::on_device ? std::vector{task} : uneven_slices(task, true), control);
    stripe.look();
    return;
  }
  const core::Task task = {&prepared, work.in.data(), work.out.data(), 0, work.bytes, mode, work.mismatches.data()};
  if (way == Way::many_staged) return backend.run(uneven_slices(task, false), control);
  std::optional<Registered> registered;
  if (way != Way::staged) registered.emplace(way == Way::pinned ? &driver : nullptr, std::span(&task, 1));
  backend.run({&task, 1}, control);
}

FakeCudaScript with_gpu(const std::function<void(FakeGpu &)> &change) {
  FakeCudaScript script;
  change(script.devices[0]);
  return script;
}

struct With {
  FakeCudaScript script = {};
  const char *technique = "";
  std::uint64_t budget_bytes = 0, most_launch_bytes = device::kMostLaunchBytes;
  const core::TuningSource *tuning = nullptr;
  device::GenerateKernel generate = fake_cuda_generate;
  std::shared_ptr<core::HostCopier> copier = nullptr;
  std::string cache_folder = {};
};

// A backend on a fake driver, with a stripe of its own. In the end nothing is left, and no call was wrong.
struct Life {
  Life(core::Operator what, std::size_t shard_bytes, const With &with = {})
      : driver(with.script), options(fake_options(driver, with.technique)), work(what.dense(), shard_bytes) {
    options.memory_budget_bytes = with.budget_bytes;
    options.most_launch_bytes = with.most_launch_bytes;
    options.tuning = with.tuning;
    options.generate = with.generate;
    options.copier = with.copier;
    options.cache_folder = with.cache_folder;
    backend = gpu::make_backend(options, heard.log());
    prepared = backend->prepare(what);
    work.reset();
  }
  Life(unsigned rows, unsigned columns, std::size_t shard_bytes, const With &with = {})
      : Life(core::Operator(Work::random_matrix(rows, columns)), shard_bytes, with) {}
  ~Life() {
    prepared.reset();
    backend.reset();
    expect_clean(driver, "a life");
  }

  std::uint64_t calls(const char *function) const { return driver.calls_of(function); }
  std::uint64_t compiles() const { return calls("nvrtcCompileProgram"); }
  void make_ready(Mode mode, bool waits = true, core::MemoryKind memory = core::MemoryKind::cuda) {
    backend->make_ready(*prepared, mode, memory, waits);
  }
  core::Task host_task(Mode mode = Mode::assign) {
    return {prepared.get(), work.in.data(), work.out.data(), 0, work.bytes, mode, work.mismatches.data()};
  }
  void run(Way way, Mode mode = Mode::assign) {
    work.reset();
    run_way(driver, way, *backend, *prepared, work, mode);
    EXPECT_TRUE(work.is_right(mode)) << static_cast<int>(mode) << ", way " << static_cast<int>(way);
  }
  void run(OnDevice &stripe, Mode mode = Mode::assign) {
    work.reset();
    stripe.write();
    const core::Task task = stripe.task(*prepared, mode);
    backend->run({&task, 1}, control);
    expect(stripe, mode);
  }
  void expect(OnDevice &stripe, Mode mode = Mode::assign) {
    stripe.look();
    EXPECT_TRUE(work.is_right(mode)) << static_cast<int>(mode);
  }
  std::unique_ptr<core::Ticket> submit(OnDevice &stripe, Mode mode = Mode::assign) {
    const core::Task task = stripe.task(*prepared, mode);
    return backend->submit({&task, 1}, control);
  }
  // The commands of a graph that captured a submit.
  std::size_t capture(OnDevice &stripe, Mode mode = Mode::assign) {
    driver.begin_capture(stripe.stream);
    submit(stripe, mode)->wait();
    return driver.end_capture(stripe.stream);
  }

  FakeCuda driver;
  Heard heard;
  gpu::Options options;
  Work work;
  core::Control control;
  std::unique_ptr<core::Backend> backend;
  std::shared_ptr<const core::Prepared> prepared;
};

TEST(CudaFaults, EveryCallOutOfMemory) {
  for (const Way way : kWays) {
    std::uint64_t count = 1;
    unsigned worked = 0;
    for (std::uint64_t n = 0; n < count; ++n) {
      Life life(3, 5, 10'000, {.technique = "tables"});
      life.driver.set_script({.failing_call = n, .failing_error = CUDA_ERROR_OUT_OF_MEMORY});
      life.work.reset();
      const auto run = [&] { run_way(life.driver, way, *life.backend, *life.prepared, life.work, Mode::accumulate); };
      const auto [status, message] = status_of(run);
      const bool is_reached = !life.driver.failed_call().empty();
      if (status == TANDEM_OK) {
        ASSERT_TRUE(life.work.is_right(Mode::accumulate)) << n;
        worked += is_reached;
      } else {
        ASSERT_EQ(status, TANDEM_ERROR_OUT_OF_MEMORY) << message;
        life.run(way, Mode::accumulate);
      }
      if (is_reached) count = n + 2;
    }
    EXPECT_GE(count, 20u);
    if (way == Way::staged) {
      EXPECT_GE(worked, 3u) << "smaller pieces were not tried";
    }
  }
}

TEST(CudaFaults, ADeadDeviceIsDeadForEveryContextAndSaid) {
  FakeCuda driver;
  Heard heard;
  Work work(2, 3, 1000);
  const auto one = gpu::make_backend(fake_options(driver), heard.log());
  const auto other = gpu::make_backend(fake_options(driver), heard.log());
  const auto prepared = one->prepare(work.matrix);
  other->prepare(work.matrix);
  driver.set_script({.failing_command = 0});
  work.reset();
  EXPECT_EQ(status_of([&] { work.run(*one, *prepared, Mode::assign); }).first, TANDEM_ERROR_DEVICE);
  EXPECT_TRUE(work.is_untouched()) << "pageable outputs are written when their piece is complete";
  EXPECT_TRUE(heard.has("is given up for the rest of this process")) << heard.text;
  const auto [status, message] = status_of([&] { other->prepare(work.matrix); });
  EXPECT_EQ(status, TANDEM_ERROR_DEVICE);
  EXPECT_NE(message.find("was given up"), std::string::npos) << message;
}

// An error of a capture is no sign that the device does not come to an end.
TEST(CudaFaults, AnErrorOfACaptureDoesNotGiveTheDeviceUp) {
  for (const Way way : kWays) {
    std::uint64_t count = 1;
    unsigned failed = 0;
    for (std::uint64_t n = 0; n < count; ++n) {
      FakeCuda driver;
      Heard heard;
      Work work(3, 5, 10'000);
      const auto backend = gpu::make_backend(fake_options(driver, "tables"), heard.log());
      const auto prepared = backend->prepare(work.matrix);
      driver.set_script({.failing_call = n, .failing_error = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, .fails_on = true});
      work.reset();
      const auto run = [&] { run_way(driver, way, *backend, *prepared, work, Mode::compare); };
      if (status_of(run).first != TANDEM_OK) {
        ++failed;
        count = n + 2;
      }
      EXPECT_FALSE(heard.has("given up")) << n << ": " << heard.text;
      driver.set_script({});
      work.reset();
      run();
      EXPECT_TRUE(work.is_right(Mode::compare)) << n;
    }
    EXPECT_GE(failed, 10u);
  }
}

// ---- shards in device memory ------------------------------------------------------------------------------

// CudaShards, the suite, asks for the bytes; here it is what the driver sees.
TEST(CudaDeviceMemory, AReductionThatFailsIsNotTriedAgain) {
  for (const FakeSummarise summarise : {FakeSummarise::absent, FakeSummarise::works, FakeSummarise::fails}) {
    Life life(3, 5, 30'001, {.script = {.summarise = summarise}});
    OnDevice stripe(life.driver, life.work, 6);
    for (unsigned round = 0; round < 2; ++round) life.run(stripe, Mode::compare);
    const bool fails = summarise == FakeSummarise::fails;
    EXPECT_EQ(life.calls("summarise"), fails ? 1u : summarise == FakeSummarise::works ? 2u : 0u);
    EXPECT_EQ(life.heard.has("on the host: error 77 of the CUDA runtime, no room, by script"), fails);
    EXPECT_EQ(life.heard.has(kReducedByHost), fails);
  }
}

// What a plan is made ready for costs its submits a launch, an event and questions about pointers, and nothing else.
TEST(CudaDeviceMemory, APreparedSubmitOnlyStartsAKernel) {
  for (const char *technique : {"tables", "compiled"}) {
    for (const Mode mode : kModes) {
      Life life(3, 5, 30'000, {.technique = technique});
      life.make_ready(mode);
      // Aligned, unaligned, and once more of each.
      OnDevice aligned(life.driver, life.work, 0), unaligned(life.driver, life.work, 6);
      for (unsigned round = 0; round < 4; ++round) {
        OnDevice &stripe = round % 2 == 0 ? aligned : unaligned;
        life.driver.set_script({});
        life.work.reset();
        stripe.write();
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

// A kernel that was not prepared is compiled when the coded bytes pay for it, not before. A capture can use the plan in
// both cases.
TEST(CudaDeviceMemory, UnpreparedTheTechniqueFollowsTheBytes) {
  const Values tuning({{"compile_after_bytes", 30'000}, {"element_bytes", 32}});
  Life life(2, 4, 3000, {.tuning = &tuning});  // 12,000 bytes a run
  OnDevice stripe(life.driver, life.work, 0);
  for (unsigned run = 0; run < 4; ++run) {
    if (run < 3) {
      EXPECT_EQ(life.compiles(), 0u) << run;
    }
    if (run % 2 == 1) {
      EXPECT_EQ(life.capture(stripe), 1u);
    }
    life.run(stripe);
  }
  wait_until([&] { return life.compiles() == 1; }, "compiled");
  const auto promised = life.backend->prepare(Work(2, 5, 1).matrix);
  life.backend->make_ready(*promised, Mode::assign, core::MemoryKind::cuda);
  EXPECT_EQ(life.compiles(), 3u) << "for shards anywhere";
}

// A kernel counts elements in 32 bits: what is longer takes several launches, into a graph too, and by itself in a
// batch.
TEST(CudaDeviceMemory, MoreThanALaunchTakesGoesInPieces) {
  Life life(3, 5, 30'000, {.most_launch_bytes = 4096});
  for (const Mode mode : kModes) {
    life.make_ready(mode);
    for (const std::uint64_t skew : {0, 5}) {
      life.work.reset();
      OnDevice stripe(life.driver, life.work, skew);
      const std::uint64_t calls = life.backend->kernel_calls();
      if (mode == Mode::accumulate) {
        EXPECT_EQ(life.capture(stripe, mode), 8u);
        life.driver.launch_graph();
      } else {
        life.submit(stripe, mode)->wait();
      }
      EXPECT_EQ(life.backend->kernel_calls(), calls + 8);
      life.expect(stripe, mode);
    }
  }
  OnDevice stripe(life.driver, life.work, 0);
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
  Life life(7, 5, 1, {.generate = generate});
  life.make_ready(Mode::assign);
  EXPECT_EQ(met, 2u);
  EXPECT_EQ(helpers, 2u);
  EXPECT_EQ(open_to_signals, 0u);
}

// What goes wrong with either is heard when both are over; what went well with the other one stays.
TEST(CudaDeviceMemory, OneOfTwoProgramsThatFailsIsAnError) {
  for (const device::Access failing : {device::Access::aligned, device::Access::shifted}) {
    std::atomic<bool> fails = true;
    Life life(7, 5, 1, {.generate = [&](const core::Matrix &matrix, const device::KernelSpec &spec) {
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

// A plan runs at once, and is captured, with tables; the caller's thread neither compiles nor waits for a compile.
TEST(CudaBackground, APlanRunsBeforeItsKernelIsCompiled) {
  Gate gate;
  Life life(7, 4, 3000, {.generate = gate.generate()});
  life.make_ready(Mode::assign, false);
  gate.await(2);  // both programs of the plan at once, and the plan is there
  OnDevice stripe(life.driver, life.work, 0);
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
  life.driver.set_script({});  // the counters begin again
  life.run(stripe);
  EXPECT_EQ(life.capture(stripe), 1u);
  EXPECT_EQ(life.calls("cuModuleLoadData") + life.compiles(), 0u);
  life.work.reset();
  stripe.write();
  life.driver.launch_graph();
  life.expect(stripe);
  EXPECT_FALSE(life.driver.has_called_nvrtc(std::this_thread::get_id()));
}

// A plan for host memory compiles when its bytes pay for it; one that waits has its kernel before it is run.
TEST(CudaBackground, WaitForKernelWaits) {
  for (const core::MemoryKind memory : {core::MemoryKind::host, core::MemoryKind::cuda}) {
    Life life(3, 4, 3000);
    life.make_ready(Mode::assign, false, core::MemoryKind::host);
    EXPECT_EQ(life.compiles(), 0u) << "host memory: the bytes decide";
    life.make_ready(Mode::assign, true, memory);
    const std::uint64_t compiled = memory == core::MemoryKind::host ? 1 : 2;
    EXPECT_EQ(life.compiles(), compiled);
    life.run(memory == core::MemoryKind::host ? Way::staged : Way::on_device);
    EXPECT_EQ(life.compiles(), compiled);
    EXPECT_FALSE(life.heard.has("technique tables")) << life.heard.text;
    EXPECT_FALSE(life.driver.has_called_nvrtc(std::this_thread::get_id()));
  }
}

// The job of a captured run is over at once. The graph's tables are there as long as the plan, though the plan has
// taken another kernel, and the device has the tables of many other matrices by then.
TEST(CudaBackground, AGraphKeepsTheKernelOfItsPlan) {
  Gate gate;
  Life life(7, 4, 3000, {.generate = gate.generate()});
  life.make_ready(Mode::assign, false);
  OnDevice stripe(life.driver, life.work, 0);
  EXPECT_EQ(life.capture(stripe), 1u);
  gate.open();
  life.make_ready(Mode::assign);
  life.run(stripe);
  for (unsigned shape = 0; shape < 40; ++shape) {
    Work other(1 + shape % 8, 1 + shape / 8, 300);
    run_way(life.driver, Way::on_device, *life.backend, *life.backend->prepare(other.matrix), other, Mode::assign);
  }
  life.work.reset();
  stripe.write();
  life.driver.launch_graph();
  life.expect(stripe);
}

// Tables go on, and the log has one line, however many plans follow.
TEST(CudaBackground, ACompileThatFailsAfterTheFirstRun) {
  Gate gate;
  Life life(7, 4, 3000, {.script = {.refuses_text = true}, .generate = gate.generate()});
  life.make_ready(Mode::assign, false);
  life.run(Way::on_device);
  gate.open();
  wait_until([&] { return life.heard.has(kStoppedCompiling); }, "told");
  const auto next = life.backend->prepare(Work(7, 5, 1).matrix);
  for (const bool waits : {false, true}) life.backend->make_ready(*next, Mode::assign, core::MemoryKind::cuda, waits);
  EXPECT_LE(life.compiles(), 2u) << "of the first plan";
  life.run(Way::on_device);
  const std::lock_guard lock(life.heard.mutex);
  EXPECT_EQ(life.heard.text.find(kStoppedCompiling), life.heard.text.rfind(kStoppedCompiling)) << life.heard.text;
}

// A context that ends finishes what is being compiled, and drops what no thread has begun.
TEST(CudaBackground, AContextEndsDuringCompiles) {
  Gate gate;
  Life life(7, 1, 1, {.generate = gate.generate()});
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
  Life life(7, 4, 3000, {.generate = gate.generate()});
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

// Technique transform takes the place of a compiled matrix for wide codes, unless a tuning value or the caller says
// otherwise.
TEST(CudaTransform, IsUsedForWideCodes) {
  const struct {
    const char *technique;
    core::TuningValues values;
    int most_threads;
    const char *says;
  } cases[] = {
      {"", {}, 1024, "technique transform: made ready"},
      {"", {{"transform", 0}}, 1024, "technique compiled: made ready"},
      {"compiled", {}, 1024, "technique compiled: as asked"},
      {"tables", {}, 1024, "technique tables: as asked"},
      {"transform", {{"transform", 0}}, 1024, "technique transform: as asked"},
      {"", {}, 64, "technique transform is left: work-groups of 128 items, at most 64"},
      {"transform", {}, 64, "technique compiled: technique transform does not do this operator here"},
  };
  for (const auto &each : cases) {
    const Values source(each.values);
    Life life(wide_code(), 40'009,
              {.script = with_threads(each.most_threads), .technique = each.technique, .tuning = &source});
    life.make_ready(Mode::assign, true, core::MemoryKind::host);
    for (const Mode mode : kModes)
      for (const Way way : {Way::staged, Way::on_device, Way::many_on_device}) life.run(way, mode);
    EXPECT_TRUE(life.heard.has(each.says)) << each.says << "\n" << life.heard.text;
  }
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
    Life life(wide_code(), 20'000, {.tuning = &soon, .generate = generate});  // 320,000 bytes a run
    EXPECT_STREQ(life.prepared->techniques().front().name, "tables, then transform");
    const char *const then = fails ? "technique compiled:" : "technique transform:";
    wait_until([&] { return life.run(Way::staged), life.heard.has(then); }, then);
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
    Life life(what, 3000, {.script = with_threads(most_threads)});
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
    EXPECT_EQ(status_with({{"transform", 1}}) == TANDEM_OK, runs);
    if (most_threads == 1024) {  // other values, as autotune tries them
      EXPECT_EQ(status_with({{"rows_per_pass", 4}}), TANDEM_OK);
      EXPECT_TRUE(life.work.is_right(Mode::assign));
    }
    life.run(Way::staged);
  }
}

// ---- captures -------------------------------------------------------------------------------------------------

TEST(CudaDeviceMemory, CanBeCaptured) {
  Life life(3, 5, 30'000);
  life.make_ready(Mode::accumulate);
  OnDevice stripe(life.driver, life.work, 0);
  life.driver.begin_capture(stripe.stream);
  {
    // The pointer array is the caller's again when the submit has returned.
    std::vector<const std::byte *> in = stripe.in;
    std::vector<std::byte *> out = stripe.out;
    core::Task copied = stripe.task(*life.prepared, Mode::accumulate);
    copied.inputs = in.data();
    copied.outputs = out.data();
    life.backend->submit({&copied, 1}, life.control)->wait();
    std::fill(in.begin(), in.end(), nullptr);
    std::fill(out.begin(), out.end(), nullptr);
  }
  // A verify has a result.
  const auto [verify_status, verify_message] = status_of([&] { life.submit(stripe, Mode::compare); });
  EXPECT_EQ(verify_status, TANDEM_ERROR_UNSUPPORTED);
  EXPECT_NE(verify_message.find("a verify cannot be captured"), std::string::npos) << verify_message;
  EXPECT_EQ(life.driver.end_capture(stripe.stream), 1u);
  stripe.look();
  EXPECT_TRUE(life.work.is_untouched());
  life.driver.launch_graph();
  life.expect(stripe, Mode::accumulate);
  life.driver.launch_graph();
  stripe.look();
  EXPECT_TRUE(life.work.is_untouched()) << "added twice is not added";
}

// The graph has the kernel alone; what it reads is the job's.
TEST(CudaBatch, CanBeCaptured) {
  for (const bool was_run_before : {false, true}) {
    Life life(3, 5, 30'000);
    OnDevice stripe(life.driver, life.work, 0);
    const std::vector<core::Task> tasks = uneven_slices(stripe.task(*life.prepared, Mode::assign), true);
    if (was_run_before) life.backend->submit(tasks, life.control)->wait();
    stripe.write();
    life.driver.begin_capture(stripe.stream);
    const auto ticket = life.backend->submit(tasks, life.control);
    ticket->wait();
    EXPECT_EQ(life.driver.end_capture(stripe.stream), 1u);
    // Others do not get its table.
    Work small(3, 5, 1000);
    OnDevice another(life.driver, small, 0);
    life.backend->submit(slices(another.task(*life.prepared, Mode::assign), 5), life.control)->wait();
    for (unsigned launch = 0; launch < 2; ++launch) {
      stripe.write();
      life.work.reset();
      stripe.look();
      EXPECT_TRUE(life.work.is_untouched());
      life.driver.launch_graph();
      life.expect(stripe);
    }
  }
}

// A table that finds no room in the budget is a status with the numbers.
TEST(CudaBatch, ATableNeedsMemory) {
  Life life(2, 3, 64 * 500, {.technique = "tables", .budget_bytes = 16 << 10});
  OnDevice stripe(life.driver, life.work, 0);
  const core::Task task = stripe.task(*life.prepared, Mode::assign);
  const auto [status, message] = status_of([&] { life.backend->submit(slices(task, 500), life.control); });
  EXPECT_EQ(status, TANDEM_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(message.find("has no 32000 bytes left"), std::string::npos) << message;
  life.backend->submit(slices(task, 100), life.control)->wait();
  life.expect(stripe);
}

// Another thread's capture neither stops what we do nor is ended by it, from the device's first use to its release.
TEST(CudaDeviceMemory, AnotherThreadsCaptureIsLeftAlone) {
  for (const char *technique : {"tables", "compiled"}) {
    FakeCuda driver;
    const CUstream captured = driver.make_stream();
    // It lives until the end: threads that compile must not get its id.
    std::atomic<bool> is_begun = false, is_over = false;
    std::thread capturer([&] {
      driver.begin_capture(captured);
      is_begun = true;
      is_begun.notify_one();
      is_over.wait(false);
    });
    is_begun.wait(false);
    for (const Way way : kWays) {
      for (const Mode mode : kModes) {
        Work work(3, 5, 30'000);
        const auto backend = gpu::make_backend(fake_options(driver, technique), base::Log());
        const auto prepared = backend->prepare(work.matrix);
        work.reset();
        run_way(driver, way, *backend, *prepared, work, mode);
        EXPECT_TRUE(work.is_right(mode)) << technique;
      }
    }
    is_over = true;
    is_over.notify_one();
    capturer.join();
    EXPECT_FALSE(driver.is_capture_invalid(captured));
    EXPECT_EQ(driver.end_capture(captured), 0u);
    driver.destroy(captured);
    expect_clean(driver, "another thread's capture");
  }
}

// The wait for an unwaited job uses the job's own event, because its stream may be captured by then.
TEST(CudaDeviceMemory, AForgottenJobLeavesALaterCaptureAlone) {
  Life life(3, 5, 30'000);
  OnDevice stripe(life.driver, life.work, 0);
  auto ticket = life.submit(stripe);
  std::thread([&] { life.driver.begin_capture(stripe.stream); }).join();
  ticket.reset();
  stripe.look();
  EXPECT_TRUE(life.work.is_right(Mode::assign)) << "the job was not waited for";
  EXPECT_FALSE(life.driver.is_capture_invalid(stripe.stream));
  life.driver.end_capture(stripe.stream);
  EXPECT_FALSE(life.heard.has("given up")) << life.heard.text;
  life.run(stripe);
}

TEST(CudaDeviceMemory, ANullStreamIsTheLegacyDefaultStream) {
  Life life(2, 3, 5000);
  OnDevice stripe(life.driver, life.work, 0);
  for (void *const queue : {static_cast<void *>(nullptr), static_cast<void *>(CU_STREAM_LEGACY)}) {
    life.work.reset();
    stripe.write();
    core::Task task = stripe.task(*life.prepared, Mode::assign);
    task.queue = queue;
    const auto ticket = life.backend->submit({&task, 1}, life.control);
    life.driver.synchronize(stripe.stream);
    stripe.look();
    EXPECT_FALSE(life.work.is_right(Mode::assign)) << "not in the caller's other stream";
    life.driver.synchronize(CU_STREAM_LEGACY);
    life.expect(stripe);
    ticket->wait();
  }
}

TEST(CudaDeviceMemory, WrongPointersAndStreamsAreRefused) {
  Life life(2, 3, 5000, {.script = {.devices = {FakeGpu(), FakeGpu()}}});
  OnDevice stripe(life.driver, life.work, 0);
  const CUdeviceptr elsewhere = life.driver.allocate(5000, 1), small = life.driver.allocate(4999),
                    gone = life.driver.allocate(5000);
  life.driver.free(gone);
  const CUstream foreign = life.driver.make_stream(0, false), second = life.driver.make_stream(1);
  const auto refused = [&](const char *part, const void *input, void *queue) {
    core::Task task = stripe.task(*life.prepared, Mode::assign);
    std::vector<const std::byte *> in = stripe.in;
    task.inputs = in.data();
    if (queue == nullptr) in[1] = static_cast<const std::byte *>(input);
    if (queue != nullptr) task.queue = queue;
    const std::uint64_t commands = life.driver.command_count();
    const auto [status, message] = status_of([&] { life.backend->submit({&task, 1}, life.control); });
    EXPECT_EQ(status, TANDEM_ERROR_INVALID_ARGUMENT) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_EQ(life.driver.command_count(), commands) << part;
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
  for (const CUdeviceptr each : {elsewhere, small}) life.driver.free(each);
  for (const CUstream each : {foreign, second}) life.driver.destroy(each);
}

// ---- a verify's records --------------------------------------------------------------------------------------

// Outputs that differ in a few places, of which task.ranges and mismatches have to tell.
struct Damaged : Life {
  Damaged(unsigned rows, unsigned columns, std::uint64_t bytes, const With &with)
      : Life(rows, columns, bytes, with), differs(rows, std::vector<std::uint8_t>(bytes)) {
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
  tandem_status verify(OnDevice &stripe, std::uint64_t capacity) {
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

TEST(CudaVerify, RangesOfAnyCapacity) {
  for (const FakeSummarise summarise : {FakeSummarise::absent, FakeSummarise::works, FakeSummarise::fails}) {
    Damaged damaged(5, 3, 90'001, {.script = {.summarise = summarise}, .technique = "tables"});
    for (const std::uint64_t skew : {0, 6}) {
      OnDevice stripe(damaged.driver, damaged.work, skew);
      for (const std::uint64_t capacity : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{7}, UINT64_MAX})
        EXPECT_EQ(damaged.verify(stripe, capacity), TANDEM_OK);
      EXPECT_GE(damaged.range_count, 10u);
    }
  }
}

// More ranges than are fetched at once; and every byte wrong, which is one range.
TEST(CudaVerify, ManyRangesAndOne) {
  Damaged damaged(1, 1, 5'000'000, {.script = {.summarise = FakeSummarise::works}, .technique = "tables"});
  for (std::uint64_t at = 0; at < damaged.work.bytes; at += 4096) {
    damaged.work.before[0][at] ^= 1;
    damaged.differs[0][at] = true;
  }
  OnDevice stripe(damaged.driver, damaged.work, 0);
  EXPECT_EQ(damaged.verify(stripe, 1'000'000), TANDEM_OK);
  EXPECT_EQ(damaged.range_count, 1221u);
  EXPECT_EQ(damaged.calls("summarise"), 2u);
  damaged.work.before[0] = damaged.work.product[0];
  for (std::uint8_t &byte : damaged.work.before[0]) byte ^= 7;
  damaged.differs[0].assign(damaged.work.bytes, true);
  stripe.write();
  EXPECT_EQ(damaged.verify(stripe, 10), TANDEM_OK);
  EXPECT_EQ(damaged.range_count, 1u);
}

// With any budget, and any room on the device, a verify is right or has a status: it goes in pieces before it fails.
// What the reduction takes is of the budget too.
TEST(CudaVerify, ShortOfMemoryItGoesInPiecesAndThenFails) {
  for (const FakeSummarise summarise : {FakeSummarise::works, FakeSummarise::absent}) {
    for (const bool of_budget : {true, false}) {
      unsigned whole = 0, in_pieces = 0, refused = 0, reduced = 0;
      for (std::uint64_t room = 0; room < 12'000; room += kThinning * (room < 1500 ? 24 : 500)) {
        FakeCudaScript script = {.summarise = summarise};
        if (!of_budget) script.devices[0].available_bytes = room;
        Damaged damaged(6, 3, 60'001,
                        {.script = script,
                         .technique = "compiled",
                         .budget_bytes = of_budget ? std::max<std::uint64_t>(room, 1) : 0});
        OnDevice stripe(damaged.driver, damaged.work, room % 5);
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
        reduced += damaged.calls("summarise") != 0;
        EXPECT_LE(damaged.driver.most_device_bytes(), room);
        EXPECT_FALSE(damaged.heard.has("on the host")) << "too little room now says nothing of the next time";
      }
      EXPECT_GE(whole, thinned(10));
      EXPECT_GE(in_pieces, thinned(30));
      EXPECT_GE(refused, thinned(10));
      EXPECT_EQ(reduced != 0, summarise == FakeSummarise::works);
    }
  }
}

// What a plan's jobs left behind is there for another plan.
TEST(CudaVerify, IdleRecordsAreGivenBack) {
  Damaged one(20, 2, 100'000, {.technique = "compiled", .budget_bytes = 40'000});
  Work other(19, 2, 100'000);
  const auto prepared_other = one.backend->prepare(other.matrix);
  OnDevice stripe_one(one.driver, one.work, 0), stripe_other(one.driver, other, 0);
  for (unsigned round = 0; round < 3; ++round) {
    const std::uint64_t calls = one.backend->kernel_calls();
    EXPECT_EQ(one.verify(stripe_one, 10), TANDEM_OK);
    other.reset();
    const core::Task task = stripe_other.task(*prepared_other, Mode::compare);
    one.backend->run({&task, 1}, one.control);
    EXPECT_TRUE(other.is_right(Mode::compare));
    EXPECT_EQ(one.backend->kernel_calls(), calls + 2) << "in pieces, though one plan's memory lies idle";
  }
  EXPECT_LE(one.driver.most_device_bytes(), 40'000u);
}

// A submit in pieces that is cancelled between them.
TEST(CudaVerify, InPiecesItCanBeCancelled) {
  Damaged damaged(6, 3, 200'000, {.technique = "compiled", .budget_bytes = 1000});
  damaged.make_ready(Mode::compare);
  OnDevice stripe(damaged.driver, damaged.work, 0);
  core::Control control;
  damaged.driver.set_script({.cancelling_command = 4, .control = &control});
  damaged.work.reset();
  const core::Task task = stripe.task(*damaged.prepared, Mode::compare);
  EXPECT_EQ(status_of([&] { damaged.backend->submit({&task, 1}, control); }).first, TANDEM_ERROR_CANCELLED);
  EXPECT_LE(damaged.driver.command_count(), 10u);
  damaged.driver.set_script({});
  EXPECT_EQ(damaged.verify(stripe, 1000), TANDEM_OK);
}

// ---- staging, and memory of the host ---------------------------------------------------------------------------

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

// A piece is one upload and one download, and one wait. Three pieces are under way before the first wait.
TEST(CudaStaging, KeepsBothEnginesBusy) {
  const Values small({{"staging_bytes", 64 << 10}});
  for (const Mode mode : kModes) {
    const auto copier = std::make_shared<CountingCopier>();
    Life life(2, 3, 200'000, {.technique = "tables", .tuning = &small, .copier = copier});
    life.run(Way::staged, mode);  // allocates
    life.driver.set_script({});
    std::uint64_t uploads_before_first_wait = 0;
    copier->before = [&] {
      if (life.calls("cuEventQuery") == 0) uploads_before_first_wait = life.calls("cuMemcpyHtoDAsync");
    };
    life.run(Way::staged, mode);
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
  Life life(1, 40, 1 << 20,
            {.script = with_gpu([](FakeGpu &gpu) {
               gpu.memory_bytes = gpu.free_bytes = gpu.available_bytes = std::uint64_t{1} << 36;
             }),
             .technique = "tables"});
  life.run(Way::pinned);
  EXPECT_EQ(life.calls("cuMemcpyHtoDAsync"), 1u + 40u) << "tables, and each shard at once";
}

// What is done at a look lets no thread sleep; an error that the look finds is the error of the run.
TEST(CudaStaging, WaitsLookBeforeTheySleep) {
  FakeCudaScript script = {.is_done_when_asked = true};
  Life life(2, 3, 50'000, {.script = script, .technique = "tables"});
  for (const Way way : {Way::staged, Way::on_device}) {
    life.driver.set_script(script);
    life.run(way);
    EXPECT_GE(life.calls("cuEventQuery"), 1u);
    EXPECT_EQ(life.calls("cuEventSynchronize"), 0u);
  }
  script.query_error = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  life.driver.set_script(script);
  const std::string refusal = status_of([&] { life.work.run(*life.backend, *life.prepared, Mode::assign); }).second;
  EXPECT_NE(refusal.find("cuEventQuery"), std::string::npos) << refusal;
  life.driver.set_script({});
  life.run(Way::staged);
}

// Pinned by the program, or by a device that shares the host's memory: each shard is copied from where it lies.
TEST(CudaMemory, PinnedShardsAreNotStaged) {
  for (const bool shares : {false, true}) {
    const auto copier = std::make_shared<CountingCopier>();
    Life life(2, 3, 50'000,
              {.script = with_gpu([&](FakeGpu &gpu) { gpu.reads_pageable = gpu.uses_host_page_tables = shares; }),
               .copier = copier});
    life.run(shares ? Way::staged : Way::pinned);
    EXPECT_EQ(life.calls("cuMemHostAlloc"), 0u);
    EXPECT_EQ(life.calls("cuMemcpyHtoDAsync"), 1u + 3u) << "tables, and each shard from where it lies";
    EXPECT_EQ(life.calls("cuMemcpyDtoHAsync"), 2u);
    EXPECT_EQ(copier->run_count, 0u);
    life.run(shares ? Way::staged : Way::pinned, Mode::accumulate);
    if (shares) continue;
    // All but one, and of that one only a part: it is copied as others are.
    for (const std::byte *shard : {life.work.in[0], life.work.in[2], static_cast<const std::byte *>(life.work.out[0]),
                                   static_cast<const std::byte *>(life.work.out[1])})
      life.driver.register_host(shard, 50'000);
    life.driver.register_host(life.work.in[1], 49'999);
    copier->run_count = copier->copied_bytes = 0;
    life.run(Way::staged);
    EXPECT_EQ(copier->copied_bytes, 50'000u);
    EXPECT_EQ(copier->run_count, 1u);
    for (const std::byte *shard : life.work.in) life.driver.unregister_host(shard);
    for (const std::byte *shard : life.work.out) life.driver.unregister_host(shard);
  }
}

// The first run pins, for all devices and contexts; later ones find it done, until the memory is unregistered.
TEST(CudaMemory, RegisteredShardsArePinnedOnceAndNotStaged) {
  Life life(2, 3, 50'000, {.script = {.devices = {FakeGpu(), FakeGpu()}}});
  gpu::Options options = life.options;
  options.device = "cuda:1";
  const auto other = gpu::make_backend(options, base::Log());
  const auto run_other = [&] {
    life.work.reset();
    life.work.run(*other, *other->prepare(life.work.matrix), Mode::assign);
    EXPECT_TRUE(life.work.is_right(Mode::assign));
  };
  {
    const core::Task task = life.host_task();
    const Registered registered(nullptr, {&task, 1});
    EXPECT_EQ(life.calls("cuMemHostRegister"), 0u) << "no run has used them";
    for (unsigned run = 0; run < 3; ++run) {
      run < 2 ? life.run(Way::staged) : run_other();
      EXPECT_EQ(life.calls("cuMemHostRegister"), 5u);
      EXPECT_EQ(life.calls("cuMemHostAlloc"), 0u);
    }
    life.run(Way::staged, Mode::compare);
    life.backend.reset();  // the pins do not need it
    EXPECT_EQ(life.driver.live()["registered memory"], 5);
  }
  EXPECT_EQ(life.driver.live()["registered memory"], 0);
  EXPECT_EQ(life.calls("cuMemHostUnregister"), 5u);
  const std::uint64_t pinned = life.calls("cuMemHostAlloc");
  run_other();
  EXPECT_GT(life.calls("cuMemHostAlloc"), pinned) << "staged again";
}

// Shards in the middle of one registered range; it may be one that the program has pinned by CUDA, so that hybrids do
// not copy it.
TEST(CudaMemory, ARangeIsPinnedAsAWhole) {
  for (const bool by_cuda : {false, true}) {
    Life life(1, 1, 10'000);
    std::vector<std::byte> block(30'000);
    if (by_cuda) life.driver.register_host(block.data(), block.size());
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
    if (by_cuda) life.driver.unregister_host(block.data());
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
      Life life(2, 3, 50'000,
                {.script = with_gpu([&](FakeGpu &gpu) { gpu.is_integrated = gpu.reads_pageable = shares; })});
      const core::Task task = life.host_task(mode);
      const Registered known(&life.driver, {&task, 1});
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
  Life life(1, 1, 10'000);
  life.run(Way::staged);  // has staging memory from now on
  life.driver.set_script({.pinned_limit_bytes = 1});
  const core::Task task = life.host_task();
  const Registered registered(nullptr, {&task, 1});
  for (unsigned run = 0; run < 2; ++run) {
    life.run(Way::staged);
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
      Life life(4, 10, 100'001, {.script = script, .technique = "compiled"});
      for (const Mode mode : {Mode::assign, Mode::accumulate}) {
        life.work.reset();
        const auto [status, message] = status_of([&] { life.work.run(*life.backend, *life.prepared, mode); });
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
    const auto [status, message] = status_of([&] { backend->prepare(core::Matrix(1, 1)); });
    EXPECT_EQ(status, TANDEM_ERROR_UNAVAILABLE) << message;
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
  EXPECT_EQ(message, "backend \"cuda\": /there has version 1, this library needs version 7");
  other = *driver.table();
  other.struct_bytes = 8;
  EXPECT_NE(status_of([&] { module.check(&other, "/there"); }).second.find("a table of 8 bytes"), std::string::npos);
  EXPECT_EQ(status_of([&] { module.check(nullptr, "/there"); }).first, TANDEM_ERROR_UNAVAILABLE);
}

TEST(CudaDevices, AreChosenByName) {
  FakeCudaScript script;
  script.devices.resize(3);
  script.devices[0].major = 6;
  FakeCuda driver(script);
  const auto chosen = [&](const char *name) {
    gpu::Options options = fake_options(driver);
    options.device = name;
    const auto backend = gpu::make_backend(options, base::Log());
    EXPECT_EQ(backend->traits().name, name) << "nothing is asked before the first call";
    backend->prepare(core::Matrix(1, 1));
    return backend->traits().name;
  };
  EXPECT_EQ(chosen("cuda"), "cuda:1") << "the first that can be used";
  EXPECT_EQ(chosen("cuda:2"), "cuda:2");
  const auto [status, message] = status_of([&] { chosen("cuda:0"); });
  EXPECT_EQ(status, TANDEM_ERROR_UNAVAILABLE);
  EXPECT_NE(message.find("known: cuda:1, cuda:2"), std::string::npos) << message;
  EXPECT_NE(message.find("cuda:0 (Fake GPU) left out"), std::string::npos) << message;
  const device::Listing listing = gpu::describe_devices(std::chrono::seconds(20), driver.table());
  ASSERT_EQ(listing.devices.size(), 2u);
  EXPECT_EQ(listing.devices[0].name, "cuda:1");
  EXPECT_NE(listing.devices[0].description.find("compute capability 9.0"), std::string::npos);
  for (const char *name : {"cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda:99999999999", "cuda:0,cuda:1", "cpu"})
    EXPECT_FALSE(gpu::is_device_name(name)) << name;
  gpu::Options options = fake_options(driver, "avx2");
  EXPECT_EQ(status_of([&] { gpu::make_backend(options, base::Log()); }).first, TANDEM_ERROR_UNAVAILABLE);
}

// Known from the first look on. Reaching pageable memory is not enough: a discrete GPU does that by moving pages.
TEST(CudaDevices, SaysWhetherItSharesTheHostsMemory) {
  for (const bool integrated : {false, true}) {
    for (const bool pageable : {false, true}) {
      for (const bool page_tables : {false, true}) {
        FakeCuda driver(with_gpu([&](FakeGpu &gpu) {
          gpu.is_integrated = integrated;
          gpu.reads_pageable = pageable;
          gpu.uses_host_page_tables = page_tables;
        }));
        const auto backend = gpu::make_backend(fake_options(driver), base::Log());
        EXPECT_FALSE(backend->traits().shares_memory) << "not looked for yet";
        backend->prepare(core::Matrix(1, 1));
        EXPECT_EQ(backend->traits().shares_memory, pageable && (integrated || page_tables));
      }
    }
  }
}

TEST(CudaDevices, NothingIsTouchedBeforeTheFirstCall) {
  FakeCuda driver;
  const auto backend = gpu::make_backend(fake_options(driver), base::Log());
  EXPECT_EQ(backend->traits().lanes, 2u);
  EXPECT_EQ(driver.call_count(), 0u);
}

// The caller's current context is current again after each call, and no context stays behind without one.
TEST(CudaDevices, TheCurrentContextIsLeftAsItWas) {
  FakeCuda driver;
  Work work(2, 3, 5000);
  driver.table()->cuCtxPushCurrent(driver.context(0));
  {
    const auto backend = gpu::make_backend(fake_options(driver), base::Log());
    const auto prepared = backend->prepare(work.matrix);
    for (const Way way : kWays) {
      run_way(driver, way, *backend, *prepared, work, Mode::assign);
      EXPECT_EQ(fake_context_depth(), 1u);
    }
  }
  EXPECT_EQ(fake_context_depth(), 1u);
  CUcontext popped = nullptr;
  driver.table()->cuCtxPopCurrent(&popped);
  EXPECT_EQ(popped, driver.context(0));
  expect_clean(driver, "a context of the caller's");
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
               {{.refuses_cubins = true}, "refuses what NVRTC 12.4 compiled"},
               {{.driver_version = 11080, .refuses_cubins = true},
                "made by CUDA 12.4, which needs a driver of CUDA 12.0 or later"},
               {{.refuses_text = true}, kStoppedCompiling},
               {{.refuses_text = true}, "fake: no"}};
  // What a tuning file says about compiled kernels does not switch off the tables that came with the library.
  const Values tuning({{"compile_after_bytes", 30'000}, {"elements_per_item", 4}, {"loads", 1}});
  for (const auto &[script, why] : cases) {
    Life life(2, 4, 30'000, {.script = script, .tuning = &tuning});
    for (const Way way : kWays)
      for (const Mode mode : kModes) life.run(way, mode);
    EXPECT_TRUE(life.heard.has("technique tables")) << life.heard.text;
    wait_until([&, why = why] { return life.heard.has(why); }, why);
    gpu::Options options = life.options;
    options.technique = "compiled";
    const auto forced = gpu::make_backend(options, base::Log());
    const auto run = [&] { life.work.run(*forced, *forced->prepare(life.work.matrix), Mode::assign); };
    EXPECT_EQ(status_of(run).first, TANDEM_ERROR_UNAVAILABLE);
  }
}

TEST(CudaPrograms, PtxOfTheNewestArchitectureThatNvrtcKnows) {
  Life life(2, 4, 3000, {.script = {.architectures = {75, 80, 86}}, .technique = "compiled"});
  life.run(Way::staged);
  EXPECT_EQ(life.calls("nvrtcGetPTXSize"), 1u);
}

// An image that the driver does not take, or that this build has not: tables by NVRTC; without that a clear error.
TEST(CudaPrograms, TablesWithoutAnImageAreCompiled) {
  for (const bool has_nvrtc : {true, false}) {
    for (const bool refused : {true, false}) {
      Life life(2, 4, 3000,
                {.script = {.nvrtc_problem = has_nvrtc ? nullptr : "NVRTC is not installed",
                            .has_image = refused,
                            .refuses_image = refused},
                 .technique = "tables"});
      const auto [status, message] = status_of([&] { life.work.run(*life.backend, *life.prepared, Mode::assign); });
      EXPECT_EQ(life.heard.has(kImageRefused), refused) << life.heard.text;
      EXPECT_EQ(status, has_nvrtc ? TANDEM_OK : TANDEM_ERROR_UNAVAILABLE) << message;
      EXPECT_EQ(life.work.is_right(Mode::assign), has_nvrtc);
      EXPECT_EQ(message.find("NVRTC is not installed") != std::string::npos, !has_nvrtc) << message;
    }
  }
}

struct Folder {
  Folder() { path = mkdtemp(name); }
  ~Folder() { std::filesystem::remove_all(path); }
  char name[32] = "/tmp/tandem-cuda-XXXXXX";
  std::string path;
};

// The real compiler's machine code goes the whole way to the driver, by memory and by disk.
TEST(CudaPrograms, TheRealCompiler) {
  if (!has_real_nvrtc()) GTEST_SKIP() << "NOT RUN: no NVRTC on this machine";
  const Folder folder;
  for (unsigned turn = 0; turn < 2; ++turn) {
    for (const char *technique : {"compiled", "tables"}) {
      Life life(4, 10, 20'000,
                {.script = {.has_image = false, .real_nvrtc = true},
                 .technique = technique,
                 .cache_folder = folder.path + "/cuda"});
      for (const Mode mode : kModes) life.run(Way::staged, mode);
      EXPECT_EQ(life.compiles(), turn == 0 ? 2u : 0u) << "assign and compare";
    }
  }
}

}  // namespace
}  // namespace tandem::test
