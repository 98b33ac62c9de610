#include "hybrid/runtime/runtime.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/signals.hpp"
#include "hybrid/runtime/prepared.hpp"

namespace tandem::hybrid {
namespace {

constexpr unsigned kMostFailures = 3;         // of a device, then it is left out for good
constexpr double kDeadlineFactor = 20;        // of the predicted time, before a device is given up
constexpr double kLongestWaitSeconds = 0.02;  // of an idle lane, and of a caller: resources change, calls are cancelled
constexpr const char *kCancelled = "hybrid: the run was cancelled";
constexpr double kStagingFill = 15.0 / 16;        // of a lane's staging; the rest is for cuts and padding
constexpr std::chrono::seconds kLastPatience{2};  // with a device that does not answer, at the very end

std::uint64_t mib(std::uint64_t bytes) { return (bytes + (std::uint64_t{1} << 20) - 1) >> 20; }

std::chrono::duration<double> seconds(double value) { return std::chrono::duration<double>(value); }

constexpr double kFeedingMemory = 0.8;  // of the measured share of a core, when the next chunk comes

// Seconds of the processor that this thread has had.
double thread_seconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

constexpr core::Need kOneCpu[] = {{core::Budget::kCpu, 1}};

// Lanes of the CPU beside threads that feed devices and take so many cores. One is always left.
unsigned left_beside(unsigned lanes, double cores) {
  const double charged = std::min(std::round(cores), static_cast<double>(lanes));
  return std::max(lanes - static_cast<unsigned>(charged), std::min(lanes, 1U));
}

}  // namespace

Runtime::Runtime(const Options &options, const base::Log &log) : options_(options), log_(log) {
  cpu_ = pool_.index("cpu");
  gpu_ = pool_.index("gpu");
  pinned_mib_ = pool_.index("pinned_mib");
  add(options.members);
}

Runtime::~Runtime() = default;

double Runtime::now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Runtime::add(std::vector<Member> members) {
  const Lock lock(mutex_);
  for (Member &each : members) {
    members_.push_back(std::make_unique<MemberState>(std::move(each)));
    recall(members_.size() - 1);
    for (unsigned i = 0; i < members_.back()->member.lanes; ++i) {
      auto lane = std::make_unique<Lane>();
      lane->index = static_cast<unsigned>(lanes_.size());
      lane->member = members_.size() - 1;
      lanes_.push_back(std::move(lane));
    }
  }
}

std::vector<std::shared_ptr<core::Backend>> Runtime::backends() const {
  const Lock lock(mutex_);
  std::vector<std::shared_ptr<core::Backend>> list;
  for (const auto &each : members_) list.push_back(each->member.backend);
  return list;
}

// As many as may work at once.
CpuLanes Runtime::cpu_lanes() const {
  unsigned count = 0;
  for (const auto &each : members_)
    if (each->member.is_in_place) count += each->member.lanes;
  if (options_.policy == Policy::free) return {count, count};
  if (options_.resources != nullptr) {
    const std::uint64_t amount = options_.resources->amount(core::Budget::kCpu);
    count = static_cast<unsigned>(std::min<std::uint64_t>(count, amount));
  }
  double cores = 0;
  for (const auto &each : members_)
    if (!each->member.is_in_place && !each->is_out) cores += each->feeding * each->member.lanes;
  return {count, left_beside(count, cores)};
}

void Runtime::sync_resources() {
  if (options_.resources != nullptr) {
    pool_.set(cpu_, options_.resources->amount(core::Budget::kCpu));
    pool_.set(gpu_, options_.resources->amount(core::Budget::kGpu));
    pool_.set(pinned_mib_, options_.resources->amount(core::Budget::kPinnedMib));
  }
  if (options_.policy != Policy::automatic) return;
  // The threads that feed devices are charged what they were seen to take of the cores.
  double cores = 0;
  for (const auto &lane : lanes_)
    if (lane->on_device_since) cores += members_[lane->member]->feeding;
  pool_.set(cpu_, left_beside(cpu_lanes().alone, cores));
}

// With the lock. False: there is not one.
bool Runtime::start_threads() {
  if (thread_count_ == lanes_.size()) return true;
  const base::SignalsBlocked blocked;
  for (const auto &lane : lanes_) {
    if (lane->thread.joinable()) continue;
    Lane *const own = lane.get();
    try {
      // It holds the runtime: one that is left behind needs it.
      lane->thread = std::thread([runtime = shared_from_this(), own] { runtime->work(*own); });
      ++thread_count_;
      has_cpu_thread_ = has_cpu_thread_ || members_[lane->member]->member.is_in_place;
    } catch (const std::system_error &) {  // perhaps the next time
    } catch (const std::bad_alloc &) {
    }
  }
  return thread_count_ > 0;
}

// Lanes whose thread could not be started are neither retired nor there.
bool Runtime::nobody_can_work(const Job &job) const {
  if (thread_count_ == lanes_.size()) return false;  // the ledger knows all there is to know
  return std::none_of(lanes_.begin(), lanes_.end(), [&](const auto &lane) {
    return lane->thread.joinable() && lane->index < job.ledger.worker_count() &&
           (!job.ledger.is_retired(lane->index) || lane->job.get() == &job);
  });
}

Needs Runtime::needs_of(const Member &member) const {
  if (member.is_in_place) return {{cpu_, 1}};
  return {{gpu_, 1}, {pinned_mib_, mib(member.staging_bytes)}};
}

std::shared_ptr<Job> Runtime::open_job(std::span<const core::Task> tasks, core::Control &control) {
  Work work(tasks);
  sync_resources();

  const core::Task &first = tasks.front();
  const WorkKind kind{first.mode, first.prepared->columns(), first.prepared->rows(), size_class_of(work.bytes())};
  // With somebody who does alone what is not worth sharing, that was asked before.
  const bool admits =
      options_.policy != Policy::automatic || options_.alone != nullptr || speeds_.admits_devices(kind, cpu_lanes());
  std::vector<Worker> workers;
  for (const auto &lane : lanes_) {
    const MemberState &state = *members_[lane->member];
    const Member &member = state.member;
    Worker worker{fmt::format("{}/{}", member.name, lane->index),
                  speeds_.of(lane->member, kind, member.latency_seconds)};
    worker.knee_bytes = static_cast<double>(member.knee_bytes);
    worker.writes_in_place = member.is_in_place;
    worker.needs = needs_of(member);
    if (!member.is_in_place) {
      worker.most_bytes = kStagingFill * static_cast<double>(member.staging_bytes);
      worker.is_optional = member.is_optional;
    }
    worker.start_up_seconds = start_up_seconds(state);
    workers.push_back(std::move(worker));
  }
  Ledger::Options options{options_.policy, work.bytes(), options_.chunk_bytes, {}};
  auto job = std::make_shared<Job>(std::move(work), std::move(options), std::move(workers), pool_, control);
  job->ledger.set_cut([each = job.get()](std::uint64_t position) { return each->work.cut(position); });
  job->kind = kind;
  job->admits_devices = admits;
  job->what = text_of(kind);
  job->start_seconds = now();
  for (const auto &lane : lanes_) {
    const MemberState &state = *members_[lane->member];
    if (state.is_out || state.lanes_given_up > 0) job->ledger.retire(lane->index);
    if (lane->job != nullptr || !lane->thread.joinable() || (!admits && !state.member.is_in_place))
      job->ledger.set_away(lane->index, true);
  }
  return job;
}

void Runtime::run(std::span<const core::Task> tasks, core::Control &control) {
  if (control.cancelled()) base::fail(TANDEM_ERROR_CANCELLED, kCancelled);
  Lock lock(mutex_);
  if (!start_threads()) base::fail(TANDEM_ERROR_OUT_OF_MEMORY, "hybrid: no thread could be started");
  const std::shared_ptr<Job> job = open_job(tasks, control);
  ++runs_begun_;
  if (jobs_.empty()) shared_since_ = job->start_seconds;
  jobs_.push_back(job);
  work_there_.notify_all();
  while (!job->is_over()) {
    job->changed.wait_for(lock, seconds(kLongestWaitSeconds));
    if (control.cancelled()) job->cancelled = true;
    try {
      give_up_late_lanes(now());
      if (!job->is_over() && (!start_threads() || nobody_can_work(*job)))
        base::fail(TANDEM_ERROR_OUT_OF_MEMORY, "hybrid: no thread could be started");
    } catch (...) {  // lanes are at work on the caller's memory: this is not the way out
      job->error = std::current_exception();
    }
  }
  close_job(*job, lock);
  // Taken along, so that this thread is the last to hold them: a lane may let go of the job later.
  const std::exception_ptr error = std::exchange(job->error, nullptr);
  const std::exception_ptr device_error = std::exchange(job->device_error, nullptr);
  if (error) std::rethrow_exception(error);
  if (job->cancelled && !job->ledger.is_done()) base::fail(TANDEM_ERROR_CANCELLED, kCancelled);
  if (job->ledger.is_done()) return;
  if (device_error) std::rethrow_exception(device_error);
  for (unsigned i = 0; i < job->ledger.worker_count(); ++i)  // lowered while the run was under way
    if (!job->ledger.is_retired(i)) pool_.check(job->ledger.worker(i).needs);
  base::fail(TANDEM_ERROR_DEVICE, "hybrid: none of its devices answers any more");
}

// Nobody touches the caller's memory any more when this returns.
void Runtime::close_job(Job &job, Lock &lock) {
  job.closed = true;
  job.device_control.cancel();
  job.changed.wait(lock, [&] { return job.touching == 0; });
  jobs_.remove_if([&](const std::shared_ptr<Job> &each) { return each.get() == &job; });
  work_there_.notify_all();
  const double took = now() - job.start_seconds;
  for (const auto &each : members_)
    if (!each->is_started) each->missed_seconds += took;
  // Who waits for resources has nothing to wait for any more.
  if (jobs_.empty()) {
    for (const auto &lane : lanes_) pool_.leave(lane->index);
    shared_seconds_ += now() - shared_since_;
  }
  try {
    for (const auto &lane : lanes_) {
      if (lane->index >= job.ledger.worker_count() || !job.ledger.has_finished_any(lane->index)) continue;
      speeds_.keep(lane->member, job.kind, job.ledger.worker(lane->index).estimate);
    }
    add_spans(job);
    tell(job);
    tell_worth(job.kind);
  } catch (const std::bad_alloc &) {  // the run is done; what it taught is lost
  }
}

// A device that has not answered for long is not waited for. Its range goes to the others.
void Runtime::give_up_late_lanes(double at) {
  for (const auto &lane : lanes_) {
    if (!lane->on_device_since || lane->is_given_up) continue;
    Job &job = *lane->job;
    const double predicted = job.ledger.predicted_seconds(lane->chunk);
    const double deadline =
        options_.least_deadline_seconds + (std::isfinite(predicted) ? kDeadlineFactor * predicted : 0) +
        (members_[lane->member]->is_started ? 0 : kDeadlineFactor * members_[lane->member]->start_up_seconds);
    if (at - *lane->on_device_since < deadline) continue;
    lane->is_given_up = true;
    ++members_[lane->member]->lanes_given_up;
    if (lane->counts) devices_at_work(-1);
    job.ledger.give_up(lane->chunk);
    retire_everywhere(lane->member);
    log_.say(TANDEM_LOG_WARNING,
             fmt::format("hybrid: {} has not answered for {:.1f} s: its work goes to the others, its memory is kept "
                         "until it does",
                         members_[lane->member]->member.name, at - *lane->on_device_since));
    work_there_.notify_all();
  }
}

void Runtime::stop() noexcept {
  Lock lock(mutex_);
  stopping_ = true;
  work_there_.notify_all();
  const auto end = std::chrono::steady_clock::now() + kLastPatience;
  for (const auto &lane : lanes_) {
    if (!lane->thread.joinable()) continue;
    const bool may_hang = !members_[lane->member]->member.is_in_place;
    if (!may_hang || lane_ended_.wait_until(lock, end, [&] { return lane->has_ended; })) {
      lock.unlock();
      lane->thread.join();
      lock.lock();
    } else {
      log_.say(TANDEM_LOG_WARNING,
               fmt::format("hybrid: {} still does not answer; its thread and memory are left behind",
                           members_[lane->member]->member.name));
      lane->thread.detach();
    }
  }
}

void Runtime::work(Lane &lane) {
  Lock lock(mutex_);
  const Member &member = members_[lane.member]->member;
  lock.unlock();
  if (member.enter_thread) member.enter_thread();
  std::optional<Staging> staging(*member.backend);
  lock.lock();
  while (!stopping_) {
    try {
      double look_again = kLongestWaitSeconds;
      const std::optional<Chunk> chunk = find_chunk(lane, &look_again);
      if (!chunk) {
        if (lane.wants_cpu) {
          wait_for_cpu(lane, lock);
        } else if (jobs_.empty()) {
          work_there_.wait(lock);
        } else {
          work_there_.wait_for(lock, seconds(look_again));
        }
        continue;
      }
      if (member.is_in_place) {
        do_in_place(lane, *lane.job, *chunk, lock);
      } else {
        do_staged(lane, *lane.job, *chunk, *staging, lock);
      }
    } catch (...) {  // no memory for the book itself
      for (const std::shared_ptr<Job> &job : jobs_) job->error = std::current_exception();
      if (lane.job != nullptr && lane.job->ledger.is_in_flight(lane.chunk)) lane.job->ledger.abandon(lane.chunk);
    }
    give_cpu_back(lane);
    const std::shared_ptr<Job> job = std::move(lane.job);
    lane.job.reset();
    if (job != nullptr) --job->lanes_at_work;
    for (const std::shared_ptr<Job> &each : jobs_) {
      if (each == job || each->is_over()) each->changed.notify_all();
      if (each != job) set_away(lane, *each, false);
    }
    work_there_.notify_all();
  }
  give_cpu_back(lane);
  {
    const Unlocked unlocked(lock);
    staging.reset();  // where a device hangs, its driver may not come back from this either
  }
  lane.has_ended = true;
  lane_ended_.notify_all();
}

// Of the policy `automatic`: devices begin when the CPU's own speed is known, and stop where they are no gain.
bool Runtime::may_work(const Lane &lane, const Job &job) const {
  if (options_.policy != Policy::automatic || members_[lane.member]->member.is_in_place) return true;
  const CpuLanes lanes = cpu_lanes();
  if (lanes.alone == 0 || !has_cpu_thread_) return true;
  return job.admits_devices && speeds_.knows_cpu_alone(job.kind) && speeds_.is_worth_it(job.kind, lanes);
}

// The first chunk that a run has for this lane, the oldest run first.
std::optional<Chunk> Runtime::find_chunk(Lane &lane, double *look_again) {
  const double at = now();
  sync_resources();
  // Of several runs the one with the fewest lanes first, so that a small one does not wait for a large one's end.
  if (jobs_.size() > 1) jobs_.sort([](const auto &a, const auto &b) { return a->lanes_at_work < b->lanes_at_work; });
  for (const std::shared_ptr<Job> &job : jobs_) {
    if (!job->is_open() || lane.index >= job->ledger.worker_count()) continue;
    const bool may = may_work(lane, *job);
    job->ledger.set_away(lane.index, !may);
    if (!may) {
      pool_.leave(lane.index);
      continue;
    }
    if (!take_cpu(lane)) {
      for (const std::shared_ptr<Job> &each : jobs_) set_away(lane, *each, true);
      return std::nullopt;
    }
    const std::uint64_t revision = job->ledger.revision();
    const std::optional<Chunk> chunk = job->ledger.take(lane.index, at);
    if (job->ledger.revision() != revision) work_there_.notify_all();
    if (chunk) {
      lane.job = job;
      lane.chunk = chunk->id;
      ++job->lanes_at_work;
      for (const std::shared_ptr<Job> &each : jobs_)
        if (each != job) set_away(lane, *each, true);
      return chunk;
    }
    *look_again = std::min(*look_again, std::max(job->ledger.next_look_seconds(at) - at, 1e-4));
  }
  give_cpu_back(lane);
  return std::nullopt;
}

// What runs on Options::alone, perhaps in other calls at the same time, counts its tasks in Options::resources too.
// Without room in the runtime's own count there is nothing to wait for there.
bool Runtime::take_cpu(Lane &lane) {
  if (options_.resources == nullptr || options_.policy == Policy::free || !members_[lane.member]->member.is_in_place)
    return true;
  lane.holds_cpu = lane.holds_cpu || options_.resources->try_acquire(kOneCpu);
  lane.wants_cpu = !lane.holds_cpu && pool_.free(cpu_) > 0;
  return lane.holds_cpu;
}

// In the order of asking, among all that ask.
void Runtime::wait_for_cpu(Lane &lane, Lock &lock) {
  lane.wants_cpu = false;
  {
    const Unlocked unlocked(lock);
    options_.resources->acquire(kOneCpu);
  }
  lane.holds_cpu = true;
  for (const std::shared_ptr<Job> &each : jobs_) set_away(lane, *each, false);
}

void Runtime::give_cpu_back(Lane &lane) {
  if (std::exchange(lane.holds_cpu, false)) options_.resources->release(kOneCpu);
}

// The lane is with another run, or not any more.
void Runtime::set_away(const Lane &lane, Job &job, bool away) {
  if (lane.index < job.ledger.worker_count()) job.ledger.set_away(lane.index, away || !may_work(lane, job));
}

void Runtime::note(const Lane &lane, Job &job, const Chunk &chunk, double start, std::uint64_t committed) {
  if (options_.timeline == nullptr && !log_.hears(TANDEM_LOG_DEBUG)) return;
  const std::uint64_t shards = job.kind.columns + job.kind.rows;
  job.spans.push_back({lane.index, job.what, chunk.range.begin, chunk.range.end, committed / shards * job.kind.columns,
                       start, now(), committed > 0});
}

// For how long, so far, any device was at work.
double Runtime::devices_at_work_until(double at) const noexcept {
  return devices_at_work_seconds_ + (devices_at_work_ > 0 ? at - devices_changed_ : 0);
}

void Runtime::devices_at_work(int change) noexcept {
  const double at = now();
  devices_at_work_seconds_ = devices_at_work_until(at);
  devices_changed_ = at;
  devices_at_work_ += static_cast<unsigned>(change);
}

void Runtime::do_in_place(Lane &lane, Job &job, const Chunk &chunk, Lock &lock) {
  core::Backend &backend = *members_[lane.member]->member.backend;
  const Touch touch(job);
  const double start = now();
  const double beside = devices_at_work_until(start);
  std::exception_ptr error;
  std::optional<InPlace> run;
  try {
    const Unlocked unlocked(lock);
    run.emplace(job.work, job.work.parts(chunk.range), lane.member, backend);
    run->run(backend, *job.control);
  } catch (...) {
    error = std::current_exception();
  }
  if (error) {
    // A part of the range may be written: nobody may do it again.
    if (job.control->cancelled()) {
      job.cancelled = true;
    } else {
      job.error = error;
    }
    job.ledger.fail(chunk.id);
    return;
  }
  job.ledger.claim(chunk.id);
  job.ledger.committed(chunk.range.bytes());
  run->merge_mismatches(job.work);
  const double end = now();
  job.ledger.finish(chunk.id, end);
  speeds_.cpu_chunk(job.kind, static_cast<double>(chunk.range.bytes()), end - start,
                    devices_at_work_until(end) - beside);
  note(lane, job, chunk, start, chunk.range.bytes());
}

// From the caller's shards through the device into staging. What the device may hold up is done while the lane touches
// nothing of the caller's.
std::exception_ptr Runtime::run_on_device(Lane &lane, Job &job, const Chunk &chunk, Staging &staging, bool *ran,
                                          Lock &lock) {
  const Member &member = members_[lane.member]->member;
  try {
    std::vector<TaskPart> parts;
    std::vector<std::shared_ptr<const HybridPrepared>> matrices;  // they may outlive the call
    {
      const Touch touch(job);
      const Unlocked unlocked(lock);
      parts = job.work.parts(chunk.range);
      for (const TaskPart &part : parts) matrices.push_back(hybrid_of(job.work.task(part.task)).shared_from_this());
    }
    {
      const Unlocked unlocked(lock);
      staging.prepared.clear();
      for (const auto &each : matrices) staging.prepared.push_back(each->of(lane.member, *member.backend));
      staging.lay_out(job.work, parts, member.staging_bytes);
    }
    if (!job.is_open()) return nullptr;
    {
      const Touch touch(job);
      const Unlocked unlocked(lock);
      staging.copy_in(job.work);
    }
    *ran = true;
    const Unlocked unlocked(lock);
    staging.run(job.device_control);
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

void Runtime::do_staged(Lane &lane, Job &job, const Chunk &chunk, Staging &staging, Lock &lock) {
  MemberState &state = *members_[lane.member];
  const double start = now();
  const double own_start = thread_seconds();
  // While a device is started, nothing is learned of how it and the CPU get on.
  lane.counts = state.is_started;
  if (lane.counts) devices_at_work(+1);
  lane.on_device_since = start;
  bool ran = false;
  const std::exception_ptr error = run_on_device(lane, job, chunk, staging, &ran, lock);
  // Where not all lanes may have their staging at once, none keeps it while it does not hold the resource.
  const auto let_go = [&] {
    if (!is_limited(state)) return;
    const Unlocked unlocked(lock);
    staging.release();
  };
  lane.on_device_since.reset();
  const bool counted = std::exchange(lane.counts, false);
  if (!lane.is_given_up) {
    if (counted) devices_at_work(-1);
  } else {
    lane.is_given_up = false;
    --state.lanes_given_up;
    log_.say(TANDEM_LOG_INFO, fmt::format("hybrid: {} answers again", state.member.name));
  }
  if (error) {
    note(lane, job, chunk, start, 0);
    let_go();
    return device_failed(lane, job, chunk, error);
  }
  if (!ran) {
    let_go();
    return job.ledger.drop(chunk.id);
  }
  const bool is_first = !state.is_started;
  state.is_started = true;
  std::uint64_t committed = 0;
  std::vector<Range> useless;
  if (job.is_open()) {
    const std::vector<Range> own = job.ledger.claim(chunk.id);
    const bool is_whole = own.size() == 1 && own.front() == chunk.range;
    if (job.kind.mode == core::Mode::compare && !is_whole) {
      // Its records are of the whole chunk, and cannot be taken apart.
      useless = own;
    } else {
      const Touch touch(job);
      {
        const Unlocked unlocked(lock);
        staging.copy_out(job.work, own);
      }
      staging.merge_mismatches(job.work);
      for (const Range &each : own) committed += each.bytes();
      job.ledger.committed(committed);
    }
  }
  const double end = now();
  const double feeding = std::clamp((thread_seconds() - own_start) / std::max(end - start, 1e-9), 0.0, 1.0);
  if (is_first) {
    state.first_seconds = end - start;
    state.first_bytes = static_cast<double>(chunk.range.bytes());
    state.first_kind = job.kind;
  } else {
    state.feeding = state.feeding == 0 ? feeding : kFeedingMemory * state.feeding + (1 - kFeedingMemory) * feeding;
  }
  let_go();
  job.ledger.finish(chunk.id, end);
  for (const Range &each : useless) job.ledger.disclaim(each);
  note(lane, job, chunk, start, committed);
  // Also of one that came too late: or it would be tried again by every run.
  if (counted)
    speeds_.device_chunk(lane.member, job.kind, static_cast<double>(chunk.range.bytes()), end - start,
                         state.member.lanes);
  if (job.closed) speeds_.keep(lane.member, job.kind, job.ledger.worker(lane.index).estimate);
}

// Whether its lanes cannot all have their staging at once.
bool Runtime::is_limited(const MemberState &state) const noexcept {
  std::uint64_t lanes = 0;
  for (const auto &each : members_)
    if (!each->member.is_in_place) lanes += each->member.lanes;
  return options_.policy != Policy::free &&
         pool_.amount(pinned_mib_) / std::max<std::uint64_t>(mib(state.member.staging_bytes), 1) < lanes;
}

// In all runs under way.
void Runtime::retire_everywhere(std::size_t member) {
  for (const auto &lane : lanes_)
    for (const std::shared_ptr<Job> &job : jobs_)
      if (lane->member == member && lane->index < job->ledger.worker_count()) job->ledger.retire(lane->index);
}

void Runtime::device_failed(Lane &lane, Job &job, const Chunk &chunk, std::exception_ptr error) {
  MemberState &state = *members_[lane.member];
  if (job.closed || job.device_control.cancelled()) {
    job.ledger.fail(chunk.id);
    return;
  }
  std::string why = "unknown";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception &each) {
    why = each.what();
  } catch (...) {
  }
  job.device_error = error;
  job.ledger.fail(chunk.id);
  state.is_out = ++state.failures >= kMostFailures;
  for (const auto &other : lanes_)
    if (other->member == lane.member && other->index < job.ledger.worker_count()) job.ledger.retire(other->index);
  if (state.is_out) retire_everywhere(lane.member);
  log_.say(TANDEM_LOG_WARNING, fmt::format("hybrid: {} failed ({}): its work goes to the others{}", state.member.name,
                                           why, state.is_out ? ", it gets no more" : ""));
}

}  // namespace tandem::hybrid
