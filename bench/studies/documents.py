# SPDX-License-Identifier: Apache-2.0
"""What the documents show in the figures that the studies draw again: grey lines, and one grey sentence under each picture. Nothing here is
measured."""
import re

from b_jerasure import TABLE_2

# Picture: what the document shows.
SAYS = {
    "a-figure-12": "The report (figure 12): i,k,j is faster from N = 1000 on, most clearly at N = 10000, in all 3x. No curve in its text.",
    "a-figure-14": "The report: no visible improvement in one thread (figure 13), better speedup in parallel (figure 14).",
    "a-figure-12-gain": "The report: 3x, most clearly at N = 10000.",
    "a-d1-misses": "The report: i,k,j reduces cache thrashing. It counts nothing.",
    "a-figure-15": "The report: pthreads win from 14 disks on.",
    "a-figure-16": "The report: pthreads win from 100 MB on, by 1.3x to 1.7x; OpenMP by 1.4x.",
    "a-figure-17": "The report: the elapsed time falls with N, the CPU time grows; with threads the CPU time is the greater one.",
    "a-figure-18": "The report: the share of one thread grows gradually with N; threads use more than 100 %.",
    "a-figure-21": "The report: basically no big difference by the number of parity shards.",
    "a-spawn-pool": "The report: making threads costs a negligible part. Its rounds have 4 to 40 MB.",
    "a-figure-22": "The report: static and dynamic are alike; faster than sequential code up to 4 of 8 cores, slower at 6 and 8.",
    "a-many-files": "The report: slower than sequential code at 6 and 8 threads, faster again with more threads.",
    "a-pinned": "The report: on its i5 threads share one core unless they are pinned, on its i7 they do not.",
    "a-parity-servers": "The report: the parity disk of RAID-4 is the hotspot for all writes; RAID-5 has none.",
    "b-over-jerasure": "Not in the document: Tandem's own target is 5x.",
    "b-figure-3": "The document: threads up to 3x one thread, almost the same for every buffer; one thread is faster with small buffers.",
    "b-mixed-decode": "The document describes this decode and gives no figure.",
    "b-random-losses": "The document loses random data shards in figure 3. It does not compare them with others.",
    "c-policies": "The document, in memory: at most 3576.58 MB/s and 53.23 % more; no difference with as many applications as cores.",
    "c-servers": "The document: better in all cases; at most 6.05 % (1 Gbit/s), 23.57 % (3 Gbit/s, 48 servers), 53.23 % (in memory).",
    "c-servers-processor": "The document: at most 27.14 % (1 Gbit/s) and 48.57 % (3 Gbit/s) better in unhalted cycles.",
    "c-writes": "The document: at most 53.23 % more in memory; no locality issue in writes.",
    "d-runtimes": "The document, between runtimes: 9.7 % (Cholesky), 63.8 % (LU), 9.4 % (QR).",
    "d-runtimes-busy": "The document had its machine to itself.",
    "d-waiting": "The document does not measure waiting.",
    "d-waiting-speed": "The document does not measure waiting.",
    "e-lu": "The document: 63.8 % over libgomp at 32768 x 32768, at most 165.1 %.",
    "e-lu-gantt": "The document (its figure 6): concurrent write leaves fewer gaps. No figure of idle time.",
    "e-pipeline": "Not in the document: Tandem's own target is 0.95 of the best.",
    "e-pipeline-gantt": "Not in the document.",
    "f-figure-2": "The document: the GPU alone is much faster than four cores; left free, no faster; a budget of 5 is best. No figures in its text.",
    "f-figure-3-real": "The document's tasks on the cores and the GPU: free 1,006 and 9; best budget (5 on the cores) 344 and 340. No times.",
    "f-figure-5": "The document: 32 x 16 is best of 16 x 16 to 32 x 32 (a product of matrices).",
    "f-figure-9": "The document: EP scales; PTRANS and FFT scale very little, 2 to 32 nodes. No figures in its text.",
    "f-figure-13a": "The document: HDD, below 80,000 clients Delayed Parity is no faster than WCL; above it comes close to RAID-0.",
    "f-figure-13c": "The document: STD-RAID loses up to 85 %; WCL 2x; Delayed Parity close to RAID-0 with many clients.",
    "f-figure-13d": "The document: WCL 1.18x; Delayed Parity gains more than with RAID-5.",
    "f-figure-13-volume": "The document: STD-RAID loses up to 85 %; WCL 2x STD-RAID; Delayed Parity close to RAID-0. Simulated, without a real volume.",
    "f-figure-13-mixed": "The document: mixed sizes make no significant difference with many clients; reads improve. No figures.",
}
SAYS |= {"a-figure-12-gf8": SAYS["a-figure-12"], "a-figure-14-gf8": SAYS["a-figure-14"], "b-figure-3-decode": SAYS["b-figure-3"],
         "f-figure-2-real": SAYS["f-figure-2"]}
# Grey lines: picture: (text, axis, value).
LINES = {
    "a-figure-15": [("the report: 14 disks", "x", 14)],
    "a-figure-16": [("the report: 100 MB", "x", 100), ("pthreads 1.7x", "y", 1.7), ("1.3x", "y", 1.3)],
    "a-spawn-pool": [("the report: from 4 MB on", "x", 4_000_000)],
    "c-servers": [("in memory, at most: 53.23 %", "y", 53.23), ("3 Gbit/s, 48 servers: 23.57 %", "y", 23.57)],
    "c-writes": [("in memory, at most: 53.23 %", "y", 53.23), ("3 Gbit/s, 48 servers: 23.57 %", "y", 23.57), ("1 Gbit/s: 6.05 %", "y", 6.05)],
    "f-figure-13-volume": [("Delayed Parity: close to 1", "y", 1), ("WCL: 2 x 0.15", "y", 0.3), ("STD-RAID, at least: 0.15", "y", 0.15)],
    "f-figure-13a": [("STD-RAID loses 85 %: 6.7", "y", 1 / 0.15), ("WCL: 2", "y", 2)],
    "f-figure-13c": [("STD-RAID loses 85 %: 6.7", "y", 1 / 0.15), ("WCL: 2", "y", 2)],
    "f-figure-13d": [("STD-RAID loses 85 %: 6.7", "y", 1 / 0.15), ("WCL: 1.18", "y", 1.18)],
}
# The picture at the top of the page: what a document promises most loudly. Label, study, the claim, and the document's figure or range, as a
# factor; how the figures of the claim are written: times ("2.62x"), more ("+92.5 %"), or a pair ("344 and 340").
HEADLINES = [
    ("A: order of the loops, GF(2^16)", "A", "Cache awareness (i,k,j in place of i,j,k), GF(2^16), 1000 + 10", (3,), "times"),
    ("A: order of the loops, GF(2^8)", "A", "Cache awareness (i,k,j in place of i,j,k), GF(2^8), 1000 + 10", (3,), "times"),
    ("A: pthreads", "A", "Speed-up by pthreads", (1.3, 1.7), "times"),
    ("A: OpenMP", "A", "Speed-up by OpenMP", (1.4,), "times"),
    ("B: over the original programs", "B", "Speed-up over the original programs, at most", (3, 4), "times"),
    ("B: 12 threads", "B", "m = 12: speed-up by 12 threads, at most", (4.24,), "times"),
    ("C: answers on the core that asked, in memory", "C", "More bandwidth than balanced handling, at most", (1.5323,), "more"),
    ("C: with 48 servers", "C", "More servers, more gain", (1.2357,), "more"),
    ("D: energy by Turbo Boost and governors", "D", "Less energy by Turbo Boost and governors", (1.093, 1.132), "more"),
    ("E: LU with concurrent write", "E", "LU: concurrent write over libgomp", (1.638,), "more"),
    ("F: tasks on the cores and on the GPU", "F", "The best budget; its tasks on the cores and on the GPU", (344 / 340,), "pair"),
    ("F: WCL, RAID-5", "F", "WCL over STD-RAID, RAID-5", (2,), "times"),
    ("F: WCL, RAID-6", "F", "WCL over STD-RAID, RAID-6", (1.18,), "times"),
]
WRITTEN = {"times": r"(\d+\.\d+)x", "more": r"([+-]\d+\.\d+) %", "pair": r"at \d+: (\d+) and (\d+)"}


def headline(label, claim, stated, written):
    """A row of the picture: the document's figures, and ours, least and most; hollow: no measurement of the thing itself."""
    found = re.findall(WRITTEN[written], claim["measured"])
    ours = [int(a) / int(b) for a, b in found] if written == "pair" else [float(each) if written == "times" else 1 + float(each) / 100 for each in found]
    is_judged = claim["verdict"] != "NOT MEASURED"
    needs = re.match(r"Needs \d+ cores", claim["why"])
    return {"label": label, "stated": stated, "ours": [min(ours), max(ours)] if is_judged and ours else [],
            "hollow": claim["measured"].startswith("simulated"),
            "verdict": claim["verdict"] if is_judged or not needs else needs[0].lower()}


# The claim is a speed-up: drawn over this line of the same picture. True: the values are times.
OVER = {"a-figure-15": ("sequential", True), "a-figure-16": ("sequential", True), "a-spawn-pool": ("sequential", True)}
for _m in (4, 8, 12):
    for _column, _operation in enumerate(("encode", "decode")):
        _name = f"b-figure-{4 if _m == 4 else 5}-m{_m}-{_operation}"
        _most = max(max(cells[_column], cells[_column + 2]) for (m, _), files in TABLE_2.items() if m == _m for cells in files.values())
        SAYS[_name] = f"The document's Table II, m = {_m}: at most {_most:.2f}x one thread of Jerasure."
        LINES[_name] = [(f"the document, at most: {_most:.2f}", "y", _most)]
        OVER[_name] = ("Jerasure, 1 thread", False)


def drawn(name, figure):
    """A measured figure as it is drawn: with what the document shows, and as a speed-up where the claim is one."""
    figure = {**figure, "says": SAYS.get(name, ""), "x_marks": [(text, value) for text, axis, value in LINES.get(name, ()) if axis == "x"],
              "marks": figure["marks"] + [(text, value) for text, axis, value in LINES.get(name, ()) if axis == "y"]}
    if name in OVER:
        reference, times = OVER[name]
        base = dict((point[0], point[1]) for series in figure["series"] if series["label"] == reference for point in series["points"])
        figure["series"] = [{"label": series["label"], "points": [[x, base[x] / y if times else y / base[x]] for x, y, *_ in series["points"]]}
                            for series in figure["series"]]
        figure["y"] = f"times as fast as {reference}"
    return figure
