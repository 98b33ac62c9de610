// What belongs to the matrices that were used last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

namespace tandem::device {

template <class Value>
class LatestFew {
 public:
  explicit LatestFew(std::size_t most) : most_(most) {}

  std::shared_ptr<const Value> find(std::uint64_t id) {
    const std::lock_guard lock(mutex_);
    for (auto each = list_.begin(); each != list_.end(); ++each) {
      if (each->first != id) continue;
      list_.splice(list_.begin(), list_, each);
      return each->second;
    }
    return nullptr;
  }

  void add(std::uint64_t id, std::shared_ptr<const Value> value) {
    List gone;  // ends without the lock; who uses one keeps it
    const std::lock_guard lock(mutex_);
    list_.emplace_front(id, std::move(value));
    if (list_.size() > most_) gone.splice(gone.begin(), list_, std::prev(list_.end()));
  }

  void clear() noexcept {
    List gone;
    const std::lock_guard lock(mutex_);
    gone.swap(list_);
  }

 private:
  using List = std::list<std::pair<std::uint64_t, std::shared_ptr<const Value>>>;  // latest first

  const std::size_t most_;
  std::mutex mutex_;
  List list_;
};

}  // namespace tandem::device
