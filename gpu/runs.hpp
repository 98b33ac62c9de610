// SPDX-License-Identifier: Apache-2.0
// Runs with shards in the caller's device memory, in CUDA's own ways. The session's context is current.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "core/backend.hpp"
#include "gpu/session.hpp"

namespace tandem::gpu {

// A kernel that is ready for shards in device memory: a submit only starts it.
struct Ready {
  std::shared_ptr<device::DeviceSession> session;  // destroyed after the objects in it
  device::Variant variant;
};

// The memory of a job on device memory, kept for the next job after it is over.
struct JobParts {
  explicit JobParts(std::shared_ptr<CudaSession> of) : session(std::move(of)), done(*session, true) {}
  std::shared_ptr<CudaSession> session;
  CudaEvent done;
  std::unique_ptr<CudaMemory> records, table;  // of a verify; of many stripes
  std::unique_ptr<CudaPinned> host_table;
};

// Parts that jobs leave for the next job of the same matrix. Gives their memory back if others need it.
class IdleParts final : private device::MemoryHolder {
 public:
  ~IdleParts();

  // Parts with memory for so many bytes of records, if there are any; else any; else null.
  std::unique_ptr<JobParts> take(const CudaSession *session, std::uint64_t record_bytes);
  void add(std::unique_ptr<JobParts> parts);
  void give_idle_memory() noexcept override;

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<JobParts>> parts_;
  std::shared_ptr<device::MemoryBudget> budget_;  // calls this object; null before the first parts
};

class CudaPrepared final : public device::DevicePrepared {
 public:
  using DevicePrepared::DevicePrepared;
  ~CudaPrepared() override;

  mutable std::mutex ready_mutex;  // of `ready`; nothing is compiled while it is held
  mutable std::map<std::tuple<core::Mode, device::Access, device::Binding>, std::shared_ptr<const Ready>> ready;
  mutable std::vector<std::shared_ptr<const Ready>> captured;  // graphs may launch them while the plan exists
  const std::shared_ptr<IdleParts> idle = std::make_shared<IdleParts>();
};

inline const CudaPrepared &prepared_of(const core::Task &task) {
  return static_cast<const CudaPrepared &>(*task.prepared);
}

// Makes a kernel ready for a run of so many bytes of each shard, unless it is ready: chooses, loads, and uploads
// tables.
std::shared_ptr<const Ready> make_ready(const device::Workplace &place, const CudaPrepared &prepared, core::Mode mode,
                                        device::Access access, device::Binding binding, std::uint64_t length_bytes);

// As device::start_on_device.
std::unique_ptr<core::Ticket> start_on_device(const device::Workplace &place, std::span<const core::Task> tasks,
                                              core::Control &control,
                                              std::function<void(const device::DriverError &)> failed);

// For Backend::device_memory.
std::shared_ptr<core::DeviceMemory> make_shard_memory(std::shared_ptr<CudaSession> session, std::uint64_t bytes);

}  // namespace tandem::gpu
