#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Study D: OpenMP runtimes and energy (Lima, Rais, Lefevre, Gautier, 2019)."""
import subprocess
import sys

import study as st

PROGRAM = "study_runtimes"
POWERSAVE = ("enabled", "none", "powersave")
CHOLESKY, LU = ("komp", "disabled", "all", "performance", 694.95, 11.62, 2.24), ("komp+cw", *POWERSAVE, 383.40, 42.83, 7.98)
QR = ("plasma", "disabled", "all", "performance", 393.40, 71.42, 15.70)
# Best by: kernel: runtime, Turbo Boost, C-states, governor, GFlop/s, PKG, DRAM (the report's energy units).
TABLE_2 = {"performance": {"Cholesky": ("komp", *POWERSAVE, 732.45, 13.02, 2.13), "LU": LU, "QR": ("komp", *POWERSAVE, 433.77, 83.36, 15.31)},
           "PKG + DRAM": {"Cholesky": CHOLESKY, "LU": ("komp+cw", "disabled", "none", "performance", 376.64, 37.12, 8.16), "QR": QR},
           "PKG": {"Cholesky": CHOLESKY, "LU": ("gcc", "disabled", "all", "powersave", 225.41, 36.60, 12.53), "QR": QR},
           "DRAM": {"Cholesky": ("xkaapi", *POWERSAVE, 723.23, 13.22, 2.11), "LU": LU, "QR": ("plasma", *POWERSAVE, 404.92, 81.07, 15.19)}}


def runtimes(study):
    """Label -> (way, part of the runtime's file name)."""
    known = {"Tandem's pool": ("pthread", None), "OpenMP, libgomp": ("openmp:gnu", "libgomp"),
             "OpenMP, LLVM libomp": ("openmp:llvm", "libomp"), "oneTBB": ("tbb", None)}
    for label, name, packages in (("OpenMP, libgomp", "gnu", "g++"), ("OpenMP, LLVM libomp", "llvm", "clang libomp-dev")):
        if not (study.folder / f"libstudy_openmp_{name}.so").exists():
            study.not_measured(label, f"no compiler for this runtime is installed (Debian, Ubuntu: apt-get install {packages})")
            del known[label]
    return known


def run(study, choice, environment=None, **settings):
    way, library = choice
    return st.with_runtime(library, study.contender(PROGRAM, way=way, threads=st.core_count(), env=environment or {}, **settings))


def in_turns(study, known, sizes, repeats, calls):
    """GB/s by (runtime, size)."""
    samples = {}
    for _ in range(repeats):
        for label, choice in list(known.items()):
            for size in sizes:
                found = study.attempt(label, lambda choice=choice, size=size: run(study, choice, shard_bytes=size, calls=calls))
                if found is None:
                    del known[label]
                    break
                samples.setdefault((label, size), []).append(found["data_bytes"] / found["seconds"][0] / 1e9)
    return samples


def size_text(size):
    return f"{size >> 20} MiB" if size >> 20 else f"{size >> 10} KiB"


def throughput(study):
    known = runtimes(study)
    sizes = study.pick([65536], [65536, 1 << 20, 4 << 20], [65536, 1 << 20, 4 << 20])
    samples = in_turns(study, known, sizes, study.pick(1, 7, 15), study.pick(2, 40, 200))
    study.figure("runtimes", f"Encode 10 + 4 by runtime, {st.core_count()} threads", "bytes of a shard", "GB/s of data",
                 [(label, [(size_text(size), st.median(samples[label, size]), min(samples[label, size]), max(samples[label, size])) for size in sizes])
                  for label in known], kind="bars", note="In turns; medians, and the slowest and fastest run. The runtime is read from the process' memory map.")
    for size in sizes:
        rates = {label: st.median(samples[label, size]) for label in known}
        best, worst = max(rates, key=rates.get), min(rates, key=rates.get)
        gain = 100 * (rates[best] / rates[worst] - 1)
        study.claim(f"The runtime changes performance, shards of {size_text(size)}", "9.7, 63.8 and 9.4 % (Cholesky, LU, QR)",
                    f"{gain:.1f} %: {best} {rates[best]:.1f} GB/s, {worst} {rates[worst]:.1f} GB/s", st.reaches(gain, "9.4"),
                    "One parallel loop without dependences, on the same kernels. The larger the shards, the more memory decides.", timed=True)


def busy_machine(study):
    """What barriers that spin cost when other programs use the cores: the same runs alone, and beside a program on each core."""
    known, size = runtimes(study), 65536
    rates = {}
    for where, count in (("alone", 0), (f"beside {st.core_count()} busy programs", st.core_count())):
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
        try:
            samples = in_turns(study, known, [size], study.pick(1, 3, 7), study.pick(2, 40, 200))
        finally:
            for each in others:
                each.kill()
                each.wait()
        rates[where] = {label: samples[label, size] for label in known}
    study.figure("runtimes-busy", f"Encode 10 + 4, shards of {size_text(size)}, {st.core_count()} threads: alone, and on a busy machine", "", "GB/s of data",
                 [(label, [(where, st.median(by[label]), min(by[label]), max(by[label])) for where, by in rates.items()]) for label in known], kind="bars",
                 note="In turns; medians, and the slowest and fastest run. A thread that spins at a barrier keeps the core from the thread that it waits for.",
                 result="On the busy machine: " + ", ".join(f"{label} {st.median(values):.3g} GB/s" for label, values in list(rates.values())[-1].items()) + ".")


def waiting(study):
    """How much processor time waiting threads use, and how much speed sleeping threads cost."""
    known = runtimes(study)
    burnt, speed = {}, {}
    for label, choice in known.items():
        for policy in ("active", "passive") if choice[1] else ("",):
            environment = {"OMP_WAIT_POLICY": policy} if policy else {}
            found = study.attempt(f"{label} {policy}", lambda: [
                run(study, choice, environment, shard_bytes=1 << 18, calls=study.pick(2, 30, 60), gap_microseconds=20000)
                for _ in range(study.pick(1, 5, 9))])
            back = study.attempt(f"{label} {policy}, back to back", lambda: [
                run(study, choice, environment, shard_bytes=1 << 18, calls=study.pick(2, 100, 400)) for _ in range(study.pick(1, 5, 9))])
            if not found or not back:
                continue
            share = st.median([each["gap_cpu_seconds"] / each["gap_seconds"] for each in found])
            rate = st.median([each["data_bytes"] / each["seconds"][0] for each in back]) / 1e9
            burnt[label, policy], speed[label, policy] = share, rate
    def bars(values):
        return [(f"{label.replace('OpenMP, ', '').replace('LLVM ', '')} {policy}".strip(), value) for (label, policy), value in values.items()]

    study.figure("waiting", "Pauses of 20 ms between calls: what waiting threads use", "runtime, and OMP_WAIT_POLICY", "processor seconds in a second of pause",
                 [("in pauses", bars(burnt))], kind="bars", note="Processor time is counted by the kernel: a thread that spins on a busy machine gets less of it.")
    pool, (fastest, most) = bars(speed)[0][1], max(bars(speed), key=lambda bar: bar[1])
    study.figure("waiting-speed", "Calls back to back, shards of 256 KiB", "runtime, and OMP_WAIT_POLICY", "GB/s of data", [("back to back", bars(speed))], kind="bars",
                 result=f"Tandem's pool has {pool / most:.2f} of the speed of the fastest ({fastest}).")


def joules(study):
    """Joules for 1 GB by executor, from `tandem-bench run --energy`: at least 30 samples; the energy of a pause is subtracted."""
    ways = {"Tandem's pool": "pthread", "OpenMP": "openmp"}
    report = study.bench("run", "--code", "10+4", "--shard-bytes", study.pick(65536, 1 << 20, 1 << 20), "--threads", st.core_count(),
                         "--executor", ",".join(ways.values()), "--peer", "none", "--repeats", study.pick(1, 5, 50), "--seconds",
                         study.pick(0.01, 0.2, 1), "--energy", "--sysfs", study.arguments.sysfs)
    rows, correlations = [], []
    for label, result in zip(ways, report["results"]):
        if "not_measured" in result["energy"]:  # the CPU's counters: those of GPUs say nothing of these runs
            raise st.Unavailable(result["energy"]["not_measured"])
        of_cpu = [domain for domain in result["energy"]["domains"] if not domain["domain"].startswith("GPU")]
        moving = [domain for domain in of_cpu if "not_measured" not in domain]
        if not moving:
            raise st.Unavailable(f"{of_cpu[0]['domain']}: {of_cpu[0]['not_measured']}")
        for domain in moving:
            joules, calls_per_gb = domain["joules_per_call"], 1e9 / result["data_bytes"]
            r = domain["correlation_with_time"]
            correlations.append(r)
            rows.append([label, domain["domain"], f"{domain['joules_per_gb']:.3f}",
                         f"{joules['min'] * calls_per_gb:.3f} to {joules['max'] * calls_per_gb:.3f}", f"{domain['idle_watts']:.1f}",
                         f"{r['r']:.3f} ({r['low']:.3f} to {r['high']:.3f})"])
    study.table("energy", "J/GB above a pause", ["runtime", "domain", "J/GB", "range", "W in a pause", "r with time (95 %)"], rows)
    study.claim("Energy follows time", "almost perfect correlation", f"Pearson r from {min(r['r'] for r in correlations):.3f}", all(r["low"] > 0 for r in correlations),
                "Of the samples of each runtime and domain.", timed=True)


def energy(study):
    study.attempt("energy", joules, study)
    reason = "".join(each["reason"] for each in study.part["not_measured"])
    study.claim("Less energy by Turbo Boost and governors", "8.5 to 11.7 %, for 1.8 to 9.3 % less speed", "-", None,
                reason or "Turbo Boost and governors belong to the administrator of the machine; a study does not change them.")
    study.table("table-2", "The report's Table 2, best results of 48 cores: runtime; Turbo Boost, C-states, governor; GFlop/s, PKG, DRAM", ["best", *next(iter(TABLE_2.values()))],
                [[best, *("{}; {}, {}, {}; {}, {}, {}".format(*values) for values in found.values())] for best, found in TABLE_2.items()],
                f"Here NOT MEASURED: LU in study E is over GF(2^8), Cholesky and QR do not exist there (section G). {reason}")


PARTS = {"runtimes": throughput, "runtimes-busy": busy_machine, "waiting": waiting, "energy": energy}
TITLE = "OpenMP runtimes and energy"
if __name__ == "__main__":
    st.main("D", TITLE, PARTS, __doc__)
