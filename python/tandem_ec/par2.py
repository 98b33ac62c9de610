# SPDX-License-Identifier: Apache-2.0
"""PAR2 sets: files stay as they are, and recovery files beside them protect them. Other programs read and write them too."""

import dataclasses
import os
from typing import Optional, Tuple

from . import _native
from .errors import InvalidArgument
from .files import _paths, _progress

_STATES = ("complete", "renamed", "damaged", "missing", "unreadable")
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

    def __bool__(self):
        return not self.repair_needed


def create(path, sources, *, base=None, redundancy=5.0, recovery_slices=None, slice_bytes=0, slice_count=0, first_exponent=0,
           volumes="doubling", volume_count=0, memory=0, force=False, sync=True, threads=0, backend=None, progress=None):
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


def verify(path, *, base=None, extra=(), threads=0, progress=None):
    """Checks the files of a set. Damage is a result, not an exception.

    path   a packet file of the set, with or without ".par2"
    base   the folder of the files; None: that of `path`
    extra  files that are searched if something is missing
    Returns a Report.
    """
    return _report(_native.par2_verify(threads, os.fsencode(path), _base(base), _paths(extra, "extra"), _progress(progress)))


def repair(path, *, base=None, extra=(), memory=0, rename_only=False, keep_replaced=False, sync=True, threads=0, backend=None,
           progress=None):
    """Verifies, and makes all files complete. Raises NotRecoverable, and changes nothing, if too many slices are lost.

    rename_only    only put whole files that were found under other names in their places
    keep_replaced  a wrong file that another one replaces stays, as NAME.1
    Returns a Report of the state after it.
    """
    return _report(_native.par2_repair(backend, threads, os.fsencode(path), _base(base), _paths(extra, "extra"), memory, rename_only,
                                       keep_replaced, sync, _progress(progress)))


def _base(base):
    return None if base is None else os.fsencode(base)


def _report(found):
    *summary, files, packet_files = found
    return Report(
        *summary,
        files=tuple(File(os.fsdecode(name), _STATES[state], None if found_as is None else os.fsdecode(found_as), *more)
                    for name, state, found_as, *more in files),
        packet_files=tuple(PacketFile(os.fsdecode(path), *more) for path, *more in packet_files))
