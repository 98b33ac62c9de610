// SPDX-License-Identifier: Apache-2.0
// A parallel loop of one OpenMP runtime, in a library of its own (libstudy_openmp_gnu.so, libstudy_openmp_llvm.so), so
// that no other runtime is in the process.
#pragma once

#include <stddef.h>

extern "C" __attribute__((visibility("default"))) void study_openmp_loop(unsigned thread_count, size_t item_count,
                                                                         void (*item)(void *user, size_t number),
                                                                         void *user);
