// SPDX-License-Identifier: Apache-2.0
// With every executor: a process is forked while its other threads code, and the child uses the parent's context.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tandem/tools.h"
#include "tests/support/api.hpp"
#include "tests/support/sanitizers.hpp"

namespace tandem::test {
namespace {

constexpr std::uint64_t kSeed = 1969;
constexpr unsigned kForks = 12, kLimitSeconds = 60;

// Encode, decode, plan and job on the given context; whether all bytes were right. Prints nothing: it runs in the
// child.
bool code(tandem_context *context, const tandem_codec *codec, const tandem_plan *plan, std::uint64_t seed,
          std::size_t bytes) {
  Random random(seed);
  Stripe stripe(random, 6, 3, bytes);
  stripe.lose_parity();
  if (tandem_encode(context, codec, stripe.data(), stripe.parity(), bytes) != TANDEM_OK || !stripe.intact())
    return false;
  stripe.restore();
  stripe.lose_all(random.pick(3, 9));
  if (tandem_decode(context, codec, stripe.all(), stripe.present.data(), bytes) != TANDEM_OK || !stripe.intact())
    return false;
  stripe.lose_parity();
  auto arguments = stripe.arguments();
  if (tandem_plan_run(plan, &arguments, nullptr) != TANDEM_OK || !stripe.intact()) return false;
  stripe.lose_parity();
  tandem_job *job = nullptr;
  if (tandem_plan_run(plan, &arguments, &job) != TANDEM_OK) return false;
  const tandem_status status = tandem_job_wait(job);
  tandem_job_destroy(job);
  return status == TANDEM_OK && stripe.intact();
}

class Fork : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Executors, Fork, testing::ValuesIn(executors()), [](const auto &test) { return test.param; });

void expect_exit_zero(pid_t child) {
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status)
                                 << (WTERMSIG(status) == SIGALRM ? ": the child hung" : "");
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the child's bytes were wrong";
}

TEST_P(Fork, ChildCodesWhileTheParentsThreadsDo) {
  TANDEM_SKIP_FORK_BESIDE_THREADS();
  tandem_context_options options = context_options(GetParam(), 3);
  options.resources = "cpu=2";  // a budget that parent's threads hold at the moment of the fork
  const Context context = make_context(options);
  const Codec codec = make_codec(6, 3);
  const Plan plan = make_plan(context.get(), codec.get(), TANDEM_OPERATION_ENCODE);
  ASSERT_TRUE(code(context.get(), codec.get(), plan.get(), kSeed, 300'000));  // its threads are there
  std::atomic<bool> stop{false};
  std::atomic<unsigned> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned round = 0; !stop; ++round)
        if (!code(context.get(), codec.get(), plan.get(), kSeed + 10 * round + t, round % 2 == 0 ? 400'000 : 500))
          ++wrong;
    });
  }
  for (unsigned i = 0; i < kForks; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(kLimitSeconds);
      bool right = code(context.get(), codec.get(), plan.get(), kSeed + i, i % 2 == 0 ? 400'000 : 900);
      right = right && tandem_context_set_resource(context.get(), "cpu", 3) == TANDEM_OK;
      tandem_context *fresh = nullptr;  // and one made here
      right = right && tandem_context_create(&options, &fresh) == TANDEM_OK;
      right =
          right && code(fresh, codec.get(), make_plan(fresh, codec.get(), TANDEM_OPERATION_ENCODE).get(), i, 400'000);
      tandem_context_destroy(fresh);
      _exit(right ? 0 : 1);
    }
    expect_exit_zero(child);
  }
  stop = true;
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0u) << "the parent was disturbed";
  EXPECT_TRUE(code(context.get(), codec.get(), plan.get(), kSeed, 300'000));
}

// A child's child; and a child that ends the inherited objects.
TEST_P(Fork, GrandchildAndCleanUp) {
  TANDEM_SKIP_FORK_BESIDE_THREADS();
  Context context = make_context(GetParam(), 3);
  Codec codec = make_codec(6, 3);
  Plan plan = make_plan(context.get(), codec.get(), TANDEM_OPERATION_ENCODE);
  ASSERT_TRUE(code(context.get(), codec.get(), plan.get(), kSeed, 300'000));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(kLimitSeconds);
    if (!code(context.get(), codec.get(), plan.get(), kSeed + 1, 300'000)) _exit(1);
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      alarm(kLimitSeconds);
      const bool right = code(context.get(), codec.get(), plan.get(), kSeed + 2, 300'000);
      plan.reset();
      codec.reset();
      context.reset();
      _exit(right ? 0 : 1);
    }
    int status = 1;
    if (waitpid(grandchild, &status, 0) != grandchild || status != 0) _exit(2);
    plan.reset();
    codec.reset();
    context.reset();
    _exit(0);
  }
  expect_exit_zero(child);
}

// The process's own context, which the parent made, or which the child is the first to need.
TEST(ForkWithoutContext, ProcessContext) {
  TANDEM_SKIP_FORK_BESIDE_THREADS();
  const Codec codec = make_codec(6, 3);
  for (const bool parent_has_it : {false, true}) {
    if (parent_has_it) {
      const Plan plan = make_plan(nullptr, codec.get(), TANDEM_OPERATION_ENCODE);
      ASSERT_TRUE(code(nullptr, codec.get(), plan.get(), kSeed, 300'000));
    }
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(kLimitSeconds);
      const Plan plan = make_plan(nullptr, codec.get(), TANDEM_OPERATION_ENCODE);
      _exit(code(nullptr, codec.get(), plan.get(), kSeed, 300'000) ? 0 : 1);
    }
    expect_exit_zero(child);
  }
}

// A job belongs to the process that submitted it: a child can neither wait for it nor be held up by it.
TEST_P(Fork, JobOfTheParent) {
  TANDEM_SKIP_FORK_BESIDE_THREADS();
  const Context context = make_context(GetParam(), 2);
  const Codec codec = make_codec(6, 3);
  const Plan plan = make_plan(context.get(), codec.get(), TANDEM_OPERATION_ENCODE);
  Random random(kSeed);
  Stripe stripe(random, 6, 3, 4'000'000);
  Job job = submit(plan, stripe.arguments());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(kLimitSeconds);
    const bool refused = tandem_job_wait(job.get()) == TANDEM_ERROR_INVALID_ARGUMENT;
    job.reset();
    _exit(refused ? 0 : 1);
  }
  expect_exit_zero(child);
  EXPECT_EQ(tandem_job_wait(job.get()), TANDEM_OK);
}

}  // namespace
}  // namespace tandem::test
