#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the simulation of bench/cluster.py for two small clusters, and draws it. The library's exchange on SimGrid's MPI must
send the bytes that docs/internals/MPI.md says, and groups must spread over the nodes.

Usage: cluster_test.py"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"

if shutil.which("smpicxx") is None or shutil.which("smpirun") is None:
    print("NOT RUN: SimGrid's smpicxx is missing (Debian, Ubuntu: apt-get install libsimgrid-dev)")
    sys.exit(77)

with tempfile.TemporaryDirectory(prefix="tandem-cluster-test-") as folder:
    output = pathlib.Path(folder, "simulated.json")
    environment = {**os.environ, "TMPDIR": folder}

    def simulate(*more):
        subprocess.run([sys.executable, BENCH / "cluster.py", "simulate", "-o", output, "--nodes", "2", "4", "--ranks-per-node", "2", "-k", "2", "-m", "2",
                        "--pieces", "3", "--piece-bytes", "65600", "--program", pathlib.Path(folder, "program"), *more], check=True, env=environment)
        return json.loads(output.read_text())

    encode, slow = simulate("--operation", "encode"), simulate("--platform", BENCH / "cluster" / "gigabit.xml")
    result = simulate()
    assert result["simulated"] is True, result
    for point, (nodes, most_on_a_node) in zip(result["points"], ((2, 2), (4, 1)), strict=True):
        assert (point["nodes"], point["ranks"]) == (nodes, 2 * nodes), point
        assert point["segment_bytes"] == 3 * 65600, point
        assert point["sent_bytes"] == (2 + 2 - 1) * point["segment_bytes"], point  # the lower bound
        assert point["most_on_a_node"] == most_on_a_node, point
        assert point["seconds"] > 0, point
    # The rates of the options, twice, and little for the hashes. On slow links each node's two ranks send three segments each.
    data = 2 * 3 * 65600
    assert 0 <= encode["points"][1]["seconds"] - (data / 4e9 + data / 8e9 + 2 * data / 4e9) < 1e-4, encode
    assert slow["points"][1]["seconds"] > 2 * 3 * 3 * 65600 / 125e6 > 5 * result["points"][1]["seconds"], (slow, result)
    subprocess.run([sys.executable, BENCH / "plot.py", "cluster", output, "-o", folder], check=True, env=environment)
    picture = pathlib.Path(folder, "cluster.svg").read_text()
    assert "simulated" in picture and "ideal" in picture, picture[:500]
print("simulated clusters send what they should")
