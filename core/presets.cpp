// SPDX-License-Identifier: Apache-2.0
#include "core/presets.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <type_traits>
#include <vector>

#include "base/error.hpp"
#include "core/gf.hpp"
#include "tandem/tandem.h"

namespace tandem::core {
namespace {

void check_shard_count(const char *name, unsigned k, unsigned m, unsigned limit) {
  if (k == 0) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "matrix ", name, ": k = 0, at least 1 data shard is needed");
  if (k > limit || m > limit - k) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "matrix ", name, ": k + m = ", std::uint64_t{k} + m, ", at most ", limit,
               " shards are possible");
  }
}

void check_parity_count(const char *name, unsigned m, unsigned limit) {
  if (m > limit) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "matrix ", name, ": m = ", m, ", it has at most ", limit,
               " parity shards");
  }
}

// A matrix from a function of the cell.
template <class Cell>
auto fill(unsigned k, unsigned m, Cell cell) {
  MatrixOf<std::invoke_result_t<Cell, unsigned, unsigned>> matrix(m, k);
  for (unsigned r = 0; r < m; ++r) {
    for (unsigned c = 0; c < k; ++c) matrix.at(r, c) = cell(r, c);
  }
  return matrix;
}

// The parity rows of the Vandermonde matrix of `points` made systematic, V * inverse(V_top): the value at the point of
// a parity of the polynomial through the data, in Lagrange's form. O(k * (k + m)) instead of an inversion.
template <class Point>
Matrix systematic_vandermonde(unsigned k, unsigned m, Point point) {
  const auto product_of_differences = [&](std::uint8_t x) {
    std::uint8_t product = 1;
    for (unsigned j = 0; j < k; ++j) {
      const std::uint8_t difference = x ^ point(j);
      if (difference != 0) product = gf::multiply(product, difference);
    }
    return product;
  };
  std::vector<std::uint8_t> denominators(k);
  for (unsigned c = 0; c < k; ++c) denominators[c] = product_of_differences(point(c));

  Matrix matrix(m, k);
  for (unsigned r = 0; r < m; ++r) {
    const std::uint8_t x = point(k + r);
    const std::uint8_t numerator = product_of_differences(x);
    for (unsigned c = 0; c < k; ++c) {
      matrix.at(r, c) = gf::divide(numerator, gf::multiply(denominators[c], x ^ point(c)));
    }
  }
  return matrix;
}

Matrix isal_cauchy(unsigned k, unsigned m) {
  check_shard_count("isal-cauchy", k, m, gf::kFieldSize);
  return fill(k, m, [k](unsigned r, unsigned c) { return gf::inverse(static_cast<std::uint8_t>((k + r) ^ c)); });
}

Matrix isal_vandermonde(unsigned k, unsigned m) {
  check_shard_count("isal-vandermonde", k, m, gf::kFieldSize);
  return fill(k, m, [](unsigned r, unsigned c) { return gf::power_of_two(r * c); });
}

Matrix backblaze(unsigned k, unsigned m) {
  check_shard_count("backblaze", k, m, gf::kFieldSize);
  return systematic_vandermonde(k, m, [](unsigned i) { return static_cast<std::uint8_t>(i); });
}

Matrix zfec(unsigned k, unsigned m) {
  check_shard_count("zfec", k, m, gf::kFieldSize);
  return systematic_vandermonde(k, m, [](unsigned i) { return i == 0 ? std::uint8_t{0} : gf::power_of_two(i - 1); });
}

Matrix liberasurecode_isal_vand_inv(unsigned k, unsigned m) {
  check_shard_count("liberasurecode-isal-vand-inv", k, m, gf::kFieldSize - 1);  // 2^256 = 2^1
  return systematic_vandermonde(k, m, [](unsigned i) { return gf::power_of_two(i + 1); });
}

// Jerasure reduces the extended Vandermonde matrix (points 0, 1, 2, ... and for the last shard infinity) by column
// operations. The result is a Cauchy matrix of these points, scaled; Jerasure scales it so that row 0 and column 0 are
// ones, which fixes all scales. Differences with infinity cancel: they count as 1.
Matrix jerasure_vandermonde(unsigned k, unsigned m) {
  check_shard_count("jerasure-vandermonde", k, m, gf::kFieldSize);
  const auto difference = [&](unsigned r, unsigned c) {
    return r + 1 == m ? std::uint8_t{1} : static_cast<std::uint8_t>((k + r) ^ c);
  };
  return fill(k, m, [&](unsigned r, unsigned c) {
    return gf::divide(gf::multiply(difference(0, c), difference(r, 0)),
                      gf::multiply(difference(0, 0), difference(r, c)));
  });
}

// The field of a Cauchy code of Jerasure's, GF(2^w) with w = 4 or 8. That of w = 4 lies in GF(2^8).
struct JerasureField {
  constexpr explicit JerasureField(unsigned word_bits) : size(1u << word_bits) {
    for (unsigned number = 0; number < size; ++number) {
      const std::uint8_t value = element(number);
      for (unsigned i = 0; i < word_bits; ++i)
        ones[value] =
            static_cast<std::uint8_t>(ones[value] + std::popcount(this->number(gf::multiply(value, element(1u << i)))));
    }
  }
  constexpr std::uint8_t element(unsigned number) const {
    return size == 16 ? gf::kSubfield4.element[number] : static_cast<std::uint8_t>(number);
  }
  constexpr std::uint8_t number(std::uint8_t element) const {
    return size == 16 ? gf::kSubfield4.number[element] : element;
  }

  unsigned size;
  gf::Field arithmetic{};
  std::array<std::uint8_t, gf::kFieldSize> ones{};  // in the bit matrix of an element: its column i is element * 2^i
};
constexpr JerasureField kJerasure4(4), kJerasure8(8);

// The same with w = 16.
struct JerasureField16 {
  static std::uint16_t element(unsigned number) { return static_cast<std::uint16_t>(number); }
  // As JerasureField::ones; made for each matrix, since it takes a million steps and few matrices need it.
  std::vector<std::uint8_t> make_ones() const {
    std::vector<std::uint8_t> ones(gf16::kFieldSize);
    for (unsigned log = 0; log < gf16::kOrder; ++log) {
      std::uint8_t &count = ones[arithmetic.exp(log)];
      for (unsigned i = 0; i < 16; ++i)
        count = static_cast<std::uint8_t>(count + std::popcount(arithmetic.exp(log + i)));
    }
    return ones;
  }
  const gf16::Field &arithmetic = gf16::Field::words();
};

// 1 / (r + (m + c)).
template <class Field>
auto cauchy_orig(const Field &field, unsigned k, unsigned m) {
  return fill(k, m, [&](unsigned r, unsigned c) { return field.arithmetic.inverse(field.element(r ^ (m + c))); });
}

// Columns are divided by row 0. Each later row is divided by one of its elements, if that leaves fewer ones in the
// row's bit matrices: by the element that leaves the fewest.
template <class Field, class Ones>
auto cauchy_good(const Field &field, const Ones &ones_of, unsigned k, unsigned m) {
  const auto &gf = field.arithmetic;
  auto matrix = cauchy_orig(field, k, m);
  using Cell = std::decay_t<decltype(gf.inverse(0))>;
  for (unsigned c = 0; c < k; ++c)
    for (unsigned r = 0; r < m; ++r) matrix.at(r, c) = gf.multiply(matrix.at(r, c), field.element(m + c));
  for (unsigned r = 1; r < m; ++r) {
    const auto ones_divided_by = [&](Cell divisor) {
      const Cell factor = gf.inverse(divisor);
      std::uint64_t ones = 0;
      for (const Cell cell : matrix.row(r)) ones += ones_of[gf.multiply(cell, factor)];
      return ones;
    };
    Cell best_divisor = 1;
    std::uint64_t fewest_ones = ones_divided_by(1);
    for (const Cell divisor : matrix.row(r)) {
      const std::uint64_t ones = ones_divided_by(divisor);
      if (ones >= fewest_ones) continue;
      fewest_ones = ones;
      best_divisor = divisor;
    }
    for (Cell &cell : matrix.row(r)) cell = gf.multiply(cell, gf.inverse(best_divisor));
  }
  return matrix;
}

Matrix jerasure_cauchy_orig(const JerasureField &field, unsigned k, unsigned m) {
  check_shard_count("jerasure-cauchy-orig", k, m, field.size);
  return cauchy_orig(field, k, m);
}

// For m = 2 Jerasure takes row 1 from a table (src/cauchy.c, cbest_4 and cbest_8). The table is the non-zero elements
// by ones of their bit matrix, equal ones by value: all 15 and all 255 entries were compared with this rule.
Matrix jerasure_cauchy_good(const JerasureField &field, unsigned k, unsigned m) {
  check_shard_count("jerasure-cauchy-good", k, m, field.size);
  if (m != 2) return cauchy_good(field, field.ones, k, m);
  std::vector<std::uint8_t> elements(field.size - 1);
  for (unsigned i = 0; i < elements.size(); ++i) elements[i] = field.element(i + 1);
  std::ranges::stable_sort(elements, {}, [&](std::uint8_t element) { return field.ones[element]; });
  return fill(k, m, [&](unsigned r, unsigned c) { return r == 0 ? std::uint8_t{1} : elements[c]; });
}

Matrix jerasure_cauchy_orig(unsigned k, unsigned m) { return jerasure_cauchy_orig(kJerasure8, k, m); }
Matrix jerasure_cauchy_good(unsigned k, unsigned m) { return jerasure_cauchy_good(kJerasure8, k, m); }

Matrix raid6(unsigned k, unsigned m) {
  check_shard_count("raid6", k, m, gf::kFieldSize);
  check_parity_count("raid6", m, 2);
  return fill(k, m, [](unsigned r, unsigned c) { return gf::power_of_two(r * c); });
}

Matrix zfs_raidz(unsigned k, unsigned m) {
  check_shard_count("zfs-raidz", k, m, gf::kFieldSize);
  check_parity_count("zfs-raidz", m, 3);
  return fill(k, m, [k](unsigned r, unsigned c) { return gf::power_of_two(r * (k - 1 - c)); });
}

Matrix snapraid_cauchy(unsigned k, unsigned m) {
  check_shard_count("snapraid-cauchy", k, m, gf::kFieldSize);
  check_parity_count("snapraid-cauchy", m, 6);
  if (k > 251) {  // at c = 251 the points of the data meet that of parity 5: 2^-251 = 2^4
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "matrix snapraid-cauchy: k = ", k, ", it has at most 251 data shards");
  }
  return fill(k, m, [](unsigned r, unsigned c) -> std::uint8_t {
    if (r < 2) return gf::power_of_two(r * c);
    const std::uint8_t point = gf::power_of_two(r - 1);
    const std::uint8_t data_point = gf::power_of_two(255 - c);
    return gf::divide(point ^ 1, point ^ data_point);
  });
}

Matrix snapraid_vandermonde(unsigned k, unsigned m) {
  check_shard_count("snapraid-vandermonde", k, m, gf::kFieldSize);
  check_parity_count("snapraid-vandermonde", m, 3);
  return fill(k, m, [](unsigned r, unsigned c) { return gf::power_of_two(r == 2 ? 255 - c : r * c); });
}

Matrix par1(unsigned k, unsigned m) {
  check_shard_count("par1", k, m, gf::kFieldSize);
  return fill(k, m, [](unsigned r, unsigned c) { return gf::power(static_cast<std::uint8_t>(c + 1), r); });
}

// Column c is x^(m+c) modulo the generator polynomial: the one before, times x.
Matrix hdfs_rs_legacy(unsigned k, unsigned m) {
  check_shard_count("hdfs-rs-legacy", k, m, gf::kFieldSize - 1);
  Matrix matrix(m, k);
  if (m == 0) return matrix;
  std::vector<std::uint8_t> generator{1};  // coefficient of x^i at i
  for (unsigned i = 0; i < m; ++i) {
    generator.insert(generator.begin(), 0);
    for (unsigned j = 0; j <= i; ++j) generator[j] ^= gf::multiply(generator[j + 1], gf::power_of_two(i));
  }
  std::vector<std::uint8_t> remainder(m);
  remainder[m - 1] = 1;  // x^(m-1)
  for (unsigned c = 0; c < k; ++c) {
    const std::uint8_t carry = remainder[m - 1];
    for (unsigned r = m - 1; r > 0; --r) remainder[r] = remainder[r - 1] ^ gf::multiply(carry, generator[r]);
    remainder[0] = gf::multiply(carry, generator[0]);
    for (unsigned r = 0; r < m; ++r) matrix.at(r, c) = remainder[r];
  }
  return matrix;
}

std::vector<std::uint16_t> points_from_zero(unsigned k, unsigned m) {
  std::vector<std::uint16_t> points(k + m);
  std::iota(points.begin(), points.end(), std::uint16_t{0});
  return points;
}

// Jerasure's: the parity shards have the first points.
std::vector<std::uint16_t> points_of_jerasure(unsigned k, unsigned m) {
  std::vector<std::uint16_t> points = points_from_zero(k, m);
  std::rotate(points.begin(), points.begin() + m, points.end());
  return points;
}

// With m = 2 its rows are from a table.
std::vector<std::uint16_t> points_of_jerasure_good(unsigned k, unsigned m) {
  return m == 2 ? std::vector<std::uint16_t>() : points_of_jerasure(k, m);
}

// Reasons for `always`: a Cauchy matrix of distinct points, however its rows and columns are scaled, has no singular
// submatrix. That is the form of all these presets: a systematic Vandermonde matrix is one by Lagrange's formula, the
// remainders of hdfs-rs-legacy because its code is the Reed-Solomon code of the points 2^i; raid6 and
// jerasure-cauchy-good with m = 2 because two rows 1 ; a_c with distinct non-zero a_c are. zfs-raidz and
// snapraid-vandermonde (its columns times 2^c) are rows 1 ; a ; a^2 with distinct non-zero a: minors of order 3 are
// Vandermonde determinants, those of order 2 too or squares of one.
bool always(unsigned, unsigned) { return true; }

// m <= 3 as for zfs-raidz, k <= 3 because the matrix is symmetric. The others are exhaustive results; (4, 22), (5, 6),
// (6, 5) and (22, 4) are not MDS and lie in every larger code.
bool isal_vandermonde_is_mds(unsigned k, unsigned m) {
  return m <= 3 || k <= 3 || (k == 4 && m <= 21) || (k <= 21 && m == 4) || (k == 5 && m <= 5);
}

// m <= 3 as for zfs-raidz; two columns 1 and 2^r because 2^r does not repeat. (3, 4) is not MDS: 1 + 2 + 3 = 0 makes
// rows 0, 1, 3 singular, and it lies in every larger code.
bool par1_is_mds(unsigned k, unsigned m) { return m <= 3 || k <= 2; }

constexpr Preset kPresets[] = {
    {TANDEM_MATRIX_ISAL_CAUCHY, "isal-cauchy", isal_cauchy, always, nullptr, points_from_zero},
    {TANDEM_MATRIX_ISAL_VANDERMONDE, "isal-vandermonde", isal_vandermonde, isal_vandermonde_is_mds,
     "m <= 3, or k <= 3, or m = 4 with k <= 21, or k = 4 with m <= 21, or k = 5 with m = 5"},
    {TANDEM_MATRIX_BACKBLAZE, "backblaze", backblaze, always, nullptr, points_from_zero},
    {TANDEM_MATRIX_ZFEC, "zfec", zfec, always},
    {TANDEM_MATRIX_LIBERASURECODE_ISAL_VAND_INV, "liberasurecode-isal-vand-inv", liberasurecode_isal_vand_inv, always},
    {TANDEM_MATRIX_JERASURE_VANDERMONDE, "jerasure-vandermonde", jerasure_vandermonde, always},
    {TANDEM_MATRIX_JERASURE_CAUCHY_ORIG, "jerasure-cauchy-orig", jerasure_cauchy_orig, always, nullptr,
     points_of_jerasure},
    {TANDEM_MATRIX_JERASURE_CAUCHY_GOOD, "jerasure-cauchy-good", jerasure_cauchy_good, always, nullptr,
     points_of_jerasure_good},
    {TANDEM_MATRIX_RAID6, "raid6", raid6, always},
    {TANDEM_MATRIX_ZFS_RAIDZ, "zfs-raidz", zfs_raidz, always},
    {TANDEM_MATRIX_SNAPRAID_CAUCHY, "snapraid-cauchy", snapraid_cauchy, always},
    {TANDEM_MATRIX_SNAPRAID_VANDERMONDE, "snapraid-vandermonde", snapraid_vandermonde, always},
    {TANDEM_MATRIX_PAR1, "par1", par1, par1_is_mds, "m <= 3, or k <= 2"},
    {TANDEM_MATRIX_HDFS_RS_LEGACY, "hdfs-rs-legacy", hdfs_rs_legacy, always},
    // Over GF(2^16).
    {.value = TANDEM_MATRIX_LEOPARD16, .name = "leopard16"},
    {.value = TANDEM_MATRIX_REED_SOLOMON_SIMD, .name = "reed-solomon-simd"},
    {.value = TANDEM_MATRIX_PAR2, .name = "par2"},
    {.value = TANDEM_MATRIX_LIBERASURECODE_RS_VAND, .name = "liberasurecode-rs-vand"},
    // With local groups.
    {.value = TANDEM_MATRIX_LRC_AZURE, .name = "lrc-azure", .make_groups = lrc_azure},
    {.value = TANDEM_MATRIX_LIBERASURECODE_ISAL_LRC,
     .name = "liberasurecode-isal-lrc",
     .make_groups = liberasurecode_isal_lrc,
     .are_globals_first = true},
};

// C(n, j) for n <= size and j <= order, UINT64_MAX where it does not fit.
class Binomials {
 public:
  Binomials(unsigned size, unsigned order) : width_(order + 1), table_((std::size_t{size} + 1) * width_) {
    for (unsigned n = 0; n <= size; ++n) {
      table_[n * width_] = 1;
      for (unsigned j = 1; j <= std::min(n, order); ++j) {
        const std::uint64_t a = choose(n - 1, j - 1), b = choose(n - 1, j);
        table_[n * width_ + j] = a > UINT64_MAX - b ? UINT64_MAX : a + b;
      }
    }
  }
  std::uint64_t choose(unsigned n, unsigned j) const { return table_[n * width_ + j]; }

 private:
  std::size_t width_;
  std::vector<std::uint64_t> table_;
};

template <class Cell>
MatrixOf<Cell> transpose(const MatrixOf<Cell> &matrix) {
  MatrixOf<Cell> result(matrix.columns(), matrix.rows());
  for (unsigned r = 0; r < result.rows(); ++r) {
    for (unsigned c = 0; c < result.columns(); ++c) result.at(r, c) = matrix.at(c, r);
  }
  return result;
}

// Order by order, each minor is expanded along its last row into minors of the order below. Subsets are in
// colexicographic order (by largest element, then the next). So the subsets of `order` rows with last row r are one
// run, in the order of their first order - 1 rows. The expansion is a sum of scaled runs. 10^6 minors take about 10
// ms.
template <class Field, class Cell>
MdsProof prove(const Field &field, const MatrixOf<Cell> &parity_rows, std::uint64_t max_minors) {
  const unsigned m = parity_rows.rows(), k = parity_rows.columns();
  if (m == 0 || k == 0) return MdsProof::proven;
  const unsigned max_order = std::min(m, k);
  // Before the table, which may be large. C(m + k, j) grows with j up to max_order, so the first one that is too large
  // decides.
  std::uint64_t subsets = 1;
  for (unsigned j = 1; j <= max_order && subsets <= max_minors; ++j) subsets = subsets * (m + k - j + 1) / j;
  if (subsets > max_minors && subsets - 1 > max_minors) return MdsProof::too_large;
  const Binomials binomials(std::max(m + k, 2u), max_order);
  if (binomials.choose(m + k, max_order) - 1 > max_minors) return MdsProof::too_large;

  const MatrixOf<Cell> matrix = m < k ? transpose(parity_rows) : parity_rows;  // the longer side in the runs
  const unsigned rows = matrix.rows(), columns = matrix.columns();
  std::vector<Cell> minors, smaller{1};
  std::vector<unsigned> subset;
  for (unsigned order = 1; order <= max_order; ++order) {
    const std::size_t row_subsets = binomials.choose(rows, order);
    const std::size_t smaller_row_subsets = binomials.choose(rows, order - 1);
    const std::size_t column_subsets = binomials.choose(columns, order);
    minors.assign(row_subsets * column_subsets, 0);
    subset.resize(order);
    std::iota(subset.begin(), subset.end(), 0u);
    for (std::size_t rank = 0; rank < column_subsets; ++rank) {
      for (unsigned left_out = 0; left_out < order; ++left_out) {
        std::size_t smaller_rank = 0;
        for (unsigned j = 0; j < order; ++j) {
          if (j != left_out) smaller_rank += binomials.choose(subset[j], j < left_out ? j + 1 : j);
        }
        const Cell *source = smaller.data() + smaller_rank * smaller_row_subsets;
        for (unsigned r = order - 1; r < rows; ++r) {
          const std::size_t run = binomials.choose(r, order - 1);
          multiply_add(field, std::span(minors).subspan(rank * row_subsets + binomials.choose(r, order), run),
                       matrix.at(r, subset[left_out]), std::span(source, run));
        }
      }
      unsigned next = 0;  // the next subset: raise the first element that can be, reset those below
      while (next + 1 < order && subset[next] + 1 == subset[next + 1]) ++next;
      ++subset[next];
      std::iota(subset.begin(), subset.begin() + next, 0u);
    }
    if (std::ranges::find(minors, Cell{0}) != minors.end()) return MdsProof::refuted;
    minors.swap(smaller);
  }
  return MdsProof::proven;
}

}  // namespace

std::span<const Preset> presets() { return kPresets; }

bool has_packets(std::int32_t matrix) noexcept {
  return matrix == TANDEM_MATRIX_JERASURE_CAUCHY_ORIG || matrix == TANDEM_MATRIX_JERASURE_CAUCHY_GOOD;
}

Matrix make_jerasure4(std::int32_t matrix, unsigned k, unsigned m) {
  return matrix == TANDEM_MATRIX_JERASURE_CAUCHY_ORIG ? jerasure_cauchy_orig(kJerasure4, k, m)
                                                      : jerasure_cauchy_good(kJerasure4, k, m);
}

Matrix16 make_jerasure16(std::int32_t matrix, unsigned k, unsigned m) {
  const JerasureField16 field;
  return matrix == TANDEM_MATRIX_JERASURE_CAUCHY_ORIG ? cauchy_orig(field, k, m)
                                                      : cauchy_good(field, field.make_ones(), k, m);
}

const Preset *find_preset(std::int32_t value) noexcept {
  const Preset *found = std::ranges::find(kPresets, value, &Preset::value);
  return found == std::end(kPresets) ? nullptr : found;
}

const Preset *find_preset(std::string_view name) noexcept {
  const Preset *found = std::ranges::find(kPresets, name, &Preset::name);
  return found == std::end(kPresets) ? nullptr : found;
}

MdsProof prove_mds(const Matrix &parity_rows, std::uint64_t max_minors) {
  return prove(gf::kField, parity_rows, max_minors);
}

MdsProof prove_mds(const gf16::Field &field, const Matrix16 &parity_rows, std::uint64_t max_minors) {
  return prove(field, parity_rows, max_minors);
}

}  // namespace tandem::core
