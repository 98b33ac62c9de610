// SPDX-License-Identifier: Apache-2.0
// Large calls on all processors: off unless the environment asks for it (docs/ISAL.md).
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::isal {

// False if the calling thread must do the work: the call is too small, the environment does not ask for more, or
// libtandem is missing or refuses. Nothing was written then.
bool offload_encode(std::size_t length_bytes, std::uint32_t columns, std::uint32_t rows, const std::uint8_t *tables,
                    const std::uint8_t *const *data, std::uint8_t *const *coding) noexcept;
bool offload_update(std::size_t length_bytes, std::uint32_t columns, std::uint32_t rows, std::uint32_t column,
                    const std::uint8_t *tables, const std::uint8_t *data, std::uint8_t *const *coding) noexcept;

}  // namespace tandem::isal
