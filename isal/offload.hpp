// Large calls on every processor: off unless the environment asks for it (docs/ISAL.md).
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::isal {

// False where the calling thread shall do it: the call is too small, nobody asked for more, or libtandem is not there
// or will not do it. Then nothing was written.
bool offload_encode(std::size_t length_bytes, std::uint32_t columns, std::uint32_t rows, const std::uint8_t *tables,
                    const std::uint8_t *const *data, std::uint8_t *const *coding) noexcept;
bool offload_update(std::size_t length_bytes, std::uint32_t columns, std::uint32_t rows, std::uint32_t column,
                    const std::uint8_t *tables, const std::uint8_t *data, std::uint8_t *const *coding) noexcept;

}  // namespace tandem::isal
