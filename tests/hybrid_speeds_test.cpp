// What a hybrid learns from one run to the next: whether devices that share the CPUs' cores bring more than they take.
#include "hybrid/speeds.hpp"

#include <gtest/gtest.h>

namespace tandem::test {
namespace {

using core::Mode;
using hybrid::Speeds;
using hybrid::WorkKind;

constexpr WorkKind kKind{Mode::assign, 10, 4};
constexpr WorkKind kOther{Mode::compare, 10, 4};
constexpr unsigned kLanes = 2;
constexpr std::size_t kDevice = 1;

// One run, in which each lane of the CPU does so many bytes a second with and without the device beside it.
void run(Speeds &speeds, double alone, double beside, double device) {
  for (int i = 0; i < 8; ++i) {
    speeds.cpu_chunk(kKind, alone, 1, false);
    speeds.cpu_chunk(kKind, beside, 1, true);
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
  EXPECT_TRUE(same_cores.admits_devices(kKind, 0)) << "no lane of the CPU is there to lose anything";
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
