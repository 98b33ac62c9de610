// What the backends of devices may be told.
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
  std::string technique;  // "" or "auto": by the bytes run; "tables"; "compiled" (up to 4096 coefficients)
  const core::TuningSource *tuning = nullptr;  // outlives the backend
  base::Timeline *timeline = nullptr;          // the same; null: none is asked for
  std::uint64_t memory_budget_bytes = 0;       // of buffers on the device; 0 = half of what it has, or `resources`
  core::Budget *resources = nullptr;          // outlives the backend; its MiB of this backend hold from the next run on
  bool holds_units = true;                    // of `resources`; false: what calls this backend holds them
  std::shared_ptr<core::HostCopier> copier;   // to and from staging memory; null: the thread that runs
  std::string cache_folder;                   // of compiled programs; "" = none
  GenerateKernel generate = generate_kernel;  // replaced by tests together with the driver
};

// Whether `name` is `backend`, or `backend` with so many decimal numbers: "opencl", "opencl:0:1".
bool is_device_name(std::string_view name, std::string_view backend, unsigned number_count) noexcept;

// Throws Error (UNAVAILABLE) for a device whose name is none, and for a technique that does not exist. For the message:
// `label` "CUDA", `names` what the names of devices look like.
void check_options(const Options &options, bool is_name, const char *label, const char *names);

}  // namespace tandem::device
