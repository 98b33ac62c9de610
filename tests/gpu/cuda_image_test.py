#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The kernels of technique tables that are compiled with the library. Their text must equal the generator's, and the machine
code of every architecture must have each of them.

    cuda_image_test.py TANDEM_BENCH TABLES_CU KEPT_FOLDER ARCHITECTURE...
"""

import pathlib
import subprocess
import sys
import unittest

import cubin

BENCH, TABLES, KEPT, ARCHITECTURES = None, None, None, None
OPERATIONS = {"assign": "encode", "accumulate": "update", "compare": "verify"}
ACCESSES = {"aligned": "aligned", "shifted": "any"}
ELEMENTS = (4, 8, 16)


def names():
    for mode in OPERATIONS:
        for access in ACCESSES:
            for element in ELEMENTS:
                yield mode, access, element, f"tandem_tables_{mode}_{access}_{element}"


def kernels():
    batch = {f"tandem_tables_batch_{access}_{element}" for access in ACCESSES for element in ELEMENTS}
    return batch | {name for _, _, _, name in names()}


class CudaImage(unittest.TestCase):
    def test_text_is_the_generators(self):
        tables = pathlib.Path(TABLES).read_text()
        for mode, access, element, name in names():
            text = subprocess.run(
                [BENCH, "kernels", "--text", "cuda", "--device-technique", "tables", "--operation", OPERATIONS[mode],
                 "--access", ACCESSES[access], "--element-bytes", str(element)],
                check=True, capture_output=True, text=True).stdout  # fmt: skip
            self.assertIn("KERNEL(tandem_apply)", text)
            self.assertIn(text.replace("KERNEL(tandem_apply)", f"KERNEL({name})"), tables)

    def test_every_architecture_has_every_kernel(self):
        for architecture in ARCHITECTURES:
            image = (pathlib.Path(KEPT) / f"tables.sm_{architecture}.cubin").read_bytes()
            found = cubin.kernels(image)
            self.assertEqual(set(found), kernels(), f"sm_{architecture}")
            for name, kernel in found.items():
                self.assertGreater(kernel.instruction_count(), 50, name)
                self.assertEqual(kernel.frame_bytes, 0, f"{name} on sm_{architecture} keeps something in local memory")

    def test_whoever_comes_later_finds_ptx(self):
        ptx = (pathlib.Path(KEPT) / "tables.ptx").read_text()
        for name in kernels():
            self.assertIn(f".entry {name}(", ptx)
        self.assertIn(f".target sm_{ARCHITECTURES[0]}", ptx)


if __name__ == "__main__":
    BENCH, TABLES, KEPT, *ARCHITECTURES = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
