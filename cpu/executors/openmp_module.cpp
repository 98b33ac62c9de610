// SPDX-License-Identifier: Apache-2.0
// The OpenMP module: the only file compiled with -fopenmp.
#include "cpu/executors/openmp_module.hpp"

namespace {

void run(const tandem_openmp_run *run) {
  const size_t item_count = run->item_count;
#pragma omp parallel num_threads(run->thread_count)
  {
    alignas(16) unsigned char thread[TANDEM_OPENMP_THREAD_BYTES];
    run->begin_thread(run->user, thread);
#pragma omp for schedule(static) nowait
    for (size_t item = 0; item < item_count; ++item) run->item(run->user, thread, item);
    run->end_thread(run->user, thread);
  }
}

const tandem_openmp_module kModule = {TANDEM_OPENMP_VERSION, sizeof(tandem_openmp_module), run};

}  // namespace

extern "C" __attribute__((visibility("default"))) const tandem_openmp_module *tandem_openmp_module_get(void) {
  return &kModule;
}
