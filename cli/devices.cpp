// SPDX-License-Identifier: Apache-2.0
// tandem devices
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <nlohmann/json.hpp>
#include <vector>

#include "cli/commands.hpp"
#include "cli/option_table.hpp"
#include "tandem/tools.h"

namespace tandem::cli {
namespace {

int devices(const OutputFlags &flags) {
  const std::vector<tandem_device> list = all<tandem_device>(tandem_devices);
  const std::vector<tandem_kernel> kernels = all<tandem_kernel>(tandem_kernels);
  if (flags.json) {
    Json object = {{"command", "devices"},
                   {"version", tandem_version_string()},
                   {"devices", Json::array()},
                   {"missing", Json::array()},
                   {"kernels", Json::array()}};
    for (const tandem_device &device : list)
      if (*device.missing != 0)
        object["missing"].push_back({{"backend", device.name}, {"reason", device.missing}});
      else
        object["devices"].push_back({{"name", device.name},
                                     {"kind", device.kind},
                                     {"description", device.description},
                                     {"kernel", device.kernel},
                                     {"threads", device.thread_count}});
    for (const tandem_kernel &kernel : kernels)
      object["kernels"].push_back(
          {{"name", kernel.name}, {"needs", kernel.needs}, {"available", kernel.available != 0}});
    print_json(object);
    return kExitDone;
  }
  if (flags.quiet) return kExitDone;
  fmt::print("{:<12} {:<18} {:<14} {:>7}  {}\n", "DEVICE", "KIND", "KERNEL", "THREADS", "DESCRIPTION");
  for (const tandem_device &device : list)
    if (*device.missing != 0)
      fmt::print("{:<12} {}\n", device.name, device.missing);
    else
      fmt::print("{:<12} {:<18} {:<14} {:>7}  {}\n", device.name, device.kind, device.kernel, device.thread_count,
                 device.description);
  fmt::print("\n{:<14} {:<10} {}\n", "CPU KERNEL", "AVAILABLE", "NEEDS");
  for (const tandem_kernel &kernel : kernels)
    fmt::print("{:<14} {:<10} {}\n", kernel.name, kernel.available != 0 ? "yes" : "no",
               kernel.needs[0] != 0 ? kernel.needs : "nothing");
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
