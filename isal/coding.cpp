#include "isal/coding.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "isal/abi.hpp"
#include "isal/offload.hpp"
#include "isal/tables.hpp"

namespace tandem::isal {
namespace {

// Kernel tables for a call are prepared on its stack: at most so many bytes, a slice of rows at a time.
constexpr std::size_t kStackBytes = 72 << 10;
// Shorter calls take their coefficients from the caller's tables: preparing costs them more than it saves (docs/ISAL.md
// has the figures). Large matrices gain more.
constexpr std::size_t kDirectBytes = 8 << 10, kDirectBytesOfLarge = 3 << 10;
constexpr std::uint32_t kLargeProducts = 128;
constexpr std::uint32_t kMostColumns = 256;  // of prepared tables

std::atomic<const cpu::Kernel *> chosen{nullptr};
std::atomic<std::uint64_t> l2_bytes{0};

std::uint64_t l2_cache_bytes() noexcept {
  std::uint64_t bytes = l2_bytes.load(std::memory_order_relaxed);
  if (bytes == 0) {
    const long found = sysconf(_SC_LEVEL2_CACHE_SIZE);
    bytes = found > 0 ? static_cast<std::uint64_t>(found) : 1 << 20;
    l2_bytes.store(bytes, std::memory_order_relaxed);
  }
  return bytes;
}

using ApplyNibbles = void (*)(const cpu::NibbleCall &call);

void choose_and_apply(const cpu::NibbleCall &call);

// The kernel's function for short calls, or at first one that chooses the kernel: then no call has to ask.
std::atomic<ApplyNibbles> apply_nibbles{choose_and_apply};

[[gnu::noinline]] const cpu::Kernel &choose_kernel() noexcept {
  const cpu::CpuFeatures features = cpu::cpu_features();
  const cpu::Kernel *found = nullptr;
  const char *wanted = std::getenv("TANDEM_ISAL_KERNEL");
  if (wanted != nullptr && *wanted != '\0') found = cpu::select_kernel(features, wanted);
  if (found == nullptr) found = cpu::select_kernel(features, nullptr);
  chosen.store(found, std::memory_order_relaxed);  // two threads at once choose the same
  apply_nibbles.store(found->apply_nibbles, std::memory_order_relaxed);
  return *found;
}

void choose_and_apply(const cpu::NibbleCall &call) { choose_kernel().apply_nibbles(call); }

// Prepares a slice of rows on the stack and runs it.
void encode_prepared(std::size_t length_bytes, std::uint32_t columns, std::uint32_t rows, const std::uint8_t *tables,
                     const std::uint8_t *const *data, std::uint8_t *const *coding) noexcept {
  const cpu::Kernel &kernel = isal::kernel();
  alignas(64) std::uint8_t prepared[kStackBytes];
  std::uint8_t coefficients[kStackBytes / 8];
  std::uint32_t slice = rows;
  while (kernel.tables_bytes(slice, columns) > sizeof prepared || std::size_t{slice} * columns > sizeof coefficients)
    slice = slice > 4 ? slice - slice / 4 : slice - 1;
  cpu::KernelCall call = {};
  call.tables = prepared;
  call.inputs = data;
  call.length_bytes = length_bytes;
  call.columns = columns;
  call.out_of_cache = out_of_cache(std::uint64_t{length_bytes} * (columns + rows));
  for (std::uint32_t done = 0; done < rows; done += call.rows) {
    call.rows = std::min(slice, rows - done);
    call.outputs = coding + done;
    for (std::size_t i = 0; i < std::size_t{call.rows} * columns; ++i, tables += kTableBytes)
      coefficients[i] = coefficient_of(tables);
    kernel.prepare(coefficients, call.rows, columns, prepared);
    kernel.apply(call);
  }
}

}  // namespace

const cpu::Kernel &kernel() noexcept {
  const cpu::Kernel *found = chosen.load(std::memory_order_relaxed);
  return found != nullptr ? *found : choose_kernel();
}

bool out_of_cache(std::uint64_t moved_bytes) noexcept { return moved_bytes > l2_cache_bytes(); }

void multiply_add(std::uint8_t *row, std::uint8_t factor, const std::uint8_t *source, std::size_t bytes) noexcept {
  if (bytes < 32) {
    const auto &products = kProducts[factor];
    for (std::size_t i = 0; i < bytes; ++i) row[i] ^= products[source[i]];
    return;
  }
  apply_nibbles.load(std::memory_order_relaxed)(
      {kTables[factor].data(), kTableBytes, &source, &row, bytes, 1, 1, true, false});
}

namespace {

[[gnu::always_inline]] inline void apply_short(const cpu::NibbleCall &call) {
  apply_nibbles.load(std::memory_order_relaxed)(call);
}

// What is not short, out of line: a call of 64 bytes takes as long as saving a few registers.
[[gnu::noinline]] void encode_long(std::size_t length_bytes, std::uint32_t columns, std::uint32_t rows,
                                   const std::uint8_t *tables, const std::uint8_t *const *data,
                                   std::uint8_t *const *coding) noexcept {
  const std::size_t least = std::uint64_t{columns} * rows < kLargeProducts ? kDirectBytes : kDirectBytesOfLarge;
  if (length_bytes < least || columns > kMostColumns)
    return apply_short({tables, columns * kTableBytes, data, coding, length_bytes, rows, columns, false, false});
  if (offload_encode(length_bytes, columns, rows, tables, data, coding)) return;
  encode_prepared(length_bytes, columns, rows, tables, data, coding);
}

[[gnu::noinline]] void update_long(std::size_t length_bytes, std::uint32_t columns, std::uint32_t rows,
                                   std::uint32_t column, const std::uint8_t *tables, const std::uint8_t *data,
                                   std::uint8_t *const *coding) noexcept {
  if (offload_update(length_bytes, columns, rows, column, tables, data, coding)) return;
  kernel().apply_nibbles({tables + column * kTableBytes, columns * kTableBytes, &data, coding, length_bytes, rows, 1,
                          true, out_of_cache(std::uint64_t{length_bytes} * (rows + 1))});
}

[[gnu::always_inline]] inline void encode(int len, int k, int rows, const unsigned char *gftbls,
                                          const unsigned char *const *data, unsigned char *const *coding) noexcept {
  if (std::min({len, k, rows}) <= 0) return;
  const auto length_bytes = static_cast<std::size_t>(len);
  const auto columns = static_cast<std::uint32_t>(k), row_count = static_cast<std::uint32_t>(rows);
  if (length_bytes >= kDirectBytesOfLarge) return encode_long(length_bytes, columns, row_count, gftbls, data, coding);
  apply_short({gftbls, columns * kTableBytes, data, coding, length_bytes, row_count, columns, false, false});
}

[[gnu::always_inline]] inline void update(int len, int k, int rows, int vec_i, const unsigned char *gftbls,
                                          const unsigned char *data, unsigned char *const *coding) noexcept {
  if (std::min({len, k, rows, vec_i + 1}) <= 0 || vec_i >= k) return;
  const auto length_bytes = static_cast<std::size_t>(len);
  const auto columns = static_cast<std::uint32_t>(k), row_count = static_cast<std::uint32_t>(rows);
  const auto column = static_cast<std::uint32_t>(vec_i);
  if (length_bytes >= kDirectBytesOfLarge)
    return update_long(length_bytes, columns, row_count, column, gftbls, data, coding);
  apply_short(
      {gftbls + column * kTableBytes, columns * kTableBytes, &data, coding, length_bytes, row_count, 1, true, false});
}

}  // namespace
}  // namespace tandem::isal

void ec_encode_data(int len, int k, int rows, unsigned char *gftbls, unsigned char **data, unsigned char **coding) {
  tandem::isal::encode(len, k, rows, gftbls, data, coding);
}

void ec_encode_data_update(int len, int k, int rows, int vec_i, unsigned char *gftbls, unsigned char *data,
                           unsigned char **coding) {
  tandem::isal::update(len, k, rows, vec_i, gftbls, data, coding);
}

void gf_vect_dot_prod(int len, int vlen, unsigned char *gftbls, unsigned char **src, unsigned char *dest) {
  tandem::isal::encode(len, vlen, 1, gftbls, src, &dest);
}

void gf_vect_mad(int len, int vec, int vec_i, unsigned char *gftbls, unsigned char *src, unsigned char *dest) {
  tandem::isal::update(len, vec, 1, vec_i, gftbls, src, &dest);
}

int gf_vect_mul(int len, unsigned char *gftbl, void *src, void *dest) {
  if (len % 32 != 0) return 1;
  const auto *source = static_cast<const unsigned char *>(src);
  auto *target = static_cast<unsigned char *>(dest);
  tandem::isal::encode(len, 1, 1, gftbl, &source, &target);
  return 0;
}
