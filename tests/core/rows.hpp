// SPDX-License-Identifier: Apache-2.0
// Matrices and codes as the slow reference has them.
#pragma once

#include "core/codec.hpp"
#include "tests/reference.hpp"

namespace tandem::core {

inline reference::Rows rows_of(const Matrix &matrix) {
  reference::Rows rows;
  for (unsigned r = 0; r < matrix.rows(); ++r) rows.emplace_back(matrix.row(r).begin(), matrix.row(r).end());
  return rows;
}

// A row for each shard, data first.
inline reference::Rows generator_of(const Codec &codec) {
  reference::Rows generator(codec.k(), reference::Bytes(codec.k()));
  for (unsigned i = 0; i < codec.k(); ++i) generator[i][i] = 1;
  for (const reference::Bytes &row : rows_of(codec.parity())) generator.push_back(row);
  return generator;
}

template <class Indices>
reference::Rows rows_at(const reference::Rows &rows, const Indices &indices) {
  reference::Rows chosen;
  for (const auto i : indices) chosen.push_back(rows[i]);
  return chosen;
}

}  // namespace tandem::core
