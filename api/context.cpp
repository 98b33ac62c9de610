// Contexts, and the one place that lists the backends.
#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "api/gate.hpp"
#include "api/objects.hpp"
#include "api/options.hpp"
#include "core/disk_cache.hpp"
#include "cpu/factory.hpp"
#include "gpu/factory.hpp"
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
      core::fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("TANDEM_THREADS is \"{}\", not a number", value));
  }
  if (count > kMost)
    core::fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("thread_count is {}; at most {}", count, kMost));
  return count;
}

std::int32_t executor_option(std::int32_t given) {
  const char *value = given == TANDEM_EXECUTOR_DEFAULT ? std::getenv("TANDEM_EXECUTOR") : nullptr;
  if (value == nullptr || *value == 0) return given;
  const std::string name = value;
  if (name == "serial") return TANDEM_EXECUTOR_SERIAL;
  if (name == "pthread") return TANDEM_EXECUTOR_PTHREAD;
  if (name == "openmp") return TANDEM_EXECUTOR_OPENMP;
  core::fail(TANDEM_ERROR_UNAVAILABLE,
             fmt::format("TANDEM_EXECUTOR is \"{}\"; known executors: serial, pthread, openmp", name));
}

void check_range(const char *what, std::int32_t value, std::int32_t last) {
  if (value < 0 || value > last)
    core::fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("{} is {}; known values are 0 to {}", what, value, last));
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
  context.tuning_path = core::tuning_file_path(given, &named);
  context.tuning = core::load_tuning_file(context.tuning_path, named, context.log);
  return named;
}

// Said once: the backends say which values they take, not that there are none. Of the CPU only: a device is not touched
// before it is needed.
void say_what_is_known(const tandem_context &context, const core::Backend &cpu, bool named) {
  if (context.tuning == nullptr) return;
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

std::unique_ptr<core::Backend> make_cpu_backend(tandem_context &context, const tandem_context_options &options,
                                                bool tuning_is_named) {
  cpu::Options cpu_options;
  cpu_options.kernel = text_option(options.kernel, "TANDEM_KERNEL");
  cpu_options.thread_count = thread_count_option(options.thread_count);
  cpu_options.executor = executor_option(options.executor);
  cpu_options.partition = options.partition;
  cpu_options.schedule = options.schedule;
  cpu_options.pin_threads = options.pin_threads != 0;
  cpu_options.budget = &context.budget;
  cpu_options.tuning = context.tuning.get();
  cpu::Choice choice = {};
  std::unique_ptr<core::Backend> backend = cpu::make_backend(cpu_options, context.log, &choice);
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

std::unique_ptr<core::Backend> make_opencl_backend(tandem_context &context, const tandem_context_options &options,
                                                   const std::string &name) {
  opencl::Options opencl_options;
  opencl_options.device = name;
  opencl_options.technique = text_option(options.kernel, "TANDEM_KERNEL");
  opencl_options.tuning = context.tuning.get();
  opencl_options.resources = &context.budget;
  opencl_options.cache_folder = core::default_cache_folder("opencl");
  std::unique_ptr<core::Backend> backend = opencl::make_backend(opencl_options, context.log);
  describe_device(context, opencl_options.technique);
  context.caller_count = cpu::allowed_core_count() + backend->traits().lanes;
  return backend;
}

std::unique_ptr<core::Backend> make_cuda_backend(tandem_context &context, const tandem_context_options &options,
                                                 const std::string &name) {
  gpu::Options gpu_options;
  gpu_options.device = name;
  gpu_options.technique = text_option(options.kernel, "TANDEM_KERNEL");
  gpu_options.tuning = context.tuning.get();
  gpu_options.resources = &context.budget;
  gpu_options.cache_folder = core::default_cache_folder("cuda");
  std::unique_ptr<core::Backend> backend = gpu::make_backend(gpu_options, context.log);
  describe_device(context, gpu_options.technique);
  context.caller_count = cpu::allowed_core_count() + backend->traits().lanes;
  return backend;
}

std::unique_ptr<core::Backend> make_backend(tandem_context &context, const tandem_context_options &options,
                                            bool tuning_is_named) {
  const std::string name = text_option(options.backend, "TANDEM_BACKEND");
  if (name.empty() || name == "auto" || name == "cpu") return make_cpu_backend(context, options, tuning_is_named);
  if (opencl::is_device_name(name)) {
    check_cpu_options(options);
    return make_opencl_backend(context, options, name);
  }
  if (gpu::is_device_name(name)) {
    check_cpu_options(options);
    return make_cuda_backend(context, options, name);
  }
  core::fail(TANDEM_ERROR_UNAVAILABLE,
             fmt::format("backend \"{}\" does not exist here; known: auto, cpu, opencl, opencl:PLATFORM:DEVICE, cuda, "
                         "cuda:N",
                         name));
}

}  // namespace
}  // namespace tandem::api

using tandem::api::guarded;
using tandem::api::refuse;

extern "C" {

tandem_status tandem_context_create(const tandem_context_options *options, tandem_context **context_out) {
  if (context_out == nullptr) return refuse(TANDEM_ERROR_INVALID_ARGUMENT, "context_out is NULL");
  return guarded([&] {
    static std::atomic<std::uint64_t> next_id{1};
    const tandem_context_options given = tandem::api::read_options(options, "tandem_context_options");
    auto context = std::make_unique<tandem_context>();
    context->id = next_id.fetch_add(1, std::memory_order_relaxed);
    context->log = tandem::core::Log(given.log_callback, given.log_user, given.log_level);
    const std::string resources = tandem::api::text_option(given.resources, "TANDEM_RESOURCES");
    if (!resources.empty()) context->budget.set_all(resources);
    const bool named = tandem::api::load_tuning(*context, given.tuning_file);
    context->backend = tandem::api::make_backend(*context, given, named);
    *context_out = context.release();
  });
}

void tandem_context_destroy(tandem_context *context) { delete context; }

tandem_status tandem_context_set_resource(tandem_context *context, const char *name, uint64_t amount) {
  if (context == nullptr || name == nullptr) return refuse(TANDEM_ERROR_INVALID_ARGUMENT, "context or name is NULL");
  return guarded([&] { context->budget.set(name, amount); });
}

tandem_status tandem_context_query(const tandem_context *context, tandem_context_info *info_out) {
  if (context == nullptr || info_out == nullptr)
    return refuse(TANDEM_ERROR_INVALID_ARGUMENT, "context or info_out is NULL");
  return guarded([&] {
    tandem_context_info info = {};
    info.backend = context->backend->traits().name.c_str();
    info.kernel = context->kernel_name;
    info.executor = context->executor_name;
    info.thread_count = context->thread_count;
    info.kernel_calls = context->backend->kernel_calls();
    info.inline_bytes = context->inline_bytes;
    info.caller_count = context->caller_count;
    tandem::api::write_result(info, info_out, "tandem_context_info");
  });
}

}  // extern "C"
