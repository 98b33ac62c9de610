// SPDX-License-Identifier: Apache-2.0
// Options of the backends of devices.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/timeline.hpp"
#include "core/backend.hpp"
#include "core/host_copies.hpp"
#include "device/kernel_text.hpp"

namespace tandem::device {

using GenerateKernel = std::function<KernelText(const core::Matrix &, const KernelSpec &)>;

struct Options {
  std::string device;     // "cuda": the first usable one; "cuda:1": that one, as the driver counts
  std::string technique;  // "" or "auto": by the bytes run; "tables"; "compiled" (up to 4096 coefficients); "transform"
                          // (else compiled)
  const core::TuningSource *tuning = nullptr;  // outlives the backend
  base::Timeline *timeline = nullptr;          // the same; null: none is asked for
  std::uint64_t memory_budget_bytes = 0;       // of buffers on the device; 0 = half of its memory, or as `resources`
                                               // say
  core::Budget *resources = nullptr;         // outlives the backend; its MiB of this backend hold from the next run on
  bool holds_units = true;                   // of `resources`; false: the caller of this backend holds them
  std::shared_ptr<core::HostCopier> copier;  // to and from staging memory; null: the running thread copies
  std::shared_ptr<core::Backend> reference;  // its results are right: see AnswerCheck. It holds no resources; null:
                                             // nothing is checked
  std::uint64_t most_launch_bytes = UINT64_MAX;  // of a shard in device memory; tests: less than the kernels can
  bool checks_all = false;                       // by the reference: every answer, not only the first of a kernel
  std::string cache_folder;                      // of compiled programs; "" = none
  GenerateKernel generate = generate_kernel;     // replaced by tests together with the driver
};

// Whether `name` is `backend`, or `backend` with number_count decimal numbers: "opencl", "opencl:0:1".
bool is_device_name(std::string_view name, std::string_view backend, unsigned number_count) noexcept;

// Throws Error (UNAVAILABLE) for a malformed name of a device, and for an unknown technique. For the message: `label`
// "CUDA", `names` describes the names of devices.
void check_options(const Options &options, bool is_name, const char *label, const char *names);

}  // namespace tandem::device
