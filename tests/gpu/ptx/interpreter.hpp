// SPDX-License-Identifier: Apache-2.0
// An interpreter of PTX, written from NVIDIA's manual "PTX ISA", for kernels that NVRTC made. It runs the text as
// it is: one entry, integers only, the instructions that NVRTC uses for our kernels. Anything else is an error by name.
//
// It is stricter than a GPU. Warps and blocks take turns at random; registers and shared memory hold random bytes at
// first; shared memory begins at a random address. These are errors, with the line, the block and the thread:
//     - an access outside of the launch's memory, to the byte, or not aligned
//     - a race: bytes that two threads use, one of them for writing, without a barrier between; in global memory with a
//       barrier too, as other blocks never see it. Atomic operations race with everything else
//     - shared memory that is read before it is written, and global memory that the launch says is undefined
//     - bytes of a copy (cp.async) that are used before its thread has waited, and a thread that ends before its copies
//     - a barrier that some threads of a block skip, or two barriers at once
//     - read-only loads (ld.global.nc) of bytes that the launch writes
// It has no model of the order of memory between barriers: what depends on that order is a race.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace tandem::test::ptx {

struct Code;

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Memory of the host that is global memory of a launch. Regions that overlap are one.
struct Region {
  std::uint64_t first = 0, bytes = 0;
  bool is_defined = true;  // false: the launch may read only what it has written
};

struct Launch {
  std::array<unsigned, 3> grid = {1, 1, 1}, block = {1, 1, 1};
  std::uint64_t shared_bytes = 0;  // beside what the text declares
  const void *parameters = nullptr;
  std::uint64_t parameter_bytes = 0;
  std::vector<Region> memory;
  std::uint64_t seed = 1;
};

class Module {
 public:
  explicit Module(const std::string &text);  // throws Error
  void run(const Launch &launch) const;      // throws Error

 private:
  std::shared_ptr<const Code> code_;
};

}  // namespace tandem::test::ptx
