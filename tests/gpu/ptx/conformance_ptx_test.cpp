// SPDX-License-Identifier: Apache-2.0
// The conformance suites of the CUDA backend, on the fake driver. NVRTC makes PTX of each kernel, and the interpreter
// runs it: what a GPU would run, in the launches that a GPU would get.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/conformance/cuda_shards.hpp"
#include "tests/conformance/suite.hpp"
#include "tests/gpu/fake_driver.hpp"
#include "tests/gpu/ptx/kernel.hpp"
#include "tests/support/slice.hpp"

namespace tandem::test {
namespace {

std::uint64_t launches = 0;  // that were interpreted

// A GPU with interpreted kernels.
class Interpreted {
 public:
  Interpreted() : driver_(script()) {}
  ~Interpreted() {
    const auto violations = driver_.violations();
    EXPECT_TRUE(violations.empty()) << violations.size() << " violations, the first one: " << violations.front();
    EXPECT_TRUE(driver_.live().empty());
  }
  FakeCuda &driver() { return driver_; }

  static FakeCudaScript script() {
    FakeCudaScript script;
    script.devices[0].major = 8;
    script.devices[0].minor = 1;  // NVRTC makes PTX for 8.0
    script.has_image = false;
    script.real_nvrtc = true;
    script.run_ptx = run_ptx;
    return script;
  }
  static gpu::Options options(const FakeCuda &driver) {
    gpu::Options options;
    options.driver = driver.table();
    options.generate = fake_cuda_generate;
    return options;
  }

 private:
  static std::string run_ptx(const FakeLaunch &of) {
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

  FakeCuda driver_;
};

std::string missing() { return has_real_nvrtc() ? "" : "no NVRTC on this machine"; }

// Compiles each matrix that enough bytes run through, as on a GPU: the suite has hundreds of matrices.
class CompileSoon final : public core::TuningSource {
 public:
  core::TuningChoice find(const core::TuningQuery &) const override {
    return {{{"compile_after_bytes", 200'000}}, "test"};
  }
};

// A backend that owns its driver.
class PtxBackend final : public core::Backend {
 public:
  explicit PtxBackend(bool compiles) {
    static const CompileSoon compile_soon;
    gpu::Options options = Interpreted::options(device_->driver());
    if (compiles) {
      options.tuning = &compile_soon;
    } else {
      options.technique = "tables";
    }
    backend_ = gpu::make_backend(options, base::Log());
  }
  const core::Traits &traits() const noexcept override { return backend_->traits(); }
  std::shared_ptr<const core::Prepared> prepare(const core::Operator &what) override { return backend_->prepare(what); }
  void run(std::span<const core::Task> tasks, core::Control &control) override { backend_->run(tasks, control); }

 private:
  // Shared by the backends of a test that has two.
  static std::shared_ptr<Interpreted> device() {
    static std::weak_ptr<Interpreted> last;
    std::shared_ptr<Interpreted> found = last.lock();
    if (found == nullptr) last = found = std::make_shared<Interpreted>();
    return found;
  }
  std::shared_ptr<Interpreted> device_ = device();
  std::unique_ptr<core::Backend> backend_;
};

std::vector<BackendMaker> makers() {
  return {{"tables", [] { return std::make_unique<PtxBackend>(false); }, missing()},
          {"compiled", [] { return std::make_unique<PtxBackend>(true); }, missing()}};
}
INSTANTIATE_TEST_SUITE_P(CudaPtx, BackendConformance, testing::ValuesIn(makers()), maker_name);
INSTANTIATE_TEST_SUITE_P(CudaPtx, FormConformance, testing::ValuesIn(makers()), maker_name);

TEST(CudaPtx, TheKernelsAreInterpreted) {
  if (!missing().empty()) GTEST_SKIP() << "NOT RUN: " << missing();
  for (const bool compiles : {false, true}) {
    PtxBackend backend(compiles);
    Work work(2, 4, 300'000);
    const auto prepared = backend.prepare(work.matrix);
    const std::uint64_t before = launches;
    work.run(backend, *prepared, core::Mode::assign);
    EXPECT_TRUE(work.is_right(core::Mode::assign));
    EXPECT_GT(launches, before);
  }
}

// A program with shards in device memory.
class PtxProgram final : public CudaProgram {
 public:
  gpu::Options options(const char *technique) const override {
    gpu::Options options = Interpreted::options(driver_);
    options.technique = technique;
    return options;
  }
  std::uint64_t large_bytes() const override { return 50'003; }
  CUdeviceptr allocate(std::uint64_t bytes) override { return driver_.allocate(bytes); }
  void free(CUdeviceptr memory) override { driver_.free(memory); }
  void write(CUdeviceptr to, const void *from, std::uint64_t bytes) override {
    std::memcpy(reinterpret_cast<void *>(to), from, bytes);
  }
  void read(void *to, CUdeviceptr from, std::uint64_t bytes) override {
    std::memcpy(to, reinterpret_cast<const void *>(from), bytes);
  }
  CUstream make_stream() override { return driver_.make_stream(); }
  void destroy(CUstream stream) override { driver_.destroy(stream); }
  void synchronize(CUstream stream) override { driver_.synchronize(stream); }
  void begin_capture(CUstream stream) override { driver_.begin_capture(stream); }
  void end_capture(CUstream stream) override { EXPECT_EQ(driver_.end_capture(stream), 1u); }
  void launch_graph(CUstream) override { driver_.launch_graph(); }
  void break_stream(CUstream) override {
    FakeCudaScript broken = Interpreted::script();
    broken.failing_command = 0;
    driver_.set_script(broken);
  }
  void let_fail() override {}  // nothing happens before it is waited for

 private:
  Interpreted gpu_;
  FakeCuda &driver_ = gpu_.driver();
};

std::vector<CudaMaker> cuda_makers() {
  return {{"ptx", [] { return std::make_unique<PtxProgram>(); }, missing()}};
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
