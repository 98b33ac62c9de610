// SPDX-License-Identifier: Apache-2.0
// Programs built for one device in one OpenCL context.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/programs.hpp"
#include "opencl/devices.hpp"

namespace tandem::opencl {

class OpenclProgram;

// A kernel object of a program, for setting arguments: no other thread has it at the same time.
class OpenclKernel {
 public:
  OpenclKernel(std::shared_ptr<const OpenclProgram> program, KernelHandle handle)
      : program_(std::move(program)), handle_(std::move(handle)) {}
  OpenclKernel(OpenclKernel &&) = default;
  OpenclKernel &operator=(OpenclKernel &&) = delete;
  ~OpenclKernel();
  cl_kernel get() const noexcept { return handle_.get(); }

 private:
  std::shared_ptr<const OpenclProgram> program_;
  KernelHandle handle_;
};

class OpenclProgram final : public device::DeviceProgram, public std::enable_shared_from_this<OpenclProgram> {
 public:
  OpenclProgram(const OpenclDevice &device, ProgramHandle handle);
  OpenclKernel take_kernel() const;
  cl_program get() const noexcept { return handle_.get(); }
  std::uint64_t spilled_bytes() const noexcept { return spilled_bytes_; }  // of registers; 0: not known

 private:
  friend class OpenclKernel;
  const Driver &driver_;
  ProgramHandle handle_;
  cl_ulong spilled_bytes_ = 0;
  mutable std::mutex mutex_;
  mutable std::vector<KernelHandle> idle_;  // destroyed before the program that they belong to
};

class OpenclPrograms final : public device::DevicePrograms {
 public:
  OpenclPrograms(const OpenclDevice &device, cl_context context, std::shared_ptr<device::DiskCache> disk,
                 const base::Log &log);
  ~OpenclPrograms() { end(); }

 private:
  const OpenclDevice &on() const noexcept { return static_cast<const OpenclDevice &>(device_); }
  std::shared_ptr<const device::DeviceProgram> load(const device::KernelSpec &spec, std::vector<unsigned char> binary,
                                                    std::string &why) override;
  // Throw Error (DEVICE) with the build log.
  std::shared_ptr<const OpenclProgram> build(const std::string &text, const std::string &options) const;
  std::shared_ptr<const device::DeviceProgram> build(const device::KernelSpec &spec, const std::string &text,
                                                     std::vector<unsigned char> &binary) override;
  void take_binary(cl_program program, std::vector<unsigned char> &binary) const;
  std::string build_log(cl_program program) const;

  const Driver &driver_;
  const cl_device_id id_;
  cl_context context_;
};

}  // namespace tandem::opencl
