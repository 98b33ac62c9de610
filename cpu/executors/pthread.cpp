#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "base/fork.hpp"
#include "core/budget.hpp"
#include "cpu/cores.hpp"
#include "cpu/executors/executor.hpp"
#include "cpu/executors/item_loop.hpp"

namespace tandem::cpu {

namespace {

// A thread that could not be started is tried again by a run this much later.
constexpr std::chrono::milliseconds kRetryAfter{100};

// How long a thread looks for news before it sleeps: what being woken costs (about 50 microseconds on a virtual machine
// with 2 cores). A worker looks only after an idle time that was short. Back-to-back runs of 8 items of 10 microseconds
// on 2 threads, medians in microseconds of runs on a shared, unquiet machine (ideal 40): without looking 82, 58, 81;
// with a pause instruction in the loop 41, 81, 41; yielding, as here, 81 in the one run made, under more load. So the
// gain of this form is not shown yet.
constexpr std::chrono::microseconds kSpin{50};

template <class Condition>
void spin_until(Condition condition) noexcept {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  while (!condition() && std::chrono::steady_clock::now() < end) sched_yield();
}

// One call of run(), on the caller's stack.
struct Job {
  Run run;
  const std::size_t item_count;
  const unsigned most_helpers;
  std::atomic<std::size_t> next_item{0};

  // Changed under Pool::mutex:
  std::atomic<unsigned> helper_count{0};
  std::condition_variable helpers_left{};
  Job *previous = nullptr;
  Job *next = nullptr;

  bool has_items() const noexcept { return next_item.load(std::memory_order_relaxed) < item_count && run.goes_on(); }

  // An item is claimed before its thread waits for a unit of the budget: a caller that has claimed nothing waits only
  // for its helpers, never for a unit.
  void work() {
    ItemLoop loop(run);
    while (has_items()) {
      const std::size_t item = next_item.fetch_add(1, std::memory_order_relaxed);
      if (item >= item_count || !loop.run(item)) break;
    }
  }
};

// The workers of one executor in one process.
class Pool {
 public:
  Pool() = default;
  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;

  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      news_.fetch_add(1, std::memory_order_relaxed);
    }
    job_posted_.notify_all();
    for (const pthread_t worker : workers_) pthread_join(worker, nullptr);
  }

  void run(Job &job, const ExecutorOptions &options) {
    std::size_t wake_count;
    {
      const std::lock_guard lock(mutex_);
      start_missing_workers(options);
      link(job);
      news_.fetch_add(1, std::memory_order_relaxed);
      const std::size_t wanted = std::min<std::size_t>(job.item_count - 1, job.most_helpers);
      wake_count = std::min(wanted - std::min(wanted, spinning_count_), sleeping_count_);
    }
    for (std::size_t i = 0; i < wake_count; ++i) job_posted_.notify_one();

    job.work();

    // Only a look: the lock below decides.
    spin_until([&] { return job.helper_count.load(std::memory_order_relaxed) == 0; });
    std::unique_lock lock(mutex_);
    unlink(job);
    job.helpers_left.wait(lock, [&] { return job.helper_count == 0; });
  }

 private:
  static void *worker_main(void *pool) {
    static_cast<Pool *>(pool)->work();
    return nullptr;
  }

  void work() {
    bool spin = false;
    std::unique_lock lock(mutex_);
    for (;;) {
      const auto idle_since = std::chrono::steady_clock::now();
      Job *job = job_to_help();
      if (job == nullptr && spin) {
        const std::uint64_t known = news_.load(std::memory_order_relaxed);
        ++spinning_count_;
        lock.unlock();
        spin_until([&] { return news_.load(std::memory_order_relaxed) != known; });
        lock.lock();
        --spinning_count_;
      }
      ++sleeping_count_;
      job_posted_.wait(lock, [&] { return (job = job_to_help()) != nullptr || stopping_; });
      --sleeping_count_;
      if (job == nullptr) return;
      spin = std::chrono::steady_clock::now() - idle_since < 2 * kSpin;

      ++job->helper_count;
      lock.unlock();
      job->work();
      lock.lock();
      // Under the lock: the caller, and with it the job, goes as soon as it can have it.
      if (--job->helper_count == 0) job->helpers_left.notify_one();
    }
  }

  // The one with the fewest helpers, so that callers share the workers evenly.
  Job *job_to_help() const noexcept {
    Job *best = nullptr;
    for (Job *job = first_; job != nullptr; job = job->next) {
      if (job->has_items() && job->helper_count < job->most_helpers &&
          (best == nullptr || job->helper_count < best->helper_count))
        best = job;
    }
    return best;
  }

  void link(Job &job) noexcept {
    job.previous = last_;
    (last_ != nullptr ? last_->next : first_) = &job;
    last_ = &job;
  }

  void unlink(Job &job) noexcept {
    (job.previous != nullptr ? job.previous->next : first_) = job.next;
    (job.next != nullptr ? job.next->previous : last_) = job.previous;
  }

  void start_missing_workers(const ExecutorOptions &options) {
    const std::size_t wanted = options.thread_count - 1;
    if (workers_.size() == wanted || std::chrono::steady_clock::now() < retry_at_) return;

    const std::vector<unsigned> cores = options.pin_threads ? affinity_cores() : std::vector<unsigned>();
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // inherited: signals are the program's own business
    while (workers_.size() < wanted) {
      if (!start_worker(cores)) {
        retry_at_ = std::chrono::steady_clock::now() + kRetryAfter;
        break;
      }
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  bool start_worker(const std::vector<unsigned> &cores) noexcept {
    try {
      workers_.emplace_back();
    } catch (const std::bad_alloc &) {
      return false;
    }
    if (pthread_create(&workers_.back(), nullptr, worker_main, this) != 0) {
      workers_.pop_back();
      return false;
    }
    pthread_setname_np(workers_.back(), "tandem-cpu");
    // From the second core on: the caller, which is not pinned, most often runs on the first.
    if (!cores.empty()) pin(workers_.back(), cores[workers_.size() % cores.size()]);
    return true;
  }

  // A core that has gone meanwhile leaves the worker unpinned, which is only slower.
  static void pin(pthread_t thread, unsigned core) noexcept {
    cpu_set_t *mask = CPU_ALLOC(core + 1);
    if (mask == nullptr) return;
    const std::size_t mask_bytes = CPU_ALLOC_SIZE(core + 1);
    CPU_ZERO_S(mask_bytes, mask);
    CPU_SET_S(core, mask_bytes, mask);
    pthread_setaffinity_np(thread, mask_bytes, mask);
    CPU_FREE(mask);
  }

  std::mutex mutex_;
  std::condition_variable job_posted_;
  Job *first_ = nullptr;
  Job *last_ = nullptr;
  std::size_t sleeping_count_ = 0;
  std::size_t spinning_count_ = 0;
  std::atomic<std::uint64_t> news_{0};  // changes with every job and at the end, under mutex_
  bool stopping_ = false;
  std::vector<pthread_t> workers_;
  std::chrono::steady_clock::time_point retry_at_{};
};

class PthreadExecutor final : public Executor {
 public:
  explicit PthreadExecutor(const ExecutorOptions &options) : options_(options) {}

  const char *name() const noexcept override { return "pthread"; }
  unsigned thread_count() const noexcept override { return options_.thread_count; }

  bool run(Batch &batch, std::size_t item_count, core::Control &control, unsigned most_threads) override {
    const unsigned threads = std::min(options_.thread_count, most_threads);
    if (item_count <= 1 || threads == 1) {
      return run_serially(batch, item_count, control, options_.budget);
    }
    Job job{{batch, control, options_.budget}, item_count, threads - 1};
    pool_.get().run(job, options_);
    return job.run.ran_all(item_count);
  }

 private:
  const ExecutorOptions options_;
  base::ForkLocal<Pool> pool_;
};

}  // namespace

std::unique_ptr<Executor> make_pthread_executor(const ExecutorOptions &options) {
  check_executor_options(options);
  return std::make_unique<PthreadExecutor>(options);
}

}  // namespace tandem::cpu
