// SPDX-License-Identifier: Apache-2.0
// The calls of par2.h, after c_api.cpp has read their options.
#pragma once

#include "base/pool.hpp"
#include "par2/meter.hpp"
#include "par2/verify.hpp"
#include "tandem/par2.h"

namespace tandem::par2 {

tandem_par2_create_result create(tandem_context *context, const tandem_par2_create_options &options,
                                 base::TaskPool &pool, Meter &meter);
// report: changes to the new state.
void repair(tandem_context *context, Report &report, const tandem_par2_repair_options &options, base::TaskPool &pool,
            Meter &meter);

}  // namespace tandem::par2
