// SPDX-License-Identifier: Apache-2.0
#include "bench/case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <set>
#include <stdexcept>
#include <utility>

#include "base/rounding.hpp"
#include "bench/operation.hpp"
#include "bench/roof.hpp"
#include "tandem/diagnose.h"
#include "tandem/tools.h"

namespace tandem::bench {
namespace {

constexpr std::pair<BenchOperation, const char *> kOperations[] = {
    {BenchOperation::encode, "encode"},
    {BenchOperation::decode, "decode"},
    {BenchOperation::verify, "verify"},
    {BenchOperation::update, "update"},
    {BenchOperation::decode_setup, "decode-setup"},
};

// The loops of all contestants go through the stripes in one order, and each starts where the previous one stopped. So
// no contestant finds stripes in a cache that another has just used.
class Rotation {
 public:
  std::size_t advance(std::size_t calls) { return std::exchange(next_, next_ + calls); }

 private:
  std::size_t next_ = 0;
};

// A contestant that spreads its calls over independent threads: each thread makes all calls on its own columns. No
// thread waits for another, so this is the best that threads can do.
Contestant on_columns(std::string name, std::vector<StripeLoop> loops, Rotation &rotation, BenchClock clock) {
  return {std::move(name), [loops = std::move(loops), &rotation, clock](std::size_t calls) {
            const std::size_t first = rotation.advance(calls);
            std::vector<std::function<void()>> bodies;
            for (const StripeLoop &loop : loops) bodies.push_back([&loop, first, calls] { loop(first, calls); });
            return time_together(bodies, clock);
          }};
}

// One view per thread, cut at cache lines.
std::vector<StripeView> cut(const StripeView &stripes, unsigned part_count) {
  constexpr std::size_t kLineBytes = 64;
  const std::size_t bytes = stripes.shard_bytes();
  const std::size_t part = base::round_up(bytes / part_count, kLineBytes);
  std::vector<StripeView> views;
  for (std::size_t begin = 0; begin < bytes; begin += part)
    views.push_back(stripes.columns(begin, std::min(begin + part, bytes)));
  return views;
}

StripeLoop roof_loop(const RoofLoop &loop, const StripeView &stripes, const StripeOperation &operation) {
  std::vector<unsigned> order = operation.reads();
  order.insert(order.end(), operation.writes().begin(), operation.writes().end());
  return [run = loop.run, stripes = stripes.only(order), reads = operation.reads().size(),
          writes = operation.writes().size()](std::size_t first, std::size_t calls) {
    volatile std::uint64_t sink = 0;
    for (std::size_t i = 0; i < calls; ++i) {
      unsigned char *const *const shards = stripes.shards((first + i) % stripes.stripe_count());
      sink = run({shards, reads, shards + reads, writes, stripes.shard_bytes()});
    }
    static_cast<void>(sink);
  };
}

// The number of rounds is such that a call takes some microseconds.
constexpr std::uint64_t kSpinRounds = 10'000;

Contestant spin_on_threads(std::string name, unsigned thread_count) {
  return {std::move(name), [thread_count](std::size_t calls) {
            volatile std::uint64_t sink = 0;
            const auto body = [&sink, calls] {
              std::uint64_t last = 0;
              for (std::size_t i = 0; i < calls; ++i) last = roof_loops().spin_registers(kSpinRounds);
              if (last != 0) sink = last;  // it is 0, so no thread writes
            };
            return time_together(std::vector<std::function<void()>>(thread_count, body), BenchClock::wall);
          }};
}

// Tandem and the peer must write the same bytes: the rate of a wrong result means nothing.
void compare_results(const BenchCase &at, const StripeOperation &operation, const StripeLoop &tandem,
                     const StripeLoop &peer, const StripeView &stripes) {
  const StripeView outputs = stripes.only(operation.writes());
  const auto copy = [&] {
    std::vector<std::vector<unsigned char>> bytes;
    for (std::size_t i = 0; i < operation.writes().size(); ++i)
      bytes.emplace_back(outputs.shards(0)[i], outputs.shards(0)[i] + stripes.shard_bytes());
    return bytes;
  };
  const auto before = copy();
  tandem(0, 1);
  const auto by_tandem = copy();
  for (std::size_t i = 0; i < before.size(); ++i) std::memcpy(outputs.shards(0)[i], before[i].data(), before[i].size());
  peer(0, 1);
  if (copy() != by_tandem) {
    throw std::runtime_error(fmt::format("{} {}+{}, {} bytes a shard: Tandem and the peer computed different bytes",
                                         operation_name(at.operation), at.k, at.m, at.shard_bytes));
  }
}

std::string technique_of(const BenchCase &at, tandem_context *context, const tandem_codec *codec,
                         const StripeOperation &operation, std::uint64_t seed) {
  const std::vector<std::uint8_t> present = present_shards(at, seed);
  tandem_plan_options options{};
  options.struct_bytes = sizeof options;
  options.operation = at.operation == BenchOperation::decode   ? TANDEM_OPERATION_DECODE
                      : at.operation == BenchOperation::verify ? TANDEM_OPERATION_VERIFY
                      : at.operation == BenchOperation::update ? TANDEM_OPERATION_UPDATE
                                                               : TANDEM_OPERATION_ENCODE;
  options.present = present.data();
  tandem_plan *plan = nullptr;
  check(tandem_plan_create(context, codec, &options, &plan));
  const std::unique_ptr<tandem_plan, void (*)(tandem_plan *)> owner(plan, tandem_plan_destroy);
  tandem_plan_info info{};
  info.struct_bytes = sizeof info;
  check(tandem_plan_query(plan, &info));
  std::set<unsigned> shards(operation.reads().begin(), operation.reads().end());
  shards.insert(operation.writes().begin(), operation.writes().end());
  return shards.size() * at.shard_bytes > info.out_of_cache_bytes ? info.technique_out_of_cache : info.technique;
}

BenchResult run_on_stripes(const BenchCase &at, const BenchSettings &settings) {
  const ContextOwner context = make_context(settings.context);
  const unsigned thread_count = query(context).thread_count;
  const CodecOwner codec = make_codec(at.k, at.m, at.matrix, at.packets);
  const std::unique_ptr<StripeOperation> operation = make_operation(at, context.get(), codec.get(), settings.seed);

  Layout layout;
  layout.shard_count = at.k + at.m + (at.operation == BenchOperation::update ? 1 : 0);
  layout.shard_bytes = at.shard_bytes;
  layout.stripe_count = at.stripe_count;
  layout.placement = at.placement;
  layout.odd = at.odd;
  layout.seed = settings.seed;
  const Stripes memory(layout);
  const StripeView &stripes = memory.all();
  BenchCase encode = at;
  encode.operation = BenchOperation::encode;
  make_operation(encode, context.get(), codec.get(), settings.seed)->tandem(context.get(), stripes)(0, at.stripe_count);

  Rotation rotation;
  const StripeLoop tandem = operation->tandem(context.get(), stripes);
  std::vector<Contestant> contestants = {on_columns("tandem", {tandem}, rotation, settings.clock)};
  const std::vector<StripeView> parts = cut(stripes, thread_count);
  if (has_peer(at, settings)) {
    compare_results(at, *operation, tandem, operation->peer(*settings.peer, stripes), stripes);
    std::vector<StripeLoop> loops;
    for (const StripeView &part : parts) loops.push_back(operation->peer(*settings.peer, part));
    contestants.push_back(on_columns("peer", std::move(loops), rotation, settings.clock));
  }
  const RoofLoops roofs = roof_loops();
  for (std::size_t i = 0; i < roofs.count; ++i) {
    std::vector<StripeLoop> loops;
    for (const StripeView &part : parts) loops.push_back(roof_loop(roofs.loops[i], part, *operation));
    contestants.push_back(on_columns(roofs.loops[i].name, std::move(loops), rotation, settings.clock));
  }
  const std::size_t first_extra = contestants.size();
  ContextOwner one_thread;
  if (thread_count > 1) {  // one thread, with the share of one thread
    tandem_context_options options = settings.context;
    options.thread_count = 1;
    std::string expert = options.expert != nullptr ? options.expert : "";
    if (const std::size_t pin = expert.find("pin=1"); pin != std::string::npos) expert.replace(pin, 5, "pin=0");
    options.expert = expert.c_str();
    one_thread = make_context(options);
    contestants.push_back(
        on_columns("tandem, 1 thread", {operation->tandem(one_thread.get(), parts[0])}, rotation, settings.clock));
    contestants.push_back(spin_on_threads("registers", thread_count));
    contestants.push_back(spin_on_threads("registers, 1 thread", 1));
  }

  std::vector<Samples> samples = alternate(contestants, settings.repeats, settings.seconds / settings.repeats);

  BenchResult result;
  result.at = at;
  result.data_bytes = operation->data_shard_count() * at.shard_bytes;
  result.read_bytes = operation->reads().size() * at.shard_bytes;
  result.written_bytes = operation->writes().size() * at.shard_bytes;
  if (thread_count > 1) {
    const double share = static_cast<double>(parts[0].shard_bytes()) / static_cast<double>(at.shard_bytes);
    result.scaling = Scaling{samples[first_extra].median() / (samples[0].median() * share),
                             thread_count * samples[first_extra + 2].median() / samples[first_extra + 1].median()};
  }
  result.tandem = std::move(samples[0]);
  result.technique = technique_of(at, context.get(), codec.get(), *operation, settings.seed);
  if (settings.energy != nullptr) {
    result.energy_is_missing = settings.energy->reason;
    try {
      result.energy = measure_energy(*settings.energy, contestants[0], settings.repeats, result.tandem.median(), 1);
    } catch (const std::runtime_error &error) {
      result.energy_is_missing = error.what();
    }
  }
  const std::size_t first_roof = has_peer(at, settings) ? 2 : 1;
  if (has_peer(at, settings)) result.peer = std::move(samples[1]);
  result.roofs.assign(std::make_move_iterator(samples.begin() + static_cast<std::ptrdiff_t>(first_roof)),
                      std::make_move_iterator(samples.begin() + static_cast<std::ptrdiff_t>(first_extra)));
  return result;
}

}  // namespace

BenchOperation operation_from_name(const std::string &name) {
  for (const auto &[operation, known] : kOperations) {
    if (name == known) return operation;
  }
  throw std::runtime_error(fmt::format("unknown operation \"{}\"", name));
}

std::string operation_name(BenchOperation operation) {
  for (const auto &[known, name] : kOperations) {
    if (operation == known) return name;
  }
  return "?";
}

const Samples *BenchResult::roof() const {
  const auto fastest = std::min_element(roofs.begin(), roofs.end(),
                                        [](const Samples &a, const Samples &b) { return a.median() < b.median(); });
  return fastest == roofs.end() ? nullptr : &*fastest;
}

double BenchResult::over_peer() const { return peer ? peer->median() / tandem.median() : 0; }

double BenchResult::of_roof() const { return roof() != nullptr ? roof()->median() / tandem.median() : 0; }

bool has_peer(const BenchCase &at, const BenchSettings &settings) {
  return settings.peer && (tandem_matrix_traits(at.matrix) & TANDEM_MATRIX_IS_GF16) == 0 &&
         at.packets.packet_bytes == 0;
}

BenchResult run_case(const BenchCase &at, const BenchSettings &settings) {
  return at.operation == BenchOperation::decode_setup ? run_decode_setup(at, settings) : run_on_stripes(at, settings);
}

}  // namespace tandem::bench
