// SPDX-License-Identifier: Apache-2.0
// The transform of every CPU kernel against the formula of a Cauchy matrix, 1 / (x xor y), from the slow reference.
// Parameterised over the kernel table, as kernel_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "cpu/kernels/kernel.hpp"
#include "tests/support/expected.hpp"
#include "tests/support/guarded.hpp"
#include "tests/support/random.hpp"
#include "tests/support/slice.hpp"

namespace tandem::cpu {
namespace {

using test::Bytes;
using test::Guarded;
using test::Random;
using test::Shards;

std::uint8_t inverse(unsigned x) {
  static const auto table = [] {
    std::array<std::uint8_t, 256> all{};
    for (unsigned i = 0; i < 256; ++i) all[i] = reference::inverse(static_cast<std::uint8_t>(i));
    return all;
  }();
  return table[x];
}

// A Cauchy matrix by its points and scales; no scales: all 1.
struct Code {
  Bytes input_points, output_points, input_scales, output_scales;

  unsigned columns() const { return static_cast<unsigned>(input_points.size()); }
  unsigned rows() const { return static_cast<unsigned>(output_points.size()); }
  TransformShape shape() const {
    return {input_points.data(),
            output_points.data(),
            input_scales.empty() ? nullptr : input_scales.data(),
            output_scales.empty() ? nullptr : output_scales.data(),
            columns(),
            rows()};
  }
  Bytes matrix() const {
    Bytes cells;
    for (unsigned r = 0; r < rows(); ++r) {
      for (unsigned c = 0; c < columns(); ++c) {
        std::uint8_t cell = inverse(output_points[r] ^ input_points[c]);
        if (!output_scales.empty()) cell = test::products()[cell][output_scales[r]];
        if (!input_scales.empty()) cell = test::products()[cell][input_scales[c]];
        cells.push_back(cell);
      }
    }
    return cells;
  }
};

// Points 0 .. k-1 and k .. k+m-1, as ISA-L's.
Code encode_code(unsigned k, unsigned m) {
  Code code;
  code.input_points.resize(k);
  code.output_points.resize(m);
  std::iota(code.input_points.begin(), code.input_points.end(), 0);
  std::iota(code.output_points.begin(), code.output_points.end(), static_cast<std::uint8_t>(k));
  return code;
}

Bytes random_scales(Random &random, unsigned count) {
  Bytes scales(count);
  for (std::uint8_t &scale : scales) scale = static_cast<std::uint8_t>(random.between(1, 255));
  return scales;
}

// Any points out of a range of any width, so that inputs and outputs share groups.
Code random_code(Random &random) {
  const auto end = static_cast<unsigned>(random.chance(50) ? 256 : random.between(2, 64));
  const auto columns = static_cast<unsigned>(random.between(1, end - 1));
  const auto rows =
      static_cast<unsigned>(random.between(1, random.chance(50) ? std::min(end - columns, 16u) : end - columns));
  Code code;
  for (const unsigned point : random.pick(columns + rows, end))
    (code.columns() < columns ? code.input_points : code.output_points).push_back(static_cast<std::uint8_t>(point));
  std::ranges::sort(code.input_points);
  std::ranges::sort(code.output_points);
  if (random.chance(40)) code.input_scales = random_scales(random, columns);
  if (random.chance(40)) code.output_scales = random_scales(random, rows);
  return code;
}

struct AlignedFree {
  void operator()(void *p) const { std::free(p); }
};

// What one code needs, in storage of exactly the bytes that the kernel asked for.
class Prepared {
 public:
  Prepared(const Kernel &kernel, const Code &code) : kernel_(kernel), code_(code) {
    const std::size_t bytes = kernel.transform_bytes(code.shape());
    tables_.reset(std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64));
    auto *after = static_cast<std::uint8_t *>(tables_.get()) + bytes;
    std::memset(after, 0xa5, 64);
    kernel.prepare_transform(code.shape(), tables_.get());
    for (unsigned i = 0; i < 64; ++i)
      EXPECT_EQ(after[i], 0xa5) << "prepare_transform wrote beyond its tables, byte " << i;
  }

  void apply(KernelCall call) const {
    call.tables = tables_.get();
    call.rows = code_.rows();
    call.columns = code_.columns();
    const std::size_t bytes = kernel_.transform_scratch_bytes(tables_.get(), call.length_bytes, call.out_of_cache);
    ASSERT_EQ(bytes % 64, 0u);
    ASSERT_LE(bytes, 640u << 10);
    ASSERT_GE(kernel_.transform_scratch_bytes(tables_.get(), call.length_bytes + 1, call.out_of_cache), bytes);
    const Guarded scratch(bytes);
    std::memset(scratch.data(), 0x5a, bytes);
    kernel_.apply_transform(call, scratch.data());
  }

 private:
  const Kernel &kernel_;
  const Code &code_;
  std::unique_ptr<void, AlignedFree> tables_;
};

class TransformTest : public testing::TestWithParam<unsigned> {
 protected:
  void SetUp() override {
    const KernelTable table = kernel_table();
    ASSERT_LT(GetParam(), table.count);
    kernel_ = table.kernels[GetParam()];
    if (!kernel_->supported(cpu_features()))
      GTEST_SKIP() << "NOT RUN: kernel " << kernel_->name << " needs " << kernel_->needs;
    RecordProperty("kernel", kernel_->name);
  }

  // Applies `call` (offset, length and hints) to shards of offset + length bytes: right beside a forbidden page, or
  // each at a place of its own in a vector. Beside the range nothing may change.
  void check(const Code &code, KernelCall call, Random &random, Guarded::Against against, bool has_own_places) {
    const std::size_t offset = call.offset_bytes, room = offset + call.length_bytes + (has_own_places ? 64 : 0);
    std::vector<Guarded> shards;
    Shards want;  // of whole buffers
    std::vector<const std::uint8_t *> inputs, ranges;
    std::vector<std::uint8_t *> outputs;
    for (unsigned i = 0; i < code.columns() + code.rows(); ++i) {
      std::uint8_t *const buffer = shards.emplace_back(room, against).data();
      std::uint8_t *const data = buffer + (has_own_places ? random.below(64) : 0);
      random.fill(buffer, room);
      if (i >= code.columns()) {
        want.emplace_back(buffer, buffer + room);
        outputs.push_back(data);
        continue;
      }
      shards.back().make_read_only();
      inputs.push_back(data);
      ranges.push_back(data + offset);
    }
    const Shards product =
        test::expected(code.matrix().data(), code.rows(), code.columns(), ranges.data(), call.length_bytes);
    const auto lead = [&](unsigned r) { return outputs[r] - shards[code.columns() + r].data(); };
    for (unsigned r = 0; r < code.rows(); ++r) {
      std::uint8_t *const range = want[r].data() + lead(r) + offset;
      for (std::size_t i = 0; i < call.length_bytes; ++i)
        range[i] = call.accumulate ? range[i] ^ product[r][i] : product[r][i];
    }
    call.inputs = inputs.data();
    call.outputs = outputs.data();
    Prepared(*kernel_, code).apply(call);
    for (unsigned r = 0; r < code.rows(); ++r) {
      const std::uint8_t *const buffer = shards[code.columns() + r].data();
      if (std::memcmp(buffer, want[r].data(), room) == 0) continue;
      const auto at = std::mismatch(want[r].begin(), want[r].end(), buffer).first - want[r].begin();
      ADD_FAILURE() << kernel_->name << " " << code.columns() << " inputs from point " << unsigned{code.input_points[0]}
                    << ", " << code.rows() << " outputs from point " << unsigned{code.output_points[0]} << ", "
                    << call.length_bytes << " bytes at " << offset << ": output " << r << " byte "
                    << at - lead(r) - static_cast<std::ptrdiff_t>(offset) << " is " << unsigned{buffer[at]}
                    << ", expected " << unsigned{want[r][at]} << " (accumulate " << call.accumulate << ", out_of_cache "
                    << call.out_of_cache << ", tile_bytes " << call.tile_bytes << ", scales "
                    << !code.input_scales.empty() << !code.output_scales.empty() << ")";
      return;
    }
  }

  const Kernel *kernel_ = nullptr;
};

// Byte i of input c is 1 where i = c: output r is row r of the matrix. So a wrong constant anywhere shows.
TEST_P(TransformTest, EveryCodeByUnitVectors) {
  test::Slice slice(64);
  for (unsigned k = 1; k < 256; ++k) {
    Bytes identity(std::size_t{k} * k);
    std::vector<const std::uint8_t *> inputs;
    for (unsigned c = 0; c < k; ++c) {
      identity[std::size_t{c} * k + c] = 1;
      inputs.push_back(identity.data() + std::size_t{c} * k);
    }
    for (unsigned m = 1; k + m <= 256; ++m) {
      if (!slice.takes()) continue;
      const Code code = encode_code(k, m);
      Bytes rows(std::size_t{m} * k, 0xee);
      std::vector<std::uint8_t *> outputs;
      for (unsigned r = 0; r < m; ++r) outputs.push_back(rows.data() + std::size_t{r} * k);
      KernelCall call = {};
      call.inputs = inputs.data();
      call.outputs = outputs.data();
      call.length_bytes = k;
      call.out_of_cache = (k + m) % 2 != 0;
      Prepared(*kernel_, code).apply(call);
      ASSERT_EQ(rows, code.matrix()) << kernel_->name << " " << k << "+" << m;
    }
  }
}

// Against the front of a page all shards start at the same place of one, where they may be streamed past the cache.
TEST_P(TransformTest, AnyPointsScalesLengthsAndPlaces) {
  Random random(test::slice_seed());
  for (unsigned i = 0; i < test::rounds(600, 4000); ++i) {
    const Code code = random.chance(70) ? random_code(random)
                                        : encode_code(static_cast<unsigned>(random.between(8, 40)),
                                                      static_cast<unsigned>(random.between(8, 24)));
    KernelCall call = {};
    call.offset_bytes = random.chance(50) ? 0 : random.below(200);
    call.length_bytes = random.below(random.chance(20) ? 5000 : 400);
    if (random.chance(40)) call.length_bytes = (std::size_t{32} << random.below(8)) - 1 + random.below(3);
    call.accumulate = random.chance(50);
    call.out_of_cache = random.chance(50);
    call.small_stack = random.chance(50);
    if (random.chance(50)) call.tile_bytes = static_cast<std::uint32_t>(random.below(6000));
    if (random.chance(50)) call.prefetch_bytes = static_cast<std::uint32_t>(random.below(2000));
    check(code, call, random, random.chance(50) ? Guarded::Against::front : Guarded::Against::back, random.chance(30));
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Table, TransformTest, testing::Range(0u, kernel_table().count), [](const auto &test) {
  std::string name = kernel_table().kernels[test.param]->name;
  for (char &c : name)
    if (c == '-') c = '_';
  return name;
});

}  // namespace
}  // namespace tandem::cpu
