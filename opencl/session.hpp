// Everything that is alive on one device in one OpenCL context. After an error of the driver the backend drops its
// session and makes another: nothing of a context that failed is used again.
#pragma once

#include <array>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "core/kernel_text.hpp"
#include "opencl/prepared.hpp"
#include "opencl/programs.hpp"

namespace tandem::opencl {

class Session;

// A buffer on the device that grows and is kept.
class GrowingBuffer {
 public:
  // At least `bytes` long; what it held is lost if it has to grow.
  cl_mem get(const Session &session, std::uint64_t bytes);
  cl_mem get() const noexcept { return buffer_.get(); }

 private:
  Buffer buffer_;
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

  // The device may still write here, and nobody can tell: it is never given back.
  void abandon() noexcept;

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
  PinnedMemory host_inputs, host_outputs;
  GrowingBuffer inputs, outputs, offsets, records;
  std::vector<std::uint64_t> offset_values;  // what `offsets` is to hold
  std::vector<std::uint32_t> record_values;  // what `records` held
  Event uploaded, computed, downloaded;
};

// What one run uses: queues for upload, kernel and download, so that three pieces are under way at once.
struct Lane {
  static constexpr unsigned kSlots = 3;
  Queue up, run, down;
  std::array<Slot, kSlots> slots;

  // Nothing of this lane runs any more afterwards; where the driver cannot say so its memory is abandoned.
  void drain(const Driver &driver) noexcept;
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  static constexpr unsigned kMostLanes = 2;

  // A context of its own, or `foreign`, the caller's.
  Session(const Driver &driver, const Device &device, std::shared_ptr<DiskCache> disk, const core::Log &log,
          cl_context foreign = nullptr);

  const Driver &driver() const noexcept { return driver_; }
  const Device &device() const noexcept { return device_; }
  cl_context context() const noexcept { return context_.get(); }
  Programs &programs() noexcept { return programs_; }

  // The nibble tables of a matrix on the device; kept for the matrices that were used last.
  std::shared_ptr<const Buffer> tables(const OpenclPrepared &prepared);

  // A lane of one's own; waits for one while all are taken.
  class LaneLease {
   public:
    LaneLease(std::shared_ptr<Session> session, std::unique_ptr<Lane> lane)
        : session_(std::move(session)), lane_(std::move(lane)) {}
    ~LaneLease();
    LaneLease(const LaneLease &) = delete;
    LaneLease &operator=(const LaneLease &) = delete;
    Lane *operator->() const noexcept { return lane_.get(); }
    Lane &operator*() const noexcept { return *lane_; }
    void drain() noexcept { lane_->drain(session_->driver()); }

   private:
    std::shared_ptr<Session> session_;
    std::unique_ptr<Lane> lane_;
  };
  LaneLease take_lane();

 private:
  const Driver &driver_;
  const Device device_;
  Context context_;
  Programs programs_;
  std::mutex mutex_;
  std::condition_variable lane_free_;
  unsigned lanes_out_ = 0;
  std::vector<std::unique_ptr<Lane>> idle_lanes_;
  std::list<std::pair<std::uint64_t, std::shared_ptr<const Buffer>>> tables_;  // by prepared's id, latest first
};

// A call of a kernel that only lacks its shards.
struct Launch {
  const Variant &variant;
  const OpenclPrepared &prepared;
  core::KernelRange range;
  cl_mem offsets, records;
};

// Sets the arguments and starts the kernel after `after` (which may be null). `shards`: inputs' buffer and outputs'
// buffer (Binding::offsets), or one for each input and output.
Event launch(Session &session, cl_command_queue queue, const Launch &what, std::span<const cl_mem> shards,
             cl_event after);

inline constexpr std::uint64_t kRecordBytes = 8;

// Merges what a compare found; `start_bytes` is where the range begins in the shards.
void merge_records(const core::KernelRange &range, std::span<const std::uint32_t> records, std::uint64_t start_bytes,
                   unsigned rows, core::Mismatch *mismatches);

}  // namespace tandem::opencl
