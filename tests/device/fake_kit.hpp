// SPDX-License-Identifier: Apache-2.0
// What all fake drivers have alike: a script, the counts of what they see, and commands that run when the program waits
// for them. A driver's table of functions changes all of it under the lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/backend.hpp"

namespace tandem::test {

// How a call fails: with an error that a program survives; with one that kills the device, so that all later calls
// fail; for want of memory; or, and with it all later calls that a capture forbids, because of a capture.
enum class Failure { plain, kills, out_of_memory, of_capture };

// What every fake driver can be told.
struct DriverScript {
  std::uint64_t failing_call = UINT64_MAX;  // the n-th call that can fail, from 0, does
  Failure failure = Failure::plain;
  std::uint64_t failing_command = UINT64_MAX;     // the n-th command is accepted, and fails when it is done
  std::uint64_t cancelling_command = UINT64_MAX;  // the n-th command cancels `control` when it is put into its queue
  core::Control *control = nullptr;
  // From the n-th on, kernels compute this byte of their last output wrongly, and compares do not see differences from
  // there on.
  std::uint64_t wrong_kernel = UINT64_MAX, wrong_byte = 0;
  unsigned device_count = 1;
  int most_group_items = 0;  // of any kernel; 0: as many as the device has
  bool is_another_model = false;
  bool refuses_binaries = false;
  bool refuses_text = false;        // a program does not compile: the log says "fake: no"
  bool is_done_when_asked = false;  // a look at an event brings about what it asks for
};

inline constexpr std::uint8_t kOldByte = 0xa5;  // what memory of a device holds at first

class DriverCounts {
 public:
  using Lock = std::lock_guard<std::recursive_mutex>;

  std::uint64_t call_count() const { return locked(calls); }  // of calls that can fail
  std::uint64_t command_count() const { return locked(commands); }
  std::uint64_t sleep_count() const { return locked(sleeps); }  // waits for events that had not come
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
    calls = commands = kernels = sleeps = 0;
    calls_by_name.clear();
    failed.clear();
    most_bytes = alive_bytes;
  }
  void violate(std::string what) { wrong.push_back(std::move(what)); }
  void account(std::uint64_t more) { most_bytes = std::max(most_bytes, alive_bytes += more); }

  // Counts a call that can fail, and says whether the script wants that.
  bool fails(const char *function, const DriverScript &script) {
    if (calls++ != script.failing_call) return false;
    failed = function;
    return true;
  }
  // Counts a command; whether it fails when it is done.
  bool begin_command(const DriverScript &script) {
    if (commands == script.cancelling_command) script.control->cancel();
    return commands++ == script.failing_command;
  }

  mutable std::recursive_mutex mutex;
  std::uint64_t calls = 0, commands = 0, kernels = 0, sleeps = 0, alive_bytes = 0, most_bytes = 0;
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

// So a missing wait shows as old bytes every time.
struct FakeCommand {
  std::function<void()> action{};
  std::vector<std::shared_ptr<FakeCommand>> before{};  // done earlier, whether they failed or not
  std::vector<std::shared_ptr<FakeCommand>> waits{};   // if one of these failed it is not done
  bool fails_by_script = false, has_failed = false, is_done = false;

  void execute() {
    if (is_done) return;
    is_done = true;
    for (const auto &each : std::exchange(before, {})) each->execute();
    for (const auto &each : std::exchange(waits, {})) {
      each->execute();
      has_failed |= each->has_failed;
    }
    has_failed |= fails_by_script;
    if (!has_failed && action) action();
    action = nullptr;
  }
};

}  // namespace tandem::test
