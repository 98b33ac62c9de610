// SPDX-License-Identifier: Apache-2.0
// Shards that lie in device memory.

#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/rounding.hpp"
#include "base/text.hpp"
#include "device/device_memory.hpp"
#include "device/look.hpp"
#include "gpu/session.hpp"

namespace tandem::gpu {
namespace {

using core::Mode;
using core::Task;
using device::Access;

constexpr std::uint64_t kLine = 64;

// The driver's answers about addresses. It is asked once for each allocation.
class Allocations {
 public:
  explicit Allocations(const CudaSession &session) : session_(session) {}

  Address at(CUdeviceptr first) {
    auto found = known_.upper_bound(first);
    if (found != known_.begin() && (--found)->second.holds(first, 1)) return found->second;
    const Address address = look_at(session_, reinterpret_cast<const void *>(first));
    if (address.bytes != 0) known_.insert_or_assign(address.start, address);
    return address;
  }

 private:
  const CudaSession &session_;
  std::map<std::uint64_t, Address> known_;  // by its start
};

CUstream stream_of(void *queue) { return queue != nullptr ? static_cast<CUstream>(queue) : CU_STREAM_LEGACY; }

// The stream, which belongs to this device's primary context, and whether it is being captured.
bool check_stream(const CudaSession &session, CUstream stream) {
  const Driver &driver = session.driver();
  const auto refuse = [&](CUresult error, const char *call) {
    if (error == CUDA_SUCCESS) return;
    if (error == CUDA_ERROR_INVALID_HANDLE || error == CUDA_ERROR_INVALID_VALUE || error == CUDA_ERROR_INVALID_CONTEXT)
      session.device().fail(TANDEM_ERROR_INVALID_ARGUMENT, "queue is no stream of this process (", call,
                            " failed with ", error_name(driver, error), ")");
    check(driver, error, call);
  };
  CUcontext context = nullptr;
  refuse(driver.cuStreamGetCtx(stream, &context), "cuStreamGetCtx");
  if (context != session.context())
    session.device().fail(TANDEM_ERROR_INVALID_ARGUMENT, "the stream is not of the primary context of ",
                          session.device().name);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  refuse(driver.cuStreamIsCapturing(stream, &status), "cuStreamIsCapturing");
  if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "CUDA: the stream's capture has been invalidated");
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

// A group, started on the caller's stream. It is one launch, with two exceptions: a stripe that is too long for one
// launch, and a verify that is short of memory.
class CudaRun final : public device::DeviceRun {
 public:
  CudaRun(const device::Workplace &place, device::DeviceGroup group, bool is_captured)
      : place_(place),
        session_(std::static_pointer_cast<CudaSession>(place.session)),
        task_(group.task),
        stream_(stream_of(task_.queue)),
        is_captured_(is_captured),
        addresses_(group.stripes.front().starts) {
    if (is_captured_ && task_.mode == Mode::compare)
      session_->device().fail(TANDEM_ERROR_UNSUPPORTED,
                              "a verify cannot be captured: its result is read when the job is waited for");
    const bool is_batch = group.stripes.size() > 1;
    const device::Binding binding = is_batch ? device::Binding::table : device::Binding::offsets;
    variant_ = place.choose_and_keep(device::prepared_of(task_), task_.mode, group.access, binding,
                                     is_captured_ ? 0 : group.length_bytes());
    if (is_batch) {
      batch_ = device::cut_kernel_batch(variant_.spec, group.stripes);
      parts_ = session_->take_parts(0);
      take_table(table_bytes());
    } else {
      const std::uint64_t length = std::min(task_.length_bytes, session_->device().most_launch_bytes);
      piece_ = {0, length, cut(length)};
      if (is_captured_) {
        keep_for_graphs();
        return;
      }
      const std::uint64_t records = record_bytes(piece_.range);
      parts_ = session_->take_parts(records);
      if (device::bytes_of(parts_->records) < records) take_records();
    }
    if (is_captured_) return;
    check_bytes_ = std::min(place.bytes_to_copy(task_, variant_), is_batch ? task_.length_bytes : piece_.length_bytes);
    grow(parts_->checked, *session_, device::AnswerCheck::copy_count(task_) * check_bytes_);
    if (check_bytes_ == 0 || task_.mode != Mode::compare) return;
    trial_bytes_ = device::pitch_of(check_bytes_);
    trial_range_ = device::cut_kernel_range(variant_.spec, trial_bytes_, 0);
    take_table(trial_shard_bytes() + record_bytes(trial_range_));
  }

  ~CudaRun() override {
    if (is_over_ || kModule.in_child()) return;
    const auto driver = session_->quietly();
    CUresult error = driver.error();
    // By our own event, if it exists: the stream is the caller's, and may have later work or be captured.
    if (driver)
      error = is_done_recorded_ ? driver->cuEventSynchronize(parts_->done.get()) : driver->cuStreamSynchronize(stream_);
    if (error == CUDA_SUCCESS) return;
    device::quarantine(std::move(parts_));  // the device may still write there
    if (!is_of_capture(error)) session_->give_up("a job on the caller's stream does not end");
  }
  CudaRun(const CudaRun &) = delete;
  CudaRun &operator=(const CudaRun &) = delete;

  // Runs that are too long for a launch go piece by piece. So do verifies with more records than fit the device at
  // once. A verify waits here for all pieces but the last: later work of the caller in the stream may change the
  // shards.
  void start(const core::Control &control) override {
    const unsigned columns = task_.prepared->columns(), rows = task_.prepared->rows();
    if (task_.mode == Mode::accumulate) copy_for_check(columns, columns + rows);
    if (trial_bytes_ != 0) start_trial();
    if (!batch_.words.empty()) return launch_batch();
    const std::uint64_t piece_bytes = piece_.length_bytes;
    for (;;) {
      launch_piece();
      const std::uint64_t done = piece_.offset_bytes + piece_.length_bytes;
      if (done == task_.length_bytes) return;
      if (task_.mode == Mode::compare) wait_for_piece();
      if (control.cancelled()) device::fail_cancelled(session_->device());
      for (std::uint64_t &each : addresses_) each += piece_.length_bytes;
      const std::uint64_t length = std::min(piece_bytes, task_.length_bytes - done);
      piece_ = {done, length, cut(length)};
    }
  }

  void wait_and_merge() override {
    if (is_over_) return;
    const ContextScope current(session_->driver(), session_->context());
    wait_for_piece();
    session_->leave_parts(std::move(parts_));
  }

 private:
  device::KernelRange cut(std::uint64_t length) const {
    return device::cut_kernel_range(variant_.spec, length, addresses_[task_.prepared->columns()]);
  }

  // The job is over before the graph is launched, and the plan's next run may use another kernel.
  void keep_for_graphs() const {
    const device::DevicePrepared &prepared = device::prepared_of(task_);
    const std::lock_guard lock(prepared.mutex);
    if (std::none_of(prepared.captured.begin(), prepared.captured.end(), [&](const device::Variant &each) {
          return each.program == variant_.program && each.tables == variant_.tables;
        }))
      prepared.captured.push_back(variant_);
  }

  // The table of a captured launch is uploaded before the graph exists. So the graph has one kernel and no copy.
  void launch_batch() {
    const Driver &driver = session_->driver();
    const CUstream before = is_captured_ ? session_->stream() : stream_;
    const std::uint64_t bytes = table_bytes();
    std::copy(batch_.words.begin(), batch_.words.end(), reinterpret_cast<std::uint64_t *>(parts_->host_table->get()));
    is_over_ = is_captured_;
    CUDA_CALL(driver, cuMemcpyHtoDAsync, parts_->table->get(), parts_->host_table->get(), bytes, before);
    if (is_captured_) session_->synchronise(parts_);
    device::KernelRange groups;
    groups.group_count = batch_.group_count;
    const std::uint64_t table = parts_->table->get();
    launch({variant_, task_.prepared->columns(), task_.prepared->rows(), groups, batch_.y, batch_.z}, {&table, 1});
  }

  void launch_piece() {
    is_over_ = is_captured_;
    const bool compare = task_.mode == Mode::compare;
    const CUdeviceptr records = compare ? parts_->records->get() : 0;
    if (compare) clear_records(*session_, stream_, records, record_bytes(piece_.range));
    launch({variant_, task_.prepared->columns(), task_.prepared->rows(), piece_.range}, addresses_, records);
  }

  void launch(const device::Launch &what, std::span<const std::uint64_t> shards, CUdeviceptr records = 0) {
    gpu::launch(*session_, stream_, what, shards, records);
    place_.kernel_calls.fetch_add(1, std::memory_order_relaxed);
    if (is_captured_) return;
    if (piece_.offset_bytes == 0) copy_for_check(0, 0);
    parts_->done.record(stream_);
    is_done_recorded_ = true;
  }

  void wait_for_piece() {
    parts_->done.wait();
    is_over_ = true;
    is_done_recorded_ = false;
    if (task_.mode == Mode::compare) return merge();
    check({});
  }

  std::uint64_t record_bytes(const device::KernelRange &range) const {
    return task_.mode == Mode::compare ? range.record_bytes(task_.prepared->rows()) : 0;
  }

  std::uint64_t table_bytes() const noexcept { return batch_.words.size() * sizeof batch_.words[0]; }

  void take_table(std::uint64_t bytes) {
    grow(parts_->host_table, *session_, bytes);
    if (device::bytes_of(parts_->table) >= bytes) return;
    grow(parts_->table, *session_, session_->stream(), bytes);
    allocated();
  }

  // From now on every stream may use memory that was allocated on the session's stream.
  void allocated() const { CUDA_CALL(session_->driver(), cuStreamSynchronize, session_->stream()); }

  // Memory for all records, or, if the device has too little, for those of a first piece.
  void take_records() {
    CudaSession &session = *session_;
    // Shards of all pieces are aligned as those of the first.
    const std::uint64_t least = base::round_up(piece_.range.tile_bytes, kLine);
    parts_->records.reset();
    for (bool is_first = true; parts_->records == nullptr; is_first = false) {
      try {
        parts_->records = std::make_unique<CudaMemory>(session, session.stream(), record_bytes(piece_.range));
      } catch (const base::Error &error) {
        if (error.status() != TANDEM_ERROR_OUT_OF_MEMORY || (!is_first && piece_.length_bytes <= least)) throw;
        if (is_first) {
          session.budget().give_idle_memory();  // the device may have less left than the budget
          continue;
        }
        const std::uint64_t length = std::max(least, piece_.length_bytes / 2 / kLine * kLine);
        piece_ = {0, length, cut(length)};
      }
    }
    allocated();
  }

  // Most verifies find nothing: then the two words before the records are all that the host needs.
  void merge() {
    const unsigned rows = task_.prepared->rows();
    const CUdeviceptr from = parts_->records->get();
    std::uint32_t found[2];
    session_->fetch(found, from, sizeof found);
    const device::FoundTiles tiles = device::found_tiles(found);
    std::vector<std::uint32_t> records(tiles.record_bytes(rows) / sizeof(std::uint32_t));
    session_->fetch(records.data(), from + tiles.offset_bytes(rows), tiles.record_bytes(rows));
    const std::uint64_t start = task_.offset_bytes + piece_.offset_bytes;
    if (check_bytes_ != 0) {
      std::vector<core::Mismatch> of_trial(rows), of_piece(rows);
      const std::byte *const written = parts_->host_table->get() + trial_shard_bytes();
      device::merge_records(trial_range_, reinterpret_cast<const std::uint32_t *>(written), 0, rows, of_trial.data());
      place_.check.look_at_copies(task_, variant_, parts_->host_table->get(), trial_bytes_, of_trial, trial_bytes_);
      device::merge_found(piece_.range, tiles, records.data(), 0, rows, of_piece.data(), nullptr);
      check(of_piece);
    }
    device::merge_found(piece_.range, tiles, records.data(), start, rows, task_.mismatches, task_.ranges);
  }

  std::uint64_t trial_shard_bytes() const noexcept { return addresses_.size() * trial_bytes_; }

  // A compare of shards of the library's own. Its records come after them.
  void start_trial() {
    const Driver &driver = session_->driver();
    std::byte *const host = parts_->host_table->get();
    const CUdeviceptr memory = parts_->table->get(), records = memory + trial_shard_bytes();
    const std::vector<std::byte> shards = device::AnswerCheck::shards_of_trial(*task_.prepared, trial_bytes_);
    std::copy(shards.begin(), shards.end(), host);
    std::vector<std::uint64_t> addresses;
    for (std::size_t i = 0; i < addresses_.size(); ++i) addresses.push_back(memory + i * trial_bytes_);
    is_over_ = false;
    CUDA_CALL(driver, cuMemcpyHtoDAsync, memory, host, shards.size(), stream_);
    clear_records(*session_, stream_, records, record_bytes(trial_range_));
    gpu::launch(*session_, stream_, {variant_, task_.prepared->columns(), task_.prepared->rows(), trial_range_},
                addresses, records);
    CUDA_CALL(driver, cuMemcpyDtoHAsync, host + trial_shard_bytes(), records, record_bytes(trial_range_), stream_);
  }

  // Into memory of the host, in the caller's stream: of the first stripe's shards from `first` on, to the places after
  // `shift`.
  void copy_for_check(unsigned first, unsigned shift) {
    const Driver &driver = session_->driver();
    if (check_bytes_ == 0) return;
    is_over_ = false;
    for (std::size_t i = first; i < addresses_.size(); ++i)
      CUDA_CALL(driver, cuMemcpyDtoHAsync, parts_->checked->get() + (i - first + shift) * check_bytes_, addresses_[i],
                check_bytes_, stream_);
  }

  // found: of a compare, by the first launch.
  void check(std::span<const core::Mismatch> found) {
    if (const std::uint64_t bytes = std::exchange(check_bytes_, 0); bytes != 0)
      place_.check.look_at_copies(task_, variant_, parts_->checked->get(), bytes, found, piece_.length_bytes);
  }

  // The work of one launch: bytes of each shard, from the start of the task on.
  struct {
    std::uint64_t offset_bytes = 0, length_bytes = 0;
    device::KernelRange range;
  } piece_;
  const device::Workplace place_;
  const std::shared_ptr<CudaSession> session_;
  Task task_;
  CUstream stream_;
  const bool is_captured_;
  std::uint64_t check_bytes_ = 0;  // of each shard: to be compared with the CPU
  std::uint64_t trial_bytes_ = 0;  // of a compare: of each shard of its trial
  device::KernelRange trial_range_;
  std::vector<std::uint64_t> addresses_;  // begin of the piece in each shard
  device::KernelBatch batch_;             // of several stripes; otherwise empty
  device::Variant variant_;
  std::unique_ptr<JobParts> parts_;
  bool is_over_ = true, is_done_recorded_ = false;
};

class CudaInspector final : public device::ShardInspector {
 public:
  explicit CudaInspector(const device::Workplace &place) : place_(place), allocations_(session_of(place)) {}

  void check_queue(void *queue) override {
    if (!is_captured_.contains(queue)) is_captured_[queue] = check_stream(session_of(place_), stream_of(queue));
  }

  void look(const Task &task, const void *shard, std::uint64_t offset, device::DeviceShard &at) override {
    const device::Device &device = place_.session->device();
    const auto refuse = [&](const auto &...why) { device.fail(TANDEM_ERROR_INVALID_ARGUMENT, at.name(), why...); };
    std::uint64_t last = 0;
    if (__builtin_add_overflow(reinterpret_cast<CUdeviceptr>(shard), offset, &at.start) ||
        __builtin_add_overflow(at.start, task.offset_bytes, &at.start) ||
        __builtin_add_overflow(at.start, task.length_bytes - 1, &last))
      refuse(" of ", task.length_bytes, " bytes does not fit the address space");
    at.root_start = at.start;
    const Address address = allocations_.at(at.start);
    if (address.type != CU_MEMORYTYPE_DEVICE && !address.is_managed)
      refuse(" at 0x", base::digits(at.start, 16), " is no device memory");
    if (!address.is_managed && address.ordinal != session_of(place_).cuda_device().ordinal)
      refuse(" lies on cuda:", address.ordinal, ", the context is of ", device.name);
    if (!address.holds(at.start, task.length_bytes)) {
      refuse(" has ", task.length_bytes, " bytes from 0x", base::digits(at.start, 16), ", its allocation ",
             address.bytes, " bytes from 0x", base::digits(address.start, 16));
    }
  }

  Access access_of(const Task &task, std::span<const device::DeviceShard> shards) override {
    const unsigned element = place_.chooser.settings(device::prepared_of(task), task.mode).kernel.element_bytes;
    const auto is_aligned = [&](const device::DeviceShard &each) { return each.start % element == 0; };
    return std::all_of(shards.begin(), shards.end(), is_aligned) ? Access::aligned : Access::shifted;
  }

  std::unique_ptr<device::DeviceRun> make_run(device::DeviceGroup group) override {
    const bool is_captured = is_captured_.at(group.task.queue);
    return std::make_unique<CudaRun>(place_, std::move(group), is_captured);
  }

 private:
  const device::Workplace &place_;
  Allocations allocations_;
  std::map<void *, bool> is_captured_;  // by stream
};

class CudaShardMemory final : public core::DeviceMemory {
 public:
  CudaShardMemory(std::shared_ptr<CudaSession> session, std::uint64_t bytes)
      : session_(std::move(session)), queue_(*session_), memory_(*session_, queue_.get(), bytes) {
    CUDA_CALL(session_->driver(), cuStreamSynchronize, queue_.get());
  }

  core::MemoryKind kind() const noexcept override { return core::MemoryKind::cuda; }
  void *shards() const noexcept override { return reinterpret_cast<void *>(memory_.get()); }
  void *queue() const noexcept override { return queue_.get(); }
  void write(std::uint64_t at_bytes, const std::byte *from, std::uint64_t bytes) override {
    after_queue([&] { session_->send(memory_.get() + at_bytes, from, bytes); });
  }
  void read(std::uint64_t at_bytes, std::byte *to, std::uint64_t bytes) override {
    after_queue([&] { session_->fetch(to, memory_.get() + at_bytes, bytes); });
  }

 private:
  template <class Copy>
  void after_queue(const Copy &copy) {
    const ContextScope current(session_->driver(), session_->context());
    CUDA_CALL(session_->driver(), cuStreamSynchronize, queue_.get());
    copy();
  }

  const std::shared_ptr<CudaSession> session_;
  const CudaStream queue_;
  const CudaMemory memory_;
};

}  // namespace

std::shared_ptr<core::DeviceMemory> CudaSession::make_shard_memory(std::uint64_t bytes) {
  return std::make_shared<CudaShardMemory>(std::static_pointer_cast<CudaSession>(shared_from_this()), bytes);
}

std::unique_ptr<core::Ticket> start_on_device(const device::Workplace &place, std::span<const Task> tasks,
                                              core::Control &control,
                                              std::function<void(const device::DriverError &)> failed) {
  CudaInspector inspector(place);
  return device::start_on_device(inspector, place.session->device(), tasks, control, std::move(failed));
}

}  // namespace tandem::gpu
