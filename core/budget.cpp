#include "core/budget.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string_view>

#include "base/error.hpp"
#include "base/fork.hpp"

namespace tandem::core {

namespace {

constexpr std::array<const char *, kResourceCount> kNames = {"cpu", "gpu", "pinned_mib", "opencl_mib", "cuda_mib"};

// How long running threads may keep their units while others wait. A hand-over costs a wake-up (about 50 microseconds
// of an idle unit), so one per millisecond is at most 5 percent, and a waiting thread gets its turn after one
// millisecond per thread in front of it.
constexpr std::int64_t kTurnNanoseconds = 1'000'000;

std::int64_t nanoseconds_now() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Lives on the stack of the thread that waits.
struct Waiter {
  std::condition_variable wake;
  bool granted = false;
  Waiter *behind = nullptr;
};

Resource checked(std::string_view name, std::uint64_t amount) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
               fmt::format("unknown resource \"{}\"; this version knows \"{}\"", name, fmt::join(kNames, "\", \"")));
  }
  if (amount == 0) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("amount 0 of resource \"{}\": at least 1 is needed", name));
  }
  return static_cast<Resource>(found - kNames.begin());
}

}  // namespace

const char *resource_name(Resource resource) noexcept { return kNames[static_cast<std::size_t>(resource)]; }

struct Budget::State {
  // What the threads of one process hold. Units are taken and given back without the lock as long as nobody waits. A
  // thread that goes to wait counts itself in waiter_count and then looks at `held` once more; one that gives back
  // lowers `held` and then looks at waiter_count. Both orders are sequentially consistent, so one of them sees the
  // other.
  struct Units {
    std::atomic<std::uint64_t> held{0};
    std::atomic<std::uint64_t> waiter_count{0};
    std::atomic<std::int64_t> last_turn_nanoseconds{0};
    std::mutex mutex;
    Waiter *first = nullptr;
    Waiter *last = nullptr;
  };

  std::array<std::atomic<std::uint64_t>, kResourceCount> amounts;
  std::atomic<std::uint64_t> &cpu_amount = amounts[0];  // changes only under Units::mutex
  base::ForkLocal<Units> cpu_units;

  State() {
    for (auto &each : amounts) each.store(UINT64_MAX);
  }

  void set(Resource resource, std::uint64_t amount) {
    if (resource == Resource::cpu) return set_cpu(amount);
    amounts[static_cast<std::size_t>(resource)].store(amount);
  }

  bool take(Units &units) noexcept {
    std::uint64_t held = units.held.load();
    while (held < cpu_amount.load()) {
      if (!units.held.compare_exchange_weak(held, held + 1)) continue;
      if (held < cpu_amount.load()) return true;
      give_back(units);  // lowered in between: the new amount holds from the moment that set() returns
      return false;
    }
    return false;
  }

  void give_back(Units &units) noexcept {
    // A unit taken before a fork is not counted here.
    std::uint64_t held = units.held.load();
    while (held != 0 && !units.held.compare_exchange_weak(held, held - 1)) {
    }
    serve_waiters(units);
  }

  void serve_waiters(Units &units) noexcept {
    if (units.waiter_count.load() == 0) return;
    const std::lock_guard lock(units.mutex);
    grant(units);
  }

  // With the lock held: the amount cannot change, so take() does not come to its give_back().
  void grant(Units &units) noexcept {
    while (units.first != nullptr && take(units)) {
      Waiter *waiter = units.first;
      units.first = waiter->behind;
      if (units.first == nullptr) units.last = nullptr;
      units.waiter_count.fetch_sub(1);
      waiter->granted = true;
      waiter->wake.notify_one();  // under the lock: the waiter is gone as soon as it can have it
    }
  }

  void wait_for_unit(Units &units) {
    std::unique_lock lock(units.mutex);
    Waiter self;
    (units.last != nullptr ? units.last->behind : units.first) = &self;
    units.last = &self;
    units.waiter_count.fetch_add(1);
    grant(units);
    self.wake.wait(lock, [&] { return self.granted; });
  }

  void set_cpu(std::uint64_t amount) {
    Units &units = cpu_units.get();
    const std::lock_guard lock(units.mutex);
    cpu_amount.store(amount);
    grant(units);
  }
};

Budget::Budget() : state_(std::make_unique<State>()) { make_ready(); }
Budget::~Budget() = default;

void Budget::set_all(const std::string &amounts) {
  std::array<std::optional<std::uint64_t>, kResourceCount> given;
  std::string_view rest = amounts;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string_view entry = rest.substr(0, comma);
    const std::size_t equals = entry.find('=');
    const std::string_view digits = equals == std::string_view::npos ? "" : entry.substr(equals + 1);
    std::uint64_t amount = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), amount);
    if (error == std::errc::result_out_of_range) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
                 fmt::format("resource amount \"{}\" does not fit in 64 bits in \"{}\"", digits, amounts));
    }
    if (equals == 0 || digits.empty() || error != std::errc() || end != digits.data() + digits.size() ||
        comma == rest.size() - 1) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
                 fmt::format("\"{}\" is not a list of resource amounts such as \"cpu=5\" (at character {})", amounts,
                             static_cast<std::size_t>(entry.data() - amounts.data()) + 1));
    }
    const std::string_view name = entry.substr(0, equals);
    std::optional<std::uint64_t> &of_name = given[static_cast<std::size_t>(checked(name, amount))];
    if (of_name.has_value()) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
                 fmt::format("resource \"{}\" stands twice in \"{}\" ({} and {})", name, amounts, *of_name, amount));
    }
    of_name = amount;
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  for (std::size_t i = 0; i < given.size(); ++i)
    if (given[i].has_value()) state_->set(static_cast<Resource>(i), *given[i]);
}

void Budget::set(const std::string &name, std::uint64_t amount) { state_->set(checked(name, amount), amount); }

std::uint64_t Budget::amount(Resource resource) const noexcept {
  return state_->amounts[static_cast<std::size_t>(resource)].load(std::memory_order_relaxed);
}

void Budget::make_ready() { state_->cpu_units.get(); }

void Budget::acquire_cpu() {
  State::Units &units = state_->cpu_units.get();
  if (units.waiter_count.load() == 0 && state_->take(units)) return;
  state_->wait_for_unit(units);
}

bool Budget::try_acquire_cpu() noexcept {
  try {
    State::Units &units = state_->cpu_units.get();
    return units.waiter_count.load() == 0 && state_->take(units);
  } catch (const std::bad_alloc &) {
    return false;
  }
}

void Budget::release_cpu() noexcept {
  State::Units *units = state_->cpu_units.get_if_made();
  if (units != nullptr) state_->give_back(*units);
}

bool Budget::keep_cpu() noexcept {
  State::Units *units = state_->cpu_units.get_if_made();
  if (units == nullptr) return false;
  std::uint64_t held = units->held.load(std::memory_order_relaxed);
  while (held > state_->cpu_amount.load(std::memory_order_relaxed)) {
    if (!units->held.compare_exchange_weak(held, held - 1)) continue;
    state_->serve_waiters(*units);  // the amount may have been raised again in between
    return false;
  }
  if (units->waiter_count.load(std::memory_order_relaxed) == 0) return true;
  const std::int64_t now = nanoseconds_now();
  std::int64_t last_turn = units->last_turn_nanoseconds.load(std::memory_order_relaxed);
  if (now - last_turn < kTurnNanoseconds || !units->last_turn_nanoseconds.compare_exchange_strong(last_turn, now)) {
    return true;
  }
  state_->give_back(*units);
  return false;
}

}  // namespace tandem::core
