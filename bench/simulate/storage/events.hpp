// SPDX-License-Identifier: Apache-2.0
// The event list of the storage simulator: a heap in one array, no allocation per event.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem::bench::storage {

struct Event {
  double time;
  std::uint64_t order;  // events of the same time happen in the order in which they were added
  std::uint32_t what, index;

  bool before(const Event &other) const { return time != other.time ? time < other.time : order < other.order; }
};

// Four children a node: half the levels of a binary heap, and the children are adjacent in memory.
class EventList {
 public:
  bool empty() const { return heap_.empty(); }
  const Event &first() const { return heap_.front(); }

  void add(double time, std::uint32_t what, std::uint32_t index) {
    const Event event{time, order_++, what, index};
    std::size_t place = heap_.size();
    heap_.push_back(event);
    while (place > 0) {
      const std::size_t parent = (place - 1) / 4;
      if (!event.before(heap_[parent])) break;
      heap_[place] = heap_[parent];
      place = parent;
    }
    heap_[place] = event;
  }

  void remove_first() {
    const Event last = heap_.back();
    heap_.pop_back();
    const std::size_t count = heap_.size();
    if (count == 0) return;
    std::size_t place = 0;
    for (;;) {
      const std::size_t child = 4 * place + 1;
      if (child >= count) break;
      std::size_t best = child;
      for (std::size_t i = child + 1; i < child + 4 && i < count; ++i)
        if (heap_[i].before(heap_[best])) best = i;
      if (!heap_[best].before(last)) break;
      heap_[place] = heap_[best];
      place = best;
    }
    heap_[place] = last;
  }

 private:
  std::vector<Event> heap_;
  std::uint64_t order_ = 0;
};

}  // namespace tandem::bench::storage
