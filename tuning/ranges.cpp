#include "tuning/ranges.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/error.hpp"

namespace tandem::tuning {
namespace {

constexpr std::size_t kMostTextBytes = 256;
constexpr unsigned kMostDepth = 16;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// One value of one expression.
class Evaluator {
 public:
  Evaluator(std::string_view whole, std::string_view expression, std::string_view variable, std::uint64_t value)
      : whole_(whole), rest_(expression), variable_(variable), value_(value) {}

  std::uint64_t all() {
    const std::uint64_t result = shift();
    skip();
    if (!rest_.empty()) complain(fmt::format("\"{}\" is not understood", rest_));
    return result;
  }

 private:
  [[noreturn]] void complain(const std::string &why) const {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("range \"{}\": {}", whole_, why));
  }
  [[noreturn]] void overflow() const { complain("a value does not fit 64 bits"); }

  void skip() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
  }

  bool take(std::string_view token) {
    skip();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  std::uint64_t shift() {
    std::uint64_t left = sum();
    while (take("<<")) {
      const std::uint64_t by = sum();
      if (left != 0 && (by >= 64 || left > UINT64_MAX >> by)) overflow();
      left = left == 0 ? 0 : left << by;
    }
    return left;
  }

  std::uint64_t sum() {
    std::uint64_t left = product();
    for (;;) {
      if (take("+")) {
        if (__builtin_add_overflow(left, product(), &left)) overflow();
      } else if (take("-")) {
        const std::uint64_t right = product();
        if (right > left) complain(fmt::format("{}-{} is negative", left, right));
        left -= right;
      } else {
        return left;
      }
    }
  }

  std::uint64_t product() {
    std::uint64_t left = term();
    while (take("*"))
      if (__builtin_mul_overflow(left, term(), &left)) overflow();
    return left;
  }

  std::uint64_t term() {
    skip();
    if (take("(")) {
      if (++depth_ > kMostDepth) complain(fmt::format("more than {} parentheses", kMostDepth));
      const std::uint64_t inner = shift();
      if (!take(")")) complain("a parenthesis is not closed");
      --depth_;
      return inner;
    }
    if (rest_.empty()) complain("a number is missing");
    if (is_digit(rest_.front())) return number();
    if (is_letter(rest_.front())) return variable();
    complain(fmt::format("\"{}\" is not understood", rest_));
  }

  std::uint64_t number() {
    std::uint64_t value = 0;
    for (; !rest_.empty() && is_digit(rest_.front()); rest_.remove_prefix(1)) {
      const auto digit = static_cast<std::uint64_t>(rest_.front() - '0');
      if (__builtin_mul_overflow(value, std::uint64_t{10}, &value) || __builtin_add_overflow(value, digit, &value))
        overflow();
    }
    return value;
  }

  std::uint64_t variable() {
    std::size_t length = 0;
    while (length < rest_.size() && (is_letter(rest_[length]) || is_digit(rest_[length]))) ++length;
    const std::string_view name = rest_.substr(0, length);
    if (name != variable_) {
      complain(variable_.empty() ? fmt::format("\"{0}\" has no values: end with \", {0}=FIRST:LAST\"", name)
                                 : fmt::format("\"{}\" has no values, only \"{}\" has", name, variable_));
    }
    rest_.remove_prefix(length);
    return value_;
  }

  std::string_view whole_, rest_, variable_;
  std::uint64_t value_;
  unsigned depth_ = 0;
};

class RangeParser {
 public:
  RangeParser(std::string_view text, std::uint64_t least, std::uint64_t most)
      : text_(text), least_(least), most_(most) {}

  std::vector<std::uint64_t> parse() {
    if (text_.size() > kMostTextBytes) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
                 fmt::format("a range of {} characters; at most {}", text_.size(), kMostTextBytes));
    }
    for (const char c : text_)
      if (c < ' ' || c > '~') base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "a range with characters that are not ASCII");
    if (text_.find('=') != std::string_view::npos) {
      with_variable();
    } else {
      list();
    }
    return values_;
  }

 private:
  [[noreturn]] void complain(const std::string &why) const {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("range \"{}\": {}", text_, why));
  }

  std::uint64_t constant(std::string_view expression) const { return Evaluator(text_, expression, {}, 0).all(); }

  // Each number of first:last, at most kMostRangeValues of them.
  template <class Body>
  void each(std::string_view bounds, const Body &body) {
    const std::size_t colon = bounds.find(':');
    if (colon == std::string_view::npos) complain(fmt::format("\"{}\" is not FIRST:LAST", trimmed(bounds)));
    const std::uint64_t first = constant(bounds.substr(0, colon)), last = constant(bounds.substr(colon + 1));
    if (last < first) complain(fmt::format("{}:{} is empty", first, last));
    if (last - first >= kMostRangeValues)
      complain(fmt::format("{}:{} has more than {} values", first, last, kMostRangeValues));
    for (std::uint64_t i = 0; i <= last - first; ++i) body(first + i);
  }

  void with_variable() {
    const std::size_t comma = text_.rfind(',', text_.find('='));
    if (comma == std::string_view::npos) complain("it is not EXPRESSION, NAME=FIRST:LAST");
    const std::string_view expression = text_.substr(0, comma), assignment = text_.substr(comma + 1);
    const std::size_t equals = assignment.find('=');
    const std::string_view name = trimmed(assignment.substr(0, equals));
    if (name.empty() || !is_letter(name.front()) ||
        !std::all_of(name.begin(), name.end(), [](char c) { return is_letter(c) || is_digit(c); }))
      complain(fmt::format("\"{}\" is no name", name));
    each(assignment.substr(equals + 1), [&](std::uint64_t v) { add(Evaluator(text_, expression, name, v).all()); });
  }

  void list() {
    std::string_view rest = text_;
    for (;;) {
      const std::size_t comma = rest.find(',');
      const std::string_view item = rest.substr(0, comma);
      if (item.find(':') != std::string_view::npos) {
        each(item, [&](std::uint64_t v) { add(v); });
      } else {
        add(constant(item));
      }
      if (comma == std::string_view::npos) return;
      rest.remove_prefix(comma + 1);
    }
  }

  void add(std::uint64_t value) {
    if (value < least_ || value > most_) complain(fmt::format("{} is not from {} to {}", value, least_, most_));
    if (std::find(values_.begin(), values_.end(), value) != values_.end()) return;
    if (values_.size() == kMostRangeValues) complain(fmt::format("it has more than {} values", kMostRangeValues));
    values_.push_back(value);
  }

  std::string_view text_;
  std::uint64_t least_, most_;
  std::vector<std::uint64_t> values_;
};

}  // namespace

std::vector<std::uint64_t> parse_tuning_range(std::string_view text, std::uint64_t least, std::uint64_t most) {
  return RangeParser(text, least, most).parse();
}

}  // namespace tandem::tuning
