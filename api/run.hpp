// SPDX-License-Identifier: Apache-2.0
// Steps that every operation shares: bring a stripe's pointers into plan order, check them, run.
#pragma once

#include <algorithm>
#include <type_traits>

#include "api/call_array.hpp"
#include "api/checks.hpp"
#include "api/plan_cache.hpp"
#include "core/registered_memory.hpp"
#include "core/verify.hpp"

namespace tandem::api {

// A stripe's pointers in plan order. Update: old and new data beside each other.
struct Pointers {
  explicit Pointers(const core::Plan &plan) : inputs(plan.inputs().size()), outputs(plan.outputs().size()) {}
  CallArray<const std::byte *, 32> inputs;
  CallArray<std::byte *, 32> outputs;
};

inline const std::byte *const *as_inputs(const void *const *pointers) {
  return reinterpret_cast<const std::byte *const *>(pointers);
}
inline std::byte *const *as_outputs(void *const *pointers) { return reinterpret_cast<std::byte *const *>(pointers); }

// Picks the plan's inputs and outputs out of a stripe's k+m pointers, data first. new_data: of an update.
inline void gather(const core::Plan &plan, void *const *shards, const void *new_data, Pointers *out) {
  std::transform(plan.inputs().begin(), plan.inputs().end(), out->inputs.begin(),
                 [&](std::uint16_t index) { return static_cast<const std::byte *>(shards[index]); });
  std::transform(plan.outputs().begin(), plan.outputs().end(), out->outputs.begin(),
                 [&](std::uint16_t index) { return static_cast<std::byte *>(shards[index]); });
  if (plan.shape().operation == core::Operation::update) out->inputs[1] = static_cast<const std::byte *>(new_data);
}

// Out of line: few programs register memory.
[[gnu::noinline]] inline void run_held(core::Backend &backend, const core::Task &task, core::Control &control) {
  const core::MemoryHold hold({&task, 1});
  backend.run({&task, 1}, control);
}

// Checks the pointers, then runs the plan on one stripe. Not for verify. has_outputs: no output is NULL. Throws Error.
[[gnu::always_inline]] inline void run_stripe(const core::Plan &plan, const std::byte *const *inputs,
                                              std::byte *const *outputs, std::uint64_t shard_bytes,
                                              std::span<const core::Need> needs = {}, bool has_outputs = false) {
  check_pointers(plan, inputs, outputs, shard_bytes, has_outputs);
  const core::Task task = plan.task(inputs, outputs, shard_bytes);
  core::Control control(needs);
  if (core::is_any_memory_registered()) [[unlikely]]
    return run_held(plan.backend(), task, control);
  plan.backend().run({&task, 1}, control);
}

// The same, with a stripe's k+m pointers, data first. new_data: of an update. Out of line for its arrays.
[[gnu::noinline]] inline void run_gathered(const core::Plan &plan, void *const *shards, const void *new_data,
                                           std::uint64_t shard_bytes, std::span<const core::Need> needs = {}) {
  Pointers pointers(plan);
  gather(plan, shards, new_data, &pointers);
  run_stripe(plan, pointers.inputs.data(), pointers.outputs.data(), shard_bytes, needs);
}

// The missing and wanted shards, from tandem_decode's arguments.
core::Shape decode_shape(const core::Codec &codec, void *const *shards, const std::uint8_t *present);

// The shape of an operation on parity alone. Parity shards with a NULL pointer are left out.
core::Shape parity_shape(const core::Codec &codec, core::Operation operation, void *const *parity);

// A stripe of an array in a caller's layout.
template <class Stripe>
Stripe &stripe_at(Stripe *stripes, std::size_t index, std::size_t stride_bytes) {
  using Byte = std::conditional_t<std::is_const_v<Stripe>, const std::byte, std::byte>;
  return *reinterpret_cast<Stripe *>(reinterpret_cast<Byte *>(stripes) + index * stride_bytes);
}

// Checks such an array. type: name of the struct with this size and alignment. Throws Error.
void check_stripes(const void *stripes, std::size_t stripe_count, std::size_t stride_bytes, const char *type,
                   std::size_t type_bytes, std::size_t alignment);
template <class Stripe>
void check_array(const Stripe *stripes, std::size_t stripe_count, std::size_t stride_bytes, const char *type) {
  check_stripes(stripes, stripe_count, stride_bytes, type, sizeof(Stripe), alignof(Stripe));
}

void write_report(const core::VerifyReport &report, tandem_verify_result *result_out);

}  // namespace tandem::api
