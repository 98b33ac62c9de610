#include "calls.hpp"

#include <pthread.h>

#include <atomic>

namespace tandem_ec {
namespace {

std::atomic<int> calls_without_gil{0};
std::atomic<bool> closing{false};

}  // namespace

WithoutGil::WithoutGil(bool wanted) {
  if (!wanted || is_closing()) return;
  ++calls_without_gil;
  state_ = PyEval_SaveThread();
}

WithoutGil::~WithoutGil() {
  if (state_ == nullptr) return;
  PyEval_RestoreThread(state_);
  if (--calls_without_gil == 0) calls_without_gil.notify_all();
}

bool is_closing() { return closing.load(std::memory_order_relaxed); }

void begin_exit() {
  closing = true;
  Py_BEGIN_ALLOW_THREADS;
  for (int calls = calls_without_gil; calls > 0; calls = calls_without_gil) calls_without_gil.wait(calls);
  Py_END_ALLOW_THREADS;
}

void watch_forks() {
  pthread_atfork(nullptr, nullptr, [] { calls_without_gil = 0; });
}

}  // namespace tandem_ec
