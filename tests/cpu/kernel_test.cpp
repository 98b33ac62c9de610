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

namespace tandem::cpu {
namespace {

using test::Bytes;
using test::Guarded;
using test::Random;
using test::Shards;

constexpr std::uint64_t kSeed = 20240917;

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

  const Kernel *kernel_ = nullptr;
};

// A matrix of the kinds that kernels treat apart: a code's own; few values, often 0 and 1; identity beside ones; rows
// or columns of zeros; symmetric blocks, whole or cut off at the edge, perhaps with one cell that is not symmetric.
Bytes some_matrix(Random &random, unsigned rows, unsigned columns) {
  Bytes matrix = random_matrix(random, rows, columns);
  const std::uint8_t values[] = {static_cast<std::uint8_t>(random.below(2)), random.byte(), 0, 1, random.byte()};
  const auto kind = random.below(10), value_count = random.between(1, 5);
  const unsigned block = 1u << random.below(8);
  static const std::vector<core::Preset> presets = test::plain_presets();
  try {
    if (kind == 0) {
      const core::Matrix made = presets[random.below(presets.size())].make(columns, rows);
      matrix.assign(made.data(), made.data() + matrix.size());
    }
  } catch (const base::Error &) {  // the preset has no such (k, m)
  }
  for (unsigned r = 0; r < rows; ++r) {
    for (unsigned c = 0; c < columns; ++c) {
      std::uint8_t &cell = matrix[std::size_t{r} * columns + c];
      const unsigned row_in = r % block, column_in = c % block;
      if (kind == 1) cell = reference::inverse(static_cast<std::uint8_t>((columns + r) ^ c));
      if (kind == 2) cell = values[random.below(value_count)];
      if (kind == 3) cell = r == c || (block < 16 && (r + 1 == rows || c + 1 == columns));
      if (kind == 4 && (block < 16 ? r : c) % 2 == 0) cell = 0;
      if (kind == 5) cell = static_cast<std::uint8_t>(29 + 3 * (row_in ^ column_in) + 7 * (c / block) + r / block);
      if (kind == 6 && row_in > column_in && c - column_in + row_in < columns)
        cell = matrix[std::size_t{r - row_in + column_in} * columns + c - column_in + row_in];
    }
  }
  if (random.chance(30)) matrix[random.below(matrix.size())] ^= random.byte();
  return matrix;
}

// P and Q of RAID 6.
Bytes raid_matrix(unsigned rows, unsigned columns) {
  Bytes matrix(std::size_t{rows} * columns, 1);
  for (std::size_t i = columns; i < matrix.size(); ++i) matrix[i] = reference::power(2, i - columns);
  return matrix;
}

// Nibble tables of a matrix, from their definition (kernel.hpp). Rows are apart, as in a slice of a wider table.
Bytes nibble_tables(const Bytes &matrix, unsigned columns, std::size_t row_bytes) {
  Bytes tables;
  for (std::size_t cell = 0; cell < matrix.size(); ++cell) {
    for (unsigned i = 0; i < 32; ++i)
      tables.push_back(reference::multiply(matrix[cell], static_cast<std::uint8_t>(i < 16 ? i : (i - 16) << 4)));
    if ((cell + 1) % columns == 0) tables.resize((cell / columns + 1) * row_bytes, 0xee);
  }
  return tables;
}

// Any matrix, range, place and hints, by each function: prepared tables, the caller's nibble tables, RAID 6. Every
// length up to four of the widest vectors has its turn, and longer ones. Each shard lies between forbidden pages, and
// right at one of them or at a place of its own in a vector: nothing outside of the buffers is touched, not even read,
// and nothing beside the range changes. Shards at the beginning of pages collide in the cache, and kernels copy their
// tiles side by side.
TEST_P(KernelTest, AnyCallOnGuardedMemory) {
  Random random(test::slice_seed());
  for (unsigned round = 0; round < test::rounds(9000, 60'000); ++round) {
    const bool is_small = random.chance(80), is_wide = random.chance(4), is_raid = random.chance(10);
    auto rows = static_cast<unsigned>(random.between(1, is_wide && random.chance(50) ? 255
                                                        : is_small || is_wide        ? 12
                                                                                     : 40));
    if (is_raid) rows = static_cast<unsigned>(random.between(1, 2));
    const auto columns = static_cast<unsigned>(random.between(1, is_wide ? 256 - rows : is_small ? 20 : 40));
    const Bytes matrix = is_raid ? raid_matrix(rows, columns) : some_matrix(random, rows, columns);
    std::size_t length = 1 + round % 300;
    if (random.chance(30)) length = (std::size_t{64} << random.below(is_wide ? 4 : 8)) - 1 + random.below(3);
    if (random.chance(1) && !is_wide) length = random.between(10'000, 80'000);
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
    const bool has_nibbles = !is_raid && columns * rows < 3000 && random.chance(20);
    const char *const way = is_raid ? ", raid" : has_nibbles ? ", nibbles" : "";
    if (is_raid) {
      call.accumulate = false;
      std::uint8_t *const to[] = {shards[0] + offset, shards[rows - 1] + offset};
      (rows == 2 ? kernel_->raid_pq : kernel_->raid_p)(call.inputs, offset, columns, to, length, call.out_of_cache);
    } else if (has_nibbles) {
      const std::size_t row_bytes = (columns + round % 3) * kNibbleTableBytes;
      std::vector<std::uint8_t *> to;
      for (unsigned r = 0; r < rows; ++r) to.push_back(shards[r] + offset);
      kernel_->apply_nibbles({nibble_tables(matrix, columns, row_bytes).data(), row_bytes, ranges.data(), to.data(),
                              length, rows, columns, call.accumulate, call.out_of_cache});
    } else {
      kernel_->apply(call);
    }
    for (unsigned r = 0; r < rows; ++r) {
      std::uint8_t *const begin = want[r].data() + (shards[r] - memory[r].data()) + offset;
      for (std::size_t i = 0; i < length; ++i) begin[i] = call.accumulate ? begin[i] ^ product[r][i] : product[r][i];
      ASSERT_EQ(std::memcmp(memory[r].data(), want[r].data(), want[r].size()), 0)
          << kernel_->name << way << (call.accumulate ? " accumulate " : " assign ") << rows << " x " << columns
          << ", output " << r << ", " << length << " bytes at " << offset << ", against the "
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

// cpu/gf8.cpp reserves for the largest call, and isal/coding.cpp has 8 bytes for each coefficient.
TEST_P(KernelTest, TablesGrowWithRowsAndColumns) {
  for (unsigned rows = 1; rows < 256; ++rows) {
    for (unsigned columns = 1; rows + columns <= 256; ++columns) {
      const std::size_t bytes = kernel_->tables_bytes(rows, columns);
      ASSERT_GE(bytes, std::size_t{8} * rows * columns);
      ASSERT_GE(bytes, kernel_->tables_bytes(rows - 1, columns));
      ASSERT_GE(bytes, kernel_->tables_bytes(rows, columns - 1));
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
