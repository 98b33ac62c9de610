// SPDX-License-Identifier: Apache-2.0
// Timelines of each kind of backend through the C API: every byte of data is in one span, on the row of its worker.
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/support/api.hpp"

namespace tandem::test {
namespace {

using nlohmann::json;

constexpr std::size_t kShardBytes = 1'000'003, kSmallBytes = 1000;
constexpr unsigned kData = 6, kParity = 3;

class TimelineOf : public testing::Test {
 protected:
  TimelineOf() {
    char name[] = "/tmp/tandem-api-timeline-XXXXXX";
    folder_ = mkdtemp(name);
    file_ = folder_ + "/timeline.json";
    options_.timeline_file = file_.c_str();
  }
  ~TimelineOf() override { std::filesystem::remove_all(folder_); }

  static void encode(tandem_context *context, Stripe &stripe) {
    stripe.lose_parity();
    EXPECT_EQ(
        tandem_encode(context, make_codec(kData, kParity).get(), stripe.data(), stripe.parity(), stripe.shard_bytes()),
        TANDEM_OK)
        << tandem_last_error_message();
    EXPECT_TRUE(stripe.intact());
  }

  json trace() const {
    std::ifstream file(file_);
    return json::parse(file);
  }

  // The boxes of one kind. Their ranges and bytes must be those of one large and one small encode.
  void expect_both_encodes(const json &trace, const std::string &kind) const {
    std::uint64_t bytes = 0, end_of_large = 0;
    for (const json &event : trace["traceEvents"]) {
      if (event["ph"] != "X") continue;
      EXPECT_EQ(event["cat"], kind);
      EXPECT_EQ(event["name"], "assign 3x6");
      EXPECT_EQ(event["args"]["committed"], true);
      EXPECT_GE(event["dur"], 0);
      bytes += event["args"]["bytes"].get<std::uint64_t>();
      end_of_large = std::max(end_of_large, event["args"]["end"].get<std::uint64_t>());
    }
    EXPECT_EQ(bytes, kData * (kShardBytes + kSmallBytes));
    EXPECT_EQ(end_of_large, kShardBytes);
    EXPECT_EQ(trace["otherData"]["bytes"], bytes);
  }

  std::string folder_, file_;
  Random random_{7};
  Stripe large_{random_, kData, kParity, kShardBytes}, small_{random_, kData, kParity, kSmallBytes};
  tandem_context_options options_ = context_options("", 2);
};

TEST_F(TimelineOf, EachExecutorAndHybrid) {
  std::vector<std::string> all = executors();
  all.insert(all.end(), {"auto", "budget"});  // policies of a hybrid
  for (const std::string &executor : all) {
    SCOPED_TRACE(executor);
    options_.expert = expert_of(executor);
    options_.backend = options_.expert != nullptr ? "cpu" : "hybrid:cpu";
    options_.policy = options_.expert != nullptr ? nullptr : executor.c_str();
    {
      const Context context = make_context(options_);
      encode(context.get(), large_);
      encode(context.get(), small_);
    }
    const json whole = trace();
    expect_both_encodes(whole, "cpu");
    // Small calls are on the row of the thread that called.
    std::set<std::string> names;
    for (const json &worker : whole["otherData"]["workers"]) names.insert(worker["name"]);
    EXPECT_TRUE(names.contains("cpu, caller 0"));
    names.erase("cpu, caller 0");
    names.erase("cpu, worker 0");
    EXPECT_TRUE(names.empty()) << *names.begin();
    EXPECT_TRUE(options_.policy != nullptr || !whole["otherData"].contains("efficiency"));
  }
}

TEST_F(TimelineOf, ADeviceAlone) {
  options_.backend = "opencl:0:0";
  options_.thread_count = 0;
  {
    const Context context = make_context(options_);
    if (tandem_encode(context.get(), make_codec(kData, kParity).get(), small_.data(), small_.parity(), kSmallBytes) ==
        TANDEM_ERROR_UNAVAILABLE)
      GTEST_SKIP() << "NOT RUN: " << tandem_last_error_message();
    encode(context.get(), large_);
  }
  const json whole = trace();
  expect_both_encodes(whole, "opencl");
  ASSERT_EQ(whole["otherData"]["workers"].size(), 1u);
  EXPECT_EQ(whole["otherData"]["workers"][0]["name"], "opencl, caller 0");
}

TEST_F(TimelineOf, AFileThatCannotBeWrittenIsRefusedBeforeTheWork) {
  const std::string bad = folder_ + "/no/such/timeline.json";
  options_.timeline_file = bad.c_str();
  tandem_context *context = nullptr;
  EXPECT_EQ(tandem_context_create(&options_, &context), TANDEM_ERROR_IO);
  EXPECT_NE(std::string(tandem_last_error_message()).find(bad), std::string::npos) << tandem_last_error_message();
  EXPECT_EQ(context, nullptr);
}

TEST_F(TimelineOf, TheEnvironmentIsADefault) {
  options_.timeline_file = nullptr;
  options_.backend = "cpu";
  setenv("TANDEM_TIMELINE", file_.c_str(), 1);
  {
    const Context context = make_context(options_);
    encode(context.get(), large_);
    encode(context.get(), small_);
  }
  expect_both_encodes(trace(), "cpu");
  // Where it cannot be written, calls work all the same.
  setenv("TANDEM_TIMELINE", (folder_ + "/no/such/timeline.json").c_str(), 1);
  encode(make_context(options_).get(), small_);
  unsetenv("TANDEM_TIMELINE");
}

}  // namespace
}  // namespace tandem::test
