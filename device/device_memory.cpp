// SPDX-License-Identifier: Apache-2.0
#include "device/device_memory.hpp"

#include <map>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/overlap.hpp"
#include "base/stripe_error.hpp"
#include "base/text.hpp"

namespace tandem::device {
namespace {

using core::Mode;
using core::Task;

void check_overlap(const Device &device, const std::vector<DeviceShard> &shards, std::uint64_t length_bytes) {
  std::map<const void *, std::vector<base::Extent>> by_root;
  for (const DeviceShard &each : shards)
    by_root[each.root].push_back({reinterpret_cast<const std::byte *>(each.root_start), length_bytes, each.is_output,
                                  static_cast<std::uint16_t>(each.index)});
  for (auto &[root, extents] : by_root) {
    base::Overlap found;
    if (!base::find_overlap(extents, &found)) continue;
    device.fail(TANDEM_ERROR_OVERLAP, "output ", found.output, " overlaps ",
                found.other_is_output ? "output " : "input ", found.other, " (", length_bytes, " bytes each)");
  }
}

std::vector<DeviceShard> shards_of(ShardInspector &driver, const Device &device, const Task &task) {
  std::vector<DeviceShard> shards;
  const auto add = [&](const void *shard, const std::uint64_t *offsets, unsigned index, bool is_output) {
    DeviceShard &at = shards.emplace_back();
    at.is_output = is_output;
    at.index = index;
    driver.look(task, shard, offsets != nullptr ? offsets[index] : 0, at);
  };
  for (unsigned c = 0; c < task.prepared->columns(); ++c) add(task.inputs[c], task.input_offsets, c, false);
  for (unsigned r = 0; r < task.prepared->rows(); ++r) add(task.outputs[r], task.output_offsets, r, true);
  if (task.mode != Mode::compare) check_overlap(device, shards, task.length_bytes);
  return shards;
}

}  // namespace

ShardInspector::~ShardInspector() = default;

std::string DeviceShard::name() const { return base::text(is_output ? "output " : "input ", index); }

std::uint64_t DeviceGroup::length_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const BatchStripe &stripe : stripes) bytes += stripe.length;
  return bytes;
}

bool share_a_buffer(std::span<const DeviceShard> shards, bool outputs) noexcept {
  const DeviceShard *first = nullptr;
  for (const DeviceShard &shard : shards) {
    if (shard.is_output != outputs) continue;
    if (first == nullptr) first = &shard;
    if (shard.buffer != first->buffer) return false;
  }
  return true;
}

std::unique_ptr<core::Ticket> start_on_device(ShardInspector &driver, const Device &device, std::span<const Task> tasks,
                                              core::Control &control, std::function<void(const DriverError &)> failed) {
  std::vector<DeviceGroup> groups;
  std::map<std::tuple<const core::Prepared *, void *, const void *, const void *, Access>, std::size_t> group_of;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const Task &task = tasks[i];
    if (task.length_bytes == 0 || task.prepared->rows() == 0) continue;
    try {
      driver.check_queue(task.queue);
      std::vector<DeviceShard> shards = shards_of(driver, device, task);
      const DeviceShard &output = shards[task.prepared->columns()];
      BatchStripe stripe = {{}, task.length_bytes, output.root_start};
      for (const DeviceShard &shard : shards) stripe.starts.push_back(shard.start);
      const Access access = driver.access_of(task, shards);
      std::size_t group = groups.size();
      if (task.mode == Mode::assign && task.length_bytes <= device.most_launch_bytes && share_a_buffer(shards, false) &&
          share_a_buffer(shards, true)) {
        group = group_of.insert({{task.prepared, task.queue, shards.front().buffer, output.buffer, access}, group})
                    .first->second;
      }
      if (group == groups.size()) groups.push_back({task, std::move(shards), access, {}});
      groups[group].stripes.push_back(std::move(stripe));
    } catch (const DriverError &) {
      throw;
    } catch (const base::Error &error) {
      if (tasks.size() == 1) throw;
      base::fail_in_stripe(error, i, tasks.size());
    }
  }
  auto ticket = std::make_unique<DeviceTicket>(std::move(failed));
  for (DeviceGroup &group : groups) ticket->add(driver.make_run(std::move(group)));
  ticket->start(control, device);
  return ticket;
}

}  // namespace tandem::device
