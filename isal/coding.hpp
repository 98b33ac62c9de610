// SPDX-License-Identifier: Apache-2.0
// The work of the exported functions, with unsigned sizes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cpu/kernels/kernel.hpp"

namespace tandem::isal {

// The best kernel of this CPU, or the one in TANDEM_ISAL_KERNEL (if this CPU has it). The first call chooses it.
const cpu::Kernel &kernel() noexcept;
inline std::atomic<const cpu::Kernel *> chosen_kernel{nullptr};  // null: none yet

// Whether a call that moves moved_bytes leaves the L2 cache. One that moves kShortBytes at most never does.
bool out_of_cache(std::uint64_t moved_bytes) noexcept;
constexpr std::uint64_t kShortBytes = 64 << 10;

// row ^= factor * source.
void multiply_add(std::uint8_t *row, std::uint8_t factor, const std::uint8_t *source, std::size_t bytes) noexcept;

}  // namespace tandem::isal
