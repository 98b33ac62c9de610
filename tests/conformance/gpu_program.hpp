// SPDX-License-Identifier: Apache-2.0
// A program's own use of CUDA, on the GPU that the backend uses.
#pragma once

#include <memory>

#include "tests/conformance/cuda_shards.hpp"

namespace tandem::test {

std::unique_ptr<CudaProgram> make_gpu_program();

}  // namespace tandem::test
