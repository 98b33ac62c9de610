// SPDX-License-Identifier: Apache-2.0
#include "core/local_groups.hpp"

#include <array>
#include <string>

#include "base/error.hpp"
#include "base/text.hpp"
#include "core/gf.hpp"
#include "core/presets.hpp"
#include "tandem/tandem.h"

namespace tandem::core {
namespace {

constexpr unsigned kOrder = gf::kFieldSize - 1;  // of the multiplicative group

[[noreturn]] void refuse(const char *name, const std::string &why) {
  base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "matrix ", name, ": ", why);
}

// The rows that a code with local groups is cut out of: global_count + 1 rows of an MDS code, the last one for the
// groups. They are those of the systematic Vandermonde matrix of the points 2^1, 2^2, ...
Matrix uncut_rows(const char *name, const LocalGroups &groups) {
  if (groups.k + groups.global_count + 1 >= gf::kFieldSize) {  // 2^256 = 2^1
    refuse(name, base::text("k = ", groups.k, " and ", groups.global_count, " global parity shards, together at most ",
                            gf::kFieldSize - 2, " are possible"));
  }
  return find_preset(TANDEM_MATRIX_LIBERASURECODE_ISAL_VAND_INV)->make(groups.k, groups.global_count + 1);
}

}  // namespace

// Local rows are ones: a group is an XOR. Up to two global rows are p_c and 1 / p_c. Two losses in one group and two in
// another then have a determinant that is 0 only if the products of their p are equal. (A lost local parity shard
// counts as the second p of a square.) So the p of a group are a coset of the subgroup of order 255 / step. step is
// odd, so the products of each group are in different cosets too. Every pattern is then recoverable that some
// coefficients can recover. More global rows are those of liberasurecode's code, with columns scaled so that groups are
// XORs.
Matrix lrc_azure(const LocalGroups &groups) {
  constexpr const char *kName = "lrc-azure";
  const unsigned k = groups.k, count = groups.group_count;
  const bool is_few = groups.global_count <= 2;
  constexpr std::array<unsigned, 8> kDivisors = {1, 3, 5, 15, 17, 51, 85, 255};
  const unsigned step = *std::ranges::lower_bound(kDivisors, count);
  const unsigned size = groups.end(0) - groups.begin(0);
  if (is_few && size > kOrder / step) {
    refuse(kName, base::text("groups of ", size, " data shards; with ", count,
                             " groups and up to 2 global parity shards at most ", kOrder / step, " are possible"));
  }
  const Matrix whole = is_few ? Matrix() : uncut_rows(kName, groups);
  Matrix matrix(count + groups.global_count, k);
  for (unsigned c = 0; c < k; ++c) {
    const unsigned group = groups.group_of(c);
    matrix.at(groups.local_parity(group) - k, c) = 1;
    const std::uint8_t p = gf::power_of_two(group + step * (c - groups.begin(group)));
    for (unsigned r = 0; r < groups.global_count; ++r) {
      const std::uint8_t few = r == 0 ? p : gf::inverse(p);
      matrix.at(groups.global_parity(r) - k, c) =
          is_few ? few : gf::divide(whole.at(r, c), whole.at(groups.global_count, c));
    }
  }
  return matrix;
}

// liberasurecode 1.8, src/backends/isa-l/isa_l_rs_lrc.c.
Matrix liberasurecode_isal_lrc(const LocalGroups &groups) {
  constexpr const char *kName = "liberasurecode-isal-lrc";
  if (2 * groups.group_count > groups.k)
    refuse(kName, base::text(groups.group_count, " groups of k = ", groups.k, " data shards, a group has at least 2"));
  const Matrix whole = uncut_rows(kName, groups);
  Matrix matrix(groups.global_count + groups.group_count, groups.k);
  for (unsigned c = 0; c < groups.k; ++c) {
    for (unsigned r = 0; r < groups.global_count; ++r)
      matrix.at(groups.global_parity(r) - groups.k, c) = whole.at(r, c);
    matrix.at(groups.local_parity(groups.group_of(c)) - groups.k, c) = whole.at(groups.global_count, c);
  }
  return matrix;
}

}  // namespace tandem::core
