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
#include "tests/support/thinned.hpp"

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
  member.is_in_place = true;
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
  for (const auto &[name, policy] :
       {std::pair("auto", Policy::automatic), {"budget", Policy::budget}, {"free", Policy::free}}) {
    const Policy of = policy;
    const std::string called = name;
    list.push_back({"cpu_" + called, [of] { return make({cpu()}, of); }, ""});
    list.push_back({"device_" + called, [of] { return make({device("gpu")}, of); }, ""});
    list.push_back({"both_" + called, [of] { return make({cpu(), device("gpu", {}, 2)}, of); }, ""});
    list.push_back({"many_" + called, [of] { return make({cpu(1), cpu(2), device("gpu"), device("other")}, of); }, ""});
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
  list.push_back({"alone",
                  [] {
                    hybrid::Options given = options({cpu()}, Policy::automatic);
                    given.alone = std::make_shared<FakeBackend>();
                    return hybrid::make_backend(given, {});
                  },
                  ""});
  list.push_back({"alone_or_both",
                  [] {
                    hybrid::Options given = options({cpu(), device("gpu")}, Policy::automatic);
                    given.alone = std::make_shared<FakeBackend>();
                    return hybrid::make_backend(given, {});
                  },
                  ""});
  for (BackendMaker &each : list) each.takes_any_count = true;
#if defined(__SANITIZE_THREAD__)  // minutes each: those with most threads
  std::erase_if(list, [](const BackendMaker &each) { return each.name != "both_auto" && each.name != "many_free"; });
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
  bool somebody_waits() {
    std::unique_lock lock(mutex_);
    return came_.wait_for(lock, std::chrono::seconds(30), [this] { return waiting_ > 0; });
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

core::SpeedEntry known(const std::string &worker, double bytes_per_second, double alone = 0) {
  core::SpeedEntry entry;
  entry.machine = "here";
  entry.worker = worker;
  entry.k = 5;  // as Stripe
  entry.m = 3;
  entry.bytes_per_second = bytes_per_second;
  entry.alone_bytes_per_second = alone;
  entry.lanes = worker == "cpu" ? 2 : 1;
  entry.latency_seconds = worker == "cpu" ? 0 : 1e-4;
  entry.date = "2025-11-21T16:55:20Z";
  return entry;
}

TEST(HybridFault, AnOutputHalfDoneByAFailedDeviceIsDoneOnceByTheOthers) {
  for (const Policy policy : {Policy::free, Policy::budget, Policy::automatic}) {
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
      for (int round = 0; round < 500 && !heard.has("it gets no more"); ++round) {
        stripe.reset();
        stripe.run(*backend, *prepared, mode);
        EXPECT_TRUE(stripe.is_right(mode));
      }
      unsigned failures = 0;
      for (std::size_t at = 0; (at = heard.text.find("broken failed", at)) != std::string::npos; ++at) ++failures;
      EXPECT_EQ(failures, 3u) << heard.text;
      EXPECT_TRUE(heard.has("it gets no more")) << heard.text;
    }
  }
}

TEST(HybridFault, AHungDeviceIsNotWaitedForAndMayWriteAfterTheCallersMemoryIsGone) {
  for (const Policy policy : {Policy::free, Policy::automatic}) {
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
        stripe->reset();
        gate->shut();
        for (int round = 0; round < 200 && gate->waited() == 0; ++round) {
          stripe->reset();
          stripe->run(*backend, *prepared, mode);
          EXPECT_TRUE(stripe->is_right(mode));
        }
        ASSERT_GT(gate->waited(), 0u) << "the hung device never got any work";
      }
      // The stripe and the plan are gone; now the device writes.
      gate->open();
      auto stripe = std::make_unique<Stripe>();
      const auto prepared = backend->prepare(stripe->matrix);
      stripe->run(*backend, *prepared, Mode::assign);
      EXPECT_TRUE(stripe->is_right(Mode::assign));
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
  hybrid::Options given = options({device("whole"), device("hung", script)}, Policy::free);
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
  late.bytes_per_second = 0.75e6;
  hybrid::Options given = options({device("a", late), device("b", late)}, Policy::automatic);
  for (Member &each : given.members) each.staging_bytes = 8 << 20;  // for a large piece
  given.least_deadline_seconds = 0.25;
  given.known = {known("a", 6e6), known("b", 6e6)};  // 0.1 seconds for the first pieces, and not 0.8
  given.machine = "here";
  const auto backend = hybrid::make_backend(given, heard.log());
  Stripe stripe(300'000);
  stripe.run(*backend, *backend->prepare(stripe.matrix), Mode::assign);
  EXPECT_TRUE(stripe.is_right(Mode::assign));
  EXPECT_FALSE(heard.has("has not answered")) << heard.text;
}

TEST(HybridFault, TheEndWaitsForADeviceThatIsLate) {
  const auto gate = std::make_shared<Gate>();
  FakeScript script;
  script.before_chunk = [gate](std::uint64_t, std::uint64_t) { gate->pass(); };
  Heard heard;
  hybrid::Options given = options({device("whole"), device("late", script)}, Policy::free);
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

// Memory that a driver does not release, as the driver of a hanging device may do.
class ClingingBackend : public FakeBackend {
 public:
  ClingingBackend(FakeScript script, std::shared_ptr<Gate> gate) : FakeBackend(std::move(script)), gate_(gate) {}
  std::shared_ptr<std::byte> staging_memory(std::uint64_t bytes) override {
    const auto memory = FakeBackend::staging_memory(bytes);
    return {memory.get(), [memory, gate = gate_](std::byte *) { gate->pass(); }};
  }

 private:
  std::shared_ptr<Gate> gate_;
};

TEST(HybridFault, ADriverThatDoesNotLetGoDoesNotHoldUpTheEnd) {
  const auto gate = std::make_shared<Gate>();
  Heard heard;
  const base::Log log = heard.log();
  FakeScript script;
  script.lanes = 2;
  Member clinging = device("clinging", {}, 2);
  clinging.backend = std::make_shared<ClingingBackend>(script, gate);
  auto backend = make({clinging}, Policy::free, log);
  Stripe stripe(300'000);
  stripe.run(*backend, *backend->prepare(stripe.matrix), Mode::assign);
  EXPECT_TRUE(stripe.is_right(Mode::assign));
  gate->shut();
  backend.reset();
  EXPECT_TRUE(gate->somebody_waits());
  EXPECT_TRUE(heard.has("are not freed")) << heard.text;
  log.mute();
  gate->open();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // its threads end: no leak is left
}

TEST(HybridFault, WithoutAnyDeviceLeftTheCallSaysSo) {
  for (const Policy policy : {Policy::free, Policy::budget, Policy::automatic}) {
    FakeScript script;
    script.failing_task = 0;
    script.fails_for_ever = true;
    const auto backend = make({device("a", script), device("b", script, 2)}, policy);
    Stripe stripe;
    const auto prepared = backend->prepare(stripe.matrix);
    for (int round = 0; round < 5; ++round) {
      try {
        stripe.run(*backend, *prepared, Mode::accumulate);
        FAIL() << "no error";
      } catch (const base::Error &error) {
        EXPECT_EQ(error.status(), TANDEM_ERROR_DEVICE) << error.what();
      }
    }
    EXPECT_TRUE(stripe.is_untouched());
  }
}

TEST(HybridFault, AnErrorOfTheCpuEndsTheRun) {
  FakeScript script;
  script.failing_task = 2;
  script.failure = TANDEM_ERROR_OUT_OF_MEMORY;
  FakeScript slow;
  slow.latency_seconds = 20e-3;  // it cannot do all before the CPU fails
  const auto backend = make({cpu(2, script), device("gpu", slow)}, Policy::free);
  Stripe stripe(200'000);
  const auto prepared = backend->prepare(stripe.matrix);
  try {
    stripe.run(*backend, *prepared, Mode::assign);
    FAIL() << "no error";
  } catch (const base::Error &error) {
    EXPECT_EQ(error.status(), TANDEM_ERROR_OUT_OF_MEMORY) << error.what();
  }
  stripe.run(*backend, *prepared, Mode::assign);  // the next one is none of its business
  EXPECT_TRUE(stripe.is_right(Mode::assign));
}

TEST(HybridCancel, AtEveryStep) {
  for (const Policy policy : {Policy::free, Policy::automatic}) {
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
      next.run(*backend, *prepared, Mode::assign);
      EXPECT_TRUE(next.is_right(Mode::assign));
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
  hybrid::Options given = options({whole, other}, Policy::free);
  given.chunk_bytes = 8 << 20;
  auto backend = hybrid::make_backend(given, {});
  Stripe stripe(kChunks * script.chunk_bytes);
  const auto prepared = backend->prepare(stripe.matrix);
  const core::Task task = {prepared.get(), stripe.in.data(), stripe.out.data(), 0, stripe.bytes, Mode::assign};
  EXPECT_EQ(status_of([&] { backend->run({&task, 1}, control); }).first, TANDEM_ERROR_CANCELLED);
  backend.reset();  // waits for the devices, for a while
  EXPECT_LT(chunks.load(), kChunks / 4);
}

TEST(HybridResources, TheBudgetIsNeverExceededAndMayChange) {
  core::Budget budget;
  budget.set("cpu", 1);
  FakeScript script;
  script.latency_seconds = 1e-3;
  const Member four = cpu(4, script);
  hybrid::Options given = options({four}, Policy::budget);
  given.resources = &budget;
  const auto backend = hybrid::make_backend(given, {});
  Stripe stripe(100'000);
  const auto prepared = backend->prepare(stripe.matrix);
  stripe.run(*backend, *prepared, Mode::assign);
  EXPECT_TRUE(stripe.is_right(Mode::assign));
  EXPECT_EQ(static_cast<FakeBackend &>(*four.backend).counts().most_at_once, 1u);
  budget.set("cpu", 3);
  stripe.reset();
  stripe.run(*backend, *prepared, Mode::accumulate);
  EXPECT_TRUE(stripe.is_right(Mode::accumulate));
  EXPECT_EQ(static_cast<FakeBackend &>(*four.backend).counts().most_at_once, 3u);
}

TEST(HybridResources, RaisedWhileARunIsUnderWay) {
  core::Budget budget;
  budget.set("cpu", 1);
  std::atomic<unsigned> begun{0};
  FakeScript script;
  script.latency_seconds = 2e-3;
  script.before_chunk = [&](std::uint64_t, std::uint64_t) {
    if (begun.fetch_add(1) == 3) budget.set("cpu", 4);
  };
  const Member four = cpu(4, script);
  hybrid::Options given = options({four}, Policy::budget);
  given.resources = &budget;
  const auto backend = hybrid::make_backend(given, {});
  Stripe stripe(200'000);
  stripe.run(*backend, *backend->prepare(stripe.matrix), Mode::assign);
  EXPECT_TRUE(stripe.is_right(Mode::assign));
  EXPECT_GT(static_cast<FakeBackend &>(*four.backend).counts().most_at_once, 1u);
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
  try {
    stripe.run(*backend, *prepared, Mode::assign);
    FAIL() << "no error";
  } catch (const base::Error &error) {
    EXPECT_EQ(error.status(), TANDEM_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error.what()).find("pinned_mib"), std::string::npos) << error.what();
  }
  budget.set("pinned_mib", 8);
  stripe.run(*backend, *prepared, Mode::assign);
  EXPECT_TRUE(stripe.is_right(Mode::assign));
  // Of a device that was named; one that was found is left out.
  budget.set("pinned_mib", 1);
  for (const bool is_optional : {false, true}) {
    gpu.is_optional = is_optional;
    hybrid::Options automatic = options({cpu(), gpu}, Policy::automatic);
    automatic.resources = &budget;
    automatic.alone = std::make_shared<FakeBackend>();
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
        for (int round = 0; round < 8; ++round) {
          stripe.reset();
          stripe.run(*backend, *prepared, Mode::accumulate);
          EXPECT_TRUE(stripe.is_right(Mode::accumulate));
        }
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

// A hybrid of a CPU and a device, with a backend for work that is too small to share.
struct WithAlone {
  explicit WithAlone(std::vector<core::SpeedEntry> remembered, const FakeScript &of_lanes = {})
      : lanes(cpu(2, of_lanes)), given(options({lanes, gpu}, Policy::automatic)) {
    given.alone = alone;
    given.known = std::move(remembered);
    given.machine = "here";
    given.remember = [this](std::vector<core::SpeedEntry> entries) { told = std::move(entries); };
  }
  std::uint64_t tasks_alone() const { return alone->counts().tasks_started; }

  Member lanes, gpu = device("gpu");
  std::shared_ptr<FakeBackend> alone = std::make_shared<FakeBackend>();
  hybrid::Options given;
  std::vector<core::SpeedEntry> told;
};

FakeScript slow_lane() {
  FakeScript slow;
  slow.chunk_bytes = 2048;
  slow.latency_seconds = 1e-3;
  return slow;
}

TEST(HybridAlone, DoesWhatADeviceWouldNotMakeFaster) {
  // As was remembered: with the device, half of what the CPU does alone.
  WithAlone machine({known("cpu", 1e8, 1e9), known("gpu", 8e8)});
  const auto backend = hybrid::make_backend(machine.given, {});
  Stripe stripe(300'000);
  const auto prepared = backend->prepare(stripe.matrix);
  stripe.run(*backend, *prepared, Mode::assign);
  EXPECT_TRUE(stripe.is_right(Mode::assign));
  EXPECT_EQ(machine.tasks_alone(), 1u);
  EXPECT_EQ(tasks_of(machine.gpu), 0u);
  EXPECT_EQ(tasks_of(machine.lanes), 0u);
}

TEST(HybridAlone, DoesWhatIsTooSmallToMeasureADevice) {
  WithAlone machine({});
  const auto backend = hybrid::make_backend(machine.given, {});
  Stripe small(100'000), large(200'000);  // 0.8 and 1.6 million bytes moved
  for (unsigned runs = 1; runs <= 5; ++runs) {
    small.reset();
    small.run(*backend, *backend->prepare(small.matrix), Mode::assign);
    EXPECT_TRUE(small.is_right(Mode::assign));
    EXPECT_EQ(machine.tasks_alone(), runs);
  }
  EXPECT_EQ(tasks_of(machine.gpu), 0u);
  for (int round = 0; round < 50 && tasks_of(machine.gpu) == 0; ++round) {
    large.reset();
    large.run(*backend, *backend->prepare(large.matrix), Mode::assign);
  }
  EXPECT_GT(tasks_of(machine.gpu), 0u);
}

// After 20 ms the CPU does the trial of a device that hangs.
TEST(HybridAlone, ATrialOfAHangingDeviceIsDoneByTheCpu) {
  const auto gate = std::make_shared<Gate>();
  gate->shut();
  FakeScript cpu_script, hanging;
  cpu_script.latency_seconds = 4e-3;
  hanging.before_chunk = [gate](std::uint64_t, std::uint64_t) { gate->pass(); };
  WithAlone machine({known("cpu", 1e7, 1e9), known("gpu", 1e6)}, slow_lane());
  machine.given.alone = std::make_shared<FakeBackend>(cpu_script);
  machine.given.members[1].backend = std::make_shared<FakeBackend>(hanging);
  const auto backend = hybrid::make_backend(machine.given, {});
  Stripe stripe(140'000);
  const auto prepared = backend->prepare(stripe.matrix);
  for (unsigned i = 0; i < 5'000 && gate->waited() == 0; ++i) {
    stripe.reset();
    stripe.run(*backend, *prepared, Mode::assign);
    EXPECT_TRUE(stripe.is_right(Mode::assign));
  }
  EXPECT_GT(gate->waited(), 0u) << "no trial";
  EXPECT_EQ(gate->passed(), 0u) << "the call waited for the device";
  gate->open();
}

// If the amount of a named device was lowered, the CPU does its trial.
TEST(HybridAlone, ATrialThatHasNoRoomIsDoneByTheCpu) {
  core::Budget budget;
  FakeScript cpu_script;
  cpu_script.latency_seconds = 4e-3;
  WithAlone machine({known("cpu", 1e7, 1e9), known("gpu", 1e6)}, slow_lane());
  machine.given.alone = std::make_shared<FakeBackend>(cpu_script);
  machine.given.members[1].staging_bytes = 8 << 20;
  machine.given.resources = &budget;
  budget.set("pinned_mib", 1);
  const auto backend = hybrid::make_backend(machine.given, {});
  Stripe stripe(140'000);
  const auto prepared = backend->prepare(stripe.matrix);
  for (unsigned i = 0; i < 600; ++i) {
    stripe.reset();
    stripe.run(*backend, *prepared, Mode::assign);
    ASSERT_TRUE(stripe.is_right(Mode::assign));
  }
  EXPECT_EQ(tasks_of(machine.gpu), 0u);
}

// What was remembered or measured of a device may be wrong, or it has changed. A trial finds it, with the CPU as it is.
TEST(HybridAlone, TriesADeviceThatDoesNothing) {
  FakeScript cpu_script;
  cpu_script.chunk_bytes = 300'000;
  cpu_script.before_chunk = [](std::uint64_t, std::uint64_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(4));
  };
  for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare}) {
    WithAlone machine({known("cpu", 1e7, 1e9), known("gpu", 1e6)}, slow_lane());
    for (core::SpeedEntry &each : machine.given.known)
      each.operation = mode == Mode::assign       ? core::TunedOperation::encode
                       : mode == Mode::accumulate ? core::TunedOperation::update
                                                  : core::TunedOperation::verify;
    machine.given.alone = std::make_shared<FakeBackend>(cpu_script);
    const auto backend = hybrid::make_backend(machine.given, {});
    Stripe stripe(140'000);
    const auto prepared = backend->prepare(stripe.matrix);
    unsigned in_a_row = 0;
    std::uint64_t before = 0;
    for (unsigned i = 0; i < 5'000 && in_a_row < 5; ++i) {
      stripe.reset();
      stripe.run(*backend, *prepared, mode);
      EXPECT_TRUE(stripe.is_right(mode));
      const std::uint64_t now = tasks_of(machine.gpu);
      EXPECT_TRUE(i > 0 || now == 0) << "no trial is due";
      in_a_row = now > before ? in_a_row + 1 : 0;
      before = now;
    }
    EXPECT_EQ(in_a_row, 5u) << "it still does nothing";
  }
}

TEST(HybridAlone, LeavesLongCallsToEverybodyWhereTheDeviceIsFast) {
  WithAlone machine({known("cpu", 1e7, 1e7), known("gpu", 1e9)}, slow_lane());
  auto backend = hybrid::make_backend(machine.given, {});
  Stripe stripe(300'000);
  stripe.run(*backend, *backend->prepare(stripe.matrix), Mode::assign);
  EXPECT_TRUE(stripe.is_right(Mode::assign));
  EXPECT_GT(tasks_of(machine.gpu), 0u);
  EXPECT_EQ(machine.tasks_alone(), 0u);
  // What takes the CPU 50 microseconds, as far as is remembered, is over before the device has begun.
  backend = hybrid::make_backend(machine.given, {});
  const std::uint64_t before = tasks_of(machine.gpu);
  Stripe tiny(100);
  tiny.run(*backend, *backend->prepare(tiny.matrix), Mode::assign);
  EXPECT_TRUE(tiny.is_right(Mode::assign));
  EXPECT_EQ(tasks_of(machine.gpu), before);
  EXPECT_EQ(machine.tasks_alone(), 1u);
}

TEST(HybridAlone, WhatIsLearnedIsToldAtTheEndAndWhatWasKnownIsNot) {
  WithAlone machine({});
  const auto entry_of_cpu = [&] {
    return std::ranges::find(machine.told, "cpu", [](const core::SpeedEntry &each) { return each.worker; });
  };
  // On a busy machine the device may be first with all parts.
  for (int round = 0; round < 100 && entry_of_cpu() == machine.told.end(); ++round) {
    const auto backend = hybrid::make_backend(machine.given, {});
    Stripe stripe(300'000);
    stripe.run(*backend, *backend->prepare(stripe.matrix), Mode::assign);
  }
  ASSERT_NE(entry_of_cpu(), machine.told.end());
  const core::SpeedEntry &of_cpu = *entry_of_cpu();
  EXPECT_EQ(of_cpu.machine, "here");
  EXPECT_EQ(of_cpu.operation, core::TunedOperation::encode);
  EXPECT_EQ(of_cpu.k, 5u);
  EXPECT_EQ(of_cpu.m, 3u);
  EXPECT_EQ(of_cpu.lanes, 2u);
  EXPECT_GT(of_cpu.bytes_per_second, 0);

  WithAlone again({known("cpu", 1e7, 1e7), known("gpu", 1e12)}, slow_lane());
  {
    const auto backend = hybrid::make_backend(again.given, {});
    Stripe stripe(300'000);
    const auto prepared = backend->prepare(stripe.matrix);
    Stripe longer(900'000);  // two sizes tell latency and speed apart
    for (int round = 0; round < 100 && tasks_of(again.gpu) < 20; ++round) {
      stripe.run(*backend, *prepared, Mode::assign);
      longer.run(*backend, *prepared, Mode::assign);
    }
  }
  EXPECT_GE(tasks_of(again.gpu), 20u);
  const bool has_gpu = std::any_of(again.told.begin(), again.told.end(),
                                   [](const core::SpeedEntry &each) { return each.worker == "gpu"; });
  EXPECT_TRUE(has_gpu) << "it is not as fast as was said";
  WithAlone idle({known("cpu", 1e7, 1e7), known("gpu", 1e12)});
  { const auto backend = hybrid::make_backend(idle.given, {}); }
  EXPECT_TRUE(idle.told.empty());
}

TEST(HybridResources, WhoRunsAloneCountsToo) {
  core::Budget budget;
  budget.set("cpu", 1);
  hybrid::Options given = options({cpu(2)}, Policy::budget);
  given.resources = &budget;
  const auto backend = hybrid::make_backend(given, {});
  Stripe stripe;
  const auto prepared = backend->prepare(stripe.matrix);
  constexpr core::Need kUnit[] = {{core::Budget::kCpu, 1}};
  budget.acquire(kUnit);  // as another call's thread does
  std::atomic<bool> is_over{false};
  std::thread caller([&] {
    stripe.run(*backend, *prepared, Mode::assign);
    is_over = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(is_over.load());
  EXPECT_TRUE(stripe.is_untouched());
  budget.release(kUnit);
  caller.join();
  EXPECT_TRUE(stripe.is_right(Mode::assign));
  budget.acquire(kUnit);  // comes back only if the unit was given back
  budget.release(kUnit);  // the other lane may be waiting for it
}

// Says how much staging memory is there, and the most bytes that were asked for at once.
class CountingBackend : public FakeBackend {
 public:
  using FakeBackend::FakeBackend;
  std::shared_ptr<std::byte> staging_memory(std::uint64_t bytes) override {
    for (std::uint64_t seen = most_bytes; bytes > seen && !most_bytes.compare_exchange_weak(seen, bytes);) {
    }
    const unsigned now = ++*live;
    for (unsigned seen = most->load(); now > seen && !most->compare_exchange_weak(seen, now);) {
    }
    const auto memory = FakeBackend::staging_memory(bytes);
    return {memory.get(), [memory, counter = live](std::byte *) { --*counter; }};
  }
  std::shared_ptr<std::atomic<unsigned>> live = std::make_shared<std::atomic<unsigned>>(0),
                                         most = std::make_shared<std::atomic<unsigned>>(0);
  std::atomic<std::uint64_t> most_bytes{0};
};

TEST(HybridResources, StagingIsHeldByNoMoreLanesThanItsAmountAllows) {
  for (const std::uint64_t amount : {1, 2, 3}) {
    core::Budget budget;
    budget.set("pinned_mib", amount);  // a lane's 64 KiB are one
    FakeScript script;
    script.lanes = 3;
    script.latency_seconds = 1e-3;
    const auto counting = std::make_shared<CountingBackend>(script);
    Member gpu = device("gpu", {}, 3);
    gpu.backend = counting;
    hybrid::Options given = options({gpu}, Policy::budget);
    given.resources = &budget;
    const auto backend = hybrid::make_backend(given, {});
    Stripe stripe(100'000);
    const auto prepared = backend->prepare(stripe.matrix);
    for (int round = 0; round < 3; ++round) {
      stripe.reset();
      stripe.run(*backend, *prepared, Mode::accumulate);
      EXPECT_TRUE(stripe.is_right(Mode::accumulate));
    }
    EXPECT_LE(counting->most->load(), amount);
    EXPECT_GT(counting->most->load(), 0u);
  }
}

// A lane's staging memory is nearly filled, and never exceeded: pinned_mib counts it.
TEST(HybridResources, PiecesFitIntoStagingMemory) {
  for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare}) {
    const auto counting = std::make_shared<CountingBackend>();
    Member gpu = device("gpu"), other = device("other");
    gpu.backend = counting;
    hybrid::Options given = options({gpu, other}, Policy::free);
    given.chunk_bytes = 1 << 20;
    const auto backend = hybrid::make_backend(given, {});
    Stripe stripe(300'000);
    const auto prepared = backend->prepare(stripe.matrix);
    for (int round = 0; round < 50 && counting->most_bytes <= gpu.staging_bytes * 3 / 4; ++round) {
      stripe.reset();
      stripe.run(*backend, *prepared, mode);
      EXPECT_TRUE(stripe.is_right(mode));
    }
    EXPECT_LE(counting->most_bytes, gpu.staging_bytes);
    EXPECT_GT(counting->most_bytes, gpu.staging_bytes * 3 / 4);
  }
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
  for (int round = 0; round < 3; ++round) {
    stripe.reset();
    stripe.run(*backend, *prepared, Mode::assign);
    EXPECT_TRUE(stripe.is_right(Mode::assign));
  }
  stop = true;
  for (std::thread &each : others) each.join();
}

// Many runs one after another, with a fast device: none gets stuck, and the device stays in use.
TEST(HybridAlone, AFastDeviceStaysInUse) {
  FakeScript lane, fast;
  lane.chunk_bytes = 2048;
  lane.latency_seconds = 2e-4;
  fast.latency_seconds = 1e-4;
  hybrid::Options given = options({cpu(8, lane), device("gpu", fast, 2)}, Policy::automatic);
  given.alone = std::make_shared<FakeBackend>(lane);
  given.known = {known("cpu", 2e6, 2e6), known("gpu", 2e8)};
  const Member gpu = given.members[1];
  const auto backend = hybrid::make_backend(given, {});
  Stripe stripe(200'000);
  const auto prepared = backend->prepare(stripe.matrix);
  int last_run_with = -1;
  for (int round = 0; round < 60; ++round) {
    const std::uint64_t before = tasks_of(gpu);
    stripe.reset();
    stripe.run(*backend, *prepared, Mode::assign);
    EXPECT_TRUE(stripe.is_right(Mode::assign));
    if (tasks_of(gpu) > before) last_run_with = round;
  }
  EXPECT_GE(last_run_with, 30);
}

// What is found while runs are under way takes part from then on; nothing found, a search that fails or never was
// asked for, and an end in the middle of it are no harm.
TEST(HybridDiscovery, WhatIsFoundTakesPart) {
  for (const int found : {0, 1, 2}) {
    hybrid::Options given = options({cpu(2, slow_lane())}, Policy::automatic);
    given.name = "cpu";
    given.alone = std::make_shared<FakeBackend>();
    given.discover_bytes = 5'000'000;
    const Member gpu = device("gpu");
    std::atomic<int> asked{0};
    given.known = {known("cpu", 1e7, 1e7), known("gpu", 1e12)};
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
      for (int round = 0; round < 500 && (round < 20 || (found == 1 && tasks_of(gpu) == 0)); ++round) {
        stripe.reset();
        stripe.run(*backend, *prepared, Mode::assign);
        EXPECT_TRUE(stripe.is_right(Mode::assign));
      }
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
  given.alone = std::make_shared<FakeBackend>();
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

// Looks whether what it is given lies in the caller's shards or in staging memory, and says what its memory is.
class LookingBackend : public FakeBackend {
 public:
  LookingBackend(const Work &work, bool shares_memory, bool shares_cores = false) : work_(work) {
    traits_ = FakeBackend::traits();
    traits_.shares_memory = shares_memory;
    traits_.shares_cores = shares_cores;
  }
  const core::Traits &traits() const noexcept override { return traits_; }
  void run(std::span<const core::Task> tasks, core::Control &control) override {
    for (const core::Task &task : tasks) {
      ++(is_callers(task.inputs[0]) ? direct_inputs : staged_inputs);
      ++(is_callers(task.outputs[0]) ? direct_outputs : staged_outputs);
    }
    FakeBackend::run(tasks, control);
  }
  std::atomic<unsigned> direct_inputs{0}, staged_inputs{0}, direct_outputs{0}, staged_outputs{0};

 private:
  bool is_callers(const std::byte *at) const {
    const auto lies_in = [&](const auto &shards) {
      return std::any_of(shards.begin(), shards.end(), [&](const auto &shard) {
        const auto *first = reinterpret_cast<const std::byte *>(shard.data());
        return first <= at && at < first + shard.size();
      });
    };
    return lies_in(work_.inputs) || lies_in(work_.outputs);
  }
  const Work &work_;
  core::Traits traits_;
};

TEST(HybridCopies, OnlyWhatTheDeviceCannotReachIsStaged) {
  enum class Where { pageable, registered, shared };
  for (const Where where : {Where::pageable, Where::registered, Where::shared}) {
    for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare}) {
      Stripe stripe(300'000);
      const auto looking = std::make_shared<LookingBackend>(stripe, where == Where::shared);
      Member gpu = device("gpu");
      gpu.backend = looking;
      const auto backend = make({cpu(), gpu}, Policy::free);
      const auto for_all = [&](auto body) {
        for (auto &shard : stripe.inputs) body(shard.data(), shard.size());
        for (auto &shard : stripe.outputs) body(shard.data(), shard.size());
      };
      if (where == Where::registered)
        for_all([](auto *data, std::size_t bytes) { core::register_memory(data, bytes); });
      const auto prepared = backend->prepare(stripe.matrix);
      for (int round = 0; round < 50 && looking->staged_inputs + looking->direct_inputs == 0; ++round) {
        stripe.reset();
        stripe.run(*backend, *prepared, mode);
        EXPECT_TRUE(stripe.is_right(mode));
      }
      const bool is_staged = where == Where::pageable;
      EXPECT_EQ(looking->direct_inputs > 0, !is_staged);
      EXPECT_EQ(looking->staged_inputs > 0, is_staged);
      // What is only read needs no commit.
      EXPECT_EQ(looking->direct_outputs > 0, !is_staged && mode == Mode::compare);
      if (where == Where::registered) for_all([](auto *data, std::size_t) { core::unregister_memory(data); });
    }
  }
}

TEST(HybridCopies, ADeviceThatDoesAllWritesWhereTheCallerReads) {
  Stripe stripe(300'000);
  const auto looking = std::make_shared<LookingBackend>(stripe, false);
  Member gpu = device("gpu");
  gpu.backend = looking;
  const auto backend = make({gpu}, Policy::automatic);
  stripe.run(*backend, *backend->prepare(stripe.matrix), Mode::assign);
  EXPECT_TRUE(stripe.is_right(Mode::assign));
  EXPECT_EQ(looking->direct_inputs.load(), 1u);
  EXPECT_EQ(looking->direct_outputs.load(), 1u);
}

// It computes on the cores of the CPU, and each run of it takes so much longer.
class OnTheCores : public LookingBackend {
 public:
  OnTheCores(const Work &work, double seconds) : LookingBackend(work, true, true), seconds_(seconds) {}
  void run(std::span<const core::Task> tasks, core::Control &control) override {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds_.load()));
    LookingBackend::run(tasks, control);
  }
  std::atomic<double> seconds_;
};

// Of the CPU and a device on its cores one does all, from the second run on the faster one.
TEST(HybridCopies, ADeviceOnTheCoresOfTheCpuIsNeverBesideIt) {
  constexpr double kSlowSeconds = 30e-3;  // more than a part waits for a core of a busy machine
  for (const bool device_is_faster : {true, false}) {
    Stripe stripe(300'000);
    FakeScript slow;
    slow.latency_seconds = kSlowSeconds;
    WithAlone machine({});
    if (device_is_faster) machine.given.alone = std::make_shared<FakeBackend>(slow);
    machine.given.members[1].backend = std::make_shared<OnTheCores>(stripe, device_is_faster ? 0 : kSlowSeconds);
    const auto &of_device = static_cast<LookingBackend &>(*machine.given.members[1].backend);
    const auto of_cpu = [&] { return static_cast<FakeBackend &>(*machine.given.alone).counts().tasks_started; };
    const auto backend = hybrid::make_backend(machine.given, {});
    const auto prepared = backend->prepare(stripe.matrix);
    stripe.run(*backend, *prepared, Mode::assign);
    EXPECT_TRUE(stripe.is_right(Mode::assign));
    EXPECT_GE(of_device.direct_inputs.load(), 3u) << "three parts to find out";
    EXPECT_GE(of_cpu(), 3u);
    const unsigned device_before = of_device.direct_inputs;
    const std::uint64_t cpu_before = of_cpu();
    stripe.reset();
    stripe.run(*backend, *prepared, Mode::assign);
    EXPECT_TRUE(stripe.is_right(Mode::assign));
    EXPECT_EQ(of_device.direct_inputs - device_before, device_is_faster ? 1u : 0u);
    EXPECT_EQ(of_cpu() - cpu_before, device_is_faster ? 0u : 1u);
    EXPECT_EQ(tasks_of(machine.lanes), 0u);
  }
}

TEST(HybridCopies, TheFirstPartsAreSmall) {
  class Listing : public OnTheCores {
   public:
    using OnTheCores::OnTheCores;
    void run(std::span<const core::Task> tasks, core::Control &control) override {
      for (const core::Task &each : tasks) lengths.push_back(each.length_bytes);
      OnTheCores::run(tasks, control);
    }
    std::vector<std::uint64_t> lengths;
  };
  for (const std::uint64_t shard_bytes : {std::uint64_t{320'000}, std::uint64_t{4} << 20}) {
    const double small = std::min(8 * shard_bytes / 16, std::uint64_t{1} << 20) / 8.0;  // 8 shards, bytes of one
    Stripe stripe(shard_bytes);
    WithAlone machine({});
    const auto listing = std::make_shared<Listing>(stripe, 0);
    machine.given.members[1].backend = listing;
    const auto backend = hybrid::make_backend(machine.given, {});
    stripe.run(*backend, *backend->prepare(stripe.matrix), Mode::assign);
    EXPECT_TRUE(stripe.is_right(Mode::assign));
    ASSERT_GE(listing->lengths.size(), 3U);
    EXPECT_NEAR(listing->lengths[0], small, 256);
    EXPECT_NEAR(listing->lengths[1], small, 256);
    EXPECT_NEAR(listing->lengths[2], 4 * small, 256);
  }
}

// If the slower one has become the faster one, a trial finds it, and it does the next runs.
TEST(HybridCopies, TheSlowerOneIsTriedAgain) {
  constexpr double kSeconds = 12e-3;  // more than a run waits for a core of a busy machine
  Stripe stripe(140'000);
  std::atomic<bool> is_cpu_slow{false};
  FakeScript cpu_script;
  cpu_script.chunk_bytes = stripe.bytes;
  cpu_script.before_chunk = [&](std::uint64_t, std::uint64_t) {
    if (is_cpu_slow) std::this_thread::sleep_for(std::chrono::duration<double>(kSeconds));
  };
  WithAlone machine({});
  machine.given.alone = std::make_shared<FakeBackend>(cpu_script);
  const auto on_cores = std::make_shared<OnTheCores>(stripe, kSeconds);
  machine.given.members[1].backend = on_cores;
  const auto backend = hybrid::make_backend(machine.given, {});
  const auto prepared = backend->prepare(stripe.matrix);
  const auto run = [&] {
    stripe.reset();
    stripe.run(*backend, *prepared, Mode::assign);
    EXPECT_TRUE(stripe.is_right(Mode::assign));
    return on_cores->direct_inputs.load();
  };
  unsigned before = run();
  for (int round = 0; round < 10'000 && on_cores->direct_inputs == before; ++round) run();
  ASSERT_GT(on_cores->direct_inputs.load(), before) << "no trial";
  // A trial is noted: the runs after it are not all trials.
  constexpr unsigned kRuns = 10;
  before = on_cores->direct_inputs;
  for (unsigned i = 0; i < kRuns; ++i) run();
  EXPECT_LT(on_cores->direct_inputs - before, kRuns);
  on_cores->seconds_ = 0;
  is_cpu_slow = true;
  unsigned in_a_row = 0;
  before = on_cores->direct_inputs;
  for (int round = 0; round < 10'000 && in_a_row < 5; ++round) {
    const unsigned now = run();
    in_a_row = now > before ? in_a_row + 1 : 0;
    before = now;
  }
  EXPECT_EQ(in_a_row, 5u) << "it does not do the runs";
}

// Slow until the bytes of all members together pay for its compile. The run that finds this still is slow, and the
// first one with the new kernel slower, because it loads it.
class CompilesLate : public OnTheCores {
 public:
  static constexpr double kTablesSeconds = 5e-3, kLoadSeconds = 50e-3;

  CompilesLate(const Work &work, std::uint64_t pays_from_bytes)
      : OnTheCores(work, kTablesSeconds), pays_from_bytes_(pays_from_bytes) {}

  std::shared_ptr<const core::Prepared> prepare(const core::Operator &what) override {
    return std::make_shared<Form>(what, OnTheCores::prepare(what));
  }
  void run(std::span<const core::Task> tasks, core::Control &control) override {
    std::vector<core::Task> own(tasks.begin(), tasks.end());
    std::uint64_t bytes = 0;
    for (core::Task &each : own) {
      const auto &form = static_cast<const Form &>(*each.prepared);
      bytes = form.bytes += each.length_bytes * form.columns();
      each.prepared = form.inner.get();
    }
    OnTheCores::run(own, control);
    seconds_ = bytes < pays_from_bytes_ ? kTablesSeconds : is_compiled_ ? 0 : kLoadSeconds;
    is_compiled_ = bytes >= pays_from_bytes_;
  }
  bool is_compiled() const { return is_compiled_; }

 private:
  struct Form : core::Prepared {
    Form(const core::Operator &what, std::shared_ptr<const core::Prepared> of_cpu)
        : core::Prepared(what), inner(std::move(of_cpu)) {}
    void add_bytes_elsewhere(std::uint64_t input_bytes) const override { bytes += input_bytes; }
    const std::shared_ptr<const core::Prepared> inner;
    mutable std::atomic<std::uint64_t> bytes{0};
  };
  const std::uint64_t pays_from_bytes_;
  std::atomic<bool> is_compiled_{false};
};

// The bytes that the CPU does count for the device's compile. Else it would get only trials, and be slow for ever.
TEST(HybridCopies, ADeviceCompilesForTheBytesOfTheCpu) {
  constexpr unsigned kPaysAfterRuns = 200;
  Stripe stripe(140'000);
  const std::uint64_t run_bytes = stripe.matrix.columns() * stripe.bytes;
  const auto late = std::make_shared<CompilesLate>(stripe, kPaysAfterRuns * run_bytes);
  FakeScript cpu_script;
  cpu_script.chunk_bytes = stripe.bytes;
  cpu_script.before_chunk = [&](std::uint64_t, std::uint64_t) {  // by then clearly slower than the device
    if (late->is_compiled()) std::this_thread::sleep_for(std::chrono::milliseconds(4));
  };
  WithAlone machine({});
  machine.given.alone = std::make_shared<FakeBackend>(cpu_script);
  machine.given.members[1].backend = late;
  const auto backend = hybrid::make_backend(machine.given, {});
  const auto prepared = backend->prepare(stripe.matrix);
  constexpr unsigned kMostTrials = kPaysAfterRuns / 2;
  unsigned compiled_at = 0, in_a_row = 0, before = 0;
  for (unsigned i = 1; i <= 20'000 && in_a_row < 5 && before < kMostTrials; ++i) {
    stripe.reset();
    stripe.run(*backend, *prepared, Mode::assign);
    EXPECT_TRUE(stripe.is_right(Mode::assign));
    if (compiled_at == 0 && late->is_compiled()) compiled_at = i;
    const unsigned now = late->direct_inputs;
    in_a_row = compiled_at != 0 && now > before ? in_a_row + 1 : 0;
    before = now;
  }
  EXPECT_GE(compiled_at, kPaysAfterRuns);
  EXPECT_EQ(in_a_row, 5u) << "it does not do the runs";
  EXPECT_LT(before, kMostTrials) << "its own runs paid";
}

// The device that was to do all of a ^= fails in the middle: the CPU does the rest, and no byte twice.
TEST(HybridFault, TheOthersComeInWhenTheOneMemberOfARunIsLost) {
  for (const bool fails_at_once : {true, false}) {
    WithAlone machine({known("cpu", 1e5, 1e5), known("gpu", 1e9)});
    for (core::SpeedEntry &each : machine.given.known) each.operation = core::TunedOperation::update;
    FakeScript script;
    script.failing_task = fails_at_once ? 0 : 3;
    script.fails_for_ever = true;
    script.fails_after_half = true;
    const Member gpu = device("gpu", script);
    machine.given.members[1] = gpu;
    Heard heard;
    const auto backend = hybrid::make_backend(machine.given, heard.log());
    Stripe stripe(300'000);
    const auto prepared = backend->prepare(stripe.matrix);
    stripe.run(*backend, *prepared, Mode::accumulate);
    EXPECT_TRUE(stripe.is_right(Mode::accumulate));
    EXPECT_TRUE(heard.has("gpu does it alone")) << heard.text;
    EXPECT_TRUE(heard.has("gpu failed")) << heard.text;
    EXPECT_GT(tasks_of(machine.lanes), 0u);
  }
}

// A device that fails when it does a run alone gives its unit back before another one does the run.
TEST(HybridFault, AFailedDeviceHoldsNothingWhileAnotherDoesItsRun) {
  core::Budget budget;
  budget.set("gpu", 1);
  FakeScript script;
  script.failing_task = 0;
  script.fails_for_ever = true;
  hybrid::Options given = options({device("broken", script), device("gpu")}, Policy::automatic);
  given.resources = &budget;
  given.machine = "here";
  given.known = {known("broken", 1e12), known("gpu", 1e7)};
  const auto backend = hybrid::make_backend(given, {});
  Stripe stripe(300'000);
  stripe.run(*backend, *backend->prepare(stripe.matrix), Mode::assign);
  EXPECT_TRUE(stripe.is_right(Mode::assign));
  constexpr core::Need kUnit[] = {{core::Budget::kGpu, 1}};
  budget.acquire(kUnit);  // comes back only if the unit was given back
  budget.release(kUnit);
}

TEST(HybridTimeline, IsWrittenAtTheEnd) {
  const std::string path = testing::TempDir() + "/tandem_timeline_" + std::to_string(getpid()) + ".json";
  hybrid::Options given = options({cpu(2), device("gpu")}, Policy::free);
  const auto timeline = std::make_shared<base::Timeline>(path, base::Log());
  given.timeline = timeline;
  {
    const auto backend = hybrid::make_backend(given, {});
    Stripe stripe;
    stripe.run(*backend, *backend->prepare(stripe.matrix), Mode::assign);
  }
  timeline->write();
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_NE(text.find("\"traceEvents\""), std::string::npos) << text;
  EXPECT_NE(text.find("cpu, lane 0"), std::string::npos) << text;
  EXPECT_NE(text.find("assign 3x5"), std::string::npos) << text;
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tandem::test
