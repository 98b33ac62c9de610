// SPDX-License-Identifier: Apache-2.0
// The hybrid as a backend: the conformance suite over its policies and members. Members fail, hang, are cancelled, or
// wait for resources.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/registered_memory.hpp"
#include "hybrid/factory.hpp"
#include "tests/conformance/fake_backend.hpp"
#include "tests/conformance/suite.hpp"
#include "tests/conformance/work.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/slice.hpp"

namespace tandem::test {
namespace {

using core::Mode;
using hybrid::Member;
using hybrid::Policy;

constexpr std::size_t kShardBytes = 20'011;

Member cpu(unsigned lanes = 2, FakeScript script = {}) {
  Member member;
  member.name = "cpu";
  script.lanes = lanes;
  member.backend = std::make_shared<FakeBackend>(script);
  member.lanes = lanes;
  member.is_cpu = true;
  return member;
}

Member device(const std::string &name, FakeScript script = {}, unsigned lanes = 1) {
  Member member;
  member.name = name;
  script.name = name;
  script.lanes = lanes;
  member.backend = std::make_shared<FakeBackend>(script);
  member.lanes = lanes;
  member.staging_bytes = 64 << 10;
  return member;
}

hybrid::Options options(std::vector<Member> members, Policy policy) {
  hybrid::Options given;
  given.members = std::move(members);
  given.policy = policy;
  given.chunk_bytes = 16 << 10;
  given.inline_bytes = 0;
  given.least_deadline_seconds = 30;  // nothing hangs: on a busy machine threads wait for a core
  return given;
}

std::unique_ptr<core::Backend> make(std::vector<Member> members, Policy policy, const base::Log &log = {}) {
  return hybrid::make_backend(options(std::move(members), policy), log);
}

std::vector<BackendMaker> makers() {
  FakeScript reversing;
  reversing.reverses_groups = true;
  std::vector<BackendMaker> list;
  for (const auto &[name, policy] : {std::pair("auto", Policy::automatic), {"budget", Policy::budget}}) {
    const Policy of = policy;
    const std::string called = name;
    list.push_back({"cpu_" + called, [of] { return make({cpu()}, of); }, ""});
    list.push_back({"device_" + called, [of] { return make({device("gpu")}, of); }, ""});
    list.push_back({"both_" + called, [of] { return make({cpu(), device("gpu", {}, 2)}, of); }, ""});
    list.push_back({"many_" + called, [of] { return make({cpu(1), device("gpu", {}, 2), device("other")}, of); }, ""});
    list.push_back({"groups_" + called,
                    [of, reversing] {
                      return make({cpu(2, reversing), device("gpu", reversing)}, of);
                    },
                    "", 96, true});
  }
  list.push_back({"inline",
                  [] {
                    hybrid::Options given = options({cpu(), device("gpu")}, Policy::automatic);
                    given.inline_bytes = 64 << 10;
                    return hybrid::make_backend(given, {});
                  },
                  ""});
  for (BackendMaker &each : list) each.takes_any_count = true;
#if defined(__SANITIZE_THREAD__)  // minutes each: those with most threads
  std::erase_if(list, [](const BackendMaker &each) { return each.name != "both_auto" && each.name != "many_budget"; });
#else
  Slice slice(kThinning);
  std::vector<BackendMaker> some;
  for (std::uint64_t i = slice.first(); i < list.size(); i += slice.step()) some.push_back(list[i]);
  list = std::move(some);
#endif
  return list;
}

INSTANTIATE_TEST_SUITE_P(Hybrid, BackendConformance, testing::ValuesIn(makers()), maker_name);
INSTANTIATE_TEST_SUITE_P(Hybrid, FormConformance, testing::ValuesIn(makers()), maker_name);

// Blocks threads while it is shut, but for 20 seconds at most: no test waits so long.
class Gate {
 public:
  static constexpr std::chrono::seconds kForEver{20};

  void shut() {
    const std::lock_guard lock(mutex_);
    is_shut_ = true;
  }
  void open() {
    const std::lock_guard lock(mutex_);
    is_shut_ = false;
    opened_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    if (is_shut_) ++waiting_;
    came_.notify_all();
    opened_.wait_for(lock, kForEver, [this] { return !is_shut_; });
    ++passed_;
  }
  bool somebody_waits(std::chrono::seconds longest = std::chrono::seconds(30)) {
    std::unique_lock lock(mutex_);
    return came_.wait_for(lock, longest, [this] { return waiting_ > 0; });
  }
  unsigned waited() {
    const std::lock_guard lock(mutex_);
    return waiting_;
  }
  unsigned passed() {
    const std::lock_guard lock(mutex_);
    return passed_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_, came_;
  bool is_shut_ = false;
  unsigned waiting_ = 0, passed_ = 0;
};

// A stripe in memory that can be given back before the device is through.
struct Stripe : Work {
  explicit Stripe(std::size_t shard_bytes = kShardBytes) : Work(3, 5, shard_bytes) { reset(); }
};

// Sleeps `factor` times as long as a script says.
std::function<void(double)> sleep_times(std::shared_ptr<const std::atomic<double>> factor) {
  return [factor](double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds * *factor)); };
}

TEST(HybridFault, AnOutputHalfDoneByAFailedDeviceIsDoneOnceByTheOthers) {
  for (const Policy policy : {Policy::budget, Policy::automatic}) {
    for (const Mode mode : {Mode::assign, Mode::accumulate}) {
      FakeScript script;
      script.failing_task = 1;
      script.fails_for_ever = true;
      script.fails_after_half = true;
      Heard heard;
      const Member broken = device("broken", script);
      const auto backend = make({device("whole"), broken}, policy, heard.log());
      Stripe stripe;
      const auto prepared = backend->prepare(stripe.matrix);
      for (int round = 0; round < 500 && !heard.has("it gets no more"); ++round)
        EXPECT_TRUE(stripe.runs_right(*backend, *prepared, mode));
      unsigned failures = 0;
      for (std::size_t at = 0; (at = heard.text.find("broken failed", at)) != std::string::npos; ++at) ++failures;
      EXPECT_EQ(failures, 3u) << heard.text;
      EXPECT_TRUE(heard.has("it gets no more")) << heard.text;
    }
  }
}

TEST(HybridFault, AHungDeviceIsNotWaitedForAndMayWriteAfterTheCallersMemoryIsGone) {
  for (const Policy policy : {Policy::budget, Policy::automatic}) {
    for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare}) {
      auto gate = std::make_shared<Gate>();
      FakeScript script;
      script.before_chunk = [gate](std::uint64_t, std::uint64_t) { gate->pass(); };
      Heard heard;
      hybrid::Options given = options({device("whole"), device("hung", script)}, policy);
      given.least_deadline_seconds = 0.5;
      auto backend = hybrid::make_backend(given, heard.log());
      {
        auto stripe = std::make_unique<Stripe>();
        auto prepared = backend->prepare(stripe->matrix);
        stripe->run(*backend, *prepared, mode);  // both are known
        gate->shut();
        for (int round = 0; round < 200 && gate->waited() == 0; ++round)
          EXPECT_TRUE(stripe->runs_right(*backend, *prepared, mode));
        ASSERT_GT(gate->waited(), 0u) << "the hung device never got any work";
      }
      // The stripe and the plan are gone; now the device writes.
      gate->open();
      auto stripe = std::make_unique<Stripe>();
      const auto prepared = backend->prepare(stripe->matrix);
      EXPECT_TRUE(stripe->runs_right(*backend, *prepared, Mode::assign));
      backend.reset();
    }
  }
}

TEST(HybridFault, ADeviceThatHangsForEverDoesNotHoldUpTheEnd) {
  auto gate = std::make_shared<Gate>();
  FakeScript script;
  script.before_chunk = [gate](std::uint64_t, std::uint64_t) { gate->pass(); };
  Heard heard;
  const base::Log log = heard.log();
  hybrid::Options given = options({device("whole"), device("hung", script)}, Policy::budget);
  given.least_deadline_seconds = 0.5;
  auto backend = hybrid::make_backend(given, log);
  Stripe stripe;
  gate->shut();
  for (int round = 0; round < 20 && gate->waited() == 0; ++round)
    stripe.run(*backend, *backend->prepare(stripe.matrix), Mode::assign);
  ASSERT_GT(gate->waited(), 0u);
  backend.reset();
  EXPECT_TRUE(heard.has("are not freed")) << heard.text;
  log.mute();  // as the end of a context does
  gate->open();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // its thread ends: no leak is left
}

// Late is not hanging: a device is given up after twenty times the time that its piece was expected to take.
TEST(HybridFault, ALateDeviceIsNotGivenUp) {
  Heard heard;
  FakeScript late;
  const auto factor = std::make_shared<std::atomic<double>>(1);
  late.bytes_per_second = 6e6;
  late.pass_time = sleep_times(factor);
  hybrid::Options given = options({device("a", late), device("b", late)}, Policy::automatic);
  for (Member &each : given.members) each.staging_bytes = 8 << 20;  // for a large piece
  given.least_deadline_seconds = 0.25;
  const auto backend = hybrid::make_backend(given, heard.log());
  Stripe stripe(300'000);
  const auto prepared = backend->prepare(stripe.matrix);
  EXPECT_TRUE(stripe.runs_right(*backend, *prepared, Mode::assign));
  *factor = 8;  // 0.2 seconds were learned for these pieces, and not 1.6
  EXPECT_TRUE(stripe.runs_right(*backend, *prepared, Mode::assign));
  EXPECT_FALSE(heard.has("has not answered")) << heard.text;
}

TEST(HybridFault, TheEndWaitsForADeviceThatIsLate) {
  const auto gate = std::make_shared<Gate>();
  FakeScript script;
  script.before_chunk = [gate](std::uint64_t, std::uint64_t) { gate->pass(); };
  Heard heard;
  hybrid::Options given = options({device("whole"), device("late", script)}, Policy::budget);
  given.least_deadline_seconds = 0.5;
  auto backend = hybrid::make_backend(given, heard.log());
  Stripe stripe;
  gate->shut();
  for (int round = 0; round < 200 && gate->waited() == 0; ++round)
    stripe.run(*backend, *backend->prepare(stripe.matrix), Mode::assign);
  ASSERT_GT(gate->waited(), 0u);
  std::thread answer([gate] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    gate->open();
  });
  backend.reset();
  answer.join();
  EXPECT_FALSE(heard.has("are not freed")) << heard.text;
}

TEST(HybridFault, WithoutAnyDeviceLeftTheCallSaysSo) {
  for (const Policy policy : {Policy::budget, Policy::automatic}) {
    FakeScript script;
    script.failing_task = 0;
    script.fails_for_ever = true;
    const auto backend = make({device("a", script), device("b", script, 2)}, policy);
    Stripe stripe;
    const auto prepared = backend->prepare(stripe.matrix);
    for (int round = 0; round < 5; ++round)
      EXPECT_EQ(status_of([&] { stripe.run(*backend, *prepared, Mode::accumulate); }).first, TANDEM_ERROR_DEVICE);
    EXPECT_TRUE(stripe.is_untouched());
  }
}

TEST(HybridFault, AnErrorOfTheCpuEndsTheRun) {
  FakeScript script;
  script.failing_task = 2;
  script.failure = TANDEM_ERROR_OUT_OF_MEMORY;
  FakeScript slow;
  slow.latency_seconds = 20e-3;  // it cannot do all before the CPU fails
  const auto backend = make({cpu(2, script), device("gpu", slow)}, Policy::budget);
  Stripe stripe(200'000);
  const auto prepared = backend->prepare(stripe.matrix);
  EXPECT_EQ(status_of([&] { stripe.run(*backend, *prepared, Mode::assign); }).first, TANDEM_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(stripe.runs_right(*backend, *prepared, Mode::assign)) << "the next one is none of its business";
}

TEST(HybridCancel, AtEveryStep) {
  for (const Policy policy : {Policy::budget, Policy::automatic}) {
    for (std::uint64_t at = 0; at < 12; ++at) {
      auto count = std::make_shared<std::atomic<std::uint64_t>>(0);
      auto control = std::make_shared<core::Control>();
      FakeScript script;
      script.chunk_bytes = 1000;
      script.before_chunk = [=](std::uint64_t, std::uint64_t) {
        if (count->fetch_add(1) == at) control->cancel();
      };
      auto stripe = std::make_unique<Stripe>();
      const auto backend = make({cpu(2, script), device("gpu", script)}, policy);
      const auto prepared = backend->prepare(stripe->matrix);
      const core::Task task = {prepared.get(), stripe->in.data(), stripe->out.data(), 0,
                               stripe->bytes,  Mode::accumulate};
      try {
        backend->run({&task, 1}, *control);
        EXPECT_TRUE(stripe->is_right(Mode::accumulate));  // it came too late
      } catch (const base::Error &error) {
        EXPECT_EQ(error.status(), TANDEM_ERROR_CANCELLED) << error.what();
      }
      EXPECT_GT(count->load(), at);
      stripe.reset();  // no thread uses it any more
      Stripe next;
      EXPECT_TRUE(next.runs_right(*backend, *prepared, Mode::assign));
    }
  }
}

// The devices look at the control of the run, which the waiting caller cancels soon after its own.
TEST(HybridCancel, IsSeenInTheMiddleOfAPiece) {
  constexpr std::uint64_t kChunks = 2000;
  std::atomic<std::uint64_t> chunks{0};
  core::Control control;
  FakeScript script;
  script.chunk_bytes = 100;
  script.before_chunk = [&](std::uint64_t, std::uint64_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (++chunks == 10) control.cancel();
  };
  Member whole = device("whole", script), other = device("other", script);
  whole.staging_bytes = other.staging_bytes = 8 << 20;
  hybrid::Options given = options({whole, other}, Policy::budget);
  given.chunk_bytes = 8 << 20;
  auto backend = hybrid::make_backend(given, {});
  Stripe stripe(kChunks * script.chunk_bytes);
  const auto prepared = backend->prepare(stripe.matrix);
  const core::Task task = {prepared.get(), stripe.in.data(), stripe.out.data(), 0, stripe.bytes, Mode::assign};
  EXPECT_EQ(status_of([&] { backend->run({&task, 1}, control); }).first, TANDEM_ERROR_CANCELLED);
  backend.reset();  // waits for the devices, for a while
  EXPECT_LT(chunks.load(), kChunks / 4);
}

TEST(HybridResources, WhatWillNeverBeThereIsAnErrorAtOnce) {
  core::Budget budget;
  budget.set("pinned_mib", 1);
  Member gpu = device("gpu");
  gpu.staging_bytes = 8 << 20;
  hybrid::Options given = options({cpu(), gpu}, Policy::budget);
  given.resources = &budget;
  const auto backend = hybrid::make_backend(given, {});
  Stripe stripe;
  const auto prepared = backend->prepare(stripe.matrix);
  const std::string message =
      refusal(TANDEM_ERROR_INVALID_ARGUMENT, [&] { stripe.run(*backend, *prepared, Mode::assign); });
  EXPECT_NE(message.find("pinned_mib"), std::string::npos) << message;
  hybrid::Options alone = options({gpu}, Policy::automatic);
  alone.resources = &budget;
  const auto only = hybrid::make_backend(alone, {});
  EXPECT_EQ(status_of([&] { stripe.run(*only, *only->prepare(stripe.matrix), Mode::assign); }).first,
            TANDEM_ERROR_INVALID_ARGUMENT);
  budget.set("pinned_mib", 8);
  EXPECT_TRUE(stripe.runs_right(*backend, *prepared, Mode::assign));
  // Of a device that was named; one that was found is left out.
  budget.set("pinned_mib", 1);
  for (const bool is_optional : {false, true}) {
    gpu.is_optional = is_optional;
    hybrid::Options automatic = options({cpu(), gpu}, Policy::automatic);
    automatic.resources = &budget;
    const auto other = hybrid::make_backend(automatic, {});
    Stripe large(300'000);  // of which it is worth finding out what the device does
    const auto status = status_of([&] { large.run(*other, *other->prepare(large.matrix), Mode::assign); }).first;
    EXPECT_EQ(status, is_optional ? TANDEM_OK : TANDEM_ERROR_INVALID_ARGUMENT);
  }
}

TEST(HybridThreads, RunsAtTheSameTime) {
  for (const Policy policy : {Policy::budget, Policy::automatic}) {
    core::Budget budget;
    budget.set("cpu", 2);
    hybrid::Options given = options({cpu(3), device("gpu", {}, 2)}, policy);
    given.resources = &budget;
    const auto backend = hybrid::make_backend(given, {});
    std::vector<std::thread> callers;
    for (int i = 0; i < 4; ++i) {
      callers.emplace_back([&] {
        Stripe stripe;
        const auto prepared = backend->prepare(stripe.matrix);
        for (int round = 0; round < 8; ++round) EXPECT_TRUE(stripe.runs_right(*backend, *prepared, Mode::accumulate));
      });
    }
    for (std::thread &each : callers) each.join();
  }
}

TEST(HybridFork, AChildHasThreadsOfItsOwn) {
  TANDEM_SKIP_FORK_BESIDE_THREADS();
  if (kThreadSanitizer) GTEST_SKIP() << "NOT RUN: the thread sanitizer knows no threads in a forked child";
  const auto backend = make({cpu(2)}, Policy::automatic);
  Stripe stripe;
  const auto prepared = backend->prepare(stripe.matrix);
  stripe.run(*backend, *prepared, Mode::assign);
  const pid_t child = fork();
  if (child == 0) {
    stripe.reset();
    stripe.run(*backend, *prepared, Mode::assign);
    _exit(stripe.is_right(Mode::assign) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

std::uint64_t tasks_of(const Member &member) {
  return static_cast<FakeBackend &>(*member.backend).counts().tasks_started;
}

FakeScript slow_lane() {
  FakeScript slow;
  slow.chunk_bytes = 2048;
  slow.latency_seconds = 1e-3;
  return slow;
}

// Others hold and want all that "cpu" allows, all of the time: the lanes have their turn.
TEST(HybridResources, ASharedRunIsNotStarvedByWhoRunsAlone) {
  core::Budget budget;
  budget.set("cpu", 1);
  hybrid::Options given = options({cpu(2), device("gpu")}, Policy::automatic);
  given.resources = &budget;
  const auto backend = hybrid::make_backend(given, {});
  std::atomic<bool> stop{false};
  std::atomic<unsigned> items{0};
  std::vector<std::thread> others;
  for (int i = 0; i < 2; ++i) {
    others.emplace_back([&] {
      constexpr core::Need kUnit[] = {{core::Budget::kCpu, 1}};
      core::Hold hold(&budget, kUnit);
      while (!stop) {
        hold.next_task();
        ++items;
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    });
  }
  while (items < 10) std::this_thread::yield();
  Stripe stripe;
  const auto prepared = backend->prepare(stripe.matrix);
  for (int round = 0; round < 3; ++round) EXPECT_TRUE(stripe.runs_right(*backend, *prepared, Mode::assign));
  stop = true;
  for (std::thread &each : others) each.join();
}

// What is found while runs are under way takes part from then on; nothing found, a search that fails or never was
// asked for, and an end in the middle of it are no harm.
TEST(HybridDiscovery, WhatIsFoundTakesPart) {
  for (const int found : {0, 1, 2}) {
    hybrid::Options given = options({cpu(2, slow_lane())}, Policy::automatic);
    given.name = "cpu";
    given.discover_bytes = 5'000'000;
    const Member gpu = device("gpu");
    std::atomic<int> asked{0};
    given.discover = [&]() -> std::vector<Member> {
      ++asked;
      if (found == 2) throw std::runtime_error("the driver is broken");
      if (found == 0) return {};
      return {gpu};
    };
    Heard heard;
    {
      const auto backend = hybrid::make_backend(given, heard.log());
      Stripe stripe(100'000);
      const auto prepared = backend->prepare(stripe.matrix);
      stripe.run(*backend, *prepared, Mode::assign);
      EXPECT_EQ(asked.load(), 0) << "too few bytes were moved";
      EXPECT_EQ(backend->traits().name, "cpu");
      for (int round = 0; round < 500 && (round < 20 || (found == 1 && tasks_of(gpu) == 0)); ++round)
        EXPECT_TRUE(stripe.runs_right(*backend, *prepared, Mode::assign));
      EXPECT_EQ(backend->traits().name, found == 1 ? "hybrid" : "cpu");
    }
    EXPECT_EQ(asked.load(), 1);
    EXPECT_EQ(tasks_of(gpu) > 0, found == 1);
    EXPECT_TRUE(heard.has(found == 0   ? "no device was found"
                          : found == 1 ? "beside the CPU from now on: gpu"
                                       : "the driver is broken"))
        << heard.text;
  }
}

TEST(HybridDiscovery, TheEndWaitsForASearch) {
  std::atomic<bool> is_over{false};
  hybrid::Options given = options({cpu()}, Policy::automatic);
  given.discover = [&]() -> std::vector<Member> {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    is_over = true;
    return {device("gpu")};
  };
  auto backend = hybrid::make_backend(given, {});
  Stripe stripe;
  stripe.run(*backend, *backend->prepare(stripe.matrix), Mode::assign);
  backend.reset();
  EXPECT_TRUE(is_over.load());
}

// A device that fails gives its unit back before another one does its work.
TEST(HybridFault, AFailedDeviceHoldsNothingWhileAnotherDoesItsRun) {
  core::Budget budget;
  budget.set("gpu", 1);
  FakeScript script;
  script.failing_task = 0;
  script.fails_for_ever = true;
  hybrid::Options given = options({device("broken", script), device("gpu")}, Policy::automatic);
  given.resources = &budget;
  Heard heard;
  const auto backend = hybrid::make_backend(given, heard.log());
  Stripe stripe(300'000);
  const auto prepared = backend->prepare(stripe.matrix);
  for (int round = 0; round < 500 && !heard.has("broken failed"); ++round)
    EXPECT_TRUE(stripe.runs_right(*backend, *prepared, Mode::assign));
  EXPECT_TRUE(heard.has("broken failed")) << heard.text;
  constexpr core::Need kUnit[] = {{core::Budget::kGpu, 1}};
  budget.acquire(kUnit);  // comes back only if the unit was given back
  budget.release(kUnit);
}

// A device fails in the middle of a ^= or compare: the CPU does the rest, and no byte twice.
TEST(HybridFault, TheCpuDoesTheRestOfAFailedDevice) {
  for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare}) {
    FakeScript script;
    script.failing_task = 0;
    script.fails_for_ever = true;
    script.fails_after_half = true;
    const Member main = cpu(2, slow_lane()), gpu = device("gpu", script, 2);
    Heard heard;
    const auto backend = make({main, gpu}, Policy::automatic, heard.log());
    Stripe stripe(300'000);
    const auto prepared = backend->prepare(stripe.matrix);
    for (int round = 0; round < 50 && !heard.has("gpu failed"); ++round)
      EXPECT_TRUE(stripe.runs_right(*backend, *prepared, mode));
    EXPECT_TRUE(heard.has("gpu failed")) << heard.text;
    EXPECT_GT(tasks_of(main), 0u);
  }
}

// The CPU works on while a device that took all of the run hangs, long before the deadline.
TEST(HybridFault, NobodyWaitsForTheDeadlineOfALateDevice) {
  const auto gate = std::make_shared<Gate>();
  gate->shut();
  FakeScript hanging;
  hanging.before_chunk = [gate](std::uint64_t, std::uint64_t) { gate->pass(); };
  const auto backend = make({cpu(2, slow_lane()), device("gpu", hanging, 2)}, Policy::automatic);
  Stripe stripe(300'000);
  const auto prepared = backend->prepare(stripe.matrix);
  for (int round = 0; round < 50 && gate->waited() == 0; ++round)
    EXPECT_TRUE(stripe.runs_right(*backend, *prepared, Mode::accumulate));
  EXPECT_GT(gate->waited(), 0u);
  EXPECT_EQ(gate->passed(), 0u) << "the call waited for the device";
  gate->open();
}

// Asks its guard after the call is over.
class AskingLate : public FakeBackend {
 public:
  explicit AskingLate(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {}
  void run(std::span<const core::Task>, core::Control &control) override {
    gate_->pass();
    may_enter = control.guard()->enter();
    owned_bytes = control.guard()->commit(8 * 256, false).bytes;
    base::fail(TANDEM_ERROR_CANCELLED, "the call is over");
  }
  std::atomic<bool> may_enter{true};
  std::atomic<std::uint64_t> owned_bytes{1};

 private:
  const std::shared_ptr<Gate> gate_;
};

TEST(HybridFault, AfterTheCallADeviceMayNotUseItsMemory) {
  const auto gate = std::make_shared<Gate>();
  gate->shut();
  const auto asking = std::make_shared<AskingLate>(gate);
  Member gpu = device("gpu");
  gpu.backend = asking;
  auto backend = make({cpu(2, slow_lane()), gpu}, Policy::automatic);
  Stripe stripe(300'000);
  const auto prepared = backend->prepare(stripe.matrix);
  for (int round = 0; round < 50 && gate->waited() == 0; ++round) stripe.run(*backend, *prepared, Mode::assign);
  ASSERT_GT(gate->waited(), 0u);
  gate->open();
  backend.reset();
  EXPECT_FALSE(asking->may_enter);
  EXPECT_EQ(asking->owned_bytes, 0u);
}

// The thread of the lane ends with an exception. The other device sleeps, because all was taken.
TEST(HybridFault, AFailureThatCannotBeLoggedWakesTheOthers) {
  FakeScript script, quick;
  script.failing_task = 0;
  script.latency_seconds = 100e-3;
  quick.latency_seconds = 10e-3;
  const base::Log log([](void *, std::int32_t, const char *) { throw std::bad_alloc(); }, nullptr, TANDEM_LOG_DEBUG);
  hybrid::Options given = options({device("whole", quick), device("broken", script)}, Policy::budget);
  given.chunk_bytes = 80'000;
  const auto backend = hybrid::make_backend(given, log);
  const auto gate = std::make_shared<Gate>();
  gate->shut();
  core::Control control;
  std::thread patience([&] {
    gate->pass();
    control.cancel();
  });
  Stripe stripe;
  const auto prepared = backend->prepare(stripe.matrix);
  const core::Task task = {prepared.get(), stripe.in.data(), stripe.out.data(), 0, stripe.bytes, Mode::assign};
  EXPECT_EQ(status_of([&] { backend->run({&task, 1}, control); }).first, TANDEM_OK) << "it waits for ever";
  EXPECT_GT(tasks_of(given.members[1]), 0u);
  gate->open();
  patience.join();
}

// A device holds the plan of the call in which it hangs, and of no other one. On a busy machine its first hang may take
// so long that it counts as too slow for another task: then a new one tries.
TEST(HybridFault, AHangKeepsOneCallsMemory) {
  for (int attempt = 0;; ++attempt) {
    ASSERT_LT(attempt, 20) << "no device got a second task";
    const auto first = std::make_shared<Gate>(), later = std::make_shared<Gate>(), calls = std::make_shared<Gate>();
    FakeScript hanging, waiting;
    hanging.before_chunk = [=](std::uint64_t number, std::uint64_t) { (number == 0 ? first : later)->pass(); };
    waiting.before_chunk = [=](std::uint64_t, std::uint64_t) { calls->pass(); };
    auto backend = make({cpu(2, waiting), device("gpu", hanging)}, Policy::automatic);
    const auto run_one = [&backend](std::weak_ptr<const core::Prepared> *plan) {
      Stripe stripe;
      const auto prepared = backend->prepare(stripe.matrix);
      *plan = prepared;
      EXPECT_TRUE(stripe.runs_right(*backend, *prepared, Mode::assign));
    };
    std::weak_ptr<const core::Prepared> plans[3];
    first->shut();
    later->shut();
    for (int round = 0; round < 50 && first->waited() == 0; ++round) run_one(&plans[0]);
    ASSERT_GT(first->waited(), 0u);
    calls->shut();
    std::thread callers[] = {std::thread(run_one, &plans[1]), std::thread(run_one, &plans[2])};
    while (calls->waited() < 2) std::this_thread::yield();
    first->open();
    const bool hangs_again = later->somebody_waits(std::chrono::seconds(1));
    calls->open();
    for (std::thread &each : callers) each.join();
    if (hangs_again) {
      EXPECT_EQ(later->passed(), 0u);
      EXPECT_TRUE(plans[0].expired());
      EXPECT_NE(plans[1].expired(), plans[2].expired());
    }
    later->open();
    backend.reset();
    if (hangs_again) return;
  }
}

// Each task of a run has its own operator and mode.
TEST(HybridRun, TasksOfOneRunMayDiffer) {
  for (const bool has_cpu : {false, true}) {
    const Member gpu = device("gpu");
    const auto backend = make({has_cpu ? cpu(2, slow_lane()) : device("other"), gpu}, Policy::budget);
    std::vector<std::unique_ptr<Work>> stripes;
    std::vector<std::shared_ptr<const core::Prepared>> operators;
    const std::pair<unsigned, Mode> kinds[] = {{1, Mode::compare}, {7, Mode::compare}, {2, Mode::accumulate}};
    for (int round = 0; round < 20 && (round == 0 || tasks_of(gpu) < 4); ++round) {
      std::vector<core::Task> tasks;
      stripes.clear();
      for (const auto &[rows, mode] : kinds) {
        Work &work = *stripes.emplace_back(std::make_unique<Work>(rows, 5, kShardBytes));
        work.reset();
        operators.push_back(backend->prepare(work.matrix));
        tasks.push_back({operators.back().get(), work.in.data(), work.out.data(), 0, work.bytes, mode,
                         mode == Mode::compare ? work.mismatches.data() : nullptr});
      }
      core::Control control;
      backend->run(tasks, control);
      for (std::size_t i = 0; i < stripes.size(); ++i) EXPECT_TRUE(stripes[i]->is_right(kinds[i].second)) << i;
    }
  }
}

// Writes nothing of what it commits, because memory runs out in between.
class FailingToWrite : public FakeBackend {
 public:
  void run(std::span<const core::Task> tasks, core::Control &control) override {
    const core::Task &task = tasks.front();
    const core::Guard::Own own =
        control.guard()->commit((task.prepared->rows() + task.prepared->columns()) * task.length_bytes, false);
    if (own.bytes == 0) return;
    has_committed = true;
    struct Left {
      core::Guard &guard;
      ~Left() { guard.leave(); }
    } left{*control.guard()};
    throw std::bad_alloc();
  }
  std::atomic<bool> has_committed{false};
};

TEST(HybridFault, WhatWasCommittedAndNotWrittenIsAnError) {
  const auto failing = std::make_shared<FailingToWrite>();
  Member gpu = device("gpu");
  gpu.backend = failing;
  const auto backend = make({cpu(2, slow_lane()), gpu}, Policy::automatic);
  Stripe stripe(300'000);
  const auto prepared = backend->prepare(stripe.matrix);
  for (int round = 0; round < 50 && !failing->has_committed; ++round) {
    bool is_done = false;
    try {
      stripe.run(*backend, *prepared, Mode::assign);
      is_done = true;
    } catch (const std::bad_alloc &) {
    }
    EXPECT_EQ(is_done, !failing->has_committed);
  }
  EXPECT_TRUE(failing->has_committed);
}

// A device that is late still holds the memory when the CPU has done its work: the call waits for it. One that hangs is
// not waited for.
TEST(HybridFault, RegisteredMemoryIsFreeAfterTheCallUnlessADeviceHangs) {
  for (const bool hangs : {false, true}) {
    const auto gate = std::make_shared<Gate>();
    FakeScript script;
    std::atomic<bool> came{false};
    script.before_chunk = [&came, gate, hangs](std::uint64_t, std::uint64_t) {
      came = true;
      if (hangs) return gate->pass();
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    };
    if (hangs) gate->shut();
    hybrid::Options given = options({cpu(2, slow_lane()), device("gpu", script)}, Policy::automatic);
    given.least_deadline_seconds = hangs ? 0.3 : 30;
    auto backend = hybrid::make_backend(given, {});
    Stripe stripe(300'000);
    const auto prepared = backend->prepare(stripe.matrix);
    const void *const memory = stripe.inputs[0].data();
    core::register_memory(memory, stripe.bytes);
    for (int round = 0; round < 50 && !came; ++round) stripe.run(*backend, *prepared, Mode::assign);
    EXPECT_TRUE(came);
    EXPECT_EQ(gate->passed(), 0u) << "the call waited for ever";
    EXPECT_EQ(status_of([&] { core::unregister_memory(memory); }).first,
              hangs ? TANDEM_ERROR_INVALID_ARGUMENT : TANDEM_OK);
    gate->open();
    backend.reset();
    EXPECT_EQ(core::unregister_if_registered(memory), hangs);
  }
}

// The items of the CPU wait for what the device holds, so no thread of a call comes back to look at the deadline.
TEST(HybridResources, ADeviceThatHangsGivesBackWhatTheCpuWaitsFor) {
  const auto gate = std::make_shared<Gate>();
  gate->shut();
  core::Budget budget;
  budget.set("my.disks", 1);
  const core::Need needs[] = {{budget.index("my.disks"), 1}};
  FakeScript hanging, waiting;
  hanging.before_chunk = [gate](std::uint64_t, std::uint64_t) { gate->pass(); };
  waiting.before_chunk = [&](std::uint64_t, std::uint64_t) {
    gate->somebody_waits();
    core::Hold hold(&budget, needs);
    hold.next_task();
  };
  hybrid::Options given = options({cpu(2, waiting), device("gpu", hanging)}, Policy::automatic);
  given.resources = &budget;
  given.least_deadline_seconds = 0.25;
  auto backend = hybrid::make_backend(given, {});
  Stripe stripe;
  const auto prepared = backend->prepare(stripe.matrix);
  const core::Task task = {prepared.get(), stripe.in.data(), stripe.out.data(), 0, stripe.bytes, Mode::assign};
  core::Control control(needs);
  backend->run({&task, 1}, control);
  EXPECT_TRUE(stripe.is_right(Mode::assign));
  EXPECT_EQ(gate->passed(), 0u) << "the call waited for the device";
  gate->open();
  backend.reset();
}

TEST(HybridResources, NoMorePiecesAtOnceThanTheAmountOfGpu) {
  for (const std::uint64_t amount : {1, 2}) {
    core::Budget budget;
    budget.set("gpu", amount);
    FakeScript script;
    script.latency_seconds = 1e-3;
    const Member gpu = device("gpu", script, 3);
    hybrid::Options given = options({cpu(2, slow_lane()), gpu}, Policy::budget);
    given.resources = &budget;
    const auto backend = hybrid::make_backend(given, {});
    Stripe stripe(200'000);
    const auto prepared = backend->prepare(stripe.matrix);
    for (int round = 0; round < 20; ++round) EXPECT_TRUE(stripe.runs_right(*backend, *prepared, Mode::assign));
    EXPECT_EQ(static_cast<FakeBackend &>(*gpu.backend).counts().most_at_once, amount);
    budget.set("gpu", 3);  // from the next piece on
    for (int round = 0; round < 50 && static_cast<FakeBackend &>(*gpu.backend).counts().most_at_once < 3; ++round)
      stripe.run(*backend, *prepared, Mode::assign);
    EXPECT_EQ(static_cast<FakeBackend &>(*gpu.backend).counts().most_at_once, 3u);
  }
}

// A CPU, and a device that is too slow to help. Their speeds are known after one run: the CPU waits there until the
// device has done three chunks.
struct LearnedDevice {
  LearnedDevice(double latency_seconds, std::size_t shard_bytes) : stripe(shard_bytes) {
    FakeScript slow, waiting;
    slow.latency_seconds = latency_seconds;
    slow.bytes_per_second = 2e4;
    slow.chunk_bytes = 4;  // of each shard: 1.6 ms
    slow.pass_time = sleep_times(factor);
    gpu = device("gpu", slow);
    waiting.chunk_bytes = 4000;
    waiting.before_chunk = [backend = gpu.backend](std::uint64_t, std::uint64_t) {
      const double start = base::Timeline::now();
      do {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      } while (static_cast<FakeBackend &>(*backend).counts().chunks < 3 && base::Timeline::now() < start + 20);
    };
    backend = make({cpu(1, waiting), gpu}, Policy::automatic);
    prepared = backend->prepare(stripe.matrix);
    EXPECT_TRUE(Stripe(300'000).runs_right(*backend, *prepared, Mode::assign));
  }
  void run() { EXPECT_TRUE(stripe.runs_right(*backend, *prepared, Mode::assign)); }

  const std::shared_ptr<std::atomic<double>> factor = std::make_shared<std::atomic<double>>(1);
  Member gpu;
  std::unique_ptr<core::Backend> backend;
  std::shared_ptr<const core::Prepared> prepared;
  Stripe stripe;
};

// What was learned of a device may be wrong, or it has changed: a probe finds it.
TEST(HybridMemory, AnIdleDeviceThatBecameFastIsFound) {
  LearnedDevice device(2e-3, 300'000);
  *device.factor = 0;
  unsigned in_a_row = 0;
  for (const double start = base::Timeline::now(); in_a_row < 5 && base::Timeline::now() < start + 30;) {
    const std::uint64_t before = tasks_of(device.gpu);
    device.run();
    in_a_row = tasks_of(device.gpu) > before ? in_a_row + 1 : 0;
  }
  EXPECT_EQ(in_a_row, 5u) << "it still does nothing";
}

// Its probes are never done before the others have done their bytes. Still there is one in a hundred times its time.
TEST(HybridMemory, ADeviceThatDoesNotAnswerInTimeIsProbedRarely) {
  LearnedDevice device(5e-3, 100'000);
  *device.factor = 4;
  const std::uint64_t before = tasks_of(device.gpu);
  const double start = base::Timeline::now();
  while (tasks_of(device.gpu) == before && base::Timeline::now() < start + 30) device.run();
  EXPECT_GT(tasks_of(device.gpu), before) << "no probe";
  for (const double first = base::Timeline::now(); base::Timeline::now() < first + 0.4;) device.run();
  EXPECT_LE(tasks_of(device.gpu), before + 5);  // one, and what a busy machine adds; not one in each run
}

// Also for shards in memory of a device, which runs them alone.
TEST(HybridTimeline, IsWrittenAtTheEnd) {
  const std::string path = testing::TempDir() + "/tandem_timeline_" + std::to_string(getpid()) + ".json";
  FakeScript other;
  other.memories = {core::MemoryKind::cuda};
  hybrid::Options given = options({cpu(2, slow_lane()), device("gpu"), device("other", other)}, Policy::budget);
  const auto timeline = std::make_shared<base::Timeline>(path, base::Log());
  given.timeline = timeline;
  {
    const auto backend = hybrid::make_backend(given, {});
    Stripe stripe;
    const auto prepared = backend->prepare(stripe.matrix);
    stripe.run(*backend, *prepared, Mode::assign);
    core::Task task = {prepared.get(), stripe.in.data(), stripe.out.data(), 0, stripe.bytes, Mode::accumulate};
    task.memory = core::MemoryKind::cuda;
    core::Control control;
    backend->run({&task, 1}, control);
  }
  timeline->write();
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_NE(text.find("\"traceEvents\""), std::string::npos) << text;
  EXPECT_NE(text.find("gpu, lane 0"), std::string::npos) << text;
  EXPECT_NE(text.find("assign 3x5"), std::string::npos) << text;
  EXPECT_NE(text.find("accumulate 3x5"), std::string::npos) << text;
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tandem::test
