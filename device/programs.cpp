#include "device/programs.hpp"

#include <fmt/format.h>

#include <iterator>

namespace tandem::device {
namespace {

constexpr std::size_t kMostPrograms = 64;

}  // namespace

Device::~Device() = default;
DeviceProgram::~DeviceProgram() = default;

void fail_cancelled(const Device &device) {
  base::fail(TANDEM_ERROR_CANCELLED, fmt::format("cancelled: {} runs nothing of this job any more", device.name));
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

std::shared_ptr<const DeviceProgram> DevicePrograms::get(const Key &key, const KernelSpec &spec, const MakeText &text) {
  const std::pair name{key.low, key.high};
  {
    std::unique_lock lock(entries_mutex_);
    made_.wait(lock, [&] { return !being_made_.contains(name); });
    if (const auto found = by_key_.find(key); found != by_key_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return found->second->second;
    }
    being_made_.insert(name);
  }
  try {
    std::shared_ptr<const DeviceProgram> program = make(key, spec, text);
    end_making(key, program);
    return program;
  } catch (...) {
    end_making(key, nullptr);
    throw;
  }
}

void DevicePrograms::end_making(const Key &key, const std::shared_ptr<const DeviceProgram> &made) {
  Entries gone;  // unloaded without the lock; who runs one keeps it
  const std::lock_guard lock(entries_mutex_);
  being_made_.erase({key.low, key.high});
  made_.notify_all();
  if (made == nullptr) return;
  entries_.emplace_front(key, made);
  by_key_[key] = entries_.begin();
  if (entries_.size() <= kMostPrograms) return;
  by_key_.erase(entries_.back().first);
  gone.splice(gone.begin(), entries_, std::prev(entries_.end()));
}

std::string DevicePrograms::no_compiler() const {
  const std::lock_guard lock(mutex_);
  return no_compiler_;
}

void DevicePrograms::stop_compiling(const std::string &why) {
  {
    const std::lock_guard lock(mutex_);
    if (!no_compiler_.empty()) return;
    no_compiler_ = "nothing is compiled any more: " + why;
  }
  log_.say(TANDEM_LOG_WARNING,
           fmt::format("{}: {}: {}; technique tables from now on", device_.identity.backend, device_.name, why));
}

}  // namespace tandem::device
