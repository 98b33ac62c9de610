# SPDX-License-Identifier: Apache-2.0
"""RS: a Reed-Solomon code."""

import asyncio
import concurrent.futures
import copyreg
import dataclasses
import os
from typing import Any, Iterable, Mapping, Optional

from . import _native
from .errors import InvalidArgument, NotRecoverable


@dataclasses.dataclass(frozen=True)
class VerifyResult:
    """The result of RS.verify. It is true if parity matches data."""

    consistent: bool
    bad_parity_count: int  # parity shards with a mismatch
    mismatch_byte_count: int  # of all parity shards
    first_mismatch_bytes: int  # offset in the shard; 0 if there is none
    first_bad_shard: Optional[int]  # k .. k+m-1
    suspect_shard: Optional[int]  # the one shard that explains every mismatch by its damage alone

    def __bool__(self) -> bool:
        return self.consistent


class RS(_native.Codec):
    """k data shards and m parity shards: any m of the k+m may be lost.

    matrix         name of the generator matrix, docs/matrices.md: "isal-cauchy", "backblaze", "par2", ...
    field          "gf8" or "gf16"; None: the field of the matrix
    threads        of the CPU; 0: all cores
    backend        "cpu", "cuda:0", "opencl", "hybrid", ...; None: the library's choice
    kernel         name of a CPU kernel; None: the best
    coefficients   a custom matrix, m x k elements by rows (bytes; gf16: 16-bit words); the default field is "gf8"
    allow_non_mds  accept a matrix that cannot recover from every loss of m shards

    An RS is immutable. Several threads may use it at once, and a child after fork. It can be pickled.
    """

    def __init__(self, k: int, m: int, matrix: str = "isal-cauchy", *, field: Optional[str] = None, threads: int = 0,
                 backend: Optional[str] = None, kernel: Optional[str] = None, coefficients: Optional[object] = None,
                 allow_non_mds: bool = False) -> None:
        super().__init__(k, m, matrix, field, threads, backend, kernel, coefficients, allow_non_mds)
        self.matrix = matrix if coefficients is None else "custom"
        self._options = {"field": field, "threads": threads, "backend": backend, "kernel": kernel,
                         "allow_non_mds": allow_non_mds}

    def __reduce__(self) -> "tuple[object, ...]":
        coefficients = self._coefficients() if self.matrix == "custom" else None
        return _restore, (type(self), self.k, self.m, self.matrix, coefficients, self._options)

    def __repr__(self) -> str:
        return f"RS(k={self.k}, m={self.m}, matrix={self.matrix!r})"

    @property
    def coefficients(self) -> Any:
        """The parity rows of the generator matrix: m rows of k elements."""
        import numpy

        kind = numpy.uint8 if self.field == "gf8" else numpy.dtype("<u2")
        return numpy.frombuffer(self._coefficients(), kind).reshape(self.m, self.k)

    def reconstruct(self, shards: Mapping[int, Any], want: Optional[Iterable[int]] = None,
                    out: Optional[Mapping[int, Any]] = None) -> "dict[int, Any]":
        """Computes lost shards from the remaining ones.

        shards  {index: buffer}, k of them or more
        want    indices of the shards to compute; None: every missing data shard
        out     {index: buffer} to write to; None: new NumPy arrays
        Returns {index: buffer}.
        """
        total = self.k + self.m
        if not isinstance(shards, Mapping):
            raise _invalid(f"shards is a {type(shards).__name__}; it must be a dict of the shards that are left: "
                           "{i: shard for i, shard in enumerate(shards) if shard is not None}")
        for index, shard in shards.items():
            if shard is None:
                raise _invalid(f"shards[{index}] is None: leave lost shards out")
            if not 0 <= index < total:
                raise _invalid(f"shards has the index {index}; there are {total} shards, 0 to {total - 1}")
        if want is None:
            want = [index for index in range(self.k) if index not in shards] if out is None else list(out)
        want = list(want)
        for index in want:
            if not 0 <= index < total:
                raise _invalid(f"want has the index {index}; there are {total} shards, 0 to {total - 1}")
            if index in shards:
                raise _invalid(f"want has the index {index}, which shards has too")
        if len(set(want)) != len(want):
            raise _invalid(f"want has {len(want)} indices, {len(set(want))} of them different")
        if not want:
            return {}
        if not shards:
            raise _native_error_not_recoverable(self.k)
        if out is None:
            rows = _native.empty(len(want), _native.byte_count(next(iter(shards.values()))))
            out = {index: rows[i] for i, index in enumerate(want)}
        elif set(out) != set(want):
            raise _invalid(f"out has the indices {sorted(out)}, want {sorted(want)}")
        buffers = [shards.get(index, out.get(index)) for index in range(total)]
        self.decode(buffers, [index in shards for index in range(total)])
        return {index: out[index] for index in want}

    def verify(self, shards: object) -> VerifyResult:
        """Checks that parity matches data, and tells where it does not. A mismatch is a result, not an exception."""
        return VerifyResult(*self._verify(shards))

    async def encode_async(self, data: object, out: Optional[object] = None) -> Any:
        """As encode. Cancelling the task stops the work within one chunk; out is undefined then.

        The objects are held until the call is over: a bytearray cannot be resized meanwhile.
        """
        out, job = self._submit_encode(data, out)
        await _finish(job)
        return out

    async def decode_async(self, shards: object, present: object) -> None:
        """As decode. See encode_async."""
        await _finish(self._submit_decode(shards, present))


def _reduce_method(method: Any) -> "tuple[object, ...]":
    return getattr, (method.__self__, method.__func__.__name__)


# Methods of the extension, so that pool.map(rs.encode, ...) works.
copyreg.pickle(type(_native.Codec.__new__(_native.Codec).encode), _reduce_method)  # type: ignore[arg-type]


def _restore(kind: "type[RS]", k: int, m: int, matrix: str, coefficients: Optional[bytes], options: "dict[str, Any]") -> RS:
    if coefficients is None:
        return kind(k, m, matrix, **options)
    return kind(k, m, coefficients=coefficients, **options)


def _invalid(message: str) -> InvalidArgument:
    return InvalidArgument(1, "TANDEM_ERROR_INVALID_ARGUMENT", message)


def _native_error_not_recoverable(k: int) -> NotRecoverable:
    return NotRecoverable(8, "TANDEM_ERROR_NOT_RECOVERABLE", f"no shard is present; {k} are needed")


# Threads that wait for jobs and do not compute. The loop's own executor may be full of tasks that wait for our jobs.
_waiters: Optional[concurrent.futures.ThreadPoolExecutor] = None


def _waiting_threads() -> concurrent.futures.ThreadPoolExecutor:
    global _waiters
    if _waiters is None:
        _waiters = concurrent.futures.ThreadPoolExecutor(32, thread_name_prefix="tandem-wait")
    return _waiters


def _forget_waiters() -> None:
    global _waiters
    _waiters = None


os.register_at_fork(after_in_child=_forget_waiters)


async def _finish(job: _native.Job) -> None:
    """Waits for a job. A cancelled task cancels the job, and continues when no thread writes any more."""
    waiting = asyncio.get_running_loop().run_in_executor(_waiting_threads(), job.wait)
    cancelled = False
    while not waiting.done():
        try:
            await asyncio.wait({waiting})
        except asyncio.CancelledError:
            cancelled = True
            job.cancel()
    if cancelled:
        waiting.exception()  # looked at: no warning
        raise asyncio.CancelledError
    waiting.result()
