# SPDX-License-Identifier: Apache-2.0
"""PAR2 sets: files stay as they are, and recovery files beside them protect them. Other programs read and write them too."""

import dataclasses
import os
from typing import Any, Optional, Tuple

from . import _native
from .errors import InvalidArgument
from .files import Path, Paths, Progress, _paths, _progress

_STATES = ("complete", "renamed", "damaged", "missing", "unreadable")
_EVENTS = dict(enumerate(("begun", "unchanged", "made", "replaced", "removed", "kept", "complete", "outdated", "recoverable", "lost", "absent", "failed")))
_EVENTS.update(enumerate(("right", "added", "changed", "suspect", "gone", "unreadable", "packets", "unprotected", "repaired"), 32))
_EVENTS.update({64: "folder unreadable", 65: "no list", 66: "accepted nothing"})
_VOLUMES = ("doubling", "limited", "uniform")


@dataclasses.dataclass(frozen=True)
class CreateResult:
    set_id: str
    slice_bytes: int
    file_count: int
    slice_count: int
    recovery_slice_count: int
    packet_file_count: int
    source_bytes: int
    packet_file_bytes: int


@dataclasses.dataclass(frozen=True)
class File:
    """A file of a set."""

    name: str
    state: str  # "complete", "renamed", "damaged", "missing", "unreadable" (it may be right)
    found_as: Optional[str]  # renamed: the file that has its content
    bytes: int
    slice_count: int
    found_slice_count: int
    repaired: bool


@dataclasses.dataclass(frozen=True)
class PacketFile:
    path: str
    bytes: int
    damaged_bytes: int
    recovery_slice_count: int
    lost: bool  # damaged or missing, and repair(packets=True) makes it anew


@dataclasses.dataclass(frozen=True)
class Report:
    """The result of verify and repair. It is true if all files are complete."""

    set_id: str
    slice_bytes: int
    slice_count: int
    found_slice_count: int
    recovery_slice_count: int  # intact ones
    repair_needed: bool
    repair_possible: bool
    damaged_packet_bytes: int
    files: Tuple[File, ...]
    packet_files: Tuple[PacketFile, ...]

    def __bool__(self) -> bool:
        return not self.repair_needed


@dataclasses.dataclass(frozen=True)
class Event:
    """What sync or scrub found or did."""

    what: str  # of a set: "made", "kept", ...; of a file: "suspect", "gone", ... (_EVENTS)
    path: str
    message: Optional[str]
    severity: int  # 0 fine, 1 needs attention, 3 could not be read or written, 4 lost
    bytes: int
    file_count: int
    slice_count: int
    lost_slice_count: int
    recovery_slice_count: int
    recovery_percent: float


@dataclasses.dataclass(frozen=True)
class TreeReport:
    """The result of sync and scrub. It is true if all is protected."""

    severity: int  # the greatest of all events
    events: Tuple[Event, ...]

    def __bool__(self) -> bool:
        return self.severity == 0


def create(path: Path, sources: Paths, *, base: Optional[Path] = None, redundancy: float = 5.0, recovery_slices: Optional[int] = None,
           slice_bytes: int = 0, slice_count: int = 0, first_exponent: int = 0, volumes: str = "doubling", volume_count: int = 0, memory: int = 0,
           force: bool = False, sync: bool = True, threads: int = 0, backend: Optional[str] = None, progress: Progress = None) -> CreateResult:
    """Makes the packet files of a set: PATH.par2, PATH.vol000+01.par2, ...

    sources          a path, or a list of them; a folder stands for all files below it
    base             the folder that names are relative to; None: that of `path`
    redundancy       recovery slices in per cent of the slices
    recovery_slices  their number, instead of redundancy
    slice_bytes      a multiple of 4; 0: the smallest with which slice_count slices suffice (0: a 2,000th of all bytes, at least 4 KiB)
    volumes          recovery slices in each file: "doubling", "limited", "uniform" (then volume_count files)
    memory           bytes for slices; 0: 64 MiB
    force            replace packet files of these names
    progress         called with (done_bytes, total_bytes), or a tqdm bar. An exception in it ends the call
    Returns a CreateResult.
    """
    if volumes not in _VOLUMES:
        raise InvalidArgument(1, "TANDEM_ERROR_INVALID_ARGUMENT", f"volumes is {volumes!r}; it must be one of {', '.join(_VOLUMES)}")
    percent = redundancy if recovery_slices is None else 0
    return CreateResult(*_native.par2_create(
        backend, threads, os.fsencode(path), _base(base), _paths(sources, "sources"), slice_bytes, slice_count, percent,
        recovery_slices or 0, first_exponent, _VOLUMES.index(volumes), volume_count, memory, force, sync, _progress(progress)))


def verify(path: Path, *, base: Optional[Path] = None, extra: Paths = (), threads: int = 0, progress: Progress = None) -> Report:
    """Checks the files of a set. Damage is a result, not an exception.

    path   a packet file of the set, with or without ".par2"
    base   the folder of the files; None: that of `path`
    extra  files that are searched if something is missing
    Returns a Report.
    """
    return _report(_native.par2_verify(threads, os.fsencode(path), _base(base), _paths(extra, "extra"), False, _progress(progress)))


def verify_packets(path: Path, *, base: Optional[Path] = None, extra: Paths = (), threads: int = 0,
                   progress: Progress = None) -> Tuple[PacketFile, ...]:
    """Checks only the packet files of a set. They are right if none is `lost` and none has `damaged_bytes`."""
    return _report(_native.par2_verify(threads, os.fsencode(path), _base(base), _paths(extra, "extra"), True, _progress(progress))).packet_files


def repair(path: Path, *, base: Optional[Path] = None, extra: Paths = (), memory: int = 0, packets: bool = False, rename_only: bool = False,
           keep_replaced: bool = False, sync: bool = True, threads: int = 0, backend: Optional[str] = None, progress: Progress = None) -> Report:
    """Verifies, and makes all files complete. Raises NotRecoverable, and changes nothing, if too many slices are lost.

    packets        then make damaged packet files anew, and those that are missing between others
    rename_only    only put whole files that were found under other names in their places
    keep_replaced  a wrong file that another one replaces stays, as NAME.1
    Returns a Report of the state after it.
    """
    return _report(_native.par2_repair(backend, threads, os.fsencode(path), _base(base), _paths(extra, "extra"), memory, packets, rename_only,
                                       keep_replaced, sync, _progress(progress)))


def sync(path: Path, *, redundancy: float = 0.0, accept: Paths = (), accept_removed: bool = False, accept_many: bool = False,
         exclude: Paths = (), one_file_system: bool = False, dry_run: bool = False, force: bool = False, verify: bool = True,
         lock_wait_seconds: int = 0, memory: int = 0, sync: bool = True, threads: int = 0, backend: Optional[str] = None,
         progress: Progress = None) -> TreeReport:
    """Keeps a set in each folder of a tree. No content that a set can restore is given up, unless an argument allows it.

    redundancy      of all sets, in per cent; 0: a set keeps its own, a new one has 5
    accept          files that are meant to be as they are, or gone; sets that are gone
    accept_removed  files and sets that are gone are meant to be gone
    accept_many     more than a tenth of a folder's files (or 10) may be removed or rewritten at once
    exclude         names; with a /, paths below `path`
    force           make all sets anew, also those that cannot be read
    verify          check unchanged files before their set is replaced
    Returns a TreeReport.
    """
    return _tree(True, path, exclude, accept, redundancy, lock_wait_seconds, memory, 0, one_file_system, sync, False, dry_run, force, verify,
                 accept_removed, accept_many, threads, backend, progress)


def scrub(path: Path, *, repair: bool = False, exclude: Paths = (), one_file_system: bool = False, rate: int = 0, lock_wait_seconds: int = 0,
          memory: int = 0, sync: bool = True, threads: int = 0, backend: Optional[str] = None, progress: Progress = None) -> TreeReport:
    """Checks all sets of a tree, and names files that are in no set.

    repair  repair files, not those that are newer than their set says
    rate    bytes per second; 0: no limit
    Returns a TreeReport.
    """
    return _tree(False, path, exclude, (), 0.0, lock_wait_seconds, memory, rate, one_file_system, sync, repair, False, False, True, False, False,
                 threads, backend, progress)


def _tree(is_sync: bool, path: Path, exclude: Paths, accept: Paths, percent: float, lock_wait_seconds: int, memory: int, rate: int,
          *flags_and_more: Any) -> TreeReport:
    *flags, threads, backend, progress = flags_and_more
    arguments: Any = (is_sync, backend, threads, os.fsencode(path), _paths(exclude, "exclude"), _paths(accept, "accept"), percent,
                      lock_wait_seconds, memory, rate, *flags, _progress(progress))
    severity, events = _native.par2_tree(*arguments)
    return TreeReport(severity, tuple(Event(_EVENTS[what], os.fsdecode(name), None if message is None else os.fsdecode(message), *more)
                                      for what, name, message, *more in events))


def _base(base: Optional[Path]) -> Optional[bytes]:
    return None if base is None else os.fsencode(base)


def _report(found: Any) -> Report:
    *summary, files, packet_files = found
    parts: Any = (
        *summary,
        tuple(File(os.fsdecode(name), _STATES[state], None if found_as is None else os.fsdecode(found_as), *more)
              for name, state, found_as, *more in files),
        tuple(PacketFile(os.fsdecode(path), *more) for path, *more in packet_files))
    return Report(*parts)
