// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "isal/abi.hpp"
#include "isal/coding.hpp"
#include "isal/tables.hpp"

namespace {

using tandem::cpu::Kernel;
using tandem::cpu::RaidFunction;
using tandem::isal::chosen_kernel;
using tandem::isal::kernel;
using tandem::isal::kProducts;
using tandem::isal::kShortBytes;
using tandem::isal::out_of_cache;

constexpr int kWordBytes = sizeof(long);  // pq_gen_base works in words

std::uint8_t *byte_pointer(void *vector) { return static_cast<std::uint8_t *>(vector); }

// The checks compute piece by piece, into buffers on the stack. No call takes more than 4 KiB of stack.
constexpr std::size_t kPieceBytes = 2048;  // p and q share it

const std::uint8_t *const *inputs_of(void *const *array) {
  return reinterpret_cast<const std::uint8_t *const *>(array);
}

// Whether the sum of all vectors is zero.
bool adds_up(std::uint32_t count, std::size_t length_bytes, void *const *array) noexcept {
  static constexpr std::uint8_t kZeros[kPieceBytes] = {};
  alignas(64) std::uint8_t sum[kPieceBytes];
  std::uint8_t *const outputs[] = {sum};
  for (std::size_t done = 0; done < length_bytes; done += kPieceBytes) {
    const std::size_t bytes = std::min(kPieceBytes, length_bytes - done);
    kernel().raid_p(inputs_of(array), done, count, outputs, bytes, false);
    if (std::memcmp(sum, kZeros, bytes) != 0) return false;
  }
  return true;
}

// Whether the last two vectors are p and q of the others.
bool agrees(std::uint32_t vector_count, std::size_t length_bytes, void *const *array) noexcept {
  const std::uint32_t count = vector_count - 2;
  alignas(64) std::uint8_t p[kPieceBytes / 2], q[kPieceBytes / 2];
  std::uint8_t *const outputs[] = {p, q};
  for (std::size_t done = 0; done < length_bytes; done += sizeof p) {
    const std::size_t bytes = std::min(sizeof p, length_bytes - done);
    const std::uint8_t *const p_there = byte_pointer(array[count]) + done;
    const std::uint8_t *const q_there = byte_pointer(array[count + 1]) + done;
    for (std::size_t at = 0; at < bytes; at += 64) {  // prefetched while p and q are computed
      __builtin_prefetch(p_there + at);
      __builtin_prefetch(q_there + at);
    }
    kernel().raid_pq(inputs_of(array), done, count, outputs, bytes, false);
    if (std::memcmp(p, p_there, bytes) != 0 || std::memcmp(q, q_there, bytes) != 0) return false;
  }
  return true;
}

using RaidOfKernel = RaidFunction *Kernel::*;

// The sums of the first `count` vectors into the one or two after them.
void run(RaidFunction *raid, std::uint32_t count, std::size_t length_bytes, void *const *array, bool is_far) noexcept {
  raid(inputs_of(array), 0, count, reinterpret_cast<std::uint8_t *const *>(array + count), length_bytes, is_far);
}

[[gnu::noinline]] void generate_any(RaidOfKernel raid, std::uint32_t count, std::uint64_t moved_bytes,
                                    std::size_t length_bytes, void *const *array) noexcept {
  run(kernel().*raid, count, length_bytes, array, out_of_cache(moved_bytes));
}

// The last `sum_count` vectors are the sums of the others. A short call makes no other one before its kernel's, so it
// saves no register.
void generate(RaidOfKernel raid, std::uint32_t sum_count, int vects, int len, void *const *array) noexcept {
  if (len <= 0) return;
  const auto vector_count = static_cast<std::uint32_t>(vects), count = vector_count - sum_count;
  const auto length_bytes = static_cast<std::size_t>(len);
  const std::uint64_t moved_bytes = std::uint64_t{length_bytes} * vector_count;
  const Kernel *const known = chosen_kernel.load(std::memory_order_relaxed);
  if (known == nullptr || moved_bytes > kShortBytes) return generate_any(raid, count, moved_bytes, length_bytes, array);
  run(known->*raid, count, length_bytes, array, false);
}

struct Sums {
  std::uint8_t p, q;
};

Sums sums_at(int count, void *const *array, int i) {
  Sums sums = {0, 0};
  for (int c = count; c-- > 0;) {
    const std::uint8_t byte = byte_pointer(array[c])[i];
    sums = {static_cast<std::uint8_t>(sums.p ^ byte), static_cast<std::uint8_t>(kProducts[2][sums.q] ^ byte)};
  }
  return sums;
}

}  // namespace

int xor_gen(int vects, int len, void **array) {
  if (vects < 3) return 1;
  generate(&Kernel::raid_p, 1, vects, len, array);
  return 0;
}

int pq_gen(int vects, int len, void **array) {
  if (vects < 4 || len % 32 != 0) return 1;
  generate(&Kernel::raid_pq, 2, vects, len, array);
  return 0;
}

int xor_check(int vects, int len, void **array) {
  if (vects < 2) return 1;
  return len <= 0 || adds_up(static_cast<std::uint32_t>(vects), static_cast<std::size_t>(len), array) ? 0 : 1;
}

int pq_check(int vects, int len, void **array) {
  if (vects < 4 || len % 16 != 0) return 1;
  return len <= 0 || agrees(static_cast<std::uint32_t>(vects), static_cast<std::size_t>(len), array) ? 0 : 1;
}

int xor_gen_base(int vects, int len, void **array) {
  if (vects < 3) return 1;
  for (int i = 0; i < len; ++i) byte_pointer(array[vects - 1])[i] = sums_at(vects - 1, array, i).p;
  return 0;
}

int pq_gen_base(int vects, int len, void **array) {
  if (vects < 4) return 1;
  for (int i = 0; i < len / kWordBytes * kWordBytes; ++i) {
    const Sums sums = sums_at(vects - 2, array, i);
    byte_pointer(array[vects - 2])[i] = sums.p;
    byte_pointer(array[vects - 1])[i] = sums.q;
  }
  return 0;
}

int xor_check_base(int vects, int len, void **array) {
  if (vects < 2) return 1;
  for (int i = 0; i < len; ++i) {
    if (sums_at(vects, array, i).p != 0) return 1;
  }
  return 0;
}

int pq_check_base(int vects, int len, void **array) {
  if (vects < 4) return 1;
  for (int i = 0; i < len; ++i) {
    const Sums sums = sums_at(vects - 2, array, i);
    if (byte_pointer(array[vects - 2])[i] != sums.p) return i | 1;
    if (byte_pointer(array[vects - 1])[i] != sums.q) return i | 2;
  }
  return 0;
}
