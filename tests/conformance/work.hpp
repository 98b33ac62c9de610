// For tests of devices' backends: a stripe with its task, what the log hears, what a call throws.
#pragma once

#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "core/backend.hpp"
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

// One stripe with its task on memory of the host.
struct Work {
  Work(unsigned rows, unsigned columns, std::size_t shard_bytes) : matrix(rows, columns), bytes(shard_bytes) {
    Random random(rows * 1000 + columns);
    for (unsigned r = 0; r < rows; ++r) random.fill(matrix.row(r).data(), columns);
    for (unsigned c = 0; c < columns; ++c) inputs.push_back(random.bytes(bytes));
    for (unsigned r = 0; r < rows; ++r) before.push_back(random.bytes(bytes));
    std::vector<const std::uint8_t *> pointers;
    for (const Bytes &input : inputs) pointers.push_back(input.data());
    product = expected(matrix.data(), rows, columns, pointers.data(), bytes);
    outputs = before;
    for (const Bytes &input : inputs) in.push_back(reinterpret_cast<const std::byte *>(input.data()));
    for (Bytes &output : outputs) out.push_back(reinterpret_cast<std::byte *>(output.data()));
  }
  Work(const Work &) = delete;
  Work &operator=(const Work &) = delete;

  void reset() {
    for (std::size_t r = 0; r < outputs.size(); ++r) std::memcpy(outputs[r].data(), before[r].data(), bytes);
    mismatches.assign(outputs.size(), {});
  }
  void run(core::Backend &backend, const core::Prepared &prepared, core::Mode mode) {
    const core::Task task = {&prepared, in.data(), out.data(), 0, bytes, mode, mismatches.data()};
    core::Control control;
    backend.run({&task, 1}, control);
  }
  // Whether the outputs, or what was found in them, are what `mode` leaves.
  bool is_right(core::Mode mode) const {
    for (std::size_t r = 0; r < outputs.size(); ++r) {
      std::uint64_t differing = 0;
      for (std::size_t i = 0; i < bytes; ++i) {
        const std::uint8_t want = mode == core::Mode::assign ? product[r][i]
                                  : mode == core::Mode::accumulate
                                      ? static_cast<std::uint8_t>(product[r][i] ^ before[r][i])
                                      : before[r][i];
        if (outputs[r][i] != want) return false;
        differing += before[r][i] != product[r][i];
      }
      if (mode == core::Mode::compare && mismatches[r].byte_count != differing) return false;
    }
    return true;
  }
  bool is_untouched() const { return outputs == before; }

  core::Matrix matrix;
  std::size_t bytes;
  Shards inputs, before, product, outputs;
  std::vector<const std::byte *> in;
  std::vector<std::byte *> out;
  std::vector<core::Mismatch> mismatches;
};

inline std::pair<tandem_status, std::string> status_of(const std::function<void()> &body) {
  try {
    body();
    return {TANDEM_OK, ""};
  } catch (const base::Error &error) {
    return {error.status(), error.what()};
  }
}

}  // namespace tandem::test
