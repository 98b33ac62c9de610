// SPDX-License-Identifier: Apache-2.0
// Every allocation of the library fails once. The call must return OUT_OF_MEMORY and write nothing, and the next call
// must work.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>
#include <tuple>

#include "tandem/device.h"
#include "tests/support/api.hpp"
#include "tests/support/failing_memory.hpp"
#include "tests/support/slice.hpp"

namespace tandem::test {
namespace {

constexpr std::uint64_t kSeed = 60;
constexpr long kMostAllocations = 20'000;

// Calls with 0, 1, 2, ... allocations allowed until one call gets by without a failing allocation. A call in between
// may still succeed, where the library does without (a worker thread less). `prepare` runs before each, `check` after
// each, with whether it succeeded. `fresh_thread`: each call on a thread of its own, which has nothing in its caches.
// `one_in`: a random one of so many allocations fails, each of them in `make test-all`.
void fail_each_allocation(bool fresh_thread, const std::function<tandem_status()> &call,
                          const std::function<void()> &prepare, const std::function<void(bool ok)> &check,
                          unsigned one_in = 1) {
  unsigned refusals = 0;
  Slice slice(one_in);
  for (long allowed = static_cast<long>(slice.first()); allowed < kMostAllocations;
       allowed += static_cast<long>(slice.step())) {
    prepare();
    tandem_status status = -1;
    bool message_is_there = true;
    const auto attempt = [&] {
      failed_allocations.store(0);
      allowed_allocations.store(allowed);
      status = call();
      allowed_allocations.store(-1);
      if (status != TANDEM_OK)
        message_is_there = std::strstr(tandem_last_error_message(), "memory") != nullptr ||
                           std::strstr(tandem_last_error_message(), "thread") != nullptr;
    };
    if (fresh_thread) {
      std::thread(attempt).join();
    } else {
      attempt();
    }
    const long failed = failed_allocations.load();
    ASSERT_TRUE(status == TANDEM_OK || status == TANDEM_ERROR_OUT_OF_MEMORY)
        << tandem_status_name(status) << " with " << allowed << " allocations";
    if (status != TANDEM_OK) {
      ASSERT_GT(failed, 0);
      ASSERT_TRUE(message_is_there);
      ++refusals;
    }
    check(status == TANDEM_OK);
    if (testing::Test::HasFatalFailure()) return;
    if (failed != 0) continue;
    std::printf("%u refusals before the call had what it needs\n", refusals);
    EXPECT_GT(refusals, 0u) << "no allocation failed: this proves nothing";
    return;
  }
  FAIL() << "still failing";
}

TEST(OutOfMemory, CreateObjects) {
  const tandem_context_options with_options = context_options();
  for (const tandem_context_options *options : {static_cast<const tandem_context_options *>(nullptr), &with_options}) {
    tandem_context *context = nullptr;
    fail_each_allocation(
        false, [&] { return tandem_context_create(options, &context); }, [&] { context = nullptr; },
        [&](bool ok) {
          ASSERT_EQ(context != nullptr, ok);
          tandem_context_destroy(context);
        });
  }
  for (const int32_t matrix :
       {TANDEM_MATRIX_ISAL_CAUCHY, TANDEM_MATRIX_BACKBLAZE, TANDEM_MATRIX_JERASURE_VANDERMONDE}) {
    const tandem_codec_options options = codec_options(10, 4, matrix);
    tandem_codec *codec = nullptr;
    fail_each_allocation(
        false, [&] { return tandem_codec_create(&options, &codec); }, [&] { codec = nullptr; },
        [&](bool ok) {
          ASSERT_EQ(codec != nullptr, ok);
          tandem_codec_destroy(codec);
        });
  }
  void *shards[3] = {};
  fail_each_allocation(
      false, [&] { return tandem_shards_allocate(3, 1000, 0, shards); }, [&] { shards[0] = nullptr; },
      [&](bool ok) {
        ASSERT_EQ(shards[0] != nullptr, ok);
        tandem_shards_free(shards[0]);
      });
  fail_each_allocation(
      false, [&] { return tandem_shards_allocate(3, 1000, TANDEM_SHARDS_PINNED, shards); },
      [&] { shards[0] = nullptr; },
      [&](bool ok) {
        ASSERT_EQ(shards[0] != nullptr, ok);
        tandem_shards_free(shards[0]);
      });
}

// A context reads its tuning file, and writes its timeline when it ends: without memory it is refused, or goes without.
TEST(OutOfMemory, FilesOfAContext) {
  const std::string name =
      (std::filesystem::temp_directory_path() / ("tandem-memory-" + std::to_string(getpid()))).string();
  const std::string tuning = name + "-tuning.tsv", timeline = name + "-timeline.json";
  std::ofstream(tuning)
      << "tandem_tuning_2\tbackend\tvendor\tdevice\tdriver\tkernel_hash\tmemory\toperation\tk\tm\tlanes\t"
         "values\tbytes_per_second\tdefault_bytes_per_second\tlatency_seconds\tshard_bytes\trepeats\t"
         "searched\tdate\n"
         "tuned\tcpu\ta vendor with a long name\tone\td\t0123456789abcdef\thost\tencode\t10\t4\t\t"
         "chunk_bytes=65536\t1e9\t5\t\t1\t1\t\t2025-11-21T16:55:20Z\n";
  tandem_context_options options = context_options();
  options.tuning_file = tuning.c_str();
  std::string heard;
  options.log_user = &heard;
  options.log_callback = [](void *user, std::int32_t, const char *text) { *static_cast<std::string *>(user) += text; };
  tandem_context *context = nullptr;
  fail_each_allocation(
      false, [&] { return tandem_context_create(&options, &context); }, [&] { context = nullptr; },
      [&](bool ok) {
        ASSERT_EQ(context != nullptr, ok);
        tandem_context_destroy(context);
      });
  EXPECT_NE(heard.find("none of its 1 entries was measured on"), std::string::npos) << heard;

  options.timeline_file = timeline.c_str();
  Random random(kSeed + 2);
  Stripe stripe(random, 4, 2, 100'000);
  const Codec codec = make_codec(4, 2);
  for (long allowed = 0, failed = 1; failed != 0; ++allowed) {
    Context used = make_context(options);
    ASSERT_EQ(tandem_encode(used.get(), codec.get(), stripe.data(), stripe.parity(), stripe.shard_bytes()), TANDEM_OK);
    failed_allocations.store(0);
    allowed_allocations.store(allowed);
    tandem_context_destroy(used.release());
    allowed_allocations.store(-1);
    failed = failed_allocations.load();
    ASSERT_LT(allowed, kMostAllocations);
    ASSERT_TRUE(allowed != 0 || failed != 0) << "no allocation failed: this proves nothing";
  }
  EXPECT_GT(std::filesystem::file_size(timeline), 500u);
  std::filesystem::remove(tuning);
  std::filesystem::remove(timeline);
}

// A code of as many shards as GF(2^16) has elements: the codec, the set-up of an encode and of a decode of half the
// data, and these themselves. What was refused has written nothing and keeps no memory.
TEST(OutOfMemory, ACodeOf65536Shards) {
  constexpr unsigned kHalf = 32768;
  constexpr std::size_t kBytes = 64;
  tandem_codec_options options = codec_options(kHalf, kHalf, TANDEM_MATRIX_LEOPARD16);
  options.field = TANDEM_FIELD_GF16;
  Random random(kSeed + 3);
  Bytes all = random.bytes(2 * kHalf * kBytes), before;
  std::vector<void *> shards;
  Bytes present(2 * kHalf, 1);
  for (unsigned i = 0; i < 2 * kHalf; ++i) {
    shards.push_back(all.data() + i * kBytes);
    present[i] = i >= kHalf || i % 2 != 0;
  }
  {
    const Codec codec = make_codec(options);
    ASSERT_EQ(tandem_encode(make_context().get(), codec.get(), shards.data(), shards.data() + kHalf, kBytes),
              TANDEM_OK);
  }
  const Bytes truth = all;

  Context context;
  Codec codec;
  tandem_plan *plan = nullptr;
  long live_before = 0;
  std::optional<long> kept;  // by the first call, on its way: tables of the process
  const auto begin = [&] {
    live_before = live_allocations.load();
    context = make_context("pthread", 2);
    codec = make_codec(options);
    plan = nullptr;
    before = all;
  };
  const auto end = [&](bool ok) {
    ASSERT_TRUE(all == (ok ? truth : before)) << "something was written";
    tandem_plan_destroy(plan);
    context.reset();
    codec.reset();
    const long more = live_allocations.load() - live_before;
    if (kept) {
      ASSERT_LE(more, 0) << "allocations are still there";
    }
    kept = more;
  };

  tandem_codec *made = nullptr;
  fail_each_allocation(
      true, [&] { return tandem_codec_create(&options, &made); },
      [&] {
        begin();
        made = nullptr;
      },
      [&](bool ok) {
        ASSERT_EQ(made != nullptr, ok);
        tandem_codec_destroy(made);
        end(true);
      });
  for (const bool decodes : {false, true}) {
    auto plan_options = sized<tandem_plan_options>();
    plan_options.operation = decodes ? TANDEM_OPERATION_DECODE : TANDEM_OPERATION_ENCODE;
    plan_options.present = decodes ? present.data() : nullptr;
    fail_each_allocation(
        true, [&] { return tandem_plan_create(context.get(), codec.get(), &plan_options, &plan); }, begin,
        [&](bool ok) {
          ASSERT_EQ(plan != nullptr, ok);
          end(true);
        });
    fail_each_allocation(
        true,
        [&] {
          return decodes ? tandem_decode(context.get(), codec.get(), shards.data(), present.data(), kBytes)
                         : tandem_encode(context.get(), codec.get(), shards.data(), shards.data() + kHalf, kBytes);
        },
        [&] {
          for (unsigned i = 0; i < 2 * kHalf; ++i)
            if (decodes ? !present[i] : i >= kHalf) std::memset(shards[i], 0xd7, kBytes);
          begin();
        },
        end, 4);
  }
}

// Registered or not at all: what failed can be tried again.
TEST(OutOfMemory, RegisterMemory) {
  std::vector<std::uint8_t> memory(1000);
  fail_each_allocation(
      false, [&] { return tandem_memory_register(memory.data(), 1000); }, [] {},
      [&](bool ok) {
        ASSERT_EQ(tandem_memory_unregister(memory.data()), ok ? TANDEM_OK : TANDEM_ERROR_INVALID_ARGUMENT);
      });
}

class OutOfMemory : public testing::TestWithParam<std::size_t> {
 protected:
  static constexpr unsigned kK = 6, kM = 3;

  OutOfMemory() : random_(kSeed), stripe_(random_, kK, kM, GetParam()), twin_(random_, kK, kM, GetParam()) {}

  // `call` on a stripe that has lost `lost`; on failure nothing is written, on success all is rebuilt.
  void rebuild(const std::vector<unsigned> &lost, const std::function<tandem_status()> &call) {
    fail_each_allocation(
        true, call,
        [&] {
          // Fresh objects: plans and decode matrices are not there yet, and neither are threads.
          context_ = make_context();
          codec_ = make_codec(kK, kM);
          stripe_.restore();
          stripe_.lose_all(lost);
          before_ = stripe_.shards;
        },
        [&](bool ok) {
          if (ok) {
            ASSERT_TRUE(stripe_.intact());
            return;
          }
          ASSERT_EQ(stripe_.shards, before_) << "something was written";
          ASSERT_EQ(call(), TANDEM_OK) << "the next call does not work: " << tandem_last_error_message();
          ASSERT_TRUE(stripe_.intact());
        });
  }

  Random random_;
  Stripe stripe_, twin_;
  Context context_;
  Codec codec_;
  Shards before_;
};

INSTANTIATE_TEST_SUITE_P(Sizes, OutOfMemory, testing::Values(100, 300'000));

TEST_P(OutOfMemory, Encode) {
  rebuild({6, 7, 8}, [&] {
    return tandem_encode(context_.get(), codec_.get(), stripe_.data(), stripe_.parity(), stripe_.shard_bytes());
  });
}

TEST_P(OutOfMemory, Decode) {
  rebuild({0, 5, 7}, [&] {
    return tandem_decode(context_.get(), codec_.get(), stripe_.all(), stripe_.present.data(), stripe_.shard_bytes());
  });
}

TEST_P(OutOfMemory, Stripes) {
  tandem_stripe list[2] = {};
  rebuild({1, 2, 8}, [&] {
    twin_.restore();
    list[0] = {stripe_.all(), stripe_.present.data(), stripe_.shard_bytes(), 0, 0, nullptr};
    list[1] = {twin_.all(), twin_.present.data(), twin_.shard_bytes(), 0, 0, nullptr};
    return tandem_decode_stripes(context_.get(), codec_.get(), list, 2, sizeof list[0]);
  });
  rebuild({6, 7, 8}, [&] {
    list[0] = {stripe_.all(), nullptr, stripe_.shard_bytes(), 0, 0, nullptr};
    return tandem_encode_stripes(context_.get(), codec_.get(), list, 1, sizeof list[0]);
  });
}

TEST_P(OutOfMemory, Scattered) {
  std::vector<tandem_segment> segments(2 * (kK + kM));
  std::vector<tandem_scattered_shard> shards(kK + kM);
  for (unsigned i = 0; i < kK + kM; ++i) {
    const std::size_t cut = stripe_.shard_bytes() / (i + 2);
    segments[2 * i] = {stripe_.shards[i].data(), cut};
    segments[2 * i + 1] = {stripe_.shards[i].data() + cut, stripe_.shard_bytes() - cut};
    shards[i] = {&segments[2 * i], 2};
  }
  rebuild({0, 3, 6}, [&] {
    return tandem_code_scattered(context_.get(), codec_.get(), TANDEM_OPERATION_DECODE, shards.data(),
                                 stripe_.present.data(), stripe_.shard_bytes());
  });
}

TEST_P(OutOfMemory, PlanRunAndSubmit) {
  auto options = sized<tandem_plan_options>();
  options.operation = TANDEM_OPERATION_DECODE;
  for (const bool submit : {false, true}) {
    rebuild({2, 4, 8}, [&] {
      options.present = stripe_.present.data();
      tandem_plan *raw = nullptr;
      const tandem_status made = tandem_plan_create(context_.get(), codec_.get(), &options, &raw);
      if (made != TANDEM_OK) return made;
      const Plan plan(raw);
      const tandem_plan_arguments given = stripe_.arguments();
      if (!submit) return tandem_plan_run(plan.get(), &given, nullptr);
      tandem_job *job = nullptr;
      const tandem_status started = tandem_plan_run(plan.get(), &given, &job);
      if (started != TANDEM_OK) return started;
      const tandem_status status = tandem_job_wait(job);
      tandem_job_destroy(job);
      return status;
    });
  }
}

TEST_P(OutOfMemory, VerifyAndUpdate) {
  auto result = sized<tandem_verify_result>();
  const Bytes new_data = random_.bytes(stripe_.shard_bytes());
  fail_each_allocation(
      true, [&] { return tandem_verify(context_.get(), codec_.get(), stripe_.data(), stripe_.shard_bytes(), &result); },
      [&] {
        context_ = make_context();
        codec_ = make_codec(kK, kM);
        stripe_.shards[3][50] = static_cast<std::uint8_t>(stripe_.truth[3][50] ^ 1);
        result.suspect_shard = 1234;
      },
      [&](bool ok) { ASSERT_EQ(result.suspect_shard, ok ? 3u : 1234u); });
  stripe_.restore();
  fail_each_allocation(
      true,
      [&] {
        return tandem_update(context_.get(), codec_.get(), 1, stripe_.pointers[1], new_data.data(), stripe_.parity(),
                             stripe_.shard_bytes());
      },
      [&] {
        context_ = make_context();
        codec_ = make_codec(kK, kM);
        stripe_.restore();
      },
      [&](bool ok) { ASSERT_EQ(stripe_.intact(), !ok); });
}

// Small calls of a shape that is known allocate nothing: of few shards, of more than fit the arrays on the stack, and
// with sizes at which overlaps are looked for.
TEST(Allocations, NoneInASmallRepeatedCall) {
  for (const auto &[k, m, bytes] : {std::tuple{10u, 4u, std::size_t{64}},
                                    {10u, 4u, std::size_t{8 << 10}},
                                    {200u, 56u, std::size_t{64}},
                                    {200u, 56u, std::size_t{900}}}) {
    SCOPED_TRACE(testing::Message() << k << "+" << m << ", " << bytes << " bytes");
    Random random(kSeed + 1);
    const Context context = make_context();
    const Codec codec = make_codec(k, m);
    Stripe stripe(random, k, m, bytes);
    const Bytes same(stripe.shards[2]);
    stripe.lose_all(std::vector{0u, k + 1});
    auto result = sized<tandem_verify_result>();
    auto options = sized<tandem_plan_options>();
    tandem_plan *plan = nullptr;
    ASSERT_EQ(tandem_plan_create(context.get(), codec.get(), &options, &plan), TANDEM_OK);
    auto arguments = stripe.arguments();
    std::vector<void *> some(stripe.parity(), stripe.parity() + m);
    some[0] = nullptr;
    for (const bool counting : {false, true}) {
      if (counting) {
        failed_allocations.store(0);
        allowed_allocations.store(0);  // the first one fails
      }
      const tandem_status statuses[] = {
          tandem_decode(context.get(), codec.get(), stripe.all(), stripe.present.data(), bytes),
          tandem_encode(context.get(), codec.get(), stripe.data(), stripe.parity(), bytes),
          tandem_encode(context.get(), codec.get(), stripe.data(), some.data(), bytes),
          tandem_update(context.get(), codec.get(), 2, stripe.pointers[2], same.data(), stripe.parity(), bytes),
          tandem_verify(context.get(), codec.get(), stripe.all(), bytes, &result),
          tandem_plan_run(plan, &arguments, nullptr)};
      allowed_allocations.store(-1);
      for (const tandem_status status : statuses) EXPECT_EQ(status, TANDEM_OK) << &status - statuses;
      EXPECT_EQ(failed_allocations.load(), 0);
      EXPECT_EQ(result.consistent, 1);
    }
    tandem_plan_destroy(plan);
  }
}

}  // namespace
}  // namespace tandem::test
