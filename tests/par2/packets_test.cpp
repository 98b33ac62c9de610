// SPDX-License-Identifier: Apache-2.0
// The parts of par2/: checksums against OpenSSL and a plain formula, packets to bytes and back, hostile packets.
#include "par2/packets.hpp"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "base/bytes.hpp"
#include "base/crew.hpp"
#include "base/error.hpp"
#include "par2/crc.hpp"
#include "par2/search.hpp"
#include "par2/set.hpp"
#include "tandem/par2.h"

namespace {
std::atomic<off_t> unreadable_from{0}, unreadable_to{0};  // offsets in any file
}  // namespace

// The library's reads come here, too. A read that comes to a bad block returns what lies before it, as on a disk.
extern "C" __attribute__((visibility("default"))) ssize_t preadv(int file, const iovec *pieces, int count, off_t at) {
  iovec first = pieces[0];
  const auto end = at + static_cast<off_t>(first.iov_len);
  if (count == 1 && at < unreadable_to && end > unreadable_from) {
    first.iov_len = static_cast<std::size_t>(std::max<off_t>(unreadable_from - at, 0));
    errno = EIO;
    return first.iov_len == 0 ? -1 : syscall(SYS_preadv, file, &first, 1, at, 0L);
  }
  return syscall(SYS_preadv, file, pieces, count, at, 0L);
}

namespace tandem::par2 {
namespace {

struct Unreadable {
  Unreadable(off_t from, off_t to) {
    unreadable_from = from;
    unreadable_to = to;
  }
  ~Unreadable() { unreadable_to = 0; }
};

std::vector<std::uint8_t> random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> bytes(count);
  for (auto &byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

Digest openssl_md5(const void *bytes, std::size_t count) {
  Digest digest;
  EVP_Digest(bytes, count, digest.data(), nullptr, EVP_md5(), nullptr);
  return digest;
}

std::uint32_t plain_crc(const std::uint8_t *bytes, std::size_t count) {
  std::uint32_t crc = 0xffffffff;
  for (std::size_t i = 0; i < count; ++i) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc;
}

TEST(Checksums, Md5OfOneStreamIsThatOfOpenssl) {
  const auto bytes = random_bytes(1000, 1);
  for (std::size_t count = 0; count <= 300; ++count) {
    for (const std::size_t cut : {std::size_t{0}, count / 3, count - count / 7}) {
      Md5 stream;
      stream.update(bytes.data(), cut);
      stream.update(bytes.data() + cut, count - cut);
      EXPECT_EQ(stream.finish(), openssl_md5(bytes.data(), count)) << count << " cut at " << cut;
    }
  }
}

// Streams of different lengths, more and fewer than a kernel takes, fed in pieces of any length.
TEST(Checksums, EveryMd5KernelAgreesWithOpenssl) {
  const auto bytes = random_bytes(200000, 2);
  std::mt19937 random(3);
  for (const Md5Kernel *kernel : md5_kernels()) {
    force_md5_kernel(kernel);
    SCOPED_TRACE(kernel->name);
    for (std::size_t count : {1, 2, 3, 7, 8, 16, 31, 32, 33, 70}) {
      std::vector<Md5> streams(count);
      std::vector<std::vector<std::uint8_t>> fed(count);
      for (int round = 0; round < 3; ++round) {
        std::vector<Md5Part> parts;
        for (std::size_t i = 0; i < count; ++i) {
          const std::size_t length = random() % (round == 1 ? 70 : 3000), from = random() % 190000;
          parts.push_back({&streams[i], bytes.data() + from, length});
          fed[i].insert(fed[i].end(), bytes.begin() + static_cast<long>(from),
                        bytes.begin() + static_cast<long>(from + length));
        }
        Md5Streams::update(parts);
      }
      const std::vector<Digest> digests = Md5Streams::finish(streams);
      for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(digests[i], openssl_md5(fed[i].data(), fed[i].size())) << i;
    }
  }
  force_md5_kernel(nullptr);
  for (const char *name : {"avx512", "avx2"}) {
    bool has = false;
    for (const Md5Kernel *kernel : md5_kernels()) has = has || kernel->name == std::string_view(name);
    if (!has) std::printf("NOT RUN: MD5 with %s\n", name);
  }
}

TEST(Checksums, CrcsOfBytesZerosAndWindowsAgreeWithTheFormula) {
  const auto bytes = random_bytes(4000, 4);
  const auto kernels = crc_kernels();
  if (kernels.size() < 3) std::printf("NOT RUN: CRC with %zu kinds of products\n", 3 - kernels.size());
  for (std::size_t first = 0; first <= kernels.size(); ++first) {
    force_crc_kernels(kernels.subspan(first));
    for (std::size_t count = 0; count < 1200; ++count) {
      const std::uint32_t whole = plain_crc(bytes.data() + count, count);
      EXPECT_EQ(crc32(0, bytes.data() + count, count), whole) << count;
      EXPECT_EQ(crc32(crc32(0, bytes.data() + count, count / 3), bytes.data() + count + count / 3, count - count / 3),
                whole);
    }
  }
  force_crc_kernels(kernels);
  for (const std::size_t zeros : {0, 1, 3, 64, 1000, 123457}) {
    auto padded = bytes;
    padded.resize(bytes.size() + zeros);
    EXPECT_EQ(crc32_zeros(crc32(0, bytes.data(), bytes.size()), zeros), plain_crc(padded.data(), padded.size()))
        << zeros;
  }
  for (const std::size_t window : {4, 60, 1000}) {
    const RollingCrc rolling(window);
    std::uint32_t linear = rolling.linear(crc32(0, bytes.data(), window));
    for (std::size_t at = 1; at + window < bytes.size(); ++at) {
      linear = rolling.roll(linear, bytes[at + window - 1], bytes[at - 1]);
      ASSERT_EQ(linear, rolling.linear(plain_crc(bytes.data() + at, window))) << window << " at " << at;
    }
  }
}

Description described(std::string name, std::uint64_t bytes) {
  Description file{{}, Digest{1}, Digest{2}, bytes, std::move(name)};
  file.id = id_of(file);
  return file;
}

TEST(Packets, BodiesComeBackAsTheyWere) {
  for (const std::string name : {"a", "ab", "abc", "abcd", "folder/\xc3\xa9 b"}) {
    const Description file = described(name, 12345);
    const auto back = parse_description(description_body(file));
    ASSERT_TRUE(back);
    EXPECT_EQ(std::tie(back->id, back->md5, back->md5_of_beginning, back->bytes, back->name),
              std::tie(file.id, file.md5, file.md5_of_beginning, file.bytes, file.name));
  }
  const auto main = parse_main(main_body({8, {Digest{3}, Digest{4}}, {Digest{5}}}));
  ASSERT_TRUE(main);
  EXPECT_EQ(main->slice_bytes, 8u);
  EXPECT_EQ(main->recoverable, (std::vector<Digest>{{3}, {4}}));
  EXPECT_EQ(main->others, std::vector<Digest>{{5}});
  const std::vector<SliceSum> sums{{Digest{6}, 7}, {Digest{8}, 9}};
  EXPECT_EQ(parse_sums(sums_body(Digest{1}, sums))->sums, sums);
  // U+1F600 takes two words.
  const Bytes unicode = unicode_body(described("\xf0\x9f\x98\x80x", 1));
  EXPECT_EQ(unicode.size(), 16u + 8);
  EXPECT_EQ(base::load<std::uint16_t>(unicode.data() + 16), 0xd83d);
  EXPECT_EQ(base::load<std::uint16_t>(unicode.data() + 18), 0xde00);
  EXPECT_EQ(base::load<std::uint16_t>(unicode.data() + 20), 'x');
  EXPECT_TRUE(unicode_body(described("\xff", 1)).empty());
  EXPECT_TRUE(is_less(Digest{9, 0}, Digest{0, 1}));  // the last byte counts most
}

TEST(Packets, HostileBodiesAreRefused) {
  const Bytes main = main_body({8, {Digest{3}}, {}});
  const auto changed = [](Bytes bytes, std::size_t at, auto value) {
    base::store(bytes.data() + at, value);
    return bytes;
  };
  using U64 = std::uint64_t;
  EXPECT_FALSE(parse_main(std::span(main).first(11)));
  EXPECT_FALSE(parse_main(std::span(main).first(main.size() - 4)));
  for (const U64 slice : {U64{0}, U64{6}, ~U64{0}}) EXPECT_FALSE(parse_main(changed(main, 0, slice)));
  for (const std::uint32_t count : {2u, 32769u, 0xffffffffu}) EXPECT_FALSE(parse_main(changed(main, 8, count)));
  const Description file = described("name", 5);
  const Bytes description = description_body(file);
  EXPECT_FALSE(parse_description(std::span(description).first(56)));
  EXPECT_FALSE(parse_description(changed(description_body(file), 48, U64{6})));  // its id says otherwise
  EXPECT_FALSE(parse_description(description_body(described("name", U64{1} << 63))));
  EXPECT_FALSE(parse_description(description_body(described(std::string("a\0b", 3), 5))));
  EXPECT_FALSE(parse_sums(Bytes(16 + 19)));
  EXPECT_FALSE(parse_sums(Bytes(16 + 20 * 32769)));
  const Bytes whole = packet(Kind::main, Digest{1}, main);
  EXPECT_TRUE(parse_header(whole, whole.size()));
  EXPECT_FALSE(parse_header(whole, whole.size() - 1));
  for (const U64 bytes : {U64{0}, U64{60}, U64{66}, U64{1} << 63, ~U64{3}})
    EXPECT_FALSE(parse_header(changed(whole, 8, bytes), 1 << 20));
  for (const std::string_view name : {"", "/a", "..", "../a", "a/../b", "a//b", "a/", "./a", "a/."})
    EXPECT_FALSE(is_safe_name(name)) << name;
  for (const std::string_view name : {"a", "a/b", "..a", "a../b", "..."}) EXPECT_TRUE(is_safe_name(name)) << name;
}

// A packet file made of pieces, in a folder that is removed.
class PacketFiles : public testing::Test {
 protected:
  PacketFiles() {
    std::string pattern = testing::TempDir() + "par2XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~PacketFiles() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string &name, const std::vector<Bytes> &pieces) {
    std::ofstream file(folder_ + "/" + name, std::ios::binary);
    for (const Bytes &piece : pieces)
      file.write(reinterpret_cast<const char *>(piece.data()), static_cast<std::streamsize>(piece.size()));
    return folder_ + "/" + name;
  }
  Set read(const std::vector<Bytes> &pieces) {
    base::Crew crew(1);
    base::Meter meter;
    const Set set = read_set({write("a.par2", pieces)}, crew, meter);
    reads_ = meter.call_count();
    return set;
  }
  Digest id_of_set(const Main &main) {
    const Bytes body = main_body(main);
    return Md5::of(body.data(), body.size());
  }
  // The packets of a set of one file, and one recovery packet.
  std::vector<Bytes> pieces_of(const Description &file, std::uint64_t slice_bytes) {
    const Main main{slice_bytes, {file.id}, {}};
    const Digest id = id_of_set(main);
    Bytes data(4 + slice_bytes);
    base::store(data.data(), std::uint32_t{7});
    return {packet(Kind::main, id, main_body(main)), packet(Kind::description, id, description_body(file)),
            packet(Kind::recovery, id, data),
            packet(Kind::sums, id, sums_body(file.id, std::vector<SliceSum>(slices_of(file.bytes, slice_bytes))))};
  }
  std::string refusal(const std::vector<Bytes> &pieces) {
    try {
      read(pieces);
    } catch (const base::Error &error) {
      return error.what();
    }
    return "";
  }
  std::string folder_;
  std::uint64_t reads_ = 0;
};

TEST_F(PacketFiles, IntactPacketsAreFoundBetweenDamage) {
  const auto pieces = pieces_of(described("x", 20), 8);
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<Bytes> file;
    std::vector<std::size_t> order{0, 1, 2, 3, 0, 1, 2, 3};
    std::shuffle(order.begin(), order.end(), random);
    std::size_t intact[4] = {}, used = 0;
    for (const std::size_t each : order) {
      Bytes bytes = pieces[each];
      const unsigned kind = random() % 5;
      if (kind == 0) {  // a byte that the packet's MD5 covers, or its header
        bytes[random() % bytes.size()] ^= std::byte{1};
      } else if (kind == 1) {  // an end is missing
        bytes.resize(1 + random() % (bytes.size() - 1));
      } else if (kind == 2) {  // it claims what follows
        base::store(bytes.data() + 8, std::uint64_t{bytes.size() + 4 + 4 * (random() % 100)});
      } else {
        ++intact[each];
        used += bytes.size();
      }
      file.push_back(std::move(bytes));
      if (random() % 3 == 0) file.emplace_back(random() % 100, std::byte{0xff});
      if (random() % 8 == 0) file.emplace_back(70000, std::byte{0xff});
    }
    if (intact[1] == 0) {  // a main packet is made anew
      EXPECT_NE(refusal(file), "");
      continue;
    }
    const Set set = read(file);
    ASSERT_EQ(set.files.size(), 1u);
    EXPECT_EQ(set.slice_count, 3u);
    EXPECT_EQ(set.files[0].sums.size(), intact[3] != 0 ? 3u : 0u) << round;
    EXPECT_EQ(set.recovery.size(), intact[2] != 0 ? 1u : 0u) << round;
    EXPECT_EQ(set.packet_files[0].used_bytes, used) << round;
    EXPECT_EQ(set.packet_files[0].packet_count, intact[0] + intact[1] + intact[2] + intact[3]);
    for (const RecoverySlice &slice : set.recovery) EXPECT_EQ(slice.exponent, 7u);
  }
}

TEST_F(PacketFiles, HostileSetsAreRefused) {
  const auto all_of = [&](const Description &file, std::uint64_t slice_bytes) {
    const Main main{slice_bytes, {file.id}, {}};
    const Digest id = id_of_set(main);
    return std::vector<Bytes>{packet(Kind::main, id, main_body(main)),
                              packet(Kind::description, id, description_body(file))};
  };
  EXPECT_EQ(refusal(all_of(described("x", 20), 8)), "");
  for (const char *name : {"../x", "/etc/x", ".", ".//"})
    EXPECT_EQ(read(all_of(described(name, 20), 8)).files.at(0).name_error, EPERM) << name;
  EXPECT_NE(refusal(all_of(described("x", 32769 * 4), 4)).find("more than 32768 slices of 4"), std::string::npos);
  EXPECT_NE(refusal(all_of(described("x", std::uint64_t{1} << 62), 4)).find("more than 32768 slices"),
            std::string::npos);
  EXPECT_NE(refusal(all_of(described("x", 20), std::uint64_t{1} << 40)).find("larger than each file"),
            std::string::npos);
  EXPECT_EQ(refusal(all_of(described("x", (std::uint64_t{1} << 40) - 3), std::uint64_t{1} << 40)), "");
  EXPECT_NE(refusal(all_of(described("x", 20), std::uint64_t{1} << 50)).find("slices of 1125899906842624 bytes"),
            std::string::npos);
  for (const bool recoverable : {true, false}) {
    Main many{8, {}, {}};
    (recoverable ? many.recoverable : many.others).resize(32769);
    EXPECT_NE(refusal({packet(Kind::main, id_of_set(many), main_body(many))}).find("32769 files; at most 32768"),
              std::string::npos);
  }
  EXPECT_NE(refusal({Bytes(100)}).find("main packet"), std::string::npos);
  // A main packet with another id than its own MD5.
  auto pieces = all_of(described("x", 20), 8);
  pieces[0] = packet(Kind::main, Digest{1}, main_body({8, {described("x", 20).id}, {}}));
  pieces[1] = packet(Kind::description, Digest{1}, description_body(described("x", 20)));
  EXPECT_NE(refusal(pieces).find("main packet"), std::string::npos);
  const Main twice{8, {described("x", 20).id, described("x", 20).id}, {}};
  EXPECT_NE(refusal({packet(Kind::main, id_of_set(twice), main_body(twice)),
                     packet(Kind::description, id_of_set(twice), description_body(described("x", 20)))})
                .find("twice"),
            std::string::npos);
}

// Each eight bytes claim a packet up to the end of the file: the time must not grow with the square.
TEST_F(PacketFiles, FalseClaimsCostLittle) {
  Bytes claims(8u << 20);
  for (std::size_t at = 0; at + kHeaderBytes <= claims.size(); at += kHeaderBytes) {
    std::memcpy(claims.data() + at, kMagic, sizeof kMagic);
    base::store(claims.data() + at + 8, std::uint64_t{claims.size() - at});
    std::memcpy(claims.data() + at + 48, "PAR 2.0\0RecvSlic", 16);
  }
  auto pieces = pieces_of(described("x", 20), 8);
  pieces.push_back(std::move(claims));
  EXPECT_EQ(read(pieces).recovery.size(), 1u);
}

TEST_F(PacketFiles, PacketsAroundUnreadableBlocksAreFound) {
  const auto pieces = pieces_of(described("x", 20), 8);
  std::vector<Bytes> file(pieces);
  file.emplace_back(3 * 4096, std::byte{0xff});
  const Unreadable block(4096, 8192);
  EXPECT_EQ(read(file).recovery.size(), 1u);
  std::rotate(file.begin(), file.end() - 1, file.end());
  const Set set = read(file);
  EXPECT_EQ(set.recovery.size(), 1u);
  EXPECT_EQ(set.packet_files[0].used_bytes, set.packet_files[0].bytes - 3 * 4096);
  EXPECT_GE(reads_, 3u);  // each is a moment to cancel
}

TEST_F(PacketFiles, TooFewDescriptorsAreNoDamage) {
  const std::string path = write("a", {Bytes(100)});
  Range range{&path, 0, 100};
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  tandem_status status = TANDEM_OK;
  try {
    sum_together({&range, 1}, true, {});
  } catch (const base::Error &error) {
    status = error.status();
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(status, TANDEM_ERROR_IO);
}

// Scans a file for the slices of another one.
class Scans : public PacketFiles {
 protected:
  using Data = std::vector<std::uint8_t>;

  SliceSum sum_of(std::span<const std::uint8_t> slice) const {
    Data padded(slice.begin(), slice.end());
    padded.resize(kSlice);
    return {Md5::of(padded.data(), kSlice), crc32(0, padded.data(), kSlice)};
  }
  void add_file(std::uint64_t bytes, std::vector<SliceSum> sums) {
    File file{};
    file.bytes = bytes;
    file.first_slice = set_.slice_count;
    set_.slice_count += file.slice_count = sums.size();
    file.sums = std::move(sums);
    set_.files.push_back(std::move(file));
  }
  void add_file(std::span<const std::uint8_t> data) {
    std::vector<SliceSum> sums;
    for (std::size_t at = 0; at < data.size(); at += kSlice)
      sums.push_back(sum_of(data.subspan(at, std::min<std::size_t>(kSlice, data.size() - at))));
    add_file(data.size(), std::move(sums));
  }
  // The contents that were found.
  std::vector<bool> scan(const Data &data, std::uint64_t task_bytes = UINT64_MAX) {
    set_.slice_bytes = kSlice;
    const Search search(set_);
    std::vector<bool> found(search.contents().size());
    const std::string path = folder_ + "/data";
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char *>(data.data()), static_cast<std::streamsize>(data.size()));
    const Region region{&path, 0, data.size(), true};
    std::uint64_t counted = 0;
    calls_ = 0;
    for (std::uint64_t at = 0; at < data.size(); at += std::min(task_bytes, data.size() - at))
      for (const Match &match :
           search.scan(region, at, at + std::min(task_bytes, data.size() - at), [&](std::uint64_t bytes) {
             counted += bytes;
             ++calls_;
           })) {
        found[match.content] = true;
        const auto first = data.begin() + static_cast<std::ptrdiff_t>(match.offset);
        EXPECT_EQ(sum_of({first, first + static_cast<std::ptrdiff_t>(match.bytes)}),
                  *search.contents()[match.content].sum);
      }
    EXPECT_EQ(counted, data.size());  // each byte once
    return found;
  }

  static constexpr std::size_t kSlice = 1024;
  Set set_;
  std::size_t calls_ = 0;  // pieces that were read or hashed
};

// Short and long files joined behind other bytes, in tasks of any size.
TEST_F(Scans, EachSliceOfJoinedFilesIsFoundWhereverTasksEnd) {
  std::mt19937 random(6);
  for (unsigned round = 0; round < 100; ++round) {
    set_ = {};
    Data joined(random() % 2 * (random() % 3000), 0xee);
    for (unsigned i = 0; i < 16; ++i) {
      const std::size_t bytes = i == 0 || random() % 2 ? kSlice + random() % 9000 : 5 + random() % 900;
      const Data file = random_bytes(bytes, 100 * round + i);
      add_file(file);
      if (i % 4 == 3 && bytes < kSlice) continue;
      if (i % 4 == 3) joined.resize(joined.size() + 3, 0xee);  // only a whole slice is found behind these
      joined.insert(joined.end(), file.begin(), file.end());
    }
    const auto found = scan(joined, 4096 + random() % 9000);
    for (unsigned i = 0; i < 16; ++i)
      for (std::uint64_t slice = 0; slice < set_.files[i].slice_count; ++slice)
        EXPECT_EQ(found[set_.files[i].first_slice + slice], i % 4 != 3 || set_.files[i].bytes >= kSlice)
            << round << " " << i;
  }
}

// What lies in blocks that cannot be read is lost, and nothing else.
TEST_F(Scans, SlicesBehindAnUnreadableBlockAreFound) {
  const Data file = random_bytes(300 * kSlice, 7);
  add_file(file);
  Data moved(file);
  moved.insert(moved.begin(), 333, 0xee);
  const std::size_t from = 20 * 4096, to = from + 4096;
  const Unreadable block(from, to);
  const auto found = scan(moved, 128 << 10);
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_EQ(found[i], (i + 1) * kSlice + 333 <= from || i * kSlice + 333 >= to) << i;
}

// Checksums and data that match at each offset: the work must not grow with the number of matches.
TEST_F(Scans, HostileSetsCostLittle) {
  const Data zeros(1 << 18), tails(1 << 18, 0xff), random = random_bytes(1 << 18, 8);
  const auto hostile = [&](std::size_t at) {  // the right CRC, another MD5
    return SliceSum{Digest{1}, sum_of(std::span(random).subspan(at, kSlice)).crc};
  };
  const Data good = random_bytes(2 * kSlice, 9);  // a slice before the others, one behind them
  struct Row {
    const char *what;
    bool finds_last;
    Data data;
    std::function<void()> add;
  };
  for (const auto &[what, finds_last, data, add] : {
           Row{"a false sum of zeros", true, zeros,
               [&] {
                 add_file(kSlice, {{Digest{1}, sum_of(std::span(zeros).first(kSlice)).crc}});
               }},
           Row{"tails of one byte", true, tails,
               [&] {
                 for (std::size_t bytes : {1, 2, 3, 700}) add_file(std::span(tails).first(bytes));
               }},
           Row{"false sums of short slices", false, tails,
               [&] {
                 for (std::size_t bytes = 1; bytes < kSlice; ++bytes)
                   add_file(bytes, {{Digest{1}, sum_of(std::span(tails).first(bytes)).crc}});
               }},
           Row{"a false sum for each offset", false, random,
               [&] {
                 for (std::size_t at = 0; at < 20000; ++at) add_file(kSlice, {hostile(at)});
               }},
       }) {
    set_ = {};
    add();
    add_file(good);
    Data with_good(data);
    with_good.insert(with_good.begin(), good.begin(), good.begin() + kSlice);
    with_good.insert(with_good.end(), good.begin() + kSlice, good.end());
    const auto found = scan(with_good);
    EXPECT_TRUE(*(found.end() - 2)) << what;
    EXPECT_TRUE(!finds_last || found.back()) << what;
    EXPECT_LT(calls_, 2000u) << what;
  }
}

TEST(Names, AVolumeHasTheNameOfItsSet) {
  for (const char *name : {"a.vol3+4.par2", "a.VOL03-04.PAR2", "a.par2", "a.p01", "a.PAR", "a"})
    EXPECT_EQ(tandem_par2_base_length(name), 1u) << name;
  for (const char *name :
       {"a.vol.par2", "a.vol3.par2", "a.vol3+.par2", "a.vol+4.par2", "a.vol3+x.par2", "avol3+4.par2"})
    EXPECT_EQ(tandem_par2_base_length(name), std::strlen(name) - 5) << name;
  EXPECT_EQ(tandem_par2_base_length("d.vol1+2/a.vol1+2.par2"), 10u);
  EXPECT_EQ(tandem_par2_base_length("7+2.par2"), 3u);
  EXPECT_EQ(tandem_par2_base_length(nullptr), 0u);
}

TEST_F(PacketFiles, TheFilesOfASetAreFoundBesideTheGivenOne) {
  for (const char *name : {"a.par2", "a.vol0+1.par2", "a.vol01-02.PAR2", "a.b.par2", "b.par2", "a", "ab.par2"})
    write(name, {});
  const auto names = [&](const std::string &given) {
    std::vector<std::string> found;
    for (const std::string &path : packet_files_of(folder_ + "/" + given))
      found.push_back(path.substr(folder_.size() + 1));
    return found;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names("a.par2"), (Names{"a.par2", "a.vol0+1.par2", "a.vol01-02.PAR2", "a.b.par2"}));
  EXPECT_EQ(names("a.vol0+1.par2"), (Names{"a.vol0+1.par2", "a.par2", "a.vol01-02.PAR2", "a.b.par2"}));
  EXPECT_EQ(names("b"), Names{"b.par2"});
  EXPECT_THROW(names("c.par2"), base::Error);
}

}  // namespace
}  // namespace tandem::par2
