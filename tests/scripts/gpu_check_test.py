#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests scripts/gpu-check with the test's own programs instead of Tandem's, and without a GPU.

    gpu_check_test.py GPU_CHECK
"""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

PATH = sys.argv.pop(1)
loader = importlib.machinery.SourceFileLoader("gpu_check", PATH)
sys.dont_write_bytecode = True
gpu_check = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
loader.exec_module(gpu_check)

SHARE = '{"data_bytes_per_second": 2e10, "of_roof": 0.8}'
CUDA_BENCH = f"""case "$1" in
device) echo '{{"name": "NVIDIA None", "memory_bytes": 4096}}' ;;
micro) echo '{{"lanes_per_second": {{"LOP3": 4e12}}}}' ;;
first) test -e "$TANDEM_CACHE_DIR/$2" && s=0.1 || s=0.4; mkdir -p "$TANDEM_CACHE_DIR/$2"; echo "{{\\"compiled_seconds\\": $s}}" ;;
*) echo '{{"encode": {SHARE}, "decode": {SHARE}, "verify": {SHARE}}}' ;;
esac"""
TANDEM = """test -z "${TANDEM_TUNING-unset}" || exit 9  # what was tuned on this machine is not measured
case "$1" in
hybrid) echo '{"results": [{"operation": "encode", "best_alone": "cpu", "entries":
  [{"gb_per_second": {"median": 9}, "over_best_alone": 0.5}]}]}' ;;
batch) test "$3" = cuda && echo '{"results": [{"operation": "encode", "over_one_stripe": 1.2}, {"operation": "decode", "over_one_stripe": 1.4}]}' ;;
run) echo '{"results": [{"tandem": {"gb_per_second": {"median": 20}}}]}' ;;
autotune) echo '{"entries": [{"operation": "encode", "k": 10, "m": 4, "values": "", "bytes_per_second": 2,
  "default_bytes_per_second": 1}]}' ;;
esac"""
# The table's head and the two kinds of rows, among lines that are none of it.
NCU = """while [ "$1" != --log-file ]; do shift; done
{ echo '==PROF== Connected'
  echo '"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name"'
  echo '"0","tandem_apply","Occupancy","Achieved Occupancy","%","61.5",""'
  echo '"0","tandem_apply","Occupancy","","","","Advice"'; } >"$2"
shift 2; exec "$@" """


class Check(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        self.output = self.folder / "elsewhere" / "report.json"
        # A fake tool takes the place of one that is installed, wherever gpu-check would find that.
        tools = mock.patch.object(gpu_check, "tool", lambda name, *_: str(self.bin / name) if (self.bin / name).exists() else None)
        for patch in (mock.patch.dict(os.environ, PATH=f"{self.bin}:{os.environ['PATH']}", FOLDER=str(self.folder), TANDEM_TUNING="/tuned"), tools,
                      mock.patch.object(gpu_check, "why_no_gpu", lambda: None)):  # fmt: skip
            patch.start()
            self.addCleanup(patch.stop)
        self.program("conformance_cuda_test", "echo '[  PASSED  ] 3 tests.'")
        self.program("compute-sanitizer", "echo '========= ERROR SUMMARY: 0 errors'")
        self.program("thrust_object_store", "echo yes")
        self.program("cuda_bench", CUDA_BENCH)
        for name in ("tandem", "tandem-bench"):
            self.program(name, TANDEM)
        self.program("ncu", NCU)
        self.program("cuda_cache", 'mkdir -p "$1/cuda"; echo kernels >"$1/cuda/a.program"; echo 12 kernels')
        self.program("cmake", 'case "$1" in -S) mkdir -p "$4"; touch "$4/CMakeCache.txt" ;;\n'
                     '*) mkdir -p "$2/bin"; cp "$FOLDER"/bin/[clt]* "$2/bin" ;; esac')  # fmt: skip
        for library in ("libtandem.so.0", "libtandem_volume.so.0", "libtandem_par2.so.0", "libtandem_cuda.so"):
            (self.bin / library).write_text("a library")

    def program(self, name, script):
        """Each notes its call and the report as it is then."""
        seen = f'echo "{name} $*" >>"$FOLDER/calls"; test -e {self.output} && cp {self.output} "$FOLDER/seen by {name} $1"'
        (self.bin / name).write_text(f"#!/bin/sh\n{seen}\n{script}\n")
        (self.bin / name).chmod(0o755)

    def main(self, *arguments):
        """Status, output, calls."""
        (self.folder / "calls").write_text("")
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), mock.patch.object(sys, "argv", ["gpu-check", *map(str, arguments)]):
            try:
                status = gpu_check.main()
            except SystemExit as end:
                status = end.code
        return status, said.getvalue(), (self.folder / "calls").read_text().splitlines()

    def measure(self, *parts):
        """What the report on disk says after parts of so many seconds."""
        report = gpu_check.Report(self.output, {"memory_bytes": 4096})
        with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stdout(io.StringIO()) as said:
            lease = gpu_check.Lease(self.bin, report.content["device"], report, gpu_check.Deadline(1000), pathlib.Path(scratch))
            lease.go(parts)
        self.said = said.getvalue()
        return json.loads(self.output.read_text())

    def deps(self):
        """As --pack makes it, without the packages."""
        to = self.folder / "deps" / "bin"
        to.mkdir(parents=True)
        for name in gpu_check.PROGRAMS:
            to.joinpath(name).write_bytes((self.bin / name).read_bytes())
            to.joinpath(name).chmod(0o755)
        return to.parent

    # ---- everything

    def test_everything_in_its_order_and_into_the_file_that_was_asked_for(self):
        status, said, calls = self.main("--deps", self.deps(), "-o", self.output)
        self.assertEqual(status, 0, said)
        report = json.loads(self.output.read_text())
        self.assertEqual((report["wrong"], report["finished"], report["device"]["name"]), ([], True, "NVIDIA None"))
        self.assertEqual(list(report["parts"]), [part.__name__ for part, _ in gpu_check.PARTS])
        self.assertEqual([each for each in calls if each.startswith("cmake")], [])
        first = [next(i for i, call in enumerate(calls) if call.startswith(start)) for start in (
            "conformance_cuda_test", "thrust_object_store", "cuda_bench micro", "cuda_bench code 4 2", "cuda_bench transform 64 16", "cuda_bench tables", "cuda_bench first", "cuda_bench host",
            "tandem-bench run --backend", "tandem-bench batch", "tandem-bench hybrid", "tandem autotune", "ncu", "compute-sanitizer", "cuda_bench code 128 32")]  # fmt: skip
        self.assertEqual(first, sorted(first))
        self.assertTrue(calls[-2].startswith("cuda_bench code 128 32") and calls[-1].startswith("cuda_bench transform 128 32"))
        self.assertEqual(report["parts"]["codes_on_the_device"][0]["encode"]["met"], False)
        self.assertEqual(report["parts"]["hybrid"][2]["results"][0]["best_alone"], "cpu")
        for what in ("seen by tandem autotune", "seen by ncu --clock-control"):
            seen = json.loads((self.folder / what).read_text())
            self.assertEqual(seen["finished"], False)
            self.assertIn("hybrid", seen["parts"])

    def test_the_limits_leave_each_part_its_time(self):
        self.assertLessEqual(sum(seconds for _, seconds in gpu_check.PARTS), gpu_check.ALL_SECONDS)
        self.assertLess(gpu_check.ALL_SECONDS, 600)
        self.assertEqual([part for part, _ in gpu_check.PARTS[-2:]], [gpu_check.widest_code, gpu_check.widest_code_by_transform])

    def test_what_fails_is_wrong_and_the_rest_goes_on(self):
        for name in ("conformance_cuda_test", "tandem", "tandem-bench"):
            self.program(name, "test \"$1\" = --version || { echo broken >&2; exit 1; }; exit 0")
        self.program("conformance_cuda_test", "exit 1")
        status, said, calls = self.main("--deps", self.deps(), "-o", self.output)
        self.assertEqual(status, 1)
        report = json.loads(self.output.read_text())
        self.assertEqual(list(report["parts"]), [part.__name__ for part, _ in gpu_check.PARTS])
        self.assertEqual({each.split(":")[0] for each in report["wrong"]},
                         {"conformance", "from_pageable_host_memory", "many_stripes", "hybrid", "tuning"})  # fmt: skip
        self.assertIn("broken", report["wrong"][-1])
        self.assertIn("WRONG", said.splitlines()[-1])
        self.assertTrue(report["parts"]["widest_code"][0]["encode"]["of_roof"])

    # ---- one part

    def test_what_hangs_is_ended_with_what_it_started(self):
        # The second process holds the pipe open; what was said until then counts. Time runs once it was said.
        self.program("conformance_cuda_test", "echo '[ RUN      ] A.Good'; echo '[       OK ] A.Good (0 ms)'; echo '[ RUN      ] A.Hangs'\n"
                     "touch \"$FOLDER/hangs\"; sleep 600 & wait")  # fmt: skip
        communicate = subprocess.Popen.communicate

        def wait(process, timeout):
            while not (self.folder / "hangs").exists():
                time.sleep(0.01)
            return communicate(process, timeout=timeout)

        with mock.patch.object(subprocess.Popen, "communicate", wait):
            report = self.measure((gpu_check.conformance, 2), (gpu_check.microbenchmarks, 60))
        self.assertRegex(report["wrong"][0], "^conformance: not done after . s")
        self.assertEqual(report["parts"]["conformance"]["last_words"], "[ RUN      ] A.Hangs\n")
        self.assertEqual(len(report["wrong"]), 1)
        self.assertIn("lanes_per_second", report["parts"]["microbenchmarks"])

    def test_a_part_that_breaks_or_has_no_time_is_wrong(self):
        def breaks(_):
            raise KeyError("of_roof")

        report = self.measure((breaks, 60), (gpu_check.microbenchmarks, 0), (gpu_check.from_pageable_host_memory, 60))
        self.assertEqual(report["wrong"], ["breaks: KeyError: 'of_roof'", "microbenchmarks: no time is left"])
        self.assertEqual((report["parts"]["breaks"], report["parts"]["microbenchmarks"]), (None, None))

    def test_no_json_is_wrong(self):
        self.program("cuda_bench", "echo not json")
        report = self.measure((gpu_check.codes_on_the_device, 60))
        self.assertEqual(len(report["wrong"]), len(gpu_check.CODES))
        self.assertIn("cuda_bench code 4 2 1024: no JSON", report["wrong"][0])

    def test_a_failing_suite_is_in_the_report_with_its_tests(self):
        for script, kind in (("echo '[  FAILED  ] Cuda/Shards.Graph/gpu, where'; exit 1", "failed"),
                             ("echo '[  SKIPPED ] Cuda/Shards.Graph/gpu (0 ms)'", "skipped")):  # fmt: skip
            self.program("conformance_cuda_test", script)
            said = self.measure((gpu_check.conformance, 60))
            self.assertFalse(said["parts"]["conformance"]["passed"])
            self.assertEqual(said["parts"]["conformance"][kind], ["Cuda/Shards.Graph/gpu"])
            self.assertIn("1 failed or skipped: Cuda/Shards.Graph/gpu", said["wrong"][0])
        self.program("conformance_cuda_test", "echo NOT RUN: no device")
        self.assertEqual(len(self.measure((gpu_check.conformance, 60))["wrong"]), 1)

    def sanitizer(self, script):
        self.program("compute-sanitizer", script)
        said = self.measure((gpu_check.compute_sanitizer, 60))
        return said["parts"]["compute_sanitizer"], said["wrong"]

    def test_a_sanitizer_that_the_machine_refuses_was_not_run(self):
        for script in ("echo 'Error: Device not supported'; echo 'ERROR SUMMARY: 0 errors'; exit 1", "echo no; exit 3", "exit 0"):
            verdict, wrong = self.sanitizer(script)
            self.assertIn("not run", verdict)
            self.assertEqual(wrong, [])

    def test_what_a_sanitizer_finds_is_wrong_however_much_comes_after_it(self):
        noise = "i=0; while [ $i -lt 300 ]; do echo a line of the program; i=$((i + 1)); done"
        for status in (86, 1):
            verdict, wrong = self.sanitizer(f"echo '========= ERROR SUMMARY: 4 errors'; {noise}; exit {status}")
            self.assertEqual(verdict["status"], status)
            self.assertIn("4 errors", verdict["errors"])
            self.assertEqual(wrong, [f"compute_sanitizer: status {status}"])

    def test_a_program_that_fails_without_errors_of_memory_is_wrong(self):
        verdict, wrong = self.sanitizer("echo 'ERROR SUMMARY: 0 errors'; exit 1")
        self.assertEqual(verdict["status"], 1)
        self.assertEqual(wrong, ["compute_sanitizer: status 1"])

    def test_nsight_compute_has_figures_or_was_not_run(self):
        profiles = self.measure((gpu_check.nsight_compute, 60))["parts"]["nsight_compute"]
        self.assertEqual([each["metrics"] for each in profiles], [{"Occupancy: Achieved Occupancy": "61.5 %"}] * len(gpu_check.PROFILED))
        self.program("ncu", "echo '==ERROR== ERR_NVGPUCTRPERM'; exit 1")
        said = self.measure((gpu_check.nsight_compute, 60))
        self.assertIn("ERR_NVGPUCTRPERM", said["parts"]["nsight_compute"][3]["not_run"])
        self.assertEqual(said["wrong"], [])
        (self.bin / "ncu").unlink()
        self.assertIn("not run", self.measure((gpu_check.nsight_compute, 60))["parts"]["nsight_compute"])

    def test_a_first_use_has_its_verdicts(self):
        # Compiled, then found on disk.
        result = self.measure((gpu_check.first_use, 60))["parts"]["first_use"]
        for name, is_met in (("new", False), ("cached_on_disk", True)):
            self.assertEqual([each["met"] for each in result[name]], [is_met] * len(gpu_check.FIRST_USE))
        self.assertIn(": NOT MET\n", self.said)

    def test_pageable_memory_is_compared_with_the_link(self):
        report = self.measure((gpu_check.from_pinned_host_memory, 60), (gpu_check.from_pageable_host_memory, 60))
        for one in report["parts"]["from_pageable_host_memory"]:  # the link's rate is 2e10 / 0.8
            link = one["results"][0]["of_the_link"]
            self.assertEqual((round(link["of_roof"], 6), link["met"]), (0.8, True))
        self.program("cuda_bench", "exit 1")  # no link to compare with: the rate alone
        report = self.measure((gpu_check.from_pinned_host_memory, 60), (gpu_check.from_pageable_host_memory, 60))
        self.assertEqual(len(report["wrong"]), 1)
        self.assertEqual(report["parts"]["from_pageable_host_memory"][1]["results"][0], {"tandem": {"gb_per_second": {"median": 20}}})

    def test_many_stripes_fit_the_device_and_have_their_verdict(self):
        report = self.measure((gpu_check.many_stripes, 60))
        for one in report["parts"]["many_stripes"]:
            self.assertEqual([each["met"] for each in one["results"]], [True, False])
        calls = (self.folder / "calls").read_text().splitlines()
        self.assertEqual(len(calls), len(gpu_check.MANY))
        self.assertIn("--stripes 1 ", calls[0])  # the device of this test has 4 KiB

    def test_tuning_is_on_device_memory_and_its_codes_share_the_time(self):
        report = self.measure((gpu_check.tuning, 100))
        self.assertEqual(len(report["parts"]["tuning"]), len(gpu_check.TUNED))
        calls = (self.folder / "calls").read_text().splitlines()
        for call, (k, m) in zip(calls, gpu_check.TUNED, strict=True):
            self.assertIn(f"--memory device --operation encode -k {k} -m {m} ", call)
        self.assertRegex(calls[0], "--max-seconds (3|4)[0-9] ")
        self.assertRegex(self.said, "encode 10\\+4: 2.00 of the built-in rate")

    def test_a_share_of_the_roof_has_its_verdict(self):
        for share, is_met in ((0.9, True), (0.89, False)):
            one = {"of_roof": share}
            with contextlib.redirect_stdout(io.StringIO()) as said:
                gpu_check.show("10+4 encode", one, 0.9)
            self.assertEqual(one["met"], is_met)
            self.assertEqual("NOT MET" in said.getvalue(), not is_met)

    # ---- where the programs come from

    def test_build_only_builds_for_another_place_and_runs_nothing(self):
        status, _, calls = self.main("--build-only", "--build", self.folder / "built")
        self.assertFalse(status)
        self.assertEqual(len(calls), 2)
        self.assertIn("-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON", calls[0])
        self.assertIn(f"--target {' '.join(gpu_check.TARGETS)}", calls[1])

    def test_programs_that_do_not_start_here_are_built(self):
        deps = self.deps()
        for config in ("fmt-config", "CLI11Config", "nlohmann_jsonConfig", "GTestConfig"):
            (deps / f"{config}.cmake").write_text("")
        (deps / "bin" / "tandem").write_text("#!/bin/sh\necho 'GLIBC_9.99 not found' >&2; exit 1")
        status, said, calls = self.main("--deps", deps, "--build", self.folder / "built", "-o", self.output)
        self.assertEqual(status, 0, said)
        self.assertIn("GLIBC_9.99 not found", said)
        self.assertEqual(len([each for each in calls if each.startswith("cmake")]), 2)

    def test_a_pack_has_the_programs_if_there_is_a_build(self):
        self.program("dpkg", "for file in fmt/core.h CLI/CLI.hpp nlohmann/json.hpp xxhash.h gtest/gtest.h; do echo /usr/include/$file; done")
        header = self.folder / "header"
        header.write_text("a header")
        real = os.path.realpath
        with mock.patch.object(os.path, "realpath", lambda file, **_: str(header) if str(file).startswith("/usr/") else real(file)):
            packed, built = self.folder / "packed", self.folder / "built"
            _, said, calls = self.main("--pack", packed, "--build", built)
            self.assertIn("5 files, 0.0 MiB, no programs", said)
            self.assertEqual((packed / "usr/include/CLI/CLI.hpp").read_text(), "a header")
            self.assertFalse((packed / "bin").exists())
            self.main("--build-only", "--build", built)
            (self.bin / "libtandem.so.0").write_text("a newer library")  # what is old in the build is made anew
            _, said, calls = self.main("--pack", packed, "--build", built)
            self.assertIn(f"{5 + len(gpu_check.PROGRAMS)} files", said)
        self.assertIn("compiled before: 12 kernels", said)
        self.assertTrue((packed / gpu_check.CACHE / "cuda" / "a.program").exists())
        own = self.folder / "own"
        with mock.patch.dict(os.environ):
            gpu_check.use_cache(packed, own)
            self.assertEqual(os.environ["TANDEM_CACHE_DIR"], str(own))
        self.assertEqual((own / "cuda").stat().st_mode & 0o777, 0o700, "the library takes no other folder")
        self.assertEqual((own / "cuda" / "a.program").read_text(), "kernels\n")
        self.assertEqual({each.name for each in (packed / "bin").iterdir()}, set(gpu_check.PROGRAMS))
        self.assertEqual((packed / "bin/libtandem.so.0").read_text(), "a newer library")
        self.assertTrue(os.access(packed / "bin/cuda_bench", os.X_OK))

    def test_no_gpu_ends_it_at_once(self):
        with mock.patch.object(gpu_check, "why_no_gpu", lambda: "none"):
            status, said, calls = self.main("--deps", self.deps(), "-o", self.output)
        self.assertEqual((status, calls), (1, []))
        self.assertIn("no GPU to check: none", said)


unittest.main()
