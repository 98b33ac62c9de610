// SPDX-License-Identifier: Apache-2.0
// Codes over GF(2^16) through the C API: bytes of other programs, the slow reference, every kernel, bad input.
#include <algorithm>
#include <string>

#include "tandem/tools.h"
#include "tests/support/api.hpp"
#include "tests/support/failing_memory.hpp"
#include "tests/support/reference16.hpp"
#include "tests/support/slice.hpp"
#include "tests/support/thinned.hpp"

namespace {

using namespace tandem::test;
using tandem::reference16::Rows16;

constexpr std::uint8_t kPaint = 0xa5;
constexpr std::size_t kMargin = 64;

tandem_codec_options options16(const std::string &preset, uint32_t k, uint32_t m) {
  tandem_codec_options options = codec_options(k, m);
  EXPECT_EQ(tandem_matrix_from_name(preset.c_str(), &options.matrix), TANDEM_OK) << preset;
  EXPECT_EQ(tandem_matrix_field(options.matrix, &options.field), TANDEM_OK) << preset;
  EXPECT_EQ(options.field, TANDEM_FIELD_GF16);
  options.allow_non_mds = preset == "par2";
  return options;
}

std::vector<std::string> kernels_here() {
  std::vector<tandem_kernel> all(32);
  size_t count = 0;
  EXPECT_EQ(tandem_kernels(all.data(), all.size(), sizeof(tandem_kernel), &count), TANDEM_OK);
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) {
    if (all[i].available) {
      names.push_back(all[i].name);
    } else {
      std::printf("NOT RUN: kernel %s\n", all[i].name);
    }
  }
  return names;
}

Context context_with(const std::string &kernel, const std::string &executor = "pthread") {
  tandem_context_options options = context_options(executor);
  options.kernel = kernel.c_str();
  options.backend = "cpu";
  return make_context(options);
}

// Shards with margins that must stay as they are.
class Shards16 {
 public:
  Shards16(unsigned k, unsigned m, std::size_t shard_bytes) : k_(k), bytes_(shard_bytes) {
    memory_.assign(k + m, Bytes(shard_bytes + 2 * kMargin, kPaint));
    for (Bytes &each : memory_) pointers.push_back(each.data() + kMargin);
    present.assign(k + m, 1);
  }
  std::uint8_t *at(unsigned i) { return memory_[i].data() + kMargin; }
  Bytes shard(unsigned i) { return Bytes(at(i), at(i) + bytes_); }
  const void *const *data() const { return pointers.data(); }
  void *const *parity() const { return pointers.data() + k_; }
  bool margins_are_intact() const {
    return std::all_of(memory_.begin(), memory_.end(), [](const Bytes &each) {
      return std::all_of(each.begin(), each.begin() + kMargin, [](auto b) { return b == kPaint; }) &&
             std::all_of(each.end() - kMargin, each.end(), [](auto b) { return b == kPaint; });
    });
  }
  void lose(unsigned i) {
    present[i] = 0;
    std::fill_n(at(i), bytes_, std::uint8_t{0x3c});
  }
  std::vector<void *> pointers;
  Bytes present;

 private:
  unsigned k_;
  std::size_t bytes_;
  std::vector<Bytes> memory_;
};

struct Golden {
  const char *preset;
  unsigned k, m;
  std::size_t shard_bytes;
  std::uint64_t hash;  // FNV-1a of all parity
};

// Parity that PyPI's reed-solomon-leopard 0.2.1, Debian's liberasurecode 1.6.2 and Debian's par2 0.8.1 make of shards
// with byte j of shard i = 17 i + 5 j + 3 i j + 7 (i / 256) + 1.
constexpr Golden kGolden[] = {
    {"reed-solomon-simd", 1, 1, 64, 0x91d9fd89265c3d65},
    {"reed-solomon-simd", 2, 3, 64, 0x679c1161881ea0fd},
    {"reed-solomon-simd", 3, 2, 64, 0x0888676e5f282935},
    {"reed-solomon-simd", 3, 5, 2, 0xc0149451d51c057b},
    {"reed-solomon-simd", 5, 3, 66, 0x277a3ecdaf99671d},
    {"reed-solomon-simd", 4, 4, 126, 0xb6d4a85b1adae3ad},
    {"reed-solomon-simd", 10, 4, 200, 0xb06ad8bd9aefbb11},
    {"reed-solomon-simd", 7, 9, 64, 0xae9e50d080b4ec20},
    {"reed-solomon-simd", 13, 11, 62, 0x9de0f2fa423a3f96},
    {"reed-solomon-simd", 33, 20, 130, 0x45acf5973f66f2c8},
    {"reed-solomon-simd", 20, 33, 62, 0x9e0ad7f901472c93},
    {"reed-solomon-simd", 100, 30, 64, 0xfa21c24f5d7e9df6},
    {"reed-solomon-simd", 300, 70, 64, 0x4c723ae31963db65},
    {"reed-solomon-simd", 70, 300, 64, 0xd5e5b6b99c10b8c6},
    {"reed-solomon-simd", 1000, 300, 66, 0x377b04fbdf437acd},
    {"reed-solomon-simd", 3000, 1000, 64, 0xbfdaf39d66c70e11},
    {"reed-solomon-simd", 700, 4000, 2, 0xbfa639816a81375f},
    {"reed-solomon-simd", 32768, 2000, 2, 0x059b0313b104c557},
    {"liberasurecode-rs-vand", 1, 3, 2, 0x7095287a8d6fbc82},
    {"liberasurecode-rs-vand", 3, 2, 64, 0x43839ad850c0a524},
    {"liberasurecode-rs-vand", 10, 4, 130, 0xbc0259e831fd0932},
    {"liberasurecode-rs-vand", 20, 12, 66, 0x90fec0671f88822c},
    {"liberasurecode-rs-vand", 5, 1, 30, 0x0f15c1c63def7aba},
    {"leopard16", 10, 4, 200, 0xb06ad8bd9aefbb11},
    {"leopard16", 33, 20, 130, 0x45acf5973f66f2c8},
    {"leopard16", 1000, 300, 66, 0x377b04fbdf437acd},
    {"leopard16", 32768, 2000, 2, 0x059b0313b104c557},
    {"par2", 1, 1, 4, 0x9bb94e773dae78cd},
    {"par2", 3, 2, 64, 0x191bcd3fa5b2dd96},
    {"par2", 10, 4, 132, 0xb459a7fac8b7ac64},
    {"par2", 40, 9, 68, 0x9a6c75f22e852c8a},
    {"par2", 200, 30, 8, 0xd2dbd7891b504ab0},
};

TEST(Gf16, BytesOfOtherPrograms) {
  const Context context = make_context();
  for (const Golden &golden : kGolden) {
    SCOPED_TRACE(testing::Message() << golden.preset << " " << golden.k << "+" << golden.m);
    const Codec codec = make_codec(options16(golden.preset, golden.k, golden.m));
    Shards16 shards(golden.k, golden.m, golden.shard_bytes);
    for (unsigned i = 0; i < golden.k; ++i)
      for (std::size_t j = 0; j < golden.shard_bytes; ++j)
        shards.at(i)[j] = static_cast<std::uint8_t>(17 * i + 5 * j + 3 * i * j + 7 * (i >> 8) + 1);
    ASSERT_EQ(tandem_encode(context.get(), codec.get(), shards.data(), shards.parity(), golden.shard_bytes), TANDEM_OK)
        << tandem_last_error_message();
    std::uint64_t hash = 0xcbf29ce484222325;
    for (unsigned r = 0; r < golden.m; ++r)
      for (const std::uint8_t byte : shards.shard(golden.k + r)) hash = (hash ^ byte) * 0x100000001b3;
    EXPECT_EQ(hash, golden.hash);
  }
}

struct Shape16 {
  const char *preset;
  unsigned k, m;
};
constexpr Shape16 kShapes[] = {
    {"leopard16", 1, 1},
    {"leopard16", 3, 2},
    {"leopard16", 4, 9},
    {"leopard16", 17, 6},
    {"leopard16", 13, 16},
    {"reed-solomon-simd", 5, 3},
    {"reed-solomon-simd", 3, 11},
    {"reed-solomon-simd", 8, 5},
    {"reed-solomon-simd", 6, 29},
    {"par2", 9, 4},
    {"par2", 2, 7},
    {"liberasurecode-rs-vand", 10, 6},
    {"custom", 3, 2},
};

Rows16 rows_of(const Shape16 &shape) {
  if (shape.preset != std::string("custom")) return tandem::reference16::parity_rows(shape.preset, shape.k, shape.m);
  Rows16 rows(shape.m, std::vector<std::uint16_t>(shape.k));
  for (unsigned r = 0; r < shape.m; ++r)
    for (unsigned c = 0; c < shape.k; ++c)
      rows[r][c] = tandem::reference16::inverse("custom", static_cast<std::uint16_t>((1000 + r) ^ (c * 257)));
  return rows;
}

Codec codec_of(const Shape16 &shape, const Rows16 &rows) {
  if (shape.preset != std::string("custom")) return make_codec(options16(shape.preset, shape.k, shape.m));
  std::vector<std::uint16_t> cells;
  for (const auto &row : rows) cells.insert(cells.end(), row.begin(), row.end());
  tandem_codec_options options = codec_options(shape.k, shape.m, TANDEM_MATRIX_CUSTOM);
  options.field = TANDEM_FIELD_GF16;
  options.coefficients = cells.data();
  return make_codec(options);
}

TEST(Gf16, CoefficientsAreThoseOfTheReference) {
  for (const Shape16 &shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.preset << " " << shape.k << "+" << shape.m);
    const Rows16 rows = rows_of(shape);
    const Codec codec = codec_of(shape, rows);
    std::vector<std::uint16_t> cells(shape.k * shape.m), right;
    for (const auto &row : rows) right.insert(right.end(), row.begin(), row.end());
    ASSERT_EQ(tandem_codec_coefficients(codec.get(), cells.data(), cells.size() * 2), TANDEM_OK);
    EXPECT_EQ(cells, right);
    EXPECT_TRUE(refused(tandem_codec_coefficients(codec.get(), cells.data(), cells.size() * 2 - 1),
                        TANDEM_ERROR_INVALID_ARGUMENT, {"capacity_bytes", "the matrix has"}));
  }
}

// Encode, verify, update, accumulate, decode at every shape and awkward lengths.
TEST(Gf16, EveryKernelDoesWhatTheReferenceSays) {
  Random random(2016);
  Slice slice(kThinning);
  for (const std::string &kernel : kernels_here()) {
    const Context context = context_with(kernel);
    for (const Shape16 &shape : kShapes) {
      if (!slice.takes()) continue;
      const Rows16 rows = rows_of(shape);
      const Codec codec = codec_of(shape, rows);
      const unsigned k = shape.k, m = shape.m, n = k + m;
      for (const std::size_t bytes : {std::size_t{2}, std::size_t{62}, std::size_t{64}, std::size_t{66},
                                      std::size_t{2 * random.between(65, 700)}}) {
        SCOPED_TRACE(testing::Message() << kernel << " " << shape.preset << " " << k << "+" << m << " x " << bytes);
        Shards16 shards(k, m, bytes);
        std::vector<Bytes> truth;
        for (unsigned c = 0; c < k; ++c) {
          random.fill(shards.at(c), bytes);
          truth.push_back(shards.shard(c));
        }
        for (Bytes &each : tandem::reference16::apply(shape.preset, rows, truth)) truth.push_back(std::move(each));
        const auto intact = [&] {
          for (unsigned i = 0; i < n; ++i)
            if (shards.shard(i) != truth[i]) return testing::AssertionFailure() << "shard " << i;
          return shards.margins_are_intact() ? testing::AssertionSuccess() : testing::AssertionFailure() << "margins";
        };
        ASSERT_EQ(tandem_encode(context.get(), codec.get(), shards.data(), shards.parity(), bytes), TANDEM_OK)
            << tandem_last_error_message();
        ASSERT_TRUE(intact());

        tandem_verify_result result = {};
        result.struct_bytes = sizeof result;
        ASSERT_EQ(tandem_verify(context.get(), codec.get(), shards.data(), bytes, &result), TANDEM_OK);
        EXPECT_EQ(result.consistent, 1);
        const auto damaged = static_cast<unsigned>(random.below(n));
        const std::size_t place = random.below(bytes);
        shards.at(damaged)[place] ^= 0x41;
        ASSERT_EQ(tandem_verify(context.get(), codec.get(), shards.data(), bytes, &result), TANDEM_OK);
        EXPECT_EQ(result.consistent, 0);
        if (m > 2) {
          EXPECT_EQ(result.suspect_shard, damaged);
        }
        if (damaged >= k) {
          EXPECT_EQ(result.bad_parity_count, 1u);
          EXPECT_EQ(result.mismatch_byte_count, 1u);
          EXPECT_EQ(result.first_mismatch_bytes, place);
        }
        shards.at(damaged)[place] ^= 0x41;

        // A change of one data shard there and back, then parity put together shard by shard.
        const auto index = static_cast<unsigned>(random.below(k));
        const Bytes old_data = truth[index], new_data = random.bytes(bytes);
        ASSERT_EQ(
            tandem_update(context.get(), codec.get(), index, old_data.data(), new_data.data(), shards.parity(), bytes),
            TANDEM_OK);
        EXPECT_FALSE(intact());
        ASSERT_EQ(
            tandem_update(context.get(), codec.get(), index, new_data.data(), old_data.data(), shards.parity(), bytes),
            TANDEM_OK);
        ASSERT_TRUE(intact());
        for (unsigned c = 0; c < k; ++c)
          ASSERT_EQ(tandem_accumulate(context.get(), codec.get(), c, shards.at(c), shards.parity(), bytes, c == 0),
                    TANDEM_OK);
        ASSERT_TRUE(intact());

        for (unsigned round = 0; round < 4; ++round) {
          for (const unsigned i : random.pick(round == 0 ? std::min(k, m) : static_cast<unsigned>(random.between(1, m)),
                                              round == 0 ? k : n))
            shards.lose(i);
          const tandem_status status =
              tandem_decode(context.get(), codec.get(), shards.pointers.data(), shards.present.data(), bytes);
          if (shape.preset == std::string("par2") && status == TANDEM_ERROR_NOT_RECOVERABLE) {
            for (unsigned i = 0; i < n; ++i) std::copy(truth[i].begin(), truth[i].end(), shards.at(i));
          } else {
            ASSERT_EQ(status, TANDEM_OK) << tandem_last_error_message();
          }
          ASSERT_TRUE(intact());
          shards.present.assign(n, 1);
        }
        EXPECT_NE(kernel_calls(context.get()), 0u);
      }
    }
  }
}

// Codes that are wide enough for transforms of many levels, spread over threads, decoded in parts.
TEST(Gf16, WideCodesComeBack) {
  Random random(65536);
  Slice slice(kThinning);
  std::uint64_t number = 0, next = slice.first();
  struct Wide {
    const char *preset;
    unsigned k, m;
    std::size_t shard_bytes;
  };
  for (const std::string &executor : executors()) {
    const Context context = make_context(executor);
    for (const Wide &wide : {Wide{"leopard16", 300, 100, 1000}, Wide{"reed-solomon-simd", 100, 300, 4098},
                             Wide{"leopard16", 5000, 3000, 2}, Wide{"reed-solomon-simd", 3000, 5000, 66},
                             Wide{"leopard16", 32768, 32768, 2}, Wide{"reed-solomon-simd", 32768, 32767, 2}}) {
      if (number++ != next) continue;
      next += slice.step();
      SCOPED_TRACE(testing::Message() << wide.preset << " " << wide.k << "+" << wide.m);
      const unsigned n = wide.k + wide.m;
      const Codec codec = make_codec(options16(wide.preset, wide.k, wide.m));
      Shards16 shards(wide.k, wide.m, wide.shard_bytes);
      for (unsigned c = 0; c < wide.k; ++c) random.fill(shards.at(c), wide.shard_bytes);
      ASSERT_EQ(tandem_encode(context.get(), codec.get(), shards.data(), shards.parity(), wide.shard_bytes), TANDEM_OK)
          << tandem_last_error_message();
      std::vector<Bytes> truth;
      for (unsigned i = 0; i < n; ++i) truth.push_back(shards.shard(i));
      for (const unsigned lost : {wide.m, wide.m / 2, 20u, 2u}) {
        for (const unsigned i : random.pick(lost, n)) shards.lose(i);
        // One lost shard is not wanted.
        std::vector<void *> pointers = shards.pointers;
        const auto unwanted =
            static_cast<unsigned>(std::find(shards.present.begin(), shards.present.end(), 0) - shards.present.begin());
        pointers[unwanted] = nullptr;
        ASSERT_EQ(tandem_decode(context.get(), codec.get(), pointers.data(), shards.present.data(), wide.shard_bytes),
                  TANDEM_OK)
            << tandem_last_error_message();
        EXPECT_EQ(shards.shard(unwanted), Bytes(wide.shard_bytes, 0x3c));
        std::copy(truth[unwanted].begin(), truth[unwanted].end(), shards.at(unwanted));
        for (unsigned i = 0; i < n; ++i) ASSERT_EQ(shards.shard(i), truth[i]) << i << " of " << lost << " lost";
        ASSERT_TRUE(shards.margins_are_intact());
        shards.present.assign(n, 1);
      }
      tandem_verify_result result = {};
      result.struct_bytes = sizeof result;
      shards.at(7)[1] ^= 1;
      ASSERT_EQ(tandem_verify(context.get(), codec.get(), shards.data(), wide.shard_bytes, &result), TANDEM_OK);
      EXPECT_EQ(result.suspect_shard, 7u);
      EXPECT_EQ(result.bad_parity_count, wide.m);
      for (unsigned i = 0; i <= wide.m; ++i) shards.present[i < wide.k ? i : n - 1 - i + wide.k] = 0;
      EXPECT_TRUE(refused(
          tandem_decode(context.get(), codec.get(), shards.pointers.data(), shards.present.data(), wide.shard_bytes),
          TANDEM_ERROR_NOT_RECOVERABLE, {"data shards missing"}));
    }
  }
}

// A hybrid leaves the field to its CPU. A device says so before anything is written, whether it is there or not.
TEST(Gf16, HybridsUseTheirCpu) {
  tandem_context_options options = context_options();
  options.backend = "hybrid:cpu";
  const Context context = make_context(options);
  const Codec codec = make_codec(options16("leopard16", 40, 20));
  constexpr std::size_t kBytes = 32770;
  Random random(7);
  Shards16 shards(40, 20, kBytes), by_cpu(40, 20, kBytes);
  for (unsigned c = 0; c < 40; ++c) random.fill(shards.at(c), kBytes);
  ASSERT_EQ(tandem_encode(context.get(), codec.get(), shards.data(), shards.parity(), kBytes), TANDEM_OK)
      << tandem_last_error_message();
  ASSERT_EQ(tandem_encode(make_context().get(), codec.get(), shards.data(), by_cpu.parity(), kBytes), TANDEM_OK);
  for (unsigned i = 40; i < 60; ++i) EXPECT_EQ(shards.shard(i), by_cpu.shard(i));

  options = {};
  options.struct_bytes = sizeof options;
  for (const char *device : {"opencl:0:0", "cuda:0"}) {
    options.backend = device;
    tandem_context *made = nullptr;
    if (tandem_context_create(&options, &made) != TANDEM_OK) {
      std::printf("NOT RUN: %s: %s\n", device, tandem_last_error_message());
      continue;
    }
    const Context other(made);
    EXPECT_TRUE(refused(tandem_encode(other.get(), codec.get(), shards.data(), by_cpu.parity(), kBytes),
                        TANDEM_ERROR_UNSUPPORTED, {"GF(2^16)", "CPU"}));
  }
}

// A thread that has no memory for its part leaves it to the calling thread, which had its own before anything was
// written.
TEST(Gf16, ThreadsWithoutMemoryLeaveTheirPartToTheCaller) {
  constexpr unsigned k = 60, m = 30;
  constexpr std::size_t kBytes = 64 << 10;
  const Codec codec = make_codec(options16("leopard16", k, m));
  Shards16 shards(k, m, kBytes);
  Random random(5);
  for (unsigned c = 0; c < k; ++c) random.fill(shards.at(c), kBytes);
  ASSERT_EQ(tandem_encode(make_context("serial").get(), codec.get(), shards.data(), shards.parity(), kBytes),
            TANDEM_OK);
  std::vector<Bytes> truth;
  for (unsigned i = 0; i < k + m; ++i) truth.push_back(shards.shard(i));
  for (const std::string &executor : executors()) {
    bool has_succeeded = false;
    for (long count = 0; !has_succeeded; ++count) {
      const Context context = make_context(executor);  // its threads have no memory yet
      for (unsigned i = k; i < k + m; ++i) std::fill_n(shards.at(i), kBytes, kPaint);
      allowed_allocations = count;
      const tandem_status status = tandem_encode(context.get(), codec.get(), shards.data(), shards.parity(), kBytes);
      allowed_allocations = -1;
      has_succeeded = status == TANDEM_OK;
      for (unsigned i = k; i < k + m; ++i)
        ASSERT_EQ(shards.shard(i), has_succeeded ? truth[i] : Bytes(kBytes, kPaint)) << i << ", " << count;
      ASSERT_EQ(status, has_succeeded ? TANDEM_OK : TANDEM_ERROR_OUT_OF_MEMORY) << tandem_last_error_message();
      ASSERT_LT(count, 1000);
    }
  }
}

TEST(Gf16, BadInputIsRefusedWithNumbers) {
  const auto refuse = [](tandem_codec_options options, tandem_status status,
                         std::initializer_list<const char *> parts) {
    tandem_codec *codec = nullptr;
    const auto result = refused(tandem_codec_create(&options, &codec), status, parts);
    EXPECT_EQ(codec, nullptr);
    return result;
  };
  const auto with = [](int32_t matrix, int32_t field, uint32_t k, uint32_t m) {
    tandem_codec_options options = codec_options(k, m, matrix);
    options.field = field;
    return options;
  };
  constexpr int32_t kWide = TANDEM_FIELD_GF16;
  EXPECT_TRUE(refuse(with(TANDEM_MATRIX_LEOPARD16, kWide, 40000, 25537), TANDEM_ERROR_INVALID_ARGUMENT,
                     {"40000", "25537", "65536"}));
  EXPECT_TRUE(
      refuse(with(TANDEM_MATRIX_LEOPARD16, kWide, UINT32_MAX, 2), TANDEM_ERROR_INVALID_ARGUMENT, {"4294967295"}));
  EXPECT_TRUE(refuse(with(TANDEM_MATRIX_LEOPARD16, kWide, 40000, 20000), TANDEM_ERROR_INVALID_ARGUMENT,
                     {"40000", "20000", "32768", "65536"}));
  EXPECT_TRUE(refuse(with(TANDEM_MATRIX_LEOPARD16, kWide, 100, 40000), TANDEM_ERROR_INVALID_ARGUMENT, {"65536 + 100"}));
  EXPECT_TRUE(refuse(with(TANDEM_MATRIX_LEOPARD16, kWide, 0, 4), TANDEM_ERROR_INVALID_ARGUMENT, {"k = 0"}));
  EXPECT_TRUE(refuse(with(TANDEM_MATRIX_LEOPARD16, TANDEM_FIELD_GF8, 10, 4), TANDEM_ERROR_INVALID_ARGUMENT,
                     {"leopard16", "TANDEM_FIELD_GF16"}));
  EXPECT_TRUE(
      refuse(with(TANDEM_MATRIX_ISAL_CAUCHY, kWide, 10, 4), TANDEM_ERROR_INVALID_ARGUMENT, {"isal-cauchy", "GF(2^8)"}));
  EXPECT_TRUE(refuse(with(77, kWide, 10, 4), TANDEM_ERROR_INVALID_ARGUMENT, {"77"}));
  EXPECT_TRUE(refuse(with(TANDEM_MATRIX_LEOPARD16, 2, 10, 4), TANDEM_ERROR_INVALID_ARGUMENT, {"field 2"}));
  EXPECT_TRUE(refuse(with(TANDEM_MATRIX_PAR2, kWide, 10, 4), TANDEM_ERROR_NOT_MDS, {"par2", "m = 4"}));
  EXPECT_TRUE(refuse(with(TANDEM_MATRIX_PAR2, kWide, 32769, 2), TANDEM_ERROR_INVALID_ARGUMENT, {"32769", "32768"}));
  EXPECT_TRUE(
      refuse(with(TANDEM_MATRIX_LIBERASURECODE_RS_VAND, kWide, 29, 4), TANDEM_ERROR_INVALID_ARGUMENT, {"33", "32"}));
  tandem_codec_options large = with(TANDEM_MATRIX_CUSTOM, kWide, 8192, 4097);
  EXPECT_TRUE(refuse(large, TANDEM_ERROR_TOO_LARGE, {"67125248 bytes", "67108864"}));
  const std::uint16_t singular[] = {1, 1, 1, 1};
  tandem_codec_options custom = with(TANDEM_MATRIX_CUSTOM, kWide, 2, 2);
  EXPECT_TRUE(refuse(custom, TANDEM_ERROR_INVALID_ARGUMENT, {"NULL"}));
  custom.coefficients = singular;
  EXPECT_TRUE(refuse(custom, TANDEM_ERROR_NOT_MDS, {"cannot recover"}));

  const Context context = make_context();
  for (const char *preset : {"leopard16", "reed-solomon-simd", "par2", "liberasurecode-rs-vand"}) {
    const Codec codec = make_codec(options16(preset, 3, 2));
    Shards16 shards(3, 2, 65);
    EXPECT_TRUE(refused(tandem_encode(context.get(), codec.get(), shards.data(), shards.parity(), 65),
                        TANDEM_ERROR_INVALID_ARGUMENT, {"65", "multiple of 2"}));
    EXPECT_EQ(shards.shard(3), Bytes(65, kPaint));
  }
}

}  // namespace
