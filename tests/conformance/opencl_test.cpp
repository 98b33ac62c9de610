// OpenCL backends on the drivers of this machine: both techniques, each with staged and with shared memory. Where there
// is no device that is printed as NOT RUN, unless TANDEM_TEST_REQUIRE_OPENCL is set: then it fails.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/log.hpp"
#include "opencl/factory.hpp"
#include "tests/conformance/suite.hpp"
#include "tests/support/expected.hpp"
#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

using opencl::Transfer;

// A compile takes a second or two. So "compiled" is by bytes here: each matrix that enough of them run through.
class CompileSoon final : public core::TuningSource {
 public:
  core::TuningChoice find(const core::TuningQuery &) const override {
    return {{{"compile_after_bytes", 200'000}}, "test"};
  }
};

std::unique_ptr<core::Backend> make(const char *technique, Transfer transfer, const core::Log &log = core::Log()) {
  static const CompileSoon compile_soon;
  opencl::Options options;
  if (technique == std::string("tables")) {
    options.technique = technique;
  } else {
    options.tuning = &compile_soon;
  }
  options.transfer = transfer;
  return opencl::make_backend(options, log);
}

// Why there is nothing to run on, or "".
const std::string &missing() {
  static const std::string reason = [] {
    try {
      make("", Transfer::automatic)->prepare(core::Matrix(1, 1));
      return std::string();
    } catch (const core::Error &error) {
      return std::string(error.what());
    }
  }();
  return reason;
}

std::vector<BackendMaker> makers() {
  std::vector<BackendMaker> list;
  for (const char *technique : {"tables", "compiled"}) {
    list.push_back({std::string("staged_") + technique, [=] { return make(technique, Transfer::staged); }, missing()});
    list.push_back(
        {std::string("zero_copy_") + technique, [=] { return make(technique, Transfer::zero_copy); }, missing()});
  }
  return list;
}

// The two techniques are what they are called.
TEST(OpenclTechnique, IsTheOneThatWasAskedFor) {
  if (!missing().empty()) GTEST_SKIP() << "NOT RUN: " << missing();
  for (const char *technique : {"tables", "compiled"}) {
    std::string heard;
    const auto hear = [](void *user, std::int32_t, const char *message) {
      *static_cast<std::string *>(user) += message;
    };
    const auto backend = make(technique, Transfer::automatic, core::Log(hear, &heard, TANDEM_LOG_INFO));
    core::Matrix matrix(2, 4);
    for (unsigned i = 0; i < 8; ++i) matrix.at(i / 4, i % 4) = static_cast<std::uint8_t>(17 * i + 3);
    const auto prepared = backend->prepare(matrix);
    Random random(5);
    Shards shards;
    for (unsigned i = 0; i < 6; ++i) shards.push_back(random.bytes(60'000));
    const std::uint8_t *inputs[] = {shards[0].data(), shards[1].data(), shards[2].data(), shards[3].data()};
    std::byte *outputs[] = {reinterpret_cast<std::byte *>(shards[4].data()),
                            reinterpret_cast<std::byte *>(shards[5].data())};
    const core::Task task = {prepared.get(),    reinterpret_cast<const std::byte *const *>(inputs), outputs, 0, 60'000,
                             core::Mode::assign};
    core::Control control;
    backend->run({&task, 1}, control);
    EXPECT_EQ(Shards(shards.begin() + 4, shards.end()), expected(matrix.data(), 2, 4, inputs, 60'000));
    EXPECT_NE(heard.find(std::string("technique ") + technique), std::string::npos) << heard;
    EXPECT_GT(backend->kernel_calls(), 0u);
  }
}

// Small enough for a simulator that looks at each access (oclgrind): each mode, technique and way of transfer, at
// lengths with and without whole elements and tiles, and shards that begin at different places.
TEST(OpenclSmall, EveryKernelWithinItsBounds) {
  if (!missing().empty()) GTEST_SKIP() << "NOT RUN: " << missing();
  Random random(31);
  for (const char *technique : {"tables", "compiled"}) {
    for (const Transfer transfer : {Transfer::staged, Transfer::zero_copy}) {
      opencl::Options options;
      options.technique = technique;
      options.transfer = transfer;
      const auto backend = opencl::make_backend(options, core::Log());
      core::Matrix matrix(5, 3);
      for (unsigned r = 0; r < 5; ++r) random.fill(matrix.row(r).data(), 3);
      const auto prepared =
          backend->prepare_tuned(matrix, {{"local_x", 8}, {"local_y", 2}, {"element_bytes", 16}, {"rows_per_pass", 2}});
      for (const std::size_t bytes :
           {std::size_t{1}, std::size_t{15}, std::size_t{16}, std::size_t{300}, std::size_t{1025}}) {
        for (const core::Mode mode : {core::Mode::assign, core::Mode::accumulate, core::Mode::compare}) {
          Shards shards;
          for (unsigned i = 0; i < 8; ++i) shards.push_back(random.bytes(bytes + i));
          std::vector<const std::uint8_t *> inputs;
          std::vector<std::byte *> outputs;
          for (unsigned i = 0; i < 8; ++i) {
            std::uint8_t *start = shards[i].data() + i;
            if (i < 3) inputs.push_back(start);
            if (i >= 3) outputs.push_back(reinterpret_cast<std::byte *>(start));
          }
          const Shards before = shards, product = expected(matrix.data(), 5, 3, inputs.data(), bytes);
          std::vector<core::Mismatch> found(5);
          const core::Task task = {
              prepared.get(), reinterpret_cast<const std::byte *const *>(inputs.data()), outputs.data(), 0, bytes, mode,
              found.data()};
          core::Control control;
          backend->run({&task, 1}, control);
          for (unsigned r = 0; r < 5; ++r) {
            Bytes want = before[3 + r];
            std::uint64_t differing = 0;
            for (std::size_t i = 0; i < bytes; ++i) {
              std::uint8_t &byte = want[3 + r + i];
              differing += byte != product[r][i];
              if (mode == core::Mode::assign) byte = product[r][i];
              if (mode == core::Mode::accumulate) byte ^= product[r][i];
            }
            ASSERT_EQ(shards[3 + r], want) << technique << ", " << bytes << " bytes";
            if (mode != core::Mode::compare) continue;
            ASSERT_EQ(found[r].byte_count, differing) << technique << ", " << bytes;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Opencl, BackendConformance, testing::ValuesIn(makers()), maker_name);

TEST(OpenclDevice, IsThereWhereItIsRequired) {
  if (std::getenv("TANDEM_TEST_REQUIRE_OPENCL") == nullptr && !missing().empty())
    GTEST_SKIP() << "NOT RUN: " << missing();
  EXPECT_EQ(missing(), "");
  for (const opencl::DeviceDescription &device : opencl::describe_devices(std::chrono::seconds(60)))
    std::printf("%s: %s, %s\n", device.name.c_str(), device.kind.c_str(), device.description.c_str());
}

}  // namespace
}  // namespace tandem::test
