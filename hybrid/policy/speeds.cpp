#include "hybrid/policy/speeds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tandem::hybrid {
namespace {

constexpr double kMemorySeconds = 0.2;  // of a lane: what is older hardly counts
constexpr unsigned kLeastChunks = 4;    // of each rate, before it counts
constexpr double kLeastGain = 1.1;      // less is not worth a device, for rates are not known better
constexpr double kHardlyBeside = 0.02, kLeastBeside = 0.2;  // parts of a chunk's time
constexpr double kKnownWithin = 0.2;                        // how far a speed may have moved from one run to the next
constexpr double kRecalledSeconds = 0.01;                   // what was remembered weighs as much as chunks of that time
constexpr std::uint64_t kMostPatience = 1024;

}  // namespace

unsigned size_class_of(std::uint64_t moved_bytes) noexcept {
  constexpr std::uint64_t kShort = 8 << 20, kLong = 64 << 20;  // about what caches hold of a core, and of a processor
  return moved_bytes < kShort ? 0 : moved_bytes < kLong ? 1 : 2;
}

std::string text_of(const WorkKind &kind) {
  return fmt::format("{} {}x{}", name_of(kind.mode), kind.rows, kind.columns);
}

void Speeds::Rate::add(double more_bytes, double more_seconds) noexcept {
  const double kept = std::exp(-more_seconds / kMemorySeconds);
  bytes = bytes * kept + more_bytes;
  seconds = seconds * kept + more_seconds;
  ++count;
}

void Speeds::Rate::recall(double value) noexcept {
  bytes = value * kRecalledSeconds;
  seconds = kRecalledSeconds;
  count = kLeastChunks;
}

Estimate Speeds::of(std::size_t member, const WorkKind &kind, double latency_seconds) const {
  const auto found = estimates_.find({member, kind});
  if (found == estimates_.end()) return Estimate(latency_seconds, 0, 1);
  return Estimate(latency_seconds, found->second.bytes_per_second(), kKnownWithin);
}

void Speeds::keep(std::size_t member, const WorkKind &kind, const Estimate &estimate) {
  if (estimate.is_known()) estimates_.insert_or_assign({member, kind}, estimate);
}

void Speeds::cpu_chunk(const WorkKind &kind, double bytes, double seconds, double seconds_beside_devices) {
  Sharing &sharing = sharing_[kind];
  if (seconds_beside_devices < kHardlyBeside * seconds) {
    sharing.alone.add(bytes, seconds);
  } else if (seconds_beside_devices > kLeastBeside * seconds && sharing.alone.value() > 0) {
    // Less what was done in the time without them.
    const double without = sharing.alone.value() * (seconds - seconds_beside_devices);
    sharing.beside.add(std::max(bytes - without, 0.0), seconds_beside_devices);
  }
}

void Speeds::device_chunk(std::size_t member, const WorkKind &kind, double bytes, double seconds, unsigned lanes) {
  sharing_[kind].devices[member].add(bytes, seconds / lanes);
}

void Speeds::recall_device(std::size_t member, const WorkKind &kind, double bytes_per_second, unsigned lanes) {
  estimates_.insert_or_assign({member, kind}, Estimate(0, bytes_per_second, kKnownWithin));
  sharing_[kind].devices[member].recall(bytes_per_second * lanes);
}

void Speeds::recall_cpu(std::size_t member, const WorkKind &kind, double bytes_per_second,
                        double alone_bytes_per_second) {
  estimates_.insert_or_assign({member, kind}, Estimate(0, bytes_per_second, kKnownWithin));
  Sharing &sharing = sharing_[kind];
  sharing.beside.recall(bytes_per_second);
  if (alone_bytes_per_second > 0) sharing.alone.recall(alone_bytes_per_second);
}

void Speeds::cpu_run(const WorkKind &kind, double bytes, double seconds, unsigned lanes) {
  sharing_[kind].alone.add(bytes, seconds * lanes);
}

double Speeds::cpu_alone(const WorkKind &kind) const {
  const auto found = sharing_.find(kind);
  return found != sharing_.end() ? found->second.alone.value() : 0;
}

double Speeds::cpu_beside(const WorkKind &kind) const {
  const auto found = sharing_.find(kind);
  return found != sharing_.end() ? found->second.beside.value() : 0;
}

bool Speeds::knows_cpu_alone(const WorkKind &kind) const {
  const auto found = sharing_.find(kind);
  return found != sharing_.end() && found->second.alone.count >= kLeastChunks;
}

double Speeds::gain(const WorkKind &kind, CpuLanes lanes) const {
  const auto found = sharing_.find(kind);
  if (found == sharing_.end() || lanes.alone == 0) return 0;
  const Sharing &sharing = found->second;
  if (sharing.alone.count < kLeastChunks || sharing.beside.count < kLeastChunks || sharing.devices.empty()) return 0;
  double devices = 0;
  for (const auto &[member, rate] : sharing.devices) devices += rate.value();
  return (lanes.beside * sharing.beside.value() + devices) / (lanes.alone * sharing.alone.value());
}

bool Speeds::is_worth_it(const WorkKind &kind, CpuLanes lanes) const {
  const double found = gain(kind, lanes);
  return found == 0 || found >= kLeastGain;
}

double Speeds::device(std::size_t member, const WorkKind &kind) const {
  const auto found = sharing_.find(kind);
  if (found == sharing_.end()) return 0;
  const auto rate = found->second.devices.find(member);
  return rate != found->second.devices.end() ? rate->second.value() : 0;
}

bool Speeds::admits_devices(const WorkKind &kind, CpuLanes lanes) {
  if (const double found = gain(kind, lanes); found == 0 || found >= kLeastGain) {
    if (found != 0) sharing_[kind].patience = kFirstPatience;
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
