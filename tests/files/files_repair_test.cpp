// SPDX-License-Identifier: Apache-2.0
// tandem_files_repair through the C API. What it reports: files_history_test.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <functional>
#include <optional>

#include "files/format.hpp"
#include "files/ranges.hpp"
#include "tests/files/kit.hpp"

using namespace tandem::files;

namespace {

std::atomic<bool> reads_fail{false};
std::atomic<off_t> failing_offset{-1};

}  // namespace

// The library's own calls come here too.
extern "C" __attribute__((visibility("default"))) ssize_t preadv(int descriptor, const iovec *pieces, int count,
                                                                 off_t offset) {
  if (reads_fail.load() || offset == failing_offset.load()) {
    errno = EIO;
    return -1;
  }
  return syscall(SYS_preadv, descriptor, pieces, count, offset, 0L);
}

namespace {

class Repair : public Files {
 protected:
  tandem_status repair(const std::vector<fs::path> &paths, bool dry_run = false, bool force = false) {
    auto options = sized<tandem_files_repair_options>();
    options.dry_run = dry_run;
    options.force = force;
    options.no_sync = 1;
    options.progress = during_ ? call_during : nullptr;
    options.progress_user = this;
    during_count_ = 0;
    collect_notes(options);
    if (!set_id_.empty()) options.set_id_prefix = set_id_.c_str();
    return repair_with(paths, options);
  }

  static std::uint64_t inode(const fs::path &path) {
    struct stat status;
    return stat(path.c_str(), &status) == 0 ? status.st_ino : 0;
  }

  std::string set_id_;
  // Called between the passes over the content, with the number of those that have ended (1: the damage is known; 2:
  // all is written; 3: it was read back). It does what another program may do meanwhile.
  std::function<void(int)> during_;
  int during_count_ = 0;

 private:
  static std::int32_t call_during(void *self, std::uint64_t done_bytes, std::uint64_t total_bytes) {
    auto *test = static_cast<Repair *>(self);
    if (done_bytes == total_bytes) test->during_(++test->during_count_);
    return 0;
  }
};

constexpr std::uint32_t kBlock = 256;

// A file that is written anew has the bytes of its lost blocks as they were, wherever in the old file they lie.
TEST_F(Repair, LostBlocksKeepTheirBytesInARebuiltFile) {
  constexpr std::uint64_t kLost[] = {0, 6, 9};
  for (const std::string change : {"extended", "cut", "longer before a lost block", "shorter before a lost block"}) {
    fs::remove_all(shards_);
    encode(paint(10 * 3 * (kBlock - 16) - 50), 3, 2, kBlock);
    for (const std::uint64_t block : kLost)
      for (const unsigned i : {0, 1}) damage(i, 4096 + block * kBlock + 7 * i, 3);
    const auto before = contents(shards_);
    std::vector<char> file = slurp(shard(1));
    const auto middle = file.begin() + 4096 + 3 * kBlock;
    if (change == "extended") file.insert(file.end(), 5, 'x');
    if (change == "cut") file.resize(file.size() - 4096);
    if (change == "longer before a lost block") file.insert(middle, 77, 'x');
    if (change == "shorter before a lost block") file.erase(middle, middle + 100);
    spill(shard(1), file);
    fs::remove(shard(2));
    ASSERT_EQ(repair({shards_}), TANDEM_OK) << change << ": " << tandem_last_error_message();
    EXPECT_EQ(repaired_.state, TANDEM_FILES_LOST);
    EXPECT_EQ(repaired_.lost_stripe_count, 3u);
    EXPECT_EQ(repaired_.rebuilt_file_count, 2u);
    EXPECT_EQ(slurp(shard(1)), before.at("source.001.tandem")) << change;
    // With what survived of the others the content is whole again.
    std::vector<char> whole = slurp(shard(1));
    for (const std::uint64_t block : kLost)
      for (unsigned i = 0; i < 3; ++i) {
        char &c = whole[4096 + block * kBlock + 7 + i];
        c = static_cast<char>(~c);
      }
    spill(shard(1), whole);
    ASSERT_EQ(repair({shards_}), TANDEM_OK) << tandem_last_error_message();
    EXPECT_EQ(repaired_.state, TANDEM_FILES_INTACT);
  }
}

// Where the old bytes cannot be read just now, the old file is the only one that may still have them.
TEST_F(Repair, ALostBlockThatCannotBeReadKeepsItsFile) {
  encode(paint(10 * 3 * (kBlock - 16)), 3, 2, kBlock);
  for (const unsigned i : {0, 1, 4}) damage(i, 4096 + 6 * kBlock, 1);
  spill(shard(1), [&] {
    std::vector<char> file = slurp(shard(1));
    file.push_back('x');
    return file;
  }());
  const auto before = contents(shards_);
  failing_offset = 4096 + 6 * kBlock;
  EXPECT_EQ(repair({shards_}), TANDEM_ERROR_IO);
  failing_offset = -1;
  EXPECT_EQ(contents(shards_), before);
}

TEST_F(Repair, ARebuiltFileKeepsModeAndOwner) {
  encode(paint(9000), 3, 2, kBlock);
  for (unsigned i = 0; i < 5; ++i) {
    ASSERT_EQ(chmod(shard(i).c_str(), i == 1 ? 0640 : 0600), 0);
    if (geteuid() == 0) {
      ASSERT_EQ(chown(shard(i).c_str(), 65534, 65534), 0);
    }
  }
  fs::resize_file(shard(1), fs::file_size(shard(1)) + 1);
  fs::remove(shard(2));
  ASSERT_EQ(repair({shards_}), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(repaired_.rebuilt_file_count, 2u);
  for (unsigned i = 0; i < 5; ++i) {
    struct stat status;
    ASSERT_EQ(stat(shard(i).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, i == 1 ? 0640u : 0600u) << i;
    EXPECT_EQ(status.st_uid, geteuid() == 0 ? 65534 : geteuid()) << i;
  }
}

// The replaced disk is not named: its shards go beside others, and repair says so.
TEST_F(Repair, ALayoutThatCannotBeRestoredIsTold) {
  const std::vector<fs::path> names = {root_ / "a", root_ / "b", root_ / "c"};
  spill(root_ / "source", paint(9000));
  encode_into(names, encode_options(root_ / "source", 3, 3, kBlock));
  fs::remove_all(names[1]);
  ASSERT_EQ(repair({names[0], names[2]}), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(notes_,
            "the layout of the encode cannot be restored: it used 3 folders, and 2 are named. 2 missing shards go to "
            "folders with other shards; " +
                names[0].string() + " then holds 3 of the 6 shards\n");
  EXPECT_EQ(entries(names[0]), 3u);  // neither folder alone has more than m
  EXPECT_EQ(entries(names[2]), 3u);
  EXPECT_EQ(repaired_.crowded_folder_count, 0u);
  // A new disk gets its share of both. Which folders are crowded: sets_cli_test.
  fs::create_directory(names[1]);
  ASSERT_EQ(repair({names[0], names[1], names[2]}), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(std::pair(repaired_.moved_file_count, repaired_.rebuilt_file_count), std::pair(2u, 0u));
  for (const fs::path &name : names) EXPECT_EQ(entries(name), 2u) << name;
}

// A newer set gets the names while an older one is repaired.
TEST_F(Repair, AFileThatIsNotTheOneThatWasReadIsNotReplaced) {
  encode(paint(9000, 1), 3, 2, kBlock);
  fs::resize_file(shard(1), fs::file_size(shard(1)) - 1);
  during_ = [&](int call) {
    if (call != 2) return;
    spill(root_ / "source", paint(9000, 2));
    tandem_files_encode_options options = encode_options(root_ / "source", 3, 2, kBlock);
    options.force = 1;
    ASSERT_EQ(tandem_files_encode(context_, &options, nullptr), TANDEM_OK) << tandem_last_error_message();
  };
  for (const bool force : {false, true}) {
    EXPECT_EQ(repair({shards_}, false, force), TANDEM_ERROR_IO);
    expect_message("source.001.tandem was replaced since");
    EXPECT_EQ(verify().state, TANDEM_FILES_INTACT);
    EXPECT_EQ(entries(shards_), 5u);
    ASSERT_EQ(decode(shards_), TANDEM_OK) << tandem_last_error_message();
    EXPECT_EQ(slurp(root_ / "output"), paint(9000, 2));
    fs::resize_file(shard(1), fs::file_size(shard(1)) - 1);
  }
  during_ = [&](int call) {
    if (call == 2) fs::remove(shard(1));
  };
  EXPECT_EQ(repair({shards_}), TANDEM_ERROR_IO);
  EXPECT_EQ(entries(shards_), 4u);
}

// A file with the name of a missing shard may be the only copy of other data, and a link is no free name either.
TEST_F(Repair, ForeignFilesAreNotReplacedWithoutForce) {
  encode(paint(9000), 3, 3, kBlock);
  const auto before = contents(shards_);
  const std::vector<char> notes = {'n', 'o', 't', 'e', 's'}, nothing;
  std::vector<char> newer = slurp(shard(1));
  newer[8] = newer[newer.size() - kRecordBytes + 8] = 3;  // of a version that is not known, by its magic
  spill(shard(0), notes);
  spill(shard(1), newer);
  spill(shard(2), nothing);
  fs::remove(shard(3));
  fs::create_symlink(root_ / "nowhere", shard(3));
  ASSERT_EQ(repair({shards_}), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(repaired_.rebuilt_file_count, 3u);  // the blocks of shard 1 are known by their checksums
  EXPECT_EQ(slurp(shard(0)), notes);
  EXPECT_EQ(slurp(shard(2)), nothing);
  EXPECT_TRUE(fs::is_symlink(shard(3)));
  EXPECT_EQ(repaired_.state, TANDEM_FILES_INTACT);
  EXPECT_EQ(verify().state, TANDEM_FILES_INTACT);
  EXPECT_EQ(entries(shards_), 9u);

  for (const auto &entry : fs::directory_iterator(shards_))
    if (entry.path().filename().string().rfind("source", 0) != 0 || entry.is_symlink()) fs::remove(entry);
  ASSERT_EQ(repair({shards_}, false, true), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(contents(shards_), before);
}

// Another program, or another repair, makes a file after this one has searched.
TEST_F(Repair, AFileThatAppearsAtTheNameOfAMissingShardIsNotReplaced) {
  encode(paint(9000), 3, 2, kBlock);
  const std::vector<char> whole = slurp(shard(1));
  for (const auto &[pass, bytes] : {std::pair{1, whole}, {2, paint(5)}}) {
    fs::remove(shard(1));
    during_ = [this, at = pass, made = bytes](int now) {
      if (now == at) spill(shard(1), made);
    };
    EXPECT_EQ(repair({shards_}), TANDEM_ERROR_IO);
    EXPECT_EQ(slurp(shard(1)), bytes);
    EXPECT_EQ(entries(shards_), 5u);
  }
}

// Inspection found the stripes recoverable; a moment later the disk does not answer.
TEST_F(Repair, AStripeThatCannotBeReadAnyMoreLeavesNoHole) {
  encode(paint(9000), 3, 2, kBlock);
  fs::resize_file(shard(1), fs::file_size(shard(1)) - 300);
  const std::vector<char> damaged = slurp(shard(1));
  fs::remove(shard(3));
  during_ = [](int call) { reads_fail = call == 1; };
  EXPECT_EQ(repair({shards_}), TANDEM_ERROR_IO);
  reads_fail = false;
  expect_message("cannot be computed");
  EXPECT_EQ(slurp(shard(1)), damaged);
  EXPECT_EQ(entries(shards_), 4u);
  during_ = nullptr;
  ASSERT_EQ(repair({shards_}), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(repaired_.state, TANDEM_FILES_INTACT);
}

// A set of more files than the process may open. Other commands: files_wide_test.
TEST_F(Repair, FewDescriptorsAreNoDamage) {
  encode(paint(100000), 60, 4, kBlock);
  damage(0, 4096, 1);
  fs::remove(shard(5));
  const int next = dup(0);
  close(next);
  std::optional<DescriptorLimit> few(std::in_place, next + 12);
  // None at all while blocks are looked for: an error, and no word of damage.
  std::optional<DescriptorLimit> none;
  during_ = [&](int call) {
    if (call == 1) none.emplace(next);
  };
  EXPECT_EQ(repair({shards_}), TANDEM_ERROR_IO);
  expect_message("errno 24");
  during_ = nullptr;
  none.reset();
  EXPECT_EQ(repair({shards_}), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(repaired_.state, TANDEM_FILES_INTACT);
  few.reset();
  EXPECT_EQ(verify().state, TANDEM_FILES_INTACT);
}

// Every second block of two files, and some lost stripes between: more ranges than are remembered.
TEST_F(Repair, MoreDamageThanIsRememberedIsMendedAndCounted) {
  constexpr std::uint64_t kSmall = 64, kStripes = 2 * Ranges::kMost + 1000;
  encode(paint(kStripes * 2 * (kSmall - 16)), 2, 1, kSmall);
  const auto before = contents(shards_);
  const std::uint64_t place = inode(shard(0));
  const auto spoil = [&](unsigned index, const std::function<bool(std::uint64_t)> &is_bad) {
    std::vector<char> bytes = slurp(shard(index));
    for (std::uint64_t stripe = 0; stripe < kStripes; ++stripe)
      if (is_bad(stripe)) bytes[4096 + stripe * kSmall] = static_cast<char>(~bytes[4096 + stripe * kSmall]);
    spill(shard(index), bytes);
  };
  spoil(0, [](std::uint64_t stripe) { return stripe % 2 == 1; });
  spoil(1, [](std::uint64_t stripe) { return stripe % 10000 == 777; });
  ASSERT_EQ(repair({shards_}), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(repaired_.lost_stripe_count, 14u);
  EXPECT_EQ(repaired_.mended_block_count, kStripes / 2 - 14);
  EXPECT_EQ(repaired_.left_block_count, 28u);
  EXPECT_EQ(repaired_.state, TANDEM_FILES_LOST);
  EXPECT_EQ(verify().bad_block_count, 28u);
  spoil(1, [](std::uint64_t stripe) { return stripe % 10000 == 777; });
  ASSERT_EQ(repair({shards_}), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(repaired_.state, TANDEM_FILES_INTACT);
  EXPECT_TRUE(contents(shards_) == before);
  EXPECT_EQ(inode(shard(0)), place) << "in place";
}

TEST(Ranges, FilesShareABudget) {
  EXPECT_EQ(share_of_ranges(14), Ranges::kMost);
  EXPECT_LE(share_of_ranges(512) * 512, kMostRangesOfSet);
}

TEST(Ranges, AreListedOneAfterTheOther) {
  Ranges ranges;
  ranges.add(7, 9);
  ranges.add(2, 3);
  ranges.add(20, 21);
  const RangeList list(ranges);
  ASSERT_EQ(list.count(), 4u);
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t place = 0; place < list.count(); ++place) numbers.push_back(list.at(place));
  EXPECT_EQ(numbers, (std::vector<std::uint64_t>{2, 7, 8, 20}));
}

// A file without records that has blocks of two sets belongs to one of them, whichever is found first.
TEST_F(Repair, AFileOfTwoSetsIsTakenForTheSameOneAfterRepair) {
  const std::size_t length = 5 * 3 * (kBlock - 16);
  encode(paint(length, 1), 3, 2, kBlock);
  const std::vector<char> stale = slurp(shard(1));
  fs::remove_all(shards_);
  encode(paint(length, 2), 3, 2, kBlock);
  std::vector<char> mixed = slurp(shard(1));
  std::copy_n(stale.begin() + 4096 + 2 * kBlock, kBlock, mixed.begin() + 4096 + 2 * kBlock);
  std::fill_n(mixed.begin(), 4096, '?');
  std::fill_n(mixed.end() - 4096, 4096, '?');
  for (const char *name : {"0", "z"}) {  // the other set is found first, or last
    spill(shards_ / name, stale);
    spill(shard(1), mixed);
    fs::remove(shard(0));
    set_id_.clear();
    ASSERT_EQ(repair({shards_}), TANDEM_OK) << tandem_last_error_message();
    EXPECT_EQ(repaired_.state, TANDEM_FILES_INTACT);
    EXPECT_EQ(entries(shards_), 6u) << "mended in place, nothing was put beside it";
    ASSERT_EQ(repair({shards_}), TANDEM_OK) << tandem_last_error_message();
    EXPECT_EQ(repaired_.written_bytes, 0u) << name;
    fs::remove(shards_ / name);
  }
}

// Of a read-only source come read-only shards; root may write to them all the same.
TEST_F(Repair, AFileThatCannotBeOpenedForWritingIsRebuilt) {
  encode(paint(9000), 3, 2, kBlock);
  const auto before = contents(shards_);
  for (const auto &[name, bytes] : before) ASSERT_EQ(chmod((shards_ / name).c_str(), 0444), 0);
  {
    std::fstream file;
    ASSERT_EQ(chmod(shard(1).c_str(), 0644), 0);
    damage(1, 4096 + 3 * kBlock, 1);
    ASSERT_EQ(chmod(shard(1).c_str(), 0444), 0);
  }
  ASSERT_EQ(repair({shards_}), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(contents(shards_), before);
  EXPECT_EQ(repaired_.mended_file_count + repaired_.rebuilt_file_count, 1u);
}

TEST_F(Repair, CancelLeavesNoTemporary) {
  encode(paint(200000), 3, 2, kBlock);
  fs::remove(shard(1));
  for (int calls = 1; calls <= 3; ++calls) {
    static int left;
    left = calls;
    auto options = sized<tandem_files_repair_options>();
    options.progress = [](void *, std::uint64_t, std::uint64_t) -> std::int32_t { return --left == 0 ? 1 : 0; };
    EXPECT_EQ(repair_with({shards_}, options), TANDEM_ERROR_CANCELLED) << calls;
    EXPECT_EQ(entries(shards_), 4u) << calls;
  }
}

// ---- hostile files: every checksum is right ----

// Files of 550 GB, or of 2^59 bytes. Nothing is written for that, whether k shards say so or fewer, and it takes no
// time.
TEST_F(Repair, AnAbsurdContentLengthWritesNothing) {
  for (const auto &[kept, length] : {std::pair{3u, 1ull << 40}, {1u, 1ull << 40}, {3u, 1ull << 60}}) {
    fs::remove_all(shards_);
    encode({}, 2, 1, kBlock);
    for (unsigned i = 0; i < 3; ++i) forge(shard(i), 64, length, 8);
    for (unsigned i = kept; i < 3; ++i) fs::remove(shard(i));
    const auto before = contents(shards_);
    EXPECT_GT(verify().lost_stripe_count, length >> 10);
    during_ = [&, kept = kept](int) { EXPECT_EQ(entries(shards_), kept) << "something is written"; };
    ASSERT_EQ(repair({shards_}), TANDEM_OK) << tandem_last_error_message();
    EXPECT_EQ(repaired_.state, TANDEM_FILES_LOST);
    EXPECT_EQ(repaired_.written_bytes, 0u);
    EXPECT_NE(notes_.find("nothing is written: 0 shards have a file of at least half of the"), std::string::npos)
        << notes_;
    EXPECT_EQ(contents(shards_), before);
  }
}

// Files of one set id that claim different shapes are different sets, and none of them is taken for the other. Files
// that claim another m: files_resize_test.
TEST_F(Repair, ASetWhoseFilesDisagree) {
  encode(paint(5000), 2, 2, kBlock);
  forge(shard(0), 32, 3, 4);  // k
  forge(shard(1), 72, 1, 4);  // digest
  EXPECT_EQ(verify().missing_shard_count, 2u);
  ASSERT_EQ(decode(shards_), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(slurp(root_ / "output"), paint(5000));
  forge(shard(2), 52, 512, 4);  // block_bytes
  EXPECT_NE(decode(shards_), TANDEM_OK);
}

// Two files that both say they are shard 0, both with right checksums: one of them lies.
TEST_F(Repair, CopiesThatContradictEachOtherAreNoSuccess) {
  encode(paint(200, 1), 2, 1, kBlock);
  fs::copy(shard(0), shards_ / "another");
  std::vector<char> liar = slurp(shard(0));
  liar[4096] = static_cast<char>(~liar[4096]);
  SetId set_id;
  std::memcpy(set_id.data(), liar.data() + 16, set_id.size());
  std::byte *payload = reinterpret_cast<std::byte *>(liar.data() + 4096);
  write_check(block_check(set_id, 0, 0, payload, 100), payload + 100);
  for (const fs::path &path : {shard(0), shards_ / "another"}) {
    const std::vector<char> honest = slurp(path);
    spill(path, liar);
    const tandem_status status = decode(shards_);
    if (status == TANDEM_OK) {
      EXPECT_EQ(slurp(root_ / "output"), paint(200, 1));
    } else {
      EXPECT_EQ(status, TANDEM_ERROR_DAMAGED);
    }
    spill(path, honest);
  }
  spill(shard(0), liar);
  spill(shards_ / "another", liar);
  fs::remove(root_ / "output");
  EXPECT_EQ(decode(shards_), TANDEM_ERROR_DAMAGED);
  EXPECT_FALSE(fs::exists(root_ / "output"));
}

TEST_F(Repair, AFolderThatIsNotWritable) {
  spill(root_ / "source", paint(1000));
  fs::create_directory(shards_);
  ASSERT_EQ(chmod(root_.c_str(), 0755), 0);
  ASSERT_EQ(chmod(shards_.c_str(), 0555), 0);
  tandem_files_encode_options options = encode_options(root_ / "source", 2, 1);
  for (const int dry_run : {1, 0}) {
    const NotRoot user;
    options.dry_run = dry_run;
    EXPECT_EQ(tandem_files_encode(context_, &options, nullptr), TANDEM_ERROR_IO) << dry_run;
    expect_message("Permission denied");
  }
  EXPECT_EQ(entries(shards_), 0u);
}

// Files in several folders that are all locked by others: one time for all of them.
TEST_F(Repair, OneLockWaitForAllFolders) {
  const std::vector<fs::path> folders = {root_ / "a", root_ / "b"};
  spill(root_ / "source", paint(9000));
  encode_into(folders, encode_options(root_ / "source", 3, 2, 256));
  int locks[2];
  for (const unsigned i : {0u, 1u}) {
    fs::resize_file(folders[i] / shard(i).filename(), 5000);
    locks[i] = open(folders[i].c_str(), O_RDONLY | O_DIRECTORY);
    ASSERT_EQ(flock(locks[i], LOCK_EX | LOCK_NB), 0);
  }
  int naps = 0;
  auto options = sized<tandem_files_repair_options>();
  options.no_sync = 1;
  options.lock_wait_seconds = 1;
  options.progress_user = &naps;
  options.progress = [](void *user, std::uint64_t, std::uint64_t total_bytes) {
    if (total_bytes == 0 && ++*static_cast<int *>(user) == 1) usleep(1100000);
    return 0;
  };
  EXPECT_EQ(repair_with(folders, options), TANDEM_ERROR_IO);
  expect_message("is locked by another process");
  EXPECT_LE(naps, 1) << "the second folder had a time of its own";
  for (const int lock : locks) close(lock);
}

TEST_F(Repair, BadArgumentsAreNamed) {
  encode(paint(100), 2, 1);
  EXPECT_EQ(repair({root_ / "nowhere"}), TANDEM_ERROR_IO);
  set_id_ = "zz";
  EXPECT_EQ(repair({shards_}), TANDEM_ERROR_INVALID_ARGUMENT);
  set_id_.clear();
  EXPECT_EQ(tandem_files_repair(context_, nullptr, nullptr, nullptr), TANDEM_ERROR_INVALID_ARGUMENT);
  const char *const folders[] = {nullptr};
  auto options = sized<tandem_files_repair_options>();
  options.folders = folders;
  options.folder_count = 1;
  EXPECT_EQ(repair_with({shards_}, options), TANDEM_ERROR_INVALID_ARGUMENT);
  expect_message("folders[0] is NULL");
  const char *const there[] = {"."};
  options.folders = options.new_folders = there;
  options.new_folder_count = 1;
  EXPECT_EQ(repair_with({shards_}, options), TANDEM_ERROR_INVALID_ARGUMENT);
  expect_message("folders and new_folders are both given");
  EXPECT_EQ(tandem_files_recover(nullptr, 0, nullptr, nullptr), TANDEM_ERROR_INVALID_ARGUMENT);
}

}  // namespace
