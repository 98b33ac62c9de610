// SPDX-License-Identifier: Apache-2.0
// Packet files that are damaged or gone, and how they are made anew from files that are complete.
#pragma once

#include <vector>

#include "par2/calls.hpp"
#include "par2/verify.hpp"

namespace tandem::par2 {

// What the names of the other packet files tell: damaged ones; those that are shorter than they must be, with fewer
// recovery slices than their names say or without a copy of all other packets; "base.par2"; and a file for each gap
// among the exponents. Before the first exponent, a gap may also be a choice: it counts if the
// others are as many. Sync's set is one file, and the set says how many recovery slices it has. Left out are files of
// other names or with recovery slices that no name tells, those that the set protects, and those with packets of other
// sets.
std::vector<LostPackets> lost_packets_of(const Report &report);

// Makes them, and reads the packets of the set again. Throws if a file with recovery data is not complete.
void repair_packets(tandem_context *context, Report &report, const tandem_par2_repair_options &options,
                    base::Crew &crew, base::Meter &meter);

}  // namespace tandem::par2
