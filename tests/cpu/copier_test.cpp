// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "core/budget.hpp"
#include "core/host_copies.hpp"
#include "cpu/factory.hpp"
#include "tests/cpu/executor_kit.hpp"
#include "tests/support/expected.hpp"
#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

using core::HostCopy;

// Null: copy_here().
std::vector<std::shared_ptr<core::HostCopier>> copiers() {
  return {nullptr, cpu::make_copier(1, nullptr), cpu::make_copier(3, nullptr)};
}

void run(core::HostCopier *copier, std::span<const HostCopy> copies) {
  copier != nullptr ? copier->run(copies) : core::copy_here(copies);
}

std::byte *bytes_of(Bytes &bytes) { return reinterpret_cast<std::byte *>(bytes.data()); }

// Lengths around a vector, a cache line, a part of a copy and what is streamed; every place in a line; nothing around
// it is written.
TEST(Copier, EveryLengthAndPlace) {
  Random random(1);
  for (const auto &copier : copiers()) {
    for (const std::size_t length :
         {0u, 1u, 31u, 64u, 65u, 4097u, (256u << 10) - 1, (256u << 10) + 1, (1u << 20) + 77}) {
      for (const std::size_t skew : {0u, 1u, 8u, 63u}) {
        const Bytes from = random.bytes(length + 64), before = random.bytes(length + 192);
        for (const bool adds : {false, true}) {
          Bytes to = before, wanted = before;
          for (std::size_t i = 0; i < length; ++i)
            wanted[64 + skew + i] = static_cast<std::uint8_t>((adds ? before[64 + skew + i] : 0) ^ from[i + skew / 3]);
          const HostCopy copy = {bytes_of(to) + 64 + skew, reinterpret_cast<const std::byte *>(from.data()) + skew / 3,
                                 length, adds};
          run(copier.get(), {&copy, 1});
          ASSERT_EQ(to, wanted) << length << " bytes at " << skew << (adds ? ", added" : "");
        }
      }
    }
  }
}

TEST(Copier, ManyAtOnce) {
  Random random(2);
  for (const auto &copier : copiers()) {
    std::vector<Bytes> from, to;
    std::vector<HostCopy> copies;
    for (std::size_t i = 0; i < 300; ++i) {
      from.push_back(random.bytes(i * 37));
      to.emplace_back(i * 37);
    }
    for (std::size_t i = 0; i < 300; ++i)
      copies.push_back({bytes_of(to[i]), reinterpret_cast<const std::byte *>(from[i].data()), from[i].size()});
    run(copier.get(), copies);
    EXPECT_EQ(to, from);
    run(copier.get(), {});
  }
}

TEST(Copier, CallersFromSeveralThreads) {
  const auto copier = cpu::make_copier(3, nullptr);
  std::atomic<bool> is_right{true};
  std::vector<std::thread> callers;
  for (unsigned t = 0; t < 4; ++t) {
    callers.emplace_back([&, t] {
      Random random(t);
      for (unsigned i = 0; i < 8; ++i) {
        const Bytes from = random.bytes(600'000);
        Bytes to(from.size());
        const HostCopy copy = {bytes_of(to), reinterpret_cast<const std::byte *>(from.data()), from.size()};
        copier->run({&copy, 1});
        if (to != from) is_right = false;
      }
    });
  }
  for (std::thread &each : callers) each.join();
  EXPECT_TRUE(is_right);
}

// As long as something else holds the one unit nothing is copied.
TEST(Copier, HoldsAUnitOfTheCpu) {
  constexpr core::Need kOneCpu[] = {{core::Budget::kCpu, 1}};
  core::Budget budget;
  budget.set("cpu", 1);
  budget.acquire(kOneCpu);
  const auto copier = cpu::make_copier(2, &budget);
  Random random(3);
  const Bytes from = random.bytes(3 << 20);
  Bytes to(from.size());
  std::atomic<bool> is_done{false};
  std::thread thread([&] {
    const HostCopy copy = {bytes_of(to), reinterpret_cast<const std::byte *>(from.data()), from.size()};
    copier->run({&copy, 1});
    is_done = true;
  });
  ASSERT_TRUE(eventually([&] { return budget.waiting_count() >= 1; }));
  EXPECT_FALSE(is_done);
  budget.release(kOneCpu);
  thread.join();
  EXPECT_EQ(to, from);
  EXPECT_TRUE(budget.try_acquire(kOneCpu)) << "a unit was not given back";
}

// A task that holds the widgets copies, again and again, while another waits for a CPU and the widgets: that one is
// overtaken more often than by strangers, or both would wait for ever.
TEST(Copier, DoesNotWaitForWhatItsTaskHolds) {
  core::Budget budget;
  budget.set_all("cpu=1,app.widgets=1");
  const unsigned widgets = budget.index("app.widgets");
  const core::Need held[] = {{widgets, 1}}, both[] = {{core::Budget::kCpu, 1}, {widgets, 1}};
  budget.acquire(held);
  std::atomic<bool> has_both{false};
  std::thread other([&] {
    budget.acquire(both);
    has_both = true;
    budget.release(both);
  });
  EXPECT_TRUE(eventually([&] { return budget.waiting_count() == 1; }));
  const auto copier = cpu::make_copier(2, &budget);
  Random random(4);
  const Bytes from = random.bytes(1000);
  for (unsigned i = 0; i < 3 * core::Budget::kMostOvertaken; ++i) {
    Bytes to(from.size());
    const HostCopy copy = {bytes_of(to), reinterpret_cast<const std::byte *>(from.data()), from.size()};
    copier->run({&copy, 1});
    ASSERT_EQ(to, from);
  }
  EXPECT_FALSE(has_both);
  budget.release(held);
  other.join();
  EXPECT_TRUE(has_both);
}

}  // namespace
}  // namespace tandem::test
