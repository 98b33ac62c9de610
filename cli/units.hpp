// SPDX-License-Identifier: Apache-2.0
// Sizes, times and percentages as the command reads and prints them. KiB, MiB, GiB are powers of 1024; kB, MB, GB of
// 1000.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace CLI {
class Validator;
}

namespace tandem::cli {

// "64k", "1.5M", "10 MB", "8GiB", "4096". A letter alone is binary, as with dd and lvcreate. Upper and lower case are
// the same. Parts of a byte are cut off. The parsers throw std::invalid_argument with a sentence.
std::uint64_t bytes_of(std::string_view text);
// "50us", "5ms", "1s", "90m" (or min), "24h", "7d", "2w", "1.5y". A day has 24 hours, a year 365 days.
double seconds_of(std::string_view text);
// "1.5%" is 0.015. The sign is required: 0.5 alone could mean either.
double part_of(std::string_view text);

// For options: they become the numbers.
CLI::Validator size_value();
CLI::Validator part_value();

std::string size(std::uint64_t bytes);                  // "1.07 GB": a measured amount, rounded
std::string exact_size(std::uint64_t bytes);            // "64KiB", "1000B": a setting; bytes_of gives the same number
std::string rate(std::uint64_t bytes, double seconds);  // "2.71 GB/s"

}  // namespace tandem::cli
