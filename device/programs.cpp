// SPDX-License-Identifier: Apache-2.0
#include "device/programs.hpp"

#include <chrono>
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

DeviceSettings Device::settings(unsigned rows, unsigned columns) const {
  DeviceSettings settings;
  settings.kernel = built_in_tuning(vendor, rows, columns);
  settings.staging_bytes = 16 << 20;
  settings.compile_after_bytes = compile_after_bytes;
  settings.transforms = built_in_transforms(dialect, vendor, architecture, rows, columns);
  return settings;
}

void fail_cancelled(const Device &device) {
  base::fail(TANDEM_ERROR_CANCELLED, base::text("cancelled: ", device.name, " runs no more of this job"));
}

DevicePrograms::DevicePrograms(const Device &device, std::shared_ptr<DiskCache> disk, const base::Log &log)
    : device_(device), disk_(std::move(disk)), log_(log) {}

bool DevicePrograms::known(const Key &key) const {
  {
    const std::lock_guard lock(entries_mutex_);
    if (const auto found = entries_.find(key); found != entries_.end() && found->second->program != nullptr)
      return true;
  }
  return disk_->has(key);
}

std::shared_ptr<const DeviceProgram> DevicePrograms::use(Entry &entry) noexcept {
  entry.used = ++clock_;
  return entry.program;
}

std::shared_ptr<const DeviceProgram> DevicePrograms::get(const Key &key, const KernelSpec &spec,
                                                         const core::Matrix &matrix, const GenerateKernel &generate,
                                                         Wait wait) {
  std::unique_lock lock(entries_mutex_);
  auto found = entries_.find(key);
  if (found == entries_.end()) {
    MakeText text = [generate, matrix, spec] { return generate(matrix, spec).text; };
    found = entries_.emplace(key, std::make_shared<Entry>(Entry{spec, std::move(text)})).first;
    try {
      queue_.emplace_back(key, found->second);
    } catch (...) {
      entries_.erase(found);
      throw;
    }
  }
  const std::shared_ptr<Entry> entry = found->second;
  if (entry->program != nullptr) return use(*entry);
  entry->is_awaited |= wait != Wait::no;
  if (!queue_.empty()) start_thread(wait == Wait::now, lock);
  if (wait != Wait::now) return nullptr;
  made_.wait(lock, [&] { return entry->is_over; });
  if (!entry->failure) return entry->program;
  // Logged; the next call tries again.
  if (const auto failed = entries_.find(key); failed != entries_.end() && failed->second == entry)
    entries_.erase(failed);
  const Failure failure = *entry->failure;
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
    const auto [key, entry] = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    finish(key, *entry);
    lock.lock();
  }
  --thread_count_;
  made_.notify_all();
}

std::shared_ptr<const DeviceProgram> DevicePrograms::make(const Key &key, const KernelSpec &spec,
                                                          const MakeText &text) {
  if (auto kept = disk_->load(key); kept.has_value()) {
    std::string why;
    if (auto program = load(spec, std::move(*kept), why)) return program;
    device_.say(log_, TANDEM_LOG_INFO, "refuses a program from the cache; built again: ", why);
    disk_->remove(key);
  }
  const auto started = std::chrono::steady_clock::now();
  const std::string made = text();
  std::vector<unsigned char> binary;
  auto program = build(spec, made, binary);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - started;
  device_.say(log_, TANDEM_LOG_DEBUG, made.size(), " bytes of kernel text compiled by ", compiler_, " in ",
              base::fixed(seconds.count(), 3), " s");
  disk_->store(key, binary);
  return program;
}

std::shared_ptr<const DeviceProgram> DevicePrograms::make(const Key &key, const Entry &entry,
                                                          std::optional<Failure> *failure) noexcept {
  try {
    try {
      return make(key, entry.spec, entry.text);
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

void DevicePrograms::finish(const Key &key, Entry &entry) noexcept {
  std::optional<Failure> failure;
  const std::shared_ptr<const DeviceProgram> program = make(key, entry, &failure);
  std::shared_ptr<Entry> gone;  // unloaded without the lock; runs keep the programs that they use
  bool leaves_transform = false, is_first = false;
  {
    const std::lock_guard lock(entries_mutex_);
    leaves_transform = failure && !entry.is_awaited && entry.spec.technique == Technique::transform;
    if (leaves_transform) is_first = can_transform_.exchange(false);  // before another call asks for the same
    if (failure && !entry.is_awaited) {
      entries_.erase(key);
    } else if (failure) {
      entry.failure = std::move(failure);
      failure.reset();
    } else {
      entry.program = program;
      entry.text = nullptr;
      use(entry);
      if (++ready_count_ > kMostPrograms) gone = take_oldest();
    }
    entry.is_over = true;
    made_.notify_all();
  }
  if (!failure) return;
  if (is_first)
    device_.say(log_, TANDEM_LOG_WARNING, failure->message, "; technique compiled in place of transform from now on");
  if (!leaves_transform) stop_compiling(failure->message);
}

std::shared_ptr<DevicePrograms::Entry> DevicePrograms::take_oldest() noexcept {
  auto oldest = entries_.end();
  for (auto each = entries_.begin(); each != entries_.end(); ++each) {
    if (each->second->program != nullptr && (oldest == entries_.end() || each->second->used < oldest->second->used))
      oldest = each;
  }
  --ready_count_;
  return entries_.extract(oldest).mapped();
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
    device_.say(log_, TANDEM_LOG_WARNING, why, "; technique tables from now on");
  } catch (const std::bad_alloc &) {
  }
}

}  // namespace tandem::device
