#include "files/range_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "files/error.hpp"
#include "files/workers.hpp"

namespace tandem::files {

RangeReader::RangeReader(tandem_context *context, FoundSet set, std::uint32_t thread_count)
    : context_(context),
      set_(std::move(set)),
      thread_count_(thread_count),
      codec_(make_codec(set_.header, true)),  // what exists already may be read, whatever its matrix
      source_(context, codec_.get(), set_) {
  source_.set_caller_count(thread_count_for(set_.header.stripe_count()));
}

unsigned RangeReader::thread_count_for(std::uint64_t stripe_count) const {
  const SetHeader &header = set_.header;
  return worker_count_for(context_, thread_count_, std::uint64_t{header.shard_count()} * header.block_bytes,
                          stripe_count);
}

void RangeReader::read(std::uint64_t offset, std::uint64_t byte_count, std::byte *content_out) {
  const SetHeader &header = set_.header;
  if (offset > header.content_bytes || byte_count > header.content_bytes - offset)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("{} bytes from {} on are not all of the content, which has {}",
                                                    byte_count, offset, header.content_bytes));
  if (byte_count == 0) return;
  const std::uint64_t end = offset + byte_count, stripe_bytes = header.stripe_data_bytes();
  const std::uint64_t first_stripe = offset / stripe_bytes, last_stripe = (end - 1) / stripe_bytes;
  const unsigned thread_count = thread_count_for(last_stripe - first_stripe + 1);
  Workers workers(nullptr, nullptr, byte_count);
  std::atomic<std::uint64_t> next{first_stripe};
  const auto work = [&](unsigned) {
    const ShardBuffers buffers(header.shard_count(), header.block_bytes);
    for (std::uint64_t stripe; !workers.stopped().load() && (stripe = next.fetch_add(1)) <= last_stripe;) {
      const std::uint64_t begins = stripe * stripe_bytes;
      const std::uint64_t from = std::max(offset, begins), to = std::min(end, begins + stripe_bytes);
      read_stripe(stripe, from - begins, to - begins, buffers, content_out + (from - offset));
    }
  };
  if (thread_count == 1) return work(0);
  workers.run(thread_count, work);
}

// Bytes first .. end - 1 of the stripe's content.
void RangeReader::read_stripe(std::uint64_t stripe, std::uint64_t first, std::uint64_t end, const ShardBuffers &buffers,
                              std::byte *content_out) {
  const std::uint64_t payload_bytes = set_.header.payload_bytes_of(stripe);
  const auto first_shard = static_cast<std::uint32_t>(first / payload_bytes);
  const auto last_shard = static_cast<std::uint32_t>((end - 1) / payload_bytes);
  std::vector<std::uint8_t> wanted(set_.header.shard_count(), 0);
  for (std::uint32_t shard = first_shard; shard <= last_shard; ++shard) wanted[shard] = 1;
  source_.demand(stripe, wanted, buffers);
  for (std::uint32_t shard = first_shard; shard <= last_shard; ++shard) {
    const std::uint64_t begins = shard * payload_bytes;
    const std::uint64_t from = std::max(first, begins), to = std::min(end, begins + payload_bytes);
    std::memcpy(content_out + (from - first), buffers.at(shard) + (from - begins), to - from);
  }
}

}  // namespace tandem::files
