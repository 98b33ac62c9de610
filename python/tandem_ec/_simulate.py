# SPDX-License-Identifier: Apache-2.0
"""Simulates how a job would be shared on a machine, which need not exist (docs/HYBRID.md)."""

import dataclasses
import os
from typing import Tuple

from . import _native


@dataclasses.dataclass(frozen=True)
class SimulatedWorker:
    name: str
    description: int  # index of its description
    bytes: int
    task_count: int
    busy_seconds: float
    idle_tail_seconds: float
    bytes_per_second: float


@dataclasses.dataclass(frozen=True)
class SimulateResult:
    workers: Tuple[SimulatedWorker, ...]
    task_count: int
    makespan_seconds: float
    efficiency: float
    nominal_efficiency: float


def simulate(workers, work_bytes, *, chunk_bytes=0, policy=None, resources=None, seed=0, unknown_speeds=False,
             timeline=None, links=None):
    """Simulates one job in virtual time.

    workers         descriptions such as "cpu:4x0.3" (4 workers of 0.3 GB/s) or "gpu:1x20:latency=2ms"
    work_bytes      of data
    chunk_bytes     of a task, with the policies free and budget; 0: 8 MiB
    policy          "auto", "budget" or "free"; None: auto
    resources       "cpu=5,gpu=1": tasks that workers of a name may hold at once
    seed            of the jitter
    unknown_speeds  auto does not know the speeds before the job, and learns them
    timeline        a file to write: which worker did which range when (for Perfetto)
    links           "pcie=25": GB/s of links that workers name
    """
    if timeline is not None:
        timeline = os.fspath(timeline)
    found = _native.simulate(list(workers), work_bytes, chunk_bytes, policy, resources, seed, unknown_speeds, timeline,
                             links)
    found["workers"] = tuple(SimulatedWorker(*row) for row in found["workers"])
    return SimulateResult(**found)
