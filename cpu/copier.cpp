// SPDX-License-Identifier: Apache-2.0
// Staging copies on the threads of an executor. Shards of a device's pieces are far larger than a core's caches and are
// not read here again, so they are written past the caches. Ordinary stores would read the old bytes first, and move
// three bytes instead of two.
#include "core/host_copies.hpp"

#include <algorithm>
#include <vector>

#include "cpu/executors/executor.hpp"
#include "cpu/factory.hpp"
#include "cpu/kernels/kernel.hpp"

namespace tandem::cpu {
namespace {

using core::HostCopy;

constexpr std::uint64_t kPartBytes = 256 << 10;  // of a copy, as one item: some ten microseconds of a core
// So many bytes of all copies of a run may stay in the caches for their next reader.
constexpr std::uint64_t kStreamBytes = 1 << 20;

class Parts final : public Batch {
 public:
  Parts(const Kernel &kernel, std::span<const HostCopy> copies) : kernel_(kernel) {
    for (const HostCopy &copy : copies) total_bytes_ += copy.bytes;
    for (const HostCopy &copy : copies) {
      for (std::uint64_t done = 0; done < copy.bytes;) {
        // Whole cache lines of `to`, so that no two threads write to one.
        const std::uint64_t skew = (reinterpret_cast<std::uintptr_t>(copy.to) + done) % 64;
        const std::uint64_t bytes = std::min(kPartBytes - skew, copy.bytes - done);
        all_.push_back({copy.to + done, copy.from + done, bytes, copy.adds});
        done += bytes;
      }
    }
  }

  std::size_t count() const noexcept { return all_.size(); }
  double first_item_share() const noexcept override {
    return static_cast<double>(all_.front().bytes) / static_cast<double>(total_bytes_);
  }

  void run_item(std::size_t item) noexcept override {
    const HostCopy &part = all_[item];
    auto *to = reinterpret_cast<std::uint8_t *>(part.to);
    const std::uint8_t *const inputs[] = {reinterpret_cast<const std::uint8_t *>(part.from), to};
    const bool streams = !part.adds && total_bytes_ > kStreamBytes;
    kernel_.raid_p(inputs, 0, part.adds ? 2 : 1, &to, part.bytes, streams);  // the XOR of one, or of two
  }

 private:
  const Kernel &kernel_;
  std::uint64_t total_bytes_ = 0;
  std::vector<HostCopy> all_;
};

class Copier final : public core::HostCopier {
 public:
  explicit Copier(const ExecutorOptions &options)
      : kernel_(*select_kernel(cpu_features(), nullptr)), executor_(make_pthread_executor(options)) {}

  void run(std::span<const HostCopy> copies) override {
    Parts parts(kernel_, copies);
    if (parts.count() == 0) return;
    core::Control control({}, true);  // the copy is too short for a cancel
    executor_->run(parts, parts.count(), control);
  }

 private:
  const Kernel &kernel_;
  const std::unique_ptr<Executor> executor_;
};

}  // namespace

std::shared_ptr<core::HostCopier> make_copier(unsigned thread_count, core::Budget *budget) {
  ExecutorOptions options;
  options.thread_count = thread_count != 0 ? thread_count : allowed_core_count();
  options.budget = budget;
  return std::make_shared<Copier>(options);
}

}  // namespace tandem::cpu
