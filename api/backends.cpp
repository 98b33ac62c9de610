// SPDX-License-Identifier: Apache-2.0
#include "api/backends.hpp"

#include <algorithm>
#include <iterator>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cpu/factory.hpp"
#include "device/disk_cache.hpp"
#include "gpu/factory.hpp"
#include "opencl/factory.hpp"

namespace tandem::api {
namespace {

using std::chrono::milliseconds;

// ---- the CPU

std::vector<FoundDevice> find_cpu(milliseconds) {
  FoundDevice cpu{"cpu", "cpu", cpu::describe_cpu(), "", cpu::allowed_core_count()};
  const std::vector<cpu::KernelDescription> kernels = cpu::describe_kernels();
  const auto best = std::ranges::find_if(kernels, [](const auto &each) { return each.available; });
  if (best != kernels.end()) cpu.kernel = best->name;
  return {std::move(cpu)};
}

cpu::Options cpu_options(const tandem_context &context, const Settings &settings) {
  cpu::Options options;
  options.kernel = settings.kernel;
  options.thread_count = settings.thread_count;
  options.executor = settings.executor;
  options.cores = context.cores;
  options.technique = settings.technique;
  options.budget = context.budget.get();
  options.tuning = context.tuning.get();
  options.timeline = context.timeline.get();
  return options;
}

// Logs once whether the tuning file has entries for this CPU. Backends log only the values that they use. Devices are
// not asked, because no device is touched before it is needed.
void say_what_is_known(const tandem_context &context, core::Backend &cpu, bool named) {
  if (context.tuning == nullptr) return;
  const core::TuningIdentity identity = cpu.tunable()->tuning_identity();
  const std::size_t count = context.tuning->entries().size();
  if (context.tuning->knows(identity)) {
    context.log.say(TANDEM_LOG_INFO, "tuning file ", context.tuning_path, ": ", count, " entries");
    // otherwise these are entries of another backend
  } else if (named || context.tuning->has_backend(identity.backend)) {
    context.log.say(TANDEM_LOG_WARNING, "tuning file ", context.tuning_path, " is ignored: none of its ", count,
                    " entries was measured on ", identity.device, " or another device of ", identity.vendor);
  }
}

std::unique_ptr<core::Backend> make_cpu(const BackendKind &, tandem_context &context, const Settings &settings,
                                        const std::string &) {
  cpu::Decisions choice = {};
  std::unique_ptr<core::Backend> backend = cpu::make_backend(cpu_options(context, settings), context.log, &choice);
  if (choice.thread_count == 1 || std::string_view(choice.executor) != "pthread")
    check_effects(settings.given, settings.backend, ~unsigned{kWorkers});
  context.resource_names = "cpu";
  context.kernel_name = choice.kernel;
  context.executor_name = choice.executor;
  context.thread_count = context.caller_count = choice.thread_count;
  say_what_is_known(context, *backend, settings.tuning_is_named);
  return backend;
}

// The whole CPU is one member.
std::vector<hybrid::Member> cpu_members(const BackendKind &kind, tandem_context &context, const Settings &settings,
                                        const std::string &name) {
  hybrid::Member member;
  member.name = name;
  member.backend = make_cpu(kind, context, settings, name);
  member.lanes = context.thread_count;
  member.is_cpu = true;
  std::vector<hybrid::Member> members;
  members.push_back(std::move(member));
  return members;
}

// ---- devices

std::vector<FoundDevice> found_devices(const std::string &backend, const device::Listing &listing) {
  std::vector<FoundDevice> found;
  for (const device::DeviceDescription &each : listing.devices)
    found.push_back({each.name, backend + "-" + each.kind, each.description, "auto", each.unit_count});
  return found;
}

std::string why_none(const device::Listing &listing) { return listing.devices.empty() ? listing.missing : ""; }

template <class Options>
using Factory = std::unique_ptr<core::Backend> (*)(const Options &, const base::Log &);

template <class Options, Factory<Options> kFactory>
std::unique_ptr<core::Backend> open_device(const BackendKind &kind, tandem_context &context, const Settings &settings,
                                           const std::string &name, const std::string &technique, bool is_member) {
  if (context.copier == nullptr) context.copier = cpu::make_copier(settings.thread_count, context.budget.get());
  if (context.reference == nullptr) {
    cpu::Options alone;
    alone.executor = "serial";
    cpu::Decisions ignored = {};
    context.reference = cpu::make_backend(alone, {}, &ignored);
  }
  Options options;
  options.copier = context.copier;
  options.reference = context.reference;
  options.checks_all = settings.check_devices == "all";
  // A hybrid holds resources and records work for its members.
  options.timeline = is_member ? nullptr : context.timeline.get();
  options.holds_units = !is_member;
  options.device = name;
  options.technique = technique;
  options.tuning = context.tuning.get();
  options.resources = context.budget.get();
  options.cache_folder = device::default_cache_folder(kind.name);
  return kFactory(options, context.log);
}

// Threads and executors are options of the CPU. A device uses them only to copy.
template <class Options, Factory<Options> kFactory>
std::unique_ptr<core::Backend> make_device(const BackendKind &kind, tandem_context &context, const Settings &settings,
                                           const std::string &name) {
  const std::string &technique = settings.device_technique;
  auto backend = open_device<Options, kFactory>(kind, context, settings, name, technique, false);
  context.resource_names = base::text("cpu,gpu,", kind.memory_resource);
  context.kernel_name = "auto";
  for (const char *forced : device::kTechniqueNames)
    if (technique == forced) context.kernel_name = forced;
  context.executor_name = "device";
  context.caller_count = cpu::allowed_core_count() + backend->traits().lanes;
  return backend;
}

template <class Options, Factory<Options> kFactory>
std::vector<hybrid::Member> device_members(const BackendKind &kind, tandem_context &context, const Settings &settings,
                                           const std::string &name) {
  hybrid::Member member;
  member.name = name;
  member.backend = open_device<Options, kFactory>(kind, context, settings, name, "", true);
  member.keeps = std::make_shared<std::pair<std::shared_ptr<core::Budget>, std::shared_ptr<const tuning::Table>>>(
      context.budget, context.tuning);
  member.lanes = member.backend->traits().lanes;
  member.staging_bytes = kind.staging_bytes;
  std::vector<hybrid::Member> members;
  members.push_back(std::move(member));
  return members;
}

// ---- the table

template <class Options, Factory<Options> kFactory>
constexpr BackendKind device_kind(BackendKind kind) {
  kind.staging_bytes = 32 << 20;
  kind.make = make_device<Options, kFactory>;
  kind.members = device_members<Options, kFactory>;
  return kind;
}

constexpr BackendKind kKinds[] = {
    {.name = "cpu",
     .forms = "cpu",
     .is_name = [](const std::string &name) { return name == "cpu"; },
     .may_have_devices = [] { return true; },
     .devices = find_cpu,
     .make = make_cpu,
     .members = cpu_members},
    device_kind<opencl::Options, opencl::make_backend>(
        {.name = "opencl",
         .forms = "opencl, opencl:PLATFORM:DEVICE",
         .memory_resource = opencl::kMemoryResource,
         .is_name = opencl::is_device_name,
         .may_have_devices = [] { return opencl::may_have_gpus(); },
         .devices = [](milliseconds patience) { return found_devices("opencl", opencl::describe_devices(patience)); },
         .missing = [](milliseconds patience) { return why_none(opencl::describe_devices(patience)); }}),
    device_kind<gpu::Options, gpu::make_backend>(
        {.name = "cuda",
         .forms = "cuda, cuda:N",
         .vendor = "NVIDIA",
         .memory_resource = gpu::kMemoryResource,
         .is_name = gpu::is_device_name,
         .may_have_devices = [] { return gpu::may_have_devices(); },
         .devices = [](milliseconds patience) { return found_devices("cuda", gpu::describe_devices(patience)); },
         .missing = [](milliseconds patience) { return why_none(gpu::describe_devices(patience)); }}),
};

}  // namespace

std::vector<core::Need> plan_needs(core::Budget &budget, const char *resources) {
  if (resources == nullptr) return {};
  std::vector<core::Need> needs = budget.needs_of(resources);
  for (const core::Need &need : needs) {
    const std::string &name = budget.name(need.resource);
    if (need.resource < core::Budget::kBuiltInCount) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "\"", name, "=", need.amount,
                 "\" in the resources of a plan: how much of \"", name,
                 "\" a task holds is fixed, see tandem_context_set_resource");
    }
  }
  budget.check(needs);
  return needs;
}

std::span<const BackendKind> backend_kinds() { return kKinds; }

const BackendKind *find_backend_kind(const std::string &name) {
  const auto found = std::ranges::find_if(kKinds, [&](const BackendKind &kind) { return kind.is_name(name); });
  return found != std::end(kKinds) ? found : nullptr;
}

}  // namespace tandem::api
