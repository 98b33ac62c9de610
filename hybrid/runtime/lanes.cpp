// SPDX-License-Identifier: Apache-2.0
// The work of the threads of a runtime.

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "core/registered_memory.hpp"
#include "hybrid/runtime/prepared.hpp"
#include "hybrid/runtime/runtime.hpp"

namespace tandem::hybrid {
void Runtime::work(Lane &lane) {
  Lock lock(mutex_);
  const Member &member = members_[lane.member]->member;
  {
    const Unlocked unlocked(lock);
    if (member.enter_thread) member.enter_thread(lane.index_in_member);
  }
  std::optional<Chunk> chunk(*member.backend);
  while (!stopping_) {
    double look_again = std::numeric_limits<double>::infinity();
    bool did_something = false;
    try {
      did_something =
          member.is_in_place ? work_on_cpu(lane, *chunk, lock) : work_on_device(lane, *chunk, &look_again, lock);
    } catch (...) {  // no memory for the report itself
      for (const auto &job : jobs_) {
        job->error = std::current_exception();
        job->changed.notify_all();
      }
    }
    lane.hold.reset();
    end(lane);
    if (did_something || stopping_) continue;
    if (std::isinf(look_again)) {
      work_there_.wait(lock);
    } else {
      work_there_.wait_for(lock, std::chrono::duration<double>(std::max(look_again - now(), 0.0)));
    }
  }
  {
    const Unlocked unlocked(lock);
    chunk.reset();  // if a device hangs, its driver may hang here too
  }
  lane.has_ended = true;
  lane_ended_.notify_all();
}

// Among the runs with work for this lane, the one with the fewest lanes: so a small run does not wait for the end of a
// large one.
std::shared_ptr<Job> Runtime::next_job(const Lane &lane) const {
  std::shared_ptr<Job> next;
  for (const std::shared_ptr<Job> &job : jobs_) {
    if (!job->is_open() || job->error || lane.index >= job->share.lane_count() || job->share.is_retired(lane.index))
      continue;
    if (job->share.left_bytes() > 0 && (next == nullptr || job->lanes_at_work < next->lanes_at_work)) next = job;
  }
  return next;
}

// While it works on one run, the others do not count it.
void Runtime::begin(Lane &lane, const std::shared_ptr<Job> &job) {
  lane.job = job;
  ++job->lanes_at_work;
  for (const auto &each : jobs_) {
    if (lane.index >= each->share.lane_count()) continue;
    if (each == job) {
      each->share.enter(lane.index);
    } else {
      each->share.leave(lane.index);
    }
  }
}

void Runtime::end(Lane &lane) {
  const std::shared_ptr<Job> job = std::exchange(lane.job, nullptr);
  if (job == nullptr) return;
  --job->lanes_at_work;
  for (const auto &each : jobs_)
    if (lane.index < each->share.lane_count() && !each->share.is_retired(lane.index)) each->share.enter(lane.index);
  wake_for_returns(*job);
  job->changed.notify_all();
}

// ---- the CPU

bool Runtime::work_on_cpu(Lane &lane, Chunk &chunk, Lock &lock) {
  const std::shared_ptr<Job> job = next_job(lane);
  if (job == nullptr) return false;
  const core::TaskNeeds needs(core::Budget::kCpu, job->control->needs());
  core::Hold hold(budget(), needs.get());
  std::exception_ptr error;
  try {
    if (budget() != nullptr && budget()->is_limited()) {
      const Unlocked unlocked(lock);
      hold.next_task();  // before the run counts this lane
    }
    if (job->closed.load() || stopping_) return true;
    begin(lane, job);
    const Touch touch(*job);
    const std::uint64_t version = jobs_version_.load();
    const Unlocked unlocked(lock);
    do_chunks(lane, *job, chunk, hold, version);
  } catch (...) {
    error = std::current_exception();
  }
  if (error && !job->error) {
    job->error = std::move(error);
    job->changed.notify_all();
  }
  return true;
}

// Chunk after chunk, without the lock. It ends if there is none left, another run needs some of the lanes, or other
// tasks wait for the resources of this one.
void Runtime::do_chunks(Lane &lane, Job &job, Chunk &chunk, core::Hold &hold, std::uint64_t version) {
  double at = now();
  for (bool is_first = true; job.is_open() && jobs_version_.load(std::memory_order_relaxed) == version;
       is_first = false) {
    if (!is_first && !hold.keep()) return;
    Range range = job.share.take_front(lane.index, at);
    std::optional<Piece> returned;
    if (range.bytes() == 0) {
      const Lock lock(mutex_);
      if (!job.is_open()) return;
      job.share.look(at);
      wake_for_returns(job);
      returned = job.share.take_returned(lane.index, at);
      if (!returned) return;
      range = returned->range;
    }
    const std::vector<TaskPart> &parts = chunk.cut(job.work, range);
    for (const TaskPart &part : parts) chunk.prepared.push_back(job.cpu_forms[part.task]);
    chunk.lay_out(job.work, Staged::nothing);
    chunk.run(*job.control);
    const double end = now();
    note(lane, job, range, at, end, range.bytes());
    if (job.kind.mode == core::Mode::compare) {
      const Lock lock(mutex_);
      chunk.merge_mismatches(job.work);
    }
    job.share.finish_chunk(lane.index, range, end - at);
    if (returned) {
      const Lock lock(mutex_);
      job.share.finish(returned->id, end);
    }
    at = job.kind.mode == core::Mode::compare || returned ? now() : end;
  }
}

// ---- devices

bool Runtime::work_on_device(Lane &lane, Chunk &chunk, double *look_again, Lock &lock) {
  const Member &member = members_[lane.member]->member;
  const std::uint64_t version = jobs_version_.load();
  std::vector<std::shared_ptr<Job>> jobs(jobs_.begin(), jobs_.end());
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const auto &a, const auto &b) { return a->lanes_at_work < b->lanes_at_work; });
  for (const std::shared_ptr<Job> &job : jobs) {
    const auto may_take = [&] {
      return !stopping_ && job->is_open() && !job->error && lane.index < job->share.lane_count() &&
             !job->share.is_retired(lane.index);
    };
    if (!may_take() || !make_ready(lane, job, lock) || !may_take()) continue;
    job->share.look(now());
    wake_for_returns(*job);
    if (job->share.left_bytes() > 0) {
      lane.hold.reset();
      lane.needs = needs_of(member, *job->control);
      lane.hold.emplace(budget(), lane.needs);
      try {
        const Unlocked unlocked(lock);
        lane.hold->next_task();
      } catch (...) {  // an amount was lowered
        if (member.is_optional) {
          retire(*job, lane.member);
          continue;
        }
        job->error = std::current_exception();
        job->changed.notify_all();
        continue;
      }
      if (!may_take()) continue;
      if (const std::optional<Piece> piece = job->share.take_back(lane.index, now())) {
        begin(lane, job);
        lane.piece = piece->id;
        do_piece(lane, *job, *piece, chunk, lock);
        return true;
      }
    }
    *look_again = std::min(*look_again, job->share.next_look(now()));
  }
  // While the lock was free, another run may have begun, or work of an earlier one may have come back.
  return jobs_version_.load() != version;
}

// Prepares the operators for this device before it gets any work, because that may take long.
bool Runtime::make_ready(Lane &lane, const std::shared_ptr<Job> &job, Lock &lock) {
  if (job->is_ready[lane.member]) return true;
  core::Backend &backend = *members_[lane.member]->member.backend;
  try {
    std::vector<std::shared_ptr<const HybridPrepared>> operators;  // they may be used longer than the call
    for (std::size_t i = 0; i < job->work.task_count(); ++i) {
      const HybridPrepared &each = hybrid_of(job->work.task(i));
      if (operators.empty() || operators.back().get() != &each) operators.push_back(each.shared_from_this());
    }
    const Unlocked unlocked(lock);
    for (const auto &each : operators) each->of(lane.member, backend);
  } catch (...) {
    if (job->is_open()) device_failed(lane, *job, std::current_exception());
    return false;
  }
  job->is_ready[lane.member] = true;
  return true;
}

// From the caller's shards through the device to staging memory. While the device may hang, the lane does not use the
// caller's memory, unless the device reads the inputs directly.
std::exception_ptr Runtime::run_on_device(Lane &lane, Job &job, const Range &range, Chunk &chunk, bool *ran,
                                          Lock &lock) {
  core::Backend &backend = *members_[lane.member]->member.backend;
  std::vector<std::shared_ptr<const core::Prepared>> prepared;
  const auto lay_out = [&](Staged staged) {
    for (const TaskPart &part : chunk.cut(job.work, range)) {
      prepared.push_back(hybrid_of(job.work.task(part.task)).of(lane.member, backend));
      chunk.prepared.push_back(prepared.back().get());
    }
    chunk.lay_out(job.work, staged);
  };
  try {
    lane.is_direct = backend.traits().shares_memory;
    if (lane.is_direct) {
      const Touch touch(job);
      *ran = true;
      const Unlocked unlocked(lock);
      lay_out(Staged::outputs);
      chunk.run(job.device_control);
      return nullptr;
    }
    core::MemoryHold hold;  // registered memory stays pinned until the device is done, even after the call
    {
      const Touch touch(job);
      const Unlocked unlocked(lock);
      const bool is_registered = core::is_any_memory_registered() && reads_registered_memory(job.work.tasks(range));
      lay_out(is_registered ? Staged::outputs : Staged::all);
      if (is_registered) hold = core::MemoryHold(chunk.tasks());
      const core::TaskNeeds cpu(core::Budget::kCpu, {});
      core::Hold unit(is_registered ? nullptr : budget(), cpu.get(), true);
      unit.next_task();
      chunk.copy_in(job.work);
    }
    if (!job.is_open()) return nullptr;
    *ran = true;
    const Unlocked unlocked(lock);
    chunk.run(job.device_control);
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

void Runtime::do_piece(Lane &lane, Job &job, const Piece &piece, Chunk &chunk, Lock &lock) {
  MemberState &state = *members_[lane.member];
  const double start = now();
  lane.on_device_since = start;
  bool ran = false;
  std::exception_ptr error = run_on_device(lane, job, piece.range, chunk, &ran, lock);
  lane.on_device_since.reset();
  if (std::exchange(lane.is_given_up, false)) {
    --state.lanes_given_up;
    log_.say(TANDEM_LOG_INFO, base::text("hybrid: ", state.member.name, " answers again"));
  }
  std::uint64_t committed = 0;
  if (error) {
    job.share.fail(piece.id);
    if (job.is_open()) device_failed(lane, job, std::move(error));
  } else if (!ran) {
    job.share.drop(piece.id);
  } else {
    std::vector<Range> useless;
    if (job.is_open()) {
      const std::vector<Range> own = job.share.claim(piece.id);
      const bool is_whole = own.size() == 1 && own.front() == piece.range;
      if (job.kind.mode == core::Mode::compare && !is_whole) {
        useless = own;  // its records are of the whole piece, and cannot be divided
      } else {
        const Touch touch(job);
        {
          const Unlocked unlocked(lock);
          chunk.copy_out(job.work, own);
        }
        chunk.merge_mismatches(job.work);
        for (const Range &each : own) committed += each.bytes();
        job.share.add_done(lane.index, committed);
      }
    }
    job.share.finish(piece.id, now());
    for (const Range &each : useless) job.share.disclaim(each);
    // Results after the end of their run are learned too. Otherwise every run would try the device again.
    if (job.closed.load()) memory_.keep(lane.member, job.kind, job.share.speed(lane.member));
  }
  note(lane, job, piece.range, start, now(), committed);
  if (options_.resources != nullptr && options_.resources->is_limited()) chunk.release();
}

void Runtime::device_failed(Lane &lane, Job &job, std::exception_ptr error) {
  MemberState &state = *members_[lane.member];
  job.has_failed[lane.member] = true;
  count_failure(state, error);
  job.device_error = std::move(error);
  retire(job, lane.member);
  if (state.is_out)
    for (const auto &each : jobs_) retire(*each, lane.member);
}

}  // namespace tandem::hybrid
