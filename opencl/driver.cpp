// SPDX-License-Identifier: Apache-2.0
#include "opencl/driver.hpp"

#include "base/text.hpp"
#include "device/look.hpp"

namespace tandem::opencl {
namespace {

bool means_memory(cl_int error) noexcept {
  return error == CL_OUT_OF_HOST_MEMORY || error == CL_MEM_OBJECT_ALLOCATION_FAILURE;
}

}  // namespace

const device::DeviceModule kModule = {
    "opencl", "OpenCL", "libtandem_opencl.so", TANDEM_OPENCL_SYMBOL, TANDEM_OPENCL_VERSION, sizeof(Driver)};

const char *error_name(cl_int error) noexcept {
#define TANDEM_NAME(value) \
  case value:              \
    return #value;
  switch (error) {
    TANDEM_NAME(CL_SUCCESS)
    TANDEM_NAME(CL_DEVICE_NOT_FOUND)
    TANDEM_NAME(CL_DEVICE_NOT_AVAILABLE)
    TANDEM_NAME(CL_COMPILER_NOT_AVAILABLE)
    TANDEM_NAME(CL_MEM_OBJECT_ALLOCATION_FAILURE)
    TANDEM_NAME(CL_OUT_OF_RESOURCES)
    TANDEM_NAME(CL_OUT_OF_HOST_MEMORY)
    TANDEM_NAME(CL_MEM_COPY_OVERLAP)
    TANDEM_NAME(CL_BUILD_PROGRAM_FAILURE)
    TANDEM_NAME(CL_MAP_FAILURE)
    TANDEM_NAME(CL_MISALIGNED_SUB_BUFFER_OFFSET)
    TANDEM_NAME(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
    TANDEM_NAME(CL_INVALID_VALUE)
    TANDEM_NAME(CL_INVALID_DEVICE)
    TANDEM_NAME(CL_INVALID_PLATFORM)
    TANDEM_NAME(CL_INVALID_CONTEXT)
    TANDEM_NAME(CL_INVALID_COMMAND_QUEUE)
    TANDEM_NAME(CL_INVALID_HOST_PTR)
    TANDEM_NAME(CL_INVALID_MEM_OBJECT)
    TANDEM_NAME(CL_INVALID_BINARY)
    TANDEM_NAME(CL_INVALID_BUILD_OPTIONS)
    TANDEM_NAME(CL_INVALID_PROGRAM)
    TANDEM_NAME(CL_INVALID_PROGRAM_EXECUTABLE)
    TANDEM_NAME(CL_INVALID_KERNEL_NAME)
    TANDEM_NAME(CL_INVALID_KERNEL)
    TANDEM_NAME(CL_INVALID_ARG_INDEX)
    TANDEM_NAME(CL_INVALID_ARG_VALUE)
    TANDEM_NAME(CL_INVALID_ARG_SIZE)
    TANDEM_NAME(CL_INVALID_KERNEL_ARGS)
    TANDEM_NAME(CL_INVALID_WORK_GROUP_SIZE)
    TANDEM_NAME(CL_INVALID_WORK_ITEM_SIZE)
    TANDEM_NAME(CL_INVALID_EVENT_WAIT_LIST)
    TANDEM_NAME(CL_INVALID_EVENT)
    TANDEM_NAME(CL_INVALID_OPERATION)
    TANDEM_NAME(CL_INVALID_BUFFER_SIZE)
    TANDEM_NAME(CL_INVALID_GLOBAL_WORK_SIZE)
    default:
      return "an error without a name";
  }
#undef TANDEM_NAME
}

void fail_call(cl_int error, const char *call) {
  throw device::DriverError(means_memory(error) ? TANDEM_ERROR_OUT_OF_MEMORY : TANDEM_ERROR_DEVICE,
                            base::text("OpenCL: ", call, " failed with ", error_name(error), " (", error, ")"), error);
}

Queue make_queue(const Driver &driver, cl_context context, cl_device_id device) {
  cl_int error = CL_SUCCESS;
  const cl_command_queue queue = driver.clCreateCommandQueue(context, device, 0, &error);
  check(error, "clCreateCommandQueue");
  return {queue, driver.clReleaseCommandQueue};
}

Buffer make_buffer(const Driver &driver, cl_context context, cl_mem_flags flags, std::uint64_t bytes, void *host) {
  cl_int error = CL_SUCCESS;
  const cl_mem buffer = driver.clCreateBuffer(context, flags, bytes, host, &error);
  check(error, "clCreateBuffer");
  return {buffer, driver.clReleaseMemObject};
}

void Events::wait() {
  if (raw_.empty()) return;
  // The last command usually ends last, so clWaitForEvents seldom lets the thread sleep for the others.
  device::is_done_soon([&] {
    cl_int status = CL_QUEUED;
    const cl_int error =
        driver_->clGetEventInfo(raw_.back(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr);
    return error != CL_SUCCESS || status <= CL_COMPLETE;  // below: the command has failed
  });
  OPENCL_CALL(*driver_, clWaitForEvents, static_cast<cl_uint>(raw_.size()), raw_.data());
  reset();
}

void Events::reset() noexcept {
  for (const cl_event event : raw_)
    if (event != nullptr && !kModule.in_child()) driver_->clReleaseEvent(event);
  raw_.clear();
}

}  // namespace tandem::opencl
