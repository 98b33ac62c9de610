# SPDX-License-Identifier: Apache-2.0
"""par2.h for tests, by ctypes."""

import contextlib
import ctypes
import os
import resource
from ctypes import POINTER, byref, c_char_p, c_int32, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p

PROGRESS = ctypes.CFUNCTYPE(c_int32, c_void_p, c_uint64, c_uint64)
COMPLETE, RENAMED, DAMAGED, MISSING, UNREADABLE = range(5)
INVALID_ARGUMENT, UNSUPPORTED, TOO_LARGE, NOT_RECOVERABLE, CANCELLED, IO, DAMAGED_SET = 1, 2, 5, 8, 9, 11, 12


def structure(name, *fields, sized=True):
    head = [("struct_bytes", c_size_t)] if sized else []
    return type(name, (ctypes.Structure,), {"_fields_": head + list(fields)})


VerifyOptions = structure("VerifyOptions", ("path", c_char_p), ("base_path", c_char_p), ("extra_paths", POINTER(c_char_p)),
                          ("extra_count", c_size_t), ("thread_count", c_uint32), ("search_distance", c_uint32), ("progress", PROGRESS),
                          ("progress_user", c_void_p), ("scope", c_int32), ("rate_bytes_per_second", c_uint64))
CreateOptions = structure("CreateOptions", ("path", c_char_p), ("base_path", c_char_p), ("source_paths", POINTER(c_char_p)),
                          ("source_count", c_size_t), ("slice_bytes", c_uint64), ("slice_count", c_uint32),
                          ("recovery_slice_count", c_uint32), ("recovery_percent", ctypes.c_double), ("first_exponent", c_uint32),
                          ("volumes", c_int32), ("volume_count", c_uint32), ("thread_count", c_uint32), ("memory_bytes", c_uint64),
                          ("force", c_int32), ("no_sync", c_int32), ("progress", PROGRESS), ("progress_user", c_void_p),
                          ("critical_copies", c_uint32), ("reserved", c_uint32))
CreateResult = structure("CreateResult", ("set_id", c_uint8 * 16), ("slice_bytes", c_uint64),
                         *((name, c_uint32) for name in ("file_count", "slice_count", "recovery_slice_count", "packet_file_count")),
                         ("source_bytes", c_uint64), ("packet_file_bytes", c_uint64))
Summary = structure("Summary", ("set_id", c_uint8 * 16), ("slice_bytes", c_uint64),
                    *((name, c_uint32) for name in ("slice_count", "found_slice_count", "recovery_slice_count", "file_count",
                                                    "complete_count", "renamed_count", "damaged_count", "missing_count")),
                    ("repair_needed", c_int32), ("repair_possible", c_int32), ("damaged_packet_bytes", c_uint64),
                    ("repaired_count", c_uint32), ("unreadable_count", c_uint32), ("remade_packet_file_count", c_uint32),
                    ("reserved", c_uint32))
File = structure("File", ("name", c_char_p), ("found_as", c_char_p), ("bytes", c_uint64), ("state", c_int32), ("recoverable", c_int32),
                 ("slice_count", c_uint32), ("found_slice_count", c_uint32), ("repaired", c_int32), ("error_number", c_int32), sized=False)
RepairOptions = structure("RepairOptions", ("memory_bytes", c_uint64), ("thread_count", c_uint32), ("rename_only", c_int32),
                          ("keep_replaced", c_int32), ("no_sync", c_int32), ("progress", PROGRESS), ("progress_user", c_void_p),
                          ("packets", c_int32), ("reserved", c_uint32))
PacketFile = structure("PacketFile", ("path", c_char_p), ("bytes", c_uint64), ("damaged_bytes", c_uint64), ("packet_count", c_uint32),
                       ("recovery_slice_count", c_uint32), ("lost_recovery_slice_count", c_uint32), ("is_lost", c_int32), sized=False)
PathName = structure("PathName", ("path", c_char_p), sized=False)
SearchedFile = structure("SearchedFile", ("path", c_char_p), ("name", c_char_p), ("slice_count", c_uint32), ("found_slice_count", c_uint32),
                         ("repeated_slice_count", c_uint32), ("error_number", c_int32), sized=False)


class Failure(Exception):
    def __init__(self, status, message):
        super().__init__(f"{message} (status {status})")
        self.status = status


class Report:
    def __init__(self, library, handle):
        self.library, self.handle = library, handle
        self.look()

    def __del__(self):
        self.library.par2.tandem_par2_report_destroy(self.handle)

    def look(self):
        library = self.library
        self.summary = Summary(ctypes.sizeof(Summary))
        library.check(library.par2.tandem_par2_report_query(self.handle, byref(self.summary)))
        self.files = {each["name"].decode(): each for each in library.list_of(self.handle, 0, File)}
        self.searched_files = library.list_of(self.handle, 2, SearchedFile)
        self.temporaries = [os.fsdecode(each["path"]) for each in library.list_of(self.handle, 3, PathName)]
        self.packet_files = library.list_of(self.handle, 1, PacketFile)

    def repair(self, progress=None, **options):
        """options: fields of tandem_par2_repair_options."""
        given = RepairOptions(ctypes.sizeof(RepairOptions), 0, 2)
        given.progress = callback = PROGRESS(progress) if progress else PROGRESS()
        for name, value in options.items():
            setattr(given, name, value)
        self.library.check(self.library.par2.tandem_par2_repair(None, self.handle, byref(given)))
        del callback
        self.look()


@contextlib.contextmanager
def descriptors(count):
    """The process may have so many files open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextlib.contextmanager
def ordinary_user():
    """Root may read everything."""
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if was_root:
            os.seteuid(0)


class Library:
    def __init__(self, folder):
        self.core = ctypes.CDLL(f"{folder}/libtandem.so")
        self.par2 = ctypes.CDLL(f"{folder}/libtandem_par2.so")
        self.core.tandem_last_error_message.restype = c_char_p

    def check(self, status):
        if status != 0:
            raise Failure(status, self.core.tandem_last_error_message().decode(errors="replace"))

    def list_of(self, handle, which, kind):  # which: enum tandem_par2_list_value
        function, count = self.par2.tandem_par2_report_list, c_size_t()
        self.check(function(handle, c_int32(which), None, c_size_t(0), c_size_t(0), byref(count)))
        array = (kind * count.value)()
        self.check(function(handle, c_int32(which), array, count, c_size_t(ctypes.sizeof(kind)), byref(count)))
        # A copy: the texts belong to the report.
        return [{name: getattr(each, name) for name, _ in kind._fields_} for each in array]

    def create(self, path, sources, base=None, progress=None, **options):
        """The result. options: fields of tandem_par2_create_options."""
        paths = (c_char_p * len(sources))(*(os.fsencode(each) for each in sources))
        given = CreateOptions(ctypes.sizeof(CreateOptions), str(path).encode(), str(base).encode() if base else None, paths, len(sources))
        given.progress = callback = PROGRESS(progress) if progress else PROGRESS()
        given.thread_count = 2
        for name, value in options.items():
            setattr(given, name, value)
        result = CreateResult(ctypes.sizeof(CreateResult))
        self.check(self.par2.tandem_par2_create(None, byref(given), byref(result)))
        del callback
        return result

    def verify(self, path, base=None, extra=(), threads=2, distance=0, progress=None, scope=0, rate=0):
        extra = list(extra)
        extras = (c_char_p * len(extra))(*(str(each).encode() for each in extra))
        callback = PROGRESS(progress) if progress else PROGRESS()
        options = VerifyOptions(ctypes.sizeof(VerifyOptions), str(path).encode(), str(base).encode() if base else None, extras,
                                len(extra), threads, distance, callback, None, scope, rate)
        handle = c_void_p()
        self.check(self.par2.tandem_par2_verify(byref(options), byref(handle)))
        return Report(self, handle)
