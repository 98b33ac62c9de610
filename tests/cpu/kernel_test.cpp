// SPDX-License-Identifier: Apache-2.0
// Every CPU kernel on every shape against the slow reference. Parameterised over the kernel table, so a new kernel in
// it is tested. If this CPU lacks a kernel, the test prints NOT RUN and counts it.
#include "cpu/kernels/kernel.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "core/presets.hpp"
#include "tests/core/plain_presets.hpp"
#include "tests/support/expected.hpp"
#include "tests/support/guarded.hpp"
#include "tests/support/random.hpp"
#include "tests/support/slice.hpp"
#include "tests/support/thinned.hpp"

namespace tandem::cpu {
namespace {

using Shapes = std::vector<std::pair<unsigned, unsigned>>;
using test::Bytes;
using test::Guarded;
using test::Random;
using test::Shards;

constexpr std::uint64_t kSeed = 20240917;
constexpr std::size_t kCanaryBytes = 192;  // beyond the widest vector, on both sides

struct AlignedFree {
  void operator()(void *p) const { std::free(p); }
};

// A kernel's tables for one matrix, in storage of exactly the bytes that it asked for.
class Tables {
 public:
  Tables(const Kernel &kernel, const Bytes &matrix, unsigned rows, unsigned columns) {
    const std::size_t bytes = kernel.tables_bytes(rows, columns);
    storage_.reset(std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64));
    auto *after = static_cast<std::uint8_t *>(storage_.get()) + bytes;
    std::memset(after, 0xa5, 64);
    kernel.prepare(matrix.data(), rows, columns, storage_.get());
    for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(after[i], 0xa5) << "prepare wrote beyond tables_bytes, byte " << i;
  }
  const void *get() const { return storage_.get(); }

 private:
  std::unique_ptr<void, AlignedFree> storage_;
};

Bytes random_matrix(Random &random, unsigned rows, unsigned columns) {
  return random.bytes(std::size_t{rows} * columns);
}

std::vector<const std::uint8_t *> pointers_of(const Shards &shards) {
  std::vector<const std::uint8_t *> pointers;
  for (const Bytes &shard : shards) pointers.push_back(shard.data());
  return pointers;
}

KernelCall call_of(const Tables &tables, const std::uint8_t *const *inputs, unsigned rows, unsigned columns) {
  KernelCall call = {};
  call.tables = tables.get();
  call.inputs = inputs;
  call.rows = rows;
  call.columns = columns;
  return call;
}

class KernelTest : public testing::TestWithParam<unsigned> {
 protected:
  void SetUp() override {
    const KernelTable table = kernel_table();
    ASSERT_LT(GetParam(), table.count);
    kernel_ = table.kernels[GetParam()];
    if (!kernel_->supported(cpu_features()))
      GTEST_SKIP() << "NOT RUN: kernel " << kernel_->name << " needs " << kernel_->needs;
    RecordProperty("kernel", kernel_->name);
    RecordProperty("seed", std::to_string(kSeed));
  }

  // Applies `call` (its tables, inputs, rows, columns and flags; outputs and mode are made here) and compares outputs
  // and the canary bytes around them with `product` = M * inputs.
  void check(KernelCall call, const Shards &product, std::size_t length_bytes) {
    call.length_bytes = length_bytes;
    const std::size_t room = length_bytes + 2 * kCanaryBytes;
    if (arena_.size() < call.rows * room) arena_.resize(call.rows * room);
    std::vector<std::uint8_t *> outputs(call.rows);
    for (unsigned r = 0; r < call.rows; ++r) outputs[r] = arena_.data() + r * room + kCanaryBytes;
    call.outputs = outputs.data();
    for (const bool accumulate : {false, true}) {
      call.accumulate = accumulate;
      for (unsigned r = 0; r < call.rows; ++r) test::paint(outputs[r] - kCanaryBytes, room, 7 * r + 1);
      kernel_->apply(call);
      for (unsigned r = 0; r < call.rows; ++r) {
        const std::uint8_t *begin = outputs[r] - kCanaryBytes;
        for (std::size_t i = 0; i < room; ++i) {
          auto want = static_cast<std::uint8_t>((i + 7 * r + 1) % 251);
          if (i >= kCanaryBytes && i - kCanaryBytes < length_bytes) {
            const std::uint8_t value = product[r][i - kCanaryBytes];
            want = accumulate ? want ^ value : value;
          }
          if (begin[i] == want) continue;
          ADD_FAILURE() << kernel_->name << (accumulate ? " accumulate " : " assign ") << call.rows << " x "
                        << call.columns << ", " << length_bytes << " bytes: output " << r << " byte "
                        << static_cast<std::ptrdiff_t>(i - kCanaryBytes) << " is " << unsigned{begin[i]}
                        << ", expected " << unsigned{want} << " (out_of_cache " << call.out_of_cache << ")";
          return;
        }
      }
    }
  }

  // Both modes for each of the lengths, inputs from 0 on.
  void check_lengths(const Bytes &matrix, unsigned rows, unsigned columns, const std::vector<std::size_t> &lengths,
                     Random &random) {
    std::size_t longest = 0;
    for (const std::size_t length : lengths) longest = std::max(longest, length);
    Shards inputs;
    for (unsigned c = 0; c < columns; ++c) inputs.push_back(random.bytes(longest));
    const auto pointers = pointers_of(inputs);
    const Shards product = test::expected(matrix.data(), rows, columns, pointers.data(), longest);
    const Tables tables(*kernel_, matrix, rows, columns);
    KernelCall call = call_of(tables, pointers.data(), rows, columns);
    for (const std::size_t length : lengths) {
      call.out_of_cache = random.chance(30);
      check(call, product, length);
      if (HasFailure()) return;
    }
  }

  const Kernel *kernel_ = nullptr;

 private:
  Bytes arena_;
};

std::vector<std::size_t> every_length(std::size_t last) {
  std::vector<std::size_t> lengths;
  for (std::size_t length = 1; length <= last; ++length) lengths.push_back(length);
  return lengths;
}

// Every small shape at every length up to four of the widest vectors and more.
TEST_P(KernelTest, SmallShapesAtEveryLength) {
  Random random(kSeed);
  const auto lengths = every_length(300);
  for (unsigned rows = 1; rows <= 12; ++rows) {
    for (unsigned columns = 1; columns <= 20; ++columns) {
      check_lengths(random_matrix(random, rows, columns), rows, columns, lengths, random);
      if (HasFailure()) return;
    }
  }
}

TEST_P(KernelTest, WideShapes) {
  Random random(kSeed + 1);
  const std::vector<std::size_t> lengths = {1,   15,  16,  17,  31,  32,  33,  63,  64,  65,   127,  128,
                                            129, 191, 192, 193, 255, 256, 257, 320, 511, 1000, 1027, 2049};
  for (const unsigned rows : {1u, 2u, 4u, 5u, 8u, 13u, 16u, 17u, 24u, 31u, 32u, 33u, 64u, 127u, 128u, 255u}) {
    for (const unsigned columns : {1u, 2u, 21u, 31u, 32u, 33u, 63u, 64u, 65u, 127u, 128u, 129u, 192u, 254u, 255u}) {
      if (rows + columns > 256 || (rows < 13 && columns < 21)) continue;
      std::vector<std::size_t> some = lengths;
      if (rows * columns > 4096) some = {1, 33, 64, 129, 257, 511};
      check_lengths(random_matrix(random, rows, columns), rows, columns, some, random);
      if (HasFailure()) return;
    }
  }
}

// Any shape, range, place and hints. Each shard lies between forbidden pages, and right at one of them or at a place of
// its own in a vector: nothing outside of the buffers is touched, not even read, and nothing beside the range changes.
// Shards at the beginning of pages collide in the cache, and kernels copy their tiles side by side.
TEST_P(KernelTest, AnyCallOnGuardedMemory) {
  Random random(test::slice_seed());
  for (unsigned round = 0; round < (test::runs_every_case() ? 20'000 : test::thinned(2500)); ++round) {
    const bool is_small = random.chance(80);
    const auto rows = static_cast<unsigned>(random.between(1, is_small ? 12 : 40));
    const auto columns = static_cast<unsigned>(random.between(1, is_small ? 20 : 40));
    Bytes matrix = random_matrix(random, rows, columns);
    if (random.chance(40))  // a code with the symmetric blocks that kernels look for
      for (unsigned i = 0; i < rows * columns; ++i)
        matrix[i] = reference::inverse(static_cast<std::uint8_t>((columns + i / columns) ^ (i % columns)));
    std::size_t length = random.between(1, 140);
    if (random.chance(40)) length = (std::size_t{64} << random.below(8)) - 1 + random.below(3);
    if (random.chance(2)) length = random.between(10'000, 80'000);
    const std::size_t offset = random.chance(50) ? 0 : random.below(5000);
    const auto against = random.chance(50) ? Guarded::Against::front : Guarded::Against::back;
    const bool has_own_places = random.chance(40);
    std::vector<Guarded> memory;
    std::vector<std::uint8_t *> shards;
    Shards want;
    std::vector<const std::uint8_t *> ranges;
    for (unsigned i = 0; i < rows + columns; ++i) {
      const std::size_t lead = has_own_places ? random.below(64) : 0, around = has_own_places ? 64 : 0;
      memory.emplace_back(offset + length + around, against);
      random.fill(memory[i].data(), offset + length + around);
      shards.push_back(memory[i].data() + lead);
      if (i < rows) want.emplace_back(memory[i].data(), memory[i].data() + offset + length + around);
      if (i >= rows) memory[i].make_read_only();
      if (i >= rows) ranges.push_back(shards[i] + offset);
    }
    const Shards product = test::expected(matrix.data(), rows, columns, ranges.data(), length);
    const Tables tables(*kernel_, matrix, rows, columns);
    KernelCall call = call_of(tables, shards.data() + rows, rows, columns);
    call.outputs = shards.data();
    call.offset_bytes = offset;
    call.length_bytes = length;
    call.accumulate = random.chance(50);
    call.out_of_cache = random.chance(50);
    call.small_stack = random.chance(20);
    call.l1_ways = random.chance(50) ? 12 : 0;
    constexpr std::uint32_t kHints[] = {0, 1, 63, 64, 65, 100, 333, 777, 1000, 4096, 5001, 1 << 20, UINT32_MAX};
    if (random.chance(40)) call.tile_bytes = kHints[random.below(std::size(kHints))];
    if (random.chance(40)) call.prefetch_bytes = kHints[random.below(std::size(kHints) - 1)];
    kernel_->apply(call);
    for (unsigned r = 0; r < rows; ++r) {
      std::uint8_t *const begin = want[r].data() + (shards[r] - memory[r].data()) + offset;
      for (std::size_t i = 0; i < length; ++i) begin[i] = call.accumulate ? begin[i] ^ product[r][i] : product[r][i];
      ASSERT_EQ(std::memcmp(memory[r].data(), want[r].data(), want[r].size()), 0)
          << kernel_->name << (call.accumulate ? " accumulate " : " assign ") << rows << " x " << columns << ", output "
          << r << ", " << length << " bytes at " << offset << ", against the "
          << (against == Guarded::Against::front ? "front" : "back") << ", own places " << has_own_places
          << ", out_of_cache " << call.out_of_cache << ", small_stack " << call.small_stack << ", l1_ways "
          << call.l1_ways << ", tile_bytes " << call.tile_bytes << ", prefetch_bytes " << call.prefetch_bytes;
    }
  }
}

// Sizes are 64-bit: shards longer than 4 GiB, of which only the last page is touched.
TEST_P(KernelTest, OffsetBeyondFourGibibytes) {
  constexpr std::size_t kOffset = (std::size_t{5} << 30) + 77, kBytes = 1234, kMapped = (std::size_t{5} << 30) + 8192;
  constexpr std::size_t kAround = 64;
  constexpr unsigned kRows = 2, kColumns = 3;
  Random random(kSeed + 5);
  std::vector<std::uint8_t *> shards;
  for (unsigned i = 0; i < kRows + kColumns; ++i) {
    void *mapped = mmap(nullptr, kMapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(mapped, MAP_FAILED) << "no address space for " << kMapped << " bytes";
    shards.push_back(static_cast<std::uint8_t *>(mapped));
    random.fill(shards.back() + kOffset - kAround, kBytes + 2 * kAround);  // so that a write beside the range shows
  }
  const Bytes before[] = {Bytes(shards[0] + kOffset - kAround, shards[0] + kOffset),
                          Bytes(shards[1] + kOffset - kAround, shards[1] + kOffset)};
  const Bytes after[] = {Bytes(shards[0] + kOffset + kBytes, shards[0] + kOffset + kBytes + kAround),
                         Bytes(shards[1] + kOffset + kBytes, shards[1] + kOffset + kBytes + kAround)};
  const Bytes matrix = random_matrix(random, kRows, kColumns);
  const Tables tables(*kernel_, matrix, kRows, kColumns);
  const std::uint8_t *ranges[kColumns] = {shards[2] + kOffset, shards[3] + kOffset, shards[4] + kOffset};
  const Shards product = test::expected(matrix.data(), kRows, kColumns, ranges, kBytes);
  KernelCall call = call_of(tables, shards.data() + kRows, kRows, kColumns);
  call.outputs = shards.data();
  call.offset_bytes = kOffset;
  call.length_bytes = kBytes;
  kernel_->apply(call);
  for (unsigned r = 0; r < kRows; ++r) {
    EXPECT_EQ(std::memcmp(shards[r] + kOffset, product[r].data(), kBytes), 0) << kernel_->name << " row " << r;
    EXPECT_EQ(std::memcmp(shards[r] + kOffset - kAround, before[r].data(), kAround), 0);
    EXPECT_EQ(std::memcmp(shards[r] + kOffset + kBytes, after[r].data(), kAround), 0);
  }
  for (std::uint8_t *shard : shards) munmap(shard, kMapped);
}

// Two threads own neighbouring ranges: a kernel that writes the neighbour's bytes, even with the value that it read,
// loses what the neighbour wrote in between.
TEST_P(KernelTest, NeighbouringRangesInTwoThreads) {
  Random random(kSeed + 8);
  constexpr unsigned kRows = 3, kColumns = 4, kRounds = 1500;
  constexpr std::size_t kBytes = 512;
  const Bytes matrix = random_matrix(random, kRows, kColumns);
  const Tables tables(*kernel_, matrix, kRows, kColumns);
  Shards inputs;
  for (unsigned c = 0; c < kColumns; ++c) inputs.push_back(random.bytes(kBytes));
  const auto pointers = pointers_of(inputs);
  const Shards product = test::expected(matrix.data(), kRows, kColumns, pointers.data(), kBytes);
  for (const std::size_t cut :
       {std::size_t{1}, std::size_t{63}, std::size_t{100}, std::size_t{131}, std::size_t{300}}) {
    Shards outputs(kRows, Bytes(kBytes));
    std::vector<std::uint8_t *> out;
    for (Bytes &output : outputs) out.push_back(output.data());
    std::atomic<unsigned> ready{0};
    const auto work = [&](std::size_t offset, std::size_t length) {
      KernelCall call = call_of(tables, pointers.data(), kRows, kColumns);
      call.outputs = out.data();
      call.offset_bytes = offset;
      call.length_bytes = length;
      call.accumulate = true;
      ready.fetch_add(1);
      while (ready.load() < 2) std::this_thread::yield();
      for (unsigned round = 0; round < kRounds; ++round) {
        call.out_of_cache = round % 3 == 0;
        kernel_->apply(call);
      }
    };
    std::thread other(work, cut, kBytes - cut);
    work(0, cut);
    other.join();
    static_assert(kRounds % 2 == 0);  // everything was added an even number of times
    for (unsigned r = 0; r < kRows; ++r)
      ASSERT_EQ(outputs[r], Bytes(kBytes, 0)) << kernel_->name << " lost an update beside byte " << cut;
    // Both modes once more, so that the zeros above do not come from a kernel that does nothing.
    KernelCall call = call_of(tables, pointers.data(), kRows, kColumns);
    call.outputs = out.data();
    call.length_bytes = kBytes;
    kernel_->apply(call);
    for (unsigned r = 0; r < kRows; ++r) ASSERT_EQ(outputs[r], product[r]);
  }
}

TEST_P(KernelTest, SpecialMatrices) {
  Random random(kSeed + 9);
  const std::vector<std::size_t> lengths = {1, 31, 64, 65, 129, 193, 257};
  for (const auto &[rows, columns] : Shapes{{1, 1},
                                            {1, 9},
                                            {2, 2},
                                            {3, 3},
                                            {4, 4},
                                            {4, 5},
                                            {4, 10},
                                            {5, 8},
                                            {6, 7},
                                            {8, 8},
                                            {8, 13},
                                            {12, 20},
                                            {16, 16},
                                            {32, 32}}) {
    const std::size_t cells = std::size_t{rows} * columns;
    const auto at = [columns = columns](unsigned r, unsigned c) { return std::size_t{r} * columns + c; };
    std::vector<Bytes> matrices;
    matrices.push_back(Bytes(cells, 0));
    for (const std::uint8_t value : {1, 2, 0x80, 0xff}) matrices.push_back(Bytes(cells, value));
    for (const bool with_ones : {false, true}) {  // identity; identity plus a column and a row of ones
      Bytes matrix(cells, 0);
      for (unsigned r = 0; r < rows; ++r)
        for (unsigned c = 0; c < columns; ++c)
          matrix[at(r, c)] = r == c || (with_ones && (c + 1 == columns || r + 1 == rows));
      matrices.push_back(matrix);
    }
    for (const std::uint64_t kinds : {2u, 3u}) {  // zeros and ones; zeros, ones and anything
      Bytes matrix(cells);
      for (std::uint8_t &cell : matrix) {
        const std::uint64_t kind = random.below(kinds);
        cell = kind < 2 ? static_cast<std::uint8_t>(kind) : random.byte();
      }
      matrices.push_back(matrix);
    }
    for (unsigned skip = 0; skip < 2; ++skip) {  // every second row, every second column zero
      Bytes matrix = random_matrix(random, rows, columns);
      for (unsigned r = 0; r < rows; ++r)
        for (unsigned c = 0; c < columns; ++c)
          if ((skip == 0 ? r : c) % 2 == 0) matrix[at(r, c)] = 0;
      matrices.push_back(matrix);
    }
    for (const unsigned block : {2u, 4u, 8u, 128u}) {
      // Symmetric blocks, whole or cut off at the edge; then the same with one cell changed anywhere, which is
      // symmetric almost everywhere.
      Bytes matrix(cells), xor_indexed(cells);
      for (unsigned r = 0; r < rows; ++r) {
        for (unsigned c = 0; c < columns; ++c) {
          const unsigned row_in = r % block, column_in = c % block;
          const bool mirrored = row_in > column_in && c - column_in + row_in < columns && r - row_in + column_in < rows;
          matrix[at(r, c)] = mirrored ? matrix[at(r - row_in + column_in, c - column_in + row_in)] : random.byte();
          xor_indexed[at(r, c)] =
              static_cast<std::uint8_t>(29 + 3 * (row_in ^ column_in) + 7 * (c / block) + r / block);
        }
      }
      matrices.push_back(matrix);
      matrices.push_back(xor_indexed);
      for (unsigned i = 0; i < 4; ++i) {
        Bytes broken = i % 2 == 0 ? matrix : xor_indexed;
        broken[random.below(cells)] ^= static_cast<std::uint8_t>(1 + random.below(255));
        matrices.push_back(broken);
      }
    }
    for (const Bytes &matrix : matrices) {
      check_lengths(matrix, rows, columns, lengths, random);
      if (HasFailure()) return;
    }
  }
}

// Every preset's own encode matrices, as users run them.
TEST_P(KernelTest, PresetMatrices) {
  Random random(kSeed + 10);
  for (const core::Preset &preset : test::plain_presets()) {
    for (const unsigned k : {1u,  2u,  3u,  4u,  5u,  6u,  7u,  8u,  9u,  10u,  11u,  12u,
                             13u, 15u, 16u, 17u, 20u, 31u, 32u, 33u, 64u, 100u, 128u, 251u}) {
      for (const unsigned m : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 10u, 12u, 16u, 32u}) {
        if (k + m > 256 || (k > 20 && m > 8 && (k + m) % 3 != 0)) continue;
        core::Matrix matrix;
        try {
          matrix = preset.make(k, m);
        } catch (const base::Error &) {
          continue;  // the preset has no such (k, m)
        }
        const std::size_t cells = std::size_t{k} * m;
        const Bytes coefficients(matrix.data(), matrix.data() + cells);
        check_lengths(coefficients, m, k, {64 + cells % 64, 193}, random);
        if (HasFailure()) {
          ADD_FAILURE() << "matrix " << preset.name;
          return;
        }
      }
    }
  }
}

// The nibble table of a coefficient, from its definition (kernel.hpp).
void append_nibble_table(Bytes &tables, std::uint8_t coefficient) {
  for (unsigned i = 0; i < 32; ++i)
    tables.push_back(reference::multiply(coefficient, static_cast<std::uint8_t>(i < 16 ? i : (i - 16) << 4)));
}

// Coefficients from the caller's tables: every small shape at every length, rows of the tables apart, nothing touched
// outside the buffers.
TEST_P(KernelTest, NibbleTables) {
  Random random(kSeed + 14);
  std::vector<std::size_t> lengths = every_length(140);
  lengths.insert(lengths.end(), {191, 192, 193, 255, 256, 257, 319, 511, 512, 513, 1000, 4097});
  for (const auto &[rows, columns] : Shapes{{1, 1},
                                            {2, 1},
                                            {3, 1},
                                            {4, 1},
                                            {9, 1},
                                            {1, 2},
                                            {1, 7},
                                            {2, 4},
                                            {3, 5},
                                            {4, 10},
                                            {5, 3},
                                            {8, 10},
                                            {11, 4},
                                            {2, 255}}) {
    const std::size_t row_bytes = (columns + rows % 3) * kNibbleTableBytes;  // a slice of a wider table
    const Bytes matrix = random_matrix(random, rows, columns);
    Bytes tables;
    for (unsigned r = 0; r < rows; ++r) {
      for (unsigned c = 0; c < columns; ++c) append_nibble_table(tables, matrix[std::size_t{r} * columns + c]);
      tables.resize((r + 1) * row_bytes, 0xee);
    }
    for (const std::size_t length : lengths) {
      if (columns == 255 && length % 31 > 1) continue;
      const auto against = length % 2 == 0 ? Guarded::Against::front : Guarded::Against::back;
      std::vector<Guarded> shards;
      std::vector<const std::uint8_t *> inputs;
      std::vector<std::uint8_t *> outputs;
      for (unsigned i = 0; i < rows + columns; ++i) {
        shards.emplace_back(length, against);
        random.fill(shards.back().data(), length);
        i < rows ? outputs.push_back(shards.back().data()) : inputs.push_back(shards.back().data());
      }
      const Shards product = test::expected(matrix.data(), rows, columns, inputs.data(), length);
      for (const bool out_of_cache : {false, true}) {
        for (const bool accumulate : {false, true, true}) {
          Shards want = product;
          for (unsigned r = 0; accumulate && r < rows; ++r)
            for (std::size_t i = 0; i < length; ++i) want[r][i] ^= outputs[r][i];
          kernel_->apply_nibbles({tables.data(), row_bytes, inputs.data(), outputs.data(), length, rows, columns,
                                  accumulate, out_of_cache});
          for (unsigned r = 0; r < rows; ++r)
            ASSERT_EQ(std::memcmp(outputs[r], want[r].data(), length), 0)
                << kernel_->name << " " << rows << " x " << columns << ", " << length << " bytes, row " << r
                << ", accumulate " << accumulate << ", out_of_cache " << out_of_cache;
        }
      }
    }
  }
}

TEST_P(KernelTest, Raid) {
  Random random(kSeed + 15);
  std::vector<std::size_t> lengths = every_length(140);
  lengths.insert(lengths.end(), {255, 256, 257, 511, 512, 513, 640, 1024, 1100, 4096, 5001});
  for (const std::uint32_t count : {1u, 2u, 3u, 10u, 255u}) {
    Bytes matrix(2 * count, 1);
    for (unsigned i = 0; i < count; ++i) matrix[count + i] = reference::power(2, i);
    for (const std::size_t length : lengths) {
      if (count == 255 && length % 13 != 0) continue;
      const std::size_t offset = length % 7;
      const auto against = length % 2 == 0 ? Guarded::Against::front : Guarded::Against::back;
      std::vector<Guarded> shards;
      std::vector<const std::uint8_t *> inputs, ranges;
      for (unsigned i = 0; i < count; ++i) {
        shards.emplace_back(offset + length, against);
        random.fill(shards.back().data(), offset + length);
        shards.back().make_read_only();
        inputs.push_back(shards.back().data());
        ranges.push_back(shards.back().data() + offset);
      }
      const Shards want = test::expected(matrix.data(), 2, count, ranges.data(), length);
      // Outputs at one place of a vector, where they can be streamed past the cache, and at two.
      for (const std::size_t shift : {0, 1}) {
        Guarded p(length + shift, against), q(length, against);
        for (const bool out_of_cache : {false, true}) {
          for (const bool with_q : {false, true}) {
            std::memset(p.data(), 0x11, length + shift);
            std::memset(q.data(), 0x22, length);
            kernel_->raid(
                {inputs.data(), offset, count, p.data() + shift, with_q ? q.data() : nullptr, length, out_of_cache});
            ASSERT_EQ(std::memcmp(p.data() + shift, want[0].data(), length), 0)
                << kernel_->name << " p of " << count << ", " << length << " bytes, out_of_cache " << out_of_cache;
            ASSERT_EQ(std::memcmp(q.data(), (with_q ? want[1] : Bytes(length, 0x22)).data(), length), 0)
                << kernel_->name << " q of " << count << ", " << length << " bytes, out_of_cache " << out_of_cache;
            if (shift != 0) {
              ASSERT_EQ(p.data()[0], 0x11);
            }
          }
        }
      }
    }
  }
}

// Random lists of sums, some without sources, some of sums before them, some onto what they add to. Nothing beyond a
// vector is read or written.
TEST_P(KernelTest, SumsOfPackets) {
  Random random(kSeed + 30);
  for (const std::size_t bytes : {64, 128, 192, 256, 320, 448, 512, 1024, 1152}) {
    constexpr unsigned kInputs = 20, kSums = 30;
    std::vector<Guarded> memory;
    std::vector<std::uint8_t *> slots;
    test::Shards want;
    for (unsigned i = 0; i < kInputs + kSums; ++i) {
      memory.emplace_back(bytes, i % 2 == 0 ? Guarded::Against::back : Guarded::Against::front);
      slots.push_back(memory.back().data());
      want.push_back(random.bytes(bytes));
      std::memcpy(slots.back(), want.back().data(), bytes);
    }
    std::vector<std::uint32_t> sums;
    for (unsigned i = 0; i < kSums; ++i) {
      const unsigned to = kInputs + i, count = static_cast<unsigned>(i == 3 ? 0 : random.between(1, kInputs));
      std::vector<unsigned> from = random.pick(count, to);
      if (i % 5 == 4) from.push_back(to);
      sums.push_back(static_cast<std::uint32_t>(from.size()));
      sums.push_back(to);
      sums.insert(sums.end(), from.begin(), from.end());
      Bytes sum(bytes);
      for (const unsigned each : from)
        for (std::size_t b = 0; b < bytes; ++b) sum[b] ^= want[each][b];
      want[to] = sum;
    }
    kernel_->add_packets({slots.data(), bytes, sums.data(), kSums});
    for (unsigned i = 0; i < slots.size(); ++i)
      ASSERT_EQ(std::memcmp(slots[i], want[i].data(), bytes), 0) << kernel_->name << ", slot " << i << " of " << bytes;
  }
}

INSTANTIATE_TEST_SUITE_P(Table, KernelTest, testing::Range(0u, kernel_table().count), [](const auto &test) {
  std::string name = kernel_table().kernels[test.param]->name;
  for (char &c : name)
    if (c == '-') c = '_';
  return name;
});

TEST(KernelTable, ScalarIsLastAndRunsAnywhere) {
  const KernelTable table = kernel_table();
  ASSERT_GE(table.count, 1u);
  EXPECT_STREQ(table.kernels[table.count - 1]->name, "scalar");
  EXPECT_TRUE(table.kernels[table.count - 1]->supported(CpuFeatures{}));
}

TEST(KernelTable, NamesAreUniqueAndSelectable) {
  const KernelTable table = kernel_table();
  const CpuFeatures everything = {true, true, true, true, true, true};
  for (unsigned i = 0; i < table.count; ++i) {
    EXPECT_EQ(select_kernel(everything, table.kernels[i]->name), table.kernels[i]);
    for (unsigned j = 0; j < i; ++j) EXPECT_STRNE(table.kernels[i]->name, table.kernels[j]->name);
  }
  EXPECT_EQ(select_kernel(everything, nullptr), table.kernels[0]);
  EXPECT_EQ(select_kernel(everything, "no-such-kernel"), nullptr);
  EXPECT_EQ(select_kernel(everything, ""), nullptr);
}

// Every subset of CPU features: what is chosen can run there, and is the best that can.
TEST(KernelTable, EverySubsetOfFeatures) {
  const KernelTable table = kernel_table();
  for (unsigned bits = 0; bits < 64; ++bits) {
    const auto has = [&](unsigned bit) { return (bits >> bit & 1) != 0; };
    const CpuFeatures features = {has(0), has(1), has(2), has(3), has(4), has(5)};
    const Kernel *chosen = select_kernel(features, nullptr);
    ASSERT_NE(chosen, nullptr);
    EXPECT_TRUE(chosen->supported(features));
    for (unsigned i = 0; i < table.count && table.kernels[i] != chosen; ++i)
      EXPECT_FALSE(table.kernels[i]->supported(features)) << table.kernels[i]->name << " was passed over";
    for (unsigned i = 0; i < table.count; ++i) {
      const std::string name = table.kernels[i]->name;
      const Kernel *forced = select_kernel(features, name.c_str());
      EXPECT_EQ(forced != nullptr, table.kernels[i]->supported(features)) << name;
      bool able = true;
      if (name.starts_with("ssse3")) able = features.ssse3;
      if (name.starts_with("avx2")) able = features.avx2;
      if (name.starts_with("avx512")) able = features.avx512;
      if (name.ends_with("gfni")) able = able && features.gfni;
      if (name.starts_with("neon")) able = features.neon;
      if (name.ends_with("eor3")) able = able && features.eor3;
      EXPECT_EQ(table.kernels[i]->supported(features), able) << name << " with features " << bits;
    }
  }
}

}  // namespace
}  // namespace tandem::cpu
