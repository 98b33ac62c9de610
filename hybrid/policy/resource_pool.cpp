#include "hybrid/policy/resource_pool.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace tandem::hybrid {

unsigned ResourcePool::index(const std::string &name) {
  for (unsigned i = 0; i < resources_.size(); ++i)
    if (resources_[i].name == name) return i;
  resources_.push_back({name});
  return static_cast<unsigned>(resources_.size() - 1);
}

void ResourcePool::check(const Needs &needs) const {
  for (const Need &need : needs) {
    const Resource &it = resources_[need.resource];
    if (need.amount <= it.amount) continue;
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
               fmt::format("a task needs {} of resource \"{}\"; there is {} in all", need.amount, it.name, it.amount));
  }
}

bool ResourcePool::can_ever_fit(const Needs &needs) const noexcept {
  return std::all_of(needs.begin(), needs.end(),
                     [this](const Need &need) { return need.amount <= resources_[need.resource].amount; });
}

bool ResourcePool::fits(const Needs &needs) const noexcept {
  return std::none_of(needs.begin(), needs.end(), [this](const Need &need) { return lacks(need); });
}

bool ResourcePool::try_take(std::uint64_t asker, const Needs &needs) {
  const auto place =
      std::find_if(waiters_.begin(), waiters_.end(), [&](const Waiter &each) { return each.asker == asker; });
  const auto lacks_one_of = [&](const Waiter &waiter) {
    return std::any_of(waiter.needs.begin(), waiter.needs.end(), [&](const Need &need) {
      return lacks(need) &&
             std::any_of(needs.begin(), needs.end(), [&](const Need &own) { return own.resource == need.resource; });
    });
  };
  // An amount may have been lowered below what somebody waits for: nothing that is given back would serve him.
  const auto can_be_served = [this](const Waiter &waiter) {
    return std::all_of(waiter.needs.begin(), waiter.needs.end(),
                       [this](const Need &need) { return need.amount <= resources_[need.resource].amount; });
  };
  const bool must_wait = !fits(needs) || std::any_of(waiters_.begin(), place, [&](const Waiter &each) {
    return each.overtaken >= kMostOvertaken && can_be_served(each) && lacks_one_of(each);
  });
  if (must_wait) {
    if (place == waiters_.end()) waiters_.push_back({asker, needs, 0});
    return false;
  }
  for (auto each = waiters_.begin(); each != place; ++each) ++each->overtaken;
  if (place != waiters_.end()) waiters_.erase(place);
  for (const Need &need : needs) resources_[need.resource].held += need.amount;
  return true;
}

void ResourcePool::give_back(const Needs &needs) noexcept {
  for (const Need &need : needs) resources_[need.resource].held -= need.amount;
}

void ResourcePool::leave(std::uint64_t asker) noexcept {
  std::erase_if(waiters_, [&](const Waiter &each) { return each.asker == asker; });
}

}  // namespace tandem::hybrid
