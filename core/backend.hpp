// SPDX-License-Identifier: Apache-2.0
// The one interface of everything that can code: the CPU, each device, the hybrid of several, and in tests a fake. A
// backend applies a prepared operator to byte ranges of shards. It knows nothing of k, m, erasures or files.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/operator.hpp"
#include "core/tuning.hpp"
#include "tandem/tandem.h"

namespace tandem::core {

class Budget;           // core/budget.hpp
struct Need;            // the same
struct MismatchRanges;  // core/mismatch_ranges.hpp

enum class Mode {
  assign,      // outputs = operator(inputs)
  accumulate,  // outputs ^= operator(inputs)
  compare      // outputs are only read; their differences from operator(inputs) are recorded
};

const char *name_of(Mode mode) noexcept;  // "assign"

enum class MemoryKind : std::int32_t {
  host = TANDEM_MEMORY_HOST,
  cuda = TANDEM_MEMORY_CUDA,
  opencl = TANDEM_MEMORY_OPENCL
};

// The result of a compare for one output. A backend merges what its threads found; callers start with the default.
struct Mismatch {
  static constexpr std::uint64_t kNone = UINT64_MAX;
  std::uint64_t byte_count = 0;
  std::uint64_t first_bytes = kNone;  // offset in the shard of the first difference

  void merge(const Mismatch &other) noexcept {
    byte_count += other.byte_count;
    if (other.first_bytes < first_bytes) first_bytes = other.first_bytes;
  }
};

// One way to run an operator, and what it costs for one vector of each shard.
struct TechniqueCost {
  const char *name = "matrix";             // "transform", "syndromes, matrix", "syndromes, transform"; valid for ever
  std::uint32_t products = 0;              // of a vector by a coefficient. 0: not counted, because there is no choice
  double cost = 0, cost_out_of_cache = 0;  // estimated times, in products of the matrix
  bool is_used = true, is_used_out_of_cache = true;
};

// An operator in a backend's own form: tables, a compiled kernel. Immutable; many threads may use it. Backend::prepare
// makes it, and only that backend runs it. It may be destroyed after the backend (plans are kept in per-thread caches).
class Prepared {
 public:
  explicit Prepared(const Operator &of)
      : rows_(of.output_count()),
        columns_(of.input_count()),
        field_(of.field()),
        granularity_bytes_(of.granularity_bytes()),
        length_unit_bytes_(of.length_unit_bytes()) {}
  virtual ~Prepared();
  unsigned rows() const noexcept { return rows_; }        // outputs
  unsigned columns() const noexcept { return columns_; }  // inputs
  Field field() const noexcept { return field_; }
  // Ranges of shards are cut at multiples of this.
  std::uint64_t granularity_bytes() const noexcept { return granularity_bytes_; }
  // Shards are multiples of this long.
  std::uint64_t length_unit_bytes() const noexcept { return length_unit_bytes_; }

  // All techniques, the matrix first. One is used in cache and one out of cache. By default there is the matrix alone.
  virtual std::vector<TechniqueCost> techniques() const;
  // Runs that move more bytes than this are out of cache.
  virtual std::uint64_t out_of_cache_bytes(Mode mode) const;

  // Other backends applied the operator to `input_bytes` bytes of inputs. They count when this backend decides whether
  // a compiled kernel pays. Does nothing by default. Any thread.
  virtual void add_bytes_elsewhere(std::uint64_t input_bytes) const;

 private:
  unsigned rows_, columns_;
  Field field_;
  std::uint64_t granularity_bytes_, length_unit_bytes_;
};

// One operator, applied to the bytes [offset_bytes, offset_bytes + length_bytes) of one stripe's shards. Both are
// multiples of prepared->granularity_bytes(). At the end of the shards a multiple of length_unit_bytes() is enough.
// Plain pointers: the caller keeps all of it alive until the run is over.
struct Task {
  const Prepared *prepared;
  const std::byte *const *inputs;  // prepared->columns() shards
  std::byte *const *outputs;       // prepared->rows() shards
  std::uint64_t offset_bytes;
  std::uint64_t length_bytes;
  Mode mode;
  Mismatch *mismatches = nullptr;  // compare: prepared->rows() records, merged into
  MemoryKind memory = MemoryKind::host;
  void *queue = nullptr;  // device memory: the caller's stream (NULL: CUDA's legacy default stream) or queue
  // OpenCL memory, where pointers are cl_mem handles: the offset of each shard's byte 0 in its buffer; null = 0.
  const std::uint64_t *input_offsets = nullptr;
  const std::uint64_t *output_offsets = nullptr;
  // compare: where the differences lie; null: not wanted. A backend fills it in if it sees the places while it
  // compares. For the others core/verify.hpp compares again.
  MismatchRanges *ranges = nullptr;
};

// Protects the memory of a call that may end before its run does: a hybrid does not wait for a device that hangs. A run
// with a guard may use the caller's shards and records only between enter() and leave(), or between commit() and
// leave(). Exception: a device may read registered memory.
class Guard {
 public:
  virtual ~Guard();
  // False: the call is over, and the run must end. True: leave() must follow.
  virtual bool enter() noexcept = 0;
  // The next bytes of the run, in the order of its tasks, are ready; inputs and outputs are counted. The run must now
  // write those that it owns, and then leave(), unless it owns none: the others are done elsewhere. whole: it owns all
  // of them or none.
  struct Own {
    std::uint64_t skipped_bytes = 0;  // at the start, owned by others
    std::uint64_t bytes = 0;          // the next ones, to be written
  };
  virtual Own commit(std::uint64_t bytes, bool whole) noexcept = 0;
  virtual void leave() noexcept = 0;
};

// Shared by a run and the code that started it. A backend looks at it before each chunk.
class Control {
 public:
  // needs: what each task of the run holds besides the needs of its kind; they outlive the run. within_task: the run is
  // part of a task, and the thread of that task may hold other resources.
  explicit Control(std::span<const Need> needs = {}, bool within_task = false) noexcept
      : needs_(needs), is_within_task_(within_task) {}
  explicit Control(Guard &guard) noexcept : is_within_task_(false), guard_(&guard) {}

  std::span<const Need> needs() const noexcept { return needs_; }
  bool is_within_task() const noexcept { return is_within_task_; }
  Guard *guard() const noexcept { return guard_; }  // null: the caller waits for the end of the run
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const noexcept { return cancelled_.load(std::memory_order_relaxed); }

 private:
  const std::span<const Need> needs_;
  const bool is_within_task_;
  Guard *const guard_ = nullptr;
  std::atomic<bool> cancelled_{false};
};

// A run under way. wait() returns when it is over, and throws the Error that ended it. The destructor waits too. It
// belongs to the process that submitted it: a child after fork can only abandon it.
class Ticket {
 public:
  virtual ~Ticket();
  virtual void wait() = 0;
};

// Memory of a device, with a queue, as a program would get it from the device's driver. Belongs to the process that
// made it.
class DeviceMemory {
 public:
  virtual ~DeviceMemory();
  virtual MemoryKind kind() const noexcept = 0;
  virtual void *shards() const noexcept = 0;  // pointer for the tasks that use shards in it; each shard's place is an
                                              // offset
  virtual void *queue() const noexcept = 0;
  // Wait for the queue first, and then until the copy is done. The range must lie in the memory. Throw Error.
  virtual void write(std::uint64_t at_bytes, const std::byte *from, std::uint64_t bytes) = 0;
  virtual void read(std::uint64_t at_bytes, std::byte *to, std::uint64_t bytes) = 0;
};

struct Traits {
  std::string name;                  // "cpu", "cuda:0"
  unsigned lanes = 1;                // runs that make progress at the same time
  std::vector<MemoryKind> memories;  // allowed values of Task::memory
};

class Backend {
 public:
  virtual ~Backend();

  virtual const Traits &traits() const noexcept = 0;

  // Converts an operator into this backend's form. It may have no inputs and no outputs. Throws Error, also UNSUPPORTED
  // with the backend's name for a form or a number of shards that it cannot run.
  virtual std::shared_ptr<const Prepared> prepare(const Operator &what) = 0;

  // Throws Error (UNSUPPORTED) if the user has asked for a technique that this operator lacks. Called for operators of
  // a user's plan or call; a verify may prepare other operators to confirm a suspect. By default there are no
  // techniques.
  virtual void check_technique(const Operator &what) const;

  // What autotune can do with it. By default nothing: null.
  virtual Tunable *tunable() noexcept { return nullptr; }
  // The backend that autotune tunes in its place. By default itself.
  virtual Backend &tuned() noexcept { return *this; }

  // Runs all tasks, in any order and overlapping, and returns when they are over. Small runs use the calling thread,
  // without allocation or lock. Tasks do not depend on each other. Throws Error: CANCELLED if control cancelled before
  // the last chunk, DEVICE, OUT_OF_MEMORY. Devices obey the control's guard; the CPU is never given one.
  virtual void run(std::span<const Task> tasks, Control &control) = 0;

  // Starts the tasks and returns. The default runs them on a thread of their own.
  virtual std::unique_ptr<Ticket> submit(std::span<const Task> tasks, Control &control);

  // Called when a plan is made: prepares to run it on this kind of memory without compiling or allocating. Long work
  // runs in the background, unless the plan `waits` for it. Does nothing by default. Throws Error.
  virtual void make_ready(const Prepared &prepared, Mode mode, MemoryKind memory, bool waits = true);

  // Throws Error: UNSUPPORTED if the backend is no device (the default), OUT_OF_MEMORY.
  virtual std::shared_ptr<DeviceMemory> device_memory(std::uint64_t bytes);

  // The element of each of a task's shards at one offset: element_bytes(task.prepared->field()) bytes of each. The
  // default reads host memory. Throws Error.
  virtual void read_column(const Task &task, std::uint64_t at_bytes, std::uint8_t *inputs_out,
                           std::uint8_t *outputs_out);

  // Kernel invocations so far, if the backend counts them: proof that it ran.
  virtual std::uint64_t kernel_calls() const noexcept { return 0; }
};

}  // namespace tandem::core
