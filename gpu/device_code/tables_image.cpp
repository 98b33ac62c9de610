// SPDX-License-Identifier: Apache-2.0
// Holds nvcc's compiled kernels of technique tables inside the module: gpu/cuda_module.hpp.

// Hidden: the module exports one function and no data.
asm(R"(
  .pushsection .rodata
  .globl tandem_cuda_tables_image
  .hidden tandem_cuda_tables_image
  .balign 64
tandem_cuda_tables_image:
  .incbin ")" TANDEM_TABLES_IMAGE R"("
tandem_cuda_tables_image_end:
  .globl tandem_cuda_tables_image_bytes
  .hidden tandem_cuda_tables_image_bytes
  .balign 8
tandem_cuda_tables_image_bytes:
  .quad tandem_cuda_tables_image_end - tandem_cuda_tables_image
  .popsection
)");
