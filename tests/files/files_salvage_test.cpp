// SPDX-License-Identifier: Apache-2.0
// Decode with salvage: of a set that has lost too much, everything that can be had, and a map of the rest.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tandem/tools.h"
#include "tests/files/kit.hpp"

namespace {

using Map = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // first byte, bytes

constexpr std::uint32_t kBlockBytes = 128, kPayloadBytes = kBlockBytes - 16;

class Salvage : public Files {
 protected:
  tandem_status salvage(bool force = false, std::int32_t dry_run = 0) {
    const std::string output = output_.string();
    auto options = sized<tandem_files_decode_options>();
    options.output_path = output.c_str();
    options.force = force ? 1 : 0;
    options.no_sync = 1;
    options.dry_run = dry_run;
    options.salvage = 1;
    options.hole = [](void *user, std::uint64_t first, std::uint64_t count) {
      static_cast<Map *>(user)->emplace_back(first, count);
    };
    options.hole_user = &map_;
    map_.clear();
    result_ = sized<tandem_files_result>();
    return tandem_files_decode(context_, Search(shards_), &options, &result_);
  }

  fs::path partial() const { return output_.string() + ".partial"; }

  Map map_;
  fs::path output_;

  void SetUp() override {
    Files::SetUp();
    output_ = root_ / "output";
  }
};

// Which bytes are lost, and what is written for them: files_history_test.
TEST_F(Salvage, OneDataShardIsBetterThanNothingAndParityAloneIsNothing) {
  const std::vector<char> content = paint(3 * 4 * kPayloadBytes);
  encode(content, 4, 2, kBlockBytes);
  for (const unsigned index : {0u, 1u, 3u}) fs::remove(shard(index));
  EXPECT_EQ(decode(shards_), TANDEM_ERROR_NOT_RECOVERABLE);
  ASSERT_EQ(salvage(false, 1), TANDEM_OK) << tandem_last_error_message();
  EXPECT_FALSE(fs::exists(partial()));
  EXPECT_EQ(result_.hole_bytes, 9 * kPayloadBytes);
  ASSERT_EQ(salvage(), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(result_.hole_bytes, 9 * kPayloadBytes);
  fs::remove(partial());
  fs::remove(shard(2));
  EXPECT_EQ(salvage(), TANDEM_ERROR_NOT_RECOVERABLE);
  expect_message("2 of 6 shards found, 4 are needed");
  EXPECT_EQ(entries(root_), 2u);  // source, shards
}

// The last stripe of short content has blocks that are padding alone. Nothing is lost with them.
TEST_F(Salvage, PaddingIsNoHole) {
  encode(paint(1), 4, 1, kBlockBytes);
  for (const unsigned index : {1u, 2u, 3u}) fs::remove(shard(index));
  ASSERT_EQ(salvage(), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(map_, Map());
  EXPECT_EQ(slurp(output_), paint(1));
}

// What exists stays: the whole file also with force, what an earlier call has salvaged without it.
TEST_F(Salvage, NeverReplacesAWholeFileByOneWithHoles) {
  const std::vector<char> content = paint(2000), whole = paint(500, 2), older = paint(300, 3);
  encode(content, 4, 1, kBlockBytes);
  fs::remove(shard(0));
  spill(output_, whole);
  ASSERT_EQ(salvage(true), TANDEM_OK) << tandem_last_error_message();  // nothing is lost: as without salvage
  EXPECT_EQ(slurp(output_), content);
  EXPECT_EQ(result_.hole_bytes, 0u);
  fs::remove(shard(1));
  spill(output_, whole);
  EXPECT_EQ(salvage(), TANDEM_ERROR_IO);
  expect_message("use --force");
  ASSERT_EQ(salvage(true), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(slurp(output_), whole);
  EXPECT_EQ(slurp(partial()).size(), content.size());
  fs::remove(output_);
  spill(partial(), older);
  EXPECT_EQ(salvage(), TANDEM_ERROR_IO);
  EXPECT_EQ(slurp(partial()), older);
  ASSERT_EQ(salvage(true), TANDEM_OK) << tandem_last_error_message();
  EXPECT_NE(slurp(partial()), older);
  EXPECT_FALSE(fs::exists(output_));
}

TEST_F(Salvage, RefusesWhereHolesCannotBeTold) {
  encode(paint(2000), 4, 1, kBlockBytes);
  output_ = "/dev/null";
  EXPECT_EQ(salvage(true), TANDEM_ERROR_INVALID_ARGUMENT);
  output_ = root_ / std::string(250, 'x');  // with ".partial" it is too long
  EXPECT_EQ(salvage(), TANDEM_ERROR_IO);
  auto options = sized<tandem_files_decode_options>();
  options.output_descriptor = STDOUT_FILENO;
  options.salvage = 1;
  EXPECT_EQ(tandem_files_decode(context_, Search(shards_), &options, nullptr), TANDEM_ERROR_INVALID_ARGUMENT);
  expect_message("output_path is NULL");
}

// par1 is not MDS: k blocks need not be enough. What is called good is.
TEST_F(Salvage, OfAMatrixThatIsNotMds) {
  const std::vector<char> content = paint(10 * 3 * kPayloadBytes);
  spill(root_ / "source", content);
  std::int32_t matrix = 0;
  ASSERT_EQ(tandem_matrix_from_name("par1", &matrix), TANDEM_OK);
  for (unsigned kept = 1; kept < 128; ++kept) {
    fs::remove_all(shards_);
    tandem_files_encode_options encoding = encode_options(root_ / "source", 3, 4, kBlockBytes);
    encoding.matrix = matrix;
    encoding.allow_non_mds = 1;
    ASSERT_EQ(tandem_files_encode(context_, &encoding, nullptr), TANDEM_OK) << tandem_last_error_message();
    for (unsigned index = 0; index < 7; ++index)
      if ((kept >> index & 1) == 0) fs::remove(shard(index));
    fs::remove(partial());
    fs::remove(output_);
    const bool whole = decode(shards_) == TANDEM_OK;
    fs::remove(output_);
    const tandem_status status = salvage();
    if (!whole && (kept & 7) == 0) {
      EXPECT_EQ(status, TANDEM_ERROR_NOT_RECOVERABLE) << kept;
      continue;
    }
    ASSERT_EQ(status, TANDEM_OK) << kept << ": " << tandem_last_error_message();
    std::vector<char> expected = content;
    for (std::size_t at = 0; !whole && at < content.size(); ++at)
      if ((kept >> (at / kPayloadBytes % 3) & 1) == 0) expected[at] = 0;
    EXPECT_EQ(slurp(expected == content ? output_ : partial()), expected) << kept;
  }
}

}  // namespace
