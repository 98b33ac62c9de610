// SPDX-License-Identifier: Apache-2.0
#include "device/kernel_chooser.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "core/wide.hpp"
#include "device/transform_text.hpp"
#include "kernel_hash.hpp"

namespace tandem::device {
namespace {

using Wait = DevicePrograms::Wait;

// More coefficients than this make a text that compilers need minutes for.
constexpr std::uint64_t kMostCompiledCoefficients = 4096;

constexpr const char *kStagingBytes = "staging_bytes", *kCompileAfterBytes = "compile_after_bytes",
                     *kTransform = "transform";
constexpr std::uint64_t kLeastStagingBytes = 64 << 10, kMostStagingBytes = 1 << 30;
constexpr unsigned kMostLocalItems = 1 << 16;

bool is_small(const DevicePrepared &prepared) noexcept {
  return std::uint64_t{prepared.rows()} * prepared.columns() <= kMostCompiledCoefficients;
}

bool can_compile(const DevicePrepared &prepared, const KernelSpec &wanted) noexcept {
  return is_small(prepared) || wanted.technique == Technique::transform;
}

const char *name_of(Technique technique) { return kTechniqueNames[static_cast<std::size_t>(technique)]; }

std::string text_of(const DeviceSettings &settings) {
  const KernelTuning &kernel = settings.kernel;
  return base::text("local ", kernel.local[0], "x", kernel.local[1], "x", kernel.local[2], ", element_bytes ",
                    kernel.element_bytes, ", elements_per_item ", kernel.elements_per_item, ", rows_per_pass ",
                    kernel.rows_per_pass, ", loads ", static_cast<int>(kernel.loads), ", staging_bytes ",
                    settings.staging_bytes, ", compile_after_bytes ", settings.compile_after_bytes, ", transform ",
                    settings.transforms ? 1 : 0);
}

// Powers of two from `least` to `most`, and `value`: candidates of a tuning parameter.
std::vector<std::uint64_t> powers_of_two(std::uint64_t least, std::uint64_t most, std::uint64_t value) {
  std::vector<std::uint64_t> list;
  for (std::uint64_t each = least; each <= most && each != 0; each *= 2) list.push_back(each);
  if (std::find(list.begin(), list.end(), value) == list.end()) list.insert(list.begin(), value);
  return list;
}

void take_points(KernelSpec &spec, std::shared_ptr<const CauchyPoints> points) {
  spec.technique = Technique::transform;
  spec.tuning = transform_tuning();
  spec.points = std::move(points);
}

// Programs for the same matrix and points are interchangeable.
Key key_of_operator(const core::Matrix &matrix, const CauchyPoints *points) {
  std::string made_of = base::text(matrix.rows(), " x ", matrix.columns(), " ");
  for (unsigned r = 0; r < matrix.rows(); ++r)
    made_of.append(reinterpret_cast<const char *>(matrix.row(r).data()), matrix.columns());
  if (points != nullptr)
    made_of +=
        base::text(" ", base::join(points->form.input_points, ","), " ", base::join(points->form.output_points, ","));
  return key_of({made_of});
}

// Sets values. A value that no kernel can have is left out and passed to `refused`.
template <class Refused>
DeviceSettings with_values(DeviceSettings settings, const core::TuningValues &values, const Device &device,
                           const Refused &refused) {
  const auto take = [&](const char *name, auto &into, std::uint64_t least, std::uint64_t most, bool is_power = false) {
    const auto found = values.find(name);
    if (found == values.end()) return;
    const std::uint64_t value = found->second;
    if (value < least || value > most || (is_power && !std::has_single_bit(value)))
      return refused(base::text(name, " = ", value, " is no ", is_power ? "power of two" : "number", " from ", least,
                                " to ", most));
    into = static_cast<std::remove_reference_t<decltype(into)>>(value);
  };
  take("element_bytes", settings.kernel.element_bytes, 4, device.most_element_bytes, true);
  take("elements_per_item", settings.kernel.elements_per_item, 1, KernelTuning::kMostElementsPerItem);
  take("rows_per_pass", settings.kernel.rows_per_pass, 1, 32);
  take("local_x", settings.kernel.local[0], 1, kMostLocalItems);
  take("local_y", settings.kernel.local[1], 1, kMostLocalItems);
  take("local_z", settings.kernel.local[2], 1, kMostLocalItems);
  take("loads", settings.kernel.loads, 0, static_cast<std::uint64_t>(device.most_loads));
  take(kStagingBytes, settings.staging_bytes, kLeastStagingBytes, kMostStagingBytes);
  take(kCompileAfterBytes, settings.compile_after_bytes, 0, UINT64_MAX);
  take(kTransform, settings.transforms, 0, 1);
  return settings;
}

}  // namespace

DevicePrepared::DevicePrepared(const core::Operator &what, std::optional<DeviceSettings> forced_settings)
    : core::Prepared(what),
      matrix(what.dense()),
      points([&]() -> std::shared_ptr<const CauchyPoints> {
        const auto *form = std::get_if<core::CauchyTransform>(&what.form());
        return form != nullptr ? std::make_shared<const CauchyPoints>(*form) : nullptr;
      }()),
      forced(std::move(forced_settings)),
      key(key_of_operator(matrix, points.get())) {}

std::vector<core::TechniqueCost> DevicePrepared::techniques() const { return {{technique.load()}}; }

KernelChooser::KernelChooser(const Options &options, const Device &device, const base::Log &log)
    : device_(device), technique_(options.technique), tuning_(options.tuning), generate_(options.generate), log_(log) {}

std::vector<core::TuningParameter> KernelChooser::parameters(unsigned rows, unsigned columns) const {
  const DeviceSettings settings = device_.settings(rows, columns);
  const KernelTuning &kernel = settings.kernel;
  std::vector<core::TuningParameter> list;
  const auto add = [&](const char *name, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
    list.push_back({name, value, powers_of_two(least, most, value)});
  };
  // First: with 1 the values of compiled kernels have no effect.
  if (!is_forced() && core::is_wide(columns, rows) && rows <= kMostTransformGroups * 8)
    list.push_back({kTransform, settings.transforms, {0, 1}});
  constexpr const char *kLocal[] = {"local_x", "local_y", "local_z"};
  for (unsigned d = 0; d < 3; ++d) {
    const auto &[least, most] = device_.tried_items[d];
    if (most != 0) add(kLocal[d], kernel.local[d], least, most);
  }
  add("element_bytes", kernel.element_bytes, 4, device_.most_tried_element_bytes);
  add("elements_per_item", kernel.elements_per_item, 1, 8);
  add("rows_per_pass", kernel.rows_per_pass, 1, 8);
  if (device_.most_loads != Loads::plain) {
    std::vector<std::uint64_t> loads;
    for (int each = 0; each <= static_cast<int>(device_.most_loads); ++each)
      loads.push_back(static_cast<std::uint64_t>(each));
    list.push_back({"loads", static_cast<std::uint64_t>(kernel.loads), loads});
  }
  add(kStagingBytes, settings.staging_bytes, 1 << 20, 64 << 20);
  list.back().is_of_transfers = true;
  if (!is_forced())  // forced values are not replaced
    list.push_back({kCompileAfterBytes, settings.compile_after_bytes, {settings.compile_after_bytes}, true, true});
  return list;
}

DeviceSettings KernelChooser::forced_settings(unsigned rows, unsigned columns, const core::TuningValues &values) const {
  const DeviceSettings settings =
      with_values(device_.settings(rows, columns), values, device_,
                  [&](const std::string &why) { device_.fail(TANDEM_ERROR_INVALID_ARGUMENT, why); });
  const std::array<unsigned, 3> &local = settings.kernel.local;
  for (unsigned d = 0; d < 3; ++d) {
    if (local[d] <= device_.most_items[d]) continue;
    device_.fail(TANDEM_ERROR_UNAVAILABLE, "local size ", local[d], " in dimension ", d, ": ", device_.name, " runs ",
                 device_.most_items[d], " at most");
  }
  const std::uint64_t items = std::uint64_t{local[0]} * local[1] * local[2];  // of 2^16 each: fits
  if (items > device_.most_group_items) {
    device_.fail(TANDEM_ERROR_UNAVAILABLE, "a work-group of ", local[0], "x", local[1], "x", local[2], " = ", items,
                 " items: ", device_.name, " runs ", device_.most_group_items, " at most");
  }
  return settings;
}

core::TuningIdentity KernelChooser::identity() const {
  core::TuningIdentity identity = device_.identity;
  if (is_forced()) identity.driver += ", technique " + technique_;
  return identity;
}

// With host shards the transfers hide the kernel's time. So measurements with device memory give the values of the
// kernel, and measurements with host memory the other values.
core::TuningChoice KernelChooser::known_values(const DevicePrepared &prepared, core::Mode mode) const {
  core::TuningQuery query = {identity(), kKernelHash, mode, prepared.columns(), prepared.rows()};
  core::TuningChoice choice = tuning_->find(query);
  query.on_device = true;
  core::TuningChoice resident = tuning_->find(query);
  if (resident.reason.empty()) return choice;
  for (const char *name : {kStagingBytes, kCompileAfterBytes}) {
    resident.values.erase(name);
    if (const auto found = choice.values.find(name); found != choice.values.end()) resident.values.insert(*found);
  }
  if (!choice.reason.empty()) resident.reason += "; transfers " + choice.reason;
  return resident;
}

DeviceSettings KernelChooser::settings(const DevicePrepared &prepared, core::Mode mode) const {
  if (prepared.forced.has_value()) return *prepared.forced;
  const std::lock_guard lock(prepared.mutex);
  DevicePrepared::OfMode &of_mode = prepared.modes[static_cast<std::size_t>(mode)];
  if (of_mode.settings.has_value()) return *of_mode.settings;
  DeviceSettings settings = device_.settings(prepared.rows(), prepared.columns());
  if (tuning_ != nullptr) {
    const core::TuningChoice choice = known_values(prepared, mode);
    settings = with_values(settings, choice.values, device_, [&](const std::string &why) {
      device_.say(log_, TANDEM_LOG_WARNING, "tuning value left out: ", why);
    });
    device_.say(log_, TANDEM_LOG_INFO, prepared.rows(), " x ", prepared.columns(), " ", name_of(mode), ": ",
                text_of(settings), " (", choice.reason.empty() ? "built-in" : choice.reason, ")");
  }
  of_mode.settings = settings;
  return settings;
}

// A hash of the text's inputs. Writing the text takes long for a large matrix, and most are never compiled.
Key KernelChooser::text_key(const DevicePrepared &prepared, const DevicePrograms &programs,
                            const KernelSpec &spec) const {
  const KernelTuning &tuning = spec.tuning;
  std::string made_of = base::text(
      kKernelHash, " ", TANDEM_VERSION_MAJOR, ".", TANDEM_VERSION_MINOR, ".", TANDEM_VERSION_PATCH, " ",
      static_cast<int>(spec.technique), " ", static_cast<int>(spec.mode), " ", static_cast<int>(spec.access), " ",
      static_cast<int>(spec.binding), " ", spec.byte_lanes, " ", tuning.element_bytes, " ", tuning.elements_per_item,
      " ", tuning.rows_per_pass, " ", static_cast<int>(tuning.loads), " ", spec.architecture, " ");
  if (spec.technique != Technique::tables)
    made_of += hex(prepared.key);
  else if (spec.binding == Binding::arguments)
    made_of += base::text(prepared.rows(), " x ", prepared.columns());
  if (spec.technique == Technique::transform) made_of += base::text(" ", tuning.local[0], "x", tuning.local[1]);
  return programs.key(made_of);
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
  if (access != Access::aligned) spec.tuning.loads = Loads::plain;  // other loads do not exist there
  spec.name = kKernelName;
  return spec;
}

KernelSpec KernelChooser::program_spec(const DevicePrepared &prepared, const DevicePrograms &programs, KernelSpec spec,
                                       const DeviceSettings &settings) const {
  spec.technique = Technique::compiled;
  const bool is_wanted = technique_ == "transform" || (technique_ != "compiled" && settings.transforms);
  if (!is_wanted || prepared.points == nullptr || (!programs.can_transform() && !waits(prepared))) return spec;
  KernelSpec transform = spec;
  take_points(transform, prepared.points);
  const std::array<unsigned, 3> &local = transform.tuning.local;
  const std::uint64_t local_bytes = kernel_shared_bytes(transform, prepared.columns());
  if (!prepared.cannot_transform && prepared.points->output_group_count <= kMostTransformGroups &&
      local[0] <= device_.most_items[0] && local[1] <= device_.most_items[1] &&
      local[0] * local[1] <= device_.most_group_items && local_bytes <= device_.local_bytes)
    return transform;
  if (!prepared.forced.has_value() || !prepared.forced->transforms) return spec;
  device_.fail(TANDEM_ERROR_UNAVAILABLE, device_.name, " does not run technique transform for ", prepared.rows(),
               " outputs: it needs work-groups of ", local[0], "x", local[1], " items with ", local_bytes,
               " bytes of local memory, and at most ", kMostTransformGroups, " groups of 8 points with outputs");
}

// Tables, until the number of bytes run so far pays for a compile, or the program is ready for another reason. A
// program is awaited if it was asked for, if there is no other, and if it need only be loaded.
KernelChooser::Choice KernelChooser::decide(const DevicePrepared &prepared, const DevicePrograms &programs,
                                            const KernelSpec &spec, const DeviceSettings &settings) const {
  const std::uint64_t bytes = prepared.bytes_run;
  const auto tables = [&](std::string reason) {
    Choice choice{spec, Wait::now, std::move(reason)};
    choice.spec.technique = Technique::tables;
    return choice;
  };
  const KernelSpec wanted = program_spec(prepared, programs, spec, settings);
  const auto compiled = [&](std::string reason, Wait wait = Wait::now) {
    return Choice{wanted, wait, std::move(reason)};
  };
  if (technique_ == "tables") return tables("as asked");
  const std::string large = base::text(std::uint64_t{prepared.rows()} * prepared.columns(), " coefficients, more than ",
                                       kMostCompiledCoefficients);
  if (!tables_fit(prepared) && !can_compile(prepared, wanted)) {
    device_.fail(TANDEM_ERROR_UNAVAILABLE, device_.name, " has ", device_.local_bytes,
                 " bytes of local memory, tables of ", prepared.columns(), " columns need ",
                 prepared.columns() * kTableBytesPerColumn, "; and ", large, " can be compiled");
  }
  if (!tables_fit(prepared)) {
    return compiled(base::text("tables of ", prepared.columns(), " columns do not fit ", device_.local_bytes,
                               " bytes of local memory"));
  }
  if (!can_compile(prepared, wanted)) return tables(large);
  if (technique_ == "transform" && wanted.technique != Technique::transform)
    return compiled("technique transform does not do this operator here");
  if (is_forced()) return compiled("as asked");
  const bool is_known = programs.known(text_key(prepared, programs, wanted));
  if (const std::string why = programs.no_compiler(); !why.empty())
    return is_known ? compiled("it is in the cache") : tables(why);
  const Wait wait = is_known || waits(prepared) ? Wait::now : Wait::no;
  if (prepared.need != DevicePrepared::Need::when_it_pays) return compiled("made ready to be used often", wait);
  if (bytes >= settings.compile_after_bytes) {
    return compiled(
        base::text(bytes, " bytes through this matrix pay for a compile (from ", settings.compile_after_bytes, ")"),
        wait);
  }
  if (is_known) return compiled("it is in the cache");
  return tables(base::text(bytes, " bytes through this matrix do not pay for a compile (from ",
                           settings.compile_after_bytes, ")"));
}

void KernelChooser::describe(const DevicePrepared &prepared) const {
  const DeviceSettings settings =
      prepared.forced.has_value() ? *prepared.forced : device_.settings(prepared.rows(), prepared.columns());
  const bool transforms =
      prepared.points != nullptr && technique_ != "compiled" && (technique_ == "transform" || settings.transforms);
  if (technique_ == "tables" || (!transforms && !is_small(prepared))) return;
  if (is_forced() || !tables_fit(prepared)) {
    prepared.technique = transforms ? "transform" : "compiled";
  } else {
    prepared.technique = transforms ? "tables, then transform" : "tables, then compiled";
  }
}

void KernelChooser::tell(const DevicePrepared &prepared, core::Mode mode, const Choice &choice) const {
  {
    const std::lock_guard lock(prepared.mutex);
    std::optional<Technique> &told = prepared.modes[static_cast<std::size_t>(mode)].told;
    if (told == choice.spec.technique) return;
    told = choice.spec.technique;
  }
  prepared.technique = name_of(choice.spec.technique);
  device_.say(log_, TANDEM_LOG_INFO, prepared.rows(), " x ", prepared.columns(), " ", name_of(mode), ": technique ",
              name_of(choice.spec.technique), ": ", choice.reason);
}

Variant KernelChooser::choose(const DevicePrepared &prepared, DevicePrograms &programs, core::Mode mode, Access access,
                              Binding binding) const {
  const DeviceSettings settings = this->settings(prepared, mode);
  Variant variant;
  variant.staging_bytes = settings.staging_bytes;
  variant.spec = spec_of(mode, access, binding, settings);
  Choice choice = decide(prepared, programs, variant.spec, settings);
  if (choice.spec.technique != Technique::tables) {
    variant.spec = choice.spec;
    try {
      if (build(prepared, programs, variant, choice.wait)) {
        if (does_not_fit(prepared, variant)) return choose(prepared, programs, mode, access, binding);
        tell(prepared, mode, choice);
        return variant;
      }
      choice.reason = "until the compile is done: " + choice.reason;
    } catch (const base::Error &error) {
      if (is_fixed(prepared) || error.status() != TANDEM_ERROR_UNAVAILABLE) throw;
      if (variant.spec.technique == Technique::transform) {  // the compiler may take the matrix
        leave_transform(prepared, error.what());
        return choose(prepared, programs, mode, access, binding);
      }
      programs.stop_compiling(error.what());
      choice.reason = programs.no_compiler();
    }
    choice.spec.technique = Technique::tables;
  }
  if (!tables_fit(prepared)) {
    device_.fail(TANDEM_ERROR_UNAVAILABLE, "technique tables needs ", prepared.columns() * kTableBytesPerColumn,
                 " bytes of local memory for ", prepared.columns(), " columns, ", device_.name, " has ",
                 device_.local_bytes);
  }
  variant.spec = spec_of(mode, access, binding, settings);
  variant.spec.technique = Technique::tables;
  variant.spec.tuning.loads = Loads::plain;
  // These values are for compiled kernels. The compiled-in kernels of technique tables have one element an item.
  if (device_.dialect == Dialect::cuda_c) variant.spec.tuning.elements_per_item = 1;
  build(prepared, programs, variant, Wait::now);
  tell(prepared, mode, choice);
  return variant;
}

void KernelChooser::begin(const DevicePrepared &prepared, DevicePrograms &programs, core::Mode mode, Access access,
                          Binding binding) const {
  const DeviceSettings settings = this->settings(prepared, mode);
  Variant variant;
  const Choice choice = decide(prepared, programs, spec_of(mode, access, binding, settings), settings);
  variant.spec = choice.spec;
  if (choice.wait == Wait::now && choice.spec.technique != Technique::tables)
    build(prepared, programs, variant, Wait::later);
}

bool KernelChooser::build(const DevicePrepared &prepared, DevicePrograms &programs, Variant &variant, Wait wait) const {
  variant.program =
      programs.get(text_key(prepared, programs, variant.spec), variant.spec, prepared.matrix, generate_, wait);
  if (variant.program == nullptr) return false;
  if (variant.spec.technique != Technique::transform) fit_local_size(prepared, variant);
  return true;
}

void KernelChooser::leave_transform(const DevicePrepared &prepared, std::string why) const {
  if (!prepared.cannot_transform.exchange(true))
    device_.say(log_, TANDEM_LOG_INFO, "technique transform is left: ", why);
}

// Work-groups of technique transform have the size that is in the text.
bool KernelChooser::does_not_fit(const DevicePrepared &prepared, const Variant &variant) const {
  const std::array<unsigned, 3> &local = variant.spec.tuning.local;
  if (variant.spec.technique != Technique::transform || local[0] * local[1] <= variant.program->most_group_items())
    return false;
  leave_transform(prepared, base::text("work-groups of ", local[0] * local[1], " items, at most ",
                                       variant.program->most_group_items(), " of this kernel run"));
  return true;
}

// A local size that the device and this kernel can run.
void KernelChooser::fit_local_size(const DevicePrepared &prepared, Variant &variant) const {
  std::array<unsigned, 3> &local = variant.spec.tuning.local;
  const std::array<unsigned, 3> wanted = local;
  const std::size_t most = std::min(device_.most_group_items, variant.program->most_group_items());
  for (unsigned d = 0; d < 3; ++d)
    local[d] = static_cast<unsigned>(std::min<std::size_t>(local[d], device_.most_items[d]));
  const auto is_too_large = [&] {
    return std::uint64_t{local[0]} * local[1] * local[2] > most ||
           kernel_shared_bytes(variant.spec, prepared.columns()) > device_.local_bytes;
  };
  while (is_too_large()) {
    unsigned &largest = *std::max_element(local.begin(), local.end());
    if (largest == 1) break;
    largest /= 2;
  }
  if (local == wanted) return;
  const std::string text =
      base::text("local size ", wanted[0], "x", wanted[1], "x", wanted[2], " is more than ", device_.name,
                 " runs of this kernel (", most, " items a group, ", device_.most_items[0], "x", device_.most_items[1],
                 "x", device_.most_items[2], ", ", device_.local_bytes, " bytes of local memory)");
  if (prepared.forced.has_value() && wanted != device_.settings(prepared.rows(), prepared.columns()).kernel.local)
    device_.fail(TANDEM_ERROR_UNAVAILABLE, text);
  if (prepared.has_told_local.exchange(true)) return;
  log_.say(TANDEM_LOG_INFO,
           base::text(device_.identity.backend, ": ", text, "; ", local[0], "x", local[1], "x", local[2], " instead"));
}

void merge_found(const KernelRange &range, const FoundTiles &tiles, const std::uint32_t *records,
                 std::uint64_t start_bytes, unsigned rows, core::Mismatch *mismatches, core::MismatchRanges *ranges) {
  core::RangeCollector collector(rows, ranges != nullptr ? ranges->capacity : 0);
  const auto merge_tile = [&](std::uint64_t tile) {
    const std::uint64_t start = start_bytes + range.record_start(tile);
    for (unsigned row = 0; row < rows; ++row) {
      const std::uint32_t *const record = records + ((tile - tiles.first) * rows + row) * 2;
      const core::Mismatch mismatch = {mismatch_count(record), start + record[1]};
      if (mismatch.byte_count == 0) continue;
      mismatches[row].merge(mismatch);
      collector.add(row, start, mismatch.first_bytes, start_bytes + range.record_end(tile), mismatch.byte_count);
    }
  };
  // The head's bytes come first, its records do not.
  const std::uint64_t head = range.tile_count, end = tiles.first + tiles.count;
  if (tiles.first <= head && head < end) merge_tile(head);
  for (std::uint64_t tile = tiles.first; tile < end; ++tile)
    if (tile != head) merge_tile(tile);
  if (ranges == nullptr) return;
  collector.merge_into(*ranges);
  ranges->is_filled = true;
}

void merge_records(const KernelRange &range, const std::uint32_t *records, std::uint64_t start_bytes, unsigned rows,
                   core::Mismatch *mismatches) {
  const FoundTiles tiles = found_tiles(records);
  merge_found(range, tiles, records + tiles.offset_bytes(rows) / sizeof *records, start_bytes, rows, mismatches,
              nullptr);
}

}  // namespace tandem::device
