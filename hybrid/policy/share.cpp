// SPDX-License-Identifier: Apache-2.0
#include "hybrid/policy/share.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tandem::hybrid {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::size_t kNone = SIZE_MAX;

// Front and back are counted in grains, 2^31 at most.
constexpr std::uint64_t kGrainBytes = 1 << 10, kMostGrains = std::uint64_t{1} << 31;

// The first chunk of a CPU lane of unknown speed: this part of the work. Even a lane that is a thousand times slower
// than the rest finishes it in time. It is never long, because a lowered budget waits for its end.
constexpr std::uint64_t kFirstPart = 4096, kMostFirstBytes = 64 << 10;
constexpr double kNewest = 0.3;  // weight of the latest chunk in the speed of a CPU lane
constexpr double kSurprise = 2;  // times faster or slower than before: the latest chunk replaces the average
constexpr double kPartOfPast = 0.125, kLeastLatencySeconds = 20e-6;  // no device answers sooner
constexpr double kGrowth = 8;  // limit for a device's next piece, relative to its largest one, while its speed is
                               // learned
constexpr double kLeastWaitSeconds = 20e-6;
constexpr double kRescueGain = 1.25;  // another worker repeats a piece if that promises to be so many times faster

constexpr std::uint64_t front_of(std::uint64_t ends) { return ends >> 32; }
constexpr std::uint64_t back_of(std::uint64_t ends) { return ends & 0xffffffff; }
constexpr std::uint64_t ends_of(std::uint64_t front, std::uint64_t back) { return front << 32 | back; }

void add(std::atomic<double> &sum, double change) noexcept {
  double old = sum.load(std::memory_order_relaxed);
  while (!sum.compare_exchange_weak(old, old + change, std::memory_order_relaxed)) {
  }
}

// The time until something ends that was expected at `end`. If it is late, it is expected to need as long again as it
// is late.
double rest_seconds(double end, double now) { return std::abs(end - now); }

}  // namespace

Share::Share(Options options, std::vector<Group> groups) : options_(std::move(options)) {
  grain_bytes_ = std::max(kGrainBytes, options_.work_bytes / kMostGrains + 1);
  grains_ = options_.work_bytes / grain_bytes_ + (options_.work_bytes % grain_bytes_ != 0);
  ends_.store(ends_of(0, grains_));
  for (const Group &each : groups) {
    State &state = groups_.emplace_back(each);
    state.first_lane = static_cast<unsigned>(lanes_.size());
    for (unsigned i = 0; i < each.lanes; ++i) {
      Lane &lane = lanes_.emplace_back(static_cast<unsigned>(groups_.size() - 1));
      if (each.is_in_place && each.speed.is_seen()) lane.bytes_per_second.store(each.speed.bytes_per_second());
    }
    if (!each.is_in_place) set_speed(state);
  }
}

// ---- the lanes

void Share::enter(unsigned index) noexcept {
  Lane &lane = lanes_[index];
  if (!lane.is_here.exchange(true)) count(lane, 1);
}

void Share::leave(unsigned index) noexcept {
  Lane &lane = lanes_[index];
  if (lane.is_here.exchange(false)) count(lane, -1);
}

void Share::count(Lane &lane, int change) noexcept {
  State &state = groups_[lane.group];
  if (!state.group.is_in_place) return;
  const double speed = lane.bytes_per_second.load(std::memory_order_relaxed);
  state.here.fetch_add(change, std::memory_order_relaxed);
  if (!(speed > 0)) return;
  state.known.fetch_add(change, std::memory_order_relaxed);
  add(state.sum, change * speed);
}

void Share::retire(unsigned index) noexcept {
  leave(index);
  lanes_[index].retired = true;
}

void Share::set_speed(State &state) {
  const Speed &speed = state.group.speed;
  state.latency_seconds.store(speed.is_seen() ? speed.latency_seconds() : 0, std::memory_order_relaxed);
  state.bytes_per_second.store(speed.is_seen() ? speed.bytes_per_second() : 0, std::memory_order_relaxed);
}

template <class Body>
void Share::each_candidate(double now, std::size_t without, Body body) const {
  for (const State &state : groups_) {
    if (state.group.is_in_place) {
      // Lanes of unknown speed are assumed to be as fast as the others.
      const int known = state.known.load(std::memory_order_relaxed), here = state.here.load(std::memory_order_relaxed);
      const double at_work = std::min<double>(here, room_.load(std::memory_order_relaxed));
      if (known > 0) body(Candidate{state.sum.load(std::memory_order_relaxed) * at_work / known, 0});
      continue;
    }
    const double speed = state.bytes_per_second.load(std::memory_order_relaxed);
    if (!(speed > 0)) continue;
    for (unsigned i = state.first_lane; i < state.first_lane + state.group.lanes; ++i) {
      const Lane &lane = lanes_[i];
      if (i == without || !lane.is_here.load(std::memory_order_relaxed)) continue;
      const double end = lane.expected_end.load(std::memory_order_relaxed);
      body(Candidate{speed,
                     state.latency_seconds.load(std::memory_order_relaxed) + (end == 0 ? 0 : rest_seconds(end, now))});
    }
  }
}

std::uint64_t Share::left_bytes() const noexcept {
  const std::uint64_t ends = ends_.load(std::memory_order_relaxed);
  const std::uint64_t grains = back_of(ends) - std::min(front_of(ends), back_of(ends));
  return std::min(grains * grain_bytes_, options_.work_bytes) + returned_bytes_.load(std::memory_order_relaxed);
}

// The work left for the CPU and idle lanes: everything not taken yet, and the rest of the CPU's present chunks.
double Share::rest_bytes(double now) const noexcept {
  double bytes = static_cast<double>(left_bytes());
  for (const State &state : groups_) {
    if (!state.group.is_in_place) continue;
    for (unsigned i = state.first_lane; i < state.first_lane + state.group.lanes; ++i) {
      const double rest_seconds = lanes_[i].expected_end.load(std::memory_order_relaxed) - now;
      if (rest_seconds > 0) bytes += rest_seconds * lanes_[i].bytes_per_second.load(std::memory_order_relaxed);
    }
  }
  return bytes;
}

// ---- the two ends

std::uint64_t Share::position(std::uint64_t grain) const {
  const std::uint64_t at = grain >= grains_ ? options_.work_bytes : grain * grain_bytes_;
  return options_.cut && at != 0 ? options_.cut(at) : at;
}

double Share::chunk_bytes(unsigned index, double now) const noexcept {
  if (options_.policy != Policy::automatic) return static_cast<double>(options_.chunk_bytes);
  const double speed = lanes_[index].bytes_per_second.load(std::memory_order_relaxed);
  if (!(speed > 0)) return static_cast<double>(std::min(options_.work_bytes / kFirstPart, kMostFirstBytes));
  const double finish =
      finish_seconds([&](auto body) { each_candidate(now, kNone, body); }, static_cast<double>(left_bytes()));
  // If a device may end the run at any moment, no lane should wait for a chunk much longer than it took until then.
  const bool may_end_early = unknown_pieces_.load(std::memory_order_relaxed) > 0;
  const double most = std::max((now - options_.start_seconds) * kPartOfPast, kLeastLatencySeconds);
  return front_chunk(speed, finish, may_end_early ? most : kNever);
}

Range Share::take_front(unsigned index, double now) noexcept {
  Lane &lane = lanes_[index];
  for (std::uint64_t ends = ends_.load(); front_of(ends) < back_of(ends);) {
    const std::uint64_t left = back_of(ends) - front_of(ends);
    const double want = std::ceil(chunk_bytes(index, now) / static_cast<double>(grain_bytes_));
    const std::uint64_t taken =
        want < static_cast<double>(left) ? std::max<std::uint64_t>(static_cast<std::uint64_t>(want), 1) : left;
    const std::uint64_t front = front_of(ends) + taken;
    if (!ends_.compare_exchange_weak(ends, ends_of(front, back_of(ends)))) continue;
    const Range range = {position(front_of(ends)), position(front)};
    if (range.bytes() > 0) {
      const double speed = lane.bytes_per_second.load(std::memory_order_relaxed);
      if (speed > 0)
        lane.expected_end.store(now + static_cast<double>(range.bytes()) / speed, std::memory_order_relaxed);
      return range;
    }
    ends = ends_.load();  // between two places where the work may be cut
  }
  return {};
}

void Share::finish_chunk(unsigned index, const Range &range, double seconds) noexcept {
  Lane &lane = lanes_[index];
  if (seconds > 0) {
    const double seen = static_cast<double>(range.bytes()) / seconds;
    const double old = lane.bytes_per_second.load(std::memory_order_relaxed);
    const bool is_surprise = old == 0 || seen > kSurprise * old || old > kSurprise * seen;
    const double speed = is_surprise ? seen : old + kNewest * (seen - old);
    lane.bytes_per_second.store(speed, std::memory_order_relaxed);
    if (lane.is_here.load(std::memory_order_relaxed)) {
      State &state = groups_[lane.group];
      add(state.sum, speed - old);
      if (old == 0) state.known.fetch_add(1, std::memory_order_relaxed);
    }
  }
  add_done(index, range.bytes());
}

void Share::add_done(unsigned lane, std::uint64_t bytes) noexcept {
  groups_[lanes_[lane].group].done.fetch_add(bytes, std::memory_order_relaxed);
  done_.fetch_add(bytes);
}

std::optional<Piece> Share::take_back(unsigned index, double now) {
  Lane &lane = lanes_[index];
  const State &state = groups_[lane.group];
  if (lane.retired) return std::nullopt;
  const double left = static_cast<double>(left_bytes());
  double want = 0;
  const Speed &speed = state.group.speed;
  if (options_.policy != Policy::automatic) {
    want = static_cast<double>(options_.chunk_bytes);
  } else if (!speed.is_seen()) {
    want = std::min(state.group.first_bytes, left / (state.group.lanes - state.pieces));
  } else {
    const double finish = finish_seconds([&](auto body) { each_candidate(now, kNone, body); }, rest_bytes(now));
    double others = 0;
    each_candidate(now, index, [&](const Candidate &each) {
      if (each.start_seconds < finish) others += each.bytes_per_second;
    });
    want = back_piece({speed.bytes_per_second(), speed.latency_seconds(), speed.uncertainty()}, finish, others, left);
    want = std::min(want, kGrowth * speed.most_bytes());
  }
  want = std::min(want, state.group.most_bytes);
  if (!(want > 0)) return std::nullopt;
  for (std::uint64_t ends = ends_.load(); front_of(ends) < back_of(ends);) {
    const std::uint64_t grains = back_of(ends) - front_of(ends);
    const double wanted = std::ceil(want / static_cast<double>(grain_bytes_));
    const std::uint64_t taken = wanted < static_cast<double>(grains) ? static_cast<std::uint64_t>(wanted) : grains;
    const std::uint64_t back = back_of(ends) - taken;
    if (!ends_.compare_exchange_weak(ends, ends_of(front_of(ends), back))) continue;
    const Range range = {position(back), position(back_of(ends))};
    if (range.bytes() > 0) return add_flight(index, range, now);
    ends = ends_.load();
  }
  if (returned_.empty()) return std::nullopt;
  return take_returned(index, want, now);
}

std::optional<Piece> Share::take_returned(unsigned index, double now) {
  if (returned_.empty() || lanes_[index].retired) return std::nullopt;
  return take_returned(index, chunk_bytes(index, now), now);
}

Piece Share::take_returned(unsigned index, double want, double now) {
  Range range = returned_.first();
  if (want < static_cast<double>(range.bytes())) {
    const std::uint64_t end = range.begin + std::max(static_cast<std::uint64_t>(want), grain_bytes_);
    range.end = std::min(options_.cut ? options_.cut(end) : end, range.end);
  }
  returned_.remove(range);
  returned_bytes_.store(returned_.bytes());
  return add_flight(index, range, now);
}

// ---- pieces

Piece Share::add_flight(unsigned index, const Range &range, double now) {
  std::uint64_t id = pieces_.size();
  if (free_pieces_.empty()) {
    pieces_.emplace_back();
    free_pieces_.reserve(pieces_.size());  // over() must not allocate
  } else {
    id = free_pieces_.back();
    free_pieces_.pop_back();
  }
  Lane &lane = lanes_[index];
  const State &state = groups_[lane.group];
  Flight &flight = pieces_[id];
  flight = {index, range, now, kNever, true};
  const Speed &speed = state.group.speed;
  if (!state.group.is_in_place && speed.is_seen())
    flight.expected_end = now + speed.seconds_for(static_cast<double>(range.bytes()));
  ++lane.pieces;
  ++groups_[lane.group].pieces;
  if (std::isinf(flight.expected_end) && !state.group.is_in_place) unknown_pieces_.fetch_add(1);
  if (!state.group.is_in_place) lane.expected_end.store(flight.expected_end, std::memory_order_relaxed);
  // Others may work on parts of this range. It claims its result at the end; a lane that works in place claims it now.
  for (const Flight &other : pieces_) {
    if (contested_count_ == 0) break;
    if (&other == &flight || !other.in_use || !other.contested) continue;
    if (other.range.begin < range.end && range.begin < other.range.end) flight.contested = true;
  }
  if (flight.contested) ++contested_count_;
  if (flight.contested && state.group.is_in_place) claimed_.add(range);
  return {id, range};
}

std::vector<Range> Share::claim(std::uint64_t piece) {
  Flight &flight = pieces_[piece];
  flight.claimed = true;
  if (!flight.contested || groups_[lanes_[flight.lane].group].group.is_in_place) return {flight.range};
  const std::vector<Range> own = claimed_.missing(flight.range);
  for (const Range &each : own) {
    claimed_.add(each);
    returned_.remove(each);
  }
  returned_bytes_.store(returned_.bytes());
  return own;
}

void Share::finish(std::uint64_t piece, double now) {
  const Flight &flight = pieces_[piece];
  State &state = groups_[lanes_[flight.lane].group];
  if (!state.group.is_in_place) {
    state.group.speed.observe(static_cast<double>(flight.range.bytes()), now - flight.start);
    set_speed(state);
    expect_again(flight.lane);
  }
  over(piece);
}

// The pieces of the group's other lanes were predicted with the speed known when they began. Predict them again.
void Share::expect_again(unsigned finished) {
  const State &state = groups_[lanes_[finished].group];
  for (Flight &each : pieces_) {
    if (!each.in_use || each.lane == finished || lanes_[each.lane].group != lanes_[finished].group) continue;
    if (std::isinf(each.expected_end)) unknown_pieces_.fetch_sub(1);
    each.expected_end = each.start + state.group.speed.seconds_for(static_cast<double>(each.range.bytes()));
    lanes_[each.lane].expected_end.store(each.expected_end, std::memory_order_relaxed);
  }
}

void Share::disclaim(const Range &range) {
  claimed_.remove(range);
  put_back_rest(range);
}

void Share::fail(std::uint64_t piece) {
  retire(pieces_[piece].lane);
  drop(piece);
}

void Share::drop(std::uint64_t piece) {
  const Flight flight = pieces_[piece];
  over(piece);
  if (!flight.contested) return put_back(flight.range);
  if (groups_[lanes_[flight.lane].group].group.is_in_place) claimed_.remove(flight.range);  // its claim is cancelled
  put_back_rest(flight.range);
}

void Share::give_up(std::uint64_t piece) {
  Flight &flight = pieces_[piece];
  retire(flight.lane);
  if (!flight.doubted && !flight.claimed) contest(flight);
}

// The range becomes free again for the others.
void Share::contest(Flight &flight) {
  flight.doubted = true;
  if (!flight.contested) ++contested_count_;
  flight.contested = true;
  put_back_rest(flight.range);
}

void Share::over(std::uint64_t piece) noexcept {
  Flight &flight = pieces_[piece];
  Lane &lane = lanes_[flight.lane];
  if (--lane.pieces == 0) lane.expected_end.store(0, std::memory_order_relaxed);
  if (flight.contested) --contested_count_;
  --groups_[lane.group].pieces;
  if (std::isinf(flight.expected_end) && !groups_[lane.group].group.is_in_place) unknown_pieces_.fetch_sub(1);
  flight.in_use = false;
  free_pieces_.push_back(piece);
}

void Share::put_back(const Range &range) {
  returned_.add(range);
  returned_bytes_.store(returned_.bytes());
  returns_.fetch_add(1);
}

// The parts of a contested range that no worker has claimed and no other worker has in hand.
void Share::put_back_rest(const Range &range) {
  RangeSet elsewhere = claimed_;
  for (const Flight &other : pieces_)
    if (other.in_use && !other.doubted && !other.claimed) elsewhere.add(other.range);
  for (const Range &each : elsewhere.missing(range)) put_back(each);
}

bool Share::look(double now) {
  if (options_.policy != Policy::automatic) return false;
  const double rest = rest_bytes(now);
  const bool is_all_taken = left_bytes() == 0;
  bool any = false;
  for (Flight &each : pieces_) {
    if (!each.in_use || each.doubted || each.claimed || groups_[lanes_[each.lane].group].group.is_in_place) continue;
    if (now < contest_from(each, rest, is_all_taken, now)) continue;
    contest(each);
    any = true;
  }
  return any;
}

// The time from which on the others do a piece too: when they would finish it, and all the rest, so much sooner than
// its own worker. A piece that is late, or of unknown speed, is expected to need as long again as until now.
double Share::contest_from(const Flight &flight, double rest, bool is_all_taken, double now) const {
  const bool is_unknown = std::isinf(flight.expected_end);
  if (is_unknown && is_all_taken) return now;  // idle lanes do not wait
  const double again = kRescueGain * finish_seconds([&](auto body) { each_candidate(now, flight.lane, body); },
                                                    rest + static_cast<double>(flight.range.bytes()));
  if (is_unknown) return flight.start + again;
  return flight.expected_end - now > again ? now : flight.expected_end + again;
}

double Share::next_look(double now) const {
  if (options_.policy != Policy::automatic) return kNever;
  const double rest = rest_bytes(now);
  const bool is_all_taken = left_bytes() == 0;
  double next = kNever;
  // A lane that got nothing, because it would have been too late, asks again at the predicted end.
  if (!is_all_taken) next = now + finish_seconds([&](auto body) { each_candidate(now, kNone, body); }, rest);
  for (const Flight &each : pieces_) {
    if (!each.in_use || each.doubted || each.claimed || groups_[lanes_[each.lane].group].group.is_in_place) continue;
    next = std::min(next, contest_from(each, rest, is_all_taken, now));
  }
  return std::max(next, now + kLeastWaitSeconds);
}

double Share::ideal_seconds() const noexcept {
  return finish_seconds(
      [&](auto body) {
        for (const State &state : groups_) {
          if (state.done.load() == 0) continue;
          for (unsigned i = state.first_lane; i < state.first_lane + state.group.lanes; ++i) {
            const double speed =
                state.group.is_in_place ? lanes_[i].bytes_per_second.load() : state.bytes_per_second.load();
            if (speed > 0) body(Candidate{speed, state.latency_seconds.load()});
          }
        }
      },
      static_cast<double>(options_.work_bytes));
}

Speed Share::speed(std::size_t index) const {
  const State &state = groups_[index];
  if (!state.group.is_in_place) return state.group.speed;
  double sum = 0;
  unsigned known = 0;
  for (unsigned i = state.first_lane; i < state.first_lane + state.group.lanes; ++i) {
    const double speed = lanes_[i].bytes_per_second.load(std::memory_order_relaxed);
    sum += speed;
    known += speed > 0;
  }
  return known > 0 ? Speed(0, sum / known) : Speed();
}

}  // namespace tandem::hybrid
