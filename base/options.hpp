// SPDX-License-Identifier: Apache-2.0
// Structs and lists of a caller. The caller may have been compiled against another version; these functions convert
// them to this version's form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace tandem::base {

// Describes a struct for the functions below: its name in messages, and its size and alignment in this version.
struct StructKind {
  const char *name;
  std::size_t bytes, alignment;
};
template <class Struct>
constexpr StructKind kind_of(const char *name) {
  return {name, sizeof(Struct), alignof(Struct)};
}

// The size at the start of the struct. It must be a multiple of the struct's alignment, as sizeof is in every version.
// So it never cuts a number or pointer in two. Throws Error (INVALID_ARGUMENT) for another size, and for one smaller
// than least_bytes.
std::size_t checked_struct_bytes(const void *given, const StructKind &kind, std::size_t least_bytes);

// Copies `given` to `ours`, which is all zero. Throws Error (UNSUPPORTED) if a byte is set that ours does not have.
void copy_options(const void *given, void *ours, const StructKind &kind);
// Throws Error (UNSUPPORTED) unless the reserved field is zero.
void check_reserved(std::int64_t value, const char *field, const StructKind &kind);

// A struct of zeros that begins with its size, for a call of the C API.
template <class Struct>
Struct sized() {
  Struct value{};
  value.struct_bytes = sizeof value;
  return value;
}

// Copies a caller's struct, which begins with its own size, into this version's form. NULL means all defaults. If it is
// shorter than ours, the rest is zero, which means default. If it is longer, the unknown bytes must be zero. Reserved
// fields must be zero too.
template <class Options>
Options read_options(const Options *given, const char *name) {
  auto ours = sized<Options>();
  if (given == nullptr) return ours;
  copy_options(given, &ours, kind_of<Options>(name));
  if constexpr (requires { ours.reserved; }) check_reserved(ours.reserved, "reserved", kind_of<Options>(name));
  if constexpr (requires { ours.reserved2; }) check_reserved(ours.reserved2, "reserved2", kind_of<Options>(name));
  ours.struct_bytes = sizeof ours;
  return ours;
}

// The same for options that tell a call what to do: NULL is refused.
template <class Options>
Options read_needed_options(const Options *given, const char *name) {
  if (given == nullptr) fail(TANDEM_ERROR_INVALID_ARGUMENT, name, " is NULL");
  return read_options(given, name);
}

// The same without a copy, if the caller's struct already has this version's form. `room` is not used then.
template <class Options>
const Options &view_options(const Options *given, const char *name, Options *room) {
  static_assert(
      !requires { room->reserved; } && !requires { room->reserved2; }, "read_options checks them");
  if (given->struct_bytes == sizeof(Options)) return *given;
  return *room = read_options(given, name);
}

// The size of a caller's result struct. Refuses a wrong size before the work that fills the struct. Reads only the
// size: the rest may be uninitialised.
template <class Result>
std::size_t check_result_size(const Result *given, const char *name,
                              std::size_t least_bytes = sizeof(std::size_t) + 1) {
  return checked_struct_bytes(given, kind_of<Result>(name), least_bytes);
}

// The same for a struct that the caller may not want: NULL, here and in write_result.
template <class Result>
void check_result(const Result *given, const char *name) {
  if (given != nullptr) check_result_size(given, name);
}

// Fills a caller's struct, which begins with its own size. Copies as much of ours as fits; the rest of theirs is
// untouched.
void copy_result(const void *ours, void *given, const StructKind &kind);
template <class Result>
void write_result(const Result &ours, Result *given, const char *name) {
  if (given != nullptr) copy_result(&ours, given, kind_of<Result>(name));
}

// A caller's array of strings. Throws Error (INVALID_ARGUMENT) with the name of the list, and the index of a NULL
// entry.
std::vector<std::string_view> read_strings(const char *const *list, std::size_t count, const char *name,
                                           std::size_t most_count = SIZE_MAX);

}  // namespace tandem::base
