#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "opencl/runs.hpp"

namespace tandem::opencl {
namespace {

using core::Mode;
using core::Task;

constexpr std::uint64_t kLine = 64;
constexpr unsigned kPiecesAtOnce = Session::kMostLanes * Lane::kSlots;

// A piece under way in a slot.
struct Piece {
  const Task *task = nullptr;
  Variant variant;
  device::KernelRange range;
  std::uint64_t offset_bytes = 0, length_bytes = 0;
};

void add(std::byte *sum, const std::byte *bytes, std::uint64_t count) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) sum[i] ^= bytes[i];
}

class Stream {
 public:
  Stream(const Workplace &place, Lane &lane) : place_(place), driver_(place.session->driver()), lane_(lane) {}

  // Takes the next slot, when the piece that was there is done.
  void feed(Piece piece) {
    finish(next_);
    pieces_[next_] = std::move(piece);
    start(lane_.slots[next_], pieces_[next_]);
    next_ = (next_ + 1) % Lane::kSlots;
  }

  void finish_all() {
    for (unsigned i = 0; i < Lane::kSlots; ++i) {
      finish(next_);
      next_ = (next_ + 1) % Lane::kSlots;
    }
  }

 private:
  void start(Slot &slot, const Piece &piece) {
    const Session &session = *place_.session;
    const Task &task = *piece.task;
    const unsigned columns = task.prepared->columns(), rows = task.prepared->rows();
    const bool compare = task.mode == Mode::compare;
    const std::uint64_t pitch = pitch_of(piece.length_bytes);

    const std::uint64_t record_bytes = compare ? piece.range.record_count * rows * device::kRecordBytes : 0;
    slot.make_room(pitch * columns, pitch * rows, (columns + rows) * sizeof(std::uint64_t), record_bytes,
                   place_.budget_bytes_of_staging() / kPiecesAtOnce);
    upload(slot, slot.host_inputs, slot.inputs, task.inputs, columns, piece);
    const cl_mem outputs = slot.outputs.get(session, pitch * rows);
    if (compare) upload(slot, slot.host_outputs, slot.outputs, task.outputs, rows, piece);
    send_offsets(slot, columns, rows, pitch);
    cl_mem records = slot.offsets.get();  // any buffer
    if (compare) {
      records = slot.records.get(session, record_bytes);
      const cl_uint nothing = 0xffffffff;
      check(driver_.clEnqueueFillBuffer(lane_.up.get(), records, &nothing, sizeof nothing, 0, record_bytes, 0, nullptr,
                                        slot.events.next(driver_)),
            "clEnqueueFillBuffer");
    }
    check(driver_.clEnqueueWriteBuffer(lane_.up.get(), slot.offsets.get(), CL_FALSE, 0,
                                       slot.offset_values.size() * sizeof(std::uint64_t), slot.offset_values.data(), 0,
                                       nullptr, slot.events.next(driver_)),
          "clEnqueueWriteBuffer");
    check(driver_.clFlush(lane_.up.get()), "clFlush");

    const cl_mem shards[] = {slot.inputs.get(), outputs};
    launch(*place_.session, lane_.run.get(),
           {piece.variant, prepared_of(task), piece.range, slot.offsets.get(), records}, shards, slot.events.all(),
           slot.events);
    place_.kernel_calls.fetch_add(1, std::memory_order_relaxed);
    check(driver_.clFlush(lane_.run.get()), "clFlush");

    const cl_event computed = slot.events.last();
    if (compare) {
      slot.record_values.resize(record_bytes / sizeof(std::uint32_t));
      check(driver_.clEnqueueReadBuffer(lane_.down.get(), records, CL_FALSE, 0, record_bytes, slot.record_values.data(),
                                        1, &computed, slot.events.next(driver_)),
            "clEnqueueReadBuffer");
    } else {
      std::byte *host = slot.host_outputs.get(session, lane_.down.get(), pitch * rows);
      check(driver_.clEnqueueReadBuffer(lane_.down.get(), outputs, CL_FALSE, 0, pitch * (rows - 1) + piece.length_bytes,
                                        host, 1, &computed, slot.events.next(driver_)),
            "clEnqueueReadBuffer");
    }
    check(driver_.clFlush(lane_.down.get()), "clFlush");
  }

  // Copies a piece of each shard into pinned memory, and sends it off.
  template <class Byte>
  void upload(Slot &slot, PinnedMemory &pinned, GrowingBuffer &buffer, Byte *const *shards, unsigned count,
              const Piece &piece) {
    const std::uint64_t pitch = pitch_of(piece.length_bytes);
    std::byte *host = pinned.get(*place_.session, lane_.up.get(), pitch * count);
    for (unsigned i = 0; i < count; ++i)
      std::memcpy(host + i * pitch, shards[i] + piece.offset_bytes, piece.length_bytes);
    check(driver_.clEnqueueWriteBuffer(lane_.up.get(), buffer.get(*place_.session, pitch * count), CL_FALSE, 0,
                                       pitch * (count - 1) + piece.length_bytes, host, 0, nullptr,
                                       slot.events.next(driver_)),
          "clEnqueueWriteBuffer");
  }

  void send_offsets(Slot &slot, unsigned columns, unsigned rows, std::uint64_t pitch) {
    slot.offset_values.resize(columns + rows);
    for (unsigned c = 0; c < columns; ++c) slot.offset_values[c] = c * pitch;
    for (unsigned r = 0; r < rows; ++r) slot.offset_values[columns + r] = r * pitch;
    slot.offsets.get(*place_.session, slot.offset_values.size() * sizeof(std::uint64_t));
  }

  // Waits for a slot's piece, and hands its result to the caller.
  void finish(unsigned index) {
    Piece &piece = pieces_[index];
    if (piece.task == nullptr) return;
    Slot &slot = lane_.slots[index];
    slot.events.wait();
    const Task &task = *std::exchange(piece.task, nullptr);
    const unsigned rows = task.prepared->rows();
    if (task.mode == Mode::compare)
      return device::merge_records(piece.range, slot.record_values, piece.offset_bytes, rows, task.mismatches);
    const std::uint64_t pitch = pitch_of(piece.length_bytes);
    for (unsigned r = 0; r < rows; ++r) {
      const std::byte *from = slot.host_outputs.get() + r * pitch;
      std::byte *to = task.outputs[r] + piece.offset_bytes;
      if (task.mode == Mode::accumulate) {
        add(to, from, piece.length_bytes);
      } else {
        std::memcpy(to, from, piece.length_bytes);
      }
    }
  }

  const Workplace &place_;
  const Driver &driver_;
  Lane &lane_;
  std::array<Piece, Lane::kSlots> pieces_;
  unsigned next_ = 0;
};

}  // namespace

std::uint64_t most_piece_bytes(const Workplace &place, const Task &task, const Variant &variant,
                               unsigned pieces_at_once) {
  const Device &device = place.session->device();
  const std::uint64_t shards = std::uint64_t{task.prepared->rows()} + task.prepared->columns();
  // Half of it: offsets, and buffers that grow to powers of two.
  const std::uint64_t budget = place.budget_bytes_of_staging() / pieces_at_once / 2;
  const std::uint64_t most = std::min({variant.staging_bytes, budget, device.most_buffer_bytes});
  std::uint64_t piece = most / shards / kLine * kLine;
  if (task.mode == Mode::compare) {
    // A record of each output for each tile; one more for the last tile, which may be short, one for head and tail
    // each.
    const auto &tuning = variant.spec.tuning;
    const std::uint64_t tile = std::uint64_t{tuning.element_bytes} * tuning.elements_per_item * tuning.local[0];
    const std::uint64_t of_tile = task.prepared->rows() * device::kRecordBytes;
    const std::uint64_t rest = most > 3 * of_tile ? most - 3 * of_tile : 0;
    // piece * shards + piece / tile * of_tile <= rest. Tuning values are at most 2^30 and, for a tile, 2^28: no
    // overflow.
    piece = rest * tile / (shards * tile + of_tile) / kLine * kLine;
  }
  if (piece == 0 && budget >= shards * 2 * kLine) piece = kLine;  // of a tuning value, not of memory
  if (piece == 0) {
    base::fail(
        TANDEM_ERROR_OUT_OF_MEMORY,
        fmt::format("OpenCL: the memory budget of {} on {} ({} bytes) does not hold {} bytes of each of {} shards",
                    device.name, device.model, place.session->budget().bytes(), kLine, shards));
  }
  return piece;
}

void run_staged(const Workplace &place, std::span<const Task> tasks, core::Control &control) {
  if (tasks.empty()) return;
  const Device &device = place.session->device();
  auto lane = place.session->take_lane(control);
  Stream stream(place, *lane);
  try {
    for (const Task &task : tasks) {
      // The XOR of accumulate happens in the caller's memory, so the device computes the product alone.
      const Mode mode = task.mode == Mode::accumulate ? Mode::assign : task.mode;
      const Variant variant =
          place.chooser.choose(prepared_of(task), place.session->programs(), mode, place.chooser.access(true),
                               device::Binding::offsets, task.length_bytes);
      const std::uint64_t most = most_piece_bytes(place, task, variant, kPiecesAtOnce);
      for (std::uint64_t done = 0; done < task.length_bytes;) {
        if (control.cancelled()) fail_cancelled(device);
        const std::uint64_t length = std::min(most, task.length_bytes - done);
        stream.feed(
            {&task, variant, device::cut_kernel_range(variant.spec, length, 0), task.offset_bytes + done, length});
        done += length;
      }
    }
    stream.finish_all();
  } catch (...) {
    place.session->settle(lane);
    throw;
  }
}

}  // namespace tandem::opencl
