// Programs built for one device in one OpenCL context: kept in memory (the least recently used go) and on disk.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "device/disk_cache.hpp"
#include "device/kernel_chooser.hpp"
#include "device/program_cache.hpp"
#include "opencl/devices.hpp"
#include "opencl/driver.hpp"

namespace tandem::opencl {

using device::DiskCache, device::Key, device::kKernelName;

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

class Programs final : public device::KernelPrograms {
 public:
  Programs(const Driver &driver, const Device &device, cl_context context, std::shared_ptr<DiskCache> disk,
           const base::Log &log);

  Key key(const std::string &made_of) const override;
  bool known(const Key &key, bool ask_disk) const override;

  // The program: from memory, from disk, or built from the text. A second thread that wants the same waits for the
  // first. Throws Error (DEVICE) with the build log.
  std::shared_ptr<const Program> get(const Key &key, const std::function<std::string()> &text);

 private:
  ProgramHandle load(const Key &key) const;
  ProgramHandle build(const std::string &text) const;
  void keep_on_disk(const Key &key, cl_program program) const noexcept;
  std::string build_log(cl_program program) const;

  const Driver &driver_;
  const Device &device_;
  cl_context context_;
  std::shared_ptr<DiskCache> disk_;
  base::Log log_;
  device::ProgramCache<Program> programs_;
};

}  // namespace tandem::opencl
