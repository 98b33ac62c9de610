// tandem devices
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "tandem/tools.h"

namespace tandem::cli {
namespace {

template <class Struct, class List>
std::vector<Struct> all(List list) {
  std::size_t count = 0;
  check(list(nullptr, 0, sizeof(Struct), &count));
  std::vector<Struct> found(count);
  check(list(found.data(), found.size(), sizeof(Struct), &count));
  if (count < found.size()) found.resize(count);
  return found;
}

int devices(const OutputFlags &flags) {
  const std::vector<tandem_device> list = all<tandem_device>(tandem_devices);
  const std::vector<tandem_kernel> kernels = all<tandem_kernel>(tandem_kernels);
  if (flags.json) {
    nlohmann::ordered_json object = {{"command", "devices"},
                                     {"version", tandem_version_string()},
                                     {"devices", nlohmann::ordered_json::array()},
                                     {"kernels", nlohmann::ordered_json::array()}};
    for (const tandem_device &device : list)
      object["devices"].push_back({{"name", device.name},
                                   {"kind", device.kind},
                                   {"description", device.description},
                                   {"kernel", device.kernel},
                                   {"threads", device.thread_count}});
    for (const tandem_kernel &kernel : kernels)
      object["kernels"].push_back(
          {{"name", kernel.name}, {"needs", kernel.needs}, {"available", kernel.available != 0}});
    fmt::print("{}\n", object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return kExitDone;
  }
  if (flags.quiet) return kExitDone;
  fmt::print("{:<12} {:<18} {:<14} {:>7}  {}\n", "DEVICE", "KIND", "KERNEL", "THREADS", "DESCRIPTION");
  for (const tandem_device &device : list)
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
  CLI::App *command = app.add_subcommand("devices", "List what this machine has: devices and CPU kernels");
  add_output_flags(*command, *flags);
  command->callback([flags, &invocation] { invocation.run = [flags] { return devices(*flags); }; });
}

}  // namespace tandem::cli
