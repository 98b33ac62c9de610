// The CPU behind the Backend interface: chooses kernel and executor, cuts a run into chunks, spreads them.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <string_view>
#include <thread>
#include <tuple>
#include <type_traits>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "core/backend.hpp"
#include "core/budget.hpp"
#include "core/recorded_run.hpp"
#include "core/tuning.hpp"
#include "cpu/executors/executor.hpp"
#include "cpu/factory.hpp"
#include "cpu/kernels/kernel.hpp"

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
constexpr std::uint64_t kMostChunkBytes = 2 << 20;  // unless it is tuned
constexpr std::uint64_t kLeastChunkBytes = 64 << 10;
constexpr std::uint64_t kLeastStepBytes = 1 << 10;  // of one shard
constexpr std::uint64_t kChunksPerThread = 4;
// A kernel takes at most this many rows and columns. Larger operators are put together from blocks.
constexpr unsigned kMostRows = 256, kMostColumns = 256;
// Verify recomputes the outputs of a band into a buffer of this many bytes, tile by tile, that stays in the L1 cache.
constexpr std::size_t kCompareBufferBytes = 16 << 10;
constexpr std::size_t kCompareTileBytes = 2048;  // at most

// What may be tuned, as numbers of the running process. Only runs that are spread look at them: a small one has nothing
// to gain and no time to look.
struct Values {
  std::uint64_t chunk_bytes = kMostChunkBytes;
  std::uint64_t out_of_cache_bytes = 0;  // a task that moves more prefetches, and writes past the cache
  std::uint32_t tile_bytes = 0;          // of each input; 0 = the kernel's own choice
  std::uint32_t prefetch_bytes = 0;      // the same
  unsigned thread_count = 1;
};

// Beyond these, values from a file make no sense; within them any is safe.
constexpr std::uint64_t kLeastTunedChunkBytes = 16 << 10, kMostTunedChunkBytes = 64 << 20;  // cancel waits for one
constexpr std::uint64_t kMostTileBytes = 1 << 20, kMostPrefetchBytes = 64 << 10;

constexpr const char *kChunkBytes = "chunk_bytes", *kOutOfCacheBytes = "out_of_cache_bytes", *kTileBytes = "tile_bytes",
                     *kPrefetchBytes = "prefetch_bytes", *kThreads = "threads";

constexpr std::size_t kModeCount = 3;  // of enum class Mode

struct AlignedFree {
  void operator()(std::byte *p) const noexcept { ::operator delete (p, std::align_val_t{kCacheLine}); }
};

// A range of at most kMostRows rows of an operator. Its kernel tables are those of the first kMostColumns columns; the
// tables of the next ones lie step_bytes further.
struct Band {
  std::uint32_t first_row, row_count;
  std::byte *tables;
  std::size_t step_bytes;
};

// An operator in the form of a kernel, cut into bands. One piece of memory has all tables.
class Bands {
 public:
  Bands(const Kernel &kernel, const Matrix &matrix, unsigned most_rows)
      : row_count_(matrix.rows()),
        band_rows_(std::min(most_rows, kMostRows)),
        count_((row_count_ + band_rows_ - 1) / band_rows_) {
    const std::size_t bytes =
        kernel.tables_bytes(std::min(band_rows_, row_count_), std::min(matrix.columns(), kMostColumns));
    step_bytes_ = (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
    band_bytes_ = step_bytes_ * std::max(1u, (matrix.columns() + kMostColumns - 1) / kMostColumns);
    tables_.reset(static_cast<std::byte *>(::operator new (count_ *band_bytes_, std::align_val_t{kCacheLine})));
    for (unsigned i = 0; i < count_; ++i) prepare(kernel, matrix, (*this)[i]);
  }

  unsigned count() const noexcept { return count_; }
  Band operator[](unsigned i) const noexcept {
    const std::uint32_t first_row = i * band_rows_;
    return {first_row, std::min(band_rows_, row_count_ - first_row), tables_.get() + i * band_bytes_, step_bytes_};
  }

 private:
  static void prepare(const Kernel &kernel, const Matrix &matrix, Band band) {
    const unsigned columns = matrix.columns();
    if (columns <= kMostColumns)
      return kernel.prepare(matrix.row(band.first_row).data(), band.row_count, columns, band.tables);
    for (unsigned first = 0; first < columns; first += kMostColumns, band.tables += band.step_bytes) {
      Matrix block(band.row_count, std::min(kMostColumns, columns - first));
      for (unsigned r = 0; r < block.rows(); ++r)
        std::ranges::copy(matrix.row(band.first_row + r).subspan(first, block.columns()), block.row(r).begin());
      kernel.prepare(block.data(), block.rows(), block.columns(), band.tables);
    }
  }

  std::uint32_t row_count_, band_rows_, count_;
  std::size_t step_bytes_, band_bytes_;
  std::unique_ptr<std::byte, AlignedFree> tables_;
};

// Values for matrices of one shape, and what the log has to hear of them at the first run that takes them.
struct Known {
  Values values;
  std::string news;  // empty: nothing is known
  mutable std::atomic<bool> told{false};
};
using KnownOfModes = std::array<std::shared_ptr<const Known>, kModeCount>;

class CpuPrepared final : public core::Prepared {
 public:
  CpuPrepared(const Kernel &kernel, const core::Operator &what, unsigned part_count, const KnownOfModes &known_of_modes)
      : Prepared(what), whole(kernel, what.dense(), kMostRows), known_of_modes_(known_of_modes) {
    if (part_count > 1 && rows() != 0) parts.emplace(kernel, what.dense(), (rows() + part_count - 1) / part_count);
  }

  const Known &known(Mode mode) const noexcept { return *known_of_modes_[static_cast<std::size_t>(mode)]; }
  const Values &values(Mode mode) const noexcept { return known(mode).values; }

  Bands whole;
  std::optional<Bands> parts;  // partition parity: at most one for each thread, up to kMostRows rows each

 private:
  KnownOfModes known_of_modes_;
};

// The first line of /proc/cpuinfo of this name; "" if there is none.
std::string cpu_info(std::string_view name) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return {};
}

class CpuBackend final : public core::Backend {
 public:
  // `manner`: how the executor was asked to work, where that is not as usual.
  CpuBackend(const Kernel &kernel, std::unique_ptr<Executor> executor, bool by_parity, std::string manner,
             const base::Log &log, core::Budget *budget, const core::TuningSource *tuning, base::Timeline *timeline)
      : kernel_(kernel),
        executor_(std::move(executor)),
        by_parity_(by_parity),
        manner_(std::move(manner)),
        log_(log),
        budget_(budget),
        tuning_(tuning),
        timeline_(timeline) {
    traits_.name = "cpu";
    traits_.memories = {core::MemoryKind::host};
    const long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
    own_values_.out_of_cache_bytes = l2 > 0 ? static_cast<std::uint64_t>(l2) : 1 << 20;
    own_values_.thread_count = executor_->thread_count();
    own_ = known_from(own_values_);
    if (tuning_ == nullptr) return;
    identity_ = tuning_identity();
    kernel_hash_ = tuning_kernel_hash();
  }

  const core::Traits &traits() const noexcept override { return traits_; }

  std::shared_ptr<const core::Prepared> prepare(const core::Operator &what) override {
    KnownOfModes known = {own_, own_, own_};
    if (tuning_ != nullptr)
      for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare})
        known[static_cast<std::size_t>(mode)] = known_values(what, mode);
    return prepared_with(what, known);
  }

  std::shared_ptr<const core::Prepared> prepare_tuned(const core::Operator &what,
                                                      const core::TuningValues &tuned) override {
    const auto known = known_from(
        values_from(tuned, [](const std::string &why) { base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "cpu: " + why); }));
    return prepared_with(what, {known, known, known});
  }

  std::vector<core::TuningParameter> tuning_parameters(unsigned, unsigned, Mode mode) const override {
    const Values &own = own_values_;
    std::vector<core::TuningParameter> parameters = {
        {kChunkBytes, own.chunk_bytes, {64 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20, 16 << 20}}};
    const auto add = [&](const char *name, std::uint64_t value, std::vector<std::uint64_t> candidates) {
      if (std::find(candidates.begin(), candidates.end(), value) == candidates.end()) candidates.push_back(value);
      parameters.push_back({name, value, std::move(candidates)});
    };
    // Verify writes nothing, and recomputes into a small buffer in tiles of its own.
    if (mode != Mode::compare) {
      const std::uint64_t cache = own.out_of_cache_bytes;
      add(kOutOfCacheBytes, cache, {cache / 2, cache, 4 * cache, 16 * cache, core::kMostTuningValue});
      add(kTileBytes, 0, {0, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10});
      add(kPrefetchBytes, 0, {0, 128, 256, 512, 1 << 10, 2 << 10, 4 << 10});
    }
    std::vector<std::uint64_t> threads;
    for (unsigned count = 1; count < own.thread_count; count *= 2) threads.push_back(count);
    if (own.thread_count > 1) add(kThreads, own.thread_count, threads);
    return parameters;
  }

  core::TuningIdentity tuning_identity() const override {
    return {"cpu", cpu_info("vendor_id"), describe_cpu(),
            fmt::format("kernel {}, executor {}, {} threads{}", kernel_.name, executor_->name(),
                        executor_->thread_count(), manner_)};
  }

  // The kernels are part of this build.
  std::string tuning_kernel_hash() const override {
    return core::tuning_hash(fmt::format("{}.{}.{} {} {}", TANDEM_VERSION_MAJOR, TANDEM_VERSION_MINOR,
                                         TANDEM_VERSION_PATCH, __VERSION__, kernel_.name));
  }

  void run(std::span<const Task> tasks, Control &control) override {
    std::uint64_t total = 0;
    for (const Task &task : tasks) total += moved_bytes(task, task.length_bytes);
    if (total < kInlineBytes) {
      const core::TaskNeeds needs(core::Budget::kCpu, control.needs());
      core::Hold hold(budget_, needs.get());
      hold.next_task();
      const core::RecordedRun recorded(timeline_, traits_.name, tasks);
      for (const Task &task : tasks)
        for (unsigned i = 0; i < prepared_of(task).whole.count(); ++i) {
          const Band band = prepared_of(task).whole[i];
          apply(task, band, task.offset_bytes, task.length_bytes, nullptr,
                task.mode == Mode::compare ? task.mismatches + band.first_row : nullptr);
        }
      // A flag rather than a count: threads with small calls must not fight over a cache line.
      if (kernel_calls_.load(std::memory_order_relaxed) == 0) kernel_calls_.store(1, std::memory_order_relaxed);
      return;
    }
    spread(tasks, total, control);
  }

  std::uint64_t kernel_calls() const noexcept override { return kernel_calls_.load(std::memory_order_relaxed); }

 private:
  std::shared_ptr<const core::Prepared> prepared_with(const core::Operator &what, const KnownOfModes &known) const {
    return std::make_shared<CpuPrepared>(kernel_, what, by_parity_ ? executor_->thread_count() : 1, known);
  }

  static std::shared_ptr<Known> known_from(const Values &values) {
    const auto known = std::make_shared<Known>();
    known->values = values;
    return known;
  }

  // Values beyond the limits are cut, unless beyond() throws.
  template <class Beyond>
  Values values_from(const core::TuningValues &tuned, const Beyond &beyond) const {
    Values values = own_values_;
    const auto take = [&](const char *name, auto *value, std::uint64_t least, std::uint64_t most) {
      const auto found = tuned.find(name);
      if (found == tuned.end()) return;
      if (found->second < least || found->second > most)
        beyond(fmt::format("{} = {} is not from {} to {}", name, found->second, least, most));
      *value = static_cast<std::remove_pointer_t<decltype(value)>>(std::clamp(found->second, least, most));
    };
    take(kChunkBytes, &values.chunk_bytes, kLeastTunedChunkBytes, kMostTunedChunkBytes);
    take(kOutOfCacheBytes, &values.out_of_cache_bytes, 0, UINT64_MAX);
    take(kTileBytes, &values.tile_bytes, 0, kMostTileBytes);
    take(kPrefetchBytes, &values.prefetch_bytes, 0, kMostPrefetchBytes);
    take(kThreads, &values.thread_count, 1, own_values_.thread_count);
    return values;
  }

  // What the tuning file says of matrices of this shape. Asked, and told to the log, once for each.
  std::shared_ptr<const Known> known_values(const core::Operator &what, Mode mode) {
    KnownShapes &shapes = shapes_.get();
    const std::lock_guard lock(shapes.mutex);
    const auto shape = std::make_tuple(mode, what.output_count(), what.input_count());
    if (const auto found = shapes.known.find(shape); found != shapes.known.end()) return found->second;
    core::TuningChoice choice = tuning_->find({identity_, kernel_hash_, mode, what.input_count(), what.output_count()});
    if (!choice.same_machine)  // another number of cores, other caches
      for (const char *name : {kThreads, kOutOfCacheBytes}) choice.values.erase(name);
    const auto known = known_from(values_from(choice.values, [](const std::string &) {}));
    if (!choice.reason.empty()) {
      constexpr const char *kModes[] = {"coding", "adding", "comparing"};
      known->news = fmt::format("cpu: {} ({}, {}) with {}: {}", kModes[static_cast<std::size_t>(mode)],
                                what.input_count(), what.output_count(),
                                choice.values.empty() ? "the built-in values" : core::tuning_values_text(choice.values),
                                choice.reason);
    }
    return shapes.known.emplace(shape, known).first->second;
  }

  static const CpuPrepared &prepared_of(const Task &task) { return static_cast<const CpuPrepared &>(*task.prepared); }

  static std::uint64_t moved_bytes(const Task &task, std::uint64_t length_bytes) {
    return length_bytes * (task.prepared->rows() + task.prepared->columns());
  }

  // A chunk: a byte range of a task, for the rows of one band.
  struct Chunk {
    const Task *task;
    Band band;
    std::uint64_t offset_bytes, length_bytes;
  };

  class Chunks final : public Batch {
   public:
    explicit Chunks(CpuBackend &backend) : backend_(backend) {}
    void run_item(std::size_t item) noexcept override {
      const Chunk &chunk = chunks[item];
      if (backend_.timeline_ == nullptr) return code(chunk);
      const double start = base::Timeline::now();
      code(chunk);
      backend_.record(chunk, start, std::this_thread::get_id() == caller_ ? "caller" : "worker");
    }
    std::vector<Chunk> chunks;

   private:
    void code(const Chunk &chunk) noexcept {
      const auto &[task, band, offset_bytes, length_bytes] = chunk;
      const Values &values = prepared_of(*task).values(task->mode);
      if (task->mode != Mode::compare) return backend_.apply(*task, band, offset_bytes, length_bytes, &values, nullptr);
      Mismatch found[kMostRows];
      backend_.apply(*task, band, offset_bytes, length_bytes, &values, found);
      const std::lock_guard lock(mutex_);
      for (std::uint32_t r = 0; r < band.row_count; ++r) task->mismatches[band.first_row + r].merge(found[r]);
    }

    CpuBackend &backend_;
    const std::thread::id caller_ = std::this_thread::get_id();
    std::mutex mutex_;  // the records of mismatches
  };

  void record(const Chunk &chunk, double start_seconds, std::string_view role) noexcept {
    const Task &task = *chunk.task;
    const std::uint64_t of_all_rows = chunk.length_bytes * task.prepared->columns();
    timeline_->add({timeline_->row_of_this_thread(traits_.name, role), core::TaskText(task).text(), chunk.offset_bytes,
                    chunk.offset_bytes + chunk.length_bytes,
                    of_all_rows * chunk.band.row_count / std::max(task.prepared->rows(), 1U), start_seconds,
                    base::Timeline::now()});
  }

  void spread(std::span<const Task> tasks, std::uint64_t total_bytes, Control &control) {
    Chunks batch(*this);
    unsigned threads = 1;
    for (const Task &task : tasks) {
      const CpuPrepared &prepared = prepared_of(task);
      const std::uint64_t width = std::uint64_t{prepared.rows()} + prepared.columns();
      if (width == 0) continue;
      const Known &known = prepared.known(task.mode);
      if (!known.news.empty() && !known.told.load(std::memory_order_relaxed) && !known.told.exchange(true))
        log_.say(TANDEM_LOG_INFO, known.news);
      const Values &values = known.values;
      threads = std::max(threads, values.thread_count);
      const std::uint64_t chunk_bytes = std::clamp(total_bytes / (kChunksPerThread * values.thread_count),
                                                   std::min(kLeastChunkBytes, values.chunk_bytes), values.chunk_bytes);
      if (prepared.parts && task.mode != Mode::compare) {  // partition parity: whole length, some outputs
        for (unsigned i = 0; i < prepared.parts->count(); ++i)
          batch.chunks.push_back({&task, (*prepared.parts)[i], task.offset_bytes, task.length_bytes});
        continue;
      }
      // Whole cache lines, so that no two threads write into one (where shards are aligned), and whole groups.
      const std::uint64_t grid = std::lcm(std::uint64_t{kCacheLine}, prepared.granularity_bytes());
      const std::uint64_t least = (kLeastStepBytes + grid - 1) / grid;
      const std::uint64_t step = std::max(chunk_bytes / width / grid, least) * grid;
      for (std::uint64_t done = 0; done < task.length_bytes; done += std::min(step, task.length_bytes - done))
        for (unsigned i = 0; i < prepared.whole.count(); ++i)
          batch.chunks.push_back(
              {&task, prepared.whole[i], task.offset_bytes + done, std::min(step, task.length_bytes - done)});
    }
    kernel_calls_.fetch_add(batch.chunks.size(), std::memory_order_relaxed);
    if (!executor_->run(batch, batch.chunks.size(), control, threads)) base::fail(TANDEM_ERROR_CANCELLED, "cancelled");
  }

  // values: null for a small run, whose bytes are in the cache or will be there. found: records of the band.
  void apply(const Task &task, const Band &band, std::uint64_t offset_bytes, std::uint64_t length_bytes,
             const Values *values, Mismatch *found) const noexcept {
    KernelCall call;
    call.tables = band.tables;
    call.inputs = reinterpret_cast<const std::uint8_t *const *>(task.inputs);
    call.outputs = reinterpret_cast<std::uint8_t *const *>(task.outputs) + band.first_row;
    call.offset_bytes = offset_bytes;
    call.length_bytes = length_bytes;
    call.rows = band.row_count;
    call.columns = task.prepared->columns();
    call.accumulate = task.mode == Mode::accumulate;
    call.out_of_cache = values != nullptr && moved_bytes(task, task.length_bytes) > values->out_of_cache_bytes;
    call.tile_bytes = values != nullptr ? values->tile_bytes : 0;
    call.prefetch_bytes = values != nullptr ? values->prefetch_bytes : 0;
    call.small_stack = false;
    if (task.mode == Mode::compare) return compare(call, band.step_bytes, found);
    if (call.length_bytes != 0) apply_blocks(call, band.step_bytes);
  }

  // Runs a call of all columns. Blocks after the first one add to what the ones before them wrote.
  void apply_blocks(const KernelCall &call, std::size_t step_bytes) const noexcept {
    if (call.columns <= kMostColumns) return kernel_.apply(call);  // not copied: that costs as much as 200 bytes
    KernelCall block = call;
    for (std::uint32_t first = 0; first < call.columns; first += kMostColumns) {
      block.tables = static_cast<const std::byte *>(call.tables) + first / kMostColumns * step_bytes;
      block.inputs = call.inputs + first;
      block.columns = std::min(kMostColumns, call.columns - first);
      kernel_.apply(block);
      block.accumulate = true;
    }
  }

  // Recomputes the outputs of `call` tile by tile and records where the stored ones differ.
  void compare(const KernelCall &call, std::size_t step_bytes, Mismatch *found) const noexcept {
    alignas(kCacheLine) std::uint8_t computed[kCompareBufferBytes];
    const std::size_t tile = std::min(kCompareTileBytes, kCompareBufferBytes / call.rows / kCacheLine * kCacheLine);
    std::uint8_t *outputs[kMostRows];
    KernelCall part = call;
    part.outputs = outputs;
    part.out_of_cache = false;
    for (std::size_t done = 0; done < call.length_bytes; done += tile) {
      part.offset_bytes = call.offset_bytes + done;
      part.length_bytes = std::min(tile, call.length_bytes - done);
      // The kernel adds the offset to inputs and outputs alike.
      for (std::uint32_t r = 0; r < call.rows; ++r) outputs[r] = moved(computed + r * tile, part.offset_bytes);
      apply_blocks(part, step_bytes);
      for (std::uint32_t r = 0; r < call.rows; ++r) {
        const std::uint8_t *stored = call.outputs[r] + part.offset_bytes, *right = computed + r * tile;
        if (std::memcmp(stored, right, part.length_bytes) != 0)
          found[r].merge(differences(stored, right, part.length_bytes, part.offset_bytes));
      }
    }
  }

  // A pointer from which `offset_bytes` lead to `to`: as a number, since it points to nothing.
  static std::uint8_t *moved(std::uint8_t *to, std::uint64_t offset_bytes) noexcept {
    return reinterpret_cast<std::uint8_t *>(reinterpret_cast<std::uintptr_t>(to) - offset_bytes);
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
  std::string manner_;
  Values own_values_;
  std::shared_ptr<const Known> own_;
  core::Traits traits_;

  base::Log log_;
  core::Budget *budget_;              // null: nothing is counted
  const core::TuningSource *tuning_;  // null: nothing is known
  base::Timeline *timeline_;          // null: none is asked for
  core::TuningIdentity identity_;     // with tuning_
  std::string kernel_hash_;
  struct KnownShapes {
    std::mutex mutex;
    std::map<std::tuple<Mode, unsigned, unsigned>, std::shared_ptr<const Known>> known;  // at most some 100,000
  };
  base::ForkLocal<KnownShapes> shapes_;
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

}  // namespace

std::unique_ptr<core::Backend> make_backend(const Options &options, const base::Log &log, Choice *choice_out) {
  const CpuFeatures features = cpu_features();
  const Kernel *kernel = select_kernel(features, options.kernel.empty() ? nullptr : options.kernel.c_str());
  if (kernel == nullptr) {
    base::fail(TANDEM_ERROR_UNAVAILABLE,
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
  *choice_out = {kernel->name, executor->name(), executor->thread_count(), kInlineBytes};
  log.say(TANDEM_LOG_INFO, fmt::format("cpu: kernel {} ({}), executor {}, {} thread{}", kernel->name,
                                       options.kernel.empty() ? "the best this CPU has" : "as asked", executor->name(),
                                       executor->thread_count(), executor->thread_count() == 1 ? "" : "s"));
  const bool by_parity = options.partition == TANDEM_PARTITION_PARITY;
  const std::string manner =
      fmt::format("{}{}{}", by_parity ? ", partition parity" : "",
                  executor_options.dynamic_schedule ? ", schedule dynamic" : "", options.pin_threads ? ", pinned" : "");
  return std::make_unique<CpuBackend>(*kernel, std::move(executor), by_parity, manner, log, options.budget,
                                      options.tuning, options.timeline);
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
  const std::string model = cpu_info("model name");
  return model.empty() ? "unknown CPU" : model;
}

}  // namespace tandem::cpu
