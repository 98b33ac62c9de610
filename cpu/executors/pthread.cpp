// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fork.hpp"
#include "base/os.hpp"
#include "base/signals.hpp"
#include "core/budget.hpp"
#include "cpu/cores.hpp"
#include "cpu/executors/executor.hpp"
#include "cpu/executors/item_loop.hpp"
#include "cpu/memory.hpp"

namespace tandem::cpu {

namespace {

// docs/internals/THREADS.md has the measurements behind these.
constexpr std::int64_t kMicrosecond = 1000;  // all times are nanoseconds
// How long a thread polls, with a pause instruction, before it sleeps.
constexpr std::int64_t kSpin = 100 * kMicrosecond;
// The assumed time from the wake-up of a worker to its first item, before any was measured.
constexpr std::int64_t kFirstWakeDelay = 50 * kMicrosecond;
// The same if it wakes on the core of its caller. It then takes turns with the caller, which gains nothing.
constexpr std::int64_t kUselessWakeDelay = 1000 * kMicrosecond;
// How old the answer of ExecutorOptions::has_room may be.
constexpr std::int64_t kRoomIsKnownFor = 10000 * kMicrosecond;
// After this time a run tries again to start a thread that could not be started.
constexpr std::int64_t kRetryAfter = 100000 * kMicrosecond;

std::int64_t now() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

template <class Condition>
void spin_while(Condition condition) noexcept {
  const std::int64_t end = now() + kSpin;
  do {
    for (unsigned i = 0; i < 16; ++i) {
      if (!condition()) return;
      pause();
    }
  } while (now() < end);
}

// A semaphore for one sleeping thread. An extra post only causes an extra wake-up, because a waiting thread checks its
// own word. (POSIX's: std::atomic::wait needs syscall(), through which a library can do anything, see fault_test.)
using Bell = base::os::Semaphore;

// A part of the items of a run.
struct alignas(kCacheLine) Segment {
  std::atomic<std::size_t> next{0};
  std::size_t end = 0;
};

// One call of run(), on the caller's stack.
//
// Each thread begins in a segment of its own and then helps in the others. So threads do not compete for one counter.
// And if a program codes the same memory again, most of it is still in the cache of the core that takes it.
struct Job {
  static constexpr unsigned kMostSegments = 8;

  Job(Batch &batch, core::Control &control, core::Budget *budget, std::size_t its_item_count, unsigned its_most_helpers)
      : run(batch, control, budget),
        item_count(its_item_count),
        most_helpers(its_most_helpers),
        segment_count(std::min(kMostSegments, its_most_helpers + 1)) {
    std::size_t begin = 0;
    for (unsigned i = 0; i < segment_count; ++i) {
      segments[i].next.store(begin, std::memory_order_relaxed);
      begin += item_count / segment_count + (i < item_count % segment_count ? 1 : 0);
      segments[i].end = begin;
    }
    segments[0].next.store(1, std::memory_order_relaxed);  // the caller has item 0
  }

  // A thread claims an item before it waits for a unit of the budget. So a caller without an item waits only for its
  // helpers, never for a unit.
  void work(ItemLoop &loop, unsigned thread) noexcept {
    for (unsigned i = 0; i < segment_count; ++i) {
      Segment &segment = segments[(thread + i) % segment_count];
      while (segment.next.load(std::memory_order_relaxed) < segment.end && run.goes_on()) {
        const std::size_t item = segment.next.fetch_add(1, std::memory_order_relaxed);
        if (item >= segment.end) break;
        if (!loop.run(item)) return;
      }
    }
  }

  // No helper can join.
  void work_alone(ItemLoop &loop) noexcept {
    item_count = run.batch.join_rest(item_count);
    for (std::size_t item = 1; item < item_count && loop.run(item); ++item) {
    }
  }

  SpreadRun run;
  std::size_t item_count;
  const unsigned most_helpers;
  const unsigned segment_count;
  const int core = base::os::current_core();  // of the caller
  std::atomic<bool> shares_core{false};       // a helper has worked on that core
  Segment segments[kMostSegments];
};

// The place of a run in the pool. The state holds everything that a worker needs to join, because the job may be gone
// until it has joined. It is 0 while the place is free.
struct alignas(kCacheLine) Slot {
  static constexpr std::uint32_t kTaken = 1;
  static constexpr std::uint32_t kCallerSleeps = 2;
  static constexpr std::uint32_t kHelper = 1 << 2, kHelpers = 0x3fff << 2;  // helpers that have joined and not left
  static constexpr std::uint32_t kSeat = 1 << 16, kSeats = 0xffffu << 16;   // how many more may join
  static constexpr unsigned kMostSeats = 0x3fff;

  std::atomic<std::uint32_t> state{0};
  Job *job = nullptr;  // valid for workers that have joined
  Bell caller_bell;
};

// The state of a worker.
struct alignas(kCacheLine) Worker {
  static constexpr std::uint32_t kBusy = 0, kSpinning = 1, kSleeping = 2, kCalled = 3;

  std::atomic<std::uint32_t> word{kBusy};
  Bell bell;
  std::atomic<std::int64_t> called_at{0};
  std::atomic<std::uint64_t> spin_count{0}, sleep_count{0};
  class Pool *pool = nullptr;
  unsigned number = 0;  // from 1
  pthread_t thread{};
};

// The workers of one executor in one process. A caller posts its run in a slot and calls workers, each by its own word:
// a spinning one by a store, a sleeping one by a system call. After the threads have started no lock is taken.
//
// No call is lost between a caller and a worker that becomes idle. The caller writes the slot and then reads the word,
// the worker writes its word and then reads the slots. Both orders are sequentially consistent, so one sees the other.
class Pool {
 public:
  Pool() = default;
  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;

  ~Pool() {
    stopping_ = true;
    const unsigned count = worker_count_.load();
    for (unsigned i = 0; i < count; ++i)
      if (workers_[i].word.exchange(Worker::kCalled) == Worker::kSleeping) workers_[i].bell.post();
    for (unsigned i = 0; i < count; ++i) pthread_join(workers_[i].thread, nullptr);
  }

  void run(Job &job, const ExecutorOptions &options) {
    if (worker_count_.load(std::memory_order_acquire) != options.thread_count - 1) start_missing_workers(options);

    const std::int64_t begin = now();
    const std::int64_t gap = begin - last_end_.load(std::memory_order_relaxed);
    if (gap > kSpin) unhelped_.store(0, std::memory_order_relaxed);
    gap_.store(gap, std::memory_order_relaxed);
    caller_core_.store(job.core, std::memory_order_relaxed);

    const auto wanted = static_cast<unsigned>(std::min<std::size_t>(job.item_count - 1, job.most_helpers));
    const double first_share = job.run.batch.first_item_share();
    Slot *slot = nullptr;
    unsigned called = 0;
    bool is_short = false;  // what is left is not worth a wake-up
    // While all workers sleep, a run that may need none does not touch memory that they read.
    if (first_share <= 0 || awake_count_.load(std::memory_order_relaxed) != 0) {
      slot = post(job, wanted);
      if (slot != nullptr) called = call(Worker::kSpinning, wanted);
      if (slot != nullptr && first_share <= 0) called += call(Worker::kSleeping, wanted - called);
    }
    {
      ItemLoop loop(job.run);
      if (loop.run(0)) {
        if (first_share > 0 && called < wanted) {
          const double left = static_cast<double>(now() - begin) * (1 / first_share - 1) / (1 + called);
          const unsigned most = std::min(worth_waking(left), wanted - called);
          is_short = most == 0;
          if (most != 0 && slot == nullptr) slot = post(job, wanted);
          if (most != 0 && slot != nullptr) called += call(Worker::kSleeping, most);
        }
        if (is_short && called == 0 && (slot == nullptr || take_back(*slot) == seats_for(wanted)))
          job.work_alone(loop);
        else
          job.work(loop, 0);
      }
    }
    if (slot != nullptr) close(*slot);
    last_end_.store(now(), std::memory_order_relaxed);
  }

  void add_counts(ExecutorCounts &counts) const noexcept {
    const unsigned count = worker_count_.load(std::memory_order_acquire);
    for (unsigned i = 0; i < count; ++i) {
      counts.spins += workers_[i].spin_count.load(std::memory_order_relaxed);
      counts.sleeps += workers_[i].sleep_count.load(std::memory_order_relaxed);
    }
    counts.wakes += wake_count_.load(std::memory_order_relaxed);
    counts.caller_sleeps += caller_sleep_count_.load(std::memory_order_relaxed);
  }

 private:
  // The caller's side.

  // Null: as many runs as the pool has threads are under way, and this run gets no help.
  Slot *post(Job &job, unsigned seats) noexcept {
    for (unsigned i = 0; i < slot_count_; ++i) {
      Slot &slot = slots_[i];
      std::uint32_t free = 0;
      if (slot.state.load(std::memory_order_relaxed) != 0 || !slot.state.compare_exchange_strong(free, Slot::kTaken))
        continue;
      slot.job = &job;
      slot.state.store(Slot::kTaken + seats_for(seats));
      return &slot;
    }
    return nullptr;
  }

  // Calls up to `most` workers in one state; returns how many.
  unsigned call(std::uint32_t state, unsigned most) noexcept {
    unsigned called = 0;
    const unsigned count = worker_count_.load(std::memory_order_acquire);
    for (unsigned i = 0; i < count && called < most; ++i) {
      Worker &worker = workers_[i];
      if (worker.word.load() != state) continue;
      if (state == Worker::kSleeping) worker.called_at.store(now(), std::memory_order_relaxed);
      std::uint32_t expected = state;
      if (!worker.word.compare_exchange_strong(expected, Worker::kCalled)) continue;
      ++called;
      if (state != Worker::kSleeping) continue;
      worker.bell.post();
      wake_count_.fetch_add(1, std::memory_order_relaxed);
    }
    return called;
  }

  // How many workers to wake when so much of a run is left: one for each two wake-up delays. The rest of runs that woke
  // none adds up while runs follow each other closely. A worker that is woken late in one run then spins for the next.
  unsigned worth_waking(double left) noexcept {
    const auto delay = static_cast<double>(wake_delay_.load(std::memory_order_relaxed));
    const double with_earlier = left + unhelped_.load(std::memory_order_relaxed);
    if (with_earlier >= 2 * delay && (left >= 2 * delay || has_room())) {
      unhelped_.store(0, std::memory_order_relaxed);
      return static_cast<unsigned>(std::min(with_earlier / (2 * delay), 4096.0));
    }
    unhelped_.store(std::min(with_earlier, 2 * delay), std::memory_order_relaxed);
    // An old delay must not prevent every wake-up that would measure it again.
    wake_delay_.store(std::max(kMicrosecond, static_cast<std::int64_t>(delay - left / 64)), std::memory_order_relaxed);
    return 0;
  }

  static std::uint32_t seats_for(unsigned helpers) noexcept {
    return std::min(helpers, Slot::kMostSeats) * Slot::kSeat;
  }

  // No worker may join any more. Returns the seats that were free: all of them, if no worker has ever joined.
  static std::uint32_t take_back(Slot &slot) noexcept { return slot.state.fetch_and(~Slot::kSeats) & Slot::kSeats; }

  // Returns when all helpers have left.
  void close(Slot &slot) noexcept {
    take_back(slot);
    const auto has_helpers = [&] { return (slot.state.load(std::memory_order_acquire) & Slot::kHelpers) != 0; };
    if (has_helpers() && has_room_.load(std::memory_order_relaxed) &&
        !slot.job->shares_core.load(std::memory_order_relaxed))
      spin_while(has_helpers);
    while (has_helpers()) {
      const std::uint32_t state = slot.state.fetch_or(Slot::kCallerSleeps) | Slot::kCallerSleeps;
      if ((state & Slot::kHelpers) == 0) break;
      caller_sleep_count_.fetch_add(1, std::memory_order_relaxed);
      slot.caller_bell.wait();
    }
    slot.state.store(0, std::memory_order_release);
  }

  // The worker's side.

  static void *worker_main(void *worker) {
    Worker &me = *static_cast<Worker *>(worker);
    me.pool->work(me);
    return nullptr;
  }

  void work(Worker &me) noexcept {
    do {
      while (Slot *slot = join()) help(*slot, me);
    } while (wait_for_call(me));
  }

  bool has_seats() const noexcept {
    for (unsigned i = 0; i < slot_count_; ++i)
      if ((slots_[i].state.load() & Slot::kSeats) != 0) return true;
    return false;
  }

  // A seat of the run with the fewest helpers, so that workers are shared evenly between callers.
  Slot *join() noexcept {
    for (;;) {
      Slot *best = nullptr;
      std::uint32_t best_state = 0;
      for (unsigned i = 0; i < slot_count_; ++i) {
        const std::uint32_t state = slots_[i].state.load();
        if ((state & Slot::kSeats) == 0) continue;
        if (best != nullptr && (state & Slot::kHelpers) >= (best_state & Slot::kHelpers)) continue;
        best = &slots_[i];
        best_state = state;
      }
      if (best == nullptr) return nullptr;
      if (best->state.compare_exchange_strong(best_state, best_state - Slot::kSeat + Slot::kHelper)) return best;
    }
  }

  static void help(Slot &slot, const Worker &me) noexcept {
    Job &job = *slot.job;
    if (base::os::current_core() == job.core) job.shares_core.store(true, std::memory_order_relaxed);
    {
      ItemLoop loop(job.run);
      job.work(loop, me.number);
    }
    slot.state.fetch_and(~Slot::kSeats, std::memory_order_relaxed);  // there is nothing left to begin
    // The job may be gone from here on. The slot stays, and an extra wake-up does no harm.
    const std::uint32_t before = slot.state.fetch_sub(Slot::kHelper, std::memory_order_acq_rel);
    if ((before & Slot::kCallerSleeps) != 0 && (before & Slot::kHelpers) == Slot::kHelper) slot.caller_bell.post();
  }

  // Spins, then sleeps, until a caller wants this worker. False: the pool ends.
  bool wait_for_call(Worker &me) noexcept {
    const bool spins = is_spin_worth_it();
    me.word.store(Worker::kSpinning);
    if (!has_seats() && !stopping_) {  // a run posted just before saw this worker as busy
      if (spins) {
        count_one(me.spin_count);
        spin_while([&] { return me.word.load(std::memory_order_relaxed) == Worker::kSpinning; });
      }
      std::uint32_t expected = Worker::kSpinning;
      if (me.word.compare_exchange_strong(expected, Worker::kSleeping)) {
        awake_count_.fetch_sub(1, std::memory_order_relaxed);
        count_one(me.sleep_count);
        while (me.word.load(std::memory_order_acquire) == Worker::kSleeping) me.bell.wait();
        awake_count_.fetch_add(1, std::memory_order_relaxed);
        learn_wake_delay(me);
      }
    }
    me.word.store(Worker::kBusy);
    return !stopping_;
  }

  // If the last two runs followed each other within the time of a spin, and other programs do not need the core.
  bool is_spin_worth_it() noexcept {
    return gap_.load(std::memory_order_relaxed) < kSpin &&
           base::os::current_core() != caller_core_.load(std::memory_order_relaxed) && has_room();
  }

  bool has_room() noexcept {
    const std::int64_t time = now();
    std::int64_t checked_at = room_checked_at_.load(std::memory_order_relaxed);
    if (time - checked_at > kRoomIsKnownFor && room_checked_at_.compare_exchange_strong(checked_at, time))
      has_room_.store(ask_for_room_(slot_count_), std::memory_order_relaxed);
    return has_room_.load(std::memory_order_relaxed);
  }

  void learn_wake_delay(const Worker &me) noexcept {
    const bool is_useless = base::os::current_core() == caller_core_.load(std::memory_order_relaxed);
    const std::int64_t took = is_useless ? kUselessWakeDelay : now() - me.called_at.load(std::memory_order_relaxed);
    const std::int64_t known = wake_delay_.load(std::memory_order_relaxed);
    // A larger delay counts at once, because it fades with time. But one outlier does not make it huge.
    const std::int64_t sample = std::clamp(took, kMicrosecond, std::max(4 * known, kFirstWakeDelay));
    wake_delay_.store(sample > known ? sample : known + (sample - known) / 4, std::memory_order_relaxed);
  }

  // Only its own thread writes it.
  static void count_one(std::atomic<std::uint64_t> &count) noexcept {
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  // Threads.

  void start_missing_workers(const ExecutorOptions &options) {
    const std::lock_guard lock(starting_);
    const unsigned wanted = options.thread_count - 1;
    unsigned count = worker_count_.load();
    if (count == wanted || now() < retry_at_) return;
    if (workers_ == nullptr) {
      auto workers = std::make_unique<Worker[]>(wanted);
      slots_ = std::make_unique<Slot[]>(options.thread_count);
      workers_ = std::move(workers);
      slot_count_ = options.thread_count;
      ask_for_room_ = options.has_room;
    }

    const base::SignalsBlocked blocked;  // inherited: signals belong to the program
    while (count < wanted && start_worker(workers_[count], count + 1, options.cores)) worker_count_.store(++count);
    if (count < wanted) retry_at_ = now() + kRetryAfter;
  }

  bool start_worker(Worker &worker, unsigned number, const std::vector<unsigned> &cores) noexcept {
    awake_count_.fetch_add(1, std::memory_order_relaxed);
    worker.pool = this;
    worker.number = number;
    if (pthread_create(&worker.thread, nullptr, worker_main, &worker) != 0) {
      awake_count_.fetch_sub(1, std::memory_order_relaxed);
      return false;
    }
    base::os::name_thread(worker.thread, "tandem-cpu");
    // From the second core on: the caller, which is not pinned, usually runs on the first.
    if (!cores.empty()) base::os::pin_thread(worker.thread, cores[number % cores.size()]);
    return true;
  }

  std::mutex starting_;
  std::int64_t retry_at_ = 0;          // under starting_
  std::unique_ptr<Worker[]> workers_;  // these four are written before the first worker starts
  std::unique_ptr<Slot[]> slots_;
  unsigned slot_count_ = 0;  // as many as threads
  bool (*ask_for_room_)(unsigned) noexcept = nullptr;
  std::atomic<unsigned> worker_count_{0};
  std::atomic<bool> stopping_{false};

  // The rest only decides which workers spin and which are woken. All of it is relaxed.
  std::atomic<std::int64_t> last_end_{0}, gap_{0};  // of runs; gap: between the last two
  std::atomic<unsigned> awake_count_{0};
  std::atomic<int> caller_core_{-1};  // of the last run
  std::atomic<double> unhelped_{0};
  std::atomic<std::int64_t> wake_delay_{kFirstWakeDelay};
  std::atomic<std::int64_t> room_checked_at_{-kRoomIsKnownFor};
  std::atomic<bool> has_room_{false};
  std::atomic<std::uint64_t> wake_count_{0}, caller_sleep_count_{0};
};

class PthreadExecutor final : public Executor {
 public:
  explicit PthreadExecutor(const ExecutorOptions &options) : options_(options) {
    if (options_.has_room == nullptr)
      options_.has_room = options_.thread_count <= cgroup_core_limit({}) ? machine_has_room : no_room;
  }

  const char *name() const noexcept override { return "pthread"; }
  unsigned thread_count() const noexcept override { return options_.thread_count; }
  ExecutorCounts counts() noexcept override {
    ExecutorCounts counts;
    if (const Pool *pool = pool_.get_if_made()) pool->add_counts(counts);
    return counts;
  }

  bool run(Batch &batch, std::size_t item_count, core::Control &control, unsigned most_threads) override {
    const unsigned threads = std::min(options_.thread_count, most_threads);
    if (item_count <= 1 || threads == 1) {
      return run_serially(batch, item_count, control, options_.budget);
    }
    Job job(batch, control, options_.budget, item_count, threads - 1);
    pool_.get().run(job, options_);
    return job.run.ran_all(job.item_count);
  }

 private:
  static bool no_room(unsigned) noexcept { return false; }

  ExecutorOptions options_;
  base::ForkLocal<Pool> pool_;
};

}  // namespace

std::unique_ptr<Executor> make_pthread_executor(const ExecutorOptions &options) {
  check_executor_options(options);
  return std::make_unique<PthreadExecutor>(options);
}

}  // namespace tandem::cpu
