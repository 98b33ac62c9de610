// SPDX-License-Identifier: Apache-2.0
// The interface between libtandem and libtandem_cuda.so: a table of the functions of the CUDA driver and of NVRTC that
// we use, and the device code that was compiled with the library. The module opens libcuda and libnvrtc when it is
// asked for the table, and does nothing else. All logic is in libtandem and works on the table. So libtandem loads
// without an installed CUDA, and tests pass a table of their own: a driver that fails by script.
#pragma once

#include <cuda.h>
#include <nvrtc.h>
#include <stdint.h>

// The oldest CUDA of toolkit, driver and NVRTC, as cuda.h writes a version: the first with __grid_constant__.
enum { TANDEM_CUDA_OLDEST = 11070 };
static_assert(CUDA_VERSION >= TANDEM_CUDA_OLDEST);

// By these names in cuda.h. Its macros give the names of the symbols (cuMemFreeAsync, but cuMemGetInfo_v2).
#define TANDEM_CUDA_FUNCTIONS(X)       \
  X(cuInit)                            \
  X(cuDriverGetVersion)                \
  X(cuGetErrorName)                    \
  X(cuGetErrorString)                  \
  X(cuDeviceGetCount)                  \
  X(cuDeviceGet)                       \
  X(cuDeviceGetName)                   \
  X(cuDeviceGetAttribute)              \
  X(cuDeviceTotalMem)                  \
  X(cuDevicePrimaryCtxRetain)          \
  X(cuDevicePrimaryCtxRelease)         \
  X(cuCtxPushCurrent)                  \
  X(cuCtxPopCurrent)                   \
  X(cuThreadExchangeStreamCaptureMode) \
  X(cuMemGetInfo)                      \
  X(cuMemHostAlloc)                    \
  X(cuMemFreeHost)                     \
  X(cuMemHostRegister)                 \
  X(cuMemHostUnregister)               \
  X(cuMemPoolCreate)                   \
  X(cuMemPoolDestroy)                  \
  X(cuMemPoolSetAttribute)             \
  X(cuMemPoolTrimTo)                   \
  X(cuMemAllocFromPoolAsync)           \
  X(cuMemFreeAsync)                    \
  X(cuMemcpyHtoDAsync)                 \
  X(cuMemcpyDtoHAsync)                 \
  X(cuMemsetD32Async)                  \
  X(cuPointerGetAttributes)            \
  X(cuStreamCreate)                    \
  X(cuStreamDestroy)                   \
  X(cuStreamSynchronize)               \
  X(cuStreamWaitEvent)                 \
  X(cuStreamIsCapturing)               \
  X(cuStreamGetCtx)                    \
  X(cuEventCreate)                     \
  X(cuEventDestroy)                    \
  X(cuEventRecord)                     \
  X(cuEventQuery)                      \
  X(cuEventSynchronize)                \
  X(cuModuleLoadData)                  \
  X(cuModuleUnload)                    \
  X(cuModuleGetFunction)               \
  X(cuFuncGetAttribute)                \
  X(cuFuncSetAttribute)                \
  X(cuLaunchKernel)

#define TANDEM_NVRTC_FUNCTIONS(X) \
  X(nvrtcVersion)                 \
  X(nvrtcGetErrorString)          \
  X(nvrtcGetNumSupportedArchs)    \
  X(nvrtcGetSupportedArchs)       \
  X(nvrtcCreateProgram)           \
  X(nvrtcDestroyProgram)          \
  X(nvrtcCompileProgram)          \
  X(nvrtcGetProgramLogSize)       \
  X(nvrtcGetProgramLog)           \
  X(nvrtcGetCUBINSize)            \
  X(nvrtcGetCUBIN)                \
  X(nvrtcGetPTXSize)              \
  X(nvrtcGetPTX)

extern "C" {

enum { TANDEM_CUDA_VERSION = 8 };  // raise it with every change below, and of the image's kernels

// The device code, in the object file that gpu/device_code makes:
//     extern "C" const unsigned char tandem_cuda_tables_image[];
//     extern "C" const unsigned long long tandem_cuda_tables_image_bytes;
// The image is a fatbin for cuModuleLoadData with the kernels of technique tables that tandem::gpu::tables_kernels() of
// gpu/device_code/names.hpp lists, under their names.

struct tandem_cuda_module {
  uint32_t version;       // TANDEM_CUDA_VERSION; always the first field
  uint32_t struct_bytes;  // sizeof(tandem_cuda_module)
  const char *problem;  // NULL, or why there is no driver ("libcuda.so.1 is not installed"): then no function is there
  const char *nvrtc_problem;  // NULL, or why there is no NVRTC: then none of its functions is there
#define TANDEM_CUDA_MEMBER(name) decltype(&::name) name;
  TANDEM_CUDA_FUNCTIONS(TANDEM_CUDA_MEMBER)
  TANDEM_NVRTC_FUNCTIONS(TANDEM_CUDA_MEMBER)
#undef TANDEM_CUDA_MEMBER
  const unsigned char *tables_image;  // NULL: this build has no device code
  uint64_t tables_image_bytes;
};

// The module's one symbol, by this name.
#define TANDEM_CUDA_SYMBOL "tandem_cuda_module_get"
typedef const struct tandem_cuda_module *(*tandem_cuda_module_get_function)(void);

}  // extern "C"
