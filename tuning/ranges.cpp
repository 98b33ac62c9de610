// SPDX-License-Identifier: Apache-2.0
#include "tuning/ranges.hpp"

#include <algorithm>
#include <charconv>
#include <string>

#include "base/error.hpp"

namespace tandem::tuning {
namespace {

constexpr std::size_t kMostRangeTextBytes = 256;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

class RangeParser {
 public:
  RangeParser(std::string_view text, std::uint64_t least, std::uint64_t most)
      : text_(text), rest_(text), least_(least), most_(most) {}

  std::vector<std::uint64_t> parse() {
    if (text_.size() > kMostRangeTextBytes) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "a range of ", text_.size(), " characters; at most ",
                 kMostRangeTextBytes);
    }
    for (const char c : text_)
      if (c < ' ' || c > '~') base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "a range with characters that are not ASCII");
    if (text_.find("<<") != std::string_view::npos) {
      shifts();
    } else {
      do item();
      while (take(","));
    }
    skip();
    if (!rest_.empty()) complain("\"", rest_, "\" is not understood");
    return values_;
  }

 private:
  template <class... Parts>
  [[noreturn]] void complain(const Parts &...why) const {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "range \"", text_, "\": ", why...);
  }

  void skip() { rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size())); }

  bool take(std::string_view token) {
    skip();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  void need(std::string_view token) {
    if (!take(token)) complain("\"", token, "\" is missing before \"", rest_, "\"");
  }

  std::uint64_t number() {
    skip();
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error == std::errc::result_out_of_range) complain("a value does not fit 64 bits");
    if (error != std::errc()) complain("a number is missing before \"", rest_, "\"");
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }

  std::string_view name() {
    skip();
    const std::size_t length = static_cast<std::size_t>(std::ranges::find_if_not(rest_, is_letter) - rest_.begin());
    if (length == 0) complain("a name is missing before \"", rest_, "\"");
    const std::string_view found = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return found;
  }

  // FIRST:LAST, the part after FIRST.
  std::uint64_t last_after(std::uint64_t first) {
    need(":");
    const std::uint64_t last = number();
    if (last < first) complain(first, ":", last, " is empty");
    return last;
  }

  // NUMBER, FIRST:LAST or FIRST:LAST:xFACTOR.
  void item() {
    const std::uint64_t first = number();
    skip();
    if (!rest_.starts_with(':')) return add(first);
    const std::uint64_t last = last_after(first);
    if (take(":")) {
      need("x");
      const std::uint64_t factor = number();
      if (factor < 2 || first == 0) complain(first, " times ", factor, " again and again does not grow");
      add(first);
      for (std::uint64_t value = first; value <= last / factor;) add(value *= factor);
      return;
    }
    if (last - first >= kMostRangeValues) complain(first, ":", last, " has more than ", kMostRangeValues, " values");
    for (std::uint64_t i = 0; i <= last - first; ++i) add(first + i);
  }

  // NUMBER << NAME, NAME = FIRST:LAST, as it is or as {/ (NUMBER << NAME), NAME = FIRST:LAST /}.
  void shifts() {
    const bool in_braces = take("{/"), in_parentheses = take("(");
    const std::uint64_t shifted = number();
    need("<<");
    const std::string_view variable = name();
    if (in_parentheses) need(")");
    need(",");
    if (const std::string_view of = name(); of != variable)
      complain("\"", variable, "\" has no values, only \"", of, "\" has");
    need("=");
    const std::uint64_t first = number(), last = last_after(first);
    if (in_braces) need("/}");
    if (last >= 64 || shifted > UINT64_MAX >> last) complain("a value does not fit 64 bits");
    for (std::uint64_t by = first; by <= last; ++by) add(shifted << by);
  }

  void add(std::uint64_t value) {
    if (value < least_ || value > most_) complain(value, " is not from ", least_, " to ", most_);
    if (std::ranges::find(values_, value) != values_.end()) return;
    if (values_.size() == kMostRangeValues) complain("it has more than ", kMostRangeValues, " values");
    values_.push_back(value);
  }

  std::string_view text_, rest_;
  std::uint64_t least_, most_;
  std::vector<std::uint64_t> values_;
};

}  // namespace

std::vector<std::uint64_t> parse_range(std::string_view text, std::uint64_t least, std::uint64_t most) {
  return RangeParser(text, least, most).parse();
}

}  // namespace tandem::tuning
