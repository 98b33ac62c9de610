// SPDX-License-Identifier: Apache-2.0
// Fuzzer of the tuning file and of ranges of tuning values. Oracle: accepted files keep the limits of docs/tuning.md,
// are the same after writing and reading, and answer a question from their own entries. A file that is refused names
// the line.
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "core/backend.hpp"
#include "tests/fuzz/input.hpp"
#include "tuning/ranges.hpp"
#include "tuning/table.hpp"

namespace {

using namespace tandem;
using namespace tandem::core;
using test::wrong;

void check_entry(const tuning::Entry &entry) {
  if (entry.key.k < 1 || entry.key.k > 256 || entry.key.m < 1 || entry.key.m > 256) wrong("k or m");
  if (entry.values.size() > 64) wrong("many values");
  for (const auto &[name, value] : entry.values)
    if (value > std::uint64_t{1} << 40 || !tuning::valid_name(name)) wrong("a value");
  if (!std::isfinite(entry.bytes_per_second) || entry.bytes_per_second < 0) wrong("a rate");
  if (entry.date.size() != 20 || entry.repeats == 0 || entry.shard_bytes == 0) wrong("a number");
  for (const std::string *text : {&entry.key.identity.backend, &entry.key.identity.vendor, &entry.key.identity.device,
                                  &entry.key.identity.driver, &entry.key.kernel_hash})
    if (text->size() > 256 || std::any_of(text->begin(), text->end(), [](unsigned char c) { return c < 32; }))
      wrong("a text");
}

void fuzz_file(std::string_view text) {
  tuning::Table table;
  try {
    table = tuning::Table::parse(text);
  } catch (const base::Error &error) {
    if (error.status() != TANDEM_ERROR_DAMAGED && error.status() != TANDEM_ERROR_UNSUPPORTED) wrong("status");
    if (!std::string_view(error.what()).starts_with("line ")) wrong("a message without a line");
    return;
  }
  for (const tuning::Entry &entry : table.entries()) {
    check_entry(entry);
    const TuningChoice choice =
        table.find({entry.key.identity, entry.key.kernel_hash, tuned_operation_mode(entry.key.operation), entry.key.k,
                    entry.key.m, entry.key.on_device});
    if (choice.reason.empty()) wrong("its own entry is not found");
  }
  const std::string written = table.to_text();
  if (tuning::Table::parse(written).to_text() != written) wrong("a file that reads back differently");
  tuning::Table merged;
  merged.merge(table);
  merged.merge(table);
  if (merged.entries().size() > table.entries().size()) wrong("a merge that grows");
}

void fuzz_range(std::string_view text) {
  try {
    const auto values = tuning::parse_range(text, 1, 5000);
    if (values.empty() || values.size() > tuning::kMostRangeValues) wrong("a range's size");
    for (const std::uint64_t value : values)
      if (value < 1 || value > 5000) wrong("a range's limits");
  } catch (const base::Error &error) {
    if (error.status() != TANDEM_ERROR_INVALID_ARGUMENT) wrong("status of a range");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char *>(data), size);
  if (!text.empty() && text.front() == '=') {
    fuzz_range(text.substr(1));
  } else {
    fuzz_file(text);
  }
  return 0;
}
