// SPDX-License-Identifier: Apache-2.0
#include "bench/studies/openmp_loop.hpp"

extern "C" void study_openmp_loop(unsigned thread_count, size_t item_count, void (*item)(void *user, size_t number),
                                  void *user) {
#pragma omp parallel for num_threads(thread_count) schedule(static)
  for (size_t i = 0; i < item_count; ++i) item(user, i);
}
