// SPDX-License-Identifier: Apache-2.0
// Kernels for one GPU: from the image that was compiled with the library, or compiled by NVRTC.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/programs.hpp"
#include "gpu/devices.hpp"
#include "gpu/driver.hpp"

namespace tandem::gpu {

// A module of the driver, in the context that is current when it is constructed.
struct CudaImage : Owned<CUmodule, &Driver::cuModuleUnload> {
  CudaImage(const Driver &driver, CUcontext context, const void *image);  // throws DriverError
  CUfunction function(const char *name) const;                            // throws DriverError
};

class CudaProgram final : public device::DeviceProgram {
 public:
  // Of technique transform: with as much shared memory as a multiprocessor has, at the cost of its first cache.
  CudaProgram(const Driver &driver, std::shared_ptr<const CudaImage> module, const char *name, bool is_transform);
  CUfunction function() const noexcept { return function_; }

 private:
  std::shared_ptr<const CudaImage> module_;
  CUfunction function_;
};

class CudaPrograms final : public device::DevicePrograms {
 public:
  CudaPrograms(const CudaDevice &device, CUcontext context, std::shared_ptr<device::DiskCache> disk,
               const base::Log &log);
  ~CudaPrograms() { end(); }

 private:
  // Runs in its context.
  std::shared_ptr<const device::DeviceProgram> make(const device::Key &key, const device::KernelSpec &spec,
                                                    const MakeText &text) override;
  std::shared_ptr<const device::DeviceProgram> load(const device::KernelSpec &spec, std::vector<unsigned char> binary,
                                                    std::string &why) override;
  // Throws Error (UNAVAILABLE) also if the driver refuses NVRTC's result.
  std::shared_ptr<const device::DeviceProgram> build(const device::KernelSpec &spec, const std::string &text,
                                                     std::vector<unsigned char> &binary) override;
  std::shared_ptr<const CudaProgram> from_image(const device::KernelSpec &spec);
  std::shared_ptr<const CudaProgram> program_of(const device::KernelSpec &spec,
                                                const std::vector<unsigned char> &binary) const;
  void look_at_compiler();
  std::string remedy(int made_by) const;

  const Driver &driver_;
  const CUcontext context_;
  int compiler_version_ = 0;  // 13000
  std::string architecture_;  // NVRTC's option
  bool makes_ptx_ = false;    // NVRTC does not know the device: the driver compiles
  std::mutex image_mutex_;    // of the next two
  std::shared_ptr<const CudaImage> image_;
  bool image_is_refused_ = false;
};

}  // namespace tandem::gpu
