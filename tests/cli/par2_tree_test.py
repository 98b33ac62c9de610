#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tandem par2 sync` and `tandem par2 scrub`. Usage: par2_tree_test.py PATH_OF_TANDEM FAULT-LIBRARY|none"""

import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "files/fault"), str(ROOT / "par2")]
from kit import Sandbox  # noqa: E402
from library import ordinary_user  # noqa: E402

TANDEM, FAULTS = sys.argv.pop(1), sys.argv.pop(1)
SEED = int(os.environ.get("TANDEM_TEST_SEED", random.randrange(1 << 32)))
print("TANDEM_TEST_SEED", SEED)
SET, SLICE, PERCENT = ".tandem.par2", 4096, 40
FOLDERS = ("", "a", "a/b\n", "c\udcff")  # the last name is not UTF-8


def shown(path):
    """As JSON has it."""
    return os.fsencode(path).decode(errors="backslashreplace")


class Tree(unittest.TestCase):
    step = None  # of the random sequence

    def setUp(self):
        self.box = Sandbox(TANDEM, FAULTS)
        self.addCleanup(self.box.close)
        self.root = pathlib.Path(self.box.root)

    def call(self, command, *arguments, status=0, **faults):
        done = self.box.run("par2", command, *arguments, **faults)
        self.assertEqual(done.status, status, (self.step, done.stdout.decode(), done.stderr))
        return done

    def json(self, command, *arguments, status=0):
        return json.loads(self.call(command, *arguments, "--json", status=status).stdout)

    def outcomes(self, command, *arguments, status=0):
        return {each["path"]: each["outcome"] for each in self.json(command, *arguments, status=status)["sets"]}

    def write(self, name, size, age=10):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
        self.touch(path, age)

    @staticmethod
    def touch(path, age):
        now = path.stat().st_mtime_ns
        os.utime(path, ns=(now, now - age * 10**9))

    def damage(self, name, offset=0):
        """Other content, as old as before."""
        path = self.root / name
        before = path.stat()
        with open(path, "r+b") as file:
            file.seek(offset)
            byte = file.read(1)
            file.seek(offset)
            file.write(bytes([byte[0] ^ 1]))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


class Model(Tree):
    """The promise: what was there at the last complete sync, and was not changed since, can be repaired within the redundancy; damage
    is never taken for content. `wanted` is what the user wrote, `protected` what each set describes."""

    def files(self, folder):
        return {path.name: path.read_bytes() for path in (self.root / folder).iterdir() if path.is_file() and path.name != SET}

    def set_time(self, folder):
        return (self.root / folder / SET).stat().st_mtime_ns

    def changed(self, folder):
        """Names of the set's files that are no more what the set describes, by size and time."""
        return {name for name, data in self.protected[folder].items() if (status := self.status(folder, name)) and
                (status.st_size != len(data) or status.st_mtime_ns >= self.set_time(folder))}

    def status(self, folder, name):
        path = self.root / folder / name
        return path.stat() if path.exists() else None

    def slices(self, folder):
        """(name, offset, bytes)"""
        largest = max(map(len, self.protected[folder].values()))
        size = max(4, min(SLICE, -(-largest // 4) * 4))
        return [(name, at, data[at:at + size]) for name, data in self.protected[folder].items() for at in range(0, len(data), size)]

    def lost(self, folder, files):
        """How many slices of the set these files lack."""
        return sum(files.get(name, b"")[at:at + len(data)] != data for name, at, data in self.slices(folder))

    def recovery(self, folder):
        count = len(self.slices(folder))
        return max(1, (count * PERCENT + 50) // 100) if count else 0

    def is_damaged(self, folder):
        changed, now = self.changed(folder), self.files(folder)
        return any(name in now and now[name] != self.wanted[folder, name] for name in self.protected[folder].keys() - changed)

    def expected(self, folder):
        """The outcome of sync, and its exit status."""
        now = self.files(folder)
        if folder not in self.protected:
            return ("made", 0) if now else None
        if not now:
            return "removed", 0
        if now.keys() == self.protected[folder].keys() and not self.changed(folder):
            return "unchanged", 0
        if self.is_damaged(folder):
            return "refused", 1 if self.lost(folder, now) <= self.recovery(folder) else 4
        return "replaced" if folder in self.protected else "made", 0

    def sync(self, kill=0):
        expected = {folder: self.expected(folder) for folder in FOLDERS}
        before = {folder: (self.root / folder / SET).read_bytes() if folder in self.protected else None for folder in FOLDERS}
        arguments = ("par2", "sync", ".", "-r", f"{PERCENT}%", "--no-sync", "--json")
        done = self.box.run(*arguments, **({"action": "kill", "at": kill} if kill else {}))
        if not done.killed:
            found = {each["path"]: (each["outcome"], each["exit_status"]) for each in json.loads(done.stdout)["sets"]}
            self.assertEqual(found, {shown(os.path.join(".", folder) if folder else "."): each for folder, each in expected.items() if each})
            self.assertEqual(done.status, max([each[1] for each in expected.values() if each], default=0))
        for folder in FOLDERS:
            path = self.root / folder / SET
            if not path.exists():
                self.assertIn(expected[folder], (None, ("removed", 0), *([("made", 0)] if done.killed else [])))
                self.protected.pop(folder, None)
            elif path.read_bytes() != before[folder]:
                self.assertIn(expected[folder][0], ("made", "replaced"))
                self.protected[folder] = self.files(folder)
        if not done.killed:
            self.assertEqual([path for path in self.root.rglob(".*") if path.name != SET], [])

    def scrub(self, repair):
        """All sets are checked; those without a changed file are repaired."""
        if not self.protected:
            return
        worst = 0
        for folder, protected in self.protected.items():
            now = self.files(folder)
            whole, lost = all(now.get(name) == data for name, data in protected.items()), self.lost(folder, now)
            is_wrong = any(now[name] != protected[name] for name in self.changed(folder))
            if repair and lost <= self.recovery(folder) and not is_wrong:
                self.wanted.update({(folder, name): data for name, data in protected.items()})
                self.after[folder] = now | protected
            else:
                self.after[folder] = now
                worst = max(worst, 0 if whole else 1 if lost <= self.recovery(folder) else 4)
        self.json("scrub", ".", "--no-sync", *(["--repair"] if repair else []), status=worst)
        for folder in self.protected:
            self.assertEqual(self.files(folder), self.after[folder])

    def check(self, folder):
        """The promise, in a copy of the folder, where what has changed is put aside."""
        copy = pathlib.Path(self.box.base) / "copy"
        shutil.copytree(self.root / folder, copy, ignore=lambda path, names: [name for name in names if os.path.isdir(os.path.join(path, name))])
        for name in self.changed(folder):
            (copy / name).unlink()
        files = {path.name: path.read_bytes() for path in copy.iterdir()}
        self.call("repair", copy / SET, "--no-sync", "-q", status=0 if self.lost(folder, files) <= self.recovery(folder) else 4)
        if self.lost(folder, files) <= self.recovery(folder):
            self.assertEqual({name: (copy / name).read_bytes() for name in self.protected[folder]}, self.protected[folder])
        shutil.rmtree(copy)

    def test_random_sequence(self):
        draw = random.Random(SEED)
        self.wanted, self.protected, self.after = {}, {}, {}
        for folder in FOLDERS:
            (self.root / folder).mkdir(exist_ok=True)
        seen = set()
        for step in range(150):
            folder = draw.choice(FOLDERS)
            kind = draw.choice(("add", "add", "change", "damage", "damage", "remove", "touch", "sync", "sync", "kill", "repair", "scrub"))
            self.step = (SEED, step, kind, folder)
            names = sorted(self.files(folder))
            name = draw.choice(names) if names and kind != "add" else draw.choice(("x", "y\n", "z\udcfe", "w")) + str(step)
            path = self.root / folder / name
            if kind == "add" or (kind == "change" and names):
                size = len(self.files(folder).get(name, b"")) if draw.randrange(2) else draw.choice((0, 100, 5000, 40000))
                path.write_bytes(draw.randbytes(size))
                self.wanted[folder, name] = path.read_bytes()
            elif kind == "remove" and names:
                path.unlink()
            elif kind == "touch" and names:
                path.touch()
                self.wanted[folder, name] = path.read_bytes()
            elif kind == "damage" and names and name in self.protected.get(folder, {}) and name not in self.changed(folder) and path.stat().st_size:
                self.damage(path.relative_to(self.root), draw.randrange(path.stat().st_size))
            elif kind == "sync":
                self.sync()
            elif kind == "kill" and FAULTS != "none":
                self.sync(kill=draw.randrange(1, 40))
            elif kind in ("repair", "scrub"):
                self.scrub(kind == "repair")
            else:
                continue
            seen.add(kind)
            if folder in self.protected:
                self.check(folder)
        self.assertGreaterEqual(len(seen), 8)


class Cases(Tree):
    @unittest.skipIf(FAULTS == "none", "no library that makes faults")
    def test_kill_at_each_call(self):
        """The old set or the new one is there, and protects what it describes."""
        self.write("old", 3 * SLICE)
        self.write("new", SLICE)
        whole = (self.root / "old").read_bytes()
        self.call("sync", ".", "-r", "100%")
        self.write("new", 2 * SLICE, age=0)
        tree = self.box.tree()
        calls = self.call("sync", ".", "-r", "100%", "--no-verify", log=True).calls
        self.assertGreater(len(calls), 8)
        for n in range(1, len(calls) + 1):
            self.box.restore(tree)
            (self.root / "new").write_bytes(os.urandom(2 * SLICE))
            self.assertTrue(self.box.run("par2", "sync", ".", "-r", "100%", "--no-verify", action="kill", at=n).killed, (n, len(calls)))
            (self.root / "old").unlink()
            self.assertEqual(self.box.run("par2", "repair", SET).status, 0, (n, calls[n - 1]))
            self.assertEqual((self.root / "old").read_bytes(), whole)
            self.call("sync", ".", "-r", "100%")
            self.assertEqual(sorted(self.box.tree()), [SET, "new", "old"])

    def test_options(self):
        for name in ("a", "b.tmp", "cache/c", "d/cache/e", "d/f"):
            self.write(name, 3000)
        (self.root / "link").symlink_to("d")
        self.assertEqual(self.outcomes("sync", "./", "--dry-run"), {path: "made" for path in (".", "./cache", "./d", "./d/cache")})
        self.assertEqual(list(self.root.rglob("*.par2")), [])
        self.assertEqual(self.outcomes("sync", ".", "--exclude", "*.tmp", "--exclude", "cache", "--one-file-system"),
                         {path: "made" for path in (".", "./d")})
        self.assertEqual([each["name"] for each in self.json("verify", SET)["files"]], ["a"])
        found = self.outcomes("sync", ".", "--exclude", "d/cache")
        self.assertEqual(found, {".": "replaced", "./cache": "made", "./d": "unchanged"})
        self.assertEqual(self.call("sync", ".", "--exclude", "d/cache").stdout, b"3 sets: 3 unchanged\n")
        before = self.json("verify", SET)["recovery_slice_count"]
        self.assertEqual(self.call("sync", ".", "-q", "--force", "-r", "200%").stdout, b"")
        self.assertGreater(self.json("verify", SET)["recovery_slice_count"], before)
        shutil.rmtree(self.root / "d")
        (self.root / "cache/c").unlink()
        self.assertEqual(self.outcomes("sync", "."), {".": "unchanged", "./cache": "removed"})
        for arguments in ((".", "-r", "2"), ("a",), ()):
            self.call("sync", *arguments, status=2)
        self.call("sync", "none", status=3)

    def test_damage_in_a_folder_that_changed(self):
        self.write("old", 10000)
        whole = (self.root / "old").read_bytes()
        self.call("sync", ".", "-r", "50%")
        self.damage("old")
        self.write("more", 10)
        for _ in range(2):
            done = self.call("sync", ".", status=1)
            self.assertIn("the set stays: 1 file damaged, and no newer than the set; the first: old; 1 of 3 slices lost, 2 recovery slices: a repair is possible",
                          done.stderr)
        self.assertEqual(self.call("scrub", ".", "--repair").stdout.splitlines()[0], b"./.tandem.par2: 1 repaired; 0 of 3 slices lost, 2 recovery slices")
        self.assertEqual((self.root / "old").read_bytes(), whole)
        self.assertEqual(self.outcomes("sync", "."), {".": "replaced"})
        self.damage("old")
        self.write("more", 10, age=-1)
        self.assertEqual(self.outcomes("sync", ".", "--no-verify"), {".": "replaced"})  # what the option says

    def test_time_of_a_set(self):
        """It is that at which its making began, so that no change is missed: not one during the making, and not one in the same tick."""
        self.write("file", 60 << 20)
        clock = pathlib.Path(self.box.base) / "clock"

        def now():
            clock.touch()
            return clock.stat().st_mtime_ns
        before = now()
        self.assertEqual(self.outcomes("sync", ".", "--no-sync"), {".": "made"})
        set_time, after = (self.root / SET).stat().st_mtime_ns, now()
        self.assertLess(set_time - before, after - set_time, "most of the time is after it")
        for age, outcome in ((1, "unchanged"), (0, "replaced")):
            set_time = (self.root / SET).stat().st_mtime_ns
            os.utime(self.root / "file", ns=(set_time - age, set_time - age))
            self.assertEqual(self.outcomes("sync", ".", "--no-sync"), {".": outcome})

    def test_scrub(self):
        self.call("scrub", ".", status=3)
        for name in ("a/x", "b/x", "c/x"):
            self.write(name, 10000)
        self.assertEqual(self.outcomes("sync", "."), {f"./{name}": "made" for name in "abc"})
        self.call("create", "b/other", "b/x", "-B", "b", "-c", 1)
        (self.root / "b/other.par2").unlink()  # the others of the set are enough
        self.assertEqual(self.call("scrub", ".").stdout, b"4 sets: 4 complete\n")
        self.damage("a/x")
        self.write("c/x", 10000, age=0)
        with open(self.root / "b" / SET, "ab") as file:
            file.write(b"more")
        done = self.call("scrub", ".", status=4)
        self.assertEqual(done.stdout.decode().splitlines(), [
            "./a/.tandem.par2: 1 damaged; 1 of 3 slices lost, 1 recovery slice: a repair is possible",
            "./b/.tandem.par2: 4 bytes of the set damaged; 0 of 3 slices lost, 1 recovery slice",
            "./c/.tandem.par2: 1 changed since the set was made; 3 of 3 slices lost, 1 recovery slice: a repair is not possible",
            "4 sets: 1 complete, 2 recoverable, 1 lost"])
        changed = (self.root / "c/x").read_bytes()
        found = self.json("scrub", ".", "--repair", status=4)
        self.assertEqual([(each["path"], each["outcome"], each["changed_count"], each["repaired_count"]) for each in found["sets"]], [
            ("./a/.tandem.par2", "complete", 0, 1), ("./b/.tandem.par2", "recoverable", 0, 0), ("./b/other.vol0+1.par2", "complete", 0, 0),
            ("./c/.tandem.par2", "lost", 1, 0)])
        self.assertEqual(found["totals"], {"complete_count": 2, "recoverable_count": 1, "lost_count": 1, "failed_count": 0})
        self.assertEqual((self.root / "c/x").read_bytes(), changed)
        # A set that nothing can be read from protects nothing: it is made anew.
        (self.root / "a" / SET).write_bytes(b"no set")
        self.assertEqual(self.json("scrub", "a", status=4)["outcome"], "failed")
        self.assertEqual(self.outcomes("sync", "a"), {"a": "replaced"})

    def test_the_oldest_sets_take_turns(self):
        for name in ("a/x", "b c/x", "d\n/x"):
            self.write(name, 20000)
        self.write("e/x", 60000)
        self.call("sync", ".")
        os.environ |= {"XDG_STATE_HOME": str(self.root / "state"), "STATE_DIRECTORY": ""}
        self.addCleanup(os.environ.pop, "XDG_STATE_HOME")
        self.addCleanup(os.environ.pop, "STATE_DIRECTORY")
        seen = [list(self.outcomes("scrub", ".", "--oldest", "0.1%")) for _ in range(4)]
        self.assertEqual(sorted(sum(seen, [])), sorted(self.outcomes("scrub", ".")))
        (self.root / "e" / SET).write_bytes(b"no set")  # it has its turn like any other
        self.assertEqual(self.outcomes("scrub", ".", "--oldest", "100%", status=4)["./e/" + SET], "failed")
        begin = time.monotonic()
        self.call("scrub", "a", "--rate", 40000)
        self.assertGreater(time.monotonic() - begin, 0.4)

    def test_what_cannot_be_read(self):
        """It is reported, and the rest is done."""
        for name in ("a/x", "b/x", "c/x", "d/x"):
            self.write(name, 3000)
        self.call("sync", ".")
        before = (self.root / "b" / SET).read_bytes()
        self.write("b/y", 3000)
        (self.root / "b/y").chmod(0)
        self.write("d/y", 3000)
        for path in (self.root, *self.root.rglob("*")):
            if path.name != "y" or path.parent.name == "d":
                path.chmod(0o777)
        pathlib.Path(self.box.base).chmod(0o755)
        (self.root / "c").chmod(0)
        with ordinary_user():
            found = self.json("sync", ".", status=3)
            self.assertEqual({each["path"]: each["outcome"] for each in found["sets"]}, {"./a": "unchanged", "./b": "failed", "./d": "replaced"})
            self.assertFalse(found["all_read"])
            done = self.call("scrub", ".", status=3)
        self.assertIn("cannot read the folder ./c", done.stderr)
        self.assertEqual(done.stdout, b"3 sets: 3 complete\n")
        (self.root / "c").chmod(0o755)
        self.assertEqual((self.root / "b" / SET).read_bytes(), before)
        self.assertEqual(sorted(path.name for path in (self.root / "b").iterdir()), [SET, "x", "y"])


unittest.main()
