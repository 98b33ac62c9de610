// SPDX-License-Identifier: Apache-2.0
#include "base/options.hpp"

#include <gtest/gtest.h>

#include <string>

#include "tests/base/errors.hpp"

namespace tandem::test {
namespace {

struct Options {
  std::size_t struct_bytes;
  std::int32_t number, reserved;
  const char *text;
};

TEST(Options, AnySizeThatAVersionCanHave) {
  struct Later {
    Options known;
    unsigned char more[16];
  } later = {{0, 7, 0, "text"}, {}};
  for (std::size_t bytes = 0; bytes <= sizeof later; ++bytes) {
    later.known.struct_bytes = bytes;
    if (bytes < sizeof(std::size_t) || bytes % alignof(Options) != 0) {
      EXPECT_EQ(refusal(TANDEM_ERROR_INVALID_ARGUMENT, [&] { base::read_options(&later.known, "options"); }),
                "options.struct_bytes is " + std::to_string(bytes) + "; set it to sizeof(options), 24");
      continue;
    }
    const Options read = base::read_options(&later.known, "options");
    EXPECT_EQ(read.struct_bytes, sizeof read) << "this version's size, not the caller's";
    EXPECT_EQ(read.number, bytes >= 16 ? 7 : 0);
    EXPECT_EQ(read.text, bytes >= 24 ? later.known.text : nullptr);
  }
  EXPECT_EQ(base::read_options<Options>(nullptr, "options").number, 0);
  EXPECT_EQ(base::read_options<Options>(nullptr, "options").struct_bytes, sizeof(Options));
  later.more[15] = 1;
  EXPECT_EQ(refusal(TANDEM_ERROR_UNSUPPORTED, [&] { base::read_options(&later.known, "options"); }),
            "options: byte 39 of 40 is set; it belongs to an option newer than this library");
  later.known.struct_bytes = 65544;
  refusal(TANDEM_ERROR_INVALID_ARGUMENT, [&] { base::read_options(&later.known, "options"); });
}

TEST(Options, WhatIsReservedMustBeZero) {
  const Options given = {sizeof given, 0, -3, nullptr};
  EXPECT_EQ(refusal(TANDEM_ERROR_UNSUPPORTED, [&] { base::read_options(&given, "options"); }),
            "options.reserved is -3, must be 0");
}

TEST(Options, ResultsGetWhatFits) {
  const Options ours = {0, 7, 0, "text"};
  for (const std::size_t bytes : {std::size_t{16}, sizeof ours}) {
    Options theirs = {bytes, 1, 1, nullptr};
    base::write_result(ours, &theirs, "result");
    EXPECT_EQ(theirs.struct_bytes, bytes);
    EXPECT_EQ(theirs.number, 7);
    EXPECT_EQ(theirs.text, bytes == sizeof ours ? ours.text : nullptr);
  }
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{12}, std::size_t{20}, sizeof ours + 1}) {
    const Options theirs = {bytes, 1, 1, nullptr};
    refusal(TANDEM_ERROR_INVALID_ARGUMENT, [&] { base::check_result_size(&theirs, "result"); });
  }
  Options *const unwanted = nullptr;
  base::check_result(unwanted, "result");
  base::write_result(ours, unwanted, "result");
  const Options theirs = {16, 1, 1, nullptr};
  refusal(TANDEM_ERROR_INVALID_ARGUMENT, [&] { base::check_result_size(&theirs, "result", 24); });
}

TEST(Options, ListsOfStrings) {
  const char *const list[] = {"a", "", nullptr, "b"};
  EXPECT_EQ(base::read_strings(list, 2, "names"), (std::vector<std::string_view>{"a", ""}));
  EXPECT_TRUE(base::read_strings(nullptr, 0, "names").empty());
  EXPECT_EQ(refusal(TANDEM_ERROR_INVALID_ARGUMENT, [&] { base::read_strings(list, 4, "names"); }), "names[2] is NULL");
  EXPECT_EQ(refusal(TANDEM_ERROR_INVALID_ARGUMENT, [] { base::read_strings(nullptr, 3, "names"); }),
            "names is NULL, but there are to be 3");
  EXPECT_EQ(refusal(TANDEM_ERROR_INVALID_ARGUMENT, [&] { base::read_strings(list, 4, "names", 3); }),
            "4 names; at most 3");
}

}  // namespace
}  // namespace tandem::test
