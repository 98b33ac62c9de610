#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Create (par2.h) against the reference and Debian's par2: create_test.py FOLDER-OF-LIBRARIES"""

import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

from library import CANCELLED, COMPLETE, INVALID_ARGUMENT, IO, TOO_LARGE, Failure, Library, descriptors, ordinary_user
from reference import Set, packets_of

SEED = int(os.environ.get("TANDEM_TEST_SEED", random.randrange(1 << 32)))
print("TANDEM_TEST_SEED", SEED)
DOUBLING, LIMITED, UNIFORM = range(3)


class Create(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, contents):
        for name, data in contents.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return [self.folder / name for name in contents]

    def packets(self, pattern="*.par2"):
        """The packets of all files that match, and the names of the files."""
        files = sorted(self.folder.glob(pattern))
        return [each for path in files for each in packets_of(path.read_bytes())], [path.name for path in files]

    def compare(self, the_set, pattern="*.par2"):
        """All packets but those of creators and those with Unicode names."""
        found = {whole for kind, body, set_id, whole in self.packets(pattern)[0] if kind not in (b"Creator\0", b"UniFileN")}
        self.assertEqual(found, {the_set.main, *the_set.descriptions, *the_set.sums, *the_set.recovery.values()})

    def failure(self, status, message, *arguments, **options):
        before = sorted(self.folder.rglob("*"))
        with self.assertRaises(Failure) as caught:
            library.create(*arguments, **options)
        self.assertEqual(caught.exception.status, status, caught.exception)
        self.assertIn(message, str(caught.exception))
        self.assertEqual(sorted(self.folder.rglob("*")), before)

    def test_random_sets_are_those_of_the_reference(self):
        draw = random.Random(SEED)
        for round in range(40):
            size = 4 * draw.choice([1, 2, 16, 17, 100, 1000])
            contents = {f"f{i}": draw.randbytes(draw.choice([0, 1, size, draw.randrange(20 * size)])) for i in range(draw.randrange(1, 40))}
            contents["one"] = b"1"
            first, count = draw.choice([(0, 1), (0, draw.randrange(1, 12)), (draw.randrange(60000), draw.randrange(1, 5))])
            paths = self.write(contents)
            draw.shuffle(paths)
            memory = draw.choice([0, 1, 5000, 100000])
            result = library.create(self.folder / "s.par2", paths, slice_bytes=size, recovery_slice_count=count, first_exponent=first,
                                    memory_bytes=memory, thread_count=draw.choice([0, 1, 3]), volumes=draw.randrange(3), no_sync=1)
            the_set = Set(contents, size, range(first, first + count))
            self.compare(the_set)
            self.assertEqual(bytes(result.set_id), the_set.id)
            self.assertEqual((result.slice_count, result.recovery_slice_count, result.file_count),
                             (len(the_set.slices), count, len(contents)), f"seed {SEED}, round {round}")
            self.assertEqual(result.packet_file_bytes, sum(path.stat().st_size for path in self.folder.glob("*.par2")))
            self.assertEqual(library.verify(self.folder / "s.par2").summary.repair_needed, 0)
            for path in self.folder.iterdir():
                path.unlink()

    def test_volumes(self):
        paths = self.write({"a": os.urandom(40 * 5), "b": os.urandom(40)})
        table = [
            # volumes, volume_count, first, recovery slices; names
            (DOUBLING, 0, 0, 0, []),
            (DOUBLING, 0, 0, 1, ["0+1"]),
            (DOUBLING, 0, 0, 9, ["0+1", "1+2", "3+4", "7+2"]),
            (DOUBLING, 0, 0, 10, ["00+1", "01+2", "03+4", "07+3"]),
            (DOUBLING, 0, 98, 20, ["098+1", "099+2", "101+4", "105+8", "113+5"]),
            (DOUBLING, 3, 0, 10, ["00+2", "02+4", "06+4"]),
            (DOUBLING, 3, 0, 8, ["0+2", "2+4", "6+2"]),
            (DOUBLING, 3, 0, 7, ["0+1", "1+2", "3+4"]),
            (DOUBLING, 5, 1, 6, ["1+1", "2+2", "4+3"]),
            (DOUBLING, 1, 0, 3, ["0+3"]),
            (DOUBLING, 1000, 0, 3, ["0+1", "1+2"]),
            (LIMITED, 0, 0, 20, ["00+1", "01+2", "03+4", "07+5", "12+5", "17+3"]),
            (UNIFORM, 3, 0, 10, ["00+4", "04+3", "07+3"]),
            (UNIFORM, 0, 0, 10, ["00+3", "03+3", "06+2", "08+2"]),
            (UNIFORM, 5, 0, 2, ["0+1", "1+1"]),
        ]
        for volumes, volume_count, first, count, names in table:
            with self.subTest(names=names):
                library.create(self.folder / "s", paths, slice_bytes=40, recovery_slice_count=count, volumes=volumes,
                               volume_count=volume_count, first_exponent=first)
                self.assertEqual(self.packets()[1], sorted(["s.par2"] + [f"s.vol{name}.par2" for name in names]))
                for name in names:
                    kinds = [kind for kind, *_ in self.packets(f"s.vol{name}.par2")[0]]
                    self.assertEqual(kinds.count(b"RecvSlic"), int(name.split("+")[1]))
                    self.assertEqual(kinds.count(b"Main\0\0\0\0"), int(name.split("+")[1]).bit_length())
                    self.assertEqual(kinds[-1], b"Creator\0")
                for path in self.folder.glob("*.par2"):
                    path.unlink()

    def test_copies_of_critical_packets(self):
        """Damage of a third of the packet file leaves one of each."""
        self.write({"a": os.urandom(5000)})
        for recovery, copies in ((0, 2), (1, 2), (5, 2), (9, 7)):
            result = library.create(self.folder / "set", [self.folder / "a"], slice_bytes=500, recovery_slice_count=recovery,
                                    volumes=UNIFORM, volume_count=1, critical_copies=copies, force=1)
            path = sorted(self.folder.glob("set*.par2"))[-1]
            data = path.read_bytes()
            kinds = [kind for kind, *_ in packets_of(data)]
            count = max(copies, recovery.bit_length())
            self.assertEqual({kind: kinds.count(kind) for kind in kinds},
                             {b"Main\0\0\0\0": count, b"FileDesc": count, b"IFSC\0\0\0\0": count, b"Creator\0": count, **({b"RecvSlic": recovery} if recovery else {})})
            self.assertEqual((kinds[0], kinds[-1] == b"RecvSlic", result.recovery_slice_count), (b"Main\0\0\0\0", False, recovery))
            for name in self.folder.glob("set*.par2"):
                name.unlink()
            third = len(data) // 3
            for at in (0, third, 2 * third):
                self.write({"set.par2": data[:at] + bytes(third) + data[at + third:]})
                self.assertEqual(library.verify(self.folder / "set.par2").summary.complete_count, 1)
            (self.folder / "set.par2").unlink()
        self.failure(INVALID_ARGUMENT, "critical_copies is 17", self.folder / "set", [self.folder / "a"], critical_copies=17)

    def test_more_files_than_descriptors(self):
        paths = self.write({f"f{i:03}": os.urandom(4) for i in range(300)})
        with descriptors(64):
            result = library.create(self.folder / "s", paths, slice_bytes=4, recovery_slice_count=1003, volumes=LIMITED,
                                    thread_count=8, no_sync=1)
            report = library.verify(self.folder / "s", threads=8)
        # One packet file has what is left after 1,000.
        self.assertEqual(result.packet_file_count, 1 + 1000 + 1)
        self.assertTrue((self.folder / "s.vol1000+3.par2").exists())
        self.assertEqual(report.summary.complete_count, 300)
        self.assertEqual((report.summary.recovery_slice_count, report.summary.damaged_packet_bytes), (1003, 0))

    def test_files_that_may_not_be_read(self):
        self.folder.chmod(0o777)
        paths = self.write({"a": b"1", "in/b": b"2"})
        for path, mode, sources in ((paths[0], 0, paths), (self.folder / "in", 0o444, [self.folder / "in"])):
            before = path.stat().st_mode
            path.chmod(mode)
            with ordinary_user(), self.assertRaises(Failure) as caught:
                library.create(self.folder / "s", sources)
            path.chmod(before)
            self.assertEqual(caught.exception.status, IO)
            self.assertIn(f"{path}: Permission denied", str(caught.exception))

    def test_a_large_file_is_hashed_with_progress(self):
        size = 512 << 20
        with open(self.folder / "large", "wb") as file:
            file.truncate(size)
        late = lambda user, done, total: int(total * 3 // 4 < done < total)
        self.failure(CANCELLED, "cancelled", self.folder / "s", [self.folder / "large"], progress=late, thread_count=0)

    def test_a_failed_rename_takes_the_others_back(self):
        self.write({"a": bytes(1000)})
        blocked = self.folder / "s.par2"
        with self.assertRaises(Failure) as caught:
            library.create(self.folder / "s", [self.folder / "a"], slice_bytes=100, recovery_slice_count=9,
                           progress=lambda user, done, total: blocked.write_bytes(b"another program's") and 0)
        self.assertEqual(caught.exception.status, IO)
        self.assertEqual(blocked.read_bytes(), b"another program's")
        self.assertEqual(sorted(os.listdir(self.folder)), ["a", "s.par2"])

    def test_names(self):
        contents = {"é": b"12", "x/😀": b"34", "plain": b"5"}
        self.write(contents)
        os.symlink("plain", self.folder / "x" / "link")
        bad = self.folder / "x" / os.fsdecode(b"\xff")
        bad.write_bytes(b"6")
        result = library.create(self.folder / "s", [self.folder], slice_bytes=4, recovery_slice_count=1)
        self.assertEqual(result.file_count, 4)
        found = [body for kind, body, *_ in self.packets("s.par2")[0] if kind == b"UniFileN"]
        self.assertEqual({body[16:].decode("utf-16-le").rstrip("\0") for body in found}, {"é", "x/😀"})
        # The set's own files are not taken again.
        again = library.create(self.folder / "s", [self.folder], slice_bytes=4, recovery_slice_count=1, force=1)
        self.assertEqual(bytes(again.set_id), bytes(result.set_id))

    def test_base_folder(self):
        self.write({"in/a": b"12", "out/b": b"34", "sets/x": b""})
        library.create(self.folder / "sets/s", [self.folder / "in", self.folder / "out/../out/b"], base=self.folder, slice_bytes=4)
        report = library.verify(self.folder / "sets/s.par2", base=self.folder)
        self.assertEqual({name: each["state"] for name, each in report.files.items()}, {"in/a": COMPLETE, "out/b": COMPLETE})
        self.failure(INVALID_ARGUMENT, "outside of the base folder", self.folder / "sets/t", [self.folder / "in/a"])

    def test_sizes(self):
        paths = self.write({"a": bytes(1000), "b": bytes(10), "empty": b""})
        for count in (2, 3, 7, 100, 2000):
            result = library.create(self.folder / "s", paths, slice_count=count, recovery_percent=10, force=1)
            size = result.slice_bytes
            slices = lambda size: -(-1000 // size) + -(-10 // size)
            self.assertEqual(size % 4, 0)
            self.assertLessEqual(slices(size), count)
            self.assertTrue(size == 4 or slices(size - 4) > count)
            self.assertEqual(result.recovery_slice_count, max(1, (result.slice_count * 10 + 50) // 100))

    def test_default_sizes(self):
        """Neither many files nor little data get many times as much recovery data."""
        many = {f"f{i}": bytes(100) for i in range(2100)}
        for contents, size, count in (({**many, "large": bytes(5000000)}, 4096, 2100 + 1221), ({"a": bytes(20000)}, 4096, 5),
                                      (many, 108, 2100), ({"a": bytes(10), "b": bytes(3)}, 12, 2), ({"a": bytes(20000001), "b": b"1"}, 10004, 2001)):
            result = library.create(self.folder / "s", self.write(contents), recovery_percent=5, force=1)
            self.assertEqual((result.slice_bytes, result.slice_count), (size, count))

    def test_refusals(self):
        paths = self.write({"a": bytes(1000), "b": b"1", "empty": b""})
        path = self.folder / "s"
        self.failure(INVALID_ARGUMENT, "slice_bytes is 6", path, paths, slice_bytes=6)
        self.failure(INVALID_ARGUMENT, "slice_bytes is", path, paths, slice_bytes=1 << 63)
        self.failure(INVALID_ARGUMENT, "larger than each file", path, paths, slice_bytes=(1 << 30) + 4)
        self.failure(INVALID_ARGUMENT, "2 files need at least as many slices, not 1", path, paths, slice_count=1)
        self.failure(INVALID_ARGUMENT, "slice_count is 32769", path, paths, slice_count=32769)
        self.failure(INVALID_ARGUMENT, "exponents are below 65535", path, paths, slice_bytes=4, first_exponent=65530, recovery_slice_count=6)
        self.failure(INVALID_ARGUMENT, "exponents are below", path, paths, slice_bytes=4, first_exponent=2**32 - 1, recovery_slice_count=2)
        self.failure(INVALID_ARGUMENT, "recovery_percent", path, paths, recovery_percent=float("nan"))
        self.failure(INVALID_ARGUMENT, "all files are empty", path, paths[2:], recovery_slice_count=1)
        self.failure(INVALID_ARGUMENT, "no files", path, [])
        self.failure(INVALID_ARGUMENT, "cannot open", path, [self.folder / "none"])
        self.failure(INVALID_ARGUMENT, "no regular file", path, ["/dev/null"])
        self.failure(INVALID_ARGUMENT, "volumes is 3", path, paths, volumes=3)
        self.failure(INVALID_ARGUMENT, "volume_count is 2", path, paths, volumes=LIMITED, volume_count=2)
        self.failure(INVALID_ARGUMENT, "volume_count is 1001", path, paths, volumes=UNIFORM, volume_count=1001)
        self.failure(CANCELLED, "cancelled", path, paths, progress=lambda user, done, total: 1)
        self.write({"large": bytes(4 * 32768 + 1)})
        self.failure(TOO_LARGE, "more than 32768 slices of 4", path, [self.folder / "large"], slice_bytes=4)
        library.create(path, paths, slice_bytes=100, recovery_slice_count=1)
        self.failure(IO, "s.par2 exists", path, paths, slice_bytes=100, recovery_slice_count=1)
        library.create(path, paths, slice_bytes=100, recovery_slice_count=1, force=1)

    def test_progress_and_empty_files(self):
        seen = []
        paths = self.write({"a": bytes(1000), "empty": b""})
        library.create(self.folder / "s", paths, slice_bytes=100, recovery_slice_count=2,
                       progress=lambda user, done, total: seen.append((done, total)) or 0)
        self.assertEqual(seen[-1], (2200, 2200))
        self.assertEqual(library.create(self.folder / "t", paths[1:]).slice_count, 0)
        self.assertEqual(library.verify(self.folder / "t").files["empty"]["state"], COMPLETE)

    @unittest.skipUnless(shutil.which("par2"), "NOT RUN: par2 is not installed")
    def test_packets_are_those_of_par2cmdline(self):
        draw = random.Random(SEED)
        contents = {f"file {i}": draw.randbytes(draw.randrange(1, 300000)) for i in range(5)}
        paths = self.write(contents)
        subprocess.run(["par2", "create", "-qq", "-s8192", "-c21", "theirs.par2", *contents], cwd=self.folder, check=True)
        library.create(self.folder / "ours.par2", paths, slice_bytes=8192, recovery_slice_count=21)
        ours, our_names = self.packets("ours*")
        theirs, their_names = self.packets("theirs*")
        self.assertEqual([name.replace("ours", "theirs") for name in our_names], their_names)
        without_creator = lambda packets: sorted(whole for kind, *_, whole in packets if kind != b"Creator\0")
        self.assertEqual(set(without_creator(ours)), set(without_creator(theirs)))
        self.assertEqual(len(without_creator(ours)), len(without_creator(theirs)))
        for volumes, volume_count, first, count in ((DOUBLING, 0, 0, 1), (DOUBLING, 0, 92, 8), (DOUBLING, 0, 5, 100), (DOUBLING, 3, 0, 10),
                                                    (DOUBLING, 4, 0, 20), (DOUBLING, 3, 1, 8), (UNIFORM, 3, 0, 10)):
            words = [f"-c{count}", f"-f{first}", *["-u"] * (volumes == UNIFORM), *[f"-n{volume_count}"] * (volume_count != 0)]
            subprocess.run(["par2", "create", "-qq", "-s300000", *words, "peer.par2", "file 0"], cwd=self.folder, check=True)
            library.create(self.folder / "mine.par2", paths[:1], slice_bytes=300000, recovery_slice_count=count, volumes=volumes,
                           volume_count=volume_count, first_exponent=first)
            names = [sorted(path.name.removeprefix(base) for path in self.folder.glob(f"{base}*.par2")) for base in ("peer", "mine")]
            self.assertEqual(*names, words)
            for path in [*self.folder.glob("peer.*"), *self.folder.glob("mine.*")]:
                path.unlink()
        # Their program repairs with our files.
        for path in self.folder.glob("theirs*"):
            path.unlink()
        paths[0].unlink()
        damaged = bytearray(contents["file 1"])
        damaged[0] ^= 1
        paths[1].write_bytes(damaged)
        if len(contents["file 0"]) <= 20 * 8192:
            subprocess.run(["par2", "repair", "-qq", "ours.par2"], cwd=self.folder, check=True)
            self.assertEqual([path.read_bytes() for path in paths], list(contents.values()))


library = Library(sys.argv.pop(1))
unittest.main()
