// SPDX-License-Identifier: Apache-2.0
// Whether a machine may have a GPU, by the files in its /dev and /sys. The test makes machines from empty files.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gpu/factory.hpp"
#include "opencl/factory.hpp"

namespace tandem::test {
namespace {

class DeviceNodes : public testing::Test {
 protected:
  DeviceNodes() {
    char name[] = "/tmp/tandem-device-nodes-XXXXXX";
    root_ = mkdtemp(name);
  }
  ~DeviceNodes() override { std::filesystem::remove_all(root_); }

  void put(const std::string &path, const std::string &text = "") {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void put_card(unsigned minor, const std::string &vendor) {
    const std::string node = "renderD" + std::to_string(minor);
    put("/dev/dri/" + node);
    if (!vendor.empty()) put("/sys/class/drm/" + node + "/device/vendor", vendor + "\n");
  }
  bool has_cuda() const { return gpu::may_have_devices(root_); }
  bool has_other() const { return opencl::may_have_gpus(root_); }

  std::string root_;
};

TEST_F(DeviceNodes, NoneAtAll) {
  EXPECT_FALSE(has_cuda());
  EXPECT_FALSE(has_other());
}

TEST_F(DeviceNodes, Nvidia) {
  put("/dev/nvidiactl");
  put_card(128, "0x10de");
  EXPECT_TRUE(has_cuda());
  EXPECT_FALSE(has_other());
}

TEST_F(DeviceNodes, ScreensAreNoGpus) {
  put_card(128, "0x1af4");
  put_card(129, "0x1a03");
  EXPECT_FALSE(has_other());
  put_card(200, "0x8086");
  EXPECT_TRUE(has_other());
  EXPECT_FALSE(has_cuda());
}

TEST_F(DeviceNodes, ACardOnNoPciBus) {
  put_card(128, "");
  EXPECT_TRUE(has_other());
}

TEST_F(DeviceNodes, OfDriversOfTheirOwn) {
  put("/dev/kfd");
  EXPECT_TRUE(has_other());
  EXPECT_FALSE(has_cuda());
}

}  // namespace
}  // namespace tandem::test
