// SPDX-License-Identifier: Apache-2.0
// Energy meters on a sysfs folder that the test writes, and on a library in the place of NVML (fake_nvml.c).
#include "bench/energy.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace tandem::bench {
namespace {

class Energy : public testing::Test {
 protected:
  Energy() {
    std::string pattern = testing::TempDir() + "/tandem-energy-XXXXXX";
    root_ = mkdtemp(pattern.data());
  }
  ~Energy() override { std::filesystem::remove_all(root_); }

  void write(const std::string &file, const std::string &text) const {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text << "\n";
  }
  void counter(const std::string &folder, const std::string &name, std::uint64_t microjoules) const {
    const std::string path = "class/powercap/" + folder;
    write(path + "/name", name);
    write(path + "/max_energy_range_uj", "1000000");
    write(path + "/energy_uj", std::to_string(microjoules));
  }
  // The meters of the CPU.
  EnergyMeters open() const {
    EnergyMeters meters = open_energy_meters(root_);
    std::erase_if(meters.list, [](const auto &meter) { return meter->name().starts_with("GPU"); });
    return meters;
  }

  std::filesystem::path root_;
};

TEST_F(Energy, PackagesAndMemoryCountAndPartsOfThemDoNot) {
  counter("intel-rapl:0", "package-0", 5);
  counter("intel-rapl:0:0", "core", 5);
  counter("intel-rapl:0:1", "dram", 7);
  counter("intel-rapl:1", "psys", 5);
  counter("other:0", "package-0", 5);
  const EnergyMeters meters = open();
  EXPECT_EQ(meters.reason, "");
  ASSERT_EQ(meters.list.size(), 2u);
  EXPECT_EQ(meters.list[0]->name(), "package-0");
  EXPECT_EQ(meters.list[1]->name(), "package-0/dram");
}

TEST_F(Energy, CountersWrapAround) {
  counter("intel-rapl:0", "package-0", 900'000);
  const EnergyMeters meters = open();
  ASSERT_EQ(meters.list.size(), 1u);
  EXPECT_EQ(meters.list[0]->joules(), 0);
  counter("intel-rapl:0", "package-0", 950'000);
  EXPECT_DOUBLE_EQ(meters.list[0]->joules(), 0.05);
  counter("intel-rapl:0", "package-0", 50'000);
  EXPECT_DOUBLE_EQ(meters.list[0]->joules(), 0.15);
}

TEST_F(Energy, SaysWhyThereIsNone) {
  const std::string none = open().reason;
  EXPECT_NE(none.find("no RAPL"), std::string::npos) << none;
  EXPECT_NE(none.find("power/type"), std::string::npos) << none;
  counter("intel-rapl:0", "package-0", 0);
  write("class/powercap/intel-rapl:0/energy_uj", "many");
  EXPECT_NE(open().reason.find("\"many\""), std::string::npos);
  std::filesystem::remove(root_ / "class/powercap/intel-rapl:0/energy_uj");
  EXPECT_NE(open().reason.find("energy_uj cannot be read: No such file"), std::string::npos);
  write("bus/event_source/devices/power/type", "4294967295");
  write("bus/event_source/devices/power/cpumask", "0");
  write("bus/event_source/devices/power/events/energy-pkg.scale", "2.3283064365386962890625e-10");
  write("bus/event_source/devices/power/events/energy-pkg", "event=2");
  EXPECT_NE(open().reason.find("\"event=2\" is no event"), std::string::npos);
  write("bus/event_source/devices/power/events/energy-pkg", "event=0x02");
  EXPECT_NE(open().reason.find("perf_event_open of energy-pkg of CPU 0"), std::string::npos) << open().reason;
}

TEST_F(Energy, OfACallWithoutThatOfAPause) {
  counter("intel-rapl:0", "package-0", 0);
  std::uint64_t microjoules = 0;
  EnergyMeters meters = open();
  ASSERT_EQ(meters.list.size(), 1u);
  const Contestant contestant = {"three a call", [&](std::size_t calls) {
                                   microjoules = (microjoules + 3000 * calls) % 1'000'000;
                                   counter("intel-rapl:0", "package-0", microjoules);
                                   return 0.0;
                                 }};
  const std::vector<EnergyOfDomain> domains = measure_energy(meters, contestant, 1, 0.001, 0.001);
  ASSERT_EQ(domains.size(), 1u);
  EXPECT_TRUE(domains[0].moves);
  EXPECT_EQ(domains[0].idle_watts, 0);
  ASSERT_EQ(domains[0].joules.size(), 30u);
  for (const double joules : domains[0].joules) EXPECT_NEAR(joules, 0.003, 1e-12);
  const Contestant still = {"still", [](std::size_t) { return 0.0; }};
  EXPECT_FALSE(measure_energy(meters, still, 1, 0.01, 0.001)[0].moves);
  std::filesystem::remove_all(root_);
  EXPECT_THROW(measure_energy(meters, still, 1, 0.01, 0.001), std::runtime_error);
}

TEST_F(Energy, OfGpusThatCountIt) {
  EnergyMeters meters = open_energy_meters(root_);
  ASSERT_EQ(meters.list.size(), 1u) << "the second GPU has no counter";
  EXPECT_EQ(meters.list[0]->name(), "GPU 0");
  const double before = meters.list[0]->joules();
  EXPECT_DOUBLE_EQ(meters.list[0]->joules() - before, 1.5) << "1500 mJ a reading";
  EXPECT_NE(meters.reason, "") << "the CPU has none";
}

TEST(Correlation, OfKnownLists) {
  EXPECT_EQ(correlation_of({1, 2, 3}, {1, 2, 3}).r, 0) << "too few";
  EXPECT_EQ(correlation_of({1, 1, 1, 1, 1}, {1, 2, 3, 4, 5}).r, 0) << "no variation";
  EXPECT_NEAR(correlation_of({1, 2, 3, 4, 5}, {5, 4, 3, 2, 1}).r, -1, 1e-12);
  const Correlation found = correlation_of({1, 2, 3, 4, 5, 6, 7}, {2, 1, 4, 3, 7, 8, 5});
  EXPECT_NEAR(found.r, 0.782508, 1e-6);
  EXPECT_NEAR(found.low, 0.071684, 1e-6);
  EXPECT_NEAR(found.high, 0.966207, 1e-6);
}

}  // namespace
}  // namespace tandem::bench
