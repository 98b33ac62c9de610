// SPDX-License-Identifier: Apache-2.0
#include "par2/sources.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>

#include "base/descriptor.hpp"
#include "par2/files.hpp"

namespace tandem::par2 {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_open(const std::string &path, int error_number) {
  if (!is_absent(error_number)) fail_io("open", path, error_number);
  fail(TANDEM_ERROR_INVALID_ARGUMENT, "cannot open ", path, ": ", base::error_text(error_number));
}

fs::path resolved(const fs::path &path) {
  std::error_code error;
  fs::path result = fs::canonical(path.empty() ? fs::path(".") : path, error);
  if (error) fail_open(path, error.value());
  return result;
}

class Finder {
 public:
  Finder(const std::string &base, const std::function<bool(const std::string &)> &is_left_out)
      : base_(resolved(base)), is_left_out_(is_left_out) {}

  void add(const std::string &path) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      if (!is_left_out_(path)) add_file(path);
      return;
    }
    // Sorted, so that the order of files with equal ids does not depend on the file system.
    std::set<std::string> found;
    for (fs::recursive_directory_iterator each(path, error), end; !error && each != end; each.increment(error)) {
      const fs::file_type type = each->symlink_status(error).type();
      if (type == fs::file_type::none) break;
      if (type == fs::file_type::regular && !is_left_out_(each->path().string())) found.insert(each->path().string());
    }
    if (error) fail(TANDEM_ERROR_IO, "cannot list ", path, ": ", error.message());
    for (const std::string &file : found) add_file(file);
  }
  std::vector<Source> take() { return std::move(sources_); }

 private:
  void add_file(const std::string &path) {
    Source source;
    source.path = path;
    if (stat(path.c_str(), &source.status) != 0) fail_open(path, errno);
    if (!S_ISREG(source.status.st_mode)) fail(TANDEM_ERROR_INVALID_ARGUMENT, path, " is no regular file");
    // A link is protected under its own name.
    const fs::path given(path);
    source.name = (resolved(given.parent_path()) / given.filename()).lexically_relative(base_).string();
    if (!is_safe_name(source.name))
      fail(TANDEM_ERROR_INVALID_ARGUMENT, path, " lies outside of the base folder ", base_.string());
    source.bytes = static_cast<std::uint64_t>(source.status.st_size);
    if (!names_.insert(source.name).second) return;
    if (names_.size() > kMostFiles) fail(TANDEM_ERROR_TOO_LARGE, "more than ", kMostFiles, " files");
    sources_.push_back(std::move(source));
  }

  const fs::path base_;
  const std::function<bool(const std::string &)> &is_left_out_;
  std::set<std::string> names_;
  std::vector<Source> sources_;
};

}  // namespace

std::vector<Source> find_sources(const std::vector<std::string> &paths, const std::string &base,
                                 const std::function<bool(const std::string &path)> &is_left_out) {
  Finder finder(base, is_left_out);
  for (const std::string &path : paths) finder.add(path);
  std::vector<Source> sources = finder.take();
  if (sources.empty()) fail(TANDEM_ERROR_INVALID_ARGUMENT, "there are no files to protect");
  return sources;
}

std::uint64_t least_slice_bytes(const std::vector<Source> &sources, std::uint64_t slice_count) {
  std::uint64_t largest = 4, needed = 0;
  for (const Source &source : sources) {
    largest = std::max(largest, source.bytes);
    needed += source.bytes != 0;
  }
  if (needed > slice_count)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, needed, " files need at least as many slices, not ", slice_count);
  std::uint64_t low = 1, high = largest / 4 + 1;  // high suffices
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    std::uint64_t sum = 0;
    for (const Source &source : sources) sum += slices_of(source.bytes, 4 * middle);
    if (sum <= slice_count)
      high = middle;
    else
      low = middle + 1;
  }
  return 4 * high;
}

std::uint64_t default_slice_bytes(const std::vector<Source> &sources) {
  constexpr std::uint64_t kSlices = 2000, kLeast = 4096;
  std::uint64_t all = 0, largest = 1, count = 0;
  for (const Source &source : sources) {
    all += source.bytes;
    largest = std::max(largest, source.bytes);
  }
  const std::uint64_t bytes = slices_of(std::max(slices_of(all, kSlices), std::min(kLeast, largest)), 4) * 4;
  for (const Source &source : sources) count += slices_of(source.bytes, bytes);
  return count <= kMostSlices ? bytes : least_slice_bytes(sources, kMostSlices);
}

void check_unchanged(const std::vector<Source> &sources) {
  for (const Source &source : sources) {
    struct stat now;
    if (stat(source.path.c_str(), &now) != 0) fail_io("open", source.path, errno);
    if (!base::unchanged(source.status, now)) fail(TANDEM_ERROR_IO, source.path, " has changed during the call");
  }
}

}  // namespace tandem::par2
