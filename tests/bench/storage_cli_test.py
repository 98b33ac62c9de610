#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tandem-bench simulate storage` as a user calls it. Usage: storage_cli_test.py PATH_OF_TANDEM_BENCH [unittest arguments]"""
import copy
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BENCH = os.path.abspath(sys.argv.pop(1))
SMALL = ("--servers", 8, "--clients", 40, "--application", 20, "--seconds", 5)


def side(size, count, latencies):
    """What fio writes of one direction of a job."""
    return {"total_ios": count, "io_bytes": size * count, "clat_ns": latencies}


def bins(*pairs):
    return {"bins": {str(nanoseconds): count for nanoseconds, count in pairs}}


IDLE = {"total_ios": 0, "io_bytes": 0, "clat_ns": {"min": 0, "max": 0}}
FIO = {"fio version": "fio-3.33", "global options": {"iodepth": "4", "bs": "64k"},
       "jobs": [{"jobname": "r", "job options": {"rw": "randread"}, "read": side(65536, 100, bins((1000000, 50), (3000000, 50))),
                 "write": IDLE},
                {"jobname": "w", "job options": {"rw": "randwrite", "numjobs": "2", "iodepth": "2"}, "read": IDLE,
                 "write": side(65536, 100, {"percentile": {"1.000000": 2000000, "99.000000": 4000000}})}]}


class Storage(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="tandem-storage-")
        self.addCleanup(shutil.rmtree, self.root, True)

    def run_command(self, *arguments, status=0):
        done = subprocess.run([BENCH, "simulate", "storage", *map(str, arguments)], capture_output=True, timeout=120)
        self.assertEqual(done.returncode, status, (arguments, done.stderr.decode()))
        if status != 0:
            self.assertEqual(done.stdout, b"")
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr.decode())
        return done

    def json(self, *arguments):
        return json.loads(self.run_command(*arguments, "--json").stdout)

    def refused(self, text, *arguments, status=2):
        self.assertIn(text, self.run_command(*arguments, status=status).stderr.decode())

    def fio(self, content):
        path = os.path.join(self.root, "fio.json")
        with open(path, "w") as file:
            file.write(content if isinstance(content, str) else json.dumps(content))
        return path

    def test_json(self):
        found = self.json(*SMALL, "--device", "hdd,ssd", "--parity", "1,2", "--seeds", 2, "--seed", 5)
        self.assertEqual(found["schema_version"], 1)
        self.assertEqual(found["width"], 8)
        self.assertEqual(set(found["devices"]), {"hdd", "ssd"})
        self.assertEqual(found["devices"]["ssd"]["channels"], 8)
        runs = found["runs"]
        self.assertEqual(len(runs), 2 * 2 * 4)
        for run in runs:
            self.assertEqual([seed["seed"] for seed in run["seeds"]], [5, 6])
            self.assertGreater(run["bytes_per_second"], 0)
            for seed in run["seeds"]:
                self.assertLessEqual(seed["simulated_seconds"], 5)
                self.assertGreater(seed["events"], 0)
        standard = [run for run in runs if run["strategy"] == "standard"]
        self.assertTrue(all(run["over_standard"] == 1 for run in standard))
        without = [run for run in runs if run["strategy"] == "raid0" and run["device"] == "hdd"]
        self.assertEqual(without[0]["seeds"], without[1]["seeds"])

    def test_no_standard_no_ratio(self):
        found = self.json(*SMALL, "--strategy", "avoid,delayed-move")
        self.assertEqual([run["over_standard"] for run in found["runs"]], [None, None])
        self.assertGreater(found["runs"][1]["seeds"][0]["move_writes"], 0)

    def test_strong_scaling(self):
        runs = self.json(*SMALL[:2], "--total", "8MiB", "--size", "64KiB,256KiB", "--seconds", 1, "--strategy", "raid0")["runs"]
        self.assertEqual([(run["clients"], run["size_bytes"]) for run in runs], [(128, 65536), (32, 262144)])

    def test_mixed_sizes_reads_and_parity_servers(self):
        words = (*SMALL, "--size", "8KiB,1MiB", "--mix", "--reads", "0.25", "--parity-servers", "dedicated", "--strategy", "standard")
        found = self.json(*words)
        self.assertEqual((found["mixed_bytes"], found["read_part"], found["parity_servers"]), ([8192, 1048576], 0.25, "dedicated"))
        run, = found["runs"]
        seed, = run["seeds"]
        self.assertEqual(run["size_bytes"], 1048576)
        self.assertAlmostEqual(seed["reads"] / (seed["reads"] + seed["writes"]), 0.25, delta=0.1)
        self.assertGreater(seed["read_seconds"], 0)
        self.assertGreater(seed["most_utilisation"], 1.5 * seed["utilisation"])
        self.refused("--mix needs several --size", *SMALL, "--mix")
        self.refused("--mix needs several --size", "--total", "8MiB", "--size", "8KiB,64KiB", "--mix")
        self.refused("--mix needs scattered", *SMALL, "--size", "8KiB,64KiB", "--mix", "--placement", "interleaved")
        self.refused("--reads is 1", *SMALL, "--reads", 1)

    def test_table(self):
        lines = self.run_command(*SMALL, "--device", "constant", "--service", "1ms").stdout.decode().splitlines()
        self.assertIn("OVER STD", lines[2])
        self.assertEqual([line.split()[4] for line in lines[3:]], ["raid0", "standard", "avoid", "delayed"])
        self.assertEqual(self.run_command(*SMALL, "--quiet").stdout, b"")

    def test_fio(self):
        found = self.json("--fio", self.fio(FIO), "--servers", 1, "--clients", 1, "--strategy", "raid0", "--size", "64KiB",
                          "--latency", "0us", "--link", 0, "--client-link", 0, "--seconds", 100, "--confidence", 0)
        self.assertEqual(found["devices"]["fio"]["channels"], 4)
        # Percentiles 1 and 99 with a line between them.
        self.assertAlmostEqual(found["runs"][0]["seeds"][0]["write_seconds"], 3e-3, delta=3e-5)
        more = self.json("--fio", self.fio(FIO), "--device", "ssd", *SMALL)
        self.assertEqual({run["device"] for run in more["runs"]}, {"ssd", "fio"})

    def test_broken_fio(self):
        def broken(text, change):
            content = copy.deepcopy(FIO)
            change(content["jobs"])
            self.refused(text, "--fio", self.fio(content), *SMALL)

        self.refused("is not JSON", "--fio", self.fio('{"jobs": ['), *SMALL)
        self.refused("is not JSON", "--fio", self.fio(""), *SMALL)
        self.refused('has no list "jobs"', "--fio", self.fio("[]"), *SMALL)
        self.refused('has no list "jobs"', "--fio", self.fio({"jobs": 3}), *SMALL)
        self.refused("no job reads", "--fio", self.fio({"jobs": []}), *SMALL)
        self.refused("No such file", "--fio", os.path.join(self.root, "none.json"), *SMALL, status=3)
        self.refused("Is a directory", "--fio", self.root, *SMALL, status=3)
        broken("a job is no object", lambda jobs: jobs.append(7))
        broken("no job writes", lambda jobs: jobs.pop())
        broken("read of a job has no number total_ios", lambda jobs: jobs[0]["read"].pop("total_ios"))
        broken("write of a job has no number io_bytes", lambda jobs: jobs[1]["write"].update(io_bytes=-4096))
        broken("requests of 0 bytes", lambda jobs: jobs[0]["read"].update(io_bytes=5))
        broken("has no clat_ns", lambda jobs: jobs[0]["read"].pop("clat_ns"))
        broken("neither bins nor percentiles", lambda jobs: jobs[0]["read"]["clat_ns"].clear())
        broken("clat_ns has \"x\"", lambda jobs: jobs[0]["read"]["clat_ns"]["bins"].update(x=1))
        broken("clat_ns has \"5\": -1", lambda jobs: jobs[0]["read"]["clat_ns"]["bins"].update({"5": -1}))
        broken("are all 0", lambda jobs: jobs[0]["read"]["clat_ns"].update(bins(("5", 0))))
        broken("percentile 200", lambda jobs: jobs[1]["write"]["clat_ns"]["percentile"].update({"200.0": 5000000}))
        broken("is 0 s", lambda jobs: jobs[1]["write"]["clat_ns"]["percentile"].update({"1.000000": 0}))
        broken("iodepth of a job is many", lambda jobs: jobs[0]["job options"].update(iodepth="many"))
        broken("4 and 16 requests at once", lambda jobs: jobs[1]["job options"].update(iodepth="8"))
        broken("two jobs read 65536 bytes", lambda jobs: jobs.append(jobs[0]))

    def test_bad_input(self):
        self.refused("--servers is 0", *SMALL[2:], "--servers", 0)
        self.refused("--unit is 0", *SMALL, "--unit", 0)
        self.refused("--clients is 0", "--clients", 0)
        self.refused("--clients", "--clients", 99999999999)
        self.refused("--clients", "--clients", "-1")
        self.refused("--unit", *SMALL, "--unit", "99999999999EiB")
        self.refused("--size is 0", *SMALL, "--size", 0)
        self.refused("--application is 0", "--application", 0)
        self.refused("would take 0 clients", "--total", "1MiB", "--size", "2MiB")
        self.refused("would take 0 clients", "--total", "1MiB", "--size", 0)
        self.refused("would take 288230376151711744 clients", "--total", "1EiB", "--size", 4)
        self.refused("give one of --total and --clients", *SMALL, "--total", "1GiB")
        self.refused("--strategy", *SMALL, "--strategy", "raid7")
        self.refused("--device", *SMALL, "--device", "tape")
        self.refused("--service go together", *SMALL, "--device", "constant")
        self.refused("--service go together", *SMALL, "--service", "1ms")
        self.refused("5 parsecs is no time", *SMALL, "--device", "constant", "--service", "5 parsecs")
        self.refused("--latency", *SMALL, "--latency", "-1s")
        self.refused("--seconds is -1", *SMALL[:-2], "--seconds", -1)
        self.refused("--link is -2: 0 to", *SMALL, "--link", -2)
        self.refused("--seeds", *SMALL, "--seeds", 0)

    def test_both_simulators(self):
        done = subprocess.run([BENCH, "simulate"], capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr, b"tandem-bench: --worker is required; see tandem-bench simulate --help\n")
        help_text = subprocess.run([BENCH, "simulate", "storage", "--help"], capture_output=True, timeout=60).stdout
        self.assertIn(b"delayed-move", help_text)

    def test_interrupted(self):
        process = subprocess.Popen([BENCH, "simulate", "storage", "--clients", "100000", "--seconds", "1e8", "--confidence",
                                    "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
        self.addCleanup(process.kill)
        # The handler is there when SIGINT is among the signals that the process catches.
        deadline = time.monotonic() + 60
        while not self.catches_interrupt(process.pid):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
        self.assertEqual((process.returncode, output, errors), (130, b"", b"tandem-bench: interrupted\n"))

    @staticmethod
    def catches_interrupt(pid):
        with open(f"/proc/{pid}/status") as file:
            caught = next(line for line in file if line.startswith("SigCgt"))
        name = os.readlink(f"/proc/{pid}/exe")
        return os.path.samefile(name, BENCH) and bool(int(caught.split()[1], 16) >> (signal.SIGINT - 1) & 1)


if __name__ == "__main__":
    unittest.main()
