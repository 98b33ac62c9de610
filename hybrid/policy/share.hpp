// SPDX-License-Identifier: Apache-2.0
// One run shared between workers: the rule of docs/hybrid.md. It knows neither threads nor clocks: its owner has a lock
// and tells it the time, so tests and `tandem-bench simulate` run it in virtual time.
//
// A worker is a lane of a group. The CPU is one worker, which takes chunks from the front; lanes of devices take pieces
// from the end. A device commits its piece bit by bit, from its beginning, so the end of a late piece can still be
// given to others. A byte is free or belongs to one piece. If nothing else is left, a device computes the rest of a
// late piece too: the first commit owns it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "hybrid/policy/policy.hpp"
#include "hybrid/policy/speed.hpp"

namespace tandem::hybrid {

struct Range {
  std::uint64_t begin = 0, end = 0;
  std::uint64_t bytes() const noexcept { return end - begin; }
  bool operator==(const Range &) const = default;
};

// A worker in a prediction.
struct Candidate {
  double bytes_per_second = 0;
  double start_seconds = 0;  // from now: the rest of its present work, and its latency
};

// The predicted end of `bytes`, in seconds from now, if each candidate takes its fair share as soon as it can: the time
// t at which the sum of speed * (t - start), over candidates with start < t, reaches the bytes. Infinity without
// candidates. `candidates` calls its argument with each of them, each time it is called.
template <class Candidates>
double finish_seconds(const Candidates &candidates, double bytes) {
  // First with all candidates. Then without those that would start after the end, until no more are left out.
  double limit = std::numeric_limits<double>::infinity();
  for (;;) {
    double speed = 0, work = bytes;
    candidates([&](const Candidate &each) {
      if (!(each.start_seconds < limit)) return;
      speed += each.bytes_per_second;
      work += each.bytes_per_second * each.start_seconds;
    });
    if (!(speed > 0)) return limit;
    const double finish = work / speed;
    if (!(finish < limit)) return limit;
    limit = finish;
  }
}

struct WorkerGroup {
  unsigned lanes = 1;
  bool is_cpu = false;
  Speed speed = {};        // of one lane
  bool is_probed = false;  // it was idle for long: one piece measures whether it became faster
};

struct Piece {
  std::size_t id;
  Range range;
};

class Share {
 public:
  struct Options {
    Policy policy = Policy::automatic;
    std::uint64_t work_bytes = 0;
    std::uint64_t chunk_bytes = 0;  // budget
    // Where the work may be cut, at or after this position; empty = anywhere.
    std::function<std::uint64_t(std::uint64_t)> cut = {};
  };

  // Lanes are numbered consecutively, in the order of their groups.
  Share(Options options, std::vector<WorkerGroup> groups);

  std::size_t lane_count() const noexcept { return lanes_.size(); }

  // Work for an idle lane. None: all is taken, or the lane would end too late. Ask again after look().
  std::optional<Piece> take(unsigned lane, double now);
  // The next bytes of a piece are ready. Returns those that its worker owns for ever from now, and must write. whole:
  // all of these bytes or none.
  Range commit(std::size_t piece, std::uint64_t bytes, double now, bool whole = false);
  // The piece has nothing left to commit.
  bool is_over(std::size_t piece) const noexcept {
    return std::max(pieces_[piece].at, spans_[pieces_[piece].span].range.begin) >=
           spans_[pieces_[piece].span].range.end;
  }
  // The piece is over. What it did not commit is free again.
  void finish(std::size_t piece, double now);
  // The same for a piece that failed or was stopped, of which no more is learned.
  void drop(std::size_t piece);
  // The lane gets no more. The rest of its piece is free for the others.
  void retire(unsigned lane) noexcept;
  bool is_retired(unsigned lane) const noexcept { return lanes_[lane].is_out; }

  // When all is taken: finds late pieces. The time at which take() or this may have another result, even if nothing
  // happens until then.
  double look(double now);

  bool is_done() const noexcept { return done_ == options_.work_bytes; }
  std::uint64_t done_by(std::size_t group) const noexcept { return groups_[group].done; }
  const Speed &speed(std::size_t group) const noexcept { return groups_[group].group.speed; }
  std::uint64_t takeable_bytes() const noexcept;
  // The predicted time of all of a piece; infinity: unknown.
  double expected_seconds(std::size_t piece) const noexcept;

 private:
  struct State {
    WorkerGroup group;
    std::uint64_t done = 0;
  };
  struct Lane {
    std::size_t group;
    bool is_out = false;
    std::size_t piece = SIZE_MAX;  // one of them
    // Since when there is work that it could ask for; infinity: it has asked. If it does not come, it is busy
    // elsewhere.
    double due = std::numeric_limits<double>::infinity();
  };
  // Bytes that no worker has committed, and the pieces that compute them: one, or several devices if the first is late.
  struct Span {
    Range range;
    unsigned users = 0;
    bool is_late = false;
  };
  struct Taken {
    unsigned lane = 0;
    std::size_t span = 0;
    Range range;
    std::uint64_t at = 0;  // where its next commit begins
    double start = 0, expected_end = 0;
    bool in_use = false;
  };

  // Calls body(candidate) for lanes of known speed, but those that compute this span or a late one.
  template <class Body>
  void each_candidate(double now, const Span *without, Body body) const;
  double finish_of(double now, const Span *without, double bytes) const;
  double wanted(unsigned lane, double now);
  double wanted_by_cpu(const Speed &speed, double end, double left, double now) const;
  double wanted_by_device(const WorkerGroup &group, double end, double left, double now) const;
  double first_piece(std::size_t group) const;
  std::uint64_t aligned(std::uint64_t position) const;
  Range cut_off(Range *from, bool from_front, double want) const;
  Piece add(unsigned lane, std::size_t span, double now);
  void observe(Taken &piece, double now);
  double late_from(const Span &span, double now) const;

  const Options options_;
  std::vector<State> groups_;
  std::vector<Lane> lanes_;
  std::vector<Range> free_;  // in the order of the work
  std::vector<Span> spans_;
  std::vector<Taken> pieces_;
  std::uint64_t done_ = 0;
  double start_ = std::numeric_limits<double>::infinity();  // of the first piece
};

}  // namespace tandem::hybrid
