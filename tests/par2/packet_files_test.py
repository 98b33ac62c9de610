#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packet files that are made anew (par2.h, `tandem par2 repair --packets`): packet_files_test.py FOLDER-OF-LIBRARIES TANDEM FAULT-LIBRARY|none"""

import os
import pathlib
import random
import re
import shutil
import struct
import sys
import tempfile
import unittest

from library import COMPLETE, DAMAGED_SET, IO, NOT_RECOVERABLE, Failure, Library
from reference import Set, md5, packet, packets_of

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "files/fault"))
from kit import CHANGES, Sandbox  # noqa: E402

SEED = int(os.environ.get("TANDEM_TEST_SEED", random.randrange(1 << 32)))
ROUNDS = int(os.environ.get("TANDEM_TEST_ROUNDS", 60))
print("TANDEM_TEST_SEED", SEED)
PACKETS = 2  # enum tandem_par2_scope_value


def volume(name):
    """The exponents that a name tells."""
    found = re.fullmatch(r".*\.vol(\d+)\+(\d+)\.par2", name)
    return set(range(int(found[1]), int(found[1]) + int(found[2]))) if found else set()


def is_lost(data, whole):
    """Whether a packet file lacks something: it is no row of packets, or a recovery slice or a kind of packet is gone."""
    try:
        left = packets_of(data)
    except (AssertionError, struct.error):
        return True
    kinds = (b"Main\0\0\0\0", b"FileDesc", b"IFSC\0\0\0\0", b"RecvSlic")
    return bool({each[3] for each in packets_of(whole) if each[0] in kinds} - {each[3] for each in left})


def has_packet(data):
    """Whether an intact packet is somewhere in the file."""
    for found in re.finditer(b"PAR2\0PKT", data):
        length = int.from_bytes(data[found.start() + 8:found.start() + 16], "little")
        whole = data[found.start():found.start() + length]
        if 64 <= length == len(whole) and md5(whole[32:]) == whole[16:32]:
            return True
    return False


def spoil(draw, data, slice_bytes):
    """Damaged bytes of a packet file; None: it is gone."""
    kind = draw.randrange(5)
    if kind == 0:
        return None
    if kind == 1:  # at the end of a packet: every byte that is left is right
        ends = [found.start() for found in re.finditer(b"PAR2\0PKT", data)][1:]
        return data[:draw.choice(ends)] if ends else b""
    if kind == 2:
        return data[:draw.randrange(len(data))]
    if kind == 3:
        return data + draw.randbytes(draw.randrange(1, 300))
    spoiled = bytearray(data)
    for _ in range(draw.randrange(1, 4)):
        at = draw.randrange(len(data))
        spoiled[at:at + slice_bytes] = draw.randbytes(min(slice_bytes, len(data) - at))
    return bytes(spoiled)


class PacketFiles(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tandem-packets-"))
        self.addCleanup(shutil.rmtree, self.folder, True)

    def files(self):
        return {path.name: path.read_bytes() for path in self.folder.glob("*.par2")}

    def make(self, draw):
        """A random set; returns its packet files, and the size of a slice."""
        shutil.rmtree(self.folder)
        (self.folder / "data").mkdir(parents=True)
        for i in range(draw.randrange(1, 5)):
            name = draw.choice(["a", "long name "]) + str(i)
            (self.folder / "data" / name).write_bytes(draw.randbytes(draw.choice([0, 1, 1000, 5000])))
        (self.folder / "data/whole").write_bytes(draw.randbytes(3000))
        volumes, size = draw.randrange(3), draw.choice([64, 256, 1000])
        LIBRARY.create(self.folder / "set.par2", [str(self.folder / "data")], slice_bytes=size, recovery_slice_count=draw.randrange(0, 30),
                       volumes=volumes, volume_count=draw.randrange(0, 5) if volumes != 1 else 0)
        return self.files(), size

    def test_what_was_damaged_is_as_it_was(self):
        """Any damage of packet files, if one file can still tell what the set describes: all that their names tell comes back."""
        draw = random.Random(SEED)
        remade = 0
        for round_number in range(ROUNDS):
            before, size = self.make(draw)
            hurt = set(draw.sample(sorted(before), draw.randrange(0, len(before) + 1)))
            for name in hurt:
                (self.folder / name).unlink() if (spoiled := spoil(draw, before[name], size)) is None else (
                    self.folder / name).write_bytes(spoiled)
            left = self.files()
            with self.subTest(TANDEM_TEST_SEED=SEED, round=round_number):
                try:
                    report = LIBRARY.verify(self.folder / "set", scope=PACKETS)
                except Failure as failure:
                    self.assertIn(failure.status, (DAMAGED_SET, NOT_RECOVERABLE, IO))
                    self.assertEqual(set(before), hurt)  # no file told it
                    continue
                usable = {name for name, data in left.items() if has_packet(data)}
                told = set().union(*map(volume, usable))
                can_remake = {name for name in usable if name != "set.par2" or any(map(volume, usable))}
                lost = {name: is_lost(left.get(name, b""), before[name]) for name in before}
                for each in report.packet_files:
                    name = os.path.basename(each["path"].decode())
                    if name in left:
                        self.assertEqual(bool(each["is_lost"]), lost[name] and name in can_remake, name)
                report = LIBRARY.verify(self.folder / "set")
                report.repair(packets=1)
                after = self.files()
                self.assertLessEqual(set(left), set(after))
                for name in before:
                    if name in can_remake:
                        self.assertEqual(after[name], before[name] if lost[name] else left[name], name)
                    elif name in left:
                        self.assertEqual(after[name], left[name], name)
                if told and "set.par2" not in left:
                    self.assertEqual(after["set.par2"], before["set.par2"])
                again = LIBRARY.verify(self.folder / "set", scope=PACKETS)
                self.assertFalse([each for each in again.packet_files if each["is_lost"]])
                self.assertEqual([each["is_lost"] for each in report.packet_files], [0] * len(report.packet_files))
                self.assertGreaterEqual(again.summary.recovery_slice_count, len(told))
                remade += report.summary.remade_packet_file_count
        self.assertGreater(remade, 0)

    def test_of_other_programs(self):
        """What they describe stays in the set: creators, and files without recovery data. Checksums that no file has are computed."""
        contents = {"a": os.urandom(900), "b": os.urandom(100)}
        the_set = Set(contents, 64, range(3), others=("b",))
        for name, data in contents.items():
            (self.folder / name).write_bytes(data)
        lost = the_set.sums[0]
        (self.folder / "set.vol0+3.par2").write_bytes(b"".join(the_set.recovery.values()) + the_set.critical.replace(lost, b"") + b"junk")
        LIBRARY.verify(self.folder / "set.vol0+3").repair(packets=1)
        kinds = [found[0] for found in packets_of((self.folder / "set.par2").read_bytes())]
        made = packets_of((self.folder / "set.vol0+3.par2").read_bytes())
        self.assertEqual(kinds, [b"Main\0\0\0\0", b"FileDesc", b"IFSC\0\0\0\0", b"FileDesc", b"IFSC\0\0\0\0", b"Creator\0"])
        self.assertLessEqual({lost, *the_set.recovery.values(), the_set.main, *the_set.descriptions, the_set.creator}, {each[3] for each in made})

    def test_only_of_complete_files(self):
        """Else the call fails, and all packet files stay."""
        (self.folder / "a").write_bytes(os.urandom(1000))
        LIBRARY.create(self.folder / "a.par2", [str(self.folder / "a")], slice_bytes=64, recovery_slice_count=3)
        (self.folder / "a").write_bytes(b"wrong")
        (self.folder / "a.par2").write_bytes(b"wrong")
        before = self.files()
        with self.assertRaises(Failure) as caught:
            LIBRARY.verify(self.folder / "a.vol0+1").repair(packets=1)
        self.assertEqual((caught.exception.status, self.files()), (NOT_RECOVERABLE, before))

    def made(self, **options):
        """A set of files a and b of random bytes; its packet files."""
        for name, size in (("a", 5000), ("b", 3000)):
            (self.folder / name).write_bytes(os.urandom(size))
        LIBRARY.create(self.folder / "set.par2", [str(self.folder / name) for name in "ab"], slice_bytes=256, **options)
        return self.files()

    def remake(self, path="set", **options):
        report = LIBRARY.verify(self.folder / path, **options)
        report.repair(packets=1)
        return report

    def test_recovery_slices_that_the_name_does_not_tell_stay(self):
        before = self.made(recovery_slice_count=8)
        for name in before:
            if ".vol" in name:
                (self.folder / name).unlink()
        joined = b"".join(data for name, data in sorted(before.items()) if ".vol" in name) + b"x"
        for name in ("set.vol0+1.par2", "set.par2"):
            (self.folder / "set.par2").write_bytes(before["set.par2"])
            (self.folder / name).write_bytes(joined)
            self.remake()
            self.assertEqual((self.folder / name).read_bytes(), joined)
            (self.folder / name).unlink()

    def test_nothing_is_made_without_a_trace_of_it(self):
        """Files without a packet of the set stay, also if their names tell recovery slices, and neither they nor wide gaps stop the others."""
        self.made(recovery_slice_count=8, volumes=2, volume_count=4)
        LIBRARY.create(self.folder / "set.par2", [str(self.folder / name) for name in "ab"], slice_bytes=256, recovery_slice_count=2,
                       first_exponent=64000, force=1)
        others = {"set.vol0+65535.par2": b"junk", "set.vol30+9.par2": os.urandom(1000)}
        for name, data in others.items():
            (self.folder / name).write_bytes(data)
        files = self.files()
        for name in ("set.vol2+2.par2", "set.vol64001+1.par2"):
            (self.folder / name).write_bytes(files[name][:-9])
        self.assertEqual(self.remake().summary.remade_packet_file_count, 2)
        self.assertEqual(self.files(), files)

    def test_what_changed_since_the_verify_stays(self):
        before = self.made(recovery_slice_count=7)
        (self.folder / "set.vol1+2.par2").write_bytes(before["set.vol1+2.par2"][:-9])
        (self.folder / "set.par2").unlink()
        damaged = self.files()
        for name in ("set.vol1+2.par2", "set.par2"):
            def change(*_, path=self.folder / name):
                path.write_bytes(b"precious")
                return 0
            for progress in (None, change):
                report = LIBRARY.verify(self.folder / "set.vol0+1")
                if progress is None:
                    change()
                with self.assertRaises(Failure) as caught:
                    report.repair(packets=1, progress=progress)
                self.assertIn(caught.exception.status, (IO, DAMAGED_SET))
                self.assertEqual((self.folder / name).read_bytes(), b"precious")
                (self.folder / "set.par2").unlink(missing_ok=True)
                for each, data in damaged.items():
                    (self.folder / each).write_bytes(data)

    def test_links_and_the_folders_of_others_stay(self):
        before = self.made(recovery_slice_count=7)
        (self.folder / "sub").mkdir()
        for name in before:
            (self.folder / name).rename(self.folder / "sub" / name)
        (self.folder / "obfuscated").write_bytes(before["set.par2"])
        (self.folder / "set.vol1+2.par2").write_bytes(b"of another")
        (self.folder / "sub/set.vol1+2.par2").write_bytes(before["set.vol1+2.par2"][:-9])
        (self.folder / "sub/set.vol3+4.par2").rename(self.folder / "stored")
        (self.folder / "stored").write_bytes(before["set.vol3+4.par2"][:-7])
        (self.folder / "sub/set.vol3+4.par2").symlink_to(self.folder / "stored")
        (self.folder / "sub/set.vol0+1.par2").write_bytes(before["set.vol0+1.par2"][:-7])
        os.link(self.folder / "sub/set.vol0+1.par2", self.folder / "second")
        self.remake("obfuscated", extra=sorted((self.folder / "sub").glob("*.par2")))
        self.assertEqual((self.folder / "set.vol1+2.par2").read_bytes(), b"of another")
        self.assertEqual((self.folder / "sub/set.vol1+2.par2").read_bytes(), before["set.vol1+2.par2"])
        self.assertTrue((self.folder / "sub/set.vol3+4.par2").is_symlink())
        self.assertEqual((self.folder / "stored").read_bytes(), before["set.vol3+4.par2"][:-7])
        self.assertEqual((self.folder / "sub/set.vol0+1.par2").read_bytes(), before["set.vol0+1.par2"][:-7])

    def test_a_main_packet_that_is_not_the_sets_is_not_written(self):
        before = self.made(recovery_slice_count=7)
        main = next(each for each in packets_of(before["set.par2"]) if each[0] == b"Main\0\0\0\0")
        wrong = packet(main[2], b"PAR 2.0\0Main\0\0\0\0", struct.pack("<QI", 512, 0))
        stray = packet(main[2], b"PAR 2.0\0FileDesc", bytes(56) + b"stray\0\0\0")
        (self.folder / "set.vol0+1.par2").write_bytes(wrong + stray + before["set.vol0+1.par2"])
        (self.folder / "set.par2").unlink()
        report = self.remake("set.vol0+1")
        self.assertEqual((self.folder / "set.par2").read_bytes(), before["set.par2"])
        self.assertEqual([each["is_lost"] for each in report.packet_files], [0] * 4)

    def test_of_another_set_stays(self):
        """A packet file that has packets of another set, or another name, is left as it is."""
        for name in "ab":
            (self.folder / name).write_bytes(os.urandom(1000))
            LIBRARY.create(self.folder / f"{name}.par2", [str(self.folder / name)], slice_bytes=64, recovery_slice_count=4)
        joined = self.folder / "a.vol1+2.par2"
        joined.write_bytes((self.folder / "b.vol0+1.par2").read_bytes() + joined.read_bytes()[:-5])
        (self.folder / "other").write_bytes((self.folder / "a.vol3+1.par2").read_bytes()[:-5])
        before = {path.name: path.read_bytes() for path in self.folder.iterdir()}
        report = LIBRARY.verify(self.folder / "a")
        report.repair(packets=1)
        self.assertEqual({path.name: path.read_bytes() for path in self.folder.iterdir()}, before)

    def test_owner_mode_and_times_stay(self):
        (self.folder / "a").write_bytes(os.urandom(1000))
        LIBRARY.create(self.folder / "a.par2", [str(self.folder / "a")], slice_bytes=64, recovery_slice_count=4)
        path = self.folder / "a.vol1+2.par2"
        whole = path.read_bytes()
        path.write_bytes(whole[:-5])
        path.chmod(0o600)
        if os.geteuid() == 0:
            os.chown(path, 65534, 65534)
        os.utime(path, (1_000_000_000, 1_000_000_000))
        before = path.stat()
        LIBRARY.verify(self.folder / "a").repair(packets=1)
        after = path.stat()
        self.assertEqual((path.read_bytes(), after.st_mtime, after.st_mode, after.st_uid), (whole, 1_000_000_000, before.st_mode, before.st_uid))


class Faults(unittest.TestCase):
    """Of a file that is damaged, what is left of it is there at each moment."""

    def setUp(self):
        if FAULTS == "none":
            self.skipTest("no fault library")
        self.box = Sandbox(TANDEM, FAULTS)
        self.addCleanup(self.box.close)
        with open(self.box.path("a"), "wb") as file:
            file.write(os.urandom(5000))
        self.assertEqual(self.box.run("par2", "create", "set.par2", "a", "-c", "12", "-s", "64").status, 0)
        self.whole = self.box.tree()
        for name, end in (("set.vol01+2.par2", 500), ("set.vol07+5.par2", -5)):
            with open(self.box.path(name), "rb+") as file:
                file.truncate(end % len(self.whole[name]))
        os.unlink(self.box.path("set.par2"))
        self.broken = self.box.tree()
        self.command = ("par2", "repair", "--packets", "set.vol00+1.par2", "--threads", "1")

    def check(self, may_have_all):
        for name, data in self.box.tree().items():
            if not name.endswith(".tmp"):
                self.assertIn(data, [self.whole.get(name)] if not may_have_all else [self.whole.get(name), self.broken.get(name)], name)
        self.assertLessEqual({name for name in self.broken}, set(self.box.tree()))

    def test_kill_and_failure_of_each_call(self):
        log = self.box.run(*self.command, calls=CHANGES, log=True)
        self.assertEqual(log.status, 0)
        self.check(False)
        for action in ("kill", "fail"):
            for at in range(1, len([call for call in log.calls if call.name in CHANGES]) + 1):
                with self.subTest(action=action, at=at):
                    self.box.restore(self.broken)
                    done = self.box.run(*self.command, calls=CHANGES, action=action, at=at, errno=28)
                    self.check(True)
                    if done.status == 0:
                        self.check(False)
                    self.assertEqual(self.box.run(*self.command).status, 0)
                    self.check(False)
                    self.assertFalse([name for name in self.box.tree() if name.endswith(".tmp")])


if __name__ == "__main__":
    LIBRARY, TANDEM, FAULTS = Library(sys.argv[1]), sys.argv[2], sys.argv[3]
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
