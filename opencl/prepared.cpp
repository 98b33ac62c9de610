#include "opencl/prepared.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "core/error.hpp"

namespace tandem::opencl {
namespace {

using core::Access;
using core::Binding;
using core::kTableBytesPerColumn;
using core::Mode;
using core::Technique;

// More coefficients than this make a text that takes compilers minutes.
constexpr std::uint64_t kMostCompiledCoefficients = 4096;

constexpr std::uint64_t kLeastStagingBytes = 64 << 10, kMostStagingBytes = 1 << 30;
constexpr unsigned kMostLocalItems = 1 << 16;

const char *name_of(Technique technique) { return technique == Technique::compiled ? "compiled" : "tables"; }

const char *name_of(Mode mode) {
  return mode == Mode::assign ? "assign" : mode == Mode::accumulate ? "accumulate" : "compare";
}

std::vector<std::uint64_t> powers(std::uint64_t least, std::uint64_t most, std::uint64_t value) {
  std::vector<std::uint64_t> list;
  for (std::uint64_t each = least; each <= most && each != 0; each *= 2) list.push_back(each);
  if (std::find(list.begin(), list.end(), value) == list.end()) list.insert(list.begin(), value);
  return list;
}

std::string text_of(const Settings &settings) {
  const core::KernelTuning &kernel = settings.kernel;
  return fmt::format(
      "local {}x{}x{}, element_bytes {}, elements_per_item {}, rows_per_pass {}, staging_bytes {}, compile_after_bytes "
      "{}",
      kernel.local[0], kernel.local[1], kernel.local[2], kernel.element_bytes, kernel.elements_per_item,
      kernel.rows_per_pass, settings.staging_bytes, settings.compile_after_bytes);
}

}  // namespace

Settings default_settings(const Device &device) {
  Settings settings;
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

Settings with_values(Settings settings, const core::TuningValues &values,
                     const std::function<void(const std::string &)> &refused) {
  const auto take = [&](const char *name, auto &into, std::uint64_t least, std::uint64_t most) {
    const auto found = values.find(name);
    if (found == values.end()) return;
    if (found->second < least || found->second > most)
      return refused(fmt::format("{} = {} is not between {} and {}", name, found->second, least, most));
    into = static_cast<std::remove_reference_t<decltype(into)>>(found->second);
  };
  if (const auto found = values.find("element_bytes"); found != values.end()) {
    if (found->second < 4 || found->second > 64 || !std::has_single_bit(found->second)) {
      refused(fmt::format("element_bytes = {} is none of 4, 8, 16, 32, 64", found->second));
    } else {
      settings.kernel.element_bytes = static_cast<unsigned>(found->second);
    }
  }
  take("elements_per_item", settings.kernel.elements_per_item, 1, core::KernelTuning::kMostElementsPerItem);
  take("rows_per_pass", settings.kernel.rows_per_pass, 1, 32);
  take("local_x", settings.kernel.local[0], 1, kMostLocalItems);
  take("local_y", settings.kernel.local[1], 1, kMostLocalItems);
  take("local_z", settings.kernel.local[2], 1, kMostLocalItems);
  take("staging_bytes", settings.staging_bytes, kLeastStagingBytes, kMostStagingBytes);
  take("compile_after_bytes", settings.compile_after_bytes, 0, UINT64_MAX);
  return settings;
}

std::vector<core::TuningParameter> parameters_of(const Settings &settings, const Device &device) {
  const core::KernelTuning &kernel = settings.kernel;
  const auto most_of = [&](unsigned dimension, std::uint64_t cap) {
    return std::min<std::uint64_t>({device.most_items[dimension], device.most_group_items, cap});
  };
  // Few of y and z: each set of local sizes costs a compile.
  return {{"local_x", kernel.local[0], powers(16, most_of(0, 1024), kernel.local[0])},
          {"local_y", kernel.local[1], powers(1, most_of(1, 4), kernel.local[1])},
          {"local_z", kernel.local[2], powers(1, most_of(2, 2), kernel.local[2])},
          {"element_bytes", kernel.element_bytes, powers(4, device.is_cpu() ? 64 : 16, kernel.element_bytes)},
          {"elements_per_item", kernel.elements_per_item, powers(1, 8, kernel.elements_per_item)},
          {"rows_per_pass", kernel.rows_per_pass, powers(1, 8, kernel.rows_per_pass)},
          {"staging_bytes", settings.staging_bytes, powers(1 << 20, 64 << 20, settings.staging_bytes)},
          {"compile_after_bytes", settings.compile_after_bytes, {settings.compile_after_bytes}, true}};
}

OpenclPrepared::OpenclPrepared(const core::Matrix &coefficients, std::optional<Settings> forced_settings)
    : Prepared(coefficients.rows(), coefficients.columns()),
      matrix(coefficients),
      forced(std::move(forced_settings)),
      id([] {
        static std::atomic<std::uint64_t> next{1};
        return next.fetch_add(1, std::memory_order_relaxed);
      }()) {}

Chooser::Chooser(const Options &options, const Device &device, const core::Log &log)
    : options_(options), device_(device), log_(log) {}

core::TuningIdentity Chooser::identity() const {
  const bool forced = options_.technique == "tables" || options_.technique == "compiled";
  return {"opencl", device_.vendor, device_.model,
          device_.driver_text() + (forced ? ", technique " + options_.technique : "")};
}

// Of texts that show all that the generator can write: another generator, another hash.
const std::string &Chooser::kernel_hash() const {
  std::call_once(hashed_, [this] {
    core::Matrix matrix(5, 6);
    for (unsigned r = 0; r < matrix.rows(); ++r)
      for (unsigned c = 0; c < matrix.columns(); ++c) matrix.at(r, c) = static_cast<std::uint8_t>(17 * r + 29 * c + 1);
    std::string texts;
    for (const Technique each : {Technique::compiled, Technique::tables}) {
      for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare}) {
        core::KernelSpec spec;
        spec.technique = each;
        spec.mode = mode;
        spec.byte_lanes = device_.is_cpu();
        spec.tuning = default_settings(device_).kernel;
        texts += options_.generate(matrix, spec).text;
      }
    }
    kernel_hash_ = hex(key_of({texts}));
  });
  return kernel_hash_;
}

// Of every kind of text that the generator writes. It is in the keys of the cache on disk, with the library's version.
const std::string &Chooser::generator_hash() const {
  std::call_once(generator_hashed_, [this] {
    core::Matrix matrix(3, 4);
    for (unsigned r = 0; r < matrix.rows(); ++r)
      for (unsigned c = 0; c < matrix.columns(); ++c) matrix.at(r, c) = static_cast<std::uint8_t>(31 * r + 17 * c + 1);
    std::string texts = fmt::format("{}.{}.{}", TANDEM_VERSION_MAJOR, TANDEM_VERSION_MINOR, TANDEM_VERSION_PATCH);
    for (const Technique technique : {Technique::compiled, Technique::tables}) {
      for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare}) {
        for (const Access access : {Access::aligned, Access::shifted, Access::direct}) {
          for (const Binding binding : {Binding::offsets, Binding::arguments}) {
            core::KernelSpec spec = spec_of(mode, access, binding, default_settings(device_));
            spec.technique = technique;
            texts += options_.generate(matrix, spec).text;
          }
        }
      }
    }
    generator_hash_ = hex(key_of({texts}));
  });
  return generator_hash_;
}

Settings Chooser::settings(const OpenclPrepared &prepared, Mode mode) const {
  if (prepared.forced.has_value()) return *prepared.forced;
  const std::lock_guard lock(prepared.mutex);
  OpenclPrepared::OfMode &of_mode = prepared.modes[static_cast<std::size_t>(mode)];
  if (of_mode.settings.has_value()) return *of_mode.settings;
  Settings settings = default_settings(device_);
  if (options_.tuning != nullptr) {
    const core::TuningChoice choice =
        options_.tuning->find({identity(), kernel_hash(), mode, prepared.columns(), prepared.rows()});
    settings = with_values(settings, choice.values, [&](const std::string &why) {
      log_.say(TANDEM_LOG_WARNING, fmt::format("opencl: {}: tuning value left out: {}", device_.name, why));
    });
    log_.say(TANDEM_LOG_INFO,
             fmt::format("opencl: {}: {} x {} {}: {} ({})", device_.name, prepared.rows(), prepared.columns(),
                         name_of(mode), text_of(settings), choice.reason.empty() ? "built-in" : choice.reason));
  }
  of_mode.settings = settings;
  return settings;
}

Key Chooser::text_key(const OpenclPrepared &prepared, Programs &programs, const core::KernelSpec &spec) const {
  const OpenclPrepared::TextName name{spec.technique, spec.mode, spec.access, spec.binding};
  {
    const std::lock_guard lock(prepared.mutex);
    if (const auto found = prepared.texts.find(name); found != prepared.texts.end()) return found->second.key;
  }
  // Of what the text is made of: writing it down takes long for a large matrix, and most are never built.
  const core::KernelTuning &tuning = spec.tuning;
  std::string made_of =
      fmt::format("{} {} {} {} {} {} {} {} {}", generator_hash(), static_cast<int>(spec.technique),
                  static_cast<int>(spec.mode), static_cast<int>(spec.access), static_cast<int>(spec.binding),
                  spec.byte_lanes, tuning.element_bytes, tuning.elements_per_item, tuning.rows_per_pass);
  if (spec.technique == Technique::compiled || spec.binding == Binding::arguments)
    made_of += fmt::format(" {} x {} ", prepared.rows(), prepared.columns());
  if (spec.technique == Technique::compiled) {
    for (unsigned r = 0; r < prepared.rows(); ++r)
      made_of.append(reinterpret_cast<const char *>(prepared.matrix.row(r).data()), prepared.columns());
  }
  const Key key = programs.key(made_of);
  const std::lock_guard lock(prepared.mutex);
  prepared.texts[name].key = key;
  return key;
}

core::KernelSpec Chooser::spec_of(Mode mode, Access access, Binding binding, const Settings &settings) const {
  core::KernelSpec spec;
  spec.mode = mode;
  spec.access = access;
  spec.binding = binding;
  spec.byte_lanes = device_.is_cpu();
  spec.tuning = settings.kernel;
  spec.name = kKernelName;
  return spec;
}

// In memory, or on disk, which is asked once.
bool Chooser::is_known(const OpenclPrepared &prepared, Programs &programs, const core::KernelSpec &spec) const {
  const Key key = text_key(prepared, programs, spec);
  if (programs.known(key, false)) return true;
  const OpenclPrepared::TextName name{spec.technique, spec.mode, spec.access, spec.binding};
  {
    const std::lock_guard lock(prepared.mutex);
    if (const std::optional<bool> &on_disk = prepared.texts[name].on_disk; on_disk.has_value()) return *on_disk;
  }
  const bool is_there = programs.known(key, true);
  const std::lock_guard lock(prepared.mutex);
  prepared.texts[name].on_disk = is_there;
  return is_there;
}

bool Chooser::is_worth_arguments(const OpenclPrepared &prepared, Programs &programs, Mode mode,
                                 std::uint64_t length_bytes) const {
  if (options_.technique == "compiled") return true;
  const Settings settings = this->settings(prepared, mode);
  {
    const std::lock_guard lock(prepared.mutex);
    if (prepared.bytes_run + length_bytes * prepared.columns() >= settings.compile_after_bytes) return true;
  }
  core::KernelSpec spec = spec_of(mode, access(false), Binding::arguments, settings);
  for (const Technique technique : {Technique::tables, Technique::compiled}) {
    if (technique == Technique::compiled && options_.technique == "tables") continue;
    spec.technique = technique;
    if (is_known(prepared, programs, spec)) return true;
  }
  return false;
}

// Tables until the bytes run so far, with this run's, pay for a compile, or until somebody else has paid.
Technique Chooser::technique(const OpenclPrepared &prepared, Programs &programs, const core::KernelSpec &spec,
                             const Settings &settings, std::uint64_t length_bytes) const {
  const std::uint64_t coefficients = std::uint64_t{prepared.rows()} * prepared.columns();
  std::string reason;
  Technique chosen = Technique::tables;
  bool is_new = false;
  std::uint64_t bytes = 0;
  {
    const std::lock_guard lock(prepared.mutex);
    bytes = prepared.bytes_run += length_bytes * prepared.columns();
  }
  if (options_.technique == "tables") {
    reason = "as asked";
  } else if (prepared.columns() * kTableBytesPerColumn > device_.local_bytes) {
    if (coefficients > kMostCompiledCoefficients) {
      core::fail(
          TANDEM_ERROR_UNAVAILABLE,
          fmt::format("OpenCL: {} has {} bytes of local memory, tables of {} columns need {}; and {} coefficients "
                      "are more than the {} that are compiled",
                      device_.name, device_.local_bytes, prepared.columns(), prepared.columns() * kTableBytesPerColumn,
                      coefficients, kMostCompiledCoefficients));
    }
    chosen = Technique::compiled;
    reason = fmt::format("tables of {} columns do not fit {} bytes of local memory", prepared.columns(),
                         device_.local_bytes);
  } else if (coefficients > kMostCompiledCoefficients) {
    reason = fmt::format("{} coefficients, more than {}", coefficients, kMostCompiledCoefficients);
  } else if (options_.technique == "compiled") {
    chosen = Technique::compiled;
    reason = "as asked";
  } else {
    core::KernelSpec compiled = spec;
    compiled.technique = Technique::compiled;
    if (bytes >= settings.compile_after_bytes) {
      chosen = Technique::compiled;
      reason =
          fmt::format("{} bytes through this matrix pay for a compile (from {})", bytes, settings.compile_after_bytes);
    } else if (is_known(prepared, programs, compiled)) {
      chosen = Technique::compiled;
      reason = "it is in the cache";
    } else {
      reason = fmt::format("{} bytes through this matrix do not pay for a compile (from {})", bytes,
                           settings.compile_after_bytes);
    }
  }
  {
    const std::lock_guard lock(prepared.mutex);
    OpenclPrepared::OfMode &of_mode = prepared.modes[static_cast<std::size_t>(spec.mode)];
    is_new = !of_mode.told.has_value() || *of_mode.told != chosen;
    of_mode.told = chosen;
  }
  if (is_new && log_.hears(TANDEM_LOG_INFO)) {
    log_.say(TANDEM_LOG_INFO, fmt::format("opencl: {}: {} x {} {}: technique {}: {}", device_.name, prepared.rows(),
                                          prepared.columns(), name_of(spec.mode), name_of(chosen), reason));
  }
  return chosen;
}

// A local size that the device and this kernel can run.
void Chooser::fit_local_size(const OpenclPrepared &prepared, Variant &variant) const {
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
  if (prepared.forced.has_value()) core::fail(TANDEM_ERROR_UNAVAILABLE, "OpenCL: " + text);
  {
    const core::KernelSpec &spec = variant.spec;
    const std::lock_guard lock(prepared.mutex);
    if (std::exchange(prepared.texts[{spec.technique, spec.mode, spec.access, spec.binding}].told_local, true)) return;
  }
  log_.say(TANDEM_LOG_INFO, fmt::format("opencl: {}; {}x{}x{} instead", text, local[0], local[1], local[2]));
}

Access Chooser::access(bool is_aligned) const noexcept {
  if (options_.always_shifted) return Access::shifted;
  if (is_aligned && device_.base_alignment_bytes >= kAlignedBytes) return Access::aligned;
  return device_.is_cpu() ? Access::direct : Access::shifted;
}

Variant Chooser::choose(const OpenclPrepared &prepared, Programs &programs, Mode mode, Access access, Binding binding,
                        std::uint64_t length_bytes) const {
  const Settings settings = this->settings(prepared, mode);
  Variant variant;
  variant.staging_bytes = settings.staging_bytes;
  variant.spec = spec_of(mode, access, binding, settings);
  variant.spec.technique = technique(prepared, programs, variant.spec, settings, length_bytes);
  if (variant.spec.technique == Technique::tables && prepared.columns() * kTableBytesPerColumn > device_.local_bytes) {
    core::fail(
        TANDEM_ERROR_UNAVAILABLE,
        fmt::format("OpenCL: technique tables needs {} bytes of local memory for {} columns, {} has {}",
                    prepared.columns() * kTableBytesPerColumn, prepared.columns(), device_.name, device_.local_bytes));
  }
  variant.program = programs.get(text_key(prepared, programs, variant.spec),
                                 [&] { return options_.generate(prepared.matrix, variant.spec).text; });
  fit_local_size(prepared, variant);
  return variant;
}

}  // namespace tandem::opencl
