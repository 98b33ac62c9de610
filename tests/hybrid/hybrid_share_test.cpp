// SPDX-License-Identifier: Apache-2.0
// One run shared between lanes. In every order of events, each byte is committed once, and no run gets stuck.
#include "hybrid/policy/share.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/random.hpp"
#include "tests/support/thinned.hpp"

namespace tandem::test {
namespace {

using hybrid::Group;
using hybrid::Piece;
using hybrid::Policy;
using hybrid::Range;
using hybrid::RangeSet;
using hybrid::Share;
using hybrid::Speed;

constexpr std::uint64_t kGrain = 1024;

// ---- orders of events

// What happens next is one of `count` things.
class Order {
 public:
  virtual ~Order() = default;
  virtual unsigned pick(unsigned count) = 0;
  // A lane that asks in vain changes nothing: the same orders without that are walked as well.
  virtual bool leaves_out_vain_events() const { return false; }
};

// Each order once: runs again from the start, with the last pick that was not its last one changed.
class EveryOrder : public Order {
 public:
  unsigned pick(unsigned count) override {
    if (at_ == picks_.size()) picks_.push_back({0, count});
    EXPECT_EQ(picks_[at_].count, count) << "the run is not repeatable";
    return picks_[at_++].chosen;
  }
  bool leaves_out_vain_events() const override { return true; }
  bool next() {
    picks_.resize(at_);
    at_ = 0;
    while (!picks_.empty() && picks_.back().chosen + 1 == picks_.back().count) picks_.pop_back();
    if (picks_.empty()) return false;
    ++picks_.back().chosen;
    return true;
  }
  std::string text() const {
    std::string list;
    for (const Pick &each : picks_) list += ' ' + std::to_string(each.chosen);
    return list;
  }

 private:
  struct Pick {
    unsigned chosen, count;
  };
  std::vector<Pick> picks_;
  std::size_t at_ = 0;
};

// ---- a run as its owner sees it

// How often each may happen in one run.
struct Mishaps {
  unsigned fail = 0, drop = 0, give_up = 0, disclaim = 0, look = 0, hang = 0;
};

struct Totals {
  std::uint64_t done = 0, stranded = 0, returned = 0, contested = 0, rescued = 0, wasted = 0;
};

struct Setting {
  Share::Options options;
  std::vector<Group> groups;
  Mishaps mishaps;
  std::uint64_t step = 1;  // the work is cut at multiples of this
  double event_seconds = 0;
};

class Run {
 public:
  Run(const Setting &setting, Order &order, Totals &totals)
      : setting_(setting),
        share_(setting.options, setting.groups),
        order_(order),
        totals_(totals),
        left_(setting.mishaps) {
    for (unsigned g = 0; g < setting.groups.size(); ++g)
      for (unsigned i = 0; i < setting.groups[g].lanes; ++i) lanes_.push_back({g, setting.groups[g].is_in_place});
    for (unsigned i = 0; i < lanes_.size(); ++i) share_.enter(i);
  }

  void run() {
    while (!share_.is_done()) {
      const std::vector<Event> events = possible();
      if (!events.empty()) {
        now_ += setting_.event_seconds;
        is_vain_ = false;
        happen(events[order_.pick(static_cast<unsigned>(events.size()))]);
      } else if (!go_on()) {
        ++totals_.stranded;
        return;
      }
      if (is_vain_ && order_.leaves_out_vain_events()) return;
      check();
      if (testing::Test::HasFailure()) return;  // one is enough to read
    }
    EXPECT_EQ(done_.bytes(), setting_.options.work_bytes);
    end();
    ++totals_.done;
  }

 private:
  enum class What { take, claim, finish, fail, drop, give_up, disclaim, look };
  struct Event {
    What what;
    unsigned lane;
  };
  struct Lane {
    unsigned group;
    bool in_place;
    bool busy = false, retired = false;
    bool tried = false;  // there was nothing for it, and nothing has happened since
    // What it has in hand.
    std::optional<std::uint64_t> piece = {};  // none: a chunk of the front
    Range range = {};
    double start = 0;
    bool claimed = false, given_up = false, hangs = false;
    std::vector<Range> own = {};  // of what it claimed
  };

  std::vector<Event> possible() const {
    std::vector<Event> events;
    const auto add = [&](What what, unsigned lane, unsigned left = 1) {
      if (left > 0) events.push_back({what, lane});
    };
    for (unsigned i = 0; i < lanes_.size(); ++i) {
      const Lane &lane = lanes_[i];
      if (!lane.busy) {
        if (!lane.tried && !lane.retired) add(What::take, i);
        continue;
      }
      if (!lane.in_place && !lane.claimed && !lane.given_up) add(What::give_up, i, left_.give_up);
      if (lane.hangs) continue;
      if (lane.in_place || lane.claimed) {
        add(What::finish, i);
        if (lane.in_place) add(What::fail, i, left_.fail);
        continue;
      }
      add(What::claim, i);
      add(What::fail, i, left_.fail);
      add(What::drop, i, left_.drop);
      add(What::disclaim, i, left_.disclaim);
    }
    if (!looked_) add(What::look, 0, left_.look);
    return events;
  }

  void happen(const Event &event) {
    Lane &lane = lanes_[event.lane];
    switch (event.what) {
      case What::take:
        if (take(event.lane)) break;
        lane.tried = true;
        is_vain_ = is_anything_else_possible(event.lane);
        return;
      case What::look:
        --left_.look;
        looked_ = true;
        is_vain_ = !look();
        return;
      case What::claim:
        claim(lane);
        break;
      case What::finish:
        finish(event.lane);
        break;
      case What::fail:
        --left_.fail;
        fail(event.lane);
        break;
      case What::drop:
        --left_.drop;
        share_.drop(*lane.piece);
        lane = {lane.group, lane.in_place, false, lane.retired};
        break;
      case What::give_up:
        --left_.give_up;
        give_up(lane);
        break;
      case What::disclaim:
        --left_.disclaim;
        disclaim(lane);
        break;
    }
    something_happened();
  }

  bool is_anything_else_possible(unsigned lane) const {
    const std::vector<Event> events = possible();
    return std::any_of(events.begin(), events.end(),
                       [&](const Event &each) { return each.what != What::take || each.lane < lane; });
  }

  void something_happened() {
    looked_ = false;
    for (Lane &each : lanes_) each.tried = false;
  }

  bool take(unsigned index) {
    Lane &lane = lanes_[index];
    std::optional<Piece> piece;
    Range range;
    if (lane.in_place) {
      range = share_.take_front(index, now_);
      if (range.bytes() == 0) piece = share_.take_returned(index, now_);
    } else {
      piece = share_.take_back(index, now_);
    }
    if (piece) {
      range = piece->range;
      lane.piece = piece->id;
    }
    if (range.bytes() == 0) return false;
    check_taken(range);
    if (lane.in_place && piece) ++totals_.returned;
    lane.busy = true;
    lane.range = range;
    lane.start = now_;
    if (!lane.in_place && left_.hang > 0 && order_.pick(2) == 1) {
      --left_.hang;
      lane.hangs = true;
    }
    return true;
  }

  void check_taken(const Range &range) const {
    EXPECT_LT(range.begin, range.end);
    EXPECT_LE(range.end, setting_.options.work_bytes);
    for (const std::uint64_t at : {range.begin, range.end})
      EXPECT_TRUE(at % setting_.step == 0 || at == setting_.options.work_bytes) << at << " is no place to cut";
    EXPECT_EQ(done_.missing(range), std::vector{range}) << "parts of it are committed";
    for (const Lane &other : lanes_) {
      const bool overlaps = other.busy && other.range.begin < range.end && range.begin < other.range.end;
      if (!overlaps) continue;
      EXPECT_FALSE(other.in_place) << "it is being written in place";
      EXPECT_TRUE(other.given_up || looks_contested_) << "it is in hand";
      for (const Range &own : other.own)
        EXPECT_TRUE(own.end <= range.begin || range.end <= own.begin) << "its worker is writing it";
    }
  }

  void claim(Lane &lane) {
    lane.own = share_.claim(*lane.piece);
    lane.claimed = true;
    std::uint64_t own = 0;
    for (const Range &each : lane.own) own += each.bytes();
    totals_.wasted += own < lane.range.bytes();
  }

  void commit(unsigned index, const Range &range) {
    EXPECT_EQ(done_.missing(range), std::vector{range}) << "twice";
    done_.add(range);
    if (lanes_[index].in_place) {
      share_.finish_chunk(index, range, now_ - lanes_[index].start);
    } else {
      share_.add_done(index, range.bytes());
    }
    EXPECT_EQ(share_.is_done(), done_.bytes() == setting_.options.work_bytes);
  }

  void finish(unsigned index) {
    Lane &lane = lanes_[index];
    if (lane.in_place) {
      commit(index, lane.range);
    } else {
      for (const Range &each : lane.own) commit(index, each);
    }
    if (lane.piece) share_.finish(*lane.piece, now_);
    lane = {lane.group, lane.in_place, false, lane.retired};
  }

  // Its worker is gone, and has written nothing.
  void fail(unsigned index) {
    Lane &lane = lanes_[index];
    if (!lane.piece) {
      share_.put_back(lane.range);
      share_.retire(index);
    } else {
      share_.fail(*lane.piece);
    }
    lane = {lane.group, lane.in_place, false, true};
  }

  void give_up(Lane &lane) {
    share_.give_up(*lane.piece);
    lane.given_up = lane.retired = true;
    ++totals_.contested;
  }

  // Its result turns out to be of no use when it is to be written.
  void disclaim(Lane &lane) {
    const std::vector<Range> own = share_.claim(*lane.piece);
    share_.finish(*lane.piece, now_);
    for (const Range &each : own) share_.disclaim(each);
    lane = {lane.group, lane.in_place, false, lane.retired};
  }

  bool look() {
    if (!share_.look(now_)) return false;
    looks_contested_ = true;
    ++totals_.rescued;
    something_happened();
    return true;
  }

  // Nothing is left to happen by itself. False: no lane is left that could do the rest.
  bool go_on() {
    const bool is_lane_left =
        std::any_of(lanes_.begin(), lanes_.end(), [](const Lane &each) { return !each.retired && !each.busy; });
    const double next = share_.next_look(now_);
    if (is_lane_left && std::isfinite(next) && ++idle_looks_ < 100) {
      EXPECT_GT(next, now_);
      now_ = next;
      if (!look()) something_happened();
      return true;
    }
    // What hangs is given up at last.
    for (Lane &each : lanes_) {
      if (!each.hangs || each.given_up) continue;
      give_up(each);
      something_happened();
      idle_looks_ = 0;
      return true;
    }
    EXPECT_FALSE(is_lane_left) << "stuck: " << share_.left_bytes() << " bytes are left, and idle lanes get none";
    return false;
  }

  // The bytes that no lane has, and that are not committed.
  RangeSet nobodys() const {
    RangeSet rest;
    rest.add({0, setting_.options.work_bytes});
    for (const Range &each : done_ranges()) rest.remove(each);
    for (const Lane &each : lanes_) {
      if (!each.busy) continue;
      for (const Range &own : each.own) rest.remove(own);
      // Of what was given up the others may have a part by now.
      if (!each.given_up && !(looks_contested_ && !each.in_place)) rest.remove(each.range);
    }
    return rest;
  }
  std::vector<Range> done_ranges() const {
    std::vector<Range> list;
    RangeSet rest = done_;
    for (; !rest.empty(); rest.remove(list.back())) list.push_back(rest.first());
    return list;
  }

  void check() const {
    // Exact, but for the last grain, for grains that no cut is in, and for what a look has given to the others.
    const std::uint64_t left = share_.left_bytes();
    RangeSet most = nobodys(), least = most;
    if (looks_contested_)
      for (const Lane &each : lanes_)
        if (each.busy) least.remove(each.range);
    const std::uint64_t slack = setting_.step == 1 ? kGrain - 1 : kGrain + setting_.step;
    EXPECT_LE(left, most.bytes() + slack);
    EXPECT_GE(left + (setting_.step == 1 ? 0 : slack), least.bytes());
    EXPECT_EQ(share_.is_done(), done_.bytes() == setting_.options.work_bytes);
    std::uint64_t by_groups = 0;
    for (std::size_t g = 0; g < setting_.groups.size(); ++g) by_groups += share_.done_by(g);
    EXPECT_EQ(by_groups, done_.bytes());
  }

  // Chunks in work are discarded, finished or not, and no lane gets more.
  void end() {
    const auto none_takes = [&] {
      for (unsigned i = 0; i < lanes_.size(); ++i) {
        if (lanes_[i].busy) continue;
        if (lanes_[i].in_place) {
          EXPECT_EQ(share_.take_front(i, now_).bytes(), 0u);
          EXPECT_FALSE(share_.take_returned(i, now_).has_value());
        } else {
          EXPECT_FALSE(share_.take_back(i, now_).has_value());
        }
      }
    };
    none_takes();
    for (Lane &lane : lanes_) {
      if (!lane.busy) continue;
      EXPECT_FALSE(lane.in_place);
      switch (lane.claimed ? 0 : order_.pick(3)) {
        case 0:
          if (!lane.claimed) lane.own = share_.claim(*lane.piece);
          EXPECT_TRUE(lane.own.empty());
          share_.finish(*lane.piece, now_);
          break;
        case 1:
          share_.drop(*lane.piece);
          break;
        default:
          share_.fail(*lane.piece);
      }
      lane.busy = false;
      none_takes();
    }
    EXPECT_EQ(share_.left_bytes(), 0u);
  }

  const Setting &setting_;
  Share share_;
  Order &order_;
  Totals &totals_;
  Mishaps left_;
  std::vector<Lane> lanes_;
  RangeSet done_;
  double now_ = 0;
  bool is_vain_ = false, looked_ = false, looks_contested_ = false;
  unsigned idle_looks_ = 0;
};

std::uint64_t cut_at(std::uint64_t at, std::uint64_t step, std::uint64_t end) {
  return std::min((at + step - 1) / step * step, end);
}

// A device that comes after the CPU's first chunk takes as much as one that comes before it: those chunks are not done.
TEST(HybridShare, ChunksUnderWayCount) {
  const auto piece = [](bool is_cpu_first) {
    Share share({Policy::automatic, 64 << 20}, {{4, true, Speed(0, 1e9)}, {1, false, Speed(1e-3, 4e9)}});
    for (unsigned lane = 0; lane < 5; ++lane) share.enter(lane);
    for (unsigned lane = 0; is_cpu_first && lane < 4; ++lane) EXPECT_GT(share.take_front(lane, 0).bytes(), 1u << 20);
    return static_cast<double>(share.take_back(4, 0)->range.bytes());
  };
  EXPECT_GT(piece(false), 1e6);
  EXPECT_NEAR(piece(true) / piece(false), 1, 1e-3);
}

// The first chunk of a CPU lane of unknown speed is a small part of the work, and never long.
TEST(HybridShare, TheFirstChunkIsASmallPart) {
  for (const std::uint64_t work : {std::uint64_t{64} << 20, std::uint64_t{64} << 30}) {
    Share share({Policy::automatic, work}, {{2, true}});
    share.enter(0);
    EXPECT_EQ(share.take_front(0, 0).bytes(), std::min(work / 4096, std::uint64_t{64} << 10));
  }
}

// However soon the end is, a lane of a device that gets nothing waits for 20 microseconds before it asks again.
TEST(HybridShare, LooksAreNotTooFrequent) {
  for (const double cpu_speed : {30e9, 1e9, 1e6}) {
    Share share({Policy::automatic, 64 << 10}, {{1, true, Speed(0, cpu_speed)}, {1, false, Speed(10, 30e9)}});
    for (unsigned lane = 0; lane < 2; ++lane) share.enter(lane);
    ASSERT_FALSE(share.take_back(1, 0));
    EXPECT_NEAR(share.next_look(0), std::max(20e-6, 65536 / cpu_speed), 2e-6) << cpu_speed;
  }
}

// ---- random orders of events of larger runs, with all mishaps

class RandomOrder : public Order {
 public:
  explicit RandomOrder(std::uint64_t seed) : random_(seed) {}
  unsigned pick(unsigned count) override { return static_cast<unsigned>(random_.below(count)); }

 private:
  Random random_;
};

Totals walk_random(std::uint64_t count) {
  Totals totals;
  for (std::uint64_t seed = 0; seed < count && !testing::Test::HasFailure(); ++seed) {
    Random random(seed);
    const auto below = [&](std::uint64_t end) { return static_cast<unsigned>(random.below(end)); };
    Setting setting;
    setting.options.policy = random.chance(50) ? Policy::automatic : Policy::free;
    setting.options.work_bytes = random.between(1, 200 * kGrain);
    setting.options.chunk_bytes = random.between(1, 16 * kGrain);
    if (random.chance(30)) {
      setting.step = random.between(2, 5000);
      const std::uint64_t end = setting.options.work_bytes, step = setting.step;
      setting.options.cut = [=](std::uint64_t at) { return std::min((at + step - 1) / step * step, end); };
    }
    setting.event_seconds = 1e-6 * static_cast<double>(random.between(1, 20));
    if (random.chance(80)) setting.groups.push_back({1 + below(8), true});
    for (unsigned devices = 1 + below(3); devices > 0; --devices) {
      Group device{1 + below(3), false, {}, static_cast<double>(random.between(1, 32 * kGrain))};
      if (random.chance(50)) device.speed = Speed(1e-6 * (1 + below(100)), 1e8 * (1 + below(50)));
      if (random.chance(30)) device.most_bytes = static_cast<double>(random.between(kGrain, 20 * kGrain));
      setting.groups.push_back(device);
    }
    setting.mishaps = {below(3), below(3), below(3), below(2), below(4), below(2)};
    RandomOrder order(seed);
    Run(setting, order, totals).run();
    if (testing::Test::HasFailure()) ADD_FAILURE() << "seed " << seed;
  }
  return totals;
}

TEST(HybridShareRandomOrders, LargeRuns) {
  const Totals totals = walk_random(thinned(20'000));
  EXPECT_GT(totals.done, thinned(10'000));
  EXPECT_GT(totals.returned, thinned(1000));
  EXPECT_GT(totals.contested, thinned(1000));
  EXPECT_GT(totals.rescued, thinned(1000));
  EXPECT_GT(totals.wasted, thinned(1000));
}

// ---- threads

// CPU lanes take without the lock while lanes of devices take, fail and are given up under it. Each byte is written
// once.
TEST(HybridShareThreads, EveryByteIsWrittenOnce) {
  constexpr unsigned kCores = 3, kDevices = 2;
  for (std::uint64_t round = 0; round < thinned(300); ++round) {
    constexpr std::uint64_t kWork = 300 * kGrain + 17;
    std::vector<std::uint8_t> written(kWork);
    Share share({round % 2 == 0 ? Policy::automatic : Policy::free, kWork, 2 * kGrain},
                {{kCores, true}, {kDevices, false, {}, 8.0 * kGrain}});
    std::mutex mutex;
    std::atomic<bool> go{false};
    const auto write = [&](const Range &range) {
      for (std::uint64_t at = range.begin; at < range.end; ++at) ++written[at];
    };
    const auto now = [start = std::chrono::steady_clock::now()] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    const auto core = [&](unsigned lane) {
      while (!go) std::this_thread::yield();
      while (!share.is_done()) {
        const double start = now();
        Range range = share.take_front(lane, start);
        std::optional<Piece> returned;
        if (range.bytes() == 0) {
          const std::lock_guard lock(mutex);
          share.look(start);
          returned = share.take_returned(lane, start);
          if (!returned) continue;
          range = returned->range;
        }
        write(range);
        share.finish_chunk(lane, range, now() - start);
        if (!returned) continue;
        const std::lock_guard lock(mutex);
        share.finish(returned->id, now());
      }
    };
    const auto device = [&](unsigned lane) {
      Random random(round * kDevices + lane);
      while (!go) std::this_thread::yield();
      std::unique_lock lock(mutex);
      while (!share.is_done() && !share.is_retired(lane)) {
        const std::optional<Piece> piece = share.take_back(lane, now());
        lock.unlock();
        std::this_thread::yield();
        lock.lock();
        if (!piece) continue;
        const std::uint64_t what = random.below(8);
        if (what == 0) {
          share.drop(piece->id);
          continue;
        }
        if (what == 1 && lane == kCores) {
          share.give_up(piece->id);  // and then it answers
          lock.unlock();
          std::this_thread::yield();
          lock.lock();
        }
        const std::vector<Range> own = share.claim(piece->id);
        lock.unlock();
        std::uint64_t bytes = 0;
        for (const Range &each : own) {
          write(each);
          bytes += each.bytes();
        }
        share.add_done(lane, bytes);
        lock.lock();
        share.finish(piece->id, now());
      }
    };
    for (unsigned lane = 0; lane < kCores + kDevices; ++lane) share.enter(lane);
    std::vector<std::thread> threads;
    for (unsigned lane = 0; lane < kCores; ++lane) threads.emplace_back(core, lane);
    for (unsigned lane = kCores; lane < kCores + kDevices; ++lane) threads.emplace_back(device, lane);
    go = true;
    for (std::thread &each : threads) each.join();
    ASSERT_TRUE(std::all_of(written.begin(), written.end(), [](std::uint8_t times) { return times == 1; })) << round;
  }
}

// ---- every order of events of small runs

struct Case {
  std::uint64_t grains;
  std::vector<Group> groups;
  Mishaps mishaps;
  std::uint64_t least_orders;
  Policy policy = Policy::free;
  std::uint64_t step = 1;
};

// A grain takes the shortest time that a chunk may take, and so does an event.
constexpr double kEventSeconds = 5e-6, kGrainsPerSecond = static_cast<double>(kGrain) / kEventSeconds;
Group cpu(unsigned lanes, bool is_known = true) {
  return {lanes, true, is_known ? Speed(0, kGrainsPerSecond) : Speed()};
}
Group device(unsigned lanes, bool is_known = true) {
  return {lanes, false, is_known ? Speed(kEventSeconds / 10, kGrainsPerSecond) : Speed(),
          2 * static_cast<double>(kGrain)};
}

Totals walk_all(std::initializer_list<Case> cases) {
  Totals totals;
  for (const Case &each : cases) {
    if (each.least_orders >= 20'000 && kThinning > 1) continue;
    Setting setting{
        {each.policy, each.grains * kGrain - 1, kGrain}, each.groups, each.mishaps, each.step, kEventSeconds};
    const std::uint64_t end = setting.options.work_bytes, step = each.step;
    if (step > 1) setting.options.cut = [=](std::uint64_t at) { return cut_at(at, step, end); };
    EveryOrder order;
    std::uint64_t count = 0;
    do {
      Run(setting, order, totals).run();
      ++count;
      if (testing::Test::HasFailure()) {
        ADD_FAILURE() << each.grains << " grains, " << each.groups.size() << " groups, order" << order.text();
        return totals;
      }
    } while (order.next());
    EXPECT_GE(count, each.least_orders) << each.grains << " grains, " << each.groups.size() << " groups";
  }
  return totals;
}

TEST(HybridShareAllOrders, WithoutMishaps) {
  walk_all({{5, {cpu(2)}, {}, 1},
            {4, {cpu(1), device(1)}, {}, 1},
            {3, {cpu(2), device(1)}, {}, 1},
            {3, {cpu(1), device(2)}, {}, 1},
            {4, {device(2)}, {}, 1}});
}

TEST(HybridShareAllOrders, Failures) {
  const Totals totals = walk_all({{4, {cpu(1), device(1)}, {2}, 1},
                                  {3, {cpu(1), device(2)}, {2}, 1},
                                  {3, {cpu(2), device(1)}, {2}, 1},
                                  {3, {cpu(1), device(1)}, {1, 2}, 1}});
  EXPECT_GT(totals.stranded, 0u);
  EXPECT_GT(totals.returned, 0u);
}

TEST(HybridShareAllOrders, GivenUpAndBack) {
  const Totals totals = walk_all({{3, {cpu(1), device(1)}, {0, 0, 1}, 1},
                                  {3, {cpu(1), device(2)}, {0, 0, 1}, 1},
                                  {2, {device(2)}, {0, 0, 2}, 1},
                                  {2, {cpu(1), device(1)}, {1, 1, 2}, 1}});
  EXPECT_GT(totals.contested, 0u);
  EXPECT_GT(totals.wasted, 0u);
}

TEST(HybridShareAllOrders, ResultsOfNoUse) {
  walk_all({{3, {cpu(1), device(1)}, {0, 0, 1, 1}, 1},
            {2, {cpu(1), device(2)}, {0, 0, 1, 1}, 1},
            {2, {cpu(1), device(2)}, {1, 0, 1, 1}, 1}});
}

// The rule's own sizes, and pieces that are late: a grain takes as long as an event.
TEST(HybridShareAllOrders, Automatic) {
  const Totals totals = walk_all({{4, {cpu(1), device(1)}, {}, 1, Policy::automatic},
                                  {3, {cpu(2), device(1)}, {}, 1, Policy::automatic},
                                  {4, {cpu(1), device(1)}, {0, 0, 0, 0, 2, 1}, 1, Policy::automatic}});
  EXPECT_GT(totals.rescued, 0u);
}

TEST(HybridShareAllOrders, CutsThatFitNoGrain) {
  for (const std::uint64_t step : {256, 1000, 1500, 3584, 100'000})
    walk_all({{4, {cpu(1), device(1)}, {1, 0, 1}, 1, Policy::free, step},
              {3, {cpu(1), device(1)}, {0, 0, 0, 0, 1, 1}, 1, Policy::automatic, step}});
}

}  // namespace
}  // namespace tandem::test
