#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `tandem-mpi`, and a program that uses mpi.h, under mpirun. Checks the files they write, the files that a failing or
dying rank leaves, and the messages of all ranks. Several ranks share the cores, so nothing here measures time.

Usage: mpi_test.py TANDEM TANDEM_MPI JOB CHECKPOINT MPIRUN FAULT_LIBRARY|none [unittest arguments]"""
import glob
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

TANDEM, TANDEM_MPI, JOB, CHECKPOINT, MPIRUN = (os.path.abspath(word) for word in sys.argv[1:6])
FAULT = os.path.abspath(sys.argv[6]) if sys.argv[6] != "none" else None
del sys.argv[1:7]
SEED = int(os.environ.get("TANDEM_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
ALL = os.environ.get("TANDEM_TEST_ALL", "") not in ("", "0")
SET_ID = "000102030405060708090a0b0c0d0e0f"
SECONDS = 120  # of one job: far more than it takes

# No network, no cores of one's own, and root is fine. Messages of a dying job are not looked at.
ENVIRONMENT = {**os.environ, "TANDEM_TUNING": "", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_btl": "self,vader", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
               "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
               "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_plm_rsh_agent": "sh", "OMPI_MCA_btl_base_warn_component_unused": "0",
               "PRTE_MCA_prte_silence_shared_fs": "1", "HWLOC_COMPONENTS": "-gl,-opencl,-cuda"}


class Done:
    def __init__(self, process):
        self.status, self.stdout, self.stderr = process.returncode, process.stdout.decode(), process.stderr.decode()

    def ranks(self):
        """Of JOB: what each rank says, by rank: (status, numbers, message)."""
        found = {}
        for rank, status, numbers, message in re.findall(r"^(\d+) (TANDEM_\w+)(.*?) \| (.*)$", self.stdout, re.M):
            found[int(rank)] = (status, dict(re.findall(r"(\w+)=(\S+)", numbers)), message)
        return [found[rank] for rank in sorted(found)]


class MpiTest(unittest.TestCase):
    def setUp(self):
        self.rng = random.Random(f"{SEED} {self.id()}")
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > 1 << 30 else None
        self.root = tempfile.mkdtemp(prefix="tandem-mpi-", dir=base)
        self.addCleanup(shutil.rmtree, self.root, True)

    def path(self, *names):
        return os.path.join(self.root, *names)

    def write(self, name, content):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def read(self, path):
        with open(path, "rb") as file:
            return file.read()

    def overwrite(self, path, at, content):
        with open(path, "r+b") as file:
            file.seek(at)
            file.write(content)

    def wait_for_survivors(self):
        """mpirun may end before the ranks that it kills. A process that ends loses its memory, and with it its environment,
        before its files and their locks."""
        mine = b"TMPDIR=" + self.root.encode() + b"\0"
        exiting = 0x4  # PF_EXITING of the kernel

        def is_alive(pid):
            try:
                environment = self.read(f"/proc/{pid}/environ")
                state, *numbers = self.read(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
            except OSError:
                return False
            return mine in environment or (not environment and int(numbers[5]) & exiting and state not in (b"Z", b"X"))

        end = time.monotonic() + 60
        left = [pid for pid in os.listdir("/proc") if pid.isdigit()]
        while left := [pid for pid in left if is_alive(pid)]:
            self.assertLess(time.monotonic(), end, f"mpirun has ended, and these have not: {left}")
            time.sleep(0.02)

    def mpirun(self, rank_count, *words, on_rank=None, variables=None, folder=None, cores=None, program=TANDEM_MPI, **as_user):
        """variables, folder, cores: the environment, the working directory and the cores of rank on_rank alone."""
        command = [MPIRUN, "-n", str(rank_count), "--oversubscribe", "--timeout", str(SECONDS)]
        if on_rank is not None:
            settings = [f"export {name}='{value}'" for name, value in (variables or {}).items()]
            settings += [f"cd '{folder}'"] if folder else []
            settings += [f"taskset -cp {cores} $$ > /dev/null"] if cores is not None else []
            script = f'if [ "$OMPI_COMM_WORLD_RANK" = {on_rank} ]; then {"; ".join(settings)}; fi; exec "$@"'
            command += ["sh", "-c", script, "sh"]
        command += [program, *map(str, words)]
        own = {"TMPDIR": self.root, "OMPI_MCA_btl_vader_backing_directory": self.root}
        if as_user:
            own["HOME"] = self.root
        process = subprocess.run(command, capture_output=True, timeout=2 * SECONDS, env={**ENVIRONMENT, **own},
                                 stdin=subprocess.DEVNULL, **as_user)
        self.wait_for_survivors()
        return Done(process)

    def ok(self, rank_count, *words, status=0, **more):
        done = self.mpirun(rank_count, *words, **more)
        self.assertEqual(done.status, status, f"{words}\n{done.stdout}\n{done.stderr}")
        return done

    def job(self, rank_count, *words, **more):
        done = self.ok(rank_count, *words, program=JOB, **more)
        ranks = done.ranks()
        self.assertEqual(len(ranks), rank_count, done.stdout + done.stderr)
        return ranks

    def refused(self, rank_count, status, *words, **more):
        """All ranks give this status and one message, which is returned."""
        ranks = self.job(rank_count, *words, **more)
        self.assertEqual({rank[0] for rank in ranks}, {f"TANDEM_ERROR_{status}"}, ranks)
        self.assertEqual(len({rank[2] for rank in ranks}), 1, ranks)
        return ranks[0][2]

    def tandem(self, *words, status=0):
        process = subprocess.run([TANDEM, *map(str, words)], capture_output=True, timeout=120, env=ENVIRONMENT)
        self.assertEqual(process.returncode, status, process.stderr.decode())
        return process

    def listing(self, folder):
        return {name: self.read(os.path.join(folder, name)) for name in sorted(os.listdir(folder))}


class ShardSets(MpiTest):
    def test_same_files_for_every_number_of_ranks(self):
        for content_bytes, k, m, block in ((3_000_017, 4, 2, 4096), (0, 2, 1, 4096), (1, 3, 2, 64), (200_000, 5, 3, 512)):
            source = self.write("source.bin", self.rng.randbytes(content_bytes))
            os.chmod(source, 0o640)
            code = ("encode", source, "-k", k, "-m", m, "--block-bytes", block, "--set-id", SET_ID)
            serial = self.path(f"serial{content_bytes}")
            self.tandem(*code, "-o", serial)
            expected = self.listing(serial)
            self.assertEqual(len(expected), k + m)
            for rank_count in ((1, 2, 4, 8) if content_bytes == 3_000_017 else (3,)):
                folder = self.path(f"{content_bytes}by{rank_count}")
                done = self.ok(rank_count, *code, "-o", folder, "--json")
                self.assertEqual(self.listing(folder), expected, f"{rank_count} ranks, {content_bytes} bytes")
                self.assertEqual({os.stat(os.path.join(folder, name)).st_mode & 0o777 for name in expected}, {0o640})
                report = json.loads(done.stdout)
                self.assertEqual(report["read_bytes"], content_bytes)
                self.assertEqual(report["set_id"], SET_ID)
                self.assertEqual(report["written_bytes"], sum(map(len, expected.values())))

    def test_each_rank_reads_its_part(self):
        # Two ranks have two rounds of 64 MiB of shards each, four have one.
        source_bytes = 150 << 20
        source = self.write("source.bin", self.rng.randbytes(source_bytes))
        for rank_count in (2, 4):
            ranks = self.job(rank_count, "encode", source, 8, 1, 4096, self.path("shards"))
            for status, numbers, message in ranks:
                self.assertEqual(status, "TANDEM_OK", message)
                self.assertEqual(int(numbers["all"]), source_bytes)
                self.assertEqual(int(numbers["backwards"]), 0)
                if os.path.exists("/proc/self/io"):
                    self.assertLess(abs(int(numbers["system_read"]) / (source_bytes / rank_count) - 1), 0.1, numbers)
            self.tandem("verify", self.path("shards"))
        os.remove(self.path("shards", "source.bin.003.tandem"))
        self.ok(2, "decode", self.path("shards"), "-o", self.path("output"), "--no-sync")
        self.assertEqual(self.read(self.path("output")), self.read(source))

    def test_decode(self):
        content = self.rng.randbytes(2_000_003)
        source = self.write("source.bin", content)
        os.chmod(source, 0o600)
        self.tandem("encode", source, "-k", 4, "-m", 2, "--block-bytes", 1024, "-o", self.path("shards"))
        shards = sorted(glob.glob(self.path("shards", "*")))
        os.remove(shards[1])
        self.overwrite(shards[2], 50_000, b"damage")
        for rank_count in (1, 2, 4):
            output = self.path(f"output{rank_count}")
            done = self.ok(rank_count, "decode", self.path("shards"), "-o", output, "--json")
            self.assertEqual(self.read(output), content)
            self.assertEqual(os.stat(output).st_mode & 0o777, 0o600)
            report = json.loads(done.stdout)
            self.assertEqual(report["bad_block_count"], 1)
            self.assertGreater(report["rebuilt_block_count"], 0)
        done = self.ok(2, "decode", self.path("shards"), "-o", output, status=3)
        self.assertIn("use --force to replace it", done.stderr)
        self.ok(2, "decode", self.path("shards"), "-o", output, "--force", "--quiet")
        self.ok(2, "decode", self.path("shards"), "-o", self.path("dry"), "--dry-run")
        self.assertFalse(os.path.exists(self.path("dry")))
        os.remove(shards[3])
        done = self.ok(2, "decode", self.path("shards"), "-o", output, "--force", status=4)
        self.assertEqual(self.read(output), content)
        self.assertEqual([name for name in os.listdir(self.root) if name.endswith("tandem-tmp")], [])

    def test_decode_to_a_file_that_nobody_may_write(self):
        content = self.rng.randbytes(300_000)
        source = self.write("source.bin", content)
        os.chmod(source, 0o444)
        self.tandem("encode", source, "-k", 2, "-m", 1, "--block-bytes", 1024, "-o", self.path("shards"))
        as_user = {}
        if os.geteuid() == 0:  # root may write everywhere
            as_user = {"user": 65534, "group": 65534, "extra_groups": []}
            for path in (self.root, self.path("shards"), *glob.glob(self.path("shards", "*"))):
                os.chown(path, 65534, 65534)
            try:
                subprocess.run([TANDEM_MPI, "--version"], capture_output=True, check=True, env=ENVIRONMENT, **as_user)
            except (OSError, subprocess.SubprocessError) as error:
                self.skipTest(f"{TANDEM_MPI} cannot be run as another user: {error}")
        output = self.path("output")
        self.ok(3, "decode", self.path("shards"), "-o", output, **as_user)
        self.assertEqual(self.read(output), content)
        self.assertEqual(os.stat(output).st_mode & 0o777, 0o444)

    def test_verify_and_repair(self):
        """Damage in the first and in the last stripes, which are of different ranks. All kinds of it: files_team_test."""
        source = self.write("source.bin", self.rng.randbytes(100_000))
        self.tandem("encode", source, "-k", 3, "-m", 2, "--block-bytes", 1024, "-o", self.path("shards"))
        before = self.listing(self.path("shards"))
        self.ok(2, "verify", self.path("shards"), "--quiet")
        os.remove(self.path("shards", "source.bin.001.tandem"))
        damaged = self.path("shards", "source.bin.003.tandem")
        for place in (4096, os.path.getsize(damaged) - 4096 - 5):
            self.overwrite(damaged, place, b"bad")
        done = self.ok(2, "verify", self.path("shards"), status=1)
        self.assertIn("recoverable; 1 missing shard, 2 damaged blocks, at most 2 bad or missing in a stripe of 3 + 2", done.stdout)
        self.assertIn("2 blocks damaged: 0, 33", done.stdout)
        self.ok(3, "repair", self.path("shards"))
        self.assertEqual(self.listing(self.path("shards")), before)
        self.ok(2, "repair", self.path("shards"), "-o", self.path("new"))
        for index in range(3):
            os.remove(self.path("shards", f"source.bin.00{index}.tandem"))
        self.ok(2, "verify", self.path("shards"), status=4)
        done = self.ok(2, "verify", self.path("nothing"), status=3)
        self.assertIn("nothing", done.stderr)
        self.assertEqual(done.stderr.count("tandem-mpi: "), 1, done.stderr)

    def test_each_rank_verifies_and_repairs_its_part(self):
        # More than one round of 64 MiB a rank.
        self.write("source.bin", bytes(150 << 20))
        self.tandem("encode", self.path("source.bin"), "-k", 4, "-m", 1, "--block-bytes", 65536, "-o", self.path("shards"), "--no-sync")
        os.remove(self.path("source.bin"))
        lost = self.path("shards", "source.bin.002.tandem")
        whole = self.read(lost)
        for command in ("verify", "repair"):
            if command == "repair":
                os.remove(lost)
            ranks = self.job(2, command, self.path("shards"))
            for status, numbers, message in ranks:
                self.assertEqual((status, numbers["state"]), ("TANDEM_OK", "0"), message)
                if os.path.exists("/proc/self/io"):
                    self.assertLess(abs(int(numbers["system_read"]) / (int(numbers["all"]) / 2) - 1), 0.1, (command, ranks))
        self.assertEqual(self.read(lost), whole)

    def test_folders_that_a_rank_does_not_see(self):
        # Relative names, of which one rank has another folder.
        source = self.write("source.bin", self.rng.randbytes(50_000))
        for folder in ("here", "there"):
            os.makedirs(self.path(folder))
        encode = ("encode", source, "-k", 2, "-m", 1, "--block-bytes", 1024, "-o", "shards")
        at = {"cwd": self.path("here"), "on_rank": 1, "folder": self.path("there")}
        done = self.ok(3, *encode, status=3, **at)
        self.assertIn("rank 1: ", done.stderr)
        self.assertIn("shards", done.stderr)
        self.assertEqual([os.listdir(self.path(folder)) for folder in ("here", "there")], [[], []])

        self.tandem("encode", source, "-k", 2, "-m", 1, "--block-bytes", 1024, "-o", self.path("here/shards"))
        before = self.listing(self.path("here/shards"))
        calls = (("decode", "shards", "-o", "output"), ("verify", "shards"), ("repair", "shards"))
        for words in calls:
            done = self.ok(3, *words, status=3, **at)
            self.assertIn("rank 1: ", done.stderr)
            self.assertIn("shards", done.stderr)
            self.assertEqual(done.stderr.count("tandem-mpi: "), 1, done.stderr)
        # Another set of the same name. A part of the files: files_team_test.
        self.tandem("encode", source, "-k", 2, "-m", 1, "--block-bytes", 1024, "-o", self.path("there/shards"))
        for words in calls:
            done = self.ok(3, *words, status=3, **at)
            self.assertRegex(done.stderr, "rank 1: (the paths hold another set here|this process and process 0 find different shard files)")
        self.assertEqual(self.listing(self.path("here/shards")), before)
        self.assertFalse(os.path.exists(self.path("here/output")))

    def test_wrong_usage(self):
        for rank_count in (1, 3):
            done = self.ok(rank_count, "encode", "/nonexistent", "-k", 2, "-m", 1, "-o", self.path("shards"), status=3)
            self.assertIn("/nonexistent", done.stderr)
            self.assertEqual(done.stderr.count("tandem-mpi: "), 1, done.stderr)
            self.ok(rank_count, "encode", "--no-such-flag", status=2)
        self.ok(2, "encode", "-", "-k", 2, "-m", 1, "-o", self.path("shards"), status=2)
        source = self.write("source.bin", b"content")
        self.ok(2, "encode", source, "-k", 2, "-m", 1, "-o", self.path("shards"), "--set-id", "12", status=2)
        self.ok(2, "encode", source, "-k", 2, "-m", 1, "-o", self.path("shards"), "--dry-run")
        self.assertFalse(os.path.exists(self.path("shards")))
        self.assertIn("--bind-to core", self.ok(2, "encode", source, "-k", 2, "-m", 1, "-o", self.path("shards"), "--pin", status=2).stderr)
        self.assertIn("tandem-mpi", self.ok(2, "--help").stdout)
        help_text = self.ok(2, "decode", "--help-all").stdout
        self.assertNotIn("--salvage", help_text)
        self.assertIn("`tandem devices`", help_text)  # there is no `tandem-mpi devices`
        help_text = self.ok(2, "verify", "--help-all").stdout
        self.assertNotIn("--locate", help_text)
        self.assertIn("Check every block of a set ", help_text)

    def test_failures_are_told_as_json(self):
        source = self.write("source.bin", b"content")
        shards = self.path("shards")
        self.tandem("encode", source, "-k", 2, "-m", 1, "-o", shards)
        for rank in (0, 1):
            done = self.ok(2, "decode", shards, "-o", self.path("copy"), "--json", status=2, on_rank=rank,
                           variables={"TANDEM_BACKEND": "nonsense"})
            report = json.loads(done.stdout)  # one object: rank 0's
            self.assertEqual((report["command"], report["exit_status"], report["paths"]), ("decode", 2, [shards]))
            self.assertIn("nonsense", report["message"])
        script = f"exec '{TANDEM_MPI}' verify folder$OMPI_COMM_WORLD_RANK --json"
        report = json.loads(self.ok(2, "-c", script, program="sh", status=2).stdout)
        self.assertEqual((report["exit_status"], report["status_name"]), (2, "TANDEM_ERROR_INVALID_ARGUMENT"))
        self.assertEqual(report["message"], "rank 1: its arguments are not those of rank 0")

    def test_ranks_that_differ(self):
        source = self.write("source.bin", self.rng.randbytes(50_000))
        encode = ("encode", source, 2, 1, 1024, self.path("shards"))
        for odd, what, status, words in ((1, "k", "INVALID_ARGUMENT", "rank 1: k is 3 here and 2 on rank 0"),
                                         (2, "name", "INVALID_ARGUMENT", "rank 2: name is other"),
                                         (0, "k", "INVALID_ARGUMENT", "rank 1: k is 2 here and 3 on rank 0"),
                                         (1, "source", "INVALID_ARGUMENT", "rank 1: source_path"),
                                         (2, "struct", "INVALID_ARGUMENT", "rank 2: tandem_files_encode_options")):
            self.assertIn(words, self.refused(3, status, *encode, odd, what))
        self.assertFalse(os.path.exists(self.path("shards")))
        self.assertEqual({rank[0] for rank in self.job(3, *encode, 1, "context")}, {"TANDEM_OK"})  # NULL: the process's
        self.assertEqual(self.refused(4, "TOO_LARGE", "agree", 3), "rank 3: a test")
        script = f'exec {TANDEM_MPI} encode {source} -k $((2 + OMPI_COMM_WORLD_RANK)) -m 1 -o {self.path("shards")}'
        done = self.ok(2, "-c", script, program="/bin/sh", status=2)
        self.assertIn("rank 1: its arguments are not those of rank 0", done.stderr)
        for rank_count in (1, 2):
            self.assertIn("salvage is for one process", self.refused(rank_count, "INVALID_ARGUMENT", "salvage", self.path("shards")))

    def test_a_source_that_changes_and_a_cancel(self):
        encode = ("encode", self.path("source.bin"), 8, 1, 4096, self.path("shards"))
        for odd, what, status, words in ((1, "cut", "IO", "source.bin"), (0, "grow", "IO", "source.bin changed while it was read"),
                                         (1, "cancel", "CANCELLED", "rank 1: cancelled")):
            self.write("source.bin", bytes(60 << 20))
            self.assertIn(words, self.refused(2, status, *encode, odd, what))
            self.assertFalse(os.path.exists(self.path("shards")))

    def test_communicators_that_are_none(self):
        done = self.ok(1, "none", program=JOB)
        self.assertIn("0 TANDEM_OK refused=0 refused=1 refused=2 |", done.stdout)

    def test_threads(self):
        ranks = self.job(2, "threads")
        cores = len(os.sched_getaffinity(0))
        for status, numbers, message in ranks:
            self.assertEqual((status, int(numbers["threads"])), ("TANDEM_OK", max(cores // 2, 1)), message)

    def test_threads_of_bound_ranks(self):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2 or shutil.which("taskset") is None:
            self.skipTest("needs two cores and taskset")
        # A core of its own and half of another one: a half is none, a rank has one thread at least.
        for of_rank_1, expected in ((cores[0], [len(cores) - 1, 1]), (f"{cores[0]},{cores[1]}", [max(len(cores) - 1, 1), 1])):
            ranks = self.job(2, "threads", on_rank=1, cores=of_rank_1)
            self.assertEqual([int(rank[1]["threads"]) for rank in ranks], expected, f"rank 1 on {of_rank_1} of {cores}")


@unittest.skipUnless(FAULT, "faults are not preloaded in this build")
class FailingRanks(MpiTest):
    """A rank dies, or its disk is full, at a call that changes files."""

    def fault(self, rank, **settings):
        variables = {"LD_PRELOAD": FAULT, "TANDEM_FAULT_PATH": self.path("work"),
                     "TANDEM_FAULT_CALLS": "create,write,rename,renameat2,link,unlink,ftruncate,fsync"}
        variables |= {f"TANDEM_FAULT_{name}": str(value) for name, value in settings.items()}
        return {"on_rank": rank, "variables": variables}

    def count(self, rank, rank_count, *words, program):
        log = self.path("log")
        self.ok(rank_count, *words, program=program, **self.fault(rank, LOG=log))
        calls = len(self.read(log).splitlines())
        os.remove(log)
        self.assertGreater(calls, 0)
        return calls

    def points(self, calls):
        """The first, the last and some at random."""
        if ALL or calls <= 10:
            return range(1, calls + 1)
        return sorted({1, calls} | set(self.rng.sample(range(1, calls + 1), min(calls, 3))))

    def old_set(self):
        old = self.rng.randbytes(150_000)
        self.encode = ("encode", self.write("source.bin", old), "-k", 2, "-m", 2, "--block-bytes", 4096, "-o",
                       self.path("work/a"), "-o", self.path("work/b"), "--force")
        os.makedirs(self.path("work"))
        self.tandem(*self.encode)
        new = self.rng.randbytes(160_000)
        self.write("source.bin", new)
        return old, new

    def decoded(self):
        self.tandem("decode", self.path("work/a"), self.path("work/b"), "-o", self.path("decoded"), "--force")
        self.assertEqual([name for folder in ("work/a", "work/b") for name in os.listdir(self.path(folder))
                          if not re.fullmatch(r"source\.bin\.\d{3}\.tandem", name)], [])
        return self.read(self.path("decoded"))

    def test_encode_with_a_rank_that_dies(self):
        old, new = self.old_set()
        shutil.copytree(self.path("work"), self.path("before"))
        for rank in (0, 1):
            calls = self.count(rank, 2, *self.encode, program=TANDEM_MPI)
            self.assertEqual(self.decoded(), new)
            for point in self.points(calls):
                shutil.rmtree(self.path("work"))
                shutil.copytree(self.path("before"), self.path("work"))
                done = self.mpirun(2, *self.encode, **self.fault(rank, ACTION="kill", AT=point))
                self.assertNotEqual(done.status, 0)
                found = self.decoded()
                self.assertIn(found, (old, new), f"rank {rank} killed at {point} of {calls}, seed {SEED}")
                if rank == 1:  # it does not lead: without it there is no new set
                    self.assertEqual(found, old, f"rank {rank} killed at {point} of {calls}, seed {SEED}")

    def test_encode_with_a_full_disk(self):
        old, new = self.old_set()
        for rank, calls, at in ((1, "write", 2), (0, "write", 3), (1, "fsync", 1), (0, "create", 2)):
            done = self.ok(3, *self.encode, status=3, **self.fault(rank, ACTION="fail", AT=at, ERRNO=28, CALLS=calls))
            self.assertIn(f"rank {rank}: ", done.stderr)
            self.assertIn("No space left", done.stderr)
            self.assertEqual(self.decoded(), old)
        self.ok(3, *self.encode)
        self.assertEqual(self.decoded(), new)

    def test_decode_with_a_rank_that_dies_or_fails(self):
        content = self.rng.randbytes(150_000)
        self.tandem("encode", self.write("source.bin", content), "-k", 2, "-m", 1, "--block-bytes", 1024, "-o", self.path("shards"))
        self.write("work/output", b"old")
        decode = ("decode", self.path("shards"), "-o", self.path("work/output"), "--force")
        for rank in (0, 1):
            calls = self.count(rank, 2, *decode, program=TANDEM_MPI)
            for point in self.points(calls):
                self.write("work/output", b"old")
                self.mpirun(2, *decode, **self.fault(rank, ACTION="kill", AT=point))
                self.assertIn(self.read(self.path("work/output")), (b"old", content), f"seed {SEED}")
            self.write("work/output", b"old")
            done = self.ok(2, *decode, status=3, **self.fault(rank, ACTION="fail", ERRNO=28, AT=1, CALLS="write"))
            self.assertIn(f"rank {rank}: ", done.stderr)
            self.assertEqual(self.read(self.path("work/output")), b"old")
        self.ok(2, *decode)
        self.assertEqual(os.listdir(self.path("work")), ["output"])  # what the killed ones left is gone

    def test_repair_with_a_rank_that_dies_or_fails(self):
        source = self.write("source.bin", self.rng.randbytes(300_000))
        self.tandem("encode", source, "-k", 3, "-m", 2, "--block-bytes", 1024, "-o", self.path("work"))
        whole = self.listing(self.path("work"))
        os.remove(self.path("work/source.bin.001.tandem"))  # one to rebuild, one to mend, over all ranks' parts
        for stripe in range(0, 98, 7):
            self.overwrite(self.path("work/source.bin.003.tandem"), 4096 + stripe * 1024 + 5, b"!?")
        shutil.copytree(self.path("work"), self.path("before"))
        repair = ("repair", self.path("work"))

        def again():
            shutil.rmtree(self.path("work"))
            shutil.copytree(self.path("before"), self.path("work"))

        for rank in (0, 1):
            again()
            calls = self.count(rank, 2, *repair, program=TANDEM_MPI)
            self.assertEqual(self.listing(self.path("work")), whole)
            for point in self.points(calls):
                again()
                done = self.mpirun(2, *repair, **self.fault(rank, ACTION="kill", AT=point))
                self.assertNotEqual(done.status, 0)
                self.ok(2, *repair)
                self.assertEqual(self.listing(self.path("work")), whole, f"rank {rank} killed at {point} of {calls}, seed {SEED}")
            again()
            done = self.ok(2, *repair, status=3, **self.fault(rank, ACTION="fail", ERRNO=28, AT=1, CALLS="write"))
            self.assertIn(f"rank {rank}: cannot write", done.stderr)
            self.assertIn("No space left", done.stderr)
            self.assertEqual(set(os.listdir(self.path("work"))) - set(whole), set())
            self.ok(2, *repair)
            self.assertEqual(self.listing(self.path("work")), whole)
            # A file that lacks what one rank should have written gets no name.
            os.remove(self.path("work/source.bin.001.tandem"))
            without = self.listing(self.path("work"))
            self.ok(2, *repair, status=3, **self.fault(rank, ACTION="fail", ERRNO=28, AT=1, CALLS="write"))
            self.assertEqual(self.listing(self.path("work")), without)

    def checkpoint(self, step):
        """Files of 3 ranks, and those of rank 1."""
        contents = [self.rng.randbytes(length) for length in (70_001, 90_000, 12)]
        for rank, content in enumerate(contents):
            self.write(f"work/{rank}/{step}", content)
        return contents

    def lose(self, rank):
        shutil.rmtree(self.path("work", str(rank)))

    def test_protect_with_a_rank_that_dies(self):
        for victim in (0, 1):
            shutil.rmtree(self.path("work"), True)
            protect = lambda step: ("protect", 2, 1, 0, "state", self.path("work/{r}/parity"), 16384,
                                    self.path("work/{r}", step))
            old = self.checkpoint("old")
            self.job(3, *protect("old"))
            new = self.checkpoint("new")
            shutil.copytree(self.path("work"), self.path("before"), dirs_exist_ok=True)
            calls = self.count(victim, 3, *protect("new"), program=JOB)
            for point in self.points(calls):
                shutil.rmtree(self.path("work"))
                shutil.copytree(self.path("before"), self.path("work"))
                self.mpirun(3, *protect("new"), program=JOB, **self.fault(victim, ACTION="kill", AT=point))
                self.lose(victim)
                ranks = self.job(3, "recover", "state", self.path("work/{r}/parity"), "keep", 16384)
                why = f"rank {victim} killed at {point} of {calls}, seed {SEED}: {ranks}"
                self.assertEqual({rank[0] for rank in ranks}, {"TANDEM_OK"}, why)
                step, contents = {"1": ("old", old), "2": ("new", new)}[ranks[0][1]["sequence"]]
                for rank in range(3):
                    self.assertEqual(self.read(self.path(f"work/{rank}/{step}")), contents[rank], why)
            shutil.rmtree(self.path("before"))

    def test_protect_with_a_full_disk(self):
        old = self.checkpoint("old")
        protect = ("protect", 2, 1, 0, "state", self.path("work/{r}/parity"), 16384)
        self.job(3, *protect, self.path("work/{r}/old"))
        self.checkpoint("new")
        before = self.listing(self.path("work/2/parity"))
        for rank, calls, at in ((1, "write", 2), (0, "create", 1), (2, "fsync", 1), (2, "renameat2", 1)):
            message = self.refused(3, "IO", *protect, self.path("work/{r}/new"),
                                   **self.fault(rank, ACTION="fail", AT=at, ERRNO=28, CALLS=calls))
            self.assertRegex(message, f"^rank {rank}: .*No space left")
            self.assertEqual(self.listing(self.path("work/2/parity")), before)
        self.lose(1)
        ranks = self.job(3, "recover", "state", self.path("work/{r}/parity"), "keep", 16384)
        self.assertEqual({rank[1].get("sequence") for rank in ranks}, {"1"}, ranks)
        self.assertEqual(self.read(self.path("work/1/old")), old[1])

    def test_protect_syncs_the_files(self):
        self.checkpoint("state")
        log = self.path("log")
        self.job(3, "protect", 2, 1, 0, "state", self.path("work/{r}/a/parity"), 16384, self.path("work/{r}/state"),
                 **self.fault(1, LOG=log, CALLS="fsync"))
        synced = {line.split("\t")[5] for line in self.read(log).decode().splitlines()}
        self.assertLessEqual({self.path("work/1/state"), self.path("work/1"), self.path("work/1/a")}, synced)

    def test_recover_with_a_rank_that_dies_or_fails(self):
        contents = self.checkpoint("state")
        self.job(3, "protect", 2, 1, 0, "state", self.path("work/{r}/parity"), 16384, self.path("work/{r}/state"))
        shutil.copytree(self.path("work"), self.path("before"))
        recover = ("recover", "state", self.path("work/{r}/parity"), "keep", 16384)
        self.lose(1)
        calls = self.count(1, 3, *recover, program=JOB)
        for point in self.points(calls):
            shutil.rmtree(self.path("work"))
            shutil.copytree(self.path("before"), self.path("work"))
            self.lose(1)
            self.mpirun(3, *recover, program=JOB, **self.fault(1, ACTION="kill", AT=point))
            self.job(3, *recover)
            for rank in range(3):
                self.assertEqual(self.read(self.path(f"work/{rank}/state")), contents[rank], f"point {point}, seed {SEED}")
            self.assertEqual(len(os.listdir(self.path("work/1"))), 2)  # no temporary is left
            self.assertEqual(len(os.listdir(self.path("work/1/parity"))), 1)
        self.lose(1)
        message = self.refused(3, "IO", *recover, **self.fault(1, ACTION="fail", ERRNO=28, AT=2, CALLS="write"))
        self.assertIn("rank 1: cannot write", message)
        self.assertIn("No space left", message)
        message = self.refused(3, "IO", *recover, on_rank=1, variables={"JOB_FILE_BYTES": 80_000})  # no signal
        self.assertRegex(message, "rank 1: cannot write .*File too large")


def multiply(a, b):
    product = 0
    while b:
        product ^= a if b & 1 else 0
        a = a << 1 ^ (0x11D if a & 0x80 else 0)
        b >>= 1
    return product


def redset_matrix(ranks, encoding):
    """The rows for parity of redset's matrix, as build_vandermonde of redset_reedsolomon_common.c: powers of the row's
    number, brought to the identity in its upper part by operations on columns."""
    rows = ranks + encoding
    matrix = []
    for row in range(rows):
        power, line = 1, []
        for _ in range(ranks):
            line.append(power)
            power = multiply(power, row)
        matrix.append(line)
    inverse = {a: b for a in range(1, 256) for b in range(1, 256) if multiply(a, b) == 1}
    for at in range(ranks):
        pivot = next(column for column in range(at, ranks) if matrix[at][column])
        for line in matrix:
            line[at], line[pivot] = line[pivot], line[at]
        scale = inverse[matrix[at][at]]
        for line in matrix:
            line[at] = multiply(line[at], scale)
        for column in range(ranks):
            factor = matrix[at][column]
            if column == at or factor == 0:
                continue
            for line in matrix:
                line[column] ^= multiply(factor, line[at])
    return matrix[ranks:]


assert redset_matrix(4, 2) == [[27, 28, 18, 20], [28, 27, 20, 18]]  # as redset's source says


class Protection(MpiTest):
    def prepare(self, lengths):
        """Two files a rank, of these lengths together; for rank i."""
        self.contents = []
        for rank, length in enumerate(lengths):
            content = self.rng.randbytes(length)
            cut = length // 3
            self.write(f"{rank}/a", content[:cut])
            self.write(f"{rank}/b", content[cut:])
            self.contents.append(content)

    def protect(self, k, m, matrix=0, piece=64, name="state"):
        words = ("protect", k, m, matrix, name, self.path("{r}/parity"), piece, self.path("{r}/a"), self.path("{r}/b"))
        return self.job(len(self.contents), *words)

    def recover(self, rank_count, mode="keep", folder="{r}/parity", name="state"):
        return ("recover", name, self.path(folder), mode, 4096)

    def check(self):
        for rank, content in enumerate(self.contents):
            self.assertEqual(self.read(self.path(f"{rank}/a")) + self.read(self.path(f"{rank}/b")), content, f"rank {rank}")

    def test_any_two_of_four_are_rebuilt(self):
        self.prepare((10_000, 0, 7_777, 12_345))
        ranks = self.protect(2, 2)
        for status, numbers, message in ranks:
            self.assertEqual(status, "TANDEM_OK", message)
            segment = (12_345 + 1) // 2
            self.assertEqual(int(numbers["segment"]), segment)
            self.assertEqual(int(numbers["sent"]), 3 * segment)  # k + m - 1: the lower bound
        for first in range(4):
            for second in range(first):
                for rank in (first, second):
                    shutil.rmtree(self.path(str(rank)))
                found = self.job(4, *self.recover(4))
                self.assertEqual({(rank[0], rank[1]["lost"], rank[1]["lost_parity"]) for rank in found}, {("TANDEM_OK", "2", "2")}, found)
                self.check()

    def test_groups_and_fewer_ranks(self):
        self.prepare((5_000, 6_000, 7_000, 8_000, 900, 10_000, 11_000, 12_000))
        ranks = self.protect(3, 1, matrix=2, piece=1024)
        self.assertEqual({rank[1]["groups"] for rank in ranks}, {"2"})
        groups = [int(rank[1]["group"]) for rank in ranks]
        lost = [groups.index(0), groups.index(1)]
        # A new job of 3 ranks that sees all folders: each stands for several of the old ones.
        os.mkdir(self.path("all"))
        for rank in range(8):
            for file in glob.glob(self.path(str(rank), "parity", "*")):
                os.rename(file, self.path("all", os.path.basename(file)))
        for rank in lost:
            shutil.rmtree(self.path(str(rank)))
            for file in glob.glob(self.path("all", f"state.{rank:05}.*")):
                os.remove(file)
        found = self.job(3, *self.recover(3, folder="all"))
        self.assertEqual({rank[0] for rank in found}, {"TANDEM_OK"}, found)
        self.check()
        self.assertEqual(len(os.listdir(self.path("all"))), 8)
        mate = max(rank for rank in range(7) if groups[rank] == groups[7])
        shutil.rmtree(self.path("7"))
        os.rename(self.path(str(mate)), self.path("elsewhere"))  # one too many of a group
        self.refused(1, "NOT_RECOVERABLE", *self.recover(1, folder="all"))
        os.rename(self.path("elsewhere"), self.path(str(mate)))
        self.job(1, *self.recover(1, folder="all"))
        self.check()

    def test_too_many_lost(self):
        self.prepare((1000, 2000, 3000))
        self.protect(2, 1)
        shutil.rmtree(self.path("0"))
        self.overwrite(self.path("2/b"), 0, b"!")
        before = self.read(self.path("2/b"))
        message = self.refused(3, "NOT_RECOVERABLE", *self.recover(3))
        self.assertIn("2 of its 3 ranks have lost what the others need (ranks 0, 2), at most 1 may", message)
        self.assertFalse(os.path.exists(self.path("0")))
        self.assertEqual(self.read(self.path("2/b")), before)
        message = self.refused(3, "NOT_RECOVERABLE", *self.recover(3, name="other"))
        self.assertIn("no parity of the name other", message)

    def test_changed_files_need_force(self):
        self.prepare((1000, 2000, 3000))
        self.protect(2, 1)
        changed = self.write("1/b", b"newer")
        message = self.refused(3, "IO", *self.recover(3))
        self.assertIn("rank 1: ", message)
        self.assertIn("set force", message)
        self.assertEqual(self.read(changed), b"newer")
        self.job(3, *self.recover(3, mode="force"))
        self.check()

    def test_files_of_a_rank_are_replaced_one_by_one(self):
        self.prepare((1000, 2000, 3000))
        self.protect(2, 1)
        os.remove(self.path("1/a"))
        kept = os.stat(self.path("1/b"))
        found = self.job(3, *self.recover(3))
        self.assertEqual([(rank[0], rank[1].get("restored")) for rank in found],
                         [("TANDEM_OK", path) for path in (None, "1:" + self.path("1/a"), None)], found)
        self.check()
        self.assertEqual(os.stat(self.path("1/b")).st_ino, kept.st_ino)
        # One that differs in a byte is refused, and nothing is written.
        os.remove(self.path("1/a"))
        self.overwrite(self.path("1/b"), 77, b"!!")
        changed = self.read(self.path("1/b"))
        message = self.refused(3, "IO", *self.recover(3))
        self.assertIn(f"rank 1: {self.path('1/b')} is not as it was", message)
        self.assertEqual(self.read(self.path("1/b")), changed)
        self.assertEqual(sorted(os.listdir(self.path("1"))), ["b", "parity"])
        self.job(3, *self.recover(3, mode="force"))
        self.check()

    def test_a_header_that_lies_counts_as_lost(self):
        def write(at, word, seal):
            self.overwrite(path, at, word)
            if seal:
                self.ok(1, "seal", path, program=JOB)

        def number(value):
            return value.to_bytes(4, "little")

        self.prepare((1000, 2000, 3000))
        self.protect(2, 1)
        path, = glob.glob(self.path("0/parity/*"))
        whole = self.read(path)
        for changes in (((68, number(0xFFFFFFFF)),),  # groups
                        ((68, number(2)), (72, number(1))),  # groups and group
                        ((48, number(9)), (64, number(16))),  # sequence and a matrix over GF(2^16)
                        ((48, number(7)), (68, number(0x7FFFFFFF)))):
            for change in changes[:-1]:
                write(*change, False)
            write(*changes[-1], True)
            found = self.job(3, *self.recover(3))
            self.assertEqual({(rank[0], rank[1].get("lost_parity")) for rank in found}, {("TANDEM_OK", "1")}, (changes, found))
            self.assertEqual(self.read(path), whole)
        write(24, number(2), False)  # a damaged version stops no rank
        found = self.job(3, *self.recover(3))
        self.assertEqual(found[0][1]["lost_parity"], "1")
        write(24, number(2), False)
        self.assertEqual({rank[0] for rank in self.protect(2, 1)}, {"TANDEM_OK"})
        path, = glob.glob(self.path("0/parity/*"))
        write(24, number(2), True)  # a newer one does
        self.assertIn("has version 2; this library reads 1", self.refused(3, "UNSUPPORTED", *self.recover(3)))

    def test_a_file_counts_once(self):
        self.prepare((1000, 2000, 3000))
        words = ("protect", 2, 1, 0, "state", self.path("{r}/parity"), 64)
        message = self.refused(3, "INVALID_ARGUMENT", *words, self.path("{r}/a"), self.path(".", "{r}/a"))
        self.assertIn("are one file", message)
        message = self.refused(3, "INVALID_ARGUMENT", *words, self.path("0/a"))
        self.assertIn("0/a is a file of another rank too", message)
        self.assertEqual(glob.glob(self.path("*/parity/*")), [])

    def test_a_file_that_changes_while_it_is_read(self):
        self.prepare((200_000, 150_000, 100_000))
        self.protect(2, 1, piece=1024)
        before = [self.listing(self.path(str(rank), "parity")) for rank in range(3)]
        for rank, how in ((1, "cut"), (2, "grow"), (0, "touch")):
            words = ("change", rank, how, 2, 1, 0, "state", self.path("{r}/parity"), 1024, self.path("{r}/a"), self.path("{r}/b"))
            message = self.refused(3, "IO", *words)
            self.assertRegex(message, f"^rank {rank}: {self.path(str(rank))}/a changed")
            self.assertEqual([self.listing(self.path(str(each), "parity")) for each in range(3)], before)
        self.assertEqual({rank[0] for rank in self.protect(2, 1)}, {"TANDEM_OK"})

    def test_recovery_on_more_ranks(self):
        self.prepare((1000, 2000, 3000))
        self.protect(2, 1)
        shutil.rmtree(self.path("2"))
        found = self.job(5, *self.recover(5))
        self.assertEqual({(rank[0], rank[1]["lost"]) for rank in found}, {("TANDEM_OK", "1")}, found)
        self.check()

    def test_damaged_parity_is_rebuilt(self):
        self.prepare((1000, 2000, 3000))
        self.protect(2, 1)
        paths = [glob.glob(self.path(str(rank), "parity", "*"))[0] for rank in range(3)]
        before = [self.read(path) for path in paths]
        self.overwrite(paths[0], 5000, b"damage")  # parity
        found = self.job(3, *self.recover(3))
        self.assertEqual((found[0][1]["lost"], found[0][1]["lost_parity"]), ("0", "1"))
        self.assertEqual([self.read(path) for path in paths], before)
        self.overwrite(paths[2], 100, b"damage")  # header
        found = self.job(3, *self.recover(3))
        self.assertEqual(found[0][1]["lost_parity"], "1")
        self.assertEqual([self.read(path) for path in paths], before)

    @unittest.skipUnless(os.geteuid() == 0, "only root gives files away")
    def test_parity_of_another_user_is_ignored(self):
        self.prepare((1000, 2000, 3000))
        self.protect(2, 1)
        for rank in range(3):
            try:
                os.chown(glob.glob(self.path(str(rank), "parity", "*"))[0], 12345, -1)
            except OSError as error:
                self.skipTest(f"this root cannot give files away: {error}")
        shutil.rmtree(self.path("1"))
        self.assertIn("no parity of the name state", self.refused(3, "NOT_RECOVERABLE", *self.recover(3)))
        self.assertFalse(os.path.exists(self.path("1")))

    def test_bad_arguments(self):
        self.prepare((10, 10, 10, 10))
        def words(k, m, matrix=0, name="state", piece=64, file="a"):
            return ("protect", k, m, matrix, name, self.path("{r}/parity"), piece, self.path("{r}", file))
        for arguments, status, text in ((words(4, 1), "INVALID_ARGUMENT", "a group of k + m has 5 ranks, and the communicator has 4"),
                                        (words(5, 1), "INVALID_ARGUMENT", "a group of k + m has 6 ranks, and the communicator has 4"),
                                        (words(0, 4), "INVALID_ARGUMENT", "k is 0"),
                                        (words(2, 1), "INVALID_ARGUMENT", "4 ranks, which is no multiple of k + m = 3"),
                                        (words(4, 0), "INVALID_ARGUMENT", "m is 0"),
                                        (words(2, 2, matrix=16), "UNSUPPORTED", "GF(2^16)"),
                                        (words(2, 2, name="a/b"), "INVALID_ARGUMENT", "cannot be a name"),
                                        (words(2, 2, piece=100), "INVALID_ARGUMENT", "piece_bytes is 100"),
                                        (words(2, 2, file="none"), "IO", "none: No such file")):
            self.assertIn(text, self.refused(4, status, *arguments))
        self.assertEqual(glob.glob(self.path("*/parity/*")), [])

    def test_parity_is_redsets(self):
        for k, m in ((3, 1), (2, 2), (1, 3)):
            n = k + m
            self.prepare([self.rng.randrange(400) for _ in range(n)])
            members = [int(rank[1]["member"]) for rank in self.protect(k, m, matrix=2, name=f"of{m}")]
            chunk = max(-(-max(map(len, self.contents)) // k), 1)
            matrix = redset_matrix(n, m)
            by_member = [self.contents[members.index(i)].ljust(k * chunk, b"\0") for i in range(n)]
            for rank in range(n):
                path, = glob.glob(self.path(str(rank), "parity", f"of{m}.*"))
                stored = self.read(path)[-m * chunk:]
                for i in range(m):
                    chunk_id = (members[rank] + i) % n
                    expected = bytearray(chunk)
                    for other in range(n):
                        # redset_rs_get_data_id
                        if (chunk_id - other) % n < m:
                            continue
                        number = chunk_id - (m if chunk_id > other else 0)
                        number -= max(other + m - n, 0)
                        for at, byte in enumerate(by_member[other][number * chunk:(number + 1) * chunk]):
                            expected[at] ^= multiply(matrix[i][other], byte)
                    self.assertEqual(stored[i * chunk:(i + 1) * chunk], bytes(expected), f"k={k} m={m} rank {rank} block {i}")

    def test_the_example_goes_on_after_a_loss(self):
        whole = self.ok(3, self.path("whole"), 25, program=CHECKPOINT).stdout.splitlines()[-1]
        self.assertRegex(whole, "^step 25, sum [1-9]")
        state = self.path("state")
        self.ok(3, state, 20, program=CHECKPOINT)
        shutil.rmtree(os.path.join(state, "rank-1"))
        lines = self.ok(3, state, 25, program=CHECKPOINT).stdout.splitlines()
        self.assertEqual(lines, ["step 20 recovered, 1 ranks were lost", whole])
        for rank in range(2):
            shutil.rmtree(os.path.join(state, f"rank-{rank}"))
        self.assertEqual(self.ok(3, state, 25, program=CHECKPOINT).stdout.splitlines(), [whole])  # from the beginning
        # Beside an older checkpoint that cannot be recovered.
        shutil.rmtree(state)
        self.ok(3, state, 10, program=CHECKPOINT)
        for rank in range(2):
            shutil.rmtree(os.path.join(state, f"rank-{rank}"))
        self.ok(3, state, 20, program=CHECKPOINT)
        shutil.rmtree(os.path.join(state, "rank-1"))
        lines = self.ok(3, state, 25, program=CHECKPOINT).stdout.splitlines()
        self.assertEqual(lines, ["step 20 recovered, 1 ranks were lost", whole])


if __name__ == "__main__":
    print(f"seed {SEED}: TANDEM_TEST_SEED={SEED} repeats this run", flush=True)
    # `mpirun` says "Open MPI", `mpiexec` "OpenRTE"; both give the address of open-mpi.org.
    if b"open-mpi.org" not in subprocess.run([MPIRUN, "--version"], capture_output=True, env=ENVIRONMENT).stdout:
        print(f"NOT RUN: {MPIRUN} is not Open MPI's, and this test uses Open MPI's flags")
        sys.exit(77)

    def cases(suite):
        for each in suite:
            yield from [each] if isinstance(each, unittest.TestCase) else cases(each)

    def run(case):
        result = unittest.TestResult()
        case.run(result)
        word = "ok" if result.wasSuccessful() else "FAILED"
        word = f"NOT RUN: {result.skipped[0][1]}" if result.skipped else word
        print(f"{case.id()} ... {word}", flush=True)
        for _, text in result.failures + result.errors:
            print(text, flush=True)
        return result.wasSuccessful()

    # Starting and ending a job is waiting for the most part.
    with ThreadPoolExecutor(4) as pool:
        loader, module = unittest.defaultTestLoader, sys.modules["__main__"]
        suite = loader.loadTestsFromNames(sys.argv[1:], module) if sys.argv[1:] else loader.loadTestsFromModule(module)
        ended = list(pool.map(run, cases(suite)))
    print(f"{ended.count(True)} of {len(ended)} tests passed", flush=True)
    sys.exit(0 if ended and all(ended) else 1)
