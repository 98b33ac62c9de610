// SPDX-License-Identifier: Apache-2.0
// Shards in the memory of Python objects: NumPy arrays, bytes, bytearray, memoryview, mmap, and all others with the
// buffer protocol or DLPack. Nothing is copied.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tandem/tandem.h"

namespace tandem_ec {

// The memory of all shards of one call.
struct Place {
  std::int32_t memory = TANDEM_MEMORY_HOST;
  int device = 0;          // CUDA: its number
  void *stream = nullptr;  // CUDA: the stream that the tensors' library uses now
};

// Which shards of a sequence are written.
enum class Access { read, write, write_missing };

struct Shards {
  std::vector<void *> pointers;  // nullptr: None was given
  std::size_t shard_bytes = 0;   // 0: all of them are None
};

// Holds the objects that a call uses, so that they cannot be freed or resized. Everything here needs the GIL.
class Memory {
 public:
  Memory() = default;
  ~Memory() { release(); }
  Memory(Memory &&other) noexcept;
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;

  // `count` shards of one length: a two-dimensional object of bytes with contiguous rows, or a sequence of `count`
  // buffers (with None among them if `none_allowed`). `name` is the argument's, for messages. With write_missing the
  // shards that `present` lacks must be writable.
  Shards take(nanobind::handle object, const char *name, std::size_t count, Access access, bool none_allowed,
              const std::uint8_t *present = nullptr);

  // One contiguous buffer.
  Shards take_one(nanobind::handle object, const char *name, Access access);

  const Place &place() const { return place_; }

  void release();

 private:
  struct Name;
  struct View {  // of one object: one or two dimensions
    char *data;
    std::size_t dimensions;
    std::size_t length[2];
    std::ptrdiff_t step[2];
  };

  View view(nanobind::handle object, const Name &name, bool writable);
  View one_view(nanobind::handle object, const Name &name, bool writable);  // of one contiguous shard
  View buffer_view(nanobind::handle object, const Name &name, bool writable);
  View dlpack_view(nanobind::handle object, const Name &name, bool writable);
  void stay_in(const Place &place, const Name &name);

  std::vector<Py_buffer> buffers_;
  std::vector<nanobind::ndarray<nanobind::ro>> tensors_;
  Place place_;
  bool place_known_ = false;
};

// Raises if a shard that is written overlaps another. The library checks from 4 KiB on; this is for smaller calls.
void refuse_overlap(const std::vector<void *> &read, const std::vector<void *> &written, std::size_t shard_bytes);

// One flag for each of `count` shards, from a buffer of bytes or a sequence of truth values.
std::vector<std::uint8_t> read_flags(nanobind::handle object, const char *name, std::size_t count);

// `count` shards of shard_bytes each as a NumPy array of that shape, from tandem_shards_allocate.
nanobind::object empty(std::int64_t count, std::int64_t shard_bytes);

}  // namespace tandem_ec
