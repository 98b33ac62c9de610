// SPDX-License-Identifier: Apache-2.0
// The tuning file: entries that are read back, files that are refused, and which entry answers which question.
#include "tuning/table.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <thread>

#include "base/folder.hpp"
#include "core/backend.hpp"
#include "tests/base/errors.hpp"
#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

using core::Mode;
using core::TunedOperation;
using core::TuningQuery;
using tuning::Entry;
using tuning::Table;

Entry entry(TunedOperation operation, unsigned k, unsigned m, std::uint64_t local_x) {
  Entry made;
  made.key = {{"opencl", "AMD", "gfx90a", "3558.0"}, "0123456789abcdef", operation, k, m};
  made.values = {{"local_x", local_x}, {"local_y", 1}};
  made.bytes_per_second = 2.5e11;
  made.default_bytes_per_second = 2e11;
  made.shard_bytes = 1 << 20;
  made.repeats = 7;
  made.searched = "fedcba9876543210";
  made.date = "2025-11-21T16:55:20Z";
  return made;
}

TuningQuery query(const Entry &like, Mode mode) {
  return {like.key.identity, like.key.kernel_hash, mode, like.key.k, like.key.m};
}

std::uint64_t local_x(const Table &table, const TuningQuery &asked) {
  const core::TuningChoice choice = table.find(asked);
  const auto found = choice.values.find("local_x");
  EXPECT_EQ(found == choice.values.end(), choice.reason.empty());
  return found != choice.values.end() ? found->second : 0;
}

tandem_status status_of(const std::string &text) {
  return test::status_of([&] { Table::parse(text); }).first;
}

Table table_of(const std::vector<Entry> &entries) {
  Table table;
  for (const Entry &each : entries) table.put(each);
  return table;
}

// The message of a file that is refused as damaged; "" if it is read.
std::string damage_of(const std::string &text) {
  const auto [status, message] = test::status_of([&] { Table::parse(text); });
  EXPECT_TRUE(status == TANDEM_OK || status == TANDEM_ERROR_DAMAGED) << message;
  return message;
}

std::vector<std::string> split(const std::string &text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// The header and one row, with other fields.
struct OneRow {
  explicit OneRow(const Table &table) {
    const std::vector<std::string> lines = split(table.to_text(), '\n');
    names = split(lines.at(0), '\t');
    fields = split(lines.at(1), '\t');
  }
  std::string with(const std::string &name, const std::string &field) const {
    const auto place = std::find(names.begin(), names.end(), name);
    EXPECT_NE(place, names.end()) << name;
    std::string text;
    for (std::size_t i = 0; i < names.size(); ++i) text += (i != 0 ? "\t" : "") + names[i];
    for (std::size_t i = 0; i < fields.size(); ++i)
      text += (i != 0 ? "\t" : "\n") + (names.begin() + static_cast<std::ptrdiff_t>(i) == place ? field : fields[i]);
    return text + "\n";
  }
  std::vector<std::string> names, fields;
};

TEST(Table, ReadsBackWhatItWrote) {
  const Table table = table_of({entry(TunedOperation::encode, 10, 4, 64), entry(TunedOperation::update, 1, 4, 32)});
  const Table again = Table::parse(table.to_text());
  EXPECT_EQ(again.to_text(), table.to_text());
  ASSERT_EQ(again.entries().size(), 2u);
  const Entry &first = again.entries()[0];
  EXPECT_TRUE(first.key == table.entries()[0].key);
  EXPECT_EQ(first.values, (core::TuningValues{{"local_x", 64}, {"local_y", 1}}));
  EXPECT_EQ(first.bytes_per_second, 2.5e11);
  EXPECT_EQ(first.default_bytes_per_second, 2e11);
  EXPECT_EQ(first.shard_bytes, 1u << 20);
  EXPECT_EQ(first.repeats, 7u);
  EXPECT_EQ(first.date, "2025-11-21T16:55:20Z");
  EXPECT_EQ(first.searched, "fedcba9876543210");
}

// Earlier builds stored what a hybrid had learned.
TEST(Table, RowsOfSpeedsAreLeftOut) {
  const std::string text = table_of({entry(TunedOperation::encode, 10, 4, 64)}).to_text();
  const std::string row =
      "speed\tcuda:0\t\tAMD EPYC 9R14\t\t\t\tencode\t10\t4\t2\t\t3e+10\t\t0.25\t\t\t\t2025-11-21T16:55:20Z\n";
  EXPECT_EQ(Table::parse(text + row).to_text(), text);
  EXPECT_TRUE(Table::parse(table_of({}).to_text() + row).empty());
}

// Only at the end of a row a cut does not show. A file is replaced by a rename, so that none is cut there.
TEST(Table, EveryOtherTruncationIsRefused) {
  const std::string text =
      table_of({entry(TunedOperation::encode, 10, 4, 64), entry(TunedOperation::verify, 10, 4, 64)}).to_text();
  ASSERT_EQ(status_of(text), TANDEM_OK);
  for (std::size_t length = 0; length < text.size(); ++length) {
    const bool is_whole_row = length != 0 && (text[length] == '\n' || text[length - 1] == '\n');
    EXPECT_EQ(status_of(text.substr(0, length)), is_whole_row ? TANDEM_OK : TANDEM_ERROR_DAMAGED) << length;
  }
}

TEST(Table, AFieldThatMakesNoSenseIsToldWithItsLine) {
  const OneRow tuned(table_of({entry(TunedOperation::encode, 10, 4, 64)}));
  ASSERT_EQ(damage_of(tuned.with("k", "12")), "");
  std::string many = "a0=1";
  for (unsigned i = 1; i < 65; ++i) many += ", a" + std::to_string(i) + "=1";
  struct {
    const char *name;
    std::vector<std::string> fields;
    const char *says;
  } const bad[] = {
      {"tandem_tuning_2", {"", "Tuned", "sample", "tuned "}, "the first field is not tuned"},
      {"k", {"", "0", "257", "-1", "10.5", "0x10", " 10", "10 ", "ten"}, "k is no number from 1 to 256"},
      {"m", {"0", "18446744073709551615", "18446744073709551616"}, "m is no number from 1 to 256"},
      {"operation", {"", "explode", "Encode"}, "operation is none of encode, decode, verify, update"},
      {"memory", {"", "moon"}, "memory is neither host nor device"},
      {"vendor", {std::string(257, 'x')}, "vendor has more than 256 bytes, or characters that cannot be shown"},
      {"device", {"a\x1b[31m", "\x7f", "\xff", "\xc0\x80"}, "device has more than 256 bytes, or"},
      {"searched", {"\r"}, "searched has more than 256 bytes, or"},
      {"date", {"", "yesterday", "2025-11-21T16:55:2xZ"}, "date is not such as 2025-11-21T16:55:20Z"},
      {"shard_bytes", {"0", ""}, "shard_bytes is no number from 1 to 18446744073709551615"},
      {"repeats", {"0", "4294967296", "1e3"}, "repeats is no number from 1 to 4294967295"},
      {"bytes_per_second", {"-1", "fast", "nan", "inf", "1e999", ""}, "bytes_per_second is no number from 0 on"},
      {"default_bytes_per_second", {"", "+1"}, "default_bytes_per_second is no number from 0 on"},
      {"values",
       {"a", "a=", "=1", "Local X=1", "a=-1", "a=1.5", "a=1,b=2", "a=1, ", "a=1, a=2", "a=2199023255552",
        std::string(65, 'a') + "=1", many},
       "values are not such as \"local_x=64, local_y=1\""},
      {"backend", {"a\vb"}, "backend has more than 256 bytes, or"},
  };
  for (const auto &each : bad) {
    for (const std::string &field : each.fields) {
      const std::string told = damage_of(tuned.with(each.name, field));
      EXPECT_EQ(told.find("line 2: " + std::string(each.says)), 0u) << each.name << " = " << field << ": " << told;
    }
  }
  EXPECT_EQ(damage_of(tuned.with("k", "10\t4")), "line 2: 20 fields, not 19");
  EXPECT_EQ(damage_of(tuned.with("k", "10") + "tuned\tcpu\n"), "line 3: 2 fields, not 19");
  EXPECT_EQ(damage_of(tuned.with("k", "10") + "\n"), "line 3: 1 fields, not 19");
}

// Names come from drivers. Rates come from clocks.
TEST(Table, WhatItWritesCanBeRead) {
  Entry odd = entry(TunedOperation::encode, 10, 4, 64);
  odd.key.identity.device = "two\tfields\nand \x1b[31m\xff\x7f \xc3\xa9";
  odd.key.identity.driver = std::string(255, 'x') + "\xc3\xa9";
  Table table = table_of({odd});
  for (const double wrong : {std::numeric_limits<double>::infinity(), std::nan(""), -1.0, -0.0}) {
    Entry measured = entry(TunedOperation::verify, 10, 4, 64), compared = entry(TunedOperation::update, 10, 4, 64);
    measured.bytes_per_second = compared.default_bytes_per_second = wrong;
    table.replace(measured);
    table.replace(compared);
    EXPECT_EQ(Table::parse(table.to_text()).entries().size(), 1u) << wrong;
  }
  const Table again = Table::parse(table.to_text());
  ASSERT_EQ(again.entries().size(), 1u);
  EXPECT_EQ(again.entries()[0].key.identity.device, "two?fields?and ?[31m?? \xc3\xa9");
  EXPECT_EQ(again.entries()[0].key.identity.driver, std::string(255, 'x'));
}

TEST(Table, OtherVersionsAndForeignFiles) {
  const std::string text = table_of({}).to_text(), rest = text.substr(text.find('\t'));
  EXPECT_EQ(status_of(text), TANDEM_OK);
  EXPECT_EQ(status_of("tandem_tuning_3" + rest), TANDEM_ERROR_UNSUPPORTED);
  EXPECT_EQ(status_of("tandem_tuning_18446744073709551615\n"), TANDEM_ERROR_UNSUPPORTED);
  for (const std::string &foreign :
       {std::string(), std::string("\n"), std::string("\n") + text, std::string("{\"tandem_tuning\": 1}"), "x" + text,
        "tandem_tuning_x" + rest, "tandem_tuning_" + rest, std::string("tandem_tuning_2\n"), " " + text,
        "\xEF\xBB\xBF" + text, text.substr(0, text.size() - 1) + "\r\n", text.substr(0, text.size() - 1) + "\tmore\n",
        std::string("\x7f"
                    "ELF\0\0\0",
                    7),
        text + std::string("\0", 1)})
    EXPECT_NE(damage_of(foreign), "") << foreign;
  EXPECT_EQ(damage_of("a letter to my mother\n"), "line 1: it is not the header of a tuning file");
}

// As large as a file may be: read or refused in seconds, or the alarm ends the test.
TEST(Table, LargeFiles) {
  alarm(120);
  EXPECT_EQ(status_of(std::string(Table::kMostFileBytes + 1, '\t')), TANDEM_ERROR_DAMAGED);
  EXPECT_EQ(status_of(std::string(Table::kMostFileBytes, '\t')), TANDEM_ERROR_DAMAGED);
  Table table;
  table.put(entry(TunedOperation::encode, 10, 4, 1));
  const std::string one = table.to_text(), header = one.substr(0, one.find('\n') + 1), row = one.substr(header.size());
  EXPECT_EQ(status_of(header + std::string(Table::kMostFileBytes - header.size(), '\t')), TANDEM_ERROR_DAMAGED);
  std::string same = header, others = header;
  while (same.size() + row.size() <= Table::kMostFileBytes) same += row;
  EXPECT_EQ(Table::parse(same).entries().size(), 1u);
  for (std::size_t i = 0; i <= Table::kMostEntries; ++i) {
    if (i == Table::kMostEntries) {
      EXPECT_EQ(Table::parse(others).entries().size(), i);
    }
    others += "tuned\t" + std::to_string(i) + row.substr(row.find('\t', 6));
  }
  EXPECT_EQ(damage_of(others), "line 10002: more than 10000 rows");
  alarm(0);
}

// Bytes changed at random: read, or refused with one of two statuses.
TEST(Table, DamagedFiles) {
  const std::string whole =
      table_of({entry(TunedOperation::encode, 10, 4, 64), entry(TunedOperation::verify, 4, 2, 8)}).to_text();
  Random random(5);
  for (unsigned i = 0; i < 20'000; ++i) {
    std::string text = whole;
    for (unsigned n = 1 + random.below(4); n != 0; --n)
      text[random.below(static_cast<unsigned>(text.size()))] = static_cast<char>(random.below(256));
    const tandem_status status = status_of(text);
    ASSERT_TRUE(status == TANDEM_OK || status == TANDEM_ERROR_DAMAGED || status == TANDEM_ERROR_UNSUPPORTED) << text;
  }
}

// Whether a table has one row of a key, the fresh one, and the others.
void expect_rows(const Table &table, const Entry &fresh, std::size_t count) {
  ASSERT_EQ(table.entries().size(), count);
  EXPECT_EQ(table.entries()[0].bytes_per_second, fresh.bytes_per_second);
}

// Of one key the newer row stays, when it is put, merged or read. A replacement stays, also with an older date.
TEST(Table, OfTheSameKeyTheNewerStays) {
  const Entry fresh = entry(TunedOperation::encode, 10, 4, 16);
  Entry other = fresh, old = fresh;
  other.key.identity.driver = "3559.0";
  old.date = "2024-01-01T00:00:00Z";
  old.bytes_per_second = fresh.bytes_per_second / 2;
  std::string text[2];
  for (const bool old_first : {true, false}) {
    Table a, b;
    a.put(old_first ? old : fresh);
    b.put(old_first ? fresh : old);
    b.put(other);
    text[old_first] = a.to_text();
    a.merge(b);
    expect_rows(a, fresh, 2);
  }
  const std::size_t row = text[0].find('\n') + 1;
  expect_rows(Table::parse(text[1] + text[0].substr(row) + text[1].substr(row)), fresh, 1);
  Table table;
  table.put(fresh);
  table.put(old);
  expect_rows(table, fresh, 1);
  table.replace(old);  // a result of our own: the clock may have been wrong
  expect_rows(table, old, 1);
}

TEST(Table, SaysWhoseMachineItWas) {
  const Entry one = entry(TunedOperation::encode, 10, 4, 1);
  TuningQuery asked = query(one, Mode::assign);
  asked.kernel_hash = "other";
  EXPECT_TRUE(table_of({one}).find(asked).same_machine);
  asked.identity.driver = "1.0";
  EXPECT_FALSE(table_of({one}).find(asked).same_machine);
  asked = query(one, Mode::assign);
  asked.identity.device = "gfx1030";
  EXPECT_FALSE(table_of({one}).find(asked).same_machine);
}

TEST(Table, LookUpOrder) {
  const Entry exact = entry(TunedOperation::encode, 10, 4, 1);
  Entry near = entry(TunedOperation::encode, 12, 4, 2), far = entry(TunedOperation::encode, 100, 4, 3);
  Entry driver = entry(TunedOperation::encode, 10, 4, 4), hash = entry(TunedOperation::encode, 10, 4, 5);
  Entry vendor = entry(TunedOperation::encode, 10, 4, 6), foreign = entry(TunedOperation::encode, 10, 4, 7);
  Entry other_backend = entry(TunedOperation::encode, 10, 4, 8);
  driver.key.identity.driver = "1.0";
  driver.key.kernel_hash = "other";
  hash.key.kernel_hash = "other";
  vendor.key.identity.device = "gfx1030";
  foreign.key.identity.vendor = "NVIDIA";
  other_backend.key.identity.backend = "cuda";
  const TuningQuery asked = query(exact, Mode::assign);
  std::vector<Entry> all = {other_backend, foreign, vendor, driver, hash, far, near, exact};
  for (const std::uint64_t want : {1, 2, 3, 5, 4, 6, 0, 0}) {
    EXPECT_EQ(local_x(table_of(all), asked), want);
    all.pop_back();
  }
  EXPECT_EQ(Table().find(asked).reason, "");

  const auto reason = [&](const Entry &only) { return table_of({only}).find(asked).reason; };
  EXPECT_EQ(reason(exact), "measured for encode (10, 4) on this device, 2025-11-21T16:55:20Z");
  EXPECT_EQ(reason(near),
            "measured for encode (12, 4), the nearest that was tuned, on this device, 2025-11-21T16:55:20Z");
  EXPECT_EQ(reason(hash),
            "measured for encode (10, 4) on this device with another driver or other kernels, 2025-11-21T16:55:20Z");
  EXPECT_EQ(reason(vendor), "measured for encode (10, 4) on another device of AMD: gfx1030, 2025-11-21T16:55:20Z");
}

// An entry of shards on the device answers questions of such shards alone, and is another one than that of the host.
TEST(Table, MemoryOfTheDeviceIsApart) {
  Table table;
  Entry host = entry(TunedOperation::encode, 10, 4, 16), device = entry(TunedOperation::encode, 10, 4, 32);
  device.key.on_device = true;
  table.put(host);
  TuningQuery asked = query(host, Mode::assign);
  asked.on_device = true;
  EXPECT_EQ(local_x(table, asked), 0u);
  table.put(device);
  ASSERT_EQ(table.entries().size(), 2u);
  const Table again = Table::parse(table.to_text());
  ASSERT_EQ(again.entries().size(), 2u);
  EXPECT_EQ(local_x(again, asked), 32u);
  asked.on_device = false;
  EXPECT_EQ(local_x(again, asked), 16u);
}

TEST(Table, OperationsAndModes) {
  const Entry encode = entry(TunedOperation::encode, 10, 4, 1), decode = entry(TunedOperation::decode, 10, 2, 2),
              verify = entry(TunedOperation::verify, 10, 4, 3), update = entry(TunedOperation::update, 1, 4, 4);
  const Table table = table_of({encode, decode, verify, update});
  TuningQuery asked = query(encode, Mode::assign);
  EXPECT_EQ(local_x(table, asked), 1u);
  asked.rows = 2;
  EXPECT_EQ(local_x(table, asked), 2u);  // a decode of two lost shards
  Entry as_near = entry(TunedOperation::decode, 10, 4, 9);
  as_near.date = "2026-01-01T00:00:00Z";
  EXPECT_EQ(local_x(table_of({as_near, encode}), query(encode, Mode::assign)), 1u);
  asked.mode = Mode::compare;
  EXPECT_EQ(local_x(table, asked), 3u);
  asked.mode = Mode::accumulate;
  asked.rows = 4;
  for (const unsigned columns : {1u, 2u, 200u}) {  // k says nothing about an update
    asked.columns = columns;
    EXPECT_EQ(table.find(asked).reason, "measured for update of 4 parity shards on this device, 2025-11-21T16:55:20Z");
  }
  EXPECT_EQ(local_x(table_of({verify}), query(encode, Mode::assign)), 0u);
  EXPECT_TRUE(table.knows(encode.key.identity));
  EXPECT_FALSE(table.knows({"cpu", "AMD", "gfx90a", "3558.0"}));
}

class TuningFile : public testing::Test {
 protected:
  TuningFile() {
    char name[] = "/tmp/tandem-tuning-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~TuningFile() override { std::filesystem::remove_all(folder_); }
  std::string path(const char *name) const { return folder_ + "/" + name; }
  void put(const std::string &path, const std::string &text) const { std::ofstream(path, std::ios::binary) << text; }

  static void write_file(const std::string &path, const std::vector<Entry> &entries) {
    tuning::update_file(path, [&](Table &table) { table = table_of(entries); });
  }

  // Warnings of loading a file for coding.
  std::string warnings(const std::string &path, bool named) {
    std::string heard;
    const base::Log log(
        [](void *user, std::int32_t, const char *message) { *static_cast<std::string *>(user) += message; }, &heard,
        TANDEM_LOG_WARNING);
    loaded_ = tuning::load_file(path, named, log);
    return heard;
  }

  std::string folder_;
  std::unique_ptr<const Table> loaded_;
};

TEST_F(TuningFile, IsWrittenWholeWithItsFolders) {
  const std::string file = path("a/b/tuning.tsv");
  write_file(file, {entry(TunedOperation::encode, 10, 4, 64)});
  EXPECT_EQ(tuning::read_file(file).entries().size(), 1u);
  write_file(file, {});
  EXPECT_TRUE(tuning::read_file(file).empty());
  unsigned count = 0;
  for ([[maybe_unused]] const auto &each : std::filesystem::directory_iterator(path("a/b"))) ++count;
  EXPECT_EQ(count, 1u) << "something was left beside it";
  struct stat status = {};
  ASSERT_EQ(stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0133, 0u);
  std::filesystem::create_symlink("a/b/tuning.tsv", path("link"));
  write_file(path("link"), {entry(TunedOperation::encode, 10, 4, 64)});
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_EQ(tuning::read_file(file).entries().size(), 1u);
  EXPECT_TRUE(tuning::read_file(path("none")).empty());
  put(path("plain"), "x");
  EXPECT_THROW(write_file(path("plain/tuning.tsv"), {}), base::Error);
}

TEST_F(TuningFile, NobodyOverwritesWhatAnotherAdds) {
  constexpr unsigned kThreads = 3, kEach = 5;
  const std::string file = path("t.tsv");
  write_file(file, {});
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned i = 0; i < kEach; ++i) {
        tuning::update_file(
            file, [&](Table &table) { table.replace(entry(TunedOperation::encode, 1 + t * kEach + i, 4, 1)); });
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(tuning::read_file(file).entries().size(), kThreads * kEach);
}

// A process that was forked meanwhile does not hold the lock; and where there is no folder, no thread waits.
TEST_F(TuningFile, AnUpdateEnds) {
  const std::string file = path("t.tsv");
  write_file(file, {});
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  pid_t child = 0;
  tuning::update_file(file, [&](Table &) {
    child = fork();
    if (child == 0) {
      char byte = 0;
      _exit(read(ends[0], &byte, 1) == 1 ? 0 : 1);
    }
  });
  const auto began = std::chrono::steady_clock::now();
  tuning::update_file(file, [](Table &) {});
  EXPECT_THROW(tuning::update_file(file + "/no/such/folder.tsv", [](Table &) {}), base::Error);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(1900));
  EXPECT_EQ(write(ends[1], "x", 1), 1);
  int status = 1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(TuningFile, AnUpdateDoesWithoutALockThatAnotherKeeps) {
  const base::FoldersLock another({std::make_shared<base::Folder>(folder_)}, {.seconds = 0});
  const auto began = std::chrono::steady_clock::now();
  write_file(path("t.tsv"), {entry(TunedOperation::encode, 10, 4, 64)});
  const auto took = std::chrono::steady_clock::now() - began;
  EXPECT_GE(took, std::chrono::seconds(2));
  EXPECT_LT(took, std::chrono::seconds(5));
  EXPECT_EQ(tuning::read_file(path("t.tsv")).entries().size(), 1u);
}

TEST_F(TuningFile, WhatIsWrongIsAWarning) {
  EXPECT_EQ(warnings("", true), "");
  EXPECT_EQ(warnings(path("none"), false), "");
  EXPECT_NE(warnings(path("none"), true).find("does not exist"), std::string::npos);
  EXPECT_NE(warnings(folder_, false).find("is no regular file: ignored"), std::string::npos);
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_NE(warnings(path("pipe"), true).find("is no regular file: ignored"), std::string::npos);
  const std::string text = table_of({entry(TunedOperation::encode, 10, 4, 64)}).to_text();
  put(path("cut"), text.substr(0, text.size() - 40));
  EXPECT_EQ(warnings(path("cut"), false).find("tuning file " + path("cut") + ": line 2: "), 0u);
  put(path("new"), "tandem_tuning_7\tx\n");
  EXPECT_EQ(warnings(path("new"), false),
            "tuning file " + path("new") + ": line 1: it is of another version than tandem_tuning_2: ignored");
  EXPECT_EQ(loaded_, nullptr);
  for (const char *bad : {"cut", "new"}) {
    const auto size = std::filesystem::file_size(path(bad));
    EXPECT_THROW(tuning::update_file(path(bad), [](Table &) {}), base::Error) << "it would be overwritten";
    EXPECT_EQ(std::filesystem::file_size(path(bad)), size);
  }
  put(path("good"), text);
  EXPECT_EQ(warnings(path("good"), true), "");
  ASSERT_NE(loaded_, nullptr);
  EXPECT_EQ(loaded_->entries().size(), 1u);
}

TEST_F(TuningFile, WhereItIs) {
  bool named = false;
  setenv("TANDEM_TUNING", "/from/variable", 1);
  EXPECT_EQ(tuning::file_path("/given", &named), "/given");
  EXPECT_TRUE(named);
  EXPECT_EQ(tuning::file_path(nullptr, &named), "/from/variable");
  EXPECT_TRUE(named);
  setenv("TANDEM_TUNING", "", 1);
  EXPECT_EQ(tuning::file_path(nullptr), "");
  unsetenv("TANDEM_TUNING");
  setenv("XDG_DATA_HOME", "/data", 1);
  EXPECT_EQ(tuning::file_path(nullptr, &named), "/data/tandem/tuning.tsv");
  EXPECT_FALSE(named);
  setenv("XDG_DATA_HOME", "relative", 1);
  setenv("HOME", "/home/me", 1);
  EXPECT_EQ(tuning::file_path(nullptr), "/home/me/.local/share/tandem/tuning.tsv");
  setenv("HOME", "", 1);
  EXPECT_EQ(tuning::file_path(nullptr), "");
  EXPECT_EQ(tuning::file_path(""), "");
}

}  // namespace
}  // namespace tandem::test
