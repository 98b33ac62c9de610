// SPDX-License-Identifier: Apache-2.0
#include "core/budget.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "base/text.hpp"

namespace tandem::core {

namespace {

constexpr std::uint64_t kUnlimited = UINT64_MAX;

// How long running threads may keep their units while others wait. A hand-over costs a wake-up (about 50 microseconds
// of an idle unit), so one per millisecond costs at most 5 percent. A waiting thread gets its turn after one
// millisecond for each thread in front of it.
constexpr std::int64_t kTurnNanoseconds = 1'000'000;

std::int64_t nanoseconds_now() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

using Needs = std::span<const Need>;

bool have_a_resource_in_common(Needs a, Needs b) noexcept {
  return std::ranges::any_of(a, [b](const Need &one) {
    return std::ranges::any_of(b, [&one](const Need &other) { return other.resource == one.resource; });
  });
}

void check_name(std::string_view name) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
  };
  if (name.empty() || name.size() > Budget::kMostNameBytes) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "the name of a resource has ", name.size(), " characters; 1 to ",
               Budget::kMostNameBytes, " are allowed");
  }
  const auto wrong = std::ranges::find_if_not(name, is_allowed);
  if (wrong != name.end()) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "character ", wrong - name.begin() + 1, " of the resource name \"", name,
               "\" is none of A-Z a-z 0-9 _ . -");
  }
}

void check_amount(std::string_view name, std::uint64_t amount) {
  if (amount == 0)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "amount 0 of resource \"", name, "\": at least 1 is needed");
}

// "cpu=5,my.disks=2". Throws Error (INVALID_ARGUMENT).
std::vector<std::pair<std::string_view, std::uint64_t>> parse(std::string_view text) {
  std::vector<std::pair<std::string_view, std::uint64_t>> list;
  for (std::optional<std::string_view> rest = text; rest && !text.empty();) {
    const std::string_view entry = base::cut(rest, ",");
    const std::size_t equals = entry.find('=');
    const std::string_view digits = equals == std::string_view::npos ? "" : entry.substr(equals + 1);
    std::uint64_t amount = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), amount);
    if (error == std::errc::result_out_of_range) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "resource amount \"", digits, "\" does not fit in 64 bits in \"", text,
                 "\"");
    }
    if (equals == 0 || digits.empty() || error != std::errc() || end != digits.data() + digits.size() ||
        (rest && rest->empty())) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "\"", text,
                 "\" is not a list of resource amounts such as \"cpu=5\" (at character ",
                 static_cast<std::size_t>(entry.data() - text.data()) + 1, ")");
    }
    const std::string_view name = entry.substr(0, equals);
    check_name(name);
    check_amount(name, amount);
    for (const auto &[before, its_amount] : list) {
      if (before == name) {
        base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "resource \"", name, "\" stands twice in \"", text, "\" (",
                   its_amount, " and ", amount, ")");
      }
    }
    list.emplace_back(name, amount);
  }
  return list;
}

// The amounts of a resource that the threads of one process hold.
struct Count {
  std::atomic<std::uint64_t> held{0};
  std::atomic<std::int64_t> last_look_nanoseconds{0};  // of keep(), for waiters
};

struct Resource {
  explicit Resource(std::string_view its_name) : name(its_name) {}
  const std::string name;
  std::atomic<std::uint64_t> amount{kUnlimited};  // changes only under Process::mutex
  base::ForkLocal<Count> count;
  std::atomic<Resource *> next{nullptr};
};

// On the stack of the waiting thread.
struct Waiter {
  const Needs needs;
  std::condition_variable wake{};
  bool is_over = false;            // its needs are held, or one of them is refused
  const Need *refused = nullptr;   // beyond the amount
  std::uint64_t whole_amount = 0;  // of the refused one
  unsigned overtaken = 0;
  Waiter *next = nullptr;
};

// The waiting threads of one process, in the order of their requests. A single need is taken without the lock as long
// as no thread waits. A thread that begins to wait increments waiter_count, and then looks at the held amounts once
// more. A thread that gives back lowers the held amount, and then looks at waiter_count. Both orders are sequentially
// consistent, so one of them sees the other.
struct Process {
  std::atomic<std::uint64_t> waiter_count{0};
  std::mutex mutex;
  Waiter *first = nullptr;
};

[[noreturn]] void refuse(const Resource &resource, std::uint64_t needed, std::uint64_t amount) {
  base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "a task needs ", needed, " of resource \"", resource.name,
             "\", but its whole amount is ", amount);
}

}  // namespace

struct Budget::State {
  // Grows at the end and never shrinks, without a lock, so that a fork always finds it complete.
  Resource built_in[kBuiltInCount]{Resource("cpu"), Resource("gpu"), Resource("pinned_mib"), Resource("opencl_mib"),
                                   Resource("cuda_mib")};
  base::ForkLocal<Process> process;

  State() {
    for (unsigned i = 1; i < kBuiltInCount; ++i) built_in[i - 1].next = &built_in[i];
  }
  ~State() {
    for (Resource *each = built_in[kBuiltInCount - 1].next; each != nullptr;) delete std::exchange(each, each->next);
  }

  Resource &at(unsigned resource) noexcept {
    Resource *found = built_in;
    while (resource-- != 0) found = found->next.load(std::memory_order_acquire);
    return *found;
  }

  unsigned index(std::string_view name) {
    check_name(name);
    std::unique_ptr<Resource> fresh;
    unsigned number = 0;
    for (Resource *each = built_in; each->name != name; ++number) {
      Resource *next = each->next.load(std::memory_order_acquire);
      if (next == nullptr) {
        check_own_name(name);
        if (fresh == nullptr) fresh = std::make_unique<Resource>(name);
        if (each->next.compare_exchange_strong(next, fresh.get(), std::memory_order_acq_rel)) next = fresh.release();
      }
      each = next;
    }
    return number;
  }

  // A typing error would limit nothing.
  void check_own_name(std::string_view name) const {
    if (name.find('.') != std::string_view::npos) return;
    std::string known;
    for (const Resource &each : built_in) known += each.name + ", ";
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "resource \"", name, "\" is unknown; known: ", known,
               "and names of your own with a dot, such as \"my.", name, "\"");
  }

  // This process' counters, made if necessary. Later steps allocate nothing.
  void make_counts(Needs needs) {
    for (const Need &need : needs) at(need.resource).count.get();
  }

  static bool take(Resource &resource, std::uint64_t amount, bool *was_too_late = nullptr) noexcept {
    const auto fits = [&](std::uint64_t held) {
      const std::uint64_t whole = resource.amount.load();
      return amount <= whole && held <= whole - amount;
    };
    std::atomic<std::uint64_t> &held = resource.count.get().held;
    std::uint64_t before = held.load();
    while (fits(before)) {
      if (!held.compare_exchange_weak(before, before + amount)) continue;
      if (fits(before)) return true;
      lower(resource, amount);  // a smaller amount is in force when set() returns
      if (was_too_late != nullptr) *was_too_late = true;
      return false;
    }
    return false;
  }

  // Needs taken before a fork are not counted here.
  static void lower(Resource &resource, std::uint64_t amount) noexcept {
    Count *count = resource.count.get_if_made();
    if (count == nullptr) return;
    std::uint64_t held = count->held.load();
    while (!count->held.compare_exchange_weak(held, held - std::min(held, amount))) {
    }
  }

  void lower_all(Needs needs) noexcept {
    for (const Need &need : needs) lower(at(need.resource), need.amount);
  }

  // Without the lock.
  bool take_at_once(Process &threads, Needs needs) noexcept {
    if (needs.size() != 1 || threads.waiter_count.load() != 0) return false;
    bool was_too_late = false;
    if (take(at(needs[0].resource), needs[0].amount, &was_too_late)) return true;
    if (was_too_late) serve(threads);
    return false;
  }

  // The others need the lock. A thread in take_at_once() may miss what take_all() takes and puts back; it then comes
  // here too.
  bool take_all(Needs needs) noexcept {
    for (std::size_t i = 0; i < needs.size(); ++i) {
      if (take(at(needs[i].resource), needs[i].amount)) continue;
      lower_all(needs.first(i));
      return false;
    }
    return true;
  }

  // Takes the needs in the place before `end` of the line (null: its end), if those in front allow that.
  bool start(Process &threads, Needs needs, const Waiter *end) noexcept {
    for (Waiter *each = threads.first; each != end; each = each->next)
      if (each->overtaken >= kMostOvertaken && have_a_resource_in_common(each->needs, needs)) return false;
    if (!take_all(needs)) return false;
    for (Waiter *each = threads.first; each != end; each = each->next)
      if (have_a_resource_in_common(each->needs, needs)) ++each->overtaken;
    return true;
  }

  static void leave(Process &threads, Waiter **place) noexcept {
    Waiter *waiter = *place;
    *place = waiter->next;
    threads.waiter_count.fetch_sub(1);
    waiter->is_over = true;
    waiter->wake.notify_one();  // under the lock: once it is released, the waiter may be gone
  }

  void grant(Process &threads) noexcept {
    for (Waiter **place = &threads.first; *place != nullptr;) {
      if (start(threads, (*place)->needs, *place)) {
        leave(threads, place);
      } else {
        place = &(*place)->next;
      }
    }
  }

  // To be called after something was given back.
  void serve(Process &threads) noexcept {
    if (threads.waiter_count.load() == 0) return;
    const std::lock_guard lock(threads.mutex);
    grant(threads);
  }

  const Need *beyond_amount(Needs needs) noexcept {
    const auto found =
        std::ranges::find_if(needs, [this](const Need &need) { return need.amount > at(need.resource).amount.load(); });
    return found != needs.end() ? &*found : nullptr;
  }

  void wait_for(Process &threads, Needs needs, bool in_front) {
    std::unique_lock lock(threads.mutex);
    if (const Need *need = beyond_amount(needs))
      refuse(at(need->resource), need->amount, at(need->resource).amount.load());
    Waiter self{needs};
    Waiter **place = &threads.first;
    while (!in_front && *place != nullptr) place = &(*place)->next;
    self.next = *place;
    *place = &self;
    threads.waiter_count.fetch_add(1);
    grant(threads);
    self.wake.wait(lock, [&self] { return self.is_over; });
    if (self.refused != nullptr) refuse(at(self.refused->resource), self.refused->amount, self.whole_amount);
  }

  void set(Needs amounts) {
    Process &threads = process.get();
    const std::lock_guard lock(threads.mutex);
    for (const Need &each : amounts) at(each.resource).amount.store(each.amount);
    for (Waiter **place = &threads.first; *place != nullptr;) {
      Waiter &waiter = **place;
      waiter.refused = beyond_amount(waiter.needs);
      if (waiter.refused == nullptr) {
        place = &waiter.next;
        continue;
      }
      waiter.whole_amount = at(waiter.refused->resource).amount.load();
      leave(threads, place);
    }
    grant(threads);
  }

  // Gives the needs back if there is too much of one of them. Only as many threads as necessary do so.
  bool give_back_too_much(Needs needs) noexcept {
    for (const Need &need : needs) {
      Resource &resource = at(need.resource);
      Count *count = resource.count.get_if_made();
      std::uint64_t held = count != nullptr ? count->held.load(std::memory_order_relaxed) : 0;
      while (held > resource.amount.load(std::memory_order_relaxed)) {
        if (!count->held.compare_exchange_weak(held, held - std::min(held, need.amount))) continue;
        for (const Need &other : needs)
          if (other.resource != need.resource) lower(at(other.resource), other.amount);
        return true;
      }
    }
    return false;
  }

  // Whether a thread waits only for resources in these needs. A thread that lacks something else too could not start.
  bool is_waited_for(const Process &threads, Needs needs) noexcept {
    for (const Waiter *waiter = threads.first; waiter != nullptr; waiter = waiter->next) {
      const auto is_of_no_use = [&](const Need &need) {
        Resource &resource = at(need.resource);
        const std::uint64_t whole = resource.amount.load(), held = resource.count.get().held.load();
        const bool lacks = held > whole || need.amount > whole - held;
        return lacks && !have_a_resource_in_common({&need, 1}, needs);
      };
      if (have_a_resource_in_common(waiter->needs, needs) && std::ranges::none_of(waiter->needs, is_of_no_use)) {
        return true;
      }
    }
    return false;
  }
};

Budget::Budget() : state_(std::make_unique<State>()) {}
Budget::~Budget() = default;

unsigned Budget::index(std::string_view name) { return state_->index(name); }
const std::string &Budget::name(unsigned resource) const noexcept { return state_->at(resource).name; }

std::vector<Need> Budget::needs_of(const std::string &text) {
  std::vector<Need> needs;
  for (const auto &[name, amount] : parse(text)) needs.push_back({state_->index(name), amount});
  return needs;
}

void Budget::set_all(const std::string &amounts) {
  const std::vector<Need> list = needs_of(amounts);
  if (list.empty()) return;
  state_->set(list);
  is_limited_.store(true, std::memory_order_relaxed);
}

void Budget::set(const std::string &name, std::uint64_t amount) {
  check_amount(name, amount);
  const Need one = {state_->index(name), amount};
  state_->set({&one, 1});
  is_limited_.store(true, std::memory_order_relaxed);
}

std::uint64_t Budget::amount(unsigned resource) const noexcept {
  return state_->at(resource).amount.load(std::memory_order_relaxed);
}

void Budget::check(std::span<const Need> needs) const {
  for (const Need &need : needs)
    if (const std::uint64_t whole = amount(need.resource); need.amount > whole)
      refuse(state_->at(need.resource), need.amount, whole);
}

void Budget::acquire(std::span<const Need> needs, bool in_front) {
  state_->make_counts(needs);
  Process &threads = state_->process.get();
  if (!state_->take_at_once(threads, needs)) state_->wait_for(threads, needs, in_front);
}

bool Budget::try_acquire(std::span<const Need> needs) noexcept {
  try {
    state_->make_counts(needs);
    Process &threads = state_->process.get();
    if (state_->take_at_once(threads, needs)) return true;
    const std::lock_guard lock(threads.mutex);
    return state_->start(threads, needs, nullptr);
  } catch (const std::bad_alloc &) {
    return false;
  }
}

void Budget::release(std::span<const Need> needs) noexcept {
  state_->lower_all(needs);
  if (Process *threads = state_->process.get_if_made()) state_->serve(*threads);
}

std::uint64_t Budget::waiting_count() noexcept {
  const Process *threads = state_->process.get_if_made();
  return threads != nullptr ? threads->waiter_count.load() : 0;
}

bool Budget::keep(std::span<const Need> needs) noexcept {
  Process *threads = state_->process.get_if_made();
  if (threads == nullptr) return false;
  if (state_->give_back_too_much(needs)) {
    state_->serve(*threads);  // the amount may have been raised again in between
    return false;
  }
  if (needs.empty() || threads->waiter_count.load(std::memory_order_relaxed) == 0) return true;
  // Tasks with the same last need share a clock. Tasks that no thread waits for do not use up the turns of the others.
  Count *count = state_->at(needs.back().resource).count.get_if_made();
  if (count == nullptr) return false;
  const std::int64_t now = nanoseconds_now();
  std::int64_t last_look = count->last_look_nanoseconds.load(std::memory_order_relaxed);
  if (now - last_look < kTurnNanoseconds || !count->last_look_nanoseconds.compare_exchange_strong(last_look, now))
    return true;
  const std::lock_guard lock(threads->mutex);
  if (!state_->is_waited_for(*threads, needs)) return true;
  state_->lower_all(needs);
  state_->grant(*threads);
  return false;
}

}  // namespace tandem::core
