// Everything that is alive on one device: its primary context, a pool of memory, lanes with their streams and pinned
// memory, programs, tables. There is one primary context in a process, which others use too: what dies there stays
// dead.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "device/kernel_text.hpp"
#include "device/lane_pool.hpp"
#include "device/latest_few.hpp"
#include "device/memory_budget.hpp"
#include "gpu/devices.hpp"
#include "gpu/factory.hpp"
#include "gpu/programs.hpp"

namespace tandem::gpu {

class Session;

[[noreturn]] void fail_cancelled(const Device &device);

// Memory of the device out of the session's pool, within the budget. Allocated and freed in the order of one stream,
// which outlives it. The session does too.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  // Throws Error (OUT_OF_MEMORY) with the budget, or DriverError.
  DeviceMemory(Session &session, CUstream stream, std::uint64_t bytes);
  DeviceMemory(DeviceMemory &&other) noexcept { *this = std::move(other); }
  DeviceMemory &operator=(DeviceMemory &&other) noexcept {
    std::swap(session_, other.session_);
    std::swap(stream_, other.stream_);
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    std::swap(reserved_, other.reserved_);
    return *this;
  }
  ~DeviceMemory();

  CUdeviceptr get() const noexcept { return address_; }
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  Session *session_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr address_ = 0;
  std::uint64_t bytes_ = 0;
  device::Reservation reserved_;
};

// Pinned memory of the host: what a device reads and writes by itself. For all contexts (portable).
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(Session &session, std::uint64_t bytes);  // throws DriverError
  PinnedMemory(PinnedMemory &&other) noexcept { *this = std::move(other); }
  PinnedMemory &operator=(PinnedMemory &&other) noexcept {
    std::swap(session_, other.session_);
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~PinnedMemory();

  std::byte *get() const noexcept { return address_; }
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  Session *session_ = nullptr;
  std::byte *address_ = nullptr;
  std::uint64_t bytes_ = 0;
};

// A stream, or an event that others wait for.
class Stream {
 public:
  explicit Stream(Session &session);
  ~Stream();
  Stream(const Stream &) = delete;
  Stream &operator=(const Stream &) = delete;
  CUstream get() const noexcept { return stream_; }

 private:
  Session &session_;
  CUstream stream_ = nullptr;
};

class Event {
 public:
  // `waits_asleep`: a thread that waits for it sleeps, which costs microseconds, instead of turning a core.
  explicit Event(Session &session, bool waits_asleep = false);
  ~Event();
  Event(const Event &) = delete;
  Event &operator=(const Event &) = delete;
  void record(CUstream stream);
  void hold(CUstream stream);  // what is put there later waits for what was recorded
  void wait();
  CUevent get() const noexcept { return event_; }

 private:
  Session &session_;
  CUevent event_ = nullptr;
};

// Room for one piece of work under way.
struct Slot {
  explicit Slot(Session &session) : uploaded(session), computed(session), done(session, true) {}

  // Makes sure of room before anything of a piece is put into a stream. What was there is lost where it has to grow,
  // and given back where the buffers would come to more than most_bytes together.
  void make_room(Session &session, CUstream stream, std::uint64_t input_bytes, std::uint64_t output_bytes,
                 std::uint64_t record_bytes, std::uint64_t most_bytes);
  void make_pinned_room(Session &session, std::uint64_t input_bytes, std::uint64_t output_bytes,
                        std::uint64_t record_bytes);
  void release() noexcept;

  DeviceMemory inputs, outputs, records;
  PinnedMemory host_inputs, host_outputs, host_records;
  Event uploaded, computed, done;
};

// What one run uses: streams for upload, kernel and download, so that three pieces are under way at once.
struct Lane {
  static constexpr unsigned kSlots = 3;

  explicit Lane(Session &session);

  // Waits until nothing of this lane runs any more. Else: why the driver cannot say so; an error of a capture only
  // where it had no other.
  CUresult drain(const Driver &driver) noexcept;

  Stream up, run, down;
  std::array<Slot, kSlots> slots;  // after the streams: their memory goes first
};

class Session final : public std::enable_shared_from_this<Session>, private device::MemoryHolder {
 public:
  static constexpr unsigned kMostLanes = 2;

  Session(const Driver &driver, const Device &device, std::shared_ptr<device::DiskCache> disk, const base::Log &log);
  ~Session();
  Session(const Session &) = delete;
  Session &operator=(const Session &) = delete;

  const Driver &driver() const noexcept { return driver_; }
  const Device &device() const noexcept { return device_; }
  CUcontext context() const noexcept { return context_; }
  CUmemoryPool pool() const noexcept { return pool_; }
  CUstream stream() const noexcept { return own_->get(); }  // for what is waited for at once
  Programs &programs() noexcept { return *programs_; }
  device::MemoryBudget &budget() const noexcept { return *budget_; }
  const std::shared_ptr<device::MemoryBudget> &shared_budget() const noexcept { return budget_; }
  std::uint64_t free_bytes() const noexcept { return free_bytes_; }  // of the device, when the session began

  // The device failed: it is given up for the rest of this process.
  void give_up(const std::string &reason) noexcept;

  // Whether the module reduces a verify's records on the device: until that fails, which is said once.
  bool may_summarise() const noexcept {
    return driver_.summarise != nullptr && !has_summarise_failed_.load(std::memory_order_relaxed);
  }
  void summarise_failed(int error, const char *message) noexcept;
  bool is_given_up() const noexcept { return is_given_up_.load(std::memory_order_relaxed); }

  // Whether objects may still be released through the driver.
  bool may_release() const noexcept { return !in_child(); }

  // The nibble tables of a matrix, on the device and complete; kept for the matrices that were used last.
  std::shared_ptr<const DeviceMemory> tables(const device::DevicePrepared &prepared);

  using LaneLease = device::LanePool<Lane>::Lease;
  // A lane of one's own; waits for one while all are taken. Throws Error (CANCELLED) if that comes first.
  LaneLease take_lane(const core::Control &control);
  // After an error: drains the lane. Where that fails (false) the lane with all that the device may still write to is
  // quarantined, and the device given up, unless only a capture was in the way.
  bool settle(LaneLease &lane) noexcept;

  void give_idle_memory() noexcept override;

 private:
  void open(std::shared_ptr<device::DiskCache> disk, const base::Log &log);
  void close() noexcept;

  const Driver &driver_;
  const Device device_;
  const base::Log log_;
  const std::shared_ptr<device::MemoryBudget> budget_;
  std::uint64_t free_bytes_ = 0;
  CUcontext context_ = nullptr;
  CUmemoryPool pool_ = nullptr;
  std::atomic<bool> is_given_up_{false}, has_summarise_failed_{false};
  std::unique_ptr<Stream> own_;
  std::unique_ptr<Programs> programs_;
  device::LanePool<Lane> lanes_;
  device::LatestFew<DeviceMemory> tables_;  // by prepared's id
};

// A kernel chosen for a task.
struct Variant {
  device::KernelSpec spec;  // with a block size that the device runs
  std::shared_ptr<const Program> program;
  std::uint64_t staging_bytes = 0;
};

inline constexpr std::uint64_t kMostElementBytes = 16;

// The last kind of loads that kernels of this device can have.
device::Loads most_loads(const Device &device) noexcept;

// What suits a GPU that nobody has measured, for a matrix of so many rows.
device::DeviceSettings default_settings(unsigned rows);

class Chooser final : public device::KernelChooser {
 public:
  Chooser(const Options &options, const Device &device, const base::Log &log);

  // Throws Error (UNAVAILABLE, INVALID_ARGUMENT) for forced values that the device cannot run.
  Variant choose(const device::DevicePrepared &prepared, Session &session, core::Mode mode, device::Access access,
                 std::uint64_t length_bytes) const;

 private:
  Variant built(const device::DevicePrepared &prepared, Session &session, const Choice &choice) const;

  const Device &device_;
  base::Log log_;
};

// Starts a kernel. `shards`: addresses on the device, inputs and then outputs.
void launch(const Session &session, CUstream stream, const Variant &variant, const device::DevicePrepared &prepared,
            const std::vector<CUdeviceptr> &shards, const device::KernelRange &range, CUdeviceptr records,
            CUdeviceptr tables);

// Fills records for a compare: no bytes that differ.
void clear_records(const Session &session, CUstream stream, CUdeviceptr records, std::uint64_t bytes);

// What the driver says of an address.
struct Address {
  CUmemorytype type{};  // 0: memory that CUDA does not know
  int ordinal = -1;
  bool is_managed = false;
  std::uint64_t start = 0, bytes = 0;  // of the allocation; 0 bytes: not said

  // Whether [first, first + count) lies in it.
  bool holds(std::uint64_t first, std::uint64_t count) const noexcept {
    return bytes == 0 || (first >= start && count <= bytes && first - start <= bytes - count);
  }
};
Address look_at(const Session &session, const void *pointer);

}  // namespace tandem::gpu
