// SPDX-License-Identifier: Apache-2.0
// The interface between libtandem and libtandem_opencl.so: a table of the OpenCL functions that we use. The module
// links libOpenCL, and does nothing else. All logic is in libtandem and works on the table. So libtandem loads without
// an installed OpenCL, and tests pass a table of their own: a driver that fails by script.
#pragma once

#include <CL/cl.h>
#include <stdint.h>

// OpenCL 1.2, which every driver has.
#define TANDEM_OPENCL_FUNCTIONS(X) \
  X(clGetPlatformIDs)              \
  X(clGetPlatformInfo)             \
  X(clGetDeviceIDs)                \
  X(clGetDeviceInfo)               \
  X(clCreateContext)               \
  X(clRetainContext)               \
  X(clReleaseContext)              \
  X(clCreateCommandQueue)          \
  X(clRetainCommandQueue)          \
  X(clReleaseCommandQueue)         \
  X(clGetCommandQueueInfo)         \
  X(clCreateBuffer)                \
  X(clReleaseMemObject)            \
  X(clGetMemObjectInfo)            \
  X(clCreateProgramWithSource)     \
  X(clCreateProgramWithBinary)     \
  X(clBuildProgram)                \
  X(clGetProgramInfo)              \
  X(clGetProgramBuildInfo)         \
  X(clReleaseProgram)              \
  X(clCreateKernel)                \
  X(clReleaseKernel)               \
  X(clSetKernelArg)                \
  X(clGetKernelWorkGroupInfo)      \
  X(clEnqueueNDRangeKernel)        \
  X(clEnqueueReadBuffer)           \
  X(clEnqueueWriteBuffer)          \
  X(clEnqueueCopyBuffer)           \
  X(clEnqueueMapBuffer)            \
  X(clEnqueueUnmapMemObject)       \
  X(clGetEventInfo)                \
  X(clWaitForEvents)               \
  X(clReleaseEvent)                \
  X(clFlush)                       \
  X(clFinish)

extern "C" {

enum { TANDEM_OPENCL_VERSION = 3 };  // raise it with every change of the list

struct tandem_opencl_module {
  uint32_t version;       // TANDEM_OPENCL_VERSION; always the first field
  uint32_t struct_bytes;  // sizeof(tandem_opencl_module)
#define TANDEM_OPENCL_MEMBER(name) decltype(&::name) name;
  TANDEM_OPENCL_FUNCTIONS(TANDEM_OPENCL_MEMBER)
#undef TANDEM_OPENCL_MEMBER
};

// The module's one symbol, by this name.
#define TANDEM_OPENCL_SYMBOL "tandem_opencl_module_get"
typedef const struct tandem_opencl_module *(*tandem_opencl_module_get_function)(void);

}  // extern "C"
