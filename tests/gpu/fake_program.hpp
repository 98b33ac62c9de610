// SPDX-License-Identifier: Apache-2.0
// The fake driver as the CUDA of a program, for the suite of shards in a GPU's memory
// (tests/conformance/cuda_shards.hpp).
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "gpu/factory.hpp"
#include "tests/conformance/cuda_shards.hpp"
#include "tests/gpu/fake_driver.hpp"

namespace tandem::test {

inline gpu::Options fake_options(const FakeCuda &driver, const char *technique = "") {
  gpu::Options options;
  options.driver = driver.table();
  options.generate = fake_cuda_generate;
  options.technique = technique;
  return options;
}

inline std::vector<std::string> problems_of(const FakeCuda &driver) {
  std::vector<std::string> problems = driver.problems();
  if (fake_context_depth() != 0) problems.push_back("a context is current");
  if (!is_fake_capture_mode_global()) problems.push_back("the thread's capture mode is not as it was");
  return problems;
}

// What a test expects of every driver in the end.
inline void expect_clean(const FakeCuda &driver, const std::string &after) {
  for (const std::string &each : problems_of(driver)) ADD_FAILURE() << each << ", after " << after;
}

class FakeProgram final : public CudaProgram {
 public:
  FakeProgram(const FakeCudaScript &script, std::uint64_t large_bytes)
      : script_(script), large_bytes_(large_bytes), driver_(script) {}
  ~FakeProgram() override { expect_clean(driver_, "a program's life"); }
  gpu::Options options(const char *technique) const override { return fake_options(driver_, technique); }
  std::uint64_t large_bytes() const override { return large_bytes_; }
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
    FakeCudaScript broken = script_;
    broken.common.failing_command = 0;
    driver_.set_script(broken);
  }
  void let_fail() override {}  // nothing happens before it is waited for

 private:
  const FakeCudaScript script_;
  const std::uint64_t large_bytes_;
  FakeCuda driver_;
};

}  // namespace tandem::test
