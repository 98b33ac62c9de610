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

// Callers may have little stack (coroutines, threads of a storage engine's own): no call takes 16 KiB of it. Kernel
// tables are prepared in this much, a slice of rows at a time.
constexpr std::size_t kPreparedBytes = 8 << 10;
constexpr std::uint32_t kLeastSlice = 4;  // of fewer rows nothing is gained
// Where there are several slices they go over so many source bytes in turn, which stay in the L2 cache meanwhile.
constexpr std::size_t kTileBytes = 512 << 10;
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

[[gnu::always_inline]] inline void apply_short(const cpu::NibbleCall &call) {
  apply_nibbles.load(std::memory_order_relaxed)(call);
}

// How many rows are prepared together; 0: the sources are too many.
std::uint32_t slice_of(const cpu::Kernel &kernel, std::uint32_t columns, std::uint32_t rows) noexcept {
  if (kernel.tables_bytes(rows, columns) <= kPreparedBytes) return rows;
  for (const std::uint32_t slice : {24u, 16u, 8u, kLeastSlice}) {
    if (slice < rows && kernel.tables_bytes(slice, columns) <= kPreparedBytes) return slice;
  }
  return 0;
}

// Whether so many sources start at the same place of a page that their cache lines push each other out. Kernels would
// copy them side by side first, for which there is no room here; then going once through the caller's tables is better
// (20+10 in cache: 1.10 of ISA-L 2.32.1 for 0.88). Not for very many: there both are slow (128+32: 0.61 and 0.55 to
// 0.7; blocks of eight rows would do, which take more stack than there may be).
bool collide(const std::uint8_t *const *data, std::uint32_t columns) noexcept {
  constexpr std::uint32_t kWays = 16, kMany = 64;
  if (columns > kMany) return false;
  std::uint32_t same = 0;
  for (std::uint32_t c = 0; c < columns && same <= kWays; ++c)
    same += ((reinterpret_cast<std::uintptr_t>(data[c]) ^ reinterpret_cast<std::uintptr_t>(data[0])) & 4032) == 0;
  return same > kWays;
}

void encode_prepared(const cpu::Kernel &kernel, std::size_t length_bytes, std::uint32_t columns, std::uint32_t rows,
                     std::uint32_t slice, bool far, const std::uint8_t *tables, const std::uint8_t *const *data,
                     std::uint8_t *const *coding) noexcept {
  alignas(64) std::uint8_t prepared[kPreparedBytes];
  std::uint8_t coefficients[kPreparedBytes / 8];  // a kernel's table of one takes 8 bytes at least
  cpu::KernelCall call = {};
  call.tables = prepared;
  call.inputs = data;
  call.columns = columns;
  call.out_of_cache = far;
  call.small_stack = true;
  const std::size_t tile_bytes =
      slice == rows ? length_bytes : std::max<std::size_t>(kTileBytes / columns / 64 * 64, 4096);
  for (std::size_t begin = 0; begin < length_bytes; begin += tile_bytes) {
    call.offset_bytes = begin;
    call.length_bytes = std::min(tile_bytes, length_bytes - begin);
    const std::uint8_t *table = tables;
    for (std::uint32_t done = 0; done < rows; done += call.rows) {
      call.rows = std::min(slice, rows - done);
      call.outputs = coding + done;
      for (std::size_t i = 0; i < std::size_t{call.rows} * columns; ++i, table += kTableBytes)
        coefficients[i] = coefficient_of(table);
      kernel.prepare(coefficients, call.rows, columns, prepared);
      kernel.apply(call);
    }
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
  apply_short({kTables[factor].data(), kTableBytes, &source, &row, bytes, 1, 1, true, false});
}

namespace {

// What is not short, out of line: a call of 64 bytes takes as long as saving a few registers.
[[gnu::noinline]] void encode_long(std::size_t length_bytes, std::uint32_t columns, std::uint32_t rows,
                                   const std::uint8_t *tables, const std::uint8_t *const *data,
                                   std::uint8_t *const *coding) noexcept {
  if (offload_encode(length_bytes, columns, rows, tables, data, coding)) return;
  const std::size_t least = std::uint64_t{columns} * rows < kLargeProducts ? kDirectBytes : kDirectBytesOfLarge;
  const bool far = out_of_cache(std::uint64_t{length_bytes} * (std::uint64_t{columns} + rows));
  const cpu::Kernel &kernel = isal::kernel();
  const std::uint32_t slice = length_bytes < least || columns > kMostColumns || (!far && collide(data, columns))
                                  ? 0
                                  : slice_of(kernel, columns, rows);
  if (slice == 0)
    return kernel.apply_nibbles({tables, columns * kTableBytes, data, coding, length_bytes, rows, columns, false, far});
  encode_prepared(kernel, length_bytes, columns, rows, slice, far, tables, data, coding);
}

[[gnu::noinline]] void update_long(std::size_t length_bytes, std::uint32_t columns, std::uint32_t rows,
                                   std::uint32_t column, const std::uint8_t *tables, const std::uint8_t *data,
                                   std::uint8_t *const *coding) noexcept {
  if (offload_update(length_bytes, columns, rows, column, tables, data, coding)) return;
  kernel().apply_nibbles({tables + column * kTableBytes, columns * kTableBytes, &data, coding, length_bytes, rows, 1,
                          true, out_of_cache(std::uint64_t{length_bytes} * (std::uint64_t{rows} + 1))});
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
  if (std::min({len, k, rows}) <= 0 || vec_i < 0 || vec_i >= k) return;
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
