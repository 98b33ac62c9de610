// SPDX-License-Identifier: Apache-2.0
// Eight threads do anything at random on one context and shared codecs.
#include <atomic>
#include <memory>
#include <thread>

#include "tandem/tools.h"
#include "tests/support/api.hpp"

namespace tandem::test {
namespace {

constexpr std::uint64_t kSeed = 8080;
constexpr unsigned kThreads = 8;
#if defined(TANDEM_TEST_WITHOUT_OPENMP)  // the thread sanitizer sees as much in fewer rounds, each twenty times as slow
constexpr unsigned kRounds = 12;
#else
constexpr unsigned kRounds = 60;
#endif

struct Shape {
  unsigned k, m;
};
constexpr Shape kShapes[] = {{2, 1}, {4, 2}, {10, 4}, {6, 6}};

// One random operation; "" or what went wrong.
std::string one_operation(Random &random, tandem_context *context, const std::vector<Codec> &codecs) {
  const auto which = random.below(std::size(kShapes));
  const auto [k, m] = kShapes[which];
  const tandem_codec *codec = codecs[which].get();
  Stripe stripe(random, k, m, random.chance(20) ? random.between(200'000, 600'000) : random.between(1, 2'000));
  const std::size_t bytes = stripe.shard_bytes();
  const auto failed = [&](const char *what) { return std::string(what) + ": " + tandem_last_error_message(); };
  switch (random.below(8)) {
    case 0:
      stripe.lose_parity();
      if (tandem_encode(context, codec, stripe.data(), stripe.parity(), bytes) != TANDEM_OK) return failed("encode");
      break;
    case 1:
      stripe.lose_all(random.pick(static_cast<unsigned>(random.between(1, m)), k + m));
      if (tandem_decode(context, codec, stripe.all(), stripe.present.data(), bytes) != TANDEM_OK)
        return failed("decode");
      break;
    case 2: {
      auto result = sized<tandem_verify_result>();
      const bool damage = random.chance(50);
      if (damage) stripe.shards[0][random.below(bytes)] ^= 1;
      if (tandem_verify(context, codec, stripe.data(), bytes, &result) != TANDEM_OK) return failed("verify");
      if ((result.consistent == 1) == damage) return "verify was wrong";
      stripe.restore();
      break;
    }
    case 3:
      for (unsigned c = 0; c < k; ++c)
        if (tandem_accumulate(context, codec, c, stripe.pointers[c], stripe.parity(), bytes, c == 0) != TANDEM_OK)
          return failed("accumulate");
      break;
    case 4: {  // away and back again
      const Bytes other = random.bytes(bytes);
      if (tandem_update(context, codec, k - 1, stripe.pointers[k - 1], other.data(), stripe.parity(), bytes) !=
              TANDEM_OK ||
          tandem_update(context, codec, k - 1, other.data(), stripe.pointers[k - 1], stripe.parity(), bytes) !=
              TANDEM_OK)
        return failed("update");
      break;
    }
    case 5: {
      const Plan plan = make_plan(context, codec, TANDEM_OPERATION_ENCODE);
      stripe.lose_parity();
      auto arguments = stripe.arguments();
      tandem_job *raw = nullptr;
      if (tandem_plan_run(plan.get(), &arguments, &raw) != TANDEM_OK) return failed("submit");
      const Job job(raw);
      const bool cancel = random.chance(30);
      if (cancel) tandem_job_cancel(raw);
      const tandem_status status = tandem_job_wait(raw);
      if (status == TANDEM_ERROR_CANCELLED && cancel) return "";
      if (status != TANDEM_OK) return failed("wait");
      break;
    }
    case 6: {
      if (!random.chance(50))
        return tandem_context_set_resource(context, "cpu", random.between(1, 4)) == TANDEM_OK ? "" : "resource";
      const Codec own = make_codec(k, m);  // comes and goes while others code
      stripe.lose_parity();
      if (tandem_encode(context, own.get(), stripe.data(), stripe.parity(), bytes) != TANDEM_OK)
        return failed("own codec");
      break;
    }
    default: {
      for (unsigned i = 0; i <= m; ++i) stripe.lose(i < k ? i : k + m - 1 - (i - k));
      const Shards before = stripe.shards;
      if (tandem_decode(context, codec, stripe.all(), stripe.present.data(), bytes) != TANDEM_ERROR_NOT_RECOVERABLE)
        return "too much lost, and no refusal";
      return stripe.shards == before ? "" : "a refused call wrote";
    }
  }
  return stripe.intact() ? "" : "wrong bytes";
}

TEST(Threads, RandomOperationsOnSharedObjects) {
  for (const std::string &executor : executors()) {
    tandem_context_options options = context_options(executor, 4);
    const Context context = make_context(options);
    std::vector<Codec> codecs;
    for (const auto &[k, m] : kShapes) codecs.push_back(make_codec(k, m));
    std::vector<std::string> wrong(kThreads);
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        Random random(kSeed + t);
        for (unsigned round = 0; round < kRounds && wrong[t].empty(); ++round)
          wrong[t] = one_operation(random, context.get(), codecs);
      });
    }
    for (std::thread &thread : threads) thread.join();
    for (unsigned t = 0; t < kThreads; ++t)
      EXPECT_EQ(wrong[t], "") << "executor " << executor << ", thread " << t << ", seed " << kSeed + t;
  }
}

// One context per thread, coming and going.
TEST(Threads, ContextsComeAndGo) {
  std::vector<std::thread> threads;
  std::atomic<unsigned> wrong{0};
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Random random(kSeed + 100 + t);
      for (unsigned i = 0; i < 15; ++i) {
        const Context context = make_context("pthread", 3);
        Stripe stripe(random, 4, 2, 500'000);
        stripe.lose_parity();
        const Codec codec = make_codec(4, 2);
        if (tandem_encode(context.get(), codec.get(), stripe.data(), stripe.parity(), 500'000) != TANDEM_OK ||
            !stripe.intact())
          ++wrong;
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0u);
}

}  // namespace
}  // namespace tandem::test
