// tandem devices
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <iterator>
#include <map>
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

std::string size_text(std::uint64_t bytes) {
  if (bytes == UINT64_MAX) return "never";
  constexpr const char *kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return fmt::format("{:.{}f} {}", value, value < 10 && unit > 0 ? 1 : 0, kUnits[unit]);
}

// What hybrids have learned on this machine. A tuning file that cannot be read is no reason to list nothing.
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
  fmt::print("\n{:<12} {:<9} {:>7} {:>7} {:>9} {:>6} {:>11}\n", "HYBRID", "OPERATION", "CODE", "GB/S", "ALONE", "GAIN",
             "PAYS FROM");
  const auto rate = [](double bytes_per_second) {
    return bytes_per_second > 0 ? fmt::format("{:.1f}", bytes_per_second / 1e9) : std::string("-");
  };
  for (const tandem_speed &each : speeds) {
    const bool is_device = each.pays_from_bytes != 0;
    const std::string gain = each.gain > 0 ? fmt::format("{:.2f}", each.gain) : "-";
    fmt::print("{:<12} {:<9} {:>7} {:>7} {:>9} {:>6} {:>11}\n", each.worker, operation_name(each.operation),
               fmt::format("{}+{}", each.k, each.m), rate(each.bytes_per_second), rate(each.alone_bytes_per_second),
               is_device ? gain : "", is_device ? size_text(each.pays_from_bytes) : "");
  }
}

int devices(const OutputFlags &flags) {
  const std::vector<tandem_device> list = all<tandem_device>(tandem_devices);
  const std::vector<tandem_missing_device> missing = all<tandem_missing_device>(tandem_missing_devices);
  const std::vector<tandem_kernel> kernels = all<tandem_kernel>(tandem_kernels);
  const std::vector<tandem_speed> speeds = speeds_here();
  if (flags.json) {
    nlohmann::ordered_json object = {{"command", "devices"},
                                     {"version", tandem_version_string()},
                                     {"devices", nlohmann::ordered_json::array()},
                                     {"missing", nlohmann::ordered_json::array()},
                                     {"kernels", nlohmann::ordered_json::array()},
                                     {"speeds", nlohmann::ordered_json::array()}};
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
      nlohmann::ordered_json speed = {
          {"worker", each.worker},    {"operation", operation_name(each.operation)}, {"k", each.k},      {"m", each.m},
          {"lanes", each.lane_count}, {"bytes_per_second", each.bytes_per_second},   {"date", each.date}};
      speed["latency_seconds"] = each.latency_seconds;
      if (each.alone_bytes_per_second > 0) {
        speed["alone_bytes_per_second"] = each.alone_bytes_per_second;
        speed["alone_latency_seconds"] = each.alone_latency_seconds;
      }
      if (each.pays_from_bytes != 0) {
        const auto size = [](std::uint64_t bytes) {
          return bytes != UINT64_MAX ? nlohmann::ordered_json(bytes) : nlohmann::ordered_json(nullptr);
        };
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

// tandem devices --kernel: what the generated kernels of a code cost, or their text.
struct KernelFlags {
  bool kernel = false;
  std::uint32_t k = 10, m = 4;
  std::string matrix, text_dialect, technique = "compiled", operation = "encode", access = "aligned";
  tandem_kernel_text_options options = {};
};

const std::map<std::string, std::int32_t> kDialects = {
    {"opencl", TANDEM_DIALECT_OPENCL_C}, {"cuda", TANDEM_DIALECT_CUDA_C}, {"host", TANDEM_DIALECT_HOST_C}};
const std::map<std::string, std::int32_t> kTechniques = {{"compiled", TANDEM_TECHNIQUE_COMPILED},
                                                         {"tables", TANDEM_TECHNIQUE_TABLES}};

const std::map<std::string, std::int32_t> kOperations = {
    {"encode", TANDEM_OPERATION_ENCODE}, {"update", TANDEM_OPERATION_UPDATE}, {"verify", TANDEM_OPERATION_VERIFY}};

tandem_kernel_text_info describe(const tandem_codec *codec, const tandem_kernel_text_options &options,
                                 std::string *text) {
  auto info = sized<tandem_kernel_text_info>();
  check(tandem_kernel_text(codec, &options, nullptr, 0, &info));
  if (text != nullptr) {
    text->resize(info.text_bytes);
    check(tandem_kernel_text(codec, &options, text->data(), text->size(), &info));
    text->pop_back();
  }
  return info;
}

int kernel_texts(const OutputFlags &output, KernelFlags flags) {
  auto codec_options = sized<tandem_codec_options>();
  codec_options.k = flags.k;
  codec_options.m = flags.m;
  codec_options.allow_non_mds = 1;  // nothing is coded
  if (!flags.matrix.empty()) check(tandem_matrix_from_name(flags.matrix.c_str(), &codec_options.matrix));
  tandem_codec *made = nullptr;
  check(tandem_codec_create(&codec_options, &made));
  const std::unique_ptr<tandem_codec, Destroy> codec(made);

  tandem_kernel_text_options &options = flags.options;
  options.struct_bytes = sizeof options;
  options.access = flags.access == "any" ? TANDEM_ACCESS_ANY : TANDEM_ACCESS_ALIGNED;
  if (!flags.text_dialect.empty()) {
    options.dialect = kDialects.at(flags.text_dialect);
    options.technique = kTechniques.at(flags.technique);
    options.operation = kOperations.at(flags.operation);
    std::string text;
    describe(codec.get(), options, &text);
    fmt::print("{}", text);
    return kExitDone;
  }
  nlohmann::ordered_json object = {{"command", "devices"}, {"k", flags.k}, {"m", flags.m}};
  if (!output.json && !output.quiet) {
    fmt::print("Generated kernels for {}+{}, on 32-bit words, per byte of data:\n\n", flags.k, flags.m);
    fmt::print("{:<10} {:<8} {:>10} {:>12} {:>6} {:>6} {:>8} {:>10}\n", "TECHNIQUE", "OPER.", "2-INPUT OPS",
               "3-INPUT OPS", "LOADS", "STORES", "LOOK-UPS", "TEXT BYTES");
  }
  for (const auto &[technique, technique_value] : kTechniques) {
    for (const auto &[operation, value] : kOperations) {
      options.technique = technique_value;
      options.operation = value;
      const tandem_kernel_text_info info = describe(codec.get(), options, nullptr);
      const auto per_byte = [&](std::uint64_t count) {
        return static_cast<double>(count) / static_cast<double>(info.data_bytes);
      };
      if (output.json) {
        object["kernels"].push_back({{"technique", technique},
                                     {"operation", operation},
                                     {"two_input_operations_per_byte", per_byte(info.two_input_operations)},
                                     {"three_input_operations_per_byte", per_byte(info.three_input_operations)},
                                     {"loads_per_byte", per_byte(info.loads)},
                                     {"stores_per_byte", per_byte(info.stores)},
                                     {"table_lookups_per_byte", per_byte(info.table_lookups)},
                                     {"text_bytes", info.text_bytes - 1}});
      } else if (!output.quiet) {
        fmt::print("{:<10} {:<8} {:>10.2f} {:>12.2f} {:>6.2f} {:>6.2f} {:>8.2f} {:>10}\n", technique, operation,
                   per_byte(info.two_input_operations), per_byte(info.three_input_operations), per_byte(info.loads),
                   per_byte(info.stores), per_byte(info.table_lookups), info.text_bytes - 1);
      }
    }
  }
  if (output.json) print_json(object);
  return kExitDone;
}

}  // namespace

void add_devices_command(CLI::App &app, Invocation &invocation) {
  const auto flags = std::make_shared<OutputFlags>();
  CLI::App *command = app.add_subcommand("devices", "List what this machine has: devices and CPU kernels");
  add_output_flags(*command, *flags);
  const auto kernel = std::make_shared<KernelFlags>();
  CLI::Option *asked = command->add_flag("--kernel", kernel->kernel,
                                         "Show what the generated device kernels of a code cost, or their text");
  const auto with_kernel = [&](CLI::Option *option) { option->needs(asked); };
  with_kernel(command->add_option("-k", kernel->k, "With --kernel: data shards; default 10"));
  with_kernel(command->add_option("-m", kernel->m, "With --kernel: parity shards; default 4"));
  with_kernel(command->add_option("--matrix", kernel->matrix, "With --kernel: generator matrix; default isal-cauchy"));
  CLI::Option *text =
      command->add_option("--text", kernel->text_dialect, "With --kernel: print the text in this dialect, no table")
          ->check(CLI::IsMember({"opencl", "cuda", "host"}));
  text->needs(asked)->excludes(command->get_option("--json"));
  command->add_option("--technique", kernel->technique, "With --text: compiled (default) or tables")
      ->check(CLI::IsMember({"compiled", "tables"}))
      ->needs(text);
  command->add_option("--operation", kernel->operation, "With --text: encode (default), update or verify")
      ->check(CLI::IsMember({"encode", "update", "verify"}))
      ->needs(text);
  with_kernel(command
                  ->add_option("--access", kernel->access,
                               "With --kernel: shards are aligned (default), or each at any address")
                  ->check(CLI::IsMember({"aligned", "any"})));
  with_kernel(command->add_option("--element-bytes", kernel->options.element_bytes,
                                  "With --kernel: bytes that a work-item loads at once; default 16"));
  with_kernel(command->add_option("--rows-per-pass", kernel->options.rows_per_pass,
                                  "With --kernel: outputs computed together; default 4"));
  command->callback([flags, kernel, &invocation] {
    invocation.run = [flags, kernel] { return kernel->kernel ? kernel_texts(*flags, *kernel) : devices(*flags); };
  });
}

}  // namespace tandem::cli
