// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/stripe_error.hpp"
#include "base/text.hpp"
#include "device/quarantine.hpp"
#include "opencl/runs.hpp"

namespace tandem::opencl {
namespace {

using core::Mode;
using core::Task;
using device::Access;
using device::Binding;

// A range of a shard in a buffer.
struct BufferRange {
  cl_mem buffer = nullptr, root = nullptr;  // root: the buffer that a sub-buffer is a part of
  std::uint64_t start_bytes = 0;            // in `buffer`
  std::uint64_t root_start_bytes = 0;
  bool is_aligned = false;  // the root begins like the devices' own buffers
  bool is_output = false;
  unsigned index = 0;
};

std::string name_of(const BufferRange &range) {
  return base::text(range.is_output ? "output" : "input", " ", range.index);
}

// Checks the buffers of tasks, each buffer once.
class BufferInspector {
 public:
  BufferInspector(const Driver &driver, cl_context context) : driver_(driver), context_(context) {}

  std::vector<BufferRange> ranges(const Task &task) {
    std::vector<BufferRange> list;
    const auto add = [&](const void *handle, const std::uint64_t *offsets, bool is_output, unsigned index) {
      BufferRange range;
      range.buffer = static_cast<cl_mem>(const_cast<void *>(handle));
      range.is_output = is_output;
      range.index = index;
      range.start_bytes = offsets != nullptr ? offsets[index] : 0;
      look(task, range);
      list.push_back(range);
    };
    for (unsigned c = 0; c < task.prepared->columns(); ++c) add(task.inputs[c], task.input_offsets, false, c);
    for (unsigned r = 0; r < task.prepared->rows(); ++r) add(task.outputs[r], task.output_offsets, true, r);
    if (task.mode != Mode::compare) check_overlap(list, task.length_bytes);
    return list;
  }

 private:
  struct Known {
    std::uint64_t bytes;
    cl_mem root;
    std::uint64_t offset_bytes;  // in the root
    bool is_aligned;
  };

  template <class Value>
  Value ask(cl_mem buffer, cl_mem_info what) const {
    Value value{};
    const cl_int error = driver_.clGetMemObjectInfo(buffer, what, sizeof value, &value, nullptr);
    if (error == CL_INVALID_MEM_OBJECT)
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "OpenCL: a shard is no cl_mem (CL_INVALID_MEM_OBJECT)");
    check(error, "clGetMemObjectInfo");
    return value;
  }

  const Known &known(const BufferRange &range) {
    if (const auto found = known_.find(range.buffer); found != known_.end()) return found->second;
    if (ask<cl_mem_object_type>(range.buffer, CL_MEM_TYPE) != CL_MEM_OBJECT_BUFFER)
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, base::text("OpenCL: ", name_of(range), " is a cl_mem, but no buffer"));
    if (ask<cl_context>(range.buffer, CL_MEM_CONTEXT) != context_) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
                 base::text("OpenCL: the buffer of ", name_of(range), " belongs to another context than the queue"));
    }
    Known made = {};
    made.bytes = ask<std::size_t>(range.buffer, CL_MEM_SIZE);
    made.root = ask<cl_mem>(range.buffer, CL_MEM_ASSOCIATED_MEMOBJECT);
    if (made.root == nullptr) made.root = range.buffer;
    made.offset_bytes = ask<std::size_t>(range.buffer, CL_MEM_OFFSET);
    made.is_aligned = (ask<cl_mem_flags>(made.root, CL_MEM_FLAGS) & CL_MEM_USE_HOST_PTR) == 0;
    return known_.insert({range.buffer, made}).first->second;
  }

  void look(const Task &task, BufferRange &range) {
    const Known &buffer = known(range);
    const std::uint64_t size = buffer.bytes, first = range.start_bytes;
    if (task.offset_bytes > size || first > size - task.offset_bytes ||
        task.length_bytes > size - task.offset_bytes - first) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, base::text("OpenCL: ", name_of(range), " has ", task.length_bytes,
                                                           " bytes from ", first, ", its buffer ", size, " bytes"));
    }
    range.start_bytes += task.offset_bytes;
    range.root = buffer.root;
    range.root_start_bytes = range.start_bytes + buffer.offset_bytes;
    range.is_aligned = buffer.is_aligned;
  }

  // Inputs may alias.
  void check_overlap(const std::vector<BufferRange> &list, std::uint64_t length_bytes) const {
    std::vector<const BufferRange *> sorted;
    for (const BufferRange &range : list) sorted.push_back(&range);
    const auto place = [](const BufferRange *range) { return std::pair(range->root, range->root_start_bytes); };
    std::sort(sorted.begin(), sorted.end(),
              [&](const BufferRange *a, const BufferRange *b) { return place(a) < place(b); });
    // All ranges are equally long, so an overlap is always with a neighbour of the other kind.
    const BufferRange *last = nullptr, *last_output = nullptr;
    for (const BufferRange *range : sorted) {
      const auto meets = [&](const BufferRange *before) {
        return before != nullptr && before->root == range->root &&
               range->root_start_bytes - before->root_start_bytes < length_bytes;
      };
      const BufferRange *other = range->is_output && meets(last) ? last : meets(last_output) ? last_output : nullptr;
      if (other != nullptr) {
        base::fail(TANDEM_ERROR_OVERLAP, base::text("OpenCL: ", name_of(*range), " overlaps ", name_of(*other),
                                                    " in their buffer (", length_bytes, " bytes from ",
                                                    range->root_start_bytes, " and ", other->root_start_bytes, ")"));
      }
      last = range;
      if (range->is_output) last_output = range;
    }
  }

  const Driver &driver_;
  cl_context context_;
  std::map<cl_mem, Known> known_;
};

// The buffer of all inputs and that of all outputs; null if they lie in several.
std::pair<cl_mem, cl_mem> buffers_of(const std::vector<BufferRange> &ranges) {
  const auto one = [&](bool output) {
    cl_mem buffer = nullptr;
    for (const BufferRange &range : ranges) {
      if (range.is_output != output) continue;
      if (buffer != nullptr && buffer != range.buffer) return cl_mem{};
      buffer = range.buffer;
    }
    return buffer;
  };
  return {one(false), one(true)};
}

bool are_aligned(const std::vector<BufferRange> &ranges) {
  return std::all_of(ranges.begin(), ranges.end(), [](const BufferRange &range) {
    return range.is_aligned && range.root_start_bytes % kAlignedBytes == 0;
  });
}

// Stripes that one kernel takes.
struct Group {
  Task task;  // of the first one
  std::vector<BufferRange> ranges;
  std::vector<device::BatchStripe> stripes;
};

// A kernel call of a task, and the objects that it needs until it is over.
struct KernelCall {
  device::KernelRange range;
  std::uint64_t start_bytes = 0;  // in the shards
  DeviceBuffer offsets, records;
  std::vector<std::uint32_t> record_values;
};

// A group, started on the caller's queue. Its kernel and the table of its stripes are made before any group is started.
class OpenclRun final : public device::DeviceRun {
 public:
  OpenclRun(device::Workplace place, Group group)
      : place_(std::move(place)),
        session_(session_of(place_)),
        driver_(session_.driver()),
        task_(group.task),
        ranges_(std::move(group.ranges)),
        stripes_(std::move(group.stripes)) {
    const auto queue = static_cast<cl_command_queue>(task_.queue);
    check(driver_.clRetainCommandQueue(queue), "clRetainCommandQueue");
    queue_ = Queue(queue, driver_.clReleaseCommandQueue);
    const auto [inputs, outputs] = buffers_of(ranges_);
    const bool is_batch = stripes_.size() > 1, is_in_two = inputs != nullptr && outputs != nullptr;
    if (is_batch) binding_ = Binding::table;
    if (!is_batch && !is_in_two && fits_arguments(session_.opencl_device(), task_)) binding_ = Binding::arguments;
    is_copied_ = !is_in_two && binding_ == Binding::offsets;
    std::uint64_t bytes = 0;
    for (const device::BatchStripe &stripe : stripes_) bytes += stripe.length;
    variant_ = place_.choose(device::prepared_of(task_), task_.mode,
                             session_.access(is_copied_ || are_aligned(ranges_)), binding_, bytes);
    if (!is_batch) return;
    device::KernelBatch batch = device::cut_kernel_batch(variant_.spec, stripes_);
    batch_y_ = batch.y;
    batch_z_ = batch.z;
    KernelCall &part = parts_->emplace_back();
    part.range.group_count = batch.group_count;
    part.offsets = DeviceBuffer(session_, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR,
                                batch.words.size() * sizeof batch.words[0], batch.words.data());
  }
  ~OpenclRun() override {
    if (is_over_ || driver_.clFinish(queue_.get()) == CL_SUCCESS) return;
    device::quarantine(std::move(parts_));  // the device may still write there
    session_.lose();
  }
  OpenclRun(const OpenclRun &) = delete;
  OpenclRun &operator=(const OpenclRun &) = delete;

  void start(const core::Control &) override {
    is_over_ = false;
    if (binding_ == Binding::table) {
      start_batch();
    } else if (is_copied_) {
      start_by_copies();
    } else {
      start_in_place();
    }
    check(driver_.clFlush(queue_.get()), "clFlush");
  }

  void wait_and_merge() override {
    if (is_over_) return;
    events_.wait();
    is_over_ = true;
    if (task_.mode != Mode::compare) return;
    for (const KernelCall &part : *parts_)
      device::merge_records(part.range, part.record_values, part.start_bytes, task_.prepared->rows(), task_.mismatches);
  }

 private:
  void start_batch() {
    const KernelCall &part = parts_->front();
    const auto [inputs, outputs] = buffers_of(ranges_);
    launch(driver_, queue_.get(),
           {variant_, task_.prepared->columns(), task_.prepared->rows(), part.range, part.offsets.get(),
            part.offsets.get(), batch_y_, batch_z_},
           std::array{inputs, outputs}, {}, events_);
    place_.kernel_calls.fetch_add(1, std::memory_order_relaxed);
  }

  void start_in_place() {
    std::vector<std::uint64_t> offsets;
    std::vector<cl_mem> shards;
    for (const BufferRange &range : ranges_) {
      offsets.push_back(range.start_bytes);
      if (binding_ == Binding::arguments) shards.push_back(range.buffer);
    }
    const unsigned columns = task_.prepared->columns();
    if (binding_ == Binding::offsets) shards = {ranges_.front().buffer, ranges_[columns].buffer};
    start_part(task_.offset_bytes, task_.length_bytes, ranges_[columns].root_start_bytes, offsets, shards);
  }

  // More shards in separate buffers than a kernel has arguments. Pieces are copied, on the device, to one buffer that
  // holds them all.
  void start_by_copies() {
    const unsigned columns = task_.prepared->columns(), rows = task_.prepared->rows();
    std::uint64_t most =
        std::min(device::most_piece_bytes(place_, task_, variant_, 1), device::pitch_of(task_.length_bytes));
    device::Reservation reserved[2];
    for (;; most = most / 2 / kAlignedBytes * kAlignedBytes) {  // others may use most of it
      reserved[0] = session_.budget().try_reserve(most * columns);
      if (reserved[0]) reserved[1] = session_.budget().try_reserve(most * rows);
      if (reserved[1] || most <= kAlignedBytes) break;
      reserved[0].release();
    }
    if (!reserved[1]) {
      base::fail(TANDEM_ERROR_OUT_OF_MEMORY,
                 base::text("OpenCL: the memory budget of ", session_.device().name, " (", session_.budget().bytes(),
                            " bytes) has no ", most, " bytes left of each of ", columns + rows, " shards"));
    }
    const std::uint64_t pitch = most;
    scratch_[0] = DeviceBuffer(session_, std::move(reserved[0]), CL_MEM_READ_WRITE, pitch * columns);
    scratch_[1] = DeviceBuffer(session_, std::move(reserved[1]), CL_MEM_READ_WRITE, pitch * rows);
    std::vector<std::uint64_t> offsets;
    for (unsigned c = 0; c < columns; ++c) offsets.push_back(c * pitch);
    for (unsigned r = 0; r < rows; ++r) offsets.push_back(r * pitch);
    for (std::uint64_t done = 0; done < task_.length_bytes;) {
      const std::uint64_t length = std::min(most, task_.length_bytes - done);
      const auto copy = [&](const BufferRange &range, std::size_t i, bool back) {
        const cl_mem scratch = scratch_[range.is_output].get();
        const cl_event after = events_.last();
        check(driver_.clEnqueueCopyBuffer(queue_.get(), back ? scratch : range.buffer, back ? range.buffer : scratch,
                                          back ? offsets[i] : range.start_bytes + done,
                                          back ? range.start_bytes + done : offsets[i], length, after != nullptr,
                                          after != nullptr ? &after : nullptr, events_.next(driver_)),
              "clEnqueueCopyBuffer");
      };
      for (std::size_t i = 0; i < ranges_.size(); ++i)
        if (!ranges_[i].is_output || task_.mode != Mode::assign) copy(ranges_[i], i, false);
      start_part(task_.offset_bytes + done, length, 0, offsets, {scratch_[0].get(), scratch_[1].get()});
      for (std::size_t i = columns; i < ranges_.size() && task_.mode != Mode::compare; ++i) copy(ranges_[i], i, true);
      done += length;
    }
  }

  void start_part(std::uint64_t start_bytes, std::uint64_t length_bytes, std::uint64_t first_output,
                  std::vector<std::uint64_t> offsets, const std::vector<cl_mem> &shards) {
    KernelCall &part = parts_->emplace_back();
    part.start_bytes = start_bytes;
    part.range = device::cut_kernel_range(variant_.spec, length_bytes, first_output);
    part.offsets = DeviceBuffer(session_, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, offsets.size() * sizeof offsets[0],
                                offsets.data());
    cl_mem records = part.offsets.get();  // any buffer
    const bool compare = task_.mode == Mode::compare;
    if (compare) {
      part.record_values.assign(part.range.record_count * task_.prepared->rows() * 2, 0xffffffff);
      part.records = DeviceBuffer(session_, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                                  part.record_values.size() * sizeof(std::uint32_t), part.record_values.data());
      records = part.records.get();
    }
    launch(driver_, queue_.get(),
           {variant_, task_.prepared->columns(), task_.prepared->rows(), part.range, part.offsets.get(), records},
           shards, events_.all().last(events_.empty() ? 0 : 1), events_);
    place_.kernel_calls.fetch_add(1, std::memory_order_relaxed);
    if (!compare) return;
    const cl_event after = events_.last();
    check(driver_.clEnqueueReadBuffer(queue_.get(), records, CL_FALSE, 0,
                                      part.record_values.size() * sizeof(std::uint32_t), part.record_values.data(), 1,
                                      &after, events_.next(driver_)),
          "clEnqueueReadBuffer");
  }

  const device::Workplace place_;
  OpenclSession &session_;
  const Driver &driver_;
  Task task_;
  Queue queue_;
  const std::vector<BufferRange> ranges_;  // of the first stripe
  const std::vector<device::BatchStripe> stripes_;
  Binding binding_ = Binding::offsets;
  bool is_copied_ = false;  // the shards are copied to one buffer
  device::Variant variant_;
  unsigned batch_y_ = 1, batch_z_ = 1;  // of several stripes: the grid
  DeviceBuffer scratch_[2];
  // Keep their addresses, because the device writes to them.
  std::unique_ptr<std::list<KernelCall>> parts_ = std::make_unique<std::list<KernelCall>>();
  Events events_;  // each command waits for the previous one, because the caller's queue may be out of order
  bool is_over_ = true;
};

}  // namespace

std::unique_ptr<core::Ticket> start_on_device(const std::function<device::Workplace(cl_context)> &place,
                                              const OpenclDevice &device, std::span<const Task> tasks,
                                              core::Control &control,
                                              std::function<void(const device::DriverError &)> failed) {
  const Driver &driver = *device.driver;
  struct Place {
    device::Workplace workplace;
    BufferInspector buffers;
  };
  std::map<void *, Place> places;  // by queue
  const auto place_of = [&](void *given) -> Place & {
    if (const auto found = places.find(given); found != places.end()) return found->second;
    const auto queue = static_cast<cl_command_queue>(given);
    if (queue == nullptr)
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "OpenCL: shards in device memory need a queue, and queue is NULL");
    cl_context context = nullptr;
    cl_device_id on = nullptr;
    const cl_int error = driver.clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof context, &context, nullptr);
    if (error == CL_INVALID_COMMAND_QUEUE)
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "OpenCL: queue is no cl_command_queue (CL_INVALID_COMMAND_QUEUE)");
    check(error, "clGetCommandQueueInfo");
    check(driver.clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof on, &on, nullptr), "clGetCommandQueueInfo");
    if (on != device.id) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
                 base::text("OpenCL: the queue is of another device than the context's, ", device.name, " (",
                            device.model(), ")"));
    }
    return places.insert({given, {place(context), BufferInspector(driver, context)}}).first->second;
  };
  std::vector<Group> groups;
  std::map<std::tuple<const core::Prepared *, void *, cl_mem, cl_mem, bool>, std::size_t> group_of;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const Task &task = tasks[i];
    if (task.length_bytes == 0 || task.prepared->rows() == 0) continue;
    try {
      std::vector<BufferRange> ranges = place_of(task.queue).buffers.ranges(task);
      const auto [inputs, outputs] = buffers_of(ranges);
      device::BatchStripe stripe = {{}, task.length_bytes, ranges[task.prepared->columns()].root_start_bytes};
      for (const BufferRange &range : ranges) stripe.starts.push_back(range.start_bytes);
      std::size_t group = groups.size();
      if (task.mode == Mode::assign && inputs != nullptr && outputs != nullptr) {
        group =
            group_of.insert({{task.prepared, task.queue, inputs, outputs, are_aligned(ranges)}, group}).first->second;
      }
      if (group == groups.size()) groups.push_back({task, std::move(ranges), {}});
      groups[group].stripes.push_back(std::move(stripe));
    } catch (const device::DriverError &) {
      throw;
    } catch (const base::Error &error) {
      if (tasks.size() == 1) throw;
      base::fail_in_stripe(error, i, tasks.size());
    }
  }
  auto ticket = std::make_unique<device::DeviceTicket>(std::move(failed));
  for (Group &group : groups) {
    const device::Workplace &workplace = places.at(group.task.queue).workplace;
    ticket->add(std::make_unique<OpenclRun>(workplace, std::move(group)));
  }
  ticket->start(control, device);
  return ticket;
}

void read_device_column(const Driver &driver, const Task &task, std::uint64_t at_bytes, std::uint8_t *inputs_out,
                        std::uint8_t *outputs_out) {
  const auto queue = static_cast<cl_command_queue>(task.queue);
  const std::size_t size = core::element_bytes(task.prepared->field());
  const auto read = [&](const void *handle, std::uint64_t offset, std::uint8_t *out) {
    check(driver.clEnqueueReadBuffer(queue, static_cast<cl_mem>(const_cast<void *>(handle)), CL_TRUE, offset + at_bytes,
                                     size, out, 0, nullptr, nullptr),
          "clEnqueueReadBuffer");
  };
  const auto offset_of = [](const std::uint64_t *offsets, unsigned i) { return offsets != nullptr ? offsets[i] : 0; };
  for (unsigned c = 0; c < task.prepared->columns(); ++c)
    read(task.inputs[c], offset_of(task.input_offsets, c), inputs_out + c * size);
  for (unsigned r = 0; r < task.prepared->rows(); ++r)
    read(task.outputs[r], offset_of(task.output_offsets, r), outputs_out + r * size);
}

}  // namespace tandem::opencl
