// SPDX-License-Identifier: Apache-2.0
// Makes the packet files of a set.
#pragma once

#include "base/pool.hpp"
#include "par2/meter.hpp"
#include "tandem/par2.h"

namespace tandem::par2 {

// Of recovery slices, in one packet file.
struct Volume {
  std::uint32_t first, count;
  bool operator==(const Volume &) const = default;
};
// largest: slices of the largest file.
std::vector<Volume> volumes_of(const tandem_par2_create_options &options, std::uint32_t recovery_count,
                               std::uint64_t largest);

tandem_par2_create_result create(tandem_context *context, const tandem_par2_create_options &options,
                                 base::TaskPool &pool, Meter &meter);

}  // namespace tandem::par2
