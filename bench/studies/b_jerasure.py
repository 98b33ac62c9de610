#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Study B: Jerasure 2.0 with OpenMP and pthreads (Arslan, Le, Landman, Goker)."""
import study as st

PROGRAM = "study_jerasure"
BUFFER, MIB = 5_000_000, 1 << 20
# Table II: (m, k), file in MiB: OpenMP encode, decode; pthreads encode, decode.
TABLE_2 = {(4, 8): {64: (1.53, 1.66, 1.63, 1.6), 128: (1.72, 1.7, 1.71, 1.65), 256: (1.9, 1.78, 1.71, 1.75),
                    512: (2.12, 1.87, 1.79, 1.85)},
           (4, 32): {64: (1.56, 1.31, 1.58, 1.62), 128: (1.69, 1.63, 1.66, 1.91), 256: (1.9, 1.56, 1.75, 1.9),
                     512: (2.14, 1.49, 1.9, 2.01)},
           (8, 32): {64: (2.17, 2.75, 2.03, 2.54), 128: (2.4, 3.11, 2.28, 3.01), 256: (2.77, 2.98, 2.55, 3.0),
                     512: (2.98, 3.05, 2.9, 3.1)},
           (12, 32): {64: (2.94, 3.69, 2.85, 3.69), 128: (3.27, 4.1, 3.15, 4.24), 256: (3.77, 3.96, 3.59, 3.96),
                      512: (4.01, 4.06, 3.96, 4.06)}}


def run(study, **settings):
    """Seconds and processor seconds for 1 GB of data: medians."""
    settings.setdefault("buffer_bytes", study.pick(100_000, BUFFER, BUFFER))
    found = study.contender(PROGRAM, library=study.arguments.jerasure, repeats=study.pick(1, 3, 5), **settings)
    return {name: st.median(found[name]) / found["data_bytes"] * 1e9 for name in ("seconds", "cpu_seconds")}


def rate(study, **settings):
    return 1 / run(study, **settings)["seconds"]


def table_2(study):
    """All sixteen rows: one thread of Jerasure over m threads that share the parity rows."""
    rows, best, ratios = [], {}, {}
    for (m, k), files in TABLE_2.items():
        threads = m
        for size, stated in files.items():
            file_bytes = study.pick(1, size, size) * MIB
            found = {}
            for operation in ("encode", "decode"):
                def measure(way, _, shape=(k, m, operation, file_bytes)):
                    k, m, operation, file_bytes = shape
                    return run(study, k=k, m=m, operation=operation, file_bytes=file_bytes, way=way, threads=1 if way == "jerasure" else m)["seconds"]

                series = {way: [(size, measure(way, size))] for way in ("jerasure", "parity-openmp", "parity-pthread")}
                study.possible(series, measure, [("jerasure", way, threads) for way in list(series)[1:]])
                (_, alone), = series.pop("jerasure")
                found.update({(way, operation): alone / points[0][1] for way, points in series.items()})
            here = [found[way, operation] for way in ("parity-openmp", "parity-pthread") for operation in ("encode", "decode")]
            best[m] = max(best.get(m, 0), *here)
            ratios[m, k, size] = here
            rows.append([m, k, size, threads, "oversubscribed" if threads > st.core_count() else "",
                         "{:.2f} / {:.2f}".format(*stated[:2]), "{:.2f} / {:.2f}".format(*here[:2]),
                         "{:.2f} / {:.2f}".format(*stated[2:]), "{:.2f} / {:.2f}".format(*here[2:])])
    study.table("table-2", "Table II: speed-up over one thread of Jerasure, encode / decode; m threads share the parity rows",
                ["m", "k", "MiB", "threads", "", "document: OpenMP", "here: OpenMP", "document: pthreads", "here: pthreads"], rows,
                "Decode: m data shards are lost. A buffer of 5 MB is coded again and again until the size of the file is "
                "reached; nothing is read or written.")
    for m, least in ((4, "2.14"), (8, "3.11"), (12, "4.24")):
        claim = f"m = {m}: speed-up by {m} threads, at most"
        if m > st.core_count():
            study.claim(claim, f"{least}x", f"at most {best[m]:.2f}x, oversubscribed", None, st.needs_cores(m))
        else:
            study.claim(claim, f"{least}x", f"at most {best[m]:.2f}x", st.reaches(best[m], least), "The most of Table II, both ways.", timed=True)
    needs = st.needs_cores(max(best))
    study.claim("Speed-up over the original programs, at most", "3x to 4x", f"{max(best.values()):.2f}x",
                None if needs else st.reaches(max(best.values()), "3"), f"{needs} All of Table II, both ways.".strip(), timed=True)
    share = [best[m] / m for m in sorted(best)]
    study.claim("Efficiency (speed-up / m) falls as m grows: m = 4, 8, 12", "0.535, 0.389, 0.353", ", ".join(f"{each:.3f}" for each in share),
                None if needs else st.grows(share[::-1]), f"{needs} The best of Table II for each m.".strip(), timed=True)


def buffers(study, operation):
    """Figure 3."""
    sizes = study.pick([65536], [1 << i for i in range(16, 25)], [1 << i for i in range(16, 26)])
    cores = st.core_count()
    lines = {}
    for label, way, threads in (("Jerasure, 1 thread", "jerasure", 1),
                                (f"Jerasure, 4 pthreads by parity{st.oversubscribed(4)}", "parity-pthread", 4),
                                ("Tandem, 1 thread", "tandem-column", 1), (f"Tandem, {cores} threads", "tandem-column", cores)):
        lines[label] = [(size, 1000 * rate(study, k=8, m=4, operation=operation, buffer_bytes=size, file_bytes=study.pick(1, 32, 128) * MIB, way=way,
                                           threads=threads)) for size in sizes]
    study.figure("figure-3" if operation == "encode" else "figure-3-decode", f"Figure 3: {operation} 8 + 4, {study.pick(1, 32, 128)} MiB, over the size of the buffer",
                 "bytes of the buffer", "MB/s of data", list(lines.items()), log_x=True, log_y=True)
    judge_buffers(study, operation, *list(lines.values())[:2])


def judge_buffers(study, operation, one, threads):
    """By the points of one thread and of four."""
    (first, fastest), (last, slowest) = one[0], one[-1]
    study.claim(f"{operation}, one thread: faster with small buffers", "figure 3", f"{fastest:.0f} MB/s at {first >> 10} KiB, {slowest:.0f} at {last / MIB:g} MiB",
                st.faster(fastest / slowest), "Small buffers stay in the cache.", timed=True)
    # The document fixes 5 MB and names no other buffer. Below 1 MiB, making 4 threads for each buffer is most of the work.
    large, small = ([[rate for size, rate in points if (size >= MIB) == is_large] or [1] for points in (one, threads)] for is_large in (True, False))
    spread_one, spread = (max(rates) / min(rates) for rates in large)
    needs = st.needs_cores(4)
    study.claim(f"{operation}, threads: the speed hardly depends on the buffer", "almost the same",
                f"from 1 MiB on {spread:.2f}x between slowest and fastest; one thread {spread_one:.2f}x", None if needs else st.alike(*large[1]),
                f"{needs} Smaller buffers pay for making threads: {max(large[1]) / min(small[1]):.1f}x.".strip(), timed=True)


def operations(study):
    """Figures 4 and 5."""
    cores = st.core_count()
    file_bytes = study.pick(1, 64, 512) * MIB
    column_over_parity = []
    for m in (4, 8, 12):
        ks = study.pick([8], [8, 16, 32], [8, 12, 16, 24, 32])
        for operation in ("encode", "decode"):
            lines = {}
            for label, way, threads in (
                    ("Jerasure, 1 thread", "jerasure", 1),
                    (f"Jerasure, {m} OpenMP threads by parity{st.oversubscribed(m)}", "parity-openmp", m),
                    (f"Jerasure, {m} pthreads by parity{st.oversubscribed(m)}", "parity-pthread", m),
                    (f"Jerasure, {cores} pthreads by columns", "column-pthread", cores),
                    ("Tandem, 1 thread", "tandem-column", 1), (f"Tandem, {cores} threads by parity", "tandem-parity", cores),
                    (f"Tandem, {cores} threads by columns", "tandem-column", cores)):
                def points(w=way, t=threads, o=operation):
                    return [(k, rate(study, k=k, m=m, operation=o, file_bytes=file_bytes, way=w, threads=t)) for k in ks]

                found = study.attempt(label, points) if way == "parity-openmp" else points()
                if found:
                    lines[label] = found
            study.figure(f"figure-{4 if m == 4 else 5}-m{m}-{operation}",
                         f"Figure {4 if m == 4 else 5}: {operation}, m = {m}, {file_bytes // MIB} MiB", "k: data shards",
                         "GB/s of data", list(lines.items()), log_y=True,
                         note="Pure coding: no file is read or written. Decode: m data shards are lost.")
            column = dict(lines[f"Tandem, {cores} threads by columns"])
            parity = dict(lines[f"Tandem, {cores} threads by parity"])
            column_over_parity += [column[k] / parity[k] for k in ks]
    middle = st.median(column_over_parity)
    study.claim("Columns against parity rows, at equal threads", "at least as fast",
                f"{middle:.2f}x, median of {len(column_over_parity)} points; {min(column_over_parity):.2f} to "
                f"{max(column_over_parity):.2f}", middle >= 1,
                "By parity each thread reads all data again. By columns each byte is read once.", timed=True, of="targets")


def one_thread(study):
    """Tandem over Jerasure, in processor time: other programs disturb it less."""
    codes = [(4, 8), (4, 32), (8, 32), (12, 32)]
    lines = {}
    for operation in ("encode", "decode"):
        for m, k in codes:
            settings = {"k": k, "m": m, "operation": operation, "file_bytes": study.pick(1, 64, 256) * MIB}
            theirs, ours = (run(study, way=way, **settings)["cpu_seconds"] for way in ("jerasure", "tandem-column"))
            lines.setdefault(f"{operation}, buffer of 5 MB", []).append((f"{k} + {m}", theirs / ours))
    if study.arguments.jerasure == st.JERASURE:  # the engine of `tandem-bench run`: in turns, on the same memory
        found = study.bench("run", "--peer", "jerasure", "--matrix", "jerasure-vandermonde", "--operation", "encode,decode", "--code",
                            ",".join(f"{k}+{m}" for m, k in codes), "--size", study.pick("64KiB", "512KiB,4MiB", "512KiB,4MiB"),
                            "--clock", "cpu", "--threads", 1, "--repeats", study.pick(1, 11, 21), "--seconds",
                            study.pick(0.01, 0.2, 0.5))
        for each in found["results"]:
            where = "tandem-bench run, in cache" if each["in_cache"] else "tandem-bench run, out of cache"
            lines.setdefault(f"{each['operation']}, {where}", []).append((f"{each['k']} + {each['m']}", each["over_peer"]))
    study.figure("over-jerasure", "Tandem over Jerasure, one thread each, processor time", "code", "times as fast",
                 list(lines.items()), kind="bars", marks=[("expected", 5)])
    least = min(y for points in lines.values() for _, y in points)
    most = max(y for points in lines.values() for _, y in points)
    study.claim("Tandem over Jerasure on one thread", "at least 5x", f"{least:.1f}x to {most:.1f}x", least >= 5,
                "Jerasure with GF-Complete's SSE code; Tandem with its best kernel for this CPU. Out of cache memory limits both.",
                timed=True, of="targets")


def one_pass(study):
    """Half of the lost shards are parity."""
    cores = st.core_count()
    names = {"Jerasure, 1 thread": ("jerasure", 1), f"Jerasure, {cores} pthreads, two regions": ("parity-pthread", cores),
             "Tandem, 1 thread, one pass": ("tandem-column", 1), f"Tandem, {cores} threads, one pass": ("tandem-column", cores)}
    lines = {label: [(f"{k} + {m}", rate(study, k=k, m=m, operation="decode", lost="mixed", way=way, threads=threads,
                                         file_bytes=study.pick(1, 64, 256) * MIB)) for m, k in ((4, 8), (8, 32), (12, 32))]
             for label, (way, threads) in names.items()}
    theirs, ours = (dict(points) for label, points in lines.items() if "1 thread" in label)
    study.figure("mixed-decode", "Decode with m/2 data and m/2 parity shards lost", "code", "GB/s of data", list(lines.items()),
                 kind="bars", note="The document computes lost parity in a second region, after the lost data.",
                 result="One thread of Tandem over one of Jerasure: " + ", ".join(f"{ours[code] / theirs[code]:.1f}x ({code})" for code in ours) + ".")


def random_losses(study):
    """Decode of the first m data shards, and of m random ones, as in the document's figure 3."""
    seeds, lines, over_first = range(1, study.pick(2, 4, 8)), {}, []
    for label, way in (("Jerasure, 1 thread", "jerasure"), ("Jerasure, by parity rows in one thread", "parity-pthread"), ("Tandem, 1 thread", "tandem-column")):
        for m, k in ((4, 8), (4, 32), (8, 32), (12, 32)):
            settings = {"k": k, "m": m, "operation": "decode", "way": way, "file_bytes": study.pick(1, 32, 64) * MIB}
            first = 1 / run(study, **settings)["cpu_seconds"]
            rates = [1 / run(study, lost="random", seed=seed, **settings)["cpu_seconds"] for seed in seeds]
            middle = st.median(rates)
            over_first.append(middle / first)
            lines.setdefault(f"{label}: first m", []).append((f"{k} + {m}", first, first, first))
            lines.setdefault(f"{label}: random m", []).append((f"{k} + {m}", middle, min(rates), max(rates)))
    study.figure("random-losses", "Decode of lost data shards: the first m, and m random ones", "code", "GB of data in a processor second",
                 list(lines.items()), kind="bars", note=f"{len(seeds)} draws of random shards: median, slowest and fastest.")
    study.claim("Decode of random data shards against the first ones, one thread", "0.9 to 1.1", f"{min(over_first):.2f}x to {max(over_first):.2f}x",
                all(0.9 <= each <= 1.1 for each in over_first), "The document loses random data shards; Table II and figures 4 and 5 here lose the first.",
                timed=True, of="targets")


PARTS = {"one-thread": one_thread, "figure-3": lambda study: buffers(study, "encode"),
         "figure-3-decode": lambda study: buffers(study, "decode"), "figures-4-5": operations, "mixed-decode": one_pass, "random-losses": random_losses,
         "table-2": table_2}
TITLE = "Jerasure 2.0 with OpenMP and pthreads"
if __name__ == "__main__":
    st.main("B", TITLE, PARTS, __doc__)
