// SPDX-License-Identifier: Apache-2.0
// Structs that a caller passes to a library on top of the public headers. They begin with their size (see the start of
// tandem.h). base/options.hpp does the same for libtandem, with its own errors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "client/error.hpp"

namespace tandem::client {

template <class Struct>
std::size_t checked_bytes(const Struct *given, const char *name) {
  constexpr std::size_t kMost = 65536;  // anything larger is an uninitialised size
  const std::size_t bytes = given->struct_bytes;
  if (bytes <= sizeof bytes || bytes > kMost || bytes % alignof(Struct) != 0)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, std::string(name) + ".struct_bytes is " + std::to_string(bytes) +
                                            "; it must be the size of the struct, " + std::to_string(sizeof(Struct)));
  return bytes;
}

// A caller's options in this version's form. Fields that an older version lacks are 0, which means default. NULL: all
// defaults.
template <class Options>
Options read_options(const Options *given, const char *name) {
  Options ours = {};
  ours.struct_bytes = sizeof ours;
  if (given == nullptr) return ours;
  const std::size_t bytes = checked_bytes(given, name);
  const auto *from = reinterpret_cast<const unsigned char *>(given);
  for (std::size_t i = sizeof(Options); i < bytes; ++i)
    if (from[i] != 0)
      fail(TANDEM_ERROR_UNSUPPORTED, std::string(name) + ": byte " + std::to_string(i) + " of " +
                                         std::to_string(bytes) +
                                         " is set; it belongs to an option newer than this library");
  std::memcpy(static_cast<void *>(&ours), given, std::min(bytes, sizeof ours));
  ours.struct_bytes = sizeof ours;
  if constexpr (requires { ours.reserved; })
    if (ours.reserved != 0)
      fail(TANDEM_ERROR_UNSUPPORTED,
           std::string(name) + ".reserved is " + std::to_string(ours.reserved) + ", must be 0");
  return ours;
}

// Checks the size before the work that fills the struct. NULL: it is not wanted, here and below.
template <class Result>
void check_result(const Result *given, const char *name) {
  if (given != nullptr) checked_bytes(given, name);
}

// Fills as much of a caller's struct as it has.
template <class Result>
void write_result(const Result &ours, Result *given) {
  if (given == nullptr) return;
  const std::size_t bytes = std::min(given->struct_bytes, sizeof ours), skip = sizeof ours.struct_bytes;
  std::memcpy(reinterpret_cast<char *>(given) + skip, reinterpret_cast<const char *>(&ours) + skip, bytes - skip);
}

template <class Struct>
Struct sized() {
  Struct value = {};
  value.struct_bytes = sizeof value;
  return value;
}

}  // namespace tandem::client
