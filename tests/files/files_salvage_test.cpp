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

constexpr std::uint32_t kBlockBytes = 128, kPayloadBytes = kBlockBytes - 16, kRecordBytes = 4096;

class Salvage : public Files {
 protected:
  tandem_status salvage(bool force = false, std::int32_t dry_run = 0) {
    const std::string path = shards_.string(), output = output_.string();
    const char *pointer = path.c_str();
    tandem_files_search *search = nullptr;
    EXPECT_EQ(tandem_files_search_create(&pointer, 1, &search), TANDEM_OK) << tandem_last_error_message();
    tandem_files_decode_options options = {};
    options.struct_bytes = sizeof options;
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
    result_ = {};
    result_.struct_bytes = sizeof result_;
    const tandem_status status = tandem_files_decode(context_, search, &options, &result_);
    tandem_files_search_destroy(search);
    return status;
  }

  fs::path partial() const { return output_.string() + ".partial"; }

  // Geometry, as FORMAT.md has it; not the library's.
  struct Geometry {
    std::uint64_t content_bytes;
    std::uint32_t k, m;
    std::uint64_t stripe_bytes() const { return std::uint64_t{k} * kPayloadBytes; }
    std::uint64_t stripe_count() const { return (content_bytes + stripe_bytes() - 1) / stripe_bytes(); }
    std::uint64_t payload_of(std::uint64_t stripe) const {
      const std::uint64_t bytes = std::min(content_bytes - stripe * stripe_bytes(), stripe_bytes());
      return (bytes + k - 1) / k;
    }
  };

  void damage_block(std::uint32_t shard, std::uint64_t stripe, const Geometry &of, std::mt19937_64 &random) {
    const std::uint64_t at = random() % (of.payload_of(stripe) + 16);
    damage(shard, kRecordBytes + stripe * kBlockBytes + at, 1);
  }

  // By a count of the intact blocks of each stripe: which content bytes can be had.
  std::vector<bool> recoverable_bytes(const Geometry &of,
                                      const std::set<std::pair<std::uint32_t, std::uint64_t>> &bad) const {
    std::vector<bool> good(of.content_bytes, true);
    for (std::uint64_t stripe = 0; stripe < of.stripe_count(); ++stripe) {
      std::uint32_t intact = 0;
      for (std::uint32_t shard = 0; shard < of.k + of.m; ++shard) intact += bad.contains({shard, stripe}) ? 0 : 1;
      if (intact >= of.k) continue;
      const std::uint64_t payload = of.payload_of(stripe);
      for (std::uint32_t shard = 0; shard < of.k; ++shard) {
        if (!bad.contains({shard, stripe})) continue;
        const std::uint64_t first = stripe * of.stripe_bytes() + shard * payload;
        const std::uint64_t stripe_end = std::min((stripe + 1) * of.stripe_bytes(), of.content_bytes);
        for (std::uint64_t at = first; at < std::min(first + payload, stripe_end); ++at) good[at] = false;
      }
    }
    return good;
  }

  void expect_map(const std::vector<bool> &good, const std::vector<char> &content) {
    const bool whole = std::find(good.begin(), good.end(), false) == good.end();
    EXPECT_EQ(fs::exists(output_), whole);
    EXPECT_EQ(fs::exists(partial()), !whole);
    std::vector<bool> told(content.size(), true);
    std::uint64_t bytes = 0, last_end = 0;
    for (const auto &[first, count] : map_) {
      ASSERT_LE(first + count, content.size());
      if (first != 0) {
        ASSERT_GT(first, last_end);  // in order, and no two that touch
      }
      last_end = first + count;
      bytes += count;
      for (std::uint64_t at = first; at < first + count; ++at) told[at] = false;
    }
    EXPECT_EQ(result_.hole_bytes, bytes);
    EXPECT_TRUE(told == good);
    const std::vector<char> output = slurp(whole ? output_ : partial());
    ASSERT_EQ(output.size(), content.size());
    for (std::size_t at = 0; at < content.size(); ++at)
      ASSERT_EQ(output[at], good[at] ? content[at] : 0) << "byte " << at << " of " << content.size();
  }

  Map map_;
  fs::path output_;

  void SetUp() override {
    Files::SetUp();
    output_ = root_ / "output";
  }
};

TEST_F(Salvage, WritesWhatTheIntactBlocksDetermineAndNoMore) {
  std::mt19937_64 random(1);
  const std::pair<std::uint32_t, std::uint32_t> codes[] = {{4, 2}, {10, 4}, {3, 0}, {1, 2}, {5, 5}};
  for (const auto &[k, m] : codes)
    for (int round = 0; round < 8; ++round) {
      SCOPED_TRACE("k " + std::to_string(k) + ", m " + std::to_string(m) + ", round " + std::to_string(round));
      fs::remove_all(shards_);
      fs::remove(output_);
      fs::remove(partial());
      const Geometry of{1 + random() % (25 * k * kPayloadBytes), k, m};
      const std::vector<char> content = paint(of.content_bytes, static_cast<unsigned>(random()));
      encode(content, k, m, kBlockBytes);
      std::set<std::pair<std::uint32_t, std::uint64_t>> bad;
      // Whole shards, ends of files, and single blocks: from little to most.
      const std::uint64_t per_mille = std::uint64_t{50} << (random() % 4);
      for (std::uint32_t shard = 0; shard < k + m; ++shard) {
        const std::uint64_t kind = random() % 6;
        if (kind == 0 && shard != 0) {
          fs::remove(this->shard(shard));
          for (std::uint64_t stripe = 0; stripe < of.stripe_count(); ++stripe) bad.emplace(shard, stripe);
          continue;
        }
        for (std::uint64_t stripe = 0; stripe < of.stripe_count(); ++stripe)
          if (random() % 1000 < per_mille) {
            damage_block(shard, stripe, of, random);
            bad.emplace(shard, stripe);
          }
        if (kind == 1) {
          const std::uint64_t kept = random() % of.stripe_count();
          fs::resize_file(this->shard(shard), kRecordBytes + kept * kBlockBytes);
          for (std::uint64_t stripe = kept; stripe < of.stripe_count(); ++stripe) bad.emplace(shard, stripe);
        }
      }
      const std::vector<bool> good = recoverable_bytes(of, bad);
      const tandem_status status = salvage();
      if (std::find(good.begin(), good.end(), true) == good.end()) {
        EXPECT_EQ(status, TANDEM_ERROR_NOT_RECOVERABLE);
        EXPECT_FALSE(fs::exists(partial()));
        continue;
      }
      ASSERT_EQ(status, TANDEM_OK) << tandem_last_error_message();
      expect_map(good, content);
    }
}

// Five stripes are in no file: they are holes without a look.
TEST_F(Salvage, FilesThatAreAllTooShort) {
  const Geometry of{20 * 4 * kPayloadBytes - 7, 4, 2};
  const std::vector<char> content = paint(of.content_bytes);
  encode(content, 4, 2, kBlockBytes);
  std::set<std::pair<std::uint32_t, std::uint64_t>> bad;
  for (std::uint32_t shard = 0; shard < 6; ++shard) {
    fs::resize_file(this->shard(shard), kRecordBytes + 15 * kBlockBytes);
    for (std::uint64_t stripe = 15; stripe < 20; ++stripe) bad.emplace(shard, stripe);
  }
  ASSERT_EQ(salvage(), TANDEM_OK) << tandem_last_error_message();
  expect_map(recoverable_bytes(of, bad), content);
  EXPECT_EQ(map_, (Map{{15 * of.stripe_bytes(), of.content_bytes - 15 * of.stripe_bytes()}}));
}

TEST_F(Salvage, OneDataShardIsBetterThanNothingAndParityAloneIsNothing) {
  const Geometry of{3 * 4 * kPayloadBytes, 4, 2};
  const std::vector<char> content = paint(of.content_bytes);
  encode(content, 4, 2, kBlockBytes);
  for (const unsigned index : {0u, 1u, 3u}) fs::remove(shard(index));
  EXPECT_EQ(decode(shards_), TANDEM_ERROR_NOT_RECOVERABLE);
  ASSERT_EQ(salvage(false, 1), TANDEM_OK) << tandem_last_error_message();
  EXPECT_FALSE(fs::exists(partial()));
  EXPECT_EQ(result_.hole_bytes, 9 * kPayloadBytes);
  ASSERT_EQ(salvage(), TANDEM_OK) << tandem_last_error_message();
  std::set<std::pair<std::uint32_t, std::uint64_t>> bad;
  for (const std::uint32_t index : {0u, 1u, 3u})
    for (std::uint64_t stripe = 0; stripe < 3; ++stripe) bad.emplace(index, stripe);
  expect_map(recoverable_bytes(of, bad), content);
  fs::remove(partial());
  fs::remove(shard(2));
  EXPECT_EQ(salvage(), TANDEM_ERROR_NOT_RECOVERABLE);
  EXPECT_NE(std::string(tandem_last_error_message()).find("2 of 6 shards found, 4 are needed"), std::string::npos);
  EXPECT_EQ(entries(root_), 2u);  // source, shards
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
  EXPECT_NE(std::string(tandem_last_error_message()).find("use --force"), std::string::npos);
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
  tandem_files_search *search = nullptr;
  const std::string path = shards_.string();
  const char *pointer = path.c_str();
  ASSERT_EQ(tandem_files_search_create(&pointer, 1, &search), TANDEM_OK);
  tandem_files_decode_options options = {};
  options.struct_bytes = sizeof options;
  options.output_descriptor = STDOUT_FILENO;
  options.salvage = 1;
  EXPECT_EQ(tandem_files_decode(context_, search, &options, nullptr), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(tandem_last_error_message()).find("output_path is NULL"), std::string::npos);
  tandem_files_search_destroy(search);
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
    std::vector<bool> good(content.size(), true);
    for (std::size_t at = 0; !whole && at < content.size(); ++at)
      good[at] = (kept >> (at / kPayloadBytes % 3) & 1) != 0;
    expect_map(good, content);
  }
}

}  // namespace
