# SPDX-License-Identifier: Apache-2.0
"""Shard sets on disk: one file in, k+m shard files out, any k of them back. The command `tandem` reads and writes them too."""

import dataclasses
import io
import operator
import os
from typing import Any, Callable, Iterable, List, Optional, Protocol, Tuple, Union

from . import _native
from .errors import InvalidArgument

CONDITIONS = {1: "start damaged", 2: "end damaged", 4: "wrong length", 8: "missing", 16: "other m"}

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
Paths = Union[Path, Iterable[Path]]
Note = Optional[Callable[[str], object]]


class Stream(Protocol):
    """A file that is open for bytes, a pipe or a socket."""

    def fileno(self) -> int: ...


class Bar(Protocol):
    """A progress bar, as tqdm's."""

    n: Any
    total: Any

    def update(self, n: int, /) -> object: ...

    def refresh(self) -> object: ...


Progress = Union[Callable[[int, Optional[int]], object], Bar, None]
_ACTIONS = ("nothing", "mend", "rebuild", "give up", "remove")


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of encode or decode."""

    set_id: str
    digest: str
    k: int
    m: int
    matrix: str
    block_bytes: int
    content_bytes: int
    stripe_count: int
    read_bytes: int
    written_bytes: int
    bad_block_count: int  # decode: damaged blocks that were read
    rebuilt_block_count: int  # decode: blocks computed from others
    shards_read: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Shard:
    path: str
    index: int
    condition: Tuple[str, ...]  # empty: both ends of the file are intact
    file_bytes: int


@dataclasses.dataclass(frozen=True)
class Set:
    """A set of shard files, as info finds it."""

    set_id: str
    digest: str
    k: int
    m: int
    matrix: str
    block_bytes: int
    content_bytes: int
    stripe_count: int
    shard_file_bytes: int
    mode: Optional[int]
    shard_count: int  # different shards that were found
    any_k_suffice: bool
    shards_suffice: bool
    replaced_by: str  # the id of the set that replaced this one; zeros: none
    files: Tuple[Shard, ...]


@dataclasses.dataclass(frozen=True)
class Finding:
    """One shard of a set, as verify, repair or resize found it."""

    path: str
    index: int
    condition: Tuple[str, ...]
    file_bytes: int
    bad_block_count: int
    lost_block_count: int
    bad_ranges: Tuple[Tuple[int, int], ...]  # (first block, count)
    action: str  # repair, resize: "nothing", "mend", "rebuild", "give up", "remove"
    left_bad_count: int


@dataclasses.dataclass(frozen=True)
class VerifyResult:
    """The result of verify. It is true if the set is intact and no folder is crowded."""

    state: str  # "intact", "recoverable", "lost"
    missing_shard_count: int
    damaged_file_count: int
    worst_bad_count: int
    bad_block_count: int
    lost_stripe_count: int
    crowded_folder_count: int  # folders that lose the set if they are lost, though the set was made to survive that
    read_bytes: int
    seconds: float
    findings: Tuple[Finding, ...]

    def __bool__(self) -> bool:
        return self.state == "intact" and self.crowded_folder_count == 0


@dataclasses.dataclass(frozen=True)
class RepairResult:
    """The result of repair or resize. It is true if the set is intact now; after adding parity: if no damage was met."""

    state: str
    mended_file_count: int
    rebuilt_file_count: int
    mended_block_count: int
    removed_file_count: int  # resize: files of dropped shards
    moved_file_count: int  # out of folders with too many shards
    crowded_folder_count: int  # as for verify, afterwards
    left_block_count: int
    lost_stripe_count: int
    left_shard_count: int
    read_bytes: int
    written_bytes: int
    seconds: float
    findings: Tuple[Finding, ...]

    def __bool__(self) -> bool:
        return self.state == "intact" and self.crowded_folder_count == 0


def encode(source: Union[Path, Stream], folders: Paths, k: int, m: int, *, matrix: str = "isal-cauchy", name: Optional[Path] = None,
           block_bytes: int = 0, force: bool = False, sync: bool = True, dry_run: bool = False, allow_non_mds: bool = False, threads: int = 0,
           backend: Optional[str] = None, lock_wait_seconds: int = 0, progress: Progress = None, note: Note = None) -> Result:
    """Splits a file into k+m shard files.

    source    a path, or an open binary file with a descriptor (a file, pipe or socket), which is read to its end
    folders   a folder, or a list of them: shard i goes to folders[i % len(folders)]
    name      shard files are called NAME.003.tandem; None: the name of the source
    force     replace files of these names
    sync      the bytes are on the disk when the call returns
    progress  called with (done_bytes, total_bytes), total None for a stream; or a tqdm bar. An exception in it ends the call
    note      called with a sentence about what was cleaned up
    Returns a Result. If it raises, it has removed all that it had written.
    """
    path, descriptor = _path_or_descriptor(source, "source")
    return _result_of(_native.files_encode(
        backend, threads, path, descriptor, _paths(folders, "folders"), k, m, matrix, allow_non_mds, block_bytes,
        None if name is None else os.fsencode(name), force, sync, dry_run, lock_wait_seconds, _progress(progress), note))


def decode(paths: Paths, output: Union[Path, Stream], *, set_id: Optional[str] = None, force: bool = False, sync: bool = True,
           dry_run: bool = False, threads: int = 0, backend: Optional[str] = None, lock_wait_seconds: int = 0,
           progress: Progress = None) -> Result:
    """Restores a file from shard files.

    paths   shard files, or folders that hold them
    output  a path, or an open binary file with a descriptor
    set_id  the first hexadecimal digits of the set's id, if there are several sets
    Returns a Result.
    """
    path, descriptor = _path_or_descriptor(output, "output")
    return _result_of(_native.files_decode(
        backend, threads, _search(paths), set_id, path, descriptor, force, sync, dry_run, lock_wait_seconds,
        _progress(progress)))


def verify(paths: Paths, *, set_id: Optional[str] = None, rate: int = 0, threads: int = 0, backend: Optional[str] = None,
           progress: Progress = None) -> VerifyResult:
    """Reads every shard file of a set and checks every block. Damage is a result, not an exception.

    rate  bytes that are read in a second at most; 0: no limit
    """
    findings: List[Finding] = []
    found = _native.files_verify(backend, threads, _search(paths), set_id, rate, _report_to(findings), _progress(progress))
    return VerifyResult(findings=tuple(findings), **found)


def repair(paths: Paths, *, set_id: Optional[str] = None, folders: Paths = (), force: bool = False, sync: bool = True,
           dry_run: bool = False, threads: int = 0, backend: Optional[str] = None, lock_wait_seconds: int = 0,
           progress: Progress = None, note: Note = None) -> RepairResult:
    """Repairs a set: rewrites damaged blocks in place, and makes missing shard files again.

    folders  where missing shard i goes: folders[i % len(folders)]; empty: where it was
    """
    return _repair_or_resize(paths, None, set_id, folders, force, sync, dry_run, threads, backend, lock_wait_seconds,
                             progress, note)


def resize(paths: Paths, m: int, *, set_id: Optional[str] = None, folders: Paths = (), force: bool = False, sync: bool = True,
           dry_run: bool = False, threads: int = 0, backend: Optional[str] = None, lock_wait_seconds: int = 0,
           progress: Progress = None, note: Note = None) -> RepairResult:
    """Changes the number of parity shards of a set to m, in place. The other shards keep their content.

    folders  where new shard i goes: folders[i % len(folders)]; empty: the folders of the set
    Files with new headers count as mended, those of new shards as rebuilt.
    """
    return _repair_or_resize(paths, operator.index(m), set_id, folders, force, sync, dry_run, threads, backend, lock_wait_seconds,
                             progress, note)


def info(paths: Paths) -> List[Set]:
    """The sets in these files and folders, the most complete first: a list of Set."""
    sets = []
    for found in _search(paths).sets():
        files = tuple(Shard(os.fsdecode(path), index, _condition(condition), file_bytes)
                      for path, index, condition, file_bytes in found["files"])
        sets.append(Set(**{**found, "files": files}))
    return sets


def open(paths: Paths, *, set_id: Optional[str] = None, threads: int = 0, backend: Optional[str] = None,  # noqa: A001
         buffering: int = io.DEFAULT_BUFFER_SIZE) -> Union[io.BufferedReader, "SetReader"]:
    """Opens the content of a set for reading, without decoding all of it: a binary file that can seek.

    Every block is checked by its checksum. Damaged and missing blocks are computed when they are read.
    """
    raw = SetReader(paths, set_id=set_id, threads=threads, backend=backend)
    return io.BufferedReader(raw, buffering) if buffering else raw


class SetReader(io.RawIOBase):
    """The content of a set, as a raw binary file. Several threads may call read_at at once."""

    def __init__(self, paths: Paths, *, set_id: Optional[str] = None, threads: int = 0, backend: Optional[str] = None) -> None:
        search = _search(paths)
        self._reader = _native.Reader(backend, threads, search, set_id)
        found = search.sets()[search.choose(set_id)]
        self.set_id: str = found["set_id"]
        self.content_bytes: int = found["content_bytes"]
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._check_open()
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._check_open()
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.content_bytes}.get(whence)
        if base is None:
            raise _invalid(f"whence is {whence}; it must be 0, 1 or 2")
        if base + offset < 0:
            raise _invalid(f"the position {base + offset} lies before the content")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        self._check_open()
        with memoryview(buffer) as view, view.cast("B") as flat:
            count = min(len(flat), max(0, self.content_bytes - self._position))
            self._reader.read_into(self._position, flat[:count])
        self._position += count
        return count

    def read_at(self, offset: int, count: int) -> bytes:
        """`count` bytes from `offset` on, as bytes; fewer at the end of the content. The position stays."""
        self._check_open()
        if offset < 0 or count < 0:
            raise _invalid(f"offset is {offset} and count {count}; neither may be negative")
        content = bytearray(min(count, max(0, self.content_bytes - offset)))
        self._reader.read_into(offset, content)
        return bytes(content)

    def close(self) -> None:
        if not self.closed:
            reader = getattr(self, "_reader", None)  # absent if __init__ raised
            if reader is not None:
                reader.close()
        super().close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("the file is closed")


def _invalid(message: str) -> InvalidArgument:
    return InvalidArgument(1, "TANDEM_ERROR_INVALID_ARGUMENT", message)


def _paths(paths: Paths, name: str) -> List[bytes]:
    if isinstance(paths, (str, bytes, os.PathLike)):
        paths = [paths]
    return [os.fsencode(path) for path in paths]


def _search(paths: Paths) -> _native.Search:
    return _native.Search(_paths(paths, "paths"))


def _path_or_descriptor(file: Union[Path, Stream], name: str) -> Tuple[Optional[bytes], int]:
    if isinstance(file, (str, bytes, os.PathLike)):
        return os.fsencode(file), 0
    if hasattr(file, "fileno"):
        if isinstance(file, io.TextIOBase):
            raise _invalid(f"{name} is a text file; open it with 'b'")
        try:
            descriptor = file.fileno()
        except io.UnsupportedOperation:
            raise _invalid(f"{name} is a {type(file).__name__}, which has no file descriptor. Use a path, tempfile.TemporaryFile() or a "
                           "pipe; for bytes in memory: RS.split, encode, reconstruct, join") from None
        if hasattr(file, "flush") and not getattr(file, "closed", False):
            file.flush()
        return None, descriptor
    raise _invalid(f"{name} is a {type(file).__name__}; it must be a path or an open binary file")


def _repair_or_resize(paths: Paths, m: Optional[int], set_id: Optional[str], folders: Paths, force: bool, sync: bool, dry_run: bool,
                      threads: int, backend: Optional[str], lock_wait_seconds: int, progress: Progress, note: Note) -> RepairResult:
    findings: List[Finding] = []
    found = _native.files_repair_or_resize(backend, threads, _search(paths), set_id, m, _paths(folders, "folders"), force,
                                           sync, dry_run, lock_wait_seconds, _report_to(findings), _progress(progress), note)
    return RepairResult(findings=tuple(findings), **found)


def _result_of(found: Any) -> Result:
    return Result(**{field.name: found[field.name] for field in dataclasses.fields(Result)})


def _condition(bits: int) -> Tuple[str, ...]:
    return tuple(text for bit, text in CONDITIONS.items() if bits & bit)


def _report_to(findings: List[Finding]) -> Callable[..., None]:
    def report(path: bytes, index: int, condition: int, file_bytes: int, bad: int, lost: int, ranges: Tuple[Tuple[int, int], ...], action: int,
               left: int) -> None:
        findings.append(Finding(os.fsdecode(path), index, _condition(condition), file_bytes, bad, lost, ranges,
                                _ACTIONS[action], left))
    return report


def _progress(progress: Any) -> Optional[Callable[[int, Optional[int]], object]]:
    """A callback for the library. A tqdm bar receives the increments."""
    if progress is None or not hasattr(progress, "update"):
        return progress  # type: ignore[no-any-return]

    def move(done: int, total: Optional[int]) -> None:
        if total is not None and progress.total != total:
            progress.total = total
            progress.refresh()
        progress.update(done - progress.n)

    return move
