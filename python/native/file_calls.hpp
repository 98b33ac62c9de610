// SPDX-License-Identifier: Apache-2.0
// What tandem_ec.files and tandem_ec.par2 have in common: file names, callbacks, calls.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "calls.hpp"
#include "raise.hpp"
#include "tandem/files.h"

namespace tandem_ec {

namespace nb = nanobind;

// File names are bytes here: the modules of tandem_ec convert them from and to str (os.fsencode).
using Path = nb::bytes;

inline std::string path_text(const Path &path, const char *name) {
  std::string result(path.c_str(), path.size());
  if (result.find('\0') != std::string::npos)
    refuse(name, " has a zero byte at ", result.find('\0'), " of ", result.size());
  return result;
}

struct PathList {
  PathList(const std::vector<Path> &paths, const char *name) {
    for (const Path &path : paths) texts.push_back(path_text(path, name));
    for (const std::string &one : texts) pointers.push_back(one.c_str());
  }
  std::vector<std::string> texts;
  std::vector<const char *> pointers;
};

inline Path path_bytes(const char *path) { return nb::bytes(path == nullptr ? "" : path); }

// The callbacks of C, on the calling thread and without the GIL. An exception in a callback ends the call, which then
// raises it. So does Ctrl-C, even without a progress callback.
struct Callbacks {
  nb::handle progress, note, report;
  nb::object error;

  template <class Function>
  bool guarded(const Function &function) {
    if (is_closing()) return false;  // checked before this thread asks for a GIL that it may never get
    PyGILState_STATE state = PyGILState_Ensure();
    bool go_on = !error.is_valid();
    if (go_on) {
      try {
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        go_on = function();
      } catch (nb::python_error &raised) {
        error = nb::borrow(raised.value());
        go_on = false;
      }
    }
    PyGILState_Release(state);
    return go_on;
  }

  static std::int32_t on_progress(void *user, std::uint64_t done_bytes, std::uint64_t total_bytes) {
    auto &self = *static_cast<Callbacks *>(user);
    const bool go_on = self.guarded([&] {
      if (self.progress.is_none()) return true;
      nb::object total = nb::none();
      if (total_bytes != TANDEM_FILES_UNKNOWN_BYTES) total = nb::int_(total_bytes);
      self.progress(done_bytes, total);
      return true;
    });
    return go_on ? 0 : 1;
  }

  static void on_note(void *user, const char *note) {
    auto &self = *static_cast<Callbacks *>(user);
    self.guarded([&] {
      self.note(nb::steal(PyUnicode_DecodeFSDefault(note)));
      return true;
    });
  }
};

// The callbacks that these options take. Progress is always one of them: it looks for Ctrl-C.
template <class Options>
void set_callbacks(Options &options, Callbacks &callbacks) {
  options.progress = Callbacks::on_progress;
  options.progress_user = &callbacks;
  if constexpr (requires { options.note; }) {
    if (callbacks.note.is_valid() && !callbacks.note.is_none()) options.note = Callbacks::on_note;
    options.note_user = &callbacks;
  }
}

// A call of the library. Raises the exception of a callback, or the library's error.
template <class Function>
void run(Callbacks &callbacks, const Function &call) {
  tandem_status status;
  std::string message;
  {
    WithoutGil other_threads_run;
    status = call();
    if (status != TANDEM_OK) message = tandem_last_error_message();
  }
  if (callbacks.error.is_valid()) {
    PyErr_SetObject(reinterpret_cast<PyObject *>(Py_TYPE(callbacks.error.ptr())), callbacks.error.ptr());
    throw nb::python_error();
  }
  if (status != TANDEM_OK) raise(status, message);
}

template <class Struct>
Struct sized() {
  Struct value = {};
  value.struct_bytes = sizeof value;
  return value;
}

inline std::uint32_t number(std::int64_t value, const char *name, std::int64_t most) {
  if (value < 0 || value > most) refuse(name, " is ", value, "; it must be 0 to ", most);
  return static_cast<std::uint32_t>(value);
}

inline constexpr std::int64_t kMostNumber = std::numeric_limits<std::uint32_t>::max();

void bind_files(nb::module_ &module);
void bind_par2(nb::module_ &module);

}  // namespace tandem_ec
