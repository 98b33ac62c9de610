// SPDX-License-Identifier: Apache-2.0
// Service times of the storage simulator's devices.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/random.hpp"

namespace tandem::bench::storage {

using base::Random;

// One point of a measured distribution of latencies. Points with the same is_write and request_bytes form one
// distribution, in the order of their quantiles.
struct Latency {
  std::uint64_t request_bytes;
  double quantile;  // 0 to 1: this part of the requests took at most `seconds`
  double seconds;
  bool is_write;
};

enum class Kind {
  constant,  // a fixed time for each read and each write
  hdd,       // seek, rotation, transfer
  ssd,       // channels that share the transfer rate
  measured   // latencies drawn from a table
};

struct SeekSeconds {
  double track = 0, average = 0, full = 0;  // to the next track; between random places; from edge to edge
};

struct DeviceFigures {
  Kind kind = Kind::constant;
  std::uint32_t channel_count = 1;                               // requests served at once; hdd: 1
  double read_seconds = 0, write_seconds = 0;                    // fixed time of each request; constant: its whole time
  double read_bytes_per_second = 0, write_bytes_per_second = 0;  // hdd and ssd: of all channels together
  std::uint64_t capacity_bytes = 0;                              // hdd: of the surface; others: not used
  double revolution_seconds = 0;                                 // hdd
  SeekSeconds read_seeks, write_seeks;                           // hdd
  std::vector<Latency> latencies;                                // measured
};

// Data sheets: Seagate Constellation ST9500430SS, Intel SSD DC S3700 800 GB.
DeviceFigures hdd();
DeviceFigures ssd();

// The place of a disk's head, and the time of its arrival.
struct Head {
  std::uint64_t position = 0;
  double arrived = -1;
};

class Device {
 public:
  // Throws Error (INVALID_ARGUMENT) for an impossible number of channels or time. Other figures must make sense.
  explicit Device(const DeviceFigures &given);

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
    std::vector<double> quantiles, seconds;
  };
  struct Direction {
    double fixed = 0, per_byte = 0;
    Seek seek;
    std::map<std::uint64_t, Distribution> measured;  // by the bytes of a request
  };

  static Seek curve_of(const SeekSeconds &given);
  const Direction &of(bool write) const { return write ? write_ : read_; }
  static double draw(const Direction &direction, std::uint64_t bytes, Random &random);

  Kind kind_;
  std::uint32_t channels_;
  std::uint64_t capacity_;
  double revolution_;
  Direction read_, write_;
};

}  // namespace tandem::bench::storage
