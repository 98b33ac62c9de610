#!/usr/bin/env python3
"""Study D: OpenMP runtimes and energy (Lima, Rais, Lefevre, Gautier, 2019)."""
import time

import meter
import study as st

PROGRAM = "study_runtimes"


def runtimes(study):
    """Label -> (way, part of the runtime's file name)."""
    known = {"Tandem's pool": ("pthread", None), "OpenMP, libgomp": ("openmp:gnu", "libgomp"),
             "OpenMP, LLVM libomp": ("openmp:llvm", "libomp"), "oneTBB": ("tbb", None)}
    if not (study.folder / "libtandem_openmp_llvm.so").exists():
        study.not_measured("OpenMP, LLVM libomp", "clang with LLVM's runtime is not installed (Debian, Ubuntu: apt-get install clang libomp-dev)")
        del known["OpenMP, LLVM libomp"]
    return known


def run(study, choice, environment=None, **settings):
    way, library = choice
    found = study.contender(PROGRAM, way=way, threads=st.core_count(), env=environment or {}, **settings)
    mapped = [path.rsplit("/", 1)[1] for path in found["openmp_runtimes"]]
    if library is None and mapped or library is not None and not (len(mapped) == 1 and mapped[0].startswith(library)):
        raise st.Unavailable(f"expected {library or 'no OpenMP runtime'} in the process, and there is {', '.join(mapped) or 'none'}")
    return found


def throughput(study, known):
    sizes = study.pick([65536], [65536, 1 << 20, 4 << 20], [65536, 1 << 20, 4 << 20])
    samples = {}
    for _ in range(study.pick(1, 7, 15)):  # in turns
        for label, choice in list(known.items()):
            for size in sizes:
                found = study.attempt(label, lambda: run(study, choice, shard_bytes=size, calls=study.pick(2, 40, 200)))
                if found is None:
                    del known[label]
                    break
                samples.setdefault((label, size), []).append(found["data_bytes"] / found["seconds"][0] / 1e9)
    rates = {label: [(f"{size // 1024} KiB", st.median(samples[label, size])) for size in sizes] for label in known}
    study.figure("runtimes", f"Encode 10 + 4 by runtime, {st.core_count()} threads", "bytes of a shard", "GB/s of data", list(rates.items()),
                 kind="bars", log_y=True, note="In turns, medians; the runtime that ran is read from the process' memory map.")
    last = {label: points[-1][1] for label, points in rates.items()}
    best, worst = max(last, key=last.get), min(last, key=last.get)
    study.claim("The runtime changes performance by 9.7, 63.8 and 9.4 % (Cholesky, LU, QR)",
                f"{100 * (last[best] / last[worst] - 1):.1f} % between {best} and {worst}, shards of {sizes[-1] >> 20 or sizes[-1]} "
                f"{'MiB' if sizes[-1] >> 20 else 'bytes'}", last[best] / last[worst] - 1 >= 0.094,
                "One parallel loop without dependences, on the same kernels. On a machine that other programs use, barriers that spin "
                "wait for threads that have no core.", timed=True)


def waiting(study, known):
    """How much processor time waiting threads use, and how much speed sleeping threads cost."""
    rows, burnt, speed = [], {}, {}
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
            rows.append([label, policy or "(its own rule)", f"{share:.4f}", f"{rate:.2f}"])
    study.table("waiting", "Pauses of 20 ms between calls: processor seconds that the process uses in a second of pause",
                ["runtime", "OMP_WAIT_POLICY", "CPU s per s of pause", "GB/s back to back"], rows,
                "Processor time is counted by the kernel: a thread that spins on a busy machine gets less of it.")
    study.figure("waiting", "Processor seconds in a second of pause", "runtime", "CPU seconds",
                 [("in pauses of 20 ms", [(f"{label.replace('OpenMP, ', '').replace('LLVM ', '')} {policy}".strip(), share)
                                          for (label, policy), share in burnt.items()])], kind="bars")
    for label in known:
        if (label, "active") in burnt and (label, "passive") in burnt:
            less = 100 * (1 - burnt[label, "passive"] / burnt[label, "active"]) if burnt[label, "active"] > 0 else 0
            kept = speed[label, "passive"] / speed[label, "active"]
            study.claim(f"(expected) {label}: passive waiting burns 90 % less in pauses, and keeps 0.9 of the speed",
                        f"{less:.0f} % less, {kept:.2f} of the speed", less >= 90 and kept >= 0.9,
                        "The default of each runtime lies between the two: libgomp spins 300,000 times, libomp 200 ms.", timed=True)


def energy(study, known):
    """Joules for 1 GB by runtime: at least 30 repeats; the energy of the idle machine is subtracted."""
    found = meter.domains(study.arguments.powercap)

    def measured(work):
        before, began = [domain.read() for domain in found], time.perf_counter()
        result = work()
        seconds, after = time.perf_counter() - began, [domain.read() for domain in found]
        return result, seconds, [domain.joules(a, b) for domain, a, b in zip(found, before, after)]

    pause = study.pick(0.05, 2, 5)
    _, idle_seconds, idle = measured(lambda: time.sleep(pause))
    if not any(idle):
        raise st.Unavailable(f"the counters of {study.arguments.powercap} do not move")
    rows, all_seconds, all_joules, means = [], [], [], {}
    for label, choice in known.items():
        joules = []
        for _ in range(study.pick(30, 30, 50)):
            answer, seconds, used = measured(lambda: run(study, choice, shard_bytes=1 << 20, calls=study.pick(1, 100, 400)))
            own = sum(used) - sum(idle) * seconds / idle_seconds
            joules.append(own / answer["data_bytes"] * 1e9)
            all_seconds.append(seconds)
            all_joules.append(sum(used))
        means[label] = st.median(joules)
        rows.append([label, f"{means[label]:.3f}", f"{min(joules):.3f} to {max(joules):.3f}", len(joules)])
    study.table("energy", f"J/GB above idle: {', '.join(domain.name for domain in found)}", ["runtime", "J/GB", "range", "repeats"], rows)
    r = meter.correlation(all_seconds, all_joules)
    study.claim("Energy follows time", "no variation" if r is None else f"Pearson r = {r[0]:.3f} ({r[1]:.3f} to {r[2]:.3f})",
                r is not None and r[1] > 0, "95 % interval. Whole process, with its start.")


def measure(study):
    known = runtimes(study)
    throughput(study, known)
    waiting(study, known)
    before = len(study.result["not_measured"])
    study.attempt("energy", energy, study, known)
    reason = "".join(each["reason"] for each in study.result["not_measured"][before:])
    study.claim("8.5 to 11.7 % less energy for 1.8 to 9.3 % less speed (Turbo Boost and governors)", "-", None,
                reason or "Turbo Boost and governors belong to the administrator of the machine; a study does not change them.")


TITLE = "OpenMP runtimes and energy"
if __name__ == "__main__":
    st.main("D", TITLE, measure, __doc__)
