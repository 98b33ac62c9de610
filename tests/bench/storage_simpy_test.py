#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `tandem-bench simulate storage` with the same system on SimPy: storage_simpy_test.py TANDEM_BENCH PACKAGES. storage_simpy.json
is the output of storage_simpy.py. The test installs SimPy once, into the folder PACKAGES, to make that output again. If SimPy
cannot be installed, this part is NOT RUN."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import storage_simpy  # noqa: E402

BENCH, PACKAGES = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
COMMITTED = json.loads((HERE / "storage_simpy.json").read_text())
TOLERANCE = 0.02


def simulate(case):
    arguments = {"servers": storage_simpy.SERVERS, "device": "constant", "service": f"{case['service']}s",
                 "channels": case["channels"], "clients": case["clients"], "application": case["application"],
                 "window": case["window"], "size": case["size"], "unit": case["unit"], "link": case["link"] / 1e9,
                 "client-link": case["client_link"] / 1e9, "latency": f"{case['latency']}s",
                 "strategy": case["strategy"], "parity": case["parity"], "seconds": 400, "confidence": 0}
    words = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
    done = subprocess.run([BENCH, "simulate", "storage", *words, "--json"], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise AssertionError(f"{words}: {done.stderr}")
    run = json.loads(done.stdout)["runs"][0]
    return {"writes_per_second": run["bytes_per_second"] / case["size"], "write_seconds": run["seeds"][0]["write_seconds"],
            "operations_per_write": run["operations_per_write"]}


def installed_simpy():
    """SimPy, or why it is not here."""
    requirements = HERE / "storage_simpy_requirements.txt"
    wanted, marker = requirements.read_text(), PACKAGES / "tandem-installed"
    if not marker.exists() or marker.read_text() != wanted:
        shutil.rmtree(PACKAGES, True)
        with tempfile.TemporaryDirectory(prefix="tandem-simpy-") as folder:
            environment = pathlib.Path(folder) / "venv"
            try:
                done = subprocess.run([sys.executable, "-m", "venv", environment], capture_output=True, timeout=120)
                if done.returncode != 0:
                    return None, "Python's venv is not installed (apt-get install python3-venv)"
                done = subprocess.run([environment / "bin" / "pip", "install", "--no-deps", "--only-binary=:all:",
                                       "--retries", "1", "--timeout", "20", "--target", PACKAGES, "-r", requirements],
                                      capture_output=True, text=True, timeout=120)
            except subprocess.TimeoutExpired:
                return None, "pip install simpy took more than two minutes"
            if done.returncode != 0:
                return None, f"pip install simpy: {done.stderr.strip()[-300:]}"
        marker.write_text(wanted)
    sys.path.insert(0, str(PACKAGES))
    import simpy
    return simpy, ""


class Simpy(unittest.TestCase):
    def test_the_simulator_agrees(self):
        self.assertEqual(set(COMMITTED), set(storage_simpy.CASES))
        for name, case in COMMITTED.items():
            found = simulate(case)
            for figure, value in found.items():
                with self.subTest(name, figure=figure):
                    self.assertLess(abs(value / case[figure] - 1), TOLERANCE, (value, case[figure]))

    def test_simpy_still_gives_what_is_committed(self):
        simpy, why_not = installed_simpy()
        if simpy is None:
            print(f"NOT RUN: {why_not}", file=sys.stderr)
            self.skipTest(why_not)
        for name in ("standard, few clients", "delayed, RAID-5"):  # all of them take half a minute
            again = storage_simpy.System(simpy, storage_simpy.CASES[name], 1).run()
            case = COMMITTED[name]
            self.assertEqual({**storage_simpy.COMMON, **storage_simpy.CASES[name]},
                             {field: case[field] for field in storage_simpy.COMMON})
            for figure, value in again.items():
                self.assertAlmostEqual(value / case[figure], 1, delta=1e-9)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
