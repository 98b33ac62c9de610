#include "hybrid/simulate/simulate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <queue>

#include "base/error.hpp"

namespace tandem::hybrid {
namespace {

// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014): the same numbers everywhere,
// which the distributions of <random> do not promise.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  double in(double low, double high) {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return low + (high - low) * (static_cast<double>(z >> 11) * 0x1.0p-53);
  }

 private:
  std::uint64_t state_;
};

struct Event {
  double seconds;
  std::uint64_t order;  // of those at the same time the older one first
  enum class What { task_over, failure, look } what;
  unsigned worker;
  bool operator>(const Event &other) const {
    return seconds != other.seconds ? seconds > other.seconds : order > other.order;
  }
};

class Machine {
 public:
  explicit Machine(const Simulation &simulation) : simulation_(simulation), random_(simulation.seed) {
    for (const auto &[name, amount] : simulation.resources) pool_.set(pool_.index(name), amount);
    std::vector<Worker> workers;
    for (const SimulatedWorker &each : simulation.workers) {
      Worker worker{each.name, Estimate(each.latency_seconds, each.known_bytes_per_second, simulation.known_within)};
      worker.knee_bytes = each.latency_seconds * each.bytes_per_second;
      worker.needs = {{pool_.index(each.name), 1}};
      workers.push_back(std::move(worker));
    }
    ledger_.emplace(Ledger::Options{simulation.policy, simulation.work_bytes, simulation.chunk_bytes, {}},
                    std::move(workers), pool_);
    state_.resize(simulation.workers.size());
    result_.workers.resize(simulation.workers.size());
    for (std::size_t i = 0; i < state_.size(); ++i) result_.workers[i].name = simulation.workers[i].name;
  }

  SimulationResult run() {
    for (unsigned i = 0; i < state_.size(); ++i) {
      const double fails = simulation_.workers[i].fails_at_seconds;
      if (fails < kNeverSeconds) add(fails, Event::What::failure, i);
    }
    hand_out();
    while (!ledger_->is_done() && !ledger_->is_stranded() && !events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.seconds;
      if (event.what == Event::What::task_over && !state_[event.worker].dead) task_over(event.worker);
      if (event.what == Event::What::failure) failure(event.worker);
      hand_out();
    }
    sum_up();
    return std::move(result_);
  }

 private:
  struct State {
    std::deque<Chunk> claimed;  // the first one runs
    double start = 0, end = 0;  // of the one that runs
    double compute_seconds = 0;
    double last_end = 0;
    bool dead = false;
    std::size_t task = 0;
  };

  void add(double seconds, Event::What what, unsigned worker) {
    if (seconds < kNeverSeconds) events_.push({seconds, order_++, what, worker});
  }

  void hand_out() {
    // Whoever may hold more gets one more, in turns, the fastest first, as long as anybody does.
    if (order_by_speed_.empty()) {
      for (unsigned i = 0; i < state_.size(); ++i) order_by_speed_.push_back(i);
      std::stable_sort(order_by_speed_.begin(), order_by_speed_.end(), [&](unsigned a, unsigned b) {
        return simulation_.workers[a].bytes_per_second > simulation_.workers[b].bytes_per_second;
      });
    }
    for (bool any = true; any;) {
      any = false;
      const std::uint64_t revision = ledger_->revision();
      for (const unsigned i : order_by_speed_) {
        State &state = state_[i];
        const std::uint64_t most = simulation_.policy == Policy::automatic ? 1 : simulation_.workers[i].claims;
        if (state.dead || state.claimed.size() >= most) continue;
        const auto chunk = ledger_->take(i, now_);
        if (!chunk) continue;
        any = true;
        state.claimed.push_back(*chunk);
        if (state.claimed.size() == 1) start(i);
      }
      any = any || ledger_->revision() != revision;
    }
    const double look = ledger_->next_look_seconds(now_);
    if (look != next_look_) add(look, Event::What::look, 0);
    next_look_ = look;
  }

  void start(unsigned index) {
    const SimulatedWorker &worker = simulation_.workers[index];
    State &state = state_[index];
    const Chunk &chunk = state.claimed.front();
    const double factor = 1 + worker.jitter * random_.in(-1, 1);
    const double bytes = static_cast<double>(chunk.range.bytes());
    double seconds = (worker.latency_seconds + bytes / worker.bytes_per_second) * factor;
    if (now_ >= worker.slow_from_seconds) {
      seconds *= worker.slow_factor;
    } else if (now_ + seconds > worker.slow_from_seconds) {
      seconds += (now_ + seconds - worker.slow_from_seconds) * (worker.slow_factor - 1);
    }
    state.start = now_;
    state.end = now_ + seconds;
    state.task = result_.tasks.size();
    result_.tasks.push_back({index, chunk.range, state.start, state.end, false});
    if (state.end < worker.hangs_at_seconds) add(state.end, Event::What::task_over, index);
  }

  void task_over(unsigned index) {
    State &state = state_[index];
    const SimulatedWorker &worker = simulation_.workers[index];
    const Chunk chunk = state.claimed.front();
    state.claimed.pop_front();
    SimulatedShare &share = result_.workers[index];
    const double seconds = state.end - state.start;
    share.busy_seconds += seconds;
    ++share.task_count;
    computed_bytes(
        index, static_cast<double>(chunk.range.bytes()),
        seconds - worker.latency_seconds * seconds /
                      (worker.latency_seconds + static_cast<double>(chunk.range.bytes()) / worker.bytes_per_second));
    state.last_end = now_;
    for (const Range &each : ledger_->claim(chunk.id)) {
      share.bytes += each.bytes();
      ledger_->committed(each.bytes());
      result_.tasks[state.task].committed = true;
    }
    ledger_->finish(chunk.id, now_);
    if (!state.claimed.empty()) start(index);
  }

  void failure(unsigned index) {
    State &state = state_[index];
    state.dead = true;
    if (!state.claimed.empty()) result_.tasks[state.task].end_seconds = now_;
    for (const Chunk &each : state.claimed) ledger_->fail(each.id);
    state.claimed.clear();
    if (!ledger_->is_retired(index)) ledger_->retire(index);
  }

  void computed_bytes(unsigned index, double bytes, double seconds) {
    state_[index].compute_seconds += seconds;
    computed_.resize(state_.size());
    computed_[index] += bytes;
  }

  void sum_up() {
    result_.completed = ledger_->is_done();
    result_.makespan_seconds = now_;
    double speed = 0, nominal = 0;
    computed_.resize(state_.size());
    for (std::size_t i = 0; i < state_.size(); ++i) {
      SimulatedShare &share = result_.workers[i];
      share.idle_tail_seconds = state_[i].claimed.empty() ? now_ - state_[i].last_end : 0;
      share.bytes_per_second = state_[i].compute_seconds > 0 ? computed_[i] / state_[i].compute_seconds
                                                             : simulation_.workers[i].bytes_per_second;
      speed += share.bytes_per_second;
      nominal += simulation_.workers[i].bytes_per_second;
    }
    const double work = static_cast<double>(simulation_.work_bytes);
    if (now_ > 0) {
      result_.efficiency = work / speed / now_;
      result_.nominal_efficiency = work / nominal / now_;
    }
    for (SimulatedTask &each : result_.tasks) each.end_seconds = std::min(each.end_seconds, now_);
  }

  const Simulation &simulation_;
  Random random_;
  ResourcePool pool_;
  std::optional<Ledger> ledger_;
  std::vector<State> state_;
  std::vector<double> computed_;
  std::vector<unsigned> order_by_speed_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  double now_ = 0, next_look_ = kNeverSeconds;
  SimulationResult result_;
};

}  // namespace

SimulationResult simulate(const Simulation &simulation) { return Machine(simulation).run(); }

}  // namespace tandem::hybrid
