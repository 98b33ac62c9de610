// SPDX-License-Identifier: Apache-2.0
// The suite for shards in a GPU's memory: tests that the CUDA backend keeps the promises of core/backend.hpp and
// tandem.h. The same tests run on a GPU and on the fake driver:
//
//     INSTANTIATE_TEST_SUITE_P(Name, CudaShards, testing::ValuesIn(my_makers()), cuda_maker_name);
//     INSTANTIATE_TEST_SUITE_P(Name, CudaShardsDeathTest, ...the same...);
//
// in a file linked with cuda_shards.cpp.
#pragma once

#include <gtest/gtest.h>

#include <cuda.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "gpu/factory.hpp"
#include "tests/conformance/work.hpp"

namespace tandem::test {

// What the backend says when it goes on in another way than it should on a GPU; every byte is right all the same.
inline constexpr const char *kImageRefused = "does not take the kernels that came with this library";
inline constexpr const char *kStoppedCompiling = "technique tables from now on";

inline testing::AssertionResult fell_back(Heard &heard) {
  for (const char *each : {kImageRefused, kStoppedCompiling})
    if (heard.has(each)) return testing::AssertionSuccess() << heard.text;
  return testing::AssertionFailure();
}

// What a program does that uses CUDA itself, on the device that the backend works on.
class CudaProgram {
 public:
  virtual ~CudaProgram() = default;

  // For backends, which it outlives.
  base::Log log() { return heard_.log(); }

  virtual gpu::Options options(const char *technique) const = 0;
  virtual std::uint64_t large_bytes() const = 0;  // of a shard, where it takes a while

  virtual CUdeviceptr allocate(std::uint64_t bytes) = 0;  // aligned to 256 bytes
  virtual void free(CUdeviceptr memory) = 0;
  virtual void write(CUdeviceptr to, const void *from, std::uint64_t bytes) = 0;  // done when it returns
  virtual void read(void *to, CUdeviceptr from, std::uint64_t bytes) = 0;

  virtual CUstream make_stream() = 0;
  virtual void destroy(CUstream stream) = 0;
  virtual void synchronize(CUstream stream) = 0;

  virtual void begin_capture(CUstream stream) = 0;
  virtual void end_capture(CUstream stream) = 0;   // the graph is kept
  virtual void launch_graph(CUstream stream) = 0;  // the one captured last

  // What is put into the stream from now on waits there for let_fail, and then the device fails.
  virtual void break_stream(CUstream stream) = 0;
  virtual void let_fail() = 0;

 protected:
  Heard heard_;
};

struct CudaMaker {
  std::string name;  // letters, digits and underscores
  std::function<std::unique_ptr<CudaProgram>()> make;
  std::string not_run;  // not empty: why this machine cannot run it

  friend void PrintTo(const CudaMaker &maker, std::ostream *out) { *out << maker.name; }
};

inline std::string cuda_maker_name(const testing::TestParamInfo<CudaMaker> &test) { return test.param.name; }

class CudaShards : public testing::TestWithParam<CudaMaker> {
 protected:
  void SetUp() override {
    if (!GetParam().not_run.empty()) GTEST_SKIP() << "NOT RUN: " << GetParam().not_run;
    program_ = GetParam().make();
  }

  std::unique_ptr<CudaProgram> program_;
};

// What ends with a device that is lost, in a process of its own.
class CudaShardsDeathTest : public CudaShards {};

}  // namespace tandem::test
