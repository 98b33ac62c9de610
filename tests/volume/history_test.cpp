// SPDX-License-Identifier: Apache-2.0
// A volume against a model, over random histories of calls, crashes and damage, and over one session that dies at each
// of its writes and syncs. A read must return the flushed content or a later one as long as at most m members are
// damaged. Only data of a window may be unreadable without its member.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <set>

#include "tests/support/slice.hpp"
#include "tests/volume/disks.hpp"

namespace tandem::volume::test {
namespace {

using Bytes = std::vector<std::byte>;

struct Shape {
  std::uint32_t k, m, unit_bytes;
};
constexpr Shape kShapes[] = {{3, 1, 4096}, {3, 2, 8192}, {2, 3, 12288}, {4, 2, 4096}, {1, 1, 4096}, {5, 1, 8192}};
constexpr std::size_t kDiskBytes = 640 << 10;

class History {
 public:
  explicit History(std::uint64_t seed) : random_(seed), shape_(kShapes[below(std::size(kShapes))]) {
    for (const auto &disk : array_.disks) disk->keeps_unsynced = true;
    geometry_ = array_.open({}, true)->geometry();
    now_.resize(geometry_.volume_bytes());
    allowed_.assign(now_.size() / kBlockBytes, {Bytes(kBlockBytes)});
  }
  const std::string &text() const { return text_; }

  void run() {
    for (int round = 0; round < 12 && !::testing::Test::HasFatalFailure(); ++round) {
      serve();
      if (!::testing::Test::HasFatalFailure()) damage();
    }
    dies_at_ = -1;
    if (!::testing::Test::HasFatalFailure() && open({})) stop();
  }
  // One session that dies at this call, if it has so many; then others, some without members, while the log is
  // replayed. At last nothing is missing, and no parity is wrong.
  bool die_at(std::int64_t call) {
    if (!open({})) return false;
    array_.machine->dies_at = call;
    for (int steps = 0; steps < 60 && work(); ++steps)
      if (::testing::Test::HasFailure()) return false;
    const bool is_dead = array_.machine->is_dead;
    stop();
    for (int tries = 0; tries < 4 && !::testing::Test::HasFailure(); ++tries) {
      dies_at_ = tries < 2 ? static_cast<std::int64_t>(below(14)) : -1;
      if (open(tries == 0 ? Members{} : some_away())) stop();
    }
    dies_at_ = -1;
    if (!::testing::Test::HasFailure() && open({})) {
      scrub(false);
      stop();
    }
    return is_dead;
  }
  // The copy is of the last session: what follows changes nothing, or dies before its session is known everywhere.
  void put_back_a_copy_of_the_last_session() {
    ASSERT_TRUE(open({}) && write() && flush());
    copy(0);
    ASSERT_TRUE(write() && flush() && write() && flush());  // the next opening writes the last record again
    stop();
    ASSERT_TRUE(open({}) && change("trim of nothing", [&] { volume_->trim(now_.size() - kBlockBytes, kBlockBytes); }));
    array_.machine->dies_at = array_.machine->calls + 1;
    EXPECT_FALSE(scrub(true));
    stop();
    put_back(0);
    if (!::testing::Test::HasFailure() && open({})) stop();
  }

 private:
  using Members = std::set<std::size_t>;
  struct Copy {
    Bytes bytes;
    int session;
  };

  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  bool chance(unsigned one_in) { return below(one_in) == 0; }
  void say(const std::string &what) { text_ += what + "; "; }
  std::int32_t state(std::size_t member) const { return member_of(*volume_, static_cast<std::uint32_t>(member)).state; }
  std::size_t any_member() { return below(array_.disks.size()); }
  // Whether another damaged member leaves at least k that hold everything.
  bool may_damage(std::size_t member) const {
    Members all = damaged_;
    all.insert(away_.begin(), away_.end());
    all.insert(member);
    return all.size() <= shape_.m;
  }
  std::uint32_t member_at(std::uint64_t block) const {
    const std::uint64_t offset = block * kBlockBytes, stripe = geometry_.stripe_bytes();
    return geometry_.member_of(offset / stripe, static_cast<std::uint32_t>(offset % stripe / geometry_.unit_bytes));
  }
  bool is_in_window(std::uint64_t offset) const {
    for (const auto &each : volume_->windows())
      if (offset >= each.begin_bytes && offset < each.end_bytes) return true;
    return false;
  }

  // ---- a session

  // The power goes or the process is killed, or nothing happens; then the disks hold what they hold.
  void stop() {
    volume_.reset();
    was_killed_ = array_.machine->is_dead;
    const bool power_goes = was_killed_ && chance(2);
    if (was_killed_) say(power_goes ? "POWER CUT" : "KILLED");
    for (const auto &disk : array_.disks) {
      power_goes ? disk->settle_after_power_cut(random_) : disk->settle();
      disk->fails_writes = false;
    }
    if (opened_ && !proven_)  // a later opening may find the old content, or this one
      for (std::size_t i = 0; i < allowed_.size(); ++i)
        for (Bytes &each : before_[i])
          if (!is_among(allowed_[i], each)) allowed_[i].push_back(std::move(each));
    opened_ = false;
    away_.clear();
  }

  // Opens the volume without those that are away, and reads all. False: the machine died.
  bool open(const Members &away, bool reads = true) {
    away_ = away;
    ++session_;
    array_.machine = std::make_shared<Machine>();
    array_.machine->dies_at = dies_at_;
    std::string names;
    for (const std::size_t each : away) names += ' ' + std::to_string(each);
    say("open" + (names.empty() ? names : " without" + names));
    if (reads && chance(4)) {  // for reading: what is left to do is done in memory
      EXPECT_EQ(status_of([&] { volume_ = array_.open({away.begin(), away.end()}, true); }), TANDEM_OK);
      if (volume_ == nullptr || array_.machine->is_dead) return fail(), false;
      read_all();
      volume_.reset();
      if (::testing::Test::HasFatalFailure()) return false;
    }
    const tandem_status status = status_of([&] { volume_ = array_.open({away.begin(), away.end()}); });
    if (array_.machine->is_dead) return stop(), false;
    EXPECT_EQ(status, TANDEM_OK) << tandem_last_error_message();
    if (status != TANDEM_OK) return ADD_FAILURE(), fail(), false;
    array_.machine->dies_at = -1;
    window_ = !volume_->windows().empty() || (window_ && !away.empty());  // those that are away may know of it
    EXPECT_LE(window_bytes(), bound_bytes_) << "a crash left more windows than the bound";
    proven_ = false;
    if (!reads) return true;
    read_all();
    if (::testing::Test::HasFatalFailure()) return false;
    note_session();
    before_.swap(allowed_);
    allowed_.resize(before_.size());
    for (std::size_t i = 0; i < allowed_.size(); ++i)
      allowed_[i] = {Bytes(now_.begin() + static_cast<std::ptrdiff_t>(i * kBlockBytes),
                           now_.begin() + static_cast<std::ptrdiff_t>((i + 1) * kBlockBytes))};
    return opened_ = true;
  }
  static void fail() { FAIL(); }
  static bool is_among(const std::vector<Bytes> &contents, const Bytes &block) {
    return std::any_of(contents.begin(), contents.end(),
                       [&](const Bytes &each) { return std::memcmp(each.data(), block.data(), kBlockBytes) == 0; });
  }

  void read_all() {
    Bytes found(kBlockBytes);
    for (std::uint64_t block = 0; block < allowed_.size(); ++block) {
      const std::uint64_t at = block * kBlockBytes;
      const tandem_status status = status_of([&] { volume_->read(at, found.data(), kBlockBytes); });
      if (status == TANDEM_ERROR_NOT_RECOVERABLE && away_.contains(member_at(block)) && is_in_window(at)) continue;
      ASSERT_EQ(status, TANDEM_OK) << "block " << block << " on " << member_at(block) << ": "
                                   << tandem_last_error_message();
      ASSERT_TRUE(is_among(allowed_[block], found)) << "block " << block << " on member " << member_at(block)
                                                    << " is neither the flushed content nor a later one";
      std::copy(found.begin(), found.end(), now_.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }

  // A call that changes something. It must succeed unless the machine dies; members that are away miss it.
  template <class Body>
  bool change(const std::string &what, Body &&body) {
    say(what);
    damaged_.insert(away_.begin(), away_.end());
    const tandem_status status = status_of(body);
    if (array_.machine->is_dead) return false;
    EXPECT_EQ(status, TANDEM_OK) << what << ": " << tandem_last_error_message();
    if (status != TANDEM_OK) return fail(), false;
    note_session();
    return true;
  }
  // A trim of blocks that hold nothing begins no session; a read that mends may begin one.
  // Without it, fewer superblocks may be written: to members that did not know of a window or its end.
  bool has_begun() const { return info_of(*volume_).superblock.writes >= 2 * shape_.k; }
  void note_session() {
    if (!has_begun()) return;
    proven_ = true;
    proven_session_ = session_;
  }
  void put(std::uint64_t offset, const Bytes &data) {
    std::copy(data.begin(), data.end(), now_.begin() + static_cast<std::ptrdiff_t>(offset));
    for (std::uint64_t block = offset / kBlockBytes; block * kBlockBytes < offset + data.size(); ++block) {
      const auto at = now_.begin() + static_cast<std::ptrdiff_t>(block * kBlockBytes);
      allowed_[block].emplace_back(at, at + kBlockBytes);
    }
  }
  void flushed() {
    for (auto &each : allowed_) each = {each.back()};
  }
  // Often where the last change was.
  std::uint64_t somewhere() {
    if (!chance(3)) last_ = below(now_.size());
    return last_;
  }
  bool write() {
    const std::uint64_t offset = somewhere(), stripe = geometry_.stripe_bytes();
    const Bytes data = paint(1 + below(std::min(now_.size() - offset, chance(4) ? 3 * stripe : 9000)), random_());
    put(offset, data);
    if (!change("write " + std::to_string(offset) + " +" + std::to_string(data.size()),
                [&] { volume_->write(offset, data.data(), data.size()); }))
      return false;
    EXPECT_TRUE(has_begun()) << "a write outside of a session";
    return true;
  }
  // zeroes: the range to the byte, else the blocks inside of it.
  bool trim(bool zeroes) {
    const std::uint64_t first = chance(2) ? somewhere() : somewhere() / kBlockBytes * kBlockBytes,
                        bytes = below(std::min<std::uint64_t>(now_.size() - first, 12 * kBlockBytes) + 1);
    const std::uint64_t begin = zeroes ? first : round_up(first, kBlockBytes),
                        end = zeroes ? first + bytes : (first + bytes) / kBlockBytes * kBlockBytes;
    if (begin < end) put(begin, Bytes(end - begin));
    return change((zeroes ? "zero " : "trim ") + std::to_string(first) + " +" + std::to_string(bytes),
                  [&] { zeroes ? volume_->zero(first, bytes) : volume_->trim(first, bytes); });
  }
  bool read() {
    if (window_ && !away_.empty()) return true;  // perhaps some of it is not there
    const std::uint64_t offset = somewhere();
    Bytes found(below(std::min<std::uint64_t>(now_.size() - offset, 3 * geometry_.stripe_bytes()) + 1));
    say("read");
    const tandem_status status = status_of([&] { volume_->read(offset, found.data(), found.size()); });
    if (array_.machine->is_dead) return false;  // it was mending
    EXPECT_EQ(status, TANDEM_OK) << "read " << offset << ": " << tandem_last_error_message();
    EXPECT_TRUE(std::equal(found.begin(), found.end(), now_.begin() + static_cast<std::ptrdiff_t>(offset)));
    return true;
  }
  // This member does not write any more in this session.
  bool lose_on_the_way(std::size_t member) {
    if (window_ || !may_damage(member)) return true;
    say("member " + std::to_string(member) + " fails");
    array_.disks[member]->fails_writes = true;
    damaged_.insert(member);
    lost_.insert(member);
    return true;
  }
  bool flush() {
    if (!proven_) return true;  // nothing to flush; what was read may still be lost
    if (!change("flush", [&] { volume_->flush(); })) return false;
    flushed();
    return true;
  }
  std::uint64_t window_bytes() const {
    std::uint64_t bytes = 0;
    for (const auto &each : volume_->windows()) bytes += each.end_bytes - each.begin_bytes;
    return bytes;
  }
  tandem_volume_window bounded() const { return info_of(*volume_).bounded; }
  // Writes here and there, and windows that follow them. Nothing must go wrong with these windows.
  bool write_and_move_windows() {
    for (std::uint64_t steps = 1 + below(4); steps != 0; --steps) {
      if (!write()) return false;
      if (chance(3) && !flush()) return false;
      if (!change("move windows", [&] { volume_->move_windows(); })) return false;
      EXPECT_NE(bounded().end_bytes, 0u) << array_.notes.back();
      EXPECT_LE(window_bytes(), bound_bytes_);
      EXPECT_LE(info_of(*volume_).unprotected_bytes, window_bytes());
    }
    return true;
  }
  bool begin_or_end_window() {
    const std::uint64_t stripe = geometry_.stripe_bytes();
    if (window_ && bounded().end_bytes != 0) {
      if (!chance(4)) return write_and_move_windows();
      if (!change("end of bounds", [&] { volume_->delay_end(bounded(), false); })) return false;
      window_ = !volume_->windows().empty();
      EXPECT_FALSE(window_);
    } else if (window_) {
      if (volume_->windows().empty()) return true;
      const auto window = volume_->windows().front();
      if (!change("delay end", [&] { volume_->delay_end(window, false); })) return false;
      window_ = !volume_->windows().empty();
    } else {
      if (!away_.empty() || !damaged_.empty()) return true;
      window_ = true;
      const std::uint64_t first = below(geometry_.stripe_count - 1);
      if (chance(2)) {
        bound_bytes_ = (1 + below(9)) * stripe;
        const std::chrono::milliseconds time(chance(3) ? 0 : 3'600'000);
        const auto begin = [&] { volume_->delay_bounded(0, now_.size() - first * stripe, bound_bytes_, time); };
        return change("bounds of " + std::to_string(bound_bytes_), begin) && write_and_move_windows();
      }
      bound_bytes_ = 2 * stripe;
      if (!change("delay begin", [&] { volume_->delay_begin(first * stripe, (1 + below(2)) * stripe); })) return false;
    }
    flushed();
    return true;
  }
  bool scrub(bool repairs) {
    tandem_volume_care_result result{};
    const auto body = [&] { volume_->scrub({.repair = repairs, .restart = true}, &result); };
    if (repairs) {
      if (!change("scrub --repair", body)) return false;
    } else {
      say("scrub");
      if (status_of(body) != TANDEM_OK || array_.machine->is_dead) return false;
    }
    EXPECT_EQ(result.lost_block_count, 0u) << "scrub";
    EXPECT_TRUE(!damaged_.empty() || !away_.empty() || result.bad_block_count + result.bad_parity_count == 0);
    if (repairs && away_.empty()) {
      for (const std::size_t each : rotten_)
        if (state(each) == TANDEM_VOLUME_MEMBER_CURRENT && !array_.disks[each]->fails_writes) damaged_.erase(each);
      rotten_.clear();
      window_ = !volume_->windows().empty() || bounded().end_bytes != 0;
    }
    return true;
  }
  bool replace(std::size_t member) {
    const auto disk = std::make_shared<Disk>(kDiskBytes);
    disk->keeps_unsynced = true;
    Given fresh{"fresh", std::make_unique<DiskMember>(disk, array_.machine)};
    copies_[member] = {array_.disks[member]->bytes, session_ - !has_begun()};
    array_.disks[member] = disk;
    damaged_.insert(member);
    rotten_.erase(member);
    lost_.insert(member);
    if (!change("replace " + std::to_string(member), [&] { volume_->replace(member, std::move(fresh), false); }))
      return false;
    lost_.erase(member);
    copies_[member]->session = -1;  // another member has its place
    return true;
  }
  bool rebuild() {
    if (!away_.empty() || window_) return true;
    for (std::size_t i = 0; i < array_.disks.size(); ++i) {
      if (state(i) != TANDEM_VOLUME_MEMBER_LOST && !array_.disks[i]->fails_writes) continue;
      EXPECT_TRUE(lost_.contains(i)) << "member " << i << " is here: a rebuild must be able to continue";
      if (!replace(i)) return false;
    }
    tandem_volume_care_result result{};
    if (!change("rebuild", [&] { volume_->rebuild({}, &result); })) return false;
    damaged_ = rotten_;
    lost_.clear();
    return true;
  }
  bool work() {
    const std::uint64_t kind = below(23);
    if (kind < 8) return write();
    if (kind < 11) return flush();
    if (kind < 13) return trim(chance(2));
    if (kind < 15) return begin_or_end_window();
    if (kind == 15) return scrub(false);
    if (kind == 16) return scrub(!window_ || away_.empty());
    if (kind == 17) return rebuild();
    const std::size_t member = any_member();
    if (kind == 20) return lose_on_the_way(member);
    if (kind > 20) return read();
    if (kind == 18 && !window_ && may_damage(member) && away_.empty()) return replace(member);
    if (!damaged_.contains(member)) copy(member);
    return true;
  }
  void copy(std::size_t member) {
    say("copy " + std::to_string(member));
    copies_[member] = {array_.disks[member]->bytes, session_ - !has_begun()};
  }
  // Up to m members, with those that are damaged.
  Members some_away() {
    Members away, all = damaged_;
    for (std::uint64_t tries = window_ ? 0 : below(shape_.m + 1); tries != 0; --tries) {
      const std::size_t member = any_member();
      all.insert(member);
      if (all.size() <= shape_.m) away.insert(member);
    }
    return away;
  }
  void serve() {
    // After a crash, often another one while the log is replayed, each time with other members.
    dies_at_ = static_cast<std::int64_t>(below(14));
    for (int crashes = was_killed_ ? 2 : chance(6); crashes > 0; --crashes)
      if (open(some_away())) stop();
    dies_at_ = -1;
    const Members away = chance(2) ? some_away() : Members{};
    if (!open(away)) return;
    if (chance(2))
      array_.machine->dies_at = array_.machine->calls + static_cast<std::int64_t>(below(chance(2) ? 12 : 300));
    for (std::uint64_t steps = below(14); steps != 0; --steps)
      if (!work() || ::testing::Test::HasFailure()) break;
    stop();
  }

  // ---- damage while the volume is closed

  void damage() {
    const std::size_t member = any_member();
    switch (below(6)) {
      case 0:
      case 1:
        return rot(member);
      case 2:
        return lose(member);
      case 3:
        return put_back(member);
      case 4:
        return without_a_member_of_a_window(member);
      default:
        return;
    }
  }
  void rot(std::size_t member) {
    if (!may_damage(member)) return;
    const std::uint64_t area = window_ ? 1 + below(2) : below(5);  // nothing protects the data of a window
    const std::uint64_t at = area == 0   ? below(8192 - 16)
                             : area == 1 ? kLogOffset + below(56)
                             : area == 2 ? kLogOffset + below(geometry_.log_bytes / 4)
                             : area == 3 ? geometry_.page_offset(0) + below(4096)
                                         : geometry_.data_offset() + below(geometry_.block_count() * kBlockBytes - 16);
    say("rot of member " + std::to_string(member) + " at " + std::to_string(at));
    Disk &disk = *array_.disks[member];
    for (std::uint64_t i = at; i < std::min<std::uint64_t>(at + 16, disk.bytes.size()); ++i)
      disk.bytes[i] ^= std::byte(1 + below(255));
    disk.settle();
    damaged_.insert(member);
    rotten_.insert(member);
    if (area == 0) lost_.insert(member);  // the other copy may have rotted before
  }
  void lose(std::size_t member) {
    if (window_ || !may_damage(member)) return;
    Disk &disk = *array_.disks[member];
    const bool shrinks = chance(2);
    say((shrinks ? "cut " : "lose ") + std::to_string(member));
    if (shrinks)
      disk.bytes.resize(disk.bytes.size() - 4096 * (1 + below(20)));
    else
      std::fill(disk.bytes.begin(), disk.bytes.end(), std::byte{0});
    disk.settle();
    damaged_.insert(member);
    lost_.insert(member);
  }
  void put_back(std::size_t member) {
    if (!copies_[member] || window_ || !may_damage(member)) return;
    const bool is_stale = copies_[member]->session < proven_session_;
    say(std::string("put back a copy of ") + (is_stale ? "an earlier" : "this") + " session of " +
        std::to_string(member));
    array_.disks[member]->bytes = copies_[member]->bytes;
    array_.disks[member]->settle();
    damaged_.insert(member);
    rotten_.erase(member);
    if (is_stale)
      lost_.insert(member);  // it may have been replaced since
    else
      rotten_.insert(member);  // its rows tell that it is old, and scrub mends them
  }
  // Calls that cannot succeed without the data of a member must not make it stale.
  void without_a_member_of_a_window(std::size_t member) {
    if (!window_ || !damaged_.empty()) return;
    dies_at_ = -1;
    if (!open({member}) || volume_->windows().empty()) return stop();
    const auto window = volume_->windows().front();
    for (std::uint64_t block = window.begin_bytes / kBlockBytes; block * kBlockBytes < window.end_bytes; ++block) {
      if (member_at(block) != member) continue;
      say("calls that fail without " + std::to_string(member));
      const Bytes data = paint(5000, 1);
      tandem_volume_care_result result{};
      EXPECT_EQ(status_of([&] { volume_->write(block * kBlockBytes, data.data(), 100); }),
                TANDEM_ERROR_NOT_RECOVERABLE);
      EXPECT_EQ(status_of([&] { volume_->delay_end(window, false); }), TANDEM_ERROR_NOT_RECOVERABLE);
      const bool repairs = chance(2);
      EXPECT_EQ(volume_->scrub({.repair = repairs, .restart = true}, &result), TANDEM_OK);
      EXPECT_NE(result.lost_block_count, 0u) << "scrub tells what cannot be read";
      break;
    }
    stop();
    if (!open({})) return;
    EXPECT_EQ(state(member), TANDEM_VOLUME_MEMBER_CURRENT);
    stop();
  }

  std::mt19937_64 random_;
  Shape shape_;
  Array array_{shape_.k, shape_.m, shape_.unit_bytes, kDiskBytes};
  Geometry geometry_;
  std::unique_ptr<Volume> volume_;
  Bytes now_;
  std::vector<std::vector<Bytes>> allowed_, before_;  // contents of each block; those before this opening
  Members away_, damaged_, rotten_, lost_;  // damaged: not everything of it is right; of these, lost: perhaps no member
  std::array<std::optional<Copy>, 8> copies_;
  bool window_ = false, opened_ = false, proven_ = false, was_killed_ = false;
  int session_ = 0, proven_session_ = 0;      // the number of this opening; of the last one that surely began a session
  std::uint64_t last_ = 0, bound_bytes_ = 0;  // of all windows together, also after a crash
  std::int64_t dies_at_ = -1;
  std::string text_;
};

TEST(History, ACopyOfTheLastSessionIsFoundByScrub) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    History history(seed);
    history.put_back_a_copy_of_the_last_session();
    ASSERT_FALSE(::testing::Test::HasFailure()) << seed << ": " << history.text();
  }
}

TEST(History, ASessionMayDieAtEveryWriteAndSync) {
  std::int64_t calls = 0;
  for (std::uint64_t seed = tandem::test::slice_seed(), end = seed + (tandem::test::runs_every_case() ? 40 : 1);
       seed != end; ++seed) {
    bool is_dead = true;
    for (std::int64_t call = 0; is_dead; call += tandem::test::kThinning, ++calls) {
      History history(seed);
      is_dead = history.die_at(call);
      ASSERT_FALSE(::testing::Test::HasFailure()) << seed << ", call " << call << ": " << history.text();
    }
  }
  EXPECT_GE(calls, tandem::test::thinned(75));
  std::printf("%lld calls\n", static_cast<long long>(calls));
}

TEST(History, NothingFlushedIsLostToDamageOfMMembers) {
  const std::uint64_t count = tandem::test::rounds(160, 20000);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t seed = tandem::test::slice_seed() + i;
    History history(seed);
    history.run();
    ASSERT_FALSE(::testing::Test::HasFailure()) << "TANDEM_TEST_SEED=" << seed << ": " << history.text();
  }
}

}  // namespace
}  // namespace tandem::volume::test
