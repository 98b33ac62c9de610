#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Repair (par2.h, `tandem par2 repair`): repair_test.py FOLDER-OF-LIBRARIES TANDEM FAULT-LIBRARY|none"""

import errno
import fcntl
import json
import os
import pathlib
import random
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from library import (CANCELLED, COMPLETE, DAMAGED, DAMAGED_SET, IO, MISSING, NOT_RECOVERABLE, RENAMED, UNREADABLE, UNSUPPORTED, Failure, Library,
                     ordinary_user)
from reference import Case, Set, packet

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "files/fault"))
from kit import Sandbox  # noqa: E402

SEED = int(os.environ.get("TANDEM_TEST_SEED", random.randrange(1 << 32)))
print("TANDEM_TEST_SEED", SEED)
OLD = 1_000_000_000  # seconds: the times of damaged files


def tree(folder):
    """{path: bytes, or the target of a link, or None for a folder}"""
    return {str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else None if path.is_dir() else path.read_bytes()
            for path in folder.rglob("*")}


class Model:
    """What verify must find, from the bytes of the files alone. The contents are random, so equal bytes are no accident."""

    def __init__(self, the_set, contents, sources):
        self.found, self.states, size = {}, {}, the_set.slice_bytes
        self.ends = the_set.slices + [data[len(data) // size * size:] for data in contents.values() if len(data) % size]
        data = [source + bytes(size) for source in sources.values()]  # zeros may follow a file
        for name, slices in the_set.slices_of.items():
            self.found[name] = 0
            for i, each in enumerate(slices):
                stored = contents[name][i * size:(i + 1) * size]
                in_place = sources.get(name, b"")[i * size:][:len(stored)] == stored
                self.found[name] += in_place or any(self.has(source, stored, each) for source in data)
            whole = contents[name]
            is_elsewhere = whole != b"" and whole in sources.values()  # empty files are made, not renamed
            self.states[name] = (COMPLETE if sources.get(name) == whole else RENAMED if is_elsewhere
                                 else DAMAGED if name in sources else MISSING)

        # Of slices that share bytes, verify takes the first one. A byte that is lost between two equal ones can do that.
        self.overlaps = 0
        for source in sources.values():
            places = sorted({at for each in the_set.slices for at in self.places(source, each)})
            self.overlaps += sum(second - first < size for first, second in zip(places, places[1:]))

    @staticmethod
    def places(source, part):
        at = source.find(part)
        while at >= 0:
            yield at
            at = source.find(part, at + 1)

    def has(self, source, stored, whole):
        if whole in source:
            return True
        # A short slice is found where one may begin: at the beginning, or after another slice.
        at = source.find(stored)
        while at > 0 and not any(source[:at].endswith(each) for each in self.ends):
            at = source.find(stored, at + 1)
        return at >= 0


class Repair(Case):
    def report(self, **more):
        return library.verify(self.folder / "set.par2", **more)

    def fails(self, status, message, report, **options):
        before = tree(self.folder)
        times = {name: os.lstat(self.folder / name).st_mtime_ns for name in before if before[name] is not None}
        with self.assertRaises(Failure) as caught:
            report.repair(**options)
        self.assertEqual(caught.exception.status, status, caught.exception)
        self.assertIn(message, str(caught.exception))
        self.assertEqual(tree(self.folder), before)
        self.assertEqual({name: os.lstat(self.folder / name).st_mtime_ns for name in times}, times)

    def change(self, name, data):
        """data: None deletes; a string makes a symbolic link."""
        path = self.folder / name
        if path.exists() or path.is_symlink():
            path.unlink()
        if isinstance(data, str):
            path.symlink_to(data)
        elif data is not None:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
            path.chmod(0o640)
            os.utime(path, (OLD, OLD))

    def test_each_kind_of_damage(self):
        a, b = os.urandom(64 * 20 + 13), os.urandom(64 * 5 + 1)
        contents = {"a": a, "folder/b": b, "empty": b""}
        flipped = a[:100] + bytes([a[100] ^ 1]) + a[101:]
        # What is done to the files; options; files that are kept, {name: where it was}; what is left besides.
        table = [
            ("nothing", {}, {}, {"a": "a"}, {}),
            ("a byte", {"a": flipped}, {}, {"a": "a"}, {}),
            ("three bytes", {"a": flipped[:-1] + b"y", "folder/b": b"z" + b[1:]}, {}, {"a": "a", "folder/b": "folder/b"}, {}),
            ("in a file without a name", {"a": flipped[:-1] + b"y"}, {"memory_bytes": 1}, {"a": "a"}, {}),
            ("cut", {"a": a[:64 * 18 + 5]}, {}, {"a": "a"}, {}),
            ("longer", {"a": a + b"x" * 1000}, {}, {"a": "a"}, {}),
            ("a byte more at the start", {"a": b"x" + a}, {}, {}, {}),
            ("a byte less inside", {"a": a[:300] + a[301:]}, {}, {}, {}),
            ("deleted and found", {"a": None, "extra": a}, {}, {"a": "extra"}, {}),
            ("the folder too", {"folder/b": None, "extra": b}, {}, {"folder/b": "extra"}, {}),
            ("joined", {"a": None, "folder/b": None, "extra": b"x" + b + a}, {}, {}, {"extra": b"x" + b + a}),
            ("split", {"a": None, "extra": a[:500], "extra2": a[500:]}, {}, {}, {"extra": a[:500], "extra2": a[500:]}),
            ("not named by the user", {"a": None, "a.1": a}, {}, {}, {"a.1": a}),
            ("swapped", {"a": b, "folder/b": a}, {}, {"a": "folder/b", "folder/b": "a"}, {}),
            ("swapped, and one is damaged", {"a": b, "folder/b": flipped}, {}, {"folder/b": "a"}, {}),
            ("one has the other's place", {"a": b, "folder/b": None, "extra": a}, {}, {"a": "extra", "folder/b": "a"}, {}),
            ("renamed, and the rest is lost", {"a": a + b, "folder/b": None}, {}, {}, {}),
            ("no empty file", {"empty": None}, {}, {}, {}),
            ("not empty", {"empty": b"x"}, {}, {}, {}),
            ("kept", {"a": b"x" + a, "a.1": b"mine"}, {"keep_replaced": 1}, {}, {"a.1": b"mine", "a.2": b"x" + a}),
            ("only renamed", {"a": b"other", "extra": a, "folder/b": b[:-1] + b"x"}, {"rename_only": 1}, {"a": "extra"},
             {"a.1": b"other", "folder/b": b[:-1] + b"x"}),
            ("a dangling link", {"empty": "nowhere/at/all"}, {}, {}, {}),
            ("a link to another file", {"empty": "other", "other": b"precious"}, {}, {}, {"other": b"precious"}),
            ("a link to the damaged file", {"a": "other", "other": flipped}, {}, {}, {"other": flipped}),
            ("a link to the right file", {"a": "other", "other": a}, {}, {}, {"other": a, "a": "other"}),
        ]
        for what, changes, options, same, left in table:
            with self.subTest(what):
                for path in list(self.folder.iterdir()):
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
                self.write_set(contents)
                whole = tree(self.folder)
                for name, data in changes.items():
                    self.change(name, data)
                if what == "the folder too":
                    (self.folder / "folder").rmdir()
                inodes = {name: os.stat(self.folder / name).st_ino for name in same.values()}
                report = self.report(extra=[self.folder / name for name in changes if name.startswith("extra")])
                damaged = {name for name, file in report.files.items() if file["state"] != COMPLETE}
                report.repair(**options)
                self.assertEqual(tree(self.folder), {**whole, **left})
                for name, before in same.items():
                    self.assertEqual(os.stat(self.folder / name).st_ino, inodes[before], name)
                for name in damaged & changes.keys() - left.keys():
                    if isinstance(changes[name], bytes) and same.get(name, name) == name:
                        status = os.stat(self.folder / name)
                        self.assertEqual((status.st_mtime, status.st_mode & 0o777), (OLD, 0o640), name)
                repaired = {name for name, file in report.files.items() if file["repaired"]}
                self.assertEqual(repaired, damaged - left.keys())
                self.assertEqual(report.summary.repaired_count, len(repaired))
                again = self.report()
                for seen in (report, again):
                    states = {name for name, file in seen.files.items() if file["state"] == COMPLETE}
                    self.assertEqual(states, contents.keys() - (left.keys() if "rename_only" in options else set()))
                if "rename_only" not in options:
                    self.assertEqual(report.summary.found_slice_count, report.summary.slice_count)

    def test_what_cannot_be_read_stays(self):
        """And the others are repaired, if the recovery slices suffice for all."""
        contents = {"a": os.urandom(640), "b": os.urandom(640), "c": os.urandom(640), "loop": os.urandom(100)}
        self.folder.chmod(0o777)
        self.write_set(contents, exponents=range(14))
        self.change("loop", "loop")
        self.change("b", contents["b"][:64] + b"x" * 64 + contents["b"][128:])
        self.change("c", os.urandom(640))
        (self.folder / "a").chmod(0)
        before = {name: os.lstat(self.folder / name) for name in ("a", "loop")}
        with ordinary_user(), self.assertRaises(Failure) as caught:
            self.report().repair()
        self.assertEqual(caught.exception.status, IO)
        self.assertIn("11 slices are lost, and 12 slices cannot be read; the set has only 14", str(caught.exception))
        self.change("c", contents["a"])  # what is replaced may be needed
        os.chown(self.folder / "b", 65534, 65534)
        with ordinary_user():
            report = self.report()
            report.repair()
        self.assertEqual((self.folder / "c.1").read_bytes(), contents["a"])
        self.assertEqual([report.files[name]["state"] for name in contents], [UNREADABLE, COMPLETE, COMPLETE, UNREADABLE])
        self.assertEqual((report.summary.repaired_count, report.summary.unreadable_count, report.summary.repair_needed), (2, 2, 1))
        self.assertEqual({name: os.lstat(self.folder / name) for name in before}, before)
        self.assertEqual([(self.folder / name).read_bytes() for name in "bc"], [contents[name] for name in "bc"])

    def test_empty_folders_are_made(self):
        contents = {"a": os.urandom(640), "hollow/": b"", "sub/hollow/": b"", "in the way/": b""}
        the_set = Set(contents, 64, range(2), others=("hollow/", "sub/hollow/", "in the way/"))
        self.write("set.par2", the_set.critical + b"".join(the_set.recovery.values()))
        self.write("a", contents["a"][:600] + bytes(40))
        self.write("in the way", b"1")
        with self.assertRaises(Failure) as caught:
            self.report().repair()
        self.assertIn("no folder", str(caught.exception))
        self.assertEqual((self.folder / "a").read_bytes(), contents["a"])
        self.assertTrue((self.folder / "hollow").is_dir() and (self.folder / "sub/hollow").is_dir())
        (self.folder / "in the way").unlink()
        report = self.report()
        report.repair()
        self.assertEqual((report.summary.repaired_count, report.summary.repair_needed), (1, 0))

    def test_random_damage(self):
        """Verify finds what the model does. Repairable if and only if enough slices are left; every byte is compared."""
        draw = random.Random(SEED)
        outcomes = [0, 0]
        for round in range(120):
            for path in list(self.folder.iterdir()):
                path.unlink()
            size = draw.choice([4, 16, 64, 100, 1000])
            contents = {f"f{i}": draw.randbytes(draw.choice([0, draw.randrange(4, 4 * size), draw.randrange(30 * size)]))
                        for i in range(draw.randrange(1, 6))}
            contents["last"] = draw.randbytes(size)
            # A slice of a few bytes would be found by accident.
            contents = {name: data + draw.randbytes(min(8, size - len(data) % size)) if 0 < len(data) % size < 8 else data
                        for name, data in contents.items()}
            exponents = sorted(draw.sample(range(draw.choice([12, 200, 60000])), draw.randrange(12)))
            the_set = self.write_set(contents, size, exponents)
            whole = tree(self.folder)
            for name in contents:
                data = bytearray(contents[name])
                for _ in range(draw.choice([0, 0, 1, 2])):
                    at, count = draw.randrange(len(data) + 1), draw.choice([1, size, draw.randrange(1, 3 * size)])
                    what = draw.randrange(4)
                    if what == 0:
                        data[at:at + count] = draw.randbytes(len(data[at:at + count]))
                    elif what == 1:
                        data[at:at] = draw.randbytes(count)
                    elif what == 2:
                        del data[at:at + count]
                    else:
                        del data[at:]
                self.write(name, bytes(data))
            names, extra = list(contents), []
            draw.shuffle(names)
            what = draw.randrange(6)
            if what == 0:
                (self.folder / names[0]).rename(self.folder / "swap")
                (self.folder / names[1]).rename(self.folder / names[0])
                (self.folder / "swap").rename(self.folder / names[1])
            elif what == 1:
                extra = [self.write("joined", b"".join((self.folder / name).read_bytes() for name in names[:2]))]
                for name in names[:2]:
                    (self.folder / name).unlink()
            elif what == 2:
                extra = [(self.folder / names[0]).rename(self.folder / "moved")]
            elif what == 3:
                (self.folder / names[0]).unlink()
            elif what == 4:
                self.write(names[0], (self.folder / names[0]).read_bytes() + draw.randbytes(33) + (self.folder / names[1]).read_bytes())
                (self.folder / names[1]).unlink()
            lost_packets = draw.randrange(3)
            if lost_packets == 0:
                self.write("set.vol0+3.par2", b"".join(draw.sample(list(the_set.recovery.values()), len(exponents) // 2)))
            report = self.report(extra=extra, threads=draw.choice([1, 3]))
            summary, where = report.summary, f"seed {SEED}, round {round}, slices of {size}"
            before = tree(self.folder)
            model = Model(the_set, contents, {name: data for name, data in before.items() if not name.endswith(".par2")})
            self.assertEqual({name: each["state"] for name, each in report.files.items()}, model.states, where)
            for name, each in report.files.items():
                self.assertLessEqual(each["found_slice_count"], model.found[name], (where, name))
                self.assertGreaterEqual(each["found_slice_count"], model.found[name] - model.overlaps, (where, name))
            lost = summary.slice_count - summary.found_slice_count
            self.assertEqual(summary.repair_possible, lost <= summary.recovery_slice_count, where)
            if lost > summary.recovery_slice_count:
                outcomes[0] += 1 + self.check_repair_in_part(report, the_set, contents, where, extra)
                continue
            report.repair(memory_bytes=draw.choice([0, 1, 10000]), thread_count=draw.randrange(1, 4))
            after, found = tree(self.folder), {path.name for path in extra}
            self.assertEqual({name: after[name] for name in contents}, {name: whole[name] for name in contents}, where)
            self.assertEqual(after.keys() - found, whole.keys(), where)
            for name in after.keys() - contents.keys():
                self.assertEqual(after[name], before[name], where)
            outcomes[1] += lost > 0
        self.assertGreater(min(outcomes), 5, f"seed {SEED}: {outcomes}")

    def check_repair_in_part(self, report, the_set, contents, where, extra=()):
        """Files that need no lost slice become complete; all others are named, and nothing that they need goes. Returns whether
        something could be done."""
        found = {name: each["found_slice_count"] for name, each in report.files.items()}
        lost, spare = report.summary.slice_count - sum(found.values()), report.summary.recovery_slice_count
        overlaps = Model(the_set, contents, {name: data for name, data in tree(self.folder).items() if not name.endswith(".par2")}).overlaps
        stay = {name for name, each in report.files.items() if each["state"] in (DAMAGED, MISSING) and found[name] != each["slice_count"]}
        message = f"{lost} slice{'s are' if lost > 1 else ' is'} lost, and the set has only {spare} recovery slice"
        if all(name in stay or each["state"] == COMPLETE for name, each in report.files.items()):
            self.fails(NOT_RECOVERABLE, message, report)
            return False
        with self.assertRaises(Failure) as caught:
            report.repair()
        self.assertEqual(caught.exception.status, NOT_RECOVERABLE, (caught.exception, where))
        for each in [message, "; the other files are repaired", *(f"{self.folder}/{name} stays as it is" for name in list(stay)[:10 * (len(stay) <= 10)])]:
            self.assertIn(each, str(caught.exception), where)
        report.look()
        for seen in (report, self.report(extra=extra)):
            self.assertEqual({name for name, each in seen.files.items() if each["state"] != COMPLETE}, stay, where)
            for name, each in seen.files.items():
                self.assertGreaterEqual(each["found_slice_count"], found[name] - overlaps, (where, name))
            self.assertGreaterEqual(seen.summary.found_slice_count, sum(found.values()), where)
        self.assertEqual({name: (self.folder / name).read_bytes() for name in contents.keys() - stay},
                         {name: contents[name] for name in contents.keys() - stay}, where)
        with tempfile.TemporaryDirectory() as whole:  # with more recovery data all comes back
            for name, data in contents.items():
                pathlib.Path(whole, name).write_bytes(data)
            library.create(self.folder / "set.more.par2", [pathlib.Path(whole, name) for name in contents], base=whole, slice_bytes=the_set.slice_bytes,
                           recovery_slice_count=lost, first_exponent=60500, volumes=2, volume_count=1, no_sync=1)
        self.report(extra=extra).repair()
        self.assertEqual({name: (self.folder / name).read_bytes() for name in contents}, contents, where)
        return True

    def test_random_repairs_in_part(self):
        """Too few recovery slices: renamed, joined and copied files come to their places beside lost ones."""
        draw, done = random.Random(SEED), 0
        for round in range(60):
            for path in list(self.folder.iterdir()):
                path.unlink()
            size = draw.choice([16, 64, 100])
            contents = {f"f{i}": draw.randbytes(draw.randrange(8, 6 * size)) for i in range(draw.randrange(3, 9))}
            for name in draw.sample(list(contents), 2):  # some begin as others do, or have their slices
                other = contents[draw.choice(list(contents))]
                contents[name] = draw.choice([other[:draw.randrange(8, len(other) + 1)], contents[name] + other, other])
            the_set = self.write_set(contents, size, range(draw.choice([0, 0, 1, 2])))
            names = list(contents)
            holders = draw.sample([*names, "extra0", "extra1", "extra2"], len(names))
            for name in names:
                (self.folder / name).unlink()
            for name, holder in zip(names, holders):
                data = contents[name]
                what = draw.randrange(8)
                if what == 0:
                    data = data[:draw.randrange(len(data))]
                elif what == 1:
                    data = draw.randbytes(draw.randrange(1, 70)) + data
                elif what == 2:
                    data += contents[draw.choice(names)]
                elif what == 3:
                    at = draw.randrange(len(data))
                    data = data[:at] + draw.randbytes(1) + data[at + 1:]
                if what != 4:
                    self.write(draw.choice([holder, holder, name]), data)
            extra = [self.folder / name for name in ("extra0", "extra1", "extra2")]
            report = self.report(extra=extra)
            lost = report.summary.slice_count - report.summary.found_slice_count
            if lost > report.summary.recovery_slice_count:
                done += self.check_repair_in_part(report, the_set, contents, f"seed {SEED}, round {round}", extra)
        self.assertGreater(done, 10, SEED)

    def test_repair_in_part_keeps_what_others_need(self):
        """The end of b, two bytes, is found at its place in the whole content of a, and nowhere else when that is renamed."""
        a, b = os.urandom(640), os.urandom(64)
        contents = {"a": a, "b": b + a[64:66], "c": os.urandom(640)}
        for options in ({}, {"rename_only": 1}):
            with self.subTest(options):
                the_set = self.write_set(contents, exponents=())
                self.write("b", a)
                (self.folder / "a").unlink()
                (self.folder / "c").unlink()
                report = self.report()
                self.assertEqual({name: (each["state"], each["found_slice_count"]) for name, each in report.files.items()},
                                 {"a": (RENAMED, 10), "b": (DAMAGED, 1), "c": (MISSING, 0)})
                if options:
                    report.repair(**options)
                    self.assertEqual(self.report().files["b"]["found_slice_count"], 1)
                else:
                    self.check_repair_in_part(report, the_set, contents, "")

    def test_repair_in_part_if_equations_have_no_solution(self):
        contents = {"a": os.urandom(64 * 5), "moved": os.urandom(100), "hollow/": b""}
        the_set = Set(contents, 64, (0, 21845), others=("hollow/",))
        self.write("set.par2", the_set.critical + b"".join(the_set.recovery.values()))
        lost = [the_set.slices[2], the_set.slices[3]]  # of a; their constants are 2^4 and 2^7, see below
        damaged = contents["a"].replace(lost[0], bytes(64)).replace(lost[1], bytes(64))
        for no_sync in (0, 1):
            self.write("a", damaged)
            report = self.report(extra=[self.write("extra", contents["moved"])])
            with self.assertRaises(Failure) as caught:
                report.repair(no_sync=no_sync)
            self.assertRegex(str(caught.exception), "do not determine them: their exponents have gaps; .*/a stays as it is; the other files are repaired")
            self.assertEqual(tree(self.folder), {"a": damaged, "moved": contents["moved"], "hollow": None, "set.par2": (self.folder / "set.par2").read_bytes()})
            (self.folder / "moved").unlink()
            (self.folder / "hollow").rmdir()

    def test_what_lies_outside_of_the_base_folder_is_copied(self):
        contents = {"a": os.urandom(3 << 20), "b": os.urandom(100), "sub/c": os.urandom(640), "d": os.urandom(640), "e": os.urandom(70)}
        base, out = self.folder / "base", self.folder / "out"
        other_disk = pathlib.Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
        self.addCleanup(shutil.rmtree, other_disk)
        self.folder = base
        self.write_set(contents, 1 << 16, ())
        out.mkdir()
        (self.folder / "in").mkdir()
        (base / "link").symlink_to(out)
        self.write("damaged", contents["a"][:-1] + b"x")
        moves = {"a": out / "a", "b": base / "link/b", "sub/c": base / "in/c", "d": base / "../out/../base/in/d", "e": other_disk / "e"}
        for name, path in moves.items():
            shutil.move(base / name, path)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(base)  # a base folder that is given as "."
        for given in (base, "."):
            before = tree(base.parent)
            report = library.verify(base / "set.par2", base=given, extra=moves.values())
            self.assertEqual({file["state"] for file in report.files.values()}, {RENAMED})
            report.repair()
            self.assertEqual({name: (base / name).read_bytes() for name in contents}, contents)
            self.assertEqual({name: path.exists() for name, path in moves.items()}, {"a": True, "b": True, "sub/c": False, "d": False, "e": True})
            self.assertEqual({**before, **{f"base/{name}": data for name, data in contents.items()}}, {**tree(base.parent), "base/in/c": contents["sub/c"],
                                                                                                     "base/in/d": contents["d"]})
            self.assertEqual([(other_disk / "e").read_bytes(), (out / "a").stat().st_nlink], [contents["e"], 1])
            for name in contents:
                (base / name).unlink()
            for name in ("sub/c", "d"):
                moves[name].write_bytes(contents[name])

    def test_from_a_disc_that_cannot_be_written(self):
        contents = {"a": os.urandom(640), "sub/b": os.urandom(1000), "c": os.urandom(100)}
        disc, out = self.folder / "disc", self.folder / "out"
        self.folder = disc
        self.write_set(contents, exponents=range(4))
        self.write("a", contents["a"][:100] + b"xyz" + contents["a"][103:])
        (disc / "c").unlink()
        out.mkdir(mode=0o777)
        if os.geteuid() == 0:
            os.chown(out, 65534, 65534)
        self.folder.parent.chmod(0o755)
        for path in [disc, disc / "sub", *disc.rglob("*")]:
            path.chmod(0o555)
        before = tree(disc)
        with ordinary_user():
            report = library.verify(disc / "set.par2", base=out, extra=[disc / "a", disc / "sub/b"])
            report.repair()
        self.assertEqual((report.summary.repair_needed, tree(disc)), (0, before))
        self.assertEqual({name: (out / name).read_bytes() for name in contents}, contents)
        for path in (disc, disc / "sub"):
            path.chmod(0o755)

    def test_packets_at_the_end_of_a_file_of_the_set(self):
        """They stay, in the old file: there may be no others."""
        contents = {"a.zip": os.urandom(640), "b": os.urandom(640)}
        the_set = self.write_set(contents, exponents=range(4))
        packets = (self.folder / "set.par2").read_bytes() + (self.folder / "set.vol0+3.par2").read_bytes()
        for path in self.folder.glob("*.par2"):
            path.unlink()
        for damaged in (contents["a.zip"], contents["a.zip"][:70] + b"xyz" + contents["a.zip"][73:]):
            self.write("a.zip", damaged + packets)
            self.write("b", contents["b"][:-100])
            report = library.verify(self.folder / "a.zip")
            self.assertEqual((report.summary.damaged_count, report.summary.repair_possible, report.summary.recovery_slice_count), (2, 1, 4))
            report.repair()
            self.assertEqual(tree(self.folder), {**contents, "a.zip.1": damaged + packets})
            self.assertEqual(library.verify(self.folder / "a.zip.1").summary.repair_needed, 0)
            (self.folder / "a.zip.1").unlink()
        self.assertEqual(len(the_set.recovery), 4)

    def test_gaps_in_exponents(self):
        # The constants of slices 0 and 2 are 2^1 and 2^4. 3 * 21845 = 65535, so their ratio has the 21845th power 1.
        contents = {"a": os.urandom(64 * 5)}
        for exponents, possible in (((0, 21845), False), ((0, 21845, 43690, 65000), True), ((0, 7), True), ((21845, 65534), True)):
            the_set = self.write_set(contents, exponents=exponents)
            self.write("a", bytes(64) + contents["a"][64:128] + bytes(64) + contents["a"][192:])
            if possible:
                self.report().repair()
                self.assertEqual((self.folder / "a").read_bytes(), contents["a"])
            else:
                self.fails(NOT_RECOVERABLE, "2 slices are lost, and the equations of the 2 recovery", self.report())
        self.assertEqual(len(the_set.slices), 5)

    def test_too_many_or_too_wide_gaps(self):
        # Slices of 8 bytes; recovery slices as {first exponent: count}; how many slices are lost.
        for slices, recovery, lost, possible, message in (
            (20000, {0: 1, 45536: 1}, 2, 0, "only 1 of the 2 recovery slices can be used together: their exponents must lie in a window of 45536"),
            (20000, {0: 1, 45535: 1}, 2, 1, ""), (5000, {0: 2500, 2501: 2500}, 5000, 1, ""),
            (8000, {0: 4000, 20000: 4000}, 8000, 1, "8000 slices are lost, and the exponents of the recovery slices have too many gaps")):
            data = os.urandom(8 * slices)
            self.write("a", data)
            for first, count in recovery.items():
                library.create(self.folder / f"set.{first}.par2", [self.folder / "a"], slice_bytes=8, recovery_slice_count=count,
                               first_exponent=first, volumes=2, volume_count=1, no_sync=1)
            self.write("a", bytes(8 * lost) + data[8 * lost:])
            report = library.verify(self.folder / "set.0.par2", extra=self.folder.glob("*.par2"))
            self.assertEqual((report.summary.recovery_slice_count, report.summary.repair_possible), (sum(recovery.values()), possible))
            if message:
                self.fails(NOT_RECOVERABLE, message, report)
            else:
                report.repair()
                self.assertEqual((self.folder / "a").read_bytes(), data)
            for path in self.folder.iterdir():
                path.unlink()

    def test_search_distance(self):
        # Slice 1 of the extra file comes first where it is far, and then where it is near.
        contents = {"a": os.urandom(64 * 4)}
        self.write_set(contents, exponents=())
        a = contents["a"]
        extra = self.write("extra", b"x" * 30 + a[64:128] + b"y" * 34 + a[64:128] + b"z" * 5 + a[:64] + a[128:])
        (self.folder / "a").unlink()
        for distance, found in ((1, 1), (4, 1), (5, 4), (0, 4)):
            self.assertEqual(self.report(extra=[extra], distance=distance).summary.found_slice_count, found, distance)
        report = self.report(extra=[extra], distance=4)
        report.repair(rename_only=1)
        self.assertEqual(report.summary.found_slice_count, 1)

    def test_wrong_recovery_slice(self):
        contents = {"a": os.urandom(640), "b": os.urandom(640)}
        the_set = self.write_set(contents, exponents=[0, 1])
        self.write("set.vol0+3.par2", packet(the_set.id, b"PAR 2.0\0RecvSlic", struct.pack("<I", 0) + os.urandom(64)))
        self.write("set.vol3+1.par2", the_set.recovery[1])
        wrong_one = (self.folder / "set.vol0+3.par2").read_bytes()
        right = Set(contents, 64, range(12)).recovery
        for wrong in (bytes(64), bytes(65)):  # in place, rebuilt
            self.write("a", wrong + contents["a"][64:])
            (self.folder / "set.vol3+1.par2").unlink(missing_ok=True)
            self.fails(DAMAGED_SET, f"is wrong: a recovery slice of {self.folder}/set.vol0+3.par2 is, or a file has changed", self.report())
            self.write("set.vol3+1.par2", the_set.recovery[1])
            self.report().repair()  # without it
            self.assertEqual((self.folder / "a").read_bytes(), contents["a"])
        draw = random.Random(SEED)
        for lost, others in ((5, 1), (5, 2), (4, 4), (9, 3)):  # groups of the used ones are left out
            bad, data = draw.randrange(lost), bytearray(contents["a"])
            self.write("set.vol0+3.par2", b"".join(right[e] for e in range(lost + others) if e != bad))
            self.write("set.vol3+1.par2", packet(the_set.id, b"PAR 2.0\0RecvSlic", struct.pack("<I", bad) + wrong_one[-64:]))
            for slice_number in draw.sample(range(10), lost):
                data[64 * slice_number] ^= 1
            self.write("a", bytes(data))
            seen = []
            report = self.report()
            report.repair(progress=lambda user, done, total: seen.append((done, total)) or 0)
            self.assertEqual((self.folder / "a").read_bytes(), contents["a"], (SEED, lost, others, bad))
            self.assertEqual(seen[-1][0], seen[-1][1])
            self.assertTrue(all(done <= total for done, total in seen), seen)

    def test_file_that_may_not_be_written(self):
        contents = {"a": os.urandom(640)}
        self.write_set(contents)
        path, user = self.write("a", bytes(64) + contents["a"][64:]), os.geteuid()
        path.chmod(0o400)
        if user == 0:
            for each in (self.folder, path):
                os.chown(each, 65534, 65534)
            os.seteuid(65534)
        try:
            self.report().repair()
        finally:
            os.seteuid(user)
        self.assertEqual((path.read_bytes(), path.stat().st_mode & 0o777), (contents["a"], 0o400))

    def test_many_files_and_few_descriptors(self):
        contents = {f"folder{i % 40}/f{i}": os.urandom(40) for i in range(120)}
        contents |= {f"log{i}{end}": os.urandom(60) for i in range(3) for end in ("", ".1", ".2", ".1.1")}
        self.write_set(contents, exponents=range(45))
        for name in list(contents)[:30]:
            (self.folder / name).unlink()
        for i in range(3):  # names that old files would take belong to others
            for j, end in enumerate(("", ".1", ".2", ".1.1")):
                self.write(f"log{i}{end}", contents[f"log{i}" + (".1", "", ".1.1", ".2")[j]] + b"x" * (j == 2))
            (self.folder / f"log{i}.2").unlink()
            self.write(f"log{i}", b"x" + contents[f"log{i}"])
        for path in self.folder.glob("log*"):
            path.chmod(0o600)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (80, limits[1]))
        try:
            before = tree(self.folder)
            report = self.report()
            report.repair()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        self.assertEqual(tree(self.folder), {**before, **contents})

    def test_lost_checksums(self):
        contents = {"a": os.urandom(640), "b": os.urandom(100), "c": os.urandom(64)}
        the_set = self.write_set(contents, exponents=range(3))
        sums = [each for each in the_set.sums if len(each) != 64 + 16 + 2 * 20]
        self.write("set.par2", b"".join([the_set.main, *the_set.descriptions, *sums]))
        self.write("set.vol0+3.par2", b"".join(the_set.recovery.values()))
        self.write("b", contents["b"][:-1] + b"x")
        self.write("c", b"")
        self.report().repair()
        self.assertEqual([(self.folder / name).read_bytes() for name in "abc"], list(contents.values()))
        extra = self.folder / "extra"
        (self.folder / "b").rename(extra)
        extra.with_name("other").symlink_to("extra")
        self.report(extra=[self.folder / "other"]).repair()  # a link is copied
        self.assertEqual((self.folder / "b").read_bytes(), contents["b"])
        self.assertTrue(extra.exists())

    def test_files_without_recovery_data(self):
        contents = {"a": os.urandom(100), "other": os.urandom(100)}
        self.write_set(contents, others=("other",))
        self.write("other", b"x" * 100)
        self.fails(NOT_RECOVERABLE, "no recovery data", self.report())
        self.write("a", b"y" * 100)
        report = self.report()
        with self.assertRaises(Failure) as caught:
            report.repair()
        report.look()
        self.assertEqual(caught.exception.status, NOT_RECOVERABLE)
        self.assertRegex(str(caught.exception), "other is not right, .* no recovery data for it; the other files are repaired")
        self.assertEqual(((self.folder / "a").read_bytes(), report.summary.repaired_count), (contents["a"], 1))
        (self.folder / "a").unlink()
        (self.folder / "a").mkdir()
        self.write("other", contents["other"])
        self.fails(IO, "a is a folder", self.report())
        (self.folder / "a").rmdir()
        extra = self.write("extra", contents["other"])
        self.report(extra=[extra]).repair()
        self.assertEqual((self.folder / "other").read_bytes(), contents["other"])

    def test_changes_after_verify(self):
        contents = {"a": os.urandom(640), "b": os.urandom(640)}
        self.write_set(contents)
        self.write("a", bytes(64) + contents["a"][64:])
        report = self.report()
        self.write("a", bytes(128) + contents["a"][128:])
        self.fails(DAMAGED_SET, "a has changed", report)
        report = self.report()
        self.write("b", bytes(640))
        self.fails(DAMAGED_SET, "has changed since it was verified", report)
        (self.folder / "b").unlink()
        report = self.report(extra=[self.write("extra", contents["b"])])
        self.write("extra", b"x")
        self.fails(DAMAGED_SET, "extra has changed", report)
        report = self.report(extra=[self.write("extra", contents["b"])])
        self.write("b", b"new")
        self.fails(DAMAGED_SET, "b has changed", report)

    def test_changes_at_the_last_moment(self):
        """Another program writes while existing files change: what it wrote stays."""
        contents = {"a": os.urandom(640), "b": os.urandom(640)}
        a, new = contents["a"], b"precious" * 50
        in_place, longer = bytes(64) + a[64:], a + b"x"
        # What is damaged; another program writes at this report of progress (1: the last one to cancel if nothing is computed,
        # else 2; 3: after a write in place) into this file, or renames one to it.
        table = [(damage, when, name, how) for damage, when, name in (
            ({"a": in_place}, 2, "a"), ({"a": longer}, 1, "a"), ({"a": b"x" + a}, 2, "a"), ({"a": b"x", "extra": a}, 1, "a"),
            ({"a": b"x", "extra": a}, 1, "extra"), ({"a": None, "extra": a}, 1, "extra"), ({"a": contents["b"], "b": a}, 1, "a"))
            for how in ("write", "rename")]
        table += [({"a": in_place}, 3, "a", "rename"), ({"a": in_place[:-1] + b"x"}, 3, "a", "rename")]
        for row, (damage, when, name, how) in enumerate(table):
            with self.subTest(row=row, when=when, name=name, how=how):
                for path in list(self.folder.iterdir()):
                    path.unlink()
                self.write_set(contents)
                for each, data in damage.items():
                    self.change(each, data)
                before, seen = tree(self.folder), []

                def progress(user, done, total):
                    seen.append(done)
                    time.sleep(0.11 * (len(seen) == 2))  # so that the next write reports
                    if len(seen) == when:
                        (self.folder / ("t" if how == "rename" else name)).write_bytes(new)
                        if how == "rename":
                            (self.folder / "t").rename(self.folder / name)

                report = self.report(extra=[self.folder / "extra"])
                with self.assertRaises(Failure) as caught:
                    report.repair(progress=lambda *arguments: progress(*arguments) or 0)
                self.assertEqual(caught.exception.status, DAMAGED_SET, caught.exception)
                self.assertIn(f"{name} has changed", str(caught.exception))
                self.assertEqual(tree(self.folder), {**before, name: new})

    def test_long_names(self):
        contents = {"n" * 254: os.urandom(640), "n" * 253 + "m": os.urandom(640)}
        self.write_set(contents)
        for name, data in contents.items():
            self.write(name, b"x" + data)
        self.report().repair(keep_replaced=1)
        after = tree(self.folder)
        replaced = {"n" * 240 + ".1", "n" * 240 + ".2"}
        self.assertEqual({after[name][1:] for name in replaced}, set(contents.values()))
        for name in contents:
            (self.folder / name).unlink()
        self.assertEqual(self.report().summary.found_slice_count, 20)

    def test_whole_file_in_a_folder_that_may_not_be_written(self):
        contents = {"a": os.urandom(640)}
        self.write_set(contents)
        (self.folder / "b").mkdir()
        (self.folder / "a").rename(self.folder / "b/extra")
        if os.geteuid() == 0:
            os.chown(self.folder, 65534, 65534)
        (self.folder / "b").chmod(0o555)
        with ordinary_user():
            self.report(extra=[self.folder / "b/extra"]).repair()
        self.assertEqual([(self.folder / name).read_bytes() for name in ("a", "b/extra")], 2 * [contents["a"]])

    def test_limit_on_the_size_of_files(self):
        contents = {"a": os.urandom(6400)}
        self.write_set(contents)
        self.write("a", contents["a"][:6399])
        before = tree(self.folder)
        done = subprocess.run([TANDEM, "par2", "repair", "set"], cwd=self.folder, capture_output=True, text=True,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (6399, 6399)))
        self.assertGreater(done.returncode, 0)
        self.assertIn("File too large", done.stderr)
        self.assertEqual(tree(self.folder), before)

    def test_links_lead_nowhere(self):
        outside = self.folder / "outside"
        outside.mkdir()
        base = self.folder / "base"
        contents = {"sub/a": os.urandom(640), "b": os.urandom(100), "c": os.urandom(640)}
        self.folder = base
        self.write_set(contents)
        (base / "sub").rename(outside / "sub")
        (base / "sub").symlink_to(outside / "sub")
        self.assertEqual(self.report().summary.repair_needed, 0)
        (outside / "sub/a").write_bytes(bytes(64) + contents["sub/a"][64:])
        for data in (bytes(64) + contents["sub/a"][64:], None):
            if data is None:
                (outside / "sub/a").unlink()
            self.fails(IO, "symbolic link", self.report())
        (outside / "sub/a").write_bytes(contents["sub/a"])
        # Another name of the damaged file: it stays as it is, or the repair is refused.
        self.write("b", bytes(100))
        os.link(base / "b", outside / "linked")
        self.report().repair()
        self.assertEqual(((outside / "linked").read_bytes(), (base / "b").read_bytes()), (bytes(100), contents["b"]))
        (base / "c").unlink()
        (base / "b").write_bytes(contents["c"])
        (base / "c").symlink_to("b")
        self.fails(UNSUPPORTED, "another file of the set", self.report())
        (base / "c").unlink()
        (base / "c").mkdir()
        report = self.report()
        with self.assertRaises(Failure) as caught:
            report.repair()
        self.assertEqual(caught.exception.status, IO)
        self.assertIn("c is a folder, and a file must take its place; the other files are repaired", str(caught.exception))
        self.assertEqual(((base / "b").read_bytes(), (base / "b.1").read_bytes()), (contents["b"], contents["c"]))
        (base / "b").rename(base / "b.2")
        (base / "b.1").rename(base / "b")
        (base / "b.2").unlink()
        (base / "c").rmdir()
        os.mkfifo(base / "c")
        report = self.report()
        self.folder = outside
        self.fails(IO, "is no regular file", report)
        self.assertTrue((base / "c").is_fifo())
        self.folder = base.parent

    def test_cancel_and_progress(self):
        contents = {"a": os.urandom(64000), "b": os.urandom(64000)}
        self.write_set(contents, 640, range(9))
        damaged = contents["a"][:100] + bytes(1000) + contents["a"][1100:]
        for stop in range(1, 10):
            self.write("a", damaged)
            self.write("b", b"x" + contents["b"][:-700])
            seen = []
            progress = lambda user, done, total: seen.append((done, total)) or len(seen) == stop  # noqa: E731
            if stop <= 2:
                self.fails(CANCELLED, "", self.report(), progress=progress)
            else:
                self.report().repair(progress=progress)
                self.assertEqual(seen[-1][0], seen[-1][1])
                self.assertTrue(all(done <= total for done, total in seen), seen)
                self.assertEqual([total - done for done, total in seen[-2:]], [2 * 640, 0])  # to write in place, at the end
                self.assertEqual([(self.folder / name).read_bytes() for name in "ab"], [contents["a"], contents["b"]])

    def test_cancel_while_equations_are_solved(self):
        data = os.urandom(8 * 600)
        self.write_set({"a": data}, 8, range(0, 1200, 2))
        self.write("a", bytes(8 * 500) + data[8 * 500:])
        seen = []
        self.fails(CANCELLED, "cancelled", self.report(), progress=lambda user, done, total: seen.append(total) or 1)
        self.assertEqual(seen, [2 * 8 * 500])  # what is read for them is not known yet
        self.report().repair()
        self.assertEqual((self.folder / "a").read_bytes(), data)

    def test_temporaries_of_dead_calls(self):
        """Named; removed when all files are complete, unless a living process holds one of the set's."""
        long_name = 250 * "n"
        contents = {"a": os.urandom(300), "sub/b": os.urandom(200), long_name: os.urandom(100), ".a.ffffffffffffffff.tmp": b"of the set"}
        self.write_set(contents)
        left = [f"{name}.0123456789abcdef.tmp" for name in (".a", "sub/.b", ".set.par2", ".set.vol0+3.par2", "." + long_name[:200])]
        others = [".b.0123456789abcdef.tmp", ".a.0123456789abcde.tmp", ".setx.par2.0123456789abcdef.tmp", ".a.ffffffffffffffff.tmp", "sub/.b.tmp"]
        for name in left + others[:3] + others[4:]:
            self.write(name, b"x")
        paths = sorted(str(self.folder / name) for name in left)
        report = self.report()
        self.assertEqual(sorted(report.temporaries), paths)
        self.assertEqual(len(self.report(base=self.folder / "none").temporaries), 2)  # those of the packet files
        with open(self.folder / left[2]) as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            report.repair()
            self.assertEqual((report.temporaries, self.report().temporaries), ([], []))
            self.assertTrue(all((self.folder / name).exists() for name in left))
        self.write("a", contents["a"][1:])
        self.write("sub/b", os.urandom(200))
        self.write(long_name, b"")
        self.fails(NOT_RECOVERABLE, "", self.report())
        self.write("sub/b", contents["sub/b"])
        report = self.report()
        self.assertEqual(sorted(report.temporaries), paths)
        while_it_writes = []
        report.repair(progress=lambda *_: while_it_writes.append(self.report().temporaries) or 0)
        self.assertEqual((while_it_writes, report.temporaries), ([[]] * len(while_it_writes), []))
        after = tree(self.folder)
        self.assertEqual([name for name in left if name in after] + [name for name in others if name not in after], [])
        self.assertEqual({name: after[name] for name in contents}, contents)

    @unittest.skipUnless(shutil.which("par2"), "NOT RUN: par2 is not installed")
    def test_sets_of_par2cmdline(self):
        draw = random.Random(SEED)
        contents = {f"file {i}": draw.randbytes(draw.randrange(200000)) for i in range(8)}
        for name, data in contents.items():
            self.write(name, data)
        subprocess.run(["par2", "create", "-qq", "-s4096", "-c120", "set.par2", *contents], cwd=self.folder, check=True)
        for name in list(contents)[:4]:
            data = bytearray(contents[name])
            at = draw.randrange(len(data) + 1)
            data[at:at + draw.choice([3, 4])] = b"xyz"
            self.write(name, bytes(data))
        (self.folder / "file 7").unlink()
        self.report().repair()
        self.assertEqual({name: (self.folder / name).read_bytes() for name in contents}, contents)
        subprocess.run(["par2", "verify", "-qq", "set.par2"], cwd=self.folder, check=True)


@unittest.skipIf(sys.argv[3] == "none", "NOT RUN: no library of faults")
class Faults(unittest.TestCase):
    CALLS = ("create", "open", "write", "rename", "renameat2", "unlink", "mkdir", "ftruncate", "fallocate", "fsync", "fchmod")

    def setUp(self):
        self.box = Sandbox(TANDEM, FAULTS)
        self.addCleanup(self.box.close)
        draw = random.Random(SEED)
        self.contents = {name: draw.randbytes(bytes_) for name, bytes_ in
                         (("flipped", 1000), ("cut", 900), ("shifted", 700), ("one", 300), ("two", 400), ("new/gone", 300), ("moved", 500),
                          ("host", 640), ("guest", 250))}
        the_set = Set(self.contents, 64, range(9))
        self.slices = len(the_set.slices)
        for name, data in {**self.contents, "set.par2": the_set.critical, "set.vol0+9.par2": b"".join(the_set.recovery.values())}.items():
            path = pathlib.Path(self.box.path(name))
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
        c = self.contents
        shutil.rmtree(self.box.path("new"))
        os.rename(self.box.path("moved"), self.box.path("found"))
        os.unlink(self.box.path("guest"))
        for name, data in (("flipped", c["flipped"][:70] + b"x" + c["flipped"][71:]), ("cut", c["cut"][:800]),
                           ("shifted", b"x" + c["shifted"]), ("one", c["two"]), ("two", c["one"]), ("gone", c["new/gone"][:-1]), ("host", c["host"] + c["guest"])):
            pathlib.Path(self.box.path(name)).write_bytes(data)
        self.extra = [self.box.path(name) for name in ("found", "gone")]
        self.damaged = self.box.tree()
        self.found = self.state().found_slice_count

    def state(self):
        return library.verify(self.box.path("set.par2"), extra=self.extra).summary

    def repair(self, **more):
        return self.box.run("par2", "repair", "set", "found", "gone", "--threads", 1, "-q", calls=self.CALLS, **more)

    def is_whole(self, tree):
        return all(tree.get(name) == data for name, data in self.contents.items())

    def check_repairable(self, what):
        summary = self.state()
        self.assertGreaterEqual(summary.found_slice_count, self.found, what)
        self.assertTrue(summary.repair_possible, what)
        done = self.repair()
        self.assertEqual(done.status, 0, (what, done.stderr))
        after = self.box.tree()
        self.assertTrue(self.is_whole(after), what)
        self.assertEqual([name for name in after if name.endswith(".tmp")], [], what)

    def calls(self):
        done = self.repair(log=True)
        self.assertEqual((done.status, self.is_whole(self.box.tree())), (0, True), done.stderr)
        return done.calls

    def test_kill_at_each_call(self):
        calls = self.calls()
        for action in ("kill", "kill-half"):
            for n in range(1, len(calls) + 1):
                self.box.restore(self.damaged)
                self.assertTrue(self.repair(action=action, at=n).killed)
                self.check_repairable((SEED, action, n, calls[n - 1]))

    def test_kill_of_a_repair_in_part(self):
        """With the other recovery slices, which come later, all is repaired."""
        recovery = self.damaged.pop("set.vol0+9.par2")
        self.box.restore(self.damaged)
        done = self.repair(log=True)
        self.assertEqual((done.status, "the other files are repaired" in done.stderr), (4, True), done.stderr)
        after = self.box.tree()
        self.assertEqual([name for name in self.contents if after.get(name) != self.contents[name]], ["flipped", "cut", "new/gone"])
        for n in range(1, len(done.calls) + 1):
            self.box.restore(self.damaged)
            self.assertTrue(self.repair(action="kill", at=n).killed)
            self.assertGreaterEqual(self.state().found_slice_count, self.found, (SEED, n, done.calls[n - 1]))
            pathlib.Path(self.box.path("set.vol0+9.par2")).write_bytes(recovery)
            self.check_repairable((SEED, n, done.calls[n - 1]))

    def test_failure_of_each_call_of_a_repair_in_part(self):
        """No slice is lost, and what the command calls repaired is right."""
        def repair(**more):
            return self.box.run("par2", "repair", "set", "found", "gone", "--threads", 1, "--json", calls=self.CALLS, **more)

        recovery = self.damaged.pop("set.vol0+9.par2")
        self.box.restore(self.damaged)
        calls, reports = repair(log=True).calls, 0
        for error in (errno.ENOSPC, errno.EIO):
            for count in (1, 1000):
                for n in range(1, len(calls) + 1):
                    self.box.restore(self.damaged)
                    done = repair(action="fail", at=n, count=count, errno=error)
                    after, what = self.box.tree(), (SEED, error, count, n, calls[n - 1], done.stderr)
                    self.assertNotEqual(done.status, 0, what)
                    repaired = [file["name"] for file in json.loads(done.stdout).get("files", []) if file["repaired"]]
                    self.assertEqual([name for name in repaired if after.get(name) != self.contents[name]], [], what)
                    reports += repaired != []
                    pathlib.Path(self.box.path("set.vol0+9.par2")).write_bytes(recovery)
                    self.check_repairable(what)
        self.assertGreater(reports, 0)

    def test_failure_of_each_call(self):
        """Everything is as it was, until an existing file changes; later it is as repairable as before."""
        calls = self.calls()
        first = next(n for n, call in enumerate(calls) if call.name == "write" and ".tmp" not in call.path)
        made = {call.path for call in calls if call.name == "create"}
        self.assertEqual({call.path for call in calls[:first] if call.name == "fsync" and call.path in made}, made)
        self.assertEqual([call for call in calls[first:] if call.name != "renameat2" and call.path in made], [])
        for error in (errno.ENOSPC, errno.EIO):
            for count in (1, 1000):
                for n in range(1, len(calls) + 1):
                    self.box.restore(self.damaged)
                    done = self.repair(action="fail", at=n, count=count, errno=error)
                    after, what = self.box.tree(), (SEED, error, count, n, calls[n - 1], done.stderr)
                    if done.status == 0:  # a file that cannot be opened is not searched, and so on
                        self.assertTrue(self.is_whole(after), what)
                        continue
                    # 1: a file could not be read, and the others are repaired; not all of them if the recovery slices are too few then.
                    if n <= first and count == 1 and done.status != 1 and "stays as it is" not in done.stderr:
                        self.assertEqual(after, self.damaged, what)
                    self.check_repairable(what)

    def test_errors_that_say_nothing_about_a_file(self):
        """It stays. A read error of the disk is damage."""
        contents = {"a": os.urandom(256), "b": os.urandom(1000)}
        the_set = Set(contents, 64, range(9))
        damaged = contents["b"][:70] + b"x" + contents["b"][71:]
        packets = the_set.critical + b"".join(the_set.recovery.values())
        for call, error, is_damage in (("look", errno.ENOMEM, False), ("look", errno.EACCES, False), ("open", errno.EPERM, False),
                                       ("open", errno.ESTALE, False), ("read", errno.ESTALE, False), ("read", errno.ENOMEM, False),
                                       ("read", errno.EIO, True)):
            self.box.restore({"a": contents["a"], "b": damaged, "set.par2": packets})
            inode = os.stat(self.box.path("a")).st_ino
            done = self.box.run("par2", "repair", self.box.path("set"), "--threads", 1, calls=[call], action="fail", at=1, count=1000, errno=error,
                                path=self.box.path("a"))
            after, what = self.box.tree(), (call, error, done.stderr)
            self.assertEqual((done.status, os.stat(self.box.path("a")).st_ino == inode), (0, False) if is_damage else (3, True), what)
            self.assertEqual((after["a"], after["b"]), (contents["a"], contents["b"]), what)
            self.assertEqual(os.strerror(error) in done.stderr, not is_damage, what)

    def test_packet_files_that_cannot_be_read(self):
        """Their names do not tell what they are: that data is lost is not known."""
        contents = {"a": os.urandom(256), "b": os.urandom(1000)}
        the_set = Set(contents, 64, range(9))
        whole = {**contents, "hidden.0": the_set.critical + the_set.recovery[0], "hidden.1": b"".join(the_set.recovery.values())}
        for call, error in (("open", errno.EACCES), ("open", errno.EIO), ("read", errno.EIO), ("read", errno.ESTALE)):
            for damage, statuses in ((0, (0, 0)), (1, (1, 0)), (2, (3, 3))):
                self.box.restore({**whole, "hidden.1.folder": None, "a": bytes(64 * damage) + contents["a"][64 * damage:]})
                os.symlink("hidden.1", self.box.path("hidden.1.link"))
                for command, status in zip(("verify", "repair"), statuses):
                    done = self.box.run("par2", command, "hidden.0", calls=[call], action="fail", at=1, count=1000, errno=error,
                                        path=self.box.path("hidden.1"))
                    what = f"tandem: ./hidden.1: cannot be read: {os.strerror(error)}\n" if damage > 0 and (command, damage) != ("repair", 1) else ""
                    self.assertEqual((done.status, done.stderr), (status, what), (call, error, damage, command))
        self.box.restore({**whole, "a": bytes(256)})
        self.assertEqual(self.box.run("par2", "repair", "hidden.0").status, 0)

    def test_full_disk_as_sabnzbd_reads_it(self):
        """The command `par2`. The last of these lines counts there."""
        self.box.tandem = str(pathlib.Path(TANDEM).with_name("par2"))
        for error in (errno.ENOSPC, errno.EDQUOT):
            for call in ("ftruncate", "write", "fallocate"):
                self.box.restore(self.damaged)
                done = self.box.run("r", "set", "found", "gone", "-m1", calls=[call], action="fail", at=1, count=1000, errno=error)
                self.assertEqual(done.status, 6, done.stderr)
                self.assertIn(b"Repair Failed.", done.stdout)
                self.assertIn("There is not enough space on the disk: ", done.stderr.splitlines()[-1])

    def test_failure_of_a_rename(self):
        """Old files get their names back, until the first new file has its name."""
        for name in ("flipped", "cut", "host"):
            pathlib.Path(self.box.path(name)).write_bytes(self.contents[name])
        pathlib.Path(self.box.path("guest")).write_bytes(self.contents["guest"])
        self.damaged = self.box.tree()
        calls = [call for call in self.calls() if call.name == "renameat2"]
        first = next(n for n, call in enumerate(calls) if not re.search(r"\.\d$", call.second_path))
        self.assertGreater(first, 2)
        for n in range(len(calls)):
            self.box.restore(self.damaged)
            done = self.box.run("par2", "repair", "set", "found", "gone", "--threads", 1, calls=["renameat2"], action="fail",
                                at=n + 1, errno=errno.EIO)
            self.assertNotEqual(done.status, 0)
            if n <= first:
                self.assertEqual(self.box.tree(), self.damaged, (SEED, n, calls[n]))
            self.check_repairable((SEED, n, calls[n]))

    def test_written_bytes(self):
        """A repair in place writes what is damaged."""
        data = random.Random(SEED).randbytes(1 << 20)
        the_set = Set({"file": data}, 8192, range(0))
        self.box.restore({"file": data})
        library.create(self.box.path("set.par2"), [self.box.path("file")], slice_bytes=8192, recovery_slice_count=8)
        damaged = bytearray(data)
        for at in (0, 40 * 8192, 127 * 8192):
            damaged[at:at + 16384] = bytes(len(damaged[at:at + 16384]))
        pathlib.Path(self.box.path("file")).write_bytes(damaged)
        done = self.box.run("par2", "repair", "set", log=True)
        self.assertEqual((done.status, self.box.tree()["file"]), (0, data))
        self.assertEqual(sum(call.result for call in done.calls if call.name == "write" and call.result > 0), 5 * 8192)
        self.assertEqual({call.path for call in done.calls if call.name == "write"}, {self.box.path("file")})
        self.assertEqual(len(the_set.slices), 128)


library = Library(sys.argv.pop(1))
TANDEM, FAULTS = sys.argv.pop(1), sys.argv.pop(1)
unittest.main()
