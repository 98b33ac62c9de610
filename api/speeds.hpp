// SPDX-License-Identifier: Apache-2.0
// The speeds that hybrids learned on this machine, passed from one process to the next.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tuning/journal.hpp"
#include "tuning/table.hpp"

namespace tandem::api {

std::string machine_name();  // as SpeedEntry::machine

std::vector<core::SpeedEntry> speeds_of_this_machine(const tuning::Table &table);

// Locks the file against tuning. If there was never a tuning, there is no journal, and none is made: null. Throws Error
// (UNAVAILABLE) while a process tunes.
std::unique_ptr<tuning::Journal> lock_tuning_file(const std::string &file);

// Adds the entries, with the present time, to a tuning file. Throws Error: as read_file and write_file; UNAVAILABLE
// while a process tunes into it.
void remember_speeds(const std::string &path, std::vector<core::SpeedEntry> entries);

}  // namespace tandem::api
