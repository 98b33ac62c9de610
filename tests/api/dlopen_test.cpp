// SPDX-License-Identifier: Apache-2.0
// Runs a thousand cycles of dlopen, encode with threads, dlclose. Afterwards there must be no more threads, open files
// or memory than a bound allows. Does not link libtandem.
#include <dirent.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/api.hpp"

namespace tandem::test {
namespace {

// `Name:   123 kB` of /proc/self/status.
unsigned long status_field(const char *name) {
  std::FILE *file = std::fopen("/proc/self/status", "r");
  unsigned long value = 0;
  char line[256];
  while (std::fgets(line, sizeof line, file) != nullptr)
    if (std::strncmp(line, name, std::strlen(name)) == 0)
      value = std::strtoul(line + std::strlen(name) + 1, nullptr, 10);
  std::fclose(file);
  return value;
}

unsigned open_file_count() {
  DIR *folder = opendir("/proc/self/fd");
  unsigned count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

class Library {
 public:
  explicit Library(int flags = RTLD_NOW | RTLD_LOCAL) : handle_(dlopen(TANDEM_TEST_LIBRARY, flags)) {
    EXPECT_NE(handle_, nullptr) << dlerror();
  }
  ~Library() { EXPECT_EQ(dlclose(handle_), 0) << dlerror(); }
  Library(const Library &) = delete;
  Library &operator=(const Library &) = delete;

  template <class Function>
  Function *get(Function *, const char *name) const {
    void *symbol = dlsym(handle_, name);
    EXPECT_NE(symbol, nullptr) << name;
    return reinterpret_cast<Function *>(symbol);
  }

 private:
  void *handle_;
};
#define TANDEM_GET(library, name) (library).get(static_cast<decltype(name) *>(nullptr), #name)

constexpr unsigned kK = 4, kM = 2;
constexpr std::size_t kBytes = 500'000;  // 3 MB in all: several chunks, so that the threads are used

tandem_context *make_context(const Library &library, const std::string &executor) {
  auto options = sized<tandem_context_options>();
  const std::string expert = "executor=" + executor;
  options.expert = expert.c_str();
  options.thread_count = 3;
  tandem_context *context = nullptr;
  return TANDEM_GET(library, tandem_context_create)(&options, &context) == TANDEM_OK ? context : nullptr;
}

void expect_encodes(const Library &library, tandem_context *context, Stripe &stripe) {
  const tandem_codec_options options = codec_options(kK, kM);
  tandem_codec *codec = nullptr;
  ASSERT_EQ(TANDEM_GET(library, tandem_codec_create)(&options, &codec), TANDEM_OK);
  stripe.lose_parity();
  ASSERT_EQ(TANDEM_GET(library, tandem_encode)(context, codec, stripe.data(), stripe.parity(), kBytes), TANDEM_OK);
  ASSERT_TRUE(stripe.intact());
  TANDEM_GET(library, tandem_codec_destroy)(codec);
}

// The kernel may count a thread for a moment after it was joined.
unsigned long thread_count(unsigned long expected) {
  for (unsigned tries = 0; tries < 1000 && status_field("Threads:") != expected; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return status_field("Threads:");
}

void cycles(const std::string &executor, unsigned count) {
  Random random(1);
  Stripe stripe(random, kK, kM, kBytes);
  {
    const Library library;
    tandem_context *probe = make_context(library, executor);
    if (probe == nullptr) GTEST_SKIP() << "NOT RUN: executor " << executor << " is missing";
    TANDEM_GET(library, tandem_context_destroy)(probe);
  }
  const unsigned long threads_before = status_field("Threads:");
  unsigned long threads = 0;
  [[maybe_unused]] unsigned long kilobytes = 0;  // sanitizers keep freed memory: not looked at there
  unsigned files = 0;
  for (unsigned i = 0; i < count; ++i) {
    {
      const Library library(i % 2 == 0 ? RTLD_NOW | RTLD_LOCAL : RTLD_LAZY | RTLD_GLOBAL);
      tandem_context *context = make_context(library, executor);
      ASSERT_NE(context, nullptr);
      expect_encodes(library, context, stripe);
      TANDEM_GET(library, tandem_context_destroy)(context);
      if (testing::Test::HasFatalFailure()) return;
    }
    if (i != count / 5) continue;  // by then everything that is made once is there
    threads = thread_count(threads_before);
    kilobytes = status_field("VmRSS:");
    files = open_file_count();
  }
  EXPECT_EQ(thread_count(threads), threads);
  EXPECT_EQ(open_file_count(), files);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they keep freed memory
  EXPECT_LE(status_field("VmRSS:"), kilobytes + 4096) << "more than 4 MiB in " << count * 4 / 5 << " cycles";
#endif
  if (executor == "pthread") {
    EXPECT_EQ(threads, threads_before);
  }
}

TEST(Dlopen, ThousandCyclesPthread) { cycles("pthread", 1000); }
#if !defined(TANDEM_TEST_WITHOUT_OPENMP)
TEST(Dlopen, CyclesOpenmp) { cycles("openmp", 200); }
#endif

// Closed while a context with running threads is alive: the code stays, and the context works when it is opened again.
TEST(Dlopen, ThreadsOutliveDlclose) {
  Random random(1);
  Stripe stripe(random, kK, kM, kBytes);
  const unsigned long threads = status_field("Threads:");
  tandem_context *context = nullptr;
  {
    const Library library;
    context = make_context(library, "pthread");
    ASSERT_NE(context, nullptr);
    expect_encodes(library, context, stripe);
  }
  EXPECT_EQ(status_field("Threads:"), threads + 2);
  const Library library;
  expect_encodes(library, context, stripe);
  TANDEM_GET(library, tandem_context_destroy)(context);
  EXPECT_EQ(status_field("Threads:"), threads);
}

}  // namespace
}  // namespace tandem::test
