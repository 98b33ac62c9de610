// SPDX-License-Identifier: Apache-2.0
#include "bench/studies/contenders.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "bench/studies/spans.hpp"

namespace tandem::studies {
namespace {

constexpr std::size_t kLineBytes = 64;

double seconds_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

}  // namespace

Arguments::Arguments(int count, char **words) {
  for (int i = 1; i < count; i += 2) {
    const std::string name = words[i];
    if (!name.starts_with("--") || i + 1 == count) throw std::runtime_error(name + ": write --name value");
    values_[name.substr(2)] = words[i + 1];
  }
}

std::string Arguments::text(const std::string &name, const std::string &fallback) {
  asked_.insert(name);
  const auto found = values_.find(name);
  return found == values_.end() ? fallback : found->second;
}

std::uint64_t Arguments::number(const std::string &name, std::uint64_t fallback) {
  const std::string written = text(name, std::to_string(fallback));
  std::uint64_t value = 0;
  const char *const end = written.data() + written.size();
  const auto [stopped, error] = std::from_chars(written.data(), end, value);
  if (error != std::errc() || stopped != end) throw std::runtime_error("--" + name + " " + written + " is no number");
  return value;
}

void Arguments::done() const {
  for (const auto &[name, value] : values_) {
    if (!asked_.contains(name)) throw std::runtime_error("no flag is called --" + name);
  }
}

double wall_seconds() { return seconds_of(CLOCK_MONOTONIC); }
double process_seconds() { return seconds_of(CLOCK_PROCESS_CPUTIME_ID); }
double thread_seconds() { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }

void check(tandem_status status) {
  if (status == TANDEM_ERROR_UNAVAILABLE) throw NotMeasured(tandem_last_error_message());
  if (status != TANDEM_OK) throw std::runtime_error(tandem_last_error_message());
}

ContextOwner make_context(const std::string &executor, unsigned thread_count) {
  const std::string expert = "executor=" + executor;
  tandem_context_options options{};
  options.struct_bytes = sizeof options;
  options.backend = "cpu";
  options.thread_count = thread_count;
  options.expert = expert.c_str();
  options.tuning_file = "";
  options.timeline_file = "";
  tandem_context *context = nullptr;
  check(tandem_context_create(&options, &context));
  return ContextOwner(context);
}

CodecOwner make_codec(unsigned k, unsigned m, std::int32_t matrix) {
  tandem_codec_options options{};
  options.struct_bytes = sizeof options;
  options.k = k;
  options.m = m;
  options.matrix = matrix;
  tandem_codec *codec = nullptr;
  check(tandem_codec_create(&options, &codec));
  return CodecOwner(codec);
}

void fill_random(void *memory, std::size_t bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  auto *out = static_cast<std::uint8_t *>(memory);
  for (std::size_t i = 0; i < bytes; i += sizeof(std::uint64_t)) {
    const std::uint64_t value = random();
    std::memcpy(out + i, &value, std::min(sizeof value, bytes - i));
  }
}

Shards::Shards(std::size_t count, std::size_t shard_bytes)
    : shard_bytes_(shard_bytes), memory_(count * shard_bytes + kLineBytes), pointers_(count) {
  const std::size_t past = reinterpret_cast<std::uintptr_t>(memory_.data()) % kLineBytes;
  std::uint8_t *const first = memory_.data() + (past == 0 ? 0 : kLineBytes - past);
  for (std::size_t i = 0; i < count; ++i) pointers_[i] = first + i * shard_bytes;
}

void *openmp_symbol(const std::string &way, const char *name) {
  const std::string folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::string path = folder + "/libstudy_openmp_" + way.substr(way.find(':') + 1) + ".so";
  void *const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void *const found = library == nullptr ? nullptr : dlsym(library, name);
  if (found == nullptr) throw NotMeasured(dlerror());
  return found;
}

std::set<std::string> mapped_openmp_runtimes() {
  std::set<std::string> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t slash = line.find('/');
    if (slash == std::string::npos) continue;
    const std::string name = line.substr(line.rfind('/') + 1);
    if (name.starts_with("libgomp") || name.starts_with("libomp") || name.starts_with("libiomp"))
      found.insert(line.substr(slash));
  }
  return found;
}

std::vector<int> allowed_cores() {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) throw NotMeasured("the affinity mask cannot be read");
  std::vector<int> cores;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &mask)) cores.push_back(i);
  }
  return cores;
}

void pin_this_thread(int core) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(core, &mask);
  if (const int error = pthread_setaffinity_np(pthread_self(), sizeof mask, &mask); error != 0)
    throw NotMeasured(std::string("a thread cannot be pinned: ") + std::strerror(error));
}

void check_pinning() {
  cpu_set_t before;
  sched_getaffinity(0, sizeof before, &before);
  pin_this_thread(allowed_cores().front());
  sched_setaffinity(0, sizeof before, &before);
}

bool equal(const Shards &a, std::size_t first_a, const Shards &b, std::size_t first_b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (std::memcmp(a[first_a + i], b[first_b + i], a.shard_bytes()) != 0) return false;
  }
  return a.shard_bytes() == b.shard_bytes();
}

void on_new_threads(unsigned count, const std::function<void(unsigned)> &body) {
  std::vector<std::jthread> threads;
  for (unsigned i = 0; i < count; ++i) threads.emplace_back(body, i);
}

nlohmann::ordered_json Spans::json() {
  const std::lock_guard lock(mutex_);
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  std::size_t row = 0;
  for (const auto &each : threads_) {
    for (const Span &span : *each) all.push_back({row, span.begin - began_, span.end - span.begin, span.kind});
    row += each->empty() ? 0 : 1;
  }
  return all;
}

int run_contender(int count, char **words, const std::function<nlohmann::ordered_json(Arguments &)> &body) {
  try {
    Arguments arguments(count, words);
    std::printf("%s\n", body(arguments).dump().c_str());
  } catch (const NotMeasured &reason) {
    std::printf("%s\n", nlohmann::ordered_json{{"not_measured", reason.what()}}.dump().c_str());
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s: %s\n", words[0], error.what());
    return 1;
  }
  return 0;
}

}  // namespace tandem::studies
