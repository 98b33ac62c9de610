// SPDX-License-Identifier: Apache-2.0
// CUDA's part of device/session.hpp: one device's primary context, a pool of memory, streams, events, pinned memory. A
// process has one primary context, which others use too. After a fatal error it stays unusable.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "device/look.hpp"
#include "device/piece_stream.hpp"
#include "gpu/devices.hpp"
#include "gpu/programs.hpp"

namespace tandem::gpu {

class CudaSession;

// Device memory from the session's pool, within the budget. It is allocated and freed in the order of one stream. The
// stream and the session outlive it.
class CudaMemory {
 public:
  // Throws Error (OUT_OF_MEMORY) with the budget, or DriverError.
  CudaMemory(const CudaSession &session, CUstream stream, std::uint64_t bytes);
  ~CudaMemory();
  CudaMemory(const CudaMemory &) = delete;
  CudaMemory &operator=(const CudaMemory &) = delete;

  CUdeviceptr get() const noexcept { return address_; }
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  const CudaSession &session_;
  const CUstream stream_;
  const std::uint64_t bytes_;
  device::Reservation reserved_;
  CUdeviceptr address_ = 0;
};

// Pinned host memory, which a device reads and writes directly. For all contexts (portable).
class CudaPinned : public Owned<void *, &Driver::cuMemFreeHost> {
 public:
  CudaPinned(const CudaSession &session, std::uint64_t bytes);  // throws DriverError

  std::byte *get() const noexcept { return static_cast<std::byte *>(object_); }
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  const std::uint64_t bytes_;
};

struct CudaStream : Owned<CUstream, &Driver::cuStreamDestroy> {
  explicit CudaStream(const CudaSession &session);
};

struct CudaEvent : Owned<CUevent, &Driver::cuEventDestroy> {
  // `waits_asleep`: a thread that waits longer than device::kLook sleeps, instead of spinning.
  explicit CudaEvent(const CudaSession &session, bool waits_asleep = false);
  void record(CUstream stream);
  void hold(CUstream stream);  // later work in the stream waits for the recorded event
  void wait();
};

// The resources of one piece of work under way.
struct CudaSlot {
  explicit CudaSlot(CudaSession &session) : uploaded(session), computed(session), done(session, true) {}

  std::unique_ptr<CudaMemory> inputs, outputs, records;
  std::unique_ptr<CudaPinned> host_inputs, host_outputs, host_records;
  CudaEvent uploaded, computed, done;
};

class CudaLane final : public device::DeviceLane {
 public:
  explicit CudaLane(CudaSession &session);

  bool drain() noexcept override;
  void make_room(unsigned slot, const device::DevicePiece &piece, std::uint64_t most_bytes) override;
  void release() noexcept override;
  std::byte *host(unsigned slot, bool outputs) const noexcept override {
    const auto &memory = outputs ? slots_[slot].host_outputs : slots_[slot].host_inputs;
    return memory != nullptr ? memory->get() : nullptr;
  }
  const std::uint32_t *records(unsigned slot) const noexcept override {
    return reinterpret_cast<const std::uint32_t *>(slots_[slot].host_records->get());
  }
  void upload(unsigned slot, bool outputs, std::uint64_t at_bytes, const std::byte *from, std::uint64_t bytes) override;
  void launch(unsigned slot, const device::DevicePiece &piece) override;
  void download(unsigned slot, std::uint64_t at_bytes, std::byte *to, std::uint64_t bytes) override;
  void end_piece(unsigned slot, const device::DevicePiece &piece) override;
  void wait(unsigned slot) override { slots_[slot].done.wait(); }

 private:
  void fetch(void *to, CUdeviceptr from, std::uint64_t bytes);

  CudaSession &session_;
  const Driver &driver_;
  CudaStream up_, run_, down_;
  std::array<CudaSlot, kSlots> slots_;  // destroyed before the streams
};

// The memory of a job on device memory, kept for the next job after it is over.
struct JobParts {
  explicit JobParts(const CudaSession &of) : done(of, true) {}

  std::shared_ptr<const device::DeviceSession> session;  // while a job has them; destroyed last
  CudaEvent done;
  std::unique_ptr<CudaMemory> records, table;  // of a verify; of many stripes
  std::unique_ptr<CudaPinned> host_table, checked;
};

class CudaSession final : public device::DeviceSession {
 public:
  CudaSession(std::shared_ptr<const device::Device> device, std::shared_ptr<device::MemoryBudget> budget,
              std::shared_ptr<device::DiskCache> disk, const base::Log &log);
  ~CudaSession() override;

  const CudaDevice &cuda_device() const noexcept { return static_cast<const CudaDevice &>(device()); }
  const Driver &driver() const noexcept { return driver_; }
  CUcontext context() const noexcept { return context_; }
  CUmemoryPool pool() const noexcept { return pool_; }
  CUstream stream() const noexcept { return own_->get(); }  // for work that is waited for at once
  device::DevicePrograms &programs() noexcept override { return *programs_; }
  void within(const std::function<void()> &body) override;
  std::uint64_t usable_bytes() const noexcept override { return free_bytes_; }

  // The device failed: it is given up for the rest of this process.
  void give_up(const std::string &reason) noexcept;

  // The context, for destructors.
  QuietContextScope quietly() const noexcept { return {driver_, context_}; }

  // Waits until the commands of stream() are done. If the driver cannot confirm that, `memory` is quarantined. Throws
  // DriverError; `first`: an error of the commands.
  template <class Object>
  void synchronise(std::unique_ptr<Object> &memory, CUresult first = CUDA_SUCCESS, const char *call = "") const {
    const CUresult done = driver_.cuStreamSynchronize(stream());
    if (done != CUDA_SUCCESS && driver_.cuStreamSynchronize(stream()) != CUDA_SUCCESS)
      device::quarantine(std::move(memory));
    check(driver_, first, call);
    check(driver_, done, "cuStreamSynchronize");
  }

  // Copies by way of memory of the library, which a device that hangs may use for ever. Throw DriverError.
  void send(CUdeviceptr to, const void *from, std::uint64_t bytes) const;
  void fetch(void *to, CUdeviceptr from, std::uint64_t bytes) const;

  // Parts with memory for record_bytes, if a job left such; else any; else new ones.
  std::unique_ptr<JobParts> take_parts(std::uint64_t record_bytes);
  void leave_parts(std::unique_ptr<JobParts> parts);

  void find_direct(device::HostTask &work) const override;
  std::shared_ptr<core::DeviceMemory> make_shard_memory(std::uint64_t bytes) override;
  void give_idle_memory() noexcept override;

 private:
  std::unique_ptr<device::DeviceLane> make_lane() override { return std::make_unique<CudaLane>(*this); }
  std::shared_ptr<const void> make_tables(std::vector<std::uint32_t> words) override;
  void open(std::shared_ptr<device::DiskCache> disk);
  // The first run that uses registered memory pins it. Memory that cannot be pinned is staged.
  void pin_registered(const std::byte *first, std::uint64_t bytes) const;
  void close() noexcept;

  const Driver &driver_;
  const base::Log log_;
  std::uint64_t free_bytes_ = 0;  // of the device, when the session began
  CUcontext context_ = nullptr;
  CUmemoryPool pool_ = nullptr;
  std::unique_ptr<CudaStream> own_;
  std::unique_ptr<CudaPrograms> programs_;
  std::mutex parts_mutex_;
  std::vector<std::unique_ptr<JobParts>> parts_;  // idle
};

// Gives the device up for the rest of this process, and logs it.
void give_up(const CudaDevice &device, const std::string &reason, const base::Log &log) noexcept;

inline CudaSession &session_of(const device::Workplace &place) { return static_cast<CudaSession &>(*place.session); }

// Starts a kernel. `shards`: addresses on the device, inputs and then outputs; of Binding::table the table's alone.
// `records`: of a compare.
void launch(const CudaSession &session, CUstream stream, const device::Launch &what,
            std::span<const std::uint64_t> shards, CUdeviceptr records = 0);

// As device::grow().
void grow(std::unique_ptr<CudaMemory> &memory, const CudaSession &session, CUstream stream, std::uint64_t bytes);
void grow(std::unique_ptr<CudaPinned> &memory, const CudaSession &session, std::uint64_t bytes);

// Fills records for a compare with "no bytes differ".
void clear_records(const CudaSession &session, CUstream stream, CUdeviceptr records, std::uint64_t bytes);

// The driver's information about an address.
struct Address {
  unsigned type = 0;  // a CUmemorytype; 0: memory that CUDA does not know
  int ordinal = -1;
  unsigned is_managed = 0;
  CUdeviceptr start = 0;  // of the allocation
  std::size_t bytes = 0;  // of the allocation; 0: unknown

  // Whether [first, first + count) lies in it.
  bool holds(std::uint64_t first, std::uint64_t count) const noexcept {
    return bytes == 0 || (first >= start && count <= bytes && first - start <= bytes - count);
  }
};
Address look_at(const CudaSession &session, const void *pointer);

// As device::start_on_device.
std::unique_ptr<core::Ticket> start_on_device(const device::Workplace &place, std::span<const core::Task> tasks,
                                              core::Control &control,
                                              std::function<void(const device::DriverError &)> failed);

}  // namespace tandem::gpu
