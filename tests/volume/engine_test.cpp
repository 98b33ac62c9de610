// SPDX-License-Identifier: Apache-2.0
// The volume over members in memory: the bytes read, the I/Os, and the losses that it survives.
#include <gtest/gtest.h>

#include <signal.h>
#include <algorithm>

#include <atomic>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <thread>

#include "tests/volume/disks.hpp"

namespace tandem::volume::test {
namespace {

using Bytes = std::vector<std::byte>;

Bytes read(Volume &volume, std::uint64_t offset, std::uint64_t bytes) {
  Bytes data(bytes, std::byte{0xee});
  volume.read(offset, data.data(), bytes);
  return data;
}
Bytes part(const Bytes &whole, std::uint64_t offset, std::uint64_t bytes) {
  const auto from = whole.begin() + static_cast<std::ptrdiff_t>(offset);
  return {from, from + static_cast<std::ptrdiff_t>(bytes)};
}
Bytes read_all(Volume &volume) { return read(volume, 0, volume.geometry().volume_bytes()); }
void write(Volume &volume, std::uint64_t offset, const Bytes &data) { volume.write(offset, data.data(), data.size()); }
// To the volume and its model.
void write(Volume &volume, Bytes *model, std::uint64_t offset, const Bytes &data) {
  write(volume, offset, data);
  std::copy(data.begin(), data.end(), model->begin() + static_cast<std::ptrdiff_t>(offset));
}

tandem_volume_care_result scrub(Volume &volume, bool repairs = false) {
  tandem_volume_care_result result{};
  EXPECT_EQ(volume.scrub({.repair = repairs, .restart = true}, &result), TANDEM_OK) << tandem_last_error_message();
  return result;
}
void replace(Volume &volume, Array &array, std::uint32_t index) {
  volume.replace(index, array.fresh_member("fresh"), false);
  array.disks[index] = array.spare;
}

// Whether a call ends so, with a message that has this part.
template <class Body>
testing::AssertionResult fails(tandem_status status, Body &&body, const std::string &part = "") {
  if (const tandem_status found = status_of(body); found != status)
    return testing::AssertionFailure() << found << " instead of " << status;
  if (std::string(tandem_last_error_message()).find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << tandem_last_error_message();
}

struct Io {
  std::uint64_t data_reads, data_writes, parity_reads, parity_writes;
  bool operator==(const Io &) const = default;
  friend std::ostream &operator<<(std::ostream &out, const Io &io) {
    return out << "data " << io.data_reads << " reads " << io.data_writes << " writes, parity " << io.parity_reads
               << " reads " << io.parity_writes << " writes";
  }
};

template <class Body>
Io counted(Volume &volume, Body &&body) {
  const auto before = info_of(volume);
  body();
  const auto after = info_of(volume);
  return {after.data.reads - before.data.reads, after.data.writes - before.data.writes,
          after.parity.reads - before.parity.reads, after.parity.writes - before.parity.writes};
}

// ---- layout -----------------------------------------------------------------------------------------

TEST(Layout, IsLeftSymmetric) {
  const Geometry raid5{
      .k = 3, .m = 1, .matrix = 0, .allow_non_mds = 0, .unit_bytes = 4096, .stripe_count = 8, .log_bytes = 4096};
  // Linux md's left-symmetric over 4 disks: D0 D1 D2 P / D4 D5 P D3 / D8 P D6 D7 / P D9 D10 D11
  const std::uint32_t members[4][4] = {{0, 1, 2, 3}, {3, 0, 1, 2}, {2, 3, 0, 1}, {1, 2, 3, 0}};
  for (std::uint32_t stripe = 0; stripe < 8; ++stripe)
    for (std::uint32_t column = 0; column < 4; ++column)
      EXPECT_EQ(raid5.member_of(stripe, column), members[stripe % 4][column]) << stripe << ' ' << column;
  for (const std::uint32_t m : {1u, 2u, 5u})
    for (std::uint64_t stripe = 0; stripe < 30; ++stripe) {
      Geometry other = raid5;
      other.m = m;
      std::set<std::uint32_t> all;
      for (std::uint32_t column = 0; column < 3 + m; ++column) all.insert(other.member_of(stripe, column));
      EXPECT_EQ(all.size(), 3 + m);
      // k+m units in a row lie on k+m members
      std::set<std::uint32_t> row;
      for (std::uint32_t unit = 0; unit < 3; ++unit) row.insert(other.member_of(stripe, unit));
      EXPECT_EQ(row.count(other.member_of(stripe + 1, 0)), m >= 1 ? 0u : 1u);
    }
}

// ---- counts -----------------------------------------------------------------------------------------

class Costs : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(Costs, AreThoseOfTheReport) {
  const std::uint32_t k = 8, m = GetParam(), unit = 65536;
  Array array(k, m, unit, 16 << 20);
  const auto volume = array.open();
  const std::uint64_t stripe = std::uint64_t{k} * unit;
  const Bytes data = paint(stripe, 1);
  std::uint64_t reads = 0, writes = 0;
  for (const auto &disk : array.disks) disk->counts_from = volume->geometry().data_offset();
  const auto written = [&](std::uint64_t offset, std::uint64_t bytes) {
    const Io io = counted(*volume, [&] {
      volume->write(offset, data.data(), bytes);
      volume->flush();
    });
    reads += io.data_reads + io.parity_reads;
    writes += io.data_writes + io.parity_writes;
    for (const auto &disk : array.disks) reads -= disk->reads.exchange(0), writes -= disk->writes.exchange(0);
    EXPECT_EQ(std::pair(reads, writes), std::pair(std::uint64_t{0}, std::uint64_t{0})) << "the volume's own count";
    return io;
  };
  EXPECT_EQ(written(0, stripe), (Io{0, k, 0, m})) << "a full stripe: nothing is read";
  const auto log_before = info_of(*volume);
  EXPECT_EQ(written(0, stripe), (Io{0, k, 0, m})) << "again, through the log: one write for each column";
  const auto log_after = info_of(*volume);
  EXPECT_EQ(log_after.log.writes - log_before.log.writes, m + 1) << "one record on each of m+1 members";
  EXPECT_EQ(log_after.log.reads, log_before.log.reads);
  // 4 for RAID-5, 6 for RAID-6.
  EXPECT_EQ(written(3 * unit + 8192, 4096), (Io{1, 1, m, m})) << "old data and parity are read, new ones written";
  written(stripe, stripe - unit);  // all but the last column
  EXPECT_EQ(written(2 * stripe - unit, 4096), (Io{0, 1, m, m})) << "nothing was written there before: 3 and 5";
  EXPECT_EQ(written(2 * stripe + unit, 4096), (Io{0, 1, 0, m})) << "an empty stripe: its parity is zeros";
  EXPECT_EQ(written(unit, stripe - unit), (Io{1, k - 1, 0, m})) << "a reconstruct-write: all but one column";
  written(3 * stripe, unit);
  const tandem_volume_window window = volume->delay_begin(3 * stripe, stripe);
  for (const std::uint64_t column : {0u, 5u})
    EXPECT_EQ(written(3 * stripe + column * unit, 4096), (Io{0, 1, 0, 0}))
        << "delayed, of fresh blocks and of old ones";
  EXPECT_EQ(counted(*volume, [&] { volume->delay_end(window, false); }).data_reads, 2u) << "each unit with data once";
  EXPECT_EQ(counted(*volume, [&] { volume->trim(0, 3 * stripe); }), (Io{0, 0, 0, 0}));
}

TEST_P(Costs, OfTheLog) {
  const std::uint32_t k = 4, m = GetParam();
  Array array(k, m, 4096, 16 << 20);
  const auto volume = array.open();
  const Bytes data = paint(1 << 20, 2);
  volume->write(0, data.data(), data.size());
  volume->flush();
  const auto before = info_of(*volume);
  for (std::uint64_t i = 0; i < 20; ++i) volume->write(i * 8192, data.data() + i, 4096);
  volume->flush();
  volume->flush();  // nothing to do
  const auto after = info_of(*volume);
  EXPECT_EQ(after.log.writes - before.log.writes, m + 1);
  EXPECT_EQ(after.transaction_count - before.transaction_count, 1u);
  EXPECT_EQ(after.checksum.reads, before.checksum.reads) << "the pages are in memory";
}

INSTANTIATE_TEST_SUITE_P(Parities, Costs, ::testing::Values(1, 2, 3));

// ---- damage -----------------------------------------------------------------------------------------

struct Damage : ::testing::Test {
  Array array{4, 2, 8192, 1 << 20};
  std::unique_ptr<Volume> volume = array.open();
  Bytes model = paint(volume->geometry().volume_bytes(), 3);

  void SetUp() override {
    volume->write(0, model.data(), model.size());
    volume->flush();
  }
  void rot(std::size_t disk, std::uint64_t offset) { array.disks[disk]->bytes[offset] ^= std::byte{1}; }
  void reopen(const std::vector<std::size_t> &without = {}, bool read_only = false) {
    volume->flush();
    volume.reset();
    volume = array.open(without, read_only);
  }
};

TEST_F(Damage, NothingIsWrittenToAVolumeForReading) {
  const Geometry geometry = volume->geometry();
  reopen({}, true);
  rot(0, geometry.block_offset(0));
  std::vector<Bytes> before;
  for (const auto &disk : array.disks) before.push_back(disk->bytes);
  EXPECT_EQ(read_all(*volume), model);
  EXPECT_EQ(status_of([&] { volume->write(0, model.data(), 1); }), TANDEM_ERROR_UNAVAILABLE);
  EXPECT_EQ(status_of([&] { volume->trim(0, 4096); }), TANDEM_ERROR_UNAVAILABLE);
  EXPECT_EQ(status_of([&] { volume->delay_begin(0, model.size()); }), TANDEM_ERROR_UNAVAILABLE);
  volume->flush();
  volume.reset();
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(before[i] == array.disks[i]->bytes) << i;
}

TEST_F(Damage, MoreThanMIsReportedWithItsRangeAndTheRestIsRead) {
  const Geometry geometry = volume->geometry();
  for (const std::uint32_t column : {0u, 1u, 2u}) rot(geometry.member_of(5, column), geometry.block_offset(2 * 5));
  Bytes data(model.size());
  const std::uint64_t begin = 5 * geometry.stripe_bytes();
  EXPECT_TRUE(fails(
      TANDEM_ERROR_NOT_RECOVERABLE, [&] { volume->read(begin, data.data(), 4096); }, "bytes " + std::to_string(begin)));
  for (const std::uint64_t good : {begin + 4096, begin + 3 * 8192, begin - 8192, begin + geometry.stripe_bytes()}) {
    ASSERT_EQ(status_of([&] { volume->read(good, data.data(), 4096); }), TANDEM_OK) << tandem_last_error_message();
    EXPECT_TRUE(std::equal(data.begin(), data.begin() + 4096, model.begin() + static_cast<std::ptrdiff_t>(good)));
  }
  auto result = scrub(*volume);
  EXPECT_EQ(result.bad_block_count, 3u);
  EXPECT_EQ(result.lost_block_count, 3u);
  // What is written anew is whole again.
  volume->write(begin, model.data() + begin, geometry.stripe_bytes());
  EXPECT_EQ(read_all(*volume), model);
}

TEST_F(Damage, AMemberThatVanishesIsLostAndTheVolumeGoesOn) {
  array.disks[2]->fails_reads = array.disks[2]->fails_writes = true;
  EXPECT_EQ(read_all(*volume), model);
  const Bytes data = paint(50000, 4);
  write(*volume, &model, 1000, data);
  volume->flush();
  EXPECT_EQ(member_of(*volume, 2).state, TANDEM_VOLUME_MEMBER_LOST);
  EXPECT_EQ(info_of(*volume).epoch, 1u);
  array.disks[2]->fails_reads = array.disks[2]->fails_writes = false;
  reopen();
  EXPECT_EQ(member_of(*volume, 2).state, TANDEM_VOLUME_MEMBER_STALE) << "it missed writes";
  EXPECT_EQ(read_all(*volume), model);
  for (const std::size_t disk : {0, 3}) array.disks[disk]->fails_writes = true;
  EXPECT_EQ(status_of([&] {
              volume->write(0, data.data(), data.size());
              volume->flush();
            }),
            TANDEM_ERROR_IO)
      << "three of six are lost";
  EXPECT_NE(std::string(tandem_last_error_message()).find("3 of 6"), std::string::npos) << tandem_last_error_message();
}

TEST_F(Damage, HalvesThatWereWrittenApartAreRefused) {
  Array mirror(2, 2, 4096, 1 << 20);
  const auto write_with = [&](const std::vector<std::size_t> &without) {
    const auto half = mirror.open(without);
    half->write(0, model.data(), 4096);
    half->flush();
  };
  write_with({0, 1});
  EXPECT_EQ(status_of([&] { mirror.open(); }), TANDEM_OK) << "two are stale, and that is all";
  write_with({2, 3});                                                 // these two were never told that they are stale
  for (int session = 0; session < 40; ++session, write_with({0, 1}))  // the tags of 32 sessions are kept
    EXPECT_EQ(status_of([&] { mirror.open(); }), TANDEM_ERROR_DAMAGED) << session << tandem_last_error_message();
}

// Two sessions do not begin. Members of both take part in the next one, without the one member that could have begun.
TEST_F(Damage, SessionsThatDidNotBeginWereNotWrittenApart) {
  Array five(3, 2, 4096, 1 << 20);
  const auto write_without = [&](std::size_t away, std::int64_t calls) {
    five.machine = std::make_shared<Machine>();
    const auto session = five.open({away});
    five.machine->dies_at = calls;
    return status_of([&] {
      session->write(0, model.data(), 4096);
      session->flush();
    });
  };
  constexpr std::int64_t kSuperblock = 2;                               // calls: a write and a sync
  EXPECT_EQ(write_without(4, 1 * kSuperblock), TANDEM_ERROR_IO);        // member 0 has the first writing
  EXPECT_EQ(write_without(0, (4 + 1) * kSuperblock), TANDEM_ERROR_IO);  // the others another one, member 1 the second
  EXPECT_EQ(write_without(1, -1), TANDEM_OK);
  five.machine = std::make_shared<Machine>();
  ASSERT_EQ(status_of([&] { volume = five.open(); }), TANDEM_OK) << tandem_last_error_message();
  for (const std::uint32_t member : {0u, 1u}) EXPECT_EQ(member_of(*volume, member).state, TANDEM_VOLUME_MEMBER_STALE);
  EXPECT_EQ(read(*volume, 0, 4096), part(model, 0, 4096));
}

TEST_F(Damage, ATableThatCannotBeReadDoesNotLoseItsMember) {
  reopen();
  array.disks[3]->fails_reads = true;
  EXPECT_EQ(read_all(*volume), model);
  const Bytes data = paint(50000, 4);
  write(*volume, &model, 1000, data);
  EXPECT_EQ(member_of(*volume, 3).state, TANDEM_VOLUME_MEMBER_CURRENT);
  EXPECT_GT(member_of(*volume, 3).read_error_count, 0u);
  array.disks[3]->fails_reads = false;
  auto result = scrub(*volume, true);
  EXPECT_EQ(result.lost_block_count, 0u);
  reopen({0, 1});
  EXPECT_EQ(read_all(*volume), model);
}

TEST_F(Damage, AfterARowThatIsHalfNewNothingIsWritten) {
  const auto overwrite = [&] { volume->write(0, model.data() + 5000, 200000); };
  reopen();
  overwrite();
  array.disks[4]->has_no_memory = true;
  EXPECT_THROW(volume->flush(), std::bad_alloc);
  array.disks[4]->has_no_memory = false;
  EXPECT_EQ(status_of([&] { volume->flush(); }), TANDEM_ERROR_IO);
  EXPECT_EQ(status_of(overwrite), TANDEM_ERROR_IO);
  EXPECT_NE(std::string(tandem_last_error_message()).find("memory ran out"), std::string::npos);
  volume.reset();
  volume = array.open();
  Bytes found(4096);
  volume->read(0, found.data(), 4096);
  EXPECT_TRUE(std::equal(found.begin(), found.end(), model.begin()) ||
              std::equal(found.begin(), found.end(), model.begin() + 5000));
  auto result = scrub(*volume);
  EXPECT_EQ(result.bad_block_count + result.bad_parity_count, 0u);
}

// ---- windows ----------------------------------------------------------------------------------------

// What is lost inside of a window: history_test.
TEST_F(Damage, AWindowIsRoundedInwardAndItsAcceptedLossIsZeros) {
  const Geometry geometry = volume->geometry();
  const std::uint64_t stripe = geometry.stripe_bytes();
  const auto window = volume->delay_begin(stripe + 1, 4 * stripe);
  EXPECT_EQ(window.begin_bytes, 2 * stripe);
  EXPECT_EQ(window.end_bytes, 5 * stripe);
  write(*volume, &model, 2 * stripe, paint(stripe, 6));
  reopen({0});
  EXPECT_TRUE(fails(
      TANDEM_ERROR_NOT_RECOVERABLE, [&] { read(*volume, 2 * stripe, 3 * stripe); }, "unprotected"));
  EXPECT_EQ(status_of([&] { volume->delay_end(window, false); }), TANDEM_ERROR_NOT_RECOVERABLE);
  EXPECT_EQ(volume->windows().size(), 1u);
  volume->delay_end(window, true);
  EXPECT_EQ(volume->windows().size(), 0u);
  for (std::uint64_t at = window.begin_bytes; at < window.end_bytes; at += 8192)
    if (geometry.member_of(at / stripe, static_cast<std::uint32_t>(at % stripe / 8192)) == 0)
      std::fill_n(model.begin() + static_cast<std::ptrdiff_t>(at), 8192, std::byte{0});
  EXPECT_EQ(read_all(*volume), model);
  reopen({0, 1});
  EXPECT_EQ(read_all(*volume), model) << "the rest is protected again";
}

TEST_F(Damage, ScrubWithRepairEndsWindowsThatWereLeftOpen) {
  const std::uint64_t stripe = volume->geometry().stripe_bytes();
  volume->delay_begin(0, 2 * stripe);
  std::fill_n(model.begin() + 5000, 20000, std::byte{9});
  volume->write(5000, model.data() + 5000, 20000);
  auto result = scrub(*volume, true);
  EXPECT_EQ(volume->windows().size(), 1u) << "the window is still in use";
  EXPECT_EQ(result.unprotected_stripe_count, 1u) << "the other stripe still has its parity";
  reopen();
  result = scrub(*volume, true);
  EXPECT_EQ(volume->windows().size(), 0u);
  EXPECT_EQ(result.bad_parity_count, 0u);
  reopen({0, 3});
  EXPECT_EQ(read_all(*volume), model);
}

TEST_F(Damage, WindowsThatMakeNoSense) {
  const std::uint64_t stripe = volume->geometry().stripe_bytes(), size = volume->geometry().volume_bytes();
  const auto begin = [&](std::uint64_t offset, std::uint64_t bytes) {
    return status_of([&] { volume->delay_begin(offset, bytes); });
  };
  EXPECT_EQ(begin(1, 2 * stripe - 2), TANDEM_ERROR_INVALID_ARGUMENT) << "no full stripe";
  EXPECT_EQ(begin(0, size + 1), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(begin(UINT64_MAX, 2), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(begin(2 * stripe, stripe), TANDEM_OK);
  EXPECT_EQ(begin(stripe, 3 * stripe), TANDEM_ERROR_INVALID_ARGUMENT) << "overlaps";
  EXPECT_EQ(status_of([&] { volume->delay_end({stripe, 2 * stripe}, false); }), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([&] { volume->replace(0, array.fresh_member("new"), false); }), TANDEM_ERROR_UNAVAILABLE);
  EXPECT_EQ(status_of([&] { volume->delay_end({2 * stripe, 3 * stripe}, false); }), TANDEM_OK);
  EXPECT_EQ(status_of([&] { volume->delay_end({2 * stripe, 3 * stripe}, false); }), TANDEM_ERROR_INVALID_ARGUMENT);
  std::uint64_t opened = 0;
  const std::uint64_t stripes = volume->geometry().stripe_count;
  while (opened < TANDEM_VOLUME_MAX_WINDOWS && 2 * opened < stripes && begin(2 * opened * stripe, stripe) == TANDEM_OK)
    ++opened;
  if (opened == TANDEM_VOLUME_MAX_WINDOWS) {
    EXPECT_EQ(begin((2 * opened + 1) * stripe, stripe), TANDEM_ERROR_UNAVAILABLE);
  }
  array.disks[0]->fails_writes = true;
  volume->write(stripe, model.data(), stripe);
  EXPECT_EQ(begin(stripe, stripe), TANDEM_ERROR_UNAVAILABLE) << "a member is lost";
}

// Windows that begin and end by themselves. The engine's thread is off here: move_windows() is one turn of it.
struct Bounds : Damage {
  const std::uint64_t stripe = volume->geometry().stripe_bytes(), stripes = volume->geometry().stripe_count;

  tandem_volume_window begin(std::uint64_t bound_stripes, std::chrono::milliseconds time = std::chrono::hours(1)) {
    return volume->delay_bounded(0, stripes * stripe, bound_stripes * stripe, time);
  }
  // A block of a stripe, twice: the first write asks for a window, the second one is in it.
  void write_in_window(std::uint64_t at) {
    write(*volume, &model, at * stripe, paint(4096, ++seed));
    volume->move_windows();
    write(*volume, &model, at * stripe, paint(4096, ++seed));
  }
  std::uint64_t window_stripes() const {
    std::uint64_t found = 0;
    for (const auto &each : volume->windows()) found += (each.end_bytes - each.begin_bytes) / stripe;
    return found;
  }
  std::uint64_t lost_blocks() {
    Bytes found(4096);
    std::uint64_t lost = 0;
    for (std::uint64_t at = 0; at < model.size(); at += found.size())
      if (status_of([&] { volume->read(at, found.data(), found.size()); }) == TANDEM_ERROR_NOT_RECOVERABLE)
        ++lost;
      else
        EXPECT_EQ(found, part(model, at, found.size())) << at;
    return lost;
  }
  std::uint64_t seed = 100;
};

TEST_F(Bounds, NeitherALossNorACrashCostsMoreThanTheBound) {
  ASSERT_GE(stripes, 20u);
  for (const std::uint64_t bound : {1u, 3u, 8u, 11u}) {
    begin(bound);
    for (const std::uint64_t at : {0u, 1u, 7u, 3u, 12u, 12u, 17u, 2u, 19u, 5u, 9u, 14u}) {
      write_in_window(at);
      EXPECT_LE(window_stripes(), bound) << at;
      EXPECT_LE(volume->windows().size(), 8u);
      EXPECT_LE(info_of(*volume).unprotected_bytes, window_stripes() * stripe);
      EXPECT_GE(info_of(*volume).unprotected_bytes, stripe) << "the stripe that was written twice";
    }
    EXPECT_EQ(info_of(*volume).bound_bytes, bound * stripe);
    volume->flush();
    // What is lost with a member now: its blocks of stripes without parity.
    const std::uint64_t unprotected = info_of(*volume).unprotected_bytes / stripe, open = window_stripes();
    array.disks[1]->fails_reads = true;
    EXPECT_LE(lost_blocks(), 2 * unprotected);
    array.disks[1]->fails_reads = false;
    // The process dies, and then the member goes: its blocks of the windows.
    array.machine->is_dead = true;
    volume.reset();
    array.machine = std::make_shared<Machine>();
    volume = array.open({1});
    EXPECT_EQ(window_stripes(), open);
    EXPECT_EQ(info_of(*volume).unprotected_bytes, open * stripe) << "which of them have parity is not known";
    EXPECT_EQ(info_of(*volume).bounded.end_bytes, 0u);
    EXPECT_LE(lost_blocks(), 2 * open);
    volume.reset();
    volume = array.open();
    EXPECT_EQ(lost_blocks(), 0u);
    for (const auto &each : volume->windows()) volume->delay_end(each, false);
  }
  reopen({0, 1});
  EXPECT_EQ(read_all(*volume), model) << "protected again";
}

TEST_F(Bounds, WindowsEndByThemselves) {
  const auto range = begin(8, std::chrono::milliseconds(0));
  write_in_window(3);
  EXPECT_EQ(window_stripes(), 1u);
  EXPECT_TRUE(volume->move_windows()) << "it is old enough";
  EXPECT_EQ(window_stripes(), 0u);
  EXPECT_EQ(info_of(*volume).unprotected_bytes, 0u);
  write_in_window(5);
  volume->delay_end(range, false);
  EXPECT_EQ(window_stripes(), 0u);
  EXPECT_EQ(info_of(*volume).bounded.end_bytes, 0u);
  write_in_window(5);
  EXPECT_EQ(window_stripes(), 0u) << "nothing asks for windows any more";
  const auto empty = begin(8);
  write(*volume, &model, 7 * stripe, paint(4096, ++seed));
  volume->delay_end(empty, false);
  array.machine->is_dead = true;
  volume.reset();
  array.machine = std::make_shared<Machine>();
  volume = array.open();
  EXPECT_EQ(read(*volume, 7 * stripe, 4096), part(model, 7 * stripe, 4096)) << "its end flushes, without windows too";
  begin(8);
  write_in_window(6);
  volume->close();
  volume.reset();
  volume = array.open();
  EXPECT_EQ(window_stripes(), 0u) << "the end of the volume is theirs";
  reopen({2, 3});
  EXPECT_EQ(read_all(*volume), model);
}

TEST_F(Bounds, CostTwoWritingsOfSuperblocksForEachMove) {
  begin(8);
  write_in_window(0);
  const auto writings = [&] { return info_of(*volume).superblock.writes / 6; };
  const std::uint64_t before = writings();
  for (std::uint64_t at = 1; at < 20; ++at) write_in_window(at);
  EXPECT_EQ(writings() - before, 19u + 12u) << "each begins one, and all but the first eight end one";
  const auto counts = info_of(*volume);
  for (std::uint64_t at = 12; at < 20; ++at) write(*volume, &model, at * stripe + 8192, paint(4096, ++seed));
  EXPECT_EQ(info_of(*volume).parity.reads, counts.parity.reads) << "in the windows no parity is read";
  write(*volume, &model, 0, part(model, 0, 2 * stripe));
  volume->move_windows();
  EXPECT_EQ(writings() - before, 31u) << "a full stripe needs no window";
}

TEST_F(Bounds, EndWithTheLossOfAMember) {
  begin(8);
  for (const std::uint64_t at : {2u, 4u, 8u}) write_in_window(at);
  const std::uint32_t lost = volume->geometry().member_of(4, 0);
  for (const std::uint64_t at : {2u, 8u}) ASSERT_EQ(volume->geometry().member_of(at, 4), lost) << "parity there";
  array.disks[lost]->fails_writes = true;
  write(*volume, &model, 10 * stripe, paint(stripe, ++seed));
  volume->flush();
  array.notes.clear();
  EXPECT_TRUE(volume->move_windows());
  EXPECT_EQ(info_of(*volume).bounded.end_bytes, 0u);
  ASSERT_EQ(volume->windows().size(), 1u) << "the others could be ended";
  EXPECT_EQ(volume->windows()[0].begin_bytes, 4 * stripe);
  ASSERT_FALSE(array.notes.empty());
  EXPECT_NE(array.notes.back().find("stays open"), std::string::npos) << array.notes.back();
  EXPECT_NE(array.notes.back().find("member " + std::to_string(lost)), std::string::npos) << array.notes.back();
  EXPECT_EQ(status_of([&] { begin(8); }), TANDEM_ERROR_UNAVAILABLE);
}

// A stripe of a window that was not written to has its parity. But a crash would forget that.
TEST_F(Bounds, StripesThatWereNotWrittenStayProtected) {
  const auto window = volume->delay_begin(0, 6 * stripe);
  write(*volume, &model, 2 * stripe, paint(4096, ++seed));
  EXPECT_EQ(info_of(*volume).unprotected_bytes, stripe);
  const std::uint32_t lost = volume->geometry().member_of(4, 0);
  array.disks[lost]->fails_reads = array.disks[lost]->fails_writes = true;
  write(*volume, &model, 10 * stripe, paint(stripe, ++seed));
  EXPECT_EQ(read(*volume, 3 * stripe, 3 * stripe), part(model, 3 * stripe, 3 * stripe));
  EXPECT_EQ(status_of([&] { volume->write(4 * stripe, model.data(), 4096); }), TANDEM_ERROR_NOT_RECOVERABLE);
  write(*volume, &model, 4 * stripe + 8192, paint(4096, ++seed));
  EXPECT_EQ(info_of(*volume).unprotected_bytes, stripe) << "without all members no stripe gives up its parity";
  EXPECT_EQ(read(*volume, 4 * stripe, stripe), part(model, 4 * stripe, stripe));
  volume->delay_end(window, true);
}

TEST_F(Bounds, ThatMakeNoSense) {
  EXPECT_TRUE(fails(
      TANDEM_ERROR_INVALID_ARGUMENT, [&] { volume->delay_bounded(0, model.size(), stripe - 1, {}); }, "full stripe"));
  const auto range = begin(4);
  EXPECT_EQ(range.end_bytes, stripes * stripe);
  EXPECT_TRUE(fails(
      TANDEM_ERROR_INVALID_ARGUMENT, [&] { begin(4); }, "bounded"));
  EXPECT_TRUE(fails(
      TANDEM_ERROR_INVALID_ARGUMENT, [&] { volume->delay_begin(0, stripe); }, "bounded"));
  write_in_window(3);
  EXPECT_TRUE(fails(
      TANDEM_ERROR_INVALID_ARGUMENT, [&] { volume->delay_end(volume->windows().at(0), false); }, "bounded"));
  volume->delay_end(range, false);
  volume->delay_begin(0, stripe);
  EXPECT_TRUE(fails(
      TANDEM_ERROR_INVALID_ARGUMENT, [&] { begin(4); }, "open window"));
  volume->delay_end({0, stripe}, false);
  volume->delay_bounded(0, 4 * stripe, stripe, std::chrono::hours(1));
  EXPECT_TRUE(fails(
      TANDEM_ERROR_UNAVAILABLE, [&] { volume->delay_bounded(6 * stripe, 4 * stripe, stripe, {}); }, "one bounded"));
}

// ---- slow members -----------------------------------------------------------------------------------

struct Slow : Damage {
  static constexpr std::uint32_t kSlow = 2;
  std::mt19937_64 random{1};
  std::uint64_t reads = 0;

  void read_block(std::uint64_t block) {
    ASSERT_EQ(read(*volume, block * 4096, 4096), part(model, block * 4096, 4096)) << block;
    ++reads;
  }
  std::uint64_t any_block() { return random() % (model.size() / 4096); }
  std::uint64_t any_block_of(std::uint32_t member) {
    for (;;) {
      const std::uint64_t block = any_block(), stripe = volume->geometry().stripe_bytes(), at = block * 4096;
      if (volume->geometry().member_of(at / stripe, static_cast<std::uint32_t>(at % stripe / 8192)) == member)
        return block;
    }
  }
  void find_slow(std::int32_t is_slow) {
    for (int i = 0; i < 200'000 && member_of(*volume, kSlow).is_slow != is_slow; ++i) read_block(any_block());
    ASSERT_EQ(member_of(*volume, kSlow).is_slow, is_slow);
  }
  void SetUp() override {
    Damage::SetUp();
    reopen();
    array.disks[kSlow]->read_milliseconds = 3;
    array.disks[kSlow]->counts_from = volume->geometry().data_offset();
  }
};

TEST_F(Slow, AMemberIsReadAroundAndNothingIsHeldAgainstIt) {
  find_slow(1);
  const auto before = info_of(*volume);
  array.disks[kSlow]->reads = 0;
  for (int i = 0; i < 600; ++i) read_block(any_block());
  const auto after = info_of(*volume);
  EXPECT_GT(after.avoided_block_count - before.avoided_block_count, 50u);
  EXPECT_LE(array.disks[kSlow]->reads, 5u) << "one of a hundred";
  EXPECT_LE(after.data.reads + after.parity.reads - before.data.reads - before.parity.reads, 2u * 600)
      << "extra reads are at most as many as the callers'";
  EXPECT_EQ(after.degraded_read_count + after.mended_block_count + after.lost_count + after.old_count, 0u);
  EXPECT_EQ(after.superblock.writes + after.data.writes + after.parity.writes + after.log.writes, 0u)
      << "nothing is written because of it";
  const auto member = member_of(*volume, kSlow);
  EXPECT_EQ(member.state, TANDEM_VOLUME_MEMBER_CURRENT);
  EXPECT_EQ(member.read_error_count + member.bad_block_count, 0u);
  EXPECT_STREQ(member.why, "");
  array.disks[kSlow]->read_milliseconds = 0;
  find_slow(0);
}

TEST_F(Slow, ReadsBeyondTheBudgetWaitForTheMember) {
  find_slow(1);
  for (int i = 0; i < 600; ++i) read_block(any_block_of(kSlow));
  const auto info = info_of(*volume);
  EXPECT_LE(4 * info.avoided_block_count, reads);
  EXPECT_GT(4 * info.avoided_block_count, reads / 2) << "the budget is used";
}

TEST_F(Slow, OthersThatAreDamagedAreComputedWithIt) {
  find_slow(1);
  const std::uint64_t block = any_block_of(kSlow), stripe = block * 4096 / volume->geometry().stripe_bytes();
  const std::uint64_t row = stripe * 2 + block % 2;
  for (std::uint32_t away = 0, left = 2; left != 0; ++away)
    if (away != kSlow) rot(away, volume->geometry().block_offset(row)), --left;
  read_block(block);
  read_block(block);
  for (int i = 0; i < 100; ++i) read_block(any_block());
  EXPECT_EQ(scrub(*volume, true).lost_block_count, 0u);
  EXPECT_EQ(scrub(*volume).bad_block_count, 0u);
  write(*volume, &model, block * 4096, paint(4096, 9));
  read_block(block);
  volume->delay_begin(0, model.size());
  write(*volume, &model, block * 4096, paint(4096, 10));
  volume->flush();
  read_block(block);
}

TEST_F(Slow, AsAllOthersIsNotSlow) {
  for (const auto &disk : array.disks) disk->read_milliseconds = 1;
  for (int i = 0; i < 800; ++i) read_block(any_block());
  EXPECT_EQ(info_of(*volume).avoided_block_count, 0u);
}

// ---- kills ------------------------------------------------------------------------------------------

// At each call. One thread makes all calls, and the thread sanitizer leaves these tests out (CMakeLists.txt).
struct Kills : ::testing::Test {
  using Images = std::vector<Bytes>;  // of disks

  const Bytes model = paint(200'000, 3);
  Array three{2, 1, 4096, 640 << 10};
  const Images fresh = images_of(three);
  std::unique_ptr<Volume> volume;

  // The process is killed, if it still runs, and the next one dies at this call after its opening.
  tandem_status try_restart(Array &array, const std::vector<std::size_t> &missing = {}, std::int64_t dies_at = -1,
                            bool read_only = false) {
    array.machine->is_dead = true;
    volume.reset();
    array.machine = std::make_shared<Machine>();
    const tandem_status status = status_of([&] { volume = array.open(missing, read_only); });
    array.machine->dies_at = dies_at;
    return status;
  }
  void restart(Array &array, const std::vector<std::size_t> &missing = {}, std::int64_t dies_at = -1) {
    if (try_restart(array, missing, dies_at) != TANDEM_OK) throw std::runtime_error(tandem_last_error_message());
  }
  std::size_t window_count() const { return volume->windows().size(); }
  tandem_status write_and_flush(std::uint64_t offset, const Bytes &data) {
    return status_of([&] { write(*volume, offset, data), volume->flush(); });
  }
  static Images images_of(const Array &array) {
    Images images;
    for (const auto &disk : array.disks) images.push_back(disk->bytes);
    return images;
  }
  void put_back(Array &array, const Images &images) {
    array.machine->is_dead = true;
    volume.reset();
    for (std::size_t i = 0; i < images.size(); ++i) array.disks[i]->bytes = images[i];
  }
};

// Three kills while sessions begin: each writing of superblocks is the newest one on its member.
TEST_F(Kills, NoTwoSuperblocksOfAMemberHaveOneNumber) {
  constexpr int kMost = 2 * 3;  // writings of three members, of two calls each
  for (int kills = 0; kills < kMost * kMost * kMost; ++kills) {
    put_back(three, fresh);
    for (const int writings : {kills % kMost, kills / kMost % kMost, kills / kMost / kMost}) {
      restart(three, {}, 2 * writings);
      EXPECT_EQ(status_of([&] { volume->write(0, model.data(), 4096); }), TANDEM_ERROR_IO);
    }
    for (const auto &disk : three.disks)
      EXPECT_NE(load<std::uint64_t>(disk->bytes.data() + 80), load<std::uint64_t>(disk->bytes.data() + 4096 + 80))
          << kills;
  }
}

// While a window begins or ends, then at each write of two sessions without member 0, which is the first one to know.
// They leave greater counters on the members that it tells. What the next opening lists, later ones list without any
// member.
TEST_F(Kills, WindowsThatWereListedAreKnownToAllMembers) {
  std::size_t listed_count = 0, told_count = 0;
  // Each returns whether the kill came too late.
  const auto change_window = [&](bool ends, std::int64_t kill) {
    restart(three);
    write(*volume, 16384, part(model, 0, 4096));
    if (ends) volume->delay_begin(0, 8192);
    three.machine->dies_at = kill;
    return status_of([&] {
             ends ? volume->delay_end({0, 8192}, false) : void(volume->delay_begin(0, 8192));
           }) == TANDEM_OK;
  };
  const auto begin_without_0 = [&](std::int64_t kill) {
    restart(three, {0}, kill);
    return status_of([&] { write(*volume, 16384, part(model, 0, 4096)); }) == TANDEM_OK;
  };
  const auto check = [&](std::uint32_t missing, const std::string &what) {
    // A later session may have begun on member 1. What that one says counts.
    const bool has_begun_later = try_restart(three, {2}, -1, true) != TANDEM_OK;
    if (try_restart(three, {missing}) != TANDEM_OK) return;
    const std::size_t listed = window_count();
    listed_count += listed;
    ++told_count;
    for (const std::size_t away : {1u, 0u, 2u}) {
      if (away == 2 && has_begun_later) continue;
      ASSERT_EQ(try_restart(three, {away}), TANDEM_OK) << what << ", without " << away << tandem_last_error_message();
      if (away == 1 || !has_begun_later) {
        EXPECT_EQ(window_count(), listed) << what << ", without " << away;
      }
    }
    ASSERT_EQ(try_restart(three), TANDEM_OK) << what << tandem_last_error_message();
  };
  for (const bool ends : {false, true})
    for (const std::uint32_t missing : {1u, 2u}) {
      bool is_late[3] = {};
      for (std::int64_t calls = 0; !is_late[0]; ++calls, is_late[1] = false) {
        put_back(three, fresh);
        is_late[0] = change_window(ends, calls);
        const Images changed = images_of(three);
        for (std::int64_t first = 0; !is_late[1]; first += 2, is_late[2] = false)
          for (std::int64_t second = 0; !is_late[1] && !is_late[2]; second += 2) {
            put_back(three, changed);
            is_late[1] = begin_without_0(first);
            if (!is_late[1]) is_late[2] = begin_without_0(second);
            check(missing, std::string(ends ? "end" : "begin") + " killed at " + std::to_string(calls) + ", " +
                               std::to_string(first) + " and " + std::to_string(second) + ", then without " +
                               std::to_string(missing));
          }
      }
    }
  EXPECT_GT(listed_count, 50u);
  EXPECT_GT(told_count, listed_count + 50);
}

// A mirror dies while it flushes, and is opened with one member. Its record is then on no other one.
TEST_F(Kills, ARecordThatTooFewMembersHaveIsInItsPlaceWhenTheOthersAreStale) {
  const Bytes older = part(model, 0, 40960), newer = part(model, 100000, 40960);
  for (const std::size_t here : {0u, 1u}) {
    bool is_flushed = false;
    for (std::int64_t calls = 0; !is_flushed; ++calls) {
      Array mirror(1, 1, 4096, 640 << 10);
      restart(mirror);
      ASSERT_EQ(write_and_flush(0, older), TANDEM_OK);
      mirror.machine->dies_at = calls;
      is_flushed = write_and_flush(0, newer) == TANDEM_OK;
      mirror.machine->is_dead = true;
      const Images killed = images_of(mirror);

      // Nothing more happens to this one but rot of its log.
      restart(mirror, {1 - here});
      mirror.disks[here]->bytes[kLogOffset] ^= std::byte{1};
      restart(mirror);
      Bytes found = read(*volume, 0, older.size());
      ASSERT_EQ(write_and_flush(81920, older), TANDEM_OK);
      restart(mirror, {here});
      EXPECT_EQ(read(*volume, 0, older.size()), found) << "half of the record, killed at call " << calls;

      bool is_over = false;
      for (std::int64_t kill = 0; !is_over; ++kill) {
        put_back(mirror, killed);
        restart(mirror, {1 - here});
        found = read(*volume, 0, older.size());
        mirror.machine->dies_at = kill;
        is_over = write_and_flush(81920, older) == TANDEM_OK;
        restart(mirror, {1 - here});
        EXPECT_EQ(read(*volume, 0, older.size()), found) << "killed at calls " << calls << " and " << kill;
        EXPECT_TRUE(found == newer || !is_flushed);
      }
      volume.reset();  // before its disks
    }
  }
}

// ---- care -------------------------------------------------------------------------------------------

// While the new member is prepared: this takes long and blocks no other call.
TEST_F(Damage, WhatHappensDuringAReplaceMayForbidIt) {
  const std::uint64_t stripe = volume->geometry().stripe_bytes();
  Given given = array.fresh_member("spare");
  array.spare->before_sync = [&] { volume->delay_begin(0, 2 * stripe); };
  EXPECT_EQ(status_of([&] { volume->replace(2, std::move(given), false); }), TANDEM_ERROR_UNAVAILABLE);
  const Bytes data = paint(stripe, 5);
  write(*volume, &model, 0, data);
  EXPECT_EQ(read_all(*volume), model);
  volume->delay_end({0, 2 * stripe}, false);

  given = array.fresh_member("spare");
  array.spare->before_sync = [&] {
    for (const std::size_t disk : {0, 1}) array.disks[disk]->fails_writes = true;
    volume->write(0, data.data(), stripe);
  };
  EXPECT_EQ(status_of([&] { volume->replace(2, std::move(given), false); }), TANDEM_ERROR_NOT_RECOVERABLE);
  EXPECT_EQ(member_of(*volume, 2).state, TANDEM_VOLUME_MEMBER_CURRENT);
  EXPECT_EQ(read_all(*volume), model);
}

// A reader that began before a replace and ends after it.
TEST_F(Damage, AReaderDoesNotKeepAPageOfTheOldMember) {
  const Geometry geometry = volume->geometry();
  volume->flush();
  volume.reset();
  VolumeId id;
  id.fill(7);
  const Seed seed(id);
  Members members(6, 4, false, [](const std::string &) {});
  auto given = array.given({});
  for (std::uint32_t i = 0; i < 6; ++i)
    members.put(i, "", std::move(given[i].member), TANDEM_VOLUME_MEMBER_CURRENT, "");
  Table table(members, geometry, seed, 1 << 20);
  Entry entry;
  table.get(1, 0, 1, &entry);
  EXPECT_NE(entry.generation, kUnknown);
  auto fresh = array.fresh_member("spare");
  write_tables(*fresh.member, geometry, seed, 2, kLostEntry, 9);
  const std::shared_ptr<Member> next = std::move(fresh.member);
  array.disks[2]->before_read = [&] {
    members.put(2, "", next, TANDEM_VOLUME_MEMBER_REBUILDING, "");
    table.drop(2);
  };
  for (int i = 0; i < 2; ++i) {
    table.get(2, 0, 1, &entry);
    EXPECT_EQ(entry.generation, kUnknown);
  }
}

TEST_F(Damage, AWriteToTheOldMemberThatFailsDoesNotLoseTheNewOne) {
  Members members(1, 1, false, [](const std::string &) {});
  members.put(0, "", std::move(array.given({})[0].member), TANDEM_VOLUME_MEMBER_CURRENT, "");
  auto fresh = array.fresh_member("spare");
  const std::shared_ptr<Member> next = std::move(fresh.member);
  array.disks[0]->fails_writes = true;
  array.disks[0]->before_sync = [&] { members.put(0, "", next, TANDEM_VOLUME_MEMBER_REBUILDING, ""); };
  EXPECT_FALSE(members.sync(0));
  EXPECT_EQ(members.state(0), TANDEM_VOLUME_MEMBER_REBUILDING);
  array.spare->fails_writes = true;
  EXPECT_FALSE(members.sync(0));
  EXPECT_EQ(members.state(0), TANDEM_VOLUME_MEMBER_LOST);
}

TEST_F(Damage, ScrubGoesOnWhereItWasEnded) {
  CareSettings settings;
  int calls = 0;
  settings.progress_user = &calls;
  settings.progress = [](void *user, std::uint64_t done, std::uint64_t) -> std::int32_t {
    return done != 0 && ++*static_cast<int *>(user) == 5;
  };
  tandem_volume_care_result result{};
  EXPECT_EQ(volume->scrub(settings, &result), TANDEM_ERROR_CANCELLED);
  EXPECT_EQ(result.stripe_count, 5u);
  reopen();
  EXPECT_EQ(info_of(*volume).scrub_position_bytes, 5 * volume->geometry().stripe_bytes());
  EXPECT_EQ(volume->scrub({}, &(result = {})), TANDEM_OK);
  EXPECT_EQ(result.stripe_count, volume->geometry().stripe_count - 5);
  EXPECT_EQ(info_of(*volume).scrub_position_bytes, 0u);
}

TEST_F(Damage, ScrubReportsParityThatDoesNotMatchAndTouchesNothing) {
  // A right checksum over wrong bytes: made as a defect of the engine would make it.
  const Geometry geometry = volume->geometry();
  volume.reset();
  const std::uint32_t member = geometry.member_of(1, 4);
  Disk &disk = *array.disks[member];
  const Seed seed([] {
    VolumeId id;
    id.fill(7);
    return id;
  }());
  Page page;
  std::memcpy(&page, disk.bytes.data() + geometry.page_offset(0), sizeof page);
  ASSERT_TRUE(check_page(seed, member, 0, page));
  disk.bytes[geometry.block_offset(2) + 17] ^= std::byte{1};
  page.entries[2].checksum =
      seed.block(member, 2, page.entries[2].generation, disk.bytes.data() + geometry.block_offset(2));
  seal_page(seed, member, 0, page);
  std::memcpy(disk.bytes.data() + geometry.page_offset(0), &page, sizeof page);
  // The last record would bring the page back.
  for (const auto &each : array.disks) each->bytes[kLogOffset] ^= std::byte{1};
  volume = array.open();
  for (const bool repairs : {false, true}) {
    const auto result = scrub(*volume, repairs);
    EXPECT_EQ(result.bad_parity_count, 1u);
    EXPECT_EQ(result.lost_block_count, 1u);
    EXPECT_EQ(result.mended_block_count, 0u) << "it is not known which block is wrong";
  }
}

// ---- table ------------------------------------------------------------------------------------------

TEST(TableOfChecksums, NeighbouringPagesAreReadTogether) {
  Array array(2, 1, 1 << 20, 64 << 20);
  auto volume = array.open();
  const Geometry geometry = volume->geometry();
  ASSERT_GT(geometry.page_count(), 32u);
  Bytes found(4096);
  const auto reads = [&](std::uint64_t page) {  // of one block of data with its entry in this page
    const std::uint64_t block = page * kEntriesPerPage, stripe = block / geometry.rows();
    const std::uint64_t before = info_of(*volume).checksum.reads;
    volume->read(stripe * geometry.stripe_bytes() + block % geometry.rows() * 4096, found.data(), found.size());
    return info_of(*volume).checksum.reads - before;
  };
  const std::uint64_t first = reads(3);
  EXPECT_EQ(first, 3u) << "one I/O for each member";
  for (const std::uint64_t page : {0, 7, 15}) EXPECT_EQ(reads(page), 0u) << page;
  EXPECT_EQ(reads(16), 3u);
  EXPECT_EQ(reads(geometry.page_count() - 1), 3u) << "the last group is shorter";
}

TEST(TableOfChecksums, ABadSectorCostsItsOwnPage) {
  Array array(2, 1, 1 << 20, 64 << 20);
  auto volume = array.open();
  const Geometry geometry = volume->geometry();
  const Bytes data = paint(8 * geometry.stripe_bytes(), 1);
  volume->write(0, data.data(), data.size());
  volume->flush();
  volume.reset();
  array.disks[0]->bad_byte = geometry.page_offset(3) + 100;
  volume = array.open();
  EXPECT_EQ(read(*volume, 0, data.size()), data);
  const std::uint64_t decoded = info_of(*volume).degraded_read_count;
  EXPECT_GT(decoded, 0u);
  EXPECT_LE(decoded, 2 * kEntriesPerPage) << "for the read, and to mend the stripe";
}

// ---- what care counts ---------------------------------------------------------------------------------

TEST(Care, ARebuildCountsWhatItWrote) {
  Array own(3, 1, 8192, 2 << 20);
  auto open = own.open();
  const Bytes data = paint(8192, 3);
  open->write(0, data.data(), data.size());  // one unit and its parity
  open->flush();
  std::uint64_t mended = 0;
  for (std::uint32_t index = 0; index < 4; ++index) {
    replace(*open, own, index);
    tandem_volume_care_result result{};
    ASSERT_EQ(open->rebuild({}, &result), TANDEM_OK);
    mended += result.mended_block_count;
  }
  EXPECT_EQ(mended, 4u) << "two blocks of data and two of parity, no zeros";
}

// ---- extents ----------------------------------------------------------------------------------------

TEST(Extents, AreWhatWasWritten) {
  Array array(3, 2, 8192, 2 << 20);
  auto volume = array.open();
  const std::uint64_t size = volume->geometry().volume_bytes();
  const Bytes data = paint(100000, 1);
  EXPECT_EQ(volume->extents(0, size, 10).size(), 1u);
  EXPECT_EQ(volume->extents(0, size, 10)[0].written, 0u);
  volume->write(40960, data.data(), 8192);
  volume->write(100, data.data(), 10);
  auto found = volume->extents(0, size, 10);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].end_bytes, 4096u);
  EXPECT_EQ(found[2].begin_bytes, 40960u);
  EXPECT_EQ(found[2].end_bytes, 49152u);
  EXPECT_EQ(found[3].end_bytes, size);
  EXPECT_EQ(volume->extents(0, size, 2).size(), 2u);
  EXPECT_EQ(volume->extents(5000, 10, 2)[0].end_bytes, 5010u);
  volume->trim(0, size);
  EXPECT_EQ(volume->extents(0, size, 10).size(), 1u);
  volume->flush();
  volume.reset();
  volume = array.open();
  EXPECT_EQ(volume->extents(0, size, 10)[0].written, 0u);
  volume->write(0, data.data(), 4096);
  volume->flush();
  volume.reset();
  volume = array.open({0, 1});
  found = volume->extents(0, size, 100);
  EXPECT_EQ(found[0].written, 1u);
  EXPECT_EQ(found.back().written, 0u) << "parity tells what lost members never had";
}

// ---- threads ----------------------------------------------------------------------------------------

TEST(Threads, CallsFromManyThreads) {
  Array array(3, 2, 8192, 2 << 20);
  auto volume = array.open({}, false, 4);
  const std::uint64_t size = volume->geometry().volume_bytes(), share = size / 4 / 4096 * 4096;
  std::vector<std::thread> threads;
  Bytes model(size);
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (int i = 0; i < 60; ++i) {
        const std::uint64_t at = t * share + random() % share, bytes = std::min((t + 1) * share - at, random() % 30000);
        const Bytes data = paint(bytes, random());
        volume->write(at, data.data(), bytes);
        std::copy(data.begin(), data.end(), model.begin() + static_cast<std::ptrdiff_t>(at));
        Bytes found(bytes);
        volume->read(at, found.data(), bytes);
        EXPECT_EQ(found, data);
        if (i % 10 == 9) volume->flush();
        if (i == 30 && t == 0) array.disks[1]->fails_writes = true;  // on the way, too
      }
    });
  threads.emplace_back([&] {
    tandem_volume_care_result result{};
    for (int i = 0; i < 3; ++i) {
      result = scrub(*volume, true);
      volume->extents(0, size, 1000);
      info_of(*volume);
      info_of(*volume);
    }
    EXPECT_EQ(result.lost_block_count, 0u);
    EXPECT_EQ(result.bad_parity_count, 0u);
  });
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(read_all(*volume), model);
  volume->flush();
  volume.reset();
  volume = array.open();
  EXPECT_EQ(read_all(*volume), model);
}

// The first stripe's data cannot be read before the second stripe has its parity.
TEST(Threads, TheEndOfAWindowWorksOnSeveralStripesAtOnce) {
  Array array(3, 1, 8192, 2 << 20);
  auto volume = array.open({}, false, 4);
  const Geometry geometry = volume->geometry();
  const std::uint64_t stripe = geometry.stripe_bytes();
  const auto window = volume->delay_begin(0, 2 * stripe);
  const Bytes data = paint(8192, 1);
  volume->write(0, data.data(), data.size());
  volume->write(stripe, data.data(), data.size());
  ASSERT_NE(geometry.member_of(0, 0), geometry.member_of(1, 0));
  bool waited_too_long = false;
  array.disks[geometry.member_of(0, 0)]->before_read = [&] {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (info_of(*volume).parity.writes == 0 && !waited_too_long) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      waited_too_long = std::chrono::steady_clock::now() > limit;
    }
  };
  volume->delay_end(window, false);
  EXPECT_FALSE(waited_too_long) << "one stripe after the other";
  EXPECT_EQ(info_of(*volume).parity.writes, 2u);
}

// Threads of this process that a handler of SIGUSR1 may run on.
unsigned threads_with_signals() {
  unsigned count = 0;
  for (const auto &each : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(each.path() / "status");
    for (std::string name, value; status >> name && std::getline(status, value);)
      if (name == "SigBlk:") count += (std::stoull(value, nullptr, 16) >> (SIGUSR1 - 1) & 1) == 0;
  }
  return count;
}

TEST(Threads, OfBoundedWindowsTakeNoSignalAndSleepAfterAWindowThatFailed) {
  Array array(3, 2, 8192, 2 << 20);
  const unsigned before = threads_with_signals();
  ASSERT_GT(before, 0u);
  auto volume = array.open({}, false, 0, true);
  const std::uint64_t stripe = volume->geometry().stripe_bytes(), size = volume->geometry().volume_bytes();
  volume->delay_bounded(0, size, 2 * stripe, std::chrono::hours(1));
  array.disks[0]->fails_writes = true;
  Bytes model(size);
  const auto was_ended = [&] {
    const std::lock_guard lock(array.notes_mutex);
    return std::ranges::any_of(array.notes, [](const auto &note) { return note.find("was ended") != note.npos; });
  };
  for (std::uint64_t i = 0; i < 5000 && !was_ended(); ++i) {
    write(*volume, &model, i % (size / stripe) * stripe, paint(4096, i));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(was_ended());
  EXPECT_EQ(threads_with_signals(), before);
  const std::clock_t begin = std::clock();                       // processor time of all threads
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // there is a pause of a second after each end
  EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC / 5);
}

// Threads write while windows move below them, as often as they can.
TEST(Threads, BoundedWindowsMoveWhileTheyAreWrittenTo) {
  Array array(3, 2, 8192, 2 << 20);
  auto volume = array.open({}, false, 8);
  const std::uint64_t stripe = volume->geometry().stripe_bytes(), size = volume->geometry().volume_bytes();
  const auto range = volume->delay_bounded(0, size, 5 * stripe, std::chrono::milliseconds(3));
  Bytes model(size);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::atomic<bool> over{false};
  std::thread mover([&] {
    while (!over) volume->move_windows();
  });
  std::vector<std::thread> writers;
  for (std::uint64_t t = 0; t < 3; ++t)
    writers.emplace_back([&, t] {
      std::mt19937_64 random(t);
      const std::uint64_t share = size / 4096 / 3;
      const auto is_delayed = [&] { return info_of(*volume).ways[TANDEM_VOLUME_DELAY] != 0; };
      for (int i = 0; i < 400 || (!is_delayed() && std::chrono::steady_clock::now() < limit); ++i) {
        const std::uint64_t near = t * share + std::min<std::uint64_t>(i / 20, share - 9) + random() % 9;
        write(*volume, &model, near * 4096, paint(4096, random()));
      }
    });
  for (std::thread &each : writers) each.join();
  over = true;
  mover.join();
  EXPECT_GT(info_of(*volume).ways[TANDEM_VOLUME_DELAY], 0u) << "no write was in a window";
  volume->delay_end(range, false);
  EXPECT_EQ(read_all(*volume), model);
  const auto result = scrub(*volume);
  EXPECT_EQ(result.bad_parity_count + result.bad_block_count + result.lost_block_count, 0u);
  volume->flush();
  volume.reset();
  volume = array.open({0, 3});
  EXPECT_EQ(read_all(*volume), model);
}

// Threads write into a window while it is ended: a stripe's parity includes every byte of its data.
TEST(Threads, AWindowEndsWhileItIsWrittenTo) {
  constexpr std::uint64_t kWriters = 3;
  for (const bool fails : {false, true}) {
    Array array(3, 2, 8192, 2 << 20);
    auto volume = array.open({}, false, 8);
    const std::uint64_t stripe = volume->geometry().stripe_bytes();
    const std::uint64_t stripes = std::min<std::uint64_t>(volume->geometry().stripe_count, 40);
    const auto window = volume->delay_begin(0, stripes * stripe);
    const Bytes first = paint(stripes * stripe, 1);
    volume->write(0, first.data(), first.size());
    if (fails) {  // the last block of data, which no thread writes anew, is lost: the end fails, and later accepts it
      const Geometry &geometry = volume->geometry();
      volume->flush();
      array.disks[geometry.member_of(stripes - 1, geometry.k - 1)]
          ->bytes[geometry.block_offset(geometry.first_block(stripes) - 1)] ^= std::byte{1};
    }
    std::atomic<bool> over{false};
    std::vector<std::thread> writers;
    Bytes model = first;
    for (std::uint64_t t = 0; t < kWriters; ++t)
      writers.emplace_back([&, t] {
        std::mt19937_64 random(t);
        const std::uint64_t share = (stripes * stripe / 4096 - 1) / kWriters;
        for (int i = 0; i < 500 && !(over && i > 100); ++i) {
          const std::uint64_t at = (t * share + random() % share) * 4096;
          const Bytes data = paint(4096, random());
          write(*volume, &model, at, data);
        }
      });
    const tandem_status status = status_of([&] { volume->delay_end(window, false); });
    over = true;
    for (std::thread &each : writers) each.join();
    EXPECT_EQ(status, fails ? TANDEM_ERROR_NOT_RECOVERABLE : TANDEM_OK);
    if (fails) {
      EXPECT_EQ(volume->windows().size(), 1u);
      volume->delay_end(window, true);
      std::fill(model.end() - 4096, model.end(), std::byte{0});
    }
    EXPECT_EQ(volume->windows().size(), 0u);
    model.resize(volume->geometry().volume_bytes());
    EXPECT_EQ(read_all(*volume), model);
    auto result = scrub(*volume);
    EXPECT_EQ(result.bad_parity_count + result.bad_block_count + result.lost_block_count, 0u);
    volume->flush();
    volume.reset();
    volume = array.open({0, 3});
    EXPECT_EQ(read_all(*volume), model) << "protected again";
  }
}

}  // namespace
}  // namespace tandem::volume::test
