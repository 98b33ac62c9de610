// Many stripes in one call.
#include <fmt/format.h>

#include <vector>

#include "api/gate.hpp"
#include "api/run.hpp"

namespace tandem::api {
namespace {

// Stripes handed to the backend at a time: enough to spread, few enough to keep the pointer lists small.
constexpr std::size_t kGroupStripes = 512;

template <class Stripe>
Stripe &stripe_at(Stripe *stripes, std::size_t index, std::size_t stride_bytes) {
  using Byte = std::conditional_t<std::is_const_v<Stripe>, const std::byte, std::byte>;
  return *reinterpret_cast<Stripe *>(reinterpret_cast<Byte *>(stripes) + index * stride_bytes);
}

void check_array(std::size_t stripe_count, std::size_t stride_bytes) {
  if (stride_bytes < sizeof(tandem_stripe) || stride_bytes % alignof(tandem_stripe) != 0) {
    core::fail(TANDEM_ERROR_INVALID_ARGUMENT,
               fmt::format("stride_bytes is {}: not a multiple of {}, or smaller than a tandem_stripe ({})",
                           stride_bytes, alignof(tandem_stripe), sizeof(tandem_stripe)));
  }
  if (stripe_count > static_cast<std::size_t>(PTRDIFF_MAX) / stride_bytes)
    core::fail(TANDEM_ERROR_TOO_LARGE,
               fmt::format("{} stripes {} bytes apart do not fit the address space", stripe_count, stride_bytes));
}

void check_stripe(const tandem_stripe &stripe, const core::Codec &codec) {
  if (stripe.shards == nullptr) core::fail(TANDEM_ERROR_INVALID_ARGUMENT, "shards is NULL");
  if (stripe.memory != TANDEM_MEMORY_HOST)
    core::fail(TANDEM_ERROR_UNSUPPORTED, fmt::format("memory kind {}: plans take it, stripes do not", stripe.memory));
  check_shard_bytes(stripe.shard_bytes, codec.shard_count());
}

// Tasks of several stripes, with what they point to.
class Group {
 public:
  explicit Group(const tandem_context &context) : context_(context) {
    pointers_.reserve(kGroupStripes);
    tasks_.reserve(kGroupStripes);
  }

  // Throws Error where the stripe's pointers are wrong, and then has added nothing.
  void add(std::shared_ptr<const core::Plan> plan, const tandem_stripe &stripe) {
    auto pointers = std::make_unique<Pointers>();
    gather(*plan, stripe.shards, pointers.get());
    check_pointers(*plan, pointers->inputs, pointers->outputs, stripe.shard_bytes);
    tasks_.push_back(plan->task(pointers->inputs, pointers->outputs, stripe.shard_bytes));
    pointers_.push_back(std::move(pointers));
    plans_.push_back(std::move(plan));
    if (tasks_.size() == kGroupStripes) run();
  }

  void run() {
    core::Control control;
    if (!tasks_.empty()) context_.backend->run(tasks_, control);
    tasks_.clear();
    pointers_.clear();
    plans_.clear();
  }

 private:
  const tandem_context &context_;
  std::vector<core::Task> tasks_;
  std::vector<std::unique_ptr<Pointers>> pointers_;
  std::vector<std::shared_ptr<const core::Plan>> plans_;
};

[[noreturn]] void fail_in_stripe(const core::Error &error, std::size_t index, std::size_t stripe_count) {
  core::fail(error.status(), fmt::format("stripe {} of {}: {}", index, stripe_count, error.what()));
}

std::shared_ptr<const core::Plan> encode_plan(const tandem_context &context, const tandem_codec &codec,
                                              const tandem_stripe &stripe) {
  return shared_plan(context, codec,
                     parity_shape(*codec.codec, core::Operation::encode, stripe.shards + codec.codec->k()));
}

void encode_stripes(tandem_context &context, const tandem_codec &codec, const tandem_stripe *stripes,
                    std::size_t stripe_count, std::size_t stride_bytes) {
  check_array(stripe_count, stride_bytes);
  for (std::size_t i = 0; i < stripe_count; ++i) {
    try {
      const tandem_stripe &stripe = stripe_at(stripes, i, stride_bytes);
      check_stripe(stripe, *codec.codec);
      const auto plan = encode_plan(context, codec, stripe);
      Pointers pointers;
      gather(*plan, stripe.shards, &pointers);
      check_pointers(*plan, pointers.inputs, pointers.outputs, stripe.shard_bytes);
    } catch (const core::Error &error) {
      fail_in_stripe(error, i, stripe_count);
    }
  }
  Group group(context);
  for (std::size_t i = 0; i < stripe_count; ++i) {
    const tandem_stripe &stripe = stripe_at(stripes, i, stride_bytes);
    group.add(encode_plan(context, codec, stripe), stripe);
  }
  group.run();
}

void decode_stripes(tandem_context &context, const tandem_codec &codec, tandem_stripe *stripes,
                    std::size_t stripe_count, std::size_t stride_bytes) {
  check_array(stripe_count, stride_bytes);
  Group group(context);
  tandem_status first_status = TANDEM_OK;
  std::string first_message;
  for (std::size_t i = 0; i < stripe_count; ++i) {
    tandem_stripe &stripe = stripe_at(stripes, i, stride_bytes);
    stripe.status = TANDEM_OK;
    try {
      check_stripe(stripe, *codec.codec);
      if (stripe.present == nullptr) core::fail(TANDEM_ERROR_INVALID_ARGUMENT, "present is NULL");
      const core::Shape shape = decode_shape(*codec.codec, stripe.shards, stripe.present);
      if (shape.wanted.any()) group.add(shared_plan(context, codec, shape), stripe);
    } catch (const core::Error &error) {
      stripe.status = error.status();
      if (first_status != TANDEM_OK) continue;
      first_status = error.status();
      first_message = fmt::format("stripe {} of {}: {}", i, stripe_count, error.what());
    }
  }
  group.run();
  if (first_status != TANDEM_OK) core::fail(first_status, first_message);
}

}  // namespace
}  // namespace tandem::api

using namespace tandem::api;

extern "C" {

tandem_status tandem_encode_stripes(tandem_context *context, const tandem_codec *codec, const tandem_stripe *stripes,
                                    size_t stripe_count, size_t stride_bytes) {
  if (context == nullptr || codec == nullptr || (stripes == nullptr && stripe_count != 0))
    return refuse(TANDEM_ERROR_INVALID_ARGUMENT, "a pointer argument is NULL");
  return guarded([&] { encode_stripes(*context, *codec, stripes, stripe_count, stride_bytes); });
}

tandem_status tandem_decode_stripes(tandem_context *context, const tandem_codec *codec, tandem_stripe *stripes,
                                    size_t stripe_count, size_t stride_bytes) {
  if (context == nullptr || codec == nullptr || (stripes == nullptr && stripe_count != 0))
    return refuse(TANDEM_ERROR_INVALID_ARGUMENT, "a pointer argument is NULL");
  return guarded([&] { decode_stripes(*context, *codec, stripes, stripe_count, stride_bytes); });
}

}  // extern "C"
