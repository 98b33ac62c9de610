// SPDX-License-Identifier: Apache-2.0
// What every fake driver counts and finds. Its table of functions changes it under the lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tandem::test {

class DriverCounts {
 public:
  using Lock = std::lock_guard<std::recursive_mutex>;

  std::uint64_t call_count() const { return locked(calls); }  // of calls that can fail
  std::uint64_t command_count() const { return locked(commands); }
  std::uint64_t calls_of(const std::string &function) const {
    const auto of_all = locked(calls_by_name);
    const auto found = of_all.find(function);
    return found == of_all.end() ? 0 : found->second;
  }
  std::string failed_call() const { return locked(failed); }  // the function that the script made fail; "" if none yet
  std::map<std::string, std::int64_t> live() const {          // objects not released, by kind; without zeros
    auto live = locked(objects);
    std::erase_if(live, [](const auto &each) { return each.second == 0; });
    return live;
  }
  std::uint64_t device_bytes() const { return locked(alive_bytes); }  // of memory alive
  std::uint64_t most_device_bytes() const { return locked(most_bytes); }
  std::vector<std::string> violations() const { return locked(wrong); }  // what a driver could have crashed at
  std::vector<std::string> problems() const {                            // and what is left
    std::vector<std::string> problems = violations();
    for (const auto &[kind, count] : live()) problems.push_back(std::to_string(count) + " x " + kind + " left");
    return problems;
  }

  void begin_again() {
    calls = commands = 0;
    calls_by_name.clear();
    failed.clear();
    most_bytes = alive_bytes;
  }
  void violate(std::string what) { wrong.push_back(std::move(what)); }
  void account(std::uint64_t more) { most_bytes = std::max(most_bytes, alive_bytes += more); }

  mutable std::recursive_mutex mutex;
  std::uint64_t calls = 0, commands = 0, alive_bytes = 0, most_bytes = 0;
  std::map<std::string, std::uint64_t> calls_by_name;
  std::string failed;
  std::map<std::string, std::int64_t> objects;
  std::vector<std::string> wrong;

 private:
  template <class Value>
  Value locked(const Value &value) const {
    const Lock lock(mutex);
    return value;
  }
};

}  // namespace tandem::test
