#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Study E: task dependencies against work stealing: a tiled LU over GF(2^8), and read-hash-code-write of a file."""
import json
import os
import pathlib
import shutil
import struct
import tempfile
import time

import study as st

GNU, GNU_CW, LLVM, LLVM_CW = "libgomp", "libgomp, concurrent write", "libomp", "libomp, concurrent write"
# Label: the settings of the contender, and the OpenMP runtime that must be in its process.
WAYS = {"sequential": ({"way": "sequential"}, None), GNU: ({"way": "openmp:gnu"}, "libgomp"),
        GNU_CW: ({"way": "openmp:gnu", "concurrent_write": 1}, "libgomp"), LLVM: ({"way": "openmp:llvm"}, "libomp"),
        LLVM_CW: ({"way": "openmp:llvm", "concurrent_write": 1}, "libomp"), "oneTBB flow graph": ({"way": "tbb"}, None),
        "Tandem": ({"way": "tandem"}, None)}
LARGEST = 63.8, 165.1  # percent over libgomp in the report: at 32768 x 32768, and at its best size in figure 5
TILES, CORES = 93, 48  # of the report: 32768 / 352 in each direction
K, M = 10, 4


def idle_share(spans, threads):
    """The part of the threads' time without a span, in percent."""
    end = max(start + seconds for _, start, seconds, _ in spans)
    begin = min(start for _, start, _, _ in spans)
    return 100 * (1 - sum(seconds for _, _, seconds, _ in spans) / (threads * (end - begin)))


def most_gain(tiles, cores):
    """Percent that one order of this LU's tasks can gain over any other that leaves no core idle while a task is ready: none takes longer than
    work / cores + critical path x (1 - 1 / cores) (Graham), and none less than work / cores. lu0 costs 2/3, fwd and bdiv 1, bmod 2."""
    work = sum(2 / 3 + 2 * left + 2 * left * left for left in range(tiles))
    path = tiles * 2 / 3 + (tiles - 1) * (1 + 2)
    return 100 * path * (cores - 1) / work


def lu(study):
    """Figures 5 and 6."""
    sizes, tile, cores = study.pick([128], [1024, 2048], [1024, 2048, 4096]), study.pick(32, 64, 64), st.core_count()
    small, repeats = study.pick(128, 768, 768), study.pick(1, 3, 5)
    rows, panels, times, early, idle = [], [], {}, {}, {}
    for label, (settings, runtime) in WAYS.items():
        threads = 1 if label == "sequential" else cores
        whole = label != "Tandem"  # its threads belong to the library: only the caller has spans

        def one(n, count):
            return st.with_runtime(runtime, study.contender("study_lu", n=n, tile=tile, threads=threads, repeats=count, **settings))

        for n in sizes:
            found = study.attempt(label, one, n, repeats)
            if found is None:
                break
            seconds, used = st.median(found["seconds"]), st.median(found["cpu_seconds"])
            times.setdefault(label, {})[n] = found["seconds"]
            early[label] = found["early_bmods"]
            idle[label] = idle_share(found["spans"], threads)
            if n == sizes[-1]:
                rows.append([label, threads, f"{seconds:.3f}", f"{min(found['seconds']):.3f} to {max(found['seconds']):.3f}", f"{used:.3f}",
                             f"{100 * (1 - used / (threads * seconds)):.0f} %", f"{idle[label]:.1f} %" if whole else "not recorded",
                             early[label] if runtime else "-"])
        if label in times and whole and threads > 1:
            panels.append((label, one(small, 1)["spans"]))
    study.table("lu", f"LU over GF(2^8), n = {sizes[-1]}: seconds, and idle share", ["way", "threads", "seconds", "fastest to slowest", "processor seconds",
                "not on a core", "idle by spans", "bmod's out of order"], rows,
                f'Medians of {repeats}. "not on a core": 1 - processor time / (threads x elapsed), so spinning counts as work and other '
                'programs as idle. "idle by spans": time of the threads between tasks. "out of order": before one of its tile that was made '
                "earlier; it is 0 where the runtime takes mutexinoutset for inout. Tandem computes what bmod computes by `tandem_encode` with "
                "L as its matrix; its kernels are faster than the contenders' tile function.")
    if panels:
        study.figure("lu-gantt", f"Figure 6 here: which thread ran which task, {small} x {small}", "milliseconds", "", panels, kind="gantt",
                     note="Recorded by the tasks of the last run. Other programs' use of a core shows as a long task.",
                     result="Threads without a task, at the largest size: "
                     + ", ".join(f"{label} {idle[label]:.1f} %" for label, _ in panels) + ".")
    if GNU not in times:
        study.claim("LU: the runtime's gain over libgomp", f"{LARGEST[0]} %, at most {LARGEST[1]} %", "-", None, "libgomp is missing.")
        return
    base = {n: st.median(found) for n, found in times[GNU].items()}
    gains = {label: [(f"{n} x {n}", base[n] / st.median(found), base[n] / max(found), base[n] / min(found)) for n, found in by_size.items()]
             for label, by_size in times.items() if label not in ("sequential", "Tandem")}
    study.figure("lu", f"Figure 5 here: tiled LU over GF(2^8) against libgomp, tiles of {tile}, {cores} threads", "size of the matrix",
                 "times as fast", list(gains.items()), kind="bars", marks=[(f"the report, 32768 x 32768: {1 + LARGEST[0] / 100:.2f}", 1 + LARGEST[0] / 100)],
                 note="Medians, and the slowest and fastest run. Every result is L and U, and their product is A.")
    judge_lu(study, gains, early)


def judge_lu(study, gains, early):
    """By the gains over libgomp, and by the bmod's out of order."""
    largest = {label: points[-1][1] for label, points in gains.items()}
    size, cores = gains[GNU][-1][0], st.core_count()

    def written(labels):
        return ", ".join(f"{label} {100 * (largest[label] - 1):+.1f} %" for label in labels if label in largest) or "-"

    bound = most_gain(TILES, CORES)
    study.claim("LU: concurrent write over libgomp", f"{LARGEST[0]} %; at most {LARGEST[1]} %", written((GNU_CW, LLVM_CW)), None if bound < LARGEST[0] else
                st.reaches(100 * (largest[GNU_CW] - 1), str(LARGEST[0])), f"This graph cannot show it: on {CORES} cores no order of its tasks ({TILES} x {TILES} tiles) gains more than "
                f"{bound:.1f} % over another (Graham's bound). The report's gaps come from the search for pivots and from swaps. In a finite field any element "
                "but zero is a pivot, so a search would end at once, and the graph stays as it is.", timed=True)
    stealing = [label for label in (LLVM, "oneTBB flow graph") if label in largest]
    study.claim("LU: work stealing without concurrent write over libgomp", "faster", written(stealing), all(st.faster(largest[label]) for label in stealing)
                if stealing else None, f"At {size}, the largest. {cores} threads; the report has 48 cores, tiles of 352 x 352 and a LU with pivoting.",
                timed=True)
    study.claim("Concurrent write lets more tasks run", "more parallelism", ", ".join(
                f"{label}: {early[label]} bmod's out of order" for label in (GNU_CW, LLVM_CW) if label in early) or "-",
                any(early.get(label, 0) > 0 for label in (GNU_CW, LLVM_CW)),
                "OpenMP 5's form is depend(mutexinoutset). A runtime may treat it as inout; then none is out of order.")
    study.not_measured("LU of 8192 x 8192 and more", "32768 x 32768 bytes would take hours on a few cores. The report's 93 x 93 tiles lie between ours of "
                       "2048 and 8192. The extracted text of its figure 5 has lost the other sizes")


def work_folder(study, needed_bytes):
    """In memory if there is space, so that no disk is measured."""
    shm = pathlib.Path("/dev/shm")
    if shm.is_dir() and os.access(shm, os.W_OK) and shutil.disk_usage(shm).free > needed_bytes:
        return tempfile.TemporaryDirectory(dir=shm, prefix="tandem-study-"), "in memory (/dev/shm)"
    return tempfile.TemporaryDirectory(dir=study.work), "in the folder of the results"


def compare_payloads(set_folder, raw_folder, content_bytes):
    """Compares the blocks of Tandem's shard files (docs/format.md) with the contender's raw payloads."""
    for path in set_folder.iterdir():
        with open(path, "rb") as file:
            record = file.read(4096)
            index, block_bytes = struct.unpack_from("<II", record, 48)
            with open(raw_folder / str(index), "rb") as raw:
                left = content_bytes
                while left > 0:
                    payload = min(block_bytes - 16, -(-left // K))
                    if file.read(payload) != raw.read(payload):
                        raise st.Failed(f"shard {index} of {raw_folder.name}: its bytes differ from Tandem's")
                    file.read(16)
                    left -= K * payload
                if raw.read(1):
                    raise st.Failed(f"shard {index} of {raw_folder.name} is too long")


def spans_of(trace):
    """A timeline of Tandem (docs/internals/TIMELINE.md) as [row, start, seconds, kind]."""
    kinds = {"read": "read", "hash": "hash", "write": "write", "sync": "write"}
    rows = {}
    return [(rows.setdefault(e["tid"], len(rows)), e["ts"] / 1e6, e["dur"] / 1e6, kinds.get(e["cat"], "code"))
            for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]


def pipeline(study):
    size = study.pick(2_000_003, 256 << 20, 1 << 30)
    cores, repeats = st.core_count(), study.pick(1, 5, 9)
    folder, where = work_folder(study, 5 * size)
    with folder as name:
        place = pathlib.Path(name)
        source, own = place / "content", place / "tandem"
        with open(source, "wb") as file:
            for begin in range(0, size, 1 << 20):
                file.write(os.urandom(min(1 << 20, size - begin)))
        encode = [study.program("tandem"), "encode", source, "-k", K, "-m", M, "-o", own, "--force", "--no-sync", "--quiet",
                  "--threads", cores]
        study.command(*encode)
        payload = struct.unpack_from("<I", next(own.iterdir()).read_bytes()[:56], 52)[0] - 16
        ways = {"OpenMP depend": "openmp-depend", "oneTBB parallel_pipeline": "tbb"}
        spans, times = {}, {}

        def contend(way):
            out = place / way
            out.mkdir(exist_ok=True)
            return study.contender("study_pipeline", input=source, output=out, k=K, m=M, payload_bytes=payload, threads=cores,
                                   way=way)

        for label, way in list(ways.items()):
            found = study.attempt(f"pipeline, {label}", contend, way)
            if found is None:
                del ways[label]
                continue
            compare_payloads(own, place / way, size)
            study.part["bytes_checks"] += 1
            spans[label] = found["spans"]
        study.command(*encode)  # It replaces a set: from here on, the host of a virtual machine has given the memory for two.
        # In turns. The time of each is that of its whole process.
        for _ in range(repeats):
            for label, way in ways.items():
                began = time.perf_counter()
                contend(way)
                times.setdefault(label, []).append(time.perf_counter() - began)
            began = time.perf_counter()
            study.command(*encode)
            times.setdefault("Tandem", []).append(time.perf_counter() - began)
        study.command(*encode, "--timeline", study.work / "timeline.json")
        spans["Tandem"] = spans_of(study.work / "timeline.json")
        # The picture shows a part of the content; otherwise its boxes would be too narrow.
        os.truncate(source, min(size, study.pick(1, 32, 32) << 20))
        panels = [(label, contend(way)["spans"]) for label, way in ways.items()]
        study.command(*encode, "--timeline", study.work / "timeline.json")
        panels.append(("Tandem", spans_of(study.work / "timeline.json")))
    rates = [(label, *(size / each / 1e9 for each in (st.median(taken), max(taken), min(taken)))) for label, taken in times.items()]
    slowest = {label: max(taken) / st.median(taken) for label, taken in times.items()}
    study.figure("pipeline-gantt", f"Which thread did which step, {study.pick(1, 32, 32)} MiB", "milliseconds", "", panels,
                 kind="gantt", note="Recorded in one run each. Tandem: its timeline.",
                 result="Idle in the whole run: " + ", ".join(f"{label} {idle_share(each, cores):.1f} %" for label, each in spans.items()) + ".")
    study.figure("pipeline", f"Read, hash, code, write: {size / (1 << 20):.0f} MiB, {K} + {M}, {cores} threads", "way", "GB/s",
                 [("median", rates)], kind="bars",
                 note=f"Whole processes in turns, {repeats} repeats, with the slowest and the fastest; files lie {where}.")
    others = [rate for label, rate, *_ in rates if label != "Tandem"]
    if others:
        ratio = next(rate for label, rate, *_ in rates if label == "Tandem") / max(others)
        study.claim("Tandem's pipeline against the best of the others", "0.95 or more", f"{ratio:.2f} of the best", ratio >= 0.95,
                    "Tandem's run includes the shard format: a checksum for each block, and records. The slowest run took "
                    + ", ".join(f"{times:.1f} ({label})" for label, times in slowest.items()) + " times the median.", timed=True, of="targets")


PARTS = {"lu": lu, "pipeline": pipeline}
TITLE = "Task dependencies against work stealing"
if __name__ == "__main__":
    st.main("E", TITLE, PARTS, __doc__)
