// SPDX-License-Identifier: Apache-2.0
// A fake OpenCL driver: a table of functions over memory of the host. A device runs a command only when the program
// waits for it, or for a command that depends on it. So a missing wait shows as old bytes every time. Calls and
// commands fail by script, objects are counted. Its kernels are not run: tests/device/fake_kernel.hpp has what they do.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/backend.hpp"
#include "device/kernel_text.hpp"
#include "opencl/opencl_module.hpp"
#include "tests/device/driver_counts.hpp"

namespace tandem::test {

struct FakeDevice {
  std::string name = "Fake 1", vendor = "Fake Vendor";
  cl_device_type type = CL_DEVICE_TYPE_GPU;
  std::uint64_t memory_bytes = 1 << 30, most_buffer_bytes = 1 << 28, local_bytes = 48 << 10;
  std::size_t most_group_items = 256, parameter_bytes = 1024, kernel_group_items = 256;
  cl_uint compute_units = 8, base_alignment_bytes = 128;
  bool shares_memory = false, has_compiler = true, is_available = true;
};

struct FakeDriverScript {
  std::vector<FakeDevice> devices = {FakeDevice()};
  std::uint64_t failing_call = UINT64_MAX;        // the n-th call of the table, from 0, fails
  std::uint64_t failing_command = UINT64_MAX;     // the n-th command is accepted, and fails when it is done
  std::uint64_t cancelling_command = UINT64_MAX;  // the n-th command cancels `control` when it is put into its queue
  core::Control *control = nullptr;
  bool finish_fails = false;  // clFinish does nothing and says so: what is in the queues is done when they are released
  bool refuses_host_memory = false;    // no buffers over memory of the caller
  std::set<const void *> read_only{};  // where read-only memory of the caller begins
  bool refuses_binaries = false;
  bool refuses_text = false;        // a program does not build: the log says "fake: no"
  bool is_done_when_asked = false;  // clGetEventInfo brings about what it asks for
  double listing_seconds = 0;       // clGetPlatformIDs takes so long
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
  std::uint64_t copied_bytes() const;               // by commands that read, write or copy buffers

  struct State;
};

}  // namespace tandem::test
