// SPDX-License-Identifier: Apache-2.0
#include "opencl/programs.hpp"

#include <chrono>

#include "base/text.hpp"

namespace tandem::opencl {
namespace {

constexpr const char *kBuildOptions = "-cl-std=CL1.2";

}  // namespace

OpenclKernel::~OpenclKernel() {
  if (!handle_ || program_ == nullptr) return;
  const std::lock_guard lock(program_->mutex_);
  try {
    program_->idle_.push_back(std::move(handle_));
  } catch (const std::bad_alloc &) {  // it is released then
  }
}

OpenclProgram::OpenclProgram(const OpenclDevice &device, ProgramHandle handle)
    : driver_(*device.driver), handle_(std::move(handle)) {
  OpenclKernel kernel = take_kernel();
  check(driver_.clGetKernelWorkGroupInfo(kernel.get(), device.id, CL_KERNEL_WORK_GROUP_SIZE, sizeof most_group_items_,
                                         &most_group_items_, nullptr),
        "clGetKernelWorkGroupInfo");
  if (most_group_items_ == 0) most_group_items_ = 1;
}

OpenclKernel OpenclProgram::take_kernel() const {
  const std::shared_ptr<const OpenclProgram> self = weak_from_this().lock();  // none yet in the constructor
  if (self != nullptr) {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      KernelHandle handle = std::move(idle_.back());
      idle_.pop_back();
      return {self, std::move(handle)};
    }
  }
  cl_int error = CL_SUCCESS;
  const cl_kernel kernel = driver_.clCreateKernel(handle_.get(), device::kKernelName, &error);
  check(error, "clCreateKernel");
  return {self, KernelHandle(kernel, driver_.clReleaseKernel)};
}

OpenclPrograms::OpenclPrograms(const OpenclDevice &device, cl_context context, std::shared_ptr<device::DiskCache> disk,
                               const base::Log &log)
    : DevicePrograms(device, std::move(disk), log), driver_(*device.driver), id_(device.id), context_(context) {}

device::Key OpenclPrograms::key(const std::string &made_of) const {
  const auto &device = static_cast<const OpenclDevice &>(device_);
  return device::key_of({made_of, kBuildOptions, device.identity.vendor, device.model(), device.driver_version,
                         device.platform_name, device.platform_version});
}

std::shared_ptr<const device::DeviceProgram> OpenclPrograms::make(const device::Key &key, const device::KernelSpec &,
                                                                  const MakeText &text) {
  ProgramHandle handle = load(key);
  const bool is_new = !handle;
  if (is_new) handle = build(text());
  const cl_program raw = handle.get();
  auto program = std::make_shared<const OpenclProgram>(static_cast<const OpenclDevice &>(device_), std::move(handle));
  if (is_new) keep_on_disk(key, raw);
  return program;
}

// From disk; an empty handle if it is not there, or if this driver no longer accepts it.
ProgramHandle OpenclPrograms::load(const device::Key &key) const {
  const auto bytes = disk_->load(key);
  if (!bytes.has_value()) return {};
  const unsigned char *start = bytes->data();
  const std::size_t size = bytes->size();
  cl_int status = CL_SUCCESS, error = CL_SUCCESS;
  ProgramHandle program(driver_.clCreateProgramWithBinary(context_, 1, &id_, &size, &start, &status, &error),
                        driver_.clReleaseProgram);
  if (error == CL_SUCCESS) error = status;
  if (error == CL_SUCCESS) error = driver_.clBuildProgram(program.get(), 1, &id_, kBuildOptions, nullptr, nullptr);
  if (error == CL_SUCCESS) return program;
  log_.say(TANDEM_LOG_INFO, base::text("opencl: ", device_.name, " refuses a program from the cache (",
                                       error_name(error), "); built from its text"));
  disk_->remove(key);
  return {};
}

ProgramHandle OpenclPrograms::build(const std::string &text) const {
  const auto started = std::chrono::steady_clock::now();
  const char *start = text.data();
  const std::size_t size = text.size();
  cl_int error = CL_SUCCESS;
  ProgramHandle program(driver_.clCreateProgramWithSource(context_, 1, &start, &size, &error),
                        driver_.clReleaseProgram);
  check(error, "clCreateProgramWithSource");
  error = driver_.clBuildProgram(program.get(), 1, &id_, kBuildOptions, nullptr, nullptr);
  if (error == CL_BUILD_PROGRAM_FAILURE) {
    const std::string log = build_log(program.get());
    log_.say(TANDEM_LOG_WARNING, base::text("opencl: ", device_.name, ": a kernel does not build: ", log));
    base::fail(TANDEM_ERROR_DEVICE, base::text("OpenCL: a generated kernel does not build on ", device_.name, " (",
                                               device_.model(), "): ", log.substr(0, device::kMostLogBytes)));
  }
  check(error, "clBuildProgram");
  log_.say(TANDEM_LOG_DEBUG,
           base::text("opencl: ", device_.name, ": ", text.size(), " bytes of kernel text built in ",
                      base::fixed(std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count(), 3),
                      " s"));
  return program;
}

std::string OpenclPrograms::build_log(cl_program program) const {
  try {
    return text_of(
        [&](std::size_t size, void *out, std::size_t *needed) {
          return driver_.clGetProgramBuildInfo(program, id_, CL_PROGRAM_BUILD_LOG, size, out, needed);
        },
        "clGetProgramBuildInfo");
  } catch (const device::DriverError &error) {
    return std::string("no build log: ") + error.what();
  }
}

// A driver that returns no binary is no error: nothing is stored.
void OpenclPrograms::keep_on_disk(const device::Key &key, cl_program program) const noexcept {
  if (!disk_->in_use()) return;
  std::size_t size = 0;
  if (driver_.clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, nullptr) != CL_SUCCESS ||
      size == 0 || size > device::kMostBinaryBytes)
    return;
  try {
    std::vector<unsigned char> bytes(size);
    unsigned char *start = bytes.data();
    if (driver_.clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof start, &start, nullptr) == CL_SUCCESS)
      disk_->store(key, bytes);
  } catch (const std::bad_alloc &) {
  }
}

}  // namespace tandem::opencl
