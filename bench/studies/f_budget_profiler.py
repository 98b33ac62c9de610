#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Study F: the resources budget of OmpSs, its OpenCL profiler, clusters, and delayed parity (Mont-Blanc D4.6)."""
import concurrent.futures
import csv
import json
import math
import os
import re
import statistics
import sys

import study as st
import charts  # noqa: F401, puts bench/ into the path
import heat_map

# docs/internals/FIGURE3.md: the model of the board. Its parameters were fitted to the document's split.
CORES, GPU, TASK_BYTES = "cpu:1x4x0.253216:inner=2:spawn=0.0358s:latency=0.4s", "gpu:1x1", 1_000_000_000
MODEL = "Simulated. The model's parameters were fitted to the document's split of tasks (FIGURE3.md), so it proves nothing about it."


def model(study):
    """Figures 2 and 3."""
    def run(workers, *flags, tasks=684):
        words = [word for worker in workers for word in ("--worker", worker)]
        return json.loads(study.command(study.program("tandem-bench"), "simulate", *words, "--work", tasks * TASK_BYTES, "--chunk",
                                        TASK_BYTES, *flags, "--json"))

    def tasks_of(found):
        counts = {each["name"]: each["tasks"] for each in found["workers"]}
        return counts.get("cpu", 0), counts.get("gpu", 0)

    free = run((CORES, GPU), "--policy", "budget")
    alone = {"4 cores": run((CORES,), "--policy", "budget"), "1 GPU": run((GPU,), "--policy", "budget")}
    budgets = {amount: run((CORES, GPU), "--policy", "budget", "--resource", f"cpu={amount}") for amount in range(1, 13)}
    auto = run((CORES, GPU), "--policy", "auto")
    best = min(budgets, key=lambda amount: budgets[amount]["makespan_seconds"])
    runs = {**alone, "4 cores, 1 GPU": free, "4 cores, 1 GPU, resources 5": budgets[5], "auto": auto}
    study.figure("figure-2", "Figure 2, simulated: 684 tasks on the board's model", "configuration", "tasks a second",
                 [("model", [(label, 684 / found["makespan_seconds"]) for label, found in runs.items()])], kind="bars",
                 note="A simulation, not a measurement; parameters fitted (docs/internals/FIGURE3.md).")
    speed = {label: 684 / found["makespan_seconds"] for label, found in runs.items()}
    study.claim("Cores and GPU left free against the GPU alone", "no faster", f"simulated: {speed['4 cores, 1 GPU'] / speed['1 GPU']:.2f}x",
                st.no_faster(speed["4 cores, 1 GPU"] / speed["1 GPU"]), MODEL, fitted=True)
    cpu, gpu = tasks_of(budgets[5])
    study.claim("The best budget; its tasks on the cores and on the GPU", "5; 344 and 340", f"simulated: best is {best}; at 5: {cpu} and {gpu}",
                budgets[5]["makespan_seconds"] <= budgets[best]["makespan_seconds"] and (cpu, gpu) == (344, 340), MODEL, fitted=True)
    many = run((CORES, GPU), "--policy", "budget", tasks=1015)
    cpu, gpu = tasks_of(many)
    study.claim("Free: tasks on the cores and on the GPU", "1006 and 9", f"simulated: {cpu} and {gpu} of 1015", (cpu, gpu) == (1006, 9), MODEL, fitted=True)
    study.claim("The GPU alone against the four cores (figure 2)", "much faster", f"simulated: {speed['1 GPU'] / speed['4 cores']:.2f}x",
                speed["1 GPU"] >= st.LIMIT["much"] * speed["4 cores"], "The split of 340 to 344 means equal speeds. The model follows the split; "
                "the document's two figures do not agree.")


def opencl_device(study):
    for device in json.loads(study.command(study.program("tandem"), "devices", "--json"))["devices"]:
        if device["name"].startswith("opencl:"):
            return device
    raise st.Unavailable("this machine has no OpenCL device (Debian, Ubuntu: apt-get install pocl-opencl-icd)")


def real_run(study, device):
    name = device["name"]
    sizes = study.pick("256KiB", "4MiB,32MiB", "4MiB,32MiB,256MiB")
    found = study.bench("hybrid", "--devices", f"cpu+{name}", "--operation", "encode", "--size", sizes, "--repeats",
                        study.pick(1, 7, 15), "--seconds", study.pick(0.005, 0.05, 0.05), "--saturation-seconds",
                        study.pick(0.02, 0.5, 1))
    result = found["results"][-1]
    entries = [(entry["name"] if entry["kind"] == "alone" else entry["name"] if entry["kind"] == "budget" else entry["kind"],
                entry["gb_per_second"]["median"]) for entry in result["entries"]]
    is_shared = device["kind"].endswith("cpu")  # then no share of the work can win
    about = " (an OpenCL driver on the same cores)" if is_shared else ""
    study.figure("figure-2-real", f"Figure 2 here: encode 10 + 4, {result['size_bytes'] / (1 << 20):g} MiB, cpu + {name}{about}",
                 "configuration", "GB/s of data", [("median", entries)], kind="bars",
                 note="`tandem-bench hybrid`: each alone, left free, every budget of CPU tasks, automatic.")
    judge_shares(study, f"cpu + {name}{about}.", entries, is_shared)


def judge_shares(study, devices, entries, is_shared):
    """By the rates of each device alone, left free, in every budget, and automatic."""
    rates = dict(entries)
    budget = max(rate for label, rate in entries if label.startswith("cpu="))
    why = devices + (f" Needs two devices: the CPU alone has {rates['cpu']:.1f} GB/s, the best budget {budget:.1f}, automatic {rates['auto']:.1f}." if is_shared else "")
    study.claim("A budget against free (real run)", "faster", f"{budget / rates['free']:.2f}x", None if is_shared else st.faster(budget / rates["free"]), why, timed=True)
    study.claim("Automatic against the best budget", "0.95 or more", f"{rates['auto'] / budget:.2f}x", None if is_shared else rates["auto"] >= 0.95 * budget,
                f"{why} Automatic may leave a device out; a budget may not.", timed=True, of="targets")


def real_timeline(study, device):
    """Figure 3 on this machine's devices."""
    source, size = study.work / "content", study.pick(1, 48, 96) << 20
    source.write_bytes(os.urandom(size))
    panels, rows, took = [], {}, []
    for policy, limit in (("budget", []), ("budget", ["--resource", "cpu=1"]), ("auto", [])):
        trace, out = study.work / "trace.json", study.work / "shards"
        study.command(study.program("tandem"), "encode", source, "-k", 10, "-m", 4, "-o", out, "--force", "--no-sync", "--quiet",
                      "--backend", f"hybrid:cpu+{device['name']}", "--policy", policy, *limit, "--timeline", trace)
        found = json.loads(trace.read_text())
        names = {e["tid"]: e["args"]["name"] for e in found["traceEvents"] if e["ph"] == "M" and e["name"] == "thread_name"}
        boxes = [(e["tid"], e["ts"] / 1e6, e["dur"] / 1e6, e["cat"]) for e in found["traceEvents"] if e["ph"] == "X"]
        order = {tid: i for i, tid in enumerate(sorted({box[0] for box in boxes}))}
        label = policy + (" (cpu=1)" if limit else "")
        panels.append((label, [(order[tid], *rest) for tid, *rest in boxes]))
        rows[label] = [names[tid] for tid in order]
        took.append(f"{label} {found['otherData']['makespan_seconds'] * 1e3:.1f}")
    study.figure("figure-3-real", f"Figure 3 here: encode of {size >> 20} MiB, cpu + {device['name']}", "milliseconds", "", panels,
                 kind="gantt", rows=rows, note="Recorded by `tandem encode --timeline`; one run each.",
                 result="Milliseconds: " + ", ".join(took) + ".")


def profiler(study, device):
    """Figure 5."""
    local = study.pick(["16,32", "1"], ["16,32", "16,32"], ["16,32,64", "1,16,32"])
    path = study.work / "tuning.tsv"
    log = study.command(study.program("tandem"), "autotune", "--backend", "opencl", "--device", device["name"].split(":", 1)[1],
                        "--operation", "encode", "--memory", "device", "--local-size", local[0], "--local-size", local[1], "--shard-bytes",
                        study.pick("4KiB", "256KiB", "1MiB"), "--repeats", study.pick(1, 3, 5), "--max-seconds", study.pick(1, 25, 240),
                        "--output", path, "--quiet", "--log", env={"TANDEM_CACHE_DIR": str(study.work)}, errors=True)
    cases, built_in = heat_map.read_log(log.splitlines())
    if not cases:
        raise st.Unavailable("autotune measured nothing in its time")
    (case, measured), = cases.items()
    best = {}
    for values, rate in measured.items():
        if not isinstance(rate, str):
            place = dict(values)["local_x"], dict(values)["local_y"]
            best[place] = max(rate / 1e9, best.get(place, 0))
    with open(path, encoding="utf-8") as stream:
        entry, = csv.DictReader(stream, delimiter="\t")
    first = dict(built_in[case])
    kept = {**first, **{name: int(value) for name, value in (each.split("=") for each in entry["values"].split(", ") if each)}}
    cells = sorted((x, y, rate) for (x, y), rate in best.items())
    place = kept["local_x"], kept["local_y"]
    study.figure("figure-5", f"Figure 5 here: work-group sizes, encode 10 + 4 on {device['name']}", "local size, first dimension",
                 "local size, second dimension", [("GB/s of data", cells)], kind="heat",
                 marks=[("built-in", first["local_x"], first["local_y"]), ("winner", *place)],
                 note=f"`tandem autotune`, {len(measured)} settings; the best of the other values for each cell, measured at different times.")
    gain = float(entry["bytes_per_second"]) / float(entry["default_bytes_per_second"])
    study.claim("Profiling finds a configuration that is faster than the default", "figure 5", f"{gain:.2f}x; kept: {place[0]} x {place[1]}",
                st.faster(gain), "On a CPU driver the size of a work-group matters less than on the document's GPU. "
                "autotune keeps the built-in values unless others are clearly faster.", timed=True)


def cluster(study):
    """Figure 9: coding across nodes of a network as slow as the prototype's. The library's exchange on SimGrid's MPI."""
    for tool in ("smpicxx", "smpirun"):
        study.tool(tool, "libsimgrid-dev")
    nodes, lines = study.pick([1, 2], [1, 2, 4, 8, 16, 32], [1, 2, 4, 8, 16, 32]), {}
    for operation, speed, platform in (("encode", "1 Gbit/s", "gigabit.xml"), ("protect", "100 Gbit/s", "platform.xml"), ("protect", "1 Gbit/s", "gigabit.xml")):
        printed = study.command(sys.executable, st.SOURCE / "bench/cluster.py", "simulate", "--operation", operation, "--platform",
                                st.SOURCE / "bench/cluster" / platform, "-o", study.work / "cluster.json", "--program", study.work / "exchange_sim", "--pieces", 4, "--code-rate", 0.5e9, "--read-rate", 1e9, "--write-rate", 1e9,
                                "--nodes", *nodes)
        rates = {point["nodes"]: point["bytes_per_second"] for point in map(json.loads, printed.splitlines())}
        lines[f"{operation}, {speed}"] = [(count, rates[count] / rates[nodes[0]]) for count in nodes]
    study.figure("figure-9", "Figure 9 here, simulated: encode and protect of 3 + 1 across nodes, 4 ranks a node", "nodes", "times one node", list(lines.items()),
                 log_x=True, log_y=True, note="SimGrid; assumed: 0.5 GB/s of coding, 1 GB/s of reading and writing a rank. Each node has as much data as before.")
    # The report plots 2 to 32 nodes; one node here exchanges in memory.
    first, last = nodes[1], nodes[-1]
    alone, fast, slow = (by[last] / by[first] for by in map(dict, lines.values()))
    ideal = f"of {last // first} ideal"
    study.claim(f"No exchange (EP): scales with the nodes, {first} to {last}", "scales", f"simulated: {alone:.1f}x {ideal}", st.no_faster(last / first / alone),
                "encode: reading, coding and writing take assumed times, and the ranks share hashes alone.")
    study.claim(f"All ranks exchange blocks (PTRANS): limited scaling, {first} to {last} nodes", "very limited", f"simulated: {slow:.1f}x {ideal} on 1 Gbit/s, "
                f"{fast:.1f}x on 100 Gbit/s", st.LIMIT["much"] * slow <= last / first, "No counterpart: ranks of protect exchange within groups of 4 and have as much data "
                "as before; those of PTRANS exchange with all, and its matrix stays the same.")


VOLUME = {"standard": "STD-RAID", "avoid": "WCL", "delayed": "Delayed Parity"}
NAMES = {"raid0": "RAID-0", "avoid": "WCL", "delayed": "Delayed Parity"}
TOTAL_BYTES, SEEDS, STUDENT = 250_000 * 16384, 3, 4.303  # the report's 250,000 clients of 16 KiB; t of 0.975 for 3 seeds


def storage(study, *flags):
    """The simulator's runs, and the write rates over STD-RAID of the same seed: by (parity, clients, bytes of a write, strategy) the mean
    and its 95 % interval. Strategies run side by side: no time is measured."""
    words = "simulate", "storage", *study.pick(["--servers", 16, "--application", 20], ["--servers", 128], []), "--seeds", SEEDS, *flags
    with concurrent.futures.ThreadPoolExecutor(st.core_count()) as pool:
        runs = [run for found in pool.map(lambda strategy: study.bench(*words, "--strategy", strategy), ("delayed", "standard", "avoid", "raid0"))
                for run in found["runs"]]
    rates = {(run["parity"], run["clients"], run["size_bytes"], run["strategy"]): [seed["bytes_per_second"] for seed in run["seeds"]] for run in runs}
    ratios = {}
    for (*point, strategy), values in rates.items():
        each = [value / base for value, base in zip(values, rates[(*point, "standard")])]
        mean, half = statistics.mean(each), STUDENT * statistics.stdev(each) / math.sqrt(SEEDS)
        ratios[(*point, strategy)] = (mean, mean - half, mean + half)
    return runs, ratios


def figure_13(study):
    """Figure 13 on HDD: several seeds with intervals. c, d: strong scaling. a: weak scaling."""
    total, sizes = study.pick((4 << 20, "16KiB,1MiB"), (TOTAL_BYTES // 4, "16KiB,1MiB"), (TOTAL_BYTES, "8KiB,16KiB,64KiB,256KiB,1MiB"))
    runs, strong = storage(study, "--parity", "1,2", "--total", total, "--size", sizes, "--confidence", 0.05)
    _, weak = storage(study, "--clients", study.pick("20,40", "1029,9996", "1029,9996,79968"), "--confidence", 0.05)
    seconds = [seed["simulated_seconds"] for run in runs for seed in run["seeds"]]

    def lines(ratios, parity, axis):
        return [(name, sorted((point[axis], *ratio) for point, ratio in ratios.items() if point[0] == parity and point[3] == strategy))
                for strategy, name in NAMES.items()]

    note = (f"{SEEDS} seeds, with the 95 % interval of their mean; each until its own interval is 5 % ({min(seconds):.0f} to {max(seconds):.0f} s simulated; the "
            "report: 1000 s).")
    for letter, parity, ratios, axis, what in (("a", 1, weak, 1, "weak scaling, 128 KiB"), ("c", 1, strong, 2, "strong scaling"),
                                               ("d", 2, strong, 2, "strong scaling")):
        study.figure(f"figure-13{letter}", f"Figure 13{letter} here, simulated: RAID-{4 + parity} on HDD, {what}", "clients" if axis == 1 else "bytes of a write",
                     "write rate over STD-RAID", lines(ratios, parity, axis), log_x=True, log_y=True, note=note)
    by = {(parity, name): points for parity in (1, 2) for name, points in lines(strong, parity, 2)}
    judge_strong(study, by)
    few = {clients: (weak[1, clients, size, "delayed"][0], weak[1, clients, size, "avoid"][0]) for _, clients, size, _ in weak if clients < 80_000}
    study.claim("HDD, below 80,000 clients: Delayed Parity is no faster than WCL", "comparable", "simulated: " + ", ".join(
        f"{delayed:.2f}x against {avoid:.2f}x ({clients:,})" for clients, (delayed, avoid) in few.items()),
        all(st.no_faster(delayed / avoid) for delayed, avoid in few.values()), "The report does not publish its device model, nor what servers and network cost at low load.")
    seeds = [seed for run in runs for seed in run["seeds"] if (run["parity"], run["size_bytes"], run["strategy"]) == (1, 16384, "delayed")]
    updates = 250_000 * sum(seed["parity_updates"] for seed in seeds) / sum(seed["writes"] for seed in seeds)
    study.claim("Parity updates for 250,000 writes of 16 KiB", "1.7K in place of 250K", f"simulated: {updates:,.0f}", st.matches(updates / 1000, "1.7"), "Counted.")


def judge_strong(study, by):
    """By the points of figures 13c and 13d: of a parity and a strategy, the smallest writes first."""
    losses = [100 * (1 - 1 / ratio) for parity in (1, 2) for _, ratio, *_ in by[parity, "RAID-0"]]
    study.claim("STD-RAID loses against RAID-0, at most", "85 %", f"simulated: {max(losses):.0f} %", st.matches(max(losses), "85"), "By counts of operations 75 and 83 %.")
    for parity, stated in ((1, "2"), (2, "1.18")):
        values = [ratio for _, ratio, *_ in by[parity, "WCL"]]
        study.claim(f"WCL over STD-RAID, RAID-{4 + parity}", f"{stated}x", f"simulated: {min(values):.2f}x to {max(values):.2f}x",
                    st.matches(st.median(values), stated), "The median is judged. By counts of operations 1.33x and 1.20x (STORAGE.md).")
    many, near = by[1, "Delayed Parity"][0][1], by[1, "RAID-0"][0][1]
    study.claim("Delayed Parity with many clients", "close to RAID-0, below it", f"simulated: {many:.1f}x, RAID-0 {near:.1f}x", many <= near and st.alike(many, near),
                "Writes of a window lie side by side here, so disks seek less than those of RAID-0 with scattered writes (STORAGE.md).")


def figure_13_long(study):
    """The report's own length of a run."""
    flags = "--clients", study.pick(40, 257, 1029)
    seconds = study.pick(5, 100, 1000)
    _, whole = storage(study, *flags, "--seconds", seconds, "--confidence", 0)
    _, short = storage(study, *flags, "--seconds", seconds, "--confidence", 0.05)
    apart = {NAMES[key[3]]: short[key][0] / whole[key][0] - 1 for key in whole if key[3] in NAMES}
    study.claim(f"Runs until an interval of 5 % agree with runs of {seconds} s", "within 5 %", f"simulated: at most {100 * max(map(abs, apart.values())):.1f} % apart",
                max(map(abs, apart.values())) <= 0.05, "The report stops after 1000 simulated seconds.", of="targets")


def figure_13_mixed(study):
    """Mixed sizes, and reads: the report has no figure of them."""
    flags = "--clients", study.pick(40, 2058, 9996), "--confidence", 0.05
    cases = {"128 KiB": (), "8 KiB to 1 MiB": ("--mix", "--size", "8KiB,32KiB,128KiB,512KiB,1MiB"), "128 KiB, 30 % reads": ("--reads", 0.3)}
    lines = {}
    for case, more in cases.items():
        runs, ratios = storage(study, *flags, *more)
        by_strategy = {strategy: ratio for (*_, strategy), ratio in ratios.items()}
        for strategy, name in NAMES.items():
            lines.setdefault(name, []).append((case, *by_strategy[strategy]))
        reads = {run["strategy"]: statistics.mean(seed["read_seconds"] for seed in run["seeds"]) for run in runs}
    study.figure("figure-13-mixed", "Mixed sizes and reads, simulated: RAID-5 on HDD", "workload", "write rate over STD-RAID", list(lines.items()), kind="bars",
                 note=f"{flags[1]} clients; {SEEDS} seeds, with the 95 % interval of their mean. Sizes are equally frequent; reads go to scattered places.")
    change = {name: points[1][1] / points[0][1] for name, points in lines.items()}
    study.claim("Mixed sizes in place of one size", "no significant difference", "simulated: " + ", ".join(f"{name} {ratio:.2f}x" for name, ratio in change.items()),
                all(st.alike(1, ratio) for ratio in change.values()), "Of writes of 8 KiB to 1 MiB the mean is 341 KiB.")
    faster = {NAMES[strategy]: reads["standard"] / reads[strategy] for strategy in ("avoid", "delayed")}
    study.claim("Reads among the writes become faster than with STD-RAID", "improved", "simulated: " + ", ".join(f"{name} {ratio:.2f}x" for name, ratio in faster.items()),
                all(st.faster(ratio) for ratio in faster.values()), "Mean time of a read of 128 KiB, waiting included. Each client always has one request under way, so faster writes do not leave the disks idle.")


def figure_13_volume(study):
    """Figure 13 beside a real volume: the write rates of stored runs. Nothing is measured here."""
    stored = json.loads((st.SOURCE / "bench/results/storage/weak-scattered.json").read_text())["runs"]
    servers, in_flight = 512, 64 / 8  # of the volume, for each of its members: the stored run nearest to it
    clients = min((run["clients"] for run in stored), key=lambda count: abs(math.log(count / servers / in_flight)))
    lines = {}
    for device in ("hdd", "ssd"):
        rates = {run["strategy"]: run["bytes_per_second"] for run in stored if (run["device"], run["parity"], run["clients"]) == (device, 1, clients)}
        lines[f"simulated {device.upper()}"] = [(name, rates[strategy] / rates["raid0"]) for strategy, name in VOLUME.items()]
    table = (st.SOURCE / "docs/internals/VOLUME.md").read_text()
    rows = {"standard": "standard", "avoid": "avoidance (WCL)", "delayed": "delayed, with its begin and end"}
    lines["real volume"] = [(name, float(re.search(rf"^\| {re.escape(rows[strategy])} \| ([\d.]+) \|", table, re.M)[1])) for strategy, name in VOLUME.items()]
    study.figure("figure-13-volume", "Figure 13 beside a real volume: one parity shard, writes of 128 KiB", "", "part of plain striping (RAID-0)", list(lines.items()), kind="bars",
                 note=f"Simulated: {servers} servers, {clients:,} clients (STORAGE.md). Real: 7 + 1 members of 5 ms a request, 64 writes in flight (VOLUME.md).",
                 result="Of plain striping: " + "; ".join(f"{label} " + ", ".join(f"{rate:.2f} ({name})" for name, rate in points) for label, points in lines.items()) + ".")


PARTS = {"model": model, "figure-9": cluster, "figure-13": figure_13, "figure-13-long": figure_13_long, "figure-13-mixed": figure_13_mixed, "figure-13-volume": figure_13_volume, **{name: lambda study, part=part: part(study, opencl_device(study))
                            for name, part in (("figure-2", real_run), ("figure-3", real_timeline), ("figure-5", profiler))}}
TITLE = "OmpSs resources, the OpenCL profiler, clusters and delayed parity"
if __name__ == "__main__":
    st.main("F", TITLE, PARTS, __doc__)
