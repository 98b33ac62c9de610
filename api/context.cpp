// SPDX-License-Identifier: Apache-2.0
// Contexts, and what a hybrid is made of.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <span>
#include <string_view>

#include "api/backends.hpp"
#include "base/affinity.hpp"
#include "base/gate.hpp"
#include "base/options.hpp"
#include "base/text.hpp"
#include "cpu/factory.hpp"
#include "tandem/tools.h"

namespace tandem::api {
namespace {

std::uint32_t thread_count_of(const std::string &text) {
  constexpr std::uint32_t kMost = 4096;
  const std::optional<std::uint32_t> count = base::number_in<std::uint32_t>(text.empty() ? "0" : text);
  if (!count) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "TANDEM_THREADS is \"", text, "\", not a number");
  if (*count > kMost) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "thread_count is ", *count, "; at most ", kMost);
  return *count;
}

hybrid::Policy policy_of(const std::string &name) {
  constexpr const char *kPolicies[] = {"budget", "auto"};  // by hybrid::Policy
  if (name.empty()) return hybrid::Policy::automatic;
  const auto found = std::ranges::find(kPolicies, name);
  if (found != std::end(kPolicies)) return static_cast<hybrid::Policy>(found - std::begin(kPolicies));
  base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "policy is \"", name, "\"; known are ", base::join(kPolicies, ", "));
}

// Every value is checked for every backend: an invalid value is never ignored.
Settings settings_of(const tandem_context_options &given) {
  Settings settings{read_texts(given, true), read_texts(given, false)};
  if (settings.backend.empty()) settings.backend = "auto";
  settings.policy = policy_of(settings.policy_name);
  settings.thread_count = thread_count_of(settings.threads);
  return settings;
}

enum class Search { all, where_device_nodes_are };

// The devices of this machine besides its CPU. OpenCL devices that are CPUs are skipped: they are the same cores. Kinds
// are asked from last to first. If a kind finds devices of its vendor, the other kinds skip that vendor.
std::vector<hybrid::Member> find_members(tandem_context &context, const Settings &settings, Search search) {
  constexpr std::chrono::seconds kPatience{5};
  std::vector<hybrid::Member> members;
  std::vector<const char *> taken;         // vendors
  bool must_look = search == Search::all;  // also if there is no device node of the kind
  const auto kinds = device_kinds();
  for (std::size_t i = kinds.size(); i-- > 0;) {
    const BackendKind &kind = kinds[i];
    const bool may_have = kind.may_have_devices();
    if (!must_look && !may_have) continue;
    const std::size_t before = members.size();
    for (const FoundDevice &each : kind.devices(kPatience)) {
      if (!each.kind.ends_with("-gpu") && !each.kind.ends_with("-accelerator")) continue;
      const auto is_described = [&](const char *vendor) { return each.description.find(vendor) != std::string::npos; };
      if (std::ranges::any_of(taken, is_described)) continue;
      try {
        for (hybrid::Member &member : kind.members(kind, context, settings, each.name)) {
          member.is_optional = true;
          members.push_back(std::move(member));
        }
      } catch (const base::Error &error) {
        context.log.say(TANDEM_LOG_WARNING, "hybrid: without ", each.name, ": ", error.what());
      }
    }
    if (kind.vendor != nullptr && members.size() != before) taken.push_back(kind.vendor);
    if (may_have && members.size() == before) must_look = true;  // another kind's driver may have them
  }
  return members;
}

// "cpu+opencl:0:0": these devices together. *has_cpu_out: the CPU is one of them.
std::vector<hybrid::Member> named_members(tandem_context &context, const Settings &settings, std::string_view names,
                                          bool *has_cpu_out) {
  std::vector<hybrid::Member> members;
  std::vector<std::string> seen;
  const auto refuse = [&](tandem_status status, const std::string &why) {
    base::fail(status, "backend \"hybrid:", names, "\": ", why);
  };
  for (std::optional<std::string_view> rest = names; rest;) {
    const std::string each(base::cut(rest, "+"));
    if (std::ranges::find(seen, each) != seen.end()) refuse(TANDEM_ERROR_INVALID_ARGUMENT, each + " stands twice");
    seen.push_back(each);
    const BackendKind *kind = find_backend_kind(each);
    if (kind == nullptr) {
      refuse(TANDEM_ERROR_UNAVAILABLE,
             base::text("\"", each, "\" is no device; a hybrid is such as hybrid:cpu+opencl:0:0+cuda:1"));
    }
    std::vector<hybrid::Member> more = kind->members(*kind, context, settings, each);
    if (kind == &cpu_kind()) *has_cpu_out = true;
    members.insert(kind == &cpu_kind() ? members.begin() : members.end(), std::make_move_iterator(more.begin()),
                   std::make_move_iterator(more.end()));
  }
  return members;
}

// "hybrid:..." names its devices. "hybrid": the CPU and all devices found. "auto": the same, but only large calls start
// the search, and only if the system has device nodes of GPUs. So no driver is loaded in vain.
std::unique_ptr<core::Backend> make_hybrid(tandem_context &context, const Settings &settings) {
  constexpr std::string_view kNamed = "hybrid:";
  constexpr std::uint64_t kDiscoverBytes = std::uint64_t{4} << 30;  // about as long as drivers take to start
  const bool is_named = settings.backend.starts_with(kNamed), is_auto = !is_named && settings.backend != "hybrid";
  hybrid::Options options;
  options.policy = settings.policy;
  options.resources = context.budget.get();
  options.timeline = context.timeline;
  bool has_cpu = !is_named;
  if (is_named) {
    const std::string_view names = std::string_view(settings.backend).substr(kNamed.size());
    options.members = named_members(context, settings, names, &has_cpu);
  } else {
    options.members = cpu_kind().members(cpu_kind(), context, settings, "cpu");
    options.discover = [&context, settings, search = is_auto ? Search::where_device_nodes_are : Search::all] {
      return find_members(context, settings, search);
    };
  }
  check_effects(settings.given, settings.backend, kPolicy | kWorkers | (has_cpu ? kCpuThreads | kExecutor : 0u));
  std::string resource_names = "cpu,gpu,pinned_mib";
  for (const BackendKind &kind : device_kinds()) {
    const auto is_of_kind = [&](const hybrid::Member &member) { return kind.is_name(member.name); };
    if (kind.memory_resource != nullptr && (!is_named || std::ranges::any_of(options.members, is_of_kind)))
      resource_names += base::text(",", kind.memory_resource);
  }
  if (is_auto) {
    options.name = "cpu";
    options.discover_bytes = kDiscoverBytes;
  }
  // With a fixed policy, small calls are shared too.
  if (!has_cpu || options.policy != hybrid::Policy::automatic) options.inline_bytes = 0;
  if (!has_cpu) {
    context.kernel_name = "auto";
    context.caller_count = cpu::allowed_core_count();
  }
  if (!is_auto) context.executor_name = "hybrid";
  context.resource_names = std::move(resource_names);  // instead of those of its parts
  return hybrid::make_backend(std::move(options), context.log);
}

std::unique_ptr<core::Backend> make_backend(tandem_context &context, const Settings &settings) {
  const std::string &name = settings.backend;
  if (const BackendKind *kind = find_backend_kind(name)) {
    check_effects(settings.given, name, kind == &cpu_kind() ? kCpuThreads | kExecutor | kWorkers : kDevice | kExecutor);
    return kind->make(*kind, context, settings, name);
  }
  if (name == "hybrid" || name.starts_with("hybrid:")) return make_hybrid(context, settings);
  if (name == "auto") {
    // An executor is an option of the CPU, so it selects the CPU.
    const bool is_for_the_cpu =
        !settings.executor.empty() ||
        std::ranges::none_of(device_kinds(), [](const BackendKind &kind) { return kind.may_have_devices(); });
    if (!is_for_the_cpu) return make_hybrid(context, settings);
    check_effects(settings.given, name, kCpuThreads | kExecutor | kWorkers);
    return cpu_kind().make(cpu_kind(), context, settings, "cpu");
  }
  std::string known;
  for (const BackendKind &kind : backend_kinds()) known += base::text(kind.forms, ", ");
  base::fail(TANDEM_ERROR_UNAVAILABLE, "backend \"", name, "\" does not exist here; known: auto, ", known,
             "hybrid, hybrid:DEVICE+DEVICE...");
}

std::unique_ptr<tandem_context> make_context(const tandem_context_options *options, bool may_have_timeline) {
  static std::atomic<std::uint64_t> next_id{1};
  const tandem_context_options given = base::read_options(options, "tandem_context_options");
  auto context = std::make_unique<tandem_context>();
  context->id = next_id.fetch_add(1, std::memory_order_relaxed);
  context->log = base::Log(given.log_callback, given.log_user, given.log_level);
  Settings settings = settings_of(given);
  if (!settings.resources.empty()) context->budget->set_all(settings.resources);
  if (settings.pin == "1") context->cores = base::affinity_cores();
  context->tuning_path = tuning::file_path(given.tuning_file, &settings.tuning_is_named);
  context->tuning = tuning::load_file(context->tuning_path, settings.tuning_is_named, context->log);
  if (!settings.timeline_file.empty() && may_have_timeline)
    context->timeline = std::make_shared<base::Timeline>(settings.timeline_file, context->log);
  context->backend = make_backend(*context, settings);
  if (given.timeline_file != nullptr && context->timeline != nullptr) context->timeline->check_file();
  return context;
}

}  // namespace

// No lock: a child of a fork may be the first to come here while another thread of its parent was here.
tandem_context &process_context() {
  static std::atomic<tandem_context *> made{nullptr};
  tandem_context *context = made.load(std::memory_order_acquire);
  if (context != nullptr) return *context;
  std::unique_ptr<tandem_context> mine = make_context(nullptr, false);
  if (!made.compare_exchange_strong(context, mine.get(), std::memory_order_acq_rel)) return *context;
  return *mine.release();
}

namespace {

// OpenMP's threads and those of drivers would inherit the one core of a file worker that starts them.
std::span<const unsigned> cores_of(const tandem_context *given) {
  const tandem_context &context = given != nullptr ? *given : process_context();
  const std::string_view executor = context.executor_name;
  const bool codes_on_own_threads =
      context.backend->traits().name == "cpu" && (executor == "pthread" || executor == "serial");
  return codes_on_own_threads ? context.cores : std::span<const unsigned>();
}

base::Timeline *timeline_of(const tandem_context *context) noexcept {
  return context != nullptr ? context->timeline.get() : nullptr;  // process_context has none
}

[[maybe_unused]] const bool is_known_to_base = [] {
  base::cores_for_workers = cores_of;
  base::timeline_of = timeline_of;
  return true;
}();

}  // namespace
}  // namespace tandem::api

using namespace tandem;

extern "C" {

tandem_status tandem_context_create(const tandem_context_options *options, tandem_context **context_out) {
  return base::guarded({{"context_out", context_out}},
                       [&] { *context_out = api::make_context(options, true).release(); });
}

void tandem_context_destroy(tandem_context *context) {
  if (context == nullptr) return;
  context->backend.reset();
  if (context->timeline != nullptr) context->timeline->write();
  context->log.mute();
  delete context;
}

tandem_status tandem_context_set_resource(tandem_context *context, const char *name, uint64_t amount) {
  return base::guarded({{"name", name}}, [&] { api::context_or_default(context).budget->set(name, amount); });
}

tandem_status tandem_context_query(const tandem_context *asked, tandem_context_info *info_out) {
  return base::guarded({{"info_out", info_out}}, [&] {
    const tandem_context *const context = asked != nullptr ? asked : &api::process_context();
    tandem_context_info info = {};
    info.backend = context->backend->traits().name.c_str();
    info.kernel = context->kernel_name;
    info.executor = context->executor_name;
    info.thread_count = context->thread_count;
    info.kernel_calls = context->backend->kernel_calls();
    info.caller_count = context->caller_count;
    info.resources = context->resource_names.c_str();
    base::write_result(info, info_out, "tandem_context_info");
  });
}

}  // extern "C"
