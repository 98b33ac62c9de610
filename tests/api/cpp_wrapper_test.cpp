// SPDX-License-Identifier: Apache-2.0
// tandem.hpp as a user's program of C++17 sees it: owners, spans, exceptions.
#include "tandem/tandem.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <type_traits>

namespace {

// Shards with painted data and computed parity, and a copy of all bytes.
struct Coded {
  tandem::Shards shards;
  std::vector<std::vector<std::byte>> bytes;

  Coded(const tandem::Context &context, const tandem::Codec &codec, std::size_t shard_bytes)
      : shards(codec.shard_count(), shard_bytes) {
    std::uint32_t state = 1;
    for (std::uint32_t shard = 0; shard < codec.k(); ++shard)
      for (std::byte &each : shards[shard]) each = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
    tandem::encode(context, codec, shards);
    for (std::uint32_t shard = 0; shard < codec.shard_count(); ++shard)
      bytes.emplace_back(shards[shard].begin(), shards[shard].end());
  }
  bool is_intact() const {
    for (std::size_t shard = 0; shard < bytes.size(); ++shard)
      if (!std::equal(bytes[shard].begin(), bytes[shard].end(), shards[shard].begin())) return false;
    return true;
  }
  void lose(std::size_t shard) { std::fill(shards[shard].begin(), shards[shard].end(), std::byte{0xee}); }
};

template <class Body>
tandem_status status_of(Body &&body) {
  try {
    body();
    return TANDEM_OK;
  } catch (const tandem::Error &error) {
    EXPECT_STRNE(error.what(), "");
    return error.status();
  }
}

const tandem::Context &cpu() {
  static const tandem::Context context("cpu");
  return context;
}

TEST(Wrapper, EncodesDecodesAndVerifies) {
  const tandem::Codec codec(4, 2);
  Coded coded(cpu(), codec, 1000);
  std::vector<std::uint8_t> present(6, 1);
  for (const std::size_t lost : {1, 5}) {
    coded.lose(lost);
    present[lost] = 0;
  }
  tandem::decode(cpu(), codec, coded.shards, present);
  EXPECT_TRUE(coded.is_intact());
  EXPECT_EQ(tandem::verify(cpu(), codec, coded.shards).consistent, 1);
  coded.shards[2][77] ^= std::byte{1};
  const tandem_verify_result result = tandem::verify(cpu(), codec, coded.shards);
  EXPECT_EQ(result.consistent, 0);
  EXPECT_EQ(result.suspect_shard, 2u);
}

TEST(Wrapper, TakesTheCallersShards) {
  const tandem::Codec codec(2, 1);
  std::vector<std::byte> a(100, std::byte{5}), b(100, std::byte{3}), p(100);
  void *const pointers[] = {a.data(), b.data(), p.data()};
  tandem::encode(cpu(), codec, {pointers, 100});
  EXPECT_EQ(tandem::verify(cpu(), codec, {pointers, 100}).consistent, 1);
  a[0] = std::byte{6};
  EXPECT_EQ(tandem::verify(cpu(), codec, {pointers, 100}).consistent, 0);
}

TEST(Wrapper, UpdatesAndAccumulates) {
  const tandem::Codec codec(5, 3, tandem::matrix_from_name("backblaze"));
  Coded coded(cpu(), codec, 640);
  const std::vector<std::byte> fresh(640, std::byte{9});
  tandem::update(cpu(), codec, coded.shards, 3, fresh);
  std::copy(fresh.begin(), fresh.end(), coded.shards[3].begin());
  EXPECT_EQ(tandem::verify(cpu(), codec, coded.shards).consistent, 1);
  for (std::size_t parity = 5; parity < 8; ++parity) coded.lose(parity);
  for (std::uint32_t index = 0; index < 5; ++index) tandem::accumulate(cpu(), codec, coded.shards, index, index == 0);
  EXPECT_EQ(tandem::verify(cpu(), codec, coded.shards).consistent, 1);
}

TEST(Wrapper, SplitsAndJoins) {
  const tandem::Codec codec(4, 2);
  const std::vector<std::byte> content(1001, std::byte{7});
  tandem::Shards shards(codec.shard_count(), tandem::split_bytes(codec, content.size()));
  EXPECT_EQ(shards.shard_bytes(), 251u);
  for (std::byte &each : shards[3]) each = std::byte{0xee};
  tandem::split(codec, content, shards);
  tandem::encode(cpu(), codec, shards);
  EXPECT_EQ(shards[3][250], std::byte{0});
  std::vector<std::byte> back(content.size());
  tandem::join(codec, shards, back);
  EXPECT_EQ(back, content);
  EXPECT_EQ(status_of([&] { tandem::split(codec, content, tandem::Shards(6, 250)); }), TANDEM_ERROR_INVALID_ARGUMENT);
}

TEST(Wrapper, PlansAndJobs) {
  const tandem::Codec codec(4, 2);
  Coded coded(cpu(), codec, 500'000);
  coded.lose(4);
  const tandem::Plan encode = tandem::Plan::encode(cpu(), codec);
  encode.run(coded.shards);
  EXPECT_TRUE(coded.is_intact());
  const std::vector<std::uint8_t> present = {1, 0, 1, 1, 1, 1};
  const tandem::Plan decode = tandem::Plan::decode(cpu(), codec, present);
  const std::vector<std::uint8_t> to_read = decode.shards_to_read();
  EXPECT_EQ(to_read[1], 0);
  EXPECT_EQ(std::count(to_read.begin(), to_read.end(), 1), 4);
  coded.lose(1);
  tandem::Job job = decode.submit(coded.shards);
  const tandem::Job moved = std::move(job);
  moved.wait();
  EXPECT_TRUE(coded.is_intact());
  coded.lose(1);
  { const tandem::Job waited_for_by_its_destructor = decode.submit(coded.shards); }
  EXPECT_TRUE(coded.is_intact());
}

TEST(Wrapper, LocatesAndRepairs) {
  const tandem::Codec codec(4, 2);
  Coded coded(cpu(), codec, 300);
  coded.shards[5][9] ^= std::byte{4};
  std::vector<std::uint64_t> damaged(6);
  tandem_locate_options options{};
  options.damaged_bytes_out = damaged.data();
  options.repair = 1;
  EXPECT_EQ(tandem::locate(cpu(), codec, coded.shards, options).repaired, 1);
  EXPECT_EQ(damaged, (std::vector<std::uint64_t>{0, 0, 0, 0, 0, 1}));
  EXPECT_TRUE(coded.is_intact());
  EXPECT_EQ(tandem::locate(cpu(), codec, coded.shards).consistent, 1);
}

TEST(Wrapper, StripesAndPieces) {
  const tandem::Codec codec(4, 2);
  Coded coded(cpu(), codec, 200);
  const std::vector<std::uint8_t> present = {1, 0, 1, 1, 1, 0}, none(6, 0);
  const auto lose = [&] { coded.lose(1), coded.lose(5); };

  std::vector<tandem_stripe> stripes(2);
  stripes[0].shards = stripes[1].shards = coded.shards.pointers();
  stripes[0].shard_bytes = stripes[1].shard_bytes = 200;
  stripes[0].present = none.data();
  stripes[1].present = present.data();
  lose();
  EXPECT_EQ(status_of([&] { tandem::decode_stripes(cpu(), codec, stripes); }), TANDEM_ERROR_NOT_RECOVERABLE);
  EXPECT_EQ(stripes[0].status, TANDEM_ERROR_NOT_RECOVERABLE);
  EXPECT_TRUE(coded.is_intact());
  coded.lose(4);
  tandem::encode_stripes(cpu(), codec, {stripes.data(), 1});
  EXPECT_TRUE(coded.is_intact());

  std::vector<tandem_segment> halves;
  std::vector<tandem_scattered_shard> pieces(6);
  for (std::size_t shard = 0; shard < 6; ++shard)
    for (const std::size_t half : {0, 1}) halves.push_back({coded.shards[shard].data() + 100 * half, 100});
  for (std::size_t shard = 0; shard < 6; ++shard) {
    pieces[shard].segments = &halves[2 * shard];
    pieces[shard].segment_count = 2;
  }
  lose();
  tandem::decode_scattered(cpu(), codec, pieces, present, 200);
  EXPECT_TRUE(coded.is_intact());
  coded.lose(4);
  tandem::encode_scattered(cpu(), codec, pieces, 200);
  EXPECT_TRUE(coded.is_intact());
  pieces.pop_back();
  EXPECT_EQ(status_of([&] { tandem::encode_scattered(cpu(), codec, pieces, 200); }), TANDEM_ERROR_INVALID_ARGUMENT);
}

TEST(Wrapper, ShardSets) {
  const std::string folder = testing::TempDir() + "/wrapper-set", source = testing::TempDir() + "/wrapper-source",
                    copy = source + ".copy";
  std::filesystem::remove_all(folder);
  std::ofstream(source) << "the content of a set";
  const char *const folders[] = {folder.c_str()};
  tandem_files_encode_options options{};
  options.source_path = source.c_str();
  options.k = 3;
  options.m = 2;
  options.folders = folders;
  options.folder_count = 1;
  options.name = "set";
  EXPECT_EQ(tandem::files::encode(cpu(), options).content_bytes, 20u);
  EXPECT_EQ(status_of([&] { tandem::files::encode(cpu(), options); }), TANDEM_ERROR_IO);

  std::filesystem::remove(folder + "/set.001.tandem");
  const tandem::files::Search search(folder.c_str());
  ASSERT_EQ(search.set_count(), 1u);
  EXPECT_EQ(search.set(search.choose()).shard_count, 4u);
  EXPECT_EQ(tandem::files::verify(cpu(), search).state, TANDEM_FILES_RECOVERABLE);
  EXPECT_EQ(tandem::files::repair(cpu(), search).rebuilt_file_count, 1u);
  tandem_files_decode_options back{};
  back.output_path = copy.c_str();
  back.force = 1;
  EXPECT_EQ(tandem::files::decode(cpu(), tandem::files::Search(folders), back).rebuilt_block_count, 0u);
  std::stringstream content;
  content << std::ifstream(copy).rdbuf();
  EXPECT_EQ(content.str(), "the content of a set");
  EXPECT_EQ(tandem::files::resize(cpu(), tandem::files::Search(folders), 4).rebuilt_file_count, 2u);
  EXPECT_EQ(tandem::files::Search(folders).set(0).m, 4u);
}

TEST(Wrapper, OptionsOfTheCApi) {
  tandem_codec_options options{};
  options.k = 300;
  options.m = 20;
  options.matrix = TANDEM_MATRIX_LEOPARD16;
  options.field = TANDEM_FIELD_GF16;
  const tandem::Codec wide(options);
  EXPECT_EQ(wide.shard_count(), 320u);
  tandem_context_options context_options{};
  context_options.backend = "cpu";
  context_options.thread_count = 1;
  tandem::Context context(context_options);
  EXPECT_STREQ(context.info().backend, "cpu");
  context.set_resource("cpu", 1);
  Coded coded(context, wide, 128);
  EXPECT_EQ(tandem::verify(context, wide, coded.shards).consistent, 1);
}

TEST(Wrapper, FailuresAreExceptions) {
  EXPECT_EQ(status_of([] { tandem::Codec(0, 2); }), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([] { tandem::Codec(200, 100); }), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([] { tandem::Context("no such backend"); }), TANDEM_ERROR_UNAVAILABLE);
  EXPECT_EQ(status_of([] { tandem::matrix_from_name("no such matrix"); }), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([] { tandem::matrix_name(-1); }), TANDEM_ERROR_INVALID_ARGUMENT);
  const tandem::Codec codec(4, 2), other(4, 1);
  Coded coded(cpu(), codec, 100);
  EXPECT_EQ(status_of([&] { tandem::encode(cpu(), other, coded.shards); }), TANDEM_ERROR_INVALID_ARGUMENT);
  const std::vector<std::uint8_t> too_few_flags(5, 1), too_few_shards = {0, 0, 0, 1, 1, 1};
  EXPECT_EQ(status_of([&] { tandem::decode(cpu(), codec, coded.shards, too_few_flags); }),
            TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([&] { tandem::decode(cpu(), codec, coded.shards, too_few_shards); }),
            TANDEM_ERROR_NOT_RECOVERABLE);
  EXPECT_EQ(status_of([&] { tandem::Plan::decode(cpu(), codec, too_few_flags); }), TANDEM_ERROR_INVALID_ARGUMENT);
  const std::vector<std::byte> too_short(99);
  EXPECT_EQ(status_of([&] { tandem::update(cpu(), codec, coded.shards, 0, too_short); }),
            TANDEM_ERROR_INVALID_ARGUMENT);
  const std::vector<std::byte> fits(100);
  EXPECT_EQ(status_of([&] { tandem::update(cpu(), codec, coded.shards, 4, fits); }), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([&] { tandem::accumulate(cpu(), codec, coded.shards, 4, true); }), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(coded.is_intact());
  EXPECT_THROW(tandem::Shards(2, SIZE_MAX), tandem::Error);
}

static_assert(!std::is_copy_constructible_v<tandem::Codec> && std::is_nothrow_move_constructible_v<tandem::Codec>);
static_assert(!std::is_copy_constructible_v<tandem::Shards> && std::is_nothrow_move_constructible_v<tandem::Shards>);

}  // namespace
