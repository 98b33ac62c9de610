// SPDX-License-Identifier: Apache-2.0
// A store of objects in the memory of Thrust's device system: each object is k+m shards on k+m nodes. Nodes fail, and
// the objects are rebuilt where they lie. One source for every system of Thrust:
//
//     g++ -std=c++17 -DTHRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_OMP -fopenmp object_store.cpp -ltandem
//     g++ -std=c++17 -DTHRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_TBB object_store.cpp -ltandem -ltbb
//     nvcc -std=c++17 -x cu object_store.cpp -ltandem
#include <thrust/device_vector.h>
#include <thrust/equal.h>
#include <thrust/fill.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/transform.h>

#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "tandem/thrust.hpp"

namespace {

constexpr std::uint32_t kData = 10, kParity = 4, kNodes = kData + kParity;
#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
constexpr const char *kBackend = "cuda";
#else
constexpr const char *kBackend = "cpu";
#endif

using Shard = thrust::device_vector<unsigned char>;

// Byte i of the content that belongs to a seed.
struct Content {
  unsigned long long seed;
  __host__ __device__ unsigned char operator()(unsigned long long i) const {
    i = (i + seed) * 0x9E3779B97F4A7C15ull;
    return static_cast<unsigned char>((i ^ i >> 31) >> 24);
  }
};
Shard content(unsigned long long seed, std::size_t bytes) {
  Shard made(bytes);
  const thrust::counting_iterator<unsigned long long> first(0);
  thrust::transform(first, first + static_cast<std::ptrdiff_t>(bytes), made.begin(), Content{seed});
  return made;
}

class ObjectStore {
 public:
  // The object has the content of `seed`, `seed` + 1, ... in its data shards.
  void put(const std::string &name, unsigned long long seed, std::size_t shard_bytes) {
    std::vector<Shard> &shards = objects_[name];
    for (unsigned i = 0; i < kNodes; ++i)
      shards.push_back(i < kData ? content(seed + i, shard_bytes) : Shard(shard_bytes));
    tandem::encode(context_, codec_, tandem::VectorShards(shards));
  }
  // A new shard of data: only parity and this shard change.
  void write(const std::string &name, unsigned index, unsigned long long seed) {
    std::vector<Shard> &shards = objects_.at(name);
    Shard made = content(seed, shards[index].size());
    tandem::update(context_, codec_, tandem::VectorShards(shards), index, made);
    shards[index].swap(made);
  }
  void lose(unsigned node) {
    is_lost_[node] = true;
    for (auto &[name, shards] : objects_) thrust::fill(shards[node].begin(), shards[node].end(), 0);
  }
  void rebuild() {
    std::vector<std::uint8_t> present;
    for (const bool lost : is_lost_) present.push_back(!lost);
    for (auto &[name, shards] : objects_) tandem::decode(context_, codec_, tandem::VectorShards(shards), present);
    is_lost_.assign(kNodes, false);
  }
  bool is_consistent() {
    for (auto &[name, shards] : objects_)
      if (tandem::verify(context_, codec_, tandem::VectorShards(shards)).consistent == 0) return false;
    return true;
  }
  bool has(const std::string &name, unsigned index, unsigned long long seed) {
    const Shard &found = objects_.at(name)[index], want = content(seed, found.size());
    return thrust::equal(found.begin(), found.end(), want.begin());
  }

 private:
  tandem::Context context_{kBackend};
  tandem::Codec codec_{kData, kParity};
  std::map<std::string, std::vector<Shard>> objects_;
  std::vector<bool> is_lost_ = std::vector<bool>(kNodes);
};

int check(bool holds, const char *what) {
  std::printf("%-40s %s\n", what, holds ? "yes" : "NO");
  return holds ? 0 : 1;
}

int run() {
  ObjectStore store;
  store.put("small", 1, 1'000);
  store.put("large", 100, 1 << 20);
  store.write("large", 3, 7);
  int wrong = check(store.is_consistent(), "parity matches after an update");
  for (const unsigned node : {0u, 3u, 9u, 12u}) store.lose(node);
  wrong += check(!store.is_consistent(), "a loss is noticed");
  store.rebuild();
  wrong += check(store.is_consistent(), "parity matches after the rebuild");
  bool same = true;
  for (unsigned i = 0; i < kData; ++i)
    same = same && store.has("small", i, 1 + i) && store.has("large", i, i == 3 ? 7 : 100 + i);
  return wrong + check(same, "every shard is back");
}

}  // namespace

int main() {
  try {
    return run() == 0 ? 0 : 1;
  } catch (const std::exception &error) {
    std::printf("%s\n", error.what());
    return 2;
  }
}
