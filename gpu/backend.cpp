// A GPU behind the Backend interface.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <system_error>
#include <thread>

#include "base/error.hpp"
#include "base/signals.hpp"
#include "core/budget.hpp"
#include "gpu/factory.hpp"
#include "gpu/names.hpp"
#include "gpu/runs.hpp"

namespace tandem::gpu {
namespace {

using core::Control;
using core::MemoryKind;
using core::Mode;
using core::Task;

class CudaBackend final : public core::Backend {
 public:
  CudaBackend(const Options &options, const base::Log &log) : options_(options), log_(log) {
    as_asked_ = traits_called(options.device);
    traits_.store(&as_asked_, std::memory_order_relaxed);
  }

  const core::Traits &traits() const noexcept override { return *traits_.load(std::memory_order_acquire); }

  std::shared_ptr<const core::Prepared> prepare(const core::Operator &what) override {
    device();  // says early what the machine lacks
    return std::make_shared<CudaPrepared>(what, std::nullopt);
  }

  std::shared_ptr<const core::Prepared> prepare_tuned(const core::Operator &what,
                                                      const core::TuningValues &values) override {
    device();
    const device::DeviceSettings settings =
        device::with_values(default_settings(what.output_count()), values, kMostElementBytes, most_loads(device_),
                            [](const std::string &why) { base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "CUDA: " + why); });
    return std::make_shared<CudaPrepared>(what, settings);
  }

  std::vector<core::TuningParameter> tuning_parameters(unsigned rows, unsigned, Mode) const override {
    const_cast<CudaBackend *>(this)->device();
    const device::DeviceSettings settings = default_settings(rows);
    const device::KernelTuning &kernel = settings.kernel;
    std::vector<std::uint64_t> loads;
    for (int each = 0; each <= static_cast<int>(most_loads(device_)); ++each)
      loads.push_back(static_cast<std::uint64_t>(each));
    std::vector<core::TuningParameter> parameters = {
        {"local_x", kernel.local[0], device::powers_of_two(64, 512, kernel.local[0])},
        {"local_y", kernel.local[1], device::powers_of_two(1, 2, kernel.local[1])},
        {"element_bytes", kernel.element_bytes, device::powers_of_two(4, kMostElementBytes, kernel.element_bytes)},
        {"elements_per_item", kernel.elements_per_item, device::powers_of_two(1, 8, kernel.elements_per_item)},
        {"rows_per_pass", kernel.rows_per_pass, device::powers_of_two(1, 8, kernel.rows_per_pass)},
        {"loads", static_cast<std::uint64_t>(kernel.loads), loads},
        {"staging_bytes", settings.staging_bytes, device::powers_of_two(1 << 20, 64 << 20, settings.staging_bytes)},
        {"compile_after_bytes", settings.compile_after_bytes, {settings.compile_after_bytes}, true}};
    if (chooser_->is_forced())  // nothing is switched over
      std::erase_if(parameters, [](const core::TuningParameter &each) { return each.is_switch_over; });
    return parameters;
  }
  core::TuningIdentity tuning_identity() const override {
    const_cast<CudaBackend *>(this)->device();
    return chooser_->identity();
  }
  std::string tuning_kernel_hash() const override {
    const_cast<CudaBackend *>(this)->device();
    return chooser_->kernel_hash();
  }

  void run(std::span<const Task> tasks, Control &control) override {
    if (tasks.empty()) return;
    device();
    std::vector<Task> staged, on_device;
    for (const Task &task : tasks) {
      if (task.length_bytes == 0 || task.prepared->rows() == 0) continue;
      if (task.memory == MemoryKind::cuda) {
        on_device.push_back(checked_for_device(task));
      } else if (task.memory != MemoryKind::host) {
        base::fail(TANDEM_ERROR_UNSUPPORTED,
                   fmt::format("{}: memory kind {}", traits().name, static_cast<std::int32_t>(task.memory)));
      } else if (task.prepared->columns() == 0) {
        if (control.cancelled()) fail_cancelled(device_);
        device::apply_nothing(task);
      } else {
        staged.push_back(task);
      }
    }
    if (!staged.empty()) guarded([&](const Workplace &place) { run_staged(place, staged, control); });
    if (!on_device.empty()) start(on_device, control)->wait();
  }

  std::unique_ptr<core::Ticket> submit(std::span<const Task> tasks, Control &control) override {
    const auto is_on_device = [](const Task &task) { return task.memory == MemoryKind::cuda; };
    if (tasks.empty() || !std::all_of(tasks.begin(), tasks.end(), is_on_device)) return Backend::submit(tasks, control);
    device();
    std::vector<Task> on_device;
    for (const Task &task : tasks)
      if (task.length_bytes != 0 && task.prepared->rows() != 0) on_device.push_back(checked_for_device(task));
    return start(on_device, control);
  }

  void make_ready(const core::Prepared &prepared, Mode mode, MemoryKind memory) override {
    if (memory != MemoryKind::cuda || prepared.rows() == 0 || prepared.columns() == 0) return;
    device();
    // Whoever runs it may have shards anywhere, and may capture the first run. Two programs, each of which takes tenths
    // of a second to compile: at once.
    guarded([&](const Workplace &place) {
      const auto make = [&](device::Access access, std::exception_ptr &error_out) {
        try {
          const ContextScope current(*driver_, place.session->context());
          gpu::make_ready(place, static_cast<const CudaPrepared &>(prepared), mode, access,
                          device::KernelChooser::kUsedOften);
        } catch (...) {
          error_out = std::current_exception();
        }
      };
      std::exception_ptr error, helpers_error;
      std::thread helper;  // not jthread, whose stop tokens bring calls of the operating system into libtandem
      try {
        const base::SignalsBlocked signals;
        helper = std::thread([&] { make(device::Access::shifted, helpers_error); });
      } catch (const std::system_error &) {  // no thread to be had: one after the other
      }
      make(device::Access::aligned, error);
      if (helper.joinable()) {
        helper.join();
      } else {
        make(device::Access::shifted, helpers_error);
      }
      if (!error) error = helpers_error;
      if (error) std::rethrow_exception(error);
    });
  }

  std::shared_ptr<std::byte> staging_memory(std::uint64_t bytes) override {
    device();
    std::shared_ptr<std::byte> memory;
    guarded([&](const Workplace &place) {
      struct Kept {
        std::shared_ptr<Session> session;  // after the memory
        PinnedMemory memory;
      };
      try {
        auto kept = std::make_shared<Kept>(
            Kept{place.session, PinnedMemory(*place.session, std::max<std::uint64_t>(bytes, 1))});
        memory = std::shared_ptr<std::byte>(kept, kept->memory.get());
      } catch (const DriverError &error) {
        if (is_sticky(error.error())) throw;
        base::fail(TANDEM_ERROR_OUT_OF_MEMORY,
                   fmt::format("CUDA: no {} bytes of pinned memory: {}", bytes, error.what()));
      }
    });
    return memory;
  }

  void read_column(const Task &task, std::uint64_t at_bytes, std::uint8_t *inputs_out,
                   std::uint8_t *outputs_out) override {
    if (task.memory == MemoryKind::host) return Backend::read_column(task, at_bytes, inputs_out, outputs_out);
    device();
    guarded(
        [&](const Workplace &place) { read_device_column(*place.session, task, at_bytes, inputs_out, outputs_out); });
  }

  std::uint64_t kernel_calls() const noexcept override { return kernel_calls_.load(std::memory_order_relaxed); }

 private:
  static core::Traits traits_called(const std::string &name) {
    core::Traits traits;
    traits.name = name;
    traits.lanes = Session::kMostLanes;
    traits.memories = {MemoryKind::host, MemoryKind::cuda};
    return traits;
  }

  // The device, looked for by the first call. Throws Error: in a child, where there is none, and when it failed before.
  void device() {
    claim_driver();
    const std::lock_guard lock(mutex_);
    if (chooser_ != nullptr) return fail_if_given_up();
    driver_ = options_.driver != nullptr ? options_.driver : &open_driver();
    std::string left_out;
    const std::vector<Device> devices = find_devices(*driver_, log_, &left_out);
    device_ = select_device(devices, options_.device, left_out);
    disk_ = std::make_shared<device::DiskCache>(options_.cache_folder, log_);
    chooser_ = std::make_unique<Chooser>(options_, device_, log_);
    found_ = traits_called(device_.name);
    traits_.store(&found_, std::memory_order_release);
    log_.say(TANDEM_LOG_INFO,
             fmt::format("cuda: {} ({}, compute capability {}.{}, driver of {}), {}: {} multiprocessors, {} bytes of "
                         "memory",
                         device_.name, device_.model, device_.major, device_.minor, device_.driver_text(),
                         options_.device == "cuda" ? "the first that can be used" : "as asked",
                         device_.multiprocessor_count, device_.memory_bytes));
    if (options_.tuning != nullptr && !options_.tuning->knows(chooser_->identity())) {
      log_.say(TANDEM_LOG_WARNING,
               fmt::format("cuda: {}: nothing in the tuning file was measured on {} or another NVIDIA GPU: ignored",
                           device_.name, device_.model));
    }
  }

  void fail_if_given_up() const {
    if (const auto reason = given_up(*driver_, device_.ordinal)) {
      base::fail(TANDEM_ERROR_DEVICE,
                 fmt::format("CUDA: {} was given up for the rest of this process: {}", device_.name, *reason));
    }
  }

  // Half of what is free unless somebody said otherwise, which may be while jobs run.
  std::uint64_t budget_bytes(const Session &session) const noexcept {
    const std::uint64_t mib =
        options_.resources != nullptr ? options_.resources->amount(core::Resource::cuda_mib) : UINT64_MAX;
    std::uint64_t most = device_.memory_bytes;
    if (mib < UINT64_MAX >> 20) {
      most = std::min(most, mib << 20);
    } else if (options_.memory_budget_bytes == 0) {
      most = session.free_bytes() / 2;
    }
    return options_.memory_budget_bytes != 0 ? std::min(most, options_.memory_budget_bytes) : most;
  }

  static const Task &checked_for_device(const Task &task) {
    if (task.prepared->columns() == 0)
      base::fail(TANDEM_ERROR_UNSUPPORTED, "CUDA: a matrix without columns on device memory");
    return task;
  }

  std::shared_ptr<Session> session() {
    const std::lock_guard lock(mutex_);
    if (session_ == nullptr) session_ = std::make_shared<Session>(*driver_, device_, disk_, log_);
    return session_;
  }

  // What the device does not survive, it is given up for.
  void look_at(const DriverError &error) noexcept {
    std::shared_ptr<Session> session;
    {
      const std::lock_guard lock(mutex_);
      session = session_;
    }
    if (!is_sticky(error.error())) {
      log_.say(TANDEM_LOG_WARNING, fmt::format("cuda: {}: {}", device_.name, error.what()));
    } else if (session != nullptr) {
      session->give_up(error.what());
    } else {
      // Before there was a session: it could not be opened.
      gpu::give_up(*driver_, device_.ordinal, error.what());
      log_.say(TANDEM_LOG_WARNING, fmt::format("cuda: {} ({}) is given up for the rest of this process: {}",
                                               device_.name, device_.model, error.what()));
    }
  }

  template <class Body>
  void guarded(Body &&body) {
    try {
      const std::shared_ptr<Session> session = this->session();
      session->budget().set(budget_bytes(*session));
      const ContextScope current(*driver_, session->context());
      body(Workplace{session, *chooser_, kernel_calls_});
    } catch (const DriverError &error) {
      look_at(error);
      throw;
    }
  }

  std::unique_ptr<core::Ticket> start(std::span<const Task> tasks, Control &control) {
    std::unique_ptr<core::Ticket> ticket;
    guarded([&](const Workplace &place) {
      ticket = start_on_device(place, tasks, control, [this](const DriverError &error) { look_at(error); });
    });
    return ticket;
  }

  const Options options_;
  const base::Log log_;
  core::Traits as_asked_, found_;
  std::atomic<const core::Traits *> traits_{nullptr};
  std::atomic<std::uint64_t> kernel_calls_{0};

  std::mutex mutex_;
  const Driver *driver_ = nullptr;  // from here on: set by device(), then constant
  Device device_;
  std::shared_ptr<device::DiskCache> disk_;
  std::unique_ptr<Chooser> chooser_;

  std::shared_ptr<Session> session_;
};

}  // namespace

std::unique_ptr<core::Backend> make_backend(const Options &options, const base::Log &log) {
  if (!is_device_name(options.device)) {
    base::fail(TANDEM_ERROR_UNAVAILABLE,
               fmt::format("backend \"{}\" does not exist; CUDA devices are \"cuda\" and \"cuda:N\"", options.device));
  }
  const std::string &technique = options.technique;
  if (!technique.empty() && technique != "auto" && technique != "compiled" && technique != "tables") {
    base::fail(TANDEM_ERROR_UNAVAILABLE,
               fmt::format("kernel \"{}\" is unknown to backend \"{}\"; known: auto, compiled, tables", technique,
                           options.device));
  }
  if (options.driver == nullptr) check_installed();
  return std::make_unique<CudaBackend>(options, log);
}

}  // namespace tandem::gpu
