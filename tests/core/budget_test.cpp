#include "core/budget.hpp"

#include <atomic>

#include "tests/cpu/executor_kit.hpp"

namespace tandem::test {
namespace {

using core::Budget;

std::string refusal_of_set(Budget &budget, const std::string &name, std::uint64_t amount) {
  try {
    budget.set(name, amount);
  } catch (const base::Error &error) {
    EXPECT_EQ(error.status(), TANDEM_ERROR_INVALID_ARGUMENT);
    return error.what();
  }
  return {};
}

std::string refusal_of(Budget &budget, const std::string &amounts) {
  try {
    budget.set_all(amounts);
  } catch (const base::Error &error) {
    EXPECT_EQ(error.status(), TANDEM_ERROR_INVALID_ARGUMENT);
    return error.what();
  }
  return {};
}

TEST(Budget, HasNoCapAtFirst) {
  Budget budget;
  EXPECT_EQ(budget.amount(core::Resource::cpu), UINT64_MAX);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(budget.try_acquire_cpu());
  for (int i = 0; i < 1000; ++i) budget.release_cpu();
}

TEST(Budget, TakesAmountsAsText) {
  Budget budget;
  budget.set_all("");
  EXPECT_EQ(budget.amount(core::Resource::cpu), UINT64_MAX);
  budget.set_all("cpu=5");
  EXPECT_EQ(budget.amount(core::Resource::cpu), 5u);
  budget.set_all("cpu=18446744073709551615");
  EXPECT_EQ(budget.amount(core::Resource::cpu), UINT64_MAX);
  budget.set("cpu", 3);
  EXPECT_EQ(budget.amount(core::Resource::cpu), 3u);
}

TEST(Budget, RefusesWhatItDoesNotUnderstandAndChangesNothing) {
  Budget budget;
  budget.set("cpu", 7);
  for (const char *text :
       {"cpu",          "cpu=",         "=5",           "=",      ",",           "cpu=5,",
        ",cpu=5",       "cpu=5,,",      "cpu =5",       "cpu= 5", "cpu=5 ",      "cpu=-1",
        "cpu=+1",       "cpu=1.5",      "cpu=0x5",      "cpu=0",  "cpu=00",      "cpu=18446744073709551616",
        "cpu=5;disk=2", "cpu=5,disk=2", "disk=2,cpu=5", "CPU=5",  "cpu=5,cpu=6", "cpu=5,cpu=5",
        "cpu==5",       "cpu=5=6"}) {
    EXPECT_NE(refusal_of(budget, text), "") << text;
    EXPECT_EQ(budget.amount(core::Resource::cpu), 7u) << text;
  }
  EXPECT_NE(refusal_of(budget, std::string("cpu=5\0", 6)), "");
  EXPECT_NE(refusal_of(budget, std::string(100000, ',')), "");
  EXPECT_NE(refusal_of_set(budget, "disk", 2), "");
  EXPECT_NE(refusal_of_set(budget, "", 2), "");
  EXPECT_NE(refusal_of_set(budget, "cpu", 0), "");
  EXPECT_EQ(budget.amount(core::Resource::cpu), 7u);
}

TEST(Budget, SaysWhatIsWrong) {
  Budget budget;
  EXPECT_EQ(
      refusal_of(budget, "cpu=5,disk=2"),
      "unknown resource \"disk\"; this version knows \"cpu\", \"gpu\", \"pinned_mib\", \"opencl_mib\", \"cuda_mib\"");
  EXPECT_EQ(refusal_of(budget, "cpu=0"), "amount 0 of resource \"cpu\": at least 1 is needed");
  EXPECT_EQ(refusal_of(budget, "cpu=5,cpu=x"),
            "\"cpu=5,cpu=x\" is not a list of resource amounts such as \"cpu=5\" (at character 7)");
  EXPECT_EQ(refusal_of(budget, "cpu=5,cpu=6"), "resource \"cpu\" stands twice in \"cpu=5,cpu=6\" (5 and 6)");
}

TEST(Budget, CountsUnits) {
  Budget budget;
  budget.set("cpu", 2);
  EXPECT_TRUE(budget.try_acquire_cpu());
  budget.acquire_cpu();
  EXPECT_FALSE(budget.try_acquire_cpu());
  budget.release_cpu();
  EXPECT_TRUE(budget.try_acquire_cpu());
  EXPECT_FALSE(budget.try_acquire_cpu());
}

TEST(Budget, CountsUnitsTakenBeforeTheCap) {
  Budget budget;
  for (int i = 0; i < 3; ++i) budget.acquire_cpu();
  budget.set("cpu", 2);
  EXPECT_FALSE(budget.try_acquire_cpu());
  budget.release_cpu();
  EXPECT_FALSE(budget.try_acquire_cpu());
  budget.release_cpu();
  EXPECT_TRUE(budget.try_acquire_cpu());
}

TEST(Budget, KeepGivesBackWhatIsTooMuch) {
  Budget budget;
  for (int i = 0; i < 3; ++i) budget.acquire_cpu();
  EXPECT_TRUE(budget.keep_cpu());
  budget.set("cpu", 1);
  EXPECT_FALSE(budget.keep_cpu());
  EXPECT_FALSE(budget.keep_cpu());
  EXPECT_TRUE(budget.keep_cpu());
  EXPECT_FALSE(budget.try_acquire_cpu());
  budget.release_cpu();
  EXPECT_TRUE(budget.try_acquire_cpu());
}

TEST(Budget, AReleaseWakesAWaiter) {
  Budget budget;
  budget.set("cpu", 1);
  for (int i = 0; i < 300; ++i) {
    budget.acquire_cpu();
    std::thread waiter([&] {
      budget.acquire_cpu();
      budget.release_cpu();
    });
    if (i % 3 == 0) std::this_thread::yield();
    budget.release_cpu();
    waiter.join();
  }
}

TEST(Budget, ARaiseWakesAsManyAsItAllows) {
  Budget budget;
  budget.set("cpu", 1);
  budget.acquire_cpu();
  std::atomic<int> through{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 5; ++i) {
    waiters.emplace_back([&] {
      budget.acquire_cpu();
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

TEST(Budget, NobodyOvertakesThoseWhoWait) {
  Budget budget;
  budget.set("cpu", 1);
  budget.acquire_cpu();
  std::atomic<bool> through{false};
  std::thread waiter([&] {
    budget.acquire_cpu();
    through = true;
  });
  // A thread that keeps its unit from item to item lets the waiter have a turn.
  EXPECT_TRUE(eventually([&] { return !budget.keep_cpu(); }));
  waiter.join();
  EXPECT_TRUE(through.load());
  EXPECT_FALSE(budget.try_acquire_cpu());
}

// `held_now` is raised after a unit is taken and lowered before it is given back, so it may never pass the amount. The
// amount is changed under a lock that the check shares, by a thread that first waits until the old units are back.
TEST(Budget, IsNeverExceededUnderStress) {
  Budget budget;
  budget.set("cpu", 2);
  std::atomic<int> held_now{0};
  std::atomic<int> most{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 1500; ++round) {
        if ((round + i) % 5 == 0) {
          if (!budget.try_acquire_cpu()) continue;
        } else {
          budget.acquire_cpu();
        }
        bool mine = true;
        for (int item = 0; item < round % 4 && mine; ++item) {
          const int now = held_now.fetch_add(1) + 1;
          int seen = most.load();
          while (seen < now && !most.compare_exchange_weak(seen, now)) {
          }
          held_now.fetch_sub(1);
          mine = budget.keep_cpu();
        }
        if (mine) budget.release_cpu();
      }
    });
  }
  for (auto &thread : threads) thread.join();
  EXPECT_LE(most.load(), 2);
  EXPECT_GE(most.load(), 1);
  EXPECT_TRUE(budget.try_acquire_cpu());
  EXPECT_TRUE(budget.try_acquire_cpu());
  EXPECT_FALSE(budget.try_acquire_cpu());
}

// Amounts go up and down while threads come and go: nobody is left waiting, and no unit is lost.
TEST(Budget, SurvivesChangesUnderStress) {
  Budget budget;
  budget.set("cpu", 1);
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 1500; ++round) {
        core::CpuUnit unit(&budget);
        for (int item = 0; item < 3; ++item) unit.next_item();
      }
    });
  }
  std::thread changer([&] {
    for (std::uint64_t amount = 1; !over.load(); amount = amount % 4 + 1) {
      budget.set("cpu", amount);
      std::this_thread::yield();
    }
  });
  for (auto &thread : threads) thread.join();
  over = true;
  changer.join();
  budget.set("cpu", 2);
  EXPECT_TRUE(budget.try_acquire_cpu());
  EXPECT_TRUE(budget.try_acquire_cpu());
  EXPECT_FALSE(budget.try_acquire_cpu());
}

}  // namespace
}  // namespace tandem::test
