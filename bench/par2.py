#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `tandem par2` with programs that have the options of par2cmdline: processor seconds, seconds, peak memory.

    bench/par2.py build/bin/tandem [PEER...] [--slow PEER] [--folder /dev/shm/par2] [--json FILE]

The programs take turns. Each figure is that of the run with the fewest processor seconds. All of them verify and repair the set that
Tandem made. A slow peer runs once, and does not create the set with the most slices. With a turbo and Debian's par2 as the slow one this
takes about six minutes on two cores."""

import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time

FILES = 2000


def make_files(folder, total_bytes):
    """One file, and a folder of many files of 1 to 512 parts."""
    draw = random.Random(1)
    (folder / "one").mkdir(parents=True)
    (folder / "many").mkdir()
    with open(folder / "one/file", "wb") as file:
        for at in range(0, total_bytes, 1 << 20):
            file.write(draw.randbytes(min(1 << 20, total_bytes - at)))
    for i in range(FILES):
        (folder / f"many/{i:04}").write_bytes(draw.randbytes(total_bytes // FILES * draw.randrange(1, 512) // 256 + 1))


def run(command, folder):
    """(processor seconds, seconds, peak bytes) of a command that must succeed."""
    began = time.monotonic()
    process = subprocess.Popen(list(map(str, command)), cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{command} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, time.monotonic() - began, usage.ru_maxrss * 1024


def damage(folder, files):
    """5 % of a file; 50 of many files are deleted, and 50 have wrong bytes."""
    for old in folder.glob("*.1"):
        old.unlink()
    for i, name in enumerate(files[:100]):
        if i < 50 and len(files) > 1:
            (folder / name).unlink()
            continue
        size = (folder / name).stat().st_size
        with open(folder / name, "r+b") as file:
            for part in range(5 if len(files) == 1 else 1):
                file.seek((2 * part + 1) * size // 10)
                file.write(random.randbytes(size // 100 + 1))


def commands(program, flags, what, slices, recovery, files):
    if flags is not None:
        create = [program, "par2", "create", "ours", *files, "-b", slices, "-c", recovery, "--force", "--no-sync", "-q", *flags]
        return create if what == "create" else [program, "par2", what, "ours", "-q"]
    create = [program, "create", "-qq", f"-b{slices}", f"-c{recovery}", "theirs", *files]
    return create if what == "create" else [program, what, "-qq", "ours.par2"]


def name_of(peer):
    """With its version."""
    return subprocess.run([peer, "-V"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("tandem", type=pathlib.Path)
    arguments.add_argument("peers", nargs="*", help="programs, such as /usr/bin/par2")
    arguments.add_argument("--slow", action="append", default=[], metavar="PEER", help="a peer that runs once")
    arguments.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("/dev/shm/tandem-par2"), help="new; removed at the end")
    arguments.add_argument("--bytes", type=int, default=512 << 20, help="of the one file, and about of the folder; default: 512 MiB")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--json", type=pathlib.Path, help="file for the result")
    given = arguments.parse_args()
    tandem = given.tandem.resolve()
    # Name: program, flags of Tandem's create (None: another program), rounds.
    programs = {"Tandem": (tandem, [], given.rounds)}
    for peer in [*given.peers, *given.slow]:
        name = name_of(peer)
        programs[f"{name}, {peer}" if name in programs else name] = (peer, None, 1 if peer in given.slow else given.rounds)
    results = []
    try:
        make_files(given.folder, given.bytes)
        many = [f"{i:04}" for i in range(FILES)]
        for what, part, slices, recovery, files in (
            ("create", "one", 2000, 10, ["file"]), ("create", "one", 2000, 20, ["file"]),
            ("create", "one", 2000, 200, ["file"]), ("verify", "one", 2000, 200, ["file"]),
            ("repair", "one", 2000, 200, ["file"]), ("create", "many", 4000, 400, many), ("verify", "many", 4000, 400, many),
            ("repair", "many", 4000, 400, many),
            ("create", "one", 16000, 1600, ["file"]),
        ):
            folder, best = given.folder / part, {}
            these = {name: each for name, each in programs.items() if slices != 16000 or each[0] not in given.slow}
            if what == "create" and recovery == 200:
                these["Tandem, AVX2 codes"] = (tandem, ["--kernel", "avx2"], given.rounds)
            for i in range(given.rounds):
                for name, (program, flags, rounds) in these.items():
                    if i >= rounds:
                        continue
                    for old in folder.glob("theirs*"):
                        old.unlink()
                    if what == "repair":
                        damage(folder, files)
                    figures = run(commands(program, flags, what, slices, recovery, files), folder)
                    best[name] = min(figures, best.get(name, figures))
            for name, (processor, seconds, peak) in best.items():
                results.append({"operation": what, "files": len(files), "slices": slices, "recovery_slices": recovery, "program": name,
                                "processor_seconds": round(processor, 3), "seconds": round(seconds, 3), "peak_bytes": peak})
                print(f"{what} {len(files):>5} files {slices:>6} + {recovery:<5} {name:<34} {processor:>8.3f} s of processors "
                      f"{seconds:>8.3f} s {peak / 1e6:>7.1f} MB", flush=True)
    finally:
        shutil.rmtree(given.folder, ignore_errors=True)
    if given.json:
        given.json.write_text(json.dumps({"bytes": given.bytes, "results": results}))


main()
