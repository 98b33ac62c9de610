// SPDX-License-Identifier: Apache-2.0
// Streams and paths. Files at an offset are in base/descriptor.hpp.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/descriptor.hpp"
#include "base/folder.hpp"

namespace tandem::files {

using namespace base;

// Reads or writes a pipe, socket, terminal or file from its position. Waits in short sleeps and checks `stop`, so that
// a call can be cancelled while the other end is silent: then -1 or false with errno = ECANCELED.
std::int64_t read_stream(int descriptor, std::byte *bytes_out, std::size_t byte_count,
                         const std::atomic<bool> &stop) noexcept;
bool write_stream(int descriptor, const std::byte *bytes, std::size_t byte_count,
                  const std::atomic<bool> &stop) noexcept;

// Throws IO, with the numbers, unless this process can hold staying_count files open, and a few more for a short
// time. what: "20 shard files".
void check_open_files(std::size_t staying_count, const std::string &what);

// "folder//" -> "folder"; "/" stays.
std::string without_trailing_slashes(std::string path);

}  // namespace tandem::files
