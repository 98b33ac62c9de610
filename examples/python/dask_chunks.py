#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Encodes a collection of chunks in parallel with Dask, for data that outgrows one machine. An RS is pickled to the workers, which
share no memory. Replace LocalCluster by the cluster that you have."""

import dask.array
import numpy
import numpy.typing as npt
import tandem_ec
from dask.distributed import Client, LocalCluster

K, M = 8, 3


def parity_of(rs: tandem_ec.RS, chunk: npt.NDArray[numpy.uint8]) -> npt.NDArray[numpy.uint8]:
    """The parity of one chunk: its rows are K shards."""
    return numpy.array(rs.encode(numpy.ascontiguousarray(chunk)))


def main() -> None:
    rs = tandem_ec.RS(K, M, threads=1)  # each worker has a core
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        random = dask.array.random.default_rng(1)
        data = random.integers(0, 256, (K, 1 << 20), numpy.uint8, chunks=(K, 1 << 17)).persist()
        parity = data.map_blocks(lambda chunk: parity_of(rs, chunk), dtype=numpy.uint8, chunks=((M,), data.chunks[1]))
        computed, rows = client.compute([parity, data], sync=True)

    # Columns are independent: the parity of the chunks, side by side, is the parity of the whole.
    assert (computed == rs.encode(rows)).all()
    survivors = {i: rows[i] for i in range(K) if i not in (1, 2, 5)}
    survivors.update({K + i: computed[i] for i in range(M)})
    rebuilt = rs.reconstruct(survivors)
    assert all((rebuilt[i] == rows[i]).all() for i in (1, 2, 5))
    print(f"{data.npartitions} chunks encoded by 2 workers; rows 1, 2 and 5 lost and rebuilt")


if __name__ == "__main__":
    main()
