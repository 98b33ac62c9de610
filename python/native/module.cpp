// SPDX-License-Identifier: Apache-2.0
// The extension module tandem_ec._native.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cctype>
#include <string_view>

#include "calls.hpp"
#include "codec.hpp"
#include "file_calls.hpp"
#include "memory.hpp"
#include "raise.hpp"

namespace nb = nanobind;

namespace tandem_ec {

void raise(tandem_status status, const std::string &message_of_library) {
  std::string message = message_of_library;
  constexpr std::string_view kFlag = " --force";  // a word: paths may have it in them
  if (const std::size_t at = message.find(kFlag); at != std::string::npos && !std::isalnum(message[at + kFlag.size()]))
    message.replace(at + 1, kFlag.size() - 1, "force=True");
  {
    const Call exit_waits;
    const nb::object error =
        nb::module_::import_("tandem_ec.errors")
            .attr("of_status")(
                status, tandem_status_name(status),
                nb::steal(PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "replace")));
    PyErr_SetObject(reinterpret_cast<PyObject *>(Py_TYPE(error.ptr())), error.ptr());
  }
  throw nb::python_error();
}

}  // namespace tandem_ec

NB_MODULE(_native, module) {
  using namespace tandem_ec;
  nb::set_leak_warnings(false);  // objects of daemon threads are never freed; the warning would not help users
  watch_forks();
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&begin_exit));
  bind_codec(module);
  bind_files(module);
  bind_par2(module);
  module.def("empty", &empty, nb::arg("count"), nb::arg("n"), nb::sig("def empty(count: int, n: int) -> typing.Any"),
             "A NumPy array of count shards of n bytes, placed for the best speed. Its bytes are not set.");
  module.def("byte_count", [](nb::handle shard) {
    Memory memory;
    return memory.take_one(shard, "shard", Access::read).shard_bytes;
  });
  module.def("call_count", &call_count);
  module.def("version", [] { return std::string(tandem_version_string()); });
}
