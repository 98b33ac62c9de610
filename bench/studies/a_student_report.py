#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Study A: parallel Reed-Solomon with pthreads and OpenMP (student report, 2015).

The contenders multiply one element at a time (product.cpp). "naive, whole matrix" multiplies the identity rows too, like the
report; "naive, parity rows" omits them."""
import concurrent.futures
import math
import os
import re

import study as st

K, M = 1000, 10  # the report's code: possible in GF(2^16)
PRODUCT = "study_product"
FASTEST = f"the fastest of {st.PASSES} passes over all points"
# Table 1 of the report: columns N, file sizes in MB, threads. Three cells do not follow its own rule.
TABLE_1 = {1000: {4: 1, 40: 10, 100: 25, 400: 100}, 2000: {4: 1, 40: 5, 100: 13, 400: 50},
           5000: {4: 1, 40: 3, 100: 5, 400: 25}, 10000: {4: 1, 40: 1, 100: 3, 400: 13}}
ELEMENT_BYTES = 4  # the report's rule: 4 MB for 1000 shards of N = 1000 elements
# The report names no field. 1000 + 10 shards need GF(2^16), and 512 KiB of tables. GF(2^8) has 64 KiB; a product of this shape is no erasure
# code there, and the order of loops needs none.
FIELDS = {"GF(2^16), 1000 + 10": {"field": 16, "k": K, "m": M}, "GF(2^8), 1000 + 10": {"field": 8, "k": K, "m": M}}


def seconds(study, repeats=3, **settings):
    return st.median(study.contender(PRODUCT, repeats=study.pick(1, repeats, repeats), **settings)["seconds"])


def processor_seconds(study, repeats=3, **settings):
    """Processor time of one thread, so that other programs do not count."""
    return st.median(study.contender(PRODUCT, repeats=study.pick(1, repeats, repeats), **settings)["cpu_seconds"])


def profile(study):
    """Figure 7: instructions by function, from callgrind."""
    valgrind = study.tool("valgrind", "valgrind")
    annotate = study.tool("callgrind_annotate", "valgrind")
    rounds = study.pick(1, 4, 4)

    def counted(way, rows, count):
        out = study.work / "callgrind.out"
        study.command(valgrind, "--tool=callgrind", f"--callgrind-out-file={out}",
                      *study.contender_command(PRODUCT, field=8, k=64, m=10, shard_bytes=study.pick(64, 1000, 2000), way=way,
                                               rows=rows, rounds=count))
        found = {}
        for line in study.command(annotate, "--threshold=100", out).splitlines():
            match = re.match(r"\s*([\d,]+) \([\s\d.]+%\)\s+(.*)", line)
            if match:
                name = "product" if "::product_" in match[2] else "kernel" if "::run_block" in match[2] or "::run_part" in match[2] else "other"
                if "PROGRAM TOTALS" not in match[2]:
                    found[name] = found.get(name, 0) + int(match[1].replace(",", ""))
        return found

    shares = {}
    for label, way, kind, inner in (("naive, whole matrix", "sequential", "whole", "product"),
                                    ("Tandem, serial", "tandem-serial", "parity", "kernel")):
        # Both counts contain start-up and checks; the difference does not.
        short, long = counted(way, kind, rounds), counted(way, kind, 3 * rounds)
        delta = {name: long.get(name, 0) - short.get(name, 0) for name in long}
        total = sum(delta.values())
        shares[label] = 100 * delta.get(inner, 0) / total
    naive, tandem = shares.values()
    study.claim("Most of the time is the multiplication (figure 7)", "87.6 % in one line, 95 % in its function",
                f"{naive:.1f} % of the instructions; of Tandem's serial code {tandem:.1f} % is its kernel", naive > 50,
                "The report counts by time (gprof). Instructions, not time: callgrind counts them exactly on any machine.")


def orders(study):
    """Figures 8 to 14, with elements of 4 bytes."""
    sizes = study.pick([100, 10000], [500, 1000, 2000, 5000, 10000, 20000], [500, 1000, 2000, 5000, 10000, 20000, 40000])
    at, cores = 10000, st.core_count()  # where the report sees its 3x
    gains = {}
    for number, (code, settings) in enumerate(FIELDS.items()):
        shape = {**settings, "k": study.pick(20, settings["k"], settings["k"]), "element_bytes": ELEMENT_BYTES}
        def measure(label, n, shape=shape):
            name, many = label.split(": ") if ": " in label else (label, "")
            measured = {"repeats": 2, "shard_bytes": ELEMENT_BYTES * n, "order": name.replace(",", ""), **shape}
            return seconds(study, way="pool", threads=cores, **measured) if many else processor_seconds(study, **measured)

        together = {label: f"{label}: {cores} threads" for label in ("i,k,j", "transposed")}
        series = study.lines({label: sizes for label in ("i,j,k", "i,k,j", "transposed", *together.values())}, measure)
        study.possible(series, measure, [(alone, many, cores) for alone, many in together.items()])
        gains[code] = [(n, slow / fast) for (n, slow), (_, fast) in zip(series["i,j,k"], series["i,k,j"])]
        suffix = "" if number == 0 else "-gf8"
        study.figure(f"figure-12{suffix}", f"Figures 8 to 12: loop orders, {code}, elements of {ELEMENT_BYTES} bytes, parity rows",
                     "N: elements of a shard in a round", "processor seconds a round", list(series.items())[:3], log_x=True, log_y=True,
                     note=f"One thread; {FASTEST}. The transposition itself is part of the third line's time.")
        change = dict(series["i,k,j"])[at] / dict(series["transposed"])[at]
        study.claim(f"Sequential, {code}: no gain by transposition", "no visible improvement", f"{change:.2f}x at N = {at}",
                    st.no_faster(change), "The time includes the transposition.", timed=True)
        study.figure(f"figure-14{suffix}", f"Figures 13, 14: the transposed data matrix, {code}", "N: elements of a shard in a round",
                     "seconds a round: of a processor (one thread), elapsed (several)", list(series.items())[1:], log_x=True, log_y=True,
                     note="One thread: processor seconds, without waits. Several threads: elapsed seconds. So one line over the other is at most the speed-up.")
        before, after = (dict(series[label])[at] for label in together.values())
        study.claim(f"Parallel, {code}: a gain by transposition", "better speedup", f"{before / after:.2f}x at N = {at}", st.faster(before / after),
                    f"{cores} threads; the transposition is sequential. The report has 8 cores.", timed=True)
    study.figure("figure-12-gain", "Figure 12 as a speed-up: order i,k,j over i,j,k", "N: elements of a shard in a round",
                 "times as fast", list(gains.items()), log_x=True, marks=[("the report: 3x", 3)])
    judge_gains(study, gains, at)


def judge_gains(study, gains, at):
    """By the gains of each field: N, times as fast. at: the N where the report sees its 3x."""
    for code, points in gains.items():
        gain, most = dict(points)[at], max(points, key=lambda point: point[1])
        study.claim(f"Cache awareness (i,k,j in place of i,j,k), {code}", "3x",
                    f"{gain:.2f}x at N = {at}; {min(value for _, value in points):.2f}x to {most[1]:.2f}x (N = {most[0]})", st.reaches(gain, "3"),
                    "Both loops keep all pointers in registers. The larger the tables of the field, the less the order of the data matters.",
                    timed=True)
        study.claim(f"Cache awareness, {code}: where it shows most", f"most clearly at N = {at}", f"{most[1]:.2f}x at N = {most[0]}; {gain:.2f}x at N = {at}",
                    st.alike(gain, most[1]), f"It holds if the gain there is within {100 * st.LIMIT['alike']:.0f} % of the greatest. The report's caches are others.", timed=True)


def misses(study):
    """The same, counted by cachegrind: first-level misses of a cache like the report's."""
    valgrind = study.tool("valgrind", "valgrind")
    n, k = study.pick(64, 2000, 4000), study.pick(20, 1000, 1000)

    def counted(order, rounds):
        command = study.contender_command(PRODUCT, field=16, k=k, m=M, shard_bytes=ELEMENT_BYTES * n, element_bytes=ELEMENT_BYTES,
                                          order=order, rounds=rounds)
        text = study.command(valgrind, "--tool=cachegrind", "--cache-sim=yes", "--D1=32768,8,64", "--LL=8388608,16,64",
                             f"--cachegrind-out-file={os.devnull}", *command, errors=True)
        return int(re.search(r"D1\s+misses:\s+([\d,]+)", text)[1].replace(",", ""))

    counts = {order: counted(order, 2) - counted(order, 1) for order in ("ijk", "ikj", "transposed")}
    study.figure("d1-misses", f"First-level data misses of a round, {k} + {M}, N = {n} (cachegrind)", "loop order",
                 "misses", [("32 KiB, 8 ways", list(counts.items()))], kind="bars",
                 note=f"Elements of {ELEMENT_BYTES} bytes, GF(2^16). cachegrind simulates 32 KiB of first-level and 8 MiB of last-level cache. Counted for one round.")
    gain = counts["ijk"] / max(1, counts["ikj"])
    study.claim("Order i,k,j avoids cache misses", "reduces cache thrashing", f"{gain:.1f} times fewer first-level misses", st.faster(gain),
                "Counted by cachegrind, not timed.")


def crossover(points, faster):
    """The smallest x from which the second line stays below the first; None if there is none."""
    first = None
    for (x, slow), (_, fast) in zip(points, faster):
        first = (x if first is None else first) if fast < slow else None
    return first


def disks(study):
    """Figure 15. It needs an idle machine: `run.py A --part figure-15` measures it alone."""
    cores = st.core_count()
    counts = study.pick([4, 6], [4, 6, 8, 10, 12, 14, 16, 20, 24, 32, 48, 64], [4, 6, 8, 10, 12, 14, 16, 20, 24, 32, 48, 64])
    n = study.pick(100, 4000, 4000)
    ways = {"sequential": "sequential", f"{cores} pthreads, made each round": "spawn",
            f"OpenMP static, {cores} threads": "openmp-static", f"Tandem, {cores} threads": "tandem-pthread"}
    rounds = study.pick(1, 4, 16)
    def measure(label, count):
        return seconds(study, field=8, k=count - 2, m=2, shard_bytes=n, way=ways[label], rows="whole", threads=cores, rounds=rounds) / rounds

    series = study.lines({label: counts for label in ways}, measure)
    names = list(series)
    study.possible(series, measure, [(names[0], name, cores) for name in names[1:] if "Tandem" not in name])
    study.figure("figure-15", f"Figure 15: number of disks (two of them parity), {n} bytes a disk, naive, whole matrix",
                 "disks", "seconds a round", list(series.items()), log_y=True,
                 note=f"Tandem computes the two parity rows; the others multiply the identity rows too. {FASTEST.capitalize()}.")
    at = crossover(series[names[0]], series[names[1]])
    study.claim("pthreads win from some number of disks on (figure 15)", "14", "no crossover" if at is None else f"from {at} disks on",
                st.is_place(at, 14),
                "The place of the crossover is the price of making threads over the work of a round: it moves with both.", timed=True)


def file_sizes(study):
    """Figure 16."""
    cores = st.core_count()
    k, m = 10, 4
    sizes = study.pick([1], [4, 40, 100], [4, 40, 100, 400, 1000])
    path = study.work / "file"
    with open(path, "wb") as file:
        for _ in range(sizes[-1]):
            file.write(os.urandom(1_000_000))
    os.sync()
    # Way, and MB of a round: Table 1 has rounds of 4 MB (N = 1000) to 40 MB (N = 10000).
    ways = {"sequential": ("sequential", 4), f"{cores} pthreads, rounds of 4 MB": ("spawn", 4), f"{cores} pthreads, rounds of 40 MB": ("spawn", 40),
            f"OpenMP static, {cores} threads": ("openmp-static", 4), f"Tandem, {cores} threads": ("tandem-pthread", 4)}
    shares = []

    def measure(label, size):
        way, round_mb = ways[label]
        n = study.pick(4000, round_mb * 1_000_000 // k, round_mb * 1_000_000 // k)
        answer = study.contender(PRODUCT, field=8, k=k, m=m, shard_bytes=n, way=way, rows="whole", threads=cores,
                                 rounds=2 if study.meaningless else math.ceil(size / round_mb), repeats=1, file=path)
        if "storage_bytes_read" in answer:
            shares.append(100 * answer["storage_bytes_read"] / (size * 1e6))
        return st.median(answer["seconds"])

    series = study.lines({label: [size for size in sizes if study.meaningless or size >= ways[label][1]] for label in ways}, measure)
    names = list(series)
    study.possible(series, measure, [(names[0], name, cores) for name in names[1:] if "Tandem" not in name])
    study.figure("figure-16", f"Figure 16: size of the file, {k} + {m}, rounds of 4 MB if not said otherwise, naive, whole matrix",
                 "MB", "seconds", list(series.items()), log_x=True, log_y=True,
                 note=f"{FASTEST.capitalize()}; before each run the file's pages are dropped." +
                 (f" At least {min(shares):.0f} % of its bytes came from storage (/proc/self/io)." if shares else ""))
    at = crossover(series[names[0]], series[names[1]])
    study.claim("pthreads win from some size of the file on", "100 MB", "no crossover" if at is None else f"from {at} MB on", st.is_place(at, 100),
                "A round has the same size for every file, so the gain cannot depend on the size of the file.", timed=True)
    largest = max(size for size in sizes if size <= 400)
    for claim, kind, stated, least in (("Speed-up by pthreads", "pthreads", "1.3x to 1.7x", "1.3"), ("Speed-up by OpenMP", "OpenMP", "1.4x", "1.4")):
        gains = {name: dict(series[names[0]])[largest] / dict(series[name])[largest] for name in names if kind in name and largest in dict(series[name])}
        if gains:
            study.claim(claim, stated, ", ".join(f"{gain:.2f}x ({name})" for name, gain in gains.items()),
                        all(st.reaches(gain, least) for gain in gains.values()), f"At {largest} MB.", timed=True)


def cpu_time(study):
    """Figures 17 to 19."""
    cores = st.core_count()
    k = study.pick(20, K, K)
    size = study.pick(80_000, 8_000_000, 40_000_000)
    path = study.work / "file"
    path.write_bytes(os.urandom(size))
    os.sync()
    ns = study.pick([100, 400], [100, 200, 500, 1000, 2000, 4000, 8000], [100, 200, 500, 1000, 2000, 5000, 10000, 20000])
    lines, share = {}, {}
    for label, way in (("sequential", "sequential"), (f"{cores} pthreads, made each round", "spawn")):
        for n in ns:
            rounds = max(1, size // (k * n))
            found = study.contender(PRODUCT, field=16, k=k, m=M, shard_bytes=n, way=way, threads=cores, rounds=rounds,
                                    file=path, repeats=1 if study.meaningless else 3)
            elapsed, used = st.median(found["seconds"]), st.median(found["cpu_seconds"])
            lines.setdefault(f"{label}: elapsed", []).append((n, elapsed))
            lines.setdefault(f"{label}: CPU", []).append((n, used))
            share.setdefault(label, []).append((n, 100 * used / elapsed))
    one = lines["sequential: elapsed"]
    study.figure("figure-17", f"Figures 17, 19: CPU time and elapsed time, {k} + {M}, a file of {st.mb(size)}",
                 "N: bytes of a shard in a round", "seconds", list(lines.items()), log_x=True, log_y=True,
                 note="The file is read anew each time (posix_fadvise DONTNEED). What else runs on the machine lowers CPU / elapsed.",
                 result=f"One thread takes {one[0][1]:.2f} s at N = {ns[0]} and {one[-1][1]:.2f} s at N = {ns[-1]}.")
    study.figure("figure-18", "Figure 18: CPU time over elapsed time", "N: bytes of a shard in a round", "percent",
                 list(share.items()), log_x=True, marks=[("one core", 100)])
    sequential = share["sequential"]
    study.claim("Sequential: the share of the CPU grows with N", "grows gradually", f"{sequential[0][1]:.0f} % to {sequential[-1][1]:.0f} %",
                st.faster(sequential[-1][1] / sequential[0][1]), "The report read from a disk of 2015; here reads take little of the time.", timed=True)
    threads = list(share.values())[1]
    study.claim("Threads: the CPU time exceeds the elapsed time", "more than 100 %", f"{threads[-1][1]:.0f} %", st.faster(threads[-1][1] / 100),
                "Needs idle cores.", timed=True)


def parity(study):
    """Figure 21."""
    total = study.pick(12, 64, 64)
    counts = study.pick([2, 4], [2, 4, 6, 8, 12, 16, 24, 32], [2, 4, 6, 8, 12, 16, 24, 32])
    n = study.pick(100, 4000, 16000)
    ways = {"naive, whole matrix": ("sequential", "whole"), "naive, parity rows": ("sequential", "parity"), "Tandem, 1 thread": ("tandem-serial", "parity")}

    def measure(label, m):
        way, rows = ways[label]
        return processor_seconds(study, field=8, k=total - m, m=m, shard_bytes=n, way=way, rows=rows) / ((total - m) * n) * 1e9

    passes = 4 * st.PASSES  # they are short
    lines = study.lines({label: counts for label in ways}, measure, passes)
    study.figure("figure-21", f"Figure 21: number of parity shards; {total} shards in all", "parity shards",
                 "processor seconds for 1 GB of data", list(lines.items()), log_y=True,
                 note=f'"whole matrix" multiplies the identity rows too, as the report does: that makes its line flat. The fastest of {passes} passes over all points.')
    flat = lines["naive, whole matrix"]
    spread = max(y for _, y in flat) / min(y for _, y in flat)
    study.claim("The number of parity shards does not matter", "basically no big difference", f"whole matrix: {spread:.2f}x between least and most",
                st.alike(1, spread), "The flat line comes from the identity rows: 64 rows are multiplied for any m. "
                "Parity rows alone cost in proportion to m.", timed=True)


def threads_made(study):
    """Table 1, all sixteen cells, counted."""
    k = study.pick(20, K, K)
    rows = []
    for n, cells in TABLE_1.items():
        for size, stated in cells.items():
            by_rule = math.ceil(size * 1e6 / (ELEMENT_BYTES * 1000 * n))
            data = size * 1e6 * study.pick(k / 1000 / 10, 1, 1)
            shard = ELEMENT_BYTES * n // study.pick(10, 1, 1)
            rounds = max(1, math.ceil(data / (shard * k)))
            made = study.contender(PRODUCT, field=16, k=k, m=M, shard_bytes=shard, way="tandem-spawn", threads=1, rounds=rounds,
                                   repeats=1)["threads_made"]
            pool = study.contender(PRODUCT, field=16, k=4, m=M, shard_bytes=64, way="pool", threads=1, rounds=rounds,
                                   repeats=1)["threads_made"]
            rows.append([n, size, stated, by_rule, made, pool, "" if stated == by_rule else "breaks the report's rule"])
    study.table("table-1", "Table 1: threads made, one in each round: the report / its rule / counted", ["N", *(f"{size} MB" for size in TABLE_1[1000])],
                [[n, *(f"{stated} / {rule} / {made}" for at, _, stated, rule, made, *_ in rows if at == n)] for n in TABLE_1],
                f"Rule: rounds = file / (4 MB x N / 1000), rounded up. All sixteen cells were run; threads were counted as they were made. A pool made {max(row[5] for row in rows)}.")
    odd = sum(1 for row in rows if row[6])
    same = sum(1 for row in rows if row[2] == row[4])
    study.claim("Table 1: threads made by file size and N", "1 to 100", f"{same} of 16 cells equal", same == 16,
                f"{odd} cells of the report break its own rule. Ours follow it.")


def spawn_pool(study):
    """4.7: the cost of making threads."""
    cores = st.core_count()
    ns = study.pick([64, 128], [500, 4000, 40_000, 400_000], [500, 1000, 2000, 4000, 10_000, 20_000, 100_000, 400_000, 4_000_000])
    ways = {"sequential": "sequential", "made each round": "spawn", "pool": "pool"}

    def measure(label, size):
        n = size // 10
        rounds = study.pick(2, max(1, min(50, 1_000_000 // n)), max(1, min(200, 4_000_000 // n)))
        return seconds(study, field=8, k=10, m=4, shard_bytes=n, way=ways[label], rows="whole", threads=cores, rounds=rounds) / rounds

    passes = 2 * st.PASSES
    lines = study.lines({label: [10 * n for n in ns] for label in ways}, measure, passes)
    study.possible(lines, measure, [("sequential", label, cores) for label in ("made each round", "pool")])
    alone, made, pool = map(dict, lines.values())
    small = 40_000 if 40_000 in alone else 10 * ns[0]
    study.figure("spawn-pool", f"4.7: threads made each round against a pool, 10 + 4, {cores} threads, naive, whole matrix",
                 "bytes of a round", "seconds a round", list(lines.items()), log_x=True, log_y=True, note=f"The fastest of {passes} passes over all points.",
                 result=f"In rounds of {st.mb(small)} threads made each round have {alone[small] / made[small]:.2f}x the speed of one thread, and a pool "
                        f"{alone[small] / pool[small]:.2f}x.")
    judge_spawn(study, made, pool)


def judge_spawn(study, made, pool):
    """By the seconds of a round, by its bytes. The report's rounds decide where they agree with each other: all cost too much, or none does. What
    making threads takes in small rounds, where it shows best, must not contradict that none does."""
    cost = st.median([made[size] - pool[size] for size in made if size < 1_000_000])
    large = [size for size in pool if size >= 4_000_000] or [max(pool)]  # the rounds of Table 1
    costs_little = {st.no_faster(made[size] / pool[size]) for size in large}
    is_little_by_small = all(st.no_faster(1 + cost / pool[size]) for size in large)
    holds = costs_little == {True} if len(costs_little) == 1 and (is_little_by_small or costs_little == {False}) else None
    study.claim("Making threads costs little beside the computation", "negligible",
                ", ".join(f"{100 * (made[size] / pool[size] - 1):+.1f} % in rounds of {st.mb(size)}" for size in large) + f"; by rounds below 1 MB {cost * 1e6:.0f} us: "
                + ", ".join(f"{100 * cost / pool[size]:.2f} % of {st.mb(size)}" for size in large) + f", {100 * cost / pool[min(pool)]:.0f} % of {st.mb(min(pool))}", holds,
                ("The figures contradict each other. " if holds is None else "")
                + "Against a pool; of the rounds below 1 MB the median difference. The report's rounds have 4 to 40 MB (its Table 1).", timed=True)


def schedules(study):
    """Figure 22."""
    counts = st.thread_counts() + [2 * st.core_count()]
    n = study.pick(400, 100_000, 400_000)
    ways = {"naive, sequential": "sequential", "naive, OpenMP static": "openmp-static", "naive, OpenMP dynamic": "openmp-dynamic",
            "Tandem, OpenMP static": "tandem-openmp-static", "Tandem, OpenMP dynamic": "tandem-openmp-dynamic"}
    lines = study.lines({label: counts[:1] if way == "sequential" else counts for label, way in ways.items()}, lambda label, count: seconds(
        study, field=8, k=10, m=4, shard_bytes=n, way=ways[label], rows="whole", threads=count, block_columns=256))
    (_, sequential), = lines.pop("naive, sequential")
    study.figure("figure-22", f"Figure 22: OpenMP schedules, 10 + 4, {st.mb(10 * n)} of data", "threads", "seconds",
                 list(lines.items()), log_y=True, marks=[("naive, sequential", sequential)],
                 note=f"{counts[-1]} threads are oversubscribed. {FASTEST.capitalize()}.")
    static, dynamic = dict(lines["naive, OpenMP static"]), dict(lines["naive, OpenMP dynamic"])
    cores = st.core_count()
    ratio = static[cores] / dynamic[cores]
    study.claim("static and dynamic are alike", "not a lot of difference", f"dynamic {ratio:.2f}x as fast as static at {cores} threads",
                st.alike(1, ratio), "All blocks of columns cost the same, so there is nothing to balance on an idle machine.", timed=True)
    more = sequential / static[2 * cores]
    study.claim("OpenMP with more threads than cores is faster than sequential code", "better performance (4.8)", f"{more:.2f}x with {2 * cores} threads", st.faster(more),
                f"Static. The report has 8 cores; here are {cores}.", timed=True)
    if cores < 6:
        study.claim("OpenMP against sequential code at 6 and 8 cores", "slower", "-", None, st.needs_cores(6))
    else:
        slower = st.faster(static[cores] / sequential)
        study.claim("OpenMP against sequential code at 6 and 8 cores", "slower", f"{sequential / static[cores]:.2f}x at {cores}",
                    slower, "Blocks of 256 columns share no cache line of the output but at their edges.", timed=True)


def many_files(study):
    """Several files at once on one server: more threads than cores."""
    cores, size, n, k = st.core_count(), study.pick(1, 10, 20), 4000, 10
    counts = study.pick([1, 2], [1, 2, 4], [1, 2, 4, 8])
    paths = [study.work / f"many-{i}" for i in range(counts[-1])]
    for path in paths:
        path.write_bytes(os.urandom(size * 1_000_000))
    os.sync()
    ways = {"sequential, one file after the other": ("sequential", False), f"{cores} pthreads, one file after the other": ("spawn", False),
            f"{cores} pthreads for each file, all at once": ("spawn", True), f"Tandem, {cores} threads, one file after the other": ("tandem-pthread", False),
            f"Tandem, {cores} threads for each file, all at once": ("tandem-pthread", True)}

    def code(path, way):
        return study.contender(PRODUCT, field=8, k=k, m=4, shard_bytes=n, way=way, rows="whole", threads=cores, repeats=1, file=path,
                               rounds=math.ceil(size * 1e6 / (k * n)))["seconds"][0]

    def rate(way, at_once, count):
        with concurrent.futures.ThreadPoolExecutor(count if at_once else 1) as pool:
            took = list(pool.map(lambda path: code(path, way), paths[:count]))
        return count * size / (max(took) if at_once else sum(took))

    lines = {label: [] for label in ways}
    for count in counts:
        samples = {}
        for _ in range(study.pick(1, 3, 3)):  # in turns
            for label, (way, at_once) in ways.items():
                samples.setdefault(label, []).append(rate(way, at_once, count))
        for label, values in samples.items():
            lines[label].append((count, st.median(values), min(values), max(values)))
    study.figure("many-files", f"Files of {size} MB at once, {k} + 4, naive, whole matrix", "files", "MB/s of all files", list(lines.items()), log_y=True,
                 note="Median, slowest and fastest of 3. A process for each file; all at once: the longest time that a process took. Processes do not start at the same moment.")


def pinned(study):
    """Section 7: threads that may move, and threads with a core of their own."""
    cores, lines, used = st.core_count(), {}, set()
    for label, pin in (("not pinned", 0), ("pinned", 1)):
        for name, way in (("made each round", "spawn"), ("pool", "pool")):
            found = study.contender(PRODUCT, field=8, k=10, m=4, shard_bytes=study.pick(400, 20_000, 20_000), way=way, rows="whole", threads=cores,
                                    rounds=study.pick(2, 50, 200), repeats=study.pick(1, 5, 9), pin=pin)
            rates = [found["data_bytes"] / each / 1e9 for each in found["seconds"]]
            lines.setdefault(label, []).append((name, st.median(rates), min(rates), max(rates)))
            used |= {found["cores_used"]} if not pin else set()
    study.figure("pinned", f"Section 7: {cores} threads pinned to a core each, and not; 10 + 4, naive, whole matrix", "threads", "GB/s of data",
                 list(lines.items()), kind="bars", note="Median, slowest and fastest repeat.")
    ratio = min(free[1] / pin[1] for free, pin in zip(*lines.values()))
    study.claim("Threads use all cores without being pinned", "its i7: yes; its i5: no", f"{min(used)} of {cores} cores used; {ratio:.2f}x the speed of pinned threads",
                min(used) == cores and st.no_faster(1 / ratio), "The kernel of 2015 is not known.", timed=True)


def parity_servers(study):
    """Section 1: the parity disk of RAID-4 against the rotated parity of RAID-5, simulated (docs/internals/STORAGE.md)."""
    lines, rates = {}, {}
    for label, kind in (("RAID-4: one disk has all parity", "dedicated"), ("RAID-5: parity rotates", "rotated")):
        run, = study.bench("simulate", "storage", "--servers", 8, "--parity", 1, "--clients", 64, "--application", 8, "--strategy", "standard", "--seeds", 3,
                           "--parity-servers", kind, "--seconds", study.pick(5, 200, 1000), "--confidence", 0)["runs"]
        lines[label] = [(name, st.median(values), min(values), max(values)) for name, values in
                        ((name, [100 * seed[field] for seed in run["seeds"]]) for name, field in
                         (("busiest disk", "most_utilisation"), ("mean of all disks", "utilisation")))]
        rates[kind] = run["bytes_per_second"]
    study.figure("parity-servers", "Dedicated against rotated parity: 8 disks, 64 clients, writes of 128 KiB, simulated", "", "percent of the time busy",
                 list(lines.items()), kind="bars", note="tandem-bench simulate storage, 3 seeds with least and most; the disk of docs/internals/STORAGE.md.")
    (busiest, mean), (even, mean_even) = ([point[1] for point in points] for points in lines.values())
    study.claim("RAID-4: the parity disk is the hotspot of all writes; RAID-5 has none", "hotspot for all writes", f"simulated: busiest disk {busiest:.0f} % against "
                f"{mean:.0f} % in the mean; rotated {even:.0f} and {mean_even:.0f} %; RAID-4 writes at {rates['dedicated'] / rates['rotated']:.2f} of RAID-5's rate",
                busiest >= st.LIMIT["much"] * mean and st.alike(even, mean_even), "The report gives no figure; it names RAID-4 and RAID-5 as known.")


PARTS = {"figure-7": profile, "orders": orders, "first-level-misses": misses, "figure-15": disks, "figure-16": file_sizes,
         "figure-17": cpu_time, "figure-21": parity, "table-1": threads_made, "spawn-pool": spawn_pool, "figure-22": schedules,
         "many-files": many_files, "pinned": pinned, "parity-servers": parity_servers}
TITLE = "Parallel Reed-Solomon with pthreads and OpenMP"
if __name__ == "__main__":
    st.main("A", TITLE, PARTS, __doc__)
