// An OpenCL device behind the Backend interface.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "core/budget.hpp"
#include "opencl/factory.hpp"
#include "opencl/runs.hpp"

namespace tandem::opencl {
namespace {

using core::Control;
using core::MemoryKind;
using core::Mode;
using core::Task;

constexpr std::size_t kMostForeignContexts = 4;
constexpr unsigned kMostElementBytes = 64;

class OpenclBackend final : public core::Backend {
 public:
  OpenclBackend(const Options &options, const base::Log &log) : options_(options), log_(log) {
    as_asked_ = traits_called(options.device);
    traits_.store(&as_asked_, std::memory_order_relaxed);
  }

  ~OpenclBackend() override {
    if (!in_child()) return;
    // The parent's driver: its threads are not here, its objects cannot be released.
    if (session_ != nullptr) new std::shared_ptr<Session>(std::move(session_));
    if (!foreign_.empty()) new std::list<std::shared_ptr<Session>>(std::move(foreign_));
  }

  const core::Traits &traits() const noexcept override { return *traits_.load(std::memory_order_acquire); }

  std::shared_ptr<const core::Prepared> prepare(const core::Operator &what) override {
    device();  // says early what the machine lacks
    return std::make_shared<device::DevicePrepared>(what, std::nullopt);
  }

  std::shared_ptr<const core::Prepared> prepare_tuned(const core::Operator &what,
                                                      const core::TuningValues &values) override {
    const device::DeviceSettings settings = device::with_values(
        default_settings(device()), values, kMostElementBytes, device::Loads::plain,
        [](const std::string &why) { base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "OpenCL: " + why); });
    const auto prepared = std::make_shared<device::DevicePrepared>(what, settings);
    const auto &local = settings.kernel.local;
    const Device &on = device();
    for (unsigned d = 0; d < 3; ++d) {
      if (local[d] <= on.most_items[d]) continue;
      base::fail(TANDEM_ERROR_UNAVAILABLE, fmt::format("OpenCL: local size {} in dimension {}: {} runs {} at most",
                                                       local[d], d, on.name, on.most_items[d]));
    }
    const std::uint64_t items = std::uint64_t{local[0]} * local[1] * local[2];  // of 2^16 each: fits
    if (items > on.most_group_items) {
      base::fail(TANDEM_ERROR_UNAVAILABLE,
                 fmt::format("OpenCL: a work-group of {}x{}x{} = {} items: {} runs {} at most", local[0], local[1],
                             local[2], items, on.name, on.most_group_items));
    }
    return prepared;
  }

  std::vector<core::TuningParameter> tuning_parameters(unsigned, unsigned, Mode) const override {
    const Device &on = const_cast<OpenclBackend *>(this)->device();
    std::vector<core::TuningParameter> parameters = parameters_of(default_settings(on), on);
    if (chooser_->is_forced())  // nothing is switched over
      std::erase_if(parameters, [](const core::TuningParameter &each) { return each.is_switch_over; });
    return parameters;
  }
  core::TuningIdentity tuning_identity() const override {
    const_cast<OpenclBackend *>(this)->device();
    return chooser_->identity();
  }
  std::string tuning_kernel_hash() const override {
    const_cast<OpenclBackend *>(this)->device();
    return chooser_->kernel_hash();
  }

  void run(std::span<const Task> tasks, Control &control) override {
    if (tasks.empty()) return;
    device();
    std::vector<Task> staged, on_device;
    for (const Task &task : tasks) {
      if (task.length_bytes == 0 || task.prepared->rows() == 0) continue;
      if (task.memory == MemoryKind::opencl) {
        on_device.push_back(checked_for_device(task));
      } else if (task.memory != MemoryKind::host) {
        base::fail(TANDEM_ERROR_UNSUPPORTED,
                   fmt::format("{}: memory kind {}", traits().name, static_cast<std::int32_t>(task.memory)));
      } else if (task.prepared->columns() == 0) {
        if (control.cancelled()) fail_cancelled(device_);
        device::apply_nothing(task);
      } else if (uses_zero_copy(task)) {
        guarded([&](const Workplace &place) {
          if (!is_worth_zero_copy(place, task)) return staged.push_back(task);
          if (run_zero_copy(place, task, control)) return;
          log_.say(TANDEM_LOG_DEBUG,
                   fmt::format("opencl: {} does not take shards where they lie: staged", device_.name));
          staged.push_back(task);
        });
      } else {
        staged.push_back(task);
      }
    }
    if (!staged.empty()) guarded([&](const Workplace &place) { run_staged(place, staged, control); });
    if (!on_device.empty()) start_on_device(on_device, control)->wait();
  }

  std::unique_ptr<core::Ticket> submit(std::span<const Task> tasks, Control &control) override {
    const auto is_on_device = [](const Task &task) { return task.memory == MemoryKind::opencl; };
    if (tasks.empty() || !std::all_of(tasks.begin(), tasks.end(), is_on_device)) return Backend::submit(tasks, control);
    device();
    std::vector<Task> on_device;
    for (const Task &task : tasks)
      if (task.length_bytes != 0 && task.prepared->rows() != 0) on_device.push_back(checked_for_device(task));
    return start_on_device(on_device, control);
  }

  void read_column(const Task &task, std::uint64_t at_bytes, std::uint8_t *inputs_out,
                   std::uint8_t *outputs_out) override {
    if (task.memory == MemoryKind::host) return Backend::read_column(task, at_bytes, inputs_out, outputs_out);
    device();
    read_device_column(*driver_, task, at_bytes, inputs_out, outputs_out);
  }

  std::uint64_t kernel_calls() const noexcept override { return kernel_calls_.load(std::memory_order_relaxed); }

 private:
  static core::Traits traits_called(const std::string &name) {
    core::Traits traits;
    traits.name = name;
    traits.lanes = Session::kMostLanes;
    traits.memories = {MemoryKind::host, MemoryKind::opencl};
    return traits;
  }

  // The device, looked for by the first call. Throws Error: in a child, and where there is none.
  const Device &device() {
    claim_driver();
    const std::lock_guard lock(mutex_);
    if (chooser_ != nullptr) return device_;
    driver_ = options_.driver != nullptr ? options_.driver : &open_driver();
    device_ = select_device(find_devices(*driver_, log_), options_.device);
    disk_ = std::make_shared<DiskCache>(options_.cache_folder, log_);
    memory_ = std::make_shared<MemoryBudget>(budget_bytes());
    chooser_ = std::make_unique<Chooser>(options_, device_, log_);
    found_ = traits_called(device_.name);
    traits_.store(&found_, std::memory_order_release);
    log_.say(
        TANDEM_LOG_INFO,
        fmt::format("opencl: {} ({}, {}), {}: {} compute units, {} of {} bytes of memory, {}", device_.name,
                    device_.model, device_.driver_text(),
                    options_.device == "opencl" ? (device_.is_cpu() ? "the first device, no GPU or accelerator is here"
                                                                    : "the first GPU or accelerator")
                                                : "as asked",
                    device_.compute_units, memory_->bytes(), device_.memory_bytes,
                    may_share_memory() ? "host shards are used where they lie" : "host shards are staged"));
    if (options_.tuning != nullptr && !options_.tuning->knows(chooser_->identity())) {
      log_.say(TANDEM_LOG_WARNING,
               fmt::format("opencl: {}: nothing in the tuning file was measured on {} or another device of {}: ignored",
                           device_.name, device_.model, device_.vendor));
    }
    return device_;
  }

  // Half of the device's memory unless somebody said otherwise, which may be while jobs run.
  std::uint64_t budget_bytes() const noexcept {
    const std::uint64_t mib =
        options_.resources != nullptr ? options_.resources->amount(core::Resource::opencl_mib) : UINT64_MAX;
    std::uint64_t most = device_.memory_bytes;
    if (mib < UINT64_MAX >> 20) {
      most = std::min(most, mib << 20);
    } else if (options_.memory_budget_bytes == 0) {
      most /= 2;
    }
    return options_.memory_budget_bytes != 0 ? std::min(most, options_.memory_budget_bytes) : most;
  }

  bool may_share_memory() const {
    return options_.transfer == Transfer::automatic ? device_.shares_memory : options_.transfer == Transfer::zero_copy;
  }
  bool uses_zero_copy(const Task &task) const { return may_share_memory() && fits_zero_copy(device_, task); }

  bool is_worth_zero_copy(const Workplace &place, const Task &task) const {
    return options_.transfer == Transfer::zero_copy ||
           place.chooser.is_worth_arguments(prepared_of(task), place.session->programs(), task.mode,
                                            place.chooser.access(false), task.length_bytes);
  }

  static const Task &checked_for_device(const Task &task) {
    if (task.prepared->columns() == 0)
      base::fail(TANDEM_ERROR_UNSUPPORTED, "OpenCL: a matrix without columns on device memory");
    return task;
  }

  Workplace place_of(std::shared_ptr<Session> session) {
    memory_->set(budget_bytes());
    return {std::move(session), *chooser_, kernel_calls_};
  }

  std::shared_ptr<Session> session() {
    const std::lock_guard lock(mutex_);
    if (session_ == nullptr || session_->is_lost())
      session_ = std::make_shared<Session>(*driver_, device_, disk_, memory_, log_);
    return session_;
  }

  // In the context of a caller's queue. The latest few are kept: their programs are built.
  std::shared_ptr<Session> session_in(cl_context context) {
    const std::lock_guard lock(mutex_);
    foreign_.remove_if([](const std::shared_ptr<Session> &each) { return each->is_lost(); });
    for (auto each = foreign_.begin(); each != foreign_.end(); ++each) {
      if ((*each)->context() != context) continue;
      foreign_.splice(foreign_.begin(), foreign_, each);
      return foreign_.front();
    }
    foreign_.push_front(std::make_shared<Session>(*driver_, device_, disk_, memory_, log_, context));
    if (foreign_.size() > kMostForeignContexts) foreign_.pop_back();
    return foreign_.front();
  }

  // After an error of the driver: the next call begins with fresh objects.
  void retire(const std::shared_ptr<Session> &session) noexcept {
    const std::lock_guard lock(mutex_);
    if (session_ == session) session_.reset();
    foreign_.remove(session);
  }

  template <class Body>
  void guarded(Body &&body) {
    std::shared_ptr<Session> session = this->session();
    try {
      body(place_of(session));
    } catch (const DriverError &error) {
      log_.say(TANDEM_LOG_WARNING, fmt::format("opencl: {}: {}; its context is given up", device_.name, error.what()));
      retire(session);
      throw;
    }
  }

  std::unique_ptr<core::Ticket> start_on_device(std::span<const Task> tasks, Control &control) {
    const auto failed = [this] {
      const std::lock_guard lock(mutex_);
      foreign_.clear();
    };
    try {
      return opencl::start_on_device([this](cl_context context) { return place_of(session_in(context)); }, *driver_,
                                     device_, tasks, control, failed);
    } catch (const DriverError &) {
      failed();
      throw;
    }
  }

  const Options options_;
  const base::Log log_;
  core::Traits as_asked_, found_;
  std::atomic<const core::Traits *> traits_{nullptr};
  std::atomic<std::uint64_t> kernel_calls_{0};

  std::mutex mutex_;
  const Driver *driver_ = nullptr;  // from here on: set by device(), then constant
  Device device_;
  std::shared_ptr<DiskCache> disk_;
  std::shared_ptr<MemoryBudget> memory_;
  std::unique_ptr<Chooser> chooser_;

  std::shared_ptr<Session> session_;
  std::list<std::shared_ptr<Session>> foreign_;
};

}  // namespace

std::unique_ptr<core::Backend> make_backend(const Options &options, const base::Log &log) {
  if (!is_device_name(options.device)) {
    base::fail(
        TANDEM_ERROR_UNAVAILABLE,
        fmt::format("backend \"{}\" does not exist; OpenCL devices are \"opencl\" and \"opencl:PLATFORM:DEVICE\"",
                    options.device));
  }
  const std::string &technique = options.technique;
  if (!technique.empty() && technique != "auto" && technique != "compiled" && technique != "tables") {
    base::fail(TANDEM_ERROR_UNAVAILABLE,
               fmt::format("kernel \"{}\" is unknown to backend \"{}\"; known: auto, compiled, tables", technique,
                           options.device));
  }
  if (options.driver == nullptr) check_installed();
  return std::make_unique<OpenclBackend>(options, log);
}

}  // namespace tandem::opencl
