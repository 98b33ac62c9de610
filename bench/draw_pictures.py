#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of docs/pictures: throughput.svg, from bench/results; survives.svg, from a set that it makes and damages;
hybrid.svg, from simulations. Also writes the speeds in README.md and the tables in docs/performance.md. The same command gives
the same bytes on every machine; a test compares them.

    bench/draw_pictures.py TANDEM [-o FOLDER]      TANDEM: the command, build/bin/tandem, with tandem-bench beside it; FOLDER: in place of the repository"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import gantt
from gantt import FAINT, Svg

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA, PARITY, BAD, GONE = "#1f5fa8", "#c8863a", "#c0392b", "#e4e4e4"
CODES = ((4, 2), (10, 4), (16, 4), (20, 10), (32, 8), (64, 16), (128, 32))
PEERS = {"Tandem": DATA, "ISA-L": PARITY, "pyeclib": PARITY, "zfec": "#7a7a7a"}


# ---- throughput, from what was measured

def rate(entry):
    return entry["gb_per_second"]["median"]


def bars(svg, left, top, width, height, title, groups, peers):
    """groups: (label, {peer: (least, median, most) GB/s}). Ratios of the first peer to the second stand above."""
    highest = max(max(most for _, _, most in values.values()) for _, values in groups) * 1.12
    step = next(s for s in (5, 10, 20, 25, 50, 100) if highest / s <= 6)
    svg.text(left, top - 14, title, size=13)
    for mark in range(0, int(highest) + 1, step):
        y = top + height * (1 - mark / highest)
        svg.box(left, y, width, 0.6, "#dddddd")
        svg.text(left - 6, y + 4, str(mark), "end", FAINT, 10)
    each = width / len(groups)
    bar = each * 0.8 / len(peers)
    for number, (label, values) in enumerate(groups):
        x = left + each * (number + 0.1)
        for place, peer in enumerate(peers):
            least, median, most = (value / highest * height for value in values[peer])
            svg.box(x + place * bar, top + height - median, bar - 1.5, median, PEERS[peer], f"{label}, {peer}: {values[peer][1]:.2f} GB/s")
            if most > least:
                svg.box(x + place * bar + bar / 2 - 1.2, top + height - most, 1, most - least, "#333333")
        tallest = max(most for _, _, most in values.values()) / highest * height
        svg.text(x + each * 0.4, top + height - tallest - 5, f"{values[peers[0]][1] / values[peers[1]][1]:.2f}x", "middle", size=10)
        svg.text(x + each * 0.4, top + height + 15, label, "middle", size=10)


def legend(svg, x, y, entries):
    for label, color in entries:
        svg.box(x, y - 9, 10, 10, color)
        svg.text(x + 14, y, label, color=FAINT)
        x += 40 + 6.4 * len(label)


def throughput(folder):
    folder_of = ROOT / "bench/results/amd-epyc-zen5"
    encode = json.loads((folder_of / "encode.json").read_text())
    python = json.loads((folder_of / "python.json").read_text())
    groups = {True: [], False: []}
    for k, m in CODES:
        for result in encode["results"]:
            if (result["k"], result["m"], result["placement"]) == (k, m, "scattered"):
                groups[result["in_cache"]].append((f"{k}+{m}", {
                    peer: tuple(result[key]["gb_per_second"][which] for which in ("min", "median", "max"))
                    for peer, key in (("Tandem", "tandem"), ("ISA-L", "peer"))}))
    calls = []
    for each in python["seconds"]:
        data_bytes = python["k"] * each["shard_bytes"]
        label = next(f"{each['shard_bytes'] // unit} {name}" for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
                     if each["shard_bytes"] >= unit)
        rates = {"Tandem": "tandem_ec", "pyeclib": "pyeclib", "zfec": "zfec"}
        calls.append((label, {peer: (data_bytes / each["encode"][key] / 1e9,) * 3 for peer, key in rates.items()}))

    svg = Svg(1180, 420)
    svg.text(40, 28, "Encode, one thread, GB/s of data", size=16)
    svg.text(40, 46, f"AMD EPYC (Zen 5), kernel {encode['tandem']['kernel']}. The number is Tandem over the first peer.", color=FAINT)
    top, height = 112, 230
    bars(svg, 70, top, 330, height, "in cache (512 KiB a stripe)", groups[True], ("Tandem", "ISA-L"))
    bars(svg, 450, top, 330, height, "out of cache", groups[False], ("Tandem", "ISA-L"))
    bars(svg, 830, top, 320, height, "10+4 from Python, by bytes of a shard", calls, ("Tandem", "pyeclib", "zfec"))
    legend(svg, 70, top + height + 44, (("Tandem", DATA), (f"ISA-L {encode['peer']['version']}", PARITY)))
    legend(svg, 830, top + height + 44, (("tandem_ec", DATA), ("pyeclib isa_l_rs_cauchy", PARITY), ("zfec", PEERS["zfec"])))
    svg.text(40, 408, "bench/results/amd-epyc-zen5: encode.json (idle machine), python.json (machine in use by others). "
             "Each shard at a place of its own; medians with the least and the most, and the best of 100 rounds from Python.", color=FAINT, size=10)
    svg.write(folder / "throughput.svg")


# ---- how a set survives damage, from a set that is damaged here

K, M, STRIPES, BLOCK_BYTES = 6, 3, 40, 4096
LOST, CUT, CUT_FROM = 1, 7, 30
SPOTS = {0: (3, 4, 21), 2: (9, 33), 3: (14, 15, 16, 27), 4: (3, 22), 5: (35,), 6: (9, 28), 8: (5, 27, 38)}


def run(tandem, *arguments, status=0):
    done = subprocess.run([tandem, *map(str, arguments)], capture_output=True, text=True, env={**os.environ, "TANDEM_TUNING": ""})
    if done.returncode != status:
        sys.exit(f"draw_pictures.py: tandem {arguments[0]} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def damaged_blocks(tandem):
    """{shard: stripes with a bad block, as verify finds them}, of a set with the damage above. Repair and decode must succeed on it."""
    with tempfile.TemporaryDirectory() as work:
        source, shards = pathlib.Path(work, "file"), pathlib.Path(work, "shards")
        content = bytes(i * i % 251 for i in range(K * STRIPES * (BLOCK_BYTES - 16)))
        source.write_bytes(content)
        run(tandem, "encode", source, "-k", K, "-m", M, "-o", shards, "--block-bytes", BLOCK_BYTES, "--no-sync", "--quiet")

        def path(shard):
            return shards / f"file.{shard:03}.tandem"

        path(LOST).unlink()
        os.truncate(path(CUT), 4096 + CUT_FROM * BLOCK_BYTES)
        for shard, stripes in SPOTS.items():
            with open(path(shard), "r+b") as file:
                for stripe in stripes:
                    file.seek(4096 + stripe * BLOCK_BYTES + 77)
                    file.write(b"rot")
        report = json.loads(run(tandem, "verify", shards, "--json", status=1))
        if report["missing_shards"] != [LOST] or report["worst_bad_count"] > M:
            sys.exit(f"draw_pictures.py: unexpected damage: {report}")
        bad = {each["shard"]: {stripe for span in each["bad_blocks"] for stripe in range(span["first"], span["first"] + span["count"])}
               for each in report["damaged"]}
        run(tandem, "decode", shards, "-o", source.with_suffix(".copy"), "--quiet")
        if source.with_suffix(".copy").read_bytes() != content:
            sys.exit("draw_pictures.py: the decoded file differs")
        run(tandem, "repair", shards, "--quiet")
        run(tandem, "verify", shards, "--quiet")
    return bad


def survives(tandem, folder):
    bad = damaged_blocks(tandem)
    left, top, cell, row = 130, 84, 19, 24
    svg = Svg(left + STRIPES * cell + 190, top + (K + M) * row + 96)
    svg.text(20, 28, f"A {K}+{M} set with damage in every file: all of it can be repaired", size=16)
    svg.text(20, 48, f"A row is a shard file, a column a stripe. A stripe survives while at most {M} of its {K + M} blocks are bad or missing.",
             color=FAINT)
    for shard in range(K + M):
        y = top + shard * row
        svg.text(left - 10, y + 15, f"{'data' if shard < K else 'parity'} {shard}", "end")
        spots = bad.get(shard, set())
        for stripe in range(STRIPES):
            color = GONE if shard == LOST or shard == CUT and stripe >= CUT_FROM else BAD if stripe in spots \
                else DATA if shard < K else PARITY
            svg.box(left + stripe * cell, y, cell - 2, row - 5, color)
        what = "missing" if shard == LOST else "cut off" if shard == CUT else f"{len(spots)} damaged block{'s' * (len(spots) != 1)}"
        svg.text(left + STRIPES * cell + 10, y + 15, what, color=FAINT)
    y = top + (K + M) * row + 14
    svg.text(left - 10, y, "bad or missing", "end")
    for stripe in range(STRIPES):
        count = sum(shard == LOST or stripe in bad.get(shard, ()) for shard in range(K + M))
        svg.text(left + stripe * cell + (cell - 2) / 2, y, str(count), "middle", BAD if count == M else FAINT)
    svg.text(left + STRIPES * cell + 10, y, f"at most {M}: recoverable", color=FAINT)
    legend(svg, left, y + 42, (("data", DATA), ("parity", PARITY), ("damaged", BAD), ("missing", GONE)))
    svg.write(folder / "survives.svg")


# ---- a hybrid run, simulated

def hybrid(tandem, folder):
    with tempfile.TemporaryDirectory() as work:
        files = []
        for policy, name in (("budget", "budget (an idle worker takes a chunk)"), ("auto", "auto (Tandem)")):
            file = pathlib.Path(work, f"{name}.json")
            run(tandem, "simulate", "--worker", "cpu:4x0.3:latency=5us:jitter=0.1", "--worker", "gpu:1x6:latency=2ms:jitter=0.1", "--work",
                "256MiB", "--chunk", "16MiB", "--policy", policy, "--timeline", file, "--seed", 1)
            files.append(gantt.Trace(file))
        gantt.draw_svg(files, gantt.colors_of(files), max(trace.seconds for trace in files), folder / "hybrid.svg")


# ---- tables

PLACES = (("in cache", True, "contiguous"), ("out of cache, contiguous", False, "contiguous"), ("out of cache, scattered", False, "scattered"))


def table(machine, operation):
    run_ = json.loads((ROOT / f"bench/results/{machine}/{operation}.json").read_text())
    lines = ["| code | " + " | ".join(name for name, _, _ in PLACES) + " |", "|---|" + "---|" * len(PLACES)]
    for k, m in CODES:
        cells = []
        for _, in_cache, placement in PLACES:
            result, = (r for r in run_["results"]
                       if (r["k"], r["m"], r["in_cache"], r["placement"], r["odd"]) == (k, m, in_cache, placement, False))
            cells.append(f"{rate(result['tandem']):.1f} / {rate(result['peer']):.1f} = {result['over_peer']:.2f}")
        lines.append(f"| {k}+{m} | " + " | ".join(cells) + " |")
    return "\n".join(lines), run_


def with_tables(text, tables):
    return re.sub(r"(<!-- \w+: written by bench/draw_pictures.py -->\n).*?(<!-- end -->)",
                  lambda found: f"{found.group(1)}\n{tables}\n\n{found.group(2)}", text, flags=re.DOTALL)


def write_tables(folder):
    cached, scattered = re.search(r"^\| 10\+4 \| (.*?) = .*\| (.*?) = ", table("amd-epyc-zen5", "encode")[0], re.MULTILINE).groups()
    about = f"Encode 10+4 on one thread, GB/s of data, Tandem / ISA-L: {scattered} out of cache (scattered shards), {cached} in cache (AMD EPYC, Zen 5)."
    parts = []
    for name, machine in (("AMD EPYC (Zen 5)", "amd-epyc-zen5"), ("AMD EPYC (Zen 4)", "amd-epyc-zen4"), ("Intel Xeon (Emerald Rapids)", "intel-emerald-rapids"), ("Intel Xeon (Granite Rapids)", "intel-granite-rapids"),
                          ("Intel Xeon (Cascade Lake), no GFNI", "intel-cascade-lake")):
        for operation, what in (("encode", "encode"), ("decode", "decode of m lost data shards")):
            cells, run_ = table(machine, operation)
            parts.append(f"**{name}, {what}**, kernel {run_['tandem']['kernel']}, {run_['date'][:10]}:\n\n{cells}")
    for name, tables in (("README.md", about), ("docs/performance.md", "\n\n".join(parts))):
        text = with_tables((ROOT / name).read_text(), tables)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        print(folder / name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tandem", type=pathlib.Path)
    parser.add_argument("-o", "--output", type=pathlib.Path, default=ROOT, help="default: this repository")
    parsed = parser.parse_args()
    write_tables(parsed.output)
    pictures = parsed.output / "docs/pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    throughput(pictures)
    survives(parsed.tandem.resolve(), pictures)
    hybrid(parsed.tandem.resolve().with_name("tandem-bench"), pictures)


main()
