// Who holds how much of which resource (DESIGN: the `resources` clause). Purely logical; no lock of its own, its owner
// has one. A task states what it needs and starts only when all of it is there.
//
// Whoever finds too little is remembered in the order of asking. Others behind it that fit may start, but each waiter
// is overtaken kMostOvertaken times at most: from then on nobody behind it gets any of a resource that it waits for. So
// no waiter starves: what it needs can only come back.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace tandem::hybrid {

struct Need {
  unsigned resource;  // ResourcePool::index
  std::uint64_t amount;
};
using Needs = std::vector<Need>;

class ResourcePool {
 public:
  static constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
  static constexpr unsigned kMostOvertaken = 16;

  // The resource of this name; made, without a limit, by the first who asks.
  unsigned index(const std::string &name);

  // Effective at once: what is held beyond a smaller amount is given back as its tasks finish.
  void set(unsigned resource, std::uint64_t amount) noexcept { resources_[resource].amount = amount; }

  std::uint64_t amount(unsigned resource) const noexcept { return resources_[resource].amount; }
  std::uint64_t held(unsigned resource) const noexcept { return resources_[resource].held; }
  std::uint64_t free(unsigned resource) const noexcept {
    const Resource &it = resources_[resource];
    return it.amount > it.held ? it.amount - it.held : 0;
  }

  // Throws Error (INVALID_ARGUMENT) for needs that will never be there together.
  void check(const Needs &needs) const;

  bool can_ever_fit(const Needs &needs) const noexcept;

  // All of it or nothing. Refused, `asker` (any number of its own) has a place among those who wait; asking again keeps
  // it, and being served or leave() ends it.
  bool try_take(std::uint64_t asker, const Needs &needs);
  void give_back(const Needs &needs) noexcept;
  void leave(std::uint64_t asker) noexcept;

  std::size_t waiting() const noexcept { return waiters_.size(); }

 private:
  struct Resource {
    std::string name;
    std::uint64_t amount = kUnlimited, held = 0;
  };
  struct Waiter {
    std::uint64_t asker;
    Needs needs;
    unsigned overtaken;
  };

  bool fits(const Needs &needs) const noexcept;
  bool lacks(const Need &need) const noexcept { return free(need.resource) < need.amount; }

  std::vector<Resource> resources_;
  std::vector<Waiter> waiters_;  // first come first
};

}  // namespace tandem::hybrid
