// Submitted runs: what tandem_job is.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/fork.hpp"
#include "core/backend.hpp"

namespace tandem::api {

// What a run has of its own until it is over.
class SubmittedRun {
 public:
  virtual ~SubmittedRun() = default;
  virtual core::Control &control() = 0;
  virtual void finish() {}     // the tasks are over: what the caller is to hear beyond the bytes
  virtual void release() = 0;  // the run uses the shards no more
};

}  // namespace tandem::api

// A run under way, and its result once somebody waited.
struct tandem_job {
  std::uint32_t generation = tandem::base::fork_generation();  // of the process that runs it
  std::unique_ptr<tandem::api::SubmittedRun> run;
  std::unique_ptr<tandem::core::Ticket> ticket;  // after the run that it uses
  std::mutex mutex;                              // waiters: the first one finishes the run
  bool over = false;
  tandem_status status = TANDEM_OK;
  std::string message;
};

namespace tandem::api {

inline std::unique_ptr<tandem_job> make_job() {
  auto job = std::make_unique<tandem_job>();
  job->message.reserve(512);  // a whole message: wait, which keeps it, must not have to allocate
  return job;
}

}  // namespace tandem::api
