// SPDX-License-Identifier: Apache-2.0
// Arrays of stripes in a caller's layout.
#pragma once

#include <cstddef>
#include <type_traits>

namespace tandem::api {

template <class Stripe>
Stripe &stripe_at(Stripe *stripes, std::size_t index, std::size_t stride_bytes) {
  using Byte = std::conditional_t<std::is_const_v<Stripe>, const std::byte, std::byte>;
  return *reinterpret_cast<Stripe *>(reinterpret_cast<Byte *>(stripes) + index * stride_bytes);
}

// type: name of the struct with this size and alignment. Throws Error.
void check_stripes(const void *stripes, std::size_t stripe_count, std::size_t stride_bytes, const char *type,
                   std::size_t type_bytes, std::size_t alignment);

template <class Stripe>
void check_array(const Stripe *stripes, std::size_t stripe_count, std::size_t stride_bytes, const char *type) {
  check_stripes(stripes, stripe_count, stride_bytes, type, sizeof(Stripe), alignof(Stripe));
}

}  // namespace tandem::api
