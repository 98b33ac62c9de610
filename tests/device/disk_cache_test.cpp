// SPDX-License-Identifier: Apache-2.0
// The cache on disk: its hash, entries and folders that it must not take. The suite of drivers tests it with a driver.
#include "device/disk_cache.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/conformance/work.hpp"

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

class DiskCacheFolder : public testing::Test {
 protected:
  DiskCacheFolder() { path_ = mkdtemp(name_); }
  ~DiskCacheFolder() override { std::filesystem::remove_all(path_); }
  std::vector<std::filesystem::path> entries() const {
    std::vector<std::filesystem::path> list;
    for (const auto &entry : std::filesystem::directory_iterator(path_ + "/c")) list.push_back(entry.path());
    return list;
  }
  // Whether the folder is used: what is stored there is found.
  bool is_used(const std::string &folder, Heard *heard = nullptr) {
    device::DiskCache cache(folder, heard != nullptr ? heard->log() : base::Log());
    cache.store(key_, program_);
    return cache.load(key_) == program_;
  }

  char name_[40] = "/tmp/tandem-disk-cache-test-XXXXXX";
  std::string path_;
  const device::Key key_ = device::key_of({"key"});
  const std::vector<unsigned char> program_ = std::vector<unsigned char>(500, 7);
};

// Any changed or missing byte, also of the entry's version.
TEST_F(DiskCacheFolder, DamagedEntriesAreRemoved) {
  Heard heard;
  device::DiskCache cache(path_ + "/c", heard.log());
  cache.store(key_, program_);
  ASSERT_EQ(entries().size(), 1u);
  const auto entry = entries()[0];
  const auto size = std::filesystem::file_size(entry);
  for (std::uintmax_t at = 0; at < 2 * size; at += at % size < 64 ? 1 : 7) {
    ASSERT_EQ(cache.load(key_), program_);
    if (at < size) {
      std::filesystem::resize_file(entry, at);
    } else {
      std::fstream file(entry, std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(static_cast<std::streamoff>(at - size));
      const int byte = file.get();
      file.seekp(static_cast<std::streamoff>(at - size));
      file.put(static_cast<char>(byte ^ 0x10));
    }
    EXPECT_FALSE(cache.load(key_).has_value()) << at;
    EXPECT_FALSE(cache.has(key_)) << "it is removed";
    EXPECT_TRUE(heard.has("is damaged"));
    cache.store(key_, program_);
  }
}

TEST_F(DiskCacheFolder, AFolderOfOthersIsNotUsed) {
  const std::string place = path_ + "/c";
  EXPECT_TRUE(is_used(place));
  for (const mode_t mode : {0777, 0770, 0750, 0701}) {
    ASSERT_EQ(chmod(place.c_str(), mode), 0);
    Heard heard;
    EXPECT_FALSE(is_used(place, &heard)) << std::oct << mode;
    EXPECT_TRUE(heard.has("not used: its mode is")) << heard.text;
  }
  ASSERT_EQ(chmod(place.c_str(), 0700), 0);
  EXPECT_TRUE(is_used(place));
  const std::string link = path_ + "/link";
  std::filesystem::create_directory_symlink(place, link);
  EXPECT_FALSE(is_used(link)) << "a link was followed";
  if (geteuid() == 0) {  // only root can give it away
    ASSERT_EQ(chown(place.c_str(), 12345, 12345), 0);
    Heard heard;
    EXPECT_FALSE(is_used(place, &heard));
    EXPECT_TRUE(heard.has("it belongs to user 12345")) << heard.text;
  } else {
    std::printf("NOT RUN: a folder of another user (needs root)\n");
  }
}

TEST_F(DiskCacheFolder, IsBounded) {
  device::DiskCache cache(path_ + "/c", base::Log(), 10'000);
  const std::vector<unsigned char> program(3000, 7);
  for (std::uint64_t i = 0; i < 10; ++i) {
    cache.store({i, 1}, program);
    EXPECT_TRUE(cache.load({i, 1}).has_value()) << "the newest stays";
  }
  std::uintmax_t total = 0;
  for (const auto &entry : entries()) total += std::filesystem::file_size(entry);
  EXPECT_LE(total, 10'000u);
  EXPECT_GT(total, 6'000u);
  cache.store({99, 1}, std::vector<unsigned char>(20'000, 1));
  EXPECT_FALSE(cache.has({99, 1})) << "larger than the cache";
}

TEST_F(DiskCacheFolder, TwoProcessesAtOnce) {
  pid_t children[2];
  for (pid_t &child : children) {
    child = fork();
    if (child != 0) continue;
    device::DiskCache cache(path_ + "/c", base::Log(), 50'000);
    bool is_good = true;
    for (std::uint64_t round = 0; round < 400; ++round) {
      const device::Key key{round % 20, 3};
      const std::vector<unsigned char> program(1000 + key.low * 100, static_cast<unsigned char>(key.low));
      cache.store(key, program);
      const auto found = cache.load(key);
      is_good = is_good && (!found.has_value() || *found == program);
    }
    _exit(is_good ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status = 1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  for (const auto &entry : entries()) EXPECT_EQ(entry.extension(), ".program") << "a temporary was left: " << entry;
}

}  // namespace
}  // namespace tandem::test
