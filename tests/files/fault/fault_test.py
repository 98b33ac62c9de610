#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes calls to the operating system fail under `tandem`: full disks, unreadable blocks, refused renames, interrupted
and short transfers. Checks exit status, message, and the files that are left.

Usage: fault_test.py TANDEM FAULT_LIBRARY [unittest arguments]
With TANDEM_FAULT_THOROUGH=1 every call gets every error; else each gets one of them.
"""
import errno
import itertools
import json
import os
import random
import re
import subprocess
import sys
import unittest

from kit import CHANGES, Sandbox

LIBRARY = sys.argv.pop(2)
TANDEM = sys.argv.pop(1)
THOROUGH = bool(os.environ.get("TANDEM_FAULT_THOROUGH"))
CONTENT = random.Random(7).randbytes(5000)
OLD_CONTENT = random.Random(8).randbytes(3000)
SHAPE = ("-k", 3, "-m", 3, "--block-bytes", 512, "--threads", 1)
SHARD_COUNT = 6
OLD_SHAPE = ("-k", 4, "-m", 4, "--block-bytes", 512, "--threads", 1)  # its shards 6 and 7 go away with it
BLOCK = 512
ENCODE = ("encode", "source", *SHAPE, "-o", "out")
DECODE = ("decode", "out", "-o", "copies/copy", "--threads", 1)


def shard(index):
    return f"out/source.{index:03}.tandem"


class Faults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sandbox = Sandbox(TANDEM, LIBRARY)
        cls.addClassCleanup(cls.sandbox.close)
        cls.sandbox.restore({"source": OLD_CONTENT})
        assert cls.sandbox.run("encode", "source", *OLD_SHAPE, "-o", "out").status == 0
        cls.old = cls.sandbox.tree()
        cls.sandbox.restore({"source": CONTENT, "copies": None})
        cls.empty = cls.sandbox.tree()
        assert cls.sandbox.run(*ENCODE).status == 0
        cls.encoded = cls.sandbox.tree()

    def run_on(self, tree, *arguments, status=0, **fault):
        self.sandbox.restore(tree)
        done = self.sandbox.run(*arguments, **fault)
        if status is not None:
            self.assertEqual(done.status, status, done.stderr + repr(done.calls[-3:]))
        return done

    def assert_message(self, done, *words):
        self.assertRegex(done.stderr, r"\Atandem: [^\n]+\n\Z")
        for word in words:
            self.assertIn(word, done.stderr)

    def decoded(self):
        done = self.sandbox.run("decode", "out", "-o", "../decoded", "--force", "--no-sync")
        if done.status != 0:
            return None
        with open(self.sandbox.path("../decoded"), "rb") as file:
            return file.read()

    def hidden(self):
        return [path for path in self.sandbox.tree() if path.rpartition("/")[2].startswith(".")]

    # ---- every call ----

    def every_failure(self, start, command, outcome, errors, calls=(), may_leave=False, **fault):
        """Runs the command once for each of its calls, which fails. `outcome` says whether what is there is right after a
        run with this exit status, and again after a next command."""
        self.sandbox.restore(start)
        undisturbed = self.sandbox.run(*command, log=True, calls=calls)
        self.assertIn(undisturbed.status, (0, 1), undisturbed.stderr)
        self.assertGreater(len(undisturbed.calls), 0)
        runs = 0
        for at, call in enumerate(undisturbed.calls, 1):
            for error in errors if THOROUGH else [errors[at % len(errors)]]:
                self.sandbox.restore(start)
                done = self.sandbox.run(*command, calls=calls, action="fail", at=at, errno=error, **fault)
                story = f"{' '.join(map(str, command))}: {call} fails with {errno.errorcode[error]}: " \
                        f"exit {done.status}: {done.stderr}"
                self.assertGreaterEqual(done.status, 0, story)
                if done.status not in (0, 1, 3, 4) or done.status == 4 and "count" not in fault:
                    self.fail("wrong exit status: " + story)
                if done.status >= 3:
                    self.assertRegex(done.stderr.splitlines()[-1], r"\Atandem: .+", story)
                if done.status == 3:
                    names = {os.path.basename(path) for path in (call.path, call.second_path) if path}
                    names |= {" .:" if os.path.dirname(call.path) in self.sandbox.root else
                              os.path.basename(os.path.dirname(call.path))}
                    self.assertTrue(any(name in done.stderr for name in names), "no path: " + story)
                if self.hidden() and not may_leave and "count" not in fault and "the next command" not in done.stderr:
                    self.fail(f"left {self.hidden()}: {story}")
                with self.subTest(story):
                    outcome(done.status, story)
                runs += 1
        print(f"{' '.join(map(str, command[:1]))}: {runs} failures tried", flush=True)

    def set_outcome(self, old, old_files):
        """Of an encode: the old set or the new one whole, the new one if it says so."""
        new_files = {shard(i) for i in range(SHARD_COUNT)}

        def check(status, story):
            for _ in range(2):
                content = self.decoded()
                self.assertIn(content, [CONTENT] if status == 0 else [old, CONTENT], story)
                if os.path.exists(self.sandbox.path("out")):
                    self.sandbox.run("info", "out")
            files = {path for path, content in self.sandbox.tree().items() if path.startswith("out/")}
            self.assertEqual(files, new_files if content == CONTENT else old_files, story)
        return check

    ERRORS = (errno.EIO, errno.ENOSPC, errno.EACCES, errno.EDQUOT, errno.EINTR)

    def test_every_call_of_encode(self):
        self.every_failure(self.empty, ENCODE, self.set_outcome(None, set()), self.ERRORS)

    def test_every_call_of_encode_over_an_old_set(self):
        start = {**self.old, "source": CONTENT}
        old_files = {path for path in start if path.startswith("out/")}
        outcome = self.set_outcome(OLD_CONTENT, old_files)
        self.every_failure(start, (*ENCODE, "--force"), outcome, self.ERRORS)
        # The disk stays full, or gone: cleaning up fails too, and the next command does it.
        self.every_failure(start, (*ENCODE, "--force"), outcome, (errno.ENOSPC, errno.EIO), calls=CHANGES, count=10000)

    def test_every_call_of_a_command_that_finishes_a_set(self):
        start = {**self.old, "source": CONTENT, "copies": None}
        self.run_on(start, *ENCODE, "--force", status=-9, calls=("renameat2",), action="kill", at=1)
        complete = self.sandbox.tree()
        self.assertEqual(len(self.hidden()), SHARD_COUNT)

        def check(status, story):
            self.assertEqual(self.decoded(), CONTENT, story)
            self.assertEqual({path for path in self.sandbox.tree() if path.startswith("out/")},
                             {shard(i) for i in range(SHARD_COUNT)}, story)
        self.every_failure(complete, DECODE, check, self.ERRORS, may_leave=True)

    def decode_outcome(self, old):
        def check(status, story):
            copy = self.sandbox.tree().get("copies/copy")
            self.assertIn(copy, [CONTENT] if status == 0 else [old, CONTENT], story)
            self.assertEqual(self.sandbox.run(*DECODE, "--force").status, 0)
            self.assertEqual({path for path in self.sandbox.tree() if path.startswith("copies/")}, {"copies/copy"}, story)
        return check

    def test_every_call_of_decode(self):
        start = {path: content for path, content in self.encoded.items() if path != shard(1)}
        self.every_failure(start, DECODE, self.decode_outcome(None), self.ERRORS)
        start["copies/copy"] = b"old"
        self.every_failure(start, (*DECODE, "--force"), self.decode_outcome(b"old"), self.ERRORS)
        self.every_failure(start, (*DECODE, "--force"), self.decode_outcome(b"old"), self.ERRORS, calls=CHANGES, count=10000)

    def damaged(self):
        tree = dict(self.encoded)
        del tree[shard(0)]
        for index, block in ((1, 0), (2, 2), (3, 1), (4, 3)):
            content = bytearray(tree[shard(index)])
            content[4096 + block * BLOCK + 9] ^= 1
            tree[shard(index)] = bytes(content)
        return tree

    def test_every_call_of_repair(self):
        def check(status, story):
            if status == 0:
                self.assertEqual(self.sandbox.tree(), self.encoded, story)
            self.assertEqual(self.decoded(), CONTENT, story)
            again = self.sandbox.run("repair", "out", "--threads", 1)
            self.assertEqual(again.status, 0, story + again.stderr)
            self.assertEqual(self.sandbox.tree(), self.encoded, story)
        command = ("repair", "out", "--threads", 1)
        self.every_failure(self.damaged(), command, check, self.ERRORS)
        self.every_failure(self.damaged(), command, check, (errno.ENOSPC, errno.EIO), calls=CHANGES, count=10000)

    def test_every_call_of_verify_and_info(self):
        def check(status, story):
            self.assertEqual(self.sandbox.tree(), self.encoded, story)
        for command in ("verify", "info"):
            self.every_failure(self.encoded, (command, "out"), check, (errno.EIO, errno.EACCES))

    # ---- one by one ----

    def test_a_failed_sync_is_final(self):
        """What is on the disk is not known then. While the set cannot be complete, its files go; later nothing goes, and the
        next command continues."""
        start = {**self.old, "source": CONTENT}
        watched = CHANGES + ("fsync",)
        calls = self.run_on(start, *ENCODE, "--force", log=True, calls=watched).calls
        finished = {path for path in self.sandbox.tree() if path.startswith("out/")}
        of_files = [at for at, call in enumerate(calls, 1) if call.name == "fsync" and call.path.endswith(".tandem-tmp")]
        self.assertEqual(len(of_files), 3 * SHARD_COUNT, "the blocks, the records, and once more before the first name")
        of_last_record = of_files[2 * SHARD_COUNT - 1]
        for at, sync in enumerate(calls, 1):
            if sync.name != "fsync":
                continue
            self.sandbox.restore(start)
            done = self.sandbox.run(*ENCODE, "--force", calls=watched, action="fail", at=at, errno=errno.EIO)
            self.assertEqual(done.status, 3, f"{sync}: {done.stderr}")
            self.assertIn("Input/output error", done.stderr)
            if at in of_files:
                self.assertIn(os.path.basename(sync.path)[-len("000.tandem-tmp"):], done.stderr)
            again = [call for call in done.calls[at:] if call.name == "fsync" and call.path == done.calls[at - 1].path]
            self.assertEqual([] if at in of_files else again, again, "the file was synced once more")
            if at < of_last_record:
                self.assertEqual(self.sandbox.tree(), start)
            else:
                self.assertEqual(done.calls[at:], [], "it went on")
                self.assert_message(done, "the next command")
                self.assertEqual(self.decoded(), CONTENT)
                self.assertEqual({path for path in self.sandbox.tree() if path.startswith("out/")}, finished)
        for at in (1, 2):  # the file, and its folder, where the new name may be there already
            done = self.run_on(self.encoded, *DECODE, status=3, calls=("fsync",), path="copies", action="fail", at=at,
                               errno=errno.EIO)
            self.assert_message(done, "copies")
            self.assertEqual(self.hidden(), [])

    def test_the_disk_begins_while_an_encode_writes(self):
        """With every 8 MiB of a shard file. Else the syncs at the end would find everything to do."""
        shape = ("-k", 1, "-m", 1, "--block-bytes", 65536, "--threads", 1)
        for mebibytes, option, expected in ((20, (), 2), (7, (), 0), (20, ("--no-sync",), 0)):
            command = ("encode", "source", *shape, "-o", "out", *option)
            start = {"source": bytes(mebibytes << 20)}
            calls = self.run_on(start, *command, calls=("sync_file_range",), log=True).calls
            for index in range(2):
                names = [call.name for call in calls if call.path.endswith(f".{index:03}.tandem-tmp")]
                self.assertEqual(names.count("sync_file_range"), expected, f"{mebibytes} MiB {option}")

    def test_a_failed_writeback_at_the_beginning_is_left_to_the_sync(self):
        start = {"source": bytes(20 << 20)}
        command = ("encode", "source", "-k", 1, "-m", 1, "--block-bytes", 65536, "-o", "out")
        done = self.run_on(start, *command, calls=("sync_file_range",), action="fail", at=1, count=1000, errno=errno.EIO)
        self.assertEqual(len(done.calls), 4)

    def test_a_look_that_is_refused_finds_nothing_out(self):
        """That a temporary could not be read does not say that it is not there."""
        start = {**self.old, "source": CONTENT}
        for error in (errno.EPERM, errno.EIO, errno.ESTALE):
            done = self.run_on(start, *ENCODE, "--force", status=3, calls=("open",), path=".tandem-tmp", action="fail", at=1,
                               count=1000, errno=error)
            self.assert_message(done, "the next command", os.strerror(error))
            self.assertEqual(len([path for path in self.hidden() if path.endswith(".tandem-tmp")]), SHARD_COUNT)
            self.assertEqual(self.decoded(), CONTENT)
            self.assertEqual(self.hidden(), [])
            self.assertEqual({path for path in self.sandbox.tree() if path.startswith("out/")},
                             {shard(i) for i in range(SHARD_COUNT)})

    def test_a_file_system_that_cannot_sync_is_named_its_flag(self):
        for start, command, path in ((self.empty, ENCODE, "out"), (self.encoded, DECODE, "copies")):
            done = self.run_on(start, *command, status=3, calls=("fsync",), path=path, action="fail", at=1, count=1000,
                               errno=errno.EINVAL)
            self.assert_message(done, os.strerror(errno.EINVAL), "--no-sync")
            self.run_on(start, *command, "--no-sync", calls=("fsync",), path=path, action="fail", at=1, count=1000,
                        errno=errno.EINVAL)

    def test_a_block_that_cannot_be_written_says_why(self):
        done = self.run_on(self.damaged(), "repair", "out", status=3, calls=("write",), path=".tandem", action="fail",
                           at=1, count=1000, errno=errno.EROFS)
        self.assert_message(done, "cannot write block", os.strerror(errno.EROFS) + f" (errno {errno.EROFS})")

    def test_all_folders_of_an_unfinished_set_are_named(self):
        encode = ("encode", "source", "-k", 4, "-m", 2, "-o", "a", "-o", "b", "-o", "c")
        self.run_on(self.empty, *encode)
        self.assertTrue(self.sandbox.run(*encode, "--force", calls=("renameat2",), action="kill", at=4).killed)
        left = {path: content for path, content in self.sandbox.tree().items() if not path.startswith("a")}
        self.sandbox.restore(left)
        done = self.sandbox.run("verify", "b", "c")
        self.assertIn("source, is not finished: 4 of its 6 shards are in b, c and the other named folders; name all folders "
                      "of its encode", done.stderr)
        self.assertEqual(self.sandbox.tree(), left)
        # A reader that cannot make sure of what it reads says so, and reads.
        done = self.run_on(left, "decode", "b", "c", "-o", "copy", calls=("fsync",), path=self.sandbox.path("b"), action="fail",
                           at=1, errno=errno.EIO)
        self.assertIn("note: cannot sync b: Input/output error", done.stderr)
        self.assertEqual(self.sandbox.tree()["copy"], CONTENT)

    def test_a_shard_that_cannot_be_read_is_neither_missing_nor_damaged(self):
        """Its file, a record of it, or a block: for once, and for ever. A command that needs it fails with 3 and names it."""
        two_lost = {path: content for path, content in self.encoded.items() if path not in (shard(0), shard(5))}
        three_lost = {path: content for path, content in two_lost.items() if path != shard(3)}
        for tree, enough in ((self.encoded, True), (two_lost, True), (three_lost, False)):
            for call, at, count, error in (("open", 1, 1, errno.EACCES), ("open", 1, 100, errno.EIO), ("read", 1, 1, errno.EIO),
                                           ("read", 2, 1, errno.EIO), ("read", 1, 2, errno.EIO), ("read", 1, 1000, errno.EIO),
                                           ("read", 4, 1, errno.EIO), ("read", 3, 1000, errno.EIO)):
                fault = {"calls": (call,), "path": "source.002.tandem", "action": "fail", "at": at, "count": count,
                         "errno": error}
                for command in (("verify", "out"), ("verify", "out", "-q"), ("repair", "out"), ("repair", "out", "-q"),
                                ("repair", "out", "--dry-run")):
                    with self.subTest(command=command, fault=fault, lost=len(self.encoded) - len(tree)):
                        done = self.run_on(tree, *command, "--threads", 1, status=3, **fault)
                        self.assertIn("source.002.tandem: " + os.strerror(error), done.stderr)
                        self.assertEqual(self.sandbox.tree(), tree)
                with self.subTest(command="decode", fault=fault, enough=enough):
                    needed = not enough and not (call == "read" and at < 3 and count < 1000)
                    done = self.run_on(tree, *DECODE, status=3 if needed else 0, **fault)
                    self.assertEqual(self.sandbox.tree().get("copies/copy"), None if needed else CONTENT)
                    if needed:
                        self.assertIn("source.002.tandem: " + os.strerror(error), done.stderr)

    def test_a_file_that_cannot_be_read_matters_to_sets_that_lack_a_shard(self):
        self.sandbox.restore({**self.encoded, "other": OLD_CONTENT})
        self.assertEqual(self.sandbox.run("encode", "other", *SHAPE, "-o", "out").status, 0)
        whole = self.sandbox.tree()
        fault = {"calls": ("open",), "path": "other.002.tandem", "action": "fail", "at": 1, "count": 100, "errno": errno.EACCES}
        damaged = bytearray(whole[shard(1)])
        damaged[5000] ^= 1
        done = self.run_on({**whole, shard(1): bytes(damaged)}, "repair", "out", status=3, **fault)
        self.assertEqual(self.sandbox.tree(), whole)
        self.assertIn("cannot open out/other.002.tandem: Permission denied", done.stderr)
        self.assertIn("2 sets: 1 intact", done.stdout.decode())
        done = self.run_on(whole, "info", "out", "--json", status=3, **fault)
        self.assertEqual(json.loads(done.stdout)["all_read"], False)

    def test_searches_are_linear_in_the_number_of_sets(self):
        def count(sets, *command):
            done = self.run_on(trees[sets], *command, status=status, calls=("look", "stat", "open", "read"), log=True)
            self.assertIn(f"{sets} sets: ", done.stdout.decode())
            return len(done.calls)

        self.sandbox.restore({"source": b"hello", "one": None, "two": None})
        for number in range(40):
            encode = ("encode", "source", "--name", f"set{number}", "-k", 1, "-m", 1, "-o", "one", "-o", "two", "--no-sync")
            self.assertEqual(self.sandbox.run(*encode).status, 0)
        whole = self.sandbox.tree()
        lost = {path: content for path, content in whole.items() if not path.startswith("two/")}
        for tree, status in ((whole, 0), ({**lost, "two": None}, 1)):
            number_of = lambda path: int(re.findall(r"set(\d+)", path)[0]) if "set" in path else -1
            trees = {sets: {path: each for path, each in tree.items() if number_of(path) < sets} for sets in (20, 40)}
            for command in (("verify", "one", "two"), ("repair", "one", "two", "--dry-run")):
                with self.subTest(command=command, status=status):
                    few, many = count(20, *command), count(40, *command)
                    self.assertLess(many, 2.1 * few)

    def test_lost_sets_beside_others_of_their_name_are_linear_too(self):
        def count(sets):
            folders = [f"{kind}{number}" for kind in ("new", "beside", "old") for number in range(sets)]
            self.sandbox.restore({"source": b"hello"})
            for number in range(sets):
                encode = ("encode", "source", "-k", 2, "-m", 1, "--no-sync")
                self.assertEqual(self.sandbox.run(*encode, "-o", f"new{number}", "-o", f"beside{number}").status, 0)
                self.assertEqual(self.sandbox.run(*encode, "-o", f"old{number}").status, 0)
            whole = self.sandbox.tree()
            for number in range(sets):
                for index in (1, 2):
                    del whole[f"old{number}/source.{index:03}.tandem"]
            done = self.run_on(whole, "verify", *folders, status=4, calls=("look", "stat", "open", "read"), log=True)
            self.assertIn(f"{2 * sets} sets: {sets} intact", done.stdout.decode())
            return len(done.calls)

        self.assertLess(count(20), 2.1 * count(10))

    def test_a_temporary_that_cannot_be_looked_at_is_removed(self):
        for command, path in ((DECODE, "copies"), (ENCODE, "out/.")):
            start = self.encoded if command is DECODE else self.empty
            done = self.run_on(start, *command, status=3, calls=("look",), path=".tandem-", action="fail", at=1,
                               errno=errno.EIO)
            self.assertIn(path.rstrip("/."), done.stderr)
            self.assertEqual(self.hidden(), [])

    def test_repair_of_a_file_that_cannot_be_read_in_the_middle(self):
        """Also when damage was found already, and is written: what was good stays so."""
        for tree in (self.encoded, self.damaged()):
            reads = [call for call in self.run_on(tree, "repair", "out", "--threads", 1, log=True, calls=("read",)).calls
                     if call.path.endswith("source.001.tandem")]
            for at in range(1, len(reads) + 1):
                for count in (1, 1000):
                    done = self.run_on(tree, "repair", "out", "--threads", 1, status=None, calls=("read",),
                                       path="source.001.tandem", action="fail", at=at, count=count, errno=errno.EIO)
                    self.assertIn(done.status, (0, 3), done.stderr)
                    self.assertEqual(self.sandbox.run("repair", "out").status, 0)
                    self.assertEqual(self.sandbox.tree(), self.encoded)

    def test_short_and_interrupted_transfers(self):
        for fault in ({"action": "short"}, {"action": "fail", "errno": errno.EINTR}):
            for step in (1, 2, 3) if fault["action"] == "short" else (2, 3):
                more = {"calls": ("read", "write"), "at": 1, "step": step, "count": 100000, **fault}
                self.run_on(self.empty, *ENCODE, **more)
                self.assertEqual(self.decoded(), CONTENT)
                self.run_on(self.damaged(), *DECODE, **more)
                self.assertEqual(self.sandbox.tree()["copies/copy"], CONTENT)
                self.run_on(self.damaged(), "verify", "out", status=1, **more)
                self.run_on(self.encoded, "verify", "out", **more)
                self.run_on(self.damaged(), "repair", "out", **more)
                self.assertEqual(self.sandbox.tree(), self.encoded)

    def test_short_and_interrupted_pipes(self):
        for fault in ({"action": "short", "step": 1}, {"action": "fail", "errno": errno.EINTR, "step": 2}):
            more = {"calls": ("read", "write"), "path": "pipe:", "at": 1, "count": 100000, **fault}
            done = self.run_on(self.empty, "encode", "-", *SHAPE, "--name", "source", "-o", "out", stdin=CONTENT, **more)
            self.assertGreater(len(done.calls), 3)
            self.assertEqual(self.decoded(), CONTENT)
            done = self.run_on(self.encoded, "decode", "out", "-o", "-", **more)
            self.assertEqual(done.stdout, CONTENT)

    def test_interrupted_opens(self):
        more = {"calls": ("create", "open"), "path": ".tandem", "action": "fail", "at": 1, "step": 2, "count": 1000}
        self.run_on(self.empty, *ENCODE, errno=errno.EINTR, **more)
        self.assertEqual(self.decoded(), CONTENT)
        self.run_on(self.damaged(), *DECODE, errno=errno.EINTR, **more)
        self.run_on(self.damaged(), "repair", "out", errno=errno.EINTR, **more)
        self.assertEqual(self.sandbox.tree(), self.encoded)

    def test_a_file_system_without_rename_noreplace_and_links(self):
        for calls, error in itertools.product((("renameat2",), ("renameat2", "link")), (errno.EINVAL, errno.ENOSYS)):
            fault = {"calls": calls, "action": "fail", "at": 1, "count": 1000, "errno": error}
            self.run_on(self.empty, *ENCODE, **fault)
            self.assertEqual(self.hidden(), [])
            self.assertEqual(self.decoded(), CONTENT)
            self.run_on(self.encoded, *DECODE, **fault)
            self.assertEqual(self.sandbox.tree(), {**self.encoded, "copies/copy": CONTENT})
            start = {**self.encoded, "copies/copy": b"old"}
            self.run_on(start, *DECODE, status=3, **fault)
            self.assertEqual(self.sandbox.tree(), start)

    def test_a_file_system_without_locks(self):
        """Whether the owner of what is left lives is not known: it is read as if it did not, and stays."""
        for error in (errno.ENOLCK, errno.EBADF):
            fault = {"calls": ("flock",), "action": "fail", "at": 1, "count": 1000, "errno": error}
            self.run_on(self.empty, *ENCODE, **fault)
            self.assertEqual(self.hidden(), [])
            start = {**self.old, "source": CONTENT, "copies": None}
            self.run_on(start, *ENCODE, "--force", status=-9, calls=("renameat2",), action="kill", at=3)
            left = self.sandbox.tree()
            self.assertEqual(len(self.hidden()), SHARD_COUNT - 2)
            done = self.run_on(left, *DECODE, **fault)
            self.assertIn("cannot be locked", done.stderr)
            self.assertNotIn("is being written", done.stderr)
            self.assertEqual(self.sandbox.tree(), {**left, "copies/copy": CONTENT})
            done = self.run_on(left, *ENCODE, "--force", status=3, **fault)
            self.assertIn("cannot be locked", done.stderr.splitlines()[-1])
            self.assertEqual(self.sandbox.tree(), left)
            self.run_on(left, *ENCODE, "--force")
            self.assertEqual(self.hidden(), [])

    def test_force_replaces_nothing_unfinished_without_locks(self):
        """Its writer may be alive."""
        start = {**self.old, "source": CONTENT}
        both = ("encode", "source", *SHAPE, "-o", "gone", "-o", "out", "--force")
        self.run_on(start, *both, status=-9, calls=("renameat2",), action="kill", at=5)
        left = {path: content for path, content in self.sandbox.tree().items() if not path.startswith("gone")}
        for error in (errno.ENOLCK, errno.EBADF):
            done = self.run_on(left, *ENCODE, "--force", status=3, calls=("flock",), action="fail", at=1, count=1000,
                               errno=error)
            self.assertIn("cannot be locked", done.stderr.splitlines()[-1])
            self.assertEqual(self.sandbox.tree(), left)
        done = self.run_on(left, *ENCODE, "--force")
        self.assertIn("3 of 6 shards were found", done.stderr)

    def test_a_folder_with_slashes_at_its_end(self):
        self.run_on(self.empty, "encode", "source", *SHAPE, "-o", "out//", "--dry-run")
        self.assertEqual(self.sandbox.tree(), self.empty)
        done = self.run_on(self.empty, "encode", "source", *SHAPE, "-o", "out/", log=True, calls=("fsync",))
        synced = {os.path.normpath(call.path) for call in done.calls}
        self.assertIn(self.sandbox.root, synced, "the folder that the new one lies in")
        self.assertEqual(self.decoded(), CONTENT)
        for new in "parent/new", "parent/other/":
            done = self.run_on({**self.damaged(), "parent": None}, "repair", "out", "-o", new, log=True, calls=("fsync",))
            self.assertEqual([os.path.normpath(call.path) for call in done.calls].count(self.sandbox.path("parent")), 1)
            self.assertEqual(os.listdir(self.sandbox.path(new)), [os.path.basename(shard(0))])

    def test_nothing_escapes_the_count(self):
        """The library changes files only by calls that fault.c stands before."""
        library = os.path.join(os.path.dirname(os.path.abspath(TANDEM)), "libtandem.so")
        try:
            names = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, check=True, text=True).stdout
            ours = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, check=True, text=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            self.skipTest(str(error))
        used = {line.split()[-1].partition("@")[0] for line in names.splitlines()}
        stood_before = {line.split()[-1] for line in ours.splitlines()}
        touching = re.compile(r"(p?(read|write)v?(64)?(v2)?|f?open(at|64|at64)?|creat|mk(st|d)emp|.*sync.*|rename.*|.*link(at)?|"
                              r"(mk|rm)dir(at)?|f?truncate(64)?|.*fallocate.*|copy_file_range|sendfile(64)?|splice|fchmod|f?chown|"
                              r"close|aio_.*|io_uring.*|syscall)")
        used = {name for name in used if touching.fullmatch(name)}
        self.assertIn("pwritev", used)
        self.assertEqual(used - stood_before - {"fdopen"}, set())


unittest.main(verbosity=2)
