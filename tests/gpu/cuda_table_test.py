#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the machine code that NVRTC makes from the generated kernels for sm_90 with a committed table,
bench/results/compile.

    cuda_table_test.py CUDA_KERNEL_TEXT TABLE_FOLDER             NOT RUN (status 77) if no NVRTC is installed
    cuda_table_test.py CUDA_KERNEL_TEXT TABLE_FOLDER --write     makes the table of this NVRTC anew
    cuda_table_test.py CUDA_KERNEL_TEXT TABLE_FOLDER --print     the table of this NVRTC, sm_90, for docs/internals/CUDA.md

Registers, instructions and ALU operations may differ from the table by 2 %; nothing else may. The ALU operations of the
codes of LIMITS have their own limit, and no shape may spill. On other architectures only spills are checked.

The test compiles a slice: three codes on sm_90, and a random choice of other cases and shapes. TANDEM_TEST_ALL=1 compiles
all; TANDEM_TEST_SEED=N repeats a slice.

The table of another NVRTC version says nothing about this one's machine code. Then only spills are checked, and the test says
so.
"""

import collections
import concurrent.futures
import json
import os
import pathlib
import random
import subprocess
import sys

import cubin
import nvrtc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import rows  # noqa: E402

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
COMPILED, ALIGNED = ("compiled", "assign", "aligned", "plain"), "aligned"
# (k, m), technique, mode, access, loads; (64,16) and (128,32) take a compiler seconds.
CODES = ((1, 1), (4, 2), (6, 3), (8, 4), (10, 4), (12, 4), (16, 4), (3, 7), (20, 10), (32, 8), (64, 16))
CASES = [(code, COMPILED) for code in CODES]
CASES += [((10, 4), case) for case in (
    ("compiled", "accumulate", "aligned", "plain"), ("compiled", "compare", "aligned", "plain"),
    ("compiled", "assign", "shifted", "plain"), ("compiled", "compare", "shifted", "plain"),
    ("compiled", "assign", "aligned", "streaming"), ("compiled", "accumulate", "aligned", "streaming"),
    ("compiled", "assign", "aligned", "async"), ("compiled", "compare", "aligned", "async"),
    ("tables", "assign", "aligned", "plain"), ("tables", "compare", "shifted", "plain"))]  # fmt: skip
TRANSFORM = ("transform", "assign", "aligned", "plain")
CASES += [((32, 8), ("compiled", "compare", "aligned", "plain")), ((32, 8), ("compiled", "assign", "aligned", "async"))]
ALWAYS = [((4, 2), COMPILED), ((10, 4), COMPILED), ((16, 4), COMPILED), ((64, 16), TRANSFORM)]
# (128, 32) takes a compiler seconds: one architecture, with TANDEM_TEST_ALL.
ONLY_ON_SM_90 = [((128, 32), COMPILED), ((16, 16), TRANSFORM), ((32, 16), TRANSFORM), ((50, 20), TRANSFORM), ((64, 16), TRANSFORM),
                 ((128, 32), TRANSFORM)]  # fmt: skip
ONLY_ON_SM_90 += [((32, 16), ("transform", *case, "plain")) for case in (
    ("accumulate", ALIGNED), ("compare", ALIGNED), ("assign", "shifted"), ("compare", "shifted"), ("batch", ALIGNED))]  # fmt: skip
# Shapes for the built-in tuning, on sm_90: no spill.
SHAPES = [(k, m) for k in (1, 2, 5, 10, 16, 17, 21, 32, 48, 64, 100, 128, 200) for m in range(1, 9)]
# The kernels of many stripes. Their pointers come from a table.
BATCHES = [(code, ("compiled", "batch", access, "plain")) for code, access in (
    ((4, 2), ALIGNED), ((10, 4), ALIGNED), ((10, 4), "shifted"), ((20, 10), ALIGNED), ((32, 8), ALIGNED))]  # fmt: skip
BATCHES += [((10, 4), ("tables", "batch", ALIGNED, "plain"))]
MOST_REGISTERS = 128  # more, and fewer than 16 warps fit a multiprocessor
# ALU operations per data byte, at most: what the kernels took when a 32-bit index came in.
LIMITS = {((4, 2), COMPILED): 3.08, ((10, 4), COMPILED): 3.34, ((16, 4), COMPILED): 2.52, ((20, 10), COMPILED): 5.01,
          ((32, 8), COMPILED): 3.78, ((64, 16), COMPILED): 6.13}  # fmt: skip
# Of technique transform. An H100 (14.8e12 operations and 3.0e12 bytes a second) is bound by its memory up to 6.18 of a code
# with k = 4 m.
LIMITS |= {((64, 16), TRANSFORM): 3.9, ((128, 32), TRANSFORM): 4.7}
TOLERANCE = 0.02
TRANSFORM_ROWS = 4  # of a work-group of technique transform: up to 8 groups of outputs

BRANCHES = {0x141, 0x145, 0x147, 0x148, 0x149, 0x14D}  # BSYNC, BSSY, BRA, WARPSYNC, BRX, EXIT
ALU = ("LOP3", "PRMT", "SHF", "IADD3", "LEA", "ISETP", "SEL", "MOV")  # one pipe; IMAD has another
NAMES = {0x002: "MOV", 0x007: "SEL", 0x00C: "ISETP", 0x011: "LEA", 0x012: "LOP3", 0x016: "PRMT", 0x019: "SHF", 0x024: "IMAD", 0x025: "IMAD", 0x010: "IADD3", 0x035: "IADD3",
         0x181: "LDG", 0x186: "STG", 0x184: "LDS", 0x188: "STS", 0x1AE: "LDGSTS"}  # fmt: skip


def stretches(kernel):
    """Opcodes between branches."""
    found, current = [], []
    for opcode in kernel.opcodes():
        if opcode in BRANCHES:
            found.append(current)
            current = []
        else:
            current.append(opcode)
    return found + [current]


def straight(kernel, count):
    """Names of the longest stretches without a branch: the passes, which all other code stands around."""
    longest = sorted(stretches(kernel), key=len, reverse=True)[:count]
    return collections.Counter(NAMES.get(opcode, "other") for stretch in longest for opcode in stretch)


def transform_tile(kernel, rows):
    """Names of what all rows of a work-group run for a tile, at most. One row alone transforms a group of inputs, which is a
    long stretch without memory, or a group of outputs, which ends with stores. All other code counts for each row."""
    total = collections.Counter()
    for stretch in stretches(kernel):
        names = collections.Counter(NAMES.get(opcode, "other") for opcode in stretch)
        is_group = names["STG"] or (len(stretch) > 100 and not names["LDG"] and not names["LDS"] and not names["STS"])
        for name, count in names.items():
            total[name] += count * (1 if is_group else rows)
    return total


def measure(library, program, code, case, architecture):
    (k, m), (technique, mode, access, loads) = code, case
    tuning = ("16", "4") if technique == "tables" else ("0", "0")
    text = subprocess.run([program, str(k), str(m), *tuning, *case, str(architecture)],
                          check=True, capture_output=True).stdout  # fmt: skip
    element, rows = (int(word) for word in text.split(b"\n", 1)[0].split()[1:])
    image, _ = library.compile(text, f"sm_{architecture}")
    (kernel,) = cubin.kernels(image).values()
    entry = {"element_bytes": element, "registers": kernel.registers, "spilled_bytes": kernel.frame_bytes,
             "shared_bytes": kernel.shared_bytes, "instructions": kernel.instruction_count()}  # fmt: skip
    if technique == "compiled":
        entry["rows_per_pass"] = rows
    if technique == "transform" and mode == "assign" and access == ALIGNED:
        entry["per_data_byte"] = {name: round(number / (32 * k), 3)
                                  for name, number in sorted(transform_tile(kernel, TRANSFORM_ROWS).items())}
    elif technique != "transform" and mode in ("assign", "batch") and access == ALIGNED:
        # Tables: one column a turn of the loop. Compiled: all columns.
        passes = 1 if technique == "tables" else -(-m // rows)
        data_bytes = element * (1 if technique == "tables" else k)
        found = straight(kernel, passes)
        entry["per_data_byte"] = {name: round(number / data_bytes, 3) for name, number in sorted(found.items())}
    return entry


def name_of(code, case, architecture):
    return f"{code[0]}+{code[1]} {' '.join(case)} sm_{architecture}"


def measure_all(library, program, whole, architectures):
    known = set(library.architectures())
    chance = random.Random(seed := int(os.environ.get("TANDEM_TEST_SEED", random.randrange(2**32))))
    todo = [(code, case, a) for code, case in CASES for a in architectures
            if a in known and (case[3] != "async" or a >= 80)]  # fmt: skip
    todo += [(code, case, 90) for code, case in ONLY_ON_SM_90]
    if not whole:
        print(f"slice seed {seed}")
        quick = [each for each in todo if each[0][0] * each[0][1] < 1000]
        todo = list({*((code, case, 90) for code, case in ALWAYS), *chance.sample(quick, 6)})
    todo.sort(key=lambda each: -each[0][0] * each[0][1])  # the longest first
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        entries = pool.map(lambda each: measure(library, program, *each), todo)
        return dict(sorted(zip((name_of(*each) for each in todo), entries)))


def spills(library, program, whole):
    """How many of SHAPES and BATCHES spill or take too many registers with the built-in tuning, on sm_90."""
    shapes = [(code, COMPILED) for code in SHAPES] + BATCHES
    if not whole:
        chance = random.Random(seed := int(os.environ.get("TANDEM_TEST_SEED", random.randrange(2**32))))
        print(f"shapes seed {seed}")
        quick = [code for code in SHAPES if code[0] * code[1] <= 512]
        shapes = [(code, COMPILED) for code in chance.sample(quick, 4)] + chance.sample(BATCHES, 2)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        entries = list(pool.map(lambda each: measure(library, program, *each, 90), shapes))
    bad = [(each, entry) for each, entry in zip(shapes, entries)
           if entry["spilled_bytes"] != 0 or entry["registers"] > MOST_REGISTERS]  # fmt: skip
    for each, entry in bad:
        print(f"{name_of(*each, 90)}: {entry['registers']} registers, {entry['spilled_bytes']} bytes spilled")
    print(f"built-in tuning: {len(shapes)} shapes, {max(entry['registers'] for entry in entries)} registers at most")
    return len(bad)


def alu(entry):
    return sum(entry.get("per_data_byte", {}).get(name, 0) for name in ALU)


def differs(expected, entry):
    """Whether a kernel is another one than the table's."""
    if expected is None:
        return True

    def exact(each):
        return {name: value for name, value in each.items() if name not in ("registers", "instructions", "per_data_byte")}

    counts = [(of["registers"], of["instructions"], alu(of)) for of in (expected, entry)]
    return exact(expected) != exact(entry) or any(abs(a - b) > TOLERANCE * a for a, b in zip(*counts))


def above_limits(entries):
    bad = [(each, round(alu(entry), 3)) for each in LIMITS
           if (entry := entries.get(name_of(*each, 90))) and alu(entry) > LIMITS[each] * (1 + TOLERANCE)]  # fmt: skip
    for each, operations in bad:
        print(f"{name_of(*each, 90)}: {operations} ALU operations per data byte, {LIMITS[each]} is the limit")
    return len(bad)


# Of a multiprocessor in a cycle: lanes of LOP3, PRMT, SHF and IADD3 together; of IMAD; of shared memory's reads; instructions
# x 32. CUDA C++ Programming Guide, arithmetic instructions; not measured by us.
LANES = {"ALU": 64, "IMAD": 64, "LDS": 32, "issue": 128}
H200 = {"multiprocessors": 132, "hertz": 1.98e9, "bytes_per_second": 4.3e12}


def predict(k, m, per_byte):
    """(share of the memory roof, what binds). The formula is docs/internals/CUDA.md's."""
    cycles = {
        "ALU": sum(per_byte.get(name, 0) for name in ALU) / LANES["ALU"],
        "IMAD": per_byte.get("IMAD", 0) / LANES["IMAD"],
        "LDS": per_byte.get("LDS", 0) / LANES["LDS"],
        "issue": sum(per_byte.values()) / LANES["issue"],
    }
    binding = max(cycles, key=cycles.get)
    bytes_per_second = H200["multiprocessors"] * H200["hertz"] / cycles[binding]
    return bytes_per_second / (H200["bytes_per_second"] * k / (k + m)), binding


def print_table(entries):
    print("| code, technique | element | rows a pass | registers | instructions | LOP3 | PRMT | IADD3 | ALU | IMAD | LDS | all "
          "| predicted share, at most | bound |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    for code, case in CASES + ONLY_ON_SM_90:
        entry = entries[name_of(code, case, 90)]
        per_byte = entry.get("per_data_byte")
        if per_byte is None:
            continue
        share, binding = predict(*code, per_byte)
        per_byte["ALU"] = alu(entry)
        shown = " | ".join(f"{per_byte.get(name, 0):.2f}" for name in ("LOP3", "PRMT", "IADD3", "ALU", "IMAD", "LDS"))
        del per_byte["ALU"]
        what = " ".join(word for word in case if word not in ("compiled", "assign", "aligned", "plain"))
        print(f"| {code[0]}+{code[1]} {what} | {entry['element_bytes']} | {entry.get('rows_per_pass', '-' if case == TRANSFORM else 4)} | "
              f"{entry['registers']} | {entry['instructions']} | {shown} | {sum(per_byte.values()):.2f} | "
              f"{share:.2f} | {binding if share < 1 else 'memory'} |")  # fmt: skip


def main(program, folder, *options):
    library = nvrtc.find()
    if library is None:
        print("NOT RUN: no libnvrtc (it comes with the CUDA toolkit)")
        return 77
    whole = bool(options) or "TANDEM_TEST_ALL" in os.environ
    entries = measure_all(library, program, whole, (90,) if options else ARCHITECTURES)
    path = pathlib.Path(folder) / f"nvrtc-{library.version()}.json"
    if "--print" in options:
        print_table(entries)
        return 0
    if "--write" in options:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(rows.dumps(entries))
        print(f"{path}: {len(entries)} kernels")
        return 0

    failed = spills(library, program, whole) + above_limits(entries)
    for name, entry in entries.items():
        if int(name.split("+")[1].split()[0]) <= 8 and entry["spilled_bytes"] != 0:
            failed += 1
            print(f"{name}: {entry['spilled_bytes']} bytes spilled; none may be for m <= 8")
    if not path.exists():
        print(f"no table for NVRTC {library.version()} ({path} is missing): spills alone were checked")
        return 1 if failed else 0
    expected = json.loads(path.read_text())
    for name in sorted(entries.keys() | (expected.keys() if whole else set())):
        if name.endswith("sm_90") and (name not in entries or differs(expected.get(name), entries[name])):
            failed += 1
            print(f"{name}:\n  table {expected.get(name)}\n  now   {entries.get(name)}")
    print(f"NVRTC {library.version()}: {len(entries)} kernels, {failed} differ from {path.name} or spill")
    if failed:
        print(f"If that is as it should be: {sys.argv[0]} {program} {folder} --write")
    return 1 if failed else 0


sys.exit(main(*sys.argv[1:]))
