// SPDX-License-Identifier: Apache-2.0
// What runs by an OpenMP runtime, in a library of its own for each (libstudy_openmp_gnu.so, libstudy_openmp_llvm.so),
// so that no other runtime is in the process.
#pragma once

#include <stddef.h>

// kind: "lu0", "fwd", "bdiv", "bmod"; the tile that changes is (i, j), in step k.
using study_lu_task = void (*)(void *user, const char *kind, size_t i, size_t j, size_t k);

extern "C" {
__attribute__((visibility("default"))) void study_openmp_loop(unsigned thread_count, size_t item_count,
                                                              void (*item)(void *user, size_t number), void *user);
// The tasks of the document's figure 1 over n x n tiles. concurrent_write: bmod's of one tile in any order
// (mutexinoutset), else in the order of k (inout).
__attribute__((visibility("default"))) void study_openmp_lu(unsigned thread_count, size_t n, int concurrent_write,
                                                            study_lu_task task, void *user);
}
