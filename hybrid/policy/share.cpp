// SPDX-License-Identifier: Apache-2.0
#include "hybrid/policy/share.hpp"
#include "base/rounding.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tandem::hybrid {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// The CPU asks again after this time at most. At the end of a run it takes a part of the time that is left, so that a
// device that ends early finds work; but not so little that the start of its threads costs more than that.
constexpr double kMostChunkSeconds = 2e-3, kPartOfRest = 0.7, kLeastChunkSeconds = 20e-6;
// The first chunk of a CPU of unknown speed. A chunk that takes less than kShortSeconds measures the start of the
// threads; the next one is kCpuGrowth times as large.
constexpr double kFirstChunkBytes = 64 << 10, kShortSeconds = 30e-6, kCpuGrowth = 16;

constexpr double kFirstPieceBytes = 8 << 20;          // of a device of unknown speed
constexpr double kGrowth = 4, kGrowthWhenKnown = 16;  // of a device's piece over its largest so far
constexpr double kMostEarly = 0.5;                    // of the time that a piece computes
constexpr double kLeastGain = 0.005;                  // of the work that is left
constexpr double kCrumb = 0.02;                       // of a piece: so little is not left behind it
constexpr double kRescueGain = 1.25;
constexpr double kLeastWaitSeconds = 20e-6;

}  // namespace

Share::Share(Options options, std::vector<WorkerGroup> groups) : options_(std::move(options)) {
  for (WorkerGroup &each : groups) {
    lanes_.insert(lanes_.end(), each.lanes, Lane{groups_.size()});
    groups_.push_back({std::move(each)});
  }
  if (options_.work_bytes > 0) free_.push_back({0, options_.work_bytes});
}

template <class Body>
void Share::each_candidate(double now, const Span *without, Body body) const {
  for (const Lane &lane : lanes_) {
    const Speed &speed = groups_[lane.group].group.speed;
    if (lane.is_out || !speed.is_seen()) continue;
    double busy = without == nullptr ? std::max(now - lane.due, 0.0) : 0;
    if (lane.piece != SIZE_MAX) {
      const Span &span = spans_[pieces_[lane.piece].span];
      if (&span == without || span.is_late) continue;
      busy = std::abs(pieces_[lane.piece].expected_end - now);  // late: as long again as it is late
    }
    body(Candidate{speed.bytes_per_second(), busy + speed.latency_seconds()});
  }
}

double Share::finish_of(double now, const Span *without, double bytes) const {
  return finish_seconds([&](auto body) { each_candidate(now, without, body); }, bytes);
}

std::uint64_t Share::takeable_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const Range &each : free_) bytes += each.bytes();
  for (const Span &each : spans_)
    if (each.users > 0 && each.is_late) bytes += each.range.bytes();
  return bytes;
}

// ---- how much a lane takes

// The bytes that an idle lane should take; 0: it would end too late.
double Share::wanted(unsigned index, double now) {
  if (options_.policy != Policy::automatic) return static_cast<double>(options_.chunk_bytes);
  WorkerGroup &group = groups_[lanes_[index].group].group;
  if (!group.speed.is_seen()) return group.is_cpu ? kFirstChunkBytes : first_piece(lanes_[index].group);
  const double left = static_cast<double>(takeable_bytes()), end = finish_of(now, nullptr, left);
  if (group.is_cpu) return wanted_by_cpu(group.speed, end, left, now);
  const double want = wanted_by_device(group, end, left, now);
  if (!std::exchange(group.is_probed, false) || want > 0) return want;
  return group.speed.probe_bytes();
}

double Share::wanted_by_cpu(const Speed &speed, double end, double left, double now) const {
  double most = std::min(end * kPartOfRest, kMostChunkSeconds);
  // A device of unknown speed is expected to need as long again as until now.
  const auto is_unknown = [](const Taken &each) { return each.in_use && std::isinf(each.expected_end); };
  if (std::any_of(pieces_.begin(), pieces_.end(), is_unknown)) most = std::min(most, kPartOfRest * (now - start_));
  double want = speed.bytes_per_second() * std::max({most, kLeastChunkSeconds, speed.latency_seconds()});
  if (speed.seconds_for(speed.most_bytes()) < kShortSeconds) want = std::max(want, kCpuGrowth * speed.most_bytes());
  return left - want < speed.bytes_per_second() * kLeastChunkSeconds ? left : want;
}

double Share::wanted_by_device(const WorkerGroup &group, double end, double left, double now) const {
  const double speed = group.speed.bytes_per_second(), latency = group.speed.latency_seconds();
  double time = end - latency, others = 0;
  if (!(time > 0)) return 0;
  each_candidate(now, nullptr, [&](const Candidate &each) {
    if (each.start_seconds < end) others += each.bytes_per_second;
  });
  others -= speed;
  // If it is slower than the others together, all of them would wait for its late end: it plans to end earlier.
  const double uncertainty = group.speed.uncertainty(), slower = (others - speed) / (others + speed);
  if (slower > 0) time -= std::min(uncertainty * slower * end, kMostEarly * time);
  // A small gain is within the error of the prediction. But if no worker computes, it may be the only one.
  const bool is_any_busy = std::any_of(pieces_.begin(), pieces_.end(), [](const Taken &each) { return each.in_use; });
  if (is_any_busy && speed * time < kLeastGain * left) return 0;
  // Half of it, if a late end would cost the others more than one more latency.
  const bool is_known = group.speed.is_known();
  const bool is_risky = is_known && uncertainty * end * others > 4 * latency * speed;
  return std::min(speed * time * (is_risky ? 0.5 : 1.0),
                  (is_known ? kGrowthWhenKnown : kGrowth) * group.speed.most_bytes());
}

// The first piece of a device of unknown speed: its lanes divide a short run.
double Share::first_piece(std::size_t group) const {
  double free = 0;
  unsigned idle = 0;
  for (const Range &each : free_) free += static_cast<double>(each.bytes());
  if (free == 0) return static_cast<double>(takeable_bytes());
  for (const Lane &each : lanes_) idle += each.group == group && each.piece == SIZE_MAX;
  return std::min(free / idle, kFirstPieceBytes);
}

// ---- pieces

std::uint64_t Share::aligned(std::uint64_t position) const { return options_.cut ? options_.cut(position) : position; }

Range Share::cut_off(Range *from, bool from_front, double want) const {
  const std::uint64_t all = from->bytes();
  const bool is_all = want * (1 + kCrumb) >= static_cast<double>(all);
  const std::uint64_t bytes = is_all ? all : std::max<std::uint64_t>(static_cast<std::uint64_t>(want), 1);
  Range taken = *from;
  if (from_front) {
    taken.end = std::min(aligned(from->begin + bytes), from->end);
    from->begin = taken.end;
  } else {
    const std::uint64_t begin = is_all ? from->begin : aligned(from->end - bytes);
    taken.begin = begin < from->end ? begin : from->begin;
    from->end = taken.begin;
  }
  return taken;
}

std::optional<Piece> Share::take(unsigned index, double now) {
  if (lanes_[index].is_out || takeable_bytes() == 0) return std::nullopt;
  lanes_[index].due = kNever;
  const bool is_cpu = groups_[lanes_[index].group].group.is_cpu;
  const double want = wanted(index, now);
  if (!(want > 0)) return std::nullopt;
  Range taken;
  if (!free_.empty()) {
    const auto from = is_cpu ? free_.begin() : std::prev(free_.end());
    taken = cut_off(&*from, is_cpu, want);
    if (from->bytes() == 0) free_.erase(from);
  } else {
    // The late piece of which most is left, for each worker that computes it.
    const auto left = [](const Span &each) {
      return each.is_late && each.users > 0 ? base::divide_up(each.range.bytes(), each.users) : 0;
    };
    const auto most =
        std::max_element(spans_.begin(), spans_.end(), [&](const Span &a, const Span &b) { return left(a) < left(b); });
    if (most == spans_.end() || left(*most) == 0) return std::nullopt;
    Range rest = most->range;
    taken = cut_off(&rest, false, want);
    if (!is_cpu && rest.bytes() == 0) return add(index, static_cast<std::size_t>(most - spans_.begin()), now);
    most->range = rest;
  }
  std::size_t span = 0;
  while (span < spans_.size() && spans_[span].users > 0) ++span;
  if (span == spans_.size()) spans_.emplace_back();
  spans_[span] = {taken};
  return add(index, span, now);
}

Piece Share::add(unsigned index, std::size_t span, double now) {
  Lane &lane = lanes_[index];
  const Range range = spans_[span].range;
  std::size_t id = 0;
  while (id < pieces_.size() && pieces_[id].in_use) ++id;
  if (id == pieces_.size()) pieces_.emplace_back();
  free_.reserve(pieces_.size() + 1);  // drop() must not allocate
  pieces_[id] = {index, span, range, range.begin, now, kNever, true};
  if (std::isfinite(expected_seconds(id))) pieces_[id].expected_end = now + expected_seconds(id);
  start_ = std::min(start_, now);
  ++spans_[span].users;
  if (lane.piece == SIZE_MAX) lane.piece = id;
  return {id, range};
}

double Share::expected_seconds(std::size_t id) const noexcept {
  const Taken &piece = pieces_[id];
  const Speed &speed = groups_[lanes_[piece.lane].group].group.speed;
  return speed.is_seen() ? speed.seconds_for(static_cast<double>(piece.range.bytes())) : kNever;
}

Range Share::commit(std::size_t id, std::uint64_t bytes, double now, bool whole) {
  Taken &piece = pieces_[id];
  Range &open = spans_[piece.span].range;
  Range own{std::max(piece.at, open.begin), std::min(piece.at + bytes, open.end)};
  piece.at += bytes;
  State &state = groups_[lanes_[piece.lane].group];
  const double computed = static_cast<double>(piece.at - piece.range.begin), took = now - piece.start;
  if (!state.group.speed.is_known()) {
    observe(piece, now);  // its parts tell latency and speed apart
  } else if (took > 0) {
    piece.expected_end = piece.start + expected_seconds(id) * took / state.group.speed.seconds_for(computed);
  }
  if (own.begin >= own.end || own.begin != open.begin || (whole && own.bytes() != bytes)) return {};
  open.begin = own.end;
  done_ += own.bytes();
  state.done += own.bytes();
  return own;
}

// Learns from what the piece has computed so far.
void Share::observe(Taken &piece, double now) {
  const std::size_t group = lanes_[piece.lane].group;
  groups_[group].group.speed.observe(static_cast<double>(piece.at - piece.range.begin), now - piece.start);
  // The group's pieces were predicted with the speed known when they began.
  for (std::size_t id = 0; id < pieces_.size(); ++id)
    if (pieces_[id].in_use && lanes_[pieces_[id].lane].group == group)
      pieces_[id].expected_end = pieces_[id].start + expected_seconds(id);
}

void Share::finish(std::size_t id, double now) {
  if (pieces_[id].at > pieces_[id].range.begin) observe(pieces_[id], now);
  drop(id);
}

void Share::drop(std::size_t id) {
  Taken &piece = pieces_[id];
  piece.in_use = false;
  Lane &lane = lanes_[piece.lane];
  lane.piece = SIZE_MAX;
  for (std::size_t i = 0; i < pieces_.size(); ++i)
    if (pieces_[i].in_use && pieces_[i].lane == piece.lane) lane.piece = i;
  Span &span = spans_[piece.span];
  if (--span.users > 0 || span.range.bytes() == 0) return;
  const auto before = [](const Range &a, const Range &b) { return a.begin < b.begin; };
  free_.insert(std::upper_bound(free_.begin(), free_.end(), span.range, before), span.range);
}

void Share::retire(unsigned index) noexcept {
  lanes_[index].is_out = true;
  for (Taken &each : pieces_)
    if (each.in_use && each.lane == index) spans_[each.span].is_late = true;
}

// When the others would finish a late piece so much sooner than its workers. One that is overdue is expected to need as
// long again as the others would; idle workers do not wait for one of unknown speed.
double Share::late_from(const Span &span, double now) const {
  double end = kNever;
  bool has_worker = false;
  for (const Taken &each : pieces_) {
    if (!each.in_use || &spans_[each.span] != &span || lanes_[each.lane].is_out) continue;
    if (groups_[lanes_[each.lane].group].group.is_cpu) return kNever;
    has_worker = true;
    end = std::min(end, each.expected_end);
  }
  if (has_worker && options_.policy != Policy::automatic) return kNever;
  if (std::isinf(end)) return now;
  const double others = static_cast<double>(takeable_bytes() + (span.is_late ? 0 : span.range.bytes()));
  const double again = kRescueGain * finish_of(now, &span, others);
  return end - now > again ? now : end + again;
}

double Share::look(double now) {
  double next = kNever;
  for (Span &each : spans_) {
    if (!free_.empty() || each.users == 0 || each.range.bytes() == 0) continue;
    const double from = late_from(each, now);
    each.is_late = from <= now;
    if (!each.is_late) next = std::min(next, from);
  }
  const std::uint64_t left = takeable_bytes();
  for (Lane &each : lanes_)
    if (each.piece == SIZE_MAX) each.due = left > 0 ? std::min(each.due, now) : kNever;
  if (left > 0) next = std::min(next, now + finish_of(now, nullptr, static_cast<double>(left)));
  return std::max(next, now + kLeastWaitSeconds);
}

}  // namespace tandem::hybrid
