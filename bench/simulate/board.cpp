// SPDX-License-Identifier: Apache-2.0
#include "bench/simulate/board.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <queue>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text.hpp"

namespace tandem::bench {

using base::Random;

namespace {

using Part = BoardSpan::Part;

struct BoardEvent {
  double seconds;
  std::uint64_t order;  // of events at the same time the older one is first
  enum class What { parent_ready, part_over } what;
  unsigned worker, core;
  std::size_t task;  // index into the tasks of the result
  Part part;
  bool operator>(const BoardEvent &other) const {
    return seconds != other.seconds ? seconds > other.seconds : order > other.order;
  }
};

void check(const Simulation &simulation) {
  const auto refuse = [](const SimulatedWorker &worker, const char *what) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
               base::text("worker ", worker.name, ": ", what,
                          " has no meaning with policy budget if a worker has inner tasks"));
  };
  for (const SimulatedWorker &each : simulation.workers) {
    if (each.claims != 1) refuse(each, "claim");
    if (each.slow_from_seconds < kNeverSeconds) refuse(each, "slow");
    if (each.fails_at_seconds < kNeverSeconds) refuse(each, "fails");
    if (each.hangs_at_seconds < kNeverSeconds) refuse(each, "hangs");
    if (each.link) refuse(each, "link");
  }
}

class Board {
 public:
  explicit Board(const Simulation &simulation) : simulation_(simulation), random_(simulation.seed) {
    std::map<std::string, std::uint64_t> amounts;
    if (simulation.policy == Policy::budget) amounts.insert(simulation.resources.begin(), simulation.resources.end());
    workers_.resize(simulation.workers.size());
    out_.run.workers.resize(workers_.size());
    for (unsigned i = 0; i < workers_.size(); ++i) {
      const SimulatedWorker &given = simulation.workers[i];
      Worker &worker = workers_[i];
      worker.first_row = out_.row_count;
      out_.run.workers[i].name = given.name;
      if (const auto amount = amounts.find(given.name); amount != amounts.end()) {
        worker.units = &units_[given.name];
        *worker.units = amount->second;
      }
      const unsigned core_count = given.inner_count > 0 ? given.member_count : 1;
      out_.row_count += core_count;
      for (unsigned core = core_count; core > 0; --core) worker.free_cores.push_back(core - 1);
      (given.inner_count > 0 ? groups_ : singles_).push_back(i);
    }
    std::stable_sort(singles_.begin(), singles_.end(), [&](unsigned a, unsigned b) {
      return simulation.workers[a].bytes_per_second > simulation.workers[b].bytes_per_second;
    });
  }

  BoardResult run() {
    hand_out();
    while (!events_.empty()) {
      const BoardEvent event = events_.top();
      events_.pop();
      now_ = event.seconds;
      if (event.what == BoardEvent::What::parent_ready) {
        workers_[event.worker].parents.push_back(event.task);
      } else {
        part_over(event);
      }
      hand_out();
    }
    sum_up();
    return std::move(out_);
  }

 private:
  struct Worker {
    std::uint64_t *units = nullptr;  // left for its name; null: no limit
    unsigned first_row = 0;
    std::vector<unsigned> free_cores;                 // the last one is used next
    std::deque<std::size_t> parents;                  // tasks with a ready parent part
    std::deque<std::pair<std::size_t, Range>> inner;  // inner tasks that are ready
    double busy_seconds = 0, compute_seconds = 0;     // summed over the cores; the latter without latency and spawn
    double last_end_seconds = 0;
  };

  bool may_take(const Worker &worker) const {
    return next_byte_ < simulation_.work_bytes && (worker.units == nullptr || *worker.units > 0);
  }

  std::size_t take(unsigned index) {
    if (workers_[index].units != nullptr) --*workers_[index].units;
    const std::uint64_t bytes = std::min(simulation_.chunk_bytes, simulation_.work_bytes - next_byte_);
    out_.run.tasks.push_back({index, {next_byte_, next_byte_ + bytes}, now_, now_, true});
    unfinished_parts_.push_back(std::max(simulation_.workers[index].inner_count, 1u));
    next_byte_ += bytes;
    return out_.run.tasks.size() - 1;
  }

  void hand_out() {
    for (bool any = true; any;) {
      any = false;
      for (const unsigned i : singles_) {
        if (workers_[i].free_cores.empty() || !may_take(workers_[i])) continue;
        const std::size_t task = take(i);
        start(i, task, Part::whole, out_.run.tasks[task].range);
        any = true;
      }
      for (const unsigned i : groups_) any = take_unit(i) || any;
      for (const unsigned i : groups_) any = use_core(i) || any;
    }
  }

  // Within a budget: takes a task before a core is free for it.
  bool take_unit(unsigned index) {
    Worker &worker = workers_[index];
    if (worker.units == nullptr || !may_take(worker)) return false;
    const double latency = simulation_.workers[index].latency_seconds;
    const std::size_t task = take(index);
    if (latency > 0) {
      events_.push({now_ + latency, order_++, BoardEvent::What::parent_ready, index, 0, task, Part::spawn});
    } else {
      worker.parents.push_back(task);
    }
    return true;
  }

  bool use_core(unsigned index) {
    Worker &worker = workers_[index];
    if (worker.free_cores.empty()) return false;
    if (worker.units == nullptr && may_take(worker)) {
      start(index, take(index), Part::spawn, {});
    } else if (!worker.parents.empty()) {
      const std::size_t task = worker.parents.front();
      worker.parents.pop_front();
      start(index, task, Part::spawn, {});
    } else if (!worker.inner.empty()) {
      const auto [task, range] = worker.inner.front();
      worker.inner.pop_front();
      start(index, task, Part::inner, range);
    } else {
      return false;
    }
    return true;
  }

  void start(unsigned index, std::size_t task, Part part, const Range &range) {
    const SimulatedWorker &given = simulation_.workers[index];
    Worker &worker = workers_[index];
    const unsigned core = worker.free_cores.back();
    worker.free_cores.pop_back();
    // The inner tasks of one task take the same time, although their bytes may differ by one.
    const double bytes = static_cast<double>(out_.run.tasks[task].range.bytes());
    const double compute = part == Part::spawn ? 0
                           : part == Part::inner
                               ? bytes * given.member_count / given.bytes_per_second / given.inner_count
                               : bytes / given.bytes_per_second;
    const double fixed = part == Part::spawn ? given.spawn_seconds : part == Part::whole ? given.latency_seconds : 0;
    const double factor = 1 + given.jitter * random_.in(-1, 1);
    worker.busy_seconds += (fixed + compute) * factor;
    worker.compute_seconds += compute * factor;
    const double end = now_ + (fixed + compute) * factor;
    out_.spans.push_back({worker.first_row + core, part, range, now_, end});
    events_.push({end, order_++, BoardEvent::What::part_over, index, core, task, part});
  }

  void part_over(const BoardEvent &event) {
    Worker &worker = workers_[event.worker];
    SimulatedTask &task = out_.run.tasks[event.task];
    worker.free_cores.push_back(event.core);
    if (event.part == Part::spawn) {
      const std::uint64_t count = simulation_.workers[event.worker].inner_count;
      // In equal parts. The first ones are a byte longer if the bytes do not divide.
      std::uint64_t begin = task.range.begin;
      for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t bytes = task.range.bytes() / count + (i < task.range.bytes() % count ? 1 : 0);
        worker.inner.push_back({event.task, {begin, begin + bytes}});
        begin += bytes;
      }
      return;
    }
    if (--unfinished_parts_[event.task] > 0) return;
    task.end_seconds = worker.last_end_seconds = now_;
    if (worker.units != nullptr) ++*worker.units;
    SimulatedShare &share = out_.run.workers[event.worker];
    ++share.task_count;
    share.bytes += task.range.bytes();
  }

  void sum_up() {
    SimulationResult &run = out_.run;
    run.completed = next_byte_ == simulation_.work_bytes;
    run.makespan_seconds = now_;
    double speed = 0, nominal = 0;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      const SimulatedWorker &given = simulation_.workers[i];
      const double core_count = given.inner_count > 0 ? given.member_count : 1;
      SimulatedShare &share = run.workers[i];
      share.busy_seconds = workers_[i].busy_seconds / core_count;
      share.idle_tail_seconds = now_ - workers_[i].last_end_seconds;
      share.bytes_per_second = workers_[i].compute_seconds > 0
                                   ? static_cast<double>(share.bytes) / workers_[i].compute_seconds * core_count
                                   : given.bytes_per_second;
      speed += share.bytes_per_second;
      nominal += given.bytes_per_second;
    }
    const double work = static_cast<double>(simulation_.work_bytes);
    run.efficiency = work / speed / now_;
    run.nominal_efficiency = work / nominal / now_;
  }

  const Simulation &simulation_;
  Random random_;
  std::map<std::string, std::uint64_t> units_;
  std::vector<Worker> workers_;
  std::vector<unsigned> singles_, groups_;  // singles_: the fastest first
  std::vector<unsigned> unfinished_parts_;  // of each task
  std::priority_queue<BoardEvent, std::vector<BoardEvent>, std::greater<>> events_;
  std::uint64_t next_byte_ = 0, order_ = 0;
  double now_ = 0;
  BoardResult out_;
};

}  // namespace

BoardResult simulate_board(const Simulation &simulation) {
  check(simulation);
  return Board(simulation).run();
}

}  // namespace tandem::bench
