// Programs built for one device, in memory: those used least recently go.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

#include "device/disk_cache.hpp"

namespace tandem::device {

template <class Program>
class ProgramCache {
 public:
  explicit ProgramCache(std::size_t most_programs) : most_programs_(most_programs) {}

  bool has(const Key &key) const {
    const std::lock_guard lock(mutex_);
    return by_key_.contains(key);
  }

  // The program, or what `make` returns for it. A second thread that wants the same waits for the first; if that one
  // fails it tries itself.
  template <class Make>
  std::shared_ptr<const Program> get(const Key &key, Make &&make) {
    const std::pair name{key.low, key.high};
    {
      std::unique_lock lock(mutex_);
      built_.wait(lock, [&] { return !under_construction_.contains(name); });
      if (const auto found = by_key_.find(key); found != by_key_.end()) {
        entries_.splice(entries_.begin(), entries_, found->second);
        return found->second->second;
      }
      under_construction_.insert(name);
    }
    const auto end_construction = [&](const std::shared_ptr<const Program> &program) {
      Entries gone;  // unloaded without the lock; who runs one keeps it
      const std::lock_guard lock(mutex_);
      under_construction_.erase(name);
      built_.notify_all();
      if (program == nullptr) return;
      entries_.emplace_front(key, program);
      by_key_[key] = entries_.begin();
      if (entries_.size() <= most_programs_) return;
      by_key_.erase(entries_.back().first);
      gone.splice(gone.begin(), entries_, std::prev(entries_.end()));
    };
    try {
      std::shared_ptr<const Program> program = make();
      end_construction(program);
      return program;
    } catch (...) {
      end_construction(nullptr);
      throw;
    }
  }

 private:
  using Entries = std::list<std::pair<Key, std::shared_ptr<const Program>>>;  // most recently used first

  const std::size_t most_programs_;
  mutable std::mutex mutex_;
  std::condition_variable built_;
  Entries entries_;
  std::unordered_map<Key, typename Entries::iterator, KeyHash> by_key_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> under_construction_;
};

}  // namespace tandem::device
