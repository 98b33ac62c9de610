// SPDX-License-Identifier: Apache-2.0
// A prepared operation: a codec's operator in the form of one backend, and the order of a stripe's shards in its tasks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/backend.hpp"
#include "core/codec.hpp"

namespace tandem::core {

enum class Operation : std::int32_t {
  encode = TANDEM_OPERATION_ENCODE,
  decode = TANDEM_OPERATION_DECODE,
  verify = TANDEM_OPERATION_VERIFY,
  update = TANDEM_OPERATION_UPDATE,
  accumulate = TANDEM_OPERATION_ACCUMULATE
};

// The description of a plan, and the key under which it is found again.
struct Shape {
  Operation operation = Operation::encode;
  std::uint32_t index = 0;  // update, accumulate
  bool overwrite = false;   // accumulate: the first shard, parity is assigned
  ShardSet present;         // decode
  ShardSet wanted;
  std::vector<std::uint32_t> read_costs = {};  // decode; empty: all are 1

  bool operator==(const Shape &) const = default;
};

// The operator of an update, for the old and the new bytes of a shard. It is made of that shard's column of
// coefficients: [column column], parity ^= coefficient * old ^ coefficient * new.
Operator update_of(const Operator &column);

class Plan {
 public:
  // Throws Error as the codec and the backend do. The backend must outlive the plan.
  // cancelled: whether to end a long set-up; asked on this thread.
  Plan(Backend &backend, std::shared_ptr<const Codec> codec, const Shape &shape,
       const std::function<bool()> &cancelled = {});

  const Codec &codec() const noexcept { return *codec_; }
  const Shape &shape() const noexcept { return shape_; }
  Backend &backend() const noexcept { return *backend_; }
  const Prepared &prepared() const noexcept { return *prepared_; }

  // Shard indices in the order of the task's pointers. For update the inputs are (index, index): old and new bytes.
  std::span<const std::uint16_t> inputs() const noexcept { return {shards_.data(), input_count_}; }
  std::span<const std::uint16_t> outputs() const noexcept { return std::span(shards_).subspan(input_count_); }

  // Whether the inputs are all data shards and the outputs all parity shards. Then a stripe's own array of pointers has
  // the order of the task's pointers.
  bool is_in_stripe_order() const noexcept { return is_in_stripe_order_; }

  Mode mode() const noexcept { return mode_; }
  std::size_t memory_bytes() const noexcept { return memory_bytes_; }  // of the operator

  // The task for one stripe's pointers, already in plan order. Pointers are kept, not copied.
  Task task(const std::byte *const *inputs, std::byte *const *outputs, std::uint64_t shard_bytes) const noexcept {
    return {prepared_.get(), inputs, outputs, 0, shard_bytes, mode_};
  }

 private:
  std::shared_ptr<const Codec> codec_;
  Backend *backend_;
  Shape shape_;
  Mode mode_ = Mode::assign;
  bool is_in_stripe_order_ = false;
  std::vector<std::uint16_t> shards_;  // inputs, then outputs
  std::size_t input_count_ = 0, memory_bytes_ = 0;
  std::shared_ptr<const Prepared> prepared_;
};

}  // namespace tandem::core
