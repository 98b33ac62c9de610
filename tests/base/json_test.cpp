// SPDX-License-Identifier: Apache-2.0
// The parser of JSON against nlohmann-json: what it accepts, and as which value. The text of strings and numbers
// likewise.
#include "base/json.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_text.hpp"
#include "tests/base/json_oracle.hpp"
#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

using base::Json;
using nlohmann::json;

constexpr std::size_t kMostDepth = 8;

bool accepts(std::string_view text) { return base::parse_json(text, kMostDepth).has_value(); }

TEST(Json, ValuesAndMembers) {
  const auto parsed =
      base::parse_json(R"( {"a": [1, -2, 3.5, "x\n\u00e9\ud83d\ude00", null, true], "b": 1, "b": 2} )", 2);
  ASSERT_TRUE(parsed.has_value());
  const Json::List *list = parsed->member("a")->as<Json::List>();
  ASSERT_NE(list, nullptr);
  ASSERT_EQ(list->size(), 6u);
  EXPECT_EQ(*(*list)[0].as<std::uint64_t>(), 1u);
  EXPECT_EQ(*(*list)[1].as<double>(), -2);
  EXPECT_EQ(*(*list)[2].as<double>(), 3.5);
  EXPECT_EQ(*(*list)[3].as<std::string>(), "x\n\xC3\xA9\xF0\x9F\x98\x80");
  EXPECT_NE((*list)[4].as<std::monostate>(), nullptr);
  EXPECT_NE((*list)[5].as<std::monostate>(), nullptr);
  EXPECT_EQ(*parsed->member("b")->as<std::uint64_t>(), 2u) << "the last of equal names";
  EXPECT_EQ(parsed->member("c"), nullptr);
  EXPECT_EQ((*list)[0].member("a"), nullptr);
}

TEST(Json, AcceptsWhatNlohmannAccepts) {
  const char *texts[] = {
      "{}", "[]", "[[]]", " \t\r\n1 ", "0", "-0", "-1", "10", "1.0", "0.5", "1e5", "1E+5", "1e-5", "-0.0e-0", "true",
      "false", "null", "\"\"", "\"a\"", "[1,2]", "{\"a\":1,\"b\":[{}]}", "18446744073709551615", "18446744073709551616",
      "-9223372036854775808", "-9223372036854775809", "1e308", "1e309", "-1e309", "1e999", "4.9e-324", "1e-323",
      "1e-400", "0e999", "0e-999", "0.000000000000000000000000000000000001", "123456789012345678901234567890",
      "\xEF\xBB\xBF{}", "\xEF\xBB{}", "\xEF\xBB\xBF", "\xEF\xBB\xBF\xEF\xBB\xBF{}",
      // not JSON
      "", " ", "01", "-01", "00", "+1", "1.", ".5", "1.e5", "1e", "1e+", "--1", "-", "0x10", "1 2", "nul", "nulll",
      "True", "NaN", "Infinity", "-Infinity", "[", "]", "{", "}", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "{\"a\"",
      "{\"a\":", "{\"a\":1", "{\"a\":1,", "{\"a\":1,}", "{,}", "{a:1}", "{'a':1}", "{1:1}", "{\"a\" 1}",
      "{\"a\":1 \"b\":2}", "[}", "{]", "[]]", "{}}", "//x\n1", "/**/1", "1//", "'a'", "\x0c1", "1\x0b",
      // strings
      "\"", "\"a", "\"\\", "\"\\\"", "\"\\\"\"", R"("\" \\ \/ \b \f \n \r \t")", R"("\a")", R"("\x41")", R"("\'")",
      R"("\u")", R"("\u12")", R"("\u123")", R"("\u123g")", R"("\u0041\u00e9\uFFFF\uffff\u0000")", R"("\uD83D\uDE00")",
      R"("\uD83D")", R"("\uD83Dx")", R"("\uD83D\n")", R"("\uD83D\u0041")", R"("\uD83D\uD83D")", R"("\uDE00")",
      R"("\uDE00\uD83D")", R"("\u+123")", R"("\u 123")", R"("\u-001")", R"("\U0041")", "\"\t\"", "\"\n\"", "\"\x1f\"",
      "\"\x7f\"", "\"\xC3\xA9\"", "\"\xC3\"", "\"\xC3", "\"\xA9\"", "\"\xC0\x80\"", "\"\xC1\xBF\"", "\"\xC2\x80\"",
      "\"\xE0\x9F\xBF\"", "\"\xE0\xA0\x80\"", "\"\xED\x9F\xBF\"", "\"\xED\xA0\x80\"", "\"\xEE\x80\x80\"",
      "\"\xF0\x8F\xBF\xBF\"", "\"\xF0\x90\x80\x80\"", "\"\xF4\x8F\xBF\xBF\"", "\"\xF4\x90\x80\x80\"",
      "\"\xF5\x80\x80\x80\"", "\"\xFF\"", "\"\xE2\x82\"", "\"\xF0\x9F\x98\"", "\xC3\xA9", "{\"\xC3\":1}",
      // depth: 8 and 9
      "[[[[[[[[1]]]]]]]]", "[[[[[[[[[1]]]]]]]]]", "[[[[[[[{\"a\":1}]]]]]]]", "[[[[[[[[{}]]]]]]]]",
      "[[[[[[[[1,\"[[\"]]]]]]]]"};
  unsigned accepted = 0;
  for (const std::string_view text : texts) {
    EXPECT_EQ(json_difference(text, kMostDepth), "") << text;
    accepted += accepts(text);
  }
  EXPECT_GT(accepted, 40u);
  EXPECT_LT(accepted, std::size(texts) - 80);
}

TEST(Json, ZeroBytesAndTinyNumbersAreRefused) {
  for (const std::string_view text :
       {std::string_view("1\0", 2), std::string_view("\0", 1), std::string_view("[1\0]", 4),
        std::string_view("\"\0\"", 3), std::string_view("1e-400"), std::string_view("-1e-400")})
    EXPECT_FALSE(accepts(text)) << text;
}

TEST(Json, ADeepTextEndsTheParserNotTheProgram) {
  EXPECT_FALSE(accepts(std::string(1'000'000, '[')));
  std::string objects;
  for (unsigned i = 0; i < 200'000; ++i) objects += "{\"a\":";
  EXPECT_FALSE(accepts(objects));
  EXPECT_TRUE(base::parse_json("1", 0).has_value());
  EXPECT_FALSE(base::parse_json("[]", 0).has_value());
}

// Single characters of a file of autotune, of JSON's own characters and of any bytes, changed, inserted and removed.
TEST(Json, MutationsAreReadAsNlohmannReadsThem) {
  const std::string whole =
      R"({"tandem_tuning": 1, "entries": [{"backend":"opencl","vendor":"\u00e9\ud83d\ude00 \"x\"","device":")"
      "\xC3\xA9\xF0\x9F\x98\x80"
      R"(","k":10,"m":4,"values":{"local_x":64,"local_y":18446744073709551615},"bytes_per_second":2.5e+11,)"
      R"("latency":-0.00012,"big":1e300,"small":12e-300,"deep":[[[[[true]]],false],null],"date":"2025-11-21T16:55:20Z"}]})";
  ASSERT_EQ(json_difference(whole, kMostDepth), "");
  ASSERT_TRUE(accepts(whole));
  constexpr std::string_view kCharacters = "{}[]\",:\\/ubfnrtaldse0123456789abcdefDE+-. \n";
  constexpr unsigned kTextCount = 40'000;
  Random random(24);
  unsigned accepted = 0;
  for (unsigned i = 0; i < kTextCount; ++i) {
    std::string text = whole;
    for (std::uint64_t n = random.between(1, 3); n != 0; --n) {
      const std::size_t at = random.below(text.size());
      const char other =
          random.chance(70) ? kCharacters[random.below(kCharacters.size())] : static_cast<char>(random.byte());
      switch (random.below(4)) {
        case 0:
          text[at] = other;
          break;
        case 1:
          text.insert(at, 1, other);
          break;
        case 2:
          text.erase(at, 1);
          break;
        default:
          text.insert(at, text.substr(at, random.between(1, 4)));
      }
    }
    ASSERT_EQ(json_difference(text, kMostDepth), "") << "seed 24, text " << i << ": " << text;
    accepted += accepts(text);
  }
  EXPECT_GT(accepted, kTextCount / 20);
  EXPECT_LT(accepted, kTextCount - kTextCount / 20);
}

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
    const auto parsed = base::parse_json(text, 0);
    ASSERT_TRUE(parsed && parsed->as<double>() != nullptr) << text;
    ASSERT_EQ(std::bit_cast<std::uint64_t>(*parsed->as<double>()), std::bit_cast<std::uint64_t>(number)) << text;
    ASSERT_TRUE(json::parse(text).is_number_float()) << text;
  }
}

}  // namespace
}  // namespace tandem::test
