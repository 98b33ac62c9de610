// The CUDA backend on a driver that fails, lies, forgets and does nothing before it is waited for.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/budget.hpp"
#include "core/error.hpp"
#include "gpu/devices.hpp"
#include "gpu/factory.hpp"
#include "tests/conformance/suite.hpp"
#include "tests/conformance/work.hpp"
#include "tests/cuda_fake/fake_driver.hpp"

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
    backend_ = gpu::make_backend(options, core::Log());
  }
  const core::Traits &traits() const noexcept override { return backend_->traits(); }
  std::shared_ptr<const core::Prepared> prepare(const core::Matrix &matrix) override {
    return backend_->prepare(matrix);
  }
  void run(std::span<const core::Task> tasks, core::Control &control) override {
    if (!is_pinned_) return backend_->run(tasks, control);
    const Registered registered(*driver_, tasks);
    backend_->run(tasks, control);
  }

 private:
  // Shared by the backends of a test that has two; prepared matrices may outlive both.
  static std::shared_ptr<FakeCuda> driver() {
    static std::shared_ptr<FakeCuda> last;
    if (last == nullptr) last = std::make_shared<FakeCuda>();
    return last;
  }
  std::shared_ptr<FakeCuda> driver_;
  bool is_pinned_;
  std::unique_ptr<core::Backend> backend_;
};

// The suite's own driver lives until the tests that make others begin.
class SuiteDriver : public FakeBackend_Placeholder {};

}  // namespace
}  // namespace tandem::test
