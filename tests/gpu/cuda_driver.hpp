// SPDX-License-Identifier: Apache-2.0
// The fake CUDA driver for the suite that all drivers share.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/registered_memory.hpp"
#include "gpu/factory.hpp"
#include "tests/device/driver_suite.hpp"
#include "tests/gpu/fake_program.hpp"

namespace tandem::test {

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

class CudaDriver final : public AnyDriver {
 public:
  enum class Host { pageable, pinned, registered };  // with CUDA, by the program; with Tandem
  explicit CudaDriver(const FakeCudaScript &script, Host how = Host::pageable) : fake(script), host(how) {}

  const char *label() const override { return "CUDA"; }
  const char *resource() const override { return gpu::kMemoryResource; }
  void set_script(const DriverScript &script) override { fake.set_script(of(script)); }
  device::Options options() const override { return fake_options(fake); }
  std::string device_name(unsigned index) const override { return "cuda:" + std::to_string(index); }
  std::unique_ptr<core::Backend> make(const device::Options &options, const base::Log &log) override {
    gpu::Options all = fake_options(fake);
    static_cast<device::Options &>(all) = options;
    return gpu::make_backend(all, log);
  }
  std::size_t listed_devices() const override {
    return gpu::describe_devices(std::chrono::seconds(20), fake.table()).devices.size();
  }
  std::vector<Failure> failures() const override {
    return {Failure::plain, Failure::kills, Failure::out_of_memory, Failure::of_capture};
  }
  std::shared_ptr<void> hold(std::span<const core::Task> tasks) override {
    if (host == Host::pageable) return nullptr;
    return std::make_shared<Registered>(host == Host::pinned ? &fake : nullptr, tasks);
  }

  core::MemoryKind memory() const override { return core::MemoryKind::cuda; }
  void *make_queue() override { return fake.make_stream(); }
  void release_queue(void *queue) override { fake.destroy(static_cast<CUstream>(queue)); }
  void finish(void *queue) override { fake.synchronize(static_cast<CUstream>(queue)); }
  void *allocate(void *, std::uint64_t bytes) override { return reinterpret_cast<void *>(fake.allocate(bytes)); }
  void release(void *memory) override { fake.free(reinterpret_cast<CUdeviceptr>(memory)); }
  std::uint8_t *address(void *memory) override { return static_cast<std::uint8_t *>(memory); }

  const DriverCounts &counts() const override { return fake; }
  std::uint64_t calls_of(Call call) const override {
    return fake.calls_of(call == Call::compile  ? "nvrtcCompileProgram"
                         : call == Call::launch ? "cuLaunchKernel"
                                                : "cuEventQuery");
  }
  bool is_dead() const override { return fake.is_dead(); }
  std::vector<std::string> problems() const override { return problems_of(fake); }

  static FakeCudaScript of(const DriverScript &from) {
    FakeCudaScript script = {.common = from};
    script.devices.resize(from.device_count);
    if (from.most_group_items != 0) script.devices[0].most_threads = from.most_group_items;
    if (from.is_another_model) script.devices[0].major = 8;
    return script;
  }

  FakeCuda fake;
  Host host;
};

}  // namespace tandem::test
