// SPDX-License-Identifier: Apache-2.0
// Simulates a crash of the machine at every write and sync of a scripted run, and then the loss of any m members. Every
// flushed byte must be right, and every other block must be old or new as a whole.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <set>

#include "tests/support/slice.hpp"
#include "tests/volume/disks.hpp"

namespace tandem::volume::test {
namespace {

using Bytes = std::vector<std::byte>;
constexpr std::uint32_t kK = 3, kM = 2, kUnit = 8192, kMembers = kK + kM;
constexpr std::uint64_t kStripe = kK * kUnit;

std::size_t size_of_disks() { return 512 << 10; }

// What each block may hold: the last content is flushed if it is the only one.
struct Promise {
  explicit Promise(std::uint64_t size) : now(size), allowed(size / kBlockBytes) {
    for (auto &each : allowed) each = {Bytes(kBlockBytes)};
  }
  Bytes now;
  std::vector<std::vector<Bytes>> allowed;
  tandem_volume_window window{};  // open, or may be
  bool window_may_be_open = false, window_must_be_open = false;

  void note(std::uint64_t offset, std::uint64_t bytes) {
    if (bytes == 0) return;
    for (std::uint64_t block = offset / kBlockBytes; block <= (offset + bytes - 1) / kBlockBytes; ++block) {
      const auto at = now.begin() + static_cast<std::ptrdiff_t>(block * kBlockBytes);
      allowed[block].emplace_back(at, at + kBlockBytes);
    }
  }
  void flushed() {
    for (auto &each : allowed) each = {each.back()};
  }
};

// Runs the script until the machine dies; the promise is what a caller knows then. A call that did not return may have
// had its effect.
void run_script(Array &array, Promise &promise, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto attempt = [&](auto &&body) { return status_of(body) == TANDEM_OK; };
  std::unique_ptr<Volume> volume;
  if (!attempt([&] { volume = array.open(); })) return;
  const std::uint64_t size = promise.now.size();
  const auto put = [&](std::uint64_t offset, const Bytes &data) {
    std::copy(data.begin(), data.end(), promise.now.begin() + static_cast<std::ptrdiff_t>(offset));
    promise.note(offset, data.size());
  };
  const auto write = [&](std::uint64_t offset, std::uint64_t bytes) {
    const Bytes data = paint(bytes, random());
    put(offset, data);
    return attempt([&] { volume->write(offset, data.data(), bytes); });
  };
  const auto flush = [&] {
    if (!attempt([&] { volume->flush(); })) return false;
    promise.flushed();
    return true;
  };
  const auto begin = [&](std::uint64_t first) {
    promise.window = {first * kStripe, (first + 2) * kStripe};
    promise.window_may_be_open = true;
    if (!attempt([&] { volume->delay_begin(first * kStripe, 2 * kStripe); })) return false;
    promise.flushed();
    promise.window_must_be_open = true;
    return true;
  };
  const auto end = [&] {
    promise.window_must_be_open = false;
    if (!attempt([&] { volume->delay_end(promise.window, false); })) return false;
    promise.flushed();
    promise.window_may_be_open = false;
    return true;
  };
  const auto somewhere = [&] {
    const std::uint64_t offset = random() % size;
    return write(offset, std::min(size - offset, random() % (2 * kUnit)));
  };
  const auto trim_at = [&](std::uint64_t offset, std::uint64_t bytes) {
    put(offset, Bytes(bytes));
    return attempt([&] { volume->trim(offset, bytes); });
  };
  const auto trim = [&] {
    const std::uint64_t offset = random() % size / kBlockBytes * kBlockBytes,
                        bytes = std::min(size - offset, random() % 8 * kBlockBytes);
    return trim_at(offset, bytes);
  };
  // Fresh stripes, overwrites of all sizes, trims, rewrites of trimmed blocks, a window over old and fresh data.
  if (!write(0, 2 * kStripe + 5000) || !flush()) return;
  if (!write(kUnit, 4096) || !write(kUnit, 4096) || !write(100, 300) || !flush()) return;
  if (!write(0, kStripe) || !somewhere() || !trim() || !somewhere() || !flush()) return;
  if (!trim() || !flush() || !write(4096, 3 * kUnit) || !somewhere() || !flush()) return;
  // Trimmed blocks that were flushed, and are written before the trim is. The flush between takes them out of the log.
  if (!write(0, kStripe) || !flush() || !write(3 * kStripe, 100) || !flush()) return;
  if (!trim_at(0, kUnit) || !write(100, kUnit - 300) || !trim_at(0, 4096)) return;
  if (!write(0, 4096) || !flush()) return;
  if (!begin(1) || !write(kStripe + kUnit, 2 * kUnit) || !somewhere() || !flush()) return;
  if (!write(2 * kStripe, kStripe) || !somewhere() || !end() || !somewhere() || !flush()) return;
  volume.reset();  // without a word
  if (!attempt([&] { volume = array.open(); })) return;
  if (!somewhere() || !somewhere() || !trim() || !flush() || !somewhere()) return;
}

void check_promise(Volume &volume, const Promise &promise, bool some_gone, const std::string &when) {
  const auto windows = volume.windows();
  ASSERT_LE(windows.size(), promise.window_may_be_open ? 1u : 0u) << when;
  ASSERT_GE(windows.size(), promise.window_must_be_open ? 1u : 0u) << when;
  Bytes found(kBlockBytes);
  for (std::uint64_t block = 0; block < promise.allowed.size(); ++block) {
    const std::uint64_t offset = block * kBlockBytes;
    const tandem_status status = status_of([&] { volume.read(offset, found.data(), kBlockBytes); });
    const bool unprotected =
        some_gone && !windows.empty() && offset >= windows[0].begin_bytes && offset < windows[0].end_bytes;
    if (unprotected && status == TANDEM_ERROR_NOT_RECOVERABLE) continue;
    ASSERT_EQ(status, TANDEM_OK) << when << ", block " << block << ": " << tandem_last_error_message();
    const auto &allowed = promise.allowed[block];
    ASSERT_TRUE(std::find(allowed.begin(), allowed.end(), found) != allowed.end())
        << when << ", block " << block << " is neither old nor new; " << allowed.size() << " contents are allowed";
  }
}

class Crash : public ::testing::TestWithParam<bool> {};  // whether the power goes, too

TEST_P(Crash, AtEveryWriteAndSync) {
  const bool power_goes = GetParam();
  const auto new_array = [&] {
    auto array = std::make_unique<Array>(kK, kM, kUnit, size_of_disks());
    for (const auto &disk : array->disks) disk->keeps_unsynced = true;
    return array;
  };
  std::uint64_t size = 0;
  std::int64_t all_calls = 0;
  {  // how many there are
    const auto array = new_array();
    size = array->open({}, true)->geometry().volume_bytes();
    array->machine->dies_at = INT64_MAX;
    Promise promise(size);
    run_script(*array, promise, 1);
    all_calls = array->machine->calls;
    check_promise(*array->open({}, true), promise, false, "without a crash");
  }
  ASSERT_GT(all_calls, 200);
  std::vector<std::vector<std::size_t>> losses{{}};
  for (std::size_t a = 0; a < kMembers; ++a) {
    losses.push_back({a});
    for (std::size_t b = a + 1; b < kMembers; ++b) losses.push_back({a, b});
  }
  std::size_t opened = 0;
  for (std::int64_t dies_at = 0; dies_at < all_calls; ++dies_at) {
    const auto array = new_array();
    array->machine->dies_at = dies_at;
    Promise promise(size);
    run_script(*array, promise, 1);
    ASSERT_TRUE(array->machine->is_dead) << dies_at;
    array->machine = std::make_shared<Machine>();
    std::mt19937_64 random(static_cast<std::uint64_t>(dies_at));
    for (const auto &disk : array->disks) {
      if (power_goes)
        disk->settle_after_power_cut(random);
      else
        disk->settle();
      disk->keeps_unsynced = false;
    }
    std::vector<Bytes> left;
    for (const auto &disk : array->disks) left.push_back(disk->bytes);
    for (std::size_t loss = 0; loss < losses.size(); ++loss) {
      // All pairs, in turn; everything with TANDEM_TEST_ALL=1.
      if (std::getenv("TANDEM_TEST_ALL") == nullptr && loss != 0 && loss % 5 != static_cast<std::size_t>(dies_at % 5))
        continue;
      for (std::size_t i = 0; i < left.size(); ++i) array->disks[i]->bytes = left[i];
      const std::string when = "dead at call " + std::to_string(dies_at) + " of " + std::to_string(all_calls) +
                               ", without " + ::testing::PrintToString(losses[loss]);
      std::unique_ptr<Volume> volume;
      ASSERT_EQ(status_of([&] { volume = array->open(losses[loss], loss % 2 == 1); }), TANDEM_OK)
          << when << ": " << tandem_last_error_message();
      check_promise(*volume, promise, loss != 0, when);
      if (HasFatalFailure()) return;
      ++opened;
      if (loss != 0) continue;
      // All there: no write hole anywhere, and the volume goes on.
      tandem_volume_care_result result{};
      ASSERT_EQ(volume->scrub({.restart = true}, &result), TANDEM_OK) << when;
      EXPECT_EQ(result.bad_block_count, 0u) << when;
      EXPECT_EQ(result.bad_parity_count, 0u) << when;
      const Bytes data = paint(kStripe, 77);
      volume->write(kUnit, data.data(), kStripe);
      volume->flush();
      for (const tandem_volume_window &window : volume->windows()) volume->delay_end(window, false);
      volume.reset();
      volume = array->open({1, 3});
      Bytes found(kStripe);
      volume->read(kUnit, found.data(), kStripe);
      ASSERT_TRUE(found == data) << when;
    }
  }
  std::printf("%lld calls, %zu times opened after a crash\n", static_cast<long long>(all_calls), opened);
}

INSTANTIATE_TEST_SUITE_P(Manners, Crash, ::testing::Values(false, true),
                         [](const auto &test) { return std::string(test.param ? "PowerCut" : "Kill"); });

// A second crash, in the middle of what the first one left to do.
TEST(CrashTwice, WhileTheLogIsReplayed) {
  for (std::int64_t first = 40; first < 400; first += 7) {
    Array array(kK, kM, kUnit, size_of_disks());
    for (const auto &disk : array.disks) disk->keeps_unsynced = true;
    Promise promise(array.open({}, true)->geometry().volume_bytes());
    array.machine->dies_at = first;
    run_script(array, promise, 2);
    if (!array.machine->is_dead) break;
    std::mt19937_64 random(static_cast<std::uint64_t>(first));
    for (std::int64_t second = 0; second < 12; ++second) {
      array.machine = std::make_shared<Machine>();
      array.machine->dies_at = second;
      for (const auto &disk : array.disks) disk->settle_after_power_cut(random);
      static_cast<void>(status_of([&] { array.open(); }));
    }
    array.machine = std::make_shared<Machine>();
    for (const auto &disk : array.disks) disk->settle_after_power_cut(random);
    const auto volume = array.open();
    check_promise(*volume, promise, false, "twice, first at " + std::to_string(first));
    if (HasFatalFailure()) return;
  }
}

// A crash with members lost before it, and one lost on the way.
TEST(CrashDegraded, AtEveryWriteAndSync) {
  std::int64_t calls = 200;
  for (std::int64_t dies_at = 0; dies_at < calls; ++dies_at) {
    Array array(kK, kM, kUnit, size_of_disks());
    std::uint64_t size = 0;
    {
      const auto volume = array.open();
      size = volume->geometry().volume_bytes();
      const Bytes data = paint(3 * kStripe, 8);
      volume->write(0, data.data(), data.size());
      volume->flush();
    }
    for (const auto &disk : array.disks) {
      disk->settle();
      disk->keeps_unsynced = true;
    }
    Promise promise(size);
    const Bytes data = paint(3 * kStripe, 8);
    std::copy(data.begin(), data.end(), promise.now.begin());
    promise.note(0, data.size());
    promise.flushed();
    array.machine->dies_at = dies_at;
    std::mt19937_64 random(3);
    const auto run = [&] {
      const auto volume = array.open({1});
      for (int step = 0; step < 12; ++step) {
        if (step == 6) array.disks[4]->fails_writes = true;
        const std::uint64_t offset = random() % (4 * kStripe), bytes = random() % kStripe;
        const Bytes some = paint(bytes, random());
        std::copy(some.begin(), some.end(), promise.now.begin() + static_cast<std::ptrdiff_t>(offset));
        promise.note(offset, bytes);
        volume->write(offset, some.data(), bytes);
        if (step % 2 == 0) continue;
        volume->flush();
        promise.flushed();
      }
    };
    static_cast<void>(status_of(run));
    calls = array.machine->calls + 1;
    array.machine = std::make_shared<Machine>();
    array.disks[4]->fails_writes = false;
    for (const auto &disk : array.disks) disk->settle_after_power_cut(random);
    for (const bool all : {true, false}) {  // with all, or without those two
      const auto volume = all ? array.open({}, true) : array.open({1, 4}, true);
      check_promise(*volume, promise, false, "degraded, dead at " + std::to_string(dies_at));
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace tandem::volume::test
