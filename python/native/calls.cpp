// SPDX-License-Identifier: Apache-2.0
#include "calls.hpp"

#include <pthread.h>

#include <atomic>

namespace tandem_ec {
namespace {

std::atomic<int> calls{0};
std::atomic<bool> closing{false};
std::atomic<pthread_t> exiting_thread;  // valid while closing

void end_call() {
  if (--calls == 0) calls.notify_all();
}

bool may_not_return() { return is_closing() && !pthread_equal(pthread_self(), exiting_thread); }

[[noreturn]] void sleep_for_ever() {
  end_call();
  for (;;) pause();
}

}  // namespace

// The GIL is held at both ends, so that the exit begins either before or after.
Call::Call() { ++calls; }

Call::~Call() {
  if (may_not_return()) {
    PyEval_SaveThread();
    sleep_for_ever();
  }
  end_call();
}

WithoutGil::WithoutGil(bool wanted) {
  if (!wanted || is_closing()) return;
  ++calls;
  state_ = PyEval_SaveThread();
}

WithoutGil::~WithoutGil() {
  if (state_ == nullptr) return;
  if (may_not_return()) sleep_for_ever();
  PyEval_RestoreThread(state_);
  if (may_not_return()) {
    PyEval_SaveThread();
    sleep_for_ever();
  }
  end_call();
}

bool is_closing() { return closing; }

int call_count() { return calls; }

void begin_exit() {
  exiting_thread = pthread_self();
  closing = true;
  Py_BEGIN_ALLOW_THREADS;
  for (int count = calls; count > 0; count = calls) calls.wait(count);
  Py_END_ALLOW_THREADS;
}

void watch_forks() {
  pthread_atfork(nullptr, nullptr, [] { calls = 0; });
}

}  // namespace tandem_ec
