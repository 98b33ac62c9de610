#include "device/kernel_chooser.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "base/error.hpp"

namespace tandem::device {
namespace {

// More coefficients than this make a text that takes compilers minutes.
constexpr std::uint64_t kMostCompiledCoefficients = 4096;

constexpr std::uint64_t kLeastStagingBytes = 64 << 10, kMostStagingBytes = 1 << 30;
constexpr unsigned kMostLocalItems = 1 << 16;

const char *name_of(Technique technique) { return technique == Technique::compiled ? "compiled" : "tables"; }

std::string text_of(const DeviceSettings &settings) {
  const KernelTuning &kernel = settings.kernel;
  return fmt::format(
      "local {}x{}x{}, element_bytes {}, elements_per_item {}, rows_per_pass {}, loads {}, staging_bytes {}, "
      "compile_after_bytes "
      "{}",
      kernel.local[0], kernel.local[1], kernel.local[2], kernel.element_bytes, kernel.elements_per_item,
      kernel.rows_per_pass, static_cast<int>(kernel.loads), settings.staging_bytes, settings.compile_after_bytes);
}

}  // namespace

std::vector<std::uint64_t> powers_of_two(std::uint64_t least, std::uint64_t most, std::uint64_t value) {
  std::vector<std::uint64_t> list;
  for (std::uint64_t each = least; each <= most && each != 0; each *= 2) list.push_back(each);
  if (std::find(list.begin(), list.end(), value) == list.end()) list.insert(list.begin(), value);
  return list;
}

DeviceSettings with_values(DeviceSettings settings, const core::TuningValues &values, unsigned most_element_bytes,
                           Loads most_loads, const std::function<void(const std::string &)> &refused) {
  const auto take = [&](const char *name, auto &into, std::uint64_t least, std::uint64_t most) {
    const auto found = values.find(name);
    if (found == values.end()) return;
    if (found->second < least || found->second > most)
      return refused(fmt::format("{} = {} is not between {} and {}", name, found->second, least, most));
    into = static_cast<std::remove_reference_t<decltype(into)>>(found->second);
  };
  if (const auto found = values.find("element_bytes"); found != values.end()) {
    if (found->second < 4 || found->second > most_element_bytes || !std::has_single_bit(found->second)) {
      refused(fmt::format("element_bytes = {} is no power of two from 4 to {}", found->second, most_element_bytes));
    } else {
      settings.kernel.element_bytes = static_cast<unsigned>(found->second);
    }
  }
  take("elements_per_item", settings.kernel.elements_per_item, 1, KernelTuning::kMostElementsPerItem);
  take("rows_per_pass", settings.kernel.rows_per_pass, 1, 32);
  take("local_x", settings.kernel.local[0], 1, kMostLocalItems);
  take("local_y", settings.kernel.local[1], 1, kMostLocalItems);
  take("local_z", settings.kernel.local[2], 1, kMostLocalItems);
  if (const auto found = values.find("loads"); found != values.end()) {
    if (found->second <= static_cast<std::uint64_t>(most_loads)) {
      settings.kernel.loads = static_cast<Loads>(found->second);
    } else {
      refused(fmt::format("loads = {} is more than {}", found->second, static_cast<int>(most_loads)));
    }
  }
  take("staging_bytes", settings.staging_bytes, kLeastStagingBytes, kMostStagingBytes);
  take("compile_after_bytes", settings.compile_after_bytes, 0, UINT64_MAX);
  return settings;
}

// A kernel's arguments hold so many shards.
static const core::Matrix &taken(const core::Matrix &matrix) {
  const std::uint64_t shards = std::uint64_t{matrix.rows()} + matrix.columns();
  if (shards > KernelArguments::kMostShards)
    base::fail(TANDEM_ERROR_UNSUPPORTED,
               fmt::format("a device's kernel takes {} shards at most, not {} inputs and {} outputs",
                           KernelArguments::kMostShards, matrix.columns(), matrix.rows()));
  return matrix;
}

DevicePrepared::DevicePrepared(const core::Operator &what, std::optional<DeviceSettings> forced_settings)
    : core::Prepared(what), matrix(taken(what.dense())), forced(std::move(forced_settings)), id([] {
        static std::atomic<std::uint64_t> next{1};
        return next.fetch_add(1, std::memory_order_relaxed);
      }()) {}

KernelChooser::KernelChooser(KernelDevice device, std::string technique, const core::TuningSource *tuning,
                             GenerateKernel generate, const base::Log &log)
    : device_(std::move(device)),
      technique_(std::move(technique)),
      tuning_(tuning),
      generate_(std::move(generate)),
      log_(log) {}

core::TuningIdentity KernelChooser::identity() const {
  core::TuningIdentity identity = device_.identity;
  if (is_forced()) identity.driver += ", technique " + technique_;
  return identity;
}

// Of texts that show all that the generator can write: another generator, another hash.
const std::string &KernelChooser::kernel_hash() const {
  std::call_once(hashed_, [this] {
    core::Matrix matrix(5, 6);
    for (unsigned r = 0; r < matrix.rows(); ++r)
      for (unsigned c = 0; c < matrix.columns(); ++c) matrix.at(r, c) = static_cast<std::uint8_t>(17 * r + 29 * c + 1);
    std::string texts;
    for (const Technique each : {Technique::compiled, Technique::tables}) {
      for (const core::Mode mode : {core::Mode::assign, core::Mode::accumulate, core::Mode::compare}) {
        KernelSpec spec;
        spec.dialect = device_.dialect;
        spec.technique = each;
        spec.mode = mode;
        spec.byte_lanes = device_.byte_lanes;
        spec.architecture = device_.architecture;
        spec.tuning = device_.settings(matrix.rows()).kernel;
        texts += generate_(matrix, spec).text;
      }
    }
    kernel_hash_ = hex(key_of({texts}));
  });
  return kernel_hash_;
}

// Of every kind of text that the generator writes. It is in the keys of the cache on disk, with the library's version.
const std::string &KernelChooser::generator_hash() const {
  std::call_once(generator_hashed_, [this] {
    core::Matrix matrix(3, 4);
    for (unsigned r = 0; r < matrix.rows(); ++r)
      for (unsigned c = 0; c < matrix.columns(); ++c) matrix.at(r, c) = static_cast<std::uint8_t>(31 * r + 17 * c + 1);
    std::string texts = fmt::format("{}.{}.{}", TANDEM_VERSION_MAJOR, TANDEM_VERSION_MINOR, TANDEM_VERSION_PATCH);
    for (const Technique technique : {Technique::compiled, Technique::tables}) {
      for (const core::Mode mode : {core::Mode::assign, core::Mode::accumulate, core::Mode::compare}) {
        for (const Access access : {Access::aligned, Access::shifted, Access::direct}) {
          if (access == Access::direct && device_.dialect == Dialect::cuda_c) continue;  // it has none
          for (const Binding binding : {Binding::offsets, Binding::arguments}) {
            KernelSpec spec = spec_of(mode, access, binding, device_.settings(matrix.rows()));
            spec.technique = technique;
            texts += generate_(matrix, spec).text;
          }
        }
      }
    }
    generator_hash_ = hex(key_of({texts}));
  });
  return generator_hash_;
}

DeviceSettings KernelChooser::settings(const DevicePrepared &prepared, core::Mode mode) const {
  if (prepared.forced.has_value()) return *prepared.forced;
  const std::lock_guard lock(prepared.mutex);
  DevicePrepared::OfMode &of_mode = prepared.modes[static_cast<std::size_t>(mode)];
  if (of_mode.settings.has_value()) return *of_mode.settings;
  DeviceSettings settings = device_.settings(prepared.rows());
  if (tuning_ != nullptr) {
    const core::TuningChoice choice =
        tuning_->find({identity(), kernel_hash(), mode, prepared.columns(), prepared.rows()});
    settings = with_values(
        settings, choice.values, device_.most_element_bytes, device_.most_loads, [&](const std::string &why) {
          log_.say(TANDEM_LOG_WARNING,
                   fmt::format("{}: {}: tuning value left out: {}", device_.identity.backend, device_.name, why));
        });
    log_.say(TANDEM_LOG_INFO, fmt::format("{}: {}: {} x {} {}: {} ({})", device_.identity.backend, device_.name,
                                          prepared.rows(), prepared.columns(), name_of(mode), text_of(settings),
                                          choice.reason.empty() ? "built-in" : choice.reason));
  }
  of_mode.settings = settings;
  return settings;
}

Key KernelChooser::text_key(const DevicePrepared &prepared, const KernelPrograms &programs,
                            const KernelSpec &spec) const {
  const DevicePrepared::TextName name = DevicePrepared::name_of(spec);
  {
    const std::lock_guard lock(prepared.mutex);
    if (const auto found = prepared.texts.find(name); found != prepared.texts.end()) return found->second.key;
  }
  // Of what the text is made of: writing it down takes long for a large matrix, and most are never built.
  const KernelTuning &tuning = spec.tuning;
  std::string made_of =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {}", generator_hash(), static_cast<int>(spec.technique),
                  static_cast<int>(spec.mode), static_cast<int>(spec.access), static_cast<int>(spec.binding),
                  spec.byte_lanes, tuning.element_bytes, tuning.elements_per_item, tuning.rows_per_pass,
                  static_cast<int>(tuning.loads), spec.architecture);
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

KernelSpec KernelChooser::spec_of(core::Mode mode, Access access, Binding binding,
                                  const DeviceSettings &settings) const {
  KernelSpec spec;
  spec.dialect = device_.dialect;
  spec.mode = mode;
  spec.access = access;
  spec.binding = binding;
  spec.byte_lanes = device_.byte_lanes;
  spec.architecture = device_.architecture;
  spec.tuning = settings.kernel;
  if (access != Access::aligned) spec.tuning.loads = Loads::plain;  // there is no other
  spec.name = kKernelName;
  return spec;
}

// In memory, or on disk, which is asked once.
bool KernelChooser::is_known(const DevicePrepared &prepared, const KernelPrograms &programs,
                             const KernelSpec &spec) const {
  const Key key = text_key(prepared, programs, spec);
  if (programs.known(key, false)) return true;
  const DevicePrepared::TextName name = DevicePrepared::name_of(spec);
  {
    const std::lock_guard lock(prepared.mutex);
    if (const std::optional<bool> &on_disk = prepared.texts[name].on_disk; on_disk.has_value()) return *on_disk;
  }
  const bool is_there = programs.known(key, true);
  const std::lock_guard lock(prepared.mutex);
  prepared.texts[name].on_disk = is_there;
  return is_there;
}

bool KernelChooser::is_worth_arguments(const DevicePrepared &prepared, const KernelPrograms &programs, core::Mode mode,
                                       Access access, std::uint64_t length_bytes) const {
  if (technique_ == "compiled") return true;
  const DeviceSettings settings = this->settings(prepared, mode);
  {
    const std::lock_guard lock(prepared.mutex);
    if (prepared.bytes_run + length_bytes * prepared.columns() >= settings.compile_after_bytes) return true;
  }
  KernelSpec spec = spec_of(mode, access, Binding::arguments, settings);
  for (const Technique technique : {Technique::tables, Technique::compiled}) {
    if (technique == Technique::compiled && technique_ == "tables") continue;
    spec.technique = technique;
    if (is_known(prepared, programs, spec)) return true;
  }
  return false;
}

// Tables until the bytes run so far, with this run's, pay for a compile, or until somebody else has paid.
Technique KernelChooser::technique(const DevicePrepared &prepared, const KernelPrograms &programs,
                                   const KernelSpec &spec, const DeviceSettings &settings,
                                   std::uint64_t length_bytes) const {
  const std::uint64_t coefficients = std::uint64_t{prepared.rows()} * prepared.columns();
  std::string reason;
  Technique chosen = Technique::tables;
  bool is_new = false;
  std::uint64_t bytes = 0;
  {
    const std::lock_guard lock(prepared.mutex);
    if (length_bytes != kUsedOften) prepared.bytes_run += length_bytes * prepared.columns();
    bytes = prepared.bytes_run;
  }
  if (technique_ == "tables") {
    reason = "as asked";
  } else if (!tables_fit(prepared)) {
    if (coefficients > kMostCompiledCoefficients) {
      base::fail(TANDEM_ERROR_UNAVAILABLE,
                 fmt::format("{}: {} has {} bytes of local memory, tables of {} columns need {}; and {} coefficients "
                             "are more than the {} that are compiled",
                             device_.label, device_.name, device_.local_bytes, prepared.columns(),
                             prepared.columns() * kTableBytesPerColumn, coefficients, kMostCompiledCoefficients));
    }
    chosen = Technique::compiled;
    reason = fmt::format("tables of {} columns do not fit {} bytes of local memory", prepared.columns(),
                         device_.local_bytes);
  } else if (coefficients > kMostCompiledCoefficients) {
    reason = fmt::format("{} coefficients, more than {}", coefficients, kMostCompiledCoefficients);
  } else if (technique_ == "compiled") {
    chosen = Technique::compiled;
    reason = "as asked";
  } else if (const std::string why = programs.no_compiler(); !why.empty()) {
    KernelSpec compiled = spec;
    compiled.technique = Technique::compiled;
    const bool is_there = programs.known(text_key(prepared, programs, compiled), true);
    chosen = is_there ? Technique::compiled : Technique::tables;
    reason = is_there ? "it is in the cache" : why;
  } else {
    KernelSpec compiled = spec;
    compiled.technique = Technique::compiled;
    if (length_bytes == kUsedOften) {
      chosen = Technique::compiled;
      reason = "made ready to be used often";
    } else if (bytes >= settings.compile_after_bytes) {
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
    DevicePrepared::OfMode &of_mode = prepared.modes[static_cast<std::size_t>(spec.mode)];
    is_new = !of_mode.told.has_value() || *of_mode.told != chosen;
    of_mode.told = chosen;
  }
  if (is_new && log_.hears(TANDEM_LOG_INFO)) {
    log_.say(TANDEM_LOG_INFO,
             fmt::format("{}: {}: {} x {} {}: technique {}: {}", device_.identity.backend, device_.name,
                         prepared.rows(), prepared.columns(), name_of(spec.mode), name_of(chosen), reason));
  }
  return chosen;
}

bool KernelChooser::tables_fit(const DevicePrepared &prepared) const noexcept {
  return prepared.columns() * kTableBytesPerColumn <= device_.local_bytes;
}

KernelChooser::Choice KernelChooser::choose(const DevicePrepared &prepared, const KernelPrograms &programs,
                                            core::Mode mode, Access access, Binding binding,
                                            std::uint64_t length_bytes) const {
  const DeviceSettings settings = this->settings(prepared, mode);
  Choice choice;
  choice.staging_bytes = settings.staging_bytes;
  choice.spec = spec_of(mode, access, binding, settings);
  choice.spec.technique = technique(prepared, programs, choice.spec, settings, length_bytes);
  if (choice.spec.technique == Technique::tables) {
    choice.spec.tuning.loads = Loads::plain;
    // Tuned for compiled kernels; those of technique tables that came with the library have one element an item.
    if (device_.dialect == Dialect::cuda_c) choice.spec.tuning.elements_per_item = 1;
  }
  if (choice.spec.technique == Technique::tables && !tables_fit(prepared)) {
    base::fail(
        TANDEM_ERROR_UNAVAILABLE,
        fmt::format("{}: technique tables needs {} bytes of local memory for {} columns, {} has {}", device_.label,
                    prepared.columns() * kTableBytesPerColumn, prepared.columns(), device_.name, device_.local_bytes));
  }
  choice.key = text_key(prepared, programs, choice.spec);
  return choice;
}

std::string KernelChooser::text(const DevicePrepared &prepared, const KernelSpec &spec) const {
  return generate_(prepared.matrix, spec).text;
}

void merge_records(const KernelRange &range, std::span<const std::uint32_t> records, std::uint64_t start_bytes,
                   unsigned rows, core::Mismatch *mismatches) {
  for (std::uint64_t record = 0; record < range.record_count; ++record) {
    for (unsigned r = 0; r < rows; ++r) {
      const std::uint32_t *found = &records[(record * rows + r) * 2];
      if (const std::uint32_t count = mismatch_count(found); count != 0)
        mismatches[r].merge({count, start_bytes + range.record_start(record) + found[1]});
    }
  }
}

void merge_record_ranges(const KernelRange &range, std::span<const std::uint32_t> records, std::uint64_t start_bytes,
                         unsigned rows, core::MismatchRanges *ranges) {
  core::RangeCollector collector(rows, ranges->capacity);
  const auto add = [&](std::uint64_t record) {
    const std::uint64_t start = range.record_start(record), end = range.record_end(record);
    for (unsigned r = 0; r < rows; ++r) {
      const std::uint32_t *found = &records[(record * rows + r) * 2];
      if (const std::uint32_t count = mismatch_count(found); count != 0)
        collector.add(r, start_bytes + start, start_bytes + start + found[1], start_bytes + end, count);
    }
  };
  add(range.tile_count);  // the head
  for (std::uint64_t record = 0; record < range.tile_count; ++record) add(record);
  add(range.tile_count + 1);
  collector.merge_into(*ranges);
}

void apply_nothing(const core::Task &task) {
  for (unsigned r = 0; r < task.prepared->rows(); ++r) {
    std::byte *output = task.outputs[r] + task.offset_bytes;
    if (task.mode == core::Mode::assign) std::memset(output, 0, task.length_bytes);
    if (task.mode != core::Mode::compare) continue;
    core::Mismatch found;
    for (std::uint64_t i = 0; i < task.length_bytes; ++i)
      if (output[i] != std::byte{0}) found.merge({1, task.offset_bytes + i});
    task.mismatches[r].merge(found);
  }
}

}  // namespace tandem::device
