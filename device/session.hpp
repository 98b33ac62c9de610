// SPDX-License-Identifier: Apache-2.0
// Everything that lives on one device in one context of its driver, and the vocabulary for streaming host shards. gpu/
// and opencl/ derive from both classes.
#pragma once

#include <atomic>
#include <bit>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "core/backend.hpp"
#include "core/host_copies.hpp"
#include "device/answer_check.hpp"
#include "device/device.hpp"
#include "device/kernel_chooser.hpp"
#include "device/memory_budget.hpp"

namespace tandem::device {

struct HostTask;
struct DevicePiece;

// Buffers grow to powers of two, so that they seldom grow.
inline std::uint64_t grown(std::uint64_t bytes) { return std::bit_ceil(std::max<std::uint64_t>(bytes, 4096)); }

template <class Buffer>
std::uint64_t bytes_of(const std::unique_ptr<Buffer> &buffer) {
  return buffer != nullptr ? buffer->bytes() : 0;
}

// Grows a buffer that is shorter than `bytes`. The new size is round if that fits `most_bytes` and memory, else
// `bytes`. The contents are lost.
template <class Buffer, class Make>
void grow(std::unique_ptr<Buffer> &buffer, std::uint64_t bytes, std::uint64_t most_bytes, const Make &make) {
  if (bytes <= bytes_of(buffer)) return;
  buffer.reset();
  const std::uint64_t round = std::max(bytes, std::min(grown(bytes), most_bytes));
  if (round != bytes) {
    try {
      buffer = make(round);
      return;
    } catch (const base::Error &error) {
      if (error.status() != TANDEM_ERROR_OUT_OF_MEMORY) throw;
    }
  }
  buffer = make(bytes);
}

// The same for several, which are freed first if they would exceed most_bytes together.
template <class Buffer, class Make>
void grow_all(std::initializer_list<std::pair<std::unique_ptr<Buffer> *, std::uint64_t>> wanted,
              std::uint64_t most_bytes, std::uint64_t most_buffer_bytes, const Make &make) {
  std::uint64_t sum = 0;
  for (const auto &[buffer, bytes] : wanted) sum += bytes <= bytes_of(*buffer) ? bytes_of(*buffer) : grown(bytes);
  if (sum > most_bytes)
    for (const auto &[buffer, bytes] : wanted) buffer->reset();
  for (const auto &[buffer, bytes] : wanted) grow(*buffer, bytes, most_buffer_bytes, make);
}

// The resources of one run: queues for upload, kernel and download, and a slot of buffers for each of three pieces that
// are under way at once.
class DeviceLane {
 public:
  static constexpr unsigned kSlots = 3;

  virtual ~DeviceLane();

  // Waits until no command of this lane runs. Returns false if the driver cannot confirm it. The session is then given
  // up, except after an error of a stream capture.
  virtual bool drain() noexcept = 0;

  // Allocates all memory of a piece in a slot, before its first command. Its device buffers have most_bytes together.
  virtual void make_room(unsigned slot, const DevicePiece &piece, std::uint64_t most_bytes) = 0;
  // Gives back the memory of all slots. Only for Device::allocates_at_once.
  virtual void release() noexcept {}

  // Staging memory of the host, with a slot's shards piece.pitch_bytes() apart.
  virtual std::byte *host(unsigned slot, bool outputs) const noexcept = 0;
  virtual const std::uint32_t *records(unsigned slot) const noexcept = 0;

  // Commands of a piece, in this order; none waits. Host memory must not change until wait().
  virtual void upload(unsigned slot, bool outputs, std::uint64_t at_bytes, const std::byte *from,
                      std::uint64_t bytes) = 0;
  virtual void launch(unsigned slot, const DevicePiece &piece) = 0;  // for a compare, clears the records first
  virtual void download(unsigned slot, std::uint64_t at_bytes, std::byte *to, std::uint64_t bytes) = 0;  // outputs
  virtual void end_piece(unsigned slot, const DevicePiece &piece) = 0;  // downloads the records of a compare
  virtual void wait(unsigned slot) = 0;                                 // until all commands are done
};

class DeviceSession : public std::enable_shared_from_this<DeviceSession> {
 public:
  static constexpr unsigned kMostLanes = 2;

  virtual ~DeviceSession();
  DeviceSession(const DeviceSession &) = delete;
  DeviceSession &operator=(const DeviceSession &) = delete;

  const Device &device() const noexcept { return *device_; }
  MemoryBudget &budget() const noexcept { return *budget_; }
  // Throws Error (OUT_OF_MEMORY) with the numbers.
  Reservation reserve(std::uint64_t bytes) const;
  virtual DevicePrograms &programs() noexcept = 0;

  // Runs `body` with the driver's context current, if the driver has contexts.
  virtual void within(const std::function<void()> &body) { body(); }
  // Total memory of the device. Half of it is the default budget.
  virtual std::uint64_t usable_bytes() const noexcept { return device_->memory_bytes; }

  // Some of its work could not be ended: do not use it again. Returns whether this is new.
  bool lose() noexcept { return !is_lost_.exchange(true, std::memory_order_relaxed); }
  bool is_lost() const noexcept { return is_lost_.load(std::memory_order_relaxed); }

  // The nibble tables of a matrix, complete on the device. Kept for the matrices that were used last.
  std::shared_ptr<const void> tables(const DevicePrepared &prepared);

  struct GiveBack {
    std::shared_ptr<DeviceSession> session;
    void operator()(DeviceLane *lane) const noexcept { session->take_back(std::unique_ptr<DeviceLane>(lane)); }
  };
  using LaneLease = std::unique_ptr<DeviceLane, GiveBack>;
  // A lane for one run; waits while all are taken. Throws Error (CANCELLED) if a cancel comes first.
  LaneLease take_lane(const core::Control &control);
  // After an error: drains the lane. If that fails, the lane is quarantined, with all memory that the device may still
  // write to.
  void settle(LaneLease &lane) noexcept;

  // For host shards: the alignment that kernels may assume in the slots' buffers, and which shards the device uses
  // directly.
  virtual Access access_of_slots() const noexcept { return Access::aligned; }
  virtual void find_direct(HostTask &) const {}

  // For Backend::device_memory.
  virtual std::shared_ptr<core::DeviceMemory> make_shard_memory(std::uint64_t bytes) = 0;

  virtual void give_idle_memory() noexcept;  // lanes and tables that are not in use now

 protected:
  DeviceSession(std::shared_ptr<const Device> device, std::shared_ptr<MemoryBudget> budget)
      : device_(std::move(device)), budget_(std::move(budget)) {}

  virtual std::unique_ptr<DeviceLane> make_lane() = 0;
  virtual std::shared_ptr<const void> make_tables(std::vector<std::uint32_t> words) = 0;

  // From here on other threads may ask for idle memory, until end().
  void begin();
  void end() noexcept;  // for the destructors of derived classes, which must call it while they are still whole

 private:
  using Tables = std::list<std::pair<Key, std::shared_ptr<const void>>>;  // by DevicePrepared::key, latest first

  void take_back(std::unique_ptr<DeviceLane> lane) noexcept;

  const std::shared_ptr<const Device> device_;
  const std::shared_ptr<MemoryBudget> budget_;
  std::atomic<bool> is_lost_{false};
  std::mutex lanes_mutex_;
  std::condition_variable lane_is_free_;
  unsigned lanes_out_ = 0;
  std::vector<std::unique_ptr<DeviceLane>> idle_lanes_;
  std::mutex tables_mutex_;
  Tables tables_;
};

// In a child after fork a session is abandoned by its last owner: its threads and its driver are the parent's, and
// its mutexes may be locked for ever.
template <class Session, const DeviceModule &kModule, class... Arguments>
std::shared_ptr<Session> make_session(Arguments &&...arguments) {
  return {new Session(std::forward<Arguments>(arguments)...), [](Session *session) {
            if (!kModule.in_child()) delete session;
          }};
}

// Shared by all runs of a backend.
struct Workplace {
  std::shared_ptr<DeviceSession> session;
  const KernelChooser &chooser;
  AnswerCheck &check;
  std::atomic<std::uint64_t> &kernel_calls;
  base::Timeline *timeline;  // null: none is asked for
  core::HostCopier *copier;  // null: the calling thread copies

  // The part of the memory budget for all pieces of host shards; the rest is for tables and for records.
  std::uint64_t budget_bytes_of_staging() const noexcept { return session->budget().bytes() / 4 * 3; }

  void copy(std::span<const core::HostCopy> copies) const {
    copier != nullptr ? copier->run(copies) : core::copy_here(copies);
  }

  // For a run of `length_bytes`, which are counted. Throws Error.
  Variant choose(const DevicePrepared &prepared, core::Mode mode, Access access, Binding binding,
                 std::uint64_t length_bytes) const;
  // The plan keeps what was compiled, and the session with it, so the next call finds it at once. Not for host shards:
  // each thread keeps plans of these after their context is gone.
  Variant choose_and_keep(const DevicePrepared &prepared, core::Mode mode, Access access, Binding binding,
                          std::uint64_t length_bytes) const;
  // For a task on device memory: how many bytes of each shard the host gets to see for AnswerCheck::look_at_copies.
  std::uint64_t bytes_to_copy(const core::Task &task, const Variant &variant) const;
};

// A call of a kernel without its shards.
struct Launch {
  const Variant &variant;
  unsigned columns, rows;
  KernelRange range;      // Binding::table: its group_count
  unsigned y = 1, z = 1;  // Binding::table: see KernelBatch
};

// A task on shards in device memory.
class DeviceRun {
 public:
  virtual ~DeviceRun();
  virtual void start(const core::Control &control) = 0;
  virtual void wait_and_merge() = 0;
};

class DeviceTicket final : public core::Ticket {
 public:
  // `failed` receives the driver's errors at the wait.
  explicit DeviceTicket(std::function<void(const DriverError &)> failed) : failed_(std::move(failed)) {}

  void add(std::unique_ptr<DeviceRun> run) { runs_.push_back(std::move(run)); }
  void start(const core::Control &control, const Device &device);
  void wait() override;

 private:
  std::vector<std::unique_ptr<DeviceRun>> runs_;
  const std::function<void(const DriverError &)> failed_;
  std::exception_ptr error_;
};

}  // namespace tandem::device
