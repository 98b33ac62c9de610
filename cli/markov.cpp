// SPDX-License-Identifier: Apache-2.0
#include "cli/markov.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tandem::cli {
namespace {

double failures(const DiskSet &set, std::uint32_t down) {
  return (static_cast<double>(set.k) + set.m - down) * set.failures_per_second;
}
double rebuilds(const DiskSet &set, std::uint32_t down) { return down * set.rebuilds_per_second; }

// log(e^a + e^b)
double log_sum(double a, double b) { return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b))); }

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

// The mean time from i to i + 1 is 1/up + (down/up) * (that from i - 1 to i).
double log_mean_seconds_to_loss(const DiskSet &set) {
  double step = -std::log(failures(set, 0)), sum = step;
  for (std::uint32_t i = 1; i <= set.m; ++i) {
    step = log_sum(0, std::log(rebuilds(set, i)) + step) - std::log(failures(set, i));
    sum = log_sum(sum, step);
  }
  return sum;
}

// Row and column i of a matrix are state i, the last ones are the loss. Cell (i, j) is the probability of state j after
// state i. Many failures at once are so unlikely that it would underflow. So cell (i, j) is kept multiplied by scale i
// and divided by scale j. Scale j is the product of all up/down below it, as far as they are less than 1. The loss has
// scale m.
double log_loss_probability(const DiskSet &set, double seconds) {
  const std::size_t loss = set.m + std::size_t{1};
  double fastest = 0;
  for (std::uint32_t i = 0; i <= set.m; ++i) fastest = std::max(fastest, failures(set, i) + rebuilds(set, i));
  Positive step(loss + 1);  // of the chain that has events at the rate `fastest` in every state
  double log_scale = 0, ratio = 1;
  for (std::uint32_t i = 0; i <= set.m; ++i) {
    const double up = failures(set, i), down = rebuilds(set, i);
    step.at(i, i) = (fastest - up - down) / fastest;
    if (i > 0) step.at(i, i - 1) = down * ratio / fastest;
    ratio = i < set.m ? std::min(1.0, up / rebuilds(set, i + 1)) : 1;
    log_scale += std::log(ratio);
    step.at(i, i + 1) = up / ratio / fastest;
  }
  step.at(loss, loss) = 1;

  // The time is halved until it has at most one event on average. There the series of uniformization converges at once
  // (Jensen, "Markoff chains as an aid in the study of Markoff processes", 1953). Squaring doubles the time again.
  int halvings = 0;
  std::frexp(fastest * seconds, &halvings);
  halvings = std::max(halvings, 0);
  const double events = fastest * std::ldexp(seconds, -halvings);
  Positive power(loss + 1), sum(loss + 1);
  for (std::size_t i = 0; i <= loss; ++i) power.at(i, i) = 1;
  double weight = std::exp(-events);                       // of the Poisson distribution
  for (std::size_t term = 0; term <= loss + 40; ++term) {  // each path, and its detours: 40! is about 1e48
    sum.add(power, weight);
    power = step * power;
    weight *= events / static_cast<double>(term + 1);
  }
  for (int i = 0; i < halvings; ++i) sum = sum * sum;
  return std::min(0.0, log_scale + std::log(sum.at(0, loss)));
}

}  // namespace tandem::cli
