#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sets of PAR 1.0 (par2.h) against the reference: par1_test.py FOLDER-OF-LIBRARIES"""

import os
import random
import sys
import unittest

from library import COMPLETE, DAMAGED, DAMAGED_SET, IO, MISSING, NOT_RECOVERABLE, RENAMED, TOO_LARGE, UNSUPPORTED, Failure, Library
from reference import Case, par1_entry, par1_set, par1_volume, power8, rank8

SEED = int(os.environ.get("TANDEM_TEST_SEED", random.randrange(1 << 32)))
print("TANDEM_TEST_SEED", SEED)


class Par1(Case):
    def verify(self, path="set.par", **more):
        return library.verify(self.folder / path, **more)

    def fails(self, status, message, call):
        before = {path: path.read_bytes() for path in self.folder.iterdir()}
        with self.assertRaises(Failure) as caught:
            call()
        self.assertEqual(caught.exception.status, status, caught.exception)
        self.assertIn(message, str(caught.exception))
        self.assertEqual({path: path.read_bytes() for path in self.folder.iterdir()}, before)

    def write_volumes(self, volumes):
        for number, data in volumes.items():
            self.write(f"set.{'pq'[number // 100]}{number % 100:02}" if number else "set.par", data)

    def test_random_damage_is_repaired_if_its_equations_have_a_solution(self):
        draw = random.Random(SEED)
        outcomes = set()
        for round in range(120):
            count = draw.randrange(1, 13)
            contents = {f"f\u00e9\U0001f600{i}"[draw.choice([0, 1]):]: draw.randbytes(draw.choice([0, 9, draw.randrange(9, 700)])) for i in range(count)}
            contents["last"] = draw.randbytes(draw.randrange(9, 900))
            others = {name for name in contents if name != "last" and draw.random() < 0.1}
            few = draw.random() < 0.5
            numbers = sorted(draw.sample(range(1, 8 if few else 200), draw.randrange(1, 6)))
            for name, data in contents.items():
                self.write(name, data)
            self.write_volumes(par1_set(contents, [0, *numbers], others))
            states, extra, lost, hopeless = dict.fromkeys(contents, COMPLETE), [], [], False
            saved = [name for name in contents if name not in others]
            for name in draw.sample(list(contents), draw.randrange(min(7, len(contents) + 1))):
                path, data, way = self.folder / name, contents[name], draw.randrange(3)
                states[name] = MISSING
                if way == 0:
                    path.unlink()
                elif way == 1:
                    states[name] = DAMAGED
                    path.write_bytes(b"x" + data if draw.random() < 0.5 or not data else bytes([data[0] ^ 1]) + data[1:])
                else:
                    extra.append(path.rename(self.folder / f"extra{len(extra)}"))
                    states[name] = RENAMED if data else MISSING  # empty files are made
                if data and states[name] != RENAMED:
                    hopeless = hopeless or name in others
                    lost += [saved.index(name)] if name in saved else []
            report = self.verify(draw.choice(["set.par", "set"]), extra=extra)
            self.assertEqual({name: each["state"] for name, each in report.files.items()}, states, f"seed {SEED}, round {round}")
            summary = report.summary
            self.assertEqual((summary.slice_count, summary.slice_count - summary.found_slice_count, summary.recovery_slice_count),
                             (len(saved), len(lost), len(numbers)))
            rows = [[power8(i + 1, number - 1) for i in lost] for number in numbers]
            outcome = ("too few" if hopeless or len(lost) > len(numbers) else "singular" if rank8(rows) < len(lost) else "right")
            outcomes.add(outcome)
            self.assertEqual(summary.repair_possible, outcome != "too few")
            if outcome == "right":
                report.repair(memory_bytes=draw.choice([0, 1]))
                self.assertEqual(report.summary.complete_count, len(contents))
                self.assertEqual(self.verify().summary.repair_needed, 0)
                for name, data in contents.items():
                    self.assertEqual((self.folder / name).read_bytes(), data, f"seed {SEED}, round {round}")
            else:  # the others are repaired
                left = {name for name in others if contents[name] and states[name] in (MISSING, DAMAGED)}
                left |= {saved[i] for i in lost} if rank8(rows) < len(lost) else set()
                if all(states[name] == COMPLETE or name in left for name in contents):
                    self.fails(NOT_RECOVERABLE, "", report.repair)
                with self.assertRaises(Failure) as caught:
                    report.repair()
                self.assertEqual(caught.exception.status, NOT_RECOVERABLE)
                for name in contents.keys() - left:
                    self.assertEqual((self.folder / name).read_bytes(), contents[name], f"seed {SEED}, round {round}")
            for path in self.folder.iterdir():
                path.unlink()
        self.assertLessEqual({"too few", "right"}, outcomes)

    def test_equations_without_a_solution(self):
        # Volumes 1 and 86 have the same coefficients for points with the same 85th power.
        same = [i for i in range(1, 61) if power8(i, 85) == 1][:2]
        contents = {f"f{i}": os.urandom(50) for i in range(1, 61)}
        for name, data in contents.items():
            self.write(name, data)
        self.write_volumes(par1_set(contents, [0, 1, 86]))
        for i in same:
            (self.folder / f"f{i}").unlink()
        report = self.verify()
        self.assertEqual(report.summary.repair_possible, 1)
        self.fails(NOT_RECOVERABLE, "their exponents have gaps", report.repair)

    def test_files_of_the_set(self):
        contents = {"a": os.urandom(3000), "b": os.urandom(2000)}
        volumes = par1_set(contents, [0, 1, 2])
        other = par1_set({"c": b"c"}, [0, 1])
        for name, data in {**contents, "set.PAR": b"", "set.P01": volumes[1], "set.q00": volumes[2], "set.s.par": other[0], "x.p01": volumes[1],
                           "set.vol": volumes[2], "set.part": volumes[2], "set.r00": volumes[2], "set.p1": volumes[2], "set.par2": b"", "e.p07": volumes[2]}.items():
            self.write(name, data)
        report = self.verify("set.P01", extra=[self.folder / "e.p07"])
        self.assertEqual([(os.path.basename(each["path"].decode()), each["packet_count"], each["recovery_slice_count"])
                          for each in report.packet_files],
                         [("set.P01", 1, 1), ("set.PAR", 0, 0), ("set.q00", 1, 1), ("set.s.par", 0, 0), ("e.p07", 1, 1)])
        self.assertEqual((report.summary.recovery_slice_count, report.summary.repair_needed), (2, 0))
        # A data file with a name as a PAR1 file has, and a PAR2 set of its own.
        self.write("movie.p01", contents["a"])
        library.create(self.folder / "movie.p01.par2", [self.folder / "movie.p01"], recovery_percent=0)
        self.assertEqual(list(self.verify("movie.p01").files), ["movie.p01"])
        self.fails(IO, "none.par", lambda: self.verify("none.par"))

    def test_damaged_and_hostile_sets(self):
        contents = {"a": os.urandom(300), "b": os.urandom(200), "c": b""}
        entries = [par1_entry(*each) for each in contents.items()]
        good = par1_set(contents, [0, 1, 2])
        for name, data in contents.items():
            self.write(name, data)

        def made(*more, number=0, **header):
            return par1_volume(number, [*entries, *more], **header)

        def named(name):
            return made(par1_entry(name, b"x"))

        for index, status, message in (
            # Damage, and sizes that point out of the file: no volume.
            (b"", DAMAGED_SET, "intact"), (good[0][:95], DAMAGED_SET, "intact"), (good[0][:-1], DAMAGED_SET, "intact"),
            (good[0][:200] + b"\xff" + good[0][201:], DAMAGED_SET, "intact"), (made(version=0x20000), DAMAGED_SET, "intact"),
            *((made(**{field: value}), DAMAGED_SET, "intact") for field, values in
              {"list_offset": (0, 95, 97, 1 << 63, 2**64 - 1), "list_bytes": (2**64 - 1, 2**64 - 96, 1 << 40)}.items() for value in values),
            (made(number=1, data_offset=2**64 - 1, data_bytes=2), DAMAGED_SET, "intact"), (made(number=1, data_bytes=1 << 62), DAMAGED_SET, "intact"),
            # Intact ones with wrong contents.
            (made(count=4), UNSUPPORTED, "ends before 1 "), (made(count=2**64 - 1), UNSUPPORTED, "ends before"),
            (made(list_bytes=len(entries[0]) + 56, count=2), UNSUPPORTED, "ends before 1 "),
            (made(b"\x38" + entries[0][1:]), UNSUPPORTED, "ends before 1 "), (made(bytes(8) + entries[0][8:]), UNSUPPORTED, "ends before 1 "),
            (made(b"\xff" * 8 + entries[0][8:]), UNSUPPORTED, "ends before 1 "),
            *((named(name), UNSUPPORTED, "the set has a file \"") for name in
              ("..", ".", "/etc/x", "x/y", "..\\x", "x\0", b"x", b"x\0y", b"\0\xd8", b"\0\xd8x\0", b"\0\xdc", b"\0\xd8\0\xd8", b"\0\xdc\0\xdc")),
            (named("a"), UNSUPPORTED, 'a file "a", a name that cannot be used'), (made(par1_entry("d", b"", size=2**49)), UNSUPPORTED, f"a file of {2**49} bytes"),
            (made(*(par1_entry(f"d{i}", b"") for i in range(253))), TOO_LARGE, "256 files with recovery data"),
            (made(*(par1_entry(f"d{i}", b"", False) for i in range(32769))), TOO_LARGE, "32769 others"),
        ):
            with self.subTest(message=message, index=index[:400]):
                self.write("set.par", index)
                self.fails(status, message, self.verify)
                if status == DAMAGED_SET:  # another volume has the list, too
                    self.write("set.p01", good[1])
                    report = self.verify()
                    self.assertEqual((report.summary.complete_count, report.summary.recovery_slice_count), (3, 1))
                    self.assertEqual([each["damaged_bytes"] for each in report.packet_files], [len(index), 0])
                    (self.folder / "set.p01").unlink()
        self.write("set.par", made(*(par1_entry(f"d{i}", b"") for i in range(252))))
        self.assertEqual(self.verify().summary.slice_count, 255)
        # Volumes that no equation can use.
        set_id = good[0][32:48]
        self.write("set.par", good[0])
        for number, data, own_id, is_used in ((1, 300, set_id, 1), (1, 299, set_id, 0), (1, 301, set_id, 1), (253, 300, set_id, 1),
                                              (254, 300, set_id, 0), (2**64 - 1, 300, set_id, 0), (1, 300, bytes(16), 0)):
            self.write("set.p01", par1_volume(number, entries, bytes(data), own_id))
            self.assertEqual(self.verify().summary.recovery_slice_count, is_used, (number, data))
        # A volume with wrong data.
        self.write("set.p01", par1_volume(1, entries, bytes(300), set_id))
        self.write("a", b"damage")
        self.fails(DAMAGED_SET, "is wrong", self.verify().repair)


library = Library(sys.argv.pop(1))
unittest.main()
