// The CPU backend: every kernel x executor x partition. A kernel that this CPU lacks, or an executor whose module is
// not there, is printed as NOT RUN.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core/budget.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "cpu/factory.hpp"
#include "cpu/kernel.hpp"
#include "tests/conformance/suite.hpp"
#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

struct Executor {
  const char *name;
  std::int32_t value;
};

constexpr Executor kExecutors[] = {
    {"serial", TANDEM_EXECUTOR_SERIAL},
    {"pthread", TANDEM_EXECUTOR_PTHREAD},
#if !defined(TANDEM_TEST_WITHOUT_OPENMP)  // the thread sanitizer does not understand libgomp
    {"openmp", TANDEM_EXECUTOR_OPENMP},
#endif
};

std::unique_ptr<core::Backend> make(const cpu::Options &options) {
  cpu::Choice choice = {};
  auto backend = cpu::make_backend(options, core::Log(), &choice);
  EXPECT_EQ(options.kernel, choice.kernel) << "another kernel than the forced one";
  return backend;
}

// Why the executor cannot be had, or "".
std::string missing(std::int32_t executor) {
  cpu::Options options;
  options.executor = executor;
  cpu::Choice choice = {};
  try {
    cpu::make_backend(options, core::Log(), &choice);
    return "";
  } catch (const core::Error &error) {
    return error.what();
  }
}

std::vector<BackendMaker> cpu_makers() {
  std::vector<BackendMaker> makers;
  for (const cpu::KernelDescription &kernel : cpu::describe_kernels()) {
    for (const Executor &executor : kExecutors) {
      for (const std::int32_t partition : {TANDEM_PARTITION_COLUMN, TANDEM_PARTITION_PARITY}) {
        cpu::Options options;
        options.kernel = kernel.name;
        options.executor = executor.value;
        options.partition = partition;
        options.thread_count = 4;
        std::string name = kernel.name;
        for (char &c : name)
          if (c == '-') c = '_';
        name += std::string("_") + executor.name + (partition == TANDEM_PARTITION_COLUMN ? "_column" : "_parity");
        std::string not_run = missing(executor.value);
        if (!kernel.available) not_run = std::string("kernel ") + kernel.name + " needs " + kernel.needs;
        makers.push_back({name, [options] { return make(options); }, not_run});
      }
    }
  }
  return makers;
}

INSTANTIATE_TEST_SUITE_P(Cpu, BackendConformance, testing::ValuesIn(cpu_makers()), maker_name);

// The other choices, each once.
std::vector<BackendMaker> cpu_variants() {
  static core::Budget one_at_a_time;
  one_at_a_time.set("cpu", 1);
  cpu::Options budget, pinned, dynamic, crowd;
  budget.kernel = pinned.kernel = dynamic.kernel = crowd.kernel = "scalar";
  budget.executor = pinned.executor = crowd.executor = TANDEM_EXECUTOR_PTHREAD;
  budget.thread_count = pinned.thread_count = dynamic.thread_count = 3;
  budget.budget = &one_at_a_time;
  pinned.pin_threads = true;
  crowd.thread_count = 40;  // more threads than chunks
  crowd.partition = TANDEM_PARTITION_PARITY;
  dynamic.executor = TANDEM_EXECUTOR_OPENMP;
  dynamic.schedule = TANDEM_SCHEDULE_DYNAMIC;
  std::vector<BackendMaker> makers = {{"budget_of_one", [=] { return make(budget); }, ""},
                                      {"pinned", [=] { return make(pinned); }, ""},
                                      {"crowd", [=] { return make(crowd); }, ""}};
#if !defined(TANDEM_TEST_WITHOUT_OPENMP)
  makers.push_back({"openmp_dynamic", [=] { return make(dynamic); }, missing(TANDEM_EXECUTOR_OPENMP)});
#endif
  return makers;
}

INSTANTIATE_TEST_SUITE_P(CpuVariants, BackendConformance, testing::ValuesIn(cpu_variants()), maker_name);

TEST(CpuBackend, CountsWhatIsNotRun) {
  unsigned run = 0, not_run = 0;
  for (const BackendMaker &maker : cpu_makers()) {
    ++(maker.not_run.empty() ? run : not_run);
    if (!maker.not_run.empty()) std::printf("NOT RUN: %s: %s\n", maker.name.c_str(), maker.not_run.c_str());
  }
  std::printf("CPU backends: %u run, %u NOT RUN\n", run, not_run);
  EXPECT_GT(run, 0u);
}

TEST(CpuBackend, KernelCallsAreCounted) {
  for (const Executor &executor : kExecutors) {
    if (!missing(executor.value).empty()) continue;
    cpu::Options options;
    options.kernel = "scalar";
    options.executor = executor.value;
    options.thread_count = 2;
    const auto backend = make(options);
    EXPECT_EQ(backend->kernel_calls(), 0u);
    core::Matrix matrix(1, 1);
    matrix.at(0, 0) = 7;
    const auto prepared = backend->prepare(matrix);
    EXPECT_EQ(backend->kernel_calls(), 0u) << "prepare is not a call";
    std::vector<std::byte> input(8 << 20), output(8 << 20);
    const std::byte *in = input.data();
    std::byte *out = output.data();
    core::Control control;
    const core::Task small = {prepared.get(), &in, &out, 0, 100, core::Mode::assign};
    backend->run({&small, 1}, control);
    const std::uint64_t after_small = backend->kernel_calls();
    EXPECT_GT(after_small, 0u);
    const core::Task large = {prepared.get(), &in, &out, 0, input.size(), core::Mode::assign};
    backend->run({&large, 1}, control);
    EXPECT_GE(backend->kernel_calls(), after_small + 2) << executor.name << ": a large run is cut into chunks";
  }
}

TEST(CpuBackend, UnknownChoicesAreRefusedWithNames) {
  const auto refused = [](cpu::Options options) {
    cpu::Choice choice = {};
    try {
      cpu::make_backend(options, core::Log(), &choice);
    } catch (const core::Error &error) {
      return std::pair{error.status(), std::string(error.what())};
    }
    return std::pair{TANDEM_OK + 0, std::string()};
  };
  cpu::Options options;
  options.kernel = "avx1024";
  EXPECT_EQ(refused(options).first, TANDEM_ERROR_UNAVAILABLE);
  EXPECT_NE(refused(options).second.find("scalar"), std::string::npos) << "the message lists what there is";
  options.kernel = "";
  options.executor = 17;
  EXPECT_EQ(refused(options).first, TANDEM_ERROR_INVALID_ARGUMENT);
  options.executor = 0;
  options.partition = -1;
  EXPECT_EQ(refused(options).first, TANDEM_ERROR_INVALID_ARGUMENT);
  options.partition = 0;
  options.schedule = 3;
  EXPECT_EQ(refused(options).first, TANDEM_ERROR_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace tandem::test
