// SPDX-License-Identifier: Apache-2.0
#include "hybrid/policy/memory.hpp"

#include <algorithm>
#include <cmath>

namespace tandem::hybrid {
namespace {

constexpr double kWorthRemembering = 0.1;  // difference from a stored value, as a part of it, that is worth storing

bool is_far(double a, double b) { return std::abs(a - b) > kWorthRemembering * std::max(a, b); }

core::TunedOperation operation_of(core::Mode mode) {
  return mode == core::Mode::assign    ? core::TunedOperation::encode
         : mode == core::Mode::compare ? core::TunedOperation::verify
                                       : core::TunedOperation::update;
}

}  // namespace

Speed Memory::speed(const WorkKind &kind) const {
  const auto found = speeds_.find(kind);
  return found != speeds_.end() ? found->second : Speed();
}

void Memory::keep(const WorkKind &kind, const Speed &speed) {
  if (speed.is_seen()) speeds_[kind] = speed;
}

void Memory::recall(const core::SpeedEntry &entry, bool is_cpu) {
  if (!(entry.bytes_per_second > 0)) return;
  const WorkKind kind{core::tuned_operation_mode(entry.operation), entry.k, entry.m};
  speeds_[kind] =
      Speed(entry.latency_seconds, entry.bytes_per_second * kind.moved_per_byte() * (is_cpu ? entry.lanes : 1));
}

std::vector<core::SpeedEntry> Memory::learned(const std::string &worker, unsigned lanes, bool is_cpu,
                                              const std::vector<core::SpeedEntry> &known) const {
  std::vector<core::SpeedEntry> list;
  for (const auto &[kind, speed] : speeds_) {
    if (!speed.is_known() && !is_cpu) continue;
    core::SpeedEntry entry;
    entry.worker = worker;
    entry.operation = operation_of(kind.mode);
    entry.k = kind.columns;
    entry.m = kind.rows;
    entry.lanes = lanes;
    entry.bytes_per_second = speed.bytes_per_second() / kind.moved_per_byte() / (is_cpu ? lanes : 1);
    entry.latency_seconds = speed.latency_seconds();
    const auto same = std::find_if(known.begin(), known.end(), [&](const core::SpeedEntry &each) {
      return each.worker == worker && each.operation == entry.operation && each.k == entry.k && each.m == entry.m;
    });
    if (same == known.end() || is_far(same->bytes_per_second, entry.bytes_per_second) ||
        is_far(same->latency_seconds, entry.latency_seconds))
      list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace tandem::hybrid
