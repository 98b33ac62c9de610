// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <list>
#include <map>

#include "opencl/session.hpp"

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

// A buffer over host memory for each shard, inputs and then outputs. Shards at one address share it. Shards that the
// task only reads may lie in read-only memory.
std::vector<cl_mem> make_buffers(const OpenclSession &session, const Task &task,
                                 std::map<const std::byte *, Buffer> &by_address) {
  std::vector<cl_mem> buffers;
  const auto add = [&](const std::byte *shard, cl_mem_flags flags) {
    Buffer &buffer = by_address[shard];
    if (!buffer)
      buffer = make_buffer(session.driver(), session.context(), flags | CL_MEM_USE_HOST_PTR, task.length_bytes,
                           const_cast<std::byte *>(shard + task.offset_bytes));
    buffers.push_back(buffer.get());
  };
  const unsigned rows = task.prepared->rows();
  const cl_mem_flags of_outputs = task.mode == Mode::compare ? CL_MEM_READ_ONLY : CL_MEM_READ_WRITE;
  for (unsigned r = 0; r < rows; ++r) add(task.outputs[r], of_outputs);
  for (unsigned c = 0; c < task.prepared->columns(); ++c) add(task.inputs[c], CL_MEM_READ_ONLY);
  std::rotate(buffers.begin(), buffers.begin() + rows, buffers.end());
  return buffers;
}

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
  const unsigned columns = task.prepared->columns(), rows = task.prepared->rows();
  const std::uint64_t most = std::max<std::uint64_t>(kLaunchBytes / (columns + rows) / 4096 * 4096, 4096);
  std::map<const std::byte *, Buffer> by_address;
  std::vector<cl_mem> buffers;
  try {
    buffers = make_buffers(session, task, by_address);
  } catch (const device::DriverError &) {  // a driver may refuse an address
    return false;
  }
  auto lease = session.take_lane(control);  // drained before the buffers are released
  const cl_command_queue queue = static_cast<OpenclLane &>(*lease).run.get();
  std::list<std::unique_ptr<device::DeviceRun>> runs;
  const auto finish = [&](std::size_t left) {
    for (; runs.size() > left; runs.pop_front()) runs.front()->wait_and_merge();
  };
  try {
    for (std::uint64_t done = 0; done < task.length_bytes; done += most) {
      if (control.cancelled()) device::fail_cancelled(session.device());
      finish(kLaunchesAtOnce - 1);
      device::DeviceGroup piece = {task, {}, session.access(false), {}};
      piece.stripes.resize(1);
      piece.task.queue = queue;
      piece.task.offset_bytes += done;
      piece.task.length_bytes = piece.stripes[0].length = std::min(most, task.length_bytes - done);
      for (unsigned i = 0; i < columns + rows; ++i) {
        device::DeviceShard &shard = piece.shards.emplace_back();
        shard.buffer = buffers[i];
        shard.is_output = i >= columns;
        shard.start = done;
        shard.root_start = reinterpret_cast<std::uintptr_t>(i < columns ? task.inputs[i] : task.outputs[i - columns]) +
                           piece.task.offset_bytes;
      }
      runs.push_back(make_run(place, std::move(piece), true));
      runs.back()->start(control);
    }
    finish(0);
    if (task.mode != Mode::compare) {
      // After the map, the device's results are visible to the host.
      for (const cl_mem output : std::span(buffers).subspan(columns)) {
        cl_int error = CL_SUCCESS;
        void *address = session.driver().clEnqueueMapBuffer(queue, output, CL_TRUE, CL_MAP_READ, 0, task.length_bytes,
                                                            0, nullptr, nullptr, &error);
        check(error, "clEnqueueMapBuffer");
        OPENCL_CALL(session.driver(), clEnqueueUnmapMemObject, queue, output, address, 0, nullptr, nullptr);
      }
      OPENCL_CALL(session.driver(), clFinish, queue);
    }
  } catch (...) {
    if (!session.settle(lease))
      session.device().fail(TANDEM_ERROR_DEVICE, "work on ", session.device().name,
                            " does not end: it may still write to the shards in this memory");
    throw;
  }
  return true;
}

}  // namespace tandem::opencl
