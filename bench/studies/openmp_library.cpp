// SPDX-License-Identifier: Apache-2.0
#include "bench/studies/openmp_library.hpp"

#include <vector>

extern "C" void study_openmp_loop(unsigned thread_count, size_t item_count, void (*item)(void *user, size_t number),
                                  void *user) {
#pragma omp parallel for num_threads(thread_count) schedule(static)
  for (size_t i = 0; i < item_count; ++i) item(user, i);
}

// A tile's dependences name one byte. clang-format 14 has no sense for lists of them.
// clang-format off
extern "C" void study_openmp_lu(unsigned thread_count, size_t n, int concurrent_write, study_lu_task task, void *user) {
  std::vector<char> tiles(n * n);
  char *const t = tiles.data();
#pragma omp parallel num_threads(thread_count)
#pragma omp single
  for (size_t k = 0; k < n; ++k) {
#pragma omp task untied firstprivate(k) depend(inout: t[k * n + k])
    task(user, "lu0", k, k, k);
    for (size_t j = k + 1; j < n; ++j) {
#pragma omp task untied firstprivate(k, j) depend(in: t[k * n + k]) depend(inout: t[k * n + j])
      task(user, "fwd", k, j, k);
    }
    for (size_t i = k + 1; i < n; ++i) {
#pragma omp task untied firstprivate(k, i) depend(in: t[k * n + k]) depend(inout: t[i * n + k])
      task(user, "bdiv", i, k, k);
    }
    for (size_t i = k + 1; i < n; ++i) {
      for (size_t j = k + 1; j < n; ++j) {
        if (concurrent_write) {
#pragma omp task untied firstprivate(k, i, j) depend(in: t[i * n + k], t[k * n + j]) depend(mutexinoutset: t[i * n + j])
          task(user, "bmod", i, j, k);
        } else {
#pragma omp task untied firstprivate(k, i, j) depend(in: t[i * n + k], t[k * n + j]) depend(inout: t[i * n + j])
          task(user, "bmod", i, j, k);
        }
      }
    }
  }
}
// clang-format on
