// What the exported functions do, with sizes that are no longer signed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/kernel.hpp"

namespace tandem::isal {

// The best kernel of this CPU, or the one that TANDEM_ISAL_KERNEL names (if this CPU has it); chosen by the first call.
const cpu::Kernel &kernel() noexcept;

// Whether a call that moves so many bytes leaves the L2 cache.
bool out_of_cache(std::uint64_t moved_bytes) noexcept;

// row ^= factor * source.
void multiply_add(std::uint8_t *row, std::uint8_t factor, const std::uint8_t *source, std::size_t bytes) noexcept;

}  // namespace tandem::isal
