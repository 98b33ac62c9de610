// SPDX-License-Identifier: Apache-2.0
/* Shards in the vectors of Thrust: encode, decode, update and verify them where they lie.
 *
 * Optional: no other header includes it, and a program that does needs Thrust (C++17; the CUDA toolkit or Debian's
 * libthrust-dev). The vectors' system decides where the work runs. Vectors of CUDA need a context of that GPU
 * ("cuda"), and the work runs on it. Vectors of the host, of OpenMP and of TBB are host memory to Tandem.
 *
 *     std::vector<thrust::device_vector<unsigned char>> vectors(k + m, thrust::device_vector<unsigned char>(bytes));
 *     tandem::VectorShards shards(vectors);
 *     tandem::encode(context, codec, shards);
 *
 * Each call waits until its work is done. With CUDA it runs in the order of `stream`; nullptr is the legacy default
 * stream, on which Thrust's algorithms run without a policy. update and verify prepare a plan in each call there: a
 * program that repeats them keeps a tandem::Plan for device memory. Errors are those of tandem.hpp.
 */
#ifndef TANDEM_THRUST_HPP
#define TANDEM_THRUST_HPP

#include <thrust/device_vector.h>
#include <thrust/iterator/iterator_traits.h>
#include <thrust/memory.h>
#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
#include <thrust/system/cuda/execution_policy.h>
#endif

#include "tandem/tandem.hpp"

namespace tandem {

namespace detail {

template <class Vector>
constexpr std::int32_t memory_of() {
#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
  using System = typename ::thrust::iterator_system<typename Vector::iterator>::type;
  if (std::is_convertible_v<System, ::thrust::cuda::tag>) return TANDEM_MEMORY_CUDA;
#endif
  return TANDEM_MEMORY_HOST;
}

template <class Vector>
std::uint8_t *bytes_of(Vector &vector) {
  static_assert(std::is_trivially_copyable_v<typename Vector::value_type>, "shards are bytes");
  return reinterpret_cast<std::uint8_t *>(
      const_cast<typename Vector::value_type *>(::thrust::raw_pointer_cast(vector.data())));
}

}  // namespace detail

/* The k+m shards of a stripe in vectors: data first, of one length. A view: the vectors must stay as they are. */
class VectorShards {
 public:
  /* A container with a vector for each shard. */
  template <class Vectors>
  explicit VectorShards(Vectors &vectors, void *stream = nullptr)
      : stream_(stream), memory_(detail::memory_of<typename Vectors::value_type>()) {
    for (auto &each : vectors) {
      const std::size_t bytes = each.size() * sizeof(typename Vectors::value_type::value_type);
      if (pointers_.empty()) shard_bytes_ = bytes;
      detail::require(bytes == shard_bytes_, "the shards do not have the same length");
      pointers_.push_back(detail::bytes_of(each));
    }
  }
  /* One vector that holds `count` shards, one after the other. */
  template <class Vector>
  VectorShards(Vector &vector, std::size_t count, void *stream)
      : stream_(stream), memory_(detail::memory_of<Vector>()) {
    const std::size_t bytes = vector.size() * sizeof(typename Vector::value_type);
    detail::require(count != 0 && bytes % count == 0, "the vector does not hold `count` shards of one length");
    shard_bytes_ = bytes / count;
    for (std::size_t i = 0; i < count; ++i) pointers_.push_back(detail::bytes_of(vector) + i * shard_bytes_);
  }

  ShardView view() const noexcept { return {pointers_, shard_bytes_}; }
  bool on_device() const noexcept { return memory_ != TANDEM_MEMORY_HOST; }

  /* Runs a plan for these shards: of the device, in the order of the stream. */
  void run(const Context &context, const Codec &codec, tandem_plan_options options,
           tandem_plan_arguments arguments = {}) const {
    detail::require_shards_of(codec, view());
    options.memory = memory_;
    arguments = detail::sized(arguments);
    arguments.shards = pointers_.data();
    arguments.shard_bytes = shard_bytes_;
    arguments.queue = stream_;
    const Plan plan(context, codec, options);
    plan.submit(arguments).wait();
  }
  /* Encodes, or decodes if `present` is not null: the context keeps the plans of batches. */
  void run_batch(const Context &context, const Codec &codec, const std::uint8_t *present) const {
    detail::require_shards_of(codec, view());
    tandem_stripe stripe = {};
    stripe.shards = pointers_.data();
    stripe.present = present;
    stripe.shard_bytes = shard_bytes_;
    stripe.memory = memory_;
    tandem_job *job = nullptr;
    check(tandem_code_batch(context.get(), codec.get(),
                            present != nullptr ? TANDEM_OPERATION_DECODE : TANDEM_OPERATION_ENCODE, &stripe, 1,
                            sizeof stripe, stream_, &job));
    Job(job).wait();
  }

 private:
  std::vector<void *> pointers_;
  std::size_t shard_bytes_ = 0;
  void *stream_;
  std::int32_t memory_;
};

/* Computes the parity shards. */
inline void encode(const Context &context, const Codec &codec, const VectorShards &shards) {
  if (!shards.on_device()) return encode(context, codec, shards.view());
  shards.run_batch(context, codec, nullptr);
}

/* Rebuilds the shards with flag 0 in `present`, which is host memory. */
inline void decode(const Context &context, const Codec &codec, const VectorShards &shards,
                   Span<const std::uint8_t> present) {
  if (!shards.on_device()) return decode(context, codec, shards.view(), present);
  detail::require(present.size() == shards.view().count(), detail::kFlagCount);
  shards.run_batch(context, codec, present.data());
}

/* Whether parity matches data, and where it does not. */
inline tandem_verify_result verify(const Context &context, const Codec &codec, const VectorShards &shards) {
  if (!shards.on_device()) return verify(context, codec, shards.view());
  auto found = detail::sized<tandem_verify_result>();
  tandem_plan_options options = {};
  options.operation = TANDEM_OPERATION_VERIFY;
  tandem_plan_arguments arguments = {};
  arguments.verify_result = &found;
  shards.run(context, codec, options, arguments);
  return found;
}

/* Updates parity. `shards` hold the old data of shard `index`; the caller replaces it afterwards. new_data: a vector
 * of the same system. */
template <class Vector>
void update(const Context &context, const Codec &codec, const VectorShards &shards, std::uint32_t index,
            const Vector &new_data) {
  const std::size_t bytes = new_data.size() * sizeof(typename Vector::value_type);
  const std::uint8_t *const from = detail::bytes_of(new_data);
  if (!shards.on_device())
    return update(context, codec, shards.view(), index, Span(reinterpret_cast<const std::byte *>(from), bytes));
  detail::require(bytes == shards.view().shard_bytes(), "the new data is not as long as a shard");
  tandem_plan_options options = {};
  options.operation = TANDEM_OPERATION_UPDATE;
  options.index = index;
  tandem_plan_arguments arguments = {};
  arguments.new_data = from;
  shards.run(context, codec, options, arguments);
}

}  // namespace tandem
#endif
