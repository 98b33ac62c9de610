#include "hybrid/policy/ledger.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tandem::hybrid {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// The first chunk of a worker of unknown speed: the whole divided by this and by the number of workers, so that one a
// thousand times slower than the fastest is through with it in time.
constexpr double kProbePart = 1000;

// A chunk is done a second time if that promises to be so many times faster than waiting for the first.
constexpr double kRescueGain = 1.25;

// A chunk that takes longer than predicted by so many times its worker's uncertainty is not merely late: its worker has
// become slower, or hangs, and is not counted on until it is through.
constexpr double kLate = 3;

// A chunk that is late is looked at when it is late by this part of its time, by twice of it, and so on: each time it
// may have become better to do it again.
constexpr double kFirstLook = 0.02;

// A worker is started only for work that keeps the others busy for so many times as long as starting takes.
constexpr double kStartUps = 2;

}  // namespace

Ledger::Ledger(Options options, std::vector<Worker> workers, ResourcePool &pool)
    : options_(std::move(options)), pool_(&pool) {
  for (Worker &each : workers) {
    if (options_.policy != Policy::free && !each.is_optional) pool.check(each.needs);
    workers_.push_back({std::move(each)});
  }
  if (options_.work_bytes > 0) put_back({0, options_.work_bytes});
}

std::optional<Chunk> Ledger::take(unsigned worker, double now) {
  State &state = workers_[worker];
  if (state.retired) return std::nullopt;
  if (unassigned_.bytes() == 0 && options_.policy == Policy::automatic) doubt(worker, now);
  if (unassigned_.bytes() == 0) return std::nullopt;  // also of what is doubted all may be claimed already
  const double most = std::min(state.worker.most_bytes, static_cast<double>(options_.work_bytes));
  std::uint64_t bytes = std::min(options_.chunk_bytes, static_cast<std::uint64_t>(most));
  if (options_.policy == Policy::automatic) {
    bytes = automatic_bytes(worker, now);
    if (bytes == 0 && everybody_declines(worker))
      bytes = static_cast<std::uint64_t>(std::clamp(state.worker.knee_bytes, 1.0, most));
  }
  if (bytes == 0) return std::nullopt;
  if (options_.policy == Policy::free) return assign(worker, bytes, now);
  if (!pool_->try_take(worker, state.worker.needs)) return std::nullopt;
  try {
    return assign(worker, bytes, now);
  } catch (...) {  // no memory: the job is lost, the pool is not this job's alone
    pool_->give_back(state.worker.needs);
    throw;
  }
}

// Nobody is at work, and each of those who could be has declined: not to be, by the rule; but a run must not hang.
bool Ledger::everybody_declines(unsigned worker) {
  declined_.resize(workers_.size());
  declined_[worker] = true;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const State &each = workers_[i];
    if (each.in_flight > 0 && !flights_[each.latest].doubted) return false;
    if (!declined_[i] && !each.retired && !each.away) return false;
  }
  return true;
}

Chunk Ledger::assign(unsigned worker, std::uint64_t bytes, double now) {
  declined_.assign(declined_.size(), false);
  const Range &from = unassigned_.first();
  Range range = from;
  if (bytes < range.bytes()) {
    range.end = range.begin + bytes;
    if (options_.cut) range.end = std::min(options_.cut(range.end), from.end);
  }
  unassigned_.remove(range);

  std::uint64_t id = flights_.size();
  if (free_flights_.empty()) {
    flights_.emplace_back();
    free_flights_.reserve(flights_.size());  // over() must not allocate
  } else {
    id = free_flights_.back();
    free_flights_.pop_back();
  }
  Flight &flight = flights_[id];
  flight = {{id, worker, range}, now, true};
  State &state = workers_[worker];
  ++state.in_flight;
  state.latest = id;
  // Others may be on parts of this range: what it does is claimed at its end, or, in place, now.
  for (Flight &other : flights_) {
    if (contested_count_ == 0) break;
    if (&other == &flight || !other.in_use || !other.contested) continue;
    if (other.chunk.range.begin < range.end && range.begin < other.chunk.range.end) flight.contested = true;
  }
  if (flight.contested) ++contested_count_;
  if (flight.contested && state.worker.writes_in_place) claimed_.add(range);
  return flight.chunk;
}

std::vector<Range> Ledger::claim(std::uint64_t chunk) {
  Flight &flight = flights_[chunk];
  const Range range = flight.chunk.range;
  flight.claimed = true;
  if (!flight.contested || workers_[flight.chunk.worker].worker.writes_in_place) return {range};
  const std::vector<Range> own = claimed_.missing(range);
  for (const Range &each : own) {
    claimed_.add(each);
    unassigned_.remove(each);
  }
  return own;
}

void Ledger::finish(std::uint64_t chunk, double now) {
  Flight &flight = flights_[chunk];
  State &state = workers_[flight.chunk.worker];
  double seconds = now - flight.start;
  if (!state.started) seconds = std::max(seconds - state.worker.start_up_seconds, seconds * 0.01);
  state.started = true;
  state.worker.estimate.observe(flight.chunk.range.bytes(), seconds);
  if (flight.given_up) state.retired = false;
  over(flight);
}

void Ledger::disclaim(const Range &range) {
  claimed_.remove(range);
  put_back_rest(range);
}

void Ledger::end_without_result(std::uint64_t chunk, bool retire) {
  Flight &flight = flights_[chunk];
  State &state = workers_[flight.chunk.worker];
  if (retire) this->retire(flight.chunk.worker);
  const Range range = flight.chunk.range;
  const bool contested = flight.contested, in_place = state.worker.writes_in_place;
  over(flight);
  if (!contested) return put_back(range);
  if (in_place) claimed_.remove(range);  // its claim is void
  put_back_rest(range);
}

void Ledger::abandon(std::uint64_t chunk) noexcept {
  Flight &flight = flights_[chunk];
  retire(flight.chunk.worker);
  over(flight);
}

void Ledger::give_up(std::uint64_t chunk) {
  Flight &flight = flights_[chunk];
  State &state = workers_[flight.chunk.worker];
  retire(flight.chunk.worker);
  if (!flight.given_up && options_.policy != Policy::free) pool_->give_back(state.worker.needs);
  flight.given_up = true;
  if (!flight.doubted && !flight.claimed) contest(flight);
}

// The range becomes free again for the others.
void Ledger::contest(Flight &flight) {
  flight.doubted = true;
  if (!flight.contested) ++contested_count_;
  flight.contested = true;
  put_back_rest(flight.chunk.range);
}

void Ledger::over(Flight &flight) noexcept {
  State &state = workers_[flight.chunk.worker];
  --state.in_flight;
  if (options_.policy != Policy::free && !flight.given_up) pool_->give_back(state.worker.needs);
  if (flight.contested) --contested_count_;
  flight.in_use = false;
  free_flights_.push_back(flight.chunk.id);
}

void Ledger::put_back(const Range &range) {
  unassigned_.add(range);
  ++revision_;
}

// What of a contested range nobody has claimed and nobody else has in hand.
void Ledger::put_back_rest(const Range &range) {
  RangeSet elsewhere = claimed_;
  for (const Flight &other : flights_)
    if (other.in_use && !other.doubted) elsewhere.add(other.chunk.range);
  for (const Range &each : elsewhere.missing(range)) put_back(each);
}

double Ledger::predicted_seconds(const Chunk &chunk) const noexcept {
  const State &state = workers_[chunk.worker];
  const Estimate &estimate = state.worker.estimate;
  if (!estimate.is_known()) return kNever;
  return estimate.seconds_for(static_cast<double>(chunk.range.bytes())) +
         (state.started ? 0 : state.worker.start_up_seconds);
}

double Ledger::patience_seconds(const Chunk &chunk) const noexcept {
  return predicted_seconds(chunk) * (1 + kLate * workers_[chunk.worker].worker.estimate.uncertainty());
}

double Ledger::remaining_seconds(const Flight &flight, double now) const noexcept {
  const double predicted = predicted_seconds(flight.chunk), elapsed = now - flight.start;
  if (elapsed < predicted) return predicted - elapsed;
  if (elapsed < patience_seconds(flight.chunk)) return std::max(elapsed - predicted, 0.02 * predicted);
  return kNever;
}

bool Ledger::take_room(const Need &need) {
  if (room_.size() <= need.resource) room_.resize(need.resource + 1, 0);
  if (pool_->free(need.resource) < room_[need.resource] + need.amount) return false;
  room_[need.resource] += need.amount;
  return true;
}

// Those that may take work now or later; `worker` is the first.
void Ledger::gather_candidates(unsigned worker, double now) {
  candidates_.clear();
  room_.clear();
  for (const Need &need : workers_[worker].worker.needs) take_room(need);
  const auto add = [&](unsigned index) {
    const State &state = workers_[index];
    const Estimate &estimate = state.worker.estimate;
    if (state.retired || state.away || !estimate.is_known()) return;
    Candidate candidate{estimate.bytes_per_second(),
                        estimate.latency_seconds(),
                        estimate.uncertainty(),
                        state.worker.knee_bytes,
                        0,
                        std::min(estimate.most_bytes(), state.worker.most_bytes)};
    if (!state.started) candidate.free_in_seconds = state.worker.start_up_seconds;
    if (state.in_flight > 0) {
      const Flight &flight = flights_[state.latest];
      candidate.free_in_seconds = flight.doubted ? kNever : remaining_seconds(flight, now);
    } else if (index != worker) {
      // Of the idle ones only so many as the resources have room for.
      for (const Need &need : state.worker.needs)
        if (!take_room(need)) return;
    }
    candidates_.push_back(candidate);
  };
  add(worker);
  for (unsigned i = 0; i < workers_.size(); ++i)
    if (i != worker) add(i);
}

// Whether a worker that must be started first, and whose speed nobody knows, could be of use before the others are
// through.
bool Ledger::is_worth_starting(unsigned worker, double now) {
  const State &state = workers_[worker];
  if (state.started || state.worker.start_up_seconds == 0) return true;
  bool others_will_tell = false;
  for (unsigned i = 0; i < workers_.size(); ++i) {
    const State &other = workers_[i];
    if (i == worker || other.retired || other.away) continue;
    if (other.worker.start_up_seconds == 0 || other.started || other.in_flight > 0) others_will_tell = true;
  }
  if (!others_will_tell) return true;
  gather_candidates(worker, now);
  const double finish = predicted_finish(candidates_, static_cast<double>(unassigned_.bytes()));
  return std::isfinite(finish) && finish > kStartUps * state.worker.start_up_seconds;
}

std::uint64_t Ledger::automatic_bytes(unsigned worker, double now) {
  const Estimate &own = workers_[worker].worker.estimate;
  const double work = static_cast<double>(options_.work_bytes);
  if (!own.is_known()) {
    const double probe = std::max(work / kProbePart / static_cast<double>(workers_.size()), 1.0);
    if (!is_worth_starting(worker, now)) return 0;
    return static_cast<std::uint64_t>(std::ceil(std::min(probe, workers_[worker].worker.most_bytes)));
  }
  gather_candidates(worker, now);
  const double bytes = chunk_for(candidates_, 0, static_cast<double>(unassigned_.bytes()));
  return static_cast<std::uint64_t>(std::ceil(bytes));
}

// Nothing is unassigned: perhaps `worker` and the others had better do again what one of them is late with.
void Ledger::doubt(unsigned worker, double now) {
  if (!workers_[worker].worker.estimate.is_known()) return;
  Flight *latest = nullptr;
  double most = 0;
  for (Flight &flight : flights_) {
    if (!flight.in_use || flight.doubted || flight.claimed || workers_[flight.chunk.worker].worker.writes_in_place)
      continue;
    const double left = remaining_seconds(flight, now);
    if (left > most) {
      most = left;
      latest = &flight;
    }
  }
  if (latest == nullptr) return;
  gather_candidates(worker, now);
  const double again = predicted_finish(candidates_, static_cast<double>(latest->chunk.range.bytes()));
  if (again * kRescueGain < most) contest(*latest);
}

double Ledger::next_look_seconds(double now) const {
  if (options_.policy != Policy::automatic) return kNever;
  double next = kNever;
  for (const Flight &flight : flights_) {
    if (!flight.in_use || flight.doubted) continue;
    const double predicted = predicted_seconds(flight.chunk), patience = patience_seconds(flight.chunk);
    for (double over = kFirstLook * predicted;; over *= 2) {
      const double look = flight.start + std::min(predicted + over, patience);
      if (look > now) {
        next = std::min(next, look);
        break;
      }
      if (!(predicted + over < patience)) break;
    }
  }
  return next;
}

bool Ledger::is_stranded() const noexcept {
  if (is_done()) return false;
  return std::all_of(workers_.begin(), workers_.end(), [this](const State &each) {
    return each.retired ||
           (each.in_flight == 0 && options_.policy != Policy::free && !pool_->can_ever_fit(each.worker.needs));
  });
}

}  // namespace tandem::hybrid
