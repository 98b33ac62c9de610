// SPDX-License-Identifier: Apache-2.0
#include "volume/table.hpp"

#include <algorithm>
#include <cstring>

namespace tandem::volume {
namespace {

constexpr std::uint64_t kMostGroupPages = 16;

}  // namespace

Table::Table(Members &members, const Geometry &geometry, const Seed &seed, std::uint64_t cache_bytes)
    : members_(members),
      geometry_(geometry),
      seed_(seed),
      most_clean_(std::max<std::size_t>(cache_bytes / sizeof(Held), 2 * geometry.member_count())),
      group_pages_(std::clamp<std::uint64_t>(most_clean_ / geometry.member_count() / 4, 1, kMostGroupPages)),
      drops_(geometry.member_count()) {}

// body(page number, first entry, entries, position in the caller's array)
template <class Body>
void Table::for_pages(std::uint64_t first_block, std::size_t count, Body &&body) {
  for (std::size_t done = 0; done < count;) {
    const std::uint64_t number = (first_block + done) / kEntriesPerPage;
    const std::size_t entry = (first_block + done) % kEntriesPerPage;
    const std::size_t here = std::min<std::size_t>(count - done, kEntriesPerPage - entry);
    body(number, entry, here, done);
    done += here;
  }
}

// Wakes the threads that wait for pages, also after an exception.
struct Table::LoadingEnd {
  Table &table;
  std::unique_lock<std::mutex> &lock;
  std::uint32_t member;
  std::uint64_t first, end;
  ~LoadingEnd() {
    if (!lock.owns_lock()) lock.lock();
    for (std::uint64_t number = first; number < end; ++number) table.loading_.erase(key(member, number));
    table.loaded_.notify_all();
  }
};

Table::Held &Table::hold(std::unique_lock<std::mutex> &lock, std::uint32_t member, std::uint64_t number) {
  const Key wanted = key(member, number);
  for (;;) {
    if (const auto found = held_.find(wanted); found != held_.end()) {
      if (!found->second->dirty) clean_.splice(clean_.end(), clean_, found->second->place);
      return *found->second;
    }
    // Only one thread reads a page. Otherwise another one could change and write it meanwhile.
    if (!loading_.contains(wanted)) break;
    loaded_.wait(lock);
  }
  // Reads its neighbours too: one I/O for some pages costs about as much as for one.
  const std::uint64_t group = number - number % group_pages_,
                      group_end = std::min(group + group_pages_, geometry_.page_count());
  const auto is_free = [&](std::uint64_t page) {
    return !held_.contains(key(member, page)) && !loading_.contains(key(member, page));
  };
  std::uint64_t first = number, end = number + 1;
  while (first > group && is_free(first - 1)) --first;
  while (end < group_end && is_free(end)) ++end;
  const LoadingEnd loading{*this, lock, member, first, end};
  for (std::uint64_t page = first; page < end; ++page) loading_.insert(key(member, page));

  std::vector<std::unique_ptr<Held>> read;
  for (;;) {
    const std::uint64_t drops = drops_[member];
    lock.unlock();
    read = read_pages(member, first, end);
    lock.lock();
    if (drops == drops_[member]) break;  // else they are pages of a replaced member
  }
  const auto keep = [&](std::uint64_t page) {
    const auto place = clean_.insert(clean_.end(), key(member, page));
    try {
      Held &held = *(held_[*place] = std::move(read[page - first]));
      held.place = place;
      return &held;
    } catch (...) {
      clean_.erase(place);
      throw;
    }
  };
  for (std::uint64_t page = first; page < end; ++page)
    if (page != number) keep(page);
  return *keep(number);  // the last to be evicted
}

std::vector<std::unique_ptr<Table::Held>> Table::read_pages(std::uint32_t member, std::uint64_t first,
                                                            std::uint64_t end) {
  const std::size_t count = end - first;
  Buffer together(count * kBlockBytes);
  // A bad sector costs its own page, but not its neighbours.
  const bool all =
      members_.read(member, IoKind::checksum, geometry_.page_offset(first), together.data(), count * kBlockBytes);
  std::vector<std::unique_ptr<Held>> pages;
  for (std::size_t i = 0; i < count; ++i) {
    Page &page = pages.emplace_back(std::make_unique<Held>())->page;
    const bool is_read = all || (count > 1 && members_.read(member, IoKind::checksum, geometry_.page_offset(first + i),
                                                            together.data() + i * kBlockBytes, kBlockBytes));
    if (!is_read) {
      page = page_of(kLostEntry, 0);
      continue;
    }
    std::memcpy(&page, together.data() + i * kBlockBytes, kBlockBytes);
    if (!check_page(seed_, member, first + i, page)) members_.count_bad_block(member);
  }
  return pages;
}

void Table::evict() {
  while (clean_.size() > most_clean_) {
    held_.erase(clean_.front());
    clean_.pop_front();
  }
}

void Table::get(std::uint32_t member, std::uint64_t first_block, std::size_t count, Entry *out) {
  if (!members_.is_usable(member)) {
    std::fill_n(out, count, kLostEntry);
    return;
  }
  std::unique_lock lock(mutex_);
  for_pages(first_block, count, [&](std::uint64_t number, std::size_t entry, std::size_t here, std::size_t done) {
    std::copy_n(hold(lock, member, number).page.entries + entry, here, out + done);
  });
  evict();
}

bool Table::try_get(std::uint32_t member, std::uint64_t first_block, std::size_t count, Entry *out) {
  bool all = true;
  const std::lock_guard lock(mutex_);
  if (!members_.is_usable(member)) {
    std::fill_n(out, count, kLostEntry);
    return true;
  }
  for_pages(first_block, count, [&](std::uint64_t number, std::size_t entry, std::size_t here, std::size_t done) {
    const auto found = held_.find(key(member, number));
    if (found == held_.end())
      all = false;
    else
      std::copy_n(found->second->page.entries + entry, here, out + done);
  });
  return all;
}

void Table::set(std::uint32_t member, std::uint64_t first_block, std::size_t count, const Entry *in) {
  std::unique_lock lock(mutex_);
  for_pages(first_block, count, [&](std::uint64_t number, std::size_t entry, std::size_t here, std::size_t done) {
    Held &held = hold(lock, member, number);
    std::copy_n(in + done, here, held.page.entries + entry);
    if (held.dirty) return;
    held.dirty = true;
    clean_.erase(held.place);
    dirty_.insert(key(member, number));
  });
  evict();
}

std::vector<Table::Dirty> Table::dirty() {
  const std::lock_guard lock(mutex_);
  std::vector<Dirty> found;
  for (const Key at : dirty_)
    found.push_back({static_cast<std::uint32_t>(at >> 48), at & ((Key{1} << 48) - 1), &held_.at(at)->page});
  return found;
}

std::size_t Table::dirty_count() const {
  const std::lock_guard lock(mutex_);
  return dirty_.size();
}

void Table::mark_clean() {
  const std::lock_guard lock(mutex_);
  for (const Key at : dirty_) {
    Held &held = *held_.at(at);
    held.dirty = false;
    held.place = clean_.insert(clean_.end(), at);
  }
  dirty_.clear();
  evict();
}

void Table::overlay(std::uint32_t member, std::uint64_t number, const Page &page) {
  const std::lock_guard lock(mutex_);
  auto held = std::make_unique<Held>();
  held->page = page;
  held->dirty = true;
  dirty_.insert(key(member, number));
  held_[key(member, number)] = std::move(held);
}

void Table::drop(std::uint32_t member) {
  const std::lock_guard lock(mutex_);
  ++drops_[member];
  for (auto each = held_.begin(); each != held_.end();) {
    if (each->first >> 48 != member) {
      ++each;
      continue;
    }
    if (each->second->dirty)
      dirty_.erase(each->first);
    else
      clean_.erase(each->second->place);
    each = held_.erase(each);
  }
}

}  // namespace tandem::volume
