#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `tandem-bench run` over the project's speed targets and prints each target beside the measurement.

    bench/table.py --bench build/bin/tandem-bench [--peer libisal.so] [--clock cpu] -o FOLDER
    bench/table.py --read FOLDER         the table again, from stored results

Stores one JSON file per run and the two tables, table.md, in FOLDER. A missed target is a line of the table, not an
error: speed depends on the machine.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys

IN_CACHE, OUT_OF_CACHE = 512 << 10, 4 << 20
SMALL_SHARDS = [64, 128, 256, 512, 1024, 1500, 4096]

# GB/s of klauspost/reedsolomon, one goroutine, working set of 512 KiB, on one core of a Zen 5. This script did not measure
# them; they are from another machine. Its hand-written kernels end at k, m <= 10.
KLAUSPOST_ZEN5 = {(6, 3): 97, (8, 4): 81, (10, 4): 78, (10, 8): 39}

SIZES = ["--size", "512KiB,4MiB"]
CODES = ["--code", "all"]
# One to three rows in cache, which hang most on where the shards lie.
NARROW = ["--code", "4+1,8+1,16+1,8+2,6+3,8+3", "--shard-bytes", "128,256,512,1500,4KiB,16KiB,64KiB",
          "--placement", "contiguous,scattered,page-aligned,malloc"]
RUNS = {
    "encode": [*CODES, *SIZES, "--placement", "contiguous,scattered,page-aligned"],
    "encode-odd": [*CODES, *SIZES, "--placement", "contiguous,scattered", "--odd"],
    "decode": ["--operation", "decode", *CODES, *SIZES, "--placement", "contiguous,scattered,page-aligned"],
    "avx512": [*CODES, "--size", "512KiB", "--kernel", "avx512", "--peer-function", "ec_encode_data_avx512"],
    "avx2-gfni": [*CODES, "--size", "512KiB", "--kernel", "avx2-gfni", "--peer-function", "ec_encode_data_avx2_gfni"],
    "avx2": [*CODES, "--size", "512KiB", "--kernel", "avx2", "--peer-function", "ec_encode_data_avx2"],
    "small": ["--code", "10+4", "--shard-bytes", ",".join(map(str, SMALL_SHARDS))],
    "setup": ["--operation", "decode-setup", "--code", "10+4,32+8,128+32", "--matrix", "isal-cauchy,backblaze"],
    "threads": [*CODES, *SIZES, "--threads", "0"],
    "calls": ["--code", "10+4,20+10", "--size", "256KiB,512KiB,1MiB,4MiB,8MiB,16MiB", "--threads", "0"],
    "five-six": ["--code", "8+5,10+5,8+6,10+6", "--size", "512KiB"],
    "narrow": NARROW,
    "narrow-decode": ["--operation", "decode", *NARROW],
    "same-sets": ["--code", "128+32", "--shard-bytes", "2MiB", "--placement", "contiguous,scattered"],
}

# x ISA-L for wide codes, one thread: encode in cache and out of cache (contiguous), and the same for decode of m lost
# shards. None: no target. They were set for a Zen 4, which multiplies 64 bytes a cycle; a Zen 5 multiplies 128.
WIDE = {
    (10, 8): ((1.3, 2.0), (None, None)),
    (20, 10): ((1.5, 3.0), (1.5, 2.6)),
    (32, 8): ((2.1, 2.5), (1.4, 2.9)),
    (32, 32): ((2.6, 3.2), (1.8, None)),
    (64, 16): ((2.9, 4.0), (1.7, 1.9)),
    (128, 32): ((4.6, 4.5), (2.4, 2.8)),
}
# Of the roof, encode out of cache, contiguous. Other codes with m <= 10: 0.9.
WIDE_ROOF = {(32, 8): 0.6, (64, 16): 0.6}


def run_all(arguments):
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name, flags in RUNS.items():
        if arguments.only and name not in arguments.only:
            continue
        # Threads are measured by the wall clock: the time of one thread says nothing about the others.
        clock = "wall" if name == "threads" else arguments.clock
        path = arguments.output / f"{name}.json"
        command = [str(arguments.bench), "run", *flags, "--clock", clock, "--repeats", str(arguments.repeats),
                   "--seconds", str(arguments.seconds), "-o", str(path)]
        if arguments.peer:
            command += ["--peer", arguments.peer]
        print("$ " + " ".join(command), file=sys.stderr, flush=True)
        if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
            print(f"table.py: run {name} failed; its rows are left out", file=sys.stderr)


def geometric_mean(values):
    return math.exp(sum(math.log(value) for value in values) / len(values))


def code(result):
    return f"{result['k']}+{result['m']}"


class Table:
    def __init__(self, runs):
        self.runs = runs
        self.rows = []

    def results(self, run, size=None, placement=None, where=lambda result: True):
        return [result for result in self.runs.get(run, {"results": []})["results"]
                if (size is None or result["size_bytes"] == size)
                and (placement is None or result["placement"] == placement) and where(result)]

    def add(self, case, target, measured, met):
        self.rows.append((case, target, measured, "yes" if met else "**no**"))

    def ratios(self, case, results, least, mean=None, key="over_peer", name=code):
        """Every ratio at least `least`, and their geometric mean at least `mean`."""
        results = [result for result in results if key in result]
        if not results:
            return
        values = [result[key] for result in results]
        missed = [f"{name(result)} {result[key]:.2f}" for result in results if result[key] < least]
        average = geometric_mean(values)
        target = f">= {least:g}" + (f", mean >= {mean:g}" if mean else "")
        measured = f"{min(values):.2f} to {max(values):.2f}, mean {average:.2f}"
        if missed:
            measured += "; below: " + ", ".join(missed)
        self.add(case, target, measured, not missed and (mean is None or average >= mean))

    def coding(self, run, label):
        few, many = (lambda r: r["m"] <= 4), (lambda r: r["m"] >= 8)
        narrow, wide = (lambda r: few(r) and r["k"] <= 10), (lambda r: few(r) and r["k"] >= 12)
        for placement in ("contiguous", "scattered"):
            # In cache, the targets of a row hold for every placement of the shards.
            self.ratios(f"{label}, in cache, {placement}, m <= 4: x ISA-L", self.results(run, IN_CACHE, placement, few),
                        1.15, 1.3)
            if placement == "scattered":
                self.ratios(f"{label}, in cache, scattered, m >= 8: x ISA-L",
                            self.results(run, IN_CACHE, placement, many), 1.4)
        self.ratios(f"{label}, out of cache, contiguous, m <= 4: x ISA-L",
                    self.results(run, OUT_OF_CACHE, "contiguous", few), 1.7)
        for size, where in ((IN_CACHE, "in cache"), (OUT_OF_CACHE, "out of cache")):
            for km, targets in WIDE.items():
                least = targets[run == "decode"][size == OUT_OF_CACHE]
                if least is not None:
                    self.ratios(f"{label}, {where}, contiguous, {km[0]}+{km[1]}: x ISA-L",
                                self.results(run, size, "contiguous", lambda r: (r["k"], r["m"]) == km), least)
        self.ratios(f"{label}, out of cache, scattered, k <= 10, m <= 4: x ISA-L",
                    self.results(run, OUT_OF_CACHE, "scattered", narrow), 1.1)
        self.ratios(f"{label}, out of cache, scattered, k >= 12, m <= 4: x ISA-L",
                    self.results(run, OUT_OF_CACHE, "scattered", wide), 1.7)
        self.ratios(f"{label}, out of cache, scattered, m >= 8: x ISA-L",
                    self.results(run, OUT_OF_CACHE, "scattered", many), 2)
        for size, where in ((IN_CACHE, "in cache"), (OUT_OF_CACHE, "out of cache")):
            self.ratios(f"{label}, 4 KiB-aligned, {where}: x ISA-L", self.results(run, size, "page-aligned"), 1)
        for placement in ("contiguous", "scattered"):
            self.ratios(f"{label}, out of cache, {placement}, m <= 10: of the roof",
                        self.results(run, OUT_OF_CACHE, placement,
                                     lambda r: r["m"] <= 10 and (r["k"], r["m"]) not in WIDE_ROOF), 0.9, key="of_roof")
        for km, least in WIDE_ROOF.items() if run == "encode" else ():
            self.ratios(f"{label}, out of cache, contiguous, {km[0]}+{km[1]}: of the roof",
                        self.results(run, OUT_OF_CACHE, "contiguous", lambda r: (r["k"], r["m"]) == km), least, key="of_roof")

    def narrow(self):
        place = lambda result: f"{code(result)} {result['shard_bytes']} B {result['placement']}"
        rate = lambda result: result["tandem"]["gb_per_second"]["median"]
        for run, label in (("narrow", "encode"), ("narrow-decode", "decode")):
            label += ", one to three rows, shards"
            self.ratios(f"{label} below 1 KiB: x ISA-L", self.results(run, where=lambda r: r["shard_bytes"] < 1024), 0.9,
                        name=place)
            self.ratios(f"{label} from 1 KiB on: x ISA-L", self.results(run, where=lambda r: r["shard_bytes"] >= 1024),
                        0.95, name=place)
            cases = {}
            for result in self.results(run, where=lambda r: r["shard_bytes"] >= 4096):
                cases.setdefault((code(result), result["shard_bytes"]), []).append(result)
            slowest = [min(places, key=rate) | {"of_best": min(map(rate, places)) / max(map(rate, places))}
                       for places in cases.values()]
            self.ratios(f"{label} from 4 KiB on: worst placement, x the best", slowest, 0.9, key="of_best", name=place)

    def small(self):
        for result in self.results("small", where=lambda r: "peer" in r):
            own, peer = (result[who]["seconds_per_call"]["median"] * 1e9 for who in ("tandem", "peer"))
            size = result["shard_bytes"]
            target, met = ("<= 30", own <= 30) if size == 64 else ("<= ISA-L", own <= peer)
            self.add(f"10+4, {size} B shards: ns a call", target, f"{own:.0f} (ISA-L {peer:.0f})", met)

    def setup(self):
        limits = {(10, 4): 0.5, (32, 8): 4, (128, 32): 80}
        for result in self.results("setup"):
            own = result["tandem"]["seconds_per_call"]["median"] * 1e6
            limit = limits.get((result["k"], result["m"]))
            peer = result.get("peer", {}).get("seconds_per_call", {}).get("median")
            self.add(f"decode set-up, {result['matrix']}, {code(result)}: microseconds",
                     "-" if limit is None else f"<= {limit:g}",
                     f"{own:.2f}" + (f" (ISA-L {peer * 1e6:.2f})" if peer else ""), limit is None or own <= limit)

    def threads(self):
        results = self.results("threads", where=lambda r: "scaling" in r)
        cached = [result for result in results if result["in_cache"]]
        for result in cached:
            result["of_registers"] = result["scaling"]["tandem"] / result["scaling"]["registers"]
        count = self.runs.get("threads", {"tandem": {"threads": 0}})["tandem"]["threads"]
        self.ratios(f"{count} threads, in cache: scaling over that of a loop in registers", cached, 0.9,
                    key="of_registers")
        self.ratios(f"{count} threads, out of cache, m <= 10: of the roof",
                    [result for result in results if not result["in_cache"] and result["m"] <= 10], 0.9, key="of_roof")

    def calls(self):
        """Calls of 0.5 to 16 MiB on all threads, compared with one thread that does the share of one thread. The peer's
        threads wait for nothing."""
        results = self.results("calls", where=lambda r: "scaling" in r)
        for result in results:
            result["times_one"] = result["scaling"]["tandem"]
        count = self.runs.get("calls", {"tandem": {"threads": 0}})["tandem"]["threads"]
        for size in sorted({result["size_bytes"] for result in results}):
            of_size = [result for result in results if result["size_bytes"] == size]
            in_cache = of_size[0]["in_cache"]
            label = f"{count} threads, calls of {size / 2**20:g} MiB, {'in' if in_cache else 'out of'} cache"
            self.ratios(f"{label}: x one thread", of_size, 1.6 if in_cache else 1, key="times_one")
            if not in_cache:
                self.ratios(f"{label}: of the roof", of_size, 0.7, key="of_roof")
            elif size >= count << 19:
                self.ratios(f"{label}: x ISA-L on as many free threads", of_size, 1)

    def same_sets(self):
        """Shards that start on the same cache sets, compared with the roof and with shards at random places."""
        self.ratios("12+4, page-aligned, out of cache: of the roof",
                    self.results("encode", OUT_OF_CACHE, "page-aligned", lambda r: (r["k"], r["m"]) == (12, 4)), 0.9,
                    key="of_roof")
        for run, bad, size in (("encode", "page-aligned", IN_CACHE), ("encode", "page-aligned", OUT_OF_CACHE),
                               ("same-sets", "contiguous", None)):
            for result in self.results(run, size, bad, lambda r: run == "same-sets" or (r["k"], r["m"]) == (32, 32)):
                for other in self.results(run, size, "scattered", lambda r: code(r) == code(result)):
                    rate, free = (each["tandem"]["gb_per_second"]["median"] for each in (result, other))
                    self.add(f"{code(result)}, shards of {result['shard_bytes'] >> 10} KiB on the same sets: "
                             "x scattered shards", ">= 0.9", f"{rate / free:.2f}", rate >= 0.9 * free)

    def build(self):
        self.coding("encode", "encode")
        self.ratios("encode, in cache, m = 5 and 6: x ISA-L", self.results("five-six"), 1.15)
        self.same_sets()
        for size, where in ((IN_CACHE, "in cache"), (OUT_OF_CACHE, "out of cache")):
            for placement in ("contiguous", "scattered"):
                self.ratios(f"encode, odd lengths and addresses, {where}, {placement}: x ISA-L",
                            self.results("encode-odd", size, placement), 1)
        self.coding("decode", "decode")
        for run, label, least, mean in (("avx512", "AVX-512 without GFNI", 0.9, 1.3),
                                        ("avx2-gfni", "AVX2 and GFNI", 0.9, 1.0), ("avx2", "AVX2", 0.9, 1.0)):
            self.ratios(f"{label}, in cache: x ISA-L's of the class", self.results(run), least, mean)
        self.narrow()
        self.small()
        self.setup()
        self.threads()
        self.calls()
        return markdown(("case", "target", "measured", "met"), self.rows)

    def codes(self):
        """GB/s per code: Tandem / ISA-L (ratio), by place."""
        places = [(IN_CACHE, "contiguous"), (OUT_OF_CACHE, "contiguous"), (OUT_OF_CACHE, "scattered")]
        rows = []
        for first in self.results("encode", *places[0]):
            km = (first["k"], first["m"])
            row = [code(first)]
            for size, placement in places:
                for result in self.results("encode", size, placement, lambda r: (r["k"], r["m"]) == km):
                    own = result["tandem"]["gb_per_second"]["median"]
                    text = f"{own:.1f}"
                    if "peer" in result:
                        text += f" / {result['peer']['gb_per_second']['median']:.1f} = {result['over_peer']:.2f}"
                    row.append(text + f", {result['of_roof'] * 100:.0f} %")
            row.append(str(KLAUSPOST_ZEN5.get(km, "-")))
            rows.append(row)
        return markdown(("code", "in cache: GB/s, Tandem / ISA-L, of the roof", "out of cache, contiguous",
                         "out of cache, scattered", "klauspost on a Zen 5, in cache"), rows)


def markdown(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def heading(runs):
    run = next(iter(runs.values()))
    machine, tandem, peer, settings = run["machine"], run["tandem"], run["peer"], run["settings"]
    peer_text = "no peer" if peer is None else f"peer ISA-L {peer['version'] or os.path.basename(peer['path'])}"
    return (f"{machine['cpu']}, {machine['cores']} cores, L2 {machine['l2_bytes'] >> 10} KiB, {machine['system']}; "
            f"Tandem {tandem['version']}, kernel {tandem['kernel']}; {peer_text}; medians of {settings['repeats']} "
            f"alternating repeats, {settings['clock']} clock; {run['date'][:10]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bench", type=pathlib.Path, default=pathlib.Path("build/bin/tandem-bench"))
    parser.add_argument("--peer", help="as for tandem-bench run")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--repeats", type=int, default=51)
    parser.add_argument("--seconds", type=float, default=0.25)
    parser.add_argument("--only", action="append", choices=RUNS, help="only this run (repeatable)")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="folder for the results")
    parser.add_argument("--read", type=pathlib.Path, metavar="FOLDER", help="measure nothing")
    arguments = parser.parse_args()
    if (arguments.read is None) == (arguments.output is None):
        parser.error("give either -o FOLDER or --read FOLDER")
    if arguments.output is not None:
        run_all(arguments)
    folder = arguments.read or arguments.output
    runs = {name: json.loads((folder / f"{name}.json").read_text())
            for name in RUNS if (folder / f"{name}.json").exists()}
    if not runs:
        sys.exit(f"table.py: no results in {folder}")
    table = Table(runs)
    text = "\n\n".join([heading(runs), table.build(), table.codes()]) + "\n"
    print(text)
    if arguments.output is not None:
        (folder / "table.md").write_text(text)


if __name__ == "__main__":
    main()
