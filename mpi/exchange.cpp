// SPDX-License-Identifier: Apache-2.0
#include "mpi/exchange.hpp"

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>

#include "base/rounding.hpp"
#include "tandem/diagnose.h"
#include "tandem/tools.h"

namespace tandem::mpi {
namespace {

struct Destroy {
  void operator()(tandem_codec *codec) const noexcept { tandem_codec_destroy(codec); }
  void operator()(tandem_plan *plan) const noexcept { tandem_plan_destroy(plan); }
  void operator()(tandem_job *job) const noexcept { tandem_job_destroy(job); }
};
using Codec = std::unique_ptr<tandem_codec, Destroy>;
using Plan = std::unique_ptr<tandem_plan, Destroy>;
using Job = std::unique_ptr<tandem_job, Destroy>;

// The code of all stripes, with a column for each member. A member with parity in a stripe counts as zeros there. An
// MDS code without some columns is still MDS.
Codec whole_codec(const Layout &layout, std::int32_t matrix) {
  auto options = sized<tandem_codec_options>();
  options.k = layout.size();
  options.m = layout.m;
  options.matrix = matrix;
  tandem_codec *codec = nullptr;
  check(tandem_codec_create(&options, &codec));
  return Codec(codec);
}

Codec stripe_codec(const Layout &layout, const tandem_codec *whole, std::uint32_t stripe) {
  const std::size_t n = layout.size();
  std::vector<std::uint8_t> all(layout.m * n), kept;
  check(tandem_codec_coefficients(whole, all.data(), all.size()));
  for (std::size_t row = 0; row < layout.m; ++row)
    for (std::uint32_t member = 0; member < n; ++member)
      if (!layout.has_parity(member, stripe)) kept.push_back(all[row * n + member]);
  auto options = sized<tandem_codec_options>();
  options.k = layout.k;
  options.m = layout.m;
  options.matrix = TANDEM_MATRIX_CUSTOM;
  options.coefficients = kept.data();
  options.allow_non_mds = 1;  // it is MDS: see above. Checking would take long
  tandem_codec *codec = nullptr;
  check(tandem_codec_create(&options, &codec));
  return Codec(codec);
}

using Buffer = std::vector<std::byte>;
constexpr std::size_t kSlots = 2;  // one piece is coded while the next one is sent

// This rank's part of a task.
struct Work {
  const StripeTask *task;
  std::uint64_t segment_bytes;
  bool computes;
  std::vector<Buffer> in[kSlots], out[kSlots];  // of the root: all; of other ranks: those of the members that they hold
  Codec codec;
  Plan plan;
};

class Run {
 public:
  Run(const World &world, tandem_context *context, const Exchange &exchange)
      : world_(world), exchange_(exchange), data_(world), results_(world) {
    std::uint64_t longest = 0;
    for (const StripeTask &task : exchange.tasks) longest = std::max(longest, exchange.segment_bytes[task.group]);
    round_count_ = base::divide_up(longest, exchange.piece_bytes);
    world.together([&] {
      const Codec whole = whole_codec(exchange.layout, exchange.matrix);
      for (const StripeTask &task : exchange.tasks) prepare(task, context, whole.get());
    });
  }

  std::uint64_t run() {
    for (std::uint64_t round = 0; round <= round_count_; ++round) {
      std::vector<Job> jobs;
      if (round > 0) attempt([&] { jobs = begin_coding(round - 1); });
      if (round < round_count_) exchange_inputs(round);
      data_.wait();
      for (const Job &job : jobs) attempt([&] { check(tandem_job_wait(job.get())); });
      jobs.clear();
      if (round > 0) exchange_outputs(round - 1);
      world_.together([&] {
        if (failure_) std::rethrow_exception(failure_);
      });
    }
    return sent_bytes_;
  }

 private:
  int host(const StripeTask &task, std::uint32_t member) const { return exchange_.hosts[task.group][member]; }
  bool holds(const StripeTask &task, std::uint32_t member) const { return host(task, member) == world_.rank(); }
  Held &held(const StripeTask &task, std::uint32_t member) const { return *exchange_.held.at({task.group, member}); }

  // Messages continue after a failure, so that no rank waits for ever. The end of the round reports it to all ranks.
  void attempt(const std::function<void()> &body) {
    try {
      body();
    } catch (...) {
      if (!failure_) failure_ = std::current_exception();
    }
  }

  void prepare(const StripeTask &task, tandem_context *context, const tandem_codec *whole) {
    Work work{};
    work.task = &task;
    work.segment_bytes = exchange_.segment_bytes[task.group];
    work.computes = task.root == world_.rank();
    const auto piece = static_cast<std::size_t>(std::min(exchange_.piece_bytes, work.segment_bytes));
    bool concerned = work.computes;
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      for (const std::uint32_t member : task.inputs) {
        const bool here = work.computes || holds(task, member);
        work.in[slot].emplace_back(here ? piece : 0);
        concerned = concerned || here;
      }
      for (const std::uint32_t member : task.outputs) {
        const bool here = work.computes || holds(task, member);
        work.out[slot].emplace_back(here ? piece : 0);
        concerned = concerned || here;
      }
    }
    if (!concerned) return;
    if (work.computes) make_plan(work, context, whole);
    work_.push_back(std::move(work));
  }

  void make_plan(Work &work, tandem_context *context, const tandem_codec *whole) const {
    const Layout &layout = exchange_.layout;
    const StripeTask &task = *work.task;
    work.codec = stripe_codec(layout, whole, task.stripe);
    std::vector<std::uint8_t> present(layout.size(), 0), wanted(layout.size(), 0);
    for (const std::uint32_t member : task.inputs) present[layout.place_of(member, task.stripe)] = 1;
    for (const std::uint32_t member : task.outputs) wanted[layout.place_of(member, task.stripe)] = 1;
    auto options = sized<tandem_plan_options>();
    options.operation = TANDEM_OPERATION_DECODE;
    options.present = present.data();
    options.wanted = wanted.data();
    tandem_plan *plan = nullptr;
    check(tandem_plan_create(context, work.codec.get(), &options, &plan));
    work.plan.reset(plan);
  }

  std::uint64_t offset_of(std::uint64_t round) const { return round * exchange_.piece_bytes; }
  // 0: the segment ends before it.
  std::size_t length_of(const Work &work, std::uint64_t round) const {
    const std::uint64_t offset = offset_of(round);
    return static_cast<std::size_t>(
        std::min(exchange_.piece_bytes, work.segment_bytes - std::min(offset, work.segment_bytes)));
  }

  void exchange_inputs(std::uint64_t round) {
    for (Work &work : work_) {
      const StripeTask &task = *work.task;
      const std::size_t length = length_of(work, round);
      for (std::size_t i = 0; length != 0 && i < task.inputs.size(); ++i) {
        const std::uint32_t member = task.inputs[i];
        const bool here = holds(task, member);
        if (!here && !work.computes) continue;
        const std::span<std::byte> bytes(work.in[round % kSlots][i].data(), length);
        if (here) attempt([&] { held(task, member).read(task.stripe, offset_of(round), bytes); });
        if (!here) data_.receive(host(task, member), bytes);
        if (here && !work.computes) send(data_, task.root, bytes);
      }
    }
  }

  std::vector<Job> begin_coding(std::uint64_t round) {
    std::vector<Job> jobs;
    for (Work &work : work_) {
      const std::size_t length = length_of(work, round);
      if (!work.computes || length == 0) continue;
      const StripeTask &task = *work.task;
      std::vector<void *> shards(exchange_.layout.size(), nullptr);
      for (std::size_t i = 0; i < task.inputs.size(); ++i)
        shards[exchange_.layout.place_of(task.inputs[i], task.stripe)] = work.in[round % kSlots][i].data();
      for (std::size_t i = 0; i < task.outputs.size(); ++i)
        shards[exchange_.layout.place_of(task.outputs[i], task.stripe)] = work.out[round % kSlots][i].data();
      auto arguments = sized<tandem_plan_arguments>();
      arguments.shards = shards.data();
      arguments.shard_bytes = length;
      tandem_job *job = nullptr;
      check(tandem_plan_run(work.plan.get(), &arguments, &job));
      jobs.emplace_back(job);
    }
    return jobs;
  }

  void exchange_outputs(std::uint64_t round) {
    const auto each = [&](const auto &body) {
      for (Work &work : work_) {
        const StripeTask &task = *work.task;
        const std::size_t length = length_of(work, round);
        for (std::size_t i = 0; length != 0 && i < task.outputs.size(); ++i)
          if (work.computes || holds(task, task.outputs[i]))
            body(work, task, task.outputs[i], std::span<std::byte>(work.out[round % kSlots][i].data(), length));
      }
    };
    each([&](const Work &work, const StripeTask &task, std::uint32_t member, std::span<std::byte> bytes) {
      const bool here = holds(task, member);
      if (!here) send(results_, host(task, member), bytes);
      if (here && !work.computes) results_.receive(task.root, bytes);
    });
    results_.wait();
    each([&](const Work &, const StripeTask &task, std::uint32_t member, std::span<std::byte> bytes) {
      if (holds(task, member)) attempt([&] { held(task, member).write(task.stripe, offset_of(round), bytes); });
    });
  }

  void send(Messages &messages, int rank, std::span<const std::byte> bytes) {
    messages.send(rank, bytes);
    sent_bytes_ += bytes.size();
  }

  const World &world_;
  const Exchange &exchange_;
  std::uint64_t round_count_ = 0, sent_bytes_ = 0;
  std::vector<Work> work_;
  std::exception_ptr failure_;
  Messages data_, results_;  // the last, because they must end before the buffers are freed
};

}  // namespace

void check_matrix(const Layout &layout, std::int32_t matrix) {
  if (matrix == TANDEM_MATRIX_CUSTOM) fail(TANDEM_ERROR_UNSUPPORTED, "protection needs a preset, no custom matrix");
  const std::uint32_t traits = tandem_matrix_traits(matrix);
  if ((traits & TANDEM_MATRIX_HAS_LOCAL_GROUPS) != 0)
    fail(TANDEM_ERROR_UNSUPPORTED, "matrix ", tandem_matrix_name(matrix),
         " has local groups; protection is for any m lost members");
  if ((traits & TANDEM_MATRIX_IS_GF16) != 0)
    fail(TANDEM_ERROR_UNSUPPORTED, "matrix ", tandem_matrix_name(matrix),
         " is over GF(2^16); protection needs one over GF(2^8)");
  if (std::uint64_t{layout.k} + 2 * std::uint64_t{layout.m} > 256)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "k + 2m is ", std::uint64_t{layout.k} + 2 * std::uint64_t{layout.m},
         ", at most 256 are possible");
  whole_codec(layout, matrix);
}

std::uint64_t run(const World &world, tandem_context *context, const Exchange &exchange) {
  return Run(world, context, exchange).run();
}

}  // namespace tandem::mpi
