// SPDX-License-Identifier: Apache-2.0
// Tests the CUDA backend on a GPU of this machine: both techniques, with staged and with pinned shards, and with shards
// in the GPU's memory. Without a GPU it prints NOT RUN, or fails if TANDEM_TEST_REQUIRE_CUDA is set.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "core/registered_memory.hpp"
#include "gpu/driver.hpp"
#include "gpu/factory.hpp"
#include "tests/conformance/gpu_program.hpp"
#include "tests/conformance/suite.hpp"
#include "tests/conformance/work.hpp"

namespace tandem::test {
namespace {

// A compile takes a tenth of a second, and the suite has hundreds of matrices: each that enough bytes run through.
std::unique_ptr<core::Backend> make(const char *technique, const base::Log &log = base::Log()) {
  static const Values compile_soon({{"compile_after_bytes", 200'000}});
  gpu::Options options;
  if (technique == std::string("tables")) {
    options.technique = technique;
  } else {
    options.tuning = &compile_soon;
  }
  options.reference = cpu_reference();
  return gpu::make_backend(options, log);
}

// What backends of the suite say.
Heard &heard_of_all() {
  static auto *const heard = new Heard;  // some go when the process does
  return *heard;
}

// No test of the suite sees that a backend fell back.
class NoneFellBack final : public testing::Environment {
 public:
  void TearDown() override { EXPECT_FALSE(fell_back(heard_of_all())); }
};
[[maybe_unused]] testing::Environment *const none_fell_back = testing::AddGlobalTestEnvironment(new NoneFellBack);

// Why there is nothing to run on, or "".
const std::string &missing() {
  static const std::string reason = [] {
    try {
      make("")->prepare(core::Matrix(1, 1));
      return std::string();
    } catch (const base::Error &error) {
      return std::string(error.what());
    }
  }();
  return reason;
}

std::vector<BackendMaker> makers() {
  std::vector<BackendMaker> list;
  for (const char *technique : {"tables", "compiled"})
    list.push_back({technique, [=] { return make(technique, heard_of_all().log()); }, missing()});
  return list;
}

INSTANTIATE_TEST_SUITE_P(Cuda, BackendConformance, testing::ValuesIn(makers()), maker_name);
INSTANTIATE_TEST_SUITE_P(Cuda, FormConformance, testing::ValuesIn(makers()), maker_name);

std::vector<CudaMaker> cuda_makers() { return {{"gpu", make_gpu_program, missing()}}; }
INSTANTIATE_TEST_SUITE_P(Cuda, CudaShards, testing::ValuesIn(cuda_makers()), cuda_maker_name);
INSTANTIATE_TEST_SUITE_P(Cuda, CudaShardsDeathTest, testing::ValuesIn(cuda_makers()), cuda_maker_name);

// Memory that the program registers, for as long as it lives.
std::shared_ptr<std::byte> registered_memory(std::uint64_t bytes) {
  auto *const memory = new std::vector<std::byte>(bytes);
  core::register_memory(memory->data(), bytes);
  return {memory->data(), [memory](std::byte *first) {
            core::unregister_memory(first);
            delete memory;
          }};
}

// Each technique, mode and length; shards anywhere, in the backend's own staging memory and in registered memory, both
// of which the device reads and writes where they lie. The log says that the technique, and no other, was used.
TEST(CudaForced, EachTechniqueIsUsed) {
  if (!missing().empty()) GTEST_SKIP() << "NOT RUN: " << missing();
  for (const char *technique : {"tables", "compiled"}) {
    for (const auto &[rows, columns] : {std::pair{4u, 10u}, {2u, 4u}, {8u, 32u}, {1u, 1u}, {20u, 31u}}) {
      Heard heard;
      gpu::Options options;
      options.technique = technique;
      const auto backend = gpu::make_backend(options, heard.log());
      for (const std::size_t bytes : {1, 63, 64, 4095, 4096, 70'001, 1'000'003}) {
        Work work(rows, columns, bytes);
        const auto prepared = backend->prepare(work.matrix);
        for (const core::Mode mode : {core::Mode::assign, core::Mode::accumulate, core::Mode::compare}) {
          work.reset();
          work.run(*backend, *prepared, mode);
          ASSERT_TRUE(work.is_right(mode)) << technique << ", " << rows << " x " << columns << ", " << bytes;
        }
        {
          const std::shared_ptr<std::byte> pinned = registered_memory((rows + columns) * (bytes + 3));
          std::vector<const std::byte *> in;
          std::vector<std::byte *> out;
          for (unsigned i = 0; i < rows + columns; ++i) {
            std::byte *at = pinned.get() + i * (bytes + 3);
            if (i < columns) std::memcpy(at, work.inputs[i].data(), bytes);
            i < columns ? in.push_back(at) : out.push_back(at);
          }
          const core::Task task = {prepared.get(), in.data(), out.data(), 0, bytes, core::Mode::assign};
          core::Control control;
          backend->run({&task, 1}, control);
          for (unsigned r = 0; r < rows; ++r)
            ASSERT_EQ(std::memcmp(out[r], work.product[r].data(), bytes), 0) << technique << ", " << bytes;
        }
      }
      EXPECT_FALSE(heard.has("cannot be pinned")) << heard.text;
      EXPECT_TRUE(heard.has(std::string("technique ") + technique)) << heard.text;
      EXPECT_FALSE(heard.has(technique == std::string("tables") ? "technique compiled" : "technique tables"));
      EXPECT_GT(backend->kernel_calls(), 0u);
      EXPECT_FALSE(fell_back(heard));
    }
  }
}

// A module without it works too, with NVRTC.
TEST(CudaDevice, TheModuleHasTheDeviceCodeThatWasCompiled) {
#ifdef TANDEM_TEST_WITH_CUDA_DEVICE_CODE
  EXPECT_NE(gpu::open_driver().tables_image, nullptr);
  EXPECT_GT(gpu::open_driver().tables_image_bytes, 0u);
#else
  GTEST_SKIP() << "built without device code: there is no nvcc";
#endif
}

TEST(CudaDevice, IsThereWhereItIsRequired) {
  if (std::getenv("TANDEM_TEST_REQUIRE_CUDA") == nullptr && !missing().empty())
    GTEST_SKIP() << "NOT RUN: " << missing();
  EXPECT_EQ(missing(), "");
  for (const device::DeviceDescription &device : gpu::describe_devices(std::chrono::seconds(60)).devices)
    std::printf("%s: %s\n", device.name.c_str(), device.description.c_str());
}

}  // namespace
}  // namespace tandem::test
