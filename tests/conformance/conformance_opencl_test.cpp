// SPDX-License-Identifier: Apache-2.0
// Tests OpenCL backends on the drivers of this machine: both techniques. Without a device it prints NOT RUN, or fails
// if TANDEM_TEST_REQUIRE_OPENCL is set.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "opencl/factory.hpp"
#include "tests/conformance/suite.hpp"
#include "tests/conformance/work.hpp"
#include "tests/support/random.hpp"
#include "tests/support/slice.hpp"

namespace tandem::test {
namespace {

// A compile takes a second or two. So "compiled" is by bytes here: each matrix that enough of them run through.
std::unique_ptr<core::Backend> make(const char *technique, const base::Log &log = base::Log()) {
  static const Values compile_soon({{"compile_after_bytes", 200'000}});
  opencl::Options options;
  if (technique != std::string("compiled")) {
    options.technique = technique;
  } else {
    options.tuning = &compile_soon;
  }
  options.reference = cpu_reference();
  return opencl::make_backend(options, log);
}

// Why there is nothing to run on, or "".
const std::string &missing() {
  static const std::string reason = [] {
    try {
      make("")->prepare(core::Matrix(1, 1));
      return std::string();
    } catch (const base::Error &error) {
      return std::string(error.what());
    }
  }();
  return reason;
}

std::vector<BackendMaker> makers() {
  std::vector<BackendMaker> list;
  for (const char *technique : {"tables", "compiled"})
    list.push_back({std::string("staged_") + technique, [=] { return make(technique); }, missing()});
  return list;
}

// The two techniques are what they are called.
TEST(OpenclTechnique, IsTheOneThatWasAskedFor) {
  if (!missing().empty()) GTEST_SKIP() << "NOT RUN: " << missing();
  for (const char *technique : {"tables", "compiled"}) {
    Heard heard;
    const auto backend = make(technique, heard.log());
    Work work(2, 4, 60'000);
    const auto prepared = backend->prepare(work.matrix);
    backend->make_ready(*prepared, core::Mode::assign, core::MemoryKind::host, true);  // the first run waits
    work.run(*backend, *prepared, core::Mode::assign);
    EXPECT_TRUE(work.is_right(core::Mode::assign));
    EXPECT_TRUE(heard.has(std::string("technique ") + technique)) << heard.text;
    EXPECT_GT(backend->kernel_calls(), 0u);
  }
}

struct Way {
  std::string technique;
  bool always_shifted;
  core::TuningValues values;

  std::string text() const {
    std::string made = technique + (always_shifted ? ", shifted" : "");
    for (const auto &[name, value] : values) made += ", " + name + "=" + std::to_string(value);
    return made;
  }
};

// Each mode with one matrix, at each length, with shards that begin at different places; and the log says that the
// technique, and no other, was used.
void run_one_way(const Way &way, const core::Operator &what, const std::vector<std::size_t> &lengths) {
  Heard heard;
  opencl::Options options;
  options.technique = way.technique;
  options.always_shifted = way.always_shifted;
  const auto backend = opencl::make_backend(options, base::Log(Heard::hear, &heard, TANDEM_LOG_INFO));
  const auto prepared = backend->tunable()->prepare_tuned(what, way.values);
  for (const std::size_t bytes : lengths) {
    Work work(what.dense(), bytes, 67);
    for (const core::Mode mode : {core::Mode::assign, core::Mode::accumulate, core::Mode::compare})
      ASSERT_TRUE(work.runs_right(*backend, *prepared, mode)) << way.text() << ", " << bytes << " bytes";
  }
  for (const std::string each : {"tables", "compiled", "transform"})
    EXPECT_EQ(heard.has("technique " + each), each == way.technique) << heard.text;
}

void run_one_way(const Way &way, unsigned rows, unsigned columns, const std::vector<std::size_t> &lengths) {
  run_one_way(way, core::Operator(Work::random_matrix(rows, columns)), lengths);
}

// Small enough for a simulator that looks at each access (oclgrind): each mode, technique and access, at lengths with
// and without whole elements and tiles.
TEST(OpenclSmall, EveryKernelWithinItsBounds) {
  if (!missing().empty()) GTEST_SKIP() << "NOT RUN: " << missing();
  const std::vector<std::size_t> lengths = {1, 15, 16, 300, 1025};
  for (const char *technique : {"tables", "compiled"}) {
    run_one_way({technique, false, {{"local_x", 8}, {"local_y", 2}, {"element_bytes", 16}, {"rows_per_pass", 2}}}, 5, 3,
                lengths);
    run_one_way(
        {technique,
         true,
         {{"local_x", 4}, {"local_z", 2}, {"element_bytes", 8}, {"elements_per_item", 2}, {"rows_per_pass", 2}}},
        5, 3, lengths);
  }
}

// The suite's matrices are many, and are compiled in the background, so most runs are of tables. Here are few, and all
// are compiled.
TEST(OpenclForced, EachTechniqueAndAccessIsUsed) {
  if (!missing().empty()) GTEST_SKIP() << "NOT RUN: " << missing();
  const std::vector<std::size_t> lengths = {1, 63, 64, 4095, 4096, 70'001, 1'000'003};
  for (const char *technique : {"tables", "compiled"}) {
    run_one_way({technique, false, {}}, 4, 10, lengths);
    run_one_way({technique, true, {}}, 3, 5, lengths);
    run_one_way({technique, true, {{"local_x", 16}, {"element_bytes", 4}, {"elements_per_item", 3}, {"local_z", 2}}}, 1,
                1, lengths);
    run_one_way({technique, false, {{"rows_per_pass", 3}, {"element_bytes", 32}}}, 7, 17, {777, 100'001});
  }
}

// 34 inputs and 5 outputs at points from 3 on, with scales, and the other way round. One side has two rounds of groups,
// and one group has inputs and outputs.
TEST(OpenclForced, TransformOfAWideCode) {
  if (!missing().empty()) GTEST_SKIP() << "NOT RUN: " << missing();
  Slice slice(2);  // PoCL compiles for 15 s each
  for (std::uint64_t n = slice.first(); n < 2; n += slice.step()) {
    const bool has_many_outputs = n == 1;
    core::CauchyTransform form;
    const unsigned inputs = has_many_outputs ? 5 : 34;
    for (unsigned i = 0; i < 39; ++i) {
      (i < inputs ? form.input_points : form.output_points).push_back(static_cast<core::Element>(i + 3));
      (i < inputs ? form.input_scales : form.output_scales).push_back(static_cast<core::Element>(3 * i + 1));
    }
    run_one_way({"transform", has_many_outputs, {}}, core::Operator(form), {1, 63, 1024, 4095, 70'001});
  }
  // It compiles operators that are no wide code.
  opencl::Options options;
  options.technique = "transform";
  Heard heard;
  const auto backend = opencl::make_backend(options, heard.log());
  Work work(1, 1, 16);
  work.run(*backend, *backend->prepare(work.matrix), core::Mode::assign);
  EXPECT_TRUE(heard.has("technique compiled: technique transform does not do this operator here")) << heard.text;
}

// Gives a part of each commit to the run, and knows which: offsets in a shard.
class PartlyOwned final : public core::Guard {
 public:
  PartlyOwned(std::uint64_t shards, std::uint64_t seed) : shards_(shards), random_(seed) {}
  bool enter() noexcept override { return ++entered == 1; }
  Own commit(std::uint64_t bytes, bool whole) noexcept override {
    const std::uint64_t length = bytes / shards_;
    std::uint64_t begin = random_.below(length + 1), end = begin + random_.below(length - begin + 1);
    if (whole) begin = 0, end = random_.chance(50) ? length : 0;
    for (std::uint64_t i = 0; i < length; ++i) own.push_back(i >= begin && i < end);
    if (begin == end) return {};
    ++entered;
    return {begin * shards_, (end - begin) * shards_};
  }
  void leave() noexcept override { --entered; }

  int entered = 0;
  std::vector<bool> own;

 private:
  const std::uint64_t shards_;
  Random random_;
};

TEST(OpenclGuard, WritesOrRecordsWhatItOwnsAndNothingElse) {
  if (!missing().empty()) GTEST_SKIP() << "NOT RUN: " << missing();
  const auto backend = make("compiled");
  for (const core::Mode mode : {core::Mode::assign, core::Mode::accumulate, core::Mode::compare}) {
    for (const std::uint64_t bytes : {std::uint64_t{100'003}, std::uint64_t{3'000'001}}) {
      Work stripe(3, 5, bytes);
      stripe.reset();
      const auto prepared = backend->prepare(stripe.matrix);
      const core::Task whole = {prepared.get(), stripe.in.data(),        stripe.out.data(), 0, bytes,
                                mode,           stripe.mismatches.data()};
      PartlyOwned guard(8, bytes);
      core::Control control(guard);
      backend->run(uneven_slices(whole, false), control);
      EXPECT_EQ(guard.entered, 0);
      ASSERT_EQ(guard.own.size(), bytes);
      for (unsigned r = 0; r < 3; ++r) {
        std::uint64_t differing = 0;
        for (std::uint64_t i = 0; i < bytes; ++i) {
          const std::uint8_t old = stripe.before[r][i], product = stripe.product[r][i];
          const auto sum = static_cast<std::uint8_t>(old ^ product);
          const std::uint8_t want = !guard.own[i] || mode == core::Mode::compare ? old
                                    : mode == core::Mode::assign                 ? product
                                                                                 : sum;
          ASSERT_EQ(stripe.outputs[r][i], want) << r << " " << i;
          differing += guard.own[i] && old != product;
        }
        EXPECT_EQ(stripe.mismatches[r].byte_count, mode == core::Mode::compare ? differing : 0);
      }
    }
  }
}

TEST(OpenclGuard, ARunEndsWhenTheCallIsOver) {
  if (!missing().empty()) GTEST_SKIP() << "NOT RUN: " << missing();
  class Over final : public core::Guard {
    bool enter() noexcept override { return false; }
    Own commit(std::uint64_t, bool) noexcept override { return {}; }
    void leave() noexcept override { ADD_FAILURE() << "it was not entered"; }
  };
  const auto backend = make("compiled");
  Work stripe(3, 5, 100'000);
  const auto prepared = backend->prepare(stripe.matrix);
  const core::Task task = {prepared.get(), stripe.in.data(), stripe.out.data(), 0, stripe.bytes, core::Mode::assign};
  Over guard;
  core::Control control(guard);
  EXPECT_EQ(status_of([&] { backend->run({&task, 1}, control); }).first, TANDEM_ERROR_CANCELLED);
  EXPECT_TRUE(stripe.is_untouched());
}

INSTANTIATE_TEST_SUITE_P(Opencl, BackendConformance, testing::ValuesIn(makers()), maker_name);
INSTANTIATE_TEST_SUITE_P(Opencl, FormConformance, testing::ValuesIn(makers()), maker_name);

TEST(OpenclDevice, IsThereWhereItIsRequired) {
  if (std::getenv("TANDEM_TEST_REQUIRE_OPENCL") == nullptr && !missing().empty())
    GTEST_SKIP() << "NOT RUN: " << missing();
  EXPECT_EQ(missing(), "");
  for (const device::DeviceDescription &device : opencl::describe_devices(std::chrono::seconds(60)).devices)
    std::printf("%s: %s, %s\n", device.name.c_str(), device.kind.c_str(), device.description.c_str());
}

}  // namespace
}  // namespace tandem::test
