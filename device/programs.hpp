// Programs for one device: made once, kept in memory (the least recently used go) and on disk.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/log.hpp"
#include "device/device.hpp"
#include "device/disk_cache.hpp"

namespace tandem::device {

// The name of the kernel in every text.
inline constexpr const char *kKernelName = "tandem_apply";

inline constexpr std::size_t kMostLogBytes = 300;  // of a compiler's log in a message
inline constexpr std::size_t kMostBinaryBytes = 32 << 20;

// Each backend derives its own, which has the kernel.
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

  // The key of a program, from what its text is made of, for this device and compiler.
  virtual Key key(const std::string &made_of) const = 0;
  // Whether it need not be compiled. The disk is asked only if `ask_disk`.
  bool known(const Key &key, bool ask_disk) const;

  // From memory, else as make() makes it. A second thread that wants the same waits for the first; if that one fails it
  // tries itself. Throws Error, also UNAVAILABLE where it would have to be compiled and cannot be.
  std::shared_ptr<const DeviceProgram> get(const Key &key, const KernelSpec &spec, const MakeText &text);

  // Why nothing can be compiled here; "" where it can.
  std::string no_compiler() const;
  // From now on no_compiler() says `why`; the log hears of it.
  void stop_compiling(const std::string &why);

 protected:
  ~DevicePrograms() = default;
  virtual std::shared_ptr<const DeviceProgram> make(const Key &key, const KernelSpec &spec, const MakeText &text) = 0;

  const Device &device_;
  const std::shared_ptr<DiskCache> disk_;
  const base::Log log_;
  mutable std::mutex mutex_;  // of no_compiler_
  std::string no_compiler_;

 private:
  using Entries = std::list<std::pair<Key, std::shared_ptr<const DeviceProgram>>>;  // most recently used first

  void end_making(const Key &key, const std::shared_ptr<const DeviceProgram> &made);

  mutable std::mutex entries_mutex_;
  std::condition_variable made_;
  Entries entries_;
  std::unordered_map<Key, Entries::iterator, KeyHash> by_key_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> being_made_;
};

}  // namespace tandem::device
