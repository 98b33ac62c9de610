// SPDX-License-Identifier: Apache-2.0
#include "base/timeline.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "base/error.hpp"

namespace tandem::test {
namespace {

using base::Timeline;
using nlohmann::json;

struct Heard {
  std::mutex mutex;
  std::vector<std::string> lines;

  base::Log log() {
    return base::Log(
        [](void *user, std::int32_t, const char *text) {
          auto &heard = *static_cast<Heard *>(user);
          const std::lock_guard lock(heard.mutex);
          heard.lines.emplace_back(text);
        },
        this, TANDEM_LOG_DEBUG);
  }
};

class TimelineTest : public testing::Test {
 protected:
  TimelineTest() { std::filesystem::remove(path_); }
  ~TimelineTest() override { std::filesystem::remove(path_); }

  json trace() const {
    std::ifstream file(path_);
    return json::parse(file);
  }
  static std::vector<json> boxes(const json &trace) {
    std::vector<json> found;
    for (const json &event : trace["traceEvents"])
      if (event["ph"] == "X") found.push_back(event);
    return found;
  }
  static json of_kind(const json &trace, const std::string &kind) {
    for (const json &each : trace["otherData"]["kinds"])
      if (each["kind"] == kind) return each;
    return {};
  }

  const std::string path_ = testing::TempDir() + "/tandem_timeline_test_" + std::to_string(getpid()) + ".json";
  Heard heard_;
};

TEST_F(TimelineTest, TheTraceHasRowsBoxesAndSums) {
  Timeline timeline(path_, heard_.log());
  const unsigned cpu = timeline.row("cpu 0", "cpu"), device = timeline.row("opencl:0:0/0", "opencl");
  EXPECT_EQ(timeline.row("cpu 0", "other"), cpu);
  EXPECT_NE(cpu, device);
  timeline.add({cpu, "assign 4x10", 0, 100, 300, 1000.5, 1002.5});
  timeline.add({device, "assign 4x10", 100, 200, 100, 1001.0, 1004.5});
  timeline.add({device, "assign 4x10", 0, 100, 300, 1004.5, 1005.5, false});
  timeline.add({cpu, "read", 0, 400, 400, 1000.0, 1000.5, true, false});
  timeline.write();
  EXPECT_TRUE(heard_.lines.empty());

  const json whole = trace(), other = whole["otherData"];
  const std::vector<json> all = boxes(whole);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0]["name"], "assign 4x10");
  EXPECT_EQ(all[0]["cat"], "cpu");
  EXPECT_EQ(all[1]["cat"], "opencl");
  EXPECT_EQ(all[3]["cat"], "read");
  // The axis begins with the span that was first, not with the one that was told first.
  EXPECT_NEAR(all[0]["ts"].get<double>(), 0.5e6, 1);
  EXPECT_NEAR(all[0]["dur"].get<double>(), 2e6, 1);
  EXPECT_NEAR(all[3]["ts"].get<double>(), 0, 1);
  EXPECT_EQ(all[1]["args"], (json{{"begin", 100}, {"end", 200}, {"bytes", 100}, {"committed", true}}));
  EXPECT_EQ(all[2]["args"]["committed"], false);

  EXPECT_NEAR(other["makespan_seconds"].get<double>(), 5.5, 1e-6);
  EXPECT_FALSE(other.contains("efficiency"));
  EXPECT_EQ(other["bytes"], 400);  // neither what was lost nor what was read
  const json first = other["workers"][cpu], second = other["workers"][device];
  EXPECT_EQ(first["name"], "cpu 0");
  EXPECT_EQ(first["kind"], "cpu");
  EXPECT_EQ(first["bytes"], 300);
  EXPECT_EQ(first["share"], 0.75);
  EXPECT_EQ(first["tasks"], 2);
  EXPECT_NEAR(first["busy_seconds"].get<double>(), 2.5, 1e-6);
  EXPECT_NEAR(first["idle_seconds"].get<double>(), 3, 1e-6);
  EXPECT_NEAR(first["idle_tail_seconds"].get<double>(), 3, 1e-6);
  EXPECT_EQ(second["bytes"], 100);
  EXPECT_EQ(of_kind(whole, "read")["bytes"], 400);
  EXPECT_EQ(of_kind(whole, "opencl")["bytes"], 100);
  EXPECT_EQ(of_kind(whole, "opencl")["tasks"], 2);
}

TEST_F(TimelineTest, WithoutASpanThereIsATrace) {
  Timeline(path_, heard_.log()).write();
  const json whole = trace();
  EXPECT_TRUE(boxes(whole).empty());
  EXPECT_EQ(whole["otherData"]["makespan_seconds"], 0);
}

TEST_F(TimelineTest, NamesMayBeAnything) {
  Timeline timeline(path_, heard_.log());
  timeline.add({timeline.row("a \"device\"\n\xff", "k\\"), "w\"", 0, 1, 1, 0, 1});
  timeline.write();
  EXPECT_EQ(trace()["otherData"]["workers"][0]["name"], "a \"device\"\n\xef\xbf\xbd");
}

TEST_F(TimelineTest, EachThreadHasARowOfItsOwn) {
  constexpr unsigned kThreads = 8, kSpans = 500;
  Timeline timeline(path_, heard_.log());
  std::atomic<unsigned> arrived{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      const unsigned row = timeline.row_of_this_thread("cpu");
      ++arrived;  // none ends before all are there: another thread could get its id
      while (arrived.load() < kThreads) std::this_thread::yield();
      for (unsigned n = 0; n < kSpans; ++n) {
        EXPECT_EQ(timeline.row_of_this_thread("cpu", "worker"), row);
        timeline.add({row, "assign 1x2", n, n + 1, 1, 1.0 * n, 1.0 * n + 1});
      }
    });
  }
  for (std::thread &each : threads) each.join();
  timeline.write();
  const json whole = trace();
  ASSERT_EQ(whole["otherData"]["workers"].size(), kThreads);
  std::vector<std::string> names, expected;
  for (unsigned i = 0; i < kThreads; ++i) {
    const json worker = whole["otherData"]["workers"][i];
    EXPECT_EQ(worker["tasks"], kSpans);
    EXPECT_EQ(worker["bytes"], kSpans);
    names.push_back(worker["name"]);
    expected.push_back("cpu, caller " + std::to_string(i));
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, expected);
}

TEST_F(TimelineTest, AThreadHasOneNumberInAllItsRows) {
  Timeline timeline(path_, heard_.log());
  std::thread([&] { timeline.row_of_this_thread("cpu", "worker"); }).join();
  const unsigned cpu = timeline.row_of_this_thread("cpu"), device = timeline.row_of_this_thread("opencl");
  EXPECT_NE(cpu, device);
  std::thread([&] { EXPECT_NE(timeline.row_of_this_thread("opencl"), device); }).join();
  timeline.write();
  std::vector<std::string> names;
  const json whole = trace();
  for (const json &worker : whole["otherData"]["workers"]) names.push_back(worker["name"]);
  // The last thread may have the id of the first, and is then taken for it.
  names.resize(3);
  EXPECT_EQ(names, (std::vector<std::string>{"cpu, worker 0", "cpu, caller 0", "opencl, caller 0"}));
}

TEST_F(TimelineTest, AFullOneSaysSoOnce) {
  Timeline timeline(path_, heard_.log(), 3);
  const unsigned row = timeline.row("cpu", "cpu");
  for (unsigned i = 0; i < 10; ++i) timeline.add({row, "assign 1x2", 0, 1, 1, 0, 1});
  ASSERT_EQ(heard_.lines.size(), 1u);
  EXPECT_NE(heard_.lines[0].find("full at 3 spans"), std::string::npos) << heard_.lines[0];
  timeline.write();
  EXPECT_EQ(boxes(trace()).size(), 3u);
}

TEST_F(TimelineTest, ABadPathGoesToTheLog) {
  Timeline timeline(path_ + "/no/such/folder.json", heard_.log());
  timeline.add({timeline.row("cpu", "cpu"), "assign 1x2", 0, 1, 1, 0, 1});
  timeline.write();
  ASSERT_EQ(heard_.lines.size(), 1u);
  EXPECT_NE(heard_.lines[0].find("no/such/folder.json: No such file"), std::string::npos) << heard_.lines[0];
  EXPECT_THROW(timeline.check_file(), base::Error);
  Timeline(path_, heard_.log()).check_file();
  EXPECT_THROW(base::write_timeline(path_ + "/no", {}, {}, 0, {}), base::Error);
}

TEST_F(TimelineTest, AChildRecordsAndWritesNothing) {
  Timeline timeline(path_, heard_.log());
  timeline.add({timeline.row("cpu", "cpu"), "assign 1x2", 0, 1, 1, 0, 1});
  const pid_t child = fork();
  if (child == 0) {
    timeline.add({0, "assign 1x2", 0, 1, 1, 0, 1});
    const bool has_row = timeline.row_of_this_thread("cpu") != Timeline::kNoRow;
    timeline.write();
    _exit(has_row || std::filesystem::exists(path_) ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  timeline.write();
  EXPECT_EQ(boxes(trace()).size(), 1u);
}

}  // namespace
}  // namespace tandem::test
