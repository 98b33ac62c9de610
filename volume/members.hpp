// SPDX-License-Identifier: Apache-2.0
// The k+m members of an open volume: which of them can be used or have failed, and what was read and written.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "volume/member.hpp"
#include "volume/superblock.hpp"

namespace tandem::volume {

enum class IoKind { data, parity, log, checksum, superblock };
inline constexpr std::size_t kIoKinds = 5;

class Members {
 public:
  using Note = std::function<void(const std::string &)>;
  Members(std::uint32_t count, std::uint32_t k, bool read_only, Note note);

  std::uint32_t count() const { return static_cast<std::uint32_t>(slots_.size()); }
  // As tandem_volume_member_state.
  std::int32_t state(std::uint32_t index) const { return slots_[index]->state.load(std::memory_order_acquire); }
  bool is_usable(std::uint32_t index) const { return state(index) <= TANDEM_VOLUME_MEMBER_REBUILDING; }
  std::uint32_t usable_count() const;
  std::uint32_t count_of(std::int32_t state) const;
  std::uint32_t old_count() const;  // current ones that hold old blocks
  std::vector<Standing> standings() const;

  void put(std::uint32_t index, const std::string &name, std::shared_ptr<Member> member, std::int32_t state,
           const std::string &why);
  void set_state(std::uint32_t index, std::int32_t state, const std::string &why);
  // Closes it if it is lost.
  void let_go(std::uint32_t index);
  std::shared_ptr<Member> member(std::uint32_t index) const;
  bool all_cached() const;  // those that are open
  void query(std::uint32_t index, tandem_volume_member *out) const;

  // False if it failed, or must not be used. A failed write or sync loses the member, a failed read does not.
  bool read(std::uint32_t index, IoKind kind, std::uint64_t offset, std::byte *to, std::size_t bytes);
  bool write(std::uint32_t index, IoKind kind, std::uint64_t offset, const std::byte *from, std::size_t bytes);
  bool sync(std::uint32_t index);
  void trim(std::uint32_t index, std::uint64_t offset, std::uint64_t bytes);
  // Whether a row has shown that it holds old blocks. The first time it is noted.
  bool is_old(std::uint32_t index) const { return slots_[index]->is_old.load(std::memory_order_acquire); }
  void set_old(std::uint32_t index, bool is_old);
  // Whether the median of its last 100 reads is longer than a millisecond, and longer than 99 of the last 100 reads of
  // each of k others.
  bool is_slow(std::uint32_t index) const { return slots_[index]->is_slow.load(std::memory_order_acquire); }
  // Only shorter reads count: longer ones tell of the length more than of the member.
  static constexpr std::size_t kMostTimedBytes = 64 << 10;
  // One of 100 reads of a slow member is made nevertheless: it may be fast again.
  bool avoids(std::uint32_t index) { return is_slow(index) && ++slots_[index]->avoided_count % kTimes != 0; }
  bool is_unsynced(std::uint32_t index) const { return slots_[index]->unsynced.load(std::memory_order_acquire); }

  void count_bad_block(std::uint32_t index) { ++slots_[index]->bad_blocks; }
  tandem_volume_io_count counted(IoKind kind) const;
  std::uint64_t syncs() const { return syncs_; }

 private:
  // A write or a sync of it failed. No effect if another member has its place by now.
  void lose(std::uint32_t index, const std::shared_ptr<Member> &member, const std::string &why);
  static constexpr std::size_t kTimes = 100;
  struct Slot;
  void note_time(std::uint32_t index, std::chrono::steady_clock::duration time);
  static std::uint32_t ranked_time(const Slot &slot, std::size_t rank);
  struct Slot {
    mutable std::mutex mutex;  // of name, member and why
    std::string name, why;
    std::shared_ptr<Member> member;
    std::atomic<std::int32_t> state{TANDEM_VOLUME_MEMBER_LOST};
    std::atomic<bool> unsynced{false}, is_old{false}, is_slow{false};
    std::atomic<std::uint32_t> times[kTimes]{};  // of the last reads of blocks, in microseconds
    std::atomic<std::uint64_t> time_count{0}, avoided_count{0};
    std::atomic<std::uint64_t> read_errors{0}, bad_blocks{0};
  };
  struct Count {
    std::atomic<std::uint64_t> reads{0}, writes{0}, read_bytes{0}, write_bytes{0};
  };

  std::uint32_t k_;
  bool read_only_;
  Note note_;
  std::vector<std::unique_ptr<Slot>> slots_;
  Count counts_[kIoKinds];
  std::atomic<std::uint64_t> syncs_{0};
};

}  // namespace tandem::volume
