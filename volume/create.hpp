// SPDX-License-Identifier: Apache-2.0
// Shared by creating a volume and putting a new member into one.
#pragma once

#include <memory>

#include "volume/engine.hpp"

namespace tandem::volume {

std::unique_ptr<tandem_codec, void (*)(tandem_codec *)> make_codec(const Geometry &geometry);
// Throws if it holds something that must not be lost.
void check_overwritable(const Given &given, bool force);
// A table of equal entries, and a log without a record.
void write_tables(Member &member, const Geometry &geometry, const Seed &seed, std::uint32_t index, const Entry &entry,
                  std::uint64_t sequence);

}  // namespace tandem::volume
