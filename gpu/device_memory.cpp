// Shards that lie in device memory.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.hpp"
#include "base/overlap.hpp"
#include "core/mismatch_ranges.hpp"
#include "device/quarantine.hpp"
#include "gpu/runs.hpp"

namespace tandem::gpu {
namespace {

using core::Mode;
using core::Task;
using device::Access;

constexpr std::size_t kMostIdleParts = 8;
constexpr std::uint64_t kLine = 64;
constexpr std::uint64_t kFewRanges = 1024;  // of a verify, fetched from the device at once

std::string name_of(const Task &task, unsigned index) {
  const unsigned columns = task.prepared->columns();
  return index < columns ? fmt::format("input {}", index) : fmt::format("output {}", index - columns);
}

// Where the task's shards begin, inputs and then outputs, checked against what the driver knows.
std::vector<CUdeviceptr> addresses_of(const CudaSession &session, const Task &task) {
  const CudaDevice &device = session.cuda_device();
  std::vector<CUdeviceptr> list;
  std::vector<base::Extent> extents;
  const auto add = [&](const void *pointer, const std::uint64_t *offsets, unsigned i, bool output) {
    const auto index = static_cast<unsigned>(list.size());
    const CUdeviceptr base = reinterpret_cast<CUdeviceptr>(pointer);
    const std::uint64_t offset = offsets != nullptr ? offsets[i] : 0;
    CUdeviceptr first = 0, last = 0;
    if (__builtin_add_overflow(base, offset, &first) || __builtin_add_overflow(first, task.offset_bytes, &first) ||
        __builtin_add_overflow(first, task.length_bytes - 1, &last)) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("CUDA: {} of {} bytes does not fit the address space",
                                                            name_of(task, index), task.length_bytes));
    }
    const Address address = look_at(session, reinterpret_cast<const void *>(first));
    if (address.type != CU_MEMORYTYPE_DEVICE && !address.is_managed) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
                 fmt::format("CUDA: {} at {:#x} is no device memory", name_of(task, index), first));
    }
    if (!address.is_managed && address.ordinal != device.ordinal) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("CUDA: {} lies on cuda:{}, the context is of {}",
                                                            name_of(task, index), address.ordinal, device.name));
    }
    if (!address.holds(first, task.length_bytes)) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
                 fmt::format("CUDA: {} has {} bytes from {:#x}, its allocation {} bytes from {:#x}",
                             name_of(task, index), task.length_bytes, first, address.bytes, address.start));
    }
    list.push_back(first);
    extents.push_back(
        {reinterpret_cast<const std::byte *>(first), task.length_bytes, output, static_cast<std::uint16_t>(index)});
  };
  for (unsigned c = 0; c < task.prepared->columns(); ++c) add(task.inputs[c], task.input_offsets, c, false);
  for (unsigned r = 0; r < task.prepared->rows(); ++r) add(task.outputs[r], task.output_offsets, r, true);
  base::Overlap found{};
  if (task.mode != Mode::compare && base::find_overlap(extents, &found)) {
    base::fail(TANDEM_ERROR_OVERLAP, fmt::format("CUDA: {} overlaps {} ({} bytes each)", name_of(task, found.output),
                                                 name_of(task, found.other), task.length_bytes));
  }
  return list;
}

Access access_of(const std::vector<CUdeviceptr> &addresses, unsigned element_bytes) {
  const bool aligned =
      std::all_of(addresses.begin(), addresses.end(), [&](CUdeviceptr each) { return each % element_bytes == 0; });
  return aligned ? Access::aligned : Access::shifted;
}

// The stream, which belongs to this device's primary context; whether it is being captured.
bool check_stream(const CudaSession &session, CUstream stream) {
  const Driver &driver = session.driver();
  const auto refuse = [&](CUresult error, const char *call) {
    if (error == CUDA_SUCCESS) return;
    if (error == CUDA_ERROR_INVALID_HANDLE || error == CUDA_ERROR_INVALID_VALUE || error == CUDA_ERROR_INVALID_CONTEXT)
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("CUDA: queue is no stream of this process ({} failed with "
                                                            "{})",
                                                            call, error_name(driver, error)));
    check(driver, error, call);
  };
  CUcontext context = nullptr;
  refuse(driver.cuStreamGetCtx(stream, &context), "cuStreamGetCtx");
  if (context != session.context()) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
               fmt::format("CUDA: the stream is not of the primary context of {}", session.device().name));
  }
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  refuse(driver.cuStreamIsCapturing(stream, &status), "cuStreamIsCapturing");
  if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "CUDA: the stream's capture has been invalidated");
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

// Memory of the device for the reduction of records: of the session's pool and budget, in the order of its own stream.
class Scratch {
 public:
  explicit Scratch(CudaSession &session) : session_(session) {}

  // For tandem_cuda_summary.
  static void *allocate(void *scratch, std::uint64_t bytes) noexcept {
    auto &self = *static_cast<Scratch *>(scratch);
    try {
      self.held_.emplace_back(self.session_, self.session_.stream(), bytes);
    } catch (const std::exception &) {  // what else is wrong with the device shows at its next call
      return nullptr;
    }
    return reinterpret_cast<void *>(self.held_.back().get());
  }
  static void release(void *scratch, void *allocated) noexcept {
    auto &self = *static_cast<Scratch *>(scratch);
    std::erase_if(self.held_,
                  [&](const CudaMemory &each) { return reinterpret_cast<void *>(each.get()) == allocated; });
  }

 private:
  CudaSession &session_;
  std::vector<CudaMemory> held_;
};

// One task, started on the caller's stream.
class CudaRun final : public device::DeviceRun {
 public:
  CudaRun(const device::Workplace &place, const Task &task)
      : place_(place),
        session_(std::static_pointer_cast<CudaSession>(place.session)),
        task_(task),
        idle_(prepared_of(task).idle),
        stream_(static_cast<CUstream>(task.queue)),
        is_captured_(check_stream(*session_, stream_)),
        addresses_(addresses_of(*session_, task)) {
    const CudaPrepared &prepared = prepared_of(task);
    const unsigned element = place.chooser.settings(prepared, task.mode).kernel.element_bytes;
    const Access access = access_of(addresses_, element);
    if (is_captured_ && task.mode == Mode::compare) {
      base::fail(TANDEM_ERROR_UNSUPPORTED,
                 "CUDA: a verify cannot be captured: its result is read when the job is waited for");
    }
    if (is_captured_) {
      const std::lock_guard lock(prepared.ready_mutex);
      const auto found = prepared.ready.find({task.mode, access});
      if (found == prepared.ready.end() || found->second->session != place.session) {
        base::fail(TANDEM_ERROR_UNSUPPORTED,
                   fmt::format("CUDA: this plan is not ready for {} shards; run it once before it is captured",
                               access == Access::aligned ? "aligned" : "unaligned"));
      }
      ready_ = found->second;
    } else {
      ready_ = make_ready(place, prepared, task.mode, access, task.length_bytes);
    }
    piece_ = {0, task.length_bytes, cut(task.length_bytes)};
    if (!is_captured_) take_parts();
  }

  ~CudaRun() override {
    if (is_over_) return;
    const QuietContextScope driver(session_->driver(), session_->context());
    CUresult error = CUDA_ERROR_INVALID_CONTEXT;
    // By our own event where it is there: the stream is the caller's, who may have put more into it, or capture it.
    if (driver)
      error = is_done_recorded_ ? driver->cuEventSynchronize(parts_->done.get()) : driver->cuStreamSynchronize(stream_);
    if (error == CUDA_SUCCESS) return;
    device::quarantine(std::move(parts_));  // the device may still write there
    if (!is_of_capture(error)) session_->give_up("a job on the caller's stream does not come to an end");
  }
  CudaRun(const CudaRun &) = delete;
  CudaRun &operator=(const CudaRun &) = delete;

  // A verify whose records have no room on the device all at once goes piece by piece, and waits here for all of them
  // but the last: what the caller puts into the stream afterwards may change the shards.
  void start(const core::Control &control) override {
    const std::uint64_t piece_bytes = piece_.length_bytes;
    for (;;) {
      launch_piece();
      const std::uint64_t done = piece_.offset_bytes + piece_.length_bytes;
      if (done == task_.length_bytes) return;
      wait_for_piece();
      if (control.cancelled()) device::fail_cancelled(session_->device());
      for (CUdeviceptr &each : addresses_) each += piece_.length_bytes;
      const std::uint64_t length = std::min(piece_bytes, task_.length_bytes - done);
      piece_ = {done, length, cut(length)};
    }
  }

  void wait_and_merge() override {
    if (is_over_) return;
    const ContextScope current(session_->driver(), session_->context());
    wait_for_piece();
    idle_->add(std::move(parts_));
  }

 private:
  device::KernelRange cut(std::uint64_t length) const {
    return device::cut_kernel_range(ready_->variant.spec, length, addresses_[task_.prepared->columns()]);
  }

  void launch_piece() {
    is_over_ = is_captured_;
    const bool compare = task_.mode == Mode::compare;
    const CUdeviceptr records = compare ? parts_->records.get() : 0;
    if (compare) clear_records(*session_, stream_, records, record_bytes(piece_.range));
    launch(*session_, stream_, ready_->variant, task_.prepared->columns(), addresses_, piece_.range, records);
    place_.kernel_calls.fetch_add(1, std::memory_order_relaxed);
    if (is_captured_) return;
    parts_->done.record(stream_);
    is_done_recorded_ = true;
  }

  void wait_for_piece() {
    parts_->done.wait();
    is_over_ = true;
    is_done_recorded_ = false;
    if (task_.mode == Mode::compare && !merge_on_device()) merge_on_host();
  }

  std::uint64_t record_bytes(const device::KernelRange &range) const {
    std::uint64_t bytes = 0;
    if (task_.mode != Mode::compare) return 0;
    if (__builtin_mul_overflow(range.record_count, task_.prepared->rows() * device::kRecordBytes, &bytes))
      base::fail(TANDEM_ERROR_TOO_LARGE, fmt::format("CUDA: records of {} bytes of shards", task_.length_bytes));
    return bytes;
  }

  // What an earlier job left, where it suffices; else with room for the records of all, or, where the device has none,
  // of a first piece.
  void take_parts() {
    const std::uint64_t bytes = record_bytes(piece_.range);
    parts_ = idle_->take(session_.get(), bytes);
    if (parts_ == nullptr) parts_ = std::make_unique<JobParts>(session_);
    if (parts_->records.bytes() < bytes) take_records();
  }

  void take_records() {
    CudaSession &session = *session_;
    // Shards of all pieces are aligned as those of the first.
    const std::uint64_t least = (piece_.range.tile_bytes + kLine - 1) / kLine * kLine;
    parts_->records = CudaMemory();
    for (bool is_first = true; parts_->records.get() == 0; is_first = false) {
      try {
        parts_->records = CudaMemory(session, session.stream(), record_bytes(piece_.range));
      } catch (const base::Error &error) {
        if (error.status() != TANDEM_ERROR_OUT_OF_MEMORY || (!is_first && piece_.length_bytes <= least)) throw;
        if (is_first) {
          session.budget().give_idle_memory();  // the device may have less than the budget
          continue;
        }
        const std::uint64_t length = std::max(least, piece_.length_bytes / 2 / kLine * kLine);
        piece_ = {0, length, cut(length)};
      }
    }
    // From now on good for every stream.
    check(session.driver(), session.driver().cuStreamSynchronize(session.stream()), "cuStreamSynchronize");
  }

  // By the module's Thrust code, where it is there and has room.
  bool merge_on_device() {
    if (!session_->may_summarise()) return false;
    const unsigned rows = task_.prepared->rows();
    const device::KernelRange &range = piece_.range;
    std::vector<tandem_cuda_found> found(rows);
    // One more than the capacity: NULL would mean that ranges are not looked for.
    std::vector<tandem_cuda_range> ranges;
    if (task_.ranges != nullptr) ranges.resize(std::min(kFewRanges, task_.ranges->capacity) + 1);
    std::uint64_t range_count = 0;
    Scratch scratch(*session_);
    char message[256] = {};
    tandem_cuda_summary summary = {};
    summary.struct_bytes = sizeof summary;
    summary.stream = session_->stream();
    summary.records = reinterpret_cast<const std::uint32_t *>(parts_->records.get());
    summary.rows = rows;
    summary.begin = range.begin;
    summary.end = range.end;
    summary.length = range.length;
    summary.tile_bytes = range.tile_bytes;
    summary.tile_count = range.tile_count;
    summary.record_count = range.record_count;
    summary.found_out = found.data();
    summary.range_count_out = &range_count;
    summary.allocate = Scratch::allocate;
    summary.release = Scratch::release;
    summary.memory = &scratch;
    summary.message_out = message;
    summary.message_bytes = sizeof message;
    for (;;) {
      summary.ranges_out = ranges.data();
      summary.capacity = ranges.empty() ? 0 : ranges.size() - 1;
      if (const int error = session_->driver().summarise(&summary); error != 0) {
        if (error != TANDEM_CUDA_SUMMARISE_NO_MEMORY) session_->summarise_failed(error, message);
        return false;
      }
      const std::uint64_t wanted = task_.ranges != nullptr ? std::min(range_count, task_.ranges->capacity) : 0;
      if (wanted <= summary.capacity) break;
      ranges.resize(wanted + 1);  // more than a few: once more
    }
    const std::uint64_t start_bytes = task_.offset_bytes + piece_.offset_bytes;
    for (unsigned r = 0; r < rows; ++r) {
      if (found[r].byte_count == 0) continue;
      task_.mismatches[r].merge({found[r].byte_count, start_bytes + found[r].first_bytes});
    }
    if (task_.ranges == nullptr) return true;
    std::vector<core::MismatchRange> of_piece;
    for (std::uint64_t i = 0; i < std::min(range_count, summary.capacity); ++i) {
      of_piece.push_back({ranges[i].output, start_bytes + ranges[i].begin_bytes, start_bytes + ranges[i].end_bytes,
                          ranges[i].byte_count});
    }
    task_.ranges->merge(of_piece, range_count);
    task_.ranges->is_filled = true;
    return true;
  }

  void merge_on_host() {
    CudaSession &session = *session_;
    const Driver &driver = session.driver();
    const std::uint64_t bytes = record_bytes(piece_.range), start_bytes = task_.offset_bytes + piece_.offset_bytes;
    auto values = std::make_unique<std::vector<std::uint32_t>>(bytes / sizeof(std::uint32_t));
    check(driver, driver.cuMemcpyDtoHAsync(values->data(), parts_->records.get(), bytes, session.stream()),
          "cuMemcpyDtoHAsync");
    session.synchronise(values);
    device::merge_records(piece_.range, *values, start_bytes, task_.prepared->rows(), task_.mismatches);
    if (task_.ranges == nullptr) return;
    device::merge_record_ranges(piece_.range, *values, start_bytes, task_.prepared->rows(), task_.ranges);
    task_.ranges->is_filled = true;
  }

  // What one launch does: bytes of each shard, from the start of the task on.
  struct {
    std::uint64_t offset_bytes = 0, length_bytes = 0;
    device::KernelRange range;
  } piece_;
  const device::Workplace place_;
  const std::shared_ptr<CudaSession> session_;
  Task task_;
  const std::shared_ptr<IdleParts> idle_;  // the job may outlive its plan
  CUstream stream_;
  const bool is_captured_;
  std::vector<CUdeviceptr> addresses_;  // where the piece begins in each shard
  std::shared_ptr<const Ready> ready_;
  std::unique_ptr<JobParts> parts_;
  bool is_over_ = true, is_done_recorded_ = false;
};

}  // namespace

IdleParts::~IdleParts() {
  if (budget_ != nullptr && !kModule.in_child()) budget_->remove(this);
}

std::unique_ptr<JobParts> IdleParts::take(const CudaSession *session, std::uint64_t record_bytes) {
  const std::lock_guard lock(mutex_);
  const auto find = [&](std::uint64_t least_bytes) {
    return std::find_if(parts_.begin(), parts_.end(), [&](const std::unique_ptr<JobParts> &each) {
      return each->session.get() == session && each->records.bytes() >= least_bytes;
    });
  };
  auto found = find(record_bytes);
  if (found == parts_.end()) found = find(0);
  if (found == parts_.end()) return nullptr;
  auto taken = std::move(*found);
  parts_.erase(found);
  return taken;
}

void IdleParts::add(std::unique_ptr<JobParts> parts) {
  bool is_new = false;
  {
    const std::lock_guard lock(mutex_);
    if (parts_.size() >= kMostIdleParts) return;
    is_new = budget_ == nullptr;
    if (is_new) budget_ = parts->session->shared_budget();
    parts_.push_back(std::move(parts));
  }
  if (is_new) budget_->add(this);  // not under our lock, which is taken under the budget's
}

void IdleParts::give_idle_memory() noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto &each : parts_) each->records = CudaMemory();
}

CudaPrepared::~CudaPrepared() = default;

std::shared_ptr<const Ready> make_ready(const device::Workplace &place, const CudaPrepared &prepared, Mode mode,
                                        Access access, std::uint64_t length_bytes) {
  const auto is_good = [&](const std::shared_ptr<const Ready> &ready) {
    return ready != nullptr && ready->session == place.session && !ready->is_for_now;
  };
  {
    const std::lock_guard lock(prepared.ready_mutex);
    if (const auto &slot = prepared.ready[{mode, access}]; is_good(slot)) return slot;
  }
  auto made = std::make_shared<Ready>();
  made->session = place.session;
  made->variant = place.choose(prepared, mode, access, device::Binding::offsets, length_bytes);
  const std::lock_guard lock(prepared.ready_mutex);
  std::shared_ptr<const Ready> &slot = prepared.ready[{mode, access}];
  if (is_good(slot)) return slot;  // another thread was faster
  made->is_for_now = made->variant.spec.technique == device::Technique::tables &&
                     length_bytes != device::KernelChooser::kUsedOften && !place.chooser.is_forced();
  slot = made;
  return slot;
}

std::unique_ptr<core::Ticket> start_on_device(const device::Workplace &place, std::span<const Task> tasks,
                                              core::Control &control,
                                              std::function<void(const device::DriverError &)> failed) {
  auto ticket = std::make_unique<device::DeviceTicket>(std::move(failed));
  for (const Task &task : tasks) {
    if (task.queue == nullptr) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
                 "CUDA: shards in device memory need a stream, and queue is NULL; the default streams are "
                 "CU_STREAM_LEGACY and CU_STREAM_PER_THREAD");
    }
    ticket->add(std::make_unique<CudaRun>(place, task));
  }
  ticket->start(control, place.session->device());
  return ticket;
}

void read_device_column(CudaSession &session, const Task &task, std::uint64_t at_bytes, std::uint8_t *inputs_out,
                        std::uint8_t *outputs_out) {
  const Driver &driver = session.driver();
  const std::size_t columns = task.prepared->columns(), rows = task.prepared->rows();
  const std::size_t size = core::element_bytes(task.prepared->field());
  auto bytes = std::make_unique<std::vector<std::uint8_t>>((columns + rows) * size);
  CUresult error = CUDA_SUCCESS;
  const auto read = [&](const void *pointer, const std::uint64_t *offsets, std::size_t i, std::size_t at) {
    if (error != CUDA_SUCCESS) return;
    const CUdeviceptr from = reinterpret_cast<CUdeviceptr>(pointer) + (offsets != nullptr ? offsets[i] : 0) + at_bytes;
    error = driver.cuMemcpyDtoHAsync(bytes->data() + at * size, from, size, session.stream());
  };
  for (std::size_t c = 0; c < columns; ++c) read(task.inputs[c], task.input_offsets, c, c);
  for (std::size_t r = 0; r < rows; ++r) read(task.outputs[r], task.output_offsets, r, columns + r);
  session.synchronise(bytes, error, "cuMemcpyDtoHAsync");
  std::copy_n(bytes->data(), columns * size, inputs_out);
  std::copy_n(bytes->data() + columns * size, rows * size, outputs_out);
}

}  // namespace tandem::gpu
