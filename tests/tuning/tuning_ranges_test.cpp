// SPDX-License-Identifier: Apache-2.0
// Texts of ranges: their meaning, and refusals of all other texts.
#include "tuning/ranges.hpp"

#include <gtest/gtest.h>

#include <string>

#include "tests/base/errors.hpp"
#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

using Values = std::vector<std::uint64_t>;

Values range(std::string_view text, std::uint64_t least = 0, std::uint64_t most = UINT64_MAX) {
  return tuning::parse_range(text, least, most);
}

std::string refusal(std::string_view text, std::uint64_t least = 0, std::uint64_t most = UINT64_MAX) {
  SCOPED_TRACE(text);
  return test::refusal(TANDEM_ERROR_INVALID_ARGUMENT, [&] { range(text, least, most); });
}

TEST(TuningRanges, FormOfTheReport) {
  EXPECT_EQ(range("1<<v, v=4:8"), (Values{16, 32, 64, 128, 256}));
  EXPECT_EQ(range("{/ (1 << i), i = 4:5 /}"), (Values{16, 32}));
  EXPECT_EQ(range("{/1<<i,i=4:5/}"), (Values{16, 32}));
  EXPECT_EQ(range("(3 << wide) , wide = 0:2"), (Values{3, 6, 12}));
  EXPECT_EQ(range("1 << v , v = 4:4"), Values{16});
  EXPECT_EQ(range("1<<v, v=62:63"), (Values{std::uint64_t{1} << 62, std::uint64_t{1} << 63}));
  EXPECT_EQ(range("0<<v, v=0:63"), Values{0});  // each once
}

TEST(TuningRanges, Lists) {
  EXPECT_EQ(range("32,64,96"), (Values{32, 64, 96}));
  EXPECT_EQ(range("4, 8:10, 64"), (Values{4, 8, 9, 10, 64}));
  EXPECT_EQ(range("5"), Values{5});
  EXPECT_EQ(range(" 5 , 5 "), Values{5});
}

TEST(TuningRanges, FactorsEndAtOrBeforeTheLast) {
  EXPECT_EQ(range("16:256:x2"), (Values{16, 32, 64, 128, 256}));
  EXPECT_EQ(range("16:255:x2"), (Values{16, 32, 64, 128}));
  EXPECT_EQ(range("3 : 3 : x 7"), Values{3});
  EXPECT_EQ(range("1:100:x10, 7"), (Values{1, 10, 100, 7}));
  EXPECT_EQ(range("1:18446744073709551615:x4294967296"), (Values{1, std::uint64_t{1} << 32}));
  EXPECT_EQ(range("1:18446744073709551615:x2").size(), 64u);
}

TEST(TuningRanges, RefusedWithASentence) {
  EXPECT_EQ(refusal("1<<v, v=9:4"), "range \"1<<v, v=9:4\": 9:4 is empty");
  EXPECT_EQ(refusal("1<<v"), "range \"1<<v\": \",\" is missing before \"\"");
  EXPECT_EQ(refusal("1<<w, v=1:2"), "range \"1<<w, v=1:2\": \"w\" has no values, only \"v\" has");
  EXPECT_EQ(refusal("1<<v, v=60:64"), "range \"1<<v, v=60:64\": a value does not fit 64 bits");
  EXPECT_EQ(refusal("3<<v, v=60:63"), "range \"3<<v, v=60:63\": a value does not fit 64 bits");
  EXPECT_EQ(refusal("8:4:x2"), "range \"8:4:x2\": 8:4 is empty");
  EXPECT_EQ(refusal("8:64:x1"), "range \"8:64:x1\": 8 times 1 again and again does not grow");
  EXPECT_EQ(refusal("0:64:x2"), "range \"0:64:x2\": 0 times 2 again and again does not grow");
  EXPECT_EQ(refusal("16*v+8, v=0:3"), "range \"16*v+8, v=0:3\": \"*v+8, v=0:3\" is not understood");
  EXPECT_EQ(refusal("0,1", 1, 10), "range \"0,1\": 0 is not from 1 to 10");
  EXPECT_EQ(refusal("1:11", 1, 10), "range \"1:11\": 11 is not from 1 to 10");
  for (const char *text : {"",
                           " ",
                           ",",
                           "1,",
                           "1,,2",
                           "a",
                           "1 2",
                           "1<2",
                           "1+",
                           "*3",
                           "(1",
                           "1)",
                           "v=1:2",
                           ",v=1:2",
                           "v,=1:2",
                           "v, 1=1:2",
                           "v, v=1",
                           "v, v=:2",
                           "v, v=1:",
                           "v, v=1:2:3",
                           "v, v=1:2, w=1:2",
                           "v, v==1:2",
                           "1/2",
                           "-1",
                           "0x10",
                           "1.5",
                           "v, v=0:1024",
                           "0:1024",
                           "99999999999999999999",
                           "1<<1<<63",
                           "18446744073709551615+1",
                           "4294967296*4294967296",
                           "1\n",
                           "\xff",
                           "1:2:3",
                           "1:2:2x",
                           "1:2:x",
                           "1:x2",
                           "1:2:x2:3",
                           "1<<v, v=1:2:x2",
                           "1<<v, v=1",
                           "1<<v, v=1:2, 3",
                           "1<<2",
                           "1<<v, v=0:99999999999999999999",
                           "{/ 1,2 /}",
                           "{/ (1 << i), i = 4:5",
                           "{/ (1 << i, i = 4:5 /}",
                           "(1 << i), i = 4:5 /}",
                           "{/ (1 << i), i = 4:5 /} 6",
                           "1<<(v), v=1:2",
                           "1<<v+1, v=1:2",
                           "v;v=1:2"})
    refusal(text);
  refusal(std::string(300, '1'));
  refusal(std::string(100, '(') + "1" + std::string(100, ')'));
  refusal(std::string("1\0", 2));
  EXPECT_EQ(range("0:1023").size(), tuning::kMostRangeValues);
  EXPECT_EQ(range("18446744073709551614:18446744073709551615").size(), 2u);
}

// Every text gives a list of values within the limits, or a refusal.
TEST(TuningRanges, AnyText) {
  const std::string_view letters = "0123456789v,=:+-*<<() x{/}";
  Random random(3);
  unsigned accepted = 0;
  for (unsigned i = 0; i < 50'000; ++i) {
    std::string text;
    for (unsigned n = random.below(12); n != 0; --n)
      text += letters[random.below(static_cast<unsigned>(letters.size()))];
    try {
      const Values values = range(text, 1, 1000);
      ++accepted;
      ASSERT_FALSE(values.empty()) << text;
      for (const std::uint64_t value : values) ASSERT_TRUE(value >= 1 && value <= 1000) << text;
    } catch (const base::Error &error) {
      ASSERT_EQ(error.status(), TANDEM_ERROR_INVALID_ARGUMENT);
    }
  }
  EXPECT_GT(accepted, 250u);
}

}  // namespace
}  // namespace tandem::test
