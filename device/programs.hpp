// SPDX-License-Identifier: Apache-2.0
// Programs for one device: compiled once, on threads of their own. Kept on disk, and in memory until the least recently
// used is dropped.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "device/device.hpp"
#include "device/disk_cache.hpp"
#include "device/module.hpp"
#include "device/options.hpp"

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
  Key key(const std::string &made_of) const { return key_of({made_of, made_by_}); }
  bool known(const Key &key) const;  // it need not be compiled: it is in memory, or on disk

  // A call that does not wait gets null until the program is ready. later: a call that waits will follow.
  enum class Wait { no, later, now };
  // From memory, else from make(), which runs on a thread of this object; the text is made there too. A call that waits
  // throws make()'s exception, also UNAVAILABLE if the program needs a compile that is impossible. A failure that no
  // call waits for ends in stop_compiling(), or for technique transform in can_transform() == false.
  std::shared_ptr<const DeviceProgram> get(const Key &key, const KernelSpec &spec, const core::Matrix &matrix,
                                           const GenerateKernel &generate, Wait wait);

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
  // From disk, else built from the text and kept on disk.
  virtual std::shared_ptr<const DeviceProgram> make(const Key &key, const KernelSpec &spec, const MakeText &text);
  // The program of a binary that build() gave. Null, and why, if the driver does not take it.
  virtual std::shared_ptr<const DeviceProgram> load(const KernelSpec &spec, std::vector<unsigned char> binary,
                                                    std::string &why) = 0;
  // `binary` stays empty if it is not to be kept.
  virtual std::shared_ptr<const DeviceProgram> build(const KernelSpec &spec, const std::string &text,
                                                     std::vector<unsigned char> &binary) = 0;

  const Device &device_;
  const std::shared_ptr<DiskCache> disk_;
  const base::Log log_;
  // Set by the constructor: the compiler, and what else programs depend on; the compiler in the log.
  std::string made_by_, compiler_;
  mutable std::mutex mutex_;  // of no_compiler_
  std::string no_compiler_;

 private:
  // The exception of make(), as values: each call that waits throws its own exception, so that no two threads share
  // one.
  struct Failure {
    tandem_status status;
    std::string message;
    std::optional<int> driver_number;  // of a DriverError
  };

  // A program from its first call on: waiting for a thread, being made, ready or failed.
  struct Entry {
    const KernelSpec spec;
    MakeText text;
    bool is_awaited = false;
    bool is_over = false;
    std::shared_ptr<const DeviceProgram> program{};  // or
    std::optional<Failure> failure{};
    std::uint64_t used = 0;  // when; the least one is dropped first
  };

  std::shared_ptr<const DeviceProgram> make(const Key &key, const Entry &entry,
                                            std::optional<Failure> *failure) noexcept;
  void start_thread(bool is_needed, std::unique_lock<std::mutex> &lock);
  void work() noexcept;
  void finish(const Key &key, Entry &entry) noexcept;
  std::shared_ptr<const DeviceProgram> use(Entry &entry) noexcept;
  std::shared_ptr<Entry> take_oldest() noexcept;

  mutable std::mutex entries_mutex_;  // of what follows
  std::condition_variable made_;
  std::unordered_map<Key, std::shared_ptr<Entry>, KeyHash> entries_;
  std::deque<std::pair<Key, std::shared_ptr<Entry>>> queue_;  // those that no thread has begun
  std::size_t ready_count_ = 0;
  std::uint64_t clock_ = 0;
  std::atomic<bool> can_transform_{true};
  unsigned thread_count_ = 0;
};

}  // namespace tandem::device
