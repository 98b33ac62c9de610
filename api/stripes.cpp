// SPDX-License-Identifier: Apache-2.0
// Many stripes in one call.

#include <algorithm>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "api/run.hpp"
#include "base/gate.hpp"
#include "base/stripe_error.hpp"

namespace tandem::api {

void check_stripes(const void *stripes, std::size_t stripe_count, std::size_t stride_bytes, const char *type,
                   std::size_t type_bytes, std::size_t alignment) {
  if (stripes == nullptr && stripe_count != 0) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "stripes is NULL");
  if (stride_bytes < type_bytes || stride_bytes % alignment != 0) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "stride_bytes is ", stride_bytes, ": not a multiple of ", alignment,
               ", or smaller than a ", type, " (", type_bytes, ")");
  }
  if (stripe_count > static_cast<std::size_t>(PTRDIFF_MAX) / stride_bytes)
    base::fail(TANDEM_ERROR_TOO_LARGE, stripe_count, " stripes ", stride_bytes,
               " bytes apart do not fit the address space");
}

namespace {

// Stripes handed to the backend at a time: enough to spread, few enough to keep the pointer lists small.
constexpr std::size_t kStripesAtOnce = 512;

void check_stripe(const tandem_stripe &stripe, const core::Codec &codec) {
  if (stripe.shards == nullptr) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "shards is NULL");
  if (stripe.memory != TANDEM_MEMORY_HOST)
    base::fail(TANDEM_ERROR_UNSUPPORTED, "memory kind ", stripe.memory,
               ": plans and batches (device.h) take it, stripes do not");
  if (stripe.offsets != nullptr)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "offsets is not NULL: it is for device memory");
  check_shard_bytes(stripe.shard_bytes, codec.shard_count());
}

// Tasks of several stripes, with their pointers. After the constructor nothing here allocates.
class StripeTasks {
 public:
  StripeTasks(const tandem_context &context, const core::Codec &codec, std::size_t stripe_count)
      : context_(context), capacity_(std::min(stripe_count, kStripesAtOnce)), row_pointers_(codec.shard_count()) {
    pointers_.resize(capacity_ * row_pointers_);
    tasks_.reserve(capacity_);
    plans_.reserve(capacity_);
    statuses_.reserve(capacity_);
  }

  bool full() const noexcept { return tasks_.size() == capacity_; }

  // Copies the stripe's pointers to the free row. Encode and decode have at most k+m.
  void place(const core::Plan &plan, const tandem_stripe &stripe) noexcept {
    std::byte **next = row();
    for (const std::uint16_t index : plan.inputs()) *next++ = static_cast<std::byte *>(stripe.shards[index]);
    for (const std::uint16_t index : plan.outputs()) *next++ = static_cast<std::byte *>(stripe.shards[index]);
  }

  // Checks the placed stripe. Throws Error if its pointers are wrong.
  void check(const core::Plan &plan, std::size_t shard_bytes) {
    check_pointers(plan, row(), row() + plan.inputs().size(), shard_bytes);
  }

  // Adds the placed stripe. After the tasks have run, its status is written to `status`, unless that is NULL.
  void add(std::shared_ptr<const core::Plan> plan, std::size_t shard_bytes, tandem_status *status) noexcept {
    tasks_.push_back(plan->task(row(), row() + plan->inputs().size(), shard_bytes));
    plans_.push_back(std::move(plan));
    statuses_.push_back(status);
  }

  // Runs the added stripes. There are none afterwards, even if this throws.
  void run() {
    core::Control control;
    try {
      const core::MemoryHold hold(tasks_);
      if (!tasks_.empty()) context_.backend->run(tasks_, control);
    } catch (const base::Error &error) {
      finish(error.status());
      throw;
    } catch (const std::bad_alloc &) {
      finish(TANDEM_ERROR_OUT_OF_MEMORY);
      throw;
    } catch (...) {
      finish(TANDEM_ERROR_INTERNAL);
      throw;
    }
    finish(TANDEM_OK);
  }

 private:
  std::byte **row() noexcept { return pointers_.data() + tasks_.size() * row_pointers_; }

  void finish(tandem_status result) noexcept {
    for (tandem_status *status : statuses_)
      if (status != nullptr) *status = result;
    tasks_.clear();
    plans_.clear();
    statuses_.clear();
  }

  const tandem_context &context_;
  std::size_t capacity_, row_pointers_;
  std::vector<std::byte *> pointers_;
  std::vector<core::Task> tasks_;
  std::vector<std::shared_ptr<const core::Plan>> plans_;
  std::vector<tandem_status *> statuses_;
};

// Consecutive stripes with the same plan.
struct Stretch {
  std::size_t end;  // index of the stripe after the last
  std::shared_ptr<const core::Plan> plan;
};

std::shared_ptr<const core::Plan> encode_plan(const tandem_context &context, const tandem_codec &codec,
                                              const tandem_stripe &stripe) {
  return shared_plan(context, codec,
                     parity_shape(*codec.codec, core::Operation::encode, stripe.shards + codec.codec->k()));
}

void encode_stripes(tandem_context &context, const tandem_codec &codec, const tandem_stripe *stripes,
                    std::size_t stripe_count, std::size_t stride_bytes) {
  check_array(stripes, stripe_count, stride_bytes, "tandem_stripe");
  StripeTasks tasks(context, *codec.codec, stripe_count);
  // The plans are kept for the second pass. If it made them, it could fail after the first bytes were written.
  std::vector<Stretch> stretches;
  for (std::size_t i = 0; i < stripe_count; ++i) {
    try {
      const tandem_stripe &stripe = stripe_at(stripes, i, stride_bytes);
      check_stripe(stripe, *codec.codec);
      auto plan = encode_plan(context, codec, stripe);
      tasks.place(*plan, stripe);
      tasks.check(*plan, stripe.shard_bytes);
      if (stretches.empty() || stretches.back().plan != plan) stretches.push_back({i, std::move(plan)});
      stretches.back().end = i + 1;
    } catch (const base::Error &error) {
      base::fail_in_stripe(error, i, stripe_count);
    }
  }
  std::size_t i = 0;
  for (const Stretch &stretch : stretches) {
    for (; i < stretch.end; ++i) {
      const tandem_stripe &stripe = stripe_at(stripes, i, stride_bytes);
      tasks.place(*stretch.plan, stripe);
      tasks.add(stretch.plan, stripe.shard_bytes, nullptr);
      if (tasks.full()) tasks.run();
    }
  }
  tasks.run();
}

void decode_stripes(tandem_context &context, const tandem_codec &codec, tandem_stripe *stripes,
                    std::size_t stripe_count, std::size_t stride_bytes) {
  check_array(stripes, stripe_count, stride_bytes, "tandem_stripe");
  // The status of stripes that were not begun, if this function throws.
  for (std::size_t i = 0; i < stripe_count; ++i) stripe_at(stripes, i, stride_bytes).status = TANDEM_ERROR_CANCELLED;
  StripeTasks tasks(context, *codec.codec, stripe_count);
  std::optional<std::pair<std::size_t, base::Error>> first;
  for (std::size_t i = 0; i < stripe_count; ++i) {
    tandem_stripe &stripe = stripe_at(stripes, i, stride_bytes);
    try {
      check_stripe(stripe, *codec.codec);
      if (stripe.present == nullptr) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "present is NULL");
      const core::Shape shape = decode_shape(*codec.codec, stripe.shards, stripe.present);
      if (!shape.wanted.none()) {
        auto plan = shared_plan(context, codec, shape);
        tasks.place(*plan, stripe);
        tasks.check(*plan, stripe.shard_bytes);
        tasks.add(std::move(plan), stripe.shard_bytes, &stripe.status);
      } else {
        stripe.status = TANDEM_OK;
      }
    } catch (const base::Error &error) {
      stripe.status = error.status();
      if (!first.has_value()) first.emplace(i, error);
    }
    if (tasks.full()) tasks.run();
  }
  tasks.run();
  if (first.has_value()) base::fail_in_stripe(first->second, first->first, stripe_count);
}

}  // namespace
}  // namespace tandem::api

using namespace tandem::api;

using namespace tandem;

extern "C" {

tandem_status tandem_encode_stripes(tandem_context *context, const tandem_codec *codec, const tandem_stripe *stripes,
                                    size_t stripe_count, size_t stride_bytes) {
  return base::guarded({{"codec", codec}}, [&] {
    encode_stripes(context_or_default(context), *codec, stripes, stripe_count, stride_bytes);
  });
}

tandem_status tandem_decode_stripes(tandem_context *context, const tandem_codec *codec, tandem_stripe *stripes,
                                    size_t stripe_count, size_t stride_bytes) {
  return base::guarded({{"codec", codec}}, [&] {
    decode_stripes(context_or_default(context), *codec, stripes, stripe_count, stride_bytes);
  });
}

}  // extern "C"
