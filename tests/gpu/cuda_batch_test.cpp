// SPDX-License-Identifier: Apache-2.0
// Batches of stripes in CUDA memory through the C API, on the fake driver.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <vector>

#include "api/objects.hpp"
#include "gpu/factory.hpp"
#include "tandem/device.h"
#include "tests/gpu/fake_driver.hpp"
#include "tests/support/api.hpp"
#include "tests/support/sanitizers.hpp"

namespace tandem::test {
namespace {

constexpr unsigned kK = 5, kM = 3, kCount = kK + kM;

// What a caller has: the library's struct in one of its own.
struct Mine {
  int number = 0;
  tandem_device_stripe stripe = {};
};

class CudaBatchCalls : public testing::Test {
 protected:
  CudaBatchCalls() {
    gpu::Options options;
    options.driver = driver_.table();
    options.generate = fake_cuda_generate;
    auto context = std::make_unique<tandem_context>();
    context->backend = gpu::make_backend(options, base::Log());
    context_.reset(context.release());
    Random random(4);
    for (const std::size_t bytes : {1000u, 64u, 4096u, 77u}) {
      stripes_.push_back(std::make_unique<Stripe>(random, kK, kM, bytes));
      std::vector<void *> &pointers = pointers_.emplace_back();
      for (unsigned i = 0; i < kCount; ++i) pointers.push_back(reinterpret_cast<void *>(driver_.allocate(bytes)));
      present_.emplace_back(kCount, std::uint8_t{1});
    }
    for (std::size_t i = 0; i < stripes_.size(); ++i) {
      Mine &mine = mine_.emplace_back();
      mine.stripe.shards = pointers_[i].data();
      mine.stripe.present = present_[i].data();
      mine.stripe.shard_bytes = stripes_[i]->truth[0].size();
      mine.stripe.memory = TANDEM_MEMORY_CUDA;
      mine.stripe.status = TANDEM_ERROR_INTERNAL;
    }
  }

  void put(std::size_t stripe, unsigned shard, const Bytes &bytes) {
    std::memcpy(pointers_[stripe][shard], bytes.data(), bytes.size());
  }
  void expect_whole() {
    for (std::size_t s = 0; s < stripes_.size(); ++s) {
      for (unsigned i = 0; i < kCount; ++i) {
        const Bytes &truth = stripes_[s]->truth[i];
        EXPECT_EQ(std::memcmp(pointers_[s][i], truth.data(), truth.size()), 0) << s << ", " << i;
      }
    }
  }

  FakeCuda driver_;
  const CUstream stream_ = driver_.make_stream();
  Context context_;
  const Codec codec_ = make_codec(kK, kM);
  std::vector<std::unique_ptr<Stripe>> stripes_;
  std::vector<std::vector<void *>> pointers_;
  std::vector<std::vector<std::uint8_t>> present_;
  std::vector<Mine> mine_;
};

// A NULL queue is the legacy default stream. A job that is destroyed without a wait is waited for.
TEST_F(CudaBatchCalls, EncodesAndDecodesInPlace) {
  for (const CUstream queue : {stream_, CUstream{}}) {
    for (std::size_t s = 0; s < stripes_.size(); ++s)
      for (unsigned i = 0; i < kCount; ++i)
        put(s, i, i < kK ? stripes_[s]->truth[i] : Bytes(stripes_[s]->truth[i].size(), 0xee));
    tandem_job *job = nullptr;
    ASSERT_EQ(
        tandem_encode_batch(context_.get(), codec_.get(), &mine_[0].stripe, mine_.size(), sizeof(Mine), queue, &job),
        TANDEM_OK)
        << tandem_last_error_message();
    ASSERT_EQ(tandem_job_wait(job), TANDEM_OK);
    tandem_job_destroy(job);
    expect_whole();

    // Two patterns of erasures; stripe 2 has lost nothing.
    for (const auto &[stripe, shard] : {std::pair{0u, 1u}, {0u, 6u}, {1u, 0u}, {3u, 1u}, {3u, 6u}}) {
      present_[stripe][shard] = 0;
      put(stripe, shard, Bytes(stripes_[stripe]->truth[shard].size(), 0x11));
    }
    ASSERT_EQ(
        tandem_decode_batch(context_.get(), codec_.get(), &mine_[0].stripe, mine_.size(), sizeof(Mine), queue, &job),
        TANDEM_OK)
        << tandem_last_error_message();
    tandem_job_destroy(job);
    expect_whole();
    for (const Mine &each : mine_) EXPECT_EQ(each.stripe.status, TANDEM_OK);
  }
}

// A child after fork ends a job of the parent without a call of the driver.
TEST(CudaFork, AJobEndsInAChild) {
  TANDEM_SKIP_FORK_BESIDE_THREADS();
  FakeCuda driver;
  gpu::Options options;
  options.driver = driver.table();
  options.generate = fake_cuda_generate;
  const auto backend = gpu::make_backend(options, base::Log());
  const auto prepared = backend->prepare(core::Matrix(1, 1));
  const auto *const input = reinterpret_cast<const std::byte *>(driver.allocate(1000));
  auto *const output = reinterpret_cast<std::byte *>(driver.allocate(1000));
  core::Task task = {prepared.get(), &input, &output, 0, 1000, core::Mode::assign};
  task.memory = core::MemoryKind::cuda;
  core::Control control;
  auto ticket = backend->submit({&task, 1}, control);
  const std::uint64_t calls = driver.call_count();
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    ticket.reset();
    _exit(driver.call_count() == calls ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ticket->wait();
}

}  // namespace
}  // namespace tandem::test
