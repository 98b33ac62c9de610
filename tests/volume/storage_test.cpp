// SPDX-License-Identifier: Apache-2.0
// The storage simulator through its API: counts, exact times, laws of all systems, and bad input.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tandem/storage.h"

namespace {

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB;

tandem_storage_device constant(double read_seconds, double write_seconds) {
  tandem_storage_device device{};
  device.struct_bytes = sizeof device;
  device.kind = TANDEM_STORAGE_CONSTANT;
  device.read_seconds = read_seconds;
  device.write_seconds = write_seconds;
  return device;
}

tandem_storage_device named(const char *name) {
  tandem_storage_device device{};
  device.struct_bytes = sizeof device;
  EXPECT_EQ(tandem_storage_named_device(name, &device), TANDEM_OK);
  return device;
}

tandem_storage_options options_of(const tandem_storage_device &device, tandem_storage_strategy strategy,
                                  std::uint32_t servers, std::uint32_t parities, std::uint32_t clients) {
  tandem_storage_options options{};
  options.struct_bytes = sizeof options;
  options.strategy = strategy;
  options.server_count = servers;
  options.parity_count = strategy == TANDEM_STORAGE_RAID0 ? 0 : parities;
  options.client_count = clients;
  options.device = &device;
  options.seed = 7;
  return options;
}

tandem_storage_result run(const tandem_storage_options &options) {
  tandem_storage_result result{};
  result.struct_bytes = sizeof result;
  EXPECT_EQ(tandem_storage_simulate(&options, &result), TANDEM_OK) << tandem_last_error_message();
  return result;
}

double operations_per_write(const tandem_storage_result &result) {
  return static_cast<double>(result.data_read_count + result.data_write_count + result.parity_read_count +
                             result.parity_write_count + result.move_write_count) /
         static_cast<double>(result.write_count);
}

// Units of 8 writes. Delayed, in windows of many rows: one write, 1/8 read, and of each row of 8 k writes m parities.
// Then 1/8 write more for the move. Mont-Blanc D4.6, section 2.
TEST(Storage, OperationsOfAWriteInClosedForm) {
  const tandem_storage_device device = constant(1e-3, 1e-3);
  constexpr std::uint32_t kServers = 32;
  for (const std::uint32_t m : {1U, 2U, 3U}) {
    const double k = kServers - m, delayed = 1 + 1.0 / 8 + m / (8 * k);
    const double expected[] = {1, 2.0 + 2 * m, 1 + 2.0 * m, delayed, delayed + 1.0 / 8};
    for (int strategy = TANDEM_STORAGE_RAID0; strategy <= TANDEM_STORAGE_DELAYED_MOVE; ++strategy)
      for (const auto placement : {TANDEM_STORAGE_SCATTERED, TANDEM_STORAGE_INTERLEAVED}) {
        auto options = options_of(device, strategy, kServers, m, 64);
        options.placement = placement;
        options.clients_per_application = 32;
        options.writes_per_window = 160;  // 20 rows and more
        options.most_seconds = 12;
        const tandem_storage_result result = run(options);
        // In a file, the first write to a range of a row finds zeros alone, and the next m find few columns to read.
        const bool fills_rows = strategy == TANDEM_STORAGE_AVOID && placement == TANDEM_STORAGE_INTERLEAVED;
        const double wanted = expected[strategy] - (fills_rows ? m * (m + 1) / (2 * k) : 0);
        EXPECT_NEAR(operations_per_write(result) / wanted, 1, 0.01)
            << "strategy " << strategy << ", m " << m << ", placement " << placement;
      }
  }
}

TEST(Storage, EachKindOfOperation) {
  const tandem_storage_device device = constant(1e-3, 1e-3);
  const auto near = [](std::uint64_t count, double per_write, const tandem_storage_result &result, const char *what) {
    EXPECT_NEAR(static_cast<double>(count), per_write * static_cast<double>(result.write_count),
                0.01 * static_cast<double>(result.write_count))
        << what;
  };
  const auto run_strategy = [&](tandem_storage_strategy strategy) {
    auto options = options_of(device, strategy, 16, 2, 64);
    options.most_seconds = 20;
    return run(options);
  };
  auto result = run_strategy(TANDEM_STORAGE_STANDARD);
  near(result.data_read_count, 1, result, "standard, data reads");
  near(result.data_write_count, 1, result, "standard, data writes");
  near(result.parity_read_count, 2, result, "standard, parity reads");
  near(result.parity_write_count, 2, result, "standard, parity writes");
  near(result.parity_update_count, 1, result, "standard, parity updates");
  near(result.request_count, 3, result, "standard, requests");
  result = run_strategy(TANDEM_STORAGE_AVOID);
  EXPECT_EQ(result.data_read_count, 0U);
  near(result.parity_read_count, 2, result, "avoid, parity reads");
  near(result.parity_write_count, 2, result, "avoid, parity writes");
  result = run_strategy(TANDEM_STORAGE_RAID0);
  EXPECT_EQ(result.data_read_count + result.parity_read_count + result.parity_write_count, 0U);
  near(result.data_write_count, 1, result, "raid0, data writes");
  // A write of a whole row: its parity needs no read.
  auto options = options_of(device, TANDEM_STORAGE_STANDARD, 6, 2, 8);
  options.most_seconds = 20;
  options.unit_bytes = 64 * kKiB;
  options.write_bytes = 256 * kKiB;
  options.placement = TANDEM_STORAGE_INTERLEAVED;
  result = run(options);
  EXPECT_EQ(result.data_read_count + result.parity_read_count, 0U);
  near(result.parity_write_count, 2, result, "full rows, parity writes");
  // A write of three of four columns reads the fourth, in every row.
  options.write_bytes = 192 * kKiB;
  options.unit_bytes = 64 * kKiB;
  result = run(options);
  EXPECT_GT(result.data_read_count, 0U);
  EXPECT_EQ(result.parity_read_count, 0U);
}

// 250,000 clients in applications of 147: one parity update for each application.
TEST(Storage, ParityUpdatesOfTheReport) {
  const tandem_storage_device device = constant(1e-4, 1e-4);
  auto options = options_of(device, TANDEM_STORAGE_DELAYED, 512, 1, 34 * 147);
  options.write_bytes = 16 * kKiB;
  options.most_seconds = 1;
  const tandem_storage_result result = run(options);
  const double per_iteration =
      static_cast<double>(result.parity_update_count) / static_cast<double>(result.write_count) * 250'000;
  EXPECT_NEAR(per_iteration, 1700, 0.02 * 1700);
}

TEST(Storage, OneServerAndOneClientAreExact) {
  const tandem_storage_device device = constant(3e-3, 5e-3);
  auto options = options_of(device, TANDEM_STORAGE_RAID0, 1, 0, 1);
  options.client_link_bytes_per_second = 128.0 * kKiB / 0.25e-3;
  options.server_link_bytes_per_second = 128.0 * kKiB / 0.5e-3;
  options.latency_seconds = 0.125e-3;
  options.most_seconds = 60;
  const double each = 0.25e-3 + 0.125e-3 + 0.5e-3 + 5e-3 + 0.125e-3;
  const tandem_storage_result result = run(options);
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
  const tandem_storage_device device = constant(3e-3, 5e-3);
  auto options = options_of(device, TANDEM_STORAGE_STANDARD, 5, 1, 1);
  options.latency_seconds = 1e-3;
  options.most_seconds = 60;
  // The client's message, the read, the difference, read and write of the parity, the answer.
  EXPECT_NEAR(run(options).write_seconds, 1e-3 + 3e-3 + 1e-3 + 8e-3 + 1e-3, 1e-12);
  options.strategy = TANDEM_STORAGE_AVOID;
  EXPECT_NEAR(run(options).write_seconds, 1e-3 + 8e-3 + 1e-3, 1e-12);
  options.strategy = TANDEM_STORAGE_DELAYED;
  EXPECT_NEAR(run(options).write_seconds, 1e-3 + 5e-3 + 1e-3, 1e-12);
}

TEST(Storage, LittlesLaw) {
  for (const char *name : {"hdd", "ssd"})
    for (int strategy = TANDEM_STORAGE_RAID0; strategy <= TANDEM_STORAGE_DELAYED_MOVE; ++strategy) {
      const tandem_storage_device device = named(name);
      auto options = options_of(device, strategy, 24, 2, 300);
      options.clients_per_application = 30;
      options.server_link_bytes_per_second = options.client_link_bytes_per_second = 1.25e9;
      options.latency_seconds = 50e-6;
      options.most_seconds = name[0] == 'h' ? 100 : 4;
      const tandem_storage_result result = run(options);
      const double arrivals = static_cast<double>(result.request_count) / result.measured_seconds;
      EXPECT_NEAR(result.queue_length / (arrivals * result.request_seconds), 1, 0.01) << name << ' ' << strategy;
      // The clients are a closed system: each waits for its write, or with delayed parity for the end of the window.
      const double writing = result.bytes_per_second / (128.0 * kKiB) * result.write_seconds;
      if (strategy < TANDEM_STORAGE_DELAYED) {
        EXPECT_NEAR(writing / 300, 1, 0.01) << name << ' ' << strategy;
      } else {
        EXPECT_LT(writing, 300) << name << ' ' << strategy;
      }
    }
}

// A disk alone: seek, rotation, transfer as the mean of random places says.
TEST(Storage, TheDiskOfTheDataSheet) {
  const tandem_storage_device device = named("hdd");
  const double rate = device.write_bytes_per_second, revolution = device.revolution_seconds;
  EXPECT_NEAR(revolution, 8.333e-3, 1e-5);
  auto options = options_of(device, TANDEM_STORAGE_RAID0, 1, 0, 1);
  options.most_seconds = 1000;
  const double write = device.write_seconds + device.write_average_seek_seconds + revolution / 2 + 128 * kKiB / rate;
  EXPECT_NEAR(run(options).write_seconds / write, 1, 0.02);
  // Read, then write the same place: a revolution later.
  options = options_of(device, TANDEM_STORAGE_STANDARD, 6, 1, 1);
  options.most_seconds = 1000;
  const double read = device.read_seconds + device.read_average_seek_seconds + revolution / 2 + 128 * kKiB / rate;
  EXPECT_NEAR(run(options).write_seconds / (2 * read + revolution), 1, 0.02);
}

TEST(Storage, TheSsdOfTheDataSheet) {
  const tandem_storage_device device = named("ssd");
  for (const auto &[bytes, rate] : {std::pair{4 * kKiB, 36'000 * 4096.0}, {4 * kMiB, 460e6}}) {
    auto options = options_of(device, TANDEM_STORAGE_RAID0, 1, 0, 64);
    options.unit_bytes = options.write_bytes = bytes;
    options.most_seconds = bytes < kMiB ? 4 : 100;
    EXPECT_NEAR(run(options).bytes_per_second / rate, 1, 0.02) << bytes;
  }
}

TEST(Storage, MeasuredLatencies) {
  const std::vector<tandem_storage_latency> points = {
      {.request_bytes = 64 * kKiB, .quantile = 0, .seconds = 1e-3, .is_write = 1, .reserved = 0},
      {.request_bytes = 64 * kKiB, .quantile = 1, .seconds = 3e-3, .is_write = 1, .reserved = 0},
      {.request_bytes = 128 * kKiB, .quantile = 0.5, .seconds = 6e-3, .is_write = 1, .reserved = 0},
      {.request_bytes = 64 * kKiB, .quantile = 0.5, .seconds = 1e-3, .is_write = 0, .reserved = 0},
  };
  tandem_storage_device device{};
  device.struct_bytes = sizeof device;
  device.kind = TANDEM_STORAGE_MEASURED;
  device.latencies = points.data();
  device.latency_count = points.size();
  device.latency_stride_bytes = sizeof points[0];
  const auto seconds = [&](std::uint64_t bytes) {
    auto options = options_of(device, TANDEM_STORAGE_RAID0, 1, 0, 1);
    options.unit_bytes = options.write_bytes = bytes;
    return run(options).write_seconds;
  };
  EXPECT_NEAR(seconds(64 * kKiB), 2e-3, 0.02e-3) << "uniform between 1 and 3 ms";
  EXPECT_NEAR(seconds(4 * kKiB), 2e-3, 0.02e-3) << "as the smallest";
  EXPECT_NEAR(seconds(96 * kKiB), 4e-3, 0.02e-3) << "between the two sizes";
  EXPECT_NEAR(seconds(512 * kKiB), 24e-3, 0.1e-3) << "four of the largest";
}

TEST(Storage, TheSameSeedGivesTheSameResult) {
  const tandem_storage_device device = named("hdd");
  auto options = options_of(device, TANDEM_STORAGE_DELAYED, 16, 1, 200);
  options.confidence = 0.02;
  const tandem_storage_result first = run(options), again = run(options);
  EXPECT_EQ(first.event_count, again.event_count);
  EXPECT_EQ(first.bytes_per_second, again.bytes_per_second);
  EXPECT_LE(first.confidence, 0.02);
  EXPECT_LT(first.simulated_seconds, 1000);
  options.seed = 8;
  EXPECT_NE(run(options).event_count, first.event_count);
}

TEST(Storage, StopsWhenToldTo) {
  const tandem_storage_device device = constant(1e-3, 1e-3);
  auto options = options_of(device, TANDEM_STORAGE_RAID0, 4, 0, 100);
  options.most_seconds = 1e9;
  options.progress = [](void *calls, double part, double) {
    EXPECT_GE(part, 0);
    EXPECT_LE(part, 1);
    return static_cast<std::int32_t>(++*static_cast<int *>(calls) == 3);
  };
  int calls = 0;
  options.progress_user = &calls;
  tandem_storage_result result{};
  result.struct_bytes = sizeof result;
  EXPECT_EQ(tandem_storage_simulate(&options, &result), TANDEM_ERROR_CANCELLED);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(result.event_count, 0U) << "written on failure";
}

TEST(Storage, TooShortARunToTell) {
  const tandem_storage_device device = constant(10, 10);
  auto options = options_of(device, TANDEM_STORAGE_RAID0, 4, 0, 2);
  options.most_seconds = 1;
  const tandem_storage_result result = run(options);
  EXPECT_EQ(result.write_count, 0U);
  EXPECT_EQ(result.bytes_per_second, 0);
  EXPECT_EQ(result.confidence, 1);
}

class StorageBadInput : public testing::Test {
 protected:
  tandem_storage_device device_ = constant(1e-3, 1e-3);
  tandem_storage_options options_ = options_of(device_, TANDEM_STORAGE_STANDARD, 8, 1, 10);

  void SetUp() override { options_.most_seconds = 1; }

  // Changes one thing, and wants to hear of it.
  template <class Change>
  void refused(Change change, const std::string &text, tandem_status status = TANDEM_ERROR_INVALID_ARGUMENT) {
    const tandem_storage_options options = options_;
    const tandem_storage_device device = device_;
    change();
    tandem_storage_result result{};
    result.struct_bytes = sizeof result;
    EXPECT_EQ(tandem_storage_simulate(&options_, &result), status) << text;
    EXPECT_NE(std::string(tandem_last_error_message()).find(text), std::string::npos) << tandem_last_error_message();
    EXPECT_EQ(result.simulated_seconds, 0);
    options_ = options;
    device_ = device;
  }
};

TEST_F(StorageBadInput, Options) {
  run(options_);
  refused([&] { options_.server_count = 0; }, "server_count is 0, at least 1");
  refused([&] { options_.server_count = 65537; }, "server_count is 65537, at most 65536", TANDEM_ERROR_TOO_LARGE);
  refused([&] { options_.width = 9; }, "width is 9, and there are 8 servers");
  refused([&] { options_.parity_count = 8; }, "parity_count is 8, and a row has 8 servers");
  refused([&] { options_.parity_count = 0; }, "parity_count is 0");
  refused([&] { options_.strategy = TANDEM_STORAGE_RAID0; }, "RAID0 has none");
  refused([&] { options_.strategy = 5; }, "strategy is 5");
  refused([&] { options_.placement = -1; }, "placement is -1");
  refused([&] { options_.client_count = 0; }, "client_count is 0");
  refused([&] { options_.client_count = UINT32_MAX; }, "client_count is 4294967295", TANDEM_ERROR_TOO_LARGE);
  refused([&] { options_.unit_bytes = 100; }, "unit_bytes is 100, at least 4096");
  refused([&] { options_.unit_bytes = 6000; }, "unit_bytes is 6000, which is no multiple of 4096");
  refused([&] { options_.unit_bytes = UINT64_MAX; }, "unit_bytes is 18446744073709551615", TANDEM_ERROR_TOO_LARGE);
  refused([&] { options_.write_bytes = 768 * kKiB; }, "neither a divisor nor a multiple");
  refused(
      [&] {
        options_.strategy = TANDEM_STORAGE_DELAYED;
        options_.writes_per_window = UINT32_MAX;
      },
      "10 clients may have", TANDEM_ERROR_TOO_LARGE);
  refused(
      [&] {
        options_.client_count = 1 << 24;
        options_.write_bytes = 64 * kMiB;
      },
      "16777216 clients may have", TANDEM_ERROR_TOO_LARGE);
  refused([&] { options_.latency_seconds = -1; }, "latency_seconds is -1");
  refused([&] { options_.latency_seconds = std::nan(""); }, "latency_seconds is nan");
  refused([&] { options_.server_link_bytes_per_second = std::numeric_limits<double>::infinity(); }, "is inf");
  refused([&] { options_.most_seconds = -5; }, "most_seconds is -5");
  refused([&] { options_.confidence = 2; }, "confidence is 2");
  refused([&] { options_.device = nullptr; }, "device is NULL");
  refused([&] { options_.struct_bytes = 3; }, "options.struct_bytes is 3");
  EXPECT_EQ(tandem_storage_simulate(&options_, nullptr), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tandem_storage_simulate(nullptr, nullptr), TANDEM_ERROR_INVALID_ARGUMENT);
}

TEST_F(StorageBadInput, ANewerVersion) {
  struct {
    tandem_storage_options options;
    std::uint64_t more;
  } newer{options_, 0};
  newer.options.struct_bytes = sizeof newer;
  tandem_storage_result result{};
  result.struct_bytes = sizeof result;
  EXPECT_EQ(tandem_storage_simulate(&newer.options, &result), TANDEM_OK);
  newer.more = 1;
  EXPECT_EQ(tandem_storage_simulate(&newer.options, &result), TANDEM_ERROR_UNSUPPORTED);
  // An older caller's result gets what fits.
  tandem_storage_result older{};
  older.struct_bytes = offsetof(tandem_storage_result, bytes_per_second);
  EXPECT_EQ(tandem_storage_simulate(&options_, &older), TANDEM_OK);
  EXPECT_EQ(older.simulated_seconds, 1);
  EXPECT_EQ(older.bytes_per_second, 0);
}

TEST_F(StorageBadInput, Devices) {
  refused([&] { device_.kind = 4; }, "kind of the device is 4");
  refused([&] { device_.channel_count = 1 << 20; }, "channel_count is 1048576");
  refused([&] { device_.write_seconds = 0; }, "takes no time");
  refused([&] { device_.read_seconds = -1; }, "read_seconds is -1 s");
  refused([&] { device_.read_bytes_per_second = 1e6; }, "the device is no HDD or SSD");
  refused([&] { device_.kind = TANDEM_STORAGE_SSD; }, "read_bytes_per_second is 0");
  refused([&] { device_.kind = TANDEM_STORAGE_MEASURED; }, "latencies is NULL");
  device_ = named("hdd");
  run(options_);
  refused([&] { device_.channel_count = 2; }, "a disk has one");
  refused([&] { device_.capacity_bytes = 0; }, "capacity_bytes is 0");
  refused([&] { device_.capacity_bytes = kMiB - 1; }, "capacity_bytes is 1048575, at least 1048576");
  refused([&] { device_.capacity_bytes = UINT64_MAX; }, "capacity_bytes is", TANDEM_ERROR_TOO_LARGE);
  refused([&] { device_.revolution_seconds = 0; }, "revolution_seconds is 0");
  refused([&] { device_.read_average_seek_seconds = 20e-3; }, "seeks of a read are");
  refused([&] { device_.write_average_seek_seconds = 1e-3; }, "no seek curve");
  EXPECT_EQ(tandem_storage_named_device("tape", &device_), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tandem_storage_named_device(nullptr, &device_), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tandem_storage_named_device("hdd", nullptr), TANDEM_ERROR_INVALID_ARGUMENT);
}

TEST_F(StorageBadInput, Latencies) {
  std::vector<tandem_storage_latency> points = {
      {.request_bytes = 4096, .quantile = 0.5, .seconds = 1e-3, .is_write = 0, .reserved = 0},
      {.request_bytes = 4096, .quantile = 0.5, .seconds = 1e-3, .is_write = 1, .reserved = 0},
      {.request_bytes = 4096, .quantile = 1, .seconds = 2e-3, .is_write = 1, .reserved = 0}};
  device_ = {};
  device_.struct_bytes = sizeof device_;
  device_.kind = TANDEM_STORAGE_MEASURED;
  device_.latencies = points.data();
  device_.latency_count = points.size();
  device_.latency_stride_bytes = sizeof points[0];
  run(options_);
  const auto with = [&](auto change, const char *text) {
    const auto before = points;
    refused(change, text);
    points = before;
  };
  with([&] { points[0].request_bytes = 0; }, "request_bytes of latency 0 is 0");
  with([&] { points[1].quantile = 1.5; }, "quantile of latency 1 is 1.5");
  with([&] { points[1].quantile = std::nan(""); }, "quantile of latency 1 is nan");
  with([&] { points[2].quantile = 0.5; }, "latency 2 is out of order");
  with([&] { points[2].seconds = 1e-4; }, "latency 2 is out of order");
  with([&] { points[2].seconds = 0; }, "latency 2 is 0 s");
  with([&] { points[0].is_write = 1; }, "out of order");
  with([&] { device_.latency_count = 1; }, "no latency of a write");
  with([&] { device_.latency_stride_bytes = 8; }, "latency_stride_bytes is 8");
}

}  // namespace
