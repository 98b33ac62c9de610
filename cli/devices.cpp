// tandem devices
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "cli/commands.hpp"
#include "cli/option_table.hpp"
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
               is_device ? gain : "",
               !is_device                           ? ""
               : each.pays_from_bytes == UINT64_MAX ? "never"
                                                    : size(each.pays_from_bytes));
  }
}

// The ways in which a CPU kernel can run an operation of a code.
struct CodeTechniques {
  std::uint32_t k, m, lost;  // lost: 0 = encode
  std::vector<tandem_plan_technique> ways;
};

// kernel: "" is the best one. A kernel that this CPU does not run is refused, with the list.
std::vector<CodeTechniques> techniques_of(const std::string &kernel, const std::vector<tandem_codec_options> &codes) {
  auto context_options = sized<tandem_context_options>();
  context_options.backend = "cpu";
  context_options.executor = TANDEM_EXECUTOR_SERIAL;
  context_options.thread_count = 1;
  // Ignores the environment: this command tells which values the environment may have.
  context_options.policy = context_options.resources = "";
  context_options.tuning_file = context_options.timeline_file = "";
  context_options.kernel = kernel.c_str();
  tandem_context *context = nullptr;
  check(tandem_context_create(&context_options, &context));
  const ContextOwner context_owner(context);
  std::vector<CodeTechniques> list;
  for (const tandem_codec_options &code : codes) {
    tandem_codec *codec = nullptr;
    check(tandem_codec_create(&code, &codec));
    const std::unique_ptr<tandem_codec, Destroy> codec_owner(codec);
    for (const std::uint32_t lost : std::set<std::uint32_t>{0, code.m / 2, code.m}) {
      if (lost > code.k) continue;
      std::vector<std::uint8_t> present(code.k + code.m, 1);
      std::fill_n(present.begin(), lost, std::uint8_t{0});
      auto options = sized<tandem_plan_options>();
      options.operation = lost == 0 ? TANDEM_OPERATION_ENCODE : TANDEM_OPERATION_DECODE;
      if (lost != 0) options.present = present.data();
      tandem_plan *plan = nullptr;
      check(tandem_plan_create(context, codec, &options, &plan));
      const std::unique_ptr<tandem_plan, decltype(&tandem_plan_destroy)> plan_owner(plan, tandem_plan_destroy);
      list.push_back({code.k, code.m, lost, all<tandem_plan_technique>([&](auto... arguments) {
                        return tandem_plan_techniques(plan, arguments...);
                      })});
    }
  }
  return list;
}

std::vector<tandem_codec_options> usual_codes() {
  constexpr std::pair<std::uint32_t, std::uint32_t> kCodes[] = {{10, 4},  {16, 4},  {20, 10},  {32, 8},
                                                                {32, 32}, {64, 16}, {128, 32}, {128, 128}};
  std::vector<tandem_codec_options> codes;
  for (const auto &[k, m] : kCodes) {
    codes.push_back(sized<tandem_codec_options>());
    codes.back().k = k;
    codes.back().m = m;
  }
  return codes;
}

void print_techniques(const std::vector<CodeTechniques> &list) {
  fmt::print(
      "Techniques. Products: multiplications of a vector by a coefficient, for a vector of each shard. Cost: "
      "estimated\n"
      "time of that, in products of the matrix. * = used. Where there is no choice, nothing is counted.\n\n");
  constexpr const char *kLine = "{:<9} {:<11} {:<22} {:>9} {:>14} {:>14}\n";
  fmt::print(kLine, "CODE", "OPERATION", "TECHNIQUE", "PRODUCTS", "COST IN CACHE", "OUT OF CACHE");
  for (const CodeTechniques &each : list) {
    for (const tandem_plan_technique &way : each.ways) {
      const auto cost = [&](double value, bool is_used) {
        return (way.products != 0 ? fmt::format("{:.0f}", value) : "-") + (is_used ? "*" : " ");
      };
      fmt::print(kLine, fmt::format("{}+{}", each.k, each.m),
                 each.lost == 0 ? "encode" : fmt::format("decode {}", each.lost), way.name,
                 way.products != 0 ? std::to_string(way.products) : "-", cost(way.cost, way.is_used != 0),
                 cost(way.cost_out_of_cache, way.is_used_out_of_cache != 0));
    }
  }
}

nlohmann::ordered_json techniques_json(const std::vector<CodeTechniques> &list) {
  auto array = nlohmann::ordered_json::array();
  for (const CodeTechniques &each : list) {
    for (const tandem_plan_technique &way : each.ways) {
      nlohmann::ordered_json technique = {{"k", each.k}, {"m", each.m}};
      technique["operation"] = each.lost == 0 ? "encode" : "decode";
      if (each.lost != 0) technique["lost"] = each.lost;
      technique["technique"] = way.name;
      technique["used_in_cache"] = way.is_used != 0;
      technique["used_out_of_cache"] = way.is_used_out_of_cache != 0;
      if (way.products != 0) {
        technique["products"] = way.products;
        technique["cost_in_cache"] = way.cost;
        technique["cost_out_of_cache"] = way.cost_out_of_cache;
      }
      array.push_back(std::move(technique));
    }
  }
  return array;
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
  std::string name;  // of a CPU kernel
  std::uint32_t k = 10, m = 4;
  std::string matrix, text_dialect, technique = "compiled", operation = "encode", access = "aligned", vendor;
  tandem_kernel_text_options options = {};
};

const std::map<std::string, std::int32_t> kDialects = {
    {"opencl", TANDEM_DIALECT_OPENCL_C}, {"cuda", TANDEM_DIALECT_CUDA_C}, {"host", TANDEM_DIALECT_HOST_C}};
const std::map<std::string, std::int32_t> kTechniques = {{"compiled", TANDEM_TECHNIQUE_COMPILED},
                                                         {"tables", TANDEM_TECHNIQUE_TABLES},
                                                         {"transform", TANDEM_TECHNIQUE_TRANSFORM}};

// In the order in which they are shown.
const std::vector<std::pair<std::string, std::int32_t>> kVendors = {{"nvidia", TANDEM_KERNEL_DEVICE_NVIDIA},
                                                                    {"amd", TANDEM_KERNEL_DEVICE_AMD},
                                                                    {"intel", TANDEM_KERNEL_DEVICE_INTEL},
                                                                    {"gpu", TANDEM_KERNEL_DEVICE_OTHER_GPU},
                                                                    {"cpu", TANDEM_KERNEL_DEVICE_CPU}};
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

bool can_transform(const tandem_codec *codec, const tandem_kernel_text_options &options) {
  auto info = sized<tandem_kernel_text_info>();
  const tandem_status status = tandem_kernel_text(codec, &options, nullptr, 0, &info);
  if (status != TANDEM_ERROR_UNSUPPORTED) check(status);
  return status == TANDEM_OK;
}

tandem_codec_options codec_options_of(const KernelFlags &flags) {
  auto options = sized<tandem_codec_options>();
  options.k = flags.k;
  options.m = flags.m;
  options.allow_non_mds = 1;  // nothing is coded
  if (!flags.matrix.empty()) check(tandem_matrix_from_name(flags.matrix.c_str(), &options.matrix));
  check(tandem_matrix_field(options.matrix, &options.field));
  return options;
}

// tandem devices --kernel NAME: how a CPU kernel runs the usual codes, or one code.
int kernel_techniques(const OutputFlags &output, const KernelFlags &flags, bool is_one_code) {
  const std::vector<CodeTechniques> list =
      techniques_of(flags.name, is_one_code ? std::vector{codec_options_of(flags)} : usual_codes());
  if (output.json) {
    print_json({{"command", "devices"}, {"kernel", flags.name}, {"techniques", techniques_json(list)}});
  } else if (!output.quiet) {
    print_techniques(list);
  }
  return kExitDone;
}

int kernel_texts(const OutputFlags &output, KernelFlags flags) {
  const tandem_codec_options codec_options = codec_options_of(flags);
  tandem_codec *made = nullptr;
  check(tandem_codec_create(&codec_options, &made));
  const std::unique_ptr<tandem_codec, Destroy> codec(made);

  tandem_kernel_text_options &options = flags.options;
  options.struct_bytes = sizeof options;
  options.access = flags.access == "any" ? TANDEM_ACCESS_ANY : TANDEM_ACCESS_ALIGNED;
  for (const auto &[name, value] : kVendors)
    if (name == flags.vendor) options.device = value;
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
      if (technique_value == TANDEM_TECHNIQUE_TRANSFORM && !can_transform(codec.get(), options)) continue;
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
  if (!output.json && !output.quiet) {
    fmt::print(
        "\nBuilt-in values of compiled encode, and the technique that is compiled, where no tuning file has others:\n\n"
        "{:<10} {:>13} {:>11} {:>11}  {}\n",
        "DEVICE", "ELEMENT BYTES", "ROWS A PASS", "GROUP ITEMS", "TECHNIQUE");
  }
  for (const auto &[name, value] : kVendors) {
    if (!flags.vendor.empty() && name != flags.vendor) continue;
    auto built_in = sized<tandem_kernel_text_options>();
    built_in.device = value;
    if (value == TANDEM_KERNEL_DEVICE_NVIDIA) built_in.dialect = TANDEM_DIALECT_CUDA_C;
    const tandem_kernel_text_info info = describe(codec.get(), built_in, nullptr);
    const char *technique = info.built_in_technique == TANDEM_TECHNIQUE_TRANSFORM ? "transform" : "compiled";
    if (output.json) {
      object["built_in"].push_back({{"device", name},
                                    {"element_bytes", info.element_bytes},
                                    {"elements_per_item", info.elements_per_item},
                                    {"rows_per_pass", info.rows_per_pass},
                                    {"group_items", info.group_items},
                                    {"technique", technique}});
    } else if (!output.quiet) {
      fmt::print("{:<10} {:>13} {:>11} {:>11}  {}\n", name, info.element_bytes, info.rows_per_pass, info.group_items,
                 technique);
    }
  }
  if (output.json) print_json(object);
  return kExitDone;
}

}  // namespace

void add_devices_command(CLI::App &app, Invocation &invocation) {
  const auto flags = std::make_shared<OutputFlags>();
  CLI::App *command = app.add_subcommand("devices", "List the devices and CPU kernels of this machine");
  add_output_flags(*command, *flags);
  const auto kernel = std::make_shared<KernelFlags>();
  CLI::Option *asked =
      command
          ->add_option("--kernel", kernel->name,
                       "With NAME: show the techniques of this CPU kernel, their costs and the one in use. Without "
                       "NAME: show the costs of the generated device kernels of a code, or their text")
          ->expected(0, 1)
          ->type_name("[NAME]");
  // Options of the code serve both kinds of kernels. The other options serve texts alone.
  std::vector<CLI::Option *> of_code, of_texts;
  const auto add = [&](std::vector<CLI::Option *> &list, CLI::Option *option) {
    list.push_back(option->needs(asked));
    return option;
  };
  add(of_code, command->add_option("-k", kernel->k, "With --kernel: data shards; default 10"));
  add(of_code, command->add_option("-m", kernel->m, "With --kernel: parity shards; default 4"));
  add(of_code, command->add_option("--matrix", kernel->matrix, "With --kernel: generator matrix"))
      ->check(matrix_value(false))
      ->default_str("isal-cauchy")
      ->type_name("NAME");
  CLI::Option *text = add(of_texts, command->add_option("--text", kernel->text_dialect,
                                                        "With --kernel: print the text in this dialect, no table"));
  text->check(one_of({"opencl", "cuda", "host"}))->excludes(command->get_option("--json"));
  command->add_option("--technique", kernel->technique, "With --text: compiled (default), tables or transform")
      ->check(one_of({"compiled", "tables", "transform"}))
      ->needs(text);
  command->add_option("--operation", kernel->operation, "With --text: encode (default), update or verify")
      ->check(one_of({"encode", "update", "verify"}))
      ->needs(text);
  add(of_texts, command->add_option("--access", kernel->access,
                                    "With --kernel: addresses of the shards: aligned (default), or any"))
      ->check(one_of({"aligned", "any"}));
  add(of_texts, command->add_option("--element-bytes", kernel->options.element_bytes,
                                    "With --kernel: bytes that a work-item loads at once; default: the device's own"));
  add(of_texts, command->add_option("--rows-per-pass", kernel->options.rows_per_pass,
                                    "With --kernel: outputs computed together; default: the device's own"));
  add(of_texts, command->add_option("--vendor", kernel->vendor,
                                    "With --kernel: the kind of device; gpu: any other GPU. Default: all; with --text "
                                    "cuda: nvidia, opencl: gpu, host: cpu"))
      ->check(one_of({"nvidia", "amd", "intel", "gpu", "cpu"}));
  for (CLI::Option *each : of_texts) each->group(kExpert);
  for (const char *name : {"--technique", "--operation"}) command->get_option(name)->group(kExpert);
  command->callback([flags, kernel, asked, of_code, of_texts, &invocation] {
    const auto given = [](const CLI::Option *option) { return option->count() != 0; };
    const bool is_one_code = std::ranges::any_of(of_code, given);
    if (const auto text_option = std::ranges::find_if(of_texts, given);
        !kernel->name.empty() && text_option != of_texts.end())
      throw Failure{kExitWrongUsage,
                    fmt::format("{} is of device kernels: give no name to --kernel", (*text_option)->get_name())};
    invocation.run = [flags, kernel, is_one_code, is_asked = given(asked)] {
      if (!is_asked) return devices(*flags);
      return kernel->name.empty() ? kernel_texts(*flags, *kernel) : kernel_techniques(*flags, *kernel, is_one_code);
    };
  });
}

}  // namespace tandem::cli
