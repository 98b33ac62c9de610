// SPDX-License-Identifier: Apache-2.0
// Study C: strips of a request arrive on some core and are coded on the core that asked. Every policy has one handler
// thread pinned to each core. A policy only chooses the core that handles a strip.
#include <errno.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/studies/contenders.hpp"

namespace tandem::studies {
namespace {

using Json = nlohmann::ordered_json;
constexpr unsigned kParity = 4;

// Counts misses of the last-level cache by all threads that are made later.
class CacheMisses {
 public:
  CacheMisses() {
    perf_event_attr attributes{};
    attributes.size = sizeof attributes;
    attributes.type = PERF_TYPE_HARDWARE;
    attributes.config = PERF_COUNT_HW_CACHE_MISSES;
    attributes.inherit = 1;
    attributes.exclude_kernel = 1;
    file_ = static_cast<int>(syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0));
    if (file_ < 0) reason_ = std::string("perf_event_open: ") + std::strerror(errno);
  }
  ~CacheMisses() {
    if (file_ >= 0) close(file_);
  }
  CacheMisses(const CacheMisses &) = delete;
  CacheMisses &operator=(const CacheMisses &) = delete;

  void add_to(Json &result) const {
    std::uint64_t count = 0;
    if (file_ >= 0 && read(file_, &count, sizeof count) == static_cast<ssize_t>(sizeof count))
      result["cache_misses"] = count;
    else
      result["cache_misses_not_measured"] = reason_.empty() ? "perf_event_open: the counter cannot be read" : reason_;
  }

 private:
  int file_;
  std::string reason_;
};

struct Request {
  std::mutex mutex;
  std::condition_variable done;
  unsigned left = 0;
};

// A strip in flight: bytes as if from the network, and the place where the application wants them.
struct Strip {
  const std::uint8_t *from;
  std::uint8_t *to;
  std::size_t bytes;
  Request *request;
  int asking_core;
};

class Handler {
 public:
  explicit Handler(int core) : core_(core), thread_([this] { work(); }) {}
  ~Handler() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_one();
  }

  int core() const { return core_; }
  std::size_t waiting() {
    const std::lock_guard lock(mutex_);
    return strips_.size() + (busy_ ? 1 : 0);
  }
  void take(const Strip &strip) {
    {
      const std::lock_guard lock(mutex_);
      strips_.push_back(strip);
    }
    changed_.notify_one();
  }
  std::uint64_t handled() const { return handled_; }
  std::uint64_t on_asking_core() const { return on_asking_core_; }

 private:
  void work() {
    try {
      pin_this_thread(core_);
    } catch (const NotMeasured &) {  // main pins first and reports this
    }
    std::unique_lock lock(mutex_);
    for (;;) {
      busy_ = false;
      changed_.wait(lock, [this] { return ends_ || !strips_.empty(); });
      if (strips_.empty()) return;
      const Strip strip = strips_.front();
      strips_.pop_front();
      busy_ = true;
      lock.unlock();
      std::memcpy(strip.to, strip.from, strip.bytes);
      ++handled_;
      if (sched_getcpu() == strip.asking_core) ++on_asking_core_;
      {
        const std::lock_guard done(strip.request->mutex);
        if (--strip.request->left == 0) strip.request->done.notify_one();
      }
      lock.lock();
    }
  }

  const int core_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Strip> strips_;
  bool ends_ = false, busy_ = false;
  std::atomic<std::uint64_t> handled_{0}, on_asking_core_{0};
  std::jthread thread_;
};

struct Settings {
  std::size_t strip_bytes, strips, applications, requests;
  std::string policy;
  bool writes;  // the application sends its strips itself, and a handler only takes the answer to each
};

class Experiment {
 public:
  explicit Experiment(const Settings &settings)
      : at_(settings),
        cores_(allowed_cores()),
        codec_(make_codec(static_cast<unsigned>(at_.strips), kParity, TANDEM_MATRIX_ISAL_CAUCHY)),
        context_(make_context("serial", 1)),
        network_(at_.strips, at_.strip_bytes),
        expected_(kParity, at_.strip_bytes) {
    fill_random(network_.memory(), network_.bytes(), 1);
    check(tandem_encode(context_.get(), codec_.get(), network_.data(), expected_.data(), at_.strip_bytes));
    check_pinning();
  }

  Json run() {
    const CacheMisses misses;
    for (const int core : cores_) handlers_.push_back(std::make_unique<Handler>(core));
    std::atomic<bool> all_equal{true};
    std::atomic<std::uint64_t> moved{0};
    const double began = wall_seconds(), began_cpu = process_seconds();
    on_new_threads(static_cast<unsigned>(at_.applications), [&](unsigned number) {
      if (!application(number, moved)) all_equal = false;
    });
    const double seconds = wall_seconds() - began, cpu_seconds = process_seconds() - began_cpu;
    std::uint64_t handled = 0, local = 0;
    for (const auto &each : handlers_) {
      handled += each->handled();
      local += each->on_asking_core();
    }
    handlers_.clear();
    Json result = {{"seconds", {seconds}},
                   {"cpu_seconds", {cpu_seconds}},
                   {"data_bytes", handled * at_.strip_bytes},
                   {"strips", handled},
                   {"strips_on_the_asking_core", local},
                   {"applications_found_on_another_core", moved.load()},
                   {"bytes_equal", all_equal.load()}};
    misses.add_to(result);
    return result;
  }

 private:
  // Requests all strips, waits for them, codes each. Returns whether the parity was right every time.
  bool application(unsigned number, std::atomic<std::uint64_t> &moved) {
    const int core = cores_[number % cores_.size()];
    pin_this_thread(core);
    const Shards strips(at_.strips, at_.strip_bytes), sent(at_.writes ? at_.strips : 1, at_.strip_bytes);
    Shards parity(kParity, at_.strip_bytes);
    if (at_.writes) std::memcpy(strips.memory(), network_.memory(), network_.bytes());
    const auto code = [&] {
      for (std::size_t s = 0; s < at_.strips; ++s)
        check(tandem_accumulate(context_.get(), codec_.get(), static_cast<std::uint32_t>(s), strips[s], parity.data(),
                                at_.strip_bytes, s == 0));
    };
    bool is_equal = true;
    for (std::size_t i = 0; i < at_.requests; ++i) {
      Request request;
      if (at_.writes) {
        code();
        std::memcpy(sent.memory(), strips.memory(), strips.bytes());
      }
      request.left = static_cast<unsigned>(at_.strips);
      const int asking = sched_getcpu();
      for (std::size_t s = 0; s < at_.strips; ++s)
        choose(s, asking, core).take({network_[s], strips[s], at_.writes ? 0 : at_.strip_bytes, &request, asking});
      {
        std::unique_lock lock(request.mutex);
        request.done.wait(lock, [&] { return request.left == 0; });
      }
      if (sched_getcpu() != asking) ++moved;
      if (!at_.writes) code();
      is_equal = is_equal && equal(parity, 0, expected_, 0, kParity);
    }
    return is_equal && (!at_.writes || equal(sent, 0, network_, 0, at_.strips));
  }

  // The four policies of the document, and cores in turn. An application is pinned while it waits, so the first two
  // policies choose the same core here.
  Handler &choose(std::size_t strip, int asking, int running) {
    if (at_.policy == "asking") return of_core(asking);
    if (at_.policy == "running") return of_core(running);
    if (at_.policy == "dedicated") return *handlers_.back();
    if (at_.policy == "turns") return *handlers_[strip % handlers_.size()];
    Handler *least = handlers_[strip % handlers_.size()].get();
    std::size_t fewest = least->waiting();
    for (const auto &each : handlers_) {
      if (const std::size_t waiting = each->waiting(); waiting < fewest) {
        fewest = waiting;
        least = each.get();
      }
    }
    return *least;
  }
  Handler &of_core(int core) {
    for (const auto &each : handlers_) {
      if (each->core() == core) return *each;
    }
    return *handlers_.front();
  }

  const Settings at_;
  const std::vector<int> cores_;
  const CodecOwner codec_;
  const ContextOwner context_;
  const Shards network_;
  Shards expected_;
  std::vector<std::unique_ptr<Handler>> handlers_;
};

// The model's P and M. P: the time to code a strip that this core has just written. M: the additional time if another
// core wrote it.
Json measure_model(std::size_t strip_bytes, std::size_t strips, std::size_t repeats) {
  const std::vector<int> cores = allowed_cores();
  if (cores.size() < 2) throw NotMeasured("this process may use one core; a strip cannot come from another one");
  const CodecOwner codec = make_codec(static_cast<unsigned>(strips), kParity, TANDEM_MATRIX_ISAL_CAUCHY);
  const ContextOwner context = make_context("serial", 1);
  Shards from(1, strip_bytes), strip(1, strip_bytes), parity(kParity, strip_bytes);
  fill_random(from.memory(), strip_bytes, 1);
  Json local = Json::array(), remote = Json::array();
  on_new_threads(1, [&](unsigned) {
    pin_this_thread(cores[0]);
    const auto sample = [&](Json &out) {
      const double began = thread_seconds();
      check(tandem_accumulate(context.get(), codec.get(), 0, strip[0], parity.data(), strip_bytes, 1));
      out.push_back(thread_seconds() - began);
    };
    for (std::size_t i = 0; i < repeats; ++i) {
      std::memcpy(strip[0], from[0], strip_bytes);
      sample(local);
      on_new_threads(1, [&](unsigned) {
        pin_this_thread(cores[1]);
        std::memcpy(strip[0], from[0], strip_bytes);
      });
      sample(remote);
    }
  });
  return {{"local_seconds", local}, {"remote_seconds", remote}, {"cores", {cores[0], cores[1]}}};
}

Json measure(Arguments &arguments) {
  Settings at;
  at.strip_bytes = arguments.number("strip-bytes", 65536);
  at.strips = arguments.number("strips", 16);
  at.applications = arguments.number("applications", 1);
  at.requests = arguments.number("requests", 1);
  at.policy = arguments.text("policy", "asking");
  const std::string operation = arguments.text("operation", "read");
  at.writes = operation == "write";
  const std::size_t repeats = arguments.number("repeats", 1);
  arguments.done();
  if (at.strip_bytes == 0 || at.strips == 0 || at.strips > 200 || at.applications == 0 || at.applications > 4096 ||
      at.requests == 0 || repeats == 0 || (operation != "read" && operation != "write"))
    throw std::runtime_error("sizes above 0, at most 200 strips and 4096 applications, read or write");
  if (at.policy == "model") return measure_model(at.strip_bytes, at.strips, repeats);
  for (const char *known : {"asking", "running", "least-loaded", "dedicated", "turns"}) {
    if (at.policy == known) return Experiment(at).run();
  }
  throw std::runtime_error("no policy is called " + at.policy);
}

}  // namespace
}  // namespace tandem::studies

int main(int count, char **words) { return tandem::studies::run_contender(count, words, tandem::studies::measure); }
