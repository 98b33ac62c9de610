// SPDX-License-Identifier: Apache-2.0
// Files that get their names when they are complete, the lock of their folder, and bytes.
#include "base/pending_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "base/bytes.hpp"
#include "tests/base/errors.hpp"

namespace tandem::test {
namespace {

namespace fs = std::filesystem;
using base::Folder;
using base::PendingFile;

class PendingFiles : public testing::Test {
 protected:
  PendingFiles() { folder_ = std::make_shared<Folder>(mkdtemp(path_)); }
  ~PendingFiles() override { fs::remove_all(path_); }

  void fill(PendingFile &file, const std::string &text) {
    ASSERT_TRUE(base::write_at(file.descriptor(), reinterpret_cast<const std::byte *>(text.data()), text.size(), 0));
  }
  std::string text_of(const std::string &name) const {
    std::ifstream file(folder_->path_of(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }

  char path_[40] = "/tmp/tandem-pending-file-test-XXXXXX";
  std::shared_ptr<Folder> folder_;
};

TEST_F(PendingFiles, GetTheirNamesWhenTheyAreComplete) {
  PendingFile file(folder_, "temporary", 0640);
  fill(file, "new");
  EXPECT_EQ(folder_->names(), std::vector<std::string>{"temporary"});
  struct stat status;
  ASSERT_EQ(fstat(file.descriptor(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u) << "while it is written";
  file.finish(false);
  file.rename("name", false, false);
  EXPECT_EQ(folder_->names(), std::vector<std::string>{"name"});
  ASSERT_EQ(fstat(file.descriptor(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
  EXPECT_EQ(text_of("name"), "new");
}

TEST_F(PendingFiles, ReplaceOnlyIfTold) {
  std::ofstream(folder_->path_of("name")) << "old";
  {
    PendingFile file(folder_, "temporary", 0600);
    fill(file, "new");
    EXPECT_EQ(refusal(TANDEM_ERROR_IO, [&] { file.rename("name", false, false); }),
              "cannot rename the finished file to " + folder_->path_of("name") + ": File exists (errno 17)");
    EXPECT_EQ(text_of("name"), "old");
    EXPECT_EQ(refusal(TANDEM_ERROR_IO, [&] { PendingFile(folder_, "temporary", 0600); }),
              "cannot create " + folder_->path_of("temporary") + ": File exists (errno 17)");
    file.rename("name", true, false);
  }
  EXPECT_EQ(text_of("name"), "new");
}

TEST_F(PendingFiles, AreRemovedUnlessTheyHaveAName) {
  std::vector<PendingFile> files;
  for (const char *name : {"a", "b", "c"}) files.emplace_back(folder_, name, 0600);
  EXPECT_EQ(folder_->names(), (std::vector<std::string>{"a", "b", "c"}));
  files[1] = PendingFile();
  EXPECT_FALSE(files[1]);
  EXPECT_EQ(folder_->names(), (std::vector<std::string>{"a", "c"}));
  files[2].release();
  files.clear();
  EXPECT_EQ(folder_->names(), std::vector<std::string>{"c"});
}

TEST_F(PendingFiles, AreLockedAndSoIsTheirFolder) {
  PendingFile file(folder_, "temporary", 0600);
  EXPECT_EQ(base::lock_file(folder_->open_file("temporary", O_RDWR)), base::Lock::held_by_another);
  const auto again = std::make_shared<Folder>(folder_->path());
  {
    const base::FoldersLock lock({folder_}, {.seconds = 0});
    EXPECT_THROW(base::FoldersLock({again}, {.seconds = 0}), base::FolderLocked);
  }
  const base::FoldersLock lock({again}, {.seconds = 0});
}

TEST(Bytes, HexadecimalAndRandom) {
  EXPECT_EQ(base::hexadecimal(std::vector<std::uint8_t>{0x00, 0x09, 0xa0, 0xff}), "0009a0ff");
  EXPECT_EQ(base::random_hexadecimal(16).size(), 32u);
  std::set<std::uint64_t> numbers;
  for (int i = 0; i < 100; ++i) numbers.insert(base::random_number<std::uint64_t>());
  EXPECT_EQ(numbers.size(), 100u);
}

TEST(Bytes, NumbersAreLittleEndian) {
  std::byte bytes[8] = {};
  base::store(bytes + 1, std::uint32_t{0x04030201});
  for (unsigned i = 0; i < 4; ++i) EXPECT_EQ(std::to_integer<unsigned>(bytes[1 + i]), i + 1);
  EXPECT_EQ(base::load<std::uint16_t>(bytes + 2), 0x0302);
}

}  // namespace
}  // namespace tandem::test
