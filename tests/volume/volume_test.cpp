// SPDX-License-Identifier: Apache-2.0
// The volume through its C API, on files: arguments, locks, members that do not match, and a use of every call.
#include "tandem/volume.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<unsigned char>;

Bytes paint(std::size_t bytes, unsigned seed) {
  Bytes data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<unsigned char>(i * 7 + i / 251 + seed);
  return data;
}

struct VolumeFiles : ::testing::Test {
  fs::path folder;
  std::vector<std::string> names;
  tandem_volume *volume = nullptr;

  void SetUp() override {
    std::string text = (fs::temp_directory_path() / "tandem_volume_XXXXXX").string();
    ASSERT_NE(mkdtemp(text.data()), nullptr);
    folder = text;
    for (int i = 0; i < 6; ++i) names.push_back((folder / ("member" + std::to_string(i))).string());
  }
  void TearDown() override {
    tandem_volume_close(volume);
    fs::remove_all(folder);
  }
  static std::vector<const char *> pointers(const std::vector<std::string> &list) {
    std::vector<const char *> found;
    for (const std::string &each : list) found.push_back(each.c_str());
    return found;
  }
  tandem_status create(const std::vector<std::string> &members, std::uint64_t member_bytes = 4 << 20, int force = 0,
                       std::uint32_t unit = 16384, std::uint32_t k = 4, std::uint32_t m = 2) {
    const auto list = pointers(members);
    tandem_volume_create_options options{};
    options.struct_bytes = sizeof options;
    options.members = list.data();
    options.member_count = list.size();
    options.k = k;
    options.m = m;
    options.unit_bytes = unit;
    options.member_bytes = member_bytes;
    options.force = force;
    return tandem_volume_create(&options);
  }
  tandem_status open(const std::vector<std::string> &members, bool read_only = false, tandem_volume **other = nullptr) {
    const auto list = pointers(members);
    tandem_volume_open_options options{};
    options.struct_bytes = sizeof options;
    options.members = list.data();
    options.member_count = list.size();
    options.read_only = read_only;
    return tandem_volume_open(nullptr, &options, other ? other : &volume);
  }
  tandem_status replace(std::uint32_t index, const std::string &member) {
    return tandem_volume_replace(volume, index, member.c_str(), 0);
  }
  // What the volume holds there, or nothing if it cannot be read.
  Bytes read(std::uint64_t offset, std::size_t bytes) {
    Bytes found(bytes);
    const tandem_status status = tandem_volume_read(volume, offset, found.data(), found.size());
    EXPECT_EQ(status, TANDEM_OK) << tandem_last_error_message();
    return status == TANDEM_OK ? found : Bytes();
  }
  tandem_status write(std::uint64_t offset, const Bytes &data) {
    return tandem_volume_write(volume, offset, data.data(), data.size());
  }
  void close() {
    EXPECT_EQ(tandem_volume_close(volume), TANDEM_OK);
    volume = nullptr;
  }
  tandem_volume_info info() {
    tandem_volume_info found{};
    found.struct_bytes = sizeof found;
    EXPECT_EQ(tandem_volume_query(volume, &found), TANDEM_OK);
    return found;
  }
  tandem_volume_member member(std::uint32_t index) {
    tandem_volume_member found{};
    found.struct_bytes = sizeof found;
    EXPECT_EQ(tandem_volume_member_query(volume, index, &found), TANDEM_OK);
    return found;
  }
  static void expect_message(const std::string &part) {
    EXPECT_NE(std::string(tandem_last_error_message()).find(part), std::string::npos) << tandem_last_error_message();
  }
  void edit(const std::string &name, std::uint64_t offset, const std::string &bytes) {
    std::fstream file(name, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    ASSERT_TRUE(file.good());
  }
};

TEST_F(VolumeFiles, AWayThroughAllCalls) {
  ASSERT_EQ(create(names), TANDEM_OK) << tandem_last_error_message();
  ASSERT_EQ(open(names), TANDEM_OK) << tandem_last_error_message();
  const tandem_volume_info made = info();
  EXPECT_EQ(made.k, 4u);
  EXPECT_EQ(made.unit_bytes, 16384u);
  EXPECT_EQ(made.volume_bytes, made.stripe_count * 4 * 16384);
  const Bytes data = paint(300000, 1);
  ASSERT_EQ(write(1234, data), TANDEM_OK);
  ASSERT_EQ(tandem_volume_flush(volume), TANDEM_OK);
  ASSERT_EQ(tandem_volume_trim(volume, 500000, 4096, 0), TANDEM_OK);
  ASSERT_EQ(tandem_volume_trim(volume, 600000, 10, 1), TANDEM_OK);
  close();

  fs::remove(names[1]);
  ASSERT_EQ(open(names), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(info().lost_count, 1u);
  EXPECT_EQ(member(1).state, TANDEM_VOLUME_MEMBER_LOST);
  EXPECT_NE(std::string(member(1).why).find("member1"), std::string::npos) << member(1).why;
  EXPECT_EQ(read(1234, data.size()), data);
  ASSERT_EQ(replace(1, names[1]), TANDEM_OK) << tandem_last_error_message();
  tandem_volume_care_result result{};
  result.struct_bytes = sizeof result;
  ASSERT_EQ(tandem_volume_rebuild(volume, nullptr, &result), TANDEM_OK) << tandem_last_error_message();
  EXPECT_GT(result.mended_block_count, 0u);
  EXPECT_EQ(info().lost_count, 0u);

  tandem_volume_window window{};
  ASSERT_EQ(tandem_volume_delay_begin(volume, 0, made.volume_bytes / 2, &window), TANDEM_OK)
      << tandem_last_error_message();
  ASSERT_EQ(write(100000, data), TANDEM_OK);
  std::size_t count = 0;
  const tandem_volume_info opened = info();
  EXPECT_EQ(opened.window_count, 1u);
  EXPECT_EQ(opened.windows[0].end_bytes, window.end_bytes);
  ASSERT_EQ(tandem_volume_delay_end(volume, &window, 0), TANDEM_OK) << tandem_last_error_message();
  // A window begins where writes are, and ends by itself after a second.
  ASSERT_EQ(tandem_volume_delay_bounded(volume, 0, made.volume_bytes, 8 << 16, 1, &window), TANDEM_OK)
      << tandem_last_error_message();
  EXPECT_EQ(info().bounded.end_bytes, made.volume_bytes);
  EXPECT_EQ(info().bound_bytes, 8u << 16);
  EXPECT_EQ(info().bound_seconds, 1u);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const auto writes_until = [&](bool protects) {
    while ((info().unprotected_bytes == 0) != protects && std::chrono::steady_clock::now() < limit)
      if (protects || write(100000, {data.begin(), data.begin() + 4096}) != TANDEM_OK)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return info().unprotected_bytes;
  };
  EXPECT_GT(writes_until(false), 0u) << "no window has begun";
  EXPECT_EQ(writes_until(true), 0u) << "no window has ended";
  ASSERT_EQ(tandem_volume_delay_end(volume, &window, 0), TANDEM_OK) << tandem_last_error_message();
  tandem_volume_extent extents[8];
  ASSERT_EQ(tandem_volume_extents(volume, 0, made.volume_bytes, extents, 8, &count), TANDEM_OK);
  EXPECT_EQ(extents[0].written, 1u);
  EXPECT_EQ(extents[count - 1].end_bytes, made.volume_bytes);
  ASSERT_EQ(tandem_volume_scrub(volume, nullptr, &result), TANDEM_OK);
  EXPECT_EQ(result.bad_block_count + result.bad_parity_count + result.lost_block_count, 0u);
  EXPECT_EQ(result.stripe_count, made.stripe_count);
  EXPECT_GT(info().log.writes, 0u);
  close();
  ASSERT_EQ(open({names[5], names[1], names[3], names[2]}, true), TANDEM_OK) << "any order, any four";
  EXPECT_EQ(read(100000, data.size()), data);
}

TEST_F(VolumeFiles, ArgumentsOfCreate) {
  const auto refused = [&](tandem_status wanted, auto &&edit_options) {
    const auto list = pointers(names);
    tandem_volume_create_options options{};
    options.struct_bytes = sizeof options;
    options.members = list.data();
    options.member_count = list.size();
    options.k = 4;
    options.m = 2;
    options.member_bytes = 4 << 20;
    edit_options(options);
    EXPECT_EQ(tandem_volume_create(&options), wanted) << tandem_last_error_message();
  };
  using Options = tandem_volume_create_options;
  refused(TANDEM_ERROR_INVALID_ARGUMENT, [](Options &o) { o.member_bytes = 65536; });
  expect_message("65536 bytes, at least");
  refused(TANDEM_ERROR_INVALID_ARGUMENT, [](Options &o) { o.struct_bytes = 3; });
  refused(TANDEM_ERROR_UNSUPPORTED, [](Options &o) { o.reserved = 1; });
  refused(TANDEM_ERROR_INVALID_ARGUMENT, [](Options &o) { o.k = 0; });
  refused(TANDEM_ERROR_INVALID_ARGUMENT, [](Options &o) { o.m = 0; });
  refused(TANDEM_ERROR_INVALID_ARGUMENT, [](Options &o) { o.k = 4000000000u; });
  refused(TANDEM_ERROR_INVALID_ARGUMENT, [](Options &o) { o.k = 250; });
  refused(TANDEM_ERROR_INVALID_ARGUMENT, [](Options &o) { o.k = 3; });
  refused(TANDEM_ERROR_INVALID_ARGUMENT, [](Options &o) { o.unit_bytes = 4097; });
  refused(TANDEM_ERROR_INVALID_ARGUMENT, [](Options &o) { o.unit_bytes = 1u << 25; });
  refused(TANDEM_ERROR_UNSUPPORTED, [](Options &o) { o.matrix = TANDEM_MATRIX_CUSTOM; });
  refused(TANDEM_ERROR_UNSUPPORTED, [](Options &o) { o.matrix = TANDEM_MATRIX_LRC_AZURE; });
  refused(TANDEM_ERROR_INVALID_ARGUMENT, [](Options &o) { o.matrix = 99; });
  refused(TANDEM_ERROR_INVALID_ARGUMENT, [](Options &o) { o.members = nullptr; });
  refused(TANDEM_ERROR_TOO_LARGE, [](Options &o) { o.member_bytes = UINT64_MAX; });
  refused(TANDEM_ERROR_INVALID_ARGUMENT, [](Options &o) { o.log_bytes = 4096; });
  EXPECT_EQ(tandem_volume_create(nullptr), TANDEM_ERROR_INVALID_ARGUMENT);
}

TEST_F(VolumeFiles, ListsThatDoNotBelongTogether) {
  EXPECT_EQ(create({names[0], names[1], names[2], names[3], names[4], names[0]}), TANDEM_ERROR_INVALID_ARGUMENT);
  expect_message("twice");
  ASSERT_EQ(create(names), TANDEM_OK);
  std::vector<std::string> others;
  for (const std::string &name : names) others.push_back(name + "b");
  ASSERT_EQ(create(others), TANDEM_OK);
  fs::create_symlink(names[2], folder / "link");
  fs::create_directory(folder / "folder");
  struct {
    std::string member;
    tandem_status status;
    const char *message;
  } const cases[] = {{(folder / "link").string(), TANDEM_ERROR_INVALID_ARGUMENT, "twice"},
                     {others[5], TANDEM_ERROR_INVALID_ARGUMENT, "two different volumes"},
                     {(folder / "folder").string(), TANDEM_ERROR_IO, "folder"}};
  for (const auto &each : cases) {
    auto list = names;
    list[5] = each.member;
    EXPECT_EQ(open(list), each.status) << each.member;
    expect_message(each.message);
  }
}

TEST_F(VolumeFiles, AVolumeIsNotOverwrittenUnasked) {
  ASSERT_EQ(create(names), TANDEM_OK);
  ASSERT_EQ(open(names), TANDEM_OK);
  const Bytes data = paint(5000, 2);
  ASSERT_EQ(write(0, data), TANDEM_OK);
  EXPECT_EQ(replace(0, names[3]), TANDEM_ERROR_INVALID_ARGUMENT) << "it is a member";
  close();
  EXPECT_EQ(create(names), TANDEM_ERROR_INVALID_ARGUMENT);
  expect_message("holds a volume already");
  ASSERT_EQ(open(names), TANDEM_OK);
  EXPECT_EQ(read(0, data.size()), data);
  close();
  ASSERT_EQ(create(names, 4 << 20, 1), TANDEM_OK);
  ASSERT_EQ(open(names), TANDEM_OK);
  EXPECT_EQ(read(0, data.size()), Bytes(data.size()));
}

TEST_F(VolumeFiles, NothingIsOverwrittenUnasked) {
  const struct {
    std::size_t offset;
    std::string bytes, name;
  } contents[] = {{0, "\x89TNDM\r\n\x1a", "a shard of Tandem"},
                  {1080, "\x53\xef", "ext4"},
                  {65600, "_BHRfS_M", "Btrfs"},
                  {0, "%PDF-1.7", "a PDF document"},
                  {5, "x", "data of an unknown kind"},
                  {(4 << 20) - (128 << 10), "\xfc\x4e\x2b\xa9", "data of an unknown kind"},
                  {(4 << 20) - 9, "x", "data of an unknown kind"}};
  for (const auto &each : contents) {
    Bytes bytes(4 << 20);
    std::memcpy(bytes.data() + each.offset, each.bytes.data(), each.bytes.size());
    const auto write = [&](const std::string &name) {
      std::ofstream(name, std::ios::binary).write(reinterpret_cast<const char *>(bytes.data()), 4 << 20);
    };
    for (const std::string &name : names) fs::remove(name);
    write(names[2]);
    EXPECT_EQ(create(names), TANDEM_ERROR_INVALID_ARGUMENT);
    expect_message("holds");
    expect_message(each.name);
    std::ifstream file(names[2], std::ios::binary);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), std::istreambuf_iterator<char>(file), {},
                           [](auto a, char b) { return a == static_cast<unsigned char>(b); }));
    fs::remove(names[2]);
    ASSERT_EQ(create(names), TANDEM_OK) << tandem_last_error_message();
    ASSERT_EQ(open(names), TANDEM_OK);
    write(names[0] + "new");
    EXPECT_EQ(replace(0, names[0] + "new"), TANDEM_ERROR_INVALID_ARGUMENT);
    expect_message(each.name);
    close();
  }
}

TEST_F(VolumeFiles, TwoServersOnOneVolume) {
  ASSERT_EQ(create(names), TANDEM_OK);
  ASSERT_EQ(open(names), TANDEM_OK);
  tandem_volume *second = nullptr;
  EXPECT_EQ(open(names, false, &second), TANDEM_ERROR_UNAVAILABLE);
  expect_message("locked");
  EXPECT_EQ(open(names, true, &second), TANDEM_ERROR_UNAVAILABLE);
  EXPECT_EQ(create(names, 4 << 20, 1), TANDEM_ERROR_UNAVAILABLE);
  close();
  ASSERT_EQ(open(names, true), TANDEM_OK);
  EXPECT_EQ(open(names, true, &second), TANDEM_OK) << "readers share";
  tandem_volume_close(second);
  EXPECT_EQ(open(names, false, &second), TANDEM_ERROR_UNAVAILABLE);
}

TEST_F(VolumeFiles, AMemberThatIsTooSmall) {
  ASSERT_EQ(create(names), TANDEM_OK);
  fs::resize_file(names[2], 2 << 20);
  ASSERT_EQ(open(names), TANDEM_OK);
  EXPECT_EQ(member(2).state, TANDEM_VOLUME_MEMBER_LOST);
  EXPECT_NE(std::string(member(2).why).find("2097152 bytes"), std::string::npos) << member(2).why;
}

TEST_F(VolumeFiles, AMemberThatMayNotBeWritten) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write to every file";
  ASSERT_EQ(create(names), TANDEM_OK);
  fs::permissions(names[1], fs::perms::owner_read);
  EXPECT_EQ(open(names), TANDEM_ERROR_IO);
  expect_message("member1");
}

TEST_F(VolumeFiles, SuperblocksThatAreDamagedOrOfTheFuture) {
  ASSERT_EQ(create(names), TANDEM_OK);
  edit(names[0], 4096 + 40, "x");  // the only copy so far
  ASSERT_EQ(open(names), TANDEM_OK) << tandem_last_error_message();
  EXPECT_NE(std::string(member(0).why).find("damaged"), std::string::npos) << member(0).why;
  close();
  for (const int i : {1, 2}) edit(names[static_cast<std::size_t>(i)], 4096, "nonsense");
  EXPECT_EQ(open(names), TANDEM_ERROR_NOT_RECOVERABLE);
  expect_message("3 of 6 members are current, 4 are needed");
  expect_message("holds no volume");
  fs::resize_file(names[1], 0);
  EXPECT_EQ(open(names), TANDEM_ERROR_NOT_RECOVERABLE);
}

TEST_F(VolumeFiles, ArgumentsOfTheOtherCalls) {
  ASSERT_EQ(create(names), TANDEM_OK);
  ASSERT_EQ(open(names), TANDEM_OK);
  const std::uint64_t size = info().volume_bytes;
  Bytes data(8192);
  std::size_t count = 0;
  tandem_volume_extent extents[2];
  tandem_volume_window window{};
  EXPECT_EQ(tandem_volume_read(volume, size, data.data(), 1), TANDEM_ERROR_INVALID_ARGUMENT);
  expect_message("not inside the volume");
  EXPECT_EQ(tandem_volume_read(volume, UINT64_MAX, data.data(), 2), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tandem_volume_read(volume, 0, nullptr, 1), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tandem_volume_read(nullptr, 0, data.data(), 1), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tandem_volume_read(volume, size, nullptr, 0), TANDEM_OK);
  EXPECT_EQ(tandem_volume_write(volume, size - 1, data.data(), 2), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tandem_volume_write(volume, 0, nullptr, 1), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tandem_volume_write(volume, size, nullptr, 0), TANDEM_OK);
  EXPECT_EQ(tandem_volume_trim(volume, 1, UINT64_MAX, 0), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tandem_volume_trim(volume, size, 1, 1), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tandem_volume_extents(volume, 0, 0, extents, 2, &count), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tandem_volume_extents(volume, 0, size, extents, 0, &count), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tandem_volume_extents(volume, 1, size, extents, 2, &count), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tandem_volume_delay_begin(volume, 0, size, nullptr), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tandem_volume_delay_bounded(volume, 0, size, 0, 0, nullptr), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tandem_volume_delay_bounded(volume, 0, size, 1, 0, &window), TANDEM_ERROR_INVALID_ARGUMENT);
  expect_message("a bound of 1 bytes");
  EXPECT_EQ(tandem_volume_delay_end(volume, &window, 0), TANDEM_ERROR_INVALID_ARGUMENT);
  tandem_volume_member member{};
  EXPECT_EQ(tandem_volume_member_query(volume, 0, &member), TANDEM_ERROR_INVALID_ARGUMENT) << "no size";
  member.struct_bytes = sizeof member;
  EXPECT_EQ(tandem_volume_member_query(volume, 6, &member), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tandem_volume_replace(volume, 0, nullptr, 0), TANDEM_ERROR_INVALID_ARGUMENT);
  const std::string spare = (folder / "spare").string();
  EXPECT_EQ(replace(6, spare), TANDEM_ERROR_INVALID_ARGUMENT);
  tandem_volume_open_options open_options{};
  open_options.struct_bytes = sizeof open_options;
  tandem_volume *other = nullptr;
  EXPECT_EQ(tandem_volume_open(nullptr, &open_options, &other), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(tandem_volume_open(nullptr, nullptr, &other), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(open({spare}, false, &other), TANDEM_ERROR_NOT_RECOVERABLE);
  EXPECT_EQ(open({(folder / "nothing").string()}, false, &other), TANDEM_ERROR_NOT_RECOVERABLE);
  expect_message("No such file");
  EXPECT_EQ(other, nullptr);
  EXPECT_EQ(tandem_volume_close(nullptr), TANDEM_OK);
}

// Members that nbdkit serves from memory. One is killed on the way.
TEST_F(VolumeFiles, NbdServersAsMembers) {
  const auto start = [&](const std::string &socket) {
    const pid_t child = fork();
    if (child == 0) {
      execlp("nbdkit", "nbdkit", "-f", "--exit-with-parent", "-U", socket.c_str(), "memory", "8M", nullptr);
      _exit(127);
    }
    return child;
  };
  std::vector<std::string> uris;
  std::vector<pid_t> servers;
  for (int i = 0; i < 4; ++i) {
    const std::string socket = (folder / ("socket" + std::to_string(i))).string();
    servers.push_back(start(socket));
    uris.push_back("nbd+unix:///?socket=" + socket);
    for (int tries = 0; tries < 6000 && !fs::exists(socket); ++tries) {
      int status = 0;
      if (waitpid(servers.back(), &status, WNOHANG) == servers.back()) {
        for (std::size_t other = 0; other + 1 < servers.size(); ++other) kill(servers[other], SIGKILL);
        GTEST_SKIP() << "nbdkit, or its memory plugin, is not here (Debian: nbdkit)";
      }
      usleep(10000);
    }
  }
  const auto stop = [&](std::size_t i) {
    kill(servers[i], SIGKILL);
    waitpid(servers[i], nullptr, 0);
  };
  const std::string spare = uris.back();
  uris.pop_back();
  const tandem_status created = create(uris, 0, 0, 16384, 2, 1);
  if (created == TANDEM_ERROR_UNSUPPORTED) {
    for (std::size_t i = 0; i < 4; ++i) stop(i);
    GTEST_SKIP() << tandem_last_error_message();
  }
  ASSERT_EQ(created, TANDEM_OK) << tandem_last_error_message();
  ASSERT_EQ(open(uris), TANDEM_OK) << tandem_last_error_message();
  const Bytes data = paint(1000000, 3);
  ASSERT_EQ(write(777, data), TANDEM_OK) << tandem_last_error_message();
  ASSERT_EQ(tandem_volume_trim(volume, 2000000, 100000, 0), TANDEM_OK);
  ASSERT_EQ(tandem_volume_flush(volume), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(read(777, data.size()), data);
  stop(1);
  EXPECT_EQ(read(777, data.size()), data);
  ASSERT_EQ(write(100000, data), TANDEM_OK) << tandem_last_error_message();
  ASSERT_EQ(tandem_volume_flush(volume), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(member(1).state, TANDEM_VOLUME_MEMBER_LOST);
  close();
  ASSERT_EQ(open(uris), TANDEM_OK) << "its server does not answer: " << tandem_last_error_message();
  ASSERT_EQ(replace(1, spare), TANDEM_OK) << tandem_last_error_message();
  tandem_volume_care_result result{};
  result.struct_bytes = sizeof result;
  ASSERT_EQ(tandem_volume_rebuild(volume, nullptr, &result), TANDEM_OK) << tandem_last_error_message();
  stop(0);
  EXPECT_EQ(read(100000, data.size()), data);
  close();
  for (const std::size_t i : {2, 3}) stop(i);
}

TEST_F(VolumeFiles, NoSpaceIsALostMemberAndNoLostByte) {
  ASSERT_EQ(create(names), TANDEM_OK);
  ASSERT_EQ(open(names), TANDEM_OK);
  const Bytes data = paint(200000, 9), more = paint(1 << 20, 3);
  ASSERT_EQ(write(0, data), TANDEM_OK);
  ASSERT_EQ(tandem_volume_flush(volume), TANDEM_OK);
  // Every member refuses to grow or to be written behind 1 MiB, as a full file system does.
  struct rlimit before {
  }, limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  limit = before;
  limit.rlim_cur = 1 << 20;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  tandem_status status = TANDEM_OK;
  for (std::uint64_t at = 1 << 20; status == TANDEM_OK && at < 8 << 20; at += more.size()) status = write(at, more);
  const std::string message = tandem_last_error_message();
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status, TANDEM_ERROR_IO);
  EXPECT_NE(message.find("File too large"), std::string::npos) << message;
  EXPECT_EQ(tandem_volume_close(volume), TANDEM_ERROR_IO);
  volume = nullptr;
  ASSERT_EQ(open(names), TANDEM_OK) << "nothing was promised, and nothing is lost: " << tandem_last_error_message();
  EXPECT_EQ(read(0, data.size()), data);
}

}  // namespace
