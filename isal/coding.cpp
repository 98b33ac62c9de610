// SPDX-License-Identifier: Apache-2.0
#include "isal/coding.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "isal/abi.hpp"
#include "isal/tables.hpp"

namespace tandem::isal {
namespace {

// Callers may have little stack (coroutines, threads of a storage engine's own): no call takes more than 4 KiB of it,
// and none allocates. So kernel tables are prepared in the library's own memory, a slice of rows at a time. Each call
// under way has a place. Further calls prepare nothing. After a fork, places of the parent's other threads stay taken
// in the child.
constexpr std::size_t kPreparedBytes = 8 << 10;
constexpr std::size_t kPlaces = 256;

struct Place {
  alignas(64) std::uint8_t prepared[kPreparedBytes];
  std::uint8_t coefficients[kPreparedBytes / 8];  // a kernel's table of one takes 8 bytes at least
  std::atomic<bool> taken;
};

Place places[kPlaces];  // unused places take no memory

// A place of this call's own, or none.
class OwnPlace {
 public:
  OwnPlace() {
    // A thread gets the place of its last call again, which is in its caches.
    const std::size_t first = reinterpret_cast<std::uintptr_t>(this) / 4096;
    for (std::size_t i = 0; i < kPlaces && place_ == nullptr; ++i) {
      Place &tried = places[(first + i) % kPlaces];
      if (!tried.taken.load(std::memory_order_relaxed) && !tried.taken.exchange(true, std::memory_order_acquire))
        place_ = &tried;
    }
  }
  ~OwnPlace() {
    if (place_ != nullptr) place_->taken.store(false, std::memory_order_release);
  }
  OwnPlace(const OwnPlace &) = delete;
  OwnPlace &operator=(const OwnPlace &) = delete;

  Place *get() const { return place_; }

 private:
  Place *place_ = nullptr;
};

constexpr std::uint32_t kLeastSlice = 4;  // fewer rows gain nothing
// If there are several slices, each goes over so many source bytes in turn, which stay in the L2 cache.
constexpr std::size_t kTileBytes = 512 << 10;
// Shorter calls take their coefficients from the caller's tables: preparing costs them more than it saves
// (docs/internals/ISAL.md has the figures). Large matrices gain more.
constexpr std::size_t kDirectBytes = 8 << 10, kDirectBytesOfLarge = 3 << 10;
constexpr std::uint32_t kLargeProducts = 128;
constexpr std::uint32_t kMostColumns = 256;  // of prepared tables

std::atomic<std::uint64_t> l2_bytes{0};

std::uint64_t l2_cache_bytes() noexcept {
  std::uint64_t bytes = l2_bytes.load(std::memory_order_relaxed);
  if (bytes == 0) {
    bytes = cpu::cache_sizes().l2_bytes;
    l2_bytes.store(bytes, std::memory_order_relaxed);
  }
  return bytes;
}

using ApplyNibbles = void (*)(const cpu::NibbleCall &call);

void choose_and_apply(const cpu::NibbleCall &call);

// The kernel's function for short calls. At first it points to a function that chooses the kernel, so that no call has
// to check.
std::atomic<ApplyNibbles> apply_nibbles{choose_and_apply};

[[gnu::noinline]] const cpu::Kernel &choose_kernel() noexcept {
  const cpu::CpuFeatures features = cpu::cpu_features();
  const cpu::Kernel *found = nullptr;
  const char *wanted = std::getenv("TANDEM_ISAL_KERNEL");
  if (wanted != nullptr && *wanted != '\0') found = cpu::select_kernel(features, wanted);
  if (found == nullptr) found = cpu::select_kernel(features, nullptr);
  chosen_kernel.store(found, std::memory_order_relaxed);  // two threads at once choose the same
  apply_nibbles.store(found->apply_nibbles, std::memory_order_relaxed);
  return *found;
}

void choose_and_apply(const cpu::NibbleCall &call) { choose_kernel().apply_nibbles(call); }

[[gnu::always_inline]] inline void apply_short(const cpu::NibbleCall &call) {
  apply_nibbles.load(std::memory_order_relaxed)(call);
}

// How many rows are prepared together; 0: there are too many sources.
std::uint32_t slice_of(const cpu::Kernel &kernel, std::uint32_t columns, std::uint32_t rows) noexcept {
  if (kernel.tables_bytes(rows, columns) <= kPreparedBytes) return rows;
  for (const std::uint32_t slice : {24u, 16u, 8u, kLeastSlice}) {
    if (slice < rows && kernel.tables_bytes(slice, columns) <= kPreparedBytes) return slice;
  }
  return 0;
}

// Whether so many sources start at the same place of a page that their cache lines evict each other. Kernels would
// first copy them side by side, which needs more stack than a call may take. So one pass with the caller's tables is
// better (20+10 in cache: 1.10 of ISA-L 2.32.1 for 0.88). Not for very many sources, where both are slow (128+32: 0.61
// and 0.55 to 0.7).
bool collide(const std::uint8_t *const *data, std::uint32_t columns) noexcept {
  constexpr std::uint32_t kWays = 16, kMany = 64;
  if (columns > kMany) return false;
  std::uint32_t same = 0;
  for (std::uint32_t c = 0; c < columns && same <= kWays; ++c)
    same += ((reinterpret_cast<std::uintptr_t>(data[c]) ^ reinterpret_cast<std::uintptr_t>(data[0])) & 4032) == 0;
  return same > kWays;
}

void encode_prepared(const cpu::Kernel &kernel, std::size_t length_bytes, std::uint32_t columns, std::uint32_t rows,
                     std::uint32_t slice, bool far, Place *place, const std::uint8_t *tables,
                     const std::uint8_t *const *data, std::uint8_t *const *coding) noexcept {
  cpu::KernelCall call = {};
  call.tables = place->prepared;
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
        place->coefficients[i] = coefficient_of(table);
      kernel.prepare(place->coefficients, call.rows, columns, place->prepared);
      kernel.apply(call);
    }
  }
}

// Outputs that are inputs too, at the same address. ISA-L reads every input of a column of 64 bytes before it writes
// there, so up to six rows of them are right. Here that holds for as many rows as the kernel computes at once. For more
// rows, a buffer holds the sums until all rows of a column have read it.
constexpr std::size_t kColumnBufferBytes = 1024;
constexpr std::uint32_t kRowsOfCall = 8, kColumnsOfCall = 32;

bool in_place(std::uint32_t columns, std::uint32_t rows, const std::uint8_t *const *data,
              const std::uint8_t *const *coding) noexcept {
  // Usually no input lies between the outputs, which is quick to see.
  const auto address = [](const std::uint8_t *shard) { return reinterpret_cast<std::uintptr_t>(shard); };
  std::uintptr_t first = address(coding[0]), last = first;
  for (std::uint32_t r = 1; r < rows; ++r) {
    first = std::min(first, address(coding[r]));
    last = std::max(last, address(coding[r]));
  }
  std::uint32_t c = 0;
  while (c < columns && address(data[c]) - first > last - first) ++c;
  for (; c < columns; ++c)
    for (std::uint32_t r = 0; r < rows; ++r)
      if (data[c] == coding[r]) return true;
  return false;
}

[[gnu::noinline]] void encode_in_place(std::size_t length_bytes, std::uint32_t columns, std::uint32_t rows,
                                       const std::uint8_t *tables, const std::uint8_t *const *data,
                                       std::uint8_t *const *coding) noexcept {
  alignas(64) std::uint8_t sums[kColumnBufferBytes];
  const std::uint8_t *inputs[kColumnsOfCall];
  std::uint8_t *outputs[kRowsOfCall];
  cpu::NibbleCall call = {};
  call.row_bytes = columns * kTableBytes;
  call.inputs = inputs;
  call.outputs = outputs;
  const std::size_t pitch = sizeof sums / rows < 64 ? sizeof sums / rows : sizeof sums / rows / 64 * 64;
  for (std::size_t at = 0; at < length_bytes; at += pitch) {
    call.length_bytes = std::min(pitch, length_bytes - at);
    for (std::uint32_t r = 0; r < rows; r += call.rows) {
      call.rows = std::min(kRowsOfCall, rows - r);
      for (std::uint32_t i = 0; i < call.rows; ++i) outputs[i] = sums + (r + i) * pitch;
      for (std::uint32_t c = 0; c < columns; c += call.columns) {
        call.columns = std::min(kColumnsOfCall, columns - c);
        for (std::uint32_t i = 0; i < call.columns; ++i) inputs[i] = data[c + i] + at;
        call.tables = tables + r * call.row_bytes + c * kTableBytes;
        call.accumulate = c != 0;
        kernel().apply_nibbles(call);
      }
    }
    for (std::uint32_t r = 0; r < rows; ++r) std::memcpy(coding[r] + at, sums + r * pitch, call.length_bytes);
  }
}

[[gnu::noinline]] void update_in_place(std::size_t length_bytes, std::uint32_t rows, std::size_t row_bytes,
                                       const std::uint8_t *tables, const std::uint8_t *data,
                                       std::uint8_t *const *coding) noexcept {
  alignas(64) std::uint8_t copy[kColumnBufferBytes];
  const std::uint8_t *const input = copy;
  std::uint8_t *outputs[kRowsOfCall];
  for (std::size_t at = 0; at < length_bytes; at += sizeof copy) {
    const std::size_t bytes = std::min(sizeof copy, length_bytes - at);
    std::memcpy(copy, data + at, bytes);
    for (std::uint32_t r = 0, count; r < rows; r += count) {
      count = std::min(kRowsOfCall, rows - r);
      for (std::uint32_t i = 0; i < count; ++i) outputs[i] = coding[r + i] + at;
      kernel().apply_nibbles({tables + r * row_bytes, row_bytes, &input, outputs, bytes, count, 1, true, false});
    }
  }
}

}  // namespace

const cpu::Kernel &kernel() noexcept {
  const cpu::Kernel *found = chosen_kernel.load(std::memory_order_relaxed);
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

// For longer calls, out of line: a call of 64 bytes takes as long as saving a few registers.
[[gnu::noinline]] void encode_long(std::size_t length_bytes, std::uint32_t columns, std::uint32_t rows,
                                   const std::uint8_t *tables, const std::uint8_t *const *data,
                                   std::uint8_t *const *coding) noexcept {
  const bool aliased = rows <= kColumnBufferBytes && in_place(columns, rows, data, coding);
  const cpu::Kernel &kernel = isal::kernel();
  if (aliased && rows > kernel.rows_at_once) return encode_in_place(length_bytes, columns, rows, tables, data, coding);
  const std::size_t least = std::uint64_t{columns} * rows < kLargeProducts ? kDirectBytes : kDirectBytesOfLarge;
  const bool far = out_of_cache(std::uint64_t{length_bytes} * (std::uint64_t{columns} + rows));
  if (length_bytes >= least && columns <= kMostColumns && !aliased && (far || !collide(data, columns))) {
    const std::uint32_t slice = slice_of(kernel, columns, rows);
    const OwnPlace own;
    if (slice != 0 && own.get() != nullptr)
      return encode_prepared(kernel, length_bytes, columns, rows, slice, far, own.get(), tables, data, coding);
  }
  kernel.apply_nibbles({tables, columns * kTableBytes, data, coding, length_bytes, rows, columns, false, far});
}

// Short calls of so many rows go directly to the kernel, which computes them at once.
constexpr std::uint32_t kFewRows = 4;

[[gnu::noinline]] void encode_short(std::size_t length_bytes, std::uint32_t columns, std::uint32_t rows,
                                    const std::uint8_t *tables, const std::uint8_t *const *data,
                                    std::uint8_t *const *coding) noexcept {
  if (rows > kernel().rows_at_once && rows <= kColumnBufferBytes && in_place(columns, rows, data, coding))
    return encode_in_place(length_bytes, columns, rows, tables, data, coding);
  apply_short({tables, columns * kTableBytes, data, coding, length_bytes, rows, columns, false, false});
}

// Also for the few short calls that must not go directly to the kernel.
[[gnu::noinline]] void update_long(std::size_t length_bytes, std::uint32_t columns, std::uint32_t rows,
                                   std::uint32_t column, const std::uint8_t *tables, const std::uint8_t *data,
                                   std::uint8_t *const *coding) noexcept {
  const std::size_t row_bytes = columns * kTableBytes;
  // With one source, a plain search is faster than in_place.
  if (rows > kernel().rows_at_once && std::find(coding, coding + rows, data) != coding + rows)
    return update_in_place(length_bytes, rows, row_bytes, tables + column * kTableBytes, data, coding);
  kernel().apply_nibbles({tables + column * kTableBytes, row_bytes, &data, coding, length_bytes, rows, 1, true,
                          out_of_cache(std::uint64_t{length_bytes} * (std::uint64_t{rows} + 1))});
}

[[gnu::always_inline]] inline void encode(int len, int k, int rows, const unsigned char *gftbls,
                                          const unsigned char *const *data, unsigned char *const *coding) noexcept {
  if (std::min({len, k, rows}) <= 0) return;
  const auto length_bytes = static_cast<std::size_t>(len);
  const auto columns = static_cast<std::uint32_t>(k), row_count = static_cast<std::uint32_t>(rows);
  if (length_bytes >= kDirectBytesOfLarge) return encode_long(length_bytes, columns, row_count, gftbls, data, coding);
  if (row_count > kFewRows) return encode_short(length_bytes, columns, row_count, gftbls, data, coding);
  apply_short({gftbls, columns * kTableBytes, data, coding, length_bytes, row_count, columns, false, false});
}

[[gnu::always_inline]] inline void update(int len, int k, int rows, int vec_i, const unsigned char *gftbls,
                                          const unsigned char *data, unsigned char *const *coding) noexcept {
  if (std::min({len, k, rows}) <= 0 || vec_i < 0 || vec_i >= k) return;
  const auto length_bytes = static_cast<std::size_t>(len);
  const auto columns = static_cast<std::uint32_t>(k), row_count = static_cast<std::uint32_t>(rows);
  const auto column = static_cast<std::uint32_t>(vec_i);
  if (length_bytes >= kDirectBytesOfLarge || row_count > kFewRows)
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
