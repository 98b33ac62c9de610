// SPDX-License-Identifier: Apache-2.0
// Submitted runs: what tandem_job is.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/fork.hpp"
#include "core/backend.hpp"

namespace tandem::api {

// The data that a run owns until it is over.
class SubmittedRun {
 public:
  virtual ~SubmittedRun() = default;
  virtual core::Control &control() = 0;
  virtual void finish() {}     // the tasks are over: writes the results besides the bytes
  virtual void release() = 0;  // the run uses the shards no more
};

}  // namespace tandem::api

// A running job; after the first wait also its result.
struct tandem_job {
  std::uint32_t generation = tandem::base::fork_generation();  // of the process that runs it
  std::unique_ptr<tandem::api::SubmittedRun> run;
  std::unique_ptr<tandem::core::Ticket> ticket;  // destroyed before the run that it uses
  std::mutex mutex;                              // of waiting threads: the first one finishes the run
  bool over = false;
  tandem_status status = TANDEM_OK;
  std::string message;
};

namespace tandem::api {

inline std::unique_ptr<tandem_job> make_job() {
  auto job = std::make_unique<tandem_job>();
  job->message.reserve(512);  // room for a whole message, because wait, which stores it, must not allocate
  return job;
}

}  // namespace tandem::api
