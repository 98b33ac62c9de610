// SPDX-License-Identifier: Apache-2.0
// The fake keeps the contract of a backend.
#include "tests/conformance/fake_backend.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/base/errors.hpp"
#include "tests/conformance/suite.hpp"
#include "tests/conformance/work.hpp"

namespace tandem::test {
namespace {

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

// What tests of hybrids rely on, and would not miss.
TEST(FakeBackend, RefusesARangeThatIsCutElsewhere) {
  FakeScript script;
  script.granularity_bytes = 96;
  FakeBackend backend(script);
  Work work(1, 1, 960);
  const auto prepared = backend.prepare(work.matrix);
  EXPECT_TRUE(work.runs_right(backend, *prepared, core::Mode::assign));
  core::Control control;
  for (const auto &[offset, length] : {std::pair{95u, 96u}, {96u, 97u}}) {
    const core::Task task = {prepared.get(), work.in.data(), work.out.data(), offset, length, core::Mode::assign};
    EXPECT_THROW(backend.run({&task, 1}, control), base::Error);
  }
}

TEST(FakeBackend, FailsAtTheTaskOfTheScriptWithHalfWritten) {
  FakeScript script;
  script.failing_task = 1;
  script.fails_after_half = true;
  FakeBackend backend(script);
  Work work(1, 1, 50'000);
  const auto prepared = backend.prepare(work.matrix);
  EXPECT_TRUE(work.runs_right(backend, *prepared, core::Mode::assign));
  work.reset();
  EXPECT_EQ(refusal(TANDEM_ERROR_DEVICE, [&] { work.run(backend, *prepared, core::Mode::assign); }),
            "fake: task 1 fails by script");
  Bytes want = work.before[0];
  std::copy_n(work.product[0].begin(), 25'000, want.begin());
  EXPECT_EQ(work.outputs[0], want);
  EXPECT_TRUE(work.runs_right(backend, *prepared, core::Mode::assign)) << "once";
}

}  // namespace
}  // namespace tandem::test
