#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the machine code that a compiler makes from the generated kernels with a committed table, bench/results/compile.
No GPU is needed.

    compile_table_test.py COMPILER PRINT_KERNEL_TEXT TABLE_FOLDER             NOT RUN (status 77) if it is not installed
    compile_table_test.py COMPILER PRINT_KERNEL_TEXT TABLE_FOLDER --write     makes the table of this compiler anew
    compile_table_test.py nvrtc PRINT_KERNEL_TEXT TABLE_FOLDER --print        its table, sm_90, for docs/internals/CUDA.md

COMPILER: nvrtc (NVIDIA), clang (AMD: clang 19 with the device libraries of ROCm), ocloc (Intel: DG2 and PVC).
Registers, instructions and ALU operations may differ from the table by 2 %; nothing else may. The ALU operations of the
codes of LIMITS have their own limit.

The test compiles a slice: a few kernels that are always compiled, and a random choice of others. TANDEM_TEST_ALL=1 compiles
all; TANDEM_TEST_SEED=N repeats a slice.

The table of another version of a compiler says nothing about this one's machine code. Then only spills are checked, and the
test says so.
"""

import collections
import concurrent.futures
import json
import os
import pathlib
import random
import subprocess
import sys

import compilers

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import rows  # noqa: E402

COMPILED, ALIGNED = ("compiled", "assign", "aligned", "plain"), "aligned"
TRANSFORM = ("transform", "assign", "aligned", "plain")
# (k, m), technique, mode, access, loads; (64,16) and (128,32) take a compiler seconds.
CODES = ((1, 1), (4, 2), (6, 3), (8, 4), (10, 4), (12, 4), (16, 4), (3, 7), (20, 10), (32, 8), (64, 16))
CASES = [(code, COMPILED) for code in CODES]
CASES += [((10, 4), case) for case in (
    ("compiled", "accumulate", "aligned", "plain"), ("compiled", "compare", "aligned", "plain"),
    ("compiled", "assign", "shifted", "plain"), ("compiled", "compare", "shifted", "plain"),
    ("tables", "assign", "aligned", "plain"), ("tables", "compare", "shifted", "plain"))]  # fmt: skip
CASES += [((32, 8), ("compiled", "compare", "aligned", "plain"))]
LOADS = [((10, 4), case) for case in (
    ("compiled", "assign", "aligned", "streaming"), ("compiled", "accumulate", "aligned", "streaming"),
    ("compiled", "assign", "aligned", "async"), ("compiled", "compare", "aligned", "async"))]  # fmt: skip
LOADS += [((32, 8), ("compiled", "assign", "aligned", "async"))]
# (128, 32) takes a compiler seconds: one architecture, with TANDEM_TEST_ALL.
ONLY_ON_SM_90 = [((128, 32), COMPILED), ((16, 16), TRANSFORM), ((32, 16), TRANSFORM), ((50, 20), TRANSFORM), ((64, 16), TRANSFORM),
                 ((128, 32), TRANSFORM)]  # fmt: skip
ONLY_ON_SM_90 += [((32, 16), ("transform", *case, "plain")) for case in (
    ("accumulate", ALIGNED), ("compare", ALIGNED), ("assign", "shifted"), ("compare", "shifted"), ("batch", ALIGNED))]  # fmt: skip
# Where the matrix has 1.1 and 1.3 times as many operations (device/built_in.hpp).
BORDERS = [((20, 10), TRANSFORM), ((32, 8), TRANSFORM)]
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

# Of each compiler: [(code, case, target)], and what a slice always has.
ARCHITECTURES = tuple(f"sm_{number}" for number in (75, 80, 86, 89, 90, 100, 120))
WIDE = [((32, 8), TRANSFORM), ((32, 16), TRANSFORM), ((64, 16), TRANSFORM), ((32, 16), ("transform", "compare", "shifted", "plain"))]
OF = {
    "nvrtc": [(code, case, target) for code, case in CASES + LOADS for target in ARCHITECTURES if (case[3], target) != ("async", "sm_75")]
    + [(*each, "sm_90") for each in ONLY_ON_SM_90 + BORDERS],
    "clang": [(*each, target) for target in ("gfx90a", "gfx942", "gfx1100") for each in CASES + BATCHES + WIDE]
    + [((128, 32), TRANSFORM, "gfx942")],
    # 64+16 by transform spills: transform is not built in for Intel.
    "ocloc": [(*each, target) for target in ("dg2", "pvc") for each in CASES + BATCHES + WIDE + BORDERS[:1] if each != ((64, 16), TRANSFORM)],
}  # fmt: skip
ALWAYS = {
    "nvrtc": [(*each, "sm_90") for each in (((4, 2), COMPILED), ((10, 4), COMPILED), ((16, 4), COMPILED), ((64, 16), TRANSFORM))],
    "clang": [((20, 10), COMPILED, "gfx942"), ((32, 8), COMPILED, "gfx90a"), ((32, 8), COMPILED, "gfx1100"), ((64, 16), TRANSFORM, "gfx942")],
    "ocloc": [((32, 8), COMPILED, "pvc"), ((32, 8), ("compiled", "compare", "aligned", "plain"), "dg2")],
}  # fmt: skip
IN_A_SLICE = 6  # besides


def straight(stretches, count):
    """Names of the longest stretches without a branch: the passes, which all other code stands around."""
    return collections.Counter(name for stretch in sorted(stretches, key=len, reverse=True)[:count] for name in stretch)


def transform_tile(stretches, work_rows):
    """Names of what all rows of a work-group run for a tile, at most. One row alone transforms a group of inputs, which is a
    long stretch without memory, or a group of outputs, which ends with stores. All other code counts for each row."""
    total = collections.Counter()
    for stretch in stretches:
        names = collections.Counter(stretch)
        is_group = names["STG"] or (len(stretch) > 100 and not names["LDG"] and not names["LDS"] and not names["STS"])
        for name, count in names.items():
            total[name] += count * (1 if is_group else work_rows)
    return total


def measure(compiler, program, code, case, target):
    (k, m), (technique, mode, access, loads) = code, case
    cuda = target.startswith("sm_")
    tuning = ("16", "4") if technique == "tables" and cuda else ("0", "0")
    text = subprocess.run([program, str(k), str(m), *tuning, *case, compiler.words(target)],
                          check=True, capture_output=True).stdout  # fmt: skip
    element, pass_rows = (int(word) for word in text.split(b"\n", 1)[0].split()[1:])
    facts, stretches = compiler.compile(text, target)
    entry = {"element_bytes": element, **facts}
    if technique == "compiled":
        entry["rows_per_pass"] = pass_rows
    if not stretches or mode not in ("assign", "batch") or access != ALIGNED:
        return entry
    if technique == "transform" and mode == "assign":
        found, data_bytes = transform_tile(stretches, TRANSFORM_ROWS), 32 * k
    elif technique != "transform":
        # Tables: one column a turn of the loop. Compiled: all columns.
        passes = 1 if technique == "tables" else -(-m // pass_rows)
        found, data_bytes = straight(stretches, passes), element * (1 if technique == "tables" else k)
    else:
        return entry
    entry["per_data_byte"] = {name: round(number / data_bytes, 3) for name, number in sorted(found.items())}
    return entry


def name_of(code, case, target):
    return f"{code[0]}+{code[1]} {' '.join(case)} {target}"


def measure_all(compiler, program, todo):
    todo = sorted(todo, key=lambda each: -each[0][0] * each[0][1])  # the longest first
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        entries = pool.map(lambda each: measure(compiler, program, *each), todo)
        return dict(sorted(zip((name_of(*each) for each in todo), entries)))


def chance(name):
    seed = int(os.environ.get("TANDEM_TEST_SEED", random.randrange(2**32)))
    print(f"{name} seed {seed}")
    return random.Random(seed)


def slice_of(name):
    quick = [each for each in OF[name] if each[0][0] * each[0][1] < 1000]
    return {*ALWAYS[name], *chance("slice").sample(quick, IN_A_SLICE)}


def spills(compiler, program, whole):
    """How many of SHAPES and BATCHES spill or take too many registers with the built-in tuning, on sm_90."""
    shapes = [(code, COMPILED) for code in SHAPES] + BATCHES
    if not whole:
        some = chance("shapes")
        quick = [code for code in SHAPES if code[0] * code[1] <= 512]
        shapes = [(code, COMPILED) for code in some.sample(quick, 4)] + some.sample(BATCHES, 2)
    entries = measure_all(compiler, program, [(*each, "sm_90") for each in shapes])
    bad = {name: entry for name, entry in entries.items() if entry["spilled_bytes"] != 0 or entry["registers"] > MOST_REGISTERS}
    for name, entry in bad.items():
        print(f"{name}: {entry['registers']} registers, {entry['spilled_bytes']} bytes spilled")
    print(f"built-in tuning: {len(shapes)} shapes, {max(entry['registers'] for entry in entries.values())} registers at most")
    return len(bad)


def alu(entry):
    names = ("VALU",) if "waves" in entry else compilers.Nvidia.ALU
    return sum(entry.get("per_data_byte", {}).get(name, 0) for name in names)


def differs(expected, entry):
    """Whether a kernel is another one than the table's."""
    if expected is None:
        return True

    def exact(each):
        return {name: value for name, value in each.items() if name not in ("registers", "instructions", "per_data_byte")}

    counts = [(of["registers"], of.get("instructions", 0), alu(of)) for of in (expected, entry)]
    return exact(expected) != exact(entry) or any(abs(a - b) > TOLERANCE * a for a, b in zip(*counts))


def above_limits(entries):
    bad = [(each, round(alu(entry), 3)) for each in LIMITS
           if (entry := entries.get(name_of(*each, "sm_90"))) and alu(entry) > LIMITS[each] * (1 + TOLERANCE)]  # fmt: skip
    for each, operations in bad:
        print(f"{name_of(*each, 'sm_90')}: {operations} ALU operations per data byte, {LIMITS[each]} is the limit")
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
    for code, case in CASES + LOADS + ONLY_ON_SM_90 + BORDERS:
        entry = entries[name_of(code, case, "sm_90")]
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


def main(name, program, folder, *options):
    compiler = compilers.COMPILERS[name].find()
    if compiler is None:
        print(f"NOT RUN: {compilers.COMPILERS[name].MISSING}")
        return 77
    whole = bool(options) or "TANDEM_TEST_ALL" in os.environ
    pinned = [each for each in OF[name] if name != "nvrtc" or each[2] == "sm_90"]  # others: spills alone
    todo = pinned if options else OF[name] if whole else slice_of(name)
    entries = measure_all(compiler, program, [each for each in todo if each[2] in compiler.known])
    path = pathlib.Path(folder) / f"{compiler.table}.json"
    if "--print" in options:
        print_table(entries)
        return 0
    if "--write" in options:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(rows.dumps(entries))
        print(f"{path}: {len(entries)} kernels")
        return 0

    failed = spills(compiler, program, whole) + above_limits(entries) if name == "nvrtc" else 0
    for each, entry in entries.items():
        if (name != "nvrtc" or int(each.split("+")[1].split()[0]) <= 8) and entry["spilled_bytes"] != 0:
            failed += 1
            print(f"{each}: {entry['spilled_bytes']} bytes spilled; none may be")
    if not path.exists():
        print(f"no table of {compiler.table} ({path} is missing): spills alone were checked")
        return 1 if failed else 0
    expected = json.loads(path.read_text())
    of_table = {name_of(*each) for each in pinned}
    for each in sorted((entries.keys() | (expected.keys() if whole else set())) & (of_table | expected.keys())):
        if each not in entries or differs(expected.get(each), entries[each]):
            failed += 1
            print(f"{each}:\n  table {expected.get(each)}\n  now   {entries.get(each)}")
    print(f"{compiler.table}: {len(entries)} kernels, {failed} differ from {path.name} or spill")
    if failed:
        print(f"If that is as it should be: {sys.argv[0]} {name} {program} {folder} --write")
    return 1 if failed else 0


sys.exit(main(*sys.argv[1:]))
