// SPDX-License-Identifier: Apache-2.0
// Makes the files of a set complete.
#pragma once

#include "base/pool.hpp"
#include "par2/meter.hpp"
#include "par2/verify.hpp"
#include "tandem/par2.h"

namespace tandem::par2 {

// report: changes to the new state.
void repair(tandem_context *context, Report &report, const tandem_par2_repair_options &options, base::TaskPool &pool,
            Meter &meter);

}  // namespace tandem::par2
