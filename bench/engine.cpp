// SPDX-License-Identifier: Apache-2.0
#include "bench/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/case.hpp"
#include "bench/report.hpp"
#include "tandem/tools.h"

namespace tandem::bench {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// The codes of the project's figures.
constexpr std::pair<unsigned, unsigned> kCodes[] = {{4, 2},  {6, 3},   {8, 4},  {10, 4},  {12, 4},  {16, 4},
                                                    {10, 8}, {20, 10}, {32, 8}, {32, 32}, {64, 16}, {128, 32}};

std::vector<std::pair<unsigned, unsigned>> codes_of(const CodesRequest &request) {
  std::vector<std::pair<unsigned, unsigned>> codes;
  if (request.codes.empty()) codes.emplace_back(request.k, request.m);
  for (const std::string &text : request.codes) {
    if (text == "all") {
      codes.insert(codes.end(), std::begin(kCodes), std::end(kCodes));
      continue;
    }
    unsigned k = 0, m = 0;
    int used = 0;
    if (std::sscanf(text.c_str(), "%3u+%3u%n", &k, &m, &used) != 2 || static_cast<std::size_t>(used) != text.size())
      refuse(fmt::format("--code {}: write it as 10+4, or all", text));
    codes.emplace_back(k, m);
  }
  for (const auto &[k, m] : codes) {
    if (k == 0 || m == 0) refuse(fmt::format("code {}+{}: there is nothing to compute", k, m));
  }
  return codes;
}

// The length of the shards of a working set: whole cache lines; one byte less if odd.
std::size_t shard_bytes_of(std::size_t size_bytes, std::size_t shard_count, bool odd) {
  constexpr std::size_t kLineBytes = 64;
  const std::size_t lines = size_bytes / shard_count / kLineBytes;
  const std::size_t bytes = lines * kLineBytes - (odd ? 1 : 0);
  if (lines == 0) refuse(fmt::format("--size {} is less than 64 bytes for each of {} shards", size_bytes, shard_count));
  return bytes;
}

// A stripe that fits a core's second-level cache is coded again and again. Larger stripes take turns over rotate_bytes.
std::size_t stripe_count_of(std::size_t stripe_bytes, std::size_t rotate_bytes, const MachineFacts &machine,
                            unsigned thread_count) {
  const std::size_t l2_bytes = machine.l2_bytes != 0 ? machine.l2_bytes : kMiB;
  return stripe_bytes <= l2_bytes * thread_count ? 1 : std::max<std::size_t>(1, rotate_bytes / stripe_bytes);
}

PacketLayout packets_of(const CodesRequest &request) {
  if (request.layout != "packets") {
    if (request.word_bits != 0 || request.packet_bytes != 0)
      refuse("--word-bits and --packet-bytes are for --layout packets");
    return {};
  }
  if (request.packet_bytes == 0) refuse("--layout packets needs --packet-bytes, a multiple of 8");
  if (request.odd) refuse("--odd: packets have no odd lengths");
  return {request.word_bits != 0 ? request.word_bits : 8, request.packet_bytes};
}

// Every combination of the axes. The code changes fastest, so that a table has one heading for all codes.
std::vector<BenchCase> cases_of(const CodesRequest &request, const MachineFacts &machine, unsigned thread_count) {
  std::vector<BenchCase> cases;
  const PacketLayout packets = packets_of(request);
  const std::size_t group_bytes = std::max<std::size_t>(packets.word_bits * packets.packet_bytes, 1);
  const auto add = [&](BenchCase at, std::size_t stripe_bytes) {
    at.stripe_count = stripe_count_of(stripe_bytes, request.rotate_bytes, machine, thread_count);
    cases.push_back(at);
  };
  const auto codes = codes_of(request);
  std::vector<std::size_t> sizes = request.sizes;
  if (sizes.empty() && request.shard_sizes.empty()) sizes = {512 * 1024, 4 * kMiB};
  for (const std::string &operation : request.operations) {
    for (const std::string &matrix : request.matrices) {
      BenchCase at;
      at.operation = operation_from_name(operation);
      check(tandem_matrix_from_name(matrix.c_str(), &at.matrix));
      at.packets = packets;
      at.odd = request.odd;
      at.loss = request.lost == "random" ? Loss::random : Loss::first;
      if (at.operation == BenchOperation::decode_setup) {
        for (const auto &[k, m] : codes) {
          at.k = k;
          at.m = m;
          cases.push_back(at);
        }
        continue;
      }
      for (const std::string &placement : request.placements) {
        at.placement = placement_from_name(placement);
        for (const std::size_t size : sizes) {
          for (const auto &[k, m] : codes) {
            at.k = k;
            at.m = m;
            // In cache, the size is per thread: each core has its own cache.
            const bool in_cache = stripe_count_of(size, request.rotate_bytes, machine, 1) == 1;
            at.size_bytes = in_cache ? size * thread_count : size;
            at.shard_bytes = shard_bytes_of(at.size_bytes, std::size_t{k} + m, request.odd) / group_bytes * group_bytes;
            if (at.shard_bytes == 0)
              refuse(fmt::format("--size {} is too small for shards of {} bytes ({} packets of {} bytes) with {}+{}",
                                 at.size_bytes, group_bytes, packets.word_bits, packets.packet_bytes, k, m));
            add(at, at.size_bytes);
          }
        }
        at.size_bytes = 0;
        for (const std::size_t shard_size : request.shard_sizes) {
          if (shard_size == 0) refuse("--shard-bytes is 0");
          for (const auto &[k, m] : codes) {
            at.k = k;
            at.m = m;
            at.shard_bytes = request.odd ? (shard_size - 1) | 1 : shard_size;
            add(at, shard_size * (std::size_t{k} + m));
          }
        }
      }
    }
  }
  return cases;
}

// Whether a matrix of the request is over GF(2^8). No peer computes packets.
bool has_peer_code(const CodesRequest &request) {
  if (request.layout == "packets") return false;
  return std::ranges::any_of(request.matrices, [&](const std::string &name) {
    std::int32_t matrix = 0;
    check(tandem_matrix_from_name(name.c_str(), &matrix));
    return (tandem_matrix_traits(matrix) & TANDEM_MATRIX_IS_GF16) == 0;
  });
}

BenchSettings settings_of(const CodesRequest &request) {
  BenchSettings settings;
  settings.clock = request.clock == "cpu" ? BenchClock::cpu : BenchClock::wall;
  settings.repeats = request.repeats;
  settings.seconds = request.seconds;
  settings.seed = request.seed;
  if (request.energy && std::ranges::find(request.operations, "decode-setup") != request.operations.end())
    refuse("--energy: decode-setup is too short to be measured");
  if (request.energy) settings.energy = std::make_shared<EnergyMeters>(open_energy_meters(request.sysfs));
  const bool peer_has_a_code = has_peer_code(request);
  if (!peer_has_a_code && (!request.peer_function.empty() || (!request.peer.empty() && request.peer != "none")))
    refuse("--peer: there is none for codes over GF(2^16), nor for packets");
  if (request.peer != "none" && peer_has_a_code) {
    try {
      settings.peer = Peer::open(request.peer, request.peer_function);
    } catch (const std::runtime_error &error) {
      refuse(error.what());
    }
  }
  return settings;
}

}  // namespace

nlohmann::ordered_json measure_codes(const CodesRequest &request, bool show) {
  BenchSettings settings = settings_of(request);
  const MachineFacts machine = this_machine();
  struct Axis {
    ContextOwner context;
    tandem_context_info info;
    std::vector<BenchCase> cases;
  };
  std::vector<Axis> axes;
  for (const RequestedContext &requested : request.contexts) {
    ContextOwner context = make_context(requested.options);
    const tandem_context_info info = query(context);
    if (settings.clock == BenchClock::cpu && info.thread_count > 1)
      refuse(fmt::format("--clock cpu counts the calling thread alone, and there are {}", info.thread_count));
    // A device has no threads.
    axes.push_back({std::move(context), info, cases_of(request, machine, std::max(info.thread_count, 1u))});
    for (const BenchCase &at : axes.back().cases) {
      if (has_peer(at, settings) && at.shard_bytes % settings.peer->length_unit_bytes() != 0)
        refuse(fmt::format("the peer {} codes multiples of {} bytes, and a shard has {}", settings.peer->function(),
                           settings.peer->length_unit_bytes(), at.shard_bytes));
    }
  }
  std::vector<BenchResult> results;
  BenchTable table(axes.size() > 1);
  if (show) table.begin(machine, settings, axes[0].info);
  for (std::size_t i = 0; i < axes[0].cases.size(); ++i) {  // all contexts soon after each other
    for (std::size_t c = 0; c < axes.size(); ++c) {
      settings.context = request.contexts[c].options;
      results.push_back(run_case(axes[c].cases[i], settings));
      results.back().is_pinned = request.contexts[c].is_pinned;
      results.back().executor = axes[c].info.executor;
      results.back().thread_count = axes[c].info.thread_count;
      if (show) table.add(results.back());
    }
  }
  return bench_json(machine, settings, axes[0].info, results);
}

}  // namespace tandem::bench
