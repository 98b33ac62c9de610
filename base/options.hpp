// Structs that travel with their size: what a caller compiled against another version passes is brought to this one's
// form.
#pragma once

#include <cstddef>
#include <cstring>

#include <string>

#include "base/error.hpp"

namespace tandem::base {

inline constexpr std::size_t kMostStructBytes = 65536;  // anything larger is an uninitialised size

[[noreturn]] inline void fail_size(std::size_t given_bytes, std::size_t our_bytes, const char *name) {
  base::fail(TANDEM_ERROR_INVALID_ARGUMENT, std::string(name) + ".struct_bytes is " + std::to_string(given_bytes) +
                                                "; set it to sizeof(" + name + "), " + std::to_string(our_bytes));
}

// Copies a caller's struct, which begins with its own size. Shorter than ours: the rest is zero, which means default.
// Longer: the bytes we do not know must be zero.
template <class Options>
Options read_options(const Options *given, const char *name) {
  Options ours{};
  if (given == nullptr) return ours;
  std::size_t given_bytes = 0;
  std::memcpy(&given_bytes, given, sizeof given_bytes);
  if (given_bytes < sizeof given_bytes || given_bytes > kMostStructBytes) fail_size(given_bytes, sizeof ours, name);
  const auto *bytes = reinterpret_cast<const unsigned char *>(given);
  for (std::size_t i = sizeof ours; i < given_bytes; ++i) {
    if (bytes[i] != 0) {
      base::fail(TANDEM_ERROR_UNSUPPORTED, std::string(name) + ": byte " + std::to_string(i) + " of " +
                                               std::to_string(given_bytes) +
                                               " is set; it belongs to an option newer than this library");
    }
  }
  std::memcpy(&ours, given, given_bytes < sizeof ours ? given_bytes : sizeof ours);
  return ours;
}

// The size of a caller's struct that is to be filled, refused before the work that fills it. Nothing but the size is
// read: the rest may be uninitialised. Returns it.
template <class Result>
std::size_t check_result_size(const Result *given, const char *name) {
  std::size_t given_bytes = 0;
  std::memcpy(&given_bytes, given, sizeof given_bytes);
  if (given_bytes <= sizeof given_bytes || given_bytes > kMostStructBytes) fail_size(given_bytes, sizeof *given, name);
  return given_bytes;
}

// Fills a caller's struct, which begins with its own size: as much of ours as fits, the rest of theirs untouched.
template <class Result>
void write_result(Result ours, Result *given, const char *name) {
  const std::size_t given_bytes = check_result_size(given, name);
  const std::size_t known = given_bytes < sizeof ours ? given_bytes : sizeof ours;
  std::memcpy(reinterpret_cast<char *>(given) + sizeof given_bytes,
              reinterpret_cast<const char *>(&ours) + sizeof given_bytes, known - sizeof given_bytes);
}

}  // namespace tandem::base
