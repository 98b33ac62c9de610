// The book of one job: which range is whose, what is done, and who gets what next. It knows neither threads nor clocks:
// its owner tells it the time, so the simulator and the threads that run a job for real use the same code. Whoever has
// several threads locks around it.
//
// A range has one commit point. A worker that writes where the caller reads (a CPU) claims its range when it starts;
// one that writes into the library's staging claims it when it is done, and only then is its result copied out. So a
// range whose worker is late can be given to others too: the first that is through claims it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hybrid/policy/decision.hpp"
#include "hybrid/policy/estimate.hpp"
#include "hybrid/policy/policy.hpp"
#include "hybrid/policy/ranges.hpp"
#include "hybrid/policy/resource_pool.hpp"

namespace tandem::hybrid {

struct Worker {
  std::string name;
  Estimate estimate;
  double knee_bytes = 0;
  double most_bytes = std::numeric_limits<double>::infinity();  // of a chunk: what its staging holds
  bool writes_in_place = false;
  bool is_optional = false;     // one whose needs are beyond the resources is left out; else that is an error
  Needs needs = {};             // of each task
  double start_up_seconds = 0;  // before its first task of all
};

struct Chunk {
  std::uint64_t id;
  unsigned worker;
  Range range;
};

class Ledger {
 public:
  struct Options {
    Policy policy = Policy::automatic;
    std::uint64_t work_bytes = 0;
    std::uint64_t chunk_bytes = 0;  // free, budget
    // Where a range may be cut at or after this position; empty = anywhere.
    std::function<std::uint64_t(std::uint64_t)> cut;
  };

  Ledger(Options options, std::vector<Worker> workers, ResourcePool &pool);

  void set_cut(std::function<std::uint64_t(std::uint64_t)> cut) { options_.cut = std::move(cut); }
  std::size_t worker_count() const noexcept { return workers_.size(); }

  // What `worker` is to do now. Nothing: it waits until something has happened, or next_look_seconds() has come. It
  // holds its needs until the chunk is over.
  std::optional<Chunk> take(unsigned worker, double now);

  // The chunk's result is there: its commit point. Which ranges of it are to be written to the caller's memory, by the
  // caller of this and by nobody else; then committed(). (In place all of it was claimed when it began.)
  std::vector<Range> claim(std::uint64_t chunk);
  void committed(std::uint64_t bytes) noexcept { committed_bytes_ += bytes; }

  // The chunk is over; how long it took is learned from.
  void finish(std::uint64_t chunk, double now);

  // After finish(): ranges that claim() gave out and whose result cannot be used after all: as if they had never been
  // claimed.
  void disclaim(const Range &range);

  // The worker is with another job, or not: it is not counted on meanwhile.
  void set_away(unsigned worker, bool away) noexcept { workers_[worker].away = away; }

  // The chunk came to nothing, with none of its bytes written, and, unless it was merely dropped, its worker takes no
  // more.
  void fail(std::uint64_t chunk) { end_without_result(chunk, true); }
  void drop(std::uint64_t chunk) { end_without_result(chunk, false); }
  // The same as fail() for a job that is lost anyway: its range is nobody's, and nothing is allocated.
  void abandon(std::uint64_t chunk) noexcept;

  // The worker takes no more, and gives up its place among those who wait for resources.
  void retire(unsigned worker) noexcept {
    workers_[worker].retired = true;
    pool_->leave(worker);
  }

  bool is_in_flight(std::uint64_t chunk) const noexcept { return chunk < flights_.size() && flights_[chunk].in_use; }
  bool has_finished_any(unsigned worker) const noexcept { return workers_[worker].started; }

  // Given up waiting for: the others do it too, and with what it held: a logical quantity serves nobody who hangs. Its
  // worker takes no more until the chunk is over after all.
  void give_up(std::uint64_t chunk);

  // When a worker that got nothing should ask again though nothing has happened. Infinity: never.
  double next_look_seconds(double now) const;

  // Another one each time that work came back: those who got nothing before should ask again.
  std::uint64_t revision() const noexcept { return revision_; }

  bool is_done() const noexcept { return committed_bytes_ == options_.work_bytes; }
  // Work is left, and nobody is there to do it.
  bool is_stranded() const noexcept;

  std::uint64_t unassigned_bytes() const noexcept { return unassigned_.bytes(); }
  std::uint64_t committed_bytes() const noexcept { return committed_bytes_; }
  const Worker &worker(unsigned index) const noexcept { return workers_[index].worker; }
  bool is_known(unsigned index) const noexcept { return workers_[index].worker.estimate.is_known(); }
  bool is_retired(unsigned index) const noexcept { return workers_[index].retired; }
  // From its start; infinity: nothing is known.
  double predicted_seconds(std::uint64_t chunk) const noexcept { return predicted_seconds(flights_[chunk].chunk); }

 private:
  struct State {
    Worker worker;
    bool retired = false;
    bool away = false;
    bool started = false;  // its first task
    unsigned in_flight = 0;
    std::uint64_t latest = 0;  // flight of the chunk that it runs
  };
  struct Flight {
    Chunk chunk;
    double start = 0;
    bool in_use = false;
    bool claimed = false;
    bool contested = false;  // others may have claimed parts of it
    bool doubted = false;    // late: its range is the others' again
    bool given_up = false;   // and its needs given back
  };

  void end_without_result(std::uint64_t chunk, bool retire);
  Chunk assign(unsigned worker, std::uint64_t bytes, double now);
  std::uint64_t automatic_bytes(unsigned worker, double now);
  bool everybody_declines(unsigned worker);
  bool is_worth_starting(unsigned worker, double now);
  void gather_candidates(unsigned worker, double now);
  bool take_room(const Need &need);
  void doubt(unsigned worker, double now);
  void contest(Flight &flight);
  double predicted_seconds(const Chunk &chunk) const noexcept;
  double patience_seconds(const Chunk &chunk) const noexcept;
  double remaining_seconds(const Flight &flight, double now) const noexcept;
  void put_back(const Range &range);
  void put_back_rest(const Range &range);
  void over(Flight &flight) noexcept;

  Options options_;
  std::vector<State> workers_;
  ResourcePool *pool_;
  RangeSet unassigned_;
  RangeSet claimed_;  // parts of contested ranges that have their commit point behind them
  std::vector<Flight> flights_;
  std::vector<std::uint64_t> free_flights_;
  std::uint64_t committed_bytes_ = 0;
  std::size_t contested_count_ = 0;
  std::vector<bool> declined_;  // workers who took nothing since anybody was at work
  std::uint64_t revision_ = 0;
  std::vector<Candidate> candidates_;  // scratch
  std::vector<std::uint64_t> room_;    // scratch: by resource, what candidates are counted on to take
};

}  // namespace tandem::hybrid
