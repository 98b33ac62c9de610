#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what encode and protect cost across ranks.

    bench/cluster.py simulate -o RESULT.json [--nodes 1 2 4 ...] [--platform bench/cluster/gigabit.xml]
    bench/cluster.py measure --bin build/bin -o RESULT.json [--redset FOLDER]

`simulate` runs the exchange of `protect` (mpi/exchange.cpp), or an encode, on a simulated cluster, bench/cluster/platform.xml or another one. SimGrid's
SMPI carries its messages. Reading, coding and writing take the times of --code-rate, --read-rate and --write-rate.
Needs smpicxx, smpirun (Debian: libsimgrid-dev) and libfmt-dev.

`measure` runs on this machine, in memory (/dev/shm), with a rank for each core, in random order:

  encode    `tandem-mpi encode` beside `tandem encode` with as many threads; also with 1, 2 and 4 ranks of one thread
  protect   tandem_mpi_protect beside redset_apply, scheme RS, of the same files; --redset: where redset is installed
  start     a program that only initialises and finalises MPI, beside `tandem-mpi --version`

Each figure is the median of --repeats."""

import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import rows

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLUSTER = ROOT / "bench" / "cluster"
MPI_ENVIRONMENT = {**os.environ, "TANDEM_TUNING": "", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_btl_base_warn_component_unused": "0", "OMPI_MCA_rmaps_base_oversubscribe": "1"}

# For collectives besides the exchange: SMPI's own choices send n^2 messages for some of these.
SIMULATED_COLLECTIVES = ["--cfg=smpi/allgather:bruck", "--cfg=smpi/allreduce:rdb", "--cfg=smpi/barrier:ompi_recursivedoubling",
                         "--cfg=smpi/bcast:binomial_tree"]


def run(words, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def write(path, result):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(rows.dumps(result))


# ---- simulated ----

def simulate(given):
    """One JSON file; points are added as they come."""
    with tempfile.TemporaryDirectory(prefix="tandem-cluster-") as folder:
        program = (given.program or pathlib.Path(folder, "exchange_sim")).resolve()
        # -Bsymbolic: smpirun opens the program as a library, and the program must use its own operator new.
        if not program.exists():
            run(["smpicxx", "-std=c++20", "-O1", "-Wl,-Bsymbolic", f"-I{ROOT}", f"-I{ROOT}/include", CLUSTER / "exchange_sim.cpp",
                 *(ROOT / "mpi" / f"{name}.cpp" for name in ("exchange", "groups", "local_file", "protection", "world")),
                 *(ROOT / "base" / f"{name}.cpp" for name in ("bytes", "descriptor", "folder", "hash", "hash_portable", "io_error",
                                                                "pending_file", "text")),
                 "-lfmt", "-o", program])
        result = {"kind": "cluster", "simulated": True, "simulator": run(["smpirun", "--version"]).split("\n")[0].strip(),
                  "platform": f"bench/cluster/{given.platform.name}", "operation": given.operation, "k": given.k, "m": given.m,
                  "ranks_per_node": given.ranks_per_node, "data_bytes_per_rank": given.k * given.pieces * given.piece_bytes,
                  "piece_bytes": given.piece_bytes,
                  "assumed": {"code_bytes_per_second": given.code_rate, "read_bytes_per_second": given.read_rate,
                              "write_bytes_per_second": given.write_rate},
                  "points": []}
        for nodes in given.nodes:
            hosts = pathlib.Path(folder, "hosts")
            hosts.write_text("".join(f"node-{node}\n" * given.ranks_per_node for node in range(nodes)))
            printed = run(["smpirun", "-np", nodes * given.ranks_per_node, "-platform", given.platform.resolve(), "-hostfile", hosts,
                           "--cfg=smpi/simulate-computation:no", "--cfg=smpi/host-speed:1Gf", "--cfg=smpi/privatization:no",
                           *SIMULATED_COLLECTIVES, "--log=root.thres:warning", program, given.k, given.m,
                           result["data_bytes_per_rank"], given.piece_bytes, given.code_rate, given.read_rate,
                           given.write_rate, *(["encode"] if given.operation == "encode" else [])], cwd=folder, timeout=given.timeout)
            point = {"nodes": nodes, **json.loads(printed[printed.index("{"):])}
            point["bytes_per_second"] = point["ranks"] * result["data_bytes_per_rank"] / point["seconds"]
            result["points"].append(point)
            print(json.dumps(point), flush=True)
            write(given.output, result)


# ---- measured ----

class Measurement:
    def __init__(self, given, folder):
        self.given, self.folder, self.bin = given, pathlib.Path(folder), given.bin.resolve()
        self.cores = len(os.sched_getaffinity(0))

    def mpirun(self, ranks, *words):
        return ["mpirun", "-n", ranks, "--bind-to", "none", *words]

    def medians(self, cases):
        """cases: by name, (words, what to remove before). Seconds of the whole process, in random order."""
        seconds = {name: [] for name in cases}
        for repeat in range(self.given.repeats + 1):
            for name in random.sample(sorted(cases), len(cases)):
                words, remove = cases[name]
                for path in remove:
                    shutil.rmtree(path, ignore_errors=True)
                began = time.monotonic()
                printed = run(words, env=MPI_ENVIRONMENT, cwd=self.folder)
                taken = time.monotonic() - began
                if "--json" in words:
                    taken = json.loads(printed)["seconds"]
                elif "seconds=" in printed:
                    taken = max(float(line.split("seconds=")[1].split()[0]) for line in printed.splitlines() if "seconds=" in line)
                if repeat > 0:  # the first repeat warms up
                    seconds[name].append(taken)
        return {name: {"median": statistics.median(each), "min": min(each), "max": max(each)} for name, each in seconds.items()}

    def encode(self):
        source = self.folder / "source"
        source.write_bytes(os.urandom(self.given.mib << 20))
        shards = self.folder / "shards"
        words = ["encode", source, "-k", 10, "-m", 4, "-o", shards, "--json", "--force", "--no-sync"]
        cases = {"tandem": ([self.bin / "tandem", *words, "--threads", self.cores], [shards]),
                 "ranks = cores": (self.mpirun(self.cores, self.bin / "tandem-mpi", *words, "--threads", 1), [shards])}
        for ranks in (1, 2, 4):
            cases[f"{ranks} ranks"] = (self.mpirun(ranks, self.bin / "tandem-mpi", *words, "--threads", 1), [shards])
        seconds = self.medians(cases)
        shutil.rmtree(shards, ignore_errors=True)
        source.unlink()
        return {"k": 10, "m": 4, "content_bytes": self.given.mib << 20, "threads": self.cores, "seconds": seconds,
                "ratio": seconds["ranks = cores"]["median"] / seconds["tandem"]["median"], "target": 1.1}

    def protect(self):
        k, m, ranks = 2, 2, 4
        for rank in range(ranks):
            for of in ("ours", "theirs"):
                (self.folder / of / str(rank)).mkdir(parents=True)
            content = os.urandom((self.given.mib // ranks) << 20)
            for of in ("ours", "theirs"):
                (self.folder / of / str(rank) / "data").write_bytes(content)
        def build(name, prefix, include, library):
            program = self.folder / name
            run(["mpicxx", "-O2", "-std=c++20", "-DOMPI_SKIP_MPICXX", CLUSTER / f"{name}.cpp", f"-I{include}", f"-L{prefix}", f"-Wl,-rpath,{prefix}", f"-l{library}",
                 *(["-ltandem"] if library == "tandem_mpi" else []), "-o", program])
            return program

        program = build("protect_time", self.bin, ROOT / "include", "tandem_mpi")
        parity = [self.folder / of / str(rank) / "parity" for of in ("ours", "theirs") for rank in range(ranks)]
        cases = {"tandem": (self.mpirun(ranks, program, k, m, self.folder / "ours"), parity)}
        if self.given.redset:
            program = build("redset_time", self.given.redset / "lib", self.given.redset / "include", "redset")
            cases["redset"] = (self.mpirun(ranks, program, ranks, m, self.folder / "theirs"), parity)
        seconds = self.medians(cases)
        result = {"k": k, "m": m, "ranks": ranks, "data_bytes_per_rank": (self.given.mib // ranks) << 20, "seconds": seconds,
                  "target": 0.5}
        if "redset" in seconds:
            result["ratio"] = seconds["tandem"]["median"] / seconds["redset"]["median"]
        return result

    def start(self):
        program = self.folder / "nothing"
        source = self.folder / "nothing.c"
        source.write_text("#include <mpi.h>\nint main(int c, char **v) { MPI_Init(&c, &v); return MPI_Finalize(); }\n")
        run(["mpicc", "-O2", source, "-o", program])
        seconds = self.medians({"nothing": (self.mpirun(2, program), []),
                                "tandem-mpi": (self.mpirun(2, self.bin / "tandem-mpi", "--version"), [])})
        return {"ranks": 2, "seconds": seconds, "beyond_seconds": seconds["tandem-mpi"]["median"] - seconds["nothing"]["median"],
                "target_seconds": 0.05}


def measure(given):
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="tandem-cluster-", dir="/dev/shm") as folder:
        measurement = Measurement(given, folder)
        model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
        result = {"kind": "cluster", "simulated": False, "cpu": model, "cores": measurement.cores, "load_before": load,
                  "mpi": run(["mpirun", "--version"]).splitlines()[0], "repeats": given.repeats}
        for name in given.only:
            result[name] = getattr(measurement, name)()
            print(name, json.dumps(result[name]), flush=True)
            write(given.output, result)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("simulate")
    command.set_defaults(call=simulate)
    command.add_argument("-o", "--output", type=pathlib.Path, required=True)
    command.add_argument("--operation", choices=["protect", "encode"], default="protect")
    command.add_argument("--program", type=pathlib.Path, help="keep the compiled program here, or take it from here")
    command.add_argument("--platform", type=pathlib.Path, default=CLUSTER / "platform.xml", help="nodes and links, as SimGrid reads them")
    command.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024])
    command.add_argument("--ranks-per-node", type=int, default=4)
    command.add_argument("-k", type=int, default=3)
    command.add_argument("-m", type=int, default=1)
    command.add_argument("--pieces", type=int, default=8, help="pieces of each segment")
    # Not 2^20: the simulation recognises its pieces by their length.
    command.add_argument("--piece-bytes", type=int, default=(1 << 20) - 64)
    command.add_argument("--code-rate", type=float, default=8e9)
    command.add_argument("--read-rate", type=float, default=4e9)
    command.add_argument("--write-rate", type=float, default=4e9)
    command.add_argument("--timeout", type=float, default=7200)
    command = commands.add_parser("measure")
    command.set_defaults(call=measure)
    command.add_argument("-o", "--output", type=pathlib.Path, required=True)
    command.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin")
    command.add_argument("--redset", type=pathlib.Path, help="the prefix where redset is installed")
    command.add_argument("--mib", type=int, default=512)
    command.add_argument("--repeats", type=int, default=7)
    command.add_argument("--only", nargs="+", choices=["encode", "protect", "start"], default=["encode", "protect", "start"])
    given = parser.parse_args()
    given.call(given)


if __name__ == "__main__":
    main()
