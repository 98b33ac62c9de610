// SPDX-License-Identifier: Apache-2.0
// Shards that lie in pieces. The byte range is cut at each end of a piece of any shard, and each part is a task. A
// piece that ends between two multiples of the operator's granularity is refused.

#include <algorithm>
#include <vector>

#include "api/run.hpp"
#include "base/gate.hpp"
#include "base/overlap.hpp"

namespace tandem::api {
namespace {

constexpr std::size_t kGroupTasks = 256;

// Walks the segments of one shard.
class Cursor {
 public:
  Cursor() = default;
  explicit Cursor(const tandem_scattered_shard &shard)
      : next_(shard.segments), end_(shard.segments + shard.segment_count) {
    refill();
  }
  std::byte *address() const { return address_; }
  std::size_t left() const { return left_; }  // contiguous bytes from address()
  void advance(std::size_t bytes) {
    address_ += bytes;
    left_ -= bytes;
    if (left_ == 0) refill();
  }

 private:
  void refill() {
    while (left_ == 0 && next_ != end_) {
      address_ = static_cast<std::byte *>(next_->address);
      left_ = next_->bytes;
      ++next_;
    }
  }
  const tandem_segment *next_ = nullptr, *end_ = nullptr;
  std::byte *address_ = nullptr;
  std::size_t left_ = 0;
};

void check_segments(const tandem_scattered_shard &shard, unsigned index, std::size_t shard_bytes,
                    std::uint64_t granularity_bytes) {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < shard.segment_count; ++i) {
    const tandem_segment &segment = shard.segments[i];
    if (segment.address == nullptr && segment.bytes != 0)
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "segment ", i, " of shard ", index, " has a NULL address");
    if (segment.bytes > shard_bytes - sum) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "the segments of shard ", index,
                 " hold more than shard_bytes = ", shard_bytes);
    }
    sum += segment.bytes;
    if (granularity_bytes != 1 && sum % granularity_bytes != 0 && sum != shard_bytes)
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "segment ", i, " of shard ", index, " ends at byte ", sum,
                 ", but this code can be cut at multiples of ", granularity_bytes, " only");
  }
  if (sum != shard_bytes)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "the segments of shard ", index, " hold ", sum, " of ", shard_bytes,
               " bytes");
}

void check_overlap(const core::Plan &plan, const tandem_scattered_shard *shards) {
  std::vector<base::Extent> extents;
  const auto add = [&](std::uint16_t index, bool is_output) {
    for (std::size_t i = 0; i < shards[index].segment_count; ++i) {
      const tandem_segment &segment = shards[index].segments[i];
      if (segment.bytes != 0)
        extents.push_back({static_cast<const std::byte *>(segment.address), segment.bytes, is_output, index});
    }
  };
  for (const std::uint16_t index : plan.outputs()) add(index, true);
  for (const std::uint16_t index : plan.inputs()) add(index, false);
  base::Overlap found;
  if (base::find_overlap(extents, &found))
    base::fail(TANDEM_ERROR_OVERLAP, "a segment of shard ", found.output, " (written) overlaps one of shard ",
               found.other, " (", found.other_is_output ? "written too" : "read", ")");
}

void run_scattered(tandem_context &context, const core::Plan &plan, const tandem_scattered_shard *shards,
                   std::size_t shard_bytes) {
  const std::size_t input_count = plan.inputs().size(), output_count = plan.outputs().size();
  check_length(plan, shard_bytes);
  for (const auto indices : {plan.inputs(), plan.outputs()}) {
    for (const std::uint16_t index : indices) {
      if (shards[index].segments == nullptr)
        base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "shard ", index, " is needed, but its segments are NULL");
      check_segments(shards[index], index, shard_bytes, plan.prepared().granularity_bytes());
    }
  }
  if (shard_bytes * (input_count + output_count) >= kOverlapCheckBytes) check_overlap(plan, shards);

  std::vector<Cursor> cursors;
  for (const std::uint16_t index : plan.inputs()) cursors.emplace_back(shards[index]);
  for (const std::uint16_t index : plan.outputs()) cursors.emplace_back(shards[index]);
  std::vector<std::byte *> pointers(kGroupTasks * cursors.size());
  std::vector<core::Task> tasks;
  tasks.reserve(kGroupTasks);
  core::Control control;
  for (std::size_t done = 0; done < shard_bytes;) {
    std::byte **row = pointers.data() + tasks.size() * cursors.size();
    std::size_t cut = shard_bytes - done;
    for (const Cursor &cursor : cursors) cut = std::min(cut, cursor.left());
    for (std::size_t i = 0; i < cursors.size(); ++i) {
      row[i] = cursors[i].address();
      cursors[i].advance(cut);
    }
    tasks.push_back(plan.task(row, row + input_count, cut));
    done += cut;
    if (tasks.size() < kGroupTasks && done < shard_bytes) continue;
    const core::MemoryHold hold(tasks);
    context.backend->run(tasks, control);
    tasks.clear();
  }
}

// NULL if a shard is not given, else any other value: enough for the shape of the operation.
std::vector<void *> given_shards(const core::Codec &codec, const tandem_scattered_shard *shards) {
  std::vector<void *> given(codec.shard_count());
  for (unsigned i = 0; i < codec.shard_count(); ++i) given[i] = const_cast<tandem_segment *>(shards[i].segments);
  return given;
}

void check_encode_or_decode(std::int32_t operation, const std::uint8_t *present) {
  if (operation != TANDEM_OPERATION_ENCODE && operation != TANDEM_OPERATION_DECODE)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "operation is ", operation, ": scattered shards are encoded or decoded");
  if ((present != nullptr) != (operation == TANDEM_OPERATION_DECODE))
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, present == nullptr ? "present is NULL" : "present is of a decode");
}

}  // namespace
}  // namespace tandem::api

using namespace tandem::api;

using namespace tandem;

extern "C" {

tandem_status tandem_code_scattered(tandem_context *context, const tandem_codec *codec, int32_t operation,
                                    const tandem_scattered_shard *shards, const uint8_t *present, size_t shard_bytes) {
  return base::guarded({{"codec", codec}, {"shards", shards}}, [&] {
    check_encode_or_decode(operation, present);
    check_shard_bytes(shard_bytes, codec->codec->shard_count());
    const std::vector<void *> given = given_shards(*codec->codec, shards);
    const tandem::core::Shape shape = present != nullptr ? decode_shape(*codec->codec, given.data(), present)
                                                         : parity_shape(*codec->codec, tandem::core::Operation::encode,
                                                                        given.data() + codec->codec->k());
    tandem_context &where = context_or_default(context);
    if (!shape.wanted.none()) run_scattered(where, *shared_plan(where, *codec, shape), shards, shard_bytes);
  });
}

}  // extern "C"
