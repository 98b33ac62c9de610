// The CPU behind the Backend interface: chooses kernel and executor, cuts a run into chunks, spreads them.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <new>

#include "core/codec.hpp"
#include "core/error.hpp"
#include "cpu/executor.hpp"
#include "cpu/factory.hpp"
#include "cpu/kernel.hpp"

namespace tandem::cpu {
namespace {

using core::Control;
using core::Matrix;
using core::Mismatch;
using core::Mode;
using core::Task;

constexpr std::size_t kCacheLine = 64;

// A run that moves fewer bytes than this (inputs and outputs together) stays on the calling thread: waking a worker
// costs about as much as coding this many.
constexpr std::uint64_t kInlineBytes = 256 << 10;
// One chunk of a spread run, inputs and outputs together: small enough that cancel and budget are felt soon and that
// every thread gets a few, so that they finish together; large enough that claiming it costs nothing.
constexpr std::uint64_t kMostChunkBytes = 2 << 20;
constexpr std::uint64_t kLeastChunkBytes = 64 << 10;
constexpr std::uint64_t kChunksPerThread = 4;
// Verify recomputes outputs into a buffer of this many bytes, tile by tile, that stays in the L1 cache.
constexpr std::size_t kCompareBufferBytes = 16 << 10;
constexpr std::size_t kCompareTileBytes = 2048;  // at most

struct AlignedFree {
  void operator()(std::byte *p) const noexcept { ::operator delete (p, std::align_val_t{kCacheLine}); }
};

// Kernel tables of a range of rows.
struct Slice {
  std::uint32_t first_row, row_count;
  std::unique_ptr<std::byte, AlignedFree> tables;
};

class CpuPrepared final : public core::Prepared {
 public:
  CpuPrepared(const Kernel &kernel, const Matrix &matrix, unsigned slice_count)
      : Prepared(matrix.rows(), matrix.columns()), whole(make_slice(kernel, matrix, 0, matrix.rows())) {
    if (slice_count <= 1) return;
    for (unsigned i = 0; i < slice_count; ++i) {
      const unsigned first = matrix.rows() * i / slice_count, end = matrix.rows() * (i + 1) / slice_count;
      if (first < end) slices.push_back(make_slice(kernel, matrix, first, end - first));
    }
  }

  Slice whole;
  std::vector<Slice> slices;  // partition parity: one for each thread

 private:
  static Slice make_slice(const Kernel &kernel, const Matrix &matrix, unsigned first, unsigned count) {
    Slice slice{first, count, nullptr};
    const std::size_t bytes = kernel.tables_bytes(count, matrix.columns());
    slice.tables.reset(
        static_cast<std::byte *>(::operator new (std::max(bytes, kCacheLine), std::align_val_t{kCacheLine})));
    kernel.prepare(matrix.data() + std::size_t{first} * matrix.columns(), count, matrix.columns(), slice.tables.get());
    return slice;
  }
};

class CpuBackend final : public core::Backend {
 public:
  CpuBackend(const Kernel &kernel, std::unique_ptr<Executor> executor, bool by_parity)
      : kernel_(kernel), executor_(std::move(executor)), by_parity_(by_parity) {
    traits_.name = "cpu";
    traits_.memories = {core::MemoryKind::host};
    const long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
    out_of_cache_bytes_ = l2 > 0 ? static_cast<std::uint64_t>(l2) : 1 << 20;
  }

  const core::Traits &traits() const noexcept override { return traits_; }

  std::shared_ptr<const core::Prepared> prepare(const Matrix &matrix) override {
    return std::make_shared<CpuPrepared>(kernel_, matrix, by_parity_ ? executor_->thread_count() : 1);
  }

  void run(std::span<const Task> tasks, Control &control) override {
    std::uint64_t total = 0;
    for (const Task &task : tasks) total += moved_bytes(task, task.length_bytes);
    if (total < kInlineBytes) {
      for (const Task &task : tasks)
        apply(task, prepared_of(task).whole, task.offset_bytes, task.length_bytes, false, task.mismatches);
      // A flag rather than a count: threads with small calls must not fight over a cache line.
      if (kernel_calls_.load(std::memory_order_relaxed) == 0) kernel_calls_.store(1, std::memory_order_relaxed);
      return;
    }
    spread(tasks, total, control);
  }

  std::uint64_t kernel_calls() const noexcept override { return kernel_calls_.load(std::memory_order_relaxed); }

 private:
  static const CpuPrepared &prepared_of(const Task &task) { return static_cast<const CpuPrepared &>(*task.prepared); }

  static std::uint64_t moved_bytes(const Task &task, std::uint64_t length_bytes) {
    return length_bytes * (task.prepared->rows() + task.prepared->columns());
  }

  // A chunk: a byte range of a task, for the rows of one slice.
  struct Chunk {
    const Task *task;
    const Slice *slice;
    std::uint64_t offset_bytes, length_bytes;
  };

  class Chunks final : public Batch {
   public:
    explicit Chunks(CpuBackend &backend) : backend_(backend) {}
    void run_item(std::size_t item) noexcept override {
      const Chunk &chunk = chunks[item];
      const Task &task = *chunk.task;
      const bool out_of_cache = moved_bytes(task, task.length_bytes) > backend_.out_of_cache_bytes_;
      if (task.mode != Mode::compare)
        return backend_.apply(task, *chunk.slice, chunk.offset_bytes, chunk.length_bytes, out_of_cache, nullptr);
      Mismatch found[core::kMaxShards];
      backend_.apply(task, *chunk.slice, chunk.offset_bytes, chunk.length_bytes, out_of_cache, found);
      const std::lock_guard lock(mutex_);
      for (std::uint32_t r = 0; r < task.prepared->rows(); ++r) task.mismatches[r].merge(found[r]);
    }
    std::vector<Chunk> chunks;

   private:
    CpuBackend &backend_;
    std::mutex mutex_;  // the records of mismatches
  };

  void spread(std::span<const Task> tasks, std::uint64_t total_bytes, Control &control) {
    const std::uint64_t chunk_bytes =
        std::clamp(total_bytes / (kChunksPerThread * executor_->thread_count()), kLeastChunkBytes, kMostChunkBytes);
    Chunks batch(*this);
    for (const Task &task : tasks) {
      const CpuPrepared &prepared = prepared_of(task);
      const std::uint64_t width = prepared.rows() + prepared.columns();
      if (width == 0) continue;
      if (!prepared.slices.empty() && task.mode != Mode::compare) {  // partition parity: whole length, some outputs
        for (const Slice &slice : prepared.slices)
          batch.chunks.push_back({&task, &slice, task.offset_bytes, task.length_bytes});
        continue;
      }
      // Whole cache lines, so that no two threads write into one (where shards are aligned).
      const std::uint64_t step = std::max<std::uint64_t>(chunk_bytes / width / kCacheLine, 16) * kCacheLine;
      for (std::uint64_t done = 0; done < task.length_bytes; done += step) {
        const std::uint64_t length = std::min(step, task.length_bytes - done);
        batch.chunks.push_back({&task, &prepared.whole, task.offset_bytes + done, length});
      }
    }
    kernel_calls_.fetch_add(batch.chunks.size(), std::memory_order_relaxed);
    if (!executor_->run(batch, batch.chunks.size(), control)) core::fail(TANDEM_ERROR_CANCELLED, "cancelled");
  }

  void apply(const Task &task, const Slice &slice, std::uint64_t offset_bytes, std::uint64_t length_bytes,
             bool out_of_cache, Mismatch *found) const noexcept {
    KernelCall call;
    call.tables = slice.tables.get();
    call.inputs = reinterpret_cast<const std::uint8_t *const *>(task.inputs);
    call.outputs = reinterpret_cast<std::uint8_t *const *>(task.outputs) + slice.first_row;
    call.offset_bytes = offset_bytes;
    call.length_bytes = length_bytes;
    call.rows = slice.row_count;
    call.columns = task.prepared->columns();
    call.accumulate = task.mode == Mode::accumulate;
    call.out_of_cache = out_of_cache;
    call.tile_bytes = call.prefetch_bytes = 0;
    call.small_stack = false;
    if (task.mode == Mode::compare) return compare(call, found);
    if (call.rows != 0 && call.length_bytes != 0) kernel_.apply(call);
  }

  // Recomputes the outputs of `call` tile by tile and records where the stored ones differ.
  void compare(const KernelCall &call, Mismatch *found) const noexcept {
    if (call.rows == 0) return;
    alignas(kCacheLine) std::uint8_t computed[kCompareBufferBytes];
    const std::size_t tile = std::min(kCompareTileBytes, kCompareBufferBytes / call.rows / kCacheLine * kCacheLine);
    std::uint8_t *outputs[core::kMaxShards];
    const std::uint8_t *inputs[core::kMaxShards];
    for (std::uint32_t r = 0; r < call.rows; ++r) outputs[r] = computed + r * tile;
    KernelCall part = call;
    part.inputs = inputs;
    part.outputs = outputs;
    part.offset_bytes = 0;
    part.out_of_cache = false;
    for (std::size_t done = 0; done < call.length_bytes; done += tile) {
      const std::size_t at = call.offset_bytes + done;
      part.length_bytes = std::min(tile, call.length_bytes - done);
      for (std::uint32_t c = 0; c < call.columns; ++c) inputs[c] = call.inputs[c] + at;
      kernel_.apply(part);
      for (std::uint32_t r = 0; r < call.rows; ++r) {
        const std::uint8_t *stored = call.outputs[r] + at;
        if (std::memcmp(stored, outputs[r], part.length_bytes) != 0)
          found[r].merge(differences(stored, outputs[r], part.length_bytes, at));
      }
    }
  }

  static Mismatch differences(const std::uint8_t *a, const std::uint8_t *b, std::size_t bytes, std::uint64_t at) {
    Mismatch found;
    for (std::size_t i = 0; i < bytes; ++i) {
      if (a[i] == b[i]) continue;
      if (found.byte_count++ == 0) found.first_bytes = at + i;
    }
    return found;
  }

  const Kernel &kernel_;
  std::unique_ptr<Executor> executor_;
  bool by_parity_;
  std::uint64_t out_of_cache_bytes_;
  core::Traits traits_;
  std::atomic<std::uint64_t> kernel_calls_{0};
};

std::string kernel_names(const CpuFeatures &features) {
  std::string names;
  const KernelTable table = kernel_table();
  for (std::uint32_t i = 0; i < table.count; ++i) {
    if (!table.kernels[i]->supported(features)) continue;
    if (!names.empty()) names += ", ";
    names += table.kernels[i]->name;
  }
  return names;
}

std::unique_ptr<Executor> make_executor(std::int32_t kind, const ExecutorOptions &options) {
  switch (kind) {
    case TANDEM_EXECUTOR_SERIAL:
      return make_serial_executor(options);
    case TANDEM_EXECUTOR_PTHREAD:
      return make_pthread_executor(options);
    case TANDEM_EXECUTOR_OPENMP:
      return make_openmp_executor(options);
    default:
      return options.thread_count == 1 ? make_serial_executor(options) : make_pthread_executor(options);
  }
}

void check_range(const char *what, std::int32_t value, std::int32_t last) {
  if (value < 0 || value > last)
    core::fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("{} is {}; known values are 0 to {}", what, value, last));
}

}  // namespace

std::unique_ptr<core::Backend> make_backend(const Options &options, const core::Log &log, Choice *choice_out) {
  check_range("executor", options.executor, TANDEM_EXECUTOR_OPENMP);
  check_range("partition", options.partition, TANDEM_PARTITION_PARITY);
  check_range("schedule", options.schedule, TANDEM_SCHEDULE_DYNAMIC);
  const CpuFeatures features = cpu_features();
  const Kernel *kernel = select_kernel(features, options.kernel.empty() ? nullptr : options.kernel.c_str());
  if (kernel == nullptr) {
    core::fail(TANDEM_ERROR_UNAVAILABLE,
               fmt::format("CPU kernel \"{}\" is unknown or needs more than this CPU has; this CPU runs: {}",
                           options.kernel, kernel_names(features)));
  }
  ExecutorOptions executor_options;
  executor_options.thread_count = options.thread_count != 0 ? options.thread_count : allowed_core_count();
  executor_options.pin_threads = options.pin_threads;
  executor_options.dynamic_schedule = options.schedule == TANDEM_SCHEDULE_DYNAMIC;
  executor_options.budget = options.budget;
  if (options.executor == TANDEM_EXECUTOR_SERIAL) executor_options.thread_count = 1;
  std::unique_ptr<Executor> executor = make_executor(options.executor, executor_options);
  *choice_out = {kernel->name, executor->name(), executor->thread_count()};
  log.say(TANDEM_LOG_INFO, fmt::format("cpu: kernel {} ({}), executor {}, {} thread{}", kernel->name,
                                       options.kernel.empty() ? "the best this CPU has" : "as asked", executor->name(),
                                       executor->thread_count(), executor->thread_count() == 1 ? "" : "s"));
  return std::make_unique<CpuBackend>(*kernel, std::move(executor), options.partition == TANDEM_PARTITION_PARITY);
}

std::vector<KernelDescription> describe_kernels() {
  const CpuFeatures features = cpu_features();
  std::vector<KernelDescription> all;
  const KernelTable table = kernel_table();
  for (std::uint32_t i = 0; i < table.count; ++i)
    all.push_back({table.kernels[i]->name, table.kernels[i]->needs, table.kernels[i]->supported(features)});
  return all;
}

std::string describe_cpu() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

}  // namespace tandem::cpu
