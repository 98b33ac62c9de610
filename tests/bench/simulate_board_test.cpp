// SPDX-License-Identifier: Apache-2.0
// Figure 3 of Mont-Blanc's report D4.6 (docs/internals/FIGURE3.md), and the model behind it.
#include "bench/simulate/board.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace tandem::test {
namespace {

using bench::BoardResult;
using bench::BoardSpan;
using bench::Policy;
using bench::simulate_board;
using bench::SimulatedWorker;
using bench::Simulation;

constexpr std::uint64_t kChunkBytes = 1'000'000'000;

// A task takes the GPU 1 s. It takes the cores 3.985 core-seconds, of which 0.0358 are its parent part.
Simulation jetson(std::uint64_t task_count, std::uint64_t budget) {
  SimulatedWorker cpu, gpu;
  cpu.name = "cpu";
  cpu.member_count = 4;
  cpu.inner_count = 2;
  cpu.bytes_per_second = 4 * 1e9 / (3.985 - 0.0358);
  cpu.spawn_seconds = 0.0358;
  cpu.latency_seconds = 0.4;
  gpu.name = "gpu";
  gpu.bytes_per_second = 1e9;
  Simulation simulation;
  simulation.workers = {cpu, gpu};
  simulation.work_bytes = task_count * kChunkBytes;
  simulation.chunk_bytes = kChunkBytes;
  simulation.policy = Policy::budget;
  if (budget > 0) simulation.resources = {{"cpu", budget}};
  return simulation;
}

// One of the four cores and the GPU; nothing overlaps on a row, and the inner tasks of all cores are the group's data.
void expect_sound(const Simulation &simulation, const BoardResult &board) {
  EXPECT_TRUE(board.run.completed);
  std::vector<double> free_from(board.row_count);
  std::uint64_t bytes = 0;
  for (const BoardSpan &span : board.spans) {
    ASSERT_LT(span.row, board.row_count);
    ASSERT_GE(span.start_seconds, free_from[span.row]);
    ASSERT_LE(span.end_seconds, board.run.makespan_seconds);
    free_from[span.row] = span.end_seconds;
    bytes += span.range.bytes();
  }
  EXPECT_EQ(bytes, simulation.work_bytes);
  std::uint64_t shares = 0, begin = 0, task_count = 0;
  for (const auto &share : board.run.workers) {
    shares += share.bytes;
    task_count += share.task_count;
  }
  EXPECT_EQ(shares, simulation.work_bytes);
  EXPECT_EQ(task_count, board.run.tasks.size());
  for (const auto &task : board.run.tasks) {
    EXPECT_EQ(task.range.begin, begin);
    begin = task.range.end;
  }
}

TEST(Board, FigureThreeOfTheReport) {
  struct {
    std::uint64_t budget;  // 0: free
    double seconds, printed_to;
  } const kFigures[] = {{0, 675, 1},     {1, 484, 1},     {2, 374, 1},     {3, 344.1, 0.1},
                        {4, 344.1, 0.1}, {5, 343.1, 0.1}, {7, 345.1, 0.1}, {12, 347.1, 0.1}};
  for (const auto &figure : kFigures) {
    SCOPED_TRACE(figure.budget);
    const Simulation simulation = jetson(684, figure.budget);
    const BoardResult board = simulate_board(simulation);
    EXPECT_EQ(std::round(board.run.makespan_seconds / figure.printed_to),
              std::round(figure.seconds / figure.printed_to))
        << board.run.makespan_seconds;
    EXPECT_EQ(board.row_count, 5u);
    expect_sound(simulation, board);
  }
}

TEST(Board, FiveIsTheBestBudgetAndGivesTheReportsSplit) {
  const BoardResult five = simulate_board(jetson(684, 5));
  EXPECT_EQ(five.run.workers[0].task_count, 344u);
  EXPECT_EQ(five.run.workers[1].task_count, 340u);
  for (std::uint64_t budget = 1; budget <= 50; ++budget) {
    const double seconds = simulate_board(jetson(684, budget)).run.makespan_seconds;
    if (budget == 5 || budget == 6) {
      EXPECT_EQ(seconds, five.run.makespan_seconds);  // the model cannot tell them apart
    } else {
      EXPECT_GT(seconds, five.run.makespan_seconds) << budget;
    }
  }
}

TEST(Board, FreeLeavesTheGpuNineOf1015) {
  const BoardResult free = simulate_board(jetson(1015, 0));
  EXPECT_EQ(free.run.workers[0].task_count, 1006u);
  EXPECT_EQ(free.run.workers[1].task_count, 9u);
}

// By hand: two cores, tasks of 1 s of a core in 2 inner ones, parent part 0.25 s, latency 0.5 s, no GPU, budget 1.
TEST(Board, OneTaskAfterTheOther) {
  Simulation simulation = jetson(2, 1);
  simulation.workers.resize(1);
  SimulatedWorker &cpu = simulation.workers[0];
  cpu.member_count = 2;
  cpu.bytes_per_second = 2e9;
  cpu.spawn_seconds = 0.25;
  cpu.latency_seconds = 0.5;
  const BoardResult board = simulate_board(simulation);
  ASSERT_EQ(board.spans.size(), 6u);
  EXPECT_EQ(board.spans[0].part, BoardSpan::Part::spawn);
  EXPECT_DOUBLE_EQ(board.spans[0].start_seconds, 0.5);
  EXPECT_EQ(board.spans[1].part, BoardSpan::Part::inner);
  EXPECT_DOUBLE_EQ(board.spans[1].start_seconds, 0.75);
  EXPECT_DOUBLE_EQ(board.spans[2].start_seconds, 0.75);
  EXPECT_NE(board.spans[1].row, board.spans[2].row);
  EXPECT_EQ(board.spans[1].range, (bench::Range{0, kChunkBytes / 2}));
  EXPECT_EQ(board.spans[2].range, (bench::Range{kChunkBytes / 2, kChunkBytes}));
  EXPECT_DOUBLE_EQ(board.run.makespan_seconds, 2.5);
  EXPECT_DOUBLE_EQ(board.run.workers[0].busy_seconds, 1.25);  // the mean of the cores
  EXPECT_DOUBLE_EQ(board.run.workers[0].bytes_per_second, 2e9);
  EXPECT_DOUBLE_EQ(board.run.efficiency, 1 / 2.5);
  // Without an amount: no latency, and the cores take both parent parts before any inner task.
  simulation.resources.clear();
  const BoardResult free = simulate_board(simulation);
  EXPECT_DOUBLE_EQ(free.run.makespan_seconds, 1.25);
  EXPECT_EQ(free.spans[1].part, BoardSpan::Part::spawn);
  EXPECT_DOUBLE_EQ(free.spans[1].start_seconds, 0);
}

TEST(Board, GroupsOfOneNameShareItsBudget) {
  Simulation simulation = jetson(40, 3);
  simulation.workers.push_back(simulation.workers[0]);
  const BoardResult board = simulate_board(simulation);
  expect_sound(simulation, board);
  EXPECT_EQ(board.row_count, 9u);
  // At no time more tasks of the CPU than units.
  std::map<double, int> changes;
  for (const auto &task : board.run.tasks) {
    if (task.worker == 1) continue;
    ++changes[task.start_seconds];
    --changes[task.end_seconds];
  }
  int at_once = 0, most = 0;
  for (const auto &[seconds, change] : changes) most = std::max(most, at_once += change);
  EXPECT_EQ(most, 3);
  EXPECT_GT(board.run.workers[0].task_count, 0u);
  EXPECT_GT(board.run.workers[2].task_count, 0u);
}

TEST(Board, ABudgetOfAnotherNameLeavesTheCoresFree) {
  Simulation simulation = jetson(40, 0);
  const double free = simulate_board(simulation).run.makespan_seconds;
  simulation.policy = Policy::budget;
  simulation.resources = {{"gpu", 1}};
  EXPECT_EQ(simulate_board(simulation).run.makespan_seconds, free);
  simulation.resources.push_back({"cpu", 2});
  EXPECT_LT(simulate_board(simulation).run.makespan_seconds, free);
}

TEST(Board, SingleWorkersHaveBudgetsToo) {
  Simulation simulation = jetson(40, 3);
  simulation.workers.push_back(simulation.workers[1]);
  simulation.resources.push_back({"gpu", 1});
  const BoardResult board = simulate_board(simulation);
  expect_sound(simulation, board);
  EXPECT_EQ(board.run.workers[2].task_count, 0u);
  EXPECT_EQ(board.run.workers[2].idle_tail_seconds, board.run.makespan_seconds);
}

TEST(Board, ALastChunkThatDoesNotDivide) {
  Simulation simulation = jetson(7, 2);
  simulation.workers[0].inner_count = 3;
  simulation.work_bytes += 1;
  expect_sound(simulation, simulate_board(simulation));
}

TEST(Board, JitterComesFromTheSeed) {
  Simulation simulation = jetson(50, 5);
  for (SimulatedWorker &each : simulation.workers) each.jitter = 0.3;
  const double first = simulate_board(simulation).run.makespan_seconds;
  EXPECT_EQ(simulate_board(simulation).run.makespan_seconds, first);
  simulation.seed = 1;
  EXPECT_NE(simulate_board(simulation).run.makespan_seconds, first);
  expect_sound(simulation, simulate_board(simulation));
}

template <class Change>
std::string refusal(Change change) {
  Simulation simulation = jetson(10, 5);
  change(simulation);
  try {
    simulate_board(simulation);
  } catch (const base::Error &error) {
    EXPECT_EQ(error.status(), TANDEM_ERROR_INVALID_ARGUMENT);
    return error.what();
  }
  return "accepted";
}

TEST(Board, RefusesWhatHasNoMeaning) {
  const std::string why = " has no meaning with policy budget if a worker has inner tasks";
  EXPECT_EQ(refusal([](Simulation &it) { it.workers[1].claims = 2; }), "worker gpu: claim" + why);
  EXPECT_EQ(refusal([](Simulation &it) { it.workers[1].slow_from_seconds = 1; }), "worker gpu: slow" + why);
  EXPECT_EQ(refusal([](Simulation &it) { it.workers[0].fails_at_seconds = 1; }), "worker cpu: fails" + why);
  EXPECT_EQ(refusal([](Simulation &it) { it.workers[0].hangs_at_seconds = 1; }), "worker cpu: hangs" + why);
  EXPECT_EQ(refusal([](Simulation &it) { it.workers[1].link = 0; }), "worker gpu: link" + why);
}

}  // namespace
}  // namespace tandem::test
