// Shards that lie in device memory.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "core/error.hpp"
#include "core/overlap.hpp"
#include "core/quarantine.hpp"
#include "gpu/runs.hpp"

namespace tandem::gpu {
namespace {

using core::Access;
using core::Mode;
using core::Task;

constexpr std::size_t kMostIdleParts = 8;

std::string name_of(const Task &task, unsigned index) {
  const unsigned columns = task.prepared->columns();
  return index < columns ? fmt::format("input {}", index) : fmt::format("output {}", index - columns);
}

// Where the task's shards begin, inputs and then outputs, checked against what the driver knows.
std::vector<CUdeviceptr> addresses_of(const Session &session, const Task &task) {
  const Device &device = session.device();
  std::vector<CUdeviceptr> list;
  std::vector<core::Extent> extents;
  const auto add = [&](const void *pointer, const std::uint64_t *offsets, unsigned i, bool output) {
    const auto index = static_cast<unsigned>(list.size());
    const CUdeviceptr base = reinterpret_cast<CUdeviceptr>(pointer);
    const std::uint64_t offset = offsets != nullptr ? offsets[i] : 0;
    CUdeviceptr first = 0, last = 0;
    if (__builtin_add_overflow(base, offset, &first) || __builtin_add_overflow(first, task.offset_bytes, &first) ||
        __builtin_add_overflow(first, task.length_bytes - 1, &last)) {
      core::fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("CUDA: {} of {} bytes does not fit the address space",
                                                            name_of(task, index), task.length_bytes));
    }
    const Address address = look_at(session, reinterpret_cast<const void *>(first));
    if (address.type != CU_MEMORYTYPE_DEVICE && !address.is_managed) {
      core::fail(TANDEM_ERROR_INVALID_ARGUMENT,
                 fmt::format("CUDA: {} at {:#x} is no device memory", name_of(task, index), first));
    }
    if (!address.is_managed && address.ordinal != device.ordinal) {
      core::fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("CUDA: {} lies on cuda:{}, the context is of {}",
                                                            name_of(task, index), address.ordinal, device.name));
    }
    if (!address.holds(first, task.length_bytes)) {
      core::fail(TANDEM_ERROR_INVALID_ARGUMENT,
                 fmt::format("CUDA: {} has {} bytes from {:#x}, its allocation {} bytes from {:#x}",
                             name_of(task, index), task.length_bytes, first, address.bytes, address.start));
    }
    list.push_back(first);
    extents.push_back(
        {reinterpret_cast<const std::byte *>(first), task.length_bytes, output, static_cast<std::uint16_t>(index)});
  };
  for (unsigned c = 0; c < task.prepared->columns(); ++c) add(task.inputs[c], task.input_offsets, c, false);
  for (unsigned r = 0; r < task.prepared->rows(); ++r) add(task.outputs[r], task.output_offsets, r, true);
  core::Overlap found{};
  if (task.mode != Mode::compare && core::find_overlap(extents, &found)) {
    core::fail(TANDEM_ERROR_OVERLAP, fmt::format("CUDA: {} overlaps {} ({} bytes each)", name_of(task, found.output),
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
bool check_stream(const Session &session, CUstream stream) {
  const Driver &driver = session.driver();
  const auto refuse = [&](CUresult error, const char *call) {
    if (error == CUDA_SUCCESS) return;
    if (error == CUDA_ERROR_INVALID_HANDLE || error == CUDA_ERROR_INVALID_VALUE || error == CUDA_ERROR_INVALID_CONTEXT)
      core::fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("CUDA: queue is no stream of this process ({} failed with "
                                                            "{})",
                                                            call, error_name(driver, error)));
    check(driver, error, call);
  };
  CUcontext context = nullptr;
  refuse(driver.cuStreamGetCtx(stream, &context), "cuStreamGetCtx");
  if (context != session.context()) {
    core::fail(TANDEM_ERROR_INVALID_ARGUMENT,
               fmt::format("CUDA: the stream is not of the primary context of {}", session.device().name));
  }
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  refuse(driver.cuStreamIsCapturing(stream, &status), "cuStreamIsCapturing");
  if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
    core::fail(TANDEM_ERROR_INVALID_ARGUMENT, "CUDA: the stream's capture has been invalidated");
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

// One task, started on the caller's stream.
class DeviceRun {
 public:
  DeviceRun(const Workplace &place, const Task &task)
      : place_(place),
        task_(task),
        idle_(prepared_of(task).idle),
        stream_(static_cast<CUstream>(task.queue)),
        is_captured_(check_stream(*place.session, stream_)),
        addresses_(addresses_of(*place.session, task)) {
    const CudaPrepared &prepared = prepared_of(task);
    const unsigned element = place.chooser.settings(prepared, task.mode).kernel.element_bytes;
    const Access access = access_of(addresses_, element);
    if (is_captured_ && task.mode == Mode::compare) {
      core::fail(TANDEM_ERROR_UNSUPPORTED,
                 "CUDA: a verify cannot be captured: its result is read when the job is waited for");
    }
    if (is_captured_) {
      const std::lock_guard lock(prepared.ready_mutex);
      const auto found = prepared.ready.find({task.mode, access});
      if (found == prepared.ready.end() || found->second->session != place.session) {
        core::fail(TANDEM_ERROR_UNSUPPORTED,
                   fmt::format("CUDA: this plan is not ready for {} shards; run it once before it is captured",
                               access == Access::aligned ? "aligned" : "unaligned"));
      }
      ready_ = found->second;
    } else {
      ready_ = make_ready(place, prepared, task.mode, access);
    }
    range_ = core::cut_kernel_range(ready_->variant.spec, task.length_bytes, addresses_[prepared.columns()]);
    if (!is_captured_) take_parts();
  }

  ~DeviceRun() {
    if (is_over_) return;
    const QuietContextScope driver(place_.session->driver(), place_.session->context());
    CUresult error = CUDA_ERROR_INVALID_CONTEXT;
    // By our own event where it is there: the stream is the caller's, who may have put more into it, or capture it.
    if (driver)
      error = is_done_recorded_ ? driver->cuEventSynchronize(parts_->done.get()) : driver->cuStreamSynchronize(stream_);
    if (error == CUDA_SUCCESS) return;
    core::quarantine(std::move(parts_));  // the device may still write there
    if (!is_of_capture(error)) place_.session->give_up("a job on the caller's stream does not come to an end");
  }
  DeviceRun(const DeviceRun &) = delete;
  DeviceRun &operator=(const DeviceRun &) = delete;

  void start() {
    is_over_ = is_captured_;
    const bool compare = task_.mode == Mode::compare;
    const CUdeviceptr records = compare ? parts_->records.get() : 0;
    if (compare) clear_records(*place_.session, stream_, records, record_bytes());
    launch(*place_.session, stream_, ready_->variant, prepared_of(task_), addresses_, range_, records,
           ready_->tables != nullptr ? ready_->tables->get() : 0);
    place_.kernel_calls.fetch_add(1, std::memory_order_relaxed);
    if (is_captured_) return;
    parts_->done.record(stream_);
    is_done_recorded_ = true;
  }

  void wait_and_merge() {
    if (is_over_) return;
    parts_->done.wait();
    is_over_ = true;
    if (task_.mode == Mode::compare) merge();
    const std::lock_guard lock(idle_->mutex);
    if (idle_->parts.size() < kMostIdleParts) idle_->parts.push_back(std::move(parts_));
  }

 private:
  std::uint64_t record_bytes() const {
    std::uint64_t bytes = 0;
    if (task_.mode != Mode::compare) return 0;
    if (__builtin_mul_overflow(range_.record_count, task_.prepared->rows() * core::kRecordBytes, &bytes))
      core::fail(TANDEM_ERROR_TOO_LARGE, fmt::format("CUDA: records of {} bytes of shards", task_.length_bytes));
    return bytes;
  }

  // What an earlier job left, where it suffices.
  void take_parts() {
    const std::uint64_t bytes = record_bytes();
    {
      const std::lock_guard lock(idle_->mutex);
      auto &list = idle_->parts;
      const auto fits = std::find_if(list.begin(), list.end(), [&](const std::unique_ptr<JobParts> &each) {
        return each->session == place_.session && each->records.bytes() >= bytes;
      });
      if (fits != list.end()) {
        parts_ = std::move(*fits);
        list.erase(fits);
        return;
      }
    }
    Session &session = *place_.session;
    parts_ = std::make_unique<JobParts>(place_.session);
    if (bytes == 0) return;
    parts_->records = DeviceMemory(session, session.stream(), bytes);
    // From now on good for every stream.
    check(session.driver(), session.driver().cuStreamSynchronize(session.stream()), "cuStreamSynchronize");
  }

  void merge() {
    if (!merge_on_device()) merge_on_host();
  }

  // By the module's Thrust code, where it is there.
  bool merge_on_device() {
    if (!place_.session->may_summarise()) return false;
    const unsigned rows = task_.prepared->rows();
    std::vector<tandem_cuda_found> found(rows);
    char message[256] = {};
    std::uint64_t range_count = 0;
    tandem_cuda_summary summary = {};
    summary.struct_bytes = sizeof summary;
    summary.stream = place_.session->stream();
    summary.records = reinterpret_cast<const std::uint32_t *>(parts_->records.get());
    summary.rows = rows;
    summary.begin = range_.begin;
    summary.end = range_.end;
    summary.length = range_.length;
    summary.tile_bytes = range_.tile_bytes;
    summary.tile_count = range_.tile_count;
    summary.record_count = range_.record_count;
    summary.found_out = found.data();
    summary.range_count_out = &range_count;
    summary.message_out = message;
    summary.message_bytes = sizeof message;
    if (const int error = place_.session->driver().summarise(&summary); error != 0) {
      place_.session->summarise_failed(error, message);
      return false;
    }
    for (unsigned r = 0; r < rows; ++r) {
      if (found[r].byte_count == 0) continue;
      task_.mismatches[r].merge({found[r].byte_count, task_.offset_bytes + found[r].first_bytes});
    }
    return true;
  }

  void merge_on_host() {
    Session &session = *place_.session;
    const Driver &driver = session.driver();
    auto values = std::make_unique<std::vector<std::uint32_t>>(record_bytes() / sizeof(std::uint32_t));
    check(driver, driver.cuMemcpyDtoHAsync(values->data(), parts_->records.get(), record_bytes(), session.stream()),
          "cuMemcpyDtoHAsync");
    if (const CUresult done = driver.cuStreamSynchronize(session.stream()); done != CUDA_SUCCESS) {
      if (driver.cuStreamSynchronize(session.stream()) != CUDA_SUCCESS) core::quarantine(std::move(values));
      check(driver, done, "cuStreamSynchronize");
    }
    core::merge_records(range_, *values, task_.offset_bytes, task_.prepared->rows(), task_.mismatches);
  }

  const Workplace place_;
  Task task_;
  const std::shared_ptr<IdleParts> idle_;  // the job may outlive its plan
  CUstream stream_;
  const bool is_captured_;
  const std::vector<CUdeviceptr> addresses_;
  std::shared_ptr<const Ready> ready_;
  core::KernelRange range_;
  std::unique_ptr<JobParts> parts_;
  bool is_over_ = true, is_done_recorded_ = false;
};

class DeviceTicket final : public core::Ticket {
 public:
  DeviceTicket(std::shared_ptr<Session> session, std::function<void(const DriverError &)> failed)
      : session_(std::move(session)), failed_(std::move(failed)) {}

  void add(const Workplace &place, const Task &task) { runs_.push_back(std::make_unique<DeviceRun>(place, task)); }

  void start(core::Control &control) {
    for (const auto &run : runs_) {
      if (control.cancelled()) fail_cancelled(session_->device());
      run->start();
    }
  }

  void wait() override {
    if (error_) std::rethrow_exception(error_);
    try {
      const ContextScope current(session_->driver(), session_->context());
      for (const auto &run : runs_) run->wait_and_merge();
    } catch (const DriverError &error) {
      error_ = std::current_exception();
      failed_(error);
      throw;
    }
  }

 private:
  std::shared_ptr<Session> session_;
  std::vector<std::unique_ptr<DeviceRun>> runs_;
  std::function<void(const DriverError &)> failed_;
  std::exception_ptr error_;
};

}  // namespace

CudaPrepared::~CudaPrepared() = default;

std::shared_ptr<const Ready> make_ready(const Workplace &place, const CudaPrepared &prepared, Mode mode,
                                        Access access) {
  const std::lock_guard lock(prepared.ready_mutex);
  std::shared_ptr<const Ready> &slot = prepared.ready[{mode, access}];
  if (slot != nullptr && slot->session == place.session) return slot;
  auto made = std::make_shared<Ready>();
  made->session = place.session;
  made->variant = place.chooser.choose(prepared, *place.session, mode, access, core::KernelChooser::kUsedOften);
  if (made->variant.spec.technique == core::Technique::tables) made->tables = place.session->tables(prepared);
  slot = made;
  return slot;
}

std::unique_ptr<core::Ticket> start_on_device(const Workplace &place, std::span<const Task> tasks,
                                              core::Control &control, std::function<void(const DriverError &)> failed) {
  auto ticket = std::make_unique<DeviceTicket>(place.session, std::move(failed));
  for (const Task &task : tasks) {
    if (task.queue == nullptr) {
      core::fail(TANDEM_ERROR_INVALID_ARGUMENT,
                 "CUDA: shards in device memory need a stream, and queue is NULL; the default streams are "
                 "CU_STREAM_LEGACY and CU_STREAM_PER_THREAD");
    }
    ticket->add(place, task);
  }
  ticket->start(control);
  return ticket;
}

void read_device_column(Session &session, const Task &task, std::uint64_t at_bytes, std::uint8_t *inputs_out,
                        std::uint8_t *outputs_out) {
  const Driver &driver = session.driver();
  const unsigned columns = task.prepared->columns(), rows = task.prepared->rows();
  auto bytes = std::make_unique<std::vector<std::uint8_t>>(columns + rows);
  CUresult error = CUDA_SUCCESS;
  const auto read = [&](const void *pointer, const std::uint64_t *offsets, unsigned i, unsigned at) {
    if (error != CUDA_SUCCESS) return;
    const CUdeviceptr from = reinterpret_cast<CUdeviceptr>(pointer) + (offsets != nullptr ? offsets[i] : 0) + at_bytes;
    error = driver.cuMemcpyDtoHAsync(bytes->data() + at, from, 1, session.stream());
  };
  for (unsigned c = 0; c < columns; ++c) read(task.inputs[c], task.input_offsets, c, c);
  for (unsigned r = 0; r < rows; ++r) read(task.outputs[r], task.output_offsets, r, columns + r);
  const CUresult done = driver.cuStreamSynchronize(session.stream());
  if (done != CUDA_SUCCESS && driver.cuStreamSynchronize(session.stream()) != CUDA_SUCCESS)
    core::quarantine(std::move(bytes));  // it may still be written
  check(driver, error, "cuMemcpyDtoHAsync");
  check(driver, done, "cuStreamSynchronize");
  std::copy_n(bytes->begin(), columns, inputs_out);
  std::copy_n(bytes->begin() + columns, rows, outputs_out);
}

}  // namespace tandem::gpu
