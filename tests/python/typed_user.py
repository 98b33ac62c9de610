# SPDX-License-Identifier: Apache-2.0
"""Read by mypy: what the calls of tandem_ec take and give, as a program's author expects it. Nothing runs this."""

import io
import pathlib
from typing import Optional

import tandem_ec
from tandem_ec import errors, files, par2
from typing_extensions import assert_type


def progress(done: int, total: Optional[int]) -> None:
    print(done, total)


rs = tandem_ec.RS(10, 4, matrix="backblaze", threads=1)
data = rs.split(b"bytes, bytearray, an array")
parity = rs.encode(data)
assert_type(rs.join([*data, *parity], 26), bytes)
assert_type(rs.verify([*data, *parity]), tandem_ec.VerifyResult)
assert_type(rs.verify([*data, *parity]).suspect_shard, Optional[int])
for index, shard in rs.reconstruct({i: parity[i] for i in range(10)}, want=[0]).items():
    assert_type(index, int)
rs.reconstruct([None, b""])  # type: ignore[arg-type]
tandem_ec.RS("10", 4)  # type: ignore[arg-type]

assert_type(files.encode("video.mp4", ["disk0", pathlib.Path("disk1")], 4, 2, progress=progress), files.Result)
assert_type(files.encode(open("video.mp4", "rb"), "shards", 4, 2).written_bytes, int)
assert_type(files.repair(pathlib.Path("shards")).findings, tuple[files.Finding, ...])
assert_type(files.info("shards")[0].mode, Optional[int])
assert_type(files.SetReader("shards").read_at(0, 10), bytes)
files.encode(3, "shards", 4, 2)  # type: ignore[arg-type]
assert isinstance(files.open("shards"), io.BufferedIOBase)

assert_type(par2.verify("photos").files[0].found_as, Optional[str])
assert_type(par2.sync("photos", accept=["photos/a.jpg"]), par2.TreeReport)
try:
    par2.repair("photos", packets=True)
except errors.NotRecoverable as error:
    assert_type(error.status, int)
