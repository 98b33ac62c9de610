// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "tests/gpu/ptx/code.hpp"
#include "tests/gpu/ptx/interpreter.hpp"

namespace tandem::test::ptx {
namespace {

const std::map<std::string, Word> kWords = {
    {"to", Word::to}, {"lo", Word::lo}, {"wide", Word::wide}, {"eq", Word::eq},   {"ne", Word::ne},  {"lt", Word::lt},
    {"le", Word::le}, {"gt", Word::gt}, {"ge", Word::ge},     {"add", Word::add}, {"min", Word::min}};
const std::map<std::string, Space> kSpaces = {
    {"global", Space::global}, {"shared", Space::shared}, {"param", Space::param}, {"const", Space::constant}};
// Hints for caches and branches change nothing here.
constexpr std::string_view kHints[] = {"cs", "uni", "L1::no_allocate", "L2::128B"};

// Of a word without its dot, like s32; bits 0: none.
Type type_of(const std::string &word) {
  if (word == "pred") return {1, false};
  for (const unsigned bits : {8u, 16u, 32u, 64u})
    if (!word.empty() && std::string_view("bus").find(word[0]) != std::string_view::npos &&
        word.substr(1) == std::to_string(bits))
      return {bits, word[0] == 's'};
  return {0, false};
}

struct Token {
  std::string text;
  unsigned line;
};

// Words with the dots in them, numbers without a sign, and single characters.
std::vector<Token> tokens_of(const std::string &text) {
  constexpr const char *kOfWords = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$%.";
  std::vector<Token> tokens;
  unsigned line = 1;
  for (std::size_t i = 0; i < text.size() && text[i] != '\0';) {
    std::size_t end = std::min(text.find_first_not_of(kOfWords, i), text.size());
    while (text.compare(end, 2, "::") == 0) end = std::min(text.find_first_not_of(kOfWords, end + 2), text.size());
    if (text.compare(i, 2, "//") == 0) {
      end = std::min(text.find('\n', i), text.size());
    } else if (end != i || std::isspace(static_cast<unsigned char>(text[i])) == 0) {
      end = std::max(end, i + 1);
      tokens.push_back({text.substr(i, end - i), line});
    } else {
      line += text[end++] == '\n' ? 1 : 0;
    }
    i = end;
  }
  tokens.push_back({"", line});
  return tokens;
}

std::uint64_t align(std::uint64_t value, std::uint64_t to) { return (value + to - 1) / to * to; }

class Parser {
 public:
  explicit Parser(const std::string &text) : tokens_(tokens_of(text)) {
    for (std::size_t at = 0, end = 0; at <= text.size(); at = end + 1) {
      end = std::min(text.find('\n', at), text.size());
      code_.lines.push_back(text.substr(at, end - at));
    }
    row_of({});
    for (const std::string each : kSpecials)
      for (const char *dimension : {".x", ".y", ".z"})
        names_.front()[each + dimension] = {Kind::constant, row_of({}), 32};
  }

  Code parse() {
    while (!peek().empty()) {
      if (take(".version") || take(".target") || take(".address_size")) {
        next();
      } else if (take(".visible")) {
        expect(".entry");
        if (!code_.instructions.empty()) fail("a second entry");
        entry();
      } else {
        variable();
        expect(";");
      }
    }
    for (const auto &[instruction, label] : branches_) {
      if (!labels_.contains(label)) fail("no label " + label);
      code_.instructions[instruction].number = labels_[label];
    }
    if (code_.instructions.empty()) fail("no instructions");
    code_.shared_bytes = align(code_.shared_bytes, code_.shared_align);
    for (const unsigned each : dynamic_) code_.constants[each].value = code_.shared_bytes;
    // Behind constants come registers.
    const auto constants = static_cast<unsigned>(code_.constants.size());
    const auto place = [&](unsigned &row) { row = (row & kRegister) != 0 ? (row & ~kRegister) + constants : row; };
    for (Instruction &each : code_.instructions) {
      place(each.guard);
      std::ranges::for_each(each.to, place);
      std::ranges::for_each(each.from, place);
    }
    code_.widths.assign(constants, 64);
    code_.widths.insert(code_.widths.end(), registers_.begin(), registers_.end());
    return std::move(code_);
  }

 private:
  enum class Kind { constant, register_ };
  struct Name {
    Kind kind;
    unsigned row, bits;
  };
  static constexpr unsigned kRegister = 1u << 31;  // of a row, until all constants are known

  [[noreturn]] void fail(const std::string &what) const {
    const unsigned line = tokens_[at_].line;
    throw Error("PTX, line " + std::to_string(line) + ": " + what + ": " + code_.lines.at(line - 1));
  }
  const std::string &peek() const { return tokens_[at_].text; }
  std::string next() {
    if (peek().empty()) fail("the text ends");
    return tokens_[at_++].text;
  }
  bool take(std::string_view what) {
    if (peek() != what) return false;
    ++at_;
    return true;
  }
  void expect(std::string_view what) {
    if (!take(what)) fail("not \"" + std::string(what) + "\"");
  }
  bool is_number() const { return peek() == "-" || std::isdigit(static_cast<unsigned char>(peek()[0])) != 0; }
  std::uint64_t number() {
    if (!is_number()) fail("not a number");
    const bool is_negative = take("-");
    char *end = nullptr;
    const std::string text = next();
    const std::uint64_t value = std::strtoull(text.c_str(), &end, 0);
    if (*end != '\0') fail("not an integer");
    return is_negative ? 0 - value : value;
  }
  unsigned type_bits() {
    const Type is = type_of(next().substr(1));
    if (is.bits == 0) fail("not a type");
    return is.bits;
  }

  unsigned row_of(Constant constant) {
    code_.constants.push_back(constant);
    return static_cast<unsigned>(code_.constants.size() - 1);
  }
  void name(const std::string &what, Kind kind, unsigned row, unsigned bits) {
    if (!names_.back().try_emplace(what, Name{kind, row, bits}).second) fail("twice: " + what);
  }

  // A variable of the text, or a parameter.
  void variable() {
    const bool is_extern = take(".extern");
    const std::string space = next();
    const std::uint64_t aligned = take(".align") ? number() : 1, each_bytes = type_bits() / 8;
    const std::string called = next();
    std::uint64_t count = 1;
    if (take("[")) {
      count = is_number() ? number() : 0;
      expect("]");
    }
    const std::uint64_t bytes = count * each_bytes, least = std::max(aligned, each_bytes);
    const auto put = [&](std::uint64_t &used) {
      used = align(used, least) + bytes;
      return used - bytes;
    };
    Constant address;
    if (space == ".param") {
      address.value = put(code_.parameter_bytes);
    } else if (space == ".shared") {
      address = {is_extern ? 0 : put(code_.shared_bytes), true};
      code_.shared_align = std::max(code_.shared_align, least);
      if (is_extern) dynamic_.push_back(static_cast<unsigned>(code_.constants.size()));
    } else if (space == ".const") {
      std::uint64_t used = code_.constant_bytes.size() + 64;  // a gap between two
      address.value = put(used);
      code_.constant_bytes.resize(used);
      code_.constant_variables.push_back({address.value, bytes});
    } else {
      fail("not known");
    }
    name(called, Kind::constant, row_of(address), 0);
    if (space != ".const" || !take("=")) return;
    const bool is_list = take("{");
    std::uint64_t i = 0;
    do {
      const std::uint64_t value = number();
      for (unsigned b = 0; b < each_bytes; ++b)
        code_.constant_bytes.at(address.value + i * each_bytes + b) = static_cast<std::uint8_t>(value >> 8 * b);
    } while (++i < count && take(","));
    if (is_list) expect("}");
  }

  void entry() {
    next();  // its name
    expect("(");
    do variable();
    while (take(","));
    expect(")");
    expect("{");
    for (names_.emplace_back(); names_.size() > 1;) statement();
  }

  void statement() {
    if (take("{")) {
      names_.emplace_back();
    } else if (take("}")) {
      names_.pop_back();
    } else if (take(".reg")) {
      const unsigned bits = type_bits();
      do {
        const std::string called = next();
        const bool is_range = take("<");
        const std::uint64_t count = is_range ? number() : 1;
        if (is_range) expect(">");
        for (std::uint64_t i = 0; i < count; ++i) {
          const auto row = static_cast<unsigned>(registers_.size());
          name(is_range ? called + std::to_string(i) : called, Kind::register_, row | kRegister, bits);
          registers_.push_back(bits);
        }
      } while (take(","));
      expect(";");
    } else if (take(".pragma")) {
      while (next() != ";") continue;
    } else if (tokens_[at_ + 1].text == ":") {
      const auto here = static_cast<unsigned>(code_.instructions.size());
      if (!labels_.try_emplace(peek(), here).second) fail("a label twice");
      at_ += 2;
    } else {
      instruction();
    }
  }

  void instruction() {
    Instruction made;
    made.line = tokens_[at_].line;
    if (take("@")) {
      made.guard_is_negated = take("!");
      made.guard = operand(1);
    }
    unsigned to = 0, from = 0;
    bool is_next = false;
    for (const char kind : mnemonic(made).operands) {
      if (std::exchange(is_next, true)) expect(",");
      const unsigned bits = made.type.bits, wide = made.word == Word::wide ? 2 * bits : bits;
      if (kind == 'n') {
        made.number = static_cast<unsigned>(number());
      } else if (kind == 'l') {
        branches_.emplace_back(code_.instructions.size(), next());
      } else if (kind == '[' || kind == 'a') {
        expect("[");
        made.from.at(from++) = operand(0);
        if (kind == '[' && take("+")) made.offset = number();
        expect("]");
      } else {
        const bool is_written = std::string_view("dPxvM").find(kind) != std::string_view::npos;
        const bool is_list = take("{"), is_move = kind == 'M' || kind == 'm';
        const unsigned before = is_written ? to : from;
        do {
          const unsigned row = operand(kind == 'd' || kind == 'w'             ? wide
                                       : kind == 's' || (is_move && !is_list) ? bits
                                       : kind == 'u'                          ? 32
                                       : kind == 'p' || kind == 'P'           ? 1
                                                                              : 0);
          if (is_written && (row & kRegister) == 0) fail("a result that is no register");
          (is_written ? made.to.at(to++) : made.from.at(from++)) = row;
        } while (is_list && take(","));
        if (is_list) expect("}");
        const unsigned count = (is_written ? to : from) - before;
        if (is_move && is_list) {
          made.op = is_written ? op_of("unpack") : op_of("pack");
          made.count = count;
        } else if (count != (kind == 'v' || kind == 'e' ? made.count : 1)) {
          fail("another number of elements");
        }
      }
    }
    if (made.op == op_of("bar.sync") && made.number != 0) fail("a barrier other than 0");
    expect(";");
    code_.instructions.push_back(made);
  }

  Form mnemonic(Instruction &made) {
    const std::string whole = next();
    std::vector<std::string> parts;
    Form form;
    for (std::size_t at = 0, end = 0; at <= whole.size(); at = end + 1) {
      end = std::min(whole.find('.', at), whole.size());
      parts.push_back(whole.substr(at, end - at));
      const Form longer = form_of(std::string_view(whole).substr(0, end));
      if (longer.op == 0) continue;
      form = longer;
      parts.clear();
    }
    if (form.op == 0) fail("not known: " + whole);
    made.op = form.op;
    unsigned types = 0;
    for (const std::string &part : parts) {
      if (const Type type = type_of(part); type.bits != 0) {
        (types++ == 0 ? made.type : made.from_type) = type;
      } else if (const auto space = kSpaces.find(part); space != kSpaces.end()) {
        made.space = space->second;
      } else if (const auto word = kWords.find(part);
                 word != kWords.end() && (std::string(form.words) + " ").find(" " + part + " ") != std::string::npos) {
        made.word = word->second;
      } else if (part == "v2" || part == "v4") {
        made.count = part == "v2" ? 2 : 4;
      } else if (part == "nc") {
        made.read_only = true;
      } else if (std::ranges::find(kHints, part) == std::end(kHints)) {
        fail("not known: ." + part + " of " + whole);
      }
    }
    const bool has_type = form.operands.find_first_of("dPxveM") != std::string::npos;
    if (types != (made.op == op_of("cvt") ? 2u
                  : has_type              ? 1u
                                          : 0u) ||
        (made.word == Word::none) != form.words.empty() || (made.op == op_of("div") && made.type.is_signed) ||
        (made.op == op_of("atom") && (made.space != Space::global || made.type.bits != 32 || made.type.is_signed)) ||
        (made.op == op_of("cvta") && made.space != Space::global))
      fail("not known in this form");
    return form;
  }

  // A register, a special register, a number or the address of a variable. bits 0: of any width.
  unsigned operand(unsigned bits) {
    if (is_number()) {
      const std::uint64_t value =
          number() & (bits == 0 || bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1);
      const auto [found, is_new] = numbers_.try_emplace(value, 0);
      if (is_new) found->second = row_of({value, false});
      return found->second;
    }
    const std::string called = next();
    for (auto scope = names_.rbegin(); scope != names_.rend(); ++scope) {
      const auto found = scope->find(called);
      if (found == scope->end()) continue;
      const Name &is = found->second;
      if (is.kind == Kind::register_ && bits != 0 && is.bits != bits)
        fail("a register of " + std::to_string(is.bits) + " bits");
      return is.row;
    }
    fail("not declared: " + called);
  }

  const std::vector<Token> tokens_;
  std::size_t at_ = 0;
  Code code_;
  std::vector<std::map<std::string, Name>> names_{1};
  std::map<std::uint64_t, unsigned> numbers_;
  std::map<std::string, unsigned> labels_;
  std::vector<std::pair<std::size_t, std::string>> branches_;
  std::vector<unsigned> registers_;  // widths
  std::vector<unsigned> dynamic_;    // rows of addresses
};

}  // namespace

Code parse(const std::string &text) { return Parser(text).parse(); }

}  // namespace tandem::test::ptx
