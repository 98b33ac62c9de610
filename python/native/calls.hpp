// SPDX-License-Identifier: Apache-2.0
// Calls into libtandem that let other Python threads run.
#pragma once

#include <Python.h>

#include "raise.hpp"

namespace tandem_ec {

// The interpreter's exit waits for these calls. If a daemon thread asks for the GIL after the interpreter is gone,
// Python ends it by force. That aborts the process if C++ frames are on the thread's stack. So a thread does not return
// to Python if its call ends after the exit has begun: it sleeps until the process is over.
class Call {
 public:
  Call();
  ~Call();
  Call(const Call &) = delete;
  Call &operator=(const Call &) = delete;
};

// While one exists, this thread does not hold the GIL. After the exit has begun, calls keep it.
class WithoutGil {
 public:
  explicit WithoutGil(bool wanted = true);
  ~WithoutGil();
  WithoutGil(const WithoutGil &) = delete;
  WithoutGil &operator=(const WithoutGil &) = delete;

 private:
  PyThreadState *state_ = nullptr;
};

// A call of the library. Raises if it fails. lets_others_run: without the GIL.
template <class Function>
void call_library(bool lets_others_run, const Function &function) {
  tandem_status status;
  {
    const WithoutGil other_threads_run(lets_others_run);
    status = function();
  }
  check(status);
}

// The interpreter is about to exit: long calls should end.
bool is_closing();

// The number of calls under way without the GIL, or raising an exception.
int call_count();

// For atexit: waits until there are none.
void begin_exit();

// A child after fork has none of its parent's threads, and so none of their calls. Called once, when the module is
// loaded.
void watch_forks();

}  // namespace tandem_ec
