# SPDX-License-Identifier: Apache-2.0
"""PAR 2.0 and 1.0 written from the specifications, slow and plain: makes sets, and reads packet files of PAR 2.0. A folder for tests."""

import hashlib
import pathlib
import shutil
import struct
import tempfile
import unittest
import zlib


def md5(data):
    return hashlib.md5(data).digest()


def packet(set_id, kind, body):
    rest = set_id + kind + body
    return b"PAR2\0PKT" + struct.pack("<Q", 32 + len(rest)) + md5(rest) + rest


def padded(data, unit):
    return data + bytes(-len(data) % unit)


EXPONENTS, LOGARITHMS = [0] * 131070, [0] * 65536
_value = 1
for _i in range(65535):
    EXPONENTS[_i] = EXPONENTS[_i + 65535] = _value
    LOGARITHMS[_value] = _i
    _value = _value << 1 ^ (0x1100B if _value & 0x8000 else 0)


def logarithms_of_constants(count):
    n, found = 0, []
    while len(found) < count:
        n += 1
        if all(n % prime for prime in (3, 5, 17, 257)):
            found.append(n)
    return found


def recovery(slices, exponent):
    """The recovery slice of an exponent: the sum of all slices, each times its constant to this power."""
    total = [0] * (len(slices[0]) // 2)
    for data, logarithm in zip(slices, logarithms_of_constants(len(slices))):
        factor = logarithm * exponent % 65535
        for i, word in enumerate(struct.unpack(f"<{len(total)}H", data)):
            if word:
                total[i] ^= EXPONENTS[LOGARITHMS[word] + factor]
    return struct.pack(f"<{len(total)}H", *total)


class Set:
    """files: {name: bytes}. Has the packets of the set by kind, and the slices in their order."""

    def __init__(self, files, slice_bytes, exponents, others=()):
        self.slice_bytes, described = slice_bytes, []
        for name, data in files.items():
            md5_of_beginning, length, name = md5(data[:16384]), struct.pack("<Q", len(data)), name.encode()
            identity = md5(md5_of_beginning + length + name)
            body = identity + md5(data) + md5_of_beginning + length + padded(name, 4)
            slices = [padded(data[at:at + slice_bytes], slice_bytes) for at in range(0, len(data), slice_bytes)]
            sums = identity + b"".join(md5(each) + struct.pack("<I", zlib.crc32(each)) for each in slices)
            described.append((int.from_bytes(identity, "little"), name.decode(), identity, body, sums, slices))
        described.sort(key=lambda each: (each[1] in others, each[0]))
        count = len(files) - len(others)
        main = struct.pack("<QI", slice_bytes, count) + b"".join(each[2] for each in described)
        self.id = md5(main)
        self.names = [each[1] for each in described]
        self.slices_of = {each[1]: each[5] if each[1] not in others else [] for each in described}
        self.slices = [each for name in self.names for each in self.slices_of[name]]
        self.main = packet(self.id, b"PAR 2.0\0Main\0\0\0\0", main)
        self.descriptions = [packet(self.id, b"PAR 2.0\0FileDesc", each[3]) for each in described]
        self.sums = [packet(self.id, b"PAR 2.0\0IFSC\0\0\0\0", each[4]) for each in described if each[5]]
        self.creator = packet(self.id, b"PAR 2.0\0Creator\0", padded(b"the reference", 4))
        self.critical = b"".join([self.main, *self.descriptions, *self.sums, self.creator])
        self.recovery = {e: packet(self.id, b"PAR 2.0\0RecvSlic", struct.pack("<I", e) + recovery(self.slices, e)) for e in exponents}


def packets_of(data):
    """The packets of a file that is intact: (type, body, set id, the whole packet) in order."""
    at, found = 0, []
    while at < len(data):
        assert data[at:at + 8] == b"PAR2\0PKT", at
        length = struct.unpack_from("<Q", data, at + 8)[0]
        assert length % 4 == 0 and md5(data[at + 32:at + length]) == data[at + 16:at + 32], at
        found.append((data[at + 56:at + 64], data[at + 64:at + length], data[at + 32:at + 48], data[at:at + length]))
        at += length
    assert at == len(data)
    return found


EXPONENTS8, LOGARITHMS8 = [1], {1: 0}
while len(EXPONENTS8) < 255:
    _value = EXPONENTS8[-1] << 1
    EXPONENTS8.append(_value ^ 0x11D if _value & 0x100 else _value)
    LOGARITHMS8[EXPONENTS8[-1]] = len(EXPONENTS8) - 1


def product8(a, b):
    return EXPONENTS8[(LOGARITHMS8[a] + LOGARITHMS8[b]) % 255] if a and b else 0


def power8(i, exponent):
    return EXPONENTS8[LOGARITHMS8[i] * exponent % 255]


def rank8(rows):
    """Of a matrix over GF(2^8)."""
    rows, rank = [list(row) for row in rows], 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((row for row in rows[rank:] if row[column]), None)
        if pivot is None:
            continue
        rows.remove(pivot)
        rows.insert(rank, pivot)
        inverse = EXPONENTS8[-LOGARITHMS8[pivot[column]] % 255]
        for row in rows[rank + 1:]:
            factor = product8(row[column], inverse)
            row[:] = [each ^ product8(factor, first) for each, first in zip(row, pivot)]
        rank += 1
    return rank


def par1_entry(name, data, is_saved=True, size=None):
    name = name if isinstance(name, bytes) else name.encode("utf-16-le")
    return struct.pack("<QQQ", 56 + len(name), is_saved, len(data) if size is None else size) + md5(data) + md5(data[:16384]) + name


def par1_volume(number, entries, data=b"", set_id=bytes(16), **header):
    """A file of PAR 1.0. header: fields that are wrong."""
    fields = {"version": 0x10000, "number": number, "count": len(entries), "list_offset": 96, "list_bytes": sum(map(len, entries)),
              "data_offset": 96 + sum(map(len, entries)), "data_bytes": len(data), **header}
    version, *others = fields.values()
    hashed = set_id + struct.pack("<6Q", *others) + b"".join(entries) + data
    return b"PAR\0\0\0\0\0" + struct.pack("<Q", version) + md5(hashed) + hashed


def par1_set(files, numbers, others=()):
    """{number: bytes of the volume}. others: names of files that have no recovery data."""
    saved = [data for name, data in files.items() if name not in others]
    entries = [par1_entry(name, data, name not in others) for name, data in files.items()]
    size, volumes = max(map(len, saved)), {}
    for number in numbers:
        parity = bytearray(size if number else 0)
        for i, data in enumerate(saved if number else ()):
            factor = power8(i + 1, number - 1)
            for at, byte in enumerate(data):
                parity[at] ^= product8(factor, byte)
        volumes[number] = par1_volume(number, entries, bytes(parity), md5(b"".join(map(md5, saved))))
    return volumes


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, name, data):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def write_set(self, contents, slice_bytes=64, exponents=range(3), others=()):
        the_set = Set(contents, slice_bytes, exponents, others)
        for name, data in contents.items():
            self.write(name, data)
        self.write("set.par2", the_set.critical)
        self.write("set.vol0+3.par2", b"".join(the_set.recovery.values()) + the_set.critical)
        return the_set
