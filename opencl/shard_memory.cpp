// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "opencl/runs.hpp"

namespace tandem::opencl {
namespace {

class OpenclShardMemory final : public core::DeviceMemory {
 public:
  OpenclShardMemory(std::shared_ptr<OpenclSession> session, std::uint64_t bytes)
      : session_(std::move(session)),
        queue_(make_queue(session_->driver(), session_->context(), session_->opencl_device().id)),
        buffer_(*session_, CL_MEM_READ_WRITE, bytes) {}

  core::MemoryKind kind() const noexcept override { return core::MemoryKind::opencl; }
  void *shards() const noexcept override { return buffer_.get(); }
  void *queue() const noexcept override { return queue_.get(); }

  // In the queue's own order.
  void write(std::uint64_t at_bytes, const std::byte *from, std::uint64_t bytes) override {
    if (bytes == 0) return;
    OPENCL_CALL(session_->driver(), clEnqueueWriteBuffer, queue_.get(), buffer_.get(), CL_TRUE, at_bytes, bytes, from,
                0, nullptr, nullptr);
  }
  void read(std::uint64_t at_bytes, std::byte *to, std::uint64_t bytes) override {
    if (bytes == 0) return;
    OPENCL_CALL(session_->driver(), clEnqueueReadBuffer, queue_.get(), buffer_.get(), CL_TRUE, at_bytes, bytes, to, 0,
                nullptr, nullptr);
  }

 private:
  const std::shared_ptr<OpenclSession> session_;
  const Queue queue_;
  const DeviceBuffer buffer_;
};

}  // namespace

std::shared_ptr<core::DeviceMemory> make_shard_memory(std::shared_ptr<OpenclSession> session, std::uint64_t bytes) {
  return std::make_shared<OpenclShardMemory>(std::move(session), bytes);
}

}  // namespace tandem::opencl
