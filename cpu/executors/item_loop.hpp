// What every executor does around one item. One ItemLoop per thread and run.
#pragma once

#include <cstddef>

#include "core/backend.hpp"
#include "core/budget.hpp"
#include "cpu/executors/executor.hpp"

namespace tandem::cpu {

class ItemLoop {
 public:
  ItemLoop(Batch &batch, core::Control &control, core::Budget *budget) noexcept
      : batch_(batch), control_(control), unit_(budget) {}

  // false: cancelled, and the item did not run. The second look is for a cancel while the thread waited for its unit.
  bool run(std::size_t item) {
    if (control_.cancelled()) return false;
    unit_.next_item();
    if (control_.cancelled()) return false;
    batch_.run_item(item);
    ++ran_count_;
    return true;
  }

  std::size_t ran_count() const noexcept { return ran_count_; }

 private:
  Batch &batch_;
  core::Control &control_;
  core::CpuUnit unit_;
  std::size_t ran_count_ = 0;
};

void check_executor_options(const ExecutorOptions &options);  // throws Error

bool run_serially(Batch &batch, std::size_t item_count, core::Control &control, core::Budget *budget);

}  // namespace tandem::cpu
