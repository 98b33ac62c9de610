// SPDX-License-Identifier: Apache-2.0
#include "device/backend.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "core/recorded_run.hpp"
#include "device/piece_stream.hpp"
#include "kernel_hash.hpp"

namespace tandem::device {

using core::Control;
using core::MemoryKind;
using core::Mode;
using core::Task;

namespace {

// A task on host memory with a matrix without columns: the sum of nothing is zero.
void apply_nothing(const Task &task) {
  for (unsigned r = 0; r < task.prepared->rows(); ++r) {
    std::byte *output = task.outputs[r] + task.offset_bytes;
    if (task.mode == Mode::assign) std::memset(output, 0, task.length_bytes);
    if (task.mode != Mode::compare) continue;
    core::Mismatch found;
    for (std::uint64_t i = 0; i < task.length_bytes; ++i)
      if (output[i] != std::byte{0}) found.merge({1, task.offset_bytes + i});
    task.mismatches[r].merge(found);
  }
}

}  // namespace

bool is_device_name(std::string_view name, std::string_view backend, unsigned number_count) noexcept {
  if (!name.starts_with(backend)) return false;
  if (name.size() == backend.size()) return true;
  const char *at = name.data() + backend.size(), *const end = name.data() + name.size();
  for (unsigned i = 0; i < number_count; ++i) {
    int number = 0;
    if (at == end || *at != ':' || at + 1 == end || at[1] == '-') return false;
    const auto [stopped, error] = std::from_chars(at + 1, end, number);
    if (error != std::errc()) return false;
    at = stopped;
  }
  return at == end;
}

void check_options(const Options &options, bool is_name, const char *label, const char *names) {
  if (!is_name) {
    base::fail(TANDEM_ERROR_UNAVAILABLE,
               base::text("backend \"", options.device, "\" does not exist; ", label, " devices are ", names));
  }
  const std::string &technique = options.technique;
  if (technique.empty() || technique == "auto" ||
      std::find(kTechniqueNames.begin(), kTechniqueNames.end(), technique) != kTechniqueNames.end())
    return;
  base::fail(TANDEM_ERROR_UNAVAILABLE,
             base::text("technique \"", technique, "\" is unknown to backend \"", options.device, "\"; known: auto, ",
                        base::join(kTechniqueNames, ", ")));
}

DeviceBackend::DeviceBackend(const Options &options, const DeviceModule &module, MemoryKind memory, const char *mib,
                             const base::Log &log)
    : log_(log),
      options_(options),
      module_(module),
      memory_(memory),
      units_(options.holds_units ? options.resources : nullptr),
      mib_(options.resources != nullptr ? options.resources->index(mib) : 0),
      as_asked_(traits_called(options.device)),
      traits_(&as_asked_) {}

DeviceBackend::~DeviceBackend() = default;

core::Traits DeviceBackend::traits_called(const std::string &name) const {
  core::Traits traits;
  traits.name = name;
  traits.lanes = DeviceSession::kMostLanes;
  traits.memories = {MemoryKind::host, memory_};
  return traits;
}

const DeviceBackend::Found &DeviceBackend::found() const {
  module_.claim();
  const std::lock_guard lock(mutex_);
  if (found_ == nullptr) {
    Found found;
    found.device = find();
    const Device &device = *found.device;
    found.disk = std::make_shared<DiskCache>(options_.cache_folder, log_);
    found.budget = std::make_shared<MemoryBudget>(budget_bytes(device, device.memory_bytes / 2));
    found.chooser = std::make_unique<const KernelChooser>(options_, device, log_);
    found.check = std::make_unique<AnswerCheck>(options_, device, log_);
    found.traits = traits_called(device.name);
    if (options_.tuning != nullptr && !options_.tuning->knows(found.chooser->identity())) {
      log_.say(TANDEM_LOG_WARNING, base::text(device.identity.backend, ": ", device.name,
                                              " is ignored: no entry of the tuning file was measured on ",
                                              device.model(), " or another device of ", device.identity.vendor));
    }
    found_ = std::make_unique<const Found>(std::move(found));
    traits_.store(&found_->traits, std::memory_order_release);
  } else {
    check_usable(*found_->device);
    found_->check->require_trust();
  }
  return *found_;
}

std::uint64_t DeviceBackend::budget_bytes(const Device &device, std::uint64_t half_bytes) const noexcept {
  const std::uint64_t mib = options_.resources != nullptr ? options_.resources->amount(mib_) : UINT64_MAX;
  std::uint64_t most = device.memory_bytes;
  if (mib < UINT64_MAX >> 20) {
    most = std::min(most, mib << 20);
  } else if (options_.memory_budget_bytes == 0) {
    most = half_bytes;
  }
  return options_.memory_budget_bytes != 0 ? std::min(most, options_.memory_budget_bytes) : most;
}

// The arguments of a kernel hold a fixed number of shards.
const core::Operator &DeviceBackend::checked(const core::Operator &what) const {
  if (what.field() == core::Field::gf2)
    base::fail(TANDEM_ERROR_UNSUPPORTED, base::text(traits().name, ": codes with layout packets run on the CPU alone"));
  if (what.field() != core::Field::gf8)
    base::fail(TANDEM_ERROR_UNSUPPORTED, base::text(traits().name, ": codes over GF(2^16) run on the CPU alone"));
  if (std::uint64_t{what.input_count()} + what.output_count() > KernelArguments::kMostShards) {
    base::fail(TANDEM_ERROR_UNSUPPORTED,
               base::text(traits().name, ": a kernel takes ", KernelArguments::kMostShards, " shards at most, not ",
                          what.input_count(), " inputs and ", what.output_count(), " outputs"));
  }
  return what;
}

std::shared_ptr<const core::Prepared> DeviceBackend::prepare(const core::Operator &what) {
  const core::Operator &checked_operator = checked(what);
  const Found &here = found();  // reports early what the machine lacks
  auto prepared = std::make_shared<const DevicePrepared>(checked_operator, std::nullopt);
  here.chooser->describe(*prepared);
  return prepared;
}

std::shared_ptr<const core::Prepared> DeviceBackend::prepare_tuned(const core::Operator &what,
                                                                   const core::TuningValues &values) {
  return std::make_shared<const DevicePrepared>(
      checked(what), found().chooser->forced_settings(what.output_count(), what.input_count(), values));
}

std::vector<core::TuningParameter> DeviceBackend::tuning_parameters(unsigned rows, unsigned columns, Mode) const {
  return found().chooser->parameters(rows, columns);
}
core::TuningIdentity DeviceBackend::tuning_identity() const { return found().chooser->identity(); }
std::string DeviceBackend::tuning_kernel_hash() const { return kKernelHash; }

void DeviceBackend::make_ready(const core::Prepared &prepared, Mode, MemoryKind, bool waits) {
  if (waits) static_cast<const DevicePrepared &>(prepared).raise(DevicePrepared::Need::now);
}

std::shared_ptr<core::DeviceMemory> DeviceBackend::device_memory(std::uint64_t bytes) {
  const Device &device = *found().device;
  if (bytes == 0 || bytes > device.most_buffer_bytes) {
    device.fail(bytes == 0 ? TANDEM_ERROR_INVALID_ARGUMENT : TANDEM_ERROR_OUT_OF_MEMORY, bytes,
                " bytes of device memory: a buffer of ", device.name, " has 1 to ", device.most_buffer_bytes);
  }
  std::shared_ptr<core::DeviceMemory> memory;
  guarded([&](const Workplace &place) { memory = place.session->make_shard_memory(bytes); });
  return memory;
}

void DeviceBackend::read_column(const Task &task, std::uint64_t at_bytes, std::uint8_t *inputs_out,
                                std::uint8_t *outputs_out) {
  if (task.memory == MemoryKind::host) return Backend::read_column(task, at_bytes, inputs_out, outputs_out);
  found();
  const std::size_t bytes = core::element_bytes(task.prepared->field());
  const auto read = [&](const void *shard, const std::uint64_t *offsets, unsigned i, std::uint8_t *out) {
    read_bytes(task, shard, (offsets != nullptr ? offsets[i] : 0) + at_bytes, out + i * bytes, bytes);
  };
  for (unsigned c = 0; c < task.prepared->columns(); ++c) read(task.inputs[c], task.input_offsets, c, inputs_out);
  for (unsigned r = 0; r < task.prepared->rows(); ++r) read(task.outputs[r], task.output_offsets, r, outputs_out);
}

Workplace DeviceBackend::place_in(std::shared_ptr<DeviceSession> session) {
  session->budget().set(budget_bytes(session->device(), session->usable_bytes() / 2));
  return {std::move(session), *known().chooser,  *known().check,
          kernel_calls_,      options_.timeline, options_.copier.get()};
}

void DeviceBackend::guarded(const std::function<void(const Workplace &)> &body) {
  std::shared_ptr<DeviceSession> session;
  try {
    {
      const std::lock_guard lock(mutex_);
      if (session_ == nullptr || session_->is_lost()) session_ = open();
      session = session_;
    }
    const Workplace place = place_in(session);
    session->within([&] { body(place); });
  } catch (const DriverError &error) {
    failed(session, error);
    throw;
  }
}

const Task &DeviceBackend::checked_for_device(const Task &task) const {
  if (task.length_bytes != 0 && task.prepared->rows() != 0 && task.prepared->columns() == 0)
    known().device->fail(TANDEM_ERROR_UNSUPPORTED, "a matrix without columns on device memory");
  return task;
}

void DeviceBackend::run(std::span<const Task> tasks, Control &control) {
  if (tasks.empty()) return;
  const Device &device = *found().device;
  const core::TaskNeeds needs(core::Budget::kGpu, control.needs());
  core::Hold hold(units_, needs.get());
  hold.next_task();
  std::vector<Task> staged, on_device;
  for (const Task &task : tasks) {
    if (task.length_bytes == 0 || task.prepared->rows() == 0) continue;
    if (task.memory == memory_) {
      on_device.push_back(checked_for_device(task));
    } else if (task.memory != MemoryKind::host) {
      base::fail(TANDEM_ERROR_UNSUPPORTED,
                 base::text(device.name, ": memory kind ", static_cast<std::int32_t>(task.memory)));
    } else if (task.prepared->columns() == 0) {
      if (control.cancelled()) fail_cancelled(device);
      apply_nothing(task);
    } else {
      staged.push_back(task);
    }
  }
  // Stripes of one matrix side by side. A guard is told of bytes in the order of the tasks.
  if (control.guard() == nullptr)
    std::stable_sort(staged.begin(), staged.end(),
                     [](const Task &a, const Task &b) { return prepared_of(a).key.low < prepared_of(b).key.low; });
  if (!staged.empty()) guarded([&](const Workplace &place) { run_staged(place, staged, control); });
  if (on_device.empty()) return;
  const core::RecordedRun recorded(options_.timeline, device.identity.backend, on_device);
  start_on_device(on_device, control)->wait();
}

std::unique_ptr<core::Ticket> DeviceBackend::submit(std::span<const Task> tasks, Control &control) {
  const auto is_on_device = [&](const Task &task) { return task.memory == memory_; };
  if (tasks.empty() || !std::all_of(tasks.begin(), tasks.end(), is_on_device)) return Backend::submit(tasks, control);
  found();
  const core::TaskNeeds needs(core::Budget::kGpu, control.needs());
  core::Hold hold(units_, needs.get());
  hold.next_task();
  for (const Task &task : tasks) checked_for_device(task);
  return start_on_device(tasks, control);
}

}  // namespace tandem::device
