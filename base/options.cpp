// SPDX-License-Identifier: Apache-2.0
#include "base/options.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"

namespace tandem::base {
namespace {

constexpr std::size_t kMostStructBytes = 65536;  // anything larger is an uninitialised size

}  // namespace

std::size_t checked_struct_bytes(const void *given, const StructKind &kind, std::size_t least_bytes) {
  std::size_t bytes = 0;
  std::memcpy(&bytes, given, sizeof bytes);
  if (bytes < least_bytes || bytes > kMostStructBytes || bytes % kind.alignment != 0) {
    fail(TANDEM_ERROR_INVALID_ARGUMENT, kind.name, ".struct_bytes is ", bytes, "; set it to sizeof(", kind.name, "), ",
         kind.bytes);
  }
  return bytes;
}

void copy_options(const void *given, void *ours, const StructKind &kind) {
  const std::size_t given_bytes = checked_struct_bytes(given, kind, sizeof given_bytes);
  const auto *bytes = static_cast<const unsigned char *>(given);
  for (std::size_t i = kind.bytes; i < given_bytes; ++i) {
    if (bytes[i] != 0) {
      fail(TANDEM_ERROR_UNSUPPORTED, kind.name, ": byte ", i, " of ", given_bytes,
           " is set; it belongs to an option newer than this library");
    }
  }
  std::memcpy(ours, given, std::min(given_bytes, kind.bytes));
}

void check_reserved(std::int64_t value, const char *field, const StructKind &kind) {
  if (value != 0) fail(TANDEM_ERROR_UNSUPPORTED, kind.name, ".", field, " is ", value, ", must be 0");
}

void copy_result(const void *ours, void *given, const StructKind &kind) {
  const std::size_t size_bytes = sizeof(std::size_t);
  const std::size_t bytes = std::min(checked_struct_bytes(given, kind, size_bytes + 1), kind.bytes);
  std::memcpy(static_cast<char *>(given) + size_bytes, static_cast<const char *>(ours) + size_bytes,
              bytes - size_bytes);
}

std::vector<std::string_view> read_strings(const char *const *list, std::size_t count, const char *name,
                                           std::size_t most_count) {
  if (count > most_count) fail(TANDEM_ERROR_INVALID_ARGUMENT, count, " ", name, "; at most ", most_count);
  if (list == nullptr && count != 0) fail(TANDEM_ERROR_INVALID_ARGUMENT, name, " is NULL, but there are to be ", count);
  std::vector<std::string_view> strings;
  for (std::size_t i = 0; i < count; ++i) {
    if (list[i] == nullptr) fail(TANDEM_ERROR_INVALID_ARGUMENT, name, "[", i, "] is NULL");
    strings.push_back(list[i]);
  }
  return strings;
}

}  // namespace tandem::base
