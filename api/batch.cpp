// SPDX-License-Identifier: Apache-2.0
// Many stripes in device memory: tasks of one submit. The device's backend puts them together.

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "api/job.hpp"
#include "api/run.hpp"
#include "base/gate.hpp"
#include "base/stripe_error.hpp"
#include "tandem/device.h"

namespace tandem::api {
namespace {

constexpr std::size_t kMostStripes = std::size_t{1} << 24;

// The stripes' tasks, in their order. A stripe with nothing to do has a task of 0 bytes, so that the backend's messages
// name the right stripe.
class BatchRun final : public SubmittedRun {
 public:
  BatchRun(const tandem_context &context, const tandem_codec &codec, std::int32_t memory, void *queue)
      : context_(context), codec_(codec), memory_(memory), queue_(queue) {}

  // Throws Error if the stripe's arguments are wrong. The stripe is then not added.
  void add(core::Operation operation, const tandem_stripe &stripe) {
    const core::Codec &codec = *codec_.codec;
    if (stripe.shards == nullptr) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "shards is NULL");
    if (stripe.memory != memory_) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "memory kind is ", stripe.memory,
                 ", but that of the stripes before it is ", memory_);
    }
    check_shard_bytes(stripe.shard_bytes, codec.shard_count());
    if (operation == core::Operation::decode && stripe.present == nullptr)
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "present is NULL");
    const core::Shape shape = operation == core::Operation::encode
                                  ? parity_shape(codec, operation, stripe.shards + codec.k())
                                  : decode_shape(codec, stripe.shards, stripe.present);
    core::Task task = {};
    if (!shape.wanted.none()) {
      const core::Plan &plan = plan_of(shape);
      Pointers pointers(plan);
      gather(plan, stripe.shards, nullptr, &pointers);
      check_given(plan, pointers.inputs.data(), pointers.outputs.data(), stripe.shard_bytes);
      for (const auto list : {plan.inputs(), plan.outputs()}) {
        for (const std::uint16_t index : list) {
          shards_.push_back(static_cast<std::byte *>(stripe.shards[index]));
          offsets_.push_back(stripe.offsets != nullptr ? stripe.offsets[index] : 0);
        }
      }
      task = plan.task(nullptr, nullptr, stripe.shard_bytes);
    }
    task.memory = static_cast<core::MemoryKind>(memory_);
    task.queue = queue_;
    tasks_.push_back(task);
  }

  // After the last add().
  std::span<const core::Task> tasks() {
    std::size_t next = 0;
    const auto take = [&](auto &shards, const std::uint64_t *&offsets, std::size_t count) {
      shards = shards_.data() + next;
      offsets = offsets_.data() + next;
      next += count;
    };
    for (core::Task &task : tasks_) {
      if (task.prepared == nullptr) continue;
      take(task.inputs, task.input_offsets, task.prepared->columns());
      take(task.outputs, task.output_offsets, task.prepared->rows());
    }
    return tasks_;
  }

  core::Control &control() override { return control_; }
  void release() override {}

 private:
  struct Hash {
    std::size_t operator()(const core::Shape &shape) const noexcept {
      return shape.present.hash() * 31 + shape.wanted.hash();
    }
  };

  // One plan for each pattern of erasures, without a limit: the tasks of a plan run together.
  const core::Plan &plan_of(const core::Shape &shape) {
    auto &plan = plans_[shape];
    if (plan == nullptr) plan = shared_plan(context_, codec_, shape);
    return *plan;
  }

  const tandem_context &context_;
  const tandem_codec &codec_;
  const std::int32_t memory_;
  void *const queue_;
  std::unordered_map<core::Shape, std::shared_ptr<const core::Plan>, Hash> plans_;
  std::vector<std::byte *> shards_;  // of each task, inputs and then outputs
  std::vector<std::uint64_t> offsets_;
  std::vector<core::Task> tasks_;
  core::Control control_;
};

void submit_batch(tandem_context &context, const tandem_codec &codec, core::Operation operation, tandem_stripe *stripes,
                  std::size_t stripe_count, std::size_t stride_bytes, void *queue, tandem_job **job_out) {
  check_array(stripes, stripe_count, stride_bytes, "tandem_stripe");
  if (stripe_count > kMostStripes)
    base::fail(TANDEM_ERROR_TOO_LARGE, stripe_count, " stripes: a batch has ", kMostStripes, " at most");
  const bool decodes = operation == core::Operation::decode;
  for (std::size_t i = 0; decodes && i < stripe_count; ++i)
    stripe_at(stripes, i, stride_bytes).status = TANDEM_ERROR_CANCELLED;
  const std::int32_t memory = stripe_count != 0 ? stripes->memory : std::int32_t{TANDEM_MEMORY_HOST};
  if (stripe_count != 0) {
    if (memory != TANDEM_MEMORY_CUDA && memory != TANDEM_MEMORY_OPENCL)
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "stripe 0: memory kind ", memory, " is not of a device");
    check_reachable(*context.backend, memory);
  }
  auto run = std::make_unique<BatchRun>(context, codec, memory, queue);
  auto job = make_job();
  std::optional<std::pair<std::size_t, base::Error>> first;
  for (std::size_t i = 0; i < stripe_count; ++i) {
    tandem_stripe &stripe = stripe_at(stripes, i, stride_bytes);
    try {
      run->add(operation, stripe);
      if (decodes) stripe.status = TANDEM_OK;
    } catch (const base::Error &error) {
      if (!decodes) base::fail_in_stripe(error, i, stripe_count);
      stripe.status = error.status();
      if (!first.has_value()) first.emplace(i, error);
    }
  }
  if (first.has_value()) base::fail_in_stripe(first->second, first->first, stripe_count);
  job->ticket = context.backend->submit(run->tasks(), run->control());
  job->run = std::move(run);
  *job_out = job.release();
}

}  // namespace
}  // namespace tandem::api

using namespace tandem;

extern "C" {

tandem_status tandem_code_batch(tandem_context *context, const tandem_codec *codec, int32_t operation,
                                tandem_stripe *stripes, size_t stripe_count, size_t stride_bytes, void *queue,
                                tandem_job **job_out) {
  return base::guarded({{"codec", codec}, {"job_out", job_out}}, [&] {
    if (operation != TANDEM_OPERATION_ENCODE && operation != TANDEM_OPERATION_DECODE)
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "operation is ", operation, ": stripes are encoded or decoded");
    api::submit_batch(api::context_or_default(context), *codec, static_cast<core::Operation>(operation), stripes,
                      stripe_count, stride_bytes, queue, job_out);
  });
}

}  // extern "C"
