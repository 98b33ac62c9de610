// SPDX-License-Identifier: Apache-2.0
// A folder of shard files, and the calls of files.h on it.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "files/hash.hpp"
#include "tandem/files.h"

namespace fs = std::filesystem;

// Makes the checksum at the end of a record right again, so that what is wrong with its fields is looked at.
template <std::size_t kBytes>
void reseal(std::array<std::byte, kBytes> &record) {
  const std::uint64_t check = tandem::files::hash64(record.data(), kBytes - 8);
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

class Files : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "tandem-files-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    shards_ = root_ / "shards";
    tandem_context_options options = {};
    options.struct_bytes = sizeof options;
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
    tandem_files_encode_options options = {};
    options.struct_bytes = sizeof options;
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
    result_ = {};
    result_.struct_bytes = sizeof result_;
    ASSERT_EQ(tandem_files_encode(context_, &options, &result_), TANDEM_OK) << tandem_last_error_message();
  }

  tandem_status decode(const fs::path &from, std::string set_id = "") {
    const std::string path = from.string(), output = (root_ / "output").string();
    const char *pointer = path.c_str();
    tandem_files_search *search = nullptr;
    tandem_status status = tandem_files_search_create(&pointer, 1, &search);
    if (status != TANDEM_OK) return status;
    tandem_files_decode_options options = {};
    options.struct_bytes = sizeof options;
    options.output_path = output.c_str();
    options.force = 1;
    options.no_sync = 1;
    if (!set_id.empty()) options.set_id_prefix = set_id.c_str();
    result_ = {};
    result_.struct_bytes = sizeof result_;
    status = tandem_files_decode(context_, search, &options, &result_);
    tandem_files_search_destroy(search);
    return status;
  }

  tandem_files_verify_result verify() {
    const std::string path = shards_.string();
    const char *pointer = path.c_str();
    tandem_files_search *search = nullptr;
    EXPECT_EQ(tandem_files_search_create(&pointer, 1, &search), TANDEM_OK) << tandem_last_error_message();
    tandem_files_verify_options options = {};
    options.struct_bytes = sizeof options;
    tandem_files_verify_result result = {};
    result.struct_bytes = sizeof result;
    EXPECT_EQ(tandem_files_verify(context_, search, &options, &result), TANDEM_OK) << tandem_last_error_message();
    tandem_files_search_destroy(search);
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
  std::string folder_text_, source_text_;
  const char *folder_ = nullptr;
};
