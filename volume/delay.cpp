// SPDX-License-Identifier: Apache-2.0
// Windows of delayed parity.

#include <algorithm>

#include "base/rounding.hpp"
#include "volume/engine.hpp"

namespace tandem::volume {
namespace {

constexpr std::uint64_t kMostBytesAtOnce = 128 << 20;  // of stripes in memory while a window ends

}  // namespace

bool Volume::is_delayed(std::uint64_t stripe) const {
  const std::shared_lock lock(windows_mutex_);
  return std::ranges::any_of(windows_, [&](const OpenWindow &each) { return each.is_delayed(stripe); });
}

bool Volume::is_in_window(std::uint64_t stripe) const {
  const std::shared_lock lock(windows_mutex_);
  return std::ranges::any_of(windows_, [&](const OpenWindow &each) { return each.holds(stripe); });
}

// The first change of a stripe in a window makes its parity wrong. Before that its blocks must be right: no parity
// would tell old ones.
bool Volume::delays(const View &view) {
  if (is_delayed(view.stripe)) return true;
  if (!is_in_window(view.stripe) || members_->count_of(TANDEM_VOLUME_MEMBER_CURRENT) != members_->count() ||
      members_->old_count() != 0 || std::ranges::find(view.contradicts, true) != view.contradicts.end())
    return false;
  for (std::size_t i = 0; i < view.entries.size(); ++i)  // an unreadable page of a table
    if (view.entries[i].generation == kUnknown && !view.stale[i]) return false;
  const std::unique_lock lock(windows_mutex_);
  for (OpenWindow &each : windows_)
    if (each.holds(view.stripe) && !each.ending) {
      each.set_delayed(view.stripe, true);
      return true;
    }
  return false;
}

std::vector<Window> Volume::window_list() const {
  const std::shared_lock lock(windows_mutex_);
  std::vector<Window> found;
  for (const OpenWindow &each : windows_) found.push_back(each.window);
  return found;
}

std::vector<tandem_volume_window> Volume::windows() const {
  std::vector<tandem_volume_window> found;
  for (const Window &each : window_list()) found.push_back(bytes_of(each));
  return found;
}

Window Volume::full_stripes(std::uint64_t offset, std::uint64_t bytes) const {
  check_inside(offset, bytes);
  check_writable();
  const std::uint64_t stripe_bytes = geometry().stripe_bytes();
  const std::uint64_t first = base::divide_up(offset, stripe_bytes), end = (offset + bytes) / stripe_bytes;
  if (first >= end)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "no full stripe of ", stripe_bytes, " bytes lies in the range of ", bytes,
         " bytes at ", offset);
  return {first, end - first};
}

void Volume::check_can_delay() const {
  check_enough_members();
  for (std::uint32_t i = 0; i < members_->count(); ++i)
    if (members_->state(i) != TANDEM_VOLUME_MEMBER_CURRENT)
      fail(TANDEM_ERROR_UNAVAILABLE, "member ", i,
           " is not current: its missing blocks could not be computed any more");
  if (!old_members().empty())
    fail(TANDEM_ERROR_UNAVAILABLE, "a member is an old copy: ", old_members(), "; scrub with repair first");
}

void Volume::check_no_window(const Window &range, bool is_bounded) const {
  const auto check = [&](const Window &other, const char *what) {
    if (range.first_stripe < other.end() && other.first_stripe < range.end())
      fail(TANDEM_ERROR_INVALID_ARGUMENT, "the range overlaps ", what, " window, bytes ", bytes_of(other).begin_bytes,
           " to ", bytes_of(other).end_bytes - 1);
  };
  const std::shared_lock lock(windows_mutex_);
  if (bounded_ && !is_bounded) check(bounded_->range, "the bounded");
  for (const OpenWindow &each : windows_) check(each.window, "an open");
}

tandem_volume_window Volume::delay_begin(std::uint64_t offset, std::uint64_t bytes) {
  const Window window = full_stripes(offset, bytes);
  begin_window(window, false);
  return bytes_of(window);
}

void Volume::begin_window(const Window &window, bool is_bounded) {
  // In the window no parity would tell old blocks from right ones.
  for (std::uint64_t stripe = window.first_stripe; stripe < window.end(); ++stripe)
    if (!look_at_rows(stripe) || !old_members().empty())
      fail(TANDEM_ERROR_UNAVAILABLE, "blocks of stripe ", stripe, " are old or contradict each other",
           old_members().empty() ? "" : ", or a member is an old copy: " + old_members(), "; scrub with repair first");
  const Gate::Exclusive exclusive(*gate_);
  check_no_window(window, is_bounded);
  if (window_list().size() >= TANDEM_VOLUME_MAX_WINDOWS)
    fail(TANDEM_ERROR_UNAVAILABLE, TANDEM_VOLUME_MAX_WINDOWS, " windows are open, more are not possible");
  // No parity of these stripes may be under way: it would overwrite the parity that the end of the window computes.
  check_enough_members();
  commit_exclusively();
  check_can_delay();
  const auto begins_here = [&](const OpenWindow &each) { return each.window == window; };
  {
    const std::unique_lock lock(windows_mutex_);
    const auto at = std::ranges::find_if(
        windows_, [&](const OpenWindow &each) { return each.window.first_stripe > window.first_stripe; });
    windows_.insert(at, {window, false, is_bounded});
  }
  try {
    write_superblocks();
    check_can_delay();  // one may have failed just now
  } catch (...) {       // the window has no writes yet
    {
      const std::unique_lock lock(windows_mutex_);
      windows_.erase(std::ranges::find_if(windows_, begins_here));
    }
    if (members_->usable_count() >= geometry().k) write_superblocks();
    throw;
  }
}

void Volume::delay_end(const tandem_volume_window &given, bool accept_loss) {
  check_writable();
  const auto is_bounded = [&] {
    const std::shared_lock lock(windows_mutex_);
    return bounded_ && bytes_of(bounded_->range).begin_bytes == given.begin_bytes &&
           bytes_of(bounded_->range).end_bytes == given.end_bytes;
  };
  if (is_bounded()) {
    const std::lock_guard turn(moving_mutex_);
    if (is_bounded()) {
      end_bounded(accept_loss);
      return flush();  // also if no window was open
    }
  }
  end_window(given, false, accept_loss);
}

void Volume::end_window(const tandem_volume_window &given, bool is_bounded, bool accept_loss) {
  const auto find = [&] {
    return std::ranges::find_if(windows_, [&](const OpenWindow &each) {
      return bytes_of(each.window).begin_bytes == given.begin_bytes &&
             bytes_of(each.window).end_bytes == given.end_bytes;
    });
  };
  if (const std::string old = old_members(); !old.empty() && !accept_loss)
    fail(TANDEM_ERROR_NOT_RECOVERABLE, "member ", old,
         " holds old blocks elsewhere, so its data in the window may be old: without the loss accepted it stays open");
  Window window;
  {
    const std::unique_lock lock(windows_mutex_);
    const auto found = find();
    if (found == windows_.end())
      fail(TANDEM_ERROR_INVALID_ARGUMENT, "no window is open from byte ", given.begin_bytes, " to ", given.end_bytes);
    if (found->is_bounded && !is_bounded)
      fail(TANDEM_ERROR_INVALID_ARGUMENT, "the window from byte ", given.begin_bytes,
           " belongs to a bounded window, which ends as a whole: bytes ", bytes_of(bounded_->range).begin_bytes, " to ",
           bytes_of(bounded_->range).end_bytes);
    if (found->ending)
      fail(TANDEM_ERROR_UNAVAILABLE, "the window from byte ", given.begin_bytes, " is being ended by another call");
    found->ending = true;
    window = found->window;
  }
  std::atomic<std::uint64_t> next = window.first_stripe;
  try {
    if (!accept_loss && session_would_make_stale()) check_windows();
    begin_session();
    // Several stripes at once: their parity lies on different members.
    const std::uint64_t row_bytes = geometry().stripe_bytes() / geometry().k * members_->count();
    const std::uint64_t at_once = std::clamp<std::uint64_t>(kMostBytesAtOnce / row_bytes, 1, members_->count());
    std::atomic<bool> failed{false};
    crew_->run(std::min(at_once, window.end() - next), [&](std::size_t) {
      try {
        for (std::uint64_t stripe; !failed && (stripe = next++) < window.end();)
          if (is_delayed(stripe)) end_stripe(stripe, accept_loss);
      } catch (...) {
        failed = true;
        throw;
      }
    });
    const Gate::Exclusive exclusive(*gate_);
    commit_exclusively();
    {
      const std::unique_lock lock(windows_mutex_);
      windows_.erase(find());
    }
    write_superblocks();
  } catch (...) {
    const std::unique_lock lock(windows_mutex_);
    if (const auto found = find(); found != windows_.end()) found->ending = false;
    throw;
  }
}

// Fails if data of a window cannot be read. A session without its member would make that member stale, and its data
// would be lost for ever.
void Volume::check_windows() {
  std::vector<Part> data;
  for (std::uint32_t column = 0; column < geometry().k; ++column) data.push_back({column, 0, geometry().rows()});
  for (const Window &each : window_list())
    for (std::uint64_t stripe = each.first_stripe; stripe < each.end(); ++stripe) {
      const std::shared_lock lock(lock_of(stripe));
      View view(*spares_, geometry(), stripe, 0, geometry().rows());
      load_entries(view);
      fetch(view, data);
      require(view, data);
    }
}

// No reader uses parity in the window until the window is closed, so it is written in place.
void Volume::end_stripe(std::uint64_t stripe, bool accept_loss) {
  const std::uint32_t k = geometry().k, m = geometry().m, rows = geometry().rows();
  // Blocks that become zeros become holes: of parity, or of data with accepted loss.
  const std::uint64_t most_holes = std::uint64_t{rows} * (accept_loss ? k + m : m);
  const Change changing(*this, most_holes + geometry().most_pages(k + m, rows));
  const std::unique_lock lock(lock_of(stripe));
  View view(*spares_, geometry(), stripe, 0, rows);
  load_entries(view);
  std::vector<Part> data, lost;
  for (std::uint32_t column = 0; column < k; ++column) data.push_back({column, 0, rows});
  fetch(view, data);
  if (!accept_loss) require(view, data);
  for (std::uint32_t column = 0; column < k; ++column)
    for (std::uint32_t row = 0; row < rows; ++row) {
      if (view.have[view.at(column, row)] == Have::good) continue;
      std::memset(view.block(column, row), 0, kBlockBytes);
      lost.push_back({column, row, row + 1});
    }
  std::vector<const void *> from(view.columns.begin(), view.columns.begin() + k);
  std::vector<void *> to(m);
  for (std::uint32_t i = 0; i < m; ++i)
    to[i] = members_->is_usable(member_of(view, k + i)) ? view.columns[k + i] : nullptr;
  if (std::ranges::any_of(to, [](const void *each) { return each != nullptr; }))
    check(tandem_encode(settings_.context, codec_.get(), from.data(), to.data(), rows * kBlockBytes));

  std::vector<std::uint64_t> next = view.generations;
  for (const Part &part : lost) next[view.at(part.column, part.begin)] = sequence_ | kZeros;
  change_generations(view, next);

  whole([&] {
    for (const Part &part : lost) clear(view, part);
    for (std::uint32_t row = 0; row < rows; ++row)  // no reader believes the old parity
      for (std::uint32_t i = 0; i < m && !is_zeros(view.generations[view.at(k, row)]); ++i)
        view.entries[view.at(k + i, row)] = kLostEntry;
    std::vector<Stored> stored;
    store_or_clear_parity(view, stored);
    store(view, stored);
  });
  check_enough_members();
  const std::unique_lock windows_lock(windows_mutex_);
  for (OpenWindow &each : windows_)
    if (each.is_delayed(stripe)) each.set_delayed(stripe, false);
}

}  // namespace tandem::volume
