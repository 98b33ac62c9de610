// SPDX-License-Identifier: Apache-2.0
#include "tuning/autotune.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <new>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "core/codec.hpp"
#include "core/gf.hpp"
#include "core/plan.hpp"

namespace tandem::tuning {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::uint64_t kLeastCheckBytes = 8 << 10, kCheckTail = 13, kCheckMargin = 64;  // of a shard
constexpr std::uint64_t kCheckedColumns = 256;                                           // of a whole run
constexpr double kLocalSizesShare = 0.4;       // of the search's time, if values are searched one after the other
constexpr double kSearchShare = 0.8;           // of a case's time; the rest is for the last comparison
constexpr unsigned kLeastComparisons = 3;      // even if the time is over: a single one could be chance
constexpr std::uint64_t kMostCalls = 1 << 20;  // in one repeat
constexpr std::size_t kMostUnderWay = 32;      // runs in the queue of a device

struct AlignedFree {
  void operator()(std::byte *p) const noexcept { ::operator delete (p, std::align_val_t{kLine}); }
};

void fill(std::byte *at, std::size_t count, std::uint64_t seed) {
  std::uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;  // Knuth's MMIX
    at[i] = static_cast<std::byte>(state >> 56);
  }
}

// Shards side by side, an odd number of cache lines apart, so that they do not collide in a cache. on_device: with the
// same layout in device memory; two calls copy the host's bytes there and back.
class Shards {
 public:
  Shards(core::Backend &backend, bool on_device, unsigned count, std::uint64_t bytes) {
    const std::uint64_t pitch = ((bytes + kLine - 1) / kLine | 1) * kLine;
    std::uint64_t total = 0;
    if (bytes > UINT64_MAX / 2 || __builtin_mul_overflow(pitch, std::uint64_t{count}, &total) || total > SIZE_MAX / 2)
      base::fail(TANDEM_ERROR_TOO_LARGE, base::format("{} shards of {} bytes do not fit memory", count, bytes));
    memory_.reset(
        static_cast<std::byte *>(::operator new (std::max<std::uint64_t>(total, 1), std::align_val_t{kLine})));
    for (unsigned i = 0; i < count; ++i) pointers_.push_back(memory_.get() + i * pitch);
    if (!on_device || total == 0) return;
    bytes_ = total;
    device_ = backend.device_memory(total);
    places_.assign(count, static_cast<std::byte *>(device_->shards()));
    for (unsigned i = 0; i < count; ++i) offsets_.push_back(i * pitch);
  }
  void send() {
    if (device_ != nullptr) device_->write(0, memory_.get(), bytes_);
  }
  void fetch() {
    if (device_ != nullptr) device_->read(0, memory_.get(), bytes_);
  }
  std::byte *const *pointers() const noexcept { return pointers_.data(); }
  std::byte *operator[](unsigned i) const noexcept { return pointers_[i]; }

 private:
  std::unique_ptr<std::byte, AlignedFree> memory_;
  std::vector<std::byte *> pointers_;
  std::uint64_t bytes_ = 0;  // of all, on the device
  std::shared_ptr<core::DeviceMemory> device_;
  std::vector<std::byte *> places_;  // the pointers of a task's shards there, and
  std::vector<std::uint64_t> offsets_;

  friend core::Task task_of(const core::Prepared &prepared, const Shards &inputs, const Shards &outputs,
                            std::uint64_t offset_bytes, std::uint64_t length_bytes, core::Mode mode);
};

core::Task task_of(const core::Prepared &prepared, const Shards &inputs, const Shards &outputs,
                   std::uint64_t offset_bytes, std::uint64_t length_bytes, core::Mode mode) {
  if (outputs.device_ == nullptr)
    return {&prepared, inputs.pointers(), outputs.pointers(), offset_bytes, length_bytes, mode};
  core::Task task = {&prepared, inputs.places_.data(), outputs.places_.data(), offset_bytes, length_bytes, mode};
  task.memory = outputs.device_->kind();
  task.queue = outputs.device_->queue();
  task.input_offsets = inputs.offsets_.data();
  task.output_offsets = outputs.offsets_.data();
  return task;
}

// The operator of an operation.
core::Operator operator_of(const Case &at) {
  tandem_codec_options options = {};
  options.struct_bytes = sizeof options;
  options.k = at.operation == core::TunedOperation::update ? 2 : at.k;
  options.m = at.m;
  const std::shared_ptr<const core::Codec> codec = core::make_codec(options);
  core::ShardSet parity;
  for (unsigned r = 0; r < codec->m(); ++r) parity.set(codec->k() + r);
  if (at.operation == core::TunedOperation::update) return update_of(codec->column(1, parity).what);
  if (at.operation != core::TunedOperation::decode) return codec->encode(parity).what;
  core::ShardSet lost, present;  // the first m shards
  for (unsigned i = 0; i < codec->shard_count(); ++i) (i < codec->m() ? lost : present).set(i);
  return codec->decode(present, lost)->what;
}

// One cell of the product, computed without a kernel, only by core/gf.hpp.
std::uint8_t product_at(const core::Matrix &matrix, const Shards &inputs, unsigned row, std::uint64_t at) {
  std::uint8_t sum = 0;
  for (unsigned c = 0; c < matrix.columns(); ++c)
    sum ^= core::gf::multiply(matrix.at(row, c), std::to_integer<std::uint8_t>(inputs[c][at]));
  return sum;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

struct Candidate {
  core::TuningValues values;
  bool is_default = false;
  std::vector<double> bytes_per_second;
  double score = 0;  // of its last race; 0: none yet
  std::optional<Failure> failure;
  bool dropped = false;
  std::shared_ptr<const core::Prepared> prepared;
  std::uint64_t calls = 0;  // in one repeat; 0: has not run yet

  bool alive() const { return !failure && !dropped; }
  bool timed() const { return !failure && !bytes_per_second.empty(); }
  double rate() const { return median(bytes_per_second); }
};

// The figures of the whole run, for the progress callback.
class Run {
 public:
  Run(const Options &its_options, Journal &its_journal, const Hooks &its_hooks)
      : options(its_options), journal(its_journal), hooks(its_hooks), started_(its_hooks.seconds()) {}

  double elapsed() const { return hooks.seconds() - started_; }

  // `left`: repeats still to do, over all cases. Throws Error (CANCELLED).
  void tell(Progress progress, std::uint64_t left) {
    if (!hooks.progress) return;
    progress.done_count = done_count;
    progress.total_count = done_count + left;
    const std::uint64_t measured = done_count - result.known_count;
    progress.seconds_left = measured == 0 ? 0 : elapsed() / static_cast<double>(measured) * static_cast<double>(left);
    if (options.max_seconds > 0)
      progress.seconds_left = std::min(progress.seconds_left, std::max(0.0, options.max_seconds - elapsed()));
    if (!hooks.progress(progress)) base::fail(TANDEM_ERROR_CANCELLED, "tuning was interrupted");
  }

  const Options &options;
  Journal &journal;
  const Hooks &hooks;
  Result result;
  std::uint64_t done_count = 0;

 private:
  double started_;
};

std::vector<core::TuningParameter> parameters_of(core::Backend &backend, const core::Matrix &matrix, core::Mode mode,
                                                 const Options &options) {
  std::vector<core::TuningParameter> parameters = backend.tuning_parameters(matrix.rows(), matrix.columns(), mode);
  if (parameters.empty())
    base::fail(TANDEM_ERROR_UNAVAILABLE, base::format("backend {} has nothing to tune", backend.traits().name));
  for (const NamedValues &range : options.ranges) {
    const auto found = std::find_if(parameters.begin(), parameters.end(), [&](const core::TuningParameter &parameter) {
      return parameter.name == range.name;
    });
    if (found != parameters.end() && options.on_device && found->is_of_transfers) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
                 base::format("{} makes no difference to shards in the memory of the device", range.name));
    }
    if (found == parameters.end()) {
      std::string names;
      for (const core::TuningParameter &parameter : parameters) names += (names.empty() ? "" : ", ") + parameter.name;
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
                 base::format("backend {} has no {} to tune; it has {}", backend.traits().name, range.name, names));
    }
    if (range.values.empty()) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, base::format("no values for {}", range.name));
    found->candidates = range.values;
    found->is_switch_over = false;  // the user has chosen the values
  }
  if (options.on_device) {
    std::erase_if(parameters,
                  [](const auto &parameter) { return parameter.is_of_transfers && !parameter.is_switch_over; });
  }
  for (core::TuningParameter &parameter : parameters)
    if (parameter.is_switch_over) parameter.candidates = {0};
  return parameters;
}

// One case: its buffers, its candidates, the search.
class Search {
 public:
  // `other_repeats`: an estimate for the later cases.
  Search(core::Backend &backend, const Case &at, Run &run, double seconds, std::uint64_t other_repeats)
      : backend_(backend),
        at_(at),
        run_(run),
        what_(operator_of(at)),
        granularity_bytes_(backend.prepare(what_)->granularity_bytes()),
        mode_(core::tuned_operation_mode(at.operation)),
        parameters_(parameters_of(backend, matrix_, mode_, run.options)),
        other_repeats_(other_repeats) {
    const unsigned shards = matrix_.rows() + matrix_.columns();
    template_.key = {backend.tuning_identity(), backend.tuning_kernel_hash(), at.operation, at.k, at.m,
                     run.options.on_device};
    template_.shard_bytes =
        run.options.shard_bytes != 0
            ? run.options.shard_bytes
            : std::max(granularity_bytes_, whole(default_shard_bytes(shards, run.options.on_device)));
    if (template_.shard_bytes % granularity_bytes_ != 0)
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
                 base::format("shard_bytes = {} is not a multiple of this code's {} bytes", template_.shard_bytes,
                              granularity_bytes_));
    template_.repeats = run.options.repeats;
    template_.date = run.hooks.date();
    const double data_shards = at.operation == core::TunedOperation::update ? 1 : matrix_.columns();
    data_bytes_ = data_shards * static_cast<double>(template_.shard_bytes);
    started_ = run.elapsed();
    deadline_ = seconds > 0 ? started_ + seconds : HUGE_VAL;
    default_ = &candidate(default_values());
    default_->is_default = true;
  }

  Entry find_best() {
    const std::string space = space_hash();
    if (const std::optional<Entry> known = run_.journal.done(template_, space)) {
      run_.result.known_count += known->repeats;
      run_.done_count += known->repeats;
      return *known;
    }
    // After the checks that may refuse the case: this needs work and memory.
    make_buffers();
    search_deadline_ = started_ + kSearchShare * (deadline_ - started_);
    explore();
    refuse_dead_ranges();
    Entry entry = last_comparison();
    for (const core::TuningParameter &parameter : parameters_)
      if (parameter.is_switch_over && !run_.options.on_device)
        entry.values[parameter.name] = switch_over_bytes(parameter, entry.values);
    for (const core::TuningParameter &parameter : parameters_)  // for another machine, another machine's value may be
                                                                // better
      if (entry.values[parameter.name] == parameter.value || (run_.options.on_device && parameter.is_of_transfers))
        entry.values.erase(parameter.name);
    if (!cut_short_) run_.journal.add_done(entry, space);
    run_.result.complete = run_.result.complete && !cut_short_;
    return entry;
  }

  // Repeats of the whole search, before candidates are dropped. Throws Error (INVALID_ARGUMENT) if there are too many
  // to try.
  std::uint64_t planned_repeats() const {
    const std::size_t grid = combinations(parameters_);
    std::uint64_t count = grid;
    if (grid > kMostGrid) {
      count = combinations(local_sizes());
      if (count > kMostCombinations) {
        base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
                   base::format("{} combinations of local sizes; at most {} are tried", count, kMostCombinations));
      }
      for (const core::TuningParameter &parameter : parameters_) count += 2 * parameter.candidates.size();
    }
    return count * run_.options.repeats + comparison_turns();
  }

  const Entry &place() const { return template_; }
  bool complete() const { return !cut_short_; }

 private:
  // Device memory is faster than host memory, so the data is four times as large. Otherwise a run would be too short.
  static std::uint64_t default_shard_bytes(unsigned shards, bool on_device) {
    constexpr std::uint64_t kStripe = 64 << 20, kLeast = 64 << 10, kMost = 16 << 20;
    const unsigned times = on_device ? 4 : 1;
    std::uint64_t bytes = kLeast;
    while (bytes < times * kMost && 2 * bytes * shards <= times * kStripe) bytes *= 2;
    return bytes;
  }

  core::TuningValues default_values() const {
    core::TuningValues values;
    for (const core::TuningParameter &parameter : parameters_)
      values[parameter.name] = parameter.is_switch_over ? 0 : parameter.value;
    return values;
  }

  std::string space_hash() const {
    std::string text = base::format("repeats {}", run_.options.repeats);
    for (const core::TuningParameter &parameter : parameters_)
      text += base::format("; {} {}: {}", parameter.name, parameter.value, base::join(parameter.candidates, " "));
    return core::tuning_hash(text);
  }

  static std::size_t combinations(const std::vector<core::TuningParameter> &parameters) {
    std::size_t count = 1;
    for (const core::TuningParameter &parameter : parameters)
      if (__builtin_mul_overflow(count, parameter.candidates.size(), &count)) return SIZE_MAX;
    return count;
  }

  std::vector<core::TuningParameter> local_sizes() const {
    std::vector<core::TuningParameter> sizes;
    for (const core::TuningParameter &parameter : parameters_)
      if (parameter.name.starts_with("local_")) sizes.push_back(parameter);
    return sizes;
  }

  Candidate &candidate(const core::TuningValues &values) {
    Candidate &found = candidates_[values];
    found.values = values;
    return found;
  }

  // Every combination of `parameters`, the rest as in `base`.
  std::vector<Candidate *> product(const std::vector<core::TuningParameter> &parameters,
                                   const core::TuningValues &base) {
    const std::size_t count = combinations(parameters);
    std::vector<Candidate *> list;
    for (std::size_t i = 0; i < count; ++i) {
      core::TuningValues values = base;
      std::size_t rest = i;
      for (const core::TuningParameter &parameter : parameters) {
        values[parameter.name] = parameter.candidates[rest % parameter.candidates.size()];
        rest /= parameter.candidates.size();
      }
      list.push_back(&candidate(values));
    }
    return list;
  }

  // The time when this share of the search's remaining time is over.
  double part_of_time(double share) const { return run_.elapsed() + share * (search_deadline_ - run_.elapsed()); }

  void explore() {
    recall_default();
    if (combinations(parameters_) <= kMostGrid) return race(product(parameters_, default_->values), search_deadline_);
    race(product(local_sizes(), default_->values), part_of_time(kLocalSizesShare));
    for (unsigned pass = 0; pass < kMostPasses; ++pass) {
      const Candidate *before = base_;
      for (std::size_t i = 0; i < parameters_.size(); ++i) {
        if (run_.elapsed() >= search_deadline_) {
          cut_short_ = true;
          return;
        }
        race(product({parameters_[i]}, base_ != nullptr ? base_->values : default_->values),
             part_of_time(1.0 / static_cast<double>(parameters_.size() - i)));
      }
      if (base_ == before) return;
    }
  }

  // The backend's own values are always measured. Values that the user asked for must not be dropped silently.
  void refuse_dead_ranges() const {
    for (const NamedValues &range : run_.options.ranges) {
      std::size_t count = 0, failed = 0;
      for (const auto &[values, each] : candidates_) {
        if (std::find(range.values.begin(), range.values.end(), values.at(range.name)) == range.values.end()) continue;
        ++count;
        failed += each.failure.has_value();
      }
      if (count == 0 || failed < count) continue;
      base::fail(TANDEM_ERROR_UNAVAILABLE,
                 base::format("{} runs none of the {} candidates with the range given for {} ({} {}, {}){}{}",
                              backend_.traits().name, count, range.name, core::tuned_operation_name(at_.operation),
                              at_.k, at_.m, last_refusal_.empty() ? "" : ". The last refusal: ", last_refusal_));
    }
  }

  std::uint64_t whole(std::uint64_t bytes) const { return bytes / granularity_bytes_ * granularity_bytes_; }

  void make_buffers() {
    const unsigned columns = matrix_.columns(), rows = matrix_.rows();
    const bool on_device = run_.options.on_device;
    inputs_.emplace(backend_, on_device, columns, template_.shard_bytes);
    outputs_.emplace(backend_, on_device, rows, template_.shard_bytes);
    for (unsigned c = 0; c < columns; ++c) fill((*inputs_)[c], template_.shard_bytes, c + 1);
    for (unsigned r = 0; r < rows; ++r) std::memset((*outputs_)[r], 0, template_.shard_bytes);
    inputs_->send();
    outputs_->send();

    check_bytes_ =
        whole(std::max({kLeastCheckBytes, run_.options.check_stripe_bytes / (rows + columns), 3 * granularity_bytes_}) +
              kCheckTail);
    const std::uint64_t bytes = check_bytes_ + kCheckMargin;
    check_inputs_.emplace(backend_, on_device, columns, bytes);
    check_outputs_.emplace(backend_, on_device, rows, bytes);
    products_.assign(rows, std::vector<std::byte>(bytes));
    for (unsigned c = 0; c < columns; ++c) {
      fill((*check_inputs_)[c], bytes, 1000 + c);
      for (unsigned r = 0; r < rows; ++r) {
        std::array<std::byte, 256> times;
        for (unsigned x = 0; x < 256; ++x)
          times[x] = std::byte{core::gf::multiply(matrix_.at(r, c), static_cast<std::uint8_t>(x))};
        for (std::uint64_t i = 0; i < bytes; ++i)
          products_[r][i] ^= times[std::to_integer<std::uint8_t>((*check_inputs_)[c][i])];
      }
    }
    check_inputs_->send();
    if (mode_ != core::Mode::compare) return;
    // Verify is timed with correct parity, the usual case.
    const std::shared_ptr<const core::Prepared> prepared = backend_.prepare(what_);
    core::Control control;
    const core::Task task = task_of(*prepared, *inputs_, *outputs_, 0, template_.shard_bytes, core::Mode::assign);
    backend_.run(std::span(&task, 1), control);
    outputs_->fetch();
    if (!columns_are_right()) fail_default();
  }

  [[noreturn]] void fail_default() const {
    base::fail(TANDEM_ERROR_INTERNAL,
               base::format("backend {} computes wrong bytes for {} ({}, {}) with its own values",
                            backend_.traits().name, core::tuned_operation_name(at_.operation), at_.k, at_.m));
  }

  // Some bytes of the large outputs, including the first and the last.
  bool columns_are_right() const {
    const std::uint64_t last = template_.shard_bytes - 1, count = std::min(kCheckedColumns, last + 1);
    for (std::uint64_t i = 0; i < count; ++i) {
      // Not last * i / count, which could overflow. The odd stride avoids multiples of every block size.
      const std::uint64_t at = i + 1 == count ? last : std::min(last, i * (last / count | 1));
      for (unsigned r = 0; r < matrix_.rows(); ++r)
        if (std::to_integer<std::uint8_t>((*outputs_)[r][at]) != product_at(matrix_, *inputs_, r, at)) return false;
    }
    return true;
  }

  // Runs this candidate on the small shards, also on a range that is neither all of them nor at their start.
  bool is_right(const core::Prepared &prepared) {
    const std::uint64_t offset = whole(5 + granularity_bytes_ - 1), length = check_bytes_ - offset - 12;
    for (const bool last_too : {false, true}) {
      if (!check_range(prepared, 0, check_bytes_, last_too)) return false;
      if (!check_range(prepared, offset, whole(length), last_too)) return false;
      if (mode_ != core::Mode::compare) break;
    }
    return true;
  }

  // A compare must find this difference. Without the last byte, a product that is wrong there also shows as an extra
  // difference.
  static std::vector<std::uint64_t> flipped(std::uint64_t offset, std::uint64_t length, bool last_too) {
    if (!last_too) return {offset + length / 3};
    return {offset, offset + length / 3, offset + length - 1};
  }

  bool check_range(const core::Prepared &prepared, std::uint64_t offset, std::uint64_t length, bool last_too) {
    constexpr std::byte kBefore{0xa5}, kFlip{0x40};
    const unsigned rows = matrix_.rows();
    const std::uint64_t bytes = check_bytes_ + kCheckMargin, end = offset + length;
    for (unsigned r = 0; r < rows; ++r) {
      if (mode_ != core::Mode::compare) {
        std::memset((*check_outputs_)[r], std::to_integer<int>(kBefore), bytes);
        continue;
      }
      std::memcpy((*check_outputs_)[r], products_[r].data(), bytes);
      for (const std::uint64_t i : flipped(offset, length, last_too)) (*check_outputs_)[r][i] ^= kFlip;
      (*check_outputs_)[r][end] ^= kFlip;  // outside: must not be found
      if (offset != 0) (*check_outputs_)[r][offset - 1] ^= kFlip;
    }
    std::vector<core::Mismatch> found(rows);
    core::Control control;
    check_outputs_->send();
    core::Task task = task_of(prepared, *check_inputs_, *check_outputs_, offset, length, mode_);
    task.mismatches = found.data();
    backend_.run(std::span(&task, 1), control);
    check_outputs_->fetch();

    for (unsigned r = 0; r < rows; ++r) {
      if (mode_ == core::Mode::compare) {
        const std::vector<std::uint64_t> places = flipped(offset, length, last_too);
        const core::Mismatch want = {places.size(), places.front()};
        if (found[r].byte_count != want.byte_count || found[r].first_bytes != want.first_bytes) return false;
        continue;
      }
      for (std::uint64_t i = 0; i < bytes; ++i) {
        const bool inside = i >= offset && i < end;
        const std::byte sum = mode_ == core::Mode::accumulate ? products_[r][i] ^ kBefore : products_[r][i];
        if ((*check_outputs_)[r][i] != (inside ? sum : kBefore)) return false;
      }
    }
    return true;
  }

  Entry at(const Candidate &of) const {
    Entry entry = template_;
    entry.values = of.values;
    return entry;
  }

  void give_up(Candidate &of, Failure failure, bool for_good = true) {
    of.failure = failure;
    of.prepared = nullptr;
    ++(failure == Failure::refused ? run_.result.refused_count : run_.result.wrong_count);
    if (for_good) run_.journal.add_failure(at(of), failure);
    if (failure == Failure::wrong && of.is_default) fail_default();
  }

  // Runs body. An Error of the device drops the candidate. Returns whether it still takes part.
  template <class Body>
  bool attempt(Candidate &of, const Body &body) {
    bool right = false;
    try {
      right = body();
    } catch (const base::Error &error) {
      if (error.status() == TANDEM_ERROR_CANCELLED) throw;
      last_refusal_ = error.what();
      // After a temporary error a device may run it next time.
      give_up(of, Failure::refused,
              error.status() != TANDEM_ERROR_DEVICE && error.status() != TANDEM_ERROR_OUT_OF_MEMORY);
      return false;
    }
    if (!right) give_up(of, Failure::wrong);
    return !of.failure;
  }

  // Whether compare reports correct bytes as correct.
  bool run_whole(const Candidate &of, std::uint64_t calls) {
    std::vector<core::Mismatch> found(matrix_.rows());
    core::Control control;
    core::Task task = task_of(*of.prepared, *inputs_, *outputs_, 0, template_.shard_bytes, mode_);
    task.mismatches = found.data();
    if (!run_.options.on_device) {
      for (std::uint64_t i = 0; i < calls; ++i) backend_.run(std::span(&task, 1), control);
    } else {
      std::deque<std::unique_ptr<core::Ticket>> under_way;
      for (std::uint64_t i = 0; i < calls || !under_way.empty();) {
        if (i < calls && under_way.size() < kMostUnderWay) {
          under_way.push_back(backend_.submit(std::span(&task, 1), control));
          ++i;
        } else {
          under_way.front()->wait();
          under_way.pop_front();
        }
      }
    }
    return std::all_of(found.begin(), found.end(),
                       [](const core::Mismatch &mismatch) { return mismatch.byte_count == 0; });
  }

  // Prepares it, checks it, and runs it once. Returns whether it still takes part.
  bool make_ready(Candidate &of) {
    if (of.prepared != nullptr) return true;
    return attempt(of, [&] {
      of.prepared = backend_.prepare_tuned(what_, of.values);
      if (!is_right(*of.prepared)) return false;
      if (mode_ != core::Mode::compare)
        for (unsigned r = 0; r < matrix_.rows(); ++r)
          std::memset((*outputs_)[r], mode_ == core::Mode::assign ? 0xa5 : 0, template_.shard_bytes);
      if (mode_ != core::Mode::compare) outputs_->send();
      if (!run_whole(of, 1)) return false;  // a first run may compile or allocate
      outputs_->fetch();
      if (mode_ != core::Mode::compare && !columns_are_right()) return false;
      const double before = run_.hooks.seconds();
      run_whole(of, 1);
      const double one = std::max(run_.hooks.seconds() - before, 1e-9);
      of.calls = static_cast<std::uint64_t>(
          std::clamp(std::ceil(run_.options.sample_seconds / one), 1.0, static_cast<double>(kMostCalls)));
      return true;
    });
  }

  // One repeat, in bytes of data per second; 0 if the candidate was dropped.
  double measure(Candidate &of) {
    if (!make_ready(of)) return 0;
    double rate = 0;
    attempt(of, [&] {
      run_whole(of, 1);  // brings caches and clocks into the state of a repeat
      const double before = run_.hooks.seconds();
      run_whole(of, of.calls);
      const double seconds = std::max(run_.hooks.seconds() - before, 1e-9);
      rate = data_bytes_ * static_cast<double>(of.calls) / seconds;
      return true;
    });
    return of.failure ? 0 : rate;
  }

  Candidate *best() {
    Candidate *found = nullptr;
    for (auto &[values, each] : candidates_)
      if (each.timed() && (found == nullptr || each.rate() > found->rate())) found = &each;
    return found;
  }

  unsigned least_samples() const { return std::min(kLeastSamples, run_.options.repeats); }
  unsigned comparison_turns() const { return std::max(kLeastComparisons, run_.options.repeats); }

  // All except the backend's own values and the best so far, which the others are compared with.
  void drop_slow(const std::vector<Candidate *> &racing) {
    const auto has_enough = [&](const Candidate *each) {
      return each->alive() && each->bytes_per_second.size() >= least_samples();
    };
    double fastest = 0;
    for (const Candidate *each : racing)
      if (has_enough(each)) fastest = std::max(fastest, each->rate());
    for (Candidate *each : racing) {
      if (each == default_ || each == base_ || !has_enough(each) || each->rate() >= fastest / kDropFactor) continue;
      each->dropped = true;
      each->prepared = nullptr;
      ++run_.result.dropped_count;
    }
  }

  // comparison_left: repeats of the last comparison still to do.
  void tell(const std::vector<Candidate *> &racing, std::uint64_t comparison_left) {
    std::uint64_t left = other_repeats_ + comparison_left;
    for (const Candidate *each : racing)
      if (each->alive())
        left += run_.options.repeats - std::min<std::size_t>(run_.options.repeats, each->bytes_per_second.size());
    const Candidate *fastest = best();
    Progress progress = {};
    progress.at = at_;
    progress.best = fastest != nullptr ? &fastest->values : nullptr;
    progress.best_bytes_per_second = fastest != nullptr ? fastest->rate() : 0;
    progress.default_bytes_per_second = default_->timed() ? default_->rate() : 0;
    run_.tell(progress, left);
  }

  void add_sample(Candidate &of, double rate) {
    of.bytes_per_second.push_back(rate);
    run_.journal.add_sample(at(of), rate);
    ++run_.done_count;
  }

  // The journal may be from another day. Its rates are scaled by the change of the backend's own values since then.
  void recall_default() {
    recalled_.insert(default_);
    ++run_.result.candidate_count;
    const Measurement known = run_.journal.measured(at(*default_));
    if (known.failure || known.bytes_per_second.empty()) return;
    for (unsigned i = 0; i < least_samples(); ++i) {
      if (i != 0 && run_.elapsed() >= search_deadline_) break;
      tell({default_}, comparison_turns());
      const double rate = measure(*default_);
      if (rate <= 0) return;
      add_sample(*default_, rate);
    }
    now_over_then_ = default_->rate() / median(known.bytes_per_second);
  }

  // Takes over its measurements from the journal.
  void recall(Candidate &of) {
    if (!recalled_.insert(&of).second) return;
    ++run_.result.candidate_count;
    const Measurement known = run_.journal.measured(at(of));
    if (known.failure && !of.is_default) {
      of.failure = known.failure;
      ++(*known.failure == Failure::refused ? run_.result.refused_count : run_.result.wrong_count);
      return;
    }
    of.bytes_per_second = known.bytes_per_second;
    if (of.bytes_per_second.size() > run_.options.repeats) of.bytes_per_second.resize(run_.options.repeats);
    for (double &rate : of.bytes_per_second) rate *= now_over_then_;
    run_.result.known_count += of.bytes_per_second.size();
    run_.done_count += of.bytes_per_second.size();
  }

  // Round-robin: one repeat of each candidate; the next round begins one candidate later.
  void race(std::vector<Candidate *> racing, double deadline) {
    if (base_ != nullptr) put_first(racing, base_);
    put_first(racing, default_);  // the reference for the others, and the result if time is short
    for (Candidate *each : racing) recall(*each);
    const bool is_new = std::any_of(racing.begin(), racing.end(), [&](const Candidate *each) {
      return each->alive() && (each->score == 0 || each->bytes_per_second.size() < run_.options.repeats);
    });
    if (!is_new) return;
    for (Candidate *each : {default_, base_})  // rates of an earlier race were measured under other conditions
      if (each != nullptr && each->alive() && each->score > 0) each->bytes_per_second.clear();
    drop_slow(racing);
    run_race(racing, deadline);
    score(racing);
    tell(racing, comparison_turns());
  }

  static void put_first(std::vector<Candidate *> &list, Candidate *one) {
    std::erase(list, one);
    list.insert(list.begin(), one);
  }

  void run_race(const std::vector<Candidate *> &racing, double deadline) {
    for (unsigned repeat = 0; repeat < run_.options.repeats; ++repeat) {
      for (std::size_t turn = 0; turn < racing.size(); ++turn) {
        Candidate &now = *racing[(turn + repeat) % racing.size()];
        if (!now.alive() || now.bytes_per_second.size() > repeat) continue;
        const bool any = std::any_of(racing.begin(), racing.end(), [](const Candidate *each) { return each->timed(); });
        if (any && run_.elapsed() >= deadline) {
          cut_short_ = true;
          return;
        }
        tell(racing, comparison_turns());
        if (const double rate = measure(now); rate > 0) {
          add_sample(now, rate);
          drop_slow(racing);
        }
      }
    }
  }

  // Relative to the backend's own values in the same race, so that candidates of different races can be compared.
  void score(const std::vector<Candidate *> &racing) {
    const double own = default_->timed() ? default_->rate() : 1;
    std::vector<Candidate *> scored;
    for (Candidate *each : racing) {
      if (!each->timed()) continue;
      each->score = each->rate() / own;
      if (!each->dropped) scored.push_back(each);
    }
    if (!scored.empty()) base_ = simplest(scored, [](const Candidate *each) { return each->score; });
  }

  unsigned changes(const Candidate &of) const {
    unsigned count = 0;
    for (const auto &[name, value] : of.values) count += default_->values.at(name) != value;
    return count;
  }

  // Among the candidates as good as the best, within noise: the one with most of the backend's own values.
  template <class Rating>
  Candidate *simplest(const std::vector<Candidate *> &list, const Rating &rating) const {
    double best = 0;
    for (const Candidate *each : list) best = std::max(best, rating(each));
    Candidate *found = nullptr;
    for (Candidate *each : list) {
      if (rating(each) * kLeastGain < best) continue;
      if (found == nullptr || changes(*each) < changes(*found) ||
          (changes(*each) == changes(*found) && rating(each) > rating(found)))
        found = each;
    }
    return found;
  }

  // The backend's own values and the best others that can run.
  std::vector<Candidate *> finalists() {
    std::vector<Candidate *> others;
    for (auto &[values, each] : candidates_)
      if (each.score > 0 && !each.failure && !each.is_default) others.push_back(&each);
    std::stable_sort(others.begin(), others.end(),
                     [](const Candidate *a, const Candidate *b) { return a->score > b->score; });
    if (others.size() > kFinalists) others.resize(kFinalists);
    if (base_ != nullptr && !base_->failure && !base_->is_default &&
        std::find(others.begin(), others.end(), base_) == others.end())
      others.push_back(base_);
    if (!default_->failure) others.insert(others.begin(), default_);
    return others;
  }

  using Rates = std::map<const Candidate *, std::vector<double>>;

  // In turns with the backend's own values: a single fast turn does not decide.
  Candidate *winner_of(const std::vector<Candidate *> &list, const Rates &rates) const {
    if (default_->failure) return simplest(list, [&](const Candidate *each) { return median(rates.at(each)); });
    const std::vector<double> &own = rates.at(default_);
    std::map<const Candidate *, double> gains;
    std::vector<Candidate *> better;
    for (Candidate *each : list) {
      std::vector<double> ratios;
      for (std::size_t turn = 0; turn < own.size(); ++turn) ratios.push_back(rates.at(each)[turn] / own[turn]);
      const auto wins =
          static_cast<std::size_t>(std::count_if(ratios.begin(), ratios.end(), [](double ratio) { return ratio > 1; }));
      gains[each] = std::min(median(ratios), median(rates.at(each)) / median(own));
      if (gains[each] >= kLeastGain && 5 * wins >= 4 * ratios.size()) better.push_back(each);
    }
    return better.empty() ? default_ : simplest(better, [&](const Candidate *each) { return gains.at(each); });
  }

  // If a candidate fails now, the next best takes its place.
  Entry last_comparison() {
    for (;;) {
      const std::vector<Candidate *> last = finalists();
      if (last.empty()) fail_all();
      Rates rates;
      if (!compare_in_turns(last, rates)) continue;
      tell({}, 0);
      const Candidate *winner = winner_of(last, rates);
      Entry entry = at(*winner);
      entry.bytes_per_second = median(rates[winner]);
      entry.default_bytes_per_second = default_->failure ? 0 : median(rates[default_]);
      return entry;
    }
  }

  // False: a candidate failed.
  bool compare_in_turns(const std::vector<Candidate *> &list, Rates &rates) {
    for (unsigned repeat = 0; repeat < comparison_turns(); ++repeat) {
      if (repeat >= kLeastComparisons && run_.elapsed() >= deadline_) {
        cut_short_ = true;
        return true;
      }
      tell({}, comparison_turns() - repeat);
      for (std::size_t turn = 0; turn < list.size(); ++turn) {
        Candidate &now = *list[(turn + repeat) % list.size()];
        const double rate = measure(now);
        if (now.failure) return false;
        rates[&now].push_back(rate);
      }
      ++run_.done_count;
    }
    return true;
  }

  // Another matrix of the same shape, which no cache has.
  core::Operator new_matrix() const {
    std::random_device random;
    if (const auto *form = std::get_if<core::CauchyTransform>(&what_.form())) {  // its program may have the points
      core::CauchyTransform other = *form;
      other.output_scales.resize(other.output_points.size());
      for (core::Element &scale : other.output_scales) scale = static_cast<core::Element>(1 + random() % 255);
      return {std::move(other), what_.granularity_bytes()};
    }
    core::Matrix matrix(matrix_.rows(), matrix_.columns());
    for (unsigned r = 0; r < matrix.rows(); ++r)
      for (unsigned c = 0; c < matrix.columns(); ++c) matrix.at(r, c) = static_cast<std::uint8_t>(1 + random() % 255);
    return {std::move(matrix), what_.granularity_bytes()};
  }

  double seconds_of_run(const core::Prepared &prepared) {
    core::Control control;
    const core::Task task = task_of(prepared, *inputs_, *outputs_, 0, template_.shard_bytes, core::Mode::assign);
    const double before = run_.hooks.seconds();
    backend_.run(std::span(&task, 1), control);
    return run_.hooks.seconds() - before;
  }

  // Overwrites the outputs, so it is the last step of a search. Assign stands for every mode: the cost is that of the
  // matrix, and compare would find differences everywhere.
  std::uint64_t switch_over_bytes(const core::TuningParameter &parameter, core::TuningValues values) {
    std::vector<double> costs, with, without;
    try {
      values[parameter.name] = core::kMostTuningValue;
      const std::shared_ptr<const core::Prepared> never = backend_.prepare_tuned(new_matrix(), values);
      seconds_of_run(*never);
      values[parameter.name] = 0;
      for (unsigned repeat = 0; repeat < kLeastComparisons; ++repeat) {
        if (repeat != 0 && run_.elapsed() >= deadline_) {
          cut_short_ = true;
          break;
        }
        tell({}, 0);
        const std::shared_ptr<const core::Prepared> at_once = backend_.prepare_tuned(new_matrix(), values);
        const double first = seconds_of_run(*at_once);
        with.push_back(seconds_of_run(*at_once));
        costs.push_back(first - with.back());
        without.push_back(seconds_of_run(*never));
      }
    } catch (const base::Error &error) {
      if (error.status() == TANDEM_ERROR_CANCELLED) throw;
      return parameter.value;
    }
    const double cost = median(costs), gain = median(without) - median(with);
    if (cost <= 0) return 0;
    const double bytes_of_run = static_cast<double>(matrix_.columns()) * static_cast<double>(template_.shard_bytes);
    const double bytes = gain <= 0 ? HUGE_VAL : cost / gain * bytes_of_run;
    return bytes < static_cast<double>(core::kMostTuningValue) ? static_cast<std::uint64_t>(bytes)
                                                               : core::kMostTuningValue;
  }

  [[noreturn]] void fail_all() const {
    std::uint64_t refused = 0, wrong = 0;
    for (const auto &[values, each] : candidates_) {
      refused += each.failure == Failure::refused;
      wrong += each.failure == Failure::wrong;
    }
    base::fail(TANDEM_ERROR_UNAVAILABLE,
               base::format(
                   "{} of {} candidates for {} ({}, {}) were refused by {}, {} gave wrong bytes; none is left{}{}",
                   refused, candidates_.size(), core::tuned_operation_name(at_.operation), at_.k, at_.m,
                   backend_.traits().name, wrong, last_refusal_.empty() ? "" : ". The last refusal: ", last_refusal_));
  }

  core::Backend &backend_;
  const Case at_;
  Run &run_;
  const core::Operator what_;
  const core::Matrix &matrix_ = what_.dense();
  const std::uint64_t granularity_bytes_;
  const core::Mode mode_;
  const std::vector<core::TuningParameter> parameters_;
  const std::uint64_t other_repeats_;
  Entry template_;  // all but values and rates
  double data_bytes_;
  double started_, deadline_, search_deadline_ = HUGE_VAL;
  bool cut_short_ = false;

  std::map<core::TuningValues, Candidate> candidates_;
  std::set<const Candidate *> recalled_;
  Candidate *default_;
  Candidate *base_ = nullptr;  // the best so far
  double now_over_then_ = 1;
  std::string last_refusal_;

  std::optional<Shards> inputs_, outputs_, check_inputs_, check_outputs_;
  std::uint64_t check_bytes_ = 0;
  std::vector<std::vector<std::byte>> products_;
};

// In the form of the keys of entries, each once.
std::vector<Case> distinct(const std::vector<Case> &cases) {
  std::vector<Case> list;
  for (Case at : cases) {
    if (at.k < 1 || at.m < 1 || at.k > core::kMaxShards || at.m > core::kMaxShards || at.k + at.m > core::kMaxShards) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
                 base::format("({}, {}) cannot be tuned: k and m are at least 1 and together at most {}", at.k, at.m,
                              core::kMaxShards));
    }
    if (at.operation == core::TunedOperation::update) at.k = 1;
    const bool known = std::any_of(list.begin(), list.end(), [&](const Case &other) {
      return other.operation == at.operation && other.k == at.k && other.m == at.m;
    });
    if (!known) list.push_back(at);
  }
  if (list.empty()) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "no operation, k or m to tune");
  return list;
}

}  // namespace

Result autotune(core::Backend &backend, const Options &options, Journal &journal, const Hooks &hooks) {
  if (options.repeats == 0) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "at least 1 repeat is needed");
  const std::vector<Case> cases = distinct(options.cases);
  if (options.on_device) backend.device_memory(kLine);  // reports early if there is none
  Run run(options, journal, hooks);
  // All cases are checked before the first is measured, so that wrong ranges are reported at once.
  std::vector<std::uint64_t> planned;
  std::vector<Entry> places;
  for (const Case &at : cases) {
    const Search search(backend, at, run, 0, 0);
    planned.push_back(search.planned_repeats());
    places.push_back(search.place());
  }
  if (journal.fresh()) journal.forget(places);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    std::uint64_t after = 0;
    for (std::size_t j = i + 1; j < cases.size(); ++j) after += planned[j];
    const double seconds = options.max_seconds > 0 ? std::max(options.max_seconds - run.elapsed(), 1e-3) /
                                                         static_cast<double>(cases.size() - i)
                                                   : 0;
    Search search(backend, cases[i], run, seconds, after);
    const Entry entry = search.find_best();
    run.result.improved_count += entry.bytes_per_second > entry.default_bytes_per_second;
    run.result.entries.push_back(entry);
    if (hooks.found) hooks.found(entry, search.complete());
  }
  return run.result;
}

}  // namespace tandem::tuning
