// SPDX-License-Identifier: Apache-2.0
#include "bench/simulate/storage/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "tandem/volume.h"

namespace tandem::bench::storage {
namespace {

[[noreturn]] void refuse(const std::string &message) { base::fail(TANDEM_ERROR_INVALID_ARGUMENT, message); }

void check_between(std::uint64_t value, std::uint64_t least, std::uint64_t most, const char *name) {
  if (value < least) refuse(fmt::format("{} is {}, at least {}", name, value, least));
  if (value > most) refuse(fmt::format("{} is {}, at most {}", name, value, most));
}

void check_number(double value, double most, const char *name) {
  if (!(value >= 0 && value <= most)) refuse(fmt::format("{} is {}: 0 to {} are possible", name, value, most));
}

// Each request under way takes memory. A part of a row has its columns and parity units, and fewer reads than these.
void check_requests(const Options &options) {
  constexpr double kMost = 1 << 26;
  const auto unit = static_cast<double>(options.unit_bytes),
             k = static_cast<double>(options.width - options.parity_count);
  const auto requests = [&](double bytes) {
    const double columns = std::ceil(bytes / unit), rows = std::ceil(columns / k);
    return 2 * columns + 2 * rows * options.parity_count;
  };
  double count = options.client_count * requests(static_cast<double>(options.write_bytes));
  if (options.strategy >= Strategy::delayed) {
    const double clients = std::min(options.client_count, options.clients_per_application);
    const double window = clients * options.writes_per_window * static_cast<double>(options.write_bytes);
    count = std::max(count, options.client_count / clients * requests(window));
  }
  if (count > kMost)
    refuse(fmt::format("{} clients may have {:.0f} requests in flight, at most {:.0f}", options.client_count, count,
                       kMost));
}

}  // namespace

Options checked(Options options) {
  constexpr std::uint64_t kMostServers = 65536, kMostClients = 1 << 24, kMostUnit = 1 << 30,
                          kBlock = TANDEM_VOLUME_BLOCK_BYTES;
  check_between(options.server_count, 1, kMostServers, "--servers");
  if (options.width == 0) options.width = options.server_count;
  if (options.width > options.server_count)
    refuse(fmt::format("--width is {}, and there are {} servers", options.width, options.server_count));
  const bool raid0 = options.strategy == Strategy::raid0;
  if (raid0 && options.parity_count != 0) refuse(fmt::format("--parity is {}: RAID0 has none", options.parity_count));
  if (!raid0 && options.parity_count == 0) refuse("--parity is 0: every strategy but RAID0 has parity");
  if (options.parity_count >= options.width)
    refuse(fmt::format("--parity is {}, and a row has {} servers", options.parity_count, options.width));
  if (raid0 && options.width > kMostServers - 1)  // the plan of a write has at least one parity unit
    refuse(fmt::format("--width is {}, at most {}", options.width, kMostServers - 1));
  check_between(options.client_count, 1, kMostClients, "--clients");
  check_between(options.clients_per_application, 1, kMostClients, "--application");
  check_between(options.writes_per_window, 1, UINT32_MAX, "--window");
  check_between(options.unit_bytes, kBlock, kMostUnit, "--unit");
  check_between(options.write_bytes, kBlock, kMostUnit, "--size");
  for (const auto &[bytes, name] : {std::pair{options.unit_bytes, "--unit"}, {options.write_bytes, "--size"}})
    if (bytes % kBlock != 0) refuse(fmt::format("{} is {}, which is no multiple of {}", name, bytes, kBlock));
  if (options.unit_bytes % options.write_bytes != 0 && options.write_bytes % options.unit_bytes != 0)
    refuse(fmt::format("--size is {}: neither a divisor nor a multiple of --unit, {}", options.write_bytes,
                       options.unit_bytes));
  for (const std::uint64_t bytes : options.mixed_bytes) {
    check_between(bytes, kBlock, std::min(options.unit_bytes, options.write_bytes), "a size of --mix");
    if (options.unit_bytes % bytes != 0) refuse(fmt::format("--size is {}: no divisor of --unit", bytes));
  }
  if (!options.mixed_bytes.empty() && options.placement == Placement::interleaved)
    refuse("--mix needs scattered writes");
  check_number(options.read_part, 0.99, "--reads");
  check_number(options.server_link_bytes_per_second / 1e9, 1e9, "--link");
  check_number(options.client_link_bytes_per_second / 1e9, 1e9, "--client-link");
  check_number(options.latency_seconds, 1e6, "--latency");
  check_number(options.most_seconds, 1e9, "--seconds");
  check_number(options.confidence, 1, "--confidence");
  check_requests(options);
  return options;
}

}  // namespace tandem::bench::storage
