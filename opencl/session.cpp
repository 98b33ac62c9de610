// SPDX-License-Identifier: Apache-2.0
#include "opencl/session.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"

namespace tandem::opencl {
namespace {

Context make_context(const OpenclDevice &device, cl_context foreign) {
  const Driver &driver = *device.driver;
  if (foreign != nullptr) {
    OPENCL_CALL(driver, clRetainContext, foreign);
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

DeviceBuffer::DeviceBuffer(const OpenclSession &session, cl_mem_flags flags, std::uint64_t bytes, void *host)
    : reserved_(session.reserve(bytes)),
      buffer_(make_buffer(session.driver(), session.context(), flags, bytes, host)),
      bytes_(bytes) {}

OpenclPinned::OpenclPinned(const OpenclSession &session, cl_command_queue queue, std::uint64_t bytes)
    : driver_(session.driver()),
      buffer_(make_buffer(driver_, session.context(), CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, bytes)),
      bytes_(bytes) {
  OPENCL_CALL(driver_, clRetainCommandQueue, queue);
  queue_ = Queue(queue, driver_.clReleaseCommandQueue);
  cl_int error = CL_SUCCESS;
  void *address = driver_.clEnqueueMapBuffer(queue, buffer_.get(), CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, bytes, 0,
                                             nullptr, nullptr, &error);
  check(error, "clEnqueueMapBuffer");
  address_ = static_cast<std::byte *>(address);
}

// The buffer must live until the driver has done this.
OpenclPinned::~OpenclPinned() {
  if (kModule.in_child()) return;
  driver_.clEnqueueUnmapMemObject(queue_.get(), buffer_.get(), address_, 0, nullptr, nullptr);
  driver_.clFinish(queue_.get());
}

OpenclLane::OpenclLane(OpenclSession &session) : session_(session), driver_(session.driver()) {
  for (Queue *queue : {&up, &run, &down}) *queue = make_queue(driver_, session.context(), session.opencl_device().id);
}

bool OpenclLane::drain() noexcept {
  bool is_over = true;
  for (const Queue *queue : {&up, &run, &down})
    if (*queue && driver_.clFinish(queue->get()) != CL_SUCCESS) is_over = false;
  if (!is_over) {
    session_.lose();
    return false;
  }
  for (OpenclSlot &slot : slots) slot.events.reset();
  return true;
}

void OpenclLane::make_room(unsigned slot, const device::DevicePiece &piece, std::uint64_t most_bytes) {
  OpenclSlot &to = slots[slot];
  const std::uint64_t offsets = (piece.of->columns() + piece.of->rows()) * sizeof(std::uint64_t),
                      most_buffer_bytes = session_.device().most_buffer_bytes;
  device::grow_all<DeviceBuffer>({{&to.inputs, piece.input_bytes()},
                                  {&to.outputs, piece.output_bytes()},
                                  {&to.offsets, offsets},
                                  {&to.records, piece.record_bytes()}},
                                 most_bytes, most_buffer_bytes, [&](std::uint64_t bytes) {
                                   return std::make_unique<DeviceBuffer>(session_, CL_MEM_READ_WRITE, bytes);
                                 });
  device::grow_all<OpenclPinned>(
      {{&to.host_inputs, piece.host_input_bytes()}, {&to.host_outputs, piece.host_output_bytes()}}, UINT64_MAX,
      most_buffer_bytes,
      [&](std::uint64_t bytes) { return std::make_unique<OpenclPinned>(session_, up.get(), bytes); });
}

void OpenclLane::upload(unsigned slot, bool outputs, std::uint64_t at_bytes, const std::byte *from,
                        std::uint64_t bytes) {
  const DeviceBuffer &to = outputs ? *slots[slot].outputs : *slots[slot].inputs;
  OPENCL_CALL(driver_, clEnqueueWriteBuffer, up.get(), to.get(), CL_FALSE, at_bytes, bytes, from, 0, nullptr,
              slots[slot].events.next(driver_));
}

void OpenclLane::launch(unsigned slot, const device::DevicePiece &piece) {
  OpenclSlot &in = slots[slot];
  const unsigned columns = piece.of->columns(), rows = piece.of->rows();
  in.offset_values.resize(columns + rows);
  for (unsigned c = 0; c < columns; ++c) in.offset_values[c] = c * piece.pitch_bytes();
  for (unsigned r = 0; r < rows; ++r) in.offset_values[columns + r] = r * piece.pitch_bytes();
  const cl_mem offsets = in.offsets->get(), records = piece.of->compares() ? in.records->get() : offsets;  // any buffer
  OPENCL_CALL(driver_, clEnqueueWriteBuffer, up.get(), offsets, CL_FALSE, 0,
              in.offset_values.size() * sizeof in.offset_values[0], in.offset_values.data(), 0, nullptr,
              in.events.next(driver_));
  if (piece.of->compares()) {
    in.record_values.assign(piece.record_bytes() / sizeof(std::uint32_t), 0xffffffff);
    OPENCL_CALL(driver_, clEnqueueWriteBuffer, up.get(), records, CL_FALSE, 0, piece.record_bytes(),
                in.record_values.data(), 0, nullptr, in.events.next(driver_));
  }
  OPENCL_CALL(driver_, clFlush, up.get());
  const cl_mem buffers[] = {in.inputs->get(), in.outputs->get(), offsets, records};
  opencl::launch(driver_, run.get(), {piece.of->variant, columns, rows, piece.range}, buffers, in.events.all(),
                 in.events);
  OPENCL_CALL(driver_, clFlush, run.get());
}

void OpenclLane::download(unsigned slot, std::uint64_t at_bytes, std::byte *to, std::uint64_t bytes) {
  const cl_event computed = slots[slot].events.last();
  OPENCL_CALL(driver_, clEnqueueReadBuffer, down.get(), slots[slot].outputs->get(), CL_FALSE, at_bytes, bytes, to, 1,
              &computed, slots[slot].events.next(driver_));
}

void OpenclLane::end_piece(unsigned slot, const device::DevicePiece &piece) {
  if (piece.of->compares()) {
    OpenclSlot &from = slots[slot];
    const cl_event computed = from.events.last();
    OPENCL_CALL(driver_, clEnqueueReadBuffer, down.get(), from.records->get(), CL_FALSE, 0, piece.record_bytes(),
                from.record_values.data(), 1, &computed, from.events.next(driver_));
  }
  OPENCL_CALL(driver_, clFlush, down.get());
}

OpenclSession::OpenclSession(std::shared_ptr<const device::Device> on, std::shared_ptr<device::MemoryBudget> budget,
                             std::shared_ptr<device::DiskCache> disk, const base::Log &log, cl_context foreign)
    : DeviceSession(std::move(on), std::move(budget)),
      context_(make_context(opencl_device(), foreign)),
      programs_(new OpenclPrograms(opencl_device(), context_.get(), std::move(disk), log)) {
  begin();
}

device::Access OpenclSession::access(bool is_aligned) const noexcept {
  if (opencl_device().always_shifted) return device::Access::shifted;
  if (is_aligned && opencl_device().base_alignment_bytes >= kAlignedBytes) return device::Access::aligned;
  return opencl_device().is_cpu() ? device::Access::direct : device::Access::shifted;
}

std::shared_ptr<const void> OpenclSession::make_tables(std::vector<std::uint32_t> words) {
  return std::make_shared<const DeviceBuffer>(*this, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR,
                                              words.size() * sizeof words[0], words.data());
}

void launch(const Driver &driver, cl_command_queue queue, const device::Launch &what, std::span<const cl_mem> buffers,
            std::span<const cl_event> after, Events &events) {
  const auto &local = what.variant.spec.tuning.local;
  OpenclKernel kernel = static_cast<const OpenclProgram &>(*what.variant.program).take_kernel();
  cl_uint index = 0;
  const auto argument = [&](std::size_t bytes, const void *value) {
    OPENCL_CALL(driver, clSetKernelArg, kernel.get(), index++, bytes, value);
  };
  const auto value = [&](const auto &each) { argument(sizeof each, &each); };
  for (const cl_mem buffer : buffers.first(buffers.size() - 1)) value(buffer);
  if (what.variant.spec.binding != device::Binding::table)
    for (const cl_ulong each : {what.range.begin, what.range.end, what.range.length}) value(each);
  value(buffers.back());
  if (what.variant.tables != nullptr) {
    value(static_cast<const DeviceBuffer *>(what.variant.tables.get())->get());
    value(cl_uint{what.columns});
    value(cl_uint{what.rows});
  }
  if (what.variant.spec.technique != device::Technique::compiled)
    argument(device::kernel_shared_bytes(what.variant.spec, what.columns), nullptr);
  const std::size_t local_size[] = {local[0], local[1], local[2]};
  const std::size_t global_size[] = {what.range.group_count * local[0], std::size_t{what.y} * local[1],
                                     std::size_t{what.z} * local[2]};
  const std::vector<cl_event> waits(after.begin(), after.end());  // `after` may be what `events` holds
  OPENCL_CALL(driver, clEnqueueNDRangeKernel, queue, kernel.get(), 3, nullptr, global_size, local_size,
              static_cast<cl_uint>(waits.size()), waits.empty() ? nullptr : waits.data(), events.next(driver));
}

}  // namespace tandem::opencl
