// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "device/look.hpp"
#include "opencl/session.hpp"

namespace tandem::opencl {
namespace {

using core::Mode;
using core::Task;
using device::Access;
using device::Binding;
using device::DeviceShard;

// Arguments besides shards: offsets, begin, end, length, records, tables, columns, rows, space.
constexpr std::uint64_t kOtherArgumentBytes = 9 * 8;

// Whether the kernel can have a buffer for each of the task's shards.
bool fits_arguments(const OpenclDevice &device, const Task &task) noexcept {
  const std::uint64_t shards = std::uint64_t{task.prepared->rows()} + task.prepared->columns();
  return shards * sizeof(void *) + kOtherArgumentBytes <= device.parameter_bytes;
}

cl_mem buffer_of(const DeviceShard &shard) { return static_cast<cl_mem>(const_cast<void *>(shard.buffer)); }

// A kernel call of a task, and the objects that it needs until it is over.
struct KernelCall {
  device::KernelRange range;
  std::uint64_t start_bytes = 0;  // in the shards
  DeviceBuffer offsets, records;
  std::vector<std::uint32_t> record_values;
};

// A group, started on the caller's queue. Its kernel is made before any group is started.
class OpenclRun final : public device::DeviceRun {
 public:
  OpenclRun(device::Workplace place, device::DeviceGroup group)
      : place_(std::move(place)),
        session_(session_of(place_)),
        driver_(session_.driver()),
        task_(group.task),
        ranges_(std::move(group.shards)) {
    const auto queue = static_cast<cl_command_queue>(task_.queue);
    OPENCL_CALL(driver_, clRetainCommandQueue, queue);
    queue_ = Queue(queue, driver_.clReleaseCommandQueue);
    const bool is_batch = group.stripes.size() > 1;
    const bool is_in_two = device::share_a_buffer(ranges_, false) && device::share_a_buffer(ranges_, true);
    if (is_batch) binding_ = Binding::table;
    if (!is_batch && !is_in_two && fits_arguments(session_.opencl_device(), task_)) binding_ = Binding::arguments;
    is_copied_ = !is_in_two && binding_ == Binding::offsets;
    variant_ = place_.choose(device::prepared_of(task_), task_.mode, is_copied_ ? session_.access(true) : group.access,
                             binding_, group.length_bytes());
    if (is_batch) batch_ = device::cut_kernel_batch(variant_.spec, group.stripes);
    check_bytes_ = place_.bytes_to_copy(task_, variant_);
    if (check_bytes_ == 0) return;
    const std::uint64_t bytes = device::AnswerCheck::copy_count(task_) * check_bytes_;
    check_copies_ = DeviceBuffer(session_, CL_MEM_READ_WRITE, bytes);
    checked_->resize(bytes);
  }
  ~OpenclRun() override {
    if (is_over_ || kModule.in_child() || driver_.clFinish(queue_.get()) == CL_SUCCESS) return;
    device::quarantine(std::move(parts_));  // the device may still write there
    device::quarantine(std::move(checked_));
    session_.lose();
  }
  OpenclRun(const OpenclRun &) = delete;
  OpenclRun &operator=(const OpenclRun &) = delete;

  void start(const core::Control &) override {
    is_over_ = false;
    const unsigned columns = task_.prepared->columns(), rows = task_.prepared->rows();
    if (task_.mode == Mode::accumulate) copy_for_check(columns, columns + rows);
    if (task_.mode == Mode::compare && check_bytes_ != 0) start_trial();
    if (binding_ == Binding::table) {
      device::KernelRange groups;
      groups.group_count = batch_.group_count;
      start_part(groups, 0, batch_.words, {buffer_of(ranges_.front()), buffer_of(ranges_.back())}, batch_.y, batch_.z);
    } else if (is_copied_) {
      start_by_copies();
    } else {
      start_in_place();
    }
    copy_for_check(0, 0);
    if (check_bytes_ != 0) {
      const cl_event after = events_.last();
      OPENCL_CALL(driver_, clEnqueueReadBuffer, queue_.get(), check_copies_.get(), CL_FALSE, 0, checked_->size(),
                  checked_->data(), 1, &after, events_.next(driver_));
    }
    OPENCL_CALL(driver_, clFlush, queue_.get());
  }

  void wait_and_merge() override {
    if (is_over_) return;
    events_.wait();
    is_over_ = true;
    check();
    if (task_.mode != Mode::compare) return;
    for (const KernelCall &part : *parts_)
      device::merge_records(part.range, part.record_values.data(), part.start_bytes, task_.prepared->rows(),
                            task_.mismatches);
  }

 private:
  // Copies the first stripe's shards from `first` on to the places after `shift`. The caller's buffers may be out of
  // the host's reach.
  void copy_for_check(unsigned first, unsigned shift) {
    if (check_bytes_ == 0) return;
    for (std::size_t i = first; i < ranges_.size(); ++i) {
      const cl_event after = events_.last();
      OPENCL_CALL(driver_, clEnqueueCopyBuffer, queue_.get(), buffer_of(ranges_[i]), check_copies_.get(),
                  ranges_[i].start, (i - first + shift) * check_bytes_, check_bytes_, after != nullptr,
                  after != nullptr ? &after : nullptr, events_.next(driver_));
    }
  }

  void check() {
    if (check_bytes_ == 0) return;
    if (task_.mode != Mode::compare)
      return place_.check.look_at_copies(task_, variant_, checked_->data(), check_bytes_, {}, 0);
    const auto look = [&](const KernelCall &part, std::byte *shards, std::uint64_t bytes) {
      std::vector<core::Mismatch> found(task_.prepared->rows());
      device::merge_records(part.range, part.record_values.data(), 0, task_.prepared->rows(), found.data());
      place_.check.look_at_copies(task_, variant_, shards, bytes, found, part.range.length);
    };
    const KernelCall &trial = parts_->front();
    look(trial, device::AnswerCheck::shards_of_trial(*task_.prepared, trial.range.length).data(), trial.range.length);
    parts_->pop_front();
    look(parts_->front(), checked_->data(), check_bytes_);
  }

  // The first part of a compare: of shards in a buffer of its own.
  void start_trial() {
    const std::uint64_t bytes = device::pitch_of(check_bytes_);
    auto shards = device::AnswerCheck::shards_of_trial(*task_.prepared, bytes);
    trial_ = DeviceBuffer(session_, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, shards.size(), shards.data());
    std::vector<std::uint64_t> offsets;
    for (std::size_t i = 0; i < ranges_.size(); ++i) offsets.push_back(i * bytes);
    start_part(device::cut_kernel_range(variant_.spec, bytes, 0), 0, offsets,
               std::vector<cl_mem>(binding_ == Binding::arguments ? ranges_.size() : 2, trial_.get()));
  }

  void start_in_place() {
    const unsigned columns = task_.prepared->columns();
    std::vector<cl_mem> shards = {buffer_of(ranges_.front()), buffer_of(ranges_[columns])};
    if (binding_ == Binding::arguments) {
      shards.clear();
      for (const DeviceShard &shard : ranges_) shards.push_back(buffer_of(shard));
    }
    const std::uint64_t most = session_.device().most_launch_bytes;
    for (std::uint64_t done = 0; done < task_.length_bytes; done += most) {
      std::vector<std::uint64_t> offsets;
      for (const DeviceShard &shard : ranges_) offsets.push_back(shard.start + done);
      const std::uint64_t length = std::min(most, task_.length_bytes - done);
      start_part(device::cut_kernel_range(variant_.spec, length, ranges_[columns].root_start + done),
                 task_.offset_bytes + done, offsets, shards);
    }
  }

  // More shards in separate buffers than a kernel has arguments. Pieces are copied, on the device, to one buffer that
  // holds them all.
  void start_by_copies() {
    const unsigned columns = task_.prepared->columns(), rows = task_.prepared->rows();
    std::uint64_t most =
        std::min(device::most_piece_bytes(place_, task_, variant_.spec.tuning, variant_.staging_bytes, 1),
                 device::pitch_of(task_.length_bytes));
    for (;; most = most / 2 / kAlignedBytes * kAlignedBytes) {  // others may use most of the budget
      try {
        scratch_[0] = DeviceBuffer(session_, CL_MEM_READ_WRITE, most * columns);
        scratch_[1] = DeviceBuffer(session_, CL_MEM_READ_WRITE, most * rows);
        break;
      } catch (const base::Error &error) {
        scratch_[0] = {};
        if (error.status() != TANDEM_ERROR_OUT_OF_MEMORY || most <= kAlignedBytes) throw;
      }
    }
    const std::uint64_t pitch = most;
    std::vector<std::uint64_t> offsets;
    for (unsigned c = 0; c < columns; ++c) offsets.push_back(c * pitch);
    for (unsigned r = 0; r < rows; ++r) offsets.push_back(r * pitch);
    for (std::uint64_t done = 0; done < task_.length_bytes;) {
      const std::uint64_t length = std::min(most, task_.length_bytes - done);
      const auto copy = [&](const DeviceShard &shard, std::size_t i, bool back) {
        const cl_mem scratch = scratch_[shard.is_output].get(), own = buffer_of(shard);
        const std::uint64_t at = shard.start + done;
        const cl_event after = events_.last();
        OPENCL_CALL(driver_, clEnqueueCopyBuffer, queue_.get(), back ? scratch : own, back ? own : scratch,
                    back ? offsets[i] : at, back ? at : offsets[i], length, after != nullptr,
                    after != nullptr ? &after : nullptr, events_.next(driver_));
      };
      for (std::size_t i = 0; i < ranges_.size(); ++i)
        if (!ranges_[i].is_output || task_.mode != Mode::assign) copy(ranges_[i], i, false);
      start_part(device::cut_kernel_range(variant_.spec, length, 0), task_.offset_bytes + done, offsets,
                 {scratch_[0].get(), scratch_[1].get()});
      for (std::size_t i = columns; i < ranges_.size() && task_.mode != Mode::compare; ++i) copy(ranges_[i], i, true);
      done += length;
    }
  }

  // offsets: of the shards; of Binding::table the table. buffers: of the shards.
  void start_part(const device::KernelRange &range, std::uint64_t start_bytes, std::vector<std::uint64_t> offsets,
                  std::vector<cl_mem> buffers, unsigned y = 1, unsigned z = 1) {
    KernelCall &part = parts_->emplace_back();
    part.start_bytes = start_bytes;
    part.range = range;
    part.offsets = DeviceBuffer(session_, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, offsets.size() * sizeof offsets[0],
                                offsets.data());
    cl_mem records = part.offsets.get();  // any buffer
    const bool compare = task_.mode == Mode::compare;
    if (compare) {
      part.record_values.assign(part.range.record_bytes(task_.prepared->rows()) / sizeof(std::uint32_t), 0xffffffff);
      part.records = DeviceBuffer(session_, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                                  part.record_values.size() * sizeof(std::uint32_t), part.record_values.data());
      records = part.records.get();
    }
    buffers.insert(buffers.end(), {part.offsets.get(), records});
    launch(driver_, queue_.get(), {variant_, task_.prepared->columns(), task_.prepared->rows(), range, y, z}, buffers,
           events_.all().last(events_.empty() ? 0 : 1), events_);
    place_.kernel_calls.fetch_add(1, std::memory_order_relaxed);
    if (!compare) return;
    const cl_event after = events_.last();
    OPENCL_CALL(driver_, clEnqueueReadBuffer, queue_.get(), records, CL_FALSE, 0,
                part.record_values.size() * sizeof(std::uint32_t), part.record_values.data(), 1, &after,
                events_.next(driver_));
  }

  const device::Workplace place_;
  OpenclSession &session_;
  const Driver &driver_;
  Task task_;
  Queue queue_;
  const std::vector<DeviceShard> ranges_;  // of the first stripe
  Binding binding_ = Binding::offsets;
  bool is_copied_ = false;  // the shards are copied to one buffer
  device::Variant variant_;
  device::KernelBatch batch_;  // of several stripes
  DeviceBuffer scratch_[2], check_copies_, trial_;
  std::uint64_t check_bytes_ = 0;  // of each shard of the first stripe: copied, and compared with the CPU
  // Keep their addresses, because the device writes to them.
  std::unique_ptr<std::list<KernelCall>> parts_ = std::make_unique<std::list<KernelCall>>();
  std::unique_ptr<std::vector<std::byte>> checked_ = std::make_unique<std::vector<std::byte>>();
  Events events_;  // each command waits for the previous one, because the caller's queue may be out of order
  bool is_over_ = true;
};

class OpenclInspector final : public device::ShardInspector {
 public:
  OpenclInspector(const std::function<device::Workplace(cl_context)> &place, const OpenclDevice &device)
      : place_(place), device_(device), driver_(*device.driver) {}

  void check_queue(void *given) override {
    if (places_.contains(given)) return;
    const auto queue = static_cast<cl_command_queue>(given);
    if (queue == nullptr) refuse("shards in device memory need a queue, and queue is NULL");
    cl_context context = nullptr;
    cl_device_id on = nullptr;
    const cl_int error = driver_.clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof context, &context, nullptr);
    if (error == CL_INVALID_COMMAND_QUEUE) refuse("queue is no cl_command_queue (CL_INVALID_COMMAND_QUEUE)");
    check(error, "clGetCommandQueueInfo");
    OPENCL_CALL(driver_, clGetCommandQueueInfo, queue, CL_QUEUE_DEVICE, sizeof on, &on, nullptr);
    if (on != device_.id)
      refuse("the queue is of another device than the context's, ", device_.name, " (", device_.model(), ")");
    places_.insert({given, place_(context)});
  }

  void look(const Task &task, const void *shard, std::uint64_t offset, DeviceShard &at) override {
    at.buffer = shard;
    const Known &buffer = known(at);
    if (buffer.context != session(task).context())
      refuse("the buffer of ", at.name(), " belongs to another context than the queue");
    const std::uint64_t size = buffer.bytes;
    if (task.offset_bytes > size || offset > size - task.offset_bytes ||
        task.length_bytes > size - task.offset_bytes - offset)
      refuse(at.name(), " has ", task.length_bytes, " bytes from ", offset, ", its buffer ", size, " bytes");
    at.root = buffer.root;
    at.start = offset + task.offset_bytes;
    at.root_start = at.start + buffer.offset_bytes;
    at.is_aligned = buffer.is_aligned;
  }

  Access access_of(const Task &task, std::span<const DeviceShard> shards) override {
    return session(task).access(std::all_of(shards.begin(), shards.end(), [](const DeviceShard &each) {
      return each.is_aligned && each.root_start % kAlignedBytes == 0;
    }));
  }

  std::unique_ptr<device::DeviceRun> make_run(device::DeviceGroup group) override {
    const device::Workplace &place = places_.at(group.task.queue);
    return std::make_unique<OpenclRun>(place, std::move(group));
  }

 private:
  struct Known {
    std::uint64_t bytes, offset_bytes;  // of it; in the root
    cl_mem root;
    cl_context context;
    bool is_aligned;
  };

  OpenclSession &session(const Task &task) const { return session_of(places_.at(task.queue)); }

  template <class... Why>
  [[noreturn]] void refuse(const Why &...why) const {
    device_.fail(TANDEM_ERROR_INVALID_ARGUMENT, why...);
  }

  template <class Value>
  Value ask(cl_mem buffer, cl_mem_info what) const {
    Value value{};
    const cl_int error = driver_.clGetMemObjectInfo(buffer, what, sizeof value, &value, nullptr);
    if (error == CL_INVALID_MEM_OBJECT) refuse("a shard is no cl_mem (CL_INVALID_MEM_OBJECT)");
    check(error, "clGetMemObjectInfo");
    return value;
  }

  const Known &known(const DeviceShard &at) {
    const cl_mem buffer = buffer_of(at);
    if (const auto found = known_.find(buffer); found != known_.end()) return found->second;
    if (ask<cl_mem_object_type>(buffer, CL_MEM_TYPE) != CL_MEM_OBJECT_BUFFER)
      refuse(at.name(), " is a cl_mem, but no buffer");
    Known made = {};
    made.context = ask<cl_context>(buffer, CL_MEM_CONTEXT);
    made.bytes = ask<std::size_t>(buffer, CL_MEM_SIZE);
    made.root = ask<cl_mem>(buffer, CL_MEM_ASSOCIATED_MEMOBJECT);
    if (made.root == nullptr) made.root = buffer;
    made.offset_bytes = ask<std::size_t>(buffer, CL_MEM_OFFSET);
    made.is_aligned = (ask<cl_mem_flags>(made.root, CL_MEM_FLAGS) & CL_MEM_USE_HOST_PTR) == 0;
    return known_.insert({buffer, made}).first->second;
  }

  const std::function<device::Workplace(cl_context)> &place_;
  const OpenclDevice &device_;
  const Driver &driver_;
  std::map<void *, device::Workplace> places_;  // by queue
  std::map<cl_mem, Known> known_;
};

class OpenclShardMemory final : public core::DeviceMemory {
 public:
  OpenclShardMemory(std::shared_ptr<OpenclSession> session, std::uint64_t bytes)
      : session_(std::move(session)),
        queue_(make_queue(session_->driver(), session_->context(), session_->opencl_device().id)),
        buffer_(*session_, CL_MEM_READ_WRITE, bytes) {}

  core::MemoryKind kind() const noexcept override { return core::MemoryKind::opencl; }
  void *shards() const noexcept override { return buffer_.get(); }
  void *queue() const noexcept override { return queue_.get(); }

  // In the queue's own order.
  void write(std::uint64_t at_bytes, const std::byte *from, std::uint64_t bytes) override {
    if (bytes == 0) return;
    OPENCL_CALL(session_->driver(), clEnqueueWriteBuffer, queue_.get(), buffer_.get(), CL_TRUE, at_bytes, bytes, from,
                0, nullptr, nullptr);
  }
  void read(std::uint64_t at_bytes, std::byte *to, std::uint64_t bytes) override {
    if (bytes == 0) return;
    OPENCL_CALL(session_->driver(), clEnqueueReadBuffer, queue_.get(), buffer_.get(), CL_TRUE, at_bytes, bytes, to, 0,
                nullptr, nullptr);
  }

 private:
  const std::shared_ptr<OpenclSession> session_;
  const Queue queue_;
  const DeviceBuffer buffer_;
};

}  // namespace

std::shared_ptr<core::DeviceMemory> OpenclSession::make_shard_memory(std::uint64_t bytes) {
  return std::make_shared<OpenclShardMemory>(std::static_pointer_cast<OpenclSession>(shared_from_this()), bytes);
}

std::unique_ptr<core::Ticket> start_on_device(const std::function<device::Workplace(cl_context)> &place,
                                              const OpenclDevice &device, std::span<const Task> tasks,
                                              core::Control &control,
                                              std::function<void(const device::DriverError &)> failed) {
  OpenclInspector inspector(place, device);
  return device::start_on_device(inspector, device, tasks, control, std::move(failed));
}

}  // namespace tandem::opencl
