// SPDX-License-Identifier: Apache-2.0
// "Did you mean": the nearest of the known words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::cli {

// The word that the user probably meant by `text`. "": no word is near.
std::string nearest(std::string_view text, const std::vector<std::string> &words);
// "; did you mean WORD?", or "".
std::string did_you_mean(std::string_view text, const std::vector<std::string> &words);

}  // namespace tandem::cli
