// SPDX-License-Identifier: Apache-2.0
// Many stripes in the memory of a device: by one call, as one long stripe of the same bytes, and one by one.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "bench/library.hpp"
#include "bench/machine.hpp"
#include "bench/measure.hpp"
#include "bench/report.hpp"
#include "tandem/device.h"

namespace tandem::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLine = 64;
constexpr std::size_t kMostOneByOne = 256;  // stripes; more would take time and tell nothing new
constexpr std::size_t kPaintBytes = std::size_t{16} << 20;

struct DestroyMore {
  void operator()(const tandem_device_memory *memory) const noexcept { tandem_device_memory_destroy(memory); }
  void operator()(tandem_plan *plan) const noexcept { tandem_plan_destroy(plan); }
};

void finish(tandem_job *job) {
  const tandem_status status = tandem_job_wait(job);
  tandem_job_destroy(job);
  check(status);
}

// Shard i of stripe s lies at (i * stripes + s) * shard_bytes, so that all stripes together form one stripe of long
// shards.
class Batch {
 public:
  Batch(const BatchRequest &request, tandem_context *context, const tandem_codec *codec, bool decodes,
        std::size_t shard_bytes)
      : k_(request.k),
        m_(request.m),
        count_(request.stripe_count),
        shard_bytes_(shard_bytes),
        decodes_(decodes),
        context_(context),
        codec_(codec),
        present_(k_ + m_, 1) {
    std::size_t all = 0;
    if (__builtin_mul_overflow(count_, shard_bytes_, &all) || __builtin_mul_overflow(all, k_ + m_, &all))
      refuse(fmt::format("{} stripes of {} shards of {} bytes do not fit memory", count_, k_ + m_, shard_bytes_));
    const tandem_device_memory *memory = nullptr;
    check(tandem_device_memory_create(context, all, &memory));
    memory_.reset(memory);
    handles_.assign(k_ + m_, memory_->shards);
    lost_count_ = decodes_ ? std::min(k_, m_) : m_;
    if (decodes_) std::fill_n(present_.begin(), lost_count_, std::uint8_t{0});
    paint();
    for (std::size_t s = 0; s < count_; ++s)
      for (unsigned i = 0; i < k_ + m_; ++i) offsets_.push_back(place(i, s));
    for (unsigned i = 0; i < k_ + m_; ++i) long_offsets_.push_back(place(i, 0));
    for (std::size_t s = 0; s < count_; ++s) {
      tandem_stripe stripe = {};
      stripe.shards = handles_.data();
      stripe.offsets = &offsets_[s * (k_ + m_)];
      stripe.present = decodes_ ? present_.data() : nullptr;
      stripe.shard_bytes = shard_bytes_;
      stripe.memory = memory_->memory;
      stripes_.push_back(stripe);
    }
    tandem_plan_options options = {};
    options.struct_bytes = sizeof options;
    options.operation = decodes_ ? TANDEM_OPERATION_DECODE : TANDEM_OPERATION_ENCODE;
    options.memory = memory_->memory;
    options.present = decodes_ ? present_.data() : nullptr;
    options.wait_for_kernel = 1;
    tandem_plan *plan = nullptr;
    check(tandem_plan_create(context, codec, &options, &plan));
    plan_.reset(plan);
  }

  void run_together() {
    tandem_job *job = nullptr;
    check(tandem_code_batch(context_, codec_, decodes_ ? TANDEM_OPERATION_DECODE : TANDEM_OPERATION_ENCODE,
                            stripes_.data(), count_, sizeof stripes_[0], memory_->queue, &job));
    finish(job);
  }
  void run_as_one() const { finish(submit(long_offsets_.data(), count_ * shard_bytes_)); }
  std::size_t one_by_one_count() const { return std::min(count_, kMostOneByOne); }
  void run_one_by_one() {
    std::vector<tandem_job *> jobs;
    for (std::size_t s = 0; s < one_by_one_count(); ++s) jobs.push_back(submit(&offsets_[s * (k_ + m_)], shard_bytes_));
    for (tandem_job *job : jobs) finish(job);
  }

  // Compares what the last run wrote in the first stripe, and in the last one if last_too. Clears the bytes for the
  // next run.
  void check_and_forget(const char *how, bool last_too) {
    for (const std::size_t s : {std::size_t{0}, last_too ? count_ - 1 : 0}) {
      const std::vector<std::vector<unsigned char>> right = right_stripe(s);
      for (unsigned n = 0; n < lost_count_; ++n) {
        const unsigned i = decodes_ ? n : k_ + n;
        if (read(i, s) != right[i])
          throw std::runtime_error(fmt::format("{}: shard {} of stripe {} differs from the CPU's", how, i, s));
      }
    }
    forget();
  }
  void forget() {
    const std::vector<unsigned char> trash(shard_bytes_, 0xa5);
    for (const std::size_t s : {std::size_t{0}, count_ - 1})
      for (unsigned n = 0; n < lost_count_; ++n) write(decodes_ ? n : k_ + n, s, trash.data(), shard_bytes_);
  }

  std::size_t data_bytes() const { return k_ * count_ * shard_bytes_; }
  std::int32_t memory_kind() const { return memory_->memory; }

 private:
  std::uint64_t place(unsigned shard, std::size_t stripe) const { return (shard * count_ + stripe) * shard_bytes_; }

  void write(unsigned shard, std::size_t stripe, const unsigned char *from, std::size_t bytes) {
    check(tandem_device_memory_write(memory_.get(), place(shard, stripe), from, bytes));
  }
  std::vector<unsigned char> read(unsigned shard, std::size_t stripe) const {
    std::vector<unsigned char> bytes(shard_bytes_);
    check(tandem_device_memory_read(memory_.get(), place(shard, stripe), bytes.data(), bytes.size()));
    return bytes;
  }

  // Random data, and all parity of it by one long encode.
  void paint() {
    const std::size_t of_shard = count_ * shard_bytes_;
    std::vector<unsigned char> block(std::min(of_shard, kPaintBytes));
    std::mt19937_64 random(1);
    for (unsigned i = 0; i < k_; ++i) {
      for (std::size_t at = 0; at < block.size(); at += sizeof(std::uint64_t)) {  // a multiple of kLine
        const std::uint64_t word = random();
        std::memcpy(&block[at], &word, sizeof word);
      }
      for (std::size_t done = 0; done < of_shard; done += block.size())
        check(tandem_device_memory_write(memory_.get(), place(i, 0) + done, block.data(),
                                         std::min(block.size(), of_shard - done)));
    }
    for (const std::size_t s : {std::size_t{0}, count_ - 1}) {
      std::vector<std::vector<unsigned char>> &shards = data_.emplace_back();
      for (unsigned i = 0; i < k_; ++i) shards.push_back(read(i, s));
    }
    if (!decodes_) return;
    std::vector<std::uint64_t> offsets;
    for (unsigned i = 0; i < k_ + m_; ++i) offsets.push_back(place(i, 0));
    tandem_stripe stripe = {};
    stripe.shards = handles_.data();
    stripe.offsets = offsets.data();
    stripe.shard_bytes = of_shard;
    stripe.memory = memory_->memory;
    tandem_job *job = nullptr;
    check(
        tandem_code_batch(context_, codec_, TANDEM_OPERATION_ENCODE, &stripe, 1, sizeof stripe, memory_->queue, &job));
    finish(job);
  }

  // The CPU computes them from the random data.
  std::vector<std::vector<unsigned char>> right_stripe(std::size_t stripe) const {
    std::vector<std::vector<unsigned char>> shards = data_[stripe == 0 ? 0 : 1];
    shards.resize(k_ + m_, std::vector<unsigned char>(shard_bytes_));
    std::vector<void *> pointers;
    for (std::vector<unsigned char> &each : shards) pointers.push_back(each.data());
    tandem_context_options options = {};
    options.struct_bytes = sizeof options;
    options.backend = "cpu";
    options.tuning_file = "";
    const ContextOwner cpu = make_context(options);
    check(tandem_encode(cpu.get(), codec_, pointers.data(), pointers.data() + k_, shard_bytes_));
    return shards;
  }

  tandem_job *submit(const std::uint64_t *offsets, std::size_t shard_bytes) const {
    tandem_plan_arguments arguments = {};
    arguments.struct_bytes = sizeof arguments;
    arguments.shards = handles_.data();
    arguments.shard_bytes = shard_bytes;
    arguments.queue = memory_->queue;
    arguments.offsets = offsets;
    tandem_job *job = nullptr;
    check(tandem_plan_run(plan_.get(), &arguments, &job));
    return job;
  }

  const unsigned k_, m_;
  const std::size_t count_, shard_bytes_;
  const bool decodes_;
  tandem_context *const context_;
  const tandem_codec *const codec_;
  std::unique_ptr<const tandem_device_memory, DestroyMore> memory_;
  unsigned lost_count_ = 0;
  std::vector<std::uint8_t> present_;
  std::vector<void *> handles_;
  std::vector<std::uint64_t> offsets_, long_offsets_;
  std::vector<tandem_stripe> stripes_;
  std::vector<std::vector<std::vector<unsigned char>>> data_;  // of the first stripe and the last
  std::unique_ptr<tandem_plan, DestroyMore> plan_;
};

Json rate_json(double data_bytes, const Samples &samples) {
  const auto rate = [&](double seconds) { return data_bytes / seconds / 1e9; };
  return {{"seconds_per_call", {{"median", samples.median()}, {"min", samples.min()}, {"max", samples.max()}}},
          {"gb_per_second",
           {{"median", rate(samples.median())}, {"min", rate(samples.max())}, {"max", rate(samples.min())}}}};
}

Json measure(const BatchRequest &request, const ContextOwner &context, const tandem_codec *codec,
             const std::string &operation, std::size_t shard_bytes) {
  Batch batch(request, context.get(), codec, operation == "decode", shard_bytes);
  const auto calls_of = [&](const auto &run, const char *how, bool last_too) {
    batch.forget();
    const std::uint64_t before = query(context).kernel_calls;
    run();
    const std::uint64_t calls = query(context).kernel_calls - before;
    batch.check_and_forget(how, last_too);
    return calls;
  };
  const auto together = [&] { batch.run_together(); };
  const auto as_one = [&] { batch.run_as_one(); };
  const auto one_by_one = [&] { batch.run_one_by_one(); };
  // The first call may compile. Each way must write the CPU's bytes.
  const std::uint64_t launches = calls_of(together, "together", true),
                      launches_as_one = calls_of(as_one, "as one stripe", true);
  calls_of(one_by_one, "one by one", batch.one_by_one_count() == request.stripe_count);
  const auto timed = [](const char *name, const auto &run) {
    return Contestant{name, [run](std::size_t calls) {
                        const double start = seconds_now(BenchClock::wall);
                        for (std::size_t i = 0; i < calls; ++i) run();
                        return seconds_now(BenchClock::wall) - start;
                      }};
  };
  const std::vector<Samples> samples =
      alternate({timed("together", together), timed("as one", as_one), timed("one by one", one_by_one)},
                request.repeats, request.seconds / request.repeats);
  const auto data = static_cast<double>(batch.data_bytes());
  const double of_one_by_one =
      static_cast<double>(batch.one_by_one_count()) / static_cast<double>(request.stripe_count);
  Json json = {{"operation", operation},
               {"k", request.k},
               {"m", request.m},
               {"memory", batch.memory_kind() == TANDEM_MEMORY_CUDA ? "cuda" : "opencl"},
               {"shard_bytes", shard_bytes},
               {"stripe_count", request.stripe_count},
               {"data_bytes", batch.data_bytes()},
               {"launches", launches},
               {"launches_as_one_stripe", launches_as_one}};
  json["together"] = rate_json(data, samples[0]);
  json["as_one_stripe"] = rate_json(data, samples[1]);
  json["one_by_one"] = rate_json(data * of_one_by_one, samples[2]);
  json["one_by_one"]["stripe_count"] = batch.one_by_one_count();
  json["over_one_stripe"] = samples[0].median() / samples[1].median();
  json["over_one_by_one"] = samples[0].median() / (samples[2].median() / of_one_by_one);
  return json;
}

}  // namespace

nlohmann::ordered_json measure_batch(const BatchRequest &request, bool show) {
  if (request.k == 0 || request.m == 0)
    refuse(fmt::format("code {}+{}: there is nothing to compute", request.k, request.m));
  if (request.stripe_count == 0) refuse("--stripes is 0");
  for (const std::size_t bytes : request.shard_sizes)
    if (bytes == 0 || bytes % kLine != 0) refuse(fmt::format("--shard-bytes {} is not a multiple of {}", bytes, kLine));
  tandem_context_options options = {};
  options.struct_bytes = sizeof options;
  options.backend = request.backend.c_str();
  const std::string expert = "device_technique=" + request.technique;
  options.expert = expert.c_str();
  const ContextOwner context = make_context(options);
  const CodecOwner codec = make_codec(request.k, request.m, TANDEM_MATRIX_ISAL_CAUCHY);
  const MachineFacts machine = this_machine();
  Json json = {{"command", "batch"},
               {"format", 1},
               {"date", utc_now()},
               {"machine", {{"cpu", machine.cpu}, {"cores", machine.core_count}, {"load", machine.load}}},
               {"backend", request.backend},
               {"technique", request.technique},
               {"repeats", request.repeats},
               {"results", Json::array()}};
  constexpr const char *kRow = "{:>9} {:>8} {:>9} {:>8} {:>9} {:>10} {:>11} {:>11} {:>10}\n";
  if (show) {
    fmt::print("{}, technique {}: GB/s of data; medians of {} repeats in alternation\n", request.backend,
               request.technique, request.repeats);
    fmt::print(kRow, "operation", "code", "shard", "stripes", "launches", "together", "one stripe", "one by one",
               "time/one");
  }
  for (const std::string &operation : request.operations) {
    for (const std::size_t bytes : request.shard_sizes) {
      json["results"].push_back(measure(request, context, codec.get(), operation, bytes));
      if (!show) continue;
      const Json &one = json["results"].back();
      const auto rate = [&](const char *how) {
        return fmt::format("{:.2f}", one[how]["gb_per_second"]["median"].get<double>());
      };
      fmt::print(kRow, operation, fmt::format("{}+{}", request.k, request.m), bytes, request.stripe_count,
                 one["launches"].get<std::uint64_t>(), rate("together"), rate("as_one_stripe"), rate("one_by_one"),
                 fmt::format("{:.2f}", one["over_one_stripe"].get<double>()));
      std::fflush(stdout);
    }
  }
  json["tandem"] = {{"version", tandem_version_string()}, {"backend", query(context).backend}};
  return json;
}

}  // namespace tandem::bench
