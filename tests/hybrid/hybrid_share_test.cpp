// SPDX-License-Identifier: Apache-2.0
// The rule for sharing one run: the owner of each byte, and the worker that takes the next ones.
#include "hybrid/policy/share.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

using hybrid::Candidate;
using hybrid::finish_seconds;
using hybrid::Piece;
using hybrid::Policy;
using hybrid::Range;
using hybrid::Share;
using hybrid::Speed;
using hybrid::WorkerGroup;

constexpr std::uint64_t kMiB = 1 << 20;

WorkerGroup cpu(double bytes_per_second = 0) {
  WorkerGroup group{1, true};
  if (bytes_per_second > 0) group.speed = Speed(0, bytes_per_second);
  return group;
}

WorkerGroup device(double latency_seconds = 0, double bytes_per_second = 0, unsigned lanes = 1) {
  WorkerGroup group{lanes, false};
  if (bytes_per_second > 0) group.speed = Speed(latency_seconds, bytes_per_second);
  return group;
}

double finish(const std::vector<Candidate> &candidates, double bytes) {
  return finish_seconds([&](auto body) { std::for_each(candidates.begin(), candidates.end(), body); }, bytes);
}

TEST(HybridShare, ThePredictedFinishCountsThoseThatStartBeforeIt) {
  EXPECT_EQ(finish({}, 1), std::numeric_limits<double>::infinity());
  EXPECT_EQ(finish({{0, 0}}, 1), std::numeric_limits<double>::infinity());
  EXPECT_DOUBLE_EQ(finish({{10, 0}}, 20), 2);
  EXPECT_DOUBLE_EQ(finish({{10, 1}}, 20), 3);
  EXPECT_DOUBLE_EQ(finish({{10, 0}, {10, 0}}, 20), 1);
  EXPECT_DOUBLE_EQ(finish({{10, 0}, {10, 1}}, 30), 2);  // 20 + 10
  EXPECT_DOUBLE_EQ(finish({{10, 0}, {1e9, 5}}, 20), 2);
}

// The owner of each byte, and workers that take, compute, commit, are late, fail and hang in any order. In all
// cases each byte is committed once, and a run ends while one worker that can work is left. A late piece loses its end
// to the worker that takes it; but a device that takes all that is left of it computes beside the first one.
TEST(HybridShare, EachByteIsCommittedOnceWhateverHappens) {
  unsigned beside = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Share::Options options;
    options.policy = random.chance(70) ? Policy::automatic : Policy::budget;
    constexpr std::uint64_t kSizes[] = {4, 40'000, 64 * kMiB};
    options.work_bytes = 1 + random.below(kSizes[random.below(3)]);
    options.chunk_bytes = 1 + random.below(options.work_bytes);
    const std::uint64_t grain = random.chance(50) ? 1 : 700;
    const auto work = options.work_bytes;
    options.cut = [=](std::uint64_t at) { return std::min((at + grain - 1) / grain * grain, work); };
    std::vector<WorkerGroup> groups;
    if (random.chance(70)) groups.push_back(cpu(random.chance(50) ? 1e9 : 0));
    for (std::uint64_t i = groups.empty() ? 1 : random.below(2); i < 3; ++i)
      groups.push_back(random.chance(50) ? device(1e-4, 1e9, 1 + i % 2) : device(0, 0, 2));
    Share share(options, groups);
    struct Busy {
      Piece piece;
      Range open;  // what it may still commit
      std::uint64_t computed = 0;
    };
    std::vector<std::optional<Busy>> lanes(share.lane_count());
    std::vector<bool> hangs(share.lane_count());
    std::vector<Range> committed;
    const bool is_first_cpu = groups.front().is_cpu;
    const std::size_t healthy = random.below(share.lane_count());  // this one neither fails nor hangs
    double now = 0;
    unsigned step = 0;
    for (; !share.is_done() && step < 20'000; ++step) {
      now += random.chance(5) ? 0.1 : 1e-4;
      share.look(now);
      const auto lane = static_cast<unsigned>(random.below(lanes.size()));
      if (hangs[lane]) continue;
      if (!lanes[lane]) {
        const auto piece = share.take(lane, now);
        if (!piece) continue;
        const bool is_cpu = is_first_cpu && lane == 0;
        for (auto &each : lanes) {
          if (!each || each->open.end <= piece->range.begin || each->open.begin >= piece->range.end) continue;
          EXPECT_EQ(each->open.end, piece->range.end);
          if (!is_cpu && each->open == piece->range) {
            ++beside;
          } else {
            each->open.end = piece->range.begin;
          }
        }
        lanes[lane] = Busy{*piece, piece->range};
        continue;
      }
      Busy &busy = *lanes[lane];
      const std::uint64_t all = busy.piece.range.bytes(), left = all - busy.computed;
      if (lane != healthy && random.chance(3)) {
        share.drop(busy.piece.id);
        if (random.chance(50)) share.retire(lane);
        lanes[lane].reset();
        continue;
      }
      if (lane != healthy && !(is_first_cpu && lane == 0) && random.chance(2)) {  // given up
        share.retire(lane);
        hangs[lane] = true;
        continue;
      }
      const bool is_all = (is_first_cpu && lane == 0) || random.chance(50);
      const std::uint64_t bytes = is_all ? left : random.below(left + 1);
      const bool whole = random.chance(20);
      const std::uint64_t at = busy.piece.range.begin + busy.computed;
      Range want{std::max(at, busy.open.begin), std::min(at + bytes, busy.open.end)};
      // What it could not commit before is lost for it.
      if (want.begin >= want.end || want.begin != busy.open.begin || (whole && want.bytes() != bytes)) want = {};
      const Range own = share.commit(busy.piece.id, bytes, now, whole);
      ASSERT_EQ(own, want) << "lane " << lane;
      if (own.bytes() > 0) {
        committed.push_back(own);
        for (auto &each : lanes)
          if (each && each->open.begin == own.begin) each->open.begin = own.end;
      }
      busy.computed += bytes;
      if (busy.computed < all) continue;
      share.finish(busy.piece.id, now);
      lanes[lane].reset();
    }
    ASSERT_TRUE(share.is_done()) << "work is left: " << share.takeable_bytes();
    std::sort(committed.begin(), committed.end(), [](const Range &a, const Range &b) { return a.begin < b.begin; });
    std::uint64_t at = 0;
    for (const Range &each : committed) {
      ASSERT_EQ(each.begin, at);
      at = each.end;
    }
    ASSERT_EQ(at, work);
  }
  EXPECT_GT(beside, 100u);
}

TEST(HybridShare, TheCpuTakesShortChunksFromTheFrontAndDevicesPiecesFromTheEnd) {
  Share share({Policy::automatic, 1 << 30}, {cpu(1e9), device(1e-3, 9e9)});
  const Piece chunk = *share.take(0, 0), piece = *share.take(1, 0);
  EXPECT_EQ(chunk.range.begin, 0u);
  EXPECT_NEAR(static_cast<double>(chunk.range.bytes()) / 1e9, 2e-3, 1e-5) << "a lowered budget waits for no more";
  EXPECT_EQ(piece.range.end, std::uint64_t{1} << 30);
  EXPECT_GT(piece.range.bytes(), std::uint64_t{1} << 28);
}

// It prepares its operators, or waits for a resource, and is expected to need as long again.
TEST(HybridShare, ADeviceThatDoesNotAskForWorkIsNotWaitedFor) {
  for (const bool has_worked : {false, true}) {
    Share share({Policy::automatic, 64 * kMiB}, {device(1e-4, 100e9), device(1e-3, 1e9)});
    double now = 0;
    if (has_worked) {
      const Piece first = *share.take(0, now);
      share.commit(first.id, 1, now += 1e-4);
      share.finish(first.id, now);
    }
    share.look(now);
    EXPECT_FALSE(share.take(1, now)) << "the fast one is about to start";
    std::optional<Piece> piece;
    for (double next = 0; !piece && now < 1; piece = share.take(1, now = next)) {
      next = share.look(now);
      ASSERT_LT(next, 1);
    }
    EXPECT_LT(now, 0.02);
  }
}

// It was idle for long: one piece, of two latencies, measures whether it became faster. Of unknown latency, or of none,
// it is a small one.
TEST(HybridShare, ADeviceThatWouldEndTooLateTakesOneProbeAndNothingElse) {
  WorkerGroup unknown = device();
  unknown.speed.observe(1e6, 1);
  for (const auto &[group, bytes] : {std::pair(device(1e-3, 1e9), 2e6), {unknown, 64e3}, {device(0, 1e6), 64e3}}) {
    WorkerGroup idle = group;
    idle.is_probed = true;
    Share share({Policy::automatic, 64 * kMiB}, {cpu(1e12), idle});
    ASSERT_TRUE(share.take(0, 0));
    const auto probe = share.take(1, 0);
    ASSERT_TRUE(probe);
    EXPECT_NEAR(static_cast<double>(probe->range.bytes()), bytes, 0.03 * bytes);
    share.drop(probe->id);
    EXPECT_FALSE(share.take(1, 0)) << "the second one is no probe";
  }
}

TEST(HybridShare, ALatePieceGoesToTheCpuFromItsEndAndItsDeviceKeepsTheBeginning) {
  Share share({Policy::automatic, 64 * kMiB}, {cpu(1e9), device()});
  const Piece piece = *share.take(1, 0);
  const Piece chunk = *share.take(0, 0);
  share.commit(chunk.id, chunk.range.bytes(), 1e-3);
  share.finish(chunk.id, 1e-3);
  double now = 1e-3;
  for (; share.takeable_bytes() > 0; now += 1e-3) {
    const auto next = share.take(0, now);
    if (!next) break;
    share.commit(next->id, next->range.bytes(), now);
    share.finish(next->id, now);
    if (next->range.end == piece.range.end) break;
  }
  EXPECT_EQ(share.commit(piece.id, kMiB, now), (Range{piece.range.begin, piece.range.begin + kMiB}));
  const Range rest = share.commit(piece.id, piece.range.bytes() - kMiB, now);
  EXPECT_EQ(rest.begin, piece.range.begin + kMiB);
  EXPECT_LE(rest.end, piece.range.end);
}

// Also if it is shorter than the workers are many that do not answer, or if one that computed it too has failed.
TEST(HybridShare, ARetiredLaneGetsNothingAndItsPieceIsFree) {
  for (const Policy policy : {Policy::automatic, Policy::budget}) {
    for (const auto &[bytes, fails] : {std::pair(8 * kMiB, false), {8 * kMiB, true}, {1, false}}) {
      Share share({policy, bytes, bytes}, {device(0, 1e9), device(0, 1e9), device(0, 1e9)});
      for (const unsigned lane : {0, 1}) {
        const auto piece = share.take(lane, lane);
        EXPECT_TRUE(piece);
        share.look(lane);
        if (lane == 1 && fails) share.drop(piece->id);
        share.retire(lane);
        share.look(lane);
        EXPECT_TRUE(share.is_retired(lane));
        EXPECT_FALSE(share.take(lane, lane + 1));
      }
      EXPECT_TRUE(share.take(2, 2));
    }
  }
}

// Parts of the first piece tell latency and speed apart.
TEST(HybridShare, TheFirstPieceTeachesLatencyAndSpeed) {
  constexpr double kLatency = 1e-3, kSpeed = 2e9;
  Share share({Policy::automatic, 512 * kMiB}, {cpu(1e8), device()});
  const Piece piece = *share.take(1, 0);
  EXPECT_EQ(piece.range.bytes(), 8 * kMiB);
  for (unsigned part = 1; part <= 8; ++part)
    share.commit(piece.id, kMiB, kLatency + static_cast<double>(part * kMiB) / kSpeed);
  EXPECT_TRUE(share.speed(1).is_known());
  EXPECT_NEAR(share.speed(1).latency_seconds(), kLatency, 1e-6);
  EXPECT_NEAR(share.speed(1).bytes_per_second(), kSpeed, 1e6);
}

TEST(HybridShare, PolicyBudgetHandsOutChunksOfOneSize) {
  Share share({Policy::budget, 10 * kMiB, kMiB}, {cpu(), device()});
  for (unsigned i = 0; i < 10; ++i) {
    const auto piece = share.take(i % 2, 0);
    ASSERT_TRUE(piece);
    EXPECT_EQ(piece->range.bytes(), kMiB);
    share.commit(piece->id, kMiB, 0);
    share.finish(piece->id, 0);
  }
  EXPECT_TRUE(share.is_done());
  EXPECT_EQ(share.done_by(0), 5 * kMiB);
}

}  // namespace
}  // namespace tandem::test
