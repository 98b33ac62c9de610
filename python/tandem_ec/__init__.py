# SPDX-License-Identifier: Apache-2.0
"""Reed-Solomon erasure coding on every processor of a machine.

    import numpy, tandem_ec
    rs = tandem_ec.RS(10, 4)
    data = numpy.random.randint(0, 256, (10, 1 << 20), numpy.uint8)
    parity = rs.encode(data)
    lost = {0: data[0], 3: data[3]}
    rebuilt = rs.reconstruct({i: s for i, s in enumerate([*data, *parity]) if i not in lost})
"""

from . import errors, files, par2
from ._native import empty, version
from ._rs import RS, VerifyResult
from .errors import Error

__version__ = version()
__all__ = ["RS", "VerifyResult", "Error", "empty", "errors", "files", "par2", "version"]
