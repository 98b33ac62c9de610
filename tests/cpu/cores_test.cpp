// SPDX-License-Identifier: Apache-2.0
#include "cpu/cores.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/affinity.hpp"
#include "cpu/executors/executor.hpp"
#include "cpu/kernels/kernel.hpp"

namespace tandem::test {
namespace {

constexpr std::uint64_t kNone = UINT64_MAX;

// A folder that looks like / to cgroup_core_limit().
class FakeRoot {
 public:
  FakeRoot() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tandem-cores-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp " + pattern);
    folder_ = pattern;
  }
  ~FakeRoot() { std::filesystem::remove_all(folder_); }
  FakeRoot(const FakeRoot &) = delete;
  FakeRoot &operator=(const FakeRoot &) = delete;

  FakeRoot &file(const std::string &path, const std::string &text) {
    std::filesystem::create_directories(std::filesystem::path(folder_ + path).parent_path());
    std::ofstream(folder_ + path, std::ios::binary) << text;
    return *this;
  }
  FakeRoot &v2(const std::string &cgroup) {
    return file("/proc/self/cgroup", "0::" + cgroup + "\n")
        .file("/proc/self/mountinfo",
              "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
              "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 master:1 - cgroup2 cgroup2 rw,nsdelegate\n");
  }
  FakeRoot &v1(const std::string &cgroup, const std::string &mount_root = "/") {
    return file("/proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:" + cgroup + "\n3:cpuset:/\n0::/\n")
        .file("/proc/self/mountinfo",
              "31 22 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
              "32 22 0:28 " +
                  mount_root + " /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
  }
  FakeRoot &quota_v1(const std::string &folder, const std::string &quota, const std::string &period) {
    return file("/sys/fs/cgroup/cpu,cpuacct" + folder + "/cpu.cfs_quota_us", quota)
        .file("/sys/fs/cgroup/cpu,cpuacct" + folder + "/cpu.cfs_period_us", period);
  }
  const std::string &path() const { return folder_; }
  std::uint64_t limit() const { return cpu::cgroup_core_limit(folder_); }

 private:
  std::string folder_;
};

TEST(Cores, NoFilesNoLimit) { EXPECT_EQ(FakeRoot().limit(), kNone); }

TEST(Cores, RunnableThreadsStandInLoadavg) {
  FakeRoot root;
  const std::string path = root.path() + "/loadavg";
  EXPECT_EQ(cpu::runnable_thread_count(path.c_str()), 0u);
  root.file("/loadavg", "14.80 9.41 5.23 17/251 1234\n");
  EXPECT_EQ(cpu::runnable_thread_count(path.c_str()), 17u);
  for (const char *bad : {"", "1 2 3", "1 2 3 x/4 5", "1 2 3 /4 5", "1 2 3 99999999999999999999/4 5"}) {
    root.file("/loadavg", bad);
    EXPECT_EQ(cpu::runnable_thread_count(path.c_str()), 0u) << bad;
  }
  EXPECT_GE(cpu::runnable_thread_count("/proc/loadavg"), 1u) << "this thread runs";
}

TEST(Cores, NoRoomForMoreThreadsThanCores) {
  EXPECT_FALSE(cpu::machine_has_room(static_cast<unsigned>(base::affinity_cores().size()) + 1));
}

TEST(Cores, V2QuotaIsRoundedUp) {
  const std::pair<const char *, std::uint64_t> cases[] = {
      {"max 100000\n", kNone}, {"max\n", kNone},        {"100000 100000\n", 1}, {"100001 100000\n", 2},
      {"1 100000\n", 1},       {"400000 100000\n", 4},  {"350000 100000\n", 4}, {"150000\n", 2},
      {"25000 50000", 1},      {"1600000 100000\n", 16}};
  for (const auto &[text, cores] : cases) {
    FakeRoot root;
    root.v2("/").file("/sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(root.limit(), cores) << text;
  }
}

TEST(Cores, V2SmallestOfAllAncestors) {
  FakeRoot root;
  root.v2("/a/b/c").file("/sys/fs/cgroup/a/b/c/cpu.max", "800000 100000\n");
  EXPECT_EQ(root.limit(), 8u);
  root.file("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n").file("/sys/fs/cgroup/a/cpu.max", "300000 100000\n");
  EXPECT_EQ(root.limit(), 3u);
  root.file("/sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(root.limit(), 2u);
  root.file("/sys/fs/cgroup/a/b/c/cpu.max", "50000 100000\n");
  EXPECT_EQ(root.limit(), 1u);
  root.file("/sys/fs/cgroup/a/b/c/d/cpu.max", "1 100000\n");  // below: not ours
  EXPECT_EQ(root.limit(), 1u);
}

TEST(Cores, V1QuotaAndAncestors) {
  FakeRoot root;
  root.v1("/x/y").quota_v1("/x/y", "-1\n", "100000\n");
  EXPECT_EQ(root.limit(), kNone);
  root.quota_v1("/x", "250000\n", "100000\n");
  EXPECT_EQ(root.limit(), 3u);
  root.quota_v1("", "100000\n", "100000\n");
  EXPECT_EQ(root.limit(), 1u);
}

TEST(Cores, V1ContainerSeesItsCgroupAtTheMountPoint) {
  FakeRoot root;  // no cgroup namespace: the path is the host's, the mount shows only the container's part
  root.v1("/docker/abc", "/docker/abc").quota_v1("", "200000\n", "100000\n");
  EXPECT_EQ(root.limit(), 2u);
  root.v1("/docker/abc/sub", "/docker/abc").quota_v1("/sub", "100000\n", "100000\n");
  EXPECT_EQ(root.limit(), 1u);
}

TEST(Cores, V1AndV2TogetherTakeTheSmaller) {
  FakeRoot root;
  root.file("/proc/self/cgroup", "4:cpu:/a\n0::/b\n")
      .file("/proc/self/mountinfo",
            "1 0 0:1 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu\n2 0 0:2 / /sys/fs/unified rw - cgroup2 "
            "none rw\n")
      .quota_v1("/a", "500000", "100000")
      .file("/sys/fs/unified/b/cpu.max", "400000 100000");
  EXPECT_EQ(root.limit(), 4u);
  root.quota_v1("/a", "300000", "100000");
  EXPECT_EQ(root.limit(), 3u);
}

TEST(Cores, MountPointsMayHaveSpaces) {
  FakeRoot root;
  root.file("/proc/self/cgroup", "0::/a:b c\n")
      .file("/proc/self/mountinfo", "2 0 0:2 / /sys/my\\040cgroup\\134 rw - cgroup2 none rw\n")
      .file("/sys/my cgroup\\/a:b c/cpu.max", "200000 100000");
  EXPECT_EQ(root.limit(), 2u);
}

TEST(Cores, PathsThatClimbStayAtTheMountPoint) {
  for (const char *path : {"/../x", "/a/../../x", "/..", "x", ""}) {
    FakeRoot root;
    root.v2(path).file("/sys/fs/cgroup/cpu.max", "200000 100000").file("/sys/fs/x/cpu.max", "1 100000");
    EXPECT_EQ(root.limit(), 2u) << path;
  }
}

TEST(Cores, HostileQuotasAreNoLimit) {
  for (const std::string text : {"", "\n", " ", "0 100000", "100000 0", "-1 100000", "99999999999999999999999 100000",
                                 "100000 99999999999999999999999", "1e5 100000", "0x10 100000", "100000 100000 100000",
                                 "100000  100000", " 100000 100000", "100000\t100000", "abc"}) {
    FakeRoot root;
    root.v2("/").file("/sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(root.limit(), kNone) << '"' << text << '"';
    root.v1("/").quota_v1("", text, text);
    EXPECT_EQ(root.limit(), kNone) << '"' << text << '"';
  }
  FakeRoot root;
  root.v2("/").file("/sys/fs/cgroup/cpu.max", "18446744073709551615 1");
  EXPECT_EQ(root.limit(), UINT64_MAX);
  root.file("/sys/fs/cgroup/cpu.max", "18446744073709551615 18446744073709551614");
  EXPECT_EQ(root.limit(), 2u);
}

TEST(Cores, HostileFilesDoNoHarm) {
  std::string deep;
  while (deep.size() < 3 << 20) deep += "/a";
  const std::string many_colons(100000, ':');
  const std::string binary("\0\xff\x01::\n0::\0/\n", 13);
  for (const std::string &cgroup :
       {deep, "0::" + deep, many_colons, binary, std::string("0:"), std::string("0"), std::string("::")}) {
    for (const std::string &mounts :
         {std::string(), deep, many_colons, binary, std::string(100000, ' '), std::string("- - - - - - -"),
          std::string("1 2 3 4 5 6 - cgroup2"), std::string("1 2 3 / /sys/\\9\\04 rw - cgroup2 c rw")}) {
      FakeRoot root;
      root.file("/proc/self/cgroup", cgroup).file("/proc/self/mountinfo", mounts);
      EXPECT_EQ(root.limit(), kNone);
    }
  }
  FakeRoot root;  // a folder where a file should be
  root.file("/proc/self/cgroup/x", "").file("/proc/self/mountinfo/x", "");
  EXPECT_EQ(root.limit(), kNone);
}

TEST(Cores, AllowedCountFollowsTheAffinityMask) {
  const std::vector<unsigned> before = base::affinity_cores();
  ASSERT_FALSE(before.empty());
  const unsigned all = cpu::allowed_core_count();
  EXPECT_GE(all, 1u);
  EXPECT_LE(all, before.size());
  std::thread([&] {  // a mask of this thread alone
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(before.back(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(base::affinity_cores(), std::vector<unsigned>{before.back()});
    EXPECT_EQ(cpu::allowed_core_count(), 1u);
  })
      .join();
  EXPECT_EQ(base::affinity_cores(), before);
}

TEST(Cores, ModelOfX86IsTheFirstName) {
  FakeRoot root;
  root.file("/proc/cpuinfo",
            "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 106\nmodel name\t: Some CPU @ 3GHz\n");
  EXPECT_EQ(cpu::cpu_model(root.path()), "Some CPU @ 3GHz");
  EXPECT_EQ(cpu::cpu_vendor(root.path()), "GenuineIntel");
}

TEST(Cores, ModelsOfArmAreNamedByTheirNumbers) {
  const auto core = [](const std::string &implementer, const std::string &part) {
    return "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: " + implementer +
           "\nCPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: " + part + "\nCPU revision\t: 1\n\n";
  };
  EXPECT_EQ(cpu::cpu_model(FakeRoot().file("/proc/cpuinfo", core("0x41", "0xd4f") + core("0x41", "0xd4f")).path()),
            "Neoverse V2");
  FakeRoot big_little;
  big_little.file("/proc/cpuinfo", core("0x41", "0xd05") + core("0x41", "0xd0b") + core("0x41", "0xd05"));
  EXPECT_EQ(cpu::cpu_model(big_little.path()), "Cortex-A55, Cortex-A76");
  EXPECT_EQ(cpu::cpu_vendor(big_little.path()), "0x41");
  EXPECT_EQ(cpu::cpu_model(FakeRoot().file("/proc/cpuinfo", core("0x99", "0xd4f")).path()),
            "Arm implementer 0x99 part 0xd4f");
  EXPECT_EQ(cpu::cpu_model(FakeRoot().path()), "unknown CPU");
  EXPECT_EQ(cpu::cpu_vendor(FakeRoot().path()), "");
}

TEST(Cores, CachesAreThoseOfTheFirstCpu) {
  FakeRoot root;
  const auto cache = [&](unsigned index, const char *level, const char *type, const char *size, const char *ways) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    root.file(folder + "level", level).file(folder + "type", type).file(folder + "size", size);
    if (ways != nullptr) root.file(folder + "ways_of_associativity", ways);
  };
  EXPECT_EQ(cpu::cache_sizes(root.path().c_str()).l2_bytes, 0u);
  cache(0, "1\n", "Data\n", "64K\n", "4\n");
  cache(1, "1\n", "Instruction\n", "64K\n", "8\n");
  cache(2, "2\n", "Unified\n", "2M\n", nullptr);
  cache(3, "3\n", "Unified\n", "116736K\n", "12\n");
  EXPECT_EQ(cpu::cache_sizes(root.path().c_str()).l2_bytes, 2u << 20);
  EXPECT_EQ(cpu::cache_sizes(root.path().c_str()).l1_ways, 4u);
  cache(2, "2\n", "Unified\n", "99999999999999999999K\n", nullptr);
  EXPECT_EQ(cpu::cache_sizes(root.path().c_str()).l2_bytes, 0u);
  cache(2, "2\n", "Unified\n", "lots\n", nullptr);
  EXPECT_EQ(cpu::cache_sizes(root.path().c_str()).l2_bytes, 0u);
  EXPECT_GT(cpu::cache_sizes().l2_bytes, 0u);
}

}  // namespace
}  // namespace tandem::test
