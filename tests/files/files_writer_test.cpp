// SPDX-License-Identifier: Apache-2.0
// The set writer and the range reader of files.h. Counts inside the library how often content is hashed.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
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

struct Part {
  std::uint64_t first, count;
};

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

  tandem_status begin(const fs::path &folder, std::uint64_t content_bytes, bool attach, Writer *writer_out,
                      bool force = false) {
    tandem_files_encode_options options = writer_options(folder);
    options.force = force;
    tandem_files_writer *raw = nullptr;
    const tandem_status status = tandem_files_writer_begin(context_, &options, content_bytes, attach, &raw);
    writer_out->reset(raw);
    return status;
  }

  static std::vector<std::uint8_t> write(const Writer &writer, const std::vector<char> &content, Part part) {
    const std::uint64_t from = part.first * kStripe;
    const std::uint64_t bytes = std::min<std::uint64_t>(part.count * kStripe, content.size() - from);
    std::vector<std::uint8_t> hashes(part.count * kK * 16);
    EXPECT_EQ(
        tandem_files_writer_write(writer.get(), part.first, part.count, content.data() + from, bytes, hashes.data()),
        TANDEM_OK)
        << tandem_last_error_message();
    return hashes;
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
  const std::uint64_t before = hashed_bytes();
  work();
  return hashed_bytes() - before;
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

// The child exits with 0 when it has written its part, and sends its hashes down the pipe.
TEST_F(SetWriterTest, ProcessesShareASet) {
  const std::vector<char> content = paint(300 * kStripe + 5, 6);
  const auto expected = encoded(content);
  Writer leading;
  ASSERT_EQ(begin(shards_, content.size(), false, &leading), TANDEM_OK) << tandem_last_error_message();
  struct Child {
    pid_t id;
    int pipe;
    Part part;
  };
  std::vector<Child> children;
  for (const Part part : {Part{200, 101}, Part{100, 100}}) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Writer writer;
      if (begin(shards_, content.size(), true, &writer) != TANDEM_OK) _exit(1);
      for (std::uint64_t done = 0; done < part.count; done += 20) {
        const std::vector<std::uint8_t> hashes =
            write(writer, content, {part.first + done, std::min<std::uint64_t>(20, part.count - done)});
        if (::write(ends[1], hashes.data(), hashes.size()) != static_cast<ssize_t>(hashes.size())) _exit(2);
      }
      _exit(tandem_files_writer_commit(writer.get(), nullptr) == TANDEM_OK ? 0 : 3);
    }
    close(ends[1]);
    children.push_back({child, ends[0], part});
  }
  write(leading, content, {0, 100});
  for (const Child &child : children) {
    std::vector<std::uint8_t> hashes(child.part.count * kK * 16);
    for (std::size_t done = 0; done < hashes.size();) {
      const ssize_t got = read(child.pipe, hashes.data() + done, hashes.size() - done);
      ASSERT_GT(got, 0);
      done += static_cast<std::size_t>(got);
    }
    close(child.pipe);
    int status = 0;
    ASSERT_EQ(waitpid(child.id, &status, 0), child.id);
    ASSERT_EQ(status, 0);
    ASSERT_EQ(tandem_files_writer_add(leading.get(), child.part.first, child.part.count, hashes.data(), hashes.size()),
              TANDEM_OK);
  }
  ASSERT_EQ(tandem_files_writer_commit(leading.get(), nullptr), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(contents(shards_), expected);
}

TEST_F(SetWriterTest, ThreadsShareAWriter) {
  const std::vector<char> content = paint(120 * kStripe, 7);
  const auto expected = encoded(content);
  Writer writer;
  ASSERT_EQ(begin(shards_, content.size(), false, &writer), TANDEM_OK) << tandem_last_error_message();
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (std::uint64_t part = 0; part < 6; ++part) write(writer, content, {(part * 4 + i) * 5, 5});
    });
  for (std::thread &thread : threads) thread.join();
  ASSERT_EQ(tandem_files_writer_commit(writer.get(), nullptr), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(contents(shards_), expected);
}

TEST_F(SetWriterTest, BadRangesAreRefusedWithNumbersAndNothingIsLost) {
  const std::vector<char> content = paint(10 * kStripe - 3, 8);
  const auto expected = encoded(content);
  Writer writer;
  ASSERT_EQ(begin(shards_, content.size(), false, &writer), TANDEM_OK) << tandem_last_error_message();
  const auto try_write = [&](std::uint64_t first, std::uint64_t count, std::size_t bytes) {
    const std::vector<char> noise(std::min<std::size_t>(bytes, 1 << 20), 'x');
    return tandem_files_writer_write(writer.get(), first, count, noise.data(), bytes, nullptr);
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
  for (const Part part : {Part{3, 3}, Part{5, 1}, Part{4, 1}, Part{1, 3}, Part{5, 4}, Part{0, 10}}) {
    const std::uint64_t taken = std::max<std::uint64_t>(part.first, 3);
    expect_refused(try_write(part.first, part.count, part.count * kStripe),
                   "stripe " + std::to_string(taken) + " was written before");
  }
  std::vector<std::uint8_t> hashes(2 * kK * 16);
  expect_refused(tandem_files_writer_add(writer.get(), 5, 2, hashes.data(), hashes.size()),
                 "stripe 5 was written before");
  expect_refused(tandem_files_writer_add(writer.get(), 6, 2, hashes.data(), hashes.size() - 1),
                 "2 stripes of 4 data blocks have 128 bytes of hashes, 127 given");
  expect_refused(tandem_files_writer_add(writer.get(), 9, 2, hashes.data(), hashes.size()), "which has 10");
  expect_refused(tandem_files_writer_commit(writer.get(), nullptr),
                 "7 of 10 stripes are not written, the first of them is 0");
  write(writer, content, {0, 3});
  write(writer, content, {7, 3});
  expect_refused(try_write(0, 1, kStripe), "stripe 0 was written before");
  expect_refused(tandem_files_writer_commit(writer.get(), nullptr),
                 "1 of 10 stripes are not written, the first of them is 6");
  EXPECT_EQ(tandem_files_writer_write(writer.get(), 10, 0, nullptr, 0, nullptr), TANDEM_OK);
  write(writer, content, {6, 1});
  ASSERT_EQ(tandem_files_writer_commit(writer.get(), nullptr), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(contents(shards_), expected);
  expect_refused(try_write(0, 1, kStripe), "nothing more can be written");
  expect_refused(tandem_files_writer_commit(writer.get(), nullptr), "nothing more can be written");
  EXPECT_EQ(contents(shards_), expected);
}

TEST_F(SetWriterTest, OptionsThatAWriterCannotHaveAreNamed) {
  const auto refused = [&](auto change, bool attach, const std::string &sentence) {
    tandem_files_encode_options options = writer_options(shards_);
    change(options);
    tandem_files_writer *raw = nullptr;
    expect_refused(tandem_files_writer_begin(context_, &options, 1000, attach, &raw), sentence);
    EXPECT_EQ(raw, nullptr);
    EXPECT_FALSE(fs::exists(shards_));
  };
  refused([](auto &o) { o.source_path = "/etc/passwd"; }, false, "no source");
  refused([](auto &o) { o.dry_run = 1; }, false, "dry_run");
  refused([](auto &o) { o.name = nullptr; }, false, "name");
  refused([](auto &o) { o.mode = 01777; }, false, "mode is 1777");
  refused([](auto &o) { o.k = 0; }, false, "k = 0");
  refused([](auto &o) { o.set_id = nullptr; }, true, "set_id");
  tandem_files_writer *raw = nullptr;
  const tandem_files_encode_options options = writer_options(shards_);
  expect_refused(tandem_files_writer_begin(context_, &options, (1ull << 60) + 1, 0, &raw), "1152921504606846977");
  expect_refused(tandem_files_writer_begin(context_, nullptr, 1, 0, &raw), "tandem_files_encode_options is NULL");
  expect_refused(tandem_files_writer_begin(context_, &options, 1, 0, nullptr), "writer_out");
}

TEST_F(SetWriterTest, AnAbandonedSetLeavesNothing) {
  const std::vector<char> content = paint(20 * kStripe, 9);
  {
    Writer leading, other;
    ASSERT_EQ(begin(shards_, content.size(), false, &leading), TANDEM_OK);
    ASSERT_EQ(begin(shards_, content.size(), true, &other), TANDEM_OK);
    write(leading, content, {0, 5});
    write(other, content, {5, 5});
    EXPECT_EQ(entries(shards_), kK + kM + 1);
    leading.reset();
    EXPECT_FALSE(fs::exists(shards_));
    write(other, content, {10, 5});  // into files that have no name any more
  }
  EXPECT_FALSE(fs::exists(shards_));

  encode(content, kK, kM, kBlock);
  const auto before = contents(shards_);
  Writer leading;
  ASSERT_EQ(begin(shards_, 100, false, &leading, true), TANDEM_OK) << tandem_last_error_message();
  write(leading, paint(100), {0, 1});
  leading.reset();
  EXPECT_EQ(contents(shards_), before);
}

TEST_F(SetWriterTest, OnlyAWriterOfTheSameSetCanAttach) {
  Writer leading, other;
  EXPECT_EQ(begin(root_, 100, true, &other), TANDEM_ERROR_IO);
  expect_message("is not being written to");
  ASSERT_EQ(begin(shards_, 100, false, &leading), TANDEM_OK);
  EXPECT_EQ(begin(shards_, 100, false, &other), TANDEM_ERROR_IO) << "a second one that leads";
  EXPECT_EQ(entries(shards_), kK + kM + 1);
  const auto refused = [&](auto change, std::uint64_t content_bytes) {
    tandem_files_encode_options options = writer_options(shards_);
    change(options);
    tandem_files_writer *raw = nullptr;
    expect_refused(tandem_files_writer_begin(context_, &options, content_bytes, 1, &raw), "with other options");
  };
  refused([](auto &) {}, 101);
  refused([](auto &o) { o.k = 3, o.m = 3; }, 100);
  refused([](auto &o) { o.m = 1; }, 100);
  refused([](auto &o) { o.block_bytes = 512; }, 100);
  refused([](auto &o) { o.matrix = TANDEM_MATRIX_JERASURE_VANDERMONDE; }, 100);
  refused([](auto &o) { o.mode = 0600; }, 100);
  refused([](auto &o) { o.name = "another"; }, 100);
  write(leading, paint(100), {0, 1});
  ASSERT_EQ(tandem_files_writer_commit(leading.get(), nullptr), TANDEM_OK);
  EXPECT_EQ(begin(shards_, 100, true, &other), TANDEM_ERROR_IO);
}

// Files of the same id at the final names would be taken for those that the new set has made.
TEST_F(SetWriterTest, ASetIsNotReplacedByOneOfItsOwnId) {
  Writer writer;
  ASSERT_EQ(begin(shards_, 100, false, &writer), TANDEM_OK);
  write(writer, paint(100), {0, 1});
  ASSERT_EQ(tandem_files_writer_commit(writer.get(), nullptr), TANDEM_OK);
  const auto before = contents(shards_);
  expect_refused(begin(shards_, 200, false, &writer, true), "a new set needs an id of its own");
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

TEST_F(SetWriterTest, ReadersShareADecodeAndItsDigest) {
  const std::vector<char> content = paint(7 * kStripe + 13);
  fs::create_directory(shards_);
  for (const auto &[name, bytes] : encoded(content))
    if (name != "source.001.tandem") spill(shards_ / name, bytes);
  tandem_files_reader *readers[2] = {};
  for (tandem_files_reader *&reader : readers)
    ASSERT_EQ(tandem_files_reader_create(context_, Search(shards_), nullptr, &reader), TANDEM_OK);

  std::vector<char> found(content.size());
  std::vector<std::vector<std::uint8_t>> hashes;
  const Part parts[] = {{0, 3}, {3, 1}, {4, 4}};
  for (std::size_t i = 0; i < 3; ++i) {
    const std::size_t from = parts[i].first * kStripe,
                      bytes = std::min(parts[i].count * kStripe, content.size() - from);
    hashes.emplace_back(parts[i].count * kK * 16);
    ASSERT_EQ(tandem_files_reader_read_stripes(readers[i % 2], parts[i].first, parts[i].count, found.data() + from,
                                               bytes, hashes[i].data()),
              TANDEM_OK)
        << tandem_last_error_message();
  }
  EXPECT_EQ(found, content);
  const auto add = [&](std::size_t i, std::size_t hash_bytes) {
    return tandem_files_reader_add(readers[0], parts[i].first, parts[i].count, hashes[i].data(), hash_bytes);
  };
  EXPECT_EQ(add(2, hashes[2].size()), TANDEM_OK);
  EXPECT_EQ(add(0, hashes[0].size() - 16), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(add(0, hashes[0].size()), TANDEM_OK);
  EXPECT_EQ(add(0, hashes[0].size()), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tandem_files_reader_check(readers[0]), TANDEM_ERROR_INVALID_ARGUMENT);
  expect_message("1 of 8 stripes");
  hashes[1][5] ^= 1;
  EXPECT_EQ(add(1, hashes[1].size()), TANDEM_OK);
  EXPECT_EQ(tandem_files_reader_check(readers[0]), TANDEM_ERROR_DAMAGED);
  hashes[1][5] ^= 1;
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(tandem_files_reader_add(readers[1], parts[i].first, parts[i].count, hashes[i].data(), hashes[i].size()),
              TANDEM_OK);
  EXPECT_EQ(tandem_files_reader_check(readers[1]), TANDEM_OK);

  auto result = sized<tandem_files_result>();
  ASSERT_EQ(tandem_files_reader_query(readers[1], &result), TANDEM_OK);
  EXPECT_EQ(result.stripe_count, 8u);
  EXPECT_EQ(result.rebuilt_block_count, 1u);  // it has read stripe 3, without its block of shard 1
  EXPECT_EQ(result.shards_read, kK);
  std::vector<char> rest(kStripe);
  EXPECT_EQ(tandem_files_reader_read_stripes(readers[0], 8, 1, rest.data(), kStripe, nullptr),
            TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tandem_files_reader_read_stripes(readers[0], 0, 1, rest.data(), kStripe - 1, nullptr),
            TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tandem_files_reader_read_stripes(nullptr, 0, 1, rest.data(), kStripe, nullptr),
            TANDEM_ERROR_INVALID_ARGUMENT);
  for (tandem_files_reader *reader : readers) tandem_files_reader_destroy(reader);
}

// Bytes of intact blocks can be read even where the set as a whole is lost.
TEST_F(SetWriterTest, ARangeThatIsLostIsNamedAndOthersAreRead) {
  const std::vector<char> content = paint(10 * kStripe, 14);
  encode(content, kK, kM, kBlock);
  for (const unsigned shard_index : {0u, 1u, 4u}) damage(shard_index, 4096 + 7 * kBlock, 1);
  const Search search(shards_);
  tandem_files_reader *reader = nullptr;
  ASSERT_EQ(tandem_files_reader_create(context_, search, nullptr, &reader), TANDEM_OK);
  std::vector<char> out(content.size());
  EXPECT_EQ(tandem_files_reader_read(reader, 0, out.data(), out.size()), TANDEM_ERROR_NOT_RECOVERABLE);
  expect_message("stripe 7 of 10 has 3 intact blocks");
  EXPECT_EQ(tandem_files_reader_read(reader, 0, out.data(), 7 * kStripe), TANDEM_OK);
  EXPECT_EQ(tandem_files_reader_read(reader, 7 * kStripe + 480, out.data(), 3 * kStripe - 480), TANDEM_OK);
  tandem_files_reader_destroy(reader);
}

}  // namespace
