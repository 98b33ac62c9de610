// The book of a job: whatever the order of events, every byte is committed once, amounts are kept, and nobody is stuck.
#include "hybrid/policy/ledger.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.hpp"
#include "tests/support/random.hpp"
#include "tests/support/thinned.hpp"

namespace tandem::test {
namespace {

using hybrid::Chunk;
using hybrid::Estimate;
using hybrid::Ledger;
using hybrid::Needs;
using hybrid::Policy;
using hybrid::Range;
using hybrid::ResourcePool;
using hybrid::Worker;

struct Running {
  Chunk chunk;
  bool given_up = false;
  bool claimed = false;         // its result is being copied out
  std::vector<Range> own = {};  // of what it claimed
};

// A job as its owner sees it, with a bitmap of what was committed. Copies go on each for itself, but with one pool: who
// copies keeps the pool, too (`Branch`).
struct Job {
  Job(const Ledger::Options &options, const std::vector<Worker> &workers, ResourcePool &its_pool)
      : ledger(options, workers, its_pool),
        pool(&its_pool),
        committed(options.work_bytes, false),
        in_use(workers.size(), false),
        budgeted(options.policy != Policy::free) {}

  Ledger ledger;
  ResourcePool *pool;
  std::vector<bool> committed;
  std::vector<bool> in_use;  // by worker
  std::vector<Running> running;
  bool budgeted;
  double now = 0;

  bool take(unsigned worker) {
    const std::optional<Chunk> chunk = ledger.take(worker, now);
    if (!chunk) return false;
    EXPECT_EQ(chunk->worker, worker);
    EXPECT_LT(chunk->range.begin, chunk->range.end);
    EXPECT_LE(chunk->range.end, committed.size());
    if (budgeted) {
      for (const auto &need : ledger.worker(worker).needs)
        EXPECT_LE(pool->held(need.resource), pool->amount(need.resource));
    }
    // In place nothing may be written that another has written, or is writing.
    if (ledger.worker(worker).writes_in_place) {
      for (std::uint64_t i = chunk->range.begin; i < chunk->range.end; ++i) EXPECT_FALSE(committed[i]) << "byte " << i;
      for (const Running &other : running) {
        const Range &its = other.chunk.range;
        if (!ledger.worker(other.chunk.worker).writes_in_place) continue;
        EXPECT_TRUE(its.end <= chunk->range.begin || chunk->range.end <= its.begin);
      }
    }
    in_use[worker] = true;
    running.push_back({*chunk});
    return true;
  }

  Running end(std::size_t which) {
    const Running it = running[which];
    running.erase(running.begin() + static_cast<std::ptrdiff_t>(which));
    in_use[it.chunk.worker] = false;
    return it;
  }

  void commit(const std::vector<Range> &ranges) {
    for (const Range &range : ranges) {
      for (std::uint64_t i = range.begin; i < range.end; ++i) {
        EXPECT_FALSE(committed[i]) << "byte " << i << " twice";
        committed[i] = true;
      }
      ledger.committed(range.bytes());
    }
  }

  void claim(std::size_t which) {
    running[which].own = ledger.claim(running[which].chunk.id);
    running[which].claimed = true;
  }

  void finish(std::size_t which) {
    const Running it = end(which);
    commit(it.claimed ? it.own : ledger.claim(it.chunk.id));
    ledger.finish(it.chunk.id, now);
  }

  void fail(std::size_t which) { ledger.fail(end(which).chunk.id); }

  void give_up(std::size_t which) {
    running[which].given_up = true;
    ledger.give_up(running[which].chunk.id);
  }

  bool is_whole() const {
    return std::all_of(committed.begin(), committed.end(), [](bool bit) { return bit; });
  }

  void check() const {
    const auto count = static_cast<std::uint64_t>(std::count(committed.begin(), committed.end(), true));
    EXPECT_EQ(ledger.committed_bytes(), count);
    EXPECT_EQ(ledger.is_done(), count == committed.size());
  }
};

Worker a_worker(unsigned index, bool in_place, Needs needs, double speed = 1) {
  Worker worker{std::string(1, static_cast<char>('a' + index)), Estimate(0.01, speed, 0.1)};
  worker.writes_in_place = in_place;
  worker.needs = std::move(needs);
  return worker;
}

// ---- every order of events of small jobs -----------------------------------------------------------

// What a run may meet besides taking and finishing.
struct Mishaps {
  unsigned failures = 0, give_ups = 0, settings = 0, disclaims = 0;
};

class AllOrders {
 public:
  AllOrders(const Ledger::Options &options, const std::vector<Worker> &workers, ResourcePool pool, Mishaps mishaps)
      : pool_(std::move(pool)), job_(options, workers, pool_), mishaps_(mishaps), needed_(workers.size()) {}

  // How many different endings there are.
  std::uint64_t count() {
    walk(job_, mishaps_);
    return endings_;
  }

 private:
  template <class Event>
  void branch(const Job &job, Mishaps left, Event event) {
    const ResourcePool before = pool_;
    Job next = job;
    next.now += 1;
    if (event(next)) {
      next.check();
      walk(next, left);
    }
    pool_ = before;
  }

  void walk(const Job &job, const Mishaps &left) {
    if (testing::Test::HasFailure()) return;  // one is enough to read
    if (job.ledger.is_done()) {
      EXPECT_TRUE(job.is_whole());
      ++endings_;
      return;
    }
    bool somebody_takes = false;
    for (unsigned w = 0; w < needed_; ++w) {
      if (job.in_use[w]) continue;
      branch(job, left, [&](Job &next) {
        const bool took = next.take(w);
        somebody_takes = somebody_takes || took;
        return took;
      });
    }
    for (std::size_t i = 0; i < job.running.size(); ++i) {
      branch(job, left, [&](Job &next) {
        next.finish(i);
        return true;
      });
      const bool staged = !job.ledger.worker(job.running[i].chunk.worker).writes_in_place;
      Mishaps fewer = left;
      if (left.failures > 0) {
        --fewer.failures;
        branch(job, fewer, [&](Job &next) {
          next.fail(i);
          return true;
        });
        fewer = left;
      }
      if (left.give_ups > 0 && staged && !job.running[i].given_up) {
        --fewer.give_ups;
        branch(job, fewer, [&](Job &next) {
          next.give_up(i);
          return true;
        });
        fewer = left;
      }
      if (left.disclaims > 0 && staged) {
        // Its result turns out to be of no use when it is to be copied out.
        --fewer.disclaims;
        branch(job, fewer, [&](Job &next) {
          const std::uint64_t id = next.end(i).chunk.id;
          const std::vector<Range> own = next.ledger.claim(id);
          next.ledger.finish(id, 1);
          for (const Range &each : own) next.ledger.disclaim(each);
          return true;
        });
      }
    }
    if (left.settings > 0) {
      Mishaps fewer = left;
      --fewer.settings;
      for (const std::uint64_t amount : {1u, 2u}) {
        if (amount == pool_.amount(0)) continue;
        branch(job, fewer, [&](Job &) {
          pool_.set(0, amount);
          return true;
        });
      }
    }
    if (somebody_takes || !job.running.empty() || testing::Test::HasFailure()) return;
    // Nothing runs and nobody takes: then all who could have done it are gone.
    EXPECT_TRUE(job.ledger.is_stranded());
    ++endings_;
  }

  ResourcePool pool_;
  Job job_;
  Mishaps mishaps_;
  std::size_t needed_;
  std::uint64_t endings_ = 0;
};

ResourcePool a_pool(std::uint64_t amount) {
  ResourcePool pool;
  pool.set(pool.index("cpu"), amount);
  return pool;
}

Ledger::Options fixed_chunks(std::uint64_t count, Policy policy = Policy::budget) {
  return {policy, count * 2 - 1, 2, {}};  // the last one is a short one
}

std::vector<Worker> some_workers(unsigned staged, unsigned in_place) {
  std::vector<Worker> workers;
  for (unsigned i = 0; i < staged + in_place; ++i) workers.push_back(a_worker(i, i >= staged, {{0, 1}}));
  return workers;
}

struct Case {
  std::uint64_t chunks, budget;
  unsigned staged, in_place;
  Mishaps mishaps;
  std::uint64_t least_endings;
  Policy policy = Policy::budget;
};

void walk_all(std::initializer_list<Case> cases) {
  for (const Case &each : cases) {
    if (each.least_endings >= 10'000 && kThinning > 1) continue;
    const std::uint64_t endings = AllOrders(fixed_chunks(each.chunks, each.policy),
                                            some_workers(each.staged, each.in_place), a_pool(each.budget), each.mishaps)
                                      .count();
    EXPECT_GE(endings, each.least_endings) << each.chunks << " chunks, budget " << each.budget << ", " << each.staged
                                           << " + " << each.in_place << " workers";
  }
}

TEST(HybridLedgerAllOrders, WithoutMishaps) {
  walk_all({{4, 1, 1, 1, {}, 16},  // one at a time, either of two: 2 to the power of 4
            {5, 1, 1, 2, {}, 243},
            {5, 2, 1, 1, {}, 16},
            {5, 2, 1, 2, {}, 16},
            {5, 2, 2, 1, {}, 16}});
}

TEST(HybridLedgerAllOrders, Failures) {
  walk_all({{5, 1, 1, 1, {2}, 200}, {5, 2, 1, 1, {2}, 3000}, {4, 2, 2, 1, {3}, 40'000}, {4, 2, 1, 2, {3}, 40'000}});
}

TEST(HybridLedgerAllOrders, GivenUpAndBack) {
  walk_all({{5, 1, 1, 1, {0, 2}, 150},
            {5, 2, 1, 1, {0, 2}, 20'000},
            {4, 2, 2, 0, {1, 2}, 5000},
            {4, 2, 2, 1, {1, 1}, 10'000},
            {3, 2, 2, 1, {1, 2}, 10'000}});
}

TEST(HybridLedgerAllOrders, ResultsOfNoUse) {
  walk_all({{4, 2, 1, 1, {0, 1, 0, 1}, 2000}, {3, 2, 2, 1, {0, 1, 0, 1}, 10'000}, {3, 2, 1, 1, {1, 2, 0, 1}, 3000}});
}

TEST(HybridLedgerAllOrders, AmountsThatChange) {
  walk_all({{4, 1, 1, 1, {0, 0, 2}, 2000}, {4, 2, 2, 1, {1, 0, 1}, 40'000}, {4, 2, 1, 1, {1, 1, 1}, 3000}});
}

TEST(HybridLedgerAllOrders, Free) { walk_all({{3, 1, 2, 1, {1, 1}, 30'000, Policy::free}}); }

// The rule's own sizes, and what it takes back from those who are late: a byte takes a second, and so does an event.
TEST(HybridLedgerAllOrders, Automatic) {
  walk_all({{3, 1, 1, 1, {1, 1}, 5, Policy::automatic},
            {2, 2, 1, 1, {1, 1}, 500, Policy::automatic},
            {3, 2, 1, 1, {0, 1}, 4000, Policy::automatic},
            {2, 2, 2, 1, {}, 300, Policy::automatic}});
}

// ---- random orders of larger jobs ------------------------------------------------------------------

struct Totals {
  unsigned done = 0, stranded = 0, contested = 0, disclaimed = 0;
};

void run_at_random(std::uint64_t seed, Totals &totals) {
  Random random(seed);
  ResourcePool pool;
  const unsigned cpu = pool.index("cpu"), pinned = pool.index("pinned_mib");
  std::vector<Worker> workers;
  const auto count = static_cast<unsigned>(random.between(1, 6));
  for (unsigned i = 0; i < count; ++i) {
    Needs needs;
    if (random.chance(70)) needs.push_back({cpu, random.between(1, 2)});
    if (random.chance(40)) needs.push_back({pinned, random.between(1, 64)});
    const double speed = random.chance(20) ? 0 : static_cast<double>(random.between(1, 100));  // 0: to be learned
    workers.push_back(a_worker(i, random.chance(40), std::move(needs), speed));
    workers.back().knee_bytes = random.chance(50) ? 0 : static_cast<double>(random.between(1, 20));
    if (random.chance(20)) workers.back().most_bytes = static_cast<double>(random.between(1, 50));
    if (random.chance(20)) workers.back().start_up_seconds = static_cast<double>(random.between(1, 10));
  }
  pool.set(cpu, random.between(2, 5));
  pool.set(pinned, random.between(64, 100));
  Ledger::Options options;
  options.policy = static_cast<Policy>(random.below(3));
  options.work_bytes = random.between(1, 400);
  options.chunk_bytes = random.between(1, 40);
  if (random.chance(50)) options.cut = [](std::uint64_t at) { return (at + 7) / 8 * 8; };
  Job job(options, workers, pool);

  for (unsigned step = 0; !job.ledger.is_done(); ++step) {
    ASSERT_LT(step, 100'000u) << "seed " << seed;
    job.now += random.chance(90) ? 0.1 : static_cast<double>(random.below(200));
    bool something = false;
    // Everybody asks, in some order; some are late.
    for (const unsigned w : random.pick(count, count)) {
      if (job.in_use[w] || random.chance(20)) continue;
      something = job.take(w) || something;
    }
    job.check();
    if (random.chance(10)) pool.set(cpu, random.between(2, 5));
    if (job.running.empty()) {
      // Those that were left out above ask now.
      for (unsigned w = 0; w < count && !something; ++w) something = job.take(w);
      if (something) continue;
      const double look = job.ledger.next_look_seconds(job.now);
      if (std::isfinite(look)) {
        job.now = look;
        continue;
      }
      ASSERT_TRUE(job.ledger.is_stranded()) << "seed " << seed << ": nothing runs, nobody takes";
      ++totals.stranded;
      return;
    }
    const std::size_t which = random.below(job.running.size());
    const bool staged = !job.ledger.worker(job.running[which].chunk.worker).writes_in_place;
    if (job.running[which].claimed) {
      if (random.chance(40)) job.finish(which);
    } else if (staged && random.chance(20)) {
      job.claim(which);  // time passes until it is copied out
    } else if (staged && random.chance(5)) {
      const std::uint64_t id = job.running[which].chunk.id;
      const std::vector<Range> ranges = job.ledger.claim(id);
      job.end(which);
      job.ledger.finish(id, job.now);
      for (const Range &each : ranges) job.ledger.disclaim(each);
      ++totals.disclaimed;
    } else if (random.chance(3)) {
      job.fail(which);
    } else if (staged && !job.running[which].given_up && random.chance(10)) {
      job.give_up(which);
      ++totals.contested;
    } else if (random.chance(60)) {
      job.finish(which);
    }
    job.check();
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "seed " << seed << ", step " << step;
      return;
    }
  }
  EXPECT_TRUE(job.is_whole()) << "seed " << seed;
  // What is still in hand comes to nothing, whoever says so when: nothing is given out once more.
  while (!job.running.empty()) {
    const Running it = job.end(random.below(job.running.size()));
    if (it.claimed) {
      EXPECT_TRUE(it.own.empty()) << "seed " << seed;
      job.ledger.finish(it.chunk.id, job.now);
    } else if (random.chance(50)) {
      EXPECT_TRUE(job.ledger.claim(it.chunk.id).empty()) << "seed " << seed;
      job.ledger.finish(it.chunk.id, job.now);
    } else {
      job.ledger.fail(it.chunk.id);
    }
  }
  EXPECT_EQ(pool.held(cpu), 0u);
  EXPECT_EQ(pool.held(pinned), 0u);
  ++totals.done;
}

TEST(HybridLedger, RandomOrders) {
  Totals totals;
  for (std::uint64_t seed = 0; seed < thinned(20'000); ++seed) {
    run_at_random(seed, totals);
    if (HasFailure()) return;
  }
  EXPECT_GT(totals.done, thinned(10'000));
  EXPECT_GT(totals.stranded, thinned(100));
  EXPECT_GT(totals.contested, thinned(1000));
  EXPECT_GT(totals.disclaimed, thinned(1000));
}

TEST(HybridLedger, NeedsBeyondTheAmountAreRefusedAtOnce) {
  ResourcePool pool = a_pool(1);
  try {
    Ledger(fixed_chunks(1), {a_worker(0, true, {{0, 2}})}, pool);
    FAIL() << "accepted";
  } catch (const base::Error &error) {
    EXPECT_EQ(error.status(), TANDEM_ERROR_INVALID_ARGUMENT);
    EXPECT_STREQ(error.what(), "a task needs 2 of resource \"cpu\"; there is 1 in all");
  }
}

// ---- the pool --------------------------------------------------------------------------------------

// One of two devices fails while it waits for what the other holds: its place in the order of asking goes with it.
TEST(HybridLedger, WhoIsRetiredWaitsForNothing) {
  ResourcePool pool;
  const unsigned gpu = pool.index("gpu");
  pool.set(gpu, 1);
  std::vector<Worker> workers;
  for (const char *name : {"a", "b"}) {
    Worker worker{name, Estimate(0, 0, 1)};
    worker.needs = {{gpu, 1}};
    workers.push_back(std::move(worker));
  }
  constexpr std::uint64_t kChunks = 4 * ResourcePool::kMostOvertaken;
  Ledger ledger({Policy::budget, kChunks, 1, {}}, std::move(workers), pool);
  std::optional<hybrid::Chunk> chunk = ledger.take(0, 0);
  ASSERT_TRUE(chunk.has_value());
  EXPECT_FALSE(ledger.take(1, 0).has_value());
  ledger.retire(1);
  for (std::uint64_t done = 1;; ++done) {
    for (const hybrid::Range &each : ledger.claim(chunk->id)) ledger.committed(each.bytes());
    ledger.finish(chunk->id, 0);
    if (done == kChunks) break;
    chunk = ledger.take(0, 0);
    ASSERT_TRUE(chunk.has_value()) << "after " << done << " chunks";
  }
  EXPECT_TRUE(ledger.is_done());
  EXPECT_EQ(pool.waiting(), 0u);
}

TEST(HybridPool, AllOrNothing) {
  ResourcePool pool;
  const unsigned cpu = pool.index("cpu"), gpu = pool.index("gpu");
  pool.set(cpu, 2);
  pool.set(gpu, 1);
  EXPECT_TRUE(pool.try_take(1, {{cpu, 1}, {gpu, 1}}));
  EXPECT_FALSE(pool.try_take(2, {{cpu, 1}, {gpu, 1}}));
  EXPECT_EQ(pool.held(cpu), 1u) << "what is there of the first is not taken without the second";
  pool.give_back({{cpu, 1}, {gpu, 1}});
  EXPECT_TRUE(pool.try_take(2, {{cpu, 1}, {gpu, 1}}));
  EXPECT_EQ(pool.waiting(), 0u);
}

TEST(HybridPool, ALargeNeedIsNotStarvedBySmallOnes) {
  ResourcePool pool = a_pool(2);
  ASSERT_TRUE(pool.try_take(1, {{0, 1}}));
  ASSERT_FALSE(pool.try_take(99, {{0, 2}}));
  // Two that take turns: without a rule there is never more than one free.
  unsigned overtaken = 0;
  for (std::uint64_t asker = 2; pool.try_take(asker, {{0, 1}}); ++asker) {
    ASSERT_LE(++overtaken, ResourcePool::kMostOvertaken);
    pool.give_back({{0, 1}});
  }
  EXPECT_EQ(overtaken, ResourcePool::kMostOvertaken);
  pool.give_back({{0, 1}});
  EXPECT_TRUE(pool.try_take(99, {{0, 2}}));
}

// However many ask for whatever: who waits is overtaken by those who take what it lacks at most so many times.
TEST(HybridPool, NobodyIsOvertakenForEver) {
  struct Asker {
    Needs needs;
    bool waits = false, holds = false;
    unsigned overtaken = 0;
    std::uint64_t since = 0;
  };
  Random random(31);
  for (int round = 0; round < 300; ++round) {
    ResourcePool pool;
    const unsigned resources[] = {pool.index("a"), pool.index("b")};
    for (const unsigned resource : resources) pool.set(resource, random.between(4, 8));
    std::vector<Asker> askers(8);
    for (Asker &each : askers)
      for (const unsigned resource : resources)
        if (random.chance(60)) each.needs.push_back({resource, random.between(1, 4)});
    const auto lacks = [&](const Asker &waiter, const Asker &taker) {
      return std::any_of(waiter.needs.begin(), waiter.needs.end(), [&](const auto &need) {
        return pool.free(need.resource) < need.amount &&
               std::any_of(taker.needs.begin(), taker.needs.end(),
                           [&](const auto &taken) { return taken.resource == need.resource; });
      });
    };
    for (std::uint64_t step = 1; step < 3000; ++step) {
      const auto which = random.below(askers.size());
      Asker &asker = askers[which];
      if (asker.holds) {
        pool.give_back(asker.needs);
        asker.holds = false;
        continue;
      }
      std::vector<Asker *> passed;
      for (Asker &other : askers)
        if (other.waits && &other != &asker && (!asker.waits || other.since < asker.since) && lacks(other, asker))
          passed.push_back(&other);
      const bool fits = std::all_of(asker.needs.begin(), asker.needs.end(),
                                    [&](const auto &need) { return pool.free(need.resource) >= need.amount; });
      asker.holds = pool.try_take(which, asker.needs);
      if (asker.holds) {
        ASSERT_TRUE(fits);
        for (Asker *other : passed) ASSERT_LE(++other->overtaken, ResourcePool::kMostOvertaken);
        asker.waits = false;
        asker.overtaken = 0;
      } else if (!asker.waits) {
        asker.waits = true;
        asker.since = step;
      }
      for (const unsigned resource : resources) ASSERT_LE(pool.held(resource), pool.amount(resource));
    }
    // Nobody takes any more: all who wait are served, one after the other.
    for (Asker &each : askers)
      if (each.holds) pool.give_back(each.needs);
    for (std::uint64_t i = 0; i < askers.size(); ++i) {
      if (!askers[i].waits) continue;
      ASSERT_TRUE(pool.try_take(i, askers[i].needs));
      pool.give_back(askers[i].needs);
    }
    ASSERT_EQ(pool.waiting(), 0u);
  }
}

TEST(HybridPool, WhoCannotBeServedAnyMoreKeepsNobodyWaiting) {
  ResourcePool pool = a_pool(3);
  ASSERT_TRUE(pool.try_take(1, {{0, 1}}));
  ASSERT_FALSE(pool.try_take(99, {{0, 3}}));
  for (unsigned i = 0; i < ResourcePool::kMostOvertaken; ++i) {
    ASSERT_TRUE(pool.try_take(2, {{0, 1}}));
    pool.give_back({{0, 1}});
  }
  ASSERT_FALSE(pool.try_take(2, {{0, 1}}));
  pool.set(0, 2);  // never 3 again, unless somebody says so
  EXPECT_TRUE(pool.try_take(2, {{0, 1}}));
  pool.give_back({{0, 1}});
  pool.set(0, 3);
  EXPECT_FALSE(pool.try_take(2, {{0, 1}}));
  pool.give_back({{0, 1}});
  EXPECT_TRUE(pool.try_take(99, {{0, 3}}));
}

TEST(HybridPool, WhoLeavesKeepsNobodyWaiting) {
  ResourcePool pool = a_pool(2);
  ASSERT_TRUE(pool.try_take(1, {{0, 1}}));
  ASSERT_FALSE(pool.try_take(99, {{0, 2}}));
  for (unsigned i = 0; i < ResourcePool::kMostOvertaken; ++i) {
    ASSERT_TRUE(pool.try_take(2, {{0, 1}}));
    pool.give_back({{0, 1}});
  }
  ASSERT_FALSE(pool.try_take(2, {{0, 1}}));
  pool.leave(99);
  EXPECT_TRUE(pool.try_take(2, {{0, 1}}));
}

}  // namespace
}  // namespace tandem::test
