// SPDX-License-Identifier: Apache-2.0
// Programs for one device: compiled once, on threads of their own. Kept on disk, and in memory until the least recently
// used is dropped.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/log.hpp"
#include "device/device.hpp"
#include "device/disk_cache.hpp"
#include "device/module.hpp"

namespace tandem::device {

// The name of the kernel in every text.
inline constexpr const char *kKernelName = "tandem_apply";

inline constexpr std::size_t kMostLogBytes = 300;  // of a compiler's log in a message
inline constexpr std::size_t kMostBinaryBytes = 32 << 20;

// Each backend derives a class that holds the kernel.
class DeviceProgram {
 public:
  virtual ~DeviceProgram();
  std::size_t most_group_items() const noexcept { return most_group_items_; }  // what its registers allow

 protected:
  std::size_t most_group_items_ = 1;
};

class DevicePrograms {
 public:
  using MakeText = std::function<std::string()>;

  DevicePrograms(const Device &device, std::shared_ptr<DiskCache> disk, const base::Log &log);

  // The key of a program, from the parts of its text, for this device and compiler.
  virtual Key key(const std::string &made_of) const = 0;
  // Whether it need not be compiled. The disk is asked only if `ask_disk`.
  bool known(const Key &key, bool ask_disk) const;

  // From memory; null if it is not there.
  std::shared_ptr<const DeviceProgram> find(const Key &key);
  // A call that does not wait gets null until the program is ready. later: a call that waits will follow.
  enum class Wait { no, later, now };
  // From memory, else from make(), which runs on a thread of this object; `text` is called there too. A call that waits
  // throws make()'s exception, also UNAVAILABLE if the program needs a compile that is impossible. A failure that no
  // call waits for ends in stop_compiling(), or for technique transform in can_transform() == false.
  std::shared_ptr<const DeviceProgram> get(const Key &key, const KernelSpec &spec, MakeText text, Wait wait);

  // Why nothing can be compiled here; "" if it can.
  std::string no_compiler() const;
  // From now on no_compiler() returns the reason. The reason is logged.
  void stop_compiling(std::string_view why) noexcept;
  // False from the first failure of technique transform that no call waited for. The matrices of its codes can still be
  // compiled.
  bool can_transform() const noexcept { return can_transform_.load(std::memory_order_relaxed); }

 protected:
  ~DevicePrograms() = default;
  // For the destructors of derived classes: finishes programs that are being made and drops the others.
  void end() noexcept;
  virtual std::shared_ptr<const DeviceProgram> make(const Key &key, const KernelSpec &spec, const MakeText &text) = 0;

  const Device &device_;
  const std::shared_ptr<DiskCache> disk_;
  const base::Log log_;
  mutable std::mutex mutex_;  // of no_compiler_
  std::string no_compiler_;

 private:
  using Entries = std::list<std::pair<Key, std::shared_ptr<const DeviceProgram>>>;  // most recently used first

  // The exception of make(), as values: each call that waits throws its own exception, so that no two threads share
  // one.
  struct Failure {
    tandem_status status;
    std::string message;
    std::optional<int> driver_number;  // of a DriverError
  };

  struct Making {
    Making(const Key &of, const KernelSpec &kernel, MakeText make_text)
        : key(of), spec(kernel), text(std::move(make_text)) {}
    const Key key;
    const KernelSpec spec;
    const MakeText text;
    bool is_awaited = false;
    bool is_over = false;
    std::shared_ptr<const DeviceProgram> program;  // or
    std::optional<Failure> failure;
  };

  std::shared_ptr<const DeviceProgram> make(const Making &making, std::optional<Failure> *failure) noexcept;
  void start_thread(bool is_needed, std::unique_lock<std::mutex> &lock);
  void work() noexcept;
  void finish(Making &making) noexcept;
  void tell_transform_left(std::string_view why) const noexcept;
  void keep(const Key &key, const std::shared_ptr<const DeviceProgram> &program) noexcept;

  mutable std::mutex entries_mutex_;  // of what follows
  std::condition_variable made_;
  Entries entries_;
  std::unordered_map<Key, Entries::iterator, KeyHash> by_key_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::shared_ptr<Making>> being_made_;
  std::atomic<bool> can_transform_{true};
  std::deque<std::shared_ptr<Making>> queue_;  // those of them that no thread has begun
  unsigned thread_count_ = 0;
};

// In a child after fork they are abandoned: their threads are the parent's, and their mutexes may be locked for ever.
template <class Programs, const DeviceModule &kModule>
struct EndPrograms {
  void operator()(Programs *programs) const noexcept {
    if (!kModule.in_child()) delete programs;
  }
};

}  // namespace tandem::device
