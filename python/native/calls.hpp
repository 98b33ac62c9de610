// Calls into libtandem that let other Python threads run meanwhile.
#ifndef TANDEM_PYTHON_CALLS_HPP
#define TANDEM_PYTHON_CALLS_HPP

#include <Python.h>

namespace tandem_ec {

// While one exists, this thread does not hold the GIL, and the interpreter's exit waits for it. A thread that came back
// to an interpreter that is gone would be ended by force inside C++ frames, which aborts the process. So once the exit
// has begun, calls keep the GIL.
class WithoutGil {
 public:
  explicit WithoutGil(bool wanted = true);
  ~WithoutGil();
  WithoutGil(const WithoutGil &) = delete;
  WithoutGil &operator=(const WithoutGil &) = delete;

 private:
  PyThreadState *state_ = nullptr;
};

// The interpreter is about to exit: long calls should end.
bool is_closing();

// For atexit: waits until no call is without the GIL.
void begin_exit();

// A child after fork has none of its parent's threads, and so none of their calls. Once, when the module is loaded.
void watch_forks();

}  // namespace tandem_ec
#endif
