// SPDX-License-Identifier: Apache-2.0
// The plain functions.
#include <algorithm>

#include "api/run.hpp"
#include "base/gate.hpp"
#include "base/options.hpp"

namespace tandem::api {

core::Shape decode_shape(const core::Codec &codec, void *const *shards, const std::uint8_t *present) {
  core::Shape shape;
  shape.operation = core::Operation::decode;
  for (unsigned i = 0; i < codec.shard_count(); ++i) {
    if (present[i] != 0) {
      shape.present.set(i);
    } else if (shards[i] != nullptr) {
      shape.wanted.set(i);
    }
  }
  return shape;
}

core::Shape parity_shape(const core::Codec &codec, core::Operation operation, void *const *parity) {
  check_parity(parity, codec);
  core::Shape shape;
  shape.operation = operation;
  for (unsigned r = 0; r < codec.m(); ++r)
    if (parity[r] != nullptr) shape.wanted.set(codec.k() + r);
  return shape;
}

void write_report(const core::VerifyReport &report, tandem_verify_result *result_out) {
  tandem_verify_result result = {};
  result.consistent = report.bad_parity_count == 0;
  result.bad_parity_count = report.bad_parity_count;
  result.mismatch_byte_count = report.mismatch_byte_count;
  result.first_mismatch_bytes = report.first_mismatch_bytes;
  result.first_bad_shard = report.first_bad_shard;
  result.suspect_shard = report.suspect_shard;
  base::write_result(result, result_out, "tandem_verify_result");
}

namespace {

// The pointers in plan order, if the plan's outputs are parity shards only.
[[gnu::noinline]] void run_on_parity(const core::Plan &plan, const std::byte *const *inputs, void *const *parity,
                                     std::size_t shard_bytes) {
  CallArray<std::byte *, 32> outputs(plan.outputs().size());
  std::transform(plan.outputs().begin(), plan.outputs().end(), outputs.begin(),
                 [&](std::uint16_t index) { return static_cast<std::byte *>(parity[index - plan.codec().k()]); });
  run_stripe(plan, inputs, outputs.data(), shard_bytes);
}

// Some parity shards have no pointer.
[[gnu::noinline]] void encode_some(tandem_context &context, const tandem_codec &codec, const void *const *data,
                                   void *const *parity, std::size_t shard_bytes) {
  const core::Shape shape = parity_shape(*codec.codec, core::Operation::encode, parity);
  if (shape.wanted.none()) return;
  run_on_parity(cached_plan(context, codec, shape), as_inputs(data), parity, shard_bytes);
}

void encode(tandem_context &context, const tandem_codec &codec, const void *const *data, void *const *parity,
            std::size_t shard_bytes) {
  check_shard_bytes(shard_bytes, codec.codec->shard_count());
  check_parity(parity, *codec.codec);
  if (any_null(parity, codec.codec->m())) return encode_some(context, codec, data, parity, shard_bytes);
  run_stripe(cached_encode_plan(context, codec), as_inputs(data), as_outputs(parity), shard_bytes, {}, true);
}

// update and accumulate: one column of the matrix, into the parity shards that have a pointer.
void apply_column(tandem_context &context, const tandem_codec &codec, core::Shape shape, std::uint32_t index,
                  const void *first, const void *second, void *const *parity, std::size_t shard_bytes) {
  check_shard_bytes(shard_bytes, codec.codec->shard_count());
  check_index(index, *codec.codec);
  if (shape.wanted.none()) return;
  shape.index = index;
  const std::byte *inputs[] = {static_cast<const std::byte *>(first), static_cast<const std::byte *>(second)};
  run_on_parity(cached_plan(context, codec, shape), inputs, parity, shard_bytes);
}

void verify(tandem_context &context, const tandem_codec &codec, const void *const *shards, std::size_t shard_bytes,
            tandem_verify_result *result_out) {
  base::check_result_size(result_out, "tandem_verify_result");
  check_shard_bytes(shard_bytes, codec.codec->shard_count());
  core::Shape shape;
  shape.operation = core::Operation::verify;
  shape.wanted = all_parity(*codec.codec);
  const core::Plan &plan = cached_plan(context, codec, shape);
  Pointers pointers(plan);
  gather(plan, const_cast<void *const *>(shards), nullptr, &pointers);
  check_pointers(plan, pointers.inputs.data(), pointers.outputs.data(), shard_bytes);
  CallArray<core::Mismatch, 16> mismatches(plan.outputs().size());
  core::Task task = plan.task(pointers.inputs.data(), pointers.outputs.data(), shard_bytes);
  task.mismatches = mismatches.data();
  const core::MemoryHold hold({&task, 1});
  core::Control control;
  plan.backend().run({&task, 1}, control);
  write_report(core::explain(plan, task, control), result_out);
}

}  // namespace
}  // namespace tandem::api

using namespace tandem::api;
using tandem::core::Operation;

using namespace tandem;

extern "C" {

tandem_status tandem_encode(tandem_context *context, const tandem_codec *codec, const void *const *data,
                            void *const *parity, size_t shard_bytes) {
  return base::guarded({{"codec", codec}, {"data", data}},
                       [&] { encode(context_or_default(context), *codec, data, parity, shard_bytes); });
}

tandem_status tandem_decode(tandem_context *context, const tandem_codec *codec, void *const *shards,
                            const uint8_t *present, size_t shard_bytes) {
  return base::guarded({{"codec", codec}, {"shards", shards}, {"present", present}}, [&] {
    check_shard_bytes(shard_bytes, codec->codec->shard_count());
    const tandem::core::Shape shape = decode_shape(*codec->codec, shards, present);
    if (shape.wanted.none()) return;
    run_gathered(cached_plan(context_or_default(context), *codec, shape), shards, nullptr, shard_bytes);
  });
}

tandem_status tandem_verify(tandem_context *context, const tandem_codec *codec, const void *const *shards,
                            size_t shard_bytes, tandem_verify_result *result_out) {
  return base::guarded({{"codec", codec}, {"shards", shards}, {"result_out", result_out}},
                       [&] { verify(context_or_default(context), *codec, shards, shard_bytes, result_out); });
}

tandem_status tandem_update(tandem_context *context, const tandem_codec *codec, uint32_t index, const void *old_data,
                            const void *new_data, void *const *parity, size_t shard_bytes) {
  return base::guarded({{"codec", codec}, {"old_data", old_data}, {"new_data", new_data}}, [&] {
    apply_column(context_or_default(context), *codec, parity_shape(*codec->codec, Operation::update, parity), index,
                 old_data, new_data, parity, shard_bytes);
  });
}

tandem_status tandem_accumulate(tandem_context *context, const tandem_codec *codec, uint32_t index, const void *data,
                                void *const *parity, size_t shard_bytes, int32_t first) {
  return base::guarded({{"codec", codec}, {"data", data}}, [&] {
    tandem::core::Shape shape = parity_shape(*codec->codec, Operation::accumulate, parity);
    shape.overwrite = first != 0;
    apply_column(context_or_default(context), *codec, shape, index, data, nullptr, parity, shard_bytes);
  });
}

}  // extern "C"
