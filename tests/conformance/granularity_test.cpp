// SPDX-License-Identifier: Apache-2.0
// Tests a code that can be cut only at multiples of 96 bytes, through the C API. Shards of other lengths, and pieces
// that end elsewhere, are refused with the numbers before anything is written. The fake reads each group of 96 bytes in
// reverse, so that a wrong cut gives wrong bytes.
#include "api/objects.hpp"
#include "tests/conformance/fake_backend.hpp"
#include "tests/conformance/layouts.hpp"
#include "tests/support/api.hpp"

namespace tandem::test {
namespace {

constexpr unsigned kK = 4, kM = 2, kShards = kK + kM;
constexpr std::size_t kGroupBytes = 96, kBytes = 50 * kGroupBytes, kOddBytes = kBytes + 1;

class Granularity : public testing::Test {
 protected:
  Granularity() : random_(96) {
    FakeScript script;
    script.granularity_bytes = kGroupBytes;
    script.reverses_groups = true;
    auto context = std::make_unique<tandem_context>();
    context->backend = std::make_unique<FakeBackend>(script);
    context_.reset(context.release());
    for (unsigned i = 0; i < kShards; ++i) shards_.push_back(random_.bytes(kOddBytes));
    before_ = shards_;
    for (Bytes &shard : shards_) pointers_.push_back(shard.data());
  }

  // The shards after an encode of the first kBytes.
  Shards encoded() const {
    Shards want = before_, data;
    std::vector<const std::uint8_t *> inputs;
    for (unsigned c = 0; c < kK; ++c) {
      data.emplace_back(before_[c].begin(), before_[c].begin() + kBytes);
      reverse_groups(kGroupBytes, &data.back());
    }
    for (const Bytes &each : data) inputs.push_back(each.data());
    const Shards parity = expected(cauchy_matrix(kK, kM).data(), kM, kK, inputs.data(), kBytes);
    for (unsigned r = 0; r < kM; ++r) std::copy(parity[r].begin(), parity[r].end(), want[kK + r].begin());
    return want;
  }

  tandem_status run(int32_t operation, std::size_t bytes, bool submits = false) {
    const std::uint8_t present[kShards] = {0, 1, 1, 1, 1, 1};
    const Plan plan =
        make_plan(context_.get(), codec_.get(), operation, operation == TANDEM_OPERATION_DECODE ? present : nullptr);
    tandem_plan_arguments arguments = {};
    arguments.struct_bytes = sizeof arguments;
    arguments.shards = pointers_.data();
    arguments.shard_bytes = bytes;
    arguments.new_data = before_[0].data();
    tandem_verify_result result = {};
    result.struct_bytes = sizeof result;
    arguments.verify_result = &result;
    if (!submits) return tandem_plan_run(plan.get(), &arguments);
    tandem_job *raw = nullptr;
    const tandem_status status = tandem_plan_submit(plan.get(), &arguments, &raw);
    if (status != TANDEM_OK) return status;
    const Job job(raw);
    return tandem_job_wait(raw);
  }

  void expect_refused(tandem_status status, const std::string &number) const {
    EXPECT_EQ(status, TANDEM_ERROR_INVALID_ARGUMENT);
    const std::string message = tandem_last_error_message();
    EXPECT_NE(message.find(number), std::string::npos) << message;
    EXPECT_NE(message.find("96"), std::string::npos) << message;
    EXPECT_EQ(shards_, before_) << "something was written";
  }

  Random random_;
  Context context_;
  const Codec codec_ = make_codec(kK, kM);
  Shards shards_, before_;
  std::vector<void *> pointers_;
};

TEST_F(Granularity, PlansRefuseOtherLengths) {
  for (const int32_t operation : {TANDEM_OPERATION_ENCODE, TANDEM_OPERATION_DECODE, TANDEM_OPERATION_VERIFY,
                                  TANDEM_OPERATION_UPDATE, TANDEM_OPERATION_ACCUMULATE})
    for (const bool submits : {false, true})
      expect_refused(run(operation, kOddBytes, submits), std::to_string(kOddBytes));
  ASSERT_EQ(run(TANDEM_OPERATION_ENCODE, kBytes), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(shards_, encoded());
}

TEST_F(Granularity, PlainFunctionsRefuseOtherLengths) {
  const auto data = [&] { return pointers_.data(); };
  expect_refused(tandem_encode(context_.get(), codec_.get(), data(), pointers_.data() + kK, 95), "95");
  const std::uint8_t present[kShards] = {0, 1, 1, 1, 1, 1};
  expect_refused(tandem_decode(context_.get(), codec_.get(), pointers_.data(), present, 97), "97");
  expect_refused(tandem_accumulate(context_.get(), codec_.get(), 0, before_[0].data(), pointers_.data() + kK, 97, 0),
                 "97");
  ASSERT_EQ(tandem_encode(context_.get(), codec_.get(), data(), pointers_.data() + kK, kBytes), TANDEM_OK);
  EXPECT_EQ(shards_, encoded());
}

TEST_F(Granularity, StripesRefuseOtherLengths) {
  Shards others = before_;
  std::vector<void *> other_pointers;
  for (Bytes &shard : others) other_pointers.push_back(shard.data());
  tandem_stripe stripes[2] = {};
  stripes[0].shards = other_pointers.data();
  stripes[0].shard_bytes = kBytes;
  stripes[1].shards = pointers_.data();
  stripes[1].shard_bytes = kOddBytes;
  expect_refused(tandem_encode_stripes(context_.get(), codec_.get(), stripes, 2, sizeof *stripes),
                 std::to_string(kOddBytes));
  EXPECT_EQ(others, before_) << "the stripe before it was encoded";
  stripes[1].shard_bytes = kBytes;
  ASSERT_EQ(tandem_encode_stripes(context_.get(), codec_.get(), stripes, 2, sizeof *stripes), TANDEM_OK);
  EXPECT_EQ(shards_, encoded());
  EXPECT_EQ(others, encoded());
}

TEST_F(Granularity, ScatteredShardsEndTheirPiecesAtMultiples) {
  std::vector<std::vector<tandem_segment>> segments(kShards);
  std::vector<tandem_scattered_shard> shards;
  for (unsigned i = 0; i < kShards; ++i) {
    for (std::size_t at = 0; at < kBytes;) {
      const std::size_t bytes = std::min(kBytes - at, kGroupBytes * random_.below(8));  // some are empty
      segments[i].push_back({shards_[i].data() + at, bytes});
      at += bytes;
    }
    shards.push_back({segments[i].data(), segments[i].size()});
  }
  // Shard 2's last group lies in two pieces, the first of 4 bytes.
  std::vector<tandem_segment> two = {{shards_[2].data(), kBytes - 92}, {shards_[2].data() + kBytes - 92, 92}};
  const auto good = shards[2];
  shards[2] = {two.data(), two.size()};
  expect_refused(tandem_encode_scattered(context_.get(), codec_.get(), shards.data(), kBytes), "4708");
  shards[2] = good;
  expect_refused(tandem_encode_scattered(context_.get(), codec_.get(), shards.data(), kOddBytes),
                 std::to_string(kOddBytes));
  ASSERT_EQ(tandem_encode_scattered(context_.get(), codec_.get(), shards.data(), kBytes), TANDEM_OK)
      << tandem_last_error_message();
  EXPECT_EQ(shards_, encoded());
}

}  // namespace
}  // namespace tandem::test
