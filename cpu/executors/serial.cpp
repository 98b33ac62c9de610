// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "cpu/executors/executor.hpp"
#include "cpu/executors/item_loop.hpp"

namespace tandem::cpu {

namespace {

class SerialExecutor final : public Executor {
 public:
  explicit SerialExecutor(const ExecutorOptions &options) : budget_(options.budget) {}

  const char *name() const noexcept override { return "serial"; }
  unsigned thread_count() const noexcept override { return 1; }

  bool run(Batch &batch, std::size_t item_count, core::Control &control, unsigned) override {
    return run_serially(batch, item_count, control, budget_);
  }

 private:
  core::Budget *budget_;
};

}  // namespace

void check_executor_options(const ExecutorOptions &options) {
  if (options.thread_count == 0) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "an executor with thread_count 0: at least 1 is needed");
  }
}

bool run_serially(Batch &batch, std::size_t item_count, core::Control &control, core::Budget *budget) {
  SpreadRun run(batch, control, budget);
  {
    ItemLoop loop(run);
    for (std::size_t item = 0; item < item_count && loop.run(item); ++item) {
    }
  }
  return run.ran_all(item_count);
}

std::unique_ptr<Executor> make_serial_executor(const ExecutorOptions &options) {
  check_executor_options(options);
  return std::make_unique<SerialExecutor>(options);
}

}  // namespace tandem::cpu
