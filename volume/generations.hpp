// SPDX-License-Identifier: Apache-2.0
// Which blocks of a row belong together. The generations of a row's data are coded like the data itself. So an old copy
// of a member contradicts the others, though its checksums are right. docs/internals/VOLUME.md, "Old copies".
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "volume/layout.hpp"
#include "volume/view.hpp"

namespace tandem::volume {

class Generations {
 public:
  Generations(const Geometry &geometry, tandem_context *context);

  // Fills in generations, words and contradictions of the view from its entries. An entry that the others prove to be
  // old becomes kLostEntry, and `stale`. Returns whether there is one.
  //   is_old   whether other rows have named the member of this column. Such a column is believed only if the row
  //            proves it right
  bool judge(View &view, const std::function<bool(std::uint32_t column)> &is_old) const;

  // Changes the generations of the data to `next` (k x count), and the words with them, in rows that know enough.
  void change(View &view, std::span<const std::uint64_t> next) const;

 private:
  struct Guess;
  bool judge_rows(View &view, std::uint32_t begin, std::uint32_t end, const std::function<bool(std::uint32_t)> &is_old,
                  std::uint32_t &tries_left) const;
  std::optional<Guess> name_old(View &view, std::uint32_t row, const Guess &guess, std::uint32_t &tries_left) const;
  std::vector<bool> solve(View &view, std::uint32_t begin, std::uint32_t end, const Guess &guess) const;

  std::uint32_t k_, m_;
  tandem_context *context_;
  std::unique_ptr<tandem_codec, void (*)(tandem_codec *)> codec_;
};

}  // namespace tandem::volume
