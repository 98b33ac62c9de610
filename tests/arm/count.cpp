// SPDX-License-Identifier: Apache-2.0
// Runs one call of a kernel for each case, between two marks that scripts/arm-instructions finds in qemu's log.
// Compiled with COUNT_ISAL it calls ISA-L's NEON functions instead.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cpu/kernels/field.hpp"
#include "cpu/kernels/kernel.hpp"
#include "cpu/kernels/nibbles.hpp"

#ifdef COUNT_ISAL
extern "C" {
void ec_encode_data_neon(int, int, int, unsigned char *, unsigned char **, unsigned char **);
void ec_encode_data_update_neon(int, int, int, int, unsigned char *, unsigned char *, unsigned char **);
int pq_gen_neon(int, int, void **);
int xor_gen_neon(int, int, void **);
}
#endif

extern "C" {
[[gnu::noinline]] void count_begins() { asm volatile(""); }
[[gnu::noinline]] void count_ends() { asm volatile(""); }
}

namespace {

using tandem::cpu::kNibbleTableBytes;

[[noreturn]] void fail(const std::string &text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  std::exit(1);
}

constexpr unsigned kSeed = 251;

struct Case {
  std::string operation;  // cauchy, transform (the same code), vandermonde, direct (the same,
                          // from nibble tables), update, pq, xor
  unsigned k, m;
  std::size_t shard_bytes;
};

std::vector<std::uint8_t> matrix_of(const Case &of) {
  std::vector<std::uint8_t> cells(std::size_t{of.m} * of.k);
  unsigned generator = 1;
  for (unsigned r = 0; r < of.m; ++r) {
    unsigned power = 1;
    for (unsigned c = 0; c < of.k; ++c) {
      cells[std::size_t{r} * of.k + c] = of.operation == "cauchy" || of.operation == "transform"
                                             ? tandem::cpu::field_divide(1, (of.k + r) ^ c)
                                             : static_cast<std::uint8_t>(power);
      power = tandem::cpu::field_multiply(power, generator);
    }
    generator = tandem::cpu::field_multiply(generator, 2);
  }
  return cells;
}

void run(const Case &of, [[maybe_unused]] const tandem::cpu::Kernel *kernel) {
  const std::vector<std::uint8_t> matrix = matrix_of(of);
  const std::size_t shards = std::size_t{of.k} + of.m;
  // Not all at the same place of a page.
  const std::size_t pitch = of.shard_bytes + 192;
  auto *memory = static_cast<std::uint8_t *>(std::aligned_alloc(64, shards * pitch));
  for (std::size_t i = 0; i < shards * pitch; ++i) memory[i] = static_cast<std::uint8_t>(i % kSeed);
  std::vector<std::uint8_t *> all(shards);
  for (std::size_t i = 0; i < shards; ++i) all[i] = memory + i * pitch;
  std::vector<std::uint8_t> nibbles(matrix.size() * kNibbleTableBytes);
  for (std::size_t i = 0; i < matrix.size(); ++i)
    tandem::cpu::write_nibbles(matrix[i], nibbles.data() + i * kNibbleTableBytes);
  std::uint8_t *const *const outputs = all.data() + of.k;

#ifdef COUNT_ISAL
  const int bytes = static_cast<int>(of.shard_bytes), k = static_cast<int>(of.k), m = static_cast<int>(of.m);
  std::vector<void *> array(all.begin(), all.end());
  count_begins();
  if (of.operation == "update") {
    ec_encode_data_update_neon(bytes, k, m, 0, nibbles.data(), all[0], all.data() + of.k);
  } else if (of.operation == "pq") {
    pq_gen_neon(k + 2, bytes, array.data());
  } else if (of.operation == "xor") {
    xor_gen_neon(k + 1, bytes, array.data());
  } else {
    ec_encode_data_neon(bytes, k, m, nibbles.data(), all.data(), all.data() + of.k);
  }
  count_ends();
  (void)outputs;
#else
  if (of.operation == "update" || of.operation == "direct") {
    tandem::cpu::NibbleCall call = {};
    call.tables = nibbles.data();
    call.row_bytes = of.k * kNibbleTableBytes;
    call.inputs = all.data();
    call.outputs = outputs;
    call.length_bytes = of.shard_bytes;
    call.rows = of.m;
    call.columns = of.operation == "update" ? 1 : of.k;
    call.accumulate = of.operation == "update";
    count_begins();
    kernel->apply_nibbles(call);
    count_ends();
  } else if (of.operation == "pq" || of.operation == "xor") {
    const auto raid = of.operation == "pq" ? kernel->raid_pq : kernel->raid_p;
    count_begins();
    raid(all.data(), 0, of.k, outputs, of.shard_bytes, false);
    count_ends();
  } else if (of.operation == "transform") {
    std::vector<std::uint8_t> points(shards);
    for (std::size_t i = 0; i < shards; ++i) points[i] = static_cast<std::uint8_t>(i);
    const tandem::cpu::TransformShape shape = {points.data(), points.data() + of.k, nullptr, nullptr, of.k, of.m};
    void *const tables = std::aligned_alloc(64, (kernel->transform_bytes(shape) + 63) / 64 * 64);
    kernel->prepare_transform(shape, tables);
    void *const scratch = std::aligned_alloc(64, 640 << 10);
    tandem::cpu::KernelCall call = {};
    call.tables = tables;
    call.inputs = all.data();
    call.outputs = outputs;
    call.length_bytes = of.shard_bytes;
    call.rows = of.m;
    call.columns = of.k;
    count_begins();
    kernel->apply_transform(call, scratch);
    count_ends();
    std::free(scratch);
    std::free(tables);
  } else {
    void *const tables = std::aligned_alloc(64, (kernel->tables_bytes(of.m, of.k) + 63) / 64 * 64);
    kernel->prepare(matrix.data(), of.m, of.k, tables);
    tandem::cpu::KernelCall call = {};
    call.tables = tables;
    call.inputs = all.data();
    call.outputs = outputs;
    call.length_bytes = of.shard_bytes;
    call.rows = of.m;
    call.columns = of.k;
    count_begins();
    kernel->apply(call);
    count_ends();
    std::free(tables);
  }
#endif
  // That both do the same work shows in the same sum.
  std::uint64_t sum = 0;
  for (unsigned r = 0; r < of.m; ++r)
    for (std::size_t i = 0; i < of.shard_bytes; ++i) sum = sum * 31 + outputs[r][i];
  std::printf("%s %u+%u %016llx\n", of.operation.c_str(), of.k, of.m, static_cast<unsigned long long>(sum));
  std::free(memory);
}

}  // namespace

// count KERNEL BYTES CASE...: a case is OPERATION:K:M.
int main(int count, char **words) {
  if (count < 4) fail("count KERNEL BYTES OPERATION:K:M...");
  const tandem::cpu::Kernel *kernel = nullptr;
#ifndef COUNT_ISAL
  kernel = tandem::cpu::select_kernel(tandem::cpu::cpu_features(), words[1]);
  if (kernel == nullptr) fail(std::string("no kernel ") + words[1] + " here");
#endif
  for (int i = 3; i < count; ++i) {
    char operation[16];
    Case each = {};
    if (std::sscanf(words[i], "%15[a-z]:%u:%u", operation, &each.k, &each.m) != 3)
      fail(std::string("no case: ") + words[i]);
    each.operation = operation;
    each.shard_bytes = std::strtoul(words[2], nullptr, 10);
    run(each, kernel);
  }
}
