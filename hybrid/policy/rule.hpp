// SPDX-License-Identifier: Apache-2.0
// The rule for sharing a run (docs/hybrid.md): a worker takes a piece of work only if it will finish before the
// predicted end of the run. Pure functions of what is known now. Times are seconds from now. Bytes are doubles, because
// shares are.
#pragma once

#include <limits>

namespace tandem::hybrid {

// All lanes of the CPU together, or one lane of a device.
struct Candidate {
  double bytes_per_second = 0;
  double start_seconds = 0;  // when it could start with the first byte: after the rest of its present work, and its
                             // latency
};

// The predicted end of `bytes`, if each candidate takes its fair share as soon as it can. It is the time t at which the
// sum of speed * (t - start), over candidates with start < t, reaches the bytes. Infinity without candidates.
// `candidates` calls its argument with each of them, each time it is called.
template <class Candidates>
double finish_seconds(const Candidates &candidates, double bytes) {
  // First with all candidates. Then without those that would start after the end, until no more are left out.
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

// The next chunk of a CPU lane. `finish`: end of the whole run. `most_seconds`: upper limit for the time of the chunk.
double front_chunk(double bytes_per_second, double finish, double most_seconds);

// The part of `bytes` that an idle lane of a device takes: its fair share. It takes half of that if a late end would
// cost the others more than one more latency. 0: it would not finish in time. `others`: the sum of their speeds. If a
// device is slower than the others together, its piece ends earlier, because a late end would make all of them wait.
struct DeviceLane {
  double bytes_per_second, latency_seconds, uncertainty;
};
double back_piece(const DeviceLane &device, double finish, double others, double bytes);

// The first piece of a device of unknown speed. If its latency may be long, it takes all of a short run, while the
// others do the same work. The result that is ready first counts. A smaller piece would cost that latency again.
double first_piece_bytes(double work_bytes, bool shares_memory);

}  // namespace tandem::hybrid
