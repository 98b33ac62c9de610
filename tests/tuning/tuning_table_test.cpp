// SPDX-License-Identifier: Apache-2.0
// The tuning file: entries that are read back, files that are refused, and which entry answers which question.
#include "tuning/table.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.hpp"
#include "core/backend.hpp"
#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

using core::Mode;
using core::TunedOperation;
using core::TuningQuery;
using nlohmann::json;
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

core::SpeedEntry speed(const std::string &worker, unsigned k, double bytes_per_second) {
  core::SpeedEntry made;
  made.machine = "AMD EPYC 9R14";
  made.worker = worker;
  made.k = k;
  made.m = 4;
  made.lanes = 2;
  made.bytes_per_second = bytes_per_second;
  made.alone_bytes_per_second = worker == "cpu" ? 2 * bytes_per_second : 0;
  made.latency_seconds = worker == "cpu" ? 0 : 0.25;
  made.date = "2025-11-21T16:55:20Z";
  return made;
}

tandem_status status_of(const std::string &text) {
  try {
    Table::parse(text);
    return TANDEM_OK;
  } catch (const base::Error &error) {
    EXPECT_STRNE(error.what(), "");
    return error.status();
  }
}

Table table_of(const std::vector<Entry> &entries) {
  Table table;
  for (const Entry &each : entries) table.put(each);
  return table;
}

// Forms of a good entry that make no sense: some of its members are wrong.
struct BadForms {
  explicit BadForms(json whole) : good(std::move(whole)) {}

  void with(const char *name, json value) {
    json changed = good;
    changed[name] = std::move(value);
    list.push_back(changed);
  }
  // Each member in turn missing, and of each of these values.
  void each_member(const std::vector<json> &values) {
    for (const auto &[name, value] : good.items()) {
      json without = good;
      without.erase(name);
      list.push_back(without);
      for (const json &each : values) with(name.c_str(), each);
    }
  }

  json good;
  std::vector<json> list;
};

TEST(Table, ReadsBackWhatItWrote) {
  const Table table = table_of({entry(TunedOperation::encode, 10, 4, 64), entry(TunedOperation::update, 1, 4, 32)});
  const Table again = Table::parse(table.to_json());
  ASSERT_EQ(again.entries().size(), 2u);
  const Entry &first = again.entries()[0];
  EXPECT_TRUE(first.key == table.entries()[0].key);
  EXPECT_EQ(first.values, table.entries()[0].values);
  EXPECT_EQ(first.bytes_per_second, 2.5e11);
  EXPECT_EQ(first.default_bytes_per_second, 2e11);
  EXPECT_EQ(first.shard_bytes, 1u << 20);
  EXPECT_EQ(first.repeats, 7u);
  EXPECT_EQ(first.date, "2025-11-21T16:55:20Z");
  EXPECT_EQ(again.to_json(), table.to_json());
  EXPECT_EQ(tuning::parse_entry(tuning::entry_line(first))->values, first.values);
}

TEST(Table, SizesOnXAndYDoNotCollide) {
  Entry wide = entry(TunedOperation::encode, 10, 4, 32), tall = wide;
  wide.values = {{"local_x", 32}, {"local_y", 1}};
  tall.values = {{"local_x", 1}, {"local_y", 32}};
  EXPECT_NE(core::tuning_values_text(wide.values), core::tuning_values_text(tall.values));
  EXPECT_NE(tuning::entry_line(wide), tuning::entry_line(tall));
}

TEST(Table, EveryTruncationIsRefused) {
  std::string text = table_of({entry(TunedOperation::encode, 10, 4, 64)}).to_json();
  while (text.back() == '\n') text.pop_back();
  ASSERT_EQ(status_of(text), TANDEM_OK);
  for (std::size_t length = 0; length < text.size(); ++length)
    EXPECT_EQ(status_of(text.substr(0, length)), TANDEM_ERROR_DAMAGED) << length;
}

TEST(Table, SpeedsAreReadBackToo) {
  Table table = table_of({entry(TunedOperation::encode, 10, 4, 64)});
  table.put(speed("cpu", 10, 5e9));
  table.put(speed("cuda:0", 10, 3e10));
  const Table again = Table::parse(table.to_json());
  EXPECT_EQ(again.entries().size(), 1u);
  ASSERT_EQ(again.speeds().size(), 2u);
  const core::SpeedEntry &gpu = again.speeds()[1];
  EXPECT_TRUE(core::same_key(gpu, table.speeds()[1]));
  EXPECT_EQ(gpu.bytes_per_second, 3e10);
  EXPECT_EQ(gpu.latency_seconds, 0.25);
  EXPECT_EQ(again.speeds()[0].alone_bytes_per_second, 1e10);
  EXPECT_EQ(gpu.lanes, 2u);
  EXPECT_EQ(again.to_json(), table.to_json());
  Table of_speeds;
  of_speeds.put(speed("cpu", 10, 5e9));
  EXPECT_FALSE(of_speeds.empty());
  EXPECT_EQ(Table::parse(of_speeds.to_json()).speeds().size(), 1u);
}

TEST(Table, OfTheSameSpeedTheNewerStays) {
  core::SpeedEntry old = speed("cpu", 10, 1e9), fresh = speed("cpu", 10, 2e9);
  old.date = "2024-01-01T00:00:00Z";
  for (const bool old_first : {true, false}) {
    Table a, b;
    a.put(old_first ? old : fresh);
    b.put(old_first ? fresh : old);
    b.put(speed("cpu", 11, 1));
    b.put(speed("cuda:0", 10, 1));
    a.merge(b);
    ASSERT_EQ(a.speeds().size(), 3u);
    EXPECT_EQ(a.speeds()[0].bytes_per_second, 2e9);
  }
  Table table;
  table.put(fresh);
  table.replace(old);
  ASSERT_EQ(table.speeds().size(), 1u);
  EXPECT_EQ(table.speeds()[0].bytes_per_second, 1e9);
}

TEST(Table, SpeedsThatMakeNoSenseAreLeftOut) {
  Table one;
  one.put(speed("cpu", 10, 5e9));
  const json file = json::parse(one.to_json());
  const json good = file["speeds"][0];
  BadForms forms(good);
  std::vector<json> &bad = forms.list;
  bad = {json(1), json::object(), json(nullptr)};
  forms.each_member({nullptr, -1});
  // No speed at all. One of the two, or a latency, may be 0: it is not known.
  json without = good;
  without["bytes_per_second"] = without["alone_bytes_per_second"] = 0;
  bad.push_back(std::move(without));
  const auto with = [&](const char *name, json value) { forms.with(name, std::move(value)); };
  with("k", 0), with("m", 257), with("lanes", 0), with("lanes", 65'537), with("operation", "explode");
  with("bytes_per_second", 0.5), with("bytes_per_second", 1e16), with("alone_bytes_per_second", 1e16);
  with("latency_seconds", 1e5), with("worker", "a\nb"), with("machine", std::string(300, 'x')), with("date", "now");
  json all = file;
  all["speeds"] = bad;
  all["speeds"].push_back(good);
  std::size_t refused = 0;
  const Table table = Table::parse(all.dump(), &refused);
  EXPECT_EQ(refused, bad.size());
  EXPECT_EQ(table.speeds().size(), 1u);
  all["speeds"] = 7;
  EXPECT_EQ(status_of(all.dump()), TANDEM_ERROR_DAMAGED);
  all["speeds"] = std::vector<int>(Table::kMostEntries + 1, 0);
  EXPECT_EQ(status_of(all.dump()), TANDEM_ERROR_DAMAGED);
}

TEST(Table, NewerVersionAndOtherForms) {
  json file = json::parse(table_of({entry(TunedOperation::encode, 10, 4, 64)}).to_json());
  file["tandem_tuning"] = 2;
  EXPECT_EQ(status_of(file.dump()), TANDEM_ERROR_UNSUPPORTED);
  file["tandem_tuning"] = UINT64_MAX;
  EXPECT_EQ(status_of(file.dump()), TANDEM_ERROR_UNSUPPORTED);
  for (const json &version : {json(0), json(-1), json(1.5), json("1"), json(nullptr), json::array()}) {
    file["tandem_tuning"] = version;
    EXPECT_EQ(status_of(file.dump()), TANDEM_ERROR_DAMAGED) << version;
  }
  for (const char *text :
       {"", "{}", "[]", "null", "1", "\"x\"", "{\"tandem_tuning\":1}", "{\"tandem_tuning\":1,\"entries\":{}}",
        "{\"tandem_tuning\":1,\"entries\":[]}x", "\xff\xfe", "{\"tandem_tuning\":1e999,\"entries\":[]}"})
    EXPECT_EQ(status_of(text), TANDEM_ERROR_DAMAGED) << text;
  EXPECT_EQ(status_of(std::string("{\"tandem_tuning\":1,\"entries\":[]}\0", 33)), TANDEM_ERROR_DAMAGED);
  EXPECT_EQ(status_of("{\"tandem_tuning\":1,\"entries\":[],\"later\":{\"a\":[1]}}"), TANDEM_OK);
}

TEST(Table, DeepAndLargeFilesAreRefused) {
  EXPECT_EQ(status_of("{\"tandem_tuning\":1,\"entries\":" + std::string(1'000'000, '[')), TANDEM_ERROR_DAMAGED);
  const std::string nested = std::string(200'000, '[') + std::string(200'000, ']');
  EXPECT_EQ(status_of("{\"tandem_tuning\":1,\"entries\":[],\"x\":" + nested + "}"), TANDEM_ERROR_DAMAGED);
  EXPECT_EQ(status_of(std::string(Table::kMostFileBytes + 1, ' ')), TANDEM_ERROR_DAMAGED);
  std::string many = "{\"tandem_tuning\":1,\"entries\":[0";
  for (std::size_t i = 0; i < Table::kMostEntries; ++i) many += ",0";
  EXPECT_EQ(status_of(many + "]}"), TANDEM_ERROR_DAMAGED);
  EXPECT_EQ(status_of("{\"tandem_tuning\":1,\"entries\":[],\"x\":\"[[[[[[[[[[[[[[[[\\\"[[[[[[\"}"), TANDEM_OK);
}

// As large as a file may be, and one object's members alone: done in seconds, or the alarm ends the test.
TEST(Table, ManyMembersAreReadInTime) {
  std::string text = "{\"tandem_tuning\":1,\"entries\":[]";
  for (unsigned i = 0; text.size() < Table::kMostFileBytes - 20; ++i) text += ",\"" + std::to_string(i) + "\":0";
  alarm(120);
  EXPECT_EQ(status_of(text + "}"), TANDEM_OK);
  text.replace(0, 1, "{\"kind\":\"sample\",");
  EXPECT_FALSE(tuning::parse_entry(text + "}").has_value());
  alarm(0);
}

TEST(Table, EntriesThatMakeNoSenseAreLeftOut) {
  const json good = json::parse(tuning::entry_line(entry(TunedOperation::encode, 10, 4, 64)));
  BadForms forms(good);
  std::vector<json> &bad = forms.list;
  bad = {json(1), json::object(), json::array(), json(nullptr)};
  forms.each_member({nullptr, json::array({1}), -1});
  const auto with = [&](const char *name, json value) { forms.with(name, std::move(value)); };
  with("k", 0), with("k", 257), with("m", 0), with("m", UINT64_MAX), with("k", 10.5);
  with("operation", "explode"), with("operation", "");
  with("vendor", std::string(1000, 'x')), with("device", "a\x1b[31m"), with("driver", "a\nb");
  with("date", "yesterday"), with("date", "2025-11-21T16:55:2xZ");
  with("shard_bytes", 0), with("repeats", 0), with("repeats", 1e12);
  with("bytes_per_second", -1), with("bytes_per_second", "fast");
  with("values", json{{"Local X", 1}}), with("values", json{{"", 1}}), with("values", json{{"a", -1}});
  with("values", json{{"a", 1.5}}), with("values", json{{"a", std::uint64_t{1} << 41}}),
      with("values", json{{"a", "1"}});
  with("values", json{{std::string(65, 'a'), 1}});
  json many = json::object();
  for (unsigned i = 0; i < 65; ++i) many["a" + std::to_string(i)] = i;
  with("values", many);
  json file = {{"tandem_tuning", 1}, {"entries", bad}};
  json more = good;
  more["unknown"] = {{"later", 1}};
  file["entries"].push_back(more);
  std::size_t refused = 0;
  const Table table = Table::parse(file.dump(), &refused);
  EXPECT_EQ(refused, bad.size());
  ASSERT_EQ(table.entries().size(), 1u);
  EXPECT_EQ(table.entries()[0].values.at("local_x"), 64u);
}

// Bytes changed at random: read, or refused with one of two statuses.
TEST(Table, DamagedFiles) {
  const std::string whole =
      table_of({entry(TunedOperation::encode, 10, 4, 64), entry(TunedOperation::verify, 4, 2, 8)}).to_json();
  Random random(5);
  for (unsigned i = 0; i < 20'000; ++i) {
    std::string text = whole;
    for (unsigned n = 1 + random.below(4); n != 0; --n)
      text[random.below(static_cast<unsigned>(text.size()))] = static_cast<char>(random.below(256));
    const tandem_status status = status_of(text);
    ASSERT_TRUE(status == TANDEM_OK || status == TANDEM_ERROR_DAMAGED || status == TANDEM_ERROR_UNSUPPORTED) << text;
  }
}

TEST(Table, OfTheSameKeyTheNewerStays) {
  Entry old = entry(TunedOperation::encode, 10, 4, 8), fresh = entry(TunedOperation::encode, 10, 4, 16);
  old.date = "2024-01-01T00:00:00Z";
  Entry other = fresh;
  other.key.identity.driver = "3559.0";
  for (const bool old_first : {true, false}) {
    Table a = table_of({old_first ? old : fresh}), b = table_of({old_first ? fresh : old, other});
    a.merge(b);
    ASSERT_EQ(a.entries().size(), 2u);
    EXPECT_EQ(a.entries()[0].values.at("local_x"), 16u);
  }
}

TEST(Table, OwnResultsReplaceWhateverTheDate) {
  Entry old = entry(TunedOperation::encode, 10, 4, 8), fresh = entry(TunedOperation::encode, 10, 4, 16);
  old.date = "2099-01-01T00:00:00Z";  // of a day when the clock was wrong
  Table table = table_of({old});
  table.put(fresh);
  EXPECT_EQ(table.entries()[0].values.at("local_x"), 8u);
  table.replace(fresh);
  ASSERT_EQ(table.entries().size(), 1u);
  EXPECT_EQ(table.entries()[0].values.at("local_x"), 16u);
}

TEST(Table, AKeyIsReadOnce) {
  Entry old = entry(TunedOperation::encode, 10, 4, 8), fresh = entry(TunedOperation::encode, 10, 4, 16);
  old.date = "2024-01-01T00:00:00Z";
  const auto line = [](const Entry &each) { return tuning::entry_line(each); };
  const Table table =
      Table::parse("{\"tandem_tuning\":1,\"entries\":[" + line(old) + "," + line(fresh) + "," + line(old) + "]}");
  ASSERT_EQ(table.entries().size(), 1u);
  EXPECT_EQ(table.entries()[0].values.at("local_x"), 16u);
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
  const Table again = Table::parse(table.to_json());
  ASSERT_EQ(again.entries().size(), 2u);
  EXPECT_EQ(local_x(again, asked), 32u);
  asked.on_device = false;
  EXPECT_EQ(local_x(again, asked), 16u);
  json text = json::parse(table.to_json());
  EXPECT_FALSE(text["entries"][0].contains("memory")) << "as files of older versions have it";
  EXPECT_EQ(text["entries"][1]["memory"], "device");
  for (const json &bad : {json("moon"), json(1), json(nullptr)}) {
    text["entries"][1]["memory"] = bad;
    std::size_t refused = 0;
    EXPECT_EQ(Table::parse(text.dump(), &refused).entries().size(), 1u) << bad;
    EXPECT_EQ(refused, 1u);
  }
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
  const std::string file = path("a/b/tuning.json");
  tuning::write_file(file, table_of({entry(TunedOperation::encode, 10, 4, 64)}));
  EXPECT_EQ(tuning::read_file(file).entries().size(), 1u);
  tuning::write_file(file, table_of({}));
  EXPECT_TRUE(tuning::read_file(file).empty());
  unsigned count = 0;
  for ([[maybe_unused]] const auto &each : std::filesystem::directory_iterator(path("a/b"))) ++count;
  EXPECT_EQ(count, 1u) << "something was left beside it";
  struct stat status = {};
  ASSERT_EQ(stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0133, 0u);
  std::filesystem::create_symlink("a/b/tuning.json", path("link"));
  tuning::write_file(path("link"), table_of({entry(TunedOperation::encode, 10, 4, 64)}));
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_EQ(tuning::read_file(file).entries().size(), 1u);
  EXPECT_TRUE(tuning::read_file(path("none")).empty());
  put(path("plain"), "x");
  EXPECT_THROW(tuning::write_file(path("plain/tuning.json"), {}), base::Error);
}

TEST_F(TuningFile, NobodyOverwritesWhatAnotherAdds) {
  constexpr unsigned kThreads = 3, kEach = 5;
  const std::string file = path("t.json");
  tuning::write_file(file, {});
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned i = 0; i < kEach; ++i) {
        tuning::update_file(file, [&](Table &table) { table.replace(speed("cpu", 1 + t * kEach + i, 1e9)); });
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(tuning::read_file(file).speeds().size(), kThreads * kEach);
}

// A process that was forked meanwhile does not hold the lock; and where there is no folder, no thread waits.
TEST_F(TuningFile, AnUpdateEnds) {
  const std::string file = path("t.json");
  tuning::write_file(file, {});
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
  EXPECT_THROW(tuning::update_file(file + "/no/such/folder.json", [](Table &) {}), base::Error);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(1900));
  EXPECT_EQ(write(ends[1], "x", 1), 1);
  int status = 1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(TuningFile, WhatIsWrongIsAWarning) {
  EXPECT_EQ(warnings("", true), "");
  EXPECT_EQ(warnings(path("none"), false), "");
  EXPECT_NE(warnings(path("none"), true).find("does not exist"), std::string::npos);
  EXPECT_NE(warnings(folder_, false).find("is no regular file: ignored"), std::string::npos);
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_NE(warnings(path("pipe"), true).find("is no regular file: ignored"), std::string::npos);
  put(path("cut"), "{\"tandem_tuning\":1,\"ent");
  EXPECT_EQ(warnings(path("cut"), false), "tuning file " + path("cut") + ": it is no whole JSON text: ignored");
  put(path("new"), "{\"tandem_tuning\":7,\"entries\":[]}");
  EXPECT_NE(warnings(path("new"), false).find("of version 7; this Tandem knows versions up to 1"), std::string::npos);
  EXPECT_EQ(loaded_, nullptr);
  put(path("half"),
      "{\"tandem_tuning\":1,\"entries\":[0," + tuning::entry_line(entry(TunedOperation::encode, 10, 4, 64)) + "]}");
  EXPECT_NE(warnings(path("half"), false).find("1 of 2 entries make no sense and are ignored"), std::string::npos);
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
  EXPECT_EQ(tuning::file_path(nullptr, &named), "/data/tandem/tuning.json");
  EXPECT_FALSE(named);
  setenv("XDG_DATA_HOME", "relative", 1);
  setenv("HOME", "/home/me", 1);
  EXPECT_EQ(tuning::file_path(nullptr), "/home/me/.local/share/tandem/tuning.json");
  setenv("HOME", "", 1);
  EXPECT_EQ(tuning::file_path(nullptr), "");
  EXPECT_EQ(tuning::file_path(""), "");
}

}  // namespace
}  // namespace tandem::test
