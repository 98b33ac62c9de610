#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Drives the command `tandem` as a user does. Usage: cli_test.py PATH_OF_TANDEM [unittest arguments]"""
import csv
import fcntl
import json
import os
import pty
import random
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import time
import unittest
import unittest.mock
import xml.etree.ElementTree

import cli_kit
from cli_kit import TANDEM


def tandem(*arguments):
    return subprocess.run([TANDEM, *map(str, arguments)], capture_output=True, timeout=120)


class Command(cli_kit.Command):
    def setUp(self):
        super().setUp()
        self.content = random.Random(1).randbytes(3_000_017)
        self.source = self.write(self.path("source.bin"), self.content)
        self.shards, self.output = self.path("shards"), self.path("output")

    def encode(self, *more, source=None):
        return self.ok("encode", source or self.source, "-k", 10, "-m", 4, "-o", self.shards, *more)

    def encoded(self, *more):
        return self.json("encode", self.source, "-k", 10, "-m", 4, "-o", self.shards, *more)

    def shard(self, index, name="source.bin"):
        return os.path.join(self.shards, f"{name}.{index:03}.tandem")

    def need_opencl(self):
        if "opencl:0:0" not in [device["name"] for device in self.json("devices")["devices"]]:
            self.assertNotIn("TANDEM_TEST_REQUIRE_OPENCL", os.environ)
            self.skipTest("no OpenCL device")

    def test_four_of_fourteen_shards_may_be_lost(self):
        report = self.encoded()
        self.assertEqual(len(report["shards"]), 14)
        self.assertEqual(sorted(os.listdir(self.shards)), sorted(os.path.basename(p) for p in report["shards"]))
        self.assertGreater(report["bytes_per_second"], 0)
        self.assertEqual(report["content_bytes"], len(self.content))
        for index in (0, 3, 9, 12):
            os.remove(self.shard(index))
        report = self.json("decode", self.shards, "-o", self.output)
        self.assertEqual(self.read(self.output), self.content)
        self.assertEqual(report["shards_read"], 10)
        os.remove(self.shard(1))
        os.remove(self.output)
        done = self.ok("decode", self.shards, "-o", self.output, status=4)
        self.assertIn(b"9 of 14 shards found, 10 are needed", done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertFalse(os.path.exists(self.output))

    def test_a_set_gets_the_id_that_is_asked_for(self):
        set_id = "00112233445566778899aAbBcCdDeEfF"
        report = self.encoded("--set-id", set_id)
        self.assertEqual(report["set_id"], set_id.lower())
        before = self.read(self.shard(13))
        again = self.path("again")
        self.ok("encode", self.source, "-k", 10, "-m", 4, "-o", again, "--set-id", set_id)
        self.assertEqual(self.read(os.path.join(again, "source.bin.013.tandem")), before)
        for bad in ("", "12", set_id + "0", set_id[:-1] + "g"):
            done = self.ok("encode", self.source, "-k", 2, "-m", 1, "-o", self.path("bad"), "--set-id", bad,
                           status=2 if bad else 0)
            self.assertEqual(b"32 hexadecimal digits" in done.stderr, bool(bad))

    def test_a_device_codes_while_others_read_and_write(self):
        self.need_opencl()
        code = ("-k", 4, "-m", 2, "--block-bytes", "64k", "--backend", "opencl:0:0", "--json")
        result = json.loads(self.ok("encode", self.source, *code, "-o", self.shards).stdout)
        self.assertGreaterEqual(result["threads"], 3)
        self.ok("encode", self.source, *code[:6], "-o", self.path("not/there"))
        os.remove(self.shard(1))
        self.ok("decode", self.shards, "-o", self.output, "--backend", "opencl:0:0")
        self.assertEqual(self.read(self.output), self.content)
        self.ok("verify", self.path("not/there"))
        result = json.loads(self.ok("encode", self.source, *code, "-o", self.shards, "--force", "--threads", 2).stdout)
        self.assertEqual(result["threads"], 2)

    def coded_by(self, *arguments):
        """Bytes that each kind of worker coded."""
        _, trace = self.trace(*arguments)
        sizes = {}
        for worker in trace["otherData"]["workers"]:
            sizes[worker["kind"]] = sizes.get(worker["kind"], 0) + worker["bytes"]
        return sizes

    def test_file_commands_share_whole_stripes_with_a_device(self):
        self.need_opencl()
        self.content = random.Random(2).randbytes(24 << 20)
        self.write(self.source, self.content)
        encode = ("encode", self.source, "-k", 10, "-m", 4, "-o", self.shards, "--force", "--no-sync")

        def lose():
            for index in (0, 3, 11):
                os.remove(self.shard(index))

        for policy, resources in (("auto", 1), ("budget", 0), ("budget", 1)):
            # With a faster kernel the CPU would be done before the device has begun.
            flags = ("--backend", "hybrid:cpu+opencl:0:0", "--kernel", "scalar", "--policy", policy, *("--resource", "cpu=1")[:2 * resources])
            for name, command in (
                ("encode", encode),
                ("decode", ("decode", self.shards, "-o", self.output, "--force", "--no-sync")),
                ("repair", ("repair", self.shards, "--no-sync")),
            ):
                # Which lane is first is chance: both are to have a share in one of the runs.
                total = {}
                for _ in range(20):
                    if name != "encode" and os.path.exists(self.shard(0)):
                        lose()
                    for kind, size in self.coded_by(*command, *flags).items():
                        kind = kind.split(":")[0]
                        total[kind] = total.get(kind, 0) + size
                    if total.get("opencl", 0) > 0 and total.get("cpu", 0) > 0:
                        break
                self.assertGreater(total.get("opencl", 0), 0, (policy, name, total))
                self.assertGreater(total.get("cpu", 0), 0, (policy, name, total))
                if name == "decode":
                    self.assertEqual(self.read(self.output), self.content)
            self.ok("verify", self.shards)
            # The parity is what the CPU needs to find the data again.
            for index in (1, 4, 6, 9):
                os.remove(self.shard(index))
            self.ok("decode", self.shards, "-o", self.output, "--force", "--backend", "cpu")
            self.assertEqual(self.read(self.output), self.content)

    def test_an_executor_spreads_whole_stripes_or_is_refused(self):
        encode = ("encode", self.source, "-k", 10, "-m", 4, "-o", self.shards, "--force", "--backend")
        for executor, spreads in (("serial", False), ("pthread", False), ("openmp", True)):
            if executor == "openmp" and not os.path.exists(os.path.join(os.path.dirname(TANDEM), "libtandem_openmp.so")):
                continue
            boxes, trace = self.trace(*encode, "cpu", "--executor", executor, "--threads", 2)
            self.assertGreaterEqual(self.bytes_of(boxes["cpu"]), len(self.content))
            rows = [worker["name"] for worker in trace["otherData"]["workers"] if "worker" in worker["name"]]
            self.assertEqual(bool(rows), spreads, (executor, rows))
        done = self.ok(*encode, "hybrid:opencl:0:0", "--executor", "openmp", status=2)
        self.assertIn(b"executor=openmp has no effect", done.stderr)

    def test_without_an_opencl_device(self):
        with unittest.mock.patch.dict(os.environ, OCL_ICD_VENDORS=self.path("no vendors")):
            missing = {each["backend"]: each["reason"] for each in self.json("devices")["missing"]}
            self.assertIn(missing["opencl"].encode(), self.ok("devices").stdout)

    def test_without_a_cuda_device(self):
        report = self.json("devices")
        if any(device["name"].startswith("cuda:") for device in report["devices"]):
            self.skipTest("there is one")
        self.assertEqual([each["backend"] for each in report["missing"]], ["cuda"])
        reason = report["missing"][0]["reason"]
        self.assertNotIn("\n", reason)
        self.assertIn(reason.encode(), self.ok("devices").stdout)
        for backend in ("cuda", "cuda:0"):
            done = self.ok("encode", self.source, "-k", 4, "-m", 2, "--backend", backend, "-o", self.shards, status=2)
            self.assertIn(reason[:40].encode(), done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1)
            self.assertFalse(os.path.exists(self.shards))

    def test_parts_that_a_demo_does_not_build(self):
        built, programs = os.path.dirname(TANDEM), self.path("demo/bin")
        shutil.copytree(built, programs, symlinks=True, ignore=lambda _, names: [n for n in names if not n.startswith(("libtandem", os.path.basename(TANDEM)))])
        for arguments in (("isal-env", "true"), ("volume", "serve", "member")):
            done = subprocess.run([os.path.join(programs, os.path.basename(TANDEM)), *arguments], capture_output=True, text=True, timeout=60)
            self.assertRegex(done.stderr, r"^tandem: \S+\.so(\.2)? is missing: .*make demo.*cmake --build build", arguments)

    def test_pipes(self):
        self.ok("encode", "-", "-k", 3, "-m", 2, "-o", self.shards, input=self.content)
        os.remove(self.shard(0, "stdin"))
        done = self.ok("decode", self.shards, "-o", "-")
        self.assertEqual(done.stdout, self.content)

    def test_forced_choices_write_the_same_bytes(self):
        """Each kernel: api_operations_test."""
        self.encode()
        os.remove(self.shard(0))
        decode = ("decode", self.shards, "-o", self.output, "--force", "--json", "--kernel")
        for kernel in self.json("devices")["kernels"]:
            done = self.ok(*decode, kernel["name"], status=0 if kernel["available"] else 2)
            self.assertEqual(json.loads(done.stdout).get("kernel"), kernel["name"] if kernel["available"] else None)
        for more in (("--executor", "serial"), ("--threads", 1), ("--resource", "cpu=1")):
            self.ok("decode", self.shards, "-o", self.output, "--force", *more)
            self.assertEqual(self.read(self.output), self.content)

    def test_a_technique_that_does_not_exist_is_refused(self):
        narrow, leopard, dense = ("-k", 4, "-m", 2), ("-k", 20, "-m", 10, "--matrix", "leopard16"), ("-k", 9, "-m", 3, "--matrix", "liberasurecode-rs-vand")
        encode = ("encode", self.source, "-o", self.shards)
        for code, technique, words in ((narrow, "transform", b"from 4 shards to 2"), (leopard, "matrix", b"have a transform only"),
                                       (dense, "transform", b"GF(2^16) has none")):
            done = self.ok(*encode, *code, "--technique", technique, status=2)
            self.assertIn(words, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1)
            self.assertFalse(os.path.exists(self.shards))
        self.ok(*encode, *narrow, "--technique", "fast", status=2)
        # A set of a narrow code is there: nothing of it is changed or decoded.
        self.ok(*encode, *narrow)
        os.remove(self.shard(1))
        before = sorted(os.listdir(self.shards))
        for command in (("decode", self.shards, "-o", self.output), ("repair", self.shards)):
            done = self.ok(*command, "--technique", "transform", status=2)
            self.assertIn(b"technique transform", done.stderr)
        self.assertEqual(sorted(os.listdir(self.shards)), before)
        self.assertFalse(os.path.exists(self.output))

    def trace(self, *arguments, status=0):
        """What the command's timeline says: (boxes by kind, the trace)."""
        path = self.path("trace.json")
        if os.path.exists(path):
            os.remove(path)
        self.ok(*arguments, "--timeline", path, "--quiet", status=status)
        trace = json.loads(self.read(path))
        boxes = {}
        for event in trace["traceEvents"]:
            if event["ph"] == "X":
                boxes.setdefault(event["cat"], []).append(event)
        return boxes, trace

    def bytes_of(self, boxes):
        self.assertTrue(all(box["args"]["committed"] for box in boxes))
        return sum(box["args"]["bytes"] for box in boxes)

    def test_timelines_of_file_commands(self):
        block = 1 << 16
        payload, check = block - 16, 16
        k, m, stripes = 10, 4, 5
        self.content = self.content * 2
        self.content = self.content[:k * payload * stripes]
        self.write(self.source, self.content)
        data, shard = len(self.content), payload * stripes
        encode = ("encode", self.source, "-k", k, "-m", m, "--block-bytes", block, "-o", self.shards, "--backend", "cpu")
        for more in ((), ("--threads", 1), ("--executor", "serial")):
            boxes, trace = self.trace(*encode, "--force", *more)
            self.assertEqual(self.bytes_of(boxes["read"]), data)
            self.assertEqual(self.bytes_of(boxes["hash"]), (k + m) * shard)
            self.assertEqual(self.bytes_of(boxes["cpu"]), data)
            self.assertEqual(self.bytes_of(boxes["write"]), (k + m) * (shard + stripes * check))
            self.assertEqual({box["name"] for box in boxes["cpu"]}, {"assign 4x10"})
            self.assertEqual({box["name"] for box in boxes["read"]}, {"read"})
            self.assertIn("sync", boxes)
            # One axis that begins with the first box; boxes of a row do not overlap.
            everything = sorted((box["tid"], box["ts"], box["dur"]) for kind in boxes.values() for box in kind)
            self.assertAlmostEqual(min(ts for _, ts, _ in everything), 0, 3)
            for (row, start, length), (next_row, next_start, _) in zip(everything, everything[1:]):
                if row == next_row:
                    self.assertLessEqual(start + length, next_start + 0.01)
            summary = trace["otherData"]
            self.assertEqual(summary["bytes"], data)
            self.assertEqual(sum(worker["bytes"] for worker in summary["workers"]), data)
            self.assertAlmostEqual(sum(worker["share"] for worker in summary["workers"]), 1)
            self.assertEqual({each["kind"]: each["bytes"] for each in summary["kinds"]},
                             {kind: self.bytes_of(list_of) for kind, list_of in boxes.items()})

        os.remove(self.shard(2))
        file = shard + stripes * check
        for command, expected in (
            (("verify", self.shards), {"read": (k + m - 1) * file, "hash": (k + m - 1) * shard}),
            (("decode", self.shards, "-o", self.output, "--no-sync"),
             {"read": k * file, "hash": (k + 1) * shard, "cpu": data, "write": data}),
            (("repair", self.shards, "--no-sync"), {"cpu": data, "write": file}),
        ):
            boxes, _ = self.trace(*command, status=1 if command[0] == "verify" else 0)
            self.assertEqual({kind: self.bytes_of(boxes[kind]) for kind in expected}, expected)
            self.assertEqual("cpu" in boxes, "cpu" in expected)
            self.assertNotIn("sync", boxes)
        for backend in ("hybrid:cpu", "opencl:0:0"):
            done = tandem(*encode[:-1], backend, "--force", "--quiet", "--timeline", self.path("trace.json"))
            if backend != "hybrid:cpu" and done.returncode == 2:
                print("NOT RUN:", done.stderr.decode())
                continue
            boxes, _ = self.trace(*encode[:-1], backend, "--force")
            self.assertEqual(self.bytes_of(boxes["read"]), data)
            self.assertEqual(self.bytes_of(boxes[{"hybrid:cpu": "cpu"}.get(backend, "opencl")]), data)
            self.assertEqual(self.bytes_of(boxes["write"]), (k + m) * (shard + stripes * check))

        os.remove(self.path("trace.json"))
        shutil.rmtree(self.shards)
        done = self.ok(*encode, "--timeline", self.path("no/such/folder.json"), status=3)  # other refusals: sets_cli_test
        self.assertIn(b"no/such/folder.json: No such file", done.stderr)
        self.assertFalse(os.path.exists(self.shards))

    def test_flags_without_effect_are_refused(self):
        """Each flag reaches the library. Which of them has an effect where: api_bad_input_test."""
        encode = ("encode", self.source, "-k", 4, "-m", 2, "-o", self.shards, "--backend")
        for backend, flags, words in (
            ("cpu", ("--policy", "budget"), b'policy "budget"'),
            ("cuda:0", ("--executor", "openmp"), b"expert executor=openmp"),
            ("cpu", ("--device-technique", "tables"), b"expert device_technique=tables"),
            ("opencl:0:0", ("--technique", "matrix"), b"expert technique=matrix"),
            ("opencl:0:0", ("--kernel", "scalar"), b'kernel "scalar"'),
            ("cpu", ("--pin", "--threads", 1), b"expert pin=1"),
        ):
            done = self.ok(*encode, backend, *flags, status=2)
            for each in (words, b"has no effect"):
                self.assertIn(each, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1)
            self.assertFalse(os.path.exists(self.shards))
        done = self.ok("autotune", "-k", 4, "-m", 2, "--output", self.path("tuning.tsv"), "--backend", "opencl:0:0", "--threads", 2, status=2)
        self.assertIn(b'thread_count 2 has no effect on the backend "opencl:0:0"', done.stderr)
        self.ok(*encode, "cpu", "--pin", "--threads", 2)
        self.ok("verify", self.shards, "--pin", "--threads", 2)

    def test_colors_are_for_terminals(self):
        self.encode()
        for more, expected in (({"TERM": "xterm"}, b"\x1b[32mintact\x1b[0m"), ({"TERM": "dumb"}, b": intact"),
                               ({"TERM": "xterm", "NO_COLOR": "1"}, b": intact")):
            environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | more
            ours, its = pty.openpty()
            subprocess.run([TANDEM, "verify", self.shards], stdout=its, env=environment, check=True)
            os.close(its)
            self.assertIn(expected, os.read(ours, 4096))
            os.close(ours)

    def test_verify_reads_no_faster_than_it_may_and_decode_tells_damage(self):
        self.encode("--block-bytes", "4k")
        size = sum(os.path.getsize(os.path.join(self.shards, name)) for name in os.listdir(self.shards))
        begin = time.monotonic()
        self.ok("verify", self.shards, "--rate", 4 * size)
        self.assertGreater(time.monotonic() - begin, 0.2)
        for index in range(14):
            self.damage(self.shard(index), 4096 + 4096 * index + 5)
        self.assertIn(b"found 10 damaged blocks", self.ok("decode", self.shards, "-o", self.output).stderr)
        self.assertEqual(self.read(self.output), self.content)

    def test_five_kinds_of_damage_are_named_and_mended(self):
        self.encode("--block-bytes", "4k")
        before = self.contents(self.shards)
        os.remove(self.shard(0))
        os.truncate(self.shard(1), 100_000)
        with open(self.shard(2), "ab") as file:
            file.write(b"more" * 1000)
        self.damage(self.shard(3), 100)
        self.damage(self.shard(3), 4096 + 4096 * 3)
        for block in (4, 5, 6, 9):
            self.damage(self.shard(4), 4096 + 4096 * block + 9)
        words = self.ok("verify", self.shards, status=1).stdout.decode()
        for wanted in ("shard 0: missing", f"{self.shard(1)}: shard 1: truncated to 100000 of ",
                       f"{self.shard(2)}: shard 2: extended: ", f"{self.shard(3)}: shard 3: header damaged; 1 block damaged: 3",
                       f"{self.shard(4)}: shard 4: 4 blocks damaged: 4-6, 9", "`tandem repair` can mend all of it"):
            self.assertIn(wanted, words)
        damaged = self.contents(self.shards)
        listed = self.ok("repair", self.shards, "--dry-run", status=1).stdout.decode()
        self.assertIn(f"{self.shard(0)}: shard 0: missing. Would be rebuilt", listed)
        self.assertEqual(self.contents(self.shards), damaged)
        report = self.json("repair", self.shards)
        self.assertEqual((report["mended_file_count"], report["rebuilt_file_count"]), (2, 3))
        self.assertEqual([f["action"] for f in report["files"]], ["rebuild"] * 3 + ["mend"] * 2)
        self.assertEqual(report["state"], "intact")
        self.assertEqual(self.contents(self.shards), before)
        self.ok("verify", self.shards)
        self.assertRegex(self.ok("repair", self.shards).stdout, rb"(?m)^set [0-9a-f]{32}: intact$")

    def test_resize(self):
        self.encode("--block-bytes", "4k")
        before = self.contents(self.shards)
        self.assertIn(b"): would have 10 + 6 shards: 2 files written, 0 files removed\n", self.ok("resize", self.shards, "-m", 6, "--dry-run").stdout)
        self.assertEqual(self.contents(self.shards), before)
        self.assertIn(b"): now 10 + 6 shards: 2 files written, 0 files removed\n", self.ok("resize", self.shards, "-m", 6, "-o", self.path("more{i}")).stdout)
        self.assertEqual((os.listdir(self.path("more14")), os.listdir(self.path("more15"))), (["source.bin.014.tandem"], ["source.bin.015.tandem"]))
        both = (self.shards, self.path("more14"), self.path("more15"))
        self.ok("verify", *both)
        self.assertIn(b"): 10 + 6 shards already\n", self.ok("resize", *both, "-m", 6).stdout)
        self.write(self.shard(3), before["source.bin.003.tandem"])
        self.assertIn(b"shard 3: resize not finished (header with another m)\n", self.ok("verify", *both, status=1).stdout)
        self.assertIn(b"Left to `tandem resize`", self.ok("repair", *both, status=1).stdout)
        self.assertIn(b"`tandem resize` with the m", self.ok("verify", *both, status=1).stdout)
        self.ok("resize", *both, "-m", 6)
        self.ok("verify", *both)
        report = self.json("resize", *both, "-m", 4)
        self.assertEqual((report["m"], report["m_before"], report["removed_file_count"], report["mended_file_count"]), (4, 6, 2, 14))
        self.assertEqual(self.contents(self.shards), before)
        self.damage(self.shard(4), 4096 + 9)
        self.assertIn(b"1 damaged block; repair the set first", self.ok("resize", self.shards, "-m", 2, status=1).stderr)
        self.ok("resize", self.shards, "-m", 300, status=2)

    def test_what_is_lost_is_said(self):
        self.encode("--block-bytes", "4k")
        for index in range(5):
            self.damage(self.shard(index), 4096 + 77)
        self.damage(self.shard(9), 4096 + 4096 * 7)
        self.assertIn(b"1 of these cannot be recovered", self.ok("verify", self.shards, status=4).stdout)
        self.ok("repair", self.shards, "--dry-run", status=4)
        self.assertIn(b"completely; 1 file mended in place (1 block), 0 files rebuilt\n", self.ok("repair", self.shards, status=4).stdout)
        report = self.json("verify", self.shards, status=4)
        self.assertEqual((report["bad_block_count"], report["lost_stripe_count"]), (5, 1))
        for index in range(5):
            os.remove(self.shard(index))
        lost = b": cannot be recovered completely: 5 shards missing, 4 allowed; nothing was changed\n"
        self.assertIn(lost, self.ok("repair", self.shards, status=4).stdout)

    def test_stale_and_misnamed_files_are_named(self):
        self.encode()
        old = self.read(self.shard(3))
        self.encode("--force")
        self.write(self.shard(3), old)
        words = self.ok("verify", self.shards, status=1).stdout.decode()
        self.assertIn("shard 3: missing", words)
        self.assertIn(f"{self.shard(3)} is of another set", words)
        self.ok("repair", self.shards, "--force", "--quiet")
        os.rename(self.shard(1), self.path("x"))
        os.rename(self.shard(2), self.shard(1))
        os.rename(self.path("x"), self.shard(2))
        self.assertIn(f"{self.shard(1)} holds shard 2", self.ok("verify", self.shards).stdout.decode())

    def test_dry_runs_write_nothing(self):
        self.ok("encode", self.source, "-k", 3, "-m", 2, "-o", self.shards, "--dry-run")
        self.assertFalse(os.path.exists(self.shards))
        self.encode()
        before = self.contents(self.shards)
        for more in (("--dry-run",), ()):
            self.ok("encode", self.source, "-k", 3, "-m", 2, "-o", self.shards, *more, status=3)
        self.ok("encode", self.source, "-k", 3, "-m", 2, "-o", self.shards, "--dry-run", "--force")
        self.assertEqual(self.contents(self.shards), before)
        self.ok("encode", self.source, "-k", 3, "-m", 2, "-o", os.path.join(self.source, "where"), "--dry-run", status=3)
        self.ok("decode", self.shards, "-o", self.output, "--dry-run")
        self.assertFalse(os.path.exists(self.output))
        self.ok("decode", self.shards, "-o", self.source, "--dry-run", status=3)
        for index in range(5):
            os.remove(self.shard(index))
        self.ok("decode", self.shards, "-o", self.output, "--dry-run", status=4)
        self.assertEqual(len(os.listdir(self.shards)), 9)

    def test_two_sets_and_foreign_files(self):
        first = self.encoded("--name", "first")["set_id"]
        second = self.encoded("--name", "second")["set_id"]
        shutil.copy(self.source, self.shards)
        done = self.ok("decode", self.shards, "-o", self.output, status=2)
        self.assertIn(second.encode(), done.stderr)
        self.assertIn(b"2 sets found, choose one with --set ID or --name NAME (in a program: set_id_prefix): ", done.stderr)
        self.assertIn(f"{first} (first, 14 of 14 shards)".encode(), done.stderr)
        for which in ("--set", second[:10]), ("--name", "second"):
            done = self.ok("decode", self.shards, "-o", self.output, "--force", *which)
            self.assertIn(b"note: ignored", done.stderr)
            self.assertEqual(self.read(self.output), self.content)
        self.assertIn(f"set {second} (second)\n".encode(), self.ok("info", self.shards).stdout)
        for command in ("verify", "repair", "info"):
            sets = self.json(command, self.shards, "--name", "first")["sets"]
            self.assertEqual([each["set_id"] for each in sets], [first])
            done = self.ok(command, self.shards, "--name", "third", status=2)
            self.assertIn(f"no set is called third; there are: {first} (first, 14 of 14 shards), {second}".encode(), done.stderr)
        # Of several sets of the name, the one with enough shards; else the ids tell.
        self.ok("encode", self.source, "-k", 2, "-m", 1, "-o", self.path("others"), "--name", "first")
        decode = ("decode", self.shards, self.path("others"), "-o", self.output, "--name", "first", "--force")
        done = self.ok(*decode, status=2)
        self.assertIn(b"2 sets are called first, choose one with --set ID (in a program: set_id_prefix): ", done.stderr)
        for index in range(2):
            os.remove(os.path.join(self.path("others"), f"first.{index:03}.tandem"))
        self.ok(*decode)

    def test_a_decode_does_not_replace_its_own_shards(self):
        self.encode()
        before = self.contents(self.shards)
        os.symlink(self.shard(3), self.path("link"))
        os.link(self.shard(4), self.output + ".partial")
        for output in (self.shard(0), self.path("link")):
            for more in (), ("--dry-run",):
                done = self.ok("decode", self.shards, "-o", output, "--force", *more, status=2)
                self.assertIn(b"of the set that is decoded", done.stderr)
        self.assertIn(b"is shard 4 of the set", self.ok("decode", self.shards, "-o", self.output, "--force", "--salvage", status=2).stderr)
        self.assertEqual(self.contents(self.shards), before)

    def test_what_makes_no_sense_is_refused_in_one_line(self):
        """Commands and options that do not exist: help_cli_test."""
        encode = ("encode", self.source, "-o", self.shards, "-k")
        for arguments in (
            (*encode, 0, "-m", 1), (*encode, 200, "-m", 57), (*encode, 2, "-m", 1, "--block-bytes", 100),
            (*encode, 2, "-m", 1, "--kernel", "nonsense"), (*encode, 2, "-m", 1, "--resource", "gas=3"),
            (*encode, 2, "-m", 1, "--resource", "cpu=1", "--resource", "cpu=2"), (*encode, 2, "-m", 1, "--resource", "cpu=0"),
            ("decode", self.root, "-o", "-", "--json"),
        ):
            done = self.ok(*arguments, status=2)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertFalse(os.path.exists(self.shards))
        self.ok("encode", self.path("missing"), "-k", 2, "-m", 1, "-o", self.shards, status=3)
        self.ok("devices", "-k", 4, status=2)

    def test_a_resource_that_no_task_holds(self):
        encode = ("encode", self.source, "-k", 2, "-m", 1, "-o", self.shards)
        self.encode()
        for command in (encode + ("--force",), ("decode", self.shards, "-o", self.output),
                        ("repair", self.shards)):
            for flag, name in (("gpu=1", "gpu"), ("cpu=1,app.widgets=2", "app.widgets")):
                done = self.ok(*command, "--backend", "cpu", "--resource", flag, status=2)
                self.assertIn(f'no task of this run holds "{name}"; on backend cpu tasks hold cpu'.encode(), done.stderr)
            done = self.ok(*command, "--resource", "cpus=1", status=2)
            self.assertIn(b'resource "cpus" is unknown; known: cpu, gpu, pinned_mib, opencl_mib, cuda_mib', done.stderr)
        done = self.ok(*encode, "--backend", "opencl", "--resource", "pinned_mib=1", status=2)
        self.assertIn(b"on backend opencl tasks hold cpu,gpu,opencl_mib", done.stderr)
        done = self.ok(*encode, "--backend", "hybrid", "--resource", "app.widgets=1", status=2)
        self.assertIn(b"tasks hold cpu,gpu,pinned_mib,opencl_mib,cuda_mib", done.stderr)
        self.ok("decode", self.shards, "-o", self.output, "--backend", "hybrid", "--resource", "cpu=1", "--resource", "gpu=1,pinned_mib=64")

    def test_verify_codes_nothing(self):
        self.encode()
        self.ok("verify", self.shards, "--threads", 1)
        for flag in ("--backend=cpu", "--kernel=scalar", "--technique=matrix", "--device-technique=tables", "--executor=serial", "--resource=cpu=1", "--policy=budget"):
            self.assertIn(flag.split("=")[0].encode(), self.ok("verify", self.shards, flag, status=2).stderr)

    @staticmethod
    def product(a, b):
        result = 0
        while b:
            result ^= a if b & 1 else 0
            a = a << 1 ^ (0x11d if a & 0x80 else 0)
            b >>= 1
        return result

    def raw_stripe(self, rows, shard_bytes):
        """Raw shards of these parity rows; returns their paths and contents."""
        shards = [random.Random(i).randbytes(shard_bytes) for i in range(len(rows[0]))]
        for row in rows:
            parity = bytearray(shard_bytes)
            for cell, shard in zip(row, shards):
                table = bytes(self.product(cell, byte) for byte in range(256))
                parity = bytearray(a ^ b for a, b in zip(parity, shard.translate(table)))
            shards = [*shards, bytes(parity)]
        paths = [self.path(f"raw.{i}") for i in range(len(shards))]
        for path, shard in zip(paths, shards):
            self.write(path, shard)
        return paths, shards

    RAW = ((71, 167, 122, 186), (167, 71, 186, 122), (122, 186, 71, 167), (186, 122, 167, 71))  # isal-cauchy 4 + 4

    def test_locate_names_and_repairs_raw_shards(self):
        paths, shards = self.raw_stripe(self.RAW, 70_001)
        locate = ("verify", "--locate", "-k", 4, "-m", 4, *paths)
        self.assertIn(b"intact", self.ok(*locate).stdout)
        for path, offset in ((paths[1], 5), (paths[1], 70_000), (paths[6], 5), (paths[7], 9_000)):
            self.damage(path, offset)
        damaged = [self.read(path) for path in paths]
        report = self.json(*locate, status=1)
        self.assertEqual([(each["shard"], each["path"], each["byte_count"]) for each in report["damaged"]],
                         [(1, paths[1], 2), (6, paths[6], 1), (7, paths[7], 1)])
        self.assertEqual(report["damaged"][0]["ranges"], [{"begin_bytes": 5, "end_bytes": 6, "byte_count": 1},
                                                          {"begin_bytes": 70_000, "end_bytes": 70_001, "byte_count": 1}])
        self.assertEqual((report["most_damaged_shards"], report["beyond_bytes"], report["repaired"]), (2, 0, False))
        self.assertEqual([self.read(path) for path in paths], damaged)
        self.assertIn(b"bytes 9000 to 9000 (1 damaged)", self.ok(*locate, status=1).stdout)
        self.assertIn(b"raw.6: shard 6: 1 damaged byte, repaired", self.ok(*locate, "--repair").stdout)
        self.assertEqual([self.read(path) for path in paths], shards)
        self.ok(*locate)

    def test_locate_takes_shards_in_the_order_of_their_numbers(self):
        def inverse(number):
            return next(other for other in range(1, 256) if self.product(number, other) == 1)

        rows = [[inverse(row ^ column) for column in range(10)] for row in range(10, 14)]  # isal-cauchy 10 + 4
        paths, shards = self.raw_stripe(rows, 1_000)
        self.damage(paths[2], 7)
        locate = ("verify", "--locate", "-k", 10, "-m", 4)
        by_shell = sorted(paths)
        self.assertEqual(by_shell[2], paths[10])
        for order in (paths, by_shell):
            report = self.json(*locate, *order, status=1)
            self.assertEqual([(each["shard"], each["path"]) for each in report["damaged"]], [(2, paths[2])])
        shell = subprocess.run(f"{TANDEM} verify --locate -k 10 -m 4 --repair raw.*", shell=True, cwd=self.root, capture_output=True)
        self.assertEqual((shell.returncode, self.read(paths[2])), (0, shards[2]), shell.stderr)
        # Where one is lost, its place is that of the `-`; the order of a shell does not tell it.
        self.ok(*locate, *paths[:3], "-", *paths[4:])
        done = self.ok(*locate, *by_shell[:13], "-", status=2)
        self.assertIn(b"shard 2 stands behind shard 13, as a shell lists them", done.stderr)
        self.ok(*locate, *reversed(paths), status=4)  # another order is taken as it is

    def test_locate_with_lost_shards_and_too_much_damage(self):
        paths, shards = self.raw_stripe(self.RAW, 2_000)
        lost = [*paths]
        lost[2] = "-"
        self.damage(paths[0], 100)
        locate = ("verify", "--locate", "-k", 4, "-m", 4)
        report = self.json(*locate, *lost, status=1)
        self.assertEqual((report["most_damaged_shards"], [each["shard"] for each in report["damaged"]]), (1, [0]))
        self.damage(paths[5], 100)
        done = self.ok(*locate, "--repair", *lost, status=4)
        self.assertIn(b"1 offset has more damaged shards than can be located (at most 1)", done.stdout)
        self.assertIn(b"nothing was written", done.stdout)
        self.assertNotIn(b"raw.", done.stdout)
        self.assertNotEqual(self.read(paths[0]), shards[0])

    def test_locate_refuses_what_makes_no_sense(self):
        paths, _ = self.raw_stripe(self.RAW, 100)
        locate = ("verify", "--locate", "-k", 4, "-m", 4)
        def refused(text, *arguments, status=2):
            self.assertIn(text, self.ok(*arguments, status=status).stderr)
        refused(b"7 paths given, but k + m = 8", *locate, *paths[:7])
        refused(b"no shard is given", *locate, *["-"] * 8)
        refused(b"4 of 8 shards absent", *locate, *paths[:4], *["-"] * 4, status=4)
        refused(b"--locate", "verify", "--repair", self.root)
        refused(b"--set", *locate, "--set", "0", *paths)
        refused(b"local_groups is 2", *locate, "--groups", 2, *paths)
        refused(b"unknown matrix", *locate, "--matrix", "isal", *paths)
        refused(b"not a regular file", *locate, self.root, *paths[1:], status=3)
        refused(b"No such file", *locate, self.path("none"), *paths[1:], status=3)
        os.truncate(paths[3], 99)
        refused(b"has 99 bytes", *locate, *paths)
        for path in paths:
            os.truncate(path, 0)
        refused(b"the shards are empty", *locate, *paths)

    def test_a_full_device_is_an_error(self):
        self.encode()
        done = self.ok("decode", self.shards, "-o", "/dev/full", "--force", status=3)
        self.assertIn(b"No space left", done.stderr)
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/full").st_mode))

    def test_a_named_pipe_is_waited_for_and_can_be_left(self):
        self.encode()
        os.mkfifo(self.output)
        process = subprocess.Popen([TANDEM, "decode", self.shards, "-o", self.output], stderr=subprocess.PIPE)
        time.sleep(0.3)
        self.assertIsNone(process.poll())
        self.assertEqual(self.read(self.output), self.content)  # a reader that comes late
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, errors)

        process = subprocess.Popen([TANDEM, "decode", self.shards, "-o", self.output], stderr=subprocess.PIPE)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, errors)

    # Few candidates and small shards; the built-in values are one more.
    FEW = ("-k", 5, "--set", "chunk_bytes=1<<v, v=16:17", "--set", "tile_bytes=0",
           "--set", "prefetch_bytes=0", "--set", "out_of_cache_bytes=65536", "--shard-bytes", "70000", "--repeats", 2,
           "--threads", 1)
    ENCODE = ("-m", 3, "--operation", "encode")

    def test_autotune_is_kept_shown_and_used(self):
        file = self.path("data/tuning.tsv")
        report = self.json("autotune", *self.FEW, *self.ENCODE, "--output", file)
        self.assertEqual((report["file"], report["cases"], report["candidates"]), (file, 1, 3))
        self.assertTrue(report["complete"])
        entry, = report["entries"]
        self.assertEqual((entry["backend"], entry["operation"], entry["k"], entry["m"]), ("cpu", "encode", 5, 3))
        self.assertEqual(self.json("autotune", "--show", "--output", file)["entries"], [entry])
        self.assertIn((entry["values"] or "built-in").encode(), self.ok("autotune", "--show", "--output", file).stdout)
        with open(file) as stream:
            row, = csv.DictReader(stream, delimiter="\t")
        self.assertEqual((row["tandem_tuning_2"], row["k"], row["values"]), ("tuned", "5", entry["values"]))
        again = self.ok("autotune", *self.FEW, *self.ENCODE, "--output", file)
        self.assertIn(b"1 case known from before; --fresh measures again", again.stdout)
        self.assertEqual(self.json("autotune", *self.FEW, *self.ENCODE, "--output", file, "--fresh")["known"], 0)

        arguments = ("encode", self.source, "-k", 5, "-m", 3, "-o", self.shards, "--force", "--threads", 1, "--log")
        os.environ["TANDEM_TUNING"] = file
        self.addCleanup(os.environ.__setitem__, "TANDEM_TUNING", "")
        self.assertIn(b"measured for encode (5, 3) on this device", self.ok(*arguments).stderr)
        self.ok("decode", self.shards, "-o", self.output)
        self.assertEqual(self.read(self.output), self.content)
        with open(file, "r+") as stream:
            stream.truncate(100)
        self.assertIn(b"line 1: it is not the header of a tuning file: ignored", self.ok(*arguments).stderr)
        errors = self.ok("autotune", *self.FEW, *self.ENCODE, status=3).stderr.decode()  # and is not replaced
        self.assertRegex(errors, re.escape(file) + ".* may be deleted")
        self.assertEqual(len(self.read(file)), 100)

    def test_autotune_is_drawn(self):
        file = self.path("autotune.log")
        log = self.ok("autotune", *self.FEW, *self.ENCODE, "--output", self.path("tuning.tsv"), "--log").stderr
        with open(file, "wb") as stream:
            stream.write(log + b"autotune: a line that is another one\n")
        plot = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench", "plot.py"), "autotune"]
        done = subprocess.run([*plot, file, "--svg", "-o", self.root, "--x", "chunk_bytes", "--y", "tile_bytes"],
                              capture_output=True, timeout=60, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        words = ["".join(e.itertext()) for e in xml.etree.ElementTree.parse(self.path("autotune-cpu-encode-5+3.svg")).iter()
                 if e.tag.endswith("text")]
        for wanted in ("chunk_bytes", "tile_bytes", "65536", "131072", str(2 << 20)):
            self.assertIn(wanted, words)
        self.assertEqual(len([w for w in words if re.fullmatch(r"\d+\.\d\d", w)]), 3, words)  # two, and the built-in values
        done = subprocess.run([*plot, self.path("none")], capture_output=True, timeout=60, text=True)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1), done.stderr)

    def test_autotune_on_device_memory(self):
        few = ("-k", 3, "-m", 2, "--shard-bytes", 20000, "--repeats", 1)
        file = self.path("tuning.tsv")
        self.assertIn(b"cpu is no device", self.ok("autotune", "--memory", "device", "--backend", "cpu", *few, "--output", file, status=2).stderr)
        self.assertFalse(os.path.exists(file))
        self.ok("autotune", "--memory", "moon", *few, "--output", file, status=2)
        self.need_opencl()
        tune = ("autotune", "--backend", "opencl:0:0", *few, "--set", "local_x=32,64", "--set", "element_bytes=16", "--set", "rows_per_pass=2",
                "--set", "elements_per_item=1", "--set", "local_y=1", "--set", "local_z=1", "--output", file)  # fmt: skip
        for memory in ("device", "host"):
            ranges = ("--set", "staging_bytes=65536") if memory == "host" else ()
            report = self.json(*tune, *ranges, "--operation", "encode,verify", "--memory", memory)
            self.assertEqual((report["wrong"], report["known"]), (0, 0))
            entries = [each for each in report["entries"] if each["memory"] == memory]
            self.assertEqual([each["operation"] for each in entries], ["encode", "verify"])
            if memory == "device":
                self.assertEqual(len(report["entries"]), 2)
                for each in entries:
                    self.assertNotIn("staging_bytes", each["values"])
                    self.assertNotIn("compile_after_bytes", each["values"])
        self.assertEqual(len(report["entries"]), 4)
        self.assertIn(b" device ", self.ok("autotune", "--show", "--output", file).stdout)
        self.assertIn(b"staging_bytes makes no difference", self.ok(*tune, "--set", "staging_bytes=65536", "--memory", "device", status=2).stderr)

    def test_autotune_wrong_usage(self):
        file = self.path("tuning.tsv")
        for arguments, words in (
            (("-k", "1<<v, v=9:4"), "9:4 is empty"),
            (("--local-size", "1<<v, v=4:10"), "backend cpu has no local_x to tune; it has chunk_bytes"),
            (("--local-size", "1") * 4, "at most three dimensions"),
            (("--set", "chunk_bytes"), "is not NAME=RANGE"),
            (("--backend", "cpu", "--device", "7"), "does not exist"),
            (("--device", "7"), "--device needs --backend"),
            (("--repeats", "0.5"), "repeats"),
            (("--max-seconds", "-1"), "max_seconds"),
        ):
            done = self.ok("autotune", *arguments, "--output", file, status=2)
            self.assertIn(words, done.stderr.decode())
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertFalse(os.path.exists(file))
        self.assertIn(b"no tuning file", self.ok("autotune", status=2).stderr)  # TANDEM_TUNING is empty

    def test_autotune_can_be_interrupted_and_goes_on(self):
        file = self.path("tuning.tsv")
        slow = ("autotune", "-k", "5", "-m", "2:5", "--operation", "encode", "--shard-bytes", "1M", "--repeats", "3", "--set",
                "tile_bytes=0,1024", "--set", "prefetch_bytes=0,256", "--set", "out_of_cache_bytes=65536", "--set",
                "chunk_bytes=1<<v, v=16:19", "--threads", "1", "--output", file)

        def rows():
            return len(self.read(file).splitlines()) - 1 if os.path.exists(file) else 0

        known = 0
        for stop in (signal.SIGINT, signal.SIGKILL):
            process = subprocess.Popen([TANDEM, *slow], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            deadline = time.time() + 60
            while time.time() < deadline and rows() == known:
                time.sleep(0.01)
            process.send_signal(stop)
            _, errors = process.communicate(timeout=60)
            if process.returncode == 0:
                break  # it was faster
            self.assertEqual(process.returncode, 130 if stop == signal.SIGINT else -stop, errors)
            if stop == signal.SIGINT:
                self.assertIn(b"finished cases are kept in", errors)
                self.assertEqual(len(errors.splitlines()), 1)
            self.assertGreater(rows(), known)
            known = rows()
        report = self.json(*slow)
        self.assertEqual(report["known"], known)
        self.assertEqual([(e["k"], e["m"]) for e in report["entries"]], [(5, 2), (5, 3), (5, 4), (5, 5)])

    def test_memory_of_a_stream_is_bounded(self):
        if b"__asan_init" in self.read(TANDEM) or b"__tsan_init" in self.read(TANDEM):
            self.skipTest("sanitizers need memory of their own")
        content = random.Random(3).randbytes(1_000_003) * 200
        self.write(self.source, content)
        for arguments in (("encode", "-", "-k", "16", "-m", "0", "--block-bytes", "16M", "--name", "x", "-o", self.shards),
                          ("decode", self.shards, "-o", self.output)):
            with open(self.source, "rb") as file:
                process = subprocess.Popen([TANDEM, *arguments, "--threads", "1", "--no-sync", "--quiet"], stdin=file)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, 0)
            self.assertLess(usage.ru_maxrss, (256 + 64) * 1024)
        self.assertTrue(self.read(self.output) == content)

    def test_a_folder_that_the_caller_keeps_locked(self):
        """`flock DIR tandem ...`: readers do without cleaning up, writers give up or are told to."""
        self.encode()
        folder = os.open(self.shards, os.O_RDONLY)
        self.addCleanup(os.close, folder)
        fcntl.flock(folder, fcntl.LOCK_EX)
        readers = (("verify", self.shards), ("info", self.shards), ("decode", self.shards, "-o", self.output, "--force"))
        for command in readers:  # there is nothing to clean up
            self.assertEqual(self.ok(*command).stderr, b"")
        remains = os.path.join(self.shards, f".{'a' * 32}.tandem-tmp")
        self.write(remains, b"")
        for command in readers:
            self.assertIn(b"is locked by another process", self.ok(*command).stderr)
        os.remove(remains)
        self.assertEqual(self.read(self.output), self.content)
        os.remove(self.shard(2))
        names = os.listdir(self.shards)
        encode = ("encode", self.source, "-k", 10, "-m", 4, "-o", self.shards, "--force", "--quiet", "--lock-wait")
        inside = os.path.join(self.shards, "output")
        for command in ((*encode, 1), ("repair", self.shards, "--lock-wait", 1),
                        ("decode", self.shards, "-o", inside, "--lock-wait", 1)):
            errors = self.ok(*command, status=3).stderr
            self.assertIn(b"for more than 1 second now", errors)
            self.assertNotIn(b"2 seconds", errors)  # that only clean up
        self.assertNotIn(b"note", self.ok(*encode[:-2], "--lock-wait", 1, status=3).stderr)  # one wait
        waiting = subprocess.Popen([TANDEM, *map(str, encode), "3600"], stderr=subprocess.PIPE)
        self.addCleanup(waiting.stderr.close)
        time.sleep(3)
        self.assertIsNone(waiting.poll())
        waiting.send_signal(signal.SIGINT)
        self.assertIn(waiting.wait(60), (130, -signal.SIGINT))  # the latter on a slow machine: not in encode yet
        self.assertEqual(sorted(os.listdir(self.shards)), sorted(names))
        fcntl.flock(folder, fcntl.LOCK_UN)
        self.ok("repair", self.shards)

    def test_files_in_a_folder_that_cannot_be_listed(self):
        self.encode()
        copies = self.path("copies")
        os.mkdir(copies)
        os.chmod(copies, 0o777)
        os.chmod(self.root, 0o711)
        # The owner of the folder and root can list it. So another user runs this, or the owner has no right to list it.
        os.chmod(self.root, 0o755)
        as_user = self.as_another_user()
        os.chmod(self.root, 0o711)
        os.chmod(self.shards, 0o711 if as_user else 0o311)
        self.addCleanup(os.chmod, self.shards, 0o755)
        files = [self.shard(index) for index in range(1, 14)]
        output = os.path.join(copies, "output")
        for command in (("verify", *files), ("info", *files), ("decode", *files, "-o", output)):
            done = self.ok(*command, status=1 if command[0] == "verify" else 0, **as_user)
            self.assertEqual(done.stderr.count(b"cannot be listed, so remains"), 1, done.stderr)
        self.assertEqual(self.read(output), self.content)
        # No user could clean up there, so there is no encode either.
        for command in (("verify", self.shards), ("encode", output, "-k", 2, "-m", 1, "-o", self.shards)):
            self.assertIn(b"Permission denied", self.ok(*command, status=3, **as_user).stderr)

    def test_numbers_of_shards_stand_below_each_other(self):
        """Other promises to sets of more than 256 shards: files_wide_test."""
        self.write(self.source, self.content[:1000])
        code = ("-k", 1000, "-m", 24, "--matrix", "leopard16", "--block-bytes", 128, "--no-sync")
        self.ok("encode", self.source, *code, "-o", self.shards)
        listed = self.ok("info", self.shards).stdout.decode()
        for line in "\n    10 data ", "\n  1010 parity ":
            self.assertIn(line, listed)

    def test_few_files_for_a_set_that_replaces_another(self):
        """Refused before anything is changed, or done: never found out when the new set counts already."""
        def encode(hard, *more):
            limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 256), hard))  # the command may raise the first
            return subprocess.run([TANDEM, "encode", self.source, *map(str, more)], capture_output=True, timeout=120,
                                  preexec_fn=limit)

        self.write(self.source, b"old")
        code = ("-k", 12, "-m", 8, "--force", "--no-sync", "-o")
        done = [encode(hard, *code, self.shards) for hard in range(20, 70)]
        statuses = [one.returncode for one in done]
        least = statuses.index(0)
        self.assertIn(b"this process may have 20 files open", done[0].stderr)
        self.assertEqual(statuses, [3] * least + [0] * (50 - least), done[-1].stderr)
        self.assertLess(20 + least, 41)
        for one in done[:least]:
            self.assertNotIn(b"the new set is complete", one.stderr)
        # A folder for each shard: its file, the folder, its record and the file that is replaced.
        folders = self.path("disk{i}")
        code = ("-k", 60, "-m", 20, "--force", "--no-sync", "-o", folders)
        for content in (b"old", b"new"):
            self.write(self.source, content)
            done = encode(300, *code)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.ok("decode", *[self.path(f"disk{i}") for i in range(80)], "-o", self.output, "--force")
            self.assertEqual(self.read(self.output), content)

    # ---- what cannot be written, and where it goes ----

    def run_with(self, *arguments, **more):
        return subprocess.run([TANDEM, *map(str, arguments)], timeout=120, **more)

    def closing(self, *descriptors):
        return {"preexec_fn": lambda: [os.close(each) for each in descriptors]}

    def test_standard_error_that_cannot_be_written(self):
        self.encode()
        with open("/dev/full", "wb") as full:
            self.damage(self.shard(3), 50_000)
            done = self.run_with("repair", self.shards, "--log", stdout=subprocess.PIPE, stderr=full)
            self.assertEqual(done.returncode, 3)  # the log is lost, the work is not
            self.assertIn(b"now intact", done.stdout)
            self.ok("verify", self.shards)
            self.assertEqual(self.run_with("encode", "--no-such", stderr=full).returncode, 2)
            done = self.run_with("decode", self.shards, "-o", "-", stdout=subprocess.PIPE, stderr=full)
            self.assertEqual((done.returncode, done.stdout == self.content), (0, True))  # the report is lost, the stream is whole
        self.assertEqual(self.run_with("decode", "nowhere", "-o", self.output, **self.closing(2)).returncode, 3)
        reader, writer = os.pipe()
        os.close(reader)
        self.assertEqual(self.run_with("decode", "nowhere", "-o", self.output, stderr=writer).returncode, 3)
        os.close(writer)

    def test_standard_output_that_cannot_be_written(self):
        self.encode()
        nowhere = [f"no-such-{index}" for index in range(1200)]  # more JSON than a buffer holds
        with open("/dev/full", "wb") as full:
            for words in (("verify", "--json", *nowhere), ("verify", "--json", "nowhere"), ("encode", "--json", *nowhere),
                          ("info", "--json", self.shards), ("verify", self.shards), ("help",), ("encode", "--help")):
                done = self.run_with(*words, stdout=full, stderr=subprocess.PIPE)
                self.assertEqual(done.returncode, 3, (words[:2], done.stderr))
                self.assertIn(b"cannot write", done.stderr)
            self.damage(self.shard(3), 50_000)
            self.assertEqual(self.run_with("verify", self.shards, stdout=full, stderr=subprocess.PIPE).returncode, 3)
            for index in range(5):
                os.remove(self.shard(index))
            done = self.run_with("decode", "--json", self.shards, "-o", self.output, stdout=full, stderr=subprocess.PIPE)
            self.assertEqual(done.returncode, 4)  # that says more

    def test_closed_standard_descriptors(self):
        # A file that took the number of a closed descriptor would get the reports.
        done = self.run_with("encode", self.source, "-k", 3, "-m", 2, "-o", self.shards, **self.closing(0, 1, 2))
        self.assertEqual(done.returncode, 3)
        self.assertRegex(self.ok("verify", self.shards).stdout, rb"(?m)^set [0-9a-f]{32}: intact$")
        done = self.run_with("decode", self.shards, "-o", self.output, **self.closing(1, 2))
        self.assertEqual((done.returncode, self.read(self.output) == self.content), (3, True))
        done = self.run_with("decode", self.shards, "-o", "-", stderr=subprocess.PIPE, **self.closing(1))
        self.assertEqual(done.returncode, 3)
        self.assertIn(b"standard output", done.stderr)
        done = self.run_with("encode", "-", "-k", 3, "-m", 2, "-o", self.path("none"), stderr=subprocess.PIPE,
                             **self.closing(0))
        self.assertEqual(done.returncode, 3)
        self.assertEqual(self.run_with("decode", self.shards, "-o", self.path("quiet"), "-q",
                                       **self.closing(0, 1, 2)).returncode, 0)

    def test_outputs_that_are_descriptors(self):
        self.encode()
        for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
            with open(self.output, "wb") as file:
                done = self.run_with("decode", self.shards, "-o", name, stdout=file, stderr=subprocess.PIPE)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(self.read(self.output), self.content)
            self.assertIn(b"digest", done.stderr)
            done = self.ok("decode", self.shards, "-o", name)  # to a pipe
            self.assertEqual(done.stdout, self.content)
            self.assertIn(b"--json", self.ok("decode", self.shards, "-o", name, "--json", status=2).stderr)
        # A link of the user's own to it is not replaced, and neither is the system's.
        os.symlink("/dev/stdout", self.path("link"))
        before = os.readlink("/dev/stdout")
        with open(self.output, "wb") as file:
            done = self.run_with("decode", self.shards, "-o", self.path("link"), "--force", stdout=file,
                                 stderr=subprocess.PIPE)
        self.assertEqual((done.returncode, self.read(self.output) == self.content), (0, True))
        self.assertEqual((os.readlink(self.path("link")), os.readlink("/dev/stdout")), ("/dev/stdout", before))
        self.assertIn(b"digest", self.ok("decode", self.shards, "-o", "/dev/null").stderr)
        done = tandem("decode", self.shards, "-o", "/dev/stderr")
        self.assertEqual((done.returncode, done.stderr == self.content, b"digest" in done.stdout), (0, True, True))
        self.assertIn(b"not open for writing", self.ok("decode", self.shards, "-o", "/dev/fd/77", status=3).stderr)

    def test_outputs_that_are_links(self):
        self.encode()
        os.mkdir(self.path("there"))
        os.symlink("there/target", self.path("first"))
        os.symlink("first", self.path("second"))
        done = self.ok("decode", self.shards, "-o", self.path("second"), status=3)
        self.assertIn(b"is a symbolic link to", done.stderr)
        self.assertEqual(os.listdir(self.path("there")), [])
        self.write(self.path("there/target"), b"")
        self.assertIn(b"exists", self.ok("decode", self.shards, "-o", self.path("second"), status=3).stderr)
        self.ok("decode", self.shards, "-o", self.path("second"), "--force")
        self.assertEqual(os.readlink(self.path("second")), "first")
        self.assertEqual(os.listdir(self.path("there")), ["target"])
        self.assertEqual(self.read(self.path("there/target")), self.content)
        os.symlink("turns", self.path("turns"))
        self.assertIn(b"symbolic links", self.ok("decode", self.shards, "-o", self.path("turns"), status=3).stderr)

    def test_names_drive_no_terminal_and_can_be_read_back(self):
        name = b"a\x1b[31m\n\xc2\x9bb\\\xff\xc3\xa4"
        source = os.path.join(os.fsencode(self.root), name)
        self.write(source, b"content")
        shown = b"a\\x1b[31m\\x0a\\xc2\\x9bb\\\\\\xff\xc3\xa4"

        def run(*arguments, status=0):
            done = subprocess.run([os.fsencode(TANDEM), *arguments], capture_output=True, timeout=120)
            self.assertEqual(done.returncode, status, done.stderr)
            for stream in (done.stdout, done.stderr):
                self.assertNotRegex(stream, rb"\x1b|\xff")
            return done

        shards = os.fsencode(self.shards)
        self.assertIn(shown, run(b"encode", source, b"-k", b"1", b"-m", b"1", b"-o", shards).stdout)
        done = run(b"info", shards)
        self.assertEqual((done.stdout.count(shown), done.stdout.count(b"\xc2\x9b")), (3, 0))
        os.truncate(os.path.join(shards, name + b".001.tandem"), 5000)
        self.assertIn(shown, run(b"verify", shards, status=1).stdout)
        self.assertIn(shown, run(b"repair", shards).stdout)
        copy = os.path.join(os.fsencode(self.root), b"copy" + name)
        self.assertIn(shown, run(b"decode", shards, b"-o", copy).stdout)
        self.assertIn(shown, run(b"decode", shards, b"-o", copy, status=3).stderr)

        path = json.loads(run(b"info", shards, b"--json").stdout)["sets"][0]["files"][0]["path"]
        back = re.sub(rb"\\(\\|x[0-9a-f]{2})", lambda m: bytes.fromhex(m[1][1:].decode()) if m[1] != b"\\" else m[1],
                      path.encode())
        self.assertEqual(back, os.path.join(shards, name + b".000.tandem"))

    # ---- arguments and messages ----

    def test_numbers_are_decimal(self):
        report = self.json("encode", self.source, "-k", "010", "-m", "04", "-o", self.shards)
        self.assertEqual((report["k"], report["m"]), (10, 4))
        blocks = ("encode", self.source, "-k", 4, "-m", 2, "-o", self.path("other"), "--json", "--block-bytes")
        self.assertEqual(json.loads(self.ok(*blocks, "010KiB").stdout)["block_bytes"], 10 << 10)
        for wrong in ("-1", "0x10", "MiB", "99999999999999999999", "99999999999999999MiB"):
            self.assertIn(b"--block-bytes", self.ok(*blocks, wrong, status=2).stderr)
        encode = ("encode", self.source, "-m", 4, "-o", self.shards, "-k")
        self.assertIn(b"--data: -1 is not a whole number", self.ok(*encode, -1, status=2).stderr)
        for wrong in ("0x8", "ten", "1e1", "8 ", "99999999999"):
            done = self.ok(*encode, wrong, status=2)
            self.assertIn(wrong.strip().encode(), done.stderr)
            self.assertIn(b"number", done.stderr)
        done = self.ok("decode", self.shards, "-o", self.output, "--lock-wait", 0, status=2)
        self.assertIn(b"not in range 1 to 4294967295", done.stderr)

    def test_values_that_look_like_options(self):
        encode = ("encode", self.source, "-m", 4, "-o", self.shards, "--json")
        report = json.loads(self.ok(*encode, "--name=", "-k", 3).stdout)
        self.assertEqual((report["name"], report["k"]), ("source.bin", 3))
        report = json.loads(self.ok(*encode, "-k", 3, "--name", "--", "--force").stdout)
        self.assertEqual(report["name"], "--")
        report = json.loads(self.ok(*encode, "-k", 3, "--name=a=", "--force").stdout)
        self.assertEqual(report["name"], "a=")
        for words in (("encode", "--name", "--", "--json"), ("encode", "--name=--", "--json"), ("verify", "--set=", "--json"),
                      ("encode", "--nonsense", "--json"), ("encode", "-k", "--", "--json", self.source)):
            done = self.ok(*words, status=2)
            self.assertEqual(json.loads(done.stdout)["exit_status"], 2, words)
        # Names of files, and the value of an option, ask for nothing.
        for words in (("verify", "--", "--json"), ("encode", "--name", "--json"), ("encode", "--name=--json")):
            self.assertEqual(tandem(*words).stdout, b"", words)

    def test_a_long_path_does_not_hide_the_reason(self):
        folder = self.path("x" * 200 + "/" + "y" * 200 + "/" + "z" * 200)
        done = self.ok("decode", folder, "-o", self.output, status=3)
        self.assertIn(b"No such file or directory (errno 2)", done.stderr)
        self.assertIn(b"cannot find", done.stderr)

    def test_a_code_that_is_not_mds(self):
        """What is said of it. Which shards are enough: files_salvage_test."""
        for index, count in ((0, b"any 3 of which"), (1, b"not any 3 of which")):
            code = ("-k", 3, "-m", 4, "--matrix", ("isal-cauchy", "par1")[index], "--allow-non-mds")
            done = self.ok("encode", self.source, *code, "-o", self.path(f"s{index}"))
            self.assertIn(b", " + count, done.stdout)
        for kept, enough in (((0, 1, 2), True), ((3, 4, 5), True), ((3, 4, 6), False)):  # 1 + 2 + 3 = 0
            paths = [os.path.join(self.path("s1"), f"source.bin.{index:03}.tandem") for index in kept]
            self.assertIn(b": enough, if" if enough else b": not enough", self.ok("info", *paths).stdout)
            self.ok("decode", *paths, "-o", self.output, "--dry-run", status=0 if enough else 4)

unittest.main(verbosity=2)
