// SPDX-License-Identifier: Apache-2.0
// The modules of devices' backends. A module is a shared object in the library's own folder, opened on first need. Its
// one symbol gives a table of a driver's functions, which begins with version and size. A driver's threads and open
// devices are lost in a child after fork, so it belongs to the process that used it first.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "base/fork.hpp"

namespace tandem::device {

struct DeviceModule {
  const char *backend;  // "cuda"
  const char *label;    // "CUDA"
  const char *file;     // "libtandem_cuda.so"
  const char *symbol;   // a function without arguments that returns the table
  std::uint32_t version;
  std::uint32_t struct_bytes;  // of the table

  std::string path() const;

  // Whether the file is there, without opening it. Throws Error (UNAVAILABLE) with its path.
  void check_installed() const;

  // Throws Error (UNAVAILABLE) unless the table, which may be null, is of this library's version.
  void check(const void *table, const std::string &module_path) const;

  // The symbol; the module is never closed: drivers have threads. Throws Error (UNAVAILABLE).
  void *open() const;

  // Call it before a driver's first function. Throws Error (DEVICE) in a child if the parent had called it.
  void claim() const;
  bool in_child() const noexcept;  // whether claim() would throw

  mutable std::atomic<std::int64_t> waited_ms{0};    // of calls of list_devices() in vain, since the last answer
  mutable std::atomic<std::uint32_t> claimed_in{0};  // the fork_generation() of the process that did; 0: none
};

// The module's table, opened once in a process, after claim(). Throws Error (UNAVAILABLE).
template <class Table>
const Table &open_table(const DeviceModule &module) {
  struct Opened {
    std::mutex mutex;
    const Table *table = nullptr;
  };
  static base::ForkLocal<Opened> opened;  // another thread of the parent may have been here at the fork
  Opened &here = opened.get();
  const std::lock_guard lock(here.mutex);
  if (here.table == nullptr) {
    const base::ForkPause pause;
    const Table *table = reinterpret_cast<const Table *(*)()>(module.open())();
    module.check(table, module.path());
    here.table = table;
  }
  return *here.table;
}

}  // namespace tandem::device
