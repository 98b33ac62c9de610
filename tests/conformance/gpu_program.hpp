// The CUDA of a program, on the GPU of this machine that the backend takes.
#pragma once

#include <memory>

#include "tests/conformance/cuda_shards.hpp"

namespace tandem::test {

std::unique_ptr<CudaProgram> make_gpu_program();

}  // namespace tandem::test
