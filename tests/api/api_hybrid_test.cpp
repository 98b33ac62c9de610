// SPDX-License-Identifier: Apache-2.0
// Hybrids through the C API: learned speeds and bad names. With OpenCL's first device, if there is one; else with the
// CPU alone. Operations: api_operations_test, the timeline: api_timeline_test.
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tandem/tools.h"
#include "tests/support/api.hpp"

namespace tandem::test {
namespace {

constexpr std::size_t kShardBytes = 1'500'003;

// The devices of the hybrid under test.
const std::string &devices() {
  static const std::string names = [] {
    std::vector<tandem_device> list(64);
    size_t count = 0;
    EXPECT_EQ(tandem_devices(list.data(), list.size(), sizeof list[0], &count), TANDEM_OK);
    list.resize(std::min(count, list.size()));
    const bool has_opencl = std::any_of(
        list.begin(), list.end(), [](const tandem_device &each) { return std::string(each.name) == "opencl:0:0"; });
    if (!has_opencl) printf("NOT RUN: a hybrid with an OpenCL device: there is none\n");
    return std::string(has_opencl ? "hybrid:cpu+opencl:0:0" : "hybrid:cpu");
  }();
  return names;
}

class Hybrid : public testing::Test {
 protected:
  Hybrid() {
    char name[] = "/tmp/tandem-api-hybrid-XXXXXX";
    folder_ = mkdtemp(name);
    file_ = folder_ + "/data/tuning.tsv";
    options_.backend = devices().c_str();
  }
  ~Hybrid() override { std::filesystem::remove_all(folder_); }

  static std::string text_of(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static std::vector<tandem_speed> speeds(const std::string &file) {
    size_t count = 0;
    EXPECT_EQ(tandem_speeds(file.c_str(), nullptr, 0, sizeof(tandem_speed), &count), TANDEM_OK)
        << tandem_last_error_message();
    std::vector<tandem_speed> list(count);
    EXPECT_EQ(tandem_speeds(file.c_str(), list.data(), count, sizeof list[0], &count), TANDEM_OK);
    return list;
  }

  static void encode(tandem_context *context, Stripe &stripe) {
    stripe.lose_parity();
    EXPECT_EQ(tandem_encode(context, make_codec(6, 3).get(), stripe.data(), stripe.parity(), stripe.shard_bytes()),
              TANDEM_OK)
        << tandem_last_error_message();
    EXPECT_TRUE(stripe.intact());
  }

  std::string folder_, file_;
  Random random_{6};
  Stripe stripe_{random_, 6, 3, kShardBytes};
  tandem_context_options options_ = context_options("", 2);
};

TEST_F(Hybrid, WhatIsLearnedIsRememberedAndTheRestOfTheFileStays) {
  options_.tuning_file = file_.c_str();
  auto tune = sized<tandem_autotune_options>();
  tune.operations = "encode";
  tune.output = file_.c_str();
  tune.shard_bytes = 70'000;
  tune.repeats = 1;
  const char *const range = "chunk_bytes=65536";
  tune.ranges = &range;
  tune.range_count = 1;
  tune.max_seconds = 0.5;
  ASSERT_EQ(tandem_autotune(nullptr, &tune, nullptr), TANDEM_OK) << tandem_last_error_message();
  EXPECT_TRUE(speeds(file_).empty());
  for (int i = 0; i < 5; ++i) encode(make_context(options_).get(), stripe_);
  const auto list = speeds(file_);
  const auto cpu = std::find_if(list.begin(), list.end(), [](const tandem_speed &each) {
    return std::string(each.worker) == "cpu" && each.operation == TANDEM_OPERATION_ENCODE;
  });
  ASSERT_NE(cpu, list.end());
  EXPECT_EQ(cpu->k, 6u);
  EXPECT_EQ(cpu->m, 3u);
  EXPECT_EQ(cpu->lane_count, 2u);
  EXPECT_GT(cpu->bytes_per_second, 0);
  EXPECT_EQ(cpu->is_this_machine, 1);
  EXPECT_EQ(cpu->pays_from_bytes, 0u);
  EXPECT_EQ(std::string(cpu->date).size(), 20u);
  size_t entries = 0;
  EXPECT_EQ(tandem_tuning_read(file_.c_str(), nullptr, 0, sizeof(tandem_tuning_entry), &entries), TANDEM_OK);
  EXPECT_EQ(entries, 1u);
}

TEST_F(Hybrid, AFileThatIsDamagedIsLeftAsItIs) {
  options_.tuning_file = file_.c_str();
  encode(make_context(options_).get(), stripe_);
  const std::string whole = text_of(file_);
  ASSERT_NE(whole.find("\nspeed\t"), std::string::npos);
  std::ofstream(file_) << whole.substr(0, whole.size() / 2);
  encode(make_context(options_).get(), stripe_);
  EXPECT_EQ(text_of(file_).size(), whole.size() / 2);
  std::filesystem::remove(file_);
  options_.policy = "budget";  // which learns nothing
  encode(make_context(options_).get(), stripe_);
  EXPECT_FALSE(std::filesystem::exists(file_));
}

TEST_F(Hybrid, SpeedsOfNoFile) {
  size_t count = 1;
  EXPECT_EQ(tandem_speeds("", nullptr, 0, sizeof(tandem_speed), &count), TANDEM_OK);
  EXPECT_EQ(count, 0u);
  EXPECT_EQ(tandem_speeds(folder_.c_str(), nullptr, 0, sizeof(tandem_speed), &count), TANDEM_ERROR_IO);
  EXPECT_EQ(tandem_speeds("", nullptr, 0, sizeof(tandem_speed), nullptr), TANDEM_ERROR_INVALID_ARGUMENT);
}

TEST_F(Hybrid, BadNamesAreRefused) {
  tandem_context *context = nullptr;
  for (const char *name :
       {"hybrid:", "hybrid:gpu", "hybrid:cpu+", "hybrid:cpu+disk", "hybrid+cpu", "hybrid:opencl:0"}) {
    options_.backend = name;
    EXPECT_EQ(tandem_context_create(&options_, &context), TANDEM_ERROR_UNAVAILABLE) << name;
  }
  options_.backend = "hybrid:cpu+cpu";
  EXPECT_EQ(tandem_context_create(&options_, &context), TANDEM_ERROR_INVALID_ARGUMENT);
  options_.backend = "hybrid:cpu";
  options_.policy = "fair";
  EXPECT_EQ(tandem_context_create(&options_, &context), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(tandem_last_error_message()).find("known are budget, auto"), std::string::npos);
  EXPECT_EQ(context, nullptr);
}

}  // namespace
}  // namespace tandem::test
