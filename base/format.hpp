// SPDX-License-Identifier: Apache-2.0
// Text with values in it: format("{} of {} bytes", done, all). std::format does the same, but GCC 12 has none. fmt does
// it, too, but a project that embeds libtandem must not need a third-party package.
//
//   {} or {0}          the next value, or value 0; one text has one of the two ways
//   {{ and }}          a brace
//   {:.2f}             a number with two digits after the point; {}: the shortest text that reads back as this number
//   {:x} {:#x} {:o}    an unsigned integer in base 16, with 0x before it, or in base 8
//   {:03} {:016x}      an unsigned integer filled up with zeros
//
// The compiler refuses a text that does not fit its values.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace tandem::base {

enum class FormatKind : unsigned char { boolean, character, integer, natural, real, text };

template <class Value>
constexpr FormatKind format_kind() {
  if constexpr (std::is_same_v<Value, bool>) {
    return FormatKind::boolean;
  } else if constexpr (std::is_same_v<Value, char>) {
    return FormatKind::character;
  } else if constexpr (std::is_integral_v<Value>) {
    return std::is_signed_v<Value> ? FormatKind::integer : FormatKind::natural;
  } else if constexpr (std::is_floating_point_v<Value>) {
    return FormatKind::real;
  } else {
    static_assert(std::is_convertible_v<const Value &, std::string_view>, "a value of this type cannot be formatted");
    return FormatKind::text;
  }
}

// A value, or where its characters are.
struct FormatValue {
  template <class Value>
  static FormatValue of(const Value &value) {
    constexpr FormatKind kKind = format_kind<Value>();
    if constexpr (kKind == FormatKind::text) {
      const std::string_view text = value;
      return {kKind, text.size(), text.data()};
    } else if constexpr (kKind == FormatKind::real) {
      return {kKind, std::bit_cast<std::uint64_t>(static_cast<double>(value)), nullptr};
    } else {
      return {kKind, static_cast<std::uint64_t>(value), nullptr};
    }
  }

  FormatKind kind;
  std::uint64_t bits;  // of text: its size
  const char *characters;
};

// A part of a text: characters that are copied, then perhaps a value.
struct FormatPiece {
  std::string_view characters;
  bool has_value = false;
  std::size_t value = 0;  // its position
  bool is_prefixed = false;
  std::size_t width = 0;
  int digits = -1;  // after the point; -1: as many as needed
  char type = 0;    // x, o, f, or 0
};

// Takes a text apart.
class FormatPieces {
 public:
  constexpr explicit FormatPieces(std::string_view text) : rest_(text) {}

  // False at the end, and at a mistake.
  constexpr bool next(FormatPiece *out) {
    if (rest_.empty()) return false;
    const std::size_t length = rest_.find_first_of("{}");
    *out = {};
    out->characters = rest_.substr(0, length);
    rest_.remove_prefix(out->characters.size());
    if (rest_.empty()) return true;
    const char brace = rest_.front();
    rest_.remove_prefix(1);
    if (takes(brace)) {
      out->characters = {out->characters.data(), length + 1};
      return true;
    }
    return brace == '{' ? next_value(out) : fails("a } without a {");
  }

  constexpr const char *mistake() const { return mistake_; }  // null: none

 private:
  constexpr bool fails(const char *mistake) {
    mistake_ = mistake;
    return false;
  }
  constexpr bool takes(char wanted) {
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }
  // At most two digits.
  constexpr bool takes_number(std::size_t *out) {
    std::size_t length = 0;
    for (*out = 0; length < rest_.size() && length < 2 && rest_[length] >= '0' && rest_[length] <= '9'; ++length)
      *out = *out * 10 + static_cast<std::size_t>(rest_[length] - '0');
    rest_.remove_prefix(length);
    return length != 0;
  }

  constexpr bool next_value(FormatPiece *out) {
    out->has_value = true;
    const bool is_numbered = takes_number(&out->value);
    if (!is_numbered) out->value = unnumbered_count_++;
    numbered_count_ += is_numbered;
    if (unnumbered_count_ != 0 && numbered_count_ != 0) return fails("{} and {0} in one text");
    if (takes(':')) {
      out->is_prefixed = takes('#');
      if (takes('0') && !takes_number(&out->width)) return fails("no width after {:0");
      std::size_t digits = 0;
      if (takes('.')) {
        if (!takes_number(&digits)) return fails("no number after {:.");
        out->digits = static_cast<int>(digits);
      }
      for (const char type : {'x', 'o', 'f'})
        if (takes(type)) out->type = type;
    }
    return takes('}') || fails("a { without a }, or an unknown format");
  }

  std::string_view rest_;
  const char *mistake_ = nullptr;
  std::size_t unnumbered_count_ = 0, numbered_count_ = 0;
};

// Null if the text fits values of these kinds, else what is wrong with it.
constexpr const char *format_mistake(std::string_view text, std::span<const FormatKind> kinds) {
  std::uint64_t used = 0;
  FormatPieces pieces(text);
  for (FormatPiece piece; pieces.next(&piece);) {
    if (!piece.has_value) continue;
    if (piece.value >= kinds.size()) return "fewer values than {}";
    used |= std::uint64_t{1} << piece.value;
    const bool is_natural = kinds[piece.value] == FormatKind::natural, is_real = kinds[piece.value] == FormatKind::real;
    if ((piece.type == 'f') != (piece.digits >= 0)) return "digits without f, or f without digits";
    if (piece.type == 'f' && !is_real) return "{:.f} of no floating-point number";
    if ((piece.type == 'x' || piece.type == 'o' || piece.width != 0) && !is_natural)
      return "{:x}, {:o} or {:03} of no unsigned integer";
    if (piece.is_prefixed && (piece.type != 'x' || piece.width != 0)) return "# is for {:#x} only";
  }
  if (pieces.mistake() != nullptr) return pieces.mistake();
  return used == (std::uint64_t{1} << kinds.size()) - 1 ? nullptr : "a value is not used";
}

// Not defined: a call in a constant expression is an error of the compiler, which shows the mistake.
void text_does_not_fit_its_values(const char *mistake);

template <FormatKind... kKinds>
class FormatText {
  static_assert(sizeof...(kKinds) > 0 && sizeof...(kKinds) < 64);

 public:
  consteval FormatText(const char *text) : text_(text) {
    constexpr FormatKind kinds[] = {kKinds...};
    if (const char *mistake = format_mistake(text_, kinds)) text_does_not_fit_its_values(mistake);
  }
  constexpr std::string_view text() const { return text_; }

 private:
  std::string_view text_;
};

std::string format_values(std::string_view text, std::span<const FormatValue> values);

template <class... Values>
std::string format(FormatText<format_kind<Values>()...> text, const Values &...values) {
  const FormatValue list[] = {FormatValue::of(values)...};
  return format_values(text.text(), list);
}

// All values as {} writes them.
template <class List>
std::string join(const List &list, std::string_view between) {
  std::string text;
  bool is_first = true;
  for (const auto &each : list) {
    if (!is_first) text += between;
    text += format("{}", each);
    is_first = false;
  }
  return text;
}

}  // namespace tandem::base
