// SPDX-License-Identifier: Apache-2.0
// "Did you mean": the nearest of the known words.
#include <algorithm>

#include "cli/option_table.hpp"

namespace tandem::cli {
namespace {

// The number of letters that are inserted, left out, replaced or swapped with their neighbour (optimal string
// alignment).
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1] ? 1 : 0)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(now);
  }
  return last[b.size()];
}

std::string_view without_dashes(std::string_view word) {
  return word.substr(std::min(word.find_first_not_of('-'), word.size()));
}

// "": no word is near.
std::string nearest(std::string_view text, const std::vector<std::string> &words) {
  constexpr std::size_t kMostLetters = 64;  // no word of ours is longer
  const std::string_view wanted = without_dashes(text);
  if (wanted.empty() || wanted.size() > kMostLetters) return "";
  std::string best;
  std::size_t least = wanted.size() / 3 + 1;  // 2 letters may have 1 wrong, 6 letters 3
  const std::string *longer = nullptr;        // the only word that begins with `text`
  bool several = false;
  for (const std::string &word : words) {
    const std::string_view name = without_dashes(word);
    if (name == wanted) return word;
    if (name.starts_with(wanted) && wanted.size() > 1) {
      several = longer != nullptr;
      longer = &word;
    }
    if (const std::size_t steps = distance(wanted, name); steps <= least && steps < name.size()) {
      if (steps < least || best.empty()) best = word;
      least = steps;
    }
  }
  return longer != nullptr && !several ? *longer : best;
}

}  // namespace

std::string did_you_mean(std::string_view text, const std::vector<std::string> &words) {
  const std::string word = nearest(text, words);
  return word.empty() ? "" : "; did you mean " + word + "?";
}

}  // namespace tandem::cli
