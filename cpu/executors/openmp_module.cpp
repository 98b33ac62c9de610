// SPDX-License-Identifier: Apache-2.0
// The OpenMP modules: the only file compiled with -fopenmp.
#include "cpu/executors/openmp_module.hpp"

// What a compiler calls for a parallel region.
#if defined(__clang__)
#define TANDEM_OPENMP_RUNTIME "llvm"
#define TANDEM_OPENMP_REGION __kmpc_fork_call
#else
#define TANDEM_OPENMP_RUNTIME "gnu"
#define TANDEM_OPENMP_REGION GOMP_parallel
#endif
extern "C" void TANDEM_OPENMP_REGION(void);

namespace {

void run(const tandem_openmp_run *run) {
  const size_t item_count = run->item_count;
#pragma omp parallel num_threads(run->thread_count)
  {
    alignas(16) unsigned char thread[TANDEM_OPENMP_THREAD_BYTES];
    run->begin_thread(run->user, thread);
    if (run->dynamic_schedule != 0) {
#pragma omp for schedule(dynamic) nowait
      for (size_t item = 0; item < item_count; ++item) run->item(run->user, thread, item);
    } else {
#pragma omp for schedule(static) nowait
      for (size_t item = 0; item < item_count; ++item) run->item(run->user, thread, item);
    }
    run->end_thread(run->user, thread);
  }
}

const tandem_openmp_module kModule = {TANDEM_OPENMP_VERSION, sizeof(tandem_openmp_module), run, TANDEM_OPENMP_RUNTIME,
                                      TANDEM_OPENMP_REGION};

}  // namespace

extern "C" __attribute__((visibility("default"))) const tandem_openmp_module *tandem_openmp_module_get(void) {
  return &kModule;
}
