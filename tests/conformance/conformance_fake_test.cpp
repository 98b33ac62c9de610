// SPDX-License-Identifier: Apache-2.0
// The fake keeps the contract of a backend, and its scripts do what they say.
#include "tests/conformance/fake_backend.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/base/errors.hpp"
#include "tests/conformance/suite.hpp"
#include "tests/support/expected.hpp"
#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

using core::Control;
using core::Mode;
using core::Task;

std::vector<BackendMaker> fake_makers() {
  FakeScript wide, slow, reversing;
  wide.lanes = 4;
  wide.chunk_bytes = 1000;
  reversing.chunk_bytes = 1000;
  reversing.reverses_groups = true;
  slow.latency_seconds = 1e-3;
  slow.bytes_per_second = 1e9;
  slow.pass_time = [](double) {};
  return {{"fake", [] { return std::make_unique<FakeBackend>(); }, "", 1, false, true, false, true},
          {"fake_with_lanes", [wide] { return std::make_unique<FakeBackend>(wide); }, "", 1, false, true, false, true},
          {"fake_of_groups", [reversing] { return std::make_unique<FakeBackend>(reversing); }, "", 96, true, true},
          {"fake_of_packets", [slow] { return std::make_unique<FakeBackend>(slow); }, "", 16, false, true}};
}

INSTANTIATE_TEST_SUITE_P(Fake, BackendConformance, testing::ValuesIn(fake_makers()), maker_name);
INSTANTIATE_TEST_SUITE_P(Fake, FormConformance, testing::ValuesIn(fake_makers()), maker_name);

// A 1 x 1 matrix of one: the output becomes the input.
struct Copy {
  Copy(FakeBackend &backend, std::size_t bytes) : prepared(backend.prepare(one())), input(bytes), output(bytes, 0xee) {
    paint(input.data(), bytes, 3);
    in = reinterpret_cast<const std::byte *>(input.data());
    out = reinterpret_cast<std::byte *>(output.data());
  }
  static core::Matrix one() {
    core::Matrix matrix(1, 1);
    matrix.at(0, 0) = 1;
    return matrix;
  }
  Task task() { return {prepared.get(), &in, &out, 0, input.size(), Mode::assign}; }

  std::shared_ptr<const core::Prepared> prepared;
  Bytes input, output;
  const std::byte *in;
  std::byte *out;
};

tandem_status run(FakeBackend &backend, Copy &copy, Control &control) {
  return status_of([&] { backend.run(std::vector<Task>{copy.task()}, control); }).first;
}

tandem_status run(FakeBackend &backend, Copy &copy) {
  Control control;
  return run(backend, copy, control);
}

TEST(FakeBackend, RefusesARangeThatIsCutElsewhere) {
  FakeScript script;
  script.granularity_bytes = 96;
  FakeBackend backend(script);
  Copy copy(backend, 960);
  EXPECT_EQ(run(backend, copy), TANDEM_OK);
  Control control;
  for (const auto &[offset, length] : {std::pair{95u, 96u}, {96u, 97u}}) {
    Task task = copy.task();
    task.offset_bytes = offset;
    task.length_bytes = length;
    EXPECT_THROW(backend.run({&task, 1}, control), base::Error);
  }
}

TEST(FakeBackend, TimePassesByScript) {
  double passed = 0;
  FakeScript script;
  script.latency_seconds = 0.25;
  script.bytes_per_second = 2000;
  script.pass_time = [&](double seconds) { passed += seconds; };
  FakeBackend backend(script);
  Copy copy(backend, 100'000);
  ASSERT_EQ(run(backend, copy), TANDEM_OK);
  EXPECT_EQ(copy.output, copy.input);
  EXPECT_NEAR(passed, 0.25 + 200'000.0 / 2000, 1e-6);
}

TEST(FakeBackend, FailsAtTheTaskOfTheScript) {
  for (const bool half : {false, true}) {
    FakeScript script;
    script.failing_task = 2;
    script.fails_after_half = half;
    FakeBackend backend(script);
    for (unsigned i = 0; i < 5; ++i) {
      Copy copy(backend, 50'000);
      EXPECT_EQ(run(backend, copy), i == 2 ? TANDEM_ERROR_DEVICE : TANDEM_OK) << i;
      if (i != 2) {
        EXPECT_EQ(copy.output, copy.input);
        continue;
      }
      Bytes want(50'000, 0xee);
      if (half) std::copy_n(copy.input.begin(), 25'000, want.begin());
      EXPECT_EQ(copy.output, want);
    }
    EXPECT_EQ(backend.counts().tasks_started, 5u);
    EXPECT_EQ(backend.counts().tasks_failed, 1u);
  }
}

TEST(FakeBackend, FailsForEver) {
  FakeScript script;
  script.failing_task = 1;
  script.fails_for_ever = true;
  script.failure = TANDEM_ERROR_INTERNAL;
  FakeBackend backend(script);
  Copy copy(backend, 10);
  EXPECT_EQ(run(backend, copy), TANDEM_OK);
  for (unsigned i = 0; i < 3; ++i) EXPECT_EQ(run(backend, copy), TANDEM_ERROR_INTERNAL);
}

TEST(FakeBackend, MemoryLimit) {
  FakeScript script;
  script.memory_limit_bytes = 2000;
  FakeBackend backend(script);
  Copy fits(backend, 1000), too_large(backend, 1001);
  EXPECT_EQ(run(backend, too_large), TANDEM_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(too_large.output, Bytes(1001, 0xee));
  for (unsigned i = 0; i < 3; ++i) EXPECT_EQ(run(backend, fits), TANDEM_OK) << "memory was not given back";
}

TEST(FakeBackend, CancelIsSeenBeforeTheNextChunk) {
  Control control;
  FakeScript script;
  script.chunk_bytes = 100;
  script.before_chunk = [&](std::uint64_t, std::uint64_t done) {
    if (done == 300) control.cancel();
  };
  FakeBackend backend(script);
  Copy copy(backend, 1000);
  EXPECT_EQ(run(backend, copy, control), TANDEM_ERROR_CANCELLED);
  Bytes want(1000, 0xee);
  std::copy_n(copy.input.begin(), 300, want.begin());
  EXPECT_EQ(copy.output, want);
}

TEST(FakeBackend, LanesLimitWhatRunsAtOnce) {
  for (const unsigned lanes : {1u, 3u}) {
    std::atomic<unsigned> inside{0}, most{0};
    FakeScript script;
    script.lanes = lanes;
    script.before_chunk = [&](std::uint64_t, std::uint64_t) {
      const unsigned now = ++inside;
      unsigned seen = most.load();
      while (now > seen && !most.compare_exchange_weak(seen, now)) {
      }
      std::this_thread::yield();
      --inside;
    };
    FakeBackend backend(script);
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 6; ++t) {
      threads.emplace_back([&] {
        Copy copy(backend, 100'000);
        EXPECT_EQ(run(backend, copy), TANDEM_OK);
      });
    }
    for (std::thread &thread : threads) thread.join();
    EXPECT_LE(most.load(), lanes);
    EXPECT_LE(backend.counts().most_at_once, lanes);
    EXPECT_GE(backend.counts().most_at_once, 1u);
  }
}

TEST(FakeBackend, ErrorsTravelThroughTickets) {
  FakeScript script;
  script.failing_task = 0;
  FakeBackend backend(script);
  Copy copy(backend, 500);
  Control control;
  const auto ticket = backend.submit(std::vector<Task>{copy.task()}, control);
  EXPECT_EQ(refusal(TANDEM_ERROR_DEVICE, [&] { ticket->wait(); }), "fake: task 0 fails by script");
}

}  // namespace
}  // namespace tandem::test
