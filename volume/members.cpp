// SPDX-License-Identifier: Apache-2.0
#include "volume/members.hpp"

#include <algorithm>

namespace tandem::volume {
namespace {

void copy_text(const std::string &from, char (&to)[256]) {
  const std::size_t bytes = std::min(from.size(), sizeof to - 1);
  std::memcpy(to, from.data(), bytes);
  to[bytes] = 0;
}

constexpr std::uint32_t kLeastSlowMicroseconds = 1000;

}  // namespace

Members::Members(std::uint32_t count, std::uint32_t k, bool read_only, Note note)
    : k_(k), read_only_(read_only), note_(std::move(note)) {
  for (std::uint32_t i = 0; i < count; ++i) slots_.push_back(std::make_unique<Slot>());
}

std::uint32_t Members::count_of(std::int32_t state) const {
  return static_cast<std::uint32_t>(
      std::ranges::count_if(slots_, [&](const auto &slot) { return slot->state == state; }));
}

std::uint32_t Members::usable_count() const {
  return count_of(TANDEM_VOLUME_MEMBER_CURRENT) + count_of(TANDEM_VOLUME_MEMBER_REBUILDING);
}

std::uint32_t Members::old_count() const {
  std::uint32_t old = 0;
  for (std::uint32_t i = 0; i < count(); ++i) old += state(i) == TANDEM_VOLUME_MEMBER_CURRENT && is_old(i);
  return old;
}

std::vector<Standing> Members::standings() const {
  std::vector<Standing> found;
  for (std::uint32_t i = 0; i < count(); ++i) {
    const std::int32_t now = state(i);
    found.push_back(now == TANDEM_VOLUME_MEMBER_CURRENT      ? Standing::current
                    : now == TANDEM_VOLUME_MEMBER_REBUILDING ? Standing::rebuilding
                                                             : Standing::lost);
  }
  return found;
}

void Members::put(std::uint32_t index, const std::string &name, std::shared_ptr<Member> member, std::int32_t state,
                  const std::string &why) {
  Slot &slot = *slots_[index];
  const std::lock_guard lock(slot.mutex);
  slot.name = name;
  slot.member = std::move(member);
  slot.why = why;
  slot.unsynced = true;
  slot.is_old = false;
  slot.read_errors = slot.bad_blocks = 0;
  slot.time_count = 0;
  slot.is_slow = false;
  slot.state.store(state, std::memory_order_release);
}

void Members::set_state(std::uint32_t index, std::int32_t state, const std::string &why) {
  Slot &slot = *slots_[index];
  const std::lock_guard lock(slot.mutex);
  slot.why = why;
  slot.state.store(state, std::memory_order_release);
}

void Members::lose(std::uint32_t index, const std::shared_ptr<Member> &member, const std::string &why) {
  Slot &slot = *slots_[index];
  {
    const std::lock_guard lock(slot.mutex);
    if (slot.member != member || slot.state > TANDEM_VOLUME_MEMBER_REBUILDING) return;
    slot.why = why;
    slot.is_slow = false;
    slot.state.store(TANDEM_VOLUME_MEMBER_LOST, std::memory_order_release);
  }
  note_(text("member ", index, " is lost: ", why));
}

void Members::set_old(std::uint32_t index, bool is_old) {
  if (slots_[index]->is_old.exchange(is_old, std::memory_order_acq_rel) == is_old || !is_old) return;
  note_(text("member ", index,
             " holds old blocks, as an old copy of it does: they are computed from the others, and a scrub with repair "
             "writes them again"));
}

void Members::let_go(std::uint32_t index) {
  Slot &slot = *slots_[index];
  const std::lock_guard lock(slot.mutex);
  if (slot.state == TANDEM_VOLUME_MEMBER_LOST) slot.member.reset();
}

std::shared_ptr<Member> Members::member(std::uint32_t index) const {
  const std::lock_guard lock(slots_[index]->mutex);
  return slots_[index]->member;
}

bool Members::all_cached() const {
  for (std::uint32_t i = 0; i < count(); ++i)
    if (const auto each = member(i); each && !each->is_cached()) return false;
  return true;
}

void Members::query(std::uint32_t index, tandem_volume_member *out) const {
  const Slot &slot = *slots_[index];
  const std::lock_guard lock(slot.mutex);
  out->index = index;
  out->state = slot.state;
  out->size_bytes = slot.member ? slot.member->size_bytes() : 0;
  out->read_error_count = slot.read_errors;
  out->bad_block_count = slot.bad_blocks;
  out->is_slow = slot.is_slow;
  copy_text(slot.name, out->name);
  copy_text(slot.is_old && slot.why.empty() ? "it holds old blocks, scrub with repair mends them" : slot.why, out->why);
}

bool Members::read(std::uint32_t index, IoKind kind, std::uint64_t offset, std::byte *to, std::size_t bytes) {
  const auto member = this->member(index);
  if (!member || !is_usable(index)) return false;
  Count &count = counts_[static_cast<std::size_t>(kind)];
  ++count.reads;
  count.read_bytes += bytes;
  try {
    const auto begin = std::chrono::steady_clock::now();
    member->read(offset, to, bytes);
    if ((kind == IoKind::data || kind == IoKind::parity) && bytes <= kMostTimedBytes)
      note_time(index, std::chrono::steady_clock::now() - begin);
    return true;
  } catch (const MemberError &error) {
    if (slots_[index]->read_errors++ == 0) note_(text("member ", index, " could not be read: ", error.what()));
    return false;
  }
}

std::uint32_t Members::ranked_time(const Slot &slot, std::size_t rank) {
  std::uint32_t times[kTimes];
  std::ranges::copy(slot.times, times);
  std::nth_element(times, times + rank, times + kTimes);
  return times[rank];
}

void Members::note_time(std::uint32_t index, std::chrono::steady_clock::duration time) {
  Slot &slot = *slots_[index];
  const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(time).count();
  const std::uint64_t count = slot.time_count++;
  slot.times[count % kTimes] = static_cast<std::uint32_t>(std::min<std::int64_t>(microseconds, UINT32_MAX));
  if (count + 1 < kTimes || (microseconds < kLeastSlowMicroseconds && !slot.is_slow)) return;
  const std::uint32_t median = ranked_time(slot, kTimes / 2);
  std::uint32_t faster = 0;
  for (std::uint32_t i = 0; i < this->count() && median >= kLeastSlowMicroseconds; ++i)
    faster += i != index && is_usable(i) && slots_[i]->time_count >= kTimes &&
              ranked_time(*slots_[i], kTimes * 99 / 100 - 1) < median;
  slot.is_slow.store(faster >= k_, std::memory_order_release);
}

bool Members::write(std::uint32_t index, IoKind kind, std::uint64_t offset, const std::byte *from, std::size_t bytes) {
  const auto member = this->member(index);
  if (read_only_ || !member || !is_usable(index)) return false;
  Count &count = counts_[static_cast<std::size_t>(kind)];
  ++count.writes;
  count.write_bytes += bytes;
  slots_[index]->unsynced.store(true, std::memory_order_release);
  try {
    member->write(offset, from, bytes);
    slots_[index]->unsynced.store(true, std::memory_order_release);  // a sync may have begun before the write ended
    return true;
  } catch (const MemberError &error) {
    lose(index, member, error.what());
    return false;
  }
}

bool Members::sync(std::uint32_t index) {
  const auto member = this->member(index);
  if (read_only_ || !member || !is_usable(index)) return false;
  ++syncs_;
  slots_[index]->unsynced.store(false, std::memory_order_release);  // a write from here on sets it again
  try {
    member->sync();
    return true;
  } catch (const MemberError &error) {
    lose(index, member, error.what());
    return false;
  }
}

void Members::trim(std::uint32_t index, std::uint64_t offset, std::uint64_t bytes) {
  const auto member = this->member(index);
  if (!read_only_ && member && is_usable(index)) member->trim(offset, bytes);
}

tandem_volume_io_count Members::counted(IoKind kind) const {
  const Count &count = counts_[static_cast<std::size_t>(kind)];
  return {count.reads, count.writes, count.read_bytes, count.write_bytes};
}

}  // namespace tandem::volume
