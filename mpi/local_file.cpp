// SPDX-License-Identifier: Apache-2.0
#include "mpi/local_file.hpp"

#include <cerrno>

namespace tandem::mpi {

void write_at(int descriptor, const std::string &path, std::span<const std::byte> bytes, std::uint64_t offset) {
  if (!base::write_at(descriptor, bytes.data(), bytes.size(), offset)) fail_io("write", path, errno);
}

bool read_at(int descriptor, const std::string &path, std::span<std::byte> bytes, std::uint64_t offset) {
  const std::int64_t done = base::read_at(descriptor, bytes.data(), bytes.size(), offset);
  if (done < 0) fail_io("read", path, errno);
  return static_cast<std::size_t>(done) == bytes.size();
}

}  // namespace tandem::mpi
