// SPDX-License-Identifier: Apache-2.0
// Every call of the C API that codes one stripe, by one function. Uses only tandem.h.
#pragma once

#include <string>

#include "tests/support/api.hpp"

namespace tandem::test {

enum class Way { plain, plan, job, stripes, scattered };
inline constexpr Way kWays[] = {Way::plain, Way::plan, Way::job, Way::stripes, Way::scattered};

inline bool has_way(std::int32_t operation, Way way) {
  return operation == TANDEM_OPERATION_ENCODE || operation == TANDEM_OPERATION_DECODE || way < Way::stripes;
}

inline std::string name_of(std::int32_t operation, Way way) {
  const char *const operations[] = {"encode", "decode", "verify", "update", "accumulate"};
  const char *const ways[] = {"", " by a plan", " by a job", " of stripes", " of pieces"};
  return operations[operation] + std::string(ways[static_cast<int>(way)]);
}

struct Call {
  tandem_context *context;
  const tandem_codec *codec;
  std::int32_t operation;
  std::size_t shard_bytes;
  std::vector<void *> pointers;  // k+m; NULL: neither given nor wanted
  Bytes present{};               // decode
  Bytes wanted{};                // plans; none: the default
  std::uint32_t index = 0;
  bool first = false;
  const void *new_data = nullptr;
  tandem_verify_result *result = nullptr;
  unsigned k = 0;
  bool has_shards = true, has_parity = true;
};

inline tandem_status perform_plan(const Call &call, bool submits) {
  auto options = sized<tandem_plan_options>();
  options.operation = call.operation;
  options.present = call.present.empty() ? nullptr : call.present.data();
  options.wanted = call.wanted.empty() ? nullptr : call.wanted.data();
  options.index = call.index;
  options.first = call.first;
  tandem_plan *raw = nullptr;
  const tandem_status made = tandem_plan_create(call.context, call.codec, &options, &raw);
  const Plan plan(raw);
  EXPECT_EQ(plan != nullptr, made == TANDEM_OK);
  if (made != TANDEM_OK) return made;
  std::vector<void *> pointers = call.pointers;
  if (call.operation == TANDEM_OPERATION_DECODE) {  // a plan reads no more than it says
    const Bytes read = shards_read(raw, pointers.size());
    for (std::size_t i = 0; i < pointers.size(); ++i) {
      EXPECT_LE(read[i], call.present[i] != 0) << "reads a missing shard";
      if (call.present[i] != 0 && read[i] == 0) pointers[i] = nullptr;
    }
  }
  auto arguments = plan_arguments(call.has_shards ? pointers.data() : nullptr, call.shard_bytes);
  arguments.new_data = call.new_data;
  arguments.verify_result = call.result;
  if (!submits) return tandem_plan_run(raw, &arguments, nullptr);
  tandem_job *job = nullptr;
  const tandem_status submitted = tandem_plan_run(raw, &arguments, &job);
  EXPECT_EQ(job != nullptr, submitted == TANDEM_OK);
  if (submitted != TANDEM_OK) return submitted;
  std::fill(pointers.begin(), pointers.end(), nullptr);  // they were copied
  const Job owner(job);
  return tandem_job_wait(job);
}

inline tandem_status perform(Way way, const Call &call) {
  const bool decodes = call.operation == TANDEM_OPERATION_DECODE;
  const std::uint8_t *const present = call.present.empty() ? nullptr : call.present.data();
  void *const *const shards = call.has_shards ? call.pointers.data() : nullptr;
  void *const *const parity = call.has_shards && call.has_parity ? shards + call.k : nullptr;
  const void *const one = call.index < call.pointers.size() ? call.pointers[call.index] : call.pointers[0];
  switch (way) {
    case Way::plan:
    case Way::job:
      return perform_plan(call, way == Way::job);
    case Way::stripes: {
      struct Record {
        tandem_stripe stripe;
        std::uint64_t canary;
      } record = {{shards, present, call.shard_bytes, TANDEM_MEMORY_HOST, 4321, nullptr}, 99};
      const tandem_status status =
          decodes ? tandem_decode_stripes(call.context, call.codec, &record.stripe, 1, sizeof record)
                  : tandem_encode_stripes(call.context, call.codec, &record.stripe, 1, sizeof record);
      if (call.codec != nullptr) {
        EXPECT_EQ(record.stripe.status, decodes ? status : 4321);
      }
      EXPECT_EQ(record.canary, 99u);
      return status;
    }
    case Way::scattered: {  // in one piece each
      std::vector<tandem_segment> segments;
      std::vector<tandem_scattered_shard> pieces;
      for (void *const shard : call.pointers) segments.push_back({shard, call.shard_bytes});
      for (const tandem_segment &segment : segments)
        pieces.push_back({segment.address == nullptr ? nullptr : &segment, segment.address == nullptr ? 0u : 1u});
      const tandem_scattered_shard *const given = call.has_shards ? pieces.data() : nullptr;
      return tandem_code_scattered(call.context, call.codec, call.operation, given, decodes ? present : nullptr,
                                   call.shard_bytes);
    }
    case Way::plain:
      break;
  }
  switch (call.operation) {
    case TANDEM_OPERATION_ENCODE:
      return tandem_encode(call.context, call.codec, shards, parity, call.shard_bytes);
    case TANDEM_OPERATION_DECODE:
      return tandem_decode(call.context, call.codec, shards, present, call.shard_bytes);
    case TANDEM_OPERATION_VERIFY:
      return tandem_verify(call.context, call.codec, shards, call.shard_bytes, call.result);
    case TANDEM_OPERATION_UPDATE:
      return tandem_update(call.context, call.codec, call.index, one, call.new_data, parity, call.shard_bytes);
    default:
      return tandem_accumulate(call.context, call.codec, call.index, one, parity, call.shard_bytes, call.first);
  }
}

}  // namespace tandem::test
