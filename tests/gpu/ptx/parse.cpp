// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <string_view>

#include "tests/gpu/ptx/code.hpp"
#include "tests/gpu/ptx/interpreter.hpp"

namespace tandem::test::ptx {
namespace {

struct Token {
  std::string text;
  unsigned line;
};

// Words with the dots in them, numbers without a sign, and single characters.
std::vector<Token> tokens_of(const std::string &text) {
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_$%.").find(c) != std::string_view::npos;
  };
  std::vector<Token> tokens;
  unsigned line = 1;
  for (std::size_t i = 0; i < text.size() && text[i] != '\0';) {
    if (text.compare(i, 2, "//") == 0) {
      i = std::min(text.find('\n', i), text.size());
    } else if (std::isspace(static_cast<unsigned char>(text[i])) != 0) {
      line += text[i++] == '\n' ? 1 : 0;
    } else {
      std::size_t end = i + 1;
      if (is_word(text[i]))
        for (; end < text.size(); ++end) {
          if (text.compare(end, 2, "::") == 0)
            ++end;
          else if (!is_word(text[end]))
            break;
        }
      tokens.push_back({text.substr(i, end - i), line});
      i = end;
    }
  }
  tokens.push_back({"", line});
  return tokens;
}

struct Form {
  Op op;
  unsigned to, from;  // operands; of a vector, those of an element
};
const std::map<std::string, Form> kForms = {{"mov", {Op::mov, 1, 1}},
                                            {"ld", {Op::ld, 1, 1}},
                                            {"st", {Op::st, 0, 2}},
                                            {"cvt", {Op::cvt, 1, 1}},
                                            {"cvta", {Op::cvta, 1, 1}},
                                            {"add", {Op::add, 1, 2}},
                                            {"sub", {Op::sub, 1, 2}},
                                            {"mul", {Op::mul, 1, 2}},
                                            {"mad", {Op::mad, 1, 3}},
                                            {"div", {Op::div, 1, 2}},
                                            {"rem", {Op::rem, 1, 2}},
                                            {"min", {Op::min, 1, 2}},
                                            {"max", {Op::max, 1, 2}},
                                            {"and", {Op::and_, 1, 2}},
                                            {"or", {Op::or_, 1, 2}},
                                            {"xor", {Op::xor_, 1, 2}},
                                            {"not", {Op::not_, 1, 1}},
                                            {"neg", {Op::neg, 1, 1}},
                                            {"shl", {Op::shl, 1, 2}},
                                            {"shr", {Op::shr, 1, 2}},
                                            {"shf", {Op::shf, 1, 3}},
                                            {"setp", {Op::setp, 1, 2}},
                                            {"selp", {Op::selp, 1, 3}},
                                            {"prmt", {Op::prmt, 1, 3}},
                                            {"lop3", {Op::lop3, 1, 4}},
                                            {"bfe", {Op::bfe, 1, 3}},
                                            {"bfi", {Op::bfi, 1, 4}},
                                            {"bra", {Op::bra, 0, 0}},
                                            {"ret", {Op::ret, 0, 0}},
                                            {"exit", {Op::ret, 0, 0}},
                                            {"trap", {Op::trap, 0, 0}},
                                            {"bar.sync", {Op::bar, 0, 0}},
                                            {"atom", {Op::atom, 1, 2}},
                                            {"red", {Op::red, 0, 2}},
                                            {"cp.async.ca", {Op::copy, 0, 2}},
                                            {"cp.async.cg", {Op::copy, 0, 2}},
                                            {"cp.async.commit_group", {Op::commit, 0, 0}},
                                            {"cp.async.wait_group", {Op::wait, 0, 0}}};
const std::map<std::string, Variant> kVariants = {{"lo", Variant::lo},  {"hi", Variant::hi},   {"wide", Variant::wide},
                                                  {"eq", Variant::eq},  {"ne", Variant::ne},   {"lt", Variant::lt},
                                                  {"le", Variant::le},  {"gt", Variant::gt},   {"ge", Variant::ge},
                                                  {"l", Variant::left}, {"r", Variant::right}, {"to", Variant::to}};
const std::map<std::string, Space> kSpaces = {
    {"global", Space::global}, {"shared", Space::shared}, {"param", Space::param}, {"const", Space::constant}};
// What changes nothing here: hints for caches, and the scope of an atomic operation.
const std::vector<std::string> kHints = {"cs", "uni", "L1::no_allocate", "L2::128B", "relaxed", "gpu", "clamp"};

std::uint64_t ones(unsigned bits) { return bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1; }

class Parser {
 public:
  explicit Parser(const std::string &text) : tokens_(tokens_of(text)) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      code_.lines.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    code_.lines.emplace_back();
    code_.constants.push_back({});
    for (const char *each : kSpecials) names_.front()[each] = {Name::Kind::row, row_of({}), {32}};
  }

  Code parse() {
    while (!peek().empty()) {
      if (take(".version") || take(".address_size")) {
        next();
      } else if (take(".target")) {
        do next();
        while (take(","));
      } else if (take(".visible")) {
      } else if (take(".entry")) {
        if (!code_.entry.empty()) fail("a second entry");
        entry();
      } else {
        variable();
      }
    }
    if (code_.entry.empty()) fail("no entry");
    for (const auto &[instruction, label] : branches_) {
      const auto found = labels_.find(label);
      if (found == labels_.end()) fail("no label " + label);
      code_.instructions[instruction].target = found->second;
    }
    // Dynamic shared memory lies behind what is declared.
    const std::uint64_t base = align(code_.shared_bytes, code_.shared_align);
    for (const unsigned each : dynamic_) code_.constants[each].value = base;
    code_.shared_bytes = base;
    return std::move(code_);
  }

 private:
  struct Name {
    enum class Kind { row, register_, parameter, constant, shared } kind;
    std::uint64_t value;  // row, or offset
    Type type;
  };

  [[noreturn]] void fail(const std::string &what) const {
    throw Error("PTX, line " + std::to_string(tokens_[at_].line) + ": " + what + ": " +
                code_.lines.at(tokens_[at_].line - 1));
  }
  static std::uint64_t align(std::uint64_t value, std::uint64_t to) { return (value + to - 1) / to * to; }

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
  std::uint64_t number() {
    const bool is_negative = take("-");
    if (peek().empty() || std::isdigit(static_cast<unsigned char>(peek()[0])) == 0) fail("not a number");
    char *end = nullptr;
    const std::string text = next();
    const std::uint64_t value = std::strtoull(text.c_str(), &end, 0);
    if (*end != '\0' && std::string_view(end) != "U") fail("not an integer");
    return is_negative ? 0 - value : value;
  }

  bool is_type(const std::string &word, Type *out) const {
    if (word == "pred") return *out = {1, false}, true;
    if (word.size() < 2 || word.size() > 3 || std::string_view("usb").find(word[0]) == std::string_view::npos)
      return false;
    for (const unsigned bits : {8u, 16u, 32u, 64u})
      if (word.substr(1) == std::to_string(bits)) return *out = {bits, word[0] == 's'}, true;
    return false;
  }
  Type type() {
    Type found;
    const std::string word = next();
    if (word[0] != '.' || !is_type(word.substr(1), &found)) fail("not a type");
    return found;
  }

  // A row of constants.
  unsigned row_of(Constant constant) {
    code_.constants.push_back(constant);
    return static_cast<unsigned>(code_.constants.size() - 1);
  }
  unsigned row_of_number(std::uint64_t value) {
    const auto [found, is_new] = numbers_.try_emplace(value, 0);
    if (is_new) found->second = row_of({value, false});
    return found->second;
  }

  void name(const std::string &what, Name::Kind kind, std::uint64_t value, Type of) {
    if (!names_.back().try_emplace(what, Name{kind, value, of}).second) fail("twice: " + what);
  }
  const Name &find(const std::string &what) const {
    for (auto scope = names_.rbegin(); scope != names_.rend(); ++scope)
      if (const auto found = scope->find(what); found != scope->end()) return found->second;
    fail("not declared: " + what);
  }

  // A variable of the text, or a parameter.
  void variable() {
    const bool is_extern = take(".extern");
    const std::string space = next();
    const std::uint64_t aligned = take(".align") ? number() : 1;
    const Type of = type();
    const std::string called = next();
    std::uint64_t count = 1;
    if (take("[")) {
      count = peek() == "]" ? 0 : number();
      expect("]");
    }
    const std::uint64_t bytes = count * of.bits / 8, least = std::max<std::uint64_t>(aligned, of.bits / 8);
    if (space == ".param") {
      const std::uint64_t first = align(code_.parameter_bytes, least);
      code_.parameter_bytes = first + bytes;
      return name(called, Name::Kind::parameter, row_of({first, false}), of);
    }
    if (space == ".shared") {
      code_.shared_align = std::max(code_.shared_align, least);
      const std::uint64_t first = align(code_.shared_bytes, least);
      const unsigned row = row_of({first, true});
      if (is_extern) {
        dynamic_.push_back(row);
      } else {
        code_.shared_bytes = first + bytes;
      }
      name(called, Name::Kind::shared, row, of);
    } else if (space == ".const") {
      std::vector<std::uint8_t> &all = code_.constant_bytes;
      all.resize(align(all.size() + 64, std::max<std::uint64_t>(least, 64)));  // a gap between two
      const std::uint64_t first = all.size();
      all.resize(first + bytes);
      code_.constant_variables.push_back({first, bytes});
      name(called, Name::Kind::constant, row_of({first, false}), of);
      if (take("=")) {
        const bool is_list = take("{");
        for (std::uint64_t i = 0; i < count; ++i) {
          const std::uint64_t value = number();
          for (unsigned b = 0; b < of.bits / 8; ++b)
            all[first + i * of.bits / 8 + b] = static_cast<std::uint8_t>(value >> 8 * b);
          if (!take(",")) break;
        }
        if (is_list) expect("}");
      }
    } else {
      fail("not known");
    }
    expect(";");
  }

  void entry() {
    code_.entry = next();
    expect("(");
    while (!take(")")) {
      variable();
      take(",");
    }
    expect("{");
    names_.emplace_back();
    while (names_.size() > 1) statement();
    // Behind constants come registers.
    const auto constants = static_cast<unsigned>(code_.constants.size());
    for (Instruction &each : code_.instructions) {
      if (each.guard >= 0) each.guard += static_cast<int>(constants);
      for (unsigned &row : each.to) row = final_row(row, constants);
      for (unsigned &row : each.from) row = final_row(row, constants);
    }
    std::vector<unsigned> widths(constants, 64);
    widths.insert(widths.end(), registers_.begin(), registers_.end());
    code_.widths = std::move(widths);
    if (code_.instructions.empty()) fail("an entry without instructions");
  }
  static constexpr unsigned kRegister = 1u << 31;
  static unsigned final_row(unsigned row, unsigned constants) {
    return (row & kRegister) != 0 ? (row & ~kRegister) + constants : row;
  }

  void statement() {
    if (take("{")) {
      names_.emplace_back();
    } else if (take("}")) {
      names_.pop_back();
    } else if (take(".reg")) {
      const Type of = type();
      do {
        const std::string called = next();
        const bool is_range = take("<");
        const std::uint64_t count = is_range ? number() : 1;
        if (is_range) expect(">");
        for (std::uint64_t i = 0; i < count; ++i) {
          name(is_range ? called + std::to_string(i) : called, Name::Kind::register_, registers_.size(), of);
          registers_.push_back(of.bits);
        }
      } while (take(","));
      expect(";");
    } else if (take(".pragma")) {
      while (next() != ";") {
      }
    } else if (peek() == ".shared") {
      variable();
    } else if (tokens_[at_ + 1].text == ":") {
      if (!labels_.try_emplace(peek(), static_cast<unsigned>(code_.instructions.size())).second) fail("a label twice");
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
      made.guard = static_cast<int>(operand({1}) & ~kRegister);
    }
    const Form form = mnemonic(made);
    const Type of = made.type;
    unsigned to = 0, from = 0;
    const auto read = [&](Type as) { made.from.at(from++) = operand(as); };
    // Loads, stores and conversions may have registers that are wider than their type.
    const bool any_width = form.op == Op::ld || form.op == Op::st || form.op == Op::cvt;
    const auto elements = [&](bool written) {
      const bool is_vector = take("{");
      if (is_vector != (made.count > 1)) fail("not as many elements as the instruction has");
      for (unsigned i = 0; i < made.count; ++i) {
        const unsigned row = operand(any_width ? Type{0} : of);
        if (written && (row & kRegister) == 0) fail("a result that is no register");
        (written ? made.to.at(to++) : made.from.at(from++)) = row;
        if (i + 1 < made.count) expect(",");
      }
      if (is_vector) expect("}");
    };
    switch (form.op) {
      case Op::bra:
        branches_.emplace_back(code_.instructions.size(), next());
        break;
      case Op::bar:
      case Op::wait:
        made.target = static_cast<unsigned>(number());
        if (form.op == Op::bar && made.target != 0) fail("a barrier other than 0");
        break;
      case Op::copy:
        for (unsigned i = 0; i < 2; ++i, expect(",")) made.from.at(i) = address(i == 0 ? &made.offset : nullptr);
        made.target = static_cast<unsigned>(number());
        if (made.target != 4 && made.target != 8 && made.target != 16) fail("a copy of another size");
        break;
      case Op::mov:
        move(made);
        break;
      default: {
        if (form.to != 0 && form.op != Op::st) {
          Type result = of;
          if (made.variant == Variant::wide) result.bits *= 2;
          if (form.op == Op::setp) result.bits = 1;
          if (form.op == Op::ld) {
            elements(true);
          } else {
            made.to[to++] = operand(any_width ? Type{0} : result);
            if ((made.to[0] & kRegister) == 0) fail("a result that is no register");
          }
          expect(",");
        }
        const bool is_access = form.op == Op::ld || form.op == Op::st || form.op == Op::atom || form.op == Op::red;
        if (is_access) made.from.at(from++) = address(&made.offset);
        if (form.op == Op::st) {
          expect(",");
          elements(false);
        }
        for (unsigned i = is_access ? 1 : 0; i < form.from && form.op != Op::st; ++i) {
          if (i != 0) expect(",");
          Type as = form.op == Op::cvt ? Type{0} : of;
          const bool is_shift = form.op == Op::shl || form.op == Op::shr;
          if (is_shift && i == 1) as.bits = 32;
          if ((form.op == Op::bfe && i >= 1) || (form.op == Op::bfi && i >= 2)) as.bits = 32;
          if (form.op == Op::selp && i == 2) as.bits = 1;
          if (made.variant == Variant::wide && i == 2) as.bits *= 2;
          read(as);
        }
      }
    }
    expect(";");
    code_.instructions.push_back(made);
  }

  // Between registers, and between one and the parts of it.
  void move(Instruction &made) {
    const auto list = [&](auto &rows) {
      for (unsigned i = 0; i == 0 || take(","); ++i, ++made.count) rows.at(i) = operand({0});
      expect("}");
    };
    made.count = 0;
    if (take("{")) {
      made.op = Op::unpack;
      list(made.to);
      expect(",");
      made.from[0] = operand(made.type);
    } else {
      made.to[0] = operand(made.type);
      expect(",");
      if (take("{")) {
        made.op = Op::pack;
        list(made.from);
      } else {
        made.from[0] = operand(made.type);
        made.count = 1;
      }
    }
    for (unsigned i = 0; i < (made.op == Op::unpack ? made.count : 1); ++i)
      if ((made.to[i] & kRegister) == 0) fail("a result that is no register");
  }

  Form mnemonic(Instruction &made) {
    const std::string word = next();
    std::vector<std::string> parts;
    for (std::size_t at = 0; at <= word.size();) {
      const std::size_t end = std::min(word.find('.', at), word.size());
      parts.push_back(word.substr(at, end - at));
      at = end + 1;
    }
    std::string called = parts[0];
    std::size_t used = 1;
    if (called == "bar" || called == "cp")
      for (const std::size_t words = called == "bar" ? 2 : 3; used < std::min(words, parts.size()); ++used)
        called += "." + parts[used];
    const auto form = kForms.find(called);
    if (form == kForms.end()) fail("not known: " + word);
    made.op = form->second.op;
    unsigned types = 0, spaces = 0;
    for (; used < parts.size(); ++used) {
      const std::string &part = parts[used];
      Type of;
      if (is_type(part, &of)) {
        (types++ == 0 ? made.type : made.from_type) = of;
      } else if (const auto space = kSpaces.find(part); space != kSpaces.end()) {
        if (spaces++ == 0 || made.op != Op::copy) made.space = space->second;
      } else if ((made.op == Op::atom || made.op == Op::red) && (part == "add" || part == "min")) {
        made.variant = part == "add" ? Variant::add : Variant::min;
      } else if (const auto variant = kVariants.find(part); variant != kVariants.end()) {
        made.variant = variant->second;
      } else if (part == "v2" || part == "v4") {
        made.count = part == "v2" ? 2 : 4;
      } else if (part == "nc") {
        made.read_only = true;
      } else if (part == "wrap") {
        made.wraps = true;
      } else if (std::ranges::find(kHints, part) == kHints.end()) {
        fail("not known: ." + part + " of " + word);
      }
    }
    check(made, types, spaces);
    return form->second;
  }

  // Whether the instruction has what its meaning depends on.
  void check(const Instruction &made, unsigned types, unsigned spaces) const {
    const Op op = made.op;
    const Variant is = made.variant;
    const bool has_none = op == Op::bra || op == Op::ret || op == Op::trap || op == Op::bar || op == Op::copy ||
                          op == Op::commit || op == Op::wait;
    bool right = types == (has_none ? 0u : op == Op::cvt ? 2u : 1u);
    if (op == Op::mul || op == Op::mad) {
      right &= is == Variant::lo || is == Variant::wide;
      right &= is != Variant::wide || made.type.bits < 64;
    } else if (op == Op::setp) {
      right &= is >= Variant::eq && is <= Variant::ge;
    } else if (op == Op::shf) {
      right &= is == Variant::left || is == Variant::right;
    } else if (op == Op::atom || op == Op::red) {
      right &= (is == Variant::add || is == Variant::min) && made.type.bits == 32 && made.space == Space::global;
    } else if (op == Op::cvta) {
      right &= made.space == Space::global;  // where generic addresses and those of global memory are the same
    } else {
      right &= is == Variant::none;
    }
    if (op == Op::copy) right &= spaces == 2 && made.space == Space::shared;
    if (op == Op::prmt || op == Op::lop3 || op == Op::shf) right &= made.type.bits == 32;
    if (op == Op::div || op == Op::rem || op == Op::bfe) right &= !made.type.is_signed;
    if (made.read_only) right &= op == Op::ld && made.space == Space::global;
    if (made.count > 1) right &= op == Op::ld || op == Op::st;
    if (!right) fail("not known in this form");
  }

  // [register + number], [variable + number]
  unsigned address(std::uint64_t *offset) {
    expect("[");
    const unsigned row = operand({0});
    if (take("+")) {
      const std::uint64_t by = number();
      if (offset == nullptr && by != 0) fail("an offset that is not known here");
      if (offset != nullptr) *offset = by;
    }
    expect("]");
    return row;
  }

  // A register, a special register, a number or a variable's address. as: bits 0: of any width.
  unsigned operand(Type as) {
    if (peek() == "-" || (!peek().empty() && std::isdigit(static_cast<unsigned char>(peek()[0])) != 0)) {
      const std::uint64_t value = number();
      return row_of_number(as.bits == 0 ? value : value & ones(as.bits));
    }
    const Name &found = find(next());
    if (found.kind == Name::Kind::register_) {
      if (as.bits != 0 && found.type.bits != as.bits)
        fail("a register of " + std::to_string(found.type.bits) + " bits");
      return static_cast<unsigned>(found.value) | kRegister;
    }
    return static_cast<unsigned>(found.value);
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
