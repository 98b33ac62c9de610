// SPDX-License-Identifier: Apache-2.0
// Finds the records of a compare kernel that have a difference. It uses Thrust and runs wherever Thrust computes: on
// the module's GPU, and in tests on the host.
//
// Most calls find no difference. Then there is just one pass over the records, in memory order, and no memory is
// allocated.
#pragma once

#include <thrust/copy.h>
#include <thrust/count.h>
#include <thrust/execution_policy.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_output_iterator.h>

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

struct HasMismatch {
  const std::uint32_t *records;  // each has one less than how many bytes differ, and where in its tile the first lies
  TANDEM_ON_BOTH bool operator()(Index i) const { return records[i * 2] != UINT32_MAX; }
};
struct FoundAt {
  const std::uint32_t *records;
  TANDEM_ON_BOTH Found operator()(Index i) const { return {i, {records[i * 2], records[i * 2 + 1]}}; }
};

// Memory of a place, freed by the destructor. Place: policy(), allocate(bytes), release(pointer), fetch(to, from,
// bytes).
template <class Place>
class Memory {
 public:
  Memory(Place &place, std::uint64_t bytes) : place_(place), data_(place.allocate(bytes)) {}
  ~Memory() { place_.release(data_); }
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;
  Found *found() const { return static_cast<Found *>(data_); }

 private:
  Place &place_;
  void *data_;
};

// found_out gets all records with a difference, unless there are more than `capacity`. Returns how many there are.
// Throws the exceptions of Thrust and of the place.
template <class Place>
std::uint64_t run(Place &place, const std::uint32_t *records, std::uint64_t record_count, Found *found_out,
                  std::uint64_t capacity) {
  const thrust::counting_iterator<Index> first(0), last(record_count);
  const HasMismatch has_mismatch{records};
  const auto count = static_cast<std::uint64_t>(thrust::count_if(place.policy(), first, last, has_mismatch));
  if (count == 0 || count > capacity) return count;
  Memory<Place> memory(place, count * sizeof(Found));
  thrust::copy_if(place.policy(), first, last, thrust::make_transform_output_iterator(memory.found(), FoundAt{records}),
                  has_mismatch);
  place.fetch(found_out, memory.found(), count * sizeof(Found));
  return count;
}

}  // namespace tandem::gpu::summarise
