#!/usr/bin/env python3
"""The CUDA dialect of generated kernels, compiled to machine code by NVRTC, which needs no GPU.

    cuda_text_test.py TANDEM        NOT RUN (status 77) where no NVRTC is installed
"""

import re
import subprocess
import sys
import unittest

import nvrtc

TANDEM = None
NVRTC = None
# A (k, m), element bytes and rows a pass at which nothing may be spilled, for the oldest and the newest architecture that
# this NVRTC knows and for sm_90.
CASES = ((4, 2, 16, 2), (10, 4, 8, 4), (16, 4, 8, 4), (32, 8, 4, 8), (3, 7, 4, 4), (1, 1, 16, 4))


def compile_text(text, architecture):
    """Returns (worked, log) of NVRTC."""
    try:
        return True, NVRTC.compile(text, f"sm_{architecture}", "--ptxas-options=-v")[1]
    except nvrtc.CompileError as error:
        return False, str(error)


def architectures():
    known = NVRTC.architectures()
    return sorted({min(known), max(known)} | ({90} & set(known)))


def text_of(k, m, *arguments):
    command = [TANDEM, "devices", "--kernel", "--text", "cuda", "-k", str(k), "-m", str(m), *arguments]
    return subprocess.run(command, check=True, capture_output=True).stdout


class CudaText(unittest.TestCase):
    def assert_compiles(self, text, architecture):
        worked, log = compile_text(text, architecture)
        self.assertTrue(worked, log)
        return log

    def test_compiled_technique(self):
        for k, m, element, rows in CASES:
            text = text_of(k, m, "--element-bytes", str(element), "--rows-per-pass", str(rows))
            for architecture in architectures():
                log = self.assert_compiles(text, architecture)
                spilled = [int(bytes_) for bytes_ in re.findall(r"(\d+) bytes spill", log)]
                self.assertTrue(spilled, "NVRTC says nothing of spills: " + log)
                self.assertEqual(sum(spilled), 0, f"{k}+{m} on sm_{architecture}: {log}")
                registers = re.search(r"Used (\d+) registers", log)
                print(f"{k}+{m}, {element} bytes, sm_{architecture}: {registers.group(1)} registers")

    def test_every_technique_operation_and_access(self):
        for technique in ("compiled", "tables"):
            for operation in ("encode", "update", "verify"):
                for access in ("aligned", "any"):
                    text = text_of(5, 3, "--technique", technique, "--operation", operation, "--access", access)
                    for architecture in architectures():
                        self.assert_compiles(text, architecture)

    def test_every_operation_and_access_of_transforms(self):
        for operation in ("encode", "verify"):
            for access in ("aligned", "any"):
                text = text_of(20, 10, "--technique", "transform", "--operation", operation, "--access", access)
                for architecture in architectures():
                    self.assert_compiles(text, architecture)

    def test_doubling_spreads_signs(self):
        """__byte_perm would drop the selectors' top bits, and the permutation would do nothing."""
        ptx = NVRTC.compile(text_of(4, 2), "compute_90")[0].decode()
        selectors = {int(each, 0) for each in re.findall(r"prmt\.b32\s+[^,]+,[^,]+,[^,]+,\s*(\w+)\s*;", ptx)}
        self.assertEqual(selectors, {0xBA98})

    def test_threes_stay_threes(self):
        """What the compiler may put together anew, it does: the counts of docs/internals/CUDA.md need every XOR of three as it stands."""
        text = text_of(10, 4, "--element-bytes", "4").decode()
        ptx = NVRTC.compile(text.encode(), "compute_90")[0].decode()
        self.assertEqual(len(re.findall(r"lop3\.b32 .*, (?:150|0x96);", ptx)), text.count("XOR3_TO(p") + 4 * text.count("XOR3_FOUR(p"))

        # Of four in one statement, none reads what an earlier one has written.
        several = 0
        for block in re.findall(r"// begin inline asm\n(.*?)// end inline asm", ptx, re.S):
            written = set()
            for output, *inputs in re.findall(r"lop3\.b32\s+(%r\d+), (%r\d+), (%r\d+), (%r\d+)", block):
                self.assertFalse(written & set(inputs), block)
                written.add(output)
            several += len(written) == 4
        self.assertEqual(several, text.count("XOR3_FOUR(p"))

    def test_what_is_wrong_does_not_compile(self):
        worked, log = compile_text(text_of(4, 2).replace(b"HORNER(p0, p0_0)", b"HORNER(p0, p0_9)"), architectures()[0])
        self.assertFalse(worked)
        self.assertIn("p0_9", log)


if __name__ == "__main__":
    TANDEM = sys.argv.pop(1)
    NVRTC = nvrtc.find()
    if NVRTC is None:
        print("NOT RUN: no libnvrtc (it comes with the CUDA toolkit)")
        sys.exit(77)
    unittest.main()
