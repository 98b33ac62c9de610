// SPDX-License-Identifier: Apache-2.0
// The threads of a hybrid and their shared state: one thread per lane of each member, and the runs under way. One lock
// protects all of it. The CPU needs no lock during a run, from chunk to chunk.
#pragma once

#include <atomic>
#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "hybrid/factory.hpp"
#include "hybrid/policy/memory.hpp"
#include "hybrid/policy/share.hpp"
#include "hybrid/policy/work.hpp"
#include "hybrid/runtime/chunk.hpp"

namespace tandem::hybrid {

inline double now() noexcept { return base::Timeline::now(); }

// One run under way.
struct Job {
  Job(Work all_work, Share::Options options, std::vector<Group> groups, core::Control &caller)
      : work(std::move(all_work)), share(std::move(options), std::move(groups)), control(&caller) {}

  bool is_open() const noexcept { return !closed.load(std::memory_order_relaxed) && !control->cancelled(); }

  const Work work;
  Share share;
  core::Control *control;        // of the caller; invalid when `closed`
  core::Control device_control;  // for runs that may outlive the call
  WorkKind kind = {};
  std::vector<const core::Prepared *> cpu_forms;  // of each task
  std::vector<bool> is_ready;                     // by member: its forms are made
  std::vector<bool> has_failed;                   // the same: failed in this run, or cannot join
  bool is_for_one = false;                        // the others join when that member is lost
  bool is_trial = false;                          // for one, and the others join soon
  std::string what;                               // "assign 4x10", for people
  double start_seconds = 0;
  std::uint64_t returns_seen = 0;

  std::atomic<bool> closed{false};  // the call has ended: its memory must not be used any more
  unsigned lanes_at_work = 0;
  unsigned touching = 0;  // lanes that may be using the caller's memory now
  std::exception_ptr error, device_error;
  std::condition_variable changed;
};

// The decision about a run.
struct Choice {
  std::size_t member;  // does the run alone, or kTogether
  // If the CPU and devices on its cores exclude each other: the members with unknown speed alone.
  std::vector<std::size_t> untried = {};
  // The member that gets a trial, because it was idle for long. trial_bytes: its size; 0: no trial. is_trial_shared: it
  // runs as in shared runs, and its speed in these is learned.
  std::size_t trial = 0;
  std::uint64_t trial_bytes = 0;
  bool is_trial_shared = false;
};

class Runtime : public std::enable_shared_from_this<Runtime> {
 public:
  Runtime(const Options &options, const base::Log &log);
  Runtime(const Runtime &) = delete;
  Runtime &operator=(const Runtime &) = delete;

  // Adds members for later runs.
  void add(std::vector<Member> members);
  std::size_t member_count() const;
  const Member &member(std::size_t index) const;  // valid as long as the runtime

  // Smaller runs are not used to measure a member in this kind of work.
  static constexpr std::uint64_t kTryFromBytes = 1 << 20;

  // Policies free and budget share all runs.
  Choice choose(const WorkKind &kind, std::uint64_t bytes);
  void ran_alone(std::size_t member, const WorkKind &kind, std::uint64_t bytes, double seconds);
  void forget_alone(std::size_t member, const WorkKind &kind);
  void failed_alone(std::size_t member, std::exception_ptr error);  // others do its work

  // Runs tasks of host memory, all with rows, columns and bytes, on all members or on this one. If that member is lost,
  // the others do the rest, and it returns false. The others of a trial wait 20 ms for that member. Throws Error.
  bool run(std::span<const core::Task> tasks, core::Control &control, std::size_t only = kTogether,
           bool is_trial = false);

  // Ends the threads. The thread of a device that does not answer is left behind, with all memory that it may still
  // write to.
  void stop() noexcept;

  std::vector<core::SpeedEntry> learned() const;

 private:
  struct MemberState {
    explicit MemberState(Member given) : member(std::move(given)) {}
    Member member;
    unsigned failures = 0;
    unsigned lanes_given_up = 0;  // while there are any, the member's other lanes get no work
    bool is_out = false;          // it failed too often
  };
  struct Lane {
    unsigned index;
    unsigned index_in_member;
    std::size_t member;
    unsigned row = 0;  // of the timeline
    std::thread thread;
    std::shared_ptr<Job> job;  // its present run
    std::uint64_t piece = 0;   // of a device
    std::optional<double> on_device_since;
    std::vector<core::Need> needs;  // of a device's piece
    std::optional<core::Hold> hold;
    bool is_direct = false;  // it uses the caller's memory directly
    bool is_given_up = false;
    bool has_ended = false;
  };
  using Lock = std::unique_lock<std::mutex>;

  // Releases the lock for a while, also if an exception passes.
  class Unlocked {
   public:
    explicit Unlocked(Lock &lock) : lock_(lock) { lock_.unlock(); }
    ~Unlocked() { lock_.lock(); }
    Unlocked(const Unlocked &) = delete;
    Unlocked &operator=(const Unlocked &) = delete;

   private:
    Lock &lock_;
  };

  // A lane that may be using the caller's memory. The call does not return before it ends. Made and destroyed under the
  // lock.
  class Touch {
   public:
    explicit Touch(Job &job) : job_(&job) { ++job.touching; }
    ~Touch() {
      if (--job_->touching == 0) job_->changed.notify_all();
    }
    Touch(const Touch &) = delete;
    Touch &operator=(const Touch &) = delete;

   private:
    Job *job_;
  };

  bool can_work(const MemberState &state) const noexcept;
  std::vector<Way> ways(const WorkKind &kind) const;
  void plan_trials(const WorkKind &kind, std::uint64_t bytes, const std::vector<Way> &ways, Choice &choice);
  std::shared_ptr<Job> open_job(std::span<const core::Task> tasks, core::Control &control, std::size_t only,
                                bool is_trial);
  bool start_threads();
  bool is_stranded(const Job &job) const;
  void let_all_in(Job &job);
  void wait_until_over(Job &job, Lock &lock);
  void close_job(Job &job, Lock &lock);
  void give_up_late_lanes(double at);
  void set_room(Job &job) const;
  void wake_lanes();
  void wake_for_returns(Job &job);
  bool has_room(const Member &member, const core::Control &control, bool is_needed) const;
  std::vector<core::Need> needs_of(const Member &member, const core::Control &control) const;
  core::Budget *budget() const noexcept { return options_.policy != Policy::free ? options_.resources : nullptr; }

  void work(Lane &lane);
  std::shared_ptr<Job> next_job(const Lane &lane) const;
  void begin(Lane &lane, const std::shared_ptr<Job> &job);
  void end(Lane &lane);

  bool work_on_cpu(Lane &lane, Chunk &chunk, Lock &lock);
  void do_chunks(Lane &lane, Job &job, Chunk &chunk, core::Hold &hold, std::uint64_t version);

  bool work_on_device(Lane &lane, Chunk &chunk, double *look_again, Lock &lock);
  bool make_ready(Lane &lane, const std::shared_ptr<Job> &job, Lock &lock);
  std::exception_ptr run_on_device(Lane &lane, Job &job, const Range &range, Chunk &chunk, bool *ran, Lock &lock);
  void do_piece(Lane &lane, Job &job, const Piece &piece, Chunk &chunk, Lock &lock);
  void device_failed(Lane &lane, Job &job, std::exception_ptr error);
  void retire(Job &job, std::size_t member);
  void count_failure(MemberState &state, const std::exception_ptr &error);

  void note(const Lane &lane, const Job &job, const Range &range, double start, double end, std::uint64_t committed);
  void tell(const Job &job);

  const Options options_;
  const base::Log log_;

  mutable std::mutex mutex_;
  std::condition_variable work_there_, lane_ended_;
  std::vector<std::unique_ptr<MemberState>> members_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::list<std::shared_ptr<Job>> jobs_;
  std::atomic<std::uint64_t> jobs_version_{0};  // changes with jobs_, and when work of one comes back
  Memory memory_;
  std::map<WorkKind, std::size_t> told_;           // the last decision in the log
  double ideal_seconds_ = 0, shared_seconds_ = 0;  // of all shared runs
  bool stopping_ = false;
};

}  // namespace tandem::hybrid
