// SPDX-License-Identifier: Apache-2.0
// Tasks on shards in device memory: they are checked, and grouped so that one launch takes many stripes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/backend.hpp"
#include "device/session.hpp"

namespace tandem::device {

// Where a task's range of a shard begins.
struct DeviceShard {
  const void *buffer = nullptr, *root = nullptr;  // root: the buffer that it is a part of. Both null: addresses
  std::uint64_t start = 0, root_start = 0;        // in each
  bool is_aligned = true;                         // the root begins like the device's own buffers
  bool is_output = false;
  unsigned index = 0;

  std::string name() const;  // "input 3"
};

// Stripes that one launch takes.
struct DeviceGroup {
  core::Task task;                  // of the first one
  std::vector<DeviceShard> shards;  // the same
  Access access;
  std::vector<BatchStripe> stripes;

  std::uint64_t length_bytes() const noexcept;  // of all stripes
};

// The driver's part of a submit. It asks the driver once for each queue, and for each buffer or allocation. Its
// functions throw Error.
class ShardInspector {
 public:
  virtual ~ShardInspector();
  virtual void check_queue(void *queue) = 0;
  // Sets all but is_output and index, and checks that the range lies in the device's memory.
  virtual void look(const core::Task &task, const void *shard, std::uint64_t offset_bytes, DeviceShard &at) = 0;
  virtual Access access_of(const core::Task &task, std::span<const DeviceShard> shards) = 0;
  virtual std::unique_ptr<DeviceRun> make_run(DeviceGroup group) = 0;
};

// Whether all inputs, or all outputs, lie in one buffer.
bool share_a_buffer(std::span<const DeviceShard> shards, bool outputs) noexcept;

// Starts tasks on the caller's queues. Tasks that assign go together in one launch if they have the same matrix, queue
// and access, one buffer for all inputs and one for all outputs. Everything is checked before the first command.
// `failed` receives errors at the wait.
std::unique_ptr<core::Ticket> start_on_device(ShardInspector &driver, const Device &device,
                                              std::span<const core::Task> tasks, core::Control &control,
                                              std::function<void(const DriverError &)> failed);

}  // namespace tandem::device
