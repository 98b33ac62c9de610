// SPDX-License-Identifier: Apache-2.0
// Plans and jobs.

#include <algorithm>
#include <mutex>
#include <string_view>
#include <vector>

#include "api/backends.hpp"
#include "api/job.hpp"
#include "api/run.hpp"
#include "base/gate.hpp"
#include "base/options.hpp"
#include "core/mismatch_ranges.hpp"
#include "tandem/device.h"
#include "tandem/diagnose.h"

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
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "operation is ", options.operation, "; known values are 0 to ",
               int{TANDEM_OPERATION_ACCUMULATE});
  }
  if (options.first != 0 && options.operation != TANDEM_OPERATION_ACCUMULATE)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "first is ", options.first, ", but it belongs to accumulate");
  if (options.wait_for_kernel > 1) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "wait_for_kernel is ", options.wait_for_kernel,
               "; known values are 0 and 1");
  }
  if (options.read_costs != nullptr && options.operation != TANDEM_OPERATION_DECODE)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "read_costs are set, but they belong to decode");
  if (options.cancelled != nullptr && options.operation != TANDEM_OPERATION_DECODE)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "cancelled is set, but it belongs to decode");
  check_reachable(backend, options.memory);
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
    if (options.read_costs != nullptr)
      shape.read_costs.assign(options.read_costs, options.read_costs + codec.shard_count());
  } else {
    shape.wanted = options.wanted == nullptr || shape.operation == Operation::verify
                       ? all_parity(codec)
                       : shard_set(options.wanted, codec.shard_count());
  }
  return shape;
}

// Out of line, like check_verify_arguments, so that the rest is inlined into a small call.
[[noreturn, gnu::noinline]] void fail_memory_arguments() {
  base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
             "queue, offsets or new_data_offset is set, but the plan is for host memory");
}
[[noreturn, gnu::noinline]] void fail_no_shards() { base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "shards is NULL"); }

// A verify's result, and the array of its ranges.
[[gnu::noinline]] void check_verify_arguments(const tandem_plan_arguments &arguments) {
  if (arguments.verify_result == nullptr)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "verify_result is NULL: a verify needs it");
  base::check_result_size(arguments.verify_result, "tandem_verify_result");
  if (arguments.verify_ranges == nullptr) return;
  constexpr const char *kName = "tandem_verify_ranges";
  base::check_result_size(arguments.verify_ranges, kName, sizeof *arguments.verify_ranges);  // `count` is written
  const auto given = base::read_options(arguments.verify_ranges, kName);
  if (given.ranges == nullptr && given.capacity != 0)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "ranges is NULL, but capacity is ", given.capacity);
}

// All but the pointers to shards.
void check_arguments(const Plan &plan, core::MemoryKind memory, const tandem_plan_arguments &arguments) {
  if (memory == core::MemoryKind::host &&
      (arguments.queue != nullptr || arguments.offsets != nullptr || arguments.new_data_offset != 0)) [[unlikely]]
    fail_memory_arguments();
  if (arguments.shards == nullptr) fail_no_shards();
  check_shard_bytes(arguments.shard_bytes, plan.codec().shard_count());
  if (plan.shape().operation == Operation::verify) check_verify_arguments(arguments);
}

// The plan's pointers out of the arguments, checked.
void read_arguments(const Plan &plan, core::MemoryKind memory, const tandem_plan_arguments &arguments, Pointers *out) {
  check_arguments(plan, memory, arguments);
  gather(plan, arguments.shards, arguments.new_data, out);
  if (memory == core::MemoryKind::host) {
    check_pointers(plan, out->inputs.data(), out->outputs.data(), arguments.shard_bytes);
  } else {
    // The backend asks its driver which memory lies where.
    check_given(plan, out->inputs.data(), out->outputs.data(), arguments.shard_bytes);
  }
}

// One run of a plan: its own copies of the pointers, and the findings of verify.
class PlanRun final : public SubmittedRun {
 public:
  PlanRun(const tandem_plan &plan, const tandem_plan_arguments &arguments)
      : plan_(plan.plan),
        needs_(plan.needs),
        pointers_(*plan_),
        result_(arguments.verify_result),
        ranges_out_(arguments.verify_ranges) {
    read_arguments(*plan_, plan.memory, arguments, &pointers_);
    task_ = plan_->task(pointers_.inputs.data(), pointers_.outputs.data(), arguments.shard_bytes);
    if (plan.memory != core::MemoryKind::host) take_device_memory(plan.memory, arguments);
    if (plan_->mode() == core::Mode::compare) {
      mismatches_.resize(plan_->outputs().size());
      task_.mismatches = mismatches_.data();
      if (ranges_out_ != nullptr) {
        ranges_.capacity = ranges_out_->capacity;
        task_.ranges = &ranges_;
      }
    }
    hold_ = core::MemoryHold({&task_, 1});
  }
  PlanRun(const PlanRun &) = delete;
  PlanRun &operator=(const PlanRun &) = delete;

  std::span<const core::Task> tasks() const { return {&task_, 1}; }
  core::Control &control() override { return control_; }
  void release() override { hold_ = {}; }

  // A cancel after that has no effect.
  void finish() override {
    if (plan_->mode() != core::Mode::compare) return;
    core::Control control(needs_);
    const core::VerifyReport report = core::explain(*plan_, task_, control);
    if (ranges_out_ != nullptr) {
      core::find_ranges(*plan_, task_, control);
      for (std::size_t i = 0; i < ranges_.list.size(); ++i) {
        const core::MismatchRange &range = ranges_.list[i];
        ranges_out_->ranges[i] = {plan_->outputs()[range.output], 0, range.begin_bytes, range.end_bytes,
                                  range.byte_count};
      }
      ranges_out_->count = ranges_.count;
    }
    write_report(report, result_);
  }

 private:
  void take_device_memory(core::MemoryKind memory, const tandem_plan_arguments &given) {
    if (given.queue == nullptr && memory == core::MemoryKind::opencl)
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "queue is NULL: a plan for OpenCL memory needs it");
    task_.memory = memory;
    task_.queue = given.queue;
    const auto offset_of = [&](std::uint16_t index) { return given.offsets != nullptr ? given.offsets[index] : 0; };
    for (const std::uint16_t index : plan_->inputs()) input_offsets_.push_back(offset_of(index));
    for (const std::uint16_t index : plan_->outputs()) output_offsets_.push_back(offset_of(index));
    if (plan_->shape().operation == Operation::update) input_offsets_[1] = given.new_data_offset;
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
  tandem_verify_ranges *ranges_out_;  // null: no ranges wanted
  core::Control control_{needs_};
  core::MemoryHold hold_;
};

// Out of line: most runs have nothing more to do.
[[gnu::noinline]] void run_and_finish(const tandem_plan &plan, const tandem_plan_arguments &arguments) {
  PlanRun run(plan, arguments);
  plan.plan->backend().run(run.tasks(), run.control());
  run.finish();
}

[[gnu::noinline]] void submit(const tandem_plan &plan, const tandem_plan_arguments &arguments, tandem_job **job_out) {
  auto job = make_job();
  auto run = std::make_unique<PlanRun>(plan, arguments);
  job->ticket = plan.plan->backend().submit(run->tasks(), run->control());
  job->run = std::move(run);
  *job_out = job.release();
}

}  // namespace
}  // namespace tandem::api

using namespace tandem::api;

using namespace tandem;

extern "C" {

tandem_status tandem_plan_create(tandem_context *context, const tandem_codec *codec, const tandem_plan_options *options,
                                 tandem_plan **plan_out) {
  return base::guarded({{"codec", codec}, {"options", options}, {"plan_out", plan_out}}, [&] {
    const tandem_context &where = context_or_default(context);
    const tandem_plan_options given = base::read_options(options, "tandem_plan_options");
    const Shape shape = plan_shape(*where.backend, *codec->codec, given);
    const auto memory = static_cast<tandem::core::MemoryKind>(given.memory);
    std::vector<core::Need> needs = plan_needs(*where.budget, given.resources);
    const auto cancelled = [&] { return given.cancelled != nullptr && given.cancelled(given.cancelled_user) != 0; };
    auto plan = std::make_unique<tandem_plan>(tandem_plan{
        std::make_shared<const Plan>(*where.backend, codec->codec, shape, cancelled), memory, std::move(needs)});
    plan->shards_read.resize(codec->codec->shard_count());
    for (const std::uint16_t index : plan->plan->inputs()) plan->shards_read[index] = 1;
    if (plan->plan->mode() != tandem::core::Mode::assign)  // compared with, or added to
      for (const std::uint16_t index : plan->plan->outputs()) plan->shards_read[index] = 1;
    where.backend->make_ready(plan->plan->prepared(), plan->plan->mode(), memory, given.wait_for_kernel != 0);
    *plan_out = plan.release();
  });
}

void tandem_plan_destroy(tandem_plan *plan) { delete plan; }

tandem_status tandem_plan_query(const tandem_plan *plan, tandem_plan_info *info_out) {
  return base::guarded({{"plan", plan}, {"info_out", info_out}}, [&] {
    tandem_plan_info info = {};
    for (const core::TechniqueCost &each : plan->plan->prepared().techniques()) {
      if (std::string_view(each.name) == "matrix") info.matrix_products = each.products;
      if (each.is_used) info.technique = each.name, info.products = each.products;
      if (each.is_used_out_of_cache) info.technique_out_of_cache = each.name;
    }
    info.out_of_cache_bytes = plan->plan->prepared().out_of_cache_bytes(plan->plan->mode());
    info.shards_read = plan->shards_read.data();
    base::write_result(info, info_out, "tandem_plan_info");
  });
}

tandem_status tandem_plan_run(const tandem_plan *plan, const tandem_plan_arguments *arguments, tandem_job **job_out) {
  return base::guarded({{"plan", plan}, {"arguments", arguments}}, [&] {
    if (job_out != nullptr) return submit(*plan, base::read_options(arguments, "tandem_plan_arguments"), job_out);
    tandem_plan_arguments room;
    const tandem_plan_arguments &given = base::view_options(arguments, "tandem_plan_arguments", &room);
    if (plan->memory != tandem::core::MemoryKind::host || plan->plan->mode() == tandem::core::Mode::compare)
      return run_and_finish(*plan, given);
    check_arguments(*plan->plan, plan->memory, given);
    if (!plan->plan->is_in_stripe_order())
      return run_gathered(*plan->plan, given.shards, given.new_data, given.shard_bytes, plan->needs);
    run_stripe(*plan->plan, as_inputs(given.shards), as_outputs(given.shards + plan->plan->inputs().size()),
               given.shard_bytes, plan->needs);
  });
}

tandem_status tandem_job_wait(tandem_job *job) {
  if (job == nullptr) return tandem_set_last_error(TANDEM_ERROR_INVALID_ARGUMENT, "job is NULL");
  if (job->generation != base::fork_generation())
    return tandem_set_last_error(TANDEM_ERROR_INVALID_ARGUMENT,
                                 "the job runs in the process that forked, not in this child");
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
  return job->status == TANDEM_OK ? TANDEM_OK : tandem_set_last_error(job->status, job->message.c_str());
}

tandem_status tandem_job_cancel(tandem_job *job) {
  return base::guarded({{"job", job}}, [&] { job->run->control().cancel(); });
}

void tandem_job_destroy(tandem_job *job) {
  if (job == nullptr) return;
  // Its thread does not exist in this process: the job is abandoned, not freed.
  if (job->generation != base::fork_generation()) return;
  tandem_job_wait(job);
  delete job;
}

}  // extern "C"
