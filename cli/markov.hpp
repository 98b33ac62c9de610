// SPDX-License-Identifier: Apache-2.0
// How likely a set of k + m disks loses data: a Markov chain, solved exactly.
//
// State i: i disks have failed and are being rebuilt. Each of the n - i others fails at the rate f. Each of the i
// rebuilds ends at the rate r, and rebuilds run in parallel. Data is lost when m + 1 disks are down at once. This is
// the model of Angus, "On Computing MTBF for a k-out-of-n:G Repairable System", IEEE Trans. Reliability 37 (3), 1988.
// That of Chen, Lee, Gibson, Katz and Patterson, "RAID: High-Performance, Reliable Secondary Storage", ACM Computing
// Surveys 26 (2), 1994, rebuilds one disk after the other; both agree for m <= 1. Resch and Volvovski compare them:
// arXiv 1310.4702.
//
// Three causes can be added, each with a constant rate. A batch failure hits each disk that works with the same
// probability, all at once (the binomial failure rate model: Vesely, "Estimating Common Cause Failure Probabilities in
// Reliability and Risk Analyses", 1977). When m disks are down, a sector that cannot be read in the rebuild is lost
// (Rao, Hafner, Golding, "Reliability for Networked Storage Nodes", DSN 2006: the same factor h). A site takes all
// disks.
#pragma once

#include <cstdint>

namespace tandem::cli {

constexpr std::uint32_t kMostDurableParity = 255;

struct DiskSet {
  std::uint32_t k, m;
  double failures_per_second;                      // of one disk that works, > 0
  double rebuilds_per_second;                      // of one disk that failed, > 0
  double batches_per_second = 0, batch_share = 0;  // share: of the disks that work, on average; < 1
  double unreadable_rebuilds = 0;                  // the part of rebuilds that find a sector they cannot read; < 1
  double sites_per_second = 0;
};

// Natural logarithms: a probability such as 1e-400 is no double.
// Logarithm of the mean time in seconds from "all disks work" to the loss.
double log_mean_seconds_to_loss(const DiskSet &set);
// Logarithm of the probability that data is lost within `seconds`, if all disks work at first.
double log_loss_probability(const DiskSet &set, double seconds);

}  // namespace tandem::cli
