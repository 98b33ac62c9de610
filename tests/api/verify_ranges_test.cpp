// SPDX-License-Identifier: Apache-2.0
// Tests the ranges of a verify through the C API, with every kind of backend: the CPU; a backend that cuts operators at
// multiples; the hybrid; CUDA on the fake driver, with shards of the host and of the device.
#include <algorithm>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <thread>

#include "api/objects.hpp"
#include "hybrid/factory.hpp"
#include "tandem/device.h"
#include "tandem/diagnose.h"
#include "tests/conformance/fake_backend.hpp"
#include "tests/support/api.hpp"
#include "tests/support/mismatch_ranges.hpp"
#ifdef TANDEM_TEST_WITH_CUDA
#include "gpu/factory.hpp"
#include "tests/gpu/fake_driver.hpp"
#endif

namespace tandem::test {
namespace {

constexpr unsigned kK = 5, kM = 3;
constexpr std::size_t kGroupBytes = 2999,
                      kBytes = 401 * kGroupBytes;  // more than are compared at once, and in large tiles first

Context context_of(std::unique_ptr<core::Backend> backend) {
  auto context = std::make_unique<tandem_context>();
  context->backend = std::move(backend);
  return Context(context.release());
}

// What a test runs on.
struct Place {
  std::shared_ptr<void> driver{};  // outlives the context
  Context context{};
  int32_t memory = TANDEM_MEMORY_HOST;
  void *queue = nullptr;
  std::function<void *(std::size_t bytes)> allocate{};  // device memory, which a fake's is to memcpy
};

struct Maker {
  std::string name;
  std::function<Place()> make;
};

Place fake(std::uint64_t granularity_bytes) {
  FakeScript script;
  script.granularity_bytes = granularity_bytes;
  script.lanes = 4;
  Place place;
  place.context = context_of(std::make_unique<FakeBackend>(script));
  return place;
}

Place hybrid_of_two() {
  const auto member = [](const char *name) {
    FakeScript script;
    script.name = name;
    hybrid::Member made;
    made.name = name;
    made.backend = std::make_shared<FakeBackend>(script);
    return made;
  };
  hybrid::Options options;
  options.members = {member("cpu"), member("gpu")};
  options.members[0].is_cpu = true;
  options.members[1].staging_bytes = 1 << 20;
  options.policy = hybrid::Policy::budget;
  options.chunk_bytes = 100'000;
  options.inline_bytes = 1000;
  Place place;
  place.context = context_of(hybrid::make_backend(std::move(options), base::Log()));
  return place;
}

#ifdef TANDEM_TEST_WITH_CUDA
Place cuda(int32_t memory) {
  const auto driver = std::make_shared<FakeCuda>();
  gpu::Options options;
  options.driver = driver->table();
  options.generate = fake_cuda_generate;
  options.technique = "tables";
  Place place;
  place.driver = driver;
  place.context = context_of(gpu::make_backend(options, base::Log()));
  place.memory = memory;
  if (memory == TANDEM_MEMORY_CUDA) {
    place.queue = driver->make_stream();
    place.allocate = [&driver = *driver](std::size_t bytes) {
      return reinterpret_cast<void *>(driver.allocate(bytes));
    };
  }
  return place;
}
#endif

std::vector<Maker> makers() {
  std::vector<Maker> list = {{"cpu",
                              [] {
                                return Place{{}, make_context(), {}, {}, {}};
                              }},
                             {"fake", [] { return fake(1); }},
                             {"fake_of_groups", [] { return fake(kGroupBytes); }},
                             {"hybrid", hybrid_of_two}};
#ifdef TANDEM_TEST_WITH_CUDA
  list.push_back({"cuda_host", [] { return cuda(TANDEM_MEMORY_HOST); }});
  list.push_back({"cuda_device", [] { return cuda(TANDEM_MEMORY_CUDA); }});
#endif
  return list;
}

struct Found {
  std::vector<RangeOfRow> ranges;
  std::uint64_t count = 0;
};

class VerifyRanges : public testing::TestWithParam<Maker> {
 protected:
  VerifyRanges() : place_(GetParam().make()), random_(5), stripe_(random_, kK, kM, kBytes) {
    plan_ = make_plan(place_.context.get(), make_codec(kK, kM).get(), TANDEM_OPERATION_VERIFY, nullptr, nullptr, 0,
                      place_.memory);
    for (unsigned i = 0; i < kK + kM; ++i)
      pointers_.push_back(place_.allocate ? place_.allocate(kBytes) : stripe_.pointers[i]);
  }

  tandem_plan_arguments arguments() {
    if (place_.allocate)
      for (unsigned i = 0; i < kK + kM; ++i) std::memcpy(pointers_[i], stripe_.shards[i].data(), kBytes);
    auto arguments = plan_arguments(pointers_.data(), kBytes);
    if (place_.memory != TANDEM_MEMORY_HOST) arguments.queue = place_.queue;
    arguments.verify_result = &result_;
    return arguments;
  }

  // Runs, or submits, and checks all that does not depend on what is damaged.
  Found verify(std::uint64_t capacity, bool submits = false) {
    std::vector<tandem_shard_range> ranges(capacity + 1, tandem_shard_range{77, 77, 77, 77, 77});
    Found found;
    tandem_plan_arguments given = arguments();
    tandem_verify_ranges out = {sizeof out, capacity != 0 ? ranges.data() : nullptr, capacity, 0};
    given.verify_ranges = &out;
    if (submits) {
      EXPECT_EQ(tandem_job_wait(submit(plan_, given).get()), TANDEM_OK) << tandem_last_error_message();
    } else {
      EXPECT_EQ(tandem_plan_run(plan_.get(), &given, nullptr), TANDEM_OK) << tandem_last_error_message();
    }
    found.count = out.count;
    const std::uint64_t written = std::min(capacity, found.count);
    EXPECT_EQ(ranges[written].shard, 77u) << "one more than there are, or than there is room for";
    for (std::uint64_t i = 0; i < written; ++i) {
      EXPECT_EQ(ranges[i].reserved, 0u);
      found.ranges.push_back({ranges[i].shard - kK, ranges[i].begin_bytes, ranges[i].end_bytes, ranges[i].byte_count});
    }
    EXPECT_TRUE(are_ranges_of(found.ranges, found.count, differing())) << "capacity " << capacity;
    EXPECT_EQ(result_.consistent, found.count == 0);
    if (written == found.count) {
      std::uint64_t sum = 0;
      for (const RangeOfRow &range : found.ranges) sum += range.count;
      EXPECT_EQ(sum, result_.mismatch_byte_count);
    }
    return found;
  }

  void damage(unsigned shard, std::size_t first, std::size_t count = 1) {
    for (std::size_t i = first; i < std::min(kBytes, first + count); ++i) stripe_.shards[shard][i] ^= 0x40;
  }

  Shards differing() const {
    std::vector<const std::uint8_t *> data;
    for (unsigned c = 0; c < kK; ++c) data.push_back(stripe_.shards[c].data());
    const Shards parity = expected(cauchy_matrix(kK, kM).data(), kM, kK, data.data(), kBytes);
    Shards all(kM, Bytes(kBytes));
    for (unsigned r = 0; r < kM; ++r) {
      const std::uint8_t *const want = parity[r].data(), *const is = stripe_.shards[kK + r].data();
      constexpr std::size_t kBlock = 4096;
      for (std::size_t block = 0; block < kBytes; block += kBlock) {
        const std::size_t end = std::min(block + kBlock, kBytes);
        if (std::memcmp(want + block, is + block, end - block) == 0) continue;
        for (std::size_t i = block; i < end; ++i) all[r][i] = want[i] != is[i];
      }
    }
    return all;
  }

  Place place_;
  Random random_;
  Stripe stripe_;
  Plan plan_;
  std::vector<void *> pointers_;
  tandem_verify_result result_ = sized<tandem_verify_result>();
};

INSTANTIATE_TEST_SUITE_P(Backends, VerifyRanges, testing::ValuesIn(makers()),
                         [](const auto &test) { return test.param.name; });

// How many ranges there are, and which shard is suspected. A data shard's damage shows in every parity.
TEST_P(VerifyRanges, OfOneShardOrAFewBytes) {
  struct Damage {
    unsigned shard;
    std::size_t first, count;
  };
  struct Case {
    std::vector<Damage> damaged;
    std::uint64_t range_count;
  };
  for (const auto &[damaged, range_count] :
       {Case{{}, 0}, Case{{{kK, 0, kBytes}, {kK + 2, 0, kBytes}}, 2}, Case{{{kK + 1, 0, 1}}, 1},
        Case{{{kK + 1, 0, 1}, {kK + 1, kBytes - 1, 1}, {kK + 2, kBytes - 1, 1}}, 3},
        Case{{{3, 500'000, 3}, {3, 2'000, 1}}, 2 * kM}}) {
    stripe_.restore();
    for (const auto &[shard, first, count] : damaged) damage(shard, first, count);
    EXPECT_EQ(verify(10).count, range_count);
    EXPECT_EQ(verify(0, true).count, range_count);
    if (range_count == 2 * kM) {
      EXPECT_EQ(result_.suspect_shard, 3u);
    }
  }
}

// Of every capacity the first ones of the same ranges; by run and by submit.
TEST_P(VerifyRanges, ManyPlacesAndAnyCapacity) {
  for (unsigned i = 0; i < 30; ++i) {
    const auto shard = static_cast<unsigned>(random_.below(kM));
    damage(kK + shard, random_.below(kBytes), i % 3 == 0 ? random_.below(40'000) : 1);
  }
  const Found all = verify(1000);
  EXPECT_GE(all.count, 10u);
  EXPECT_LE(all.count, 40u);
  for (const std::uint64_t capacity : {std::uint64_t{0}, std::uint64_t{1}, all.count - 1, all.count}) {
    const Found found = verify(capacity, capacity % 2 == 0);
    EXPECT_EQ(found.count, all.count);
    ASSERT_EQ(found.ranges.size(), capacity);
    for (std::size_t i = 0; i < capacity; ++i) {
      EXPECT_EQ(found.ranges[i].begin, all.ranges[i].begin);
      EXPECT_EQ(found.ranges[i].end, all.ranges[i].end);
    }
  }
}

// A caller that was compiled before there were ranges gets none.
TEST_P(VerifyRanges, AreNotLookedForUnasked) {
  damage(kK, 1000, 5000);
  if (place_.memory != TANDEM_MEMORY_HOST) GTEST_SKIP() << "the caller's struct has no device either";
  tandem_shard_range range = {77, 77, 77, 77, 77};
  tandem_verify_ranges out = {sizeof out, &range, 1, 77};
  tandem_plan_arguments given = arguments();
  given.struct_bytes = offsetof(tandem_plan_arguments, verify_ranges);
  given.verify_ranges = &out;
  ASSERT_EQ(tandem_plan_run(plan_.get(), &given, nullptr), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(result_.mismatch_byte_count, 5000u);
  EXPECT_EQ(out.count, 77u);
  EXPECT_EQ(range.shard, 77u);
}

// What a second look costs: nothing where it would find nothing, or nothing more; else each byte twice more at most.
TEST(VerifyRangesCost, IsBounded) {
  Random random(6);
  Stripe stripe(random, kK, kM, kBytes);
  FakeScript script;
  auto owned = std::make_unique<FakeBackend>(script);
  const FakeBackend &backend = *owned;
  const Context context = context_of(std::move(owned));
  const Plan plan = make_plan(context.get(), make_codec(kK, kM).get(), TANDEM_OPERATION_VERIFY);
  tandem_shard_range ranges[10];
  tandem_verify_ranges found = {sizeof found, ranges, 10, 0};
  const auto bytes_read = [&] {
    auto result = sized<tandem_verify_result>();
    auto arguments = stripe.arguments();
    arguments.verify_result = &result;
    arguments.verify_ranges = &found;
    const std::uint64_t before = backend.counts().bytes;
    EXPECT_EQ(tandem_plan_run(plan.get(), &arguments, nullptr), TANDEM_OK);
    return backend.counts().bytes - before;
  };
  EXPECT_EQ(bytes_read(), kBytes);
  stripe.shards[kK][77'777] ^= 1;
  EXPECT_EQ(bytes_read(), kBytes) << "one byte is where the first one is";
  stripe.shards[kK][77'780] ^= 1;
  EXPECT_LE(bytes_read(), kBytes + 4 * (256 << 10) + 4 * (4 << 10));
  EXPECT_EQ(found.count, 1u);
  for (std::size_t i = 0; i < kBytes; i += 2) stripe.shards[kK][i] ^= 1;
  EXPECT_LE(bytes_read(), 3 * kBytes);
  EXPECT_EQ(found.count, 1u);
}

// Nothing is written by a job that was cancelled.
TEST(VerifyRangesCancelled, NothingIsSaid) {
  Random random(7);
  Stripe stripe(random, kK, kM, kBytes);
  stripe.shards[kK][5] ^= 1;
  std::promise<void> cancelled;
  const auto is_cancelled = cancelled.get_future().share();
  FakeScript script;
  script.before_chunk = [&](std::uint64_t, std::uint64_t) { is_cancelled.wait(); };
  const Context context = context_of(std::make_unique<FakeBackend>(script));
  const Plan plan = make_plan(context.get(), make_codec(kK, kM).get(), TANDEM_OPERATION_VERIFY);
  tandem_shard_range range = {77, 77, 77, 77, 77};
  tandem_verify_ranges found = {sizeof found, &range, 1, 77};
  auto result = sized<tandem_verify_result>();
  result.consistent = 77;
  auto arguments = stripe.arguments();
  arguments.verify_result = &result;
  arguments.verify_ranges = &found;
  const Job job = submit(plan, arguments);
  EXPECT_EQ(tandem_job_cancel(job.get()), TANDEM_OK);
  cancelled.set_value();
  EXPECT_TRUE(refused(tandem_job_wait(job.get()), TANDEM_ERROR_CANCELLED));
  EXPECT_EQ(found.count, 77u);
  EXPECT_EQ(range.shard, 77u);
  EXPECT_EQ(result.consistent, 77);
}

#ifdef TANDEM_TEST_WITH_CUDA
// A verify of shards in device memory that finds data shard 3 damaged. The technique follows the bytes.
class VerifyOnDevice : public testing::Test {
 protected:
  VerifyOnDevice() : random_(8), stripe_(random_, kK, kM, kShardBytes) {
    gpu::Options options;
    options.driver = driver_.table();
    options.generate = fake_cuda_generate;
    context_ = context_of(gpu::make_backend(options, base::Log()));
    auto plan = sized<tandem_plan_options>();
    plan.operation = TANDEM_OPERATION_VERIFY;
    plan.memory = TANDEM_MEMORY_CUDA;
    plan.wait_for_kernel = 1;
    tandem_plan *made = nullptr;
    EXPECT_EQ(tandem_plan_create(context_.get(), make_codec(kK, kM).get(), &plan, &made), TANDEM_OK);
    plan_.reset(made);
    stripe_.shards[3][1234] ^= 1;
    for (const Bytes &shard : stripe_.shards) {
      memory_.push_back(driver_.allocate(kShardBytes));
      pointers_.push_back(reinterpret_cast<void *>(memory_.back()));
      std::memcpy(pointers_.back(), shard.data(), kShardBytes);
    }
    arguments_ = plan_arguments(pointers_.data(), kShardBytes);
    arguments_.queue = stream_;
    arguments_.verify_result = &result_;
  }

  static constexpr std::size_t kShardBytes = 30'001;
  FakeCuda driver_;
  const CUstream stream_ = driver_.make_stream();
  Context context_;
  Random random_;
  Stripe stripe_;
  Plan plan_;
  std::vector<CUdeviceptr> memory_;
  std::vector<void *> pointers_;
  tandem_verify_result result_ = sized<tandem_verify_result>();
  tandem_plan_arguments arguments_ = {};
};

// The second look is of another matrix, and its kernel is not compiled: a compile would take longer than the look.
TEST_F(VerifyOnDevice, NamesTheSuspectWithoutACompile) {
  const std::uint64_t compiles = driver_.calls_of("nvrtcCompileProgram");
  EXPECT_EQ(compiles, 2u) << "the plan's, aligned and unaligned";
  ASSERT_EQ(tandem_plan_run(plan_.get(), &arguments_, nullptr), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(result_.mismatch_byte_count, kM);
  EXPECT_EQ(result_.suspect_shard, 3u);
  EXPECT_EQ(driver_.calls_of("nvrtcCompileProgram"), compiles);
}

// A queue that is captured by the time of the wait takes no second look: what was found is told without.
TEST_F(VerifyOnDevice, IsGoodWhileItsQueueIsCaptured) {
  const Job job = submit(plan_, arguments_);
  std::thread([&] { driver_.begin_capture(stream_); }).join();
  EXPECT_EQ(tandem_job_wait(job.get()), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(result_.consistent, 0);
  EXPECT_EQ(result_.bad_parity_count, kM);
  EXPECT_EQ(result_.mismatch_byte_count, kM);
  EXPECT_EQ(result_.first_mismatch_bytes, 1234u);
  EXPECT_EQ(result_.suspect_shard, TANDEM_SHARD_NONE);
  EXPECT_FALSE(driver_.is_capture_invalid(stream_));
  EXPECT_EQ(driver_.end_capture(stream_), 0u);
  ASSERT_EQ(tandem_plan_run(plan_.get(), &arguments_, nullptr), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(result_.suspect_shard, 3u);
}
#endif

}  // namespace
}  // namespace tandem::test
