// SPDX-License-Identifier: Apache-2.0
// Plans and jobs.
#include <algorithm>
#include <memory>
#include <thread>

#include "tandem/diagnose.h"
#include "tests/support/api.hpp"

namespace tandem::test {
namespace {

constexpr std::uint64_t kSeed = 901;

class Plans : public testing::TestWithParam<std::string> {
 protected:
  Context context_ = make_context(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Executors, Plans, testing::ValuesIn(executors()), [](const auto &test) { return test.param; });

// Which technique a plan of a wide code has. A narrow code has no transform.
TEST(WidePlans, SayTheirTechnique) {
  const Codec wide = make_codec(40, 12), narrow = make_codec(10, 4);
  Bytes present(52, 1);
  for (const unsigned lost : {0u, 3u, 4u, 5u, 11u, 39u, 41u, 44u, 51u}) present[lost] = 0;
  const auto info_of = [&](const Context &context, std::int32_t operation) {
    const Plan plan = make_plan(context.get(), wide.get(), operation,
                                operation == TANDEM_OPERATION_DECODE ? present.data() : nullptr);
    auto info = sized<tandem_plan_info>();
    EXPECT_EQ(tandem_plan_query(plan.get(), &info), TANDEM_OK);
    return std::pair<std::string, std::string>(info.technique, info.technique_out_of_cache);
  };
  auto options = context_options("", 2);
  options.expert = "technique=matrix";
  const Context matrix = make_context(options);
  options.expert = "technique=transform";
  const Context transform = make_context(options);
  for (const std::int32_t operation : {TANDEM_OPERATION_ENCODE, TANDEM_OPERATION_VERIFY, TANDEM_OPERATION_DECODE}) {
    const char *const wanted = operation == TANDEM_OPERATION_DECODE ? "syndromes, " : "transform";
    const auto [by_matrix, by_matrix_out_of_cache] = info_of(matrix, operation);
    const auto [in_cache, out_of_cache] = info_of(transform, operation);
    EXPECT_EQ(by_matrix, "matrix");
    EXPECT_EQ(by_matrix_out_of_cache, "matrix");
    EXPECT_TRUE(in_cache.starts_with(wanted)) << in_cache;
    EXPECT_TRUE(out_of_cache.starts_with(wanted)) << out_of_cache;
  }
  make_plan(matrix.get(), narrow.get(), TANDEM_OPERATION_ENCODE);
  make_plan(transform.get(), narrow.get(), TANDEM_OPERATION_UPDATE);  // no technique is meant for it
  auto encode = sized<tandem_plan_options>();
  tandem_plan *plan = nullptr;
  EXPECT_TRUE(refused(tandem_plan_create(transform.get(), narrow.get(), &encode, &plan), TANDEM_ERROR_UNSUPPORTED));
}

// What is shared is summed once: fewer additions, and the plan says how many.
TEST(PacketPlans, CountAdditions) {
  tandem_codec_options packets = codec_options(10, 6, TANDEM_MATRIX_JERASURE_CAUCHY_ORIG);
  packets.layout = TANDEM_LAYOUT_PACKETS;
  packets.packet_bytes = 1024;
  const Codec codec = make_codec(packets);
  unsigned ones = 0;
  for (const auto &row : reference::jerasure_rows("jerasure-cauchy-orig", 8, 10, 6))
    for (const unsigned cell : row)
      for (unsigned i = 0; i < 8; ++i)
        ones += static_cast<unsigned>(__builtin_popcount(reference::multiply(8, cell, 1u << i)));
  for (const char *expert : {"", "technique=matrix"}) {
    tandem_context_options options = context_options("", 1);
    options.backend = "cpu";
    options.expert = expert;
    const Context context = make_context(options);
    const Plan plan = make_plan(context.get(), codec.get(), TANDEM_OPERATION_ENCODE);
    auto info = sized<tandem_plan_info>();
    ASSERT_EQ(tandem_plan_query(plan.get(), &info), TANDEM_OK);
    EXPECT_EQ(info.matrix_products, ones - 8 * 6) << "an output of n packets is n - 1 additions";
    if (*expert != 0) {
      EXPECT_STREQ(info.technique, "matrix");
      EXPECT_EQ(info.products, info.matrix_products);
    } else {
      EXPECT_STREQ(info.technique, "shared sums");
      EXPECT_LT(info.products * 3, info.matrix_products * 2);
    }
  }
}

TEST(PlansOfAnyContext, SayWhatTheyRead) {
  const Context context = make_context();
  const Codec codec = make_codec(6, 4);
  const auto expect_read = [&](int32_t operation, const Bytes &want) {
    const Plan plan = make_plan(context.get(), codec.get(), operation, nullptr, nullptr, 3);
    EXPECT_EQ(shards_read(plan.get(), want.size()), want) << operation;
  };
  expect_read(TANDEM_OPERATION_ENCODE, {1, 1, 1, 1, 1, 1, 0, 0, 0, 0});
  expect_read(TANDEM_OPERATION_VERIFY, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  expect_read(TANDEM_OPERATION_UPDATE, {0, 0, 0, 1, 0, 0, 1, 1, 1, 1});
  expect_read(TANDEM_OPERATION_ACCUMULATE, {0, 0, 0, 1, 0, 0, 1, 1, 1, 1});
}

TEST_P(Plans, AJobMayBeWaitedForBySeveralThreads) {
  Random random(kSeed + 3);
  const unsigned k = 5, m = 3;
  const Codec codec = make_codec(k, m);
  const Plan plan = make_plan(context_.get(), codec.get(), TANDEM_OPERATION_ENCODE);
  for (const std::size_t bytes : {10, 400'000}) {
    Stripe stripe(random, k, m, bytes);
    stripe.lose_parity();
    std::vector<void *> pointers = stripe.pointers;  // copied by submit
    const Job job = submit(plan, plan_arguments(pointers.data(), bytes));
    std::ranges::fill(pointers, nullptr);
    std::vector<std::thread> threads;
    std::vector<tandem_status> statuses(4, -1);
    for (tandem_status &status : statuses) threads.emplace_back([&] { status = tandem_job_wait(job.get()); });
    for (std::thread &thread : threads) thread.join();
    EXPECT_EQ(statuses, std::vector<tandem_status>(4, TANDEM_OK));
    EXPECT_EQ(tandem_job_wait(job.get()), TANDEM_OK);
    EXPECT_TRUE(stripe.intact());
    EXPECT_EQ(tandem_job_cancel(job.get()), TANDEM_OK);
    EXPECT_EQ(tandem_job_wait(job.get()), TANDEM_OK) << "a job that was over stays as it was";
  }
}

// Cancelled at once: CANCELLED for every waiter with its message, or it was over first and all bytes are there. In both
// cases the context goes on working.
TEST_P(Plans, ACancelledJobSaysSoToEveryWaiter) {
  Random random(kSeed + 6);
  const Codec codec = make_codec(6, 4);
  const Plan plan = make_plan(context_.get(), codec.get(), TANDEM_OPERATION_ENCODE);
  Stripe stripe(random, 6, 4, 3'000'000);
  unsigned cancelled = 0;
  for (unsigned i = 0; i < 10; ++i) {
    stripe.lose_parity();
    const Job job = submit(plan, stripe.arguments());
    ASSERT_EQ(tandem_job_cancel(job.get()), TANDEM_OK);
    const tandem_status status = tandem_job_wait(job.get());
    if (status == TANDEM_OK) {
      ASSERT_TRUE(stripe.intact());
      continue;
    }
    ++cancelled;
    ASSERT_TRUE(refused(status, TANDEM_ERROR_CANCELLED, {"cancel"}));
    std::thread([&] {  // the sentence reaches a thread that waits later, too
      EXPECT_STREQ(tandem_last_error_message(), "");
      EXPECT_TRUE(refused(tandem_job_wait(job.get()), TANDEM_ERROR_CANCELLED, {"cancel"}));
    })
        .join();
  }
  std::printf("%u of 10 cancels took effect\n", cancelled);
  stripe.lose_parity();
  ASSERT_EQ(tandem_encode(context_.get(), codec.get(), stripe.data(), stripe.parity(), stripe.shard_bytes()),
            TANDEM_OK);
  EXPECT_TRUE(stripe.intact());
}

// Many at once. Every second job is destroyed without a wait.
TEST_P(Plans, JobsOutliveTheirPlanAndTheirDestroyWaits) {
  Random random(kSeed + 4);
  const unsigned k = 4, m = 2;
  const Codec codec = make_codec(k, m);
  Plan plan = make_plan(context_.get(), codec.get(), TANDEM_OPERATION_ENCODE);
  std::vector<std::unique_ptr<Stripe>> stripes;
  std::vector<Job> jobs;
  for (unsigned i = 0; i < 24; ++i) {
    stripes.push_back(std::make_unique<Stripe>(random, k, m, i == 0 ? 3'000'000 : i % 3 == 2 ? 150'000 : 100));
    stripes[i]->lose_parity();
    jobs.push_back(submit(plan, stripes[i]->arguments()));
  }
  plan.reset();
  for (unsigned i = 24; i-- > 0;) {
    if (i % 2 == 0) {
      ASSERT_EQ(tandem_job_wait(jobs[i].get()), TANDEM_OK);
    }
    jobs[i].reset();
    ASSERT_TRUE(stripes[i]->intact()) << i;
  }
}

// A cancel after the end changes nothing, also where explaining a mismatch takes a second pass over the shards.
TEST_P(Plans, ACancelAfterTheEndOfAVerifyChangesNothing) {
  Random random(kSeed);
  const unsigned k = 5, m = 3;
  const Codec codec = make_codec(k, m);
  Stripe stripe(random, k, m, 1'000'000);
  static_cast<unsigned char *>(stripe.pointers[3])[77] ^= 1;
  const Plan plan = make_plan(context_.get(), codec.get(), TANDEM_OPERATION_VERIFY);
  auto result = sized<tandem_verify_result>();
  tandem_plan_arguments arguments = stripe.arguments();
  arguments.verify_result = &result;
  const Job job = submit(plan, arguments);
  ASSERT_EQ(tandem_job_wait(job.get()), TANDEM_OK);
  ASSERT_EQ(tandem_job_cancel(job.get()), TANDEM_OK);
  EXPECT_EQ(tandem_job_wait(job.get()), TANDEM_OK);
  EXPECT_EQ(result.suspect_shard, 3u);
}

}  // namespace
}  // namespace tandem::test
