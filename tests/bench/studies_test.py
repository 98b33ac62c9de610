#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs all studies with --tiny. Contenders' bytes must equal Tandem's, pictures must have their series and a sentence, and a missing
tool must give its message and status 0. Tests no speed: verdicts are tested with the times of two invented worlds.

    studies_test.py FOLDER_OF_STUDIES BUILD_FOLDER"""
import argparse
import importlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import xml.etree.ElementTree

STUDIES, BUILD = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
sys.path.insert(0, str(STUDIES))
import charts  # noqa: E402
import documents  # noqa: E402
import report  # noqa: E402
import run as studies_run  # noqa: E402
import study  # noqa: E402
# Figures that need no tool except the compiler, and the contenders with compared bytes.
FIGURES = {"A": ["figure-12", "figure-14", "figure-12-gf8", "figure-14-gf8", "figure-12-gain", "figure-15", "figure-16", "figure-17", "figure-18", "figure-21", "spawn-pool",
                 "figure-22", "many-files", "pinned", "parity-servers"],
           "B": ["over-jerasure", "figure-3", "figure-3-decode", "mixed-decode", "random-losses", *(f"figure-{4 if m == 4 else 5}-m{m}-{operation}"
                 for m in (4, 8, 12) for operation in ("encode", "decode"))],
           "C": ["policies", "servers", "servers-processor", "writes"],
           "D": ["runtimes", "runtimes-busy", "waiting", "waiting-speed"],
           "E": ["lu", "lu-gantt", "pipeline", "pipeline-gantt"],
           "F": ["figure-2", "figure-9", "figure-13a", "figure-13c", "figure-13d", "figure-13-mixed", "figure-13-volume", "figure-2-real", "figure-3-real", "figure-5"]}
NO_CONTENDERS = ("F",)  # its runs are simulated, or of `tandem` alone
POSITIVE, NEGATIVE = ({study.VERDICTS[of][i] for of in study.VERDICTS} for i in (0, 1))
POSITIVE.add(study.FITTED)


def of_parts(result, name):
    return [each for part in result["parts"] for each in part[name]]


def run(*words, path=None):
    environment = {**os.environ, "TANDEM_TUNING": ""}
    if path is not None:
        environment["PATH"] = path
    return subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, env=environment, check=False)


class Studies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.results, cls.docs = pathlib.Path(cls.folder.name, "results"), pathlib.Path(cls.folder.name, "docs")
        cls.done = run(STUDIES / "run.py", "--tiny", "--build", BUILD, "-o", cls.results, "--docs", cls.docs)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def result(self, letter):
        return json.loads((self.results / f"{letter}.json").read_text())

    def test_all_ran(self):
        self.assertEqual(self.done.returncode, 0, self.done.stdout + self.done.stderr)
        self.assertEqual(sorted(path.stem for path in self.results.glob("*.json")), sorted(FIGURES))
        self.assertFalse((self.results / ".work").exists())

    def test_the_page_begins_with_each_headline_that_has_a_claim(self):
        claims = {claim["claim"] for letter in FIGURES for claim in of_parts(self.result(letter), "claims")}
        words = {e.text for e in xml.etree.ElementTree.parse(self.docs / "studies/headlines.svg").iter() if e.tag.endswith("text")}
        self.assertEqual({label for label, *_ in documents.HEADLINES} & words, {label for label, _, claim, *_ in documents.HEADLINES if claim in claims})
        stored = json.loads((STUDIES.parent / "results/studies/A.json").read_text())  # names do not change unseen
        self.assertIn(documents.HEADLINES[0][2], {claim["claim"] for claim in of_parts(stored, "claims")})

    def test_bytes_were_compared(self):
        for letter in FIGURES:
            result = self.result(letter)
            lacks_all = letter in NO_CONTENDERS or not of_parts(result, "figures")
            self.assertEqual(sum(part["bytes_checks"] for part in result["parts"]) == 0, lacks_all, letter)

    def test_figures_have_their_series(self):
        text = (self.docs / "studies.md").read_text()
        for letter, expected in FIGURES.items():
            result = self.result(letter)
            figures = {figure["name"]: figure for figure in of_parts(result, "figures")}
            missing = [each["what"] for each in of_parts(result, "not_measured") if not each["what"].startswith("LU of")]
            for name in expected:
                if not missing:
                    self.assertIn(name, figures, letter)
            for name, figure in figures.items():
                picture = self.docs / "studies" / f"{letter.lower()}-{name}.svg"
                words = [e.text for e in xml.etree.ElementTree.parse(picture).iter() if e.tag.endswith("text")]
                self.assertGreater(len(figure["series"]), 0)
                for series in figure["series"]:
                    self.assertTrue(any(word == series["label"] or figure["kind"] == "heat" and series["label"] in word for word in words), picture)
                    self.assertTrue(series["points"], picture)
                self.assertIn(documents.SAYS[picture.stem], words, "what the document shows, in grey")
                self.assertRegex(text, rf"\(studies/{picture.name}\)\n" + (rf"\n{re.escape(figure['result'])}\n" if figure["result"] else ""), "its sentence under the picture")
                self.assertFalse(figure["kind"] == "bars" and figure["log_y"], "a bar has no zero on a logarithmic axis")

    def test_slow_network(self):
        lines = {series["label"]: series["points"] for figure in of_parts(self.result("F"), "figures") if figure["name"] == "figure-9" for series in figure["series"]}
        if lines:  # with SimGrid
            self.assertLess(lines["protect, 1 Gbit/s"][-1][1], lines["protect, 100 Gbit/s"][-1][1])

    def test_verdicts(self):
        text = (self.docs / "studies.md").read_text()
        for letter in FIGURES:
            for claim in of_parts(self.result(letter), "claims"):
                self.assertIn(claim["verdict"], POSITIVE | NEGATIVE | {study.NOT_MEASURED})
                self.assertTrue(claim["why"] and claim["measured"] and claim["stated"])
                self.assertIn(f"| {claim['claim']} | {claim['stated']} |", text)

    def test_one_part_alone(self):
        """The other parts of the study, and other studies, stay as they are stored."""
        with tempfile.TemporaryDirectory() as folder:
            stored = {"parts": [{"name": name, "kept": True} for name in ("spawn-pool", "orders", "figure-15")]}
            pathlib.Path(folder, "A.json").write_text(json.dumps(stored))
            done = run(STUDIES / "a_student_report.py", "--tiny", "--build", BUILD, "-o", folder, "--part", "figure-15")
            self.assertEqual(done.returncode, 0, done.stderr)
            parts = json.loads(pathlib.Path(folder, "A.json").read_text())["parts"]
            self.assertEqual([(part["name"], "kept" in part) for part in parts], [("orders", True), ("figure-15", False), ("spawn-pool", True)])

    def test_every_study_has_its_section(self):
        text = (self.docs / "studies.md").read_text()
        for letter in "ABCDEFG":
            self.assertIn(f"\n## {letter}. ", text)

    def without(self, letter, *flags, path=None):
        with tempfile.TemporaryDirectory() as folder:
            done = run(STUDIES / "run.py", "--tiny", "--build", BUILD, "-o", folder, "--docs", folder, letter, *flags, path=path)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            found = of_parts(json.loads(pathlib.Path(folder, f"{letter}.json").read_text()), "not_measured")
            text = pathlib.Path(folder, "studies.md").read_text()
            for each in found:
                self.assertIn(f"NOT MEASURED: {each['reason']}", text)
                self.assertRegex(text, rf"\n- ([^\n]*, )?{re.escape(each['what'])}(,|:)")
            return {each["what"]: each["reason"] for each in found}

    def test_without_valgrind(self):
        found = self.without("A", path="/nonexistent")
        self.assertIn("valgrind is not installed", found["first-level-misses"])
        self.assertIn("valgrind is not installed", found["figure-7"])

    def test_without_jerasure(self):
        found = self.without("B", "--jerasure", "/nonexistent/libJerasure.so")
        self.assertIn("/nonexistent/libJerasure.so", found["table-2"])

    def test_without_energy_counters(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIn("no RAPL", self.without("D", "--sysfs", folder)["energy"])

    def test_other_bytes_end_the_study(self):
        with tempfile.TemporaryDirectory() as folder:
            fake = pathlib.Path(folder, "bin", "study_product")
            fake.parent.mkdir()
            fake.write_text("#!/bin/sh\necho '{\"seconds\": [1], \"cpu_seconds\": [1], \"bytes_equal\": false}'\n")
            fake.chmod(0o755)
            done = run(STUDIES / "a_student_report.py", "--tiny", "--build", folder, "-o", folder, path="/nonexistent")
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn("differ from Tandem's", done.stderr)
            self.assertFalse(pathlib.Path(folder, "A.json").exists())

    def test_flags(self):
        self.assertEqual(run(STUDIES / "run.py", "--tiny", "--part", "figure-15").returncode, 2)
        self.assertIn("there are lu, pipeline", run(STUDIES / "e_tasks.py", "--tiny", "--part", "figure-15").stderr)
        self.assertEqual(run(STUDIES / "run.py", "--tiny", "Z").returncode, 2)
        self.assertEqual(run(STUDIES / "run.py", "--tiny", "--quick").returncode, 2)


class World:
    """Invented times of 16 cores: as the reports state (or as Tandem aims), or the opposite."""

    # Never judged: no counter, not comparable, a graph that cannot show it.
    UNREACHED = ("Less energy by Turbo Boost and governors", "More unhalted time, so less waiting", "LU: concurrent write over libgomp")
    COMMANDS = {"D": ["runtimes-busy"], "E": ["pipeline"], "F": ["figure-2", "figure-3", "figure-5"]}  # parts that run whole programs

    def __init__(self, stated, others=0):
        self.stated, self.others = stated, others

    def product(self, way="sequential", order="ikj", rows="parity", rounds=1, file=None, threads=1, *, k, m, shard_bytes, **_):
        base, whole_file = k * shard_bytes * rounds, file is not None and k < 1000
        if threads > 16:  # more than cores
            return base * (0.5 if self.stated else 9), 0
        if file and not whole_file:  # figures 17 to 19
            share = 0.3 + shard_bytes / 40000
            return 1, (share if self.stated else 1 - share / 2) if way == "sequential" else 1.6 if self.stated else 0.9
        if not self.stated and way == "spawn" and m == 4 and not file:
            return base * (1.21 if k * shard_bytes >= 4_000_000 else 1), 0  # nothing in small rounds, where a constant would show
        if not self.stated:
            slow = {"transposed": 0.5 if way == "sequential" else 1, "ijk": 2 if shard_bytes < 4000 else 1}.get(order, 1)
            return (base * slow * {"spawn": 0.9 if m == 2 else 2, "openmp-static": 0.9, "openmp-dynamic": 0.5}.get(way, 1) if not whole_file or way == "sequential"
                    else base * 1.2,) * 2 if rows == "parity" or file or way != "sequential" else (base * m,) * 2
        if way == "spawn":
            return base * (1.01 if m == 4 and not file else 2 if (base < 1e8 if file else k < 12) else 0.6), 0
        if way.startswith("openmp"):
            return base * (0.6 if file else 2), 0
        return (base * ({"ijk": 4, "transposed": 0.5 if way == "pool" else 1}.get(order, 1)),) * 2

    def jerasure(self, way, m, buffer_bytes, lost="data", **_):
        if lost == "random":
            took, used = self.jerasure(way, m, buffer_bytes)
            return took, used if self.stated else 2 * used
        if way == "jerasure":
            return (10 + (buffer_bytes if self.stated else -buffer_bytes) / 2e7,) * 2
        if not way.startswith("tandem"):
            return 10 / m**0.7 if self.stated else 80 / m**1.2 + 2e6 / buffer_bytes, 1
        return (0.1 if (way == "tandem-column") == self.stated else 20,) * 2

    def placement(self, policy, applications=1, strips=16, operation="read", **_):
        if operation == "write":
            return 1 if self.stated or policy == "asking" else 1.6, 1
        if policy == "asking" and applications > 1 and not self.stated:
            return 2, 1
        if policy == "turns" and applications > 16 and self.stated:
            return 10, 1
        alike = applications >= 16 if self.stated else applications < 16
        slow = (1.6 if self.stated or policy == "turns" else 1.2) + (strips / 500 if policy == "least-loaded" else 0)
        return (slow if policy == "turns" or policy == "least-loaded" and not alike else 1, 1.6 if self.stated and policy != "asking" else 1)

    def contender(self, one, name, *, env=None, **settings):
        one.part["bytes_checks"] += 1
        way, n, stated = settings.get("way", ""), settings.get("shard_bytes", 0), self.stated
        passive = (env or {}).get("OMP_WAIT_POLICY") == "passive"
        took, used = {"study_product": self.product, "study_jerasure": self.jerasure, "study_placement": self.placement,
                      "study_runtimes": lambda **_: (2 if way == "tbb" and stated else 1,) * 2,
                      "study_lu": lambda **_: (1 if not stated or way == "openmp:gnu" and "concurrent_write" not in settings else 0.5,) * 2
                      }[name](**settings)
        cells = {(4 * n, -(-size * 1000 // (4 * n))): count for n, row in importlib.import_module("a_student_report").TABLE_1.items()
                 for size, count in row.items()}
        return {"seconds": [took] * 3, "cpu_seconds": [used] * 3, "data_bytes": 1e9, "spans": [[0, 0, 1, "lu0"]], "strips": 1,
                "early_bmods": int(stated and "concurrent_write" in settings), "strips_on_the_asking_core": 1,
                "openmp_runtimes": [f"/lib{'gomp' if way == 'openmp:gnu' else 'omp'}.so"] if way.startswith("openmp:") else [],
                "storage_bytes_read": 0, "cores_used": 16 if stated else 1,
                "threads_made": cells.get((n, settings.get("rounds")), 1) if stated else 0, "gap_seconds": 1,
                "gap_cpu_seconds": 0.01 if passive and stated else 1, "local_seconds": [1e-9], "remote_seconds": [1e-4 if stated else 1],
                "cache_misses": 1 if settings.get("policy") == "asking" else 3 if stated else 1}

    def storage(self, words):
        """The simulator's answer: the report's ratios, or others."""
        stated, mixed = self.stated, "--mix" in words
        pairs = [str(word) for word in words[2:] if word != "--mix"]
        given = dict(zip(pairs[::2], pairs[1::2]))
        sizes = [int(size[:-3]) << {"K": 10, "M": 20}[size[-3]] for size in given.get("--size", "128KiB").split(",")]
        points = ([(int(given["--total"]) // size, size) for size in sizes] if "--total" in given
                  else [(int(count), sizes[-1]) for count in given["--clients"].split(",")])
        apart = 1 if stated else 2 if mixed or given["--confidence"] == "0" else 1
        runs = []
        for parity in map(int, given.get("--parity", "1").split(",")):
            for clients, size in points:
                wcl = {1: 2, 2: 1.18}[parity] if stated else 1.4
                ratios = {"standard": 1, "raid0": (6.5 if stated else 2) * apart, "avoid": wcl * apart,
                          "delayed": ((6 if size < 65536 else wcl) if stated else 8) * apart}
                hot = stated and given.get("--parity-servers") == "dedicated"
                runs += [{"parity": parity, "clients": clients, "size_bytes": size, "strategy": strategy, "bytes_per_second": ratio, "seeds": [
                          {"bytes_per_second": ratio, "simulated_seconds": 5, "parity_updates": 1700 if stated else 250_000, "writes": 250_000,
                           "read_seconds": 2 if (strategy == "standard") == stated else 1, "utilisation": 0.5, "most_utilisation": 1 if hot else 0.5}] * 3}
                         for strategy, ratio in ratios.items() if strategy in given.get("--strategy", strategy)]
        return {"runs": runs}

    def bench(self, one, *words):
        if words[0] == "simulate":
            return self.storage(words)
        size = 10 if self.stated else 2
        joules = {"domain": "package", "joules_per_call": {"min": 1, "max": 1}, "joules_per_gb": 1, "idle_watts": 1,
                  "correlation_with_time": {"r": 0.5, "low": 0.1 if self.stated else -0.1, "high": 0.9}}
        return {"results": 2 * [{"in_cache": True, "operation": "encode", "k": 8, "m": 4, "over_peer": size, "data_bytes": 1,
                                 "energy": {"domains": [joules]}}]}

    def command(self, one, *words, env=None, errors=False):
        """callgrind, its table, cachegrind, and the simulators."""
        if "--nodes" in words:
            slow = any("gigabit" in str(word) for word in words) and ("encode" in words) != self.stated
            return "\n".join(json.dumps({"nodes": n, "bytes_per_second": n ** (0.3 if slow else 1)}) for n in words[words.index("--nodes") + 1:])
        if errors:
            return f"D1  misses: {int(words[words.index('--rounds') + 1]) * (9 if ('ijk' in words) == self.stated else 1):,}"
        if "--threshold=100" in words:
            self.counted = getattr(self, "counted", 0) + 1
            return f"{self.counted * 90:,} (1.0%)  a::{'product_ikj' if self.stated else 'x'}\n{self.counted * 10:,} (1.0%)  a::main"
        if "simulate" not in words:
            return ""
        both, many, budget = words.count("--worker") == 2, 1015 * 10**9 in words, "cpu=5" in words
        tasks = (1006, 9) if many else (344, 340)
        seconds = (200 if budget else 400) if both else 300 if "gpu:1x1" in words else 684
        if not self.stated:
            seconds, tasks = 200 if both and not budget else 684, (1, 1)
        return json.dumps({"makespan_seconds": seconds, "workers": [{"name": name, "tasks": count} for name, count in zip(("cpu", "gpu"), tasks)]})

    def parts(self, letters=studies_run.MODULES, only=None):
        """The measured parts of studies."""
        with tempfile.TemporaryDirectory() as folder:
            arguments = argparse.Namespace(scale="quick", build=BUILD, output=pathlib.Path(folder), jerasure=study.JERASURE, sysfs="/sys")
            pathlib.Path(folder, ".work").mkdir()
            for letter in letters:
                parts = importlib.import_module(studies_run.MODULES[letter]).PARTS
                one = study.Study(letter, "title", arguments)
                fakes = {name: lambda one, *words, call=getattr(self, name), **settings: call(one, *words, **settings)
                         for name in ("contender", "bench", "command")}
                with (unittest.mock.patch.object(study, "core_count", lambda: 16),
                      unittest.mock.patch.multiple(study.Study, tool=lambda one, name, package: name, others_share=self.others, **fakes)):
                    for name in only or [name for name in parts if name not in self.COMMANDS.get(letter, [])]:
                        one.measure(name, parts[name])
                        yield letter, one.part

    def verdicts(self):
        return {(letter, claim["claim"]): claim["verdict"] for letter, part in self.parts() for claim in part["claims"] if claim["claim"] not in self.UNREACHED}


class Impossible(World):
    """As the reports state, but the first `bad` runs of the threads of a pool take a thousandth of one thread's time."""

    def __init__(self, bad):
        super().__init__(True)
        self.bad = bad

    def product(self, way="sequential", **settings):
        took, used = super().product(way, **settings)
        if way != "pool" or self.bad == 0:
            return took, used
        self.bad -= 1
        return took / 1000, used


class Verdicts(unittest.TestCase):
    def test_share_of_other_programs(self):
        """10 s of two cores: the part takes 12 s of processor time, and other programs take `others`."""
        arguments = argparse.Namespace(scale="tiny", build=BUILD, output=BUILD)
        for others, busy in ((1, False), (3, True)):
            readings = iter([(100, 1000, 5), (110, 1012 + others, 17), (110, 1012 + others, 17)])
            with (unittest.mock.patch.object(study, "processor_seconds", lambda: next(readings)),
                  unittest.mock.patch.object(study, "core_count", lambda: 2)):
                one = study.Study("A", "title", arguments)
                one.measure("part", lambda one: self.assertEqual(one.is_busy, busy))
                self.assertEqual(one.parts[0]["others_share"], others / 20)

    def test_wrong_data_change_them(self):
        stated, opposite = World(True).verdicts(), World(False).verdicts()
        self.assertEqual(stated.keys(), opposite.keys())
        self.assertGreater(len(stated), 55)
        self.assertEqual({claim for claim, verdict in stated.items() if verdict not in POSITIVE}, set())
        self.assertEqual({claim for claim, verdict in opposite.items() if verdict not in NEGATIVE}, set())

    def test_limits(self):
        """The rules that all verdicts share, at their edges; the page prints each."""
        self.assertTrue(study.matches(2.9986, "3") and study.matches(2.5, "3") and study.matches(1.121, "1.18") and study.reaches(7, "3"))
        self.assertFalse(study.matches(2.49, "3") or study.matches(1.12, "1.18") or study.matches(7, "3") or study.reaches(2.49, "3"))
        self.assertTrue(study.alike(1, 1.1, 1.05) and study.no_faster(0.1) and study.no_faster(1.1) and study.faster(1.03) and study.grows([1, 1.01, 1.03]))
        self.assertFalse(study.alike(1, 1.11) or study.no_faster(1.11) or study.faster(1.02) or study.grows([1, 1.3, 1.2]) or study.grows([1, 1, 1.02]))
        self.assertTrue(study.is_place(14, 14) and study.is_place(10, 14) and study.is_place(21, 14))
        self.assertFalse(study.is_place(None, 14) or study.is_place(9, 14) or study.is_place(22, 14))
        for _, meaning in study.TOLERANCES.values():
            self.assertIn(meaning, report.limits())

    def test_an_impossible_speed_up_is_measured_again_and_then_refused(self):
        def of(bad):
            (_, part), = Impossible(bad).parts("A", ["orders"])
            return {claim["verdict"] for claim in part["claims"]}, part

        verdicts, part = of(1)
        self.assertEqual((verdicts, part["measured_again"], part["doubts"]), ({"reproduced"}, 1, []))
        verdicts, part = of(10**6)
        self.assertEqual(verdicts, {study.NOT_MEASURED})
        self.assertIn("62.5 times one thread for each of 16 cores", part["claims"][0]["why"])
        self.assertIn("62.5 times one thread for each of 16 cores", report.measured_text([part]))

    def test_a_point_far_from_its_repeats_is_measured_again(self):
        """The steadiest of three runs counts; the page names a point that stays far."""
        good, bad, worse = ('{{"seconds": [1, 1, 1], "cpu_seconds": [{}, 1, 1]}}'.format(least) for least in (0.6, 0.4, 0.1))
        arguments = argparse.Namespace(scale="tiny", build=BUILD, output=BUILD)
        for answers, again, least, unsteady in (([good], 0, 0.6, 0), ([worse, good], 1, 0.6, 0), ([worse, bad, worse], 2, 0.4, 1)):
            one, answers = study.Study("A", "title", arguments), iter(answers)
            with unittest.mock.patch.multiple(study.Study, command=lambda *_, answers=answers, **__: next(answers), others_share=0):
                one.measure("part", lambda one: setattr(one, "answer", one.contender("study_product", k=4)))
            self.assertEqual((one.part["measured_again"], one.answer["cpu_seconds"][0], len(one.part["unsteady"])), (again, least, unsteady))
            self.assertEqual("Still far after 3 tries: study_product k=4: its median is 2.5" in report.measured_text([one.part]), bool(unsteady))

    def test_a_slow_minute_meets_one_pass(self):
        times = iter([5, 1, 2, 5, 3, 4])
        one = study.Study("A", "title", argparse.Namespace(scale="quick", build=BUILD, output=BUILD))
        self.assertEqual(one.lines({"a": [10, 20]}, lambda label, x: next(times)), {"a": [(10, 2), (20, 1)]})

    def test_two_devices_on_the_same_cores_judge_no_budget(self):
        module = importlib.import_module("f_budget_profiler")
        rates = {"cpu": 26, "opencl:0:0": 5, "free": 10, "cpu=1": 12, "auto": 12}
        entries = [{"kind": "budget" if "=" in name else "alone" if name in ("cpu", "opencl:0:0") else name, "name": name, "gb_per_second": {"median": rate}}
                   for name, rate in rates.items()]
        for kind, verdicts in (("opencl-cpu", {study.NOT_MEASURED}), ("opencl-gpu", {"reproduced", "met"})):
            one = study.Study("F", "title", argparse.Namespace(scale="quick", build=BUILD, output=BUILD))
            with unittest.mock.patch.multiple(study.Study, bench=lambda *_: {"results": [{"size_bytes": 1, "entries": entries}]}, others_share=0):
                one.measure("figure-2", lambda one, kind=kind: module.real_run(one, {"name": "opencl:0:0", "kind": kind}))
            self.assertEqual({claim["verdict"] for claim in one.part["claims"]}, verdicts)
            self.assertEqual(["the CPU alone has 26.0 GB/s" in claim["why"] for claim in one.part["claims"]], [kind == "opencl-cpu"] * 2)

    def test_a_graph_without_gaps_cannot_gain(self):
        """By hand: a tile is one task, and 2 x 2 tiles are lu0, fwd, bdiv, bmod, lu0: 5 1/3 of work, 4 1/3 of them in a row."""
        most_gain = importlib.import_module("e_tasks").most_gain
        self.assertAlmostEqual(most_gain(2, 2), 100 * (13 / 3) / (16 / 3))
        self.assertEqual(most_gain(93, 1), 0)
        self.assertLess(most_gain(93, 48), 3)

    def judged(self, letter, judge, *values):
        module = importlib.import_module(studies_run.MODULES[letter])
        one = study.Study(letter, "title", argparse.Namespace(scale="quick", build=BUILD, output=BUILD))
        with unittest.mock.patch.multiple(study.Study, others_share=0):
            one.measure("part", lambda one: getattr(module, judge)(one, *values))
        return one.part["claims"]

    def test_making_threads_is_judged_in_the_rounds_of_the_report(self):
        """Small rounds that say otherwise, and large ones that differ from each other, leave no verdict."""
        pool = {5_000: 1e-4, 4_000_000: 0.02, 40_000_000: 0.2}
        for cost, at_4, at_40, verdict in ((4e-5, 1, 1, "reproduced"), (4e-5, 1.21, 1.21, "not reproduced"), (4e-5, 0.93, 1.21, study.NOT_MEASURED),
                                           (1e-2, 1, 1, study.NOT_MEASURED)):
            claim, = self.judged("A", "judge_spawn", {5_000: 1e-4 + cost, 4_000_000: 0.02 * at_4, 40_000_000: 0.2 * at_40}, pool)
            self.assertEqual(claim["verdict"], verdict, (cost, at_4, at_40))
            self.assertEqual("contradict" in claim["why"], verdict == study.NOT_MEASURED)

    def test_the_price_of_waking_is_taken_off_in_seconds(self):
        """By hand: both save 1 s, a write half of its time and a read a quarter of it; then reads save 3 s."""
        moved = importlib.import_module("c_placement").moved
        self.assertEqual(moved([(4,)], [(5,)], [(2,)], [(3,)]), [0])
        self.assertEqual(moved([(4,)], [(7,)], [(2,)], [(3,)]), [50])

    def test_a_run_without_seconds_has_a_bound(self):
        """Reads with nothing taken off: below the document's figure they refute it, above they say nothing."""
        for read, write, difference, verdict in ((22, 34, None, "not reproduced"), (60, 34, None, study.NOT_MEASURED), (22, -1, None, study.NOT_MEASURED),
                                                 (60, 34, 54, "reproduced"), (60, 34, 20, "not reproduced")):
            claim, _ = self.judged("C", "judge_writes", read, write, difference)
            self.assertEqual(claim["verdict"], verdict, (read, write, difference))

    def test_stored_claims_follow_from_stored_points(self):
        def stored(letter, name):
            part = next(each for each in json.loads((STUDIES.parent / f"results/studies/{letter}.json").read_text())["parts"] if each["name"] == name)
            return part["claims"], {series["label"]: series["points"] for series in part["figures"][-1]["series"]}

        def short(claims):
            return [(claim["claim"], claim["measured"], claim["verdict"]) for claim in claims]

        claims, lines = stored("A", "spawn-pool")
        self.assertEqual(short(self.judged("A", "judge_spawn", dict(lines["made each round"]), dict(lines["pool"]))), short(claims))
        claims, lines = stored("A", "orders")
        self.assertEqual(short(self.judged("A", "judge_gains", lines, 10000)), short(claims[-4:]))
        claims, lines = stored("C", "writes")
        reads, control, *difference = (point[1] for point in lines["median"])
        self.assertEqual(short(self.judged("C", "judge_writes", reads, control, difference[0] if difference else None)), short(claims))

    def test_a_busy_machine_judges_no_time(self):
        """Counts and simulations are judged, times are not."""
        verdicts = World(True, others=0.11).verdicts()
        judged = {letter for (letter, _), verdict in verdicts.items() if verdict != study.NOT_MEASURED}
        self.assertEqual(judged, {"A", "C", "E", "F"})
        self.assertEqual(sum(verdict != study.NOT_MEASURED for verdict in verdicts.values()), 21)


class Pictures(unittest.TestCase):
    """A measured figure is drawn beside what the document shows, as a speed-up where the claim is one."""

    FIGURE = {"title": "t", "x": "bytes of a transfer", "y": "GB/s", "kind": "lines", "log_x": True, "log_y": True, "note": "", "result": "A sentence.",
              "marks": [], "name": "figure-5-m8-encode", "series": [{"label": "Jerasure, 1 thread", "points": [[65536, 2], [1048576, 4]]},
                                         {"label": "Jerasure, 8 pthreads by parity (oversubscribed)", "points": [[65536, 3], [1048576, 8]]}]}

    def words(self, figure):
        with tempfile.TemporaryDirectory() as folder:
            charts.draw(figure, pathlib.Path(folder, "a.svg"))
            return [e.text for e in xml.etree.ElementTree.parse(pathlib.Path(folder, "a.svg")).iter() if e.tag.endswith(("text", "title"))]

    def test_a_headline_shows_what_was_measured_and_nothing_else(self):
        def row(measured, verdict, written, why=""):
            return documents.headline("label", {"measured": measured, "verdict": verdict, "why": why}, (3,), written)

        self.assertEqual(row("2.62x at N = 10000; 1.93x to 3.00x", "not reproduced", "times")["ours"], [1.93, 3])
        self.assertEqual(row("+92.5 % at best, 2 applications", "reproduced", "more")["ours"], [1.925, 1.925])
        fitted = row("simulated: best is 5; at 5: 344 and 340", "fitted", "pair")
        self.assertEqual((fitted["ours"], fitted["hollow"]), ([344 / 340] * 2, True))
        missing = row("at most 1.63x, oversubscribed", "NOT MEASURED", "times", "Needs 12 cores; this machine has 2.")
        self.assertEqual((missing["ours"], missing["verdict"]), ([], "needs 12 cores"))
        self.assertEqual(row("-", "NOT MEASURED", "more", "No counter.")["verdict"], "NOT MEASURED")

    def test_speed_up(self):
        figure = documents.drawn("b-figure-5-m8-encode", self.FIGURE)
        self.assertEqual([series["points"] for series in figure["series"]], [[[65536, 1], [1048576, 1]], [[65536, 1.5], [1048576, 2]]])
        words = self.words(figure)
        for expected in ("times as fast as Jerasure, 1 thread", "the document, at most: 2.98", documents.SAYS["b-figure-5-m8-encode"], "64 KiB", "1 MiB"):
            self.assertIn(expected, words)

    def test_times_become_speed_ups(self):
        figure = {**self.FIGURE, "series": [{"label": "sequential", "points": [[4, 6]]}, {"label": "pthreads", "points": [[4, 3]]}]}
        self.assertEqual(documents.drawn("a-figure-15", figure)["series"][1]["points"], [[4, 2]])

    def test_few_cores(self):
        self.assertEqual([report.needs_text(self.FIGURE, cores) for cores in (2, 8)], ["Needs 8 cores; this machine has 2.", ""])
        self.assertEqual([study.needs_cores(count, 4) for count in (4, 6)], ["", "Needs 6 cores; this machine has 4."])

    def test_spread(self):
        figure = {**self.FIGURE, "series": [{"label": "a", "points": [[65536, 2, 1, 64]]}], "log_y": False}
        self.assertIn("60", self.words(figure), "the scale has room for the spread")
        figure = {**self.FIGURE, "series": [{"label": "a", "points": [[65536, 2, 0, 64]]}]}
        self.assertIn("50", self.words(figure), "a logarithmic scale ends above the 0 of a spread")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
