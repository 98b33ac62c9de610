// SPDX-License-Identifier: Apache-2.0
// What a shared object tells the loader: its name and the libraries that it needs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::cli {

struct NeededName {
  std::string name;
  std::size_t offset_bytes;  // where its characters lie in the file
};

struct SharedObject {
  std::string soname;  // empty: none
  std::vector<NeededName> needed;
  std::string rpath;  // DT_RPATH where the loader heeds it, ahead of LD_LIBRARY_PATH; empty: none
};

enum class ObjectKind { library, program_too };

// content: the whole file, of any kind. Accepts a shared object for this kind of machine, and with
// ObjectKind::program_too a program that the loader starts. Otherwise throws std::invalid_argument, with a phrase such
// as "it is no ELF file".
SharedObject read_shared_object(std::string_view content, ObjectKind kind = ObjectKind::library);

}  // namespace tandem::cli
