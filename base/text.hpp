// SPDX-License-Identifier: Apache-2.0
// Text of values: text("worker ", name, " of ", count). GCC 12 has no std::format, and a project that embeds libtandem
// must not need a third-party package.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace tandem::base {

void append(std::string &text, std::string_view value);
void append(std::string &text, std::int64_t value);
void append(std::string &text, std::uint64_t value);
void append(std::string &text, double value);  // the shortest text that reads back as this number

// Characters, "true" or "false", numbers in base 10.
template <class... Values>
std::string text(const Values &...values) {
  std::string whole;
  [[maybe_unused]] const auto add = [&whole]<class Value>(const Value &value) {
    if constexpr (std::same_as<Value, bool>) {
      append(whole, std::string_view(value ? "true" : "false"));
    } else if constexpr (std::same_as<Value, char>) {
      whole += value;
    } else if constexpr (std::is_integral_v<Value>) {
      append(whole, static_cast<std::conditional_t<std::is_signed_v<Value>, std::int64_t, std::uint64_t>>(value));
    } else if constexpr (std::is_floating_point_v<Value>) {
      append(whole, static_cast<double>(value));
    } else {
      append(whole, std::string_view(value));
    }
  };
  (add(values), ...);
  return whole;
}

// A number with `count` digits after the point.
std::string fixed(double value, int count);

// A number in base 8, 10 or 16, filled up with zeros to `width` digits.
std::string digits(std::uint64_t value, int base, std::size_t width = 1);

// The part of a text before a separator. `rest` becomes what follows the separator, or nothing if there is none.
std::string_view cut(std::optional<std::string_view> &rest, std::string_view separator);

// The number of a text of decimal digits alone; a double may also have a fraction and an exponent. Nothing: the text is
// anything else, or the number is too large.
template <class Number>
std::optional<Number> number_in(std::string_view text);

// All values, as text() writes them.
template <class List>
std::string join(const List &list, std::string_view between) {
  std::string whole;
  bool is_first = true;
  for (const auto &each : list) {
    if (!is_first) whole += between;
    whole += text(each);
    is_first = false;
  }
  return whole;
}

}  // namespace tandem::base
