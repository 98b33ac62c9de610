// SPDX-License-Identifier: Apache-2.0
// tandem-bench kernels, techniques
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "bench/commands.hpp"
#include "cli/option_table.hpp"
#include "core/codec.hpp"
#include "core/plan.hpp"
#include "cpu/factory.hpp"
#include "device/built_in.hpp"
#include "device/kernel_text.hpp"
#include "device/transform_text.hpp"
#include "tandem/tools.h"

namespace tandem::bench {

using namespace cli;

namespace {

struct CodeFlags {
  std::uint32_t k = 10, m = 4;
  std::string matrix;
};

std::vector<CLI::Option *> add_code_flags(CLI::App &command, CodeFlags &flags) {
  return {command.add_option("-k", flags.k, "Data shards; default 10"),
          command.add_option("-m", flags.m, "Parity shards; default 4"),
          command.add_option("--matrix", flags.matrix, "Generator matrix")
              ->check(matrix_value(MatrixUse::sets))
              ->default_str("isal-cauchy")
              ->type_name("NAME")};
}

tandem_codec_options options_of(const CodeFlags &flags) {
  auto options = sized<tandem_codec_options>();
  options.k = flags.k;
  options.m = flags.m;
  options.allow_non_mds = 1;  // nothing is coded
  if (!flags.matrix.empty()) check(tandem_matrix_from_name(flags.matrix.c_str(), &options.matrix));
  return options;
}

core::ShardSet shards(unsigned begin, unsigned end) {
  core::ShardSet set;
  for (unsigned i = begin; i < end; ++i) set.set(i);
  return set;
}

// ---- techniques: how a CPU kernel can run an operation of a code

struct CodeTechniques {
  std::uint32_t k, m, lost;  // lost: 0 = encode
  std::vector<core::TechniqueCost> ways;
};

// A kernel that this CPU does not run is refused, with the list.
std::vector<CodeTechniques> techniques_of(const std::string &kernel, const std::vector<tandem_codec_options> &codes) {
  cpu::Options options;
  options.kernel = kernel;
  options.executor = "serial";
  options.thread_count = 1;
  cpu::Decisions choice = {};
  const std::unique_ptr<core::Backend> backend = cpu::make_backend(options, base::Log(), &choice);
  std::vector<CodeTechniques> list;
  for (const tandem_codec_options &code : codes) {
    const std::shared_ptr<const core::Codec> codec = core::make_codec(code);
    for (const std::uint32_t lost : std::set<std::uint32_t>{0, code.m / 2, code.m}) {
      if (lost > code.k) continue;
      const core::Operator what = lost == 0 ? codec->encode(shards(code.k, code.k + code.m)).what
                                            : codec->solve(shards(lost, code.k + code.m), shards(0, lost))->what;
      list.push_back({code.k, code.m, lost, backend->prepare(what)->techniques()});
    }
  }
  return list;
}

std::vector<tandem_codec_options> usual_codes() {
  const CodeFlags usual[] = {{10, 4, {}},  {16, 4, {}},  {20, 10, {}},  {32, 8, {}},
                             {32, 32, {}}, {64, 16, {}}, {128, 32, {}}, {128, 128, {}}};
  std::vector<tandem_codec_options> codes;
  std::ranges::transform(usual, std::back_inserter(codes), options_of);
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
    for (const core::TechniqueCost &way : each.ways) {
      const auto cost = [&](double value, bool is_used) {
        return (way.products != 0 ? fmt::format("{:.0f}", value) : "-") + (is_used ? "*" : " ");
      };
      fmt::print(kLine, fmt::format("{}+{}", each.k, each.m),
                 each.lost == 0 ? "encode" : fmt::format("decode {}", each.lost), way.name,
                 way.products != 0 ? std::to_string(way.products) : "-", cost(way.cost, way.is_used),
                 cost(way.cost_out_of_cache, way.is_used_out_of_cache));
    }
  }
}

nlohmann::ordered_json to_json(const std::vector<CodeTechniques> &list) {
  auto array = nlohmann::ordered_json::array();
  for (const CodeTechniques &each : list) {
    for (const core::TechniqueCost &way : each.ways) {
      nlohmann::ordered_json technique = {{"k", each.k}, {"m", each.m}};
      technique["operation"] = each.lost == 0 ? "encode" : "decode";
      if (each.lost != 0) technique["lost"] = each.lost;
      technique["technique"] = way.name;
      technique["used_in_cache"] = way.is_used;
      technique["used_out_of_cache"] = way.is_used_out_of_cache;
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

// ---- kernels: what the generated kernels of a code cost, or their text

struct KernelFlags {
  CodeFlags code;
  std::string dialect, technique = "compiled", operation = "encode", access = "aligned", vendor;
  std::uint32_t element_bytes = 0, rows_per_pass = 0;
};

const std::map<std::string, device::Dialect> kDialects = {
    {"opencl", device::Dialect::opencl_c}, {"cuda", device::Dialect::cuda_c}, {"host", device::Dialect::host_c}};
// In the order in which they are shown.
const std::vector<std::pair<std::string, device::Vendor>> kVendors = {{"nvidia", device::Vendor::nvidia},
                                                                      {"amd", device::Vendor::amd},
                                                                      {"intel", device::Vendor::intel},
                                                                      {"gpu", device::Vendor::other},
                                                                      {"cpu", device::Vendor::cpu}};
constexpr const char *kOperations[] = {"encode", "update", "verify"};

device::Vendor vendor_of(const KernelFlags &flags) {
  for (const auto &[name, vendor] : kVendors)
    if (name == flags.vendor) return vendor;
  return flags.dialect == "cuda"   ? device::Vendor::nvidia
         : flags.dialect == "host" ? device::Vendor::cpu
                                   : device::Vendor::other;
}

// The matrix and mode of an operation.
std::pair<core::Matrix, core::Mode> application(const core::Matrix &parity, const std::string &operation) {
  if (operation == "encode") return {parity, core::Mode::assign};
  if (operation == "verify") return {parity, core::Mode::compare};
  core::Matrix column(parity.rows(), 1);
  for (unsigned r = 0; r < parity.rows(); ++r) column.at(r, 0) = parity.at(r, 0);
  return {core::update_of(column).dense(), core::Mode::accumulate};
}

// A kernel of a code. points: null if technique transform does not do this operation of this code.
struct CodeKernel {
  core::Matrix matrix;
  device::KernelSpec spec;
  std::shared_ptr<const device::CauchyPoints> points;

  CodeKernel(const core::Codec &codec, const KernelFlags &flags) {
    if (codec.field() != core::Field::gf8)
      base::fail(TANDEM_ERROR_UNSUPPORTED, "the codec is over GF(2^16): devices have kernels for GF(2^8) alone");
    std::tie(matrix, spec.mode) = application(codec.parity(), flags.operation);
    spec.dialect = flags.dialect.empty() ? device::Dialect::opencl_c : kDialects.at(flags.dialect);
    const auto technique = std::ranges::find(device::kTechniqueNames, flags.technique);
    spec.technique = static_cast<device::Technique>(technique - device::kTechniqueNames.begin());
    spec.access = flags.access == "any" ? device::Access::shifted : device::Access::aligned;
    const device::Vendor vendor = vendor_of(flags);
    spec.tuning = device::built_in_tuning(vendor, matrix.rows(), matrix.columns());
    spec.byte_lanes = spec.dialect == device::Dialect::opencl_c && vendor == device::Vendor::cpu;
    const core::Operator encode = codec.encode(shards(codec.k(), codec.shard_count())).what;
    const auto *form = std::get_if<core::CauchyTransform>(&encode.form());
    if (form != nullptr && spec.mode != core::Mode::accumulate)
      points = std::make_shared<const device::CauchyPoints>(*form);
    if (spec.technique == device::Technique::transform && points != nullptr) use_transform(flags);
    if (flags.element_bytes != 0) spec.tuning.element_bytes = flags.element_bytes;
    if (flags.rows_per_pass != 0) spec.tuning.rows_per_pass = flags.rows_per_pass;
  }

  bool is_possible() const { return spec.technique != device::Technique::transform || points != nullptr; }

  device::KernelText text() const {
    if (!is_possible()) {
      base::fail(TANDEM_ERROR_UNSUPPORTED,
                 "technique transform encodes and verifies wide Cauchy codes (12 data and 4 parity shards or more) "
                 "with points in runs");
    }
    return device::generate_kernel(matrix, spec);
  }

  // The technique that a device compiles for this operation if no tuning file says otherwise.
  const char *built_in_technique(device::Vendor vendor) const {
    const bool transforms = points != nullptr && device::built_in_transforms(spec.dialect, vendor, spec.architecture,
                                                                             matrix.rows(), matrix.columns());
    return transforms ? "transform" : "compiled";
  }

 private:
  void use_transform(const KernelFlags &flags) {
    if (flags.rows_per_pass != 0)
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "rows_per_pass is not of technique transform, which has no passes");
    spec.points = points;
    spec.tuning = device::transform_tuning();
    if (flags.element_bytes != 0)
      spec.tuning.elements_per_item = device::KernelSpec::kTransformBytes / flags.element_bytes;
  }
};

int kernel_tables(const core::Codec &codec, const OutputFlags &output, const KernelFlags &given) {
  nlohmann::ordered_json object = {{"command", "kernels"}, {"k", given.code.k}, {"m", given.code.m}};
  const bool shows = !output.json && !output.quiet;
  if (shows) {
    fmt::print("Generated kernels for {}+{}, on 32-bit words, per byte of data:\n\n", given.code.k, given.code.m);
    fmt::print("{:<10} {:<8} {:>10} {:>12} {:>6} {:>6} {:>8} {:>10}\n", "TECHNIQUE", "OPER.", "2-INPUT OPS",
               "3-INPUT OPS", "LOADS", "STORES", "LOOK-UPS", "TEXT BYTES");
  }
  for (const char *technique : device::kTechniqueNames) {
    for (const char *operation : kOperations) {
      KernelFlags flags = given;
      flags.technique = technique;
      flags.operation = operation;
      const CodeKernel kernel(codec, flags);
      if (!kernel.is_possible()) continue;
      const device::KernelText text = kernel.text();
      const device::KernelOperations &count = text.operations;
      const auto per_byte = [&](std::uint64_t number) {
        return static_cast<double>(number) / static_cast<double>(count.data_bytes);
      };
      if (output.json) {
        object["kernels"].push_back({{"technique", technique},
                                     {"operation", operation},
                                     {"two_input_operations_per_byte", per_byte(count.two_input)},
                                     {"three_input_operations_per_byte", per_byte(count.three_input)},
                                     {"loads_per_byte", per_byte(count.loads)},
                                     {"stores_per_byte", per_byte(count.stores)},
                                     {"table_lookups_per_byte", per_byte(count.table_lookups)},
                                     {"text_bytes", text.text.size()}});
      } else if (shows) {
        fmt::print("{:<10} {:<8} {:>10.2f} {:>12.2f} {:>6.2f} {:>6.2f} {:>8.2f} {:>10}\n", technique, operation,
                   per_byte(count.two_input), per_byte(count.three_input), per_byte(count.loads),
                   per_byte(count.stores), per_byte(count.table_lookups), text.text.size());
      }
    }
  }
  if (shows) {
    fmt::print(
        "\nBuilt-in values of compiled encode, and the technique that is compiled, where no tuning file has others:\n\n"
        "{:<10} {:>13} {:>11} {:>11}  {}\n",
        "DEVICE", "ELEMENT BYTES", "ROWS A PASS", "GROUP ITEMS", "TECHNIQUE");
  }
  for (const auto &[name, vendor] : kVendors) {
    if (!given.vendor.empty() && name != given.vendor) continue;
    KernelFlags flags;
    flags.vendor = name;
    flags.dialect = vendor == device::Vendor::nvidia ? "cuda" : "opencl";
    const CodeKernel kernel(codec, flags);
    const device::KernelTuning &tuning = kernel.spec.tuning;
    const unsigned group_items = tuning.local[0] * tuning.local[1] * tuning.local[2];
    if (output.json) {
      object["built_in"].push_back({{"device", name},
                                    {"element_bytes", tuning.element_bytes},
                                    {"elements_per_item", tuning.elements_per_item},
                                    {"rows_per_pass", tuning.rows_per_pass},
                                    {"group_items", group_items},
                                    {"technique", kernel.built_in_technique(vendor)}});
    } else if (shows) {
      fmt::print("{:<10} {:>13} {:>11} {:>11}  {}\n", name, tuning.element_bytes, tuning.rows_per_pass, group_items,
                 kernel.built_in_technique(vendor));
    }
  }
  if (output.json) print_json(object);
  return kExitDone;
}

int kernels(const OutputFlags &output, const KernelFlags &flags) {
  const std::shared_ptr<const core::Codec> codec = core::make_codec(options_of(flags.code));
  if (flags.dialect.empty()) return kernel_tables(*codec, output, flags);
  fmt::print("{}", CodeKernel(*codec, flags).text().text);
  return kExitDone;
}

}  // namespace

void add_techniques_command(CLI::App &app, Invocation &invocation) {
  struct Flags {
    std::string kernel;
    CodeFlags code;
    OutputFlags output;
  };
  const auto flags = std::make_shared<Flags>();
  CLI::App *command = app.add_subcommand(
      "techniques",
      "Show the techniques of a CPU kernel for the usual codes or for one code, their costs and the ones in use");
  command->add_option("KERNEL", flags->kernel, "A name of `tandem devices`")->required();
  const std::vector<CLI::Option *> of_code = add_code_flags(*command, flags->code);
  add_output_flags(*command, flags->output);
  command->callback([flags, of_code, &invocation] {
    const bool is_one_code = std::ranges::any_of(of_code, [](const CLI::Option *each) { return each->count() != 0; });
    invocation.run = [flags, is_one_code] {
      return run_inside([&] {
        const std::vector<CodeTechniques> list =
            techniques_of(flags->kernel, is_one_code ? std::vector{options_of(flags->code)} : usual_codes());
        if (flags->output.json) {
          print_json({{"command", "techniques"}, {"kernel", flags->kernel}, {"techniques", to_json(list)}});
        } else if (!flags->output.quiet) {
          print_techniques(list);
        }
        return static_cast<int>(kExitDone);
      });
    };
  });
}

void add_kernels_command(CLI::App &app, Invocation &invocation) {
  struct Flags : KernelFlags {
    OutputFlags output;
  };
  const auto flags = std::make_shared<Flags>();
  CLI::App *command =
      app.add_subcommand("kernels", "Show the costs of the generated device kernels of a code, or their text");
  add_code_flags(*command, flags->code);
  CLI::Option *text = command->add_option("--text", flags->dialect, "Print the text in this dialect, no table")
                          ->check(one_of({"opencl", "cuda", "host"}));
  command->add_option("--device-technique", flags->technique, "With --text: compiled (default), tables or transform")
      ->check(one_of({"compiled", "tables", "transform"}))
      ->needs(text);
  command->add_option("--operation", flags->operation, "With --text: encode (default), update or verify")
      ->check(one_of({"encode", "update", "verify"}))
      ->needs(text);
  command->add_option("--access", flags->access, "Addresses of the shards: aligned (default), or any")
      ->check(one_of({"aligned", "any"}))
      ->group(kExpert);
  command
      ->add_option("--element-bytes", flags->element_bytes,
                   "Bytes that a work-item loads at once; default: the device's own")
      ->group(kExpert);
  command->add_option("--rows-per-pass", flags->rows_per_pass, "Outputs computed together; default: the device's own")
      ->group(kExpert);
  command
      ->add_option(
          "--vendor", flags->vendor,
          "The kind of device; gpu: any other GPU. Default: all; with --text cuda: nvidia, opencl: gpu, host: cpu")
      ->check(one_of({"nvidia", "amd", "intel", "gpu", "cpu"}));
  add_output_flags(*command, flags->output);
  text->excludes(command->get_option("--json"));
  command->callback([flags, &invocation] {
    invocation.run = [flags] { return run_inside([&] { return kernels(flags->output, *flags); }); };
  });
}

}  // namespace tandem::bench
