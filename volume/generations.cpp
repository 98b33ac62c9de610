// SPDX-License-Identifier: Apache-2.0
#include "volume/generations.hpp"

#include <algorithm>

#include "volume/engine.hpp"

namespace tandem::volume {
namespace {

// The most guesses of a call: a row of many columns has more sets of two and three columns than can be tried.
constexpr std::uint32_t kMostGuesses = 4096;

// A bijection that leaves 0 alone (the finalizer of MurmurHash3). Generations are coded as their images: a generation
// that follows from a wrong one then differs in all its bits, and is greater than any that a session gave out.
constexpr std::uint64_t kFactors[] = {0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53};
constexpr std::uint64_t inverse(std::uint64_t odd) {
  std::uint64_t found = odd;  // right in its 3 lowest bits; each step doubles them
  for (int step = 0; step < 5; ++step) found *= 2 - odd * found;
  return found;
}
std::uint64_t mix(std::uint64_t generation) {
  for (const std::uint64_t factor : kFactors) generation = (generation ^ generation >> 33) * factor;
  return generation ^ generation >> 33;
}
std::uint64_t unmix(std::uint64_t symbol) {
  symbol ^= symbol >> 33;
  for (const std::uint64_t factor : {kFactors[1], kFactors[0]}) {
    symbol *= inverse(factor);
    symbol ^= symbol >> 33;
  }
  return symbol;
}

}  // namespace

// Which columns of a row are believed.
struct Generations::Guess {
  std::vector<std::uint8_t> present;      // their entries are known, and are not in `old`
  std::vector<std::uint32_t> known, old;  // columns
  bool may_be_right = false;              // columns in `old` need not be old in this row

  Guess without(const std::function<bool(std::size_t)> &is_old) const {  // numbers of known columns
    Guess guess = *this;
    for (std::size_t i = 0; i < known.size(); ++i) {
      if (!is_old(i)) continue;
      guess.old.push_back(known[i]);
      guess.present[known[i]] = false;
    }
    return guess;
  }
};

Generations::Generations(const Geometry &geometry, tandem_context *context)
    : k_(geometry.k),
      m_(geometry.m),
      context_(context),
      // Always this matrix: it is MDS for every number of members, and its columns are single bytes.
      codec_(make_codec({.k = geometry.k, .m = geometry.m, .matrix = TANDEM_MATRIX_ISAL_CAUCHY})) {}

bool Generations::judge(View &view, const std::function<bool(std::uint32_t)> &is_old) const {
  const std::uint32_t n = k_ + m_;
  const auto is_known = [&](std::uint32_t column, std::uint32_t row) {
    return view.entries[view.at(column, row)].generation != kUnknown;
  };
  bool found_old = false;
  std::uint32_t tries_left = kMostGuesses;
  for (std::uint32_t begin = 0, end; begin < view.count; begin = end) {
    const auto is_same = [&](std::uint32_t row) {
      for (std::uint32_t column = 0; column < n; ++column)
        if (is_known(column, row) != is_known(column, begin)) return false;
      return true;
    };
    for (end = begin + 1; end < view.count && is_same(end);) ++end;
    found_old = judge_rows(view, begin, end, is_old, tries_left) || found_old;
  }
  return found_old;
}

// Rows with the same known columns.
bool Generations::judge_rows(View &view, std::uint32_t begin, std::uint32_t end,
                             const std::function<bool(std::uint32_t)> &is_old, std::uint32_t &tries_left) const {
  const std::uint32_t n = k_ + m_;
  Guess guess;
  bool doubts = false;
  for (std::uint32_t column = 0; column < n; ++column) {
    const bool is_known = view.entries[view.at(column, begin)].generation != kUnknown;
    guess.present.push_back(is_known);
    if (is_known) guess.known.push_back(column);
    doubts = doubts || (is_known && is_old(column));
  }
  if (guess.known.size() <= k_ && doubts) {  // nothing is left to prove them right
    std::fill(view.contradicts.begin() + begin, view.contradicts.begin() + end, true);
    return false;
  }
  if (guess.known.size() < k_) {
    for (std::uint32_t row = begin; row < end; ++row) {
      // No more is known than the entries say, and that no data was ever written if no known parity was.
      std::uint64_t of_parity = kUnknown;
      for (const std::uint32_t column : guess.known) {
        const Entry &entry = view.entries[view.at(column, row)];
        view.generations[view.at(column, row)] = entry.generation;
        if (column < k_) continue;
        view.words[view.at(column - k_, row)] = entry.word;
        if (of_parity == kUnknown || entry.generation != 0) of_parity = entry.generation;
      }
      for (std::uint32_t column = 0; column < n && of_parity == 0; ++column)
        if (!guess.present[column]) view.generations[view.at(column, row)] = 0;
    }
    return false;
  }
  bool found_old = false;
  const std::vector<bool> fits = solve(view, begin, end, guess);
  for (std::uint32_t row = begin; row < end; ++row) {
    if (fits[row - begin]) continue;
    std::optional<Guess> found;
    if (doubts) {
      found = guess.without([&](std::size_t i) { return is_old(guess.known[i]); });
      found->may_be_right = true;
      if (guess.known.size() - found->old.size() < k_ || !solve(view, row, row + 1, *found)[0]) found.reset();
    }
    if (!found) found = name_old(view, row, guess, tries_left);
    view.contradicts[row] = !found;
    for (std::size_t i = 0; found && i < found->old.size(); ++i) {
      const std::size_t at = view.at(found->old[i], row);
      if (view.entries[at].generation == view.generations[at]) continue;
      view.entries[at] = kLostEntry;
      view.stale[at] = found_old = true;
    }
  }
  return found_old;
}

// Finds the smallest set of old columns that explains the row. Nothing: there is none, or more than one.
std::optional<Generations::Guess> Generations::name_old(View &view, std::uint32_t row, const Guess &guess,
                                                        std::uint32_t &tries_left) const {
  for (std::size_t count = 1; count + k_ <= guess.known.size(); ++count) {
    std::optional<Guess> found;
    std::vector<std::uint8_t> is_old(guess.known.size());
    std::fill_n(is_old.begin(), count, std::uint8_t{1});
    do {
      if (tries_left == 0) return {};
      --tries_left;
      Guess one = guess.without([&](std::size_t i) { return is_old[i] != 0; });
      if (!solve(view, row, row + 1, one)[0]) continue;
      if (found) return {};
      found = std::move(one);
    } while (std::prev_permutation(is_old.begin(), is_old.end()));
    if (!found) continue;
    solve(view, row, row + 1, *found);  // again, for the view
    return found;
  }
  return {};
}

// Computes the generations and words of rows from the columns that are present, at least k. Returns for each row
// whether they fit to each other and to the columns that are taken for old. Parity is never older than its data.
std::vector<bool> Generations::solve(View &view, std::uint32_t begin, std::uint32_t end, const Guess &guess) const {
  const std::uint32_t n = k_ + m_, count = end - begin;
  std::vector<std::uint64_t> symbols(std::size_t{n + m_} * count);
  const auto symbol = [&](std::uint32_t column, std::uint32_t row) -> std::uint64_t & {
    return symbols[std::size_t{column} * count + row];
  };
  std::vector<void *> shards;
  bool misses_data = false;
  for (std::uint32_t column = 0; column < n; ++column) {
    shards.push_back(&symbol(column, 0));
    misses_data = misses_data || (column < k_ && !guess.present[column]);
    for (std::uint32_t row = 0; row < count && guess.present[column]; ++row) {
      const Entry &entry = view.entries[view.at(column, begin + row)];
      symbol(column, row) = column < k_ ? mix(entry.generation) : entry.word;
    }
  }
  const std::size_t bytes = count * sizeof(std::uint64_t);
  if (misses_data) check(tandem_decode(context_, codec_.get(), shards.data(), guess.present.data(), bytes));
  std::vector<void *> computed;
  for (std::uint32_t i = 0; i < m_; ++i) computed.push_back(&symbol(n + i, 0));
  check(tandem_encode(context_, codec_.get(), shards.data(), computed.data(), bytes));

  std::vector<bool> fits(count, true);
  for (std::uint32_t row = 0; row < count; ++row) {
    std::uint64_t newest_data = 0, of_parity = 0;
    bool all_zeros = true, all_fit = true;
    for (std::uint32_t column = 0; column < k_; ++column) {
      const std::size_t at = view.at(column, begin + row);
      view.generations[at] = guess.present[column] ? view.entries[at].generation : unmix(symbol(column, row));
      newest_data = std::max(newest_data, transaction_of(view.generations[at]));
      all_zeros = all_zeros && is_zeros(view.generations[at]);
    }
    for (std::uint32_t column = k_; column < n; ++column) {
      view.words[view.at(column - k_, begin + row)] = symbol(column + m_, row);
      if (!guess.present[column]) continue;
      const std::uint64_t transaction = transaction_of(view.entries[view.at(column, begin + row)].generation);
      all_fit = all_fit && symbol(column, row) == symbol(column + m_, row) && transaction >= newest_data;
      of_parity = std::max(of_parity, transaction);
    }
    of_parity = std::max(of_parity, newest_data);
    if (of_parity != 0 && all_zeros) of_parity |= kZeros;
    for (std::uint32_t column = k_; column < n; ++column) view.generations[view.at(column, begin + row)] = of_parity;
    for (const std::uint32_t column : guess.old) {
      const std::size_t at = view.at(column, begin + row);
      const std::uint64_t own = transaction_of(view.entries[at].generation),
                          right = transaction_of(view.generations[at]);
      const bool has_word = column < k_ || view.entries[at].word == view.words[view.at(column - k_, begin + row)];
      all_fit = all_fit && (own < right || (guess.may_be_right && own == right && has_word));
    }
    fits[row] = all_fit;
  }
  return fits;
}

void Generations::change(View &view, std::span<const std::uint64_t> next) const {
  const std::uint32_t count = view.count;
  std::vector<std::uint64_t> difference(std::size_t{k_ + m_} * count);
  for (std::uint32_t row = 0; row < count; ++row) {
    // From all generations if they are known. Else the words are those of unknown ones too, and the difference is
    // added.
    bool all_known = true;
    for (std::uint32_t column = 0; column < k_; ++column)
      all_known = all_known && next[view.at(column, row)] != kUnknown;
    for (std::uint32_t column = 0; column < k_; ++column) {
      std::uint64_t &old = view.generations[view.at(column, row)];
      const std::uint64_t now = next[view.at(column, row)];
      difference[view.at(column, row)] = (all_known ? 0 : mix(old)) ^ mix(now);
      old = now;
    }
    for (std::uint32_t i = 0; i < m_ && all_known; ++i) view.words[view.at(i, row)] = 0;
  }
  std::vector<const void *> data;
  std::vector<void *> words;
  for (std::uint32_t column = 0; column < k_ + m_; ++column) {
    std::uint64_t *const at = &difference[view.at(column, 0)];
    column < k_ ? data.push_back(at) : words.push_back(at);
  }
  check(tandem_encode(context_, codec_.get(), data.data(), words.data(), count * sizeof(std::uint64_t)));
  for (std::size_t i = 0; i < view.words.size(); ++i) view.words[i] ^= difference[std::size_t{k_} * count + i];
}

}  // namespace tandem::volume
