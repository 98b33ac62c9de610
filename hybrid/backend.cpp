// SPDX-License-Identifier: Apache-2.0
// The Backend made of Backends.

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "base/signals.hpp"
#include "base/text.hpp"
#include "core/recorded_run.hpp"
#include "hybrid/runtime/prepared.hpp"
#include "hybrid/runtime/runtime.hpp"

namespace tandem::hybrid {
namespace {

using core::Control;
using core::MemoryKind;
using core::Task;

class HybridBackend final : public core::Backend {
 public:
  HybridBackend(Options options, const base::Log &log) : options_(std::move(options)), log_(log) {
    if (options_.members.empty()) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "hybrid: no device is named");
    if (!options_.members.front().is_cpu) options_.inline_bytes = 0;
    traits_of_members_ = traits_for(options_.members, options_.name);
    traits_.store(&traits_of_members_);
  }

  ~HybridBackend() override {
    Shared *shared = shared_.get_if_made();  // in a child the parent's threads do not exist
    if (shared == nullptr) return;
    if (shared->search.joinable()) shared->search.join();
    if (shared->runtime != nullptr) shared->runtime->stop();
  }

  const core::Traits &traits() const noexcept override { return *traits_.load(std::memory_order_acquire); }

  void check_technique(const core::Operator &what) const override { small().check_technique(what); }

  std::shared_ptr<const core::Prepared> prepare(const core::Operator &what) override {
    auto prepared = std::make_shared<HybridPrepared>(what, small().prepare(what));
    // A member that was asked for by name must exist when the first operator is prepared. If a device is lost later, or
    // in a child, the others do its work.
    if (was_complete_.load(std::memory_order_relaxed) || !is_shared(*prepared)) return prepared;
    for (std::size_t i = 0; i < options_.members.size(); ++i)
      if (!options_.members[i].is_optional && !options_.members[i].is_cpu)
        prepared->of(i, *options_.members[i].backend);
    was_complete_.store(true, std::memory_order_relaxed);
    return prepared;
  }

  // The one for small runs. Devices are tuned by their own names.
  core::Backend &tuned() noexcept override { return small(); }

  void run(std::span<const Task> tasks, Control &control) override {
    if (tasks.size() == 1 && tasks.front().memory == MemoryKind::host &&
        moved_bytes(tasks.front()) < options_.inline_bytes)
      return run_small(tasks.front(), control);
    std::vector<Task> shared;
    std::uint64_t moved = 0;
    for (const Task &task : tasks) {
      if (task.length_bytes == 0 || task.prepared->rows() == 0) continue;
      if (task.memory != MemoryKind::host) {
        run_on_device(member_for(task.memory), {&task, 1}, control);
      } else if (task.prepared->columns() == 0 || !is_shared(*task.prepared)) {
        run_small(task, control);
      } else {
        shared.push_back(task);
        if (__builtin_add_overflow(moved, moved_bytes(task), &moved)) moved = UINT64_MAX;
      }
    }
    if (shared.empty()) return;
    if (moved < options_.inline_bytes) return small().run(tasks_of(0, small(), shared), control);
    look_for_more(moved);
    run_shared(shared, control);
  }

  std::unique_ptr<core::Ticket> submit(std::span<const Task> tasks, Control &control) override {
    const auto is_on_one_device = [&](const Task &task) {
      return task.memory != MemoryKind::host && task.memory == tasks.front().memory;
    };
    if (tasks.empty() || !std::all_of(tasks.begin(), tasks.end(), is_on_one_device))
      return Backend::submit(tasks, control);
    std::unique_ptr<core::Ticket> ticket;
    on_device(member_for(tasks.front().memory), tasks, control,
              [&](core::Backend &device, std::span<const Task> own) { ticket = device.submit(own, control); });
    return ticket;
  }

  void make_ready(const core::Prepared &prepared, core::Mode mode, MemoryKind memory, bool waits) override {
    if (memory == MemoryKind::host) {
      if (!waits) return;
      base::fail(TANDEM_ERROR_UNSUPPORTED,
                 "wait_for_kernel must be 0 for host memory on a hybrid: a device compiles while the others work");
    }
    const std::size_t index = member_for(memory);
    core::Backend &device = *runtime().member(index).backend;
    device.make_ready(*static_cast<const HybridPrepared &>(prepared).of(index, device), mode, memory, waits);
  }

  void read_column(const Task &task, std::uint64_t at_bytes, std::uint8_t *inputs_out,
                   std::uint8_t *outputs_out) override {
    if (task.memory == MemoryKind::host) return Backend::read_column(task, at_bytes, inputs_out, outputs_out);
    const std::size_t index = member_for(task.memory);
    core::Backend &device = *runtime().member(index).backend;
    Task own = task;
    own.prepared = hybrid_of(task).of(index, device).get();
    device.read_column(own, at_bytes, inputs_out, outputs_out);
  }

  std::uint64_t kernel_calls() const noexcept override {
    std::uint64_t calls = 0;
    if (Shared *shared = shared_.get_if_made()) {
      const std::lock_guard lock(shared->mutex);
      if (shared->runtime != nullptr) {  // with the discovered members
        for (std::size_t i = 0; i < shared->runtime->member_count(); ++i)
          calls += shared->runtime->member(i).backend->kernel_calls();
        return calls;
      }
    }
    for (const Member &each : options_.members) calls += each.backend->kernel_calls();
    return calls;
  }

 private:
  // The state of one process.
  struct Shared {
    std::mutex mutex;
    std::shared_ptr<Runtime> runtime;
    std::thread search;  // for more members
    bool has_searched = false;
    std::uint64_t moved_bytes = 0;  // by all runs
  };

  static std::uint64_t moved_bytes(const Task &task) noexcept {
    std::uint64_t moved = 0;
    const std::uint64_t shards = std::uint64_t{task.prepared->rows()} + task.prepared->columns();
    return __builtin_mul_overflow(shards, task.length_bytes, &moved) ? UINT64_MAX : moved;
  }

  static core::Traits traits_for(const std::vector<Member> &members, const std::string &name) {
    core::Traits traits;
    traits.name = name;
    traits.lanes = 0;
    for (const Member &each : members) {
      const core::Traits &own = each.backend->traits();
      traits.lanes += each.lanes;
      for (const MemoryKind memory : own.memories)
        if (std::find(traits.memories.begin(), traits.memories.end(), memory) == traits.memories.end())
          traits.memories.push_back(memory);
    }
    return traits;
  }

  Runtime &runtime() {
    Shared &state = shared_.get();
    const std::lock_guard lock(state.mutex);
    if (state.runtime == nullptr) state.runtime = std::make_shared<Runtime>(options_, log_);
    return *state.runtime;
  }

  core::Backend &small() const noexcept { return *options_.members.front().backend; }

  // Devices have no kernels for GF(2^16) and packets: the backend for small runs does all of it.
  static bool is_shared(const core::Prepared &prepared) { return prepared.field() == core::Field::gf8; }

  // Without an allocation.
  void run_small(Task task, Control &control) {
    task.prepared = hybrid_of(task).small.get();
    small().run({&task, 1}, control);
  }

  // The only member that can work does so as it does without a hybrid.
  void run_shared(std::span<const Task> tasks, Control &control) {
    Runtime &all = runtime();
    const std::optional<std::size_t> only = all.only_member();
    if (!only) return all.run(tasks, control);
    if (!all.member(*only).is_cpu) return run_on_device(*only, tasks, control);
    const double start = now();
    small().run(tasks_of(0, small(), tasks), control);
    all.ran_alone(tasks, now() - start);
  }

  // With the member's form of their operators.
  static std::vector<Task> tasks_of(std::size_t member, core::Backend &backend, std::span<const Task> tasks) {
    std::vector<Task> own(tasks.begin(), tasks.end());
    for (Task &each : own)
      if (each.length_bytes != 0) each.prepared = hybrid_of(each).of(member, backend).get();
    return own;
  }

  // Calls body(backend, tasks) while a device holds what its tasks need.
  template <class Body>
  void on_device(std::size_t index, std::span<const Task> tasks, Control &control, const Body &body) {
    const Member &member = runtime().member(index);
    const std::vector<Task> own = tasks_of(index, *member.backend, tasks);
    const std::vector<core::Need> needs = needs_of(member, control, tasks.front().memory);
    core::Hold hold(options_.resources, needs);
    hold.next_task();
    body(*member.backend, own);
  }

  void run_on_device(std::size_t index, std::span<const Task> tasks, Control &control) {
    on_device(index, tasks, control, [&](core::Backend &device, std::span<const Task> own) {
      const core::RecordedRun recorded(options_.timeline.get(), device.traits().name, own);
      device.run(own, control);
    });
  }

  std::size_t member_for(MemoryKind memory) {
    const Runtime &all = runtime();
    for (std::size_t i = 0; i < all.member_count(); ++i) {
      const auto &memories = all.member(i).backend->traits().memories;
      if (std::find(memories.begin(), memories.end(), memory) != memories.end()) return i;
    }
    base::fail(TANDEM_ERROR_UNSUPPORTED,
               base::text("hybrid: none of its devices takes memory kind ", static_cast<std::int32_t>(memory)));
  }

  // Once, on a thread of its own: drivers take long, and this run does not wait for them.
  void look_for_more(std::uint64_t moved) {
    if (!options_.discover) return;
    Shared &state = shared_.get();
    const std::lock_guard lock(state.mutex);
    if (__builtin_add_overflow(state.moved_bytes, moved, &state.moved_bytes)) state.moved_bytes = UINT64_MAX;
    if (state.has_searched || state.moved_bytes < options_.discover_bytes) return;
    state.has_searched = true;
    const base::SignalsBlocked blocked;
    const auto search = [this] {
      try {
        std::vector<Member> found = options_.discover();
        if (found.empty()) return log_.say(TANDEM_LOG_INFO, "hybrid: no device was found: the CPU does all work");
        std::string names;
        for (const Member &each : found) names += (names.empty() ? "" : ", ") + each.name;
        log_.say(TANDEM_LOG_INFO, "hybrid: devices beside the CPU from now on: ", names);
        std::vector<Member> all = options_.members;
        all.insert(all.end(), found.begin(), found.end());
        // In a child the parent's description exists already, and may be in use.
        if (traits_.load() != &found_traits_) found_traits_ = traits_for(all, "hybrid");
        runtime().add(std::move(found));
        traits_.store(&found_traits_, std::memory_order_release);
      } catch (const std::exception &error) {
        log_.say(TANDEM_LOG_WARNING, "hybrid: looking for devices failed: ", error.what());
      }
    };
    try {
      state.search = std::thread(search);
    } catch (const std::exception &) {
      log_.say(TANDEM_LOG_WARNING, "hybrid: no thread could be started to look for devices: the CPU does all work");
    }
  }

  Options options_;
  const base::Log log_;
  core::Traits traits_of_members_, found_traits_;
  std::atomic<bool> was_complete_{false};
  std::atomic<const core::Traits *> traits_{nullptr};
  mutable base::ForkLocal<Shared> shared_;
};

}  // namespace

std::unique_ptr<core::Backend> make_backend(Options options, const base::Log &log) {
  return std::make_unique<HybridBackend>(std::move(options), log);
}

}  // namespace tandem::hybrid
