// SPDX-License-Identifier: Apache-2.0
// PAR2's sums of powers over GF(2^16): the codec, and every kernel by each technique, against the definitions.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "core/codec.hpp"
#include "core/plan.hpp"
#include "cpu/factory.hpp"
#include "tests/support/random.hpp"
#include "tests/support/reference16.hpp"
#include "tests/support/slice.hpp"
#include "tests/support/structs.hpp"

namespace tandem::test {
namespace {

using core::Matrix16;
using core::Mode;
using core::Operator;
using core::Powers16;
using core::ShardSet;
using reference16::Bytes;
using reference16::Rows16;

constexpr const char *kPar2 = "par2";

std::unique_ptr<core::Backend> make_backend(const std::string &kernel, const std::string &technique,
                                            unsigned threads = 1) {
  cpu::Options options;
  options.kernel = kernel;
  options.technique = technique;
  options.thread_count = threads;
  cpu::Decisions choice = {};
  auto backend = cpu::make_backend(options, base::Log(), &choice);
  EXPECT_TRUE(kernel.empty() || kernel == choice.kernel);
  return backend;
}

std::shared_ptr<const core::Codec> make_par2(unsigned k, unsigned m, unsigned first_exponent = 0) {
  tandem_codec_options options = codec_options(k, m, TANDEM_MATRIX_PAR2);
  options.field = TANDEM_FIELD_GF16;
  options.allow_non_mds = 1;
  options.first_exponent = first_exponent;
  return core::make_codec(options);
}

std::uint16_t power(std::uint16_t base, std::uint64_t exponent) {
  std::uint16_t result = 1;
  for (; exponent != 0; exponent >>= 1, base = reference16::multiply(kPar2, base, base))
    if (exponent & 1) result = reference16::multiply(kPar2, result, base);
  return result;
}

Rows16 product_of(const Rows16 &a, const Rows16 &b) {
  Rows16 rows(a.size(), std::vector<std::uint16_t>(b.front().size()));
  for (std::size_t r = 0; r < a.size(); ++r)
    for (std::size_t i = 0; i < b.size(); ++i)
      for (std::size_t c = 0; c < rows[r].size(); ++c) rows[r][c] ^= reference16::multiply(kPar2, a[r][i], b[i][c]);
  return rows;
}

// The matrix of a form, as core/operator.hpp defines it.
Rows16 rows_of(const Powers16 &form) {
  Rows16 sums;
  for (std::size_t i = 0; i < form.exponents.size(); ++i) {
    sums.emplace_back();
    for (const core::Element log : form.logs) sums[i].push_back(power(2, std::uint64_t{log} * form.exponents[i]));
    for (unsigned c = 0; c < form.chosen_count; ++c) sums[i].push_back(c == i);
  }
  if (form.solve == nullptr) return sums;
  Rows16 solve;
  for (unsigned r = 0; r < form.solve->rows(); ++r)
    solve.emplace_back(form.solve->row(r).begin(), form.solve->row(r).end());
  return product_of(solve, sums);
}

std::vector<Bytes> random_shards(Random &random, std::size_t count, std::size_t bytes) {
  std::vector<Bytes> shards;
  for (std::size_t i = 0; i < count; ++i) shards.push_back(random.bytes(bytes));
  return shards;
}

// Runs a range of shards in each mode. Nothing outside of the range may change.
void expect_product(core::Backend &backend, const Operator &what, const Rows16 &rows, Random &random,
                    std::size_t bytes) {
  const std::vector<Bytes> inputs = random_shards(random, what.input_count(), bytes);
  const std::vector<Bytes> right = reference16::apply(kPar2, rows, inputs);
  const std::size_t begin = random.below(bytes / 2 + 1) * random.below(2) / 2 * 2, length = bytes - begin;
  const auto prepared = backend.prepare(what);
  std::vector<const std::byte *> in;
  for (const Bytes &input : inputs) in.push_back(reinterpret_cast<const std::byte *>(input.data()));
  for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare}) {
    std::vector<Bytes> outputs = mode == Mode::compare ? right : random_shards(random, right.size(), bytes);
    const std::size_t damaged = random.below(outputs.size()), place = begin + random.below(length);
    if (mode == Mode::compare) outputs[damaged][place] ^= 1;
    const std::vector<Bytes> before = outputs;
    std::vector<std::byte *> out;
    for (Bytes &output : outputs) out.push_back(reinterpret_cast<std::byte *>(output.data()));
    std::vector<core::Mismatch> found(outputs.size());
    const core::Task task = {prepared.get(), in.data(), out.data(), begin, length, mode, found.data()};
    core::Control control;
    backend.run(std::span(&task, 1), control);
    for (std::size_t r = 0; r < outputs.size(); ++r) {
      Bytes want = before[r];
      for (std::size_t i = begin; i < bytes && mode != Mode::compare; ++i)
        want[i] = static_cast<std::uint8_t>(right[r][i] ^ (mode == Mode::accumulate ? before[r][i] : 0));
      ASSERT_EQ(outputs[r], want) << "output " << r << " mode " << static_cast<int>(mode) << " from " << begin;
      ASSERT_EQ(found[r].byte_count, mode == Mode::compare && r == damaged ? 1u : 0u) << r;
      if (found[r].byte_count != 0) {
        ASSERT_EQ(found[r].first_bytes, place);
      }
    }
  }
}

template <class Body>
void each_kernel(const Body &body) {
  for (const cpu::KernelDescription &kernel : cpu::describe_kernels()) {
    if (!kernel.available) {
      std::printf("NOT RUN: kernel %s needs %s\n", kernel.name, kernel.needs);
      continue;
    }
    SCOPED_TRACE(kernel.name);
    body(kernel.name);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Constants below a power of two times 257: polynomials of each degree. Some constants have order less than 65535, and
// some exponents meet at a point.
Powers16 random_form(Random &random) {
  Powers16 form;
  const unsigned end = std::min<unsigned>(65535, 257u << random.between(1, 8));
  for (const unsigned log : random.pick(static_cast<unsigned>(random.below(40)), end))
    form.logs.push_back(static_cast<core::Element>(log));
  std::ranges::sort(form.logs);
  while (form.exponents.size() < 1 + random.below(40))
    form.exponents.push_back(static_cast<core::Element>(
        form.exponents.empty() || random.chance(70) ? random.below(65535) : (form.exponents.back() + 255) % 65535));
  if (form.logs.empty() || random.chance(50)) {
    const auto sums = static_cast<unsigned>(form.exponents.size());
    form.chosen_count = static_cast<unsigned>(random.between(form.logs.empty() ? 1 : 0, sums));
    Matrix16 solve(static_cast<unsigned>(random.between(1, 20)), sums);
    for (unsigned r = 0; r < solve.rows(); ++r) random.fill(solve.row(r).data(), 2 * sums);
    form.solve = std::make_shared<const Matrix16>(std::move(solve));
  }
  return form;
}

TEST(Powers, EveryKernelComputesTheDefinition) {
  Random random(slice_seed());
  each_kernel([&](const char *kernel) {
    for (const char *technique : {"matrix", "transform", ""}) {
      const auto backend = make_backend(kernel, technique);
      for (unsigned round = 0; round < (runs_every_case() ? 60 : 12); ++round) {
        const Powers16 form = random_form(random);
        SCOPED_TRACE(testing::Message() << technique << " " << form.logs.size() << " to " << form.exponents.size());
        expect_product(*backend, Operator(form), rows_of(form), random, 2 * random.between(1, 700));
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

// Several threads, chunks and strips; more columns than a matrix kernel takes at a time.
TEST(Powers, ManyColumnsAndChunks) {
  Random random(slice_seed() + 1);
  each_kernel([&](const char *kernel) {
    const auto codec = make_par2(1200, 7, 65535 - 7);
    ShardSet wanted;
    for (const unsigned r : {0u, 1u, 5u}) wanted.set(1200 + r);
    const core::Application encode = codec->encode(wanted);
    const Rows16 rows = rows_of(std::get<Powers16>(encode.what.form()));
    for (const char *technique : {"matrix", "transform"})
      expect_product(*make_backend(kernel, technique, 3), encode.what, rows, random, 2 * random.between(200, 1100));
  });
}

// The first constants of the Parity Volume Set Specification 2.0: 2^n for each n that 3, 5, 17 and 257 do not divide.
TEST(Powers, ConstantsAreThoseOfTheSpecification) {
  constexpr std::uint16_t kConstants[] = {2, 4, 16, 128, 256, 2048, 8192, 16384, 4107, 32856, 17132};
  for (const unsigned first : {0u, 1u, 2u, 40000u, 65532u}) {
    const auto codec = make_par2(11, 3, first);
    for (unsigned c = 0; c < 11; ++c)
      for (unsigned r = 0; r < 3; ++r) EXPECT_EQ(codec->coefficient(r, c), power(kConstants[c], first + r)) << c;
  }
  EXPECT_EQ(make_par2(32768, 1, 1)->coefficient(0, 32767), power(2, 65534));
}

TEST(Powers, TheLargestCodeIsThatOfTheSpecification) {
  constexpr unsigned k = 32768, m = 3277, first = 20;
  Random random(slice_seed() + 2);
  const auto codec = make_par2(k, m, first);
  ShardSet all;
  for (unsigned r = 0; r < m; ++r) all.set(k + r);
  const auto backend = make_backend("", "");
  const auto prepared = backend->prepare(codec->encode(all).what);
  EXPECT_EQ(prepared->techniques().front().name, "transform");
  const Bytes data = random.bytes(2 * k);
  Bytes parity(2 * m);
  std::vector<const std::byte *> in;
  std::vector<std::byte *> out;
  for (unsigned c = 0; c < k; ++c) in.push_back(reinterpret_cast<const std::byte *>(&data[2 * c]));
  for (unsigned r = 0; r < m; ++r) out.push_back(reinterpret_cast<std::byte *>(&parity[2 * r]));
  const core::Task task = {prepared.get(), in.data(), out.data(), 0, 2, Mode::assign, nullptr};
  core::Control control;
  backend->run(std::span(&task, 1), control);
  for (unsigned round = 0; round < 4; ++round) {
    const auto r = static_cast<unsigned>(random.below(m));
    unsigned sum = 0, n = 0;
    for (unsigned c = 0; c < k; ++c) {
      for (++n; n % 3 == 0 || n % 5 == 0 || n % 17 == 0 || n % 257 == 0;) ++n;
      sum ^= reference16::multiply(kPar2, power(2, std::uint64_t{n} * (first + r)),
                                   static_cast<std::uint16_t>(data[2 * c] | data[2 * c + 1] << 8));
    }
    EXPECT_EQ(parity[2 * r] | parity[2 * r + 1] << 8, static_cast<int>(sum)) << r;
  }
}

unsigned rank_of(Rows16 rows) {
  unsigned rank = 0;
  for (std::size_t c = 0; !rows.empty() && c < rows.front().size(); ++c) {
    const auto pivot = std::find_if(rows.begin() + rank, rows.end(), [&](const auto &row) { return row[c] != 0; });
    if (pivot == rows.end()) continue;
    std::iter_swap(rows.begin() + rank, pivot);
    for (std::size_t r = rank + 1; r < rows.size(); ++r) {
      const std::uint16_t factor = reference16::multiply(kPar2, rows[r][c], reference16::inverse(kPar2, rows[rank][c]));
      for (std::size_t i = c; i < rows[r].size(); ++i)
        rows[r][i] ^= reference16::multiply(kPar2, factor, rows[rank][i]);
    }
    ++rank;
  }
  return rank;
}

Rows16 parity_rows(const core::Codec &codec) {
  Rows16 rows(codec.m());
  for (unsigned r = 0; r < codec.m(); ++r)
    for (unsigned c = 0; c < codec.k(); ++c) rows[r].push_back(codec.coefficient(r, c));
  return rows;
}

// Random data and its parity, by the reference.
std::vector<Bytes> coded_shards(Random &random, const Rows16 &rows, std::size_t bytes) {
  std::vector<Bytes> shards = random_shards(random, static_cast<unsigned>(rows[0].size()), bytes);
  for (Bytes &parity : reference16::apply(kPar2, rows, shards)) shards.push_back(std::move(parity));
  return shards;
}

// Random losses, with gaps in the exponents that are left, through plans. Lost shards come back if and only if the
// present rows determine the lost data.
TEST(Powers, LostShardsComeBack) {
  Random random(slice_seed() + 3);
  unsigned with_gaps = 0, refused = 0;
  for (unsigned round = 0; round < (runs_every_case() ? 300 : 80); ++round) {
    const auto k = static_cast<unsigned>(random.between(1, 40)), m = static_cast<unsigned>(random.between(1, 24));
    const auto first = static_cast<unsigned>(random.chance(30) ? 65535 - m : random.below(65536 - m));
    const std::size_t bytes = 2 * random.between(1, 80);
    SCOPED_TRACE(testing::Message() << k << "+" << m << " from " << first << ", " << bytes << " bytes");
    const auto codec = make_par2(k, m, first);
    const auto backend = make_backend("", round % 3 == 0 ? "matrix" : round % 3 == 1 ? "transform" : "");
    const Rows16 rows = parity_rows(*codec);
    std::vector<Bytes> shards = coded_shards(random, rows, bytes);
    const std::vector<Bytes> truth = shards;

    ShardSet present, wanted;
    std::vector<unsigned> lost, rest;
    for (unsigned i = 0; i < k + m; ++i) {
      const bool is_lost = random.chance(i < k ? static_cast<unsigned>(100 * m / (k + m)) : 30);
      if (!is_lost) {
        present.set(i);
        if (i >= k) rest.push_back(i - k);
        continue;
      }
      if (i < k) lost.push_back(i);
      if (random.chance(80)) wanted.set(i);
      if (wanted[i]) std::ranges::fill(shards[i], std::uint8_t{0xa5});
    }
    core::Shape shape;
    shape.operation = core::Operation::decode;
    shape.present = present;
    shape.wanted = wanted;
    Rows16 left;
    for (const unsigned r : rest) {
      left.emplace_back();
      for (const unsigned c : lost) left.back().push_back(rows[r][c]);
    }
    const bool is_determined = rank_of(left) == lost.size();
    try {
      const core::Plan plan(*backend, codec, shape);
      std::vector<const std::byte *> in;
      std::vector<std::byte *> out;
      for (const unsigned i : plan.inputs()) {
        ASSERT_TRUE(present[i]);
        in.push_back(reinterpret_cast<const std::byte *>(shards[i].data()));
      }
      for (const unsigned i : plan.outputs()) out.push_back(reinterpret_cast<std::byte *>(shards[i].data()));
      const core::Task task = plan.task(in.data(), out.data(), bytes);
      core::Control control;
      if (!out.empty()) backend->run(std::span(&task, 1), control);
      with_gaps += lost.size() > 1 && rest.size() > lost.size() && rest[lost.size() - 1] - rest[0] >= lost.size();
      for (unsigned i = 0; i < k + m; ++i) ASSERT_EQ(shards[i], truth[i]) << "shard " << i;
    } catch (const base::Error &error) {
      ASSERT_EQ(error.status(), TANDEM_ERROR_NOT_RECOVERABLE) << error.what();
      ASSERT_FALSE(is_determined) << error.what();
      ++refused;
    }
  }
  EXPECT_NE(with_gaps, 0u);
  EXPECT_NE(refused, 0u);
}

// Every second parity shard is missing: matrices are multiplied by the backend, and each question can end that.
TEST(Powers, ManyGapsAreFilledByTheBackend) {
  constexpr unsigned k = 500, lost_count = 400, m = 2 * lost_count, bytes = 6;
  Random random(slice_seed() + 4);
  const auto codec = make_par2(k, m, 3);
  const auto backend = make_backend("", "", 3);
  std::vector<Bytes> shards = coded_shards(random, parity_rows(*codec), bytes);
  const std::vector<Bytes> truth = shards;
  core::Shape shape;
  shape.operation = core::Operation::decode;
  for (unsigned i = 0; i < k + m; ++i)
    (i < k ? i >= lost_count : (i - k) % 2 == 1) ? shape.present.set(i) : shape.wanted.set(i);
  const std::uint64_t before = core::multiply_add_count();
  unsigned asked = 0;
  const core::Plan plan(*backend, codec, shape, [&] { return ++asked == 0; });
  EXPECT_GT(asked, lost_count + 20);
  // Wanted parity is added on this thread. The elimination would double it.
  EXPECT_LT(core::multiply_add_count() - before, std::uint64_t{lost_count} * lost_count * lost_count * 5 / 4);
  std::vector<const std::byte *> in;
  std::vector<std::byte *> out;
  for (const unsigned i : plan.inputs()) in.push_back(reinterpret_cast<const std::byte *>(shards[i].data()));
  for (const unsigned i : plan.outputs()) {
    std::ranges::fill(shards[i], std::uint8_t{0xa5});
    out.push_back(reinterpret_cast<std::byte *>(shards[i].data()));
  }
  const core::Task task = plan.task(in.data(), out.data(), bytes);
  core::Control control;
  backend->run(std::span(&task, 1), control);
  EXPECT_EQ(shards, truth);
  for (unsigned end = 1; end <= asked; end += end < asked - 20 ? 100 : 1) {
    unsigned left = end;
    const auto other = make_par2(k, m, 3);  // its decode is not known yet
    try {
      const core::Plan ended(*backend, other, shape, [&] { return --left == 0; });
      FAIL() << end << " of " << asked;
    } catch (const base::Error &error) {
      EXPECT_EQ(error.status(), TANDEM_ERROR_CANCELLED) << error.what();
    }
  }
}

// The choice by costs: wide codes and large losses by transforms, narrow codes and single losses by the matrix.
TEST(Powers, WideCodesAreRunByTransforms) {
  each_kernel([&](const char *kernel) {
    const auto backend = make_backend(kernel, "");
    const auto technique = [&](unsigned k, unsigned m, unsigned lost) {
      const auto codec = make_par2(k, m);
      ShardSet present, wanted;
      for (unsigned i = 0; i < k + m; ++i) (i < lost ? wanted : present).set(i);
      for (unsigned i = k; i < k + m && lost == 0; ++i) wanted.set(i);
      const Operator what = lost == 0 ? codec->encode(wanted).what : codec->solve(present, wanted)->what;
      return std::string(backend->prepare(what)->techniques().front().name);
    };
    EXPECT_EQ(technique(2000, 200, 0), "transform");
    EXPECT_EQ(technique(4000, 400, 0), "transform");
    EXPECT_EQ(technique(2000, 200, 150), "transform");
    EXPECT_EQ(technique(200, 20, 0), "matrix");
    EXPECT_EQ(technique(500, 25, 0), "matrix");
    EXPECT_EQ(technique(2000, 200, 1), "matrix");
    // The matrix would take many products before the first byte.
    EXPECT_EQ(technique(2000, 2000, 1990), "transform");
    EXPECT_EQ(technique(2000, 2000, 2000), "matrix");
  });
  EXPECT_THROW(make_backend("", "matrix")
                   ->check_technique(make_par2(32768, 2000)
                                         ->encode([] {
                                           ShardSet all;
                                           for (unsigned r = 0; r < 2000; ++r) all.set(32768 + r);
                                           return all;
                                         }())
                                         .what),
               base::Error);
}

TEST(Powers, WrongExponentsAreRefused) {
  EXPECT_NO_THROW(make_par2(5, 10, 65525));
  EXPECT_THROW(make_par2(5, 10, 65526), base::Error);
  EXPECT_THROW(make_par2(5, 10, UINT32_MAX), base::Error);
  tandem_codec_options other = codec_options(4, 2);
  other.first_exponent = 1;
  EXPECT_THROW(core::make_codec(other), base::Error);
  EXPECT_THROW(Operator(Powers16{{1, 1}, {0}, 0, nullptr}), base::Error);
  EXPECT_THROW(Operator(Powers16{{1, 65535}, {0}, 0, nullptr}), base::Error);
  EXPECT_THROW(Operator(Powers16{{1}, {65535}, 0, nullptr}), base::Error);
  EXPECT_THROW(Operator(Powers16{{1}, {0}, 1, nullptr}), base::Error);
  EXPECT_THROW(Operator(Powers16{{1}, {0}, 0, std::make_shared<const Matrix16>(1, 2)}), base::Error);
}

}  // namespace
}  // namespace tandem::test
