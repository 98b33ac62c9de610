// Programs built for one device in one OpenCL context: kept in memory (the least recently used go) and on disk.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/log.hpp"
#include "opencl/devices.hpp"
#include "opencl/disk_cache.hpp"
#include "opencl/driver.hpp"

namespace tandem::opencl {

class Program;

// A kernel object of a program, to set arguments of: no other thread has it meanwhile.
class Kernel {
 public:
  Kernel(std::shared_ptr<const Program> program, KernelHandle handle)
      : program_(std::move(program)), handle_(std::move(handle)) {}
  Kernel(Kernel &&) = default;
  Kernel &operator=(Kernel &&) = delete;
  ~Kernel();
  cl_kernel get() const noexcept { return handle_.get(); }

 private:
  std::shared_ptr<const Program> program_;
  KernelHandle handle_;
};

class Program : public std::enable_shared_from_this<Program> {
 public:
  Program(const Driver &driver, const Device &device, ProgramHandle handle);
  Kernel take_kernel() const;
  std::size_t most_group_items() const noexcept { return most_group_items_; }  // what registers and local memory allow

 private:
  friend class Kernel;
  const Driver &driver_;
  ProgramHandle handle_;
  std::size_t most_group_items_;
  mutable std::mutex mutex_;
  mutable std::vector<KernelHandle> idle_;  // after the program that they belong to
};

// The name of the kernel in every program's text.
inline constexpr const char *kKernelName = "tandem_apply";

class Programs {
 public:
  Programs(const Driver &driver, const Device &device, cl_context context, std::shared_ptr<DiskCache> disk,
           const core::Log &log);

  // The key of a text for this device and driver.
  Key key(const std::string &text) const;

  // Whether get() would not compile. The disk is asked only if `ask_disk`.
  bool known(const Key &key, bool ask_disk) const;

  // The program: from memory, from disk, or built from the text. A second thread that wants the same waits for the
  // first. Throws Error (DEVICE) with the build log.
  std::shared_ptr<const Program> get(const Key &key, const std::function<std::string()> &text);

 private:
  using Entry = std::pair<Key, std::shared_ptr<const Program>>;

  ProgramHandle load(const Key &key) const;
  ProgramHandle build(const std::string &text) const;
  void keep_on_disk(const Key &key, cl_program program) const noexcept;
  std::string build_log(cl_program program) const;

  const Driver &driver_;
  const Device &device_;
  cl_context context_;
  std::shared_ptr<DiskCache> disk_;
  core::Log log_;
  mutable std::mutex mutex_;
  std::condition_variable built_;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<Key, std::list<Entry>::iterator, KeyHash> by_key_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> under_construction_;
};

}  // namespace tandem::opencl
