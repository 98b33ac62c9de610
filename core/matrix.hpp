// SPDX-License-Identifier: Apache-2.0
// Dense matrices, row-major. Those over GF(2^8) can be recognised as Cauchy matrices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/gf.hpp"

namespace tandem::core {

template <class Cell>
class MatrixOf {
 public:
  MatrixOf() = default;
  MatrixOf(unsigned rows, unsigned columns) : rows_(rows), columns_(columns), cells_(std::size_t{rows} * columns) {}

  unsigned rows() const noexcept { return rows_; }
  unsigned columns() const noexcept { return columns_; }
  Cell &at(unsigned row, unsigned column) noexcept { return cells_[std::size_t{row} * columns_ + column]; }
  Cell at(unsigned row, unsigned column) const noexcept { return cells_[std::size_t{row} * columns_ + column]; }
  std::span<Cell> row(unsigned r) noexcept { return {cells_.data() + std::size_t{r} * columns_, columns_}; }
  std::span<const Cell> row(unsigned r) const noexcept { return {cells_.data() + std::size_t{r} * columns_, columns_}; }
  const Cell *data() const noexcept { return cells_.data(); }
  bool operator==(const MatrixOf &) const = default;

 private:
  unsigned rows_ = 0, columns_ = 0;
  std::vector<Cell> cells_;
};

using Matrix = MatrixOf<std::uint8_t>;     // over GF(2^8)
using Matrix16 = MatrixOf<std::uint16_t>;  // over GF(2^16)

// Multiply-adds in GF(2^8) by multiply_add, eliminations and closed forms on the calling thread. Tests compare the cost
// of a decode set-up with its bound. Costs one addition per row operation.
std::uint64_t &multiply_add_count() noexcept;

// target ^= factor * source; the spans have one length.
void multiply_add(std::span<std::uint8_t> target, std::uint8_t factor, std::span<const std::uint8_t> source) noexcept;
inline void multiply_add(const gf::Field &, std::span<std::uint8_t> target, std::uint8_t factor,
                         std::span<const std::uint8_t> source) noexcept {
  multiply_add(target, factor, source);
}

// Parity rows written as a generalised Cauchy matrix: every shard of the stripe (data first) has a point of the
// projective line and a scale, and
//     parity[r][c] = scale[k + r] / scale[c] / (point[k + r] + point[c]).
// Points differ from each other, scales are not 0. A difference with the point at infinity counts as 1. Such a code is
// a generalised Reed-Solomon code (MacWilliams and Sloane, chapter 10, section 8): it is MDS, and lost shards are found
// by Lagrange interpolation, without an elimination.
struct CauchyForm {
  static constexpr std::uint16_t kInfinity = 256;  // its XOR with a field element is >= 256, so a table tells the two
                                                   // apart
  std::vector<std::uint16_t> points;
  std::vector<std::uint8_t> scales;
};

// The Cauchy form of parity rows that have one with these points (data first, none at infinity). At least 1 row and 1
// column. Reads one row and one column, and assumes the rest.
CauchyForm cauchy_form_at(const Matrix &parity_rows, std::vector<std::uint16_t> points);

// The Cauchy form of these parity rows if there is one. Needs at least 2 rows and 2 columns (below that there is
// nothing to gain). Checks every cell, so a result is a proof that the code is MDS.
std::optional<CauchyForm> find_cauchy_form(const Matrix &parity_rows);

}  // namespace tandem::core
