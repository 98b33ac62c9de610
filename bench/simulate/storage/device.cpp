// SPDX-License-Identifier: Apache-2.0
#include "bench/simulate/storage/device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/error.hpp"

namespace tandem::bench::storage {
namespace {

[[noreturn]] void refuse(const std::string &message) { base::fail(TANDEM_ERROR_INVALID_ARGUMENT, message); }

constexpr double kMostSeconds = 1e6;

double checked_seconds(double value, const char *name) {
  if (!(value >= 0 && value <= kMostSeconds)) refuse(fmt::format("{} is {} s: 0 to 1e6 are possible", name, value));
  return value;
}

double quantile(const std::vector<double> &quantiles, const std::vector<double> &seconds, double u) {
  const auto above = std::lower_bound(quantiles.begin(), quantiles.end(), u);
  if (above == quantiles.begin()) return seconds.front();
  if (above == quantiles.end()) return seconds.back();
  const auto i = static_cast<std::size_t>(above - quantiles.begin());
  const double part = (u - quantiles[i - 1]) / (quantiles[i] - quantiles[i - 1]);
  return seconds[i - 1] + part * (seconds[i] - seconds[i - 1]);
}

}  // namespace

// Seagate, Constellation SAS Product Manual, Rev. E, sections 5.1 and 5.2.1: 7200 revolutions a minute, on average
// 890,823 bytes a track. Seeks are without the controller's overhead; the overhead is the difference to the seeks with
// it.
DeviceFigures hdd() {
  constexpr double kRevolution = 60.0 / 7200, kRate = 890823 / kRevolution;
  DeviceFigures device;
  device.kind = Kind::hdd;
  device.read_seconds = device.write_seconds = 0.2e-3;
  device.read_bytes_per_second = device.write_bytes_per_second = kRate;
  device.capacity_bytes = 500'000'000'000;
  device.revolution_seconds = kRevolution;
  device.read_seeks = {0.5e-3, 8.0e-3, 17.35e-3};
  device.write_seeks = {0.7e-3, 8.4e-3, 17.82e-3};
  return device;
}

// Intel, Solid-State Drive DC S3700 Series, Product Specification: 75,000 random reads and 36,000 random writes of 4
// KiB a second, 500 and 460 MB/s. Eight channels. The time of a request of 4 KiB besides its transfer is fixed.
DeviceFigures ssd() {
  constexpr std::uint32_t kChannels = 8;
  const auto fixed = [](double per_second, double rate) { return kChannels / per_second - 4096 * kChannels / rate; };
  DeviceFigures device;
  device.kind = Kind::ssd;
  device.channel_count = kChannels;
  device.read_bytes_per_second = 500e6;
  device.write_bytes_per_second = 460e6;
  device.read_seconds = fixed(75'000, device.read_bytes_per_second);
  device.write_seconds = fixed(36'000, device.write_bytes_per_second);
  return device;
}

Device::Device(const DeviceFigures &given)
    : kind_(given.kind),
      channels_(given.channel_count),
      capacity_(given.kind == Kind::hdd ? given.capacity_bytes : 0),
      revolution_(given.revolution_seconds) {
  constexpr std::uint32_t kMostChannels = 65536;
  if (channels_ == 0 || channels_ > kMostChannels)
    refuse(fmt::format("channel_count is {}, not from 1 to {}", channels_, kMostChannels));
  read_.fixed = checked_seconds(given.read_seconds, "read_seconds");
  write_.fixed = checked_seconds(given.write_seconds, "write_seconds");
  if (kind_ == Kind::hdd || kind_ == Kind::ssd) {
    read_.per_byte = channels_ / given.read_bytes_per_second;
    write_.per_byte = channels_ / given.write_bytes_per_second;
  }
  if (kind_ == Kind::hdd) {
    if (channels_ != 1) refuse(fmt::format("channel_count is {}: a disk has one", channels_));
    read_.seek = curve_of(given.read_seeks);
    write_.seek = curve_of(given.write_seeks);
  }
  for (const Latency &point : given.latencies) {
    if (checked_seconds(point.seconds, "a latency") <= 0)
      refuse(fmt::format("a latency of {} bytes is 0 s", point.request_bytes));
    Distribution &all = (point.is_write ? write_ : read_).measured[point.request_bytes];
    all.quantiles.push_back(point.quantile);
    all.seconds.push_back(point.seconds);
  }
  if (kind_ == Kind::measured ? read_.measured.empty() || write_.measured.empty()
                              : read_.fixed + read_.per_byte <= 0 || write_.fixed + write_.per_byte <= 0)
    refuse("a device that takes no time has no queue: reads and writes must take more than 0 s");
}

// The curve goes through the three figures of a data sheet. Random pairs of places are on average 1/3 of the way apart,
// and the mean of sqrt(d) is 8/15.
Device::Seek Device::curve_of(const SeekSeconds &given) {
  const double root = (given.average - given.track - (given.full - given.track) / 3) * 5;
  return {given.track, root, given.full - given.track - root};
}

// Between two measured sizes: interpolated latency. Above the largest: as many requests of that size as needed, one
// after the other.
double Device::draw(const Direction &direction, std::uint64_t bytes, Random &random) {
  const double u = random.part();
  const auto at = [&](const auto &each) { return quantile(each->second.quantiles, each->second.seconds, u); };
  const auto above = direction.measured.lower_bound(bytes);
  if (above == direction.measured.begin()) return at(above);
  const auto below = std::prev(above);
  const auto wanted = static_cast<double>(bytes), less = static_cast<double>(below->first);
  if (above == direction.measured.end()) return at(below) * wanted / less;
  return at(below) + (wanted - less) / (static_cast<double>(above->first) - less) * (at(above) - at(below));
}

double Device::access(Head &head, std::uint64_t position, std::uint64_t bytes, bool write, double now,
                      Random &random) const {
  const Direction &direction = of(write);
  if (kind_ == Kind::measured) return direction.fixed + draw(direction, bytes, random);
  double seconds = direction.per_byte * static_cast<double>(bytes);
  if (kind_ != Kind::hdd) return direction.fixed + seconds;
  if (position != head.position || now != head.arrived) {  // else it continues at its place, without a gap
    const double way =
        static_cast<double>(position > head.position ? position - head.position : head.position - position) /
        static_cast<double>(capacity_);
    if (way > 0) seconds += direction.seek.track + direction.seek.root * std::sqrt(way) + direction.seek.linear * way;
    seconds += direction.fixed + revolution_ * random.part();
  }
  head = {position + bytes, now + seconds};
  return seconds;
}

double Device::write_back(Head &head, std::uint64_t position, std::uint64_t bytes, double now, Random &random) const {
  if (kind_ != Kind::hdd) return access(head, position, bytes, true, now, random);
  // The place passed under the head while it was read, so it takes another revolution.
  double wait = revolution_ - std::fmod(read_.per_byte * static_cast<double>(bytes), revolution_);
  if (wait < write_.fixed) wait += revolution_;
  const double seconds = wait + write_.per_byte * static_cast<double>(bytes);
  head = {position + bytes, now + seconds};
  return seconds;
}

}  // namespace tandem::bench::storage
