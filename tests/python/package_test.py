#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The package tandem_ec as it is installed: package_test.py GOLDEN [unittest's arguments], where GOLDEN is tests/data/golden.json.
If the variable TANDEM_COMMAND is set, it names the command `tandem`; its files and bytes are compared too."""

import array
import asyncio
import ast
import dataclasses
import gc
import hashlib
import importlib.metadata
import io
import itertools
import json
import mmap
import multiprocessing
import os
import pathlib
import pickle
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy

import tandem_ec
from tandem_ec import _native, errors, files, par2

# A process that multiprocessing spawns loads this file too.
GOLDEN = json.loads(pathlib.Path(sys.argv.pop(1)).read_text())["vectors"] if __name__ == "__main__" else []
TANDEM = os.environ.get("TANDEM_COMMAND")
LIMIT = 60  # seconds that a wait may take before the test fails


def paint(*shape):
    """Bytes with period 251, so that swapped shards show."""
    return (numpy.arange(int(numpy.prod(shape)), dtype=numpy.uint32) % 251).astype(numpy.uint8).reshape(shape)


def address(buffer):
    return numpy.frombuffer(buffer, numpy.uint8).ctypes.data


class DlpackOnly:
    """An array that gives its memory by DLPack alone."""

    def __init__(self, array):
        self.array, self.asked = array, 0

    def __dlpack__(self, **options):
        self.asked += 1
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Bytes(unittest.TestCase):
    def test_golden(self):
        known = 0
        for vector in GOLDEN:
            k, m = vector["k"], vector["m"]
            try:
                rs = tandem_ec.RS(k, m, vector["preset"], allow_non_mds=True)
            except (errors.InvalidArgument, errors.Unavailable):
                continue  # a preset that goes by another name, or a byte layout that the core does not have
            data = numpy.array([[(17 * i + 5 * j + 3 * i * j + 1) & 255 for j in range(64)] for i in range(k)], numpy.uint8)
            parity = rs.encode(data)
            if "jerasure-cauchy" not in vector["preset"]:  # there the coefficients are the same, the layout is not
                self.assertEqual(hashlib.md5(numpy.ascontiguousarray(parity)).hexdigest(), vector["parity_md5"], vector)
            if "matrix" in vector and rs.field == "gf8":
                self.assertEqual(rs.coefficients.tolist(), vector["matrix"])
            known += 1
        self.assertGreaterEqual(known, 20)

    def test_every_loss(self):
        rs, n = tandem_ec.RS(4, 3), 1000
        data = paint(4, n)
        whole = [*data, *rs.encode(data)]
        for count in range(4):
            for lost in itertools.combinations(range(7), count):
                shards = [shard.copy() for shard in whole]
                for i in lost:
                    shards[i][:] = 0xEE
                rs.decode(shards, [i not in lost for i in range(7)])
                for i in range(7):
                    self.assertTrue((shards[i] == whole[i]).all(), (lost, i))
                rebuilt = rs.reconstruct({i: whole[i] for i in range(7) if i not in lost}, want=lost)
                self.assertEqual(set(rebuilt), set(lost))
                self.assertTrue(all((rebuilt[i] == whole[i]).all() for i in lost))

    def test_operations(self):
        rs, n = tandem_ec.RS(6, 3), 777
        data = paint(6, n)
        parity = rs.encode(data)
        changed = data.copy()
        changed[2] = data[2][::-1]
        mine = parity.copy()
        rs.update(2, data[2], changed[2], mine)
        self.assertTrue((mine == rs.encode(changed)).all())
        fed = numpy.full((3, n), 0xAA, numpy.uint8)
        for turn, i in enumerate((3, 0, 5, 1, 4, 2)):
            rs.accumulate(i, data[i], fed, first=turn == 0)
        self.assertTrue((fed == parity).all())
        self.assertTrue(rs.verify([*data, *parity]))
        parity[1, 700] ^= 4
        found = rs.verify([*data, *parity])
        self.assertEqual(dataclasses.astuple(found), (False, 1, 1, 700, 7, 7))
        self.assertFalse(found)
        only = numpy.zeros(n, numpy.uint8)
        rs.encode(data, [None, None, only])  # a parity that is not wanted
        self.assertTrue((only == rs.encode(data)[2]).all())

    def test_stripes(self):
        rs = tandem_ec.RS(3, 2)
        stripes = [numpy.concatenate([paint(3, n), numpy.zeros((2, n), numpy.uint8)]) for n in (1, 64, 5000)]
        rs.encode_stripes(stripes)
        for stripe in stripes:
            self.assertTrue((stripe[3:] == rs.encode(stripe[:3])).all())
        whole = [stripe.copy() for stripe in stripes]
        present = [[0, 1, 1, 0, 1], [1, 1, 1, 1, 1], [1, 0, 0, 1, 1]]
        for stripe, flags in zip(stripes, present):
            stripe[[not flag for flag in flags]] = 0
        rs.decode_stripes(stripes, present)
        self.assertTrue(all((a == b).all() for a, b in zip(stripes, whole)))
        rs.encode_stripes([])
        with self.assertRaisesRegex(errors.NotRecoverable, "3"):
            rs.decode_stripes(stripes[:1], [[0, 0, 0, 1, 1]])

    def test_gf16(self):
        rs = tandem_ec.RS(300, 20, "leopard16")
        self.assertEqual(rs.field, "gf16")
        data = paint(300, 128)
        parity = rs.encode(data)
        rebuilt = rs.reconstruct({**{i: data[i] for i in range(20, 300)}, **{300 + i: parity[i] for i in range(20)}})
        self.assertTrue(all((rebuilt[i] == data[i]).all() for i in range(20)))
        with self.assertRaisesRegex(errors.InvalidArgument, "3"):
            rs.encode(paint(300, 3))

    def test_split_and_join(self):
        """Data of any length, through lost shards and back."""
        for matrix in ("isal-cauchy", "leopard16"):
            rs = tandem_ec.RS(5, 2, matrix)
            for length in (0, 1, 4, 5, 6, 10, 11, 1001, 100_000):
                content = random.Random(length).randbytes(length)
                data = rs.split(content)
                parity = rs.encode(data)
                least = max(1, -(-length // 5))
                self.assertEqual(data.shape, (5, least if rs.field == "gf8" else least + least % 2))
                self.assertEqual(data.tobytes(), content.ljust(data.size, b"\0"))
                self.assertEqual(rs.join([*data, *parity], length), content)
                rebuilt = rs.reconstruct({2: data[2], 3: data[3], 4: data[4], 5: parity[0], 6: parity[1]})
                self.assertEqual(rs.join([rebuilt[0], rebuilt[1], *data[2:]], length), content)
        self.assertEqual(rs.join((row for row in rs.split(bytearray(b"generator"))), 9), b"generator")
        self.assertEqual(rs.join([rs.split(b"abcdefghij")[0], None, None, None, None], 2), b"ab")
        with self.assertRaisesRegex(errors.InvalidArgument, r"shards\[1\] is None: reconstruct the lost data shards first"):
            rs.join([data[0], None, *data[2:]], data.shape[1] + 1)
        with self.assertRaisesRegex(errors.InvalidArgument, "length is 100001; 5 data shards of 20000 bytes have 0 to 100000"):
            rs.join(data, 100_001)
        with self.assertRaisesRegex(errors.InvalidArgument, "length is -1"):
            rs.join(data, -1)
        with self.assertRaisesRegex(errors.InvalidArgument, "shards has 4 shards; it must have 5"):
            rs.join(list(data[:4]), 8)

    def test_coefficients(self):
        """A custom matrix that is a preset's gives its bytes."""
        preset = tandem_ec.RS(5, 2)
        custom = tandem_ec.RS(5, 2, coefficients=preset.coefficients.tobytes())
        self.assertEqual(custom.encode(paint(5, 99)).tobytes(), preset.encode(paint(5, 99)).tobytes())
        self.assertEqual(pickle.loads(pickle.dumps(custom)).encode(paint(5, 9)).tobytes(), preset.encode(paint(5, 9)).tobytes())
        with self.assertRaisesRegex(errors.InvalidArgument, "coefficients has 9 bytes; 2 x 5 elements of gf8 have 10"):
            tandem_ec.RS(5, 2, coefficients=bytes(9))


class Objects(unittest.TestCase):
    """What shards may lie in. Nothing is copied."""

    def setUp(self):
        self.rs = tandem_ec.RS(3, 2)
        self.data = paint(3, 5000)
        self.parity = self.rs.encode(self.data).tobytes()

    def test_buffers(self):
        with mmap.mmap(-1, 5000) as mapped:
            mapped[:] = self.data[2].tobytes()
            data = [self.data[0].tobytes(), bytearray(self.data[1]), mapped]
            for out in ([bytearray(5000), memoryview(bytearray(5000))], [array.array("B", bytes(5000)) for _ in range(2)],
                        (numpy.zeros(5000, numpy.uint8), mmap.mmap(-1, 5000))):
                self.assertIs(self.rs.encode(data, out), out)
                self.assertEqual(b"".join(bytes(one) for one in map(memoryview, out)), self.parity)
        self.assertEqual(self.rs.encode(iter(self.data)).tobytes(), self.parity)
        self.assertEqual(self.rs.encode(self.data.view(numpy.int8)).tobytes(), self.parity)

    def test_no_copy(self):
        """Other views of the memory see all writes of the library, and addresses do not change."""
        whole = tandem_ec.empty(5, 5000)
        whole[:3] = self.data
        before = [row.ctypes.data for row in whole]
        out = whole[3:]
        self.assertIs(self.rs.encode(whole[:3], out), out)
        self.assertEqual([row.ctypes.data for row in whole], before)
        self.assertEqual(whole[3:].tobytes(), self.parity)
        self.assertTrue(all(at % 64 == 0 for at in before))
        backwards = whole[::-1]  # rows may lie in any order
        self.assertEqual(self.rs.encode(backwards[:1:-1][:3]).tobytes(), self.parity)

    def test_dlpack(self):
        data, out = DlpackOnly(self.data), DlpackOnly(numpy.zeros((2, 5000), numpy.uint8))
        self.rs.encode(data, out)
        self.assertEqual(out.array.tobytes(), self.parity)
        self.assertGreaterEqual(data.asked, 1)
        rows = [DlpackOnly(row) for row in self.data]
        self.assertEqual(self.rs.encode(rows).tobytes(), self.parity)
        with self.assertRaisesRegex(errors.InvalidArgument, "elements of 4 bytes"):
            self.rs.encode(DlpackOnly(numpy.zeros((3, 8), numpy.float32)))
        with self.assertRaisesRegex(errors.InvalidArgument, "steps of 2"):
            self.rs.encode(DlpackOnly(self.data[:, ::2]))
        frozen = numpy.zeros((2, 5000), numpy.uint8)
        frozen.flags.writeable = False
        with self.assertRaises((errors.InvalidArgument, BufferError)):
            self.rs.encode(self.data, DlpackOnly(frozen))
        self.assertFalse(frozen.any())

    def test_held_and_let_go(self):
        out = [bytearray(5000), bytearray(5000)]
        self.rs.encode(self.data, out)
        out[0].extend(b"x")  # nothing holds it any more
        with self.assertRaises(errors.InvalidArgument):
            self.rs.encode(self.data, out)
        out[0].extend(b"x")  # nor after a call that was refused
        counts = [sys.getrefcount(self.data), sys.getrefcount(out)]
        for _ in range(100):
            self.rs.encode(self.data, numpy.zeros((2, 5000), numpy.uint8))
        self.assertEqual([sys.getrefcount(self.data), sys.getrefcount(out)], counts)

    def test_empty(self):
        rows = tandem_ec.empty(3, 100)
        self.assertEqual((rows.shape, rows.dtype), ((3, 100), numpy.uint8))
        row = rows[2]
        row[:] = 7
        del rows
        gc.collect()
        self.assertEqual(row.tobytes(), b"\7" * 100)  # the array keeps the memory
        self.assertEqual(tandem_ec.empty(1, 5).shape, (1, 5))
        for count, n in ((0, 5), (3, 0), (-1, 5), (3, -7), (1 << 40, 5)):
            with self.assertRaisesRegex(errors.InvalidArgument, f"is {count if n > 0 and not 0 < count < 9 else n};"):
                tandem_ec.empty(count, n)
        with self.assertRaises((errors.TooLarge, errors.OutOfMemory)):
            tandem_ec.empty(1 << 20, 1 << 60)

    def test_device_tensors(self):
        try:
            import torch
        except ImportError:
            self.skipTest("NOT RUN: torch is not installed")
        if not torch.cuda.is_available():
            self.skipTest("NOT RUN: no CUDA device")
        data = torch.from_numpy(self.data).cuda()
        out = torch.empty((2, 5000), dtype=torch.uint8, device="cuda")
        self.rs.encode(data, out)
        self.assertEqual(out.cpu().numpy().tobytes(), self.parity)


class BadInput(unittest.TestCase):
    def setUp(self):
        self.rs = tandem_ec.RS(3, 2)
        self.data = paint(3, 500)

    def refused(self, sentence, function, *arguments, kind=errors.InvalidArgument, **more):
        with self.assertRaisesRegex(kind, sentence) as caught:
            function(*arguments, **more)
        error = caught.exception
        self.assertEqual(error.name, "TANDEM_ERROR_" + {errors.InvalidArgument: "INVALID_ARGUMENT", errors.Overlap: "OVERLAP",
                         errors.NotRecoverable: "NOT_RECOVERABLE", errors.NotMDS: "NOT_MDS", errors.Unavailable:
                         "UNAVAILABLE", errors.Unsupported: "UNSUPPORTED"}[kind])
        self.assertGreater(error.status, 0)
        copy = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(copy), copy.status, str(copy)), (type(error), error.status, str(error)))

    def test_reconstruct_says_what_it_takes(self):
        self.refused(r"shards is a list; it must be a dict .* if shard is not None}", self.rs.reconstruct, [None, *self.data])
        self.refused(r"shards\[1\] is None: leave lost shards out", self.rs.reconstruct, {0: self.data[0], 1: None})

    def test_shapes(self):
        encode = self.rs.encode
        self.refused(r"\(4, 500\); it must be \(3, n\)", encode, paint(4, 500))
        self.refused("data has 2 shards; it must have 3", encode, [b"a", b"b"])
        self.refused("data is one buffer of 1500 bytes", encode, bytes(1500))
        self.refused("3 dimensions", encode, paint(3, 5, 4))
        self.refused("elements of 8 bytes", encode, self.data.astype(float))
        self.refused(r"data\[1\] has elements of 2 bytes", encode, [bytes(6), numpy.zeros(3, numpy.uint16), bytes(6)])
        self.refused("steps of 2 bytes", encode, paint(3, 500)[:, ::2])
        self.refused(r"data\[0\] has steps of -1 bytes", encode, [row[::-1] for row in self.data])
        self.refused(r"data\[2\] has 4 bytes, data\[0\] has 5", encode, [bytes(5), bytes(5), bytes(4)])
        self.refused("0 bytes", encode, numpy.zeros((3, 0), numpy.uint8))
        self.refused("0 bytes", encode, [b"", b"", b""])
        self.refused(r"data\[1\] is None", encode, [b"a", None, b"a"])
        self.refused("data is a int", encode, 7)
        self.refused("data is a str", encode, "abc")
        self.refused(r"data\[0\] is a str", encode, ["a", "b", "c"])
        self.refused(r"2 dimensions", encode, [self.data, self.data, self.data])
        self.refused("out has shards of 499 bytes, data of 500", encode, self.data, numpy.zeros((2, 499), numpy.uint8))
        self.refused(r"out has the shape \(3, 500\)", encode, self.data, numpy.zeros((3, 500), numpy.uint8))

    def test_read_only(self):
        frozen = numpy.zeros((2, 500), numpy.uint8)
        frozen.flags.writeable = False
        self.refused("out is written and is read-only: 1000 bytes", self.rs.encode, self.data, frozen)
        self.refused(r"out\[1\] is written and is read-only: 500 bytes", self.rs.encode, self.data, [bytearray(500), bytes(500)])
        shards = [*self.data, *self.rs.encode(self.data)]
        shards[1] = bytes(500)
        self.refused(r"shards\[1\] is written and is read-only", self.rs.decode, shards, [1, 0, 1, 1, 1])

    def test_overlap(self):
        for n in (64, 500, 100_000):
            room = numpy.zeros(7 * n, numpy.uint8)
            data = room[: 3 * n].reshape(3, n)
            before = room.tobytes()
            self.refused("overlap", self.rs.encode, data, [room[4 * n: 5 * n], room[3 * n - 1: 4 * n - 1]], kind=errors.Overlap)
            self.refused("overlap", self.rs.encode, data, [room[4 * n: 5 * n], room[5 * n - 1: 6 * n - 1]], kind=errors.Overlap)
            self.refused("overlap", self.rs.encode, data, numpy.lib.stride_tricks.as_strided(room[4 * n:], (2, n), (1, 1)),
                         kind=errors.Overlap)
            self.refused("overlap", self.rs.decode, [*data, room[3 * n: 4 * n], data[0]], [1, 1, 1, 1, 0], kind=errors.Overlap)
            self.refused("overlap", self.rs.update, 0, data[0], data[1], [data[1], None], kind=errors.Overlap)
            self.assertEqual(room.tobytes(), before)
        self.rs.encode([self.data[0]] * 3)  # inputs may alias

    def test_too_few(self):
        parity = self.rs.encode(self.data)
        self.refused("3", self.rs.decode, [*self.data, *parity], [0, 0, 0, 1, 1], kind=errors.NotRecoverable)
        self.refused("3", self.rs.reconstruct, {0: self.data[0], 4: parity[1]}, kind=errors.NotRecoverable)
        self.refused("3", self.rs.reconstruct, {}, kind=errors.NotRecoverable)
        self.refused("present has 4 entries; it must have one for each of 5", self.rs.decode, [*self.data, *parity], [1] * 4)
        self.refused("present is a int", self.rs.decode, [*self.data, *parity], 1)
        self.refused("None", self.rs.decode, [None] * 5, [0] * 5)
        self.refused("index 5", self.rs.reconstruct, {5: b"a"})
        self.refused("index 9", self.rs.reconstruct, {0: b"a", 1: b"a", 2: b"a"}, want=[9])
        self.refused("index 1", self.rs.reconstruct, {0: b"a", 1: b"a", 2: b"a"}, want=[1])
        self.refused("2 indices, 1", self.rs.reconstruct, {0: b"a", 1: b"a", 2: b"a"}, want=[3, 3])
        self.refused(r"out has the indices \[4\]", self.rs.reconstruct, {0: b"a", 1: b"a", 2: b"a"}, [3], {4: bytearray(1)})

    def test_codes(self):
        self.refused("k is 0", tandem_ec.RS, 0, 2)
        self.refused("k is -1", tandem_ec.RS, -1, 2)
        self.refused("m is 4294967298", tandem_ec.RS, 3, 2**32 + 2)
        self.refused("k = 200, m = 100", tandem_ec.RS, 200, 100)
        self.refused("no-such", tandem_ec.RS, 3, 2, "no-such")
        self.refused("field is 'gf32'", tandem_ec.RS, 3, 2, field="gf32")
        self.refused("threads is -1", tandem_ec.RS, 3, 2, threads=-1)
        self.refused("fpga", tandem_ec.RS, 3, 2, backend="fpga", kind=errors.Unavailable)
        self.refused("mmx", tandem_ec.RS, 3, 2, kernel="mmx", kind=errors.Unavailable)
        self.refused("isal-vandermonde", tandem_ec.RS, 20, 10, "isal-vandermonde", kind=errors.NotMDS)
        self.refused("index is 3; there are 3 data shards", self.rs.update, 3, b"a", b"b", [bytearray(1)] * 2)
        self.refused("index is -1", self.rs.accumulate, -1, b"a", [bytearray(1)] * 2)
        self.refused("new has 2 bytes, old has 1", self.rs.update, 0, b"a", b"bb", [bytearray(1), bytearray(1)])
        with self.assertRaises(TypeError):
            tandem_ec.RS("3", 2)

    def test_no_m(self):
        rs = tandem_ec.RS(3, 0)
        self.refused("m is 0", rs.encode, self.data)

    def test_raising_objects(self):
        class Bad:
            def __bool__(self):
                raise KeyError("truth")

        with self.assertRaises(KeyError):
            self.rs.decode([*self.data, *self.data[:2]], [Bad()] * 5)

        def raising():
            yield self.data[0]
            raise KeyError("shards")

        self.refused("data is a generator", self.rs.encode, raising())


class Threads(unittest.TestCase):
    def test_threads_share_one(self):
        rs = tandem_ec.RS(10, 4)
        wrong = []

        def work(seed):
            data = numpy.random.default_rng(seed).integers(0, 256, (10, 30_000 + seed), numpy.uint8)
            parity = rs.encode(data)
            for _ in range(20):
                rebuilt = rs.reconstruct({i: s for i, s in enumerate([*data, *parity]) if i not in (0, 5, 9, 12)})
                if any((rebuilt[i] != data[i]).any() for i in rebuilt):
                    wrong.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_gil_is_released(self):
        """This thread runs while another one is in a call: of a call that keeps the GIL it would see nothing."""
        rs = tandem_ec.RS(10, 4, threads=1)
        self.assertEqual(_native.call_count(), 0)
        for n, is_long in ((1 << 20, True), (64, False)):
            data, out = paint(10, n), numpy.zeros((4, n), numpy.uint8)
            stop, turns = threading.Event(), [0]

            def work():
                while not stop.is_set():
                    rs.encode(data, out)
                    turns[0] += 1

            thread = threading.Thread(target=work)
            thread.start()
            limit = time.monotonic() + LIMIT
            seen = False
            while not seen and time.monotonic() < limit and (is_long or turns[0] < 10_000):
                seen = _native.call_count() > 0
                time.sleep(0)
            stop.set()
            thread.join()
            self.assertEqual(seen, is_long)

    def test_pickle(self):
        rs = tandem_ec.RS(5, 3, "backblaze", threads=1, kernel="scalar")
        copy = pickle.loads(pickle.dumps(rs))
        self.assertEqual((copy.k, copy.m, copy.matrix, copy.context_info()["kernel"]), (5, 3, "backblaze", "scalar"))
        self.assertEqual(copy.encode(paint(5, 100)).tobytes(), rs.encode(paint(5, 100)).tobytes())

    def test_forced_kernel_runs(self):
        rs = tandem_ec.RS(5, 3, kernel="scalar", threads=1)
        rs.encode(paint(5, 1 << 16))
        info = rs.context_info()
        self.assertEqual((info["kernel"], info["thread_count"]), ("scalar", 1))
        self.assertGreater(info["kernel_calls"], 0)

    def test_fork(self):
        """Children made while other threads are in calls go on with the parent's RS."""
        rs = tandem_ec.RS(10, 4)
        data = paint(10, 200_000)
        expected = rs.encode(data).tobytes()
        stop = threading.Event()

        def busy():
            out = numpy.zeros((4, 200_000), numpy.uint8)
            while not stop.is_set():
                rs.encode(data, out)

        threads = [threading.Thread(target=busy) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(10):
                child = os.fork()
                if child == 0:
                    try:
                        good = rs.encode(data).tobytes() == expected and tandem_ec.RS(3, 2).verify(bytes(1) for _ in range(5))
                    except BaseException:
                        good = False
                    os._exit(0 if good else 1)
                self.assertEqual(os.waitpid(child, 0)[1], 0)
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def test_processes(self):
        """RS as an argument of another process, forked and spawned."""
        rs = tandem_ec.RS(4, 2)
        for method in ("fork", "spawn"):
            with multiprocessing.get_context(method).Pool(1) as pool:
                self.assertEqual(pool.apply_async(rs.encode, (paint(4, 1000),)).get(LIMIT).tobytes(),
                                 rs.encode(paint(4, 1000)).tobytes())


class Exit(unittest.TestCase):
    """The end of the interpreter while calls run: exit status 0, nothing on standard error."""

    def ends_well(self, program, *arguments):
        done = subprocess.run([sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)

    def test_daemon_threads(self):
        for _ in range(5):
            self.ends_well("""
import threading, numpy, tandem_ec
rs = tandem_ec.RS(10, 4)
data = numpy.ones((10, 1 << 21), numpy.uint8)
begun = threading.Event()
def work():
    out = numpy.zeros((4, 1 << 21), numpy.uint8)
    while True:
        rs.encode(data, out)
        begun.set()
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
begun.wait()
""")

    def test_jobs(self):
        self.ends_well("""
import asyncio, numpy, tandem_ec
rs = tandem_ec.RS(10, 4)
data = numpy.ones((10, 1 << 23), numpy.uint8)
async def main():
    asyncio.ensure_future(rs.encode_async(data))
    await asyncio.sleep(0)
asyncio.run(main())
job = rs._submit_encode(data)  # not waited for
""")

    def test_fork_and_exit(self):
        self.ends_well("""
import os, sys, threading, numpy, tandem_ec
rs = tandem_ec.RS(10, 4)
data = numpy.ones((10, 1 << 21), numpy.uint8)
stop = threading.Event()
def work():
    while not stop.is_set():
        rs.encode(data)
thread = threading.Thread(target=work)
thread.start()
children = []
for _ in range(5):
    child = os.fork()
    if child == 0:
        sys.exit(0)  # a whole exit, with its handlers
    children.append(child)
statuses = [os.waitpid(child, 0)[1] for child in children]
stop.set()
thread.join()
sys.exit(any(statuses))
""")

    def test_files_of_a_daemon_thread(self):
        with tempfile.TemporaryDirectory() as folder:
            self.ends_well("""
import os, sys, threading, tandem_ec
reading, writing = os.pipe()  # the encode waits for it for ever
begun = threading.Event()
def work():
    try:
        tandem_ec.files.encode(os.fdopen(reading, "rb"), sys.argv[1] + "/shards", 3, 2, name="x",
                               progress=lambda done, total: begun.set())
    except tandem_ec.errors.Cancelled:
        pass
threading.Thread(target=work, daemon=True).start()
os.write(writing, bytes(1 << 16))
assert begun.wait(60)
""", folder)
            self.assertEqual(os.listdir(folder), [])


class Async(unittest.TestCase):
    def test_await(self):
        rs, data = tandem_ec.RS(10, 4), paint(10, 1 << 18)
        expected = rs.encode(data)

        async def main():
            out = numpy.zeros((4, 1 << 18), numpy.uint8)
            self.assertIs(await rs.encode_async(data, out), out)
            self.assertTrue((out == expected).all())
            many = await asyncio.gather(*(rs.encode_async(data) for _ in range(50)))
            self.assertTrue(all((one == expected).all() for one in many))
            shards = [*data.copy(), *expected]
            shards[3][:] = 0
            await rs.decode_async(shards, [i != 3 for i in range(14)])
            self.assertTrue((shards[3] == data[3]).all())
            with self.assertRaisesRegex(errors.InvalidArgument, "out has shards of 5 bytes"):
                await rs.encode_async(data, numpy.zeros((4, 5), numpy.uint8))
            with self.assertRaises(errors.NotRecoverable):
                await rs.decode_async(shards, [0] * 5 + [1] * 9)

        asyncio.run(main())

    def test_cancel(self):
        """A task that is cancelled ends as cancelled, and nothing writes afterwards."""
        rs = tandem_ec.RS(10, 4, threads=1, kernel="scalar")
        data = paint(10, 1 << 22)

        async def main():
            for _ in range(3):
                out = numpy.zeros((4, 1 << 22), numpy.uint8)
                task = asyncio.ensure_future(rs.encode_async(data, out))
                await asyncio.sleep(0)  # it has submitted
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                before = out.tobytes()
                await asyncio.sleep(0.01)
                self.assertEqual(out.tobytes(), before)

        asyncio.run(main())

    def test_job_that_is_cancelled(self):
        """The job itself stops. One that is over before its cancel stays as it was: that is tried again."""
        rs = tandem_ec.RS(10, 4, threads=1, kernel="scalar")
        data = paint(10, 1 << 23)
        for _ in range(100):
            out, job = rs._submit_encode(data)
            job.cancel()
            try:
                job.wait()
            except errors.Cancelled:
                return
        self.fail("none of 100 jobs was cancelled")

    def test_held_while_it_runs(self):
        rs = tandem_ec.RS(2, 1, threads=1, kernel="scalar")
        data = [bytearray(1 << 20), bytearray(1 << 20)]
        out, job = rs._submit_encode(data, [bytearray(1 << 20)])
        with self.assertRaises(BufferError):
            data[0].extend(b"x")
        with self.assertRaises(BufferError):
            out[0].clear()
        job.wait()
        data[0].extend(b"x")
        array_data = numpy.ones((2, 1 << 20), numpy.uint8)
        out, job = rs._submit_encode(array_data)
        with self.assertRaises(ValueError):  # another object refers to it
            array_data.resize((2, 5))
        first = array_data[0].copy()
        del array_data, data
        gc.collect()
        job.wait()
        self.assertTrue((out[0] == rs.encode([first, first])[0]).all())


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tandem-python-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.source = self.folder / "content"
        self.content = random.Random(1).randbytes(3_000_001)
        self.source.write_bytes(self.content)
        self.shards = self.folder / "shards"

    def encode(self, **more):
        return files.encode(self.source, self.shards, 4, 2, sync=False, **more)

    def test_there_and_back(self):
        heard = []
        result = self.encode(progress=lambda done, total: heard.append((done, total)))
        self.assertEqual((result.k, result.m, result.matrix, result.content_bytes), (4, 2, "isal-cauchy", 3_000_001))
        self.assertTrue(all(total == 3_000_001 and done <= total for done, total in heard))
        self.assertTrue(files.verify(self.shards))
        one, = files.info(self.shards)
        self.assertEqual((one.set_id, one.k, one.shard_count, len(one.files)), (result.set_id, 4, 6, 6))
        os.remove(one.files[1].path)
        with open(one.files[4].path, "r+b") as file:
            file.seek(9000)
            file.write(b"damage")
        found = files.verify(self.shards)
        self.assertEqual((found.state, found.missing_shard_count, found.bad_block_count), ("recoverable", 1, 1))
        self.assertEqual([f.index for f in found.findings if f.bad_block_count and not f.condition], [4])
        with files.open(self.shards) as file:
            self.assertEqual(file.read(), self.content)
            file.seek(-5, 2)
            self.assertEqual((file.tell(), file.read(10), file.read(10)), (2_999_996, self.content[-5:], b""))
        back = self.folder / "back"
        files.decode(self.shards, back, sync=False)
        self.assertEqual(back.read_bytes(), self.content)
        mended = files.repair(self.shards, sync=False)
        self.assertEqual((mended.state, mended.rebuilt_file_count, mended.mended_block_count), ("intact", 1, 1))
        self.assertTrue(files.verify(self.shards))
        self.assertEqual({f.action for f in mended.findings}, {"nothing", "mend", "rebuild"})

    def test_resize(self):
        self.encode()
        places = [self.shards, self.folder / "more"]
        planned = files.resize(self.shards, 3, folders=places[1], dry_run=True)
        self.assertEqual((planned.rebuilt_file_count, places[1].exists()), (1, False))
        grown = files.resize(self.shards, 3, folders=places[1], sync=False)
        self.assertEqual((grown.state, grown.rebuilt_file_count, grown.mended_file_count), ("intact", 1, 6))
        self.assertEqual([f.index for f in grown.findings if f.action == "rebuild"], [6])
        one, = files.info(places)
        self.assertEqual((one.k, one.m, one.shard_count), (4, 3, 7))
        for file in one.files[:3]:
            os.remove(file.path)
        files.decode(places, self.folder / "back", sync=False)
        self.assertEqual((self.folder / "back").read_bytes(), self.content)
        with self.assertRaisesRegex(errors.Damaged, "missing"):
            files.resize(places, 2)
        files.repair(places, sync=False)
        shrunk = files.resize(places, 1, sync=False)
        self.assertEqual((shrunk.state, shrunk.removed_file_count), ("intact", 2))
        self.assertEqual([f.index for f in shrunk.findings if f.action == "remove"], [5, 6])
        self.assertTrue(files.verify(places))
        self.assertEqual(files.info(places)[0].m, 1)
        with self.assertRaises(TypeError):
            files.resize(places, None)
        with self.assertRaisesRegex(errors.InvalidArgument, "m is -1"):
            files.resize(places, -1)

    def test_reader_threads(self):
        self.encode()
        os.remove(files.info(self.shards)[0].files[0].path)
        with files.open(self.shards, buffering=0) as reader:
            wrong = []

            def read(seed):
                choose = random.Random(seed)
                for _ in range(50):
                    at, count = choose.randrange(3_000_001), choose.randrange(100_000)
                    if reader.read_at(at, count) != self.content[at: at + count]:
                        wrong.append((at, count))

            threads = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(wrong, [])
            self.assertEqual(reader.read_at(5_000_000, 9), b"")
            with self.assertRaisesRegex(errors.InvalidArgument, "-1"):
                reader.read_at(-1, 9)
        with self.assertRaises(ValueError):
            reader.read_at(0, 1)
        (self.folder / "empty").mkdir()
        with self.assertRaisesRegex(errors.FileError, "no shard file"):
            files.SetReader(self.folder / "empty")

    def test_streams(self):
        with open(self.source, "rb") as file:
            files.encode(file, [self.folder / "a", self.folder / "b"], 2, 2, name="pipe", sync=False)
        self.assertEqual(sorted(p.name for p in (self.folder / "a").iterdir()), ["pipe.000.tandem", "pipe.002.tandem"])
        with open(self.folder / "back", "wb") as file:
            files.decode([self.folder / "a", self.folder / "b"], file)
        self.assertEqual((self.folder / "back").read_bytes(), self.content)

    def test_progress_ends_it(self):
        class Bar:  # as tqdm
            total, n, updates = None, 0, 0

            def refresh(self):
                pass

            def update(self, more):
                self.n += more
                self.updates += 1

        bar = Bar()
        self.encode(progress=bar)
        if bar.updates:  # told ten times a second: a short call may tell nothing but its end
            self.assertEqual(bar.total, 3_000_001)

        def stop(done, total):
            raise KeyError(f"{done} of {total}")

        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as pipe, self.assertRaises(KeyError):
            files.encode(pipe, self.folder / "other", 2, 1, name="x", progress=stop)  # waits for the pipe for ever
        os.close(writing)
        self.assertFalse((self.folder / "other").exists())

    def test_memory_is_no_file(self):
        """What to use instead is said."""
        for call in (lambda: files.encode(io.BytesIO(b"content"), self.shards, 4, 2), lambda: files.decode(self.shards, io.BytesIO())):
            with self.assertRaisesRegex(errors.InvalidArgument, "is a BytesIO, which has no file descriptor. Use a path.*RS.split"):
                call()

    def test_bad(self):
        with self.assertRaisesRegex(errors.FileError, "nowhere") as caught:
            files.encode(self.folder / "nowhere", self.shards, 4, 2)
        self.assertIsInstance(caught.exception, OSError)
        self.encode()
        with self.assertRaisesRegex(errors.FileError, "exists; use force=True to replace it"):
            self.encode()
        self.encode(force=True)
        with self.assertRaisesRegex(errors.InvalidArgument, "text file"), open(self.source) as file:
            files.encode(file, self.shards, 4, 2)
        with self.assertRaisesRegex(errors.InvalidArgument, "int"):
            files.encode(5, self.shards, 4, 2)
        with self.assertRaisesRegex(errors.InvalidArgument, "k is -4"):
            files.encode(self.source, self.shards, -4, 2)
        with self.assertRaisesRegex(errors.InvalidArgument, "zero byte"):
            files.encode(self.source, "a\0b", 4, 2)
        for file in files.info(self.shards)[0].files[:3]:
            os.remove(file.path)
        with self.assertRaises(errors.NotRecoverable):
            files.decode(self.shards, self.folder / "back")
        self.assertFalse((self.folder / "back").exists())
        self.assertEqual(files.verify(self.shards).state, "lost")


class Par2(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(suffix="\udcff"))
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "data").mkdir()
        for name, size in (("a", 10000), ("b\udcfe", 5000), ("empty", 0)):
            (self.folder / "data" / name).write_bytes(os.urandom(size))
        self.set = self.folder / "set"

    def create(self, **more):
        return par2.create(self.set, self.folder / "data", slice_bytes=1000, sync=False, **more)

    def test_there_and_back(self):
        result = self.create(redundancy=20)
        self.assertEqual((result.file_count, result.slice_count, result.recovery_slice_count, result.packet_file_count), (3, 15, 3, 3))
        report = par2.verify(self.set)
        self.assertTrue(report)
        self.assertEqual((report.set_id, sum(file.bytes for file in report.packet_files)), (result.set_id, result.packet_file_bytes))
        whole = (self.folder / "data/a").read_bytes()
        (self.folder / "data/a").write_bytes(whole[:2000] + b"damage" + whole[2006:])
        (self.folder / "data/b\udcfe").rename(self.folder / "moved")
        report = par2.verify(self.set, extra=self.folder / "moved")
        self.assertFalse(report)
        self.assertEqual({file.name: (file.state, file.found_as, file.found_slice_count) for file in report.files},
                         {"data/a": ("damaged", None, 9), "data/b\udcfe": ("renamed", str(self.folder / "moved"), 5), "data/empty": ("complete", None, 0)})
        calls = []
        report = par2.repair(self.set, extra=[self.folder / "moved"], sync=False, threads=2, progress=lambda *call: calls.append(call))
        self.assertTrue(report)
        self.assertEqual({file.name for file in report.files if file.repaired}, {"data/a", "data/b\udcfe"})
        self.assertEqual((self.folder / "data/a").read_bytes(), whole)
        self.assertEqual(calls[-1][0], calls[-1][1])
        if TANDEM:
            subprocess.run([TANDEM, "par2", "verify", "--quiet", self.set], check=True)

    def test_packet_files(self):
        self.create(recovery_slices=4)
        first = self.folder / "set.par2"
        content = first.read_bytes()
        first.write_bytes(content[:-9])
        (self.folder / "data/a").rename(self.folder / "away")  # the files are not looked at
        self.assertEqual([file.path for file in par2.verify_packets(self.set) if file.lost], [str(first)])
        with self.assertRaises(errors.NotRecoverable):
            par2.repair(self.set, packets=True, sync=False)
        (self.folder / "away").rename(self.folder / "data/a")
        par2.repair(self.set, packets=True, sync=False)
        self.assertEqual(first.read_bytes(), content)
        self.assertFalse(any(file.lost or file.damaged_bytes for file in par2.verify_packets(self.set)))

    def test_trees(self):
        path, name = self.folder / "data/a", str(self.folder / "data/a")
        os.utime(path, (1, 1))
        report = par2.sync(self.folder, redundancy=100, sync=False, exclude="empty")
        self.assertTrue(report)
        self.assertEqual([(each.what, each.path, each.recovery_percent) for each in report.events if each.slice_count],
                         [("made", str(self.folder / "data/.tandem.par2"), 100)])
        path.write_bytes(b"")
        os.utime(path, (1, 1))
        report = par2.sync(self.folder, exclude=["empty"])
        self.assertEqual((bool(report), report.severity, [each.what for each in report.events if each.severity]), (False, 1, ["suspect", "kept"]))
        self.assertEqual([each.path for each in par2.scrub(self.folder, repair=True).events if each.what == "repaired"], [name])
        self.assertEqual(path.stat().st_size, 10000)
        path.unlink()
        self.assertTrue(par2.sync(self.folder, accept=[path], exclude="empty"))
        self.assertEqual([each.what for each in par2.scrub(self.folder).events if each.severity], ["unprotected"])
        with self.assertRaises(ZeroDivisionError):
            par2.sync(self.folder, force=True, progress=lambda *call: 1 / 0)

    def test_options(self):
        result = self.create(recovery_slices=8, first_exponent=50, volumes="uniform", volume_count=2, base=self.folder, memory=1 << 16, backend="cpu")
        self.assertEqual((result.recovery_slice_count, result.packet_file_count), (8, 3))
        self.assertTrue((self.folder / "set.vol50+4.par2").exists())
        self.create(recovery_slices=1, force=True)
        self.assertEqual(par2.create(self.folder / "none", [self.folder / "data/a"], recovery_slices=0, sync=False).packet_file_count, 1)

    def test_bad(self):
        self.create(recovery_slices=1)
        with self.assertRaisesRegex(errors.FileError, "exists already"):
            self.create(recovery_slices=1)
        with self.assertRaisesRegex(errors.InvalidArgument, "one of doubling"):
            self.create(volumes="all")
        with self.assertRaisesRegex(errors.InvalidArgument, "zero byte"):
            par2.verify("a\0b")
        with self.assertRaises(errors.FileError):
            par2.verify(self.folder / "other")
        (self.folder / "data/a").write_bytes(b"")
        with self.assertRaisesRegex(errors.NotRecoverable, "10"):
            par2.repair(self.set)
        with self.assertRaises(ZeroDivisionError):
            par2.verify(self.set, progress=lambda *call: 1 / 0)


class Rest(unittest.TestCase):
    def test_version(self):
        self.assertEqual(importlib.metadata.version("tandem-ec"), tandem_ec.__version__)

    def test_import_needs_no_context(self):
        """Variables that no context can be made with are told by RS, not by the import."""
        done = subprocess.run([sys.executable, "-c", "import tandem_ec\ntry: tandem_ec.RS(2, 1)\n"
                               "except tandem_ec.errors.Unavailable as error: print(error)"], capture_output=True, text=True,
                              env={**os.environ, "TANDEM_KERNEL": "mmx"}, timeout=120)
        self.assertIn("mmx", done.stdout, done.stderr)

    def test_stubs(self):
        """The stub that the build makes has every public name of the extension, and the other way round."""
        folder = pathlib.Path(tandem_ec.__file__).parent
        self.assertTrue((folder / "py.typed").exists())
        tree = ast.parse((folder / "_native.pyi").read_text())
        named = {node.name: node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
        self.assertEqual(set(named), {name for name in dir(_native) if not name.startswith("__")})
        for name, node in named.items():
            if isinstance(node, ast.ClassDef):
                members = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
                real = {member for member in vars(getattr(_native, name)) if not member.startswith("__")}
                self.assertEqual(set(members) - {"__init__"}, real, name)
                named = {**named, **{f"{name}.{member}": item for member, item in members.items()}}
        for name in ("Codec.encode", "empty"):  # arrays: users index them and calculate with them
            self.assertRegex(ast.unparse(named[name].returns), r"\bAny$", name)

    def test_library_is_the_packages_own(self):
        """The library that runs is the one beside the package."""
        maps = pathlib.Path("/proc/self/maps").read_text()
        libraries = {line.split()[-1] for line in maps.splitlines() if "libtandem.so" in line}
        self.assertEqual({os.path.dirname(path) for path in libraries}, {os.path.dirname(tandem_ec.__file__)})


if __name__ == "__main__":
    unittest.main()
