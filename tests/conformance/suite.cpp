// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/suite.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "core/codec.hpp"
#include "core/plan.hpp"
#include "cpu/factory.hpp"
#include "tests/base/errors.hpp"
#include "tests/conformance/forms.hpp"
#include "tests/conformance/layouts.hpp"
#include "tests/support/random.hpp"
#include "tests/support/reference16.hpp"
#include "tests/support/slice.hpp"
#include "tests/support/structs.hpp"

namespace tandem::test {

std::shared_ptr<core::Backend> cpu_reference(std::function<void()> before) {
  class Reference final : public core::Backend {
   public:
    explicit Reference(std::function<void()> before) : before_(std::move(before)) {
      cpu::Options options;
      options.executor = "serial";
      cpu::Decisions choice = {};
      cpu_ = cpu::make_backend(options, {}, &choice);
    }
    const core::Traits &traits() const noexcept override { return cpu_->traits(); }
    std::shared_ptr<const core::Prepared> prepare(const core::Operator &what) override { return cpu_->prepare(what); }
    void run(std::span<const core::Task> tasks, core::Control &control) override {
      if (before_) before_();
      cpu_->run(tasks, control);
    }

   private:
    const std::function<void()> before_;
    std::unique_ptr<core::Backend> cpu_;
  };
  return std::make_shared<Reference>(std::move(before));
}

namespace {

using core::Control;
using core::Matrix;
using core::Mismatch;
using core::Mode;
using core::Task;

constexpr std::uint64_t kSeed = 77001;
// Bytes of a shard: enough to be cut into chunks, and odd.
constexpr std::size_t kLarge = kThinning == 1 ? 600'011 : 150'011;

Matrix random_matrix(Random &random, unsigned rows, unsigned columns) {
  Matrix matrix(rows, columns);
  for (unsigned r = 0; r < rows; ++r) random.fill(matrix.row(r).data(), columns);
  return matrix;
}

std::uint64_t granularity() { return BackendConformance::GetParam().granularity_bytes; }

// At least so many bytes that ranges may be cut there.
std::size_t whole(std::size_t bytes) { return (bytes + granularity() - 1) / granularity() * granularity(); }

// One stripe's buffers, and the task on them.
struct Stripe {
  Stripe(Random &random, core::Backend &backend, const Matrix &coefficients, std::size_t bytes)
      : Stripe(random, backend, core::Form(core::Dense{coefficients}), bytes) {}
  Stripe(Random &random, core::Backend &backend, const core::Form &form, std::size_t bytes)
      : matrix(core::Operator(form).dense()),
        shard_bytes(whole(bytes)),
        prepared(backend.prepare(core::Operator(form, granularity()))) {
    for (unsigned c = 0; c < matrix.columns(); ++c) inputs.push_back(random.bytes(shard_bytes));
    collect(random, matrix.rows());
  }
  // A stripe of an operator over GF(2^16): these inputs, and the product that is known.
  Stripe(Random &random, std::shared_ptr<const core::Prepared> of, const Shards &given, const Shards &right)
      : shard_bytes(given[0].size()), prepared(std::move(of)), inputs(given), known_product(right) {
    collect(random, right.size());
  }
  Stripe(const Stripe &) = delete;
  Stripe &operator=(const Stripe &) = delete;

  Task task(Mode mode) { return range(mode, 0, shard_bytes); }
  Task range(Mode mode, std::uint64_t offset, std::uint64_t length) {
    return {prepared.get(),
            input_pointers.data(),
            output_pointers.data(),
            offset,
            length,
            mode,
            mode == Mode::compare ? mismatches.data() : nullptr};
  }

  Shards product() const {
    if (!known_product.empty()) return known_product;
    std::vector<const std::uint8_t *> pointers;
    Shards read = inputs;
    for (Bytes &input : read) {
      if (BackendConformance::GetParam().reverses_groups) reverse_groups(granularity(), &input);
      pointers.push_back(input.data());
    }
    return expected(matrix.data(), matrix.rows(), matrix.columns(), pointers.data(), shard_bytes);
  }

  // What the outputs hold after `mode` on [offset, offset + length), having held `before`.
  __attribute__((no_sanitize("thread"))) Shards wanted(Mode mode, std::size_t offset, std::size_t length) const {
    Shards want = before;
    const Shards all = product();
    for (unsigned r = 0; r < want.size(); ++r)
      for (std::size_t i = offset; i < offset + length; ++i)
        want[r][i] = mode == Mode::accumulate ? static_cast<std::uint8_t>(before[r][i] ^ all[r][i]) : all[r][i];
    return want;
  }

  void reset() {
    for (unsigned r = 0; r < outputs.size(); ++r) std::memcpy(outputs[r].data(), before[r].data(), shard_bytes);
  }

  Matrix matrix;
  std::size_t shard_bytes;
  std::shared_ptr<const core::Prepared> prepared;
  Shards inputs, outputs, before, known_product;
  std::vector<const std::byte *> input_pointers;
  std::vector<std::byte *> output_pointers;
  std::vector<Mismatch> mismatches;

 private:
  void collect(Random &random, std::size_t rows) {
    for (std::size_t r = 0; r < rows; ++r) outputs.push_back(random.bytes(shard_bytes));
    before = outputs;
    for (const Bytes &input : inputs) input_pointers.push_back(reinterpret_cast<const std::byte *>(input.data()));
    for (Bytes &output : outputs) output_pointers.push_back(reinterpret_cast<std::byte *>(output.data()));
    mismatches.resize(rows);
  }
};

void run(core::Backend &backend, const std::vector<Task> &tasks) {
  Control control;
  backend.run(tasks, control);
}

TEST_P(BackendConformance, TraitsMakeSense) {
  const core::Traits &traits = backend_->traits();
  EXPECT_FALSE(traits.name.empty());
  EXPECT_GE(traits.lanes, 1u);
  EXPECT_FALSE(traits.memories.empty());
}

// Every mode on the whole and on a range. In the comparison about half of the outputs have one wrong byte.
void check_modes(core::Backend &backend, Stripe &stripe, Random &random) {
  SCOPED_TRACE(testing::Message() << stripe.outputs.size() << " x " << stripe.inputs.size() << ", "
                                  << stripe.shard_bytes << " bytes");
  for (const Mode mode : {Mode::accumulate, Mode::assign}) {
    stripe.reset();
    run(backend, {stripe.task(mode)});
    ASSERT_EQ(stripe.outputs, stripe.wanted(mode, 0, stripe.shard_bytes));
  }
  std::vector<std::uint64_t> wrong(stripe.outputs.size(), Mismatch::kNone);
  for (std::size_t r = 0; r < wrong.size(); ++r)
    if (random.chance(50)) stripe.outputs[r][wrong[r] = random.below(stripe.shard_bytes)] ^= 1;
  stripe.mismatches.assign(wrong.size(), {});
  run(backend, {stripe.task(Mode::compare)});
  for (std::size_t r = 0; r < wrong.size(); ++r) {
    ASSERT_EQ(stripe.mismatches[r].byte_count, wrong[r] != Mismatch::kNone ? 1u : 0u) << "output " << r;
    ASSERT_EQ(stripe.mismatches[r].first_bytes, wrong[r]) << "output " << r;
  }
  // The last unit is shorter where the format has a tail.
  const std::uint64_t grain = stripe.prepared->granularity_bytes(), units = (stripe.shard_bytes + grain - 1) / grain;
  const std::uint64_t first = random.below(units), count = random.between(1, units - first);
  const std::size_t offset = first * grain, length = std::min(count * grain, stripe.shard_bytes - offset);
  for (const Mode mode : {Mode::accumulate, Mode::assign}) {
    stripe.reset();
    run(backend, {stripe.range(mode, offset, length)});
    ASSERT_EQ(stripe.outputs, stripe.wanted(mode, offset, length)) << length << " bytes at " << offset;
  }
}

std::uint64_t salt() { return std::hash<std::string>()(BackendConformance::GetParam().name); }

TEST_P(BackendConformance, ModesAndRanges) {
  Random random(kSeed);
  Slice slice(3, salt());
  const auto check = [&](unsigned rows, unsigned columns, std::size_t bytes) {
    if (!slice.takes()) return;
    Stripe stripe(random, *backend_, random_matrix(random, rows, columns), bytes);
    check_modes(*backend_, stripe, random);
  };
  for (const auto &[rows, columns] :
       {std::pair{1u, 1u}, {1u, 4u}, {2u, 3u}, {4u, 10u}, {3u, 20u}, {9u, 6u}, {17u, 33u}})
    for (const std::size_t bytes : {1, 100, 4097, 70'001})
      if (!HasFatalFailure()) check(rows, columns, bytes);
  for (const auto &[rows, columns] : {std::pair{255u, 1u}, {1u, 255u}, {128u, 128u}, {32u, 64u}})
    if (!HasFatalFailure()) check(rows, columns, 1031);
  for (unsigned trial = 0; trial < 4 && !HasFatalFailure(); ++trial) check(4, 7, kLarge);
}

// More inputs and outputs than GF(2^8) has elements, in small calls and in ones that are cut.
TEST_P(BackendConformance, MoreShardsThanAFieldHasElements) {
  Random random(kSeed + 18);
  for (const auto &[rows, columns, bytes] : {std::tuple{300u, 300u, 100u}, {300u, 3u, 20'000u}, {3u, 300u, 20'000u}}) {
    std::optional<Stripe> stripe;
    const Matrix matrix = random_matrix(random, rows, columns);
    const tandem_status status =
        status_of([&, bytes = bytes] { stripe.emplace(random, *backend_, matrix, bytes); }).first;
    if (!GetParam().takes_any_count && status == TANDEM_ERROR_UNSUPPORTED) continue;
    ASSERT_EQ(status, TANDEM_OK);
    if (!HasFatalFailure()) check_modes(*backend_, *stripe, random);
  }
}

// No outputs: nothing to do. No inputs: the sum of nothing is zero, so assign writes zeros.
TEST_P(BackendConformance, NoRowsOrNoColumns) {
  Random random(kSeed + 3);
  for (const std::size_t bytes : {whole(333), whole(kLarge)}) {
    Stripe no_rows(random, *backend_, Matrix(0, 3), bytes);
    for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare}) run(*backend_, {no_rows.task(mode)});

    Stripe no_columns(random, *backend_, Matrix(2, 0), bytes);
    run(*backend_, {no_columns.task(Mode::accumulate)});
    EXPECT_EQ(no_columns.outputs, no_columns.before) << "accumulate of nothing changed something";
    run(*backend_, {no_columns.task(Mode::compare)});
    EXPECT_NE(no_columns.mismatches[0].byte_count, 0u) << "random bytes were taken for zeros";
    run(*backend_, {no_columns.task(Mode::assign)});
    EXPECT_EQ(no_columns.outputs, Shards(2, Bytes(bytes, 0)));

    Stripe nothing(random, *backend_, Matrix(0, 0), bytes);
    run(*backend_, {nothing.task(Mode::assign)});
  }
}

TEST_P(BackendConformance, EmptyRunAndEmptyRange) {
  Random random(kSeed + 4);
  run(*backend_, {});
  Stripe stripe(random, *backend_, random_matrix(random, 2, 2), 100);
  for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare})
    run(*backend_, {stripe.range(mode, whole(40), 0)});
  EXPECT_EQ(stripe.outputs, stripe.before);
  EXPECT_EQ(stripe.mismatches[0].byte_count, 0u);
  Control control;
  backend_->submit({}, control)->wait();
}

// Column independence: a byte range may be cut anywhere that the granularity allows, in any order, over one or several
// runs, and nothing outside a range is touched.
TEST_P(BackendConformance, RangesSplitAnywhere) {
  Random random(kSeed + 5);
  const std::uint64_t grain = granularity();
  for (unsigned trial = 0; trial < 12; ++trial) {
    const std::size_t bytes =
        grain * random.between(50, std::max<std::size_t>(90, (trial < 10 ? 9'000 : kLarge) / grain));
    Stripe stripe(random, *backend_, random_matrix(random, 3, 5), bytes);
    for (const Mode mode : {Mode::assign, Mode::accumulate}) {
      stripe.reset();
      std::vector<Task> tasks;
      for (std::size_t at = 0; at < bytes;) {
        const std::size_t length = std::min<std::size_t>(bytes - at, grain * random.between(1, 1 + bytes / grain / 6));
        tasks.push_back(stripe.range(mode, at, length));
        at += length;
      }
      for (std::size_t i = tasks.size(); i > 1; --i) std::swap(tasks[i - 1], tasks[random.below(i)]);
      const std::size_t half = tasks.size() / 2;
      run(*backend_, {tasks.begin(), tasks.begin() + static_cast<std::ptrdiff_t>(half)});
      run(*backend_, {tasks.begin() + static_cast<std::ptrdiff_t>(half), tasks.end()});
      ASSERT_EQ(stripe.outputs, stripe.wanted(mode, 0, bytes)) << tasks.size() << " ranges of " << bytes;
    }
  }
}

// `stripe` makes each stripe.
template <class Make>
void run_together(core::Backend &backend, unsigned count, Make &&stripe) {
  std::vector<std::unique_ptr<Stripe>> stripes;
  std::vector<Task> tasks;
  for (unsigned i = 0; i < count; ++i) {
    Stripe &made = *stripes.emplace_back(stripe(i, stripes));
    const std::uint64_t offset = std::min<std::uint64_t>(i % 3 * granularity(), made.shard_bytes - granularity());
    tasks.push_back(made.range(i % 5 < 2 ? Mode::accumulate : Mode::assign, offset, made.shard_bytes - offset));
  }
  run(backend, tasks);
  for (unsigned i = 0; i < count; ++i)
    ASSERT_EQ(stripes[i]->outputs, stripes[i]->wanted(tasks[i].mode, tasks[i].offset_bytes, tasks[i].length_bytes))
        << i << " of " << count;
}

// As tandem_encode_stripes and tandem_decode_stripes bring them: devices take those of one matrix together.
TEST_P(BackendConformance, ManySmallStripesOfAFewMatrices) {
  Random random(kSeed + 8);
  run_together(*backend_, 80, [&](unsigned i, const auto &before) {
    const std::size_t bytes = i == 17 ? 70'001 : 1 + random.below(3000);
    auto made = std::make_unique<Stripe>(random, *backend_, random_matrix(random, 2 + i % 2, 4), bytes);
    if (i >= 4) {  // the matrix of one before it
      made->prepared = before[i % 4]->prepared;
      made->matrix = before[i % 4]->matrix;
    }
    return made;
  });
}

TEST_P(BackendConformance, ManyTasksInOneRun) {
  Random random(kSeed + 7);
  for (const unsigned count : {2u, 40u, 700u}) {
    run_together(*backend_, count, [&](unsigned i, const auto &) {
      const std::size_t bytes = i % 50 == 7 ? random.between(50'000, 90'000) : random.between(1, 2'000);
      const auto rows = static_cast<unsigned>(random.between(1, 4)),
                 columns = static_cast<unsigned>(random.between(1, 6));
      return std::make_unique<Stripe>(random, *backend_, random_matrix(random, rows, columns), bytes);
    });
    if (HasFatalFailure()) return;
  }
}

// Compare changes no buffer, and tells for each output how many bytes differ and where the first one is.
TEST_P(BackendConformance, CompareCountsDifferences) {
  Random random(kSeed + 8);
  for (const std::size_t bytes : {whole(5), whole(3000), whole(kLarge)}) {
    Stripe stripe(random, *backend_, random_matrix(random, 5, 4), bytes);
    stripe.outputs = stripe.product();
    for (unsigned r = 0; r < 5; ++r)
      stripe.output_pointers[r] = reinterpret_cast<std::byte *>(stripe.outputs[r].data());
    run(*backend_, {stripe.task(Mode::compare)});
    for (const Mismatch &each : stripe.mismatches) {
      ASSERT_EQ(each.byte_count, 0u);
      ASSERT_EQ(each.first_bytes, Mismatch::kNone);
    }
    std::vector<Mismatch> want(5);
    for (const unsigned r : {0u, 3u, 4u}) {
      const std::size_t wrong_count = r == 4 ? bytes : 1 + random.below(5);
      std::vector<bool> wrong(bytes);
      for (std::size_t i = 0; i < wrong_count; ++i) wrong[r == 4 ? i : random.below(bytes)] = true;
      if (r == 3) wrong[bytes - 1] = true;
      for (std::size_t i = 0; i < bytes; ++i) {
        if (!wrong[i]) continue;
        stripe.outputs[r][i] ^= static_cast<std::uint8_t>(1 + random.below(255));
        ++want[r].byte_count;
        want[r].first_bytes = std::min<std::uint64_t>(want[r].first_bytes, i);
      }
    }
    const Shards damaged = stripe.outputs;
    run(*backend_, {stripe.task(Mode::compare)});
    EXPECT_EQ(stripe.outputs, damaged) << "compare wrote";
    for (unsigned r = 0; r < 5; ++r) {
      ASSERT_EQ(stripe.mismatches[r].byte_count, want[r].byte_count) << "output " << r << " of " << bytes << " bytes";
      ASSERT_EQ(stripe.mismatches[r].first_bytes, want[r].first_bytes) << "output " << r;
    }
  }
}

// Several tasks, and what was found before, go into one record; offsets count from the start of the shard.
TEST_P(BackendConformance, MismatchesAreMerged) {
  Random random(kSeed + 9);
  const std::uint64_t grain = granularity();
  const std::size_t bytes = 4000 * grain, cut = 1500 * grain;
  Stripe stripe(random, *backend_, random_matrix(random, 2, 3), bytes);
  run(*backend_, {stripe.task(Mode::assign)});
  stripe.outputs[1][cut - 1] ^= 1;
  stripe.outputs[1][cut] ^= 2;
  stripe.outputs[1][bytes - 1] ^= 3;
  run(*backend_, {stripe.range(Mode::compare, cut, bytes - cut), stripe.range(Mode::compare, 0, cut)});
  EXPECT_EQ(stripe.mismatches[0].byte_count, 0u);
  EXPECT_EQ(stripe.mismatches[1].byte_count, 3u);
  EXPECT_EQ(stripe.mismatches[1].first_bytes, cut - 1);
  run(*backend_, {stripe.range(Mode::compare, cut, bytes - cut)});
  EXPECT_EQ(stripe.mismatches[1].byte_count, 5u);
  EXPECT_EQ(stripe.mismatches[1].first_bytes, cut - 1);
}

TEST_P(BackendConformance, InputsMayAlias) {
  Random random(kSeed + 10);
  for (const std::size_t bytes : {std::size_t{777}, kLarge}) {
    Stripe stripe(random, *backend_, random_matrix(random, 3, 4), bytes);
    for (unsigned c = 1; c < 4; ++c) {
      stripe.inputs[c] = stripe.inputs[0];
      stripe.input_pointers[c] = stripe.input_pointers[0];
    }
    run(*backend_, {stripe.task(Mode::assign)});
    ASSERT_EQ(stripe.outputs, stripe.wanted(Mode::assign, 0, stripe.shard_bytes));
  }
}

TEST_P(BackendConformance, SeveralThreadsAtOnce) {
  constexpr unsigned kThreads = 6;
  std::vector<std::thread> threads;
  std::vector<std::string> wrong(kThreads);
  Random shared_random(kSeed + 11);
  const Matrix shared_matrix = random_matrix(shared_random, 3, 6);
  const auto shared = backend_->prepare({shared_matrix, granularity()});
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      try {
        Random random(kSeed + 100 + t);
        for (unsigned round = 0; round < 12; ++round) {
          const std::size_t bytes = round % 4 == 3 ? random.between(300'000, 500'000) : random.between(1, 5'000);
          Stripe stripe(random, *backend_, shared_matrix, bytes);
          if (round % 2 == 0) stripe.prepared = shared;
          const Mode mode = round % 3 == 0 ? Mode::accumulate : Mode::assign;
          run(*backend_, {stripe.task(mode)});
          if (stripe.outputs != stripe.wanted(mode, 0, stripe.shard_bytes))
            wrong[t] = "wrong bytes in round " + std::to_string(round);
        }
      } catch (const std::exception &error) {
        wrong[t] = error.what();
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  for (const std::string &each : wrong) EXPECT_EQ(each, "");
}

TEST_P(BackendConformance, SubmitThenWait) {
  Random random(kSeed + 12);
  for (const std::size_t bytes : {std::size_t{64}, kLarge}) {
    Stripe one(random, *backend_, random_matrix(random, 2, 3), bytes);
    Stripe two(random, *backend_, random_matrix(random, 3, 2), bytes);
    Control first_control, second_control;
    std::unique_ptr<core::Ticket> first, second;
    {
      const std::vector<Task> tasks = {one.task(Mode::assign)};  // the list itself need not stay
      first = backend_->submit(tasks, first_control);
    }
    second = backend_->submit(std::vector<Task>{two.task(Mode::accumulate)}, second_control);
    second->wait();
    first->wait();
    ASSERT_EQ(one.outputs, one.wanted(Mode::assign, 0, one.shard_bytes));
    ASSERT_EQ(two.outputs, two.wanted(Mode::accumulate, 0, two.shard_bytes));
    first->wait();  // over: returns at once
  }
}

TEST_P(BackendConformance, DestroyingATicketWaits) {
  Random random(kSeed + 13);
  Stripe stripe(random, *backend_, random_matrix(random, 4, 8), kLarge);
  Control control;
  backend_->submit(std::vector<Task>{stripe.task(Mode::assign)}, control).reset();
  ASSERT_EQ(stripe.outputs, stripe.wanted(Mode::assign, 0, stripe.shard_bytes));
}

// A run that was cancelled before it began does not run its large work; the backend is as good as before.
TEST_P(BackendConformance, CancelledBeforeItBegins) {
  Random random(kSeed + 14);
  Stripe stripe(random, *backend_, random_matrix(random, 4, 8), kLarge);
  Control control;
  control.cancel();
  EXPECT_EQ(status_of([&] { backend_->run(std::vector<Task>{stripe.task(Mode::assign)}, control); }).first,
            TANDEM_ERROR_CANCELLED);
  EXPECT_EQ(stripe.outputs, stripe.before) << "work was done after the cancel";
  const auto ticket = backend_->submit(std::vector<Task>{stripe.task(Mode::assign)}, control);
  EXPECT_EQ(status_of([&] { ticket->wait(); }).first, TANDEM_ERROR_CANCELLED);
  EXPECT_EQ(status_of([&] { ticket->wait(); }).first, TANDEM_ERROR_CANCELLED) << "the second wait forgot";
  run(*backend_, {stripe.task(Mode::assign)});
  EXPECT_EQ(stripe.outputs, stripe.wanted(Mode::assign, 0, stripe.shard_bytes));
}

// A cancel in the middle ends the run with CANCELLED, or comes too late and all bytes are there. Nothing is written
// after wait.
TEST_P(BackendConformance, CancelInTheMiddle) {
  Random random(kSeed + 15);
  Stripe stripe(random, *backend_, random_matrix(random, 3, 5), kLarge);
  const Shards want = stripe.wanted(Mode::assign, 0, stripe.shard_bytes);
  for (unsigned trial = 0; trial < 10; ++trial) {
    stripe.reset();
    Control control;
    const std::vector<Task> tasks(trial < 5 ? 1 : 6, stripe.task(Mode::assign));
    const auto ticket = backend_->submit({tasks.data(), 1}, control);
    if (trial % 2 == 1) std::this_thread::yield();
    control.cancel();
    const tandem_status status = status_of([&] { ticket->wait(); }).first;
    ASSERT_TRUE(status == TANDEM_OK || status == TANDEM_ERROR_CANCELLED) << status;
    if (status == TANDEM_OK) {
      ASSERT_EQ(stripe.outputs, want);
    }
    const Shards after = stripe.outputs;
    std::this_thread::yield();
    ASSERT_EQ(stripe.outputs, after) << "written after wait";
  }
}

// Plans are kept in caches of threads, which may end after the backend.
TEST_P(BackendConformance, PreparedOutlivesTheBackend) {
  Random random(kSeed + 16);
  auto prepared = backend_->prepare(random_matrix(random, 4, 10));
  EXPECT_EQ(prepared->rows(), 4u);
  EXPECT_EQ(prepared->columns(), 10u);
  backend_.reset();
  EXPECT_EQ(prepared->rows(), 4u);
  prepared.reset();
}

// Codes with shards that share work: every mode, ranges, and lengths near every width.
TEST_P(FormConformance, TransformsAndDecodes) {
  Random random(kSeed + 19);
  const core::Form forms[] = {
      transform_of(points_from(0, 16), points_from(16, 8)),
      transform_of(points_from(0, 21), points_from(21, 13)),
      transform_of(points_from(5, 40), points_from(45, 19)),
      transform_of(points_from(40, 12), points_from(3, 30)),
      random_transform(random, 33, 20),
      random_transform(random, 1, 9),
      random_transform(random, 40, 50),
      random_decode(random, 24, 8, 8, 0),
      random_decode(random, 30, 5, 3, 4),
      random_decode(random, 12, 17, 17, 3),
      random_decode(random, 30, 20, 20, 2),
      random_decode(random, 0, 12, 12, 1),
  };
  std::vector<std::size_t> lengths = {1, 4097, kLarge / 8};
  for (std::size_t around = 64; around <= 8192; around *= 2)
    lengths.insert(lengths.end(), {around - 1, around, around + 1});
  Slice slice(18, salt());
  for (const core::Form &form : forms) {
    for (const std::size_t bytes : lengths) {
      if (!slice.takes()) continue;
      SCOPED_TRACE(testing::Message() << "form " << &form - forms);
      Stripe stripe(random, *backend_, form, bytes);
      check_modes(*backend_, stripe, random);
      if (HasFatalFailure()) return;
    }
  }
}

// An operator over GF(2^16), inputs, and the outputs that the slow reference makes of them.
struct Case16 {
  std::string name;
  core::Operator what;
  Shards inputs, outputs;
};

// Encodes, decodes of much and of little, and updates of the shards of one stripe; matrices of any shape.
std::vector<Case16> make_cases16() {
  std::vector<Case16> cases;
  Random random(kSeed + 20);
  const auto spread = [](unsigned shards) { return (std::size_t{300'000} / kThinning / shards + 1) * 2 / 64 * 32 + 2; };
  struct Code {
    std::int32_t matrix;
    const char *name;
    unsigned k, m;
  };
  for (const Code &code :
       {Code{TANDEM_MATRIX_LEOPARD16, "leopard16", 20, 12}, Code{TANDEM_MATRIX_LEOPARD16, "leopard16", 3, 2},
        Code{TANDEM_MATRIX_REED_SOLOMON_SIMD, "reed-solomon-simd", 9, 21}, Code{TANDEM_MATRIX_PAR2, "par2", 6, 3},
        Code{TANDEM_MATRIX_LIBERASURECODE_RS_VAND, "liberasurecode-rs-vand", 7, 4}}) {
    const unsigned n = code.k + code.m;
    tandem_codec_options options = codec_options(code.k, code.m, code.matrix);
    options.field = TANDEM_FIELD_GF16;
    const auto codec = core::make_codec(options);
    const reference16::Rows16 rows = reference16::parity_rows(code.name, code.k, code.m);
    for (const std::size_t bytes : {std::size_t{2}, std::size_t{30}, std::size_t{62}, std::size_t{64}, std::size_t{66},
                                    std::size_t{128}, std::size_t{1022}, std::size_t{1090}, spread(n)}) {
      Shards all;
      for (unsigned c = 0; c < code.k; ++c) all.push_back(random.bytes(bytes));
      for (Bytes &each : reference16::apply(code.name, rows, all)) all.push_back(std::move(each));
      const auto add = [&](const char *what, const core::Application &application) {
        Case16 added{std::string(code.name) + " " + what, application.what, {}, {}};
        for (const unsigned i : application.inputs) added.inputs.push_back(all[i]);
        for (const unsigned i : application.outputs) added.outputs.push_back(all[i]);
        cases.push_back(std::move(added));
      };
      core::ShardSet parity;
      for (unsigned i = code.k; i < n; ++i) parity.set(i);
      add("encode", codec->encode(parity));
      for (const unsigned lost_count : {1u, code.m}) {
        core::ShardSet present, lost;
        const std::vector<unsigned> order = random.pick(n, n);
        for (unsigned i = 0; i < n; ++i) (i < lost_count ? lost : present).set(order[i]);
        add(lost_count == 1 ? "decode of one" : "decode", *codec->decode(present, lost));
      }
      // An update of one data shard, the others being zero.
      const auto index = static_cast<unsigned>(random.below(code.k));
      Case16 update{std::string(code.name) + " update", codec->column(index, parity).what, {all[index]}, {}};
      reference16::Rows16 column;
      for (const auto &row : rows) column.push_back({row[index]});
      update.outputs = reference16::apply(code.name, column, update.inputs);
      cases.push_back(std::move(update));
    }
  }
  // Matrices in both layouts, with zeros, and larger than the blocks of kernels.
  for (const auto &[row_count, column_count, bytes] :
       {std::tuple{5u, 9u, 1090u}, {300u, 3u, 130u}, {2u, 300u, 1022u}}) {
    for (const char *name : {"leopard16", "custom"}) {
      const bool is_leopard = name[0] == 'l';
      core::Matrix16 matrix(row_count, column_count);
      reference16::Rows16 rows(row_count);
      Case16 made{std::string(name) + " matrix", core::Matrix(), {}, {}};
      for (unsigned c = 0; c < column_count; ++c) made.inputs.push_back(random.bytes(bytes));
      for (unsigned r = 0; r < row_count; ++r) {
        for (unsigned c = 0; c < column_count; ++c)
          matrix.at(r, c) = random.chance(10) ? std::uint16_t{0} : static_cast<std::uint16_t>(random.next());
        rows[r].assign(matrix.row(r).begin(), matrix.row(r).end());
      }
      made.what = core::Operator(core::Dense16{is_leopard ? &core::gf16::Field::cantor() : &core::gf16::Field::words(),
                                               is_leopard ? core::Layout::leopard : core::Layout::words,
                                               std::make_shared<const core::Matrix16>(std::move(matrix))});
      made.outputs = reference16::apply(name, rows, made.inputs);
      cases.push_back(std::move(made));
    }
  }
  return cases;
}

// A backend that does not take such operators says so before it writes anything, with `name`.
void check_cases(core::Backend &backend, const std::vector<Case16> &cases, bool are_taken, const char *name) {
  Random random(kSeed + 21);
  Slice slice(12, salt());
  for (const Case16 &each : cases) {
    if (!slice.takes()) continue;
    SCOPED_TRACE(each.name);
    std::shared_ptr<const core::Prepared> prepared;
    const auto [status, message] = status_of([&] { prepared = backend.prepare(each.what); });
    if (prepared == nullptr) {
      ASSERT_FALSE(are_taken) << message;
      ASSERT_EQ(status, TANDEM_ERROR_UNSUPPORTED);
      ASSERT_NE(message.find(name), std::string::npos) << message;
      continue;
    }
    Stripe stripe(random, prepared, each.inputs, each.outputs);
    check_modes(backend, stripe, random);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST_P(FormConformance, WideField) {
  static const std::vector<Case16> cases = make_cases16();
  check_cases(*backend_, cases, GetParam().takes_gf16, "GF(2^16)");
}

// Random bit matrices, and an encode, a decode and an update of Jerasure's: packets of any size, cut at groups.
std::vector<Case16> make_packet_cases() {
  std::vector<Case16> cases;
  Random random(kSeed + 22);
  // Row by row, as the comment of BitMatrix reads.
  const auto add = [&](const std::string &name, const core::Operator &what, std::size_t groups) {
    const auto &form = std::get<core::BitMatrix>(what.form());
    Case16 made{name, what, {}, {}};
    Shards slots;
    for (unsigned c = 0; c < what.input_count(); ++c) {
      made.inputs.push_back(random.bytes(groups * what.granularity_bytes()));
      for (Bytes &each : packets_of(made.inputs.back(), form.word_bits, form.packet_bytes))
        slots.push_back(std::move(each));
    }
    for (unsigned r = 0; r < what.output_count(); ++r) {
      Shards packets(form.word_bits, Bytes(groups * form.packet_bytes));
      for (unsigned i = 0; i < form.word_bits; ++i)
        for (unsigned c = 0; c < slots.size(); ++c)
          if (form.bits->at(r * form.word_bits + i, c) != 0)
            for (std::size_t b = 0; b < packets[i].size(); ++b) packets[i][b] ^= slots[c][b];
      made.outputs.push_back(shard_of(packets.data(), form.word_bits, form.packet_bytes));
    }
    cases.push_back(std::move(made));
  };
  for (const auto &[word_bits, rows, columns] : {std::tuple{8u, 4u, 10u},
                                                 {8u, 1u, 1u},
                                                 {4u, 3u, 9u},
                                                 {16u, 9u, 9u},
                                                 {8u, 17u, 3u},
                                                 {8u, 3u, 40u},
                                                 {1u, 5u, 7u},
                                                 {3u, 2u, 2u}}) {
    for (const std::size_t packet_bytes : {8, 48, 64, 200, 256, 320, 1024, 2056}) {
      for (const unsigned ones : {3u, 50u, 97u}) {
        Matrix bits(word_bits * rows, word_bits * columns);
        for (unsigned r = 0; r < bits.rows(); ++r)
          for (unsigned c = 0; c < bits.columns(); ++c) bits.at(r, c) = random.chance(ones);
        const core::Operator what(core::BitMatrix{word_bits, packet_bytes, std::make_shared<const Matrix>(bits)});
        add(std::to_string(rows) + " x " + std::to_string(columns) + " of " + std::to_string(word_bits) +
                " packets of " + std::to_string(packet_bytes),
            what, 1 + random.below(packet_bytes < 100 ? 40 : 4));
      }
    }
  }
  tandem_codec_options options = codec_options(6, 3, TANDEM_MATRIX_JERASURE_CAUCHY_GOOD);
  options.layout = TANDEM_LAYOUT_PACKETS;
  options.packet_bytes = 512;
  const auto codec = core::make_codec(options);
  core::ShardSet parity, present, lost;
  for (unsigned i = 6; i < 9; ++i) parity.set(i);
  for (unsigned i = 0; i < 9; ++i) (i % 4 == 1 ? lost : present).set(i);
  add("encode", codec->encode(parity).what, 30 / kThinning + 1);
  add("decode", codec->decode(present, lost)->what, 5);
  add("update", core::update_of(codec->column(2, parity).what), 5);
  return cases;
}

TEST_P(FormConformance, Packets) {
  static const std::vector<Case16> cases = make_packet_cases();
  check_cases(*backend_, cases, GetParam().takes_packets, "packets");
}

// Sums of nothing are zeros; nothing is left alone.
TEST_P(FormConformance, PacketsOfNothing) {
  Random random(kSeed + 24);
  if (!GetParam().takes_packets) return;
  const auto empty = [](unsigned rows, unsigned columns) {
    return core::Operator(core::BitMatrix{8, 24, std::make_shared<const Matrix>(8 * rows, 8 * columns)});
  };
  const std::size_t bytes = 5 * 8 * 24;
  Stripe no_inputs(random, backend_->prepare(empty(2, 0)), Shards(1, Bytes(bytes)), Shards(2, Bytes(bytes)));
  check_modes(*backend_, no_inputs, random);
  Stripe no_outputs(random, backend_->prepare(empty(0, 2)), Shards(2, random.bytes(bytes)), Shards(1, Bytes(bytes)));
  for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare}) run(*backend_, {no_outputs.task(mode)});
}

TEST_P(BackendConformance, TwoBackendsAreIndependent) {
  Random random(kSeed + 17);
  const auto other = GetParam().make();
  Stripe mine(random, *backend_, random_matrix(random, 2, 2), kLarge), theirs(random, *other, mine.matrix, kLarge);
  Control cancelled;
  cancelled.cancel();
  status_of([&] { other->run(std::vector<Task>{theirs.task(Mode::assign)}, cancelled); });
  run(*backend_, {mine.task(Mode::assign)});
  EXPECT_EQ(mine.outputs, mine.wanted(Mode::assign, 0, mine.shard_bytes));
}

}  // namespace
}  // namespace tandem::test
