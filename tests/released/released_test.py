#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a released version has written, a later version reads.

  released_test.py TANDEM [unittest arguments]    reads each VERSION.tar.xz of this folder
  released_test.py TANDEM --make VERSION          writes VERSION.tar.xz, once, with the command of that version

Random bytes of one seed are the content of everything. In an archive: sets/NAME, a shard set for each row of SETS; par2/, files and
folders with PAR2 sets; volume/clean and volume/open, members of a volume after a close, and after a flush without one; tuning.
"""

import ctypes
import hashlib
import os
import pathlib
import random
import shutil
import sys
import tarfile

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "cli"))
import cli_kit  # noqa: E402

MATRICES = """isal-cauchy isal-vandermonde backblaze zfec liberasurecode-isal-vand-inv jerasure-vandermonde jerasure-cauchy-orig jerasure-cauchy-good
snapraid-cauchy par1 hdfs-rs-legacy leopard16 reed-solomon-simd par2 liberasurecode-rs-vand""".split()
# Name: bytes of content, k, m, more options of encode.
SETS = {
    **{matrix: (1_003, 4, 2, "--matrix", matrix) for matrix in MATRICES},
    "raid6": (1_003, 4, 2, "--matrix", "raid6"),
    "zfs-raidz": (1_003, 4, 3, "--matrix", "zfs-raidz"),
    "snapraid-vandermonde": (1_003, 4, 3, "--matrix", "snapraid-vandermonde"),
    "empty": (0, 3, 2),
    "one-byte": (1, 3, 2),
    "mirror": (301, 1, 2),
    "striped": (301, 3, 0),
    "stripes": (9_001, 3, 2, "--block-bytes", "256"),  # many blocks, the last one short
    "wide": (2_001, 200, 100, "--matrix", "leopard16"),  # version 3 of the format
    "resized": (1_003, 4, 2),  # from m = 1
    "replaced": (1_003, 4, 2),  # with --force in place of another set: records have its id
}
VOLUME_BYTES = 3 * 4096 * 20


def content(bytes_, seed=1):
    return random.Random(seed).randbytes(bytes_)


def volume_data():
    """Bytes of a volume's start: whole stripes, a gap that was never written, a part of a block over an older one."""
    data = bytearray((content(251, 2) * 1_000)[:VOLUME_BYTES])  # as small in the archive as that
    data[40_000:90_000] = bytes(50_000)
    data[8_192:8_292] = content(100, 3)
    return bytes(data)


WRITES = [(0, slice(0, 40_000)), (90_000, slice(90_000, VOLUME_BYTES)), (8_192, slice(8_192, 8_292))]


class OpenOptions(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_size_t), ("members", ctypes.POINTER(ctypes.c_char_p)), ("member_count", ctypes.c_size_t),
                ("read_only", ctypes.c_int32), ("thread_count", ctypes.c_uint32), ("cache_bytes", ctypes.c_uint64),
                ("note", ctypes.c_void_p), ("note_user", ctypes.c_void_p), ("reserved", ctypes.c_uint64)]  # fmt: skip


class Volume:
    """volume.h by ctypes."""

    def __init__(self, members, read_only):
        folder = os.path.dirname(cli_kit.TANDEM)
        self.messages = ctypes.CDLL(f"{folder}/libtandem.so")
        self.messages.tandem_last_error_message.restype = ctypes.c_char_p
        self.library = ctypes.CDLL(f"{folder}/libtandem_volume.so")
        self.handle = ctypes.c_void_p()
        names = (ctypes.c_char_p * len(members))(*(os.fsencode(member) for member in members))
        options = OpenOptions(ctypes.sizeof(OpenOptions), names, len(members), read_only)
        self.call("open", None, ctypes.byref(options), ctypes.byref(self.handle))

    def call(self, name, *arguments):
        status = getattr(self.library, f"tandem_volume_{name}")(*arguments)
        if status != 0:
            raise AssertionError(f"tandem_volume_{name} returns {status}: {self.messages.tandem_last_error_message().decode()}")

    def read(self, bytes_):
        data = ctypes.create_string_buffer(bytes_)
        self.call("read", self.handle, ctypes.c_uint64(0), data, ctypes.c_size_t(bytes_))
        return data.raw

    def write(self, offset, data):
        self.call("write", self.handle, ctypes.c_uint64(offset), data, ctypes.c_size_t(len(data)))

    def flush(self):
        self.call("flush", self.handle)

    def close(self):
        self.call("close", self.handle)


class Maker(cli_kit.Command):
    def make(self, archive):
        self.setUp()
        for name, (bytes_, k, m, *more) in SETS.items():
            source = self.write(self.path("source"), content(bytes_))
            where = ["-o", self.path("made", "sets", name), "--name", name, "--no-sync", *more]
            if name == "replaced":
                self.ok("encode", source, "-k", 3, "-m", 1, *where)
                where.append("--force")
            self.ok("encode", source, "-k", k, "-m", 1 if name == "resized" else m, *where)
            if name == "resized":
                self.ok("resize", self.path("made", "sets", name), "-m", m)
        par2 = self.path("made", "par2")
        for place, bytes_ in {"set/a.bin": 5_001, "set/below/b ü.txt": 303, "set/empty": 0, "tree/c": 4_000, "tree/below/d": 700}.items():
            os.utime(self.write(os.path.join(par2, place), content(bytes_, place)), (0, 0))  # sync stores the time
        self.ok("par2", "create", f"{par2}/set/set", f"{par2}/set/a.bin", f"{par2}/set/below", f"{par2}/set/empty", "-s", 400, "-c", 6)
        self.ok("par2", "sync", f"{par2}/tree")
        for path in ["clean", "open"]:
            os.makedirs(self.path("made", "volume", path))
        members = [self.path("made", "volume", "clean", str(index)) for index in range(5)]
        self.ok("volume", "create", *members, "-k", 3, "-m", 2, "--member-bytes", "1M", "--unit-bytes", 4096)
        volume = Volume(members, read_only=0)
        for offset, part in WRITES:
            volume.write(offset, volume_data()[part])
            volume.flush()
        for member in members:  # as a power cut leaves them
            shutil.copy(member, member.replace("clean", "open"))
        volume.close()
        self.ok("autotune", "--output", self.path("made", "tuning"), "-k", 3, "-m", 2, "--shard-bytes", 4096, "--max-seconds", 5)

        def plain(entry):
            entry.uid = entry.gid = entry.mtime = 0
            entry.uname = entry.gname = ""
            return entry

        with tarfile.open(archive, "x:xz", preset=9) as tar:
            tar.add(self.path("made"), ".", filter=plain)
        self.doCleanups()


class Released(cli_kit.Command):
    def each(self, folder):
        """A copy of that folder of each archive."""
        archives = sorted(FOLDER.glob("*.tar.xz"))
        self.assertTrue(archives)
        for archive in archives:
            copy = self.path(archive.name.removesuffix(".tar.xz"))
            with tarfile.open(archive) as tar:
                tar.extractall(copy, [entry for entry in tar if entry.name.startswith(f"./{folder}")])
            yield os.path.join(copy, folder)

    def digests(self, folder):
        files = (pathlib.Path(name, file) for name, _, names in os.walk(folder) for file in names)
        return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}

    def test_shard_sets_are_whole_decode_from_any_k_and_are_mended_to_the_same_bytes(self):
        for sets in self.each("sets"):
            for name in sorted(os.listdir(sets)):
                bytes_, k, m, *_ = SETS[name]
                with self.subTest(set=name):
                    folder = os.path.join(sets, name)
                    shards = sorted(os.listdir(folder))
                    self.assertEqual(len(shards), k + m)
                    self.ok("verify", folder)
                    before = self.digests(folder)
                    for index in random.Random(name).sample(range(k + m), m):
                        os.remove(os.path.join(folder, shards[index]))
                    self.ok("decode", folder, "-o", self.path("out"), "--force")
                    self.assertEqual(self.read(self.path("out")), content(bytes_))
                    if m:
                        self.ok("repair", folder)
                        self.assertEqual(self.digests(folder), before)

    def test_par2_sets_are_whole_and_repair_to_the_same_bytes(self):
        for par2 in self.each("par2"):
            before = self.digests(par2)
            self.ok("par2", "verify", f"{par2}/set/set.par2")
            self.damage(f"{par2}/set/a.bin", 2_000)
            os.remove(f"{par2}/set/below/b ü.txt")
            self.ok("par2", "verify", f"{par2}/set/set.par2", status=1)
            self.ok("par2", "repair", f"{par2}/set/set.par2")
            self.ok("par2", "scrub", f"{par2}/tree")
            self.assertEqual([one["outcome"] for one in self.json("par2", "sync", f"{par2}/tree")["sets"]], ["unchanged"] * 2)
            self.assertEqual(self.digests(par2), before)

    def test_volumes_read_with_members_lost(self):
        for name in ["clean", "open"]:
            for folder in self.each(f"volume/{name}"):
                for lost in [(), (0, 1), (1, 4)]:
                    members = [os.path.join(folder, str(index)) for index in range(5) if index not in lost]
                    volume = Volume(members, read_only=1)
                    self.assertEqual(volume.read(VOLUME_BYTES), volume_data(), (name, lost))
                    volume.close()
                members = [os.path.join(folder, str(index)) for index in range(5)]
                volume = Volume(members, read_only=0)  # replays its log, and is written to
                volume.write(50_000, b"later")
                volume.close()
                self.ok("volume", "scrub", *members)
                volume = Volume(members[2:], read_only=1)
                self.assertEqual(volume.read(VOLUME_BYTES), volume_data()[:50_000] + b"later" + volume_data()[50_005:])
                volume.close()

    def test_tuning_files_are_read(self):
        for tuning in self.each("tuning"):
            entries = self.json("autotune", "--show", "--output", tuning)["entries"]
            self.assertEqual([(entry["operation"], entry["k"], entry["m"]) for entry in entries], [("encode", 3, 2), ("decode", 3, 2)])


if __name__ == "__main__":
    if "--make" in sys.argv:
        Maker().make(FOLDER / f"{sys.argv[2]}.tar.xz")
    else:
        cli_kit.unittest.main()
