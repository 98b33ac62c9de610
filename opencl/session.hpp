// SPDX-License-Identifier: Apache-2.0
// OpenCL's part of device/session.hpp: all objects of one OpenCL context. After an error of the driver the backend
// drops its session and makes another, so that no object of a failed context is used again.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "device/device_memory.hpp"
#include "device/piece_stream.hpp"
#include "opencl/programs.hpp"

namespace tandem::opencl {

class OpenclSession;

// A buffer on the device, within the memory budget.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // Throws Error (OUT_OF_MEMORY) with the budget.
  DeviceBuffer(const OpenclSession &session, cl_mem_flags flags, std::uint64_t bytes, void *host = nullptr);

  cl_mem get() const noexcept { return buffer_.get(); }
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  device::Reservation reserved_;  // destroyed after the buffer
  Buffer buffer_;
  std::uint64_t bytes_ = 0;
};

// Host memory that the driver allocated, mapped while this object lives. A device reads and writes it without another
// copy.
class OpenclPinned {
 public:
  OpenclPinned(const OpenclSession &session, cl_command_queue queue, std::uint64_t bytes);
  ~OpenclPinned();
  OpenclPinned(const OpenclPinned &) = delete;
  OpenclPinned &operator=(const OpenclPinned &) = delete;

  std::byte *get() const noexcept { return address_; }
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  const Driver &driver_;
  Queue queue_;  // retained: unmaps
  const Buffer buffer_;
  const std::uint64_t bytes_;
  std::byte *address_ = nullptr;
};

// The resources of one piece of work under way.
struct OpenclSlot {
  std::unique_ptr<OpenclPinned> host_inputs, host_outputs;
  std::unique_ptr<DeviceBuffer> inputs, outputs, offsets, records;
  std::vector<std::uint64_t> offset_values;  // the values for `offsets`
  std::vector<std::uint32_t> record_values;  // the values of `records`
  Events events;                             // of its commands
};

class OpenclLane final : public device::DeviceLane {
 public:
  explicit OpenclLane(OpenclSession &session);

  bool drain() noexcept override;
  void make_room(unsigned slot, const device::DevicePiece &piece, std::uint64_t most_bytes) override;
  std::byte *host(unsigned slot, bool outputs) const noexcept override {
    return (outputs ? slots[slot].host_outputs : slots[slot].host_inputs)->get();
  }
  const std::uint32_t *records(unsigned slot) const noexcept override { return slots[slot].record_values.data(); }
  void upload(unsigned slot, bool outputs, std::uint64_t at_bytes, const std::byte *from, std::uint64_t bytes) override;
  void launch(unsigned slot, const device::DevicePiece &piece) override;
  void download(unsigned slot, std::uint64_t at_bytes, std::byte *to, std::uint64_t bytes) override;
  void end_piece(unsigned slot, const device::DevicePiece &piece) override;
  void wait(unsigned slot) override { slots[slot].events.wait(); }

  Queue up, run, down;
  std::array<OpenclSlot, kSlots> slots;

 private:
  OpenclSession &session_;
  const Driver &driver_;
};

class OpenclSession final : public device::DeviceSession {
 public:
  // A context of its own, or `foreign`, the caller's.
  OpenclSession(std::shared_ptr<const device::Device> device, std::shared_ptr<device::MemoryBudget> budget,
                std::shared_ptr<device::DiskCache> disk, const base::Log &log, cl_context foreign = nullptr);
  ~OpenclSession() override { end(); }

  const OpenclDevice &opencl_device() const noexcept { return static_cast<const OpenclDevice &>(device()); }
  const Driver &driver() const noexcept { return *opencl_device().driver; }
  cl_context context() const noexcept { return context_.get(); }
  device::DevicePrograms &programs() noexcept override { return *programs_; }

  // For shards in buffers of the driver: whether all begin at multiples of kAlignedBytes.
  device::Access access(bool is_aligned) const noexcept;
  device::Access access_of_slots() const noexcept override { return access(true); }
  std::shared_ptr<core::DeviceMemory> make_shard_memory(std::uint64_t bytes) override;

 private:
  std::unique_ptr<device::DeviceLane> make_lane() override { return std::make_unique<OpenclLane>(*this); }
  std::shared_ptr<const void> make_tables(std::vector<std::uint32_t> words) override;

  Context context_;
  const std::unique_ptr<OpenclPrograms> programs_;
};

// The widest element.
inline constexpr std::uint64_t kAlignedBytes = 64;

inline OpenclSession &session_of(const device::Workplace &place) {
  return static_cast<OpenclSession &>(*place.session);
}

// Sets the arguments and starts the kernel after the commands of `after`. Adds its own event to `events`. `buffers`: of
// its arguments, in their order: shards, offsets, records.
void launch(const Driver &driver, cl_command_queue queue, const device::Launch &what, std::span<const cl_mem> buffers,
            std::span<const cl_event> after, Events &events);

// As device::start_on_device; the tasks have rows, columns and bytes. `place` gives a place in the context of a queue.
std::unique_ptr<core::Ticket> start_on_device(const std::function<device::Workplace(cl_context)> &place,
                                              const OpenclDevice &device, std::span<const core::Task> tasks,
                                              core::Control &control,
                                              std::function<void(const device::DriverError &)> failed);

}  // namespace tandem::opencl
