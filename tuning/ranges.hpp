// Ranges of tuning values as people write them, in the form of the Mont-Blanc project's OmpSs profiler:
//
//     1<<v, v=4:10          the expression for v = 4, 5 ... 10
//     16*v+8, v=0:3
//     32,64,96              a list; each an expression without a variable, or first:last
//
// Unsigned integers, + - * << and parentheses, C's precedence, one variable of any name.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tandem::tuning {

inline constexpr std::size_t kMostRangeValues = 1024;

// In the order in which they are written, each once. Throws Error (INVALID_ARGUMENT) with a sentence that quotes the
// text, for anything that is no such range, is empty, or has a value below `least` or above `most`.
std::vector<std::uint64_t> parse_tuning_range(std::string_view text, std::uint64_t least, std::uint64_t most);

}  // namespace tandem::tuning
