# SPDX-License-Identifier: Apache-2.0
"""Exceptions. Each has the status of the C API, and a message with the numbers."""


class Error(Exception):
    """A call that failed.

    status   number of the C API's status (TANDEM_ERROR_OVERLAP is 6)
    name     its name
    message  the sentence, with the numbers
    """

    def __init__(self, status: int, name: str, message: str) -> None:
        self.args = (status, name, message)  # so that it can be pickled; OSError would use them as its own arguments
        self.status = status
        self.name = name
        self.message = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> "tuple[object, ...]":
        return type(self), self.args


class InvalidArgument(Error, ValueError):
    """An argument that is out of range, of another shape or length, or read-only."""


class Unsupported(Error, ValueError):
    """Well-formed, but this version cannot do it."""


class Unavailable(Error, LookupError):
    """A backend, kernel or matrix that this machine or version lacks."""


class OutOfMemory(Error, MemoryError):
    """Not enough memory."""


class TooLarge(Error, OverflowError):
    """A product of sizes does not fit."""


class Overlap(Error, ValueError):
    """An output shard overlaps another shard."""


class NotMDS(Error, ValueError):
    """This code could lose data that m parity shards should save. allow_non_mds accepts it."""


class NotRecoverable(Error):
    """Too few shards are left."""


class Cancelled(Error):
    """The call was cancelled."""


class DeviceFailed(Error, RuntimeError):
    """A device failed, and its work could not be repeated."""


class FileError(Error, OSError):
    """The operating system refused; the message has the path and the reason."""


class Damaged(Error):
    """Bytes on disk are not what was written."""


class InternalError(Error, RuntimeError):
    """A defect of Tandem: please report the message."""


_CLASSES: "dict[int, type[Error]]" = {
    1: InvalidArgument,
    2: Unsupported,
    3: Unavailable,
    4: OutOfMemory,
    5: TooLarge,
    6: Overlap,
    7: NotMDS,
    8: NotRecoverable,
    9: Cancelled,
    10: DeviceFailed,
    11: FileError,
    12: Damaged,
    13: InternalError,
}


def of_status(status: int, name: str, message: str) -> Error:
    return _CLASSES.get(status, Error)(status, name, message)
