// SPDX-License-Identifier: Apache-2.0
// extern "C" of storage.h.
#include "tandem/storage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <stdexcept>
#include <string_view>

#include "base/options.hpp"
#include "volume/error.hpp"
#include "volume/storage_model.hpp"

namespace tandem::storage {
namespace {

using volume::Error;

[[noreturn]] void refuse(const std::string &message) { volume::fail(TANDEM_ERROR_INVALID_ARGUMENT, message); }

// Checks that all required arguments are there.
void check_given(const void *pointer, const char *name) {
  if (pointer == nullptr) refuse(fmt::format("{} is NULL", name));
}

// Not enough memory for a simulation larger than any memory.
template <class Call>
tandem_status guarded(Call &&call) noexcept {
  return tandem::base::guarded([&] {
    try {
      call();
    } catch (const std::length_error &) {
      throw std::bad_alloc();
    }
  });
}

// Seagate, Constellation SAS Product Manual, Rev. E, sections 5.1 and 5.2.1: 7200 revolutions a minute, on average
// 890,823 bytes a track. Seeks are without the controller's overhead; the overhead is the difference to the seeks with
// it.
tandem_storage_device hdd() {
  constexpr double kRevolution = 60.0 / 7200, kRate = 890823 / kRevolution;
  tandem_storage_device device{};
  device.kind = TANDEM_STORAGE_HDD;
  device.channel_count = 1;
  device.read_seconds = device.write_seconds = 0.2e-3;
  device.read_bytes_per_second = device.write_bytes_per_second = kRate;
  device.capacity_bytes = 500'000'000'000;
  device.revolution_seconds = kRevolution;
  device.read_track_seek_seconds = 0.5e-3;
  device.read_average_seek_seconds = 8.0e-3;
  device.read_full_seek_seconds = 17.35e-3;
  device.write_track_seek_seconds = 0.7e-3;
  device.write_average_seek_seconds = 8.4e-3;
  device.write_full_seek_seconds = 17.82e-3;
  return device;
}

// Intel, Solid-State Drive DC S3700 Series, Product Specification: 75,000 random reads and 36,000 random writes of 4
// KiB a second, 500 and 460 MB/s. Eight channels. The time of a request of 4 KiB besides its transfer is fixed.
tandem_storage_device ssd() {
  constexpr std::uint32_t kChannels = 8;
  const auto fixed = [](double per_second, double rate) { return kChannels / per_second - 4096 * kChannels / rate; };
  tandem_storage_device device{};
  device.kind = TANDEM_STORAGE_SSD;
  device.channel_count = kChannels;
  device.read_bytes_per_second = 500e6;
  device.write_bytes_per_second = 460e6;
  device.read_seconds = fixed(75'000, device.read_bytes_per_second);
  device.write_seconds = fixed(36'000, device.write_bytes_per_second);
  device.capacity_bytes = 0;
  return device;
}

void check_between(std::uint64_t value, std::uint64_t least, std::uint64_t most, const char *name) {
  if (value < least) refuse(fmt::format("{} is {}, at least {}", name, value, least));
  if (value > most) throw Error(TANDEM_ERROR_TOO_LARGE, fmt::format("{} is {}, at most {}", name, value, most));
}

void check_number(double value, double most, const char *name) {
  if (!(value >= 0 && value <= most)) refuse(fmt::format("{} is {}: 0 to {} are possible", name, value, most));
}

// Each request under way takes memory. A part of a row has its columns and parity units, and fewer reads than these.
void check_requests(const tandem_storage_options &options) {
  constexpr double kMost = 1 << 26;
  const auto unit = static_cast<double>(options.unit_bytes),
             k = static_cast<double>(options.width - options.parity_count);
  const auto requests = [&](double bytes) {
    const double columns = std::ceil(bytes / unit), rows = std::ceil(columns / k);
    return 2 * columns + 2 * rows * options.parity_count;
  };
  double count = options.client_count * requests(static_cast<double>(options.write_bytes));
  if (options.strategy >= TANDEM_STORAGE_DELAYED) {
    const double clients = std::min(options.client_count, options.clients_per_application);
    const double window = clients * options.writes_per_window * static_cast<double>(options.write_bytes);
    count = std::max(count, options.client_count / clients * requests(window));
  }
  if (count > kMost)
    throw Error(TANDEM_ERROR_TOO_LARGE, fmt::format("{} clients may have {:.0f} requests in flight, at most {:.0f}",
                                                    options.client_count, count, kMost));
}

// The device is read by Device.
tandem_storage_options checked(tandem_storage_options options) {
  constexpr std::uint64_t kMostServers = 65536, kMostClients = 1 << 24, kMostUnit = 1 << 30,
                          kBlock = TANDEM_VOLUME_BLOCK_BYTES;
  const auto set = [](auto &field, auto value) {
    if (field == 0) field = value;
  };
  if (options.strategy < TANDEM_STORAGE_RAID0 || options.strategy > TANDEM_STORAGE_DELAYED_MOVE)
    refuse(fmt::format("strategy is {}", options.strategy));
  if (options.placement < TANDEM_STORAGE_SCATTERED || options.placement > TANDEM_STORAGE_INTERLEAVED)
    refuse(fmt::format("placement is {}", options.placement));
  check_between(options.server_count, 1, kMostServers, "server_count");
  set(options.width, options.server_count);
  if (options.width > options.server_count)
    refuse(fmt::format("width is {}, and there are {} servers", options.width, options.server_count));
  const bool raid0 = options.strategy == TANDEM_STORAGE_RAID0;
  if (raid0 && options.parity_count != 0)
    refuse(fmt::format("parity_count is {}: RAID0 has none", options.parity_count));
  if (!raid0 && options.parity_count == 0) refuse("parity_count is 0: every strategy but RAID0 has parity");
  if (options.parity_count >= options.width)
    refuse(fmt::format("parity_count is {}, and a row has {} servers", options.parity_count, options.width));
  if (raid0 && options.width > kMostServers - 1)  // the plan of a write has at least one parity unit
    throw Error(TANDEM_ERROR_TOO_LARGE, fmt::format("width is {}, at most {}", options.width, kMostServers - 1));
  check_between(options.client_count, 1, kMostClients, "client_count");
  set(options.clients_per_application, 147U);
  set(options.writes_per_window, 1U);
  check_between(options.clients_per_application, 1, kMostClients, "clients_per_application");
  set(options.unit_bytes, std::uint64_t{1} << 20);
  set(options.write_bytes, std::uint64_t{128} << 10);
  check_between(options.unit_bytes, kBlock, kMostUnit, "unit_bytes");
  check_between(options.write_bytes, kBlock, kMostUnit, "write_bytes");
  for (const auto &[bytes, name] : {std::pair{options.unit_bytes, "unit_bytes"}, {options.write_bytes, "write_bytes"}})
    if (bytes % kBlock != 0) refuse(fmt::format("{} is {}, which is no multiple of {}", name, bytes, kBlock));
  if (options.unit_bytes % options.write_bytes != 0 && options.write_bytes % options.unit_bytes != 0)
    refuse(fmt::format("write_bytes is {}: neither a divisor nor a multiple of unit_bytes, {}", options.write_bytes,
                       options.unit_bytes));
  check_number(options.server_link_bytes_per_second, 1e18, "server_link_bytes_per_second");
  check_number(options.client_link_bytes_per_second, 1e18, "client_link_bytes_per_second");
  check_number(options.latency_seconds, 1e6, "latency_seconds");
  set(options.most_seconds, 1000.0);
  check_number(options.most_seconds, 1e9, "most_seconds");
  check_number(options.confidence, 1, "confidence");
  check_requests(options);
  return options;
}

void check_capacity(const tandem_storage_options &options, const Device &device) {
  constexpr std::uint64_t kMostCapacity = std::uint64_t{1} << 46;
  if (device.capacity_bytes() == 0) return;
  check_between(device.capacity_bytes(), options.unit_bytes, kMostCapacity, "capacity_bytes");
}

}  // namespace
}  // namespace tandem::storage

using namespace tandem::storage;

extern "C" tandem_status tandem_storage_named_device(const char *name, tandem_storage_device *device_out) {
  return guarded([&] {
    check_given(name, "name");
    check_given(device_out, "device_out");
    tandem::base::check_result(device_out, "tandem_storage_device");
    if (name == std::string_view("hdd")) return tandem::base::write_result(hdd(), device_out, "tandem_storage_device");
    if (name == std::string_view("ssd")) return tandem::base::write_result(ssd(), device_out, "tandem_storage_device");
    refuse(fmt::format("no device is called {}; there are hdd and ssd", name));
  });
}

extern "C" tandem_status tandem_storage_simulate(const tandem_storage_options *options,
                                                 tandem_storage_result *result_out) {
  return guarded([&] {
    check_given(options, "options");
    const tandem_storage_options ours = checked(tandem::base::read_options(options, "options"));
    check_given(result_out, "result_out");
    tandem::base::check_result(result_out, "tandem_storage_result");
    check_given(ours.device, "device");
    const Device device(tandem::base::read_options(ours.device, "device"));
    check_capacity(ours, device);
    tandem::base::write_result(Model(ours, device).run(), result_out, "tandem_storage_result");
  });
}
