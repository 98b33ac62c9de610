// SPDX-License-Identifier: Apache-2.0
// base::text against fmt.
#include "base/text.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/random.hpp"
#include "tests/support/slice.hpp"

namespace tandem::test {
namespace {

TEST(Text, Values) {
  EXPECT_EQ(base::text(true, ' ', 'c', " text ", std::string("string "), std::string_view("view", 2), " ", 1.5),
            "true c text string vi 1.5");
  EXPECT_EQ(base::text(std::string_view("a\0b", 3)), std::string("a\0b", 3));
  EXPECT_EQ(base::text("{}", "{0}"), "{}{0}");
  EXPECT_EQ(base::text(), "");
  char name[] = "array";
  const char *pointer = name;
  EXPECT_EQ(base::text(name, " ", pointer), "array array");
  EXPECT_EQ(base::text(std::uint8_t{65}, " ", std::int8_t{-65}, " ", std::uint16_t{300}), "65 -65 300");
}

TEST(Text, IntegersAsFmtWritesThem) {
  Random random(3);
  for (unsigned i = 0; i < thinned(10'000); ++i) {
    const std::uint64_t natural = random.next() >> random.below(64);
    const auto integer = static_cast<std::int64_t>(natural) * (i % 2 == 0 ? 1 : -1);
    ASSERT_EQ(base::text(natural, " ", integer), fmt::format("{} {}", natural, integer));
    ASSERT_EQ(base::text(base::digits(natural, 16), " ", base::digits(natural, 8), " ", base::digits(natural, 10, 3),
                         " ", base::digits(natural, 16, 16)),
              fmt::format("{:x} {:o} {:03} {:016x}", natural, natural, natural, natural));
  }
  for (const std::int64_t integer : {INT64_MIN, INT64_MIN + 1, std::int64_t{-1}, std::int64_t{0}, INT64_MAX})
    EXPECT_EQ(base::text(integer), fmt::format("{}", integer));
  EXPECT_EQ(base::text(std::numeric_limits<int>::min()), "-2147483648");
}

void expect_like_fmt(double number) {
  ASSERT_EQ(base::text(number), fmt::format("{}", number));
  ASSERT_EQ(base::text(base::fixed(number, 0), " ", base::fixed(number, 1), " ", base::fixed(number, 2), " ",
                       base::fixed(number, 6)),
            fmt::format("{:.0f} {:.1f} {:.2f} {:.6f}", number, number, number, number));
}

TEST(Text, RealNumbersAsFmtWritesThem) {
  for (const double number : {0.0,
                              -0.0,
                              1.0,
                              -1.0,
                              0.1,
                              0.5,
                              1.5,
                              2.5,
                              1e-4,
                              9.9999e-5,
                              1e-5,
                              1e5,
                              123456789.0,
                              1e15,
                              1e16 - 2,
                              1e16,
                              1e17,
                              1e22,
                              1e300,
                              5e-324,
                              1.7976931348623157e308,
                              2.2250738585072014e-308,
                              9007199254740993.0})
    expect_like_fmt(number);
  EXPECT_EQ(base::text(INFINITY), "inf");
  EXPECT_EQ(base::text(-INFINITY, " ", base::fixed(NAN, 2)), "-inf nan");
  EXPECT_EQ(base::fixed(1.7976931348623157e308, 99).size(), 309u + 1 + 99);
  Random random(4);
  for (unsigned i = 0; i < thinned(20'000); ++i) {
    const auto number = std::bit_cast<double>(random.next());
    if (std::isfinite(number)) expect_like_fmt(number);
    expect_like_fmt(static_cast<double>(random.next() >> random.below(64)) / 1000);
    if (HasFatalFailure()) return;
  }
}

TEST(Text, Join) {
  EXPECT_EQ(base::join(std::vector<unsigned>{}, ", "), "");
  EXPECT_EQ(base::join(std::vector<unsigned>{1, 2, 3}, ", "), "1, 2, 3");
  EXPECT_EQ(base::join(std::vector<std::string>{"", "a", ""}, "+"), "+a+");
}

}  // namespace
}  // namespace tandem::test
