// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "gpu/runs.hpp"

namespace tandem::gpu {
namespace {

constexpr std::uint64_t kCopyBytes = 4 << 20;  // of our own memory, which a hanging device may still use

class CudaShardMemory final : public core::DeviceMemory {
 public:
  CudaShardMemory(std::shared_ptr<CudaSession> session, std::uint64_t bytes)
      : session_(std::move(session)), queue_(*session_), memory_(*session_, queue_.get(), bytes) {
    CUDA_CALL(session_->driver(), cuStreamSynchronize, queue_.get());
  }

  core::MemoryKind kind() const noexcept override { return core::MemoryKind::cuda; }
  void *shards() const noexcept override { return reinterpret_cast<void *>(memory_.get()); }
  void *queue() const noexcept override { return queue_.get(); }

  void write(std::uint64_t at_bytes, const std::byte *from, std::uint64_t bytes) override {
    copy(at_bytes, bytes, [&](CUdeviceptr device, std::vector<std::byte> &copy, std::uint64_t done) {
      std::memcpy(copy.data(), from + done, copy.size());
      return session_->driver().cuMemcpyHtoDAsync(device, copy.data(), copy.size(), session_->stream());
    });
  }
  void read(std::uint64_t at_bytes, std::byte *to, std::uint64_t bytes) override {
    const auto fetch = [&](CUdeviceptr device, std::vector<std::byte> &copy, std::uint64_t) {
      return session_->driver().cuMemcpyDtoHAsync(copy.data(), device, copy.size(), session_->stream());
    };
    copy(at_bytes, bytes, fetch, [&](const std::vector<std::byte> &copy, std::uint64_t done) {
      std::memcpy(to + done, copy.data(), copy.size());
    });
  }

 private:
  template <class Start, class Finish>
  void copy(std::uint64_t at_bytes, std::uint64_t bytes, const Start &start, const Finish &finish) {
    const Driver &driver = session_->driver();
    const ContextScope current(driver, session_->context());
    CUDA_CALL(driver, cuStreamSynchronize, queue_.get());
    for (std::uint64_t done = 0; done < bytes;) {
      auto copy = std::make_unique<std::vector<std::byte>>(std::min(kCopyBytes, bytes - done));
      const CUresult error = start(memory_.get() + at_bytes + done, *copy, done);
      session_->synchronise(copy, error, "cuMemcpyAsync");
      finish(*copy, done);
      done += copy->size();
    }
  }
  template <class Start>
  void copy(std::uint64_t at_bytes, std::uint64_t bytes, const Start &start) {
    copy(at_bytes, bytes, start, [](const std::vector<std::byte> &, std::uint64_t) {});
  }

  const std::shared_ptr<CudaSession> session_;
  const CudaStream queue_;
  const CudaMemory memory_;
};

}  // namespace

std::shared_ptr<core::DeviceMemory> make_shard_memory(std::shared_ptr<CudaSession> session, std::uint64_t bytes) {
  return std::make_shared<CudaShardMemory>(std::move(session), bytes);
}

}  // namespace tandem::gpu
