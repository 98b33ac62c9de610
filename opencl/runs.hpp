// The three ways of a task through a device: host shards streamed through staging memory, host shards used where they
// lie, and shards in the caller's device memory. Tasks here have rows, columns and bytes.
#pragma once

#include <atomic>
#include <span>

#include "core/backend.hpp"
#include "opencl/session.hpp"

namespace tandem::opencl {

// What all runs of a backend share.
struct Workplace {
  std::shared_ptr<Session> session;
  const Chooser &chooser;
  std::atomic<std::uint64_t> &kernel_calls;

  // What all pieces of host shards may have of the memory budget; the rest is for tables and for device memory's needs.
  std::uint64_t budget_bytes_of_staging() const noexcept { return session->budget().bytes() / 4 * 3; }
};

// Bytes of one shard that a piece may have, where a piece's inputs and outputs lie in a buffer each: a multiple of 64.
// Throws Error (OUT_OF_MEMORY) if the budget does not hold one such line of each shard.
std::uint64_t most_piece_bytes(const Workplace &place, const core::Task &task, const Variant &variant,
                               unsigned pieces_at_once);

// Distance of two shards in staging memory: aligned for every element.
inline std::uint64_t pitch_of(std::uint64_t length_bytes) { return (length_bytes + 63) / 64 * 64; }

// Streams host shards: while one piece is uploaded another is computed and a third downloaded. Outputs are written to
// the caller's memory when their piece is complete, and for accumulate the XOR happens there: a piece that failed has
// changed nothing.
void run_staged(const Workplace &place, std::span<const core::Task> tasks, core::Control &control);

// Whether the kernel can have a buffer for each of the task's shards.
bool fits_arguments(const Device &device, const core::Task &task) noexcept;

// Whether host shards can be used where they lie: fits_arguments, and no two buffers would overlap in part, which
// OpenCL forbids.
bool fits_zero_copy(const Device &device, const core::Task &task);

// Uses host shards where they lie. Worth it on a device that shares the host's memory; right on all. false: the driver
// makes no buffers of this memory, and nothing was done.
bool run_zero_copy(const Workplace &place, const core::Task &task, core::Control &control);

// Starts tasks whose shards are buffers, on the caller's queues. Everything is checked before the first command.
// `place` gives a place in the context of a queue.
std::unique_ptr<core::Ticket> start_on_device(const std::function<Workplace(cl_context)> &place, const Driver &driver,
                                              const Device &device, std::span<const core::Task> tasks,
                                              core::Control &control, const std::function<void()> &failed);

// The bytes of each shard of such a task at one offset.
void read_device_column(const Driver &driver, const core::Task &task, std::uint64_t at_bytes, std::uint8_t *inputs_out,
                        std::uint8_t *outputs_out);

}  // namespace tandem::opencl
