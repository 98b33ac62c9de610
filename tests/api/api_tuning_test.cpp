// SPDX-License-Identifier: Apache-2.0
// Tuning through the C API, with real measurements on the CPU. Results are stored, read, merged, used by the next
// context and written to its log. Shards are small and candidates few: this does not test which candidate is fastest.
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "tandem/tools.h"
#include "tests/support/api.hpp"

namespace tandem::test {
namespace {

class Tuning : public testing::Test {
 protected:
  Tuning() {
    char name[] = "/tmp/tandem-api-tuning-XXXXXX";
    folder_ = mkdtemp(name);
    file_ = path("data/tuning.tsv");
    options_.struct_bytes = sizeof options_;
    options_.output = file_.c_str();
    options_.ks = "5";
    options_.ms = "3";
    options_.shard_bytes = 70'000;
    options_.repeats = 1;
    options_.ranges = ranges_;
    options_.range_count = 4;
    where_.log_callback = [](void *user, int32_t level, const char *message) {
      auto &heard = *static_cast<std::string *>(user);
      heard += (level == TANDEM_LOG_WARNING ? "WARNING " : "") + std::string(message) + "\n";
    };
    where_.log_level = TANDEM_LOG_INFO;
    where_.log_user = &heard_;
  }
  ~Tuning() override { std::filesystem::remove_all(folder_); }

  std::string path(const char *name) const { return folder_ + "/" + name; }
  static std::string text_of(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  tandem_status tune() {
    result_ = {};
    result_.struct_bytes = sizeof result_;
    return tandem_autotune(&where_, &options_, &result_);
  }

  static std::vector<tandem_tuning_entry> entries(const std::string &file) {
    size_t count = 0;
    EXPECT_EQ(tandem_tuning_read(file.c_str(), nullptr, 0, sizeof(tandem_tuning_entry), &count), TANDEM_OK)
        << tandem_last_error_message();
    std::vector<tandem_tuning_entry> list(count);
    EXPECT_EQ(tandem_tuning_read(file.c_str(), list.data(), count, sizeof list[0], &count), TANDEM_OK);
    return list;
  }

  // Encodes with a context that reads `file`; what its log said.
  std::string code_with(const std::string &file) {
    heard_.clear();
    tandem_context_options options = where_;
    options.tuning_file = file.c_str();
    const Context context = make_context(options);
    Random random(8);
    Stripe stripe(random, 5, 3, 300'001);
    stripe.lose_parity();
    EXPECT_EQ(
        tandem_encode(context.get(), make_codec(5, 3).get(), stripe.data(), stripe.parity(), stripe.shard_bytes()),
        TANDEM_OK);
    EXPECT_TRUE(stripe.intact());
    return heard_;
  }

  std::string folder_, file_, heard_;
  const char *const ranges_[4] = {"chunk_bytes=1<<v, v=16:17", "tile_bytes=0,1024", "prefetch_bytes=0",
                                  "out_of_cache_bytes=65536"};
  tandem_context_options where_ = context_options("serial", 1);
  tandem_autotune_options options_ = {};
  tandem_autotune_result result_ = {};
};

TEST_F(Tuning, IsKeptUsedAndTold) {
  ASSERT_EQ(tune(), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(result_.case_count, 2u);
  EXPECT_EQ(result_.candidate_count, 2u * 5);  // and the built-in values
  EXPECT_EQ(result_.refused_count + result_.wrong_count + result_.known_count, 0u);
  EXPECT_EQ(result_.complete, 1);
  EXPECT_GT(result_.seconds, 0);
  EXPECT_NE(heard_.find("cpu: encode (5, 3): "), std::string::npos) << heard_;

  const auto list = entries(file_);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].operation, TANDEM_OPERATION_ENCODE);
  EXPECT_EQ(list[1].operation, TANDEM_OPERATION_DECODE);
  for (const tandem_tuning_entry &entry : list) {
    EXPECT_STREQ(entry.backend, "cpu");
    EXPECT_STRNE(entry.device, "");
    EXPECT_EQ(entry.k, 5u);
    EXPECT_EQ(entry.m, 3u);
    EXPECT_EQ(entry.repeats, 1u);
    EXPECT_EQ(entry.shard_bytes, 70'000u);
    // One that wins wins clearly; else the built-in values stay.
    if (*entry.values != 0) {
      EXPECT_GT(entry.bytes_per_second, 1.01 * entry.default_bytes_per_second);
    } else {
      EXPECT_EQ(entry.bytes_per_second, entry.default_bytes_per_second);
    }
    EXPECT_GT(entry.default_bytes_per_second, 0);
  }
  const std::string heard = code_with(file_);
  EXPECT_NE(heard.find("cpu: coding (5, 3) with " +
                       std::string(*list[0].values != 0 ? list[0].values : "the built-in values") +
                       ": measured for encode (5, 3) on this device, " + list[0].date),
            std::string::npos)
      << heard;
  EXPECT_EQ(heard.find("WARNING"), std::string::npos) << heard;
  EXPECT_EQ(code_with("").find("measured"), std::string::npos);

  // Nothing is new: nothing is measured.
  ASSERT_EQ(tune(), TANDEM_OK);
  EXPECT_EQ(result_.candidate_count, 0u);
  EXPECT_EQ(result_.known_count, 2u);
  options_.fresh = 1;
  ASSERT_EQ(tune(), TANDEM_OK);
  EXPECT_EQ(result_.candidate_count, 10u);
}

TEST_F(Tuning, EveryOperation) {
  options_.operations = "verify,update,decode,encode";
  options_.ks = "2,5";
  ASSERT_EQ(tune(), TANDEM_ERROR_INVALID_ARGUMENT);  // nothing of a tile is left to verify
  EXPECT_STREQ(tandem_last_error_message(), "backend cpu has no tile_bytes to tune; it has chunk_bytes");
  EXPECT_FALSE(std::filesystem::exists(file_));
  options_.range_count = 1;
  options_.max_seconds = 1e-3;  // the first case of a call always has a result
  for (const char *operation : {"verify", "update", "decode", "encode"}) {
    for (const char *k : {"2", "5"}) {
      options_.operations = operation;
      options_.ks = k;
      ASSERT_EQ(tune(), TANDEM_OK) << tandem_last_error_message();
      EXPECT_EQ(result_.complete, 0);
    }
  }
  EXPECT_EQ(entries(file_).size(), 7u);  // one update: k says nothing about it
}

// Devices are tuned by their own names.
TEST_F(Tuning, OfAHybridIsThatOfItsCpu) {
  where_.backend = "hybrid:cpu";
  ASSERT_EQ(tune(), TANDEM_OK) << tandem_last_error_message();
  const std::vector<tandem_tuning_entry> found = entries(file_);
  EXPECT_EQ(found.size(), result_.case_count);
  for (const tandem_tuning_entry &each : found) EXPECT_STREQ(each.backend, "cpu");
}

TEST_F(Tuning, CancelKeepsFinishedCases) {
  options_.repeats = 3;
  unsigned calls = 0;
  options_.progress_user = &calls;
  options_.progress = [](void *user, const tandem_autotune_progress *progress) -> int32_t {
    EXPECT_EQ(progress->struct_bytes, sizeof *progress);
    EXPECT_EQ(progress->k, 5u);
    EXPECT_LE(progress->done_count, progress->total_count);
    return ++*static_cast<unsigned *>(user) == 6;
  };
  EXPECT_EQ(tune(), TANDEM_ERROR_CANCELLED);
  EXPECT_FALSE(std::filesystem::exists(file_));
  options_.progress = [](void *, const tandem_autotune_progress *progress) -> int32_t {
    return progress->operation == TANDEM_OPERATION_DECODE;
  };
  EXPECT_EQ(tune(), TANDEM_ERROR_CANCELLED);
  EXPECT_EQ(entries(file_).size(), 1u);
  options_.progress = nullptr;
  ASSERT_EQ(tune(), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(result_.known_count, 1u);
  EXPECT_EQ(entries(file_).size(), 2u);
  std::filesystem::remove(file_);
  ASSERT_EQ(tune(), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(result_.known_count, 0u);
  EXPECT_EQ(entries(file_).size(), 2u);
}

TEST_F(Tuning, WrongOptions) {
  const auto refused = [&](const char *tandem_autotune_options::*field, const char *value) {
    const char *const before = options_.*field;
    options_.*field = value;
    EXPECT_EQ(tune(), TANDEM_ERROR_INVALID_ARGUMENT) << value;
    options_.*field = before;
    return std::string(tandem_last_error_message());
  };
  EXPECT_EQ(refused(&tandem_autotune_options::ks, "1<<v, v=9:4"), "range \"1<<v, v=9:4\": 9:4 is empty");
  for (const char *list : {"", "0", "256", "5,", "x"}) {
    refused(&tandem_autotune_options::ks, list);
    refused(&tandem_autotune_options::ms, list);
  }
  for (const char *list : {"", "encode,", "explode", "Encode", "encode decode"})
    refused(&tandem_autotune_options::operations, list);
  refused(&tandem_autotune_options::output, "");
  EXPECT_NE(refused(&tandem_autotune_options::ks, "255").find("(255, 3) cannot be tuned"), std::string::npos);
  for (const char *range : {"", "=", "tile_bytes", "tile_bytes=", "Tile=1", "tile_bytes=1,x", "local_x=1"}) {
    options_.ranges = &range;
    options_.range_count = 1;
    EXPECT_EQ(tune(), TANDEM_ERROR_INVALID_ARGUMENT) << range;
  }
  const char *const twice[] = {"tile_bytes=1024", "tile_bytes=2048"};
  options_.ranges = twice;
  options_.range_count = 2;
  EXPECT_EQ(tune(), TANDEM_ERROR_INVALID_ARGUMENT);
  options_.ranges = nullptr;
  EXPECT_EQ(tune(), TANDEM_ERROR_INVALID_ARGUMENT);
  options_.range_count = 0;
  for (const double seconds :
       {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    options_.max_seconds = seconds;
    EXPECT_EQ(tune(), TANDEM_ERROR_INVALID_ARGUMENT);
  }
  options_.max_seconds = 0;
  options_.repeats = 1'000'000;
  EXPECT_EQ(tune(), TANDEM_ERROR_INVALID_ARGUMENT);
  options_.repeats = 1;
  options_.struct_bytes = 3;
  EXPECT_EQ(tune(), TANDEM_ERROR_INVALID_ARGUMENT);
  options_.struct_bytes = sizeof options_;
  where_.backend = "nonsense";
  EXPECT_EQ(tune(), TANDEM_ERROR_UNAVAILABLE);
  EXPECT_FALSE(std::filesystem::exists(file_));
  size_t count = 0;
  EXPECT_EQ(tandem_tuning_read(file_.c_str(), nullptr, 1, sizeof(tandem_tuning_entry), &count),
            TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tandem_tuning_read(file_.c_str(), nullptr, 0, 0, nullptr), TANDEM_ERROR_INVALID_ARGUMENT);
  char small[3];
  EXPECT_EQ(tandem_tuning_path(file_.c_str(), small, sizeof small), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tandem_tuning_path("ab", small, sizeof small), TANDEM_OK);
  EXPECT_STREQ(small, "ab");
}

// A wrong name is seen before anything is thrown away; what one run replaces has its date in the future.
TEST_F(Tuning, FreshStartsAndClocks) {
  ASSERT_EQ(tune(), TANDEM_OK);
  const std::string whole = text_of(file_);
  const char *const range = "local_x=1";
  options_.ranges = &range;
  options_.range_count = 1;
  options_.fresh = 1;
  EXPECT_EQ(tune(), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(text_of(file_), whole);
  const char *const beyond = "tile_bytes=1073741824";
  options_.ranges = &beyond;
  EXPECT_EQ(tune(), TANDEM_ERROR_UNAVAILABLE) << "what cannot be run is not kept as if it had been";
  EXPECT_NE(std::string(tandem_last_error_message()).find("with the range given for tile_bytes"), std::string::npos);

  std::string text = text_of(file_);
  for (std::size_t at = 0; (at = text.find("Z\n", at + 1)) != std::string::npos;) text.replace(at - 19, 2, "99");
  std::ofstream(file_, std::ios::binary) << text;
  ASSERT_STREQ(std::string(entries(file_)[0].date).substr(0, 2).c_str(), "99");
  options_.ranges = ranges_;
  options_.range_count = 4;
  ASSERT_EQ(tune(), TANDEM_OK);
  for (const tandem_tuning_entry &entry : entries(file_)) EXPECT_EQ(std::string(entry.date).substr(0, 2), "20");

  where_.resources = "cpu=1";
  EXPECT_EQ(tune(), TANDEM_ERROR_INVALID_ARGUMENT);
}

// Never a crash, never wrong bytes, always a word.
TEST_F(Tuning, BadFilesAreIgnoredWithAWarning) {
  ASSERT_EQ(tune(), TANDEM_OK);
  const std::string whole = text_of(file_);
  const auto with = [&](const std::string &text) {
    std::ofstream(file_, std::ios::binary) << text;
    return code_with(file_);
  };
  EXPECT_NE(with(whole.substr(0, whole.size() / 2)).find("WARNING tuning file " + file_), std::string::npos);
  EXPECT_NE(heard_.find(": line "), std::string::npos) << heard_;
  EXPECT_EQ(tune(), TANDEM_ERROR_DAMAGED) << "a file that cannot be read is not replaced";
  EXPECT_EQ(text_of(file_).size(), whole.size() / 2);
  std::string other = whole;
  other.replace(other.find("tandem_tuning_2"), 15, "tandem_tuning_9");
  EXPECT_NE(with(other).find("WARNING tuning file " + file_ + ": line 1: it is of another version"), std::string::npos);
  EXPECT_EQ(tune(), TANDEM_ERROR_UNSUPPORTED);
  other = whole;
  for (std::size_t at = 0; (at = other.find("\tcpu\t", at + 1)) != std::string::npos;) other.insert(at + 5, "Other ");
  EXPECT_NE(with(other).find("none of its 2 entries was measured on"), std::string::npos) << heard_;
  EXPECT_NE(heard_.find("WARNING"), std::string::npos);
  // Of another backend alone: no news for the CPU, unless the file was named.
  for (std::size_t at; (at = other.find("\tcpu\t")) != std::string::npos;) other.replace(at, 5, "\topencl\t");
  EXPECT_NE(with(other).find("none of its 2 entries was measured on"), std::string::npos) << heard_;
  setenv("XDG_DATA_HOME", folder_.c_str(), 1);
  unsetenv("TANDEM_TUNING");
  std::filesystem::create_directories(path("tandem"));
  std::filesystem::rename(file_, path("tandem/tuning.tsv"));
  heard_.clear();
  make_context(where_);
  EXPECT_EQ(heard_.find("WARNING"), std::string::npos) << heard_;
  setenv("TANDEM_TUNING", "", 1);
  EXPECT_NE(code_with(path("none")).find("does not exist"), std::string::npos);
  EXPECT_NE(code_with(folder_).find("is no regular file"), std::string::npos);
}

TEST_F(Tuning, FilesAreMerged) {
  ASSERT_EQ(tune(), TANDEM_OK);
  const std::string first = path("first.tsv");
  std::filesystem::rename(file_, first);
  options_.ks = "6";
  ASSERT_EQ(tune(), TANDEM_OK);
  const char *const files[] = {first.c_str(), file_.c_str()};
  const std::string all = path("all.tsv");
  size_t count = 0;
  ASSERT_EQ(tandem_tuning_merge(files, 2, all.c_str(), &count), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(count, 4u);
  EXPECT_EQ(entries(all).size(), 4u);
  ASSERT_EQ(tandem_tuning_merge(files, 1, file_.c_str(), &count), TANDEM_OK);
  EXPECT_EQ(count, 4u) << "what is in the output stays";
  const std::string none = path("none.tsv");
  const char *const missing[] = {first.c_str(), none.c_str()};
  EXPECT_EQ(tandem_tuning_merge(missing, 2, path("x.tsv").c_str(), nullptr), TANDEM_ERROR_IO);
  EXPECT_FALSE(std::filesystem::exists(path("x.tsv")));
  EXPECT_EQ(tandem_tuning_merge(nullptr, 1, all.c_str(), nullptr), TANDEM_ERROR_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace tandem::test
