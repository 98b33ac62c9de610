// One run of a hybrid: what its lanes share, and how a lane does a chunk of it.
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "core/backend.hpp"
#include "hybrid/policy/ledger.hpp"
#include "hybrid/policy/speeds.hpp"
#include "hybrid/policy/work.hpp"

namespace tandem::hybrid {

struct Job {
  Job(Work all_work, Ledger::Options options, std::vector<Worker> workers, ResourcePool &pool, core::Control &caller)
      : work(std::move(all_work)), ledger(std::move(options), std::move(workers), pool), control(&caller) {}

  // Whether lanes may begin a chunk of it.
  bool is_open() const noexcept { return !closed && !cancelled && !error; }
  bool is_over() const noexcept { return ledger.is_done() || cancelled || error || ledger.is_stranded(); }

  const Work work;
  Ledger ledger;
  core::Control *control;        // of the caller, who may be gone when `closed`
  core::Control device_control;  // for runs that may outlive the call
  WorkKind kind = {};
  bool admits_devices = true;
  std::string what;                       // "encode 10+4", for people
  std::vector<base::TimelineSpan> spans;  // of lanes as rows
  double start_seconds = 0;

  bool closed = false;  // the call has returned, or is about to: its memory is not touched any more
  bool cancelled = false;
  unsigned lanes_at_work = 0;
  unsigned touching = 0;  // lanes that may be touching the caller's memory now
  std::exception_ptr error, device_error;
  std::condition_variable changed;
};

// Where a device's lane keeps a chunk: shards beside each other, 64 bytes aligned, in the memory of its backend.
class Staging {
 public:
  explicit Staging(core::Backend &backend) : backend_(&backend) {}

  // The chunk's tasks on this memory. Throws Error (OUT_OF_MEMORY).
  void lay_out(const Work &work, const std::vector<TaskPart> &parts, std::uint64_t least_bytes);

  // Prepared matrices of the parts, in their order; they live as long as the staging is in use.
  std::vector<std::shared_ptr<const core::Prepared>> prepared;

  void release() noexcept;  // its memory

  void copy_in(const Work &work);
  void run(core::Control &control);
  // What of the result lies in `own`, into the caller's shards; ^= happens here.
  void copy_out(const Work &work, const std::vector<Range> &own) const;
  // Of a compare, into the tasks' own records.
  void merge_mismatches(const Work &work) const;

 private:
  struct Place {
    TaskPart part;
    std::size_t first_input, first_output;  // of the pointers below
  };

  core::Backend *backend_;
  std::shared_ptr<std::byte> memory_;
  std::uint64_t capacity_bytes_ = 0;
  std::vector<Place> places_;
  std::vector<std::byte *> inputs_, outputs_;
  std::vector<const std::byte *> const_inputs_;
  std::vector<core::Mismatch> mismatches_;
  std::vector<core::Task> tasks_;
};

// A chunk done where the caller's shards lie, by a backend that can neither fail half-way nor hang.
class InPlace {
 public:
  InPlace(const Work &work, const std::vector<TaskPart> &parts, std::size_t member, core::Backend &backend);
  void run(core::Backend &backend, core::Control &control) { backend.run(tasks_, control); }
  void merge_mismatches(const Work &work) const;

 private:
  std::vector<TaskPart> parts_;
  std::vector<std::shared_ptr<const core::Prepared>> prepared_;
  std::vector<core::Mismatch> mismatches_;
  std::vector<core::Task> tasks_;
};

}  // namespace tandem::hybrid
