// SPDX-License-Identifier: Apache-2.0
#include "cpu/prepared.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "core/codec16.hpp"

namespace tandem::cpu {

void check_technique(const core::Operator &what, RunBy technique) {
  // One shard, or two for an update, is a column: no technique can share work there.
  const bool is_matrix = std::holds_alternative<core::Dense>(what.form());
  if (technique == RunBy::transform && std::holds_alternative<core::Dense16>(what.form()) && what.input_count() > 2)
    base::fail(TANDEM_ERROR_UNSUPPORTED, "cpu: technique transform: this matrix over GF(2^16) has none");
  if (technique == RunBy::transform && what.field() == core::Field::gf2)
    base::fail(TANDEM_ERROR_UNSUPPORTED, "cpu: technique transform: codes with layout packets have none");
  if (technique == RunBy::transform && is_matrix && what.input_count() > 2)
    base::fail(TANDEM_ERROR_UNSUPPORTED, base::text("cpu: technique transform: there is none from ", what.input_count(),
                                                    " shards to ", what.output_count(),
                                                    "; encode, verify and decode have one from 12 data shards and 4 "
                                                    "outputs on, if the points of the matrix lie in runs"));
  const std::uint64_t matrix_bytes = std::uint64_t{what.input_count()} * what.output_count() * sizeof(core::Element);
  if (technique == RunBy::matrix && std::holds_alternative<core::Powers16>(what.form()) &&
      matrix_bytes > core::kMostMatrixBytes16)
    base::fail(TANDEM_ERROR_UNSUPPORTED, base::text("cpu: technique matrix: coefficients of ", matrix_bytes,
                                                    " bytes, at most ", core::kMostMatrixBytes16));
  if (technique == RunBy::matrix && std::holds_alternative<core::Leopard16>(what.form()))
    base::fail(TANDEM_ERROR_UNSUPPORTED, "cpu: technique matrix: Leopard's codes over GF(2^16) have a transform only");
}

// Small runs and compares stay in the cache.
std::uint64_t CpuPrepared::out_of_cache_bytes(core::Mode mode) const {
  if (mode == core::Mode::compare) return UINT64_MAX;
  return std::max(known(mode).values.out_of_cache_bytes, kInlineBytes - 1);
}

}  // namespace tandem::cpu
