// OpenCL backends on the drivers of this machine: both techniques, each with staged and with shared memory. Where there
// is no device that is printed as NOT RUN, unless TANDEM_TEST_REQUIRE_OPENCL is set: then it fails.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/log.hpp"
#include "opencl/factory.hpp"
#include "tests/conformance/suite.hpp"
#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

using opencl::Transfer;

std::unique_ptr<core::Backend> make(const char *technique, Transfer transfer, std::uint64_t memory_budget_bytes = 0) {
  opencl::Options options;
  options.technique = technique;
  options.transfer = transfer;
  options.memory_budget_bytes = memory_budget_bytes;
  return opencl::make_backend(options, core::Log());
}

// Why there is nothing to run on, or "".
const std::string &missing() {
  static const std::string reason = [] {
    try {
      make("", Transfer::automatic)->prepare(core::Matrix(1, 1));
      return std::string();
    } catch (const core::Error &error) {
      return std::string(error.what());
    }
  }();
  return reason;
}

std::vector<BackendMaker> makers() {
  std::vector<BackendMaker> list;
  for (const char *technique : {"tables", "compiled"}) {
    list.push_back({std::string("staged_") + technique, [=] { return make(technique, Transfer::staged); }, missing()});
    list.push_back(
        {std::string("zero_copy_") + technique, [=] { return make(technique, Transfer::zero_copy); }, missing()});
  }
  return list;
}

INSTANTIATE_TEST_SUITE_P(Opencl, BackendConformance, testing::ValuesIn(makers()), maker_name);

TEST(OpenclDevice, IsThereWhereItIsRequired) {
  if (std::getenv("TANDEM_TEST_REQUIRE_OPENCL") == nullptr && !missing().empty())
    GTEST_SKIP() << "NOT RUN: " << missing();
  EXPECT_EQ(missing(), "");
  for (const opencl::DeviceDescription &device : opencl::describe_devices(std::chrono::seconds(60)))
    std::printf("%s: %s, %s\n", device.name.c_str(), device.kind.c_str(), device.description.c_str());
}

}  // namespace
}  // namespace tandem::test
