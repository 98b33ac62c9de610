// SPDX-License-Identifier: Apache-2.0
// Which shards of a stripe are damaged.
#include "core/locate.hpp"

#include <algorithm>

#include "api/run.hpp"
#include "base/gate.hpp"
#include "base/options.hpp"
#include "base/overlap.hpp"
#include "tandem/diagnose.h"

namespace tandem::api {
namespace {

// The operator to compare with: the plan that verify keeps, if no shard is lost.
struct Checking {
  core::Application application;
  std::shared_ptr<const core::Plan> plan;            // of all shards
  std::shared_ptr<const core::Prepared> of_present;  // if a shard is lost
  const core::Prepared &prepared() const { return plan != nullptr ? plan->prepared() : *of_present; }
};

Checking checking_of(tandem_context &context, const tandem_codec &codec, const core::ShardSet &present,
                     unsigned absent_count) {
  Checking checking;
  if (absent_count == 0) {
    core::Shape shape;
    shape.operation = core::Operation::verify;
    shape.wanted = all_parity(*codec.codec);
    checking.plan = shared_plan(context, codec, shape);
    checking.application = codec.codec->encode(shape.wanted);
  } else {
    checking.application = core::checks_of(*codec.codec, present);
    checking.of_present = context.backend->prepare(checking.application.what);
  }
  return checking;
}

// Every present shard is given. If shards may be written, they do not overlap. Throws Error.
void check_shards(const core::Codec &codec, const core::ShardSet &present, void *const *shards, std::size_t shard_bytes,
                  bool is_written) {
  std::vector<base::Extent> extents;
  for (unsigned i = 0; i < codec.shard_count(); ++i) {
    if (!present[i]) continue;
    if (shards[i] == nullptr)
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "the pointer to shard ", i, " is NULL, but it is present");
    extents.push_back(
        {static_cast<const std::byte *>(shards[i]), shard_bytes, is_written, static_cast<std::uint16_t>(i)});
  }
  base::Overlap found;
  if (is_written && base::find_overlap(extents, &found)) {
    base::fail(TANDEM_ERROR_OVERLAP, "shard ", found.output, " (written, ", shard_bytes, " bytes) overlaps shard ",
               found.other);
  }
}

void locate(tandem_context &context, const tandem_codec &codec, void *const *shards, std::size_t shard_bytes,
            const tandem_locate_options &options, tandem_locate_result *result_out) {
  const core::Codec &of = *codec.codec;
  if (options.repair != 0 && options.repair != 1)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "repair is ", options.repair, "; known values are 0 and 1");
  if (options.ranges == nullptr && options.range_capacity != 0)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "ranges is NULL, but range_capacity is ", options.range_capacity);
  check_shard_bytes(shard_bytes, of.shard_count());
  core::ShardSet present;
  unsigned absent_count = 0;
  for (unsigned i = 0; i < of.shard_count(); ++i) {
    if (options.present == nullptr || options.present[i] != 0) {
      present.set(i);
    } else {
      ++absent_count;
    }
  }
  const unsigned most = core::most_damaged_shards(of, absent_count);
  const Checking checking = checking_of(context, codec, present, absent_count);
  if (checking.application.what.granularity_bytes() != 1) {
    base::fail(TANDEM_ERROR_UNSUPPORTED, "locate: it works on single bytes, but this code has pieces of ",
               checking.application.what.granularity_bytes());
  }
  check_shards(of, present, shards, shard_bytes, options.repair != 0);

  core::Control control;
  const core::DamageReport report =
      core::locate_damage(*context.backend, of, checking.application, checking.prepared(), most,
                          reinterpret_cast<std::byte *const *>(shards), shard_bytes, options.repair != 0, control);
  tandem_locate_result result = {};
  result.consistent = report.is_consistent;
  result.most_damaged_shards = most;
  result.repaired = report.is_repaired;
  result.beyond_byte_count = report.beyond_byte_count;
  result.range_count = report.ranges.size();
  for (const std::uint64_t count : report.damaged_bytes) {
    result.damaged_shard_count += count != 0;
    result.damaged_byte_count += count;
  }
  if (options.damaged_bytes_out != nullptr) std::ranges::copy(report.damaged_bytes, options.damaged_bytes_out);
  for (std::size_t i = 0; i < std::min<std::uint64_t>(options.range_capacity, report.ranges.size()); ++i) {
    const core::DamageRange &range = report.ranges[i];
    options.ranges[i] = {range.shard, 0, range.begin_bytes, range.end_bytes, range.byte_count};
  }
  base::write_result(result, result_out, "tandem_locate_result");
}

}  // namespace
}  // namespace tandem::api

using namespace tandem;

extern "C" {

tandem_status tandem_locate(tandem_context *context, const tandem_codec *codec, void *const *shards, size_t shard_bytes,
                            const tandem_locate_options *options, tandem_locate_result *result_out) {
  return base::guarded({{"codec", codec}, {"shards", shards}, {"result_out", result_out}}, [&] {
    base::check_result_size(result_out, "tandem_locate_result");
    api::locate(api::context_or_default(context), *codec, shards, shard_bytes,
                base::read_options(options, "tandem_locate_options"), result_out);
  });
}

}  // extern "C"
