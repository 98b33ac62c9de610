// SPDX-License-Identifier: Apache-2.0
// Reduces the records of a compare kernel to the differences and their places. It uses Thrust and runs wherever Thrust
// computes: on the module's GPU, and in tests on the host.
//
// Most calls find no difference. Then there is just one pass over the records, in memory order. Only records with
// differences are compacted, sorted and reduced, and only memory for these is allocated.
#pragma once

#include <thrust/copy.h>
#include <thrust/count.h>
#include <thrust/execution_policy.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/discard_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/iterator/transform_output_iterator.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>

#include <algorithm>
#include <cstdint>

#include "gpu/cuda_module.hpp"

#ifdef __CUDACC__
#define TANDEM_ON_BOTH __host__ __device__
#else
#define TANDEM_ON_BOTH
#endif

namespace tandem::gpu::summarise {

using Index = std::uint64_t;

using Found = tandem_cuda_found;
using Range = tandem_cuda_range;

// The records of a range: device::KernelRange, with what it takes to find them on the device.
struct Records {
  // (record * rows + row) * 2: one less than how many bytes differ, and where in its tile the first lies
  const std::uint32_t *words;
  std::uint64_t rows;
  std::uint64_t begin, end, length, tile_bytes, tile_count;

  TANDEM_ON_BOTH std::uint64_t record_count() const { return tile_count + 2; }

  // Records in the order of their bytes: the head, the tiles, the tail. Between the places of two rows one number is
  // left out, so that consecutive numbers are neighbours in memory.
  TANDEM_ON_BOTH std::uint64_t stride() const { return tile_count + 3; }

  TANDEM_ON_BOTH std::uint64_t place_of(std::uint64_t word_pair) const {
    const std::uint64_t record = word_pair / rows, row = word_pair % rows;
    const std::uint64_t in_row = record < tile_count ? record + 1 : record == tile_count ? 0 : tile_count + 1;
    return row * stride() + in_row;
  }
  TANDEM_ON_BOTH std::uint32_t row_of(std::uint64_t place) const {
    return static_cast<std::uint32_t>(place / stride());
  }

  // The content of the record at a place.
  TANDEM_ON_BOTH Range at(std::uint64_t place) const {
    const std::uint64_t row = place / stride(), in_row = place % stride();
    const bool head = in_row == 0, tail = in_row == tile_count + 1;
    const std::uint64_t record = head ? tile_count : tail ? tile_count + 1 : in_row - 1;
    const std::uint64_t start = head ? 0 : tail ? end : begin + record * tile_bytes;
    const std::uint64_t stop = head ? begin : tail ? length : end - start < tile_bytes ? end : start + tile_bytes;
    const std::uint32_t *pair = words + (record * rows + row) * 2;
    return {static_cast<std::uint32_t>(row), 0, start + pair[1], stop, pair[0] + 1};
  }
};

struct HasMismatch {
  Records records;
  TANDEM_ON_BOTH bool operator()(Index word_pair) const { return records.words[word_pair * 2] != UINT32_MAX; }
};
struct PlaceOf {
  Records records;
  TANDEM_ON_BOTH std::uint64_t operator()(Index word_pair) const { return records.place_of(word_pair); }
};
struct RowOf {
  Records records;
  TANDEM_ON_BOTH std::uint32_t operator()(std::uint64_t place) const { return records.row_of(place); }
};
struct RangeAt {
  Records records;
  TANDEM_ON_BOTH Range operator()(std::uint64_t place) const { return records.at(place); }
};
struct Together {
  TANDEM_ON_BOTH Range operator()(const Range &a, const Range &b) const {
    return {a.output, 0, a.begin_bytes < b.begin_bytes ? a.begin_bytes : b.begin_bytes,
            a.end_bytes > b.end_bytes ? a.end_bytes : b.end_bytes, a.byte_count + b.byte_count};
  }
};
// Whether a range begins at the i-th place.
struct Begins {
  const std::uint64_t *places;
  TANDEM_ON_BOTH bool operator()(Index i) const { return i == 0 || places[i - 1] + 1 != places[i]; }
};
// The same number for all places of one range, and for no others: places rise by one there, as their indices do.
struct RangeNumber {
  const std::uint64_t *places;
  TANDEM_ON_BOTH std::uint64_t operator()(Index i) const { return places[i] - i; }
};

// Memory of a place, freed by the destructor. Place: policy(), allocate(bytes), release(pointer), fetch(to, from,
// bytes).
template <class T, class Place>
class Array {
 public:
  Array(Place &place, std::uint64_t count)
      : place_(place), data_(static_cast<T *>(place.allocate(count * sizeof(T)))) {}
  ~Array() { place_.release(data_); }
  Array(const Array &) = delete;
  Array &operator=(const Array &) = delete;
  T *data() const { return data_; }

 private:
  Place &place_;
  T *data_;
};

// found_out: `records.rows` of them; ranges_out: at most `capacity`, by output and place. Returns how many ranges there
// are. If ranges_out is null, no ranges are searched, and it returns 0. Throws the exceptions of Thrust and of the
// place.
template <class Place>
std::uint64_t run(Place &place, const Records &records, Found *found_out, Range *ranges_out, std::uint64_t capacity) {
  const auto policy = place.policy();
  for (std::uint64_t row = 0; row < records.rows; ++row) found_out[row] = {0, UINT64_MAX};
  const thrust::counting_iterator<Index> first(0), last(records.record_count() * records.rows);
  const HasMismatch has_mismatch{records};
  const auto count = static_cast<std::uint64_t>(thrust::count_if(policy, first, last, has_mismatch));
  if (count == 0) return 0;

  Array<std::uint64_t, Place> places(place, count);
  thrust::copy_if(policy, first, last, thrust::make_transform_output_iterator(places.data(), PlaceOf{records}),
                  has_mismatch);
  thrust::sort(policy, places.data(), places.data() + count);
  const auto ranges = thrust::make_transform_iterator(places.data(), RangeAt{records});

  {  // A whole row as if it were one range.
    const std::uint64_t most = std::min(records.rows, count);
    Array<Range, Place> of_rows(place, most);
    const auto rows = thrust::make_transform_iterator(places.data(), RowOf{records});
    const auto end = thrust::reduce_by_key(policy, rows, rows + static_cast<std::ptrdiff_t>(count), ranges,
                                           thrust::make_discard_iterator(), of_rows.data(),
                                           thrust::equal_to<std::uint32_t>(), Together{});
    const auto row_count = static_cast<std::uint64_t>(end.second - of_rows.data());
    Range host[256];
    place.fetch(host, of_rows.data(), std::min<std::uint64_t>(row_count, 256) * sizeof(Range));
    for (std::uint64_t i = 0; i < row_count && i < 256; ++i)
      found_out[host[i].output] = {host[i].byte_count, host[i].begin_bytes};
  }

  if (ranges_out == nullptr) return 0;
  const thrust::counting_iterator<Index> none(0), all(count);
  const Begins begins{places.data()};
  const auto range_count = static_cast<std::uint64_t>(thrust::count_if(policy, none, all, begins));
  const std::uint64_t wanted = std::min(range_count, capacity);
  if (wanted == 0) return range_count;
  std::uint64_t places_wanted = count;
  if (wanted < range_count) {
    Array<std::uint64_t, Place> starts(place, range_count);
    thrust::copy_if(policy, none, all, starts.data(), begins);
    place.fetch(&places_wanted, starts.data() + wanted, sizeof places_wanted);
  }
  Array<Range, Place> merged(place, wanted);
  const auto numbers = thrust::make_transform_iterator(none, RangeNumber{places.data()});
  thrust::reduce_by_key(policy, numbers, numbers + static_cast<std::ptrdiff_t>(places_wanted), ranges,
                        thrust::make_discard_iterator(), merged.data(), thrust::equal_to<std::uint64_t>(), Together{});
  place.fetch(ranges_out, merged.data(), wanted * sizeof(Range));
  return range_count;
}

}  // namespace tandem::gpu::summarise
