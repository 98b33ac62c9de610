// SPDX-License-Identifier: Apache-2.0
#include "base/json_text.hpp"

#include <cmath>

#include "base/text.hpp"
#include "base/utf8.hpp"

namespace tandem::base {

std::string json_text(std::string_view text) {
  constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
  std::string result = "\"";
  while (!text.empty()) {
    const Utf8Sequence next = first_utf8(text);
    const auto first = static_cast<unsigned char>(text.front());
    if (const std::size_t at = kEscaped.find(text.front()); at != std::string_view::npos) {
      result += '\\';
      result += kLetters[at];
    } else if (first < 0x20) {
      result += base::text("\\u", digits(unsigned{first}, 16, 4));
    } else {
      result += next.is_valid ? text.substr(0, next.length) : "\xEF\xBF\xBD";
    }
    text.remove_prefix(next.length);
  }
  return result + '"';
}

std::string json_text(double number) {
  if (!std::isfinite(number)) return "null";
  std::string text = base::text(number);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace tandem::base
