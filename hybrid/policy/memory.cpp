// SPDX-License-Identifier: Apache-2.0
#include "hybrid/policy/memory.hpp"

#include <algorithm>
#include <cmath>

#include "base/text.hpp"

namespace tandem::hybrid {
namespace {

constexpr double kSlow = 2;                // times slower than expected
constexpr double kWorthRemembering = 0.1;  // difference from a stored value, as a part of it, that is worth storing

bool is_far(double a, double b) { return std::abs(a - b) > kWorthRemembering * std::max(a, b); }

core::TunedOperation operation_of(core::Mode mode) {
  return mode == core::Mode::assign    ? core::TunedOperation::encode
         : mode == core::Mode::compare ? core::TunedOperation::verify
                                       : core::TunedOperation::update;
}

}  // namespace

std::string text_of(const WorkKind &kind) { return base::text(name_of(kind.mode), " ", kind.rows, "x", kind.columns); }

Way Memory::way(std::size_t member, const WorkKind &kind) const {
  const auto found = speeds_.find({member, kind});
  return found != speeds_.end() ? Way{found->second.together, found->second.alone} : Way{};
}

void Memory::keep(std::size_t member, const WorkKind &kind, const Speed &together) {
  if (together.is_seen()) speeds_[{member, kind}].together = together;
}

void Memory::ran_alone(std::size_t member, const WorkKind &kind, double bytes, double seconds) {
  Speeds &speeds = speeds_[{member, kind}];
  // The cores may have been busy with something else. Only the second slow run in a row counts.
  const bool is_slow = speeds.alone.is_known() && seconds > kSlow * speeds.alone.seconds_for(bytes);
  speeds.was_slow = is_slow && !speeds.was_slow;
  if (!speeds.was_slow) speeds.alone.observe(bytes, seconds);
}

void Memory::forget_alone(std::size_t member, const WorkKind &kind) { speeds_[{member, kind}].alone = {}; }

double Memory::idle_seconds(std::size_t member, const WorkKind &kind) {
  return run_seconds_[kind] - speeds_[{member, kind}].last_at_seconds;
}

void Memory::took_part(std::size_t member, const WorkKind &kind) {
  speeds_[{member, kind}].last_at_seconds = run_seconds_[kind];
}

void Memory::recall(std::size_t member, const core::SpeedEntry &entry) {
  const WorkKind kind{core::tuned_operation_mode(entry.operation), entry.k, entry.m};
  Speeds &speeds = speeds_[{member, kind}];
  const double moved = kind.moved_per_byte();
  if (entry.bytes_per_second > 0) speeds.together = Speed(entry.latency_seconds, entry.bytes_per_second * moved);
  if (entry.alone_bytes_per_second > 0)
    speeds.alone = Speed(entry.alone_latency_seconds, entry.alone_bytes_per_second * entry.lanes * moved);
}

std::vector<core::SpeedEntry> Memory::learned(std::size_t member, const std::string &worker, unsigned lanes,
                                              bool is_cpu, const std::vector<core::SpeedEntry> &known) const {
  std::vector<core::SpeedEntry> list;
  for (const auto &[key, speeds] : speeds_) {
    const auto &[index, kind] = key;
    if (index != member) continue;
    core::SpeedEntry entry;
    entry.worker = worker;
    entry.operation = operation_of(kind.mode);
    entry.k = kind.columns;
    entry.m = kind.rows;
    entry.lanes = lanes;
    const auto is_enough = [&](const Speed &speed) { return speed.is_known() || (is_cpu && speed.is_seen()); };
    if (is_enough(speeds.together)) {
      entry.bytes_per_second = speeds.together.bytes_per_second() / kind.moved_per_byte();
      entry.latency_seconds = speeds.together.latency_seconds();
    }
    if (is_enough(speeds.alone)) {
      entry.alone_bytes_per_second = speeds.alone.bytes_per_second() / kind.moved_per_byte() / lanes;
      entry.alone_latency_seconds = speeds.alone.latency_seconds();
    }
    if (!is_enough(speeds.together) && !is_enough(speeds.alone)) continue;
    const auto same = std::find_if(known.begin(), known.end(), [&](const core::SpeedEntry &each) {
      return each.worker == worker && each.operation == entry.operation && each.k == entry.k && each.m == entry.m;
    });
    if (same == known.end() || is_far(same->bytes_per_second, entry.bytes_per_second) ||
        is_far(same->alone_bytes_per_second, entry.alone_bytes_per_second) ||
        is_far(same->latency_seconds, entry.latency_seconds) ||
        is_far(same->alone_latency_seconds, entry.alone_latency_seconds))
      list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace tandem::hybrid
