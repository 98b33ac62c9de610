// SPDX-License-Identifier: Apache-2.0
// The calls of par2.h, after c_api.cpp has read their options.
#pragma once

#include "base/crew.hpp"
#include "par2/verify.hpp"
#include "tandem/par2.h"

namespace tandem::par2 {

std::size_t more_threads(std::uint32_t thread_count);  // beside the calling one
// by_content: see packet_files_of.
Report verify_with(const tandem_par2_verify_options &options, bool by_content = false);
tandem_par2_summary summary_of(const Report &report);
// The greatest severity.
std::int32_t sync(tandem_context *context, const tandem_par2_tree_options &options);
std::int32_t scrub(tandem_context *context, const tandem_par2_tree_options &options);
// is_sync: the set has a Kept.
tandem_par2_create_result create(tandem_context *context, const tandem_par2_create_options &options, base::Crew &crew,
                                 base::Meter &meter, bool is_sync = false);
// report: changes to the new state.
void repair(tandem_context *context, Report &report, const tandem_par2_repair_options &options, base::Crew &crew,
            base::Meter &meter);

}  // namespace tandem::par2
