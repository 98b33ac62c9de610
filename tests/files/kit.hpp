// SPDX-License-Identifier: Apache-2.0
// A folder of shard files, and the calls of files.h on it.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "tandem/files.h"
#include "tests/support/structs.hpp"

namespace fs = std::filesystem;
using tandem::test::sized;

// Makes the checksum at the end of a record right again, so that what is wrong with its fields is looked at.
template <std::size_t kBytes>
void reseal(std::array<std::byte, kBytes> &record) {
  const std::uint64_t check = tandem::base::hash64(record.data(), kBytes - 8);
  for (unsigned i = 0; i < 8; ++i) record[kBytes - 8 + i] = static_cast<std::byte>(check >> (8 * i));
}

inline std::vector<char> paint(std::size_t bytes, unsigned seed = 1) {
  std::vector<char> content(bytes);
  std::mt19937_64 random(seed);
  for (std::size_t i = 0; i < bytes; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(content.data() + i, &word, std::min<std::size_t>(8, bytes - i));
  }
  return content;
}

inline std::vector<char> slurp(const fs::path &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline void spill(const fs::path &path, const std::vector<char> &content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  ASSERT_TRUE(file.good()) << path;
}

// Writes numbers into both records of a shard file and seals them.
inline void forge(const fs::path &path, std::size_t at, std::uint64_t value, std::size_t bytes) {
  constexpr std::size_t kBytes = 4096;
  std::vector<char> content = slurp(path);
  for (const std::size_t record : {std::size_t{0}, content.size() - kBytes}) {
    for (std::size_t i = 0; i < bytes; ++i) content[record + at + i] = static_cast<char>(value >> (8 * i));
    const std::uint64_t check = tandem::base::hash64(content.data() + record, kBytes - 8);
    for (unsigned i = 0; i < 8; ++i) content[record + kBytes - 8 + i] = static_cast<char>(check >> (8 * i));
  }
  spill(path, content);
}

// The regular files of a folder, by name.
using Contents = std::map<std::string, std::vector<char>>;
inline Contents contents(const fs::path &folder) {
  Contents all;
  for (const auto &entry : fs::directory_iterator(folder))
    if (fs::is_regular_file(entry.symlink_status())) all[entry.path().filename().string()] = slurp(entry.path());
  return all;
}

inline void expect_message(const std::string &words) {
  const std::string message = tandem_last_error_message();
  EXPECT_NE(message.find(words), std::string::npos) << message;
}

// Paths as the C API takes them.
class Paths {
 public:
  explicit Paths(const std::vector<fs::path> &paths) {
    for (const fs::path &path : paths) text_.push_back(path.string());
    for (const std::string &path : text_) pointers_.push_back(path.c_str());
  }
  Paths(const Paths &) = delete;
  Paths &operator=(const Paths &) = delete;
  const char *const *data() const { return pointers_.data(); }
  std::size_t size() const { return pointers_.size(); }

 private:
  std::vector<std::string> text_;
  std::vector<const char *> pointers_;
};

class Search {
 public:
  explicit Search(const fs::path &path) : Search(std::vector{path}) {}
  explicit Search(const std::vector<fs::path> &paths) {
    const Paths names(paths);
    status_ = tandem_files_search_create(names.data(), names.size(), &search_);
  }
  ~Search() { tandem_files_search_destroy(search_); }
  Search(const Search &) = delete;
  Search &operator=(const Search &) = delete;
  tandem_status status() const { return status_; }
  operator const tandem_files_search *() const {
    EXPECT_EQ(status_, TANDEM_OK) << tandem_last_error_message();
    return search_;
  }
  tandem_files_set set(std::size_t index) const {
    auto set = sized<tandem_files_set>();
    EXPECT_EQ(tandem_files_search_set(search_, index, &set), TANDEM_OK) << tandem_last_error_message();
    return set;
  }

 private:
  tandem_files_search *search_ = nullptr;
  tandem_status status_;
};

// This process may have so many files open, for the life of the object.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t count) {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit few{count, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit &) = delete;
  DescriptorLimit &operator=(const DescriptorLimit &) = delete;

 private:
  rlimit before_;
};

// Root may read and write everything. For the life of the object this process has the rights of another user.
class NotRoot {
 public:
  NotRoot() { EXPECT_TRUE(user_ != 0 || seteuid(65534) == 0); }
  ~NotRoot() { EXPECT_EQ(seteuid(user_), 0); }
  NotRoot(const NotRoot &) = delete;
  NotRoot &operator=(const NotRoot &) = delete;

 private:
  const uid_t user_ = geteuid();
};

class Files : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "tandem-files-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    shards_ = root_ / "shards";
    auto options = sized<tandem_context_options>();
    options.thread_count = 3;
    ASSERT_EQ(tandem_context_create(&options, &context_), TANDEM_OK) << tandem_last_error_message();
  }
  void TearDown() override {
    tandem_context_destroy(context_);
    fs::remove_all(root_);
  }

  tandem_files_encode_options encode_options(const fs::path &source, std::uint32_t k, std::uint32_t m,
                                             std::uint32_t block_bytes = 0) {
    folder_text_ = shards_.string();
    folder_ = folder_text_.c_str();
    source_text_ = source.string();
    auto options = sized<tandem_files_encode_options>();
    options.source_path = source_text_.c_str();
    options.k = k;
    options.m = m;
    options.block_bytes = block_bytes;
    options.folders = &folder_;
    options.folder_count = 1;
    options.no_sync = 1;
    return options;
  }

  void encode(const std::vector<char> &content, std::uint32_t k, std::uint32_t m, std::uint32_t block_bytes = 0) {
    spill(root_ / "source", content);
    const tandem_files_encode_options options = encode_options(root_ / "source", k, m, block_bytes);
    result_ = sized<tandem_files_result>();
    ASSERT_EQ(tandem_files_encode(context_, &options, &result_), TANDEM_OK) << tandem_last_error_message();
  }

  // Into these folders in turn.
  void encode_into(const std::vector<fs::path> &folders, tandem_files_encode_options options) {
    const Paths paths(folders);
    options.folders = paths.data();
    options.folder_count = paths.size();
    result_ = sized<tandem_files_result>();
    ASSERT_EQ(tandem_files_encode(context_, &options, &result_), TANDEM_OK) << tandem_last_error_message();
  }

  tandem_status repair_with(const std::vector<fs::path> &paths, const tandem_files_repair_options &options) {
    const Search search(paths);
    if (search.status() != TANDEM_OK) return search.status();
    repaired_ = sized<tandem_files_repair_result>();
    return tandem_files_repair(context_, search, &options, &repaired_);
  }
  tandem_status repair(const std::vector<fs::path> &paths) {
    auto options = sized<tandem_files_repair_options>();
    options.no_sync = 1;
    return repair_with(paths, options);
  }

  // notes_ gets the notes of a call with these options.
  template <class Options>
  void collect_notes(Options &options) {
    notes_.clear();
    options.note = [](void *user, const char *note) { static_cast<std::string *>(user)->append(note).append("\n"); };
    options.note_user = &notes_;
  }

  tandem_status decode(const fs::path &from, std::string set_id = "") {
    const std::string output = (root_ / "output").string();
    const Search search(from);
    if (search.status() != TANDEM_OK) return search.status();
    auto options = sized<tandem_files_decode_options>();
    options.output_path = output.c_str();
    options.force = 1;
    options.no_sync = 1;
    if (!set_id.empty()) options.set_id_prefix = set_id.c_str();
    result_ = sized<tandem_files_result>();
    return tandem_files_decode(context_, search, &options, &result_);
  }

  tandem_files_verify_result verify() {
    const auto options = sized<tandem_files_verify_options>();
    auto result = sized<tandem_files_verify_result>();
    EXPECT_EQ(tandem_files_verify(context_, Search(shards_), &options, &result), TANDEM_OK)
        << tandem_last_error_message();
    return result;
  }

  fs::path shard(unsigned index) const {
    char name[32];
    std::snprintf(name, sizeof name, "source.%03u.tandem", index);
    return shards_ / name;
  }

  // Inverts `bytes` bytes of a shard file.
  void damage(unsigned index, std::uint64_t offset, std::size_t bytes) const {
    std::fstream file(shard(index), std::ios::in | std::ios::out | std::ios::binary);
    std::string text(bytes, 0);
    file.seekg(static_cast<std::streamoff>(offset));
    file.read(text.data(), static_cast<std::streamsize>(bytes));
    for (char &c : text) c = static_cast<char>(~c);
    file.seekp(static_cast<std::streamoff>(offset));
    file.write(text.data(), static_cast<std::streamsize>(bytes));
    ASSERT_TRUE(file.good());
  }

  std::size_t entries(const fs::path &folder) const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }

  fs::path root_, shards_;
  tandem_context *context_ = nullptr;
  tandem_files_result result_ = {};
  tandem_files_repair_result repaired_ = {};
  std::string folder_text_, source_text_, notes_;
  const char *folder_ = nullptr;
};
