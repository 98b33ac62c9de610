// SPDX-License-Identifier: Apache-2.0
#include "device/session.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <new>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "device/look.hpp"

namespace tandem::device {
namespace {

constexpr std::size_t kMostTables = 32;

}  // namespace

DeviceLane::~DeviceLane() = default;
DeviceSession::~DeviceSession() = default;
DeviceRun::~DeviceRun() = default;

Reservation DeviceSession::reserve(std::uint64_t bytes) const {
  Reservation reserved = budget_->try_reserve(bytes);
  if (reserved) return reserved;
  device_->fail(TANDEM_ERROR_OUT_OF_MEMORY, "the memory budget of ", device_->name, " (", budget_->bytes(),
                " bytes) has no ", bytes, " bytes left");
}

void DeviceSession::begin() { budget_->add(this); }

void DeviceSession::end() noexcept {
  budget_->remove(this);
  idle_lanes_.clear();  // without the locks: nothing else uses this session any more
  tables_.clear();
}

void DeviceSession::give_idle_memory() noexcept {
  std::vector<std::unique_ptr<DeviceLane>> lanes;  // destroyed without the lock, as the tables
  Tables tables;
  {
    const std::lock_guard lock(lanes_mutex_);
    lanes.swap(idle_lanes_);
  }
  const std::lock_guard lock(tables_mutex_);
  tables.swap(tables_);
}

std::shared_ptr<const void> DeviceSession::tables(const DevicePrepared &prepared) {
  {
    const std::lock_guard lock(tables_mutex_);
    const auto found =
        std::find_if(tables_.begin(), tables_.end(), [&](const auto &each) { return each.first == prepared.key; });
    if (found != tables_.end()) {
      tables_.splice(tables_.begin(), tables_, found);
      return found->second;
    }
  }
  std::shared_ptr<const void> made = make_tables(pack_nibble_tables(prepared.matrix));
  Tables gone;  // destroyed without the lock; runs keep the tables that they use
  const std::lock_guard lock(tables_mutex_);
  tables_.emplace_front(prepared.key, made);
  if (tables_.size() > kMostTables) gone.splice(gone.begin(), tables_, std::prev(tables_.end()));
  return made;
}

DeviceSession::LaneLease DeviceSession::take_lane(const core::Control &control) {
  constexpr std::chrono::milliseconds kLookAtControl(10);
  std::unique_ptr<DeviceLane> lane;
  {
    std::unique_lock lock(lanes_mutex_);
    // A cancel cannot wake this thread.
    while (!lane_is_free_.wait_for(lock, kLookAtControl, [&] { return lanes_out_ < kMostLanes; }))
      if (control.cancelled()) fail_cancelled(*device_);
    ++lanes_out_;
    if (!idle_lanes_.empty()) {
      lane = std::move(idle_lanes_.back());
      idle_lanes_.pop_back();
    }
  }
  try {
    if (lane == nullptr) lane = make_lane();
  } catch (...) {
    take_back(nullptr);
    throw;
  }
  return {lane.release(), GiveBack{shared_from_this()}};
}

void DeviceSession::take_back(std::unique_ptr<DeviceLane> lane) noexcept {
  const std::lock_guard lock(lanes_mutex_);
  try {
    if (lane != nullptr) idle_lanes_.push_back(std::move(lane));
  } catch (const std::bad_alloc &) {  // it is destroyed here then
  }
  --lanes_out_;
  lane_is_free_.notify_one();
}

void DeviceSession::settle(LaneLease &lane) noexcept {
  if (lane->drain()) return;
  quarantine(std::unique_ptr<DeviceLane>(lane.release()));
  take_back(nullptr);
}

Variant Workplace::choose(const DevicePrepared &prepared, core::Mode mode, Access access, Binding binding,
                          std::uint64_t length_bytes) const {
  prepared.count(length_bytes * prepared.columns());
  Variant variant = chooser.choose(prepared, session->programs(), mode, access, binding);
  variant.session = session;
  if (variant.spec.technique == Technique::tables) variant.tables = session->tables(prepared);
  return variant;
}

std::uint64_t Workplace::bytes_to_copy(const core::Task &task, const Variant &variant) const {
  return std::min(check.wanted_bytes(prepared_of(task), variant, task.length_bytes),
                  AnswerCheck::first_bytes(*task.prepared, task.length_bytes));
}

Variant Workplace::choose_and_keep(const DevicePrepared &prepared, core::Mode mode, Access access, Binding binding,
                                   std::uint64_t length_bytes) const {
  const std::tuple of(mode, access, binding);
  Variant older;  // is destroyed without the lock
  std::unique_lock lock(prepared.mutex);
  if (const auto found = prepared.ready.find(of); found != prepared.ready.end() && found->second.session == session) {
    prepared.count(length_bytes * prepared.columns());
    return found->second;
  }
  lock.unlock();
  Variant variant = choose(prepared, mode, access, binding, length_bytes);
  if (variant.spec.technique == Technique::tables) return variant;
  lock.lock();
  older = std::exchange(prepared.ready[of], variant);
  return variant;
}

void DeviceTicket::start(const core::Control &control, const Device &device) {
  for (const auto &run : runs_) {
    if (control.cancelled()) fail_cancelled(device);
    run->start(control);
  }
}

void DeviceTicket::wait() {
  if (error_) std::rethrow_exception(error_);
  try {
    for (const auto &run : runs_) run->wait_and_merge();
  } catch (const DriverError &error) {
    error_ = std::current_exception();
    failed_(error);
    throw;
  } catch (...) {
    error_ = std::current_exception();
    throw;
  }
}

}  // namespace tandem::device
