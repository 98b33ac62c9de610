// SPDX-License-Identifier: Apache-2.0
// Every use of the CPU must keep the budget: calls of the C API and of files.h, large and small. A kernel counts how
// many of its calls are in flight.
#include <array>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tandem/diagnose.h"
#include "tandem/tools.h"
#include "tests/cpu/counted_kernel.hpp"
#include "tests/files/kit.hpp"
#include "tests/support/api.hpp"
#include "tests/support/slice.hpp"

namespace tandem::test {
namespace {

constexpr unsigned kK = 4, kM = 2, kThreads = 4;
constexpr std::size_t kSmallBytes = 4096, kLargeBytes = 200'000;
// Cut into 17 chunks at least: an amount that changes at the fifth has time to be felt.
constexpr std::size_t kManyChunksBytes = thinned(50) * kLargeBytes;
constexpr unsigned kRounds = kThinning == 1 ? 6 : 2;

Context make_limited(const char *resources, const std::string &executor = "pthread") {
  tandem_context_options options = context_options(executor, kThreads);
  options.backend = "cpu";
  options.resources = resources;
  return make_context(options);
}

// What one thread of a test does with shards of its own. Returns false where a call fails or its bytes are wrong.
struct Way {
  const char *name;
  bool (*run)(tandem_context *, const tandem_codec *, Stripe &);
};

bool is_ok(tandem_status status) {
  EXPECT_EQ(status, TANDEM_OK) << tandem_last_error_message();
  return status == TANDEM_OK;
}

bool encode(tandem_context *context, const tandem_codec *codec, Stripe &stripe) {
  stripe.lose_parity();
  return is_ok(tandem_encode(context, codec, stripe.data(), stripe.parity(), stripe.shard_bytes())) && stripe.intact();
}

bool decode(tandem_context *context, const tandem_codec *codec, Stripe &stripe) {
  stripe.lose_all(std::array{0, 5});
  const bool is_done =
      is_ok(tandem_decode(context, codec, stripe.all(), stripe.present.data(), stripe.shard_bytes())) &&
      stripe.intact();
  stripe.restore();
  return is_done;
}

// With a byte that does not match: the second look confirms the suspect and finds the range.
bool verify(tandem_context *context, const tandem_codec *codec, Stripe &stripe) {
  stripe.shards[1][stripe.shard_bytes() / 2] ^= 1;
  const Plan plan = make_plan(context, codec, TANDEM_OPERATION_VERIFY);
  auto result = sized<tandem_verify_result>();
  tandem_shard_range ranges[4];
  tandem_verify_ranges found = {sizeof found, ranges, 4, 0};
  auto arguments = stripe.arguments();
  arguments.verify_result = &result;
  arguments.verify_ranges = &found;
  const bool is_done = is_ok(tandem_plan_run(plan.get(), &arguments, nullptr));
  stripe.restore();
  return is_done && result.consistent == 0 && result.suspect_shard == 1 && found.count == kM;
}

bool update(tandem_context *context, const tandem_codec *codec, Stripe &stripe) {
  const Bytes old_data = stripe.shards[2];
  const bool is_done = is_ok(tandem_update(context, codec, 2, old_data.data(), stripe.shards[2].data(), stripe.parity(),
                                           stripe.shard_bytes()));
  return is_done && stripe.intact();  // nothing changed
}

bool scattered(tandem_context *context, const tandem_codec *codec, Stripe &stripe) {
  stripe.lose_parity();
  std::vector<std::array<tandem_segment, 2>> segments;
  for (Bytes &shard : stripe.shards) {
    const std::size_t first = 1000 + 8 * segments.size();
    segments.push_back({{{shard.data(), first}, {shard.data() + first, shard.size() - first}}});
  }
  std::vector<tandem_scattered_shard> shards;
  for (const auto &each : segments) shards.push_back({each.data(), each.size()});
  return is_ok(tandem_code_scattered(context, codec, TANDEM_OPERATION_ENCODE, shards.data(), nullptr,
                                     stripe.shard_bytes())) &&
         stripe.intact();
}

bool stripes(tandem_context *context, const tandem_codec *codec, Stripe &stripe) {
  stripe.lose_parity();
  tandem_stripe one = {};
  one.shards = stripe.all();
  one.shard_bytes = stripe.shard_bytes();
  return is_ok(tandem_encode_stripes(context, codec, &one, 1, sizeof one)) && stripe.intact();
}

bool job(tandem_context *context, const tandem_codec *codec, Stripe &stripe) {
  stripe.lose_parity();
  const Plan plan = make_plan(context, codec, TANDEM_OPERATION_ENCODE);
  const Job submitted = submit(plan, stripe.arguments());
  return is_ok(tandem_job_wait(submitted.get())) && stripe.intact();
}

constexpr Way kWays[] = {{"encode", encode}, {"decode", decode},       {"verify", verify},  {"update", update},
                         {"job", job},       {"scattered", scattered}, {"stripes", stripes}};

// Four threads at once, each with calls of its own.
void run_on_threads(tandem_context *context, const Way &way, std::size_t shard_bytes) {
  const Codec codec = make_codec(kK, kM);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      Random random(i + 1);
      Stripe stripe(random, kK, kM, shard_bytes);
      for (unsigned round = 0; round < kRounds; ++round) EXPECT_TRUE(way.run(context, codec.get(), stripe)) << way.name;
    });
  }
  for (std::thread &thread : threads) thread.join();
}

class EveryWay : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, EveryWay, testing::ValuesIn(kWays), [](const auto &test) { return test.param.name; });

TEST_P(EveryWay, KeepsToTheAmount) {
  for (const unsigned amount : {1u, 2u}) {
    for (const std::size_t shard_bytes : {kSmallBytes, kLargeBytes}) {
      const Context context = make_limited(("cpu=" + std::to_string(amount)).c_str());
      count_kernel_calls(amount);
      run_on_threads(context.get(), GetParam(), shard_bytes);
      EXPECT_EQ(most_kernel_calls_at_once(), amount) << shard_bytes << " bytes";
      EXPECT_GE(kernel_calls_so_far(), kRounds * kThreads);
    }
  }
}

// It shares with no other thread, and each further chunk costs 80 ns.
TEST(Chunks, OneThreadCodesAStripeOfTheCacheInOneCall) {
  auto options = sized<tandem_context_options>();
  options.backend = "cpu";
  options.thread_count = 1;
  const Context context = make_context(options);
  const Codec codec = make_codec(kK, kM);
  Random random(1);
  Stripe stripe(random, kK, kM, (512 << 10) / (kK + kM));
  count_kernel_calls(1);
  EXPECT_TRUE(encode(context.get(), codec.get(), stripe));
  EXPECT_EQ(kernel_calls_so_far(), 1u);
}

// The counter can see more than that: without an amount the threads meet.
TEST_P(EveryWay, RunsFreelyWithoutAnAmount) {
  const Context context = make_limited(nullptr);
  count_kernel_calls(3);
  run_on_threads(context.get(), GetParam(), kSmallBytes);
  EXPECT_GE(most_kernel_calls_at_once(), 3u);
}

TEST_P(EveryWay, KeepsToTheAmountWithEveryExecutor) {
  for (const std::string &executor : executors()) {
    const Context context = make_limited("cpu=2", executor);
    count_kernel_calls(2);
    run_on_threads(context.get(), GetParam(), kLargeBytes);
    EXPECT_EQ(most_kernel_calls_at_once(), 2u) << "executor " << executor;
  }
}

// ---- what a plan adds

Plan plan_with(tandem_context *context, const tandem_codec *codec, const char *resources,
               int32_t operation = TANDEM_OPERATION_ENCODE) {
  auto options = sized<tandem_plan_options>();
  options.operation = operation;
  options.resources = resources;
  tandem_plan *plan = nullptr;
  EXPECT_EQ(tandem_plan_create(context, codec, &options, &plan), TANDEM_OK) << tandem_last_error_message();
  return Plan(plan);
}

tandem_status run_plan(const Plan &plan, Stripe &stripe, tandem_verify_result *result = nullptr) {
  auto arguments = stripe.arguments();
  arguments.verify_result = result;
  return tandem_plan_run(plan.get(), &arguments, nullptr);
}

TEST(PlanResources, EachTaskHoldsThem) {
  const Codec codec = make_codec(kK, kM);
  for (const std::size_t shard_bytes : {kSmallBytes, kLargeBytes}) {
    for (const char *resources : {"app.widgets=2", "app.disk=1,app.widgets=2"}) {
      const Context context = make_limited("app.widgets=5");
      count_kernel_calls(2);
      std::vector<std::thread> threads;
      for (unsigned i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, i] {
          Random random(i + 1);
          Stripe stripe(random, kK, kM, shard_bytes);
          const Plan encode_plan = plan_with(context.get(), codec.get(), resources),
                     verify_plan = plan_with(context.get(), codec.get(), resources, TANDEM_OPERATION_VERIFY);
          for (int round = 0; round < 4; ++round) {
            stripe.lose_parity();
            EXPECT_EQ(run_plan(encode_plan, stripe), TANDEM_OK) << tandem_last_error_message();
            EXPECT_TRUE(stripe.intact());
            stripe.shards[0][7] ^= 1;
            auto result = sized<tandem_verify_result>();
            EXPECT_EQ(run_plan(verify_plan, stripe, &result), TANDEM_OK) << tandem_last_error_message();
            EXPECT_EQ(result.suspect_shard, 0u);
            stripe.restore();
          }
        });
      }
      for (std::thread &thread : threads) thread.join();
      EXPECT_EQ(most_kernel_calls_at_once(), 2u) << "five widgets are enough for two tasks";
    }
  }
}

TEST(PlanResources, OtherPlansDoNotWait) {
  const Context context = make_limited("app.widgets=1");
  const Codec codec = make_codec(kK, kM);
  const Plan with = plan_with(context.get(), codec.get(), "app.widgets=1"),
             without = plan_with(context.get(), codec.get(), "");
  count_kernel_calls(3);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      Random random(i + 1);
      Stripe stripe(random, kK, kM, kSmallBytes);
      for (int round = 0; round < 4; ++round)
        EXPECT_EQ(run_plan(i < 2 ? with : without, stripe), TANDEM_OK) << tandem_last_error_message();
    });
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(most_kernel_calls_at_once(), 3u) << "one of two with a widget, two without";
}

TEST(PlanResources, AnAmountLoweredBelowTheNeedFailsTheCall) {
  const Codec codec = make_codec(kK, kM);
  for (const std::string &executor : executors()) {
    static tandem_context *lowered = nullptr;
    const Context context = make_limited("app.widgets=8", executor);
    const Plan plan = plan_with(context.get(), codec.get(), "app.widgets=2");
    Random random(1);
    Stripe stripe(random, kK, kM, kManyChunksBytes);
    count_kernel_calls(1);
    lowered = context.get();
    set_kernel_hook([](unsigned) {
      if (kernel_calls_so_far() < 2) return;
      EXPECT_EQ(tandem_context_set_resource(lowered, "app.widgets", 1), TANDEM_OK);
    });
    EXPECT_TRUE(refused(run_plan(plan, stripe), TANDEM_ERROR_INVALID_ARGUMENT,
                        {"needs 2", "\"app.widgets\"", "whole amount is 1"}));
    set_kernel_hook(nullptr);
    EXPECT_LE(kernel_calls_so_far(), 2u + 2 * kThreads) << "little more than the chunks that had begun";
    EXPECT_TRUE(refused(run_plan(plan, stripe), TANDEM_ERROR_INVALID_ARGUMENT, {"app.widgets"}));
    ASSERT_EQ(tandem_context_set_resource(context.get(), "app.widgets", 2), TANDEM_OK);
    EXPECT_EQ(run_plan(plan, stripe), TANDEM_OK) << tandem_last_error_message();
  }
}

// ---- an amount that changes

std::atomic<tandem_context *> changed_context;
std::atomic<bool> has_changed;
std::atomic<unsigned> change_round, calls_after, most_after;

// From the fifth call on.
bool is_time_to_change() { return kernel_calls_so_far() >= 5 && !has_changed.load(); }

void encode_under(tandem_context *context, void (*hook)(unsigned)) {
  const Codec codec = make_codec(kK, kM);
  Random random(1);
  Stripe stripe(random, kK, kM, kManyChunksBytes);
  changed_context = context;
  ++change_round;
  has_changed = false;
  calls_after = most_after = 0;
  count_kernel_calls(1);
  set_kernel_hook(hook);
  EXPECT_EQ(tandem_encode(context, codec.get(), stripe.data(), stripe.parity(), stripe.shard_bytes()), TANDEM_OK);
  set_kernel_hook(nullptr);
  EXPECT_TRUE(stripe.intact());
  EXPECT_TRUE(has_changed.load());
}

// A thread's first call after the change may have had its unit before. With its second one it has the only unit.
TEST(ChangedAmount, LoweredIsFeltAtTheNextChunk) {
  for (const std::string &executor : executors()) {
    if (executor == "serial") continue;  // one call, one thread
    const Context context = make_limited("cpu=4", executor);
    encode_under(context.get(), [](unsigned in_flight) {
      thread_local unsigned known_round = 0, own_calls = 0;
      if (std::exchange(known_round, change_round.load()) != change_round.load()) own_calls = 0;
      if (has_changed.load()) {
        ++calls_after;
        if (++own_calls < 2) return;
        unsigned seen = most_after.load();
        while (seen < in_flight && !most_after.compare_exchange_weak(seen, in_flight)) {
        }
      } else if (is_time_to_change()) {
        EXPECT_EQ(tandem_context_set_resource(changed_context.load(), "cpu", 1), TANDEM_OK);
        has_changed = true;
      }
    });
    EXPECT_GT(calls_after.load(), 8u);
    EXPECT_EQ(most_after.load(), 1u);
  }
}

// The call that raises the amount does not end before three are in flight: threads that wait must feel it at once.
TEST(ChangedAmount, RaisedIsFeltAtOnce) {
  for (const std::string &executor : executors()) {
    if (executor == "serial") continue;
    const Context context = make_limited("cpu=1", executor);
    encode_under(context.get(), [](unsigned) {
      if (!is_time_to_change()) return;
      EXPECT_EQ(most_kernel_calls_at_once(), 1u);
      has_changed = true;
      let_kernel_calls_meet(3);
      EXPECT_EQ(tandem_context_set_resource(changed_context.load(), "cpu", 3), TANDEM_OK);
    });
    EXPECT_EQ(most_kernel_calls_at_once(), 3u);
  }
}

// ---- files

class FilesWithin : public Files, public testing::WithParamInterface<unsigned> {
 protected:
  void SetUp() override {
    Files::SetUp();
    tandem_context_destroy(context_);
    context_ = make_limited(("cpu=" + std::to_string(GetParam())).c_str()).release();
  }

  void expect_amount(const char *what) {
    EXPECT_EQ(most_kernel_calls_at_once(), GetParam()) << what;
    EXPECT_GT(kernel_calls_so_far(), 10u) << what;
    count_kernel_calls(GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(Amounts, FilesWithin, testing::Values(1u, 2u),
                         [](const auto &test) { return "cpu" + std::to_string(test.param); });

TEST_P(FilesWithin, EveryCommandKeepsToTheAmount) {
  const std::vector<char> content = ::paint(6'000'000);
  count_kernel_calls(GetParam());
  encode(content, kK, kM, 64 << 10);
  expect_amount("encode");
  for (const unsigned lost : {1u, 4u}) fs::remove(shard(lost));
  ASSERT_EQ(decode(shards_), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(slurp(root_ / "output"), content);
  expect_amount("decode");
  EXPECT_EQ(repair({shards_}), TANDEM_OK) << tandem_last_error_message();
  expect_amount("repair");
  EXPECT_EQ(verify().state, TANDEM_FILES_INTACT);
  EXPECT_EQ(kernel_calls_so_far(), 0u) << "a verify of files compares checksums";
}

}  // namespace
}  // namespace tandem::test
