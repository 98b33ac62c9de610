// SPDX-License-Identifier: Apache-2.0
// The steps of every executor around one item. One SpreadRun per call, one ItemLoop per thread of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>

#include "core/backend.hpp"
#include "core/budget.hpp"
#include "cpu/executors/executor.hpp"

namespace tandem::cpu {

struct SpreadRun {
  SpreadRun(Batch &its_batch, core::Control &its_control, core::Budget *its_budget)
      : batch(its_batch), control(its_control), budget(its_budget), needs(core::Budget::kCpu, its_control.needs()) {}

  // Whether an item is worth starting.
  bool goes_on() const noexcept { return !control.cancelled() && !has_error.load(std::memory_order_relaxed); }

  // After all threads have ended. Throws the exception that stopped one of them.
  bool ran_all(std::size_t item_count) const {
    if (error) std::rethrow_exception(error);
    return ran_count.load(std::memory_order_relaxed) == item_count;
  }

  Batch &batch;
  core::Control &control;
  core::Budget *const budget;
  const core::TaskNeeds needs;
  std::atomic<std::size_t> ran_count{0};
  std::atomic<bool> has_error{false};
  std::exception_ptr error;  // of the first thread that failed
};

class ItemLoop {
 public:
  explicit ItemLoop(SpreadRun &run) noexcept
      : run_(run), hold_(run.budget, run.needs.get(), run.control.is_within_task()) {}
  ~ItemLoop() { run_.ran_count.fetch_add(ran_count_, std::memory_order_relaxed); }

  // false: the run is cancelled or the needs of its tasks were refused, and the item did not run. The second check is
  // for a cancel while the thread waited.
  bool run(std::size_t item) noexcept {
    if (!run_.goes_on()) return false;
    try {
      hold_.next_task();
    } catch (...) {
      if (!run_.has_error.exchange(true)) run_.error = std::current_exception();
      return false;
    }
    if (!run_.goes_on()) return false;
    run_.batch.run_item(item);
    ++ran_count_;
    return true;
  }

 private:
  SpreadRun &run_;
  core::Hold hold_;
  std::size_t ran_count_ = 0;
};

void check_executor_options(const ExecutorOptions &options);  // throws Error

bool run_serially(Batch &batch, std::size_t item_count, core::Control &control, core::Budget *budget);

}  // namespace tandem::cpu
