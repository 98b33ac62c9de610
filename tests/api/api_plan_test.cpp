// SPDX-License-Identifier: Apache-2.0
// Plans and jobs.
#include <memory>
#include <thread>

#include "tandem/diagnose.h"
#include "tests/support/api.hpp"

namespace tandem::test {
namespace {

constexpr std::uint64_t kSeed = 901;

tandem_plan_arguments arguments_of(Stripe &stripe) {
  tandem_plan_arguments arguments = {};
  arguments.struct_bytes = sizeof arguments;
  arguments.shards = stripe.all();
  arguments.shard_bytes = stripe.shard_bytes();
  return arguments;
}

class Plans : public testing::TestWithParam<std::string> {
 protected:
  Context context_ = make_context(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Executors, Plans, testing::ValuesIn(executors()), [](const auto &test) { return test.param; });

// Wide codes through the C API: what a plan says about its technique, the bytes of every operation, and the suspect of
// a verify.
TEST(WidePlans, TechniquesGiveTheSameBytes) {
  Random random(kSeed + 50);
  const unsigned k = 40, m = 12;
  Codec codec = make_codec(k, m);
  for (const char *technique : {"", "matrix", "transform"}) {
    auto options = context_options("pthread", 2);
    const std::string expert = std::string("technique=") + technique;
    if (*technique != 0) options.expert = expert.c_str();
    const Context context = make_context(options);
    for (const std::size_t bytes : {64, 5'001, 60'000}) {
      Stripe stripe(random, k, m, bytes);
      Bytes present(k + m, 1);
      for (const unsigned lost : {0u, 3u, 4u, 5u, 11u, 39u, 41u, 44u, 51u}) present[lost] = 0;
      const Plan encode = make_plan(context.get(), codec.get(), TANDEM_OPERATION_ENCODE);
      const Plan verify = make_plan(context.get(), codec.get(), TANDEM_OPERATION_VERIFY);
      const Plan decode = make_plan(context.get(), codec.get(), TANDEM_OPERATION_DECODE, present.data());
      if (*technique != 0) {
        for (const Plan *plan : {&encode, &verify, &decode}) {
          tandem_plan_info info = {};
          info.struct_bytes = sizeof info;
          ASSERT_EQ(tandem_plan_query(plan->get(), &info), TANDEM_OK);
          const std::string wanted = std::string(technique) == "matrix" ? "matrix"
                                     : plan == &decode                  ? "syndromes, "
                                                                        : "transform";
          EXPECT_EQ(std::string(info.technique).substr(0, wanted.size()), wanted);
          EXPECT_EQ(std::string(info.technique_out_of_cache).substr(0, wanted.size()), wanted);
        }
      }
      auto arguments = arguments_of(stripe);
      const auto parity = stripe.shards;
      for (unsigned i = k; i < k + m; ++i) std::fill(stripe.shards[i].begin(), stripe.shards[i].end(), 0);
      ASSERT_EQ(tandem_plan_run(encode.get(), &arguments), TANDEM_OK) << tandem_last_error_message();
      ASSERT_EQ(stripe.shards, parity) << technique << ", " << bytes;
      for (unsigned i = 0; i < k + m; ++i)
        if (present[i] == 0) std::fill(stripe.shards[i].begin(), stripe.shards[i].end(), 0xee);
      ASSERT_EQ(tandem_plan_run(decode.get(), &arguments), TANDEM_OK) << tandem_last_error_message();
      ASSERT_EQ(stripe.shards, parity) << technique << ", " << bytes;
      tandem_verify_result result = {};
      result.struct_bytes = sizeof result;
      arguments.verify_result = &result;
      stripe.shards[17][bytes / 2] ^= 5;
      ASSERT_EQ(tandem_plan_run(verify.get(), &arguments), TANDEM_OK) << tandem_last_error_message();
      EXPECT_EQ(result.consistent, 0);
      EXPECT_EQ(result.suspect_shard, 17u) << technique;  // a matrix confirms it, with every technique
      stripe.shards[17][bytes / 2] ^= 5;
    }
    // A narrow code has no transform.
    const Codec narrow = make_codec(10, 4);
    auto plan_options = tandem_plan_options();
    plan_options.struct_bytes = sizeof plan_options;
    tandem_plan *plan = nullptr;
    const tandem_status status = tandem_plan_create(context.get(), narrow.get(), &plan_options, &plan);
    EXPECT_EQ(status, std::string(technique) == "transform" ? TANDEM_ERROR_UNSUPPORTED : TANDEM_OK);
    tandem_plan_destroy(plan);
  }
  auto unknown = context_options("serial", 1);
  unknown.expert = "technique=magic";
  tandem_context *context = nullptr;
  EXPECT_EQ(tandem_context_create(&unknown, &context), TANDEM_ERROR_INVALID_ARGUMENT);
}

TEST_P(Plans, EveryOperation) {
  Random random(kSeed);
  const unsigned k = 7, m = 3;
  for (const std::size_t bytes : {1, 333, 200'001}) {
    Codec codec = make_codec(k, m);
    Stripe stripe(random, k, m, bytes);
    const Bytes new_data = random.bytes(bytes);
    const Plan encode = make_plan(context_.get(), codec.get(), TANDEM_OPERATION_ENCODE);
    const Plan verify = make_plan(context_.get(), codec.get(), TANDEM_OPERATION_VERIFY);
    const Plan update = make_plan(context_.get(), codec.get(), TANDEM_OPERATION_UPDATE, nullptr, nullptr, 2);
    std::vector<Plan> feed;
    for (unsigned c = 0; c < k; ++c)
      feed.push_back(make_plan(context_.get(), codec.get(), TANDEM_OPERATION_ACCUMULATE, nullptr, nullptr, c));
    Bytes present(k + m, 1);
    present[1] = present[6] = present[8] = 0;
    const Plan decode = make_plan(context_.get(), codec.get(), TANDEM_OPERATION_DECODE, present.data());
    codec.reset();  // plans outlive their codec

    tandem_plan_arguments arguments = arguments_of(stripe);
    stripe.lose_parity();
    ASSERT_EQ(tandem_plan_run(encode.get(), &arguments), TANDEM_OK) << tandem_last_error_message();
    ASSERT_TRUE(stripe.intact());
    stripe.lose_all(std::vector{1, 6, 8});
    ASSERT_EQ(tandem_plan_run(decode.get(), &arguments), TANDEM_OK) << tandem_last_error_message();
    ASSERT_TRUE(stripe.intact());

    for (unsigned r = 0; r < m; ++r) std::memset(stripe.pointers[k + r], 0, bytes);
    for (const unsigned c : random.pick(k, k)) {
      std::vector<void *> needed(k + m);  // the others are ignored
      needed[c] = stripe.pointers[c];
      for (unsigned r = 0; r < m; ++r) needed[k + r] = stripe.pointers[k + r];
      tandem_plan_arguments one = arguments;
      one.shards = needed.data();
      ASSERT_EQ(tandem_plan_run(feed[c].get(), &one), TANDEM_OK) << tandem_last_error_message();
    }
    ASSERT_TRUE(stripe.intact());

    tandem_verify_result result = {};
    result.struct_bytes = sizeof result;
    arguments.verify_result = &result;
    ASSERT_EQ(tandem_plan_run(verify.get(), &arguments), TANDEM_OK);
    EXPECT_EQ(result.consistent, 1);
    arguments.new_data = new_data.data();
    ASSERT_EQ(tandem_plan_run(update.get(), &arguments), TANDEM_OK);
    stripe.shards[2] = new_data;
    stripe.pointers[2] = stripe.shards[2].data();
    ASSERT_EQ(tandem_plan_run(verify.get(), &arguments), TANDEM_OK);
    EXPECT_EQ(result.consistent, 1) << "parity does not follow the update";
    stripe.shards[4][bytes / 2] ^= 9;
    ASSERT_EQ(tandem_plan_run(verify.get(), &arguments), TANDEM_OK);
    EXPECT_EQ(result.consistent, 0);
    EXPECT_EQ(result.suspect_shard, 4u);
    EXPECT_EQ(result.first_mismatch_bytes, bytes / 2);
  }
}

// A plan reads no more than it says: every other shard may be NULL, and for an MDS code exactly k are read.
TEST_P(Plans, ShardsToRead) {
  Random random(kSeed + 1);
  const unsigned k = 6, m = 4;
  const Codec codec = make_codec(k, m);
  Stripe stripe(random, k, m, 150);
  for (unsigned trial = 0; trial < 60; ++trial) {
    stripe.restore();
    const auto lost = random.pick(static_cast<unsigned>(random.between(1, m)), k + m);
    stripe.lose_all(lost);
    Bytes wanted(k + m, 0);
    for (const unsigned i : lost) wanted[i] = random.chance(60);
    wanted[lost[0]] = 1;
    const Plan plan =
        make_plan(context_.get(), codec.get(), TANDEM_OPERATION_DECODE, stripe.present.data(), wanted.data());
    Bytes read(k + m, 77);
    ASSERT_EQ(tandem_plan_shards_to_read(plan.get(), read.data()), TANDEM_OK);
    unsigned read_count = 0;
    Shards want = stripe.shards;
    for (unsigned i = 0; i < k + m; ++i) {
      ASSERT_LE(read[i], 1);
      read_count += read[i];
      if (read[i]) {
        ASSERT_TRUE(stripe.present[i]) << "reads a missing shard";
      }
      if (wanted[i]) want[i] = stripe.truth[i];
      if (!read[i] && !wanted[i]) stripe.pointers[i] = nullptr;
    }
    EXPECT_EQ(read_count, k);
    const tandem_plan_arguments arguments = arguments_of(stripe);
    ASSERT_EQ(tandem_plan_run(plan.get(), &arguments), TANDEM_OK) << tandem_last_error_message();
    ASSERT_EQ(stripe.shards, want);
  }
  Bytes read(k + m);
  const auto expect_read = [&](int32_t operation, const Bytes &want) {
    const Plan plan = make_plan(context_.get(), codec.get(), operation, nullptr, nullptr, 3);
    ASSERT_EQ(tandem_plan_shards_to_read(plan.get(), read.data()), TANDEM_OK);
    EXPECT_EQ(read, want) << operation;
  };
  expect_read(TANDEM_OPERATION_ENCODE, {1, 1, 1, 1, 1, 1, 0, 0, 0, 0});
  expect_read(TANDEM_OPERATION_VERIFY, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  expect_read(TANDEM_OPERATION_UPDATE, {0, 0, 0, 1, 0, 0, 1, 1, 1, 1});
  expect_read(TANDEM_OPERATION_ACCUMULATE, {0, 0, 0, 1, 0, 0, 1, 1, 1, 1});
}

TEST_P(Plans, WantedSubsetOfParity) {
  Random random(kSeed + 2);
  const unsigned k = 3, m = 3;
  const Codec codec = make_codec(k, m);
  Stripe stripe(random, k, m, 99);
  const std::uint8_t wanted[] = {0, 0, 0, 0, 1, 0};
  const Plan plan = make_plan(context_.get(), codec.get(), TANDEM_OPERATION_ENCODE, nullptr, wanted);
  stripe.lose_parity();
  Shards want = stripe.shards;
  want[4] = stripe.truth[4];
  const tandem_plan_arguments arguments = arguments_of(stripe);
  ASSERT_EQ(tandem_plan_run(plan.get(), &arguments), TANDEM_OK);
  EXPECT_EQ(stripe.shards, want);
}

TEST_P(Plans, SubmitAndWaitFromSeveralThreads) {
  Random random(kSeed + 3);
  const unsigned k = 5, m = 3;
  const Codec codec = make_codec(k, m);
  const Plan plan = make_plan(context_.get(), codec.get(), TANDEM_OPERATION_ENCODE);
  for (const std::size_t bytes : {10, 400'000}) {
    Stripe stripe(random, k, m, bytes);
    stripe.lose_parity();
    tandem_job *raw = nullptr;
    {
      const std::vector<void *> pointers = stripe.pointers;  // copied by submit
      tandem_plan_arguments arguments = arguments_of(stripe);
      arguments.shards = pointers.data();
      ASSERT_EQ(tandem_plan_submit(plan.get(), &arguments, &raw), TANDEM_OK) << tandem_last_error_message();
    }
    const Job job(raw);
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

TEST_P(Plans, ManyJobsAtOnce) {
  Random random(kSeed + 4);
  const unsigned k = 4, m = 2;
  const Codec codec = make_codec(k, m);
  const Plan plan = make_plan(context_.get(), codec.get(), TANDEM_OPERATION_ENCODE);
  std::vector<std::unique_ptr<Stripe>> stripes;
  std::vector<Job> jobs;
  for (unsigned i = 0; i < 24; ++i) {
    stripes.push_back(std::make_unique<Stripe>(random, k, m, i % 3 == 0 ? 150'000 : 100));
    stripes[i]->lose_parity();
    const tandem_plan_arguments arguments = arguments_of(*stripes[i]);
    tandem_job *raw = nullptr;
    ASSERT_EQ(tandem_plan_submit(plan.get(), &arguments, &raw), TANDEM_OK) << tandem_last_error_message();
    jobs.emplace_back(raw);
  }
  for (unsigned i = 24; i-- > 0;) {
    ASSERT_EQ(tandem_job_wait(jobs[i].get()), TANDEM_OK);
    ASSERT_TRUE(stripes[i]->intact());
  }
}

TEST_P(Plans, DestroyWaits) {
  Random random(kSeed + 5);
  Stripe stripe(random, 5, 3, 500'000);
  stripe.lose_parity();
  const Plan plan = make_plan(context_.get(), make_codec(5, 3).get(), TANDEM_OPERATION_ENCODE);
  const tandem_plan_arguments arguments = arguments_of(stripe);
  tandem_job *job = nullptr;
  ASSERT_EQ(tandem_plan_submit(plan.get(), &arguments, &job), TANDEM_OK);
  tandem_job_destroy(job);
  EXPECT_TRUE(stripe.intact());
}

// Cancelled at once: CANCELLED for every waiter with its message, or it was over first and all bytes are there. In both
// cases the context goes on working.
TEST_P(Plans, Cancel) {
  Random random(kSeed + 6);
  const Codec codec = make_codec(6, 4);
  const Plan plan = make_plan(context_.get(), codec.get(), TANDEM_OPERATION_ENCODE);
  Stripe stripe(random, 6, 4, 3'000'000);
  unsigned cancelled = 0;
  for (unsigned i = 0; i < 10; ++i) {
    stripe.lose_parity();
    const tandem_plan_arguments arguments = arguments_of(stripe);
    tandem_job *raw = nullptr;
    ASSERT_EQ(tandem_plan_submit(plan.get(), &arguments, &raw), TANDEM_OK);
    const Job job(raw);
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

TEST_P(Plans, JobsOutliveTheirPlan) {
  Random random(kSeed);
  const unsigned k = 5, m = 2;
  const Codec codec = make_codec(k, m);
  Stripe stripe(random, k, m, 3'000'000);
  stripe.lose_parity();
  Plan plan = make_plan(context_.get(), codec.get(), TANDEM_OPERATION_ENCODE);
  const tandem_plan_arguments arguments = arguments_of(stripe);
  tandem_job *job = nullptr;
  ASSERT_EQ(tandem_plan_submit(plan.get(), &arguments, &job), TANDEM_OK);
  plan.reset();
  EXPECT_EQ(tandem_job_wait(job), TANDEM_OK);
  EXPECT_TRUE(stripe.intact());
  tandem_job_destroy(job);
}

// A cancel after the end changes nothing, also where explaining a mismatch takes a second pass over the shards.
TEST_P(Plans, CancelAfterTheEndOfAVerify) {
  Random random(kSeed);
  const unsigned k = 5, m = 3;
  const Codec codec = make_codec(k, m);
  Stripe stripe(random, k, m, 1'000'000);
  static_cast<unsigned char *>(stripe.pointers[3])[77] ^= 1;
  const Plan plan = make_plan(context_.get(), codec.get(), TANDEM_OPERATION_VERIFY);
  tandem_verify_result result = {};
  result.struct_bytes = sizeof result;
  tandem_plan_arguments arguments = arguments_of(stripe);
  arguments.verify_result = &result;
  tandem_job *job = nullptr;
  ASSERT_EQ(tandem_plan_submit(plan.get(), &arguments, &job), TANDEM_OK);
  ASSERT_EQ(tandem_job_wait(job), TANDEM_OK);
  ASSERT_EQ(tandem_job_cancel(job), TANDEM_OK);
  EXPECT_EQ(tandem_job_wait(job), TANDEM_OK);
  EXPECT_EQ(result.suspect_shard, 3u);
  tandem_job_destroy(job);
}

TEST_P(Plans, FirstAccumulateOverwrites) {
  Random random(kSeed);
  const unsigned k = 3, m = 2;
  const Codec codec = make_codec(k, m);
  Stripe stripe(random, k, m, 4'097);
  stripe.lose_parity();  // bytes that lie there must not count
  const tandem_plan_arguments arguments = arguments_of(stripe);
  for (unsigned c = 0; c < k; ++c) {
    tandem_plan_options options = {};
    options.struct_bytes = sizeof options;
    options.operation = TANDEM_OPERATION_ACCUMULATE;
    options.index = c;
    options.first = c == 0;
    tandem_plan *plan = nullptr;
    ASSERT_EQ(tandem_plan_create(context_.get(), codec.get(), &options, &plan), TANDEM_OK);
    ASSERT_EQ(tandem_plan_run(plan, &arguments), TANDEM_OK);
    tandem_plan_destroy(plan);
  }
  EXPECT_TRUE(stripe.intact());
}

TEST_P(Plans, VerifyJobWritesItsResultWhenWaitedFor) {
  Random random(kSeed + 7);
  Stripe stripe(random, 4, 3, 250'000);
  stripe.shards[1][200'000] ^= 1;
  const Plan plan = make_plan(context_.get(), make_codec(4, 3).get(), TANDEM_OPERATION_VERIFY);
  tandem_plan_arguments arguments = arguments_of(stripe);
  tandem_verify_result result = {};
  result.struct_bytes = sizeof result;
  arguments.verify_result = &result;
  tandem_job *raw = nullptr;
  ASSERT_EQ(tandem_plan_submit(plan.get(), &arguments, &raw), TANDEM_OK);
  const Job job(raw);
  ASSERT_EQ(tandem_job_wait(job.get()), TANDEM_OK);
  EXPECT_EQ(result.consistent, 0);
  EXPECT_EQ(result.suspect_shard, 1u);
  EXPECT_EQ(result.first_mismatch_bytes, 200'000u);
}

}  // namespace
}  // namespace tandem::test
