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

WAYS = {"sequential": "sequential", "OpenMP depend": "openmp-depend", "oneTBB flow graph": "tbb", "Tandem": "tandem"}
K, M = 10, 4


def idle_share(spans, threads):
    """The part of the threads' time without a span, in percent."""
    end = max(start + seconds for _, start, seconds, _ in spans)
    begin = min(start for _, start, _, _ in spans)
    return 100 * (1 - sum(seconds for _, _, seconds, _ in spans) / (threads * (end - begin)))


def lu(study):
    n, tile, cores = study.pick(128, 2048, 2048), study.pick(32, 64, 64), st.core_count()
    rows, bars, panels = [], [], []
    for label, way in WAYS.items():
        threads = 1 if way == "sequential" else cores

        def one(way=way, threads=threads):
            return study.contender("study_lu", n=n, tile=tile, way=way, threads=threads, repeats=study.pick(1, 3, 5))

        found = study.attempt(label, one)
        if found is None:
            continue
        seconds, used = st.median(found["seconds"]), st.median(found["cpu_seconds"])
        bars.append((label, seconds))
        whole = way != "tandem"  # its threads belong to the library: only the caller has spans
        rows.append([label, threads, f"{seconds:.3f}", f"{used:.3f}", f"{100 * (1 - used / (threads * seconds)):.0f} %",
                     f"{idle_share(found['spans'], threads):.1f} %" if whole else "not recorded", len(found["spans"])])
        if whole and way != "sequential":
            small = study.contender("study_lu", n=study.pick(128, 1024, 1024), tile=tile, way=way, threads=threads)
            panels.append((label, small["spans"]))
    study.figure("lu", f"Tiled LU over GF(2^8), {n} x {n}, tiles of {tile}", "way", "seconds", [("median", bars)], kind="bars",
                 note=f"{cores} threads, sequential 1. A = L * U of random factors; every result is those factors, and its product is A.")
    if panels:
        study.figure("lu-gantt", f"Which thread ran which task, {study.pick(128, 1024, 1024)} x {study.pick(128, 1024, 1024)}",
                     "milliseconds", "", panels, kind="gantt",
                     note="Recorded by the tasks of the last run. Other programs' use of a core shows as a long task.")
    study.table("lu", "LU: idle share", ["way", "threads", "seconds", "processor seconds", "not on a core", "idle by spans", "spans"],
                rows, '"not on a core": 1 - processor time / (threads x elapsed), so spinning counts as work and other programs as '
                'idle. "idle by spans": time of the threads between tasks. Tandem computes what bmod computes by `tandem_encode` '
                "with L as its matrix; its kernels are faster than the contenders' tile function.")
    times = dict(bars)
    both = [name for name in ("OpenMP depend", "oneTBB flow graph") if name in times]
    if len(both) == 2:
        ratio = times[both[0]] / times[both[1]]
        study.claim("Work stealing beats a central queue of tasks (libGOMP), up to 63.8 % for LU",
                    f"oneTBB {100 * (ratio - 1):+.1f} % against libgomp, {cores} threads", ratio > 1,
                    "The document has 48 cores, where one lock for all tasks costs most. Tiles of 64 x 64 bytes are short tasks.", timed=True)
    else:
        study.claim("Work stealing beats a central queue of tasks (libGOMP), up to 63.8 % for LU", "one of the two is missing",
                    None, "Needs OpenMP and oneTBB.")


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
            study.bytes_checks += 1
            spans[label] = found["spans"]
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
    rates = [(label, size / st.median(taken) / 1e9) for label, taken in times.items()]
    study.figure("pipeline", f"Read, hash, code, write: {size / (1 << 20):.0f} MiB, {K} + {M}, {cores} threads", "way", "GB/s",
                 [("median", rates)], kind="bars", note=f"Whole processes in turns, {repeats} repeats; files lie {where}.")
    study.figure("pipeline-gantt", f"Which thread did which step, {study.pick(1, 32, 32)} MiB", "milliseconds", "", panels,
                 kind="gantt", note="Recorded in one run each. Tandem: its timeline.")
    study.table("pipeline", "Pipeline: idle share by recorded spans", ["way", "seconds", "slowest to fastest", "idle"],
                [[label, f"{st.median(taken):.3f}", f"{max(taken):.3f} to {min(taken):.3f}",
                  f"{idle_share(spans[label], cores):.1f} %"] for label, taken in times.items()],
                "The contenders hash and code the same payloads, with the same library, and write them. Tandem also writes checksums "
                "and records, and renames each file.")
    others = [rate for label, rate in rates if label != "Tandem"]
    if others:
        ratio = dict(rates)["Tandem"] / max(others)
        study.claim("(expected of Tandem) its pipeline reaches 0.95 of the best", f"{ratio:.2f} of the best", ratio >= 0.95,
                    "Tandem's run includes the shard format: a checksum for each block, and records.", timed=True)


def measure(study):
    lu(study)
    pipeline(study)


TITLE = "Task dependencies against work stealing"
if __name__ == "__main__":
    st.main("E", TITLE, measure, __doc__)
