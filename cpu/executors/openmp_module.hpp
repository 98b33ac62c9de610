// SPDX-License-Identifier: Apache-2.0
// The interface between libtandem and its OpenMP module, libtandem_openmp.so. Plain C: the module includes none of the
// library's headers.
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

enum {
  TANDEM_OPENMP_VERSION = 3,  // raise it with every change below
  TANDEM_OPENMP_THREAD_BYTES = 64
};

// One run. The module opens a parallel region. Each thread calls begin_thread once, item for its share of 0 ..
// item_count - 1, end_thread once. `thread` points at TANDEM_OPENMP_THREAD_BYTES aligned to 16, owned by the thread.
struct tandem_openmp_run {
  void *user;
  size_t item_count;
  uint32_t thread_count;
  void (*begin_thread)(void *user, void *thread);
  void (*item)(void *user, void *thread, size_t item);
  void (*end_thread)(void *user, void *thread);
};

struct tandem_openmp_module {
  uint32_t version;       // TANDEM_OPENMP_VERSION; always the first field
  uint32_t struct_bytes;  // sizeof(tandem_openmp_module)
  void (*run)(const struct tandem_openmp_run *run);
};

// The module's one symbol, by this name.
#define TANDEM_OPENMP_SYMBOL "tandem_openmp_module_get"
typedef const struct tandem_openmp_module *(*tandem_openmp_module_get_function)(void);

}  // extern "C"
