# SPDX-License-Identifier: Apache-2.0
"""A user of pyeclib. `write FOLDER` encodes every case and writes each fragment into a file; `read FOLDER` drops fragments of
each case, decodes and rebuilds. With `fork` each case runs in a later child, as in the workers of OpenStack Swift."""

import os
import pathlib
import random
import sys

from pyeclib.ec_iface import ALL_EC_TYPES, ECDriver

BACKENDS = [name for name in ("isa_l_rs_vand", "isa_l_rs_vand_inv", "isa_l_rs_cauchy") if name in ALL_EC_TYPES]
SHAPES = [(2, 1), (4, 2), (8, 3), (10, 4), (15, 3)]  # 10+4, 15+3: usual with Swift
SIZES = [1, 1000, 65537, 1048576]


def write(folder, driver, name, k, m, size):
    for index, fragment in enumerate(driver.encode(random.Random(size).randbytes(size))):
        (folder / f"{name}-{k}-{m}-{size}.{index:02}").write_bytes(fragment)


def read(folder, driver, name, k, m, size):
    content = random.Random(size).randbytes(size)
    fragments = [(folder / f"{name}-{k}-{m}-{size}.{index:02}").read_bytes() for index in range(k + m)]
    for first in range(k + m):
        left = [fragments[i] for i in range(k + m) if (i - first) % (k + m) >= m]
        assert driver.decode(left) == content, (name, k, m, size, first)
        assert driver.reconstruct(left, [first]) == [fragments[first]], (name, k, m, size, first)


def in_child(work, *arguments):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work(*arguments)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0, arguments[2:]


def main():
    work, folder = {"write": write, "read": read}[sys.argv[1]], pathlib.Path(sys.argv[2])
    drivers = {(name, k, m): ECDriver(k=k, m=m, ec_type=name, chksum_type="inline_crc32")
               for name in BACKENDS for k, m in SHAPES}
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        if "libisal" in line and " r-xp " in line:
            print("served by", line[line.index("/"):], file=sys.stderr)
    cases = 0
    for (name, k, m), driver in drivers.items():
        for size in SIZES:
            arguments = (folder, driver, name, k, m, size)
            in_child(work, *arguments) if len(sys.argv) > 3 else work(*arguments)
            cases += 1
    print(f"{cases} cases of {', '.join(BACKENDS)}")


main()
