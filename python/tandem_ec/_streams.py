# SPDX-License-Identifier: Apache-2.0
"""The CUDA stream that a tensor's library works on now."""

import sys


def current_stream(tensor: object, device: int) -> int:
    """The stream's handle; 0 is the legacy default stream, on which DLPack hands memory over."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        return int(torch.cuda.current_stream(device).cuda_stream)
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(tensor, cupy.ndarray):
        with cupy.cuda.Device(device):
            return int(cupy.cuda.get_current_stream().ptr)
    return 0
