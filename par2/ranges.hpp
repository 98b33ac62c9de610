// SPDX-License-Identifier: Apache-2.0
// Checksums of many ranges of files together: each thread reads up to 32 of them side by side.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/crew.hpp"
#include "par2/packets.hpp"

namespace tandem::par2 {

struct Range {
  const std::string *path;
  std::uint64_t offset, bytes;
  std::uint64_t zeros = 0;  // that follow the bytes
  int error = 0;            // results: errno, EIO if the file ends before; 0: all was read
  SliceSum sum{};
};

// Called on any thread with the bytes that were just read: Meter::counter(). Throws to end the call.
using Progressed = std::function<void(std::uint64_t bytes)>;

// Reads bytes of a range, from its beginning on, as base::read_at does it.
using ReadRange = std::function<std::int64_t(std::size_t range, std::byte *into, std::size_t count, std::uint64_t at)>;
// At most kMaxMd5Streams ranges, on this thread; those with an error are left out.
void sum_read(std::span<Range> ranges, bool with_crc, const Progressed &progressed, const ReadRange &read);

// Calls task(first, end) for 0 .. count - 1, in groups of kMaxMd5Streams, on all threads.
void run_groups(std::size_t count, base::Crew &crew,
                const std::function<void(std::size_t first, std::size_t end)> &task);

// At most kMaxMd5Streams ranges, on this thread. Throws if the process is out of descriptors or memory.
void sum_together(std::span<Range> ranges, bool with_crc, const Progressed &progressed);
// Any number, on all threads. Ranges of one file should be neighbours.
void sum_ranges(std::span<Range> ranges, bool with_crc, base::Crew &crew, const Progressed &progressed);

}  // namespace tandem::par2
