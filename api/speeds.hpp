// SPDX-License-Identifier: Apache-2.0
// The speeds that hybrids learned on this machine, passed from one process to the next.
#pragma once

#include <string>
#include <vector>

#include "tuning/table.hpp"

namespace tandem::api {

std::string machine_name();  // as SpeedEntry::machine

std::vector<core::SpeedEntry> speeds_of_this_machine(const tuning::Table &table);

// Adds the entries, with the present time, to a tuning file. Throws Error: as update_file.
void remember_speeds(const std::string &path, std::vector<core::SpeedEntry> entries);

}  // namespace tandem::api
