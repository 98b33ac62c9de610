// SPDX-License-Identifier: Apache-2.0
// base::format against fmt, and the mistakes that the compiler must find.
#include "base/format.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

using base::FormatKind;

template <FormatKind... kKinds>
constexpr bool fits(std::string_view text) {
  constexpr FormatKind kinds[] = {kKinds...};
  return base::format_mistake(text, kinds) == nullptr;
}

constexpr FormatKind kInteger = FormatKind::integer, kNatural = FormatKind::natural, kReal = FormatKind::real,
                     kText = FormatKind::text;

static_assert(fits<kText>("{}"));
static_assert(fits<kText>("{0}{0}"));
static_assert(fits<kText, kReal>("{{{1:.2f}}} {0}"));
static_assert(fits<kNatural, kNatural, kNatural, kNatural, kNatural>("{:x}{:#x}{:o}{:03}{:016x}"));
static_assert(!fits<kText>("none"));
static_assert(!fits<kText>("{} {}"));
static_assert(!fits<kText, kText>("{}"));
static_assert(!fits<kText, kText>("{0}"));
static_assert(!fits<kText, kText>("{} {1}"));
static_assert(!fits<kText>("{1}"));
static_assert(!fits<kText>("{"));
static_assert(!fits<kText>("}"));
static_assert(!fits<kText>("{}}"));
static_assert(!fits<kText>("{{}}"));
static_assert(!fits<kText>("{{}"));
static_assert(!fits<kText>("{ }"));
static_assert(!fits<kText>("{0"));
static_assert(!fits<kText>("{:}}"));
static_assert(!fits<kText>("{:x}"));
static_assert(!fits<kInteger>("{:x}"));
static_assert(!fits<kInteger>("{:03}"));
static_assert(!fits<kReal>("{:o}"));
static_assert(!fits<kReal>("{:f}"));
static_assert(!fits<kReal>("{:.2}"));
static_assert(!fits<kReal>("{:.f}"));
static_assert(!fits<kNatural>("{:.2f}"));
static_assert(!fits<kNatural>("{:#o}"));
static_assert(!fits<kNatural>("{:#}"));
static_assert(!fits<kNatural>("{:#08x}"));
static_assert(!fits<kNatural>("{:0}"));
static_assert(!fits<kNatural>("{:3}"));
static_assert(!fits<kNatural>("{:d}"));
static_assert(!fits<kNatural>("{:xx}"));
static_assert(!fits<kNatural>("{:123x}"));

TEST(Format, Values) {
  EXPECT_EQ(
      base::format("{} {} {} {} {} {}", true, 'c', "text", std::string("string"), std::string_view("view", 2), 1.5),
      "true c text string vi 1.5");
  EXPECT_EQ(base::format("{1}-{0}-{1}", 1, 2u), "2-1-2");
  EXPECT_EQ(base::format("{{}} {{{}}} }}{{", 7), "{} {7} }{");
  EXPECT_EQ(base::format("{}", std::string_view("a\0b", 3)), std::string("a\0b", 3));
  EXPECT_EQ(base::format("{}{}", "{}", "{0}"), "{}{0}") << "values are not read as texts";
  EXPECT_EQ(base::format("{}", ""), "");
  char name[] = "array";
  const char *pointer = name;
  EXPECT_EQ(base::format("{} {}", name, pointer), "array array");
  EXPECT_EQ(base::format("{} {} {}", std::uint8_t{65}, std::int8_t{-65}, std::uint16_t{300}), "65 -65 300");
  EXPECT_EQ(base::format("{:x} {:#x} {:o} {:03} {:016x} {:02x}", 255u, 0u, 0777u, 7u, std::uint64_t{0xabc}, 4095u),
            "ff 0x0 777 007 0000000000000abc fff");
}

TEST(Format, IntegersAsFmtWritesThem) {
  Random random(3);
  for (unsigned i = 0; i < 10'000; ++i) {
    const std::uint64_t natural = random.next() >> random.below(64);
    const auto integer = static_cast<std::int64_t>(natural) * (i % 2 == 0 ? 1 : -1);
    ASSERT_EQ(base::format("{} {:x} {:#x} {:o} {:03} {:016x}", natural, natural, natural, natural, natural, natural),
              fmt::format("{} {:x} {:#x} {:o} {:03} {:016x}", natural, natural, natural, natural, natural, natural));
    ASSERT_EQ(base::format("{}", integer), fmt::format("{}", integer));
  }
  for (const std::int64_t integer : {INT64_MIN, INT64_MIN + 1, std::int64_t{-1}, std::int64_t{0}, INT64_MAX})
    EXPECT_EQ(base::format("{}", integer), fmt::format("{}", integer));
  EXPECT_EQ(base::format("{}", std::numeric_limits<int>::min()), "-2147483648");
  EXPECT_EQ(base::format("{:o}", UINT64_MAX), fmt::format("{:o}", UINT64_MAX));
}

void expect_like_fmt(double number) {
  ASSERT_EQ(base::format("{}", number), fmt::format("{}", number));
  ASSERT_EQ(base::format("{:.0f} {:.1f} {:.2f} {:.6f}", number, number, number, number),
            fmt::format("{:.0f} {:.1f} {:.2f} {:.6f}", number, number, number, number));
}

TEST(Format, RealNumbersAsFmtWritesThem) {
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
  EXPECT_EQ(base::format("{}", INFINITY), "inf");
  EXPECT_EQ(base::format("{} {:.2f}", -INFINITY, NAN), "-inf nan");
  EXPECT_EQ(base::format("{:.99f}", 1.7976931348623157e308).size(), 309u + 1 + 99);
  Random random(4);
  for (unsigned i = 0; i < 20'000; ++i) {
    const auto number = std::bit_cast<double>(random.next());
    if (std::isfinite(number)) expect_like_fmt(number);
    expect_like_fmt(static_cast<double>(random.next() >> random.below(64)) / 1000);
    if (HasFatalFailure()) return;
  }
}

TEST(Format, Join) {
  EXPECT_EQ(base::join(std::vector<unsigned>{}, ", "), "");
  EXPECT_EQ(base::join(std::vector<unsigned>{1, 2, 3}, ", "), "1, 2, 3");
  EXPECT_EQ(base::join(std::vector<std::string>{"", "a", ""}, "+"), "+a+");
}

}  // namespace
}  // namespace tandem::test
