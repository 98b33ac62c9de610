// SPDX-License-Identifier: Apache-2.0
// A fake CUDA driver: a table of functions over memory of the host, with all that fake drivers have (fake_kit.hpp). A
// stream may be captured. Kernels are not run: fake_kernel.hpp has what they do. Or a script interprets them (run_ptx).
// kernel_text_test runs the texts, and the fake compiles them with the real NVRTC on request.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "device/kernel_text.hpp"
#include "gpu/cuda_module.hpp"
#include "tests/device/fake_kit.hpp"

namespace tandem::test {

// device::generate_kernel, remembering what the text was made from.
device::KernelText fake_cuda_generate(const core::Matrix &matrix, const device::KernelSpec &spec);

struct FakeGpu {
  std::string name = "Fake GPU";
  int major = 9, minor = 0;
  int compute_mode = CU_COMPUTEMODE_DEFAULT;
  bool has_pools = true;
  bool is_integrated = false, reads_pageable = false, uses_host_page_tables = false;
  std::uint64_t memory_bytes = 1 << 28;
  std::uint64_t free_bytes = 1 << 28;       // what the driver says is free when it is asked
  std::uint64_t available_bytes = 1 << 28;  // what can be allocated: less where others use it too
  int most_threads = 1024;                  // of a block of any kernel
};

// A launch of a kernel that NVRTC made PTX of. spec.tuning.local: its block.
struct FakeLaunch {
  std::string ptx;
  device::KernelSpec spec;
  device::KernelArguments arguments;
  std::array<unsigned, 3> grid;
  std::uint64_t shared_bytes;
  std::function<bool(std::uint64_t first, std::uint64_t bytes)> is_on_device;
};

struct FakeCudaScript {
  DriverScript common = {};
  std::vector<FakeGpu> devices = {FakeGpu()};
  int driver_version = 12040;
  CUresult init_error = CUDA_SUCCESS;
  const char *problem = nullptr;        // of the module: no driver
  const char *nvrtc_problem = nullptr;  // of the module: no NVRTC
  std::uint64_t pinned_limit_bytes = UINT64_MAX;
  bool has_image = true;
  bool refuses_image = false;
  int nvrtc_version = 12040;
  std::vector<int> architectures = {75, 80, 86, 89, 90, 100, 120};  // NVRTC's
  bool real_nvrtc = false;                                          // that of this machine; has_real_nvrtc()
  // Runs PTX as a GPU does, in place of the slow reference. Returns what the kernel did wrong, or "". Needs real_nvrtc
  // and a device that NVRTC has no machine code for: capability 7.6 or 8.1.
  std::function<std::string(const FakeLaunch &)> run_ptx{};
  CUresult query_error = CUDA_SUCCESS;  // of cuEventQuery
};

bool has_real_nvrtc();

// One at a time in a process: the table has no place for a pointer to it.
class FakeCuda : public DriverCounts {
 public:
  explicit FakeCuda(const FakeCudaScript &script = {});
  ~FakeCuda();
  FakeCuda(const FakeCuda &) = delete;
  FakeCuda &operator=(const FakeCuda &) = delete;

  const tandem_cuda_module *table() const noexcept;

  void set_script(const FakeCudaScript &script);        // counters begin again; the module's pointers stay
  bool has_called_nvrtc(std::thread::id thread) const;  // to compile
  bool is_dead() const;                                 // after a sticky error

  // The caller's side. The context of a device, in which the rest is made.
  CUcontext context(int device = 0);
  CUdeviceptr allocate(std::uint64_t bytes, int device = 0);
  void free(CUdeviceptr memory);
  CUstream make_stream(int device = 0, bool in_primary_context = true);
  void destroy(CUstream stream);
  void synchronize(CUstream stream);
  void register_host(const void *memory, std::uint64_t bytes);  // as cuMemHostRegister
  void unregister_host(const void *memory);
  void begin_capture(CUstream stream);  // in mode GLOBAL, by this thread
  bool is_capture_invalid(CUstream stream) const;
  std::size_t end_capture(CUstream stream);  // how many commands the graph has
  void launch_graph();                       // the one captured last

  struct State;
};

// How many contexts are current on this thread, one over the other.
std::size_t fake_context_depth();

// Whether this thread's mode is as every thread's at first.
bool is_fake_capture_mode_global();

}  // namespace tandem::test
