// The resources budget: how much of a named, purely logical resource running work may hold at once (DESIGN: the
// `resources` clause). Here "cpu" is counted; of the others only the amount is kept, for the backends that count them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tandem::core {

enum class Resource {
  cpu,         // "cpu": concurrent CPU tasks
  gpu,         // "gpu": concurrent tasks on devices, of a hybrid
  pinned_mib,  // "pinned_mib": MiB of staging memory, of a hybrid
  opencl_mib,  // "opencl_mib": MiB of buffers on an OpenCL device
  cuda_mib     // "cuda_mib": the same on a CUDA device
};
inline constexpr std::size_t kResourceCount = 5;
const char *resource_name(Resource resource) noexcept;

// Units are counted per process: in a forked child nothing is held, whatever the parent's threads held.
class Budget {
 public:
  Budget();
  ~Budget();

  // Amounts such as "cpu=5,gpu=2"; throws Error (INVALID_ARGUMENT) naming what is unknown, zero or malformed, and then
  // has changed nothing. "" changes nothing.
  void set_all(const std::string &amounts);

  // Throws Error (INVALID_ARGUMENT): unknown name, amount 0. Effective within one chunk, also for waiting threads.
  void set(const std::string &name, std::uint64_t amount);

  std::uint64_t amount(Resource resource) const noexcept;  // UINT64_MAX when not set

  // One unit of "cpu". acquire blocks (never spins) until there is one, first come first served; without a cap it takes
  // no lock. Not to be called by a thread that holds one: with a cap of 1 it would wait for itself.
  void acquire_cpu();
  bool try_acquire_cpu() noexcept;
  void release_cpu() noexcept;

  // For a thread that holds a unit and has more to do, between two items: true = go on with the unit. false = it has
  // been given back, because the amount was lowered or because others have waited for a turn.
  bool keep_cpu() noexcept;

  // Makes this process' counters, so that nothing above allocates any more. After fork the first call allocates.
  void make_ready();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// One thread's unit over a run of items.
class CpuUnit {
 public:
  explicit CpuUnit(Budget *budget) noexcept : budget_(budget) {}  // null: no budget
  ~CpuUnit() {
    if (held_) budget_->release_cpu();
  }
  CpuUnit(const CpuUnit &) = delete;
  CpuUnit &operator=(const CpuUnit &) = delete;

  // To be called before each item. May block.
  void next_item() {
    if (budget_ == nullptr || (held_ && budget_->keep_cpu())) return;
    held_ = false;
    budget_->acquire_cpu();
    held_ = true;
  }

 private:
  Budget *budget_;
  bool held_ = false;
};

}  // namespace tandem::core
