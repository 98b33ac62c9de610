// SPDX-License-Identifier: Apache-2.0
#include "cli/markov.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace tandem::cli {
namespace {

double failures(const DiskSet &set, std::uint32_t down) {
  return (static_cast<double>(set.k) + set.m - down) * set.failures_per_second;
}
double rebuilds(const DiskSet &set, std::uint32_t down) { return down * set.rebuilds_per_second; }

constexpr double kNever = -std::numeric_limits<double>::infinity();  // the logarithm of a rate of 0

// log(e^a + e^b)
double log_sum(double a, double b) {
  if (std::max(a, b) == kNever) return kNever;
  return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
}

// Logarithms of all rates, since those of many disks at once may be no doubles.
struct Chain {
  explicit Chain(const DiskSet &set);

  std::vector<std::vector<double>> up;  // up[i][j]: from i to j > i disks that are down
  std::vector<double> down, lost;       // from i to i - 1 disks, and to the loss
};

// The logarithm of the probability that `hit` of `count` disks fail in a batch failure.
double log_binomial(double count, double hit, double share) {
  return std::lgamma(count + 1) - std::lgamma(hit + 1) - std::lgamma(count - hit + 1) + hit * std::log(share) +
         (count - hit) * std::log1p(-share);
}

Chain::Chain(const DiskSet &set)
    : up(set.m + 1, std::vector<double>(set.m + 1, kNever)), down(set.m + 1, kNever), lost(set.m + 1, kNever) {
  const std::uint32_t m = set.m, disks = set.k + m;
  const double log_batch = std::log(set.batches_per_second);
  // After this the rebuild depends on each sector.
  const double spoiled = std::log(set.unreadable_rebuilds), passed = std::log1p(-set.unreadable_rebuilds);
  for (std::uint32_t i = 0; i <= m; ++i) {
    if (i > 0) down[i] = std::log(rebuilds(set, i));
    if (i < m)
      up[i][i + 1] = std::log(failures(set, i));
    else
      lost[i] = std::log(failures(set, i));
    lost[i] = log_sum(lost[i], std::log(set.sites_per_second));
    const std::uint32_t working = disks - i;
    const double expected = working * set.batch_share;
    for (std::uint32_t hit = 1; hit <= working && log_batch != kNever; ++hit) {
      const double rate = log_batch + log_binomial(working, hit, set.batch_share);
      double &to = hit <= m - i ? up[i][i + hit] : lost[i];
      if (hit > m - i && hit > expected && rate < to - 40) break;  // the rest adds no digit
      to = log_sum(to, rate);
    }
    if (i == m || spoiled == kNever) continue;
    lost[i] = log_sum(lost[i], up[i][m] + spoiled);
    up[i][m] += passed;
  }
}

// A square matrix without negative cells. Its results use only sums and products of such cells. No digits
// cancel, so a tiny cell is as exact as a large one.
class Positive {
 public:
  explicit Positive(std::size_t size) : size_(size), cells_(size * size) {}
  double &at(std::size_t row, std::size_t column) { return cells_[row * size_ + column]; }
  double at(std::size_t row, std::size_t column) const { return cells_[row * size_ + column]; }
  void add(const Positive &other, double weight) {
    for (std::size_t i = 0; i < cells_.size(); ++i) cells_[i] += weight * other.cells_[i];
  }

  Positive operator*(const Positive &right) const {
    Positive product(size_);
    for (std::size_t row = 0; row < size_; ++row)
      for (std::size_t inner = 0; inner < size_; ++inner) {
        const double factor = at(row, inner);
        if (factor == 0) continue;
        for (std::size_t column = 0; column < size_; ++column)
          product.at(row, column) += factor * right.at(inner, column);
      }
    return product;
  }

 private:
  std::size_t size_;
  std::vector<double> cells_;
};

}  // namespace

// The states are taken out from m down to 1, and what went through them is added to the others (Grassmann, Taksar,
// Heyman, "Regenerative Analysis and Steady State Distributions for Markov Chains", Operations Research 33 (5), 1985):
// no differences, so no digits cancel.
double log_mean_seconds_to_loss(const DiskSet &set) {
  Chain chain(set);
  // Logarithms of h: out of state i, rate * mean time from i = h + the sum of rate * mean time from there.
  std::vector<double> h(set.m + 1, 0.0);
  for (std::uint32_t s = set.m; s > 0; --s) {
    const double out = log_sum(chain.down[s], chain.lost[s]);
    for (std::uint32_t i = 0; i < s; ++i) {
      const double through = chain.up[i][s] - out;
      if (i + 1 < s) chain.up[i][s - 1] = log_sum(chain.up[i][s - 1], through + chain.down[s]);
      chain.lost[i] = log_sum(chain.lost[i], through + chain.lost[s]);
      h[i] = log_sum(h[i], through + h[s]);
    }
  }
  return h[0] - chain.lost[0];
}

// Row and column i of a matrix are state i, the last ones are the loss. Cell (i, j) is the probability of state j after
// state i. Many failures at once are so unlikely that it would underflow. So cell (i, j) is kept multiplied by scale i
// and divided by scale j: about how likely j disks or more are down.
double log_loss_probability(const DiskSet &set, double seconds) {
  const std::size_t loss = set.m + std::size_t{1};
  const Chain chain(set);
  std::vector<double> scale(loss + 1, kNever), out(loss);  // logarithms
  scale[0] = 0;
  for (std::size_t i = 0; i < loss; ++i) {
    if (i > 0) scale[i] = std::min(scale[i], 0.0);
    out[i] = log_sum(chain.down[i], chain.lost[i]);
    for (std::size_t j = i + 1; j < loss; ++j) {
      out[i] = log_sum(out[i], chain.up[i][j]);
      scale[j] = std::max(scale[j], scale[i] + chain.up[i][j] - chain.down[j]);
    }
  }
  for (std::size_t i = loss - 1; i-- > 0;) scale[i] = std::max(scale[i], scale[i + 1]);
  const double fastest = *std::max_element(out.begin(), out.end());
  for (std::size_t i = 0; i < loss; ++i)
    scale[loss] = std::max(scale[loss], scale[i] + std::min(0.0, chain.lost[i] - fastest));

  Positive step(loss + 1);  // of the chain that has events at the rate `fastest` in every state
  for (std::size_t i = 0; i < loss; ++i) {
    const auto cell = [&](std::size_t to, double rate) {
      step.at(i, to) = std::exp(rate + scale[i] - scale[to] - fastest);
    };
    step.at(i, i) = -std::expm1(out[i] - fastest);
    if (i > 0) cell(i - 1, chain.down[i]);
    for (std::size_t j = i + 1; j < loss; ++j) cell(j, chain.up[i][j]);
    cell(loss, chain.lost[i]);
  }
  step.at(loss, loss) = 1;

  // The time is halved until it has at most one event on average. There the series of uniformization converges at once
  // (Jensen, "Markoff chains as an aid in the study of Markoff processes", 1953). Squaring doubles the time again.
  int halvings = 0;
  std::frexp(std::exp(fastest) * seconds, &halvings);
  halvings = std::max(halvings, 0);
  const double events = std::exp(fastest) * std::ldexp(seconds, -halvings);
  Positive power(loss + 1), sum(loss + 1);
  for (std::size_t i = 0; i <= loss; ++i) power.at(i, i) = 1;
  double weight = std::exp(-events);                       // of the Poisson distribution
  for (std::size_t term = 0; term <= loss + 40; ++term) {  // each path, and its detours: 40! is about 1e48
    sum.add(power, weight);
    power = step * power;
    weight *= events / static_cast<double>(term + 1);
  }
  for (int i = 0; i < halvings; ++i) sum = sum * sum;
  return std::min(0.0, scale[loss] + std::log(sum.at(0, loss)));
}

}  // namespace tandem::cli
