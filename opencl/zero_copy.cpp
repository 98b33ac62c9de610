// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.hpp"
#include "base/text.hpp"
#include "opencl/runs.hpp"

namespace tandem::opencl {
namespace {

using core::Mode;
using core::Task;

// Bytes that one call of a kernel moves: enough to hide the cost of the call, few enough that a cancel takes effect
// soon.
constexpr std::uint64_t kLaunchBytes = 64 << 20;
constexpr unsigned kLaunchesAtOnce = 2;
// Arguments besides shards: offsets, begin, end, length, records, tables, columns, rows, space.
constexpr std::uint64_t kOtherArgumentBytes = 9 * 8;

// A buffer over host memory for each shard. Shards at one address share it. Shards that the task only reads may lie in
// read-only memory.
class HostBuffers {
 public:
  HostBuffers(const OpenclSession &session, const Task &task) : session_(session) {
    const cl_mem_flags of_outputs = task.mode == Mode::compare ? CL_MEM_READ_ONLY : CL_MEM_READ_WRITE;
    for (unsigned r = 0; r < task.prepared->rows(); ++r) add(task.outputs[r], task, of_outputs);
    for (unsigned c = 0; c < task.prepared->columns(); ++c) add(task.inputs[c], task, CL_MEM_READ_ONLY);
    std::rotate(in_order_.begin(), in_order_.begin() + task.prepared->rows(), in_order_.end());
  }

  std::span<const cl_mem> all() const noexcept { return in_order_; }

 private:
  void add(const std::byte *shard, const Task &task, cl_mem_flags flags) {
    Buffer &buffer = by_address_[shard];
    if (!buffer) {
      buffer = make_buffer(session_.driver(), session_.context(), flags | CL_MEM_USE_HOST_PTR, task.length_bytes,
                           const_cast<std::byte *>(shard + task.offset_bytes));
    }
    in_order_.push_back(buffer.get());
  }

  const OpenclSession &session_;
  std::map<const std::byte *, Buffer> by_address_;
  std::vector<cl_mem> in_order_;
};

}  // namespace

bool fits_arguments(const OpenclDevice &device, const Task &task) noexcept {
  const std::uint64_t shards = std::uint64_t{task.prepared->rows()} + task.prepared->columns();
  return shards * sizeof(void *) + kOtherArgumentBytes <= device.parameter_bytes;
}

bool fits_zero_copy(const OpenclDevice &device, const Task &task) {
  if (!fits_arguments(device, task) || task.length_bytes > device.most_buffer_bytes) return false;
  std::vector<const std::byte *> starts(task.inputs, task.inputs + task.prepared->columns());
  starts.insert(starts.end(), task.outputs, task.outputs + task.prepared->rows());
  std::sort(starts.begin(), starts.end());
  for (std::size_t i = 1; i < starts.size(); ++i) {
    const auto distance = static_cast<std::uint64_t>(starts[i] - starts[i - 1]);
    if (distance != 0 && distance < task.length_bytes) return false;
  }
  return true;
}

bool run_zero_copy(const device::Workplace &place, const Task &task, core::Control &control) {
  OpenclSession &session = session_of(place);
  const Driver &driver = session.driver();
  const unsigned columns = task.prepared->columns(), rows = task.prepared->rows();
  const device::Variant variant = place.choose(device::prepared_of(task), task.mode, session.access(false),
                                               device::Binding::arguments, task.length_bytes);
  const bool compare = task.mode == Mode::compare;
  const std::uint64_t most = std::max<std::uint64_t>(kLaunchBytes / (columns + rows) / 4096 * 4096, 4096);

  std::optional<HostBuffers> made;
  try {
    made.emplace(session, task);
  } catch (const device::DriverError &) {  // a driver may refuse an address
    return false;
  }
  const HostBuffers &buffers = *made;
  auto lease = session.take_lane(control);  // drained before the buffers are released
  auto &lane = static_cast<OpenclLane &>(*lease);
  const cl_command_queue queue = lane.run.get();
  struct Flight {
    device::KernelRange range;
    std::uint64_t start_bytes;
  };
  std::array<Flight, kLaunchesAtOnce> flights{};
  const auto finish = [&](unsigned index) {
    OpenclSlot &slot = lane.slots[index];
    if (slot.events.empty()) return;
    slot.events.wait();
    if (compare) {
      device::merge_records(flights[index].range, slot.record_values, flights[index].start_bytes, rows,
                            task.mismatches);
    }
  };
  try {
    unsigned next = 0;
    for (std::uint64_t done = 0; done < task.length_bytes; next = (next + 1) % kLaunchesAtOnce) {
      if (control.cancelled()) device::fail_cancelled(session.device());
      finish(next);
      const std::uint64_t length = std::min(most, task.length_bytes - done);
      OpenclSlot &slot = lane.slots[next];
      const device::KernelRange range = device::cut_kernel_range(
          variant.spec, length, reinterpret_cast<std::uintptr_t>(task.outputs[0]) + task.offset_bytes + done);
      flights[next] = {range, task.offset_bytes + done};
      slot.offset_values.assign(columns + rows, done);
      const cl_mem offsets = lane.send_offsets(queue, slot);
      const std::uint64_t record_bytes = range.record_count * rows * device::kRecordBytes;
      cl_mem records = offsets;  // any buffer
      if (compare) records = lane.clear_records(queue, slot, record_bytes);
      launch(driver, queue, {variant, columns, rows, range, offsets, records}, buffers.all(), slot.events.all(),
             slot.events);
      place.kernel_calls.fetch_add(1, std::memory_order_relaxed);
      if (compare) lane.read_records(queue, slot, record_bytes);
      check(driver.clFlush(queue), "clFlush");
      done += length;
    }
    for (unsigned i = 0; i < kLaunchesAtOnce; ++i, next = (next + 1) % kLaunchesAtOnce) finish(next);
    if (!compare) {
      // After the map, the device's results are visible to the host.
      for (unsigned r = 0; r < rows; ++r) {
        const cl_mem output = buffers.all()[columns + r];
        cl_int error = CL_SUCCESS;
        void *address = driver.clEnqueueMapBuffer(queue, output, CL_TRUE, CL_MAP_READ, 0, task.length_bytes, 0, nullptr,
                                                  nullptr, &error);
        check(error, "clEnqueueMapBuffer");
        check(driver.clEnqueueUnmapMemObject(queue, output, address, 0, nullptr, nullptr), "clEnqueueUnmapMemObject");
      }
      check(driver.clFinish(queue), "clFinish");
    }
  } catch (...) {
    if (!session.settle(lease)) {
      base::fail(TANDEM_ERROR_DEVICE, base::text("OpenCL: work on ", session.device().name,
                                                 " does not end: it may still write to the shards in this memory"));
    }
    throw;
  }
  return true;
}

}  // namespace tandem::opencl
