// SPDX-License-Identifier: Apache-2.0
// A PTX text as the interpreter runs it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace tandem::test::ptx {

// In the order of kForms (parse.cpp), and then mov from and to parts of a register.
enum class Op : std::uint8_t {
  mov,
  ld,
  st,
  cvt,
  cvta,
  add,
  sub,
  mul,
  mad,
  div,
  min,
  max,
  and_,
  or_,
  xor_,
  not_,
  neg,
  shl,
  shr,
  setp,
  selp,
  prmt,
  lop3,
  bfi,
  bra,
  ret,
  trap,
  bar,
  atom,
  copy,
  commit,
  wait,
  pack,
  unpack
};
enum class Space : std::uint8_t { generic, global, shared, param, constant };
enum class Word : std::uint8_t { none, to, lo, wide, eq, ne, lt, le, gt, ge, add, min };

struct Type {
  unsigned bits = 32;  // 1: a predicate
  bool is_signed = false;
};

// Every operand is a row of a warp's registers, with a value for each lane: also constants and special registers.
struct Instruction {
  Op op = Op::ret;
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
