// The threads of a hybrid and what they share: one thread per lane of each member, the runs under way, the resources,
// what was learned. All of it under one lock, which nobody holds while coding or copying.
#pragma once

#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "hybrid/factory.hpp"
#include "hybrid/policy/worth.hpp"
#include "hybrid/runtime/job.hpp"

namespace tandem::hybrid {

class Runtime : public std::enable_shared_from_this<Runtime> {
 public:
  Runtime(const Options &options, const base::Log &log);
  ~Runtime();
  Runtime(const Runtime &) = delete;
  Runtime &operator=(const Runtime &) = delete;

  // More members, for the runs that come.
  void add(std::vector<Member> members);

  // Whether a run that moves so many bytes is worth sharing, or better left to the CPU alone. Policy automatic; to be
  // asked once a run.
  bool is_worth_sharing(const WorkKind &kind, std::uint64_t bytes);

  // Runs tasks of host memory, all with rows, columns and bytes. Throws Error.
  void run(std::span<const core::Task> tasks, core::Control &control);

  // A run that Options::alone did: it is learned from. To be called by the thread that called for the run.
  struct AloneRun {
    double start_seconds;
    std::uint64_t number;  // 0: others were under way when it began
  };
  AloneRun begin_alone();
  void end_alone() noexcept;  // whatever came of it
  void ran_alone(const AloneRun &run, const WorkKind &kind, std::uint64_t bytes);

  bool has_devices() const;

  // Ends the threads. One whose device does not answer is left behind, with all that it may still write to.
  void stop() noexcept;

  std::vector<std::shared_ptr<core::Backend>> backends() const;

  // What this process has learned: of whom it did not know before, or knew otherwise.
  std::vector<core::SpeedEntry> learned() const;

 private:
  struct MemberState {
    explicit MemberState(Member given) : member(std::move(given)), start_up_seconds(member.start_up_seconds) {}

    Member member;
    double start_up_seconds;    // of its first task: assumed, remembered, or measured
    std::string recalled_date;  // of what was remembered
    double feeding = 0;         // a device's lane at work: so much of a core, measured
    double first_seconds = 0;   // what its first task took, and moved
    double first_bytes = 0;
    WorkKind first_kind = {};
    unsigned failures = 0;
    unsigned lanes_given_up = 0;  // while there are any, the others get nothing either
    bool is_out = false;          // it has failed too often
    bool is_started = false;      // its first task is done
    double missed_seconds = 0;    // of runs that were over too soon for it to be started
  };
  struct Lane {
    unsigned index;
    std::size_t member;
    std::thread thread;
    std::shared_ptr<Job> job;  // what it works on
    std::uint64_t chunk = 0;
    std::optional<double> on_device_since;
    bool is_given_up = false;
    bool has_ended = false;
    bool counts = false;     // among the devices at work: it is not being started
    bool wants_cpu = false;  // there was none, though this runtime may have one more
    double timeline_bytes = 0, timeline_seconds = 0;
    bool holds_cpu = false;  // a unit of Options::resources, whose other holders are not of this runtime
  };
  using Lock = std::unique_lock<std::mutex>;

  // The lock let go for a while, also when something is thrown.
  class Unlocked {
   public:
    explicit Unlocked(Lock &lock) : lock_(lock) { lock_.unlock(); }
    ~Unlocked() { lock_.lock(); }
    Unlocked(const Unlocked &) = delete;
    Unlocked &operator=(const Unlocked &) = delete;

   private:
    Lock &lock_;
  };

  // A lane that may be touching the caller's memory: the call does not return before it is gone. Made and ended under
  // the lock.
  class Touch {
   public:
    explicit Touch(Job &job) : job_(&job) { ++job.touching; }
    ~Touch() {
      if (--job_->touching == 0 && job_->closed) job_->changed.notify_all();
    }
    Touch(const Touch &) = delete;
    Touch &operator=(const Touch &) = delete;

   private:
    Job *job_;
  };

  std::shared_ptr<Job> open_job(std::span<const core::Task> tasks, core::Control &control);
  void close_job(Job &job, Lock &lock);
  bool start_threads();
  bool nobody_can_work(const Job &job) const;
  void work(Lane &lane);
  std::optional<Chunk> find_chunk(Lane &lane, double *look_again);
  void set_away(const Lane &lane, Job &job, bool away);
  void do_in_place(Lane &lane, Job &job, const Chunk &chunk, Lock &lock);
  void do_staged(Lane &lane, Job &job, const Chunk &chunk, Staging &staging, Lock &lock);
  std::exception_ptr run_on_device(Lane &lane, Job &job, const Chunk &chunk, Staging &staging, bool *ran, Lock &lock);
  bool may_work(const Lane &lane, const Job &job) const;
  bool take_cpu(Lane &lane);
  void wait_for_cpu(Lane &lane, Lock &lock);
  Needs needs_of(const Member &member) const;
  double now() const;
  void give_cpu_back(Lane &lane);
  void learn_from_cpu(const WorkKind &kind, double moved, double seconds);
  void recall(std::size_t member);
  double start_up_seconds(const MemberState &state) const noexcept;
  bool is_limited(const MemberState &state) const noexcept;
  double devices_at_work_until(double at) const noexcept;
  void devices_at_work(int change) noexcept;
  void note(const Lane &lane, Job &job, const Chunk &chunk, double start, std::uint64_t committed);
  void device_failed(Lane &lane, Job &job, const Chunk &chunk, std::exception_ptr error);
  void give_up_late_lanes(double now);
  void retire_everywhere(std::size_t member);
  void sync_resources();
  void tell(const Job &job);
  void tell_worth(const WorkKind &kind);
  Party party(std::size_t member, double bytes_per_second) const;
  void add_spans(const Job &job);
  CpuLanes cpu_lanes() const;

  const Options options_;
  const base::Log log_;

  mutable std::mutex mutex_;
  std::condition_variable work_there_, lane_ended_;
  std::vector<std::unique_ptr<MemberState>> members_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::list<std::shared_ptr<Job>> jobs_;  // the oldest first
  ResourcePool pool_;
  unsigned cpu_, gpu_, pinned_mib_;  // of the pool
  Speeds speeds_;
  std::size_t thread_count_ = 0;
  bool has_cpu_thread_ = false;
  bool stopping_ = false;
  unsigned devices_at_work_ = 0;
  double devices_at_work_seconds_ = 0,
         devices_changed_ = 0;    // sum of times with a device at work, until the latest change
  std::uint64_t runs_begun_ = 0;  // of all kinds
  unsigned alone_under_way_ = 0;
  std::map<WorkKind, bool> told_;  // whether devices were found to be worth it
  double alone_seconds_ = 0, shared_seconds_ = 0,
         shared_since_ = 0;  // of all runs; since when a shared one is under way
};

}  // namespace tandem::hybrid
