#include "hybrid/policy/worth.hpp"

#include <vector>

#include "hybrid/factory.hpp"
#include "hybrid/policy/decision.hpp"

namespace tandem::hybrid {
namespace {

constexpr double kLeastGain = 0.02;       // of the time
constexpr double kSharingSeconds = 5e-5;  // lanes are woken, and the caller at the end
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 50;

}  // namespace

double finish_seconds(std::span<const Party> parties, double bytes) {
  std::vector<Candidate> candidates;
  for (const Party &each : parties) {
    Candidate candidate{each.bytes_per_second * each.lanes};
    candidate.latency_seconds = each.latency_seconds;
    candidate.free_in_seconds = each.start_up_seconds;
    candidates.push_back(candidate);
  }
  return predicted_finish(candidates, bytes);
}

bool is_worth_sharing(std::span<const Party> together, std::span<const Party> alone, double bytes) {
  return finish_seconds(together, bytes) + kSharingSeconds < (1 - kLeastGain) * finish_seconds(alone, bytes);
}

std::uint64_t worth_sharing_from(std::span<const Party> together, std::span<const Party> alone) {
  const auto is_worth_it = [&](std::uint64_t bytes) {
    return is_worth_sharing(together, alone, static_cast<double>(bytes));
  };
  if (!is_worth_it(kMostBytes)) return UINT64_MAX;
  std::uint64_t too_few = 0, enough = kMostBytes;
  while (enough - too_few > 1) {
    const std::uint64_t middle = too_few + (enough - too_few) / 2;
    (is_worth_it(middle) ? enough : too_few) = middle;
  }
  return enough;
}

Worth worth_of(const core::SpeedEntry &cpu, const core::SpeedEntry &device) {
  if (!(cpu.alone_bytes_per_second > 0)) return {0, UINT64_MAX, UINT64_MAX};
  // Speeds of data serve as well as those of bytes moved.
  const Party alone{cpu.alone_bytes_per_second, cpu.lanes, kCpuLatencySeconds};
  Party together[] = {{cpu.bytes_per_second, cpu.lanes, kCpuLatencySeconds},
                      {device.bytes_per_second, device.lanes, kDeviceLatencySeconds}};
  Worth worth = {};
  worth.gain = (cpu.bytes_per_second * cpu.lanes + device.bytes_per_second * device.lanes) /
               (cpu.alone_bytes_per_second * cpu.lanes);
  worth.from_bytes = worth_sharing_from(together, {&alone, 1});
  together[1].start_up_seconds = device.start_up_seconds;
  worth.first_call_from_bytes = worth_sharing_from(together, {&alone, 1});
  return worth;
}

}  // namespace tandem::hybrid
