// SPDX-License-Identifier: Apache-2.0
// Remains of a run that died, made by hand: the records and temporaries of docs/format.md, section 8.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "files/commit.hpp"
#include "tests/files/kit.hpp"

using namespace tandem::files;

namespace {

CommitRecord sample_record() {
  CommitRecord record;
  for (std::size_t i = 0; i < record.set_id.size(); ++i) record.set_id[i] = static_cast<std::uint8_t>(7 * i + 1);
  record.shard_count = 14;
  record.folder_count = 3;
  record.folder = 2;
  record.force = true;
  record.name = "video.mp4";
  for (unsigned i = 0; i < 14; ++i) record.folder_of.push_back(static_cast<std::uint16_t>(i % 3));
  record.stale.set(17);
  record.done.set(1);
  record.given_up = {record.set_id, SetId{9, 8, 7}};
  return record;
}

CommitRecord wide_record() {
  CommitRecord record = sample_record();
  record.shard_count = record.folder_count = 4096;
  record.folder_of.clear();
  for (unsigned i = 0; i < 4096; ++i) record.folder_of.push_back(static_cast<std::uint16_t>(4095 - i));
  record.done.set(4095);
  return record;
}

using RecordBytes = std::vector<std::byte>;

RecordBytes written(const CommitRecord &record) { return commit_record_bytes(record); }

// Makes both checksums right again, as reseal() does.
void reseal(RecordBytes &record) {
  const auto put = [&](std::size_t at, std::uint64_t check) {
    for (unsigned i = 0; i < 8; ++i) record[at + i] = static_cast<std::byte>(check >> (8 * i));
  };
  put(896, hash64(record.data() + kCommitHeadBytes, record.size() - kCommitHeadBytes));
  put(1016, hash64(record.data(), 1016));
}

TEST(CommitRecord, RoundTripsAndEveryBitCounts) {
  for (const CommitRecord &record : {sample_record(), wide_record()}) {
    const RecordBytes good = written(record);
    ASSERT_EQ(good.size(), 10240u);
    CommitRecord back;
    ASSERT_TRUE(parse_commit_record(good, &back));
    EXPECT_EQ(back, record);
    RecordBytes bad = good;
    for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
      bad[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      ASSERT_FALSE(parse_commit_record(bad, &back)) << "bit " << bit;
      bad[bit / 8] = good[bit / 8];
    }
    for (const std::size_t cut : {0, 1023, 1024, 10239})
      EXPECT_FALSE(parse_commit_record(std::span(good).first(cut), &back)) << cut;
  }
}

TEST(CommitRecord, WhatNoWriterMakesIsRefused) {
  struct Field {
    std::size_t at;
    std::vector<std::uint32_t> values;
  };
  const auto refused = [](const CommitRecord &record, std::size_t at, std::uint32_t value) {
    RecordBytes bytes = written(record);
    for (unsigned i = 0; i < 4; ++i) bytes[at + i] = static_cast<std::byte>(value >> (8 * i));
    reseal(bytes);
    CommitRecord back;
    return !parse_commit_record(bytes, &back);
  };
  const std::pair<CommitRecord, std::vector<Field>> records[] = {
      {sample_record(),
       {{8, {0, 1, 2, 4, UINT32_MAX}},   // version
        {12, {2}},                       // force
        {32, {0, 2, 4097, UINT32_MAX}},  // shards
        {36, {0, 2, 15, UINT32_MAX}},    // folders
        {40, {3, UINT32_MAX}},           // this folder
        {44, {0, 245, UINT32_MAX, 20}},  // length of the name; 20: NUL in it
        {1024, {0x00000003}},            // a folder that there is not
        {624, {17, UINT32_MAX}}}},       // sets given up
      {wide_record(),
       {{32, {0, 2, 4095, 4097, 65535, UINT32_MAX}},
        {36, {0, 1, 4095, 4097, UINT32_MAX}},
        {40, {4096, UINT32_MAX}},
        {1024 + 2 * 4094, {0x10000000}}}}};
  for (const auto &[record, fields] : records)
    for (const Field &field : fields)
      for (const std::uint32_t value : field.values)
        EXPECT_TRUE(refused(record, field.at, value)) << record.shard_count << " shards, " << field.at << ": " << value;
  EXPECT_FALSE(refused(wide_record(), 1024, 0x00010002));
  CommitRecord record = sample_record(), back;
  for (const char *name : {"../../etc/x", "a/b", "/", ""}) {
    record.name = name;
    EXPECT_FALSE(parse_commit_record(written(record), &back)) << name;
  }
  // Index 4095 has one digit more than 255, so the name has one byte less.
  record = wide_record();
  record.name = std::string(244, 'n');
  EXPECT_FALSE(parse_commit_record(written(record), &back));
  record.name.pop_back();
  EXPECT_TRUE(parse_commit_record(written(record), &back));
  EXPECT_EQ(shard_file_name(record.name, 4095).size(), 255u);
}

RecordBytes of_version(const CommitRecord &record, std::uint32_t version) {
  RecordBytes bytes = written(record);
  bytes[8] = static_cast<std::byte>(version);
  reseal(bytes);
  return bytes;
}

// The first kilobyte is enough for that: records of another version may be shorter or longer.
TEST(CommitRecord, OtherVersionsAreNamed) {
  for (const std::uint32_t version : {1u, 2u, 3u, 4u}) {
    const RecordBytes record = of_version(sample_record(), version);
    EXPECT_EQ(commit_record_version(std::span(record).first(1024)), version);
  }
  RecordBytes damaged = of_version(sample_record(), 4);
  damaged[900] ^= std::byte{1};
  EXPECT_FALSE(commit_record_version(damaged));
}

TEST(CommitRecord, NamesOfOurOwn) {
  const std::string id = "0123456789abcdef0123456789abcdef";
  const auto kind = [](const std::string &name) {
    const auto own = parse_own_name(name);
    if (own) {
      EXPECT_EQ(own_name(*own), name);
    }
    return own ? static_cast<int>(own->kind) : -1;
  };
  EXPECT_EQ(kind("." + id + ".tandem-pending"), static_cast<int>(OwnKind::pending_record));
  EXPECT_EQ(kind("." + id + ".tandem-commit"), static_cast<int>(OwnKind::commit_record));
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
  void encode_into(const std::vector<fs::path> &folders, std::uint32_t k, std::uint32_t m, unsigned seed, bool force) {
    spill(root_ / "source", paint(9000, seed));
    tandem_files_encode_options options = encode_options(root_ / "source", k, m, 256);
    options.force = force;
    if (k + m > 256) options.matrix = TANDEM_MATRIX_LEOPARD16;
    Files::encode_into(folders, options);
  }

  // A new set of shards, `seed`, complete beside the old one: what encode --force has made before anything counts.
  // Folder i gets records of that state; names that are `done` are in place already.
  CommitRecord stage(const std::vector<fs::path> &folders, std::uint32_t k, std::uint32_t m, unsigned seed,
                     const std::vector<OwnKind> &states, std::uint32_t done = 0) {
    std::vector<fs::path> aside;
    for (std::size_t i = 0; i < folders.size(); ++i) aside.push_back(root_ / ("aside" + std::to_string(i)));
    encode_into(aside, k, m, seed, false);
    CommitRecord record;
    std::memcpy(record.set_id.data(), result_.set_id, sizeof result_.set_id);
    record.shard_count = k + m;
    record.folder_count = static_cast<std::uint32_t>(folders.size());
    record.force = true;
    record.name = "source";
    for (std::uint32_t i = 0; i < k + m; ++i)
      record.folder_of.push_back(static_cast<std::uint16_t>(i % folders.size()));
    for (std::uint32_t i = 0; i < k + m; ++i) {
      const std::string name = shard_file_name("source", i);
      const fs::path folder = folders[i % folders.size()];
      fs::rename(aside[i % folders.size()] / name,
                 folder / (i < done ? name : own_name({OwnKind::set_temporary, record.set_id, i})));
    }
    for (std::size_t i = 0; i < folders.size(); ++i) {
      record.folder = static_cast<std::uint32_t>(i);
      for (std::uint32_t j = 0; j < kMaxShardCount; ++j)
        record.stale[j] = !record.is_here(j) && fs::exists(folders[i] / shard_file_name("source", j));
      if (i < states.size()) put_record(folders[i], record, states[i]);
      fs::remove_all(aside[i]);
    }
    return record;
  }

  static void put_record(const fs::path &folder, const CommitRecord &record, OwnKind state) {
    const RecordBytes bytes = written(record);
    spill(folder / own_name({state, record.set_id}),
          std::vector<char>(reinterpret_cast<const char *>(bytes.data()),
                            reinterpret_cast<const char *>(bytes.data()) + bytes.size()));
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

// A file of a complete set was removed: the other files get their names, and no older file is given up for it.
TEST_F(Recovery, AShardThatIsMissingCostsNoStaleFile) {
  encode_into({shards_}, 5, 3, 1, false);
  const CommitRecord record = stage({shards_}, 3, 2, 2, {OwnKind::commit_record}, 2);
  fs::remove(shards_ / own_name({OwnKind::set_temporary, record.set_id, 3}));
  expect_content(2);
  EXPECT_EQ(recover({shards_}).finished_set_count, 1u);
  expect_note("source.003.tandem of set ");
  expect_note("missing");
  for (const std::uint32_t stale : {3, 5, 6, 7}) EXPECT_TRUE(fs::exists(shard(stale))) << stale;
  EXPECT_EQ(entries(shards_), 8u) << "a record or a temporary is left";
  EXPECT_EQ(recover({shards_}).finished_set_count, 0u);
  expect_content(2);
}

// Two names of one file: what is left where a file gets its name by link() and the run dies before unlink().
TEST_F(Recovery, AFileWithBothItsNamesIsFinished) {
  fs::create_directory(shards_);
  CommitRecord record = stage({shards_}, 3, 2, 2, {});
  record.force = false;
  put_record(shards_, record, OwnKind::commit_record);
  for (const std::uint32_t i : {0, 1})
    fs::create_hard_link(shards_ / own_name({OwnKind::set_temporary, record.set_id, i}), shard(i));
  EXPECT_EQ(recover({shards_}).left_count, 0u) << notes_;
  EXPECT_EQ(entries(shards_), 5u) << notes_;
  expect_content(2);
}

// The lead is lost after the set counts: any other folder that knows so proves it, by its record or by a finished file.
TEST_F(Recovery, AnyFolderProvesThatASetCounts) {
  const std::vector<fs::path> folders = {root_ / "a", root_ / "b", root_ / "c"}, left = {folders[1], folders[2]};
  constexpr OwnKind kPending = OwnKind::pending_record, kCommit = OwnKind::commit_record;
  for (const std::vector<OwnKind> &states :
       {std::vector<OwnKind>{kCommit, kPending, kCommit}, {kCommit, kCommit, kPending}, {kCommit, kCommit, kCommit}})
    for (const bool finished_alone : {false, true}) {
      for (const fs::path &folder : folders) fs::remove_all(folder);
      encode_into(folders, 2, 4, 1, false);
      const CommitRecord record = stage(folders, 2, 4, 2, states);
      fs::remove_all(folders[0]);
      if (finished_alone) {  // its record is gone then
        const fs::path alone = folders[states[1] == kCommit ? 1 : 2];
        EXPECT_EQ(recover({alone}).finished_set_count, 1u) << notes_;
        EXPECT_EQ(entries(alone), 2u);
      }
      EXPECT_EQ(shards_found(left, record.set_id), 4u) << "as a reader sees it";
      EXPECT_EQ(recover(left).left_count, 0u) << notes_;
      EXPECT_EQ(shards_found(left, record.set_id), 4u) << notes_;
      for (const fs::path &folder : left) EXPECT_EQ(entries(folder), 2u);
    }
}

// The record of the lead stays until the other folder, b, is done as well: alone, with the lead, or by a newer set.
TEST_F(Recovery, TheLeadWaitsUntilTheOtherFolderIsDone) {
  struct Step {
    bool names_a, names_b;
    std::size_t left_in_a, left_in_b;
  };
  struct Case {
    std::string what;
    std::uint32_t k;
    std::vector<std::uint32_t> removed;
    bool is_written_over;
    std::vector<Step> steps;
  };
  const fs::path a = root_ / "a", b = root_ / "b";
  for (const Case &each :
       {Case{"finished alone", 2, {}, false, {{false, true, 7, 2}, {true, false, 4, 2}, {true, true, 3, 2}}},
        Case{"shards are missing", 3, {1, 3}, false, {{false, true, 7, 3}, {true, false, 4, 3}, {true, true, 3, 2}}},
        Case{"a newer set", 3, {}, true, {{true, false, 4, 5}, {true, true, 3, 5}}}}) {
    for (const fs::path &folder : {a, b}) fs::remove_all(folder);
    encode_into({a, b}, each.k, 5 - each.k, 1, false);
    const CommitRecord record = stage({a, b}, each.k, 5 - each.k, 2, {OwnKind::commit_record, OwnKind::commit_record});
    for (const std::uint32_t i : each.removed) fs::remove(b / own_name({OwnKind::set_temporary, record.set_id, i}));
    if (each.is_written_over) encode_into({b}, 3, 2, 3, true);
    for (const auto &[names_a, names_b, left_in_a, left_in_b] : each.steps) {
      recover({names_a ? a : b, names_b ? b : root_});
      EXPECT_EQ(entries(a), left_in_a) << each.what << ": " << notes_;
      EXPECT_EQ(entries(b), left_in_b) << each.what << ": " << notes_;
    }
  }
}

// Which folders they are, not how many: a strange one does not stand for one that is not there.
TEST_F(Recovery, TheLeadWaitsForItsOwnFolders) {
  const std::vector<fs::path> folders = {root_ / "a", root_ / "b", root_ / "c"};
  constexpr OwnKind kPending = OwnKind::pending_record;
  encode_into(folders, 5, 3, 1, false);
  std::vector<Contents> old;
  for (const fs::path &folder : folders) old.push_back(contents(folder));
  const CommitRecord record = stage(folders, 5, 3, 2, {kPending, kPending, kPending});
  const fs::path lead = folders[0] / own_name({kPending, record.set_id});
  fs::create_directory(root_ / "x");
  recover({folders[0], folders[1], root_ / "x"});
  EXPECT_TRUE(fs::exists(lead)) << "no record tells folder c any more that the set is not valid";
  expect_note(lead.string());
  EXPECT_EQ(contents(folders[1]), old[1]);
  recover({folders[2]});
  EXPECT_GT(entries(folders[2]), old[2].size());
  recover({folders[0], folders[2]});  // b's record is gone; the lead remembers
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(contents(folders[i]), old[i]) << i << ": " << notes_;
  // One of them is a folder with a damaged record.
  const CommitRecord another = stage(folders, 5, 3, 3, {kPending, kPending, kPending});
  for (std::uint32_t i = 0; i < 8; ++i) fs::remove(folders[2] / own_name({OwnKind::set_temporary, another.set_id, i}));
  spill(folders[2] / own_name({kPending, another.set_id}), paint(kCommitRecordBytes));
  recover(folders);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(contents(folders[i]), old[i]) << i << ": " << notes_;
}

// Without its lead a folder keeps the record that shows the lead, later, that nothing is left there.
TEST_F(Recovery, AFolderCleanedUpAloneIsNotWaitedFor) {
  const std::vector<fs::path> folders = {root_ / "a", root_ / "b"};
  constexpr OwnKind kPending = OwnKind::pending_record;
  for (const fs::path &folder : folders) fs::create_directory(folder);
  const CommitRecord record = stage(folders, 3, 2, 2, {kPending, kPending});
  for (const std::uint32_t i : {1, 3}) fs::remove(folders[1] / own_name({OwnKind::set_temporary, record.set_id, i}));
  encode_into({folders[1]}, 3, 2, 3, false);
  EXPECT_EQ(recover({folders[1]}).left_count, 0u) << notes_;
  EXPECT_EQ(recover(folders).left_count, 0u) << notes_;
  EXPECT_EQ(entries(folders[0]), 0u) << notes_;
  EXPECT_EQ(entries(folders[1]), 5u) << notes_;
}

// The same where the run that gives it up dies, before its set counts and after.
TEST_F(Recovery, AGivenUpSetGoesWhenTheNewOneCounts) {
  const std::vector<fs::path> folders = {root_ / "a", root_ / "b"};
  // Sets are cleaned up in the order of their ids, which are random: both orders come up.
  for (unsigned i = 0; i < 16; ++i) {
    const OwnKind state = i % 2 == 0 ? OwnKind::pending_record : OwnKind::commit_record;
    for (const fs::path &folder : folders) fs::remove_all(folder);
    encode_into(folders, 5, 4, 1, false);
    stage(folders, 5, 4, 2, {OwnKind::commit_record, OwnKind::pending_record});
    const Contents before = contents(folders[1]);
    CommitRecord older = sample_record();
    for (const auto &[name, bytes] : before)
      if (const auto own = parse_own_name(name)) older.set_id = own->set_id;
    CommitRecord newer = stage({folders[1]}, 3, 2, 3, {});
    newer.given_up = {older.set_id};
    put_record(folders[1], newer, state);
    const bool counts = state == OwnKind::commit_record;
    // The older set's lead is named too, and says that it counts. Readers see what the newer one leaves of it.
    EXPECT_EQ(shards_found(folders, older.set_id), counts ? 5u : 9u);
    recover(folders);
    recover(folders);
    EXPECT_EQ(entries(folders[1]), counts ? 5u : 4u) << notes_;
    EXPECT_EQ(entries(folders[0]), 5u) << notes_;
    shards_ = counts ? folders[1] : root_ / "all";
    if (!counts) {
      fs::remove_all(shards_);
      fs::create_directory(shards_);
      for (const fs::path &folder : folders)
        for (const auto &[name, bytes] : contents(folder)) spill(shards_ / name, bytes);
    }
    expect_content(counts ? 3 : 2);
    EXPECT_EQ(verify().state, TANDEM_FILES_INTACT);
  }
}

// A complete set that could not be finished would have removed an older one: force gives up both.
TEST_F(Recovery, WhatAGivenUpSetGaveUpDoesNotComeBack) {
  const std::vector<fs::path> folders = {root_ / "a", root_ / "b"};
  for (const OwnKind state : {OwnKind::pending_record, OwnKind::commit_record}) {
    for (const fs::path &folder : folders) fs::remove_all(folder);
    encode_into(folders, 3, 2, 1, false);
    const CommitRecord oldest = stage(folders, 3, 2, 2, {OwnKind::commit_record, state});
    fs::rename(folders[0], root_ / "lost");
    fs::create_directory(root_ / "c");
    CommitRecord newer = stage({root_ / "c", folders[1]}, 3, 2, 3, {});
    newer.folder = 1;
    newer.given_up = {oldest.set_id};
    put_record(folders[1], newer, OwnKind::commit_record);
    fs::remove_all(root_ / "c");
    EXPECT_EQ(recover({folders[1]}).finished_set_count, 0u);
    expect_note("2 of its shards are in these folders and 3 are needed");
    EXPECT_TRUE(fs::exists(folders[1] / own_name({state, oldest.set_id})));
    encode_status(TANDEM_OK, folders[1], 4, true, false);
    for (const SetId &id : {oldest.set_id, newer.set_id}) expect_note("the unfinished set " + hexadecimal(id));
    shards_ = folders[1];
    expect_content(4);
    Contents now = contents(folders[1]);
    std::erase_if(now, [](const auto &entry) { return parse_own_name(entry.first).has_value(); });
    EXPECT_EQ(now.size(), 5u);
    fs::rename(root_ / "lost", folders[0]);  // the oldest one's lead, which says that it counts
    recover(folders);
    EXPECT_EQ(contents(folders[1]), now) << notes_;
  }
}

TEST_F(Recovery, ASetThatAppearsWhileAnotherIsWrittenIsNotReplaced) {
  encode_into({shards_}, 3, 2, 1, false);
  tandem_files_encode_options options = encode_options("", 3, 2, 256);
  options.source_path = nullptr;
  options.name = "source";
  options.force = 1;
  tandem_files_writer *writer = nullptr;
  ASSERT_EQ(tandem_files_writer_begin(context_, &options, 0, &writer), TANDEM_OK) << tandem_last_error_message();
  CommitRecord other = stage({shards_}, 3, 2, 2, {});
  other.folder_count = 2;
  other.folder = 1;  // its lead is in a folder that the writer does not see
  other.folder_of.assign(5, 1);
  put_record(shards_, other, OwnKind::pending_record);
  EXPECT_EQ(tandem_files_writer_commit(writer, nullptr), TANDEM_ERROR_IO);
  EXPECT_NE(std::string(tandem_last_error_message()).find("and not finished while this set was written"),
            std::string::npos)
      << tandem_last_error_message();
  tandem_files_writer_destroy(writer);
}

// Else another process takes a writer that lives for dead.
TEST_F(Recovery, ARecordThatIsWrittenAnewStaysLocked) {
  fs::create_directory(root_ / "a");
  FolderRecord member{std::make_shared<Folder>((root_ / "a").string()), stage({root_ / "a"}, 3, 2, 1, {})};
  rewrite_record(member, true);
  const int other = open((root_ / "a" / own_name({OwnKind::pending_record, member.record.set_id})).c_str(), O_RDONLY);
  EXPECT_EQ(flock(other, LOCK_EX | LOCK_NB), -1);
  close(other);
}

// Another process holds files that were given up: the record that says so stays until they can be removed.
TEST_F(Recovery, AGivenUpSetThatIsHeldIsNotForgotten) {
  const std::vector<fs::path> folders = {root_ / "a", root_ / "b"};
  encode_into(folders, 3, 2, 1, false);
  const CommitRecord older = stage(folders, 3, 2, 2, {OwnKind::commit_record, OwnKind::pending_record});
  CommitRecord newer = stage({folders[1]}, 3, 2, 3, {});
  newer.given_up = {older.set_id};
  put_record(folders[1], newer, OwnKind::commit_record);
  const int held = open((folders[1] / own_name({OwnKind::pending_record, older.set_id})).c_str(), O_RDONLY);
  ASSERT_EQ(flock(held, LOCK_EX | LOCK_NB), 0);
  recover({folders[1]});
  expect_note("was given up");
  EXPECT_TRUE(fs::exists(folders[1] / own_name({OwnKind::commit_record, newer.set_id})));
  close(held);
  recover({folders[1]});
  recover(folders);
  EXPECT_EQ(entries(folders[1]), 5u) << notes_;
  shards_ = folders[1];
  expect_content(3);
}

// The first folder is lost. Repair has made one of its files, and the set's name was taken there.
// With k = 3 the set can be decoded only with that file, and replaces older ones then.
TEST_F(Recovery, AFileThatIsNamedByTheIdProvesThatASetCounts) {
  const fs::path a = root_ / "a", b = root_ / "b", c = root_ / "c";
  for (const std::uint32_t k : {2, 3}) {
    for (const fs::path &folder : {a, b, c}) fs::remove_all(folder), fs::create_directory(folder);
    const CommitRecord record = stage({a, b}, k, 2, 2, {OwnKind::commit_record, OwnKind::pending_record}, 1);
    fs::rename(a / shard_file_name("source", 0), c / shard_file_name("moved", 0));
    fs::remove_all(a);
    EXPECT_EQ(recover({b, c}).finished_set_count, 0u) << "a file that no command of Tandem has named";
    fs::rename(c / shard_file_name("moved", 0), c / shard_file_name(hexadecimal(record.set_id), 0));
    EXPECT_EQ(recover({b, c}).finished_set_count, 1u) << notes_;
    EXPECT_EQ(shards_found({b, c}, record.set_id), 3u);
  }
}

// A disk with an unfinished older set stands for a lost one of the newer set. Then the rest of the older set comes
// back.
TEST_F(Recovery, ARepairedFileLiesWhereNoUnfinishedSetWillPutOne) {
  const fs::path a = root_ / "a", b = root_ / "b", c = root_ / "c", d = root_ / "d", lost = root_ / "lost";
  for (const fs::path &folder : {a, b}) fs::create_directory(folder);
  const CommitRecord older = stage({a, b}, 3, 2, 2, {OwnKind::commit_record, OwnKind::pending_record});
  fs::rename(a, lost);
  encode_into({c, d}, 3, 2, 3, false);
  SetId newer;
  std::memcpy(newer.data(), result_.set_id, sizeof result_.set_id);
  fs::remove_all(d);
  const auto options = sized<tandem_files_repair_options>();
  auto result = sized<tandem_files_repair_result>();
  ASSERT_EQ(tandem_files_repair(context_, Search({c, b}), &options, &result), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(shards_found({c, b}, newer), 5u);
  fs::rename(lost, a);
  EXPECT_EQ(recover({a, b}).finished_set_count, 1u) << notes_;
  EXPECT_EQ(shards_found({a, b}, older.set_id), 5u);
  EXPECT_EQ(shards_found({c, b}, newer), 5u);
}

TEST_F(Recovery, ForceGivesUpSixteenSetsAndSaysSo) {
  fs::create_directory(shards_);
  const auto stage_lost = [&] {
    fs::create_directory(root_ / "lost");
    stage({root_ / "lost", shards_}, 1, 1, 2, {OwnKind::commit_record, OwnKind::pending_record});
    fs::remove_all(root_ / "lost");
  };
  for (std::size_t i = 0; i <= kMaxGivenUpCount; ++i) stage_lost();
  const Contents before = contents(shards_);
  const std::string message = encode_status(TANDEM_ERROR_IO, shards_, 3, true, false);
  EXPECT_NE(message.find("more than 16 unfinished sets"), std::string::npos) << message;
  EXPECT_EQ(contents(shards_), before);
  // It says what to remove.
  const auto record = std::find_if(before.begin(), before.end(), [&](const auto &entry) {
    return message.find(shards_.string() + "/" + entry.first) != std::string::npos;
  });
  ASSERT_NE(record, before.end()) << message;
  const SetId id = parse_own_name(record->first)->set_id;
  fs::remove(shards_ / record->first);
  fs::remove(shards_ / own_name({OwnKind::set_temporary, id, 1}));
  encode_status(TANDEM_OK, shards_, 3, true, false);
  expect_content(3);
}

// Files of another version of Tandem are not damaged: that version can finish them, so no message says to remove them.
TEST_F(Recovery, RecordsOfOtherVersions) {
  encode_into({shards_}, 3, 2, 1, false);
  const CommitRecord record = stage({shards_}, 3, 2, 2, {OwnKind::commit_record});
  const auto put_version = [&](OwnKind kind, std::uint32_t version) {
    const RecordBytes bytes = of_version(record, version);
    for (const OwnKind old : {OwnKind::pending_record, OwnKind::commit_record})
      fs::remove(shards_ / own_name({old, record.set_id}));
    const char *const text = reinterpret_cast<const char *>(bytes.data());
    spill(shards_ / own_name({kind, record.set_id}), {text, text + bytes.size()});
  };
  for (const OwnKind kind : {OwnKind::commit_record, OwnKind::pending_record}) {
    const std::uint32_t version = kind == OwnKind::commit_record ? 2 : 7;
    const std::string named = "is of version " + std::to_string(version) + ", made by another Tandem";
    put_version(kind, version);
    if (kind == OwnKind::pending_record)  // what a damaged one would be removed for
      for (std::uint32_t i = 0; i < 5; ++i) fs::remove(shards_ / own_name({OwnKind::set_temporary, record.set_id, i}));
    const Contents before = contents(shards_);
    EXPECT_EQ(recover({shards_}).left_count, 1u);
    expect_note(named);
    expect_content(1);
    for (const bool dry_run : {true, false}) {
      const std::string message = encode_status(TANDEM_ERROR_IO, shards_, 3, true, dry_run);
      EXPECT_NE(message.find(named), std::string::npos) << message;
      EXPECT_EQ(message.find("remove"), std::string::npos) << message;
    }
    EXPECT_EQ(contents(shards_), before);
  }
}

// What the run itself would say of the folders, which it would clean up first.
TEST_F(Recovery, ADryRunAsksAboutUnfinishedSets) {
  const std::vector<fs::path> folders = {root_ / "a", root_ / "b"};
  encode_into(folders, 3, 2, 1, false);
  const CommitRecord record = stage(folders, 3, 2, 2, {OwnKind::commit_record, OwnKind::pending_record});
  const Contents a = contents(folders[0]), b = contents(folders[1]);
  const auto expect_unchanged = [&] {
    EXPECT_EQ(contents(folders[0]), a);
    EXPECT_EQ(contents(folders[1]), b);
  };
  for (const bool dry_run : {true, false}) {
    const std::string message = encode_status(TANDEM_ERROR_IO, folders[1], 3, false, dry_run);
    EXPECT_NE(message.find("not finished in " + folders[1].string()), std::string::npos) << message;
    EXPECT_NE(encode_status(TANDEM_ERROR_IO, folders[0], 3, true, true).find("not finished in"), std::string::npos)
        << "its other folder needs the lead's record";
    expect_unchanged();
  }
  EXPECT_NE(encode_status(TANDEM_OK, folders[1], 3, true, true).find("would give up"), std::string::npos) << notes_;
  expect_unchanged();
  tandem_files_encode_options options = encode_options(root_ / "source", 3, 2, 256);
  options.force = options.dry_run = 1;
  Files::encode_into(folders, options);  // it would be finished first
  expect_unchanged();
  EXPECT_EQ(shards_found(folders, record.set_id), 5u);
}

// What it was is not known; it may be of a set of the same name that is finished later.
TEST_F(Recovery, ADamagedCommitRecordCountsAsUnfinished) {
  encode_into({shards_}, 3, 2, 1, false);
  const CommitRecord record = stage({shards_}, 3, 2, 2, {OwnKind::commit_record});
  const fs::path damaged = shards_ / own_name({OwnKind::commit_record, record.set_id});
  spill(damaged, paint(kCommitRecordBytes));
  const Contents before = contents(shards_);
  EXPECT_EQ(recover({shards_}).left_count, 1u);
  expect_note("is damaged");
  for (const int force : {0, 1}) {
    tandem_files_encode_options options = encode_options(root_ / "source", 3, 2, 256);
    options.name = force != 0 ? "source" : "another";
    options.force = force;
    EXPECT_EQ(tandem_files_encode(context_, &options, nullptr), TANDEM_ERROR_IO);
    const std::string message = tandem_last_error_message();
    EXPECT_NE(message.find(damaged.string() + " is damaged"), std::string::npos) << message;
    EXPECT_NE(message.find("unfinished"), std::string::npos) << message;
    EXPECT_EQ(contents(shards_), before);
  }
}

TEST_F(Recovery, EncodeSaysWhatItCleansUp) {
  encode_into({shards_}, 3, 2, 1, false);
  stage({shards_}, 3, 2, 2, {OwnKind::pending_record});
  encode_status(TANDEM_OK, shards_, 3, true, true);
  expect_note("would remove the remains of the incomplete set");
  encode_status(TANDEM_OK, shards_, 3, true, false);
  expect_note("removed the remains of the incomplete set");
  encode_status(TANDEM_OK, shards_, 3, true, false);
  EXPECT_EQ(notes_, "");
}

// A set that counts, or may, is not finished over a newer one later: that is not made before.
TEST_F(Recovery, NoSetIsMadeBesideAnUnfinishedOneOfItsName) {
  const std::vector<fs::path> folders = {root_ / "a", root_ / "b"};
  for (const OwnKind lead : {OwnKind::commit_record, OwnKind::pending_record}) {
    for (const fs::path &folder : folders) fs::remove_all(folder);
    encode_into(folders, 3, 2, 1, false);
    const CommitRecord record = stage(folders, 3, 2, 2, {lead, OwnKind::pending_record});
    const Contents before = contents(folders[1]);
    spill(root_ / "source", paint(9000, 3));
    encode_status(TANDEM_ERROR_IO, folders[1], 3, false, false);
    expect_message("not finished in " + folders[1].string());
    EXPECT_EQ(contents(folders[1]), before);
    tandem_files_encode_options options = encode_options(root_ / "source", 3, 2, 256);
    options.name = "another";
    Files::encode_into({folders[1]}, options);
    for (std::uint32_t i = 0; i < 5; ++i) fs::remove(folders[1] / shard_file_name("another", i));
    EXPECT_EQ(contents(folders[1]), before);
    encode_into(folders, 3, 2, 3, true);
    EXPECT_EQ(entries(folders[0]), 3u);
    EXPECT_EQ(entries(folders[1]), 2u);
  }
}

TEST_F(Recovery, WhatALiveProcessWritesIsLeftAlone) {
  encode_into({shards_}, 5, 3, 1, false);
  const CommitRecord record = stage({shards_}, 3, 2, 2, {OwnKind::pending_record});
  const fs::path lone = shards_ / ("." + std::string(32, 'b') + ".tandem-tmp");
  spill(lone, paint(100));
  const Contents staged = contents(shards_);
  const int locked[] = {open((shards_ / own_name({OwnKind::pending_record, record.set_id})).c_str(), O_RDWR),
                        open(lone.c_str(), O_RDWR)};
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

TEST_F(Recovery, HostileRecordsReachNothing) {
  encode_into({shards_}, 5, 3, 1, false);
  spill(root_ / "precious", paint(1000));
  const Contents old = contents(shards_);
  CommitRecord record = sample_record();
  record.folder_count = 1;
  record.folder = 0;
  record.folder_of.assign(14, 0);
  record.stale.set();
  // A name that leads elsewhere, a record of another set's name, garbage, and links.
  for (const std::string &name : {std::string("../precious"), std::string("..")}) {
    record.name = name;
    put_record(shards_, record, OwnKind::commit_record);
    recover({shards_});
    EXPECT_TRUE(fs::exists(root_ / "precious"));
    fs::remove(shards_ / own_name({OwnKind::commit_record, record.set_id}));
    ASSERT_EQ(contents(shards_), old);
  }
  // All of this name is "stale", but nothing of it is a shard file.
  record.name = "letter";
  spill(shards_ / "letter.003.tandem", paint(10000));
  put_record(shards_, record, OwnKind::commit_record);
  recover({shards_});
  EXPECT_TRUE(fs::exists(shards_ / "letter.003.tandem"));
  fs::remove(shards_ / "letter.003.tandem");
  fs::remove(shards_ / own_name({OwnKind::commit_record, record.set_id}));
  // Temporaries that are no shards of the set never replace a file.
  record.name = "source";
  record.stale.reset();
  record.shard_count = 1;
  record.folder_of.resize(1);
  put_record(shards_, record, OwnKind::commit_record);
  spill(shards_ / own_name({OwnKind::set_temporary, record.set_id, 0}), paint(10000));
  EXPECT_EQ(recover({shards_}).left_count, 1u);
  EXPECT_EQ(slurp(shard(0)), old.at("source.000.tandem"));
  fs::remove(shards_ / own_name({OwnKind::set_temporary, record.set_id, 0}));
  fs::remove(shards_ / own_name({OwnKind::commit_record, record.set_id}));
  for (const OwnName &name : {OwnName{OwnKind::pending_record, record.set_id},
                              {OwnKind::commit_record, record.set_id},
                              {OwnKind::set_temporary, record.set_id, 1},
                              {OwnKind::lone_temporary, record.set_id}})
    fs::create_symlink("../precious", shards_ / own_name(name));
  recover({shards_});
  EXPECT_EQ(slurp(root_ / "precious"), paint(1000));
  for (const auto &[name, bytes] : old) EXPECT_EQ(slurp(shards_ / name), bytes);
  expect_content(1);
}

TEST_F(Recovery, AFolderThatCannotBeWrittenIsStillRead) {
  encode_into({shards_}, 5, 3, 1, false);
  stage({shards_}, 5, 3, 2, {OwnKind::commit_record}, 3);
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

// Folders without remains are not kept open, and still tell what the others need: the first folder has no record here.
TEST_F(Recovery, MoreFoldersThanAProcessMayOpen) {
  const std::vector<fs::path> folders = {root_ / "a", root_ / "b", root_ / "c"};
  encode_into(folders, 2, 4, 1, false);
  const CommitRecord record =
      stage(folders, 2, 4, 2, {OwnKind::commit_record, OwnKind::commit_record, OwnKind::pending_record});
  fs::remove_all(folders[0]);
  EXPECT_EQ(recover({folders[1]}).finished_set_count, 1u) << notes_;
  std::vector<fs::path> all = {folders[1], folders[2]};
  for (int i = 0; i < 300; ++i) {
    all.push_back(root_ / "others" / std::to_string(i));
    fs::create_directories(all.back());
    spill(all.back() / "file", paint(100, 3));
  }
  const DescriptorLimit few(64);
  EXPECT_EQ(shards_found(all, record.set_id), 4u) << "as a reader sees it";
  const tandem_files_recover_result result = recover(all);
  EXPECT_EQ(result.finished_set_count, 1u) << notes_;
  EXPECT_EQ(result.left_count, 0u) << notes_;
  for (const fs::path &folder : {folders[1], folders[2]}) EXPECT_EQ(entries(folder), 2u);
}

// A run that died while a set of 320 shards took the place of a narrow one, and the other way round.
TEST_F(Recovery, WideSetsAreFinishedAndRemoved) {
  const std::vector<fs::path> folders = {shards_, root_ / "b"};
  struct Code {
    std::uint32_t k, m;
  };
  for (const auto &[old, newer] : {std::pair{Code{3, 2}, Code{300, 20}}, {Code{300, 20}, Code{3, 2}}})
    for (const bool counts : {false, true}) {
      for (const fs::path &folder : folders) fs::remove_all(folder);
      encode_into(folders, old.k, old.m, 1, false);
      const Contents before[] = {contents(folders[0]), contents(folders[1])};
      const OwnKind state = counts ? OwnKind::commit_record : OwnKind::pending_record;
      const std::uint32_t done = counts ? 2 : 0;
      const CommitRecord record = stage(folders, newer.k, newer.m, 2, {state, OwnKind::pending_record}, done);
      EXPECT_EQ(shards_found(folders, record.set_id), counts ? newer.k + newer.m : 0);
      const tandem_files_recover_result result = recover(folders);
      EXPECT_EQ(result.finished_set_count, counts ? 1u : 0u) << notes_;
      EXPECT_EQ(result.removed_set_count, counts ? 0u : 1u) << notes_;
      if (counts) {
        EXPECT_EQ(entries(folders[0]) + entries(folders[1]), newer.k + newer.m);
        EXPECT_EQ(shards_found(folders, record.set_id), newer.k + newer.m);
      } else {
        EXPECT_EQ(contents(folders[0]), before[0]);
        EXPECT_EQ(contents(folders[1]), before[1]);
      }
    }
}

}  // namespace
