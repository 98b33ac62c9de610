// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <algorithm>
#include <new>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "base/own_folder.hpp"
#include "base/text.hpp"
#include "core/budget.hpp"
#include "cpu/executors/executor.hpp"
#include "cpu/executors/item_loop.hpp"
#include "cpu/executors/openmp_module.hpp"

namespace tandem::cpu {

namespace {

constexpr const char *kModuleFile = "libtandem_openmp.so";

static_assert(sizeof(ItemLoop) <= TANDEM_OPENMP_THREAD_BYTES && alignof(ItemLoop) <= 16);

void begin_thread(void *user, void *thread) { new (thread) ItemLoop(*static_cast<SpreadRun *>(user)); }

void run_one(void *, void *thread, std::size_t item) { static_cast<ItemLoop *>(thread)->run(item); }

void end_thread(void *, void *thread) { static_cast<ItemLoop *>(thread)->~ItemLoop(); }

const tandem_openmp_module *open_module(const std::string &path) {
  // Never closed: the runtime's threads outlive any executor.
  void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char *reason = dlerror();
    base::fail(TANDEM_ERROR_UNAVAILABLE, base::text("executor \"openmp\" needs ", path, ": ",
                                                    reason != nullptr ? reason : "it cannot be opened"));
  }
  const auto get = reinterpret_cast<tandem_openmp_module_get_function>(dlsym(handle, TANDEM_OPENMP_SYMBOL));
  if (get == nullptr) {
    base::fail(TANDEM_ERROR_UNAVAILABLE,
               base::text("executor \"openmp\": ", path, " has no symbol ", TANDEM_OPENMP_SYMBOL));
  }
  const tandem_openmp_module *module = get();
  check_openmp_module(module, path);
  return module;
}

class OpenmpExecutor final : public Executor {
 public:
  OpenmpExecutor(const tandem_openmp_module *module, const ExecutorOptions &options)
      : module_(module), options_(options), in_child_(make_pthread_executor(options)) {}

  const char *name() const noexcept override { return forked() ? in_child_->name() : "openmp"; }
  unsigned thread_count() const noexcept override { return options_.thread_count; }

  bool run(Batch &batch, std::size_t item_count, core::Control &control, unsigned most_threads) override {
    if (forked()) return in_child_->run(batch, item_count, control, most_threads);
    const unsigned threads = std::min(options_.thread_count, most_threads);
    if (item_count <= 1 || threads == 1) {
      return run_serially(batch, item_count, control, options_.budget);
    }
    SpreadRun run(batch, control, options_.budget);
    const tandem_openmp_run call = {&run, item_count, threads, begin_thread, run_one, end_thread};
    module_->run(&call);
    return run.ran_all(item_count);
  }

 private:
  // In any child, even if the executor was made there: the parent, or foreign code, may have used the runtime.
  static bool forked() noexcept { return base::fork_generation() != base::kFirstForkGeneration; }

  const tandem_openmp_module *module_;
  const ExecutorOptions options_;
  const std::unique_ptr<Executor> in_child_;  // has no threads until it is used
};

}  // namespace

void check_openmp_module(const tandem_openmp_module *module, const std::string &path) {
  constexpr std::uint32_t version = TANDEM_OPENMP_VERSION;
  if (module == nullptr) base::fail(TANDEM_ERROR_UNAVAILABLE, base::text("executor \"openmp\": ", path, " is empty"));
  if (module->version != version) {
    base::fail(TANDEM_ERROR_UNAVAILABLE, base::text("executor \"openmp\": ", path, " has version ", module->version,
                                                    ", this library needs version ", version));
  }
  if (module->struct_bytes != sizeof(tandem_openmp_module) || module->run == nullptr) {
    base::fail(TANDEM_ERROR_UNAVAILABLE,
               base::text("executor \"openmp\": ", path, " has a table of ", module->struct_bytes,
                          " bytes, this library expects ", sizeof(tandem_openmp_module)));
  }
}

std::unique_ptr<Executor> make_openmp_executor_from(const std::string &folder, const ExecutorOptions &options) {
  check_executor_options(options);
  return std::make_unique<OpenmpExecutor>(open_module(folder + "/" + kModuleFile), options);
}

std::unique_ptr<Executor> make_openmp_executor(const ExecutorOptions &options) {
  return make_openmp_executor_from(base::module_folder(kModuleFile, "executor \"openmp\""), options);
}

}  // namespace tandem::cpu
