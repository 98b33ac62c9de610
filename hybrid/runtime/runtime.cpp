// SPDX-License-Identifier: Apache-2.0
#include "hybrid/runtime/runtime.hpp"

#include <algorithm>
#include <cmath>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/signals.hpp"
#include "base/text.hpp"
#include "core/recorded_run.hpp"

namespace tandem::hybrid {
namespace {

constexpr double kDeadlineFactor = 20;  // of the predicted time, before a device is given up
constexpr double kLookSeconds = 0.02;   // how often a caller checks for a cancel, and the watch for late devices
constexpr double kPauseOfProbes = 100;  // of a probe's time, before the next one
constexpr unsigned kMostFailures = 3;
constexpr std::chrono::seconds kLastPatience{2};  // for a device that does not answer, when the runtime ends
constexpr const char *kCancelled = "hybrid: the run was cancelled";

unsigned record_count_of(const core::Task &task) {
  return task.mode == core::Mode::compare ? task.prepared->rows() : 0;
}

// A piece as tasks for one member. Records of a compare are its own, until add_records() merges them into the caller's.
struct PieceTasks {
  PieceTasks(const Job &job, const Range &range, std::size_t member, core::Backend &backend) {
    parts = job.work.parts(range);
    std::size_t record_count = 0;
    for (const Work::Part &part : parts) record_count += record_count_of(part.task);
    records.resize(record_count);
    core::Mismatch *next = records.data();
    for (const Work::Part &part : parts) {
      core::Task task = part.task;
      prepared.push_back(job.operators[part.of]->of(member, backend));
      task.prepared = prepared.back().get();
      task.mismatches = next;
      next += record_count_of(task);
      tasks.push_back(task);
    }
  }
  void add_records() {
    for (std::size_t i = 0; i < tasks.size(); ++i)
      for (unsigned r = 0; r < record_count_of(tasks[i]); ++r)
        parts[i].task.mismatches[r].merge(std::exchange(tasks[i].mismatches[r], {}));
  }

  std::vector<Work::Part> parts;
  std::vector<std::shared_ptr<const core::Prepared>> prepared;
  std::vector<core::Mismatch> records;
  std::vector<core::Task> tasks;
};

WorkKind kind_of(const core::Task &task) { return {task.mode, task.prepared->columns(), task.prepared->rows()}; }
std::chrono::duration<double> seconds(double value) { return std::chrono::duration<double>(value); }
std::uint64_t mib(std::uint64_t bytes) { return (bytes + (std::uint64_t{1} << 20) - 1) >> 20; }

}  // namespace

std::vector<core::Need> needs_of(const Member &member, const core::Control &control, core::MemoryKind memory) {
  std::vector<core::Need> needs = {{member.is_cpu ? core::Budget::kCpu : core::Budget::kGpu, 1}};
  if (!member.is_cpu && memory == core::MemoryKind::host)
    needs.push_back({core::Budget::kPinnedMib, mib(member.staging_bytes)});
  needs.insert(needs.end(), control.needs().begin(), control.needs().end());
  return needs;
}

// Releases the lock for a while, also if an exception passes.
class Runtime::Unlocked {
 public:
  explicit Unlocked(Lock &lock) : lock_(lock) { lock_.unlock(); }
  ~Unlocked() { lock_.lock(); }
  Unlocked(const Unlocked &) = delete;
  Unlocked &operator=(const Unlocked &) = delete;

 private:
  Lock &lock_;
};

// Between a device and the caller's memory. The call does not return while a lane has entered.
class Runtime::PieceGuard final : public core::Guard {
 public:
  PieceGuard(Runtime &runtime, Lane &lane, PieceTasks &tasks, std::uint64_t at)
      : runtime_(runtime), lane_(lane), tasks_(tasks), at_(at) {}

  bool enter() noexcept override {
    const Lock lock(runtime_.mutex_);
    lane_.sign_seconds = now();
    if (!lane_.job->is_open()) return false;
    ++lane_.job->touching;
    return true;
  }

  Own commit(std::uint64_t bytes, bool whole) noexcept override {
    const Lock lock(runtime_.mutex_);
    lane_.sign_seconds = now();
    Job &job = *lane_.job;
    if (!job.is_open()) return {};
    const std::uint64_t at = at_ + computed_bytes_;
    computed_bytes_ += bytes;
    const Range own = job.share->commit(lane_.piece, bytes, now(), whole);
    if (job.share->is_over(lane_.piece)) lane_.control->cancel();  // the rest is done elsewhere
    if (own.bytes() == 0) return {};
    ++job.touching;
    is_writing_ = true;
    exception_count_ = std::uncaught_exceptions();
    committed_bytes += own.bytes();
    return {own.begin - at, own.bytes()};
  }

  void leave() noexcept override {
    const Lock lock(runtime_.mutex_);
    Job &job = *lane_.job;
    lane_.sign_seconds = now();
    tasks_.add_records();
    // What is committed counts as done. If an exception ends its writing, the call must not succeed.
    if (std::exchange(is_writing_, false) && std::uncaught_exceptions() > exception_count_)
      job.error = std::make_exception_ptr(std::bad_alloc());
    if (--job.touching == 0) job.changed.notify_all();
  }

  std::uint64_t committed_bytes = 0;

 private:
  Runtime &runtime_;
  Lane &lane_;
  PieceTasks &tasks_;
  const std::uint64_t at_;  // where the piece begins
  std::uint64_t computed_bytes_ = 0;
  bool is_writing_ = false;  // what it has committed
  int exception_count_ = 0;  // at that commit
};

Runtime::Runtime(const Options &options, const base::Log &log) : options_(options), log_(log) { add(options.members); }

void Runtime::add(std::vector<Member> members) {
  const Lock lock(mutex_);
  for (Member &each : members) {
    members_.push_back(std::make_unique<MemberState>(std::move(each)));
    MemberState &state = *members_.back();
    for (unsigned i = 0; i < (state.member.is_cpu ? 0 : state.member.lanes); ++i) {
      auto lane = std::make_unique<Lane>();
      lane->index = static_cast<unsigned>(lanes_.size() + has_cpu());
      lane->member = members_.size() - 1;
      const std::string &name = state.member.name;
      if (options_.timeline != nullptr)
        lane->row = options_.timeline->row(base::text(name, ", lane ", i), name.substr(0, name.find(':')));
      lanes_.push_back(std::move(lane));
    }
  }
}

std::size_t Runtime::member_count() const {
  const Lock lock(mutex_);
  return members_.size();
}

const Member &Runtime::member(std::size_t index) const {
  const Lock lock(mutex_);
  return members_[index]->member;
}

std::optional<std::size_t> Runtime::only_member() const {
  const Lock lock(mutex_);
  std::optional<std::size_t> only;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (!members_[i]->can_work()) continue;
    if (only) return std::nullopt;
    only = i;
  }
  // A device that failed before shows its error in a shared run.
  return members_.size() == 1 || (only && members_[*only]->member.is_cpu) ? only : std::nullopt;
}

void Runtime::ran_alone(std::span<const core::Task> tasks, double took) {
  double bytes = 0;
  for (const core::Task &each : tasks)
    bytes += static_cast<double>(each.length_bytes) * (each.prepared->columns() + each.prepared->rows());
  const Lock lock(mutex_);
  Memory &memory = members_.front()->memory;
  Speed speed = memory.speed(kind_of(tasks.front()));
  speed.observe(bytes, took);
  memory.keep(kind_of(tasks.front()), speed);
}

// ---- a run, from the side of its caller

// Whether a member can hold its resources. If the user has named it, throws Error (INVALID_ARGUMENT) with the numbers.
bool Runtime::has_room(const Member &member, const core::Control &control) const {
  core::Budget *const budget = options_.resources;
  if (budget == nullptr) return true;
  const std::vector<core::Need> needs = needs_of(member, control, core::MemoryKind::host);
  if (!member.is_optional) budget->check(needs);
  return std::all_of(needs.begin(), needs.end(),
                     [&](const core::Need &need) { return need.amount <= budget->amount(need.resource); });
}

// With the lock. A thread that cannot be started is tried again next time. No lane works without the watch.
void Runtime::start_threads() {
  const base::SignalsBlocked blocked;
  const auto start = [](std::thread *thread, auto body) {
    try {
      if (!thread->joinable()) *thread = std::thread(std::move(body));
    } catch (const std::system_error &) {
    } catch (const std::bad_alloc &) {
    }
    return thread->joinable();
  };
  if (lanes_.empty() || !start(&watch_, [this] { watch(); })) return;
  // A lane holds the runtime, because a thread that is left behind needs it.
  for (const auto &lane : lanes_)
    start(&lane->thread, [runtime = shared_from_this(), own = lane.get()] { runtime->work(*own); });
}

std::shared_ptr<Job> Runtime::open_job(std::span<const core::Task> tasks, core::Control &control) {
  auto job = std::make_shared<Job>(tasks, control);
  for (const core::Task &each : tasks) job->operators.push_back(hybrid_of(each).shared_from_this());
  job->kind = kind_of(tasks.front());
  job->number = ++job_count_;
  const double start = now();
  std::vector<WorkerGroup> groups;
  for (const auto &state : members_) {
    WorkerGroup group{state->member.is_cpu ? 1 : state->member.lanes, state->member.is_cpu,
                      state->memory.speed(job->kind)};
    const double idle = start - state->used_seconds;
    group.is_probed =
        group.speed.is_seen() && idle > kPauseOfProbes * group.speed.seconds_for(group.speed.probe_bytes());
    groups.push_back(std::move(group));
  }
  Share::Options options{options_.policy, job->work.bytes(), options_.chunk_bytes, {}};
  options.cut = [each = job.get()](std::uint64_t position) { return each->work.cut(position); };
  job->share.emplace(std::move(options), std::move(groups));
  job->is_ready.resize(members_.size());
  for (std::size_t i = 0; i < members_.size(); ++i)
    if (!has_room(members_[i]->member, control) || !members_[i]->can_work()) retire(*job, i);
  for (const auto &lane : lanes_)
    if (!lane->thread.joinable()) job->share->retire(lane->index);
  return job;
}

void Runtime::run(std::span<const core::Task> tasks, core::Control &control) {
  if (control.cancelled()) base::fail(TANDEM_ERROR_CANCELLED, kCancelled);
  Lock lock(mutex_);
  start_threads();
  const std::shared_ptr<Job> job = open_job(tasks, control);
  jobs_.push_back(job);
  wake_lanes();
  try {
    drive(*job, lock);
  } catch (...) {
    job->error = std::current_exception();
  }
  close_job(*job, lock);
  if (job->share->is_done() && !job->error) return;
  if (control.cancelled()) base::fail(TANDEM_ERROR_CANCELLED, kCancelled);
  // The caller is the only owner of the exception: lanes may still hold the job.
  if (job->error) std::rethrow_exception(std::exchange(job->error, nullptr));
  if (job->device_error) std::rethrow_exception(std::exchange(job->device_error, nullptr));
  base::fail(TANDEM_ERROR_DEVICE, "hybrid: no device is left that could do the rest of the run");
}

// While work is left, the caller's thread runs it on the CPU. Then it waits for the devices.
void Runtime::drive(Job &job, Lock &lock) {
  while (!job.share->is_done() && job.is_open()) {
    const double at = now();
    const std::uint64_t before = job.share->takeable_bytes();
    const double next = job.share->look(at);
    if (job.share->takeable_bytes() > before) wake_lanes();
    if (has_cpu()) {
      if (const std::optional<Piece> piece = job.share->take(0, at)) {
        run_on_cpu(job, *piece, lock);
        continue;
      }
    }
    if (is_stranded(job)) return;
    job.changed.wait_for(lock, seconds(std::min(next - at, kLookSeconds)));
  }
}

void Runtime::run_on_cpu(Job &job, const Piece &piece, Lock &lock) {
  core::Backend &cpu = *members_.front()->member.backend;
  std::optional<PieceTasks> own;
  try {
    const Unlocked unlocked(lock);
    own.emplace(job, piece.range, 0, cpu);
    cpu.run(own->tasks, *job.control);
  } catch (...) {
    job.share->drop(piece.id);
    throw;
  }
  own->add_records();
  for (const core::Task &each : own->tasks)
    job.operators[own->parts[static_cast<std::size_t>(&each - own->tasks.data())].of]->add_bytes_of_cpu(
        each.length_bytes * each.prepared->columns());
  job.share->commit(piece.id, piece.range.bytes(), now());
  job.share->finish(piece.id, now());
}

// Work is left, and there is no lane for it.
bool Runtime::is_stranded(const Job &job) const {
  if (has_cpu() && !job.share->is_retired(0)) return false;
  return std::none_of(lanes_.begin(), lanes_.end(), [&](const auto &lane) {
    if (lane->index >= job.share->lane_count()) return false;
    return !job.share->is_retired(lane->index) || (lane->job.get() == &job && !lane->is_given_up);
  });
}

// From here on the library does not use the caller's memory, and the caller may unregister it. Only a lane that hangs
// keeps its registration.
void Runtime::close_job(Job &job, Lock &lock) {
  const auto uses_it = [&](const auto &lane) {
    return lane->job.get() == &job && !lane->is_given_up && !lane->memory.is_empty();
  };
  job.closed = true;
  for (const auto &lane : lanes_)
    if (lane->job.get() == &job) lane->control->cancel();
  std::erase_if(jobs_, [&](const auto &each) { return each.get() == &job; });
  job.changed.wait(lock, [&] { return job.touching == 0 && std::none_of(lanes_.begin(), lanes_.end(), uses_it); });
  try {
    for (std::size_t i = 0; i < job.is_ready.size(); ++i) members_[i]->memory.keep(job.kind, job.share->speed(i));
  } catch (const std::bad_alloc &) {  // the run is done; its speeds are lost
  }
}

// On a thread of its own: all threads of a call may wait for a resource that a device holds while it hangs.
void Runtime::watch() {
  Lock lock(mutex_);
  while (!stopping_) {
    if (give_up_late_lanes(now())) {
      stopped_.wait_for(lock, seconds(kLookSeconds));
    } else {
      lane_began_.wait(lock);
    }
  }
}

// A device that gives no sign of life until its deadline is not waited for. Its range goes to the others. Returns
// whether any lane has a deadline.
bool Runtime::give_up_late_lanes(double at) {
  bool any = false;
  for (const auto &lane : lanes_) {
    if (lane->job == nullptr || lane->is_given_up) continue;
    any = true;
    const double expected = lane->job->share->expected_seconds(lane->piece), silent = at - lane->sign_seconds;
    if (silent < options_.least_deadline_seconds + (std::isfinite(expected) ? kDeadlineFactor * expected : 0)) continue;
    lane->is_given_up = true;
    lane->hold.reset();  // a hanging task must not keep logical resources
    MemberState &state = *members_[lane->member];
    ++state.lanes_given_up;
    retire(*lane->job, lane->member);  // it may be closed
    for (const auto &job : jobs_) retire(*job, lane->member);
    lane->job->changed.notify_all();
    wake_lanes();
    log_.say(TANDEM_LOG_WARNING, "hybrid: ", state.member.name, " has not answered for ", base::fixed(silent, 1),
             " s: its work goes to the others, its memory is kept until it does");
  }
  return any;
}

// Lanes that found nothing look again, also one that is on its way to sleep.
void Runtime::wake_lanes() {
  ++version_;
  work_there_.notify_all();
}

void Runtime::retire(Job &job, std::size_t member) {
  if (members_[member]->member.is_cpu && job.share->lane_count() > 0) return job.share->retire(0);
  for (const auto &lane : lanes_)
    if (lane->member == member && lane->index < job.share->lane_count()) job.share->retire(lane->index);
}

void Runtime::stop() noexcept {
  Lock lock(mutex_);
  stopping_ = true;
  work_there_.notify_all();
  stopped_.notify_all();
  lane_began_.notify_all();
  if (watch_.joinable()) {
    const Unlocked unlocked(lock);
    watch_.join();
  }
  const auto end = std::chrono::steady_clock::now() + kLastPatience;
  for (const auto &lane : lanes_) {
    if (!lane->thread.joinable()) continue;
    if (lane_ended_.wait_until(lock, end, [&] { return lane->has_ended; })) {
      lock.unlock();
      lane->thread.join();
      lock.lock();
    } else {
      log_.say(TANDEM_LOG_WARNING, "hybrid: ", members_[lane->member]->member.name,
               " still does not answer; its thread and memory are not freed");
      lane->thread.detach();
    }
  }
}

// ---- the threads of the devices

void Runtime::work(Lane &lane) {
  Lock lock(mutex_);
  while (!stopping_) {
    const std::uint64_t version = version_;
    double look_again = std::numeric_limits<double>::infinity();
    bool did_something = false;
    for (std::shared_ptr<Job> job = job_after(0); job != nullptr; job = job_after(job->number)) {
      try {
        did_something = work_on(lane, job, &look_again, lock);
      } catch (...) {  // no memory, or an amount was lowered
        if (!job->closed) {
          job->share->retire(lane.index);
          job->device_error = std::current_exception();
          job->changed.notify_all();
        }
      }
      lane.hold.reset();
      if (did_something || stopping_) break;
    }
    if (did_something || stopping_ || version != version_) continue;
    if (std::isinf(look_again)) {
      work_there_.wait(lock);
    } else {
      work_there_.wait_for(lock, seconds(std::max(look_again - now(), 0.0)));
    }
  }
  lane.has_ended = true;
  lane_ended_.notify_all();
}

// The oldest of those that are newer.
std::shared_ptr<Job> Runtime::job_after(std::uint64_t number) const {
  const auto found = std::find_if(jobs_.begin(), jobs_.end(), [&](const auto &each) { return each->number > number; });
  return found != jobs_.end() ? *found : nullptr;
}

bool Runtime::work_on(Lane &lane, const std::shared_ptr<Job> &job, double *look_again, Lock &lock) {
  const auto may_take = [&] {
    return !stopping_ && job->is_open() && lane.index < job->share->lane_count() && !job->share->is_retired(lane.index);
  };
  if (!may_take() || !make_ready(lane, *job, lock) || !may_take()) return false;
  *look_again = std::min(*look_again, job->share->look(now()));
  if (job->share->takeable_bytes() == 0) return false;
  lane.needs = needs_of(members_[lane.member]->member, *job->control, core::MemoryKind::host);
  lane.hold.emplace(options_.resources, lane.needs);
  {
    const Unlocked unlocked(lock);
    lane.hold->next_task();
  }
  if (!may_take()) return false;
  const std::optional<Piece> piece = job->share->take(lane.index, now());
  if (piece) do_piece(lane, job, *piece, lock);
  return piece.has_value();
}

// Prepares the operators for this device before it gets any work, because that may take long.
bool Runtime::make_ready(const Lane &lane, Job &job, Lock &lock) {
  if (job.is_ready[lane.member]) return true;
  core::Backend &backend = *members_[lane.member]->member.backend;
  try {
    const Unlocked unlocked(lock);
    for (const auto &each : job.operators) each->of(lane.member, backend);
  } catch (...) {
    if (job.is_open()) device_failed(lane, job, std::current_exception());
    return false;
  }
  job.is_ready[lane.member] = true;
  return true;
}

void Runtime::do_piece(Lane &lane, const std::shared_ptr<Job> &job, const Piece &piece, Lock &lock) {
  MemberState &state = *members_[lane.member];
  core::Backend &backend = *state.member.backend;
  const double start = lane.sign_seconds = state.used_seconds = now();
  lane.job = job;
  lane.piece = piece.id;
  lane_began_.notify_all();
  std::exception_ptr error;
  std::uint64_t committed = 0;
  try {
    PieceTasks own(*job, piece.range, lane.member, backend);
    PieceGuard guard(*this, lane, own, piece.range.begin);
    core::Control control(guard);
    lane.control = &control;
    try {
      lane.memory = core::MemoryHold(own.tasks);
      const Unlocked unlocked(lock);
      backend.run(own.tasks, control);
    } catch (const base::Error &failure) {
      if (failure.status() != TANDEM_ERROR_CANCELLED || !control.cancelled()) error = std::current_exception();
      if (job->closed) error = nullptr;
    } catch (...) {
      error = std::current_exception();
    }
    lane.memory = {};
    lane.control = nullptr;
    committed = guard.committed_bytes;
  } catch (...) {
    error = std::current_exception();
  }
  lane.job.reset();
  const bool was_given_up = std::exchange(lane.is_given_up, false);
  if (was_given_up) --state.lanes_given_up;
  if (error) {
    job->share->drop(piece.id);
  } else {
    job->share->finish(piece.id, now());
  }
  wake_lanes();  // before what may throw
  job->changed.notify_all();
  if (error && job->is_open()) device_failed(lane, *job, error);
  if (was_given_up) log_.say(TANDEM_LOG_INFO, "hybrid: ", state.member.name, " answers again");
  if (!error && job->closed) state.memory.keep(job->kind, job->share->speed(lane.member));
  if (options_.timeline != nullptr) {
    const auto data = static_cast<std::uint64_t>(static_cast<double>(committed) / job->kind.moved_per_byte());
    options_.timeline->add({lane.row, core::TaskText(job->work.tasks().front()).text(), piece.range.begin,
                            piece.range.end, data, start, now(), committed > 0});
  }
}

void Runtime::device_failed(const Lane &lane, Job &job, const std::exception_ptr &error) {
  MemberState &state = *members_[lane.member];
  retire(job, lane.member);
  job.device_error = error;
  job.changed.notify_all();
  const auto status_of = [&]() -> tandem_status {
    try {
      std::rethrow_exception(error);
    } catch (const base::Error &each) {
      return each.status();
    } catch (...) {
      return TANDEM_ERROR_INTERNAL;
    }
  };
  if (status_of() == TANDEM_ERROR_UNSUPPORTED) return;  // which is an error of this operator, not of the device
  state.is_out = ++state.failures >= kMostFailures;
  if (state.is_out)
    for (const auto &each : jobs_) retire(*each, lane.member);
  log_.say(TANDEM_LOG_WARNING, "hybrid: ", state.member.name, " failed (", base::what_of(error),
           "): its work goes to the others", state.is_out ? ", it gets no more" : "");
}

}  // namespace tandem::hybrid
