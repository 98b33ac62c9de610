// Structs and lists that a caller passes: what a caller compiled against another version passes is brought to this
// one's form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tandem::base {

// What a struct is, for the functions below: its name in messages, and its size and alignment in this version.
struct StructKind {
  const char *name;
  std::size_t bytes, alignment;
};
template <class Struct>
constexpr StructKind kind_of(const char *name) {
  return {name, sizeof(Struct), alignof(Struct)};
}

// The size that the struct begins with. It must be a multiple of the struct's alignment, as every version's sizeof is:
// then it cuts no number and no pointer in two. Throws Error (INVALID_ARGUMENT) for another size, and for one smaller
// than least_bytes.
std::size_t checked_struct_bytes(const void *given, const StructKind &kind, std::size_t least_bytes);

// Copies `given` to `ours`, which is all zero. Throws Error (UNSUPPORTED) where a byte is set that ours does not have.
void copy_options(const void *given, void *ours, const StructKind &kind);
// Throws Error (UNSUPPORTED) unless the reserved field is zero.
void check_reserved(std::int64_t value, const char *field, const StructKind &kind);

// Copies a caller's struct, which begins with its own size; NULL is all defaults. Shorter than ours: the rest is zero,
// which means default. If it is longer, the unknown bytes must be zero. Reserved fields must be zero too.
template <class Options>
Options read_options(const Options *given, const char *name) {
  Options ours{};
  if (given == nullptr) return ours;
  copy_options(given, &ours, kind_of<Options>(name));
  if constexpr (requires { ours.reserved; }) check_reserved(ours.reserved, "reserved", kind_of<Options>(name));
  if constexpr (requires { ours.reserved2; }) check_reserved(ours.reserved2, "reserved2", kind_of<Options>(name));
  return ours;
}

// The same without a copy where the caller's struct has this version's form already: then `room` is not used.
template <class Options>
const Options &view_options(const Options *given, const char *name, Options *room) {
  static_assert(
      !requires { room->reserved; } && !requires { room->reserved2; }, "read_options checks them");
  if (given->struct_bytes == sizeof(Options)) return *given;
  return *room = read_options(given, name);
}

// The size of a caller's struct that is to be filled, refused before the work that fills it. Nothing but the size is
// read: the rest may be uninitialised. Returns it.
template <class Result>
std::size_t check_result_size(const Result *given, const char *name,
                              std::size_t least_bytes = sizeof(std::size_t) + 1) {
  return checked_struct_bytes(given, kind_of<Result>(name), least_bytes);
}

// Fills a caller's struct, which begins with its own size: as much of ours as fits, the rest of theirs untouched.
void copy_result(const void *ours, void *given, const StructKind &kind);
template <class Result>
void write_result(const Result &ours, Result *given, const char *name) {
  copy_result(&ours, given, kind_of<Result>(name));
}

// A caller's array of strings. Throws Error (INVALID_ARGUMENT) naming the list, and the entry where one is NULL.
std::vector<std::string_view> read_strings(const char *const *list, std::size_t count, const char *name,
                                           std::size_t most_count = SIZE_MAX);

}  // namespace tandem::base
