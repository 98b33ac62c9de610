#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tandem par2 sync` and `tandem par2 scrub`. Usage: par2_tree_test.py PATH_OF_TANDEM FAULT-LIBRARY|none

Random histories of both are in tests/guard."""

import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "files/fault"))
from kit import Sandbox  # noqa: E402

TANDEM, FAULTS = sys.argv.pop(1), sys.argv.pop(1)
SET, MORE, LIST, SLICE = ".tandem.par2", ".tandem-more.par2", ".tandem.par2-sets", 4096


class Tree(unittest.TestCase):
    def setUp(self):
        self.box = Sandbox(TANDEM, FAULTS)
        self.addCleanup(self.box.close)
        self.root = pathlib.Path(self.box.root)

    def call(self, command, *arguments, status=0, **faults):
        done = self.box.run("par2", command, *arguments, **faults)
        self.assertEqual(done.status, status, (done.stdout.decode(), done.stderr))
        return done

    def json(self, command, *arguments, status=0):
        return json.loads(self.call(command, *arguments, "--json", status=status).stdout)

    def outcomes(self, command, *arguments, status=0):
        return {each["path"]: each["outcome"] for each in self.json(command, *arguments, status=status)["sets"]}

    def write(self, name, size, age=10):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
        now = path.stat().st_mtime_ns
        os.utime(path, ns=(now, now - int(age * 10**9)))
        return path

    def damage(self, name, size=None, time_ns=None):
        """Other content, or another size, as old as before."""
        path = self.root / name
        before = path.stat()
        with open(path, "r+b") as file:
            byte = file.read(1)
            file.seek(0)
            file.write(bytes([byte[0] ^ 1]))
            file.truncate(before.st_size if size is None else size)
        os.utime(path, ns=(before.st_atime_ns, time_ns or before.st_mtime_ns))

    def bytes(self, name):
        return (self.root / name).read_bytes()

    def as_ordinary_user(self):
        """From now on; with the command where such a user may start it. Root may read everything."""
        folder = pathlib.Path(self.box.base) / "bin"
        folder.mkdir()
        for path in [pathlib.Path(TANDEM).absolute(), *pathlib.Path(TANDEM).absolute().parent.glob("lib*.so*")]:
            shutil.copy(path, folder, follow_symlinks=path.name == "tandem")
        program = folder / "as-nobody"
        user = "setpriv --reuid=65534 --regid=65534 --clear-groups " if os.geteuid() == 0 else ""
        program.write_text(f'#!/bin/sh\nexec {user}env LD_LIBRARY_PATH={folder} {folder}/{pathlib.Path(TANDEM).name} "$@"\n')
        for path in (pathlib.Path(self.box.base), folder, program):
            path.chmod(0o755)
        self.box.tandem = str(program)


class Changes(Tree):
    """What sync takes for content, and what it does not."""

    def test_a_file_that_is_cut_short_and_keeps_its_time_is_mended(self):
        for case in ("shorter", "longer", "other content", "older"):
            with self.subTest(case):
                photo = self.write("photo", 10000, age=100)
                whole = photo.read_bytes()
                self.call("sync", ".", "-r", "100%", "--force", "--accept", "photo")
                kept = self.bytes(SET)
                if case == "older":
                    self.damage("photo", time_ns=photo.stat().st_mtime_ns - 10**9)
                else:
                    self.damage("photo", {"shorter": 5000, "longer": 20000, "other content": None}[case])
                if case == "other content":  # else nothing is read
                    self.write("new", 10)
                for quiet in ([], ["--quiet"], ["--force"]):
                    done = self.call("sync", ".", *quiet, status=1)
                    self.assertIn("./photo is damaged (", done.stderr)
                    self.assertIn("The old set was kept. To mend it: tandem par2 scrub --repair .", done.stderr)
                    self.assertEqual(self.bytes(SET), kept)
                self.call("scrub", ".", status=1)
                self.call("scrub", ".", "--repair")
                self.assertEqual(photo.read_bytes(), whole)
                self.call("sync", ".")
                self.damage("photo", 100)
                self.call("sync", ".", "--accept", "photo")
                self.call("scrub", ".")
                self.assertIn(("photo", 100), [(each["name"], each["bytes"]) for each in self.json("verify", SET)["files"]])

    def test_a_time_in_the_future_is_no_change(self):
        photo = self.write("photo", 10000, age=-10**6)
        whole = photo.read_bytes()
        self.call("sync", ".", "-r", "100%")
        self.assertEqual(self.outcomes("sync", "."), {".": "unchanged"})
        self.damage("photo", 100)
        self.call("sync", ".", status=1)
        self.call("scrub", ".", "--repair")
        self.assertEqual(photo.read_bytes(), whole)

    def test_the_times_of_files_are_kept_in_the_set(self):
        """The set's own time does not matter."""
        self.write("photo", 10000)
        self.call("sync", ".", "-r", "100%")
        os.utime(self.root / SET, (0, 0))
        self.assertEqual(self.outcomes("sync", "."), {".": "unchanged"})
        self.damage("photo", 100)
        self.call("sync", ".", status=1)
        self.call("scrub", ".", "--repair")
        self.assertEqual(self.outcomes("sync", "."), {".": "unchanged"})

    def test_a_file_that_was_brought_back_has_its_old_time(self):
        photo = self.write("photo", 10000)
        before = photo.stat().st_mtime_ns
        self.call("sync", ".", "-r", "100%")
        photo.unlink()
        self.call("scrub", ".", "--repair")
        self.assertEqual(photo.stat().st_mtime_ns, before)
        self.assertEqual(self.outcomes("sync", "."), {".": "unchanged"})

    def test_a_change_in_the_moment_of_a_sync_is_seen(self):
        for _ in range(5):
            self.write("photo", 100, age=0)
            self.call("sync", ".", "--no-sync")
            self.write("photo", 100, age=0)
            self.assertEqual(self.outcomes("sync", ".", "--no-sync"), {".": "replaced"})
        photo = self.write("photo", 100, age=-1)
        self.call("sync", ".", "--no-sync")
        self.assertLess(photo.stat().st_mtime_ns, self.write("later", 1, age=0).stat().st_mtime_ns)  # it waited

    def test_the_times_of_a_set_of_another_program_are_those_of_its_file(self):
        self.write("photo", 10000)
        self.call("create", ".tandem", "photo", "-r", "100%", "--volumes", "uniform", "--volume-count", 1)
        os.rename(next(self.root.glob(".tandem.vol*")), self.root / SET)
        self.assertEqual(self.outcomes("sync", "."), {".": "unchanged"})
        self.damage("photo", 100)
        self.call("sync", ".", status=1)
        self.write("photo", 100, age=0)
        self.assertEqual(self.outcomes("sync", "."), {".": "replaced"})
        found = self.json("verify", SET)
        self.assertEqual(found["recovery_slice_count"], found["slice_count"])

    def test_what_no_verify_gives_up(self):
        self.write("old", 10000)
        self.call("sync", ".")
        self.damage("old")
        self.write("more", 10, age=0)
        self.call("sync", ".", status=1)
        self.assertEqual(self.outcomes("sync", ".", "--no-verify"), {".": "replaced"})


class Guard(Tree):
    def photos(self, count=20, folder=""):
        for i in range(count):
            self.write(f"{folder}{i}.jpg", 10000)

    def test_a_set_keeps_its_redundancy(self):
        def percent():
            found = self.json("verify", SET)
            return found["recovery_slice_count"] * 100 // found["slice_count"]
        self.photos()
        self.call("sync", ".", "-r", "30%")
        self.assertEqual(percent(), 30)
        for step in range(3):
            self.write(f"new{step}", 10000, age=0)
            self.assertIn(b"1 added, 0 changed, 0 removed: set replaced, 30%", self.call("sync", ".").stdout)
            self.assertEqual(percent(), 30)
        self.call("sync", ".", "-r", "10%")
        self.assertEqual(percent(), 10)
        self.assertEqual(self.outcomes("sync", ".", "-r", "10%"), {".": "unchanged"})

    def test_a_set_of_one_slice_does_not_make_all_later_sets_large(self):
        self.write("first", 100)
        self.call("sync", ".")
        self.photos(40)
        self.call("sync", ".")
        self.assertEqual(self.json("verify", SET)["recovery_slice_count"], 6)  # 5 % of 121

    def test_a_set_keeps_its_slices(self):
        self.photos(4)
        self.call("create", ".tandem", *[f"{i}.jpg" for i in range(4)], "-s", 1000, "-r", "50%", "--volumes", "uniform", "--volume-count", 1)
        os.rename(next(self.root.glob(".tandem.vol*")), self.root / SET)
        self.write("new", 10000, age=0)
        self.call("sync", ".")
        found = self.json("verify", SET)
        self.assertEqual((found["slice_bytes"], found["slice_count"], found["recovery_slice_count"]), (1000, 50, 25))

    def test_files_that_are_gone_keep_their_set(self):
        self.photos()
        self.call("sync", ".", "-r", "20%")
        kept, photo = self.bytes(SET), self.bytes("3.jpg")
        (self.root / "3.jpg").unlink()
        self.write("new", 100)
        done = self.call("sync", ".", "-q", status=1)
        self.assertIn("./3.jpg is gone. The old set was kept. To mend it: tandem par2 scrub --repair .", done.stderr)
        self.assertEqual(self.bytes(SET), kept)
        # The new file is protected meanwhile.
        new = self.bytes("new")
        (self.root / "new").unlink()
        self.call("repair", MORE)
        self.assertEqual(self.bytes("new"), new)
        for _ in range(2):
            self.call("sync", ".", status=1)
        self.call("scrub", ".", "--repair")
        self.assertEqual(self.bytes("3.jpg"), photo)
        self.call("sync", ".")
        self.assertFalse((self.root / MORE).exists())
        self.assertEqual(self.json("verify", SET)["repair_needed"], False)
        self.assertEqual(len(self.json("verify", SET)["files"]), 21)
        (self.root / "3.jpg").unlink()
        for flag in (["--accept", "4.jpg"], ["--accept-many"], ["--force"]):
            self.call("sync", ".", *flag, status=1)
        self.call("sync", ".", "--accept-removed")
        self.assertEqual(len(self.json("verify", SET)["files"]), 20)
        (self.root / "4.jpg").unlink()
        self.call("sync", ".", "--accept", self.root / "4.jpg")
        self.assertEqual(len(self.json("verify", SET)["files"]), 19)

    def test_the_second_set_is_guarded_too(self):
        self.photos(3)
        self.call("sync", ".", "-r", "100%")
        (self.root / "0.jpg").unlink()
        self.write("new", 5000, age=0)
        self.call("sync", ".", status=1)
        whole = self.bytes("new")
        self.damage("new")
        self.write("more", 5000, age=0)
        before = self.bytes(MORE)
        self.assertIn("./new is damaged", self.call("sync", ".", status=1).stderr)
        self.assertEqual(self.bytes(MORE), before)
        self.call("sync", ".", "--accept-removed", status=1)  # the first set leaves to the second one what that guards
        self.assertEqual(self.bytes(MORE), before)
        self.call("scrub", ".", "--repair")
        self.assertEqual(self.bytes("new"), whole)
        self.call("sync", ".")
        self.assertEqual(sorted(path.name for path in self.root.iterdir()), [MORE, SET, LIST, "1.jpg", "2.jpg", "more", "new"][1:])

    def test_changes_of_a_folder_whose_set_stays_are_protected(self):
        self.photos(3)
        self.call("sync", ".", "-r", "100%")
        (self.root / "0.jpg").unlink()
        self.write("1.jpg", 7000, age=0)
        self.call("sync", ".", status=1)
        now = self.bytes("1.jpg")
        (self.root / "1.jpg").unlink()
        self.call("repair", MORE)
        self.assertEqual(self.bytes("1.jpg"), now)

    def test_a_folder_in_the_place_of_one_file_leaves_the_others_repaired(self):
        self.photos(3)
        self.call("sync", ".", "-r", "200%")
        before = (self.root / "1.jpg").stat().st_mtime_ns
        (self.root / "0.jpg").unlink()
        (self.root / "0.jpg").mkdir()
        os.utime(self.root / "0.jpg", (1000, 1000))
        self.write("1.jpg", 7000, age=1000)
        done = self.json("scrub", ".", "--repair", status=3)
        self.assertEqual([(each["path"], each["state"]) for each in done["sets"][0]["files"]][1:], [("./1.jpg", "repaired")])
        self.assertEqual((self.root / "1.jpg").stat().st_mtime_ns, before)

    def test_an_older_version_that_was_accepted_is_not_mended(self):
        """The second set has it, the first one stays because of another file."""
        self.photos(3)
        self.call("sync", ".", "-r", "100%")
        (self.root / "0.jpg").unlink()
        now = self.write("1.jpg", 7000, age=1000).read_bytes()
        self.call("sync", ".", "--accept", "1.jpg", status=1)
        self.call("scrub", ".", "--repair", status=1)
        self.assertEqual(self.bytes("1.jpg"), now)
        (self.root / "1.jpg").unlink()
        self.call("scrub", ".", "--repair", status=1)
        self.assertEqual(self.bytes("1.jpg"), now)
        self.call("sync", ".")
        self.call("scrub", ".")

    def test_many_at_once_wait_for_a_flag(self):
        self.photos(30, "a/")
        self.photos(3, "b/")
        self.call("sync", ".")
        before = {name: self.bytes(name) for name in (f"a/{SET}", f"b/{SET}")}
        for i in range(11):
            self.write(f"a/{i}.jpg", 10000, age=0)
        self.write("a/new", 100)
        self.write("b/new", 100)
        done = self.call("sync", ".", "-q", status=1)
        self.assertIn("./a: 11 of 30 files were removed or rewritten at once, more than 10: nothing is done in this folder", done.stderr)
        self.assertEqual(self.bytes(f"a/{SET}"), before[f"a/{SET}"])
        self.assertFalse((self.root / "a" / MORE).exists())
        self.assertNotEqual(self.bytes(f"b/{SET}"), before[f"b/{SET}"])
        self.assertEqual(self.outcomes("sync", ".", "--accept-many"), {"./a": "replaced", "./b": "unchanged"})
        for path in (self.root / "a").glob("*.jpg"):
            path.touch()  # nothing is rewritten
        self.assertEqual(self.outcomes("sync", "a"), {"a": "replaced"})
        for path in (self.root / "a").iterdir():
            path.unlink() if path.name not in (SET, LIST) else None
        for flags in ([], ["--accept-removed"], ["--accept-many"]):
            self.call("sync", "a", *flags, status=1)
        self.assertEqual(self.outcomes("sync", "a", "--accept-many", "--accept-removed"), {"a": "removed"})

    def test_a_set_that_cannot_be_read_stays(self):
        self.write("a/x", 10000)
        self.call("sync", ".")
        whole = self.bytes(f"a/{SET}")
        for case in ("empty", "no set", "link"):
            with self.subTest(case):
                path = self.root / "a" / SET
                path.unlink()
                if case == "link":
                    path.symlink_to("x")
                else:
                    path.write_bytes(b"" if case == "empty" else b"no set")
                self.write("a/x", 10000, age=0)
                for _ in range(2):
                    self.assertIn("it stays", self.call("sync", ".", "-q", status=1 if case == "link" else 4).stderr)
                    self.assertEqual(path.is_symlink(), case == "link")
                    self.assertNotEqual(path.read_bytes()[:4], whole[:4])
                if case != "link":
                    self.assertEqual(self.outcomes("scrub", ".", status=4)["./a/" + SET], "failed")
                now = self.bytes("a/x")
                self.call("sync", ".", "--force")
                self.assertFalse((self.root / "a" / MORE).exists())
                self.call("scrub", ".")
                self.assertEqual(self.bytes("a/x"), now)


class Sets(Tree):
    """What there is beside the sets that are there."""

    def test_sets_that_are_gone_are_named(self):
        for name in "abc":
            self.write(f"{name}%\n/x", 3000)
        self.call("sync", ".")
        self.assertEqual(self.bytes(LIST).decode().splitlines()[1:-1], [f"{name}%25%0a/{SET}" for name in "abc"])
        shutil.rmtree(self.root / "a%\n")
        (self.root / "b%\n" / SET).unlink()
        for command in ("scrub", "sync"):
            done = self.call(command, ".", status=1)
            self.assertIn("./a%\\x0a/.tandem.par2 is not there, but the list of sets has it", done.stderr)
            self.assertIn("./b%\\x0a/.tandem.par2 is", done.stderr)
        self.assertEqual(self.outcomes("sync", ".", status=1), {"./b%\n": "unchanged", "./c%\n": "unchanged", "./a%\n/" + SET: "absent"})
        self.call("sync", ".", "--accept", "a%\n")
        self.assertEqual(self.outcomes("sync", "."), {"./b%\n": "unchanged", "./c%\n": "unchanged"})
        self.call("scrub", ".")
        shutil.rmtree(self.root / "b%\n")
        self.call("sync", ".", "--accept-removed")
        self.assertEqual(len(self.bytes(LIST).splitlines()), 3)
        (self.root / LIST).unlink()
        self.assertIn(b"nothing can be said about missing sets", self.call("scrub", ".").stdout)
        self.assertIn("there was none, though folders have sets", self.call("sync", ".", "-q", status=1).stderr)
        self.call("sync", ".")

    def test_what_is_accepted_without_need_is_named(self):
        self.write("a/x", 3000)
        self.call("sync", ".")
        done = self.call("sync", ".", "--accept", "a/x", "--accept", "a/y")
        self.assertEqual(done.stderr.count("had no effect"), 2)
        self.write("a/x", 3000, age=1000)
        self.assertNotIn("had no effect", self.call("sync", ".", "--accept", "a/x").stderr)

    def test_files_of_a_set_that_is_of_no_use_are_not_called_unprotected(self):
        self.write("x", 3000)
        self.call("sync", ".")
        self.write("y", 3000)
        self.call("create", "whole", "y")
        (self.root / SET).write_bytes(b"no set")
        self.assertEqual(self.json("scrub", ".", status=4)["totals"]["unprotected_file_count"], 0)

    def test_a_list_that_was_cut_is_damaged_and_stays(self):
        for name in ("#recycle", "b"):
            self.write(f"{name}/x", 3000)
        self.call("sync", ".")
        shutil.rmtree(self.root / "#recycle")
        self.assertIn("#recycle/.tandem.par2 is not there", self.call("scrub", ".", status=1).stderr)
        whole = self.bytes(LIST)
        for cut in (b"", whole[:-1], b"".join(whole.splitlines(True)[::2]), bytes(len(whole))):
            (self.root / LIST).write_bytes(cut)
            for command in ("scrub", "sync"):
                self.assertIn("it is damaged", self.call(command, ".", status=3).stderr)
            self.assertEqual(self.bytes(LIST), cut)

    def test_a_set_that_lost_recovery_slices_is_no_complete_one(self):
        self.write("a/x", 200_000)
        self.call("sync", ".", "-r", "10%")
        path = self.root / "a" / SET
        whole, at = path.read_bytes(), 0
        kept = b""
        while at < len(whole):  # packets without recovery slices
            length = int.from_bytes(whole[at + 8:at + 16], "little")
            if b"RecvSlic" not in whole[at + 48:at + 64]:
                kept += whole[at:at + length]
            at += length
        path.write_bytes(kept)
        self.assertIn(b"fewer than it was made with", self.call("scrub", ".", status=1).stdout)
        self.assertEqual(self.outcomes("sync", "."), {"./a": "replaced"})
        self.call("scrub", ".")
        self.assertEqual(len(self.bytes("a/" + SET)) // 1000, len(whole) // 1000)

    def test_an_accepted_path_names_one_file(self):
        for name in ("x", "a/x"):
            self.write(name, 3000)
        self.call("sync", ".")
        for name in ("x", "a/x"):
            path = self.root / name
            times = path.stat()
            path.write_bytes(b"rot" * 500)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        done = subprocess.run([self.box.tandem, "par2", "sync", "--accept", "x", ".."], cwd=self.root / "a", capture_output=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"../x is damaged", done.stderr + done.stdout)
        self.assertEqual(self.call("scrub", ".", "--repair", status=0).status, 0)
        self.assertEqual(self.bytes("a/x"), b"rot" * 500)
        self.assertNotEqual(self.bytes("x"), b"rot" * 500)

    def test_a_file_that_is_excluded_later_keeps_its_set(self):
        self.write("a/x", 3000)
        self.write("a/y.jpg", 3000)
        self.call("sync", ".")
        before = self.bytes("a/" + SET)
        self.assertIn("y.jpg is excluded now", self.call("sync", ".", "--exclude", "*.jpg", status=1).stderr)
        self.assertEqual(self.bytes("a/" + SET), before)
        self.call("sync", ".", "--exclude", "*.jpg", "--accept-removed")
        self.assertNotEqual(self.bytes("a/" + SET), before)

    def test_files_in_no_set_are_counted(self):
        self.write("a/x", 3000)
        self.call("sync", ".")
        self.write("a/y", 3000)
        self.write("b/y", 3000)
        done = self.call("scrub", ".", status=1)
        self.assertEqual(done.stdout.decode().splitlines(), ["2 files in 2 folders are in no set: tandem par2 sync .", "1 set: 1 complete"])
        totals = self.json("scrub", ".", status=1)["totals"]
        self.assertEqual((totals["unprotected_file_count"], totals["unprotected_folder_count"]), (2, 2))
        self.call("scrub", ".", "--exclude", "y")
        self.call("sync", ".")
        self.call("scrub", ".")

    def test_a_new_file_that_cannot_be_read_leaves_the_others_protected(self):
        self.write("a/x", 3000)
        self.write("a/y", 3000).chmod(0)
        self.write("b/x", 3000)
        for path in (self.root, self.root / "a", self.root / "b"):
            path.chmod(0o777)
        self.as_ordinary_user()
        done = self.call("sync", ".", status=3)
        self.assertIn("./a/y cannot be read: Permission denied", done.stderr)
        self.assertEqual([each["name"] for each in self.json("verify", f"a/{SET}")["files"]], ["x"])
        self.assertEqual(self.outcomes("sync", ".", status=3), {"./a": "unchanged", "./b": "unchanged"})
        self.assertIn("./a/y cannot be read: Permission denied", self.call("scrub", ".", status=3).stderr)
        (self.root / "a").chmod(0)
        self.assertIn("cannot read the folder ./a", self.call("sync", ".", status=3).stderr)
        self.assertFalse(self.json("scrub", ".", status=3)["all_read"])

    def test_a_file_of_a_set_that_cannot_be_read_keeps_the_set(self):
        photo = self.write("x", 3000)
        self.write("z", 3000)
        self.call("sync", ".", "-r", "100%")
        before = self.bytes(SET)
        for path in (self.root, self.root / SET, self.root / LIST):
            path.chmod(0o777)
        photo.chmod(0)
        self.as_ordinary_user()
        for command in (["sync", "--dry-run"], ["sync"]):  # nothing else would make it read the file
            found = self.json(*command, ".", status=3)
            self.assertEqual((found["all_read"], found["outcome"], found["unreadable_count"]), (False, "kept", 1))
        self.write("new", 3000, age=0)
        for command in (["sync", "."], ["scrub", "."], ["scrub", ".", "--repair"]):
            self.assertIn("./x cannot be read: Permission denied", self.call(*command, status=3).stderr)
        self.assertEqual(self.bytes(SET), before)
        self.assertEqual([each["name"] for each in self.json("verify", MORE)["files"]], ["new"])

    def test_packet_files_are_left_out(self):
        self.write("x", 3000)
        left = self.write(".x.0123456789abcdef.tmp", 3000)  # by a repair that was killed, or that is under way
        self.call("create", "other", "x")
        shutil.copy(self.root / "other.par2", self.root / "renamed")
        count = len(list(self.root.glob("other*"))) + 1
        self.assertIn(f"{count} packet files of other sets left out", self.call("sync", ".").stdout.decode())
        self.assertEqual([each["name"] for each in self.json("verify", SET)["files"]], ["x"])
        self.assertEqual(self.outcomes("sync", "."), {".": "unchanged"})
        self.call("scrub", ".")
        self.assertTrue(left.exists())
        self.call("scrub", ".", "--repair")
        self.assertFalse(left.exists())

    def test_lock_wait(self):
        self.write("x", 3000)
        folder = os.open(self.root, os.O_RDONLY)
        self.addCleanup(os.close, folder)
        fcntl.flock(folder, fcntl.LOCK_EX)
        for command in ("sync", "scrub"):
            begin = time.monotonic()
            self.assertIn("is locked by another process", self.call(command, ".", "--lock-wait", 1, status=3).stderr)
            self.assertLess(time.monotonic() - begin, 20)
            fcntl.flock(folder, fcntl.LOCK_UN)
            self.call("sync", ".")
            fcntl.flock(folder, fcntl.LOCK_EX)

    def test_a_damaged_set_is_made_anew(self):
        """Scrub with repair writes what sync had written: of a set with wrong bytes, of one that is cut, and of one that lost its end."""
        for name in ("a/x", "b/x", "c/x"):
            self.write(name, 30000)
        self.call("sync", ".", "-r", "50%")
        before = {name: self.bytes(f"{name}/{SET}") for name in "abc"}
        for name, data in (("a", before["a"][:5000] + b"wrong" + before["a"][5005:]), ("b", before["b"][:-3000]), ("c", before["c"] + b"more")):
            (self.root / name / SET).write_bytes(data)
        self.call("scrub", ".", status=1)
        done = self.call("scrub", ".", "--repair")
        self.assertEqual(done.stdout.count(b"the set was damaged, and is made anew"), 3, done)
        self.assertEqual({name: self.bytes(f"{name}/{SET}") for name in "abc"}, before)

    def test_a_line_for_each_file_that_is_not_right(self):
        for name in ("a/x", "b/x", "c/x", "d/x"):
            self.write(name, 10000)
            self.write(name.replace("x", "whole"), 10000)
        self.call("sync", ".")
        self.damage("a/x")
        self.write("c/x", 10000, age=0)
        (self.root / "d/x").unlink()
        with open(self.root / "b" / SET, "ab") as file:
            file.write(b"more")
        done = self.call("scrub", ".", status=4)
        self.assertEqual(done.stdout.decode().splitlines(), [
            "./a/x is damaged (1 of 3 slices). To mend it: tandem par2 scrub --repair .",
            "./a/.tandem.par2: 1 of 6 slices lost, 1 recovery slice: a repair is possible",
            "./b/.tandem.par2: 4 bytes of the set are damaged; scrub with repair (`--repair`) mends it; 0 of 6 slices lost, 1 recovery slice",
            "./c/x is newer than its set (3 of 3 slices). To protect it: tandem par2 sync .",
            "./c/.tandem.par2: 3 of 6 slices lost, 1 recovery slice: the set is older than its files",
            "./d/x is gone. A repair is not possible",
            "./d/.tandem.par2: 3 of 6 slices lost, 1 recovery slice: a repair is not possible",
            "4 sets: 1 outdated, 2 recoverable, 1 lost"])
        self.assertIn("./b/whole: right", self.call("scrub", ".", "--verbose", status=4).stdout.decode().splitlines())
        changed = self.bytes("c/x")
        lines = [json.loads(line) for line in self.call("scrub", ".", "--json-lines", "--repair", status=4).stdout.splitlines()]
        self.assertEqual([(each["path"], each["outcome"], each["changed_count"], each["repaired_count"], len(each["files"])) for each in lines[:-1]], [
            ("./a/.tandem.par2", "complete", 0, 1, 1), ("./b/.tandem.par2", "complete", 0, 0, 0), ("./c/.tandem.par2", "outdated", 1, 0, 1),
            ("./d/.tandem.par2", "lost", 0, 0, 1)])
        self.assertEqual(lines[-1]["totals"], {"complete_count": 2, "outdated_count": 1, "recoverable_count": 0, "lost_count": 1, "absent_count": 0,
                                               "failed_count": 0, "unprotected_file_count": 0, "unprotected_folder_count": 0})
        self.assertEqual(self.bytes("c/x"), changed)


class Cases(Tree):
    @unittest.skipIf(FAULTS == "none", "no library that makes faults")
    def test_kill_at_each_call(self):
        """The old set or the new one is there, and protects what it describes."""
        self.write("old", 3 * SLICE)
        self.write("new", SLICE)
        whole = self.bytes("old")
        self.call("sync", ".", "-r", "100%")
        self.write("new", 2 * SLICE, age=0)
        tree = self.box.tree()
        calls = self.call("sync", ".", "--no-verify", log=True).calls
        self.assertGreater(len(calls), 8)
        for n in range(1, len(calls) + 1):
            self.box.restore(tree)
            (self.root / "new").write_bytes(os.urandom(2 * SLICE))
            self.assertTrue(self.box.run("par2", "sync", ".", "--no-verify", action="kill", at=n).killed, (n, len(calls)))
            (self.root / "old").unlink()
            self.assertEqual(self.box.run("par2", "repair", SET).status, 0, (n, calls[n - 1]))
            self.assertEqual(self.bytes("old"), whole)
            self.call("sync", ".")
            self.assertEqual(sorted(self.box.tree()), [SET, LIST, "new", "old"])

    def test_options(self):
        for name in ("a", "b.tmp", "cache/c", "d/cache/e", "d/f"):
            self.write(name, 3000)
        (self.root / "link").symlink_to("d")
        self.assertEqual(self.outcomes("sync", "./", "--dry-run"), {path: "made" for path in (".", "./cache", "./d", "./d/cache")})
        done = self.call("sync", ".", "--dry-run", "-r", "30%").stdout
        self.assertIn(b"would make set, 30%", done)
        self.assertIn(b"4 sets: 4 would be made\n", done)
        self.assertEqual(list(self.root.rglob(".tandem*")), [])
        self.assertEqual(self.outcomes("sync", ".", "--exclude", "*.tmp", "--exclude", "cache", "--one-file-system"),
                         {path: "made" for path in (".", "./d")})
        self.assertEqual([each["name"] for each in self.json("verify", SET)["files"]], ["a"])
        found = self.outcomes("sync", ".", "--exclude", "d/cache")
        self.assertEqual(found, {".": "replaced", "./cache": "made", "./d": "unchanged"})
        self.assertEqual(self.call("sync", ".", "--exclude", "d/cache").stdout, b"3 sets: 3 unchanged\n")
        done = self.call("sync", ".", "--exclude", "d/cache", "--dry-run", "-r", "30%").stdout
        self.assertIn(b"would replace set, 30%", done)
        self.assertIn(b"3 sets: 3 would be replaced\n", done)
        for dry in (["--dry-run"], []):
            lines = [json.loads(line) for line in self.call("sync", "d", "--json-lines", *dry).stdout.splitlines()]
            self.assertEqual({each["dry_run"] for each in [self.json("sync", ".", *dry), *lines]}, {dry != []})
        self.assertEqual(self.call("sync", ".", "-q", "--force", "-r", "200%").stdout, b"")
        for arguments in ((".", "-r", "2"), ("a",), (), (".", "--accept", "/elsewhere")):
            self.call("sync", *arguments, status=2)
        self.call("sync", "none", status=3)
        self.call("scrub", "none", status=3)
        (self.root / "a").unlink()
        (self.root / "b.tmp").unlink()
        self.assertIn("./a is gone. The old set would be kept.", self.call("sync", ".", "--dry-run", status=1).stderr)
        self.assertIn(b".: no file is left: would remove set\n", self.call("sync", ".", "--dry-run", "--accept-removed").stdout)

    def test_the_oldest_sets_take_turns(self):
        for name in ("a/x", "b c/x", "d\n/x"):
            self.write(name, 20000)
        self.write("e/x", 60000)
        self.call("sync", ".")
        os.environ |= {"XDG_STATE_HOME": str(pathlib.Path(self.box.base) / "state"), "STATE_DIRECTORY": ""}
        self.addCleanup(os.environ.pop, "XDG_STATE_HOME")
        self.addCleanup(os.environ.pop, "STATE_DIRECTORY")
        seen = [list(self.outcomes("scrub", ".", "--oldest", "0.1%")) for _ in range(4)]
        self.assertEqual(sorted(sum(seen, [])), sorted(self.outcomes("scrub", ".")))
        (self.root / "e" / SET).write_bytes(b"no set")  # it has its turn like any other
        self.assertEqual(self.outcomes("scrub", ".", "--oldest", "100%", status=4)["./e/" + SET], "failed")
        begin = time.monotonic()
        self.call("scrub", "a", "--rate", 40000)
        self.assertGreater(time.monotonic() - begin, 0.4)

    def test_the_units_need_their_folder(self):
        for name in ("sync", "scrub"):
            text = (ROOT.parent / f"packaging/systemd/tandem-par2-{name}@.service.in").read_text()
            self.assertIn("AssertPathIsDirectory=%f\nRequiresMountsFor=%f\n", text)
            self.assertIn(f"par2 {name} --json-lines -- %f\n", text)


unittest.main()
