#include "opencl/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "device/quarantine.hpp"

namespace tandem::opencl {
namespace {

constexpr std::uint64_t kLeastBufferBytes = 4096;
constexpr std::size_t kMostTables = 32;

std::uint64_t rounded(std::uint64_t bytes) { return std::bit_ceil(std::max(bytes, kLeastBufferBytes)); }

Context make_context(const Driver &driver, const Device &device, cl_context foreign) {
  if (foreign != nullptr) {
    check(driver.clRetainContext(foreign), "clRetainContext");
    return {foreign, driver.clReleaseContext};
  }
  const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                              reinterpret_cast<cl_context_properties>(device.platform), 0};
  cl_int error = CL_SUCCESS;
  const cl_context context = driver.clCreateContext(properties, 1, &device.id, nullptr, nullptr, &error);
  check(error, "clCreateContext");
  return {context, driver.clReleaseContext};
}

}  // namespace

void fail_cancelled(const Device &device) {
  base::fail(TANDEM_ERROR_CANCELLED, fmt::format("cancelled: {} runs nothing of this job any more", device.name));
}

DeviceBuffer::DeviceBuffer(const Session &session, cl_mem_flags flags, std::uint64_t bytes, void *host)
    : reserved_(session.budget().try_reserve(bytes)) {
  if (!reserved_) {
    base::fail(TANDEM_ERROR_OUT_OF_MEMORY,
               fmt::format("OpenCL: the memory budget of {} ({} bytes) has no {} bytes left", session.device().name,
                           session.budget().bytes(), bytes));
  }
  buffer_ = make_buffer(session.driver(), session.context(), flags, bytes, host);
}

DeviceBuffer::DeviceBuffer(const Session &session, Reservation reserved, cl_mem_flags flags, std::uint64_t bytes,
                           void *host)
    : reserved_(std::move(reserved)), buffer_(make_buffer(session.driver(), session.context(), flags, bytes, host)) {}

cl_mem GrowingBuffer::get(const Session &session, std::uint64_t bytes) {
  if (bytes > capacity_bytes_) {
    reset();
    const std::uint64_t roomy = std::max(bytes, std::min(rounded(bytes), session.device().most_buffer_bytes));
    Reservation reserved = session.budget().try_reserve(roomy);
    const std::uint64_t capacity = reserved ? roomy : bytes;
    buffer_ = reserved ? DeviceBuffer(session, std::move(reserved), CL_MEM_READ_WRITE, capacity)
                       : DeviceBuffer(session, CL_MEM_READ_WRITE, capacity);
    capacity_bytes_ = capacity;
  }
  return buffer_.get();
}

void GrowingBuffer::reset() noexcept {
  buffer_.reset();
  capacity_bytes_ = 0;
}

void Slot::make_room(std::uint64_t input_bytes, std::uint64_t output_bytes, std::uint64_t offset_bytes,
                     std::uint64_t record_bytes, std::uint64_t most_bytes) {
  const auto grown = [](const GrowingBuffer &buffer, std::uint64_t bytes) {
    return bytes <= buffer.capacity_bytes() ? buffer.capacity_bytes() : rounded(bytes);
  };
  if (grown(inputs, input_bytes) + grown(outputs, output_bytes) + grown(offsets, offset_bytes) +
          grown(records, record_bytes) <=
      most_bytes)
    return;
  for (GrowingBuffer *buffer : {&inputs, &outputs, &offsets, &records}) buffer->reset();
}

PinnedMemory::~PinnedMemory() { release(); }

void PinnedMemory::release() noexcept {
  if (address_ != nullptr) {
    // The buffer lives until the driver has done this.
    driver_->clEnqueueUnmapMemObject(queue_.get(), buffer_.get(), address_, 0, nullptr, nullptr);
    driver_->clFinish(queue_.get());
  }
  address_ = nullptr;
  capacity_bytes_ = 0;
  buffer_.reset();
  queue_.reset();
}

std::byte *PinnedMemory::get(const Session &session, cl_command_queue queue, std::uint64_t bytes) {
  if (bytes <= capacity_bytes_) return address_;
  release();
  const std::uint64_t capacity = std::max(bytes, std::min(rounded(bytes), session.device().most_buffer_bytes));
  driver_ = &session.driver();
  check(driver_->clRetainCommandQueue(queue), "clRetainCommandQueue");
  queue_ = Queue(queue, driver_->clReleaseCommandQueue);
  buffer_ = make_buffer(*driver_, session.context(), CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, capacity);
  cl_int error = CL_SUCCESS;
  void *address = driver_->clEnqueueMapBuffer(queue, buffer_.get(), CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, capacity, 0,
                                              nullptr, nullptr, &error);
  check(error, "clEnqueueMapBuffer");
  address_ = static_cast<std::byte *>(address);
  capacity_bytes_ = capacity;
  return address_;
}

bool Lane::drain(const Driver &driver) noexcept {
  bool is_over = true;
  for (const Queue *queue : {&up, &run, &down})
    if (*queue && driver.clFinish(queue->get()) != CL_SUCCESS) is_over = false;
  if (is_over)
    for (Slot &slot : slots) slot.events.reset();
  return is_over;
}

Session::Session(const Driver &driver, const Device &device, std::shared_ptr<DiskCache> disk,
                 std::shared_ptr<MemoryBudget> budget, const base::Log &log, cl_context foreign)
    : driver_(driver),
      device_(device),
      budget_(std::move(budget)),
      context_(make_context(driver, device, foreign)),
      programs_(driver_, device_, context_.get(), std::move(disk), log),
      lanes_(kMostLanes),
      tables_(kMostTables) {
  budget_->add(this);
}

Session::~Session() { budget_->remove(this); }

// Lanes and tables that nobody uses now.
void Session::give_idle_memory() noexcept {
  lanes_.take_idle();
  tables_.clear();
}

std::shared_ptr<const DeviceBuffer> Session::tables(const device::DevicePrepared &prepared) {
  if (auto found = tables_.find(prepared.id)) return found;
  std::vector<std::uint32_t> words = device::pack_nibble_tables(prepared.matrix);
  auto buffer = std::make_shared<const DeviceBuffer>(*this, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR,
                                                     words.size() * sizeof words[0], words.data());
  tables_.add(prepared.id, buffer);
  return buffer;
}

Session::LaneLease Session::take_lane(const core::Control &control) {
  const auto make = [this] {
    auto lane = std::make_unique<Lane>();
    for (Queue *queue : {&lane->up, &lane->run, &lane->down}) *queue = make_queue(driver_, context_.get(), device_.id);
    return lane;
  };
  return lanes_.take(shared_from_this(), control, make, [this] { fail_cancelled(device_); });
}

bool Session::settle(LaneLease &lane) noexcept {
  if (lane->drain(driver_)) return true;
  device::quarantine(lane.remove());
  lose();
  return false;
}

void launch(Session &session, cl_command_queue queue, const Launch &what, std::span<const cl_mem> shards,
            std::span<const cl_event> after, Events &events) {
  const Driver &driver = session.driver();
  const bool tables = what.variant.spec.technique == device::Technique::tables;
  const auto &local = what.variant.spec.tuning.local;
  Kernel kernel = what.variant.program->take_kernel();
  cl_uint index = 0;
  const auto argument = [&](std::size_t bytes, const void *value) {
    check(driver.clSetKernelArg(kernel.get(), index++, bytes, value), "clSetKernelArg");
  };
  const auto value = [&](const auto &each) { argument(sizeof each, &each); };
  for (const cl_mem shard : shards) value(shard);
  value(what.offsets);
  value(cl_ulong{what.range.begin});
  value(cl_ulong{what.range.end});
  value(cl_ulong{what.range.length});
  value(what.records);
  std::shared_ptr<const DeviceBuffer> table_buffer;
  if (tables) {
    table_buffer = session.tables(what.prepared);
    value(table_buffer->get());
    value(cl_uint{what.prepared.columns()});
    value(cl_uint{what.prepared.rows()});
    argument(what.prepared.columns() * device::kTableBytesPerColumn, nullptr);
  }
  const std::size_t local_size[] = {local[0], local[1], local[2]};
  const std::size_t global_size[] = {what.range.group_count * local[0], local[1], local[2]};
  const std::vector<cl_event> waits(after.begin(), after.end());  // `after` may be what `events` holds
  check(driver.clEnqueueNDRangeKernel(queue, kernel.get(), 3, nullptr, global_size, local_size,
                                      static_cast<cl_uint>(waits.size()), waits.empty() ? nullptr : waits.data(),
                                      events.next(driver)),
        "clEnqueueNDRangeKernel");
}

}  // namespace tandem::opencl
