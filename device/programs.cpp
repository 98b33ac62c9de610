// SPDX-License-Identifier: Apache-2.0
#include "device/programs.hpp"

#include <iterator>
#include <new>
#include <system_error>
#include <thread>

#include "base/signals.hpp"
#include "base/text.hpp"

namespace tandem::device {
namespace {

constexpr std::size_t kMostPrograms = 64;
constexpr unsigned kMostThreads = 4;  // a plan's two programs, or four of a plan for wide codes

}  // namespace

Device::~Device() = default;
DeviceProgram::~DeviceProgram() = default;

void fail_cancelled(const Device &device) {
  base::fail(TANDEM_ERROR_CANCELLED, base::text("cancelled: ", device.name, " runs no more of this job"));
}

DevicePrograms::DevicePrograms(const Device &device, std::shared_ptr<DiskCache> disk, const base::Log &log)
    : device_(device), disk_(std::move(disk)), log_(log) {}

bool DevicePrograms::known(const Key &key, bool ask_disk) const {
  {
    const std::lock_guard lock(entries_mutex_);
    if (by_key_.contains(key)) return true;
  }
  return ask_disk && disk_->has(key);
}

std::shared_ptr<const DeviceProgram> DevicePrograms::find(const Key &key) {
  const std::lock_guard lock(entries_mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->second;
}

std::shared_ptr<const DeviceProgram> DevicePrograms::get(const Key &key, const KernelSpec &spec, MakeText text,
                                                         Wait wait) {
  if (auto program = find(key)) return program;
  std::unique_lock lock(entries_mutex_);
  if (const auto made = by_key_.find(key); made != by_key_.end()) return made->second->second;  // made a moment ago
  std::shared_ptr<Making> making;
  if (const auto found = being_made_.find({key.low, key.high}); found != being_made_.end()) {
    making = found->second;
  } else {
    making = std::make_shared<Making>(key, spec, std::move(text));
    queue_.push_back(making);
    try {
      being_made_.emplace(std::pair(key.low, key.high), making);
    } catch (...) {
      queue_.pop_back();
      throw;
    }
  }
  making->is_awaited |= wait != Wait::no;
  if (!queue_.empty()) start_thread(wait == Wait::now, lock);
  if (wait != Wait::now) return nullptr;
  made_.wait(lock, [&] { return making->is_over; });
  if (!making->failure) return making->program;
  // Logged; the next call tries again.
  if (const auto found = being_made_.find({key.low, key.high}); found != being_made_.end() && found->second == making)
    being_made_.erase(found);
  const Failure failure = *making->failure;
  if (failure.driver_number) throw DriverError(failure.status, failure.message, *failure.driver_number);
  base::fail(failure.status, failure.message);
}

// If no thread can be started, a call that waits makes it itself. Other calls leave it to the next one.
void DevicePrograms::start_thread(bool is_needed, std::unique_lock<std::mutex> &lock) {
  if (thread_count_ == kMostThreads) return;
  try {
    const base::SignalsBlocked signals;
    std::thread([this] { work(); }).detach();
    ++thread_count_;
  } catch (const std::system_error &) {
    if (!is_needed || thread_count_ != 0) return;
    ++thread_count_;
    lock.unlock();
    work();
    lock.lock();
  }
}

void DevicePrograms::work() noexcept {
  std::unique_lock lock(entries_mutex_);
  while (!queue_.empty()) {
    const std::shared_ptr<Making> making = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    finish(*making);
    lock.lock();
  }
  --thread_count_;
  made_.notify_all();
}

std::shared_ptr<const DeviceProgram> DevicePrograms::make(const Making &making,
                                                          std::optional<Failure> *failure) noexcept {
  try {
    try {
      return make(making.key, making.spec, making.text);
    } catch (const DriverError &error) {
      *failure = {error.status(), error.what(), error.number()};
    } catch (const base::Error &error) {
      *failure = {error.status(), error.what(), {}};
    } catch (const std::bad_alloc &) {
      throw;
    } catch (...) {
      *failure = {TANDEM_ERROR_INTERNAL, base::what_of(std::current_exception()), {}};
    }
  } catch (const std::bad_alloc &) {  // also if there is no memory for the message
    *failure = {TANDEM_ERROR_OUT_OF_MEMORY, "out of memory", {}};
  }
  return nullptr;
}

void DevicePrograms::finish(Making &making) noexcept {
  std::optional<Failure> failure;
  const std::shared_ptr<const DeviceProgram> program = make(making, &failure);
  Entries gone;  // unloaded without the lock; runs keep the programs that they use
  bool leaves_transform = false, is_first = false;
  {
    const std::lock_guard lock(entries_mutex_);
    if (!failure || !making.is_awaited) being_made_.erase({making.key.low, making.key.high});
    leaves_transform = failure && !making.is_awaited && making.spec.technique == Technique::transform;
    if (leaves_transform) is_first = can_transform_.exchange(false);  // before another call asks for the same
    if (making.is_awaited) {
      making.failure = std::move(failure);
      failure.reset();
    }
    making.is_over = true;
    making.program = program;
    made_.notify_all();
    if (program != nullptr) keep(making.key, program);
    if (entries_.size() > kMostPrograms) {
      by_key_.erase(entries_.back().first);
      gone.splice(gone.begin(), entries_, std::prev(entries_.end()));
    }
  }
  if (!failure) return;
  if (is_first) tell_transform_left(failure->message);
  if (!leaves_transform) stop_compiling(failure->message);
}

void DevicePrograms::tell_transform_left(std::string_view why) const noexcept {
  try {
    log_.say(TANDEM_LOG_WARNING, base::text(device_.identity.backend, ": ", device_.name, ": ", why,
                                            "; technique compiled in place of transform from now on"));
  } catch (const std::bad_alloc &) {
  }
}

// If there is no memory to keep it, a later call makes it again.
void DevicePrograms::keep(const Key &key, const std::shared_ptr<const DeviceProgram> &program) noexcept {
  try {
    Entries entry;
    entry.emplace_front(key, program);
    by_key_[key] = entry.begin();
    entries_.splice(entries_.begin(), entry);
  } catch (const std::bad_alloc &) {
  }
}

void DevicePrograms::end() noexcept {
  std::unique_lock lock(entries_mutex_);
  queue_.clear();
  made_.wait(lock, [&] { return thread_count_ == 0; });
}

std::string DevicePrograms::no_compiler() const {
  const std::lock_guard lock(mutex_);
  return no_compiler_;
}

// If there is no memory even for the reason, the next compile reports it again.
void DevicePrograms::stop_compiling(std::string_view why) noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      if (!no_compiler_.empty()) return;
      no_compiler_ = base::text("no more kernels are compiled: ", why);
    }
    log_.say(TANDEM_LOG_WARNING,
             base::text(device_.identity.backend, ": ", device_.name, ": ", why, "; technique tables from now on"));
  } catch (const std::bad_alloc &) {
  }
}

}  // namespace tandem::device
