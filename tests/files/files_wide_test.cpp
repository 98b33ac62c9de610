// SPDX-License-Identifier: Apache-2.0
// Sets of more than 256 shards, over GF(2^16), through the C API.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "files/format.hpp"
#include "tandem/tools.h"
#include "tests/files/kit.hpp"

using namespace tandem::files;

namespace {

constexpr std::uint32_t kBlock = 128, kPayload = kBlock - kCheckBytes;

struct Code {
  std::uint32_t k, m;
  std::int32_t matrix;
  std::uint32_t shard_count() const { return k + m; }
};
constexpr Code kWide = {300, 20, TANDEM_MATRIX_LEOPARD16};

class WideSets : public Files {
 protected:
  // All files of a set are open at once, and shells limit a process to 1024.
  void SetUp() override {
    constexpr rlim_t kNeeded = TANDEM_FILES_MAX_SHARDS + 200;
    Files::SetUp();
    rlimit limit = {};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max < kNeeded) GTEST_SKIP() << "NOT RUN: at most " << limit.rlim_max << " open files";
    enough_.emplace(std::max(limit.rlim_cur, kNeeded));
  }

  tandem_files_encode_options options_of(const Code &code, std::uint32_t block_bytes = kBlock) {
    tandem_files_encode_options options = encode_options(root_ / "source", code.k, code.m, block_bytes);
    options.matrix = code.matrix;
    options.allow_non_mds = 1;  // par2
    return options;
  }

  tandem_status encode_wide(const Code &code, const std::vector<char> &content, std::uint32_t block_bytes = kBlock) {
    spill(root_ / "source", content);
    const tandem_files_encode_options options = options_of(code, block_bytes);
    result_ = sized<tandem_files_result>();
    return tandem_files_encode(context_, &options, &result_);
  }

  void expect_decodes(const std::vector<char> &content) {
    ASSERT_EQ(decode(shards_), TANDEM_OK) << tandem_last_error_message();
    ASSERT_EQ(slurp(root_ / "output"), content);
  }

  // `count` shards of the set, other ones for each seed.
  static std::vector<unsigned> some_shards(const Code &code, std::uint32_t count, unsigned seed) {
    std::vector<unsigned> shards(code.shard_count());
    for (unsigned i = 0; i < shards.size(); ++i) shards[i] = i;
    std::mt19937 random(seed);
    std::shuffle(shards.begin(), shards.end(), random);
    shards.resize(count);
    return shards;
  }

  void expect_one_full_life(const Code &code);

 private:
  std::optional<DescriptorLimit> enough_;
};

// Two stripes, the last one short. Any m shards go, then blocks of m others rot; what repair makes is what was there.
void WideSets::expect_one_full_life(const Code &code) {
  const std::vector<char> content = paint(code.k * kPayload + code.k * 5 + 1);
  ASSERT_EQ(encode_wide(code, content), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(result_.stripe_count, 2u);
  const Contents whole = contents(shards_);
  ASSERT_EQ(whole.size(), code.shard_count());
  for (unsigned i = 0; i < code.shard_count(); ++i) ASSERT_TRUE(whole.contains(shard(i).filename())) << i;
  expect_decodes(content);

  const std::vector<unsigned> lost = some_shards(code, code.m, 1);
  for (const unsigned index : lost) fs::remove(shard(index));
  EXPECT_EQ(verify().worst_bad_count, code.m);
  expect_decodes(content);
  ASSERT_EQ(repair({shards_}), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(repaired_.rebuilt_file_count, code.m);
  EXPECT_EQ(repaired_.state, TANDEM_FILES_INTACT);
  EXPECT_EQ(contents(shards_), whole);

  const std::vector<unsigned> rotten = some_shards(code, code.m, 2);
  for (const unsigned index : rotten) damage(index, 4096 + kBlock * (index % 2) + index % 6, 1);
  EXPECT_EQ(verify().bad_block_count, code.m);
  expect_decodes(content);
  ASSERT_EQ(repair({shards_}), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(repaired_.mended_block_count, code.m);
  EXPECT_EQ(contents(shards_), whole);

  for (const unsigned index : lost) fs::remove(shard(index));
  unsigned one_more = 0;
  while (std::find(lost.begin(), lost.end(), one_more) != lost.end()) ++one_more;
  fs::remove(shard(one_more));
  EXPECT_EQ(decode(shards_), TANDEM_ERROR_NOT_RECOVERABLE);
  expect_message(std::to_string(code.k - 1) + " of " + std::to_string(code.shard_count()) + " shards found, " +
                 std::to_string(code.k) + " are needed");
}

TEST_F(WideSets, Of320Shards) { expect_one_full_life(kWide); }
TEST_F(WideSets, Of3200Shards) { expect_one_full_life({3000, 200, TANDEM_MATRIX_LEOPARD16}); }
TEST_F(WideSets, OfMoreParityThanData) { expect_one_full_life({40, 300, TANDEM_MATRIX_REED_SOLOMON_SIMD}); }
TEST_F(WideSets, OfADenseMatrix) { expect_one_full_life({257, 3, TANDEM_MATRIX_PAR2}); }

// The default block, several workers, and stripes coded in pieces.
TEST_F(WideSets, FullStripesOfTheDefaultBlock) {
  const std::vector<char> content = paint(4 * 300 * 4080 + 12345);
  ASSERT_EQ(encode_wide(kWide, content, 0), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(result_.block_bytes, 4096u);
  EXPECT_GT(result_.thread_count, 1u);
  for (const unsigned index : some_shards(kWide, kWide.m, 5)) fs::remove(shard(index));
  expect_decodes(content);
  ASSERT_EQ(repair({shards_}), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(verify().state, TANDEM_FILES_INTACT);
}

TEST_F(WideSets, FoldersInTurnAreRestored) {
  std::vector<fs::path> folders;
  for (unsigned i = 0; i < 7; ++i) folders.push_back(root_ / ("disk" + std::to_string(i)));
  spill(root_ / "source", paint(5000));
  encode_into(folders, options_of(kWide));
  for (const unsigned index : some_shards(kWide, 20, 6)) fs::remove(folders[index % 7] / shard(index).filename());
  ASSERT_EQ(repair(folders), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(repaired_.rebuilt_file_count, 20u);
  for (unsigned i = 0; i < 320; ++i) EXPECT_TRUE(fs::exists(folders[i % 7] / shard(i).filename())) << i;
}

TEST_F(WideSets, ANarrowSetReplacesAWideOneAndTheOtherWayRound) {
  ASSERT_EQ(encode_wide(kWide, paint(5000, 1)), TANDEM_OK) << tandem_last_error_message();
  for (const Code &code : {Code{4, 2, TANDEM_MATRIX_ISAL_CAUCHY}, Code{1020, 4, TANDEM_MATRIX_LEOPARD16}, kWide}) {
    spill(root_ / "source", paint(5000, code.k));
    tandem_files_encode_options options = options_of(code);
    options.force = 1;
    ASSERT_EQ(tandem_files_encode(context_, &options, nullptr), TANDEM_OK) << tandem_last_error_message();
    EXPECT_EQ(entries(shards_), code.shard_count());
    expect_decodes(paint(5000, code.k));
  }
}

TEST_F(WideSets, WhatIsTooWideIsRefusedBeforeAnythingIsWritten) {
  const auto refused = [&](tandem_status status, const Code &code, const std::string &words,
                           std::uint32_t block_bytes = kBlock, const std::string &name = "") {
    spill(root_ / "source", paint(100));
    tandem_files_encode_options options = options_of(code, block_bytes);
    if (!name.empty()) options.name = name.c_str();
    EXPECT_EQ(tandem_files_encode(context_, &options, nullptr), status);
    expect_message(words);
    options.source_path = nullptr;
    options.name = name.empty() ? "source" : name.c_str();
    tandem_files_writer *writer = nullptr;
    EXPECT_EQ(tandem_files_writer_begin(context_, &options, 100, nullptr, &writer), status);
    expect_message(words);
    EXPECT_FALSE(fs::exists(shards_));
  };
  refused(TANDEM_ERROR_INVALID_ARGUMENT, {4000, 97, TANDEM_MATRIX_LEOPARD16},
          "k = 4000 and m = 97; k is at least 1 and k + m at most 4096");
  refused(TANDEM_ERROR_INVALID_ARGUMENT, {60000, 5000, TANDEM_MATRIX_LEOPARD16}, "k = 60000 and m = 5000");
  refused(TANDEM_ERROR_INVALID_ARGUMENT, {UINT32_MAX, 2, TANDEM_MATRIX_LEOPARD16}, "k = 4294967295 and m = 2");
  refused(TANDEM_ERROR_INVALID_ARGUMENT, {4000, 96, TANDEM_MATRIX_LEOPARD16},
          "4096 shards of 131072 bytes a block are 536870912 bytes a stripe; at most 268435456 are possible",
          128 << 10);
  refused(TANDEM_ERROR_INVALID_ARGUMENT, {300, 20, TANDEM_MATRIX_ISAL_CAUCHY}, "256");
  refused(TANDEM_ERROR_INVALID_ARGUMENT, {1000, 1, TANDEM_MATRIX_LEOPARD16}, "more than 243 bytes", kBlock,
          std::string(244, 'n'));
  tandem_files_encode_options options = options_of(kWide);
  options.folder_count = 4097;
  EXPECT_EQ(tandem_files_encode(context_, &options, nullptr), TANDEM_ERROR_INVALID_ARGUMENT);
  expect_message("4097 folders given; 1 to k + m are possible");
}

TEST_F(WideSets, TheWidestSetHasTheLongestNames) {
  const Code code = {4000, 96, TANDEM_MATRIX_LEOPARD16};
  const std::vector<char> content = paint(10001);
  spill(root_ / "source", content);
  tandem_files_encode_options options = options_of(code);
  const std::string name(243, 'n');
  options.name = name.c_str();
  ASSERT_EQ(tandem_files_encode(context_, &options, nullptr), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(entries(shards_), 4096u);
  EXPECT_TRUE(fs::exists(shards_ / (name + ".4095.tandem")));
  for (unsigned i = 3000; i < 3096; ++i) fs::remove(shards_ / (name + "." + std::to_string(i) + ".tandem"));
  expect_decodes(content);
  ASSERT_EQ(repair({shards_}), TANDEM_OK) << tandem_last_error_message();
  EXPECT_TRUE(fs::exists(shards_ / (name + ".3095.tandem")));
}

// 64 files: no set of 320 can be written, and each can be read. What repair has open at once is counted before it
// begins.
TEST_F(WideSets, AProcessThatMayOpenFewFiles) {
  const std::vector<char> content = paint(2 * 300 * kPayload);
  spill(root_ / "source", content);
  {
    const DescriptorLimit few(64);
    const tandem_files_encode_options options = options_of(kWide);
    EXPECT_EQ(tandem_files_encode(context_, &options, nullptr), TANDEM_ERROR_IO);
    expect_message("cannot open 329 more files at once, for 320 shard files and 1 folder: Too many");
    expect_message("this process may have 64 files open");
    EXPECT_FALSE(fs::exists(shards_));
  }
  ASSERT_EQ(encode_wide(kWide, content), TANDEM_OK) << tandem_last_error_message();
  const Contents whole = contents(shards_);
  for (const unsigned index : some_shards(kWide, 20, 7)) fs::remove(shard(index));
  const DescriptorLimit few(64);
  expect_decodes(content);
  EXPECT_EQ(verify().missing_shard_count, 20u);
  ASSERT_EQ(repair({shards_}), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(contents(shards_), whole);
  for (const unsigned index : some_shards(kWide, 100, 8)) damage(index, 100, 1);
  const Contents damaged = contents(shards_);
  EXPECT_EQ(repair({shards_}), TANDEM_ERROR_IO);
  expect_message(
      "cannot open 109 more files at once, for 100 shard files to be mended or rebuilt in 1 folder: Too many");
  EXPECT_EQ(contents(shards_), damaged);
}

// Records with right checksums and wrong numbers, in every file.
TEST_F(WideSets, HostileRecordsAreNamedWithTheirNumbers) {
  ASSERT_EQ(encode_wide(kWide, paint(5000)), TANDEM_OK) << tandem_last_error_message();
  const Contents whole = contents(shards_);
  fs::create_directory(root_ / "hostile");
  struct Lie {
    std::size_t field;
    std::uint32_t value;
    std::string words;
  };
  for (const auto &[field, value, words] :
       {Lie{32, 65535, "k = 65535 and m = 20"}, Lie{36, UINT32_MAX - 299, "k = 300 and m = 4294966996"},
        Lie{52, 1 << 24, "320 shards of 16777216 bytes a block are 5368709120 bytes a stripe"},
        Lie{48, 320, "shard 320 of 320"}, Lie{60, 321, "320 shards lie in 321 folders"},
        Lie{8, 2, "320 shards in a record of version 2"}}) {
    for (const unsigned index : {0u, 319u}) {
      const fs::path changed = root_ / "hostile" / shard(index).filename();
      spill(changed, whole.at(shard(index).filename()));
      forge(changed, field, value, 4);
    }
    EXPECT_EQ(decode(root_ / "hostile"), TANDEM_ERROR_NOT_RECOVERABLE);
    expect_message(words);
    expect_message("out of the format's limits");
  }

  // Names mean nothing, those with too many digits too.
  fs::rename(shard(5), shards_ / "source.18446744073709551621.tandem");
  fs::rename(shard(6), shards_ / "source.65542.tandem");
  fs::remove(shard(7));
  expect_decodes(paint(5000));
  ASSERT_EQ(repair({shards_}), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(slurp(shard(7)), whole.at("source.007.tandem"));
}

}  // namespace
