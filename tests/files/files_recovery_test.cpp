// SPDX-License-Identifier: Apache-2.0
// Remains of a run that died, made by hand: the temporaries of docs/format.md, section 8.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "files/unfinished.hpp"
#include "tests/files/kit.hpp"

using namespace tandem::files;

namespace {

TEST(OwnNames, AreReadAsTheyAreWritten) {
  const std::string id = "0123456789abcdef0123456789abcdef";
  const auto kind = [](const std::string &name) {
    const auto own = parse_own_name(name);
    if (own && own->kind != OwnKind::old_record) {
      EXPECT_EQ(own_name(*own), name);
    }
    return own ? static_cast<int>(own->kind) : -1;
  };
  EXPECT_EQ(kind("." + id + ".tandem-pending"), static_cast<int>(OwnKind::old_record));
  EXPECT_EQ(kind("." + id + ".tandem-commit"), static_cast<int>(OwnKind::old_record));
  EXPECT_EQ(kind("." + id + ".013.tandem-tmp"), static_cast<int>(OwnKind::set_temporary));
  EXPECT_EQ(kind("." + id + ".tandem-tmp"), static_cast<int>(OwnKind::lone_temporary));
  for (const char *index : {"000", "255", "256", "999", "1000", "4095"})
    EXPECT_EQ(kind("." + id + "." + index + ".tandem-tmp"), static_cast<int>(OwnKind::set_temporary)) << index;
  EXPECT_EQ(shard_file_name("x", 7), "x.007.tandem");
  EXPECT_EQ(shard_file_name("x", 1007), "x.1007.tandem");
  for (const char *index :
       {"", "1", "01", "0001", "0256", "4096", "9999", "65535", "18446744073709551617", "+12", "-01", "1 1"})
    EXPECT_EQ(parse_shard_file_name(std::string("x.") + index + ".tandem"), std::nullopt) << index;
  for (const std::string &name : {id + ".tandem-tmp", "." + id + ".4096.tandem-tmp", "." + id + ".1.tandem-tmp",
                                  "." + id + "0.tandem-tmp", "." + id.substr(1) + "G.tandem-commit",
                                  std::string(".x.tandem-tmp"), std::string(".tandem-tmp"), std::string(".")})
    EXPECT_EQ(kind(name), -1) << name;
}

class Recovery : public Files {
 protected:
  SetId encode_into(const std::vector<fs::path> &folders, std::uint32_t k, std::uint32_t m, unsigned seed, bool force) {
    spill(root_ / "source", paint(9000, seed));
    tandem_files_encode_options options = encode_options(root_ / "source", k, m, 256);
    options.force = force;
    if (k + m > 256) options.matrix = TANDEM_MATRIX_LEOPARD16;
    Files::encode_into(folders, options);
    SetId id;
    std::memcpy(id.data(), result_.set_id, sizeof result_.set_id);
    return id;
  }

  // A new set, complete beside those that it replaces, as encode --force has made it before its first rename. The first
  // `done` shards have a name.
  SetId stage(const std::vector<fs::path> &folders, std::uint32_t k, std::uint32_t m, unsigned seed,
              const std::vector<SetId> &replaced, std::uint32_t done = 0) {
    std::vector<fs::path> aside;
    for (std::size_t i = 0; i < folders.size(); ++i) aside.push_back(root_ / ("aside" + std::to_string(i)));
    const SetId id = encode_into(aside, k, m, seed, false);
    for (std::uint32_t i = 0; i < k + m; ++i) {
      const fs::path made = aside[i % folders.size()] / shard_file_name("source", i);
      change_header(made, [&](SetHeader &header) { header.replaced = replaced; });
      const std::string by_set = shard_file_name(hexadecimal(id), i);
      fs::rename(made, folders[i % folders.size()] / (i < done ? by_set : own_name({OwnKind::set_temporary, id, i})));
    }
    for (const fs::path &folder : aside) fs::remove_all(folder);
    return id;
  }

  template <class Change>
  static void change_header(const fs::path &file, Change &&change) {
    std::vector<char> bytes = slurp(file);
    for (const std::size_t at : {std::size_t{0}, bytes.size() - kRecordBytes}) {
      const std::span<std::byte, kRecordBytes> place(reinterpret_cast<std::byte *>(bytes.data()) + at, kRecordBytes);
      Record record;
      ASSERT_EQ(parse_record(place, &record), ParseResult::record);
      change(record.set);
      write_record(record, place);
    }
    spill(file, bytes);
  }
  static void forget_start(const fs::path &file) {
    std::vector<char> bytes = slurp(file);
    std::fill_n(bytes.begin(), kRecordBytes, char{0});
    spill(file, bytes);
  }
  static fs::path temporary(const fs::path &folder, const SetId &id, std::uint32_t index) {
    return folder / own_name({OwnKind::set_temporary, id, index});
  }

  tandem_files_recover_result recover(const std::vector<fs::path> &folders, bool dry_run = false) {
    const Paths paths(folders);
    auto options = sized<tandem_files_recover_options>();
    options.dry_run = dry_run;
    collect_notes(options);
    auto result = sized<tandem_files_recover_result>();
    EXPECT_EQ(tandem_files_recover(paths.data(), paths.size(), &options, &result), TANDEM_OK)
        << tandem_last_error_message();
    return result;
  }

  static std::uint32_t shards_found(const std::vector<fs::path> &folders, const SetId &set_id) {
    const Search search(folders);
    std::uint32_t count = 0;
    for (std::size_t i = 0; i < tandem_files_search_set_count(search); ++i) {
      const tandem_files_set set = search.set(i);
      if (std::equal(set_id.begin(), set_id.end(), set.set_id)) count += set.shard_count;
    }
    return count;
  }

  // Encode of `seed`, into one folder, that ends so; returns what it says.
  std::string encode_status(tandem_status status, const fs::path &folder, unsigned seed, bool force, bool dry_run) {
    spill(root_ / "source", paint(9000, seed));
    const std::string text = folder.string();
    const char *const pointer = text.c_str();
    tandem_files_encode_options options = encode_options(root_ / "source", 3, 2, 256);
    options.folders = &pointer;
    options.force = force;
    options.dry_run = dry_run;
    collect_notes(options);
    EXPECT_EQ(tandem_files_encode(context_, &options, nullptr), status) << tandem_last_error_message();
    return status == TANDEM_OK ? notes_ : tandem_last_error_message();
  }

  void expect_content(unsigned seed) {
    fs::remove(root_ / "output");
    ASSERT_EQ(decode(shards_), TANDEM_OK) << tandem_last_error_message();
    EXPECT_EQ(slurp(root_ / "output"), paint(9000, seed));
  }

  void expect_note(const std::string &words) const { EXPECT_NE(notes_.find(words), std::string::npos) << notes_; }
};

// The naps of a wait for two folders that are locked by others.
TEST_F(Recovery, OneDeadlineForAllFolders) {
  Folders folders;
  for (const char *name : {"a", "b"}) {
    fs::create_directory(root_ / name);
    add_folder(folders, (root_ / name).string());
  }
  std::sort(folders.begin(), folders.end(), [](const auto &a, const auto &b) { return a->identity() < b->identity(); });
  int others[2];
  for (int i = 0; i < 2; ++i) {
    others[i] = open(folders[i]->path().c_str(), O_RDONLY | O_DIRECTORY);
    ASSERT_EQ(flock(others[i], LOCK_EX | LOCK_NB), 0);
  }
  int naps = 0;
  const LockWait wait{.seconds = 1, .check_cancelled = [&] {  // the first folder is free when the time is over
                        if (++naps != 1) return;
                        std::this_thread::sleep_for(std::chrono::milliseconds(1100));
                        close(others[0]);
                      }};
  EXPECT_THROW(FoldersLock(folders, wait), FolderLocked);
  EXPECT_LE(naps, 1) << "the second folder had a time of its own";
  close(others[1]);
}

// Two names of one file: what is left where a file gets its name by link() and the run dies before unlink().
TEST_F(Recovery, AFileWithBothItsNamesIsFinished) {
  fs::create_directory(shards_);
  const SetId id = stage({shards_}, 3, 2, 2, {});
  for (const std::uint32_t i : {0, 1}) fs::create_hard_link(temporary(shards_, id, i), shard(i));
  EXPECT_EQ(recover({shards_}).left_count, 0u) << notes_;
  EXPECT_EQ(entries(shards_), 5u) << notes_;
  expect_content(2);
}

// Also if its records are damaged: its name is not known then.
TEST_F(Recovery, NoSetIsMadeBesideAnUnfinishedOneOfItsName) {
  const std::vector<fs::path> folders = {root_ / "a", root_ / "b"};
  for (const bool damaged : {false, true}) {
    for (const fs::path &folder : folders) fs::remove_all(folder), fs::create_directory(folder);
    const SetId id = stage(folders, 3, 2, 2, {});
    for (const std::uint32_t i : {1, 3})
      if (damaged) spill(temporary(folders[1], id, i), paint(slurp(temporary(folders[1], id, i)).size()));
    const Contents before = contents(folders[1]);
    for (const bool dry_run : {true, false}) {
      const std::string message = encode_status(TANDEM_ERROR_IO, folders[1], 3, false, dry_run);
      EXPECT_NE(message.find("is of set " + hexadecimal(id)), std::string::npos) << message;
    }
    EXPECT_EQ(contents(folders[1]), before);
    encode_status(TANDEM_OK, folders[1], 3, true, false);
    EXPECT_EQ(entries(folders[1]), 5u);
    EXPECT_EQ(recover(folders).removed_set_count, 1u) << notes_;  // it was replaced
    EXPECT_EQ(entries(folders[0]), 0u);
  }
}

TEST_F(Recovery, EncodeSaysWhatItCleansUp) {
  const SetId old = encode_into({shards_}, 3, 2, 1, false);
  forget_start(temporary(shards_, stage({shards_}, 3, 2, 2, {old}), 4));
  encode_status(TANDEM_OK, shards_, 3, true, true);
  expect_note("would remove the remains of the incomplete set");
  encode_status(TANDEM_OK, shards_, 3, true, false);
  expect_note("removed the remains of the incomplete set");
  encode_status(TANDEM_OK, shards_, 3, true, false);
  EXPECT_EQ(notes_, "");
}

// A folder that was away comes back with shards of the old content.
TEST_F(Recovery, ShardsOfAReplacedSetAreStale) {
  const SetId old = encode_into({shards_}, 3, 2, 1, false);
  const fs::path away = root_ / "away";
  fs::copy(shards_, away);
  const SetId newer = encode_into({shards_}, 3, 2, 2, true), newest = encode_into({shards_}, 3, 2, 3, true);
  ASSERT_EQ(decode(away), TANDEM_OK) << "alone it is the only one";
  const Search search({away, shards_});
  std::size_t index = 9;
  ASSERT_EQ(tandem_files_search_choose(search, nullptr, nullptr, &index), TANDEM_OK) << tandem_last_error_message();
  EXPECT_TRUE(std::ranges::equal(search.set(index).set_id, newest));
  EXPECT_TRUE(std::ranges::equal(search.set(1 - index).replaced_by, newest));
  EXPECT_EQ(shards_found({away, shards_}, newer), 0u);
  ASSERT_EQ(tandem_files_search_choose(search, hexadecimal(old).c_str(), nullptr, &index), TANDEM_OK)
      << "it can still be named";
}

TEST_F(Recovery, ANewerSetWithTooFewShardsIsNotPassedOverInSilence) {
  const SetId old = encode_into({shards_}, 3, 2, 1, false);
  stage({shards_}, 3, 2, 2, {old}, 2);
  for (const auto &entry : fs::directory_iterator(shards_))
    if (entry.path().filename().string().ends_with(".tandem-tmp")) fs::remove(entry.path());
  const Search search(shards_);
  std::size_t index = 9;
  for (const char *name : {static_cast<const char *>(nullptr), "source"}) {
    EXPECT_EQ(tandem_files_search_choose(search, nullptr, name, &index), TANDEM_ERROR_NOT_RECOVERABLE);
    expect_message("replaced set " + hexadecimal(old));
  }
  ASSERT_EQ(decode(shards_, hexadecimal(old)), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(slurp(root_ / "output"), paint(9000, 1));
}

// In a folder such as /tmp anyone can make one.
TEST_F(Recovery, ASetOfAnotherUserIsNotFinishedAtTheCostOfOnesOwn) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make files of two users";
  constexpr uid_t kOne = 1000, kOther = 1001;
  const auto give = [&](uid_t user, const std::string &but_not = "?") {
    for (const auto &entry : fs::directory_iterator(shards_))
      if (entry.path().filename().string().find(but_not) == std::string::npos) {
        ASSERT_EQ(chown(entry.path().c_str(), user, user), 0);
      }
  };
  const SetId old = encode_into({shards_}, 3, 2, 1, false);
  stage({shards_}, 3, 2, 2, {old});
  give(kOther);
  give(kOne, "-tmp");
  const Contents left = contents(shards_);
  EXPECT_EQ(recover({shards_}).left_count, 1u);
  EXPECT_NE(notes_.find("it would replace files of another user"), std::string::npos) << notes_;
  EXPECT_EQ(contents(shards_), left);
  give(kOne);
  EXPECT_EQ(recover({shards_}).finished_set_count, 1u);
  expect_content(2);
}

TEST_F(Recovery, AnotherUsersFileMakesNoSetUnfinished) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make files of two users";
  fs::create_directory(shards_);
  const SetId id = stage({shards_}, 3, 2, 2, {});
  const fs::path planted = temporary(shards_, id, 4);
  for (const auto &entry : fs::directory_iterator(shards_)) ASSERT_EQ(chown(entry.path().c_str(), 1000, 1000), 0);
  forget_start(planted);
  ASSERT_EQ(chown(planted.c_str(), 1001, 1001), 0);
  EXPECT_EQ(recover({shards_}).left_count, 1u);
  EXPECT_EQ(entries(shards_), 5u);
  ASSERT_EQ(chown(planted.c_str(), 1000, 1000), 0);
  EXPECT_EQ(recover({shards_}).removed_set_count, 1u);
  EXPECT_EQ(entries(shards_), 0u);
}

// As if an id had been used again. No encode writes that.
TEST_F(Recovery, ASetThatListsItselfIsReadAndLosesNothing) {
  fs::create_directory(shards_);
  stage({shards_}, 3, 2, 2, {}, 3);
  for (const auto &entry : fs::directory_iterator(shards_))
    change_header(entry.path(), [&](SetHeader &header) { header.replaced = {header.set_id}; });
  EXPECT_EQ(recover({shards_}).finished_set_count, 1u);
  EXPECT_EQ(entries(shards_), 5u);
  expect_content(2);
}

// Files of the same id at the final names would be taken for those that the new set has made.
TEST_F(Recovery, AnIdIsNotUsedAgainInANameThatHadIt) {
  const SetId first = encode_into({shards_}, 3, 2, 1, false), second = encode_into({shards_}, 3, 2, 2, true);
  for (const SetId &id : {first, second}) {
    tandem_files_encode_options options = encode_options(root_ / "source", 3, 2, 256);
    options.force = true;
    options.set_id = reinterpret_cast<const std::uint8_t *>(id.data());
    EXPECT_EQ(tandem_files_encode(context_, &options, nullptr), TANDEM_ERROR_INVALID_ARGUMENT);
    expect_message("a new set needs an id of its own");
  }
  expect_content(2);
}

TEST_F(Recovery, ASetReplacesAsManyAsItsHeaderHolds) {
  fs::create_directory(shards_);
  const fs::path aside = root_ / "aside";
  for (std::size_t i = 0; i <= kMaxReplacedCount; ++i) {
    const SetId id = encode_into({aside}, 1, 0, 2, false);
    fs::rename(aside / shard_file_name("source", 0), shards_ / shard_file_name(hexadecimal(id), 0));
  }
  const std::string message = encode_status(TANDEM_ERROR_IO, shards_, 3, true, false);
  EXPECT_NE(message.find("234 sets are called source"), std::string::npos) << message;
  EXPECT_EQ(entries(shards_), 234u);
  fs::remove(fs::directory_iterator(shards_)->path());
  encode_status(TANDEM_OK, shards_, 3, true, false);
  EXPECT_EQ(entries(shards_), 5u);
  expect_content(3);
}

// They may be the only copy of a set: that Tandem can finish it.
TEST_F(Recovery, WhatAnOlderTandemDidNotFinishIsNamedAndLeftAlone) {
  fs::create_directory(shards_);
  const SetId id = stage({shards_}, 3, 2, 2, {});
  for (const std::uint32_t i : {0, 1, 2}) forget_start(temporary(shards_, id, i));
  spill(shards_ / ("." + hexadecimal(id) + ".tandem-commit"), paint(10240));
  const Contents before = contents(shards_);
  EXPECT_EQ(recover({shards_}).left_count, 1u);
  expect_note("an older Tandem did not finish");
  EXPECT_EQ(contents(shards_), before);
}

TEST_F(Recovery, WhatALiveProcessWritesIsLeftAlone) {
  const SetId old = encode_into({shards_}, 5, 3, 1, false), id = stage({shards_}, 3, 2, 2, {old});
  forget_start(temporary(shards_, id, 4));
  const fs::path lone = shards_ / ("." + std::string(32, 'b') + ".tandem-tmp");
  spill(lone, paint(100));
  const Contents staged = contents(shards_);
  const int locked[] = {open(temporary(shards_, id, 2).c_str(), O_RDWR), open(lone.c_str(), O_RDWR)};
  for (const int file : locked) ASSERT_EQ(flock(file, LOCK_EX), 0);
  const tandem_files_recover_result result = recover({shards_});
  EXPECT_EQ(result.left_count, 2u);
  EXPECT_EQ(result.removed_set_count + result.removed_file_count, 0u);
  EXPECT_EQ(contents(shards_), staged);
  expect_content(1);
  for (const int file : locked) close(file);
  EXPECT_EQ(recover({shards_}).left_count, 0u);
  EXPECT_EQ(entries(shards_), 8u);
}

TEST_F(Recovery, HostileFilesReachNothing) {
  const SetId victim = encode_into({shards_}, 5, 3, 1, false);
  spill(root_ / "precious", paint(1000));
  const Contents old = contents(shards_);
  const auto expect_untouched = [&] {
    EXPECT_EQ(slurp(root_ / "precious"), paint(1000));
    for (const auto &[name, bytes] : old) EXPECT_EQ(slurp(shards_ / name), bytes) << name;
  };
  // Sets that list one of another name, and that have names which lead elsewhere.
  for (const std::string name : {"letter", "../precious", "..", "a/b"}) {
    const SetId id = stage({shards_}, 1, 1, 2, {victim});
    for (const std::uint32_t i : {0, 1})
      change_header(temporary(shards_, id, i), [&](SetHeader &header) { header.name = name; });
    recover({shards_});
    expect_untouched();
    for (const std::uint32_t i : {0, 1}) fs::remove(temporary(shards_, id, i));
  }
  // Garbage and links under names of ours.
  SetId id{1};
  spill(temporary(shards_, id, 0), paint(10000));
  EXPECT_EQ(recover({shards_}).left_count, 1u);
  fs::remove(temporary(shards_, id, 0));
  for (const std::string &name : {own_name({OwnKind::set_temporary, id, 1}), own_name({OwnKind::lone_temporary, id})})
    fs::create_symlink("../precious", shards_ / name);
  recover({shards_});
  expect_untouched();
}

TEST_F(Recovery, AFolderThatCannotBeWrittenIsStillRead) {
  const SetId old = encode_into({shards_}, 5, 3, 1, false);
  stage({shards_}, 5, 3, 2, {old}, 3);
  const Contents staged = contents(shards_);
  ASSERT_EQ(chmod(root_.c_str(), 0777), 0);
  ASSERT_EQ(chmod(shards_.c_str(), 0555), 0);
  {
    const NotRoot user;
    EXPECT_EQ(recover({shards_}).left_count, 1u);
    expect_content(2);
  }
  ASSERT_EQ(chmod(shards_.c_str(), 0755), 0);
  EXPECT_EQ(contents(shards_), staged);
}

// Folders without remains are not kept open, and still tell what the others need.
TEST_F(Recovery, MoreFoldersThanAProcessMayOpen) {
  const std::vector<fs::path> folders = {root_ / "a", root_ / "b", root_ / "c"};
  const SetId old = encode_into(folders, 2, 4, 1, false), id = stage(folders, 2, 4, 2, {old}, 1);
  std::vector<fs::path> all = folders;
  for (int i = 0; i < 300; ++i) {
    all.push_back(root_ / "others" / std::to_string(i));
    fs::create_directories(all.back());
    spill(all.back() / "file", paint(100, 3));
  }
  const DescriptorLimit few(64);
  EXPECT_EQ(shards_found(all, id), 6u) << "as a reader sees it";
  const tandem_files_recover_result result = recover(all);
  EXPECT_EQ(result.finished_set_count, 1u) << notes_;
  EXPECT_EQ(result.left_count, 0u) << notes_;
  for (const fs::path &folder : folders) EXPECT_EQ(entries(folder), 2u);
}

}  // namespace
