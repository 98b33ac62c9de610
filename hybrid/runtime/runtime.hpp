// SPDX-License-Identifier: Apache-2.0
// The runs under way, a thread for each lane of a device, and one that looks for devices that hang. The thread of the
// caller drives the CPU: it runs chunk after chunk on the ordinary CPU backend. One lock protects all of it; it is free
// while a backend works.
#pragma once

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/registered_memory.hpp"
#include "hybrid/factory.hpp"
#include "hybrid/policy/memory.hpp"
#include "hybrid/policy/share.hpp"
#include "hybrid/policy/work.hpp"
#include "hybrid/runtime/prepared.hpp"

namespace tandem::hybrid {

inline double now() noexcept { return base::Timeline::now(); }

// One run under way. A lane that hangs keeps it beyond the end of the call.
struct Job {
  Job(std::span<const core::Task> tasks, core::Control &caller) : work(tasks), control(&caller) {}

  const Work work;
  std::vector<std::shared_ptr<const HybridPrepared>> operators;  // of the tasks
  std::optional<Share> share;
  core::Control *control;  // of the caller; invalid when `closed`
  WorkKind kind = {};
  std::vector<bool> is_ready;  // by member: its operators are prepared
  std::uint64_t number = 0;    // from 1, in the order of the calls
  bool closed = false;         // the call has ended: its memory must not be used any more
  unsigned touching = 0;       // lanes that use the caller's memory now
  std::exception_ptr error, device_error;
  std::condition_variable changed;

  bool is_open() const noexcept { return !closed && !error && !control->cancelled(); }
};

// What a run of a member's backend holds.
std::vector<core::Need> needs_of(const Member &member, const core::Control &control, core::MemoryKind memory);

class Runtime : public std::enable_shared_from_this<Runtime> {
 public:
  Runtime(const Options &options, const base::Log &log);
  Runtime(const Runtime &) = delete;
  Runtime &operator=(const Runtime &) = delete;

  // Adds members for later runs.
  void add(std::vector<Member> members);
  std::size_t member_count() const;
  const Member &member(std::size_t index) const;  // valid as long as the runtime

  // The only member that can work; it runs the tasks as without a hybrid.
  std::optional<std::size_t> only_member() const;

  // The CPU did all of these tasks: its speed is known when a device is found.
  void ran_alone(std::span<const core::Task> tasks, double seconds);

  // Runs tasks of host memory, all with rows, columns and bytes, on all members. Throws Error.
  void run(std::span<const core::Task> tasks, core::Control &control);

  // Ends the threads. The thread of a device that does not answer is left behind, with all memory that it may use.
  void stop() noexcept;

 private:
  struct MemberState {
    explicit MemberState(Member given) : member(std::move(given)) {}
    const Member member;
    Memory memory;
    double used_seconds = 0;  // when it last began work, on the clock of now()
    unsigned failures = 0;
    unsigned lanes_given_up = 0;  // while there are any, the member's other lanes get no work
    bool is_out = false;          // it failed too often

    bool can_work() const noexcept { return !is_out && lanes_given_up == 0; }
  };
  // A lane of a device.
  struct Lane {
    unsigned index;  // in a share: the CPU is lane 0, if there is one
    std::size_t member;
    unsigned row = 0;  // of the timeline
    std::thread thread;
    std::shared_ptr<Job> job;  // of its present piece
    core::Control *control = nullptr;
    std::size_t piece = 0;
    double sign_seconds = 0;  // the last sign of life in this piece
    std::vector<core::Need> needs;
    std::optional<core::Hold> hold;
    core::MemoryHold memory;  // registered memory stays pinned while the device may use it, even after the call
    bool is_given_up = false;
    bool has_ended = false;
  };
  using Lock = std::unique_lock<std::mutex>;
  class Unlocked;
  class PieceGuard;

  bool has_cpu() const noexcept { return members_.front()->member.is_cpu; }
  bool has_room(const Member &member, const core::Control &control) const;
  void start_threads();
  std::shared_ptr<Job> open_job(std::span<const core::Task> tasks, core::Control &control);
  void drive(Job &job, Lock &lock);
  bool is_stranded(const Job &job) const;
  void run_on_cpu(Job &job, const Piece &piece, Lock &lock);
  void close_job(Job &job, Lock &lock);
  void watch();
  bool give_up_late_lanes(double at);
  void wake_lanes();

  void work(Lane &lane);
  std::shared_ptr<Job> job_after(std::uint64_t number) const;
  bool work_on(Lane &lane, const std::shared_ptr<Job> &job, double *look_again, Lock &lock);
  bool make_ready(const Lane &lane, Job &job, Lock &lock);
  void do_piece(Lane &lane, const std::shared_ptr<Job> &job, const Piece &piece, Lock &lock);
  void device_failed(const Lane &lane, Job &job, const std::exception_ptr &error);
  void retire(Job &job, std::size_t member);

  const Options options_;
  const base::Log log_;

  mutable std::mutex mutex_;
  std::condition_variable work_there_, lane_began_, lane_ended_, stopped_;
  std::vector<std::unique_ptr<MemberState>> members_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::thread watch_;
  std::list<std::shared_ptr<Job>> jobs_;  // the oldest first
  std::uint64_t job_count_ = 0;           // of all so far
  std::uint64_t version_ = 0;             // changes when lanes should look again
  bool stopping_ = false;
};

}  // namespace tandem::hybrid
