// SPDX-License-Identifier: Apache-2.0
// A PTX text as the interpreter runs it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::test::ptx {

// Instructions: the mnemonic, the operands, and the words of which one has to be behind the mnemonic. Operands:
//     d, P, x     results: of the instruction's type (twice as wide with .wide), a predicate, of any width
//     s, p, u, *  sources: of the instruction's type, a predicate, of 32 bits, of any width; w: as wide as the result
//     v, e        elements that are loaded or stored; M, m: result and source of mov, which may be in parts
//     [, a        an address, and one without an offset; n: a number; l: a label
// The last two are mov from parts and to parts.
inline constexpr std::string_view kForms =
    "mov Mm;ld v[;st [e;cvt x*;cvta ds to;add dss;sub dss;mul dss lo wide;mad dssw lo wide;div dss;min dss;max dss;"
    "and dss;or dss;xor dss;not ds;neg ds;shl dsu;shr dsu;setp Pss eq ne lt le gt ge;selp dssp;prmt dsss;lop3 dssss;"
    "bfi dssuu;bra l;ret ;trap ;bar.sync n;atom d[s add min;cp.async.ca [an;cp.async.commit_group ;"
    "cp.async.wait_group n;pack ;unpack ;";

struct Form {
  unsigned op = 0;  // the n-th of kForms, from 1; 0: none
  std::string_view operands{}, words{};
};
constexpr Form form_of(std::string_view mnemonic) {
  unsigned op = 1;
  for (std::size_t at = 0; at < kForms.size(); ++op) {
    const std::string_view form = kForms.substr(at, kForms.find(';', at) - at);
    const std::string_view rest = form.substr(form.find(' ') + 1);
    if (form.substr(0, form.find(' ')) == mnemonic)
      return {op, rest.substr(0, rest.find(' ')), rest.substr(std::min(rest.find(' '), rest.size()))};
    at += form.size() + 1;
  }
  return {};
}
constexpr unsigned op_of(std::string_view mnemonic) {
  return form_of(mnemonic).op != 0 ? form_of(mnemonic).op : throw "not an instruction";
}

enum class Space : std::uint8_t { generic, global, shared, param, constant };
enum class Word : std::uint8_t { none, to, lo, wide, eq, ne, lt, le, gt, ge, add, min };

struct Type {
  unsigned bits = 32;  // 1: a predicate
  bool is_signed = false;
};

// Every operand is a row of a warp's registers, with a value for each lane: also constants and special registers.
struct Instruction {
  unsigned op = 0;
  Word word = Word::none;
  Space space = Space::generic;
  bool read_only = false, guard_is_negated = false;
  unsigned guard = 0;              // row; 0: none
  Type type, from_type;            // the second one: of cvt
  unsigned count = 1;              // of elements
  std::array<unsigned, 4> to{};    // rows that are written
  std::array<unsigned, 5> from{};  // rows that are read; row 0 is zeros
  std::uint64_t offset = 0;        // to the address, which is the first row
  unsigned number = 0;             // n; of a branch the instruction
  unsigned line = 0;
};

// The rows behind row 0, and in their names the three dimensions.
inline constexpr std::array<const char *, 4> kSpecials = {"%tid", "%ntid", "%ctaid", "%nctaid"};

struct Constant {
  std::uint64_t value = 0;
  bool is_shared = false;  // an offset in shared memory
};

struct Variable {
  std::uint64_t first = 0, bytes = 0;
};

struct Code {
  std::vector<std::string> lines;  // of the text
  std::vector<Instruction> instructions;
  std::vector<Constant> constants;  // the first rows: zeros, special registers, constants
  std::vector<unsigned> widths;     // of all rows, in bits
  std::vector<std::uint8_t> constant_bytes;
  std::vector<Variable> constant_variables;
  std::uint64_t parameter_bytes = 0;
  std::uint64_t shared_bytes = 0, shared_align = 1;  // that the text declares; dynamic memory is behind them
};

Code parse(const std::string &text);  // throws Error

}  // namespace tandem::test::ptx
