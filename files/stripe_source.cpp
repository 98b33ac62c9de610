// SPDX-License-Identifier: Apache-2.0
#include "files/stripe_source.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace tandem::files {

bool StripeSource::read_block(Stripe &stripe, std::uint32_t shard) {
  std::byte *const block = stripe.buffers->at(shard);
  if (!reader_.has(shard) || !reader_.read_block(shard, stripe.number, block, &stripe.hashes[shard])) {
    if (!header_.is_padding(shard, stripe.number)) return false;
    const std::uint64_t bytes = header_.payload_bytes_of(stripe.number);
    std::fill_n(block, bytes, std::byte{0});
    stripe.hashes[shard] = hash128(block, bytes);
    write_check(block_check(header_.set_id, shard, stripe.number, stripe.hashes[shard], bytes), block + bytes);
  }
  stripe.present[shard] = 1;
  ++stripe.good_count;
  return true;
}

// False: the stripe has fewer good blocks than needed_count.
bool StripeSource::read_enough(Incomplete &incomplete) {
  Stripe &stripe = *incomplete.stripe;
  for (; incomplete.next < header_.shard_count() && stripe.good_count < incomplete.needed_count; ++incomplete.next)
    if (stripe.wanted[incomplete.next] == 0) read_block(stripe, incomplete.next);
  if (stripe.good_count < incomplete.needed_count) return false;
  incomplete.shards.assign(header_.shard_count(), nullptr);
  for (std::uint32_t shard = 0; shard < header_.shard_count(); ++shard)
    if (stripe.wanted[shard] != 0 || stripe.present[shard] != 0) incomplete.shards[shard] = stripe.buffers->at(shard);
  return true;
}

void StripeSource::bring(std::span<Stripe> stripes) {
  std::vector<Incomplete> incomplete;
  for (Stripe &stripe : stripes) {
    stripe.present.assign(header_.shard_count(), 0);
    stripe.hashes.resize(header_.shard_count());
    stripe.complete = true;
    for (std::uint32_t shard = 0; shard < header_.shard_count(); ++shard)
      if (stripe.wanted[shard] != 0 && !read_block(stripe, shard)) stripe.complete = false;
    if (!stripe.complete) incomplete.push_back({&stripe, header_.k});
  }
  std::vector<tandem_stripe> coded;
  for (;;) {
    std::erase_if(incomplete, [&](Incomplete &each) { return !read_enough(each); });
    if (incomplete.empty()) return;
    coded.clear();
    for (const Incomplete &each : incomplete) {
      tandem_stripe stripe = {};
      stripe.shards = each.shards.data();
      stripe.present = each.stripe->present.data();
      stripe.shard_bytes = header_.payload_bytes_of(each.stripe->number);
      coded.push_back(stripe);
    }
    coder_.decode(codec_, coded, piece_bytes_);
    std::vector<Incomplete> rest;
    for (std::size_t i = 0; i < coded.size(); ++i) {
      Stripe &stripe = *incomplete[i].stripe;
      if (coded[i].status == TANDEM_OK) {
        stripe.complete = true;
        for (std::uint32_t shard = 0; shard < header_.shard_count(); ++shard)
          if (stripe.wanted[shard] != 0 && stripe.present[shard] == 0) computed_count_.fetch_add(1);
      } else {  // if a matrix is not MDS, k blocks may not be enough when more are
        incomplete[i].needed_count = stripe.good_count + 1;
        rest.push_back(std::move(incomplete[i]));
      }
    }
    incomplete = std::move(rest);
  }
}

void StripeSource::demand(std::span<Stripe> stripes) {
  bring(stripes);
  for (const Stripe &stripe : stripes)
    if (!stripe.complete) fail_incomplete(stripe);
}

void StripeSource::fail_incomplete(const Stripe &stripe) const {
  reader_.check_all_read();
  std::uint32_t shard_count = 0;  // that there are
  for (std::uint32_t shard = 0; shard < header_.shard_count(); ++shard) shard_count += reader_.has(shard) ? 1 : 0;
  if (stripe.good_count >= header_.k)
    fail(TANDEM_ERROR_NOT_RECOVERABLE, "stripe ", stripe.number, " of ", header_.stripe_count(), " has ",
         stripe.good_count, " intact blocks, which do not determine the others: with this matrix, not every ",
         header_.k, " blocks are enough");
  fail(TANDEM_ERROR_NOT_RECOVERABLE, "stripe ", stripe.number, " of ", header_.stripe_count(), " has ",
       stripe.good_count, " intact blocks, ", header_.k, " are needed: ", header_.shard_count() - shard_count,
       " shards are missing and ", shard_count - stripe.good_count, " of its blocks are damaged");
}

void StripeSource::hash_computed(Stripe &stripe) const {
  for (std::uint32_t i = 0; i < header_.k; ++i) {
    if (stripe.present[i] != 0) continue;
    base::TimedStep hashing = step_of(timeline_, "hash", header_, stripe.number);
    hashing.add_bytes(header_.payload_bytes_of(stripe.number));
    stripe.hashes[i] = hash128(stripe.buffers->at(i), header_.payload_bytes_of(stripe.number));
  }
}

}  // namespace tandem::files
