// SPDX-License-Identifier: Apache-2.0
// A PTX text as the interpreter runs it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace tandem::test::ptx {

// clang-format off
enum class Op : std::uint8_t {
  mov, pack, unpack, ld, st, cvt, cvta, add, sub, mul, mad, div, rem, min, max, and_, or_, xor_, not_, neg, shl, shr, shf,
  setp, selp, prmt, lop3, bfe, bfi, bra, ret, trap, bar, atom, red, copy, commit, wait
};
enum class Space : std::uint8_t { generic, global, shared, param, constant };
// What stands behind the mnemonic and is neither a type nor a space.
enum class Variant : std::uint8_t { none, lo, hi, wide, eq, ne, lt, le, gt, ge, left, right, add, min, to };
// clang-format on

struct Type {
  unsigned bits = 32;
  bool is_signed = false;
};

// Every operand is a row of a warp's registers, with a word for each lane: also constants and special registers.
struct Instruction {
  Op op = Op::ret;
  Variant variant = Variant::none;
  Space space = Space::generic;
  bool read_only = false, wraps = false, guard_is_negated = false;
  int guard = -1;
  Type type, from_type;            // the second one: of cvt
  unsigned count = 1;              // of a vector's elements
  std::array<unsigned, 4> to{};    // rows that are written
  std::array<unsigned, 5> from{};  // rows that are read; an address: from[0] + offset
  std::uint64_t offset = 0;
  unsigned target = 0;  // of a branch; of a copy, a barrier and a wait: the number
  unsigned line = 0;
};

// Rows of special registers; row 0 is zeros.
inline constexpr std::array<const char *, 12> kSpecials = {"%tid.x",   "%tid.y",    "%tid.z",    "%ntid.x",
                                                           "%ntid.y",  "%ntid.z",   "%ctaid.x",  "%ctaid.y",
                                                           "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z"};

struct Variable {
  std::uint64_t first = 0, bytes = 0;
};

struct Constant {
  std::uint64_t value = 0;
  bool is_shared = false;  // an offset in shared memory
};

struct Code {
  std::string entry;
  std::vector<std::string> lines;  // of the text
  std::vector<Instruction> instructions;
  std::vector<Constant> constants;  // rows behind the special registers; registers are behind them
  std::vector<unsigned> widths;     // of all rows, in bits
  std::vector<std::uint8_t> constant_bytes;
  std::vector<Variable> constant_variables;
  std::uint64_t parameter_bytes = 0;
  std::uint64_t shared_bytes = 0, shared_align = 1;  // that the text declares; dynamic memory is behind them
};

Code parse(const std::string &text);  // throws Error

}  // namespace tandem::test::ptx
