#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tandem par2`. Usage: par2_cli_test.py PATH_OF_TANDEM"""

import errno
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "par2"))
from reference import Set, packet  # noqa: E402

TANDEM = os.path.abspath(sys.argv.pop(1))


class Par2(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "data").mkdir()
        for name, size in (("a", 10000), ("b\n", 5000), ("empty", 0)):
            (self.folder / "data" / name).write_bytes(os.urandom(size))

    def run_command(self, *arguments, status=0):
        done = subprocess.run([TANDEM, "par2", *map(str, arguments)], cwd=self.folder, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, status, done)
        return done

    def json(self, *arguments, status=0):
        return json.loads(self.run_command(*arguments, "--json", status=status).stdout)

    def test_packet_files_alone(self):
        self.run_command("create", "set", "data", "-s", 1000, "-c", 7)
        before = {path.name: path.read_bytes() for path in self.folder.glob("*.par2")}
        self.assertEqual(self.run_command("verify", "set", "--packets").stdout, "4 of 4 packet files intact, 7 recovery slices\n")
        (self.folder / "set.vol1+2.par2").unlink()
        (self.folder / "set.vol3+4.par2").write_bytes(before["set.vol3+4.par2"][:-1500])
        (self.folder / "data/a").unlink()
        lines = self.run_command("verify", "set", "--packets", status=1).stdout.splitlines()
        self.assertRegex(lines[0], r"^set\.vol3\+4\.par2: \d+ bytes damaged, 1 recovery slice lost$")
        self.assertEqual(lines[1:], ["set.vol1+2.par2: missing, 2 recovery slices lost", "2 of 4 packet files intact, 4 recovery slices"])
        found = self.json("verify", "set", "--packets", status=1)["packet_files"]
        self.assertEqual([each["path"] for each in found if each["lost"]], ["set.vol3+4.par2", "set.vol1+2.par2"])
        self.run_command("repair", "set", "--packets", status=4)
        (self.folder / "data/a").write_bytes(os.urandom(10))
        self.run_command("repair", "set", "--packets", status=4)

    def test_a_damaged_packet_file_that_stays_is_told(self):
        self.run_command("create", "set", "data", "-s", 1000, "-c", 7)
        path = self.folder / "set.vol3+4.par2"
        path.write_bytes(path.read_bytes()[:-5])
        (self.folder / "second").hardlink_to(path)
        self.assertIn("1 damaged packet file stays", self.run_command("repair", "set", "--packets", status=1).stderr)
        self.assertEqual(self.json("repair", "set", "--packets", status=1)["exit_status"], 1)
        self.assertEqual(self.json("repair", "set")["exit_status"], 0)

    def test_create_and_verify(self):
        done = self.run_command("create", "set", "data", "-s", 1000, "-r", "20%", "--no-sync")
        self.assertIn("3 files, 15.00 kB: 15 slices of 1000B; 3 packet files", done.stdout)
        self.assertEqual(sorted(path.name for path in self.folder.glob("*.par2")), ["set.par2", "set.vol0+1.par2", "set.vol1+2.par2"])
        self.assertEqual(self.run_command("verify", "set.vol1+2.par2").stdout, "3 of 3 files complete; 0 of 15 slices lost, 3 recovery slices\n")
        self.assertEqual(self.run_command("verify", "set", "-q").stdout, "")
        with open(self.folder / "data/a", "r+b") as file:
            file.seek(2500)
            file.write(b"damage")
        (self.folder / "data/empty").unlink()
        (self.folder / "data/b\n").rename(self.folder / "moved")
        with open(self.folder / "set.vol0+1.par2", "ab") as file:
            file.write(b"12345")
        (self.folder / "part").write_bytes((self.folder / "data/a").read_bytes()[:4000] + b"more")
        searched = self.json("verify", "set", "moved", "part", "set.par2", status=1)["searched_files"]
        self.assertEqual(searched, [{"path": "part", "name": None, "found_slice_count": 0, "repeated_slice_count": 3, "error_number": 0}])
        whole = (self.folder / "data/a").read_bytes()
        (self.folder / "data/a").write_bytes(whole[4000:])
        searched = self.json("verify", "set", "moved", "part", status=1)["searched_files"]
        self.assertEqual(searched, [{"path": "part", "name": "data/a", "found_slice_count": 3, "repeated_slice_count": 0, "error_number": 0}])
        (self.folder / "data/a").write_bytes(whole)
        lines = self.run_command("verify", "set", "moved", status=1).stdout.splitlines()
        self.assertEqual(sorted(lines), sorted([
            "data/a: damaged, 9 of 10 slices found", "data/b\\x0a: renamed, moved has its content", "data/empty: missing, 0 of 0 slices found",
            "set.vol0+1.par2: 5 bytes damaged", "0 of 3 files complete; 1 of 15 slices lost, 3 recovery slices: a repair is possible"]))
        found = self.json("verify", "set", status=4)
        self.assertEqual((found["command"], found["exit_status"], found["repair_possible"], found["found_slice_count"]), ("par2 verify", 4, False, 9))
        self.assertEqual({file["name"]: file["state"] for file in found["files"]},
                         {"data/a": "damaged", "data/b\n": "missing", "data/empty": "missing"})

    def test_repair(self):
        self.run_command("create", "set", "data", "-s", 1000, "-c", 2, "--no-sync")
        whole = {path.name: path.read_bytes() for path in (self.folder / "data").iterdir()}
        self.assertEqual(self.run_command("repair", "set").stdout, "3 of 3 files complete; 0 of 15 slices lost, 2 recovery slices\n")
        (self.folder / "data/a").write_bytes(b"xx" + whole["a"][:3000] + whole["a"][4000:])
        (self.folder / "data/b\n").rename(self.folder / "moved")
        (self.folder / "data/empty").write_bytes(b"x")
        self.assertEqual(self.run_command("repair", "set", "--rename-only", "moved", "-q", status=1).stdout, "")
        self.assertEqual((self.folder / "data/b\n").read_bytes(), whole["b\n"])
        done = self.run_command("repair", "set.par2", "--base", ".", "--keep-replaced", "--memory", "1k", "--threads", 1, "--no-sync")
        self.assertEqual(sorted(done.stdout.splitlines()), sorted(
            ["data/a: repaired", "data/empty: repaired", "3 of 3 files complete; 0 of 15 slices lost, 2 recovery slices"]))
        self.assertEqual({path.name: path.read_bytes() for path in (self.folder / "data").iterdir()} | whole,
                         {**whole, "a.1": b"xx" + whole["a"][:3000] + whole["a"][4000:], "empty.1": b"x"})
        (self.folder / "data/a").write_bytes(b"")
        (self.folder / "data/a.1").unlink()
        found = self.json("repair", "set", status=4)
        self.assertEqual((found["command"], found["repair_possible"], found["repaired_count"]), ("par2 repair", False, 0))
        self.run_command("create", "all", "data/b\n", "-s", 1000, "-c", 5, "--no-sync")
        (self.folder / "data/b\n").unlink()
        found = self.json("repair", "all")
        self.assertEqual([(file["name"], file["state"], file["repaired"]) for file in found["files"]], [("data/b\n", "complete", True)])

    def test_repair_in_part(self):
        """What needs no recovery data becomes complete, and the others are named."""
        self.run_command("create", "set", "data", "-s", 1000, "-c", 2, "--no-sync")
        whole = (self.folder / "data/b\n").read_bytes()
        (self.folder / "data/a").unlink()
        for json_flag in ((), ("--json",)):
            if json_flag:  # all slices are there, and not at their places
                (self.folder / "data/b\n").write_bytes(b"x" + whole)
            else:
                shutil.move(self.folder / "data/b\n", self.folder / "moved")
            done = self.run_command("repair", "set", "moved", *json_flag, status=4)
            self.assertIn("10 slices are lost, and the set has only 2 recovery slices; data/a stays as it is; the other files are repaired", " ".join(done.stderr.split()).replace("./", ""))
            self.assertEqual(((self.folder / "data/b\n").read_bytes(), (self.folder / "moved").exists()), (whole, False))
            if json_flag:
                found = json.loads(done.stdout)
                self.assertEqual((found["exit_status"], found["repaired_count"], found["repair_possible"]), (4, 1, False))
            else:
                self.assertEqual(sorted(done.stdout.splitlines()), sorted([
                    "data/a: missing, 0 of 10 slices found", "data/b\\x0a: repaired",
                    "2 of 3 files complete; 10 of 15 slices lost, 2 recovery slices: a repair is not possible"]))
        self.assertNotIn("stays", self.run_command("repair", "set", status=4).stderr)

    def test_report_after_a_failure(self):
        """What needs no recovery slices is repaired and named, also if those are wrong or their equations have no solution."""
        contents = {"a": os.urandom(320), "b": os.urandom(100)}
        the_set = Set(contents, 64, (0, 21845))
        wrong = [packet(the_set.id, b"PAR 2.0\0RecvSlic", struct.pack("<I", e) + os.urandom(64)) for e in range(2)]
        (self.folder / "a").write_bytes(contents["a"][:128] + bytes(128) + contents["a"][256:])
        for recovery, name in ((wrong, "TANDEM_ERROR_DAMAGED"), (the_set.recovery.values(), "TANDEM_ERROR_NOT_RECOVERABLE")):
            (self.folder / "set.par2").write_bytes(the_set.critical + b"".join(recovery))
            (self.folder / "b").unlink(missing_ok=True)
            (self.folder / "moved").write_bytes(contents["b"])
            done = self.run_command("repair", "set", "moved", status=4)
            self.assertIn("a stays as it is; the other files are repaired", " ".join(done.stderr.split()))
            self.assertEqual(sorted(done.stdout.splitlines()), [
                "1 of 2 files complete; 2 of 7 slices lost, 2 recovery slices: a repair is possible", "a: damaged, 3 of 5 slices found", "b: repaired"])
            (self.folder / "b").rename(self.folder / "moved")
            found = self.json("repair", "set", "moved", status=4)
            self.assertEqual((found["exit_status"], found["status_name"], found["repaired_count"]), (4, name, 1))
            self.assertEqual({file["name"]: file["repaired"] for file in found["files"]}, {"a": False, "b": True})

    def test_unreadable_files(self):
        self.run_command("create", "set", "data", "-s", 1000, "-c", 15, "--no-sync")
        (self.folder / "data/a").unlink()
        (self.folder / "data/a").symlink_to("a")  # a loop
        (self.folder / "data/b\n").unlink()
        for command, state in (("verify", "missing"), ("repair", "complete")):
            done = self.run_command(command, "set", "-q", status=3)
            self.assertEqual((done.stdout, done.stderr), ("", "tandem: data/a: cannot be read: Too many levels of symbolic links\n"))
            found = self.json(command, "set", status=3)
            self.assertEqual({each["name"]: (each["state"], each["error_number"]) for each in found["files"]},
                             {"data/a": ("unreadable", errno.ELOOP), "data/b\n": (state, 0), "data/empty": ("complete", 0)})
        done = self.run_command("verify", "set", status=3)
        self.assertEqual(done.stdout, "2 of 3 files complete; 10 of 15 slices lost or unreadable, 15 recovery slices, 1 file cannot be read\n")

    def test_files_of_other_sets_and_of_the_set_itself(self):
        for name in ("data", ".set.par2.0011223344556677.tmp"):
            (self.folder / name if name != "data" else self.folder / "data/c").write_bytes(os.urandom(3000))
        files = ("data", "set.2024.par2", ".set.par2.0011223344556677.tmp", "set.par2", "set.vol0+1.par2")
        self.run_command("create", "set.2024", "data/a", "-s", 1000, "-c", 1, "--no-sync")
        for force in ((), ("--force",)):  # the second time the set's own files are named
            given = [name for name in files if (self.folder / name).exists()]
            self.run_command("create", "set", *given, "-s", 1000, "-c", 1, "--no-sync", *force)
            self.assertIn("4 of 4 files complete", self.run_command("verify", "set").stdout)
        self.run_command("create", "set", *files[:3], "-s", 1000, "-c", 1, "--force=false", status=3)
        (self.folder / "set.par2").write_bytes(b"lost")
        self.assertIn("4 of 4 files complete", self.run_command("verify", "set").stdout)
        # A packet file of another set that this one protects is no mistake.
        self.run_command("create", "other", "data/a", "-s", 1000, "-c", 1, "--no-sync")
        self.run_command("create", "both", "data", "other.par2", "-s", 1000, "-c", 1, "--no-sync")
        self.assertIn("5 of 5 files complete", self.run_command("verify", "both", "other.par2").stdout)
        # A file may have the name of the set.
        (self.folder / "film").write_bytes((self.folder / "set.2024.par2").read_bytes())
        self.run_command("create", "film.par2", "film", "-s", 1000, "-c", 1, "--no-sync")
        self.assertIn("1 of 1 file complete", self.run_command("verify", "film").stdout)
        left = self.folder / "data/.c.0123456789abcdef.tmp"
        left.write_bytes(b"of a repair that was killed")
        self.assertIn("data/.c.0123456789abcdef.tmp: left by a process that ended early", self.run_command("verify", "set").stdout)
        self.assertEqual(len(self.json("verify", "set")["temporary_files"]), 2)
        self.assertEqual(self.json("repair", "set")["temporary_files"], [])
        self.assertFalse(left.exists() or (self.folder / files[2]).exists())

    def test_extra_files_without_effect(self):
        for name in "ab":
            self.run_command("create", name, f"data/{'a' if name == 'a' else 'empty'}", "-s", 1000, "-c", int(name == "a"), "--no-sync")
        (self.folder / "other").write_bytes(b"other")
        done = self.run_command("verify", "a.par2", "a.vol0+1.par2", "b.par2", status=2)
        self.assertIn("b.par2 is of another set, which is not checked", done.stderr)
        self.assertIn("note: b.par2: its packets are of another set", self.run_command("repair", "a", "b.par2").stderr)
        done = self.run_command("verify", "a", "data/a", "a.vol0+1.par2", "other")
        self.assertEqual(done.stderr, "tandem: note: other: no file of the set, and not searched: all files of the set are complete\n")

    def test_options_reach_the_library(self):
        base = ("create", "sub/set", "data", "-B", ".", "--no-sync", "--force")
        (self.folder / "sub").mkdir()
        for options, expected in (
            (("-b", 5, "-c", 2), {"slice_bytes": 3336, "slice_count": 5, "recovery_slice_count": 2}),
            (("-s", "1k", "--volumes", "uniform", "--volume-count", 4, "-c", 8), {"slice_bytes": 1024, "packet_file_count": 5}),
            (("-s", 1000), {"recovery_slice_count": 1, "slice_count": 15}),
            (("-s", 1000, "-c", 0), {"recovery_slice_count": 0, "packet_file_count": 1}),
            (("-s", 1000, "-c", 20, "--volumes", "limited", "--memory", "1k", "--threads", 1), {"recovery_slice_count": 20}),
        ):
            result = self.json(*base, *options)
            self.assertEqual({key: result[key] for key in expected}, expected)
        self.run_command(*base, "-s", 900, "-c", 1, "-f", 77)
        self.assertTrue((self.folder / "sub/set.vol77+1.par2").exists())
        self.run_command("verify", "sub/set", "--base", ".", "--threads", 1)
        self.run_command("verify", "sub/set", status=4)

    def test_wrong_usage(self):
        for arguments, message in ((("create", "set"), "PATH is required"), (("create", "set", "data", "-r", "20"), "--redundancy"),
                                   (("create", "set", "data", "-r", "2%", "-c", 2), "excludes"), (("create", "set", "none"), "cannot open none"),
                                   (("create", "set", "data", "--volumes", "all"), "doubling"),
                                   (("verify", "set", "--rate", "1M", "--threads", 2), "excludes")):
            self.assertIn(message, self.run_command(*arguments, status=2).stderr)
        failed = self.json("verify", "none", status=3)
        self.assertEqual((failed["command"], failed["status_name"]), ("par2 verify", "TANDEM_ERROR_IO"))
        self.assertEqual(list(self.folder.glob("*.par2")), [])


unittest.main()
