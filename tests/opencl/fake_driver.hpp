// SPDX-License-Identifier: Apache-2.0
// A fake OpenCL driver: a table of functions over memory of the host, with all that fake drivers have (fake_kit.hpp).
// Its kernels are not run: fake_kernel.hpp has what they do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "opencl/opencl_module.hpp"
#include "tests/device/fake_kit.hpp"

namespace tandem::test {

struct FakeDevice {
  std::string name = "Fake 1", vendor = "Fake Vendor";
  cl_device_type type = CL_DEVICE_TYPE_GPU;
  std::uint64_t memory_bytes = 1 << 30, most_buffer_bytes = 1 << 28, local_bytes = 48 << 10;
  std::size_t most_group_items = 256, parameter_bytes = 1024, kernel_group_items = 256;
  cl_uint compute_units = 8, base_alignment_bytes = 128;
  bool has_compiler = true, is_available = true;
  // Of Intel's driver: in rising order; of a kernel that is not built with 256 registers a thread.
  std::vector<std::size_t> sub_groups;
  std::uint64_t spilled_bytes = 0;
};

struct FakeDriverScript {
  DriverScript common = {};
  std::vector<FakeDevice> devices = {FakeDevice()};
  bool finish_fails = false;  // clFinish does nothing and says so: what is in the queues is done when they are released
  double listing_seconds = 0;  // clGetPlatformIDs takes so long
};

// One at a time in a process: the table has no place for a pointer to it.
class FakeDriver : public DriverCounts {
 public:
  explicit FakeDriver(const FakeDriverScript &script = {});
  ~FakeDriver();
  FakeDriver(const FakeDriver &) = delete;
  FakeDriver &operator=(const FakeDriver &) = delete;

  const tandem_opencl_module *table() const noexcept;

  void set_script(const FakeDriverScript &script);  // counters begin again
  std::uint8_t *address(cl_mem buffer) const;       // of its first byte
  void finish(cl_command_queue queue);              // as clFinish, uncounted
  const std::string &build_options() const;         // of all builds

  struct State;
};

}  // namespace tandem::test
