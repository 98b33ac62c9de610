// SPDX-License-Identifier: Apache-2.0
// The text of strings and numbers in JSON against nlohmann-json.
#include "base/json_text.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

using nlohmann::json;

TEST(JsonText, StringsAsNlohmannWritesThem) {
  const auto theirs = [](const std::string &text) {
    return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
  };
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::string text(1, static_cast<char>(byte));
    EXPECT_EQ(base::json_text(text), theirs(text)) << byte;
  }
  // Bytes at the borders of UTF-8's table.
  constexpr unsigned char kBytes[] = {'a',  '"',  '\\', 0x00, 0x1f, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf,
                                      0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xed, 0xef, 0xf0, 0xf1, 0xf4, 0xf5, 0xff};
  Random random(7);
  for (unsigned i = 0; i < 50'000; ++i) {
    std::string text;
    for (std::uint64_t n = random.below(9); n != 0; --n) text += static_cast<char>(kBytes[random.below(sizeof kBytes)]);
    ASSERT_EQ(base::json_text(text), theirs(text)) << "seed 7, text " << i;
  }
}

TEST(JsonText, NumbersReadBackAsTheyWere) {
  for (const auto &[number, text] : {std::pair(0.0, "0.0"),
                                     {-0.0, "-0.0"},
                                     {1.0, "1.0"},
                                     {2.5, "2.5"},
                                     {0.0001, "0.0001"},
                                     {0.00001, "1e-05"},
                                     {2.5e11, "250000000000.0"},
                                     {1e16, "1e+16"},
                                     {-3e-7, "-3e-07"},
                                     {5e-324, "5e-324"}})
    EXPECT_EQ(base::json_text(number), text);
  EXPECT_EQ(base::json_text(INFINITY), "null");
  EXPECT_EQ(base::json_text(NAN), "null");
  Random random(8);
  for (unsigned i = 0; i < 50'000; ++i) {
    const auto number = std::bit_cast<double>(random.next());
    if (!std::isfinite(number)) continue;
    const std::string text = base::json_text(number);
    const json parsed = json::parse(text);
    ASSERT_TRUE(parsed.is_number_float()) << text;
    ASSERT_EQ(std::bit_cast<std::uint64_t>(parsed.get<double>()), std::bit_cast<std::uint64_t>(number)) << text;
  }
}

}  // namespace
}  // namespace tandem::test
