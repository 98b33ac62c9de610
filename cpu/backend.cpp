// SPDX-License-Identifier: Apache-2.0
// The CPU behind the Backend interface: chooses kernel and executor, cuts a run into chunks and spreads them.
#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <numeric>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "base/rounding.hpp"
#include "base/text.hpp"
#include "core/backend.hpp"
#include "core/budget.hpp"
#include "core/recorded_run.hpp"
#include "core/tuning.hpp"
#include "cpu/cores.hpp"
#include "cpu/executors/executor.hpp"
#include "cpu/factory.hpp"
#include "cpu/gf16.hpp"
#include "cpu/gf8.hpp"
#include "cpu/kernels/kernel.hpp"
#include "cpu/memory.hpp"
#include "cpu/packets.hpp"
#include "cpu/powers.hpp"

namespace tandem::cpu {
namespace {

using core::Control;
using core::Mismatch;
using core::Mode;
using core::Task;

// One chunk of a spread run, inputs and outputs together. Small chunks let cancel and budget take effect soon. Several
// threads get a few each, so that all finish together. Large chunks make claiming cheap.
constexpr std::uint64_t kLeastChunkBytes = 64 << 10;
constexpr std::uint64_t kChunksPerThread = 4;
// The first chunk of a run: a sample of the rest. The caller takes it before its workers have begun.
constexpr std::uint64_t kSampleBytes = 32 << 10;

// Limits for values from a file. All values within them are safe.
// a cancel waits for one chunk
constexpr std::uint64_t kLeastTunedChunkBytes = 16 << 10, kMostTunedChunkBytes = 64 << 20;
constexpr std::uint64_t kMostTileBytes = 1 << 20, kMostPrefetchBytes = 64 << 10;

constexpr const char *kChunkBytes = "chunk_bytes", *kOutOfCacheBytes = "out_of_cache_bytes", *kTileBytes = "tile_bytes",
                     *kPrefetchBytes = "prefetch_bytes", *kThreads = "threads";

class CpuBackend final : public core::Backend, public core::Tunable {
 public:
  // `manner`: how the executor works, if that is not the default.
  CpuBackend(const Kernel &kernel, std::unique_ptr<Executor> executor, RunBy technique, std::string manner,
             const base::Log &log, core::Budget *budget, const core::TuningSource *tuning, base::Timeline *timeline)
      : kernel_(kernel),
        executor_(std::move(executor)),
        technique_(technique),
        manner_(std::move(manner)),
        log_(log),
        budget_(budget),
        tuning_(tuning),
        timeline_(timeline) {
    traits_.name = "cpu";
    traits_.memories = {core::MemoryKind::host};
    const Caches caches = cache_sizes();
    l1_ways_ = caches.l1_ways;
    own_values_.out_of_cache_bytes = caches.l2_bytes;
    own_values_.thread_count = executor_->thread_count();
    own_ = known_from(own_values_);
    if (tuning_ == nullptr) return;
    identity_ = tuning_identity();
    kernel_hash_ = tuning_kernel_hash();
  }

  const core::Traits &traits() const noexcept override { return traits_; }

  std::shared_ptr<const core::Prepared> prepare(const core::Operator &what) override {
    // Values were measured with operators on bytes.
    return prepared_with(what, tuning_ != nullptr && what.field() == core::Field::gf8
                                   ? known_values(what)
                                   : KnownOfModes{own_.get(), own_.get(), own_.get()});
  }

  void check_technique(const core::Operator &what) const override { cpu::check_technique(what, technique_); }

  core::Tunable *tunable() noexcept override { return this; }
  std::shared_ptr<const core::Prepared> prepare_tuned(const core::Operator &what,
                                                      const core::TuningValues &tuned) override {
    check_technique(what);
    const std::shared_ptr<const Known> known = known_from(
        values_from(tuned, [](const std::string &why) { base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "cpu: " + why); }));
    return prepared_with(what, {known.get(), known.get(), known.get()}, known);
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
    return {"cpu", cpu_vendor({}), describe_cpu(),
            base::text("kernel ", kernel_.name, ", executor ", executor_->name(), ", ", executor_->thread_count(),
                       " threads", manner_)};
  }

  // The kernels are part of this build.
  std::string tuning_kernel_hash() const override {
    return core::tuning_hash(base::text(TANDEM_VERSION_MAJOR, ".", TANDEM_VERSION_MINOR, ".", TANDEM_VERSION_PATCH, " ",
                                        __VERSION__, " ", kernel_.name));
  }

  void run(std::span<const Task> tasks, Control &control) override {
    const bool is_counted = timeline_ != nullptr || (budget_ != nullptr && budget_->is_limited());
    // Most calls: one kernel call and nothing else.
    if (tasks.size() == 1 && !is_counted && is_one_kernel_call(inline_call(tasks[0])) &&
        moved_bytes(tasks[0], tasks[0].length_bytes) < kInlineBytes) {
      kernel_.apply(kernel_call(inline_call(tasks[0]), prepared_of(tasks[0]).tables_of_one_call(), l1_ways_));
      return count_inline_calls();
    }
    run_any(tasks, control, is_counted);
  }

  std::uint64_t kernel_calls() const noexcept override { return kernel_calls_.load(std::memory_order_relaxed); }

 private:
  [[gnu::noinline]] void run_any(std::span<const Task> tasks, Control &control, bool is_counted) {
    std::uint64_t total = 0;
    for (const Task &task : tasks) total += moved_bytes(task, task.length_bytes);
    if (total >= kInlineBytes) return spread(tasks, total, control);
    if (!is_counted) return run_inline(tasks);
    const core::TaskNeeds needs(core::Budget::kCpu, control.needs());
    core::Hold hold(budget_, needs.get());
    hold.next_task();
    const core::RecordedRun recorded(timeline_, traits_.name, tasks);
    run_inline(tasks);
  }

  // Small runs, on the calling thread.
  void run_inline(std::span<const Task> tasks) {
    std::size_t bytes = 0;
    for (const Task &task : tasks)
      if (prepared_of(task).tables_of_one_call() == nullptr)
        bytes = std::max(bytes, prepared_of(task).scratch_bytes(inline_call(task)));
    std::byte *const scratch = reserve_scratch(bytes);
    for (const Task &task : tasks) apply(inline_call(task), scratch, task.mismatches);
    count_inline_calls();
  }

  // A flag instead of a count: threads with small calls must not compete for a cache line.
  void count_inline_calls() noexcept {
    if (kernel_calls_.load(std::memory_order_relaxed) == 0) kernel_calls_.store(1, std::memory_order_relaxed);
  }

  std::shared_ptr<const core::Prepared> prepared_with(const core::Operator &what, const KnownOfModes &known,
                                                      std::shared_ptr<const Known> tuned = nullptr) const {
    switch (what.field()) {
      case core::Field::gf2:
        return std::make_shared<PacketOperator>(kernel_, what, technique_ != RunBy::matrix, known, std::move(tuned));
      case core::Field::gf16:
        if (const auto *powers = std::get_if<core::Powers16>(&what.form()))
          if (runs_transforms(kernel_, *powers, technique_))
            return std::make_shared<PowersOperator>(*kernel_.gf16, what, known, std::move(tuned));
        return std::make_shared<Gf16Operator>(*kernel_.gf16, what, known, std::move(tuned));
      default:
        return std::make_shared<Gf8Operator>(kernel_, l1_ways_, what, technique_, known, std::move(tuned));
    }
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
        beyond(base::text(name, " = ", found->second, " is not from ", least, " to ", most));
      *value = static_cast<std::remove_pointer_t<decltype(value)>>(std::clamp(found->second, least, most));
    };
    take(kChunkBytes, &values.chunk_bytes, kLeastTunedChunkBytes, kMostTunedChunkBytes);
    take(kOutOfCacheBytes, &values.out_of_cache_bytes, 0, UINT64_MAX);
    take(kTileBytes, &values.tile_bytes, 0, kMostTileBytes);
    take(kPrefetchBytes, &values.prefetch_bytes, 0, kMostPrefetchBytes);
    take(kThreads, &values.thread_count, 1, own_values_.thread_count);
    return values;
  }

  // The values of the tuning file for matrices of this shape. Looked up, and logged, once for each.
  KnownOfModes known_values(const core::Operator &what) {
    KnownShapes &shapes = shapes_.get();
    const std::lock_guard lock(shapes.mutex);
    const std::pair shape(what.output_count(), what.input_count());
    auto found = shapes.known.find(shape);
    if (found == shapes.known.end())
      found = shapes.known
                  .emplace(shape,
                           std::array{ask(what, Mode::assign), ask(what, Mode::accumulate), ask(what, Mode::compare)})
                  .first;
    return {found->second[0].get(), found->second[1].get(), found->second[2].get()};
  }

  std::shared_ptr<const Known> ask(const core::Operator &what, Mode mode) const {
    core::TuningChoice choice = tuning_->find({identity_, kernel_hash_, mode, what.input_count(), what.output_count()});
    if (!choice.same_machine)  // another number of cores, other caches
      for (const char *name : {kThreads, kOutOfCacheBytes}) choice.values.erase(name);
    const auto known = known_from(values_from(choice.values, [](const std::string &) {}));
    if (!choice.reason.empty()) {
      constexpr const char *kModes[] = {"coding", "adding", "comparing"};
      known->news = base::text("cpu: ", kModes[static_cast<std::size_t>(mode)], " (", what.input_count(), ", ",
                               what.output_count(), ") with ",
                               choice.values.empty() ? "the built-in values" : core::tuning_values_text(choice.values),
                               ": ", choice.reason);
    }
    return known;
  }

  static const CpuPrepared &prepared_of(const Task &task) { return static_cast<const CpuPrepared &>(*task.prepared); }

  static std::uint64_t moved_bytes(const Task &task, std::uint64_t length_bytes) {
    return length_bytes * (task.prepared->rows() + task.prepared->columns());
  }

  static bool is_one_kernel_call(const OperatorCall &call) noexcept {
    return prepared_of(*call.task).tables_of_one_call() != nullptr && call.task->mode != Mode::compare &&
           call.length_bytes != 0 && !call.out_of_cache;
  }

  // Its bytes are in the cache, or will be.
  static OperatorCall inline_call(const Task &task) noexcept { return {&task, task.offset_bytes, task.length_bytes}; }

  // Without a virtual call where one kernel call is all.
  void apply(const OperatorCall &call, std::byte *scratch, Mismatch *found) const noexcept {
    const CpuPrepared &prepared = prepared_of(*call.task);
    if (is_one_kernel_call(call)) return kernel_.apply(kernel_call(call, prepared.tables_of_one_call(), l1_ways_));
    prepared.apply(call, scratch, found);
  }

  // Scratch for a chunk. The records of a compare lie in front of that of the operator.
  static std::size_t scratch_bytes(const OperatorCall &call) noexcept {
    if (is_one_kernel_call(call)) return 0;
    return record_bytes(*call.task) + prepared_of(*call.task).scratch_bytes(call);
  }
  static std::size_t record_bytes(const Task &task) noexcept {
    return rounded_up(task.mode == Mode::compare ? task.prepared->rows() * sizeof(Mismatch) : 0);
  }

  // Ensures that the calling thread can run any part of a task, even if other threads lack memory.
  static std::byte *reserve_scratch(std::size_t bytes) {
    if (bytes == 0) return nullptr;
    std::byte *const scratch = thread_scratch(bytes);
    if (scratch == nullptr)
      base::fail(TANDEM_ERROR_OUT_OF_MEMORY, base::text("cpu: no ", bytes, " bytes of memory for scratch"));
    return scratch;
  }

  // A byte range of a task.
  struct Chunk {
    OperatorCall call;
    bool is_left = false;  // its thread had no memory for scratch
  };

  class Chunks final : public Batch {
   public:
    explicit Chunks(CpuBackend &backend) : backend_(backend) {}
    void run_item(std::size_t item) noexcept override {
      Chunk &chunk = chunks[item];
      if (backend_.timeline_ == nullptr) return code(chunk);
      const double start = base::Timeline::now();
      code(chunk);
      if (chunk.is_left) return;
      backend_.record(chunk.call, start, std::this_thread::get_id() == caller_ ? "caller" : "worker");
    }
    double first_item_share() const noexcept override { return first_share; }
    // Chunks of one task lie side by side.
    std::size_t join_rest(std::size_t chunk_count) noexcept override {
      std::size_t last = 1;
      for (std::size_t i = 2; i < chunk_count; ++i) {
        OperatorCall joined = chunks[last].call;
        const Task &task = *joined.task;
        joined.length_bytes += chunks[i].call.length_bytes;
        if (&task == chunks[i].call.task && scratch_bytes(joined) <= most_scratch_bytes &&
            moved_bytes(task, joined.length_bytes) <= prepared_of(task).known(task.mode).values.chunk_bytes)
          chunks[last].call = joined;
        else
          chunks[++last] = chunks[i];
      }
      chunks.resize(std::min(last + 1, chunks.size()));
      return chunks.size();
    }
    std::vector<Chunk> chunks;
    double first_share = 0;
    std::size_t most_scratch_bytes = 0;  // of a chunk

   private:
    void code(Chunk &chunk) noexcept {
      const Task &task = *chunk.call.task;
      const std::size_t bytes = scratch_bytes(chunk.call);
      std::byte *const scratch = bytes == 0 ? nullptr : thread_scratch(bytes);
      chunk.is_left = bytes != 0 && scratch == nullptr;
      if (chunk.is_left) return;
      if (task.mode != Mode::compare) return backend_.apply(chunk.call, scratch, nullptr);
      auto *const found = reinterpret_cast<Mismatch *>(scratch);
      const unsigned count = task.prepared->rows();
      std::uninitialized_fill_n(found, count, Mismatch());
      backend_.apply(chunk.call, scratch + record_bytes(task), found);
      if (std::none_of(found, found + count, [](const Mismatch &each) { return each.byte_count != 0; })) return;
      const std::lock_guard lock(mutex_);
      for (unsigned r = 0; r < count; ++r) task.mismatches[r].merge(found[r]);
    }

    CpuBackend &backend_;
    const std::thread::id caller_ = std::this_thread::get_id();
    std::mutex mutex_;  // the records of mismatches
  };

  void record(const OperatorCall &call, double start_seconds, std::string_view role) noexcept {
    const Task &task = *call.task;
    timeline_->add({timeline_->row_of_this_thread(traits_.name, role), core::TaskText(task).text(), call.offset_bytes,
                    call.offset_bytes + call.length_bytes, call.length_bytes * task.prepared->columns(), start_seconds,
                    base::Timeline::now()});
  }

  // Chunks of a task with a width above 0. In front of all others, a small one may be a sample of the rest.
  void cut(const Task &task, std::uint64_t total_bytes, Chunks &batch) const {
    const CpuPrepared &prepared = prepared_of(task);
    const Values &values = prepared.known(task.mode).values;
    const std::uint64_t width = std::uint64_t{prepared.rows()} + prepared.columns();
    const std::uint64_t parts = values.thread_count > 1 ? kChunksPerThread * values.thread_count : 1;
    const std::uint64_t chunk_bytes =
        std::clamp(total_bytes / parts, std::min(kLeastChunkBytes, values.chunk_bytes), values.chunk_bytes);
    // Whole cache lines, so that no two threads write to one (if shards are aligned), and whole groups.
    const std::uint64_t grid = std::lcm(std::uint64_t{kCacheLine}, prepared.granularity_bytes());
    const std::uint64_t least = base::divide_up(prepared.least_range_bytes(), grid);
    std::uint64_t step = std::max(base::divide_up(chunk_bytes / width, grid), least) * grid;
    OperatorCall call = {&task, task.offset_bytes, std::min(step, task.length_bytes)};
    if (task.mode != Mode::compare)
      call.out_of_cache = moved_bytes(task, task.length_bytes) > values.out_of_cache_bytes;
    call.tile_bytes = values.tile_bytes;
    call.prefetch_bytes = values.prefetch_bytes;
    batch.most_scratch_bytes = std::max(batch.most_scratch_bytes, scratch_bytes(call));
    if (batch.chunks.empty() && values.thread_count > 1) {
      call.length_bytes = std::min(call.length_bytes, std::max(kSampleBytes / width / grid, least) * grid);
      batch.first_share = static_cast<double>(call.length_bytes * width) / static_cast<double>(total_bytes);
    }
    // Chunks of equal length: threads with as many of them end together.
    const std::uint64_t end = task.offset_bytes + task.length_bytes, rest = task.length_bytes - call.length_bytes;
    const std::uint64_t count = std::max<std::uint64_t>(base::divide_up(rest, step), 1);
    step = std::max(base::divide_up(base::divide_up(rest, count), grid), least) * grid;
    if (batch.chunks.empty()) batch.chunks.reserve(count + 1);
    while (call.offset_bytes < end) {
      batch.chunks.push_back({call});
      call.offset_bytes += call.length_bytes;
      call.length_bytes = std::min(step, end - call.offset_bytes);
    }
  }

  void spread(std::span<const Task> tasks, std::uint64_t total_bytes, Control &control) {
    Chunks batch(*this);
    unsigned threads = 1;
    for (const Task &task : tasks) {
      if (task.prepared->rows() + task.prepared->columns() == 0) continue;
      const Known &known = prepared_of(task).known(task.mode);
      if (!known.news.empty() && !known.told.load(std::memory_order_relaxed) && !known.told.exchange(true))
        log_.say(TANDEM_LOG_INFO, known.news);
      threads = std::max(threads, known.values.thread_count);
      cut(task, total_bytes, batch);
    }
    reserve_scratch(batch.most_scratch_bytes);
    kernel_calls_.fetch_add(batch.chunks.size(), std::memory_order_relaxed);
    const auto run = [&](unsigned on_threads) {
      if (!executor_->run(batch, batch.chunks.size(), control, on_threads))
        base::fail(TANDEM_ERROR_CANCELLED, "cancelled");
    };
    run(threads);
    if (batch.most_scratch_bytes == 0) return;
    std::erase_if(batch.chunks, [](const Chunk &chunk) { return !chunk.is_left; });
    if (!batch.chunks.empty()) run(1);  // the calling thread has memory from reserve_scratch
  }

  const Kernel &kernel_;
  std::unique_ptr<Executor> executor_;
  RunBy technique_;
  std::string manner_;
  Values own_values_;
  std::uint32_t l1_ways_;
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
    std::map<std::pair<unsigned, unsigned>, std::array<std::shared_ptr<const Known>, kModeCount>>
        known;  // at most some 30,000; in the order of Mode
  };
  base::ForkLocal<KnownShapes> shapes_;
  std::atomic<std::uint64_t> kernel_calls_{0};
};

std::string names_of_available_kernels() {
  std::vector<const char *> names;
  for (const KernelDescription &each : describe_kernels())
    if (each.available) names.push_back(each.name);
  return base::join(names, ", ");
}

std::unique_ptr<Executor> make_executor(const std::string &name, const ExecutorOptions &options) {
  if (name == "openmp") return make_openmp_executor(options);
  const bool is_serial = name.empty() ? options.thread_count == 1 : name == "serial";
  return is_serial ? make_serial_executor(options) : make_pthread_executor(options);
}

}  // namespace

std::unique_ptr<core::Backend> make_backend(const Options &options, const base::Log &log, Decisions *choice_out) {
  const CpuFeatures features = cpu_features();
  const Kernel *kernel = select_kernel(features, options.kernel.empty() ? nullptr : options.kernel.c_str());
  if (kernel == nullptr) {
    base::fail(TANDEM_ERROR_UNAVAILABLE, base::text("CPU kernel \"", options.kernel,
                                                    "\" is unknown or needs more than this CPU has; this CPU runs: ",
                                                    names_of_available_kernels()));
  }
  ExecutorOptions executor_options;
  executor_options.thread_count = options.thread_count != 0 ? options.thread_count : allowed_core_count();
  executor_options.cores = options.cores;
  executor_options.budget = options.budget;
  if (options.executor == "serial") executor_options.thread_count = 1;
  std::unique_ptr<Executor> executor = make_executor(options.executor, executor_options);
  *choice_out = {kernel->name, executor->name(), executor->thread_count()};
  log.say(TANDEM_LOG_INFO, "cpu: kernel ", kernel->name, " (",
          options.kernel.empty() ? "the best this CPU has" : "as asked", "), executor ", executor->name(), ", ",
          executor->thread_count(), " thread", executor->thread_count() == 1 ? "" : "s");
  const RunBy technique = options.technique.empty()       ? RunBy::cost
                          : options.technique == "matrix" ? RunBy::matrix
                                                          : RunBy::transform;
  const std::string manner = base::text(options.cores.empty() ? "" : ", pinned",
                                        options.technique.empty() ? "" : ", technique " + options.technique);
  return std::make_unique<CpuBackend>(*kernel, std::move(executor), technique, manner, log, options.budget,
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

std::string describe_cpu() { return cpu_model({}); }

}  // namespace tandem::cpu
