// Kernels for one device: out of the image that was compiled with the library, or compiled by NVRTC and then kept in
// memory (the least recently used go) and on disk.
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
#include "gpu/devices.hpp"
#include "gpu/driver.hpp"

namespace tandem::gpu {

// A module in the context that is current when it is made.
class Module {
 public:
  Module(const Driver &driver, CUcontext context, const void *image);  // throws DriverError
  ~Module();
  Module(const Module &) = delete;
  Module &operator=(const Module &) = delete;
  CUfunction function(const char *name) const;  // throws DriverError

 private:
  const Driver &driver_;
  CUcontext context_;
  CUmodule module_ = nullptr;
};

class Program {
 public:
  Program(const Driver &driver, std::shared_ptr<const Module> module, const char *name);
  CUfunction function() const noexcept { return function_; }
  unsigned most_threads() const noexcept { return most_threads_; }  // of a block: what registers allow

 private:
  std::shared_ptr<const Module> module_;
  CUfunction function_;
  unsigned most_threads_ = 1;
};

// Every function that makes or loads wants the context to be current.
class Programs final : public device::KernelPrograms {
 public:
  Programs(const Driver &driver, const Device &device, CUcontext context, std::shared_ptr<device::DiskCache> disk,
           const base::Log &log);

  device::Key key(const std::string &made_of) const override;
  bool known(const device::Key &key, bool ask_disk) const override;
  std::string no_compiler() const override;

  // A second thread that wants the same waits for the first. Throws Error: UNAVAILABLE where it would have to be
  // compiled and cannot be, or where the driver refuses what NVRTC made.
  std::shared_ptr<const Program> get(const device::Key &key, const device::KernelSpec &spec,
                                     const std::function<std::string()> &text);

  // From now on no_compiler() says `why`; the log hears of it.
  void stop_compiling(const std::string &why);

 private:
  std::shared_ptr<const Program> from_image(const device::KernelSpec &spec);
  std::shared_ptr<const Program> from_disk(const device::Key &key);
  std::vector<unsigned char> compile(const std::string &text) const;
  void look_at_compiler();

  const Driver &driver_;
  const Device &device_;
  const CUcontext context_;
  const std::shared_ptr<device::DiskCache> disk_;
  base::Log log_;
  std::string compiler_;      // "NVRTC 13.0"
  std::string architecture_;  // NVRTC's option
  bool makes_ptx_ = false;    // NVRTC does not know the device: the driver compiles
  mutable std::mutex mutex_;  // of the next three
  std::string no_compiler_;
  std::shared_ptr<const Module> image_;
  bool image_is_refused_ = false;
  device::ProgramCache<Program> programs_;
};

}  // namespace tandem::gpu
