// What a hybrid learns from one run to the next: whether devices that share the CPUs' cores bring more than they take.
#include "hybrid/policy/speeds.hpp"

#include <gtest/gtest.h>

namespace tandem::test {
namespace {

using core::Mode;
using hybrid::Speeds;
using hybrid::WorkKind;

constexpr WorkKind kKind{Mode::assign, 10, 4};
constexpr WorkKind kOther{Mode::compare, 10, 4};
constexpr hybrid::CpuLanes kLanes{2, 2};
constexpr std::size_t kDevice = 1;

// One run, in which each lane of the CPU does so many bytes a second with and without the device beside it.
void run(Speeds &speeds, double alone, double beside, double device) {
  for (int i = 0; i < 8; ++i) {
    speeds.cpu_chunk(kKind, alone, 1, 0);
    speeds.cpu_chunk(kKind, beside, 1, 1);
    speeds.device_chunk(kDevice, kKind, device, 1, 1);
  }
}

TEST(HybridSpeeds, ADeviceIsAdmittedUntilMoreIsKnown) {
  Speeds speeds;
  EXPECT_TRUE(speeds.admits_devices(kKind, kLanes));
  EXPECT_EQ(speeds.gain(kKind, kLanes), 0);
  EXPECT_FALSE(speeds.knows_cpu_alone(kKind));
  run(speeds, 5e9, 5e9, 20e9);
  EXPECT_TRUE(speeds.knows_cpu_alone(kKind));
  EXPECT_FALSE(speeds.knows_cpu_alone(kOther));
}

TEST(HybridSpeeds, WhatADeviceTakesFromTheCoresCountsAgainstIt) {
  Speeds own_memory, same_cores;
  run(own_memory, 5e9, 4e9, 10e9);
  EXPECT_DOUBLE_EQ(own_memory.gain(kKind, kLanes), 1.8);
  EXPECT_TRUE(own_memory.admits_devices(kKind, kLanes));
  run(same_cores, 5e9, 1e9, 3e9);
  EXPECT_DOUBLE_EQ(same_cores.gain(kKind, kLanes), 0.5);
  EXPECT_FALSE(same_cores.admits_devices(kKind, kLanes));
  EXPECT_FALSE(same_cores.is_worth_it(kKind, kLanes));
  EXPECT_TRUE(same_cores.admits_devices(kOther, kLanes)) << "of another operation nothing is known";
  EXPECT_TRUE(same_cores.admits_devices(kKind, {0, 0})) << "no lane of the CPU is there to lose anything";
}

TEST(HybridSpeeds, OfAChunkThatWasPartlyBesideADeviceThatPartCounts) {
  Speeds speeds;
  for (int i = 0; i < 8; ++i) {
    speeds.cpu_chunk(kKind, 5e9, 1, 0.01);
    speeds.cpu_chunk(kKind, 0.6 * 5e9 + 0.4 * 1e9, 1, 0.4);
    speeds.cpu_chunk(kKind, 7e9, 1, 0.1);  // says little
    speeds.device_chunk(kDevice, kKind, 3e9, 1, 1);
  }
  EXPECT_NEAR(speeds.cpu_alone(kKind), 5e9, 1);
  EXPECT_NEAR(speeds.cpu_beside(kKind), 1e9, 1e3);
  EXPECT_NEAR(speeds.gain(kKind, kLanes), 0.5, 1e-6);
}

TEST(HybridSpeeds, ALaneOfTheCpuThatFeedsADeviceDoesNothingElse) {
  Speeds speeds;
  run(speeds, 5e9, 5e9, 4e9);
  EXPECT_DOUBLE_EQ(speeds.gain(kKind, {2, 2}), 1.4);
  EXPECT_DOUBLE_EQ(speeds.gain(kKind, {2, 1}), 0.9);
  EXPECT_FALSE(speeds.is_worth_it(kKind, {2, 1}));
}

TEST(HybridSpeeds, RunsOfTheCpuAloneAreLearnedFromToo) {
  Speeds speeds;
  EXPECT_EQ(speeds.cpu_alone(kKind), 0);
  for (int i = 0; i < 4; ++i) speeds.cpu_run(kKind, 20e9, 2, 2);
  EXPECT_DOUBLE_EQ(speeds.cpu_alone(kKind), 5e9);
  EXPECT_TRUE(speeds.knows_cpu_alone(kKind));
  EXPECT_EQ(speeds.cpu_beside(kKind), 0);
}

TEST(HybridSpeeds, WhatWasRememberedCountsUntilMoreIsSeen) {
  Speeds speeds;
  speeds.recall_cpu(0, kKind, 1e9, 5e9);
  EXPECT_TRUE(speeds.admits_devices(kKind, kLanes)) << "of devices nothing was remembered";
  speeds.recall_device(kDevice, kKind, 3e9, 1);
  EXPECT_DOUBLE_EQ(speeds.gain(kKind, kLanes), 0.5);
  EXPECT_FALSE(speeds.admits_devices(kKind, kLanes));
  EXPECT_DOUBLE_EQ(speeds.of(kDevice, kKind, 1e-4).bytes_per_second(), 3e9);
  run(speeds, 5e9, 5e9, 10e9);
  EXPECT_TRUE(speeds.admits_devices(kKind, kLanes));
}

TEST(HybridSpeeds, ShortChunksWeighLittle) {
  Speeds speeds;
  for (int i = 0; i < 10; ++i) speeds.cpu_chunk(kKind, 5e8, 0.1, 0);
  for (int i = 0; i < 30; ++i) speeds.cpu_chunk(kKind, 1000, 1e-4, 0);
  EXPECT_NEAR(speeds.cpu_alone(kKind), 5e9, 0.1e9);
}

TEST(HybridSpeeds, PatienceIsKeptWhileNothingIsKnown) {
  Speeds speeds;
  run(speeds, 5e9, 1e9, 3e9);
  while (!speeds.admits_devices(kKind, kLanes)) {
  }
  EXPECT_TRUE(speeds.admits_devices(kKind, kLanes)) << "it was not measured anew yet";
  run(speeds, 5e9, 1e9, 3e9);
  int left_out = 0;
  while (!speeds.admits_devices(kKind, kLanes)) ++left_out;
  EXPECT_EQ(left_out, 31);
}

TEST(HybridSpeeds, WhatWasLeftOutIsTriedAgainNowAndThenAndEverMoreRarely) {
  Speeds speeds;
  run(speeds, 5e9, 1e9, 3e9);
  int left_out = 0;
  while (!speeds.admits_devices(kKind, kLanes)) ++left_out;
  EXPECT_EQ(left_out, 15);
  run(speeds, 5e9, 1e9, 3e9);
  for (left_out = 0; !speeds.admits_devices(kKind, kLanes);) ++left_out;
  EXPECT_EQ(left_out, 31);
  // The machine has changed meanwhile.
  run(speeds, 5e9, 5e9, 10e9);
  EXPECT_TRUE(speeds.admits_devices(kKind, kLanes));
}

}  // namespace
}  // namespace tandem::test
