// Contexts, and the one place that lists the backends.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "api/objects.hpp"
#include "api/speeds.hpp"
#include "base/gate.hpp"
#include "base/options.hpp"
#include "cpu/factory.hpp"
#include "device/disk_cache.hpp"
#include "gpu/factory.hpp"
#include "hybrid/factory.hpp"
#include "opencl/factory.hpp"

namespace tandem::api {
namespace {

// A string option: what the caller gave, else the environment, else empty.
std::string text_option(const char *given, const char *variable) {
  if (given != nullptr) return given;
  const char *value = std::getenv(variable);
  return value != nullptr ? value : "";
}

std::uint32_t thread_count_option(std::uint32_t given) {
  constexpr std::uint32_t kMost = 4096;
  std::uint32_t count = given;
  const char *value = given == 0 ? std::getenv("TANDEM_THREADS") : nullptr;
  if (value != nullptr && *value != 0) {
    const char *end = value + std::strlen(value);
    const auto [stopped, error] = std::from_chars(value, end, count);
    if (error != std::errc() || stopped != end)
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("TANDEM_THREADS is \"{}\", not a number", value));
  }
  if (count > kMost)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("thread_count is {}; at most {}", count, kMost));
  return count;
}

std::int32_t executor_option(std::int32_t given) {
  const char *value = given == TANDEM_EXECUTOR_DEFAULT ? std::getenv("TANDEM_EXECUTOR") : nullptr;
  if (value == nullptr || *value == 0) return given;
  const std::string name = value;
  if (name == "serial") return TANDEM_EXECUTOR_SERIAL;
  if (name == "pthread") return TANDEM_EXECUTOR_PTHREAD;
  if (name == "openmp") return TANDEM_EXECUTOR_OPENMP;
  base::fail(TANDEM_ERROR_UNAVAILABLE,
             fmt::format("TANDEM_EXECUTOR is \"{}\"; known executors: serial, pthread, openmp", name));
}

void check_range(const char *what, std::int32_t value, std::int32_t last) {
  if (value < 0 || value > last)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("{} is {}; known values are 0 to {}", what, value, last));
}

// What only the CPU uses is checked for every backend: a value that makes no sense is never ignored.
void check_cpu_options(const tandem_context_options &options) {
  thread_count_option(options.thread_count);
  check_range("executor", executor_option(options.executor), TANDEM_EXECUTOR_OPENMP);
  check_range("partition", options.partition, TANDEM_PARTITION_PARITY);
  check_range("schedule", options.schedule, TANDEM_SCHEDULE_DYNAMIC);
}

// Returns whether somebody named the file.
bool load_tuning(tandem_context &context, const char *given) {
  bool named = false;
  context.tuning_path = tuning::tuning_file_path(given, &named);
  context.tuning = tuning::load_tuning_file(context.tuning_path, named, context.log);
  return named;
}

// Said once: the backends say which values they take, not that there are none. Of the CPU only: a device is not touched
// before it is needed.
void say_what_is_known(const tandem_context &context, const core::Backend &cpu, bool named) {
  if (context.tuning == nullptr || context.tuning->entries().empty()) return;
  const core::TuningIdentity identity = cpu.tuning_identity();
  const std::size_t count = context.tuning->entries().size();
  if (context.tuning->knows(identity)) {
    context.log.say(TANDEM_LOG_INFO, fmt::format("tuning file {}: {} entries", context.tuning_path, count));
  } else if (named || context.tuning->has_backend(identity.backend)) {  // else it is another backend's business
    context.log.say(TANDEM_LOG_WARNING,
                    fmt::format("tuning file {}: none of its {} entries was measured on {} or another device of {}: "
                                "ignored",
                                context.tuning_path, count, identity.device, identity.vendor));
  }
}

cpu::Options cpu_options_of(tandem_context &context, const tandem_context_options &options) {
  cpu::Options cpu_options;
  cpu_options.kernel = text_option(options.kernel, "TANDEM_KERNEL");
  cpu_options.thread_count = thread_count_option(options.thread_count);
  cpu_options.executor = executor_option(options.executor);
  cpu_options.partition = options.partition;
  cpu_options.schedule = options.schedule;
  cpu_options.pin_threads = options.pin_threads != 0;
  cpu_options.budget = context.budget.get();
  cpu_options.tuning = context.tuning.get();
  return cpu_options;
}

std::unique_ptr<core::Backend> make_cpu_backend(tandem_context &context, const tandem_context_options &options,
                                                bool tuning_is_named) {
  cpu::Choice choice = {};
  std::unique_ptr<core::Backend> backend = cpu::make_backend(cpu_options_of(context, options), context.log, &choice);
  context.kernel_name = choice.kernel;
  context.executor_name = choice.executor;
  context.thread_count = choice.thread_count;
  context.caller_count = choice.thread_count;
  context.inline_bytes = choice.inline_bytes;
  say_what_is_known(context, *backend, tuning_is_named);
  return backend;
}

// Threads and executors are the CPU's; a device has none.
void describe_device(tandem_context &context, const std::string &technique) {
  context.kernel_name = technique == "compiled" ? "compiled" : technique == "tables" ? "tables" : "auto";
  context.executor_name = "device";
}

// What the options of both kinds of device have in common.
template <class Options>
Options device_options(const tandem_context &context, const std::string &name, const char *cache) {
  Options options;
  options.device = name;
  options.tuning = context.tuning.get();
  options.resources = context.budget.get();
  options.cache_folder = device::default_cache_folder(cache);
  return options;
}

opencl::Options opencl_options_of(const tandem_context &context, const std::string &name) {
  return device_options<opencl::Options>(context, name, "opencl");
}

gpu::Options gpu_options_of(const tandem_context &context, const std::string &name) {
  return device_options<gpu::Options>(context, name, "cuda");
}

std::unique_ptr<core::Backend> make_device_backend(tandem_context &context, const tandem_context_options &options,
                                                   const std::string &name) {
  const std::string technique = text_option(options.kernel, "TANDEM_KERNEL");
  std::unique_ptr<core::Backend> backend;
  if (opencl::is_device_name(name)) {
    opencl::Options opencl_options = opencl_options_of(context, name);
    opencl_options.technique = technique;
    backend = opencl::make_backend(opencl_options, context.log);
  } else {
    gpu::Options gpu_options = gpu_options_of(context, name);
    gpu_options.technique = technique;
    backend = gpu::make_backend(gpu_options, context.log);
  }
  describe_device(context, technique);
  context.caller_count = cpu::allowed_core_count() + backend->traits().lanes;
  return backend;
}

// What a member of a hybrid costs before its first task, and moves at once: guesses, until they are measured.
constexpr double kCudaStartUpSeconds = 0.5, kOpenclStartUpSeconds = 0.5;
constexpr std::uint64_t kCpuKneeBytes = 256 << 10, kDeviceKneeBytes = 1 << 20, kDeviceStagingBytes = 32 << 20;
constexpr std::uint64_t kDiscoverBytes = std::uint64_t{4} << 30;  // about as long as drivers take to start

hybrid::Policy policy_option(const char *given) {
  const std::string name = text_option(given, "TANDEM_POLICY");
  if (name.empty() || name == "auto") return hybrid::Policy::automatic;
  if (name == "free") return hybrid::Policy::free;
  if (name == "budget") return hybrid::Policy::budget;
  base::fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("policy is \"{}\"; known: auto, budget, free", name));
}

// The CPU's threads as members, one for each NUMA node. Each lane codes its own chunk, so the executor is serial; what
// "cpu" allows at once the hybrid counts.
std::vector<hybrid::Member> cpu_members(tandem_context &context, const tandem_context_options &options) {
  std::vector<std::vector<unsigned>> nodes = cpu::core_groups();
  unsigned left = thread_count_option(options.thread_count);
  if (left == 0) left = cpu::allowed_core_count();
  std::vector<hybrid::Member> members;
  for (std::size_t i = 0; i < nodes.size() && left > 0; ++i) {
    cpu::Options cpu_options = cpu_options_of(context, options);
    cpu_options.executor = TANDEM_EXECUTOR_SERIAL;
    cpu_options.partition = TANDEM_PARTITION_DEFAULT;
    cpu_options.thread_count = 1;
    cpu_options.pin_threads = false;
    cpu_options.budget = nullptr;
    hybrid::Member member;
    member.name = nodes.size() == 1 ? "cpu" : fmt::format("cpu:{}", i);
    cpu::Choice choice = {};
    member.backend = cpu::make_backend(cpu_options, context.log, &choice);
    const unsigned here = static_cast<unsigned>(nodes[i].size());
    member.lanes = i + 1 == nodes.size() ? left : std::min(left, here);
    left -= member.lanes;
    member.is_in_place = true;
    member.latency_seconds = hybrid::kCpuLatencySeconds;
    member.knee_bytes = kCpuKneeBytes;
    if (nodes.size() > 1) member.enter_thread = [cores = nodes[i]] { cpu::bind_this_thread(cores); };
    members.push_back(std::move(member));
  }
  return members;
}

hybrid::Member device_member(tandem_context &context, const std::string &name) {
  hybrid::Member member;
  member.name = name;
  if (gpu::is_device_name(name)) {
    member.backend = gpu::make_backend(gpu_options_of(context, name), context.log);
    member.start_up_seconds = kCudaStartUpSeconds;
  } else {
    member.backend = opencl::make_backend(opencl_options_of(context, name), context.log);
    member.start_up_seconds = kOpenclStartUpSeconds;
  }
  member.keeps = std::make_shared<std::pair<std::shared_ptr<core::Budget>, std::shared_ptr<const tuning::TuningTable>>>(
      context.budget, context.tuning);
  member.lanes = member.backend->traits().lanes;
  member.latency_seconds = hybrid::kDeviceLatencySeconds;
  member.knee_bytes = kDeviceKneeBytes;
  member.staging_bytes = kDeviceStagingBytes;
  return member;
}

enum class Search { all, where_device_nodes_are };

// What this machine has beside its CPU. An OpenCL device that is a CPU is none of it: it has the same cores. NVIDIA's
// GPUs are taken by CUDA, or else by OpenCL.
std::vector<hybrid::Member> find_members(tandem_context &context, Search search) {
  constexpr std::chrono::seconds kPatience{5};
  std::vector<hybrid::Member> members;
  const auto add = [&](const std::string &name) {
    try {
      hybrid::Member member = device_member(context, name);
      member.is_optional = true;
      members.push_back(std::move(member));
    } catch (const base::Error &error) {
      context.log.say(TANDEM_LOG_WARNING, fmt::format("hybrid: without {}: {}", name, error.what()));
    }
  };
  const bool all = search == Search::all;
  if (all || gpu::may_have_devices())
    for (const gpu::DeviceDescription &each : gpu::describe_devices(kPatience).devices) add(each.name);
  const bool has_cuda = !members.empty();
  // NVIDIA's may be in OpenCL alone.
  if (!all && !opencl::may_have_gpus() && (has_cuda || !gpu::may_have_devices())) return members;
  for (const opencl::DeviceDescription &each : opencl::describe_devices(kPatience)) {
    if (each.kind != "gpu" && each.kind != "accelerator") continue;
    if (has_cuda && each.description.find("NVIDIA") != std::string::npos) continue;
    add(each.name);
  }
  return members;
}

// "cpu+opencl:0:0": these devices together. *has_cpu_out: the CPU is one of them.
std::vector<hybrid::Member> named_members(tandem_context &context, const tandem_context_options &options,
                                          std::string_view names, bool *has_cpu_out) {
  std::vector<hybrid::Member> members;
  const auto refuse = [&](tandem_status status, const std::string &why) {
    base::fail(status, fmt::format("backend \"hybrid:{}\": {}", names, why));
  };
  for (std::string_view rest = names;;) {
    const std::size_t plus = rest.find('+');
    const std::string each(rest.substr(0, plus));
    const bool again = std::any_of(members.begin(), members.end(), [&](const hybrid::Member &other) {
      return other.name == each || (each == "cpu" && other.is_in_place);
    });
    if (again) refuse(TANDEM_ERROR_INVALID_ARGUMENT, each + " stands twice");
    if (each == "cpu") {
      std::vector<hybrid::Member> of_cpu = cpu_members(context, options);
      members.insert(members.begin(), std::make_move_iterator(of_cpu.begin()), std::make_move_iterator(of_cpu.end()));
      *has_cpu_out = true;
    } else if (opencl::is_device_name(each) || gpu::is_device_name(each)) {
      members.push_back(device_member(context, each));
    } else {
      refuse(TANDEM_ERROR_UNAVAILABLE,
             fmt::format("\"{}\" is no device; a hybrid is such as hybrid:cpu+opencl:0:0+cuda:1", each));
    }
    if (plus == std::string_view::npos) return members;
    rest.remove_prefix(plus + 1);
  }
}

// What hybrids of earlier processes learned here, and what becomes of what this one does.
void use_tuning_file(hybrid::Options &options, const tandem_context &context) {
  options.machine = machine_name();
  if (context.tuning != nullptr) options.known = speeds_of_this_machine(*context.tuning);
  if (context.tuning_path.empty()) return;
  options.remember = [path = context.tuning_path](std::vector<core::SpeedEntry> learned) {
    remember_speeds(path, std::move(learned));
  };
}

// "hybrid": the CPU and whatever else is found. "auto": the same, but large calls alone make it look, and only where
// the system has device nodes of GPUs: no driver is loaded in vain.
std::unique_ptr<core::Backend> make_searching_hybrid(tandem_context &context, const tandem_context_options &options,
                                                     hybrid::Options hybrid_options, Search search) {
  hybrid_options.members = cpu_members(context, options);
  hybrid_options.discover = [&context, search] { return find_members(context, search); };
  if (search == Search::where_device_nodes_are) {
    hybrid_options.name = "cpu";
    hybrid_options.discover_bytes = kDiscoverBytes;
  }
  return hybrid::make_backend(std::move(hybrid_options), context.log);
}

std::unique_ptr<core::Backend> make_hybrid_backend(tandem_context &context, const tandem_context_options &options,
                                                   const std::string &name, bool tuning_is_named) {
  hybrid::Options hybrid_options;
  hybrid_options.policy = policy_option(options.policy);
  hybrid_options.resources = context.budget.get();
  hybrid_options.timeline_file = text_option(options.timeline_file, "TANDEM_TIMELINE");
  check_cpu_options(options);
  use_tuning_file(hybrid_options, context);
  constexpr std::string_view kNamed = "hybrid:";
  const bool is_named = name.starts_with(kNamed);
  bool has_cpu = !is_named;
  if (is_named)
    hybrid_options.members = named_members(context, options, std::string_view(name).substr(kNamed.size()), &has_cpu);
  if (has_cpu) {
    hybrid_options.alone = make_cpu_backend(context, options, tuning_is_named);
    hybrid_options.inline_bytes = context.inline_bytes;
    // Nobody is to make his calls small, to have them done at once, where all of the others are to have their share.
    if (hybrid_options.policy != hybrid::Policy::automatic) context.inline_bytes = 0;
  } else {
    context.kernel_name = "auto";
    context.caller_count = cpu::allowed_core_count();
    hybrid_options.inline_bytes = 0;
  }
  const bool is_auto = !is_named && name != "hybrid";
  if (!is_auto) context.executor_name = "hybrid";
  if (is_named) return hybrid::make_backend(std::move(hybrid_options), context.log);
  return make_searching_hybrid(context, options, std::move(hybrid_options),
                               is_auto ? Search::where_device_nodes_are : Search::all);
}

std::unique_ptr<core::Backend> make_backend(tandem_context &context, const tandem_context_options &options,
                                            bool tuning_is_named) {
  const std::string name = text_option(options.backend, "TANDEM_BACKEND");
  policy_option(options.policy);
  const bool is_auto = name.empty() || name == "auto";
  // Who asks for an executor asks for the CPU.
  const auto is_for_the_cpu = [&] {
    return executor_option(options.executor) != TANDEM_EXECUTOR_DEFAULT ||
           (!gpu::may_have_devices() && !opencl::may_have_gpus());
  };
  if (name == "cpu" || (is_auto && is_for_the_cpu())) return make_cpu_backend(context, options, tuning_is_named);
  if (is_auto || name == "hybrid" || name.starts_with("hybrid:"))
    return make_hybrid_backend(context, options, name, tuning_is_named);
  if (opencl::is_device_name(name) || gpu::is_device_name(name)) {
    check_cpu_options(options);
    return make_device_backend(context, options, name);
  }
  base::fail(TANDEM_ERROR_UNAVAILABLE,
             fmt::format("backend \"{}\" does not exist here; known: auto, cpu, opencl, opencl:PLATFORM:DEVICE, cuda, "
                         "cuda:N, hybrid, hybrid:DEVICE+DEVICE...",
                         name));
}

}  // namespace
}  // namespace tandem::api

using namespace tandem;

extern "C" {

tandem_status tandem_context_create(const tandem_context_options *options, tandem_context **context_out) {
  if (context_out == nullptr) return base::refuse(TANDEM_ERROR_INVALID_ARGUMENT, "context_out is NULL");
  return base::guarded([&] {
    static std::atomic<std::uint64_t> next_id{1};
    const tandem_context_options given = base::read_options(options, "tandem_context_options");
    auto context = std::make_unique<tandem_context>();
    context->id = next_id.fetch_add(1, std::memory_order_relaxed);
    context->log = base::Log(given.log_callback, given.log_user, given.log_level);
    const std::string resources = tandem::api::text_option(given.resources, "TANDEM_RESOURCES");
    if (!resources.empty()) context->budget->set_all(resources);
    const bool named = tandem::api::load_tuning(*context, given.tuning_file);
    context->backend = tandem::api::make_backend(*context, given, named);
    *context_out = context.release();
  });
}

void tandem_context_destroy(tandem_context *context) {
  if (context == nullptr) return;
  context->backend.reset();
  context->log.mute();
  delete context;
}

tandem_status tandem_context_set_resource(tandem_context *context, const char *name, uint64_t amount) {
  if (context == nullptr || name == nullptr)
    return base::refuse(TANDEM_ERROR_INVALID_ARGUMENT, "context or name is NULL");
  return base::guarded([&] { context->budget->set(name, amount); });
}

tandem_status tandem_context_query(const tandem_context *context, tandem_context_info *info_out) {
  if (context == nullptr || info_out == nullptr)
    return base::refuse(TANDEM_ERROR_INVALID_ARGUMENT, "context or info_out is NULL");
  return base::guarded([&] {
    tandem_context_info info = {};
    info.backend = context->backend->traits().name.c_str();
    info.kernel = context->kernel_name;
    info.executor = context->executor_name;
    info.thread_count = context->thread_count;
    info.kernel_calls = context->backend->kernel_calls();
    info.inline_bytes = context->inline_bytes;
    info.caller_count = context->caller_count;
    base::write_result(info, info_out, "tandem_context_info");
  });
}

}  // extern "C"
