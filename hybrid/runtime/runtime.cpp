// SPDX-License-Identifier: Apache-2.0
#include "hybrid/runtime/runtime.hpp"

#include <algorithm>
#include <cmath>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/signals.hpp"
#include "base/text.hpp"
#include "core/registered_memory.hpp"
#include "hybrid/policy/rule.hpp"
#include "hybrid/runtime/prepared.hpp"

namespace tandem::hybrid {
namespace {

constexpr double kDeadlineFactor = 20;   // of the predicted time, before a device is given up
constexpr double kCancelSeconds = 0.02;  // how often a caller checks for a cancel
constexpr double kTrialSeconds = 0.02;   // a trial should take 10 ms; after this time the others help
constexpr const char *kCancelled = "hybrid: the run was cancelled";
constexpr std::chrono::seconds kLastPatience{2};  // for a device that does not answer, when the runtime ends

// Staging memory of a device that has the inputs there too. The rest is for cuts and padding.
constexpr double kStagingFill = 15.0 / 16;

bool is_unsupported(const std::exception_ptr &error) {
  try {
    std::rethrow_exception(error);
  } catch (const base::Error &each) {
    return each.status() == TANDEM_ERROR_UNSUPPORTED;
  } catch (...) {
    return false;
  }
}

std::chrono::duration<double> seconds(double value) { return std::chrono::duration<double>(value); }
std::uint64_t mib(std::uint64_t bytes) { return (bytes + (std::uint64_t{1} << 20) - 1) >> 20; }

}  // namespace

Runtime::Runtime(const Options &options, const base::Log &log) : options_(options), log_(log) { add(options.members); }

void Runtime::add(std::vector<Member> members) {
  const Lock lock(mutex_);
  for (Member &each : members) {
    const std::size_t index = members_.size();
    for (const core::SpeedEntry &entry : options_.known)
      if (entry.worker == each.name) memory_.recall(index, entry);
    members_.push_back(std::make_unique<MemberState>(std::move(each)));
    const Member &member = members_.back()->member;
    for (unsigned i = 0; i < member.lanes; ++i) {
      auto lane = std::make_unique<Lane>();
      lane->index = static_cast<unsigned>(lanes_.size());
      lane->index_in_member = i;
      lane->member = index;
      if (options_.timeline != nullptr) {
        const std::string kind = member.name.substr(0, member.name.find(':'));
        lane->row = options_.timeline->row(base::text(member.name, ", lane ", i), kind);
      }
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

// ---- learned speeds, and decisions from them

bool Runtime::can_work(const MemberState &state) const noexcept { return !state.is_out && state.lanes_given_up == 0; }

// The members that can work, in their order; the others have no lanes.
std::vector<Way> Runtime::ways(const WorkKind &kind) const {
  std::vector<Way> list;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Member &member = members_[i]->member;
    Way way = memory_.way(i, kind);
    way.lanes = member.lanes;
    if (member.is_in_place && options_.resources != nullptr)
      way.lanes =
          static_cast<unsigned>(std::min<std::uint64_t>(way.lanes, options_.resources->amount(core::Budget::kCpu)));
    way.may_share = !member.backend->traits().shares_cores || !members_.front()->member.is_in_place;
    list.push_back(way);
  }
  return list;
}

Choice Runtime::choose(const WorkKind &kind, std::uint64_t bytes) {
  const Lock lock(mutex_);
  const std::vector<Way> list = ways(kind);
  std::vector<std::size_t> members;
  std::vector<Way> able;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!can_work(*members_[i])) continue;
    members.push_back(i);
    able.push_back(list[i]);
  }
  if (members.size() == 1) return {members.front()};
  const bool is_unknown = std::any_of(able.begin(), able.end(), [](const Way &each) { return !each.is_seen(); });
  if (is_unknown && bytes < kTryFromBytes && members_.front()->member.is_in_place) return {0};
  const std::size_t chosen = hybrid::choose(able, static_cast<double>(bytes));
  Choice choice{chosen == kTogether ? kTogether : members[chosen]};
  if (bytes >= kTryFromBytes) plan_trials(kind, bytes, list, choice);
  const auto [place, is_new] = told_.try_emplace(kind, choice.member);
  if (log_.hears(TANDEM_LOG_INFO) && (is_new || place->second != choice.member)) {
    log_.say(
        TANDEM_LOG_INFO,
        base::text("hybrid: ", text_of(kind), ", ", bytes, " bytes moved: ",
                   choice.member == kTogether ? "shared" : members_[choice.member]->member.name + " does it alone"));
  }
  place->second = choice.member;
  return choice;
}

void Runtime::plan_trials(const WorkKind &kind, std::uint64_t bytes, const std::vector<Way> &list, Choice &choice) {
  const double all = static_cast<double>(bytes);
  const auto is_on_cores = [&](std::size_t i) { return !list[i].may_share && can_work(*members_[i]); };
  bool has_exclusive = false;
  for (std::size_t i = 0; i < list.size(); ++i) has_exclusive = has_exclusive || is_on_cores(i);
  double best_seconds = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < list.size(); ++i) {
    const bool is_exclusive = is_on_cores(i) || (has_exclusive && members_[i]->member.is_in_place);
    if (is_exclusive && !list[i].alone.is_seen()) choice.untried.push_back(i);
    if (list[i].is_seen() && can_work(*members_[i])) best_seconds = std::min(best_seconds, alone_seconds(list[i], all));
  }
  if (!choice.untried.empty()) return;
  for (std::size_t i = 0; i < list.size() && choice.trial_bytes == 0; ++i) {
    Way way = list[i];
    choice.is_trial_shared = way.may_share && !members_[i]->member.is_in_place;
    if (choice.is_trial_shared) way.alone = {};
    if (i == choice.member || !way.is_seen() || !can_work(*members_[i])) continue;
    choice.trial = i;
    choice.trial_bytes = static_cast<std::uint64_t>(trial_bytes(way, all, best_seconds, memory_.idle_seconds(i, kind)));
    if (choice.trial_bytes > 0) memory_.took_part(i, kind);
  }
}

void Runtime::ran_alone(std::size_t member, const WorkKind &kind, std::uint64_t bytes, double took) {
  const Lock lock(mutex_);
  memory_.ran_alone(member, kind, static_cast<double>(bytes), took);
  memory_.add_run(kind, took);
  memory_.took_part(member, kind);
}

void Runtime::forget_alone(std::size_t member, const WorkKind &kind) {
  const Lock lock(mutex_);
  memory_.forget_alone(member, kind);
}

void Runtime::failed_alone(std::size_t member, std::exception_ptr error) {
  const Lock lock(mutex_);
  MemberState &state = *members_[member];
  count_failure(state, error);
}

void Runtime::count_failure(MemberState &state, const std::exception_ptr &error) {
  constexpr unsigned kMostFailures = 3;
  if (is_unsupported(error)) return;  // an error of this operator, not of the device
  state.is_out = ++state.failures >= kMostFailures;
  log_.say(TANDEM_LOG_WARNING, base::text("hybrid: ", state.member.name, " failed (", base::what_of(error),
                                          "): its work goes to the others", state.is_out ? ", it gets no more" : ""));
}

std::vector<core::SpeedEntry> Runtime::learned() const {
  const Lock lock(mutex_);
  std::vector<core::SpeedEntry> list;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Member &member = members_[i]->member;
    for (core::SpeedEntry &each : memory_.learned(i, member.name, member.lanes, member.is_in_place, options_.known)) {
      each.machine = options_.machine;
      list.push_back(std::move(each));
    }
  }
  return list;
}

// ---- a run, from the side of its caller

// With the lock. False: no thread could be started.
bool Runtime::start_threads() {
  const base::SignalsBlocked blocked;
  bool any = false;
  for (const auto &lane : lanes_) {
    Lane *const own = lane.get();
    try {
      // It holds the runtime, because a thread that is left behind needs it.
      if (!lane->thread.joinable())
        lane->thread = std::thread([runtime = shared_from_this(), own] { runtime->work(*own); });
    } catch (const std::system_error &) {  // tried again next time
    } catch (const std::bad_alloc &) {
    }
    any = any || lane->thread.joinable();
  }
  return any;
}

std::shared_ptr<Job> Runtime::open_job(std::span<const core::Task> tasks, core::Control &control, std::size_t only,
                                       bool is_trial) {
  Work work(tasks);
  const core::Task &first = tasks.front();
  const WorkKind kind{first.mode, first.prepared->columns(), first.prepared->rows()};
  const double bytes = static_cast<double>(work.bytes());
  const std::vector<Way> all_ways = ways(kind);
  std::vector<bool> takes_part, can_join;
  std::vector<Group> groups;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Member &member = members_[i]->member;
    const bool may_share = options_.policy != Policy::automatic || all_ways[i].may_share;
    const bool is_wanted = only == kTogether ? may_share : i == only;
    can_join.push_back(can_work(*members_[i]) && (budget() == nullptr || !(is_wanted || member.is_optional) ||
                                                  has_room(member, control, !is_trial && !member.is_optional)));
    takes_part.push_back(is_wanted && can_join.back());
    Group group{member.lanes, member.is_in_place, all_ways[i].together};
    if (!member.is_in_place) {
      const bool shares_memory = member.backend->traits().shares_memory;
      const bool is_direct = shares_memory || (core::is_any_memory_registered() && reads_registered_memory(tasks));
      group.first_bytes = first_piece_bytes(bytes, shares_memory);
      // Without its inputs, staging memory holds the outputs of a larger piece.
      const double per_output = static_cast<double>(kind.columns + kind.rows) / std::max(kind.rows, 1U);
      group.most_bytes = kStagingFill * static_cast<double>(member.staging_bytes) * (is_direct ? per_output : 1);
    }
    groups.push_back(std::move(group));
  }
  Share::Options options{options_.policy, work.bytes(), options_.chunk_bytes, now(), {}};
  auto job = std::make_shared<Job>(std::move(work), std::move(options), std::move(groups), control);
  job->share.set_cut([each = job.get()](std::uint64_t position) { return each->work.cut(position); });
  job->kind = kind;
  job->what = text_of(kind);
  job->start_seconds = now();
  job->is_ready.resize(members_.size());
  job->has_failed = can_join;
  job->has_failed.flip();
  job->is_for_one = only != kTogether;
  job->is_trial = is_trial;
  if (Member &cpu = members_.front()->member; cpu.is_in_place) {
    for (const core::Task &each : tasks) job->cpu_forms.push_back(hybrid_of(each).of(0, *cpu.backend).get());
  }
  for (const auto &lane : lanes_) {
    if (!takes_part[lane->member]) {
      job->share.retire(lane->index);
    } else if (lane->job == nullptr && lane->thread.joinable()) {
      job->share.enter(lane->index);
    }
  }
  set_room(*job);
  return job;
}

// As many of the CPU's lanes work at once as "cpu" allows.
void Runtime::set_room(Job &job) const {
  if (budget() != nullptr) job.share.set_room(budget()->amount(core::Budget::kCpu));
}

std::vector<core::Need> Runtime::needs_of(const Member &member, const core::Control &control) const {
  std::vector<core::Need> needs = {{core::Budget::kGpu, 1}, {core::Budget::kPinnedMib, mib(member.staging_bytes)}};
  if (member.is_in_place) needs = {{core::Budget::kCpu, 1}};
  needs.insert(needs.end(), control.needs().begin(), control.needs().end());
  return needs;
}

// Whether a member can hold its resources. If it is needed, throws Error (INVALID_ARGUMENT) with the numbers.
bool Runtime::has_room(const Member &member, const core::Control &control, bool is_needed) const {
  const std::vector<core::Need> needs = needs_of(member, control);
  if (is_needed) budget()->check(needs);
  return std::all_of(needs.begin(), needs.end(),
                     [&](const core::Need &need) { return need.amount <= budget()->amount(need.resource); });
}

bool Runtime::run(std::span<const core::Task> tasks, core::Control &control, std::size_t only, bool is_trial) {
  if (control.cancelled()) base::fail(TANDEM_ERROR_CANCELLED, kCancelled);
  Lock lock(mutex_);
  if (!start_threads()) base::fail(TANDEM_ERROR_OUT_OF_MEMORY, "hybrid: no thread could be started");
  const std::shared_ptr<Job> job = open_job(tasks, control, only, is_trial);
  jobs_.push_back(job);
  wake_lanes();
  wait_until_over(*job, lock);
  close_job(*job, lock);
  if (job->share.is_done()) return only == kTogether || job->is_for_one;
  if (control.cancelled()) base::fail(TANDEM_ERROR_CANCELLED, kCancelled);
  // The caller is the only owner of the exception: lanes may still hold the job.
  if (job->error) std::rethrow_exception(std::exchange(job->error, nullptr));
  if (job->device_error) std::rethrow_exception(std::exchange(job->device_error, nullptr));
  base::fail(TANDEM_ERROR_DEVICE, "hybrid: no device is left that could do the rest of the run");
}

// Work is left, and there is no lane for it.
bool Runtime::is_stranded(const Job &job) const {
  return std::none_of(lanes_.begin(), lanes_.end(), [&](const auto &lane) {
    if (!lane->thread.joinable() || lane->index >= job.share.lane_count()) return false;
    return !job.share.is_retired(lane->index) || (lane->job.get() == &job && !lane->is_given_up);
  });
}

void Runtime::wait_until_over(Job &job, Lock &lock) {
  while (!job.share.is_done() && !job.control->cancelled() && !job.error) {
    const double at = now();
    try {
      give_up_late_lanes(at);
      job.share.look(at);
      wake_for_returns(job);
      const bool is_long_trial = job.is_trial && at - job.start_seconds > kTrialSeconds;
      if (job.is_for_one && (is_long_trial || is_stranded(job))) let_all_in(job);
      if (is_stranded(job) && (!start_threads() || is_stranded(job))) return;
    } catch (...) {
      job.error = std::current_exception();
      return;
    }
    set_room(job);
    const double wait = std::min(job.share.next_look(at) - at, kCancelSeconds);
    job.changed.wait_for(lock, seconds(wait));
  }
}

// The one member for this run is lost, or too slow for a trial: the others do the rest.
void Runtime::let_all_in(Job &job) {
  job.is_for_one = false;
  for (const auto &lane : lanes_) {
    if (lane->index >= job.share.lane_count() || job.has_failed[lane->member]) continue;
    job.share.allow(lane->index);  // a lane that is busy elsewhere joins later
    if (lane->job == nullptr && lane->thread.joinable()) job.share.enter(lane->index);
  }
  wake_lanes();
}

// From here on the library does not use the caller's memory.
void Runtime::close_job(Job &job, Lock &lock) {
  job.closed.store(true);
  // A device of unknown speed continues in staging memory, and its speed is learned.
  const bool is_learning = job.share.is_done() && std::any_of(lanes_.begin(), lanes_.end(), [&](const auto &lane) {
                             return lane->job.get() == &job && !job.share.speed(lane->member).is_seen();
                           });
  if (!is_learning) job.device_control.cancel();
  std::erase_if(jobs_, [&](const auto &each) { return each.get() == &job; });
  jobs_version_.fetch_add(1);
  // A device that hangs while it uses the caller's memory has reached its deadline.
  const auto is_left_alone = [&] {
    return job.touching == static_cast<unsigned>(std::count_if(lanes_.begin(), lanes_.end(), [&](const auto &lane) {
             return lane->job.get() == &job && lane->is_given_up && lane->is_direct;
           }));
  };
  while (!is_left_alone()) {
    job.changed.wait_for(lock, seconds(kCancelSeconds));
    try {
      give_up_late_lanes(now());
    } catch (const std::bad_alloc &) {  // learned next time
    }
  }
  try {
    if (!job.is_for_one || job.is_trial) memory_.add_run(job.kind, now() - job.start_seconds);  // else ran_alone() does
    for (std::size_t i = 0; i < job.is_ready.size(); ++i) {
      if (const Speed speed = job.share.speed(i); speed.is_seen()) memory_.keep(i, job.kind, speed);
      if (job.share.done_by(i) > 0) memory_.took_part(i, job.kind);
    }
    tell(job);
    if (const double ideal = job.share.ideal_seconds(); std::isfinite(ideal)) {
      ideal_seconds_ += ideal;
      shared_seconds_ += now() - job.start_seconds;
    }
  } catch (const std::bad_alloc &) {  // the run is done; its speeds are lost
  }
}

// A device that has not answered by its deadline is not waited for. Its range goes to the others.
void Runtime::give_up_late_lanes(double at) {
  for (const auto &lane : lanes_) {
    if (!lane->on_device_since || lane->is_given_up) continue;
    const double expected = lane->job->share.expected_end(lane->piece) - *lane->on_device_since;
    const double deadline =
        options_.least_deadline_seconds + (std::isfinite(expected) ? kDeadlineFactor * expected : 0);
    if (at - *lane->on_device_since < deadline) continue;
    lane->job->share.give_up(lane->piece);
    lane->is_given_up = true;
    lane->hold.reset();  // a hanging task must not keep logical resources
    MemberState &state = *members_[lane->member];
    ++state.lanes_given_up;
    for (const auto &job : jobs_) retire(*job, lane->member);
    log_.say(TANDEM_LOG_WARNING, base::text("hybrid: ", state.member.name, " has not answered for ",
                                            base::fixed(at - *lane->on_device_since, 1),
                                            " s: its work goes to the others, its memory is kept until it does"));
    wake_lanes();
  }
}

// Lanes that found nothing look again, also one that is on its way to sleep.
void Runtime::wake_lanes() {
  jobs_version_.fetch_add(1);
  work_there_.notify_all();
}

void Runtime::wake_for_returns(Job &job) {
  const std::uint64_t seen = std::exchange(job.returns_seen, job.share.returns());
  if (seen != job.returns_seen) wake_lanes();
}

void Runtime::retire(Job &job, std::size_t member) {
  for (const auto &lane : lanes_)
    if (lane->member == member && lane->index < job.share.lane_count()) job.share.retire(lane->index);
}

void Runtime::stop() noexcept {
  Lock lock(mutex_);
  stopping_ = true;
  work_there_.notify_all();
  const auto end = std::chrono::steady_clock::now() + kLastPatience;
  for (const auto &lane : lanes_) {
    if (!lane->thread.joinable()) continue;
    const Member &member = members_[lane->member]->member;
    if (member.is_in_place || lane_ended_.wait_until(lock, end, [&] { return lane->has_ended; })) {
      lock.unlock();
      lane->thread.join();
      lock.lock();
    } else {
      log_.say(TANDEM_LOG_WARNING,
               base::text("hybrid: ", member.name, " still does not answer; its thread and memory are not freed"));
      lane->thread.detach();
    }
  }
  if (options_.timeline != nullptr && shared_seconds_ > 0)
    options_.timeline->set_efficiency(ideal_seconds_ / shared_seconds_);
}

void Runtime::note(const Lane &lane, const Job &job, const Range &range, double start, double end,
                   std::uint64_t committed) {
  if (options_.timeline == nullptr) return;
  const auto data = static_cast<std::uint64_t>(static_cast<double>(committed) / job.kind.moved_per_byte());
  options_.timeline->add({lane.row, job.what, range.begin, range.end, data, start, end, committed > 0});
}

void Runtime::tell(const Job &job) {
  if (!log_.hears(TANDEM_LOG_DEBUG)) return;
  std::string shares;
  for (std::size_t i = 0; i < job.is_ready.size(); ++i) {
    shares += base::text(
        i == 0 ? "" : ", ", members_[i]->member.name, " ",
        base::fixed(100.0 * static_cast<double>(job.share.done_by(i)) / static_cast<double>(job.work.bytes()), 1),
        " %");
  }
  log_.say(TANDEM_LOG_DEBUG, base::text("hybrid: ", job.what, ", ", job.work.bytes(), " bytes moved in ",
                                        base::fixed(now() - job.start_seconds, 6), " s: ", shares));
}

}  // namespace tandem::hybrid
