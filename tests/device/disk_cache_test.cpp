// SPDX-License-Identifier: Apache-2.0
// The hash of the cache on disk, and entries that it must not take. opencl_fake_test tests the cache with a driver.
#include "device/disk_cache.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace tandem::test {
namespace {

using device::fnv1a_128;
using device::hex;

// Values of draft-eastlake-fnv's own test program (its strings end without a zero byte).
TEST(DiskCache, TheHashIsFnv1a) {
  EXPECT_EQ(hex(fnv1a_128("")), "6c62272e07bb014262b821756295c58d");
  EXPECT_EQ(hex(fnv1a_128("a")), "d228cb696f1a8caf78912b704e4a8964");
  EXPECT_EQ(hex(fnv1a_128("foobar")), "343e1662793c64bf6f0d3597ba446f18");
  EXPECT_EQ(fnv1a_128("bar", fnv1a_128("foo")), fnv1a_128("foobar"));
}

TEST(DiskCache, PartsOfAKeyHaveLengths) {
  EXPECT_NE(device::key_of({"ab", "c"}), device::key_of({"a", "bc"}));
  EXPECT_NE(device::key_of({"ab"}), device::key_of({"ab", ""}));
  EXPECT_EQ(device::key_of({"ab", "c"}), device::key_of({"ab", "c"}));
}

TEST(DiskCache, AnEntryOfAnotherVersionIsMissing) {
  char name[] = "/tmp/tandem-disk-cache-test-XXXXXX";
  ASSERT_NE(mkdtemp(name), nullptr);
  const std::string folder = std::string(name) + "/cache";
  {
    device::DiskCache cache(folder, base::Log());
    const device::Key key = device::key_of({"key"});
    const std::vector<unsigned char> program = {1, 2, 3};
    cache.store(key, program);
    ASSERT_EQ(cache.load(key), program);
    std::fstream entry(std::filesystem::directory_iterator(folder)->path(),
                       std::ios::in | std::ios::out | std::ios::binary);
    char magic[8] = {};
    entry.read(magic, sizeof magic);
    EXPECT_EQ(std::string(magic, sizeof magic), "TNDMCL02");
    entry.seekp(7);
    entry.put('1');
    entry.close();
    EXPECT_FALSE(cache.load(key).has_value());
    EXPECT_FALSE(cache.has(key)) << "it is removed";
    cache.store(key, program);
    EXPECT_EQ(cache.load(key), program);
  }
  std::filesystem::remove_all(name);
}

}  // namespace
}  // namespace tandem::test
