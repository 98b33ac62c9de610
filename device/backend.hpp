// SPDX-License-Identifier: Apache-2.0
// The part of a device backend that does not depend on the driver. gpu/ and opencl/ derive from it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "core/backend.hpp"
#include "core/budget.hpp"
#include "device/module.hpp"
#include "device/options.hpp"
#include "device/session.hpp"

namespace tandem::device {

class DeviceBackend : public core::Backend, public core::Tunable {
 public:
  ~DeviceBackend() override;

  const core::Traits &traits() const noexcept override { return *traits_.load(std::memory_order_acquire); }
  std::shared_ptr<const core::Prepared> prepare(const core::Operator &what) override;
  core::Tunable *tunable() noexcept override { return this; }
  std::shared_ptr<const core::Prepared> prepare_tuned(const core::Operator &what,
                                                      const core::TuningValues &values) override;
  std::vector<core::TuningParameter> tuning_parameters(unsigned rows, unsigned columns, core::Mode mode) const override;
  core::TuningIdentity tuning_identity() const override;
  std::string tuning_kernel_hash() const override;
  void run(std::span<const core::Task> tasks, core::Control &control) override;
  std::unique_ptr<core::Ticket> submit(std::span<const core::Task> tasks, core::Control &control) override;
  // By default the first run waits; gpu/ prepares more.
  void make_ready(const core::Prepared &prepared, core::Mode mode, core::MemoryKind memory, bool waits) override;
  std::shared_ptr<core::DeviceMemory> device_memory(std::uint64_t bytes) override;
  void read_column(const core::Task &task, std::uint64_t at_bytes, std::uint8_t *inputs_out,
                   std::uint8_t *outputs_out) override;
  std::uint64_t kernel_calls() const noexcept override { return kernel_calls_.load(std::memory_order_relaxed); }

 protected:
  // `memory`: of its device shards. `mib`: the name of the resource that counts MiB of buffers.
  DeviceBackend(const Options &options, const DeviceModule &module, core::MemoryKind memory, const char *mib,
                const base::Log &log);

  // The driver's part.
  virtual std::shared_ptr<const Device> find() const = 0;   // the device that the options name; the log hears of it
  virtual void check_usable(const Device &) const {}        // before each call: throws Error (DEVICE) for a dead device
  virtual std::shared_ptr<DeviceSession> open() const = 0;  // on known()
  // An error of the driver ended a run in this session; null: it could not be opened.
  virtual void failed(const std::shared_ptr<DeviceSession> &session, const DriverError &error) = 0;
  virtual std::unique_ptr<core::Ticket> start_on_device(std::span<const core::Task> tasks, core::Control &control) = 0;
  // Reads bytes of a shard of this task in device memory, and waits.
  virtual void read_bytes(const core::Task &task, const void *shard, std::uint64_t offset_bytes, std::uint8_t *out,
                          std::size_t bytes) = 0;

  struct Found {
    std::shared_ptr<const Device> device;
    std::shared_ptr<MemoryBudget> budget;
    std::shared_ptr<DiskCache> disk;
    std::unique_ptr<const KernelChooser> chooser;
    std::unique_ptr<AnswerCheck> check;
    core::Traits traits;
  };
  // The device; the first call searches it. Throws Error in a child, for a missing device, and for a dead one.
  const Found &found() const;
  const Found &known() const noexcept { return *found_; }  // after found()

  // half_bytes, unless the options or a resource set another amount. Resources can change while jobs run.
  std::uint64_t budget_bytes(const Device &device, std::uint64_t half_bytes) const noexcept;
  Workplace place_in(std::shared_ptr<DeviceSession> session);
  // Runs in the session of the backend, which is opened if there is none.
  void guarded(const std::function<void(const Workplace &)> &body);

  const base::Log log_;
  mutable std::mutex mutex_;  // of sessions, and of the search for the device
  std::shared_ptr<DeviceSession> session_;

 private:
  core::Traits traits_called(const std::string &name) const;
  const core::Operator &checked(const core::Operator &what) const;
  const core::Task &checked_for_device(const core::Task &task) const;

  const Options options_;
  const DeviceModule &module_;
  const core::MemoryKind memory_;
  core::Budget *const units_;  // that runs hold; null: none
  const unsigned mib_;         // a resource
  const core::Traits as_asked_;
  mutable std::unique_ptr<const Found> found_;
  mutable std::atomic<const core::Traits *> traits_;
  std::atomic<std::uint64_t> kernel_calls_{0};
};

}  // namespace tandem::device
