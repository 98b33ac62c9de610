#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Encodes, verifies, repairs and decodes shard files of more than 5 GiB with the real command, without 5 GiB of disk. The
content is a sparse file with a few written parts, and sparse.c turns written zeros into holes. Every byte is read, hashed
and coded; offsets go beyond 4 GiB; memory is measured.

Usage: huge_test.py TANDEM SPARSE_LIBRARY [MEBIBYTES]
"""
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

TANDEM, LIBRARY = map(os.path.abspath, sys.argv[1:3])
CONTENT_BYTES = int(sys.argv[3] if len(sys.argv) > 3 else 5 * 1024 + 17) * 2**20 + 12345
THREADS = 2
MEMORY_BYTES = (256 + 64 * THREADS) * 2**20  # the bound of files.h
BLOCK_BYTES = 16 << 20
PLACES = [0, 1 << 30, (1 << 32) - 50_000, (1 << 32) + 200_000, CONTENT_BYTES - 100_000]  # of the islands


def islands():
    rng = random.Random(11)
    return {place: rng.randbytes(99_000) for place in PLACES if 0 <= place <= CONTENT_BYTES - 99_000}


def tandem(*arguments, status=0):
    started = time.time()
    environment = dict(os.environ, LD_PRELOAD=LIBRARY)
    process = subprocess.Popen([TANDEM, *map(str, arguments)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = process.stdout.read().decode()
    _, wait_status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(wait_status)
    peak_bytes = usage.ru_maxrss * 1024
    print(f"{arguments[0]}: {time.time() - started:.1f} s, {peak_bytes / 2**20:.0f} MiB at most", flush=True)
    assert process.returncode == status, f"exit {process.returncode}: {output}"
    assert peak_bytes < MEMORY_BYTES, f"{peak_bytes} bytes of memory, more than {MEMORY_BYTES}"
    return output


def allocated_bytes(folder):
    return sum(os.stat(os.path.join(folder, name)).st_blocks * 512 for name in os.listdir(folder))


def check_content(path):
    assert os.stat(path).st_size == CONTENT_BYTES
    with open(path, "rb") as file:
        for place, content in islands().items():
            file.seek(place)
            assert file.read(len(content)) == content, f"wrong bytes at {place}"


def run(root):
    source, shards, copy = (os.path.join(root, name) for name in ("source", "shards", "copy"))
    with open(source, "wb") as file:
        file.truncate(CONTENT_BYTES)
        for place, content in islands().items():
            file.seek(place)
            file.write(content)
    common = ("--threads", THREADS, "--no-sync")
    tandem("encode", source, "-k", 1, "-m", 1, "--block-bytes", BLOCK_BYTES, "-o", shards, *common)
    files = [os.path.join(shards, f"source.{i:03}.tandem") for i in (0, 1)]
    for path in files:
        assert os.stat(path).st_size > CONTENT_BYTES, "a shard file is too short"
    assert allocated_bytes(shards) < 64 << 20, "the zeros were written"

    # A bad block beyond 4 GiB in the data shard: found, decoded around, mended.
    bad_block = (CONTENT_BYTES - 200_000) // (BLOCK_BYTES - 16)
    with open(files[0], "r+b") as file:
        file.seek(4096 + bad_block * BLOCK_BYTES + 5)
        file.write(b"damage")
    output = tandem("verify", shards, "--threads", THREADS, status=1)
    assert f"block damaged: {bad_block}" in output or f"block {bad_block} " in output, output
    tandem("decode", shards, "-o", copy, *common)
    check_content(copy)
    os.remove(copy)
    tandem("repair", shards, *common)
    os.remove(files[1])  # now everything comes from the mended file
    tandem("decode", shards, "-o", copy, *common)
    check_content(copy)


def main():
    # Holes of files in memory are read fast: no page is made for them.
    shared = "/dev/shm"
    in_memory = os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > 256 << 20
    root = tempfile.mkdtemp(prefix="tandem-huge-", dir=shared if in_memory else None)
    try:
        run(root)
    finally:
        shutil.rmtree(root, True)


main()
