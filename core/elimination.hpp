// SPDX-License-Identifier: Apache-2.0
// Gaussian elimination on the rows of a generator matrix: which shards are independent, and shards as sums of others.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "core/matrix.hpp"

namespace tandem::core {

using Indices = std::vector<std::uint16_t>;  // of shards

// Shards as sums of others: cells has a row for each output, and a column for each input.
template <class Cell>
struct Sums {
  Indices inputs;  // ascending
  MatrixOf<Cell> cells;
  Indices undetermined;  // outputs that are no such sums

  // The inputs. drops_unused: without those that no output needs.
  void sort(bool drops_unused) {
    std::vector<unsigned> order(inputs.size());
    std::iota(order.begin(), order.end(), 0u);
    if (drops_unused)
      std::erase_if(order, [&](unsigned c) {
        for (unsigned r = 0; r < cells.rows(); ++r)
          if (cells.at(r, c) != 0) return false;
        return true;
      });
    std::ranges::sort(order, {}, [&](unsigned c) { return inputs[c]; });
    if (order.size() == inputs.size() && std::ranges::is_sorted(order)) return;
    Sums sorted{{}, {cells.rows(), static_cast<unsigned>(order.size())}, std::move(undetermined)};
    for (unsigned c = 0; c < order.size(); ++c) {
      sorted.inputs.push_back(inputs[order[c]]);
      for (unsigned r = 0; r < cells.rows(); ++r) sorted.cells.at(r, c) = cells.at(r, order[c]);
    }
    *this = std::move(sorted);
  }
};

// Data shard c is the unit row c of the generator matrix. Shard k + r is row r of `coefficient`. Shards are taken in a
// given order, the preferred ones first. A shard that depends on those before it is left out. So with shards in order
// of their costs this finds a cheapest basis (it is a matroid). Data shards in front of the order are known: their
// columns need no elimination, and only columns of other data shards are reduced. Each reduced row has a pivot, where
// later rows are 0.
template <class Field, class Coefficient>  // of (row, column)
class Elimination {
 public:
  using Cell = typename Field::Cell;

  Elimination(const Field &field, const Coefficient &coefficient, unsigned k, std::span<const std::uint16_t> order)
      : field_(field), coefficient_(coefficient), k_(k) {
    const auto first_row = std::ranges::find_if(order, [&](std::uint16_t shard) { return shard >= k_; });
    chosen_.reserve(std::min<std::size_t>(k, order.size()));
    chosen_.assign(order.begin(), first_row);
    known_count_ = static_cast<unsigned>(chosen_.size());
    std::vector<bool> is_known(k);
    for (const std::uint16_t shard : chosen_) is_known[shard] = true;
    unknown_.reserve(k - known_count_);
    for (unsigned c = 0; c < k; ++c)
      if (!is_known[c]) unknown_.push_back(static_cast<std::uint16_t>(c));
    const auto most_rank =
        static_cast<unsigned>(std::min(unknown_.size(), static_cast<std::size_t>(order.end() - first_row)));
    reduced_ = MatrixOf<Cell>(most_rank, width() + most_rank);
    pivots_.reserve(most_rank);
    for (auto shard = first_row; shard != order.end() && rank() < most_rank; ++shard) take(*shard);
  }

  // Those that were taken: the known ones, then the others in order.
  const Indices &chosen() const noexcept { return chosen_; }
  unsigned rank() const noexcept { return static_cast<unsigned>(pivots_.size()); }  // without known shards

  // The outputs are not known. drops_unused: inputs that no output needs are left out.
  Sums<Cell> express(std::span<const std::uint16_t> outputs, bool drops_unused) const {
    Sums<Cell> sums{chosen_, {static_cast<unsigned>(outputs.size()), known_count_ + rank()}, {}};
    std::vector<Cell> row(reduced_.columns());
    for (unsigned r = 0; r < sums.cells.rows(); ++r) {
      load(outputs[r], row);
      reduce(row);
      if (std::any_of(row.begin(), row.begin() + width(), [](Cell cell) { return cell != 0; }))
        sums.undetermined.push_back(outputs[r]);
      std::copy_n(row.begin() + width(), rank(), sums.cells.row(r).begin() + known_count_);
    }
    if (sums.undetermined.empty()) put_in_known(outputs, sums.cells);
    sums.sort(drops_unused);
    return sums;
  }

 private:
  std::ptrdiff_t width() const noexcept { return static_cast<std::ptrdiff_t>(unknown_.size()); }

  void take(std::uint16_t shard) {
    const auto row = reduced_.row(rank());
    load(shard, row);
    row[unknown_.size() + rank()] = 1;
    reduce(row);
    const auto pivot = std::find_if(row.begin(), row.begin() + width(), [](Cell cell) { return cell != 0; });
    if (pivot == row.begin() + width()) return;  // the next shard overwrites it
    const Cell inverse = field_.inverse(*pivot);
    for (Cell &cell : row.first(unknown_.size() + rank() + 1)) cell = field_.multiply(cell, inverse);
    multiply_add_count() += unknown_.size() + rank() + 1;
    pivots_.push_back(static_cast<std::uint16_t>(pivot - row.begin()));
    chosen_.push_back(shard);
  }

  // [its cells in unknown columns | no combination yet]
  void load(std::uint16_t shard, std::span<Cell> row) const {
    std::ranges::fill(row, Cell{0});
    for (std::size_t c = 0; c < unknown_.size(); ++c)
      row[c] = shard < k_ ? Cell{unknown_[c] == shard} : coefficient_(shard - k_, unknown_[c]);
  }

  void reduce(std::span<Cell> row) const {
    for (unsigned i = 0; i < rank(); ++i) {
      // Beyond these row i is 0.
      const std::size_t first = pivots_[i], cells = unknown_.size() + i + 1 - first;
      if (const Cell factor = row[first])
        multiply_add(field_, row.subspan(first, cells), factor, reduced_.row(i).subspan(first, cells));
    }
  }

  // Known data cancels out of the chosen rows, and counts where an output is made of it.
  void put_in_known(std::span<const std::uint16_t> outputs, MatrixOf<Cell> &cells) const {
    const auto load_known = [&](std::uint16_t shard, std::span<Cell> row) {
      for (unsigned c = 0; c < known_count_; ++c) row[c] = coefficient_(shard - k_, chosen_[c]);
    };
    for (unsigned r = 0; r < cells.rows(); ++r)
      if (outputs[r] >= k_) load_known(outputs[r], cells.row(r));
    std::vector<Cell> equation(known_count_);
    for (unsigned i = known_count_; i < chosen_.size(); ++i) {
      if (chosen_[i] < k_) continue;
      load_known(chosen_[i], equation);
      for (unsigned r = 0; r < cells.rows(); ++r)
        multiply_add(field_, cells.row(r).first(known_count_), cells.at(r, i), equation);
    }
  }

  const Field &field_;
  const Coefficient &coefficient_;
  const unsigned k_;
  unsigned known_count_;
  Indices chosen_, unknown_, pivots_;  // pivots: places in unknown_
  MatrixOf<Cell> reduced_;             // [row | its combination of the chosen rows]
};

}  // namespace tandem::core
