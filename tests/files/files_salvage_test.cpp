// SPDX-License-Identifier: Apache-2.0
// Decode with salvage: of a set that has lost too much, everything that can be had, and a map of the rest.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/tools.h"
#include "tests/files/kit.hpp"

namespace {

constexpr std::uint32_t kBlockBytes = 128, kPayloadBytes = kBlockBytes - 16;

// Which bytes are lost, and what is written for them: files_history_test.
class Salvage : public Files {
 protected:
  tandem_status salvage(bool force = false) {
    const std::string output = output_.string();
    auto options = sized<tandem_files_decode_options>();
    options.output_path = output.c_str();
    options.force = force ? 1 : 0;
    options.no_sync = 1;
    options.salvage = 1;
    result_ = sized<tandem_files_result>();
    return tandem_files_decode(context_, Search(shards_), &options, &result_);
  }

  fs::path partial() const { return output_.string() + ".partial"; }

  fs::path output_;

  void SetUp() override {
    Files::SetUp();
    output_ = root_ / "output";
  }
};

// What exists stays: the whole file also with force, what an earlier call has salvaged without it.
TEST_F(Salvage, NeverReplacesAWholeFileByOneWithHoles) {
  const std::vector<char> content = paint(2000), whole = paint(500, 2), older = paint(300, 3);
  encode(content, 4, 1, kBlockBytes);
  EXPECT_EQ(Search(shards_).set(0).any_k_suffice, 1);
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

// par1 is not MDS: k blocks need not be enough. What is called good is, and what is called enough can be decoded.
TEST_F(Salvage, OfAMatrixThatIsNotMds) {
  const std::vector<char> content = paint(10 * 3 * kPayloadBytes);
  spill(root_ / "source", content);
  unsigned too_few_of_three = 0;
  for (unsigned kept = 1; kept < 128; ++kept) {
    fs::remove_all(shards_);
    tandem_files_encode_options encoding = encode_options(root_ / "source", 3, 4, kBlockBytes);
    encoding.matrix = TANDEM_MATRIX_PAR1;
    encoding.allow_non_mds = 1;
    ASSERT_EQ(tandem_files_encode(context_, &encoding, nullptr), TANDEM_OK) << tandem_last_error_message();
    for (unsigned index = 0; index < 7; ++index)
      if ((kept >> index & 1) == 0) fs::remove(shard(index));
    fs::remove(partial());
    fs::remove(output_);
    const tandem_files_set set = Search(shards_).set(0);
    const bool whole = decode(shards_) == TANDEM_OK;
    ASSERT_EQ(set.shards_suffice != 0, whole) << kept << ": " << tandem_last_error_message();
    ASSERT_EQ(set.any_k_suffice, 0);
    if (!whole && set.shard_count >= 3) {
      ++too_few_of_three;
      EXPECT_EQ(std::string(tandem_last_error_message()).find("3 are needed"), std::string::npos) << kept;
    }
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
  EXPECT_GT(too_few_of_three, 0u);
}

}  // namespace
