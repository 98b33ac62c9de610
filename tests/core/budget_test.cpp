// SPDX-License-Identifier: Apache-2.0
#include "core/budget.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

#include "base/text.hpp"
#include "tests/base/errors.hpp"
#include "tests/cpu/executor_kit.hpp"
#include "tests/support/slice.hpp"

namespace tandem::test {
namespace {

using core::Budget;
using core::Need;

// What an Error (INVALID_ARGUMENT) says, or "".
template <class Call>
std::string refusal(Call &&call) {
  const auto [status, message] = status_of(call);
  EXPECT_TRUE(status == TANDEM_OK || status == TANDEM_ERROR_INVALID_ARGUMENT) << message;
  return message;
}

std::string refusal_of_set(Budget &budget, const std::string &name, std::uint64_t amount) {
  return refusal([&] { budget.set(name, amount); });
}

std::string refusal_of(Budget &budget, const std::string &amounts) {
  return refusal([&] { budget.set_all(amounts); });
}

// How much of a resource could be taken now.
std::uint64_t left(Budget &budget, unsigned resource) {
  std::uint64_t count = 0;
  const Need one[] = {{resource, 1}};
  while (budget.try_acquire(one)) ++count;
  const Need all[] = {{resource, count}};
  if (count != 0) budget.release(all);
  return count;
}

// A thread that acquires, notes its number, and holds what it has until it is told to let go. It waits, or is through,
// when the constructor returns.
class Task {
 public:
  Task(Budget &budget, std::vector<Need> needs) : budget_(budget), needs_(std::move(needs)) {
    const std::uint64_t before = budget.waiting_count();
    thread_ = std::thread([this] {
      message_ = refusal([&] { budget_.acquire(needs_); });
      state_ = message_.empty() ? kStarted : kRefused;
      if (!message_.empty()) return;
      EXPECT_TRUE(eventually([&] { return may_end_.load(); }));
      budget_.release(needs_);
    });
    EXPECT_TRUE(eventually([&] { return state_ != kWaiting || budget.waiting_count() > before; }));
  }
  ~Task() { end(); }
  void end() {
    may_end_ = true;
    if (thread_.joinable()) thread_.join();
  }
  bool has_started() const { return state_ == kStarted; }
  bool starts() const {
    return eventually([&] { return has_started(); });
  }
  bool waits() const {  // as far as a moment can tell
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    return state_ == kWaiting;
  }
  std::string refused() {
    EXPECT_TRUE(eventually([&] { return state_ == kRefused; }));
    end();
    return message_;
  }

 private:
  enum State { kWaiting, kStarted, kRefused };
  Budget &budget_;
  const std::vector<Need> needs_;
  std::string message_;
  std::atomic<State> state_{kWaiting};
  std::atomic<bool> may_end_{false};
  std::thread thread_;
};

TEST(Budget, TakesAmountsAsText) {
  Budget budget;
  budget.set_all("");
  EXPECT_FALSE(budget.is_limited());
  EXPECT_EQ(budget.amount(Budget::kCpu), UINT64_MAX);
  budget.set_all("cpu=5");
  EXPECT_TRUE(budget.is_limited());
  EXPECT_EQ(budget.amount(Budget::kCpu), 5u);
  budget.set_all("cpu=18446744073709551615");
  EXPECT_EQ(budget.amount(Budget::kCpu), UINT64_MAX);
  budget.set("cpu", 3);
  EXPECT_EQ(budget.amount(Budget::kCpu), 3u);
  budget.set_all("app.widgets=2,gpu=1");
  EXPECT_EQ(budget.amount(budget.index("app.widgets")), 2u);
  EXPECT_EQ(budget.amount(Budget::kGpu), 1u);
  EXPECT_EQ(budget.amount(Budget::kCpu), 3u);
}

TEST(Budget, ABuiltInNameOrOneWithADotIsAResource) {
  Budget budget;
  EXPECT_EQ(budget.index("cpu"), Budget::kCpu);
  EXPECT_EQ(budget.index("gpu"), Budget::kGpu);
  EXPECT_EQ(budget.index("pinned_mib"), Budget::kPinnedMib);
  const unsigned widgets = budget.index("app.widgets"), other = budget.index("Widgets.2_-");
  EXPECT_LT(budget.index("cuda_mib"), Budget::kBuiltInCount);
  EXPECT_GE(widgets, Budget::kBuiltInCount);
  EXPECT_NE(other, widgets);
  EXPECT_EQ(budget.index("app.widgets"), widgets);
  EXPECT_EQ(budget.name(other), "Widgets.2_-");
  EXPECT_EQ(budget.amount(widgets), UINT64_MAX);
  EXPECT_FALSE(budget.is_limited()) << "a name alone is no limit";
  const std::string longest = std::string(62, 'x') + '.';
  EXPECT_EQ(budget.name(budget.index(longest)), longest);
}

TEST(Budget, ThreadsThatNameTheSameResourceGetTheSameNumber) {
  for (int round = 0; round < 50; ++round) {
    Budget budget;
    std::vector<std::vector<unsigned>> seen(4);
    std::vector<std::thread> threads;
    for (auto &mine : seen) {
      threads.emplace_back([&] {
        for (int i = 0; i < 20; ++i) mine.push_back(budget.index("r." + std::to_string(i)));
      });
    }
    for (auto &thread : threads) thread.join();
    for (const auto &mine : seen) ASSERT_EQ(mine, seen[0]);
    for (int i = 0; i < 20; ++i) ASSERT_EQ(budget.name(seen[0][static_cast<unsigned>(i)]), "r." + std::to_string(i));
  }
}

TEST(Budget, RefusesWhatItDoesNotUnderstandAndChangesNothing) {
  Budget budget;
  budget.set("cpu", 7);
  for (const char *text : {"cpu",
                           "cpu=",
                           "=5",
                           "=",
                           ",",
                           "cpu=5,",
                           ",cpu=5",
                           "cpu=5,,",
                           "cpu =5",
                           "cpu= 5",
                           "cpu=5 ",
                           "cpu=-1",
                           "cpu=+1",
                           "cpu=1.5",
                           "cpu=0x5",
                           "cpu=0",
                           "cpu=00",
                           "cpu=18446744073709551616",
                           "cpu=5;app.disk=2",
                           "cpu=5,di sk=2",
                           "d/sk=2,cpu=5",
                           "cpu=5,cpu=6",
                           "cpu=5,cpu=5",
                           "cpu==5",
                           "cpu=5=6",
                           "cpu=5,app.disk=0",
                           "cpu=5,w\xc3\xa4lder=1"}) {
    EXPECT_NE(refusal_of(budget, text), "") << text;
    EXPECT_EQ(budget.amount(Budget::kCpu), 7u) << text;
  }
  EXPECT_NE(refusal_of(budget, std::string("cpu=5\0", 6)), "");
  EXPECT_NE(refusal_of(budget, std::string(100000, ',')), "");
  EXPECT_NE(refusal_of(budget, "cpu=5," + std::string(64, 'x') + "=1"), "");
  EXPECT_NE(refusal_of_set(budget, "di sk", 2), "");
  EXPECT_NE(refusal_of_set(budget, std::string("cpu\0", 4), 2), "");
  EXPECT_NE(refusal_of_set(budget, "", 2), "");
  EXPECT_NE(refusal_of_set(budget, "cpu", 0), "");
  EXPECT_EQ(budget.amount(Budget::kCpu), 7u);
}

TEST(Budget, SaysWhatIsWrong) {
  Budget budget;
  EXPECT_EQ(refusal_of(budget, "cpu=5,di sk=2"),
            "character 3 of the resource name \"di sk\" is none of A-Z a-z 0-9 _ . -");
  for (const char *unknown : {"cpus", "Cpu", "opencl-mib"}) {
    const std::string says = base::text("resource \"", unknown,
                                        "\" is unknown; known: cpu, gpu, pinned_mib, opencl_mib, cuda_mib, and names "
                                        "of your own with a dot, such as \"my.",
                                        unknown, "\"");
    EXPECT_EQ(refusal_of(budget, base::text("app.x=1,", unknown, "=5")), says);
    EXPECT_EQ(refusal_of_set(budget, unknown, 5), says);
    EXPECT_EQ(refusal([&] { budget.needs_of(base::text(unknown, "=5")); }), says);
  }
  EXPECT_FALSE(budget.is_limited());
  EXPECT_EQ(refusal([&] { budget.index(std::string(64, 'x')); }),
            "the name of a resource has 64 characters; 1 to 63 are allowed");
  EXPECT_EQ(refusal_of(budget, "cpu=0"), "amount 0 of resource \"cpu\": at least 1 is needed");
  EXPECT_EQ(refusal_of(budget, "cpu=5,cpu=x"),
            "\"cpu=5,cpu=x\" is not a list of resource amounts such as \"cpu=5\" (at character 7)");
  EXPECT_EQ(refusal_of(budget, "cpu=5,cpu=6"), "resource \"cpu\" stands twice in \"cpu=5,cpu=6\" (5 and 6)");
}

TEST(Budget, ReadsNeedsAsText) {
  Budget budget;
  EXPECT_TRUE(budget.needs_of("").empty());
  const std::vector<Need> needs = budget.needs_of("app.widgets=2,app.disk=1");
  ASSERT_EQ(needs.size(), 2u);
  EXPECT_EQ(needs[0].resource, budget.index("app.widgets"));
  EXPECT_EQ(needs[0].amount, 2u);
  EXPECT_EQ(needs[1].resource, budget.index("app.disk"));
  EXPECT_FALSE(budget.is_limited());
  EXPECT_NE(refusal([&] { budget.needs_of("app.widgets=2,app.widgets=3"); }), "");
  EXPECT_NE(refusal([&] { budget.needs_of("app.widgets=0"); }), "");
}

// One thread takes, keeps and gives back, and amounts rise and fall, also near 2^64. A model tells each answer.
TEST(Budget, TakesAllOrNothingAsAModelDoes) {
  Random random(slice_seed());
  for (int run = 0; run < 300; ++run) {
    Budget budget;
    const unsigned resources[] = {Budget::kCpu, budget.index("app.widgets")};
    std::map<unsigned, std::uint64_t> whole, held;
    for (const unsigned resource : resources) whole[resource] = UINT64_MAX;
    std::vector<std::vector<Need>> tasks;
    const auto amount = [&] { return random.chance(80) ? random.between(1, 5) : UINT64_MAX - random.below(3); };
    const auto give_back = [&](const std::vector<Need> &needs) {
      for (const Need &need : needs) held[need.resource] -= need.amount;
    };
    for (int step = 0; step < 60; ++step) {
      const auto task = tasks.begin() + static_cast<std::ptrdiff_t>(random.below(tasks.size() + 1));
      const unsigned first = static_cast<unsigned>(random.below(2));
      if (random.chance(15)) {
        whole[resources[first]] = amount();
        budget.set(budget.name(resources[first]), whole[resources[first]]);
      } else if (task == tasks.end() || random.chance(50)) {
        std::vector<Need> needs = {{resources[first], amount()}};
        if (random.chance(60)) needs.push_back({resources[1 - first], amount()});
        const auto is_beyond = [&](const Need &need) { return need.amount > whole[need.resource]; };
        const auto beyond = std::ranges::find_if(needs, is_beyond);
        std::string says;
        if (beyond != needs.end())
          says = base::text("a task needs ", beyond->amount, " of resource \"", budget.name(beyond->resource),
                            "\", but its whole amount is ", whole[beyond->resource]);
        EXPECT_EQ(refusal([&] { budget.check(needs); }), says);
        const bool fits = std::ranges::none_of(needs, [&](const Need &need) {
          return is_beyond(need) || held[need.resource] > whole[need.resource] - need.amount;
        });
        if (!says.empty()) {
          EXPECT_EQ(refusal([&] { budget.acquire(needs); }), says);
        }
        ASSERT_EQ(budget.try_acquire(needs), fits) << "run " << run << ", step " << step;
        if (!fits) continue;
        for (const Need &need : needs) held[need.resource] += need.amount;
        tasks.push_back(std::move(needs));
      } else {
        const bool is_too_much =
            std::ranges::any_of(*task, [&](const Need &need) { return held[need.resource] > whole[need.resource]; });
        if (random.chance(50)) {
          ASSERT_EQ(budget.keep(*task), !is_too_much) << "run " << run << ", step " << step;
          if (!is_too_much) continue;
        } else {
          budget.release(*task);
        }
        give_back(*task);
        tasks.erase(task);
      }
    }
  }
}

TEST(Budget, AHoldCountsFromTheFirstAmountOn) {
  Budget budget;
  core::Hold hold(&budget, kOneCpu);
  hold.next_task();
  budget.set("cpu", 1);
  EXPECT_EQ(left(budget, Budget::kCpu), 1u) << "it began before there was an amount";
  hold.next_task();
  EXPECT_EQ(left(budget, Budget::kCpu), 0u);
  {
    core::Hold nothing(nullptr, kOneCpu);
    nothing.next_task();
  }
  hold.next_task();
  EXPECT_EQ(left(budget, Budget::kCpu), 0u);
}

TEST(Budget, AHoldEndsWithItsScope) {
  Budget budget;
  budget.set_all("cpu=1,app.widgets=2");
  const Need widgets[] = {{budget.index("app.widgets"), 2}};
  {
    const core::TaskNeeds needs(Budget::kCpu, widgets);
    core::Hold hold(&budget, needs.get());
    hold.next_task();
    EXPECT_EQ(left(budget, Budget::kCpu), 0u);
    EXPECT_EQ(left(budget, widgets[0].resource), 0u);
  }
  EXPECT_EQ(left(budget, Budget::kCpu), 1u);
  EXPECT_EQ(left(budget, widgets[0].resource), 2u);
}

TEST(Budget, ATaskThatWaitsHoldsNothing) {
  Budget budget;
  budget.set_all("cpu=2,app.widgets=1");
  const unsigned widgets = budget.index("app.widgets");
  Task first(budget, {{Budget::kCpu, 1}, {widgets, 1}});
  ASSERT_TRUE(first.starts());
  Task second(budget, {{Budget::kCpu, 1}, {widgets, 1}});
  EXPECT_TRUE(second.waits());
  EXPECT_EQ(left(budget, Budget::kCpu), 1u);
  first.end();
  EXPECT_TRUE(second.starts());
}

TEST(Budget, AReleaseWakesAWaiter) {
  Budget budget;
  budget.set("cpu", 1);
  for (int i = 0; i < 300; ++i) {
    budget.acquire(kOneCpu);
    std::thread waiter([&] {
      budget.acquire(kOneCpu);
      budget.release(kOneCpu);
    });
    if (i % 3 == 0) std::this_thread::yield();
    budget.release(kOneCpu);
    waiter.join();
  }
}

TEST(Budget, ARaiseWakesAsManyAsItAllows) {
  Budget budget;
  budget.set("cpu", 1);
  budget.acquire(kOneCpu);
  std::atomic<int> through{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 5; ++i) {
    waiters.emplace_back([&] {
      budget.acquire(kOneCpu);
      through.fetch_add(1);
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(through.load(), 0);
  budget.set("cpu", 3);
  EXPECT_TRUE(eventually([&] { return through.load() == 2; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(through.load(), 2);
  budget.set("cpu", 6);
  for (auto &waiter : waiters) waiter.join();
  EXPECT_EQ(through.load(), 5);
}

TEST(Budget, RaisingOneOfTwoResourcesIsNotEnough) {
  Budget budget;
  budget.set_all("cpu=1,app.widgets=1");
  const Need needs[] = {{Budget::kCpu, 1}, {budget.index("app.widgets"), 1}};
  budget.acquire(needs);
  Task task(budget, {needs[0], needs[1]});
  budget.set("cpu", 2);
  EXPECT_TRUE(task.waits());
  budget.set("app.widgets", 2);
  EXPECT_TRUE(task.starts());
}

TEST(Budget, LoweringBelowTheNeedOfAWaiterRefusesIt) {
  Budget budget;
  budget.set_all("app.widgets=4");
  const unsigned widgets = budget.index("app.widgets");
  const Need one[] = {{widgets, 1}};
  budget.acquire(one);
  Task large(budget, {{widgets, 4}}), small(budget, {{widgets, 3}});
  EXPECT_TRUE(large.waits());
  budget.set("app.widgets", 3);
  EXPECT_EQ(large.refused(), "a task needs 4 of resource \"app.widgets\", but its whole amount is 3");
  budget.release(one);
  EXPECT_TRUE(small.starts());
  small.end();
  EXPECT_EQ(left(budget, widgets), 3u);
}

TEST(Budget, ServesInTheOrderOfAsking) {
  Budget budget;
  budget.set("cpu", 1);
  budget.acquire(kOneCpu);
  std::mutex mutex;
  std::vector<int> order;
  std::vector<std::thread> waiters;
  for (int i = 0; i < 6; ++i) {
    waiters.emplace_back([&, i] {
      budget.acquire(kOneCpu);
      {
        const std::lock_guard lock(mutex);
        order.push_back(i);
      }
      budget.release(kOneCpu);
    });
    EXPECT_TRUE(eventually([&] { return budget.waiting_count() == static_cast<std::uint64_t>(i) + 1; }));
  }
  budget.set("cpu", 1);  // takes the lock: the last one no longer looks for units, where it could pass the others
  budget.release(kOneCpu);
  for (auto &waiter : waiters) waiter.join();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5}));
}

// The waiter needs two widgets, of which one is held. Tasks that need one pass it, 16 times and no more.
TEST(Budget, AWaiterIsOvertakenSixteenTimesAtMost) {
  Budget budget;
  budget.set_all("cpu=8,app.widgets=2");
  const unsigned widgets = budget.index("app.widgets");
  const Need one[] = {{widgets, 1}}, both[] = {{Budget::kCpu, 1}, {widgets, 1}};
  budget.acquire(one);
  Task waiter(budget, {{widgets, 2}});
  EXPECT_TRUE(waiter.waits());
  for (unsigned i = 0; i < Budget::kMostOvertaken; ++i) {
    ASSERT_TRUE(budget.try_acquire(both)) << i;
    budget.release(both);
  }
  EXPECT_FALSE(budget.try_acquire(both));
  EXPECT_FALSE(budget.try_acquire(one));
  EXPECT_TRUE(budget.try_acquire(kOneCpu)) << "that it does not wait for";
  Task later(budget, {{widgets, 1}});
  EXPECT_TRUE(later.waits());
  budget.release(one);
  EXPECT_TRUE(waiter.starts());
  EXPECT_TRUE(later.waits());
  waiter.end();
  EXPECT_TRUE(later.starts());
}

// A thread that holds the widgets takes a CPU in front of one that waits for both, however often: behind it, each would
// wait for the other.
TEST(Budget, InFrontNoWaiterIsWaitedFor) {
  Budget budget;
  budget.set_all("cpu=1,app.widgets=1");
  const unsigned widgets = budget.index("app.widgets");
  const Need held[] = {{widgets, 1}};
  budget.acquire(held);
  Task both(budget, {{Budget::kCpu, 1}, {widgets, 1}});
  for (unsigned i = 0; i < 3 * Budget::kMostOvertaken; ++i) {
    budget.acquire(kOneCpu, true);
    budget.release(kOneCpu);
  }
  EXPECT_FALSE(both.has_started());
  EXPECT_EQ(budget.waiting_count(), 1u);
  budget.release(held);
  EXPECT_TRUE(both.starts());
  both.end();
  EXPECT_EQ(budget.waiting_count(), 0u);
}

TEST(Budget, AThreadThatGoesOnLetsWaitersHaveATurn) {
  Budget budget;
  budget.set("cpu", 1);
  budget.acquire(kOneCpu);
  Task waiter(budget, {kOneCpu[0]});
  EXPECT_TRUE(eventually([&] { return !budget.keep(kOneCpu); }));
  EXPECT_TRUE(waiter.starts());
  EXPECT_FALSE(budget.try_acquire(kOneCpu));
}

TEST(Budget, AThreadGoesOnWhileItsNeedsAreNotWaitedFor) {
  Budget budget;
  budget.set_all("cpu=1,app.widgets=1");
  const unsigned widgets = budget.index("app.widgets");
  const Need widget[] = {{widgets, 1}};
  budget.acquire(kOneCpu);
  budget.acquire(widget);
  Task needs_a_widget(budget, {{widgets, 1}}), needs_both(budget, {{Budget::kCpu, 1}, {widgets, 1}});
  EXPECT_TRUE(needs_both.waits());
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_TRUE(budget.keep(kOneCpu)) << "its unit would help none of them";
  }
  EXPECT_TRUE(eventually([&] { return !budget.keep(widget); }));
  EXPECT_TRUE(needs_a_widget.starts());
  needs_a_widget.end();
  EXPECT_TRUE(eventually([&] { return !budget.keep(kOneCpu); }));
  EXPECT_TRUE(needs_both.starts());
}

// `held_now` is raised after the needs are taken and lowered before they are given back, so it may never pass the
// amount.
TEST(Budget, IsNeverExceededUnderStress) {
  Budget budget;
  budget.set_all("cpu=2,app.widgets=3");
  const unsigned widgets = budget.index("app.widgets");
  const std::vector<Need> kinds[] = {{{Budget::kCpu, 1}}, {{Budget::kCpu, 1}, {widgets, 2}}, {{widgets, 1}}};
  std::atomic<std::uint64_t> held_now[2] = {0, 0}, most[2] = {0, 0};
  const auto add = [&](const std::vector<Need> &needs) {
    for (const Need &need : needs) {
      const unsigned which = need.resource == widgets;
      const std::uint64_t now = held_now[which].fetch_add(need.amount) + need.amount;
      std::uint64_t seen = most[which].load();
      while (seen < now && !most[which].compare_exchange_weak(seen, now)) {
      }
    }
  };
  const auto subtract = [&](const std::vector<Need> &needs) {
    for (const Need &need : needs) held_now[need.resource == widgets].fetch_sub(need.amount);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 6000; ++round) {
        const std::vector<Need> &needs = kinds[(round + i) % 3];
        if ((round + i) % 5 == 0) {
          if (!budget.try_acquire(needs)) continue;
        } else {
          budget.acquire(needs);
        }
        bool mine = true;
        for (int item = 0; item < round % 4 && mine; ++item) {
          add(needs);
          if (round % 8 == 0) std::this_thread::yield();
          subtract(needs);
          mine = budget.keep(needs);
        }
        if (mine) budget.release(needs);
      }
    });
  }
  for (auto &thread : threads) thread.join();
  EXPECT_LE(most[0].load(), 2u);
  EXPECT_LE(most[1].load(), 3u);
  EXPECT_GE(most[1].load(), 2u);
  EXPECT_EQ(left(budget, Budget::kCpu), 2u);
  EXPECT_EQ(left(budget, widgets), 3u);
}

// Amounts go up and down while threads come and go: none is left waiting, and no unit is lost.
TEST(Budget, SurvivesChangesUnderStress) {
  Budget budget;
  budget.set_all("cpu=1,app.widgets=2");
  const unsigned widgets = budget.index("app.widgets");
  const Need added[] = {{widgets, 2}};
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const core::TaskNeeds needs(Budget::kCpu, i % 2 == 0 ? std::span<const Need>() : std::span<const Need>(added));
      for (int round = 0; round < 6000; ++round) {
        core::Hold hold(&budget, needs.get());
        for (int item = 0; item < 3; ++item) {
          hold.next_task();
          if (round % 8 == 0) std::this_thread::yield();
        }
      }
    });
  }
  std::thread changer([&] {
    for (std::uint64_t amount = 1; !over.load(); amount = amount % 4 + 1) {
      budget.set("cpu", amount);
      budget.set("app.widgets", amount + 1);
      std::this_thread::yield();
    }
  });
  for (auto &thread : threads) thread.join();
  over = true;
  changer.join();
  budget.set_all("cpu=2,app.widgets=4");
  EXPECT_EQ(left(budget, Budget::kCpu), 2u);
  EXPECT_EQ(left(budget, widgets), 4u);
}

}  // namespace
}  // namespace tandem::test
