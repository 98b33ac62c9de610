// SPDX-License-Identifier: Apache-2.0
// Packet files that are damaged or gone, and how they are made anew from files that are complete.
#pragma once

#include <vector>

#include "par2/calls.hpp"
#include "par2/verify.hpp"

namespace tandem::par2 {

// Packet files in the folder of the set that can be made anew. Damaged is a file with wrong bytes, with fewer recovery
// slices than its name says, or without a copy of all other packets. Missing are "base.par2" if there are volumes, and
// a file for each gap among the exponents that has no more of them than the set has recovery slices. Sync's set is one
// file, and says itself how many recovery slices it has.
// A damaged file stays if it has no intact packet of the set, or packets that would be lost: of other sets, of unknown
// kinds, or recovery slices that its name does not tell; if nothing tells which recovery slices it had; if it is a
// link, or has two names; and if the set protects it.
std::vector<LostPackets> lost_packets_of(const Report &report);

// Makes them, and reads the packets of the set again. Throws if a file with recovery data is not complete.
void repair_packets(tandem_context *context, Report &report, const tandem_par2_repair_options &options,
                    base::Crew &crew, base::Meter &meter);

}  // namespace tandem::par2
