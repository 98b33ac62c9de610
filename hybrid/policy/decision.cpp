#include "hybrid/policy/decision.hpp"

#include <algorithm>
#include <cmath>

namespace tandem::hybrid {
namespace {

// How many times its uncertainty a worker holds back from its fair share, for the others to even out.
constexpr double kCaution = 2.5;

// The pieces that a fair share is cut into at once, and what their latency may cost, as a part of the time: many only
// where they cost next to nothing.
constexpr double kMostPieces = 8, kLatencyOfMany = 0.006;
constexpr double kSomePieces = 4, kLatencyOfSome = 0.02;

// Pieces of a fair share while another worker does not answer: it may come back, and would find nothing left to do.
constexpr double kPiecesWithoutSomebody = 4;

// Sharing must promise at least this part of the time to be worth more than one worker's run without interruption.
constexpr double kLeastGain = 0.01;

double start_of(const Candidate &candidate) { return candidate.free_in_seconds + candidate.latency_seconds; }

}  // namespace

double predicted_finish(std::span<const Candidate> candidates, double unassigned_bytes) {
  // All of them first; then without those who would start after the end, until none is left out any more.
  double limit = std::numeric_limits<double>::infinity();
  for (;;) {
    double speed = 0, work = unassigned_bytes;
    std::size_t in = 0;
    for (const Candidate &each : candidates) {
      const double start = start_of(each);
      if (!(start < limit)) continue;
      ++in;
      speed += each.bytes_per_second;
      work += each.bytes_per_second * start;
    }
    if (in == 0) return limit;
    const double finish = work / speed;
    if (!(finish < limit)) return limit;
    limit = finish;
  }
}

double chunk_for(std::span<const Candidate> candidates, std::size_t index, double unassigned_bytes) {
  const Candidate &self = candidates[index];
  const double finish = predicted_finish(candidates, unassigned_bytes);
  const double time = finish - start_of(self);

  // The one that would be through first if it took everything, of those who would begin in time.
  std::size_t best = index;
  double best_finish = std::numeric_limits<double>::infinity(), speed = 0;
  bool somebody_is_lost = false;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Candidate &each = candidates[i];
    const double alone = start_of(each) + unassigned_bytes / each.bytes_per_second;
    if (start_of(each) < finish && alone < best_finish) {
      best = i;
      best_finish = alone;
    }
    if (start_of(each) < finish) speed += each.bytes_per_second;
    if (std::isinf(each.free_in_seconds)) somebody_is_lost = true;
  }
  // Sharing costs the best one a latency more, as a rule.
  const double patience = start_of(candidates[best]) < finish ? candidates[best].latency_seconds : 0;
  const bool best_alone = best_finish <= finish * (1 + kLeastGain) + patience;
  if (best_alone && best != index) return 0;
  if (!(time > 0)) return 0;

  const double share = best_alone ? unassigned_bytes : std::min(self.bytes_per_second * time, unassigned_bytes);
  double chunk = share;
  if (!best_alone) {
    // What is held back costs one more latency. It pays for what the others could even out: the part of a mistake that
    // they can take over.
    const double others = 1 - self.bytes_per_second / speed;
    const double mistake = self.uncertainty * time * others;
    if (mistake > self.latency_seconds) {
      const double many = std::max(time / kMostPieces, self.latency_seconds / kLatencyOfMany);
      const double some = std::max(time / kSomePieces, self.latency_seconds / kLatencyOfSome);
      chunk = self.bytes_per_second * std::min({time / (1 + kCaution * self.uncertainty), some, many});
    }
  }
  if (somebody_is_lost) {
    const double few = self.latency_seconds * self.bytes_per_second / kLatencyOfSome;
    chunk = std::min(chunk, std::max(share / kPiecesWithoutSomebody, few));
  }
  chunk = std::min(chunk, self.most_bytes);
  if (chunk >= self.knee_bytes) return chunk;
  if (share >= self.knee_bytes) return std::min(self.knee_bytes, unassigned_bytes);
  return best == index ? std::min(self.knee_bytes, unassigned_bytes) : 0;
}

}  // namespace tandem::hybrid
