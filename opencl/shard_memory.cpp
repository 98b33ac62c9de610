// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "opencl/runs.hpp"

namespace tandem::opencl {
namespace {

class OpenclShardMemory final : public core::DeviceMemory {
 public:
  OpenclShardMemory(std::shared_ptr<OpenclSession> session, std::uint64_t bytes)
      : objects_(std::make_unique<Objects>(std::move(session), bytes)) {}
  ~OpenclShardMemory() override {
    if (kModule.in_child()) objects_.release();  // the parent's driver: its objects cannot be released here
  }

  core::MemoryKind kind() const noexcept override { return core::MemoryKind::opencl; }
  void *shards() const noexcept override { return objects_->buffer.get(); }
  void *queue() const noexcept override { return objects_->queue.get(); }

  // In the queue's own order.
  void write(std::uint64_t at_bytes, const std::byte *from, std::uint64_t bytes) override {
    if (bytes == 0) return;
    check(driver().clEnqueueWriteBuffer(objects_->queue.get(), objects_->buffer.get(), CL_TRUE, at_bytes, bytes, from,
                                        0, nullptr, nullptr),
          "clEnqueueWriteBuffer");
  }
  void read(std::uint64_t at_bytes, std::byte *to, std::uint64_t bytes) override {
    if (bytes == 0) return;
    check(driver().clEnqueueReadBuffer(objects_->queue.get(), objects_->buffer.get(), CL_TRUE, at_bytes, bytes, to, 0,
                                       nullptr, nullptr),
          "clEnqueueReadBuffer");
  }

 private:
  struct Objects {
    Objects(std::shared_ptr<OpenclSession> of, std::uint64_t bytes)
        : session(std::move(of)),
          queue(make_queue(session->driver(), session->context(), session->opencl_device().id)),
          buffer(*session, CL_MEM_READ_WRITE, bytes) {}
    const std::shared_ptr<OpenclSession> session;
    const Queue queue;
    const DeviceBuffer buffer;
  };

  const Driver &driver() const noexcept { return objects_->session->driver(); }

  std::unique_ptr<const Objects> objects_;
};

}  // namespace

std::shared_ptr<core::DeviceMemory> make_shard_memory(std::shared_ptr<OpenclSession> session, std::uint64_t bytes) {
  return std::make_shared<OpenclShardMemory>(std::move(session), bytes);
}

}  // namespace tandem::opencl
