// SPDX-License-Identifier: Apache-2.0
// Contexts: what they decide, the environment, resources, the log; and the small functions: version, names, messages.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "tandem/tools.h"
#include "tests/support/api.hpp"

namespace tandem::test {
namespace {

tandem_context_info query(const tandem_context *context) {
  auto info = sized<tandem_context_info>();
  EXPECT_EQ(tandem_context_query(context, &info), TANDEM_OK);
  return info;
}

// One stripe through the context, large enough for its threads.
void expect_works(tandem_context *context) {
  Random random(8);
  Stripe stripe(random, 5, 3, 300'001);
  stripe.lose_parity();
  ASSERT_EQ(tandem_encode(context, make_codec(5, 3).get(), stripe.data(), stripe.parity(), stripe.shard_bytes()),
            TANDEM_OK)
      << tandem_last_error_message();
  ASSERT_TRUE(stripe.intact());
}

unsigned thread_count_of_process() {
  std::FILE *status = std::fopen("/proc/self/status", "r");
  unsigned count = 0;
  char line[256];
  while (std::fgets(line, sizeof line, status) != nullptr)
    if (std::sscanf(line, "Threads: %u", &count) == 1) break;
  std::fclose(status);
  return count;
}

class Variable {
 public:
  Variable(const char *name, const char *value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable &) = delete;
  Variable &operator=(const Variable &) = delete;

 private:
  const char *name_;
};

TEST(Context, DefaultsWork) {
  tandem_context *raw = nullptr;
  ASSERT_EQ(tandem_context_create(nullptr, &raw), TANDEM_OK) << tandem_last_error_message();
  const Context context(raw);
  const tandem_context_info info = query(raw);
  EXPECT_STREQ(info.backend, "cpu");
  EXPECT_STRNE(info.kernel, "");
  EXPECT_GE(info.thread_count, 1u);
  EXPECT_STREQ(info.executor, info.thread_count == 1 ? "serial" : "pthread");
  EXPECT_EQ(info.kernel_calls, 0u);
  expect_works(raw);
  EXPECT_GT(query(raw).kernel_calls, 0u);
}

TEST(Context, ForcedChoices) {
  for (const std::string &executor : executors()) {
    tandem_context_options options = context_options(executor, 3);
    std::string kernel = "scalar", backend = "cpu";
    options.kernel = kernel.c_str();
    options.backend = backend.c_str();
    const std::string expert = "executor=" + executor + (executor == "pthread" ? ",pin=1" : "");
    options.expert = expert.c_str();
    const Context context = make_context(options);
    kernel = backend = "gone";  // the strings were copied
    const tandem_context_info info = query(context.get());
    EXPECT_STREQ(info.kernel, "scalar");
    EXPECT_STREQ(info.backend, "cpu");
    EXPECT_EQ(info.thread_count, executor == "serial" ? 1u : 3u);
    EXPECT_EQ(info.caller_count, info.thread_count);
    expect_works(context.get());
  }
}

// A device is not touched: these say how to call it. One call in hand is not enough to keep it busy.
TEST(Context, CallersOfADevice) {
  tandem_context_options options = context_options("", 0);
  options.backend = "opencl";
  const tandem_context_info info = query(make_context(options).get());
  EXPECT_EQ(info.thread_count, 0u);
  EXPECT_GE(info.caller_count, 3u);  // a core, and two calls
}

TEST(Context, SmallCallsStartNoThread) {
  const unsigned before = thread_count_of_process();
  const Context context = make_context("pthread", 4);
  EXPECT_EQ(thread_count_of_process(), before);
  constexpr std::uint64_t kBytes = 256 << 10;  // as tandem_context_create says
  Random random(9);
  Stripe stripe(random, 2, 1, kBytes / 3 + 1);
  const Codec codec = make_codec(2, 1);
  const auto encode = [&](std::uint64_t shard_bytes) {
    ASSERT_EQ(tandem_encode(context.get(), codec.get(), stripe.data(), stripe.parity(), shard_bytes), TANDEM_OK);
  };
  encode((kBytes - 1) / 3);
  EXPECT_EQ(thread_count_of_process(), before) << "a small call started a thread";
  encode(kBytes / 3 + 1);
  EXPECT_EQ(thread_count_of_process(), before + 3);
}

TEST(Context, Environment) {
  {
    const Variable kernel("TANDEM_KERNEL", "scalar"), threads("TANDEM_THREADS", "2"),
        expert("TANDEM_EXPERT", "executor=serial"), backend("TANDEM_BACKEND", "cpu"),
        resources("TANDEM_RESOURCES", "cpu=1");
    tandem_context *raw = nullptr;
    ASSERT_EQ(tandem_context_create(nullptr, &raw), TANDEM_OK) << tandem_last_error_message();
    const Context context(raw);
    EXPECT_STREQ(query(raw).kernel, "scalar");
    EXPECT_STREQ(query(raw).executor, "serial");
    expect_works(raw);
    // What the caller says goes before the environment.
    tandem_context_options options = context_options("pthread", 3);
    EXPECT_STREQ(query(make_context(options).get()).executor, "pthread");
    EXPECT_EQ(query(make_context(options).get()).thread_count, 3u);
  }
  {
    const Variable threads("TANDEM_THREADS", "5"), expert("TANDEM_EXPERT", "executor=pthread,pin=1");
    tandem_context *raw = nullptr;
    ASSERT_EQ(tandem_context_create(nullptr, &raw), TANDEM_OK);
    EXPECT_EQ(query(raw).thread_count, 5u);
    expect_works(raw);
    tandem_context_destroy(raw);
  }
  for (const char *executor : {"executor=serial", "executor=openmp"}) {  // an option without effect
    const Variable expert("TANDEM_EXPERT", executor);
    tandem_context_options options = context_options("", 3);
    options.expert = "pin=1";
    tandem_context *raw = nullptr;
    EXPECT_TRUE(refused(tandem_context_create(&options, &raw), TANDEM_ERROR_INVALID_ARGUMENT,
                        {"pin=1", "executor is not pthread"}));
  }
  const auto refuses = [](const char *name, const char *value, tandem_status status) {
    const Variable variable(name, value);
    tandem_context *raw = nullptr;
    const char *number = std::strrchr(value, '=');
    EXPECT_TRUE(refused(tandem_context_create(nullptr, &raw), status, {number != nullptr ? number + 1 : value}))
        << name;
    EXPECT_EQ(raw, nullptr);
  };
  refuses("TANDEM_KERNEL", "avx1024", TANDEM_ERROR_UNAVAILABLE);
  refuses("TANDEM_BACKEND", "abacus", TANDEM_ERROR_UNAVAILABLE);
  refuses("TANDEM_EXPERT", "executor=fibers", TANDEM_ERROR_INVALID_ARGUMENT);
  refuses("TANDEM_THREADS", "many", TANDEM_ERROR_INVALID_ARGUMENT);
  refuses("TANDEM_EXPERT", "pin=yes", TANDEM_ERROR_INVALID_ARGUMENT);
  refuses("TANDEM_CHECK_DEVICES", "some", TANDEM_ERROR_INVALID_ARGUMENT);
  refuses("TANDEM_THREADS", "2x", TANDEM_ERROR_INVALID_ARGUMENT);
  refuses("TANDEM_THREADS", "-1", TANDEM_ERROR_INVALID_ARGUMENT);
  refuses("TANDEM_THREADS", "99999999999", TANDEM_ERROR_INVALID_ARGUMENT);
  refuses("TANDEM_RESOURCES", "cpu=0", TANDEM_ERROR_INVALID_ARGUMENT);
}

// The amount may change while others code.
TEST(Context, ResourceChangesWhileRunning) {
  const Context context = make_context("pthread", 4);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      for (unsigned i = 0; i < 8; ++i) expect_works(context.get());
    });
  for (unsigned i = 0; i < 200; ++i) {
    ASSERT_EQ(tandem_context_set_resource(context.get(), "cpu", 1 + i % 4), TANDEM_OK);
    std::this_thread::yield();
  }
  for (std::thread &thread : threads) thread.join();
}

struct Log {
  std::mutex mutex;
  std::vector<std::pair<int32_t, std::string>> lines;
};

void hear(void *user, int32_t level, const char *message) {
  auto *log = static_cast<Log *>(user);
  const std::lock_guard lock(log->mutex);
  log->lines.emplace_back(level, message);
}

TEST(Context, LogSaysWhatWasChosen) {
  Log log;
  tandem_context_options options = context_options("pthread", 2);
  options.kernel = "scalar";
  options.log_callback = hear;
  options.log_user = &log;
  options.log_level = TANDEM_LOG_DEBUG;
  expect_works(make_context(options).get());
  ASSERT_FALSE(log.lines.empty());
  std::string all;
  for (const auto &[level, line] : log.lines) {
    EXPECT_GE(level, TANDEM_LOG_DEBUG);
    EXPECT_LE(level, TANDEM_LOG_WARNING);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    all += line + "\n";
  }
  EXPECT_NE(all.find("scalar"), std::string::npos) << all;
  EXPECT_NE(all.find("pthread"), std::string::npos) << all;
  log.lines.clear();
  options.log_level = TANDEM_LOG_WARNING;
  expect_works(make_context(options).get());
  for (const auto &[level, line] : log.lines) EXPECT_GE(level, TANDEM_LOG_WARNING) << line;
}

TEST(Context, OlderCallersInfoIsEnough) {
  const Context context = make_context();
  tandem_context_info info;
  std::memset(&info, 0x5a, sizeof info);
  info.struct_bytes = offsetof(tandem_context_info, executor);
  ASSERT_EQ(tandem_context_query(context.get(), &info), TANDEM_OK);
  EXPECT_STREQ(info.backend, "cpu");
  EXPECT_EQ(info.thread_count, 0x5a5a5a5au);
}

TEST(Names, Version) {
  EXPECT_EQ(std::string(tandem_version_string()), std::to_string(TANDEM_VERSION_MAJOR) + "." +
                                                      std::to_string(TANDEM_VERSION_MINOR) + "." +
                                                      std::to_string(TANDEM_VERSION_PATCH));
}

TEST(Names, Status) {
  EXPECT_STREQ(tandem_status_name(TANDEM_OK), "TANDEM_OK");
  EXPECT_STREQ(tandem_status_name(TANDEM_ERROR_OVERLAP), "TANDEM_ERROR_OVERLAP");
  EXPECT_STREQ(tandem_status_name(14), "TANDEM_STATUS_UNKNOWN");
  EXPECT_STREQ(tandem_status_name(-1), "TANDEM_STATUS_UNKNOWN");
  for (tandem_status a = 0; a <= TANDEM_ERROR_INTERNAL; ++a) {
    EXPECT_STRNE(tandem_status_name(a), "TANDEM_STATUS_UNKNOWN") << a;
    for (tandem_status b = 0; b < a; ++b) EXPECT_STRNE(tandem_status_name(a), tandem_status_name(b));
  }
}

TEST(Names, Matrices) {
  unsigned count = 0;
  for (int32_t matrix = 0; matrix < 100; ++matrix) {
    const char *name = tandem_matrix_name(matrix);
    if (name == nullptr) continue;
    ++count;
    int32_t back = -1;
    ASSERT_EQ(tandem_matrix_from_name(name, &back), TANDEM_OK) << name;
    EXPECT_EQ(back, matrix);
  }
  EXPECT_EQ(count, 20u);
  EXPECT_STREQ(tandem_matrix_name(TANDEM_MATRIX_ISAL_CAUCHY), "isal-cauchy");
  EXPECT_STREQ(tandem_matrix_name(TANDEM_MATRIX_CUSTOM), "custom");
  EXPECT_EQ(tandem_matrix_name(20), nullptr);
  EXPECT_EQ(tandem_matrix_name(-5), nullptr);
}

// Each thread has its own last message; success leaves it alone.
TEST(Names, LastErrorBelongsToTheThread) {
  tandem_codec *codec = nullptr;
  const tandem_codec_options options = codec_options(300, 1);
  ASSERT_NE(tandem_codec_create(&options, &codec), TANDEM_OK);
  const std::string mine = tandem_last_error_message();
  EXPECT_NE(mine.find("300"), std::string::npos);
  std::thread([] {
    EXPECT_STREQ(tandem_last_error_message(), "");
    tandem_codec *other = nullptr;
    const tandem_codec_options bad = codec_options(999, 1);
    EXPECT_NE(tandem_codec_create(&bad, &other), TANDEM_OK);
  }).join();
  EXPECT_EQ(make_codec(3, 2).get() == nullptr, false);
  EXPECT_EQ(mine, tandem_last_error_message());
}

// A program's own objects may code while the thread, or the process, is going down.
struct AtThreadEnd {
  tandem_context *context = nullptr;
  ~AtThreadEnd() {
    if (context != nullptr) expect_works(context);
  }
};

// NULL stands for one context of the process, whichever call comes first.
TEST(ProcessContext, TakesEveryCall) {
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) threads.emplace_back([] { expect_works(nullptr); });
  for (std::thread &thread : threads) thread.join();
  Random random(9);
  Stripe stripe(random, 5, 3, 3000);
  const Codec codec = make_codec(5, 3);
  stripe.lose(1);
  ASSERT_EQ(tandem_decode(nullptr, codec.get(), stripe.all(), stripe.present.data(), 3000), TANDEM_OK);
  ASSERT_TRUE(stripe.intact());
  auto result = sized<tandem_verify_result>();
  ASSERT_EQ(tandem_verify(nullptr, codec.get(), stripe.data(), 3000, &result), TANDEM_OK);
  EXPECT_EQ(result.consistent, 1);
  ASSERT_EQ(tandem_update(nullptr, codec.get(), 0, stripe.pointers[0], stripe.pointers[0], stripe.parity(), 3000),
            TANDEM_OK);
  for (unsigned i = 0; i < 5; ++i)
    ASSERT_EQ(tandem_accumulate(nullptr, codec.get(), i, stripe.pointers[i], stripe.parity(), 3000, i == 0), TANDEM_OK);
  ASSERT_TRUE(stripe.intact());
  const Plan plan = make_plan(nullptr, codec.get(), TANDEM_OPERATION_ENCODE);
  ASSERT_NE(plan, nullptr);

  const std::uint64_t calls = query(nullptr).kernel_calls;
  EXPECT_GE(calls, 10u);
  ASSERT_EQ(tandem_context_set_resource(nullptr, "app.widgets", 2), TANDEM_OK);
  EXPECT_NE(std::string(query(nullptr).resources).find("cpu"), std::string::npos);
  tandem_context_destroy(nullptr);
  expect_works(nullptr);
  EXPECT_GT(query(nullptr).kernel_calls, calls);
}

// What cannot make a context cannot make the process's own, and the next call tries again.
TEST(ProcessContext, FailsAsCreateDoes) {
  const auto child = [] {
    setenv("TANDEM_BACKEND", "toaster", 1);
    Random random(8);
    Stripe stripe(random, 5, 3, 100);
    const Codec codec = make_codec(5, 3);
    const tandem_status status = tandem_encode(nullptr, codec.get(), stripe.data(), stripe.parity(), 100);
    const bool is_named = std::string(tandem_last_error_message()).find("toaster") != std::string::npos;
    unsetenv("TANDEM_BACKEND");
    setenv("TANDEM_TIMELINE", "/nonexistent/trace.json", 1);  // which it would write when it is destroyed
    const bool works = tandem_encode(nullptr, codec.get(), stripe.data(), stripe.parity(), 100) == TANDEM_OK;
    std::_Exit(status == TANDEM_ERROR_UNAVAILABLE && is_named && works ? 0 : 1);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process of its own, where no test has made the context
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}

TEST(Context, UsableWhileAThreadEnds) {
  const Context context = make_context();
  std::thread([&] {
    thread_local AtThreadEnd late;  // made before the library's own, so it ends after them
    late.context = context.get();
    expect_works(context.get());
  }).join();
}

}  // namespace
}  // namespace tandem::test
