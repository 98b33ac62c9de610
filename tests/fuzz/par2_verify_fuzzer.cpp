// SPDX-License-Identifier: Apache-2.0
// Fuzzer of verify and of the search for slices. An input becomes a file of packets and a data file in memory: parts of
// the set's files, runs and other bytes. Some checksums are false. The oracle looks for each slice at each offset.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "par2/verify.hpp"
#include "tests/fuzz/input.hpp"

namespace tandem::par2 {
namespace {

using test::FuzzInput;

[[noreturn]] void wrong(const char *what) {
  std::fprintf(stderr, "WRONG: %s\n", what);
  std::abort();
}

class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("par2", MFD_CLOEXEC)) {}
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile &) = delete;
  MemoryFile &operator=(const MemoryFile &) = delete;
  void write(const Bytes &bytes) const {
    if (::write(descriptor_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) wrong("no file");
  }
  std::string name() const { return std::to_string(descriptor_); }
  std::string path() const { return "/proc/self/fd/" + name(); }

 private:
  int descriptor_;
};

// Parts of `known`, runs of one byte, and bytes of the input.
Bytes take_data(FuzzInput &input, const std::vector<Bytes> &known) {
  Bytes data;
  for (unsigned count = input.byte() % 8; count != 0; --count) {
    const std::uint8_t how = input.byte();
    const Bytes *const from = known.empty() ? nullptr : &known[how / 4 % known.size()];
    if (how % 4 < 2 && from != nullptr) {
      const std::size_t first = how % 4 == 0 ? 0 : std::min<std::size_t>(input.byte(), from->size());
      const std::size_t left = from->size() - first,
                        bytes = how % 4 == 0 ? left : std::min<std::size_t>(input.byte(), left);
      data.insert(data.end(), from->begin() + static_cast<long>(first),
                  from->begin() + static_cast<long>(first + bytes));
    } else if (how % 4 == 2) {
      data.resize(data.size() + input.byte() % 128, static_cast<std::byte>(input.byte()));
    } else {
      for (unsigned each = input.byte() % 32; each != 0; --each) data.push_back(static_cast<std::byte>(input.byte()));
    }
  }
  return data;
}

SliceSum sum_of(const Bytes &data, std::size_t at, std::size_t bytes, std::size_t slice_bytes) {
  Bytes slice(data.begin() + static_cast<long>(at), data.begin() + static_cast<long>(at + bytes));
  slice.resize(slice_bytes);
  return {Md5::of(slice.data(), slice.size()), crc32(0, slice.data(), slice.size())};
}

// Sums of the slices of the data, as the set says. false_sums: some are wrong.
std::vector<SliceSum> take_sums(FuzzInput &input, const Bytes &data, std::size_t slice_bytes, bool *false_sums) {
  std::vector<SliceSum> sums;
  for (std::size_t at = 0; at < data.size(); at += slice_bytes) {
    sums.push_back(sum_of(data, at, std::min(slice_bytes, data.size() - at), slice_bytes));
    const std::uint8_t how = input.byte();
    if (how % 16 != 15) continue;
    *false_sums = true;
    (how & 16 ? sums.back().md5[0] : reinterpret_cast<std::uint8_t &>(sums.back().crc)) ^= 1;
  }
  return sums;
}

// The MD5s of all slices of so many bytes in the data, zeros added.
std::set<Digest> md5s_in(const Bytes &data, std::size_t bytes, std::size_t slice_bytes) {
  std::set<Digest> found;
  for (std::size_t at = 0; at < data.size(); ++at) {
    if (bytes > data.size() - at && bytes != slice_bytes) break;
    found.insert(sum_of(data, at, std::min(bytes, data.size() - at), slice_bytes).md5);
  }
  return found;
}

void check_scan(const Set &set, const std::string &path, const Bytes &data, std::uint64_t task_bytes) {
  const Search search(set);
  const Region region{&path, 0, data.size(), true};
  std::uint64_t counted = 0, calls = 0;
  const auto progressed = [&](std::uint64_t bytes) { counted += bytes, ++calls; };
  for (std::uint64_t at = 0; at < data.size(); at += std::min(task_bytes, data.size() - at)) {
    for (const Match &match : search.scan(region, at, std::min(at + task_bytes, data.size()), progressed)) {
      if (match.offset + match.bytes > data.size()) wrong("a match beyond the end");
      if (search.contents()[match.content].sum != sum_of(data, match.offset, match.bytes, set.slice_bytes))
        wrong("a match that is none");
    }
  }
  if (counted != data.size()) wrong("progress");
  const std::uint64_t scans = 1 + data.size() / task_bytes;  // each follows some false and repeated matches
  if (calls > 1000 * scans + 20 * data.size()) wrong("work");
}

// A set with slices of up to 1 GiB, for files of a few bytes and files that claim to be large. Bytes are hashed in
// pieces of 32 KiB, and each piece is progress: so few pieces are allowed beside those of the data.
void fuzz_work(FuzzInput &input) {
  const MemoryFile data_file;
  const Bytes content = take_data(input, {}), data = take_data(input, {content});
  data_file.write(data);
  Set set;
  set.slice_bytes = (1u << (16 + input.byte() % 15)) - 4 * (input.byte() % 2);
  for (unsigned i = 0, count = 1 + input.byte() % 3; i < count; ++i) {
    File file{};
    file.name = i == 0 ? data_file.name() : std::string(1, static_cast<char>('a' + i));
    file.bytes = input.byte() % 2 == 0 ? content.size() : (1 + input.byte() % 2) * set.slice_bytes + input.byte();
    file.md5 = Md5::of(content.data(), content.size());
    file.md5_of_beginning = file.md5;
    file.first_slice = set.slice_count;
    file.slice_count = slices_of(file.bytes, set.slice_bytes);
    set.slice_count += file.slice_count;
    for (std::uint64_t slice = 0; slice < file.slice_count; ++slice) {
      const std::uint64_t bytes = file.bytes_of_slice(slice, set.slice_bytes), known = std::min(bytes, data.size());
      const std::uint32_t crc = crc32_zeros(crc32(0, data.data(), known), set.slice_bytes - known);
      file.sums.push_back({{input.byte()}, input.byte() % 4 != 0 ? crc : 0});
    }
    set.files.push_back(file);
  }
  constexpr std::uint64_t kPieces = (256u << 20) / 32768;
  base::Crew crew(0);
  base::Meter meter;
  verify(set, "/proc/self/fd", {}, 0, crew, meter);
  if (meter.call_count() > 2 * kPieces) wrong("more is hashed than was read");
}

void fuzz(FuzzInput &input) {
  const std::uint8_t size = input.byte();
  if (size >= 0xe0) return fuzz_work(input);
  const std::size_t slice_bytes = 4 * (1 + size % 16);
  const MemoryFile data_file, packet_file;
  std::vector<Bytes> contents;
  std::vector<Description> files;
  std::vector<std::vector<SliceSum>> sums;
  bool false_sums = false;
  for (unsigned i = 0, count = 1 + input.byte() % 3; i < count; ++i) {
    contents.push_back(take_data(input, contents));
    const Bytes &content = contents.back();
    Description file{{}, Md5::of(content.data(), content.size()), {}, content.size(), ""};
    file.md5_of_beginning = Md5::of(content.data(), std::min(content.size(), kBeginningBytes));
    file.name = i == 0 ? data_file.name() : std::string(1, static_cast<char>('a' + i));
    file.id = id_of(file);
    files.push_back(file);
    sums.push_back(take_sums(input, content, slice_bytes, &false_sums));
  }
  const Bytes data = take_data(input, contents);
  data_file.write(data);

  Main main{slice_bytes, {}, {}};
  for (const Description &file : files) main.recoverable.push_back(file.id);
  const Bytes body = main_body(main);
  const Digest id = Md5::of(body.data(), body.size());
  Bytes packets = packet(Kind::main, id, body);
  const auto add = [&](Kind kind, const Bytes &each) {
    const Bytes bytes = packet(kind, id, each);
    packets.insert(packets.end(), bytes.begin(), bytes.end());
  };
  const std::uint8_t lost = input.byte();  // sums that are not there
  for (std::size_t i = 0; i < files.size(); ++i) {
    add(Kind::description, description_body(files[i]));
    if (!sums[i].empty() && lost != 100 + i) add(Kind::sums, sums_body(files[i].id, sums[i]));
  }
  packet_file.write(packets);

  base::Crew crew(0);
  base::Meter meter;
  const Set set = read_set({packet_file.path()}, crew, meter);
  check_scan(set, data_file.path(), data, 4 * slice_bytes + input.byte());
  const Report report = verify(set, "/proc/self/fd", {}, 0, crew, meter);
  if (meter.done_bytes() > meter.total_bytes()) wrong("more progress than work");
  std::set<Digest> there;  // of slices of any length: an equal slice may be shorter, with zeros of its own
  for (std::size_t bytes = 1; bytes <= slice_bytes; ++bytes) there.merge(md5s_in(data, bytes, slice_bytes));
  for (std::size_t i = 0; i < files.size(); ++i) {
    const File &file = set.files[i];
    const std::size_t which =
        static_cast<std::size_t>(std::ranges::find(files, file.id, &Description::id) - files.begin());
    const FileReport &found = report.files[i];
    const bool is_data = file.name == data_file.name(), is_equal = contents[which] == data;
    if (file.sums.empty()) continue;
    std::uint64_t most = 0;
    for (const SliceSum &sum : file.sums) most += there.contains(sum.md5);
    if (found.found > most) wrong("a slice that is nowhere");
    if (found.found < found.in_place.size()) wrong("a slice is lost at its place");
    if (false_sums) continue;
    if (is_data && (found.state == FileState::complete) != is_equal) wrong("state");
    // A complete file is no source.
    if (!is_data && is_equal && contents[0] != data && found.state != FileState::renamed) wrong("not renamed");
    if (is_equal && found.found != file.slice_count) wrong("slices of a whole file");
  }
}

}  // namespace
}  // namespace tandem::par2

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  tandem::test::FuzzInput input(data, size);
  try {
    tandem::par2::fuzz(input);
  } catch (const tandem::base::Error &error) {  // files without bytes are equal
    if (error.status() != TANDEM_ERROR_UNSUPPORTED) tandem::par2::wrong(error.what());
  }
  return 0;
}
