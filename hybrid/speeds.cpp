#include "hybrid/speeds.hpp"

#include <algorithm>

namespace tandem::hybrid {
namespace {

constexpr double kMemory = 0.9;       // what a chunk keeps of its weight when the next one comes
constexpr unsigned kLeastChunks = 4;  // of each rate, before it counts
constexpr double kLeastGain = 1.02;   // less is not worth a device's while
constexpr double kKnownWithin = 0.2;  // how far a speed may have moved from one run to the next
constexpr std::uint64_t kMostPatience = 1024;

}  // namespace

void Speeds::Rate::add(double more_bytes, double more_seconds) noexcept {
  bytes = bytes * kMemory + more_bytes;
  seconds = seconds * kMemory + more_seconds;
  ++count;
}

Estimate Speeds::of(std::size_t member, const WorkKind &kind, double latency_seconds) const {
  const auto found = estimates_.find({member, kind});
  if (found == estimates_.end()) return Estimate(latency_seconds, 0, 1);
  return Estimate(latency_seconds, found->second.bytes_per_second(), kKnownWithin);
}

void Speeds::keep(std::size_t member, const WorkKind &kind, const Estimate &estimate) {
  if (estimate.is_known()) estimates_.insert_or_assign({member, kind}, estimate);
}

void Speeds::cpu_chunk(const WorkKind &kind, double bytes, double seconds, bool beside_devices) {
  Sharing &sharing = sharing_[kind];
  (beside_devices ? sharing.beside : sharing.alone).add(bytes, seconds);
}

void Speeds::device_chunk(std::size_t member, const WorkKind &kind, double bytes, double seconds, unsigned lanes) {
  sharing_[kind].devices[member].add(bytes, seconds / lanes);
}

bool Speeds::knows_cpu_alone(const WorkKind &kind) const {
  const auto found = sharing_.find(kind);
  return found != sharing_.end() && found->second.alone.count >= kLeastChunks;
}

double Speeds::gain(const WorkKind &kind, unsigned cpu_lanes) const {
  const auto found = sharing_.find(kind);
  if (found == sharing_.end() || cpu_lanes == 0) return 0;
  const Sharing &sharing = found->second;
  if (sharing.alone.count < kLeastChunks || sharing.beside.count < kLeastChunks || sharing.devices.empty()) return 0;
  double devices = 0;
  for (const auto &[member, rate] : sharing.devices) devices += rate.value();
  return (cpu_lanes * sharing.beside.value() + devices) / (cpu_lanes * sharing.alone.value());
}

bool Speeds::is_worth_it(const WorkKind &kind, unsigned cpu_lanes) const {
  const double found = gain(kind, cpu_lanes);
  return found == 0 || found >= kLeastGain;
}

bool Speeds::admits_devices(const WorkKind &kind, unsigned cpu_lanes) {
  if (is_worth_it(kind, cpu_lanes)) {
    sharing_[kind].patience = 16;
    return true;
  }
  Sharing &sharing = sharing_[kind];
  if (++sharing.runs_left_out < sharing.patience) return false;
  sharing.runs_left_out = 0;
  sharing.patience = std::min(2 * sharing.patience, kMostPatience);
  sharing.beside = {};
  sharing.devices.clear();
  return true;
}

}  // namespace tandem::hybrid
