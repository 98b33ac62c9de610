// SPDX-License-Identifier: Apache-2.0
// OpenCL's own ways to run a task: with host shards used directly, and with shards in the caller's device memory. Tasks
// here have rows, columns and bytes.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "core/backend.hpp"
#include "device/device_memory.hpp"
#include "opencl/session.hpp"

namespace tandem::opencl {

// Whether the kernel can have a buffer for each of the task's shards.
bool fits_arguments(const OpenclDevice &device, const core::Task &task) noexcept;

// Whether host shards can be used directly: fits_arguments, and no two buffers overlap in part, which OpenCL forbids.
bool fits_zero_copy(const OpenclDevice &device, const core::Task &task);

// Uses host shards directly. It pays on a device that shares the host's memory, and is right on all. false: the driver
// makes no buffers of this memory, and nothing was done.
bool run_zero_copy(const device::Workplace &place, const core::Task &task, core::Control &control);

// A group as a run in the task's queue. by_arguments: the kernel has an argument for each shard, which fits_arguments.
std::unique_ptr<device::DeviceRun> make_run(const device::Workplace &place, device::DeviceGroup group,
                                            bool by_arguments);

// As device::start_on_device. `place` gives a place in the context of a queue.
std::unique_ptr<core::Ticket> start_on_device(const std::function<device::Workplace(cl_context)> &place,
                                              const OpenclDevice &device, std::span<const core::Task> tasks,
                                              core::Control &control,
                                              std::function<void(const device::DriverError &)> failed);

}  // namespace tandem::opencl
