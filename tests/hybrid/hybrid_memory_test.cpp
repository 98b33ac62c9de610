// SPDX-License-Identifier: Apache-2.0
// A hybrid without memory: one allocation of a run fails, and all later ones, on every thread. The run must end, and
// the next run must work as usual.
#include <gtest/gtest.h>

#include <cstdio>

#include "base/error.hpp"
#include "core/budget.hpp"
#include "hybrid/factory.hpp"
#include "tests/conformance/fake_backend.hpp"
#include "tests/conformance/work.hpp"
#include "tests/support/failing_memory.hpp"
#include "tests/support/thinned.hpp"

namespace tandem::test {
namespace {

using core::Mode;
using hybrid::Member;
using hybrid::Policy;

Member member(const char *name, bool is_in_place) {
  Member made;
  made.name = name;
  made.backend = std::make_shared<FakeBackend>();
  made.lanes = is_in_place ? 2 : 1;
  made.is_in_place = is_in_place;
  if (!is_in_place) made.staging_bytes = 64 << 10;
  return made;
}

TEST(HybridMemory, EveryAllocationOfARunMayFail) {
  constexpr long kMost = 400;
  Work work(3, 5, 40'000);
  unsigned failed = 0, worked = 0;
  for (const Policy policy : {Policy::budget, Policy::automatic}) {
    for (long allowed = 0; allowed < kMost; allowed += kThinning) {
      core::Budget budget;
      budget.set("cpu", 1);  // one that is not given back is missed
      budget.set("gpu", 1);
      hybrid::Options options;
      options.members = {member("cpu", true), member("gpu", false)};
      options.policy = policy;
      options.chunk_bytes = 16 << 10;
      options.inline_bytes = 0;
      options.resources = &budget;
      const auto backend = hybrid::make_backend(options, {});
      const auto prepared = backend->prepare(work.matrix);
      work.run(*backend, *prepared, Mode::assign);
      work.reset();
      allowed_allocations = allowed;
      bool good = true;
      try {
        work.run(*backend, *prepared, Mode::accumulate);
      } catch (const std::exception &) {
        good = false;
      }
      allowed_allocations = -1;
      ASSERT_TRUE(!good || work.is_right(Mode::accumulate)) << allowed;
      ++(good ? worked : failed);
      for (unsigned round = 0; round < 2; ++round) {
        work.reset();
        work.run(*backend, *prepared, Mode::accumulate);
        ASSERT_TRUE(work.is_right(Mode::accumulate)) << "the run after " << allowed << " allocations";
      }
    }
  }
  std::printf("%u runs failed, %u did not\n", failed, worked);
  EXPECT_GT(failed, thinned(20));
  EXPECT_GT(worked, thinned(20));
}

}  // namespace
}  // namespace tandem::test
