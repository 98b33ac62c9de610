// SPDX-License-Identifier: Apache-2.0
// The storage simulator: counts, exact times, laws of all systems, and bad input.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "bench/simulate/storage/model.hpp"

namespace tandem::test {
namespace {

using namespace bench::storage;

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB;

DeviceFigures constant(double read_seconds, double write_seconds) {
  DeviceFigures device;
  device.read_seconds = read_seconds;
  device.write_seconds = write_seconds;
  return device;
}

Options options_of(Strategy strategy, std::uint32_t servers, std::uint32_t parities, std::uint32_t clients) {
  Options options;
  options.strategy = strategy;
  options.server_count = servers;
  options.parity_count = strategy == Strategy::raid0 ? 0 : parities;
  options.client_count = clients;
  options.seed = 7;
  return options;
}

Result run(const Options &options, const DeviceFigures &figures) {
  const Device device(figures);
  return Model(options, device).run();
}

constexpr Strategy kStrategies[] = {Strategy::raid0, Strategy::standard, Strategy::avoid, Strategy::delayed,
                                    Strategy::delayed_move};

double operations_per_write(const Result &result) {
  return static_cast<double>(result.data_read_count + result.data_write_count + result.parity_read_count +
                             result.parity_write_count + result.move_write_count) /
         static_cast<double>(result.write_count);
}

// Units of 8 writes. Delayed, in windows of many rows: one write, 1/8 read, and of each row of 8 k writes m parities.
// Then 1/8 write more for the move. Mont-Blanc D4.6, section 2.
TEST(Storage, OperationsOfAWriteInClosedForm) {
  const DeviceFigures device = constant(1e-3, 1e-3);
  constexpr std::uint32_t kServers = 32;
  for (const std::uint32_t m : {1U, 2U, 3U}) {
    const double k = kServers - m, delayed = 1 + 1.0 / 8 + m / (8 * k);
    const double expected[] = {1, 2.0 + 2 * m, 1 + 2.0 * m, delayed, delayed + 1.0 / 8};
    for (const Strategy strategy : kStrategies)
      for (const auto placement : {Placement::scattered, Placement::interleaved}) {
        auto options = options_of(strategy, kServers, m, 64);
        options.placement = placement;
        options.clients_per_application = 32;
        options.writes_per_window = 160;  // 20 rows and more
        options.most_seconds = 12;
        const Result result = run(options, device);
        // In a file, the first write to a range of a row finds zeros alone, and the next m find few columns to read.
        const bool fills_rows = strategy == Strategy::avoid && placement == Placement::interleaved;
        const double wanted = expected[static_cast<int>(strategy)] - (fills_rows ? m * (m + 1) / (2 * k) : 0);
        EXPECT_NEAR(operations_per_write(result) / wanted, 1, 0.01)
            << "strategy " << static_cast<int>(strategy) << ", m " << m << ", placement "
            << static_cast<int>(placement);
      }
  }
}

TEST(Storage, EachKindOfOperation) {
  const DeviceFigures device = constant(1e-3, 1e-3);
  const auto near = [](std::uint64_t count, double per_write, const Result &result, const char *what) {
    EXPECT_NEAR(static_cast<double>(count), per_write * static_cast<double>(result.write_count),
                0.01 * static_cast<double>(result.write_count))
        << what;
  };
  const auto run_strategy = [&](Strategy strategy) {
    auto options = options_of(strategy, 16, 2, 64);
    options.most_seconds = 20;
    return run(options, device);
  };
  auto result = run_strategy(Strategy::standard);
  near(result.data_read_count, 1, result, "standard, data reads");
  near(result.data_write_count, 1, result, "standard, data writes");
  near(result.parity_read_count, 2, result, "standard, parity reads");
  near(result.parity_write_count, 2, result, "standard, parity writes");
  near(result.parity_update_count, 1, result, "standard, parity updates");
  near(result.request_count, 3, result, "standard, requests");
  result = run_strategy(Strategy::avoid);
  EXPECT_EQ(result.data_read_count, 0U);
  near(result.parity_read_count, 2, result, "avoid, parity reads");
  near(result.parity_write_count, 2, result, "avoid, parity writes");
  result = run_strategy(Strategy::raid0);
  EXPECT_EQ(result.data_read_count + result.parity_read_count + result.parity_write_count, 0U);
  near(result.data_write_count, 1, result, "raid0, data writes");
  // A write of a whole row: its parity needs no read.
  auto options = options_of(Strategy::standard, 6, 2, 8);
  options.most_seconds = 20;
  options.unit_bytes = 64 * kKiB;
  options.write_bytes = 256 * kKiB;
  options.placement = Placement::interleaved;
  result = run(options, device);
  EXPECT_EQ(result.data_read_count + result.parity_read_count, 0U);
  near(result.parity_write_count, 2, result, "full rows, parity writes");
  // A write of three of four columns reads the fourth, in every row.
  options.write_bytes = 192 * kKiB;
  options.unit_bytes = 64 * kKiB;
  result = run(options, device);
  EXPECT_GT(result.data_read_count, 0U);
  EXPECT_EQ(result.parity_read_count, 0U);
}

// 250,000 clients in applications of 147: one parity update for each application.
TEST(Storage, ParityUpdatesOfTheReport) {
  const DeviceFigures device = constant(1e-4, 1e-4);
  auto options = options_of(Strategy::delayed, 512, 1, 34 * 147);
  options.write_bytes = 16 * kKiB;
  options.most_seconds = 1;
  const Result result = run(options, device);
  const double per_iteration =
      static_cast<double>(result.parity_update_count) / static_cast<double>(result.write_count) * 250'000;
  EXPECT_NEAR(per_iteration, 1700, 0.02 * 1700);
}

TEST(Storage, OneServerAndOneClientAreExact) {
  const DeviceFigures device = constant(3e-3, 5e-3);
  auto options = options_of(Strategy::raid0, 1, 0, 1);
  options.client_link_bytes_per_second = 128.0 * kKiB / 0.25e-3;
  options.server_link_bytes_per_second = 128.0 * kKiB / 0.5e-3;
  options.latency_seconds = 0.125e-3;
  options.most_seconds = 60;
  const double each = 0.25e-3 + 0.125e-3 + 0.5e-3 + 5e-3 + 0.125e-3;
  const Result result = run(options, device);
  EXPECT_NEAR(result.write_seconds, each, 1e-12);
  // Whole writes in the measured time: those that ended in it.
  EXPECT_NEAR(static_cast<double>(result.write_count), result.measured_seconds / each, 1);
  EXPECT_EQ(result.simulated_seconds, 60);
  EXPECT_NEAR(result.queue_length, 5e-3 / each, 1e-3);
  EXPECT_NEAR(result.utilisation, 5e-3 / each, 1e-3);
}

// One client and one parity: the data and the parity one after the other (the difference has to be read
// first), or side by side.
TEST(Storage, OneClientAndItsParityAreExact) {
  const DeviceFigures device = constant(3e-3, 5e-3);
  auto options = options_of(Strategy::standard, 5, 1, 1);
  options.latency_seconds = 1e-3;
  options.most_seconds = 60;
  // The client's message, the read, the difference, read and write of the parity, the answer.
  EXPECT_NEAR(run(options, device).write_seconds, 1e-3 + 3e-3 + 1e-3 + 8e-3 + 1e-3, 1e-12);
  options.strategy = Strategy::avoid;
  EXPECT_NEAR(run(options, device).write_seconds, 1e-3 + 8e-3 + 1e-3, 1e-12);
  options.strategy = Strategy::delayed;
  EXPECT_NEAR(run(options, device).write_seconds, 1e-3 + 5e-3 + 1e-3, 1e-12);
  // One of two columns: the parity waits for the other one, which is read.
  options.strategy = Strategy::standard;
  options.width = 3;
  options.unit_bytes = options.write_bytes;
  EXPECT_NEAR(run(options, device).write_seconds, 1e-3 + 3e-3 + 1e-3 + 5e-3 + 1e-3, 1e-12);
}

TEST(Storage, LittlesLaw) {
  for (const char *name : {"hdd", "ssd"})
    for (const Strategy strategy : kStrategies) {
      const DeviceFigures device = name[0] == 'h' ? hdd() : ssd();
      auto options = options_of(strategy, 24, 2, 300);
      options.clients_per_application = 30;
      options.server_link_bytes_per_second = options.client_link_bytes_per_second = 1.25e9;
      options.latency_seconds = 50e-6;
      options.most_seconds = name[0] == 'h' ? 100 : 4;
      const Result result = run(options, device);
      const double arrivals = static_cast<double>(result.request_count) / result.measured_seconds;
      EXPECT_NEAR(result.queue_length / (arrivals * result.request_seconds), 1, 0.01)
          << name << ' ' << static_cast<int>(strategy);
      // The clients are a closed system: each waits for its write, or with delayed parity for the end of the window.
      const double writing = result.bytes_per_second / (128.0 * kKiB) * result.write_seconds;
      if (strategy < Strategy::delayed) {
        EXPECT_NEAR(writing / 300, 1, 0.01) << name << ' ' << static_cast<int>(strategy);
      } else {
        EXPECT_LT(writing, 300) << name << ' ' << static_cast<int>(strategy);
      }
    }
}

TEST(Storage, AReadIsExact) {
  const DeviceFigures device = constant(3e-3, 5e-3);
  auto options = options_of(Strategy::raid0, 1, 0, 1);
  options.read_part = 0.25;
  options.client_link_bytes_per_second = 128.0 * kKiB / 0.25e-3;
  options.server_link_bytes_per_second = 128.0 * kKiB / 0.5e-3;
  options.latency_seconds = 0.125e-3;
  options.most_seconds = 600;
  const Result result = run(options, device);
  // The request, the read, the data over both links.
  EXPECT_NEAR(result.read_seconds, 0.125e-3 + 3e-3 + 0.5e-3 + 0.125e-3 + 0.25e-3, 1e-12);
  EXPECT_NEAR(result.write_seconds, 0.25e-3 + 0.125e-3 + 0.5e-3 + 5e-3 + 0.125e-3, 1e-12);
  const auto all = static_cast<double>(result.read_count + result.write_count);
  EXPECT_NEAR(static_cast<double>(result.read_count) / all, 0.25, 0.01);
  EXPECT_EQ(result.data_read_count, 0U) << "reads of clients are not I/Os of writes";
}

// Sizes of 32 and 96 KiB on the average have the bytes of 64 KiB, and the same I/Os; with reads too.
TEST(Storage, MixedSizesAndReadsKeepTheCountsOfAWrite) {
  const DeviceFigures device = constant(1e-3, 1e-3);
  constexpr double kWanted[] = {1, 6, 5};
  for (const Strategy strategy : kStrategies) {
    auto options = options_of(strategy, 32, 2, 64);
    options.clients_per_application = 32;
    options.writes_per_window = 40;
    options.write_bytes = 128 * kKiB;
    options.mixed_bytes = {32 * kKiB, 64 * kKiB, 128 * kKiB, 32 * kKiB};
    options.read_part = 0.3;
    options.most_seconds = 60;
    const Result result = run(options, device);
    const auto writes = static_cast<double>(result.write_count);
    EXPECT_NEAR(result.bytes_per_second * result.measured_seconds / writes, 64 * kKiB, kKiB);
    if (strategy < Strategy::delayed) {
      EXPECT_NEAR(operations_per_write(result), kWanted[static_cast<int>(strategy)], 0.01);
    } else {
      // Each unit that a window wrote is read once: 16 writes fill it. A write may touch two units.
      EXPECT_GT(operations_per_write(result), 1.05);
      EXPECT_LT(operations_per_write(result), 1.3);
    }
    EXPECT_NEAR(static_cast<double>(result.read_count) / (static_cast<double>(result.read_count) + writes), 0.3, 0.02);
  }
}

// RAID-4: one server reads and writes the parity of all rows.
TEST(Storage, DedicatedParityIsTheBusiestServer) {
  const DeviceFigures device = constant(1e-3, 1e-3);
  auto options = options_of(Strategy::standard, 8, 1, 64);
  options.most_seconds = 60;
  const Result rotated = run(options, device);
  EXPECT_LT(rotated.most_utilisation, 1.1 * rotated.utilisation);
  options.dedicated_parity = true;
  const Result dedicated = run(options, device);
  EXPECT_GT(dedicated.most_utilisation, 0.99);
  EXPECT_NEAR(dedicated.utilisation, 2.0 / 8, 0.01);
  EXPECT_NEAR(dedicated.bytes_per_second / (128 * kKiB), 500, 5) << "a read and a write of the parity, 1 ms each";
}

// A disk alone: seek, rotation, transfer as the mean of random places says.
TEST(Storage, TheDiskOfTheDataSheet) {
  const DeviceFigures device = hdd();
  const double rate = device.write_bytes_per_second, revolution = device.revolution_seconds;
  EXPECT_NEAR(revolution, 8.333e-3, 1e-5);
  auto options = options_of(Strategy::raid0, 1, 0, 1);
  options.most_seconds = 1000;
  const double write = device.write_seconds + device.write_seeks.average + revolution / 2 + 128 * kKiB / rate;
  EXPECT_NEAR(run(options, device).write_seconds / write, 1, 0.02);
  // Read, then write the same place: a revolution later.
  options = options_of(Strategy::standard, 6, 1, 1);
  options.most_seconds = 1000;
  const double read = device.read_seconds + device.read_seeks.average + revolution / 2 + 128 * kKiB / rate;
  EXPECT_NEAR(run(options, device).write_seconds / (2 * read + revolution), 1, 0.02);
}

TEST(Storage, TheSsdOfTheDataSheet) {
  const DeviceFigures device = ssd();
  for (const auto &[bytes, rate] : {std::pair{4 * kKiB, 36'000 * 4096.0}, {4 * kMiB, 460e6}}) {
    auto options = options_of(Strategy::raid0, 1, 0, 64);
    options.unit_bytes = options.write_bytes = bytes;
    options.most_seconds = bytes < kMiB ? 4 : 100;
    EXPECT_NEAR(run(options, device).bytes_per_second / rate, 1, 0.02) << bytes;
  }
}

TEST(Storage, MeasuredLatencies) {
  const std::vector<Latency> points = {
      {64 * kKiB, 0, 1e-3, true},
      {64 * kKiB, 1, 3e-3, true},
      {128 * kKiB, 0.5, 6e-3, true},
      {64 * kKiB, 0.5, 1e-3, false},
  };
  DeviceFigures device;
  device.kind = Kind::measured;
  device.latencies = points;
  const auto seconds = [&](std::uint64_t bytes) {
    auto options = options_of(Strategy::raid0, 1, 0, 1);
    options.unit_bytes = options.write_bytes = bytes;
    return run(options, device).write_seconds;
  };
  EXPECT_NEAR(seconds(64 * kKiB), 2e-3, 0.02e-3) << "uniform between 1 and 3 ms";
  EXPECT_NEAR(seconds(4 * kKiB), 2e-3, 0.02e-3) << "as the smallest";
  EXPECT_NEAR(seconds(96 * kKiB), 4e-3, 0.02e-3) << "between the two sizes";
  EXPECT_NEAR(seconds(512 * kKiB), 24e-3, 0.1e-3) << "four of the largest";
}

TEST(Storage, TheSameSeedGivesTheSameResult) {
  const DeviceFigures device = hdd();
  auto options = options_of(Strategy::delayed, 16, 1, 200);
  options.confidence = 0.02;
  const Result first = run(options, device), again = run(options, device);
  EXPECT_EQ(first.event_count, again.event_count);
  EXPECT_EQ(first.bytes_per_second, again.bytes_per_second);
  EXPECT_LE(first.confidence, 0.02);
  EXPECT_LT(first.simulated_seconds, 1000);
  options.seed = 8;
  EXPECT_NE(run(options, device).event_count, first.event_count);
}

TEST(Storage, StopsWhenToldTo) {
  const DeviceFigures device = constant(1e-3, 1e-3);
  auto options = options_of(Strategy::raid0, 4, 0, 100);
  options.most_seconds = 1e9;
  int calls = 0;
  options.progress = [&](double part, double) {
    EXPECT_GE(part, 0);
    EXPECT_LE(part, 1);
    if (++calls == 3) throw std::runtime_error("enough");
  };
  EXPECT_THROW(run(options, device), std::runtime_error);
  EXPECT_EQ(calls, 3);
}

TEST(Storage, TooShortARunToTell) {
  const DeviceFigures device = constant(10, 10);
  auto options = options_of(Strategy::raid0, 4, 0, 2);
  options.most_seconds = 1;
  const Result result = run(options, device);
  EXPECT_EQ(result.write_count, 0U);
  EXPECT_EQ(result.bytes_per_second, 0);
  EXPECT_EQ(result.confidence, 1);
}

class StorageBadInput : public testing::Test {
 protected:
  DeviceFigures device_ = constant(1e-3, 1e-3);
  Options options_ = options_of(Strategy::standard, 8, 1, 10);

  void SetUp() override { options_.most_seconds = 1; }

  // Changes one thing, and wants to hear of it.
  template <class Change>
  void refused(Change change, const std::string &text) {
    const Options options = options_;
    const DeviceFigures device = device_;
    change();
    try {
      run(options_, device_);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const base::Error &error) {
      EXPECT_EQ(error.status(), TANDEM_ERROR_INVALID_ARGUMENT) << text;
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
    options_ = options;
    device_ = device;
  }
};

TEST_F(StorageBadInput, Options) {
  run(options_, device_);
  refused([&] { options_.server_count = 0; }, "--servers is 0, at least 1");
  refused([&] { options_.server_count = 65537; }, "--servers is 65537, at most 65536");
  refused([&] { options_.width = 9; }, "--width is 9, and there are 8 servers");
  refused([&] { options_.parity_count = 8; }, "--parity is 8, and a row has 8 servers");
  refused([&] { options_.parity_count = 0; }, "--parity is 0");
  refused([&] { options_.strategy = Strategy::raid0; }, "RAID0 has none");
  refused([&] { options_.client_count = 0; }, "--clients is 0");
  refused([&] { options_.clients_per_application = 0; }, "--application is 0");
  refused([&] { options_.writes_per_window = 0; }, "--window is 0");
  refused([&] { options_.client_count = UINT32_MAX; }, "--clients is 4294967295");
  refused([&] { options_.unit_bytes = 100; }, "--unit is 100, at least 4096");
  refused([&] { options_.unit_bytes = 6000; }, "--unit is 6000, which is no multiple of 4096");
  refused([&] { options_.unit_bytes = UINT64_MAX; }, "--unit is 18446744073709551615");
  refused([&] { options_.write_bytes = 768 * kKiB; }, "neither a divisor nor a multiple");
  refused(
      [&] {
        options_.strategy = Strategy::delayed;
        options_.writes_per_window = UINT32_MAX;
      },
      "10 clients may have");
  refused(
      [&] {
        options_.client_count = 1 << 24;
        options_.write_bytes = 64 * kMiB;
      },
      "16777216 clients may have");
  refused([&] { options_.mixed_bytes = {2048}; }, "a size of --mix is 2048, at least 4096");
  refused([&] { options_.mixed_bytes = {64 * kKiB, 256 * kKiB}; }, "a size of --mix is 262144, at most 131072");
  refused([&] { options_.mixed_bytes = {12 * kKiB}; }, "--size is 12288: no divisor of --unit");
  refused(
      [&] {
        options_.mixed_bytes = {64 * kKiB};
        options_.placement = Placement::interleaved;
      },
      "--mix needs scattered writes");
  refused([&] { options_.read_part = 1; }, "--reads is 1");
  refused([&] { options_.latency_seconds = -1; }, "--latency is -1");
  refused([&] { options_.latency_seconds = std::nan(""); }, "--latency is nan");
  refused([&] { options_.server_link_bytes_per_second = std::numeric_limits<double>::infinity(); }, "--link is inf");
  refused([&] { options_.most_seconds = -5; }, "--seconds is -5");
  refused([&] { options_.confidence = 2; }, "--confidence is 2");
}

TEST_F(StorageBadInput, Devices) {
  refused([&] { device_.channel_count = 0; }, "channel_count is 0");
  refused([&] { device_.channel_count = 1 << 20; }, "channel_count is 1048576");
  refused([&] { device_.write_seconds = 0; }, "takes no time");
  refused([&] { device_.read_seconds = -1; }, "read_seconds is -1 s");
  device_ = hdd();
  refused([&] { device_.channel_count = 2; }, "a disk has one");
}

TEST_F(StorageBadInput, Latencies) {
  device_ = {};
  device_.kind = Kind::measured;
  std::vector<Latency> &points = device_.latencies;
  points = {{4096, 0.5, 1e-3, false}, {4096, 0.5, 1e-3, true}, {4096, 1, 2e-3, true}};
  run(options_, device_);
  refused([&] { points[2].seconds = 0; }, "a latency of 4096 bytes is 0 s");
  refused([&] { points[2].seconds = 2e6; }, "a latency is 2000000 s");
  refused([&] { points.resize(1); }, "takes no time");
}

}  // namespace
}  // namespace tandem::test
