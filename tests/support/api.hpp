// SPDX-License-Identifier: Apache-2.0
// Common code of tests of the C API: owners of its objects, and stripes with known contents. Uses only tandem.h.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tandem/diagnose.h"
#include "tests/support/expected.hpp"
#include "tests/support/random.hpp"
#include "tests/support/structs.hpp"

namespace tandem::test {

struct Destroy {
  void operator()(tandem_context *context) const { tandem_context_destroy(context); }
  void operator()(tandem_codec *codec) const { tandem_codec_destroy(codec); }
  void operator()(tandem_plan *plan) const { tandem_plan_destroy(plan); }
  void operator()(tandem_job *job) const { tandem_job_destroy(job); }
};
using Context = std::unique_ptr<tandem_context, Destroy>;
using Codec = std::unique_ptr<tandem_codec, Destroy>;
using Plan = std::unique_ptr<tandem_plan, Destroy>;
using Job = std::unique_ptr<tandem_job, Destroy>;

// "serial", "pthread", "openmp" as the option `expert`; null for others.
inline const char *expert_of(std::string_view executor) {
  for (const char *each : {"executor=serial", "executor=pthread", "executor=openmp"})
    if (std::string_view(each).ends_with(executor) && !executor.empty()) return each;
  return nullptr;
}

inline tandem_context_options context_options(std::string_view executor = "pthread", uint32_t thread_count = 3) {
  auto options = sized<tandem_context_options>();
  options.expert = expert_of(executor);
  options.thread_count = thread_count;
  return options;
}

inline Context make_context(const tandem_context_options &options) {
  tandem_context *context = nullptr;
  EXPECT_EQ(tandem_context_create(&options, &context), TANDEM_OK) << tandem_last_error_message();
  return Context(context);
}
inline Context make_context(std::string_view executor = "pthread", uint32_t thread_count = 3) {
  return make_context(context_options(executor, thread_count));
}

inline Codec make_codec(const tandem_codec_options &options) {
  tandem_codec *codec = nullptr;
  EXPECT_EQ(tandem_codec_create(&options, &codec), TANDEM_OK) << tandem_last_error_message();
  return Codec(codec);
}
inline Codec make_codec(uint32_t k, uint32_t m, int32_t matrix = TANDEM_MATRIX_ISAL_CAUCHY) {
  return make_codec(codec_options(k, m, matrix));
}

inline Plan make_plan(tandem_context *context, const tandem_codec *codec, int32_t operation,
                      const uint8_t *present = nullptr, const uint8_t *wanted = nullptr, uint32_t index = 0,
                      int32_t memory = TANDEM_MEMORY_HOST) {
  auto options = sized<tandem_plan_options>();
  options.operation = operation;
  options.memory = memory;
  options.present = present;
  options.wanted = wanted;
  options.index = index;
  tandem_plan *plan = nullptr;
  EXPECT_EQ(tandem_plan_create(context, codec, &options, &plan), TANDEM_OK) << tandem_last_error_message();
  return Plan(plan);
}

inline Bytes shards_read(const tandem_plan *plan, std::size_t shard_count) {
  auto info = sized<tandem_plan_info>();
  EXPECT_EQ(tandem_plan_query(plan, &info), TANDEM_OK);
  return {info.shards_read, info.shards_read + shard_count};
}

inline Job submit(const Plan &plan, const tandem_plan_arguments &arguments) {
  tandem_job *job = nullptr;
  EXPECT_EQ(tandem_plan_run(plan.get(), &arguments, &job), TANDEM_OK) << tandem_last_error_message();
  return Job(job);
}

// The executors that can run here; the thread sanitizer does not understand OpenMP's runtime.
inline std::vector<std::string> executors() {
  std::vector<std::string> all = {"serial", "pthread"};
#if !defined(TANDEM_TEST_WITHOUT_OPENMP)
  const tandem_context_options options = context_options("openmp");
  tandem_context *context = nullptr;
  if (tandem_context_create(&options, &context) == TANDEM_OK) {
    all.push_back("openmp");
    tandem_context_destroy(context);
  } else {
    std::printf("NOT RUN: %s\n", tandem_last_error_message());
  }
#endif
  return all;
}

// The default matrix by its formula: 1 / ((k + r) xor c).
inline Bytes cauchy_matrix(unsigned k, unsigned m) {
  Bytes matrix;
  for (unsigned r = 0; r < m; ++r)
    for (unsigned c = 0; c < k; ++c) matrix.push_back(reference::inverse(static_cast<std::uint8_t>((k + r) ^ c)));
  return matrix;
}

// One stripe: k random data shards, m parity shards as the reference computes them.
class Stripe {
 public:
  Stripe(Random &random, unsigned k, unsigned m, std::size_t shard_bytes, const Bytes &matrix)
      : k_(k), m_(m), shard_bytes_(shard_bytes) {
    std::vector<const std::uint8_t *> inputs;
    for (unsigned c = 0; c < k; ++c) shards.push_back(random.bytes(shard_bytes));
    for (unsigned c = 0; c < k; ++c) inputs.push_back(shards[c].data());
    for (Bytes &parity : expected(matrix.data(), m, k, inputs.data(), shard_bytes)) shards.push_back(std::move(parity));
    truth = shards;
    for (Bytes &shard : shards) pointers.push_back(shard.data());
    present.assign(k + m, 1);
  }
  Stripe(Random &random, unsigned k, unsigned m, std::size_t shard_bytes)
      : Stripe(random, k, m, shard_bytes, cauchy_matrix(k, m)) {}
  Stripe(const Stripe &) = delete;
  Stripe &operator=(const Stripe &) = delete;

  const void *const *data() const { return pointers.data(); }
  void *const *parity() const { return pointers.data() + k_; }
  void *const *all() const { return pointers.data(); }
  tandem_plan_arguments arguments() const { return plan_arguments(all(), shard_bytes_); }
  unsigned k() const { return k_; }
  unsigned m() const { return m_; }
  unsigned count() const { return k_ + m_; }
  std::size_t shard_bytes() const { return shard_bytes_; }

  // Shard i is gone: its bytes are trash, to be rebuilt in place.
  void lose(unsigned i) {
    present[i] = 0;
    std::memset(shards[i].data(), 0xd7, shard_bytes_);
  }
  template <class List>
  void lose_all(const List &list) {
    for (const auto i : list) lose(static_cast<unsigned>(i));
  }
  void lose_parity() {
    for (unsigned i = k_; i < count(); ++i) lose(i);
  }
  void restore() {
    for (unsigned i = 0; i < count(); ++i) std::memcpy(shards[i].data(), truth[i].data(), shard_bytes_);
    for (unsigned i = 0; i < count(); ++i) pointers[i] = shards[i].data();
    present.assign(count(), 1);
  }
  bool intact() const { return shards == truth; }

  Shards shards, truth;
  std::vector<void *> pointers;
  Bytes present;

 private:
  unsigned k_, m_;
  std::size_t shard_bytes_;
};

// The call failed with `status`, and its message has all of `parts`.
inline testing::AssertionResult refused(tandem_status got, tandem_status status,
                                        const std::vector<std::string> &parts = {}) {
  const std::string message = tandem_last_error_message();
  if (got != status) {
    return testing::AssertionFailure() << tandem_status_name(got) << " instead of " << tandem_status_name(status)
                                       << "; last message: " << message;
  }
  if (message.empty()) return testing::AssertionFailure() << "no message";
  for (const std::string &part : parts)
    if (message.find(part) == std::string::npos)
      return testing::AssertionFailure() << "no \"" << part << "\" in: " << message;
  return testing::AssertionSuccess();
}

inline uint64_t kernel_calls(const tandem_context *context) {
  auto info = sized<tandem_context_info>();
  EXPECT_EQ(tandem_context_query(context, &info), TANDEM_OK);
  return info.kernel_calls;
}

}  // namespace tandem::test
