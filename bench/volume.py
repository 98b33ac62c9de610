#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what parity costs small writes on members with a fixed service time, beside plain striping over the same members.

Each member is a separate nbdkit. It serves one request at a time and takes --milliseconds for each read and each write
(filters `noparallel` and `delay`), so the processor hardly matters. The same writes are made four times, in random order,
--in-flight of them at once:

  plain      striped over the k+m members in the same units, no parity
  avoid      to unwritten stripes, through `tandem volume serve`
  standard   again, to the same stripes
  delayed    to unwritten stripes, in a window of delayed parity; the window's end counts

A flush at the end counts too.

With --slow N it measures reads instead: 4 KiB at random places, one at a time, while each read of the last member takes N
milliseconds more, and no other one waits. First the volume does not know that this member is slow, then it knows.

Needs nbdkit, python3-libnbd and a Tandem built with libnbd."""

import argparse
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import time

SYSTEM_PYTHON = "/usr/bin/python3"  # Debian's python3-libnbd is for this one
try:
    import nbd
except ImportError:
    if os.path.realpath(sys.executable) == os.path.realpath(SYSTEM_PYTHON):
        sys.exit("Python has no module nbd (Debian, Ubuntu: apt-get install python3-libnbd)")
    os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])


def wait_until(is_true, what, seconds=60):
    until = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > until:
            raise TimeoutError(f"waited {seconds} seconds for {what}")
        time.sleep(0.01)


def is_listening(path):
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


class Bench:
    def __init__(self, given, folder):
        self.given, self.folder, self.processes = given, folder, []
        self.write_bytes, self.unit = given.write_kib << 10, given.unit_kib << 10
        self.count = given.k + given.m
        self.content = random.Random(1).randbytes(self.write_bytes)

    def start(self, *words):
        process = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL)
        self.processes.append(process)
        return process

    def end(self):
        for process in reversed(self.processes):  # nbdkit waits for its clients before it ends
            process.kill()
            process.wait(60)

    def member(self, index):
        path = self.folder / f"member-{index}"
        delay = f"{self.given.milliseconds}ms"
        how = ["--filter=noparallel", "--filter=delay", "memory", "serialize=all-requests", f"rdelay={delay}", f"wdelay={delay}"]
        if self.given.slow:
            slow = self.given.slow if index == self.count - 1 else 0
            how = ["--filter=delay", "memory", f"rdelay={slow}ms"]
        self.start("nbdkit", "--foreground", "--exit-with-parent", "--unix", path, *how, f"{self.given.member_mib}M")
        wait_until(lambda: is_listening(path), path)
        return f"nbd+unix:///?socket={path}"

    def tandem(self, *words):
        done = subprocess.run([self.given.tandem, "volume", *map(str, words), "--json"], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    def write_all(self, handles, places):
        """Writes (handle, offset) in turn, so many in flight at once, and flushes."""
        began = time.perf_counter()
        waiting = list(reversed(places))
        buffer = nbd.Buffer.from_bytearray(bytearray(self.content))
        in_flight = {}  # cookie of a handle
        used = sorted({index for index, _ in places})
        while waiting or in_flight:
            while waiting and len(in_flight) < self.given.in_flight:
                index, offset = waiting.pop()
                in_flight[index, handles[index].aio_pwrite(buffer, offset)] = True
            for index in used:
                handles[index].poll(0 if len(used) > 1 else 10)
            for index, cookie in list(in_flight):
                if handles[index].aio_command_completed(cookie):
                    del in_flight[index, cookie]
        for index in used:
            handles[index].flush()
        return time.perf_counter() - began

    def serve(self, members):
        self.tandem("create", *members, "-k", self.given.k, "-m", self.given.m, "--unit-bytes", self.unit)
        path = self.folder / "volume"
        self.start(self.given.tandem, "volume", "serve", *members, "--socket", path, "--quiet")
        wait_until(lambda: is_listening(path), path)
        served = nbd.NBD()
        served.connect_uri(f"nbd+unix:///?socket={path}")
        return served, path

    def run_slow(self):
        served, path = self.serve([self.member(index) for index in range(self.count)])
        written, block = self.given.stripes * self.given.k * self.unit, 4096
        stripe = bytes(range(256)) * (self.given.k * self.unit // 256)
        for at in range(0, written, len(stripe)):  # whole ones: nothing is read for them
            served.pwrite(stripe, at)
        served.flush()
        choice = random.Random(3)

        def measure(count):
            times = []
            for _ in range(count):
                began = time.perf_counter()
                served.pread(block, choice.randrange(written // block) * block)
                times.append(time.perf_counter() - began)
            return times

        def is_known():
            return self.tandem("info", "--socket", path)["members"][-1]["slow"]

        def told(times):
            ordered = sorted(times)
            return {"reads": len(ordered), **{f"p{part}_milliseconds": round(1000 * ordered[len(ordered) * part // 100], 3)
                                              for part in (50, 90, 99)}}

        before = measure(300)
        while not is_known():
            before += measure(25)
        began = self.tandem("info", "--socket", path)["statistics"]
        after = measure(self.given.reads)
        ended = self.tandem("info", "--socket", path)["statistics"]
        reads = sum(ended[kind]["reads"] - began[kind]["reads"] for kind in ("data", "parity"))
        return {"k": self.given.k, "m": self.given.m, "slow_milliseconds": self.given.slow, "not known": told(before), "known": told(after),
                "reads of members for each read": round(reads / len(after), 3),
                "avoided": ended["avoided_block_count"] - began["avoided_block_count"]}

    def run(self):
        members = [self.member(index) for index in range(self.count)]
        direct = [nbd.NBD() for _ in members]
        for handle, uri in zip(direct, members):
            handle.connect_uri(uri)
        k, m = self.given.k, self.given.m
        served, path = self.serve(members)
        stripe = k * self.unit
        if served.get_size() < 2 * self.given.stripes * stripe:
            sys.exit(f"the volume has {served.get_size() // stripe} stripes, {2 * self.given.stripes} are needed")
        offsets = list(range(0, self.given.stripes * stripe, self.write_bytes))
        random.Random(2).shuffle(offsets)
        places = [(0, at) for at in offsets]
        seconds = {"avoid": self.write_all([served], places), "standard": self.write_all([served], places)}
        fresh = self.given.stripes * stripe  # of the other half
        window = ["--socket", path, "--offset", fresh, "--bytes", fresh]
        began = time.perf_counter()
        self.tandem("delay", "begin", *window)
        begun = time.perf_counter() - began
        written = self.write_all([served], [(0, fresh + at) for at in offsets])
        self.tandem("delay", "end", *window)
        seconds["delayed"] = time.perf_counter() - began
        seconds |= {"its begin": begun, "its writes": written, "its end": seconds["delayed"] - begun - written}
        # The same offsets in the same order, striped over all members. Overwrites the volume, so it comes last.
        plain = [(at // self.unit % self.count, at // self.unit // self.count * self.unit + at % self.unit) for at in offsets]
        served.shutdown()
        self.processes[-1].terminate()
        self.processes[-1].wait(60)
        seconds["plain"] = self.write_all(direct, plain)
        return {"k": k, "m": m, "unit_bytes": self.unit, "write_bytes": self.write_bytes, "writes": len(offsets),
                "in_flight": self.given.in_flight, "service_milliseconds": self.given.milliseconds, "seconds": seconds,
                "of_plain": {name: round(seconds["plain"] / seconds[name], 3)
                             for name in ("avoid", "standard", "delayed", "its writes")}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", type=pathlib.Path, default=pathlib.Path("build/bin/tandem"))
    parser.add_argument("-k", type=int, default=7)
    parser.add_argument("-m", type=int, default=1)
    parser.add_argument("--unit-kib", type=int, default=1024)
    parser.add_argument("--write-kib", type=int, default=128)
    parser.add_argument("--member-mib", type=int, default=1024)
    parser.add_argument("--stripes", type=int, default=48, help="stripes to write, each completely")
    parser.add_argument("--milliseconds", type=int, default=5)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--slow", type=int, default=0, metavar="MILLISECONDS", help="measure reads around a slow member")
    parser.add_argument("--reads", type=int, default=5000, help="with --slow: reads once it is known to be slow")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(given, pathlib.Path(folder))
        try:
            print(json.dumps(bench.run_slow() if given.slow else bench.run(), indent=2))
        finally:
            bench.end()


main()
