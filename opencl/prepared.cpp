#include "opencl/prepared.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace tandem::opencl {

using device::Access;

device::DeviceSettings default_settings(const Device &device) {
  device::DeviceSettings settings;
  settings.staging_bytes = 16 << 20;
  if (device.is_cpu()) {
    settings.kernel = {64, 1, 4, {64, 1, 1}};
    // Measured on PoCL 3.1: (10, 4) by tables codes 1.2 GB/s; a compile takes 1 to 2.5 s, which is as much.
    settings.compile_after_bytes = std::uint64_t{2} << 30;
  } else {
    settings.kernel = {8, 1, 4, {256, 1, 1}};
    settings.compile_after_bytes = 1 << 30;
  }
  return settings;
}

std::vector<core::TuningParameter> parameters_of(const device::DeviceSettings &settings, const Device &device) {
  const device::KernelTuning &kernel = settings.kernel;
  const auto most_of = [&](unsigned dimension, std::uint64_t cap) {
    return std::min<std::uint64_t>({device.most_items[dimension], device.most_group_items, cap});
  };
  // Few of y and z: each set of local sizes costs a compile.
  return {{"local_x", kernel.local[0], device::powers_of_two(16, most_of(0, 1024), kernel.local[0])},
          {"local_y", kernel.local[1], device::powers_of_two(1, most_of(1, 4), kernel.local[1])},
          {"local_z", kernel.local[2], device::powers_of_two(1, most_of(2, 2), kernel.local[2])},
          {"element_bytes", kernel.element_bytes,
           device::powers_of_two(4, device.is_cpu() ? 64 : 16, kernel.element_bytes)},
          {"elements_per_item", kernel.elements_per_item, device::powers_of_two(1, 8, kernel.elements_per_item)},
          {"rows_per_pass", kernel.rows_per_pass, device::powers_of_two(1, 8, kernel.rows_per_pass)},
          {"staging_bytes", settings.staging_bytes, device::powers_of_two(1 << 20, 64 << 20, settings.staging_bytes)},
          {"compile_after_bytes", settings.compile_after_bytes, {settings.compile_after_bytes}, true}};
}

namespace {

device::KernelDevice described(const Device &device) {
  device::KernelDevice described;
  described.label = "OpenCL";
  described.name = device.name;
  described.identity = {"opencl", device.vendor, device.model, device.driver_text()};
  described.byte_lanes = device.is_cpu();
  described.local_bytes = device.local_bytes;
  described.settings = [device](unsigned) { return default_settings(device); };
  return described;
}

}  // namespace

Chooser::Chooser(const Options &options, const Device &device, const base::Log &log)
    : KernelChooser(described(device), options.technique, options.tuning, options.generate, log),
      always_shifted_(options.always_shifted),
      device_(device),
      log_(log) {}

// A local size that the device and this kernel can run.
void Chooser::fit_local_size(const device::DevicePrepared &prepared, Variant &variant) const {
  std::array<unsigned, 3> &local = variant.spec.tuning.local;
  const std::array<unsigned, 3> wanted = local;
  const std::size_t most = std::min(device_.most_group_items, variant.program->most_group_items());
  for (unsigned d = 0; d < 3; ++d)
    local[d] = static_cast<unsigned>(std::min<std::size_t>(local[d], device_.most_items[d]));
  const auto items = [&] { return std::uint64_t{local[0]} * local[1] * local[2]; };
  while (items() > most) {
    unsigned &largest = *std::max_element(local.begin(), local.end());
    largest = std::max(1u, largest / 2);
  }
  if (local == wanted) return;
  const std::string text =
      fmt::format("local size {}x{}x{} is more than {} runs ({} items a group, {}x{}x{})", wanted[0], wanted[1],
                  wanted[2], device_.name, most, device_.most_items[0], device_.most_items[1], device_.most_items[2]);
  if (prepared.forced.has_value()) base::fail(TANDEM_ERROR_UNAVAILABLE, "OpenCL: " + text);
  {
    const std::lock_guard lock(prepared.mutex);
    if (std::exchange(prepared.texts[device::DevicePrepared::name_of(variant.spec)].told_local, true)) return;
  }
  log_.say(TANDEM_LOG_INFO, fmt::format("opencl: {}; {}x{}x{} instead", text, local[0], local[1], local[2]));
}

Access Chooser::access(bool is_aligned) const noexcept {
  if (always_shifted_) return Access::shifted;
  if (is_aligned && device_.base_alignment_bytes >= kAlignedBytes) return Access::aligned;
  return device_.is_cpu() ? Access::direct : Access::shifted;
}

Variant Chooser::choose(const device::DevicePrepared &prepared, Programs &programs, core::Mode mode, Access access,
                        device::Binding binding, std::uint64_t length_bytes) const {
  const Choice choice = KernelChooser::choose(prepared, programs, mode, access, binding, length_bytes);
  Variant variant;
  variant.spec = choice.spec;
  variant.staging_bytes = choice.staging_bytes;
  variant.program = programs.get(choice.key, [&] { return text(prepared, choice.spec); });
  fit_local_size(prepared, variant);
  return variant;
}

}  // namespace tandem::opencl
