// SPDX-License-Identifier: Apache-2.0
#include "api/checks.hpp"

#include <algorithm>

#include "api/call_array.hpp"
#include "base/error.hpp"
#include "base/overlap.hpp"
#include "base/text.hpp"

namespace tandem::api {
namespace {

std::string shard_name(const core::Codec &codec, unsigned index) {
  return index < codec.k() ? base::text("data shard ", index) : base::text("parity shard ", index - codec.k());
}

}  // namespace

void fail_null_shard(const core::Plan &plan, const std::byte *const *inputs, std::byte *const *outputs) {
  const auto fail = [&](unsigned index, const char *use) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "the pointer to ", shard_name(plan.codec(), index),
               " is NULL, but it is to be ", use);
  };
  for (std::size_t i = 0; i < plan.inputs().size(); ++i)
    if (inputs[i] == nullptr) fail(plan.inputs()[i], "read");
  std::size_t i = 0;
  while (outputs[i] != nullptr) ++i;
  fail(plan.outputs()[i], plan.mode() == core::Mode::compare ? "read" : "written");
  __builtin_unreachable();
}

void check_overlap(const core::Plan &plan, const std::byte *const *inputs, std::byte *const *outputs,
                   std::uint64_t shard_bytes) {
  constexpr std::size_t kFewPairs = 4096;
  const std::size_t input_count = plan.inputs().size(), output_count = plan.outputs().size();
  if (output_count * (input_count + output_count) <= kFewPairs &&
      !base::any_overlap({inputs, input_count}, {outputs, output_count}, static_cast<std::size_t>(shard_bytes)))
    return;
  CallArray<base::Extent, 48> extents(output_count + input_count);
  std::size_t count = 0;
  for (std::size_t i = 0; i < output_count; ++i)
    extents[count++] = {outputs[i], static_cast<std::size_t>(shard_bytes), true, plan.outputs()[i]};
  for (std::size_t i = 0; i < input_count; ++i)
    extents[count++] = {inputs[i], static_cast<std::size_t>(shard_bytes), false, plan.inputs()[i]};
  base::Overlap found;
  if (!base::find_overlap({extents.data(), count}, &found)) return;
  base::fail(TANDEM_ERROR_OVERLAP, shard_name(plan.codec(), found.output), " (written, ", shard_bytes,
             " bytes) overlaps ", shard_name(plan.codec(), found.other), " (",
             found.other_is_output ? "written too" : "read", ")");
}

void fail_shard_bytes(std::uint64_t shard_bytes, std::uint64_t shard_count) {
  if (shard_bytes == 0) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "shard_bytes is 0");
  base::fail(TANDEM_ERROR_TOO_LARGE, shard_count, " shards of ", shard_bytes, " bytes do not fit the address space");
}

void check_reachable(const core::Backend &backend, std::int32_t memory) {
  const std::vector<core::MemoryKind> &memories = backend.traits().memories;
  if (std::ranges::find(memories, static_cast<core::MemoryKind>(memory)) == memories.end())
    base::fail(TANDEM_ERROR_UNSUPPORTED, "memory kind ", memory, ": no backend of this context reaches it");
}

void check_index(std::uint32_t index, const core::Codec &codec) {
  if (index >= codec.k())
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "index is ", index, ", but there are ", codec.k(), " data shards");
}

void check_length(const core::Plan &plan, std::uint64_t shard_bytes) {
  const std::uint64_t unit = plan.prepared().length_unit_bytes();
  if (shard_bytes % unit == 0) return;
  base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "shard_bytes is ", shard_bytes, ", but this code needs a multiple of ",
             unit);
}

}  // namespace tandem::api
