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

// A backend that owns its driver.
class FakeOpencl final : public core::Backend {
 public:
  FakeOpencl(const char *technique, Transfer transfer, std::uint64_t memory_bytes = 0) : driver_(driver()) {
    opencl::Options options = fake_options(*driver_, transfer);
    options.technique = technique;
    options.memory_budget_bytes = memory_bytes;
    backend_ = opencl::make_backend(options, base::Log());
  }
  const core::Traits &traits() const noexcept override { return backend_->traits(); }
  std::shared_ptr<const core::Prepared> prepare(const core::Operator &what) override { return backend_->prepare(what); }
  void run(std::span<const core::Task> tasks, core::Control &control) override { backend_->run(tasks, control); }

 private:
  // Shared by the backends of a test that has two.
  static std::shared_ptr<FakeDriver> driver() {
    static std::weak_ptr<FakeDriver> last;
    std::shared_ptr<FakeDriver> driver = last.lock();
    if (driver == nullptr) {
      FakeDriverScript script;
      script.devices[0].shares_memory = true;
      last = driver = std::make_shared<FakeDriver>(script);
    }
    return driver;
  }
  std::shared_ptr<FakeDriver> driver_;
  std::unique_ptr<core::Backend> backend_;
};

std::vector<BackendMaker> makers() {
  std::vector<BackendMaker> list;
  for (const char *technique : {"tables", "compiled"}) {
    list.push_back({std::string("staged_") + technique,
                    [=] { return std::make_unique<FakeOpencl>(technique, Transfer::staged); }, ""});
    list.push_back({std::string("zero_copy_") + technique,
                    [=] { return std::make_unique<FakeOpencl>(technique, Transfer::zero_copy); }, ""});
  }
  list.push_back(
      {"little_memory", [] { return std::make_unique<FakeOpencl>("tables", Transfer::staged, 1 << 20); }, ""});
  return list;
}

INSTANTIATE_TEST_SUITE_P(OpenclFake, BackendConformance, testing::ValuesIn(makers()), maker_name);
// The forms are matrices to a device: the real drivers' conformance has them.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FormConformance);

// A stripe in buffers of the fake, on a queue in a context of its own.
class OnDevice {
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
  ~OnDevice() {
    for (const cl_mem buffer : buffers_) driver_.clReleaseMemObject(buffer);
    driver_.clReleaseCommandQueue(queue);
    driver_.clReleaseContext(context);
  }

  void write() {
    for (std::size_t c = 0; c < in.size(); ++c)
      driver_.clEnqueueWriteBuffer(queue, in[c], CL_TRUE, in_offsets[c], work_.bytes, work_.inputs[c].data(), 0,
                                   nullptr, nullptr);
    for (std::size_t r = 0; r < out.size(); ++r)
      driver_.clEnqueueWriteBuffer(queue, out[r], CL_TRUE, out_offsets[r], work_.bytes, work_.before[r].data(), 0,
                                   nullptr, nullptr);
  }
  void read() {
    for (std::size_t r = 0; r < out.size(); ++r)
      driver_.clEnqueueReadBuffer(queue, out[r], CL_TRUE, out_offsets[r], work_.bytes, work_.outputs[r].data(), 0,
                                  nullptr, nullptr);
  }
  core::Task task(const core::Prepared &prepared, Mode mode) {
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

// The n-th call of the driver fails, for every n that a life of a backend has: each time that is a status with the
// call's name, or it did not matter and the bytes are right; nothing is leaked; the next run works.
void fail_every_call(Transfer transfer, const char *technique, Mode mode, bool by_command) {
  Work work(3, 5, 40'000);
  const auto life = [&](FakeDriver &driver, const std::function<void(core::Backend &, const core::Prepared &)> &body) {
    opencl::Options options = fake_options(driver, transfer);
    options.technique = technique;
    options.memory_budget_bytes = 1 << 20;  // several pieces
    const auto backend = opencl::make_backend(options, base::Log());
    const auto prepared = backend->prepare(work.matrix);
    body(*backend, *prepared);
  };
  FakeDriverScript script;
  script.devices[0].shares_memory = true;
  std::uint64_t count = 0;
  {
    FakeDriver driver(script);
    work.reset();
    life(driver, [&](core::Backend &backend, const core::Prepared &prepared) {
      work.run(backend, prepared, mode);
      ASSERT_TRUE(work.is_right(mode));
    });
    count = by_command ? driver.command_count() : driver.call_count();
  }
  ASSERT_GE(count, 4u);
  unsigned statuses = 0;
  const unsigned step = by_command ? 1 : kThinning;
  for (std::uint64_t n = static_cast<unsigned>(mode) % step; n < count; n += step) {
    (by_command ? script.failing_command : script.failing_call) = n;
    FakeDriver driver(script);
    work.reset();
    const auto [status, message] = status_of([&] {
      life(driver, [&](core::Backend &backend, const core::Prepared &prepared) {
        const auto [in_run, text] = status_of([&] { work.run(backend, prepared, mode); });
        if (in_run == TANDEM_OK) {
          ASSERT_TRUE(work.is_right(mode)) << "call " << n << ", " << driver.failed_call();
          return;
        }
        ++statuses;
        ASSERT_TRUE(in_run == TANDEM_ERROR_DEVICE || in_run == TANDEM_ERROR_OUT_OF_MEMORY) << text;
        ASSERT_NE(text.find("failed with CL_"), std::string::npos) << text;
        work.reset();
        work.run(backend, prepared, mode);
        ASSERT_TRUE(work.is_right(mode)) << "the run after call " << n << ", " << driver.failed_call();
      });
    });
    if (status != TANDEM_OK) ++statuses;  // the device could not even be described
    ASSERT_TRUE(driver.live().empty()) << driver.live().begin()->first << " left after call " << n << ", "
                                       << driver.failed_call();
    ASSERT_TRUE(driver.violations().empty()) << driver.violations().front();
  }
  EXPECT_GT(statuses, count / 2 / step) << "of " << count;
}

TEST(OpenclFaults, EveryCallStaged) {
  for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare})
    fail_every_call(Transfer::staged, "tables", mode, false);
  fail_every_call(Transfer::staged, "compiled", Mode::assign, false);
}
TEST(OpenclFaults, EveryCallZeroCopy) {
  for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare})
    fail_every_call(Transfer::zero_copy, "tables", mode, false);
}
TEST(OpenclFaults, EveryCommand) {
  for (const Transfer transfer : {Transfer::staged, Transfer::zero_copy})
    for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare})
      fail_every_call(transfer, "tables", mode, true);
}

// Staged: a range is committed when its piece is complete. With one piece a failed run has changed nothing, and the XOR
// that is done again is done once.
TEST(OpenclFaults, AFailedPieceLeavesTheOutputsAlone) {
  Work work(2, 3, 1000);
  FakeDriverScript script;
  unsigned failures = 0;
  for (std::uint64_t n = 0; n < 8; ++n) {
    script.failing_command = n;
    FakeDriver driver(script);
    const auto backend = opencl::make_backend(fake_options(driver), base::Log());
    const auto prepared = backend->prepare(work.matrix);
    work.reset();
    const tandem_status status = status_of([&] { work.run(*backend, *prepared, Mode::accumulate); }).first;
    if (status == TANDEM_OK) continue;  // a pinned buffer's mapping, or a command after the run
    ++failures;
    EXPECT_TRUE(work.is_untouched()) << "command " << n;
    work.run(*backend, *prepared, Mode::accumulate);
    EXPECT_TRUE(work.is_right(Mode::accumulate)) << "command " << n;
  }
  EXPECT_GE(failures, 4u) << "two uploads, the kernel, the download";
}

// Nothing of an OpenCL context in which a command failed is used again.
TEST(OpenclFaults, AfterAnErrorTheNextRunHasAContextOfItsOwn) {
  Work work(2, 3, 1000);
  FakeDriverScript script;
  script.failing_command = 3;
  FakeDriver driver(script);
  Heard heard;
  const auto backend = opencl::make_backend(fake_options(driver), heard.log());
  const auto prepared = backend->prepare(work.matrix);
  EXPECT_NE(status_of([&] { work.run(*backend, *prepared, Mode::assign); }).first, TANDEM_OK);
  EXPECT_TRUE(heard.has("its context is given up")) << heard.text;
  EXPECT_EQ(driver.calls_of("clCreateContext"), 1u);
  for (unsigned run = 0; run < 2; ++run) {
    work.reset();
    work.run(*backend, *prepared, Mode::assign);
    EXPECT_TRUE(work.is_right(Mode::assign));
    EXPECT_EQ(driver.calls_of("clCreateContext"), 2u) << "and keeps it";
  }
}

// At each command of a run: pieces that were complete by then are the product, the others are as before.
TEST(OpenclFaults, ACancelDrainsAndTheNextRunWorks) {
  Work work(2, 3, 20'000);
  opencl::Options options;
  std::uint64_t count = 1;
  unsigned cancelled = 0;
  for (std::uint64_t n = 0; n < count; ++n) {
    FakeDriver driver;
    {
      options = fake_options(driver);
      options.memory_budget_bytes = 128 << 10;  // several pieces
      const auto backend = opencl::make_backend(options, base::Log());
      const auto prepared = backend->prepare(work.matrix);
      work.reset();
      core::Control control;
      FakeDriverScript script;
      script.cancelling_command = n;
      script.control = &control;
      driver.set_script(script);
      const core::Task task = {prepared.get(), work.in.data(), work.out.data(), 0, work.bytes, Mode::assign};
      const tandem_status status = status_of([&] { backend->run({&task, 1}, control); }).first;
      if (n == 0) count = 30;
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
    ASSERT_TRUE(driver.live().empty()) << driver.live().begin()->first << " left after " << n;
  }
  EXPECT_GE(cancelled, 15u);
}

// A queue that does not come to an end may write later: what it writes to is never given back, nor used again.
TEST(OpenclFaults, WhatCannotBeFinishedIsQuarantined) {
  for (const Transfer transfer : {Transfer::staged, Transfer::zero_copy}) {
    for (const Mode mode : {Mode::assign, Mode::compare}) {
      FakeDriver driver;
      {
        Work work(2, 3, 5000);
        work.reset();
        const auto backend = opencl::make_backend(fake_options(driver, transfer), base::Log());
        const auto prepared = backend->prepare(work.matrix);
        work.run(*backend, *prepared, mode);
        FakeDriverScript script;
        script.failing_command = 0;
        script.finish_fails = true;
        driver.set_script(script);
        const auto [status, message] = status_of([&] { work.run(*backend, *prepared, mode); });
        EXPECT_EQ(status, TANDEM_ERROR_DEVICE);
        if (transfer == Transfer::zero_copy) {
          EXPECT_NE(message.find("does not end"), std::string::npos) << message;
        }
        driver.set_script({});
        work.reset();
        work.run(*backend, *prepared, mode);
        EXPECT_TRUE(work.is_right(mode));
        EXPECT_EQ(driver.calls_of("clCreateContext"), 1u);
        if (transfer == Transfer::staged) {  // a cancel is no error of the driver, but ends in the same way
          core::Control control;
          script.failing_command = UINT64_MAX;
          script.cancelling_command = 0;
          script.control = &control;
          driver.set_script(script);
          const auto other = backend->prepare(work.matrix);  // so that they do not go together
          const core::Task tasks[2] = {
              {prepared.get(), work.in.data(), work.out.data(), 0, work.bytes, mode, work.mismatches.data()},
              {other.get(), work.in.data(), work.out.data(), 0, work.bytes, mode, work.mismatches.data()}};
          EXPECT_EQ(status_of([&] { backend->run(tasks, control); }).first, TANDEM_ERROR_CANCELLED);
          driver.set_script({});
          work.reset();
          work.run(*backend, *prepared, mode);
          EXPECT_TRUE(work.is_right(mode));
          EXPECT_EQ(driver.calls_of("clCreateContext"), 1u);
        }
      }
      EXPECT_EQ(driver.live()["queue"], transfer == Transfer::staged ? 6 : 3);
      EXPECT_GE(driver.live()["buffer"], 1);
    }
  }
}

// Inputs, and all shards of a compare, may be mapped read-only.
TEST(OpenclZeroCopy, NeverAsksToWriteToWhatItOnlyReads) {
  Work work(2, 3, 5000);
  FakeDriverScript script;
  for (const Bytes &input : work.inputs) script.read_only.insert(input.data());
  FakeDriver driver(script);
  const auto backend = opencl::make_backend(fake_options(driver, Transfer::zero_copy), base::Log());
  const auto prepared = backend->prepare(work.matrix);
  for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare}) {
    if (mode == Mode::compare) {
      for (const Bytes &output : work.outputs) script.read_only.insert(output.data());
      driver.set_script(script);
    }
    work.reset();
    work.run(*backend, *prepared, mode);
    EXPECT_TRUE(work.is_right(mode));
  }
  EXPECT_TRUE(driver.violations().empty()) << driver.violations().front();
}

// Inputs in the caller's memory, outputs in staging memory of the backend or the caller's own, nothing aligned: no byte
// of a shard is copied where the device shares the host's memory. Elsewhere all of them are.
TEST(OpenclZeroCopy, MixedMemoryIsUsedWhereItLies) {
  constexpr std::uint64_t kBytes = 20'001, kOffset = 1003, kLength = 17'777;
  constexpr std::uint64_t kOffsetTable = (3 + 2) * sizeof(std::uint64_t);  // an argument of each launch
  for (const bool shares : {true, false}) {
    for (const bool staged_outputs : {true, false}) {
      for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare}) {
        FakeDriverScript script;
        script.devices[0].shares_memory = shares;
        FakeDriver driver(script);
        opencl::Options options = fake_options(driver, Transfer::automatic);
        options.technique = "compiled";
        const auto backend = opencl::make_backend(options, base::Log());
        Work work(2, 3, kBytes);
        work.reset();
        const auto prepared = backend->prepare(work.matrix);
        const std::shared_ptr<std::byte> staging = backend->staging_memory(2 * kBytes + 3);
        std::vector<std::byte *> outputs = work.out;
        for (unsigned r = 0; r < 2 && staged_outputs; ++r) {
          outputs[r] = staging.get() + r * kBytes + 3;
          std::memcpy(outputs[r], work.before[r].data(), kBytes);
        }
        const core::Task task = {prepared.get(), work.in.data(), outputs.data(),        kOffset,
                                 kLength,        mode,           work.mismatches.data()};
        core::Control control;
        backend->run({&task, 1}, control);
        for (unsigned r = 0; r < 2; ++r) {
          Bytes want = work.before[r];
          std::uint64_t differing = 0;
          for (std::uint64_t i = kOffset; i < kOffset + kLength; ++i) {
            differing += want[i] != work.product[r][i];
            if (mode == Mode::assign) want[i] = work.product[r][i];
            if (mode == Mode::accumulate) want[i] ^= work.product[r][i];
          }
          EXPECT_EQ(std::memcmp(outputs[r], want.data(), kBytes), 0);
          EXPECT_EQ(work.mismatches[r].byte_count, mode == Mode::compare ? differing : 0);
        }
        if (!shares) {
          EXPECT_GE(driver.copied_bytes(), 5 * kLength);
        } else if (mode == Mode::compare) {
          EXPECT_LT(driver.copied_bytes(), kLength) << "offsets and records";
        } else {
          EXPECT_EQ(driver.copied_bytes(), kOffsetTable);
        }
      }
    }
  }
}

TEST(OpenclZeroCopy, MemoryThatTheDriverDoesNotTakeIsStaged) {
  FakeDriverScript script;
  script.refuses_host_memory = true;
  FakeDriver driver(script);
  Heard heard;
  Work work(2, 3, 5000);
  const auto backend = opencl::make_backend(fake_options(driver, Transfer::zero_copy), heard.log());
  const auto prepared = backend->prepare(work.matrix);
  for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare}) {
    work.reset();
    work.run(*backend, *prepared, mode);
    EXPECT_TRUE(work.is_right(mode));
  }
  EXPECT_TRUE(heard.has("cannot use shards in place; they are staged")) << heard.text;
}

// Records are counted for what they need: a tile that is larger than a piece does not cut it to single lines.
// As CudaStaging: each byte is copied once each way by the copier, and a device that is done when it is first asked is
// not asked again.
TEST(OpenclStaging, CopiesEachByteOnceAndLooksBeforeItSleeps) {
  struct CountingCopier final : core::HostCopier {
    void run(std::span<const core::HostCopy> copies) override {
      ++run_count;
      for (const core::HostCopy &each : copies) bytes += each.bytes;
      core::copy_here(copies);
    }
    std::uint64_t run_count = 0, bytes = 0;
  };
  struct SmallPieces : core::TuningSource {
    core::TuningChoice find(const core::TuningQuery &) const override {
      return {{{"staging_bytes", 64 << 10}}, "for this test"};
    }
  };
  const SmallPieces small;
  for (const bool is_done_when_asked : {false, true}) {
    FakeDriverScript script;
    script.is_done_when_asked = is_done_when_asked;
    FakeDriver driver(script);
    const auto copier = std::make_shared<CountingCopier>();
    opencl::Options options = fake_options(driver);
    options.technique = "tables";
    options.tuning = &small;
    options.copier = copier;
    const auto backend = opencl::make_backend(options, base::Log());
    Work work(2, 3, 200'000);
    work.reset();
    const auto prepared = backend->prepare(work.matrix);
    work.run(*backend, *prepared, Mode::assign);
    EXPECT_TRUE(work.is_right(Mode::assign));
    EXPECT_EQ(copier->bytes, 5 * work.bytes);
    const std::uint64_t pieces = copier->run_count / 2;
    EXPECT_GT(pieces, 10u);
    EXPECT_EQ(driver.calls_of("clWaitForEvents"), pieces);
    if (is_done_when_asked) {
      EXPECT_EQ(driver.calls_of("clGetEventInfo"), pieces);
    } else {
      EXPECT_GE(driver.calls_of("clGetEventInfo"), pieces);
    }
  }
}

TEST(OpenclMemory, LargeTilesDoNotMakeSmallPieces) {
  FakeDriver driver;
  Work work(2, 3, 50'000);
  opencl::Options options = fake_options(driver);
  options.memory_budget_bytes = 1 << 20;
  const auto backend = opencl::make_backend(options, base::Log());
  const auto prepared = backend->tunable()->prepare_tuned(
      work.matrix, {{"local_x", 256}, {"element_bytes", 16}, {"elements_per_item", 64}});
  work.reset();
  work.run(*backend, *prepared, Mode::compare);
  EXPECT_TRUE(work.is_right(Mode::compare));
  EXPECT_LE(driver.calls_of("clEnqueueNDRangeKernel"), 6u);
  EXPECT_LE(driver.most_device_bytes(), options.memory_budget_bytes);
}

// All buffers together stay within the budget, for every sequence of shapes. A lower budget holds from the next run on.
TEST(OpenclMemory, TheBudgetHoldsOverShapes) {
  FakeDriver driver;
  core::Budget resources;
  resources.set_all("opencl_mib=3");
  opencl::Options options = fake_options(driver);
  options.resources = &resources;
  const auto backend = opencl::make_backend(options, base::Log());
  std::uint64_t most = 3 << 20;
  // Both lanes, and so all slots, come to be used by runs at the same time.
  for (const auto &[rows, columns] : {std::pair(2u, 60u), std::pair(60u, 2u)}) {
    for (unsigned tries = 0; tries < 100; ++tries) {
      std::vector<std::thread> threads;
      std::atomic<unsigned> right{0};
      for (unsigned t = 0; t < 2; ++t) {
        threads.emplace_back([&, rows = rows, columns = columns] {
          Work work(rows, columns, 20'000);
          const auto prepared = backend->prepare(work.matrix);
          work.run(*backend, *prepared, Mode::assign);
          right += work.is_right(Mode::assign);
        });
      }
      for (std::thread &thread : threads) thread.join();
      ASSERT_EQ(right, 2u);
      if (tries >= 3 && driver.calls_of("clCreateCommandQueue") >= 6) break;
    }
  }
  EXPECT_GE(driver.calls_of("clCreateCommandQueue"), 6u);
  EXPECT_LE(driver.most_device_bytes(), most);
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
    resources.set("opencl_mib", 1);
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

// A run waits until all that its task holds is free, and runs nothing before; what holds the units for it may switch
// that off.
TEST(OpenclResources, ARunHoldsAGpuAndWhatItsControlSays) {
  for (const bool holds_units : {true, false}) {
    FakeDriver driver;
    core::Budget resources;
    resources.set_all("gpu=1,app.widgets=2");
    opencl::Options options = fake_options(driver);
    options.resources = &resources;
    options.holds_units = holds_units;
    const auto backend = opencl::make_backend(options, base::Log());
    Work work(2, 10, 50'000);
    const auto prepared = backend->prepare(work.matrix);
    const core::Need gpu[] = {{core::Budget::kGpu, 1}}, widgets[] = {{resources.index("app.widgets"), 2}},
                     too_many[] = {{widgets[0].resource, 3}};
    const core::Task task = {prepared.get(), work.in.data(), work.out.data(), 0, work.bytes, Mode::assign};
    for (const std::span<const core::Need> taken : {std::span(gpu), std::span(widgets)}) {
      work.reset();
      resources.acquire(taken);
      std::atomic<bool> is_over{false};
      std::thread caller([&] {
        core::Control control(widgets);
        backend->run({&task, 1}, control);
        is_over = true;
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      if (holds_units) {
        EXPECT_FALSE(is_over.load());
        EXPECT_TRUE(work.is_untouched());
        resources.release(taken);
      }
      caller.join();
      EXPECT_TRUE(work.is_right(Mode::assign));
      if (!holds_units) resources.release(taken);
      EXPECT_TRUE(resources.try_acquire(gpu)) << "not given back";
      EXPECT_TRUE(resources.try_acquire(widgets)) << "not given back";
      resources.release(gpu);
      resources.release(widgets);
    }
    core::Control control(too_many);
    const auto [status, message] = status_of([&] { backend->run({&task, 1}, control); });
    EXPECT_EQ(status, holds_units ? TANDEM_ERROR_INVALID_ARGUMENT : TANDEM_OK);
    EXPECT_EQ(message.find("needs 3 of resource \"app.widgets\"") != std::string::npos, holds_units) << message;
  }
}

// Jobs on device memory that need scratch draw from the same budget.
TEST(OpenclMemory, TheBudgetHoldsOverJobs) {
  FakeDriverScript script;
  script.devices[0].parameter_bytes = 100;
  FakeDriver driver(script);
  opencl::Options options = fake_options(driver);
  options.memory_budget_bytes = 1 << 20;
  const auto backend = opencl::make_backend(options, base::Log());
  Work work(3, 20, 60'000);
  const auto prepared = backend->prepare(work.matrix);
  work.run(*backend, *prepared, Mode::assign);
  ASSERT_TRUE(work.is_right(Mode::assign));
  OnDevice one(driver, work, OnDevice::Layout::own_buffers, 0), two(driver, work, OnDevice::Layout::own_buffers, 0);
  const std::uint64_t of_caller = 2 * 23 * (60'000 + 192);
  core::Control control;
  {
    const core::Task first = one.task(*prepared, Mode::assign), second = two.task(*prepared, Mode::assign);
    const auto ticket = backend->submit({&first, 1}, control), other = backend->submit({&second, 1}, control);
    ticket->wait();
    other->wait();
    work.run(*backend, *prepared, Mode::assign);
  }
  EXPECT_LE(driver.most_device_bytes(), options.memory_budget_bytes + of_caller);
  for (OnDevice *stripe : {&one, &two}) {
    work.reset();
    stripe->read();
    EXPECT_TRUE(work.is_right(Mode::assign));
  }
}

// While other runs have all lanes, a run that waits for one can be cancelled.
TEST(OpenclSession, AWaitForALaneCanBeCancelled) {
  FakeDriver driver;
  const auto devices = opencl::find_devices(*driver.table(), base::Log());
  const auto session = std::make_shared<opencl::OpenclSession>(
      std::make_shared<const opencl::OpenclDevice>(devices.at(0)), std::make_shared<device::MemoryBudget>(1 << 20),
      std::make_shared<device::DiskCache>("", base::Log()), base::Log());
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
  FakeDriverScript script;
  script.devices[0].memory_bytes = 1 << 20;
  FakeDriver driver(script);
  Work work(4, 10, 300'001);
  const auto backend = opencl::make_backend(fake_options(driver), base::Log());
  const auto prepared = backend->prepare(work.matrix);
  for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare}) {
    work.reset();
    work.run(*backend, *prepared, mode);
    EXPECT_TRUE(work.is_right(mode));
  }
  EXPECT_GT(driver.calls_of("clEnqueueNDRangeKernel"), 100u);
  EXPECT_LE(driver.most_device_bytes(), script.devices[0].memory_bytes);
}

TEST(OpenclMemory, TooLittleForOneLineOfEachShardIsAClearError) {
  FakeDriver driver;
  Work work(4, 10, 3000);
  opencl::Options options = fake_options(driver);
  options.memory_budget_bytes = 4096;
  const auto backend = opencl::make_backend(options, base::Log());
  const auto prepared = backend->prepare(work.matrix);
  const auto [status, message] = status_of([&] { work.run(*backend, *prepared, Mode::assign); });
  EXPECT_EQ(status, TANDEM_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(message.find("4096 bytes"), std::string::npos) << message;
  EXPECT_NE(message.find("14 shards"), std::string::npos) << message;
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

TEST(OpenclDevices, SayWhatTheyShareWithTheHost) {
  for (const bool cpu : {false, true}) {
    for (const bool shares : {false, true}) {
      FakeDriverScript script;
      script.devices[0].type = cpu ? CL_DEVICE_TYPE_CPU : CL_DEVICE_TYPE_GPU;
      script.devices[0].shares_memory = shares;
      FakeDriver driver(script);
      const auto backend = opencl::make_backend(fake_options(driver), base::Log());
      EXPECT_FALSE(backend->traits().shares_memory || backend->traits().shares_cores) << "not looked for yet";
      backend->prepare(core::Matrix(1, 1));
      EXPECT_EQ(backend->traits().shares_memory, shares);
      EXPECT_EQ(backend->traits().shares_cores, cpu);
    }
  }
}

TEST(OpenclDevices, AHangingDriverIsNotWaitedForLong) {
  FakeDriverScript script;
  script.devices.clear();
  script.listing_seconds = 1;
  FakeDriver driver(script);
  EXPECT_TRUE(opencl::describe_devices(std::chrono::milliseconds(10), driver.table()).empty());
  EXPECT_EQ(driver.calls_of("clGetDeviceIDs"), 0u) << "it waited for the driver";
  while (driver.calls_of("clGetDeviceIDs") == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

TEST(OpenclDevices, TwoAtOnce) {
  FakeDriverScript script;
  script.devices.resize(2);
  FakeDriver driver(script);
  std::vector<std::thread> threads;
  std::vector<int> right(2, 0);
  for (unsigned t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      opencl::Options options = fake_options(driver);
      options.device = "opencl:0:" + std::to_string(t);
      const auto backend = opencl::make_backend(options, base::Log());
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
  EXPECT_TRUE(driver.live().empty());
}

TEST(OpenclPrograms, ABuildFailureCarriesTheLog) {
  FakeDriverScript script;
  script.refuses_text = true;
  FakeDriver driver(script);
  Work work(1, 2, 100);
  const auto backend = opencl::make_backend(fake_options(driver), base::Log());
  const auto prepared = backend->prepare(work.matrix);
  const auto [status, message] = status_of([&] { work.run(*backend, *prepared, Mode::assign); });
  EXPECT_EQ(status, TANDEM_ERROR_DEVICE);
  EXPECT_NE(message.find("fake: no"), std::string::npos) << message;
  driver.set_script({});
  work.run(*backend, *prepared, Mode::assign);
  EXPECT_TRUE(work.is_right(Mode::assign));
}

// Entries measured with one technique alone are not used if both techniques are possible.
TEST(OpenclPrograms, AForcedTechniqueIsPartOfTheIdentity) {
  FakeDriver driver;
  Heard heard;
  opencl::Options options = fake_options(driver);
  const auto free = opencl::make_backend(options, heard.log());
  const auto has_switch_over = [](core::Backend &backend) {
    const auto parameters = backend.tunable()->tuning_parameters(4, 10, Mode::assign);
    return std::any_of(parameters.begin(), parameters.end(),
                       [](const core::TuningParameter &each) { return each.is_switch_over; });
  };
  EXPECT_TRUE(has_switch_over(*free));
  for (const char *technique : {"tables", "compiled"}) {
    options.technique = technique;
    const auto forced = opencl::make_backend(options, heard.log());
    EXPECT_EQ(forced->tunable()->tuning_identity().driver,
              free->tunable()->tuning_identity().driver + ", technique " + technique);
    EXPECT_FALSE(has_switch_over(*forced));
  }
  options.technique = "auto";
  EXPECT_EQ(opencl::make_backend(options, heard.log())->tunable()->tuning_identity().driver,
            free->tunable()->tuning_identity().driver);
}

// Technique transform is left where its work-groups of 128 items do not run.
TEST(OpenclPrograms, TransformsOfWideCodes) {
  core::CauchyTransform form;
  for (unsigned i = 0; i < 20; ++i)
    (i < 13 ? form.input_points : form.output_points).push_back(static_cast<core::Element>(i));
  const core::Operator what(form);
  for (const std::size_t most_items : {256, 64}) {
    FakeDriverScript script;
    script.devices[0].kernel_group_items = most_items;
    FakeDriver driver(script);
    Heard heard;
    opencl::Options options = fake_options(driver);
    options.technique = "transform";
    const auto backend = opencl::make_backend(options, heard.log());
    const auto prepared = backend->prepare(what);
    Work work(what.dense(), 3001);
    for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare}) {
      work.reset();
      work.run(*backend, *prepared, mode);
      EXPECT_TRUE(work.is_right(mode));
    }
    EXPECT_EQ(heard.has("technique transform: as asked"), most_items == 256) << heard.text;
    EXPECT_EQ(heard.has("technique transform is left: work-groups of 128 items, at most 64"), most_items == 64);
  }
}

// Runs until it is so: a program is built in the background.
void run_until(core::Backend &backend, const core::Prepared &prepared, Work &work, const std::function<bool()> &is_so) {
  for (unsigned i = 0; i < 6000 && !is_so(); ++i) {
    work.reset();
    work.run(backend, prepared, Mode::assign);
    ASSERT_TRUE(work.is_right(Mode::assign));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_TRUE(is_so());
}

// Tables until the bytes pay; then compiled, and at once for others with the same matrix.
TEST(OpenclPrograms, TheTechniqueFollowsTheBytes) {
  struct Threshold : core::TuningSource {
    core::TuningChoice find(const core::TuningQuery &) const override {
      return {{{"compile_after_bytes", 30'000}, {"element_bytes", 5}}, "for this test"};
    }
  } tuning;
  FakeDriver driver;
  Heard heard;
  opencl::Options options = fake_options(driver);
  options.tuning = &tuning;
  const auto backend = opencl::make_backend(options, heard.log());
  Work work(2, 4, 3000);  // 12,000 bytes a run
  const auto prepared = backend->prepare(work.matrix);
  for (unsigned run = 0; run < 3; ++run) {
    EXPECT_FALSE(heard.has("technique compiled")) << run;
    work.reset();
    work.run(*backend, *prepared, Mode::assign);
    EXPECT_TRUE(work.is_right(Mode::assign));
  }
  run_until(*backend, *prepared, work, [&] { return heard.has("technique compiled"); });
  EXPECT_TRUE(heard.has("technique tables: 12000 bytes through this matrix do not pay for a compile (from 30000)"));
  EXPECT_TRUE(heard.has("for this test"));
  EXPECT_TRUE(heard.has("tuning value left out: element_bytes = 5"));
  const std::uint64_t built = driver.calls_of("clCreateProgramWithSource");
  EXPECT_EQ(built, 2u);
  const auto again = backend->prepare(work.matrix);
  work.reset();
  work.run(*backend, *again, Mode::assign);
  EXPECT_EQ(driver.calls_of("clCreateProgramWithSource"), built);
  EXPECT_TRUE(heard.has("technique compiled: it is in the cache"));
}

// A hybrid says what the CPU did with the matrix. A run of 4,000 bytes is the first one with enough.
TEST(OpenclPrograms, BytesOfOthersCount) {
  struct Threshold : core::TuningSource {
    core::TuningChoice find(const core::TuningQuery &) const override {
      return {{{"compile_after_bytes", 30'000'000}}, "for this test"};
    }
  } tuning;
  for (const bool is_enough : {false, true}) {
    FakeDriver driver;
    Heard heard;
    opencl::Options options = fake_options(driver);
    options.tuning = &tuning;
    const auto backend = opencl::make_backend(options, heard.log());
    Work work(2, 4, 1000);
    const auto prepared = backend->prepare(work.matrix);
    prepared->add_bytes_elsewhere(29'995'999 + is_enough);
    work.run(*backend, *prepared, Mode::assign);
    EXPECT_TRUE(work.is_right(Mode::assign));
    EXPECT_EQ(heard.has("until the compile is done"), is_enough) << heard.text;
    run_until(*backend, *prepared, work, [&] { return heard.has("technique compiled"); });
  }
}

// Where shards can be used in place: tables for each shape would be a compile for each, so they are staged, by one text
// for all, until the bytes pay.
TEST(OpenclPrograms, NewShapesAreNoCompilesWhereMemoryIsShared) {
  struct Threshold : core::TuningSource {
    core::TuningChoice find(const core::TuningQuery &) const override {
      return {{{"compile_after_bytes", 30'000}}, "for this test"};
    }
  } tuning;
  FakeDriverScript script;
  script.devices[0].shares_memory = true;
  FakeDriver driver(script);
  opencl::Options options = fake_options(driver, Transfer::automatic);
  options.tuning = &tuning;
  Heard heard;
  const auto backend = opencl::make_backend(options, heard.log());
  for (unsigned columns = 2; columns < 8; ++columns) {
    Work work(2, columns, 1000);
    work.run(*backend, *backend->prepare(work.matrix), Mode::assign);
    EXPECT_TRUE(work.is_right(Mode::assign));
  }
  EXPECT_EQ(driver.calls_of("clCreateProgramWithSource"), 1u);
  Work work(2, 4, 10'000);
  driver.set_script(script);
  const auto prepared = backend->prepare(work.matrix);
  work.run(*backend, *prepared, Mode::assign);
  EXPECT_TRUE(work.is_right(Mode::assign));
  run_until(*backend, *prepared, work, [&] { return heard.has("technique compiled"); });
  const std::uint64_t mapped = driver.calls_of("clEnqueueMapBuffer");
  work.reset();
  work.run(*backend, *prepared, Mode::assign);
  EXPECT_TRUE(work.is_right(Mode::assign));
  EXPECT_EQ(driver.calls_of("clEnqueueMapBuffer"), mapped + 2) << "in place: only the outputs are mapped";
  EXPECT_LE(driver.calls_of("clCreateProgramWithSource"), 2u) << "compiled, for shards in place and for staged ones";
}

// The text of a matrix is written when it is built, not to ask whether it is there.
TEST(OpenclPrograms, TextsAreWrittenToBeBuilt) {
  FakeDriver driver;
  std::atomic<unsigned> written{0};
  opencl::Options options = fake_options(driver);
  options.generate = [&](const core::Matrix &matrix, const device::KernelSpec &spec) {
    ++written;
    return fake_generate(matrix, spec);
  };
  const auto backend = opencl::make_backend(options, base::Log());
  Work first(2, 3, 500);
  first.run(*backend, *backend->prepare(first.matrix), Mode::assign);
  const unsigned before = written;
  for (unsigned columns = 4; columns < 9; ++columns) {
    Work work(3, columns, 500);
    work.run(*backend, *backend->prepare(work.matrix), Mode::assign);
    EXPECT_TRUE(work.is_right(Mode::assign));
  }
  EXPECT_EQ(written, before);
  // Two matrices of one shape are two programs.
  options.technique = "compiled";
  const auto compiled = opencl::make_backend(options, base::Log());
  for (const std::uint8_t value : {1, 2}) {
    Work work(1, 1, 500);
    work.matrix.at(0, 0) = value;
    const std::uint8_t *input = work.inputs[0].data();
    work.product = expected(work.matrix.data(), 1, 1, &input, work.bytes);
    const unsigned written_before = written;
    work.run(*compiled, *compiled->prepare(work.matrix), Mode::assign);
    EXPECT_TRUE(work.is_right(Mode::assign)) << unsigned{value};
    if (value == 2) {
      EXPECT_EQ(written, written_before + 1);
    }
  }
}

// Without local memory for the tables a matrix is compiled, unless it is too large for that too.
TEST(OpenclPrograms, LittleLocalMemoryLeavesCompiled) {
  FakeDriverScript script;
  script.devices[0].local_bytes = 1024;  // tables of 8 columns
  FakeDriver driver(script);
  Heard heard;
  const auto backend = opencl::make_backend(fake_options(driver), heard.log());
  Work small(2, 9, 500), large(65, 64, 100);
  const auto compiled = backend->prepare(small.matrix);
  small.run(*backend, *compiled, Mode::assign);
  EXPECT_TRUE(small.is_right(Mode::assign));
  EXPECT_TRUE(heard.has("tables of 9 columns do not fit 1024 bytes of local memory")) << heard.text;
  const auto neither = backend->prepare(large.matrix);
  const std::uint64_t built = driver.calls_of("clCreateProgramWithSource");
  const auto [status, message] = status_of([&] { large.run(*backend, *neither, Mode::assign); });
  EXPECT_EQ(status, TANDEM_ERROR_UNAVAILABLE);
  EXPECT_NE(message.find("tables of 64 columns need 8192; and 4160 coefficients"), std::string::npos) << message;
  EXPECT_EQ(driver.calls_of("clCreateProgramWithSource"), built);
}

TEST(OpenclPrograms, ATuningFileOfOtherDevicesIsSaidToBeIgnored) {
  struct OfOthers : core::TuningSource {
    core::TuningChoice find(const core::TuningQuery &) const override { return {}; }
    bool knows(const core::TuningIdentity &identity) const override { return identity.vendor != "Fake Vendor"; }
  } tuning;
  FakeDriver driver;
  Heard heard;
  opencl::Options options = fake_options(driver);
  options.tuning = &tuning;
  const auto backend = opencl::make_backend(options, heard.log());
  Work work(2, 4, 3000);
  for (unsigned run = 0; run < 2; ++run) work.run(*backend, *backend->prepare(work.matrix), Mode::assign);
  const std::string warning = "no entry of the tuning file was measured on Fake 1 or another device of Fake Vendor";
  EXPECT_TRUE(heard.has(warning)) << heard.text;
  EXPECT_EQ(heard.text.find(warning), heard.text.rfind(warning)) << "said once";
}

TEST(OpenclPrograms, LocalSizesFitTheKernel) {
  FakeDriverScript script;
  script.devices[0].kernel_group_items = 32;
  FakeDriver driver(script);
  Heard heard;
  const auto backend = opencl::make_backend(fake_options(driver), heard.log());
  Work work(2, 4, 10'000);
  const auto prepared = backend->prepare(work.matrix);
  work.run(*backend, *prepared, Mode::assign);
  EXPECT_TRUE(work.is_right(Mode::assign));
  EXPECT_TRUE(heard.has("32x1x1 instead")) << heard.text;
  work.run(*backend, *prepared, Mode::assign);
  EXPECT_EQ(heard.text.find("instead"), heard.text.rfind("instead")) << "said once: " << heard.text;
  const auto forced = backend->tunable()->prepare_tuned(work.matrix, {{"local_x", 64}});
  const auto [status, message] = status_of([&] { work.run(*backend, *forced, Mode::assign); });
  EXPECT_EQ(status, TANDEM_ERROR_UNAVAILABLE);
  EXPECT_NE(message.find("64x1x1"), std::string::npos) << message;
  EXPECT_EQ(status_of([&] {
              backend->tunable()->prepare_tuned(work.matrix, {{"local_x", 512}});
            }).first,
            TANDEM_ERROR_UNAVAILABLE);
  EXPECT_EQ(status_of([&] {
              backend->tunable()->prepare_tuned(work.matrix, {{"element_bytes", 12}});
            }).first,
            TANDEM_ERROR_INVALID_ARGUMENT);
  const auto small = backend->tunable()->prepare_tuned(work.matrix, {{"local_x", 8}, {"local_y", 4}});
  work.reset();
  work.run(*backend, *small, Mode::assign);
  EXPECT_TRUE(work.is_right(Mode::assign));
}

TEST(OpenclFork, AChildIsRefused) {
  TANDEM_SKIP_FORK_BESIDE_THREADS();
  FakeDriver driver;
  base::fork_generation();
  const auto backend = opencl::make_backend(fake_options(driver), base::Log());
  Work work(1, 2, 100);
  const auto prepared = backend->prepare(work.matrix);
  work.run(*backend, *prepared, Mode::assign);
  const std::uint64_t calls = driver.call_count();
  const pid_t child = fork();
  if (child == 0) {
    const tandem_status status = status_of([&] { work.run(*backend, *prepared, Mode::assign); }).first;
    const bool listed = !opencl::describe_devices(std::chrono::seconds(1), driver.table()).empty();
    _exit(status == TANDEM_ERROR_DEVICE && !listed && driver.call_count() == calls ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
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
    const bool listed = !opencl::describe_devices(std::chrono::seconds(20), driver.table()).empty();
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

// ---- the cache on disk ---------------------------------------------------------------------------------

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/tandem-opencl-test-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::vector<std::filesystem::path> entries(const std::string &in) const {
    std::vector<std::filesystem::path> list;
    for (const auto &entry : std::filesystem::directory_iterator(in)) list.push_back(entry.path());
    return list;
  }
  std::string path;
};

// One life of a backend with a folder; how many programs were built from text.
std::uint64_t programs_built(const std::string &folder, const FakeDriverScript &script = {}, Heard *heard = nullptr) {
  FakeDriver driver(script);
  Heard unheard;
  opencl::Options options = fake_options(driver);
  options.cache_folder = folder;
  {
    const auto backend = opencl::make_backend(options, (heard != nullptr ? *heard : unheard).log());
    Work work(2, 3, 500);
    const auto prepared = backend->prepare(work.matrix);
    work.run(*backend, *prepared, Mode::assign);
    EXPECT_TRUE(work.is_right(Mode::assign));
  }
  EXPECT_TRUE(driver.live().empty());
  return driver.calls_of("clCreateProgramWithSource");
}

TEST(OpenclDiskCache, KeepsProgramsForTheNextProcess) {
  const Folder folder;
  const std::string place = folder.path + "/a/b";
  EXPECT_EQ(programs_built(place), 1u);
  struct stat made {};
  ASSERT_EQ(stat(place.c_str(), &made), 0);
  EXPECT_EQ(made.st_mode & 0777, 0700u);
  EXPECT_EQ(programs_built(place), 0u);
  FakeDriverScript other;
  other.devices[0].name = "Another";
  EXPECT_EQ(programs_built(place, other), 1u) << "another device, another key";
  EXPECT_EQ(programs_built(""), 1u) << "no folder: memory only";
}

TEST(OpenclDiskCache, ADriverThatRefusesABinaryGetsTheText) {
  const Folder folder;
  const std::string place = folder.path + "/c";
  EXPECT_EQ(programs_built(place), 1u);
  FakeDriverScript script;
  script.refuses_binaries = true;
  EXPECT_EQ(programs_built(place, script), 1u);
  EXPECT_EQ(programs_built(place), 0u) << "and the entry was renewed";
}

TEST(OpenclDiskCache, DamagedEntriesAreBuiltAnew) {
  const Folder folder;
  const std::string place = folder.path + "/c";
  EXPECT_EQ(programs_built(place), 1u);
  const auto entries = folder.entries(place);
  ASSERT_EQ(entries.size(), 1u);
  const auto size = std::filesystem::file_size(entries[0]);
  for (std::uintmax_t cut : {std::uintmax_t{0}, std::uintmax_t{10}, size / 2, size - 1}) {
    std::filesystem::resize_file(entries[0], cut);
    Heard heard;
    EXPECT_EQ(programs_built(place, {}, &heard), 1u) << cut;
    EXPECT_TRUE(heard.has("is damaged"));
    ASSERT_EQ(std::filesystem::file_size(entries[0]), size);
  }
  for (std::uintmax_t at = 0; at < size; at += at < 64 ? 1 : 7) {
    std::fstream file(entries[0], std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 0x10));
    file.close();
    EXPECT_EQ(programs_built(place), 1u) << "byte " << at;
  }
}

TEST(OpenclDiskCache, AFolderOfOthersIsNotUsed) {
  const Folder folder;
  const std::string place = folder.path + "/c";
  EXPECT_EQ(programs_built(place), 1u);
  for (const mode_t mode : {0777, 0770, 0750, 0701}) {
    ASSERT_EQ(chmod(place.c_str(), mode), 0);
    Heard heard;
    EXPECT_EQ(programs_built(place, {}, &heard), 1u) << std::oct << mode;
    EXPECT_TRUE(heard.has("not used: its mode is")) << heard.text;
  }
  ASSERT_EQ(chmod(place.c_str(), 0700), 0);
  EXPECT_EQ(programs_built(place), 0u);
  if (geteuid() == 0) {  // only root can give it away
    ASSERT_EQ(chown(place.c_str(), 12345, 12345), 0);
    Heard heard;
    EXPECT_EQ(programs_built(place, {}, &heard), 1u);
    EXPECT_TRUE(heard.has("it belongs to user 12345")) << heard.text;
  } else {
    std::printf("NOT RUN: a folder of another user (needs root)\n");
  }
  const std::string link = folder.path + "/link";
  std::filesystem::create_directory(folder.path + "/d");
  ASSERT_EQ(chmod((folder.path + "/d").c_str(), 0700), 0);
  std::filesystem::create_directory_symlink(folder.path + "/d", link);
  EXPECT_EQ(programs_built(link), 1u);
  EXPECT_TRUE(folder.entries(folder.path + "/d").empty()) << "a link was followed";
}

TEST(OpenclDiskCache, IsBounded) {
  const Folder folder;
  device::DiskCache cache(folder.path + "/c", base::Log(), 10'000);
  const std::vector<unsigned char> program(3000, 7);
  for (std::uint64_t i = 0; i < 10; ++i) {
    cache.store({i, 1}, program);
    EXPECT_TRUE(cache.load({i, 1}).has_value()) << "the newest stays";
  }
  std::uintmax_t total = 0;
  for (const auto &entry : folder.entries(folder.path + "/c")) total += std::filesystem::file_size(entry);
  EXPECT_LE(total, 10'000u);
  EXPECT_GT(total, 6'000u);
  cache.store({99, 1}, std::vector<unsigned char>(20'000, 1));
  EXPECT_FALSE(cache.has({99, 1})) << "larger than the cache";
}

TEST(OpenclDiskCache, TwoProcessesAtOnce) {
  const Folder folder;
  const std::string place = folder.path + "/c";
  std::vector<pid_t> children;
  for (unsigned child = 0; child < 2; ++child) {
    const pid_t pid = fork();
    if (pid == 0) {
      device::DiskCache cache(place, base::Log(), 50'000);
      bool good = true;
      for (std::uint64_t round = 0; round < 400; ++round) {
        const device::Key key{round % 20, 3};
        const std::vector<unsigned char> program(1000 + key.low * 100, static_cast<unsigned char>(key.low));
        cache.store(key, program);
        const auto found = cache.load(key);
        if (found.has_value() && *found != program) good = false;
      }
      _exit(good ? 0 : 1);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = 1;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  for (const auto &entry : folder.entries(place))
    EXPECT_EQ(entry.extension(), ".program") << "a temporary was left: " << entry;
}

// ---- shards in device memory ---------------------------------------------------------------------------------

using Layout = OnDevice::Layout;

TEST(OpenclDeviceMemory, EveryLayoutModeAndAlignment) {
  for (const std::size_t parameter_bytes : {std::size_t{1024}, std::size_t{100}}) {  // the second: copies in pieces
    for (const Layout layout : {Layout::one_buffer, Layout::two_buffers, Layout::own_buffers}) {
      for (const std::uint64_t skew : {0, 64, 5}) {
        for (const bool in_order : {true, false}) {
          FakeDriverScript script;
          script.devices[0].parameter_bytes = parameter_bytes;
          FakeDriver driver(script);
          {
            opencl::Options options = fake_options(driver);
            options.memory_budget_bytes = 64 << 10;
            const auto backend = opencl::make_backend(options, base::Log());
            Work work(3, 5, 20'011);
            const auto prepared = backend->prepare(work.matrix);
            OnDevice stripe(driver, work, layout, skew, in_order);
            for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare}) {
              work.reset();
              stripe.write();
              const core::Task task = stripe.task(*prepared, mode);
              core::Control control;
              const auto ticket = backend->submit({&task, 1}, control);
              ticket->wait();
              ticket->wait();
              stripe.read();
              ASSERT_TRUE(work.is_right(mode))
                  << "layout " << static_cast<int>(layout) << ", skew " << skew << ", mode " << static_cast<int>(mode)
                  << (in_order ? "" : ", out of order");
            }
            std::uint8_t column[5], stored[3];
            backend->read_column(stripe.task(*prepared, Mode::compare), 777, column, stored);
            EXPECT_EQ(column[4], work.inputs[4][777]);
            EXPECT_EQ(stored[2], work.before[2][777]);
          }
          ASSERT_TRUE(driver.live().empty()) << driver.live().begin()->first;
          ASSERT_TRUE(driver.violations().empty()) << driver.violations().front();
        }
      }
    }
  }
}

// ---- many stripes --------------------------------------------------------------------------------------------

std::uint64_t calls_for(unsigned count, bool together, Layout layout) {
  FakeDriver driver;
  Work work(4, 10, std::size_t{count} * 192);
  opencl::Options options = fake_options(driver);
  options.technique = "tables";
  const auto backend = opencl::make_backend(options, base::Log());
  const auto prepared = backend->prepare(work.matrix);
  OnDevice stripe(driver, work, layout, 64);
  const std::vector<core::Task> tasks = slices(stripe.task(*prepared, Mode::assign), count);
  core::Control control;
  backend->submit(tasks, control)->wait();
  work.reset();
  stripe.write();
  driver.set_script({});
  if (together) backend->submit(tasks, control)->wait();
  for (std::size_t i = 0; i < tasks.size() && !together; ++i) backend->submit({&tasks[i], 1}, control)->wait();
  const std::uint64_t calls = driver.call_count();
  stripe.read();
  EXPECT_TRUE(work.is_right(Mode::assign)) << count;
  EXPECT_EQ(driver.violations(), std::vector<std::string>());
  return calls;
}

TEST(OpenclBatch, TheNumberOfCallsDoesNotGrowWithTheStripes) {
  for (const Layout layout : {Layout::one_buffer, Layout::two_buffers}) {
    const std::uint64_t few = calls_for(10, true, layout);
    EXPECT_EQ(calls_for(300, true, layout), few);
    EXPECT_LE(few, 40u);
    EXPECT_GE(calls_for(10, false, layout), few + 9 * 10);  // one by one it grows
  }
}

TEST(OpenclBatch, EveryLayoutAndAlignment) {
  for (const Layout layout : {Layout::one_buffer, Layout::two_buffers, Layout::own_buffers}) {
    for (const std::uint64_t skew : {0, 5}) {
      for (const bool in_order : {true, false}) {
        FakeDriver driver;
        {
          Work work(3, 5, 70'003);
          const auto backend = opencl::make_backend(fake_options(driver), base::Log());
          const auto prepared = backend->prepare(work.matrix);
          OnDevice stripe(driver, work, layout, skew, in_order);
          const std::vector<core::Task> tasks = uneven_slices(stripe.task(*prepared, Mode::assign), skew == 0);
          work.reset();
          stripe.write();
          driver.set_script({});
          core::Control control;
          backend->submit(tasks, control)->wait();
          if (layout != Layout::own_buffers) {
            EXPECT_EQ(driver.calls_of("clEnqueueNDRangeKernel"), 1u);
          }
          stripe.read();
          ASSERT_TRUE(work.is_right(Mode::assign)) << static_cast<int>(layout) << ", skew " << skew;
        }
        ASSERT_TRUE(driver.live().empty()) << driver.live().begin()->first;
        ASSERT_TRUE(driver.violations().empty()) << driver.violations().front();
      }
    }
  }
}

// Each call, and each command, of many stripes on the device and of the host.
TEST(OpenclBatch, EveryCallAndCommandMayFail) {
  for (const bool on_device : {true, false}) {
    for (const bool by_command : {true, false}) {
      Work work(3, 5, 10'000);
      unsigned failed = 0;
      std::uint64_t count = 1;
      for (std::uint64_t n = 0; n < count; ++n) {
        FakeDriver driver;
        {
          opencl::Options options = fake_options(driver);
          options.technique = "tables";
          const auto backend = opencl::make_backend(options, base::Log());
          const auto prepared = backend->prepare(work.matrix);
          OnDevice stripe(driver, work, Layout::two_buffers, 0);
          const auto run = [&] {
            core::Control control;
            const core::Task task =
                on_device ? stripe.task(*prepared, Mode::assign)
                          : core::Task{prepared.get(), work.in.data(), work.out.data(), 0, work.bytes, Mode::assign};
            backend->run(uneven_slices(task, false), control);
          };
          FakeDriverScript script;
          (by_command ? script.failing_command : script.failing_call) = n;
          work.reset();
          stripe.write();
          driver.set_script(script);
          const auto [status, message] = status_of(run);
          if (status != TANDEM_OK) {
            EXPECT_TRUE(status == TANDEM_ERROR_DEVICE || status == TANDEM_ERROR_OUT_OF_MEMORY) << message;
            ++failed;
            count = n + 4;
          }
          driver.set_script({});
          work.reset();
          stripe.write();
          run();
          if (on_device) stripe.read();
          EXPECT_TRUE(work.is_right(Mode::assign)) << n;
        }
        ASSERT_TRUE(driver.live().empty()) << driver.live().begin()->first << " left after " << n;
        ASSERT_TRUE(driver.violations().empty()) << driver.violations().front();
      }
      EXPECT_GE(failed, by_command ? 1u : 9u);  // a buffer of a round size that fails is made smaller
    }
  }
}

TEST(OpenclBatch, WrongStripesAreRefusedByNumber) {
  FakeDriver driver;
  {
    Work work(2, 3, 5000);
    const auto backend = opencl::make_backend(fake_options(driver), base::Log());
    const auto prepared = backend->prepare(work.matrix);
    OnDevice stripe(driver, work, Layout::one_buffer, 0);
    std::vector<core::Task> tasks = slices(stripe.task(*prepared, Mode::assign), 5);
    const std::vector<std::uint64_t> huge(3, UINT64_MAX - 10);
    tasks[3].input_offsets = huge.data();
    const std::uint64_t commands = driver.command_count();
    core::Control control;
    const auto [status, message] = status_of([&] { backend->submit(tasks, control); });
    EXPECT_EQ(status, TANDEM_ERROR_INVALID_ARGUMENT);
    EXPECT_TRUE(message.starts_with("stripe 3 of 5: OpenCL: input 0 has 1000 bytes")) << message;
    EXPECT_EQ(driver.command_count(), commands);
  }
  EXPECT_TRUE(driver.live().empty());
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
    return result;
  };
  core::Task task = good;
  task.queue = nullptr;
  EXPECT_EQ(refused(task).first, TANDEM_ERROR_INVALID_ARGUMENT);
  task = good;
  task.length_bytes = 1'000'000;
  EXPECT_EQ(refused(task).first, TANDEM_ERROR_INVALID_ARGUMENT);
  std::vector<std::uint64_t> offsets = stripe.out_offsets;
  task = good;
  task.output_offsets = offsets.data();
  offsets[1] = UINT64_MAX - 10;
  EXPECT_EQ(refused(task).first, TANDEM_ERROR_INVALID_ARGUMENT);
  offsets[1] = stripe.out_offsets[0] + 999;
  EXPECT_EQ(refused(task).first, TANDEM_ERROR_OVERLAP);
  offsets[1] = stripe.in_offsets[2];
  const auto [status, message] = refused(task);
  EXPECT_EQ(status, TANDEM_ERROR_OVERLAP);
  EXPECT_NE(message.find("output 1"), std::string::npos) << message;
  OnDevice elsewhere(driver, work, Layout::one_buffer, 0);  // another context
  task = good;
  task.inputs = reinterpret_cast<const std::byte *const *>(elsewhere.in.data());
  EXPECT_EQ(refused(task).first, TANDEM_ERROR_INVALID_ARGUMENT);
  opencl::Options other = fake_options(driver);
  other.device = "opencl:0:1";
  const auto on_other = opencl::make_backend(other, base::Log());
  core::Control control;
  EXPECT_EQ(status_of([&] { on_other->run({&good, 1}, control); }).first, TANDEM_ERROR_INVALID_ARGUMENT);
}

// The n-th call fails, or the n-th command when it is done, for every n.
void fail_every_call_on_device(std::size_t parameter_bytes, Mode mode, bool in_order, bool by_command) {
  std::uint64_t count = 1;
  unsigned statuses = 0;
  for (std::uint64_t n = UINT64_MAX; n == UINT64_MAX || n < count; ++n) {
    FakeDriverScript script;
    script.devices[0].parameter_bytes = parameter_bytes;
    FakeDriver driver(script);
    {
      Work work(2, 4, 3000);
      work.reset();
      OnDevice stripe(driver, work, Layout::own_buffers, 0, in_order);
      (by_command ? script.failing_command : script.failing_call) = n;
      driver.set_script(script);
      const auto backend = opencl::make_backend(fake_options(driver), base::Log());
      const auto run = [&] {
        const auto prepared = backend->prepare(work.matrix);
        const core::Task task = stripe.task(*prepared, mode);
        core::Control control;
        backend->submit({&task, 1}, control)->wait();
      };
      const tandem_status status = status_of(run).first;
      if (n == UINT64_MAX) count = by_command ? driver.command_count() : driver.call_count();
      script.failing_call = script.failing_command = UINT64_MAX;
      driver.set_script(script);
      if (status != TANDEM_OK) {
        ++statuses;
        work.reset();
        stripe.write();
        run();
      }
      stripe.read();
      ASSERT_TRUE(work.is_right(mode)) << (by_command ? "command " : "call ") << n;
    }
    ASSERT_TRUE(driver.live().empty()) << driver.live().begin()->first << " left after call " << n;
  }
  if (by_command) {
    EXPECT_EQ(statuses, count);
  } else {
    EXPECT_GT(count, 30u);
  }
}

TEST(OpenclDeviceMemory, EveryCallMayFail) {
  for (const std::size_t parameter_bytes : {std::size_t{1024}, std::size_t{100}}) {
    for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare})
      fail_every_call_on_device(parameter_bytes, mode, true, false);
  }
}

TEST(OpenclDeviceMemory, EveryCommandMayFail) {
  for (const std::size_t parameter_bytes : {std::size_t{1024}, std::size_t{100}}) {
    for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare}) {
      for (const bool in_order : {true, false}) fail_every_call_on_device(parameter_bytes, mode, in_order, true);
    }
  }
}

// A driver with buffers at any address gets kernels that do not rely on alignment.
TEST(OpenclDeviceMemory, BuffersMayBeginAnywhere) {
  for (const std::size_t parameter_bytes : {std::size_t{1024}, std::size_t{100}}) {
    FakeDriverScript script;
    script.devices[0].parameter_bytes = parameter_bytes;
    script.devices[0].base_alignment_bytes = 16;
    FakeDriver driver(script);
    const auto backend = opencl::make_backend(fake_options(driver), base::Log());
    Work work(3, 5, 5000);
    work.reset();
    const auto prepared = backend->prepare(work.matrix);
    OnDevice stripe(driver, work, Layout::own_buffers, 0);
    const core::Task task = stripe.task(*prepared, Mode::assign);
    core::Control control;
    backend->run({&task, 1}, control);
    stripe.read();
    EXPECT_TRUE(work.is_right(Mode::assign));
    work.reset();
    work.run(*backend, *prepared, Mode::assign);
    EXPECT_TRUE(work.is_right(Mode::assign));
    EXPECT_TRUE(driver.violations().empty()) << driver.violations().front();
  }
}

// The commands of a run are in the queue, and can be neither waited for nor finished.
TEST(OpenclDeviceMemory, WhatCannotBeFinishedIsQuarantined) {
  unsigned flushes = 0;
  std::uint64_t count = 1;
  for (std::uint64_t n = UINT64_MAX; n == UINT64_MAX || n < count; ++n) {
    FakeDriver driver;
    FakeDriverScript script;
    bool is_flush = false;
    {
      Work work(2, 4, 3000);
      work.reset();
      OnDevice stripe(driver, work, Layout::one_buffer, 0);
      const auto backend = opencl::make_backend(fake_options(driver), base::Log());
      const auto prepared = backend->prepare(work.matrix);
      const core::Task task = stripe.task(*prepared, Mode::compare);
      core::Control control;
      script.failing_call = n;
      script.finish_fails = true;
      driver.set_script(script);
      const tandem_status status = status_of([&] { backend->submit({&task, 1}, control)->wait(); }).first;
      if (n == UINT64_MAX) count = driver.call_count();
      is_flush = driver.failed_call() == "clFlush";
      if (is_flush) {
        EXPECT_EQ(status, TANDEM_ERROR_DEVICE);
      }
    }
    if (!is_flush) continue;
    ++flushes;
    EXPECT_EQ(driver.live()["buffer"], 2) << "offsets and records";
  }
  EXPECT_EQ(flushes, 1u);
}

}  // namespace
}  // namespace tandem::test
