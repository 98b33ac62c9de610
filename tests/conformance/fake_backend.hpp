// SPDX-License-Identifier: Apache-2.0
// A backend for tests: it computes with the slow reference. A script makes it fail or wait.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/backend.hpp"

namespace tandem::test {

struct FakeScript {
  std::string name = "fake";
  unsigned lanes = 1;                                                 // tasks that run at once; more wait
  std::vector<core::MemoryKind> memories = {core::MemoryKind::host};  // all of them are memory of the host
  // Of every operator that is prepared, beside its own. A range that is not cut there ends in INTERNAL.
  std::uint64_t granularity_bytes = 1;
  bool reverses_groups = false;          // reads the bytes of each group from the last to the first: a wrong cut shows
  std::uint64_t chunk_bytes = 16 << 10;  // looks at the control before each

  double latency_seconds = 0;                     // before each task
  double bytes_per_second = 0;                    // inputs and outputs together; 0 = no limit
  std::function<void(double seconds)> pass_time;  // how time passes; empty = really sleeps

  std::optional<std::uint64_t> failing_task;  // the n-th task of this backend's life, from 0, fails
  bool fails_for_ever = false;                // and every one after it
  bool fails_after_half = false;              // having written half of its range; else before the first byte
  tandem_status failure = TANDEM_ERROR_DEVICE;

  std::function<void(std::uint64_t task, std::uint64_t done_bytes)> before_chunk;  // sees all that happens

  // What may be tuned. With values of prepare_tuned: how fast they are, in place of bytes_per_second (0: refused), and
  // whether the last byte of each run is wrong. Both may be empty.
  std::vector<core::TuningParameter> parameters;
  core::TuningIdentity identity{"fake", "nobody", "fake", "1"};
  std::function<double(const core::TuningValues &)> speed_of;
  std::function<bool(const core::TuningValues &)> is_wrong;
  std::uint64_t wrong_from_bytes = 0;                                   // is_wrong is asked of runs at least so long
  std::function<double(const core::TuningValues &)> first_run_seconds;  // more than later runs of the same matrix take
};

struct FakeCounts {
  std::uint64_t tasks_started, chunks, bytes;  // bytes: of the ranges, per shard
  unsigned most_at_once;
};

class FakeBackend : public core::Backend, public core::Tunable {
 public:
  explicit FakeBackend(FakeScript script = {});
  ~FakeBackend() override;

  const core::Traits &traits() const noexcept override;
  std::shared_ptr<const core::Prepared> prepare(const core::Operator &what) override;
  void run(std::span<const core::Task> tasks, core::Control &control) override;
  std::uint64_t kernel_calls() const noexcept override;
  core::Tunable *tunable() noexcept override { return this; }
  std::shared_ptr<const core::Prepared> prepare_tuned(const core::Operator &what,
                                                      const core::TuningValues &values) override;
  std::vector<core::TuningParameter> tuning_parameters(unsigned rows, unsigned columns, core::Mode mode) const override;
  core::TuningIdentity tuning_identity() const override;
  std::string tuning_kernel_hash() const override;

  FakeCounts counts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::test
