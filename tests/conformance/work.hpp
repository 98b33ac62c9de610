// SPDX-License-Identifier: Apache-2.0
// For tests of devices' backends: a stripe with its task, the messages of the log.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "core/backend.hpp"
#include "tests/base/errors.hpp"
#include "tests/support/expected.hpp"
#include "tests/support/random.hpp"

namespace tandem::test {

// Collects what is logged.
struct Heard {
  static void hear(void *user, std::int32_t, const char *message) {
    auto *self = static_cast<Heard *>(user);
    const std::lock_guard lock(self->mutex);
    self->text += std::string(message) + "\n";
  }
  base::Log log() { return {hear, this, TANDEM_LOG_DEBUG}; }
  bool has(const std::string &part) {
    const std::lock_guard lock(mutex);
    return text.find(part) != std::string::npos;
  }
  void clear() {
    const std::lock_guard lock(mutex);
    text.clear();
  }
  std::mutex mutex;
  std::string text;
};

// Values in place of measured ones, for every question.
struct Values final : core::TuningSource {
  explicit Values(core::TuningValues of) : values(std::move(of)) {}
  core::TuningChoice find(const core::TuningQuery &) const override { return {values, "for this test"}; }
  core::TuningValues values;
};

// One stripe with its task on memory of the host. With `steps`, shard i begins i % steps bytes behind the start of its
// memory.
struct Work {
  Work(unsigned rows, unsigned columns, std::size_t shard_bytes) : Work(random_matrix(rows, columns), shard_bytes) {}
  Work(core::Matrix by, std::size_t shard_bytes, unsigned steps_given = 1)
      : matrix(std::move(by)), bytes(shard_bytes), steps(steps_given) {
    const unsigned rows = matrix.rows(), columns = matrix.columns();
    Random random(rows * 1000 + columns + 1);
    for (unsigned c = 0; c < columns; ++c) inputs.push_back(random.bytes(c % steps + bytes));
    for (unsigned r = 0; r < rows; ++r) before.push_back(random.bytes(start_of(r) + bytes));
    std::vector<const std::uint8_t *> pointers;
    for (unsigned c = 0; c < columns; ++c) pointers.push_back(inputs[c].data() + c % steps);
    product = expected(matrix.data(), rows, columns, pointers.data(), bytes);
    outputs = before;
    for (const std::uint8_t *input : pointers) in.push_back(reinterpret_cast<const std::byte *>(input));
    for (unsigned r = 0; r < rows; ++r) out.push_back(reinterpret_cast<std::byte *>(outputs[r].data()) + start_of(r));
  }
  static core::Matrix random_matrix(unsigned rows, unsigned columns) {
    core::Matrix matrix(rows, columns);
    Random random(rows * 1000 + columns);
    for (unsigned r = 0; r < rows; ++r) random.fill(matrix.row(r).data(), columns);
    return matrix;
  }
  Work(const Work &) = delete;
  Work &operator=(const Work &) = delete;

  void reset() {
    for (std::size_t r = 0; r < outputs.size(); ++r) std::memcpy(outputs[r].data(), before[r].data(), before[r].size());
    mismatches.assign(outputs.size(), {});
  }
  void run(core::Backend &backend, const core::Prepared &prepared, core::Mode mode) {
    const core::Task task = {&prepared, in.data(), out.data(), 0, bytes, mode, mismatches.data()};
    core::Control control;
    backend.run({&task, 1}, control);
  }
  // Whether the outputs, or what was found in them, are what `mode` leaves.
  __attribute__((no_sanitize("thread"))) bool is_right(core::Mode mode) const {
    for (std::size_t r = 0; r < outputs.size(); ++r) {
      std::uint64_t differing = 0;
      const std::uint8_t *const old = before[r].data() + start_of(r), *const now = outputs[r].data() + start_of(r);
      if (std::memcmp(outputs[r].data(), before[r].data(), start_of(r)) != 0) return false;
      for (std::size_t i = 0; i < bytes; ++i) {
        const std::uint8_t want = mode == core::Mode::assign       ? product[r][i]
                                  : mode == core::Mode::accumulate ? static_cast<std::uint8_t>(product[r][i] ^ old[i])
                                                                   : old[i];
        if (now[i] != want) return false;
        differing += old[i] != product[r][i];
      }
      if (mode == core::Mode::compare && mismatches[r].byte_count != differing) return false;
    }
    return true;
  }
  // Runs on fresh outputs.
  bool runs_right(core::Backend &backend, const core::Prepared &prepared, core::Mode mode) {
    reset();
    run(backend, prepared, mode);
    return is_right(mode);
  }
  bool is_untouched() const { return outputs == before; }
  std::size_t start_of(std::size_t output) const { return (matrix.columns() + output) % steps; }

  core::Matrix matrix;
  std::size_t bytes;
  unsigned steps;
  Shards inputs, before, product, outputs;
  std::vector<const std::byte *> in;
  std::vector<std::byte *> out;
  std::vector<core::Mismatch> mismatches;
};

// The task cut into tasks that end at these places, as if each were a stripe.
inline std::vector<core::Task> slices(const core::Task &whole, const std::vector<std::uint64_t> &ends) {
  std::vector<core::Task> list;
  std::uint64_t begin = 0;
  for (const std::uint64_t end : ends) {
    core::Task &task = list.emplace_back(whole);
    task.offset_bytes = whole.offset_bytes + begin;
    task.length_bytes = end - std::exchange(begin, end);
  }
  return list;
}

// The same, `count` of one length.
inline std::vector<core::Task> slices(const core::Task &whole, unsigned count) {
  std::vector<std::uint64_t> ends;
  for (unsigned i = 1; i <= count; ++i) ends.push_back(whole.length_bytes / count * i);
  return slices(whole, ends);
}

// Slices from a few bytes to a good part of all, which begin at multiples of 64 or anywhere.
inline std::vector<core::Task> uneven_slices(const core::Task &whole, bool is_aligned) {
  Random random(whole.length_bytes);
  std::vector<std::uint64_t> ends = {whole.length_bytes, whole.length_bytes / 3 / 64 * 64};
  for (unsigned i = 0; i < 30; ++i) ends.push_back(random.below(whole.length_bytes / 8) / 64 * 64);
  for (std::uint64_t &end : ends)
    if (!is_aligned && end != whole.length_bytes) end += end % 61;
  std::sort(ends.begin(), ends.end());
  return slices(whole, ends);
}

}  // namespace tandem::test
