#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Protects a directory of NumPy checkpoints: loses two files, and gets them back.

The parity of k files lies in m files beside them, so that the checkpoints stay readable as they are. Files of different lengths are
seen as padded with zeros. checkpoints.py [FOLDER]; without one it makes checkpoints of its own in a temporary folder.
"""

import json
import pathlib
import sys
import tempfile

import numpy
import numpy.typing as npt
import tandem_ec

PARITY = 2


def protect(folder: pathlib.Path) -> None:
    """Writes parity files for all checkpoints in a folder."""
    checkpoints = sorted(folder.glob("*.npy"))
    rs = tandem_ec.RS(len(checkpoints), PARITY)
    n = max(path.stat().st_size for path in checkpoints)
    parity = tandem_ec.empty(PARITY, n)
    for index, path in enumerate(checkpoints):  # one file in memory at a time
        rs.accumulate(index, padded(path, n), parity, first=index == 0)
    for row, shard in enumerate(parity):
        (folder / f"parity.{row}").write_bytes(shard)
    names = {path.name: path.stat().st_size for path in checkpoints}
    (folder / "protected.json").write_text(json.dumps({"names": names, "n": n}))


def restore(folder: pathlib.Path) -> list[str]:
    """Writes the checkpoints that are missing. Returns their names."""
    known = json.loads((folder / "protected.json").read_text())
    names, n = list(known["names"]), known["n"]
    shards = {i: padded(folder / name, n) for i, name in enumerate(names) if (folder / name).exists()}
    for row in range(PARITY):
        path = folder / f"parity.{row}"
        if path.exists():
            shards[len(names) + row] = numpy.fromfile(path, numpy.uint8)
    rebuilt = tandem_ec.RS(len(names), PARITY).reconstruct(shards)
    for index, shard in rebuilt.items():
        (folder / names[index]).write_bytes(shard[: known["names"][names[index]]])
    return [names[index] for index in rebuilt]


def padded(path: pathlib.Path, n: int) -> npt.NDArray[numpy.uint8]:
    shard = numpy.zeros(n, numpy.uint8)
    content = numpy.fromfile(path, numpy.uint8)
    shard[: len(content)] = content
    return shard


def main(folder: pathlib.Path) -> None:
    random = numpy.random.default_rng(1)
    arrays = {f"layer{i}.npy": random.standard_normal((100 + i, 64)) for i in range(6)}
    for name, array in arrays.items():
        numpy.save(folder / name, array)
    protect(folder)
    for name in ("layer1.npy", "layer4.npy"):
        (folder / name).unlink()
    print("restored:", *restore(folder))
    for name, array in arrays.items():
        assert (numpy.load(folder / name) == array).all(), name
    print("all checkpoints are as they were")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        folder = pathlib.Path(sys.argv[1])
        folder.mkdir(exist_ok=True)
        main(folder)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(pathlib.Path(temporary))
