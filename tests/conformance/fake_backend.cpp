// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/fake_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/error.hpp"
#include "tests/conformance/layouts.hpp"

namespace tandem::test {
namespace {

using core::Mode;
using core::Task;

class FakePrepared final : public core::Prepared {
 public:
  FakePrepared(const core::Operator &what, const FakeScript &script)
      : Prepared({what.form(), std::lcm(what.granularity_bytes(), script.granularity_bytes)}),
        reverses_groups(script.reverses_groups) {
    const auto *form = std::get_if<core::BitMatrix>(&what.form());
    matrix = form != nullptr ? *form->bits : what.dense();
    if (form != nullptr) {
      word_bits = form->word_bits;
      packet_bytes = form->packet_bytes;
      if (script.granularity_bytes != 1 || script.reverses_groups)
        base::fail(TANDEM_ERROR_UNSUPPORTED, script.name + ": packets have groups of their own");
    }
  }
  core::Matrix matrix;  // of bytes, or of packets
  const bool reverses_groups;
  unsigned word_bits = 0;  // of packets; else 0
  std::uint64_t packet_bytes = 0;
  std::optional<double> bytes_per_second;
  bool wrong = false;
  std::uint64_t wrong_from_bytes = 0;
  mutable std::atomic<double> first_run_seconds{0};
};

const FakePrepared &prepared_of(const Task &task) { return static_cast<const FakePrepared &>(*task.prepared); }

Shards product_of(const core::Matrix &matrix, const Shards &inputs, std::size_t bytes) {
  std::vector<const std::uint8_t *> from;
  for (const Bytes &input : inputs) from.push_back(input.data());
  return expected(matrix.data(), matrix.rows(), matrix.columns(), from.data(), bytes);
}

Shards result_of(const Task &task, std::uint64_t offset, std::uint64_t length) {
  const FakePrepared &prepared = prepared_of(task);
  Shards inputs;
  for (unsigned c = 0; c < prepared.columns(); ++c) {
    const auto *input = reinterpret_cast<const std::uint8_t *>(task.inputs[c]) + offset;
    inputs.emplace_back(input, input + length);
    if (prepared.reverses_groups) reverse_groups(prepared.granularity_bytes(), &inputs.back());
  }
  Shards product;
  if (prepared.word_bits == 0) {
    product = product_of(prepared.matrix, inputs, length);
  } else {
    Shards packets;
    for (const Bytes &input : inputs)
      for (Bytes &each : packets_of(input, prepared.word_bits, prepared.packet_bytes))
        packets.push_back(std::move(each));
    packets = product_of(prepared.matrix, packets, length / prepared.word_bits);
    for (unsigned r = 0; r < prepared.rows(); ++r)
      product.push_back(shard_of(packets.data() + r * prepared.word_bits, prepared.word_bits, prepared.packet_bytes));
  }
  if (prepared_of(task).wrong && task.length_bytes >= prepared_of(task).wrong_from_bytes &&
      offset + length == task.offset_bytes + task.length_bytes)
    product[0][length - 1] ^= 1;
  return product;
}

// The product begins at `offset`; of it the bytes from `first` up to `last` are written.
void write(const Task &task, const Shards &product, std::uint64_t offset, std::uint64_t first, std::uint64_t last) {
  const core::Prepared &prepared = *task.prepared;
  for (unsigned r = 0; r < prepared.rows(); ++r) {
    auto *output = reinterpret_cast<std::uint8_t *>(task.outputs[r]) + offset;
    for (std::uint64_t i = first; i < last; ++i) {
      const std::uint8_t value = product[r][i];
      if (task.mode == Mode::assign) {
        output[i] = value;
      } else if (task.mode == Mode::accumulate) {
        output[i] ^= value;
      } else if (output[i] != value) {
        task.mismatches[r].merge({1, offset + i});
      }
    }
  }
}

}  // namespace

struct FakeBackend::State {
  FakeScript script;
  core::Traits traits;
  mutable std::mutex mutex;
  std::condition_variable lane_free;
  unsigned running = 0;
  FakeCounts counts = {};

  void pass(double seconds) {
    if (seconds <= 0) return;
    if (script.pass_time) return script.pass_time(seconds);
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }

  static std::uint64_t moved_bytes(const Task &task, std::uint64_t length) {
    return length * (task.prepared->rows() + task.prepared->columns());
  }

  // The task's number. Takes a lane.
  std::uint64_t begin() {
    std::unique_lock lock(mutex);
    lane_free.wait(lock, [&] { return running < script.lanes; });
    counts.most_at_once = std::max(counts.most_at_once, ++running);
    return counts.tasks_started++;
  }

  void end() {
    {
      const std::lock_guard lock(mutex);
      --running;
    }
    lane_free.notify_one();
  }

  // Throws Error when cancelled.
  void run_range(const Task &task, std::uint64_t number, std::uint64_t length_bytes, core::Control &control) {
    const std::uint64_t grain = task.prepared->granularity_bytes();
    if (task.offset_bytes % grain != 0 || task.length_bytes % grain != 0)
      base::fail(TANDEM_ERROR_INTERNAL, fmt::format("{}: {} bytes at {} are not cut at multiples of {}", script.name,
                                                    task.length_bytes, task.offset_bytes, grain));
    const std::uint64_t step = std::max(script.chunk_bytes / grain * grain, grain);
    for (std::uint64_t done = 0; done < length_bytes;) {
      if (script.before_chunk) script.before_chunk(number, done);
      if (control.cancelled()) base::fail(TANDEM_ERROR_CANCELLED, fmt::format("{}: cancelled", script.name));
      const std::uint64_t length = std::min(step, length_bytes - done);
      const std::uint64_t offset = task.offset_bytes + done, moved = moved_bytes(task, length);
      core::Guard *const guard = control.guard();
      if (guard != nullptr && !guard->enter()) base::fail(TANDEM_ERROR_CANCELLED, script.name + ": the call is over");
      const Shards product = result_of(task, offset, length);
      if (guard != nullptr) guard->leave();
      const double speed = prepared_of(task).bytes_per_second.value_or(script.bytes_per_second);
      if (speed > 0) pass(static_cast<double>(moved) / speed);
      core::Guard::Own own{0, moved};
      if (guard != nullptr) own = guard->commit(moved, task.mode == Mode::compare);
      const std::uint64_t weight = std::max<std::uint64_t>(moved / length, 1), first = own.skipped_bytes / weight;
      write(task, product, offset, first, first + own.bytes / weight);
      if (guard != nullptr && own.bytes > 0) guard->leave();
      done += length;
      const std::lock_guard lock(mutex);
      ++counts.chunks;
      counts.bytes += length;
    }
  }

  void run_task(const Task &task, core::Control &control) {
    const std::uint64_t number = begin();
    const bool fails = script.failing_task.has_value() &&
                       (number == *script.failing_task || (script.fails_for_ever && number > *script.failing_task));
    try {
      pass(script.latency_seconds);
      pass(static_cast<const FakePrepared &>(*task.prepared).first_run_seconds.exchange(0));
      if (!fails) {
        run_range(task, number, task.length_bytes, control);
      } else {
        if (script.fails_after_half) {
          const std::uint64_t grain = task.prepared->granularity_bytes();
          run_range(task, number, task.length_bytes / 2 / grain * grain, control);
        }
        base::fail(script.failure, fmt::format("{}: task {} fails by script", script.name, number));
      }
    } catch (...) {
      end();
      throw;
    }
    end();
  }
};

FakeBackend::FakeBackend(FakeScript script) : state_(std::make_unique<State>()) {
  state_->traits.name = script.name;
  state_->traits.lanes = script.lanes;
  state_->traits.memories = script.memories;
  state_->script = std::move(script);
}

FakeBackend::~FakeBackend() = default;

const core::Traits &FakeBackend::traits() const noexcept { return state_->traits; }

std::shared_ptr<const core::Prepared> FakeBackend::prepare(const core::Operator &what) {
  return std::make_shared<FakePrepared>(what, state_->script);
}

std::shared_ptr<const core::Prepared> FakeBackend::prepare_tuned(const core::Operator &what,
                                                                 const core::TuningValues &values) {
  const FakeScript &script = state_->script;
  auto prepared = std::make_shared<FakePrepared>(what, script);
  if (script.speed_of) prepared->bytes_per_second = script.speed_of(values);
  if (prepared->bytes_per_second == 0.0)
    base::fail(TANDEM_ERROR_UNAVAILABLE, fmt::format("{}: these values are refused by script", script.name));
  prepared->wrong = script.is_wrong && script.is_wrong(values);
  prepared->wrong_from_bytes = script.wrong_from_bytes;
  if (script.first_run_seconds) prepared->first_run_seconds = script.first_run_seconds(values);
  return prepared;
}

std::vector<core::TuningParameter> FakeBackend::tuning_parameters(unsigned, unsigned, Mode) const {
  return state_->script.parameters;
}
core::TuningIdentity FakeBackend::tuning_identity() const { return state_->script.identity; }
std::string FakeBackend::tuning_kernel_hash() const { return "f00d"; }

void FakeBackend::run(std::span<const Task> tasks, core::Control &control) {
  for (const Task &task : tasks) state_->run_task(task, control);
}

std::uint64_t FakeBackend::kernel_calls() const noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->counts.chunks;
}

FakeCounts FakeBackend::counts() const {
  const std::lock_guard lock(state_->mutex);
  return state_->counts;
}

}  // namespace tandem::test
