// SPDX-License-Identifier: Apache-2.0
#include "core/matrix.hpp"

#include <algorithm>
#include <array>
#include <bitset>
#include <utility>

#include "core/gf.hpp"

namespace tandem::core {
namespace {

using ProductRow = std::array<std::uint8_t, 256>;

// products[a][b] = a * b. 64 KiB, for one look-up; logarithms need two and a test for zero. The general decode set-up
// of (128,32) takes 150 000 multiply-adds.
constexpr std::array<ProductRow, 256> make_products() {
  std::array<ProductRow, 256> products{};
  for (unsigned a = 1; a < 256; ++a) {
    ProductRow &row = products[a];
    unsigned shifted = a;
    for (unsigned bit = 1; bit < 256; bit <<= 1) {
      for (unsigned b = 0; b < bit; ++b) row[bit + b] = static_cast<std::uint8_t>(row[b] ^ shifted);
      shifted <<= 1;
      if (shifted & 0x100) shifted ^= gf::kPolynomial;
    }
  }
  return products;
}

constexpr std::array<ProductRow, 256> kProducts = make_products();

}  // namespace

std::uint64_t &multiply_add_count() noexcept {
  static thread_local std::uint64_t count = 0;
  return count;
}

void multiply_add(std::span<std::uint8_t> target, std::uint8_t factor, std::span<const std::uint8_t> source) noexcept {
  multiply_add_count() += target.size();
  if (factor == 0) return;
  const ProductRow &products = kProducts[factor];
  for (std::size_t i = 0; i < target.size(); ++i) target[i] ^= products[source[i]];
}

// The scale of data shard 0 is free; 1 is chosen. Then column 0 gives the scales of the parity, row 0 those of the
// data.
CauchyForm cauchy_form_at(const Matrix &parity_rows, std::vector<std::uint16_t> points) {
  const unsigned k = parity_rows.columns();
  CauchyForm form{std::move(points), std::vector<std::uint8_t>(k + parity_rows.rows(), 1)};
  const auto product = [&](unsigned r, unsigned c) {
    return gf::multiply(parity_rows.at(r, c), static_cast<std::uint8_t>(form.points[k + r] ^ form.points[c]));
  };
  for (unsigned r = 0; r < parity_rows.rows(); ++r) form.scales[k + r] = product(r, 0);
  for (unsigned c = 1; c < k; ++c) form.scales[c] = gf::divide(form.scales[k], product(0, c));
  return form;
}

// A Moebius map of the points changes scales but not the matrix. So three points are free, if any form exists: parity 0
// goes to infinity and parity 1 to zero. With data scales 1 / parity[0][c] the quotient q[r][c] = parity[r][c] /
// parity[0][c] is then scale[r] / (point[r] + point[c]). Row 1 gives the points of the data. Two cells of each later
// row give its point and scale. All other cells are checked.
std::optional<CauchyForm> find_cauchy_form(const Matrix &parity_rows) {
  const unsigned m = parity_rows.rows();
  const unsigned k = parity_rows.columns();
  if (m < 2 || k < 2) return std::nullopt;

  CauchyForm form;
  form.points.resize(k + m);
  form.scales.resize(k + m);
  std::bitset<256> taken;
  const auto take = [&](std::uint8_t point) {
    const bool is_new = !taken[point];
    taken[point] = true;
    return is_new;
  };

  form.points[k] = CauchyForm::kInfinity;
  form.points[k + 1] = 0;
  form.scales[k] = form.scales[k + 1] = 1;
  taken[0] = true;
  for (unsigned c = 0; c < k; ++c) {
    const std::uint8_t first = parity_rows.at(0, c);
    const std::uint8_t second = parity_rows.at(1, c);
    if (first == 0 || second == 0) return std::nullopt;
    const std::uint8_t point = gf::divide(first, second);
    if (!take(point)) return std::nullopt;
    form.points[c] = point;
    form.scales[c] = gf::inverse(first);
  }

  for (unsigned r = 2; r < m; ++r) {
    // first[c] / parity[r][c] = (point[r] + point[c]) / scale[r]: a line through the data's points.
    const auto height = [&](unsigned c) { return gf::divide(parity_rows.at(0, c), parity_rows.at(r, c)); };
    for (const std::uint8_t cell : parity_rows.row(r)) {
      if (cell == 0) return std::nullopt;
    }
    const auto slope = gf::divide(height(0) ^ height(1), static_cast<std::uint8_t>(form.points[0] ^ form.points[1]));
    if (slope == 0) return std::nullopt;
    const std::uint8_t row_scale = gf::inverse(slope);
    const auto point = static_cast<std::uint8_t>(gf::multiply(height(0), row_scale) ^ form.points[0]);
    for (unsigned c = 2; c < k; ++c) {
      if (gf::multiply(height(c), row_scale) != (point ^ form.points[c])) return std::nullopt;
    }
    if (!take(point)) return std::nullopt;
    form.points[k + r] = point;
    form.scales[k + r] = row_scale;
  }
  return form;
}

}  // namespace tandem::core
