// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>

#include "base/io_error.hpp"
#include "base/text.hpp"
#include "files/repair_steps.hpp"
#include "files/workers.hpp"

namespace tandem::files {
namespace {

using Work = std::function<void(std::span<const std::uint64_t> stripes, const BatchBuffers &)>;

void run_workers(RepairTask &task, const Work &work) {
  const RangeList stripes(task.findings.readable);
  const auto [first_place, stripe_count] = range_of(stripes.count(), task.team.process(), task.team.process_count());
  const std::uint64_t end = first_place + stripe_count;
  base::Meter meter(task.options.progress, task.options.progress_user, stripe_count * task.header.stripe_data_bytes());
  std::atomic<std::uint64_t> next{first_place};
  const Division division = divide(task.context, task.options.thread_count, task.header, stripe_count);
  task.source.set_piece_bytes(division.piece_bytes);
  meter.check();  // the bytes are counted anew
  files::run_workers(task.context, division.worker_count, meter, nullptr, [&](std::size_t) {
    const BatchBuffers buffers = make_buffers(task.header, division.batch_stripes);
    std::vector<std::uint64_t> batch;
    while (!meter.stopped().load(std::memory_order_relaxed)) {
      const std::uint64_t first = next.fetch_add(buffers.size());
      batch.clear();
      for (std::uint64_t place = first; place < end && batch.size() < buffers.size(); ++place)
        batch.push_back(stripes.at(place));
      if (batch.empty()) return;
      work(batch, buffers);
      meter.done(batch.size() * task.header.stripe_data_bytes());
    }
  });
}

// ---- blocks ----

Hash128 check_of(const RepairTask &task, std::uint32_t shard, std::uint64_t stripe, const std::byte *block) {
  const std::uint64_t payload_bytes = task.header.payload_bytes_of(stripe);
  base::TimedStep step = step_of(task.timeline, "hash", task.header, stripe);
  step.add_bytes(payload_bytes);
  return block_check(task.header.set_id, shard, stripe, block, payload_bytes);
}

// As write_at and read_at, with spans in the timeline.
bool put_block(const RepairTask &task, int descriptor, const std::byte *block, std::uint64_t bytes,
               std::uint64_t stripe) {
  base::TimedStep step = step_of(task.timeline, "write", task.header, stripe);
  if (!write_at(descriptor, block, bytes, task.header.block_offset(stripe))) return false;
  step.add_bytes(bytes);
  return true;
}

bool get_block(const RepairTask &task, int descriptor, std::byte *block_out, std::uint64_t bytes,
               std::uint64_t stripe) {
  base::TimedStep step = step_of(task.timeline, "read", task.header, stripe);
  if (read_at(descriptor, block_out, bytes, task.header.block_offset(stripe)) != static_cast<std::int64_t>(bytes))
    return false;
  step.add_bytes(bytes);
  return true;
}

// Ranges may cover more than the bad blocks. A good block is never written to.
bool wants(RepairTask &task, const Target &target, std::uint64_t stripe, std::byte *scratch) {
  if (target.action == TANDEM_FILES_REBUILD) return true;
  return task.findings.bad[target.file].contains(stripe) &&
         !task.source.reader().read_block_of_file(target.file, stripe, scratch);
}

template <class... Parts>
void fail_first(Target &target, const Parts &...why) {
  if (target.failure.empty()) target.failure = base::text(why...);
}

void write_block(RepairTask &task, Target &target, std::uint64_t stripe, const std::byte *block, std::uint64_t bytes) {
  {
    const std::lock_guard lock(task.mutex);
    if (!target.failure.empty()) return;
  }
  const bool good = put_block(task, target.descriptor(), block, bytes, stripe);
  const int error = errno;
  const std::lock_guard lock(task.mutex);
  if (!good) return fail_first(target, "cannot write block ", stripe, " of ", target.path(), ": ", error_text(error));
  target.written.add(stripe, stripe + 1);
  task.written_bytes += bytes;
}

// A rebuilt file does not replace the old one if it lacks a stripe that was recoverable a moment ago.
void leave_block(RepairTask &task, Target &target, std::uint64_t stripe) {
  const std::lock_guard lock(task.mutex);
  ++target.left_count;
  if (!task.findings.lost.contains(stripe))
    fail_first(target, "block ", stripe, " of ", target.path(),
               " cannot be computed: other blocks of its stripe cannot be read any more");
}

// A block of the old file that cannot be recovered: its bytes may still be of use.
void keep_block(RepairTask &task, Target &target, std::uint64_t stripe, std::byte *block) {
  const std::uint64_t bytes = task.header.payload_bytes_of(stripe) + kCheckBytes;
  errno = 0;
  const bool is_read = task.source.reader().read_raw_block(target.file, stripe, block);
  if (is_read && put_block(task, target.descriptor(), block, bytes, stripe)) return;
  const int error = errno;
  const std::lock_guard lock(task.mutex);
  fail_first(target, "block ", stripe, " of ", target.path(), ", which cannot be computed, cannot be ",
             is_read ? "copied" : "read", error != 0 ? ": " + error_text(error) : "", "; the file is left alone");
}

void write_stripe(RepairTask &task, const StripeSource::Stripe &got, std::span<Target *const> targets) {
  const ShardBuffers &buffers = *got.buffers;
  const std::uint64_t stripe = got.number, payload_bytes = task.header.payload_bytes_of(stripe);
  for (std::uint32_t i = 0; i < task.header.shard_count(); ++i)
    if (got.wanted[i] != 0 && got.present[i] == 0 && got.complete)
      write_check(check_of(task, i, stripe, buffers.at(i)), buffers.at(i) + payload_bytes);
  for (Target *target : targets) {
    if (got.complete || got.present[target->shard] != 0) {
      write_block(task, *target, stripe, buffers.at(target->shard), payload_bytes + kCheckBytes);
    } else {
      leave_block(task, *target, stripe);
      if (target->action == TANDEM_FILES_REBUILD && target->file != kNoFile)
        keep_block(task, *target, stripe, buffers.at(target->shard));
    }
  }
}

void write_stripes(RepairTask &task, std::span<const std::uint64_t> numbers, const BatchBuffers &buffers) {
  std::vector<StripeSource::Stripe> stripes;
  std::vector<std::vector<Target *>> targets;  // of each of them
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    std::vector<std::uint8_t> wanted(task.header.shard_count(), 0);
    std::vector<Target *> now;
    for (Target &target : task.targets) {
      if (!wants(task, target, numbers[i], buffers[i].at(target.shard))) continue;
      now.push_back(&target);
      wanted[target.shard] = 1;
    }
    if (now.empty()) continue;
    stripes.push_back({numbers[i], std::move(wanted), &buffers[i]});
    targets.push_back(std::move(now));
  }
  task.source.bring(stripes);
  for (std::size_t i = 0; i < stripes.size(); ++i) write_stripe(task, stripes[i], targets[i]);
}

// With too many ranges to know each, a bad block may be one that was lost and never written.
bool is_computable(RepairTask &task, const Target &target, std::uint64_t stripe, const ShardBuffers &buffers) {
  std::vector<std::uint8_t> wanted(task.header.shard_count(), 0);
  wanted[target.shard] = 1;
  StripeSource::Stripe computed = {stripe, std::move(wanted), &buffers};
  task.source.bring({&computed, 1});
  return computed.complete;
}

void read_back_stripe(RepairTask &task, std::uint64_t stripe, const ShardBuffers &buffers) {
  const std::uint64_t payload_bytes = task.header.payload_bytes_of(stripe), bytes = payload_bytes + kCheckBytes;
  std::byte *block = buffers.at(0);
  for (Target &target : task.targets) {
    if (!target.written.contains(stripe)) continue;
    const bool good = get_block(task, target.descriptor(), block, bytes, stripe) &&
                      check_of(task, target.shard, stripe, block) == read_check(block + payload_bytes);
    const bool failed = !good && (target.written.is_exact() || is_computable(task, target, stripe, buffers));
    const std::lock_guard lock(task.mutex);
    task.read_bytes += bytes;
    if (failed) fail_first(target, "block ", stripe, " of ", target.path(), " was written and does not read back");
  }
}

// ---- records ----

// A damaged record is written before an intact one of another m, so that one of the two is intact at any time.
std::vector<RecordEnd> ends_to_write(const RepairTask &task, const Target &target) {
  std::vector<RecordEnd> ends = {RecordEnd::end, RecordEnd::start};
  if (target.action == TANDEM_FILES_REBUILD) return ends;
  const std::uint32_t condition = task.set.files[target.file].condition;
  const auto is_intact = [&](RecordEnd end) {
    return (condition & (end == RecordEnd::start ? TANDEM_FILES_START_DAMAGED : TANDEM_FILES_END_DAMAGED)) == 0;
  };
  std::stable_partition(ends.begin(), ends.end(), std::not_fn(is_intact));
  if ((condition & TANDEM_FILES_OTHER_M) == 0) std::erase_if(ends, is_intact);
  return ends;
}

std::uint64_t offset_of(const RepairTask &task, RecordEnd end) {
  return end == RecordEnd::start ? 0 : task.header.shard_file_bytes() - kRecordBytes;
}

// An existing file keeps its m. resize gives it another one before.
Record record_of(const RepairTask &task, const Target &target, RecordEnd end) {
  return {target.file != kNoFile ? task.set.files[target.file].header : task.header, target.shard, end};
}

void write_record_of(RepairTask &task, const Target &target, RecordEnd end) {
  std::array<std::byte, kRecordBytes> bytes;
  write_record(record_of(task, target, end), bytes);
  if (!write_at(target.descriptor(), bytes.data(), bytes.size(), offset_of(task, end)))
    fail_io("write", target.path(), errno);
  task.written_bytes += bytes.size();
}

void sync_target(const RepairTask &task, Target &target) {
  const bool no_sync = task.options.no_sync != 0;
  const base::TimedStep step(no_sync ? nullptr : task.timeline, "sync", 0, task.header.content_bytes);
  if (target.pending) {
    target.pending->finish(no_sync);
  } else if (!no_sync && fsync(target.descriptor()) != 0) {
    fail_io("sync", target.path(), errno);
  }
  posix_fadvise(target.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
}

void read_back_records(const RepairTask &task, const Target &target) {
  std::array<std::byte, kRecordBytes> bytes;
  for (const RecordEnd end : ends_to_write(task, target)) {
    Record record;
    if (read_at(target.descriptor(), bytes.data(), bytes.size(), offset_of(task, end)) !=
            static_cast<std::int64_t>(bytes.size()) ||
        parse_record(bytes, &record) != ParseResult::record || record != record_of(task, target, end))
      fail(TANDEM_ERROR_IO, "a record of ", target.path(), " was written and does not read back");
  }
}

}  // namespace

void write_blocks(RepairTask &task) {
  run_workers(task, [&](std::span<const std::uint64_t> numbers, const BatchBuffers &buffers) {
    write_stripes(task, numbers, buffers);
  });
}

void write_new_records(RepairTask &task) {
  task.attempt_each([&](Target &target) {
    if (target.action != TANDEM_FILES_REBUILD) return;
    for (const RecordEnd end : ends_to_write(task, target)) write_record_of(task, target, end);
  });
}

void mend_records(RepairTask &task) {
  task.attempt_each([&](Target &target) {
    if (target.action != TANDEM_FILES_MEND) return;
    const bool was_open = static_cast<bool>(target.opened);
    if (!was_open && !open_in_place(task.set.files[target.file], &target.opened)) fail_io("open", target.path(), errno);
    for (const RecordEnd end : ends_to_write(task, target)) {
      write_record_of(task, target, end);
      sync_target(task, target);
    }
    read_back_records(task, target);
    if (!was_open) target.opened.reset();
  });
}

void sync_targets(RepairTask &task) {
  task.attempt_each([&](Target &target) {
    if (target.pending || !target.written.empty()) sync_target(task, target);
  });
}

void read_back(RepairTask &task) {
  run_workers(task, [&](std::span<const std::uint64_t> stripes, const BatchBuffers &buffers) {
    for (const std::uint64_t stripe : stripes) read_back_stripe(task, stripe, buffers[0]);
  });
  if (!task.team.leads()) return;
  task.attempt_each([&](const Target &target) {
    if (target.action == TANDEM_FILES_REBUILD) read_back_records(task, target);
  });
}

}  // namespace tandem::files
