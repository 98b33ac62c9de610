#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `tandem par2` with programs that have the options of par2cmdline: processor seconds, seconds, peak memory.

    bench/par2.py build/bin/tandem [PEER...] [--folder /dev/shm/par2] [--json FILE]

The programs take turns. Each figure is that of the run with the fewest processor seconds. All of them verify the set that the
first program made."""

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


def commands(program, is_tandem, what, slices, recovery, files):
    if is_tandem:
        create = [program, "par2", "create", "ours", *files, "-b", slices, "-c", recovery, "--force", "--no-sync", "-q"]
        return create if what == "create" else [program, "par2", what, "ours", "-q"]
    create = [program, "create", "-qq", f"-b{slices}", f"-c{recovery}", "theirs", *files]
    return create if what == "create" else [program, what, "-qq", "ours.par2"]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("tandem", type=pathlib.Path)
    arguments.add_argument("peers", nargs="*", help="programs, such as /usr/bin/par2")
    arguments.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("/dev/shm/tandem-par2"), help="new; removed at the end")
    arguments.add_argument("--bytes", type=int, default=512 << 20, help="of the one file, and about of the folder; default: 512 MiB")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--json", type=pathlib.Path, help="file for the result")
    given = arguments.parse_args()
    programs = [given.tandem.resolve(), *given.peers]
    results = []
    try:
        make_files(given.folder, given.bytes)
        many = [f"{i:04}" for i in range(FILES)]
        for what, part, slices, recovery, files in (
            ("create", "one", 2000, 200, ["file"]), ("verify", "one", 2000, 200, ["file"]),
            ("repair", "one", 2000, 200, ["file"]), ("create", "many", 4000, 400, many), ("verify", "many", 4000, 400, many),
            ("repair", "many", 4000, 400, many),
            ("create", "one", 16000, 1600, ["file"]),
        ):
            folder, best = given.folder / part, {}
            for _ in range(given.rounds):
                for program in programs:
                    for old in folder.glob("theirs*"):
                        old.unlink()
                    if what == "repair":
                        damage(folder, files)
                    figures = run(commands(program, program == programs[0], what, slices, recovery, files), folder)
                    best[str(program)] = min(figures, best.get(str(program), figures))
            for program, (processor, seconds, peak) in best.items():
                name = "tandem" if program == str(programs[0]) else program
                results.append({"operation": what, "files": len(files), "slices": slices, "recovery_slices": recovery, "program": name,
                                "processor_seconds": round(processor, 3), "seconds": round(seconds, 3), "peak_bytes": peak})
                print(f"{what} {len(files):>5} files {slices:>6} + {recovery:<5} {name:<24} {processor:>8.3f} s of processors "
                      f"{seconds:>8.3f} s {peak / 1e6:>7.1f} MB", flush=True)
    finally:
        shutil.rmtree(given.folder, ignore_errors=True)
    if given.json:
        given.json.write_text(json.dumps({"bytes": given.bytes, "results": results}))


main()
