// Everything that is alive on one device in one OpenCL context. After an error of the driver the backend drops its
// session and makes another: nothing of a context that failed is used again.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "device/kernel_text.hpp"
#include "device/lane_pool.hpp"
#include "device/latest_few.hpp"
#include "device/memory_budget.hpp"
#include "opencl/prepared.hpp"
#include "opencl/programs.hpp"

namespace tandem::opencl {

using device::MemoryBudget, device::Reservation;

class Session;

[[noreturn]] void fail_cancelled(const Device &device);

// A buffer on the device, within the memory budget.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // Throws Error (OUT_OF_MEMORY) with the budget.
  DeviceBuffer(const Session &session, cl_mem_flags flags, std::uint64_t bytes, void *host = nullptr);
  // With bytes reserved before.
  DeviceBuffer(const Session &session, Reservation reserved, cl_mem_flags flags, std::uint64_t bytes,
               void *host = nullptr);

  cl_mem get() const noexcept { return buffer_.get(); }
  void reset() noexcept {
    buffer_.reset();
    reserved_.release();
  }

 private:
  Reservation reserved_;  // after the buffer: that goes first
  Buffer buffer_;
};

// The same, grows and is kept.
class GrowingBuffer {
 public:
  // At least `bytes` long; what it held is lost if it has to grow.
  cl_mem get(const Session &session, std::uint64_t bytes);
  cl_mem get() const noexcept { return buffer_.get(); }
  std::uint64_t capacity_bytes() const noexcept { return capacity_bytes_; }
  void reset() noexcept;

 private:
  DeviceBuffer buffer_;
  std::uint64_t capacity_bytes_ = 0;
};

// Memory of the host that the driver allocated, mapped for as long as it lives: what a device reads and writes without
// a copy on the way.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory &) = delete;
  PinnedMemory &operator=(const PinnedMemory &) = delete;

  std::byte *get(const Session &session, cl_command_queue queue, std::uint64_t bytes);
  std::byte *get() const noexcept { return address_; }

 private:
  void release() noexcept;

  const Driver *driver_ = nullptr;
  Queue queue_;  // retained: unmaps
  Buffer buffer_;
  std::byte *address_ = nullptr;
  std::uint64_t capacity_bytes_ = 0;
};

// Room for one piece of work under way.
struct Slot {
  // Before a piece: makes sure that the four buffers, grown to what it needs, have `most_bytes` together. What they
  // grew to for pieces of another shape is given back.
  void make_room(std::uint64_t input_bytes, std::uint64_t output_bytes, std::uint64_t offset_bytes,
                 std::uint64_t record_bytes, std::uint64_t most_bytes);

  PinnedMemory host_inputs, host_outputs;
  GrowingBuffer inputs, outputs, offsets, records;
  std::vector<std::uint64_t> offset_values;  // what `offsets` is to hold
  std::vector<std::uint32_t> record_values;  // what `records` held
  Events events;                             // of its commands
};

// What one run uses: queues for upload, kernel and download, so that three pieces are under way at once.
struct Lane {
  static constexpr unsigned kSlots = 3;
  Queue up, run, down;
  std::array<Slot, kSlots> slots;

  // Waits until nothing of this lane runs any more. false: the driver cannot say so.
  bool drain(const Driver &driver) noexcept;
};

class Session final : public std::enable_shared_from_this<Session>, private device::MemoryHolder {
 public:
  static constexpr unsigned kMostLanes = 2;

  // A context of its own, or `foreign`, the caller's.
  Session(const Driver &driver, const Device &device, std::shared_ptr<DiskCache> disk,
          std::shared_ptr<MemoryBudget> budget, const base::Log &log, cl_context foreign = nullptr);
  ~Session();
  Session(const Session &) = delete;
  Session &operator=(const Session &) = delete;

  const Driver &driver() const noexcept { return driver_; }
  const Device &device() const noexcept { return device_; }
  cl_context context() const noexcept { return context_.get(); }
  Programs &programs() noexcept { return programs_; }
  MemoryBudget &budget() const noexcept { return *budget_; }

  // Work of it could not be brought to an end: it is not to be used again.
  void lose() noexcept { is_lost_.store(true, std::memory_order_relaxed); }
  bool is_lost() const noexcept { return is_lost_.load(std::memory_order_relaxed); }

  // The nibble tables of a matrix on the device; kept for the matrices that were used last.
  std::shared_ptr<const DeviceBuffer> tables(const device::DevicePrepared &prepared);

  using LaneLease = device::LanePool<Lane>::Lease;

  // A lane of one's own; waits for one while all are taken. Throws Error (CANCELLED) if that comes first.
  LaneLease take_lane(const core::Control &control);

  // After an error: drains the lane. Where that fails (false) the lane with all that the device may still write to is
  // quarantined, and the session is lost.
  bool settle(LaneLease &lane) noexcept;

 private:
  void give_idle_memory() noexcept override;

  const Driver &driver_;
  const Device device_;
  const std::shared_ptr<MemoryBudget> budget_;
  Context context_;
  std::atomic<bool> is_lost_{false};
  Programs programs_;
  device::LanePool<Lane> lanes_;
  device::LatestFew<DeviceBuffer> tables_;  // by prepared's id
};

// A call of a kernel that only lacks its shards.
struct Launch {
  const Variant &variant;
  const device::DevicePrepared &prepared;
  device::KernelRange range;
  cl_mem offsets, records;
};

// Sets the arguments and starts the kernel after the commands of `after`; its own event is added to `events`. `shards`:
// inputs' buffer and outputs' buffer (Binding::offsets), or one for each input and output.
void launch(Session &session, cl_command_queue queue, const Launch &what, std::span<const cl_mem> shards,
            std::span<const cl_event> after, Events &events);

}  // namespace tandem::opencl
