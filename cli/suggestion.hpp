// "Did you mean": the nearest of the words that there are.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::cli {

// The word that `text` was probably meant to be; "": none is near.
std::string nearest(std::string_view text, const std::vector<std::string> &words);
// "; did you mean WORD?", or "".
std::string did_you_mean(std::string_view text, const std::vector<std::string> &words);

}  // namespace tandem::cli
