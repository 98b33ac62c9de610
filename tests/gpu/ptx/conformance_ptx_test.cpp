// SPDX-License-Identifier: Apache-2.0
// The conformance suites of the CUDA backend, on the fake driver. NVRTC makes PTX of each kernel, and the interpreter
// runs it: what a GPU would run, in the launches that a GPU would get.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/conformance/cuda_shards.hpp"
#include "tests/conformance/suite.hpp"
#include "tests/gpu/cuda_driver.hpp"
#include "tests/gpu/ptx/kernel.hpp"
#include "tests/support/slice.hpp"

namespace tandem::test {
namespace {

std::uint64_t launches = 0;  // that were interpreted

std::string run_ptx(const FakeLaunch &of) {
  static std::map<std::string, ptx::Module> modules;  // the driver runs one kernel at a time
  static std::uint64_t seed = slice_seed();
  try {
    if (modules.size() > 100) modules.clear();
    auto found = modules.find(of.ptx);
    if (found == modules.end()) found = modules.emplace(of.ptx, ptx::Module(of.ptx)).first;
    const ptx::Launch launch = ptx::launch_of(of.spec, of.arguments, of.grid, of.shared_bytes, ++seed);
    for (const ptx::Region &each : launch.memory)
      if (each.bytes != 0 && !of.is_on_device(each.first, each.bytes)) return "memory that is not on the device";
    found->second.run(launch);
    ++launches;
  } catch (const ptx::Error &error) {
    return error.what();
  }
  return "";
}

// A GPU with interpreted kernels.
FakeCudaScript interpreted() {
  FakeCudaScript script;
  script.devices[0].major = 8;
  script.devices[0].minor = 1;  // NVRTC makes PTX for 8.0
  script.has_image = false;
  script.real_nvrtc = true;
  script.run_ptx = run_ptx;
  return script;
}

std::string missing() { return has_real_nvrtc() ? "" : "no NVRTC on this machine"; }

// compiled: each matrix that enough bytes run through, as on a GPU, since the suite has hundreds of matrices.
std::vector<BackendMaker> makers() {
  static const Values compile_soon({{"compile_after_bytes", 200'000}});
  const DriverMaker driver = {"ptx", [](const DriverScript &) { return std::make_unique<CudaDriver>(interpreted()); }};
  return {owned_backend("tables", driver, "tables", 64 << 20, nullptr, missing()),
          owned_backend("compiled", driver, "", 64 << 20, &compile_soon, missing())};
}
INSTANTIATE_TEST_SUITE_P(CudaPtx, BackendConformance, testing::ValuesIn(makers()), maker_name);
INSTANTIATE_TEST_SUITE_P(CudaPtx, FormConformance, testing::ValuesIn(makers()), maker_name);

TEST(CudaPtx, TheKernelsAreInterpreted) {
  if (!missing().empty()) GTEST_SKIP() << "NOT RUN: " << missing();
  for (const BackendMaker &maker : makers()) {
    const auto backend = maker.make();
    Work work(2, 4, 300'000);
    const auto prepared = backend->prepare(work.matrix);
    const std::uint64_t before = launches;
    EXPECT_TRUE(work.runs_right(*backend, *prepared, core::Mode::assign));
    EXPECT_GT(launches, before);
  }
}

std::vector<CudaMaker> cuda_makers() {
  return {{"ptx", [] { return std::make_unique<FakeProgram>(interpreted(), 50'003); }, missing()}};
}
INSTANTIATE_TEST_SUITE_P(CudaPtx, CudaShards, testing::ValuesIn(cuda_makers()), cuda_maker_name);
INSTANTIATE_TEST_SUITE_P(CudaPtx, CudaShardsDeathTest, testing::ValuesIn(cuda_makers()), cuda_maker_name);

}  // namespace
}  // namespace tandem::test

// `make test` leaves out what takes NVRTC or the interpreter minutes.
int main(int argc, char **argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!tandem::test::runs_every_case() && testing::GTEST_FLAG(filter) == "*")
    testing::GTEST_FLAG(filter) =
        "-*EveryTunedShape*:*WideCodes*:*LargeShards*:*ManyTasks*:*ManyRows*:*MoreShards*:*SeveralThreads*:*Form*";
  return RUN_ALL_TESTS();
}
