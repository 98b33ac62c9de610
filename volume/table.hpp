// SPDX-License-Identifier: Apache-2.0
// The table of checksums of all members. Pages are cached in memory; pages that a transaction changed stay until its
// end.
#pragma once

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "volume/members.hpp"
#include "volume/page.hpp"

namespace tandem::volume {

class Table {
 public:
  Table(Members &members, const Geometry &geometry, const Seed &seed, std::uint64_t cache_bytes);

  // The entries of a member's blocks. A page that is damaged or unreadable has unknown entries.
  void get(std::uint32_t member, std::uint64_t first_block, std::size_t count, Entry *out);
  // The same, but false if a page must be read for it.
  bool try_get(std::uint32_t member, std::uint64_t first_block, std::size_t count, Entry *out);
  void set(std::uint32_t member, std::uint64_t first_block, std::size_t count, const Entry *in);

  struct Dirty {
    std::uint32_t member;
    std::uint64_t number;
    Page *page;
  };
  // Sorted by member and number. Not while a thread calls set().
  std::vector<Dirty> dirty();
  std::size_t dirty_count() const;
  void mark_clean();

  // Keeps a page that the members do not have yet: from a log that may not be replayed.
  void overlay(std::uint32_t member, std::uint64_t number, const Page &page);
  // Drops all pages of a member.
  void drop(std::uint32_t member);

 private:
  using Key = std::uint64_t;
  struct Held {
    Page page;
    bool dirty = false;
    std::list<Key>::iterator place{};  // in clean_
  };
  static Key key(std::uint32_t member, std::uint64_t number) { return std::uint64_t{member} << 48 | number; }
  template <class Body>
  void for_pages(std::uint64_t first_block, std::size_t count, Body &&body);
  Held &hold(std::unique_lock<std::mutex> &lock, std::uint32_t member, std::uint64_t number);
  // Pages first .. end-1. Unreadable pages are full of unknown entries.
  std::vector<std::unique_ptr<Held>> read_pages(std::uint32_t member, std::uint64_t first, std::uint64_t end);
  void evict();
  struct LoadingEnd;

  Members &members_;
  const Geometry &geometry_;
  const Seed &seed_;
  std::size_t most_clean_;
  std::uint64_t group_pages_;         // aligned groups of so many pages are read together
  std::vector<std::uint64_t> drops_;  // of each member: a page read before the last drop belongs to the replaced member
  mutable std::mutex mutex_;
  std::condition_variable loaded_;
  std::unordered_map<Key, std::unique_ptr<Held>> held_;
  std::unordered_set<Key> loading_;
  std::list<Key> clean_;  // the least recently used first
  std::set<Key> dirty_;
};

}  // namespace tandem::volume
