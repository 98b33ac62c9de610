#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs generated kernels of OpenCL C in Oclgrind, which reports every value that is used and that nothing has written: local
memory before its barrier, registers, outputs that a kernel should not read.

    uninitialized_test.py PRINT_KERNEL_TEXT OCLGRIND_KERNEL

The kernels run from files and not behind the backend: Oclgrind 21.10 with --uninitialized crashes if a program is built on
a thread that has run no kernel, and takes clEnqueueFillBuffer for no initialisation.
"""

import itertools
import os
import pathlib
import random
import subprocess
import sys
import tempfile

K, M, BYTES, GROUP = 18, 3, 1000, 8  # more columns than are loaded at once; a tile that is not full, and a tail
PITCH = 1024
MODES = ("assign", "accumulate", "compare")


def arguments(technique, mode, access, element):
    """The kernel's arguments, in Oclgrind's form. The outputs of an assign have no values."""
    def number(kind, value):
        return f"<size={8 if kind == 'ulong' else 4} {kind}>\n{value}"

    yield f"<size={K * PITCH} uint fill=2779096485>"
    yield f"<size={M * PITCH} uint {'noinit' if mode == 'assign' else 'fill=1'}>"
    offsets = [i * PITCH for i in range(K)] + [i * PITCH for i in range(M)]
    yield f"<size={8 * len(offsets)} ulong>\n" + " ".join(map(str, offsets))
    margin = 4 if access == "shifted" else 0  # as cut_kernel_range
    begin = margin + -margin % element
    end = begin + (BYTES - margin - begin) // element * element
    yield from (number("ulong", begin), number("ulong", end), number("ulong", BYTES))
    yield f"<size={8 * (M * 1002 + 1)} uint fill=4294967295>"
    if technique == "tables":
        yield from (f"<size={K * 128} uint fill=1>", number("uint", K), number("uint", M), f"<size={K * 128}>")
    if technique == "transform":  # as kernel_shared_bytes: 4 rows of 32 items, and the inputs of a group with outputs
        yield f"<size={(4 * 8 + 8) * 32 * 32}>"


def main(print_text, oclgrind):
    failed = 0
    cases = list(itertools.product(("compiled", "tables", "transform"), MODES, ("aligned", "shifted")))
    if "TANDEM_TEST_ALL" not in os.environ:
        print(f"slice seed {(seed := int(os.environ.get('TANDEM_TEST_SEED', random.randrange(2**32))))}")
        cases = random.Random(seed).sample(cases, 6)
    for technique, mode, access in cases:
        words = (K, M, 0, 0, technique, mode, access, "plain", "intel")
        text = subprocess.run([print_text, *map(str, words)], check=True, capture_output=True, text=True).stdout
        element = int(text.split()[1])
        local = (32, 4) if technique == "transform" else (GROUP, 1)
        tile = element * (local[0] * 32 // element if technique == "transform" else local[0] * (local[1] if technique == "tables" else 1))
        groups = -(-BYTES // tile) + 1
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "kernel.cl").write_text(text)
            simulation = ["kernel.cl", "tandem_apply", f"{groups * local[0]} {local[1]} 1", f"{local[0]} {local[1]} 1",
                          *arguments(technique, mode, access, element)]  # fmt: skip
            pathlib.Path(folder, "kernel.sim").write_text("\n".join(simulation) + "\n")
            command = [oclgrind, "--uninitialized", "--data-races", "--build-options", "-cl-opt-disable", "kernel.sim"]
            run = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
        said = run.stdout + run.stderr
        if run.returncode != 0 or said:
            failed += 1
            print(f"{technique} {mode} {access}: status {run.returncode}\n{said[:1500]}")
    print(f"{len(cases)} kernels, {failed} with a report")
    return 1 if failed else 0


sys.exit(main(*sys.argv[1:]))
