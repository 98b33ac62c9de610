// SPDX-License-Identifier: Apache-2.0
#include "base/format.hpp"

#include <charconv>

namespace tandem::base {
namespace {

void append_integer(std::string &text, std::uint64_t value, const FormatPiece &piece) {
  char digits[24];
  const int base = piece.type == 'x' ? 16 : piece.type == 'o' ? 8 : 10;
  const auto count = static_cast<std::size_t>(std::to_chars(digits, digits + sizeof digits, value, base).ptr - digits);
  if (piece.is_prefixed) text += "0x";
  if (count < piece.width) text.append(piece.width - count, '0');
  text.append(digits, count);
}

// The shortest text that reads back as `value`: with an exponent below 0.0001 and from 1e16 on, as fmt writes it.
char *shortest(char *begin, char *end, double value) {
  char *const stopped = std::to_chars(begin, end, value, std::chars_format::scientific).ptr;
  const std::string_view scientific(begin, static_cast<std::size_t>(stopped - begin));
  const std::size_t at = scientific.find('e');
  if (at == std::string_view::npos) return stopped;  // inf, nan
  int exponent = 0;
  std::from_chars(begin + at + (begin[at + 1] == '+' ? 2 : 1), stopped, exponent);
  return exponent < -4 || exponent >= 16 ? stopped : std::to_chars(begin, end, value, std::chars_format::fixed).ptr;
}

void append_real(std::string &text, double value, int digits) {
  char buffer[512];  // 309 digits, a point and 99 digits
  char *const end = buffer + sizeof buffer;
  text.append(buffer, digits < 0 ? shortest(buffer, end, value)
                                 : std::to_chars(buffer, end, value, std::chars_format::fixed, digits).ptr);
}

}  // namespace

std::string format_values(std::string_view text, std::span<const FormatValue> values) {
  std::string result;
  FormatPieces pieces(text);
  for (FormatPiece piece; pieces.next(&piece);) {
    result += piece.characters;
    if (!piece.has_value) continue;
    const FormatValue &value = values[piece.value];
    switch (value.kind) {
      case FormatKind::boolean:
        result += value.bits != 0 ? "true" : "false";
        break;
      case FormatKind::character:
        result += static_cast<char>(value.bits);
        break;
      case FormatKind::integer:
        if (static_cast<std::int64_t>(value.bits) < 0) result += '-';
        append_integer(result, static_cast<std::int64_t>(value.bits) < 0 ? 0 - value.bits : value.bits, piece);
        break;
      case FormatKind::natural:
        append_integer(result, value.bits, piece);
        break;
      case FormatKind::real:
        append_real(result, std::bit_cast<double>(value.bits), piece.digits);
        break;
      case FormatKind::text:
        result.append(value.characters, static_cast<std::size_t>(value.bits));
        break;
    }
  }
  return result;
}

}  // namespace tandem::base
