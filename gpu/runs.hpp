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

class CudaPrepared final : public device::DevicePrepared {
 public:
  using DevicePrepared::DevicePrepared;

  mutable std::mutex ready_mutex;  // of `ready`; nothing is compiled while it is held
  mutable std::map<std::tuple<core::Mode, device::Access, device::Binding>, std::shared_ptr<const Ready>> ready;
  mutable std::vector<std::shared_ptr<const Ready>> captured;  // graphs may launch them while the plan exists
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

}  // namespace tandem::gpu
