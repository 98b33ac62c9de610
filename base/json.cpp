// SPDX-License-Identifier: Apache-2.0
#include "base/json.hpp"

#include <charconv>
#include <system_error>
#include <utility>

#include "base/utf8.hpp"

namespace tandem::base {
namespace {

bool is_high_surrogate(unsigned point) noexcept { return point >= 0xd800 && point <= 0xdbff; }
bool is_low_surrogate(unsigned point) noexcept { return point >= 0xdc00 && point <= 0xdfff; }

void append_utf8(std::string *out, unsigned point) {
  const auto add = [&](unsigned byte) { *out += static_cast<char>(byte); };
  if (point < 0x80) return add(point);
  if (point < 0x800) {
    add(0xc0 | point >> 6);
  } else if (point < 0x10000) {
    add(0xe0 | point >> 12);
    add(0x80 | (point >> 6 & 0x3f));
  } else {
    add(0xf0 | point >> 18);
    add(0x80 | (point >> 12 & 0x3f));
    add(0x80 | (point >> 6 & 0x3f));
  }
  add(0x80 | (point & 0x3f));
}

// Each function takes what it names from the start of the rest, or returns false.
class JsonParser {
 public:
  JsonParser(std::string_view text, std::size_t most_depth) : rest_(text), most_depth_(most_depth) {}

  std::optional<Json> parse() {
    Json json;
    takes("\xEF\xBB\xBF");
    if (!value(&json, 0)) return std::nullopt;
    skip_space();
    if (!rest_.empty()) return std::nullopt;
    return json;
  }

 private:
  bool takes(std::string_view wanted) noexcept {
    if (!rest_.starts_with(wanted)) return false;
    rest_.remove_prefix(wanted.size());
    return true;
  }
  // As the next token.
  bool takes_token(char wanted) noexcept {
    skip_space();
    return takes({&wanted, 1});
  }
  void skip_space() noexcept {
    const std::size_t length = rest_.find_first_not_of(" \t\n\r");
    rest_.remove_prefix(length != std::string_view::npos ? length : rest_.size());
  }

  bool value(Json *out, std::size_t depth) {
    if (takes_token('{')) return depth < most_depth_ && object(&out->value.emplace<Json::Object>().list, depth + 1);
    if (takes("[")) return depth < most_depth_ && list(&out->value.emplace<Json::List>(), depth + 1);
    if (rest_.starts_with('"')) return string(&out->value.emplace<std::string>());
    return takes("null") || takes("true") || takes("false") || number(out);
  }

  bool object(Json::List *out, std::size_t depth) {
    if (takes_token('}')) return true;
    do {
      skip_space();
      if (!string(&out->emplace_back().value.emplace<std::string>()) || !takes_token(':') ||
          !value(&out->emplace_back(), depth))
        return false;
    } while (takes_token(','));
    return takes("}");
  }

  bool list(Json::List *out, std::size_t depth) {
    if (takes_token(']')) return true;
    do {
      if (!value(&out->emplace_back(), depth)) return false;
    } while (takes_token(','));
    return takes("]");
  }

  bool string(std::string *out) {
    if (!takes("\"")) return false;
    while (!takes("\"")) {
      if (rest_.empty()) return false;
      if (takes("\\")) {
        if (!escape(out)) return false;
        continue;
      }
      const Utf8Sequence next = first_utf8(rest_);
      if (!next.is_valid || static_cast<unsigned char>(rest_.front()) < 0x20) return false;
      *out += rest_.substr(0, next.length);
      rest_.remove_prefix(next.length);
    }
    return true;
  }

  // After the backslash.
  bool escape(std::string *out) {
    constexpr std::string_view kLetters = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    unsigned point = 0;
    if (takes("u")) {
      if (!four_digits(&point) || is_low_surrogate(point)) return false;
      if (is_high_surrogate(point)) {
        unsigned low = 0;
        if (!takes("\\u") || !four_digits(&low) || !is_low_surrogate(low)) return false;
        point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
      }
    } else {
      const std::size_t at = rest_.empty() ? std::string_view::npos : kLetters.find(rest_.front());
      if (at == std::string_view::npos) return false;
      point = static_cast<unsigned char>(kMeanings[at]);
      rest_.remove_prefix(1);
    }
    append_utf8(out, point);
    return true;
  }

  bool four_digits(unsigned *out) noexcept {
    constexpr std::size_t kCount = 4;
    if (rest_.size() < kCount) return false;
    const char *const end = rest_.data() + kCount;
    if (std::from_chars(rest_.data(), end, *out, 16).ptr != end) return false;
    rest_.remove_prefix(kCount);
    return true;
  }

  bool number(Json *out) {
    std::size_t length = 0;
    const auto is = [&](char wanted) { return length < rest_.size() && rest_[length] == wanted; };
    const auto skip_digits = [&] {
      const std::size_t first = length;
      while (length < rest_.size() && rest_[length] >= '0' && rest_[length] <= '9') ++length;
      return length != first;
    };
    length += is('-');
    if (is('0')) {
      ++length;
    } else if (!skip_digits()) {
      return false;
    }
    if (is('.')) {
      ++length;
      if (!skip_digits()) return false;
    }
    if (is('e') || is('E')) {
      ++length;
      length += is('+') || is('-');
      if (!skip_digits()) return false;
    }
    const char *const begin = rest_.data(), *const end = begin + length;
    rest_.remove_prefix(length);
    std::uint64_t whole = 0;
    double real = 0;
    if (const auto [stopped, error] = std::from_chars(begin, end, whole); stopped == end && error == std::errc()) {
      out->value = whole;
    } else if (std::from_chars(begin, end, real).ec == std::errc()) {
      out->value = real;
    } else {
      return false;
    }
    return true;
  }

  std::string_view rest_;
  std::size_t most_depth_;
};

}  // namespace

const Json *Json::member(std::string_view name) const noexcept {
  const Object *members = as<Object>();
  if (members == nullptr) return nullptr;
  for (std::size_t i = members->list.size(); i != 0; i -= 2)
    if (*members->list[i - 2].as<std::string>() == name) return &members->list[i - 1];
  return nullptr;
}

std::optional<Json> parse_json(std::string_view text, std::size_t most_depth) {
  return JsonParser(text, most_depth).parse();
}

}  // namespace tandem::base
