#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Verify (par2.h) against sets of the reference and of Debian's par2: verify_test.py FOLDER-OF-LIBRARIES
Random damage: repair_test.py."""

import errno
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import time
import unittest
import zlib

from library import (CANCELLED, COMPLETE, DAMAGED, DAMAGED_SET, INVALID_ARGUMENT, IO, MISSING, NOT_RECOVERABLE, RENAMED, TOO_LARGE, UNREADABLE, UNSUPPORTED,
                     Failure, Library, ordinary_user)
from reference import Case, Set, md5, packet, packets_of, padded



def crc32_zeros(crc, count):
    """Of the same bytes with `count` zeros after them, by squares of the matrix of one zero bit."""
    def apply(matrix, value):
        result = 0
        for bit in range(32):
            result ^= matrix[bit] if value >> bit & 1 else 0
        return result
    matrix, value, count = [0xEDB88320] + [1 << bit for bit in range(31)], crc ^ 0xFFFFFFFF, 8 * count
    while count:
        value = apply(matrix, value) if count & 1 else value
        matrix, count = [apply(matrix, row) for row in matrix], count >> 1
    return value ^ 0xFFFFFFFF


SEED = int(os.environ.get("TANDEM_TEST_SEED", random.randrange(1 << 32)))
print("TANDEM_TEST_SEED", SEED)


class Verify(Case):
    def verify(self, **more):
        return library.verify(self.folder / "set.par2", **more)

    def state(self, report, name):
        return report.files[name]["state"]

    def test_whole_set(self):
        contents = {"a": os.urandom(1000), "folder/b": os.urandom(64), "empty": b"", "é": os.urandom(20000), "zeros": bytes(500)}
        the_set = self.write_set(contents)
        totals = []
        report = self.verify(progress=lambda user, done, total: totals.append((done, total)) or 0)
        summary = report.summary
        self.assertEqual(list(report.files), the_set.names)
        self.assertTrue(all(each["state"] == COMPLETE for each in report.files.values()))
        self.assertEqual((summary.slice_count, summary.found_slice_count, summary.recovery_slice_count), (len(the_set.slices),) * 2 + (3,))
        self.assertEqual((summary.repair_needed, summary.damaged_packet_bytes, bytes(summary.set_id)), (0, 0, the_set.id))
        self.assertEqual(totals[-1][0], totals[-1][1])
        self.assertEqual([each["recovery_slice_count"] for each in report.packet_files], [0, 3])

    def test_descriptions_alone(self):
        """That reads neither files nor recovery data, and such a report repairs nothing."""
        contents = {"a": os.urandom(1000), "empty": b""}
        self.write_set(contents)
        for path in self.folder.glob("*.par2"):
            data = bytearray(path.read_bytes())
            for found in re.finditer(b"RecvSlic", bytes(data)):
                data[found.end() + 10] ^= 1
            path.write_bytes(data)
        self.assertEqual(self.verify().summary.recovery_slice_count, 0)
        report = self.verify(scope=1)
        self.assertEqual({name: (each["bytes"], each["state"]) for name, each in report.files.items()}, {"a": (1000, MISSING), "empty": (0, MISSING)})
        self.assertEqual(report.summary.recovery_slice_count, 3)
        with self.assertRaises(Failure) as caught:
            report.repair()
        self.assertEqual((caught.exception.status, (self.folder / "a").read_bytes()), (INVALID_ARGUMENT, contents["a"]))

    def test_slices_without_their_checksums(self):
        contents = {"a": os.urandom(1000), "b": os.urandom(1000)}
        the_set = self.write_set(contents)
        (self.folder / "set.vol0+3.par2").unlink()
        self.write("set.par2", the_set.main + b"".join(the_set.descriptions))
        self.write("b", contents["b"][:999] + bytes([contents["b"][999] ^ 1]))
        report = self.verify()
        self.assertEqual([(self.state(report, name), report.files[name]["found_slice_count"]) for name in "ab"],
                         [(COMPLETE, 16), (DAMAGED, 0)])

    def test_equal_slices_are_one(self):
        contents = {"a": b"1" * 640, "b": b"1" * 70 + b"2" * 58}
        self.write_set(contents)
        (self.folder / "a").unlink()
        report = self.verify()
        self.assertEqual((self.state(report, "a"), report.files["a"]["found_slice_count"]), (MISSING, 10))

    def test_zeros_are_not_hashed_for_their_own_sake(self):
        """A header may ask for any number of them (a slice of 2^40 bytes; the set has 700)."""
        size, found, total = 1 << 40, [], []
        small, large = b"hello", bytes(10)
        for name, data, length in (("small", small, 5), ("large", large, size), ("longer", large, size + 5)):
            identity = md5(md5(data) + struct.pack("<Q", length) + name.encode())
            sums = b"".join(bytes(16) + struct.pack("<I", crc32_zeros(zlib.crc32(small), size - 5)) for _ in range(-(-length // size)))
            found.append((int.from_bytes(identity, "little"), identity, md5(data) * 2 + struct.pack("<Q", length) + padded(name.encode(), 4), sums))
        main = struct.pack("<QI", size, 3) + b"".join(each[1] for each in sorted(found))
        self.write("set.par2", packet(md5(main), b"PAR 2.0\0Main\0\0\0\0", main) + b"".join(
            packet(md5(main), kind, identity + body) for _, identity, *bodies in found
            for kind, body in zip((b"PAR 2.0\0FileDesc", b"PAR 2.0\0IFSC\0\0\0\0"), bodies)))
        self.write("small", small)
        extra = [self.write("extra", b"hallo"), self.write("joined", b"hello" * 3)]
        self.write("longer", small)

        def progress(user, done, all):
            total.append(all)
            return len(total) > 100  # ten seconds

        report = self.verify(extra=extra, progress=progress)
        self.assertEqual([self.state(report, name) for name in ("small", "large", "longer")], [COMPLETE, MISSING, DAMAGED])
        (self.folder / "small").unlink()
        self.assertEqual(self.verify(extra=extra[1:], progress=progress).files["small"]["found_slice_count"], 1)

    def test_short_slices_that_begin_alike(self):
        long = b"x" + os.urandom(30)
        self.write_set({"a": b"x", "b": long})
        for name in "ab":
            (self.folder / name).unlink()
        report = self.verify(extra=[self.write("extra", long + os.urandom(50))])
        self.assertEqual([report.files[name]["found_slice_count"] for name in "ab"], [1, 1])

    def test_short_slices_around_the_bytes_of_a_read(self):
        contents = {f"f{length}": os.urandom(length) for length in (1000, 65535, 65536, 65537, 131071, 131072, 131073)}
        self.write_set(contents, 200000, ())
        for name in contents:
            (self.folder / name).unlink()
        report = self.verify(extra=[self.write("extra", b"".join(contents.values()))])
        self.assertEqual(report.summary.found_slice_count, 7)

    def test_a_short_slice_where_a_task_ends(self):
        megabyte = 1 << 20
        contents = {"a": os.urandom(8 * megabyte), "b": os.urandom(100), "c": os.urandom(1000)}
        self.write_set(contents, megabyte, ())
        for name in contents:
            (self.folder / name).unlink()
        for head in (b"", b"head"):
            extra = self.write("extra", head + b"".join(contents.values()) + os.urandom(50))
            report = self.verify(extra=[extra])
            self.assertEqual([each["found_slice_count"] for each in report.files.values()],
                             [each["slice_count"] for each in report.files.values()], head)

    def test_files_that_begin_alike_are_hashed_once(self):
        beginning, rests = os.urandom(16384), [os.urandom(16384) for _ in range(40)]
        contents = {f"f{i}": beginning + rest for i, rest in enumerate(rests)}
        self.write_set(contents, 1024, ())
        for i, rest in enumerate(rests):  # half of them change their names
            self.write(f"f{i}", beginning + (rests[i + 1 - i % 2 * 2] if i < 20 else rest[:-1] + bytes([rest[-1] ^ 1])))
        totals = []
        report = self.verify(progress=lambda user, done, total: totals.append(total) or 0)
        self.assertEqual([self.state(report, f"f{i}") for i in range(40)], [RENAMED] * 20 + [DAMAGED] * 20)
        self.assertEqual([each["found_slice_count"] for each in report.files.values()],
                         [32 - (self.state(report, name) == DAMAGED) for name in report.files])
        self.assertLess(totals[-1], 4 * 40 * 32768)

    def test_a_damaged_file_is_not_hashed_again(self):
        """Only another file can have its whole content."""
        data = os.urandom(64 * 1000)
        self.write_set({"a": data, "b": os.urandom(64)}, exponents=())
        damaged = data[:64 * 900] + bytes(64) + data[64 * 901:]
        totals = []
        self.write("a", damaged)
        self.assertEqual(self.state(self.verify(progress=lambda user, done, total: totals.append(total) or 0), "a"), DAMAGED)
        self.assertLess(totals[-1], 1.5 * len(data))
        self.write("extra", data)  # it begins as the damaged file does
        report = self.verify(extra=[self.folder / "extra"])
        self.assertEqual((self.state(report, "a"), report.files["a"]["found_as"]), (RENAMED, str(self.folder / "extra").encode()))

    def test_rate(self):
        contents = {"a": os.urandom(300000), "b": os.urandom(300000)}
        the_set = self.write_set(contents, slice_bytes=3000)
        read = 600000 + sum(len(each) for each in the_set.recovery.values())
        for rate, least in ((0, 0), (2 * read, 0.45)):
            begin = time.monotonic()
            self.assertEqual(self.verify(rate=rate).summary.complete_count, 2)
            self.assertGreater(time.monotonic() - begin, least)
        begin = time.monotonic()
        with self.assertRaises(Failure) as caught:  # a wait sees it
            self.verify(rate=1000, progress=lambda user, done, total: time.monotonic() - begin > 0.3)
        self.assertEqual(caught.exception.status, CANCELLED)
        self.assertLess(time.monotonic() - begin, 30)

    def test_files_that_may_not_be_read(self):
        """They are neither damaged nor missing."""
        self.folder.chmod(0o755)
        extra = os.urandom(500)
        self.write_set({"a": os.urandom(100), "loop": os.urandom(100), "sub/b": os.urandom(100), "other": os.urandom(100), "lost": extra},
                       others=("other",))
        (self.folder / "loop").unlink()
        (self.folder / "loop").symlink_to("loop")
        (self.folder / "lost").rename(self.folder / "extra")
        for name in ("a", "sub", "other", "extra"):
            (self.folder / name).chmod(0)
        with ordinary_user():
            report = self.verify(extra=[self.folder / "extra", self.folder / "none"])
        self.assertEqual({name: (each["state"], each["error_number"]) for name, each in report.files.items()},
                         {"a": (UNREADABLE, errno.EACCES), "loop": (UNREADABLE, errno.ELOOP), "sub/b": (UNREADABLE, errno.EACCES),
                          "other": (UNREADABLE, errno.EACCES), "lost": (MISSING, 0)})
        summary = report.summary
        self.assertEqual((summary.unreadable_count, summary.damaged_count, summary.missing_count), (4, 0, 1))
        self.assertEqual({os.path.basename(each["path"]): each["error_number"] for each in report.searched_files}, {b"extra": errno.EACCES})
        (self.folder / "set.vol0+3.par2").chmod(0)
        with ordinary_user(), self.assertRaises(Failure) as caught:
            self.verify()
        self.assertEqual(caught.exception.status, IO)
        self.assertIn("set.vol0+3.par2: Permission denied", str(caught.exception))

    def test_lost_main_packet(self):
        """Other packets tell what it said. A set of another name does not take its place."""
        draw = random.Random(SEED)
        other = self.write("set.other.par2", Set({"other": b"other"}, 4, []).critical)
        for contents, size, exponents in (({"a": bytes(1000), "b": draw.randbytes(70), "empty": b"", "c": b"1"}, 64, range(3)),
                                          ({"a": bytes(100000), "b": draw.randbytes(70)}, 4096, ()), ({"a": draw.randbytes(4095)}, 4096, ()),
                                          ({f"f{i}": draw.randbytes(draw.randrange(2000)) for i in range(50)}, 1000, ()),
                                          ({"empty": b"", "large": bytes(8 << 20)}, 1 << 20, (65000,))):
            the_set = self.write_set(contents, size, exponents)
            for path in (self.folder / "set.par2", self.folder / "set.vol0+3.par2"):
                data = bytearray(path.read_bytes())
                at = data.index(the_set.main) + draw.randrange(8, len(the_set.main))
                data[at] ^= 1 << draw.randrange(8)
                path.write_bytes(data)
            report = self.verify()
            self.assertEqual((bytes(report.summary.set_id), report.summary.slice_bytes, set(report.files)), (the_set.id, size, set(contents)), SEED)
            self.assertEqual((report.summary.complete_count, report.summary.recovery_slice_count), (len(contents), len(exponents)))
            self.assertGreater(report.summary.damaged_packet_bytes, 0)
        (self.folder / "set.vol0+3.par2").unlink()
        other.unlink()
        begin = time.monotonic()  # candidates are bounded
        self.write("set.par2", Set({"a": bytes(5)}, 1 << 28, []).critical[len(the_set.main):])
        with self.assertRaises(Failure) as caught:
            self.verify()
        self.assertEqual(caught.exception.status, DAMAGED_SET)
        self.assertLess(time.monotonic() - begin, 20)

    def test_no_set_and_a_set_of_no_use(self):
        self.folder.chmod(0o755)
        path = self.folder / "set.par2"

        def fails(status, message):
            with ordinary_user(), self.assertRaises(Failure) as caught:
                self.verify()
            self.assertEqual((caught.exception.status, message in str(caught.exception)), (status, True), caught.exception)

        fails(IO, "cannot find a set")
        path.symlink_to("nothing")
        fails(IO, "set.par2 is no regular file")
        path.unlink()
        path.symlink_to("set.par2")
        fails(IO, "set.par2: Too many levels")
        path.unlink()
        path.write_bytes(b"")
        fails(DAMAGED_SET, "no file has an intact main packet")
        path.chmod(0)
        fails(IO, "set.par2: Permission denied")

    def test_files_without_recovery_data(self):
        contents = {"a": os.urandom(100), "other": os.urandom(100), "empty": b""}
        self.write_set(contents, others=("other", "empty"))
        (self.folder / "empty").unlink()  # can be made from nothing
        summary = self.verify().summary
        self.assertEqual((summary.repair_needed, summary.repair_possible), (1, 1))
        self.write("empty", b"")
        self.assertEqual(self.verify().summary.repair_needed, 0)
        self.write("other", b"x" * 100)
        report = self.verify()
        self.assertEqual((self.state(report, "other"), report.files["other"]["recoverable"]), (DAMAGED, 0))
        self.assertEqual((report.summary.repair_needed, report.summary.repair_possible), (1, 0))

    def test_other_base_folder(self):
        contents = {"a": os.urandom(100)}
        self.write_set(contents)
        moved = self.folder / "moved"
        moved.mkdir()
        (self.folder / "a").rename(moved / "a")
        self.assertEqual(self.state(self.verify(), "a"), MISSING)
        self.assertEqual(self.state(self.verify(base=moved), "a"), COMPLETE)
        self.assertEqual(self.state(self.verify(extra=[moved / "a"]), "a"), RENAMED)

    def test_packet_files_are_known_by_their_first_bytes(self):
        contents = {"a": os.urandom(300)}
        the_set = self.write_set(contents, exponents=range(6))
        for path in self.folder.glob("*.par2"):
            path.unlink()
        packets = the_set.recovery
        given = self.write("5e1f", the_set.critical)
        self.write("77ab.mkv", packets[0] + packets[1])
        self.write("unlike.par2", packets[2])
        other = Set({"z": b"other"}, 4, [])
        for name, data in {"other": other.critical, "late": b"x" + packets[3], "short": b"PAR2\0PKT", ".set.par2.0011223344556677.tmp": packets[4]}.items():
            self.write(name, data)
        os.mkfifo(self.folder / "pipe")
        (self.folder / "link").symlink_to("late")
        elsewhere = [self.write("else/x", packets[3]), self.write("else/late", b"x" + packets[5]), self.write("else/other", other.critical)]
        for extra, names, count in (([], {"5e1f", "77ab.mkv", "unlike.par2"}, 3), (elsewhere, {"5e1f", "77ab.mkv", "unlike.par2", "x", "other"}, 4)):
            report = library.verify(given, extra=extra)
            self.assertEqual({os.path.basename(each["path"]).decode() for each in report.packet_files}, names)
            self.assertEqual((report.summary.recovery_slice_count, report.summary.complete_count), (count, 1))
        self.write("a", contents["a"][:100])
        report = library.verify(given, extra=elsewhere)
        self.assertEqual([os.path.basename(each["path"]) for each in report.searched_files], [b"late"])
        report.repair()
        self.assertEqual((self.folder / "a").read_bytes(), contents["a"])

    def test_packet_files_elsewhere(self):
        the_set = self.write_set({"a": os.urandom(100)}, exponents=range(2))
        self.write("else/x.par2", packet := the_set.recovery[1])
        self.write("set.vol0+3.par2", the_set.recovery[0] + packet[:-1])
        spelled_otherwise = f"{self.folder}/else/../set.par2"
        report = self.verify(extra=[self.folder / "else/x.par2", spelled_otherwise])
        self.assertEqual(len(report.packet_files), 3)
        self.assertEqual(report.summary.recovery_slice_count, 2)
        self.assertEqual(report.summary.damaged_packet_bytes, len(packet) - 1)

    def test_refusals(self):
        self.write_set({"a": os.urandom(100)})
        library.verify(self.write("good.par2", Set({"a\\" * 150 + "b" * 255: b"123", "c": b"", "c!/d": b""}, 4, []).critical))
        large = Set({"a": bytes(4 * 32768 + 1)}, 4, [])
        other = Set({"b": os.urandom(100)}, 64, [])
        lost = other.main + other.sums[0]
        for data, status, message in ((b"", DAMAGED_SET, "main packet"), (lost, NOT_RECOVERABLE, "descriptions of 1 of 1 files"),
                                      (large.critical, TOO_LARGE, "more than 32768 slices")):
            path = self.write("bad.par2", data)
            with self.assertRaises(Failure) as caught:
                library.verify(path)
            self.assertEqual(caught.exception.status, status)
            self.assertIn(message, str(caught.exception))
        own = self.write("bad.par2", Set({"bad.par2": b"123"}, 4, [0]).critical)
        self.assertEqual([each["state"] for each in library.verify(own).files.values()], [DAMAGED])
        with self.assertRaises(Failure) as caught:
            library.verify(self.folder / "none.par2")
        self.assertEqual(caught.exception.status, IO)
        with self.assertRaises(Failure) as caught:
            self.verify(progress=lambda user, done, total: 1)
        self.assertEqual(caught.exception.status, CANCELLED)

    def test_a_name_that_cannot_be_used_leaves_the_others(self):
        for unusable, others in (("../a", "a"), ("/a", "b"), ("a/../../b", "b"), ("a/" * 2048 + "b", "c"), ("a/" * 30000 + "b", "c"),
                                 ("b/" + "c" * 256, "a"), ("b/c", "b/c/d"), ("a/.//b", "a/b")):
            with self.subTest(unusable[:20]):
                the_set = Set({name: name.encode()[:100] for name in (unusable, others)}, 4, [])
                report = library.verify(self.write("bad.par2", the_set.critical))
                states = [each["state"] for each in report.files.values()]
                self.assertEqual(sorted(states), [MISSING, UNREADABLE] if len(states) == 2 else [UNREADABLE])
                if unusable in report.files and len(states) == 2:
                    self.assertEqual(report.files[unusable]["state"], UNREADABLE)
        self.assertFalse((self.folder.parent / "a").exists())

    def test_other_spellings_of_a_name_are_taken(self):
        contents = {"./b": os.urandom(100), "c//d": os.urandom(100), "e/./f": b"", "hollow/": b"", "g//hollow/": b""}
        for name, data in contents.items():
            (self.folder / name).mkdir(parents=True) if name.endswith("/") else self.write(name, data)
        self.write("set.par2", Set(contents, 64, [], others=("hollow/", "g//hollow/")).critical)
        self.assertEqual({name: each["state"] for name, each in self.verify().files.items()},
                         {name: COMPLETE for name in ("b", "c/d", "e/f", "hollow", "g/hollow")})

    def test_names_in_utf_16_are_read(self):
        data = os.urandom(300)
        for old in ("caf?.rar", "other"):
            the_set = Set({old: data}, 64, [])
            identity = packets_of(the_set.descriptions[0])[0][1][:16]
            self.write("set.par2", the_set.critical + packet(the_set.id, b"PAR 2.0\0UniFileN", padded(identity + "caf\u00e9.rar".encode("utf-16-le"), 4)))
            self.write("caf\u00e9.rar", data)
            self.assertEqual([(name, each["state"]) for name, each in self.verify().files.items()], [("caf\u00e9.rar", COMPLETE)])

    def test_a_missing_file_is_found_under_another_name_beside(self):
        data = os.urandom(300)
        self.write_set({"Caf\u00e9": data, "sub/x": b"1234"})
        (self.folder / "Caf\u00e9").rename(self.folder / "cafe\u0301")
        self.write("other", os.urandom(300))
        report = self.verify()
        self.assertEqual(report.files["Caf\u00e9"]["state"], RENAMED)
        report.repair()
        self.assertEqual([(self.folder / name).read_bytes() for name in ("Caf\u00e9", "cafe\u0301")], [data, data])

    def test_things_that_are_no_files(self):
        self.write_set({"a": os.urandom(100), "b": os.urandom(100)})
        for name in "ab":
            (self.folder / name).unlink()
        os.mkfifo(self.folder / "a")
        (self.folder / "b").mkdir()
        report = self.verify(extra=[self.folder / "a", self.folder / "b", self.folder / "none"])
        self.assertEqual([self.state(report, name) for name in "ab"], [MISSING, MISSING])

    @unittest.skipUnless(shutil.which("par2"), "NOT RUN: par2 is not installed")
    def test_sets_of_par2cmdline(self):
        draw = random.Random(SEED)
        contents = {f"file {i}": draw.randbytes(draw.randrange(200000)) for i in range(8)}
        for name, data in contents.items():
            self.write(name, data)
        subprocess.run(["par2", "create", "-qq", "-s4096", "-c20", "set.par2", *contents], cwd=self.folder, check=True)
        self.assertEqual(self.verify().summary.repair_needed, 0)
        for name in list(contents)[:3]:
            data = bytearray(contents[name])
            at = draw.randrange(len(data) + 1)
            data[at:at + 3] = b"xyz"
            self.write(name, bytes(data))
        (self.folder / "file 7").unlink()
        theirs = subprocess.run(["par2", "verify", "set.par2"], cwd=self.folder, capture_output=True, text=True).stdout
        available, total = map(int, re.search(r"You have (\d+) out of (\d+) data blocks available", theirs).groups())
        summary = self.verify().summary
        self.assertEqual((summary.found_slice_count, summary.slice_count, summary.recovery_slice_count), (available, total, 20))


library = Library(sys.argv.pop(1))
unittest.main()
