// SPDX-License-Identifier: Apache-2.0
// Ranges of tuning values as people write them:
//
//     32,64,96                      a list, of numbers and of the next two forms
//     2:5                           2, 3, 4, 5
//     16:1024:x2                    16, 32 ... 1024
//     1<<v, v=4:8                   16, 32 ... 256: the form of the Mont-Blanc project's OmpSs profiler
//     {/ (1 << i), i = 4:5 /}       the same as its report writes it
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tandem::tuning {

inline constexpr std::size_t kMostRangeValues = 1024;

// The values in their written order, each once. Throws Error (INVALID_ARGUMENT), with a sentence that quotes the text,
// for a malformed or empty range, and for a value below `least` or above `most`.
std::vector<std::uint64_t> parse_range(std::string_view text, std::uint64_t least, std::uint64_t most);

}  // namespace tandem::tuning
