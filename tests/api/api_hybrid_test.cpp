// SPDX-License-Identifier: Apache-2.0
// Hybrids through the C API: all operations under each policy, learned speeds, the timeline, bad names. With OpenCL's
// first device, if there is one; else with the CPU alone.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tandem/tools.h"
#include "tests/support/api.hpp"
#include "tests/support/tuning_text.hpp"

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

TEST_F(Hybrid, EveryOperationUnderEveryPolicy) {
  const Codec codec = make_codec(6, 3);
  for (const char *policy : {"auto", "budget"}) {
    for (const char *resources : {"", "cpu=1", "cpu=1,gpu=1,pinned_mib=32"}) {
      options_.policy = policy;
      options_.resources = resources;
      const Context context = make_context(options_);
      encode(context.get(), stripe_);

      stripe_.restore();
      stripe_.lose_all(std::vector<unsigned>{0, 4, 7});
      ASSERT_EQ(tandem_decode(context.get(), codec.get(), stripe_.all(), stripe_.present.data(), kShardBytes),
                TANDEM_OK);
      EXPECT_TRUE(stripe_.intact());
      stripe_.restore();

      auto found = sized<tandem_verify_result>();
      stripe_.shards[8][1'000'000] ^= 1;
      ASSERT_EQ(tandem_verify(context.get(), codec.get(), stripe_.all(), kShardBytes, &found), TANDEM_OK);
      EXPECT_EQ(found.mismatch_byte_count, 1u);
      EXPECT_EQ(found.first_mismatch_bytes, 1'000'000u);
      EXPECT_EQ(found.suspect_shard, 8u);
      stripe_.shards[8][1'000'000] ^= 1;

      // There and back.
      const Bytes other = random_.bytes(kShardBytes), old = stripe_.shards[2];
      for (const auto &[from, to] : {std::pair(&old, &other), std::pair(&other, &old)}) {
        ASSERT_EQ(tandem_update(context.get(), codec.get(), 2, from->data(), to->data(), stripe_.parity(), kShardBytes),
                  TANDEM_OK);
      }
      EXPECT_TRUE(stripe_.intact());

      const Plan plan = make_plan(context.get(), codec.get(), TANDEM_OPERATION_ENCODE);
      stripe_.lose_parity();
      const Job job = submit(plan, stripe_.arguments());
      EXPECT_EQ(tandem_context_set_resource(context.get(), "cpu", 2), TANDEM_OK);  // while it runs
      EXPECT_EQ(tandem_job_wait(job.get()), TANDEM_OK);
      EXPECT_TRUE(stripe_.intact());
    }
  }
}

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

// By what was remembered of machines that need not be there.
TEST_F(Hybrid, TellsFromWhichSizeOnADevicePays) {
  options_.tuning_file = file_.c_str();
  options_.backend = "hybrid:cpu";
  encode(make_context(options_).get(), stripe_);
  const std::string machine = speeds(file_).at(0).machine;
  const std::string device = speed_row("cuda:0", machine, 10e9, 100e-6);
  std::ofstream(file_) << kTuningHeader << speed_row("cpu", machine, 4e9, 0) << device
                       << speed_row("opencl:0:0", machine, 0.1e9, 100e-6);
  const auto list = speeds(file_);
  ASSERT_EQ(list.size(), 3u);
  EXPECT_DOUBLE_EQ(list[0].bytes_per_second, 8e9);
  EXPECT_DOUBLE_EQ(list[1].gain, 3.5);
  // Some 100 microseconds of the CPU's 8 GB/s.
  EXPECT_GT(list[1].pays_from_bytes, 800'000u);
  EXPECT_LT(list[1].pays_from_bytes, 10'000'000u);
  EXPECT_DOUBLE_EQ(list[2].gain, 1.025);
  EXPECT_EQ(list[2].pays_from_bytes, UINT64_MAX);
  std::ofstream(file_) << kTuningHeader << device;
  EXPECT_EQ(speeds(file_).at(0).gain, 0) << "of the CPU nothing is known";
  EXPECT_EQ(speeds(file_).at(0).pays_from_bytes, UINT64_MAX);
}

TEST_F(Hybrid, SpeedsOfNoFile) {
  size_t count = 1;
  EXPECT_EQ(tandem_speeds("", nullptr, 0, sizeof(tandem_speed), &count), TANDEM_OK);
  EXPECT_EQ(count, 0u);
  EXPECT_EQ(tandem_speeds(folder_.c_str(), nullptr, 0, sizeof(tandem_speed), &count), TANDEM_ERROR_IO);
  EXPECT_EQ(tandem_speeds("", nullptr, 0, sizeof(tandem_speed), nullptr), TANDEM_ERROR_INVALID_ARGUMENT);
}

TEST_F(Hybrid, ATimelineIsWrittenForEveryKindOfRun) {
  const std::string timeline = folder_ + "/timeline.json";
  options_.timeline_file = timeline.c_str();
  for (const char *policy : {"auto", "budget"}) {
    options_.policy = policy;
    make_context(options_);
    EXPECT_NE(text_of(timeline).find("traceEvents"), std::string::npos) << "nothing was run";
    {
      const Context context = make_context(options_);
      encode(context.get(), stripe_);
      Stripe small(random_, 6, 3, 1000);
      encode(context.get(), small);
    }
    const std::string text = text_of(timeline);
    EXPECT_NE(text.find("assign 3x6"), std::string::npos) << text;
    EXPECT_NE(text.find("cpu, caller 0"), std::string::npos) << text;
  }
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
