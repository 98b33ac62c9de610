// SPDX-License-Identifier: Apache-2.0
// Members that are old copies of themselves, with right checksums: what a read returns, and what scrub and rebuild do
// to the others.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/support/slice.hpp"
#include "tests/volume/disks.hpp"

namespace tandem::volume::test {
namespace {

using Bytes = std::vector<std::byte>;
using Members = std::set<std::size_t>;

// ---- rows -------------------------------------------------------------------------------------------

// A row that is written by transactions. Columns keep their entry of an earlier time, or lose it.
TEST(Rows, NameTheirOldColumnsOrContradict) {
  std::mt19937_64 random(tandem::test::slice_seed());
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  auto options = sized<tandem_context_options>();
  options.backend = "cpu";
  options.expert = "executor=serial";
  tandem_context *context = nullptr;
  ASSERT_EQ(tandem_context_create(&options, &context), TANDEM_OK);
  Spares spares(1 << 20);
  std::uint64_t named = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto k = static_cast<std::uint32_t>(1 + below(6)), m = static_cast<std::uint32_t>(1 + below(3)), n = k + m;
    const Geometry geometry{.k = k, .m = m, .unit_bytes = 4096, .stripe_count = 1, .log_bytes = 4096};
    const Generations generations(geometry, context);
    View view(spares, geometry, 0, 0, 1);
    std::ranges::fill(view.generations, 0);
    std::uint64_t now = (std::uint64_t{1} << kSessionShift) + 1;
    std::vector<Entry> entries(n);
    const auto write = [&] {
      std::vector<std::uint64_t> next(view.generations);
      for (std::uint64_t columns = 1 + below(k); columns != 0; --columns)
        next[below(k)] = below(4) == 0 ? now | kZeros : now;
      generations.change(view, next);
      std::uint64_t zeros = kZeros;
      for (std::uint32_t column = 0; column < k; ++column) zeros = is_zeros(next[column]) ? zeros : 0;
      for (std::uint32_t column = 0; column < n; ++column) {
        if (column >= k) view.generations[column] = now | zeros;
        entries[column] = {0, view.generations[column], column < k ? 0 : view.words[column - k]};
      }
      now += below(3) == 0 ? (std::uint64_t{1} << kSessionShift) : 1 + below(5);
    };
    for (std::uint64_t writes = below(4); writes != 0; --writes) write();
    const std::vector<Entry> old = entries;
    for (std::uint64_t writes = 1 + below(3); writes != 0; --writes) write();
    std::set<std::uint32_t> is_old, is_unknown;
    const std::uint64_t damaged = 1 + below(m);
    while (is_old.size() + is_unknown.size() < damaged)
      if (const auto column = static_cast<std::uint32_t>(below(n));
          !is_old.contains(column) && !is_unknown.contains(column))
        (below(3) == 0 ? is_unknown : is_old).insert(column);
    const std::vector<std::uint64_t> right = view.generations, words = view.words;
    view.entries = entries;
    for (const std::uint32_t column : is_old) view.entries[column] = old[column];
    for (const std::uint32_t column : is_unknown) view.entries[column] = kLostEntry;
    std::erase_if(is_old, [&](std::uint32_t column) { return old[column] == entries[column]; });
    generations.judge(view, [&](std::uint32_t) { return false; });
    ASSERT_FALSE(view.contradicts[0]) << round << ": " << k << "+" << m;
    for (std::uint32_t column = 0; column < n; ++column) {
      ASSERT_EQ(view.stale[column], is_old.contains(column)) << round << ": " << k << "+" << m << ", column " << column;
      ASSERT_EQ(view.generations[column], right[column]) << round;
    }
    ASSERT_EQ(view.words, words) << round;
    named += is_old.size();
  }
  EXPECT_GT(named, 1000u);
  tandem_context_destroy(context);
}

// ---- volumes ----------------------------------------------------------------------------------------

struct Shape {
  std::uint32_t k, m;
};
constexpr Shape kShapes[] = {{4, 2}, {2, 1}, {3, 3}, {1, 1}, {5, 2}, {2, 2}};

// A volume with all contents that its blocks ever had.
class Copied {
 public:
  explicit Copied(std::uint64_t seed, Shape shape = {0, 0})
      : random_(seed), shape_(shape.k != 0 ? shape : kShapes[below(std::size(kShapes))]) {
    volume = array.open();
    now.resize(volume->geometry().volume_bytes());
    ever_.resize(now.size() / kBlockBytes);
    for (std::uint64_t block = 0; block < ever_.size(); ++block) ever_[block].insert(content(block));
  }
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  std::size_t any_member() { return below(array.disks.size()); }
  void change() {
    const std::uint64_t offset = below(now.size()),
                        bytes = 1 + below(std::min<std::uint64_t>(now.size() - offset, 50000));
    const auto at = now.begin() + static_cast<std::ptrdiff_t>(offset);
    if (below(5) == 0) {
      volume->zero(offset, bytes);
      std::fill_n(at, bytes, std::byte{0});
    } else {
      const Bytes data = below(3) == 0 ? Bytes(bytes, std::byte(below(3))) : paint(bytes, random_());
      volume->write(offset, data.data(), bytes);
      std::copy(data.begin(), data.end(), at);
    }
    for (std::uint64_t block = offset / kBlockBytes; block * kBlockBytes < offset + bytes; ++block)
      ever_[block].insert(content(block));
    if (below(4) == 0) volume->flush();
  }
  void write(std::uint64_t offset, std::uint64_t bytes) {
    const Bytes data = paint(bytes, random_());
    volume->write(offset, data.data(), bytes);
    volume->flush();
    std::copy(data.begin(), data.end(), now.begin() + static_cast<std::ptrdiff_t>(offset));
    ever_[offset / kBlockBytes].insert(content(offset / kBlockBytes));
  }
  // So that the last record has no page of this member: it would be replayed there.
  void write_beside(std::uint32_t member) {
    const Geometry geometry = volume->geometry();
    for (std::uint64_t stripe = 0; stripe < geometry.member_count(); ++stripe) {
      const auto is_here = [&](std::uint32_t column) { return geometry.member_of(stripe, column) == member; };
      bool is_parity = false;
      for (std::uint32_t i = 0; i < shape_.m; ++i) is_parity = is_parity || is_here(shape_.k + i);
      if (!is_parity) write(stripe * geometry.stripe_bytes() + (is_here(0) ? geometry.unit_bytes : 0), 100);
    }
  }
  void changes(std::uint64_t count) {
    while (count-- != 0) change();
    volume->flush();
  }
  void copy(std::size_t member) { copies[member] = array.disks[member]->bytes; }
  // The process ends; `cleanly`: it closes the volume.
  void put_back(bool cleanly) {
    if (cleanly) volume->close();
    volume.reset();
    for (const auto &[member, bytes] : copies) array.disks[member]->bytes = bytes;
    for (const auto &disk : array.disks) disk->settle();
  }
  bool open(const Members &without) {
    volume.reset();
    return status_of([&] { volume = array.open({without.begin(), without.end()}); }) == TANDEM_OK;
  }
  // Blocks that a read does not return as they are now. A block must not have a content that was never written.
  std::uint64_t not_now() {
    std::uint64_t found = 0;
    Bytes block(kBlockBytes);
    for (std::uint64_t i = 0; i < ever_.size(); ++i) {
      const bool is_read = status_of([&] { volume->read(i * kBlockBytes, block.data(), kBlockBytes); }) == TANDEM_OK;
      found += !is_read || block != content(i);
      if (is_read) {
        EXPECT_TRUE(ever_[i].contains(block)) << "block " << i << " was never written so";
      }
    }
    return found;
  }
  tandem_volume_care_result scrub(bool repairs = true) {
    tandem_volume_care_result result{};
    EXPECT_EQ(status_of([&] { volume->scrub({.repair = repairs, .restart = true}, &result); }), TANDEM_OK);
    return result;
  }
  bool replace(std::size_t member) {
    return status_of([&] {
             volume->replace(static_cast<std::uint32_t>(member), array.fresh_member("fresh"), false);
             array.disks[member] = array.spare;
           }) == TANDEM_OK;
  }
  bool rebuild() {
    tandem_volume_care_result result{};
    return status_of([&] { volume->rebuild({}, &result); }) == TANDEM_OK;
  }

 private:
  Bytes content(std::uint64_t block) const {
    const auto at = now.begin() + static_cast<std::ptrdiff_t>(block * kBlockBytes);
    return {at, at + kBlockBytes};
  }
  std::mt19937_64 random_;
  Shape shape_;
  std::vector<std::set<Bytes>> ever_;

 public:
  const Shape &shape() const { return shape_; }
  Array array{shape_.k, shape_.m, 8192, 640 << 10};
  std::unique_ptr<Volume> volume;
  Bytes now;
  std::map<std::size_t, Bytes> copies;
};

// Old copies and lost members, at most m together, after the server was killed: each read is right at once, writes make
// nothing worse, rebuild and scrub make all of it right.
TEST(OldCopies, CostNoMoreThanLostMembers) {
  for (std::uint64_t i = 0; i < tandem::test::rounds(60, 2000); ++i) {
    const std::uint64_t seed = tandem::test::slice_seed() + i;
    SCOPED_TRACE(seed);
    Copied own(seed);
    own.changes(own.below(30));
    const std::uint64_t damaged = 1 + own.below(own.shape().m), lost_count = own.below(damaged);
    Members lost;
    while (own.copies.size() < damaged - lost_count) {
      own.copy(own.any_member());
      own.changes(1 + own.below(6));
    }
    own.changes(own.below(10));
    while (lost.size() < lost_count)
      if (const std::size_t member = own.any_member(); !own.copies.contains(member)) lost.insert(member);
    own.put_back(false);
    ASSERT_TRUE(own.open(lost)) << tandem_last_error_message();
    if (own.below(2) == 0) {
      ASSERT_EQ(own.not_now(), 0u);
    }
    own.changes(own.below(6));
    for (const std::size_t member : lost) {
      ASSERT_TRUE(own.replace(member)) << tandem_last_error_message();
    }
    ASSERT_TRUE(own.rebuild()) << tandem_last_error_message();  // also of copies that are old at sight
    ASSERT_EQ(own.not_now(), 0u);
    const auto result = own.scrub();
    EXPECT_EQ(result.lost_block_count + result.left_block_count, 0u);
    Members others;  // m others: all must be right without them
    while (others.size() < own.shape().m) others.insert(own.any_member());
    ASSERT_TRUE(own.open(others)) << tandem_last_error_message();
    ASSERT_EQ(own.not_now(), 0u) << "after scrub";
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
}

// More of them than parity can stand for: bytes that were never written are never read, and after scrub the volume
// still has all without the old copies.
TEST(OldCopies, OfMoreMembersThanParityDestroyNothing) {
  for (std::uint64_t i = 0; i < tandem::test::rounds(60, 2000); ++i) {
    const std::uint64_t seed = tandem::test::slice_seed() + i;
    SCOPED_TRACE(seed);
    Copied own(seed);
    const std::uint32_t m = own.shape().m;
    own.changes(own.below(30));
    Members without;
    while (own.copies.size() < m) {
      own.copy(own.any_member());
      if (own.below(2) == 0) own.changes(1 + own.below(6));
    }
    own.changes(1 + own.below(10));
    for (const auto &[member, bytes] : own.copies) without.insert(member);
    const bool one_more_is_away = own.below(2) == 0;
    Members away;
    if (one_more_is_away) {
      for (std::size_t member = own.any_member(); away.empty(); member = own.any_member())
        if (!own.copies.contains(member)) away.insert(member);
    }
    own.put_back(false);
    if (!own.open(away)) continue;
    own.not_now();
    own.scrub(own.below(2) == 0);
    own.not_now();
    if (away.empty()) {
      ASSERT_TRUE(own.open(without)) << tandem_last_error_message();
      ASSERT_EQ(own.not_now(), 0u) << "after scrub, without the old copies";
    }
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
}

// ---- sessions ---------------------------------------------------------------------------------------

// A copy from before a clean close is old at sight, so it is never believed, also if others are away.
TEST(OldCopies, FromBeforeACleanCloseAreStale) {
  Copied own(1, {2, 1});
  own.changes(5);
  own.copy(0);
  own.changes(3);
  own.put_back(true);
  ASSERT_TRUE(own.open({}));
  EXPECT_EQ(member_of(*own.volume, 0).state, TANDEM_VOLUME_MEMBER_STALE);
  EXPECT_EQ(own.not_now(), 0u);
  EXPECT_FALSE(own.open({1}));
}

TEST(OldCopies, FromBeforeTheSuperblocksWereWrittenAgainAreStale) {
  Copied own(1, {2, 1});
  own.volume.reset();
  OpenSettings settings;
  settings.settle_after = std::chrono::seconds(0);
  own.volume = std::make_unique<Volume>(own.array.given({}), settings);
  own.changes(5);
  own.copy(0);
  own.changes(1);
  own.put_back(false);
  ASSERT_TRUE(own.open({}));
  EXPECT_EQ(member_of(*own.volume, 0).state, TANDEM_VOLUME_MEMBER_STALE);
}

// ---- what waits until they are mended --------------------------------------------------------------

// A member that is replaced is needed by the rows of an old one, and a window would believe its data.
TEST(OldCopies, ForbidToReplaceAnotherMemberAndToDelayParity) {
  for (const bool is_known : {false, true}) {
    Copied own(3, {2, 1});
    own.changes(20);
    own.copy(0);
    own.changes(10);
    own.write_beside(0);
    own.put_back(false);
    ASSERT_TRUE(own.open({}));
    if (is_known) {
      ASSERT_EQ(own.not_now(), 0u);
    }
    EXPECT_FALSE(own.replace(1)) << "only member 2 would be whole";
    EXPECT_EQ(status_of([&] { own.volume->delay_begin(0, own.now.size()); }), TANDEM_ERROR_UNAVAILABLE);
    EXPECT_EQ(own.scrub().left_block_count, 0u);
    own.volume->delay_end(own.volume->delay_begin(0, own.now.size()), false);
    EXPECT_TRUE(own.replace(1) && own.rebuild());
    EXPECT_EQ(own.not_now(), 0u);
  }
}

// Each row names one member, but together they name more than parity can stand for: some rows must be mistaken.
TEST(OldCopies, OfMoreMembersThanParityAreNotMended) {
  Copied own(1, {4, 2});
  const Geometry geometry = own.volume->geometry();
  own.write(0, 4096);
  const auto write = [&](std::uint64_t stripe, std::uint32_t member, std::uint32_t row) {
    std::uint32_t column = 0;
    while (geometry.member_of(stripe, column) != member) ++column;
    ASSERT_LT(column, geometry.k);
    own.write(stripe * geometry.stripe_bytes() + column * std::uint64_t{geometry.unit_bytes} + row * kBlockBytes, 4096);
  };
  for (const std::size_t member : {0, 1, 2}) own.copy(member);
  write(2, 0, 0);  // parity is on members 3 and 4
  write(2, 1, 1);
  write(1, 2, 0);  // on 4 and 5
  write(1, 3, 1);  // the last record has no page of the copied members
  own.put_back(false);
  ASSERT_TRUE(own.open({}));
  for (const bool repairs : {false, true}) {
    const auto result = own.scrub(repairs);
    EXPECT_EQ(result.lost_block_count, 3u);
    EXPECT_EQ(result.mended_block_count, 0u);
  }
  EXPECT_EQ(own.not_now(), 0u) << "each row names its own";
}

// A rebuild leaves them as they are, so it says which members a scrub still has to mend.
TEST(OldCopies, AreNamedUntilTheyAreMended) {
  Copied own(1, {3, 2});
  own.changes(20);
  own.copy(0);
  own.changes(10);
  own.write_beside(0);
  own.put_back(false);
  ASSERT_TRUE(own.open({4}));
  ASSERT_TRUE(own.replace(4) && own.rebuild());
  const auto old_count = [&] {
    auto info = sized<tandem_volume_info>();
    own.volume->query(&info);
    return info.old_count;
  };
  EXPECT_EQ(old_count(), 1u);
  EXPECT_NE(std::string(member_of(*own.volume, 0).why), "");
  EXPECT_EQ(std::string(member_of(*own.volume, 1).why), "");
  // Also if an earlier scrub, that only looked, had come to the middle.
  CareSettings settings;
  settings.progress = [](void *, std::uint64_t done, std::uint64_t) -> std::int32_t { return done > 100000; };
  tandem_volume_care_result result{};
  EXPECT_EQ(own.volume->scrub(settings, &result), TANDEM_ERROR_CANCELLED);
  settings.progress = nullptr;
  settings.repair = true;
  EXPECT_EQ(own.volume->scrub(settings, &(result = {})), TANDEM_OK);
  EXPECT_GT(result.mended_block_count, 0u);
  EXPECT_EQ(old_count(), 0u);
  EXPECT_EQ(std::string(member_of(*own.volume, 0).why), "");
}

// ---- what rows cannot tell ---------------------------------------------------------------------------

// The end of a window makes parity from the data that it finds, so an old copy that is put back before is believed.
TEST(OldCopies, ThatAreThereWhenAWindowEndsAreBelieved) {
  Copied own(1, {4, 2});
  const Geometry geometry = own.volume->geometry();
  own.volume->delay_begin(0, geometry.stripe_bytes());
  const Bytes first = paint(geometry.unit_bytes, 1), second = paint(geometry.unit_bytes, 2);
  own.volume->write(0, first.data(), first.size());
  own.volume->flush();
  const std::uint32_t member = geometry.member_of(0, 0);
  own.copy(member);
  own.volume->write(0, second.data(), second.size());
  own.volume->flush();
  own.volume->write(geometry.stripe_bytes() * 20, first.data(), 4096);  // now the log has another record
  own.volume->flush();
  own.put_back(false);
  ASSERT_TRUE(own.open({}));
  own.volume->delay_end(own.volume->windows().at(0), false);
  Bytes found(first.size());
  own.volume->read(0, found.data(), found.size());
  EXPECT_TRUE(found == first || found == second);
  EXPECT_EQ(own.scrub().lost_block_count, 0u);
}

// The log of one member is rotten, and the others are old: the record that is found is older than pages of that member.
TEST(OldCopies, OfAllButOneMemberGiveOldOrNewBlocks) {
  for (std::uint64_t i = 0; i < tandem::test::rounds(30, 1000); ++i) {
    const std::uint64_t seed = tandem::test::slice_seed() + i;
    SCOPED_TRACE(seed);
    Copied own(seed);
    own.changes(1 + own.below(30));
    const std::size_t newest = own.any_member();
    for (std::size_t member = 0; member < own.array.disks.size(); ++member)
      if (member != newest) own.copy(member);
    own.changes(1 + own.below(4));
    own.put_back(false);
    std::fill_n(own.array.disks[newest]->bytes.begin() + kLogOffset, kBlockBytes, std::byte{0});
    ASSERT_TRUE(own.open({})) << tandem_last_error_message();
    own.not_now();
    own.scrub();
    own.not_now();
    if (!own.open({own.any_member()})) continue;
    own.not_now();
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
}

// Without its page of the only parity a row has no witness.
TEST(OldCopies, BesideALostPageOfTheOnlyParityAreBelieved) {
  Copied own(1, {2, 1});
  const Geometry geometry = own.volume->geometry();
  own.changes(20);
  own.copy(0);
  own.changes(10);
  own.put_back(false);
  for (const std::size_t other : {1, 2})
    for (std::uint64_t page = 0; page < geometry.page_count(); ++page)
      own.array.disks[other]->bytes[geometry.page_offset(page) + 100] ^=
          std::byte{static_cast<unsigned char>(other == 2)};
  ASSERT_TRUE(own.open({}));
  own.not_now();  // old content, or an error, but nothing that was never written
}

}  // namespace
}  // namespace tandem::volume::test
