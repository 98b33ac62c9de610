// SPDX-License-Identifier: Apache-2.0
// Reads JSON (RFC 8259) as hostile input: only valid UTF-8, no deeper than a limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tandem::base {

struct Json {
  using List = std::vector<Json>;
  struct Object {
    List list;  // name, value, name, value, ...
  };
  template <class T>
  const T *as() const noexcept {
    return std::get_if<T>(&value);
  }
  // The last member of this name; null if there is none, or if this is no object.
  const Json *member(std::string_view name) const noexcept;

  // An integer below 2^64 is std::uint64_t, any other number is double. null and bool are the first alternative.
  std::variant<std::monostate, std::uint64_t, double, std::string, List, Object> value;
};

// Nothing if the text is not one whole JSON value, if lists and objects are nested deeper than most_depth, or if a
// number is too large for a double or rounds to 0 without being 0. A byte order mark may come first.
std::optional<Json> parse_json(std::string_view text, std::size_t most_depth);

}  // namespace tandem::base
