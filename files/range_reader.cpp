// SPDX-License-Identifier: Apache-2.0
#include "files/range_reader.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "files/workers.hpp"

namespace tandem::files {
namespace {

// The shards that have bytes first .. end - 1 of a stripe's content.
struct StripePart {
  std::uint64_t first, end, payload_bytes;
  std::uint32_t first_shard() const { return static_cast<std::uint32_t>(first / payload_bytes); }
  std::uint32_t last_shard() const { return static_cast<std::uint32_t>((end - 1) / payload_bytes); }
};

void copy_out(const StripePart &part, const ShardBuffers &buffers, std::byte *content_out) {
  for (std::uint32_t shard = part.first_shard(); shard <= part.last_shard(); ++shard) {
    const std::uint64_t begins = shard * part.payload_bytes;
    const std::uint64_t from = std::max(part.first, begins), to = std::min(part.end, begins + part.payload_bytes);
    std::memcpy(content_out + (from - part.first), buffers.at(shard) + (from - begins), to - from);
  }
}

}  // namespace

RangeReader::RangeReader(tandem_context *context, FoundSet set)
    : context_(context),
      set_(std::move(set)),
      codec_(make_codec_to_read(set_.header)),
      source_(context, codec_.get(), set_) {
  source_.set_piece_bytes(divide(context_, 0, set_.header, set_.header.stripe_count()).piece_bytes);
}

void RangeReader::read(std::uint64_t offset, std::uint64_t byte_count, std::byte *content_out) {
  const SetHeader &header = set_.header;
  if (offset > header.content_bytes || byte_count > header.content_bytes - offset)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, byte_count, " bytes from ", offset,
         " on are not all of the content, which has ", header.content_bytes);
  if (byte_count == 0) return;
  const std::uint64_t end = offset + byte_count, stripe_bytes = header.stripe_data_bytes();
  const std::uint64_t first_stripe = offset / stripe_bytes, last_stripe = (end - 1) / stripe_bytes;
  const std::uint64_t stripe_count = last_stripe - first_stripe + 1;
  const Division division = divide(context_, 0, header, stripe_count);
  // The requested part of this stripe.
  const auto part_of = [&](std::uint64_t stripe) -> StripePart {
    const std::uint64_t begins = stripe * stripe_bytes;
    return {std::max(offset, begins) - begins, std::min(end, begins + stripe_bytes) - begins,
            header.payload_bytes_of(stripe)};
  };
  base::Meter meter;
  std::atomic<std::uint64_t> next{0};
  const auto work = [&](std::size_t) {
    const SpareBuffers::Loan loan(spare_buffers_, header, division.batch_stripes);
    const BatchBuffers &buffers = *loan;
    std::vector<StripeSource::Stripe> stripes;
    for (std::uint64_t i; !meter.stopped().load() && (i = next.fetch_add(buffers.size())) < stripe_count;) {
      stripes.clear();
      for (std::uint64_t place = 0; place < std::min<std::uint64_t>(buffers.size(), stripe_count - i); ++place) {
        StripeSource::Stripe &stripe = stripes.emplace_back();
        stripe.number = first_stripe + i + place;
        stripe.wanted.assign(header.shard_count(), 0);
        stripe.buffers = &buffers[place];
        const StripePart part = part_of(stripe.number);
        for (std::uint32_t shard = part.first_shard(); shard <= part.last_shard(); ++shard) stripe.wanted[shard] = 1;
      }
      source_.demand(stripes);
      for (const StripeSource::Stripe &stripe : stripes) {
        const StripePart part = part_of(stripe.number);
        copy_out(part, *stripe.buffers, content_out + (stripe.number * stripe_bytes + part.first - offset));
      }
    }
  };
  if (division.worker_count == 1) return work(0);
  run_workers(context_, division.worker_count, meter, nullptr, work);
}

}  // namespace tandem::files
