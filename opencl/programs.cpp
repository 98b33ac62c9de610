// SPDX-License-Identifier: Apache-2.0
#include "opencl/programs.hpp"

#include "base/text.hpp"

namespace tandem::opencl {
namespace {

// Of kernels that spill: a thread has twice as many registers, and there are half as many threads.
constexpr const char *kMoreRegisters = " -cl-intel-256-GRF-per-thread";
constexpr cl_kernel_work_group_info kSpilledBytes = 0x4109;  // CL_KERNEL_SPILL_MEM_SIZE_INTEL

}  // namespace

OpenclKernel::~OpenclKernel() {
  if (!handle_ || program_ == nullptr || kModule.in_child())
    return;  // a thread of the parent may hold the lock for ever
  const std::lock_guard lock(program_->mutex_);
  try {
    program_->idle_.push_back(std::move(handle_));
  } catch (const std::bad_alloc &) {  // it is released then
  }
}

OpenclProgram::OpenclProgram(const OpenclDevice &device, ProgramHandle handle)
    : driver_(*device.driver), handle_(std::move(handle)) {
  OpenclKernel kernel = take_kernel();
  OPENCL_CALL(driver_, clGetKernelWorkGroupInfo, kernel.get(), device.id, CL_KERNEL_WORK_GROUP_SIZE,
              sizeof most_group_items_, &most_group_items_, nullptr);
  if (most_group_items_ == 0) most_group_items_ = 1;
  if (device.tells_spills)
    driver_.clGetKernelWorkGroupInfo(kernel.get(), device.id, kSpilledBytes, sizeof spilled_bytes_, &spilled_bytes_,
                                     nullptr);
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
    : DevicePrograms(device, std::move(disk), log), driver_(*device.driver), id_(device.id), context_(context) {
  compiler_ = device.driver_text();
  made_by_ = base::text(device.build_options, "\n", device.identity.vendor, "\n", device.model(), "\n", compiler_);
}

std::shared_ptr<const device::DeviceProgram> OpenclPrograms::load(const device::KernelSpec &,
                                                                  std::vector<unsigned char> binary, std::string &why) {
  const unsigned char *start = binary.data();
  const std::size_t size = binary.size();
  cl_int status = CL_SUCCESS, error = CL_SUCCESS;
  ProgramHandle program(driver_.clCreateProgramWithBinary(context_, 1, &id_, &size, &start, &status, &error),
                        driver_.clReleaseProgram);
  if (error == CL_SUCCESS) error = status;
  if (error == CL_SUCCESS)
    error = driver_.clBuildProgram(program.get(), 1, &id_, on().build_options.c_str(), nullptr, nullptr);
  if (error == CL_SUCCESS) return std::make_shared<const OpenclProgram>(on(), std::move(program));
  why = error_name(error);
  return nullptr;
}

std::shared_ptr<const OpenclProgram> OpenclPrograms::build(const std::string &text, const std::string &options) const {
  const char *start = text.data();
  const std::size_t size = text.size();
  cl_int error = CL_SUCCESS;
  ProgramHandle handle(driver_.clCreateProgramWithSource(context_, 1, &start, &size, &error), driver_.clReleaseProgram);
  check(error, "clCreateProgramWithSource");
  error = driver_.clBuildProgram(handle.get(), 1, &id_, options.c_str(), nullptr, nullptr);
  if (error == CL_BUILD_PROGRAM_FAILURE) {
    const std::string log = build_log(handle.get());
    device_.say(log_, TANDEM_LOG_WARNING, "a kernel does not build: ", log);
    device_.fail(TANDEM_ERROR_DEVICE, "a generated kernel does not build on ", device_.name, " (", device_.model(),
                 "): ", log.substr(0, device::kMostLogBytes));
  }
  check(error, "clBuildProgram");
  return std::make_shared<const OpenclProgram>(on(), std::move(handle));
}

std::shared_ptr<const device::DeviceProgram> OpenclPrograms::build(const device::KernelSpec &, const std::string &text,
                                                                   std::vector<unsigned char> &binary) {
  auto program = build(text, on().build_options);
  if (program->spilled_bytes() != 0) {
    device_.say(log_, TANDEM_LOG_DEBUG, "a kernel spills ", program->spilled_bytes(), " bytes; built again with",
                kMoreRegisters);
    program = build(text, on().build_options + kMoreRegisters);
  }
  if (disk_->in_use()) take_binary(program->get(), binary);
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

// A driver that returns no binary is no error.
void OpenclPrograms::take_binary(cl_program program, std::vector<unsigned char> &binary) const {
  std::size_t size = 0;
  if (driver_.clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, nullptr) != CL_SUCCESS ||
      size > device::kMostBinaryBytes)
    return;
  binary.resize(size);
  unsigned char *start = binary.data();
  if (driver_.clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof start, &start, nullptr) != CL_SUCCESS)
    binary.clear();
}

}  // namespace tandem::opencl
