// SPDX-License-Identifier: Apache-2.0
// Generator matrices of other programs (docs/matrices.md), and the limits within which each is proven.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/gf16.hpp"
#include "core/local_groups.hpp"
#include "core/matrix.hpp"

namespace tandem::core {

// One of three kinds: over GF(2^8), the same with local groups, or over GF(2^16), which core/codec16.cpp makes.
struct Preset {
  std::int32_t value;  // enum tandem_matrix_value
  const char *name;    // as the command line spells it
  // GF(2^8): the m x k parity rows. Throws Error (INVALID_ARGUMENT), with the limit, if the formula has no such (k, m).
  Matrix (*make)(unsigned k, unsigned m) = nullptr;
  // Whether it is proven that every loss of m shards is recoverable, for a (k, m) that `make` accepts.
  bool (*is_mds)(unsigned k, unsigned m) = nullptr;
  const char *mds_limit = nullptr;  // is_mds in words, for messages; nullptr where it is always true
  // For a Cauchy preset with points in runs: the points of the k data shards, then those of the m parity shards, each
  // list ascending. nullptr, or an empty list for some (k, m): it has no such points. find_cauchy_form finds other
  // points of the same matrix, which lie in no runs.
  std::vector<std::uint16_t> (*points)(unsigned k, unsigned m) = nullptr;
  // With local groups: the parity rows. Throws Error as `make` does.
  Matrix (*make_groups)(const LocalGroups &groups) = nullptr;
  bool are_globals_first = false;  // among the parity shards
  bool is_gf16() const noexcept { return make == nullptr && make_groups == nullptr; }
};

std::span<const Preset> presets();                       // in the order of their values
const Preset *find_preset(std::int32_t value) noexcept;  // nullptr if unknown
const Preset *find_preset(std::string_view name) noexcept;

// Whether programs store this preset in packets: Jerasure's Cauchy codes.
bool has_packets(std::int32_t matrix) noexcept;
// Such a preset over GF(2^4), as elements of GF(2^8): see gf::Subfield4. Throws Error as Preset::make does.
Matrix make_jerasure4(std::int32_t matrix, unsigned k, unsigned m);
// Such a preset over GF(2^16).
Matrix16 make_jerasure16(std::int32_t matrix, unsigned k, unsigned m);

enum class MdsProof { proven, refuted, too_large };

// Checks every minor of the parity rows (all square submatrices must be non-singular), up to max_minors of them. There
// are C(k+m, m) - 1; above max_minors nothing is computed.
MdsProof prove_mds(const Matrix &parity_rows, std::uint64_t max_minors = 1'000'000);
MdsProof prove_mds(const gf16::Field &field, const Matrix16 &parity_rows, std::uint64_t max_minors = 1'000'000);

}  // namespace tandem::core
