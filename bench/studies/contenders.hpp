// SPDX-License-Identifier: Apache-2.0
// Common code of the studies' contenders: arguments, clocks, Tandem's objects with an owner, and one JSON object as the
// answer. If this machine lacks what a contender needs, it prints {"not_measured": REASON} and returns 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "tandem/tandem.h"

namespace tandem::studies {

// A reason why nothing can be measured here. Not an error.
struct NotMeasured : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// --name value, in any order. Throws std::runtime_error for malformed arguments. `done` throws for unknown names.
class Arguments {
 public:
  Arguments(int count, char **words);

  std::string text(const std::string &name, const std::string &fallback);
  std::uint64_t number(const std::string &name, std::uint64_t fallback);
  void done() const;

 private:
  std::map<std::string, std::string> values_;
  std::set<std::string> asked_;
};

double wall_seconds();
double process_seconds();  // processor time of all threads of this process
double thread_seconds();   // of the calling thread

struct Destroy {
  void operator()(tandem_context *context) const noexcept { tandem_context_destroy(context); }
  void operator()(tandem_codec *codec) const noexcept { tandem_codec_destroy(codec); }
};
using ContextOwner = std::unique_ptr<tandem_context, Destroy>;
using CodecOwner = std::unique_ptr<tandem_codec, Destroy>;

void check(tandem_status status);  // throws std::runtime_error with the library's sentence

// The CPU, without tuning file and timeline. UNAVAILABLE throws NotMeasured.
// executor: "serial", "pthread".
ContextOwner make_context(const std::string &executor, unsigned thread_count);
CodecOwner make_codec(unsigned k, unsigned m, std::int32_t matrix);

void fill_random(void *memory, std::size_t bytes, std::uint64_t seed);

// One or more shards of one length, one after the other; the first at a multiple of 64.
class Shards {
 public:
  Shards(std::size_t count, std::size_t shard_bytes);
  Shards(const Shards &) = delete;
  Shards &operator=(const Shards &) = delete;

  std::size_t count() const { return pointers_.size(); }
  std::size_t shard_bytes() const { return shard_bytes_; }
  std::uint8_t *operator[](std::size_t shard) const { return pointers_[shard]; }
  void *const *data(std::size_t first = 0) const { return reinterpret_cast<void *const *>(pointers_.data()) + first; }
  std::uint8_t *memory() const { return pointers_[0]; }
  std::size_t bytes() const { return pointers_.size() * shard_bytes_; }

 private:
  std::size_t shard_bytes_;
  std::vector<std::uint8_t> memory_;
  std::vector<std::uint8_t *> pointers_;
};

// A function of the library of a way "openmp:gnu" or "openmp:llvm" (openmp_library.hpp).
void *openmp_symbol(const std::string &way, const char *name);
template <class Function>
Function openmp_function(const std::string &way, const char *name) {
  return reinterpret_cast<Function>(openmp_symbol(way, name));
}
// The files of OpenMP runtimes that are mapped into this process.
std::set<std::string> mapped_openmp_runtimes();

// The cores that this process may use. NotMeasured: they cannot be read, or a thread cannot be pinned.
std::vector<int> allowed_cores();
void pin_this_thread(int core);
void check_pinning();  // on the calling thread, before others, where an exception would end the program

bool equal(const Shards &a, std::size_t first_a, const Shards &b, std::size_t first_b, std::size_t count);

// Runs body(0) .. body(count - 1), each on a new thread that ends with it.
void on_new_threads(unsigned count, const std::function<void(unsigned)> &body);

// The main function of a contender: prints what `body` returns.
int run_contender(int count, char **words, const std::function<nlohmann::ordered_json(Arguments &)> &body);

}  // namespace tandem::studies
