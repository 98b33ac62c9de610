// SPDX-License-Identifier: Apache-2.0
// One run shared between workers: which worker has which range, and which range is next. It knows neither threads nor
// clocks. Its owner tells it the time, so tests run it in virtual time.
//
// Workers are lanes of groups. Lanes that work in place (the CPU) take small chunks from the front of the work, without
// a lock. Their ranges cannot be taken back. Lanes of devices take large pieces from the back. Their results lie in
// staging memory until claim(), the commit point of a range. So a late piece can be given to other workers too, and the
// first result counts.
//
// Functions marked "any thread" may be called at any time. For the others the owner has one lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hybrid/policy/policy.hpp"
#include "hybrid/policy/ranges.hpp"
#include "hybrid/policy/rule.hpp"
#include "hybrid/policy/speed.hpp"

namespace tandem::hybrid {

struct Group {
  unsigned lanes = 1;
  bool is_in_place = false;
  Speed speed = {};                                             // of one lane
  double first_bytes = 0;                                       // of a device of unknown speed: its first piece
  double most_bytes = std::numeric_limits<double>::infinity();  // limit of a piece: the size of its staging memory
};

struct Piece {
  std::uint64_t id;
  Range range;
};

class Share {
 public:
  struct Options {
    Policy policy = Policy::automatic;
    std::uint64_t work_bytes = 0;
    std::uint64_t chunk_bytes = 0;  // free, budget
    double start_seconds = 0;
    // Where the work may be cut, at or after this position; empty = anywhere. Any thread.
    std::function<std::uint64_t(std::uint64_t)> cut = {};
  };

  // Lanes are numbered consecutively, in the order of their groups.
  Share(Options options, std::vector<Group> groups);

  std::size_t lane_count() const noexcept { return lanes_.size(); }

  void set_cut(std::function<std::uint64_t(std::uint64_t)> cut) { options_.cut = std::move(cut); }
  // At most so many lanes work in place at once. Any thread.
  void set_room(std::uint64_t lanes) noexcept { room_.store(static_cast<double>(lanes), std::memory_order_relaxed); }

  // Predictions count a lane between these two calls. Called by its own thread, or while that thread does nothing.
  void enter(unsigned lane) noexcept;
  void leave(unsigned lane) noexcept;

  // ---- in place; any thread

  // The next chunk at the front. Empty range: there is none.
  Range take_front(unsigned lane, double now) noexcept;
  // The chunk is done; it took `seconds`.
  void finish_chunk(unsigned lane, const Range &range, double seconds) noexcept;

  // ---- with the lock

  // A chunk that came back from other workers. In place, it is claimed now.
  std::optional<Piece> take_returned(unsigned lane, double now);
  // A piece for a lane of a device. None: it would not finish in time. Ask again at next_look().
  std::optional<Piece> take_back(unsigned lane, double now);

  // The result of the piece is ready. Returns the ranges that its worker, and no other, must write to the caller's
  // memory.
  std::vector<Range> claim(std::uint64_t piece);
  void finish(std::uint64_t piece, double now);
  // The piece failed, and none of its bytes was written. Its lane gets no more, unless the piece was only dropped.
  void fail(std::uint64_t piece);
  void drop(std::uint64_t piece);
  // After claim(): the result cannot be used.
  void disclaim(const Range &range);
  void put_back(const Range &range);  // a chunk of the front that was not done
  // The piece is not waited for any more. Its range goes to the others, and its lane gets no more of this run.
  void give_up(std::uint64_t piece);
  void retire(unsigned lane) noexcept;
  void allow(unsigned lane) noexcept { lanes_[lane].retired = false; }  // it may take work again
  bool is_retired(unsigned lane) const noexcept { return lanes_[lane].retired; }

  // When no work is left: gives a late piece to other workers too, if that pays. True: a piece was given.
  bool look(double now);
  // The time to call look() again, or to ask again for a lane that got nothing, even if nothing has happened.
  double next_look(double now) const;

  // Called by a lane of a device after it has written the ranges of claim().
  void add_done(unsigned lane, std::uint64_t bytes) noexcept;
  bool is_done() const noexcept { return done_.load() == options_.work_bytes; }
  std::uint64_t done_by(std::size_t group) const noexcept { return groups_[group].done.load(); }
  std::uint64_t left_bytes() const noexcept;  // not taken yet
  // Changes each time a range came back.
  std::uint64_t returns() const noexcept { return returns_.load(); }

  // The time of the whole run with the learned speeds, if all lanes that took part had ended together.
  double ideal_seconds() const noexcept;

  // The learned speed of the group's lanes.
  Speed speed(std::size_t group) const;
  double expected_end(std::uint64_t piece) const noexcept { return pieces_[piece].expected_end; }

 private:
  // Other lanes read the atomic ones without the lock.
  struct alignas(64) Lane {
    explicit Lane(unsigned in_group) : group(in_group) {}
    const unsigned group;
    std::atomic<double> bytes_per_second{0};  // in place; 0: unknown
    std::atomic<double> expected_end{0};      // of its latest piece or chunk; infinity: unknown
    std::atomic<bool> is_here{false};
    bool retired = false;
    unsigned pieces = 0;  // in flight
  };
  struct State {
    explicit State(const Group &given) : group(given) {}
    Group group;
    std::atomic<double> sum{0};                                   // in place: sum over lanes that are present and of
                                                                  // known speed
    std::atomic<int> here{0}, known{0};                           // lanes that are present; those of them with known
                                                                  // speed
    std::atomic<double> bytes_per_second{0}, latency_seconds{0};  // of a device's lane; 0: unknown
    std::atomic<std::uint64_t> done{0};                           // bytes
    unsigned first_lane = 0;
    unsigned pieces = 0;  // in flight
  };
  struct Flight {
    unsigned lane;
    Range range;
    double start = 0, expected_end = 0;  // infinity: its speed is unknown
    bool in_use = false;
    bool claimed = false;
    bool doubted = false;    // its range was given back to the others
    bool contested = false;  // other workers may have claimed parts of it
  };

  // Calls body(candidate) for lanes of known speed; `without` is a lane that does not count.
  template <class Body>
  void each_candidate(double now, std::size_t without, Body body) const;
  double rest_bytes(double now) const noexcept;
  std::uint64_t position(std::uint64_t grain) const;
  double chunk_bytes(unsigned lane, double now) const noexcept;
  void set_speed(State &group);
  void count(Lane &lane, int change) noexcept;
  Piece take_returned(unsigned lane, double want, double now);
  Piece add_flight(unsigned lane, const Range &range, double now);
  double contest_from(const Flight &flight, double rest, bool is_all_taken, double now) const;
  void expect_again(unsigned finished);
  void contest(Flight &flight);
  void put_back_rest(const Range &range);
  void over(std::uint64_t piece) noexcept;

  Options options_;
  std::uint64_t grain_bytes_ = 1;
  std::uint64_t grains_ = 0;
  std::deque<Lane> lanes_;
  std::deque<State> groups_;
  std::atomic<std::uint64_t> ends_{0};  // of the work not taken yet, in grains: front << 32 | back
  std::atomic<std::uint64_t> done_{0};
  std::atomic<std::uint64_t> returns_{0};
  std::atomic<double> room_{std::numeric_limits<double>::infinity()};
  RangeSet returned_;
  std::atomic<std::uint64_t> returned_bytes_{0};
  std::atomic<int> unknown_pieces_{0};  // in flight, of devices of unknown speed
  RangeSet claimed_;                    // parts of contested pieces that are committed
  std::vector<Flight> pieces_;
  std::vector<std::uint64_t> free_pieces_;
  std::size_t contested_count_ = 0;
};

}  // namespace tandem::hybrid
