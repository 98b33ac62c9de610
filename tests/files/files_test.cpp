// SPDX-License-Identifier: Apache-2.0
// Shard files through the C API and, for the parts of the format, from inside.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "files/format.hpp"
#include "tests/files/kit.hpp"

using namespace tandem::files;

namespace {

// ---- the format ----

SetHeader sample_header() {
  SetHeader header;
  for (std::size_t i = 0; i < header.set_id.size(); ++i) header.set_id[i] = static_cast<std::uint8_t>(17 * i + 3);
  header.k = 10;
  header.m = 4;
  header.matrix = 8;
  header.block_bytes = 65536;
  header.mode = 0640;
  header.folder_count = 7;
  header.content_bytes = 123456789;
  header.digest = {0x0123456789abcdef, 0xfedcba9876543210};
  return header;
}

using RecordBytes = std::array<std::byte, kRecordBytes>;

RecordBytes written(const Record &record) {
  RecordBytes bytes;
  write_record(record, bytes);
  return bytes;
}

// The bytes that docs/format.md shows: a change here is a new format version.
TEST(Format, RecordBytesArePinned) {
  const RecordBytes bytes = written({sample_header(), 13, RecordEnd::end});
  const unsigned char head[88] = {
      0x89, 'T',  'N',  'D',  'M',  '\r', '\n', 0x1a, 2,    0,    0,    0,    2,    0,    0,    0,   3, 20,
      37,   54,   71,   88,   105,  122,  139,  156,  173,  190,  207,  224,  241,  2,    10,   0,   0, 0,
      4,    0,    0,    0,    8,    0,    0,    0,    0,    0,    0,    0,    13,   0,    0,    0,   0, 0,
      1,    0,    0xa0, 1,    0,    0,    7,    0,    0,    0,    0x15, 0xcd, 0x5b, 7,    0,    0,   0, 0,
      0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01, 0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe};
  EXPECT_EQ(std::memcmp(bytes.data(), head, sizeof head), 0);
  for (std::size_t i = sizeof head; i < kRecordBytes - 8; ++i) ASSERT_EQ(std::to_integer<int>(bytes[i]), 0) << i;
  Record back;
  ASSERT_EQ(parse_record(bytes, &back), ParseResult::record);
  EXPECT_EQ(back, (Record{sample_header(), 13, RecordEnd::end}));
}

// A set of more than 256 shards has another version, and nothing else is different.
TEST(Format, AWideRecordDiffersByItsVersion) {
  SetHeader set = sample_header();
  RecordBytes narrow = written({set, 13, RecordEnd::end});
  set.k = 4092;
  const RecordBytes wide = written({set, 13, RecordEnd::end});
  narrow[8] = std::byte{3};
  narrow[32] = std::byte{0xfc}, narrow[33] = std::byte{0x0f};
  reseal(narrow);
  EXPECT_EQ(narrow, wide);
  Record back;
  EXPECT_EQ(parse_record(wide, &back), ParseResult::record);
  EXPECT_EQ(back, (Record{set, 13, RecordEnd::end}));
}

TEST(Format, EveryBitOfARecordCounts) {
  const RecordBytes good = written({sample_header(), 13, RecordEnd::start});
  Record back;
  for (std::size_t bit = 0; bit < 8 * kRecordBytes; ++bit) {
    RecordBytes bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    ASSERT_NE(parse_record(bad, &back), ParseResult::record) << "bit " << bit;
  }
}

// Intact checksums, absurd numbers: what an attacker or a defect would write.
TEST(Format, NumbersOutOfLimitsAreRefused) {
  const std::pair<std::size_t, std::vector<std::uint64_t>> fields[] = {{32, {0, 253, UINT32_MAX}},
                                                                       {36, {247, UINT32_MAX}},
                                                                       {12, {0, 3}},
                                                                       {48, {14, UINT32_MAX}},
                                                                       {52, {0, 63, 65537, 1u << 25, UINT32_MAX}},
                                                                       {56, {01000, 04755}},
                                                                       {60, {15, UINT32_MAX}},
                                                                       {64, {(1ull << 60) + 1, UINT64_MAX}}};
  for (const auto &[at, values] : fields)
    for (const std::uint64_t value : values) {
      RecordBytes bytes = written({sample_header(), 13, RecordEnd::start});
      std::memcpy(bytes.data() + at, &value, at == 64 ? 8 : 4);
      reseal(bytes);
      Record back;
      EXPECT_EQ(parse_record(bytes, &back), ParseResult::out_of_limits) << "offset " << at << " value " << value;
    }
  // Each set has one version: the wide one with 256 shards or fewer is as wrong as the narrow one with more.
  std::string why;
  for (const auto &[k, version, words] :
       {std::tuple{10u, 3u, "14 shards in a record of version 3"},
        {300u, 2u, "304 shards in a record of version 2"},
        {4093u, 3u, "k = 4093 and m = 4; k is at least 1 and k + m at most 4096"},
        {65535u, 3u, "k = 65535 and m = 4; k is at least 1 and k + m at most 4096"}}) {
    SetHeader set = sample_header();
    set.k = k;
    RecordBytes bytes = written({set, 0, RecordEnd::start});
    bytes[8] = static_cast<std::byte>(version);
    reseal(bytes);
    Record back;
    EXPECT_EQ(parse_record(bytes, &back, &why), ParseResult::out_of_limits) << k;
    EXPECT_NE(why.find(words), std::string::npos) << why;
  }
  // 200 shards of 2 MiB a block: each within its limit, the stripe not.
  SetHeader wide = sample_header();
  wide.k = 190;
  wide.m = 10;
  wide.block_bytes = 2 << 20;
  Record back;
  EXPECT_EQ(parse_record(written({wide, 0, RecordEnd::start}), &back), ParseResult::out_of_limits);

  for (const unsigned version : {0u, 1u, 4u}) {
    RecordBytes other = written({sample_header(), 13, RecordEnd::start});
    other[8] = static_cast<std::byte>(version);
    reseal(other);
    EXPECT_EQ(parse_record(other, &back), ParseResult::unknown_version);
    EXPECT_EQ(record_version(other), version);
    other[100] = std::byte{1};
    EXPECT_EQ(record_version(other), std::nullopt);
  }
}

// Section 6 of docs/format.md.
TEST(Format, WorkedExample) {
  SetHeader header = sample_header();
  header.k = 3;
  header.m = 1;
  header.block_bytes = 128;
  header.content_bytes = 1000;
  EXPECT_EQ(header.stripe_count(), 3u);
  EXPECT_EQ(header.content_bytes_of(2), 328u);
  EXPECT_EQ(header.payload_bytes_of(2), 110u);
  EXPECT_EQ(header.block_offset(2), 4352u);
  EXPECT_EQ(header.shard_file_bytes(), 8574u);
}

TEST(Format, CheckBindsABlockToItsPlace) {
  const SetHeader header = sample_header();
  std::vector<std::byte> payload(1000);
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i % 251);
  const Hash128 good = block_check(header.set_id, 3, 7, payload.data(), payload.size());
  EXPECT_EQ(good, block_check(header.set_id, 3, 7, payload.data(), payload.size()));
  SetId other = header.set_id;
  other[15] ^= 1;
  EXPECT_NE(good, block_check(other, 3, 7, payload.data(), payload.size()));
  EXPECT_NE(good, block_check(header.set_id, 4, 7, payload.data(), payload.size()));
  EXPECT_NE(good, block_check(header.set_id, 3, 8, payload.data(), payload.size()));
  EXPECT_NE(good, block_check(header.set_id, 3, 7, payload.data(), payload.size() - 1));
  payload[999] ^= std::byte{1};
  EXPECT_NE(good, block_check(header.set_id, 3, 7, payload.data(), payload.size()));
  std::byte stored[16];
  write_check(good, stored);
  EXPECT_EQ(read_check(stored), good);
}

// Values of xxHash's own command line tool: printf '' | xxhsum -H128, printf 'abc' | xxhsum -H128.
TEST(Format, HashIsXxhsums) {
  StreamHash hash;
  EXPECT_EQ(hexadecimal(printed_order(hash.value())), "99aa06d3014798d86001c324468d497f");
  hash.update("a", 1);
  hash.update("bc", 2);
  EXPECT_EQ(hexadecimal(printed_order(hash.value())), "06b05ab6733a618578af5f94892f3950");
}

// Section 4 of docs/format.md, with the bytes written down: low half first, then the length.
TEST(Format, DigestIsOfThePayloadsHashesInOrder) {
  const Hash128 a{0x0706050403020100, 0x0f0e0d0c0b0a0908}, b{0x1716151413121110, 0x1f1e1d1c1b1a1918};
  unsigned char bytes[40] = {};
  for (unsigned char i = 0; i < 32; ++i) bytes[i] = i;
  bytes[32] = 5;
  ContentDigest digest;
  digest.add(std::array{a});
  digest.add(std::array{b});
  EXPECT_EQ(digest.value(5), hash128(bytes, sizeof bytes));
  EXPECT_NE(digest.value(6), digest.value(5));
  ContentDigest swapped;
  swapped.add(std::array{b, a});
  EXPECT_NE(swapped.value(5), digest.value(5));
}

// ---- sets ----

// Every checksum is right, and a field of the records is not: by a writer with a defect, or of another version.
TEST_F(Files, RecordsThatLieAreNeverASuccess) {
  struct Case {
    std::size_t at;
    std::uint64_t value;
    std::size_t bytes;
    tandem_status status;
    std::string words;
  };
  for (const Case &c :
       {Case{72, 1, 1, TANDEM_ERROR_DAMAGED, "the digest of the 5000 decoded bytes is"},
        Case{64, 1ull << 60, 8, TANDEM_ERROR_NOT_RECOVERABLE, "stripe"},  // no allocation or file of that size
        Case{40, 77, 1, TANDEM_ERROR_DAMAGED,
             "source.000.tandem: its header asks for a code that this Tandem does not have"},
        Case{8, 1, 1, TANDEM_ERROR_UNSUPPORTED, "version 1, this Tandem reads versions 2 and 3"}}) {
    fs::remove_all(shards_);
    encode(paint(5000), 2, 1, 256);
    for (unsigned i = 0; i < 3; ++i) forge(shard(i), c.at, c.value, c.bytes);
    EXPECT_EQ(decode(shards_), c.status) << tandem_last_error_message();
    expect_message(c.words);
    EXPECT_FALSE(fs::exists(root_ / "output"));
  }
}

// Also through a descriptor that another program opened. The time of the last write can be set back, that of the last
// change cannot.
TEST_F(Files, ASourceThatChangesIsRefused) {
  struct Source {
    fs::path path;
    std::function<void(const fs::path &)> change;
  };
  const auto write_and_set_back = [](const fs::path &path) {
    struct stat before;
    ASSERT_EQ(stat(path.c_str(), &before), 0);
    std::fstream(path, std::ios::in | std::ios::out) << "other bytes";
    const timespec times[] = {before.st_atim, before.st_mtim};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  };
  const std::function<void(const fs::path &)> changes[] = {[](const fs::path &path) { fs::resize_file(path, 400); },
                                                           [](const fs::path &path) { fs::resize_file(path, 90000); },
                                                           write_and_set_back};
  for (const auto &change : changes)
    for (const bool by_path : {true, false}) {
      Source source{root_ / "source", change};
      spill(source.path, paint(5000));
      tandem_files_encode_options options = encode_options(source.path, 4, 2, 256);
      const int descriptor = open(source.path.c_str(), O_RDONLY | O_CLOEXEC);
      if (!by_path) options.source_path = nullptr;
      options.source_descriptor = descriptor;
      options.progress = [](void *user, std::uint64_t, std::uint64_t) -> std::int32_t {
        static_cast<Source *>(user)->change(static_cast<Source *>(user)->path);
        return 0;
      };
      options.progress_user = &source;
      EXPECT_EQ(tandem_files_encode(context_, &options, nullptr), TANDEM_ERROR_IO);
      expect_message("changed while it was read");
      EXPECT_FALSE(fs::exists(shards_));
      close(descriptor);
    }
}

// Threads of this process that may run on one core alone.
unsigned pinned_thread_count() {
  unsigned count = 0;
  for (const auto &task : fs::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    const std::string name = "Cpus_allowed_list:\t";
    for (std::string line; std::getline(status, line);)
      if (line.starts_with(name) && line.find_first_of(",-", name.size()) == std::string::npos) ++count;
  }
  return count;
}

// The workers wait for a pipe meanwhile.
TEST_F(Files, WorkersArePinnedIfTheContextPins) {
  if (pinned_thread_count() != 0) GTEST_SKIP() << "NOT RUN: this process has one core";
  for (const bool pins : {false, true}) {
    auto given = sized<tandem_context_options>();
    given.thread_count = 2;
    given.expert = pins ? "pin=1" : "pin=0";
    tandem_context *context = nullptr;
    ASSERT_EQ(tandem_context_create(&given, &context), TANDEM_OK) << tandem_last_error_message();
    int in[2];
    ASSERT_EQ(pipe(in), 0);
    tandem_files_encode_options options = encode_options("", 4, 2);
    options.source_path = nullptr;
    options.source_descriptor = in[0];
    struct Seen {
      bool pins;
      unsigned calls = 0, pinned = 0;
    } seen{pins};
    options.progress_user = &seen;
    options.progress = [](void *user, std::uint64_t, std::uint64_t) -> std::int32_t {
      Seen &now = *static_cast<Seen *>(user);
      now.pinned = std::max(now.pinned, pinned_thread_count());
      return ++now.calls == (now.pins ? 600u : 3u) || now.pinned != 0;  // a call is 0.1 seconds
    };
    EXPECT_EQ(tandem_files_encode(context, &options, nullptr), TANDEM_ERROR_CANCELLED);
    EXPECT_EQ(seen.pinned != 0, pins);
    EXPECT_FALSE(fs::exists(shards_));
    EXPECT_EQ(pinned_thread_count(), 0u) << "the caller is not pinned";
    close(in[0]);
    close(in[1]);
    tandem_context_destroy(context);
  }
}

TEST_F(Files, ModeIsKeptAndSpecialBitsAreNot) {
  const std::vector<char> content = paint(1000);
  spill(root_ / "source", content);
  for (const mode_t mode : {mode_t{0600}, mode_t{0644}, mode_t{06755}}) {
    ASSERT_EQ(chmod((root_ / "source").c_str(), mode), 0);
    tandem_files_encode_options options = encode_options(root_ / "source", 2, 1);
    options.force = 1;
    ASSERT_EQ(tandem_files_encode(context_, &options, nullptr), TANDEM_OK) << tandem_last_error_message();
    ASSERT_EQ(decode(shards_), TANDEM_OK);
    for (const fs::path &path : {shard(0), shard(2), root_ / "output"}) {
      struct stat status;
      ASSERT_EQ(stat(path.c_str(), &status), 0);
      EXPECT_EQ(status.st_mode & 07777, mode & 0777) << path;
    }
  }
}

// With force, but a folder is where shard 4 wants to go. Encodes without force: files_history_test.
TEST_F(Files, NothingHalfIsLeftWhereAFolderHasTheNameOfAShard) {
  encode(paint(5000), 3, 2);
  for (const unsigned i : {0u, 1u, 2u, 4u}) fs::remove(shard(i));
  const std::vector<char> before = slurp(shard(3));
  fs::create_directory(shard(4));
  tandem_files_encode_options options = encode_options(root_ / "source", 3, 2);
  options.force = 1;
  EXPECT_EQ(tandem_files_encode(context_, &options, nullptr), TANDEM_ERROR_IO);
  EXPECT_EQ(entries(shards_), 2u);
  EXPECT_EQ(slurp(shard(3)), before);
  fs::remove(shard(4));
  EXPECT_EQ(tandem_files_encode(context_, &options, nullptr), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(entries(shards_), 5u);
}

// Several workers code on their own threads, one worker lets the context's threads help: all small calls together count
// as one, a large one as several chunks.
TEST_F(Files, SeveralWorkersCodeInSmallCalls) {
  for (const std::uint32_t workers : {3u, 1u}) {
    tandem_context *context = nullptr;
    auto fresh = sized<tandem_context_options>();
    fresh.thread_count = 3;
    ASSERT_EQ(tandem_context_create(&fresh, &context), TANDEM_OK);
    spill(root_ / "source", paint(12 << 20));
    tandem_files_encode_options options = encode_options(root_ / "source", 4, 2, 1 << 20);
    options.force = 1;
    options.thread_count = workers;
    auto result = sized<tandem_files_result>();
    EXPECT_EQ(tandem_files_encode(context, &options, &result), TANDEM_OK) << tandem_last_error_message();
    EXPECT_EQ(result.thread_count, workers);
    auto info = sized<tandem_context_info>();
    EXPECT_EQ(tandem_context_query(context, &info), TANDEM_OK);
    if (workers == 1) {
      EXPECT_GT(info.kernel_calls, 1u);
    } else {
      EXPECT_EQ(info.kernel_calls, 1u);
    }
    tandem_context_destroy(context);
  }
}

TEST_F(Files, BadArgumentsAreNamed) {
  spill(root_ / "source", paint(100));
  const auto refused = [&](auto change, tandem_status expected) {
    tandem_files_encode_options options = encode_options(root_ / "source", 4, 2);
    change(options);
    EXPECT_EQ(tandem_files_encode(context_, &options, nullptr), expected) << tandem_last_error_message();
    EXPECT_FALSE(fs::exists(shards_));
  };
  refused([](auto &o) { o.k = 0; }, TANDEM_ERROR_INVALID_ARGUMENT);
  refused([](auto &o) { o.k = 200, o.m = 57; }, TANDEM_ERROR_INVALID_ARGUMENT);
  refused([](auto &o) { o.k = UINT32_MAX, o.m = 2; }, TANDEM_ERROR_INVALID_ARGUMENT);
  refused([](auto &o) { o.block_bytes = 100; }, TANDEM_ERROR_INVALID_ARGUMENT);
  refused([](auto &o) { o.k = 200, o.block_bytes = 4 << 20; }, TANDEM_ERROR_INVALID_ARGUMENT);
  refused([](auto &o) { o.matrix = TANDEM_MATRIX_CUSTOM; }, TANDEM_ERROR_UNSUPPORTED);
  refused([](auto &o) { o.matrix = TANDEM_MATRIX_LRC_AZURE; }, TANDEM_ERROR_UNSUPPORTED);
  refused([](auto &o) { o.matrix = 77; }, TANDEM_ERROR_INVALID_ARGUMENT);
  refused([](auto &o) { o.name = "../escape"; }, TANDEM_ERROR_INVALID_ARGUMENT);
  refused([](auto &o) { o.folder_count = 0; }, TANDEM_ERROR_INVALID_ARGUMENT);
  const char *const folders[] = {shards_.c_str(), nullptr};
  refused([&](auto &o) { o.folders = folders, o.folder_count = 2; }, TANDEM_ERROR_INVALID_ARGUMENT);
  expect_message("folders[1] is NULL");
  refused([](auto &o) { o.reserved = 1; }, TANDEM_ERROR_UNSUPPORTED);
  refused([](auto &o) { o.reserved2 = 1; }, TANDEM_ERROR_UNSUPPORTED);
  refused([](auto &o) { o.source_path = "/nonexistent/file"; }, TANDEM_ERROR_IO);
  refused([](auto &o) { o.source_path = "/"; }, TANDEM_ERROR_IO);
  refused([](auto &o) { o.struct_bytes = 0; }, TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tandem_files_encode(context_, nullptr, nullptr), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(decode(root_ / "nowhere"), TANDEM_ERROR_IO);
  fs::create_directory(shards_);
  EXPECT_EQ(decode(shards_), TANDEM_ERROR_IO);
  expect_message("no shard file found");
}

// A set that is replaced between search and call is neither damaged nor lost.
TEST_F(Files, AReplacedSetIsNotDamaged) {
  encode(paint(50000, 1), 3, 2, 256);
  const Search before(shards_);
  EXPECT_EQ(tandem_files_search_check(before), TANDEM_OK);
  const std::vector<char> content = paint(50000, 2);
  spill(root_ / "source", content);
  tandem_files_encode_options again = encode_options(root_ / "source", 3, 2, 256);
  again.force = 1;
  ASSERT_EQ(tandem_files_encode(context_, &again, nullptr), TANDEM_OK) << tandem_last_error_message();

  const std::string output = (root_ / "output").string();
  auto options = sized<tandem_files_decode_options>();
  options.output_path = output.c_str();
  EXPECT_EQ(tandem_files_decode(context_, before, &options, nullptr), TANDEM_ERROR_IO);
  expect_message("was replaced since");
  auto look = sized<tandem_files_verify_options>();
  auto found = sized<tandem_files_verify_result>();
  EXPECT_EQ(tandem_files_verify(context_, before, &look, &found), TANDEM_ERROR_IO);
  EXPECT_EQ(tandem_files_search_check(before), TANDEM_ERROR_IO);
  EXPECT_EQ(decode(shards_), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(slurp(root_ / "output"), content);
}

// A limit on the size of files (RLIMIT_FSIZE) is an error of the call, not the end of the process by SIGXFSZ.
TEST_F(Files, ALimitOnFileSizesIsAnError) {
  encode(paint(100000), 3, 2, 256);
  for (const bool lose_a_file : {false, true}) {
    if (lose_a_file) {
      fs::remove(shard(3));
    } else {
      damage(2, fs::file_size(shard(2)) - 4096, 4096);
    }
    const Search search(shards_);
    const pid_t child = fork();
    if (child == 0) {
      const rlimit limit = {20 << 10, 20 << 10};
      if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(100);
      auto options = sized<tandem_files_repair_options>();
      auto result = sized<tandem_files_repair_result>();
      _exit(static_cast<int>(tandem_files_repair(context_, search, &options, &result)));
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), TANDEM_ERROR_IO);
  }
}

// Memory: the bound of files.h is 256 MiB + 64 MiB a thread, for the widest stripe too.
TEST_F(Files, TheWidestStripeKeepsTheMemoryBound) {
  spill(root_ / "source", paint(100));
  tandem_files_encode_options options = encode_options(root_ / "source", 200, 56, 1 << 20);
  options.thread_count = 64;
  result_ = sized<tandem_files_result>();
  ASSERT_EQ(tandem_files_encode(context_, &options, &result_), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(result_.thread_count, 1u);
  for (unsigned i = 0; i < 56; ++i) fs::remove(shard(i * 3));
  ASSERT_EQ(decode(shards_), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(slurp(root_ / "output"), paint(100));
}

}  // namespace
