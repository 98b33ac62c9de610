// SPDX-License-Identifier: Apache-2.0
#include "volume/storage_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "volume/error.hpp"

namespace tandem::storage {
namespace {

[[noreturn]] void refuse(const std::string &message) { volume::fail(TANDEM_ERROR_INVALID_ARGUMENT, message); }

constexpr double kMostSeconds = 1e6;

double checked_seconds(double value, const char *name) {
  if (!(value >= 0 && value <= kMostSeconds)) refuse(fmt::format("{} is {} s: 0 to 1e6 are possible", name, value));
  return value;
}

double checked_rate(double value, const char *name) {
  if (!(value >= 1 && value <= 1e18)) refuse(fmt::format("{} is {}: 1 to 1e18 are possible", name, value));
  return value;
}

void refuse_other(bool given, const char *name, const char *only) {
  if (given) refuse(fmt::format("{} is set, and the device is no {}", name, only));
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

Device::Device(const tandem_storage_device &given)
    : kind_(given.kind),
      channels_(given.channel_count == 0 ? 1 : given.channel_count),
      capacity_(given.kind == TANDEM_STORAGE_HDD ? given.capacity_bytes : 0),
      revolution_(given.revolution_seconds) {
  constexpr std::uint32_t kMostChannels = 65536;
  if (kind_ < TANDEM_STORAGE_CONSTANT || kind_ > TANDEM_STORAGE_MEASURED)
    refuse(fmt::format("kind of the device is {}", kind_));
  if (channels_ > kMostChannels) refuse(fmt::format("channel_count is {}, at most {}", channels_, kMostChannels));
  read_.fixed = checked_seconds(given.read_seconds, "read_seconds");
  write_.fixed = checked_seconds(given.write_seconds, "write_seconds");
  if (kind_ == TANDEM_STORAGE_HDD || kind_ == TANDEM_STORAGE_SSD) {
    read_.per_byte = channels_ / checked_rate(given.read_bytes_per_second, "read_bytes_per_second");
    write_.per_byte = channels_ / checked_rate(given.write_bytes_per_second, "write_bytes_per_second");
  } else {
    refuse_other(given.read_bytes_per_second != 0, "read_bytes_per_second", "HDD or SSD");
    refuse_other(given.write_bytes_per_second != 0, "write_bytes_per_second", "HDD or SSD");
  }
  if (kind_ == TANDEM_STORAGE_HDD) {
    read_hdd(given);
  } else {
    refuse_other(given.revolution_seconds != 0, "revolution_seconds", "HDD");
  }
  if (kind_ == TANDEM_STORAGE_MEASURED) {
    read_measured(given);
  } else {
    refuse_other(given.latency_count != 0, "latency_count", "MEASURED one");
    if (read_.fixed + read_.per_byte <= 0 || write_.fixed + write_.per_byte <= 0)
      refuse("a device that takes no time has no queue: read_seconds and write_seconds must be above 0");
  }
}

// The curve goes through the three figures of a data sheet. Random pairs of places are on average 1/3 of the way apart,
// and the mean of sqrt(d) is 8/15.
void Device::read_hdd(const tandem_storage_device &given) {
  if (channels_ != 1) refuse(fmt::format("channel_count is {}: a disk has one", channels_));
  if (capacity_ == 0) refuse("capacity_bytes is 0");
  if (checked_seconds(revolution_, "revolution_seconds") <= 0) refuse("revolution_seconds is 0");
  const auto curve = [](double track, double average, double full, const char *name) {
    if (!(0 < track && track <= average && average <= full && full <= kMostSeconds))
      refuse(fmt::format("seeks of a {} are {} s to the next track, {} s on the average, {} s at most", name, track,
                         average, full));
    const double root = (average - track - (full - track) / 3) * 5, linear = full - track - root;
    if (root < 0 || linear < 0)
      refuse(fmt::format("no seek curve has {} s to the next track, {} s on the average, {} s at most", track, average,
                         full));
    return Seek{track, root, linear};
  };
  read_.seek =
      curve(given.read_track_seek_seconds, given.read_average_seek_seconds, given.read_full_seek_seconds, "read");
  write_.seek =
      curve(given.write_track_seek_seconds, given.write_average_seek_seconds, given.write_full_seek_seconds, "write");
}

void Device::read_measured(const tandem_storage_device &given) {
  if (given.latencies == nullptr || given.latency_count == 0) refuse("latencies is NULL or latency_count is 0");
  if (given.latency_stride_bytes < sizeof(tandem_storage_latency))
    refuse(fmt::format("latency_stride_bytes is {}, at least {}", given.latency_stride_bytes,
                       sizeof(tandem_storage_latency)));
  const auto *bytes = reinterpret_cast<const unsigned char *>(given.latencies);
  for (std::size_t i = 0; i < given.latency_count; ++i) {
    tandem_storage_latency point;
    std::memcpy(&point, bytes + i * given.latency_stride_bytes, sizeof point);
    if (point.request_bytes == 0) refuse(fmt::format("request_bytes of latency {} is 0", i));
    if (!(point.quantile >= 0 && point.quantile <= 1))
      refuse(fmt::format("quantile of latency {} is {}", i, point.quantile));
    if (checked_seconds(point.seconds, "seconds of a latency") <= 0) refuse(fmt::format("latency {} is 0 s", i));
    std::vector<Distribution> &all = (point.is_write ? write_ : read_).measured;
    auto place = std::lower_bound(all.begin(), all.end(), point.request_bytes,
                                  [](const Distribution &each, std::uint64_t wanted) { return each.bytes < wanted; });
    if (place == all.end() || place->bytes != point.request_bytes)
      place = all.insert(place, {point.request_bytes, {}, {}});
    if (!place->quantiles.empty() &&
        (point.quantile <= place->quantiles.back() || point.seconds < place->seconds.back()))
      refuse(fmt::format("latency {} is out of order: quantile {} with {} s after quantile {} with {} s", i,
                         point.quantile, point.seconds, place->quantiles.back(), place->seconds.back()));
    place->quantiles.push_back(point.quantile);
    place->seconds.push_back(point.seconds);
  }
  for (const bool write : {false, true})
    if (of(write).measured.empty()) refuse(fmt::format("no latency of a {} is given", write ? "write" : "read"));
}

// Between two measured sizes: interpolated latency. Above the largest: as many requests of that size as needed, one
// after the other.
double Device::draw(const Direction &direction, std::uint64_t bytes, Random &random) {
  const std::vector<Distribution> &all = direction.measured;
  const double u = random.part();
  const auto at = [&](const Distribution &each) { return quantile(each.quantiles, each.seconds, u); };
  const auto above =
      std::lower_bound(all.begin(), all.end(), bytes,
                       [](const Distribution &each, std::uint64_t wanted) { return each.bytes < wanted; });
  if (above == all.end()) return at(all.back()) * static_cast<double>(bytes) / static_cast<double>(all.back().bytes);
  if (above == all.begin() || above->bytes == bytes) return at(*above);
  const Distribution &below = *(above - 1);
  const double part = static_cast<double>(bytes - below.bytes) / static_cast<double>(above->bytes - below.bytes);
  return at(below) + part * (at(*above) - at(below));
}

double Device::access(Head &head, std::uint64_t position, std::uint64_t bytes, bool write, double now,
                      Random &random) const {
  const Direction &direction = of(write);
  if (kind_ == TANDEM_STORAGE_MEASURED) return direction.fixed + draw(direction, bytes, random);
  double seconds = direction.per_byte * static_cast<double>(bytes);
  if (kind_ != TANDEM_STORAGE_HDD) return direction.fixed + seconds;
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
  if (kind_ != TANDEM_STORAGE_HDD) return access(head, position, bytes, true, now, random);
  // The place passed under the head while it was read, so it takes another revolution.
  double wait = revolution_ - std::fmod(read_.per_byte * static_cast<double>(bytes), revolution_);
  if (wait < write_.fixed) wait += revolution_;
  const double seconds = wait + write_.per_byte * static_cast<double>(bytes);
  head = {position + bytes, now + seconds};
  return seconds;
}

}  // namespace tandem::storage
