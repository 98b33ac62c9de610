// SPDX-License-Identifier: Apache-2.0
#include "core/backend.hpp"

#include <cstring>
#include <exception>
#include <system_error>
#include <thread>

#include "base/error.hpp"
#include "base/signals.hpp"

namespace tandem::core {

const char *name_of(Mode mode) noexcept {
  return mode == Mode::assign ? "assign" : mode == Mode::accumulate ? "accumulate" : "compare";
}

Prepared::~Prepared() = default;
std::vector<TechniqueCost> Prepared::techniques() const { return {{}}; }
std::uint64_t Prepared::out_of_cache_bytes(Mode) const { return UINT64_MAX; }
void Prepared::add_bytes_elsewhere(std::uint64_t) const {}
Ticket::~Ticket() = default;
DeviceMemory::~DeviceMemory() = default;
Guard::~Guard() = default;
Backend::~Backend() = default;

void Backend::check_technique(const Operator &) const {}

void Backend::read_column(const Task &task, std::uint64_t at_bytes, std::uint8_t *inputs_out,
                          std::uint8_t *outputs_out) {
  const std::size_t size = element_bytes(task.prepared->field());
  for (unsigned c = 0; c < task.prepared->columns(); ++c)
    std::memcpy(inputs_out + c * size, task.inputs[c] + at_bytes, size);
  for (unsigned r = 0; r < task.prepared->rows(); ++r)
    std::memcpy(outputs_out + r * size, task.outputs[r] + at_bytes, size);
}

void Backend::make_ready(const Prepared &, Mode, MemoryKind, bool) {}

std::shared_ptr<DeviceMemory> Backend::device_memory(std::uint64_t) {
  base::fail(TANDEM_ERROR_UNSUPPORTED, "backend " + traits().name + " is no device with memory of its own");
}

namespace {

// A run on a thread of its own.
class ThreadTicket final : public Ticket {
 public:
  ThreadTicket(Backend &backend, std::span<const Task> tasks, Control &control) : tasks_(tasks.begin(), tasks.end()) {
    const base::SignalsBlocked blocked;
    thread_ = std::thread([this, &backend, &control] {
      try {
        backend.run(tasks_, control);
      } catch (...) {
        error_ = std::current_exception();
      }
    });
  }

  ~ThreadTicket() override { join(); }

  void wait() override {
    join();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void join() {
    if (thread_.joinable()) thread_.join();
  }

  std::vector<Task> tasks_;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Ticket> Backend::submit(std::span<const Task> tasks, Control &control) {
  try {
    return std::make_unique<ThreadTicket>(*this, tasks, control);
  } catch (const std::system_error &) {
    base::fail(TANDEM_ERROR_OUT_OF_MEMORY, "no thread could be started for a submitted job");
  }
}

}  // namespace tandem::core
