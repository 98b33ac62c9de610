// SPDX-License-Identifier: Apache-2.0
// Files of one rank. Each function throws Error (IO) with the path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/pending_file.hpp"

namespace tandem::mpi {

using namespace base;

// All bytes. read_at: false if the file ends before.
void write_at(int descriptor, const std::string &path, std::span<const std::byte> bytes, std::uint64_t offset);
bool read_at(int descriptor, const std::string &path, std::span<std::byte> bytes, std::uint64_t offset);

}  // namespace tandem::mpi
