#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times the matrix par2 by transforms and by the matrix: processor seconds of one thread.

  bench/powers.py LIBRARY [--before LIBRARY] [--kernels avx512-gfni,avx2] [--codes 2000+200x65536,...] [--json FILE]

LIBRARY is a libtandem.so. --before: another build of it, to compare with. In a round each way runs once, so that other
load slows all of them alike. Shown are the least times and the medians of the ratios. Each code has its bytes of a shard
behind x; a third number is data shards that are lost (2000+200x65536-150): then it is a decode."""

import argparse
import ctypes
import os
import pathlib
import re
import statistics
import time

import rows

CODES = ("500+50x65536,1000+100x65536,2000+100x65536,2000+200x65536,2000+400x65536,4000+400x32768,8000+800x16384,"
         "2000+200x65536-105")


class CodecOptions(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_size_t), ("k", ctypes.c_uint32), ("m", ctypes.c_uint32), ("matrix", ctypes.c_int32),
                ("field", ctypes.c_int32), ("coefficients", ctypes.c_void_p), ("allow_non_mds", ctypes.c_int32),
                ("reserved", ctypes.c_int32)]


class ContextOptions(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_size_t), ("backend", ctypes.c_char_p), ("kernel", ctypes.c_char_p),
                ("thread_count", ctypes.c_uint32), ("log_level", ctypes.c_int32), ("log", ctypes.c_void_p * 2),
                ("texts", ctypes.c_char_p * 4), ("expert", ctypes.c_char_p)]


class Way:
    """One library with one technique and one kernel."""

    def __init__(self, path, kernel, technique):
        self.library = ctypes.CDLL(str(pathlib.Path(path).resolve()))
        self.library.tandem_last_error_message.restype = ctypes.c_char_p
        self.context = ctypes.c_void_p()
        options = ContextOptions(ctypes.sizeof(ContextOptions), b"cpu", kernel.encode(), 1)
        options.expert = b"technique=" + technique.encode() if technique else None
        self.check(self.library.tandem_context_create(ctypes.byref(options), ctypes.byref(self.context)))

    def check(self, status):
        if status:
            raise RuntimeError(self.library.tandem_last_error_message().decode())

    def codec(self, k, m):
        codec = ctypes.c_void_p()
        options = CodecOptions(ctypes.sizeof(CodecOptions), k, m, 16, 1, None, 1)
        self.check(self.library.tandem_codec_create(ctypes.byref(options), ctypes.byref(codec)))
        return codec

    def seconds(self, call, *arguments):
        start = time.process_time()
        self.check(getattr(self.library, call)(self.context, *arguments))
        return time.process_time() - start


def measure(ways, code, rounds):
    k, m, size, lost = (int(number or 0) for number in re.fullmatch(r"(\d+)\+(\d+)x(\d+)(?:-(\d+))?", code).groups())
    step = size + 192  # shards at different places of their pages
    memory = ctypes.create_string_buffer(os.urandom(step * k) + bytes(step * m + 64), step * (k + m) + 64)
    first = -(-ctypes.addressof(memory) // 64) * 64  # of a cache line
    shards = (ctypes.c_void_p * (k + m))(*(first + i * step for i in range(k + m)))
    parity = (ctypes.c_void_p * m)(*shards[k:])
    present = (ctypes.c_uint8 * (k + m))(*(i >= lost for i in range(k + m)))
    times = {name: [] for name in ways}
    results = set()
    for each in range(rounds + 1):  # the first one makes the plans
        for name, way in ways.items():
            codec = way.codec(k, m) if each == 0 else times[name][0][1]
            if lost and each == 0:
                way.seconds("tandem_encode", codec, shards, parity, ctypes.c_size_t(size))
            call = ("tandem_decode", codec, shards, present) if lost else ("tandem_encode", codec, shards, parity)
            times[name].append((way.seconds(*call, ctypes.c_size_t(size)), codec))
            if each == 0:
                results.add(hash(memory.raw))
    if len(results) != 1:
        raise RuntimeError(f"{code}: the ways differ")
    row = {"operation": "decode" if lost else "encode", "k": k, "m": m, "lost": lost, "shard_bytes": size}
    for name, samples in times.items():
        row[f"{name}_seconds"] = round(min(seconds for seconds, _ in samples[1:]), 5)
    for name in list(ways)[1:]:
        ratios = [other[0] / own[0] for other, own in zip(times[name][1:], times["transform"][1:])]
        row[f"over_{name}"] = round(statistics.median(ratios), 2)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--before")
    parser.add_argument("--kernels", default="avx512-gfni,avx2-gfni,avx2")
    parser.add_argument("--codes", default=CODES)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json")
    flags = parser.parse_args()
    results = []
    for kernel in flags.kernels.split(","):
        ways = {"transform": Way(flags.library, kernel, "transform"), "matrix": Way(flags.library, kernel, "matrix")}
        if flags.before:
            ways["before"] = Way(flags.before, kernel, "")
        for code in flags.codes.split(","):
            results.append({"kernel": kernel} | measure(ways, code, flags.rounds))
            print(results[-1], flush=True)
    if flags.json:
        pathlib.Path(flags.json).write_text(rows.dumps({"command": "powers.py", "clock": "cpu", "threads": 1, "results": results}))


if __name__ == "__main__":
    main()
