// SPDX-License-Identifier: Apache-2.0
// Streams full stripes to a new volume, and the same bytes to plain striping over as many files. Alternates both; each
// round has new files. Writes JSON to standard output. A volume can reach k/(k+m) of plain striping: the rest is
// parity.
//   volume_stream FOLDER [K M UNIT_KIB MIB THREADS ROUNDS]
// FOLDER: for the members, for instance in /dev/shm. The program removes only the files that it made there.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tandem/volume.h"

namespace {

struct Shape {
  std::uint32_t k = 4, m = 2, unit_bytes = 1 << 20;
  std::uint64_t bytes = 512 << 20;  // of data
  unsigned threads = 2, rounds = 7;
};

void require(bool holds, const std::string &what) {
  if (!holds) throw std::runtime_error(what);
}
void check(tandem_status status) { require(status == TANDEM_OK, tandem_last_error_message()); }

// Calls work(first, end) on each thread with its share of `count` and returns the seconds until all have ended.
double seconds_of(unsigned threads, std::uint64_t count,
                  const std::function<void(std::uint64_t, std::uint64_t)> &work) {
  const auto began = std::chrono::steady_clock::now();
  std::vector<std::thread> others;
  for (unsigned t = 0; t < threads; ++t)
    others.emplace_back([&, t] { work(count * t / threads, count * (t + 1) / threads); });
  for (std::thread &each : others) each.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

// Data unit u goes to file u mod n.
double plain(const Shape &shape, const std::vector<std::string> &names, const std::vector<char> &stripe) {
  std::vector<int> files;
  for (const std::string &name : names) {
    files.push_back(open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
    require(files.back() != -1, "cannot make " + name);
  }
  const double seconds =
      seconds_of(shape.threads, shape.bytes / shape.unit_bytes, [&](std::uint64_t first, std::uint64_t end) {
        for (std::uint64_t unit = first; unit < end; ++unit)
          if (pwrite(files[unit % files.size()], stripe.data() + unit % shape.k * shape.unit_bytes, shape.unit_bytes,
                     static_cast<off_t>(unit / files.size() * shape.unit_bytes)) != shape.unit_bytes)
            std::abort();
      });
  for (const int file : files) close(file);
  return seconds;
}

double volume(const Shape &shape, const std::vector<std::string> &names, const std::vector<char> &stripe) {
  std::vector<const char *> members;
  for (const std::string &name : names) members.push_back(name.c_str());
  tandem_volume_create_options made{};
  made.struct_bytes = sizeof made;
  made.members = members.data();
  made.member_count = members.size();
  made.k = shape.k;
  made.m = shape.m;
  made.unit_bytes = shape.unit_bytes;
  // Space for table and log; sparse. The log of a member of less than 512 MiB is shorter than the usual 32 MiB.
  made.member_bytes = shape.bytes / shape.k * 102 / 100 + (std::uint64_t{1} << 30);
  check(tandem_volume_create(&made));
  tandem_volume_open_options options{};
  options.struct_bytes = sizeof options;
  options.members = members.data();
  options.member_count = members.size();
  tandem_volume *open = nullptr;
  check(tandem_volume_open(nullptr, &options, &open));
  const std::uint64_t stripe_bytes = stripe.size();
  const double seconds =
      seconds_of(shape.threads, shape.bytes / stripe_bytes, [&](std::uint64_t first, std::uint64_t end) {
        for (std::uint64_t each = first; each < end; ++each)
          if (tandem_volume_write(open, each * stripe_bytes, stripe.data(), stripe_bytes) != TANDEM_OK) std::abort();
        if (tandem_volume_flush(open) != TANDEM_OK) std::abort();
      });
  check(tandem_volume_close(open));
  return seconds;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int run(const std::string &folder, Shape shape) {
  const std::uint64_t stripe_bytes = std::uint64_t{shape.k} * shape.unit_bytes;
  shape.bytes -= shape.bytes % stripe_bytes;
  std::vector<char> stripe(stripe_bytes);
  for (std::size_t i = 0; i < stripe.size(); ++i) stripe[i] = static_cast<char>(i * i >> 7);
  std::vector<std::string> names;
  for (std::uint32_t i = 0; i < shape.k + shape.m; ++i)
    names.push_back(folder + "/tandem-stream-" + std::to_string(getpid()) + "-" + std::to_string(i));
  const auto remove_all = [&] {
    for (const std::string &name : names) std::filesystem::remove(name);
  };
  std::vector<double> plain_seconds, volume_seconds, ratios;
  try {
    for (unsigned round = 0; round < shape.rounds; ++round) {
      plain_seconds.push_back(plain(shape, names, stripe));
      remove_all();
      volume_seconds.push_back(volume(shape, names, stripe));
      remove_all();
      ratios.push_back(plain_seconds.back() / volume_seconds.back());
    }
  } catch (...) {
    remove_all();
    throw;
  }
  const double part = shape.k / static_cast<double>(shape.k + shape.m), gigabytes = shape.bytes / 1e9;
  std::printf(
      "{\"k\": %u, \"m\": %u, \"unit_bytes\": %u, \"bytes\": %llu, \"threads\": %u, \"rounds\": %u,\n"
      " \"plain_gb_per_second\": %.3f, \"volume_gb_per_second\": %.3f,\n"
      " \"of_plain\": %.3f, \"of_what_parity_leaves\": %.3f}\n",
      shape.k, shape.m, shape.unit_bytes, static_cast<unsigned long long>(shape.bytes), shape.threads, shape.rounds,
      gigabytes / median(plain_seconds), gigabytes / median(volume_seconds), median(ratios), median(ratios) / part);
  return 0;
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 2 && argc != 8) {
    std::fprintf(stderr, "usage: %s FOLDER [K M UNIT_KIB MIB THREADS ROUNDS]\n", argv[0]);
    return 2;
  }
  Shape shape;
  if (argc == 8) {
    const auto number = [&](int i) { return static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10)); };
    shape = {number(2), number(3), number(4) << 10, std::uint64_t{number(5)} << 20, number(6), number(7)};
    if (shape.k == 0 || shape.unit_bytes == 0 || shape.threads == 0 || shape.rounds == 0 ||
        shape.bytes < std::uint64_t{shape.k} * shape.unit_bytes) {
      std::fprintf(stderr, "an argument is 0, or the data is shorter than a stripe\n");
      return 2;
    }
  }
  try {
    return run(argv[1], shape);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
