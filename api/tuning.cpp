// SPDX-License-Identifier: Apache-2.0
// tools.h: tuning.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/objects.hpp"
#include "base/gate.hpp"
#include "base/lists.hpp"
#include "base/options.hpp"
#include "base/text.hpp"
#include "tandem/tools.h"
#include "tuning/autotune.hpp"
#include "tuning/ranges.hpp"

namespace tandem::api {
namespace {

static_assert(static_cast<int>(core::TunedOperation::encode) == TANDEM_OPERATION_ENCODE);
static_assert(static_cast<int>(core::TunedOperation::decode) == TANDEM_OPERATION_DECODE);
static_assert(static_cast<int>(core::TunedOperation::verify) == TANDEM_OPERATION_VERIFY);
static_assert(static_cast<int>(core::TunedOperation::update) == TANDEM_OPERATION_UPDATE);

constexpr std::size_t kMostCases = 1024;
constexpr std::size_t kMostRanges = tuning::kMostValues;

std::string tuning_file(const char *given) {
  const std::string path = tuning::file_path(given);
  if (path.empty())
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "no tuning file: name one, or set HOME, XDG_DATA_HOME or TANDEM_TUNING");
  return path;
}

std::vector<core::TunedOperation> operations_of(std::string_view list) {
  std::vector<core::TunedOperation> operations;
  for (std::optional<std::string_view> rest = list; rest;) {
    const std::string_view name = base::cut(rest, ",");
    const std::optional<core::TunedOperation> operation = core::tuned_operation_from_name(name);
    if (!operation) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "\"", name.substr(0, 40),
                 "\" cannot be tuned; known: encode, decode, verify, update");
    }
    operations.push_back(*operation);
  }
  return operations;
}

std::vector<tuning::Case> cases_of(const tandem_autotune_options &given) {
  const auto range = [](const char *text, const char *other) {
    return tuning::parse_range(text != nullptr ? text : other, 1, core::kMaxShards - 1);
  };
  const std::vector<std::uint64_t> ks = range(given.ks, "10"), ms = range(given.ms, "4");
  std::vector<tuning::Case> cases;
  for (const core::TunedOperation operation :
       operations_of(given.operations != nullptr ? given.operations : "encode,decode"))
    for (const std::uint64_t k : ks)
      for (const std::uint64_t m : ms) cases.push_back({operation, static_cast<unsigned>(k), static_cast<unsigned>(m)});
  if (cases.size() > kMostCases) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, cases.size(), " combinations of operation, k and m; at most ",
               kMostCases);
  }
  return cases;
}

std::vector<tuning::NamedValues> ranges_of(const tandem_autotune_options &given) {
  std::vector<tuning::NamedValues> ranges;
  for (const std::string_view text : base::read_strings(given.ranges, given.range_count, "ranges", kMostRanges)) {
    const std::string_view name = text.substr(0, text.find('='));
    if (name.size() == text.size() || !tuning::valid_name(name)) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "\"", text.substr(0, 80),
                 "\" is not NAME=RANGE, such as \"local_x=16:1024:x2\"");
    }
    const bool twice =
        std::ranges::any_of(ranges, [&](const tuning::NamedValues &range) { return range.name == name; });
    if (twice) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "two ranges for ", name);
    ranges.push_back({std::string(name), tuning::parse_range(text.substr(name.size() + 1), 0, core::kMostTuningValue)});
  }
  return ranges;
}

tuning::Options engine_options(const tandem_autotune_options &given) {
  constexpr std::uint32_t kMostRepeats = 1000;
  tuning::Options options;
  options.cases = cases_of(given);
  options.ranges = ranges_of(given);
  options.shard_bytes = given.shard_bytes;
  options.on_device = given.on_device != 0;
  if (given.repeats != 0) options.repeats = given.repeats;
  if (options.repeats > kMostRepeats)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "repeats is ", options.repeats, "; at most ", kMostRepeats);
  options.max_seconds = given.max_seconds;
  if (!std::isfinite(given.max_seconds) || given.max_seconds < 0)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "max_seconds is ", given.max_seconds);
  return options;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool tell(const tandem_autotune_options &given, const tuning::Progress &progress) {
  if (given.progress == nullptr) return true;
  const std::string values = progress.best != nullptr ? core::tuning_values_text(*progress.best) : "";
  auto told = base::sized<tandem_autotune_progress>();
  told.done_count = progress.done_count;
  told.total_count = progress.total_count;
  told.seconds_left = progress.seconds_left;
  told.operation = static_cast<std::int32_t>(progress.at.operation);
  told.k = progress.at.k;
  told.m = progress.at.m;
  told.bytes_per_second = progress.best_bytes_per_second;
  told.default_bytes_per_second = progress.default_bytes_per_second;
  told.values = values.c_str();
  return given.progress(given.progress_user, &told) == 0;
}

struct DestroyContext {
  void operator()(tandem_context *context) const noexcept { tandem_context_destroy(context); }
};

// A context with a backend that does not read earlier tunings.
std::unique_ptr<tandem_context, DestroyContext> make_context(const tandem_context_options *given) {
  tandem_context_options options = base::read_options(given, "tandem_context_options");
  options.tuning_file = "";
  // They are not part of the identity of an entry, and may change at any time.
  const char *const resources = options.resources != nullptr ? options.resources : std::getenv("TANDEM_RESOURCES");
  if (resources != nullptr && *resources != 0) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "resources are \"", std::string_view(resources).substr(0, 80),
               "\": tuning measures the machine without such limits");
  }
  tandem_context *context = nullptr;
  base::check(tandem_context_create(&options, &context));
  return std::unique_ptr<tandem_context, DestroyContext>(context);
}

// Whether the table has an entry of this key with a larger gain: from a longer search.
bool has_more(const tuning::Table &table, const tuning::Entry &entry) {
  const auto gain = [](const tuning::Entry &of) {
    return of.default_bytes_per_second > 0 ? of.bytes_per_second / of.default_bytes_per_second : HUGE_VAL;
  };
  return std::ranges::any_of(
      table.entries(), [&](const tuning::Entry &known) { return known.key == entry.key && gain(known) > gain(entry); });
}

// bench/heat_map.py reads these lines.
std::string tried_text(const tuning::Entry &at, bool is_built_in, std::optional<tuning::Failure> failure) {
  const tuning::EntryKey &key = at.key;
  return base::text("autotune: ", key.identity.backend, " (", key.identity.device,
                    "): ", core::tuned_operation_name(key.operation), " (", key.k, ", ", key.m, "), ", at.shard_bytes,
                    " bytes a shard: ", core::tuning_values_text(at.values), is_built_in ? " (built-in)" : "", ": ",
                    !failure ? base::text(base::fixed(at.bytes_per_second / 1e9, 2), " GB/s of data")
                    : failure == tuning::Failure::refused ? "refused"
                                                          : "wrong bytes");
}

tandem_autotune_result run(const tandem_context_options *where, const tandem_autotune_options &given) {
  const tuning::Options options = engine_options(given);
  const std::string output = tuning_file(given.output);
  const auto context = make_context(where);
  tuning::Table known = tuning::read_file(output);  // a file that cannot be read is not replaced; report that now
  if (given.fresh != 0) known = tuning::Table();

  tuning::Hooks hooks;
  hooks.seconds = seconds_now;
  hooks.progress = [&](const tuning::Progress &progress) { return tell(given, progress); };
  hooks.tried = [&](const tuning::Entry &at, bool is_built_in, std::optional<tuning::Failure> failure) {
    context->log.say(TANDEM_LOG_DEBUG, tried_text(at, is_built_in, failure));
  };
  hooks.found = [&](const tuning::Entry &entry) {
    tuning::update_file(output, [&](tuning::Table &table) {
      if (!entry.searched.empty() || !has_more(table, entry)) table.replace(entry);
    });
    context->log.say(TANDEM_LOG_INFO, entry.key.identity.backend, ": ", core::tuned_operation_name(entry.key.operation),
                     " (", entry.key.k, ", ", entry.key.m,
                     "): ", entry.values.empty() ? "the built-in values" : core::tuning_values_text(entry.values), "; ",
                     base::fixed(entry.bytes_per_second / 1e9, 2), " GB/s of data, ",
                     base::fixed(entry.default_bytes_per_second / 1e9, 2), " with the built-in values");
  };
  const double started = seconds_now();
  const tuning::Result found = tuning::autotune(context->backend->tuned(), options, known, hooks);

  tandem_autotune_result result = {};
  result.case_count = static_cast<std::uint32_t>(found.entries.size());
  result.improved_count = static_cast<std::uint32_t>(found.improved_count);
  result.candidate_count = found.candidate_count;
  result.refused_count = found.refused_count;
  result.wrong_count = found.wrong_count;
  result.dropped_count = found.dropped_count;
  result.known_count = found.known_count;
  result.complete = found.complete;
  result.seconds = seconds_now() - started;
  return result;
}

tandem_tuning_entry for_caller(const tuning::Entry &entry) {
  tandem_tuning_entry out = {};
  const tuning::EntryKey &key = entry.key;
  base::copy_text(out.backend, key.identity.backend);
  base::copy_text(out.vendor, key.identity.vendor);
  base::copy_text(out.device, key.identity.device);
  base::copy_text(out.driver, key.identity.driver);
  base::copy_text(out.kernel_hash, key.kernel_hash);
  base::copy_text(out.values, core::tuning_values_text(entry.values));
  base::copy_text(out.date, entry.date);
  out.operation = static_cast<std::int32_t>(key.operation);
  out.k = key.k;
  out.m = key.m;
  out.repeats = entry.repeats;
  out.shard_bytes = entry.shard_bytes;
  out.bytes_per_second = entry.bytes_per_second;
  out.default_bytes_per_second = entry.default_bytes_per_second;
  out.on_device = key.on_device ? 1 : 0;
  return out;
}

}  // namespace
}  // namespace tandem::api

using namespace tandem;

extern "C" {

tandem_status tandem_autotune(const tandem_context_options *context, const tandem_autotune_options *options,
                              tandem_autotune_result *result_out) {
  return base::guarded([&] {
    const tandem_autotune_options given = base::read_options(options, "tandem_autotune_options");
    base::check_result(result_out, "tandem_autotune_result");
    base::write_result(api::run(context, given), result_out, "tandem_autotune_result");
  });
}

tandem_status tandem_tuning_read(const char *file, tandem_tuning_entry *entries_out, size_t capacity,
                                 size_t stride_bytes, size_t *count_out) {
  return base::guarded([&] {
    const tuning::Table table = tuning::read_file(api::tuning_file(file));
    std::vector<tandem_tuning_entry> list;
    for (const tuning::Entry &entry : table.entries()) list.push_back(api::for_caller(entry));
    base::write_list(list, entries_out, capacity, stride_bytes, count_out);
  });
}

tandem_status tandem_tuning_merge(const char *const *files, size_t file_count, const char *output,
                                  size_t *entry_count_out) {
  return base::guarded([&] {
    const std::vector<std::string_view> others = base::read_strings(files, file_count, "files");
    const std::string path = api::tuning_file(output);
    const tuning::Table table = tuning::update_file(path, [&](tuning::Table &merged) {
      for (const std::string_view each : others) {
        const std::string other(each);
        if (!tuning::read_regular_file(other, tuning::Table::kMostFileBytes))
          base::fail(TANDEM_ERROR_IO, other, " does not exist");
        merged.merge(tuning::read_file(other));
      }
    });
    if (entry_count_out != nullptr) *entry_count_out = table.entries().size();
  });
}

tandem_status tandem_tuning_path(const char *tuning_file, char *path_out, size_t capacity_bytes) {
  return base::guarded([&] {
    const std::string path = tuning::file_path(tuning_file);
    if (path_out == nullptr || capacity_bytes <= path.size()) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "path_out is NULL, or ", capacity_bytes, " bytes are too few for ",
                 path.size() + 1);
    }
    std::memcpy(path_out, path.c_str(), path.size() + 1);
  });
}

}  // extern "C"
