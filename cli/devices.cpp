// SPDX-License-Identifier: Apache-2.0
// tandem devices
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/commands.hpp"
#include "cli/option_table.hpp"
#include "tandem/tools.h"

namespace tandem::cli {
namespace {

// The speeds that hybrids have measured on this machine. An unreadable tuning file does not stop the list.
std::vector<tandem_speed> speeds_here() {
  std::size_t count = 0;
  if (tandem_speeds(nullptr, nullptr, 0, sizeof(tandem_speed), &count) != TANDEM_OK) return {};
  std::vector<tandem_speed> list =
      all<tandem_speed>([](auto... arguments) { return tandem_speeds(nullptr, arguments...); });
  std::erase_if(list, [](const tandem_speed &each) { return each.is_this_machine == 0; });
  return list;
}

void print_speeds(const std::vector<tandem_speed> &speeds) {
  if (speeds.empty()) return;
  fmt::print("\n{:<12} {:<9} {:>7} {:>7} {:>6} {:>11}\n", "HYBRID", "OPERATION", "CODE", "GB/S", "GAIN", "PAYS FROM");
  for (const tandem_speed &each : speeds) {
    const bool is_device = each.pays_from_bytes != 0;
    const std::string gain = each.gain > 0 ? fmt::format("{:.2f}", each.gain) : "-";
    fmt::print("{:<12} {:<9} {:>7} {:>7.1f} {:>6} {:>11}\n", each.worker, operation_name(each.operation),
               fmt::format("{}+{}", each.k, each.m), each.bytes_per_second / 1e9, is_device ? gain : "",
               !is_device                           ? ""
               : each.pays_from_bytes == UINT64_MAX ? "never"
                                                    : size(each.pays_from_bytes));
  }
}

int devices(const OutputFlags &flags) {
  const std::vector<tandem_device> list = all<tandem_device>(tandem_devices);
  const std::vector<tandem_missing_device> missing = all<tandem_missing_device>(tandem_missing_devices);
  const std::vector<tandem_kernel> kernels = all<tandem_kernel>(tandem_kernels);
  const std::vector<tandem_speed> speeds = speeds_here();
  if (flags.json) {
    Json object = {{"command", "devices"},     {"version", tandem_version_string()}, {"devices", Json::array()},
                   {"missing", Json::array()}, {"kernels", Json::array()},           {"speeds", Json::array()}};
    for (const tandem_device &device : list)
      object["devices"].push_back({{"name", device.name},
                                   {"kind", device.kind},
                                   {"description", device.description},
                                   {"kernel", device.kernel},
                                   {"threads", device.thread_count}});
    for (const tandem_missing_device &each : missing)
      object["missing"].push_back({{"backend", each.backend}, {"reason", each.reason}});
    for (const tandem_kernel &kernel : kernels)
      object["kernels"].push_back(
          {{"name", kernel.name}, {"needs", kernel.needs}, {"available", kernel.available != 0}});
    for (const tandem_speed &each : speeds) {
      Json speed = {
          {"worker", each.worker},    {"operation", operation_name(each.operation)}, {"k", each.k},      {"m", each.m},
          {"lanes", each.lane_count}, {"bytes_per_second", each.bytes_per_second},   {"date", each.date}};
      speed["latency_seconds"] = each.latency_seconds;
      if (each.pays_from_bytes != 0) {
        const auto size = [](std::uint64_t bytes) { return bytes != UINT64_MAX ? Json(bytes) : Json(nullptr); };
        speed["gain"] = each.gain;
        speed["pays_from_bytes"] = size(each.pays_from_bytes);
      }
      object["speeds"].push_back(std::move(speed));
    }
    print_json(object);
    return kExitDone;
  }
  if (flags.quiet) return kExitDone;
  fmt::print("{:<12} {:<18} {:<14} {:>7}  {}\n", "DEVICE", "KIND", "KERNEL", "THREADS", "DESCRIPTION");
  for (const tandem_device &device : list)
    fmt::print("{:<12} {:<18} {:<14} {:>7}  {}\n", device.name, device.kind, device.kernel, device.thread_count,
               device.description);
  for (const tandem_missing_device &each : missing) fmt::print("{:<12} {}\n", each.backend, each.reason);
  fmt::print("\n{:<14} {:<10} {}\n", "CPU KERNEL", "AVAILABLE", "NEEDS");
  for (const tandem_kernel &kernel : kernels)
    fmt::print("{:<14} {:<10} {}\n", kernel.name, kernel.available != 0 ? "yes" : "no",
               kernel.needs[0] != 0 ? kernel.needs : "nothing");
  print_speeds(speeds);
  return kExitDone;
}

}  // namespace

void add_devices_command(CLI::App &app, Invocation &invocation) {
  const auto flags = std::make_shared<OutputFlags>();
  CLI::App *command = app.add_subcommand("devices", "List the devices and CPU kernels of this machine");
  add_output_flags(*command, *flags);
  command->callback([flags, &invocation] { invocation.run = [flags] { return devices(*flags); }; });
}

}  // namespace tandem::cli
