// SPDX-License-Identifier: Apache-2.0
// Study E: read, hash, code, write, as tasks of OpenMP and as a pipeline of oneTBB. The payloads are those of a shard
// set: `tandem encode` writes the same bytes into its blocks.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <nlohmann/json.hpp>

#include "bench/studies/contenders.hpp"
#include "bench/studies/spans.hpp"

#ifdef TANDEM_STUDIES_TBB
#include <tbb/global_control.h>
#include <tbb/parallel_pipeline.h>
#include <tbb/task_arena.h>
#endif

namespace tandem::studies {
namespace {

using Json = nlohmann::ordered_json;

Spans spans;

class File {
 public:
  File(const std::string &path, int flags) : path_(path), file_(open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (file_ < 0) throw std::runtime_error("cannot open " + path);
  }
  ~File() { close(file_); }
  File(const File &) = delete;
  File &operator=(const File &) = delete;

  std::size_t bytes() const {
    struct stat about {};
    if (fstat(file_, &about) != 0) throw std::runtime_error("cannot read the length of " + path_);
    return static_cast<std::size_t>(about.st_size);
  }
  void read(std::uint8_t *out, std::size_t bytes, std::size_t at) const {
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t got = pread(file_, out + done, bytes - done, static_cast<off_t>(at + done));
      if (got <= 0) throw std::runtime_error("cannot read " + path_);
      done += static_cast<std::size_t>(got);
    }
  }
  void write(const std::uint8_t *in, std::size_t bytes, std::size_t at) const {
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t got = pwrite(file_, in + done, bytes - done, static_cast<off_t>(at + done));
      if (got <= 0) throw std::runtime_error("cannot write " + path_);
      done += static_cast<std::size_t>(got);
    }
  }

 private:
  std::string path_;
  int file_;
};

class Job {
 public:
  Job(const std::string &input, const std::string &folder, unsigned k, unsigned m, std::size_t payload_bytes)
      : k_(k),
        m_(m),
        payload_bytes_(payload_bytes),
        input_(input, O_RDONLY),
        content_bytes_(input_.bytes()),
        context_(make_context("serial", 1)),
        codec_(make_codec(k, m, TANDEM_MATRIX_ISAL_CAUCHY)) {
    for (unsigned i = 0; i < k + m; ++i)
      files_.push_back(std::make_unique<File>(folder + "/" + std::to_string(i), O_WRONLY | O_CREAT | O_TRUNC));
  }

  std::size_t stripe_count() const {
    const std::size_t stripe = k_ * payload_bytes_;
    return (content_bytes_ + stripe - 1) / stripe;
  }
  std::unique_ptr<Shards> make_buffer() const { return std::make_unique<Shards>(k_ + m_, payload_bytes_); }

  void read(std::size_t stripe, Shards &shards) {
    spans.record("read", [&] {
      const std::size_t payload = payload_of(stripe), first = stripe * k_ * payload_bytes_;
      for (unsigned i = 0; i < k_; ++i) {
        const std::size_t at = first + i * payload;
        const std::size_t bytes = at < content_bytes_ ? std::min(payload, content_bytes_ - at) : 0;
        input_.read(shards[i], bytes, at);
        std::memset(shards[i] + bytes, 0, payload - bytes);
      }
    });
  }
  void hash(std::size_t stripe, unsigned first, unsigned end, Shards &shards) {
    spans.record("hash", [&] {
      std::uint64_t mixed = 0;
      for (unsigned i = first; i < end; ++i) mixed ^= XXH3_128bits(shards[i], payload_of(stripe)).low64;
      hashes_.fetch_xor(mixed, std::memory_order_relaxed);
    });
  }
  void code(std::size_t stripe, Shards &shards) {
    spans.record("code", [&] {
      check(tandem_encode(context_.get(), codec_.get(), shards.data(), shards.data(k_), payload_of(stripe)));
    });
  }
  void write(std::size_t stripe, Shards &shards) {
    spans.record("write", [&] {
      for (unsigned i = 0; i < k_ + m_; ++i) files_[i]->write(shards[i], payload_of(stripe), stripe * payload_bytes_);
    });
  }
  unsigned k() const { return k_; }
  unsigned shard_count() const { return k_ + m_; }

 private:
  // The last stripe is cut into k payloads of equal length too.
  std::size_t payload_of(std::size_t stripe) const {
    const std::size_t left = content_bytes_ - stripe * k_ * payload_bytes_;
    return std::min(payload_bytes_, (left + k_ - 1) / k_);
  }

  const unsigned k_, m_;
  const std::size_t payload_bytes_;
  const File input_;
  const std::size_t content_bytes_;
  const ContextOwner context_;
  const CodecOwner codec_;
  std::vector<std::unique_ptr<File>> files_;
  std::atomic<std::uint64_t> hashes_{0};
};

// An exception must not leave a task: OpenMP would end the program.
class FirstError {
 public:
  template <class Work>
  void run(Work work) noexcept {
    try {
      work();
    } catch (...) {
      if (!has_error_.exchange(true)) error_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::atomic<bool> has_error_{false};
  std::exception_ptr error_;
};

// A buffer is an inout dependence of its stripe's tasks, so that the next stripe in it waits.
void openmp_depend([[maybe_unused]] Job &job, [[maybe_unused]] unsigned threads) {
#ifndef _OPENMP
  throw NotMeasured("this compiler has no OpenMP runtime");
#else
  std::vector<std::unique_ptr<Shards>> buffers;
  for (unsigned i = 0; i < 2 * threads; ++i) buffers.push_back(job.make_buffer());
  FirstError error;
  const std::size_t count = job.stripe_count();
#pragma omp parallel num_threads(threads)
#pragma omp single
  for (std::size_t stripe = 0; stripe < count; ++stripe) {
    Shards *const buffer = buffers[stripe % buffers.size()].get();
#pragma omp task shared(job, error) firstprivate(stripe, buffer) depend(inout : buffer[0])
    error.run([&] { job.read(stripe, *buffer); });
#pragma omp task shared(job, error) firstprivate(stripe, buffer) depend(inout : buffer[0])
    error.run([&] { job.hash(stripe, 0, job.k(), *buffer); });
#pragma omp task shared(job, error) firstprivate(stripe, buffer) depend(inout : buffer[0])
    error.run([&] {
      job.code(stripe, *buffer);
      job.hash(stripe, job.k(), job.shard_count(), *buffer);
    });
#pragma omp task shared(job, error) firstprivate(stripe, buffer) depend(inout : buffer[0])
    error.run([&] { job.write(stripe, *buffer); });
  }
  error.rethrow();
#endif
}

void tbb_pipeline([[maybe_unused]] Job &job, [[maybe_unused]] unsigned threads) {
#ifndef TANDEM_STUDIES_TBB
  throw NotMeasured("built without oneTBB (Debian, Ubuntu: apt-get install libtbb-dev)");
#else
  struct Token {
    std::size_t stripe;
    Shards *buffer;
  };
  std::vector<std::unique_ptr<Shards>> buffers;
  for (unsigned i = 0; i < 2 * threads; ++i) buffers.push_back(job.make_buffer());
  const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, threads);
  tbb::task_arena arena(static_cast<int>(threads));
  std::size_t next = 0;
  // Stripes end in order, so that buffers become free in turn.
  arena.execute([&] {
    tbb::parallel_pipeline(
        buffers.size(),
        tbb::make_filter<void, Token>(tbb::filter_mode::serial_in_order, [&](tbb::flow_control &control) -> Token {
          if (next == job.stripe_count()) {
            control.stop();
            return {};
          }
          const std::size_t stripe = next++;
          return {stripe, buffers[stripe % buffers.size()].get()};
        }) & tbb::make_filter<Token, Token>(tbb::filter_mode::parallel, [&](Token token) {
          job.read(token.stripe, *token.buffer);
          job.hash(token.stripe, 0, job.k(), *token.buffer);
          job.code(token.stripe, *token.buffer);
          job.hash(token.stripe, job.k(), job.shard_count(), *token.buffer);
          job.write(token.stripe, *token.buffer);
          return token;
        }) & tbb::make_filter<Token, void>(tbb::filter_mode::serial_in_order, [](Token) {}));
  });
#endif
}

void sequential(Job &job) {
  const std::unique_ptr<Shards> buffer = job.make_buffer();
  for (std::size_t stripe = 0; stripe < job.stripe_count(); ++stripe) {
    job.read(stripe, *buffer);
    job.hash(stripe, 0, job.k(), *buffer);
    job.code(stripe, *buffer);
    job.hash(stripe, job.k(), job.shard_count(), *buffer);
    job.write(stripe, *buffer);
  }
}

Json measure(Arguments &arguments) {
  const auto k = static_cast<unsigned>(arguments.number("k", 10)), m = static_cast<unsigned>(arguments.number("m", 4));
  const std::size_t payload_bytes = arguments.number("payload-bytes", 65520);
  const auto threads = static_cast<unsigned>(arguments.number("threads", 1));
  const std::string way = arguments.text("way", "sequential"), input = arguments.text("input", "");
  const std::string folder = arguments.text("output", ".");
  arguments.done();
  if (k == 0 || k + m > 256 || payload_bytes == 0 || threads == 0)
    throw std::runtime_error("k + m <= 256, sizes above 0");
  Job job(input, folder, k, m, payload_bytes);
  spans.start();
  const double began = wall_seconds(), began_cpu = process_seconds();
  if (way == "sequential")
    sequential(job);
  else if (way == "openmp-depend")
    openmp_depend(job, threads);
  else if (way == "tbb")
    tbb_pipeline(job, threads);
  else
    throw std::runtime_error("no way is called " + way);
  const double seconds = wall_seconds() - began;
  return {{"seconds", {seconds}}, {"cpu_seconds", {process_seconds() - began_cpu}}, {"spans", spans.json()}};
}

}  // namespace
}  // namespace tandem::studies

int main(int count, char **words) { return tandem::studies::run_contender(count, words, tandem::studies::measure); }
