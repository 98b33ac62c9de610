// SPDX-License-Identifier: Apache-2.0
#include "gpu/session.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "core/registered_memory.hpp"
#include "device/look.hpp"

namespace tandem::gpu {
namespace {

constexpr std::uint64_t kIdlePoolBytes = 64 << 20;  // freed memory that the pool keeps
constexpr std::uint64_t kCopyBytes = 4 << 20;
constexpr std::size_t kMostIdleParts = 8;

// Memory of the program, pinned for all devices of the driver (portable) by this object. It outlives sessions, so it
// retains the primary context, which is current in the constructor.
class HostPin {
 public:
  HostPin(const CudaDevice &device, void *memory, std::uint64_t bytes)
      : driver_(*device.driver), device_(device.id), memory_(memory) {
    CUDA_CALL(driver_, cuDevicePrimaryCtxRetain, &context_, device_);
    const CUresult error = driver_.cuMemHostRegister(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE);
    if (error == CUDA_SUCCESS) return;
    driver_.cuDevicePrimaryCtxRelease(device_);
    fail_call(driver_, error, "cuMemHostRegister");
  }
  ~HostPin() {
    if (kModule.in_child()) return;
    if (const QuietContextScope driver(driver_, context_); driver) driver->cuMemHostUnregister(memory_);
    const OutsideCaptures outside(&driver_);
    driver_.cuDevicePrimaryCtxRelease(device_);
  }
  HostPin(const HostPin &) = delete;
  HostPin &operator=(const HostPin &) = delete;

 private:
  const Driver &driver_;
  const CUdevice device_;
  void *const memory_;
  CUcontext context_ = nullptr;
};

}  // namespace

CudaMemory::CudaMemory(const CudaSession &session, CUstream stream, std::uint64_t bytes)
    : session_(session), stream_(stream), bytes_(bytes), reserved_(session.reserve(bytes)) {
  const Driver &driver = session.driver();
  CUDA_CALL(driver, cuMemAllocFromPoolAsync, &address_, bytes, session.pool(), stream);
}

CudaMemory::~CudaMemory() {
  if (const auto driver = session_.quietly(); driver) driver->cuMemFreeAsync(address_, stream_);
}

CudaPinned::CudaPinned(const CudaSession &session, std::uint64_t bytes)
    : Owned(session.driver(), session.context()), bytes_(bytes) {
  CUDA_CALL(driver_, cuMemHostAlloc, &object_, bytes, CU_MEMHOSTALLOC_PORTABLE);
}

void grow(std::unique_ptr<CudaMemory> &memory, const CudaSession &session, CUstream stream, std::uint64_t bytes) {
  device::grow(memory, bytes, UINT64_MAX,
               [&](std::uint64_t size) { return std::make_unique<CudaMemory>(session, stream, size); });
}
void grow(std::unique_ptr<CudaPinned> &memory, const CudaSession &session, std::uint64_t bytes) {
  device::grow(memory, bytes, UINT64_MAX,
               [&](std::uint64_t size) { return std::make_unique<CudaPinned>(session, size); });
}

CudaStream::CudaStream(const CudaSession &session) : Owned(session.driver(), session.context()) {
  CUDA_CALL(driver_, cuStreamCreate, &object_, CU_STREAM_NON_BLOCKING);
}

CudaEvent::CudaEvent(const CudaSession &session, bool waits_asleep) : Owned(session.driver(), session.context()) {
  const unsigned wait = waits_asleep ? CU_EVENT_BLOCKING_SYNC : CU_EVENT_DEFAULT;
  CUDA_CALL(driver_, cuEventCreate, &object_, CU_EVENT_DISABLE_TIMING | wait);
}
void CudaEvent::record(CUstream stream) { CUDA_CALL(driver_, cuEventRecord, object_, stream); }
void CudaEvent::hold(CUstream stream) { CUDA_CALL(driver_, cuStreamWaitEvent, stream, object_, CU_EVENT_WAIT_DEFAULT); }
void CudaEvent::wait() {
  const bool is_done = device::is_done_soon([&] {
    const CUresult error = driver_.cuEventQuery(object_);
    if (error == CUDA_ERROR_NOT_READY) return false;
    check(driver_, error, "cuEventQuery");
    return true;
  });
  if (!is_done) CUDA_CALL(driver_, cuEventSynchronize, object_);
}

CudaLane::CudaLane(CudaSession &session)
    : session_(session),
      driver_(session.driver()),
      up_(session),
      run_(session),
      down_(session),
      slots_{CudaSlot(session), CudaSlot(session), CudaSlot(session)} {}

bool CudaLane::drain() noexcept {
  CUresult worst = CUDA_SUCCESS;  // an error of a capture only if there is no other
  for (const CudaStream *stream : {&up_, &run_, &down_}) {
    const CUresult error = driver_.cuStreamSynchronize(stream->get());
    if (error != CUDA_SUCCESS && (worst == CUDA_SUCCESS || is_of_capture(worst))) worst = error;
  }
  if (worst != CUDA_SUCCESS && !is_of_capture(worst)) session_.give_up("earlier work does not end");
  return worst == CUDA_SUCCESS;
}

void CudaLane::make_room(unsigned slot, const device::DevicePiece &piece, std::uint64_t most_bytes) {
  CudaSlot &to = slots_[slot];
  const std::uint64_t records = piece.record_bytes();
  device::grow_all<CudaMemory>(
      {{&to.inputs, piece.input_bytes()}, {&to.outputs, piece.output_bytes()}, {&to.records, records}}, most_bytes,
      UINT64_MAX, [&](std::uint64_t bytes) { return std::make_unique<CudaMemory>(session_, up_.get(), bytes); });
  grow(to.host_inputs, session_, piece.host_input_bytes());
  grow(to.host_outputs, session_, piece.host_output_bytes());
  grow(to.host_records, session_, records);
}

void CudaLane::release() noexcept {
  for (CudaSlot &slot : slots_) {
    for (auto *memory : {&slot.inputs, &slot.outputs, &slot.records}) memory->reset();
    for (auto *memory : {&slot.host_inputs, &slot.host_outputs, &slot.host_records}) memory->reset();
  }
}

void CudaLane::upload(unsigned slot, bool outputs, std::uint64_t at_bytes, const std::byte *from, std::uint64_t bytes) {
  const CudaMemory &to = outputs ? *slots_[slot].outputs : *slots_[slot].inputs;
  CUDA_CALL(driver_, cuMemcpyHtoDAsync, to.get() + at_bytes, from, bytes, up_.get());
}

void CudaLane::launch(unsigned slot, const device::DevicePiece &piece) {
  CudaSlot &in = slots_[slot];
  const device::HostTask &work = *piece.of;
  const CUdeviceptr records = work.compares() ? in.records->get() : 0;
  if (work.compares()) clear_records(session_, up_.get(), records, piece.record_bytes());
  in.uploaded.record(up_.get());
  in.uploaded.hold(run_.get());
  std::vector<std::uint64_t> shards;
  shards.reserve(work.columns() + work.rows());
  for (unsigned c = 0; c < work.columns(); ++c) shards.push_back(in.inputs->get() + c * piece.pitch_bytes());
  for (unsigned r = 0; r < work.rows(); ++r) shards.push_back(in.outputs->get() + r * piece.pitch_bytes());
  gpu::launch(session_, run_.get(), {work.variant, work.columns(), work.rows(), piece.range}, shards, records);
  in.computed.record(run_.get());
  in.computed.hold(down_.get());
}

void CudaLane::fetch(void *to, CUdeviceptr from, std::uint64_t bytes) {
  CUDA_CALL(driver_, cuMemcpyDtoHAsync, to, from, bytes, down_.get());
}
void CudaLane::download(unsigned slot, std::uint64_t at_bytes, std::byte *to, std::uint64_t bytes) {
  fetch(to, slots_[slot].outputs->get() + at_bytes, bytes);
}
void CudaLane::end_piece(unsigned slot, const device::DevicePiece &piece) {
  CudaSlot &from = slots_[slot];
  if (piece.of->compares()) fetch(from.host_records->get(), from.records->get(), piece.record_bytes());
  from.done.record(down_.get());
}

CudaSession::CudaSession(std::shared_ptr<const device::Device> on, std::shared_ptr<device::MemoryBudget> budget,
                         std::shared_ptr<device::DiskCache> disk, const base::Log &log)
    : DeviceSession(std::move(on), std::move(budget)), driver_(*cuda_device().driver), log_(log) {
  const OutsideCaptures outside(&driver_);
  CUDA_CALL(driver_, cuDevicePrimaryCtxRetain, &context_, cuda_device().id);
  try {
    open(std::move(disk));
  } catch (...) {
    close();
    throw;
  }
  begin();
}

void CudaSession::open(std::shared_ptr<device::DiskCache> disk) {
  const ContextScope current(driver_, context_);
  std::size_t free = 0, total = 0;
  CUDA_CALL(driver_, cuMemGetInfo, &free, &total);
  free_bytes_ = free;
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = cuda_device().ordinal;
  CUDA_CALL(driver_, cuMemPoolCreate, &pool_, &properties);
  cuuint64_t idle_bytes = kIdlePoolBytes;
  CUDA_CALL(driver_, cuMemPoolSetAttribute, pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &idle_bytes);
  own_ = std::make_unique<CudaStream>(*this);
  programs_.reset(new CudaPrograms(cuda_device(), context_, std::move(disk), log_));
}

CudaSession::~CudaSession() { close(); }

void CudaSession::close() noexcept {
  const OutsideCaptures outside(&driver_);
  end();
  parts_.clear();
  programs_.reset();
  {
    const auto driver = quietly();
    if (driver && own_ != nullptr) driver->cuStreamSynchronize(own_->get());  // for memory that was freed in its order
    own_.reset();
    if (driver && pool_ != nullptr) driver->cuMemPoolDestroy(pool_);
  }
  driver_.cuDevicePrimaryCtxRelease(cuda_device().id);
}

void give_up(const CudaDevice &device, const std::string &reason, const base::Log &log) noexcept {
  try {
    give_up(*device.driver, device.ordinal, reason);
    device.say(log, TANDEM_LOG_WARNING, device.model(), " is given up for the rest of this process: ", reason);
  } catch (const std::exception &) {  // no memory: the next error does it
  }
}

void CudaSession::give_up(const std::string &reason) noexcept {
  if (lose()) gpu::give_up(cuda_device(), reason, log_);
}

void CudaSession::within(const std::function<void()> &body) {
  const ContextScope current(driver_, context_);
  body();
}

void CudaSession::give_idle_memory() noexcept {
  DeviceSession::give_idle_memory();
  {
    std::vector<std::unique_ptr<JobParts>> parts;  // destroyed without the lock
    const std::lock_guard lock(parts_mutex_);
    parts.swap(parts_);
  }
  if (const auto driver = quietly(); driver) driver->cuMemPoolTrimTo(pool_, 0);
}

std::unique_ptr<JobParts> CudaSession::take_parts(std::uint64_t record_bytes) {
  std::unique_ptr<JobParts> taken;
  {
    const std::lock_guard lock(parts_mutex_);
    auto found = std::find_if(parts_.begin(), parts_.end(), [&](const std::unique_ptr<JobParts> &each) {
      return device::bytes_of(each->records) >= record_bytes;
    });
    if (found == parts_.end()) found = parts_.begin();
    if (found != parts_.end()) {
      taken = std::move(*found);
      parts_.erase(found);
    }
  }
  if (taken == nullptr) taken = std::make_unique<JobParts>(*this);
  taken->session = shared_from_this();
  return taken;
}

void CudaSession::leave_parts(std::unique_ptr<JobParts> parts) {
  parts->session.reset();
  const std::lock_guard lock(parts_mutex_);
  if (parts_.size() < kMostIdleParts) parts_.push_back(std::move(parts));
}

void CudaSession::send(CUdeviceptr to, const void *from, std::uint64_t bytes) const {
  for (std::uint64_t done = 0; done < bytes; done += kCopyBytes) {
    auto copy = std::make_unique<std::vector<std::byte>>(std::min(kCopyBytes, bytes - done));
    std::memcpy(copy->data(), static_cast<const std::byte *>(from) + done, copy->size());
    const CUresult error = driver_.cuMemcpyHtoDAsync(to + done, copy->data(), copy->size(), stream());
    synchronise(copy, error, "cuMemcpyHtoDAsync");
  }
}

void CudaSession::fetch(void *to, CUdeviceptr from, std::uint64_t bytes) const {
  for (std::uint64_t done = 0; done < bytes; done += kCopyBytes) {
    auto copy = std::make_unique<std::vector<std::byte>>(std::min(kCopyBytes, bytes - done));
    const CUresult error = driver_.cuMemcpyDtoHAsync(copy->data(), from + done, copy->size(), stream());
    synchronise(copy, error, "cuMemcpyDtoHAsync");
    std::memcpy(static_cast<std::byte *>(to) + done, copy->data(), copy->size());
  }
}

std::shared_ptr<const void> CudaSession::make_tables(std::vector<std::uint32_t> words) {
  const std::uint64_t bytes = words.size() * sizeof(std::uint32_t);
  auto memory = std::make_shared<const CudaMemory>(*this, stream(), bytes);
  send(memory->get(), words.data(), bytes);
  return memory;
}

void CudaSession::pin_registered(const std::byte *first, std::uint64_t bytes) const {
  core::pin_registered(first, bytes, &driver_, [this](void *memory, std::uint64_t count) {
    std::shared_ptr<const void> pin;
    try {
      pin = std::make_shared<const HostPin>(cuda_device(), memory, count);
    } catch (const device::DriverError &error) {
      if (is_sticky(error.number()) || is_of_capture(error.number())) throw;
      if (error.number() == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) return pin;  // by the program itself
      device().say(log_, TANDEM_LOG_WARNING, "the ", count, " registered bytes at ", "0x",
                   base::digits(reinterpret_cast<std::uintptr_t>(memory), 16),
                   " cannot be pinned, so they are staged: ", error.what());
    }
    return pin;
  });
}

// Shards in pinned memory, and all shards if the device reads the host's page tables. Not the outputs of accumulate.
void CudaSession::find_direct(device::HostTask &work) const {
  const core::Task &task = *work.task;
  const auto is_pinned = [&](const std::byte *shard, const char *what, unsigned index) {
    const std::byte *first = shard + task.offset_bytes;
    if (!device().shares_memory) pin_registered(first, task.length_bytes);
    const Address address = look_at(*this, first);
    if (address.is_managed) return false;
    if (address.type == CU_MEMORYTYPE_DEVICE)
      device().fail(TANDEM_ERROR_INVALID_ARGUMENT, what, " ", index,
                    " lies in device memory, but the task is for memory of the host");
    if (device().shares_memory) return true;
    if (address.type != CU_MEMORYTYPE_HOST) return false;
    if (address.bytes != 0) return address.holds(reinterpret_cast<std::uintptr_t>(first), task.length_bytes);
    const Address last = look_at(*this, first + task.length_bytes - 1);
    return last.type == CU_MEMORYTYPE_HOST && !last.is_managed;
  };
  for (unsigned c = 0; c < work.columns(); ++c) work.input_is_direct[c] = is_pinned(task.inputs[c], "input", c);
  for (unsigned r = 0; r < work.rows(); ++r) {
    work.output_is_direct[r] = is_pinned(task.outputs[r], "output", r) && task.mode != core::Mode::accumulate;
  }
}

void launch(const CudaSession &session, CUstream stream, const device::Launch &what,
            std::span<const std::uint64_t> shards, CUdeviceptr records) {
  const Driver &driver = session.driver();
  const device::Variant &variant = what.variant;
  device::KernelArguments arguments = {};
  for (std::size_t i = 0; i < shards.size(); ++i) arguments.shards[i] = reinterpret_cast<void *>(shards[i]);
  arguments.begin = what.range.begin;
  arguments.end = what.range.end;
  arguments.length = what.range.length;
  arguments.records = reinterpret_cast<std::uint32_t *>(records);
  if (variant.tables != nullptr) {
    const CUdeviceptr tables = static_cast<const CudaMemory *>(variant.tables.get())->get();
    arguments.tables = reinterpret_cast<const std::uint32_t *>(tables);
  }
  arguments.columns = what.columns;
  arguments.rows = what.rows;
  void *parameters[] = {&arguments};
  const auto &local = variant.spec.tuning.local;
  const auto shared = static_cast<unsigned>(device::kernel_shared_bytes(variant.spec, what.columns));
  CUDA_CALL(driver, cuLaunchKernel, static_cast<const CudaProgram &>(*variant.program).function(),
            static_cast<unsigned>(what.range.group_count), what.y, what.z, local[0], local[1], local[2], shared, stream,
            parameters, nullptr);
}

void clear_records(const CudaSession &session, CUstream stream, CUdeviceptr records, std::uint64_t bytes) {
  const Driver &driver = session.driver();
  CUDA_CALL(driver, cuMemsetD32Async, records, 0xffffffff, bytes / sizeof(std::uint32_t), stream);
}

Address look_at(const CudaSession &session, const void *pointer) {
  const Driver &driver = session.driver();
  Address address;
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                  CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                  CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void *values[] = {&address.type, &address.ordinal, &address.is_managed, &address.start, &address.bytes};
  // For memory that CUDA does not know it returns no information, which is no error.
  CUDA_CALL(driver, cuPointerGetAttributes, 5, wanted, values, reinterpret_cast<CUdeviceptr>(pointer));
  return address;
}

}  // namespace tandem::gpu
