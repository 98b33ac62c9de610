// Structs that a caller passes, which begin with their size: see the head of tandem.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "mpi/error.hpp"

namespace tandem::mpi {

template <class Struct>
std::size_t checked_bytes(const Struct *given, const char *name) {
  constexpr std::size_t kMost = 65536;  // anything larger is an uninitialised size
  const std::size_t bytes = given->struct_bytes;
  if (bytes < sizeof bytes || bytes > kMost || bytes % alignof(Struct) != 0)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, std::string(name) + ".struct_bytes is " + std::to_string(bytes) +
                                            "; set it to sizeof(" + name + "), " + std::to_string(sizeof(Struct)));
  return bytes;
}

// A caller's options in this version's form: what an older version lacks is 0, which means default.
template <class Options>
Options read_options(const Options *given, const char *name) {
  if (given == nullptr) fail(TANDEM_ERROR_INVALID_ARGUMENT, std::string(name) + " is NULL");
  const std::size_t bytes = checked_bytes(given, name);
  const auto *from = reinterpret_cast<const unsigned char *>(given);
  for (std::size_t i = sizeof(Options); i < bytes; ++i)
    if (from[i] != 0)
      fail(TANDEM_ERROR_UNSUPPORTED, std::string(name) + ": byte " + std::to_string(i) + " of " +
                                         std::to_string(bytes) +
                                         " is set; it belongs to an option newer than this library");
  Options ours = {};
  std::memcpy(&ours, given, std::min(bytes, sizeof ours));
  ours.struct_bytes = sizeof ours;
  if constexpr (requires { ours.reserved; })
    if (ours.reserved != 0)
      fail(TANDEM_ERROR_UNSUPPORTED,
           std::string(name) + ".reserved is " + std::to_string(ours.reserved) + ", must be 0");
  return ours;
}

template <class Result>
void check_result(const Result *given, const char *name) {
  if (given != nullptr) checked_bytes(given, name);
}

// Fills as much of a caller's struct as it has; NULL: it is not wanted.
template <class Result>
void write_result(const Result &ours, Result *given) {
  if (given == nullptr) return;
  const std::size_t bytes = std::min(given->struct_bytes, sizeof ours), skip = sizeof ours.struct_bytes;
  std::memcpy(reinterpret_cast<char *>(given) + skip, reinterpret_cast<const char *>(&ours) + skip, bytes - skip);
}

// A caller's strings in one, for World::require_equal.
inline std::string listed(const char *const *strings, std::size_t count, const char *name) {
  if (strings == nullptr) fail(TANDEM_ERROR_INVALID_ARGUMENT, std::string(name) + " is NULL");
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    if (strings[i] == nullptr)
      fail(TANDEM_ERROR_INVALID_ARGUMENT, std::string(name) + "[" + std::to_string(i) + "] is NULL");
    text += i == 0 ? "" : ", ";
    text += strings[i];
  }
  return text;
}

template <class Struct>
Struct sized() {
  Struct value = {};
  value.struct_bytes = sizeof value;
  return value;
}

}  // namespace tandem::mpi
