// SPDX-License-Identifier: Apache-2.0
// Windows of delayed parity that begin where writes are, and end by themselves. They are ordinary windows: all of them
// are in the superblocks, and together they are never larger than the bound. So no crash and no loss can cost more.

#include <algorithm>
#include <utility>

#include "base/rounding.hpp"
#include "base/signals.hpp"
#include "volume/engine.hpp"

namespace tandem::volume {
namespace {

constexpr std::uint64_t kMostWindows = 8;      // that a bound is divided into
constexpr std::chrono::seconds kLeastTime{1};  // between two moves, because each costs two writings of superblocks

}  // namespace

tandem_volume_window Volume::delay_bounded(std::uint64_t offset, std::uint64_t bytes, std::uint64_t bound_bytes,
                                           std::chrono::milliseconds bound_time) {
  const Window range = full_stripes(offset, bytes);
  const std::uint64_t most = std::min(bound_bytes / geometry().stripe_bytes(), range.stripe_count);
  if (most == 0)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "a bound of ", bound_bytes, " bytes does not hold a full stripe of ",
         geometry().stripe_bytes());
  const std::lock_guard turn(moving_mutex_);
  const Gate::Exclusive exclusive(*gate_);  // no other window begins meanwhile
  check_can_delay();
  check_no_window(range, false);
  const std::unique_lock lock(windows_mutex_);
  if (bounded_)
    fail(TANDEM_ERROR_UNAVAILABLE, "there is one bounded window at most, and one is open: bytes ",
         bytes_of(bounded_->range).begin_bytes, " to ", bytes_of(bounded_->range).end_bytes - 1);
  if (settings_.moves_windows && !mover_.joinable()) {
    const base::SignalsBlocked blocked;
    mover_ = std::thread([this] { keep_moving_windows(); });
  }
  bounded_ = {range, most, base::divide_up(most, kMostWindows), bound_time};
  asked_for_ = kNoStripe;
  moving_changed_.notify_all();
  return bytes_of(range);
}

// A write found no window in the bounded range, so it has updated its parity. The next one there shall find a window.
void Volume::ask_for_window(std::uint64_t stripe) {
  const std::shared_lock lock(windows_mutex_);
  if (!bounded_ || stripe < bounded_->range.first_stripe || stripe >= bounded_->range.end()) return;
  if (asked_for_.exchange(stripe) == kNoStripe) moving_changed_.notify_all();
}

bool Volume::move_windows() {
  const std::lock_guard turn(moving_mutex_);
  Bounded bounded;
  {
    const std::shared_lock lock(windows_mutex_);
    if (!bounded_) return false;
    bounded = *bounded_;
  }
  std::string why;
  try {
    check_can_delay();
    return move_windows_of(bounded);
  } catch (const std::exception &error) {
    why = error.what();
  }
  // Nothing is left unprotected that can have its parity.
  try {
    end_bounded(false);
  } catch (const std::exception &error) {
    why += text("; a part of it stays open: ", error.what());
  }
  settings_.note(text("the bounded window of delayed parity, bytes ", bytes_of(bounded.range).begin_bytes, " to ",
                      bytes_of(bounded.range).end_bytes - 1, ", was ended: ", why));
  return true;
}

bool Volume::move_windows_of(const Bounded &bounded) {
  bool ended = false;
  const auto now = std::chrono::steady_clock::now();
  for (;;) {
    const std::uint64_t asked = asked_for_;
    Window wanted;  // without stripes: none
    const OpenWindow *oldest = nullptr;
    tandem_volume_window ends{};
    {
      const std::shared_lock lock(windows_mutex_);
      if (asked != kNoStripe) {
        const std::uint64_t first = asked - (asked - bounded.range.first_stripe) % bounded.window_stripes;
        wanted = {first, std::min(bounded.window_stripes, bounded.range.end() - first)};
      }
      std::uint64_t stripes = wanted.stripe_count;
      for (const OpenWindow &each : windows_) {
        if (!each.is_bounded) continue;
        if (each.window == wanted) wanted.stripe_count = 0;
        stripes += each.window.stripe_count;
        if (oldest == nullptr || each.begun_at < oldest->begun_at) oldest = &each;
      }
      const bool is_full = windows_.size() == TANDEM_VOLUME_MAX_WINDOWS;
      if (is_full && oldest == nullptr) wanted.stripe_count = 0;  // ordinary ones have all places
      const bool has_no_room = wanted.stripe_count != 0 && (is_full || stripes > bounded.most_stripes);
      if (oldest != nullptr && (has_no_room || now - oldest->begun_at >= bounded.most_time))
        ends = bytes_of(oldest->window);
    }
    if (ends.end_bytes != 0) {
      end_window(ends, true, false);
      ended = true;
      continue;
    }
    if (wanted.stripe_count != 0) begin_window(wanted, true);
    std::uint64_t answered = asked;
    asked_for_.compare_exchange_strong(answered, kNoStripe);
    return ended;
  }
}

// Those that cannot be ended stay open, and are ordinary ones from here on.
void Volume::end_bounded(bool accept_loss) {
  std::vector<Window> open;
  {
    const std::unique_lock lock(windows_mutex_);
    bounded_.reset();
    asked_for_ = kNoStripe;
    for (OpenWindow &each : windows_)
      if (std::exchange(each.is_bounded, false)) open.push_back(each.window);
  }
  std::exception_ptr failed;
  for (const Window &each : open) {
    try {
      end_window(bytes_of(each), false, accept_loss);
    } catch (...) {
      if (!failed) failed = std::current_exception();
    }
  }
  if (failed) std::rethrow_exception(failed);
}

void Volume::keep_moving_windows() {
  std::unique_lock lock(windows_mutex_);
  const auto shall_stop = [this] { return moving_stops_; };
  while (!moving_stops_) {
    moving_changed_.wait_for(lock, kLeastTime, [&] { return moving_stops_ || (bounded_ && asked_for_ != kNoStripe); });
    if (moving_stops_) return;
    lock.unlock();
    bool ended = false;
    try {
      ended = move_windows();
    } catch (const std::exception &) {  // not even memory for the note
    }
    lock.lock();
    if (ended) moving_changed_.wait_for(lock, kLeastTime, shall_stop);
  }
}

void Volume::stop_moving_windows() {
  {
    const std::unique_lock lock(windows_mutex_);
    moving_stops_ = true;
  }
  moving_changed_.notify_all();
  if (mover_.joinable()) mover_.join();
}

}  // namespace tandem::volume
