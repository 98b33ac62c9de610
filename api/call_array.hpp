// SPDX-License-Identifier: Apache-2.0
// An array for one call: a short one on the stack, a longer one in memory that the thread keeps for later calls. So no
// number of shards is built in, and repeated calls allocate nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

namespace tandem::api {

// Takes at least `bytes` of memory, aligned as by operator new. Any thread may return it. Throws bad_alloc.
void *take_block(std::size_t bytes);
void give_block_back(void *block) noexcept;

template <class Element, std::size_t kInline>
class CallArray {
  static_assert(std::is_trivially_destructible_v<Element>);

 public:
  explicit CallArray(std::size_t count) : data_(inline_), count_(count) {
    if (count <= kInline) return;
    data_ = static_cast<Element *>(take_block(count * sizeof(Element)));
    std::uninitialized_default_construct_n(data_, count);
  }
  ~CallArray() {
    if (data_ != inline_) give_block_back(data_);
  }
  CallArray(const CallArray &) = delete;
  CallArray &operator=(const CallArray &) = delete;

  Element *data() noexcept { return data_; }
  Element *begin() noexcept { return data_; }
  Element *end() noexcept { return data_ + count_; }
  Element &operator[](std::size_t i) noexcept { return data_[i]; }

 private:
  Element inline_[kInline];
  Element *data_;
  std::size_t count_;
};

}  // namespace tandem::api
