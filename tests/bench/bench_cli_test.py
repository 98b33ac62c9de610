#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Drives `tandem-bench` as a user does. Usage: bench_cli_test.py PATH_OF_TANDEM_BENCH PATH_OF_TANDEM [unittest arguments]"""
import collections
import ctypes
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import xml.etree.ElementTree

BENCH, TANDEM = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
PLOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench", "plot.py")
os.environ["TANDEM_TUNING"] = ""  # what this machine was tuned to is not asked


class Bench(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="tandem-bench-")
        self.addCleanup(shutil.rmtree, self.root, True)
        self.source = self.path("source.bin")
        with open(self.source, "wb") as file:
            file.write(random.Random(1).randbytes(3_000_017))

    def path(self, name):
        return os.path.join(self.root, name)

    def ok(self, *arguments, status=0, program=BENCH):
        done = subprocess.run([program, *map(str, arguments)], capture_output=True, timeout=120)
        self.assertEqual(done.returncode, status, done.stderr.decode())
        return done

    def tandem(self, *arguments):
        return self.ok(*arguments, program=TANDEM)

    def read(self, path):
        with open(path, "rb") as file:
            return file.read()

    BOARD = ("--worker", "cpu:1x4x0.3:claim=inf", "--worker", "gpu:1x6", "--work", "8GiB", "--chunk", "8MiB")

    def simulate(self, *more):
        return json.loads(self.ok("simulate", *more, "--json").stdout)

    def test_simulate_the_reports_board(self):
        limit = ("--resource", "cpu=5")
        free, budget, auto = (self.simulate(*self.BOARD, "--policy", *flags)
                              for flags in (("budget",), ("budget", *limit), ("auto", *limit)))
        self.assertLess(free["efficiency"], 0.7 * auto["efficiency"])
        self.assertLess(free["efficiency"], budget["efficiency"])
        self.assertLessEqual(budget["efficiency"], auto["efficiency"])
        self.assertGreater(auto["efficiency"], 0.98)
        for result in (free, budget, auto):
            self.assertEqual(sum(worker["bytes"] for worker in result["workers"]), 8 << 30)
            self.assertAlmostEqual(result["makespan_seconds"] * result["nominal_efficiency"], (8 << 30) / 7.2e9, 3)
        self.assertEqual(sum(worker["tasks"] for worker in budget["workers"]), 1024)
        self.assertGreater(free["workers"][0]["tasks"], 50 * free["workers"][1]["tasks"])
        text = self.ok("simulate", *self.BOARD).stdout.decode()
        self.assertIn("efficiency 1.000", text)
        self.assertRegex(text, r"\ngpu +1 .*83\.3%")

    # docs/internals/FIGURE3.md
    JETSON = ("--worker", "cpu:1x4x0.253216:inner=2:spawn=0.0358s:latency=0.4s", "--worker", "gpu:1x1",
              "--chunk", "1000000000")

    def jetson(self, tasks, *more):
        return self.simulate(*self.JETSON, "--work", f"{tasks}000000000", *more)

    def test_simulate_figure_three(self):
        def tasks(result):
            return {worker["name"]: worker["tasks"] for worker in result["workers"]}

        result = self.jetson(684, "--policy", "budget", "--resource", "cpu=5")
        self.assertEqual((f"{result['makespan_seconds']:.1f}", tasks(result)), ("343.1", {"cpu": 344, "gpu": 340}))
        self.assertEqual(tasks(self.jetson(1015, "--policy", "budget")), {"cpu": 1006, "gpu": 9})
        auto = self.jetson(684)
        self.assertEqual(sum(worker["bytes"] for worker in auto["workers"]), 684_000_000_000)
        self.assertLess(auto["makespan_seconds"], 1.02 * 343.11)
        page = self.read(os.path.join(os.path.dirname(PLOT), "..", "docs", "internals", "FIGURE3.md")).decode()
        self.assertIn(f"| auto | {auto['makespan_seconds']:.1f} | {tasks(auto)['cpu']} | {tasks(auto)['gpu']} |", page)
        # 4 GB at 4 GB/s, after latency and parent part.
        alone = self.simulate("--worker", "cpu:1x4x1:inner=2:spawn=1s:latency=2s", "--work", "4000000000")
        self.assertGreaterEqual(alone["makespan_seconds"], 3.999)

    def test_simulate_draws_a_row_for_each_core(self):
        path = self.path("cores.json")
        result = self.jetson(20, "--policy", "budget", "--resource", "cpu=2", "--timeline", path)
        trace = json.loads(self.read(path))
        threads = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"]
        self.assertEqual(threads, ["cpu 0", "cpu 1", "cpu 2", "cpu 3", "gpu"])
        spans = collections.Counter(e["name"] for e in trace["traceEvents"] if e["ph"] == "X")
        cpu, gpu = result["workers"]
        self.assertEqual(spans, {"spawn": cpu["tasks"], "inner": 2 * cpu["tasks"], "chunk": gpu["tasks"]})
        self.assertEqual(trace["otherData"]["bytes"], 20_000_000_000)
        self.assertEqual(result["tasks"], 20)
        other = self.path("free.json")
        self.jetson(40, "--policy", "budget", "--timeline", other)
        plot = PLOT
        picture = self.path("cores-free.svg")
        done = subprocess.run([sys.executable, plot, "timeline", path, other, "--svg", "-o", self.root], capture_output=True,
                              timeout=60, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        parts = list(xml.etree.ElementTree.parse(picture).iter())
        words = ["".join(part.itertext()) for part in parts if part.tag.endswith("text")]
        title = rf"cores: {result['makespan_seconds']:.2f} s; efficiency [\d.]+; tasks: cpu {cpu['tasks']}, gpu {gpu['tasks']}"
        self.assertTrue(any(re.fullmatch(title, word) for word in words), words)
        self.assertEqual([word for word in words if word.startswith(("cpu", "gpu"))], ["cpu", "gpu"] + 2 * threads)
        colors = {part.get("fill") for part in parts if part.tag.endswith(("path", "rect")) and "".join(part.itertext())}
        self.assertEqual(len(colors), 2)  # one of each kind, the same in both

    def test_simulate_faults_and_links(self):
        pair = ("--worker", "cpu:1x1", "--worker")
        whole = self.simulate(*pair, "gpu:1x7")["makespan_seconds"]
        self.assertGreater(self.simulate(*pair, "gpu:1x7:slow=4@0.5s")["makespan_seconds"], 1.2 * whole)
        failed = self.simulate(*pair, "gpu:1x7:fails=0.1s")
        self.assertGreater(failed["makespan_seconds"], 2 * whole)
        self.assertEqual(sum(worker["bytes"] for worker in failed["workers"]), 8 << 30)
        self.assertGreater(self.simulate(*pair, "gpu:1x7:hangs=0.1s")["makespan_seconds"], 2 * whole)
        linked = self.simulate(*pair, "gpu:2x7:link=pcie:assumed-latency=1ms", "--link", "pcie=25")
        self.assertEqual(linked["links"], ["pcie=25"])
        done = self.ok("simulate", "--worker", "cpu:2x1:fails=1s", status=2)
        self.assertIn(b"never ends: after 1 s workers failed or hang, with ", done.stderr)
        for policy in ("auto", "budget"):
            done = self.ok("simulate", "--worker", "cpu:1x1:hangs=0s", "--work", "1GiB", "--policy", policy, status=2)
            self.assertIn(b"never ends: after 0 s workers failed or hang, with 0 of 1073741824 bytes done", done.stderr)

    def test_simulate_many_workers_and_seeds(self):
        many = ("--worker", "cpu:32x0.3:jitter=0.3:latency=20us", "--worker", "gpu:2x6:latency=2ms", "--unknown-speeds")
        first, again, other = (self.simulate(*many, "--seed", seed) for seed in (7, 7, 8))
        self.assertEqual(first, again)
        self.assertNotEqual(first["makespan_seconds"], other["makespan_seconds"])
        self.assertEqual([worker["name"] for worker in first["workers"]], 32 * ["cpu"] + 2 * ["gpu"])
        self.assertGreater(first["efficiency"], 0.9)
        lines = self.ok("simulate", *many).stdout.decode().splitlines()
        self.assertEqual([line.split()[:2] for line in lines[-2:]], [["cpu", "32"], ["gpu", "2"]])
        lines = self.ok("simulate", *many[2:]).stdout.decode().splitlines()
        self.assertEqual([line.split()[:2] for line in lines[-2:]], [["gpu", "0"], ["gpu", "1"]])
        self.assertEqual(self.ok("simulate", *many, "--quiet").stdout, b"")

    def test_simulate_writes_a_timeline(self):
        path = self.path("trace.json")
        result = self.simulate(*self.BOARD, "--timeline", path)
        trace = json.loads(self.read(path))
        threads = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"]
        self.assertEqual(threads, ["cpu", "gpu"])
        events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
        self.assertEqual(len(events), result["tasks"])
        committed = sorted((e["args"]["begin"], e["args"]["end"]) for e in events if e["args"]["committed"])
        self.assertGreaterEqual(sum(end - begin for begin, end in committed), 8 << 30)
        self.assertEqual((committed[0][0], committed[-1][1]), (0, 8 << 30))
        self.assertAlmostEqual(max(e["ts"] + e["dur"] for e in events) / 1e6, result["makespan_seconds"], 6)
        summary = trace["otherData"]
        self.assertEqual(summary["efficiency"], result["efficiency"])
        for worker, told in zip(summary["workers"], result["workers"]):
            self.assertEqual(worker["name"], told["name"])
            self.assertAlmostEqual(worker["busy_seconds"] + worker["idle_seconds"], result["makespan_seconds"], 6)
        self.ok("simulate", *self.BOARD, "--timeline", self.path("no/such/folder.json"), status=3)

    def test_timelines_are_drawn_on_one_axis(self):
        board = ("simulate", "--worker", "cpu:2x1", "--worker", "board:1x6", "--policy", "budget", "--chunk", "64MiB", "--quiet")
        short, long, files = self.path("short.json"), self.path("long.json"), self.path("files.json")
        self.ok(*board, "--work", "1GiB", "--timeline", short)
        self.ok(*board, "--work", "4GiB", "--timeline", long)
        self.tandem("encode", self.source, "-k", 10, "-m", 4, "-o", self.path("shards"), "--backend", "cpu", "--timeline", files)
        plot = [sys.executable, PLOT, "timeline"]

        def draw(*paths):
            done = subprocess.run([*plot, *paths, "--svg", "-o", self.root], capture_output=True, timeout=60, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(len(done.stdout.splitlines()), 1)  # all files in one picture
            elements = list(xml.etree.ElementTree.parse(done.stdout.strip()).iter())
            texts = ["".join(e.itertext()) for e in elements if e.tag.endswith("text")]
            boxes = [(e.get("fill"), float(e.get("x")), float(e.get("width")), "".join(e.itertext()))
                     for e in elements if e.tag.endswith("rect") and "".join(e.itertext())]
            return texts, boxes

        texts, boxes = draw(short, long)
        self.assertTrue(any(text.startswith("short: ") for text in texts), texts)
        self.assertTrue(any(text.startswith("long: ") and "efficiency" in text for text in texts), texts)
        colors = {}
        for color, _, _, title in boxes:
            colors.setdefault(title.split(":")[0].split(", ")[1], set()).add(color)
        self.assertEqual(set(colors), {"cpu", "board"})
        self.assertEqual([len(colors[kind] - {"#d9d9d9"}) for kind in ("cpu", "board")], [1, 1])  # grey: not committed
        self.assertNotEqual(colors["cpu"], colors["board"])
        # The longer one reaches the right end of the axis. The shorter one, of a quarter of the work, does not.
        count = len(draw(short)[1])
        self.assertAlmostEqual(max(x + width for _, x, width, _ in boxes[count:]), 150 + 900, 0)
        self.assertLess(max(x + width for _, x, width, _ in boxes[:count]), 150 + 900 / 2)

        texts, boxes = draw(files)
        self.assertTrue({"read", "hash", "cpu", "write"} <= set(texts), texts)
        self.assertFalse(any("efficiency" in text for text in texts))
        for bad in (self.source, self.path("none")):
            done = subprocess.run([*plot, bad], capture_output=True, timeout=60, text=True)
            self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1), done.stderr)

    def test_simulate_refuses_what_makes_no_sense(self):
        for arguments, words in (
            ((), "--worker is required"),
            (("--worker", "cpu"), 'worker "cpu": it has no speed'),
            (("--worker", "cpu:1x1", "--resource", "gpu=1"), "no worker has this name"),
            (("--worker", "cpu:1x1", "--resource", "cpu=1", "--resource", "cpu=2"), "it has an amount already"),
            (("--worker", "cpu:1x1", "--policy", "best"), "--policy"),
            (("--worker", "cpu:1x4x1:inner=2:fails=1s", "--policy", "budget"), "worker cpu: fails has no meaning"),
            (("--worker", "cpu:1x4x1:inner=4096", "--policy", "budget"), "at most 2097152 parts"),
            (("--worker", "cpu:1x1", "--link", "pcie=25"), "no worker has :link=pcie"),
            (("--worker", "cpu:1x1", "--policy", "budget", "--unknown-speeds"), "--unknown-speeds is for policy auto"),
            (("--worker", "cpu:1x1:assumed-latency=1ms", "--policy", "budget"), "assumed-latency is for policy auto"),
            (("--worker", "cpu:1x1", "--work", "0"), "from 1 byte"),
            (("--worker", "cpu:1x1", "--work", "-1"), "-1 is no size"),
            (("--worker", "cpu:1x1", "--work", "15EiB"), "--work is"),
            (("--worker", "cpu:1x1", "--work", "1TiB", "--chunk", "1", "--policy", "budget"), "tasks"),
            (("--worker", "cpu:513x1"), "513 workers; at most 512 with policy auto"),
            (("--worker", "cpu:300x1", "--work", "1TiB", "--chunk", "1MiB", "--policy", "budget"), "1048576 tasks for 300 workers"),
        ):
            done = self.ok("simulate", *arguments, status=2)
            self.assertIn(words, done.stderr.decode(), arguments)
            self.assertEqual(len(done.stderr.splitlines()), 1)
            self.assertEqual(done.stdout, b"")

    def test_techniques_of_kernels(self):
        kernels = json.loads(self.tandem("devices", "--json").stdout)["kernels"]
        for kernel in kernels:
            if not kernel["available"]:
                done = self.ok("techniques", kernel["name"], status=2)
                self.assertIn(b"this CPU runs: ", done.stderr)
                continue
            ways = json.loads(self.ok("techniques", kernel["name"], "--json").stdout)["techniques"]
            for column in ("in_cache", "out_of_cache"):
                encode = {(way["k"], way["m"]): way for way in ways if way["operation"] == "encode" and way["used_" + column]}
                self.assertEqual(encode[10, 4]["technique"], "matrix")
                self.assertEqual(encode[128, 32]["technique"], "transform")
                decode = [way for way in ways if (way["k"], way["m"], way.get("lost")) == (128, 128, 128)]
                self.assertEqual([way["technique"] for way in decode], ["matrix", "syndromes, matrix", "syndromes, transform"])
                self.assertEqual([way["used_" + column] for way in decode], [False, False, True])
                self.assertEqual(min(way["cost_" + column] for way in decode), decode[2]["cost_" + column])
        one = self.ok("techniques", "scalar", "-k", 20, "-m", 4).stdout.decode()
        self.assertEqual(sum(line.startswith("20+4") for line in one.splitlines()), 6)  # encode 2, decode of 2 shards 1, of 4 shards 3
        wide = json.loads(self.ok("techniques", "scalar", "-k", 300, "-m", 100, "--matrix", "leopard16", "--json").stdout)
        self.assertEqual({way["technique"] for way in wide["techniques"]}, {"transform"})
        self.assertIn(b"this CPU runs: ", self.ok("techniques", "nonsense", status=2).stderr)
        self.assertIn(b"KERNEL is required", self.ok("techniques", status=2).stderr)

    def test_bench_of_packets(self):
        def bench(*more, status=0):
            return self.ok("run", "--seconds", "0.01", "--repeats", 1, "--layout", "packets", "--matrix", "jerasure-cauchy-good",
                           "-k", 4, "-m", 3, *more, "--json", status=status)
        for operation in ("encode", "decode", "verify", "update", "decode-setup"):
            for word_bits in (4, 8, 16):
                run = json.loads(bench("--operation", operation, "--packet-bytes", "1KiB", "--word-bits", word_bits, "--size", "512KiB").stdout)
                result = run["results"][0]
                self.assertEqual((result["word_bits"], result["packet_bytes"]), (word_bits, 1024))
                self.assertIsNone(run["peer"])
                if operation != "decode-setup":
                    self.assertEqual(result["shard_bytes"] % (1024 * word_bits), 0)
                    self.assertIn(result["technique"], ("matrix", "shared sums"))
        for more, message in (((), b"--packet-bytes"), (("--packet-bytes", 1020), b"packet_bytes = 1020"),
                              (("--packet-bytes", 64, "--word-bits", 5), b"word_bits = 5"), (("--packet-bytes", 64, "--odd"), b"--odd"),
                              (("--packet-bytes", "1MiB", "--size", "1MiB"), b"8388608"),
                              (("--packet-bytes", 64, "--shard-bytes", 1000), b"512"),
                              (("--packet-bytes", 64, "--peer", "libisal.so.2"), b"packets"),
                              (("--packet-bytes", 64, "--matrix", "zfec"), b"zfec")):
            self.assertIn(message, bench(*more, status=2).stderr)
        self.assertIn(b"--layout packets", self.ok("run", "--packet-bytes", 64, status=2).stderr)

    def test_bench_of_several_contexts(self):
        quick = ("run", "-k", 4, "-m", 2, "--size", "64KiB", "--seconds", "0.01", "--repeats", 1, "--peer", "none")
        done = json.loads(self.ok(*quick, "--threads", "1,2", "--executor", "serial,pthread", "--pin", "off,on",
                                  "--json").stdout)
        axes = [tuple(each[key] for key in ("executor", "threads", "pin")) for each in done["results"]]
        self.assertEqual(axes, [("serial", 1, False), ("pthread", 1, False), ("pthread", 2, False), ("pthread", 2, True)])
        self.assertIn(b"2 threads, pinned", self.ok(*quick, "--threads", 2, "--pin", "off,on").stdout)
        for without_effect in (("--pin", "on"), ("--executor", "openmp", "--threads", 2, "--pin", "on,on")):
            self.assertIn(b"--pin on", self.ok(*quick, *without_effect, status=2).stderr)

    def test_bench_energy(self):
        quick = ("run", "-k", 4, "-m", 2, "--size", "64KiB", "--seconds", "0.01", "--repeats", 1, "--peer", "none", "--energy")
        root = self.path("sys")
        self.assertIn("no RAPL", json.loads(self.ok(*quick, "--sysfs", root, "--json").stdout)["results"][0]["energy"]["not_measured"])
        self.assertIn(b"energy NOT MEASURED", self.ok(*quick, "--sysfs", root).stdout)
        self.assertIn(b"decode-setup", self.ok(*quick, "--operation", "decode-setup", status=2).stderr)
        package = os.path.join(root, "class/powercap/intel-rapl:0")
        os.makedirs(package)

        def write(name, text):
            with open(os.path.join(package, name + ".new"), "w", encoding="ascii") as file:
                file.write(f"{text}\n")
            os.rename(os.path.join(package, name + ".new"), os.path.join(package, name))

        write("name", "package-0")
        write("max_energy_range_uj", 1_000_000)
        write("energy_uj", 0)
        self.assertIn(b"energy package-0 NOT MEASURED: the counter does not move", self.ok(*quick, "--sysfs", root).stdout)
        over = threading.Event()

        def burn():  # 100 W, which wrap around after 10 ms
            began = time.monotonic()
            while not over.wait(0.001):
                write("energy_uj", int((time.monotonic() - began) * 1e8) % 1_000_000)

        burner = threading.Thread(target=burn)
        burner.start()
        try:
            energy = json.loads(self.ok(*quick, "--sysfs", root, "--json").stdout)["results"][0]["energy"]["domains"]
        finally:
            over.set()
            burner.join()
        self.assertEqual([each["domain"] for each in energy if not each["domain"].startswith("GPU")], ["package-0"])
        self.assertEqual(energy[0]["samples"], 30)
        self.assertGreaterEqual(energy[0]["idle_watts"], 0)

    def test_bench_names_the_technique(self):
        def bench(*more):
            return json.loads(self.ok("run", "--seconds", "0.01", "--repeats", 1, "--size", "512KiB", *more, "--json").stdout)

        for technique in ("matrix", "transform"):
            results = bench("-k", 32, "-m", 8, "--operation", "encode,verify", "--technique", technique)["results"]
            self.assertEqual([each["technique"] for each in results], [technique] * 2)
        decode = bench("-k", 32, "-m", 8, "--operation", "decode", "--technique", "transform")["results"][0]
        self.assertTrue(decode["technique"].startswith("syndromes, "), decode["technique"])
        wide = bench("-k", 32, "-m", 8, "--matrix", "leopard16")
        self.assertEqual(wide["results"][0]["technique"], "transform")
        self.assertIsNone(wide["peer"])
        self.assertNotIn("peer", wide["results"][0])
        self.assertIn(b"GF(2^16)", self.ok("run", "--matrix", "leopard16", "--peer", "libisal.so.2", status=2).stderr)
        both = bench("-k", 20, "-m", 4, "--matrix", "leopard16,isal-cauchy")  # a peer, if there is one, for the second
        self.assertNotIn("peer", both["results"][0])
        self.assertIn("roof", both["results"][0])
        self.assertEqual("peer" in both["results"][1], both["peer"] is not None)

    def test_kernel_texts(self):
        report = json.loads(self.ok("kernels", "-k", 10, "-m", 4, "--json").stdout)
        kernels = {(each["technique"], each["operation"]): each for each in report["kernels"]}
        self.assertEqual(len(kernels), 6)
        encode = kernels["compiled", "encode"]
        self.assertEqual((encode["loads_per_byte"], encode["stores_per_byte"]), (0.25, 0.1))
        self.assertLess(encode["three_input_operations_per_byte"], encode["two_input_operations_per_byte"])
        self.assertEqual(kernels["tables", "encode"]["table_lookups_per_byte"], 2)
        for dialect, word in (("opencl", b"__kernel void"), ("cuda", b"__global__"), ("host", b"stdint.h")):
            for technique in ("compiled", "tables"):
                text = self.ok("kernels", "--text", dialect, "--device-technique", technique).stdout
                self.assertIn(word, text)
                self.assertEqual(text.count(b"{"), text.count(b"}"))
        self.assertIn(b"FINISH(2, OUTPUT(2)", self.ok("kernels", "-k", 5, "-m", 3, "--text", "host").stdout)
        self.assertIn(b"2-INPUT OPS", self.ok("kernels").stdout)
        wide = json.loads(self.ok("kernels", "-k", 64, "-m", 16, "--json").stdout)
        kernels = {(each["technique"], each["operation"]): each for each in wide["kernels"]}
        self.assertEqual([operation for technique, operation in kernels if technique == "transform"], ["encode", "verify"])
        compiled, transform = (kernels[technique, "encode"]["three_input_operations_per_byte"] for technique in ("compiled", "transform"))
        self.assertLess(1.4 * transform, compiled)
        self.assertEqual({each["device"]: each["technique"] for each in wide["built_in"]},
                         {name: "transform" if name in ("nvidia", "amd") else "compiled" for name in ("nvidia", "amd", "intel", "gpu", "cpu")})
        self.assertEqual({each["technique"] for each in report["built_in"]}, {"compiled"})
        self.assertIn(b"PLANE(", self.ok("kernels", "-k", 20, "-m", 10, "--text", "cuda", "--device-technique", "transform",
                                         "--element-bytes", 8).stdout)  # fmt: skip
        for arguments in ((), ("-k", 20, "-m", 10, "--operation", "update")):
            self.assertIn(b"technique transform encodes and verifies wide Cauchy codes",
                          self.ok("kernels", "--text", "cuda", "--device-technique", "transform", *arguments, status=2).stderr)
        built_in = {each.pop("device"): each for each in report["built_in"]}
        self.assertEqual(list(built_in), ["nvidia", "amd", "intel", "gpu", "cpu"])
        self.assertEqual({name: each["element_bytes"] for name, each in built_in.items()},
                         {"nvidia": 8, "amd": 8, "intel": 4, "gpu": 8, "cpu": 64})  # fmt: skip
        for arguments, size in (((), 8), (("--vendor", "intel"), 4), (("--vendor", "cpu"), 64), (("-k", 64), 8)):
            text = self.ok("kernels", "--text", "opencl", *arguments).stdout
            self.assertIn(b"#define ELEMENT_BYTES %d\n" % size, text)
        self.assertIn(b"#define ELEMENT_BYTES 4\n", self.ok("kernels", "--text", "cuda", "-k", 64).stdout)
        self.ok("kernels", "--vendor", "cray", status=2)
        self.assertIn(b"without rows", self.ok("kernels", "-m", 0, status=2).stderr)
        self.assertIn(b"element_bytes is 5", self.ok("kernels", "--element-bytes", 5, status=2).stderr)

    QUICK = ("--repeats", 3, "--seconds", 0.001, "--saturation-seconds", 0.01, "--threads", 2)

    def bench_hybrid(self, *more):
        return json.loads(self.ok("hybrid", *self.QUICK, *more, "--json").stdout)

    def test_bench_with_jerasure(self):
        quick = ("run", "--seconds", "0.01", "--repeats", 1, "--peer", "jerasure", "--json")
        try:
            ctypes.CDLL("libJerasure.so.2")
        except OSError as reason:
            print("NOT RUN: --peer jerasure:", reason)
            self.assertIn(b"libJerasure.so.2", self.ok(*quick, status=2).stderr)
            return
        # The engine compares the bytes of every case before it measures.
        run = json.loads(self.ok(*quick, "--size", "64KiB", "--operation", "encode,decode,verify,update", "--matrix",
                                 "isal-cauchy,jerasure-vandermonde").stdout)
        self.assertEqual(run["peer"]["function"], "jerasure_matrix_dotprod")
        self.assertEqual(len(run["results"]), 8)
        for each in run["results"]:
            self.assertGreater(each["over_peer"], 0)
        json.loads(self.ok(*quick, "--operation", "decode-setup").stdout)
        self.assertIn(b"multiples of 8 bytes", self.ok(*quick, "--shard-bytes", 100, status=2).stderr)
        self.assertIn(b"multiples of 8 bytes", self.ok(*quick, "--odd", status=2).stderr)
        self.assertIn(b"one way to encode", self.ok(*quick, "--peer-function", "x", status=2).stderr)

    def test_bench_hybrid(self):
        file = self.path("hybrid.json")
        devices = ["cpu", "opencl:0:0"]
        names = [device["name"] for device in json.loads(self.tandem("devices", "--json").stdout)["devices"]]
        if devices[1] not in names:
            print("NOT RUN: hybrid with", devices.pop())
        run = self.bench_hybrid("--devices", "+".join(devices), "--size", "64KiB,1MiB", "--kernel", "scalar", "--warm-up", "6MiB", "-o", file)
        self.assertEqual((run["warm_up_bytes"], run["devices"], run["kernel"], run["threads"], run["k"], run["m"]), (6 << 20, devices, "scalar", 2, 10, 4))
        self.assertEqual([(r["operation"], r["size_bytes"]) for r in run["results"]],
                         [(operation, size) for operation in ("encode", "decode") for size in (1 << 16, 1 << 20)])
        kinds = ["alone"] * len(devices) + ["free", "budget", "budget", "auto-first", "auto"]
        for result in run["results"]:
            entries = result["entries"]
            self.assertEqual([entry["kind"] for entry in entries], kinds)
            self.assertEqual([entry.get("amount") for entry in entries if entry["kind"] == "budget"], [1, 2])
            data = result["shard_bytes"] * run["k"]
            seconds = {entry["name"]: entry["seconds_per_call"] for entry in entries}
            best = min(devices, key=seconds.get)
            self.assertEqual(result["best_alone"], best)
            self.assertEqual(result["best_budget"], min((1, 2), key=lambda amount: seconds[f"cpu={amount}"]))
            self.assertAlmostEqual(sum(result["saturation_by_device"].values()), result["saturation_gb_per_second"])
            for entry in entries:
                self.assertAlmostEqual(entry["gb_per_second"]["median"] * entry["seconds_per_call"] * 1e9 / data, 1)
                self.assertAlmostEqual(entry["over_best_alone"], entry["seconds_per_call"] / seconds[best])
                self.assertAlmostEqual(entry["efficiency"] * result["saturation_gb_per_second"], data / entry["seconds_per_call"] / 1e9)
                # Two cores at least, and the drivers' threads: not more core-seconds than all cores give.
                cores = entry["core_seconds_per_gb"]["median"] * entry["gb_per_second"]["median"]
                self.assertTrue(0 < cores < 2 * os.cpu_count() + 2, entry)

        plot = [sys.executable, PLOT, "hybrid"]
        done = subprocess.run([*plot, file, "--svg", "-o", self.root], capture_output=True, timeout=60, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([os.path.basename(line) for line in done.stdout.splitlines()],
                         [f"hybrid-{operation}-{rest}.svg" for operation in ("encode", "decode")
                          for rest in ("budget-64KiB", "budget-1MiB", "sizes")])
        result = run["results"][0]
        elements = list(xml.etree.ElementTree.parse(self.path("hybrid-encode-budget-64KiB.svg")).iter())
        texts = ["".join(e.itertext()) for e in elements if e.tag.endswith("text")]
        best = f"budget; best: cpu={result['best_budget']}"
        self.assertIn("Encode 10+4, 64 KiB of data", texts)
        for words in (best, f"auto: {result['entries'][-1]['over_best_budget']:.2f} of the best's time", "auto, first call", "cpu alone"):
            self.assertIn(words, texts)
        marked = ["".join(e.itertext()) for e in elements if e.tag.endswith("circle") and e.get("r") == "5"]
        rate = next(e["gb_per_second"] for e in result["entries"] if e.get("amount") == result["best_budget"])
        self.assertEqual(marked, [f"{best}: {rate['median']:.2f} GB/s, {rate['min']:.2f} to {rate['max']:.2f}"])
        for bad in (self.source, self.path("none")):
            done = subprocess.run([*plot, bad], capture_output=True, timeout=60, text=True)
            self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1), done.stderr)

    def test_bench_hybrid_limits_and_refusals(self):
        run = self.bench_hybrid("--devices", "cpu", "--size", "64KiB", "--resource", "cpu=1")
        for result in run["results"]:
            self.assertEqual([entry["amount"] for entry in result["entries"] if entry["kind"] == "budget"], [1])
        names = [device["name"] for device in json.loads(self.tandem("devices", "--json").stdout)["devices"]]
        if "opencl:0:0" in names:
            alone = json.loads(self.ok("run", "--backend", "opencl:0:0", "--size", "64KiB", "--seconds", "0.01", "--repeats", 1, "--peer", "none", "--json").stdout)
            self.assertEqual([each["size_bytes"] for each in alone["results"]], [64 << 10])
            small = ("hybrid", *self.QUICK, "--size", "1MiB", "--resource", "pinned_mib=1")
            self.assertIn(b"pinned_mib", self.ok(*small, status=2).stderr)  # its staging needs more
        else:
            print("NOT RUN: hybrid with a limit on opencl:0:0")
        for more, words in (
            (("--resource", "app.widgets=1"), b"app.widgets"),
            (("--resource", "cpu=0"), b"amount 0 of resource"),
            (("--kernel", "best"), b"best"),
            (("--devices", "cpu+gpu"), b'"gpu"'),
            (("--devices", "cpu+cpu"), b"cpu"),
            (("--operation", "verify"), b"verify"),
            (("--size", "9"), b"less than k bytes"),
        ):
            done = self.ok("hybrid", *self.QUICK, *(() if "--devices" in more else ("--devices", "cpu")), *more, status=2)
            self.assertIn(words, done.stderr)

    def test_bench_batch(self):
        device = self.opencl_device("batch")
        if device is not None:
            file = self.path("batch.json")
            quick = ("batch", "--backend", device, "-k", 5, "-m", 3, "--shard-bytes", "1KiB,4160", "--repeats", 2, "--seconds", "0.01")
            run = json.loads(self.ok(*quick, "--stripes", 300, "--json", "-o", file).stdout)
            with open(file) as stream:
                self.assertEqual(json.load(stream), run)
            self.assertEqual([(each["operation"], each["shard_bytes"]) for each in run["results"]],
                             [(operation, size) for operation in ("encode", "decode") for size in (1024, 4160)])
            for each in run["results"]:
                self.assertEqual((each["stripe_count"], each["launches"], each["memory"]), (300, 1, "opencl"))
                self.assertEqual(each["data_bytes"], 300 * 5 * each["shard_bytes"])
                self.assertEqual(each["one_by_one"]["stripe_count"], 256)
                ratio = each["together"]["seconds_per_call"]["median"] / each["as_one_stripe"]["seconds_per_call"]["median"]
                self.assertAlmostEqual(each["over_one_stripe"], ratio)
            table = self.ok(*quick, "--stripes", 2, "--operation", "decode").stdout.decode().splitlines()
            self.assertEqual([line.split()[:5] for line in table[2:]], [["decode", "5+3", str(size), "2", "1"] for size in (1024, 4160)])
            self.assertIn(b"not a multiple of 64", self.ok(*quick, "--shard-bytes", 100, status=2).stderr)
            self.assertIn(b"--stripes is 0", self.ok(*quick, "--stripes", 0, status=2).stderr)
            self.assertIn(b"do not fit memory", self.ok(*quick, "--stripes", 1 << 60, status=2).stderr)
            self.assertIn(b"bytes of device memory", self.ok(*quick, "--stripes", 1 << 40, status=3).stderr)
        self.assertIn(b"--backend", self.ok("batch", status=2).stderr)
        self.assertIn(b"cpu", self.ok("batch", "--backend", "cpu", status=2).stderr)

    def opencl_device(self, what):
        """Its name, or None where there is none."""
        names = [device["name"] for device in json.loads(self.tandem("devices", "--json").stdout)["devices"]]
        if "opencl:0:0" in names:
            return "opencl:0:0"
        if os.environ.get("TANDEM_TEST_REQUIRE_OPENCL"):
            self.fail("no OpenCL device")
        print("NOT RUN:", what)
        return None

    def test_sizes_mean_the_same_in_and_out(self):
        def run(*arguments):
            return subprocess.run([BENCH, *map(str, arguments)], capture_output=True, timeout=120)

        def chunk(text, status=0):
            done = run("simulate", "--worker", "cpu:4x1", "--json", "--chunk", text)
            self.assertEqual(done.returncode, status, (text, done.stderr))
            return json.loads(done.stdout)["chunk_bytes"] if status == 0 else done.stderr.decode()

        for text, size in (("4096", 4096), ("64k", 65536), ("64K", 65536), ("64KiB", 65536), ("64kB", 64000), ("1.5M", 3 << 19),
                           ("1.5MB", 1500000), ("1.5 MiB", 3 << 19), ("0.5G", 1 << 29), ("1.07 GB", 1070000000), ("2TiB", 2 << 40),
                           ("1E", 1 << 60), ("010m", 10 << 20), ("7B", 7), ("1.000000001GiB", (1 << 30) + 1)):
            self.assertEqual(chunk(text), size, text)
        for text in ("", "MiB", "-1", "0x10", "1e3", "1.5Q", "1..5M", "1.M", ".5M", "1,5M", "k", "1 0", "1MiBs"):
            self.assertIn("is no size", chunk(text, status=2) if text else chunk(" ", status=2))
        for text in ("16E", "99999999999999999999", "20EB", "18446744073709551616"):
            self.assertIn("is too large a number", chunk(text, status=2))
        self.assertIn("is no whole number of bytes", chunk("1.5", status=2))

        for size, shown in (("128k", "128KiB"), ("1.5M", "1536KiB"), ("2097.152kB", "2MiB")):
            done = run("simulate", "storage", "--servers", 8, "--clients", 8, "--application", 8, "--seconds", 1, "--size", size,
                          "--unit", size, "--strategy", "raid0")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(shown, done.stdout.decode())
            self.assertEqual(chunk(shown), chunk(size))

    def test_every_technique_is_measured_or_refused(self):
        quick = ("run", "--repeats", 1, "--seconds", 0.001)
        for technique in ("matrix", "transform"):
            run = json.loads(self.ok(*quick, "-k", 32, "-m", 32, "--size", "256KiB", "--technique", technique, "--json").stdout)
            self.assertEqual(len(run["results"]), 1)
        self.assertIn(b"from 4 shards to 2", self.ok(*quick, "-k", 4, "-m", 2, "--technique", "transform", status=2).stderr)

    def test_flags_without_effect_are_refused(self):
        run = ("run", "-k", 4, "-m", 2)
        self.assertIn(b'thread_count 2 has no effect on the backend "opencl:0:0"',
                      self.ok(*run, "--backend", "opencl:0:0", "--threads", 2, status=2).stderr)
        self.ok(*run, "--timeline", self.path("trace.json"), status=2)
        for flag, name in (("gpu=1", "gpu"), ("cpu=1,app.widgets=2", "app.widgets")):
            done = self.ok(*run, "--size", "64KiB", "--peer", "none", "--backend", "cpu", "--resource", flag, status=2)
            self.assertIn(f'no task of this run holds "{name}"; on backend cpu tasks hold cpu'.encode(), done.stderr)

    def test_failures_as_json(self):
        self.assertEqual(json.loads(self.ok("simulate", "--worker", "cpu:1x1", "--json").stdout)["command"], "simulate")
        for wrong in (("techniques", "nonsense"), ("simulate",), ("run", "-k", 0), ("batch",), ("kernels", "-m", 0)):
            self.assertEqual(json.loads(self.ok(*wrong, "--json", status=2).stdout)["command"], wrong[0])


if __name__ == "__main__":
    unittest.main()
