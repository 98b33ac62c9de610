// SPDX-License-Identifier: Apache-2.0
// Texts that describe machines: their meaning, and refusals of all other texts.
#include "bench/simulate/worker_text.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "bench/simulate/board.hpp"
#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

using bench::parse_links;
using bench::parse_resources;
using bench::parse_workers;
using bench::Policy;
using bench::WorkerDescription;
using Texts = std::vector<std::string_view>;

WorkerDescription one(std::string_view text) { return parse_workers(Texts{text}).front(); }

template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const base::Error &error) {
    EXPECT_EQ(error.status(), TANDEM_ERROR_INVALID_ARGUMENT) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return {};
}

std::string refused(std::string_view text) {
  SCOPED_TRACE(text);
  return refusal([&] { parse_workers(Texts{text}); });
}

TEST(WorkerText, SingleWorkers) {
  const WorkerDescription cpu = one("cpu:4x0.3:latency=2ms:jitter=0.25");
  EXPECT_EQ(cpu.worker.name, "cpu");
  EXPECT_FALSE(cpu.is_groups);
  EXPECT_EQ(cpu.count, 4u);
  EXPECT_EQ(cpu.worker.member_count, 1u);
  EXPECT_DOUBLE_EQ(cpu.worker.bytes_per_second, 0.3e9);
  EXPECT_DOUBLE_EQ(cpu.worker.latency_seconds, 2e-3);
  EXPECT_DOUBLE_EQ(cpu.worker.jitter, 0.25);
  EXPECT_EQ(cpu.worker.claims, 1u);
  EXPECT_DOUBLE_EQ(one("gpu:1x6:latency=30us").worker.latency_seconds, 30e-6);
  EXPECT_DOUBLE_EQ(one("gpu:1x6:latency=1.5s").worker.latency_seconds, 1.5);
  EXPECT_DOUBLE_EQ(one("gpu:1x1e2").worker.bytes_per_second, 1e11);
}

TEST(WorkerText, Groups) {
  const WorkerDescription board = one("cpu:2x4x0.3:claim=inf");
  EXPECT_TRUE(board.is_groups);
  EXPECT_EQ(board.count, 2u);
  EXPECT_EQ(board.worker.member_count, 4u);
  EXPECT_DOUBLE_EQ(board.worker.bytes_per_second, 1.2e9);
  EXPECT_EQ(board.worker.claims, UINT64_MAX);
  EXPECT_EQ(one("cpu:1x1x1:claim=7").worker.claims, 7u);
}

TEST(WorkerText, InnerTasks) {
  const WorkerDescription board = one("cpu:1x4x0.25:inner=2:spawn=30ms:latency=0.4s");
  EXPECT_EQ(board.worker.member_count, 4u);
  EXPECT_EQ(board.worker.inner_count, 2u);
  EXPECT_DOUBLE_EQ(board.worker.spawn_seconds, 0.03);
  EXPECT_DOUBLE_EQ(board.worker.latency_seconds, 0.4);
  EXPECT_EQ(one("cpu:1x4x0.25").worker.inner_count, 0u);
  const auto workers = to_workers(std::vector{board}, {}, true);
  EXPECT_EQ(workers[0].member_count, 4u);
  EXPECT_EQ(workers[0].inner_count, 2u);
  EXPECT_DOUBLE_EQ(workers[0].spawn_seconds, 0.03);
  EXPECT_DOUBLE_EQ(workers[0].bytes_per_second, 1e9);
  const std::string text = "worker \"cpu:1x4x1:";
  EXPECT_EQ(refused("cpu:1x4x1:inner=0"), text + "inner=0\": the number of inner tasks is \"0\", not from 1 to 4096");
  EXPECT_EQ(refused("cpu:1x4x1:inner=4097"),
            text + "inner=4097\": the number of inner tasks is \"4097\", not from 1 to 4096");
  EXPECT_EQ(refused("cpu:1x4x1:inner=-1"),
            text + "inner=-1\": the number of inner tasks is \"-1\", not from 1 to 4096");
  EXPECT_EQ(refused("cpu:4x1:inner=2"),
            "worker \"cpu:4x1:inner=2\": only groups have inner tasks: NAME:GROUPSxMEMBERSxGBPS");
  EXPECT_EQ(refused("cpu:1x4x1:spawn=1s"),
            text + "spawn=1s\": spawn is the part of a task before its inner tasks: it needs inner=N");
  EXPECT_EQ(refused("cpu:1x4x1:inner=2:spawn=-1s"),
            text + "inner=2:spawn=-1s\": spawn is \"-1s\", no time such as 0.5s, 2ms, 30us");
  EXPECT_EQ(refused("cpu:1x4x1:inner=2:spawn=3601s"),
            text + "inner=2:spawn=3601s\": spawn is \"3601s\", more than 3600 s");
  EXPECT_EQ(refused("cpu:1x4x1:claim=2:inner=2"),
            text +
                "claim=2:inner=2\": claim has no meaning with inner: the resource of its name says how many tasks a "
                "group holds");
  EXPECT_EQ(refused("cpu:1x4x1:inner=2:inner=2"), text + "inner=2:inner=2\": inner is given twice");
}

TEST(WorkerText, FaultsAndBeliefs) {
  const auto workers = to_workers(
      parse_workers(Texts{"gpu:2x6:slow=2.5@3ms:fails=4s:hangs=5us:assumed-latency=0s", "cpu:1x1"}), {}, true);
  ASSERT_EQ(workers.size(), 3u);
  EXPECT_DOUBLE_EQ(workers[1].slow_factor, 2.5);
  EXPECT_DOUBLE_EQ(workers[1].slow_from_seconds, 3e-3);
  EXPECT_DOUBLE_EQ(workers[1].fails_at_seconds, 4);
  EXPECT_DOUBLE_EQ(workers[1].hangs_at_seconds, 5e-6);
  EXPECT_EQ(workers[1].assumed_latency_seconds, 0.0);
  EXPECT_EQ(workers[2].slow_from_seconds, bench::kNeverSeconds);
  EXPECT_EQ(workers[2].fails_at_seconds, bench::kNeverSeconds);
  EXPECT_EQ(workers[2].hangs_at_seconds, bench::kNeverSeconds);
  EXPECT_EQ(workers[2].assumed_latency_seconds, std::nullopt);
  const std::string text = "worker \"a:1x1:";
  EXPECT_EQ(refused("a:1x1:slow=2"), text + "slow=2\": slow is \"2\", not FACTOR@TIME such as 10@2s");
  EXPECT_EQ(refused("a:1x1:slow=@2s"), text + "slow=@2s\": slow is \"@2s\", not FACTOR@TIME such as 10@2s");
  EXPECT_EQ(refused("a:1x1:slow=1@2s"),
            text + "slow=1@2s\": slow is \"1@2s\": the factor is not above 1 and at most 1000000");
  EXPECT_EQ(refused("a:1x1:slow=2e6@2s"),
            text + "slow=2e6@2s\": slow is \"2e6@2s\": the factor is not above 1 and at most 1000000");
  EXPECT_EQ(refused("a:1x1:slow=10@2"), text + "slow=10@2\": slow is \"2\", no time such as 0.5s, 2ms, 30us");
  EXPECT_EQ(refused("a:1x1:fails=soon"), text + "fails=soon\": fails is \"soon\", no time such as 0.5s, 2ms, 30us");
  EXPECT_EQ(refused("a:1x1:hangs=2e9s"), text + "hangs=2e9s\": hangs is \"2e9s\", more than 1000000000 s");
  EXPECT_EQ(refused("a:1x1:assumed-latency=3601s"),
            text + "assumed-latency=3601s\": assumed-latency is \"3601s\", more than 3600 s");
  EXPECT_EQ(refused("a:1x1:fails=1s:fails=1s"), text + "fails=1s:fails=1s\": fails is given twice");
}

TEST(WorkerText, LinksAreThere) {
  const auto workers = parse_workers(Texts{"cpu:1x1", "gpu:2x6:link=pcie", "fpga:1x3:link=usb"});
  const bench::Links links = parse_links("usb=0.5,pcie=25", workers);
  EXPECT_EQ(links, (bench::Links{{"usb", 0.5e9}, {"pcie", 25e9}}));
  const auto simulated = to_workers(workers, links, true);
  EXPECT_EQ(simulated[0].link, std::nullopt);
  EXPECT_EQ(simulated[1].link, 1u);
  EXPECT_EQ(simulated[2].link, 1u);
  EXPECT_EQ(simulated[3].link, 0u);
  EXPECT_TRUE(parse_links("", parse_workers(Texts{"cpu:1x1"})).empty());
  const auto refusal_of = [&](std::string_view text) { return refusal([&] { parse_links(text, workers); }); };
  EXPECT_EQ(refusal_of("pcie=25"), "link \"usb\": worker fpga is behind it, and it has no speed, such as usb=25");
  EXPECT_EQ(refusal_of("pcie=25,usb=1,nvlink=300"), "link \"nvlink=300\": no worker has :link=nvlink");
  EXPECT_EQ(refusal_of("pcie=25,pcie=2,usb=1"), "link \"pcie=2\": it has a speed already");
  EXPECT_EQ(refusal_of("pcie"), "link \"pcie\": not NAME=GBPS, such as pcie=25");
  EXPECT_EQ(refusal_of("=25"), "link \"=25\": \"\" is no name");
  EXPECT_EQ(refusal_of("pcie=fast"), "link \"pcie=fast\": \"fast\" is no speed in GB/s");
  EXPECT_EQ(refusal_of("pcie=0"), "link \"pcie=0\": \"0\" GB/s is not from 1e-06 to 1000000");
  for (const char *text : {",", "pcie=25,", "pcie=25,,usb=1", "pcie=-1", "pcie=nan"}) refusal_of(text);
  EXPECT_EQ(refused("gpu:1x1:link="), "worker \"gpu:1x1:link=\": link is \"\", no name");
}

TEST(WorkerText, WorkersInTheOrderOfTheirDescriptions) {
  const auto descriptions = parse_workers(Texts{"cpu:2x0.5", "gpu:1x6", "cpu:1x1"});
  const auto known = to_workers(descriptions, {}, true), unknown = to_workers(descriptions, {}, false);
  ASSERT_EQ(known.size(), 4u);
  const double speeds[] = {0.5e9, 0.5e9, 6e9, 1e9};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(known[i].name, i == 2 ? "gpu" : "cpu");
    EXPECT_EQ(known[i].bytes_per_second, speeds[i]);
    EXPECT_EQ(known[i].known_bytes_per_second, speeds[i]);
    EXPECT_EQ(unknown[i].known_bytes_per_second, 0);
  }
}

TEST(WorkerText, RefusedWithASentence) {
  EXPECT_EQ(refused("cpu"), "worker \"cpu\": it has no speed: NAME:COUNTxGBPS or NAME:GROUPSxMEMBERSxGBPS");
  EXPECT_EQ(refused("cpu:0x1"), "worker \"cpu:0x1\": the number of workers is \"0\", not from 1 to 4096");
  EXPECT_EQ(refused("cpu:1x4097x1"),
            "worker \"cpu:1x4097x1\": the number of members of a group is \"4097\", not from 1 to 4096");
  EXPECT_EQ(refused("cpu:64x65x1"), "worker \"cpu:64x65x1\": 4160 workers in all with it, more than 4096");
  EXPECT_EQ(refused("cpu:4x-1"), "worker \"cpu:4x-1\": \"-1\" is no speed in GB/s");
  EXPECT_EQ(refused("cpu:4x0"), "worker \"cpu:4x0\": \"0\" GB/s is not from 1e-06 to 1000000");
  EXPECT_EQ(refused("cpu:4x1:latency=2"),
            "worker \"cpu:4x1:latency=2\": latency is \"2\", no time such as 0.5s, 2ms, 30us");
  EXPECT_EQ(refused("cpu:4x1:jitter=1"), "worker \"cpu:4x1:jitter=1\": jitter is \"1\", not from 0 to 0.9");
  EXPECT_EQ(refused("cpu:4x1:claim=2"), "worker \"cpu:4x1:claim=2\": only groups claim: NAME:GROUPSxMEMBERSxGBPS");
  EXPECT_EQ(
      refused("cpu:4x1:speed=2"),
      "worker \"cpu:4x1:speed=2\": \"speed\" is unknown; known: latency, jitter, claim, inner, spawn, slow, fails, "
      "hangs, assumed-latency, link");
  EXPECT_EQ(refused("cpu:4x1:jitter=0:jitter=0"), "worker \"cpu:4x1:jitter=0:jitter=0\": jitter is given twice");
  EXPECT_EQ(refused("a\x1b[2J:1x1"),
            "worker \"a?[2J:1x1\": \"a?[2J\" is no name: 1 to 31 letters, digits, '_', '-' or '.'");
  std::istringstream texts(
      "|:|:1x1|cpu:|cpu:x|cpu:1x|cpu:x1|cpu:1|cpu:1x1x|cpu:1x1x1x1|cpu:1x1:|cpu:1x1:latency|"
      "cpu:1x1:latency=|cpu:1x1:latency=ms|cpu:1x1:=2ms|cpu:1x1:latency=-2ms|cpu:1x1:latency=1e9s|"
      "cpu:1x1:latency=nans|cpu:1x1:latency=2 ms|cpu:1x1:jitter=-0.1|cpu:1x1:jitter=nan|"
      "cpu:1x1:jitter=inf|cpu:1x1x1:claim=0|cpu:1x1x1:claim=-1|cpu:1x1x1:claim=INF|"
      "cpu:1x1x1:claim=1.5|cpu:1x1x1:claim=99999999999999999999|cpu:1xnan|cpu:1xinf|cpu:1x1e999|"
      "cpu:1x1e-9|cpu:1x1e7|cpu:1.5x1|cpu:99999999999999999999x1|cpu:4294967297x1|cpu:+1x1|"
      "cpu:-1x1|cpu:1x0x10|cpu: 1x1|cpu:1x1 |c p:1x1|cpu=1:1x1|cpu:1X1|cpu:1x1gb|cpu:1x0x1|"
      "\xff:1x1");
  for (std::string text; std::getline(texts, text, '|');) refused(text);
  refused(std::string(32, 'a') + ":1x1");
  refused(std::string("cpu:1x1\0", 8));
  EXPECT_LT(refused(std::string(1'000'000, 'x')).size(), 400u);
  EXPECT_NE(refusal([] { parse_workers({}); }), "");
}

TEST(WorkerText, NamesAndSumsOverAll) {
  EXPECT_EQ(refusal([] {
              parse_workers(Texts{"cpu:1x1", "gpu:1x6", "cpu:1x4x1"});
            }),
            "worker \"cpu:1x4x1\": cpu is already the name of single workers");
  EXPECT_EQ(refusal([] {
              parse_workers(Texts{"cpu:4000x1", "gpu:97x6"});
            }),
            "worker \"gpu:97x6\": 4097 workers in all with it, more than 4096");
  EXPECT_EQ(parse_workers(Texts{"cpu:4000x1", "gpu:96x6"}).size(), 2u);
}

TEST(WorkerText, Resources) {
  const auto workers = parse_workers(Texts{"cpu:4x1", "gpu:1x6"});
  using Resources = std::vector<std::pair<std::string, std::uint64_t>>;
  EXPECT_EQ(parse_resources("", workers), Resources{});
  EXPECT_EQ(parse_resources("cpu=5,gpu=1", workers), (Resources{{"cpu", 5}, {"gpu", 1}}));
  EXPECT_EQ(refusal([&] { parse_resources("gpu=1,fpga=5", workers); }), "resource \"fpga=5\": no worker has this name");
  EXPECT_EQ(refusal([&] { parse_resources("cpu=0", workers); }), "resource \"cpu=0\": the amount is no number from 1");
  EXPECT_EQ(refusal([&] { parse_resources("cpu=1,cpu=2", workers); }), "resource \"cpu=2\": it has an amount already");
  for (const char *text :
       {",", "cpu", "cpu=", "cpu=-1", "cpu=1.5", "cpu=1,", "=1", "cpu=99999999999999999999", "cpu=1 "})
    refusal([&] { parse_resources(text, workers); });
}

// Every text gives a machine within the limits that can be simulated, or a refusal.
TEST(WorkerText, AnyText) {
  Random random(41);
  const std::string_view good[] = {"cpu:1x4x0.3:claim=inf",     "gpu:1x6:latency=2ms",
                                   "a:16x1e2:jitter=0.3",       "b:2x3x0.001:claim=12:latency=10us",
                                   "c:1x4x1:inner=2:spawn=3ms", "d:2x6:slow=9@1ms:assumed-latency=1ms",
                                   "e:4x1:fails=1s:hangs=2s"};
  const std::string_view letters = "0123456789xxx:::==..@abcglms-+einf ";
  unsigned accepted = 0;
  for (unsigned i = 0; i < 50'000; ++i) {
    std::string text(good[random.below(std::size(good))]);
    for (std::uint64_t n = random.below(4); n > 0; --n) {
      const std::size_t at = random.below(text.size());
      const char letter = letters[random.below(letters.size())];
      if (random.chance(50)) {
        text[at] = letter;
      } else if (random.chance(50)) {
        text.insert(at, 1, letter);
      } else {
        text.erase(at, random.between(1, 3));
      }
      if (text.empty()) break;
    }
    try {
      const auto descriptions = parse_workers(Texts{text});
      const WorkerDescription &it = descriptions.front();
      ++accepted;
      ASSERT_TRUE(it.count >= 1 && it.worker.member_count >= 1 &&
                  it.count * it.worker.member_count <= bench::kMostWorkers)
          << text;
      ASSERT_TRUE(it.worker.bytes_per_second >= 1e3 && it.worker.bytes_per_second <= 4096e15) << text;
      ASSERT_TRUE(it.worker.latency_seconds >= 0 && it.worker.latency_seconds <= 3600) << text;
      ASSERT_TRUE(it.worker.jitter >= 0 && it.worker.jitter <= 0.9) << text;
      ASSERT_GE(it.worker.claims, 1u) << text;
      ASSERT_TRUE(it.worker.inner_count <= 4096 && (it.worker.inner_count == 0 || it.worker.claims == 1)) << text;
      ASSERT_TRUE(it.worker.spawn_seconds >= 0 && it.worker.spawn_seconds <= 3600) << text;
      ASSERT_TRUE(it.worker.slow_factor >= 1 && it.worker.slow_factor <= 1e6 && it.worker.slow_from_seconds >= 0)
          << text;
      ASSERT_TRUE(it.worker.fails_at_seconds >= 0 && it.worker.hangs_at_seconds >= 0) << text;
      if (it.count > 16) continue;
      bench::Simulation simulation;
      simulation.workers = to_workers(descriptions, {}, random.chance(50));
      simulation.work_bytes = 1 << 20;
      simulation.chunk_bytes = 1 << 17;
      simulation.policy = static_cast<Policy>(random.below(3));
      const bool is_board = it.worker.inner_count > 0 && simulation.policy != Policy::automatic;
      const bench::SimulationResult result = is_board ? simulate_board(simulation).run : simulate(simulation);
      const bool may_stop = std::min(it.worker.fails_at_seconds, it.worker.hangs_at_seconds) < bench::kNeverSeconds;
      ASSERT_TRUE(result.completed || may_stop) << text;
      ASSERT_TRUE(std::isfinite(result.makespan_seconds) && (result.makespan_seconds > 0 || may_stop)) << text;
    } catch (const base::Error &error) {
      ASSERT_EQ(error.status(), TANDEM_ERROR_INVALID_ARGUMENT) << text;
    }
  }
  EXPECT_GT(accepted, 10'000u);
  EXPECT_LT(accepted, 45'000u);
}

}  // namespace
}  // namespace tandem::test
