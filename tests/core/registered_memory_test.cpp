// SPDX-License-Identifier: Apache-2.0
// Registered memory: refused ranges, the ranges that a run holds, and registrations in a child after fork.
#include "core/registered_memory.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/objects.hpp"
#include "tandem/device.h"
#include "tests/support/calls.hpp"

namespace tandem::test {
namespace {

std::string hex(const void *address) {
  char text[32];
  std::snprintf(text, sizeof text, "%#zx", reinterpret_cast<std::size_t>(address));
  return text;
}

TEST(RegisteredMemory, BadInputIsRefusedWithTheNumbers) {
  std::vector<std::uint8_t> memory(10'000);
  std::uint8_t *const at = memory.data() + 1000;
  EXPECT_TRUE(refused(tandem_memory_register(nullptr, 100), TANDEM_ERROR_INVALID_ARGUMENT, {"memory is NULL"}));
  EXPECT_TRUE(refused(tandem_memory_register(at, 0), TANDEM_ERROR_INVALID_ARGUMENT, {"bytes is 0"}));
  EXPECT_TRUE(
      refused(tandem_memory_register(at, SIZE_MAX), TANDEM_ERROR_TOO_LARGE, {std::to_string(SIZE_MAX), hex(at)}));
  EXPECT_TRUE(refused(tandem_memory_unregister(nullptr), TANDEM_ERROR_INVALID_ARGUMENT, {"memory is NULL"}));
  EXPECT_TRUE(refused(tandem_memory_unregister(at), TANDEM_ERROR_INVALID_ARGUMENT, {"no registered memory", hex(at)}));

  ASSERT_EQ(tandem_memory_register(at, 500), TANDEM_OK);
  EXPECT_TRUE(
      refused(tandem_memory_register(at, 500), TANDEM_ERROR_INVALID_ARGUMENT, {"500", hex(at), "registered already"}));
  const struct {
    std::ptrdiff_t begin;
    std::size_t bytes;
  } overlapping[] = {{0, 499}, {0, 501}, {-1, 2}, {499, 1}, {499, 2}, {100, 50}, {-1, 502}, {-1000, 10'000}};
  for (const auto &each : overlapping) {
    EXPECT_TRUE(refused(tandem_memory_register(at + each.begin, each.bytes), TANDEM_ERROR_OVERLAP,
                        {std::to_string(each.bytes) + " bytes", hex(at + each.begin), "500", hex(at)}));
  }
  EXPECT_TRUE(refused(tandem_memory_unregister(at + 1), TANDEM_ERROR_INVALID_ARGUMENT, {hex(at + 1)}));
  // Neighbours do not overlap.
  ASSERT_EQ(tandem_memory_register(at - 10, 10), TANDEM_OK);
  ASSERT_EQ(tandem_memory_register(at + 500, 1), TANDEM_OK);
  for (std::uint8_t *const each : {at - 10, at, at + 500}) EXPECT_EQ(tandem_memory_unregister(each), TANDEM_OK);
  EXPECT_TRUE(refused(tandem_memory_unregister(at), TANDEM_ERROR_INVALID_ARGUMENT, {"no registered memory"}));
  EXPECT_FALSE(core::is_any_memory_registered());
}

TEST(RegisteredMemory, IsAskedForByRange) {
  std::vector<std::uint8_t> memory(1000);
  std::uint8_t *const at = memory.data() + 100;
  EXPECT_FALSE(core::is_registered(at, 1));
  core::register_memory(at, 100);
  core::register_memory(at + 100, 100);
  EXPECT_TRUE(core::is_registered(at, 100));
  EXPECT_TRUE(core::is_registered(at + 99, 1));
  EXPECT_TRUE(core::is_registered(at + 150, 50));
  EXPECT_FALSE(core::is_registered(at - 1, 2));
  EXPECT_FALSE(core::is_registered(at + 50, 100)) << "two ranges";
  EXPECT_FALSE(core::is_registered(at + 199, 2));
  EXPECT_FALSE(core::is_registered(at, SIZE_MAX));
  core::unregister_memory(at);
  EXPECT_FALSE(core::is_registered(at, 100));
  core::unregister_memory(at + 100);
}

// Pins are made once for each driver, one that was refused too, and end with the registration.
TEST(RegisteredMemory, PinsEndWithTheRegistration) {
  std::vector<std::uint8_t> memory(1000);
  int first_driver = 0, second_driver = 0;
  unsigned made = 0, refused_count = 0;
  std::weak_ptr<const void> pin;
  const auto make = [&](void *begin, std::uint64_t bytes) {
    EXPECT_EQ(begin, memory.data());
    EXPECT_EQ(bytes, 1000u);
    EXPECT_TRUE(refused(tandem_memory_unregister(begin), TANDEM_ERROR_INVALID_ARGUMENT, {"1 run uses"}));
    ++made;
    const auto strong = std::make_shared<const int>(1);
    pin = strong;
    return strong;
  };
  const auto refuse = [&](void *, std::uint64_t) {
    ++refused_count;
    return nullptr;
  };
  core::pin_registered(memory.data(), 10, &first_driver, make);
  EXPECT_EQ(made, 0u) << "it is not registered";
  core::register_memory(memory.data(), 1000);
  for (unsigned i = 0; i < 3; ++i) {
    core::pin_registered(memory.data() + 7, 10, &first_driver, make);
    core::pin_registered(memory.data() + 7, 10, &second_driver, refuse);
  }
  core::pin_registered(memory.data() + 7, 994, &first_driver, make);  // not all of it
  EXPECT_EQ(made, 1u);
  EXPECT_EQ(refused_count, 1u);
  EXPECT_FALSE(pin.expired());
  core::unregister_memory(memory.data());
  EXPECT_TRUE(pin.expired());
}

// Tries to unregister in the middle of a run.
class Probe final : public core::Backend {
 public:
  explicit Probe(std::unique_ptr<core::Backend> inner) : inner_(std::move(inner)) {}
  const core::Traits &traits() const noexcept override { return inner_->traits(); }
  std::shared_ptr<const core::Prepared> prepare(const core::Operator &what) override { return inner_->prepare(what); }
  void run(std::span<const core::Task> tasks, core::Control &control) override {
    ++run_count;
    if (!refused(tandem_memory_unregister(registered), TANDEM_ERROR_INVALID_ARGUMENT, {"1 run uses", hex(registered)}))
      ++failures;
    inner_->run(tasks, control);
  }
  void *registered = nullptr;
  std::atomic<unsigned> run_count{0}, failures{0};

 private:
  std::unique_ptr<core::Backend> inner_;
};

TEST(RegisteredMemory, IsNotUnregisteredWhileARunUsesIt) {
  constexpr unsigned kK = 4, kM = 2;
  constexpr std::size_t kBytes = 3000;
  const Context context = make_context();
  const Codec codec = make_codec(codec_options(kK, kM));
  auto owner = std::make_unique<Probe>(std::move(context->backend));
  Probe &probe = *owner;
  context->backend = std::move(owner);
  Random random(3);
  Stripe stripe(random, kK, kM, kBytes);

  auto result = sized<tandem_verify_result>();
  Bytes all_but_one(kK + kM, 1);
  all_but_one[kK + 1] = 0;

  // Bytes in the middle of the last parity: a run holds what its shards touch.
  probe.registered = static_cast<std::byte *>(stripe.all()[kK + 1]) + 1234;
  for (const std::int32_t operation : {TANDEM_OPERATION_ENCODE, TANDEM_OPERATION_DECODE, TANDEM_OPERATION_VERIFY,
                                       TANDEM_OPERATION_UPDATE, TANDEM_OPERATION_ACCUMULATE}) {
    for (const Way way : {Way::plain, Way::plan, Way::stripes, Way::scattered}) {
      if (!has_way(operation, way)) continue;
      SCOPED_TRACE(name_of(operation, way));
      Call call{context.get(), codec.get(), operation, kBytes, stripe.pointers, {}};
      if (operation == TANDEM_OPERATION_DECODE) call.present = all_but_one;
      call.new_data = stripe.pointers[1];
      call.result = operation == TANDEM_OPERATION_VERIFY ? &result : nullptr;
      call.k = kK;
      probe.run_count = 0;
      ASSERT_EQ(tandem_memory_register(probe.registered, 1), TANDEM_OK) << tandem_last_error_message();
      EXPECT_EQ(perform(way, call), TANDEM_OK) << tandem_last_error_message();
      EXPECT_GE(probe.run_count, 1u);
      EXPECT_EQ(probe.failures, 0u);
      EXPECT_EQ(tandem_memory_unregister(probe.registered), TANDEM_OK) << tandem_last_error_message();
    }
  }

  // A job counts as a user until it was waited for. Two jobs are counted. Both only read, for they share all shards.
  ASSERT_EQ(tandem_memory_register(probe.registered, 1), TANDEM_OK);
  void *const registered = std::exchange(probe.registered, nullptr);  // the job's thread asks for nothing
  const Plan plan = make_plan(context.get(), codec.get(), TANDEM_OPERATION_VERIFY);
  tandem_verify_result results[] = {sized<tandem_verify_result>(), sized<tandem_verify_result>()};
  std::vector<Job> jobs;
  for (unsigned i = 0; i < 2; ++i) {
    auto arguments = stripe.arguments();
    arguments.verify_result = &results[i];
    jobs.push_back(submit(plan, arguments));
    if (i != 0) continue;
    EXPECT_TRUE(refused(tandem_memory_unregister(registered), TANDEM_ERROR_INVALID_ARGUMENT, {"1 run uses"}));
  }
  EXPECT_TRUE(refused(tandem_memory_unregister(registered), TANDEM_ERROR_INVALID_ARGUMENT, {"2 runs use"}));
  EXPECT_EQ(tandem_job_wait(jobs[0].get()), TANDEM_OK);
  EXPECT_TRUE(refused(tandem_memory_unregister(registered), TANDEM_ERROR_INVALID_ARGUMENT, {"1 run uses"}));
  jobs.clear();
  EXPECT_EQ(tandem_memory_unregister(registered), TANDEM_OK);
}

TEST(RegisteredMemory, PinnedShardsAreRegisteredUntilTheyAreFreed) {
  void *shards[6] = {};
  for (const std::uint32_t flags : {2u, 3u, 0x80000000u}) {
    EXPECT_TRUE(refused(tandem_shards_allocate(6, 1000, flags, shards), TANDEM_ERROR_UNSUPPORTED,
                        {"flags is 0x", "TANDEM_SHARDS_PINNED"}));
  }
  EXPECT_TRUE(
      refused(tandem_shards_allocate(0, 1, TANDEM_SHARDS_PINNED, shards), TANDEM_ERROR_INVALID_ARGUMENT, {"0"}));
  EXPECT_TRUE(refused(tandem_shards_allocate(SIZE_MAX, 64, TANDEM_SHARDS_PINNED, shards), TANDEM_ERROR_TOO_LARGE,
                      {std::to_string(SIZE_MAX)}));
  EXPECT_FALSE(core::is_any_memory_registered());
  ASSERT_EQ(tandem_shards_allocate(6, 1000, 0, shards), TANDEM_OK);
  EXPECT_FALSE(core::is_registered(shards[0], 1000));
  tandem_shards_free(shards[0]);
  for (const bool by_hand : {false, true}) {
    ASSERT_EQ(tandem_shards_allocate(6, 1000, TANDEM_SHARDS_PINNED, shards), TANDEM_OK);
    for (void *const shard : shards) EXPECT_TRUE(core::is_registered(shard, 1000));
    EXPECT_TRUE(refused(tandem_memory_register(shards[2], 10), TANDEM_ERROR_OVERLAP, {hex(shards[0]), hex(shards[2])}));
    if (by_hand) {
      EXPECT_EQ(tandem_memory_unregister(shards[0]), TANDEM_OK);
    }
    tandem_shards_free(shards[0]);
    EXPECT_FALSE(core::is_any_memory_registered());
  }
  // What a run uses is neither unregistered nor freed.
  ASSERT_EQ(tandem_shards_allocate(3, 1000, TANDEM_SHARDS_PINNED, shards), TANDEM_OK);
  const core::Prepared prepared((core::Operator(core::Matrix(1, 2))));
  const std::byte *inputs[] = {static_cast<std::byte *>(shards[0]), static_cast<std::byte *>(shards[1])};
  std::byte *output = static_cast<std::byte *>(shards[2]);
  const core::Task task = {&prepared, inputs, &output, 0, 1000, core::Mode::assign};
  {
    const core::MemoryHold hold({&task, 1});
    tandem_shards_free(shards[0]);
    EXPECT_TRUE(core::is_registered(shards[0], 1000));
    EXPECT_NE(std::string(tandem_last_error_message()).find("1 run uses"), std::string::npos);
    static_cast<std::byte *>(shards[2])[999] = std::byte{1};
  }
  tandem_shards_free(shards[0]);
  EXPECT_FALSE(core::is_any_memory_registered());
}

// Each thread has ranges of its own between those of the others, and one that all hold.
TEST(RegisteredMemory, ManyThreads) {
  constexpr unsigned kThreads = 4, kRounds = 300;
  std::vector<std::uint8_t> memory(kThreads * 100 + 100);
  std::uint8_t *const shared = memory.data() + kThreads * 100;
  core::register_memory(shared, 100);
  std::atomic<unsigned> wrong{0}, pins{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, own = memory.data() + t * 100] {
      const core::Prepared prepared((core::Operator(core::Matrix(1, 1))));
      const std::byte *input = reinterpret_cast<const std::byte *>(shared);
      std::byte *output = reinterpret_cast<std::byte *>(own);
      const core::Task task = {&prepared, &input, &output, 0, 100, core::Mode::assign};
      for (unsigned i = 0; i < kRounds; ++i) {
        wrong += tandem_memory_register(own, 100) != TANDEM_OK;
        {
          const core::MemoryHold hold({&task, 1});
          wrong += tandem_memory_unregister(own) != TANDEM_ERROR_INVALID_ARGUMENT;
          wrong += tandem_memory_unregister(shared) != TANDEM_ERROR_INVALID_ARGUMENT;
          core::pin_registered(shared, 100, &pins, [&](void *, std::uint64_t) {
            ++pins;
            return nullptr;
          });
        }
        wrong += tandem_memory_unregister(own) != TANDEM_OK;
        wrong += core::is_registered(own, 100);
      }
    });
  }
  for (std::thread &each : threads) each.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(pins, 1u);
  core::unregister_memory(shared);
  EXPECT_FALSE(core::is_any_memory_registered());
}

// A child sees no registration of its parent's, may make its own, and the parent's stays.
TEST(RegisteredMemory, NothingSurvivesAFork) {
  std::vector<std::uint8_t> memory(1000);
  void *shards[3] = {};
  ASSERT_EQ(tandem_memory_register(memory.data(), 1000), TANDEM_OK);
  ASSERT_EQ(tandem_shards_allocate(3, 1000, TANDEM_SHARDS_PINNED, shards), TANDEM_OK);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    int step = 0, wrong = 0;
    const auto expect = [&](bool good) {
      ++step;
      if (!good && wrong == 0) wrong = step;
    };
    expect(!core::is_registered(memory.data(), 1000));
    expect(bool(refused(tandem_memory_unregister(memory.data()), TANDEM_ERROR_INVALID_ARGUMENT,
                        {hex(memory.data()), "registrations do not survive a fork"})));
    const core::Prepared prepared((core::Operator(core::Matrix(1, 1))));
    const std::byte *input = reinterpret_cast<std::byte *>(memory.data());
    std::byte *output = reinterpret_cast<std::byte *>(memory.data()) + 500;
    const core::Task task = {&prepared, &input, &output, 0, 500, core::Mode::assign};
    const core::MemoryHold hold({&task, 1});
    expect(tandem_memory_register(memory.data(), 1000) == TANDEM_OK);
    expect(tandem_memory_unregister(memory.data()) == TANDEM_OK);  // the hold is on nothing
    tandem_shards_free(shards[0]);
    _exit(wrong);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the step that went wrong";
  EXPECT_TRUE(core::is_registered(memory.data(), 1000));
  EXPECT_EQ(tandem_memory_unregister(memory.data()), TANDEM_OK);
  tandem_shards_free(shards[0]);
  EXPECT_FALSE(core::is_any_memory_registered());
}

}  // namespace
}  // namespace tandem::test
