// SPDX-License-Identifier: Apache-2.0
// Service times of the storage simulator's devices.
#pragma once

#include <cstdint>
#include <vector>

#include "tandem/storage.h"
#include "volume/storage_random.hpp"

namespace tandem::storage {

// The place of a disk's head, and the time of its arrival.
struct Head {
  std::uint64_t position = 0;
  double arrived = -1;
};

class Device {
 public:
  // Throws Error for invalid figures.
  explicit Device(const tandem_storage_device &given);

  std::uint32_t channel_count() const { return channels_; }
  std::uint64_t capacity_bytes() const { return capacity_; }

  // A request that begins now.
  double access(Head &head, std::uint64_t position, std::uint64_t bytes, bool write, double now, Random &random) const;
  // The write that follows the read of the same place.
  double write_back(Head &head, std::uint64_t position, std::uint64_t bytes, double now, Random &random) const;

 private:
  struct Seek {  // seconds = track + root * sqrt(d) + linear * d, d as a part of the way from edge to edge
    double track = 0, root = 0, linear = 0;
  };
  struct Distribution {
    std::uint64_t bytes;
    std::vector<double> quantiles, seconds;
  };
  struct Direction {
    double fixed = 0, per_byte = 0;
    Seek seek;
    std::vector<Distribution> measured;  // in the order of bytes
  };

  void read_hdd(const tandem_storage_device &given);
  void read_measured(const tandem_storage_device &given);
  const Direction &of(bool write) const { return write ? write_ : read_; }
  static double draw(const Direction &direction, std::uint64_t bytes, Random &random);

  tandem_storage_kind kind_;
  std::uint32_t channels_;
  std::uint64_t capacity_;
  double revolution_;
  Direction read_, write_;
};

}  // namespace tandem::storage
