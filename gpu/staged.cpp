#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <utility>

#include "base/error.hpp"
#include "gpu/runs.hpp"

namespace tandem::gpu {
namespace {

using core::Mode;
using core::Task;

constexpr std::uint64_t kLine = 64;
constexpr std::uint64_t kSmallPieceBytes = 16 << 10;  // of a shard: where memory is that short, one piece at a time
constexpr unsigned kPiecesAtOnce = Session::kMostLanes * Lane::kSlots;

// Distance of two shards in staging memory: aligned for every element.
std::uint64_t pitch_of(std::uint64_t length_bytes) { return (length_bytes + kLine - 1) / kLine * kLine; }

void add(std::byte *sum, const std::byte *bytes, std::uint64_t count) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) sum[i] ^= bytes[i];
}

// A task with what was found out about it.
struct Work {
  const Task *task = nullptr;
  Variant variant;
  std::shared_ptr<const DeviceMemory> tables;
  // Whether the device reads, or writes, this shard where it lies.
  std::vector<bool> input_is_pinned, output_is_pinned;

  Mode mode() const noexcept { return task->mode; }
  unsigned columns() const noexcept { return task->prepared->columns(); }
  unsigned rows() const noexcept { return task->prepared->rows(); }
};

// A piece under way in a slot.
struct Piece {
  const Work *work = nullptr;
  device::KernelRange range;
  std::uint64_t offset_bytes = 0, length_bytes = 0;
};

bool is_all(const std::vector<bool> &flags, bool value) {
  return std::all_of(flags.begin(), flags.end(), [&](bool each) { return each == value; });
}

class Pieces {
 public:
  Pieces(const Workplace &place, Lane &lane)
      : place_(place), session_(*place.session), driver_(session_.driver()), lane_(lane) {}

  // Takes the next slot, when the piece that was there is done. false: there was no memory for it, and nothing was
  // started.
  bool feed(const Piece &piece) {
    finish(next_);
    Slot &slot = lane_.slots[next_];
    try {
      make_room(slot, piece);
    } catch (const base::Error &error) {
      if (error.status() != TANDEM_ERROR_OUT_OF_MEMORY) throw;
      no_room_ = error.what();
      return false;
    }
    pieces_[next_] = piece;
    start(slot, piece);
    next_ = (next_ + 1) % slot_count_;
    return true;
  }
  const std::string &no_room() const noexcept { return no_room_; }

  void finish_all() {
    for (unsigned i = 0; i < Lane::kSlots; ++i) {
      finish(next_);
      next_ = (next_ + 1) % Lane::kSlots;
    }
  }

  // After finish_all(): gives all memory back, and goes on with so many slots.
  void begin_again(unsigned slot_count) noexcept {
    for (Slot &slot : lane_.slots) slot.release();
    slot_count_ = slot_count;
    next_ = 0;
  }

 private:
  static std::uint64_t record_bytes(const Piece &piece) {
    return piece.work->mode() == Mode::compare ? piece.range.record_count * piece.work->rows() * device::kRecordBytes
                                               : 0;
  }

  // All memory that the piece wants, before its first command.
  void make_room(Slot &slot, const Piece &piece) {
    const Work &work = *piece.work;
    const std::uint64_t pitch = pitch_of(piece.length_bytes);
    slot.make_room(session_, lane_.up.get(), pitch * work.columns(), pitch * work.rows(), record_bytes(piece),
                   place_.budget_bytes_of_staging() / kPiecesAtOnce);
    slot.make_pinned_room(session_, is_all(work.input_is_pinned, true) ? 0 : pitch * work.columns(),
                          is_all(work.output_is_pinned, true) ? 0 : pitch * work.rows(), record_bytes(piece));
  }

  void start(Slot &slot, const Piece &piece) {
    const Work &work = *piece.work;
    const unsigned columns = work.columns(), rows = work.rows();
    const bool compare = work.mode() == Mode::compare;
    const std::uint64_t pitch = pitch_of(piece.length_bytes);

    upload(slot.host_inputs, slot.inputs, work.task->inputs, work.input_is_pinned, piece);
    if (compare) {
      upload(slot.host_outputs, slot.outputs, work.task->outputs, work.output_is_pinned, piece);
      clear_records(session_, lane_.up.get(), slot.records.get(), record_bytes(piece));
    }
    slot.uploaded.record(lane_.up.get());
    slot.uploaded.hold(lane_.run.get());

    std::vector<CUdeviceptr> shards;
    shards.reserve(columns + rows);
    for (unsigned c = 0; c < columns; ++c) shards.push_back(slot.inputs.get() + c * pitch);
    for (unsigned r = 0; r < rows; ++r) shards.push_back(slot.outputs.get() + r * pitch);
    launch(session_, lane_.run.get(), work.variant, prepared_of(*work.task), shards, piece.range, slot.records.get(),
           work.tables != nullptr ? work.tables->get() : 0);
    place_.kernel_calls.fetch_add(1, std::memory_order_relaxed);
    slot.computed.record(lane_.run.get());
    slot.computed.hold(lane_.down.get());

    if (compare) {
      download(slot.host_records.get(), slot.records.get(), record_bytes(piece));
    } else {
      download_outputs(slot, piece);
    }
    slot.done.record(lane_.down.get());
  }

  // Copies a piece of each shard into pinned memory, unless it lies there, and sends it off.
  template <class Byte>
  void upload(const PinnedMemory &staging, const DeviceMemory &memory, Byte *const *shards,
              const std::vector<bool> &pinned, const Piece &piece) {
    const std::uint64_t pitch = pitch_of(piece.length_bytes);
    const auto send = [&](std::uint64_t at, const std::byte *from, std::uint64_t bytes) {
      check(driver_, driver_.cuMemcpyHtoDAsync(memory.get() + at, from, bytes, lane_.up.get()), "cuMemcpyHtoDAsync");
    };
    const bool in_one = is_all(pinned, false);
    for (unsigned i = 0; i < pinned.size(); ++i) {
      const std::byte *from = shards[i] + piece.offset_bytes;
      if (!pinned[i]) {
        std::memcpy(staging.get() + i * pitch, from, piece.length_bytes);
        from = staging.get() + i * pitch;
      }
      if (!in_one) send(i * pitch, from, piece.length_bytes);
    }
    if (in_one) send(0, staging.get(), pitch * (pinned.size() - 1) + piece.length_bytes);
  }

  void download(void *to, CUdeviceptr from, std::uint64_t bytes) {
    check(driver_, driver_.cuMemcpyDtoHAsync(to, from, bytes, lane_.down.get()), "cuMemcpyDtoHAsync");
  }

  void download_outputs(Slot &slot, const Piece &piece) {
    const Work &work = *piece.work;
    const std::uint64_t pitch = pitch_of(piece.length_bytes);
    if (is_all(work.output_is_pinned, false))
      return download(slot.host_outputs.get(), slot.outputs.get(), pitch * (work.rows() - 1) + piece.length_bytes);
    for (unsigned r = 0; r < work.rows(); ++r) {
      std::byte *to =
          work.output_is_pinned[r] ? work.task->outputs[r] + piece.offset_bytes : slot.host_outputs.get() + r * pitch;
      download(to, slot.outputs.get() + r * pitch, piece.length_bytes);
    }
  }

  // Waits for a slot's piece, and hands its result to the caller.
  void finish(unsigned index) {
    if (pieces_[index].work == nullptr) return;
    Slot &slot = lane_.slots[index];
    slot.done.wait();
    const Piece piece = std::exchange(pieces_[index], {});
    const Work &work = *piece.work;
    const Task &task = *work.task;
    if (work.mode() == Mode::compare) {
      const auto *records = reinterpret_cast<const std::uint32_t *>(slot.host_records.get());
      return device::merge_records(piece.range, {records, record_bytes(piece) / sizeof(std::uint32_t)},
                                   piece.offset_bytes, work.rows(), task.mismatches);
    }
    const std::uint64_t pitch = pitch_of(piece.length_bytes);
    for (unsigned r = 0; r < work.rows(); ++r) {
      if (work.output_is_pinned[r]) continue;
      const std::byte *from = slot.host_outputs.get() + r * pitch;
      std::byte *to = task.outputs[r] + piece.offset_bytes;
      if (work.mode() == Mode::accumulate) {
        add(to, from, piece.length_bytes);
      } else {
        std::memcpy(to, from, piece.length_bytes);
      }
    }
  }

  const Workplace &place_;
  Session &session_;
  const Driver &driver_;
  Lane &lane_;
  std::array<Piece, Lane::kSlots> pieces_;
  unsigned next_ = 0, slot_count_ = Lane::kSlots;
  std::string no_room_;
};

// Whether the device can reach the shard's range where it lies.
bool is_pinned(const Session &session, const std::byte *shard, const Task &task, bool output, unsigned index) {
  const std::byte *first = shard + task.offset_bytes;
  const Address address = look_at(session, first);
  if (address.is_managed) return false;
  if (address.type == CU_MEMORYTYPE_DEVICE) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
               fmt::format("CUDA: {} {} lies in device memory, but the task is for memory of the host",
                           output ? "output" : "input", index));
  }
  if (address.type != CU_MEMORYTYPE_HOST) return false;
  if (address.bytes != 0) return address.holds(reinterpret_cast<std::uintptr_t>(first), task.length_bytes);
  const Address last = look_at(session, first + task.length_bytes - 1);
  return last.type == CU_MEMORYTYPE_HOST && !last.is_managed;
}

Work look_into(const Workplace &place, const Task &task) {
  Session &session = *place.session;
  Work work;
  work.task = &task;
  // The XOR of accumulate happens in the caller's memory, so the device computes the product alone.
  const Mode mode = task.mode == Mode::accumulate ? Mode::assign : task.mode;
  work.variant = place.chooser.choose(prepared_of(task), session, mode, device::Access::aligned, task.length_bytes);
  if (work.variant.spec.technique == device::Technique::tables) work.tables = session.tables(prepared_of(task));
  for (unsigned c = 0; c < task.prepared->columns(); ++c)
    work.input_is_pinned.push_back(is_pinned(session, task.inputs[c], task, false, c));
  for (unsigned r = 0; r < task.prepared->rows(); ++r) {
    work.output_is_pinned.push_back(is_pinned(session, task.outputs[r], task, true, r) &&
                                    task.mode != Mode::accumulate);
  }
  return work;
}

// Bytes of one shard that a piece may have: a multiple of 64. Throws Error (OUT_OF_MEMORY) if the budget does not hold
// one such line of each shard.
std::uint64_t most_piece_bytes(const Workplace &place, const Work &work) {
  const std::uint64_t shards = std::uint64_t{work.rows()} + work.columns();
  // Half of it: buffers grow to powers of two.
  const std::uint64_t budget = place.budget_bytes_of_staging() / kPiecesAtOnce / 2;
  const std::uint64_t most = std::min(work.variant.staging_bytes, budget);
  std::uint64_t piece = most / shards / kLine * kLine;
  if (work.mode() == Mode::compare) {
    // A record of each output for each tile; one more for the last tile, which may be short, one for head and tail
    // each.
    const auto &tuning = work.variant.spec.tuning;
    const std::uint64_t tile = std::uint64_t{tuning.element_bytes} * tuning.elements_per_item * tuning.local[0];
    const std::uint64_t of_tile = work.rows() * device::kRecordBytes;
    const std::uint64_t rest = most > 3 * of_tile ? most - 3 * of_tile : 0;
    // piece * shards + piece / tile * of_tile <= rest. Tuning values are at most 2^30 and, for a tile, 2^28: no
    // overflow.
    piece = rest * tile / (shards * tile + of_tile) / kLine * kLine;
  }
  if (piece == 0 && budget >= shards * 2 * kLine) piece = kLine;  // of a tuning value, not of memory
  if (piece == 0) {
    const Device &device = place.session->device();
    base::fail(TANDEM_ERROR_OUT_OF_MEMORY,
               fmt::format("CUDA: the memory budget of {} on {} ({} bytes) does not hold {} bytes of each of {} shards",
                           device.name, device.model, place.session->budget().bytes(), kLine, shards));
  }
  return piece;
}

void run_one(const Workplace &place, const Work &work, Pieces &pieces, core::Control &control) {
  const Task &task = *work.task;
  std::uint64_t most = most_piece_bytes(place, work);
  for (std::uint64_t done = 0; done < task.length_bytes;) {
    if (control.cancelled()) fail_cancelled(place.session->device());
    const std::uint64_t length = std::min(most, task.length_bytes - done);
    if (!pieces.feed(
            {&work, device::cut_kernel_range(work.variant.spec, length, 0), task.offset_bytes + done, length})) {
      // The budget is not what the device, or the host, has left: others use it too. Smaller pieces, then.
      if (length <= kLine) base::fail(TANDEM_ERROR_OUT_OF_MEMORY, pieces.no_room());
      pieces.finish_all();
      most = std::max(kLine, length / 2 / kLine * kLine);
      pieces.begin_again(most > kSmallPieceBytes ? Lane::kSlots : 1);
      place.session->give_idle_memory();
      continue;
    }
    done += length;
  }
}

}  // namespace

void run_staged(const Workplace &place, std::span<const Task> tasks, core::Control &control) {
  auto lane = place.session->take_lane(control);
  Pieces pieces(place, *lane);
  std::list<Work> works;  // stay where they are until their last piece is done
  try {
    for (const Task &task : tasks) {
      works.push_back(look_into(place, task));
      run_one(place, works.back(), pieces, control);
      if (works.size() > Lane::kSlots) works.pop_front();  // each has taken a slot at least
    }
    pieces.finish_all();
  } catch (...) {
    place.session->settle(lane);
    throw;
  }
}

}  // namespace tandem::gpu
