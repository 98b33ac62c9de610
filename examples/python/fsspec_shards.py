#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An fsspec file system that reads shard sets. The file NAME is the set with the shard files NAME.000.tandem and so on, in any
of the folders. It reads degraded sets too, and computes missing blocks when they are read."""

import io
import pathlib
import tempfile
from typing import Any

import fsspec
import tandem_ec
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem


class ShardFileSystem(AbstractFileSystem):
    protocol = "tandem"

    def __init__(self, folders: str | list[str], **more: Any) -> None:
        super().__init__(**more)
        self.folders = [str(folder) for folder in ([folders] if isinstance(folders, str) else folders)]

    def _sets(self) -> dict[str, tandem_ec.files.Set]:
        """{name: shard files} of all sets here."""
        found: dict[str, tandem_ec.files.Set] = {}
        for one in tandem_ec.files.info(self.folders):
            name = pathlib.PurePath(one.files[0].path).name.rsplit(".", 2)[0]
            found.setdefault(name, one)  # the most complete comes first
        return found

    def ls(self, path: str, detail: bool = True, **more: Any) -> list[Any]:
        wanted = self._strip_protocol(path).strip("/")
        entries = [{"name": name, "size": one.content_bytes, "type": "file"} for name, one in self._sets().items()
                   if wanted in ("", name)]
        if wanted and not entries:
            raise FileNotFoundError(path)
        return entries if detail else [entry["name"] for entry in entries]

    def info(self, path: str, **more: Any) -> Any:
        if self._strip_protocol(path).strip("/") == "":
            return {"name": "", "size": 0, "type": "directory"}
        return self.ls(path)[0]

    def _open(self, path: str, mode: str = "rb", **more: Any) -> "ShardFile":
        if mode != "rb":
            raise io.UnsupportedOperation("sets are read only")
        return ShardFile(self, path, mode, **more)


class ShardFile(AbstractBufferedFile):
    def __init__(self, fs: ShardFileSystem, path: str, mode: str = "rb", **more: Any) -> None:
        super().__init__(fs, path, mode, **more)
        one = fs._sets()[self.path.strip("/")]
        self._reader = tandem_ec.files.SetReader([shard.path for shard in one.files])

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self._reader.read_at(start, end - start)

    def close(self) -> None:
        if not self.closed:
            self._reader.close()
        super().close()


def main() -> None:
    fsspec.register_implementation("tandem", ShardFileSystem, clobber=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        source = folder / "table.csv"
        source.write_text("".join(f"{i},{i * i}\n" for i in range(200_000)))
        places = [folder / f"disk{i}" for i in range(6)]
        tandem_ec.files.encode(source, places, 4, 2)
        for lost in (places[0], places[3]):  # two disks are gone
            for shard in lost.iterdir():
                shard.unlink()
        fs = fsspec.filesystem("tandem", folders=[str(place) for place in places])
        assert fs.ls("", detail=False) == ["table.csv"]
        with fs.open("table.csv", "rb") as file:
            file.seek(-14, 2)
            print("last line:", file.read().split()[-1].decode())
        assert fs.cat("table.csv") == source.read_bytes()
        print(f"{fs.size('table.csv')} bytes read from 4 of 6 disks")


if __name__ == "__main__":
    main()
