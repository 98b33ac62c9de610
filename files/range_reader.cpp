// SPDX-License-Identifier: Apache-2.0
#include "files/range_reader.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.hpp"
#include "files/error.hpp"
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

RangeReader::RangeReader(tandem_context *context, FoundSet set, std::uint32_t thread_count)
    : context_(context),
      set_(std::move(set)),
      thread_count_(thread_count),
      codec_(make_codec(set_.header, true)),  // an existing set may be read with any matrix
      source_(context, codec_.get(), set_) {
  source_.set_piece_bytes(divide(context_, thread_count_, set_.header, set_.header.stripe_count()).piece_bytes);
}

void RangeReader::read(std::uint64_t offset, std::uint64_t byte_count, std::byte *content_out) {
  const SetHeader &header = set_.header;
  if (offset > header.content_bytes || byte_count > header.content_bytes - offset)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, base::text(byte_count, " bytes from ", offset,
                                                   " on are not all of the content, which has ", header.content_bytes));
  if (byte_count != 0) read_range(offset, byte_count, content_out, nullptr);
}

void RangeReader::read_stripes(std::uint64_t first_stripe, std::uint64_t stripe_count, std::span<std::byte> content_out,
                               std::byte *hashes_out) {
  const SetHeader &header = set_.header;
  if (first_stripe > header.stripe_count() || stripe_count > header.stripe_count() - first_stripe)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, base::text(stripe_count, " stripes from ", first_stripe,
                                                   " on are not all of the set, which has ", header.stripe_count()));
  std::uint64_t bytes = 0;
  if (stripe_count != 0)
    bytes = (stripe_count - 1) * header.stripe_data_bytes() + header.content_bytes_of(first_stripe + stripe_count - 1);
  if (content_out.size() != bytes)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, base::text(stripe_count, " stripes from ", first_stripe, " on have ", bytes,
                                                   " bytes of content, ", content_out.size(), " are given"));
  if (bytes != 0) read_range(first_stripe * header.stripe_data_bytes(), bytes, content_out.data(), hashes_out);
}

void RangeReader::add(std::uint64_t first_stripe, std::uint64_t stripe_count, std::span<const std::byte> bytes) {
  known_.add_told(set_.header, first_stripe, stripe_count, bytes);
}

void RangeReader::check_whole() const {
  known_.check_complete(set_.header.stripe_count());
  check_digest(set_.header, known_.digest(set_.header.content_bytes));
}

Outcome RangeReader::outcome() {
  Outcome outcome;
  outcome.set = set_.header;
  outcome.read_bytes = source_.reader().read_bytes();
  outcome.bad_block_count = source_.reader().bad_block_count();
  outcome.rebuilt_block_count = source_.computed_count();
  outcome.shards_read = source_.reader().shards_read();
  outcome.coding_seconds = source_.coding_seconds();
  return outcome;
}

void RangeReader::read_range(std::uint64_t offset, std::uint64_t byte_count, std::byte *content_out,
                             std::byte *hashes_out) {
  const SetHeader &header = set_.header;
  const std::uint64_t end = offset + byte_count, stripe_bytes = header.stripe_data_bytes();
  const std::uint64_t first_stripe = offset / stripe_bytes, last_stripe = (end - 1) / stripe_bytes;
  const std::uint64_t stripe_count = last_stripe - first_stripe + 1;
  const Division division = divide(context_, thread_count_, header, stripe_count);
  // The requested part of this stripe.
  const auto part_of = [&](std::uint64_t stripe) -> StripePart {
    const std::uint64_t begins = stripe * stripe_bytes;
    return {std::max(offset, begins) - begins, std::min(end, begins + stripe_bytes) - begins,
            header.payload_bytes_of(stripe)};
  };
  Workers workers(context_, nullptr, nullptr, byte_count);
  std::atomic<std::uint64_t> next{0};
  const auto work = [&](unsigned) {
    const SpareBuffers::Loan loan(spare_buffers_, header, division.batch_stripes);
    const BatchBuffers &buffers = *loan;
    std::vector<StripeSource::Stripe> stripes;
    for (std::uint64_t i; !workers.stopped().load() && (i = next.fetch_add(buffers.size())) < stripe_count;) {
      stripes.clear();
      for (std::uint64_t place = 0; place < std::min<std::uint64_t>(buffers.size(), stripe_count - i); ++place) {
        StripeSource::Stripe &stripe = stripes.emplace_back();
        stripe.number = first_stripe + i + place;
        stripe.wanted.assign(header.shard_count(), 0);
        stripe.buffers = &buffers[place];
        const StripePart part = part_of(stripe.number);
        for (std::uint32_t shard = part.first_shard(); shard <= part.last_shard(); ++shard) stripe.wanted[shard] = 1;
        if (hashes_out != nullptr) std::fill_n(stripe.wanted.begin(), header.k, std::uint8_t{1});  // padding too
      }
      source_.demand(stripes);
      for (StripeSource::Stripe &stripe : stripes) {
        if (hashes_out != nullptr) {
          source_.hash_computed(stripe);
          for (std::uint32_t shard = 0; shard < header.k; ++shard)
            write_check(stripe.hashes[shard],
                        hashes_out + ((stripe.number - first_stripe) * header.k + shard) * kHashBytes);
        }
        const StripePart part = part_of(stripe.number);
        copy_out(part, *stripe.buffers, content_out + (stripe.number * stripe_bytes + part.first - offset));
      }
    }
  };
  if (division.worker_count == 1) return work(0);
  workers.run(division.worker_count, work);
}

}  // namespace tandem::files
