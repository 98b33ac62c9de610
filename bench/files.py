#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares encode, decode and verify of shard sets with copying or reading the same bytes in the same number of files. All
run in turn, on a memory-backed folder.

  encode   one file in, k+m files out;  beside it: cp of k+m files of a shard's length, as many at once as threads
  decode   k shard files in, one out;   beside it: cp of k such files; and cat of them into one file, by one process
  verify   k+m files read;              beside it: cat of them to /dev/null

A ratio above 1: Tandem is faster than the copy. Processor seconds are printed too: on a shared machine they say more than
elapsed time. All outputs replace those of the previous round."""

import argparse
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import rows


def processor_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def seconds(*command):
    began = time.perf_counter()
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def together(threads, command, files):
    """Runs a command for each file, so many at once. `{}` in it is the file's path."""
    began = time.perf_counter()
    subprocess.run(["xargs", "-0", "-P", str(threads), "-I{}", *map(str, command)], check=True, stdout=subprocess.DEVNULL,
                   input="\0".join(map(str, files)).encode())
    return time.perf_counter() - began


def measure(arguments, folder):
    source, shards, output = folder / "source", folder / "shards", folder / "output"
    with open(source, "wb") as file:
        for _ in range(arguments.mib):
            file.write(os.urandom(1 << 20))
    tandem = [arguments.tandem]
    quiet = ["--quiet", "--threads", arguments.threads]
    encode = [*tandem, "encode", source, "-k", arguments.k, "-m", arguments.m, "-o", shards, "--force", *quiet]
    seconds(*encode)
    files = sorted(shards.iterdir())
    copies, some = folder / "copies", folder / "some"
    for place in (copies, some):
        place.mkdir()
    data_only = files[: arguments.k]

    runs = {
        "encode": lambda: seconds(*encode),
        "copy of k+m files": lambda: together(arguments.threads, ["cp", "{}", copies], files),
        "decode": lambda: seconds(*tandem, "decode", shards, "-o", output, "--force", *quiet),
        "copy of k files": lambda: together(arguments.threads, ["cp", "{}", some], data_only),
        "copy of k files into one": lambda: seconds("sh", "-c", 'out=$1; shift; cat "$@" > "$out"', "sh", folder / "one", *data_only),
        "verify": lambda: seconds(*tandem, "verify", shards, *quiet),
        "read of k+m files": lambda: together(arguments.threads, ["sh", "-c", 'cat "$1" > /dev/null', "sh", "{}"], files),
        "start": lambda: seconds(*tandem, "info", shards, "--json"),
    }
    times, busy = {name: [] for name in runs}, {name: [] for name in runs}
    for _ in range(arguments.rounds):
        for name, run in runs.items():
            before = processor_seconds()
            times[name].append(run())
            busy[name].append(processor_seconds() - before)
    return tuple({name: statistics.median(values) for name, values in each.items()} for each in (times, busy))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", default="build/bin/tandem", help="the command")
    parser.add_argument("--folder", default="/dev/shm", help="a memory-backed file system")
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("-m", type=int, default=4)
    parser.add_argument("--mib", type=int, default=1024, help="of content")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("-o", "--output", help="write JSON here")
    arguments = parser.parse_args()
    arguments.tandem = os.path.abspath(arguments.tandem)
    needed = arguments.mib << 20
    needed = needed * 4 + needed * (arguments.k + arguments.m) // arguments.k * 3
    if shutil.disk_usage(arguments.folder).free < needed:
        sys.exit(f"{arguments.folder} has less than the {needed >> 20} MiB that this needs; see --mib")
    with tempfile.TemporaryDirectory(prefix="tandem-files-", dir=arguments.folder) as folder:
        medians, busy = measure(arguments, pathlib.Path(folder))
    load = os.getloadavg()[0]
    pairs = [("encode", "copy of k+m files"), ("decode", "copy of k files"), ("decode", "copy of k files into one"),
             ("verify", "read of k+m files")]
    ratios = {f"{name} / {other}": medians[other] / medians[name] for name, other in pairs}
    busy_ratios = {f"{name} / {other}": busy[other] / busy[name] for name, other in pairs}
    print("          clock                                           ratio   processor")
    for name, other in pairs:
        both = f"{name} / {other}"
        print(f"{name:8} {medians[name]:6.3f} s   {other:24} {medians[other]:6.3f} s   {ratios[both]:.2f}   "
              f"{busy[name]:6.3f} s, {busy[other]:6.3f} s   {busy_ratios[both]:.2f}")
    print(f"load     {load:.1f} at the end")
    print(f"start    {medians['start'] * 1000:.1f} ms (tandem info)")
    if arguments.output:
        result = {"command": "files", "k": arguments.k, "m": arguments.m, "content_bytes": arguments.mib << 20,
                  "threads": arguments.threads, "rounds": arguments.rounds, "load": load, "median_seconds": medians,
                  "median_processor_seconds": busy, "ratio": ratios, "processor_ratio": busy_ratios}
        pathlib.Path(arguments.output).write_text(rows.dumps(result))


main()
