// SPDX-License-Identifier: Apache-2.0
// The set writer and the range reader of files.h. Counts inside the library how often content is hashed.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "files/format.hpp"
#include "tests/files/kit.hpp"

using namespace tandem::files;

namespace {

constexpr std::uint32_t kK = 4, kM = 2, kBlock = 256;
constexpr std::size_t kStripe = kK * (kBlock - 16);
constexpr std::uint8_t kId[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

struct DestroyWriter {
  void operator()(tandem_files_writer *writer) const { tandem_files_writer_destroy(writer); }
};
using Writer = std::unique_ptr<tandem_files_writer, DestroyWriter>;

class SetWriterTest : public Files {
 protected:
  tandem_files_encode_options writer_options(const fs::path &folder, std::uint32_t m = kM) {
    writer_folder_ = folder.string();
    writer_folder_pointer_ = writer_folder_.c_str();
    auto options = sized<tandem_files_encode_options>();
    options.k = kK;
    options.m = m;
    options.block_bytes = kBlock;
    options.folders = &writer_folder_pointer_;
    options.folder_count = 1;
    options.name = "source";
    options.no_sync = 1;
    options.set_id = kId;
    options.mode = 0644;
    return options;
  }

  tandem_status begin(const fs::path &folder, std::uint64_t content_bytes, Writer *writer_out, bool force = false,
                      tandem_files_set *told = nullptr) {
    tandem_files_encode_options options = writer_options(folder);
    options.force = force;
    tandem_files_writer *raw = nullptr;
    const tandem_status status = tandem_files_writer_begin(context_, &options, content_bytes, told, &raw);
    writer_out->reset(raw);
    return status;
  }

  static void write(const Writer &writer, const std::vector<char> &content, tandem_files_range part) {
    const std::uint64_t from = part.first * kStripe;
    const std::uint64_t bytes = std::min<std::uint64_t>(part.count * kStripe, content.size() - from);
    EXPECT_EQ(tandem_files_writer_write(writer.get(), part.first, part.count, content.data() + from, bytes), TANDEM_OK)
        << tandem_last_error_message();
  }

  // What encode makes of the content with the same set id.
  Contents encoded(const std::vector<char> &content) {
    spill(root_ / "source", content);
    const std::string source = (root_ / "source").string();
    tandem_files_encode_options options = writer_options(root_ / "encoded");
    options.source_path = source.c_str();
    EXPECT_EQ(tandem_files_encode(context_, &options, nullptr), TANDEM_OK) << tandem_last_error_message();
    Contents files = contents(root_ / "encoded");
    fs::remove_all(root_ / "encoded");
    return files;
  }

  void expect_refused(tandem_status status, const std::string &sentence) {
    EXPECT_EQ(status, TANDEM_ERROR_INVALID_ARGUMENT);
    expect_message(sentence);
  }

  std::string writer_folder_;
  const char *writer_folder_pointer_ = nullptr;
};

// ---- each byte is hashed once ----

std::uint64_t hashed(const std::function<void()> &work) {
  const std::uint64_t before = tandem::base::hashed_bytes();
  work();
  return tandem::base::hashed_bytes() - before;
}

TEST_F(SetWriterTest, EncodeHashesEachByteOnce) {
  constexpr std::uint64_t kStripes = 50;
  std::uint64_t with_one_stripe = 0;
  for (const std::uint64_t stripes : {std::uint64_t{1}, 1 + kStripes}) {
    fs::remove_all(shards_);
    const std::uint64_t bytes = hashed([&] { encode(paint(stripes * kStripe), kK, kM, kBlock); });
    if (stripes == 1) {
      with_one_stripe = bytes;  // and the records; their number does not change
    } else {                    // all payloads, what binds them to their places, and the hashes in the digest
      EXPECT_EQ(bytes - with_one_stripe, kStripes * ((kK + kM) * (kBlock - 16 + 56) + kK * 16));
    }
  }
}

TEST_F(SetWriterTest, DecodeAndVerifyHashWhatTheyReadOnce) {
  constexpr std::uint64_t kStripes = 50;
  constexpr std::uint64_t kBlockHash = kBlock - 16 + 56;
  encode(paint(kStripes * kStripe), kK, kM, kBlock);
  const std::uint64_t digest = kStripes * kK * 16 + 8;
  const auto search_only = [&] {
    return hashed([&] { EXPECT_EQ(decode(shards_, "ffff"), TANDEM_ERROR_INVALID_ARGUMENT); });
  };
  const std::uint64_t searched = search_only();
  EXPECT_EQ(hashed([&] { EXPECT_EQ(decode(shards_), TANDEM_OK); }), searched + kStripes * kK * kBlockHash + digest);
  EXPECT_EQ(hashed([&] { EXPECT_EQ(verify().state, TANDEM_FILES_INTACT); }),
            searched + kStripes * (kK + kM) * kBlockHash + digest);
  fs::remove(shard(1));
  const std::uint64_t searched_without = search_only();
  EXPECT_EQ(hashed([&] { EXPECT_EQ(decode(shards_), TANDEM_OK); }),
            searched_without + kStripes * (kK * kBlockHash + kBlock - 16) + digest);
}

// ---- the set writer ----

TEST_F(SetWriterTest, ThreadsShareAWriter) {
  const std::vector<char> content = paint(120 * kStripe, 7);
  const auto expected = encoded(content);
  Writer writer;
  ASSERT_EQ(begin(shards_, content.size(), &writer), TANDEM_OK) << tandem_last_error_message();
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (std::uint64_t part = 0; part < 6; ++part) write(writer, content, {(part * 4 + i) * 5, 5});
    });
  for (std::thread &thread : threads) thread.join();
  ASSERT_EQ(tandem_files_writer_commit(writer.get(), nullptr), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(contents(shards_), expected);
}

TEST_F(SetWriterTest, AWriterTellsTheSetThatItMakes) {
  const std::vector<char> content = paint(3 * kStripe - 5, 9);
  Writer writer;
  tandem_files_set told{};
  expect_refused(begin(shards_, content.size(), &writer, false, &told), "tandem_files_set");
  told.struct_bytes = sizeof told;
  ASSERT_EQ(begin(shards_, content.size(), &writer, false, &told), TANDEM_OK) << tandem_last_error_message();
  EXPECT_TRUE(std::ranges::equal(told.set_id, kId));
  EXPECT_EQ(std::tuple(told.k, told.m, told.block_bytes, told.content_bytes, told.stripe_count, told.mode),
            std::tuple(kK, kM, kBlock, content.size(), 3u, 0644u));
  EXPECT_EQ(std::tuple(told.shard_count, told.file_count), std::tuple(0u, 0u));
  write(writer, content, {0, 3});
  ASSERT_EQ(tandem_files_writer_commit(writer.get(), nullptr), TANDEM_OK) << tandem_last_error_message();
  for (const fs::directory_entry &file : fs::directory_iterator(shards_))
    EXPECT_EQ(file.file_size(), told.shard_file_bytes) << file.path();
}

TEST_F(SetWriterTest, BadRangesAreRefusedWithNumbersAndNothingIsLost) {
  const std::vector<char> content = paint(10 * kStripe - 3, 8);
  const auto expected = encoded(content);
  Writer writer;
  ASSERT_EQ(begin(shards_, content.size(), &writer), TANDEM_OK) << tandem_last_error_message();
  const auto try_write = [&](std::uint64_t first, std::uint64_t count, std::size_t bytes) {
    const std::vector<char> noise(std::min<std::size_t>(bytes, 1 << 20), 'x');
    return tandem_files_writer_write(writer.get(), first, count, noise.data(), bytes);
  };
  expect_refused(tandem_files_writer_commit(writer.get(), nullptr),
                 "10 of 10 stripes are not written, the first of them is 0");
  expect_refused(try_write(8, 3, 3 * kStripe), "3 stripes from 8 on are not all of the set, which has 10");
  expect_refused(try_write(UINT64_MAX, 2, 2 * kStripe), "which has 10");
  expect_refused(try_write(1, UINT64_MAX, 2 * kStripe), "which has 10");
  expect_refused(try_write(2, 2, 2 * kStripe - 1), "2 stripes from 2 on have 1920 bytes of content, 1919 are given");
  expect_refused(try_write(9, 1, kStripe), "1 stripes from 9 on have 957 bytes of content, 960 are given");
  expect_refused(try_write(0, 1, 0), "0 are given");
  write(writer, content, {3, 3});
  for (const tandem_files_range part :
       std::initializer_list<tandem_files_range>{{3, 3}, {5, 1}, {4, 1}, {1, 3}, {5, 4}, {0, 10}}) {
    const std::uint64_t taken = std::max<std::uint64_t>(part.first, 3);
    expect_refused(try_write(part.first, part.count, part.count * kStripe),
                   "stripe " + std::to_string(taken) + " was written before");
  }
  expect_refused(tandem_files_writer_commit(writer.get(), nullptr),
                 "7 of 10 stripes are not written, the first of them is 0");
  write(writer, content, {0, 3});
  write(writer, content, {7, 3});
  expect_refused(try_write(0, 1, kStripe), "stripe 0 was written before");
  expect_refused(tandem_files_writer_commit(writer.get(), nullptr),
                 "1 of 10 stripes are not written, the first of them is 6");
  EXPECT_EQ(tandem_files_writer_write(writer.get(), 10, 0, nullptr, 0), TANDEM_OK);
  write(writer, content, {6, 1});
  ASSERT_EQ(tandem_files_writer_commit(writer.get(), nullptr), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(contents(shards_), expected);
  expect_refused(try_write(0, 1, kStripe), "nothing more can be written");
  expect_refused(tandem_files_writer_commit(writer.get(), nullptr), "nothing more can be written");
  EXPECT_EQ(contents(shards_), expected);
}

TEST_F(SetWriterTest, OptionsThatAWriterCannotHaveAreNamed) {
  const auto refused = [&](auto change, const std::string &sentence) {
    tandem_files_encode_options options = writer_options(shards_);
    change(options);
    tandem_files_writer *raw = nullptr;
    expect_refused(tandem_files_writer_begin(context_, &options, 1000, nullptr, &raw), sentence);
    EXPECT_EQ(raw, nullptr);
    EXPECT_FALSE(fs::exists(shards_));
  };
  refused([](auto &o) { o.source_path = "/etc/passwd"; }, "no source");
  refused([](auto &o) { o.dry_run = 1; }, "dry_run");
  refused([](auto &o) { o.name = nullptr; }, "name");
  refused([](auto &o) { o.mode = 01777; }, "mode is 1777");
  refused([](auto &o) { o.k = 0; }, "k = 0");
  tandem_files_writer *raw = nullptr;
  const tandem_files_encode_options options = writer_options(shards_);
  expect_refused(tandem_files_writer_begin(context_, &options, (1ull << 60) + 1, nullptr, &raw), "1152921504606846977");
  expect_refused(tandem_files_writer_begin(context_, nullptr, 1, nullptr, &raw), "tandem_files_encode_options is NULL");
  expect_refused(tandem_files_writer_begin(context_, &options, 1, nullptr, nullptr), "writer_out");
}

TEST_F(SetWriterTest, AnAbandonedSetLeavesNothing) {
  const std::vector<char> content = paint(20 * kStripe, 9);
  {
    Writer writer;
    ASSERT_EQ(begin(shards_, content.size(), &writer), TANDEM_OK);
    write(writer, content, {0, 5});
    EXPECT_EQ(entries(shards_), kK + kM);
  }
  EXPECT_FALSE(fs::exists(shards_));

  encode(content, kK, kM, kBlock);
  const auto before = contents(shards_);
  Writer leading;
  ASSERT_EQ(begin(shards_, 100, &leading, true), TANDEM_OK) << tandem_last_error_message();
  write(leading, paint(100), {0, 1});
  leading.reset();
  EXPECT_EQ(contents(shards_), before);
}

// ---- the range reader ----

// Ranges of damaged sets: files_history_test.
TEST_F(SetWriterTest, RangesOutsideTheContentAreRefused) {
  encode(paint(1000), kK, kM, kBlock);
  tandem_files_reader *reader = nullptr;
  ASSERT_EQ(tandem_files_reader_create(context_, Search(shards_), nullptr, &reader), TANDEM_OK);
  std::array<char, 4> out = {'#', '#', '#', '#'};
  EXPECT_EQ(tandem_files_reader_read(reader, 999, &out[1], 1), TANDEM_OK);
  EXPECT_EQ(tandem_files_reader_read(reader, 1000, &out[2], 0), TANDEM_OK);
  EXPECT_EQ(out, (std::array<char, 4>{'#', paint(1000)[999], '#', '#'}));
  expect_refused(tandem_files_reader_read(reader, 1000, out.data(), 1),
                 "1 bytes from 1000 on are not all of the content");
  expect_refused(tandem_files_reader_read(reader, UINT64_MAX, out.data(), 2), "not all of the content");
  expect_refused(tandem_files_reader_read(reader, 0, nullptr, 2), "content_out is NULL");
  tandem_files_reader_destroy(reader);
}

}  // namespace
