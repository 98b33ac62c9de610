#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Study C: source-aware placement (Zou, Sun, Ma, Duan: SAIs), in memory."""
import study as st

PROGRAM = "study_placement"
NETWORK = "more bandwidth over a network (6.05 % with 1 Gbit/s; 23.57 % with 3 Gbit/s and 48 servers; 20.46 % with 8 clients of 8 servers)"
STRIP, STRIPS = 65536, 16  # the document: strips of 64 KB, transfers of 1 MB
POLICIES = {"core that asked": "asking", "core that runs the process": "running", "least loaded": "least-loaded",
            "dedicated core": "dedicated", "in turns": "turns"}

SECONDS = "The difference is in seconds: what reads save less what writes save. No data moves in writes, so they save the price of waking another core."
SIDE_BY_SIDE = "Least loaded cores copy the strips of a read side by side, and copy nothing of a write: the difference is locality less parallel copies."


def placement(study):
    cores = st.core_count()
    counts = sorted({1, *range(cores, 2 * cores + 1), max(1, cores // 2)})
    requests = study.pick(3, 400, 2000)
    sizes = {"strip_bytes": study.pick(4096, STRIP, STRIP), "strips": STRIPS}

    def experiment():
        samples = {}
        for _ in range(study.pick(1, 5, 9)):  # in turns
            for count in counts:
                for label, policy in POLICIES.items():
                    samples.setdefault((label, count), []).append(
                        study.contender(PROGRAM, policy=policy, applications=count, requests=requests, **sizes))
        return samples

    samples = experiment()

    def rate(label, count):
        return st.median([s["data_bytes"] / s["seconds"][0] for s in samples[label, count]]) / 1e9

    study.figure("policies", f"{STRIPS} strips of {sizes['strip_bytes'] // 1024} KiB a request: rate over applications",
                 "applications", "GB/s of strips", [(label, [(count, rate(label, count)) for count in counts]) for label in POLICIES],
                 note=f"{cores} cores; more applications than that are oversubscribed. One handler thread on each core in every policy.")
    rows = []
    for label in POLICIES:
        found = samples[label, cores]
        rows.append([label, f"{rate(label, cores):.2f}", f"{100 * sum(s['strips_on_the_asking_core'] for s in found) / sum(s['strips'] for s in found):.1f} %",
                     f"{sum(s['cpu_seconds'][0] for s in found) / sum(s['data_bytes'] for s in found) * 1e9:.3f}"])
    study.table("policies", f"Where strips were handled (sched_getcpu for each strip), {cores} applications",
                ["policy", "GB/s", "on the asking core", "processor seconds a GB"], rows,
                "Each application is pinned, so the core that asked and the core that runs the process are the same one.")
    study.not_measured(NETWORK, "needs a network card, its interrupts, and servers of a parallel file system")
    # The document's event counts clocks of cores that are not halted: more of them is less waiting.
    busy = {label: max(st.median([s["cpu_seconds"][0] / s["seconds"][0] for s in samples[label, count]]) for count in counts if count <= cores)
            for label in ("core that asked", "least loaded")}
    study.claim("More unhalted time, so less waiting", "27.14 and 48.57 % (1 and 3 Gbit/s)",
                f"{100 * (busy['core that asked'] / busy['least loaded'] - 1):+.1f} % processor time in the same elapsed time", None,
                "Not comparable: the document's cores wait for a network card. Here no core waits for a device; one halts until a handler has woken.")
    gain = rate("core that asked", cores) / rate("least loaded", cores)
    study.claim("As many applications as cores", "no difference", f"{100 * (gain - 1):+.1f} % at {cores} applications", st.alike(1, gain),
                "A part of it is the price of waking a core, which writes pay as well (below).", timed=True)

    counted = [s.get("cache_misses") for s in samples["core that asked", 1] + samples["least loaded", 1]]
    if all(value is not None for value in counted):
        asked, balanced = (st.median([s["cache_misses"] for s in samples[label, 1]]) for label in ("core that asked", "least loaded"))
        study.claim("Fewer L2 misses", "51.37 %", f"{100 * (asked / balanced - 1):+.1f} % last-level misses", st.reaches(100 * (1 - asked / balanced), "51.37"),
                    "perf's generic event counts the last level; the document counts its private L2.")
    else:
        reason = samples["core that asked", 1][0]["cache_misses_not_measured"]
        study.not_measured("cache misses", f"{reason}: this machine has no performance counters, or does not let this user read them")
        study.claim("Fewer L2 misses", "51.37 %", "-", None, reason)

    model = study.attempt("the model's P and M", lambda: study.contender(PROGRAM, policy="model", repeats=study.pick(3, 200, 1000),
                                                                          **sizes))
    if model is None:
        study.claim("The model predicts the result", "within 25 %", "-", None, study.part["not_measured"][-1]["reason"], of="targets")
        return
    p, remote = st.median(model["local_seconds"]), st.median(model["remote_seconds"])
    m = max(0, remote - p)
    source = st.median([s["seconds"][0] for s in samples["core that asked", 1]])
    balanced = st.median([s["seconds"][0] for s in samples["in turns", 1]])
    coding = p * STRIPS * requests
    rest = source - coding
    predicted = rest + coding + m * STRIPS * (cores - 1) / cores * requests
    study.table("model", "The model, equations 1 to 6, one application", ["", ""],
                [["P: coding a strip that this core wrote (processor time)", f"{p * 1e6:.2f} us"],
                 ["M: what more it takes if another core wrote it", f"{m * 1e6:.2f} us"],
                 ["T of source-aware, measured", f"{source * 1e3:.2f} ms"],
                 ["T_R = T - P x strips x requests", f"{rest * 1e3:.2f} ms"],
                 ["T of balanced (in turns), predicted by the formula", f"{predicted * 1e3:.2f} ms"],
                 ["T of balanced (in turns), measured", f"{balanced * 1e3:.2f} ms"]],
                "Predicted: T_R + P x strips x requests + M x strips x (cores - 1) / cores x requests, without overlap.")
    error = predicted / balanced - 1
    study.claim("The model predicts the result", "within 25 %", f"speed-up {predicted / source:.2f} predicted, {balanced / source:.2f} "
                f"measured; off by {100 * error:+.0f} %", abs(error) <= 0.25,
                f"The document assumes M >> P; here M / P is {m / p:.1f}. The formula leaves out what waking another core costs, and "
                "what copies on several cores at once gain.", timed=True, of="targets")


def in_turns(study, repeats, cases):
    """cases: settings by key, all of them in turns. (seconds, GB/s, processor seconds a GB) of each run, by key."""
    found = {}
    for _ in range(repeats):
        for key, settings in cases.items():
            one = study.contender(PROGRAM, **settings)
            gigabytes = one["data_bytes"] / 1e9
            found.setdefault(key, []).append((one["seconds"][0], gigabytes / one["seconds"][0], one["cpu_seconds"][0] / gigabytes))
    return found


def spread(values):
    return st.median(values), min(values), max(values)


def servers(study):
    """Figures 5 and 8 to 11: the number of servers, and the size of a transfer."""
    labels = "core that asked", "least loaded"
    # A transfer has a strip from each server, and none is smaller than 64 KiB: 32 strips at most, so 48 servers are as 32.
    shape = {(count, size): min(count, size // STRIP) for count in (8, 16, 32) for size in (131072, 524288, 1048576, 2097152)}
    found = in_turns(study, study.pick(1, 5, 9), {
        (operation, label, size, strips): {"operation": operation, "policy": POLICIES[label], "requests": study.pick(2, 200, 800),
                                           "strip_bytes": size // strips, "strips": strips}
        for operation in ("read", "write") for label in labels for (_, size), strips in shape.items()})
    gains, used = {}, {}
    for (count, size), strips in shape.items():
        name = f"{count} servers" if count < 32 else "32 or 48 servers"
        gains.setdefault(name, []).append((size, *spread(moved(*([found[operation, label, size, strips] for operation in ("read", "write") for label in labels])))))
        for label in labels:
            used.setdefault(f"{label}, {name}", []).append((size, *spread([each[2] for each in found["read", label, size, strips]])))
    study.figure("servers", "Core that asked over the least loaded core: seconds that reads save more than writes, one application", "bytes of a transfer", "percent of the read time",
                 list(gains.items()), log_x=True, note="Median, slowest and fastest of runs in turns. In memory; the document's figure 5 has a network. Least loaded cores copy side by side.")
    judge_servers(study, gains)
    study.figure("servers-processor", "Processor time of reads, one application", "bytes of a transfer", "processor seconds a GB", list(used.items()), log_x=True,
                 note="Of the whole process: handlers, application, and what waking costs.",
                 result="The core that asked takes {:.2f} to {:.2f} of the processor time of the least loaded one.".format(
                     *(pick(mine[1] / theirs[1] for name in gains for mine, theirs in zip(used[f"{labels[0]}, {name}"], used[f"{labels[1]}, {name}"]))
                       for pick in (min, max))))


def judge_servers(study, gains):
    """By the points of each number of servers: bytes of a transfer, percent of the read time."""
    why = f"{SECONDS} {SIDE_BY_SIDE}"
    every = [gain for points in gains.values() for _, gain, *_ in points]
    study.claim("Better for every size of a transfer and number of servers (figure 5)", "in all cases", f"{min(every):+.1f} % to {max(every):+.1f} %",
                st.faster(1 + min(every) / 100), f"{why} In memory; the document's figure 5 has a network.", timed=True)
    largest = {name: points[-1][1] for name, points in gains.items()}
    study.claim("More servers, more gain", "at most 23.57 % with 48 servers", ", ".join(f"{gain:+.1f} % ({name})" for name, gain in largest.items()),
                st.faster(1 + min(largest.values()) / 100) and st.grows([1 + gain / 100 for gain in largest.values()]), f"{why} Transfers of 2 MiB.", timed=True)


def gains_of(asked, balanced):
    """Percent, of runs in turns."""
    return [100 * (a[1] / b[1] - 1) for a, b in zip(asked, balanced)]


def moved(read_asked, read_balanced, write_asked, write_balanced):
    """Percent of the read time: the seconds that reads save, less those that as many writes save. Of a write no data moves between cores, so it
    saves the price of waking another core. Seconds, because percents of two unlike times have no difference."""
    return [100 * ((balanced[0] - asked[0]) - (control_balanced[0] - control[0])) / asked[0]
            for asked, balanced, control, control_balanced in zip(read_asked, read_balanced, write_asked, write_balanced)]


def writes(study):
    """The document studies reads alone, because it saw no difference for writes. They are the control: what they gain is no data's gain."""
    labels = "core that asked", "least loaded"
    found = in_turns(study, study.pick(1, 7, 15), {
        (operation, label): {"operation": operation, "policy": POLICIES[label], "requests": study.pick(3, 200, 1000), "strip_bytes": STRIP, "strips": STRIPS}
        for operation in ("read", "write") for label in labels})
    reads, control = (gains_of(*(found[operation, label] for label in labels)) for operation in ("read", "write"))
    difference = spread(moved(*(found[operation, label] for operation in ("read", "write") for label in labels)))
    study.figure("writes", f"Core that asked over the least loaded core: {STRIPS} strips of {STRIP >> 10} KiB, one application", "", "percent more bandwidth, each of its own time",
                 [("median", [("reads", *spread(reads)), ("writes: no data moves", *spread(control)), ("difference of seconds", *difference)])],
                 kind="bars", note="Slowest and fastest of runs in turns. Of a write, a handler takes the answer to each strip, without data; the application sends. "
                      "The difference: reads less writes, in percent of the read time.")
    judge_writes(study, st.median(reads), st.median(control), difference[0])


def judge_writes(study, read, write, difference):
    """Percent more bandwidth, each of its own time; the difference of seconds in percent of the read time, or None if a run kept no seconds: then
    reads, with nothing taken off, bound it."""
    if difference is None:
        measured = f"at most {read:+.1f} % (reads, with nothing taken off; writes gain {write:.1f} % of their own time)"
        holds = None if write < 0 or st.reaches(read, "53.23") else False
    else:
        measured = f"{difference:+.1f} % of the read time (reads gain {read:.1f} %; writes {write:.1f} % of their own time)"
        holds = st.reaches(difference, "53.23")
    study.claim("More bandwidth than balanced handling, at most", "53.23 %", measured, holds, f"In memory. {SECONDS} {SIDE_BY_SIDE}"
                + (" The stored run kept no seconds, so the bound is judged." if difference is None else ""), timed=True)
    study.claim("Writes: where answers are handled does not matter", "no locality issue", f"{write:+.1f} % by the core that asked",
                st.alike(1, 1 + write / 100), "No data moves; what is left is the price of waking another core.", timed=True)


def equations(study):
    """Equations 7 to 9 with this machine's P and M."""
    cores, each = st.core_count(), study.pick(2, 100, 400)
    requests = each * 2 * cores
    model = study.contender(PROGRAM, policy="model", repeats=study.pick(3, 200, 1000), strip_bytes=STRIP, strips=STRIPS)
    p = st.median(model["local_seconds"])
    m = max(0, st.median(model["remote_seconds"]) - p)
    programs = (1, cores, 2 * cores)
    found = in_turns(study, study.pick(1, 5, 9), {
        (label, count): {"policy": POLICIES[label], "applications": count, "requests": requests // count, "strip_bytes": STRIP, "strips": STRIPS}
        for label in ("core that asked", "in turns") for count in programs})
    took = {key: st.median([seconds for seconds, *_ in samples]) for key, samples in found.items()}
    alone, shared = (took["core that asked", count] for count in (1, cores))
    coding = p * STRIPS * requests
    least = alone - coding + coding / cores
    difference = took["in turns", 2 * cores] - took["core that asked", 2 * cores]
    bound = (cores - 1) * requests * STRIPS / cores * (m - p)
    most = max(rate for samples in found.values() for _, rate, _ in samples)
    study.claim(f"Equation 8: the time of {cores} programs lies between two bounds", "T_R + P N_S N_R / N_P to T_R + P N_S N_R",
                f"{least * 1e3:.1f} to {alone * 1e3:.1f} ms; measured {shared * 1e3:.1f} ms", least <= shared <= alone,
                f"T_R is the time of one program less its coding (P = {p * 1e6:.2f} us). The document's does not shrink with more programs; here copies of several programs "
                f"run side by side. Equation 7: the greatest bandwidth seen ({most:.2f} GB/s) allows {most * 1e9 / STRIPS / STRIP:.0f} requests a second; one program makes "
                f"{requests / alone:.0f}.", timed=True)
    study.claim(f"Equation 9: what {2 * cores} programs gain, at least", "(N_C - 1) N_R alpha (M - P)", f"at least {bound * 1e3:.1f} ms; measured "
                f"{difference * 1e3:.1f} ms", difference >= bound if bound > 0 else None,
                f"The document assumes M >> P; here M / P is {m / p:.1f}." + (" A bound below zero says nothing." if bound <= 0 else ""), timed=True)


PARTS = {"placement": placement, "servers": servers, "writes": writes, "equations": equations}
TITLE = "Source-aware placement"
if __name__ == "__main__":
    st.main("C", TITLE, PARTS, __doc__)
