// SPDX-License-Identifier: Apache-2.0
#include "bench/simulate/simulate.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <queue>

#include "base/random.hpp"

namespace tandem::bench {

using base::Random;

namespace {

using namespace hybrid;

struct Event {
  double seconds;
  std::uint64_t order;  // of events at the same time the older one is first
  enum class What { task_over, part_over, failure, look } what;
  unsigned worker;
  std::size_t task;
  bool operator>(const Event &other) const {
    return seconds != other.seconds ? seconds > other.seconds : order > other.order;
  }
};

constexpr double kGuessedLatencySeconds = 100e-6;
// A device commits a task in so many parts, within these sizes (device/piece_stream.cpp).
constexpr std::uint64_t kParts = 8, kLeastPartBytes = 1 << 20, kMostPartBytes = 16 << 20;
// If no running task will end, only a look can start another. Looks would then follow each other for ever. So the
// simulation stops after this many looks that started nothing.
constexpr unsigned kMostVainLooks = 1000;

bool are_lanes_of_one(const SimulatedWorker &a, const SimulatedWorker &b) {
  return a.name == b.name && a.bytes_per_second == b.bytes_per_second && a.latency_seconds == b.latency_seconds &&
         a.link == b.link;
}

std::vector<WorkerGroup> groups_of(const Simulation &simulation) {
  std::vector<WorkerGroup> groups;
  for (std::size_t i = 0; i < simulation.workers.size(); ++i) {
    const SimulatedWorker &each = simulation.workers[i];
    if (i > 0 && are_lanes_of_one(simulation.workers[i - 1], each)) {
      ++groups.back().lanes;
      continue;
    }
    WorkerGroup group;
    group.is_cpu = each.is_cpu();
    if (each.known_bytes_per_second > 0) {
      const double guess = group.is_cpu ? 0 : kGuessedLatencySeconds;
      group.speed = Speed(each.assumed_latency_seconds.value_or(guess), each.known_bytes_per_second);
    }
    if (!simulation.learned.empty()) group.speed = simulation.learned.at(groups.size());
    groups.push_back(group);
  }
  return groups;
}

class Machine {
 public:
  explicit Machine(const Simulation &simulation)
      : simulation_(simulation),
        random_(simulation.seed),
        groups_(groups_of(simulation)),
        share_({simulation.policy, simulation.work_bytes, simulation.chunk_bytes}, groups_),
        state_(simulation.workers.size()) {
    result_.workers.resize(state_.size());
    for (unsigned i = 0; i < state_.size(); ++i) {
      result_.workers[i].name = simulation.workers[i].name;
      state_[i].resource = resource_of(simulation.workers[i].name);
      by_speed_.push_back(i);
    }
    std::stable_sort(by_speed_.begin(), by_speed_.end(), [&](unsigned a, unsigned b) {
      const SimulatedWorker &first = simulation.workers[a], &second = simulation.workers[b];
      if (first.is_cpu() != second.is_cpu()) return first.is_cpu();
      return first.bytes_per_second > second.bytes_per_second;
    });
  }

  SimulationResult run() {
    for (unsigned i = 0; i < state_.size(); ++i) add(simulation_.workers[i].fails_at_seconds, Event::What::failure, i);
    for (const unsigned i : by_speed_) idle_.push_back(i);
    hand_out();
    while (!share_.is_done() && !events_.empty() && !all_dead()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.seconds;
      if (event.what != Event::What::look) last_news_ = now_;
      if (event.what == Event::What::task_over && !state_[event.worker].dead) task_over(event.worker);
      if (event.what == Event::What::part_over && !part_over(event)) continue;
      if (event.what == Event::What::failure) failure(event.worker);
      hand_out();
    }
    sum_up();
    return std::move(result_);
  }

 private:
  struct State {
    std::deque<Piece> claimed;  // the first one runs
    double start = 0, end = 0;  // of the task that runs
    double compute_seconds = 0, computed_bytes = 0;
    double last_end = 0;
    bool dead = false;
    std::size_t task = 0;
    std::uint64_t part_bytes = 0, committed_bytes = 0;  // of the task that runs
    double part_seconds = 0;
    std::size_t resource = 0;
  };
  struct Resource {
    std::string name;
    std::uint64_t amount, held = 0;
  };

  std::size_t resource_of(const std::string &name) {
    for (std::size_t i = 0; i < resources_.size(); ++i)
      if (resources_[i].name == name) return i;
    std::uint64_t amount = UINT64_MAX;
    for (const auto &[limited, limit] : simulation_.resources)
      if (limited == name) amount = limit;
    resources_.push_back({name, amount});
    return resources_.size() - 1;
  }

  void add(double seconds, Event::What what, unsigned worker) {
    if (seconds < kNeverSeconds) events_.push({seconds, order_++, what, worker, state_[worker].task});
  }

  bool try_one(unsigned index) {
    State &state = state_[index];
    const bool is_automatic = simulation_.policy == Policy::automatic;
    if (state.dead || state.claimed.size() >= (is_automatic ? 1 : simulation_.workers[index].claims)) return false;
    Resource &resource = resources_[state.resource];
    if (resource.held >= resource.amount) return false;
    const auto task = share_.take(index, now_);
    if (!task) return false;
    ++resource.held;
    state.claimed.push_back(*task);
    if (state.claimed.size() == 1) start(index);
    return true;
  }

  // Asks the workers in turns, the fastest first, as long as one of them takes something.
  void hand_out() {
    bool any_started = false;
    double look = kNeverSeconds;
    for (bool any = true; any;) {
      look = share_.look(now_);
      any = false;
      std::erase_if(idle_, [&](unsigned i) {
        if (!try_one(i)) return false;
        any = true;
        return state_[i].claimed.size() >= simulation_.workers[i].claims || simulation_.policy == Policy::automatic;
      });
      any_started = any_started || any;
    }
    vain_looks_ = any_started || any_task_will_end() ? 0 : vain_looks_ + 1;
    if (vain_looks_ >= kMostVainLooks) look = kNeverSeconds;
    if (look < next_look_ || next_look_ <= now_) {
      next_look_ = look;
      add(look, Event::What::look, 0);
    }
  }

  bool hangs(std::size_t i) const {
    return !state_[i].claimed.empty() && state_[i].end >= simulation_.workers[i].hangs_at_seconds;
  }

  bool any_task_will_end() const {
    for (std::size_t i = 0; i < state_.size(); ++i)
      if (!state_[i].claimed.empty() && !hangs(i)) return true;
    return false;
  }

  double speed_of(const SimulatedWorker &worker) const {
    if (!worker.link) return worker.bytes_per_second;
    unsigned users = 1;
    for (std::size_t i = 0; i < state_.size(); ++i)
      if (&simulation_.workers[i] != &worker && simulation_.workers[i].link == worker.link &&
          !state_[i].claimed.empty())
        ++users;
    return std::min(worker.bytes_per_second, simulation_.link_bytes_per_second[*worker.link] / users);
  }

  void start(unsigned index) {
    const SimulatedWorker &worker = simulation_.workers[index];
    State &state = state_[index];
    const Range range = state.claimed.front().range;
    const double factor = 1 + worker.jitter * random_.in(-1, 1);
    const double bytes = static_cast<double>(range.bytes());
    double seconds = (worker.latency_seconds + bytes / speed_of(worker)) * factor;
    if (now_ >= worker.slow_from_seconds) {
      seconds *= worker.slow_factor;
    } else if (now_ + seconds > worker.slow_from_seconds) {
      seconds += (now_ + seconds - worker.slow_from_seconds) * (worker.slow_factor - 1);
    }
    state.start = now_;
    state.end = now_ + seconds;
    state.task = result_.tasks.size();
    result_.tasks.push_back({index, range, state.start, state.end, false});
    state.committed_bytes = 0;
    if (!worker.is_cpu()) {
      state.part_bytes =
          std::clamp(range.bytes() / kParts, std::uint64_t{kLeastPartBytes}, std::uint64_t{kMostPartBytes});
      const double latency = seconds * worker.latency_seconds / (worker.latency_seconds + bytes / speed_of(worker));
      state.part_seconds = (seconds - latency) / bytes * static_cast<double>(state.part_bytes);
      next_part(index, now_ + latency + state.part_seconds);
    }
    if (!hangs(index)) add(state.end, Event::What::task_over, index);
  }

  void next_part(unsigned index, double at) {
    if (at < state_[index].end && at < simulation_.workers[index].hangs_at_seconds)
      add(at, Event::What::part_over, index);
  }

  // A device streams its task, and commits it part by part. False: the task is over.
  bool part_over(const Event &event) {
    State &state = state_[event.worker];
    if (state.dead || state.claimed.empty() || event.task != state.task) return false;
    commit(event.worker, state.claimed.front(), state.part_bytes);
    next_part(event.worker, now_ + state.part_seconds);
    return true;
  }

  void commit(unsigned index, const Piece &piece, std::uint64_t bytes) {
    State &state = state_[index];
    bytes = std::min(bytes, piece.range.bytes() - state.committed_bytes);
    const std::uint64_t own = share_.commit(piece.id, bytes, now_).bytes();
    state.committed_bytes += bytes;
    result_.workers[index].bytes += own;
    result_.tasks[state.task].committed |= own > 0;
    result_.tasks[state.task].committed_bytes += own;
  }

  void task_over(unsigned index) {
    State &state = state_[index];
    const SimulatedWorker &worker = simulation_.workers[index];
    const Piece task = state.claimed.front();
    state.claimed.pop_front();
    --resources_[state.resource].held;
    SimulatedShare &share = result_.workers[index];
    const double seconds = state.end - state.start, bytes = static_cast<double>(task.range.bytes());
    share.busy_seconds += seconds;
    ++share.task_count;
    const double ideal = worker.latency_seconds + bytes / worker.bytes_per_second;
    state.compute_seconds += seconds * (1 - worker.latency_seconds / ideal);
    state.computed_bytes += bytes;
    state.last_end = now_;
    commit(index, task, UINT64_MAX);
    share_.finish(task.id, now_);
    if (!state.claimed.empty()) return start(index);
    idle_.push_back(index);
  }

  void failure(unsigned index) {
    State &state = state_[index];
    state.dead = true;
    std::erase(idle_, index);
    if (!state.claimed.empty()) result_.tasks[state.task].end_seconds = now_;
    for (const Piece &each : state.claimed) {
      --resources_[state.resource].held;
      share_.drop(each.id);
    }
    state.claimed.clear();
    share_.retire(index);
  }

  bool all_dead() const {
    return std::all_of(state_.begin(), state_.end(), [](const State &each) { return each.dead; });
  }

  void sum_up() {
    result_.completed = share_.is_done();
    if (!result_.completed) now_ = last_news_;
    result_.makespan_seconds = now_;
    double nominal = 0;
    for (std::size_t i = 0; i < state_.size(); ++i) {
      SimulatedShare &share = result_.workers[i];
      const State &state = state_[i];
      share.idle_tail_seconds = state.claimed.empty() ? now_ - state.last_end : 0;
      share.bytes_per_second = state.compute_seconds > 0 ? state.computed_bytes / state.compute_seconds
                                                         : simulation_.workers[i].bytes_per_second;
      nominal += simulation_.workers[i].bytes_per_second;
    }
    const double work = static_cast<double>(simulation_.work_bytes);
    if (now_ > 0) {
      // With the actual speeds and latencies of the workers in this run.
      const double best = finish_seconds(
          [&](auto body) {
            for (std::size_t i = 0; i < state_.size(); ++i)
              body(Candidate{result_.workers[i].bytes_per_second, simulation_.workers[i].latency_seconds});
          },
          work);
      result_.efficiency = best / now_;
      result_.nominal_efficiency = work / nominal / now_;
    }
    for (SimulatedTask &each : result_.tasks) each.end_seconds = std::min(each.end_seconds, now_);
    // Tasks that are still under way update their worker's speed when they end.
    for (std::size_t i = 0; i < state_.size(); ++i) {
      const State &state = state_[i];
      if (state.claimed.empty() || hangs(i)) continue;
      const Piece &piece = state.claimed.front();
      share_.commit(piece.id, piece.range.bytes() - state.committed_bytes, state.end);
      share_.finish(piece.id, state.end);
    }
    for (std::size_t i = 0; i < groups_.size(); ++i) result_.learned.push_back(share_.speed(i));
  }

  const Simulation &simulation_;
  Random random_;
  std::vector<WorkerGroup> groups_;
  Share share_;
  std::vector<State> state_;
  std::vector<Resource> resources_;
  std::vector<unsigned> by_speed_, idle_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  double now_ = 0, last_news_ = 0, next_look_ = kNeverSeconds;
  unsigned vain_looks_ = 0;
  SimulationResult result_;
};

}  // namespace

SimulationResult simulate(const Simulation &simulation) { return Machine(simulation).run(); }

}  // namespace tandem::bench
