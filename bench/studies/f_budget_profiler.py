#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Study F: the resources budget of OmpSs and its OpenCL profiler (Mont-Blanc D4.6, sections 1.1 and 1.2)."""
import collections
import csv
import json
import os

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
    rows = [[label, f"{found['makespan_seconds']:.1f}", *tasks_of(found)] for label, found in
            [*alone.items(), ("free", free), *((f"cpu={amount}", found) for amount, found in budgets.items()), ("auto", auto)]]
    study.table("figure-3", "Figure 3, simulated: the budget of CPU tasks", ["policy", "seconds", "CPU tasks", "GPU tasks"], rows,
                "docs/internals/FIGURE3.md has the timelines and says what the model leaves out.")
    speed = {label: 684 / found["makespan_seconds"] for label, found in runs.items()}
    study.claim("Cores and GPU left free are no faster than the GPU alone", f"simulated: {speed['4 cores, 1 GPU'] / speed['1 GPU']:.2f}x",
                speed["4 cores, 1 GPU"] <= 1.05 * speed["1 GPU"], MODEL)
    cpu, gpu = tasks_of(budgets[5])
    study.claim("A budget of 5 is best: 344 tasks on the cores, 340 on the GPU", f"simulated: best is {best}; at 5: {cpu} and {gpu}",
                budgets[5]["makespan_seconds"] <= budgets[best]["makespan_seconds"] and (cpu, gpu) == (344, 340), MODEL)
    many = run((CORES, GPU), "--policy", "budget", tasks=1015)
    cpu, gpu = tasks_of(many)
    study.claim("Free: 1006 tasks on the cores, 9 on the GPU", f"simulated: {cpu} and {gpu} of 1015", (cpu, gpu) == (1006, 9), MODEL)
    study.claim("The GPU alone is much faster than the four cores (figure 2)", f"simulated: {speed['1 GPU'] / speed['4 cores']:.2f}x",
                speed["1 GPU"] > 1.5 * speed["4 cores"], "The split of 340 to 344 means equal speeds. The model follows the split; "
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
    about = " (an OpenCL driver on the same cores)" if device.get("kind", "").endswith("cpu") else ""
    study.figure("figure-2-real", f"Figure 2 here: encode 10 + 4, {result['size_bytes'] / (1 << 20):g} MiB, cpu + {name}{about}",
                 "configuration", "GB/s of data", [("median", entries)], kind="bars",
                 note="`tandem-bench hybrid`: each alone, left free, every budget of CPU tasks, automatic.")
    rates = dict(entries)
    budget = max((rate for label, rate in entries if label.startswith("cpu=")), default=None)
    if budget is not None:
        study.claim("A budget is faster than free (real run)", f"{budget / rates['free']:.2f}x", budget > rates["free"],
                    f"cpu + {name}{about}. Where both devices are the same cores no share of the work can win.", timed=True)
    study.claim("(expected of Tandem) automatic is as fast as the best budget", f"{rates['auto'] / (budget or rates['free']):.2f}x",
                rates["auto"] >= 0.95 * (budget or rates["free"]), "Automatic may leave a device out; a budget may not.", timed=True)


def real_timeline(study, device):
    """Figure 3 on this machine's devices."""
    source, size = study.work / "content", study.pick(1, 48, 96) << 20
    source.write_bytes(os.urandom(size))
    panels, rows, idle = [], {}, []
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
        coded = collections.Counter()
        for tid, _, _, kind in boxes:
            coded[kind] += 1
        idle.append([label, f"{found['otherData']['makespan_seconds'] * 1e3:.1f}", ", ".join(f"{kind} {n}" for kind, n in coded.items())])
    study.figure("figure-3-real", f"Figure 3 here: encode of {size >> 20} MiB, cpu + {device['name']}", "milliseconds", "", panels,
                 kind="gantt", rows=rows, note="Recorded by `tandem encode --timeline`; one run each.")
    study.table("figure-3-real", "Tasks by kind", ["policy", "milliseconds", "boxes"], idle)


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
    study.claim("Profiling finds a configuration that is faster than the default", f"{gain:.2f}x; kept: {place[0]} x {place[1]}",
                gain > 1.02, "On a CPU driver the size of a work-group matters less than on the document's GPU. "
                "autotune keeps the built-in values unless others are clearly faster.", timed=True)


def measure(study):
    model(study)
    device = study.attempt("real run, timeline and profiler", opencl_device, study)
    if device is not None:
        real_run(study, device)
        real_timeline(study, device)
        study.attempt("figure 5", profiler, study, device)


TITLE = "OmpSs resources and the OpenCL profiler"
if __name__ == "__main__":
    st.main("F", TITLE, measure, __doc__)
