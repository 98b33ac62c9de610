// SPDX-License-Identifier: Apache-2.0
#include "cli/units.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <stdexcept>

namespace tandem::cli {
namespace {

constexpr double kDay = 86400, kYear = 365 * kDay;

struct Unit {
  const char *name;
  double seconds;
};
constexpr Unit kTimes[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1},        {"m", 60},   {"min", 60},
                           {"h", 3600},  {"d", kDay},  {"w", 7 * kDay}, {"y", kYear}};

// The number at the start of `text`, before its unit. It has no sign, exponent or hexadecimal digits.
std::string_view number_at_start(std::string_view text) {
  const std::size_t whole = std::min(text.find_first_not_of("0123456789"), text.size());
  if (whole == 0) return {};
  if (whole == text.size() || text[whole] != '.') return text.substr(0, whole);
  const std::size_t end = std::min(text.find_first_not_of("0123456789", whole + 1), text.size());
  return end == whole + 1 ? std::string_view() : text.substr(0, end);
}

std::string_view unit_after(std::string_view text, std::string_view number) {
  std::string_view unit = text.substr(number.size());
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  return unit;
}

double value_of(std::string_view number) {
  return std::strtod(std::string(number).c_str(), nullptr);  // too many digits: infinity
}

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
  throw std::invalid_argument(fmt::format("{} {}", text.empty() ? "\"\"" : text, why));
}

// 1 for "" and "b", 1024 for "k" and "kib", 1000 for "kb"; 0: no unit of bytes.
std::uint64_t bytes_of_unit(std::string_view unit) {
  std::string lower;
  for (const char each : unit) lower += each >= 'A' && each <= 'Z' ? static_cast<char>(each - 'A' + 'a') : each;
  if (lower.empty() || lower == "b") return 1;
  const std::size_t power = std::string_view("kmgtpe").find(lower[0]);
  const std::string_view rest = std::string_view(lower).substr(1);
  if (power == std::string_view::npos || (!rest.empty() && rest != "b" && rest != "ib")) return 0;
  std::uint64_t bytes = 1;
  for (std::size_t i = 0; i <= power; ++i) bytes *= rest == "b" ? 1000 : 1024;
  return bytes;
}

template <class Value>
CLI::Validator validator(Value (*parse)(std::string_view), const char *name) {
  return CLI::Validator(
      [parse](std::string &text) -> std::string {
        try {
          text = fmt::format("{}", parse(text));
        } catch (const std::invalid_argument &error) {
          return error.what();
        }
        return "";
      },
      name);
}

}  // namespace

std::uint64_t bytes_of(std::string_view text) {
  __extension__ using Wide = unsigned __int128;
  const std::string_view number = number_at_start(text);
  const std::uint64_t unit = number.empty() ? 0 : bytes_of_unit(unit_after(text, number));
  if (unit == 0) refuse(text, "is no size in decimal digits, such as 4096, 64k, 1.5M, 10MB or 8GiB");
  const std::size_t point = std::min(number.find('.'), number.size());
  Wide bytes = 0, fraction = 0, tens = 1;
  for (const char digit : number.substr(0, point)) {
    bytes = bytes * 10 + static_cast<unsigned>(digit - '0');
    if (bytes > UINT64_MAX) refuse(text, "is too large a number of bytes");
  }
  constexpr std::size_t kMostDigits = 18;  // more stand for less than a byte of 1 EiB
  for (const char digit : number.substr(std::min(point + 1, number.size()), kMostDigits)) {
    fraction = fraction * 10 + static_cast<unsigned>(digit - '0');
    tens *= 10;
  }
  if (unit == 1 && fraction != 0) refuse(text, "is no whole number of bytes");
  bytes = bytes * unit + fraction * unit / tens;
  if (bytes > UINT64_MAX) refuse(text, "is too large a number of bytes");
  return static_cast<std::uint64_t>(bytes);
}

double seconds_of(std::string_view text) {
  const std::string_view number = number_at_start(text);
  if (!number.empty())
    for (const Unit &each : kTimes)
      if (unit_after(text, number) == each.name) return value_of(number) * each.seconds;
  refuse(text, "is no time such as 50us, 5ms, 1s, 90m, 24h, 7d, 2w or 1y");
}

double part_of(std::string_view text) {
  const std::string_view number = number_at_start(text);
  if (number.empty() || unit_after(text, number) != "%")
    refuse(text,
           "is not a percentage: write it as " + std::string(number.empty() || number != text ? "1.5" : number) + "%");
  return value_of(number) / 100;
}

CLI::Validator size_value() { return validator(bytes_of, "SIZE"); }
CLI::Validator part_value() {
  const auto parse = [](std::string_view text) {
    const double part = part_of(text);
    if (part == 0 || part > 1) refuse(text, "is not more than 0% and at most 100%");
    return part;
  };
  return validator<double>(parse, "PERCENT");
}

std::string size(std::uint64_t bytes) {
  constexpr const char *kUnits[] = {"bytes", "kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} {}", bytes, bytes == 1 ? "byte" : "bytes")
                   : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

std::string exact_size(std::uint64_t bytes) {
  constexpr const char *kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  for (; bytes != 0 && bytes % 1024 == 0; ++unit) bytes /= 1024;
  return fmt::format("{}{}", bytes, kUnits[unit]);
}

std::string rate(std::uint64_t bytes, double seconds) {
  return seconds > 0 ? fmt::format("{:.2f} GB/s", static_cast<double>(bytes) / seconds / 1e9) : "- GB/s";
}

}  // namespace tandem::cli
