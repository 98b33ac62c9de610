// SPDX-License-Identifier: Apache-2.0
// tandem_files_resize: what it refuses, and where new shards go. files_history_test.cpp has kills and damage.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <regex>
#include <sstream>

#include "tandem/diagnose.h"
#include "tandem/tools.h"
#include "tests/files/kit.hpp"

namespace {

class Resize : public Files {
 protected:
  tandem_status resize(const std::vector<fs::path> &paths, std::uint32_t m, const std::vector<fs::path> &folders = {}) {
    const Paths names(folders);
    auto options = sized<tandem_files_repair_options>();
    options.no_sync = 1;
    options.dry_run = dry_run_;
    options.lock_wait_seconds = lock_wait_seconds_;
    collect_notes(options);
    if (!folders.empty()) {
      options.folders = names.data();
      options.folder_count = names.size();
    }
    done_ = sized<tandem_files_repair_result>();
    return tandem_files_resize(context_, Search(paths), m, &options, &done_);
  }
  tandem_status resize(std::uint32_t m) { return resize({shards_}, m); }

  void encode_with(std::uint32_t k, std::uint32_t m, std::int32_t matrix, bool allow_non_mds = false) {
    fs::remove_all(shards_);
    spill(root_ / "source", paint(3001));  // the last payload: 121 bytes, or 122
    auto options = encode_options(root_ / "source", k, m, 256);
    options.matrix = matrix;
    options.allow_non_mds = allow_non_mds;
    ASSERT_EQ(tandem_files_encode(context_, &options, nullptr), TANDEM_OK) << tandem_last_error_message();
  }

  void expect_intact(std::uint32_t m) {
    EXPECT_EQ(verify().state, TANDEM_FILES_INTACT);
    EXPECT_EQ(Search(shards_).set(0).m, m);
    EXPECT_EQ(Search(shards_).set(0).file_count, Search(shards_).set(0).k + m);
  }

  tandem_files_repair_result done_ = {};
  bool dry_run_ = false;
  std::uint32_t lock_wait_seconds_ = 0;
};

// Rows of a matrix as bytes; nothing if there is no such code.
std::string rows(std::int32_t matrix, std::uint32_t k, std::uint32_t m) {
  auto options = sized<tandem_codec_options>();
  options.k = k;
  options.m = m;
  options.matrix = matrix;
  options.allow_non_mds = 1;
  tandem_codec *codec = nullptr;
  if (tandem_codec_create(&options, &codec) != TANDEM_OK) return "";
  std::string bytes(std::size_t{k} * m * (tandem_matrix_traits(matrix) != 0 ? 2 : 1), 0);
  EXPECT_EQ(tandem_codec_coefficients(codec, bytes.data(), bytes.size()), TANDEM_OK);
  tandem_codec_destroy(codec);
  return bytes;
}

bool rows_stay(std::int32_t matrix) {
  for (const std::uint32_t k : {2u, 3u, 5u, 10u, 17u})
    for (std::uint32_t m = 2; m < 12; ++m) {
      const std::string more = rows(matrix, k, m), fewer = rows(matrix, k, m - 1);
      if (!more.empty() && !more.starts_with(fewer)) return false;
    }
  return true;
}

TEST_F(Resize, WorksForMatricesWithRowsThatStayAsThePageSaysAndAllDecode) {
  std::ifstream page(TANDEM_TEST_MATRICES_PAGE);
  std::stringstream text;
  text << page.rdbuf();
  std::smatch section;
  const std::string all = text.str();
  ASSERT_TRUE(std::regex_search(all, section, std::regex("Rows do not depend on m: ([^.]*)\\.")));
  const std::string named = section[1];
  unsigned count = 0;
  for (std::int32_t matrix = 0; tandem_matrix_name(matrix) != nullptr; ++matrix) {
    if (matrix == TANDEM_MATRIX_CUSTOM || (tandem_matrix_traits(matrix) & TANDEM_MATRIX_HAS_LOCAL_GROUPS) != 0)
      continue;
    const std::string name = tandem_matrix_name(matrix);
    EXPECT_EQ(rows_stay(matrix), named.find("`" + name + "`") != std::string::npos) << name;
    count += rows_stay(matrix);
    encode_with(5, 1, matrix);
    const Contents before = contents(shards_);
    fs::remove(shard(0));
    ASSERT_EQ(decode(shards_), TANDEM_OK) << name << ": " << tandem_last_error_message();
    EXPECT_EQ(slurp(root_ / "output"), paint(3001));
    EXPECT_EQ(result_.matrix, matrix);
    spill(shard(0), before.at("source.000.tandem"));
    EXPECT_EQ(resize(2), rows_stay(matrix) ? TANDEM_OK : TANDEM_ERROR_UNSUPPORTED) << name;
    if (!rows_stay(matrix)) {
      expect_message("the rows of matrix " + name + " depend on m");
      EXPECT_TRUE(contents(shards_) == before);
      continue;
    }
    expect_intact(2);
    const Contents grown = contents(shards_);
    EXPECT_EQ(resize(1), TANDEM_OK) << tandem_last_error_message();
    EXPECT_TRUE(contents(shards_) == before) << name;
    fs::remove_all(shards_);
    encode_with(5, 2, matrix);
    for (const auto &[file, bytes] : contents(shards_))  // the same blocks as those of an encode, but for the set's id
      for (std::size_t block = 4096; block + 4096 < bytes.size(); block += 256)
        EXPECT_TRUE(
            std::equal(bytes.begin() + static_cast<std::ptrdiff_t>(block),
                       bytes.begin() + static_cast<std::ptrdiff_t>(std::min(block + 256, bytes.size() - 4096)) - 16,
                       grown.at(file).begin() + static_cast<std::ptrdiff_t>(block)))
            << name << " " << file << " at " << block;
  }
  EXPECT_EQ(count, 12u);
}

TEST_F(Resize, ReadsDataOnceAndLeavesBlocksAlone) {
  encode(paint(100000), 4, 2, 4096);
  const Contents before = contents(shards_);
  ASSERT_EQ(resize(4), TANDEM_OK) << tandem_last_error_message();
  const std::uint64_t file_bytes = fs::file_size(shard(0));
  EXPECT_EQ(done_.read_bytes, 6 * (file_bytes - 8192));  // 4 data shards, and the 2 new ones read back
  EXPECT_EQ(done_.written_bytes, 2 * file_bytes + 6 * 8192);
  EXPECT_EQ(done_.rebuilt_file_count, 2u);
  EXPECT_EQ(done_.mended_file_count, 6u);
  for (const auto &[name, bytes] : before)
    EXPECT_TRUE(std::equal(bytes.begin() + 4096, bytes.end() - 4096, contents(shards_).at(name).begin() + 4096));
  dry_run_ = true;
  const Contents now = contents(shards_);
  ASSERT_EQ(resize(1), TANDEM_OK);
  EXPECT_EQ(done_.removed_file_count, 3u);
  EXPECT_TRUE(contents(shards_) == now);
  expect_intact(4);
}

// What is refused, and what is left: files_history_test.
TEST_F(Resize, ARefusalNamesTheDamage) {
  encode(paint(3000), 3, 2, 256);
  damage(1, 4096 + 300, 8);
  ASSERT_EQ(resize(1), TANDEM_ERROR_DAMAGED);
  expect_message("has 1 damaged block; repair the set first");
  ASSERT_EQ(resize(3), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(done_.left_block_count, 1u);
  EXPECT_EQ(done_.state, TANDEM_FILES_RECOVERABLE);
  damage(1, 4096 + 300, 8);  // back
  fs::remove(shard(4));
  ASSERT_EQ(resize(4), TANDEM_ERROR_DAMAGED);
  expect_message("shard 4 is missing; repair the set first");
  ASSERT_EQ(resize(1), TANDEM_OK) << tandem_last_error_message();  // it would be removed
  ASSERT_EQ(resize({shards_}, 1, {root_ / "up" / "x"}), TANDEM_ERROR_INVALID_ARGUMENT);
  expect_message("are for new shards, and none is to be made");
  for (unsigned i = 0; i < 3; ++i) damage(i, 4096 + 10, 8);
  ASSERT_EQ(resize(2), TANDEM_ERROR_NOT_RECOVERABLE);
  expect_message("cannot be computed: other blocks of its stripe");
  fs::resize_file(shard(0), fs::file_size(shard(0)) - 1);
  ASSERT_EQ(resize(2), TANDEM_ERROR_DAMAGED);
  expect_message(" are right; repair the set first");
}

// A forged or rotten header, with right checksums.
TEST_F(Resize, OneFileThatLiesAboutMChangesNothing) {
  for (const std::int32_t matrix : {TANDEM_MATRIX_ISAL_CAUCHY, TANDEM_MATRIX_RAID6})
    for (const unsigned liar : {0u, 4u})
      for (const unsigned index : {liar, 200u})
        for (const std::uint64_t m : {0, 1, 3, 250, 1000}) {
          if (index >= 3 + m) continue;
          SCOPED_TRACE(std::to_string(liar) + " says shard " + std::to_string(index) + ", m = " + std::to_string(m));
          encode_with(3, 2, matrix);
          const Contents honest = contents(shards_);
          forge(shard(liar), 8, 3 + m > 256 ? 3 : 2, 4);
          forge(shard(liar), 36, m, 4);
          forge(shard(liar), 48, index, 4);
          ASSERT_EQ(decode(shards_), TANDEM_OK) << tandem_last_error_message();
          EXPECT_EQ(slurp(root_ / "output"), paint(3001));
          if (repair({shards_}) != TANDEM_OK) expect_message("File exists");  // the liar, of another set, has the name
          EXPECT_LE(entries(shards_), 6u);
          ASSERT_EQ(decode(shards_), TANDEM_OK) << tandem_last_error_message();
          if (index == liar && m < 1000 && matrix == TANDEM_MATRIX_ISAL_CAUCHY) {
            EXPECT_EQ(repaired_.state, TANDEM_FILES_RECOVERABLE);
            EXPECT_EQ(Search(shards_).set(0).m, 2u);
            ASSERT_EQ(resize(2), TANDEM_OK) << tandem_last_error_message();
            EXPECT_EQ(contents(shards_), honest);
          }
        }
}

TEST_F(Resize, WhatWasNotFoundOrHasChangedIsNoSuccess) {
  encode(paint(3000), 3, 2, 256);
  const Contents before = contents(shards_);
  fs::create_hard_link(shard(4), shards_ / "copy4");
  EXPECT_EQ(resize(1), TANDEM_ERROR_IO);
  expect_message("is still a shard of 3 + 2: run the same resize again");
  ASSERT_EQ(resize(1), TANDEM_OK) << tandem_last_error_message();
  expect_intact(1);
  for (const auto &[name, bytes] : before) spill(shards_ / name, bytes);
  ASSERT_EQ(resize({shard(0), shard(1), shard(2), shard(3)}, 0), TANDEM_OK) << tandem_last_error_message();
  EXPECT_NE(notes_.find("the former one again: 4"), std::string::npos) << notes_;
  for (const auto &[name, bytes] : before) spill(shards_ / name, bytes);
  const Search old(shards_);
  auto options = sized<tandem_files_repair_options>();
  ASSERT_EQ(tandem_files_resize(context_, old, 3, &options, &done_), TANDEM_OK) << tandem_last_error_message();
  const Contents now = contents(shards_);
  for (const std::uint32_t m : {1u, 4u}) {
    EXPECT_EQ(tandem_files_resize(context_, old, m, &options, &done_), TANDEM_ERROR_IO);
    expect_message("have changed since they were found; nothing is changed");
    EXPECT_TRUE(contents(shards_) == now);
  }
}

TEST_F(Resize, ALockedFolderOrAFileThatCannotBeWrittenChangesNothing) {
  encode(paint(3000), 3, 2, 256);
  const Contents before = contents(shards_);
  const int folder = open(shards_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(flock(folder, LOCK_EX), 0);
  lock_wait_seconds_ = 1;
  EXPECT_EQ(resize(1), TANDEM_ERROR_IO);
  expect_message("is locked by another process");
  close(folder);
  EXPECT_TRUE(contents(shards_) == before);
  // Root may write to every file.
  chmod(root_.c_str(), 0777);
  chmod(shards_.c_str(), 0777);
  for (unsigned i = 0; i < 5; ++i) chmod(shard(i).c_str(), i == 3 ? 0444 : 0666);
  for (const std::uint32_t m : {1u, 3u}) {
    const NotRoot user;
    EXPECT_EQ(resize(m), TANDEM_ERROR_IO);
    expect_message("source.003.tandem, and its header must get the new m; nothing is changed");
  }
  EXPECT_TRUE(contents(shards_) == before);
}

TEST_F(Resize, NumbersOutOfRangeAreRefused) {
  encode(paint(3000), 3, 2, 256);
  EXPECT_EQ(resize(254), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(resize(UINT32_MAX), TANDEM_ERROR_INVALID_ARGUMENT);
  encode_with(22, 3, TANDEM_MATRIX_ISAL_VANDERMONDE);
  EXPECT_EQ(resize(4), TANDEM_ERROR_NOT_MDS);
  encode_with(22, 4, TANDEM_MATRIX_ISAL_VANDERMONDE, true);
  EXPECT_EQ(resize(5), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(resize(3), TANDEM_OK) << tandem_last_error_message();
  expect_intact(3);
}

TEST_F(Resize, FoldersOfNewShardsAndFewerShardsThanFolders) {
  std::vector<fs::path> disks;
  for (int i = 0; i < 5; ++i) disks.push_back(root_ / ("disk" + std::to_string(i)));
  spill(root_ / "source", paint(3000));
  encode_into(disks, encode_options(root_ / "source", 3, 2, 256));
  ASSERT_EQ(resize(disks, 3), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(entries(disks[0]), 2u);  // as encode would
  ASSERT_EQ(resize(disks, 1), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(entries(disks[0]), 1u);
  EXPECT_EQ(entries(disks[4]), 0u);
  ASSERT_EQ(resize(disks, 3, {root_ / "up" / "x", root_ / "up" / "y"}), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(entries(root_ / "up" / "x") + entries(root_ / "up" / "y"), 2u);
  disks.push_back(root_ / "up" / "x");
  disks.push_back(root_ / "up" / "y");
  fs::remove_all(disks[1]);
  fs::create_directory(disks[1]);
  ASSERT_EQ(repair(disks), TANDEM_OK);
  EXPECT_EQ(repaired_.state, TANDEM_FILES_INTACT);
  EXPECT_EQ(entries(disks[1]), 1u);  // the headers say that each shard has a folder of its own
  fs::remove_all(root_ / "up" / "y");
  fs::create_directory(root_ / "up" / "y");
  fs::remove_all(disks[4]);
  disks.erase(disks.begin() + 4);
  ASSERT_EQ(repair(disks), TANDEM_OK);
  EXPECT_EQ(entries(root_ / "up" / "y"), 1u);
}

}  // namespace
