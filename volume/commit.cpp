// SPDX-License-Identifier: Apache-2.0
// The end of a transaction. Durability depends on the order of its steps: see docs/internals/VOLUME.md.
#include <algorithm>

#include "volume/engine.hpp"
#include "volume/log_record.hpp"

namespace tandem::volume {

Volume::Change::Change(Volume &volume, std::uint64_t items) : volume_(volume), items_(items) {
  volume.check_enough_members();
  volume.check_not_broken();
  while (!volume.gate_->try_enter(items)) {
    volume.begin_session();
    volume.commit();
  }
}

// A member must know of a session before it gets anything of it.
void Volume::begin_session() {
  if (session_is_durable_) return;
  const Gate::Exclusive exclusive(*gate_);
  if (!session_is_durable_) write_superblocks();
}

Volume::Change::~Change() { volume_.gate_->leave(items_); }

void Volume::flush() {
  if (!settings_.read_only) commit();
}

void Volume::close() {
  if (settings_.read_only) return;
  stop_moving_windows();
  std::exception_ptr failed;
  try {
    end_bounded(false);
  } catch (...) {  // a window stays open; what else was written is made safe first
    failed = std::current_exception();
  }
  commit();
  {
    const Gate::Exclusive exclusive(*gate_);
    settle();
  }
  if (failed) std::rethrow_exception(failed);
}

void Volume::commit() {
  const Gate::Exclusive exclusive(*gate_);
  commit_exclusively();
  if (std::chrono::steady_clock::now() - settled_at_ >= settings_.settle_after) settle();
}

// Writes the superblocks twice, with nothing committed in between. A copy of a member that was made before is then
// older than `settled`, and known to be an old one at sight, as at the beginning of a session.
void Volume::settle() {
  settled_at_ = std::chrono::steady_clock::now();
  if (is_settled_) return;
  write_superblocks();
  write_superblocks();
  is_settled_ = true;
}

void Volume::check_not_broken() const {
  if (broken_)
    fail(TANDEM_ERROR_IO,
         "memory ran out in the middle of a change: close the volume and open it again; "
         "writes that were not flushed are lost");
}

void Volume::commit_exclusively() {
  check_not_broken();
  whole([&] { commit_transaction(); });
}

void Volume::commit_transaction() {
  if (!session_is_durable_) return;  // before the session begins, memory holds only the record of an earlier one
  const auto dirty = table_->dirty();
  if (dirty.empty()) {
    pending_.clear();  // what remains belongs to members that were lost before they got an entry
    return;
  }
  check_enough_members();

  // 1. Sync blocks written in place since the last commit, blocks that commit wrote to their places, and mended blocks.
  sync_members();
  // 2. A lost member must be recorded as lost before the flush promises anything that it lacks.
  record_losses();

  // 3. The record.
  for (const Table::Dirty &each : dirty) {
    each.page->sequence = sequence_;
    seal_page(*seed_, each.member, each.number, *each.page);
  }
  const auto blocks = pending_.all();
  const std::vector<LogItem> items = items_of(blocks, dirty);
  {
    std::size_t bytes = 0;
    const Buffer record = write_log_record(superblock_.id, sequence_, items, &bytes);
    write_log(record.data(), bytes);
  }
  record_losses();

  // 4. From here on the transaction is committed, even if later steps fail.
  ++sequence_;
  ++transactions_;
  is_settled_ = false;
  apply(items);
  std::vector<std::pair<std::uint32_t, std::uint64_t>> holes;
  for (const Pending::Block &each : blocks)
    if (!each.payload) holes.emplace_back(each.member, each.number);
  std::ranges::sort(holes);
  for (std::size_t i = 0, end; i < holes.size(); i = end) {
    for (end = i + 1;
         end < holes.size() && holes[end].first == holes[i].first && holes[end].second == holes[end - 1].second + 1;)
      ++end;
    members_->trim(holes[i].first, geometry().block_offset(holes[i].second), (end - i) * kBlockBytes);
  }
  pending_.clear();
  table_->mark_clean();
  check_enough_members();
}

// Items for all members that the superblocks call current or rebuilding. A reader may have lost one of them meanwhile:
// after a crash it is current again, and needs its part.
std::vector<LogItem> Volume::items_of(std::span<const Pending::Block> blocks,
                                      std::span<const Table::Dirty> pages) const {
  std::vector<LogItem> items;
  const auto is_needed = [&](std::uint32_t member) { return superblock_.standings[member] != Standing::lost; };
  for (const Pending::Block &each : blocks)
    if (each.payload && is_needed(each.member))
      items.push_back({each.member, ItemKind::block, each.number, each.payload->data()});
  for (const Table::Dirty &each : pages)
    if (is_needed(each.member))
      items.push_back({each.member, ItemKind::page, each.number, reinterpret_cast<const std::byte *>(each.page)});
  return items;
}

// The first writing of this session has noted the members that lack the record. A crash here is safe: the next open
// still looks for the record, because this session has not begun.
void Volume::play() {
  const auto blocks = pending_.all();
  const auto pages = table_->dirty();
  if (pages.empty()) return;
  apply(items_of(blocks, pages));
  sync_members();
  pending_.clear();
  table_->mark_clean();
}

void Volume::sync_members() {
  std::vector<std::uint32_t> unsynced;
  for (std::uint32_t i = 0; i < members_->count(); ++i)
    if (members_->is_usable(i) && members_->is_unsynced(i)) unsynced.push_back(i);
  crew_->run(unsynced.size(), [&](std::size_t i) { members_->sync(unsynced[i]); });
}

void Volume::record_losses() {
  if (members_->standings() != superblock_.standings) write_superblocks();
}

// The first time in a session twice: the second writing says that the first one reached all members. An older copy of a
// member is then known to be one.
void Volume::write_superblocks() {
  for (bool is_known = session_is_durable_;; is_known = true) {
    check_enough_members();
    const std::vector<Standing> standings = members_->standings();
    if (standings != superblock_.standings) ++superblock_.epoch;
    superblock_.standings = standings;
    superblock_.windows = window_list();
    superblock_.scrub_stripe = scrub_stripe_;
    ++superblock_.counter;
    std::vector<std::uint32_t> written;
    for (std::uint32_t i = 0; i < members_->count(); ++i)
      if (members_->is_usable(i)) written.push_back(i);
    crew_->run(written.size(), [&](std::size_t i) { write_superblock_of(written[i], superblock_); });
    superblock_.settled = superblock_.counter;
    if (!is_known) play();
    if (is_known && members_->standings() == standings) break;
  }
  epoch_ = superblock_.epoch;
  session_is_durable_ = true;
}

void Volume::write_superblock_of(std::uint32_t index, const Superblock &superblock) {
  Superblock own = superblock;
  own.index = index;
  SuperblockBytes bytes;
  write_superblock(own, bytes);
  const std::uint8_t copy = 1 - good_copies_[index];
  if (members_->write(index, IoKind::superblock, copy * kBlockBytes, bytes.data(), bytes.size()) &&
      members_->sync(index))
    good_copies_[index] = copy;
}

// On m+1 members in turn, so that one record is left after any m members are lost.
void Volume::write_log(const std::byte *bytes, std::size_t count) {
  std::vector<std::uint32_t> candidates;
  for (std::uint32_t i = 0; i < members_->count(); ++i) {
    const auto index = static_cast<std::uint32_t>((sequence_ + i) % members_->count());
    if (members_->is_usable(index)) candidates.push_back(index);
  }
  std::atomic<std::size_t> copies{0};
  std::size_t next = 0;
  while (copies <= geometry().m && next < candidates.size()) {
    const std::size_t first = next;
    const std::size_t tried = std::min(geometry().m + 1 - copies, candidates.size() - next);
    next += tried;
    crew_->run(tried, [&](std::size_t i) {
      const std::uint32_t index = candidates[first + i];
      if (members_->write(index, IoKind::log, kLogOffset, bytes, count) && members_->sync(index)) ++copies;
    });
  }
  check_enough_members();
}

// Writes blocks and pages to their places, neighbours together.
void Volume::apply(std::span<const LogItem> items) {
  constexpr std::size_t kMostPerWrite = 256;
  std::vector<LogItem> sorted(items.begin(), items.end());
  std::ranges::sort(sorted, [](const LogItem &a, const LogItem &b) {
    return std::tie(a.member, a.kind, a.number) < std::tie(b.member, b.kind, b.number);
  });
  // A run consists of neighbours of one member, area and, in the data area, column.
  const auto kind_of_item = [&](const LogItem &item) {
    if (item.kind == ItemKind::page) return IoKind::checksum;
    const std::uint64_t stripe = item.number / geometry().rows();
    const std::uint32_t n = members_->count();
    return (item.member + n - geometry().first_member(stripe)) % n < geometry().m ? IoKind::parity : IoKind::data;
  };
  std::vector<std::pair<std::size_t, std::size_t>> runs;
  for (std::size_t i = 0, end; i < sorted.size(); i = end) {
    for (end = i + 1; end < sorted.size() && end - i < kMostPerWrite && sorted[end].member == sorted[i].member &&
                      sorted[end].kind == sorted[i].kind && sorted[end].number == sorted[end - 1].number + 1 &&
                      kind_of_item(sorted[end]) == kind_of_item(sorted[i]);)
      ++end;
    runs.emplace_back(i, end);
  }
  crew_->run(runs.size(), [&](std::size_t run) {
    const auto [begin, end] = runs[run];
    const LogItem &first = sorted[begin];
    const std::uint64_t offset =
        first.kind == ItemKind::page ? geometry().page_offset(first.number) : geometry().block_offset(first.number);
    if (end - begin == 1) {
      members_->write(first.member, kind_of_item(first), offset, first.payload, kBlockBytes);
      return;
    }
    Buffer together((end - begin) * kBlockBytes);
    for (std::size_t i = begin; i < end; ++i)
      std::memcpy(together.data() + (i - begin) * kBlockBytes, sorted[i].payload, kBlockBytes);
    members_->write(first.member, kind_of_item(first), offset, together.data(), (end - begin) * kBlockBytes);
  });
}

}  // namespace tandem::volume
