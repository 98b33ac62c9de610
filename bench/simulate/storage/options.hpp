// SPDX-License-Identifier: Apache-2.0
// What a simulated storage system is, besides its devices.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace tandem::bench::storage {

// How parity is computed.
enum class Strategy {
  raid0,        // no parity
  standard,     // by each write, which does not know what is zero
  avoid,        // by each write, and writes go to unwritten places
  delayed,      // at the end of each window of an application
  delayed_move  // the same, and the data moves to its final place
};

// Where the writes of an application's clients go. Delayed parity always uses interleaved: the layer that holds the
// data of a window chooses the place.
enum class Placement {
  scattered,   // each write to a random place of a random row
  interleaved  // one after the other in the application's file
};

struct Options {
  Strategy strategy = Strategy::raid0;
  Placement placement = Placement::scattered;
  std::uint32_t server_count = 0;
  std::uint32_t width = 0;         // servers of a row, data and parity; 0 = server_count
  std::uint32_t parity_count = 0;  // of each row: 1 is RAID-5, 2 is RAID-6; raid0: 0
  std::uint32_t client_count = 0;
  std::uint32_t clients_per_application = 147;
  std::uint32_t writes_per_window = 1;                   // of each client between two hints, with delayed parity
  std::uint64_t unit_bytes = std::uint64_t{1} << 20;     // of a row on one server
  std::uint64_t write_bytes = std::uint64_t{128} << 10;  // a divisor or a multiple of unit_bytes
  std::vector<std::uint64_t> mixed_bytes;   // each write and read has one of these sizes; empty: write_bytes
  double read_part = 0;                     // of the operations of a client: reads of scattered places
  bool dedicated_parity = false;            // the parity of all rows on the same servers, as in RAID-4
  double server_link_bytes_per_second = 0;  // each way; 0 = no limit
  double client_link_bytes_per_second = 0;  // 0 = no limit
  double latency_seconds = 0;               // of each message
  double most_seconds = 1000;               // simulated time, warm-up included
  // Stop when half the 95 % interval of the rate is at most this part of the rate; 0 = simulate most_seconds.
  double confidence = 0;
  std::uint64_t seed = 0;  // the same options and seed give the same result
  // Receives the progress every few hundredths of a second: an estimate of the part that is done, and the simulated
  // time. An exception ends the simulation.
  std::function<void(double part, double simulated_seconds)> progress;
};

// The options with their width. Throws Error (INVALID_ARGUMENT) with the value that is wrong.
Options checked(Options options);

}  // namespace tandem::bench::storage
