// SPDX-License-Identifier: Apache-2.0
// The real NVRTC makes PTX of generated kernels, and the interpreter runs them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/kernel_text.hpp"
#include "tests/gpu/ptx/interpreter.hpp"
#include "tests/gpu/real_nvrtc.hpp"

namespace tandem::test::ptx {

// Makes PTX.
class Nvrtc {
 public:
  explicit Nvrtc(const std::string &path);  // throws Error
  const std::string &version() const { return version_; }
  std::string compile(const std::string &text, unsigned architecture) const;  // throws Error with the log

 private:
  RealNvrtc real_;
  std::string version_;
};

// The oldest supported and the newest one that tests/gpu/nvrtc.py has put into the build folder; without them that of
// the toolkit, if there is one. The newest comes first.
const std::vector<std::unique_ptr<Nvrtc>> &nvrtcs();

// A launch of a generated kernel. Its memory: each shard, the tables, the records and the table of stripes, to the
// byte.
Launch launch_of(const device::KernelSpec &spec, const device::KernelArguments &arguments,
                 const std::array<unsigned, 3> &grid, std::uint64_t shared_bytes, std::uint64_t seed);

}  // namespace tandem::test::ptx
