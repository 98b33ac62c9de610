// SPDX-License-Identifier: Apache-2.0
// A table of CPU kernels with one entry, which counts its calls in flight. Linked into a test (INSIDE), it replaces
// cpu/kernels/table.cpp.
#pragma once

#include <cstdint>

namespace tandem::test {

// Forgets what was counted. From now on calls wait until so many are, or were, in flight at once; or two seconds.
void count_kernel_calls(unsigned meeting);
void let_kernel_calls_meet(unsigned meeting);  // the same, and forgets nothing

std::uint64_t kernel_calls_so_far();
unsigned most_kernel_calls_at_once();

// What a call does, from the next one on; null: nothing but its work. Not to be changed while calls are in flight.
void set_kernel_hook(void (*hook)(unsigned in_flight));

}  // namespace tandem::test
