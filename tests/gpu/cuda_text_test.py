#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The CUDA dialect of generated kernels, compiled to machine code by NVRTC, which needs no GPU.

    cuda_text_test.py PRINT_KERNEL_TEXT WHEELS SOURCE

NOT RUN (status 77) where no NVRTC is installed. WHEELS: the folder of nvrtc.py, with the oldest and the newest NVRTC.
SOURCE: of Tandem.
"""

import itertools
import os
import pathlib
import random
import re
import subprocess
import sys
import unittest

import nvrtc

PROGRAM = WHEELS = SOURCE = None
NVRTC = None
# A (k, m), element bytes and rows a pass at which nothing may be spilled, for the oldest and the newest architecture that
# this NVRTC knows and for sm_90.
CASES = ((4, 2, 16, 2), (10, 4, 8, 4), (16, 4, 8, 4), (32, 8, 4, 8), (3, 7, 4, 4), (1, 1, 16, 4))
# (k, m), technique, mode, access, loads: every combination that there is, and the text between them differs.
MODES = ("assign", "accumulate", "compare", "batch")
KERNELS = [(code, *case) for code, techniques, accesses, loads in (
    ((5, 3), ("compiled", "tables"), ("aligned", "shifted"), ("plain",)),
    ((10, 6), ("compiled",), ("aligned",), ("streaming", "async")),
    ((20, 10), ("transform",), ("aligned", "shifted"), ("plain",)))
    for case in itertools.product(techniques, MODES, accesses, loads)]  # fmt: skip
IN_A_SLICE = 8  # of KERNELS, without TANDEM_TEST_ALL


def compile_text(text, architecture):
    """Returns (worked, log) of NVRTC."""
    try:
        return True, NVRTC.compile(text, f"sm_{architecture}", "--ptxas-options=-v")[1]
    except nvrtc.CompileError as error:
        return False, str(error)


def architectures():
    known = NVRTC.architectures()
    return sorted({min(known), max(known)} | ({90} & set(known)))


def text_of(code, technique="compiled", mode="assign", access="aligned", loads="plain", element=0, rows=0, architecture=90):
    element, rows = (16, 4) if technique == "tables" else (element, rows)
    words = (*code, element, rows, technique, mode, access, loads, architecture)
    return subprocess.run([PROGRAM, *map(str, words)], check=True, capture_output=True).stdout


def read(path):
    return pathlib.Path(SOURCE, path).read_text()


class CudaText(unittest.TestCase):
    def assert_compiles(self, text, architecture):
        worked, log = compile_text(text, architecture)
        self.assertTrue(worked, log)
        return log

    def test_compiled_technique(self):
        for k, m, element, rows in CASES:
            text = text_of((k, m), element=element, rows=rows)
            for architecture in architectures():
                log = self.assert_compiles(text, architecture)
                spilled = [int(bytes_) for bytes_ in re.findall(r"(\d+) bytes spill", log)]
                self.assertTrue(spilled, "NVRTC says nothing of spills: " + log)
                self.assertEqual(sum(spilled), 0, f"{k}+{m} on sm_{architecture}: {log}")
                registers = re.search(r"Used (\d+) registers", log)
                print(f"{k}+{m}, {element} bytes, sm_{architecture}: {registers.group(1)} registers")

    def test_every_supported_nvrtc_compiles_every_kernel(self):
        """The toolkit's, for its oldest and newest architecture; the oldest that gpus.md names and the newest, of PyPI."""
        standard, = re.findall(r'"(--std=.*?)"', read("gpu/programs.cpp"))
        number = int(re.search(r"TANDEM_CUDA_OLDEST = (\d+)", read("gpu/cuda_module.hpp"))[1])
        oldest = f"{number // 1000}.{number % 1000 // 10}"
        self.assertIn(f"of CUDA {oldest} or later", read("docs/gpus.md"))
        self.assertIn(f"LESS {number})", read("cmake/TandemCuda.cmake"))
        self.assertIn(f"toolkit, {oldest} or later", read("cmake/TandemCuda.cmake"))
        wheels = nvrtc.wheels_in(WHEELS)
        missing = nvrtc.WHEELS.keys() - wheels.keys()
        if missing:
            print(f"NOT RUN: {len(missing)} of 2 versions of NVRTC: nvrtc.py takes them from PyPI:", ", ".join(sorted(missing)))
        if "oldest" in wheels:
            self.assertEqual(wheels["oldest"].version(), oldest)
        chance = random.Random(seed := int(os.environ.get("TANDEM_TEST_SEED", random.randrange(2**32))))
        for library in (NVRTC, *wheels.values()):
            known = library.architectures()
            for architecture in {max(75, min(known)), max(known)} if library is NVRTC else {max(known)}:
                compiled = 0
                for kernel in KERNELS if "TANDEM_TEST_ALL" in os.environ else chance.sample(KERNELS, IN_A_SLICE):
                    if "async" in kernel and architecture < 80:
                        continue
                    with self.subTest(nvrtc=library.version(), architecture=architecture, kernel=kernel):
                        library.compile(text_of(*kernel, architecture=architecture), f"sm_{architecture}", standard)
                        compiled += 1
                print(f"NVRTC {library.version()}, sm_{architecture}: {compiled} of {len(KERNELS)} kernels, slice seed {seed}")

    def test_doubling_spreads_signs(self):
        """__byte_perm would drop the selectors' top bits, and the permutation would do nothing."""
        ptx = NVRTC.compile(text_of((4, 2)), "compute_90")[0].decode()
        selectors = {int(each, 0) for each in re.findall(r"prmt\.b32\s+[^,]+,[^,]+,[^,]+,\s*(\w+)\s*;", ptx)}
        self.assertEqual(selectors, {0xBA98})

    def test_threes_stay_threes(self):
        """What the compiler may put together anew, it does: the counts of docs/internals/CUDA.md need every XOR of three as it stands."""
        text = text_of((10, 4), element=4, rows=4).decode()
        ptx = NVRTC.compile(text.encode(), "compute_90")[0].decode()
        self.assertEqual(len(re.findall(r"lop3\.b32 .*, (?:150|0x96);", ptx)), text.count("XOR3_TO(p") + 4 * text.count("XOR3_FOUR(p"))

        # Of four in one statement, none reads what an earlier one has written.
        several = 0
        for block in re.findall(r"// begin inline asm\n(.*?)// end inline asm", ptx, re.S):
            written = set()
            for output, *inputs in re.findall(r"lop3\.b32\s+(\S+), (%r\d+), (%r\d+), (%r\d+)", block):
                self.assertFalse(written & set(inputs), block)
                written.add(output)
            several += len(written) == 4
        self.assertEqual(several, text.count("XOR3_FOUR(p"))

    def test_what_is_wrong_does_not_compile(self):
        worked, log = compile_text(text_of((4, 2)).replace(b"HORNER(p0, p0_0)", b"HORNER(p0, p0_9)"), architectures()[0])
        self.assertFalse(worked)
        self.assertIn("p0_9", log)


if __name__ == "__main__":
    PROGRAM, WHEELS, SOURCE = sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1)
    NVRTC = nvrtc.find()
    if NVRTC is None:
        print("NOT RUN: no libnvrtc (it comes with the CUDA toolkit)")
        sys.exit(77)
    unittest.main()
