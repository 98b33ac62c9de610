// SPDX-License-Identifier: Apache-2.0
#include "device/piece_stream.hpp"

#include <algorithm>
#include <array>
#include <list>
#include <string>
#include <utility>

#include "base/text.hpp"
#include "core/recorded_run.hpp"
#include "core/registered_memory.hpp"

namespace tandem::device {
namespace {

using core::Mode;
using core::Task;

constexpr std::uint64_t kLine = 64;
constexpr std::uint64_t kSmallPieceBytes = 16 << 10;  // of a shard: if memory is this short, one piece at a time
// For pieces of a shard up to this length, copying takes less time than driver calls for each stripe.
constexpr std::uint64_t kSideBySideBytes = 64 << 10;
// The most bytes of a direct read of a shard, in a copy of its own: a link takes some 20 us for it, a call a few.
constexpr std::uint64_t kDirectCopyBytes = 1 << 20;
// A guarded run commits often: a hybrid learns from it, and gives what is late to others.
constexpr std::uint64_t kGuardedParts = 8, kLeastGuardedBytes = 1 << 20;
constexpr unsigned kPiecesAtOnce = DeviceSession::kMostLanes * DeviceLane::kSlots;
constexpr std::uint64_t kSpoiledBytes = 37;  // from one output's wrong byte to the next one's

class PieceStream {
 public:
  PieceStream(const Workplace &place, DeviceLane &lane, core::Guard *guard)
      : place_(place), lane_(lane), guard_(guard) {}

  // Takes the next slot when its old piece is done. false: there was no memory for it. Nothing was started, and smaller
  // pieces may find memory.
  bool feed(const DevicePiece &piece) {
    finish(next_);
    try {
      lane_.make_room(next_, piece, place_.budget_bytes_of_staging() / kPiecesAtOnce);
    } catch (const base::Error &error) {
      if (error.status() != TANDEM_ERROR_OUT_OF_MEMORY || !place_.session->device().allocates_at_once) throw;
      no_room_ = error.what();
      return false;
    }
    pieces_[next_] = piece;
    start(next_, piece);
    next_ = (next_ + 1) % slot_count_;
    return true;
  }
  const std::string &no_room() const noexcept { return no_room_; }
  static bool is_any(const std::vector<bool> &flags) {
    return std::find(flags.begin(), flags.end(), true) != flags.end();
  }

  void finish_all() {
    for (unsigned i = 0; i < DeviceLane::kSlots; ++i) {
      finish(next_);
      next_ = (next_ + 1) % DeviceLane::kSlots;
    }
  }

  // After finish_all(): gives all memory back, and continues with slot_count slots.
  void begin_again(unsigned slot_count) noexcept {
    lane_.release();
    slot_count_ = slot_count;
    next_ = 0;
  }

 private:
  void start(unsigned slot, const DevicePiece &piece) {
    const HostTask &work = *piece.of;
    upload(slot, false, work.input_is_direct, piece);
    if (work.compares()) upload(slot, true, work.output_is_direct, piece);
    lane_.launch(slot, piece);
    place_.kernel_calls.fetch_add(1, std::memory_order_relaxed);
    if (!work.compares()) download(slot, piece);
    lane_.end_piece(slot, piece);
  }

  // Calls part(task, offset in its shards, offset in the piece, bytes) for each task that has a part in the piece.
  template <class Part>
  static void for_each_part(const DevicePiece &piece, const Part &part) {
    const std::vector<std::uint64_t> &starts = piece.of->starts;
    const std::uint64_t begin = piece.offset_bytes, end = begin + piece.length_bytes;
    auto i = static_cast<std::size_t>(std::upper_bound(starts.begin(), starts.end(), begin) - starts.begin()) - 1;
    for (; i < starts.size() && starts[i] < end; ++i) {
      const Task &task = piece.of->task[i];
      const std::uint64_t first = std::max(starts[i], begin), last = std::min(starts[i] + task.length_bytes, end);
      if (first < last) part(task, task.offset_bytes + (first - starts[i]), first - begin, last - first);
    }
  }

  // Copies a piece of each shard into staging memory, unless the device reads it directly, and starts its work.
  void upload(unsigned slot, bool outputs, const std::vector<bool> &direct, const DevicePiece &piece) {
    const std::uint64_t pitch = piece.pitch_bytes();
    std::byte *const staging = lane_.host(slot, outputs);
    const bool one_by_one = is_any(direct);
    const auto shard = [&](const Task &task, unsigned i) -> const std::byte * {
      return outputs ? task.outputs[i] : task.inputs[i];
    };
    // Shards that need no copy are uploaded while the others are copied.
    for (unsigned i = 0; i < direct.size(); ++i) {
      if (!direct[i]) continue;
      const Task &task = *piece.of->task;
      lane_.upload(slot, outputs, i * pitch, shard(task, i) + task.offset_bytes + piece.offset_bytes,
                   piece.length_bytes);
    }
    copies_.clear();
    for (unsigned i = 0; i < direct.size(); ++i) {
      if (direct[i]) continue;
      for_each_part(piece, [&](const Task &task, std::uint64_t offset, std::uint64_t at, std::uint64_t bytes) {
        copies_.push_back({staging + i * pitch + at, shard(task, i) + offset, bytes});
      });
    }
    if (!copies_.empty()) {
      const Left left(enter());
      place_.copy(copies_);
    }
    if (outputs && piece.is_trial) spoil(slot, piece);
    if (!one_by_one) return lane_.upload(slot, outputs, 0, staging, pitch * (direct.size() - 1) + piece.length_bytes);
    for (unsigned i = 0; i < direct.size(); ++i)
      if (!direct[i]) lane_.upload(slot, outputs, i * pitch, staging + i * pitch, piece.length_bytes);
  }

  void download(unsigned slot, const DevicePiece &piece) {
    const HostTask &work = *piece.of;
    const std::uint64_t pitch = piece.pitch_bytes();
    std::byte *const staging = lane_.host(slot, true);
    if (!is_any(work.output_is_direct))
      return lane_.download(slot, 0, staging, pitch * (work.rows() - 1) + piece.length_bytes);
    for (unsigned r = 0; r < work.rows(); ++r) {
      std::byte *to = staging + r * pitch;
      if (work.output_is_direct[r]) to = work.task->outputs[r] + work.task->offset_bytes + piece.offset_bytes;
      lane_.download(slot, r * pitch, to, piece.length_bytes);
    }
  }

  // A byte of each output in staging memory is wrong, or as it was.
  void spoil(unsigned slot, const DevicePiece &piece) const {
    for (unsigned r = 0; r < piece.of->rows(); ++r)
      lane_.host(slot, true)[r * piece.pitch_bytes() + (r * kSpoiledBytes + 1) % piece.length_bytes] ^= std::byte{0x5a};
  }

  // Throws Error (DEVICE) if the piece is wrong. Returns what the CPU finds in a trial.
  std::vector<core::Mismatch> check(unsigned slot, const DevicePiece &piece) {
    const HostTask &work = *piece.of;
    const bool is_direct = is_any(work.input_is_direct) || is_any(work.output_is_direct);
    Answer answer{prepared_of(*work.task), piece.check_bytes};
    std::vector<core::Mismatch> found(work.compares() ? work.rows() : 0);
    if (work.compares()) merge_records(piece.range, lane_.records(slot), 0, work.rows(), found.data());
    answer.found = found;
    answer.launch_bytes = piece.length_bytes;
    const std::uint64_t pitch = piece.pitch_bytes(), at = work.task->offset_bytes + piece.offset_bytes;
    for (unsigned c = 0; c < work.columns(); ++c)
      answer.inputs.push_back(work.input_is_direct[c] ? work.task->inputs[c] + at
                                                      : lane_.host(slot, false) + c * pitch);
    for (unsigned r = 0; r < work.rows(); ++r)
      answer.outputs.push_back(work.output_is_direct[r] ? work.task->outputs[r] + at
                                                        : lane_.host(slot, true) + r * pitch);
    const Left left(is_direct ? enter() : nullptr);
    place_.check.look(answer, work.variant);
    if (!piece.is_trial) return {};
    spoil(slot, piece);
    return place_.check.compare(answer);
  }

  // Waits for a slot's piece, and passes its result to the caller.
  void finish(unsigned slot) {
    if (pieces_[slot].of == nullptr) return;
    lane_.wait(slot);
    const DevicePiece piece = std::exchange(pieces_[slot], {});
    const HostTask &work = *piece.of;
    place_.check.require_trust();
    std::vector<core::Mismatch> found;
    if (piece.check_bytes != 0) found = check(slot, piece);
    const std::uint64_t shards = std::uint64_t{work.rows()} + work.columns();
    std::uint64_t own_begin = 0, own_end = UINT64_MAX;  // bytes of each shard that this run writes
    if (guard_ != nullptr) {
      std::uint64_t bytes = 0;
      for_each_part(piece, [&](const Task &, std::uint64_t, std::uint64_t, std::uint64_t part) { bytes += part; });
      const core::Guard::Own own = guard_->commit(bytes * shards, work.compares());
      if (own.bytes == 0) return;
      own_begin = own.skipped_bytes / shards;
      own_end = own_begin + own.bytes / shards;
    }
    const Left left(guard_);
    if (work.compares()) {
      const std::uint64_t at = work.task->offset_bytes + piece.offset_bytes;
      if (!piece.is_trial)
        return merge_records(piece.range, lane_.records(slot), at, work.rows(), work.task->mismatches);
      for (unsigned r = 0; r < work.rows(); ++r)
        if (found[r].byte_count != 0) work.task->mismatches[r].merge({found[r].byte_count, at + found[r].first_bytes});
      return;
    }
    copies_.clear();
    for (unsigned r = 0; r < work.rows(); ++r) {
      if (work.output_is_direct[r]) continue;
      const std::byte *const from = lane_.host(slot, true) + r * piece.pitch_bytes();
      std::uint64_t done = 0;  // of the parts, which have gaps between them on the device
      for_each_part(piece, [&](const Task &task, std::uint64_t offset, std::uint64_t at, std::uint64_t bytes) {
        const std::uint64_t first = std::max(own_begin, done), last = std::min(own_end, done + bytes);
        if (first < last) {
          copies_.push_back({task.outputs[r] + offset + (first - done), from + at + (first - done), last - first,
                             task.mode == Mode::accumulate});
        }
        done += bytes;
      });
    }
    if (!copies_.empty()) place_.copy(copies_);
  }

  // The beginning of a use of the caller's memory.
  core::Guard *enter() const {
    if (guard_ != nullptr && !guard_->enter()) fail_cancelled(place_.session->device());
    return guard_;
  }

  // Its end.
  class Left {
   public:
    explicit Left(core::Guard *guard) noexcept : guard_(guard) {}
    ~Left() {
      if (guard_ != nullptr) guard_->leave();
    }
    Left(const Left &) = delete;
    Left &operator=(const Left &) = delete;

   private:
    core::Guard *const guard_;
  };

  const Workplace &place_;
  DeviceLane &lane_;
  core::Guard *const guard_;
  std::array<DevicePiece, DeviceLane::kSlots> pieces_;
  std::vector<core::HostCopy> copies_;  // of one piece
  unsigned next_ = 0, slot_count_ = DeviceLane::kSlots;
  std::string no_room_;
};

// How many of the first tasks go together.
std::size_t count_side_by_side(std::span<const Task> tasks) noexcept {
  const Task &first = tasks.front();
  const auto ends = std::find_if(tasks.begin(), tasks.end(), [&](const Task &task) {
    return task.prepared != first.prepared || task.mode != first.mode || task.mode == Mode::compare ||
           task.length_bytes > kSideBySideBytes;
  });
  return std::max<std::size_t>(static_cast<std::size_t>(ends - tasks.begin()), 1);
}

HostTask look_into(const Workplace &place, std::span<const Task> tasks, const core::Control &control) {
  const Task &task = tasks.front();
  HostTask work;
  work.task = &task;
  for (const Task &each : tasks) {
    work.starts.push_back(pitch_of(work.length_bytes));
    work.length_bytes = work.starts.back() + each.length_bytes;
  }
  // The XOR of accumulate happens in the caller's memory, so the device computes the product alone.
  const Mode mode = task.mode == Mode::accumulate ? Mode::assign : task.mode;
  work.variant =
      place.choose(prepared_of(task), mode, place.session->access_of_slots(), Binding::offsets, work.length_bytes);
  work.input_is_direct.resize(work.columns());
  work.output_is_direct.resize(work.rows());
  if (tasks.size() == 1) place.session->find_direct(work);
  work.check_bytes = place.check.wanted_bytes(prepared_of(task), work.variant, work.length_bytes);
  // Wrong bytes are put into copies.
  if (work.compares() && work.check_bytes != 0) work.output_is_direct.assign(work.rows(), false);
  if (control.guard() != nullptr) {
    // The device may read after the end of the call. Only a registration protects the memory then.
    const auto is_registered = [&](const std::byte *shard) {
      return core::is_registered(shard + task.offset_bytes, task.length_bytes);
    };
    for (unsigned c = 0; c < work.columns(); ++c)
      work.input_is_direct[c] = work.input_is_direct[c] && is_registered(task.inputs[c]);
    for (unsigned r = 0; r < work.rows(); ++r)
      work.output_is_direct[r] = work.output_is_direct[r] && work.compares() && is_registered(task.outputs[r]);
  }
  return work;
}

void run_one(const Workplace &place, const HostTask &work, PieceStream &stream, core::Control &control) {
  std::uint64_t staging_bytes = work.variant.staging_bytes;
  if (PieceStream::is_any(work.input_is_direct))
    staging_bytes = std::max(staging_bytes, (work.columns() + work.rows()) * kDirectCopyBytes);
  if (control.guard() != nullptr) {
    const std::uint64_t part = work.length_bytes / kGuardedParts * (work.columns() + work.rows());
    staging_bytes = std::min(staging_bytes, std::max(part, kLeastGuardedBytes));
  }
  std::uint64_t most = most_piece_bytes(place, *work.task, work.variant.spec.tuning, staging_bytes, kPiecesAtOnce);
  for (std::uint64_t done = 0; done < work.length_bytes;) {
    if (control.cancelled()) fail_cancelled(place.session->device());
    const bool is_trial = done == 0 && work.compares() && work.check_bytes != 0;
    const std::uint64_t left = work.length_bytes - done,
                        length = std::min(
                            {most, left, is_trial ? AnswerCheck::first_bytes(*work.task->prepared, left) : left}),
                        check_bytes = done == 0 || place.check.is_of_all() ? std::min(work.check_bytes, length) : 0;
    if (!stream.feed({&work, cut_kernel_range(work.variant.spec, length, 0), done, length, check_bytes, is_trial})) {
      // The device, or the host, may have less left than the budget, because others use it too. Then use smaller
      // pieces.
      if (length <= kLine) base::fail(TANDEM_ERROR_OUT_OF_MEMORY, stream.no_room());
      stream.finish_all();
      most = std::max(kLine, length / 2 / kLine * kLine);
      stream.begin_again(most > kSmallPieceBytes ? DeviceLane::kSlots : 1);
      place.session->give_idle_memory();
      continue;
    }
    done += length;
  }
}

}  // namespace

std::uint64_t most_piece_bytes(const Workplace &place, const Task &task, const KernelTuning &tuning,
                               std::uint64_t staging_bytes, unsigned pieces_at_once) {
  const Device &device = place.session->device();
  const std::uint64_t shards = std::uint64_t{task.prepared->rows()} + task.prepared->columns();
  // Half of it: offsets, and buffers that grow to powers of two.
  const std::uint64_t budget = place.budget_bytes_of_staging() / pieces_at_once / 2;
  const std::uint64_t most = std::min({staging_bytes, budget, device.most_buffer_bytes});
  std::uint64_t piece = most / shards / kLine * kLine;
  if (task.mode == Mode::compare) {
    // For each tile a record of each output. One more for the last tile, which may be short, one for head and tail
    // each.
    const std::uint64_t tile = std::uint64_t{tuning.element_bytes} * tuning.elements_per_item * tuning.local[0];
    const std::uint64_t of_tile = task.prepared->rows() * kRecordBytes;
    const std::uint64_t rest = most > 3 * of_tile ? most - 3 * of_tile : 0;
    // piece * shards + piece / tile * of_tile <= rest. Tuning values are at most 2^30 and, for a tile, 2^28: no
    // overflow.
    piece = rest * tile / (shards * tile + of_tile) / kLine * kLine;
  }
  if (piece == 0 && budget >= shards * 2 * kLine) piece = kLine;  // the reason is a tuning value, not memory
  if (piece == 0) {
    device.fail(TANDEM_ERROR_OUT_OF_MEMORY, "the memory budget of ", device.name, " on ", device.model(), " (",
                place.session->budget().bytes(), " bytes) does not hold ", kLine, " bytes of each of ", shards,
                " shards");
  }
  return piece;
}

void run_staged(const Workplace &place, std::span<const Task> tasks, core::Control &control) {
  if (tasks.empty()) return;
  auto lane = place.session->take_lane(control);
  const core::RecordedRun recorded(place.timeline, place.session->device().identity.backend, tasks);
  PieceStream stream(place, *lane, control.guard());
  std::list<HostTask> works;  // keep their addresses until their last piece is done
  try {
    for (std::size_t done = 0, count = 0; done < tasks.size(); done += count) {
      count = count_side_by_side(tasks.subspan(done));
      works.push_back(look_into(place, tasks.subspan(done, count), control));
      run_one(place, works.back(), stream, control);
      if (works.size() > DeviceLane::kSlots) works.pop_front();  // each has taken at least one slot
    }
    stream.finish_all();
  } catch (...) {
    place.session->settle(lane);
    throw;
  }
}

}  // namespace tandem::device
