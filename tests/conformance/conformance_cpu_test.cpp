// SPDX-License-Identifier: Apache-2.0
// Runs the conformance suite on the CPU backend: every kernel x executor. If this CPU lacks a kernel, or
// the module of an executor is missing, prints NOT RUN.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/affinity.hpp"
#include "base/log.hpp"
#include "core/budget.hpp"
#include "cpu/factory.hpp"
#include "cpu/kernels/kernel.hpp"
#include "tests/base/errors.hpp"
#include "tests/conformance/forms.hpp"
#include "tests/conformance/suite.hpp"
#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

constexpr const char *kExecutors[] = {
    "serial",
    "pthread",
#if !defined(TANDEM_TEST_WITHOUT_OPENMP)  // the thread sanitizer does not understand libgomp
    "openmp",
#endif
};

std::unique_ptr<core::Backend> make(const cpu::Options &options) {
  cpu::Decisions choice = {};
  auto backend = cpu::make_backend(options, base::Log(), &choice);
  EXPECT_TRUE(options.kernel.empty() || options.kernel == choice.kernel) << "another kernel than the forced one";
  return backend;
}

// Why the executor cannot be had, or "".
std::string missing(const char *executor) {
  cpu::Options options;
  options.executor = executor;
  return status_of([&] { make(options); }).second;
}

std::vector<BackendMaker> cpu_makers(const char *technique = "") {
  std::vector<BackendMaker> makers;
  for (const cpu::KernelDescription &kernel : cpu::describe_kernels()) {
    for (const char *executor : kExecutors) {
      cpu::Options options;
      options.kernel = kernel.name;
      options.executor = executor;
      options.thread_count = 4;
      options.technique = technique;
      std::string name = kernel.name;
      for (char &c : name)
        if (c == '-') c = '_';
      name += std::string("_") + executor;
      std::string not_run = missing(executor);
      if (!kernel.available) not_run = std::string("kernel ") + kernel.name + " needs " + kernel.needs;
      const bool takes_gf16 = *technique == 0;
      makers.push_back({name, [options] { return make(options); }, not_run, 1, false, true, takes_gf16, true});
    }
  }
  return makers;
}

INSTANTIATE_TEST_SUITE_P(Cpu, BackendConformance, testing::ValuesIn(cpu_makers()), maker_name);

// Every kernel by each technique, with every executor.
std::vector<BackendMaker> cpu_techniques() {
  std::vector<BackendMaker> makers;
  for (const char *technique : {"", "matrix", "transform"}) {
    for (const BackendMaker &maker : cpu_makers(technique)) {
      makers.push_back(maker);
      makers.back().name = (*technique != 0 ? technique : "by_cost") + ("_" + maker.name);
    }
  }
  return makers;
}

INSTANTIATE_TEST_SUITE_P(CpuTechniques, FormConformance, testing::ValuesIn(cpu_techniques()), maker_name);

// The choice that the measurements of docs/internals/KERNELS.md make: wide codes by transforms, narrow ones and single
// losses by the matrix. The least cost is what is used.
TEST(CpuBackend, WideCodesAreRunByTransforms) {
  for (const cpu::KernelDescription &kernel : cpu::describe_kernels()) {
    if (!kernel.available) continue;
    cpu::Options options;
    options.executor = "serial";
    options.kernel = kernel.name;
    const auto backend = make(options);
    const auto used = [&](const core::Operator &what) {
      std::string names;
      const auto techniques = backend->prepare(what)->techniques();
      for (const auto is_used : {&core::TechniqueCost::is_used, &core::TechniqueCost::is_used_out_of_cache}) {
        const auto cost = is_used == &core::TechniqueCost::is_used ? &core::TechniqueCost::cost
                                                                   : &core::TechniqueCost::cost_out_of_cache;
        const auto found = std::ranges::find(techniques, true, is_used);
        EXPECT_EQ((*found).*cost, std::ranges::min(techniques, {}, cost).*cost) << kernel.name;
        EXPECT_EQ(std::ranges::count(techniques, true, is_used), 1) << kernel.name;
        names += found->name + std::string("; ");
      }
      return names;
    };
    const auto encode = [](unsigned k, unsigned m) {
      return core::Operator(transform_of(points_from(0, k), points_from(k, m)));
    };
    for (const auto &[k, m] : {std::pair{32u, 32u}, {64u, 16u}, {128u, 32u}, {128u, 128u}, {200u, 56u}})
      EXPECT_EQ(used(encode(k, m)), "transform; transform; ") << kernel.name << " " << k << "+" << m;
    for (const auto &[k, m] : {std::pair{1u, 1u}, {4u, 2u}, {10u, 4u}, {12u, 4u}, {255u, 1u}, {1u, 255u}})
      EXPECT_EQ(used(encode(k, m)), "matrix; matrix; ") << kernel.name << " " << k << "+" << m;
    Random random(4);
    EXPECT_EQ(used(core::Operator(random_decode(random, 0, 128, 128, 0))),
              "syndromes, transform; syndromes, transform; ")
        << kernel.name;
    EXPECT_EQ(used(core::Operator(random_decode(random, 63, 1, 1, 0))), "matrix; matrix; ") << kernel.name;
  }
}

// Says the same of every matrix.
class SameValues final : public core::TuningSource {
 public:
  explicit SameValues(core::TuningValues values, bool same_machine = true)
      : values_(std::move(values)), same_machine_(same_machine) {}
  core::TuningChoice find(const core::TuningQuery &query) const override {
    ++asked_count;
    last = query;
    return {values_, "the test says so", same_machine_};
  }
  mutable unsigned asked_count = 0;
  mutable core::TuningQuery last = {};

 private:
  core::TuningValues values_;
  bool same_machine_;
};

const core::TuningValues kSmallest = {
    {"chunk_bytes", 0}, {"out_of_cache_bytes", 0}, {"tile_bytes", 1}, {"prefetch_bytes", 1}, {"threads", 0}};
const core::TuningValues kLargest = {{"chunk_bytes", UINT64_MAX}, {"out_of_cache_bytes", UINT64_MAX},
                                     {"tile_bytes", UINT64_MAX},  {"prefetch_bytes", UINT64_MAX},
                                     {"threads", UINT64_MAX},     {"unknown", 7}};

// The other choices, each once.
std::vector<BackendMaker> cpu_variants() {
  static core::Budget one_at_a_time;
  one_at_a_time.set("cpu", 1);
  cpu::Options budget, pinned, crowd;
  budget.kernel = pinned.kernel = crowd.kernel = "scalar";
  budget.executor = pinned.executor = crowd.executor = "pthread";
  budget.thread_count = pinned.thread_count = 3;
  budget.budget = &one_at_a_time;
  pinned.cores = base::affinity_cores();
  crowd.thread_count = 40;  // more threads than chunks
  std::vector<BackendMaker> makers = {{"budget_of_one", [=] { return make(budget); }, ""},
                                      {"pinned", [=] { return make(pinned); }, ""},
                                      {"crowd", [=] { return make(crowd); }, ""}};
  makers.push_back({"groups", [=] { return make(pinned); }, "", 96});
  // Values of a hostile tuning file, with every kernel: slow at worst.
  static const SameValues smallest(kSmallest), largest(kLargest);
  for (const cpu::KernelDescription &kernel : cpu::describe_kernels()) {
    for (const SameValues *values : {&smallest, &largest}) {
      cpu::Options tuned;
      tuned.kernel = kernel.name;
      tuned.executor = "pthread";
      tuned.thread_count = 3;
      tuned.tuning = values;
      std::string name = std::string("tuned_") + (values == &smallest ? "smallest_" : "largest_") + kernel.name;
      std::replace(name.begin(), name.end(), '-', '_');
      makers.push_back({name, [=] { return make(tuned); },
                        kernel.available ? "" : std::string("kernel ") + kernel.name + " needs " + kernel.needs});
    }
  }
  for (BackendMaker &each : makers) each.takes_any_count = true;
  return makers;
}

INSTANTIATE_TEST_SUITE_P(CpuVariants, BackendConformance, testing::ValuesIn(cpu_variants()), maker_name);

core::Matrix some_matrix(unsigned rows, unsigned columns) {
  core::Matrix matrix(rows, columns);
  for (unsigned r = 0; r < rows; ++r)
    for (unsigned c = 0; c < columns; ++c) matrix.at(r, c) = static_cast<std::uint8_t>(7 * r + 3 * c + 1);
  return matrix;
}

// How many chunks a run of one input and one output is cut into.
std::uint64_t chunk_count(core::Backend &backend, const core::Prepared &prepared, std::size_t bytes = 8 << 20) {
  std::vector<std::byte> input(bytes), output(bytes);
  const std::byte *in = input.data();
  std::byte *out = output.data();
  core::Control control;
  const core::Task task = {&prepared, &in, &out, 0, bytes, core::Mode::assign};
  const std::uint64_t before = backend.kernel_calls();
  backend.run({&task, 1}, control);
  return backend.kernel_calls() - before;
}

TEST(CpuBackend, KernelCallsAreCounted) {
  for (const char *executor : kExecutors) {
    if (!missing(executor).empty()) continue;
    cpu::Options options;
    options.kernel = "scalar";
    options.executor = executor;
    options.thread_count = 2;
    const auto backend = make(options);
    EXPECT_EQ(backend->kernel_calls(), 0u);
    const auto prepared = backend->prepare(some_matrix(1, 1));
    EXPECT_EQ(backend->kernel_calls(), 0u) << "prepare is not a call";
    EXPECT_GT(chunk_count(*backend, *prepared, 100), 0u);
    EXPECT_GE(chunk_count(*backend, *prepared), 2u) << executor << ": a large run is cut into chunks";
  }
}

TEST(CpuBackend, TunedValuesAreUsedAndTold) {
  const SameValues source({{"chunk_bytes", 128 << 10}});
  std::vector<std::string> heard;
  const base::Log log([](void *user, std::int32_t,
                         const char *message) { static_cast<std::vector<std::string> *>(user)->push_back(message); },
                      &heard, TANDEM_LOG_INFO);
  cpu::Options options;
  options.executor = "serial";
  cpu::Decisions choice = {};
  const auto plain = cpu::make_backend(options, log, &choice);
  options.tuning = &source;
  const auto tuned = cpu::make_backend(options, log, &choice);
  heard.clear();
  const auto prepared = tuned->prepare(some_matrix(1, 1));
  EXPECT_TRUE(heard.empty()) << "nothing has run with them";
  EXPECT_EQ(chunk_count(*plain, *plain->prepare(some_matrix(1, 1))), (16u << 20) / (2 << 20));
  EXPECT_EQ(chunk_count(*tuned, *prepared), (16u << 20) / (128 << 10));
  EXPECT_EQ(chunk_count(*tuned, *tuned->tunable()->prepare_tuned(some_matrix(1, 1), {{"chunk_bytes", 4 << 20}})), 4u)
      << "prepare_tuned does not ask the tuning source";
  EXPECT_EQ(chunk_count(*tuned, *prepared), (16u << 20) / (128 << 10));
  ASSERT_EQ(heard.size(), 1u) << "once, of the mode that ran";
  EXPECT_EQ(heard[0], "cpu: coding (1, 1) with chunk_bytes=131072: the test says so");
  tuned->prepare(some_matrix(1, 1));
  EXPECT_EQ(source.asked_count, 3u) << "once for each shape";
  tuned->prepare(some_matrix(4, 10));
  EXPECT_EQ(source.asked_count, 6u);
  EXPECT_EQ(source.last.columns, 10u);
  EXPECT_EQ(source.last.rows, 4u);
  EXPECT_EQ(source.last.identity.backend, "cpu");
  EXPECT_EQ(source.last.kernel_hash, tuned->tunable()->tuning_kernel_hash());
}

// The bytes of a matrix do not show where they were cut; the number of chunks does.
TEST(CpuBackend, ChunksEndAtMultiplesOfTheGranularity) {
  cpu::Options options;
  options.executor = "serial";
  const auto backend = make(options);
  for (const auto &[granularity, chunks] :
       {std::pair{std::uint64_t{1}, 8u}, {4096, 8}, {4 << 20, 2}, {8 << 20, 1}, {std::uint64_t{1} << 32, 1}})
    EXPECT_EQ(chunk_count(*backend, *backend->prepare({some_matrix(1, 1), granularity})), chunks) << granularity;
  // Cache lines and groups: 8 MiB in steps of 3 MiB, as the least one of both that is no less than a chunk.
  EXPECT_EQ(chunk_count(*backend, *backend->prepare({some_matrix(1, 1), 3 << 20})), 3u);
}

// One that another machine measured: what is about the machine stays there.
TEST(CpuBackend, ThreadsAndCachesOfAnotherMachineAreLeftOut) {
  cpu::Options options;
  options.executor = "pthread";
  options.thread_count = 4;
  const auto chunks_with = [&](core::TuningValues values, bool same_machine) {
    const SameValues source(std::move(values), same_machine);
    options.tuning = &source;
    const auto backend = make(options);
    return chunk_count(*backend, *backend->prepare(some_matrix(1, 1)));
  };
  // One thread takes all that is not above the most. Of several, each gets four chunks, and the first one of all is
  // smaller.
  const core::TuningValues values = {{"threads", 1}, {"chunk_bytes", 16 << 20}};
  EXPECT_EQ(chunks_with(values, true), 1u);
  EXPECT_EQ(chunks_with(values, false), 17u);

  options.tuning = nullptr;
  const auto backend = make(options);
  for (const core::TuningValues &beyond :
       {core::TuningValues{{"threads", 5}}, {{"threads", 0}}, {{"chunk_bytes", 1}}, {{"tile_bytes", 2 << 20}}})
    EXPECT_THROW(backend->tunable()->prepare_tuned(some_matrix(1, 1), beyond), base::Error);
}

TEST(CpuBackend, WhatMayBeTuned) {
  cpu::Options options;
  options.thread_count = 4;
  options.executor = "pthread";
  cpu::Decisions choice = {};
  const auto backend = cpu::make_backend(options, base::Log(), &choice);
  for (const core::Mode mode : {core::Mode::assign, core::Mode::accumulate, core::Mode::compare}) {
    const auto parameters = backend->tunable()->tuning_parameters(4, 10, mode);
    EXPECT_EQ(parameters.size(), mode == core::Mode::compare ? 2u : 5u);
    for (const core::TuningParameter &parameter : parameters) {
      EXPECT_EQ(std::count(parameter.candidates.begin(), parameter.candidates.end(), parameter.value), 1)
          << parameter.name;
      EXPECT_GT(parameter.candidates.size(), 1u) << parameter.name;
    }
  }
  const core::TuningIdentity identity = backend->tunable()->tuning_identity();
  EXPECT_EQ(identity.driver, std::string("kernel ") + choice.kernel + ", executor pthread, 4 threads");
  options.technique = "matrix";
  options.cores = base::affinity_cores();
  EXPECT_EQ(cpu::make_backend(options, base::Log(), &choice)->tunable()->tuning_identity().driver,
            identity.driver + ", pinned, technique matrix");
  options.kernel = "scalar";
  EXPECT_NE(cpu::make_backend(options, base::Log(), &choice)->tunable()->tuning_kernel_hash(),
            backend->tunable()->tuning_kernel_hash());
}

}  // namespace
}  // namespace tandem::test
