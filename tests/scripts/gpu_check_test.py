#!/usr/bin/env python3
"""What scripts/gpu-check makes of what its programs say: with programs of the test's own, and no GPU.

    gpu_check_test.py GPU_CHECK
"""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest

PATH = sys.argv.pop(1)
loader = importlib.machinery.SourceFileLoader("gpu_check", PATH)
sys.dont_write_bytecode = True
gpu_check = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
loader.exec_module(gpu_check)


class Check(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.report = gpu_check.Report(self.folder / "report.json", {"name": "none"})
        path = os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", path)
        os.environ["PATH"] = f"{self.folder}:{path}"
        self.program("conformance_cuda_test", "echo '[  PASSED  ] 3 tests.'")
        self.program("compute-sanitizer", "echo '========= ERROR SUMMARY: 0 errors'")

    def program(self, name, script):
        (self.folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.folder / name).chmod(0o755)

    def correctness(self):
        """What the report on disk says."""
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            try:
                gpu_check.correctness(self.report, self.folder, gpu_check.Deadline(60))
                self.is_ended = False
            except SystemExit:
                self.is_ended = True
        return json.loads(self.report.path.read_text())

    def sanitizer(self, script):
        self.program("compute-sanitizer", script)
        said = self.correctness()
        return said["parts"]["compute_sanitizer"], said["wrong"]

    def test_all_is_well(self):
        said = self.correctness()
        self.assertTrue(said["parts"]["conformance"]["passed"])
        self.assertEqual(said["parts"]["compute_sanitizer"], "no errors")
        self.assertEqual(said["wrong"], [])

    def test_a_failing_suite_is_in_the_report_that_it_leaves(self):
        for script in ("exit 1", "echo '[  SKIPPED ] 2 tests, listed below:'"):
            self.report.wrong.clear()
            self.program("conformance_cuda_test", script)
            said = self.correctness()
            self.assertTrue(self.is_ended)
            self.assertFalse(said["parts"]["conformance"]["passed"])
            self.assertEqual(said["wrong"], ["conformance"])

    def test_a_sanitizer_that_the_machine_refuses_was_not_run(self):
        for script in ("echo 'Error: Device not supported'; echo 'ERROR SUMMARY: 0 errors'; exit 1", "echo no; exit 3", "exit 0"):
            verdict, wrong = self.sanitizer(script)
            self.assertIn("not run", verdict)
            self.assertEqual(wrong, [])

    def test_what_a_sanitizer_finds_is_wrong_however_much_comes_after_it(self):
        noise = "i=0; while [ $i -lt 300 ]; do echo a line of the program; i=$((i + 1)); done"
        for status in (86, 1):
            self.report.wrong.clear()
            verdict, wrong = self.sanitizer(f"echo '========= ERROR SUMMARY: 4 errors'; {noise}; exit {status}")
            self.assertEqual(verdict["status"], status)
            self.assertIn("4 errors", verdict["errors"])
            self.assertEqual(wrong, ["compute-sanitizer"])

    def test_a_program_that_fails_without_errors_of_memory_is_wrong(self):
        verdict, wrong = self.sanitizer("echo 'ERROR SUMMARY: 0 errors'; exit 1")
        self.assertEqual(verdict["status"], 1)
        self.assertEqual(wrong, ["compute-sanitizer"])

    def test_a_first_use_has_its_verdicts(self):
        # Compiled, then found on disk.
        self.program("cuda_bench", 'test -e "$TANDEM_CACHE_DIR" && s=0.1 || s=0.4; mkdir -p "$TANDEM_CACHE_DIR"\n'
                     'echo "{\\"compiled_seconds\\": $s}"')  # fmt: skip
        with contextlib.redirect_stdout(io.StringIO()) as said:
            result = gpu_check.first_use(self.folder, gpu_check.Deadline(60), self.folder / "cache", [(10, 4)])
        self.assertEqual([result["new"][0]["met"], result["cached_on_disk"][0]["met"]], [False, True])
        self.assertEqual([line.endswith(end) for line, end in zip(said.getvalue().splitlines(), (": NOT MET", ": met"))], [True, True])

    def test_a_share_of_the_roof_has_its_verdict(self):
        for share, is_met in ((0.9, True), (0.89, False)):
            one = {"of_roof": share}
            with contextlib.redirect_stdout(io.StringIO()) as said:
                gpu_check.show("10+4 encode", one, 0.9)
            self.assertEqual(one["met"], is_met)
            self.assertEqual("NOT MET" in said.getvalue(), not is_met)


unittest.main()
