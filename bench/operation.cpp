// SPDX-License-Identifier: Apache-2.0
#include "bench/operation.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>
#include <utility>

namespace tandem::bench {
namespace {

std::vector<unsigned> range(unsigned from, unsigned count) {
  std::vector<unsigned> list(count);
  std::iota(list.begin(), list.end(), from);
  return list;
}

// Call takes a stripe's pointers and the length of its shards. The loop does nothing else, because the smallest calls
// take ten nanoseconds.
template <class Call>
StripeLoop over(StripeView stripes, Call call) {
  return [stripes = std::move(stripes), call = std::move(call)](std::size_t first, std::size_t calls) {
    const std::size_t count = stripes.stripe_count();
    std::size_t stripe = first % count;
    for (std::size_t i = 0; i < calls; ++i) {
      call(stripes.shards(stripe), stripes.shard_bytes());
      if (++stripe == count) stripe = 0;
    }
  };
}

// Our pointer lists as the library takes them: pointers to void and to unsigned char have the same form.
void *const *shards_of(unsigned char *const *pointers) { return reinterpret_cast<void *const *>(pointers); }
const void *const *inputs_of(unsigned char *const *pointers) { return shards_of(pointers); }

class Encode final : public StripeOperation {
 public:
  Encode(const BenchCase &at, const tandem_codec *codec)
      : k_(at.k), m_(at.m), codec_(codec), rows_(parity_rows(codec, at.k, at.m)) {
    reads_ = range(0, k_);
    writes_ = range(k_, m_);
    data_shard_count_ = k_;
  }

  StripeLoop tandem(tandem_context *context, StripeView stripes) const override {
    return over(std::move(stripes), [=, k = k_, codec = codec_](unsigned char *const *shards, std::size_t bytes) {
      check(tandem_encode(context, codec, inputs_of(shards), shards_of(shards + k), bytes));
    });
  }

  StripeLoop peer(const Peer &peer, StripeView stripes) const override {
    return over(std::move(stripes), [&peer, k = k_, m = m_, tables = peer.tables(k_, m_, rows_.data())](
                                        unsigned char *const *shards, std::size_t bytes) {
      peer.encode(bytes, k, m, tables.data(), shards, shards + k);
    });
  }

 private:
  unsigned k_, m_;
  const tandem_codec *codec_;
  std::vector<std::uint8_t> rows_;
};

class Decode final : public StripeOperation {
 public:
  Decode(const BenchCase &at, tandem_context *context, const tandem_codec *codec, std::uint64_t seed)
      : k_(at.k), codec_(codec), rows_(parity_rows(codec, at.k, at.m)), present_(present_shards(at, seed)) {
    for (unsigned i = 0; i < present_.size(); ++i) {
      if (present_[i] == 0) writes_.push_back(i);
    }
    reads_ = shards_to_read(context);
    data_shard_count_ = k_;
  }

  StripeLoop tandem(tandem_context *context, StripeView stripes) const override {
    return over(std::move(stripes),
                [=, codec = codec_, present = present_](unsigned char *const *shards, std::size_t bytes) {
                  check(tandem_decode(context, codec, shards_of(shards), present.data(), bytes));
                });
  }

  StripeLoop peer(const Peer &peer, StripeView stripes) const override {
    const auto lost_count = static_cast<unsigned>(writes_.size());
    const std::vector<std::uint8_t> rows = PeerDecode(peer, k_, rows_).solve(reads_, writes_);
    std::vector<unsigned> order = reads_;
    order.insert(order.end(), writes_.begin(), writes_.end());
    return over(stripes.only(order), [&peer, k = k_, lost_count, tables = peer.tables(k_, lost_count, rows.data())](
                                         unsigned char *const *shards, std::size_t bytes) {
      peer.encode(bytes, k, lost_count, tables.data(), shards, shards + k);
    });
  }

 private:
  std::vector<unsigned> shards_to_read(tandem_context *context) const {
    tandem_plan_options options{};
    options.struct_bytes = sizeof options;
    options.operation = TANDEM_OPERATION_DECODE;
    options.present = present_.data();
    tandem_plan *plan = nullptr;
    check(tandem_plan_create(context, codec_, &options, &plan));
    const std::unique_ptr<tandem_plan, void (*)(tandem_plan *)> owner(plan, tandem_plan_destroy);
    tandem_plan_info info{};
    info.struct_bytes = sizeof info;
    check(tandem_plan_query(plan, &info));
    std::vector<unsigned> list;
    for (unsigned i = 0; i < present_.size(); ++i)
      if (info.shards_read[i] != 0) list.push_back(i);
    return list;
  }

  unsigned k_;
  const tandem_codec *codec_;
  std::vector<std::uint8_t> rows_, present_;
};

// The peer has no such call: its user encodes into other memory and compares.
class Verify final : public StripeOperation {
 public:
  Verify(const BenchCase &at, const tandem_codec *codec)
      : k_(at.k), m_(at.m), codec_(codec), rows_(parity_rows(codec, at.k, at.m)) {
    reads_ = range(0, k_ + m_);
    data_shard_count_ = k_;
  }

  StripeLoop tandem(tandem_context *context, StripeView stripes) const override {
    return over(std::move(stripes), [=, codec = codec_](unsigned char *const *shards, std::size_t bytes) {
      tandem_verify_result result{};
      result.struct_bytes = sizeof result;
      check(tandem_verify(context, codec, inputs_of(shards), bytes, &result));
      if (result.consistent != 1) throw std::runtime_error("verify found a mismatch in intact shards");
    });
  }

  StripeLoop peer(const Peer &peer, StripeView stripes) const override {
    const std::size_t shard_bytes = stripes.shard_bytes();
    auto scratch = std::make_shared<std::vector<unsigned char>>(shard_bytes * m_);
    std::vector<unsigned char *> computed;
    for (unsigned r = 0; r < m_; ++r) computed.push_back(scratch->data() + r * shard_bytes);
    return over(std::move(stripes), [&peer, k = k_, scratch, computed, tables = peer.tables(k_, m_, rows_.data())](
                                        unsigned char *const *shards, std::size_t bytes) {
      peer.encode(bytes, k, static_cast<unsigned>(computed.size()), tables.data(), shards, computed.data());
      for (std::size_t r = 0; r < computed.size(); ++r) {
        if (std::memcmp(computed[r], shards[k + r], bytes) != 0)
          throw std::runtime_error("the peer found a mismatch in intact shards");
      }
    });
  }

 private:
  unsigned k_, m_;
  const tandem_codec *codec_;
  std::vector<std::uint8_t> rows_;
};

// Data shard 0 changes. The peer takes the difference of old and new bytes; its user computes it.
class Update final : public StripeOperation {
 public:
  Update(const BenchCase &at, const tandem_codec *codec)
      : k_(at.k), m_(at.m), codec_(codec), rows_(parity_rows(codec, at.k, at.m)) {
    writes_ = range(k_, m_);
    reads_ = writes_;
    reads_.push_back(0);
    reads_.push_back(k_ + m_);
    data_shard_count_ = 1;
  }

  StripeLoop tandem(tandem_context *context, StripeView stripes) const override {
    return over(std::move(stripes),
                [=, k = k_, m = m_, codec = codec_](unsigned char *const *shards, std::size_t bytes) {
                  check(tandem_update(context, codec, 0, shards[0], shards[k + m], shards_of(shards + k), bytes));
                });
  }

  StripeLoop peer(const Peer &peer, StripeView stripes) const override {
    auto difference = std::make_shared<std::vector<unsigned char>>(stripes.shard_bytes());
    return over(std::move(stripes), [&peer, k = k_, m = m_, difference, tables = peer.tables(k_, m_, rows_.data())](
                                        unsigned char *const *shards, std::size_t bytes) {
      unsigned char *const out = difference->data();
      const unsigned char *const old_bytes = shards[0], *const new_bytes = shards[k + m];
      for (std::size_t i = 0; i < bytes; ++i) out[i] = old_bytes[i] ^ new_bytes[i];
      peer.update(bytes, k, m, 0, tables.data(), out, shards + k);
    });
  }

 private:
  unsigned k_, m_;
  const tandem_codec *codec_;
  std::vector<std::uint8_t> rows_;
};

}  // namespace

std::unique_ptr<StripeOperation> make_operation(const BenchCase &at, tandem_context *context, const tandem_codec *codec,
                                                std::uint64_t seed) {
  switch (at.operation) {
    case BenchOperation::encode:
      return std::make_unique<Encode>(at, codec);
    case BenchOperation::decode:
      return std::make_unique<Decode>(at, context, codec, seed);
    case BenchOperation::verify:
      return std::make_unique<Verify>(at, codec);
    case BenchOperation::update:
      return std::make_unique<Update>(at, codec);
    case BenchOperation::decode_setup:
      break;
  }
  throw std::logic_error("this operation touches no stripes");
}

std::vector<std::uint8_t> present_shards(const BenchCase &at, std::uint64_t seed) {
  std::vector<std::uint8_t> present(at.k + at.m, 1);
  std::vector<unsigned> order = range(0, at.k + at.m);
  std::mt19937_64 random(seed);
  if (at.loss == Loss::random) std::shuffle(order.begin(), order.end(), random);
  const unsigned lost_count = at.loss == Loss::random ? at.m : std::min(at.k, at.m);
  for (unsigned i = 0; i < lost_count; ++i) present[order[i]] = 0;
  return present;
}

const std::vector<std::uint8_t> &PeerDecode::solve(const std::vector<unsigned> &reads,
                                                   const std::vector<unsigned> &lost) {
  for (std::size_t i = 0; i < k_; ++i) {
    std::uint8_t *const row = &matrix_[i * k_];
    if (reads[i] >= k_) {
      std::memcpy(row, &parity_rows_[(reads[i] - k_) * k_], k_);
    } else {
      std::memset(row, 0, k_);
      row[reads[i]] = 1;
    }
  }
  if (!peer_.invert(matrix_.data(), inverse_.data(), static_cast<unsigned>(k_)))
    throw std::runtime_error("the peer finds these survivors singular");

  rows_.resize(lost.size() * k_);
  for (std::size_t i = 0; i < lost.size(); ++i) {
    std::uint8_t *const row = &rows_[i * k_];
    if (lost[i] < k_) {
      std::memcpy(row, &inverse_[lost[i] * k_], k_);
      continue;
    }
    const std::uint8_t *const parity = &parity_rows_[(lost[i] - k_) * k_];
    std::memset(row, 0, k_);
    for (std::size_t j = 0; j < k_; ++j) {
      for (std::size_t c = 0; c < k_; ++c) row[c] ^= peer_.multiply(parity[j], inverse_[j * k_ + c]);
    }
  }
  return rows_;
}

}  // namespace tandem::bench
