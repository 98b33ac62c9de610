// SPDX-License-Identifier: Apache-2.0
// Study D: one encode by Tandem's own pool, and by loops of OpenMP runtimes and of oneTBB over Tandem's serial code,
// back to back and with pauses. The program links no OpenMP runtime, so the only one in the process is that of the
// loop's library. Its file is part of the answer.
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/studies/contenders.hpp"
#include "bench/studies/openmp_library.hpp"

#ifdef TANDEM_STUDIES_TBB
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#endif

namespace tandem::studies {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kPartBytes = 8192;  // of each shard: an item of a loop

Json measure(Arguments &arguments) {
  const auto k = static_cast<unsigned>(arguments.number("k", 10)), m = static_cast<unsigned>(arguments.number("m", 4));
  const auto threads = static_cast<unsigned>(arguments.number("threads", 1));
  const std::size_t shard_bytes = arguments.number("shard-bytes", 65536), calls = arguments.number("calls", 1);
  const std::uint64_t gap_microseconds = arguments.number("gap-microseconds", 0);
  const std::string way = arguments.text("way", "pthread");
  arguments.done();
  if (k == 0 || k + m > 256 || threads == 0 || shard_bytes < 64 || calls == 0)
    throw std::runtime_error("k + m <= 256, shards of 64 bytes or more, at least one thread and one call");

  const CodecOwner codec = make_codec(k, m, TANDEM_MATRIX_ISAL_CAUCHY);
  const ContextOwner serial = make_context("serial", 1);
  Shards shards(k + m, shard_bytes), expected(m, shard_bytes);
  fill_random(shards.memory(), k * shard_bytes, 1);
  check(tandem_encode(serial.get(), codec.get(), shards.data(), expected.data(), shard_bytes));

  ContextOwner context;
  std::function<void()> call = [&] {
    check(tandem_encode(context.get(), codec.get(), shards.data(), shards.data(k), shard_bytes));
  };
  std::function<void(std::size_t)> encode_part = [&](std::size_t part) {
    const std::size_t begin = part * kPartBytes, bytes = std::min(kPartBytes, shard_bytes - begin);
    std::vector<const void *> data(k);
    std::vector<void *> parity(m);
    for (unsigned i = 0; i < k; ++i) data[i] = shards[i] + begin;
    for (unsigned i = 0; i < m; ++i) parity[i] = shards[k + i] + begin;
    check(tandem_encode(serial.get(), codec.get(), data.data(), parity.data(), bytes));
  };
  const std::size_t part_count = (shard_bytes + kPartBytes - 1) / kPartBytes;
  if (way == "pthread") {
    context = make_context("pthread", threads);
  } else if (way == "openmp:gnu" || way == "openmp:llvm") {
    call = [&, loop = openmp_function<decltype(&study_openmp_loop)>(way, "study_openmp_loop")] {
      const auto item = [](void *user, std::size_t part) { (*static_cast<decltype(encode_part) *>(user))(part); };
      loop(threads, part_count, item, &encode_part);
    };
  } else if (way == "tbb") {
#ifndef TANDEM_STUDIES_TBB
    throw NotMeasured("built without oneTBB (Debian, Ubuntu: apt-get install libtbb-dev)");
#else
    call = [&, limit = std::make_shared<tbb::global_control>(tbb::global_control::max_allowed_parallelism, threads),
            arena = std::make_shared<tbb::task_arena>(static_cast<int>(threads))] {
      arena->execute([&] { tbb::parallel_for(std::size_t{0}, part_count, encode_part); });
    };
#endif
  } else {
    throw std::runtime_error("no way is called " + way);
  }

  call();  // makes the threads
  double seconds = 0, cpu_seconds = 0, gap_seconds = 0, gap_cpu_seconds = 0;
  for (std::size_t i = 0; i < calls; ++i) {
    const double began = wall_seconds(), began_cpu = process_seconds();
    call();
    const double ended = wall_seconds(), ended_cpu = process_seconds();
    seconds += ended - began;
    cpu_seconds += ended_cpu - began_cpu;
    if (gap_microseconds == 0) continue;
    std::this_thread::sleep_for(std::chrono::microseconds(gap_microseconds));
    gap_seconds += wall_seconds() - ended;
    gap_cpu_seconds += process_seconds() - ended_cpu;
  }
  return {{"seconds", {seconds}},
          {"cpu_seconds", {cpu_seconds}},
          {"gap_seconds", gap_seconds},
          {"gap_cpu_seconds", gap_cpu_seconds},
          {"data_bytes", calls * k * shard_bytes},
          {"openmp_runtimes", mapped_openmp_runtimes()},
          {"bytes_equal", equal(shards, k, expected, 0, m)}};
}

}  // namespace
}  // namespace tandem::studies

int main(int count, char **words) { return tandem::studies::run_contender(count, words, tandem::studies::measure); }
