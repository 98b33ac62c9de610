// Plans and jobs.
#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "api/backends.hpp"
#include "api/run.hpp"
#include "base/fork.hpp"
#include "base/gate.hpp"
#include "base/options.hpp"
#include "core/mismatch_ranges.hpp"

namespace tandem::api {
namespace {

using core::Codec;
using core::Operation;
using core::Plan;
using core::Shape;
using core::ShardSet;

ShardSet shard_set(const std::uint8_t *flags, unsigned count) {
  ShardSet set;
  for (unsigned i = 0; i < count; ++i)
    if (flags[i] != 0) set.set(i);
  return set;
}

Shape plan_shape(const core::Backend &backend, const Codec &codec, const tandem_plan_options &options) {
  if (options.operation < TANDEM_OPERATION_ENCODE || options.operation > TANDEM_OPERATION_ACCUMULATE) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("operation is {}; known values are 0 to {}",
                                                          options.operation, int{TANDEM_OPERATION_ACCUMULATE}));
  }
  if (options.first != 0 && options.operation != TANDEM_OPERATION_ACCUMULATE)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("first is {}, but it belongs to accumulate", options.first));
  const std::vector<core::MemoryKind> &memories = backend.traits().memories;
  if (std::find(memories.begin(), memories.end(), static_cast<core::MemoryKind>(options.memory)) == memories.end()) {
    base::fail(TANDEM_ERROR_UNSUPPORTED,
               fmt::format("memory kind {}: no backend of this context reaches it", options.memory));
  }
  Shape shape;
  shape.operation = static_cast<Operation>(options.operation);
  if (shape.operation == Operation::update || shape.operation == Operation::accumulate) {
    check_index(options.index, codec);
    shape.index = options.index;
    shape.overwrite = options.first != 0;
  }
  if (shape.operation == Operation::decode) {
    if (options.present == nullptr) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "present is NULL: a decode needs it");
    shape.present = shard_set(options.present, codec.shard_count());
    for (unsigned i = 0; i < codec.shard_count(); ++i)
      if (options.wanted == nullptr ? !shape.present[i] : options.wanted[i] != 0) shape.wanted.set(i);
  } else {
    shape.wanted = options.wanted == nullptr || shape.operation == Operation::verify
                       ? all_parity(codec)
                       : shard_set(options.wanted, codec.shard_count());
  }
  return shape;
}

// What belongs to the memory kind.
void check_memory_arguments(core::MemoryKind memory, const tandem_plan_arguments &arguments) {
  if (memory == core::MemoryKind::host) {
    if (arguments.queue != nullptr || arguments.offsets != nullptr || arguments.new_data_offset != 0)
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "queue or offsets are set, but the plan is for host memory");
    return;
  }
  if (arguments.queue == nullptr)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "queue is NULL: a plan for device memory needs it");
}

// Room for a verify's ranges.
void check_ranges(const tandem_plan_arguments &arguments) {
  if (arguments.verify_ranges == nullptr && arguments.verify_range_capacity != 0) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
               fmt::format("verify_ranges is NULL, but verify_range_capacity is {}", arguments.verify_range_capacity));
  }
  if (arguments.verify_ranges != nullptr && arguments.verify_range_count_out == nullptr)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "verify_range_count_out is NULL, but verify_ranges is set");
}

// The plan's pointers out of the arguments, checked.
void read_arguments(const Plan &plan, core::MemoryKind memory, const tandem_plan_arguments &arguments, Pointers *out) {
  check_memory_arguments(memory, arguments);
  if (arguments.shards == nullptr) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "shards is NULL");
  check_shard_bytes(arguments.shard_bytes, plan.codec().shard_count());
  gather(plan, arguments.shards, out);
  if (plan.shape().operation == Operation::update) out->inputs[1] = static_cast<const std::byte *>(arguments.new_data);
  if (plan.shape().operation == Operation::verify) {
    if (arguments.verify_result == nullptr)
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "verify_result is NULL: a verify needs it");
    base::check_result_size(arguments.verify_result, "tandem_verify_result");
    check_ranges(arguments);
  }
  if (memory == core::MemoryKind::host) {
    check_pointers(plan, out->inputs.data(), out->outputs.data(), arguments.shard_bytes);
  } else {
    // What lies where, the backend asks its driver.
    check_given(plan, out->inputs.data(), out->outputs.data(), arguments.shard_bytes);
  }
}

// One run of a plan: its own copies of the pointers, and what verify found.
class Run {
 public:
  Run(const tandem_plan &plan, const tandem_plan_arguments &arguments)
      : plan_(plan.plan),
        needs_(plan.needs),
        pointers_(*plan_),
        result_(arguments.verify_result),
        ranges_out_(arguments.verify_ranges),
        range_count_out_(arguments.verify_range_count_out) {
    read_arguments(*plan_, plan.memory, arguments, &pointers_);
    task_ = plan_->task(pointers_.inputs.data(), pointers_.outputs.data(), arguments.shard_bytes);
    if (plan.memory != core::MemoryKind::host) take_device_memory(plan.memory, arguments);
    if (plan_->mode() == core::Mode::compare) {
      mismatches_.resize(plan_->outputs().size());
      task_.mismatches = mismatches_.data();
      ranges_.capacity = arguments.verify_range_capacity;
      if (range_count_out_ != nullptr) task_.ranges = &ranges_;
    }
    hold_ = core::MemoryHold({&task_, 1});
  }
  Run(const Run &) = delete;
  Run &operator=(const Run &) = delete;

  std::span<const core::Task> tasks() const { return {&task_, 1}; }
  core::Control &control() { return control_; }

  // The run is over, and uses the shards no more.
  void release() { hold_ = {}; }

  // After the task is over: what the caller is to hear beyond the bytes. A cancel that came too late changes nothing.
  void finish() {
    if (plan_->mode() != core::Mode::compare) return;
    core::Control control(needs_);
    const core::VerifyReport report = core::explain(*plan_, task_, control);
    if (range_count_out_ != nullptr) {
      core::find_ranges(*plan_, task_, control);
      for (std::size_t i = 0; i < ranges_.list.size(); ++i) {
        const core::MismatchRange &range = ranges_.list[i];
        ranges_out_[i] = {plan_->outputs()[range.output], 0, range.begin_bytes, range.end_bytes, range.byte_count};
      }
      *range_count_out_ = ranges_.count;
    }
    write_report(report, result_);
  }

 private:
  void take_device_memory(core::MemoryKind memory, const tandem_plan_arguments &arguments) {
    task_.memory = memory;
    task_.queue = arguments.queue;
    const auto offset_of = [&](std::uint16_t index) {
      return arguments.offsets != nullptr ? arguments.offsets[index] : 0;
    };
    for (const std::uint16_t index : plan_->inputs()) input_offsets_.push_back(offset_of(index));
    for (const std::uint16_t index : plan_->outputs()) output_offsets_.push_back(offset_of(index));
    if (plan_->shape().operation == Operation::update) input_offsets_[1] = arguments.new_data_offset;
    task_.input_offsets = input_offsets_.data();
    task_.output_offsets = output_offsets_.data();
  }

  std::shared_ptr<const Plan> plan_;
  const std::vector<core::Need> needs_;
  Pointers pointers_;
  std::vector<std::uint64_t> input_offsets_, output_offsets_;  // device memory
  core::Task task_{};
  std::vector<core::Mismatch> mismatches_;
  core::MismatchRanges ranges_;
  tandem_verify_result *result_;
  tandem_verify_range *ranges_out_;
  std::uint64_t *range_count_out_;  // null: ranges are not wanted
  core::Control control_{needs_};
  core::MemoryHold hold_;
};

}  // namespace
}  // namespace tandem::api

using namespace tandem::api;

// A run under way, and its result once somebody waited.
struct tandem_job {
  std::uint32_t generation = tandem::base::fork_generation();  // of the process that runs it
  std::unique_ptr<Run> run;
  std::unique_ptr<tandem::core::Ticket> ticket;  // after the run that it uses
  std::mutex mutex;                              // waiters: the first one finishes the run
  bool over = false;
  tandem_status status = TANDEM_OK;
  std::string message;
};

using namespace tandem;

extern "C" {

tandem_status tandem_plan_create(tandem_context *context, const tandem_codec *codec, const tandem_plan_options *options,
                                 tandem_plan **plan_out) {
  return base::guarded({{"context", context}, {"codec", codec}, {"options", options}, {"plan_out", plan_out}}, [&] {
    const tandem_plan_options given = base::read_options(options, "tandem_plan_options");
    const Shape shape = plan_shape(*context->backend, *codec->codec, given);
    const auto memory = static_cast<tandem::core::MemoryKind>(given.memory);
    std::vector<core::Need> needs = plan_needs(*context->budget, given.resources);
    auto plan = std::make_unique<tandem_plan>(
        tandem_plan{std::make_shared<const Plan>(*context->backend, codec->codec, shape), memory, std::move(needs)});
    if (memory != tandem::core::MemoryKind::host)
      context->backend->make_ready(plan->plan->prepared(), plan->plan->mode(), memory);
    *plan_out = plan.release();
  });
}

void tandem_plan_destroy(tandem_plan *plan) { delete plan; }

tandem_status tandem_plan_shards_to_read(const tandem_plan *plan, uint8_t *read_out) {
  return base::guarded({{"plan", plan}, {"read_out", read_out}}, [&] {
    for (unsigned i = 0; i < plan->plan->codec().shard_count(); ++i) read_out[i] = 0;
    for (const std::uint16_t index : plan->plan->inputs()) read_out[index] = 1;
    if (plan->plan->mode() != tandem::core::Mode::assign)  // compared with, or added to
      for (const std::uint16_t index : plan->plan->outputs()) read_out[index] = 1;
  });
}

tandem_status tandem_plan_run(const tandem_plan *plan, const tandem_plan_arguments *arguments) {
  return base::guarded({{"plan", plan}, {"arguments", arguments}}, [&] {
    const tandem_plan_arguments given = base::read_options(arguments, "tandem_plan_arguments");
    Run run(*plan, given);
    plan->plan->backend().run(run.tasks(), run.control());
    run.finish();
  });
}

tandem_status tandem_plan_submit(const tandem_plan *plan, const tandem_plan_arguments *arguments,
                                 tandem_job **job_out) {
  return base::guarded({{"plan", plan}, {"arguments", arguments}, {"job_out", job_out}}, [&] {
    const tandem_plan_arguments given = base::read_options(arguments, "tandem_plan_arguments");
    auto job = std::make_unique<tandem_job>();
    job->message.reserve(512);  // a whole message: wait, which keeps it, must not have to allocate
    job->run = std::make_unique<Run>(*plan, given);
    job->ticket = plan->plan->backend().submit(job->run->tasks(), job->run->control());
    *job_out = job.release();
  });
}

tandem_status tandem_job_wait(tandem_job *job) {
  if (job == nullptr) return base::refuse(TANDEM_ERROR_INVALID_ARGUMENT, "job is NULL");
  if (job->generation != base::fork_generation())
    return base::refuse(TANDEM_ERROR_INVALID_ARGUMENT, "the job runs in the process that forked, not in this child");
  const std::lock_guard lock(job->mutex);
  if (!job->over) {
    job->status = base::guarded([&] {
      job->ticket->wait();
      job->run->finish();
    });
    if (job->status != TANDEM_OK) job->message = tandem_last_error_message();
    job->run->release();
    job->over = true;
    return job->status;
  }
  return job->status == TANDEM_OK ? TANDEM_OK : base::refuse(job->status, job->message);
}

tandem_status tandem_job_cancel(tandem_job *job) {
  return base::guarded({{"job", job}}, [&] { job->run->control().cancel(); });
}

void tandem_job_destroy(tandem_job *job) {
  if (job == nullptr) return;
  if (job->generation != base::fork_generation()) return;  // its thread is not here: forgotten, not freed
  tandem_job_wait(job);
  delete job;
}

}  // extern "C"
