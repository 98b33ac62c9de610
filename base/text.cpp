// SPDX-License-Identifier: Apache-2.0
#include "base/text.hpp"

#include <algorithm>
#include <charconv>

namespace tandem::base {
namespace {

template <class... Arguments>
std::string_view characters(char (&buffer)[512], Arguments... arguments) {
  return {buffer, static_cast<std::size_t>(std::to_chars(buffer, buffer + sizeof buffer, arguments...).ptr - buffer)};
}

}  // namespace

void append(std::string &text, std::string_view value) { text += value; }

void append(std::string &text, std::int64_t value) {
  char buffer[512];
  text += characters(buffer, value);
}

void append(std::string &text, std::uint64_t value) {
  char buffer[512];
  text += characters(buffer, value);
}

// With an exponent below 0.0001 and from 1e16 on, as fmt and Python write it.
void append(std::string &text, double value) {
  char buffer[512];
  const std::string_view scientific = characters(buffer, value, std::chars_format::scientific);
  const std::size_t at = scientific.find('e');
  if (at == std::string_view::npos) return append(text, scientific);  // inf, nan
  int exponent = 0;
  std::from_chars(buffer + at + (buffer[at + 1] == '+' ? 2 : 1), buffer + scientific.size(), exponent);
  text += exponent < -4 || exponent >= 16 ? scientific : characters(buffer, value, std::chars_format::fixed);
}

std::string fixed(double value, int count) {
  char buffer[512];  // 309 digits, a point and at most 99 digits
  return std::string(characters(buffer, value, std::chars_format::fixed, count));
}

std::string digits(std::uint64_t value, int base, std::size_t width) {
  char buffer[512];
  const std::string_view shortest = characters(buffer, value, base);
  return std::string(width - std::min(width, shortest.size()), '0').append(shortest);
}

std::string_view cut(std::optional<std::string_view> &rest, std::string_view separator) {
  const std::string_view whole = *rest;
  const std::size_t at = whole.find(separator);
  rest = at == std::string_view::npos ? std::nullopt : std::optional(whole.substr(at + separator.size()));
  return whole.substr(0, at);
}

template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number number = 0;
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;  // a sign, "inf", "nan"
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}
template std::optional<int> number_in(std::string_view);
template std::optional<std::uint32_t> number_in(std::string_view);
template std::optional<std::uint64_t> number_in(std::string_view);
template std::optional<double> number_in(std::string_view);

}  // namespace tandem::base
