#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several sets at once, salvage, JSON on failure, and what a terminal shows. Usage: sets_cli_test.py PATH_OF_TANDEM"""
import fcntl
import json
import os
import pty
import random
import resource
import select
import shutil
import struct
import subprocess
import termios
import time
import unittest

from cli_kit import TANDEM, Command


class Sets(Command):
    def random_file(self, *names, size, seed=1):
        return self.write(self.path(*names), random.Random(seed).randbytes(size))

    def encode(self, name, folder, *more, k=4, m=2, size=20_000, seed=1):
        source = self.random_file("sources", name, size=size, seed=seed)
        report = self.json("encode", source, "-k", k, "-m", m, "--block-bytes", 512, "-o", folder, "--no-sync", *more)
        self.assertEqual((report["source"], report["name"]), (source, name))
        return report["set_id"]

    def files(self, folder):
        return sorted(os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names)

    # ---- one set

    def test_zeros_become_holes(self):
        content = bytearray(4 << 20)
        content[2_000_000:2_000_003] = b"one"
        source = self.write(self.path("disk.img"), bytes(content))
        self.ok("encode", source, "-k", 4, "-m", 2, "--block-bytes", 65536, "-o", self.path("shards"), "--no-sync")
        for lost in ((), (0, 2)):
            for shard in lost:
                os.remove(self.path("shards", f"disk.img.{shard:03}.tandem"))
            back = self.path(f"without {len(lost)}")
            self.ok("decode", self.path("shards"), "-o", back)
            self.assertEqual(self.read(back), content)
            self.assertLessEqual(os.stat(back).st_blocks * 512, 131072)

    def test_a_set_without_parity_is_noted(self):
        source = self.random_file("a", size=5000)
        for m in (0, 1):
            done = self.ok("encode", source, "-k", 2, "-m", m, "-o", self.path(f"m{m}"))
            self.assertEqual(b"note: m is 0: no shard may be lost" in done.stderr, m == 0)

    def test_why_a_shard_has_the_id_of_its_set_as_its_name(self):
        set_id = self.encode("a", self.path("shards"))
        own, named = self.path("shards", "a.001.tandem"), self.path("shards", f"{set_id}.001.tandem")
        self.assertNotIn(b"named by", self.ok("info", self.path("shards")).stdout)
        self.write(own, b"no shard")
        why = f"{named}: shard 1: named by the set's id, because a.001.tandem was taken; `tandem repair` renames it".encode()
        self.assertIn(why, self.ok("repair", self.path("shards")).stdout)
        self.assertIn(why.replace(b": shard 1:", b","), self.ok("info", self.path("shards")).stdout)
        os.remove(own)
        self.assertNotIn(b"named by", self.ok("repair", self.path("shards")).stdout)
        self.assertFalse(os.path.exists(named))
        self.assertTrue(os.path.exists(own))

    # ---- several sets

    def three_sets(self):
        os.makedirs(self.path("backup", "deep", "folder"))
        ids = [self.encode("a", self.path("backup")), self.encode("b", self.path("backup")),
               self.encode("c", self.path("backup", "deep", "folder"))]
        self.write(self.path("backup", "README"), b"no shard file\n" * 1000)
        return ids

    def test_verify_takes_every_set(self):
        ids = self.three_sets()
        backup = self.path("backup")
        lines = self.ok("verify", backup).stdout.decode().splitlines()
        self.assertEqual([line.split(":")[0] for line in lines], [f"set {ids[0]} (a)", f"set {ids[1]} (b)", "2 sets"])
        done = self.ok("verify", "-r", backup)
        self.assertEqual(done.stderr, b"")  # other files on the way are nothing to speak of
        self.assertIn(b"3 sets: 3 intact, 0 recoverable, 0 not recoverable", done.stdout)
        # Named twice, and by files: each set once.
        shards = [os.path.join(backup, name) for name in os.listdir(backup) if name.endswith(".tandem")]
        self.assertIn(b"3 sets: 3 intact", self.ok("verify", *shards, "-r", backup).stdout)
        self.assertIn(b"note: ignored", self.ok("verify", backup).stderr)

        self.damage(self.path("backup", "b.001.tandem"), 4096 + 7)
        for index in range(3):
            os.remove(self.path("backup", "deep", "folder", f"c.{index:03}.tandem"))
        found = self.json("verify", "-r", backup, status=4)
        self.assertEqual((found["command"], found["exit_status"]), ("verify", 4))
        self.assertEqual([(each["name"], each["set_id"], each["state"]) for each in found["sets"]],
                         [("a", ids[0], "intact"), ("b", ids[1], "recoverable"), ("c", ids[2], "not recoverable")])
        self.assertEqual(found["sets"][1]["damaged"][0]["bad_blocks"], [{"first": 0, "count": 1}])
        self.assertEqual(found["totals"]["bad_block_count"], 1)
        self.assertEqual(self.json("verify", backup, status=1)["exit_status"], 1)
        lines = self.ok("verify", "-r", backup, status=4).stdout.decode().splitlines()
        self.assertIn("3 sets: 1 intact, 1 recoverable, 1 not recoverable", lines[-1])
        self.assertTrue(lines[2].startswith("  " + self.path("backup", "b.001.tandem") + ": shard 1: 1 block damaged: 0"), lines)
        # The keys of a set that is alone also stand at the top, and its list and the totals are there too.
        for way in (), ("-r",):
            one = self.json("verify", *way, backup, "--set", ids[1][:12], status=1)
            self.assertEqual((one["set_id"], one["state"], one["exit_status"]), (ids[1], "recoverable", 1))
            self.assertEqual([each["set_id"] for each in one["sets"]], [ids[1]])
            self.assertEqual(one["totals"]["bad_block_count"], 1)
            self.assertGreaterEqual(len(one["other_sets"]), 6)
        self.assertIn(b"exclude", self.ok("verify", "--locate", "-r", "-k", 1, "-m", 1, backup, status=2).stderr)

    def test_deeper_folders_need_a_flag(self):
        self.encode("a", self.path("deep/x/y"))
        hint = b"with --recursive (-r) the folders below are searched"
        self.assertIn(hint, self.ok("verify", self.path("deep"), status=3).stderr)
        self.assertNotIn(hint, self.ok("verify", self.path("sources"), status=3).stderr)
        self.ok("verify", "-r", self.path("deep"))

    def test_the_oldest_sets_take_turns(self):
        ids = [self.encode(f"photos{i}", self.path("tree", f"{i}"), size=20_000 if i else 60_000) for i in range(5)]
        self.damage(self.path("tree", "2", "photos2.001.tandem"), 1500)

        def oldest(part, *paths, state="state", **more):
            environment = {**os.environ, "XDG_STATE_HOME": self.path(state), "STATE_DIRECTORY": ""}
            done = self.ok("verify", "-r", "--json", "--oldest", part, *(paths or [self.path("tree")]), env=environment, **more)
            return {each["set_id"] for each in json.loads(done.stdout).get("sets", [])}

        read, statuses = [], {ids[2]: 1}
        for _ in ids:  # one set at a time; a damaged one has its turn once, too
            before = set(ids) - set(read)
            due = min(before)
            self.assertEqual(oldest("0.1%", status=statuses.get(due, 0)), {due})
            read.append(due)
        added = self.encode("new", self.path("tree", "new"))
        self.assertEqual(oldest("0.1%"), {added})
        with open(self.path("state/tandem/verified")) as file:
            self.assertEqual(sorted(line.split("\t")[0] for line in file), sorted([*ids, added]))
        self.assertEqual(len(oldest("100%", status=1)), 6)
        self.ok("repair", "-r", self.path("tree"))
        self.assertEqual(len(oldest("60%", state="other") | oldest("60%", state="other")), 6)
        self.random_file("file", size=10)
        for part, state, status in (("5", "state", 2), ("0%", "state", 2), ("101%", "state", 2), ("5%", "file", 3)):
            oldest(part, state=state, status=status)

    def test_repair_takes_every_set(self):
        self.three_sets()
        backup = self.path("backup")
        before = {name: self.read(os.path.join(backup, name)) for name in self.files(backup)}
        self.damage(self.path("backup", "b.001.tandem"), 4096 + 7)
        os.remove(self.path("backup", "a.000.tandem"))
        for index in (1, 5):
            os.remove(self.path("backup", "deep", "folder", f"c.{index:03}.tandem"))
        found = self.json("repair", "-r", backup, "--dry-run", status=1)
        self.assertEqual([each["state"] for each in found["sets"]], ["recoverable"] * 3)
        self.assertEqual([each["exit_status"] for each in found["sets"]], [1] * 3)
        self.assertEqual((found["exit_status"], found["all_read"], "state" in found), (1, True, False))
        found = self.json("repair", "-r", backup)
        self.assertEqual((found["totals"]["mended_file_count"], found["totals"]["rebuilt_file_count"]), (1, 3))
        self.assertEqual({name: self.read(os.path.join(backup, name)) for name in self.files(backup)}, before)
        self.assertIn(b"3 sets: 3 intact", self.ok("repair", "-r", backup).stdout)
        # What cannot be mended of one does not keep the others from it.
        for index in range(3):
            os.remove(self.path("backup", f"a.{index:03}.tandem"))
        self.damage(self.path("backup", "b.001.tandem"), 4096 + 7)
        done = self.ok("repair", backup, status=4)
        self.assertIn(b"1 intact, 0 recoverable, 1 not recoverable", done.stdout)
        self.assertEqual(self.read(self.path("backup", "b.001.tandem")), before["b.001.tandem"])

    def test_a_set_that_cannot_be_written_is_told_and_others_are_mended(self):
        self.three_sets()
        backup, wall = self.path("backup"), self.path("wall")
        os.remove(self.path("backup", "a.000.tandem"))
        os.remove(self.path("backup", "b.000.tandem"))
        for index in (0, 1):  # -o names a file for one of them
            self.write(f"{wall}{index}", b"")
        done = self.ok("repair", backup, "-o", wall + "0", status=3)
        self.assertEqual(done.stderr.count(b"tandem: set "), 2)
        self.assertIn(b"2 sets: 0 intact, 0 recoverable, 0 not recoverable, 2 failed", done.stdout)
        found = self.json("repair", backup, "-o", wall + "0", status=3)
        for each in found["sets"]:
            self.assertEqual((each["exit_status"], each["status_name"]), (3, "TANDEM_ERROR_IO"))
            self.assertIn("wall0", each["message"])
        self.assertIn(b"2 sets: 2 intact", self.ok("repair", backup).stdout)

    def test_a_folder_for_each_shard(self):
        os.mkdir(self.path("m"))
        first = self.encode("a", self.path("m", "disk{i}"))
        self.assertIn(b"intact", self.ok("verify", self.path("m")).stdout)
        self.assertIn(b"intact", self.ok("verify", self.path("m") + "/").stdout)
        self.ok("decode", self.path("m"), "-o", self.path("output"))
        self.assertEqual(self.read(self.path("output")), self.read(self.path("sources", "a")))
        self.assertEqual(self.json("info", self.path("m"))["sets"][0]["name"], "a")
        second = self.encode("b", self.path("m", "disk{i}"), seed=2)
        done = self.ok("decode", self.path("m"), "-o", self.path("other"), status=2)
        for word in (first, second, "--set ID"):
            self.assertIn(word, done.stderr.decode())
        self.ok("decode", self.path("m"), "-o", self.path("other"), "--set", second)
        self.assertEqual(self.read(self.path("other")), self.read(self.path("sources", "b")))
        # New disks take the places of lost ones, with what a file system puts there, and no other folder does.
        before = self.files(self.path("m"))
        for way in (), ("-r",):
            for index in (2, 4):
                shutil.rmtree(self.path("m", f"disk{index}"))
                os.makedirs(self.path("m", f"disk{index}", "lost+found"))
            os.makedirs(self.path("m", "disk0", "empty"), exist_ok=True)
            self.assertEqual(self.json("verify", *way, self.path("m"), status=1)["sets"][0]["missing_shards"], [2, 4])
            done = self.ok("repair", *way, self.path("m"))
            self.assertEqual(done.stderr, b"")
            self.assertEqual(self.files(self.path("m")), before)
            # Nor does a shard go to another folder because its own still holds shards of other sets.
            os.makedirs(self.path("m", "archive"), exist_ok=True)
            os.remove(self.path("m", "disk2", "a.002.tandem"))
            os.remove(self.path("m", "disk5", "b.005.tandem"))
            os.remove(self.path("m", "disk4", "b.004.tandem"))
            done = self.ok("repair", *way, self.path("m"))
            self.assertEqual(done.stderr, b"")
            self.assertEqual(self.files(self.path("m")), before)
            os.rmdir(self.path("m", "archive"))
        # Folders that are named one by one, with a slash or without, and a new one among them.
        shutil.rmtree(self.path("m", "disk0"))
        os.mkdir(self.path("new"))
        done = self.ok("repair", *(self.path("m", f"disk{index}") for index in range(1, 6)), self.path("new") + "/")
        self.assertEqual(done.stderr, b"")
        self.assertEqual(self.files(self.path("new")), ["a.000.tandem", "b.000.tandem"])

    def test_left_overs_of_an_older_set_are_no_set(self):
        os.mkdir(self.path("m"))
        old = self.encode("a", self.path("m", "disk{i}"))
        shutil.move(self.path("m", "disk3"), self.path("away"))
        new = self.encode("a", self.path("m", "disk{i}"), "--force", seed=2)
        shutil.rmtree(self.path("m", "disk3"))
        shutil.move(self.path("away"), self.path("m", "disk3"))  # it was not there meanwhile
        found = self.json("verify", self.path("m"), status=1)
        self.assertEqual((found["set_id"], found["missing_shards"]), (new, [3]))
        self.assertEqual(len(found["other_sets"]), 1)
        self.assertIn(old, found["other_sets"][0])
        # A set of another name of which too little is here is a set, and lost.
        self.encode("b", self.path("m", "disk{i}"))
        for index in range(4):
            os.remove(self.path("m", f"disk{index}", f"b.{index:03}.tandem"))
        found = self.json("verify", self.path("m"), status=4)
        self.assertEqual([(each["name"], each["state"]) for each in found["sets"]], [("a", "recoverable"), ("b", "not recoverable")])

    def test_a_lost_set_beside_a_newer_one_of_its_name_is_lost(self):
        for folder in "", "disk{i}":
            with self.subTest(folder=folder):
                os.mkdir(self.path("w1"))
                os.mkdir(self.path("w2"))
                old = self.encode("a", self.path("w1", folder))
                new = self.encode("a", self.path("w2", folder), seed=2)
                for index in range(3):
                    os.remove(self.path("w1", folder.format(i=index), f"a.{index:03}.tandem"))
                found = self.json("verify", self.path("w1"), self.path("w2"), status=4)
                self.assertEqual({each["set_id"]: each["state"] for each in found["sets"]},
                                 {old: "not recoverable", new: "intact"})
                shutil.rmtree(self.path("w1"))
                shutil.rmtree(self.path("w2"))

    def test_padding_counts_among_the_shards_that_are_enough(self):
        # Of "hello" in six data shards the last one has no byte.
        self.encode("hello", self.path("s"), k=10, m=2)
        for index in range(10):
            os.remove(self.path("s", f"hello.{index:03}.tandem"))
        new = self.encode("hello", self.path("s"), "--force", k=6, m=1, size=5)
        os.remove(self.path("s", "hello.005.tandem"))
        os.remove(self.path("s", "hello.006.tandem"))
        found = self.json("verify", self.path("s"), "--name", "hello", status=1)
        self.assertEqual([(each["set_id"], each["state"]) for each in found["sets"]], [(new, "recoverable")])
        self.ok("decode", self.path("s"), "--name", "hello", "-o", self.path("output"))
        self.assertEqual(self.read(self.path("output")), self.read(self.path("sources", "hello")))

    def lock_out(self, *names):
        """A folder that the user of the commands cannot read; returns it and that user, for subprocess."""
        folder = self.path(*names)
        os.mkdir(folder)
        os.chmod(folder, 0)
        self.addCleanup(os.chmod, folder, 0o755)
        for at, _, files in os.walk(self.root):  # readable with any umask
            os.chmod(at, 0 if at == folder else 0o755)
            for name in files:
                os.chmod(os.path.join(at, name), 0o644)
        return folder, self.as_another_user()

    def test_a_folder_below_that_cannot_be_read(self):
        ids = self.three_sets()
        backup = self.path("backup")
        locked, as_user = self.lock_out("backup", "locked")
        note = b"note: cannot read the folder " + locked.encode()
        done = self.ok("verify", "-r", backup, status=3, **as_user)
        self.assertIn(note, done.stderr)
        self.assertIn(b"3 sets: 3 intact", done.stdout)
        # One set by its id, and one that may lie in that folder.
        for command in ("verify", "repair", "info"):
            for wanted in (ids[1], "f" * 32):
                done = self.ok(command, "-r", backup, "--set", wanted, "--json", status=3, **as_user)
                self.assertIn(note, done.stderr)
                found = json.loads(done.stdout)
                self.assertEqual(found["exit_status"], 3)
                self.assertEqual([each["set_id"] for each in found.get("sets", [])], [ids[1]] * (wanted == ids[1]))
                self.assertEqual(found.get("all_read", False), False)
        self.assertIn(b"no set has an id", self.ok("verify", backup, "--set", "f" * 32, status=2).stderr)
        self.ok("decode", "-r", backup, "--set", ids[1], "-o", "/dev/null", **as_user)

    def test_a_shard_in_a_folder_that_cannot_be_entered_is_not_missing(self):
        """Its name can be read. A file that cannot be opened or read: fault_test."""
        self.encode("a", self.path("s"))
        folders = self.path("s"), self.path("closed")
        os.mkdir(folders[1])
        os.rename(self.path("s", "a.005.tandem"), self.path("closed", "a.005.tandem"))
        _, as_user = self.lock_out("unused")
        os.chmod(folders[0], 0o777)
        os.chmod(folders[1], 0o644)
        before = sorted(os.listdir(folders[0]))
        for command in ("verify",), ("verify", "--here"), ("repair",), ("repair", "--force"), ("resize", "-m", 3):
            done = self.ok(*command, *folders, status=3, **as_user)
            self.assertIn(b"Permission denied", done.stderr, command)
            self.assertNotIn(b"missing\n", done.stdout)
        self.ok("decode", folders[0], "-o", "/dev/null", **as_user)
        self.assertEqual(sorted(os.listdir(folders[0])), before)
        os.chmod(folders[1], 0o755)
        self.ok("verify", *folders)

    def test_a_folder_beside_that_cannot_be_read(self):
        os.mkdir(self.path("m"))
        self.encode("a", self.path("m", "disk{i}"))
        locked, as_user = self.lock_out("m", "lost+found")
        done = self.ok("verify", self.path("m"), status=3, **as_user)
        self.assertIn(b"note: cannot read the folder " + locked.encode(), done.stderr)
        self.assertIn(b"intact", done.stdout)
        done = self.ok("verify", self.path("m"), "--json", status=3, **as_user)
        found = json.loads(done.stdout)
        self.assertEqual((found["exit_status"], found["all_read"], found["sets"][0]["exit_status"]), (3, False, 0))
        self.ok("decode", self.path("m"), "-o", "/dev/null", **as_user)

    def test_more_folders_than_a_process_may_open(self):
        self.three_sets()
        for index in range(400):
            self.write(self.path("backup", "others", f"{index}", "file"), b"no shard file")
        for index in range(200):
            os.makedirs(self.path("backup", "copies", f"{index}"))
            shutil.copy(self.path("backup", "a.001.tandem"), self.path("backup", "copies", f"{index}"))

        def few_files():
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

        backup = self.path("backup")
        for command in ("verify", "repair"):
            done = self.ok(command, "-r", backup, preexec_fn=few_files)
            self.assertIn(b"3 sets: 3 intact", done.stdout)
        self.assertEqual(len(json.loads(self.ok("info", "-r", backup, "--json", preexec_fn=few_files).stdout)["sets"]), 3)
        os.remove(self.path("backup", "a.000.tandem"))
        self.assertIn(b"1 file rebuilt", self.ok("repair", "-r", backup, preexec_fn=few_files).stdout)

    # ---- folders that may be lost

    def three_and_one(self):
        """A 3+1 set on four disks, of which the last one is lost; returns its folders."""
        disks = [self.path(f"disk{index}") for index in range(4)]
        self.encode("a", self.path("disk{i}"), k=3, m=1)
        shutil.rmtree(disks[3])
        return disks

    def crowded(self, words):
        return [line for line in words.decode().splitlines() if "its loss loses the set" in line]

    def test_a_crowded_folder_is_named_until_the_shards_are_spread_again(self):
        disks = self.three_and_one()
        before = self.read(os.path.join(disks[2], "a.002.tandem"))
        sentence = f"folder {disks[0]} holds 2 shards of a 3+1 set: its loss loses the set"
        for quiet in (), ("-q",):
            done = self.ok("repair", *disks[:3], *quiet, status=1)
            self.assertEqual(self.crowded(done.stderr), [f"tandem: note: {sentence}"])
        for quiet in (), ("-q",), ("-r",):
            self.assertEqual(self.crowded(self.ok("verify", *disks[:3], *quiet, status=1).stderr), [f"tandem: warning: {sentence}"])
        found = self.json("verify", *disks[:3], status=1)
        self.assertEqual((found["state"], found["crowded_folder_count"], found["warnings"]), ("intact", 1, [sentence]))
        self.assertIn(b"1 set: 0 intact, 0 recoverable, 0 not recoverable, 1 crowded", self.ok("verify", "-r", *disks[:3], status=1).stdout)
        # The loss that the warning is about, and the one that it is not about.
        self.ok("decode", *disks[1:3], "-o", self.path("out"), status=4)
        self.ok("decode", disks[0], disks[1], "-o", self.path("out"))
        os.mkdir(disks[3])
        found = self.json("repair", *disks, "--dry-run", status=1)
        self.assertEqual((found["moved_file_count"], os.listdir(disks[3])), (1, []))
        found = self.json("repair", *disks)
        self.assertEqual((found["moved_file_count"], found["rebuilt_file_count"], found["crowded_folder_count"]), (1, 0, 0))
        self.assertEqual([os.listdir(disk) for disk in disks], [[f"a.{index:03}.tandem"] for index in range(4)])
        self.assertEqual(self.read(os.path.join(disks[2], "a.002.tandem")), before)
        self.assertEqual(self.ok("verify", *disks).stderr, b"")
        self.assertEqual(self.json("repair", *disks)["moved_file_count"], 0)

    def test_a_crowded_folder_gives_to_a_folder_that_is_named_or_lies_beside(self):
        for way in ("-o", self.path("new")), ("-r",):
            disks = self.three_and_one()
            self.ok("repair", *disks[:3], status=1)
            if way == ("-r",):
                os.mkdir(disks[3])
            self.ok("repair", *(disks[:3] if way[0] == "-o" else [self.root]), *way)
            self.assertEqual([os.listdir(disk) for disk in disks[:3]], [[f"a.{index:03}.tandem"] for index in range(3)])
            self.assertEqual(os.listdir(self.path("new") if way[0] == "-o" else disks[3]), ["a.003.tandem"])
            for each in os.listdir(self.root):
                shutil.rmtree(self.path(each))

    def test_an_empty_folder_gets_its_share_back_before_a_folder_is_crowded(self):
        self.encode("a", self.path("disk{i}"))
        shutil.rmtree(self.path("disk4"))
        disks = [self.path(f"disk{index}") for index in range(6)]
        self.assertEqual(self.crowded(self.ok("repair", *disks[:4], disks[5]).stderr), [])  # 2 of 4 + 2 may be lost
        os.mkdir(disks[4])
        self.assertEqual(self.json("repair", *disks)["moved_file_count"], 1)
        self.assertEqual([os.listdir(disk) for disk in disks], [[f"a.{index:03}.tandem"] for index in range(6)])

    def test_what_was_made_so_is_not_crowded(self):
        source, one = self.random_file("source", size=20_000), self.path("one")
        two = (self.path("a"), self.path("b"))
        self.ok("encode", source, "-k", 4, "-m", 2, "-o", one)
        done = self.ok("encode", source, "-k", 10, "-m", 4, "-o", two[0], "-o", two[1], "-q")
        self.assertEqual(self.crowded(done.stderr), [f"tandem: note: folder {folder} holds 7 shards of a 10+4 set: its loss loses the set"
                                                     for folder in two])
        self.assertNotIn(b"folder", self.ok("encode", source, "-k", 2, "-m", 0, "-o", self.path("none{i}")).stderr)
        for folders in ((one,), two, (self.path("none0"), self.path("none1"))):
            self.assertEqual(self.json("verify", *folders)["warnings"], [])
        # Copies elsewhere, and files that were moved by hand, change nothing.
        self.write(self.path("copy", "source.000.tandem"), self.read(os.path.join(one, "source.000.tandem")))
        self.ok("verify", one, self.path("copy"))
        os.remove(os.path.join(one, "source.000.tandem"))
        self.ok("verify", one, self.path("copy"))
        # Folders that were not used in turn: an even spread over them would do.
        self.ok("encode", source, "-k", 2, "-m", 2, "-o", self.path("x"), "-o", self.path("x"), "-o", self.path("y"))
        self.assertEqual(self.json("verify", self.path("x"), self.path("y"), status=1)["crowded_folder_count"], 1)
        self.ok("repair", self.path("x"), self.path("y"))
        self.assertEqual((len(os.listdir(self.path("x"))), len(os.listdir(self.path("y")))), (2, 2))

    def test_here_judges_the_files_that_are_here(self):
        self.encode("a", self.path("disk{i}"))
        done = self.ok("verify", self.path("disk1"), status=4)
        self.assertIn(b"the files that are here are intact: `tandem verify --here`", done.stdout)
        self.assertRegex(self.ok("verify", "--here", self.path("disk1")).stdout, rb": intact here; 1 of 6 shards, 4 needed to decode\n")
        found = self.json("verify", "--here", "-r", self.path("disk1"))
        self.assertEqual((found["state"], found["here"], found["missing_shards"]), ("intact", True, [0, 2, 3, 4, 5]))
        os.mkdir(self.path("copy"))
        for index in range(6):
            shutil.copy(self.path(f"disk{index}", f"a.{index:03}.tandem"), self.path("copy"))
        self.assertEqual(self.json("verify", self.path("copy"), status=1)["crowded_folder_count"], 1)  # of a set on six disks
        self.assertEqual(self.json("verify", "--here", self.path("copy"))["warnings"], [])
        self.damage(self.path("disk1", "a.001.tandem"), 4096 + 7)
        done = self.ok("verify", "--here", self.path("disk1"), status=1)
        for words in (b": damaged here; 1 of 6", b"shard 1: 1 block damaged: 0"):
            self.assertIn(words, done.stdout)
        for wrong in ("--locate", "-k", 1, "-m", 1), ():
            self.ok("verify", "--here", *wrong, self.path("none"), status=2 if wrong else 3)

    def test_no_shard_file_is_no_lost_set(self):
        self.write(self.path("photos", "a.jpg"), b"a photo" * 1000)
        for command in (("verify",), ("repair",), ("info",), ("decode", "-o", self.path("out"))):
            self.assertIn(b"no shard file found", self.ok(*command, self.path("photos"), status=3).stderr)
        self.ok("par2", "sync", self.path("photos"))
        for quiet in (), ("-q",):
            self.assertIn(f"has PAR2 sets: `tandem par2 scrub {self.path('photos')}` checks them".encode(), self.ok("verify", self.path("photos"), *quiet, status=3).stderr)

    # ---- files of others

    def test_a_decode_replaces_no_shard_of_another_set(self):
        """Which files `repair --force` replaces: files_repair_test. That no content is given up: tests/guard."""
        self.encode("x", self.path("s"))
        self.encode("y", self.path("t"))
        shard = self.path("t", "y.001.tandem")
        before = self.read(shard)
        done = self.ok("decode", self.path("s"), "-o", shard, "--force", status=2)
        self.assertIn(b"y.001.tandem is a shard file; choose another output", done.stderr)
        self.assertEqual(self.read(shard), before)

    def test_a_timeline_replaces_nothing(self):
        self.encode("a", self.path("s"))
        shard, kept, source = self.path("s", "a.001.tandem"), self.path("kept"), self.path("sources", "a")
        self.write(kept, b"of the user")
        os.symlink(kept, self.path("link"))
        os.symlink(self.path("none"), self.path("dangling"))
        before = self.read(shard)
        commands = [("verify", self.path("s")), ("repair", self.path("s")), ("decode", self.path("s"), "-o", self.path("out")),
                    ("encode", source, "-k", 2, "-m", 1, "-o", self.path("t")), ("resize", self.path("s"), "-m", 2),
                    ("par2", "create", self.path("set"), source)]
        for command in commands:
            for force in (), ("--force",):
                for path in (shard, self.path("link"), self.path("dangling"), *((kept,) if not force else ())):
                    for way in (("--timeline", path), {}), ((), {"env": {**os.environ, "TANDEM_TIMELINE": path}}):
                        done = self.ok(*command, *way[0], *force, status=2 if path == shard and force else 3, **way[1])
                        self.assertIn(os.path.basename(path).encode(), done.stderr)
                self.assertIn(b"No space left on device", self.ok(*command, *force, "--timeline", "/dev/full", status=3).stderr)
        self.assertIn(b"the command reads this file", self.ok(*commands[3], "--force", "--timeline", source, status=2).stderr)
        self.assertEqual((self.read(shard), self.read(kept), os.path.lexists(self.path("none"))), (before, b"of the user", False))
        for command in commands:
            self.ok(*command, "--force", "--timeline", kept)
            self.assertIn("traceEvents", json.loads(self.read(kept)))
        self.ok("verify", self.path("s"), "--timeline", self.path("new"))
        self.ok("verify", self.path("s"), "--timeline", self.path("new"), status=3)

    # ---- salvage

    def test_salvage(self):
        self.encode("a", self.path("s"))
        content, output = self.read(self.path("sources", "a")), self.path("output")
        found = self.json("decode", self.path("s"), "-o", output, "--salvage")  # nothing is lost
        self.assertEqual((found["holes"], found["hole_bytes"], found["output"]), ([], 0, output))
        self.assertEqual(self.read(output), content)
        os.remove(output)
        for index in (1, 2, 5):
            os.remove(self.path("s", f"a.{index:03}.tandem"))
        self.damage(self.path("s", "a.000.tandem"), 4096 + 512 * 3 + 1)
        done = self.ok("decode", self.path("s"), "-o", output, status=4)
        self.assertIn(b"`tandem decode --salvage` writes what can be recovered", done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        os.mkfifo(self.path("pipe"))
        for stream in ("-", "/dev/null", self.path("pipe")):  # salvage refuses these
            self.assertNotIn(b"--salvage", self.ok("decode", self.path("s"), "-o", stream, status=4).stderr)
        found = self.json("decode", self.path("s"), "-o", output, "--salvage", "--dry-run", status=4)
        self.assertEqual(os.listdir(self.root).count("output.partial"), 0)
        again = self.json("decode", self.path("s"), "-o", output, "--salvage", status=4)
        self.assertEqual((again["holes"], again["output"]), (found["holes"], output + ".partial"))
        self.assertFalse(os.path.exists(output))
        told = bytearray(content)
        holes = [(hole["begin_bytes"], hole["end_bytes"]) for hole in again["holes"]]
        for begin, end in holes:
            told[begin:end] = bytes(end - begin)
        self.assertEqual(self.read(output + ".partial"), bytes(told))  # which holes: files_history_test
        self.assertEqual(len(holes), 11)
        self.assertEqual(again["hole_bytes"], sum(end - begin for begin, end in holes))
        text = self.ok("decode", self.path("s"), "-o", output, "--salvage", "--force", status=4).stdout.decode()
        begin, end = holes[0]
        self.assertIn(f"  bytes {begin} to {end - 1} are lost", text)
        self.ok("decode", self.path("s"), "-o", output, "--salvage", status=3)  # FILE.partial is there
        for stream in ("-", "/dev/null"):
            self.assertIn(b"--salvage", self.ok("decode", self.path("s"), "-o", stream, "--salvage", status=2).stderr)
        for index in (0, 3):
            os.remove(self.path("s", f"a.{index:03}.tandem"))
        done = self.ok("decode", self.path("s"), "-o", output, status=4)  # one parity shard is left
        self.assertNotIn(b"--salvage", done.stderr)
        self.assertIn(b"nothing can be salvaged",
                      self.ok("decode", self.path("s"), "-o", output, "--salvage", "--force", status=4).stderr)

    def test_salvage_of_one_of_two_sets(self):
        lost = self.encode("a", self.path("s"))
        self.encode("b", self.path("s"))
        for index in range(3):
            os.remove(self.path("s", f"a.{index:03}.tandem"))
        # The set that is whole is not taken for the one that is to be salvaged.
        done = self.ok("decode", self.path("s"), "-o", self.path("output"), "--salvage", status=2)
        for word in (f"{lost} (a, 3 of 6 shards)", "--set ID", "--name NAME"):
            self.assertIn(word, done.stderr.decode())
        found = self.json("decode", self.path("s"), "-o", self.path("output"), "--salvage", "--set", lost[:8], status=4)
        self.assertEqual((found["name"], found["set_id"]), ("a", lost))
        self.assertFalse(os.path.exists(self.path("output")))

    # ---- messages and JSON

    def test_a_folder_as_input(self):
        os.mkdir(self.path("folder"))
        done = self.ok("encode", self.path("folder"), "-k", 2, "-m", 1, "-o", self.path("s"), status=3)
        for word in (b"is a folder", b"name a file", b"tar -cf"):
            self.assertIn(word, done.stderr)
        self.assertFalse(os.path.exists(self.path("s")))

    def test_json_on_failure(self):
        source = self.random_file("source", size=1000)
        encode = ("encode", source, "-k", 4, "-m", 2, "-o", self.path("s"))
        self.ok(*encode)
        failed = self.json(*encode, status=3)
        self.assertEqual((failed["command"], failed["source"], failed["exit_status"], failed["status_name"]),
                         ("encode", source, 3, "TANDEM_ERROR_IO"))
        self.assertIn("use --force to replace it", failed["message"])
        self.assertIn("use --force to replace it", self.json("decode", self.path("s"), "-o", source, status=3)["message"])
        for command in ("verify", "repair", "info"):
            failed = self.json(command, self.path("none"), self.path("s"), status=3)
            self.assertEqual((failed["command"], failed["paths"]), (command, [self.path("none"), self.path("s")]))
            self.assertIn("No such file", failed["message"])
        for index in range(3):
            os.remove(self.path("s", f"source.{index:03}.tandem"))
        failed = self.json("decode", self.path("s"), "-o", self.path("out"), status=4)
        self.assertEqual((failed["exit_status"], failed["status_name"]), (4, "TANDEM_ERROR_NOT_RECOVERABLE"))
        # What the command cannot parse.
        for wrong in (("encode", source, "-k", "four"), ("encode", "--nonsense"), ("nonsense",), ()):
            failed = self.json(*wrong, status=2)
            self.assertEqual((failed["exit_status"], failed["status_name"]), (2, "TANDEM_ERROR_INVALID_ARGUMENT"))
            self.assertTrue(failed["message"])
        for other in (("devices",), ("info", self.path("s"))):
            self.json(*other)
        for other in (("devices", "nonsense"), ("autotune",)):
            self.assertEqual(self.json(*other, status=2)["command"], other[0])
        # Without --json nothing stands on standard output.
        self.assertEqual(self.ok("info", self.path("none"), status=3).stdout, b"")

    # ---- the terminal

    def on_terminal(self, *arguments, columns=80, stdin=None, **environment):
        """Starts the command with a terminal as standard error; returns the process and a function that reads more."""
        leader, follower = pty.openpty()
        self.addCleanup(os.close, leader)
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen([TANDEM, *map(str, arguments)], stdin=stdin, stdout=subprocess.DEVNULL, stderr=follower,
                                   env={**os.environ, **environment})
        os.close(follower)
        self.addCleanup(process.wait, 60)
        self.addCleanup(process.kill)
        shown = bytearray()

        def read_more():
            try:
                more = os.read(leader, 65536)
            except OSError:  # the other end is closed
                more = b""
            shown.extend(more)
            return len(more)

        def read_until(condition):
            deadline = time.monotonic() + 60
            while not condition(shown.decode()):
                self.assertLess(time.monotonic(), deadline, shown[-500:])
                if select.select([leader], [], [], 1)[0] and not read_more() and process.poll() is not None:
                    self.assertTrue(condition(shown.decode()), shown[-500:])
            return shown.decode()

        def read_all():
            while read_more():
                pass
            self.assertEqual(process.wait(60), 0, shown)
            return shown.decode()

        return process, read_until, read_all

    def lines(self, shown, columns):
        lines = shown.split("\r")
        for line in lines:
            self.assertLess(len(line), columns, line)
        self.assertNotIn("\x1b", shown)  # no colour, and nothing that a dumb terminal would show
        self.assertEqual(lines[-1].strip(), "")
        self.assertEqual(lines[-2].strip(), "")  # the line is wiped out
        return [line.strip() for line in lines if line.strip()]

    def test_the_terminal_shows_syncing_within_its_width(self):
        source = self.random_file("source", size=300_000)
        for columns in (80, 40, 12):
            _, _, read_all = self.on_terminal("encode", source, "-k", 4, "-m", 2, "-o", self.path("s"), "--force", columns=columns,
                                              TERM="dumb", NO_COLOR="1")
            lines = self.lines(read_all(), columns)
            self.assertEqual(lines[-1], "encode: syncing 300.00 kB to the disk"[:columns - 1].strip())
        _, _, read_all = self.on_terminal("decode", self.path("s"), "-o", self.path("out"))
        self.assertIn("decode: syncing 300.00 kB to the disk", self.lines(read_all(), 80))
        for command in (("encode", source, "-k", 4, "-m", 2, "-o", self.path("s"), "--force", "--no-sync"),
                        ("verify", self.path("s"))):
            _, _, read_all = self.on_terminal(*command)
            lines = self.lines(read_all(), 80)
            self.assertNotIn("syncing", "".join(lines))
            self.assertRegex(lines[-1], r"^%s \[#{30}\] 100%%  " % command[0])
        os.remove(self.path("s", "source.000.tandem"))
        _, _, read_all = self.on_terminal("repair", self.path("s"))
        lines = self.lines(read_all(), 80)
        for phase in ("repair: checking [", "repair: writing [", "repair: reading back ["):
            self.assertTrue([line for line in lines if line.startswith(phase)], (phase, lines))
        # Nothing of it where no terminal is.
        self.assertEqual(self.ok("encode", source, "-k", 4, "-m", 2, "-o", self.path("s"), "--force").stderr, b"")

    def test_the_rate_is_that_of_the_last_seconds(self):
        reader, writer = os.pipe()
        process, read_until, read_all = self.on_terminal("encode", "-", "-k", 4, "-m", 2, "-o", self.path("s"), "--name", "x",
                                                         "--block-bytes", "4k", stdin=reader)
        os.close(reader)
        content = random.Random(1).randbytes(5_000_000)
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(content[:2_500_000])  # 153 whole stripes, and the rest stays in the pipe
            pipe.flush()
            read_until(lambda shown: "encode 2.50 MB" in shown)
            pipe.write(content[2_500_000:])
            pipe.flush()
            read_until(lambda shown: "encode 4.99 MB" in shown)
            # The average over what the line has shown would never be nothing.
            read_until(lambda shown: "  0 bytes/s" in shown.split("encode 4.99 MB", 1)[-1])
        lines = self.lines(read_all(), 80)
        self.assertEqual(lines[-1], "encode: syncing 5.00 MB to the disk")


unittest.main(verbosity=2)
