// SPDX-License-Identifier: Apache-2.0
// Many stripes in one call.
#include <algorithm>
#include <memory>
#include <thread>

#include "tests/support/api.hpp"
#include "tests/support/failing_memory.hpp"

namespace tandem::test {
namespace {

constexpr std::uint64_t kSeed = 555;

class Many : public testing::TestWithParam<std::string> {
 protected:
  Context context_ = make_context(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Executors, Many, testing::ValuesIn(executors()), [](const auto &test) { return test.param; });

// A struct of the caller's own, with a tandem_stripe in it.
struct Record {
  tandem_stripe stripe;
  std::uint64_t canary;
};

TEST_P(Many, EncodeAndDecodeStripes) {
  Random random(kSeed);
  const unsigned k = 6, m = 3;
  const Codec codec = make_codec(k, m);
  for (const unsigned count : {0u, 1u, 7u, 513u, 1500u}) {
    std::vector<std::unique_ptr<Stripe>> stripes;
    std::vector<Record> records(count);
    for (unsigned i = 0; i < count; ++i) {
      const std::size_t bytes = i % 100 == 3 ? random.between(60'000, 90'000) : random.between(1, 700);
      stripes.push_back(std::make_unique<Stripe>(random, k, m, bytes));
      stripes[i]->lose_parity();
      records[i] = {{stripes[i]->all(), nullptr, bytes, TANDEM_MEMORY_HOST, 4321, nullptr}, 99};
    }
    tandem_stripe *const first = count == 0 ? nullptr : &records[0].stripe;
    ASSERT_EQ(tandem_encode_stripes(context_.get(), codec.get(), first, count, sizeof(Record)), TANDEM_OK)
        << tandem_last_error_message();
    for (unsigned i = 0; i < count; ++i) ASSERT_TRUE(stripes[i]->intact()) << "stripe " << i << " of " << count;
    for (unsigned i = 0; i < count; ++i) {
      stripes[i]->restore();
      stripes[i]->lose_all(random.pick(static_cast<unsigned>(random.below(m + 1)), k + m));
      records[i].stripe.present = stripes[i]->present.data();
    }
    ASSERT_EQ(tandem_decode_stripes(context_.get(), codec.get(), first, count, sizeof(Record)), TANDEM_OK)
        << tandem_last_error_message();
    for (unsigned i = 0; i < count; ++i) {
      ASSERT_TRUE(stripes[i]->intact()) << "stripe " << i << " of " << count;
      ASSERT_EQ(records[i].stripe.status, TANDEM_OK);
      ASSERT_EQ(records[i].canary, 99u);
    }
  }
}

// A stripe that cannot be decoded does not stop the others, and is named.
TEST_P(Many, DecodeGoesOnPastALostStripe) {
  Random random(kSeed + 1);
  const unsigned k = 4, m = 2, count = 600;
  const Codec codec = make_codec(k, m);
  std::vector<std::unique_ptr<Stripe>> stripes;
  std::vector<tandem_stripe> list;
  for (unsigned i = 0; i < count; ++i) {
    stripes.push_back(std::make_unique<Stripe>(random, k, m, 100));
    stripes[i]->lose_all(i == 17 || i == 590 ? std::vector{0, 1, 4} : std::vector{2, 5});
    list.push_back({stripes[i]->all(), stripes[i]->present.data(), 100, 0, 4321, nullptr});
  }
  list[300].shard_bytes = 0;
  list[400].present = nullptr;
  const Shards lost = stripes[17]->shards;
  EXPECT_TRUE(refused(tandem_decode_stripes(context_.get(), codec.get(), list.data(), count, sizeof list[0]),
                      TANDEM_ERROR_NOT_RECOVERABLE, {"stripe 17 of 600", "2 of 4", "1 parity shard"}));
  for (unsigned i = 0; i < count; ++i) {
    const tandem_status want = i == 17 || i == 590    ? TANDEM_ERROR_NOT_RECOVERABLE
                               : i == 300 || i == 400 ? TANDEM_ERROR_INVALID_ARGUMENT
                                                      : TANDEM_OK;
    ASSERT_EQ(list[i].status, want) << i;
    ASSERT_EQ(stripes[i]->intact(), want == TANDEM_OK) << i;
  }
  EXPECT_EQ(stripes[17]->shards, lost);
}

// Whichever allocation fails, a stripe says OK only if its bytes are there, and each stripe says something.
TEST_P(Many, DecodeClaimsNoStripeItDidNotRun) {
  Random random(kSeed + 7);
  const unsigned k = 4, m = 2, count = 600;
  const Codec codec = make_codec(k, m);
  std::vector<std::unique_ptr<Stripe>> stripes;
  std::vector<tandem_stripe> list(count);
  for (unsigned i = 0; i < count; ++i) stripes.push_back(std::make_unique<Stripe>(random, k, m, 1000));
  unsigned refusals = 0, part_done = 0;
  tandem_status status = TANDEM_ERROR_OUT_OF_MEMORY;
  for (long allowed = 0; status != TANDEM_OK; ++allowed) {
    ASSERT_LT(allowed, 5000) << "still failing";
    for (unsigned i = 0; i < count; ++i) {
      stripes[i]->restore();
      stripes[i]->lose_all(i < 550 ? std::vector{0, 5} : std::vector{1, 2});
      list[i] = {stripes[i]->all(), stripes[i]->present.data(), 1000, 0, 4321, nullptr};
    }
    // A thread of its own has no plans yet.
    std::thread([&] {
      allowed_allocations.store(allowed);
      status = tandem_decode_stripes(context_.get(), codec.get(), list.data(), count, sizeof list[0]);
      allowed_allocations.store(-1);
    }).join();
    unsigned done = 0;
    for (unsigned i = 0; i < count; ++i) {
      ASSERT_NE(list[i].status, 4321) << "stripe " << i << " with " << allowed << " allocations";
      ASSERT_EQ(list[i].status == TANDEM_OK, stripes[i]->intact()) << "stripe " << i << " with " << allowed;
      if (list[i].status == TANDEM_OK) ++done;
    }
    if (status == TANDEM_OK) {
      ASSERT_EQ(done, count);
    } else {
      ASSERT_EQ(status, TANDEM_ERROR_OUT_OF_MEMORY);
      ASSERT_LT(done, count);
      ++refusals;
      if (done != 0) ++part_done;
    }
  }
  EXPECT_GT(refusals, 0u);
  EXPECT_GT(part_done, 0u) << "no failure after the first group: this proves little";
}

TEST_P(Many, StripesMayShareDataShards) {
  Random random(kSeed + 2);
  const unsigned k = 3, m = 2, count = 40;
  const Codec codec = make_codec(k, m);
  Stripe model(random, k, m, 5000);
  std::vector<Shards> parity(count, Shards(m, Bytes(5000)));
  std::vector<std::vector<void *>> pointers;
  std::vector<tandem_stripe> list;
  for (unsigned i = 0; i < count; ++i) {
    pointers.push_back(model.pointers);
    for (unsigned r = 0; r < m; ++r) pointers[i][k + r] = parity[i][r].data();
  }
  for (unsigned i = 0; i < count; ++i) list.push_back({pointers[i].data(), nullptr, 5000, 0, 0, nullptr});
  ASSERT_EQ(tandem_encode_stripes(context_.get(), codec.get(), list.data(), count, sizeof list[0]), TANDEM_OK);
  for (unsigned i = 0; i < count; ++i)
    for (unsigned r = 0; r < m; ++r) ASSERT_EQ(parity[i][r], model.truth[k + r]);
}

}  // namespace
}  // namespace tandem::test
