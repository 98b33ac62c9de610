// SPDX-License-Identifier: Apache-2.0
// Members in memory that are lost, fail, or change bytes by script.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tandem/tools.h"
#include "volume/engine.hpp"

namespace tandem::volume::test {

// What all disks of a volume share: how many calls are left until the machine dies. Threads of the volume count too.
struct Machine {
  std::atomic<std::int64_t> calls{0}, dies_at{-1};
  std::atomic<bool> is_dead{false};
};

struct Disk {
  std::mutex mutex;
  std::vector<std::byte> bytes, durable;  // what is read, and what a power cut leaves for certain
  struct Write {
    std::uint64_t offset;
    std::vector<std::byte> data;
  };
  std::vector<Write> unsynced;
  std::atomic<bool> fails_reads{false}, fails_writes{false}, has_no_memory{false};
  std::atomic<std::uint64_t> bad_byte{UINT64_MAX};  // no read that includes it succeeds
  std::function<void()> before_read, before_sync;   // once; set while no thread reads or syncs
  std::atomic<std::uint32_t> read_milliseconds{0};  // that a read takes
  bool is_cached = false;                           // as memory is
  bool keeps_unsynced = false;                      // for settle_after_power_cut
  std::uint64_t counts_from = UINT64_MAX;           // I/Os from this offset on are counted
  std::atomic<std::uint64_t> reads{0}, writes{0};

  explicit Disk(std::size_t size) : bytes(size), durable(size) {}

  // The power was cut: each sector of what was not synced is on the disk or not.
  void settle_after_power_cut(std::mt19937_64 &random) {
    constexpr std::size_t kSectorBytes = 512;
    bytes = durable;
    for (const Write &write : unsynced)
      for (std::size_t at = 0; at < write.data.size(); at += kSectorBytes)
        if (random() % 2 == 0)
          std::memcpy(bytes.data() + write.offset + at, write.data.data() + at,
                      std::min(kSectorBytes, write.data.size() - at));
    settle();
  }
  // The process was killed: the system writes what it has.
  void settle() {
    durable = bytes;
    unsynced.clear();
  }
};

class DiskMember : public Member {
 public:
  DiskMember(std::shared_ptr<Disk> disk, std::shared_ptr<Machine> machine)
      : disk_(std::move(disk)), machine_(std::move(machine)) {}
  std::uint64_t size_bytes() const override { return disk_->bytes.size(); }
  void read(std::uint64_t offset, std::byte *to, std::size_t bytes) override {
    if (disk_->before_read) std::exchange(disk_->before_read, nullptr)();
    if (const std::uint32_t time = disk_->read_milliseconds)
      std::this_thread::sleep_for(std::chrono::milliseconds(time));
    const std::lock_guard lock(disk_->mutex);
    if (machine_->is_dead || disk_->fails_reads) throw MemberError(MemberProblem::failed, "the disk does not read");
    if (disk_->bad_byte >= offset && disk_->bad_byte - offset < bytes)
      throw MemberError(MemberProblem::failed, "the disk does not read this sector");
    check(offset, bytes);
    disk_->reads += offset >= disk_->counts_from;
    std::memcpy(to, disk_->bytes.data() + offset, bytes);
  }
  void write(std::uint64_t offset, const std::byte *from, std::size_t bytes) override {
    const std::lock_guard lock(disk_->mutex);
    step();
    if (disk_->has_no_memory) throw std::bad_alloc();
    if (disk_->fails_writes) throw MemberError(MemberProblem::failed, "the disk does not write");
    check(offset, bytes);
    disk_->writes += offset >= disk_->counts_from;
    std::memcpy(disk_->bytes.data() + offset, from, bytes);
    if (disk_->keeps_unsynced) disk_->unsynced.push_back({offset, {from, from + bytes}});
  }
  void sync() override {
    if (disk_->before_sync) std::exchange(disk_->before_sync, nullptr)();
    const std::lock_guard lock(disk_->mutex);
    step();
    if (disk_->fails_writes) throw MemberError(MemberProblem::failed, "the disk does not sync");
    for (const Disk::Write &write : std::exchange(disk_->unsynced, {}))
      std::memcpy(disk_->durable.data() + write.offset, write.data.data(), write.data.size());
  }
  void trim(std::uint64_t offset, std::uint64_t bytes) noexcept override {
    const std::lock_guard lock(disk_->mutex);
    if (!machine_->is_dead) std::memset(disk_->bytes.data() + offset, 0xdd, bytes);
    if (disk_->keeps_unsynced && !machine_->is_dead)
      disk_->unsynced.push_back({offset, std::vector<std::byte>(bytes, std::byte{0xdd})});
  }
  void grow(std::uint64_t bytes) override {
    if (bytes > disk_->bytes.size()) throw MemberError(MemberProblem::denied, "the disk is too small");
  }
  std::string identity() const override { return ""; }
  bool is_cached() const override { return disk_->is_cached; }

 private:
  void step() {
    if (machine_->dies_at >= 0 && machine_->calls++ >= machine_->dies_at) machine_->is_dead = true;
    if (machine_->is_dead) throw MemberError(MemberProblem::failed, "the machine is off");
  }
  void check(std::uint64_t offset, std::size_t bytes) const {
    if (offset > disk_->bytes.size() || bytes > disk_->bytes.size() - offset)
      ADD_FAILURE() << "access outside of the member: " << bytes << " bytes at " << offset;
  }
  std::shared_ptr<Disk> disk_;
  std::shared_ptr<Machine> machine_;
};

// The disks of one volume.
struct Array {
  std::vector<std::shared_ptr<Disk>> disks;
  std::shared_ptr<Machine> machine = std::make_shared<Machine>();
  std::mutex notes_mutex;
  std::vector<std::string> notes;

  Array(std::uint32_t k, std::uint32_t m, std::uint32_t unit_bytes, std::size_t disk_bytes, std::uint64_t log_bytes = 0,
        std::int32_t matrix = 0) {
    for (std::uint32_t i = 0; i < k + m; ++i) disks.push_back(std::make_shared<Disk>(disk_bytes));
    CreateSettings settings;
    settings.geometry = {.k = k,
                         .m = m,
                         .matrix = matrix,
                         .allow_non_mds = 0,
                         .unit_bytes = unit_bytes,
                         .stripe_count = 0,
                         .log_bytes = log_bytes};
    settings.id.fill(7);
    create_volume(given({}), settings);
    for (const auto &disk : disks) disk->settle();
  }

  std::vector<Given> given(const std::vector<std::size_t> &without) {
    std::vector<Given> found;
    for (std::size_t i = 0; i < disks.size(); ++i)
      if (std::find(without.begin(), without.end(), i) == without.end())
        found.push_back({"disk" + std::to_string(i), std::make_unique<DiskMember>(disks[i], machine)});
    return found;
  }
  std::unique_ptr<Volume> open(const std::vector<std::size_t> &without = {}, bool read_only = false,
                               std::size_t threads = 0, bool moves_windows = false) {
    OpenSettings settings;
    settings.read_only = read_only;
    settings.thread_count = threads;
    settings.moves_windows = moves_windows;
    settings.note = [this](const std::string &note) {
      const std::lock_guard lock(notes_mutex);
      notes.push_back(note);
    };
    return std::make_unique<Volume>(given(without), settings);
  }
  Given fresh_member(const std::string &name) {
    spare = std::make_shared<Disk>(disks[0]->bytes.size());
    return {name, std::make_unique<DiskMember>(spare, machine)};
  }
  std::shared_ptr<Disk> spare;
};

inline std::vector<std::byte> paint(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> data(bytes);
  std::mt19937_64 random(seed);
  for (std::size_t i = 0; i < bytes; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(data.data() + i, &word, std::min<std::size_t>(8, bytes - i));
  }
  return data;
}

inline tandem_volume_info info_of(const Volume &volume) {
  tandem_volume_info info{};
  volume.query(&info);
  return info;
}

inline tandem_volume_member member_of(const Volume &volume, std::uint32_t index) {
  tandem_volume_member member{};
  volume.query(index, &member);
  return member;
}

// The status that a call of the engine ends with.
template <class Body>
tandem_status status_of(Body &&body) {
  try {
    body();
    return TANDEM_OK;
  } catch (const Error &error) {
    tandem_set_last_error(error.status(), error.what());
    return error.status();
  }
}

}  // namespace tandem::volume::test
