#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Study C: source-aware placement (Zou, Sun, Ma, Duan: SAIs), in memory."""
import study as st

PROGRAM = "study_placement"
NETWORK = (("More bandwidth, 1 Gbit/s", "6.05 %"), ("More bandwidth, 3 Gbit/s, 48 servers", "23.57 %"),
           ("More bandwidth, 8 clients of 8 servers", "20.46 %"))
STRIP, STRIPS = 65536, 16  # the document: strips of 64 KB, transfers of 1 MB
POLICIES = {"core that asked": "asking", "core that runs the process": "running", "least loaded": "least-loaded",
            "dedicated core": "dedicated", "in turns": "turns"}


def placement(study):
    cores = st.core_count()
    counts = sorted({1, *range(cores, 2 * cores + 1), max(1, cores // 2)})
    requests = study.pick(3, 400, 2000)
    sizes = {"strip_bytes": study.pick(4096, STRIP, STRIP), "strips": STRIPS}

    def experiment():
        samples = {}
        for _ in range(study.pick(1, 5, 15)):  # in turns
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
        for count in counts:
            found = samples[label, count]
            strips = sum(s["strips"] for s in found)
            rows.append([label, count, "oversubscribed" if count > cores else "", f"{rate(label, count):.2f}",
                         f"{100 * sum(s['strips_on_the_asking_core'] for s in found) / strips:.1f} %",
                         f"{sum(s['cpu_seconds'][0] for s in found) / sum(s['data_bytes'] for s in found) * 1e9:.3f}"])
    study.table("policies", "Where strips were handled (sched_getcpu for each strip)",
                ["policy", "applications", "", "GB/s", "on the asking core", "processor seconds a GB"], rows,
                "Each application is pinned, so the core that asked and the core that runs the process are the same one.")
    study.table("network", "The document's figures with a network, beside this machine", ["", "the document", "here"],
                [[what, stated, "NOT MEASURED: needs a network card, its interrupts, and servers of a parallel file system"] for what, stated in NETWORK]
                + [["Bandwidth in memory, at most", "3576.58 MB/s",
                    f"{1000 * max(rate('core that asked', count) for count in counts):.0f} MB/s"]])
    used = {label: min(sum(s["cpu_seconds"][0] for s in samples[label, count]) / sum(s["data_bytes"] for s in samples[label, count]) * 1e9
                       for count in counts if count <= cores) for label in POLICIES}
    less = 100 * (1 - used["core that asked"] / used["least loaded"])
    study.claim("Less processor time a GB than balanced handling", "27.14 and 48.57 % (1 and 3 Gbit/s)", f"{less:.1f} %", less >= 25,
                "The document counts cycles in which a core is not halted; here it is the processor time of the process.", timed=True)
    gains = {count: 100 * (rate("core that asked", count) / rate("least loaded", count) - 1) for count in counts}
    best = max(gains, key=gains.get)
    study.claim("More bandwidth than balanced handling, at most", "53.23 %", f"{gains[best]:+.1f} % at best, {best} applications",
                gains[best] >= 50, "Handling is a copy of 64 KiB here, not an interrupt with its network stack.", timed=True)
    study.claim("As many applications as cores", "no difference", f"{gains[cores]:+.1f} % at {cores} applications",
                abs(gains[cores]) <= 5, "Within 5 % counts as equal.", timed=True)

    counted = [s.get("cache_misses") for s in samples["core that asked", 1] + samples["least loaded", 1]]
    if all(value is not None for value in counted):
        asked, balanced = (st.median([s["cache_misses"] for s in samples[label, 1]]) for label in ("core that asked", "least loaded"))
        study.claim("Fewer L2 misses", "51.37 %", f"{100 * (asked / balanced - 1):+.1f} % last-level misses", asked <= 0.6 * balanced,
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


def transfers(study):
    """The size of a transfer, as in the document's figure 5."""
    sizes, requests = study.pick([1, 2], [2, 4, 8, 16, 32], [2, 4, 8, 16, 32, 64]), study.pick(3, 400, 2000)
    strip = study.pick(4096, STRIP, STRIP)
    samples = {}
    for _ in range(study.pick(1, 5, 9)):  # in turns
        for strips in sizes:
            for label in ("core that asked", "least loaded"):
                found = study.contender(PROGRAM, policy=POLICIES[label], applications=1, requests=requests, strip_bytes=strip, strips=strips)
                samples.setdefault((label, strips), []).append(found["data_bytes"] / found["seconds"][0])
    gains = [(strips * strip, st.median(samples["core that asked", strips]) / st.median(samples["least loaded", strips])) for strips in sizes]
    study.figure("transfers", "Bandwidth with the core that asked over the least loaded core, one application", "bytes of a transfer",
                 "times as fast", [("median", gains)], log_x=True, marks=[("the document, in memory, at most: 1.53", 1.5323)])
    study.claim("Better for every size of a transfer (figure 5)", "in all cases", f"{min(gain for _, gain in gains):.2f}x to "
                f"{max(gain for _, gain in gains):.2f}x", all(gain > 1 for _, gain in gains), "In memory; the document's figure 5 has a network.",
                timed=True)


PARTS = {"placement": placement, "transfers": transfers}
TITLE = "Source-aware placement"
if __name__ == "__main__":
    st.main("C", TITLE, PARTS, __doc__)
