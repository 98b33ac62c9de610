// The rule by which a run is shared (docs/HYBRID.md): a worker may take a piece of work only if it will be through with
// it before everything else is. Pure functions of what is known now; times are seconds from now, bytes are doubles,
// since shares are.
#pragma once

#include <limits>

namespace tandem::hybrid {

// All lanes of the CPU together, or one lane of a device.
struct Candidate {
  double bytes_per_second = 0;
  double start_seconds = 0;  // when it could be at the first byte: the rest of what it does, and its latency
};

// When `bytes` would be done if each candidate took its fair share as soon as it can: the time t at which the sum of
// speed * (t - start), where that is positive, reaches them. Infinity without candidates. `candidates` calls its
// argument with each of them, as often as it is asked to.
template <class Candidates>
double finish_seconds(const Candidates &candidates, double bytes) {
  // All of them first; then without those that would start after the end, until none is left out any more.
  double limit = std::numeric_limits<double>::infinity();
  for (;;) {
    double speed = 0, work = bytes;
    candidates([&](const Candidate &each) {
      if (!(each.start_seconds < limit)) return;
      speed += each.bytes_per_second;
      work += each.bytes_per_second * each.start_seconds;
    });
    if (!(speed > 0)) return limit;
    const double finish = work / speed;
    if (!(finish < limit)) return limit;
    limit = finish;
  }
}

// What a lane of the CPU takes next. `finish`: of the whole run. `most_seconds`: the chunk should not take longer.
double front_chunk(double bytes_per_second, double finish, double most_seconds);

// What an idle lane of a device takes of `bytes`: its fair share, or half of that where the others would lose more by
// its being late than one more latency costs. 0: it would not be through in time. `others`: the sum of their speeds. A
// device that is slower than they are together is to end earlier: if it is late, they wait longer than it would have.
struct DeviceLane {
  double bytes_per_second, latency_seconds, uncertainty;
};
double back_piece(const DeviceLane &device, double finish, double others, double bytes);

// The first piece of a device of unknown speed. Where it may take long to answer it takes all of a run that is short,
// while the others do the same; the first one that is through counts. Less would cost that latency again.
double first_piece_bytes(double work_bytes, bool shares_memory);

}  // namespace tandem::hybrid
