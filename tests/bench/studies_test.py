#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs all studies with --tiny. Contenders' bytes must equal Tandem's, pictures must have their series, and a missing tool must
give its message and status 0. Tests no speed.

    studies_test.py FOLDER_OF_STUDIES BUILD_FOLDER"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import xml.etree.ElementTree

STUDIES, BUILD = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
sys.path.insert(0, str(STUDIES))
import study  # noqa: E402
# Figures that need no tool except the compiler, and the contenders with compared bytes.
FIGURES = {"A": ["figure-12", "figure-14", "figure-15", "figure-16", "figure-17", "figure-18", "figure-21", "spawn-pool",
                 "figure-22"],
           "B": ["over-jerasure", "figure-3", "mixed-decode", *(f"figure-{4 if m == 4 else 5}-m{m}-{operation}"
                 for m in (4, 8, 12) for operation in ("encode", "decode"))],
           "C": ["policies"],
           "D": ["runtimes", "waiting"],
           "E": ["lu", "lu-gantt", "pipeline", "pipeline-gantt"],
           "F": ["figure-2", "figure-2-real", "figure-3-real", "figure-5"]}
NO_CONTENDERS = ("F",)  # its runs are simulated, or of `tandem` alone
VERDICTS = ("reproduced", "not reproduced", "NOT MEASURED")


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

    def test_bytes_were_compared(self):
        for letter in FIGURES:
            result = self.result(letter)
            lacks_all = letter in NO_CONTENDERS or any(each["what"] == f"study {letter}" for each in result["not_measured"])
            self.assertEqual(result["bytes_checks"] == 0, lacks_all, letter)

    def test_figures_have_their_series(self):
        text = (self.docs / "studies.md").read_text()
        for letter, expected in FIGURES.items():
            figures = {figure["name"]: figure for figure in self.result(letter)["figures"]}
            missing = [each["what"] for each in self.result(letter)["not_measured"]]
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
                self.assertIn(f"(studies/{picture.name})", text)

    def test_verdicts(self):
        text = (self.docs / "studies.md").read_text()
        for letter in FIGURES:
            for claim in self.result(letter)["claims"]:
                self.assertIn(claim["verdict"], VERDICTS)
                self.assertTrue(claim["why"] and claim["measured"])
                self.assertIn(claim["claim"], text)

    def test_every_study_has_its_section(self):
        text = (self.docs / "studies.md").read_text()
        for letter in "ABCDEFG":
            self.assertIn(f"\n## {letter}. ", text)

    def test_a_busy_machine_judges_no_time(self):
        """10 s of two cores: the study takes 12 s of processor time, and other programs take `others`."""
        arguments = argparse.Namespace(scale="tiny", build=BUILD, output=self.results)
        for others, verdict in ((1, "reproduced"), (3, "NOT MEASURED")):
            readings = iter([(100, 1000, 5), (110, 1012 + others, 17)] + 3 * [(110, 1012 + others, 17)])
            with (unittest.mock.patch.object(study, "processor_seconds", lambda: next(readings)),
                  unittest.mock.patch.object(study, "core_count", lambda: 2)):
                one = study.Study("A", "title", arguments)
                one.claim("timed", "1x", True, "why", timed=True)
                one.claim("counted", "1x", True, "why")
                self.assertEqual([claim["verdict"] for claim in one.result["claims"]], [verdict, "reproduced"])

    def without(self, letter, *flags, path=None):
        with tempfile.TemporaryDirectory() as folder:
            done = run(STUDIES / "run.py", "--tiny", "--build", BUILD, "-o", folder, "--docs", folder, letter, *flags, path=path)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            found = json.loads(pathlib.Path(folder, f"{letter}.json").read_text())["not_measured"]
            text = pathlib.Path(folder, "studies.md").read_text()
            for each in found:
                self.assertIn(f"{each['what']}: NOT MEASURED: {each['reason']}", text)
            return {each["what"]: each["reason"] for each in found}

    def test_without_valgrind(self):
        found = self.without("A", path="/nonexistent")
        self.assertIn("valgrind is not installed", found["first-level misses"])
        self.assertIn("valgrind is not installed", found["figure 7, instructions by function"])

    def test_without_jerasure(self):
        found = self.without("B", "--jerasure", "/nonexistent/libJerasure.so")
        self.assertIn("/nonexistent/libJerasure.so", found["study B"])

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
        self.assertEqual(run(STUDIES / "run.py", "--tiny", "Z").returncode, 2)
        self.assertEqual(run(STUDIES / "run.py", "--tiny", "--quick").returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
