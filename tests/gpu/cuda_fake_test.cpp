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
#include "tests/conformance/suite.hpp"
#include "tests/conformance/work.hpp"
#include "tests/gpu/fake_driver.hpp"
#include "tests/support/mismatch_ranges.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/thinned.hpp"

namespace tandem::test {
namespace {

using core::Mode;

constexpr Mode kModes[] = {Mode::assign, Mode::accumulate, Mode::compare};

gpu::Options fake_options(const FakeCuda &driver, const char *technique = "") {
  gpu::Options options;
  options.driver = driver.table();
  options.generate = fake_cuda_generate;
  options.technique = technique;
  return options;
}

// Shards of tasks are registered with the driver, as a caller may do with memory of its own, while this lives.
class Registered {
 public:
  Registered(FakeCuda &driver, std::span<const core::Task> tasks) : driver_(driver) {
    for (const core::Task &task : tasks) {
      const std::uint64_t end = task.offset_bytes + task.length_bytes;
      for (unsigned c = 0; c < task.prepared->columns(); ++c) note(task.inputs[c], end);
      for (unsigned r = 0; r < task.prepared->rows(); ++r) note(task.outputs[r], end);
    }
    for (const auto &[memory, bytes] : bytes_) driver_.register_host(memory, bytes);
  }
  ~Registered() {
    for (const auto &[memory, bytes] : bytes_) driver_.unregister_host(memory);
  }
  Registered(const Registered &) = delete;
  Registered &operator=(const Registered &) = delete;

 private:
  void note(const void *memory, std::uint64_t end) { bytes_[memory] = std::max(bytes_[memory], end); }
  FakeCuda &driver_;
  std::map<const void *, std::uint64_t> bytes_;
};

// A backend that owns its driver.
class FakeBackend final : public core::Backend {
 public:
  FakeBackend(const char *technique, bool pinned, std::uint64_t memory_bytes = 0)
      : driver_(driver()), is_pinned_(pinned) {
    gpu::Options options = fake_options(*driver_, technique);
    options.memory_budget_bytes = memory_bytes;
    backend_ = gpu::make_backend(options, base::Log());
  }
  const core::Traits &traits() const noexcept override { return backend_->traits(); }
  std::shared_ptr<const core::Prepared> prepare(const core::Operator &what) override { return backend_->prepare(what); }
  void run(std::span<const core::Task> tasks, core::Control &control) override {
    if (!is_pinned_) return backend_->run(tasks, control);
    const Registered registered(*driver_, tasks);
    backend_->run(tasks, control);
  }

 private:
  // Shared by the backends of a test that has two.
  static std::shared_ptr<FakeCuda> driver() {
    static std::weak_ptr<FakeCuda> last;
    std::shared_ptr<FakeCuda> driver = last.lock();
    if (driver == nullptr) last = driver = std::make_shared<FakeCuda>();
    return driver;
  }
  std::shared_ptr<FakeCuda> driver_;
  bool is_pinned_;
  std::unique_ptr<core::Backend> backend_;
};

std::vector<BackendMaker> makers() {
  std::vector<BackendMaker> list;
  for (const char *technique : {"tables", "compiled"}) {
    list.push_back(
        {std::string("staged_") + technique, [=] { return std::make_unique<FakeBackend>(technique, false); }, ""});
    list.push_back(
        {std::string("pinned_") + technique, [=] { return std::make_unique<FakeBackend>(technique, true); }, ""});
  }
  list.push_back({"little_memory", [] { return std::make_unique<FakeBackend>("tables", false, 1 << 20); }, ""});
  return list;
}

INSTANTIATE_TEST_SUITE_P(CudaFake, BackendConformance, testing::ValuesIn(makers()), maker_name);
// The real drivers' conformance has the forms.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FormConformance);

struct Threshold : core::TuningSource {
  core::TuningChoice find(const core::TuningQuery &) const override {
    return {{{"compile_after_bytes", 30'000}, {"element_bytes", 32}}, "for this test"};
  }
};

// What a test expects of every driver in the end.
void expect_clean(const FakeCuda &driver, const std::string &after) {
  const auto live = driver.live();
  EXPECT_TRUE(live.empty()) << live.begin()->first << " x " << live.begin()->second << " left after " << after;
  const auto violations = driver.violations();
  EXPECT_TRUE(violations.empty()) << violations.front() << ", after " << after;
  EXPECT_EQ(fake_context_depth(), 0u) << after;
  EXPECT_TRUE(is_fake_capture_mode_global()) << after;
}

// Again and again until it is true: what another thread brings about.
void wait_until(const std::function<bool()> &is_so, const char *what) {
  for (unsigned i = 0; i < 6000; ++i) {
    if (is_so()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  FAIL() << "after a minute still not: " << what;
}

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

// The fake as the CUDA of a program.
class FakeProgram final : public CudaProgram {
 public:
  explicit FakeProgram(FakeSummarise summarise) : script_(of(summarise)), driver_(script_) {}
  ~FakeProgram() override { expect_clean(driver_, "a program's life"); }
  gpu::Options options(const char *technique) const override { return fake_options(driver_, technique); }
  std::uint64_t large_bytes() const override { return kThinning == 1 ? 200'003 : 50'003; }
  CUdeviceptr allocate(std::uint64_t bytes) override { return driver_.allocate(bytes); }
  void free(CUdeviceptr memory) override { driver_.free(memory); }
  void write(CUdeviceptr to, const void *from, std::uint64_t bytes) override {
    std::memcpy(reinterpret_cast<void *>(to), from, bytes);
  }
  void read(void *to, CUdeviceptr from, std::uint64_t bytes) override {
    std::memcpy(to, reinterpret_cast<const void *>(from), bytes);
  }
  CUstream make_stream() override { return driver_.make_stream(); }
  void destroy(CUstream stream) override { driver_.destroy(stream); }
  void synchronize(CUstream stream) override { driver_.synchronize(stream); }
  void begin_capture(CUstream stream) override { driver_.begin_capture(stream); }
  void end_capture(CUstream stream) override { EXPECT_EQ(driver_.end_capture(stream), 1u); }
  void launch_graph(CUstream) override { driver_.launch_graph(); }
  void break_stream(CUstream) override {
    FakeCudaScript broken = script_;
    broken.failing_command = 0;
    driver_.set_script(broken);
  }
  void let_fail() override {}  // nothing happens before it is waited for

 private:
  static FakeCudaScript of(FakeSummarise summarise) {
    FakeCudaScript script;
    script.summarise = summarise;
    return script;
  }
  const FakeCudaScript script_;
  FakeCuda driver_;
};

std::vector<CudaMaker> cuda_makers() {
  return {{"reduced_on_the_device", [] { return std::make_unique<FakeProgram>(FakeSummarise::works); }, ""},
          {"reduced_on_the_host", [] { return std::make_unique<FakeProgram>(FakeSummarise::absent); }, ""}};
}
INSTANTIATE_TEST_SUITE_P(CudaFake, CudaShards, testing::ValuesIn(cuda_makers()), cuda_maker_name);
INSTANTIATE_TEST_SUITE_P(CudaFake, CudaShardsDeathTest, testing::ValuesIn(cuda_makers()), cuda_maker_name);

// A stripe in device memory, on a stream of the caller.
class OnDevice {
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
  ~OnDevice() {
    driver_.destroy(stream);
    for (const CUdeviceptr each : memory_) driver_.free(each);
  }
  OnDevice(const OnDevice &) = delete;
  OnDevice &operator=(const OnDevice &) = delete;

  void write() {
    driver_.synchronize(stream);
    for (std::size_t c = 0; c < in.size(); ++c)
      std::memcpy(const_cast<std::byte *>(in[c]) + in_offsets[c], work_.inputs[c].data(), work_.bytes);
    for (std::size_t r = 0; r < out.size(); ++r)
      std::memcpy(out[r] + out_offsets[r], work_.before[r].data(), work_.bytes);
  }
  // What the device holds now; nothing is waited for.
  void read() {
    for (std::size_t r = 0; r < out.size(); ++r)
      std::memcpy(work_.outputs[r].data(), out[r] + out_offsets[r], work_.bytes);
  }
  core::Task task(const core::Prepared &prepared, Mode mode) {
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

// The ways of a task through the backend.
// pinned: by the program, with CUDA; registered: with Tandem.
// many_*: cut into many stripes.
enum class Way { staged, pinned, registered, on_device, many_staged, many_on_device };
constexpr Way kWays[] = {Way::staged, Way::pinned, Way::registered, Way::on_device};
constexpr Way kManyWays[] = {Way::many_staged, Way::many_on_device};

// Shards of a stripe, registered while this lives.
class RegisteredShards {
 public:
  explicit RegisteredShards(const Work &work) : shards_(work.in.begin(), work.in.end()) {
    shards_.insert(shards_.end(), work.out.begin(), work.out.end());
    for (const std::byte *shard : shards_) core::register_memory(shard, work.bytes);
  }
  ~RegisteredShards() {
    for (const std::byte *shard : shards_) core::unregister_memory(shard);
  }
  RegisteredShards(const RegisteredShards &) = delete;
  RegisteredShards &operator=(const RegisteredShards &) = delete;

 private:
  std::vector<const std::byte *> shards_;
};

void run_way(FakeCuda &driver, Way way, core::Backend &backend, const core::Prepared &prepared, Work &work, Mode mode) {
  core::Control control;
  if (way == Way::on_device || way == Way::many_on_device) {
    OnDevice stripe(driver, work, 0);
    const core::Task task = stripe.task(prepared, mode);
    backend.run(way == Way::on_device ? std::vector{task} : uneven_slices(task, true), control);
    stripe.read();
    return;
  }
  const core::Task task = {&prepared, work.in.data(), work.out.data(), 0, work.bytes, mode, work.mismatches.data()};
  if (way == Way::many_staged) return backend.run(uneven_slices(task, false), control);
  if (way == Way::staged) return backend.run({&task, 1}, control);
  if (way == Way::registered) {
    const RegisteredShards registered(work);
    return backend.run({&task, 1}, control);
  }
  const Registered registered(driver, {&task, 1});
  backend.run({&task, 1}, control);
}

// The n-th call, or command, fails, for every n that a life of a backend has: each time that is a status, or it did not
// matter and the bytes are right. After an error that leaves the device alone nothing is leaked and the next run works;
// after one that does not the device is given up, and later calls say so.
struct Failing {
  Way way;
  const char *technique;
  Mode mode;
  CUresult error = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  bool by_command = false;
};

void fail_every(const Failing &what) {
  Work work(3, 5, 10'000);
  const auto life = [&](FakeCuda &driver, const std::function<void(core::Backend &, const core::Prepared &)> &body) {
    gpu::Options options = fake_options(driver, what.technique);
    options.memory_budget_bytes = 1 << 18;  // several pieces
    const auto backend = gpu::make_backend(options, base::Log());
    const auto prepared = backend->prepare(work.matrix);
    body(*backend, *prepared);
  };
  FakeCudaScript script;
  script.failing_error = what.error;
  std::uint64_t count = 0;
  {
    FakeCuda driver(script);
    work.reset();
    life(driver, [&](core::Backend &backend, const core::Prepared &prepared) {
      run_way(driver, what.way, backend, prepared, work, what.mode);
      ASSERT_TRUE(work.is_right(what.mode));
    });
    expect_clean(driver, "a life without failures");
    count = what.by_command ? driver.command_count() : driver.call_count();
  }
  ASSERT_GE(count, what.by_command ? 1u : 20u);
  const bool kills = what.by_command || what.error == CUDA_ERROR_ILLEGAL_ADDRESS;
  unsigned statuses = 0, given_up = 0;
  const unsigned step = what.by_command ? 1 : kThinning;
  for (std::uint64_t n = static_cast<unsigned>(what.mode) % step; n < count; n += step) {
    (what.by_command ? script.failing_command : script.failing_call) = n;
    FakeCuda driver(script);
    work.reset();
    const auto where = [&] { return "call " + std::to_string(n) + ", " + driver.failed_call(); };
    const auto [status, message] = status_of([&] {
      life(driver, [&](core::Backend &backend, const core::Prepared &prepared) {
        const auto [in_run, text] = status_of([&] { run_way(driver, what.way, backend, prepared, work, what.mode); });
        if (in_run == TANDEM_OK) {
          ASSERT_TRUE(work.is_right(what.mode)) << where();
          return;
        }
        ++statuses;
        ASSERT_TRUE(in_run == TANDEM_ERROR_DEVICE || in_run == TANDEM_ERROR_OUT_OF_MEMORY ||
                    in_run == TANDEM_ERROR_UNAVAILABLE)
            << text << ", " << where();
        if (driver.failed_call().starts_with("nvrtc")) return;  // TablesWorkWithoutACompiler
        ASSERT_NE(text.find("failed with"), std::string::npos) << text;
        work.reset();
        const std::uint64_t calls = driver.call_count();
        const auto [again, why] = status_of([&] { run_way(driver, what.way, backend, prepared, work, what.mode); });
        if (again == TANDEM_OK) {
          ASSERT_FALSE(driver.is_dead());
          ASSERT_TRUE(work.is_right(what.mode)) << "the run after " << where();
        } else {
          ++given_up;
          ASSERT_EQ(again, TANDEM_ERROR_DEVICE) << why << ", " << where();
          ASSERT_NE(why.find("was given up"), std::string::npos) << why << ", " << where();
          ASSERT_EQ(driver.call_count(), calls) << "a device that was given up was asked";
        }
      });
    });
    if (status != TANDEM_OK) ++statuses;  // the device could not even be described
    if (!driver.is_dead() && given_up == 0) expect_clean(driver, where());
    ASSERT_EQ(fake_context_depth(), 0u) << where();
    if (!kills && given_up != 0) given_up = 0;  // a wait that could not be waited for
  }
  EXPECT_GT(statuses, count / 2 / step) << "of " << count;
  if (kills) {
    EXPECT_GE(given_up, 1u);
  }
}

TEST(CudaFaults, EveryCall) {
  for (const Way way : kWays)
    for (const Mode mode : kModes) fail_every({way, "tables", mode});
  for (const Way way : kWays) fail_every({way, "compiled", Mode::assign});
  for (const Way way : kManyWays)
    for (const char *technique : {"tables", "compiled"}) fail_every({way, technique, Mode::assign});
}

TEST(CudaFaults, EveryCallOutOfMemory) {
  for (const Way way : kWays) {
    Work work(3, 5, 10'000);
    std::uint64_t count = 1;
    unsigned worked = 0;
    for (std::uint64_t n = 0; n < count; ++n) {
      FakeCudaScript script;
      script.failing_call = n;
      script.failing_error = CUDA_ERROR_OUT_OF_MEMORY;
      FakeCuda driver(script);
      {
        gpu::Options options = fake_options(driver, "tables");
        const auto backend = gpu::make_backend(options, base::Log());
        std::shared_ptr<const core::Prepared> prepared;
        if (status_of([&] { prepared = backend->prepare(work.matrix); }).first != TANDEM_OK) {
          count = n + 2;
          continue;
        }
        work.reset();
        const auto [status, message] =
            status_of([&] { run_way(driver, way, *backend, *prepared, work, Mode::accumulate); });
        if (status == TANDEM_OK) {
          ASSERT_TRUE(work.is_right(Mode::accumulate)) << n;
          worked += !driver.failed_call().empty();
        } else {
          ASSERT_EQ(status, TANDEM_ERROR_OUT_OF_MEMORY) << message;
          work.reset();
          run_way(driver, way, *backend, *prepared, work, Mode::accumulate);
          ASSERT_TRUE(work.is_right(Mode::accumulate)) << n;
        }
        if (!driver.failed_call().empty()) count = n + 2;
      }
      expect_clean(driver, "call " + std::to_string(n));
    }
    EXPECT_GE(count, 20u);
    if (way == Way::staged) {
      EXPECT_GE(worked, 3u) << "smaller pieces were not tried";
    }
  }
}

TEST(CudaFaults, EveryCallThatKillsTheDevice) {
  for (const Way way : kWays)
    for (const Mode mode : {Mode::assign, Mode::compare}) fail_every({way, "tables", mode, CUDA_ERROR_ILLEGAL_ADDRESS});
  for (const Way way : kManyWays) fail_every({way, "tables", Mode::assign, CUDA_ERROR_ILLEGAL_ADDRESS});
}

// The GPU falls off the bus in the middle of a job.
TEST(CudaFaults, EveryCommandThatKillsTheDevice) {
  for (const Way way : kWays)
    for (const Mode mode : kModes) fail_every({way, "compiled", mode, CUDA_ERROR_LAUNCH_FAILED, true});
  for (const Way way : kManyWays) fail_every({way, "compiled", Mode::assign, CUDA_ERROR_LAUNCH_FAILED, true});
}

TEST(CudaFaults, ADeadDeviceIsDeadForEveryContextAndSaid) {
  FakeCudaScript script;
  FakeCuda driver(script);
  Heard heard;
  Work work(2, 3, 1000);
  const auto one = gpu::make_backend(fake_options(driver), heard.log());
  const auto other = gpu::make_backend(fake_options(driver), heard.log());
  const auto prepared = one->prepare(work.matrix);
  other->prepare(work.matrix);
  script.failing_command = 0;
  driver.set_script(script);
  work.reset();
  EXPECT_EQ(status_of([&] { work.run(*one, *prepared, Mode::assign); }).first, TANDEM_ERROR_DEVICE);
  EXPECT_TRUE(work.is_untouched()) << "pageable outputs are written when their piece is complete";
  EXPECT_TRUE(heard.has("is given up for the rest of this process")) << heard.text;
  const auto [status, message] = status_of([&] { other->prepare(work.matrix); });
  EXPECT_EQ(status, TANDEM_ERROR_DEVICE);
  EXPECT_NE(message.find("was given up"), std::string::npos) << message;
}

// At each command of a run: pieces that were complete by then are the product, the others are as before.
TEST(CudaFaults, ACancelDrainsAndTheNextRunWorks) {
  Work work(2, 3, 20'000);
  std::uint64_t count = 1;
  unsigned cancelled = 0;
  for (std::uint64_t n = 0; n < count; ++n) {
    FakeCuda driver;
    {
      gpu::Options options = fake_options(driver);
      options.memory_budget_bytes = 128 << 10;  // several pieces
      const auto backend = gpu::make_backend(options, base::Log());
      const auto prepared = backend->prepare(work.matrix);
      work.reset();
      core::Control control;
      FakeCudaScript script;
      script.cancelling_command = n;
      script.control = &control;
      driver.set_script(script);
      const core::Task task = {prepared.get(), work.in.data(), work.out.data(), 0, work.bytes, Mode::assign};
      const tandem_status status = status_of([&] { backend->run({&task, 1}, control); }).first;
      if (n == 0) count = 60;
      if (status == TANDEM_OK) {
        EXPECT_TRUE(work.is_right(Mode::assign)) << n;
        count = n;  // the last piece was on its way
      } else {
        ASSERT_EQ(status, TANDEM_ERROR_CANCELLED) << n;
        ++cancelled;
        for (std::size_t r = 0; r < 2; ++r) {
          for (std::size_t i = 0; i < work.bytes; ++i) {
            const std::uint8_t byte = work.outputs[r][i];
            ASSERT_TRUE(byte == work.product[r][i] || byte == work.before[r][i]) << n << ": byte " << i;
          }
        }
      }
      driver.set_script({});
      work.run(*backend, *prepared, Mode::assign);
      EXPECT_TRUE(work.is_right(Mode::assign)) << n;
    }
    expect_clean(driver, "a cancel at command " + std::to_string(n));
  }
  EXPECT_GE(cancelled, 15u);
}

// ---- shards in device memory ------------------------------------------------------------------------------

// CudaShards, the suite, asks for the bytes; here it is what the driver sees.
TEST(CudaDeviceMemory, AReductionThatFailsIsNotTriedAgain) {
  for (const FakeSummarise summarise : {FakeSummarise::absent, FakeSummarise::works, FakeSummarise::fails}) {
    FakeCudaScript script;
    script.summarise = summarise;
    FakeCuda driver(script);
    {
      Work work(3, 5, 30'001);
      Heard heard;
      const auto backend = gpu::make_backend(fake_options(driver), heard.log());
      const auto prepared = backend->prepare(work.matrix);
      OnDevice stripe(driver, work, 6);
      for (unsigned round = 0; round < 2; ++round) {
        work.reset();
        const core::Task task = stripe.task(*prepared, Mode::compare);
        core::Control control;
        backend->run({&task, 1}, control);
        ASSERT_TRUE(work.is_right(Mode::compare));
      }
      const bool fails = summarise == FakeSummarise::fails;
      EXPECT_EQ(driver.calls_of("summarise"), fails ? 1u : summarise == FakeSummarise::works ? 2u : 0u);
      EXPECT_EQ(heard.has("on the host: error 77 of the CUDA runtime, no room, by script"), fails) << heard.text;
      EXPECT_EQ(heard.has(kReducedByHost), fails);
    }
    expect_clean(driver, "device memory");
  }
}

// What a plan is made ready for costs its submits a launch, an event and questions about pointers, and nothing else.
TEST(CudaDeviceMemory, APreparedSubmitOnlyStartsAKernel) {
  for (const char *technique : {"tables", "compiled"}) {
    for (const Mode mode : kModes) {
      FakeCuda driver;
      Work work(3, 5, 30'000);
      const auto backend = gpu::make_backend(fake_options(driver, technique), base::Log());
      const auto prepared = backend->prepare(work.matrix);
      backend->make_ready(*prepared, mode, core::MemoryKind::cuda);
      // Aligned, unaligned, and once more of each.
      OnDevice aligned(driver, work, 0), unaligned(driver, work, 6);
      core::Control control;
      for (unsigned round = 0; round < 4; ++round) {
        OnDevice &stripe = round % 2 == 0 ? aligned : unaligned;
        work.reset();
        const core::Task task = stripe.task(*prepared, mode);
        driver.set_script({});
        work.reset();
        stripe.write();
        auto ticket = backend->submit({&task, 1}, control);
        for (const char *function :
             {"nvrtcCompileProgram", "cuModuleLoadData", "cuModuleGetFunction", "cuMemHostAlloc", "cuMemcpyHtoDAsync"})
          EXPECT_EQ(driver.calls_of(function), 0u) << function << ", round " << round;
        if (round > 0) {  // the first one makes an event, and room for records
          for (const char *function : {"cuMemAllocFromPoolAsync", "cuEventCreate", "cuStreamSynchronize",
                                       "cuEventSynchronize", "cuMemcpyHtoDAsync", "cuMemFreeAsync"})
            EXPECT_EQ(driver.calls_of(function), 0u) << function << ", round " << round;
        }
        EXPECT_EQ(driver.calls_of("cuLaunchKernel"), 1u);
        stripe.read();
        if (mode == Mode::assign) {
          EXPECT_FALSE(work.is_right(mode)) << "the submit waited for the kernel";
        }
        ticket->wait();
        stripe.read();
        EXPECT_TRUE(work.is_right(mode)) << technique << ", round " << round;
      }
    }
  }
}

// A kernel that was not prepared is compiled when the coded bytes pay for it, not before. A capture can use the plan in
// both cases.
TEST(CudaDeviceMemory, UnpreparedTheTechniqueFollowsTheBytes) {
  const Threshold tuning;
  FakeCuda driver;
  {
    gpu::Options options = fake_options(driver);
    options.tuning = &tuning;
    const auto backend = gpu::make_backend(options, base::Log());
    Work work(2, 4, 3000);  // 12,000 bytes a run
    const auto prepared = backend->prepare(work.matrix);
    OnDevice stripe(driver, work, 0);
    const core::Task task = stripe.task(*prepared, Mode::assign);
    core::Control control;
    for (unsigned run = 0; run < 4; ++run) {
      if (run < 3) {
        EXPECT_EQ(driver.calls_of("nvrtcCompileProgram"), 0u) << run;
      }
      if (run % 2 == 1) {
        driver.begin_capture(stripe.stream);
        backend->submit({&task, 1}, control)->wait();
        EXPECT_EQ(driver.end_capture(stripe.stream), 1u);
      }
      stripe.write();
      backend->run({&task, 1}, control);
      stripe.read();
      EXPECT_TRUE(work.is_right(Mode::assign)) << run;
    }
    wait_until([&] { return driver.calls_of("nvrtcCompileProgram") == 1; }, "compiled");
    const auto promised = backend->prepare(Work(2, 5, 1).matrix);
    backend->make_ready(*promised, Mode::assign, core::MemoryKind::cuda);
    EXPECT_EQ(driver.calls_of("nvrtcCompileProgram"), 3u) << "for shards anywhere";
  }
  expect_clean(driver, "unprepared runs");
}

// A kernel counts elements in 32 bits: what is longer takes several launches, into a graph too.
TEST(CudaDeviceMemory, MoreThanALaunchTakesGoesInPieces) {
  FakeCuda driver;
  {
    gpu::Options options = fake_options(driver);
    options.most_launch_bytes = 4096;
    const auto backend = gpu::make_backend(options, base::Log());
    Work work(3, 5, 30'000);
    const auto prepared = backend->prepare(work.matrix);
    core::Control control;
    for (const Mode mode : kModes) {
      backend->make_ready(*prepared, mode, core::MemoryKind::cuda);
      for (const std::uint64_t skew : {0, 5}) {
        work.reset();
        OnDevice stripe(driver, work, skew);
        const core::Task task = stripe.task(*prepared, mode);
        const std::uint64_t calls = backend->kernel_calls();
        if (mode == Mode::accumulate) {
          driver.begin_capture(stripe.stream);
          backend->submit({&task, 1}, control)->wait();
          EXPECT_EQ(driver.end_capture(stripe.stream), 8u);
          driver.launch_graph();
        } else {
          backend->run({&task, 1}, control);
        }
        EXPECT_EQ(backend->kernel_calls(), calls + 8);
        stripe.read();
        EXPECT_TRUE(work.is_right(mode)) << static_cast<int>(mode) << ", " << skew;
      }
    }
  }
  expect_clean(driver, "long shards");
}

// A plan's two programs: neither is written before the other one is begun. The threads that compile are left alone by
// signals.
TEST(CudaDeviceMemory, BothProgramsAreMadeAtOnce) {
  FakeCuda driver;
  {
    std::atomic<unsigned> begun = 0, met = 0, helpers = 0, open_to_signals = 0;
    gpu::Options options = fake_options(driver);
    options.generate = [&, caller = std::this_thread::get_id()](const core::Matrix &matrix,
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
    const auto backend = gpu::make_backend(options, base::Log());
    const auto prepared = backend->prepare(Work(7, 5, 1).matrix);
    backend->make_ready(*prepared, Mode::assign, core::MemoryKind::cuda);
    EXPECT_EQ(met, 2u);
    EXPECT_EQ(helpers, 2u);
    EXPECT_EQ(open_to_signals, 0u);
  }
  expect_clean(driver, "two compiles at once");
}

// What goes wrong with either is heard when both are over; what went well with the other one stays.
TEST(CudaDeviceMemory, OneOfTwoProgramsThatFailsIsAnError) {
  for (const device::Access failing : {device::Access::aligned, device::Access::shifted}) {
    FakeCuda driver;
    {
      std::atomic<bool> fails = true;
      gpu::Options options = fake_options(driver);
      options.generate = [&](const core::Matrix &matrix, const device::KernelSpec &spec) {
        if (fails && matrix.rows() == 7 && spec.access == failing) base::fail(TANDEM_ERROR_OUT_OF_MEMORY, "by script");
        return fake_cuda_generate(matrix, spec);
      };
      const auto backend = gpu::make_backend(options, base::Log());
      const auto prepared = backend->prepare(Work(7, 5, 1).matrix);
      const auto make = [&] { backend->make_ready(*prepared, Mode::assign, core::MemoryKind::cuda); };
      EXPECT_EQ(status_of(make).second, "by script");
      EXPECT_EQ(driver.calls_of("nvrtcCompileProgram"), 1u);
      fails = false;
      EXPECT_EQ(status_of(make).first, TANDEM_OK);
      EXPECT_EQ(driver.calls_of("nvrtcCompileProgram"), 2u);
    }
    expect_clean(driver, "half a plan");
  }
}

// A plan runs at once, and is captured, with tables; the caller's thread neither compiles nor waits for a compile.
TEST(CudaBackground, APlanRunsBeforeItsKernelIsCompiled) {
  FakeCuda driver;
  Gate gate;
  {
    Heard heard;
    gpu::Options options = fake_options(driver);
    options.generate = gate.generate();
    const auto backend = gpu::make_backend(options, heard.log());
    Work work(7, 4, 3000);
    const auto prepared = backend->prepare(work.matrix);
    backend->make_ready(*prepared, Mode::assign, core::MemoryKind::cuda, false);
    gate.await(2);  // both programs of the plan at once, and the plan is there
    OnDevice stripe(driver, work, 0);
    const core::Task task = stripe.task(*prepared, Mode::assign);
    core::Control control;
    const auto run = [&] {
      work.reset();
      stripe.write();
      backend->run({&task, 1}, control);
      stripe.read();
      EXPECT_TRUE(work.is_right(Mode::assign));
    };
    run();
    driver.begin_capture(stripe.stream);
    backend->submit({&task, 1}, control)->wait();
    EXPECT_EQ(driver.end_capture(stripe.stream), 1u);
    EXPECT_EQ(driver.calls_of("nvrtcCompileProgram"), 0u);
    EXPECT_TRUE(heard.has("technique tables: until the compile is done")) << heard.text;
    EXPECT_FALSE(heard.has("technique compiled")) << heard.text;
    gate.open();
    wait_until([&] { return run(), heard.has("technique compiled"); }, "the compiled kernel has taken over");
    backend->make_ready(*prepared, Mode::assign, core::MemoryKind::cuda, true);  // the other program is there, too
    EXPECT_EQ(driver.calls_of("nvrtcCompileProgram"), 2u);
    driver.set_script({});  // the counters begin again
    run();
    driver.begin_capture(stripe.stream);
    backend->submit({&task, 1}, control)->wait();
    EXPECT_EQ(driver.end_capture(stripe.stream), 1u);
    EXPECT_EQ(driver.calls_of("cuModuleLoadData") + driver.calls_of("nvrtcCompileProgram"), 0u);
    stripe.write();
    driver.launch_graph();
    stripe.read();
    EXPECT_TRUE(work.is_right(Mode::assign));
    EXPECT_FALSE(driver.has_called_nvrtc(std::this_thread::get_id()));
  }
  expect_clean(driver, "a compile in the background");
}

// A plan for host memory compiles when its bytes pay for it; one that waits has its kernel before it is run.
TEST(CudaBackground, WaitForKernelWaits) {
  for (const core::MemoryKind memory : {core::MemoryKind::host, core::MemoryKind::cuda}) {
    FakeCuda driver;
    {
      Heard heard;
      const auto backend = gpu::make_backend(fake_options(driver), heard.log());
      Work work(3, 4, 3000);
      const auto prepared = backend->prepare(work.matrix);
      backend->make_ready(*prepared, Mode::assign, core::MemoryKind::host, false);
      EXPECT_EQ(driver.calls_of("nvrtcCompileProgram"), 0u) << "host memory: the bytes decide";
      backend->make_ready(*prepared, Mode::assign, memory, true);
      const std::uint64_t compiled = memory == core::MemoryKind::host ? 1 : 2;
      EXPECT_EQ(driver.calls_of("nvrtcCompileProgram"), compiled);
      run_way(driver, memory == core::MemoryKind::host ? Way::staged : Way::on_device, *backend, *prepared, work,
              Mode::assign);
      EXPECT_TRUE(work.is_right(Mode::assign));
      EXPECT_EQ(driver.calls_of("nvrtcCompileProgram"), compiled);
      EXPECT_FALSE(heard.has("technique tables")) << heard.text;
      EXPECT_FALSE(driver.has_called_nvrtc(std::this_thread::get_id()));
    }
    expect_clean(driver, "a plan that waits");
  }
}

// A code of 16 inputs and 16 outputs, at the points 0 to 31.
core::Operator wide_code() {
  core::CauchyTransform form;
  for (unsigned i = 0; i < 32; ++i)
    (i < 16 ? form.input_points : form.output_points).push_back(static_cast<core::Element>(i));
  return core::Operator(form);
}

// Technique transform takes the place of a compiled matrix for wide codes, unless a tuning value or the caller says
// otherwise.
TEST(CudaTransform, IsUsedForWideCodes) {
  struct Values final : core::TuningSource {
    explicit Values(core::TuningValues given) : values(std::move(given)) {}
    core::TuningChoice find(const core::TuningQuery &) const override { return {values, "test"}; }
    core::TuningValues values;
  };
  struct Case {
    const char *technique;
    core::TuningValues values;
    int most_threads;
    const char *says;
  };
  const Case cases[] = {
      {"", {}, 1024, "technique transform: made ready"},
      {"", {{"transform", 0}}, 1024, "technique compiled: made ready"},
      {"compiled", {}, 1024, "technique compiled: as asked"},
      {"tables", {}, 1024, "technique tables: as asked"},
      {"transform", {{"transform", 0}}, 1024, "technique transform: as asked"},
      {"", {}, 64, "technique transform is left: work-groups of 128 items, at most 64"},
      {"transform", {}, 64, "technique compiled: technique transform does not do this operator here"},
  };
  const core::Operator what = wide_code();
  for (const Case &each : cases) {
    FakeCudaScript script;
    script.devices[0].most_threads = each.most_threads;
    FakeCuda driver(script);
    {
      Heard heard;
      const Values source(each.values);
      gpu::Options options = fake_options(driver, each.technique);
      options.tuning = &source;
      const auto backend = gpu::make_backend(options, heard.log());
      Work work(what.dense(), 40'009);
      const auto prepared = backend->prepare(what);
      backend->make_ready(*prepared, Mode::assign, core::MemoryKind::host, true);
      for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare}) {
        for (const Way way : {Way::staged, Way::on_device, Way::many_on_device}) {
          work.reset();
          run_way(driver, way, *backend, *prepared, work, mode);
          EXPECT_TRUE(work.is_right(mode)) << each.says;
        }
      }
      EXPECT_TRUE(heard.has(each.says)) << each.says << "\n" << heard.text;
    }
    expect_clean(driver, each.says);
  }
}

struct CompilesSoon final : core::TuningSource {
  core::TuningChoice find(const core::TuningQuery &) const override {
    return {{{"compile_after_bytes", 1'000'000}}, "test"};
  }
};

// Runs the same work again and again, until the log has a text.
void run_until_heard(Work &work, core::Backend &backend, const core::Prepared &prepared, Heard &heard,
                     const char *text) {
  wait_until(
      [&] {
        work.reset();
        work.run(backend, prepared, Mode::assign);
        EXPECT_TRUE(work.is_right(Mode::assign));
        return heard.has(text);
      },
      text);
}

// Tables first, and the transform when it is compiled. Values that ask for it in vain are refused.
TEST(CudaTransform, IsCompiledInTheBackground) {
  const core::Operator what = wide_code();
  FakeCuda driver;
  {
    Heard heard;
    const CompilesSoon soon;
    gpu::Options options = fake_options(driver);
    options.tuning = &soon;
    const auto backend = gpu::make_backend(options, heard.log());
    Work work(what.dense(), 20'000);  // 320,000 bytes a run
    const auto prepared = backend->prepare(what);
    run_until_heard(work, *backend, *prepared, heard, "technique transform:");
    EXPECT_TRUE(heard.has("technique tables: 320000 bytes through this matrix do not pay")) << heard.text;

    const auto parameters = backend->tunable()->tuning_parameters(16, 16, Mode::assign);
    EXPECT_EQ(parameters.front().name, "transform");
    EXPECT_EQ(backend->tunable()->tuning_parameters(4, 10, Mode::assign).front().name, "local_x");
    for (const std::uint64_t transform : {0, 1}) {
      const auto forced = backend->tunable()->prepare_tuned(what, {{"transform", transform}});
      work.reset();
      work.run(*backend, *forced, Mode::assign);
      EXPECT_TRUE(work.is_right(Mode::assign));
    }
  }
  expect_clean(driver, "a transform in the background");
}

// A failure in the background. Other kernels are still compiled.
TEST(CudaTransform, TheMatrixIsCompiledIfTheTransformCannotBe) {
  const CompilesSoon soon;
  const core::Operator what = wide_code();
  FakeCuda driver;
  {
    Heard heard;
    gpu::Options options = fake_options(driver);
    options.tuning = &soon;
    options.generate = [](const core::Matrix &matrix, const device::KernelSpec &spec) {
      if (matrix.columns() == 16 && spec.technique == device::Technique::transform)
        throw std::runtime_error("too large a kernel");
      return fake_cuda_generate(matrix, spec);
    };
    const auto backend = gpu::make_backend(options, heard.log());
    Work work(what.dense(), 20'000);
    const auto prepared = backend->prepare(what);
    run_until_heard(work, *backend, *prepared, heard, "technique compiled:");
    EXPECT_TRUE(heard.has("too large a kernel; technique compiled in place of transform from now on")) << heard.text;
    EXPECT_FALSE(heard.has("no more kernels are compiled")) << heard.text;
  }
  expect_clean(driver, "a transform that does not compile");
}

// Nine groups of outputs, and a device with too small work-groups.
TEST(CudaTransform, CannotBeForcedWhereItDoesNotRun) {
  const core::Operator what = wide_code();
  core::CauchyTransform wider;
  for (unsigned i = 0; i < 96; ++i)
    (i < 16 ? wider.input_points : wider.output_points).push_back(static_cast<core::Element>(i));
  FakeCudaScript script;
  script.devices[0].most_threads = 64;
  for (const bool is_too_wide : {true, false}) {
    FakeCuda other(is_too_wide ? FakeCudaScript() : script);
    const auto backend = gpu::make_backend(fake_options(other), base::Log());
    const core::Operator of = is_too_wide ? core::Operator(wider) : what;
    Work work(of.dense(), 3000);
    const auto forced = backend->tunable()->prepare_tuned(of, {{"transform", 1}});
    EXPECT_THROW(work.run(*backend, *forced, Mode::assign), base::Error);
    if (is_too_wide) {  // other values, as autotune tries them
      const auto tuned = backend->tunable()->prepare_tuned(of, {{"rows_per_pass", 4}});
      work.reset();
      work.run(*backend, *tuned, Mode::assign);
      EXPECT_TRUE(work.is_right(Mode::assign));
      EXPECT_NE(backend->tunable()->tuning_parameters(of.output_count(), of.input_count(), Mode::assign).front().name,
                "transform");
    }
    const auto free = backend->prepare(of);
    work.reset();
    work.run(*backend, *free, Mode::assign);
    EXPECT_TRUE(work.is_right(Mode::assign));
  }
}

// The job of a captured run is over at once. The graph's tables are there as long as the plan, though the plan has
// taken another kernel, and the device has the tables of many other matrices by then.
TEST(CudaBackground, AGraphKeepsTheKernelOfItsPlan) {
  FakeCuda driver;
  Gate gate;
  {
    gpu::Options options = fake_options(driver);
    options.generate = gate.generate();
    const auto backend = gpu::make_backend(options, base::Log());
    Work work(7, 4, 3000);
    const auto prepared = backend->prepare(work.matrix);
    backend->make_ready(*prepared, Mode::assign, core::MemoryKind::cuda, false);
    OnDevice stripe(driver, work, 0);
    const core::Task task = stripe.task(*prepared, Mode::assign);
    core::Control control;
    driver.begin_capture(stripe.stream);
    backend->submit({&task, 1}, control)->wait();
    EXPECT_EQ(driver.end_capture(stripe.stream), 1u);
    gate.open();
    backend->make_ready(*prepared, Mode::assign, core::MemoryKind::cuda, true);
    backend->run({&task, 1}, control);
    for (unsigned shape = 0; shape < 40; ++shape) {
      Work other(1 + shape % 8, 1 + shape / 8, 300);
      run_way(driver, Way::on_device, *backend, *backend->prepare(other.matrix), other, Mode::assign);
    }
    work.reset();
    stripe.write();
    driver.launch_graph();
    stripe.read();
    EXPECT_TRUE(work.is_right(Mode::assign));
  }
  expect_clean(driver, "a graph of a plan that took another kernel");
}

// Tables go on, and the log has one line, however many plans follow.
TEST(CudaBackground, ACompileThatFailsAfterTheFirstRun) {
  FakeCudaScript script;
  script.refuses_text = true;
  FakeCuda driver(script);
  Gate gate;
  {
    Heard heard;
    gpu::Options options = fake_options(driver);
    options.generate = gate.generate();
    const auto backend = gpu::make_backend(options, heard.log());
    Work work(7, 4, 3000);
    const auto prepared = backend->prepare(work.matrix);
    backend->make_ready(*prepared, Mode::assign, core::MemoryKind::cuda, false);
    run_way(driver, Way::on_device, *backend, *prepared, work, Mode::assign);
    EXPECT_TRUE(work.is_right(Mode::assign));
    gate.open();
    wait_until([&] { return heard.has(kStoppedCompiling); }, "told");
    const auto next = backend->prepare(Work(7, 5, 1).matrix);
    backend->make_ready(*next, Mode::assign, core::MemoryKind::cuda, false);
    backend->make_ready(*next, Mode::assign, core::MemoryKind::cuda, true);
    EXPECT_LE(driver.calls_of("nvrtcCompileProgram"), 2u) << "of the first plan";
    work.reset();
    run_way(driver, Way::on_device, *backend, *prepared, work, Mode::assign);
    EXPECT_TRUE(work.is_right(Mode::assign));
    const std::lock_guard lock(heard.mutex);
    EXPECT_EQ(heard.text.find(kStoppedCompiling), heard.text.rfind(kStoppedCompiling)) << heard.text;
  }
  expect_clean(driver, "a compile that fails in the background");
}

// A context that ends finishes what is being compiled, and drops what no thread has begun.
TEST(CudaBackground, AContextEndsDuringCompiles) {
  FakeCuda driver;
  Gate gate;
  gpu::Options options = fake_options(driver);
  options.generate = gate.generate();
  auto backend = gpu::make_backend(options, base::Log());
  for (unsigned columns = 1; columns <= 4; ++columns) {
    const auto prepared = backend->prepare(Work(7, columns, 1).matrix);
    backend->make_ready(*prepared, Mode::assign, core::MemoryKind::cuda, false);
  }
  gate.await(4);
  gate.open();
  backend.reset();
  EXPECT_EQ(driver.calls_of("cuModuleUnload"), driver.calls_of("cuModuleLoadData"));
  EXPECT_GE(driver.calls_of("nvrtcCompileProgram"), 4u);
  expect_clean(driver, "a context that ends during compiles");
}

// The child, in which no thread compiles, ends the context without waiting; the parent's goes on.
TEST(CudaBackground, AForkDuringACompile) {
  TANDEM_SKIP_FORK_BESIDE_THREADS();
  FakeCuda driver;
  Gate gate;
  {
    gpu::Options options = fake_options(driver);
    options.generate = gate.generate();
    auto backend = gpu::make_backend(options, base::Log());
    Work work(7, 4, 3000);
    auto prepared = backend->prepare(work.matrix);
    backend->make_ready(*prepared, Mode::assign, core::MemoryKind::cuda, false);
    gate.await(2);
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      const bool good = status_of([&] { work.run(*backend, *prepared, Mode::assign); }).first == TANDEM_ERROR_DEVICE;
      prepared.reset();
      backend.reset();
      _exit(good ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    gate.open();
    backend->make_ready(*prepared, Mode::assign, core::MemoryKind::cuda, true);
    EXPECT_EQ(driver.calls_of("nvrtcCompileProgram"), 2u);
  }
  expect_clean(driver, "a fork during a compile");
}

TEST(CudaDeviceMemory, CanBeCaptured) {
  FakeCuda driver;
  {
    Work work(3, 5, 30'000);
    const auto backend = gpu::make_backend(fake_options(driver), base::Log());
    const auto prepared = backend->prepare(work.matrix);
    backend->make_ready(*prepared, Mode::accumulate, core::MemoryKind::cuda);
    OnDevice stripe(driver, work, 0);
    core::Control control;
    const core::Task task = stripe.task(*prepared, Mode::accumulate);
    driver.begin_capture(stripe.stream);
    {
      // The pointer array is the caller's again when the submit has returned.
      std::vector<const std::byte *> in = stripe.in;
      std::vector<std::byte *> out = stripe.out;
      core::Task copied = task;
      copied.inputs = in.data();
      copied.outputs = out.data();
      backend->submit({&copied, 1}, control)->wait();
      std::fill(in.begin(), in.end(), nullptr);
      std::fill(out.begin(), out.end(), nullptr);
    }
    // A verify has a result.
    const core::Task verify = stripe.task(*prepared, Mode::compare);
    const auto [verify_status, verify_message] = status_of([&] { backend->submit({&verify, 1}, control); });
    EXPECT_EQ(verify_status, TANDEM_ERROR_UNSUPPORTED);
    EXPECT_NE(verify_message.find("a verify cannot be captured"), std::string::npos) << verify_message;
    EXPECT_EQ(driver.end_capture(stripe.stream), 1u);
    stripe.read();
    EXPECT_TRUE(work.is_untouched());
    driver.launch_graph();
    stripe.read();
    EXPECT_TRUE(work.is_right(Mode::accumulate));
    driver.launch_graph();
    stripe.read();
    EXPECT_TRUE(work.is_untouched()) << "added twice is not added";
  }
  expect_clean(driver, "a capture");
}

// Kernels that were not prepared are loaded outside of the capture.
TEST(CudaDeviceMemory, TheFirstRunOfAllCanBeCaptured) {
  for (const char *technique : {"tables", "compiled"}) {
    FakeCuda driver;
    {
      Work work(3, 5, 30'000);
      const auto backend = gpu::make_backend(fake_options(driver, technique), base::Log());
      const auto prepared = backend->prepare(work.matrix);
      OnDevice stripe(driver, work, 0);
      core::Control control;
      const core::Task task = stripe.task(*prepared, Mode::assign);
      driver.begin_capture(stripe.stream);
      const auto ticket = backend->submit({&task, 1}, control);
      EXPECT_EQ(driver.end_capture(stripe.stream), 1u);
      work.reset();
      driver.launch_graph();
      stripe.read();
      EXPECT_TRUE(work.is_right(Mode::assign)) << technique;
    }
    expect_clean(driver, "a first run that was captured");
  }
}

// ---- many stripes --------------------------------------------------------------------------------------------

// Calls of the driver, from the submit to the end of the wait, for so many stripes that were run before.
std::uint64_t calls_for(unsigned count, bool together, const char *technique, bool on_device) {
  FakeCuda driver;
  Work work(4, 10, std::size_t{count} * 192);
  const auto backend = gpu::make_backend(fake_options(driver, technique), base::Log());
  const auto prepared = backend->prepare(work.matrix);
  OnDevice stripe(driver, work, 0);
  const core::Task task =
      on_device ? stripe.task(*prepared, Mode::assign)
                : core::Task{prepared.get(), work.in.data(), work.out.data(), 0, work.bytes, Mode::assign};
  const std::vector<core::Task> tasks = slices(task, count);
  core::Control control;
  const auto run = [&](std::span<const core::Task> some) {
    on_device ? backend->submit(some, control)->wait() : backend->run(some, control);
  };
  run(tasks);
  work.reset();
  stripe.write();
  driver.set_script({});
  if (together) run(tasks);
  for (std::size_t i = 0; i < tasks.size() && !together; ++i) run({&tasks[i], 1});
  EXPECT_EQ(driver.calls_of("cuLaunchKernel"), together ? 1u : count);
  EXPECT_EQ(driver.violations(), std::vector<std::string>());
  const std::uint64_t calls = driver.call_count();
  if (on_device) stripe.read();
  EXPECT_TRUE(work.is_right(Mode::assign)) << technique << ", " << count;
  return calls;
}

TEST(CudaBatch, TheNumberOfCallsDoesNotGrowWithTheStripes) {
  for (const char *technique : {"tables", "compiled"}) {
    for (const bool on_device : {true, false}) {
      const std::uint64_t few = calls_for(10, true, technique, on_device);
      EXPECT_EQ(calls_for(300, true, technique, on_device), few) << technique << (on_device ? ", device" : ", host");
      EXPECT_LE(few, 40u);
      // One by one it grows: this test can tell.
      EXPECT_GE(calls_for(10, false, technique, on_device), few + 9 * 5);
    }
  }
}

// A launch for the stripes that are aligned, and one for the others; stripes far longer than the rest have several
// rows.
TEST(CudaBatch, StripesOfEveryLengthAndAddress) {
  FakeCuda driver;
  {
    Work work(3, 5, 70'003);
    for (const char *technique : {"tables", "compiled"}) {
      const auto backend = gpu::make_backend(fake_options(driver, technique), base::Log());
      const auto prepared = backend->prepare(work.matrix), other = backend->prepare(work.matrix);
      OnDevice aligned(driver, work, 0), unaligned(driver, work, 6);
      for (OnDevice *stripe : {&aligned, &unaligned}) {
        for (const bool is_cut_anywhere : {false, true}) {
          std::vector<core::Task> tasks = uneven_slices(stripe->task(*prepared, Mode::assign), !is_cut_anywhere);
          for (std::size_t i = 0; i < tasks.size(); i += 3) tasks[i].prepared = other.get();
          tasks.insert(tasks.begin() + 5, core::Task{});  // nothing to do
          work.reset();
          stripe->write();
          driver.set_script({});
          core::Control control;
          backend->submit(tasks, control)->wait();
          stripe->read();
          ASSERT_TRUE(work.is_right(Mode::assign)) << technique << ", cut anywhere: " << is_cut_anywhere;
          EXPECT_EQ(driver.calls_of("cuLaunchKernel"), stripe == &aligned && is_cut_anywhere ? 4u : 2u);
        }
      }
    }
  }
  expect_clean(driver, "many stripes");
}

TEST(CudaBatch, AStripeThatIsMoreThanALaunchTakesGoesByItself) {
  FakeCuda driver;
  {
    gpu::Options options = fake_options(driver);
    options.most_launch_bytes = 8192;
    const auto backend = gpu::make_backend(options, base::Log());
    Work work(3, 5, 70'003);
    const auto prepared = backend->prepare(work.matrix);
    OnDevice stripe(driver, work, 0);
    const std::vector<core::Task> tasks = uneven_slices(stripe.task(*prepared, Mode::assign), true);
    std::uint64_t launches = 1;  // of all short ones
    for (const core::Task &each : tasks)
      if (each.length_bytes > options.most_launch_bytes) launches += (each.length_bytes + 8191) / 8192;
    ASSERT_GT(launches, 1u);
    core::Control control;
    backend->submit(tasks, control)->wait();
    stripe.read();
    EXPECT_TRUE(work.is_right(Mode::assign));
    EXPECT_EQ(backend->kernel_calls(), launches);
  }
  expect_clean(driver, "long stripes of a batch");
}

// The graph has the kernel alone; what it reads is the job's.
TEST(CudaBatch, CanBeCaptured) {
  for (const bool was_run_before : {false, true}) {
    FakeCuda driver;
    {
      Work work(3, 5, 30'000);
      const auto backend = gpu::make_backend(fake_options(driver), base::Log());
      const auto prepared = backend->prepare(work.matrix);
      OnDevice stripe(driver, work, 0);
      core::Control control;
      const std::vector<core::Task> tasks = uneven_slices(stripe.task(*prepared, Mode::assign), true);
      if (was_run_before) backend->submit(tasks, control)->wait();
      stripe.write();
      driver.begin_capture(stripe.stream);
      const auto ticket = backend->submit(tasks, control);
      ticket->wait();
      EXPECT_EQ(driver.end_capture(stripe.stream), 1u);
      // Others do not get its table.
      Work small(3, 5, 1000);
      OnDevice another(driver, small, 0);
      backend->submit(slices(another.task(*prepared, Mode::assign), 5), control)->wait();
      for (unsigned launch = 0; launch < 2; ++launch) {
        stripe.write();
        work.reset();
        stripe.read();
        EXPECT_TRUE(work.is_untouched());
        driver.launch_graph();
        stripe.read();
        EXPECT_TRUE(work.is_right(Mode::assign)) << "launch " << launch;
      }
    }
    expect_clean(driver, "a captured batch");
  }
}

TEST(CudaBatch, WrongStripesAreRefusedByNumber) {
  FakeCudaScript script;
  script.devices.resize(2);
  FakeCuda driver(script);
  {
    Work work(2, 3, 5000);
    const auto backend = gpu::make_backend(fake_options(driver), base::Log());
    const auto prepared = backend->prepare(work.matrix);
    OnDevice stripe(driver, work, 0);
    const CUdeviceptr elsewhere = driver.allocate(5000, 1), small = driver.allocate(4000), gone = driver.allocate(5000);
    driver.free(gone);
    core::Control control;
    const auto refused = [&](tandem_status want, const char *part, const void *input, std::uint64_t offset = 0) {
      std::vector<core::Task> tasks = slices(stripe.task(*prepared, Mode::assign), 5);
      std::vector<const std::byte *> in = stripe.in;
      const std::vector<std::uint64_t> offsets(3, offset);
      in[1] = static_cast<const std::byte *>(input);
      tasks[3].inputs = in.data();
      if (offset != 0) tasks[3].input_offsets = offsets.data();
      const std::uint64_t commands = driver.command_count();
      const auto [status, message] = status_of([&] { backend->submit(tasks, control); });
      EXPECT_EQ(status, want) << message;
      EXPECT_TRUE(message.starts_with("stripe 3 of 5: CUDA: input ")) << message;
      EXPECT_NE(message.find(part), std::string::npos) << message;
      EXPECT_EQ(driver.command_count(), commands) << part;
    };
    refused(TANDEM_ERROR_INVALID_ARGUMENT, "no device memory", work.inputs[0].data());
    refused(TANDEM_ERROR_INVALID_ARGUMENT, "no device memory", reinterpret_cast<void *>(gone));
    refused(TANDEM_ERROR_INVALID_ARGUMENT, "no device memory", nullptr);
    refused(TANDEM_ERROR_INVALID_ARGUMENT, "lies on cuda:1", reinterpret_cast<void *>(elsewhere));
    // That stripe is the bytes from 3000 to 4000.
    refused(TANDEM_ERROR_INVALID_ARGUMENT, "its allocation 4000 bytes", reinterpret_cast<void *>(small + 1));
    refused(TANDEM_ERROR_INVALID_ARGUMENT, "does not fit the address space", stripe.in[1], UINT64_MAX - 10);
    core::Task all = stripe.task(*prepared, Mode::assign);
    std::vector<core::Task> tasks = slices(all, 5);
    tasks[2].queue = &work;
    const auto [status, message] = status_of([&] { backend->submit(tasks, control); });
    EXPECT_EQ(status, TANDEM_ERROR_INVALID_ARGUMENT);
    EXPECT_TRUE(message.starts_with("stripe 2 of 5: CUDA: queue is no stream")) << message;
    for (const CUdeviceptr each : {elsewhere, small}) driver.free(each);
  }
  expect_clean(driver, "refusals");
}

// A table that finds no room in the budget is a status with the numbers.
TEST(CudaBatch, ATableNeedsMemory) {
  FakeCuda driver;
  {
    Work work(2, 3, 64 * 500);
    gpu::Options options = fake_options(driver, "tables");
    options.memory_budget_bytes = 16 << 10;
    const auto backend = gpu::make_backend(options, base::Log());
    const auto prepared = backend->prepare(work.matrix);
    OnDevice stripe(driver, work, 0);
    core::Control control;
    const core::Task task = stripe.task(*prepared, Mode::assign);
    const auto [status, message] = status_of([&] { backend->submit(slices(task, 500), control); });
    EXPECT_EQ(status, TANDEM_ERROR_OUT_OF_MEMORY);
    EXPECT_NE(message.find("has no 32000 bytes left"), std::string::npos) << message;
    backend->submit(slices(task, 100), control)->wait();
    stripe.read();
    EXPECT_TRUE(work.is_right(Mode::assign));
  }
  expect_clean(driver, "a table without room");
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
  FakeCuda driver;
  {
    Work work(3, 5, 30'000);
    Heard heard;
    const auto backend = gpu::make_backend(fake_options(driver), heard.log());
    const auto prepared = backend->prepare(work.matrix);
    OnDevice stripe(driver, work, 0);
    work.reset();
    core::Control control;
    const core::Task task = stripe.task(*prepared, Mode::assign);
    auto ticket = backend->submit({&task, 1}, control);
    std::thread([&] { driver.begin_capture(stripe.stream); }).join();
    ticket.reset();
    stripe.read();
    EXPECT_TRUE(work.is_right(Mode::assign)) << "the job was not waited for";
    EXPECT_FALSE(driver.is_capture_invalid(stripe.stream));
    driver.end_capture(stripe.stream);
    EXPECT_FALSE(heard.has("given up")) << heard.text;
    stripe.write();
    work.reset();
    backend->run({&task, 1}, control);
    stripe.read();
    EXPECT_TRUE(work.is_right(Mode::assign));
  }
  expect_clean(driver, "a job without a wait");
}

// An error of a capture is no sign that the device does not come to an end.
TEST(CudaFaults, AnErrorOfACaptureDoesNotGiveTheDeviceUp) {
  for (const Way way : kWays) {
    Work work(3, 5, 10'000);
    std::uint64_t count = 1;
    unsigned failed = 0;
    for (std::uint64_t n = 0; n < count; ++n) {
      FakeCudaScript script;
      FakeCuda driver(script);
      Heard heard;
      const auto backend = gpu::make_backend(fake_options(driver, "tables"), heard.log());
      const auto prepared = backend->prepare(work.matrix);
      script.failing_error = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
      script.failing_call = n;
      script.fails_on = true;
      driver.set_script(script);
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

TEST(CudaDeviceMemory, ANullStreamIsTheLegacyDefaultStream) {
  FakeCuda driver;
  {
    Work work(2, 3, 5000);
    const auto backend = gpu::make_backend(fake_options(driver), base::Log());
    const auto prepared = backend->prepare(work.matrix);
    OnDevice stripe(driver, work, 0);
    core::Task task = stripe.task(*prepared, Mode::assign);
    task.queue = nullptr;
    core::Control control;
    const auto ticket = backend->submit({&task, 1}, control);
    driver.synchronize(stripe.stream);
    stripe.read();
    EXPECT_FALSE(work.is_right(Mode::assign)) << "not in the caller's other stream";
    driver.synchronize(CU_STREAM_LEGACY);
    stripe.read();
    EXPECT_TRUE(work.is_right(Mode::assign));
    ticket->wait();
  }
  expect_clean(driver, "the default stream");
}

TEST(CudaDeviceMemory, WrongPointersAndStreamsAreRefused) {
  FakeCudaScript script;
  script.devices.resize(2);
  FakeCuda driver(script);
  {
    Work work(2, 3, 5000);
    const auto backend = gpu::make_backend(fake_options(driver), base::Log());
    const auto prepared = backend->prepare(work.matrix);
    OnDevice stripe(driver, work, 0);
    const CUdeviceptr elsewhere = driver.allocate(5000, 1), small = driver.allocate(4999);
    const CUstream foreign = driver.make_stream(0, false), second = driver.make_stream(1);
    core::Control control;
    const auto refused = [&](tandem_status want, const char *part, const std::function<void(core::Task &)> &change) {
      core::Task task = stripe.task(*prepared, Mode::assign);
      std::vector<const std::byte *> in = stripe.in;
      task.inputs = in.data();
      change(task);
      const std::uint64_t commands = driver.command_count();
      const auto [status, message] = status_of([&] { backend->submit({&task, 1}, control); });
      EXPECT_EQ(status, want) << message;
      EXPECT_NE(message.find(part), std::string::npos) << message;
      EXPECT_EQ(driver.command_count(), commands) << part;
    };
    const auto set_input = [](core::Task &task, const void *to) {
      const_cast<const std::byte **>(task.inputs)[1] = static_cast<const std::byte *>(to);
    };
    refused(TANDEM_ERROR_INVALID_ARGUMENT, "no device memory",
            [&](core::Task &task) { set_input(task, work.inputs[0].data()); });
    refused(TANDEM_ERROR_INVALID_ARGUMENT, "lies on cuda:1",
            [&](core::Task &task) { set_input(task, reinterpret_cast<void *>(elsewhere)); });
    refused(TANDEM_ERROR_INVALID_ARGUMENT, "its allocation 4999 bytes",
            [&](core::Task &task) { set_input(task, reinterpret_cast<void *>(small)); });
    refused(TANDEM_ERROR_OVERLAP, "overlaps", [&](core::Task &task) { set_input(task, stripe.out[0] + 100); });
    refused(TANDEM_ERROR_INVALID_ARGUMENT, "not of the primary context",
            [&](core::Task &task) { task.queue = foreign; });
    refused(TANDEM_ERROR_INVALID_ARGUMENT, "not of the primary context",
            [&](core::Task &task) { task.queue = second; });
    refused(TANDEM_ERROR_INVALID_ARGUMENT, "no stream", [&](core::Task &task) { task.queue = &work; });
    const std::vector<std::uint64_t> huge(3, UINT64_MAX - 10);
    refused(TANDEM_ERROR_INVALID_ARGUMENT, "does not fit the address space",
            [&](core::Task &task) { task.input_offsets = huge.data(); });
    // The default stream by its name is one like others.
    core::Task task = stripe.task(*prepared, Mode::assign);
    task.queue = CU_STREAM_LEGACY;
    backend->run({&task, 1}, control);
    stripe.read();
    EXPECT_TRUE(work.is_right(Mode::assign));
    // Device memory where memory of the host belongs.
    const core::Task host = {prepared.get(), stripe.in.data(), work.out.data(), 0, work.bytes, Mode::assign};
    EXPECT_EQ(status_of([&] { backend->run({&host, 1}, control); }).first, TANDEM_ERROR_INVALID_ARGUMENT);
    std::uint8_t inputs[3], outputs[2];
    backend->read_column(task, 17, inputs, outputs);
    for (unsigned c = 0; c < 3; ++c) EXPECT_EQ(inputs[c], work.inputs[c][17]);
    for (unsigned r = 0; r < 2; ++r) EXPECT_EQ(outputs[r], work.product[r][17]);
    for (const CUdeviceptr each : {elsewhere, small}) driver.free(each);
    driver.destroy(foreign);
    driver.destroy(second);
  }
  expect_clean(driver, "refusals");
}

// ---- a verify's records --------------------------------------------------------------------------------------

// Outputs that differ in a few places, of which task.ranges and mismatches have to tell.
struct Damaged {
  Damaged(unsigned rows, unsigned columns, std::uint64_t bytes)
      : work(rows, columns, bytes), differs(rows, std::vector<std::uint8_t>(bytes)) {
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
  tandem_status run(core::Backend &backend, const core::Prepared &prepared, OnDevice &stripe, std::uint64_t capacity) {
    work.reset();
    core::MismatchRanges ranges;
    ranges.capacity = capacity;
    core::Task task = stripe.task(prepared, Mode::compare);
    task.ranges = &ranges;
    core::Control control;
    const auto [status, message] = status_of([&] { backend.run({&task, 1}, control); });
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

  Work work;
  std::vector<std::vector<std::uint8_t>> differs;
  std::uint64_t range_count = 0;
};

TEST(CudaVerify, RangesOfAnyCapacity) {
  for (const FakeSummarise summarise : {FakeSummarise::absent, FakeSummarise::works, FakeSummarise::fails}) {
    FakeCudaScript script;
    script.summarise = summarise;
    FakeCuda driver(script);
    {
      Damaged damaged(5, 3, 90'001);
      const auto backend = gpu::make_backend(fake_options(driver, "tables"), base::Log());
      const auto prepared = backend->prepare(damaged.work.matrix);
      for (const std::uint64_t skew : {0, 6}) {
        OnDevice stripe(driver, damaged.work, skew);
        for (const std::uint64_t capacity : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{7}, UINT64_MAX})
          EXPECT_EQ(damaged.run(*backend, *prepared, stripe, capacity), TANDEM_OK);
        EXPECT_GE(damaged.range_count, 10u);
      }
    }
    expect_clean(driver, "ranges");
  }
}

// More ranges than are fetched at once; and every byte wrong, which is one range.
TEST(CudaVerify, ManyRangesAndOne) {
  FakeCudaScript script;
  script.summarise = FakeSummarise::works;
  FakeCuda driver(script);
  {
    Damaged damaged(1, 1, 5'000'000);
    for (std::uint64_t at = 0; at < damaged.work.bytes; at += 4096) {
      damaged.work.before[0][at] ^= 1;
      damaged.differs[0][at] = true;
    }
    const auto backend = gpu::make_backend(fake_options(driver, "tables"), base::Log());
    const auto prepared = backend->prepare(damaged.work.matrix);
    OnDevice stripe(driver, damaged.work, 0);
    EXPECT_EQ(damaged.run(*backend, *prepared, stripe, 1'000'000), TANDEM_OK);
    EXPECT_EQ(damaged.range_count, 1221u);
    EXPECT_EQ(driver.calls_of("summarise"), 2u);
    damaged.work.before[0] = damaged.work.product[0];
    for (std::uint8_t &byte : damaged.work.before[0]) byte ^= 7;
    damaged.differs[0].assign(damaged.work.bytes, true);
    stripe.write();
    EXPECT_EQ(damaged.run(*backend, *prepared, stripe, 10), TANDEM_OK);
    EXPECT_EQ(damaged.range_count, 1u);
  }
  expect_clean(driver, "many ranges");
}

// With any budget, and any room on the device, a verify is right or has a status: it goes in pieces before it fails.
// What the reduction takes is of the budget too.
TEST(CudaVerify, ShortOfMemoryItGoesInPiecesAndThenFails) {
  Damaged damaged(6, 3, 60'001);
  for (const FakeSummarise summarise : {FakeSummarise::works, FakeSummarise::absent}) {
    for (const bool of_budget : {true, false}) {
      unsigned whole = 0, in_pieces = 0, refused = 0, reduced = 0;
      for (std::uint64_t room = 0; room < 12'000; room += kThinning * (room < 1500 ? 24 : 500)) {
        FakeCudaScript script;
        script.summarise = summarise;
        if (!of_budget) script.devices[0].available_bytes = room;
        FakeCuda driver(script);
        Heard heard;
        {
          gpu::Options options = fake_options(driver, "compiled");
          if (of_budget) options.memory_budget_bytes = std::max<std::uint64_t>(room, 1);
          const auto backend = gpu::make_backend(options, heard.log());
          const auto prepared = backend->prepare(damaged.work.matrix);
          OnDevice stripe(driver, damaged.work, room % 5);
          tandem_status first = TANDEM_OK;
          for (unsigned round = 0; round < 2; ++round) {
            const std::uint64_t calls = backend->kernel_calls();
            const tandem_status status = damaged.run(*backend, *prepared, stripe, round == 0 ? 1000 : room % 9);
            if (round == 0) first = status;
            EXPECT_EQ(status, first) << room;
            if (status != TANDEM_OK) {
              EXPECT_EQ(status, TANDEM_ERROR_OUT_OF_MEMORY);
              ++refused;
            } else {
              ++(backend->kernel_calls() == calls + 1 ? whole : in_pieces);
            }
          }
          reduced += driver.calls_of("summarise") != 0;
          EXPECT_LE(driver.most_device_bytes(), room);
          EXPECT_FALSE(heard.has("on the host")) << "too little room now says nothing of the next time";
        }
        expect_clean(driver, "room of " + std::to_string(room));
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
  FakeCuda driver;
  {
    gpu::Options options = fake_options(driver, "compiled");
    options.memory_budget_bytes = 40'000;
    const auto backend = gpu::make_backend(options, base::Log());
    Damaged one(20, 2, 100'000), other(19, 2, 100'000);
    const auto prepared_one = backend->prepare(one.work.matrix), prepared_other = backend->prepare(other.work.matrix);
    OnDevice stripe_one(driver, one.work, 0), stripe_other(driver, other.work, 0);
    for (unsigned round = 0; round < 3; ++round) {
      const std::uint64_t calls = backend->kernel_calls();
      EXPECT_EQ(one.run(*backend, *prepared_one, stripe_one, 10), TANDEM_OK);
      EXPECT_EQ(other.run(*backend, *prepared_other, stripe_other, 10), TANDEM_OK);
      EXPECT_EQ(backend->kernel_calls(), calls + 2) << "in pieces, though one plan's memory lies idle";
    }
    EXPECT_LE(driver.most_device_bytes(), 40'000u);
  }
  expect_clean(driver, "two plans");
}

// A submit in pieces that is cancelled between them.
TEST(CudaVerify, InPiecesItCanBeCancelled) {
  FakeCudaScript script;
  FakeCuda driver(script);
  {
    gpu::Options options = fake_options(driver, "compiled");
    options.memory_budget_bytes = 1000;
    const auto backend = gpu::make_backend(options, base::Log());
    Damaged damaged(6, 3, 200'000);
    const auto prepared = backend->prepare(damaged.work.matrix);
    backend->make_ready(*prepared, Mode::compare, core::MemoryKind::cuda);
    OnDevice stripe(driver, damaged.work, 0);
    core::Control control;
    script.control = &control;
    script.cancelling_command = 4;
    driver.set_script(script);
    damaged.work.reset();
    const core::Task task = stripe.task(*prepared, Mode::compare);
    EXPECT_EQ(status_of([&] { backend->submit({&task, 1}, control); }).first, TANDEM_ERROR_CANCELLED);
    EXPECT_LE(driver.command_count(), 10u);
    driver.set_script({});
    EXPECT_EQ(damaged.run(*backend, *prepared, stripe, 1000), TANDEM_OK);
  }
  expect_clean(driver, "a cancel between pieces");
}

// ---- staging ------------------------------------------------------------------------------------------------

// Copies on the calling thread, and counts.
class CountingCopier final : public core::HostCopier {
 public:
  void run(std::span<const core::HostCopy> copies) override {
    ++run_count;
    for (const core::HostCopy &each : copies) (each.adds ? added_bytes : copied_bytes) += each.bytes;
    if (before) before();
    core::copy_here(copies);
  }
  std::function<void()> before;
  std::uint64_t run_count = 0, copied_bytes = 0, added_bytes = 0;
};

struct SmallPieces : core::TuningSource {
  core::TuningChoice find(const core::TuningQuery &) const override {
    return {{{"staging_bytes", 64 << 10}}, "for this test"};
  }
};

// Each byte is copied once each way; a piece is one upload and one download, and one wait. Three pieces are under way
// before the first wait, on a stream for each direction.
TEST(CudaStaging, CopiesEachByteOnceAndKeepsBothEnginesBusy) {
  constexpr std::uint64_t kBytes = 200'000;
  const SmallPieces small;
  for (const Mode mode : kModes) {
    SCOPED_TRACE(static_cast<int>(mode));
    FakeCuda driver;
    {
      const auto copier = std::make_shared<CountingCopier>();
      gpu::Options options = fake_options(driver, "tables");
      options.tuning = &small;
      options.copier = copier;
      const auto backend = gpu::make_backend(options, base::Log());
      Work work(2, 3, kBytes);
      work.reset();
      const auto prepared = backend->prepare(work.matrix);
      work.run(*backend, *prepared, mode);  // allocates
      ASSERT_TRUE(work.is_right(mode));
      driver.set_script({});
      copier->run_count = copier->copied_bytes = copier->added_bytes = 0;
      std::uint64_t uploads_before_first_wait = 0;
      copier->before = [&] {
        if (driver.calls_of("cuEventQuery") == 0) uploads_before_first_wait = driver.calls_of("cuMemcpyHtoDAsync");
      };
      work.reset();
      work.run(*backend, *prepared, mode);
      EXPECT_TRUE(work.is_right(mode));
      const bool compares = mode == Mode::compare;
      const std::uint64_t pieces = driver.calls_of("cuLaunchKernel"), up = compares ? 2 : 1;
      EXPECT_GT(pieces, 10u);
      EXPECT_EQ(driver.calls_of("cuMemcpyHtoDAsync"), up * pieces);
      EXPECT_EQ(driver.calls_of("cuMemcpyDtoHAsync"), pieces) << "the outputs, or the records of a compare";
      EXPECT_EQ(driver.calls_of("cuEventSynchronize"), pieces) << "the fake does nothing before";
      EXPECT_EQ(driver.calls_of("cuStreamSynchronize"), 0u);
      EXPECT_EQ(copier->copied_bytes, kBytes * (compares ? 5 : mode == Mode::assign ? 5 : 3));
      EXPECT_EQ(copier->added_bytes, mode == Mode::accumulate ? 2 * kBytes : 0);
      EXPECT_EQ(copier->run_count, 2 * pieces);
      EXPECT_EQ(uploads_before_first_wait, up * device::DeviceLane::kSlots - 1)
          << "at the last copy before the first wait all but its own upload are under way";
    }
    expect_clean(driver, "staging");
  }
}

// If all shards of a stripe but one are pinned, that one is copied.
TEST(CudaStaging, PinnedShardsAreNotCopied) {
  FakeCuda driver;
  {
    const auto copier = std::make_shared<CountingCopier>();
    gpu::Options options = fake_options(driver, "tables");
    options.copier = copier;
    const auto backend = gpu::make_backend(options, base::Log());
    Work work(2, 3, 50'000);
    work.reset();
    const auto prepared = backend->prepare(work.matrix);
    for (const std::byte *shard : {work.in[0], work.in[2]}) driver.register_host(shard, work.bytes);
    for (const std::byte *shard : work.out) driver.register_host(shard, work.bytes);
    work.run(*backend, *prepared, Mode::assign);
    EXPECT_TRUE(work.is_right(Mode::assign));
    EXPECT_EQ(copier->copied_bytes, 50'000u);
    EXPECT_EQ(copier->run_count, 1u);
    for (const std::byte *shard : {work.in[0], work.in[2]}) driver.unregister_host(shard);
    for (const std::byte *shard : work.out) driver.unregister_host(shard);
  }
  expect_clean(driver, "pinned shards but one");
}

// A device that is done when it is first asked lets no thread sleep; neither host shards nor a job on device memory.
TEST(CudaStaging, WaitsLookBeforeTheySleep) {
  FakeCudaScript script;
  script.is_done_when_asked = true;
  FakeCuda driver(script);
  {
    const auto backend = gpu::make_backend(fake_options(driver, "tables"), base::Log());
    Work work(2, 3, 50'000);
    const auto prepared = backend->prepare(work.matrix);
    for (const Way way : {Way::staged, Way::on_device}) {
      work.reset();
      driver.set_script(script);
      run_way(driver, way, *backend, *prepared, work, Mode::assign);
      EXPECT_TRUE(work.is_right(Mode::assign));
      EXPECT_GE(driver.calls_of("cuEventQuery"), 1u);
      EXPECT_EQ(driver.calls_of("cuEventSynchronize"), 0u);
    }
    // What the look says of an error is the error of the run, and the next run works.
    script.query_error = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    driver.set_script(script);
    work.reset();
    const std::string refusal = status_of([&] { work.run(*backend, *prepared, Mode::assign); }).second;
    EXPECT_NE(refusal.find("cuEventQuery"), std::string::npos) << refusal;
    driver.set_script({});
    work.reset();
    work.run(*backend, *prepared, Mode::assign);
    EXPECT_TRUE(work.is_right(Mode::assign));
  }
  expect_clean(driver, "a look");
}

// ---- memory ------------------------------------------------------------------------------------------------

TEST(CudaMemory, PinnedShardsAreNotStaged) {
  FakeCuda driver;
  {
    Work work(2, 3, 50'000);
    const auto backend = gpu::make_backend(fake_options(driver), base::Log());
    const auto prepared = backend->prepare(work.matrix);
    run_way(driver, Way::pinned, *backend, *prepared, work, Mode::assign);
    EXPECT_TRUE(work.is_right(Mode::assign));
    EXPECT_EQ(driver.calls_of("cuMemHostAlloc"), 0u);
    EXPECT_EQ(driver.calls_of("cuMemcpyHtoDAsync"), 1u + 3u) << "tables, and each shard from where it lies";
    EXPECT_EQ(driver.calls_of("cuMemcpyDtoHAsync"), 2u);
    // Only a part of a shard is registered: it is staged like others.
    driver.register_host(work.in[0], 49'999);
    work.reset();
    work.run(*backend, *prepared, Mode::assign);
    EXPECT_TRUE(work.is_right(Mode::assign));
    EXPECT_EQ(driver.calls_of("cuMemHostAlloc"), 2u);
    driver.unregister_host(work.in[0]);
  }
  expect_clean(driver, "pinned shards");
}

// The first run pins, for all devices and contexts; later ones find it done, until the memory is unregistered.
TEST(CudaMemory, RegisteredShardsArePinnedOnceAndNotStaged) {
  FakeCudaScript script;
  script.devices.resize(2);
  FakeCuda driver(script);
  {
    Work work(2, 3, 50'000);
    auto backend = gpu::make_backend(fake_options(driver), base::Log());
    const auto prepared = backend->prepare(work.matrix);
    gpu::Options options = fake_options(driver);
    options.device = "cuda:1";
    const auto other = gpu::make_backend(options, base::Log());
    {
      const RegisteredShards registered(work);
      EXPECT_EQ(driver.calls_of("cuMemHostRegister"), 0u) << "no run has used them";
      for (unsigned run = 0; run < 3; ++run) {
        work.reset();
        run < 2 ? work.run(*backend, *prepared, Mode::assign)
                : work.run(*other, *other->prepare(work.matrix), Mode::assign);
        EXPECT_TRUE(work.is_right(Mode::assign));
        EXPECT_EQ(driver.calls_of("cuMemHostRegister"), 5u);
        EXPECT_EQ(driver.calls_of("cuMemHostAlloc"), 0u);
      }
      EXPECT_EQ(driver.live()["registered memory"], 5);
      work.reset();
      work.run(*backend, *prepared, Mode::compare);
      EXPECT_TRUE(work.is_right(Mode::compare));
      backend.reset();  // the pins do not need it
      EXPECT_EQ(driver.live()["registered memory"], 5);
    }
    EXPECT_EQ(driver.live()["registered memory"], 0);
    EXPECT_EQ(driver.calls_of("cuMemHostUnregister"), 5u);
    const std::uint64_t pinned = driver.calls_of("cuMemHostAlloc");
    work.reset();
    work.run(*other, *other->prepare(work.matrix), Mode::assign);
    EXPECT_TRUE(work.is_right(Mode::assign));
    EXPECT_GT(driver.calls_of("cuMemHostAlloc"), pinned) << "staged again";
  }
  expect_clean(driver, "registered shards");
}

// Shards in the middle of one registered range.
TEST(CudaMemory, ARangeIsPinnedAsAWhole) {
  FakeCuda driver;
  {
    Work work(1, 1, 10'000);
    const auto backend = gpu::make_backend(fake_options(driver), base::Log());
    const auto prepared = backend->prepare(work.matrix);
    std::vector<std::byte> block(30'000);
    std::memcpy(block.data() + 77, work.inputs[0].data(), 10'000);
    core::register_memory(block.data(), block.size());
    const std::byte *in = block.data() + 77;
    std::byte *out = block.data() + 12'345;
    const core::Task task = {prepared.get(), &in, &out, 100, 9000, Mode::assign};
    core::Control control;
    backend->run({&task, 1}, control);
    EXPECT_EQ(std::memcmp(out + 100, work.product[0].data() + 100, 9000), 0);
    EXPECT_EQ(driver.calls_of("cuMemHostRegister"), 1u);
    EXPECT_EQ(driver.calls_of("cuMemHostAlloc"), 0u);
    core::unregister_memory(block.data());
  }
  expect_clean(driver, "a range");
}

// The program has pinned its memory by CUDA, and registers it so that hybrids do not copy it.
TEST(CudaMemory, MemoryThatCudaHasPinnedMayBeRegistered) {
  FakeCuda driver;
  {
    Heard heard;
    Work work(1, 1, 10'000);
    work.reset();
    const auto backend = gpu::make_backend(fake_options(driver), heard.log());
    const auto prepared = backend->prepare(work.matrix);
    const core::Task task = {prepared.get(), work.in.data(), work.out.data(), 0, work.bytes, Mode::assign};
    const Registered by_cuda(driver, {&task, 1});
    const RegisteredShards registered(work);
    core::Control control;
    backend->run({&task, 1}, control);
    EXPECT_TRUE(work.is_right(Mode::assign));
    EXPECT_EQ(driver.calls_of("cuMemHostAlloc"), 0u) << "not staged";
    EXPECT_FALSE(heard.has("cannot be pinned")) << heard.text;
  }
  expect_clean(driver, "memory that the program has pinned");
}

// A driver that does not pin is asked once, and the log says so.
TEST(CudaMemory, WhatCannotBePinnedIsStaged) {
  FakeCuda driver;
  {
    Heard heard;
    Work work(1, 1, 10'000);
    work.reset();
    const auto backend = gpu::make_backend(fake_options(driver), heard.log());
    const auto prepared = backend->prepare(work.matrix);
    work.run(*backend, *prepared, Mode::assign);  // has staging memory from now on
    FakeCudaScript script;
    script.pinned_limit_bytes = 1;
    driver.set_script(script);
    const RegisteredShards registered(work);
    for (unsigned run = 0; run < 2; ++run) {
      work.reset();
      work.run(*backend, *prepared, Mode::assign);
      EXPECT_TRUE(work.is_right(Mode::assign));
      EXPECT_EQ(driver.calls_of("cuMemHostRegister"), 2u) << "an input and an output, once";
    }
    EXPECT_TRUE(heard.has("the 10000 registered bytes at 0x")) << heard.text;
    EXPECT_TRUE(heard.has("CUDA_ERROR_OUT_OF_MEMORY")) << heard.text;
  }
  expect_clean(driver, "memory that is not pinned");
}

TEST(CudaMemory, ADeviceThatSharesTheHostsMemoryNeedsNoStaging) {
  FakeCudaScript script;
  script.devices[0].reads_pageable = script.devices[0].uses_host_page_tables = true;
  FakeCuda driver(script);
  {
    Work work(2, 3, 50'000);
    const auto backend = gpu::make_backend(fake_options(driver), base::Log());
    const auto prepared = backend->prepare(work.matrix);
    work.run(*backend, *prepared, Mode::assign);
    EXPECT_TRUE(work.is_right(Mode::assign));
    EXPECT_EQ(driver.calls_of("cuMemHostAlloc"), 0u);
    EXPECT_EQ(driver.calls_of("cuMemcpyHtoDAsync"), 1u + 3u) << "tables, and each shard from where it lies";
    EXPECT_EQ(driver.calls_of("cuMemcpyDtoHAsync"), 2u);
    work.reset();
    work.run(*backend, *prepared, Mode::accumulate);
    EXPECT_TRUE(work.is_right(Mode::accumulate));
  }
  expect_clean(driver, "shared memory");
}

TEST(CudaMemory, StagingMemoryIsPinnedAndOutlivesTheBackend) {
  FakeCuda driver;
  std::shared_ptr<std::byte> kept;
  {
    Work work(1, 1, 10'000);
    const auto backend = gpu::make_backend(fake_options(driver), base::Log());
    const auto prepared = backend->prepare(work.matrix);
    kept = backend->staging_memory(20'000);
    std::memcpy(kept.get(), work.inputs[0].data(), 10'000);
    const std::byte *in = kept.get();
    std::byte *out = kept.get() + 10'000;
    const core::Task task = {prepared.get(), &in, &out, 0, 10'000, Mode::assign};
    core::Control control;
    backend->run({&task, 1}, control);
    EXPECT_EQ(std::memcmp(out, work.product[0].data(), 10'000), 0);
    EXPECT_EQ(driver.calls_of("cuMemHostAlloc"), 1u) << "it was staged once more";
    FakeCudaScript script;
    script.pinned_limit_bytes = 1;
    driver.set_script(script);
    EXPECT_EQ(status_of([&] { backend->staging_memory(1000); }).first, TANDEM_ERROR_OUT_OF_MEMORY);
  }
  kept.get()[0] = std::byte{1};
  kept.reset();
  expect_clean(driver, "staging memory");
}

TEST(CudaMemory, TheBudgetHoldsOverShapes) {
  FakeCuda driver;
  core::Budget resources;
  resources.set_all("cuda_mib=3");
  gpu::Options options = fake_options(driver);
  options.resources = &resources;
  const auto backend = gpu::make_backend(options, base::Log());
  std::uint64_t most = 3 << 20;
  for (unsigned round = 0; round < 2; ++round) {
    for (const auto &[rows, columns] : {std::pair(2u, 60u), std::pair(60u, 2u), std::pair(20u, 20u)}) {
      Work work(rows, columns, 50'000);
      const auto prepared = backend->prepare(work.matrix);
      for (const Mode mode : {Mode::compare, Mode::accumulate}) {
        work.reset();
        work.run(*backend, *prepared, mode);
        ASSERT_TRUE(work.is_right(mode)) << rows << " x " << columns;
        ASSERT_LE(driver.most_device_bytes(), most) << rows << " x " << columns;
        EXPECT_GT(driver.most_device_bytes(), most / 8) << rows << " x " << columns;
      }
    }
    resources.set("cuda_mib", 1);
    most = 1 << 20;
    if (round == 0) {  // what was kept goes when room is needed
      Work other(3, 40, 50'000);
      const auto prepared = backend->prepare(other.matrix);
      other.run(*backend, *prepared, Mode::assign);
      EXPECT_TRUE(other.is_right(Mode::assign));
      EXPECT_LE(driver.device_bytes(), most);
      driver.set_script({});  // the peak begins again
    }
  }
}

// Others use the device, and the host's pinned memory, too: pieces become smaller until they fit, or it is a status.
TEST(CudaMemory, LessThanTheBudgetMakesSmallerPieces) {
  for (const bool of_device : {true, false}) {
    for (const std::uint64_t available : {1u << 20, 1u << 17, 1u << 14, 100u}) {
      FakeCudaScript script;
      (of_device ? script.devices[0].available_bytes : script.pinned_limit_bytes) = available;
      FakeCuda driver(script);
      {
        Work work(4, 10, 100'001);
        const auto backend = gpu::make_backend(fake_options(driver, "compiled"), base::Log());
        const auto prepared = backend->prepare(work.matrix);
        for (const Mode mode : {Mode::assign, Mode::accumulate}) {
          work.reset();
          const auto [status, message] = status_of([&] { work.run(*backend, *prepared, mode); });
          EXPECT_EQ(status, available >= 1 << 14 ? TANDEM_OK : TANDEM_ERROR_OUT_OF_MEMORY) << available << message;
          if (status == TANDEM_OK) {
            EXPECT_TRUE(work.is_right(mode));
          } else {
            EXPECT_TRUE(work.is_untouched());
          }
        }
      }
      expect_clean(driver, "little memory");
    }
  }
}

TEST(CudaMemory, TooLittleForOneLineOfEachShardIsAClearError) {
  FakeCuda driver;
  Work work(4, 10, 3000);
  gpu::Options options = fake_options(driver, "compiled");
  options.memory_budget_bytes = 4096;
  const auto backend = gpu::make_backend(options, base::Log());
  const auto prepared = backend->prepare(work.matrix);
  const auto [status, message] = status_of([&] { work.run(*backend, *prepared, Mode::assign); });
  EXPECT_EQ(status, TANDEM_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(message.find("4096 bytes"), std::string::npos) << message;
  EXPECT_NE(message.find("14 shards"), std::string::npos) << message;
}

// ---- devices --------------------------------------------------------------------------------------------------

TEST(CudaDevices, WhyThereIsNone) {
  const auto reason_of = [](const std::function<void(FakeCudaScript &)> &change) {
    FakeCudaScript script;
    change(script);
    FakeCuda driver(script);
    const auto backend = gpu::make_backend(fake_options(driver), base::Log());
    const auto [status, message] = status_of([&] { backend->prepare(core::Matrix(1, 1)); });
    EXPECT_EQ(status, TANDEM_ERROR_UNAVAILABLE) << message;
    const gpu::Listing listing = gpu::describe_devices(std::chrono::seconds(20), driver.table());
    EXPECT_TRUE(listing.devices.empty());
    EXPECT_EQ(listing.missing.find('\n'), std::string::npos);
    EXPECT_NE(message.find(listing.missing), std::string::npos) << message << " | " << listing.missing;
    return listing.missing;
  };
  const auto has = [](const std::string &text, const char *part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(reason_of([](FakeCudaScript &script) { script.problem = "libcuda is not here"; }), "libcuda is not here");
  has(reason_of([](FakeCudaScript &script) { script.driver_version = 11060; }), "of CUDA 11.6, 11.7 or later");
  has(reason_of([](FakeCudaScript &script) { script.init_error = CUDA_ERROR_NO_DEVICE; }), "finds no GPU");
  has(reason_of([](FakeCudaScript &script) { script.init_error = CUDA_ERROR_SYSTEM_NOT_READY; }), "cuInit failed with");
  has(reason_of([](FakeCudaScript &script) { script.devices.clear(); }), "finds no GPU");
  has(reason_of([](FakeCudaScript &script) { script.devices[0].major = 7; }), "compute capability is 7.0, 7.5");
  has(reason_of([](FakeCudaScript &script) { script.devices[0].compute_mode = CU_COMPUTEMODE_PROHIBITED; }),
      "prohibited");
  has(reason_of([](FakeCudaScript &script) { script.devices[0].has_pools = false; }), "no stream-ordered memory pools");
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
  EXPECT_EQ(message, "backend \"cuda\": /there has version 1, this library needs version 6");
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
  const gpu::Listing listing = gpu::describe_devices(std::chrono::seconds(20), driver.table());
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
        FakeCudaScript script;
        script.devices[0].is_integrated = integrated;
        script.devices[0].reads_pageable = pageable;
        script.devices[0].uses_host_page_tables = page_tables;
        FakeCuda driver(script);
        const auto backend = gpu::make_backend(fake_options(driver), base::Log());
        EXPECT_FALSE(backend->traits().shares_memory) << "not looked for yet";
        backend->prepare(core::Matrix(1, 1));
        EXPECT_EQ(backend->traits().shares_memory, pageable && (integrated || page_tables));
        EXPECT_FALSE(backend->traits().shares_cores);
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

// Memory for programs that use no driver themselves: a stripe of it goes through the backend, and is released with it.
TEST(CudaDeviceMemory, OfTheBackendsOwn) {
  FakeCuda driver;
  {
    const auto backend = gpu::make_backend(fake_options(driver), base::Log());
    Work work(2, 3, 50'003);
    const std::uint64_t pitch = 50'048;
    const auto prepared = backend->prepare(work.matrix);
    const auto memory = backend->device_memory(5 * pitch);
    EXPECT_EQ(memory->kind(), core::MemoryKind::cuda);
    for (const Mode mode : kModes) {
      work.reset();
      std::vector<std::byte *> shards(5, static_cast<std::byte *>(memory->shards()));
      std::vector<std::uint64_t> offsets;
      for (unsigned i = 0; i < 5; ++i) {
        offsets.push_back(i * pitch);
        memory->write(offsets[i], i < 3 ? work.in[i] : work.out[i - 3], work.bytes);
      }
      core::Task task = {prepared.get(), shards.data(), shards.data() + 3, 0, work.bytes, mode, work.mismatches.data()};
      task.memory = memory->kind();
      task.queue = memory->queue();
      task.input_offsets = offsets.data();
      task.output_offsets = offsets.data() + 3;
      core::Control control;
      backend->run({&task, 1}, control);
      for (unsigned r = 0; r < 2; ++r) memory->read(offsets[3 + r], work.out[r], work.bytes);
      EXPECT_TRUE(work.is_right(mode)) << static_cast<int>(mode);
    }
    for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1} << 60})
      EXPECT_NE(status_of([&] { backend->device_memory(bytes); }).first, TANDEM_OK);
  }
  expect_clean(driver, "memory of the backend's own");
}

// A copy that fails has a status, and nothing is left behind.
TEST(CudaDeviceMemory, EveryCallOfItsOwnMayFail) {
  bool is_reached = true;
  for (std::uint64_t call = 0; is_reached && !HasFailure(); ++call) {
    FakeCudaScript script;
    FakeCuda driver(script);
    {
      const auto backend = gpu::make_backend(fake_options(driver), base::Log());
      Work work(2, 3, 1000);
      const auto prepared = backend->prepare(work.matrix);
      std::vector<std::byte> bytes(1000, std::byte{7}), back(1000);
      script.failing_call = call;
      driver.set_script(script);
      const auto [status, message] = status_of([&] {
        const auto memory = backend->device_memory(1000);
        memory->write(0, bytes.data(), 1000);
        memory->read(0, back.data(), 1000);
      });
      is_reached = !driver.failed_call().empty();
      EXPECT_TRUE(status != TANDEM_OK || back == bytes) << call;
      EXPECT_TRUE(is_reached || status == TANDEM_OK) << message;
      driver.set_script({});
      work.reset();
      work.run(*backend, *prepared, Mode::assign);
      EXPECT_TRUE(work.is_right(Mode::assign)) << call;
    }
    expect_clean(driver, "a failed call of memory of its own: " + std::to_string(call));
  }
}

TEST(CudaDevices, TwoAtOnce) {
  FakeCudaScript script;
  script.devices.resize(2);
  FakeCuda driver(script);
  std::vector<std::thread> threads;
  std::vector<int> right(2, 0);
  for (unsigned t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      gpu::Options options = fake_options(driver);
      options.device = "cuda:" + std::to_string(t);
      const auto backend = gpu::make_backend(options, base::Log());
      Work work(2 + t, 6, 50'000);
      const auto prepared = backend->prepare(work.matrix);
      for (unsigned round = 0; round < 10; ++round) {
        const Mode mode = round % 2 == 0 ? Mode::assign : Mode::accumulate;
        work.reset();
        work.run(*backend, *prepared, mode);
        right[t] += work.is_right(mode);
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(2, 10));
  expect_clean(driver, "two devices");
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
  const auto violation = [](const std::function<void(const tandem_cuda_module &, CUstream, CUstream, CUevent)> &body) {
    FakeCuda driver;
    const tandem_cuda_module &cuda = *driver.table();
    cuda.cuCtxPushCurrent(driver.context());
    const CUstream one = driver.make_stream(), other = driver.make_stream();
    CUevent event = nullptr;
    cuda.cuEventCreate(&event, CU_EVENT_BLOCKING_SYNC);
    body(cuda, one, other, event);
    driver.destroy(one);
    driver.destroy(other);
    cuda.cuEventDestroy(event);
    CUcontext popped = nullptr;
    cuda.cuCtxPopCurrent(&popped);
    const auto violations = driver.violations();
    return violations.empty() ? std::string() : violations.front();
  };
  std::uint32_t bytes = 7;
  const auto make = [](const tandem_cuda_module &cuda, CUstream stream) {
    CUdeviceptr memory = 0;
    EXPECT_EQ(cuda.cuMemAllocFromPoolAsync(&memory, 4, nullptr, stream), CUDA_SUCCESS);
    return memory;
  };
  EXPECT_EQ(violation([&](auto &cuda, CUstream one, CUstream other, CUevent event) {
              const CUdeviceptr memory = make(cuda, one);
              cuda.cuEventRecord(event, one);
              cuda.cuStreamWaitEvent(other, event, 0);
              cuda.cuMemcpyHtoDAsync(memory, &bytes, 4, other);
              cuda.cuEventRecord(event, other);
              cuda.cuStreamWaitEvent(one, event, 0);
              cuda.cuMemFreeAsync(memory, one);
            }),
            "");
  EXPECT_EQ(violation([&](auto &cuda, CUstream one, CUstream other, CUevent) {
              const CUdeviceptr memory = make(cuda, one);
              cuda.cuStreamSynchronize(one);
              cuda.cuMemcpyHtoDAsync(memory, &bytes, 4, other);
              cuda.cuStreamSynchronize(other);
              cuda.cuMemFreeAsync(memory, one);
            }),
            "");
  EXPECT_EQ(violation([&](auto &cuda, CUstream one, CUstream other, CUevent) {
              cuda.cuMemcpyHtoDAsync(make(cuda, one), &bytes, 4, other);
            }),
            "cuMemcpyHtoDAsync: memory that may not be allocated yet");
  EXPECT_EQ(violation([&](auto &cuda, CUstream one, CUstream other, CUevent event) {
              const CUdeviceptr memory = make(cuda, one);
              cuda.cuEventRecord(event, one);
              cuda.cuStreamWaitEvent(other, event, 0);
              cuda.cuMemsetD32Async(memory, 0, 1, other);
              cuda.cuMemFreeAsync(memory, one);
            }),
            "cuMemFreeAsync: of memory that may still be used");
  EXPECT_EQ(violation([&](auto &cuda, CUstream one, CUstream, CUevent) {
              const CUdeviceptr memory = make(cuda, one);
              cuda.cuMemFreeAsync(memory, one);
              cuda.cuMemcpyDtoHAsync(&bytes, memory, 4, one);
            }),
            "cuMemcpyDtoHAsync: memory that was freed before");
  EXPECT_EQ(violation([&](auto &cuda, CUstream one, CUstream other, CUevent) {
              cuda.cuMemFreeAsync(make(cuda, one), other);
            }),
            "cuMemFreeAsync: before the allocation");
}

// ---- programs ---------------------------------------------------------------------------------------------------

TEST(CudaPrograms, TheTechniqueFollowsTheBytes) {
  const Threshold tuning;
  FakeCuda driver;
  Heard heard;
  gpu::Options options = fake_options(driver);
  options.tuning = &tuning;
  const auto backend = gpu::make_backend(options, heard.log());
  Work work(2, 4, 3000);  // 12,000 bytes a run
  const auto prepared = backend->prepare(work.matrix);
  for (unsigned run = 0; run < 3; ++run) {
    EXPECT_EQ(driver.calls_of("nvrtcCompileProgram"), 0u) << "no compile below the switch-over";
    work.reset();
    work.run(*backend, *prepared, Mode::assign);
    EXPECT_TRUE(work.is_right(Mode::assign));
  }
  wait_until([&] { return work.run(*backend, *prepared, Mode::assign), heard.has("technique compiled"); }, "compiled");
  EXPECT_FALSE(driver.has_called_nvrtc(std::this_thread::get_id()));
  EXPECT_TRUE(heard.has("technique tables: 12000 bytes through this matrix do not pay for a compile (from 30000)"));
  EXPECT_TRUE(heard.has("tuning value left out: element_bytes = 32")) << heard.text;
  const auto again = backend->prepare(work.matrix);
  work.reset();
  work.run(*backend, *again, Mode::assign);
  EXPECT_EQ(driver.calls_of("nvrtcCompileProgram"), 1u) << "another plan of the same matrix finds the program";
}

// Technique tables serves without NVRTC, with an NVRTC that does not know the device, and if the driver refuses
// programs. What was measured on the device's memory says how the kernel is made, and what was measured on the host's
// the rest.
TEST(CudaPrograms, ValuesOfBothKindsOfMemory) {
  struct Source final : core::TuningSource {
    core::TuningChoice find(const core::TuningQuery &query) const override {
      if (query.on_device && knows_device)
        return {{{"element_bytes", 4}, {"local_x", 32}, {"staging_bytes", 3 << 20}}, "of the device"};
      if (!query.on_device && knows_host)
        return {{{"element_bytes", 16}, {"rows_per_pass", 1}, {"staging_bytes", 2 << 20}}, "of the host"};
      return {};
    }
    bool knows_device = true, knows_host = true;
  };
  const auto said = [](bool knows_device, bool knows_host) {
    Source source;
    source.knows_device = knows_device;
    source.knows_host = knows_host;
    FakeCuda driver;
    Heard heard;
    gpu::Options options = fake_options(driver);
    options.tuning = &source;
    const auto backend = gpu::make_backend(options, heard.log());
    Work work(3, 4, 1000);
    const auto prepared = backend->prepare(work.matrix);
    work.run(*backend, *prepared, Mode::assign);
    return heard.text;
  };
  const auto has = [](const std::string &text, const char *part) { return text.find(part) != std::string::npos; };
  const std::string both = said(true, true);
  EXPECT_TRUE(has(both, "local 32x1x1, element_bytes 4, elements_per_item 1, rows_per_pass 3")) << both;
  EXPECT_TRUE(has(both, "staging_bytes 2097152")) << both;
  EXPECT_TRUE(has(both, "(of the device; transfers of the host)")) << both;
  const std::string host = said(false, true);
  EXPECT_TRUE(has(host, "local 128x1x1, element_bytes 16, elements_per_item 1, rows_per_pass 1")) << host;
  const std::string device = said(true, false);
  EXPECT_TRUE(has(device, "element_bytes 4")) << device;
  EXPECT_TRUE(has(device, "staging_bytes 16777216")) << device;
}

TEST(CudaPrograms, TablesWorkWithoutACompiler) {
  const auto told = [](const std::function<void(FakeCudaScript &)> &change, const char *why) {
    const Threshold tuning;
    FakeCudaScript script;
    change(script);
    FakeCuda driver(script);
    Heard heard;
    {
      gpu::Options options = fake_options(driver);
      options.tuning = &tuning;
      const auto backend = gpu::make_backend(options, heard.log());
      Work work(2, 4, 30'000);
      const auto prepared = backend->prepare(work.matrix);
      for (const Way way : kWays) {
        work.reset();
        run_way(driver, way, *backend, *prepared, work, Mode::assign);
        EXPECT_TRUE(work.is_right(Mode::assign));
      }
      EXPECT_TRUE(heard.has("technique tables")) << heard.text;
      wait_until([&] { return heard.has(why); }, why);
      options.technique = "compiled";
      const auto forced = gpu::make_backend(options, base::Log());
      const auto compiled = forced->prepare(work.matrix);
      EXPECT_EQ(status_of([&] { work.run(*forced, *compiled, Mode::assign); }).first, TANDEM_ERROR_UNAVAILABLE);
    }
    expect_clean(driver, "no compiler");
    return heard.text;
  };
  told([](FakeCudaScript &script) { script.nvrtc_problem = "NVRTC is not installed"; }, "NVRTC is not installed");
  told([](FakeCudaScript &script) { script.nvrtc_version = 11060; }, "NVRTC 11.6 is too old, 11.7 or later is needed");
  told([](FakeCudaScript &script) { script.architectures = {100, 120}; }, "does not know compute capability 9.0");
  told([](FakeCudaScript &script) { script.refuses_cubins = true; }, "refuses what NVRTC 12.4 compiled");
  const auto old_driver = [](FakeCudaScript &script) {
    script.refuses_cubins = true;
    script.driver_version = 11080;
  };
  told(old_driver, "made by CUDA 12.4, which needs a driver of CUDA 12.0 or later");
  const std::string refused = told([](FakeCudaScript &script) { script.refuses_text = true; }, kStoppedCompiling);
  EXPECT_NE(refused.find("fake: no"), std::string::npos) << refused;
}

// What a tuning file says about compiled kernels does not switch off the tables that came with the library.
TEST(CudaPrograms, TunedTablesNeedNoCompilerEither) {
  struct Wide : core::TuningSource {
    core::TuningChoice find(const core::TuningQuery &) const override {
      return {{{"elements_per_item", 4}, {"loads", 1}}, "for this test"};
    }
  } tuning;
  FakeCudaScript script;
  script.nvrtc_problem = "NVRTC is not installed";
  FakeCuda driver(script);
  {
    gpu::Options options = fake_options(driver);
    options.tuning = &tuning;
    const auto backend = gpu::make_backend(options, base::Log());
    Work work(2, 4, 30'000);
    const auto prepared = backend->prepare(work.matrix);
    for (const Way way : kWays) {
      for (const Mode mode : kModes) {
        work.reset();
        run_way(driver, way, *backend, *prepared, work, mode);
        EXPECT_TRUE(work.is_right(mode));
      }
    }
  }
  expect_clean(driver, "tuned tables");
}

TEST(CudaPrograms, PtxOfTheNewestArchitectureThatNvrtcKnows) {
  FakeCudaScript script;
  script.architectures = {75, 80, 86};
  FakeCuda driver(script);
  Work work(2, 4, 3000);
  const auto backend = gpu::make_backend(fake_options(driver, "compiled"), base::Log());
  const auto prepared = backend->prepare(work.matrix);
  work.run(*backend, *prepared, Mode::assign);
  EXPECT_TRUE(work.is_right(Mode::assign));
  EXPECT_EQ(driver.calls_of("nvrtcGetPTXSize"), 1u);
}

// An image that the driver does not take, or that this build has not: tables by NVRTC; without that a clear error.
TEST(CudaPrograms, TablesWithoutAnImageAreCompiled) {
  for (const bool has_nvrtc : {true, false}) {
    for (const bool refused : {true, false}) {
      FakeCudaScript script;
      script.has_image = refused;
      script.refuses_image = refused;
      if (!has_nvrtc) script.nvrtc_problem = "NVRTC is not installed";
      FakeCuda driver(script);
      Heard heard;
      Work work(2, 4, 3000);
      const auto backend = gpu::make_backend(fake_options(driver, "tables"), heard.log());
      const auto prepared = backend->prepare(work.matrix);
      const auto [status, message] = status_of([&] { work.run(*backend, *prepared, Mode::assign); });
      EXPECT_EQ(heard.has(kImageRefused), refused) << heard.text;
      if (has_nvrtc) {
        EXPECT_EQ(status, TANDEM_OK) << message;
        EXPECT_TRUE(work.is_right(Mode::assign));
      } else {
        EXPECT_EQ(status, TANDEM_ERROR_UNAVAILABLE);
        EXPECT_NE(message.find("NVRTC is not installed"), std::string::npos) << message;
      }
    }
  }
}

struct Folder {
  Folder() { path = mkdtemp(name); }
  ~Folder() { std::filesystem::remove_all(path); }
  char name[32] = "/tmp/tandem-cuda-XXXXXX";
  std::string path;
};

TEST(CudaPrograms, AreKeptOnDiskAndBuiltAnewWhenTheDriverRefusesThem) {
  const Folder folder;
  Work work(2, 4, 3000);
  const auto life = [&](FakeCuda &driver, Heard &heard) {
    gpu::Options options = fake_options(driver);  // "auto": what is in the cache is used from the first byte on
    options.technique = driver.calls_of("cuInit") == 0 ? "compiled" : "";
    options.cache_folder = folder.path + "/cuda";
    const auto backend = gpu::make_backend(options, heard.log());
    const auto prepared = backend->prepare(work.matrix);
    work.reset();
    work.run(*backend, *prepared, Mode::assign);
    EXPECT_TRUE(work.is_right(Mode::assign));
  };
  Heard heard;
  {
    FakeCuda driver;
    life(driver, heard);
    EXPECT_EQ(driver.calls_of("nvrtcCompileProgram"), 1u);
  }
  {
    FakeCuda driver;
    driver.table()->cuInit(0);
    life(driver, heard);
    EXPECT_EQ(driver.calls_of("nvrtcCompileProgram"), 0u);
    EXPECT_TRUE(heard.has("it is in the cache")) << heard.text;
  }
  // Another compiler, another architecture: other programs.
  {
    FakeCudaScript script;
    script.devices[0].major = 8;
    FakeCuda driver(script);
    life(driver, heard);
    EXPECT_EQ(driver.calls_of("nvrtcCompileProgram"), 1u);
  }
  {
    FakeCudaScript script;
    script.refuses_cubins = true;
    FakeCuda driver(script);
    Work other(2, 4, 3000);
    gpu::Options options = fake_options(driver);
    options.cache_folder = folder.path + "/cuda";
    const auto backend = gpu::make_backend(options, heard.log());
    const auto prepared = backend->prepare(other.matrix);
    other.run(*backend, *prepared, Mode::assign);
    EXPECT_TRUE(other.is_right(Mode::assign)) << "by tables";
    EXPECT_EQ(driver.calls_of("nvrtcCompileProgram"), 1u);
    EXPECT_TRUE(heard.has("refuses a program from the cache; built again")) << heard.text;
  }
  // The one that was refused is not there any more.
  {
    FakeCuda driver;
    life(driver, heard);
    EXPECT_EQ(driver.calls_of("nvrtcCompileProgram"), 1u);
  }
}

// The real compiler's machine code goes the whole way to the driver, by memory and by disk.
TEST(CudaPrograms, TheRealCompiler) {
  if (!has_real_nvrtc()) GTEST_SKIP() << "NOT RUN: no NVRTC on this machine";
  const Folder folder;
  for (unsigned life = 0; life < 2; ++life) {
    FakeCudaScript script;
    script.real_nvrtc = true;
    script.has_image = false;
    FakeCuda driver(script);
    for (const char *technique : {"compiled", "tables"}) {
      gpu::Options options = fake_options(driver, technique);
      options.cache_folder = folder.path + "/cuda";
      const auto backend = gpu::make_backend(options, base::Log());
      Work work(4, 10, 20'000);
      const auto prepared = backend->prepare(work.matrix);
      for (const Mode mode : kModes) {
        work.reset();
        work.run(*backend, *prepared, mode);
        EXPECT_TRUE(work.is_right(mode));
      }
    }
    EXPECT_EQ(driver.calls_of("nvrtcCompileProgram"), life == 0 ? 4u : 0u) << "assign and compare, each technique";
    EXPECT_TRUE(driver.violations().empty());
  }
}

TEST(CudaPrograms, ABlockThatIsTooLargeIsMadeSmaller) {
  FakeCudaScript script;
  script.devices[0].most_threads = 100;
  FakeCuda driver(script);
  Work work(2, 4, 3000);
  Heard heard;
  const auto backend = gpu::make_backend(fake_options(driver), heard.log());
  const auto prepared = backend->prepare(work.matrix);
  work.run(*backend, *prepared, Mode::assign);
  EXPECT_TRUE(work.is_right(Mode::assign));
  EXPECT_TRUE(heard.has("64x1x1 instead")) << heard.text;
  work.run(*backend, *prepared, Mode::assign);
  EXPECT_EQ(heard.text.find("instead"), heard.text.rfind("instead")) << "said once: " << heard.text;
  for (const auto &[name, items] : {std::pair("local_x", 2048u), std::pair("local_z", 65u)}) {
    const auto [status, message] = status_of([&] { backend->tunable()->prepare_tuned(work.matrix, {{name, items}}); });
    EXPECT_EQ(status, TANDEM_ERROR_UNAVAILABLE) << name;
    EXPECT_NE(message.find("local size " + std::to_string(items)), std::string::npos) << message;
  }
  const auto forced = backend->tunable()->prepare_tuned(work.matrix, {{"local_x", 128}});
  EXPECT_EQ(status_of([&] { work.run(*backend, *forced, Mode::assign); }).first, TANDEM_ERROR_UNAVAILABLE);
  EXPECT_EQ(status_of([&] {
              backend->tunable()->prepare_tuned(work.matrix, {{"element_bytes", 32}});
            }).first,
            TANDEM_ERROR_INVALID_ARGUMENT);
}

// ---- fork ---------------------------------------------------------------------------------------------------------

TEST(CudaFork, AChildUsesNothingOfItsParents) {
  TANDEM_SKIP_FORK_BESIDE_THREADS();
  FakeCuda driver;
  Work work(2, 3, 5000);
  auto backend = gpu::make_backend(fake_options(driver), base::Log());
  auto prepared = backend->prepare(work.matrix);
  run_way(driver, Way::on_device, *backend, *prepared, work, Mode::assign);
  work.run(*backend, *prepared, Mode::assign);
  std::shared_ptr<std::byte> staging = backend->staging_memory(100);
  OnDevice stripe(driver, work, 0);
  const core::Task task = stripe.task(*prepared, Mode::assign);
  core::Control control;
  auto unfinished = backend->submit({&task, 1}, control);
  const std::uint64_t calls = driver.call_count();
  const pid_t child = fork();
  if (child == 0) {
    bool good = status_of([&] { work.run(*backend, *prepared, Mode::assign); }).first == TANDEM_ERROR_DEVICE;
    good = good && gpu::describe_devices(std::chrono::seconds(1), driver.table()).devices.empty();
    staging.reset();
    unfinished.reset();
    prepared.reset();
    backend.reset();
    _exit(good && driver.call_count() == calls && driver.calls_of("cuMemFreeHost") == 0 &&
                  driver.calls_of("cuDevicePrimaryCtxRelease") == 0
              ? 0
              : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  unfinished->wait();
  work.reset();
  work.run(*backend, *prepared, Mode::assign);
  EXPECT_TRUE(work.is_right(Mode::assign));
}

}  // namespace
}  // namespace tandem::test
